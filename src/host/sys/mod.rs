//! The process and the kernel: signals, privileges, memory, threads, limits, messages to the service manager and the journal,
//! and files below `/run`.

pub mod journal;
pub mod kernel;
pub mod limits;
pub mod locks;
pub mod memory;
pub mod notify;
pub mod parallel;
pub mod privileges;
pub mod runtime;
pub mod signals;
