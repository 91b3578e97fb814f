//! Capsules: a stick with one signature.

mod attacks;
mod first_boot;
pub mod keys;
mod making;
mod moments;
mod mutations;
mod override_login;
mod reading;
mod signatures;
