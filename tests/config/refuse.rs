//! Proves that what cannot be applied is refused by name: for every fixture in `refused/` both `plan` and
//! `apply --yes` end with 1, say where in the document and what is wrong, and leave the node untouched.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Run, TestRoot, file, flat, machine_config};
use serde_json::{Value, json};

/// A fixture, and for every error in it the JSON path or line, and a piece of the message.
type Case = (&'static str, &'static [(&'static str, &'static str)]);

/// The document around the config.
const ENVELOPE: &[Case] = &[
    (
        "kind.yaml",
        &[(
            "kind (line 2)",
            "kind is \"MachineConfigPool\"; a MachineConfig is needed",
        )],
    ),
    (
        "api-version.yaml",
        &[(
            "apiVersion (line 1)",
            "\"v1\" is not machineconfiguration.openshift.io/v1",
        )],
    ),
    (
        "list-of-two.yaml",
        &[(
            "items (line 3)",
            "a list of 2 objects; give a list with exactly one",
        )],
    ),
    ("list-of-none.json", &[("items", "a list of 0 objects")]),
    (
        "list-item.yaml",
        &[(
            "items[0].spec.config.storage.files[0].mode (line 25)",
            "illegal file mode",
        )],
    ),
    (
        "spec-missing.yaml",
        &[("spec", "missing; this is not a MachineConfig")],
    ),
    (
        "oc-message.yaml",
        &[("", "this is neither a MachineConfig")],
    ),
    (
        "name-missing.yaml",
        &[(
            "metadata.name",
            "missing; the daemon's record needs the name",
        )],
    ),
    (
        "name-odd.yaml",
        &[(
            "metadata.name (line 6)",
            "\"../rendered_worker\" is not a Kubernetes object name",
        )],
    ),
    (
        "kernel-type.yaml",
        &[("spec.kernelType (line 30)", "kernelType=rt is invalid")],
    ),
    (
        "extensions.yaml",
        &[(
            "spec.extensions (line 11)",
            "invalid extensions found: [htop strace]; the operator knows ipsec",
        )],
    ),
    (
        "type-fips.yaml",
        &[("spec.fips (line 28)", "expected a boolean")],
    ),
    ("error-page.yaml", &[("", "")]),
];

/// Versions of Ignition.
const VERSIONS: &[Case] = &[
    (
        "version-missing.yaml",
        &[(
            "spec.config.ignition.version",
            "missing; an Ignition config must name its spec version",
        )],
    ),
    (
        "version-short.yaml",
        &[(
            "spec.config.ignition.version (line 18)",
            "\"3.5\" is not a version of the form X.Y.Z",
        )],
    ),
    (
        "version-number.yaml",
        &[("spec.config.ignition.version (line 18)", "")],
    ),
    (
        "version-patch.yaml",
        &[(
            "spec.config.ignition.version (line 18)",
            "unsupported Ignition version \"3.5.1\"",
        )],
    ),
    (
        "version-3.7.yaml",
        &[(
            "spec.config.ignition.version (line 18)",
            "unsupported Ignition version \"3.7.0\"; 3.0.0 to 3.6.0 are understood",
        )],
    ),
    (
        "version-experimental.yaml",
        &[(
            "spec.config.ignition.version (line 18)",
            "\"3.6.0-experimental\"",
        )],
    ),
];

/// Text that is not JSON or YAML, or not what it seems.
const SYNTAX: &[Case] = &[
    ("empty.yaml", &[("", "the document is empty")]),
    ("comments-only.yaml", &[("", "the document is empty")]),
    ("not-utf8.yaml", &[("line 22", "not UTF-8 text")]),
    (
        "yaml-tag.yaml",
        &[("line 22", "YAML tag \"vault\" is not supported")],
    ),
    (
        "yaml-alias.yaml",
        &[(
            "line 25",
            "YAML aliases are not supported; write the value out",
        )],
    ),
    (
        "yaml-duplicate-key.yaml",
        &[("line 26", "key \"mode\" is given twice in one mapping")],
    ),
    (
        "yaml-two-documents.yaml",
        &[("line 33", "more than one YAML document")],
    ),
    ("yaml-tab.yaml", &[("line 21", "tabs")]),
    ("yaml-too-deep.yaml", &[("line 3", "nested too deeply")]),
    ("json-cut-off.json", &[("line 26", "not valid JSON: EOF")]),
    (
        "json-duplicate-key.json",
        &[("spec.config.storage.files[0]", "duplicate field `mode`")],
    ),
    (
        "json-octal.json",
        &[("line 8", "not valid JSON: invalid number")],
    ),
    (
        "json-twice.json",
        &[("line 10", "not valid JSON: trailing characters")],
    ),
    (
        "key-case.yaml",
        &[(
            "spec.config.storage.files[0].Path (line 25)",
            "write it as \"path\" (the letter case matters)",
        )],
    ),
    (
        "key-case-unit.yaml",
        &[(
            "spec.config.systemd.units[0].Enabled (line 21)",
            "write it as \"enabled\"",
        )],
    ),
    (
        "type-mode-string.yaml",
        &[("spec.config.storage.files[0].mode (line 23)", "string")],
    ),
    (
        "type-mode-fraction.yaml",
        &[("spec.config.storage.files[0].mode (line 23)", "")],
    ),
    (
        "type-contents.yaml",
        &[("spec.config.storage.files[0].contents (line 21)", "string")],
    ),
];

/// Files and their owners, modes, contents.
const FILES: &[Case] = &[
    (
        "mode-setuid.yaml",
        &[(
            "spec.config.storage.files[0].mode (line 23)",
            "invalid mode 04755 for /opt/bin/helper, cannot exceed 0777",
        )],
    ),
    (
        "mode-decimal.yaml",
        &[(
            "spec.config.storage.files[0].mode (line 23)",
            "invalid mode 01204 for /etc/chrony.conf, cannot exceed 0777",
        )],
    ),
    (
        "mode-named-0o.yaml",
        &[(
            "spec.config.storage.files[0].mode (line 23)",
            "invalid mode 04755",
        )],
    ),
    (
        "mode-beyond.yaml",
        &[(
            "spec.config.storage.files[0].mode (line 23)",
            "illegal file mode",
        )],
    ),
    (
        "path-relative.yaml",
        &[(
            "spec.config.storage.files[0].path (line 25)",
            "\"etc/chrony.conf\" is not an absolute path",
        )],
    ),
    (
        "path-unclean.yaml",
        &[(
            "spec.config.storage.files[0].path (line 25)",
            "\"/etc//chrony.conf\" is not a clean path",
        )],
    ),
    (
        "path-slash-at-end.yaml",
        &[(
            "spec.config.storage.files[0].path (line 25)",
            "\"/etc/chrony.conf/\" is not a clean path",
        )],
    ),
    (
        "path-climbing.yaml",
        &[(
            "spec.config.storage.files[0].path (line 25)",
            "\"/etc/../chrony.conf\" is not a clean path",
        )],
    ),
    (
        "path-empty.yaml",
        &[(
            "spec.config.storage.files[0].path (line 25)",
            "\"\" is not an absolute path",
        )],
    ),
    (
        "path-nul.json",
        &[("spec.config.storage.files[0].path", "contains a NUL byte")],
    ),
    (
        "path-of-root.yaml",
        &[(
            "spec.config.storage.files[0].path",
            "names the root directory itself",
        )],
    ),
    (
        "duplicate-path.yaml",
        &[(
            "spec.config.storage.files[1].path (line 31)",
            "is already at storage.files[0].path",
        )],
    ),
    (
        "data-url-no-comma.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 22)",
            "there is no comma before the data",
        )],
    ),
    (
        "data-url-media.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 22)",
            "media type",
        )],
    ),
    (
        "data-url-space.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 22)",
            "a character that must be percent-encoded",
        )],
    ),
    (
        "data-url-percent.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 22)",
            "`%` is not followed by two hex digits",
        )],
    ),
    (
        "data-url-attribute.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 22)",
            "`;base64` must be lower case and last",
        )],
    ),
    (
        "source-inline.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 22)",
            "does not begin with `data:`",
        )],
    ),
    (
        "base64.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 22)",
            "the base64 data is broken",
        )],
    ),
    (
        "gzip.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 23)",
            "not valid gzip data",
        )],
    ),
    (
        "gzip-cut-off.yaml",
        &[(
            "spec.config.storage.files[0].contents.source (line 23)",
            "not valid gzip data",
        )],
    ),
    (
        "compression-xz.yaml",
        &[(
            "spec.config.storage.files[0].contents.compression (line 22)",
            "unsupported compression type \"xz\"; only gzip is known",
        )],
    ),
    (
        "hash-colon.yaml",
        &[(
            "spec.config.storage.files[0].contents.verification.hash (line 24)",
            "is not of the form `sha512-HEX`",
        )],
    ),
    (
        "hash-function.yaml",
        &[(
            "spec.config.storage.files[0].contents.verification.hash (line 24)",
            "neither sha512 nor sha256",
        )],
    ),
    (
        "hash-short.yaml",
        &[(
            "spec.config.storage.files[0].contents.verification.hash (line 24)",
            "hexadecimal digits",
        )],
    ),
    (
        "hash-without-source.yaml",
        &[(
            "spec.config.storage.files[0].contents.verification.hash (line 23)",
            "there is no source to be verified",
        )],
    ),
    (
        "overwrite-without-source.yaml",
        &[(
            "spec.config.storage.files[0] (line 21)",
            "overwrite is true but there is no contents.source",
        )],
    ),
    (
        "owner-id-and-name.yaml",
        &[(
            "spec.config.storage.files[0].user (line 27)",
            "has both id and name",
        )],
    ),
    (
        "group-id-and-name.yaml",
        &[(
            "spec.config.storage.files[0].group (line 27)",
            "has both id and name",
        )],
    ),
    (
        "owner-negative.yaml",
        &[(
            "spec.config.storage.files[0].user.id (line 27)",
            "not a 32-bit user or group id",
        )],
    ),
    (
        "owner-unknown.yaml",
        &[(
            "spec.config.storage.files[0]",
            "failed to retrieve UserID for username: chrony",
        )],
    ),
    (
        "group-unknown.yaml",
        &[(
            "spec.config.storage.files[0]",
            "failed to retrieve GroupID for group: chrony",
        )],
    ),
    (
        "source-remote.yaml",
        &[(
            "spec.config.storage.files[0].contents.source",
            "remote URL (https",
        )],
    ),
    (
        "append.yaml",
        &[(
            "spec.config.storage.files[0].append",
            "ignition file /etc/chrony.conf includes append",
        )],
    ),
    (
        "file-under-link.yaml",
        &[(
            "spec.config.storage.files[0] (line 21)",
            "/opt/agent/etc/agent.conf lies below the link /opt/agent",
        )],
    ),
    (
        "file-is-unit.yaml",
        &[(
            "spec.config.storage.files[0] (line 21)",
            "is also written as unit agent.service",
        )],
    ),
    (
        "file-is-dropin.yaml",
        &[(
            "spec.config.storage.files[0] (line 21)",
            "is also written as drop-in 10-mco.conf of crio.service",
        )],
    ),
];

/// Units and drop-ins.
const UNITS: &[Case] = &[
    (
        "unit-suffix.yaml",
        &[(
            "spec.config.systemd.units[0].name (line 25)",
            "\"agent.conf\" has no known unit suffix",
        )],
    ),
    (
        "dropin-suffix.yaml",
        &[(
            "spec.config.systemd.units[0].dropins[0].name (line 25)",
            "\"10-mco.txt\" does not end in .conf",
        )],
    ),
    (
        "unit-contents.yaml",
        &[(
            "spec.config.systemd.units[0].contents (line 22)",
            "line 3: unable to find end of section",
        )],
    ),
    (
        "dropin-contents.yaml",
        &[(
            "spec.config.systemd.units[0].dropins[0].contents (line 23)",
            "line 2: unexpected end of line while parsing option name \"Environment\"",
        )],
    ),
    (
        "unit-slash.yaml",
        &[(
            "spec.config.systemd.units[0].name (line 24)",
            "\"../../agent.service\" must be a file name without slashes",
        )],
    ),
    (
        "dropin-slash.yaml",
        &[(
            "spec.config.systemd.units[0].dropins[0].name (line 25)",
            "\"../10-mco.conf\" must be a file name without slashes",
        )],
    ),
    (
        "unit-name-missing.yaml",
        &[(
            "spec.config.systemd.units[0].name",
            "\"\" has no known unit suffix",
        )],
    ),
    (
        "duplicate-unit.yaml",
        &[(
            "spec.config.systemd.units[1].name (line 24)",
            "is already at systemd.units[0].name",
        )],
    ),
    (
        "duplicate-dropin.yaml",
        &[(
            "spec.config.systemd.units[0].dropins[1].name (line 27)",
            "is already at systemd.units[0].dropins[0].name",
        )],
    ),
];

/// Users and their credentials.
const USERS: &[Case] = &[
    (
        "duplicate-key.yaml",
        &[(
            "spec.config.passwd.users[0].sshAuthorizedKeys[1] (line 24)",
            "is already at passwd.users[0].sshAuthorizedKeys[0]",
        )],
    ),
    (
        "duplicate-user.yaml",
        &[(
            "spec.config.passwd.users[1].name (line 24)",
            "is already at passwd.users[0].name",
        )],
    ),
    (
        "user-not-core.yaml",
        &[("spec.config.passwd.users", "core")],
    ),
];

/// Sections that are never applied.
const SECTIONS: &[Case] = &[
    (
        "disks.yaml",
        &[(
            "spec.config.storage.disks",
            "1 entry: partition tables are made at installation only",
        )],
    ),
    (
        "raid.yaml",
        &[(
            "spec.config.storage.raid",
            "RAID arrays are made at installation only",
        )],
    ),
    (
        "filesystems.yaml",
        &[(
            "spec.config.storage.filesystems",
            "file systems are made at installation only",
        )],
    ),
    (
        "luks.yaml",
        &[(
            "spec.config.storage.luks",
            "encrypted devices are made at installation only",
        )],
    ),
    (
        "groups.yaml",
        &[("spec.config.passwd.groups", "the daemon applies no groups")],
    ),
    (
        "ignition-kernel-arguments.yaml",
        &[("spec.config.kernelArguments", "use spec.kernelArguments")],
    ),
    (
        "merge.yaml",
        &[("spec.config.ignition.config.merge", "not fetched")],
    ),
    (
        "replace.yaml",
        &[("spec.config.ignition.config.replace", "not fetched")],
    ),
    (
        "link-without-target.yaml",
        &[(
            "spec.config.storage.links[0].target",
            "a link needs a target",
        )],
    ),
    (
        "hard-link-to-directory.yaml",
        &[(
            "spec.config.storage.links[0] (line 23)",
            "a hard link cannot lead to a directory",
        )],
    ),
];

/// More than one thing wrong: all of it is said.
const SEVERAL: &[Case] = &[
    (
        "four-errors.yaml",
        &[
            (
                "spec.config.storage.files[0].path (line 25)",
                "\"etc/chrony.conf\" is not an absolute path",
            ),
            (
                "spec.config.storage.files[1].mode (line 28)",
                "invalid mode 04755 for /etc/hosts",
            ),
            (
                "spec.config.storage.files[2].contents.source (line 32)",
                "`%` is not followed by two hex digits",
            ),
            (
                "spec.config.systemd.units[0].name (line 39)",
                "\"agent.srv\" has no known unit suffix",
            ),
        ],
    ),
    (
        "four-blockers.yaml",
        &[
            ("spec.config.passwd.users", "core"),
            (
                "spec.config.storage.disks",
                "1 entry: partition tables are made at installation only",
            ),
            (
                "spec.config.storage.files[0].append",
                "ignition file /etc/hosts includes append",
            ),
            (
                "spec.config.storage.files[1].contents.source",
                "remote URL (https",
            ),
        ],
    ),
];

/// What only the config before makes a refusal of.
const TRANSITIONS: &[Case] = &[
    (
        "fips.yaml",
        &[(
            "spec.fips",
            "detected change to FIPS flag; refusing to modify FIPS on a running cluster",
        )],
    ),
    (
        "os-changed.yaml",
        &[
            (
                "spec.osImageURL",
                "registry.example/os@sha256:0 -> registry.example/os@sha256:1",
            ),
            ("spec.kernelArguments", "nosmt"),
            ("spec.extensions", "usbguard"),
            ("spec.kernelType", "default -> realtime"),
        ],
    ),
    (
        "user-without-credentials.yaml",
        &[(
            "spec.config.passwd.users",
            "user must be core and have 1 or more sshKeys",
        )],
    ),
    (
        "user-with-shell.yaml",
        &[(
            "spec.config.passwd.users",
            "SSH keys and password hash are not reconcilable",
        )],
    ),
    (
        "force-file.yaml",
        &[(
            "spec.config.storage.files[0].path",
            "cannot create /run/machine-config-daemon-force via Ignition",
        )],
    ),
];

/// Each has a test of its own below.
const SEPARATE: &[&str] = &["yaml-tag-on-list.yaml"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/machine-configs/refused")
}

fn path_of(fixture: &str) -> String {
    folder().join(fixture).to_str().unwrap().to_owned()
}

/// A node that is recorded to be in a config with one file and no users.
fn recorded() -> TestRoot {
    let root = TestRoot::new();
    let config = machine_config(
        "rendered-worker-00000000000000000000000000000000",
        json!({"storage": {"files": [file("/etc/recorded.conf", 0o644, "here\n")]}}),
    );
    let text = config.to_string();
    root.write("etc/machine-config-daemon/currentconfig", &text);
    root.write("etc/machine-config-daemon/currentimage", "");
    root.write("etc/recorded.conf", "here\n");
    root
}

/// Every place and message that `plan` gives: blockers, else the errors on standard error.
fn refusals(plan: &Run) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if let Ok(plan) = serde_json::from_str::<Value>(&plan.out()) {
        let blockers = plan["blockers"].as_array().unwrap().iter();
        return blockers
            .map(|blocker| (text(&blocker["subject"]), text(&blocker["message"])))
            .collect();
    }
    assert!(plan.out().is_empty(), "{}", plan.out());
    let errors = plan.err();
    let many = errors
        .lines()
        .next()
        .is_some_and(|line| line.ends_with(" errors"));
    let lines = errors.lines().skip(usize::from(many));
    lines
        .map(|line| (line.to_owned(), line.to_owned()))
        .collect()
}

/// What is wrong with how a case is refused on a root; nothing when it is right.
fn check(root: &TestRoot, (fixture, wanted): &Case) -> Vec<String> {
    let path = path_of(fixture);
    let before = root.everything();
    let mut wrong = Vec::new();
    let plan = root.run(&["--output", "json", "plan", &path]);
    let text = root.run(&["plan", &path]);
    let apply = root.run(&["apply", "--yes", &path]);
    for (name, run) in [
        ("plan --output json", &plan),
        ("plan", &text),
        ("apply", &apply),
    ] {
        if run.code() != 1 {
            wrong.push(format!("{fixture}: {name} ends with {}", run.code()));
        }
        if name != "plan" && name != "apply" {
            continue;
        }
        let said = flat(&format!("{} {}", run.out(), run.err()));
        for (at, message) in *wanted {
            if !said.contains(at) || !said.contains(message) {
                wrong.push(format!(
                    "{fixture}: {name} does not say {at:?} {message:?}: {said}"
                ));
            }
        }
    }
    if !apply.err().starts_with("error: ") {
        wrong.push(format!(
            "{fixture}: apply has no error line: {}",
            apply.err()
        ));
    }
    let found = refusals(&plan);
    for (at, message) in *wanted {
        let named = |(subject, said): &(String, String)| {
            let line = at.is_empty() || at.starts_with("line") && said.contains(at);
            let place = subject == at || subject.contains(&format!("{at}: "));
            (line || place) && said.contains(message)
        };
        if !found.iter().any(named) {
            wrong.push(format!(
                "{fixture}: {at:?} {message:?} is not among {found:?}"
            ));
        }
    }
    if root.everything() != before {
        wrong.push(format!("{fixture}: the node was changed"));
    }
    wrong
}

fn all_refused(cases: &[Case]) {
    let (fresh, recorded) = (TestRoot::new(), recorded());
    let mut wrong = Vec::new();
    for case in cases {
        wrong.extend(check(&fresh, case));
        wrong.extend(check(&recorded, case));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_refused_fixture_is_in_a_table() {
    let on_disk: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml") || name.ends_with(".json"))
        .collect();
    let tables = [
        ENVELOPE,
        VERSIONS,
        SYNTAX,
        FILES,
        UNITS,
        USERS,
        SECTIONS,
        SEVERAL,
        TRANSITIONS,
    ];
    let listed = tables.into_iter().flatten().map(|(name, _)| *name);
    let all: Vec<String> = listed
        .chain(SEPARATE.iter().copied())
        .map(str::to_owned)
        .collect();
    let in_tables: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(all.len(), in_tables.len(), "a fixture stands in two tables");
    assert_eq!(on_disk, in_tables);
}

#[test]
fn objects_that_are_no_machine_config_are_refused_by_name() {
    all_refused(ENVELOPE);
}

#[test]
fn versions_of_ignition_that_are_not_understood_are_refused_by_name() {
    all_refused(VERSIONS);
}

#[test]
fn text_that_is_not_what_it_should_be_is_refused_with_its_line() {
    all_refused(SYNTAX);
}

#[test]
fn files_that_cannot_be_as_written_are_refused_by_path() {
    all_refused(FILES);
}

#[test]
fn units_that_cannot_be_as_written_are_refused_by_path() {
    all_refused(UNITS);
}

#[test]
fn users_other_than_the_daemon_takes_are_refused_by_path() {
    all_refused(USERS);
}

#[test]
fn sections_that_are_never_applied_are_refused_by_name() {
    all_refused(SECTIONS);
}

#[test]
fn every_error_of_a_document_is_reported_and_none_besides() {
    all_refused(SEVERAL);
    for (fixture, wanted) in SEVERAL {
        let plan = TestRoot::new().run(&["--output", "json", "plan", &path_of(fixture)]);
        let found = refusals(&plan);
        assert_eq!(found.len(), wanted.len(), "{fixture}: {found:?}");
    }
}

#[test]
fn transitions_that_the_daemon_refuses_are_refused_in_its_words() {
    let root = recorded();
    let wrong: Vec<String> = TRANSITIONS
        .iter()
        .flat_map(|case| check(&root, case))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The daemon's rule is about the new config alone (a new file *is* the force file).
#[test]
fn the_force_file_is_refused_without_a_record_too() {
    let case = TRANSITIONS
        .iter()
        .find(|(name, _)| *name == "force-file.yaml")
        .unwrap();
    let wrong = check(&TestRoot::new(), case);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_shell_that_is_not_applied_is_reported_without_a_record_too() {
    let root = TestRoot::new();
    let plan = root.run(&["plan", &path_of("user-with-shell.yaml")]);
    let said = flat(&(plan.out() + &plan.err()));
    assert!(
        said.contains("spec.config.passwd.users") && said.contains("shell"),
        "passed over in silence: {said}"
    );
}

#[test]
fn a_tag_on_a_yaml_list_is_refused_like_one_on_a_text() {
    let wrong = check(
        &TestRoot::new(),
        &(
            "yaml-tag-on-list.yaml",
            &[("line", "YAML tag \"include\" is not supported")],
        ),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_error_page_is_said_to_be_no_machine_config() {
    let plan = TestRoot::new().run(&["plan", &path_of("error-page.yaml")]);
    let said = plan.err();
    assert!(said.contains("MachineConfig"), "{said}");
    assert!(!said.contains("JSON"), "the file was never JSON: {said}");
}

#[test]
fn a_version_that_is_a_number_is_not_called_missing() {
    let plan = TestRoot::new().run(&["plan", &path_of("version-number.yaml")]);
    assert!(!plan.err().contains("missing"), "{}", plan.err());
}

#[test]
fn a_refused_mode_names_the_path_as_it_is_written() {
    let plan = TestRoot::new().run(&["plan", &path_of("mode-named-0o.yaml")]);
    assert!(plan.err().contains("/etc/repo0o.conf"), "{}", plan.err());
}

#[test]
fn messages_name_no_type_of_the_source_code() {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let plan = TestRoot::new().run(&["plan", path.to_str().unwrap()]);
        let foreign = ["struct ", "enum ", "i64", "u32", "Envelope", "Resource"];
        if foreign.iter().any(|word| plan.err().contains(word)) {
            names.push(plan.err());
        }
    }
    assert!(names.is_empty(), "{}", names.join(""));
}

#[test]
fn a_value_of_the_wrong_type_is_not_quoted() {
    let secret = "hunter2-correct-horse";
    let entry = |key: &str, value: Value| {
        let mut file = json!({"path": "/etc/secret", "mode": 384});
        file[key] = value;
        json!({"storage": {"files": [file]}})
    };
    let user = |key: &str, value: Value| {
        let mut user = json!({"name": "core"});
        user[key] = value;
        json!({"passwd": {"users": [user]}})
    };
    let configs = [
        entry("contents", json!(format!("data:,{secret}"))),
        entry("overwrite", json!(secret)),
        user("sshAuthorizedKeys", json!(secret)),
        user("uid", json!(secret)),
    ];
    let mut quoted = Vec::new();
    for ignition in configs {
        let root = TestRoot::new();
        let config = root.config(&machine_config("rendered-worker-1", ignition));
        let plan = root.run(&["plan", config.path()]).exits(1);
        if plan.err().contains(secret) {
            quoted.push(plan.err());
        }
    }
    assert!(quoted.is_empty(), "{}", quoted.join(""));
}

#[test]
fn a_url_is_not_fetched_and_its_credentials_are_not_sent_anywhere() {
    let root = TestRoot::new();
    let before = root.everything();
    for command in ["plan", "apply", "verify", "show"] {
        let run = root
            .run(&[
                "--yes",
                command,
                "https://me:hush@mirror.example/config.yaml?token=hush",
            ])
            .exits(1);
        assert!(run.err().contains("mco-rescue fetch URL"), "{}", run.err());
        assert!(!run.err().contains("hush"), "{}", run.err());
    }
    assert_eq!(root.everything(), before);
}

#[test]
fn a_file_that_is_not_there_or_no_file_is_named() {
    let root = TestRoot::new();
    let missing = root.path("no-such-file.yaml");
    let directory = root.path("etc");
    for path in [missing, directory] {
        let path = path.to_str().unwrap();
        for command in ["plan", "apply", "verify", "show"] {
            let run = root.run(&[command, path]).exits(1);
            // To `show` the only argument may be a path of the recorded config, too.
            let neither = format!("there is no file {path:?} to read a config from");
            let said = run.err();
            assert!(
                said.starts_with(&format!("error: reading {path}: "))
                    || said.starts_with(&format!("error: {path} is a directory. Give "))
                    || command == "show" && said.contains(&neither),
                "{said}"
            );
        }
    }
}

#[test]
fn verify_and_show_refuse_what_plan_refuses() {
    let root = TestRoot::new();
    for fixture in [
        "kind.yaml",
        "yaml-alias.yaml",
        "four-errors.yaml",
        "not-utf8.yaml",
    ] {
        let path = path_of(fixture);
        let wanted = root.run(&["plan", &path]).exits(1).err();
        for command in ["verify", "show"] {
            let run = root.run(&[command, &path]).exits(1);
            assert_eq!(run.err(), wanted, "{command} {fixture}");
            assert_eq!(run.out(), "", "{command} {fixture}");
        }
    }
}

#[test]
fn a_link_that_other_parts_of_the_config_lead_through_does_not_give_way() {
    let root = TestRoot::new();
    fs::create_dir(root.path("var/home")).unwrap();
    fs::rename(root.path("home/core"), root.path("var/home/core")).unwrap();
    fs::remove_dir(root.path("home")).unwrap();
    root.link("home", "var/home");
    let config = root.config(&machine_config(
        "rendered-worker-1",
        json!({
            "storage": {"files": [file("/home", 0o644, "x"), file("/etc/a", 0o644, "a")]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA core"]}]},
        }),
    ));
    let before = root.everything();
    for command in [&["plan"][..], &["apply", "--yes"]] {
        let args: Vec<&str> = command.iter().copied().chain([config.path()]).collect();
        let run = root.run(&args).exits(1);
        let said = flat(&run.out());
        assert!(
            said.contains(
                "/.ssh/authorized_keys.d/ignition: lies below /home, which leads elsewhere"
            ),
            "{said}"
        );
        assert_eq!(root.everything(), before, "{command:?}");
    }
}

#[test]
fn the_part_of_a_path_that_is_not_a_directory_is_named() {
    type Wreck = fn(&TestRoot);
    let table: [(&str, Wreck); 3] = [
        ("/etc/a/b is not a directory", |root| {
            root.write("etc/a/b", "a file");
        }),
        ("/etc/a/b: too many symbolic links", |root| {
            fs::create_dir_all(root.path("etc/a")).unwrap();
            root.link("etc/a/b", "b");
        }),
        (
            "/etc/a/b exists, but does not lead to a directory",
            |root| {
                fs::create_dir_all(root.path("etc/a")).unwrap();
                root.link("etc/a/b", "/nowhere");
            },
        ),
    ];
    for (words, prepare) in table {
        let root = TestRoot::new();
        prepare(&root);
        let files = json!([file("/etc/a/b/c/d.conf", 0o644, "x")]);
        let config = root.config(&machine_config(
            "rendered-worker-1",
            json!({"storage": {"files": files}}),
        ));
        let said = flat(&root.run(&["plan", config.path()]).exits(1).out());
        let wanted = format!("/etc/a/b/c/d.conf cannot be reached: {words}");
        assert!(said.contains(&wanted), "{said}");
    }
}

#[test]
fn blockers_that_a_long_list_pushes_away_are_said_once_more_at_the_end() {
    for (count, again) in [(1, false), (40, true)] {
        let root = TestRoot::new();
        fs::create_dir_all(root.path("etc/in-the-way")).unwrap();
        let mut files = vec![file("/etc/in-the-way", 0o644, "x")];
        files.extend((0..count).map(|n| file(&format!("/etc/f/{n}"), 0o644, "x")));
        let config = root.config(&machine_config(
            "rendered-worker-1",
            json!({"storage": {"files": files}}),
        ));
        let run = root.run(&["apply", "--yes", config.path()]).exits(1);
        assert_eq!(
            run.err().contains("/etc/in-the-way: a directory is where"),
            again,
            "{}",
            run.err()
        );
        let planned = root.run(&["plan", config.path()]).exits(1).out();
        let times = planned
            .matches("/etc/in-the-way: a directory is where")
            .count();
        assert_eq!(times, if again { 2 } else { 1 }, "{planned}");
    }
}

#[test]
fn what_a_windows_shell_or_a_packer_has_written_is_reported_with_the_way_back() {
    let root = TestRoot::new();
    let text = machine_config("rendered-worker-1", json!({})).to_string();
    let wide: Vec<u8> = std::iter::once(0xfeff)
        .chain(text.encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    for (bytes, words) in [
        (wide, "convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"),
        (
            b"\x1f\x8b\x08\0\0\0\0\0".to_vec(),
            "unpack it first: gunzip -c FILE > NEW",
        ),
    ] {
        let path = root.path("document");
        fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        for args in [
            &["plan", path][..],
            &["fetch", path],
            &["render", "worker", path],
        ] {
            let said = flat(&root.run(args).exits(1).err());
            assert!(said.contains(words), "{args:?}: {said}");
        }
    }
}

/// A spec is split before it is read: every odd shape of it is refused in the same words, alone and in a list.
#[test]
fn a_spec_of_any_other_shape_is_named() {
    let root = TestRoot::new();
    let config = r#""config":{"ignition":{"version":"3.4.0"}}"#;
    let escaped = r#"{"\u0063onfig":{"ignition":{"version":"3.4.0"},"storage":[]}}"#;
    for (spec, place, words) in [
        ("[]".into(), "spec", "a list, expected an object"),
        ("[[1]]".into(), "spec", "a list, expected an object"),
        ("true".into(), "spec", "boolean `true`, expected an object"),
        ("-1".into(), "spec", "integer `-1`, expected an object"),
        ("1.5".into(), "spec", "`1.5`, expected an object"),
        ("\"x\"".into(), "spec", "a string, expected an object"),
        ("null".into(), "spec", "missing"),
        (
            format!("{{{config},\"config\":{{}}}}"),
            "spec",
            "duplicate field `config`",
        ),
        (
            format!("{{{config},\"fips\":true,\"fips\":false}}"),
            "spec",
            "duplicate field `fips`",
        ),
        (
            format!("{{{config},\"fips\":[]}}"),
            "spec.fips",
            "a list, expected a boolean",
        ),
        (
            r#"{"Config":{}}"#.into(),
            "spec.Config",
            "write it as \"config\"",
        ),
        (
            r#"{"config":[]}"#.into(),
            "spec.config",
            "a list, expected an object",
        ),
        (
            r#"{"config":"x"}"#.into(),
            "spec.config",
            "is not an object",
        ),
        (
            escaped.to_owned(),
            "spec.config.storage",
            "a list, expected an object",
        ),
    ] {
        let head = r#""apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig""#;
        let object = format!(r#"{{{head},"metadata":{{"name":"a"}},"spec":{spec}}}"#);
        let list = format!(r#"{{"kind":"List","items":[{object}]}}"#);
        for (text, prefix) in [(&object, ""), (&list, "items[0].")] {
            let path = root.path("document");
            fs::write(&path, text).unwrap();
            let said = flat(&root.run(&["plan", path.to_str().unwrap()]).exits(1).err());
            let wanted = format!(": {prefix}{place}: ");
            assert!(
                said.contains(&wanted) && said.contains(words),
                "{spec}: {said}"
            );
        }
    }
}
