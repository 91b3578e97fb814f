//! `install`, packages, and the playbook for many nodes.

mod command;
mod fleet;
mod packaging;
