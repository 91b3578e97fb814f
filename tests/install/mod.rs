//! `install`, packages, and the playbook for many nodes.

mod command;
mod fleet;
mod journal;
mod monitoring;
mod packaging;
mod plugins;
