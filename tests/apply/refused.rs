//! Units that systemd refuses: our rules beside those of `systemd-analyze verify`, no alarm on real units, and what the commands say.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use mco_rescue::config::document::{self, Desired};
use mco_rescue::formats::systemd::{Objection, judge_unit, unit_text};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Lacks, TestRoot, flat_run, machine_config, say, shared_data, skip};

/// The version of systemd whose rules these are.
const VERSION: &str = "systemd 252 ";
const GENERATED: u32 = 500;
const TRUE: &str = "ExecStart=/usr/bin/true\n";

/// The real systemd, with a root that has the units that every unit needs.
struct Systemd(TempDir);

impl Systemd {
    fn find() -> Option<Self> {
        let version = Command::new("systemd-analyze").arg("--version").output();
        if !version.is_ok_and(|output| output.stdout.starts_with(VERSION.as_bytes())) {
            skip(
                Lacks::other_version("systemd-analyze"),
                "no systemd-analyze of systemd 252, so nothing is compared with it",
            );
            return None;
        }
        let systemd = Self(tempfile::tempdir().unwrap());
        let targets = [
            "basic",
            "sysinit",
            "shutdown",
            "local-fs",
            "local-fs-pre",
            "swap",
            "umount",
            "timers",
            "paths",
            "sockets",
            "remote-fs",
            "remote-fs-pre",
            "network",
            "network-online",
            "emergency",
        ];
        for target in targets {
            systemd.write(
                &format!("usr/lib/systemd/system/{target}.target"),
                "[Unit]\nDefaultDependencies=no\n",
            );
        }
        systemd.write("usr/bin/true", "#!");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(systemd.0.path().join("usr/bin/true"), mode).unwrap();
        Some(systemd)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// True with its words if it refuses the unit.
    fn refuses(&self, name: &str, text: &str, dropins: &[&str]) -> (bool, String) {
        self.verify(name, text, dropins, "no")
    }

    /// True with its words if it cannot start the unit with all that it requires.
    fn cannot_start(&self, name: &str, text: &str) -> (bool, String) {
        self.verify(name, text, &[], "yes")
    }

    fn verify(&self, name: &str, text: &str, dropins: &[&str], recursive: &str) -> (bool, String) {
        let units = self.0.path().join("etc/systemd/system");
        let _ = fs::remove_dir_all(&units);
        self.write(&format!("etc/systemd/system/{name}"), text);
        for (number, dropin) in dropins.iter().enumerate() {
            self.write(
                &format!("etc/systemd/system/{name}.d/{number}.conf"),
                dropin,
            );
        }
        let mut command = Command::new("systemd-analyze");
        command
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.args(["verify", "--man=no", "--generators=no"]);
        command.arg(format!("--recursive-errors={recursive}"));
        command.arg(format!("--root={}", self.0.path().display()));
        let output = command.arg(units.join(name)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let words = [
            "has a bad unit file setting",
            "failed to load properly",
            "Failed to load unit file",
            "Failed to prepare filename",
            "not found.",
        ];
        (words.iter().any(|words| said.contains(words)), said)
    }
}

/// Our refusal.
fn refusal(name: &str, text: &str, dropins: &[&str]) -> Option<String> {
    let all = judge_unit(name, text, dropins);
    all.into_iter().find_map(|objection| match objection {
        Objection::Refused(why) => Some(why),
        Objection::Ignored(_) => None,
    })
}

fn ignored(name: &str, text: &str) -> Vec<String> {
    let all = judge_unit(name, text, &[]).into_iter();
    let ignored = all.filter_map(|objection| match objection {
        Objection::Ignored(what) => Some(what),
        Objection::Refused(_) => None,
    });
    ignored.collect()
}

/// A unit, and words of the refusal; empty where it is loaded.
type Row = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static str,
);

const ROWS: &[Row] = &[
    ("a.service", "[Service]\nExecStart=/usr/bin/true\n", &[], ""),
    ("a.service", "[Unit]\nDescription=x\n", &[], "no ExecStart="),
    ("a.service", "\n", &[], "no ExecStart="),
    (
        "a.service",
        "[Service]\nType=oneshot\n",
        &[],
        "no ExecStart=",
    ),
    (
        "a.service",
        "[Service]\nExecStop=/usr/bin/true\n",
        &[],
        "ExecStop= alone",
    ),
    (
        "a.service",
        "[Service]\nRemainAfterExit=yes\nExecStop=/usr/bin/true\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nRemainAfterExit=maybe\nExecStop=/usr/bin/true\n",
        &[],
        "ExecStop= alone",
    ),
    (
        "a.service",
        "[Unit]\nSuccessAction=reboot\n[Service]\nType=oneshot\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Unit]\nSuccessAction=reboot\n[Service]\nType=simple\n",
        &[],
        "only Type=oneshot",
    ),
    (
        "a.service",
        "[Unit]\nSuccessAction=none\n[Service]\nType=oneshot\n",
        &[],
        "no ExecStart=",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=bad\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=oneshot\nRestart=always\n",
        &[],
        "Restart=always",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=oneshot\nRestart=on-success\n",
        &[],
        "Restart=on-success",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=oneshot\nRestart=on-failure\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=oneshot\nRestart=always\nRestart=\n",
        &[],
        "Restart=always",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=oneshot\nExitType=cgroup\n",
        &[],
        "ExitType=cgroup",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nExecStart=/usr/bin/true\n",
        &[],
        "more than one ExecStart=",
    ),
    (
        "a.service",
        "[Service]\nType=oneshot\nExecStart=/usr/bin/true\nExecStart=/usr/bin/true\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true ; /usr/bin/true\n",
        &[],
        "more than one ExecStart=",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true \\; /usr/bin/true\n",
        &[],
        "",
    ),
    ("a.service", "[Service]\nExecStart=\n", &[], "no ExecStart="),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nExecStart=\n",
        &[],
        "no ExecStart=",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\n",
        &["[Service]\nExecStart=/usr/bin/true\n"],
        "more than one",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\n",
        &["[Service]\nExecStart=\nExecStart=/usr/bin/true\n"],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\n",
        &["[Service]\nExecStart=\n"],
        "no ExecStart=",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\n",
        &["[Service]\nExecStartPre=bin/x\n"],
        "",
    ),
    (
        "a.service",
        "[Service]\nType=oneshot\nRestart=always\n",
        &[
            "[Service\n",
            "[Service]\nExecStart=/usr/bin/true\nType=simple\n",
        ],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=dbus\n",
        &[],
        "BusName=",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=dbus\nBusName=bad name\n",
        &[],
        "BusName=",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nType=dbus\nBusName=a.b\n",
        &[],
        "",
    ),
    ("a.service", "[Service]\nExecStart=true\n", &[], ""),
    (
        "a.service",
        "[Service]\nExecStart=bin/true\n",
        &[],
        "neither an absolute path nor a file name",
    ),
    (
        "a.service",
        "[Service]\nExecStart=-bin/true\n",
        &[],
        "no ExecStart=",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/\n",
        &[],
        "is a directory",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true \"x\n",
        &[],
        "never closed",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true it's\n",
        &[],
        "never closed",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true 'it\\'s'\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true \\\n # comment\n  x\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nExecStop=bin/x\n",
        &[],
        "ExecStop=bin/x",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true +%F\n",
        &[],
        "%F means nothing to systemd",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true '%%F' %%%%F 5% %n\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nExecStop=/usr/bin/true http://x/a%20b\n",
        &[],
        "%2 means nothing to systemd",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nExecStartPre=-/usr/bin/true +%F\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nUser=%Q\n",
        &[],
        "User=%Q: %Q means nothing",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nWorkingDirectory=/%Q\n",
        &[],
        "WorkingDirectory=/%Q: %Q means nothing",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nUser=a:b\n",
        &[],
        "User=a:b",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nWorkingDirectory=rel\n",
        &[],
        "WorkingDirectory=rel",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nWorkingDirectory=-rel\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nWorkingDirectory=~\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nRootDirectory=/a/../b\n",
        &[],
        "RootDirectory=/a/../b",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\nPAMName=x\nKillMode=process\n",
        &[],
        "KillMode=process",
    ),
    (
        "a.service",
        "ExecStart=/usr/bin/true\n",
        &[],
        "no ExecStart=",
    ),
    (
        "a.service",
        "[service]\nExecStart=/usr/bin/true\n",
        &[],
        "its section [service] should be [Service]",
    ),
    (
        "a.service",
        "[Service\nExecStart=/usr/bin/true\n",
        &[],
        "is not a section header",
    ),
    (
        "a.service",
        "[Service]\nExecStart=/usr/bin/true\njunk\n",
        &[],
        "",
    ),
    (
        "a.service",
        "[X-Service]\nFoo=bar\n[Service]\nExecStart=/usr/bin/true\n",
        &[],
        "",
    ),
    (
        "a b.service",
        "[Service]\nExecStart=/usr/bin/true\n",
        &[],
        "name is not valid",
    ),
    (
        "a@.service",
        "[Service]\nExecStart=/usr/bin/true\n",
        &[],
        "",
    ),
    (
        "a@b.service",
        "[Service]\nType=oneshot\n",
        &[],
        "no ExecStart=",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=/var/log\n",
        &[],
        "",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=//var/./log/\n",
        &[],
        "",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=/var/log/audit\n",
        &[],
        "named var-log-audit.mount",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=/other\n",
        &["[Mount]\nWhere=/var/log\n"],
        "",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=/var/log\n",
        &["[Mount]\nWhere=/other\n"],
        "named other.mount",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=/other\nWhere=\n",
        &[],
        "",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=var/log\n",
        &[],
        "",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhere=%f\n",
        &[],
        "",
    ),
    ("var-log.mount", "[Mount]\nWhat=/dev/sdb1\n", &[], ""),
    (
        "var-log.mount",
        "[Mount]\nWhere=/var/log\n",
        &[],
        "no What=",
    ),
    (
        "var-log.mount",
        "[Mount]\nWhat=/dev/sdb1\nWhat=\nWhere=/var/log\n",
        &[],
        "no What=",
    ),
    ("var-log.mount", "[Unit]\nDescription=x\n", &[], "no What="),
    (
        "var-log.mount",
        "[mount]\nWhat=/dev/sdb1\nWhere=/var/log\n",
        &[],
        "its section [mount] should be [Mount]",
    ),
    ("-.mount", "[Mount]\nWhere=/\n", &[], ""),
    (
        "proc.mount",
        "[Mount]\nWhat=proc\nWhere=/proc\n",
        &[],
        "systemd itself mounts /proc",
    ),
    (
        "sys-fs-cgroup-x.mount",
        "[Mount]\nWhat=x\n",
        &[],
        "systemd itself mounts /sys/fs/cgroup/x",
    ),
    (
        "run-lock.mount",
        "[Mount]\nWhat=x\n",
        &[],
        "systemd itself mounts /run/lock",
    ),
    (
        "dev-mqueue.mount",
        "[Mount]\nWhat=x\nWhere=/dev/mqueue\n",
        &[],
        "",
    ),
    (
        "var-lib-my\\x2ddata.mount",
        "[Mount]\nWhat=x\nWhere=/var/lib/my-data\n",
        &[],
        "",
    ),
    (
        "var-lib-my-data.mount",
        "[Mount]\nWhat=x\nWhere=/var/lib/my-data\n",
        &[],
        "named var-lib-my\\x2ddata.mount",
    ),
    ("\\x2ex.mount", "[Mount]\nWhat=x\nWhere=/.x\n", &[], ""),
    (
        ".x.mount",
        "[Mount]\nWhat=x\nWhere=/.x\n",
        &[],
        "named \\x2ex.mount",
    ),
    (
        "a@b.mount",
        "[Mount]\nWhat=x\nWhere=/a@b\n",
        &[],
        "cannot be a template",
    ),
    ("data.automount", "[Automount]\nWhere=/data\n", &[], ""),
    ("data.automount", "[Automount]\n", &[], ""),
    (
        "data.automount",
        "[Automount]\nWhere=/dat\n",
        &[],
        "named dat.automount",
    ),
    (
        "-.automount",
        "[Automount]\nWhere=/\n",
        &[],
        "root directory",
    ),
    ("dev-sdb1.swap", "[Swap]\nWhat=/dev/sdb1\n", &[], ""),
    (
        "dev-sdb2.swap",
        "[Swap]\nWhat=/dev/sdb1\n",
        &[],
        "named dev-sdb1.swap",
    ),
    ("dev-sdb1.swap", "[Swap]\nWhat=UUID=abc\n", &[], ""),
    ("dev-sdb1.swap", "[Swap]\n", &[], ""),
    ("a.timer", "[Timer]\nOnBootSec=1\n", &[], ""),
    ("a.timer", "[Timer]\nOnCalendar=*-*-* 04:00\n", &[], ""),
    ("a.timer", "[Timer]\nOnCalendar=Mon,Thu\n", &[], ""),
    ("a.timer", "[Timer]\nOnClockChange=yes\n", &[], ""),
    ("a.timer", "[Timer]\n", &[], "no time to start at"),
    (
        "a.timer",
        "[Unit]\nDescription=x\n",
        &[],
        "no time to start at",
    ),
    (
        "a.timer",
        "[Timer]\nRandomizedDelaySec=1\n",
        &[],
        "no time to start at",
    ),
    (
        "a.timer",
        "[Timer]\nOnCalendar=tomorrow\n",
        &[],
        "OnCalendar=tomorrow is not valid",
    ),
    (
        "a.timer",
        "[Timer]\nOnBootSec=5 foo\n",
        &[],
        "OnBootSec=5 foo is not valid",
    ),
    ("a.timer", "[Timer]\nOnBootSec=5min 20s\n", &[], ""),
    (
        "a.timer",
        "[Timer]\nOnCalendar=daily\nOnBootSec=\n",
        &[],
        "no time to start at",
    ),
    ("a.path", "[Path]\nPathExists=/x\n", &[], ""),
    ("a.path", "[Path]\nPathExists=%t/x\n", &[], ""),
    (
        "a.path",
        "[Path]\nMakeDirectory=yes\n",
        &[],
        "no path to watch",
    ),
    ("a.path", "[Path]\nPathExists=x\n", &[], "no path to watch"),
    (
        "a.path",
        "[Path]\nPathExists=/x\nPathChanged=\n",
        &[],
        "no path to watch",
    ),
    ("a.socket", "[Socket]\nListenStream=/run/x\n", &[], ""),
    ("a.socket", "[Socket]\nListenStream=127.0.0.1:80\n", &[], ""),
    (
        "a.socket",
        "[Socket]\nListenNetlink=kobject-uevent 1\n",
        &[],
        "",
    ),
    ("a.socket", "[Socket]\n", &[], "nothing to listen on"),
    (
        "a.socket",
        "[Socket]\nListenStream=99999\n",
        &[],
        "nothing to listen on",
    ),
    (
        "a.socket",
        "[Socket]\nListenStream=run/x\n",
        &[],
        "nothing to listen on",
    ),
    (
        "a.socket",
        "[Socket]\nListenStream=80\nListenDatagram=\n",
        &[],
        "nothing to listen on",
    ),
    (
        "a.socket",
        "[Socket]\nListenStream=80\nAccept=yes\n",
        &[],
        "",
    ),
    (
        "a.socket",
        "[Socket]\nListenDatagram=80\nAccept=yes\n",
        &[],
        "Accept=yes does not fit",
    ),
    (
        "a.socket",
        "[Socket]\nListenStream=80\nAccept=yes\nService=b.service\n",
        &[],
        "Service=b.service",
    ),
    ("a.target", "[Unit]\nDescription=x\n", &[], ""),
    ("a.target", "[Unit\n", &[], "is not a section header"),
    ("a.slice", "[Slice]\n", &[], ""),
    ("a--b.slice", "[Slice]\n", &[], "separate its parents"),
    ("a-.slice", "[Slice]\n", &[], "separate its parents"),
    ("a@.slice", "[Slice]\n", &[], "cannot be a template"),
    (
        "a.scope",
        "[Unit]\nDescription=x\n",
        &[],
        "cannot be loaded from a file",
    ),
];

#[test]
fn the_rules_are_those_of_systemd() {
    let systemd = Systemd::find();
    let mut wrong = Vec::new();
    for (name, text, dropins, words) in ROWS.iter().copied() {
        let ours = refusal(name, text, dropins);
        let is_right = match &ours {
            None => words.is_empty(),
            Some(why) => !words.is_empty() && why.contains(words),
        };
        if !is_right {
            wrong.push(format!(
                "{name} {text:?} {dropins:?}: {ours:?}, not {words:?}"
            ));
        }
        if let Some(systemd) = &systemd {
            let (refuses, said) = systemd.refuses(name, text, dropins);
            if refuses == words.is_empty() {
                wrong.push(format!(
                    "{name} {text:?} {dropins:?}: systemd says {said:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_systemd_ignores_is_named() {
    let table = [
        (
            "a.service",
            "[Service]\nExecStart=/usr/bin/true\nType=bad\n",
            "Type=bad, which is unknown",
        ),
        (
            "a.service",
            "[Service]\nExecStart=/usr/bin/true\nRestart=bad\n",
            "Restart=bad, which is unknown",
        ),
        (
            "var-log.mount",
            "[Mount]\nWhat=x\nWhere=var/log\n",
            "only its name matters, and says /var/log",
        ),
        (
            "var-log.mount",
            "[Mount]\nWhat=x\nWhere=/a/../b\n",
            "has a `..` in it",
        ),
        (
            "dev-sdb1.swap",
            "[Swap]\nWhat=UUID=abc\n",
            "is not an absolute path",
        ),
    ];
    for (name, text, words) in table {
        let said = ignored(name, text);
        assert!(
            said.len() == 1 && said[0].contains(words),
            "{text:?}: {said:?}"
        );
    }
    assert_eq!(
        ignored(
            "a.service",
            "[Service]\nExecStart=/usr/bin/true\nType=notify-reload\n"
        ),
        [""; 0]
    );
}

/// Settings of a type, of which some come to a unit and to a drop-in.
fn settings(kind: &str) -> Vec<&'static str> {
    match kind {
        "service" => vec![
            "ExecStart=/usr/bin/true",
            "ExecStart=/usr/bin/true x",
            "ExecStart=",
            "ExecStart=bin/x",
            "ExecStart=-bin/x",
            "ExecStart=/usr/bin/true %F",
            "ExecStartPre=-/usr/bin/true %2",
            "ExecStop=/usr/bin/true %%F %n",
            "ExecStop=/usr/bin/true",
            "ExecStartPre=/usr/bin/",
            "Type=oneshot",
            "Type=simple",
            "Type=bad",
            "Type=dbus",
            "BusName=a.b",
            "RemainAfterExit=yes",
            "RemainAfterExit=no",
            "Restart=always",
            "Restart=no",
            "Restart=bad",
            "KillMode=process",
            "KillMode=mixed",
            "PAMName=x",
            "PAMName=",
            "User=a/b",
            "User=root",
            "WorkingDirectory=x",
            "WorkingDirectory=/x",
            "[service]",
            "[Unit]",
            "[Service]",
            "[Foo",
            "SuccessAction=reboot",
            "junk",
        ],
        "mount" => vec![
            "What=/dev/sdb1",
            "What=",
            "Where=/var/log",
            "Where=/var/log/",
            "Where=var/log",
            "Where=/var/other",
            "Where=",
            "Where=/var/../log",
            "Type=xfs",
            "[mount]",
            "[Mount]",
            "[Mount",
            "User=a:b",
        ],
        "timer" => vec![
            "OnBootSec=1",
            "OnBootSec=1h 5min",
            "OnBootSec=",
            "OnBootSec=bad",
            "OnCalendar=daily",
            "OnCalendar=bad",
            "OnClockChange=yes",
            "OnClockChange=no",
            "[timer]",
            "[Timer]",
            "AccuracySec=1",
            "OnUnitActiveSec=",
        ],
        "path" => vec![
            "PathExists=/x",
            "PathExists=",
            "PathExists=x",
            "DirectoryNotEmpty=/y",
            "PathChanged=",
            "MakeDirectory=yes",
            "[path]",
            "[Path]",
            "PathExistsGlob=/x/*",
        ],
        _ => vec![
            "ListenStream=80",
            "ListenStream=",
            "ListenStream=x/y",
            "ListenStream=*:80",
            "ListenStream=127.0.0.1:80",
            "ListenDatagram=/run/x",
            "ListenFIFO=/run/y",
            "ListenFIFO=y",
            "Accept=yes",
            "Accept=no",
            "Service=b.service",
            "Service=b",
            "[socket]",
            "[Socket]",
            "ExecStartPre=bin/x",
        ],
    }
}

fn unit() -> impl Strategy<Value = (&'static str, String, Option<String>)> {
    let kinds = vec![
        ("service", "a.service", "[Service]"),
        ("mount", "var-log.mount", "[Mount]"),
        ("timer", "a.timer", "[Timer]"),
        ("path", "a.path", "[Path]"),
        ("socket", "a.socket", "[Socket]"),
    ];
    select(kinds).prop_flat_map(|(kind, name, section)| {
        let all = settings(kind);
        let text = move |lines: Vec<&str>| format!("{section}\n{}\n", lines.join("\n"));
        let lines = || subsequence(all.clone(), 0..6).prop_shuffle();
        (
            Just(name),
            lines().prop_map(text),
            prop::option::weighted(0.3, lines().prop_map(text)),
        )
    })
}

#[test]
fn generated_units_are_refused_where_systemd_refuses_them() {
    let Some(systemd) = Systemd::find() else {
        return;
    };
    let config = Config {
        cases: GENERATED,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let counts = std::cell::Cell::new((0, 0));
    TestRunner::new_with_rng(config, rng)
        .run(&unit(), |(name, text, dropin)| {
            let dropins: Vec<&str> = dropin.iter().map(String::as_str).collect();
            let ours = refusal(name, &text, &dropins);
            let (theirs, said) = systemd.refuses(name, &text, &dropins);
            let (refused, all) = counts.get();
            counts.set((refused + u32::from(theirs), all + 1));
            if ours.is_some() != theirs {
                return Err(TestCaseError::fail(format!("{ours:?} beside {said}")));
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let (refused, all) = counts.get();
    say(&format!(
        "units: {refused} of {all} generated ones are refused by systemd and here"
    ));
    assert!(
        refused > all / 10 && refused < all * 9 / 10,
        "{refused} of {all}"
    );
}

/// Every document below a directory, but those that are made by hand to be wrong.
fn documents(directory: &Path, all: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("field-cases") && !path.ends_with("daemon-inputs") {
            documents(&path, all);
        } else if path
            .extension()
            .is_some_and(|end| end == "json" || end == "yaml" || end == "yml")
        {
            all.extend(fs::read_to_string(path));
        }
    }
}

#[test]
fn no_real_unit_raises_an_alarm() {
    let mut count = 0;
    let mut alarms = Vec::new();
    if let Some(directory) = shared_data("") {
        let mut all = Vec::new();
        documents(&directory, &mut all);
        for config in all
            .into_iter()
            .filter_map(|text| document::parse_document(text, "captured").ok())
        {
            for unit in Desired::from_config(&config).units {
                let Some(text) = unit.text() else { continue };
                let dropins: Vec<&str> = unit
                    .dropins
                    .iter()
                    .filter_map(|dropin| dropin.text())
                    .collect();
                count += 1;
                let found = judge_unit(&unit.name, text, &dropins);
                alarms.extend(
                    found
                        .iter()
                        .map(|alarm| format!("{}: {alarm:?}", unit.name)),
                );
            }
        }
        assert!(count > 100, "{count}");
    }
    let directory = "/usr/lib/systemd/system";
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut shipped = 0;
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !fs::symlink_metadata(&path).unwrap().is_file() {
            continue;
        }
        shipped += 1;
        let text = unit_text(&fs::read(&path).unwrap());
        let found = judge_unit(&name, &text, &[]);
        alarms.extend(
            found
                .iter()
                .map(|alarm| format!("{directory}/{name}: {alarm:?}")),
        );
    }
    assert_eq!(alarms, [""; 0]);
    say(&format!(
        "units: no alarm on {count} units of captured configs and {shipped} of this machine"
    ));
}

fn units(name: &str, units: Value) -> Value {
    machine_config(name, json!({"systemd": {"units": units}}))
}

fn mount(required_by: &str) -> Value {
    let text = format!(
        "[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=/dev/disk/by-partlabel/audit\nWhere=/var/log/audit\nType=xfs\n\
         [Install]\n{required_by}\n"
    );
    json!({"name": "var-log.mount", "enabled": true, "contents": text})
}

fn plan(root: &TestRoot, config: &Value, key: &str) -> String {
    let given = root.config(config);
    let plan = root.run(&["plan", given.path(), "--output", "json"]).json();
    let notes = plan[key].as_array().unwrap().iter();
    let notes: Vec<&str> = notes
        .map(|note| note["message"].as_str().unwrap())
        .collect();
    notes.join("\n")
}

const WHERE: &str = "systemd refuses var-log.mount: its name does not fit Where=/var/log/audit: for that path the unit has to be \
                     named var-log-audit.mount";

#[test]
fn a_refused_unit_that_the_boot_requires_is_a_blocker() {
    let required = "the next boot ends in emergency mode";
    let other = |text: &str| json!({"name": "b.service", "enabled": true, "contents": text});
    let bare = mount("RequiredBy=b.service");
    let by_link = other("[Service]\nExecStart=/bin/true\n[Install]\nRequiredBy=local-fs.target\n");
    let by_text = other(
        "[Unit]\nBindsTo=var-log.mount\n[Service]\nExecStart=/bin/true\n[Install]\nRequiredBy=local-fs.target\n",
    );
    let by = "local-fs.target requires b.service, which needs var-log.mount";
    let table = [
        (
            json!([mount("RequiredBy=local-fs.target")]),
            "local-fs.target requires var-log.mount",
        ),
        (json!([bare, by_link]), by),
        (json!([mount("WantedBy=x.target"), by_text]), by),
    ];
    for (list, by) in table {
        let root = TestRoot::new();
        let config = units("rendered-worker-a", list);
        let said = plan(&root, &config, "blockers");
        assert!(
            said.contains(WHERE) && said.contains(&format!("{by}: {required}")),
            "{said}"
        );
        let before = root.everything();
        let given = root.config(&config);
        root.run(&["apply", "--yes", given.path()]).exits(1);
        assert_eq!(root.everything(), before);
    }
    // Of the bare config, and for other targets of the boot.
    for target in ["sysinit.target", "basic.target", "multi-user.target"] {
        let root = TestRoot::new();
        let config = json!({"ignition": {"version": "3.4.0"},
            "systemd": {"units": [mount(&format!("RequiredBy={target}"))]}});
        let said = plan(&root, &config, "blockers");
        assert!(
            said.contains(&format!(
                "{target} requires var-log.mount: the next boot does not come up"
            )),
            "{said}"
        );
    }
}

#[test]
fn a_refused_unit_that_nothing_requires_is_a_notice_and_doctor_names_it() {
    let root = TestRoot::new();
    let list = json!([
        mount("WantedBy=local-fs.target"),
        {"name": "a.timer", "enabled": true, "contents": "[Timer]\n[Install]\nWantedBy=timers.target\n"},
        {"name": "b.service", "contents": "[Service]\nExecStart=/bin/true\nType=bad\n"},
    ]);
    let config = units("rendered-worker-a", list);
    assert_eq!(plan(&root, &config, "blockers"), "");
    let said = plan(&root, &config, "notices");
    for words in [
        WHERE,
        "systemd refuses a.timer: it has no time to start at",
        "b.service: systemd ignores Type=bad, which is unknown",
    ] {
        assert!(said.contains(words), "{said}");
    }
    root.apply(&config);
    let seen = flat_run(&root.run(&["doctor"]));
    for words in [
        "systemd refuses a.timer and 1 more",
        "for that path the unit has to be named var-log-audit.mount",
        "systemd ignores settings of b.service",
    ] {
        assert!(seen.contains(words), "{seen}");
    }
    assert!(!seen.contains("emergency mode"), "{seen}");
}

#[test]
fn a_refused_unit_that_is_there_already_blocks_nothing_and_is_critical_for_doctor() {
    let root = TestRoot::new();
    let good = units(
        "rendered-worker-a",
        json!([{"name": "b.service", "contents": format!("[Service]\n{TRUE}")}]),
    );
    root.apply(&good);
    let text = mount("")["contents"].as_str().unwrap().to_owned();
    root.write("etc/systemd/system/var-log.mount", &text);
    root.link(
        "etc/systemd/system/local-fs.target.requires/var-log.mount",
        "/etc/systemd/system/var-log.mount",
    );
    assert_eq!(plan(&root, &good, "blockers"), "");
    let run = root.run(&["doctor", "--output", "json"]);
    let seen = run.json();
    let mut findings = seen["findings"].as_array().unwrap().iter();
    let found = findings
        .find(|one| one["id"] == "FP-25")
        .unwrap()
        .to_string();
    for words in [
        "critical",
        "systemd refuses var-log.mount",
        "local-fs.target requires var-log.mount: the next boot ends in emergency mode",
        "disable -- var-log.mount",
    ] {
        assert!(found.contains(words), "{found}");
    }
}

#[test]
fn a_drop_in_that_spoils_a_unit_of_the_vendor_is_named() {
    let root = TestRoot::new();
    root.write(
        "usr/lib/systemd/system/v.service",
        &format!("[Service]\n{TRUE}"),
    );
    let dropin = |text: &str| {
        let dropins = json!([{"name": "10.conf", "contents": text}]);
        units(
            "rendered-worker-a",
            json!([{"name": "v.service", "dropins": dropins}]),
        )
    };
    let twice = dropin("[Service]\nExecStart=/usr/bin/other\n");
    let words = "systemd refuses v.service: it has more than one ExecStart=";
    let said = plan(&root, &twice, "notices");
    assert!(said.contains(words), "{said}");
    let said = plan(
        &root,
        &dropin("[Service]\nExecStart=\nExecStart=/usr/bin/other\n"),
        "notices",
    );
    assert!(!said.contains("systemd refuses"), "{said}");
    root.apply(&twice);
    let seen = flat_run(&root.run(&["doctor"]));
    assert!(seen.contains("systemd refuses v.service"), "{seen}");
    // One of all units whose names begin alike, and one of the type.
    for directory in ["v-.service.d", "service.d"] {
        let root = TestRoot::new();
        let unit = json!([{"name": "v-x.service", "contents": format!("[Service]\n{TRUE}")}]);
        let config = units("rendered-worker-a", unit);
        assert!(!plan(&root, &config, "notices").contains("systemd refuses"));
        root.write(
            &format!("usr/lib/systemd/system/{directory}/1.conf"),
            "[Service]\nExecStart=\n",
        );
        let said = plan(&root, &config, "notices");
        assert!(
            said.contains("systemd refuses v-x.service: it has no ExecStart="),
            "{directory}: {said}"
        );
    }
}

#[test]
fn a_mount_point_behind_a_link_is_refused_with_the_name_that_works() {
    let text = |place: &str| {
        format!(
            "[Mount]\nWhat=/dev/disk/by-label/x\nWhere={place}\n[Install]\nRequiredBy=local-fs.target\n"
        )
    };
    let unit =
        |name: &str, place: &str| json!({"name": name, "enabled": true, "contents": text(place)});
    let root = TestRoot::new();
    root.link("srv", "var/srv");
    let behind = units(
        "rendered-worker-a",
        json!([unit("srv-db.mount", "/srv/db")]),
    );
    let said = plan(&root, &behind, "blockers");
    for words in [
        "systemd refuses srv-db.mount: /srv/db leads through a link to /var/srv/db",
        "name it var-srv-db.mount, with Where=/var/srv/db",
        "the next boot ends in emergency mode",
    ] {
        assert!(said.contains(words), "{said}");
    }
    // A directory that is missing is made by the mount.
    for (name, place) in [("var-srv-db.mount", "/var/srv/db"), ("data.mount", "/data")] {
        let straight = units("rendered-worker-a", json!([unit(name, place)]));
        let said = plan(&root, &straight, "blockers") + &plan(&root, &straight, "notices");
        assert!(!said.contains("systemd refuses"), "{said}");
    }
    // One that came without a run is found afterwards.
    root.write("etc/systemd/system/srv-db.mount", &text("/srv/db"));
    let seen = flat_run(&root.run(&["doctor"]));
    assert!(seen.contains("name it var-srv-db.mount"), "{seen}");
}

/// Units of the OS, as far as others may require them.
fn with_units_of_the_os(root: &TestRoot) {
    for unit in ["basic.target", "network.target", "b.socket", "c@.service"] {
        root.write(&format!("usr/lib/systemd/system/{unit}"), "[Unit]\n");
    }
}

#[test]
fn a_unit_that_needs_one_that_does_not_exist_is_named_before_and_after() {
    let systemd = Systemd::find();
    let rows = [
        ("Requires=gone.service", Some("gone.service (Requires=)")),
        (
            "BindsTo=b.socket gone.target",
            Some("gone.target (BindsTo=)"),
        ),
        (
            "Requires=b.socket\nRequires=gone.timer",
            Some("gone.timer (Requires=)"),
        ),
        // systemd ignores a name in quotes.
        ("Requires=\"gone.timer\"", None),
        ("Wants=gone.service\nAfter=gone.service", None),
        ("Requires=b.socket c@x.service network.target", None),
        ("Requires=dev-sdb1.device -.mount system.slice", None),
    ];
    for (line, named) in rows {
        let text = format!(
            "[Unit]\n{line}\n[Service]\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n"
        );
        if let Some(systemd) = &systemd {
            for unit in ["b.socket", "c@.service"] {
                let own = match unit {
                    "b.socket" => "[Socket]\nListenStream=/run/b\nService=c@x.service\n",
                    _ => "[Service]\nExecStart=/usr/bin/true\n",
                };
                systemd.write(&format!("usr/lib/systemd/system/{unit}"), own);
            }
            let (refused, said) = systemd.cannot_start("a.service", &text);
            assert_eq!(refused, named.is_some(), "{line}: {said}");
        }
        let root = TestRoot::new();
        with_units_of_the_os(&root);
        let unit = json!([{"name": "a.service", "enabled": true, "contents": text}]);
        let config = units("rendered-worker-a", unit);
        assert_eq!(plan(&root, &config, "blockers"), "", "{line}");
        let said = plan(&root, &config, "notices");
        root.apply(&config);
        let seen = flat_run(&root.run(&["doctor"]));
        match named {
            Some(named) => {
                let words = format!("it needs {named}, and there is no such unit");
                assert!(
                    said.contains(&format!("systemd refuses a.service: {words}")),
                    "{said}"
                );
                assert!(seen.contains("systemd refuses a.service"), "{seen}");
            }
            None => assert!(!(said + &seen).contains("systemd refuses"), "{line}"),
        }
    }
}

#[test]
fn a_unit_that_a_generator_may_make_is_not_called_missing() {
    let text = "[Unit]\nRequires=web.service\n[Service]\nExecStart=/usr/bin/true\n";
    let unit = json!([{"name": "a.service", "enabled": false, "contents": text}]);
    let mut config = units("rendered-worker-a", unit);
    let root = TestRoot::new();
    with_units_of_the_os(&root);
    assert!(plan(&root, &config, "notices").contains("it needs web.service"));
    // The quadlet comes with the same config, or is there already.
    let quadlet = crate::support::file(
        "/etc/containers/systemd/web.container",
        0o644,
        "[Container]\n",
    );
    config["spec"]["config"]["storage"] = json!({"files": [quadlet]});
    assert!(!plan(&root, &config, "notices").contains("it needs"));
    root.apply(&config);
    assert!(!flat_run(&root.run(&["doctor"])).contains("systemd refuses"));
}

#[test]
fn a_mount_point_that_an_ostree_root_lacks_is_named() {
    let unit = |name: &str, place: &str| {
        let text = format!(
            "[Mount]\nWhat=/dev/disk/by-label/x\nWhere={place}\n[Install]\nRequiredBy=local-fs.target\n"
        );
        units(
            "rendered-worker-a",
            json!([{"name": name, "enabled": true, "contents": text}]),
        )
    };
    let root = TestRoot::new();
    fs::create_dir_all(root.path("usr/etc")).unwrap();
    root.link("srv", "var/srv");
    fs::create_dir(root.path("there")).unwrap();
    let data = unit("data-db.mount", "/data/db");
    // Another image may have the directory, so it blocks nothing.
    assert_eq!(plan(&root, &data, "blockers"), "");
    let said = plan(&root, &data, "notices");
    for words in [
        "systemd refuses data-db.mount: /data is missing",
        "name it var-data-db.mount, with Where=/var/data/db",
        "the next boot ends in emergency mode",
    ] {
        assert!(said.contains(words), "{said}");
    }
    for (name, place) in [
        ("var-lib-db.mount", "/var/lib/db"),
        ("etc-db.mount", "/etc/db"),
        ("there-db.mount", "/there/db"),
    ] {
        let said = plan(&root, &unit(name, place), "notices");
        assert!(!said.contains("systemd refuses"), "{place}: {said}");
    }
    root.write(
        "usr/lib/ostree/prepare-root.conf",
        "[root]\ntransient = true\n",
    );
    assert!(!plan(&root, &data, "notices").contains("systemd refuses"));
    root.remove("usr/lib/ostree/prepare-root.conf");
    root.apply(&data);
    let seen = flat_run(&root.run(&["doctor"]));
    assert!(seen.contains("systemd refuses data-db.mount"), "{seen}");
}
