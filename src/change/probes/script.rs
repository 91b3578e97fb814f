//! Site-specific probes: commands, and the files in `/etc/mco-rescue/probes.d`.

use std::time::{Duration, Instant};

use nix::sys::stat::FileStat;

use super::{Probe, ProbeContext};
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::sys::privileges::Capability;
use crate::node::command::{CommandError, CommandLine, CommandOutput};

/// The directory of site-specific probes. Its executable files are probes, in the order of their names.
pub const PROBES_D: &str = "etc/mco-rescue/probes.d";
/// Time limit of a site-specific probe.
const BOUND: Duration = Duration::from_secs(30);
/// Write permissions of others.
const OTHERS: u32 = 0o022;
/// Execute permission of the owner.
const EXECUTABLE: u32 = 0o100;

/// Capabilities of a site-specific probe, which runs as root: for access to files. Raw sockets and network changes are not
/// included.
const RIGHTS: &[Capability] = &[
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
];

/// Returns the executable files in `/etc/mco-rescue/probes.d` in the order of their names; empty without the directory. Owner
/// and mode are checked when they run.
///
/// # Errors
/// The directory cannot be read.
pub fn list_probes(root: &Root) -> Result<Vec<Probe>, RootError> {
    let directory = RootPath::fixed(PROBES_D);
    let mut all = Vec::new();
    // The names are sorted.
    for name in root.list(&directory)? {
        let hidden = name.starts_with('.') || name.ends_with('~') || name.contains(' ');
        let Ok(path) = directory.join(&name) else {
            continue;
        };
        if !hidden && stat_of(root, &path)?.is_some_and(|stat| is_executable(&stat)) {
            all.push(Probe::File(name));
        }
    }
    Ok(all)
}

fn stat_of(root: &Root, path: &RootPath) -> Result<Option<FileStat>, RootError> {
    let at_path = |cause: nix::errno::Errno| RootError::at(path, cause);
    match root.open_place(path)? {
        Some(place) => place.stat().map_err(at_path),
        None => Ok(None),
    }
}

fn is_executable(stat: &FileStat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_mode & EXECUTABLE != 0
}

/// Runs a command through the shell.
pub(super) fn run_command(command: &str, context: &ProbeContext<'_>) -> Result<String, Reason> {
    let args = ["-c", command].map(str::to_owned).to_vec();
    run_probe("/bin/sh".into(), args, context)
}

/// Runs a file in the directory, if only root can have written it.
pub(super) fn run_file(name: &str, context: &ProbeContext<'_>) -> Result<String, Reason> {
    let directory = RootPath::fixed(PROBES_D);
    let path = directory.join(name).map_err(Reason::from_error)?;
    check_owner(context.root, &directory, libc::S_IFDIR)?;
    check_owner(context.root, &path, libc::S_IFREG)?;
    let program = context.root.outer_name(&path);
    let program = program.map_err(Reason::from_error)?;
    let program = program.ok_or_else(|| format!("{path} is missing"))?;
    run_probe(program.display().to_string(), Vec::new(), context)
}

/// Refuses a file that others than root could have changed, because it runs as root. A link is not followed, because its target
/// is not checked.
fn check_owner(root: &Root, path: &RootPath, wanted: u32) -> Result<(), Reason> {
    let stat = stat_of(root, path).map_err(Reason::from_error)?;
    let stat = stat.ok_or_else(|| format!("{path} is missing"))?;
    let mode = stat.st_mode & 0o7777;
    if stat.st_mode & libc::S_IFMT != wanted {
        return Err(match wanted {
            libc::S_IFDIR => format!("{path} is not a directory").into(),
            _ => format!("{path} is not a regular file; put a copy of the program there").into(),
        });
    }
    if stat.st_uid != 0 {
        return Err(format!(
            "{path} belongs to user {}, not to root, and is not run: chown root {path}",
            stat.st_uid
        )
        .into());
    }
    if mode & OTHERS != 0 {
        return Err(format!(
            "{path} has mode {mode:04o}, so others could change it, and it is not run: chmod go-w {path}"
        ).into());
    }
    if mode & EXECUTABLE == 0 {
        return Err(format!("{path} is not executable: chmod u+x {path}").into());
    }
    Ok(())
}

fn run_probe(
    program: String,
    args: Vec<String>,
    context: &ProbeContext<'_>,
) -> Result<String, Reason> {
    let left = context.until.saturating_duration_since(Instant::now());
    let command = CommandLine::new(program, args, left.min(BOUND)).with_capabilities(RIGHTS);
    match context.runner.run_until(&command, context.ended) {
        Ok(output) => judge_output(&output),
        Err(CommandError::TimedOut(_, seconds)) => Err(format!(
            "it did not end within {seconds} s and was killed with everything that it started"
        )
        .into()),
        // A shell always starts, but a file may lack a first line that names its interpreter.
        Err(CommandError::Failed(program, reason)) => Err(format!(
            "{program} cannot be started ({reason}); a script begins with #!/bin/sh"
        )
        .into()),
        Err(error) => Err(Reason::from_error(error)),
    }
}

/// Judges the output: exit status 0 is good. In either case, the last line is the reason.
fn judge_output(output: &CommandOutput) -> Result<String, Reason> {
    let last = |text: &str| {
        let mut lines = text.lines().map(str::trim).rev();
        lines.find(|line| !line.is_empty()).map(str::to_owned)
    };
    let said = last(&output.stderr).or_else(|| last(&output.stdout));
    match output.status {
        Some(0) => Ok(last(&output.stdout).unwrap_or_else(|| "exit status 0".to_owned())),
        Some(status) => {
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            Err(format!("exit status {status}{said}").into())
        }
        None => Err("a signal ended it".into()),
    }
}
