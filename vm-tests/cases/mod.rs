//! One file for each person's story.

mod actions;
mod boot_counter;
mod boot_trials;
mod boxed_bootc;
mod boxed_next_boot;
mod boxed_os;
mod boxed_siblings;
mod configs;
mod crash_images;
mod crossing;
mod crossing_boot_loader;
mod crossing_names;
mod fetched;
mod first_boot;
mod first_boot_offline;
mod hand_edited;
mod interrupted;
mod migration;
mod node;
mod os;
mod other_machine;
mod power_cut;
mod rescue_shell;
mod selinux;
mod trial_clock;
mod trials;
