//! The desired state: documents, and their generation. Pure.
//!
//! A document becomes a value here, or is refused with the position of the error and what to do. Nothing is read from a node.
//!
//! - [`document`] parses and checks a config: a rendered MachineConfig, Ignition 2 and 3, the answer of a server. Start there.
//! - [`render`] merges the MachineConfigs of a pool, and computes the name of the result.
//! - [`controllers`] generates MachineConfigs from API objects, like the operator's controllers.
//! - [`butane`] translates a Butane config into a MachineConfig.

pub mod document;

pub mod render;

pub mod butane;

pub mod controllers;
