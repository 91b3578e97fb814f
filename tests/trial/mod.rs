//! Trials: who confirms, probes, and what people see.

mod network_manager;
mod notices;
mod probes;
mod services;
mod sessions;
