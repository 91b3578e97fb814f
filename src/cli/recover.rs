//! `recover`: finish or undo an interrupted run.

use anyhow::Result;

use super::session::open_root;
use super::{Cli, Output, RecoverArgs};
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
    let recovered = recover(&root, &lock, direction)?;
    let text = match cli.output {
        Output::Json => report::recover::json(&recovered)?,
        Output::Text => report::recover::text(&recovered),
    };
    report::print_result(text.as_bytes());
    Ok(ExitCode::Done)
}

/// Recovers; what cannot be recovered leaves the node half-way.
fn recover(root: &Root, lock: &Lock, direction: Direction) -> Result<Recovered> {
    let deployment = Host::observe(root)?.deployment;
    transaction::recover(root, lock, direction, deployment.as_deref())
        .map_err(|error| RunError::Incomplete(format!("recovering: {error}")).into())
}

/// An unfinished transaction comes first, always; what became of it is said.
pub fn recover_first(root: &Root, lock: &Lock) -> Result<()> {
    let recovered = recover(root, lock, Direction::Forward)?;
    if recovered != Recovered::Nothing {
        log::warn!("{}", report::recover::sentence(&recovered));
    }
    Ok(())
}
