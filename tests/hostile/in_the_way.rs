//! Objects that the Machine Config Daemon never looks at, in forms that no program can use: a link to itself, a directory
//! where a file belongs, and so on. They are named, and keep no command from its work.

use std::fs;
use std::path::Path;

use crate::support::faults::traced;
use crate::support::scenes::can_disturb;
use crate::support::{TestRoot, file, machine_config};
use serde_json::json;

const PATHS: [&str; 7] = [
    "etc/machine-id",
    "etc/os-release",
    "etc/systemd/system-preset",
    "etc/systemd/system.control",
    "run/systemd/system",
    "sysroot",
    "etc/shadow",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    LinkToItself,
    Directory,
    File,
    Fifo,
}

const FORMS: [Form; 4] = [Form::LinkToItself, Form::Directory, Form::File, Form::Fifo];

/// Each with its exit code on a healthy node that lacks the config.
const COMMANDS: [(&[&str], i32); 4] = [
    (&["verify", "CONFIG"], 3),
    (&["plan", "CONFIG"], 0),
    (&["apply", "--yes", "CONFIG"], 0),
    (&["status"], 0),
];

fn config() -> serde_json::Value {
    let unit = json!({"name": "site.service", "enabled": true,
        "contents": "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"});
    machine_config(
        "rendered-worker-a",
        json!({"storage": {"files": [file("/etc/site.conf", 0o644, "a\n")]}, "systemd": {"units": [unit]}}),
    )
}

/// Puts an object of this form at a path. A regular file keeps the text of the one that was there.
fn put(root: &TestRoot, path: &str, form: Form) {
    let at = root.path(path);
    let text = fs::read(&at).unwrap_or_else(|_| b"text\n".to_vec());
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    match at.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&at).unwrap(),
        Ok(_) => fs::remove_file(&at).unwrap(),
        Err(_) => {}
    }
    let name = Path::new(path).file_name().unwrap();
    match form {
        Form::LinkToItself => std::os::unix::fs::symlink(name, &at).unwrap(),
        Form::Directory => fs::create_dir(&at).unwrap(),
        Form::File => fs::write(&at, text).unwrap(),
        Form::Fifo => nix::unistd::mkfifo(&at, nix::sys::stat::Mode::S_IRWXU).unwrap(),
    }
}

/// What has to be said of an object, if it is in the way of this command.
fn words_of(path: &str, form: Form) -> Option<String> {
    let is_file = ["etc/machine-id", "etc/os-release", "etc/shadow"].contains(&path);
    match form {
        Form::LinkToItself => Some("too many symbolic links encountered; it is skipped".to_owned()),
        Form::Directory if is_file => Some(format!("/{path}: is a directory; it is skipped")),
        _ => None,
    }
}

#[test]
fn an_object_that_the_daemon_does_not_read_is_named_and_keeps_no_command_from_its_work() {
    let config = config();
    for path in PATHS {
        for form in FORMS {
            for (args, code) in COMMANDS {
                let root = TestRoot::new();
                put(&root, path, form);
                let given = root.config(&config);
                let args: Vec<&str> = args
                    .iter()
                    .map(|&word| if word == "CONFIG" { given.path() } else { word })
                    .collect();
                let what = format!("{path} {form:?} {}", args[0]);
                let run = root.run(&args);
                assert_eq!(run.code(), code, "{what}: {}{}", run.out(), run.err());
                if let Some(words) = words_of(path, form).filter(|_| args[0] != "status") {
                    assert_eq!(
                        run.err().matches(&words).count(),
                        1,
                        "{what}: {}",
                        run.err()
                    );
                    assert!(
                        run.err().contains(&format!("/{path}")),
                        "{what}: {}",
                        run.err()
                    );
                }
                if args[0] == "apply" {
                    assert_eq!(root.read("etc/site.conf"), "a\n", "{what}");
                    root.run(&["verify", given.path()]).ok();
                }
            }
        }
    }
}

/// Denied to this process, the object is not known: the command names it, and shows or changes nothing, or goes on and
/// has named it.
#[test]
fn an_object_that_cannot_be_read_is_named() {
    if !can_disturb() {
        return;
    }
    let config = config();
    for path in PATHS.into_iter().filter(|path| *path != "etc/shadow") {
        for (args, healthy) in COMMANDS {
            let root = TestRoot::new();
            put(
                &root,
                path,
                if path.ends_with("machine-id") || path.ends_with("os-release") {
                    Form::File
                } else {
                    Form::Directory
                },
            );
            let given = root.config(&config);
            let args: Vec<&str> = args
                .iter()
                .map(|&word| if word == "CONFIG" { given.path() } else { word })
                .collect();
            let clean = traced(&root, "openat2", &[], &args);
            let meant = format!("\"{path}");
            let nth = clean
                .calls
                .iter()
                .position(|call| call.line.contains(&meant));
            let Some(nth) = nth else {
                continue;
            };
            let root = TestRoot::new();
            put(
                &root,
                path,
                if path.ends_with("machine-id") || path.ends_with("os-release") {
                    Form::File
                } else {
                    Form::Directory
                },
            );
            let fault = format!("openat2:error=EACCES:when={}", nth + 1);
            let run = traced(&root, "openat2", &[fault], &args);
            let what = format!("{path} {}: {:?} {}{}", args[0], run.code, run.out, run.err);
            assert!(run.err.contains(&format!("/{path}")), "{what}");
            assert!(
                run.err.to_lowercase().contains("permission denied"),
                "{what}"
            );
            assert!([Some(1), Some(healthy)].contains(&run.code), "{what}");
            if run.code == Some(1) {
                assert!(!root.exists("etc/site.conf"), "{what}");
            }
        }
    }
}
