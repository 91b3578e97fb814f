//! `--stop-workloads`: kubelet and pods are stopped before files change that running pods may not outlive.
//!
//! No drain: nothing is moved elsewhere first, and no budget is asked.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::base::error::{self, Changed};
use crate::base::paths;
use crate::change::transaction::{open_store, store_value};
use crate::host::root::{Root, RootPath};
use crate::host::state_file;
use crate::host::sys::signals::DeferredSignals;
use crate::node::Host;
use crate::node::boot::BootIdentity;
use crate::node::command::job::Job;
use crate::node::command::{CommandRunner, crictl, systemctl};
use crate::node::neighbours::has_fencing;

const KUBELET: &str = "kubelet.service";
const VERSION: u32 = 1;

/// Kept in `/var/lib/mco-rescue/stopped.json` while the kubelet is stopped: a run that is killed leaves it, and the next
/// one starts the kubelet again. A boot does so by itself.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    /// The boot in which it was stopped.
    #[serde(flatten)]
    boot: Option<BootIdentity>,
}

fn this_boot(root: &Root, runner: &dyn CommandRunner) -> Result<Option<BootIdentity>> {
    let deployment = Host::observe(root)?.deployment;
    Ok(BootIdentity::observe(root, deployment, runner))
}

/// Writes the note durably, before anything is stopped.
pub fn note_stopped(root: &Root, runner: &dyn CommandRunner) -> Result<()> {
    let note = Note {
        version: VERSION,
        boot: this_boot(root, runner)?,
    };
    store_value(root, paths::STOPPED, &note).context("noting that the kubelet is stopped")
}

/// Removes the note once the kubelet runs again, or a boot will start it.
pub fn forget_stopped(root: &Root) {
    let forget = || -> Result<()> {
        let store = open_store(root, paths::STATE)?;
        Ok(store.remove_file(RootPath::fixed(paths::STOPPED).name())?)
    };
    if let Err(error) = forget() {
        log::warn!("forgetting that the kubelet was stopped: {error:#}");
    }
}

/// Reads the note; inside it is `None` if the file is damaged.
fn read_note(root: &Root) -> Result<Option<Option<Note>>> {
    if !root.exists(&RootPath::fixed(paths::STOPPED))? {
        return Ok(None);
    }
    let known = |note: &Note| note.version;
    Ok(Some(state_file::read_remembered(
        root,
        paths::STOPPED,
        VERSION,
        known,
    )?))
}

/// Returns true if the root runs, and still does so since the note was written, as far as the note tells.
fn is_of_now(root: &Root, runner: &dyn CommandRunner, note: Option<Note>) -> Result<bool> {
    if !root.is_live() {
        return Ok(false);
    }
    let Some(then) = note.and_then(|note| note.boot) else {
        return Ok(true);
    };
    Ok(this_boot(root, runner)?.is_some_and(|now| now.is_same(&then)))
}

/// Returns true if a run that was killed in this boot has left the kubelet stopped.
///
/// # Errors
/// The note of that run cannot be read.
pub fn is_left_stopped(root: &Root, runner: &dyn CommandRunner) -> Result<bool> {
    match read_note(root)? {
        Some(note) => is_of_now(root, runner, note),
        None => Ok(false),
    }
}

/// Starts the kubelet again where a run that was killed had stopped it in this boot.
///
/// # Errors
/// The note of that run cannot be read, or the kubelet does not start.
pub fn start_again(root: &Root, runner: &dyn CommandRunner) -> Result<()> {
    let unread = || {
        format!(
            "checking that no interrupted run has left the kubelet stopped. If it is not running, start it. Next: systemctl start {KUBELET}"
        )
    };
    let Some(note) = read_note(root).with_context(unread)? else {
        return Ok(());
    };
    let here = is_of_now(root, runner, note).with_context(unread)?;
    let fencing = has_fencing(root).with_context(unread)?;
    if here && !fencing {
        systemctl::start_unit(runner, KUBELET).with_context(|| {
            format!("starting the kubelet, which an interrupted run had stopped. Next: systemctl start {KUBELET}")
        })?;
        log::warn!("the kubelet, which an interrupted run had stopped, is started again");
        error::note_changed(Changed::Before);
    }
    forget_stopped(root);
    Ok(())
}

/// The kubelet, and with it its pods, are stopped as long as this lives, whatever becomes of the run; a signal that
/// would end the program waits until they are started again.
#[allow(missing_debug_implementations, reason = "it borrows a runner")]
pub struct Stopped<'a> {
    runner: &'a dyn CommandRunner,
    /// How many pods were stopped.
    pub pods: usize,
    over: bool,
    // Dropped last.
    signals: DeferredSignals,
}

/// Checks that the programs answer, before anything is stopped.
///
/// # Errors
/// No crictl, or no container runtime.
pub fn ensure_possible(runner: &dyn CommandRunner) -> Result<()> {
    crictl::list_pods(runner).map(drop).context(
        "asking the container runtime for its pods; nothing was changed. Stop the workloads by other means, or leave \
         --stop-workloads out",
    )
}

/// Stops the kubelet, so that it starts nothing again, then every pod in the order in which the runtime lists them.
///
/// # Errors
/// No crictl, or a pod that does not stop; the kubelet runs again then, and brings back what was stopped.
pub fn stop_workloads(runner: &dyn CommandRunner) -> Result<Stopped<'_>> {
    let mut stopped = Stopped {
        runner,
        pods: 0,
        over: false,
        signals: DeferredSignals::new(),
    };
    systemctl::stop_units(runner, &[KUBELET])
        .context("stopping the kubelet; nothing was changed")?;
    stopped.stop_pods()?;
    Ok(stopped)
}

impl Stopped<'_> {
    fn stop_pods(&mut self) -> Result<()> {
        let pods =
            crictl::list_pods(self.runner).context("asking the container runtime for its pods")?;
        for pod in &pods {
            if let Some(signal) = self.signals.waiting_signal() {
                let said = format!(
                    "ended by {signal}; no file was changed, and the kubelet is started again"
                );
                // After the signal no code is left to report it.
                log::warn!("{said}");
                bail!(said);
            }
            log::info!("stopping pod {pod}");
            crictl::stop_pod(self.runner, pod).with_context(|| {
                format!("stopping pod {pod}; no file was changed, and the kubelet is started again")
            })?;
            self.pods += 1;
        }
        Ok(())
    }

    /// Returns the job that starts the kubelet at the end of the run; the journal knows it then.
    pub fn start_job() -> Job {
        Job::Start(KUBELET.to_owned())
    }

    /// Ends the stop without a start: the run has started the kubelet again, or a reboot does.
    pub fn disarm(mut self) {
        self.over = true;
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if let Err(error) = systemctl::start_unit(self.runner, KUBELET) {
            log::warn!("starting the kubelet again: {error}. Next: systemctl start {KUBELET}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::command::{CommandError, CommandLine, CommandOutput};
    use std::cell::RefCell;

    /// Two pods, of which `stubborn` may not stop.
    struct Node {
        said: RefCell<Vec<String>>,
        crictl: bool,
        stubborn: &'static str,
    }

    impl CommandRunner for Node {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            if command.program == "crictl" && !self.crictl {
                return Err(CommandError::Missing("crictl".into()));
            }
            let said = format!("{} {}", command.program, command.args.join(" "));
            let failed = command.args.last().is_some_and(|arg| arg == self.stubborn);
            self.said.borrow_mut().push(said);
            Ok(CommandOutput {
                status: Some(i32::from(failed)),
                stdout: "aa\nbb\n".to_owned(),
                stderr: String::new(),
            })
        }
    }

    fn node(crictl: bool, stubborn: &'static str) -> Node {
        let said = RefCell::default();
        Node {
            said,
            crictl,
            stubborn,
        }
    }

    #[test]
    fn the_kubelet_stops_before_the_pods() {
        let node = node(true, "none");
        let stopped = stop_workloads(&node).unwrap();
        assert_eq!(stopped.pods, 2);
        stopped.disarm();
        let said = node.said.take();
        let changing: Vec<&str> = said
            .iter()
            .map(String::as_str)
            .filter(|line| !line.contains("pods"))
            .collect();
        let wanted = [
            "systemctl stop -- kubelet.service",
            "crictl stopp aa",
            "crictl stopp bb",
        ];
        assert_eq!(changing, wanted);
    }

    #[test]
    fn without_crictl_nothing_is_stopped() {
        let node = node(false, "none");
        let error = format!("{:#}", ensure_possible(&node).err().unwrap());
        assert!(error.contains("crictl is not installed"), "{error}");
        assert!(error.contains("nothing was changed"), "{error}");
        assert!(node.said.take().is_empty());
    }

    #[test]
    fn a_pod_that_does_not_stop_lets_the_kubelet_run_again() {
        let node = node(true, "bb");
        let error = format!("{:#}", stop_workloads(&node).err().unwrap());
        assert!(error.contains("stopping pod bb"), "{error}");
        let said = node.said.take();
        assert_eq!(said.last().unwrap(), "systemctl start -- kubelet.service");
    }
}
