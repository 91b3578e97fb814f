//! The shell of last resort, with a read-only root and a banner. The previous state of the root is restored when the shell ends.

use std::path::Path;

use anyhow::Result;

use crate::base::error::ExitCode;
use crate::host::sys::runtime;
use crate::node::mounts::{BootRoot, RootAccess};
use crate::report;
use crate::report::firstboot::banner_text;

/// Prepares the root before the shell starts. Its mounts are kept, so that the shell can see them.
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

/// Restores the root after the shell, so that the boot continues as without it.
pub(super) fn leave(path: &Path) -> Result<ExitCode> {
    match runtime::read_json(runtime::SHELL) {
        Ok(Some(true)) => BootRoot::reopen(path)?,
        Ok(_) => {}
        Err(error) => log::warn!("whether the root was writable before is not known: {error}"),
    }
    Ok(ExitCode::Done)
}
