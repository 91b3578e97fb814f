//! Values that every room uses, without any effect.
//!
//! Nothing here reads a file, starts a program, or knows what a config is. What a room needs of another one's concerns is not
//! here: a module belongs to `base` only if two rooms use it and it uses no room itself.
//!
//! - What a command ends with: [`error`] has the exit codes, [`reason`] the words of a system error, [`notice`] what is said
//!   beside a result.
//! - What is on a disk, as values: [`object`] is a file, link or directory with its attributes, [`paths`] has every path of
//!   the node that the program knows by name, [`owned`] which of them it owns.
//! - Texts: [`text`], [`time`], and the forms of Go, in which the daemon writes its records ([`go_quote`], [`go_json`]).
//! - Values of a config that need no document: [`kargs`], [`secrets`] to be hidden, [`ssh_key`].
//! - [`invocation`] makes every command that the program prints for a user: begin there if a printed command is wrong.

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

pub mod ssh_key;

pub mod owned;

pub mod invocation;
