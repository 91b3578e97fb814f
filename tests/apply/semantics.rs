//! What `apply` does to a node: the daemon's semantics (originals, stale files, enablement, users, records),
//! each fact on a whole root.

use std::os::unix::fs::MetadataExt;

use crate::support::{self, Lacks, TestRoot, file, flat_run, is_root, machine_config, skip};
use serde_json::{Value, json};

const A: &str = "rendered-worker-a";
const B: &str = "rendered-worker-b";
const SERVICE: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";

fn files(name: &str, files: Value) -> Value {
    machine_config(name, json!({"storage": {"files": files}}))
}

fn units(name: &str, units: Value) -> Value {
    machine_config(name, json!({"systemd": {"units": units}}))
}

fn users(name: &str, user: Value) -> Value {
    machine_config(name, json!({"passwd": {"users": user}}))
}

/// The messages of blockers, with their subjects.
fn blockers(root: &TestRoot, config: &Value, flags: &[&str]) -> Vec<String> {
    notes(root, config, flags, "blockers")
}

fn notes(root: &TestRoot, config: &Value, flags: &[&str], key: &str) -> Vec<String> {
    let config = root.config(config);
    let args = [&["plan", config.path(), "--output", "json"], flags].concat();
    let plan = root.run(&args).json();
    let list = plan[key].as_array().unwrap();
    list.iter()
        .map(|n| {
            format!(
                "{}: {}",
                n["subject"].as_str().unwrap(),
                n["message"].as_str().unwrap()
            )
        })
        .collect()
}

fn says(list: &[String], piece: &str) -> bool {
    list.iter().any(|line| line.contains(piece))
}

#[test]
fn the_original_of_the_os_is_kept_and_comes_back() {
    let root = TestRoot::new();
    for place in ["etc/chrony.conf", "usr/etc/chrony.conf"] {
        root.write(place, "of the OS\n");
    }
    root.chmod("etc/chrony.conf", 0o640);
    let before = root.snapshot();
    root.apply(&files(
        A,
        json!([file("/etc/chrony.conf", 0o600, "ours\n")]),
    ));
    assert_eq!(root.read("etc/chrony.conf"), "ours\n");
    let orig = "etc/machine-config-daemon/orig/etc/chrony.conf.mcdorig";
    assert_eq!(
        (root.read(orig).as_str(), root.mode(orig)),
        ("of the OS\n", 0o640)
    );
    assert!(!root.exists("etc/machine-config-daemon/noorig/etc/chrony.conf.mcdnoorig"));
    root.apply(&files(B, json!([])));
    assert_eq!(
        root.snapshot()["etc/chrony.conf"],
        before["etc/chrony.conf"]
    );
    assert!(!root.exists(orig));
}

#[test]
fn a_file_without_original_is_stamped_and_goes_with_its_config() {
    let root = TestRoot::new();
    root.apply(&files(
        A,
        json!([
            file("/etc/new/x.conf", 0o644, "x"),
            file("/etc/kept", 0o644, "k")
        ]),
    ));
    let stamp = "etc/machine-config-daemon/noorig/etc/new/x.conf.mcdnoorig";
    assert_eq!((root.read(stamp).as_str(), root.mode(stamp)), ("", 0o644));
    root.apply(&files(B, json!([file("/etc/kept", 0o644, "k")])));
    assert!(!root.exists("etc/new/x.conf") && !root.exists(stamp));
    assert!(
        root.exists("etc/new"),
        "empty directories stay, as the daemon leaves them"
    );
    assert_eq!(root.read("etc/kept"), "k");
}

#[test]
fn a_file_of_unknown_origin_gets_no_stamp() {
    let root = TestRoot::new();
    root.write("usr/local/bin/tool", "somebody's\n");
    let config = files(A, json!([file("/usr/local/bin/tool", 0o755, "ours\n")]));
    assert!(says(
        &notes(&root, &config, &[], "notices"),
        "may have come with the OS"
    ));
    root.apply(&config);
    assert_eq!(root.read("usr/local/bin/tool"), "ours\n");
    assert!(!root.exists("etc/machine-config-daemon/noorig/usr/local/bin/tool.mcdnoorig"));
}

/// Nothing existed before the first run: its stamps settle that for every later one.
#[test]
fn a_stamped_file_is_not_a_doubt_in_later_runs() {
    let root = TestRoot::new();
    let paths: Vec<String> = (0..8).map(|n| format!("/etc/{n}.conf")).collect();
    let all = |text: &str| {
        let entries = paths.iter().map(|path| file(path, 0o644, text));
        json!(entries.collect::<Vec<_>>())
    };
    root.apply(&files(A, all("one")));
    for path in &paths {
        let stamp = format!("etc/machine-config-daemon/noorig{path}.mcdnoorig");
        assert!(root.exists(&stamp), "{stamp}");
    }
    let notices = notes(&root, &files(B, all("two")), &[], "notices");
    assert!(!says(&notices, "may have come with the OS"), "{notices:?}");
}

/// What is said of many files alike is one line, and a list with `-v`.
#[test]
fn files_of_unknown_origin_are_one_notice_with_their_number() {
    let root = TestRoot::new();
    let paths: Vec<String> = (0..8).map(|n| format!("/usr/local/bin/{n}")).collect();
    for path in &paths {
        root.write(path, "from elsewhere\n");
    }
    let entries = paths.iter().map(|path| file(path, 0o755, "ours\n"));
    let config = root.config(&files(A, json!(entries.collect::<Vec<_>>())));
    let said = |args: &[&str]| {
        let out = root.run(args).ok().out();
        let (_, notices) = out.split_once("Notices (").unwrap();
        notices.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let short = said(&["plan", config.path()]);
    assert_eq!(
        short.matches("may have come with the OS").count(),
        1,
        "{short}"
    );
    assert!(short.contains("/usr/local/bin/0 and 7 more may"), "{short}");
    assert!(short.contains("(-v lists them)"), "{short}");
    let long = said(&["plan", "-v", config.path()]);
    assert!(
        paths.iter().all(|path| long.contains(path.as_str())),
        "{long}"
    );
}

#[test]
fn originals_of_units_come_from_the_os_copy_below_usr() {
    let root = TestRoot::new();
    let dropin = "etc/systemd/system/crio.service.d/10-x.conf";
    root.write(dropin, "# edited\n");
    root.write(&format!("usr/{dropin}"), "# of the OS\n");
    let with = json!([{"name": "crio.service", "dropins": [{"name": "10-x.conf", "contents": "# ours\n"}]}]);
    root.apply(&units(A, with));
    assert_eq!(root.read(dropin), "# ours\n");
    assert_eq!(
        root.read(&format!("etc/machine-config-daemon/orig/{dropin}.mcdorig")),
        "# of the OS\n"
    );
    root.apply(&units(B, json!([])));
    assert_eq!(root.read(dropin), "# of the OS\n");
}

#[test]
fn what_is_never_deleted_and_never_overwritten_stays() {
    let root = TestRoot::new();
    let kept = [
        "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
        "/etc/kubernetes/kubelet-ca.crt",
        "/etc/docker/certs.d/host.example/ca.crt",
    ];
    let entries: Vec<Value> = kept
        .iter()
        .map(|path| file(path, 0o644, "first\n"))
        .collect();
    root.apply(&files(A, json!(entries)));
    // The daemon rotates this one by itself; the config's copy is old by then.
    root.write("etc/kubernetes/kubelet-ca.crt", "rotated\n");
    root.run(&["verify"]).ok();
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.read("etc/kubernetes/kubelet-ca.crt"), "rotated\n");
    root.apply(&files(B, json!([])));
    assert!(kept.iter().all(|path| root.exists(path)));
}

#[test]
fn a_file_that_has_become_a_drop_in_stays() {
    let root = TestRoot::new();
    let path = "/etc/systemd/system/a.service.d/10-x.conf";
    root.apply(&files(A, json!([file(path, 0o644, "[Unit]\n")])));
    let unit =
        json!([{"name": "a.service", "dropins": [{"name": "10-x.conf", "contents": "[Unit]\n"}]}]);
    root.apply(&units(B, unit));
    assert_eq!(root.read(path), "[Unit]\n");
    root.run(&["verify"]).ok();
}

#[test]
fn links_follow_the_install_section_when_it_changes() {
    let root = TestRoot::new();
    root.apply(&units(
        A,
        json!([{"name": "a.service", "enabled": true, "contents": SERVICE}]),
    ));
    let wants = "etc/systemd/system/multi-user.target.wants/a.service";
    assert_eq!(
        root.target(wants).as_deref(),
        Some("/etc/systemd/system/a.service")
    );
    let other = SERVICE.replace("multi-user", "graphical");
    root.apply(&units(
        B,
        json!([{"name": "a.service", "enabled": true, "contents": other}]),
    ));
    assert!(!root.exists(wants));
    assert!(root.exists("etc/systemd/system/graphical.target.wants/a.service"));
    root.apply(&units(
        A,
        json!([{"name": "a.service", "enabled": false, "contents": other}]),
    ));
    assert!(!root.exists("etc/systemd/system/graphical.target.wants/a.service"));
}

#[test]
fn presets_decide_where_the_config_does_not_and_only_for_new_or_changed_units() {
    let root = TestRoot::new();
    root.write(
        "usr/lib/systemd/system-preset/90-x.preset",
        "enable on.service\ndisable *\n",
    );
    let config = units(
        A,
        json!([{"name": "on.service", "contents": SERVICE}, {"name": "off.service", "contents": SERVICE}]),
    );
    root.apply(&config);
    let wants = |unit: &str| format!("etc/systemd/system/multi-user.target.wants/{unit}.service");
    assert!(root.exists(&wants("on")) && !root.exists(&wants("off")));
    // What an admin switches afterwards is his; the daemon does not touch unchanged units either.
    root.remove(&wants("on"));
    assert_eq!(
        root.run(&["plan", "--output", "json"]).json()["steps"],
        json!([])
    );
}

#[test]
fn masks_come_and_go() {
    let root = TestRoot::new();
    root.write("usr/lib/systemd/system/a.service", SERVICE);
    root.write("etc/systemd/system/a.service", "# an admin's own\n");
    root.apply(&units(A, json!([{"name": "a.service", "mask": true}])));
    assert_eq!(
        root.target("etc/systemd/system/a.service").as_deref(),
        Some("/dev/null")
    );
    root.run(&["verify"]).ok();
    root.apply(&units(
        B,
        json!([{"name": "a.service", "mask": false, "enabled": true}]),
    ));
    assert!(!root.exists("etc/systemd/system/a.service"));
    let link = "etc/systemd/system/multi-user.target.wants/a.service";
    assert_eq!(
        root.target(link).as_deref(),
        Some("/usr/lib/systemd/system/a.service")
    );
}

#[test]
fn a_unit_that_cannot_be_enabled_blocks_the_whole_apply() {
    let root = TestRoot::new();
    let bad = "[Service]\nExecStart=/bin/true\n[Install]\nAlias=wrong.socket\n";
    let config = units(
        A,
        json!([{"name": "a.service", "enabled": true, "contents": bad}]),
    );
    let before = root.everything();
    assert!(says(
        &blockers(&root, &config, &[]),
        "a.service cannot be enabled"
    ));
    let given = root.config(&config);
    root.run(&["apply", "--yes", given.path()]).exits(1);
    assert_eq!(root.everything(), before);
}

/// systemctl on the node expands them, so that its update does not fail.
#[test]
fn a_specifier_of_the_host_is_not_judged_here() {
    for specifier in ["%H", "%m", "%b", "%v"] {
        let text =
            format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={specifier}.target\n");
        let config = units(
            A,
            json!([{"name": "a.service", "enabled": true, "contents": text}]),
        );
        let said = blockers(&TestRoot::new(), &config, &[]);
        assert!(says(&said, "cannot be judged"), "{said:?}");
        assert!(!says(&said, "would fail"), "{said:?}");
    }
}

#[test]
fn links_of_a_removed_unit_do_not_dangle() {
    let root = TestRoot::new();
    root.apply(&units(
        A,
        json!([{"name": "a.service", "enabled": true, "contents": SERVICE}]),
    ));
    root.apply(&units(B, json!([])));
    assert!(!root.exists("etc/systemd/system/a.service"));
    assert!(!root.exists("etc/systemd/system/multi-user.target.wants/a.service"));
}

#[test]
fn links_that_older_releases_leaked_are_removed() {
    let root = TestRoot::new();
    let leaked = "etc/systemd/system/network-online.target.wants/ovs-configuration.service";
    root.link(leaked, "/etc/systemd/system/ovs-configuration.service");
    root.apply(&files(A, json!([])));
    assert!(!root.exists(leaked));
}

/// The daemon switches changed units only, so what the `Also=` of another unit did stays as the last change of either left it.
#[test]
fn an_unchanged_unit_switches_no_other_one() {
    let text = |also: &str| {
        format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n{also}")
    };
    let unit = |name: &str, enabled: bool, also: &str| json!({"name": name, "enabled": enabled, "contents": text(also)});
    let link = |name: &str| format!("etc/systemd/system/multi-user.target.wants/{name}");
    let stays = |root: &TestRoot, what: &str| {
        let before = root.snapshot();
        root.run(&["verify"]).ok();
        root.run(&["apply", "--yes"]).ok();
        assert!(root.snapshot() == before, "{what}");
    };
    let off = unit("a.service", false, "Also=b.service\n");
    let both = units(B, json!([off, unit("b.service", true, "")]));
    // B came later than A, and is on.
    let root = TestRoot::new();
    root.apply(&units(A, json!([off])));
    root.apply(&both);
    assert!(root.exists(&link("b.service")));
    stays(&root, "later");
    // Both came at once: what is to be off is switched last.
    let root = TestRoot::new();
    root.apply(&both);
    assert!(!root.exists(&link("b.service")));
    stays(&root, "at once");
    // A unit of the OS that somebody disabled; the `Also=` of an enabled unit names it.
    let root = TestRoot::new();
    root.write("usr/lib/systemd/system/v.service", &text(""));
    root.apply(&units(
        A,
        json!([unit("a.service", true, "Also=v.service\n")]),
    ));
    assert!(root.exists(&link("v.service")));
    root.remove(&link("v.service"));
    stays(&root, "off by hand");
    // What a unit asks for itself is repaired all the same.
    root.remove(&link("a.service"));
    root.run(&["verify"]).exits(3);
    root.run(&["apply", "--yes"]).ok();
    assert!(root.exists(&link("a.service")) && !root.exists(&link("v.service")));
    // Of a changed unit it counts; what the config has off is off in the end.
    let root = TestRoot::new();
    let off = unit("b.service", false, "");
    root.apply(&units(A, json!([unit("a.service", true, ""), off])));
    let on = unit("a.service", true, "Also=b.service\n");
    root.apply(&units(B, json!([on, off])));
    assert!(!root.exists(&link("b.service")));
    stays(&root, "a changed one");
}

/// A link of the two that older releases leaked, and the unit that it starts.
const LEAKED: [(&str, &str); 2] = [
    ("requires", "node-valid-hostname.service"),
    ("wants", "ovs-configuration.service"),
];

/// Units of 2023 asked for these links themselves, and their daemon left them.
#[test]
fn a_link_that_a_unit_asks_for_is_none_that_was_leaked() {
    for (kind, name) in LEAKED {
        let link = format!("etc/systemd/system/network-online.target.{kind}/{name}");
        let install = match kind {
            "wants" => "WantedBy",
            _ => "RequiredBy",
        };
        let text = |target: &str| {
            format!("[Service]\nExecStart=/bin/true\n[Install]\n{install}={target}\n")
        };
        let unit = |enabled: bool, target: &str| json!([{"name": name, "enabled": enabled, "contents": text(target)}]);
        let asks = units(A, unit(true, "network-online.target"));
        let root = TestRoot::new();
        root.apply(&asks);
        assert!(root.exists(&link), "{name} is started at boot");
        root.run(&["verify"]).ok();
        // Nothing of it is a leftover later.
        root.apply(&asks);
        root.run(&["apply", "--yes", "--allow-removals"]).ok();
        assert!(root.exists(&link), "{name} is still started at boot");
        // Once the unit asks for another place, the old link is.
        root.apply(&units(B, unit(true, "multi-user.target")));
        assert!(!root.exists(&link), "{name}");
        root.link(&link, &format!("/etc/systemd/system/{name}"));
        root.run(&["apply", "--yes"]).ok();
        assert!(
            !root.exists(&link),
            "{name}: a leftover goes with the next run"
        );
        // So it is where the unit is off.
        root.apply(&units(A, unit(false, "network-online.target")));
        root.link(&link, &format!("/etc/systemd/system/{name}"));
        root.run(&["apply", "--yes"]).ok();
        assert!(!root.exists(&link), "{name} is off");
    }
}

/// An essential unit moves from one target to another; one link of several goes; the config has it off.
#[test]
fn a_unit_that_is_still_started_at_boot_is_not_a_removal() {
    let unit = |name: &str, targets: &str, enabled: bool| {
        let text = format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={targets}\n");
        json!([{"name": name, "enabled": enabled, "contents": text}])
    };
    for name in [
        "kubelet.service",
        "sshd.service",
        "nodeip-configuration.service",
    ] {
        for (before, after) in [
            ("multi-user.target", "basic.target"),
            ("multi-user.target basic.target", "basic.target"),
        ] {
            let root = TestRoot::new();
            root.apply(&units(A, unit(name, before, true)));
            root.apply(&units(B, unit(name, after, true)));
            let link = |target: &str| format!("etc/systemd/system/{target}.wants/{name}");
            assert!(root.exists(&link("basic.target")), "{name}");
            assert!(!root.exists(&link("multi-user.target")), "{name}");
            // A link of somebody else, where the config has the unit in another place.
            root.link(
                &link("rescue.target"),
                &format!("/etc/systemd/system/{name}"),
            );
            root.run(&["apply", "--yes"]).ok();
            root.run(&["verify"]).ok();
        }
        let root = TestRoot::new();
        root.apply(&units(A, unit(name, "multi-user.target", false)));
        root.link(
            &format!("etc/systemd/system/multi-user.target.wants/{name}"),
            &format!("/etc/systemd/system/{name}"),
        );
        root.run(&["apply", "--yes"]).ok();
        root.run(&["verify"]).ok();
        // That it goes from the boot altogether is asked about.
        let root = TestRoot::new();
        root.apply(&units(A, unit(name, "multi-user.target", true)));
        let off = root.config(&units(B, unit(name, "multi-user.target", false)));
        let run = root.run(&["apply", "--yes", off.path()]);
        match name {
            "nodeip-configuration.service" => drop(run.ok()),
            _ => {
                let said = format!("{name} (not started at boot)");
                assert!(flat_run(&run.exits(1)).contains(&said), "{name}");
            }
        }
    }
}

#[test]
fn a_root_before_its_first_boot_gets_preset_lines_too() {
    let root = TestRoot::new();
    root.write("etc/machine-id", "uninitialized\n");
    root.write(
        "etc/systemd/system-preset/20-ignition.preset",
        "enable other.service\nenable a.service\n",
    );
    let config = json!([{"name": "a.service", "enabled": false, "contents": SERVICE}, {"name": "b.service", "enabled": true, "contents": SERVICE}]);
    root.apply(&units(A, config));
    let lines = root.read("etc/systemd/system-preset/20-ignition.preset");
    assert_eq!(
        lines,
        "enable other.service\ndisable a.service\nenable b.service\n"
    );
    assert_eq!(
        root.run(&["plan", "--output", "json"]).json()["steps"],
        json!([])
    );
}

#[test]
fn keys_and_password_of_core_are_set_and_nothing_else_in_shadow_changes() {
    let root = TestRoot::new();
    let shadow = "root:!locked:1::::::\ncore:*:19000:0:99999:7:::\nother:x:2::::::\n";
    root.write("etc/shadow", shadow);
    root.chmod("etc/shadow", 0);
    root.apply(&users(A, json!([{"name": "core", "passwordHash": "$6$s$h", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a", "ssh-rsa BBBB b"]}])));
    let keys = "home/core/.ssh/authorized_keys.d/ignition";
    assert_eq!(root.mode("etc/shadow"), 0);
    root.chmod("etc/shadow", 0o600);
    assert_eq!(
        root.read("etc/shadow"),
        shadow.replace("core:*:", "core:$6$s$h:")
    );
    assert_eq!(
        (root.read(keys).as_str(), root.mode(keys)),
        (
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a\nssh-rsa BBBB b\n",
            0o600
        )
    );
    for path in ["home/core/.ssh", "home/core/.ssh/authorized_keys.d", keys] {
        let meta = std::fs::metadata(root.path(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), root.core(), "{path}");
        assert!(meta.is_file() || root.mode(path) == 0o700, "{path}");
    }
}

#[test]
fn a_password_that_the_config_drops_is_locked_never_emptied() {
    let root = TestRoot::new();
    let key = json!([
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"
    ]);
    root.apply(&users(
        A,
        json!([{"name": "core", "passwordHash": "$6$s$h", "sshAuthorizedKeys": key}]),
    ));
    root.apply(&users(
        B,
        json!([{"name": "core", "sshAuthorizedKeys": key}]),
    ));
    assert!(root.read("etc/shadow").contains("core:*:19000"));
}

#[test]
fn a_password_that_no_config_set_is_left_alone() {
    let root = TestRoot::new();
    root.write("etc/shadow", "core:$6$by$hand:19000:0:99999:7:::\n");
    root.apply(&users(
        A,
        json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}]),
    ));
    assert!(root.read("etc/shadow").contains("$6$by$hand"));
}

#[test]
fn the_last_way_in_is_not_taken_away_unasked() {
    let root = TestRoot::new();
    root.apply(&users(A, json!([{"name": "core", "passwordHash": "$6$s$h", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}])));
    let none = users(B, json!([]));
    assert!(says(&blockers(&root, &none, &[]), "--allow-lockout"));
    // A key put there by hand is a way in.
    root.write(
        "home/core/.ssh/authorized_keys",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO by hand\n",
    );
    assert_eq!(blockers(&root, &none, &[]), Vec::<String>::new());
    root.remove("home/core/.ssh/authorized_keys");
    let given = root.config(&none);
    root.run(&["apply", "--yes", "--allow-lockout", given.path()])
        .ok();
    assert_eq!(root.read("home/core/.ssh/authorized_keys.d/ignition"), "");
    assert!(root.read("etc/shadow").contains("core:*:"));
}

#[test]
fn a_config_whose_keys_sshd_cannot_read_is_refused_where_core_could_log_in() {
    let root = TestRoot::new();
    let whole =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a";
    let with =
        |name: &str, key: &str| users(name, json!([{"name": "core", "sshAuthorizedKeys": [key]}]));
    root.apply(&with(A, whole));
    let cut_off = with(B, &whole[..60]);
    let refused = blockers(&root, &cut_off, &[]);
    assert!(says(&refused, "sshd cannot read its 1 line"), "{refused:?}");
    assert!(says(&refused, "--allow-lockout"), "{refused:?}");
    let given = root.config(&cut_off);
    root.run(&["apply", "--yes", "--allow-lockout", given.path()])
        .ok();
    // Nobody could log in before, so that this run takes nothing away.
    assert_eq!(
        blockers(&root, &with(A, &whole[..61]), &[]),
        Vec::<String>::new()
    );
}

#[test]
fn settings_of_sshd_that_would_keep_core_out_are_refused() {
    if !is_root() {
        return skip(Lacks::Root, "sshd's program has to belong to root");
    }
    let key = json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}]);
    let with = |name: &str, path: &str, text: &str| {
        let mut config = users(name, key.clone());
        config["spec"]["config"]["storage"] = json!({"files": [file(path, 0o600, text)]});
        config
    };
    let own = "/etc/ssh/sshd_config.d/10-own.conf";
    let node = || {
        let root = TestRoot::new();
        root.write(
            "etc/ssh/sshd_config",
            "Include /etc/ssh/sshd_config.d/*.conf\n",
        );
        root.write(
            "etc/ssh/sshd_config.d/40-ssh-key-dir.conf",
            "AuthorizedKeysCommand /usr/libexec/ssh-key-dir %u\nAuthorizedKeysCommandUser root\n",
        );
        root.write("usr/libexec/ssh-key-dir", "#!/bin/sh\n");
        root.chmod("usr/libexec/ssh-key-dir", 0o755);
        root.apply(&users(A, key.clone()));
        root
    };
    for (path, text, words) in [
        (
            "/etc/ssh/sshd_config",
            "PermitRootLogin no\nPasswordAuthentication no\n",
            "no AuthorizedKeysCommand names ssh-key-dir",
        ),
        (own, "AllowUsers auditor\n", "AllowUsers auditor"),
        (
            own,
            "AuthorizedKeysCommand none\n",
            "AuthorizedKeysCommand none",
        ),
        (
            own,
            "Match User x\nUsePAM no\n",
            "not allowed within a Match block",
        ),
        ("/etc/nologin", "", "only root may log in"),
    ] {
        let root = node();
        let config = with(B, path, text);
        let refused = blockers(&root, &config, &[]);
        assert!(says(&refused, "sshd would not let core in"), "{refused:?}");
        assert!(
            says(&refused, words) && says(&refused, "--allow-lockout"),
            "{refused:?}"
        );
        assert_eq!(
            blockers(&root, &config, &["--allow-lockout"]),
            Vec::<String>::new()
        );
        // The console stays.
        root.write("etc/shadow", "core:$6$by$hand:19000:0:99999:7:::\n");
        root.write(
            "etc/ssh/sshd_config.d/09-no.conf",
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        );
        assert_eq!(
            blockers(&root, &config, &[]),
            Vec::<String>::new(),
            "{text}"
        );
        assert!(
            says(
                &notes(&root, &config, &[], "notices"),
                "Only the console is left"
            ),
            "{text}"
        );
        // Where it is so already, the run takes nothing away.
        let given = root.config(&config);
        root.run(&["apply", "--yes", given.path()]).ok();
        let next = with("rendered-worker-c", path, &format!("# more\n{text}"));
        assert!(
            !says(
                &notes(&root, &next, &[], "notices"),
                "would not let core in"
            ),
            "{text}"
        );
    }
    let root = node();
    for text in [
        "AllowUsers core\n",
        "PermitRootLogin no\n",
        "Match Address 192.0.2.1\nDenyUsers core\n",
    ] {
        let config = with(B, own, text);
        assert_eq!(blockers(&root, &config, &[]), Vec::<String>::new());
        assert!(
            !says(&notes(&root, &config, &[], "notices"), "sshd"),
            "{text}"
        );
    }
}

/// Whether core can log in, by what is on disk alone.
fn can_log_in(root: &TestRoot) -> bool {
    let keys = ["authorized_keys", "authorized_keys.d/ignition"].map(|name| {
        std::fs::read_to_string(root.path(&format!("home/core/.ssh/{name}"))).unwrap_or_default()
    });
    let shadow = std::fs::read_to_string(root.path("etc/shadow")).unwrap_or_default();
    let password = shadow.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields[0] == "core" && fields.len() > 2).then(|| fields[1].to_owned())
    });
    keys.iter().any(|text| text.contains("ssh-ed25519"))
        || password.is_some_and(|hash| hash.starts_with("$6$"))
}

#[test]
fn whatever_shadow_is_like_no_run_takes_the_last_way_in() {
    let of_root = "root:*:19000:0:99999:7:::\n";
    let shadows = [
        (
            "a line for core",
            format!("{of_root}core:*:19000:0:99999:7:::\n"),
        ),
        (
            "a password by hand",
            format!("{of_root}core:$6$by$hand:19000::::::\n"),
        ),
        ("no line for core", of_root.to_owned()),
        ("a line with too few fields", format!("{of_root}core:*\n")),
        ("an empty file", String::new()),
        ("no file", "-".to_owned()),
    ];
    let key = json!([
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"
    ]);
    let next = [
        json!([{"name": "core", "passwordHash": "$6$s$h"}]),
        json!([{"name": "core", "passwordHash": "$6$s$h", "sshAuthorizedKeys": key}]),
        json!([{"name": "core", "passwordHash": "the password itself"}]),
        json!([{"name": "core", "sshAuthorizedKeys": ["# ssh-rsa in a comment"]}]),
        json!([{"name": "core", "sshAuthorizedKeys": key}]),
        json!([]),
    ];
    let (mut refused, mut done) = (0, 0);
    for (what, shadow) in &shadows {
        for next in &next {
            for by_hand in [false, true] {
                let root = TestRoot::new();
                root.apply(&users(
                    A,
                    json!([{"name": "core", "sshAuthorizedKeys": key}]),
                ));
                match shadow.as_str() {
                    "-" => root.remove("etc/shadow"),
                    text => root.write("etc/shadow", text),
                }
                if by_hand {
                    let text = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO by hand\n";
                    root.write("home/core/.ssh/authorized_keys", text);
                }
                assert!(can_log_in(&root));
                let given = root.config(&users(B, next.clone()));
                let run = root.run(&["apply", "--yes", given.path()]);
                let flat = run.out().split_whitespace().collect::<Vec<_>>().join(" ");
                let case = format!("{what}, {next}, by hand: {by_hand}: {flat}{}", run.err());
                match run.code() {
                    0 => done += 1,
                    1 => {
                        assert!(flat.contains("Use --allow-lockout"), "{case}");
                        // The refusal was right.
                        root.run(&["apply", "--yes", "--allow-lockout", given.path()]);
                        assert!(!can_log_in(&root), "{case}");
                        refused += 1;
                        continue;
                    }
                    // What cannot be set is a difference that stays.
                    3 => done += 1,
                    other => panic!("{other}: {case}"),
                }
                assert!(can_log_in(&root), "{case}");
            }
        }
    }
    // With a key by hand nothing is refused; else what leaves neither key nor password.
    assert_eq!((refused, done), (19, 53));
}

#[test]
fn ssh_directory_in_foreign_hands_is_given_back_with_what_is_in_it() {
    if !is_root() {
        return skip(Lacks::Root, "giving directories away needs root");
    }
    let root = TestRoot::new();
    root.write(
        "home/core/.ssh/authorized_keys",
        "ssh-ed25519 CCCC by hand\n",
    );
    root.apply(&users(
        A,
        json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a"]}]),
    ));
    let meta = std::fs::metadata(root.path("home/core/.ssh")).unwrap();
    assert_eq!(
        ((meta.uid(), meta.gid()), root.mode("home/core/.ssh")),
        (root.core(), 0o700)
    );
    assert!(root.exists("home/core/.ssh/authorized_keys"));
}

#[test]
fn an_empty_first_boot_record_makes_nothing_stale() {
    let root = TestRoot::new();
    let served = files(A, json!([file("/etc/old", 0o644, "old")]));
    root.write("etc/old", "old");
    root.write(
        "etc/machine-config-daemon/currentconfig",
        &machine_config(A, json!({})).to_string(),
    );
    let next = files(B, json!([file("/etc/new", 0o644, "new")]));
    assert!(says(
        &notes(&root, &next, &[], "notices"),
        "nothing is removed as stale"
    ));
    root.apply(&next);
    assert!(root.exists("etc/old"));
    // With the served copy of the same name beside it, there is an old side after all.
    root.write(
        "etc/machine-config-daemon/currentconfig",
        &machine_config(A, json!({})).to_string(),
    );
    root.write(
        "etc/mcs-machine-config-content.json",
        &serde_json::to_string_pretty(&served).unwrap(),
    );
    root.apply(&next);
    assert!(!root.exists("etc/old"));
}

#[test]
fn the_record_is_the_object_as_it_was_received() {
    let root = TestRoot::new();
    let text = r#"{ "kind":"MachineConfig",  "metadata": {"name":"rendered-worker-z", "uid":"1", "ownerReferences":[{"name":"worker"}]},
        "spec": {"config": {"storage": {"files": [ ]}, "ignition":{"version":"3.2.0"}}, "kernelType":"", "extensions":null} }"#;
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), format!("\n{text}\n")).unwrap();
    root.run(&["apply", "--yes", config.path().to_str().unwrap()])
        .ok();
    assert_eq!(root.read("etc/machine-config-daemon/currentconfig"), text);
    assert_eq!(root.mode("etc/machine-config-daemon/currentconfig"), 0o644);
    assert_eq!(root.read("etc/machine-config-daemon/currentimage"), "");
}

#[test]
fn a_layered_image_record_is_left_alone_and_the_kubeconfig_is_closed() {
    let root = TestRoot::new();
    root.write(
        "etc/machine-config-daemon/currentimage",
        "registry.example/layered@sha256:1\n",
    );
    root.chmod("etc/kubernetes/kubeconfig", 0o644);
    root.apply(&files(A, json!([])));
    assert_eq!(
        root.read("etc/machine-config-daemon/currentimage"),
        "registry.example/layered@sha256:1\n"
    );
    assert_eq!(root.mode("etc/kubernetes/kubeconfig"), 0o600);
}

#[test]
fn an_unreadable_record_is_said_and_replaced() {
    let root = TestRoot::new();
    root.write("etc/machine-config-daemon/currentconfig", "");
    assert!(
        root.run(&["verify"])
            .exits(1)
            .err()
            .contains("currentconfig")
    );
    root.apply(&files(A, json!([])));
    assert!(
        root.read("etc/machine-config-daemon/currentconfig")
            .contains(A)
    );
}

#[test]
fn owners_are_looked_up_in_the_root_and_unknown_ones_block() {
    let root = TestRoot::new();
    let mut entry = file("/etc/x", 0o640, "x");
    entry["group"] = json!({"name": "wheel"});
    if is_root() {
        root.apply(&files(A, json!([entry])));
        assert_eq!(std::fs::metadata(root.path("etc/x")).unwrap().gid(), 10);
    }
    entry["group"] = json!({"name": "nobody-has-this"});
    let said = blockers(&root, &files(B, json!([entry])), &[]);
    assert!(says(
        &said,
        "spec.config.storage.files[0]: failed to retrieve GroupID for group: nobody-has-this"
    ));
}

#[test]
fn a_change_of_the_os_is_refused_by_name_unless_only_files_are_wanted() {
    let root = TestRoot::new();
    root.apply(&files(A, json!([])));
    let mut next = files(B, json!([file("/etc/x", 0o644, "x")]));
    next["spec"]["osImageURL"] = json!("registry.example/os@sha256:1");
    next["spec"]["kernelArguments"] = json!(["nosmt"]);
    let said = blockers(&root, &next, &[]);
    assert!(says(&said, "spec.osImageURL") && says(&said, "spec.kernelArguments"));
    let given = root.config(&next);
    root.run(&["apply", "--yes", given.path()]).exits(1);
    assert!(!root.exists("etc/x"));
    root.run(&["apply", "--yes", "--files-only", given.path()])
        .ok();
    assert!(root.exists("etc/x"));
}

#[test]
fn a_hand_made_drift_is_repaired_and_nothing_else_is_touched() {
    let root = TestRoot::new();
    let config = machine_config(
        A,
        json!({
            "storage": {"files": [file("/etc/a", 0o644, "a\n"), file("/etc/b", 0o600, "b\n")]},
            "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": SERVICE}]},
        }),
    );
    root.apply(&config);
    let before = root.snapshot();
    let inode = |path: &str| std::fs::symlink_metadata(root.path(path)).unwrap().ino();
    let (b, record) = (
        inode("etc/b"),
        inode("etc/machine-config-daemon/currentconfig"),
    );
    root.write("etc/a", "edited\n");
    root.remove("etc/systemd/system/multi-user.target.wants/a.service");
    root.run(&["verify"]).exits(3);
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.snapshot(), before);
    assert_eq!(
        (
            inode("etc/b"),
            inode("etc/machine-config-daemon/currentconfig")
        ),
        (b, record)
    );
}

#[test]
fn on_a_live_root_rpm_is_asked_which_files_the_os_owns() {
    if !is_root() {
        return skip(Lacks::Root, "chroot needs root");
    }
    // A stub: it says of one path that a package owns it. The real rpm is asked in command/rpm.rs.
    let stub = "#include <stdio.h>\n#include <string.h>\nint main(int c, char **v) {\n\
        if (c > 2 && !strcmp(v[2], \"/usr/local/bin/owned\")) { puts(\"pkg-1-1\"); return 0; }\n\
        printf(\"file %s is not owned by any package\\n\", c > 2 ? v[2] : \"\"); return 1; }\n";
    let root = TestRoot::new();
    root.write("stub.c", stub);
    std::fs::create_dir_all(root.path("usr/bin")).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-static", "-o"])
        .arg(root.path("usr/bin/rpm"))
        .arg(root.path("stub.c"))
        .status();
    assert!(built.unwrap().success());
    // By another process: what we write ourselves cannot be run while another test's child holds it open.
    let mut install = std::process::Command::new("install");
    let install = install
        .arg(support::PROGRAM)
        .arg(root.path("usr/bin/mco-rescue"));
    assert!(install.status().unwrap().success());
    // Programs are started with this as their standard input.
    root.write("dev/null", "");
    for tool in ["owned", "foreign"] {
        root.write(&format!("usr/local/bin/{tool}"), "before\n");
    }
    let entries = json!([
        file("/usr/local/bin/owned", 0o755, "ours\n"),
        file("/usr/local/bin/foreign", 0o755, "ours\n")
    ]);
    root.write("config.json", &files(A, entries).to_string());
    std::fs::create_dir(root.path("proc")).unwrap();
    let apply = |first: &str| {
        let script = format!("{first} exec chroot . /usr/bin/mco-rescue apply --yes /config.json");
        let mut command = std::process::Command::new("unshare");
        let command = command.args(["--mount", "sh", "-c", &script]);
        let output = command.current_dir(root.dir()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    // If an update is at work is not known without the processes.
    let (code, said) = apply("");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("mount -t proc proc /proc"), "{said}");
    assert_eq!(root.read("usr/local/bin/owned"), "before\n");
    let (code, said) = apply("mount -t proc proc proc &&");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        root.read("etc/machine-config-daemon/orig/usr/local/bin/owned.mcdorig"),
        "before\n"
    );
    assert!(root.exists("etc/machine-config-daemon/noorig/usr/local/bin/foreign.mcdnoorig"));
}

#[test]
fn a_root_that_lost_its_record_is_settled_by_one_run_and_no_file_of_unknown_origin_is_called_ours()
{
    let root = TestRoot::new();
    let config = files(A, json!([file("/etc/a.conf", 0o644, "a\n")]));
    root.apply(&config);
    // Neither rpm nor the OS's copy of /etc can tell here whether the file came with the OS.
    let stamp = "etc/machine-config-daemon/noorig/etc/a.conf.mcdnoorig";
    assert!(root.exists(stamp));
    for gone in ["etc/machine-config-daemon", "var/lib/mco-rescue"] {
        std::fs::remove_dir_all(root.path(gone)).unwrap();
    }
    root.apply(&config);
    assert!(!root.exists(stamp));
    let file = root.config(&config);
    let plan = root.run(&["plan", file.path(), "--output", "json"]).ok();
    assert_eq!(plan.json()["steps"], json!([]));
    assert!(!root.exists(stamp));
}

#[test]
fn a_password_that_cannot_be_compared_is_named_with_its_reason() {
    let root = TestRoot::new();
    root.apply(&users(
        A,
        json!([{"name": "core", "passwordHash": "$6$salt$hash"}]),
    ));
    let verified = || root.run(&["verify"]).out().replace("\n", " ");
    assert!(!verified().contains("/etc/shadow"), "{}", verified());
    std::fs::write(root.path("etc/shadow"), b"core:\xff:19000::::::\n").unwrap();
    assert!(
        verified().contains("(/etc/shadow is not UTF-8 text)"),
        "{}",
        verified()
    );
    root.remove("etc/shadow");
    assert!(
        verified().contains("(/etc/shadow is missing)"),
        "{}",
        verified()
    );
}
