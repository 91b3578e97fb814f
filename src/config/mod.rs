//! The wanted state: documents, and what makes them. Pure.
//!
//! A document becomes a value here, or is refused with its place and what to do. Nothing is read from a node.
//!
//! - [`document`] parses and checks a config: a rendered MachineConfig, Ignition 2 and 3, what a server answers. Begin there.
//! - [`render`] merges the MachineConfigs of a pool, and computes the name of the result.
//! - [`controllers`] makes the MachineConfigs that the operator's controllers make of objects of the API.
//! - [`butane`] makes a MachineConfig of a Butane config.

pub mod document;

pub mod render;

pub mod butane;

pub mod controllers;
