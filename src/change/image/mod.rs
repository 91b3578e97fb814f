//! An operating system image from one node's OSTree repository to that of another, without a registry.
//!
//! An export is an OSTree repository of the mode `archive`, which any file system holds and `ostree pull-local` reads, with two
//! more files: [`export::DESCRIPTION`] and [`export::LISTING`]. As an archive or a stream it is a tar of the same files: the two
//! files first, then the metadata objects, then the objects of files, then the refs.
//!
//! - [`export`] writes it. Objects are hashed while they are read.
//! - [`source`] opens an export, an archive, a stream, or the repository of another node's disk.
//! - [`import`] compares an image there with the node's repository, and `ostree pull-local` copies what is missing.
//! - [`trust`] says who vouches that this tree is that image.
//!
//! Commits of one image differ between nodes, as they have times; the checksum of the content does not.

pub mod archive;
pub mod export;
pub mod import;
pub mod medium;
pub mod source;
pub mod trust;
