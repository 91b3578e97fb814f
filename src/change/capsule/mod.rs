//! A capsule: the list of what is on a medium, with one signature.
//!
//! `capsule.json` names every file with size and SHA-256, the configs and images among them, for which nodes they are, until
//! when, and a sequence number. `capsule.json.sig` is its signature in OpenSSH's format. Files are never signed as a stream: they
//! are read through the list, and what is used is the very copy that was hashed.
//!
//! - [`document`] is the list: strict, and pure.
//! - [`opened`] verifies the signature, and reads files through the list.
//! - [`policy`] reads which keys a node trusts, and where it demands a capsule.
//! - [`accepted`] is what a node remembers: the last sequence number, and who signed which config.
//! - [`scope`] says if a capsule is for this node.
//!
//! `source::gate` gathers the facts of the node and decides; begin there.

pub mod accepted;
pub mod document;
pub mod opened;
pub mod policy;
pub mod scope;

/// The list.
pub const CAPSULE: &str = "capsule.json";
/// Its signature.
pub const SIGNATURE: &str = "capsule.json.sig";
/// The namespace of the signature.
pub const NAMESPACE: &str = "mco-rescue-capsule";
