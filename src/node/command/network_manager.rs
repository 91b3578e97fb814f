//! NetworkManager: its checkpoints through `busctl`, its connections through `nmcli`.
//!
//! A checkpoint is a second owner of the way back, never the only one: it lives in NetworkManager's process, and a restart
//! of the service ends it without a rollback. It holds the connections that are active on a device, and no other file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{CommandError, CommandLine, CommandOutput, CommandRunner};

const NAME: &str = "org.freedesktop.NetworkManager";
const OBJECT: &str = "/org/freedesktop/NetworkManager";
const CHECKPOINTS: &str = "/org/freedesktop/NetworkManager/Checkpoint/";
const CHECKPOINT: &str = "org.freedesktop.NetworkManager.Checkpoint";
/// Deletes connections that are new since, and disconnects devices that are new since. A flag that would destroy the
/// checkpoints of other programs is never set: they are the way back of those programs.
const FLAGS: &str = "6";
/// For answers of the bus.
const BUS: Duration = Duration::from_secs(30);
/// NetworkManager takes devices down and up in a rollback.
const ROLLBACK: Duration = Duration::from_secs(90);
/// For an activation; nmcli itself ends earlier.
const ACTIVATION: Duration = Duration::from_secs(75);
/// Seconds that nmcli waits for an activation.
const ACTIVATION_WAIT: &str = "60";

/// A checkpoint of this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The path of its object. After a restart of NetworkManager another program's checkpoint can have the same.
    pub path: String,
    /// Its creation, in milliseconds of the boot's clock: no other one has the same path and time.
    pub created: u64,
}

/// The result of the attempt to make a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begun {
    /// NetworkManager goes back by itself at the end of the time.
    Armed(Checkpoint),
    /// NetworkManager does not run.
    NotRunning,
    /// Another program holds a checkpoint, which stays; in NetworkManager's words.
    Held(String),
}

/// The result of a rollback to a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolledBack {
    /// All devices are as they were, but for these, with the reason of each.
    Done(Vec<String>),
    /// The checkpoint does not exist any more: it has gone back or was ended, or NetworkManager was restarted.
    Gone,
}

/// Makes a checkpoint of all devices. In `seconds` NetworkManager goes back to it by itself.
///
/// # Errors
/// The bus cannot be asked, or NetworkManager refuses for another reason than a checkpoint of another program.
pub fn begin_checkpoint(runner: &dyn CommandRunner, seconds: u32) -> Result<Begun, CommandError> {
    if !is_running(runner)? {
        return Ok(Begun::NotRunning);
    }
    let seconds = seconds.max(1).to_string();
    let words = ["aouu", "0", &seconds, FLAGS];
    let answer = runner.run(&method_line("CheckpointCreate", &words, BUS))?;
    if answer.status != Some(0) {
        let words = answer.stderr.trim().to_owned();
        return match words.contains("already included in checkpoint") {
            true => Ok(Begun::Held(words)),
            false => Err(CommandError::Failed("busctl".into(), words)),
        };
    }
    let path = read_path(&answer.stdout).ok_or_else(|| strange(&answer))?;
    let created = query_created(runner, &path)?.ok_or_else(|| strange(&answer))?;
    Ok(Begun::Armed(Checkpoint { path, created }))
}

/// Ends a checkpoint without a rollback. Returns false if it does not exist any more.
///
/// # Errors
/// The bus cannot be asked, or NetworkManager refuses.
pub fn commit_checkpoint(
    runner: &dyn CommandRunner,
    checkpoint: &Checkpoint,
) -> Result<bool, CommandError> {
    if !is_alive(runner, checkpoint)? {
        return Ok(false);
    }
    let words = ["o", &checkpoint.path];
    succeed(runner, &method_line("CheckpointDestroy", &words, BUS)).map(|_| true)
}

/// Makes NetworkManager go back to a checkpoint, which ends it.
///
/// # Errors
/// The bus cannot be asked, or NetworkManager refuses.
pub fn roll_back_checkpoint(
    runner: &dyn CommandRunner,
    checkpoint: &Checkpoint,
) -> Result<RolledBack, CommandError> {
    if !is_alive(runner, checkpoint)? {
        return Ok(RolledBack::Gone);
    }
    let words = ["o", &checkpoint.path];
    let answer = succeed(runner, &method_line("CheckpointRollback", &words, ROLLBACK))?;
    let failed = read_devices(&answer.stdout).ok_or_else(|| strange(&answer))?;
    Ok(RolledBack::Done(failed))
}

/// Sets the time of a checkpoint anew: `seconds` from now. Returns false if it does not exist any more.
///
/// # Errors
/// The bus cannot be asked, or NetworkManager refuses.
pub fn extend_checkpoint(
    runner: &dyn CommandRunner,
    checkpoint: &Checkpoint,
    seconds: u32,
) -> Result<bool, CommandError> {
    if !is_alive(runner, checkpoint)? {
        return Ok(false);
    }
    // Zero would end its clock.
    let seconds = seconds.max(1).to_string();
    let words = ["ou", &checkpoint.path, &seconds];
    let line = method_line("CheckpointAdjustRollbackTimeout", &words, BUS);
    succeed(runner, &line).map(|_| true)
}

/// Returns true if the checkpoint still exists, and is not another program's with the same path.
///
/// # Errors
/// The bus cannot be asked.
pub fn is_alive(runner: &dyn CommandRunner, checkpoint: &Checkpoint) -> Result<bool, CommandError> {
    if !is_checkpoint_path(&checkpoint.path) {
        let words = format!("{:?} is not the path of a checkpoint", checkpoint.path);
        return Err(CommandError::Failed("busctl".into(), words));
    }
    Ok(is_running(runner)? && query_created(runner, &checkpoint.path)? == Some(checkpoint.created))
}

/// Returns true if NetworkManager is on the bus. It is not started by the question.
///
/// # Errors
/// The bus cannot be asked for another reason than its absence.
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

/// Makes NetworkManager read the files of its connections again. Connections whose files are gone end.
///
/// # Errors
/// nmcli is missing, or reports an error.
pub fn reload_connections(runner: &dyn CommandRunner) -> Result<(), CommandError> {
    succeed(runner, &nmcli_line(&["connection", "reload"], BUS)).map(drop)
}

/// Makes NetworkManager read the files of its connections again, and activates the connection of a file if it is active
/// or activated at boot. Returns false if it is neither, or if its device is missing or not ready.
///
/// # Errors
/// nmcli is missing or reports an error; NetworkManager ignores the file; the connection cannot be activated.
pub fn activate_file(runner: &dyn CommandRunner, path: &str) -> Result<bool, CommandError> {
    reload_connections(runner)?;
    let line = ["-t", "-f", "UUID,ACTIVE,FILENAME", "connection", "show"];
    let answer = succeed(runner, &nmcli_line(&line, BUS))?;
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
                "{path}: its device is in a bridge of Open vSwitch, which is made of this file at the boot: not activated now"
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
        // At boot it would wait for its device, too.
        _ if !profile.active && said.contains("No suitable device found") => Ok(false),
        _ => Err(CommandError::Failed("nmcli".into(), said.trim().to_owned())),
    }
}

/// Settings of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Settings {
    /// NetworkManager activates it by itself.
    automatic: bool,
    /// The name of its device; empty if it goes by something else.
    device: String,
    /// The kind of the controller, if it is a port.
    controller: String,
}

fn query_settings(runner: &dyn CommandRunner, uuid: &str) -> Result<Settings, CommandError> {
    let fields = "connection.autoconnect,connection.interface-name,connection.slave-type";
    let line = ["-g", fields, "connection", "show", "uuid", uuid];
    let answer = succeed(runner, &nmcli_line(&line, BUS))?;
    let mut lines = answer.stdout.lines().map(str::trim);
    let mut next = || lines.next().unwrap_or_default().to_owned();
    Ok(Settings {
        automatic: next() == "yes",
        device: next(),
        controller: next(),
    })
}

/// Returns true if the device is a port of Open vSwitch by another connection: the node's own scripts make such a bridge
/// of the device's connection at the boot, and an activation would take the device out of it. Without a name, any such port counts.
fn is_in_ovs_bridge(runner: &dyn CommandRunner, device: &str) -> Result<bool, CommandError> {
    let line = ["-t", "-f", "UUID,DEVICE", "connection", "show", "--active"];
    let answer = succeed(runner, &nmcli_line(&line, BUS))?;
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

/// A connection that NetworkManager has read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Profile {
    uuid: String,
    active: bool,
    path: String,
}

/// Parses lines such as `UUID:yes:/etc/…/a.nmconnection`, in which a colon of a name is escaped.
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

/// Returns the time at which a checkpoint was made; `None` if there is none at the path.
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

/// The path `/` would stand for the checkpoints of all programs.
fn is_checkpoint_path(path: &str) -> bool {
    path.strip_prefix(CHECKPOINTS).is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|letter| letter.is_ascii_digit())
    })
}

/// Parses `a{su} 1 "/org/…/Devices/2" 0`, and returns the devices that are not as they were.
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
            _ => "it could not be put back",
        };
        failed.push(format!("{device}: {why}"));
    }
    Some(failed)
}

fn strange(answer: &CommandOutput) -> CommandError {
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
    // A service that does not run is not started by a question.
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
    CommandLine {
        program: program.to_owned(),
        args: words.iter().map(|word| (*word).to_owned()).collect(),
        timeout,
        capabilities: &[],
    }
}

fn succeed(runner: &dyn CommandRunner, line: &CommandLine) -> Result<CommandOutput, CommandError> {
    let answer = runner.run(line)?;
    if answer.status == Some(0) {
        return Ok(answer);
    }
    let said = [answer.stderr.trim(), answer.stdout.trim()];
    let said = said
        .into_iter()
        .find(|said| !said.is_empty())
        .unwrap_or("it failed without a word");
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
            let all = Checkpoint {
                path: path.to_owned(),
                created: 1,
            };
            assert!(commit_checkpoint(&Never, &all).is_err());
            assert!(roll_back_checkpoint(&Never, &all).is_err());
            assert!(extend_checkpoint(&Never, &all, 10).is_err());
        }
    }

    /// STUB of nmcli: the answers of a node whose device is in a bridge of Open vSwitch.
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
