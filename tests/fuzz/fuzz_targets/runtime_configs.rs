//! See `tests/support/fuzz_targets.rs`.
#![no_main]
#![allow(dead_code)]

#[path = "../../support/fuzz_targets.rs"]
mod fuzz_targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz_targets::runtime_configs(data));
