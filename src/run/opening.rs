//! The single beginning of every command that changes a node.
//!
//! [`Opening::check_needs`] refuses what must not begin, and takes the lock. [`Opening::begin_change`] handles an interrupted run and returns the
//! [`NodeChange`] that every change of a node requires. The needs of a command are data ([`Needs`]), so that the commands can be
//! compared.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use crate::base::error::RunError;
use crate::base::invocation::{mco_rescue, reboot_command};
use crate::base::text::count_noun;
use crate::base::time::current_time;
use crate::change::session::access;
use crate::change::session::access::AccessNeed;
use crate::change::session::machine;
use crate::change::session::own_state::expect_known_state;
use crate::change::staging::state;
use crate::change::transaction::{self, Direction, Lock, LockError, Pending};
use crate::change::trial::on_disk::refuse_during_trial;
use crate::host::root::Root;
use crate::node::login_session::describe_caller;
use crate::run::front::{Front, InterruptedAnswer};
use crate::run::interrupted::{has_run_files, recover_first};
use crate::run::node_change::NodeChange;

/// Pause between two attempts to take the lock.
const ASK_LOCK_AGAIN: Duration = Duration::from_millis(100);
/// Maximum wait for a command that begins a trial. NetworkManager alone may take a minute for a connection.
const LET_TRIAL_BEGIN: Duration = Duration::from_secs(90);
/// Maximum wait for another holder of the lock, for commands that should not fail because of it.
const LET_OTHERS_END: Duration = Duration::from_secs(10);

/// What a command needs before it changes a node.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    machine: MachineNeed,
    /// The user must be able to write the files that every run writes.
    is_written: bool,
    /// Files in the state directory that have another version are refused.
    knows_state: bool,
    /// Maximum wait for another process that holds the lock.
    patience: Duration,
    during_trial: DuringTrial,
    before_boot: BeforeBoot,
    interrupted: InterruptedPolicy,
}

/// The kind of machine that a command requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MachineNeed {
    /// A node of a cluster, or any machine if the user insists (`meant`, from `--not-a-node`).
    Node { meant: bool },
    /// Any installed system.
    System,
    /// Not checked.
    Any,
}

/// What happens if a trial is unconfirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DuringTrial {
    /// The command is refused: the trial would revert its change, or could no longer revert its own.
    Refused,
    /// The command ends the trial, or does not affect it.
    Allowed,
}

/// What happens if a run waits for the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeforeBoot {
    /// The command is refused: another run would prevent reverting the waiting one.
    Refused,
    /// The command continues from that state, or does not affect it.
    Allowed,
}

/// What happens to an interrupted run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterruptedPolicy {
    /// The user is asked; with `--yes` the run is finished first.
    Asked,
    /// The run is finished first, as there is no prompt.
    Finished,
    /// The command is refused, for this reason.
    Refused(&'static str),
    /// The run is left alone: the command ends it, or does not affect it.
    Left,
}

/// Needs of a command that plans and carries out a run.
const RUN: Needs = Needs {
    machine: MachineNeed::Node { meant: false },
    is_written: true,
    knows_state: true,
    patience: Duration::ZERO,
    during_trial: DuringTrial::Refused,
    before_boot: BeforeBoot::Allowed,
    interrupted: InterruptedPolicy::Asked,
};
/// Needs of a command that ends what another one has begun.
const END: Needs = Needs {
    machine: MachineNeed::Any,
    during_trial: DuringTrial::Allowed,
    interrupted: InterruptedPolicy::Left,
    ..RUN
};

impl Needs {
    /// Needs of `apply`.
    pub const APPLY: Self = RUN;
    /// Needs of `pivot`.
    pub const PIVOT: Self = RUN;
    /// Needs of `apply --key`.
    pub const KEY: Self = Self {
        before_boot: BeforeBoot::Refused,
        ..RUN
    };
    /// Needs of `doctor --fix`.
    pub const FIX: Self = Self::KEY;
    /// Needs of `rollback`.
    pub const ROLLBACK: Self = RUN;
    /// Needs of `rollback` during a trial. The trial is reverted at once, even while its command is still making services read the
    /// new files. Its guard undoes an incomplete run.
    pub const ROLLBACK_OF_TRIAL: Self = Self {
        patience: LET_TRIAL_BEGIN,
        ..END
    };
    /// Needs of `install`.
    pub const INSTALL: Self = Self {
        // The version being installed may be the one that knows the state files.
        knows_state: false,
        interrupted: InterruptedPolicy::Left,
        ..RUN
    };
    /// Needs of `install --remove`.
    pub const REMOVE: Self = Self {
        machine: MachineNeed::System,
        interrupted: InterruptedPolicy::Refused("removing would take away what it needs"),
        ..RUN
    };
    /// Needs of `firstboot` with a config, in an initramfs.
    pub const FIRST_BOOT: Self = Self {
        is_written: false,
        interrupted: InterruptedPolicy::Finished,
        ..RUN
    };
    /// Needs of `firstboot` for an interrupted run, which is finished even during a trial: a trial can only revert complete runs.
    pub const FIRST_BOOT_RECOVERY: Self = Self {
        machine: MachineNeed::Any,
        during_trial: DuringTrial::Allowed,
        ..Self::FIRST_BOOT
    };
    /// Needs of `complete`, during a boot.
    pub const COMPLETE: Self = Self {
        interrupted: InterruptedPolicy::Finished,
        ..END
    };
    /// Needs of `recover`.
    pub const RECOVER: Self = Self {
        machine: MachineNeed::System,
        ..END
    };
    /// Needs of `recover --give-up`.
    pub const GIVE_UP: Self = Self {
        knows_state: false,
        ..Self::RECOVER
    };
    /// Needs of `record`.
    pub const RECORD: Self = Self {
        machine: MachineNeed::System,
        knows_state: false,
        ..END
    };
    /// Needs of `record` at boot. The guard of a reverting trial holds the lock for some seconds.
    pub const RECORD_BOOT: Self = Self {
        patience: LET_OTHERS_END,
        ..Self::RECORD
    };
    /// Needs of `confirm`. The guard of a reverting trial holds the lock for some seconds.
    pub const CONFIRM: Self = Self {
        patience: LET_OTHERS_END,
        ..END
    };
    /// Needs of the guard of a trial, and of the unit that judges its boot.
    pub const GUARD: Self = Self {
        is_written: false,
        knows_state: false,
        ..END
    };
    /// Needs of `trial boot-counter`.
    pub const BOOT_COUNTER: Self = Self {
        machine: MachineNeed::System,
        knows_state: false,
        ..END
    };

    /// Returns these needs for a node, or for any machine if the user insists (`--not-a-node`).
    #[must_use]
    pub fn if_meant(self, meant: bool) -> Self {
        Self {
            machine: MachineNeed::Node { meant },
            ..self
        }
    }

    /// Returns these needs for a dry run, which leaves an interrupted run alone.
    #[must_use]
    pub fn for_dry_run(self, is_dry_run: bool) -> Self {
        if is_dry_run {
            Self {
                interrupted: InterruptedPolicy::Refused("a dry run does not recover it"),
                ..self
            }
        } else {
            self
        }
    }

    /// Refuses a root on which the command must not work. Creates and writes nothing there.
    pub fn expect_root(&self, root: &Root) -> Result<()> {
        match self.machine {
            MachineNeed::Node { meant } => machine::expect_node(root, meant)?,
            MachineNeed::System => machine::expect_system(root)?,
            MachineNeed::Any => {}
        }
        if self.is_written {
            access::expect_access(root, AccessNeed::Write)?;
        }
        if self.knows_state {
            expect_known_state(root)?;
        }
        Ok(())
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "the lock of a node is taken here, and nowhere else"
    )]
    fn take_lock(&self, root: &Root) -> Result<Lock> {
        let until = Instant::now() + self.patience;
        loop {
            match transaction::acquire_lock(root) {
                Err(LockError::Held(_)) if Instant::now() < until => thread::sleep(ASK_LOCK_AGAIN),
                other => return Ok(other?),
            }
        }
    }

    /// Refuses to begin because of what other commands have begun. The lock must be held.
    fn expect_quiet(&self, root: &Root, pending: &Pending) -> Result<()> {
        if self.during_trial == DuringTrial::Refused {
            refuse_during_trial(root)?;
        }
        if self.before_boot == BeforeBoot::Refused && state::read_awaited(root)?.is_some() {
            bail!(
                "a run waits for the next boot, and one more run would keep it from being reverted. Nothing was changed. Next: {}, or \
                 {} # reverts it",
                reboot_command(),
                mco_rescue("rollback")
            );
        }
        if let (InterruptedPolicy::Refused(why), (state, Some(config))) =
            (self.interrupted, pending.state())
        {
            bail!(
                "an earlier run ({}) is {state}, and {why}. Nothing was changed. Next: {}",
                config.name,
                mco_rescue("recover")
            );
        }
        Ok(())
    }
}

/// Returns true if the error means that another process holds the lock.
pub fn is_held(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(LockError::Held(_)))
}

/// Looks for an interrupted run. Unusable run files also count as one.
fn find_pending(root: &Root) -> Result<Pending> {
    let found = transaction::find_pending(root);
    found.map_err(|error| match has_run_files(root) {
        Ok(true) => RunError::Incomplete(format!("recovering: {error}")).into(),
        _ => anyhow!("looking for an interrupted run: {error}"),
    })
}

/// A command that may begin: it holds the lock, and has changed nothing.
#[must_use]
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct Opening<'a> {
    change: NodeChange<'a>,
    interrupted: InterruptedPolicy,
    pending: Pending,
}

impl<'a> Opening<'a> {
    /// Checks the needs of the command, and takes the lock.
    ///
    /// # Errors
    /// The command is refused; nothing was changed.
    pub fn check_needs(front: &'a dyn Front, root: Root, needs: &Needs) -> Result<Self> {
        needs.expect_root(&root)?;
        let lock = needs.take_lock(&root)?;
        let pending = match needs.interrupted {
            InterruptedPolicy::Left => Pending::Nothing,
            _ => find_pending(&root)?,
        };
        needs.expect_quiet(&root, &pending)?;
        Ok(Self {
            change: NodeChange {
                front,
                root,
                started: current_time(),
                by: describe_caller(),
                was_undone: false,
                lock,
                ran: RefCell::default(),
            },
            interrupted: needs.interrupted,
            pending,
        })
    }

    /// Reads the inputs of the command first if an interrupted run is pending, so that a command that would fail on them leaves
    /// that run alone.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn read_first<T>(
        &self,
        read: impl FnOnce(&Root, &Pending) -> Result<T>,
    ) -> Result<Option<T>> {
        match &self.pending {
            Pending::Nothing => Ok(None),
            pending => read(&self.change.root, pending).map(Some),
        }
    }

    /// Begins the change, after finishing or undoing an interrupted run.
    ///
    /// # Errors
    /// The user wants to leave that run as it is, or it can be neither finished nor undone.
    pub fn begin_change(self) -> Result<NodeChange<'a>> {
        let direction = match (self.interrupted, &self.pending) {
            (InterruptedPolicy::Left, _) => return Ok(self.change),
            (InterruptedPolicy::Asked, Pending::Unfinished(config, _)) => {
                self.ask_direction(&config.name)?
            }
            _ => Direction::Forward,
        };
        recover_first(&self.change, direction)?;
        Ok(NodeChange {
            was_undone: direction == Direction::Back,
            ..self.change
        })
    }

    /// Asks whether an interrupted run is finished or undone.
    fn ask_direction(&self, config: &str) -> Result<Direction> {
        let steps = match transaction::count_taken(&self.change.root)? {
            Some((taken, all)) => format!(", {taken} of {}", count_noun(all, "step")),
            None => String::new(),
        };
        let stopped = format!("A run to {config} was interrupted{steps}");
        match self.change.front.ask_about_interrupted(&stopped)? {
            InterruptedAnswer::Finish => Ok(Direction::Forward),
            InterruptedAnswer::Undo => Ok(Direction::Back),
            InterruptedAnswer::Stop => bail!(
                "{}{}. Nothing was changed. Finish it: {}; or revert it: {}; then run this again",
                &stopped[..1].to_lowercase(),
                &stopped[1..],
                mco_rescue("recover"),
                mco_rescue("recover --back")
            ),
        }
    }
}
