//! rpm-ostree: its command lines, its output, and the meaning of its errors.
//!
//! [`status`] parses the output of `rpm-ostree status`; this module itself reads only the running transaction.

pub mod arguments;
pub mod cause;
pub mod packages;
pub mod reference;
pub mod status;

use super::{CommandError, CommandOutput, CommandRunner};

/// Returns the method of the running transaction; `None` if there is none or rpm-ostree is missing.
///
/// # Errors
/// rpm-ostree gives no answer, or one that cannot be parsed.
pub fn running_transaction(runner: &dyn CommandRunner) -> Result<Option<String>, CommandError> {
    match runner.run(&arguments::status_json()) {
        Ok(answer) => parse_transaction(&answer),
        Err(CommandError::Missing(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Parses `"transaction": ["rebase", ":1.20", "/org/…"]`, or null.
fn parse_transaction(answer: &CommandOutput) -> Result<Option<String>, CommandError> {
    let failed = |words: String| CommandError::Failed("rpm-ostree".into(), words);
    if answer.status != Some(0) {
        return Err(failed(answer.stderr.trim().to_owned()));
    }
    let status: serde_json::Value =
        serde_json::from_str(&answer.stdout).map_err(|e| failed(e.to_string()))?;
    Ok(match status.get("transaction") {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::Array(parts)) => {
            let method = parts.first().and_then(serde_json::Value::as_str);
            Some(method.unwrap_or("unknown").to_owned())
        }
        Some(_) => Some("unknown".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: i32, stdout: &str) -> CommandOutput {
        CommandOutput {
            status: Some(status),
            stdout: stdout.to_owned(),
            stderr: "error: no daemon\n".to_owned(),
        }
    }

    #[test]
    fn a_running_transaction_is_reported_by_its_method() {
        let busy = r#"{"deployments": [], "transaction": ["rebase", ":1.20", "/org/x"]}"#;
        assert_eq!(
            parse_transaction(&answer(0, busy)),
            Ok(Some("rebase".to_owned()))
        );
        for idle in [r#"{"transaction": null}"#, r#"{"deployments": []}"#] {
            assert_eq!(parse_transaction(&answer(0, idle)), Ok(None));
        }
    }

    #[test]
    fn no_answer_is_an_error_and_not_rest() {
        assert!(parse_transaction(&answer(1, "")).is_err());
        assert!(parse_transaction(&answer(0, "not JSON")).is_err());
    }
}
