//! crictl: the pods that the container runtime runs.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandRunner};

/// For the list.
const QUICK: Duration = Duration::from_secs(30);
/// Time for stopping one pod: its containers may use their grace period, 30 s by default.
const GRACE: Duration = Duration::from_secs(150);

/// Returns the ids of the running pods.
///
/// # Errors
/// crictl is missing, or reports an error.
pub fn list_pods(runner: &dyn CommandRunner) -> Result<Vec<String>, CommandError> {
    let said = run_crictl(runner, &["pods", "-q", "--state", "ready"], QUICK)?;
    let ids = said.split_whitespace().filter(|id| is_id(id));
    Ok(ids.map(str::to_owned).collect())
}

/// Stops a pod and waits for it.
///
/// # Errors
/// crictl is missing, or reports an error.
pub fn stop_pod(runner: &dyn CommandRunner, pod: &str) -> Result<(), CommandError> {
    run_crictl(runner, &["stopp", pod], GRACE).map(drop)
}

/// Returns true for an id. An id cannot be mistaken for an option.
fn is_id(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn run_crictl(
    runner: &dyn CommandRunner,
    args: &[&str],
    timeout: Duration,
) -> Result<String, CommandError> {
    let answer = runner.run(&CommandLine::new("crictl", args, timeout))?;
    match answer.status {
        Some(0) => Ok(answer.stdout),
        _ => Err(CommandError::Failed(
            "crictl".into(),
            answer.stderr.trim().to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::command::CommandOutput;

    struct Runtime;

    impl CommandRunner for Runtime {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            let listing = command.args == ["pods", "-q", "--state", "ready"];
            Ok(CommandOutput {
                status: Some(if listing { 0 } else { 1 }),
                stdout: "0a1b\n--all\n2c3d\n".to_owned(),
                stderr: "no such pod\n".to_owned(),
            })
        }
    }

    #[test]
    fn only_ids_are_pods_and_what_the_runtime_says_is_the_error() {
        assert_eq!(list_pods(&Runtime).unwrap(), ["0a1b", "2c3d"]);
        let error = stop_pod(&Runtime, "0a1b").unwrap_err();
        assert_eq!(error.to_string(), "running crictl: no such pod");
    }
}
