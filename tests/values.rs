//! Values of a document that become part of something on the node: each is refused with its place in the document,
//! or what comes of it is exactly what it should be.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

mod support;

use std::path::Path;

use mco_rescue::kargs::Kargs;
use serde_json::{Value, json};
use support::{Run, TestRoot, file, is_root, machine_config, say};

/// What a shadow file has for `root`, and behind the password of `core`.
const TAIL: &str = "19000:0:99999:7:::";

fn bare(mut config: Value) -> Value {
    config["ignition"] = json!({"version": "3.4.0"});
    config
}

/// Places and messages of all blockers of a plan.
fn blockers(plan: &Run) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let plan = plan.json();
    let all = plan["blockers"].as_array().unwrap().iter();
    all.map(|one| (text(&one["subject"]), text(&one["message"])))
        .collect()
}

/// `plan` and `apply` refuse, name the place, and change nothing.
fn is_refused(root: &TestRoot, config: &Value, place: &str) -> Result<(), String> {
    let before = root.everything();
    let config = root.config(config);
    let plan = root.run(&["plan", "--files-only", "--output", "json", config.path()]);
    let apply = root.run(&["apply", "--files-only", "--yes", config.path()]);
    if (plan.code(), apply.code()) != (1, 1) {
        return Err(format!(
            "{place}: plan {}, apply {}: {}{}",
            plan.code(),
            apply.code(),
            apply.out(),
            apply.err()
        ));
    }
    // What the document itself forbids is said before there is a plan.
    let named = match serde_json::from_str::<Value>(&plan.out()) {
        Ok(_) => blockers(&plan).iter().any(|(subject, _)| subject == place),
        Err(_) => plan.err().contains(&format!("{place}: ")),
    };
    if !named {
        return Err(format!(
            "{place} is not named: {}{}",
            plan.out(),
            plan.err()
        ));
    }
    (root.everything() == before)
        .then_some(())
        .ok_or_else(|| format!("{place}: the node was changed"))
}

/// One place of a document that a value comes to.
struct Place {
    /// As messages name it.
    at: &'static str,
    /// The document with the value in it.
    config: fn(&str) -> Value,
    /// Whether the files that it comes to are right, once it is applied.
    is_right: fn(&TestRoot, &str) -> Result<(), String>,
}

fn core(user: Value) -> Value {
    let mut user = user;
    user["name"] = json!("core");
    let config = json!({"passwd": {"users": [user]}});
    machine_config("rendered-worker-1", config)
}

fn unit(unit: Value) -> Value {
    machine_config("rendered-worker-1", json!({"systemd": {"units": [unit]}}))
}

fn of_the_os(key: &str, value: Value) -> Value {
    let mut config = machine_config("rendered-worker-1", json!({}));
    config["spec"].as_object_mut().unwrap().remove("config");
    config["spec"][key] = value;
    config
}

fn same(found: String, wanted: String) -> Result<(), String> {
    (found == wanted)
        .then_some(())
        .ok_or_else(|| format!("{found:?} instead of {wanted:?}"))
}

/// Every line of every account file has as many fields as it needs, and no account came besides.
fn accounts_are_whole(root: &TestRoot, _: &str) -> Result<(), String> {
    for (path, fields, lines) in [
        ("etc/passwd", 7, 3),
        ("etc/shadow", 9, 3),
        ("etc/group", 4, 5),
        ("etc/gshadow", 4, 5),
    ] {
        let text = root.read(path);
        let odd = text.lines().find(|line| line.split(':').count() != fields);
        if let Some(odd) = odd {
            return Err(format!("{path}: {odd:?}"));
        }
        if text.lines().count() > lines {
            return Err(format!("{path} has too many lines: {text:?}"));
        }
    }
    Ok(())
}

fn nothing_to_look_at(_: &TestRoot, _: &str) -> Result<(), String> {
    Ok(())
}

const PLACES: &[Place] = &[
    Place {
        at: "spec.config.passwd.users[0].passwordHash",
        config: |value| core(json!({"passwordHash": format!("$6$s${value}")})),
        is_right: |root, value| {
            let core = format!("core:$6$s${value}:{TAIL}\n");
            same(root.read("etc/shadow"), format!("root:*:{TAIL}\n{core}"))
        },
    },
    // As the daemon does: an entry with a line break is two lines.
    Place {
        at: "spec.config.passwd.users[0].sshAuthorizedKeys[0]",
        config: |value| core(json!({"sshAuthorizedKeys": [format!("ssh-ed25519 {value}"), "b"]})),
        is_right: |root, value| {
            let keys = root.read("home/core/.ssh/authorized_keys.d/ignition");
            same(keys, format!("ssh-ed25519 {value}\nb\n"))
        },
    },
    Place {
        at: "spec.config.systemd.units[0].name",
        config: |value| {
            let contents = "[Install]\nWantedBy=multi-user.target\n";
            unit(
                json!({"name": format!("x{value}.service"), "enabled": true, "contents": contents}),
            )
        },
        is_right: |root, value| {
            let preset = root.read("etc/systemd/system-preset/20-ignition.preset");
            same(preset, format!("enable x{value}.service\n"))
        },
    },
    Place {
        at: "spec.config.systemd.units[0].dropins[0].name",
        config: |value| {
            let dropin = json!({"name": format!("{value}.conf"), "contents": "[Unit]\n"});
            unit(json!({"name": "x.service", "dropins": [dropin]}))
        },
        is_right: |root, value| {
            let path = format!("etc/systemd/system/x.service.d/{value}.conf");
            same(root.read(&path), "[Unit]\n".to_owned())
        },
    },
    Place {
        at: "spec.kernelArguments[1]",
        config: |value| {
            of_the_os(
                "kernelArguments",
                json!(["quiet", format!("a=\"x{value}y\"")]),
            )
        },
        is_right: |_, value| {
            let line = Kargs::of_entries(&[format!("a=\"x{value}y\"")]).to_string();
            let broken = line.contains(['\n', '\r', '\0']);
            same(broken.to_string(), "false".to_owned())
        },
    },
    Place {
        at: "spec.extensions[0]",
        config: |value| of_the_os("extensions", json!([format!("usbguard{value}")])),
        is_right: nothing_to_look_at,
    },
    Place {
        at: "spec.osImageURL",
        config: |value| of_the_os("osImageURL", json!(format!("registry.example/os{value}"))),
        is_right: nothing_to_look_at,
    },
    Place {
        at: "passwd.users[0].passwordHash",
        config: |value| bare_user(json!({"passwordHash": format!("$6$s${value}")})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.users[0].gecos",
        config: |value| bare_user(json!({"gecos": format!("A{value}B")})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.users[0].homeDir",
        config: |value| bare_user(json!({"homeDir": format!("/home/a{value}b")})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.users[0].shell",
        config: |value| bare_user(json!({"shell": format!("/bin/a{value}b")})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.users[0].primaryGroup",
        config: |value| bare_user(json!({"primaryGroup": format!("core{value}wheel")})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.users[0].groups[0]",
        config: |value| bare_user(json!({"groups": [format!("core{value}wheel")]})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.users[0].name",
        config: |value| bare(json!({"passwd": {"users": [{"name": format!("a{value}b")}]}})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.groups[0].name",
        config: |value| bare(json!({"passwd": {"groups": [{"name": format!("a{value}b")}]}})),
        is_right: accounts_are_whole,
    },
    Place {
        at: "passwd.groups[0].passwordHash",
        config: |value| {
            let group = json!({"name": "g", "passwordHash": format!("$6$s${value}")});
            bare(json!({"passwd": {"groups": [group]}}))
        },
        is_right: accounts_are_whole,
    },
];

fn bare_user(user: Value) -> Value {
    let mut user = user;
    user["name"] = json!("a");
    bare(json!({"passwd": {"users": [user]}}))
}

/// What a line-based file cannot hold, what only some can, and what each can.
const VALUES: &[&str] = &[
    "a\nb",
    "a\n",
    "\na:x:0:0::/:/bin/sh",
    "a\r\nb",
    "a\r",
    "a:b",
    "a\u{0}b",
    "a\u{1b}[2Jb",
    "a\u{7f}b",
    "a\u{85}b",
    "a b",
    "a\tb",
    "a,b",
    "a#b",
    "a",
];

/// Three accounts at most, after one was added; a first boot is still to come.
fn node() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/gshadow", "root:::\ncore:!::\nwheel:::core\n");
    root.write("etc/machine-id", "");
    root
}

#[test]
fn a_value_is_refused_by_its_place_or_its_line_is_right() {
    let with_tools = is_root() && Path::new("/usr/sbin/useradd").exists();
    if !with_tools {
        say("SKIP: making accounts needs root and shadow-utils");
    }
    let (mut refused, mut taken, mut wrong) = (0, 0, Vec::new());
    for place in PLACES {
        for value in VALUES {
            let config = (place.config)(value);
            if config["passwd"].is_object() && !with_tools {
                continue;
            }
            let root = node();
            let written = root.config(&config);
            let apply = root.run(&["apply", "--files-only", "--yes", written.path()]);
            let result = if apply.code() == 0 {
                taken += 1;
                (place.is_right)(&root, value).and_then(|()| {
                    let verify = root.run(&["verify", written.path()]);
                    same(verify.code().to_string(), "0".to_owned())
                })
            } else {
                refused += 1;
                is_refused(&root, &config, place.at).or_else(|problem| {
                    // The tools have the last word on names; they name the entry.
                    let said = apply.out() + &apply.err();
                    let entry = place.at.rsplit_once('.').unwrap_or_default().0;
                    let tools = ["add: ", "systemd.units: unit "];
                    let by_tool = tools.iter().any(|tool| said.contains(tool));
                    let by_tool = by_tool && said.contains(entry.split('[').next().unwrap());
                    (by_tool && apply.code() == 1).then_some(()).ok_or(problem)
                })
            };
            if let Err(problem) = result {
                wrong.push(format!("{} = {value:?}: {problem}", place.at));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    say(&format!("{refused} refused by place, {taken} applied"));
    assert!(refused > 0 && taken > 0);
}

/// A hash as the documents of every form bring it: nothing in there may come to `/etc/shadow` as it is.
#[test]
fn a_password_hash_that_breaks_its_line_is_refused_in_every_form() {
    let hash = "$6$salt$hash\n";
    let user = json!({"name": "core", "passwordHash": hash});
    let of_spec_2 = json!({"ignition": {"version": "2.2.0"}, "passwd": {"users": [user]}});
    let rendered = core(json!({"passwordHash": hash}));
    let mut old_spec = rendered.clone();
    old_spec["spec"]["config"] = of_spec_2.clone();
    let list = json!({"kind": "List", "apiVersion": "v1", "items": [rendered]});
    let bare_3 = bare(json!({"passwd": {"users": [user]}}));
    let group = json!({"name": "wheel", "passwordHash": hash});
    let of_group = bare(json!({"passwd": {"groups": [group]}}));
    let shape = "spec.config.passwd.users[0].passwordHash";
    for (config, place) in [
        (&rendered, shape),
        (&old_spec, shape),
        (&list, shape),
        (&bare_3, "passwd.users[0].passwordHash"),
        (&of_spec_2, "passwd.users[0].passwordHash"),
        (&of_group, "passwd.groups[0].passwordHash"),
    ] {
        let root = node();
        is_refused(&root, config, place).unwrap();
    }
    let yaml = "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: rendered-worker-1}\n\
                spec:\n  config:\n    ignition: {version: 3.4.0}\n    passwd:\n      users:\n      - name: core\n        \
                passwordHash: |\n          $6$salt$hash\n";
    let root = node();
    root.write("config.yaml", yaml);
    let before = root.everything();
    let path = root.path("config.yaml");
    let run = root.run(&["apply", "--yes", path.to_str().unwrap()]);
    let said = run.exits(1).out();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(shape) && said.contains("YAML"), "{said}");
    assert!(!said.contains("$6$salt"), "the hash is shown: {said}");
    assert_eq!(root.everything(), before);
}

/// A shadow file in which the line of core is broken: the lines around it, and what becomes of them.
const BROKEN: &[(&str, &str)] = &[
    // A line break at the end of the hash, as YAML's `|` makes it.
    ("core:$6$old\n:19000:0:99999:7:::\n", ""),
    ("core:$6$o\nl\nd:19000:0:99999:7:::\n", ""),
    ("core:$6$old\n\n:19000:0:99999:7:::\n", ""),
    // A colon in the hash.
    ("core:$6$o:ld:19000:0:99999:7:::\n", ""),
    // An account line that came with it.
    ("core:\nevil:x:19000:0:99999:7:::\n", ""),
    ("core:\nroot:x:19000:0:99999:7:::\n", ""),
    // A line that was put behind the broken one since.
    (
        "core:$6$old\n:19000:0:99999:7:::\ncore:$6$x:19000:0:99999:7:::\n",
        "",
    ),
    // The next account is whole, and stays.
    ("core:$6$old\n", "other:!:1::::::\n"),
];

#[test]
fn a_broken_line_of_core_is_found_and_made_whole() {
    let without_users = json!({"storage": {"files": [file("/etc/a.conf", 0o644, "a\n")]}});
    let with_keys = json!({"sshAuthorizedKeys": ["ssh-ed25519 A"]});
    let configs = [
        (Some("$6$new"), core(json!({"passwordHash": "$6$new"}))),
        (None, core(with_keys)),
        (None, machine_config("rendered-worker-1", without_users)),
        (
            Some("$6$new"),
            bare(json!({"passwd": {"users": [{"name": "core", "passwordHash": "$6$new"}]}})),
        ),
        (None, bare(json!({"passwd": {"users": [{"name": "core"}]}}))),
    ];
    let mut wrong = Vec::new();
    for (broken, after) in BROKEN {
        for (hash, config) in &configs {
            let root = TestRoot::new();
            let others = "other:x:1001:1001::/home/other:/bin/sh\n";
            root.write("etc/passwd", &(root.read("etc/passwd") + others));
            let head = format!("root:*:{TAIL}\n");
            root.write("etc/shadow", &format!("{head}{broken}{after}"));
            let written = root.config(config);
            let path = written.path();
            let found = root.run(&["verify", "--output", "json", path]);
            let run = root.run(&["apply", "--files-only", "--yes", path]);
            let again = root.run(&["verify", path]);
            let tail = if after.is_empty() { TAIL } else { "::::::" };
            let left = if broken.contains("$6$x") { "$6$x" } else { "*" };
            let hash = hash.unwrap_or(left);
            let shadow = root.read("etc/shadow");
            // The tools note the day.
            let day = |shadow: String| match config["passwd"].is_object() {
                true => without_day(&shadow),
                false => shadow,
            };
            let whole = format!("{head}core:{hash}:{tail}\n{after}");
            if (found.code(), run.code(), again.code()) != (3, 0, 0)
                || !found.out().contains("/etc/shadow")
                || day(shadow.clone()) != day(whole)
            {
                wrong.push(format!(
                    "{broken:?} {hash}: verify {}, apply {}, verify {}: {shadow:?} {}",
                    found.code(),
                    run.code(),
                    again.code(),
                    run.err()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A shadow file without the days of the last changes.
fn without_day(shadow: &str) -> String {
    let line = |line: &str| {
        let mut fields: Vec<&str> = line.split(':').collect();
        fields[2] = "";
        fields.join(":") + "\n"
    };
    shadow.lines().map(line).collect()
}
