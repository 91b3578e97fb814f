//! `report`: one page about many nodes, from the documents that the program itself printed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::browser::{DESK, PHONE, shown};
use super::is_closed;
use crate::support::{PROGRAM, Run, TestRoot, file, flat, kubelet_unit, machine_config};

/// The directory of the gathered documents.
struct Gathered {
    dir: TempDir,
    status: Value,
    healthy: Value,
    sick: Value,
}

fn config(pool: &str, letter: char) -> Value {
    machine_config(
        &format!("rendered-{pool}-{letter}"),
        json!({"storage": {"files": [file("/etc/a", 0o644, "a\n")]}, "systemd": {"units": [kubelet_unit()]}}),
    )
}

impl Gathered {
    /// Documents as the program prints them on a node that is well, and on one that is not.
    fn new() -> Self {
        let root = TestRoot::new();
        root.apply(&config("worker", 'a'));
        let printed = |command: &str| root.run(&[command, "--output", "json"]).json();
        let status = printed("status");
        let mut healthy = printed("doctor");
        healthy["findings"] = json!([]);
        root.write("etc/a", "by hand\n");
        let sick = printed("doctor");
        Self {
            dir: tempfile::tempdir().unwrap(),
            status,
            healthy,
            sick,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Writes the documents of a node.
    fn node(&self, name: &str, pool: &str, letter: char, doctor: &Value) {
        let mut status = self.status.clone();
        status["recorded"] = json!(format!("rendered-{pool}-{letter}"));
        self.write(&format!("{name}.status.json"), &status.to_string());
        self.write(&format!("{name}.doctor.json"), &doctor.to_string());
    }

    /// Five workers, of which one has another config and one is sick, and a master.
    fn fleet() -> Self {
        let all = Self::new();
        for number in 0..4 {
            all.node(&format!("worker-{number}"), "worker", 'a', &all.healthy);
        }
        all.node("worker-4", "worker", 'b', &all.healthy);
        all.node("worker-10", "worker", 'a', &all.sick);
        all.node("master-0", "master", 'c', &all.healthy);
        all
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .arg("report")
            .arg(self.dir.path())
            .args(args)
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    fn page(&self) -> String {
        fs::read_to_string(self.path("fleet.html")).unwrap()
    }
}

fn names(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect()
}

#[test]
fn the_page_tells_who_is_on_what_who_is_sick_and_who_differs() {
    let all = Gathered::fleet();
    let run = all.run(&[]).exits(3);
    let page = all.page();
    is_closed(&page);
    for words in [
        "Fleet of 7 nodes",
        "2 pools",
        "worker-10",
        "FP-03",
        "/etc/a is not as recorded",
    ] {
        assert!(page.contains(words), "no {words:?} in {page}");
    }
    let mode = fs::metadata(all.path("fleet.html"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let said = run.out();
    assert!(
        said.starts_with("7 nodes: 1 warning, 6 nothing found\n"),
        "{said}"
    );
    let all_said = flat(&said);
    assert!(
        all_said.contains("warning FP-03: /etc/a is not as recorded: worker-10"),
        "{said}"
    );
    assert!(
        all_said.contains("worker, config: 5 nodes rendered-worker-a"),
        "{said}"
    );
    assert!(all_said.contains("rendered-worker-b (worker-4)"), "{said}");
    assert!(!all_said.contains("master, config"), "{said}");
    let too_wide: Vec<&str> = said
        .lines()
        .filter(|line| line.chars().count() > 80 && !line.starts_with("Written to"))
        .collect();
    assert_eq!(too_wide, Vec::<&str>::new());
}

/// Two nodes fail one check over different files.
#[test]
fn each_node_has_the_words_of_its_own_finding() {
    let all = Gathered::fleet();
    let other = all.sick.to_string().replace("/etc/a ", "/etc/b ");
    let other = serde_json::from_str(&other).unwrap();
    all.node("worker-11", "worker", 'a', &other);
    all.node("worker-12", "worker", 'a', &other);
    let said = flat(&all.run(&[]).exits(3).out());
    let words = "warning FP-03: /etc/b is not as recorded: worker-11, worker-12; \
                 /etc/a is not as recorded: worker-10";
    assert!(said.contains(words), "{said}");
}

#[test]
fn the_document_has_the_same_for_programs() {
    let all = Gathered::fleet();
    let document = all.run(&["--output", "json"]).exits(3).json();
    assert_eq!(document["schema"], "mco-rescue/fleet/v1");
    let nodes = document["nodes"].as_array().unwrap();
    // The sick one first; numbers in names are numbers.
    let order: Vec<&str> = nodes
        .iter()
        .map(|node| node["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        order,
        [
            "worker-10",
            "master-0",
            "worker-0",
            "worker-1",
            "worker-2",
            "worker-3",
            "worker-4"
        ]
    );
    let difference = &document["differences"][0];
    assert_eq!(difference["fact"], "config");
    assert_eq!(difference["agreeing"], 5);
    assert_eq!(names(&difference["others"][0]["nodes"]), ["worker-4"]);
    assert_eq!(
        document["differences"].as_array().unwrap().len(),
        1,
        "{document:#}"
    );
    assert_eq!(document["troubles"][0]["check"], "FP-03");
    assert_eq!(document["skipped"], json!([]));
}

#[test]
fn a_browser_shows_the_fleet_on_a_phone_and_on_a_desk() {
    let all = Gathered::fleet();
    let long = format!("worker-{}", "longname".repeat(12));
    all.node(&long, "worker", 'b', &all.sick);
    all.run(&[]).exits(3);
    for width in [PHONE, DESK] {
        let Some(seen) = shown(&all.page(), width) else {
            return;
        };
        seen.is_well();
        // On a desk every column is there without scrolling.
        assert!(width == PHONE || seen.scrolled.is_empty(), "{seen:?}");
        seen.says(&[
            "Fleet of 8 nodes",
            "FP-03",
            "worker-10",
            "State of the nodes",
            &long,
        ]);
    }
}

#[test]
fn what_a_node_calls_itself_is_text_and_nothing_else() {
    let all = Gathered::fleet();
    let script = "<script>document.title='x'</script>";
    let mut doctor = all.sick.clone();
    doctor["findings"][0]["what"] = json!(script);
    doctor["findings"][0]["severity"] = json!("critical\" onclick=\"x");
    doctor["findings"][0]["id"] = json!("<img src=x>");
    all.node("<b onclick=x>bold<", "worker\"><script>", 'a', &doctor);
    all.run(&[]).exits(3);
    let page = all.page();
    is_closed(&page);
    assert!(page.contains("&lt;script&gt;document.title"), "{page}");
    if let Some(seen) = shown(&page, PHONE) {
        seen.is_well();
        seen.says(&[script, "<b onclick=x>bold<", "<img src=x>"]);
    }
}

#[test]
fn a_file_that_cannot_be_used_is_listed_and_stops_nothing() {
    let all = Gathered::fleet();
    let half = &all.status.to_string()[..200];
    all.write("half.json", half);
    all.write("empty.json", "");
    all.write("other.json", "{\"kind\": \"Pod\"}");
    all.write("newer.json", "{\"schema\": \"mco-rescue/status/v2\"}");
    all.write("garbage.tar.gz", "\u{1}\u{2}\u{3}");
    all.write("worker-9.tar.gz.age", "age-encryption.org/v1\n");
    // Documents of other kinds, and other files, are nothing to tell.
    all.write("plan.json", "{\"schema\": \"mco-rescue/plan/v1\"}");
    all.write("notes.txt", "x");
    all.write(".hidden.json", "{");
    all.write("a/b/c/d/e/deep.json", "{}");
    std::os::unix::fs::symlink("/etc/passwd", all.path("link.json")).unwrap();
    let document = all.run(&["--output", "json"]).exits(3).json();
    let skipped = document["skipped"].as_array().unwrap();
    let said: Vec<String> = skipped
        .iter()
        .map(|one| {
            format!(
                "{} {}",
                one["file"].as_str().unwrap(),
                one["why"].as_str().unwrap()
            )
        })
        .collect();
    let expected = [
        "a/b/c/d is too deep",
        "empty.json is empty",
        "garbage.tar.gz is not a bundle",
        "half.json is not a JSON document, or only a part of one",
        // No link leads out of the directory.
        "link.json is a link to nothing",
        "newer.json is from another version of the program: mco-rescue/status/v2",
        "other.json is not a document of mco-rescue",
        "worker-9.tar.gz.age is encrypted",
    ];
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    for (is, begins) in said.iter().zip(expected) {
        assert!(is.starts_with(begins), "{is} is not {begins}");
    }
    assert_eq!(document["nodes"].as_array().unwrap().len(), 7);
    assert!(all.page().contains("worker-9.tar.gz.age"));
}

#[test]
fn bundles_and_directories_of_nodes_are_read_as_they_are() {
    let all = Gathered::new();
    let root = TestRoot::new();
    root.apply(&config("worker", 'a'));
    let bundle = all.path("worker-7.tar.gz");
    root.run(&["doctor", "--bundle", bundle.to_str().unwrap()]);
    all.write("worker-8/status.json", &all.status.to_string());
    all.write("worker-8/doctor.json", &all.sick.to_string());
    // As Ansible's role gathers it.
    all.write("worker-9.json", &all.status.to_string());
    let document = all.run(&["--output", "json"]).json();
    let nodes = document["nodes"].as_array().unwrap();
    let mut found: Vec<(&str, &str)> = nodes
        .iter()
        .map(|node| {
            (
                node["name"].as_str().unwrap(),
                node["pool"].as_str().unwrap(),
            )
        })
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("worker-7", "worker"),
            ("worker-8", "worker"),
            ("worker-9", "worker")
        ]
    );
    let of = |name: &str| nodes.iter().find(|node| node["name"] == name).unwrap();
    assert_eq!(of("worker-9")["health"], "unknown");
    assert_eq!(of("worker-8")["health"], "warning");
    assert_ne!(of("worker-7")["health"], "unknown");
}

#[test]
fn an_older_page_is_replaced_and_nothing_else_is() {
    let all = Gathered::fleet();
    all.run(&[]).exits(3);
    let before = all.page();
    all.node("worker-11", "worker", 'a', &all.healthy);
    all.run(&[]).exits(3);
    assert_ne!(all.page(), before);
    for foreign in ["mine", "", "<!doctype html>\n<html>mine"] {
        all.write("fleet.html", foreign);
        let said = flat(&all.run(&[]).exits(1).err());
        assert!(
            said.contains("it exists already; give another file with --out"),
            "{said}"
        );
        assert_eq!(all.page(), foreign);
    }
    let out = all.path("out.html");
    all.run(&["--out", out.to_str().unwrap()]).exits(3);
    assert!(
        fs::read_to_string(&out)
            .unwrap()
            .contains("Fleet of 8 nodes")
    );
    let missing = all.path("no/such/page.html");
    all.run(&["--out", missing.to_str().unwrap()]).exits(1);
    let left: Vec<_> = fs::read_dir(all.dir.path()).unwrap().collect();
    assert!(left.iter().all(|one| {
        !one.as_ref()
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .ends_with(".new")
    }));
}

#[test]
fn the_exit_code_is_that_of_the_worst() {
    let all = Gathered::new();
    all.node("worker-0", "worker", 'a', &all.healthy);
    all.run(&[]).exits(0);
    let mut critical = all.sick.clone();
    critical["findings"][0]["severity"] = json!("critical");
    all.node("worker-1", "worker", 'a', &critical);
    all.run(&[]).exits(6);
    let empty = tempfile::tempdir().unwrap();
    let on = |path: &Path| {
        let mut command = Command::new(PROGRAM);
        Run::of(command.arg("report").arg(path).output().unwrap()).exits(1)
    };
    assert!(flat(&on(empty.path()).err()).contains("has no status or doctor document"));
    assert!(!empty.path().join("fleet.html").exists());
    on(&empty.path().join("missing"));
}

#[test]
fn five_hundred_nodes_have_one_page() {
    let all = Gathered::new();
    for number in 0..500 {
        let doctor = if number % 50 == 7 {
            &all.sick
        } else {
            &all.healthy
        };
        let letter = if number == 321 { 'b' } else { 'a' };
        all.node(&format!("worker-{number}"), "worker", letter, doctor);
    }
    let said = all.run(&[]).exits(3).out();
    assert!(
        said.starts_with("500 nodes: 10 warning, 490 nothing found\n"),
        "{said}"
    );
    assert!(
        flat(&said).contains("worker-307 and 4 more") || flat(&said).contains("and 4 more"),
        "{said}"
    );
    assert!(flat(&said).contains("(worker-321)"), "{said}");
    let page = all.page();
    assert!(
        page.contains("worker-499") && page.len() < 2 << 20,
        "{}",
        page.len()
    );
}

/// The documents of a node that were made at another time.
fn dated(document: &Value, seconds: i64) -> Value {
    let mut document = document.clone();
    document["now"] = json!(document["now"].as_i64().unwrap() + seconds);
    document
}

#[test]
fn the_page_begins_with_the_worst_node_and_leads_to_its_commands() {
    let all = Gathered::fleet();
    let mut critical = all.sick.clone();
    critical["findings"][0]["severity"] = json!("critical");
    critical["findings"][0]["next"] = json!(["Ask a person first; it is late.", "oc get csr"]);
    all.node("worker-11", "worker", 'a', &critical);
    all.run(&[]).exits(6);
    let page = all.page();
    is_closed(&page);
    let begin = page.split("<ul class=\"tally\">").next().unwrap();
    for words in [
        "Begin with worker-11: 1 critical",
        "First: FP-03, /etc/a is not as recorded.",
    ] {
        assert!(begin.contains(words), "{begin}");
    }
    // An instruction in words is no command to copy.
    assert!(begin.contains("<p>Ask a person first"), "{begin}");
    let place = page.split("\">worker-11</a>").next().unwrap();
    let place = place.rsplit("href=\"#").next().unwrap();
    let part = page.split(&format!("id=\"{place}\"")).nth(1).unwrap();
    let part = part.split("</article>").next().unwrap();
    assert!(
        part.contains("<pre class=\"command\">oc get csr</pre>"),
        "{part}"
    );
}

#[test]
fn a_stale_document_is_marked_and_proves_no_health() {
    let all = Gathered::new();
    let day = 24 * 3600;
    for (name, age) in [("old", -115 * day), ("ahead", 2 * day), ("fresh", -day / 2)] {
        all.write(
            &format!("{name}.status.json"),
            &dated(&all.status, age).to_string(),
        );
        all.write(
            &format!("{name}.doctor.json"),
            &dated(&all.healthy, age).to_string(),
        );
    }
    all.write(
        "old-sick.doctor.json",
        &dated(&all.sick, -115 * day).to_string(),
    );
    // A document of a version that had no date in it is as old as the status beside it.
    let mut undated = all.healthy.clone();
    undated.as_object_mut().unwrap().remove("now");
    all.write("undated.doctor.json", &undated.to_string());
    all.write(
        "undated.status.json",
        &dated(&all.status, -115 * day).to_string(),
    );
    let document = all.run(&["--output", "json"]).exits(3).json();
    let nodes = document["nodes"].as_array().unwrap();
    let mut found: Vec<(&str, &str, bool)> = nodes
        .iter()
        .map(|node| {
            let word = |key: &str| node[key].as_str().unwrap();
            (
                word("name"),
                word("health"),
                node["stale"].as_bool().unwrap(),
            )
        })
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("ahead", "unknown", true),
            ("fresh", "healthy", false),
            ("old", "unknown", true),
            ("old-sick", "warning", true),
            ("undated", "unknown", true),
        ]
    );
    let said = flat(&all.run(&[]).exits(3).out());
    assert!(said.contains("Stale, gather again: "), "{said}");
    let page = all.page();
    is_closed(&page);
    assert!(page.contains("4 nodes with stale documents"), "{page}");
    assert!(page.contains("Stale: a document is from 20"), "{page}");
}

#[test]
fn a_node_is_healthy_only_where_every_check_looked_at_everything() {
    let all = Gathered::new();
    all.node("partial", "worker", 'a', &all.healthy);
    let mut whole = all.healthy.clone();
    for check in whole["checks"].as_array_mut().unwrap() {
        check["unseen"] = json!([]);
    }
    all.node("whole", "worker", 'a', &whole);
    let said = all.run(&[]).exits(0).out();
    assert!(
        said.starts_with("2 nodes: 1 healthy, 1 nothing found\n"),
        "{said}"
    );
    assert!(
        said.contains("On 1 node some checks could not look at everything.\n"),
        "{said}"
    );
    let document = all.run(&["--output", "json"]).exits(0).json();
    let of = |name: &str| {
        let nodes = document["nodes"].as_array().unwrap();
        let node = nodes.iter().find(|node| node["name"] == name).unwrap();
        node["not_checked"].as_u64().unwrap()
    };
    assert_eq!(of("whole"), 0);
    let page = all.page();
    assert!(page.contains("No node needs attention."), "{page}");
    assert!(
        page.contains(&format!("{} not looked at", of("partial"))),
        "{page}"
    );
    assert_eq!(page.matches(">healthy<").count(), 1, "{page}");
}
