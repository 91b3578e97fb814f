//! Units whose names, files and directories are odd: what the daemon takes is taken, and what its update fails over is said.

use super::*;

const X: &str = "etc/systemd/system/x.target.wants";
const WANTED: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=x.target\n";
const VENDOR: &str = "usr/lib/systemd/system/v.service";

fn enabled() -> Value {
    units(
        A,
        json!([{"name": "a.service", "enabled": true, "contents": WANTED}]),
    )
}

#[test]
fn a_link_to_a_directory_takes_the_links_of_enabled_units() {
    // The target of the link, the directory, and where the link of the unit comes to be.
    let table = [
        ("y.target.wants", "etc/systemd/system/y.target.wants"),
        (
            "./../system/y.target.wants",
            "etc/systemd/system/y.target.wants",
        ),
        ("/etc/site", "etc/site"),
        ("../../../etc/site", "etc/site"),
        ("../../../../../../../etc/site", "etc/site"),
        ("/opt/site", "var/opt/site"),
    ];
    for (target, directory) in table {
        let root = root();
        root.write(&format!("{directory}/kept"), "");
        root.link("opt", "var/opt");
        root.link(X, target);
        applies_once(&root, &enabled());
        let link = format!("{directory}/a.service");
        let leads = root.target(&link);
        assert_eq!(
            leads.as_deref(),
            Some("/etc/systemd/system/a.service"),
            "{target}"
        );
        assert_eq!(root.target(X).as_deref(), Some(target));
        // What existed before is replaced, as systemctl does with a link of a wish.
        root.remove(&link);
        root.link(&link, "/usr/lib/systemd/system/other.service");
        root.run(&["verify"]).exits(3);
        applies_once(&root, &enabled());
        assert_eq!(root.target(&link), leads, "{target}");
        root.run(&["rollback", "--yes"]).ok();
        let other = root.target(&link);
        assert!(
            other.is_some_and(|other| other.ends_with("other.service")),
            "{target}"
        );
    }
}

#[test]
fn a_link_that_leads_to_no_directory_is_named_for_what_it_is() {
    let table = [
        ("nowhere", "is a link to \"nowhere\", which does not exist"),
        (
            "/opt/nowhere",
            "is a link to \"/opt/nowhere\", which does not exist",
        ),
        ("x.target.wants", "is a link that leads in a circle"),
        ("/etc/hosts", "is not a directory"),
        (
            THROUGH_A_FILE,
            "is a link, but something on its way is not a directory",
        ),
        (
            "/usr/lib/systemd/system/x.target.wants",
            "is a link to \"/usr/lib/systemd/system/x.target.wants\", which is read-only",
        ),
    ];
    for (target, words) in table {
        let root = root();
        root.write("usr/lib/systemd/system/x.target.wants/kept.service", "");
        root.link(X, target);
        let words = format!("unit a.service cannot be enabled: /{X} {words}. The daemon's");
        blocked(&root, &enabled(), &words);
    }
}

#[test]
fn a_drop_in_behind_a_link_to_a_directory_counts() {
    let dropin = json!([{"name": "10.conf", "contents": "[Install]\nWantedBy=x.target\n"}]);
    let config = units(
        A,
        json!([{"name": "v.service", "enabled": true, "dropins": dropin}]),
    );
    for (target, directory) in [
        ("site.d", "etc/systemd/system/site.d"),
        ("/etc/site", "etc/site"),
    ] {
        let root = root();
        root.write(VENDOR, "[Service]\nExecStart=/bin/true\n");
        root.write(&format!("{directory}/kept"), "");
        root.link("etc/systemd/system/v.service.d", target);
        applies_once(&root, &config);
        assert!(root.exists(&format!("{directory}/10.conf")), "{target}");
        assert!(root.exists(&format!("{X}/v.service")), "{target}");
        // Without the drop-in nothing asks for the unit.
        applies_once(
            &root,
            &units(B, json!([{"name": "v.service", "enabled": true}])),
        );
        assert!(!root.exists(&format!("{directory}/10.conf")), "{target}");
    }
    // A drop-in that existed before the config.
    let root = root();
    root.write(VENDOR, "[Service]\nExecStart=/bin/true\n");
    root.write("etc/site/10.conf", "[Install]\nWantedBy=x.target\n");
    root.link("etc/systemd/system/v.service.d", "/etc/site");
    applies_once(
        &root,
        &units(B, json!([{"name": "v.service", "enabled": true}])),
    );
    assert!(root.exists(&format!("{X}/v.service")));
}

#[test]
fn an_empty_drop_in_behind_a_link_is_judged_by_where_the_link_leads() {
    let at = "etc/systemd/system/v.service.d/10.conf";
    let config = units(
        A,
        json!([{"name": "v.service", "dropins": [{"name": "10.conf", "contents": ""}]}]),
    );
    let stat = |why: &str| Some(format!("stat /{at}: {why}"));
    let lstat = Some(format!("mode mismatch for file: \"/{at}\""));
    let table = [
        ("/nowhere", None),
        ("nowhere.conf", None),
        ("/etc/hosts", lstat.clone()),
        ("/etc/empty", lstat),
        ("10.conf", stat("too many levels of symbolic links")),
        (THROUGH_A_FILE, stat("not a directory")),
    ];
    for (target, sentence) in table {
        let root = root();
        root.write(VENDOR, SERVICE);
        root.write("etc/empty", "");
        root.apply(&config);
        root.link(at, target);
        match &sentence {
            None => assert_eq!(verdict(&root), None, "{target}"),
            Some(words) => {
                let said = verdict(&root).unwrap();
                assert!(said.contains(words), "{target}: {said}");
            }
        }
        applies_once(&root, &config);
        assert_eq!(root.target(at).is_some(), sentence.is_none(), "{target}");
    }
    // Through a link in the place of the directory.
    let root = root();
    root.write(VENDOR, SERVICE);
    root.apply(&config);
    root.link("etc/systemd/system/v.service.d", "/nowhere");
    assert_eq!(verdict(&root), None);
    root.remove("etc/systemd/system/v.service.d");
    root.write("etc/systemd/system/v.service.d", "a file\n");
    let words = stat("not a directory").unwrap();
    assert!(verdict(&root).unwrap().contains(&words));
    blocked(
        &root,
        &config,
        "cannot be examined: not a directory. The daemon's update",
    );
}

#[test]
fn names_and_directories_that_the_daemon_takes_are_taken() {
    let root = root();
    root.write(VENDOR, SERVICE);
    let tab = "1\t0.conf";
    let dropin = json!([{"name": tab, "contents": "[Unit]\nDescription=x\n"}]);
    applies_once(
        &root,
        &units(A, json!([{"name": "v.service", "dropins": dropin}])),
    );
    assert!(root.exists(&format!("etc/systemd/system/v.service.d/{tab}")));
    applies_once(&root, &units(B, json!([])));
    assert!(!root.exists(&format!("etc/systemd/system/v.service.d/{tab}")));

    for name in ["\u{e4}.service", "a+b.service", "a.snapshot"] {
        let unit = |on: bool| json!([{"name": name, "enabled": on, "contents": SERVICE}]);
        let root = self::root();
        applies_once(&root, &units(A, unit(false)));
        assert!(root.exists(&format!("etc/systemd/system/{name}")), "{name}");
        let words = "is not a valid unit name. The daemon's update would fail on this too";
        blocked(&root, &units(B, unit(true)), words);
    }

    for enabled in [Value::Null, json!(true), json!(false)] {
        let root = self::root();
        root.write("etc/systemd/system/v.service/kept", "");
        let unit = json!([{"name": "v.service", "enabled": enabled}]);
        applies_once(&root, &units(A, unit));
        assert!(root.exists("etc/systemd/system/v.service/kept"));
    }
}

#[test]
fn what_the_daemon_s_update_fails_over_is_a_blocker_with_its_reason() {
    let mount = "[Mount]\nWhat=/dev/sda\nWhere=/\n";
    let option = "-.mount begins with \"-\", so systemctl takes the name for an option";
    let masked = "v.service cannot be enabled: /etc/systemd/system/v.service is masked";
    let none = "v.service cannot be enabled: v.service does not exist";
    type Make = fn(&TestRoot);
    let table: [(Make, Value, &str); 7] = [
        (
            |_| {},
            json!({"name": "-.mount", "enabled": true, "contents": mount}),
            option,
        ),
        (
            |_| {},
            json!({"name": "-.mount", "enabled": false, "contents": mount}),
            option,
        ),
        (
            |root| root.write("etc/systemd/system/v.service", SERVICE),
            json!({"name": "v.service", "enabled": true, "mask": true}),
            masked,
        ),
        (
            |root| root.link("etc/systemd/system/v.service", "/dev/null"),
            json!({"name": "v.service", "enabled": true, "mask": true}),
            masked,
        ),
        (
            |root| root.link("etc/systemd/system/v.service", "/dev/null"),
            json!({"name": "v.service", "enabled": true, "mask": false}),
            none,
        ),
        (
            |root| root.link(VENDOR, "nowhere.service"),
            json!({"name": "v.service", "enabled": true}),
            "v.service cannot be enabled: v.service is an alias of a unit that does not exist",
        ),
        (
            |root| root.link(VENDOR, "/opt/nowhere.service"),
            json!({"name": "v.service", "enabled": true}),
            none,
        ),
    ];
    for (make, unit, words) in table {
        let root = root();
        make(&root);
        let words = format!("{words}. The daemon's update would fail on this too");
        blocked(&root, &units(A, json!([unit])), &words);
    }
    // A preset may fail, and a unit that has not changed is not switched.
    let root = root();
    let unit = json!({"name": "-.mount", "contents": mount});
    applies_once(&root, &units(A, json!([unit])));
    root.run(&["verify"]).ok();
}
