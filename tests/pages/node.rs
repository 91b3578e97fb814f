//! `report.html`: what was found on one node, as a page.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::browser::{DESK, PHONE, shown};
use super::is_closed;
use crate::support::{TestRoot, file, kubelet_unit, machine_config};

const CANARY: &str = "CanaryThatNobodyMaySee";
const SCRIPT: &str = "<script>document.title='gone'</script>";
const IMAGE: &str = "<img src=x onerror=alert(1)>";

fn config(paths: &[&str]) -> serde_json::Value {
    let files: Vec<_> = paths
        .iter()
        .map(|path| file(path, 0o644, "as it should be\n"))
        .collect();
    machine_config(
        "rendered-worker-1",
        json!({"storage": {"files": files}, "systemd": {"units": [kubelet_unit()]}}),
    )
}

/// The page in the bundle of a root.
fn page_of(root: &TestRoot) -> String {
    bundle_of(root).remove("report.html").unwrap()
}

/// The files in the bundle of a root.
fn bundle_of(root: &TestRoot) -> BTreeMap<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bundle.tar.gz");
    let run = root.run(&["doctor", "--bundle", path.to_str().unwrap()]);
    assert!(
        [0, 1, 3, 6].contains(&run.code()),
        "{}{}",
        run.out(),
        run.err()
    );
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(path).unwrap()));
    let mut all = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().file_name().unwrap().to_owned();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        all.insert(name.into_string().unwrap(), text);
    }
    all
}

/// A node with two good boots, after which a secret came into an address of its boot entry, and into a file.
fn changed_node() -> TestRoot {
    let root = TestRoot::new();
    let entry = |more: &str| {
        let text = format!("title OS\nversion 1\nlinux /vmlinuz\noptions root=x ro{more}\n");
        root.write("boot/loader/entries/ostree-1.conf", &text);
    };
    entry("");
    root.write("etc/motd", "welcome\n");
    root.write("etc/hostname", "worker-0\n");
    root.apply(&config(&["/etc/a"]));
    for boot in ["boot-1", "boot-2"] {
        root.write("proc/sys/kernel/random/boot_id", &format!("{boot}\n"));
        root.run(&["record", "--at-boot"]).ok();
    }
    entry(&format!(
        " ignition.config.url=https://me:{CANARY}@host/a?{CANARY}"
    ));
    root.write("etc/motd", &format!("{CANARY}\n"));
    root.write(&format!("etc/{IMAGE}.conf").replace("</", "_"), CANARY);
    root
}

/// A page with findings of several severities, and long names.
pub(super) fn page_of_a_sick_node() -> String {
    let long = format!(
        "/etc/kubernetes/{}.conf",
        "aVeryLongNameWithoutAnyBlank".repeat(6)
    );
    let root = TestRoot::new();
    root.write("etc/hostname", "worker-0.example.net\n");
    root.apply(&config(&["/etc/kubernetes/kubelet.conf", &long]));
    root.write("etc/kubernetes/kubelet.conf", "by hand\n");
    root.write(&long, "by hand\n");
    page_of(&root)
}

#[test]
fn the_page_has_the_findings_with_evidence_and_commands_and_the_five_facts() {
    let page = page_of_a_sick_node();
    is_closed(&page);
    for words in [
        "<h1>worker-0.example.net</h1>",
        "FP-03",
        "/etc/kubernetes/kubelet.conf",
        "content differs",
        "<pre class=\"command\">mco-rescue verify --root ",
        "Other programs say",
        "<dt>Running</dt>",
        "<dt>Next boot</dt>",
        "<dt>Recorded config</dt><dd>rendered-worker-1</dd>",
        "<dt>Interrupted run</dt><dd>none</dd>",
        "<dt>The daemon, when it starts</dt>",
        "Not checked",
    ] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    // First of all the verdict, with the next command.
    let begin = page.split("<ul class=\"tally\">").next().unwrap();
    assert!(begin.contains("<p class=\"verdict\">"), "{begin}");
    assert!(begin.contains(". First: FP-"), "{begin}");
    assert!(
        begin.contains("<pre class=\"command\">mco-rescue "),
        "{begin}"
    );
    // The worst is first, as in the documents.
    let severities: Vec<usize> = page
        .split("<article class=\"card finding ")
        .skip(1)
        .map(|rest| {
            ["critical", "warning", "notice"]
                .iter()
                .position(|word| rest.starts_with(word))
                .unwrap()
        })
        .collect();
    assert!(
        severities.len() > 1 && severities.is_sorted(),
        "{severities:?}"
    );
}

#[test]
fn a_browser_shows_it_on_a_phone_and_on_a_desk() {
    let page = page_of_a_sick_node();
    for width in [PHONE, DESK] {
        let Some(seen) = shown(&page, width) else {
            return;
        };
        seen.is_well();
        seen.says(&[
            "worker-0.example.net",
            "FP-03",
            "content differs",
            "mco-rescue verify",
            "warning",
        ]);
    }
}

#[test]
fn names_of_others_are_text_and_nothing_else() {
    let path = format!("/etc/{}", IMAGE.replace('/', "_"));
    let root = TestRoot::new();
    root.write("etc/hostname", &format!("{SCRIPT}\n"));
    root.remove("etc/os-release");
    root.write(
        "etc/os-release",
        &crate::support::OS_RELEASE.replace("Enterprise", &IMAGE.replace('"', "'")),
    );
    let mut config = config(&[&path]);
    config["spec"]["config"]["systemd"]["units"] = json!([kubelet_unit(), {"name": "a\\x3cb.service", "contents": format!("[Service]\nExecStart={SCRIPT}\n")}]);
    root.apply(&config);
    root.write(&path, SCRIPT);
    root.write("etc/systemd/system/a\\x3cb.service", "[Service]\n");
    let page = page_of(&root);
    is_closed(&page);
    assert!(page.contains("&lt;script&gt;document.title="), "{page}");
    assert!(page.contains("&lt;img src=x onerror="), "{page}");
    let Some(seen) = shown(&page, PHONE) else {
        return;
    };
    seen.is_well();
    seen.says(&[SCRIPT, IMAGE]);
}

#[test]
fn a_root_without_a_config_has_a_page_too() {
    let root = TestRoot::empty();
    root.write("etc/passwd", "");
    let page = page_of(&root);
    is_closed(&page);
    assert!(page.contains("FP-02"), "{page}");
}

#[test]
fn the_page_tells_boots_and_runs_and_what_changed_since_the_last_good_boot() {
    let root = changed_node();
    let all = bundle_of(&root);
    let page = &all["report.html"];
    is_closed(page);
    for words in [
        "Boot finished",
        "apply: done",
        "Differences since the last good boot",
        "/etc/motd",
        "ignition.config.url=https://host/a?...",
        "/etc/&lt;img src=x onerror=alert(1)&gt;.conf",
    ] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    let history: Value = serde_json::from_str(&all["history.json"]).unwrap();
    assert_eq!(history["schema"], "mco-rescue/history/v1");
    let diff: Value = serde_json::from_str(&all["diff.json"]).unwrap();
    assert_eq!(diff["from"]["snapshot"], 2, "{diff:#}");
    let differences = diff["differences"].as_array().unwrap();
    assert!(
        differences.iter().all(|one| one["text"].is_null()),
        "{diff:#}"
    );
    for (name, text) in &all {
        assert!(!text.contains(CANARY), "{name}: {text}");
    }
    if let Some(seen) = shown(page, PHONE) {
        seen.is_well();
        seen.says(&["Timeline", "What changed", "/etc/motd"]);
    }
}

#[test]
fn without_a_recorder_the_page_says_that_nothing_is_known() {
    let page = page_of_a_sick_node();
    assert!(
        page.contains("no snapshot of a boot that finished"),
        "{page}"
    );
}
