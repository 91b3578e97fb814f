//! What is damaged, full, missing or interrupted takes nothing else with it.

use std::fs;

use super::{
    ON_BOOT, STORE, answer, boots, diff, differences, end_of_boot, files, history, node, record,
};
use crate::support::faults::duplicate;
use crate::support::mounts::{mount, with_mounts};
use crate::support::trace::{can_trace, traced};
use crate::support::{Lacks, TestRoot, is_root, skip};
use serde_json::{Value, json};

/// Two boots, and a change for the next.
fn two_boots() -> TestRoot {
    let root = node();
    end_of_boot(&root);
    root.write("etc/fstab", "two\n");
    boots(&root, "boot-2");
    end_of_boot(&root);
    root.write("etc/motd", "three\n");
    boots(&root, "boot-3");
    root
}

fn numbers(history: &Value) -> Vec<Option<u64>> {
    let all = history["entries"].as_array().unwrap().iter();
    all.map(|one| one["snapshot"].as_u64()).collect()
}

#[test]
fn an_interrupted_snapshot_leaves_those_before_and_the_next_one_tidies_up() {
    if !can_trace() {
        return skip(Lacks::program("strace"), "strace cannot trace here");
    }
    let template = two_boots();
    let args = ["record", "--at-boot"];
    let mut points = 0;
    for call in ["openat", "write", "fsync", "renameat", "unlinkat"] {
        let clean = duplicate(template.dir());
        let run = traced(&clean, call, &[], &args);
        assert_eq!(run.code, Some(0), "{}", run.said);
        let all = run.calls.iter().enumerate();
        let ours = all.filter(|(_, one)| {
            one.line.contains("part-")
                || one.line.contains("snapshot-")
                || one.line.contains("digests")
                || call == "fsync"
        });
        for nth in ours.map(|(index, _)| index + 1) {
            points += 1;
            let root = duplicate(template.dir());
            let run = traced(
                &root,
                call,
                &[format!("{call}:signal=KILL:when={nth}")],
                &args,
            );
            assert!(run.code != Some(0), "{call} {nth}: {}", run.said);
            let seen = history(&root);
            assert_eq!(seen["damaged"], json!([]), "{call} {nth}");
            assert!(
                numbers(&seen).ends_with(&[Some(2), Some(1)]),
                "{call} {nth}: {seen:#}"
            );
            assert_eq!(
                differences(&diff(&root, &["1", "2"])).len(),
                1,
                "{call} {nth}"
            );
            end_of_boot(&root);
            assert_eq!(files(&root, STORE, ".").len(), 0, "{call} {nth}");
            let found = differences(&diff(&root, &["2", "3"]));
            assert_eq!(found.len(), 1, "{call} {nth}: {found:?}");
            assert_eq!(diff(&root, &[])["differences"], json!([]), "{call} {nth}");
            // Nothing but what the snapshots name.
            assert_eq!(
                files(&root, STORE, "part-"),
                files(&clean, STORE, "part-"),
                "{call} {nth}"
            );
        }
    }
    assert!(points > 12, "{points}");
}

#[test]
fn every_failed_call_is_reported_and_harmless() {
    if !can_trace() {
        return skip(Lacks::program("strace"), "strace cannot trace here");
    }
    let template = two_boots();
    let args = ["record", "--at-boot"];
    let mut failed = 0;
    for (call, error) in [("write", "ENOSPC"), ("fsync", "EIO"), ("renameat", "EROFS")] {
        let clean = duplicate(template.dir());
        let run = traced(&clean, call, &[], &args);
        for (index, one) in run.calls.iter().enumerate() {
            // Progress and warnings are not files.
            if call == "write"
                && (one.line.starts_with("write(1,") || one.line.starts_with("write(2,"))
            {
                continue;
            }
            let root = duplicate(template.dir());
            let nth = index + 1;
            let run = traced(
                &root,
                call,
                &[format!("{call}:error={error}:when={nth}")],
                &args,
            );
            let code = run.code.unwrap();
            assert!(code == 0 || code == 1, "{call} {nth}: {}", run.said);
            failed += i32::from(code == 1);
            let seen = history(&root);
            assert_eq!(seen["damaged"], json!([]), "{call} {nth}");
            assert!(
                numbers(&seen).ends_with(&[Some(2), Some(1)]),
                "{call} {nth}"
            );
            end_of_boot(&root);
            assert_eq!(diff(&root, &[])["differences"], json!([]), "{call} {nth}");
            assert_eq!(files(&root, STORE, ".").len(), 0, "{call} {nth}");
        }
    }
    assert!(failed > 4, "{failed}");
}

#[test]
fn a_full_disk_ends_with_words_and_keeps_what_is_there() {
    with_mounts(|| {
        let root = node();
        let at = root.path("var/lib/mco-rescue");
        let marker = root.read("var/lib/mco-rescue/marker");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=256k,mode=700",
            "tmpfs",
            at.to_str().unwrap(),
        ]);
        root.write("var/lib/mco-rescue/marker", &marker);
        end_of_boot(&root);
        // Whatever is left is filled up.
        let mut filler = vec![0; 256 << 10];
        while !filler.is_empty()
            && fs::write(root.path("var/lib/mco-rescue/filler"), &filler).is_err()
        {
            filler.truncate(filler.len() - 4096);
        }
        for number in 0..300 {
            root.write(&format!("etc/new/{number}"), &format!("{number}\n"));
        }
        let run = root.run(&["record"]).exits(1);
        assert!(
            run.err().contains("no space left on device"),
            "{}",
            run.err()
        );
        assert!(
            run.err().contains("earlier snapshots are unchanged"),
            "{}",
            run.err()
        );
        let seen = history(&root);
        assert_eq!(numbers(&seen), [Some(1)]);
        assert_eq!(seen["damaged"], json!([]));
        root.remove("var/lib/mco-rescue/filler");
        record(&root);
        assert_eq!(diff(&root, &["2", "now"])["differences"], json!([]));
    });
}

#[test]
fn a_boot_that_cannot_be_written_is_noted_and_harmless() {
    with_mounts(|| {
        let root = node();
        let boot = root.path("boot");
        let boot = boot.to_str().unwrap();
        mount(&["--bind", boot, boot]);
        mount(&["-o", "remount,bind,ro", boot]);
        let said = end_of_boot(&root);
        assert_eq!(said["on_boot"], false);
        assert_eq!(
            said["notes"],
            json!(["no copy below /boot: it is read-only"])
        );
        assert_eq!(history(&root)["entries"][0]["notes"], said["notes"]);
        assert!(!root.exists(ON_BOOT));
        // The next snapshot with a writable one brings the copies up to date.
        mount(&["-o", "remount,bind,rw", boot]);
        root.write("etc/motd", "x\n");
        boots(&root, "boot-2");
        assert_eq!(end_of_boot(&root)["on_boot"], true);
        assert_eq!(files(&root, ON_BOOT, "snapshot-").len(), 2);
        // Nearly full.
        let small = node();
        let at = small.path("boot/grub2");
        fs::remove_dir_all(small.path("boot")).unwrap();
        fs::create_dir_all(&at).unwrap();
        let boot = small.path("boot");
        mount(&[
            "-t",
            "tmpfs",
            "-o",
            "size=1m",
            "tmpfs",
            boot.to_str().unwrap(),
        ]);
        fs::create_dir_all(&at).unwrap();
        let said = end_of_boot(&small);
        assert_eq!(
            said["notes"],
            json!(["no copy below /boot: it is nearly full"])
        );
        assert!(!small.exists(ON_BOOT));
    });
    let root = node();
    fs::remove_dir_all(root.path("boot")).unwrap();
    let said = end_of_boot(&root);
    let words = "no copy below /boot: it is empty or missing, or not mounted";
    assert_eq!(said["notes"], json!([words]));
    assert!(!root.exists("boot"));
}

#[test]
fn a_damaged_file_is_reported_and_the_others_are_read() {
    let root = two_boots();
    end_of_boot(&root);
    // The part of /etc of the second snapshot.
    let record = root.read(&format!("{STORE}/snapshot-000002.json"));
    let parts = serde_json::from_str::<Value>(&record).unwrap()["parts"].clone();
    let etc = format!("{STORE}/part-{}", parts["etc"].as_str().unwrap());
    root.write(&etc, "garbage\n");
    let seen = history(&root);
    assert_eq!(seen["damaged"][0]["path"], format!("/{etc}"));
    assert_eq!(numbers(&seen), [Some(3), Some(2), Some(1)]);
    assert_eq!(seen["entries"][0]["differences"], json!(null));
    assert_eq!(differences(&diff(&root, &["1", "3"])).len(), 2);
    let found = diff(&root, &["1", "2"]);
    assert_eq!(found["damaged"][0]["path"], format!("/{etc}"));
    assert_eq!(
        found["not_compared"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["area"] == "etc")
            .count(),
        1
    );
    // A record: garbage, cut off, of another version, a directory in its place.
    let file = format!("{STORE}/snapshot-000001.json");
    let whole = root.read(&file);
    for (bad, why) in [
        ("garbage", "not those that were written"),
        (&whole[..whole.len() / 2], "not those that were written"),
        ("{\"version\":7}", "it has version 7, this program knows 1"),
        ("", "not those that were written"),
    ] {
        root.write(&file, bad);
        let seen = history(&root);
        assert_eq!(numbers(&seen), [Some(3), Some(2)]);
        let damaged = seen["damaged"].as_array().unwrap();
        let found = damaged.iter().find(|one| one["path"] == format!("/{file}"));
        assert!(
            found.unwrap()["why"].as_str().unwrap().contains(why),
            "{seen:#}"
        );
    }
    // New snapshots go on, and the number is not given again.
    root.write("etc/motd", "four\n");
    boots(&root, "boot-4");
    assert_eq!(end_of_boot(&root)["snapshot"], 4);
    assert_eq!(diff(&root, &[])["differences"], json!([]));
    let shown = root.run(&["history"]).ok().out();
    assert!(
        shown.contains("Damaged; everything else is whole:"),
        "{shown}"
    );
}

#[test]
fn a_part_that_was_damaged_is_written_again() {
    let root = node();
    end_of_boot(&root);
    for part in files(&root, STORE, "part-") {
        root.write(&format!("{STORE}/{part}"), "garbage\n");
    }
    boots(&root, "boot-2");
    end_of_boot(&root);
    assert_eq!(history(&root)["damaged"], json!([]));
    assert_eq!(diff(&root, &["2", "now"])["differences"], json!([]));
}

#[test]
fn a_lost_or_damaged_key_makes_no_false_difference() {
    for bad in [None, Some("garbage\n")] {
        let root = node();
        end_of_boot(&root);
        match bad {
            Some(text) => root.write(&format!("{STORE}/key"), text),
            None => root.remove(&format!("{STORE}/key")),
        }
        root.chmod("etc/motd", 0o600);
        let found = diff(&root, &[]);
        assert_eq!(differences(&found).len(), 1, "{found:#}");
        assert!(found["limit"].as_str().unwrap().contains("different keys"));
        boots(&root, "boot-2");
        end_of_boot(&root);
        assert_eq!(
            diff(&root, &["1", "2"])["differences"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
        assert_eq!(diff(&root, &["2", "now"])["limit"], json!(null));
    }
}

#[test]
fn a_damaged_list_of_digests_only_costs_time() {
    let root = node();
    end_of_boot(&root);
    root.write(&format!("{STORE}/digests"), "garbage\n");
    assert_eq!(diff(&root, &[])["differences"], json!([]));
    root.write("etc/motd", "x\n");
    boots(&root, "boot-2");
    end_of_boot(&root);
    assert_eq!(differences(&diff(&root, &["1", "2"])).len(), 1);
}

#[test]
fn links_and_pipes_in_the_store_are_not_followed() {
    let root = node();
    end_of_boot(&root);
    let file = root.path(&format!("{STORE}/snapshot-000009.json"));
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    root.link(
        &format!("{STORE}/snapshot-000008.json"),
        "snapshot-000001.json",
    );
    let seen = history(&root);
    assert_eq!(seen["damaged"].as_array().unwrap().len(), 2, "{seen:#}");
    assert_eq!(numbers(&seen), [Some(1)]);
}

#[test]
fn a_root_that_does_not_run_has_no_end_of_boot() {
    let root = node();
    root.remove("proc/sys/kernel/random/boot_id");
    let said = root.run(&["record", "--at-boot"]).exits(1).err();
    assert!(said.contains("this root is not a running system"), "{said}");
    assert!(!root.exists(STORE));
    // Without a snapshot there is nothing to compare with.
    let said = root.run(&["diff"]).exits(1).err();
    assert!(
        said.contains("has no snapshots") && said.contains("mco-rescue record"),
        "{said}"
    );
    let seen = history(&root);
    assert_eq!(
        (seen["store"].clone(), seen["entries"].clone()),
        (json!(null), json!([]))
    );
    record(&root);
    let said = root.run(&["diff"]).exits(1).err();
    assert!(
        said.contains("no snapshot") && said.contains("boot that finished"),
        "{said}"
    );
    // Both name a comparison that works.
    let listed = crate::support::flat(&root.run(&["history"]).out());
    for said in [crate::support::flat(&said), listed] {
        assert!(said.contains("mco-rescue diff 1"), "{said}");
    }
    for word in ["7", "x", "-1"] {
        let run = root.run(&["diff", "--", word]);
        assert_eq!(run.code(), 1, "{}", run.err());
    }
    answer(&root.run(&["diff", "1", "--output", "json"]));
}

#[test]
fn an_ordinary_user_is_told() {
    if !is_root() {
        return skip(Lacks::Root, "only root can leave its privileges");
    }
    let root = node();
    end_of_boot(&root);
    let mut command = std::process::Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command
        .arg(crate::support::PROGRAM)
        .arg("--root")
        .arg(root.dir())
        .arg("record");
    fs::set_permissions(
        root.dir(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let run = crate::support::Run::of(command.output().unwrap());
    assert_eq!(run.code(), 1, "{}{}", run.out(), run.err());
    assert!(run.err().contains("permission denied"), "{}", run.err());
}

#[test]
fn a_last_run_that_cannot_be_read_is_named_in_the_history() {
    let root = two_boots();
    fs::create_dir_all(root.path("var/lib/mco-rescue/status.json")).unwrap();
    let run = root.run(&["history"]).ok();
    let said = run.err();
    assert!(said.contains("the last run is not listed"), "{said}");
}
