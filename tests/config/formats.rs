//! Proves that every form in which a MachineConfig comes is read as it was meant: YAML and JSON as `oc`
//! prints them, lists, the daemon's own record, Ignition 3.0 to 3.6, every form of contents. What is on
//! disk afterwards is compared with tables written by hand, not with what the program says of itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::support::{self, Run, TestRoot, machine_config};
use serde_json::{Value, json};

/// As long as a real one, and without a digest that could be wrong.
const NAME: &str = "rendered-worker-5f0c2d7e8a914b3c6d1e0f9a8b7c6d5x";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEXAMPLEexampleEXAMPLEexampleEXAMPLEexample0 ops@registry.example\n";
const CHRONY: (&str, u32, &[u8]) = ("etc/chrony.conf", 0o644, b"pool ntp.example iburst\n");

/// What a fixture leads to: regular files, links, and paths at which nothing may be.
struct Expected {
    files: &'static [(&'static str, u32, &'static [u8])],
    links: &'static [(&'static str, &'static str)],
    absent: &'static [&'static str],
    /// Subject and beginning of every notice about the document.
    notices: &'static [(&'static str, &'static str)],
}

const NOTHING: Expected = Expected {
    files: &[],
    links: &[],
    absent: &[],
    notices: &[],
};

/// The five forms of one config.
const RENDERED: Expected = Expected {
    files: &[
        (
            "etc/chrony.conf",
            0o644,
            b"pool ntp.example iburst\ndriftfile /var/lib/chrony/drift\n",
        ),
        (
            "var/lib/kubelet/config.json",
            0o600,
            b"{\"auths\":{\"registry.example\":{\"auth\":\"b3BzOmV4YW1wbGU=\"}}}\n",
        ),
        (
            "usr/local/bin/configure-agent.sh",
            0o755,
            b"#!/bin/bash\nexec /usr/bin/true \"$@\"\n",
        ),
        ("etc/agent/enabled", 0o644, b""),
        (
            "etc/systemd/system/agent.service",
            0o644,
            b"[Unit]\nDescription=Keeps the agent's socket <open> & ready\nAfter=network-online.target\n\n\
              [Service]\nType=oneshot\nExecStart=/usr/bin/true\nRemainAfterExit=yes\n\n\
              [Install]\nWantedBy=multi-user.target\n",
        ),
        (
            "etc/systemd/system/crio.service.d/10-mco-default-env.conf",
            0o644,
            b"[Service]\nEnvironment=\"GOGC=50\" 'A=\\\\x'\n",
        ),
        (
            "home/core/.ssh/authorized_keys.d/ignition",
            0o600,
            KEY.as_bytes(),
        ),
    ],
    links: &[
        (
            "etc/systemd/system/multi-user.target.wants/agent.service",
            "/etc/systemd/system/agent.service",
        ),
        ("etc/systemd/system/rpcbind.socket", "/dev/null"),
    ],
    absent: &["etc/systemd/system/crio.service.d/20-empty.conf"],
    notices: &[],
};

const ONE_FILE: Expected = Expected {
    files: &[CHRONY],
    ..NOTHING
};

const ACCEPTED: &[(&str, Expected)] = &[
    ("rendered.yaml", RENDERED),
    ("rendered.json", RENDERED),
    ("list.yaml", RENDERED),
    ("list.json", RENDERED),
    ("currentconfig.json", RENDERED),
    ("version-3.0.yaml", ONE_FILE),
    ("version-3.1.yaml", ONE_FILE),
    ("version-3.2.yaml", ONE_FILE),
    ("version-3.3.yaml", ONE_FILE),
    ("version-3.4.yaml", ONE_FILE),
    ("version-3.5.yaml", ONE_FILE),
    (
        "version-3.6.yaml",
        Expected {
            notices: &[(
                "spec.config.ignition.version",
                "spec 3.6 is newer than what the Machine Config Daemon accepts (3.5); it would refuse",
            )],
            ..ONE_FILE
        },
    ),
    ("directives.yaml", ONE_FILE),
    ("crlf.yaml", ONE_FILE),
    ("byte-order-mark.yaml", ONE_FILE),
    ("kernel-types.yaml", ONE_FILE),
    ("no-config.json", NOTHING),
    ("null-sections.json", NOTHING),
    (
        "nulls.json",
        Expected {
            files: &[
                ("etc/null-contents", 0o644, b""),
                ("etc/null-fields", 0o644, b"x"),
                ("etc/null-hash", 0o644, b""),
                (
                    "home/core/.ssh/authorized_keys.d/ignition",
                    0o600,
                    KEY.as_bytes(),
                ),
            ],
            absent: &[
                "etc/systemd/system/null.service",
                "etc/systemd/system/agent.service.d/10-null.conf",
            ],
            ..NOTHING
        },
    ),
    (
        "unknown-keys.yaml",
        Expected {
            files: &[("etc/chrony.conf", 0o644, b"x")],
            notices: &[
                ("spec.pool", "unknown key"),
                ("spec.config.storage.files[0].filesystem", "unknown key"),
                ("spec.config.storage.files[0].overwite", "unknown key"),
                ("spec.config.systemd.units[0].enable", "unknown key"),
            ],
            ..NOTHING
        },
    ),
    (
        "newer-fields.yaml",
        Expected {
            files: &[
                ("etc/chrony.conf", 0o644, b"x"),
                (
                    "home/core/.ssh/authorized_keys.d/ignition",
                    0o600,
                    KEY.as_bytes(),
                ),
            ],
            notices: &[
                ("spec.config.ignition.proxy", "came with spec 3.1"),
                ("spec.config.kernelArguments", "came with spec 3.3"),
                (
                    "spec.config.passwd.users[0].shouldExist",
                    "came with spec 3.2",
                ),
                (
                    "spec.config.storage.files[0].contents.httpHeaders",
                    "came with spec 3.1",
                ),
                ("spec.config.storage.luks", "came with spec 3.2"),
            ],
            ..NOTHING
        },
    ),
    (
        "octal-mode.yaml",
        Expected {
            files: &[
                ("etc/modes/decimal", 0o644, b"decimal"),
                ("etc/modes/octal", 0o644, b"octal"),
                ("etc/modes/private", 0o600, b"private"),
                ("etc/modes/program", 0o755, b"program"),
                ("etc/modes/hex", 0o755, b"hex"),
                ("etc/modes/none", 0o000, b"none"),
                ("etc/modes/absent", 0o644, b"absent"),
            ],
            ..NOTHING
        },
    ),
    (
        "data-urls.yaml",
        Expected {
            files: &[
                ("etc/urls/plain", 0o644, b"a"),
                ("etc/urls/empty", 0o644, b""),
                ("etc/urls/empty-media", 0o644, b""),
                ("etc/urls/empty-base64", 0o644, b""),
                ("etc/urls/percent", 0o644, b"a b"),
                ("etc/urls/plus", 0o644, b"a+b"),
                ("etc/urls/bytes", 0o644, b"\x00\xff\x1b"),
                ("etc/urls/literal", 0o644, b"a?b,;:@&=$!*'()~/"),
                ("etc/urls/base64", 0o644, b"a"),
                ("etc/urls/trailing-bits", 0o644, b"a"),
                ("etc/urls/charset", 0o644, b"x"),
                ("etc/urls/quoted", 0o644, b"x"),
                ("etc/urls/media", 0o644, b"\x00\x01\x02\x03\x04\x05\xff"),
                ("etc/urls/private-media", 0o644, b"x"),
                ("etc/urls/lower-hex", 0o644, "é".as_bytes()),
            ],
            ..NOTHING
        },
    ),
    (
        "gzip.yaml",
        Expected {
            files: &[
                (
                    "etc/gzip/base64",
                    0o644,
                    b"packed\npacked\npacked\npacked\npacked\npacked\npacked\npacked\n\
                      packed\npacked\npacked\npacked\npacked\npacked\npacked\npacked\n\
                      packed\npacked\npacked\npacked\npacked\npacked\npacked\npacked\n\
                      packed\npacked\npacked\npacked\npacked\npacked\npacked\npacked\n\
                      packed\npacked\npacked\npacked\npacked\npacked\npacked\npacked\n",
                ),
                ("etc/gzip/members", 0o644, b"first\nsecond\n"),
                ("etc/gzip/percent", 0o644, b"percent\n"),
                ("etc/gzip/nothing", 0o644, b""),
                ("etc/gzip/no-source", 0o644, b""),
            ],
            ..NOTHING
        },
    ),
    (
        "empty-contents.yaml",
        Expected {
            files: &[
                ("etc/empty/absent", 0o644, b""),
                ("etc/empty/object", 0o644, b""),
                ("etc/empty/null", 0o644, b""),
                ("etc/empty/null-source", 0o644, b""),
                ("etc/empty/source", 0o644, b""),
                ("etc/empty/data", 0o644, b""),
            ],
            absent: &[
                "etc/systemd/system/empty.service",
                "etc/systemd/system/crio.service.d/10-empty.conf",
                "etc/systemd/system/crio.service.d/20-absent.conf",
            ],
            ..NOTHING
        },
    ),
    (
        "scalars.yaml",
        Expected {
            files: &[
                ("etc/scalars/flow", 0o644, b"it's"),
                ("etc/scalars/tagged", 0o644, b"tagged"),
                ("etc/scalars/folded", 0o644, b"folded"),
                (
                    "etc/systemd/system/quoted.service",
                    0o644,
                    b"[Unit]\nDescription=yes\n",
                ),
                ("etc/systemd/system/folded.service", 0o644, b"[Unit]\n"),
                (
                    "etc/systemd/system/stripped.service",
                    0o644,
                    b"[Unit]\nDescription=no line end",
                ),
                ("etc/systemd/system/kept.service", 0o644, b"[Unit]\n\n"),
            ],
            ..NOTHING
        },
    ),
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machine-configs/accepted")
}

fn path_of(fixture: &str) -> String {
    folder().join(fixture).to_str().unwrap().to_owned()
}

fn fixture(name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder().join(name)).unwrap()).unwrap()
}

/// Subjects and messages of a list of notices, without those about the node, and those of units that systemd will refuse.
fn about_the_document(plan: &Value) -> Vec<(String, String)> {
    let notices = plan["notices"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    notices
        .map(|notice| (text(&notice["subject"]), text(&notice["message"])))
        .filter(|(subject, _)| subject.starts_with("spec.") || subject.starts_with("items"))
        .filter(|(_, message)| !message.starts_with("systemd refuses "))
        .collect()
}

#[test]
fn every_accepted_fixture_is_in_the_table() {
    let on_disk: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let in_table: BTreeSet<String> = ACCEPTED
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(on_disk, in_table);
}

#[test]
fn every_accepted_form_is_applied_byte_for_byte_and_verifies_clean() {
    for (name, expected) in ACCEPTED {
        let root = TestRoot::new();
        root.run(&["apply", "--yes", &path_of(name)]).ok();
        for (path, mode, bytes) in expected.files {
            let place = root.path(path);
            let meta =
                fs::symlink_metadata(&place).unwrap_or_else(|e| panic!("{name}: {path}: {e}"));
            assert!(meta.is_file(), "{name}: {path} is not a regular file");
            assert_eq!(root.mode(path), *mode, "{name}: mode of {path}");
            assert_eq!(fs::read(&place).unwrap(), *bytes, "{name}: bytes of {path}");
        }
        for (path, target) in expected.links {
            assert_eq!(
                root.target(path).as_deref(),
                Some(*target),
                "{name}: {path}"
            );
        }
        for path in expected.absent {
            assert!(!root.exists(path), "{name}: {path} is there");
        }
        let run = root.run(&["--output", "json", "verify", &path_of(name)]);
        let verified = run.json();
        // The daemon does not support each of them.
        let is_supported = verified["verdict"] == json!(null);
        assert_eq!(is_supported, *name != "version-3.6.yaml", "{name}");
        run.exits(if is_supported { 0 } else { 3 });
        assert_eq!(verified["clean"], true, "{name}");
        assert_eq!(verified["drifts"], json!([]), "{name}");
    }
}

#[test]
fn nothing_but_the_files_of_a_config_and_records_appears() {
    let root = TestRoot::new();
    let before = root.snapshot();
    root.run(&["apply", "--yes", &path_of("rendered.yaml")])
        .ok();
    let allowed = |path: &str| {
        let ours = RENDERED.files.iter().map(|(file, ..)| *file);
        let links = RENDERED.links.iter().map(|(link, _)| *link);
        let records = path.starts_with("etc/machine-config-daemon");
        records
            || ours
                .chain(links)
                .any(|known| known == path || known.starts_with(&format!("{path}/")))
    };
    let after = root.snapshot();
    let strange: Vec<&String> = after
        .keys()
        .filter(|path| !before.contains_key(*path) && !allowed(path))
        .collect();
    assert_eq!(strange, Vec::<&String>::new());
    let changed: Vec<&String> = before
        .iter()
        .filter(|(path, entry)| after.get(*path) != Some(entry))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(changed, Vec::<&String>::new());
}

#[test]
fn warnings_name_the_path_and_there_are_no_others() {
    for (name, expected) in ACCEPTED {
        let root = TestRoot::new();
        let plan = root
            .run(&["--output", "json", "plan", &path_of(name)])
            .ok()
            .json();
        let found = about_the_document(&plan);
        let fits = |(said, wanted): (&(String, String), &(&str, &str))| {
            said.0 == wanted.0 && said.1.starts_with(wanted.1)
        };
        assert!(
            found.len() == expected.notices.len() && found.iter().zip(expected.notices).all(fits),
            "{name}: {found:?}"
        );
    }
}

#[test]
fn json_is_recorded_as_it_was_received() {
    for name in ["rendered.json", "currentconfig.json", "nulls.json"] {
        let root = TestRoot::new();
        root.run(&["apply", "--yes", &path_of(name)]).ok();
        let received = fs::read_to_string(folder().join(name)).unwrap();
        let recorded = root.read("etc/machine-config-daemon/currentconfig");
        assert_eq!(recorded, received.trim(), "{name}");
    }
}

#[test]
fn yaml_and_lists_are_recorded_as_the_object_that_json_has() {
    let wanted = fixture("rendered.json");
    assert_eq!(fixture("list.json")["items"][0], wanted);
    for name in ["rendered.yaml", "list.yaml", "list.json"] {
        let root = TestRoot::new();
        root.run(&["apply", "--yes", &path_of(name)]).ok();
        let recorded = root.read("etc/machine-config-daemon/currentconfig");
        assert_eq!(
            serde_json::from_str::<Value>(&recorded).unwrap(),
            wanted,
            "{name}"
        );
    }
}

#[test]
fn the_forms_of_one_config_lead_to_the_same_tree() {
    let tree = |name: &str| {
        let root = TestRoot::new();
        root.run(&["apply", "--yes", &path_of(name)]).ok();
        let mut tree = root.snapshot();
        tree.remove("etc/machine-config-daemon/currentconfig");
        tree
    };
    let wanted = tree("rendered.json");
    for name in [
        "rendered.yaml",
        "list.yaml",
        "list.json",
        "currentconfig.json",
    ] {
        assert_eq!(tree(name), wanted, "{name}");
    }
}

#[test]
fn a_twin_in_the_other_format_needs_nothing_but_the_record() {
    let root = TestRoot::new();
    root.run(&["apply", "--yes", &path_of("rendered.json")])
        .ok();
    let plan = root
        .run(&["--output", "json", "plan", &path_of("rendered.yaml")])
        .ok()
        .json();
    let paths: Vec<&str> = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["/etc/machine-config-daemon/currentconfig"]);
    root.run(&["verify", &path_of("list.yaml")]).ok();
}

#[test]
fn names_pools_and_os_parts_are_read_alike_from_every_form() {
    for name in [
        "rendered.yaml",
        "rendered.json",
        "list.yaml",
        "list.json",
        "currentconfig.json",
    ] {
        let shown = TestRoot::new()
            .run(&["--output", "json", "show", &path_of(name)])
            .ok()
            .json();
        // The daemon's own record names no owner.
        let pool = if name == "currentconfig.json" {
            Value::Null
        } else {
            json!("worker")
        };
        assert_eq!(shown["name"], NAME, "{name}");
        assert_eq!(shown["pool"], pool, "{name}");
        assert_eq!(
            shown["os_image_url"], "registry.example/os@sha256:0",
            "{name}"
        );
        assert_eq!(
            shown["kernel_arguments"],
            json!(["nosmt audit=1"]),
            "{name}"
        );
        assert_eq!(shown["kernel_type"], "default", "{name}");
    }
    let shown = TestRoot::new()
        .run(&["--output", "json", "show", &path_of("kernel-types.yaml")])
        .ok()
        .json();
    assert_eq!(shown["kernel_type"], "64k-pages");
}

/// What becomes of an Ignition config inside a MachineConfig.
enum Verdict {
    /// Planned without a word about the document.
    Accepted,
    /// Planned, and this is said.
    Warned(&'static str),
    /// Refused without `--ignore-unsupported`; this is said.
    Blocked(&'static str),
    /// Refused, with and without `--ignore-unsupported`; this is said.
    Refused(&'static str),
}
use Verdict::{Accepted, Blocked, Refused, Warned};

/// Cases of validity, as upstream decides them: what it is about, the first minor version, the config, the verdict.
const VALIDITY: &[(&str, u64, &str, Verdict)] = &[
    // Sources.
    (
        "http source",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"http://mirror.example/agent.conf"}}]}}"#,
        Refused("remote URL (http"),
    ),
    (
        "data source",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,level%3Dinfo%0A"}}]}}"#,
        Accepted,
    ),
    (
        "unknown scheme",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"carrier-pigeon://loft"}}]}}"#,
        Refused("storage.files[0].contents.source"),
    ),
    (
        "s3 with an empty version",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"s3://configs/agent.conf?versionId="}}]}}"#,
        Refused("storage.files[0].contents.source"),
    ),
    (
        "s3 arn without a key",
        4,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"arn:aws:s3:::configs"}}]}}"#,
        Refused("storage.files[0].contents.source"),
    ),
    (
        "s3 arn",
        4,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"arn:aws:s3:::configs/agent.conf"}}]}}"#,
        Refused("remote URL (arn"),
    ),
    (
        "gs source",
        2,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"gs://configs/agent.conf"}}]}}"#,
        Refused("remote URL (gs"),
    ),
    // Paths.
    (
        "directory with blanks",
        0,
        r#"{"storage":{"directories":[{"path":"/opt/name with blanks"}]}}"#,
        Accepted,
    ),
    (
        "file with blanks",
        0,
        r#"{"storage":{"files":[{"path":"/opt/name with blanks"}]}}"#,
        Accepted,
    ),
    (
        "relative path",
        0,
        r#"{"storage":{"directories":[{"path":"opt/agent"}]}}"#,
        Refused("is not an absolute path"),
    ),
    (
        "slash at the end",
        0,
        r#"{"storage":{"directories":[{"path":"/opt/agent/"}]}}"#,
        Refused("is not a clean path"),
    ),
    (
        "climbing path",
        0,
        r#"{"storage":{"directories":[{"path":"/opt/../agent"}]}}"#,
        Refused("is not a clean path"),
    ),
    (
        "relative path of a link",
        0,
        r#"{"storage":{"links":[{"path":"opt/agent","target":"/x"}]}}"#,
        Refused("is not an absolute path"),
    ),
    // Modes.
    (
        "mode null",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","mode":null}]}}"#,
        Accepted,
    ),
    (
        "mode 0777",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","mode":511}]}}"#,
        Accepted,
    ),
    (
        "mode 07777",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","mode":4095}]}}"#,
        Refused("cannot exceed 0777"),
    ),
    (
        "mode 010000",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","mode":4096}]}}"#,
        Refused("illegal file mode"),
    ),
    (
        "mode below zero",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","mode":-1}]}}"#,
        Refused("illegal file mode"),
    ),
    (
        "directory of mode 01777",
        0,
        r#"{"storage":{"directories":[{"path":"/etc/agent.conf","mode":1023}]}}"#,
        Warned("has special bits"),
    ),
    // Hashes.
    (
        "sha512",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","verification":{"hash":"sha512-a4abd4448c49562d828115d13a1fccea927f52b4d5459297f8b43e42da89238bc13626e43dcb38ddb082488927ec904fb42057443983e88585179d50551afe62"}}}]}}"#,
        Accepted,
    ),
    (
        "sha256",
        1,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","verification":{"hash":"sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}}}]}}"#,
        Accepted,
    ),
    (
        "hash with a colon",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","verification":{"hash":"sha512:89abcdef"}}}]}}"#,
        Refused("is not of the form `sha512-HEX`"),
    ),
    (
        "hash too short",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","verification":{"hash":"sha512-89a"}}}]}}"#,
        Refused("hexadecimal digits"),
    ),
    (
        "empty hash",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","verification":{"hash":""}}}]}}"#,
        Refused("is not of the form `sha512-HEX`"),
    ),
    (
        "hash without source",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"verification":{"hash":"sha512-00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"}}}]}}"#,
        Refused("there is no source to be verified"),
    ),
    // Overwriting and compression.
    (
        "overwrite without source",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","overwrite":true}]}}"#,
        Refused("overwrite is true but there is no contents.source"),
    ),
    (
        "overwrite with an empty source",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","overwrite":true,"contents":{"source":""}}]}}"#,
        // Ignition takes it; the daemon cannot write it.
        Blocked("could not decode file"),
    ),
    (
        "directory to be overwritten",
        0,
        r#"{"storage":{"directories":[{"path":"/etc/agent.conf","overwrite":true}]}}"#,
        Accepted,
    ),
    (
        "compression bzip2",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","compression":"bzip2"}}]}}"#,
        Refused("unsupported compression type"),
    ),
    (
        "compression empty",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","compression":""}}]}}"#,
        Accepted,
    ),
    (
        "gzip of no bytes at all",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,","compression":"gzip"}}]}}"#,
        Refused("gzip"),
    ),
    // Owners.
    (
        "group by id and name",
        0,
        r#"{"storage":{"directories":[{"path":"/etc/agent.conf","group":{"id":1000,"name":"core"}}]}}"#,
        Refused("has both id and name"),
    ),
    (
        "user by id and empty name",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf","user":{"id":0,"name":""}}]}}"#,
        Accepted,
    ),
    // Entries that meet each other.
    (
        "directory below a link",
        0,
        r#"{"storage":{"links":[{"path":"/opt/agent","target":"/var/opt/agent"}],"directories":[{"path":"/opt/agent/etc"}]}}"#,
        Refused("lies below the link"),
    ),
    (
        "file below a hard link",
        0,
        r#"{"storage":{"links":[{"path":"/opt/agent","target":"/var/opt/agent","hard":true}],"files":[{"path":"/opt/agent/etc"}]}}"#,
        Refused("lies below the link"),
    ),
    (
        "sibling with a common prefix",
        0,
        r#"{"storage":{"links":[{"path":"/opt/agent","target":"/var/opt/agent"},{"path":"/opt/agents/one","target":"/var/one"}]}}"#,
        Accepted,
    ),
    (
        "link without a target",
        3,
        r#"{"storage":{"links":[{"path":"/opt/agent"}]}}"#,
        Refused("a link needs a target"),
    ),
    (
        "hard link to a directory",
        0,
        r#"{"storage":{"links":[{"path":"/opt/second","target":"/opt/agent/etc","hard":true}],"directories":[{"path":"/opt/agent/etc"}]}}"#,
        Refused("a hard link cannot lead to a directory"),
    ),
    (
        "file and directory at one path",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf"}],"directories":[{"path":"/etc/agent.conf"}]}}"#,
        Refused("is already at"),
    ),
    (
        "file and link at one path",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf"}],"links":[{"path":"/etc/agent.conf","target":"/b"}]}}"#,
        Refused("is already at"),
    ),
    (
        "one file twice",
        0,
        r#"{"storage":{"files":[{"path":"/etc/agent.conf"},{"path":"/etc/agent.conf"}]}}"#,
        Refused("is already at"),
    ),
    (
        "file at a drop-in's path",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","dropins":[{"name":"10-env.conf","contents":"[Unit]\nDescription=Agent"}]}]},"storage":{"files":[{"path":"/etc/systemd/system/agent.service.d/10-env.conf"}]}}"#,
        Refused("is also written as drop-in"),
    ),
    (
        "file at an empty drop-in's path",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","dropins":[{"name":"10-env.conf","contents":""}]}]},"storage":{"files":[{"path":"/etc/systemd/system/agent.service.d/10-env.conf"}]}}"#,
        Accepted,
    ),
    (
        "directory at a unit's path",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","enabled":true,"contents":"[Unit]\nDescription=Agent"}]},"storage":{"directories":[{"path":"/etc/systemd/system/agent.service"}]}}"#,
        Refused("is also written as unit"),
    ),
    (
        "link at a drop-in's path",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","dropins":[{"name":"10-env.conf","contents":"[Unit]\nDescription=Agent"}]}]},"storage":{"links":[{"path":"/etc/systemd/system/agent.service.d/10-env.conf","target":"/opt/env.conf"}]}}"#,
        Refused("is also written as drop-in"),
    ),
    // Units.
    (
        "section without end in a unit",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","contents":"[Unit"}]}}"#,
        Refused("unable to find end of section"),
    ),
    (
        "section without end in a drop-in",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","dropins":[{"name":"10-env.conf","contents":"[Unit"}]}]}}"#,
        Refused("unable to find end of section"),
    ),
    (
        "unit suffix",
        0,
        r#"{"systemd":{"units":[{"name":"agent.unit"}]}}"#,
        Refused("has no known unit suffix"),
    ),
    (
        "drop-in suffix",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","dropins":[{"name":"10-env.txt"}]}]}}"#,
        Refused("does not end in .conf"),
    ),
    (
        "enabled without [Install]",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","enabled":true,"contents":"[Unit]\nDescription=Agent"}]}}"#,
        Warned("no [Install] section"),
    ),
    (
        "enabled with an empty [Install]",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","enabled":true,"contents":"[Unit]\nDescription=Agent\n[Install]\n"}]}}"#,
        Warned("no [Install] section"),
    ),
    (
        "enabled without contents",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","enabled":true}]}}"#,
        Warned("has no file on this node"),
    ),
    (
        "disabled instance of a template",
        0,
        r#"{"systemd":{"units":[{"name":"agent@.service","contents":"[Unit]\nDescription=Agent"},{"name":"agent@one.service","enabled":false}]}}"#,
        Accepted,
    ),
    (
        "one unit twice",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service"},{"name":"agent.service"}]}}"#,
        Refused("is already at"),
    ),
    (
        "one drop-in twice",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","dropins":[{"name":"10-env.conf"},{"name":"10-env.conf"}]}]}}"#,
        Refused("is already at"),
    ),
    (
        "drop-ins of one name in two units",
        0,
        r#"{"systemd":{"units":[{"name":"agent.service","dropins":[{"name":"10-env.conf","contents":"[Unit]"}]},{"name":"crio.service","dropins":[{"name":"10-env.conf","contents":"[Unit]"}]}]}}"#,
        Accepted,
    ),
    // The rest.
    (
        "argument in both lists",
        3,
        r#"{"kernelArguments":{"shouldExist":["nosmt","quiet"],"shouldNotExist":["rhgb","nosmt"]}}"#,
        Refused("kernelArguments.shouldNotExist[1]"),
    ),
    (
        "key twice",
        0,
        r#"{"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA a@b","ssh-ed25519 AAAA a@b"]}]}}"#,
        Refused("is already at"),
    ),
    (
        "merge entry without source",
        1,
        r#"{"ignition":{"version":"$version","config":{"merge":[{}]}}}"#,
        Refused("ignition.config.merge"),
    ),
    (
        "empty replace object",
        0,
        r#"{"ignition":{"version":"$version","config":{"replace":{}}}}"#,
        Accepted,
    ),
    (
        "nothing but a version",
        0,
        // Valid, but it is what the encapsulated object of a first boot holds.
        r#"{"ignition":{"version":"$version"}}"#,
        Refused("is the encapsulated config of a first boot"),
    ),
];

/// A case as a MachineConfig of this minor version.
fn case(ignition: &str, minor: u64) -> Value {
    let version = format!("3.{minor}.0");
    let mut config: Value = serde_json::from_str(&ignition.replace("$version", &version)).unwrap();
    config["ignition"]["version"] = json!(version);
    machine_config(NAME, config)
}

/// Exit code and everything that is said about the document, by itself and when parts may be passed over.
fn judge(root: &TestRoot, config: &Value) -> (i32, String, i32) {
    let file = root.config(config);
    let strict = root.run(&["--output", "json", "plan", file.path()]);
    let lenient = root.run(&["plan", "--ignore-unsupported", file.path()]);
    (strict.code(), said(&strict), lenient.code())
}

fn said(run: &Run) -> String {
    let Ok(plan) = serde_json::from_str::<Value>(&run.out()) else {
        return run.err();
    };
    let blockers = plan["blockers"].as_array().unwrap().iter();
    let blockers = blockers.map(|b| format!("{}: {}\n", b["subject"], b["message"]));
    let warnings = about_the_document(&plan).into_iter();
    blockers
        .chain(warnings.map(|(subject, message)| format!("{subject}: {message}\n")))
        .collect()
}

#[test]
fn validity_is_judged_as_upstream_does_in_every_version() {
    let root = TestRoot::new();
    let mut wrong = Vec::new();
    for (about, since, ignition, verdict) in VALIDITY {
        for minor in *since..=5 {
            let (code, said, lenient) = judge(&root, &case(ignition, minor));
            let fits = match verdict {
                Accepted => code == 0 && said.is_empty(),
                Warned(words) => code == 0 && said.contains(words),
                Blocked(words) => code == 1 && lenient == 0 && said.contains(words),
                Refused(words) => code == 1 && lenient == 1 && said.contains(words),
            };
            if !fits {
                wrong.push(format!(
                    "{about}, 3.{minor}: exit {code}, {lenient}: {said}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_never_applied_is_passed_over_when_asked_and_the_rest_is_applied() {
    let root = TestRoot::new();
    let mut config = machine_config(
        NAME,
        json!({"storage": {
            "disks": [{"device": "/dev/vdb"}],
            "files": [support::file("/etc/chrony.conf", 0o644, "pool ntp.example\n")],
        }}),
    );
    config["spec"]["config"]["kernelArguments"] = json!({"shouldExist": ["nosmt"]});
    let file = root.config(&config);
    root.run(&["apply", "--yes", file.path()]).exits(1);
    assert!(!root.exists("etc/chrony.conf"));
    let applied = root
        .run(&["apply", "--yes", "--ignore-unsupported", file.path()])
        .ok();
    assert_eq!(root.read("etc/chrony.conf"), "pool ntp.example\n");
    for passed_over in ["storage.disks", "kernelArguments"] {
        assert!(applied.out().contains(passed_over), "{}", applied.out());
    }
}

#[test]
fn sha256_is_not_a_hash_of_spec_3_0() {
    let config = r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,x","verification":{"hash":"sha256-2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"}}}]}}"#;
    let (code, said, _) = judge(&TestRoot::new(), &case(config, 0));
    assert_eq!((code, said.contains("hash")), (1, true), "{said}");
}

#[test]
fn a_hash_that_the_contents_do_not_have_is_reported() {
    let config = r#"{"storage":{"files":[{"path":"/etc/agent.conf","contents":{"source":"data:,level%3Dinfo","verification":{"hash":"sha512-00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"}}}]}}"#;
    let (_, said, _) = judge(&TestRoot::new(), &case(config, 5));
    assert!(
        said.contains("spec.config.storage.files[0].contents.verification.hash"),
        "neither refused nor warned: {said:?}"
    );
}

#[test]
fn an_enabled_instance_of_a_template_without_install_is_warned_of() {
    let config = r#"{"systemd":{"units":[{"name":"agent@.service","contents":"[Unit]\nDescription=Agent"},{"name":"agent@one.service","enabled":true}]}}"#;
    let (code, said, _) = judge(&TestRoot::new(), &case(config, 5));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("[Install]"), "no warning: {said:?}");
}

#[test]
fn a_proxy_that_is_not_an_http_url_is_refused() {
    let config =
        r#"{"ignition":{"version":"$version","proxy":{"httpProxy":"ftp://proxy.example"}}}"#;
    let (code, said, _) = judge(&TestRoot::new(), &case(config, 5));
    assert_eq!(
        (code, said.contains("ignition.proxy.httpProxy")),
        (1, true),
        "{said}"
    );
}
