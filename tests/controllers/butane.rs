//! `butane`: Butane configs of variant `openshift` in, MachineConfigs out.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{PROGRAM, Run, say, shared_data};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Begin of every input below.
const HEAD: &str = "variant: openshift\nversion: 4.18.0\nmetadata:\n  name: 99-worker-x\n  labels:\n    \
                    machineconfiguration.openshift.io/role: worker\n";

fn run(input: &str, args: &[&str]) -> Run {
    let mut child = Command::new(PROGRAM)
        .args(["butane", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output: Output = child.wait_with_output().unwrap();
    Run::of(output)
}

fn document(input: &str, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
    run(input, &args).json()
}

/// The entries of a report, as the program prints them.
fn report(document: &Value) -> Vec<String> {
    let entries = document["report"].as_array().unwrap().iter();
    entries
        .map(|entry| {
            let text = |key: &str| entry[key].as_str().unwrap();
            let (line, column) = (&entry["line"], &entry["column"]);
            format!(
                "{} at {}, line {line} col {column}: {}",
                text("kind"),
                text("path"),
                text("message")
            )
        })
        .collect()
}

fn write_files(dir: &Path, files: &Value) {
    for (name, text) in files.as_object().unwrap() {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text.as_str().unwrap()).unwrap();
        if name.ends_with(".sh") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
}

#[test]
fn every_captured_pair_comes_out_as_butane_wrote_it() {
    let Some(data) = shared_data("controllers/butane") else {
        return;
    };
    let mut seen = 0;
    for entry in fs::read_dir(data).unwrap() {
        let pair: Value =
            serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        let name = pair["name"].as_str().unwrap();
        let input = pair["input"].as_str().unwrap();
        let dir = TempDir::new().unwrap();
        let mut args = Vec::new();
        if pair["files_dir"].is_object() {
            write_files(dir.path(), &pair["files_dir"]);
            args.extend(["-d", dir.path().to_str().unwrap()]);
        }
        if pair["raw"] == true {
            args.push("--raw");
        }
        let got = document(input, &args);
        let wanted = pair["report"].as_array().unwrap().iter();
        let wanted: Vec<&str> = wanted
            .map(|entry| entry["text"].as_str().unwrap())
            .collect();
        assert_eq!(report(&got), wanted, "{name}");
        assert_eq!(got["error"], pair["error"], "{name}");
        assert_eq!(got["output"], pair["output"], "{name}");
        let text = run(input, &args);
        if let Some(output) = pair["output"].as_str() {
            assert_eq!(text.ok().out(), format!("{output}\n"), "{name}");
        } else {
            text.exits(1);
        }
        seen += 1;
    }
    say(&format!("{seen} pairs of Butane"));
    assert!(seen > 30, "{seen}");
}

/// An input below [`HEAD`], and the entries of its report.
type Refusal = (&'static str, &'static [&'static str]);

const REFUSALS: &[Refusal] = &[
    (
        "storage:\n  files:\n  - path: etc/x\n    contents:\n      inline: x\n",
        &["error at $.storage.files.0.path, line 9 col 11: path not absolute"],
    ),
    (
        "storage:\n  files:\n  - path: /etc//x\n    mode: 644\n",
        &[
            "warning at $.storage.files.0.mode, line 10 col 11: unreasonable mode would be reasonable if specified in \
             octal; remember to add a leading zero",
            "error at $.storage.files.0.mode, line 10 col 11: special mode bits are not supported in this spec version",
        ],
    ),
    (
        "storage:\n  files:\n  - mode: 0644\n    overwrite: true\n",
        &[
            "error at $.storage.files.0.path, line 9 col 5: path not specified",
            "error at $.storage.files.0.overwrite, line 10 col 16: overwrite must be false if source is unspecified",
        ],
    ),
    (
        "storage:\n  files:\n  - path: /etc/x\n  - path: /etc/x\n",
        &["error at $.storage.files.1, line 10 col 5: duplicate entry defined"],
    ),
    (
        "storage:\n  files:\n  - path: /etc/x\n    contents:\n      source: https://lab.test/x\n",
        &[
            "error at $.storage.files.0.contents.source, line 11 col 15: file contents source must be data URL in this spec version",
        ],
    ),
    (
        "storage:\n  files:\n  - path: /etc/x\n    append:\n    - inline: x\n",
        &[
            "error at $.storage.files.0.append, line 11 col 5: appending to files is not supported in this spec version",
        ],
    ),
    (
        "storage:\n  files:\n  - path: /etc/x\n    contents:\n      local: x\n",
        &[
            "error at $.storage.files.0.contents.local, line 11 col 14: local file paths are relative to a files directory \
             that must be specified with -d/--files-dir",
        ],
    ),
    (
        "storage:\n  files:\n  - path: /etc/x\n    contents:\n      inline: x\n      compression: xz\n      verification:\n        \
         hash: sha256-00\n",
        &[
            "error at $.storage.files.0.contents.compression, line 12 col 20: invalid compression method",
            "error at $.storage.files.0.contents.verification.hash, line 14 col 15: incorrect size for hash sum",
        ],
    ),
    (
        "storage:\n  files:\n  - path: /etc/x\n    user: {id: 1, name: core}\n",
        &["error at $.storage.files.0.user, line 10 col 11: cannot set both id and name"],
    ),
    (
        "storage:\n  trees:\n  - path: /etc\n",
        &["error at $.storage.trees.0, line 9 col 5: local is required"],
    ),
    (
        "storage:\n  filesystems:\n  - device: /dev/vdb\n    with_mount_unit: true\n",
        &[
            "error at $.storage.filesystems.0.format, line 9 col 5: format is required if with_mount_unit is true",
        ],
    ),
    (
        "passwd:\n  users:\n  - name: core\n    uid: 5\n    shell: /bin/sh\n",
        &[
            "error at $.passwd.users.0.shell, line 11 col 12: fields other than \"name\", \"ssh_authorized_keys\", and \
             \"password_hash\" (4.13.0+) are not supported in this spec version",
            "error at $.passwd.users.0.uid, line 10 col 10: fields other than \"name\", \"ssh_authorized_keys\", and \
             \"password_hash\" (4.13.0+) are not supported in this spec version",
        ],
    ),
    (
        "systemd:\n  units:\n  - name: x\n    contents: |\n      [Unit\n",
        &[
            "error at $.systemd.units.0.name, line 9 col 11: invalid systemd unit extension",
            "error at $.systemd.units.0.contents, line 10 col 15: invalid unit content: unable to find end of section",
        ],
    ),
    (
        "systemd:\n  units:\n  - name: x.service\n    contents: a\n    contents_local: b\n    dropins:\n    - name: y\n",
        &[
            "error at $.systemd.units.0.contents_local, line 11 col 21: only one of the following can be set: contents, \
             contents_local",
        ],
    ),
    (
        "systemd:\n  units:\n  - name: x.service\n    dropins:\n    - name: y\nstorage:\n  files:\n  - path: \
         /etc/systemd/system/z.service\n",
        &[
            "error at $.systemd.units.0.dropins.0.name, line 11 col 13: invalid systemd drop-in extension",
        ],
    ),
    (
        "systemd:\n  units:\n  - name: z.service\n    contents: '[Service]'\nstorage:\n  files:\n  - path: \
         /etc/systemd/system/z.service\n",
        &[
            "error at $.storage.files.0.path, line 13 col 11: path conflicts with systemd unit or dropin",
        ],
    ),
    (
        "openshift:\n  kernel_arguments: [a, b, a]\n",
        &["error at $.openshift.kernel_arguments.2, line 8 col 28: duplicate entry defined"],
    ),
    (
        "boot_device:\n  layout: s390x-virt\n  mirror:\n    devices: [/dev/vda]\n",
        &[
            "error at $.boot_device.layout, line 8 col 11: layout must be one of: aarch64, ppc64le, x86_64",
            "error at $.boot_device.mirror.devices, line 10 col 14: mirroring requires at least two devices",
            "error at $.boot_device.mirror.devices, line 10 col 14: mirroring requires at least two devices",
        ],
    ),
    (
        "grub:\n  users:\n  - name: root\n    password_hash: grub.pbkdf2.sha512.1\n",
        &[
            "error at $.grub.users, line 9 col 3: appending to files is not supported in this spec version",
        ],
    ),
    (
        "unknown: 1\nopenshift:\n  kernel-type: x\n",
        &[
            "warning at $.unknown, line 7 col 1: unused key unknown",
            "warning at $.openshift.kernel-type, line 9 col 3: unused key kernel-type",
        ],
    ),
];

#[test]
fn a_refusal_names_line_and_column_in_butanes_own_words() {
    for (input, wanted) in REFUSALS {
        let got = document(&format!("{HEAD}{input}"), &[]);
        assert_eq!(report(&got), *wanted, "{input}");
        let refused = wanted.iter().any(|line| line.starts_with("error"));
        assert_eq!(got["error"].is_string(), refused, "{input}: {got:#}");
        assert_eq!(got["output"].is_string(), !refused, "{input}");
    }
}

#[test]
fn the_first_error_of_an_input_says_what_to_do() {
    let table = [
        ("", "error parsing variant; must be specified"),
        ("# nothing\n", "error parsing variant; must be specified"),
        (
            "variant: openshift\nversion: 4.7.0\n",
            "No translator exists for variant openshift with version 4.7.0",
        ),
        (
            "variant: openshift\n",
            "error parsing version; must be a valid semver",
        ),
        (
            "variant: fcos\nversion: 1.5.0\n",
            "variant fcos is for another system",
        ),
        ("variant: [a]\n", "cannot unmarshal !!seq into string"),
        ("variant: 'x\n", "Error unmarshaling yaml: yaml: line"),
        (
            "variant: openshift\nversion: 4.18.0\nstorage: yes\n",
            "line 3: cannot unmarshal !!str `yes` into v0_5.Storage",
        ),
        (
            "variant: openshift\nversion: 4.18.0\nstorage:\n  files: []\n  files: []\n",
            "line 5: mapping key \"files\" already defined at line 4",
        ),
        (
            "variant: openshift\nversion: 4.18.0\nstorage:\n  files:\n  - mode: rwxr-xr-x-long\n",
            "line 5: cannot unmarshal !!str `rwxr-xr...` into int",
        ),
    ];
    for (input, wanted) in table {
        let run = run(input, &[]).exits(1);
        let text = run.err();
        assert!(text.contains(wanted), "{input:?}: {text}");
        assert!(run.out().is_empty(), "{input:?}");
    }
    let text = run("variant: fcos\nversion: 1.5.0\n", &[]).exits(1).err();
    assert!(
        text.contains("variant: openshift")
            && text.contains("machineconfiguration.openshift.io/role"),
        "{text}"
    );
}

#[test]
fn yaml_of_every_form_is_read_with_its_place() {
    let input = format!(
        "{HEAD}storage:\n  files:\n  - &first\n    path: /etc/a\n    mode: 0o600\n    overwrite: y\n    contents:\n      \
         inline: !!binary aGVsbG8=\n  - <<: *first\n    path: /etc/b\n  - path: /etc/c\n    contents: {{inline: 1.50}}\n  -\n"
    );
    let got = document(&input, &[]);
    let files = &got["machine_config"]["spec"]["config"]["storage"]["files"];
    assert_eq!(files[0]["contents"]["source"], "data:,hello", "{got:#}");
    assert_eq!(files[0]["mode"], 0o600);
    assert_eq!(files[0]["overwrite"], true);
    assert_eq!(files[1]["path"], "/etc/b");
    assert_eq!(files[1]["mode"], 0o600);
    assert_eq!(files[2]["contents"]["source"], "data:,1.50");
    assert_eq!(files.as_array().unwrap().len(), 3);
}

#[test]
fn warnings_refuse_only_with_strict() {
    let input = format!("{HEAD}unknown: 1\n");
    let text = run(&input, &[]).ok();
    assert_eq!(
        text.err(),
        "warning at $.unknown, line 7 col 1: unused key unknown\n"
    );
    assert!(
        text.out()
            .starts_with("# Generated by Butane; do not edit\n")
    );
    let strict = run(&input, &["--strict"]).exits(1);
    assert!(
        strict
            .err()
            .contains("Config produced warnings and --strict was specified"),
        "{}",
        strict.err()
    );
    assert!(strict.out().is_empty());
}

/// Versions that each release has, and the layout that a mirror of the boot disk needs from fcos 1.7 on.
#[test]
fn a_mirror_without_a_layout_is_warned_of_or_refused() {
    let mirror = "boot_device:\n  mirror:\n    devices: [/dev/sda, /dev/sdb]\n";
    let words = "boot_device.layout should be specified when boot_device.mirror is specified";
    for (version, kind) in [
        ("4.8.0", "warning"),
        ("4.18.0", "warning"),
        ("4.22.0", "warning"),
        ("5.0.0", "warning"),
        ("4.23.0-experimental", "error"),
        ("5.1.0-experimental", "error"),
    ] {
        let head = HEAD.replace("4.18.0", version);
        let input = format!("{head}{mirror}");
        let seen = document(&input, &[]);
        let found = report(&seen);
        let wanted = format!("{kind} at $.boot_device.mirror, line 9 col 5: {words}");
        assert!(found.contains(&wanted), "{version}: {found:?}");
        let code = i32::from(kind == "error");
        assert_eq!(run(&input, &[]).code(), code, "{version}");
        run(&input, &["--strict"]).exits(1);
        let whole = format!("{input}  layout: x86_64\n");
        let seen = report(&document(&whole, &[]));
        assert!(
            !seen.iter().any(|line| line.contains(words)),
            "{version}: {seen:?}"
        );
    }
}

#[test]
fn raw_output_is_the_ignition_config_alone() {
    let input = format!(
        "{HEAD}systemd:\n  units:\n  - name: x.service\n    contents: |\n      [Service]\n      A=<&>\n"
    );
    let output = run(&input, &["--raw"]).ok().out();
    let wanted = "{\"ignition\":{\"version\":\"3.4.0\"},\"systemd\":{\"units\":[{\"contents\":\"[Service]\\nA=\\u003c\\u0026\\u003e\\n\",\
                  \"name\":\"x.service\"}]}}\n";
    assert_eq!(output, wanted);
}

#[test]
fn raw_output_keeps_backslashes() {
    let input = format!(
        "{HEAD}systemd:\n  units:\n  - name: x.service\n    contents: |\n      [Service]\n      ExecStart=/bin/grep '\\bword\\b' C:\\fonts\n"
    );
    let output = run(&input, &["--raw"]).ok().out();
    let config: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        config["systemd"]["units"][0]["contents"],
        "[Service]\nExecStart=/bin/grep '\\bword\\b' C:\\fonts\n",
        "{output}"
    );
}

#[test]
fn trees_and_local_files_stay_within_their_directory() {
    let dir = TempDir::new().unwrap();
    let files = dir.path().join("files");
    write_files(
        &files,
        &json!({"tree/b.conf": "b\n", "tree/a/run.sh": "#!/bin/sh\n", "keys": "ssh-rsa A\r\n\nssh-rsa B", "plain": "x"}),
    );
    fs::write(dir.path().join("secret"), "secret").unwrap();
    symlink("../secret", files.join("out")).unwrap();
    symlink(dir.path().join("secret"), files.join("absolute")).unwrap();
    symlink("plain", files.join("in")).unwrap();
    let args = ["-d", files.to_str().unwrap()];
    let tree = format!("{HEAD}storage:\n  trees:\n  - local: tree\n    path: /etc/x\n");
    let got = document(&tree, &args);
    let listed = got["machine_config"]["spec"]["config"]["storage"]["files"]
        .as_array()
        .unwrap();
    let listed: Vec<_> = listed
        .iter()
        .map(|file| {
            (
                file["path"].as_str().unwrap(),
                file["mode"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        listed,
        [("/etc/x/a/run.sh", 0o755), ("/etc/x/b.conf", 0o644)]
    );

    let local = |name: &str| {
        let input = format!(
            "{HEAD}storage:\n  files:\n  - path: /etc/x\n    contents:\n      local: {name}\n"
        );
        document(&input, &args)
    };
    assert!(local("in")["output"].as_str().unwrap().contains("data:,x"));
    for (name, wanted) in [
        (
            "../secret",
            "local file path traverses outside the files directory",
        ),
        (
            "tree/../../secret",
            "local file path traverses outside the files directory",
        ),
        ("out", "the link leads to no file in the files directory"),
        (
            "absolute",
            "the link leads to no file in the files directory",
        ),
        ("missing", "no such file or directory"),
        ("/plain/x", "plain/x: "),
    ] {
        let got = local(name);
        let text = report(&got).join("\n");
        assert!(text.contains(wanted), "{name}: {text}");
        assert!(!got.to_string().contains("\"secret"), "{name}");
        assert!(got["output"].is_null(), "{name}");
    }

    for (name, wanted) in [
        (
            "..",
            "local file path traverses outside the files directory",
        ),
        ("plain", "root of tree must be a directory"),
        ("missing", "no such file or directory"),
    ] {
        let input = format!("{HEAD}storage:\n  trees:\n  - local: {name}\n");
        let text = report(&document(&input, &args)).join("\n");
        assert!(text.contains(wanted), "{name}: {text}");
    }
    // A link in a tree is a link of the config, which the operator refuses.
    let input = format!("{HEAD}storage:\n  trees:\n  - local: .\n");
    let text = report(&document(&input, &args)).join("\n");
    assert!(
        text.contains("error at $.storage.trees.0, line 9 col 5: links are not supported"),
        "{text}"
    );

    let keys =
        format!("{HEAD}passwd:\n  users:\n  - name: core\n    ssh_authorized_keys_local: [keys]\n");
    let got = document(&keys, &args);
    assert_eq!(
        got["machine_config"]["spec"]["config"]["passwd"]["users"][0]["sshAuthorizedKeys"],
        json!(["ssh-rsa A", "ssh-rsa B"])
    );
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_it() {
    let dir = TempDir::new().unwrap();
    let missing = run(HEAD, &["-d", dir.path().join("none").to_str().unwrap()]).exits(1);
    assert!(missing.err().contains("--files-dir"), "{}", missing.err());

    let large = fs::File::create(dir.path().join("large")).unwrap();
    large.set_len(17 << 20).unwrap();
    let input =
        format!("{HEAD}storage:\n  files:\n  - path: /etc/x\n    contents:\n      local: large\n");
    let got = document(&input, &["-d", dir.path().to_str().unwrap()]);
    assert!(report(&got)[0].contains("larger than 16 MiB"), "{got:#}");

    let file = dir.path().join("binary.bu");
    fs::write(&file, [0xff, 0xfe, 0]).unwrap();
    let output = Command::new(PROGRAM)
        .arg("butane")
        .arg(&file)
        .output()
        .unwrap();
    let text = Run::of(output).exits(1).err();
    assert!(
        text.contains("binary.bu") && text.contains("UTF-8"),
        "{text}"
    );
}

#[test]
fn disks_of_the_first_boot_are_laid_out() {
    let input = format!(
        "{}boot_device:\n  layout: aarch64\n  mirror:\n    devices: [/dev/vda, /dev/vdb]\n  luks:\n    tpm2: true\n    discard: \
         true\nstorage:\n  luks:\n  - name: data\n    device: /dev/vdc\n    clevis:\n      tang:\n      - url: http://t\n        \
         thumbprint: x\n  filesystems:\n  - device: /dev/mapper/data\n    format: xfs\n    path: /var/data\n    with_mount_unit: \
         true\nopenshift:\n  fips: true\n",
        HEAD.replace("4.18.0", "4.19.0")
    );
    let got = document(&input, &[]);
    let config = &got["machine_config"]["spec"]["config"];
    let partitions = &config["storage"]["disks"][1]["partitions"];
    assert_eq!(partitions[0]["label"], "reserved-2", "{got:#}");
    assert_eq!(partitions[1]["label"], "esp-2");
    let luks = &config["storage"]["luks"];
    assert_eq!(luks[0]["device"], "/dev/md/md-root");
    assert_eq!(luks[0]["discard"], true);
    assert_eq!(
        luks[1]["options"],
        json!(["--cipher", "aes-cbc-essiv:sha256"])
    );
    let unit = &config["systemd"]["units"][0];
    assert_eq!(unit["name"], "var-data.mount");
    let text = unit["contents"].as_str().unwrap();
    assert!(
        text.contains("\nOptions=_netdev\n") && text.ends_with("RequiredBy=remote-fs.target"),
        "{text}"
    );
}

/// Runs the program with a limit for the time of the processor, in seconds, and for its memory.
fn bounded(args: &[&str]) -> Run {
    let mut command = Command::new("prlimit");
    command.args(["--cpu=60", "--as=1500000000", PROGRAM, "butane"]);
    Run::of(command.args(args).output().unwrap())
}

#[test]
fn an_input_of_millions_of_keys_is_refused_soon() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input.bu");
    let keys: String = (0..2_000_000).map(|at| format!("    l{at}: x\n")).collect();
    fs::write(&input, format!("{HEAD}{keys}")).unwrap();
    let refused = bounded(&[input.to_str().unwrap()]).exits(1);
    let said = refused.err();
    assert!(said.contains("more than 250000 keys and values"), "{said}");
}

#[test]
fn many_unused_keys_and_large_trees_take_no_square_of_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input.bu");
    let keys: String = (0..100_000).map(|at| format!("k{at}: x\n")).collect();
    fs::write(&input, format!("{HEAD}{keys}")).unwrap();
    let run = bounded(&[input.to_str().unwrap()]).ok();
    assert!(
        run.err()
            .contains("$.k99999, line 100006 col 1: unused key k99999")
    );
    // Each of the limit's entries is looked up among those before it.
    fs::create_dir(dir.path().join("tree")).unwrap();
    for at in 0..19_000 {
        fs::write(dir.path().join(format!("tree/f{at}")), "").unwrap();
    }
    let tree = "storage:\n  trees:\n  - local: tree\n    path: /etc/x\n";
    fs::write(&input, format!("{HEAD}{tree}")).unwrap();
    let files = dir.path().to_str().unwrap();
    let run = bounded(&["-d", files, input.to_str().unwrap()]).ok();
    assert_eq!(run.out().matches("path: /etc/x/f").count(), 19_000);
}
