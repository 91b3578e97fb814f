//! The shell of last resort: the root read-only, and a banner. What it finds is given back when the shell is left.

use std::path::Path;

use anyhow::Result;

use crate::base::error::ExitCode;
use crate::host::sys::runtime;
use crate::node::mounts::{BootRoot, RootAccess};
use crate::report;
use crate::report::firstboot::banner_text;

/// Before the shell. Its mounts stay: the shell is to see them.
pub(super) fn enter(path: &Path) -> Result<ExitCode> {
    let prepared = BootRoot::prepare(path, RootAccess::Read).and_then(|root| root.close());
    let problem = match prepared {
        Ok(was_open) => runtime::write_json(runtime::SHELL, &was_open)
            .err()
            .map(|error| format!("what it was like cannot be kept: {error}")),
        Err(error) => Some(error.to_string()),
    };
    let text = banner_text(&path.display().to_string(), problem.as_deref());
    report::print(text.as_bytes())?;
    Ok(ExitCode::Done)
}

/// After it: the boot that goes on finds the root as it would have been without us.
pub(super) fn leave(path: &Path) -> Result<ExitCode> {
    if runtime::read_json(runtime::SHELL) == Some(true) {
        BootRoot::reopen(path)?;
    }
    Ok(ExitCode::Done)
}
