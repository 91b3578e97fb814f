//! Trials: who confirms, probes, and what people see.

mod network_manager;
mod notices;
mod services;
mod sessions;
