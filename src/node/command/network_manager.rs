//! NetworkManager: its checkpoints through `busctl`, its connections through `nmcli`.
//!
//! A checkpoint is an additional way to revert, never the only one: it lives in NetworkManager's process, and a restart of the
//! service ends it without a rollback. It covers the connections that are active on a device, and no other file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};

const NAME: &str = "org.freedesktop.NetworkManager";
const OBJECT: &str = "/org/freedesktop/NetworkManager";
const CHECKPOINTS: &str = "/org/freedesktop/NetworkManager/Checkpoint/";
const CHECKPOINT: &str = "org.freedesktop.NetworkManager.Checkpoint";
/// Flags: deletes connections and disconnects devices that are new since the checkpoint. The flag that would destroy the
/// checkpoints of other programs is never set, because those programs revert with them.
const FLAGS: &str = "6";
/// For answers of the bus.
const BUS: Duration = Duration::from_secs(30);
/// Time limit of a rollback: NetworkManager takes devices down and up.
const ROLLBACK: Duration = Duration::from_secs(90);
/// Time limit of an activation; nmcli's own limit is shorter.
const ACTIVATION: Duration = Duration::from_secs(75);
/// Seconds that nmcli waits for an activation.
const ACTIVATION_WAIT: &str = "60";

/// A checkpoint of this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkCheckpoint {
    /// D-Bus path of the checkpoint. After a restart of NetworkManager, another program's checkpoint can have the same path.
    pub path: String,
    /// Time of creation, in milliseconds since boot. Path and time together are unique.
    pub created: u64,
}

/// The result of an attempt to create a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// NetworkManager rolls back on its own when the time is over.
    Armed(NetworkCheckpoint),
    /// NetworkManager does not run.
    NotRunning,
    /// Another program holds a checkpoint, which is kept. The text is NetworkManager's message.
    Held(String),
}

/// The result of a rollback to a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolledBack {
    /// All devices are restored, except these, each with its reason.
    Done(Vec<String>),
    /// The checkpoint no longer exists: it was rolled back or destroyed, or NetworkManager was restarted.
    Gone,
}

/// Creates a checkpoint of all devices. After `seconds`, NetworkManager rolls back to it on its own.
///
/// # Errors
/// The bus cannot be queried, or NetworkManager refuses for any reason other than a checkpoint of another program.
pub fn begin_checkpoint(runner: &dyn CommandRunner, seconds: u32) -> Result<Begun, CommandError> {
    if !is_running(runner)? {
        return Ok(Begun::NotRunning);
    }
    let seconds = seconds.max(1).to_string();
    let words = ["aouu", "0", &seconds, FLAGS];
    let answer = runner.run(&method_line("CheckpointCreate", &words, BUS))?;
    if answer.status != Some(0) {
        let words = answer.stderr.trim().to_owned();
        return if words.contains("already included in checkpoint") {
            Ok(Begun::Held(words))
        } else {
            Err(CommandError::Failed("busctl".into(), words))
        };
    }
    let path = read_path(&answer.stdout).ok_or_else(|| strange_answer(&answer))?;
    let created = query_created(runner, &path)?.ok_or_else(|| strange_answer(&answer))?;
    Ok(Begun::Armed(NetworkCheckpoint { path, created }))
}

/// Destroys a checkpoint without a rollback. Returns false if it no longer exists.
///
/// # Errors
/// The bus cannot be queried, or NetworkManager refuses.
pub fn commit_checkpoint(
    runner: &dyn CommandRunner,
    checkpoint: &NetworkCheckpoint,
) -> Result<bool, CommandError> {
    if !is_alive(runner, checkpoint)? {
        return Ok(false);
    }
    let words = ["o", &checkpoint.path];
    run_successfully(runner, &method_line("CheckpointDestroy", &words, BUS)).map(|_| true)
}

/// Makes NetworkManager roll back to a checkpoint, which also destroys it.
///
/// # Errors
/// The bus cannot be queried, or NetworkManager refuses.
pub fn roll_back_checkpoint(
    runner: &dyn CommandRunner,
    checkpoint: &NetworkCheckpoint,
) -> Result<RolledBack, CommandError> {
    if !is_alive(runner, checkpoint)? {
        return Ok(RolledBack::Gone);
    }
    let words = ["o", &checkpoint.path];
    let answer = run_successfully(runner, &method_line("CheckpointRollback", &words, ROLLBACK))?;
    let failed = read_devices(&answer.stdout).ok_or_else(|| strange_answer(&answer))?;
    Ok(RolledBack::Done(failed))
}

/// Restarts the timeout of a checkpoint: it now ends in `seconds`. Returns false if the checkpoint no longer exists.
///
/// # Errors
/// The bus cannot be queried, or NetworkManager refuses.
pub fn extend_checkpoint(
    runner: &dyn CommandRunner,
    checkpoint: &NetworkCheckpoint,
    seconds: u32,
) -> Result<bool, CommandError> {
    if !is_alive(runner, checkpoint)? {
        return Ok(false);
    }
    // Zero would end its clock.
    let seconds = seconds.max(1).to_string();
    let words = ["ou", &checkpoint.path, &seconds];
    let line = method_line("CheckpointAdjustRollbackTimeout", &words, BUS);
    run_successfully(runner, &line).map(|_| true)
}

/// Returns true if the checkpoint still exists and the path has not been reused by another program's checkpoint.
///
/// # Errors
/// The bus cannot be queried.
pub fn is_alive(
    runner: &dyn CommandRunner,
    checkpoint: &NetworkCheckpoint,
) -> Result<bool, CommandError> {
    if !is_checkpoint_path(&checkpoint.path) {
        let words = format!("{:?} is not the path of a checkpoint", checkpoint.path);
        return Err(CommandError::Failed("busctl".into(), words));
    }
    Ok(is_running(runner)? && query_created(runner, &checkpoint.path)? == Some(checkpoint.created))
}

/// Returns true if NetworkManager is on the bus. The query does not start it.
///
/// # Errors
/// The bus cannot be queried, for any reason other than its absence.
pub fn is_running(runner: &dyn CommandRunner) -> Result<bool, CommandError> {
    const BUS_NAME: &str = "org.freedesktop.DBus";
    let words = [
        BUS_NAME,
        "/org/freedesktop/DBus",
        BUS_NAME,
        "NameHasOwner",
        "s",
        NAME,
    ];
    let answer = runner.run(&busctl_line("call", &words, BUS))?;
    match answer.status {
        Some(0) => Ok(answer.stdout.trim() == "b true"),
        _ if answer.stderr.contains("Failed to connect") => Ok(false),
        _ => Err(CommandError::Failed(
            "busctl".into(),
            answer.stderr.trim().to_owned(),
        )),
    }
}

/// Makes NetworkManager reread its connection files. Connections whose files were removed end.
///
/// # Errors
/// nmcli is missing or reports an error.
pub fn reload_connections(runner: &dyn CommandRunner) -> Result<(), CommandError> {
    run_successfully(runner, &nmcli_line(&["connection", "reload"], BUS)).map(drop)
}

/// Makes NetworkManager reread its connection files, and activates the connection of one file if that connection is active or
/// activated at boot. Returns false if it is neither, or if its device is missing or not ready.
///
/// # Errors
/// nmcli is missing or reports an error; NetworkManager ignores the file; the connection cannot be activated.
pub fn activate_file(runner: &dyn CommandRunner, path: &str) -> Result<bool, CommandError> {
    reload_connections(runner)?;
    let line = ["-t", "-f", "UUID,ACTIVE,FILENAME", "connection", "show"];
    let answer = run_successfully(runner, &nmcli_line(&line, BUS))?;
    let Some(profile) = read_profiles(&answer.stdout)
        .into_iter()
        .find(|one| one.path == path)
    else {
        let words = format!("NetworkManager ignores {path}: see journalctl -b -u NetworkManager");
        return Err(CommandError::Failed("nmcli".into(), words));
    };
    if !profile.active {
        let settings = query_settings(runner, &profile.uuid)?;
        if !settings.automatic {
            return Ok(false);
        }
        if is_in_ovs_bridge(runner, &settings.device)? {
            log::warn!(
                "{path}: its device is in a bridge of Open vSwitch, which is built from this file at boot: not activated now"
            );
            return Ok(false);
        }
    }
    let line = [
        "--wait",
        ACTIVATION_WAIT,
        "connection",
        "up",
        "uuid",
        &profile.uuid,
    ];
    let answer = runner.run(&nmcli_line(&line, ACTIVATION))?;
    let said = format!("{} {}", answer.stdout.trim(), answer.stderr.trim());
    match answer.status {
        Some(0) => Ok(true),
        // At boot it would also wait for its device.
        _ if !profile.active && said.contains("No suitable device found") => Ok(false),
        _ => Err(CommandError::Failed("nmcli".into(), said.trim().to_owned())),
    }
}

/// Settings of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    /// NetworkManager activates it by itself.
    automatic: bool,
    /// Name of its device; empty if the profile selects its device by another property.
    device: String,
    /// Type of its controller, if it is a port.
    controller: String,
}

fn query_settings(runner: &dyn CommandRunner, uuid: &str) -> Result<Settings, CommandError> {
    let fields = "connection.autoconnect,connection.interface-name,connection.slave-type";
    let line = ["-g", fields, "connection", "show", "uuid", uuid];
    let answer = run_successfully(runner, &nmcli_line(&line, BUS))?;
    let mut lines = answer.stdout.lines().map(str::trim);
    let mut next = || lines.next().unwrap_or_default().to_owned();
    Ok(Settings {
        automatic: next() == "yes",
        device: next(),
        controller: next(),
    })
}

/// Returns true if another connection has made the device a port of an Open vSwitch bridge. The node's own scripts create such
/// a bridge from the device's connection at boot, and an activation would take the device out of it. If `device` is empty, any
/// such port counts.
fn is_in_ovs_bridge(runner: &dyn CommandRunner, device: &str) -> Result<bool, CommandError> {
    let line = ["-t", "-f", "UUID,DEVICE", "connection", "show", "--active"];
    let answer = run_successfully(runner, &nmcli_line(&line, BUS))?;
    for line in answer.stdout.lines() {
        let Some((uuid, name)) = line.split_once(':') else {
            continue;
        };
        let is_it = device.is_empty() || name == device;
        if is_it && query_settings(runner, uuid)?.controller == "ovs-port" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A connection known to NetworkManager.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Profile {
    uuid: String,
    active: bool,
    path: String,
}

/// Parses lines such as `UUID:yes:/etc/…/a.nmconnection`, in which colons of the file name are escaped.
fn read_profiles(text: &str) -> Vec<Profile> {
    let profile = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (uuid, active, path) = (parts.next()?, parts.next()?, parts.next()?);
        let mut plain = String::new();
        let mut letters = path.chars();
        while let Some(letter) = letters.next() {
            plain.push(match letter {
                '\\' => letters.next()?,
                other => other,
            });
        }
        Some(Profile {
            uuid: uuid.to_owned(),
            active: active == "yes",
            path: plain,
        })
    };
    text.lines().filter_map(profile).collect()
}

/// Returns the creation time of a checkpoint; `None` if the path has no checkpoint.
fn query_created(runner: &dyn CommandRunner, path: &str) -> Result<Option<u64>, CommandError> {
    let words = [NAME, path, CHECKPOINT, "Created"];
    let answer = runner.run(&busctl_line("get-property", &words, BUS))?;
    if answer.status != Some(0) {
        return Ok(None);
    }
    let number = answer.stdout.trim().strip_prefix("x ");
    Ok(number.and_then(|number| number.parse().ok()))
}

/// Parses `o "/org/…/Checkpoint/1"`.
fn read_path(text: &str) -> Option<String> {
    let path = text.trim().strip_prefix("o \"")?.strip_suffix('"')?;
    is_checkpoint_path(path).then(|| path.to_owned())
}

/// Returns true for the path of one checkpoint: the path `/` would mean the checkpoints of all programs.
fn is_checkpoint_path(path: &str) -> bool {
    path.strip_prefix(CHECKPOINTS).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|letter| letter.is_ascii_digit())
    })
}

/// Parses `a{su} 1 "/org/…/Devices/2" 0` and returns the devices that were not restored.
fn read_devices(text: &str) -> Option<Vec<String>> {
    let mut words = text.split_whitespace();
    if words.next()? != "a{su}" {
        return None;
    }
    let count: usize = words.next()?.parse().ok()?;
    let mut failed = Vec::new();
    for _ in 0..count {
        let device = words.next()?.trim_matches('"');
        let why = match words.next()? {
            "0" => continue,
            "1" => "it does not exist any more",
            "2" => "NetworkManager does not manage it any more",
            _ => "it could not be restored",
        };
        failed.push(format!("{device}: {why}"));
    }
    Some(failed)
}

fn strange_answer(answer: &CommandOutput) -> CommandError {
    let words = format!("a strange answer: {:?}", answer.stdout.trim());
    CommandError::Failed("busctl".into(), words)
}

fn method_line(method: &str, words: &[&str], timeout: Duration) -> CommandLine {
    let all: Vec<&str> = [NAME, OBJECT, NAME, method]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    busctl_line("call", &all, timeout)
}

fn busctl_line(verb: &str, words: &[&str], timeout: Duration) -> CommandLine {
    let wait = format!("--timeout={}", timeout.as_secs());
    // A query never starts a service that is not running.
    let first = ["--system", "--auto-start=no", &wait, verb];
    command_line(
        "busctl",
        &[&first[..], words].concat(),
        timeout + Duration::from_secs(5),
    )
}

fn nmcli_line(words: &[&str], timeout: Duration) -> CommandLine {
    command_line("nmcli", words, timeout)
}

fn command_line(program: &str, words: &[&str], timeout: Duration) -> CommandLine {
    CommandLine::new(program, words, timeout)
}

fn run_successfully(
    runner: &dyn CommandRunner,
    line: &CommandLine,
) -> Result<CommandOutput, CommandError> {
    let answer = runner.run(line)?;
    if answer.status == Some(0) {
        return Ok(answer);
    }
    let said = [answer.stderr.trim(), answer.stdout.trim()];
    let said = said
        .into_iter()
        .find(|said| !said.is_empty())
        .unwrap_or("it failed without a message");
    Err(CommandError::Failed(line.program.clone(), said.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_bus_are_read() {
        let path = "/org/freedesktop/NetworkManager/Checkpoint/12";
        assert_eq!(read_path(&format!("o \"{path}\"\n")).as_deref(), Some(path));
        for bad in [
            "",
            "o \"/\"",
            "o \"/org/freedesktop/NetworkManager/Checkpoint/\"",
            "s \"x\"",
        ] {
            assert_eq!(read_path(bad), None, "{bad:?}");
        }
        assert_eq!(read_devices("a{su} 0\n"), Some(Vec::new()));
        let two = "a{su} 2 \"/org/freedesktop/NetworkManager/Devices/1\" 0 \"/org/freedesktop/NetworkManager/Devices/2\" 2\n";
        let failed = read_devices(two).unwrap();
        assert_eq!(
            failed,
            [
                "/org/freedesktop/NetworkManager/Devices/2: NetworkManager does not manage it any more"
            ]
        );
        for bad in [
            "",
            "a{su}",
            "a{su} 2 \"/x\" 0",
            "a{su} 99999999999999999999 \"/x\" 0",
        ] {
            assert_eq!(read_devices(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_checkpoints_of_all_programs_are_never_named() {
        struct Never;
        impl CommandRunner for Never {
            fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
                panic!("{command:?}")
            }
        }
        for path in [
            "/",
            "",
            "/org/freedesktop/NetworkManager/Checkpoint/1/..",
            "-h",
        ] {
            let all = NetworkCheckpoint {
                path: path.to_owned(),
                created: 1,
            };
            assert!(commit_checkpoint(&Never, &all).is_err());
            assert!(roll_back_checkpoint(&Never, &all).is_err());
            assert!(extend_checkpoint(&Never, &all, 10).is_err());
        }
    }

    /// STUB of nmcli: answers like a node whose device is in an Open vSwitch bridge.
    struct Bridged(std::cell::RefCell<Vec<String>>);

    impl CommandRunner for Bridged {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            let said = command.args.join(" ");
            let answer = match said.as_str() {
                "connection reload" => "",
                "-t -f UUID,ACTIVE,FILENAME connection show" => {
                    "a:no:/etc/a\nb:yes:/run/b\nc:no:/etc/c\nd:no:/etc/d\n"
                }
                "-t -f UUID,DEVICE connection show --active" => "x:br-ex\nb:ens3\n",
                said if said.ends_with("uuid a") => "yes\nens3\n\n",
                said if said.ends_with("uuid b") => "yes\nens3\novs-port\n",
                said if said.ends_with("uuid c") && said.starts_with("-g") => "yes\nens4\n\n",
                said if said.ends_with("uuid d") => "yes\n\n\n",
                said if said.ends_with("uuid x") => "yes\nbr-ex\novs-port\n",
                _ => {
                    self.0.borrow_mut().push(said.clone());
                    ""
                }
            };
            Ok(CommandOutput {
                status: Some(0),
                stdout: answer.to_owned(),
                stderr: String::new(),
            })
        }
    }

    #[test]
    fn a_device_is_not_taken_out_of_a_bridge_of_open_vswitch() {
        let node = Bridged(std::cell::RefCell::default());
        for path in ["/etc/a", "/etc/d"] {
            assert_eq!(activate_file(&node, path), Ok(false), "{path}");
        }
        assert_eq!(node.0.borrow().len(), 0);
        assert_eq!(activate_file(&node, "/etc/c"), Ok(true));
        assert_eq!(node.0.take(), ["--wait 60 connection up uuid c"]);
        // The port itself is active: its own file has changed.
        assert_eq!(activate_file(&node, "/run/b"), Ok(true));
    }

    #[test]
    fn names_of_files_are_read_without_their_escapes() {
        let text = "a-b:yes:/etc/NetworkManager/system-connections/a\\:b\\\\c.nmconnection\nc-d:no:\nnothing\n";
        let all = read_profiles(text);
        assert_eq!(all.len(), 2);
        assert!(all[0].active && !all[1].active);
        assert_eq!(
            all[0].path,
            "/etc/NetworkManager/system-connections/a:b\\c.nmconnection"
        );
    }
}
