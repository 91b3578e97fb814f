//! `recover`: finish or undo an interrupted run.

use anyhow::Result;

use super::session::open_root;
use super::{Cli, RecoverArgs};
use crate::error::{ExitCode, RunError};
use crate::node::Host;
use crate::report;
use crate::root::Root;
use crate::transaction::{self, Direction, Lock, Recovered};

/// Runs `recover`.
pub fn run(cli: &Cli, args: &RecoverArgs) -> Result<ExitCode> {
    let root = open_root(cli)?;
    let lock = transaction::acquire(&root)?;
    let direction = if args.back {
        Direction::Back
    } else {
        Direction::Forward
    };
    let text = match recover(&root, &lock, direction)? {
        Recovered::Nothing => "Nothing to recover.\n".to_owned(),
        other => describe(&other) + "\nNext: mco-rescue verify\n",
    };
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// Recovers; what cannot be recovered leaves the node half-way.
pub fn recover(root: &Root, lock: &Lock, direction: Direction) -> Result<Recovered> {
    let deployment = Host::observe(root)?.deployment;
    transaction::recover(root, lock, direction, deployment.as_deref())
        .map_err(|error| RunError::Incomplete(format!("recovering: {error}")).into())
}

/// What was done, in one sentence.
pub fn describe(recovered: &Recovered) -> String {
    match recovered {
        Recovered::Nothing => "nothing was pending".to_owned(),
        Recovered::Swept(config) => {
            format!(
                "left-overs of an interrupted run ({}) were removed; it had changed nothing",
                config.name
            )
        }
        Recovered::Finished(config) => {
            format!("an interrupted run was brought to its end: {}", config.name)
        }
        Recovered::Undone(config) => format!("an interrupted run was undone: {}", config.name),
    }
}
