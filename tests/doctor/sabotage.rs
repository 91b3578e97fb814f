//! Forty and more nodes that an accident broke, each in one way: the first three lines of `doctor` name the cause.
//!
//! `sabotage.sh` breaks them with ordinary tools, and knows nothing of the checks.

use std::process::Command;

use super::master;
use super::worker::copy;
use crate::support::control_plane::ControlPlane;
use crate::support::{Lacks, TestRoot, flat, say, skip};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/doctor/sabotage.sh");
/// Lines of the answer in which the cause has to be.
const LINES: usize = 3;

fn script(args: &[&str]) -> String {
    let run = Command::new("bash")
        .arg(SCRIPT)
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{args:?}: {said}");
    String::from_utf8(run.stdout).unwrap()
}

/// The first lines of the answer, as on a terminal of 80 columns.
fn first_lines(root: &TestRoot) -> String {
    let run = root.run(&["doctor"]);
    let out = run.out();
    let lines: Vec<&str> = out.lines().take(LINES).collect();
    flat(&lines.join("\n"))
}

#[test]
fn the_first_lines_name_the_cause_of_each_accident() {
    let template = master::with(&ControlPlane::new());
    let place = template.dir().to_str().unwrap();
    script(&["furnish", place]);
    let well = template.run(&["doctor"]);
    assert!(well.out().contains("Nothing found wrong"), "{}", well.out());
    let has_etcd = template.exists("var/lib/etcd");
    let (mut broken, mut missed) = (0, Vec::new());
    for line in script(&["list"]).lines() {
        let (way, cause) = line.split_once('\t').unwrap();
        let of_data = ["etcd-database", "etcd-log", "etcd-metas"];
        if !has_etcd && of_data.iter().any(|part| way.starts_with(part)) {
            skip(Lacks::Setup, &format!("{way}: no etcd to write the data"));
            continue;
        }
        let root = copy(&template);
        script(&[way, root.dir().to_str().unwrap()]);
        let said = first_lines(&root);
        broken += 1;
        if !said.contains(cause) {
            missed.push(format!("{way}: no {cause:?} in {said}"));
        }
    }
    say(&format!(
        "{broken} broken nodes, {} without the cause in the first lines",
        missed.len()
    ));
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
