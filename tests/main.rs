//! The tests, by behaviour; `support` is what they share. They are one program, so that building links the library once.
//! Each test works in a root of its own. A test that changes mounts or networks does so in a thread with namespaces of its own; one
//! that changes its environment, limits or capabilities does so in a child process or a thread of its own. A test that cannot
//! keep to this belongs in a program of its own.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

mod support;

mod apply;
mod capsule;
mod commands;
mod config;
mod controllers;
mod crossing;
mod daemon;
mod doctor;
mod faults;
mod fetch;
mod first_boot;
mod hostile;
mod house;
mod install;
mod layers;
mod os;
mod pages;
mod recorder;
mod rollback;
mod screens;
mod skips;
mod trial;
