//! Trials: who confirms, probes, and what people see.

mod beside;
mod matrix;
mod network_manager;
mod notices;
mod probes;
mod sequences;
mod services;
mod sessions;
mod umask;
mod way_back;
