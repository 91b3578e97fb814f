//! The printed commands, carried out: in a namespace in which only the root can be written, with stand-ins in the place of
//! every program that acts on the machine, and without the capabilities for what no namespace holds: the clock, the kernel,
//! the network, a reboot.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::command::SICK;
use super::doctor_with;
use super::worker::healthy;
use crate::support::commands::{number_checked, printed};
use crate::support::mounts::{mount, with_mounts};
use crate::support::{PROGRAM, install, say};
use mco_rescue::base::invocation::{OF_THE_MACHINE, ON_THE_NODE};

/// Programs of other machines, editors, and those that set the clock or the firmware: no namespace holds these.
const OF_A_PERSON: [&str; 11] = [
    "chronyc",
    "cryptsetup",
    "date",
    "efibootmgr",
    "hwclock",
    "mount",
    "oc",
    "scp",
    "ssh",
    "umount",
    "vi",
];
/// What a command of the root does not need, as setpriv takes it.
const TAKEN_AWAY: &str = "--bounding-set=-sys_time,-sys_boot,-sys_module,-sys_rawio,-syslog,-net_admin,-kill,-sys_ptrace";
/// Words that stand for what only a person can give.
const PLACEHOLDERS: [&str; 8] = [
    "CONFIG",
    "DIR",
    "FILE",
    "KEY",
    "NAME",
    "NODE",
    "OTHER-NODE",
    "/PEER",
];

/// A directory of programs that only note how they were called.
fn stand_ins(directory: &Path, calls: &Path) {
    let script = format!("#!/bin/sh\necho \"${{0##*/}} $*\" >>{}\n", calls.display());
    for program in OF_THE_MACHINE.iter().chain(&OF_A_PERSON) {
        let path = directory.join(program);
        fs::write(&path, &script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The name of what is moved aside has the time; setting it is left to a person.
    let script =
        "#!/bin/sh\ncase \" $* \" in *\" -s \"*) exit 1 ;; esac\nexec /usr/bin/date \"$@\"\n";
    fs::write(directory.join("date"), script).unwrap();
    symlink(PROGRAM, directory.join("mco-rescue")).unwrap();
}

/// Is true for a command that waits for a value or a judgement of a person.
fn is_for_a_person(command: &str) -> bool {
    let program = command.split(' ').find(|word| !word.contains('='));
    let words = |placeholder: &&str| {
        let mut words = command.split([' ', ':', '/', '=']);
        words.any(|word| word == placeholder.trim_start_matches('/'))
    };
    program.is_some_and(|program| OF_A_PERSON.contains(&program))
        || command.starts_with(|first: char| first.is_ascii_uppercase())
        || PLACEHOLDERS.iter().any(words)
}

/// Mounts an empty `/tmp`. The program is there again, where it was built below.
fn hide_temporary_files(work: &Path) {
    let program = Path::new(PROGRAM);
    let is_below = program.starts_with("/tmp");
    let copy = work.join("program");
    if is_below {
        install(program, &copy);
    }
    mount(&["-t", "tmpfs", "tmpfs", "/tmp"]);
    if is_below {
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        install(&copy, program);
    }
}

#[test]
fn printed_commands_run_as_they_are_and_change_nothing_but_the_root() {
    with_mounts(|| {
        let work = tempfile::tempdir_in("/dev/shm").unwrap();
        hide_temporary_files(work.path());
        mount(&["-o", "remount,bind,ro", "/"]);
        let (programs, calls) = (work.path().join("bin"), work.path().join("calls"));
        fs::create_dir(&programs).unwrap();
        stand_ins(&programs, &calls);
        let (mut ran, mut marked, mut left) = (0, 0, BTreeSet::new());
        for sick in SICK.iter().copied().flatten() {
            let root = healthy();
            (sick.sicken)(&root);
            let report = doctor_with(&root, &["--output", "json"]);
            let mut commands = printed(report.output());
            let place = root.dir().to_str().unwrap();
            commands.retain(|command| match command {
                command if command.starts_with(ON_THE_NODE) => {
                    marked += 1;
                    false
                }
                command if is_for_a_person(command) => {
                    left.insert(command.replace(place, "ROOT"));
                    false
                }
                _ => true,
            });
            for command in commands {
                ran += 1;
                // There is no terminal to confirm it on.
                let asked = if command.starts_with("mco-rescue ") {
                    command.replacen("mco-rescue ", "mco-rescue --yes ", 1)
                } else {
                    command.clone()
                };
                let output = Command::new("setpriv")
                    .args([TAKEN_AWAY, "bash", "-c", &asked])
                    .env("PATH", format!("{}:/usr/sbin:/usr/bin", programs.display()))
                    .current_dir(work.path())
                    .stdin(Stdio::null())
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let context = format!("{} {}: {command}: {said}", sick.id, sick.what);
                // The shell finds the program, and the program knows its options.
                let code = output.status.code().unwrap();
                assert!(
                    ![2, 126, 127].contains(&code) || command.starts_with("ls "),
                    "{context}"
                );
                assert!(!said.contains("Read-only file system"), "{context}");
                let called = fs::read_to_string(&calls).unwrap_or_default();
                // With an option that leads to the root, such as --sysroot.
                let leads = called.lines().all(|line| line.contains(place));
                assert!(leads, "{context}: {called}");
                let _ = fs::remove_file(&calls);
            }
        }
        say(&format!(
            "printed commands: {ran} were run, {marked} are for the node itself, {} are a person's, {} different ones were \
             checked: {left:#?}",
            left.len(),
            number_checked(),
        ));
        assert!(ran > 25, "{ran}");
    });
}
