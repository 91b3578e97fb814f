//! A change of a node that has begun: what everything that changes a node takes.

use std::cell::RefCell;

use super::front::Front;
use crate::change::transaction::Lock;
use crate::diagnose::recorder::Event;
use crate::host::root::Root;
use crate::node::command::CommandRunner;

/// A change of a node that has begun. It has the lock until it is dropped.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct NodeChange<'a> {
    /// The front end.
    pub front: &'a dyn Front,
    /// The root.
    pub root: Root,
    /// Its beginning, in seconds since 1970.
    pub started: u64,
    /// A run that stopped half-way was taken back first, as the user asked for.
    pub was_taken_back: bool,
    pub(super) lock: Lock,
    /// The last transaction, for the recorder.
    pub(super) ran: RefCell<Option<(Event, String)>>,
}

impl<'a> NodeChange<'a> {
    /// Starts programs.
    pub fn runner(&self) -> &'a dyn CommandRunner {
        self.front.runner()
    }

    /// The lock of this change.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Notes that a transaction was carried out.
    pub fn note_run(&self, event: Event, config: &str) {
        self.ran.replace(Some((event, config.to_owned())));
    }
}
