//! The single end of every command that changes a node: the snapshot, then the trial or the reboot.

use anyhow::Result;

use super::node_change::NodeChange;
use super::snapshot::record_run;
use super::trial::running::RunningTrial;
use crate::base::error::ExitCode;
use crate::change::staging::deployments;

/// How to end a change that is in place.
#[allow(missing_debug_implementations, reason = "it borrows a front end")]
pub struct Ending<'a> {
    /// The trial that the change belongs to.
    pub tried: Option<RunningTrial<'a>>,
    /// True if preflight found an inhibitor in the staged image.
    pub is_inhibited: bool,
    /// The node reboots now; contains the value of `--ignore-quorum`.
    pub reboot: Option<bool>,
    /// The exit code if trial, preflight and reboot do not change it.
    pub code: ExitCode,
}

impl<'a> Ending<'a> {
    /// Returns the end of a command without trial or reboot.
    pub fn from_code(code: ExitCode) -> Self {
        Self {
            tried: None,
            is_inhibited: false,
            reboot: None,
            code,
        }
    }
}

impl<'a> NodeChange<'a> {
    /// Ends a change that is in place: the snapshot, then its trial or the reboot.
    ///
    /// # Errors
    /// The trial reverted the change, or the reboot failed.
    pub fn finish_change(self, ending: Ending<'a>) -> Result<ExitCode> {
        self.record_snapshot();
        let Ending {
            tried,
            is_inhibited,
            reboot,
            code,
        } = ending;
        match (tried, reboot) {
            (Some(tried), _) if is_inhibited => {
                Err(tried.refuse_change(self, "preflight found an inhibitor in the staged image"))
            }
            (Some(tried), Some(ignore_quorum)) => tried.reboot_node(self, ignore_quorum),
            (Some(tried), None) => tried.wait_for_confirmation(self, code),
            (None, _) if is_inhibited => Ok(ExitCode::Drift),
            (None, Some(ignore_quorum)) if code == ExitCode::Done => {
                deployments::reboot_node(&self.root, self.runner(), ignore_quorum)?;
                Ok(code)
            }
            (None, _) => Ok(code),
        }
    }

    /// Takes the snapshot at the end of a run, if the recorder is set up.
    pub fn record_snapshot(&self) {
        if let Some((event, config)) = self.ran.take() {
            record_run(self, event, &config);
        }
    }
}
