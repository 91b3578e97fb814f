//! The process and the kernel: signals, privileges, memory, threads, limits, and files below `/run`.

pub mod limits;
pub mod locks;
pub mod memory;
pub mod parallel;
pub mod privileges;
pub mod runtime;
pub mod signals;
