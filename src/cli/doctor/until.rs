//! `doctor --until`: predicts whether the node will start by itself if it is off until a date.

use anyhow::{Result, anyhow, bail};

use crate::base::error::ExitCode;
use crate::base::time::format_utc;
use crate::change::session::access;
use crate::cli::ui::Ui;
use crate::diagnose::doctor::DoctorEvidence;
use crate::diagnose::doctor::outlook::{OutlookVerdict, look_ahead};
use crate::report;

/// Prints the outlook until a date.
pub(super) fn run(ui: &Ui<'_>, evidence: &DoctorEvidence, until: u64) -> Result<ExitCode> {
    let outlook = look_ahead(evidence, until).map_err(|why| anyhow!("{}: {why}", evidence.root))?;
    if until < outlook.now {
        bail!(
            "{} is in the past: it is {} now. Give a later day",
            format_utc(until),
            format_utc(outlook.now)
        );
    }
    ui.print(
        || report::outlook::to_json(&evidence.root, &outlook),
        || report::outlook::to_text(&evidence.root, &outlook, super::style()),
    )?;
    let denied = outlook.unseen.iter().any(|words| access::is_denied(words));
    if denied {
        log::warn!("some files can be read by root alone, as listed. Run it with sudo");
    }
    Ok(match outlook.verdict {
        OutlookVerdict::Lost => ExitCode::Critical,
        OutlookVerdict::NeedsHands => ExitCode::Drift,
        OutlookVerdict::Unknown => ExitCode::Error,
        OutlookVerdict::ByItself => ExitCode::Done,
    })
}
