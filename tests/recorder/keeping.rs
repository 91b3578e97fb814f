//! What is written, when, and for how long it is kept.

use std::fs;
use std::process::Command;

use super::{ON_BOOT, STORE, boots, diff, differences, end_of_boot, files, history, node, record};
use crate::support::mounts::{mount, with_mounts};
use crate::support::{TestRoot, file, machine_config};
use mco_rescue::diagnose::recorder::format;
use serde_json::{Value, json};

#[test]
fn nothing_is_written_where_nothing_changed() {
    let root = node();
    let first = record(&root);
    assert_eq!(first["is_new"], true);
    let before = root.everything();
    let second = record(&root);
    assert_eq!(second["is_new"], false);
    assert_eq!(second["written"], 0);
    assert_eq!(root.everything(), before);
    let said = root.run(&["record"]).ok().out();
    assert_eq!(
        said,
        "Nothing has changed since snapshot 1; nothing was written.\n"
    );
}

#[test]
fn a_boot_that_changed_nothing_is_one_line_and_no_part() {
    let root = node();
    end_of_boot(&root);
    let parts = files(&root, STORE, "part-");
    let on_boot = files(&root, ON_BOOT, "");
    boots(&root, "boot-2");
    assert_eq!(end_of_boot(&root)["is_new"], true);
    assert_eq!(files(&root, STORE, "part-"), parts);
    assert_eq!(files(&root, ON_BOOT, ""), on_boot);
    // The unit was started once more in the same boot.
    let before = root.everything();
    assert_eq!(end_of_boot(&root)["is_new"], false);
    assert_eq!(root.everything(), before);
    let entries = history(&root)["entries"].clone();
    let boots: Vec<(&Value, &Value)> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["boot"], &one["outcome"]))
        .collect();
    assert_eq!(
        boots,
        [
            (&json!("boot-2"), &json!("good")),
            (&json!("boot-1"), &json!("good"))
        ]
    );
    assert_eq!(entries[0]["differences"], 0);
}

#[test]
fn equal_parts_are_stored_once() {
    let root = node();
    end_of_boot(&root);
    let before = files(&root, STORE, "part-").len();
    root.write("etc/motd", "x\n");
    boots(&root, "boot-2");
    end_of_boot(&root);
    assert_eq!(files(&root, STORE, "part-").len(), before + 1);
}

#[test]
fn sixty_four_are_kept_and_eight_below_boot() {
    let root = node();
    for number in 0..70 {
        root.write("etc/motd", &format!("{number}\n"));
        boots(&root, &format!("boot-{number}"));
        end_of_boot(&root);
    }
    let kept = files(&root, STORE, "snapshot-");
    assert_eq!(kept.len(), 64);
    assert_eq!(kept[0], "snapshot-000007.json");
    // The part of /etc of each, and those that never changed.
    assert_eq!(files(&root, STORE, "part-").len(), 64 + 3);
    let copies = files(&root, ON_BOOT, "snapshot-");
    assert_eq!(copies.len(), 8);
    assert_eq!(copies[7], "snapshot-000070.json");
    assert_eq!(files(&root, ON_BOOT, "part-").len(), 8 + 3);
    assert!(files(&root, STORE, ".").is_empty());
    assert_eq!(root.mode(STORE), 0o700);
    for name in files(&root, STORE, "") {
        assert_eq!(root.mode(&format!("{STORE}/{name}")), 0o600, "{name}");
    }
    let all = history(&root);
    assert_eq!(all["entries"].as_array().unwrap().len(), 64);
    assert_eq!(differences(&diff(&root, &["7", "70"])).len(), 1);
}

#[test]
fn the_copy_below_boot_is_enough() {
    let root = node();
    end_of_boot(&root);
    root.write("etc/fstab", "x\n");
    boots(&root, "boot-2");
    end_of_boot(&root);
    // The file system of /boot alone, as a rescue system mounts it.
    let alone = TestRoot::empty();
    let copy = Command::new("cp")
        .args(["-a", root.path("boot/.").to_str().unwrap()])
        .arg(alone.dir())
        .status();
    assert!(copy.unwrap().success());
    assert!(!alone.exists("mco-rescue/key") && !alone.exists("mco-rescue/digests"));
    let seen = history(&alone);
    assert_eq!(seen["store"], "/mco-rescue");
    assert_eq!(seen["entries"].as_array().unwrap().len(), 2);
    assert_eq!(differences(&diff(&alone, &["1", "2"]))[0].1, "/etc/fstab");
    // By a directory's name, from any root.
    for place in ["boot", "boot/mco-rescue"] {
        let at = root.path(place);
        let at = at.to_str().unwrap();
        let other = TestRoot::empty();
        let run = other
            .run(&["history", "--store", at, "--output", "json"])
            .ok();
        assert_eq!(run.json()["entries"].as_array().unwrap().len(), 2);
        let store = root.path("boot/mco-rescue").display().to_string();
        assert_eq!(run.json()["store"], store);
        // The printed command leads to that directory.
        let said = other.run(&["history", "--store", at]).ok().out();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let next = format!("Next: mco-rescue diff A B --store {store}");
        assert!(said.contains(&next), "{said}");
        let said = other.run(&["diff", "--store", at, "9"]).exits(1).err();
        assert!(
            said.contains(&format!("mco-rescue history --store {at}")),
            "{said}"
        );
        let run = other
            .run(&["diff", "--store", at, "1", "--output", "json"])
            .exits(3);
        assert_eq!(differences(&run.json())[0].1, "/etc/fstab");
    }
    let nothing = TestRoot::empty();
    let said = nothing
        .run(&["history", "--store", nothing.dir().to_str().unwrap()])
        .exits(1)
        .err();
    assert!(said.contains("holds no snapshots"), "{said}");
}

#[test]
fn apply_and_rollback_are_recorded_once_the_recorder_is_set_up() {
    let root = TestRoot::new();
    let config = |text: &str| {
        machine_config(
            "rendered-worker-a",
            json!({"storage": {"files": [file("/etc/of-config", 0o644, text)]}}),
        )
    };
    root.apply(&config("a\n")).ok();
    assert!(!root.exists(STORE));
    record(&root);
    root.apply(&config("b\n")).ok();
    let entries = history(&root)["entries"].clone();
    let short = |one: &Value| {
        (
            one["event"].clone(),
            one["outcome"].clone(),
            one["can_go_back"].clone(),
        )
    };
    let short: Vec<_> = entries.as_array().unwrap().iter().map(short).collect();
    assert_eq!(
        short,
        [
            (json!("apply"), json!("done"), json!(true)),
            (json!("by-hand"), json!("taken"), json!(false)),
            // From before the recorder.
            (json!("apply"), json!("done"), json!(true)),
        ]
    );
    assert_eq!(entries[0]["config"], "rendered-worker-a");
    let subjects: Vec<String> = differences(&diff(&root, &["1", "2"]))
        .into_iter()
        .map(|one| one.1)
        .collect();
    assert!(
        subjects.contains(&"/etc/of-config".to_owned()),
        "{subjects:?}"
    );
    // A run that changes nothing leaves no line.
    let before = root.everything();
    root.apply(&config("b\n")).ok();
    assert_eq!(root.everything(), before);
    root.run(&["rollback", "--yes"]).ok();
    assert_eq!(history(&root)["entries"][0]["event"], "rollback");
}

#[test]
fn a_clock_that_goes_back_keeps_the_order() {
    let root = node();
    end_of_boot(&root);
    // As if the clock had been far ahead then.
    let first = root.path(&format!("{STORE}/snapshot-000001.json"));
    let mut ahead = format::parse_record(&fs::read(&first).unwrap()).unwrap();
    ahead.at += 100 * 86_400;
    fs::write(&first, format::record_bytes(&ahead).unwrap()).unwrap();
    boots(&root, "boot-2");
    end_of_boot(&root);
    boots(&root, "boot-3");
    end_of_boot(&root);
    let entries = history(&root)["entries"].clone();
    let short = |one: &Value| (one["boot"].clone(), one["clock_set_back"].clone());
    let short: Vec<_> = entries.as_array().unwrap().iter().map(short).collect();
    assert_eq!(
        short,
        [
            (json!("boot-3"), json!(false)),
            (json!("boot-2"), json!(true)),
            (json!("boot-1"), json!(false)),
        ]
    );
}

#[test]
fn a_second_snapshot_of_a_real_etc_reads_hardly_a_file() {
    with_mounts(|| {
        let root = node();
        fs::create_dir_all(root.path("etc")).unwrap();
        mount(&["--bind", "/etc", root.path("etc").to_str().unwrap()]);
        let first = record(&root);
        let number = first["files_read"].as_u64().unwrap();
        assert!(number > 100, "{first:#}");
        assert!(first["size"].as_u64().unwrap() <= 40 << 10, "{first:#}");
        let second = record(&root);
        assert!(
            second["files_read"].as_u64().unwrap() < number / 10,
            "{second:#}"
        );
        assert_eq!(second["is_new"], false, "{second:#}");
    });
}

#[test]
fn a_snapshot_of_a_huge_etc_stays_small() {
    let root = node();
    for pod in 0..60 {
        for name in 0..60 {
            let path = format!("etc/kubernetes/static-pod-resources/pod-{pod}/secrets/name-{name}");
            root.write(&path, &format!("{pod} {name}\n"));
        }
    }
    let first = end_of_boot(&root);
    assert!(first["size"].as_u64().unwrap() <= 40 << 10, "{first:#}");
    root.write(
        "etc/kubernetes/static-pod-resources/pod-7/secrets/name-3",
        "other\n",
    );
    root.write("etc/fstab", "x\n");
    let found = differences(&diff(&root, &[]));
    let subjects: Vec<&str> = found.iter().map(|one| one.1.as_str()).collect();
    assert_eq!(subjects.len(), 2, "{subjects:?}");
    assert!(
        subjects[0].starts_with("/etc/kubernetes/static-pod-resources"),
        "{subjects:?}"
    );
    assert_eq!(subjects[1], "/etc/fstab");
}
