//! A change of a node that has begun: the value that every function needs to change a node.

use std::cell::RefCell;

use anyhow::Result;

use super::front::Front;
use crate::change::install::completion::{Beforehand, Completion};
use crate::change::plan::Plan;
use crate::change::transaction::Lock;
use crate::diagnose::recorder::Event;
use crate::host::root::Root;
use crate::node::command::CommandRunner;

/// A change of a node that has begun. It holds the lock until it is dropped.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct NodeChange<'a> {
    /// The front end.
    pub front: &'a dyn Front,
    /// The root.
    pub root: Root,
    /// Start time, in seconds since 1970.
    pub started: u64,
    /// Who runs the command; `None` for a service.
    pub by: Option<String>,
    /// True if an interrupted run was undone first, at the user's request.
    pub was_undone: bool,
    pub(super) lock: Lock,
    /// The last transaction, for the snapshot at the end.
    pub(super) ran: RefCell<Option<(Event, String)>>,
}

impl<'a> NodeChange<'a> {
    /// Returns the runner that starts programs.
    pub fn runner(&self) -> &'a dyn CommandRunner {
        self.front.runner()
    }

    /// Returns the lock of this change.
    pub fn lock(&self) -> &Lock {
        &self.lock
    }

    /// Installs the units that complete a run with this plan at the next boot, if they are missing.
    ///
    /// # Errors
    /// They cannot be installed, and the plan needs them; nothing of the config was changed.
    pub fn install_completion(
        &self,
        completion: &Completion,
        plan: &Plan,
        beforehand: &Beforehand,
    ) -> Result<()> {
        completion.install_for(&self.root, self.lock(), self.runner(), plan, beforehand)
    }

    /// Remembers that a transaction was carried out, for the snapshot.
    pub fn note_run(&self, event: Event, config: &str) {
        self.ran.replace(Some((event, config.to_owned())));
    }
}
