//! Every form of a secret through every output: its bytes are in none of them, and what is ordinary stays.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{GzDecoder, ZlibDecoder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::secret_forms::{ARGUMENTS, MARK, ORDINARY, SECRETS};
use crate::support::{Run, TestRoot, file, kubelet_unit, machine_config};

/// A file for root alone, whose plain digest gives its content away.
const PIN: &str = "4711\n";
const LIST: &str = "etc/mco-rescue/recorder-copies";

/// The forms with the mark and an ending of this moment in place of each secret.
fn form(form: &str, ending: &str) -> String {
    format!(
        "first\n{}\nlast\n",
        form.replace('§', &format!("{MARK}{ending}"))
    )
}

fn path_of(number: usize) -> String {
    format!("/etc/forms/{number}.conf")
}

fn arguments(ending: &str) -> Vec<String> {
    let all = ARGUMENTS.iter().filter(|one| !one.starts_with("--"));
    all.map(|one| one.replace('§', &format!("{MARK}{ending}")))
        .collect()
}

fn config(ending: &str) -> Value {
    let mut files: Vec<Value> = SECRETS
        .iter()
        .enumerate()
        .map(|(number, text)| file(&path_of(number), 0o644, &form(text, ending)))
        .collect();
    files.push(file("/etc/tls.key", 0o644, &format!("{MARK}{ending}\n")));
    files.push(file("/etc/pin", 0o600, PIN));
    files.push(file(
        "/etc/ordinary.conf",
        0o644,
        &(ORDINARY.join("\n") + "\n"),
    ));
    let unit = format!("[Service]\nExecStart=/bin/true\nEnvironment=DB_PASSWORD={MARK}{ending}\n");
    let mut config = machine_config(
        &format!("rendered-worker-{ending}"),
        json!({
            "storage": {"files": files},
            "systemd": {"units": [kubelet_unit(), {"name": "forms.service", "contents": unit}]},
        }),
    );
    config["spec"]["kernelArguments"] = json!(arguments(ending));
    config
}

/// A node on the config, on which every secret was changed by hand.
fn node() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/hostname", "worker-0\n");
    boot_loader(&root, "one");
    let list: String = (0..SECRETS.len())
        .map(|number| path_of(number) + "\n")
        .collect();
    root.write(LIST, &list);
    root.run(&[
        "apply",
        "--yes",
        "--files-only",
        root.config(&config("one")).path(),
    ])
    .ok();
    root.run(&["record"]).ok();
    for (number, text) in SECRETS.iter().enumerate() {
        root.write(path_of(number).trim_start_matches('/'), &form(text, "two"));
    }
    root.write("etc/tls.key", &format!("{MARK}two\n"));
    root.write(
        "etc/ordinary.conf",
        &format!("{}\nanother\n", ORDINARY.join("\n")),
    );
    let unit = format!("[Service]\nExecStart=/bin/true\nEnvironment=DB_PASSWORD={MARK}two\n");
    root.write("etc/systemd/system/forms.service", &unit);
    boot_loader(&root, "two");
    root
}

fn boot_loader(root: &TestRoot, ending: &str) {
    let line = arguments(ending).join(" ");
    root.write("proc/cmdline", &format!("root=UUID=1 {line} quiet\n"));
    root.write(
        "boot/loader/entries/ostree-1.conf",
        &format!("title a\nversion 1\nlinux /v\noptions root=UUID=1 {line} quiet\n"),
    );
    root.write("boot/grub2/grub.cfg", &format!("linux /v {line}\n"));
    root.write(
        "boot/grub2/grubenv",
        &format!("# GRUB Environment Block\nkernelopts=root=UUID=1 {line} quiet\nroot_password={MARK}{ending}\n"),
    );
}

/// What must be in no output.
fn reveals(text: &str) -> Option<String> {
    let mark = MARK.as_bytes();
    let mut forms = vec![
        MARK.get(..8).unwrap().to_owned(),
        MARK.get(9..).unwrap().to_owned(),
    ];
    // As base64, at each of the three offsets.
    for skip in 0..3 {
        let whole = mark.get(skip..).unwrap();
        let whole = whole.get(..whole.len() / 3 * 3).unwrap();
        forms.push(STANDARD.encode(whole));
    }
    for secret in [
        PIN.to_owned(),
        format!("{MARK}one\n"),
        format!("{MARK}two\n"),
    ] {
        let digest = Sha256::digest(secret.as_bytes());
        forms.push(
            digest
                .iter()
                .take(6)
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        );
    }
    forms.into_iter().find(|form| text.contains(form.as_str()))
}

fn judge(what: &str, text: &str) {
    assert!(!text.is_empty(), "{what} says nothing");
    if let Some(form) = reveals(text) {
        let at = text.find(&form).unwrap();
        let around: String = text
            .get(at.saturating_sub(300)..)
            .unwrap_or(text)
            .chars()
            .take(500)
            .collect();
        panic!("{what} shows {form}: ...{around}...");
    }
}

fn said(run: &Run) -> String {
    run.out() + &run.err()
}

fn unpacked(path: &Path) -> Vec<(String, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let mut all = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        all.push((name, text));
    }
    all
}

/// Everything that the recorder has stored, unpacked.
fn stored(root: &TestRoot) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for directory in ["var/lib/mco-rescue/recorder", "boot/mco-rescue"] {
        let Ok(entries) = fs::read_dir(root.path(directory)) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let mut text = Vec::new();
            let is_packed = ZlibDecoder::new(bytes.as_slice())
                .read_to_end(&mut text)
                .is_ok();
            let bytes = if is_packed { text } else { bytes };
            all.push((
                path.display().to_string(),
                String::from_utf8_lossy(&bytes).into_owned(),
            ));
        }
    }
    all
}

#[test]
fn no_form_of_a_secret_is_in_any_output() {
    let root = node();
    let other = root.config(&config("two"));
    for loud in [&[][..], &["-v"], &["--output", "json"]] {
        for args in [
            &["verify"][..],
            &["plan", "--files-only", other.path()],
            &["plan", "--files-only"],
            &["show"],
            &["show", other.path()],
            &["status"],
            &["keep"],
            &["doctor"],
            &["history"],
            &["diff"],
        ] {
            let all: Vec<&str> = args.iter().chain(loud).copied().collect();
            judge(&format!("{all:?}"), &said(&root.run(&all)));
        }
    }
    for args in [
        &["record"][..],
        &["history"],
        &["diff", "1", "2"],
        &["diff", "1", "2", "--output", "json"],
    ] {
        judge(&format!("{args:?}"), &said(&root.run(args)));
    }
    let all = stored(&root);
    assert!(all.len() > 4, "{}", all.len());
    for (name, text) in &all {
        judge(name, text);
    }
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("bundle.tar.gz");
    judge(
        "doctor --bundle",
        &said(&root.run(&["doctor", "--bundle", bundle.to_str().unwrap()])),
    );
    let pieces = unpacked(&bundle);
    assert!(pieces.len() > 6, "{}", pieces.len());
    for (name, text) in &pieces {
        judge(name, text);
    }
    // What is asked for is shown.
    let asked = root.run(&["verify", "--show-secrets"]).out();
    assert!(asked.contains(&format!("password={MARK}two")), "{asked}");
    judge(
        "apply",
        &said(&root.run(&["apply", "--yes", "--files-only", "-v", other.path()])),
    );
}

#[test]
fn names_paths_and_ordinary_lines_stay_where_a_secret_is_hidden() {
    let root = node();
    let text = root.run(&["verify"]).out();
    for part in [
        "/etc/forms/1.conf",
        "-password=(secret, 20 bytes)",
        "+password=(secret, 20 bytes)",
        "-another",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("/etc/ordinary.conf\n    (secret"), "{text}");
    let all = root.run(&["show", "--output", "json"]).ok().json();
    let shown = |path: &str| {
        let files = all["files"].as_array().unwrap().iter();
        files
            .clone()
            .find(|file| file["path"] == path)
            .unwrap()
            .clone()
    };
    assert!(shown("/etc/ordinary.conf")["sha256"].is_string());
    for path in ["/etc/pin", "/etc/tls.key", "/etc/forms/1.conf"] {
        assert!(shown(path)["sha256"].is_null(), "{path}");
    }
    let arguments = all["kernel_arguments"].to_string();
    assert!(
        arguments.contains("rd.luks.key=(secret, 20 bytes)"),
        "{arguments}"
    );
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("bundle.tar.gz");
    root.run(&["doctor", "--bundle", bundle.to_str().unwrap()]);
    let pieces = unpacked(&bundle);
    let piece = |name: &str| {
        &pieces
            .iter()
            .find(|(path, _)| path.ends_with(name))
            .unwrap()
            .1
    };
    let entries = piece("boot-entries.txt");
    for part in [
        "root=UUID=1",
        "rd.luks.key=(secret, 20 bytes)",
        "@192.0.2.1::3260",
        " quiet",
    ] {
        assert!(entries.contains(part), "{part} is not in {entries}");
    }
    // With the key of the recorder's digests, two bundles of one node can be compared.
    let recorded: Value = serde_json::from_str(piece("recorded.json")).unwrap();
    let files = recorded["files"].as_array().unwrap().iter();
    let pin = files
        .clone()
        .find(|file| file["path"] == "/etc/pin")
        .unwrap();
    assert!(
        pin["keyed_digest"]
            .as_str()
            .is_some_and(|digest| digest.len() == 8),
        "{pin}"
    );
}

#[test]
fn every_form_is_asked_about_before_it_is_kept() {
    let root = node();
    let all = root.run(&["keep", "--output", "json"]).exits(3).json();
    let withheld: Vec<&str> = all["not_kept"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["secret"] == true)
        .map(|one| one["subject"].as_str().unwrap())
        .collect();
    for (number, form) in SECRETS.iter().enumerate() {
        assert!(withheld.contains(&path_of(number).as_str()), "{form}");
    }
    let kept = all["kept"].as_array().unwrap();
    assert!(
        kept.iter()
            .any(|one| one["subject"] == "/etc/ordinary.conf"),
        "{kept:?}"
    );
}

#[test]
fn no_text_of_a_bundle_or_of_what_is_kept_turns_or_forges_a_line() {
    let root = TestRoot::new();
    root.write("etc/hostname", "worker-0\n");
    let unit = |text: &str| format!("[Unit]\nDescription={text}\n[Service]\nExecStart=/bin/true\n");
    let mut config = machine_config(
        "rendered-worker-1",
        json!({"systemd": {"units": [kubelet_unit(), {"name": "a.service", "contents": unit("a")}]}}),
    );
    config["spec"]["kernelArguments"] = json!([]);
    root.apply(&config);
    let turned = unit("a \u{202e}b\u{2066}c");
    root.write("etc/systemd/system/a.service", &turned);
    let release = root.read("usr/lib/os-release");
    root.write(
        "usr/lib/os-release",
        &(release + "HOME_URL=\"\u{1b}[2Jx\u{202e}y\"\n"),
    );
    root.write(
        "boot/loader/entries/ostree-1.conf",
        "title \u{1b}]0;x\u{7}\u{202e}\nversion 1\nlinux /v\noptions root=x\n",
    );
    let is_plain = |what: &str, text: &str| {
        for sign in ['\u{1b}', '\u{7}', '\u{202e}', '\u{2066}'] {
            assert!(!text.contains(sign), "{what} has {sign:?}: {text:?}");
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let bundle = dir.path().join("bundle.tar.gz");
    root.run(&["doctor", "--bundle", bundle.to_str().unwrap()]);
    for (name, text) in unpacked(&bundle) {
        is_plain(&name, &text);
    }
    let yaml = root.run(&["keep"]).ok().out();
    is_plain("keep", &yaml);
    let to = dir.path().join("kept.yaml");
    root.run(&["keep", "--to", to.to_str().unwrap()]).ok();
    let written = fs::read_to_string(&to).unwrap();
    is_plain("the file", &written);
    // What a reader of YAML gets is what the node has.
    let base = root.config(&config);
    let merged = root
        .run(&[
            "render",
            "worker",
            "--base",
            base.path(),
            to.to_str().unwrap(),
        ])
        .ok()
        .json();
    let units = merged["spec"]["config"]["systemd"]["units"]
        .as_array()
        .unwrap();
    assert!(
        units.iter().any(|unit| unit["contents"] == turned.as_str()),
        "{merged:#}"
    );
    for command in ["verify", "plan", "status", "doctor", "history"] {
        is_plain(command, &said(&root.run(&[command])));
        is_plain(command, &said(&root.run(&[command, "--output", "json"])));
    }
}
