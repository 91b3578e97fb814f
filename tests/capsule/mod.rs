//! Capsules: a stick with one signature.

mod attacks;
mod keys;
mod reading;
mod signatures;
