//! systemctl: what units are doing.

use std::time::Duration;

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};
use crate::node::UnitActivity;
use crate::privileges::Capability;

/// States of the units as the running manager knows them.
///
/// # Errors
/// No systemctl, or no answer.
pub fn activity(
    runner: &dyn CommandRunner,
    units: &[&str],
) -> Result<Vec<UnitActivity>, CommandError> {
    let answer = runner.run(&show(units))?;
    if answer.status == Some(0) {
        return Ok(read(&answer));
    }
    let words = answer.stderr.trim().to_owned();
    Err(CommandError::Failed("systemctl".into(), words))
}

fn show(units: &[&str]) -> CommandLine {
    let options = ["show", "--property=Id,ActiveState,SubState", "--"];
    let args = options.iter().chain(units);
    CommandLine {
        program: "systemctl".into(),
        args: args.map(|arg| (*arg).to_owned()).collect(),
        timeout: Duration::from_secs(30),
        capabilities: &[],
    }
}

/// The main process of a unit that is running or starting.
///
/// # Errors
/// No systemctl, or no answer.
pub fn main_pid(runner: &dyn CommandRunner, unit: &str) -> Result<Option<i32>, CommandError> {
    let answer = runner.run(&CommandLine {
        program: "systemctl".into(),
        args: ["show", "--property=MainPID", "--value", "--", unit]
            .map(str::to_owned)
            .to_vec(),
        timeout: Duration::from_secs(30),
        capabilities: &[],
    })?;
    if answer.status != Some(0) {
        let words = answer.stderr.trim().to_owned();
        return Err(CommandError::Failed("systemctl".into(), words));
    }
    Ok(answer.stdout.trim().parse().ok().filter(|pid| *pid > 0))
}

/// Ends this boot in an orderly way; the answer comes before that.
pub fn reboot() -> CommandLine {
    CommandLine {
        program: "systemctl".into(),
        args: ["--no-block", "reboot"].map(str::to_owned).to_vec(),
        timeout: Duration::from_secs(60),
        capabilities: &[Capability::CAP_SYS_BOOT],
    }
}

/// Blocks of `Key=value` lines in any order, an empty line between two units.
fn read(answer: &CommandOutput) -> Vec<UnitActivity> {
    let blocks = answer.stdout.split("\n\n");
    let unit = |block: &str| {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.strip_prefix('='))
                .map(str::to_owned)
        };
        Some(UnitActivity {
            name: value("Id")?,
            active: value("ActiveState")?,
            sub: value("SubState")?,
        })
    };
    blocks.filter_map(unit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_a_unit() {
        let answer = CommandOutput {
            status: Some(0),
            stdout: "Id=a.service\nActiveState=active\nSubState=exited\n\n\
                     ActiveState=activating\nSubState=start\nId=b.service\n"
                .to_owned(),
            stderr: String::new(),
        };
        let found = read(&answer);
        let shown: Vec<_> = found
            .iter()
            .map(|unit| format!("{} {} {}", unit.name, unit.active, unit.sub))
            .collect();
        assert_eq!(
            shown,
            ["a.service active exited", "b.service activating start"]
        );
    }
}
