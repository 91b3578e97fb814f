//! Values that every room (top-level module) uses, without any effect.
//!
//! Nothing here reads a file, starts a program, or knows what a config is. A module belongs to `base` only if at least two rooms
//! use it and it uses none of them itself.
//!
//! - How a command ends: [`error`] has the exit codes, [`reason`] the text of a system error, [`notice`] the messages that
//!   accompany a result.
//! - Things on a disk, as values: [`object`] is a file, link or directory with its attributes, [`paths`] has every path of the
//!   node that the program knows by name, [`owned`] the ones among them that it owns.
//! - [`order`] sorts.
//! - Texts: [`text`], [`time`], and the formats of Go, in which the daemon writes its records ([`go_quote`], [`go_json`]).
//! - Values of a config that need no document: [`kargs`], [`secrets`] that must be hidden, [`ssh_key`].
//! - [`invocation`] builds every command that the program prints for a user: start there if a printed command is wrong.

pub mod order;

pub mod error;

pub mod reason;

pub mod text;

pub mod time;

pub mod notice;

pub mod object;

pub mod paths;

pub mod kargs;

pub mod go_quote;

pub mod go_json;

pub mod secrets;

pub mod diff;

pub mod ssh_key;

pub mod owned;

pub mod invocation;

pub mod wrap;
