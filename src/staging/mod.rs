//! Staging of the operating system: the deployment that the next boot enters.

pub mod awaited;
