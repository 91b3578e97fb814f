//! `trial session`: prints the login of this process, as a trial judges it.

use anyhow::Result;

use crate::base::error::ExitCode;
use crate::node::login_session;
use crate::report;

/// Runs `trial session`.
pub(super) fn run() -> Result<ExitCode> {
    let mut text = serde_json::to_vec_pretty(&login_session::observe_session())?;
    text.push(b'\n');
    report::print(&text)?;
    Ok(ExitCode::Done)
}
