//! The engine of runs: everything that begins, carries out and ends a change of a node.
//!
//! A front end opens a root, and asks for a run with plain values; the command line is one such front end. The engine knows no
//! option of a command line, prints nothing and reads no terminal: what it has to ask, or to say before its end, goes through
//! [`front::Front`], and its results are values.
//!
//! - [`opening`] is the one beginning: it refuses what must not begin and takes the lock. Begin there.
//! - [`node_change`] is what everything takes that changes a node, [`work`] carries a plan out, and [`ending`] is the one end.
//! - [`recover`] finishes or undoes a run that stopped half-way, [`taking_back`] takes a finished run back.
//! - [`trial`] is a change that goes back by itself.
//! - [`snapshot`] records the node's facts at the end of a run, [`events`] tells the journal, and [`logins`] the people who log in.
//!
//! The room stands after `diagnose`, as each run ends with a snapshot of the recorder there, and before `report`, which makes
//! texts of the results. What is only looked at and planned is in `change/session`, so that `diagnose` can use it.

pub mod front;

pub mod node_change;

pub mod events;

pub mod first_boot_units;

pub mod snapshot;

pub mod recover;

pub mod opening;

pub mod work;

pub mod taking_back;

pub mod trial;

pub mod ending;

pub mod logins;

pub mod recovery;

pub mod complete;

pub mod kept_runs;

pub mod rollback;
