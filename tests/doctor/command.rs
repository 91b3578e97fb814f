//! The command: nodes that are well, every trouble with its commands, what is not looked at, explanations and terminals.

use std::fs;
use std::process::Stdio;

use super::fp_07::{self, kernels};
use super::small::{self, endless};
use super::worker::{healthy, on_a_node};
use super::{
    CRITICAL, Dark, FINE, RECORD, Sick, WARNING, by_years, doctor, doctor_exits, doctor_with,
    finding, fp_01, fp_02, fp_03, fp_04, fp_05, fp_06, fp_09, fp_10, fp_12, fp_15, fp_16, fp_17,
    fp_18, fp_19, fp_20, fp_22, fp_24, fp_25, fp_27, fp_28, fp_29, fp_30, fp_31, fp_32, fp_33,
    fp_41, fp_44, fp_45, fp_46, fp_48, fp_53, fp_54, fp_66, fp_67, ids, of, unseen,
};
use crate::support::sysroot::Sysroot;
use crate::support::{Run, TestRoot, file, machine_config};
use mco_rescue::diagnose::doctor::WHAT;
use mco_rescue::diagnose::doctor::checks::CHECKS;
use serde_json::{Value, json};

/// Troubles, by check.
pub(super) const SICK: &[&[Sick]] = &[
    fp_02::SICK,
    fp_03::SICK,
    fp_04::SICK,
    fp_05::SICK,
    fp_06::SICK,
    fp_07::SICK,
    fp_09::SICK,
    fp_10::SICK,
    fp_12::SICK,
    fp_15::SICK,
    fp_27::SICK,
];

/// What checks cannot look at, by check.
const DARK: &[&[Dark]] = &[
    fp_01::DARK,
    fp_03::DARK,
    fp_16::DARK,
    fp_17::DARK,
    fp_18::DARK,
    fp_19::DARK,
    fp_20::DARK,
    fp_22::DARK,
    fp_24::DARK,
    fp_25::DARK,
    fp_27::DARK,
    fp_28::DARK,
    fp_30::DARK,
    fp_31::DARK,
    fp_32::DARK,
    fp_33::DARK,
    fp_66::DARK,
    fp_67::DARK,
    fp_54::DARK,
    fp_41::DARK,
    fp_48::DARK,
    fp_29::DARK,
    fp_44::DARK,
    fp_45::DARK,
    fp_46::DARK,
    fp_53::DARK,
];

/// What holds of every answer: it fits, it is plain, and nobody's secrets are in it.
fn is_fit_to_be_read_aloud(text: &str, context: &str) {
    assert!(text.is_ascii(), "{context}: {text}");
    for line in text.lines() {
        let label = line.trim_start().split("  ").next().unwrap();
        // Commands and the daemon's words are to be copied.
        let whole = ["Next", "then", "Fix", "Log"].contains(&label) || line.starts_with("Next: ");
        // A path is one word, and stays whole.
        let path = line.split_whitespace().count() <= 2;
        assert!(whole || path || line.len() <= 80, "{context}: {line:?}");
    }
    for secret in ["PRIVATE KEY", "c2VjcmV0", "topsecret"] {
        assert!(!text.contains(secret), "{context}: {text}");
    }
}

#[test]
fn a_healthy_node_is_told_so_in_five_lines_and_more_if_asked() {
    let root = healthy();
    let run = doctor_with(&root, &[]).ok();
    let text = run.out();
    assert!(text.contains("\nNothing found wrong with "), "{text}");
    assert!(text.starts_with("Not checked:\n"), "{text}");
    assert!(text.lines().count() <= 8, "{text}");
    is_fit_to_be_read_aloud(&text, "healthy");
    let whole = doctor_with(&root, &["-v"]).ok().out();
    for check in CHECKS {
        assert!(whole.contains(check.id), "{}: {whole}", check.id);
    }
    is_fit_to_be_read_aloud(&whole, "healthy -v");
    let report = doctor_with(&root, &["--output", "json"]).ok().json();
    assert_eq!(report["schema"], "mco-rescue/doctor/v1");
    assert_eq!(report["worst"], Value::Null);
    assert_eq!(report["checks"].as_array().unwrap().len(), CHECKS.len());
}

#[test]
fn a_healthy_node_that_runs_has_nothing() {
    on_a_node(|node| {
        let report = doctor_exits(node, FINE);
        assert_eq!(ids(&report), Vec::<String>::new(), "{report:#}");
        assert_eq!(
            node.calls(),
            Vec::<String>::new(),
            "nothing was told to do anything"
        );
    });
}

#[test]
fn a_node_that_is_well_has_nothing_and_everything_was_looked_at() {
    let root = small::node();
    let before = root.everything();
    let run = root.run(&["doctor", "--output", "json"]).ok();
    let seen = run.json();
    assert_eq!(seen["findings"], json!([]), "{seen:#}");
    let ids: Vec<&str> = seen["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["id"].as_str().unwrap())
        .collect();
    let pages = std::fs::read_dir("docs/doctor").unwrap().count();
    assert_eq!(ids.len() + 1, pages, "{ids:?}");
    assert_eq!(root.everything(), before, "doctor changed something");
}

#[test]
fn every_sickness_is_found_and_leads_to_a_command() {
    for sick in SICK.iter().copied().flatten() {
        let root = healthy();
        (sick.sicken)(&root);
        let before = root.everything();
        let text = doctor_with(&root, &[]).out();
        let context = format!("{} {}", sick.id, sick.what);
        let report = doctor_with(&root, &["--output", "json"])
            .exits(sick.code)
            .json();
        assert_eq!(
            root.everything(),
            before,
            "{context}: something was changed"
        );

        let findings = report["findings"].as_array().unwrap();
        let found = findings
            .iter()
            .find(|one| one["id"] == sick.id && one["what"].as_str().unwrap().contains(sick.what));
        let found = found.unwrap_or_else(|| panic!("{context}: {report:#}"));
        let commands = found["next"].as_array().unwrap();
        let has = |part: &str| {
            commands
                .iter()
                .any(|one| one.as_str().unwrap().starts_with(part))
        };
        assert!(has(sick.next), "{context}: {found:#}");
        assert!(
            !found["evidence"].as_array().unwrap().is_empty(),
            "{context}"
        );
        assert!(!found["means"].as_str().unwrap().is_empty(), "{context}");
        for one in findings {
            let what = one["what"].as_str().unwrap();
            assert!(what.len() <= WHAT, "{context}: {what}");
        }

        is_fit_to_be_read_aloud(&text, &context);
        let lines: Vec<&str> = text.lines().collect();
        let worst = &findings[0];
        let heading = format!(
            "{} {}: {}",
            worst["severity"].as_str().unwrap().to_ascii_uppercase(),
            worst["id"].as_str().unwrap(),
            worst["what"].as_str().unwrap()
        );
        assert_eq!(lines[0], heading, "{context}");
        let next = findings[0]["next"][0].as_str().unwrap();
        assert_eq!(
            lines.last().copied(),
            Some(format!("Next: {next}").as_str()),
            "{context}"
        );
        assert!(
            lines[1].trim_start().starts_with("Next "),
            "{context}: {text}"
        );
    }
}

#[test]
fn the_worst_comes_first() {
    let root = healthy();
    root.write("etc/pool.conf", "edited\n");
    kernels(&root, &[0, 0]);
    root.write("etc/kubernetes/ca.crt", &by_years("root-ca", 2010, 2020));
    let report = doctor_with(&root, &["--output", "json"])
        .exits(CRITICAL)
        .json();
    assert_eq!(ids(&report), ["FP-06", "FP-03", "FP-07"]);
    assert_eq!(report["worst"], "critical");
}

#[test]
fn a_root_without_a_system_is_an_error_and_no_diagnosis() {
    let root = TestRoot::empty();
    for args in [&[][..], &["--output", "json"], &["--until", "2030-01-01"]] {
        let run = doctor_with(&root, args).exits(1);
        assert_eq!(run.out(), "", "{args:?}");
        let said = run.err();
        for words in ["there is no system at this root", "lsblk -f", "--root DIR"] {
            assert!(said.contains(words), "{args:?}: {said}");
        }
    }
}

#[test]
fn what_cannot_be_looked_at_is_said_and_keeps_nothing_back() {
    // A cache that is not a directory is not looked at, and the drift is found all the same.
    let root = healthy();
    root.write("etc/pool.conf", "edited\n");
    root.write("var/lib/mco-rescue/annotations.json", "no json");
    let report = doctor_with(&root, &["--output", "json"])
        .exits(WARNING)
        .json();
    assert_eq!(ids(&report), ["FP-03"]);
}

#[test]
fn what_a_check_cannot_look_at_is_said_and_never_taken_for_wrong() {
    for (id, why, darken) in DARK.iter().copied().flatten() {
        let root = small::node();
        darken(&root);
        let seen = doctor(&root);
        // That a file cannot be read is a finding of its own.
        let wrong = of(&seen, id)
            .into_iter()
            .filter(|one| !one["what"].as_str().unwrap().ends_with("cannot be read"));
        assert_eq!(
            wrong.collect::<Vec<Value>>(),
            Vec::<Value>::new(),
            "{id} {why}"
        );
        let said = unseen(&seen, id);
        assert!(said.contains(why), "{id}: no {why:?} in {said}");
    }
}

#[test]
fn state_that_cannot_be_read_is_not_taken_for_healthy() {
    let root = healthy();
    for folder in [
        "var/lib/mco-rescue/journal.json",
        "var/lib/mco-rescue/status.json",
        "var/lib/mco-rescue/server.json",
        "var/lib/mco-rescue/cache/x.json",
        "var/lib/containers/storage/overlay-layers/layers.json",
    ] {
        let _ = fs::remove_file(root.path(folder));
        fs::create_dir_all(root.path(folder)).unwrap();
    }
    endless(&root, "etc/NetworkManager/system-connections");
    root.remove(RECORD);
    fs::create_dir(root.path(RECORD)).unwrap();
    let report = doctor(&root);
    for (id, part) in [
        ("FP-02", "the records cannot be read"),
        ("FP-04", "configs: reading the cache"),
        ("FP-05", "how the image would be pulled"),
        ("FP-06", "server.json"),
        ("FP-10", "interrupted runs: "),
        ("FP-10", "the last run: "),
        ("FP-10", "the store of images"),
        ("FP-12", "connections: "),
        ("FP-13", "attributes of the config's files"),
        ("FP-34", "the last run: "),
        ("FP-62", "network configuration: "),
    ] {
        let text = unseen(&report, id);
        assert!(text.contains(part), "{id}: {text}");
    }
}

#[test]
fn one_check_is_explained_in_depth_however_its_id_is_written() {
    for check in CHECKS {
        let root = TestRoot::empty();
        let text = doctor_with(&root, &[check.id]).ok().out();
        assert!(
            text.starts_with(&format!("{}: {}\n", check.id, check.title)),
            "{text}"
        );
        assert!(text.lines().count() > 8, "{text}");
        is_fit_to_be_read_aloud(&text, check.id);
    }
    let root = TestRoot::empty();
    assert_eq!(
        doctor_with(&root, &["fp-3"]).ok().out(),
        doctor_with(&root, &["FP-03"]).ok().out()
    );
    let wrong = doctor_with(&root, &["FP-99"]).exits(1);
    let list = doctor_with(&root, &["--list"]).ok().out();
    let (first, next) = ("error: there is no check \"FP-99\".", "doctor --list");
    let said = wrong.err();
    assert!(said.starts_with(first) && said.contains(next), "{said}");
    assert!(said.lines().count() <= 2, "{said}");
    let ids: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("  FP-"))
        .collect();
    assert_eq!(ids.len(), CHECKS.len(), "{list}");
    let json = doctor_with(&root, &["--list", "--output", "json"])
        .ok()
        .json();
    assert_eq!(json["checks"].as_array().unwrap().len(), CHECKS.len());
    let json = doctor_with(&root, &["FP-03", "--output", "json"])
        .ok()
        .json();
    assert_eq!(json["schema"], "mco-rescue/doctor-check/v1");
}

#[test]
fn every_check_explains_itself_in_eighty_columns() {
    let root = TestRoot::new();
    let all = root.run(&["doctor", "--output", "json"]).json();
    for check in all["checks"].as_array().unwrap() {
        let text = root
            .run(&["doctor", check["id"].as_str().unwrap()])
            .ok()
            .out();
        assert!(text.contains("Checks"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
}

#[test]
fn letters_beyond_ascii_come_only_where_the_terminal_has_them() {
    let root = healthy();
    let name = "etc/NetworkManager/system-connections/caf\u{e9}.nmconnection";
    root.write(name, "");
    let with = |language: &str, terminal: &str| {
        let mut command = root.command(&["doctor"]);
        let command = command
            .env_remove("LC_ALL")
            .env_remove("LC_CTYPE")
            .env("LANG", language);
        Run::of(
            command
                .env("TERM", terminal)
                .stdin(Stdio::null())
                .output()
                .unwrap(),
        )
        .out()
    };
    assert!(with("C.UTF-8", "xterm").contains('\u{e9}'));
    for (language, terminal) in [("C", "xterm"), ("C.UTF-8", "dumb"), ("C.UTF-8", "vt220")] {
        let text = with(language, terminal);
        assert!(
            text.is_ascii() && text.contains("caf\\u{e9}"),
            "{language} {terminal}: {text}"
        );
    }
}

#[test]
fn a_mounted_disk_is_seen_whole() {
    let Some(disk) = Sysroot::new() else { return };
    fs::remove_file(disk.0.path("sysroot")).unwrap();
    assert!(disk.deploy(&["--karg=number=1".to_owned()]));
    fs::create_dir_all(disk.0.path("ostree/deploy/os/var/lib")).unwrap();
    let deployments = fs::read_dir(disk.0.path("ostree/deploy/os/deploy")).unwrap();
    let mut deployments = deployments.map(|entry| entry.unwrap().path());
    let etc = deployments.find(|path| path.is_dir()).unwrap().join("etc");
    fs::create_dir_all(etc.join("machine-config-daemon")).unwrap();
    fs::write(etc.join("machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let files = json!({"storage": {"files": [file("/etc/machine-id2", 0o644, "x")]}});
    let mut wanted = machine_config("rendered-worker-a", files);
    wanted["spec"]["osImageURL"] = "".into();
    wanted["spec"]["kernelArguments"] = json!(["number=1", "number=2"]);
    fs::write(
        etc.join("machine-config-daemon/currentconfig"),
        wanted.to_string(),
    )
    .unwrap();

    let secret = "ostree/deploy/os/var/lib/kubelet/config.json";
    disk.0.write(secret, "{");

    let report = doctor_with(&disk.0, &["--output", "json"])
        .exits(CRITICAL)
        .json();
    assert_eq!(report["root"], disk.0.dir().to_str().unwrap());
    // The commands that are told name files that are there for others too.
    let command = finding(&report, "FP-27")["next"][1].as_str().unwrap();
    assert_eq!(command, format!("ls -l {}", disk.0.path(secret).display()));
    let found = finding(&report, "FP-01");
    let said = found["daemon"].as_str().unwrap();
    assert!(
        said.ends_with("missing expected kernel arguments: [number=2]"),
        "{said}"
    );
    let checks = report["checks"].as_array().unwrap().iter();
    let unseen: Vec<&Value> = checks
        .filter(|check| ["FP-07", "FP-13"].iter().any(|id| check["id"] == *id))
        .map(|check| &check["unseen"])
        .collect();
    assert_eq!(
        unseen,
        [&json!([]), &json!([])],
        "kernels and deployments are seen"
    );
}
