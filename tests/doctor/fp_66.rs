//! FP-66: users of the OS are missing, or their files belong to another number.

use std::os::unix::fs::chown;
use std::process::Command;

use super::small::{self, directory};
use super::{Dark, carry_out, doctor, found, of, says};
use crate::support::{Lacks, TestRoot, is_root, skip};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[("FP-66", "users of the OS", |root| {
    directory(root, "etc/nsswitch.conf");
})];

const SYSUSERS: &str = "usr/lib/sysusers.d/openvswitch.conf";

/// A node whose OS asks for the accounts of Open vSwitch, and has them.
fn node() -> TestRoot {
    let root = small::node();
    with_accounts_of_the_os(&root);
    root
}

pub(super) fn with_accounts_of_the_os(root: &TestRoot) {
    root.write(
        SYSUSERS,
        "# Open vSwitch\nu openvswitch - \"Open vSwitch Daemons\" /\ng hugetlbfs -\nm openvswitch hugetlbfs\n",
    );
    root.write(
        "etc/nsswitch.conf",
        "passwd: files altfiles systemd\ngroup: files altfiles systemd\n",
    );
    root.write(
        "usr/lib/passwd",
        "root:x:0:0:root:/root:/bin/bash\nopenvswitch:x:800:801::/:/sbin/nologin\n",
    );
    root.write(
        "usr/lib/group",
        "root:x:0:\nopenvswitch:x:801:\nhugetlbfs:x:802:openvswitch\n",
    );
}

/// Open vSwitch has got other numbers on the node, and its files still have those of the OS.
pub(super) fn with_foreign_state(root: &TestRoot) {
    add(
        root,
        "etc/passwd",
        "openvswitch:x:977:977::/:/sbin/nologin\n",
    );
    add(
        root,
        "etc/group",
        "openvswitch:x:977:\nhugetlbfs:x:978:openvswitch\n",
    );
    root.write("etc/openvswitch/a/b", "1\n");
    root.write("etc/openvswitch/of-root", "1\n");
    root.link("etc/openvswitch/link", "/etc/passwd");
    for path in [
        "etc/openvswitch",
        "etc/openvswitch/a",
        "etc/openvswitch/a/b",
    ] {
        chown(root.path(path), Some(800), Some(802)).unwrap();
    }
}

fn is_healthy(root: &TestRoot) {
    assert_eq!(of(&doctor(root), "FP-66"), Vec::<Value>::new());
}

/// Adds lines to a file.
fn add(root: &TestRoot, path: &str, lines: &str) {
    let text = if root.exists(path) {
        root.read(path)
    } else {
        String::new()
    };
    root.write(path, &(text + lines));
}

/// Runs the commands of the finding, as the person would.
fn carry_out_all(seen: &Value) {
    for number in 0..of(seen, "FP-66")[0]["next"].as_array().unwrap().len() {
        carry_out(seen, "FP-66", number);
    }
}

/// Words of a finding, and what is done to a root for it.
type Scene = (&'static str, fn(&TestRoot));

#[test]
fn a_user_that_a_package_asks_for_is_missed_wherever_it_could_be() {
    let root = node();
    is_healthy(&root);
    // systemd-sysusers made them, and the OS has none.
    root.write("usr/lib/passwd", "root:x:0:0:root:/root:/bin/bash\n");
    root.write("usr/lib/group", "root:x:0:\n");
    let text = found(&doctor(&root), "FP-66", "critical");
    says(
        &text,
        &[
            "the user openvswitch is missing, and 2 more",
            SYSUSERS,
            "no such user",
            "systemd-sysusers --root=",
        ],
    );
    add(
        &root,
        "etc/passwd",
        "openvswitch:x:977:977::/:/sbin/nologin\n",
    );
    add(&root, "etc/group", "openvswitch:x:977:\n");
    says(
        &found(&doctor(&root), "FP-66", "critical"),
        &["the group hugetlbfs is missing"],
    );
    add(&root, "etc/group", "hugetlbfs:x:978:openvswitch\n");
    is_healthy(&root);
    // An account that no service of a node needs.
    root.write("usr/lib/sysusers.d/x.conf", "u! nagios 700 -\n");
    found(&doctor(&root), "FP-66", "notice");
    root.link("etc/sysusers.d/x.conf", "/dev/null");
    is_healthy(&root);
}

#[test]
fn users_of_the_os_are_unknown_where_nothing_looks_them_up() {
    let root = node();
    root.write(
        "etc/nsswitch.conf",
        "passwd: files systemd\ngroup: files systemd\n",
    );
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-66", "critical"),
        &["openvswitch", "does not name altfiles"],
    );
    let command = of(&seen, "FP-66")[0]["next"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        Command::new("sh")
            .args(["-c", &command])
            .status()
            .unwrap()
            .success()
    );
    is_healthy(&root);
}

/// The real program on the root; true if it made all accounts.
fn real_sysusers(root: &TestRoot) -> bool {
    let output = Command::new("systemd-sysusers")
        .arg(format!("--root={}", root.dir().display()))
        .output();
    output.unwrap().status.success()
        && root.read("etc/passwd").contains("openvswitch")
        && root.read("etc/group").contains("hugetlbfs")
}

#[test]
fn what_stops_systemd_sysusers_is_named_and_taken_away() {
    if !is_root()
        || Command::new("systemd-sysusers")
            .arg("--version")
            .output()
            .is_err()
    {
        return skip(
            Lacks::root_or_program("systemd-sysusers"),
            "there is no systemd-sysusers, or no root",
        );
    }
    let without = || {
        let root = node();
        for name in ["passwd", "group"] {
            root.write(&format!("usr/lib/{name}"), "");
        }
        root.write("etc/gshadow", "root:::\n");
        root
    };
    let harmless: [fn(&TestRoot); 5] = [
        |_| {},
        |root| add(root, "etc/shadow", "openvswitch:!!:1::::::\n"),
        |root| add(root, "etc/gshadow", "audio:::\n"),
        |root| add(root, "etc/gshadow", "a:b\n"),
        |root| root.write("usr/lib/sysusers.d/zz.conf", "q what\nu \"open\n"),
    ];
    for change in harmless {
        let root = without();
        change(&root);
        let seen = doctor(&root);
        let text = found(&seen, "FP-66", "critical");
        assert!(text.contains("no such user"), "{text}");
        assert!(real_sysusers(&root), "{text}");
        is_healthy(&root);
    }
    let stopping: [Scene; 4] = [
        (
            "/etc/gshadow: Group \\\"hugetlbfs\\\" already exists.",
            |root| {
                add(root, "etc/gshadow", "hugetlbfs:!::\n");
            },
        ),
        ("Failed to take /etc/passwd lock: Too many levels", |root| {
            root.link("etc/.pwd.lock", "/nowhere");
        }),
        ("Failed to take /etc/passwd lock: Is a directory", |root| {
            std::fs::create_dir(root.path("etc/.pwd.lock")).unwrap();
        }),
        ("Failed to load the database: Is a directory", |root| {
            directory(root, "etc/gshadow");
        }),
    ];
    for (words, change) in stopping {
        let root = without();
        // The run that made the node has left its lock file.
        if root.exists("etc/.pwd.lock") {
            root.remove("etc/.pwd.lock");
        }
        change(&root);
        let seen = doctor(&root);
        says(
            &found(&seen, "FP-66", "critical"),
            &["systemd-sysusers: ", words],
        );
        assert!(!real_sysusers(&root), "{words}");
        carry_out_all(&doctor(&root));
        assert!(real_sysusers(&root), "{words}");
        is_healthy(&root);
    }
}

#[test]
fn state_that_belongs_to_the_number_of_the_os_is_given_back() {
    if !is_root() {
        return skip(Lacks::Root, "giving files away needs root");
    }
    let own = |root: &TestRoot, path: &str, uid: u32, gid: u32| {
        chown(root.path(path), Some(uid), Some(gid)).unwrap();
    };
    let root = node();
    root.write("etc/openvswitch/conf.db", "");
    std::fs::remove_file(root.path("etc/openvswitch/conf.db")).unwrap();
    root.write("etc/openvswitch/system-id.conf", "1\n");
    for path in ["etc/openvswitch", "etc/openvswitch/system-id.conf"] {
        own(&root, path, 800, 802);
    }
    is_healthy(&root);
    add(
        &root,
        "etc/passwd",
        "openvswitch:x:977:977::/:/sbin/nologin\n",
    );
    add(
        &root,
        "etc/group",
        "openvswitch:x:977:\nhugetlbfs:x:978:openvswitch\n",
    );
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-66", "critical"),
        &[
            "/etc/openvswitch does not belong to openvswitch",
            "belongs to 800, which no user has",
            "openvswitch is 977",
            "openvswitch is 800",
            "chown -R 977:978 ",
            "# openvswitch:hugetlbfs",
        ],
    );
    carry_out_all(&seen);
    is_healthy(&root);
    // A file in it alone, and an owner that has a name.
    add(&root, "etc/passwd", "gluster:x:800:800::/:/sbin/nologin\n");
    own(&root, "etc/openvswitch/system-id.conf", 800, 978);
    says(
        &found(&doctor(&root), "FP-66", "critical"),
        &["system-id.conf", "belongs to 800 (gluster)"],
    );
    own(&root, "etc/openvswitch/system-id.conf", 0, 0);
    is_healthy(&root);
    // State of any other user whose number changed.
    add(&root, "usr/lib/passwd", "nfsd:x:810:810::/:/sbin/nologin\n");
    add(&root, "etc/passwd", "nfsd:x:970:970::/:/sbin/nologin\n");
    root.write("var/lib/nfsd/state", "x\n");
    own(&root, "var/lib/nfsd", 810, 810);
    says(
        &found(&doctor(&root), "FP-66", "warning"),
        &["/var/lib/nfsd does not belong to nfsd", "chown -R 970:970 "],
    );
    own(&root, "var/lib/nfsd", 970, 970);
    is_healthy(&root);
}

#[test]
fn lines_that_no_program_reads_are_named() {
    let root = node();
    add(&root, "etc/passwd", "# a comment\n\n+::::::\n");
    is_healthy(&root);
    add(&root, "etc/passwd", "auditor:x:1001:1001:/home/auditor\n");
    add(&root, "etc/group", "auditors:x:none:\r\n");
    let seen = doctor(&root);
    let [bad, returns] = of(&seen, "FP-66").try_into().unwrap();
    says(
        &bad.to_string(),
        &[
            "2 lines of the account files",
            "/etc/passwd:6",
            "another number of fields",
            "not a number",
        ],
    );
    // The real look-up reads such a line, with the carriage return.
    says(
        &returns.to_string(),
        &[
            "a line of the account files ends with a carriage return",
            "part of the shell",
        ],
    );
}

#[test]
fn a_config_that_brings_the_switch_stays_and_lines_are_copied() {
    let root = node();
    let switch = "passwd: files\ngroup: files\n";
    root.write("etc/nsswitch.conf", switch);
    small::recorded(&root, |spec| {
        let files = spec["config"]["storage"]["files"].as_array_mut().unwrap();
        files.push(crate::support::file("/etc/nsswitch.conf", 0o644, switch));
    });
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-66", "critical"),
        &["brings /etc/nsswitch.conf", "has to change"],
    );
    let command = of(&seen, "FP-66")[0]["next"][1]
        .as_str()
        .unwrap()
        .to_owned();
    let copied = super::worker::copy(&root);
    let here = command.replace(root.dir().to_str().unwrap(), copied.dir().to_str().unwrap());
    assert!(
        Command::new("sh")
            .args(["-c", &here])
            .status()
            .unwrap()
            .success()
    );
    assert!(
        copied
            .read("etc/group")
            .ends_with("openvswitch:x:801:\nhugetlbfs:x:802:openvswitch\n")
    );
    root.run(&["doctor", "--fix", "FP-66", "--yes"]).ok();
    assert!(
        root.read("etc/passwd")
            .ends_with("\nopenvswitch:x:800:801::/:/sbin/nologin\n")
    );
    assert_eq!(root.read("etc/group"), copied.read("etc/group"));
    assert_eq!(root.read("etc/nsswitch.conf"), switch);
    is_healthy(&root);
}

#[test]
fn numbers_that_are_taken_and_links_have_no_cure_by_files() {
    let root = node();
    root.write(
        "etc/authselect/nsswitch.conf",
        "passwd: files\ngroup: files\n",
    );
    root.remove("etc/nsswitch.conf");
    root.link("etc/nsswitch.conf", "authselect/nsswitch.conf");
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-66")[0]["fix"], Value::Null, "{seen:#}");
    // The command changes what the link leads to.
    carry_out(&seen, "FP-66", 0);
    assert_eq!(
        root.target("etc/nsswitch.conf").unwrap(),
        "authselect/nsswitch.conf"
    );
    is_healthy(&root);
    let switch = "passwd: files\ngroup: files\n";
    root.write("etc/authselect/nsswitch.conf", switch);
    small::recorded(&root, |spec| {
        let files = spec["config"]["storage"]["files"].as_array_mut().unwrap();
        files.push(crate::support::file("/etc/nsswitch.conf", 0o644, switch));
    });
    add(&root, "etc/passwd", "other:x:800:800::/:/sbin/nologin\n");
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-66")[0]["fix"], Value::Null, "{seen:#}");
}
