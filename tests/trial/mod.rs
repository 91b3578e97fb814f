//! Trials: who confirms, probes, and what people see.

mod notices;
mod sessions;
