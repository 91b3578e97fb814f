//! `install`, packages, a release, and the playbook for many nodes.

mod command;
mod fleet;
mod image_mode;
mod journal;
mod monitoring;
mod packages;
mod packaging;
mod plugins;
mod release;
