//! Every command that a run prints, checked as a person would use it: it is whole on its line, the shell and the program
//! take it, it names the root of the run, and none acts on the machine that looks at that root.
//!
//! `MCO_RESCUE_COMMANDS=FILE` lists those that work in a file.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command as Process, Output};
use std::sync::Mutex;

use clap::Parser;
use clap::error::ErrorKind;
use mco_rescue::base::invocation::{OF_THE_MACHINE, ON_THE_NODE, PrintedCommand};
use mco_rescue::cli::Cli;
use mco_rescue::node::engine::Engine;
use serde_json::Value;

/// What begins a line with a command.
const LABELS: [&str; 7] = [
    "Next: ", "then: ", "or: ", "Next  ", "then  ", "Fix  ", "Fix: ",
];

/// Programs that commands name, beside those that act on the machine.
const PROGRAMS: [&str; 55] = [
    "base64",
    "cat",
    "chattr",
    "chmod",
    "chown",
    "chroot",
    "clevis",
    "cp",
    "cryptsetup",
    "date",
    "df",
    "du",
    "e2label",
    "echo",
    "efibootmgr",
    "etcd-dump-db",
    "fatlabel",
    "find",
    "for",
    "getcap",
    "grep",
    "hwclock",
    "install",
    "journalctl",
    "ln",
    "ls",
    "lsblk",
    "lsinitrd",
    "mkdir",
    "modinfo",
    "modprobe",
    "mount",
    "mv",
    "oc",
    "openssl",
    "ostree",
    "ovsdb-tool",
    "printf",
    "rm",
    "rmdir",
    "scp",
    "sed",
    "semodule",
    "setfiles",
    "sha256sum",
    "skopeo",
    "ssh",
    "systemctl",
    "systemd-sysusers",
    "touch",
    "umount",
    "unshare",
    "vi",
    "xfs_admin",
    "xfs_info",
];

/// The commands that work, with another root or on a node that runs.
static CHECKED: Mutex<BTreeSet<(String, bool)>> = Mutex::new(BTreeSet::new());

/// Returns the number of different commands that were checked in this process and work.
pub fn number_checked() -> usize {
    CHECKED.lock().unwrap().len()
}

/// The lines that a run prints as commands.
pub fn printed(output: &Output) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let mut all = Vec::new();
    match serde_json::from_str::<Value>(&out) {
        Ok(document) => of_document(&document, &mut all),
        Err(_) => of_text(&out, &mut all),
    }
    of_text(&err, &mut all);
    all
}

fn of_text(text: &str, all: &mut Vec<String>) {
    for line in text.lines() {
        let line = line.trim_start();
        let line = line.strip_prefix("error: ").unwrap_or(line);
        let command = LABELS.iter().find_map(|label| line.strip_prefix(label));
        all.extend(command.map(|command| command.trim().to_owned()));
        let quoted = line.split('`').skip(1).step_by(2);
        let ours = quoted.filter(|one| one.starts_with("mco-rescue "));
        all.extend(ours.map(str::to_owned));
    }
}

fn of_document(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|one| of_document(one, all)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("next" | "then", Value::Array(values)) => {
                        all.extend(
                            values
                                .iter()
                                .filter_map(|one| Some(one.as_str()?.to_owned())),
                        );
                    }
                    _ => of_document(value, all),
                }
            }
        }
        _ => {}
    }
}

/// The root of a node that runs.
pub const LIVE: &str = "/";

/// The root of a run on a node that runs: [`LIVE`], or the one that is named.
pub fn root_of<'a>(args: &[&'a str]) -> &'a str {
    let at = args.iter().position(|word| *word == "--root");
    at.map_or(LIVE, |at| args[at + 1])
}

/// Checks what a run printed, with this root or on a node that runs ([`LIVE`]).
pub fn check(output: &Output, root: &str) {
    let problems = printed(output).into_iter().filter_map(|command| {
        let problem = problem_of(&command, root)?;
        Some(format!("{problem}: {command}"))
    });
    let problems: Vec<String> = problems.collect();
    if problems.is_empty() {
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    panic!("{}\n{said}{error}", problems.join("\n"));
}

/// What names rpm-ostree and is right on a node without it: words of the daemon, and paths that packages of it made.
const OF_OTHERS: [&str; 6] = [
    "error reading osImageURL from rpm-ostree",
    "as rpm-ostree is missing",
    "it is layered by rpm-ostree",
    "Bring an image that has it, or rpm-ostree",
    "Bring them in an image, or bring rpm-ostree",
    "Neither rpm-ostree nor the Machine Config Daemon",
];

/// Checks that a run below this directory named rpm-ostree only where the node has it: where bootc is alone, each row, hint
/// and command is about bootc and ostree.
pub fn check_engine(output: &Output, top: &Path) {
    let has = |name: &str| {
        let mut places = ["usr/bin", "usr/sbin"].iter();
        places.any(|place| top.join(place).join(name).exists())
    };
    if !has("bootc") || has("rpm-ostree") {
        return;
    }
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    // Lines of the screen end anywhere, and longer names and paths are those of files.
    let words: Vec<&str> = said.split_whitespace().collect();
    let drop = |text: String, words: &&str| text.replace(words, "");
    let said = OF_OTHERS.iter().fold(words.join(" "), drop);
    let parts: Vec<&str> = said.split("rpm-ostree").collect();
    for pair in parts.windows(2) {
        let from = pair[0].chars().rev().take(60).collect::<Vec<_>>();
        let before: String = from.into_iter().rev().collect();
        let after: String = pair[1].chars().take(60).collect();
        let shown = format!("{before}rpm-ostree{after}");
        assert_eq!(
            Engine::Bootc.spell(&shown),
            shown,
            "rpm-ostree is missing here"
        );
    }
}

/// A text without the name of a root that is one test's own.
fn generalize(text: &str, root: &str) -> String {
    match root {
        LIVE => text.to_owned(),
        _ => text.replace(root, "ROOT"),
    }
}

/// What is wrong with a command.
fn problem_of(command: &str, root: &str) -> Option<String> {
    let key = (generalize(command, root), root == LIVE);
    if CHECKED.lock().unwrap().contains(&key) {
        return None;
    }
    let problem = find_problem(command, root);
    if problem.is_none() {
        list(&key.0);
        CHECKED.lock().unwrap().insert(key);
    }
    problem
}

fn list(command: &str) {
    if let Ok(path) = std::env::var("MCO_RESCUE_COMMANDS") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{command}").unwrap();
    }
}

fn find_problem(command: &str, root: &str) -> Option<String> {
    if command.starts_with('#') || PrintedCommand::new(command).is_instruction() {
        return None;
    }
    if let Some(on_node) = command.strip_prefix(ON_THE_NODE) {
        return shell(on_node);
    }
    if let Some(problem) = shell(command) {
        return Some(problem);
    }
    if command.starts_with("mco-rescue ") {
        return of_the_program(command, root);
    }
    if root != LIVE && PrintedCommand::new(command).is_of_the_machine() {
        return Some("acts on the machine, and not on the root".to_owned());
    }
    if let Some(path) = path_of_the_machine(command, root) {
        return Some(format!("names {path} of the machine"));
    }
    let is_setting = |word: &&str| word.contains('=');
    let program = command.split_whitespace().find(|word| !is_setting(word));
    let program = program.unwrap_or_default();
    let is_known = PROGRAMS.contains(&program) || OF_THE_MACHINE.contains(&program);
    (!is_known).then(|| "is not a command that is known".to_owned())
}

/// A path outside the root that is none of a device. What runs elsewhere has its own paths.
fn path_of_the_machine<'a>(command: &'a str, root: &str) -> Option<&'a str> {
    if root == LIVE || PrintedCommand::new(command).is_elsewhere() {
        return None;
    }
    let command = command.split(" # ").next().unwrap_or(command);
    let mut words = command.split([' ', '=', '>']);
    words.find(|word| {
        let elsewhere = ["/dev/", "/PEER"].iter().any(|one| word.starts_with(one));
        let is_path = word.starts_with('/') && *word != "/";
        is_path && !word.starts_with(root) && !elsewhere
    })
}

/// The shell reads it.
fn shell(command: &str) -> Option<String> {
    let status = Process::new("bash").args(["-n", "-c", command]).output();
    let output = status.unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then(|| format!("the shell does not read it ({})", error.trim()))
}

/// The program's own parser takes it, and it leads to the root.
fn of_the_program(command: &str, root: &str) -> Option<String> {
    // The shell takes the words apart, and may expand none of them. It would write the file of a redirection.
    let command = command.split(" > ").next().unwrap();
    let script = format!("printf '%s\\0' {command}");
    let output = Process::new("bash").args(["-c", &script]).output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    let end = |word: &&str| ![";", "&&", "|", ">"].contains(word);
    let words: Vec<&str> = words.split_terminator('\0').take_while(end).collect();
    match Cli::try_parse_from(&words) {
        Ok(cli) if [Some(root), Some("DIR")].contains(&cli.root.to_str()) => None,
        // The explanation of a check is of no root.
        // So is the store of another node.
        Ok(_) if words.contains(&"--store") => None,
        Ok(_) if words.len() == 3 && words[1] == "doctor" && words[2].starts_with("FP-") => None,
        Ok(_) => Some("does not name the root".to_owned()),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => None,
        // A placeholder that a person replaces.
        Err(error)
            if error.kind() == ErrorKind::ValueValidation && command.contains("HOST:ADDRESS") =>
        {
            None
        }
        Err(error) => Some(format!("does not parse ({:?})", error.kind())),
    }
}
