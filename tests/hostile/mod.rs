//! Roots, disks and users with bad intentions, and what never leaves the program.

mod disk;
mod escape;
mod in_the_way;
mod races;
mod secret_forms;
mod secrets;
mod static_binary;
mod umask;
mod unprivileged;
