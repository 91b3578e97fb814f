//! Units that are linked, masked, switched or taken away in odd ways: judged as the daemon and systemd judge them.

mod daemon;
mod odd;

use crate::support::{TestRoot, flat_run, machine_config, say};
use daemon::{Systemctl, links};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::{Value, json};

const A: &str = "rendered-worker-a";
const B: &str = "rendered-worker-b";
const SERVICE: &str = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
const WANTS: &str = "etc/systemd/system/multi-user.target.wants/a.service";
const OWN: &str = "etc/systemd/system/a.service";
const THROUGH_A_FILE: &str = "/etc/hosts/x";

fn units(name: &str, units: Value) -> Value {
    machine_config(name, json!({"systemd": {"units": units}}))
}

fn bare(units: Value) -> Value {
    json!({"ignition": {"version": "3.4.0"}, "systemd": {"units": units}})
}

fn root() -> TestRoot {
    let root = TestRoot::new();
    root.write("etc/hosts", "127.0.0.1 localhost\n");
    root
}

fn planned(root: &TestRoot, config: &Value) -> Value {
    let given = root.config(config);
    root.run(&["plan", given.path(), "--output", "json"]).json()
}

fn messages(plan: &Value, key: &str) -> Vec<String> {
    let notes = plan[key].as_array().unwrap().iter();
    notes
        .map(|note| note["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Applied without a word against it, clean after it, and nothing is left for a second run.
fn applies_once(root: &TestRoot, config: &Value) {
    let plan = planned(root, config);
    assert_eq!(messages(&plan, "blockers"), [""; 0], "{plan}");
    root.apply(config);
    let given = root.config(config);
    root.run(&["verify", given.path()]).ok();
    assert_eq!(planned(root, config)["steps"], json!([]));
}

/// Applied although one thing is skipped, which is said with these words.
fn applies_with(root: &TestRoot, config: &Value, words: &str) {
    let said = messages(&planned(root, config), "notices");
    assert!(said.iter().any(|said| said.contains(words)), "{said:?}");
    applies_once(root, config);
}

/// Blocked with these words, and nothing changes.
fn blocked(root: &TestRoot, config: &Value, words: &str) {
    let said = messages(&planned(root, config), "blockers");
    assert!(said.iter().any(|said| said.contains(words)), "{said:?}");
    let before = root.everything();
    let given = root.config(config);
    root.run(&["apply", "--yes", given.path()]).exits(1);
    assert_eq!(root.everything(), before);
}

/// The daemon's own sentence about what was applied last.
fn verdict(root: &TestRoot) -> Option<String> {
    let run = root.run(&["verify", "--output", "json"]);
    let said = run.json();
    let drifts = said["drifts"].as_array().unwrap().iter();
    let mut sentences = drifts.filter_map(|drift| drift["daemon"].as_str().map(str::to_owned));
    sentences.next()
}

#[test]
fn a_link_through_a_foreign_file_is_left_alone() {
    let places = [
        "etc/systemd/system/zz.service",
        "etc/systemd/system/multi-user.target.wants/zz.service",
        "etc/systemd/system/zz.service.d/10-x.conf",
        "etc/systemd/system/a.service.d",
        "etc/systemd/system/x.target.wants",
        "usr/lib/systemd/system/zz.service",
        "run/systemd/system/zz.service",
    ];
    let long = format!("/{}/x", "a".repeat(300));
    for place in places {
        for target in [
            THROUGH_A_FILE,
            "/etc/hosts/..",
            "../../../etc/hosts/x/../y",
            &long,
        ] {
            let root = root();
            root.link(place, target);
            let config = units(
                A,
                json!([{"name": "a.service", "enabled": true, "contents": SERVICE}]),
            );
            applies_once(&root, &config);
            assert_eq!(root.target(place).as_deref(), Some(target), "{place}");
            assert!(root.exists(WANTS), "{place}");
        }
    }
}

#[test]
fn a_link_through_a_file_keeps_systemctl_from_disabling_and_is_named() {
    for target in [THROUGH_A_FILE, &format!("/{}", "a".repeat(300))] {
        let root = root();
        root.write("usr/lib/systemd/system/a.service", SERVICE);
        root.link(WANTS, "/usr/lib/systemd/system/a.service");
        root.link("etc/systemd/system/zz.service", target);
        let config = units(A, json!([{"name": "a.service", "enabled": false}]));
        let words = "unit a.service cannot be disabled: /etc/systemd/system/zz.service is a link";
        blocked(&root, &config, words);
        root.remove("etc/systemd/system/zz.service");
        applies_once(&root, &config);
        // systemctl is not called again for a unit that has not changed.
        root.link("etc/systemd/system/zz.service", target);
        root.link(WANTS, "/usr/lib/systemd/system/a.service");
        let words = "/etc/systemd/system/zz.service is a link";
        applies_with(&root, &config, words);
        assert!(!root.exists(WANTS));
    }
}

#[test]
fn our_own_links_that_lead_through_a_file_are_put_right() {
    let config = units(
        A,
        json!([{"name": "a.service", "enabled": true, "contents": SERVICE,
            "dropins": [{"name": "10-x.conf", "contents": "[Unit]\n"}]}]),
    );
    let link = |path: &str| format!("mode mismatch for file: \"/{path}\"");
    let dropin = "etc/systemd/system/a.service.d/10-x.conf";
    let own = [(OWN, Some(link(OWN))), (dropin, Some(link(dropin)))];
    for (path, sentence) in own.into_iter().chain([(WANTS, None)]) {
        let root = root();
        root.apply(&config);
        root.remove(path);
        root.link(path, THROUGH_A_FILE);
        match sentence {
            Some(sentence) => assert!(verdict(&root).unwrap().contains(&sentence)),
            None => assert_eq!(verdict(&root), None),
        }
        applies_once(&root, &config);
        assert_ne!(root.target(path).as_deref(), Some(THROUGH_A_FILE), "{path}");
    }
}

#[test]
fn a_unit_is_preset_without_the_drop_ins_that_go_with_it() {
    let root = root();
    root.write("usr/lib/systemd/system/a.service", SERVICE);
    let dropin = "[Install]\nWantedBy=\nWantedBy=x.target\n";
    root.apply(&units(
        A,
        json!([{"name": "a.service", "enabled": true, "dropins": [{"name": "10-x.conf", "contents": dropin}]}]),
    ));
    assert!(root.exists("etc/systemd/system/x.target.wants/a.service"));
    assert!(!root.exists(WANTS));
    applies_once(&root, &units(B, json!([])));
    assert_eq!(
        root.target(WANTS).as_deref(),
        Some("/usr/lib/systemd/system/a.service")
    );
}

#[test]
fn a_unit_that_loses_a_drop_in_is_enabled_without_it_at_once() {
    let dropin = "[Install]\nWantedBy=\nWantedBy=x.target\n";
    let with = json!([{"name": "10-x.conf", "contents": dropin}]);
    let without = [
        json!([]),
        json!([{"name": "20-y.conf", "contents": "[Unit]\n"}]),
    ];
    for without in without {
        for contents in [None, Some(SERVICE)] {
            let root = root();
            root.write("usr/lib/systemd/system/a.service", SERVICE);
            let unit = |dropins: &Value| json!([{"name": "a.service", "enabled": true, "contents": contents, "dropins": dropins}]);
            root.apply(&units(A, unit(&with)));
            assert!(!root.exists(WANTS));
            applies_once(&root, &units(B, unit(&without)));
            assert!(root.exists(WANTS), "{without} {contents:?}");
        }
    }
}

#[test]
fn a_mask_may_be_written_in_any_way_that_leads_to_dev_null() {
    let config = units(
        A,
        json!([{"name": "a.service", "mask": true, "contents": SERVICE}]),
    );
    let ways = [
        "/dev/null",
        "//dev//null",
        "../../../dev/null",
        "../../../../../../dev/null",
        "/dev/./null",
        "/dev/../dev/null",
        "one.service",
        "/etc/dir/system/one.service",
    ];
    for way in ways {
        let root = root();
        root.apply(&config);
        root.remove(OWN);
        root.link(OWN, way);
        root.link("etc/systemd/system/one.service", "two.service");
        root.link("etc/systemd/system/two.service", "../../../dev/null");
        root.link("etc/dir", "systemd");
        assert_eq!(verdict(&root), None, "{way}");
        root.run(&["verify"]).ok();
        assert_eq!(planned(&root, &config)["steps"], json!([]), "{way}");
    }
}

#[test]
fn what_does_not_mask_is_reported_as_the_daemon_tells_it() {
    let path = "/etc/systemd/system/a.service";
    let evaluating = |why: &str| {
        format!("state validation: error while evaluation symlink for path \"{path}\": {why}")
    };
    let missing = |at: &str| evaluating(&format!("lstat {at}: no such file or directory"));
    let leads = |to: &str| {
        format!(
            "state validation: invalid unit masked setting. path: \"{path}\"; expected: /dev/null; received: {to}"
        )
    };
    let table = [
        ("/nowhere", missing("/nowhere")),
        ("/nowhere/x", missing("/nowhere")),
        ("nowhere", missing("/etc/systemd/system/nowhere")),
        ("../../../nowhere", missing("/etc/../nowhere")),
        ("../../../../nowhere", missing("/etc/../../nowhere")),
        ("one.service", missing("/etc/systemd/system/gone.service")),
        ("a.service", evaluating("EvalSymlinks: too many links")),
        ("loop.service", evaluating("EvalSymlinks: too many links")),
        (THROUGH_A_FILE, evaluating("not a directory")),
        ("/etc/hosts/", evaluating("not a directory")),
        ("/dev/null/", evaluating("not a directory")),
        ("/etc/hosts", leads("/etc/hosts")),
        ("../../hosts", leads("/etc/hosts")),
        ("../../../etc/./hosts", leads("/etc/hosts")),
        ("two.service", leads("/etc/hosts")),
        ("/", leads("/")),
        ("..", leads("/etc/systemd")),
    ];
    let config = units(
        A,
        json!([{"name": "a.service", "mask": true, "contents": SERVICE}]),
    );
    for (target, sentence) in table {
        let root = root();
        root.apply(&config);
        root.remove(OWN);
        root.link(OWN, target);
        root.link("etc/systemd/system/one.service", "gone.service");
        root.link("etc/systemd/system/two.service", "/etc/hosts");
        root.link("etc/systemd/system/loop.service", "pool.service");
        root.link("etc/systemd/system/pool.service", "./loop.service");
        assert_eq!(
            verdict(&root).as_deref(),
            Some(sentence.as_str()),
            "{target}"
        );
        applies_once(&root, &config);
        assert_eq!(root.target(OWN).as_deref(), Some("/dev/null"), "{target}");
    }
}

#[test]
fn a_mask_that_leads_over_another_unit_is_written_anew_when_that_unit_changes() {
    let root = root();
    let mask = json!({"name": "a.service", "mask": true, "contents": SERVICE});
    root.apply(&units(A, json!([mask])));
    root.remove(OWN);
    root.link(OWN, "b.service");
    root.link("etc/systemd/system/b.service", "/dev/null");
    root.run(&["verify"]).ok();
    let other = json!({"name": "b.service", "contents": SERVICE, "enabled": true});
    applies_once(&root, &units(B, json!([mask, other])));
    assert_eq!(root.target(OWN).as_deref(), Some("/dev/null"));
}

#[test]
fn a_unit_named_like_an_alias_of_the_vendor_may_come_and_go() {
    for how in [
        json!({"name": "a.service", "enabled": true, "contents": SERVICE}),
        json!({"name": "a.service", "contents": SERVICE}),
        json!({"name": "a.service", "mask": true}),
        json!({"name": "a.service", "mask": true, "contents": SERVICE}),
    ] {
        for then in [
            json!([]),
            json!([{"name": "a.service", "mask": false, "enabled": true}]),
            json!([{"name": "a.service", "mask": false}]),
        ] {
            let root = root();
            root.write("usr/lib/systemd/system/real.service", SERVICE);
            root.link("usr/lib/systemd/system/a.service", "real.service");
            applies_once(&root, &units(A, json!([how])));
            applies_once(&root, &units(B, then.clone()));
            assert!(!root.exists(OWN), "{how} {then}");
        }
    }
}

#[test]
fn a_unit_that_has_no_file_is_masked_though_it_is_to_be_enabled() {
    let root = root();
    let config = units(
        A,
        json!([{"name": "a.service", "mask": true, "enabled": true}]),
    );
    applies_with(
        &root,
        &config,
        "unit a.service is to be enabled but has no file",
    );
    assert_eq!(root.target(OWN).as_deref(), Some("/dev/null"));
    let off = units(
        B,
        json!([{"name": "a.service", "mask": true, "enabled": false}]),
    );
    applies_once(&root, &off);
}

#[test]
fn a_masked_unit_that_has_a_file_cannot_be_enabled_by_the_daemon() {
    let words = "unit a.service cannot be enabled: /etc/systemd/system/a.service is masked. The \
        daemon's update would fail on this too";
    for contents in [None, Some(SERVICE)] {
        let root = root();
        if contents.is_none() {
            root.write("usr/lib/systemd/system/a.service", SERVICE);
        }
        let unit =
            json!([{"name": "a.service", "mask": true, "enabled": true, "contents": contents}]);
        blocked(&root, &units(A, unit), words);
    }
}

#[test]
fn an_instance_that_cannot_be_enabled_is_passed_over_as_the_daemon_does() {
    let root = root();
    let template = "[Service]\nExecStart=/bin/true\n[Install]\nAlias=wrong.socket\n";
    root.write("usr/lib/systemd/system/t@.service", template);
    let config = units(A, json!([{"name": "t@x.service", "enabled": true}]));
    let words = "unit t@x.service cannot be enabled: wrong.socket cannot be an alias of \
        \"t@x.service\"; skipped, as the daemon does";
    applies_with(&root, &config, words);
}

#[test]
fn a_unit_that_has_not_changed_is_not_switched_again_by_the_daemon() {
    let root = root();
    let unit = json!({"name": "a.service", "enabled": true, "contents": SERVICE});
    root.apply(&units(A, json!([unit])));
    root.remove(WANTS);
    root.write(WANTS, "a file in the way\n");
    let other = json!({"name": "b.service", "contents": SERVICE});
    let plan = planned(&root, &units(B, json!([unit, other])));
    assert_eq!(messages(&plan, "blockers"), [""; 0]);
    let said = messages(&plan, "notices").join("\n");
    assert!(said.contains("unit a.service cannot be enabled"), "{said}");
}

#[test]
fn ignition_fails_over_no_unit_that_cannot_be_enabled() {
    let impossible = SERVICE.replace("WantedBy", "Alias=wrong.socket\nWantedBy");
    let table = [
        json!([{"name": "a.service", "mask": true, "enabled": true, "contents": SERVICE}]),
        json!([{"name": "t@.service", "enabled": true, "contents": SERVICE}]),
        json!([{"name": "a.service", "enabled": true, "contents": impossible}]),
    ];
    for list in table {
        let root = root();
        let words = "skipped, as systemd does at the first boot";
        applies_with(&root, &bare(list.clone()), words);
        let preset = root.read("etc/systemd/system-preset/20-ignition.preset");
        let name = list[0]["name"].as_str().unwrap();
        assert!(preset.contains(&format!("enable {name}")), "{preset}");
    }
}

#[test]
fn a_root_before_its_first_boot_gets_the_preset_of_a_unit_with_an_empty_file() {
    for empty in ["usr/lib/systemd/system/a.service", OWN] {
        for config in [units as fn(&str, Value) -> Value, |_, list| bare(list)] {
            let root = root();
            root.write("etc/machine-id", "uninitialized\n");
            root.write(empty, "");
            let config = config(A, json!([{"name": "a.service", "enabled": true}]));
            let words = "skipped, as systemd does at the first boot";
            applies_with(&root, &config, words);
            let preset = root.read("etc/systemd/system-preset/20-ignition.preset");
            assert_eq!(preset, "enable a.service\n");
        }
    }
    // On a node that has booted, the daemon calls systemctl, which refuses.
    let root = root();
    root.write("usr/lib/systemd/system/a.service", "");
    let config = units(A, json!([{"name": "a.service", "enabled": true}]));
    blocked(&root, &config, "unit a.service cannot be enabled");
}

#[test]
fn a_document_that_is_not_a_config_is_told_what_either_kind_needs() {
    let root = root();
    for text in ["{}", "{\"storage\": {}}", "null", "[]"] {
        root.write("given.json", text);
        let given = root.path("given.json");
        let run = root.run(&["plan", given.to_str().unwrap()]).exits(1);
        let said = flat_run(&run);
        for words in [
            "neither a MachineConfig",
            "nor an Ignition config",
            "oc get mc",
        ] {
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}

/// So many sequences of three configs; each begins on a root of its own.
const SEQUENCES: u32 = 60;
const NAMES: [&str; 5] = [
    "a.service",
    "b.service",
    "t@.service",
    "t@x.service",
    "w.timer",
];

fn contents() -> impl Strategy<Value = String> {
    let install = [
        "WantedBy=multi-user.target",
        "WantedBy=x.target\nAlias=al.service",
        "RequiredBy=x.target\nAlso=b.service",
        "WantedBy=\nWantedBy=y.target",
        "DefaultInstance=d\nWantedBy=multi-user.target",
        "Alias=wrong.socket",
    ];
    select(install.to_vec()).prop_map(|install| format!("[Unit]\n[Install]\n{install}\n"))
}

fn unit(name: &'static str) -> impl Strategy<Value = Value> {
    let dropin = (
        select(vec!["1.conf", "2.conf"]),
        prop::option::of(contents()),
    )
        .prop_map(
            |(name, contents)| json!({"name": name, "contents": contents.unwrap_or_default()}),
        );
    (
        prop::option::of(contents()),
        prop::option::of(any::<bool>()),
        prop::option::weighted(0.2, any::<bool>()),
        prop::option::weighted(0.3, dropin),
    )
        .prop_map(move |(contents, enabled, mask, dropin)| {
            let mut unit = json!({"name": name});
            let values = [
                ("contents", contents.map(Value::from)),
                ("enabled", enabled.map(Value::from)),
                ("mask", mask.map(Value::from)),
                ("dropins", dropin.map(|dropin| json!([dropin]))),
            ];
            for (key, value) in values {
                if let Some(value) = value {
                    unit[key] = value;
                }
            }
            unit
        })
}

fn config() -> impl Strategy<Value = Vec<Value>> {
    let units = NAMES.map(|name| prop::option::of(unit(name)));
    units.prop_map(|units| units.into_iter().flatten().collect())
}

/// Files of the vendor, with a preset file.
fn vendor() -> impl Strategy<Value = Vec<(String, String)>> {
    let file = prop_oneof![
        4 => contents(),
        1 => Just(String::new()),
        1 => Just("-> real.service".to_owned()),
    ];
    let units = prop::collection::vec((select(NAMES.to_vec()), file), 0..4);
    let presets = [
        "",
        "disable *",
        "enable a.service\ndisable *",
        "disable t@.service",
    ];
    (units, select(presets.to_vec())).prop_map(|(units, presets)| {
        let units = units.into_iter();
        let units = units.map(|(name, text)| (format!("usr/lib/systemd/system/{name}"), text));
        let presets = ("usr/lib/systemd/system-preset/9.preset", presets);
        let real = ("usr/lib/systemd/system/real.service", SERVICE);
        let others = [presets, real].map(|(path, text)| (path.to_owned(), text.to_owned()));
        units.chain(others).collect()
    })
}

fn shipped(files: &[(String, String)]) -> TestRoot {
    let root = TestRoot::new();
    std::fs::create_dir_all(root.path("etc/systemd/system")).unwrap();
    for (path, text) in files {
        let _ = std::fs::remove_file(root.path(path));
        match text.strip_prefix("-> ") {
            Some(target) => root.link(path, target),
            None => root.write(path, text),
        }
    }
    root
}

/// Blocked where the update fails with systemctl, and else the same links.
fn compare(
    systemctl: &Systemctl,
    files: &[(String, String)],
    configs: &[Vec<Value>],
) -> Result<(usize, usize), TestCaseError> {
    let (ours, theirs) = (shipped(files), shipped(files));
    let mut old: &[Value] = &[];
    let mut compared = (0, 0);
    for (number, new) in configs.iter().enumerate() {
        let before = links(&theirs);
        let config = units(&format!("rendered-worker-{number}"), json!(new));
        let plan = planned(&ours, &config);
        let blockers = messages(&plan, "blockers");
        let updated = systemctl.update(&theirs, old, new);
        prop_assert_eq!(
            blockers.is_empty(),
            updated.is_ok(),
            "{:?} beside {:?}",
            blockers,
            updated
        );
        if updated.is_err() {
            compared.1 += 1;
            break;
        }
        ours.apply(&config);
        prop_assert_eq!(links(&ours), links(&theirs), "before: {:?}", before);
        let given = ours.config(&config);
        let verified = ours.run(&["verify", given.path()]);
        prop_assert_eq!(verified.code(), 0, "{}", verified.out());
        compared.0 += 1;
        old = new;
    }
    Ok(compared)
}

#[test]
fn sequences_of_configs_leave_the_links_that_the_daemon_leaves_with_systemctl() {
    let Some(systemctl) = Systemctl::find() else {
        return;
    };
    let config = Config {
        cases: SEQUENCES,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let compared = std::cell::Cell::new((0, 0));
    let strategy = (vendor(), prop::collection::vec(self::config(), 3));
    TestRunner::new_with_rng(config, rng)
        .run(&strategy, |(files, configs)| {
            let (same, refused) = compare(&systemctl, &files, &configs)?;
            let (all, blocked) = compared.get();
            compared.set((all + same, blocked + refused));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    let (same, refused) = compared.get();
    say(&format!(
        "units: {same} updates have the links of the daemon with systemctl, {refused} are refused by both"
    ));
    assert!(same > 20 && refused > 5, "{same} {refused}");
}
