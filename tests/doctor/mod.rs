//! `doctor`: each check on nodes that are well and on nodes with one trouble, and the command itself.

mod branches;
mod bundle;
mod command;
mod more;
