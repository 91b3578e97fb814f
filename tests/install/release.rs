//! What a release is made of: the same bytes of the same sources, with the licences of everything in it, and a signature that
//! holds only for what was signed. Two real builds are compared by `make reproducible`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Lacks, PROGRAM, TestRoot, skip};
use mco_rescue::node::images::Digest;
use serde_json::Value;

pub(super) const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The sources that packing reads; Cargo looks at the beginning of each program.
const SOURCES: [&str; 16] = [
    ".cargo",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "build.rs",
    "docs",
    "dracut",
    "examples",
    "packaging",
    "src/lib.rs",
    "src/main.rs",
    "systemd",
    "tests/main.rs",
];

pub(super) fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// Copies the sources to a directory, with a small program in the place of the binary, whose debug form is large. Packs
/// them there, and returns the tarball.
pub(super) fn pack(root: &TestRoot, place: &str, umask: &str, zone: &str) -> PathBuf {
    let dir = root.path(place);
    fs::create_dir_all(&dir).unwrap();
    let mut copy = Command::new("cp");
    copy.args(["-r", "--parents"]).args(SOURCES);
    succeed(copy.arg("vm-tests/main.rs").arg(&dir));
    root.write(
        &format!("{place}/program"),
        &format!("#!/bin/sh\nexec {PROGRAM} \"$@\"\n"),
    );
    root.chmod(&format!("{place}/program"), 0o755);
    let script = "umask \"$1\"; cd \"$2\"; exec packaging/pack.sh program \"$3\" out";
    let mut pack = Command::new("bash");
    pack.args(["-c", script, "bash", umask]).arg(&dir);
    pack.arg(TARGET).env("TZ", zone);
    succeed(pack.env_remove("MAKEFLAGS").env_remove("SOURCE_DATE_EPOCH"));
    let made = fs::read_dir(dir.join("out")).unwrap();
    let mut made = made.map(|entry| entry.unwrap().path());
    made.find(|path| path.to_string_lossy().ends_with(".tar.gz"))
        .unwrap()
}

/// Returns what GNU tar lists: owner, mode and time by path.
fn list(tarball: &Path) -> BTreeMap<String, (String, String)> {
    let output = succeed(
        Command::new("tar")
            .args(["--list", "--verbose", "--numeric-owner", "--full-time"])
            .arg("--file")
            .arg(tarball)
            .env("TZ", "UTC0"),
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let entries = text.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let told = (format!("{} {}", words[0], words[1]), words[4].to_owned());
        (words[5].split_once('/').unwrap().1.to_owned(), told)
    });
    entries.collect()
}

#[test]
fn packing_in_two_places_gives_the_same_bytes_with_everything_in_it() {
    let root = TestRoot::empty();
    let first = pack(&root, "a", "022", "UTC");
    let second = pack(&root, "b/at/a/longer/place", "077", "Asia/Tokyo");
    assert_eq!(first.file_name(), second.file_name());
    let bytes = fs::read(&first).unwrap();
    assert!(bytes == fs::read(&second).unwrap(), "the tarballs differ");

    let all = list(&first);
    let odd = all.iter().filter(|(_, (owner, time))| {
        !owner.ends_with(" 0/0") || time != "00:00:00" || owner.contains("rw-rw")
    });
    assert_eq!(odd.collect::<Vec<_>>(), []);
    for path in [
        "usr/bin/mco-rescue",
        "usr/lib/dracut/modules.d/50mco-rescue/module-setup.sh",
        "usr/lib/systemd/system/mco-rescue-recover.service",
        "usr/lib/systemd/system-preset/50-mco-rescue.preset",
        "usr/share/bash-completion/completions/mco-rescue",
        "usr/share/doc/mco-rescue/CHANGELOG.md",
        "usr/share/doc/mco-rescue/docs/develop/release.md",
        "usr/share/licenses/mco-rescue/LICENSE",
        "usr/share/licenses/mco-rescue/THIRD-PARTY.txt",
        "usr/share/licenses/mco-rescue/rust-library.html",
        "usr/share/man/man8/mco-rescue-apply.8",
    ] {
        assert!(all.contains_key(path), "{path} is not in {all:#?}");
    }
    let licences = read(&first, "*/THIRD-PARTY.txt");
    for part in ["ring 0.", "rustls 0.", "GNU C library", "\nMIT License"] {
        assert!(licences.contains(part), "{part}");
    }
    // A crate of the tests alone is not linked in.
    assert!(!licences.contains("proptest"), "proptest");
}

/// Returns the one file of a tarball that has a name.
fn read(tarball: &Path, name: &str) -> String {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--to-stdout", "--wildcards", "--file"]);
    let output = succeed(tar.arg(tarball).arg(name));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A release of one small file, signed with a new key; and `allowed_signers` with its public half.
fn sealed() -> Option<TestRoot> {
    let root = TestRoot::empty();
    for name in ["key", "other"] {
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]);
        let Ok(output) = keygen.arg(root.path(name)).output() else {
            skip(Lacks::Setup, "there is no ssh-keygen");
            return None;
        };
        assert!(output.status.success(), "{output:?}");
    }
    root.write("out/mco-rescue-9.9.9-x86_64.tar.gz", "packed");
    let public = root.read("key.pub");
    root.write(
        "out/allowed_signers",
        &format!("release@mco-rescue {public}"),
    );
    seal(&root);
    Some(root)
}

fn seal(root: &TestRoot) {
    succeed(
        Command::new("packaging/seal.sh")
            .arg(root.path("out"))
            .env("RELEASE_KEY", root.path("key"))
            .env("RELEASE_COMMIT", "0123456789abcdef"),
    );
}

/// Runs the commands of the manual for a person who has downloaded the files.
fn check_as_documented(root: &TestRoot) -> Output {
    let manual = fs::read_to_string("docs/develop/release.md").unwrap();
    let commands: Vec<&str> = manual
        .split("\n\n")
        .find(|block| block.contains("ssh-keygen -Y verify"))
        .unwrap()
        .lines()
        .map(str::trim)
        .collect();
    let mut bash = Command::new("bash");
    let bash = bash.args(["-euc", &commands.join("\n")]);
    bash.current_dir(root.path("out")).output().unwrap()
}

#[test]
fn the_documented_commands_accept_what_was_signed() {
    let Some(root) = sealed() else { return };
    let output = check_as_documented(&root);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert!(text.contains("Good \"mco-rescue-release\" signature"));
    assert!(text.contains("mco-rescue-9.9.9-x86_64.tar.gz: OK"));
    assert!(text.contains("provenance.json: OK"), "{text}");
}

#[test]
fn the_documented_commands_refuse_every_change() {
    type Change = fn(&TestRoot);
    let changes: [(&str, Change); 5] = [
        ("a tarball", |root| {
            root.write("out/mco-rescue-9.9.9-x86_64.tar.gz", "packeD");
        }),
        ("a tarball and its sum", |root| {
            root.write("out/mco-rescue-9.9.9-x86_64.tar.gz", "packeD");
            let sums = root.read("out/SHA256SUMS");
            let new = Digest::of_bytes(b"packeD").to_string();
            let old = Digest::of_bytes(b"packed").to_string();
            let hex = |digest: &str| digest.trim_start_matches("sha256:").to_owned();
            assert!(sums.contains(&hex(&old)), "{sums}");
            root.write("out/SHA256SUMS", &sums.replace(&hex(&old), &hex(&new)));
        }),
        ("another key", |root| {
            sign(root, "other", "mco-rescue-release");
        }),
        ("a signature for something else", |root| {
            sign(root, "key", "file");
        }),
        ("no signature", |root| {
            fs::remove_file(root.path("out/SHA256SUMS.sig")).unwrap();
        }),
    ];
    for (name, change) in changes {
        let Some(root) = sealed() else { return };
        change(&root);
        let output = check_as_documented(&root);
        assert!(!output.status.success(), "{name}: {output:?}");
    }
}

fn sign(root: &TestRoot, key: &str, namespace: &str) {
    fs::remove_file(root.path("out/SHA256SUMS.sig")).unwrap();
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-Y", "sign", "-n", namespace, "-f"]);
    succeed(keygen.arg(root.path(key)).arg(root.path("out/SHA256SUMS")));
}

#[test]
fn the_provenance_names_the_commit_and_the_digest_of_each_file() {
    let Some(root) = sealed() else { return };
    let first = root.read("out/provenance.json");
    let statement: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
    let subject = &statement["subject"][0];
    assert_eq!(subject["name"], "mco-rescue-9.9.9-x86_64.tar.gz");
    let digest = format!("sha256:{}", subject["digest"]["sha256"].as_str().unwrap());
    assert_eq!(digest, Digest::of_bytes(b"packed").to_string());
    let definition = &statement["predicate"]["buildDefinition"];
    let commit = &definition["resolvedDependencies"][0]["digest"]["gitCommit"];
    assert_eq!(commit, "0123456789abcdef");
    seal(&root);
    assert_eq!(first, root.read("out/provenance.json"), "a second time");
}

#[test]
fn the_verbose_version_names_commit_target_and_features() {
    for line in [["--version", "--verbose"], ["-v", "-V"]] {
        let output = succeed(Command::new(PROGRAM).args(line));
        let text = String::from_utf8(output.stdout).unwrap();
        let first = format!("mco-rescue {}", env!("CARGO_PKG_VERSION"));
        assert_eq!(text.lines().next(), Some(&*first), "{text}");
        let names: Vec<&str> = text.lines().skip(1).map(|line| line[..10].trim()).collect();
        let wanted = ["Commit", "Target", "Features", "Profile", "Compiler"];
        assert_eq!(names, wanted, "{text}");
        assert!(text.contains("-linux-gnu\n") && text.contains("crt-static"));
    }
    let output = succeed(Command::new(PROGRAM).arg("--version"));
    assert_eq!(output.stdout.iter().filter(|b| **b == b'\n').count(), 1);
}

#[test]
fn a_target_that_cannot_be_built_is_refused_with_what_is_missing() {
    let mut build = Command::new("packaging/build.sh");
    let output = build.arg("mips64-unknown-linux-gnuabi64").output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("rustup target add mips64-unknown-linux-gnuabi64"));
    let mode = fs::metadata("packaging/build.sh").unwrap().permissions();
    assert_eq!(mode.mode() & 0o111, 0o111);
}

#[test]
fn a_signed_release_without_one_of_its_architectures_is_refused_before_any_build() {
    let root = TestRoot::empty();
    root.write("key", "");
    let output = Command::new("packaging/release.sh")
        .arg(root.path("out"))
        .args([TARGET, "none-unknown-linux-gnu"])
        .env("RELEASE_KEY", root.path("key"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("needs none-unknown-linux-gnu: ") && said.contains("tests/setup.sh cross"),
        "{said}"
    );
    assert!(!said.contains("Compiling"), "{said}");
    let left = std::fs::read_dir(root.path("out")).unwrap();
    assert_eq!(left.count(), 0, "{said}");
}
