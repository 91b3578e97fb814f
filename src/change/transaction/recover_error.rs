//! The errors that stop a recovery.

use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::RootPath;

use super::capsules::CapsuleMemoryError;
use super::execute::StepError;
use super::flags::FlagsError;
use super::jobs::JobError;
use super::lock::LockError;
use super::state::StateError;
use super::survey::Stuck;

/// An error that stopped recovery.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// A file of the state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// What the run took from a capsule could not be remembered.
    #[error(transparent)]
    Capsule(#[from] CapsuleMemoryError),
    /// A step could not be taken.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Flags could not be cleared or set.
    #[error(transparent)]
    Flags(#[from] FlagsError),
    /// The run can go in neither direction.
    #[error("{0}")]
    Stuck(Box<Stuck>),
    /// A path of `--leave` does not belong to the run.
    #[error(
        "--leave {0}: the interrupted run has no path there or below. Nothing was changed. Next: {recover}", recover = mco_rescue("recover")
    )]
    NotItsPath(RootPath),
    /// No journal is damaged or of another version, so there is nothing to give up.
    #[error(
        "--give-up is for an interrupted run whose journal is damaged or has another version; there is none here. Nothing was changed. \
         Next: {recover}", recover = mco_rescue("recover")
    )]
    Whole,
    /// The journal belongs to another deployment's `etc`.
    #[error(
        "the interrupted run belongs to deployment {0}, but this is {1}. Boot into that deployment and run recover there, \
         or give it up here with `recover --back`"
    )]
    OtherDeployment(String, String),
    /// A staged name could not be removed.
    #[error("left-overs of the run could not be removed; the next run tries again")]
    LeftOvers,
    /// A file system could not be synced.
    #[error("flushing to disk: {0}")]
    Sync(Reason),
    /// A job for the running system failed, so the files were restored.
    #[error("{0}; the interrupted run was undone{1}")]
    Undone(Box<JobError>, String),
}

/// The reason why a finished run is still in the history.
#[derive(Debug, thiserror::Error)]
pub enum ForgetError {
    /// The lock is not held for writing.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Part of it could not be removed.
    #[error("run {0} was reverted, but it is still in the history. Next: rm -r /{history}/{0}", history = paths::HISTORY)]
    Left(String),
}
