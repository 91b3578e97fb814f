//! Trials: who confirms, probes, and what people see.

mod sessions;
