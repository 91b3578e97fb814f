//! Values of a document that become part of something on the node: each is refused with its place in the document,
//! or what comes of it is exactly what it should be.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::faults::{self, Scene, can_trace, demand, every, on_threads};
use crate::support::mounts::{mount, with_mounts};
use crate::support::{self, Lacks, Run, TestRoot, file, is_root, machine_config, say, skip};
use mco_rescue::base::kargs::Kargs;
use serde_json::{Value, json};

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
            let line = Kargs::from_entries(&[format!("a=\"x{value}y\"")]).to_string();
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
        skip(
            Lacks::root_or_program("useradd"),
            "making accounts needs root and shadow-utils",
        );
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
            let day = |shadow: String| {
                if config["passwd"].is_object() {
                    without_day(&shadow)
                } else {
                    shadow
                }
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

/// Paths that belong to this program or to the daemon, and those in their way.
const OWNED: &[&str] = &[
    "/var/lib/mco-rescue",
    "/var/lib/mco-rescue/marker",
    "/var/lib/mco-rescue/intent.json",
    "/var/lib/mco-rescue/journal.json",
    "/var/lib/mco-rescue/committed",
    "/var/lib/mco-rescue/status.json",
    "/var/lib/mco-rescue/awaited.json",
    "/var/lib/mco-rescue/stage/x",
    "/var/lib/mco-rescue/history/x",
    "/var/lib/mco-rescue/cache/x.json",
    "/var/lib/mco-rescue/own/deep/x",
    "/run/mco-rescue/x",
    "/etc/machine-config-daemon/currentconfig",
    "/etc/machine-config-daemon/currentimage",
    "/etc/machine-config-daemon/orig/etc/a.conf.mcdorig",
    "/etc/machine-config-daemon/noorig/etc/a.conf.mcdnoorig",
    "/etc/passwd",
    "/etc/group",
    "/etc/shadow",
    "/etc/gshadow",
];

fn storage(storage: Value) -> Value {
    machine_config("rendered-worker-1", json!({"storage": storage}))
}

#[test]
fn what_belongs_to_us_or_to_the_daemon_is_refused_by_name() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for path in OWNED {
        let entries = [
            ("files", file(path, 0o644, "x\n")),
            (
                "links",
                json!({"path": path, "target": "/etc/x", "overwrite": true}),
            ),
            ("directories", json!({"path": path, "mode": 0o755})),
        ];
        for (section, entry) in entries {
            for form in [storage, |storage| bare(json!({"storage": storage}))] {
                let mut parts = serde_json::Map::new();
                parts.insert(section.to_owned(), json!([entry]));
                let config = form(Value::Object(parts));
                let prefix = if config["spec"].is_object() {
                    "spec.config."
                } else {
                    ""
                };
                let place = format!("{prefix}storage.{section}[0]");
                cases += 1;
                if let Err(problem) = is_refused(&TestRoot::new(), &config, &place) {
                    wrong.push(format!("{path}: {problem}"));
                }
            }
        }
    }
    // Above them nothing may stand but a directory, and another name leads there too.
    for (path, link) in [
        ("/var/lib", None),
        ("/etc/machine-config-daemon", None),
        ("/run/mco-rescue", None),
        ("/srv/mco-rescue/marker", Some(("srv", "var/lib"))),
        (
            "/mcd/currentconfig",
            Some(("mcd", "etc/machine-config-daemon")),
        ),
    ] {
        let root = TestRoot::new();
        root.write("etc/machine-config-daemon/x", "");
        if let Some((name, target)) = link {
            root.link(name, target);
        }
        let entry = json!({"path": path, "target": "/etc/x", "overwrite": true});
        cases += 1;
        let config = storage(json!({"links": [entry]}));
        if let Err(problem) = is_refused(&root, &config, "spec.config.storage.links[0]") {
            wrong.push(format!("{path}: {problem}"));
        }
    }
    if is_root() && Path::new("/usr/sbin/useradd").exists() {
        let home = json!({"name": "a", "homeDir": "/var/lib/mco-rescue/history/a"});
        let config = bare(json!({"passwd": {"users": [home]}}));
        cases += 1;
        let refused = is_refused(&TestRoot::new(), &config, "passwd.users[0].homeDir");
        wrong.extend(refused.err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    say(&format!("{cases} entries at owned paths are refused"));
}

#[test]
fn what_follows_from_users_is_not_brought_as_a_file_too() {
    let users = json!({"users": [{"name": "core", "passwordHash": "$6$a", "sshAuthorizedKeys": ["ssh-ed25519 A"]}]});
    let keys = "/home/core/.ssh/authorized_keys.d/ignition";
    for (path, taken, flags) in [
        (keys, "var/home", &["--files-only"][..]),
        (
            "/var/home/core/.ssh/authorized_keys.d/ignition",
            "var/home",
            &[],
        ),
        ("/etc/shadow", "home", &["--allow-account-files"]),
    ] {
        let root = TestRoot::new();
        if taken == "var/home" {
            std::fs::create_dir_all(root.path("var")).unwrap();
            std::fs::rename(root.path("home"), root.path("var/home")).unwrap();
            root.link("home", "var/home");
        }
        let before = root.everything();
        let config = json!({"passwd": users, "storage": {"files": [file(path, 0o600, "x\n")]}});
        let config = root.config(&machine_config("rendered-worker-1", config));
        let args = [&["apply", "--yes", config.path()], flags].concat();
        let run = root.run(&args).exits(1);
        let said = run.out().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("spec.config.storage.files[0]: ") && said.contains("passwd.users"),
            "{said}"
        );
        assert_eq!(root.everything(), before);
    }
}

#[test]
fn an_account_file_as_a_whole_needs_a_word_and_owners_are_looked_up_in_it() {
    if !is_root() {
        return skip(Lacks::Root, "owners need root");
    }
    let root = TestRoot::new();
    let accounts = root.read("etc/passwd") + "svc:x:1500:1500::/:/sbin/nologin\n";
    let owned = json!({"path": "/etc/svc.conf", "mode": 0o600, "overwrite": true, "user": {"name": "svc"},
        "contents": {"source": "data:,x"}});
    let config = storage(json!({"files": [file("/etc/passwd", 0o644, &accounts), owned]}));
    is_refused(&root, &config, "spec.config.storage.files[0]").unwrap();
    let config = root.config(&config);
    let path = config.path();
    root.run(&["apply", "--yes", "--allow-account-files", path])
        .ok();
    assert_eq!(root.everything()["etc/svc.conf"].owner.0, 1500);
    root.run(&["verify", path]).ok();
}

#[test]
fn names_that_are_too_long_are_refused_by_place() {
    let name = |length: usize| "n".repeat(length);
    let unit = |length: usize, dropin: usize| {
        let dropin = json!({"name": name(dropin - 5) + ".conf", "contents": "[Unit]\n"});
        let name = name(length - 8) + ".service";
        let parts = json!([{"name": name, "contents": "[Unit]\n", "dropins": [dropin]}]);
        machine_config("rendered-worker-1", json!({"systemd": {"units": parts}}))
    };
    let one = |path: String| storage(json!({"files": [file(&path, 0o644, "x\n")]}));
    let of_bare = |path: String| bare(json!({"storage": {"files": [file(&path, 0o644, "x\n")]}}));
    let place = "spec.config.storage.files[0]";
    for (config, place) in [
        (one(format!("/etc/{}", name(246))), Some(place)),
        (one(format!("/etc/{}", name(245))), None),
        (one(format!("/etc/{}", name(256))), Some(place)),
        (one(format!("/etc/{}/x", name(256))), Some(place)),
        (
            of_bare(format!("/etc/{}", name(256))),
            Some("storage.files[0]"),
        ),
        (of_bare(format!("/etc/{}", name(255))), None),
        (unit(254, 20), Some("spec.config.systemd.units[0]")),
        (unit(253, 255), None),
        (unit(20, 256), Some("spec.config.systemd.units[0]")),
    ] {
        let root = TestRoot::new();
        match place {
            Some(place) => is_refused(&root, &config, place).unwrap(),
            None => {
                let config = root.config(&config);
                root.run(&["apply", "--files-only", "--yes", config.path()])
                    .ok();
                root.run(&["verify", config.path()]).ok();
            }
        }
    }
}

/// Every rendered config that is at hand, and where it is from.
fn real_configs() -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    for folder in ["rendered", "pairs", "controllers/base", "machineconfigs"] {
        let Some(folder) = support::shared_data(folder) else {
            continue;
        };
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "json" || e == "yaml") {
                    all.push(path);
                }
            }
        }
    }
    all.sort();
    all
}

/// No path or value of a config that the operator rendered is taken for one that must not be.
#[test]
fn no_real_config_is_refused_for_its_paths_or_values() {
    let words = [
        "must not be in a config",
        "is written for",
        "is the same as",
        "does not fit",
        "names no",
        "is not a unit name",
        "is not a password hash",
        "the name has",
    ];
    // Notices on values that mean something else than they seem to.
    let meant = [
        "is a decimal number",
        "of the decimal number",
        "is not a crypt(5) hash",
        "the kubelet does not start with this file",
        "and this machine is",
    ];
    let (mut looked_at, mut wrong) = (0, Vec::new());
    for path in real_configs() {
        let root = TestRoot::new();
        let text = path.to_str().unwrap();
        let run = root.run(&["plan", "--files-only", "--output", "json", text]);
        let Ok(plan) = serde_json::from_str::<Value>(&run.out()) else {
            continue;
        };
        looked_at += 1;
        let blockers = plan["blockers"].to_string();
        if let Some(word) = words.iter().find(|word| blockers.contains(*word)) {
            wrong.push(format!("{text}: {word}: {blockers}"));
        }
        let notices = plan["notices"].to_string();
        if let Some(word) = meant.iter().find(|word| notices.contains(*word)) {
            wrong.push(format!("{text}: {word}: {notices}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    say(&format!("{looked_at} real configs were planned"));
    assert!(looked_at > 0 || support::shared_data("rendered").is_none());
}

/// A root as OSTree systems have it: some directories are behind links.
fn with_links() -> TestRoot {
    let root = TestRoot::new();
    for (name, real, target) in [
        ("opt", "var/opt", "var/opt"),
        ("usr/local", "var/usrlocal", "../var/usrlocal"),
    ] {
        std::fs::create_dir_all(root.path(real)).unwrap();
        root.link(name, target);
    }
    std::fs::rename(root.path("home"), root.path("var/home")).unwrap();
    root.link("home", "var/home");
    root
}

/// Applies, then finds nothing to do.
fn is_applied_once(root: &TestRoot, config: &Value) -> Result<(), String> {
    let written = root.config(config);
    let path = written.path();
    let apply = root.run(&["apply", "--yes", path]);
    let verify = root.run(&["verify", path]);
    let plan = root.run(&["plan", "--output", "json", path]);
    let left = serde_json::from_str::<Value>(&plan.out()).unwrap_or_default();
    if (apply.code(), verify.code(), &left["steps"]) != (0, 0, &json!([])) {
        return Err(format!(
            "apply {}, verify {}: {}{}{}",
            apply.code(),
            verify.code(),
            apply.err(),
            verify.out(),
            left["steps"]
        ));
    }
    Ok(())
}

#[test]
fn a_new_directory_by_two_names_is_made_once() {
    let plain = |path: &str| file(path, 0o644, path);
    let directory = |path: &str, mode: u32| json!({"path": path, "mode": mode});
    let core = json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A"]}]});
    let cases = [
        json!({"storage": {"files": [plain("/opt/n/a"), plain("/var/opt/n/b")]}}),
        json!({"storage": {"files": [plain("/var/opt/n/m/a"), plain("/opt/n/m/b")]}}),
        json!({"storage": {"files": [plain("/usr/local/n/a"), plain("/var/usrlocal/n/b")]}}),
        json!({"storage": {"directories": [directory("/opt/n", 0o711)], "files": [plain("/var/opt/n/m/b")]}}),
        json!({"storage": {"directories": [directory("/var/opt/n", 0o711), directory("/opt/n/m", 0o700)],
            "files": [plain("/var/opt/n/m/b")]}}),
        json!({"storage": {"files": [plain("/opt/n/a")], "links": [
            {"path": "/var/opt/n/l", "target": "/etc/x"},
            {"path": "/var/opt/h", "target": "/var/opt/n/a", "hard": true}]}}),
        json!({"passwd": core, "storage": {"files": [plain("/var/home/core/.ssh/config")]}}),
        json!({"passwd": core, "storage": {"files": [plain("/var/home/core/.config/a"), plain("/home/core/.config/b")]}}),
    ];
    for config in cases {
        for form in [|config| machine_config("rendered-worker-1", config), bare] {
            if config["passwd"].is_object() && !is_root() {
                continue;
            }
            let root = with_links();
            let config = form(config.clone());
            is_applied_once(&root, &config).unwrap_or_else(|problem| panic!("{config}: {problem}"));
            for (path, entry) in root.snapshot() {
                let below = path.strip_prefix("var/home/core/.ssh").is_some();
                if below && is_root() && entry.kind == 'd' {
                    assert_eq!((entry.owner.0, entry.mode), (1000, 0o700), "{path}");
                }
            }
        }
    }
}

#[test]
fn a_hard_link_to_the_other_name_shares_the_new_file() {
    let root = with_links();
    root.write("opt/a", "old\n");
    let links = json!([{"path": "/opt/h", "target": "/var/opt/a", "hard": true}]);
    let config = storage(json!({"files": [file("/opt/a", 0o644, "new\n")], "links": links}));
    is_applied_once(&root, &config).unwrap();
    assert_eq!(root.read("var/opt/h"), "new\n");
}

#[test]
fn one_file_by_two_names_is_refused_with_both_places() {
    let one = |path: &str| file(path, 0o644, path);
    let link = |path: &str| json!({"path": path, "target": "/etc/x", "overwrite": true});
    let directory = |path: &str| json!({"path": path, "mode": 0o700});
    for (config, place, other) in [
        (
            json!({"files": [one("/opt/a"), one("/var/opt/a")]}),
            "files[1]",
            "storage.files[0]",
        ),
        (
            json!({"files": [one("/opt/n/a")], "links": [link("/var/opt/n/a")]}),
            "links[0]",
            "storage.files[0]",
        ),
        (
            json!({"files": [one("/opt/n")], "directories": [directory("/var/opt/n")]}),
            "directories[0]",
            "storage.files[0]",
        ),
        (
            json!({"directories": [directory("/opt/n"), directory("/var/opt/n")]}),
            "directories[1]",
            "storage.directories[0]",
        ),
    ] {
        for (prefix, config) in [
            ("spec.config.", storage(config.clone())),
            ("", bare(json!({"storage": config}))),
        ] {
            let root = with_links();
            let place = format!("{prefix}storage.{place}");
            is_refused(&root, &config, &place).unwrap();
            let config = root.config(&config);
            let plan = root.run(&["plan", "--output", "json", config.path()]);
            assert!(blockers(&plan).iter().any(|(_, said)| said.contains(other)));
        }
    }
}

#[test]
fn a_mask_beside_a_file_of_the_same_name_is_refused() {
    let root = TestRoot::new();
    let path = "/etc/systemd/system/x.service";
    let config = json!({
        "storage": {"files": [file(path, 0o644, "[Unit]\n")]},
        "systemd": {"units": [{"name": "x.service", "mask": true}]},
    });
    let config = machine_config("rendered-worker-1", config);
    is_refused(&root, &config, "spec.config.systemd.units[0]").unwrap();
}

/// What one name loses another brings: the file stays.
#[test]
fn a_file_that_changes_only_its_name_is_not_removed_as_stale() {
    let root = with_links();
    let config = |name: &str, path: &str| {
        machine_config(
            name,
            json!({"storage": {"files": [file(path, 0o644, "x\n")]}}),
        )
    };
    root.apply(&config("rendered-worker-1", "/opt/n/a"));
    let next = config("rendered-worker-2", "/var/opt/n/a");
    is_applied_once(&root, &next).unwrap();
    assert_eq!(root.read("var/opt/n/a"), "x\n");
}

#[test]
fn what_lies_below_a_link_that_gives_way_is_refused() {
    let root = with_links();
    let directory = json!({"path": "/opt", "mode": 0o755, "overwrite": true});
    let config = json!({"directories": [directory], "files": [file("/opt/n/a", 0o644, "x")]});
    is_refused(&root, &storage(config.clone()), "/opt/n/a").unwrap();
    is_refused(&root, &bare(json!({"storage": config})), "/opt/n/a").unwrap();
}

/// Trees of files, links and directories, each by one of its names: they are refused, or applied once.
#[test]
fn any_tree_by_mixed_names_is_refused_or_applied_once() {
    let mut state: u64 = 0x5eed;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut refused, mut applied) = (0, 0);
    for _ in 0..80 {
        let mut parts = json!({"files": [], "directories": [], "links": []});
        for number in 0..2 + random(4) {
            let top = ["/opt", "/var/opt", "/usr/local", "/var/usrlocal"][random(4) as usize];
            let deep = 1 + random(3);
            let names = (0..deep).map(|_| ["/a", "/b"][random(2) as usize]);
            let path = format!("{top}{}", names.collect::<String>());
            let path = if random(3) == 0 {
                format!("{path}{number}")
            } else {
                path
            };
            let (section, entry) = match random(4) {
                0 => ("directories", json!({"path": path, "mode": 0o700})),
                1 => ("links", json!({"path": path, "target": "/etc/x"})),
                _ => ("files", file(&path, 0o644, &path)),
            };
            parts[section].as_array_mut().unwrap().push(entry);
        }
        let config = match random(2) {
            0 => storage(parts),
            _ => bare(json!({"storage": parts})),
        };
        let root = with_links();
        let before = root.everything();
        let written = root.config(&config);
        let apply = root.run(&["apply", "--yes", written.path()]);
        if apply.code() == 1 {
            refused += 1;
            assert_eq!(root.everything(), before, "{config}");
        } else {
            applied += 1;
            assert_eq!(apply.code(), 0, "{config}: {}", apply.err());
            is_applied_once(&root, &config).unwrap_or_else(|problem| panic!("{config}: {problem}"));
        }
    }
    say(&format!("{applied} trees applied once, {refused} refused"));
    assert!(applied > 10 && refused > 10);
}

/// Hard-linked files of a bare config, of which one changes mode or owner: what is there, and what is wanted.
fn linked_files() -> Vec<(&'static str, TestRoot, Value)> {
    let keep = |path: &str, mode: u32| json!({"path": path, "mode": mode});
    let linked = || {
        let root = TestRoot::new();
        root.write("etc/a", "text\n");
        std::fs::hard_link(root.path("etc/a"), root.path("etc/b")).unwrap();
        root
    };
    let single = || {
        let root = TestRoot::new();
        root.write("etc/a", "text\n");
        root
    };
    let to_a =
        |path: &str| json!({"path": path, "target": "/etc/a", "hard": true, "overwrite": true});
    let config = |storage: Value| bare(json!({"storage": storage}));
    let mut all = vec![
        (
            "the same mode for both names",
            linked(),
            config(json!({"files": [keep("/etc/a", 0o600), keep("/etc/b", 0o600)]})),
        ),
        (
            "another mode for each name",
            linked(),
            config(json!({"files": [keep("/etc/a", 0o600), keep("/etc/b", 0o640)]})),
        ),
        (
            "a mode, and other contents at the other name",
            linked(),
            config(json!({"files": [keep("/etc/a", 0o600), file("/etc/b", 0o644, "new\n")]})),
        ),
        (
            "a mode, and a new hard link to it",
            single(),
            config(json!({"files": [keep("/etc/a", 0o600)], "links": [to_a("/etc/n/b")]})),
        ),
        (
            "a mode, and a hard link in place of something else",
            {
                let root = single();
                root.write("etc/b", "else\n");
                root
            },
            config(
                json!({"files": [keep("/etc/a", 0o600)], "links": [to_a("/etc/b"), to_a("/etc/c")]}),
            ),
        ),
        (
            "a mode, and a link in place of the other name",
            linked(),
            config(json!({"files": [keep("/etc/a", 0o600)],
                "links": [{"path": "/etc/b", "target": "/etc/x", "overwrite": true}]})),
        ),
    ];
    if is_root() && Path::new("/usr/sbin/usermod").exists() {
        let root = TestRoot::new();
        root.write("home/core/one", "text\n");
        std::os::unix::fs::chown(root.path("home/core/one"), Some(1000), Some(1000)).unwrap();
        std::fs::hard_link(root.path("home/core/one"), root.path("home/core/two")).unwrap();
        let user = json!({"name": "core", "uid": 1500});
        all.push((
            "a new owner for both names in a home",
            root,
            bare(json!({"passwd": {"users": [user]}})),
        ));
    } else {
        skip(
            Lacks::root_or_program("useradd"),
            "other ids need root and shadow-utils",
        );
    }
    all
}

#[test]
fn mode_and_owner_change_beside_other_names_of_the_same_file() {
    for (what, root, config) in linked_files() {
        is_applied_once(&root, &config).unwrap_or_else(|problem| panic!("{what}: {problem}"));
        let files = config["storage"]["files"].as_array();
        for entry in files.into_iter().flatten() {
            let mode = entry["mode"].as_u64().unwrap();
            let path = entry["path"].as_str().unwrap();
            assert_eq!(u64::from(root.mode(path)), mode, "{what}: {path}");
        }
        for link in config["storage"]["links"].as_array().into_iter().flatten() {
            let inode = |path: &Value| {
                let path = root.path(path.as_str().unwrap());
                std::fs::symlink_metadata(path).unwrap().ino()
            };
            if link["hard"] == json!(true) {
                assert_eq!(inode(&link["path"]), inode(&link["target"]), "{what}");
            }
        }
        if config["passwd"].is_object() {
            for name in ["home/core/one", "home/core/two"] {
                assert_eq!(root.everything()[name].owner.0, 1500, "{name}");
            }
        }
    }
}

/// Calls at which a change of names or attributes is cut off.
const CALLS: [&str; 4] = ["renameat", "renameat2", "fchmodat", "fchownat"];

#[test]
fn a_change_of_mode_beside_other_names_is_finished_or_undone_wherever_it_is_killed() {
    if !can_trace() {
        return;
    }
    let mut kills = 0;
    // The tools for accounts make such calls too.
    let files = linked_files().into_iter();
    for (what, root, config) in files.filter(|(_, _, config)| !config["passwd"].is_object()) {
        let scene = Scene::leading(&root, Some(config), &CALLS, &[]);
        let points = every(&scene.clean, &CALLS);
        kills += points.len();
        let problems = on_threads(&points, |(call, nth)| {
            let root = scene.killed_at(call, *nth);
            let mut problems = scene.torn(&root);
            problems.extend(demand(&root, &["recover"], 0));
            problems.extend(scene.between(&root));
            problems.extend(scene.applied_afterwards(&root));
            let at = format!("{what}, killed at {call} {nth}");
            problems.iter().map(|one| format!("{at}: {one}")).collect()
        });
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
    say(&format!("{kills} kills, all finished or undone"));
}

#[test]
fn an_id_that_means_none_to_the_kernel_is_refused() {
    let mut entry = file("/etc/a", 0o644, "x");
    let mut directory = json!({"path": "/etc/d"});
    let mut link = json!({"path": "/etc/l", "target": "/x"});
    for (section, entry) in [
        ("files", &mut entry),
        ("directories", &mut directory),
        ("links", &mut link),
    ] {
        for key in ["user", "group"] {
            let mut entry = entry.clone();
            for (id, is_right) in [(4_294_967_295_u64, false), (4_294_967_294, true)] {
                entry[key] = json!({"id": id});
                let mut parts = serde_json::Map::new();
                parts.insert(section.to_owned(), json!([entry]));
                let parts = Value::Object(parts);
                for (prefix, config) in [
                    ("spec.config.", storage(parts.clone())),
                    ("", bare(json!({"storage": parts}))),
                ] {
                    let root = TestRoot::new();
                    let place = format!("{prefix}storage.{section}[0].{key}.id");
                    if is_right {
                        is_applied_once(&root, &config).unwrap();
                    } else {
                        is_refused(&root, &config, &place).unwrap();
                    }
                }
            }
        }
    }
}

/// A root on which some directories are mounts of their own, and two directories are about to give way.
fn across_mounts(mounted: &[&str]) -> TestRoot {
    let root = TestRoot::new();
    for path in mounted {
        let at = root.path(path);
        std::fs::create_dir_all(&at).unwrap();
        let copy = TestRoot::empty();
        faults::copy_tree(&at, copy.dir());
        mount(&["-t", "tmpfs", "tmpfs", at.to_str().unwrap()]);
        faults::copy_tree(copy.dir(), &at);
    }
    for top in ["etc", "var/data"] {
        root.write(&format!("{top}/d/deep/file"), "kept\n");
        root.write(&format!("{top}/d/other"), "kept too\n");
        root.chmod(&format!("{top}/d/deep"), 0o710);
        root.link(&format!("{top}/d/link"), "other");
    }
    root
}

fn gives_way() -> Value {
    let link = json!({"path": "/var/data/d", "target": "/etc/x", "overwrite": true});
    bare(json!({"storage": {"files": [file("/etc/d", 0o644, "file\n")], "links": [link]}}))
}

/// A directory gives way to a file or link, and its contents come back with the run, whatever is a mount of its own.
#[test]
fn a_directory_that_gave_way_comes_back_across_mounts() {
    for mounted in [
        &["var"][..],
        &["etc"],
        &["etc", "var"],
        &["var/lib/mco-rescue"],
    ] {
        with_mounts(|| {
            let root = across_mounts(mounted);
            let before = root.snapshot();
            is_applied_once(&root, &gives_way()).unwrap();
            assert_eq!(root.read("etc/d"), "file\n");
            root.run(&["rollback", "--yes"]).ok();
            let wrong = faults::differences(&before, &root);
            assert!(wrong.is_empty(), "{mounted:?}: {}", wrong.join("\n"));
        });
    }
}

#[test]
fn a_killed_run_across_mounts_keeps_the_directory_that_gave_way() {
    if !can_trace() {
        return;
    }
    with_mounts(|| {
        let calls = ["renameat", "renameat2", "mkdirat", "unlinkat", "linkat"];
        let mut kills = 0;
        for mounted in [&["var"][..], &["etc", "var"]] {
            let root = across_mounts(mounted);
            let before = root.snapshot();
            let config = root.config(&gives_way());
            let args = ["apply", "--yes", config.path()];
            let clean = faults::traced(&root, &calls.join(","), &[], &args);
            assert_eq!(clean.code, Some(0), "{}", clean.err);
            let after = root.snapshot();
            for (call, nth) in every(&clean.calls, &calls) {
                let root = across_mounts(mounted);
                faults::kill(&root, call, nth, &args);
                kills += 1;
                let mut problems = demand(&root, &["recover"], 0);
                let unlike_new = faults::differences(&after, &root);
                let unlike_old = faults::differences(&before, &root);
                if !unlike_new.is_empty() {
                    problems.extend(unlike_old);
                }
                problems.extend(demand(&root, &args, 0));
                problems.extend(faults::differences(&after, &root));
                problems.extend(demand(&root, &["rollback", "--yes"], 0));
                problems.extend(faults::differences(&before, &root));
                problems.extend(faults::left_over(&root));
                let problems = problems.join("\n");
                assert!(problems.is_empty(), "{mounted:?}, {call} {nth}: {problems}");
            }
        }
        say(&format!("{kills} kills across mounts, nothing was lost"));
    });
}
