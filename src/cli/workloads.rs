//! `--stop-workloads`: kubelet and pods are stopped before files change that running pods may not outlive.
//!
//! No drain: nothing is moved elsewhere first, and no budget is asked.

use anyhow::{Context, Result};

use crate::command::{CommandRunner, crictl, systemctl};

const KUBELET: &str = "kubelet.service";

/// Stops the kubelet, so that it starts nothing again, then every pod in the order in which the runtime lists them.
///
/// # Errors
/// No crictl, or a pod that does not stop; the kubelet runs again then, and brings back what was stopped.
pub fn stop(runner: &dyn CommandRunner) -> Result<usize> {
    // Asked first: where nobody answers, nothing is stopped.
    crictl::pods(runner).context(
        "asking the container runtime for its pods; nothing was changed. Stop the workloads by other means, or leave \
         --stop-workloads out",
    )?;
    systemctl::stop(runner, &[KUBELET]).context("stopping the kubelet; nothing was changed")?;
    stop_pods(runner).inspect_err(|_| start(runner))
}

fn stop_pods(runner: &dyn CommandRunner) -> Result<usize> {
    let pods = crictl::pods(runner).context("asking the container runtime for its pods")?;
    for pod in &pods {
        log::info!("stopping pod {pod}");
        crictl::stop(runner, pod).with_context(|| {
            format!("stopping pod {pod}; no file was changed, and the kubelet is started again")
        })?;
    }
    Ok(pods.len())
}

/// Starts the kubelet again; it brings back the pods.
pub fn start(runner: &dyn CommandRunner) {
    if let Err(error) = systemctl::start(runner, KUBELET) {
        log::warn!("starting the kubelet again: {error}. Next: systemctl start {KUBELET}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{CommandError, CommandLine, CommandOutput};
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
        assert_eq!(stop(&node).unwrap(), 2);
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
        let error = format!("{:#}", stop(&node).unwrap_err());
        assert!(error.contains("crictl is not installed"), "{error}");
        assert!(error.contains("nothing was changed"), "{error}");
        assert!(node.said.take().is_empty());
    }

    #[test]
    fn a_pod_that_does_not_stop_lets_the_kubelet_run_again() {
        let node = node(true, "bb");
        let error = format!("{:#}", stop(&node).unwrap_err());
        assert!(error.contains("stopping pod bb"), "{error}");
        let said = node.said.take();
        assert_eq!(said.last().unwrap(), "systemctl start -- kubelet.service");
    }
}
