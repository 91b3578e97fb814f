//! Kernel arguments beside the real libostree, and what the kernel makes of their order.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::support::fuzz_targets::apply_changes;
use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{AWAITED, IMAGE, OstreeNode};
use crate::support::{Lacks, file, flat, machine_config, say, skip};
use mco_rescue::base::kargs::{Kargs, KargsChange};
use mco_rescue::node::bootloader::BootEntry;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

/// How many cases each property has to hold for.
const CASES: u32 = 4000;

/// Calls the functions that rpm-ostree calls, one line of JSON for each question.
const LIBOSTREE: &str = r#"
import ctypes, json, sys
lib = ctypes.CDLL("libostree-1.so.1")
lib.ostree_kernel_args_from_string.restype = ctypes.c_void_p
lib.ostree_kernel_args_to_string.restype = ctypes.c_char_p
for name in ("append", "delete", "to_string"):
    function = getattr(lib, "ostree_kernel_args_" + name)
    function.argtypes = [ctypes.c_void_p] + ([] if name == "to_string" else [ctypes.c_char_p])
lib.ostree_kernel_args_delete.argtypes.append(ctypes.c_void_p)
print(flush=True)
for line in sys.stdin:
    start, changes = json.loads(line)
    kargs = lib.ostree_kernel_args_from_string(start.encode())
    fine = True
    for way, token in changes:
        if way == "append":
            lib.ostree_kernel_args_append(kargs, token.encode())
        else:
            fine = bool(lib.ostree_kernel_args_delete(kargs, token.encode(), None)) and fine
    print(lib.ostree_kernel_args_to_string(kargs).decode() if fine else "error", flush=True)
"#;

/// The library itself, behind a pipe.
struct Libostree(RefCell<(Child, ChildStdin, BufReader<ChildStdout>)>);

impl Drop for Libostree {
    fn drop(&mut self) {
        let child = &mut self.0.borrow_mut().0;
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Libostree {
    fn new() -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", LIBOSTREE]).stdin(Stdio::piped());
        let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let real = started.ok().map(|mut child| {
            let (input, output) = (child.stdin.take(), child.stdout.take());
            let output = BufReader::new(output.unwrap());
            Self(RefCell::new((child, input.unwrap(), output)))
        });
        let real = real.filter(|real| real.answer() == "\n");
        if real.is_none() {
            skip(
                Lacks::Setup,
                "the real libostree needs python3 and libostree-1.so.1",
            );
        }
        real
    }

    fn answer(&self) -> String {
        let mut line = String::new();
        self.0.borrow_mut().2.read_line(&mut line).unwrap();
        line
    }

    fn ask(&self, start: &Kargs, changes: &[(&str, String)]) -> Option<Kargs> {
        let question = json!([start.to_string(), changes]);
        writeln!(self.0.borrow_mut().1, "{question}").unwrap();
        let answer = self.answer();
        (answer != "error\n").then(|| Kargs::parse(&answer))
    }

    /// As `rpm-ostree kargs` 2025.6 does it: it passes over a deletion of what the line does not have word for word,
    /// appends, and then deletes; `first`: a version that deletes first.
    fn kargs(&self, start: &Kargs, changes: &[KargsChange], first: bool) -> Option<Kargs> {
        let (mut away, mut added) = (Vec::new(), Vec::new());
        for change in changes {
            match change {
                KargsChange::Append(token) => added.push(("append", token.clone())),
                KargsChange::Delete(token) if start.tokens().contains(token) => {
                    away.push(("delete", token.clone()));
                }
                KargsChange::Delete(_) => {}
            }
        }
        let (one, two) = if first { (away, added) } else { (added, away) };
        self.ask(start, &[one, two].concat())
    }
}

fn check<S: Strategy>(strategy: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, property) {
        panic!("{error}");
    }
}

/// What the kernel takes from a command line, as far as these keys are concerned.
#[derive(Debug, PartialEq, Eq)]
struct Effect {
    /// Pages of each size; of none named: the default size.
    pages: BTreeMap<String, String>,
    /// The last one is the main one.
    consoles: (BTreeSet<String>, Option<String>),
    /// Of every other key, the last value.
    last: BTreeMap<String, String>,
    writable: bool,
}

fn effect(line: &Kargs) -> Effect {
    let mut effect = Effect {
        pages: BTreeMap::new(),
        consoles: Default::default(),
        last: BTreeMap::new(),
        writable: false,
    };
    let mut size = Some(String::new());
    for token in line.tokens() {
        let (key, value) = token.split_once('=').unwrap_or((token, ""));
        match key {
            "hugepagesz" => size = Some(value.to_owned()),
            // A number belongs to the size right before it; a second one without another size is ignored.
            "hugepages" => {
                if let Some(size) = size.take() {
                    effect.pages.entry(size).or_insert(value.to_owned());
                }
            }
            "console" => {
                effect.consoles.0.insert(value.to_owned());
                effect.consoles.1 = Some(value.to_owned());
            }
            "ro" | "rw" => effect.writable = key == "rw",
            _ => drop(effect.last.insert(key.to_owned(), value.to_owned())),
        }
    }
    effect
}

/// Of one config: pages of several sizes, consoles, and other keys, some of them several times.
fn config() -> impl Strategy<Value = Kargs> {
    let part = prop_oneof![
        ("(1G|2M)", 1..4u8).prop_map(|(size, n)| format!("hugepagesz={size} hugepages={n}")),
        (1..4u8).prop_map(|n| format!("hugepages={n}")),
        "console=tty[01]",
        "(a|b|c)(=[12])?",
        "r[ow]",
        Just("nosmt".to_owned()),
    ];
    prop::collection::vec(part, 0..6).prop_map(|parts| Kargs::parse(&parts.join(" ")))
}

fn joined(parts: &[&Kargs]) -> Kargs {
    let lines: Vec<String> = parts.iter().map(ToString::to_string).collect();
    Kargs::parse(&lines.join(" "))
}

fn has_in_order(line: &Kargs, wanted: &Kargs) -> bool {
    let mut rest = line.tokens().iter();
    wanted
        .tokens()
        .iter()
        .all(|token| rest.any(|one| one == token))
}

/// The daemon's own sequence: it deletes all old arguments, and appends all new ones, the same ones included.
fn daemon_sequence(old: &Kargs, new: &Kargs) -> Vec<KargsChange> {
    let away = old.tokens().iter().cloned().map(KargsChange::Delete);
    let added = new.tokens().iter().cloned().map(KargsChange::Append);
    away.chain(added).collect()
}

fn sorted(tokens: &[String]) -> Vec<String> {
    let mut tokens = tokens.to_vec();
    tokens.sort();
    tokens
}

proptest! {
    #[test]
    fn the_sequence_leads_to_the_wanted_ones(
        present in "([abc](=[12])? ){0,8}", wanted in "([abc](=[12])? ){0,8}",
    ) {
        let (present, wanted) = (Kargs::parse(&present), Kargs::parse(&wanted));
        let changed = apply_changes(present.tokens(), &present.changes_to(&wanted));
        prop_assert_eq!(changed, wanted.tokens());
        prop_assert_eq!(wanted.changes_to(&wanted), []);
    }

    #[test]
    fn the_order_of_deleting_and_appending_does_not_matter(
        present in "([abc]=[12] ){0,8}", wanted in "([abc]=[12] ){0,8}",
    ) {
        let (present, wanted) = (Kargs::parse(&present), Kargs::parse(&wanted));
        let (away, added): (Vec<_>, Vec<_>) = present
            .changes_to(&wanted)
            .into_iter()
            .partition(|change| matches!(change, KargsChange::Delete(_)));
        let deleted = apply_changes(present.tokens(), &away);
        prop_assert_eq!(apply_changes(&deleted, &added), wanted.tokens());
    }

    #[test]
    fn without_drift_the_daemons_sequence_gives_the_same_arguments(
        base in "(x=[12] |y ){0,4}", old in "([abc]=[12] ){0,5}", new in "([abc]=[12] ){0,5}",
    ) {
        let (old, new) = (Kargs::parse(&old), Kargs::parse(&new));
        let present = Kargs::parse(&format!("{base} {old}"));
        let daemon = apply_changes(present.tokens(), &daemon_sequence(&old, &new));
        prop_assert_eq!(sorted(present.after_change(&old, &new).tokens()), sorted(&daemon));
    }
}

#[test]
fn the_real_libostree_leads_where_the_daemons_own_sequence_leads() {
    let Some(real) = Libostree::new() else { return };
    let (changed, shorter, compared) = (Cell::new(0), Cell::new(0), Cell::new(0));
    check((config(), config(), config()), |(base, old, new)| {
        let present = joined(&[&base, &old]);
        let daemon = daemon_sequence(&old, &new);
        let changes = present.changes_to(&present.after_change(&old, &new));
        let ours = real.kargs(&present, &changes, false);
        prop_assert_eq!(&real.kargs(&present, &changes, true), &ours);
        let ours = ours.unwrap();
        prop_assert_eq!(&apply_changes(present.tokens(), &changes), ours.tokens());
        let theirs = real.kargs(&present, &daemon, false).unwrap();
        if !changes.is_empty() {
            changed.set(changed.get() + 1);
            shorter.set(shorter.get() + u32::from(changes.len() < daemon.len()));
            prop_assert!(has_in_order(&ours, &new), "{} -> {}", present, ours);
        }
        // Where the base holds one of theirs too, the daemon deletes the base's, or doubles it.
        let own = |token: &String| !base.tokens().contains(token);
        if old.tokens().iter().chain(new.tokens()).all(own) {
            compared.set(compared.get() + 1);
            prop_assert_eq!(
                effect(&ours),
                effect(&theirs),
                "{} -> {}, {}",
                present,
                ours,
                theirs
            );
        }
        Ok(())
    });
    say(&format!(
        "kernel arguments beside libostree: {CASES} cases, {} with changes, {} of them shorter than the \
         daemon's; the effect of {} compared",
        changed.get(),
        shorter.get(),
        compared.get()
    ));
}

#[test]
fn whatever_was_changed_by_hand_the_arguments_come_right_and_stay() {
    let Some(real) = Libostree::new() else { return };
    let changed = Cell::new(0);
    check((config(), config(), config()), |(present, old, new)| {
        let changes = present.changes_to(&present.after_change(&old, &new));
        let ours = real.kargs(&present, &changes, false);
        prop_assert_eq!(&real.kargs(&present, &changes, true), &ours);
        let ours = ours.unwrap();
        prop_assert_eq!(&apply_changes(present.tokens(), &changes), ours.tokens());
        prop_assert!(
            new.missing_from(&ours).is_empty(),
            "{} -> {}",
            present,
            ours
        );
        prop_assert!(
            new.out_of_order(&ours).is_empty(),
            "{} -> {}",
            present,
            ours
        );
        // The record says the new config now.
        prop_assert_eq!(&ours.after_change(&new, &new), &ours);
        changed.set(changed.get() + u32::from(!changes.is_empty()));
        Ok(())
    });
    say(&format!(
        "kernel arguments changed by hand: {CASES} cases, {} with changes",
        changed.get()
    ));
}

#[test]
fn pages_of_the_first_size_stay_when_the_number_of_the_second_changes() {
    let Some(real) = Libostree::new() else { return };
    let line = |two| {
        let line = format!("hugepagesz=1G hugepages=4 hugepagesz=2M hugepages={two}");
        Kargs::parse(&line)
    };
    let (old, new) = (line(4), line(6));
    let present = joined(&[&Kargs::parse("root=x rw"), &old]);
    let changes = present.changes_to(&present.after_change(&old, &new));
    let after = real.kargs(&present, &changes, false).unwrap();
    let pages = |size: &str| effect(&after).pages.get(size).cloned();
    assert_eq!(pages("1G").as_deref(), Some("4"), "{after}");
    assert_eq!(pages("2M").as_deref(), Some("6"), "{after}");
}

const PAGES: &str = "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4";

fn pages_of(count: u8) -> String {
    let entries = ["hugepagesz=1G hugepages=4", "hugepagesz=2M"].map(str::to_owned);
    let entries = [&entries[..], &[format!("hugepages={count}")]].concat();
    let files = json!({"storage": {"files": [file("/etc/a", 0o644, "a\n")]}});
    let mut config = machine_config("rendered-worker-1", files);
    config["spec"]["osImageURL"] = json!(IMAGE);
    config["spec"]["kernelArguments"] = json!(entries);
    config.to_string()
}

/// A node with this command line, and a record of [`PAGES`].
fn node(line: &str) -> OstreeNode {
    let node = OstreeNode::new();
    let record = "etc/machine-config-daemon/currentconfig";
    node.root.write(record, &pages_of(4));
    node.root.write("etc/a", "a\n");
    node.root.write("stub/kargs", &format!("{line}\n"));
    let shown = format!("{line} ostree=/ostree/boot.1/rhcos/0/0\n");
    node.root.write("cmdline", &shown);
    node
}

#[test]
fn a_changed_number_of_pages_leaves_every_number_behind_its_size() {
    with_mounts(|| {
        let node = node(&format!("rw {PAGES}"));
        node.root.write("config", &pages_of(6));
        // Of equal arguments the first one goes, so this leaves the first size its number.
        let options = "--delete-if-present=hugepagesz=2M --delete-if-present=hugepages=4 \
                       --append=hugepagesz=2M --append=hugepages=6";
        let plan = node.run(&["plan", "/config"]);
        assert!(
            flat(&plan.out()).contains(options),
            "{}{}",
            plan.out(),
            plan.err()
        );
        node.run(&["apply", "--yes", "/config"]).ok();
        let calls = node.calls().join("\n");
        assert!(
            calls.contains(&format!("rpm-ostree kargs {options}")),
            "{calls}"
        );
        let staged = node.root.read("stub/kargs");
        assert_eq!(
            staged,
            "rw hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=6\n"
        );
    });
}

#[test]
fn the_right_arguments_in_the_wrong_order_are_drift_and_are_put_in_order() {
    with_mounts(|| {
        let wrong = "rw hugepagesz=1G hugepagesz=2M hugepages=4 hugepages=4";
        let node = node(wrong);
        let verified = node.run(&["verify"]);
        assert_eq!(verified.code(), 3, "{}", verified.out());
        let said = flat(&verified.out());
        let words = format!("kernel arguments {PAGES}: present, but in another order");
        assert!(said.contains(&words), "{said}");
        node.root.write("config", &pages_of(4));
        let plan = flat(&node.run(&["plan", "/config"]).out());
        assert!(
            plan.contains("--append=hugepagesz=2M --append=hugepages=4"),
            "{plan}"
        );
        node.run(&["apply", "--yes", "/config"]).ok();
        assert_eq!(node.root.read("stub/kargs"), format!("rw {PAGES}\n"));
        let doctor = flat(&node.run(&["doctor"]).out());
        assert!(
            doctor.contains("the config's kernel arguments are in another order"),
            "{doctor}"
        );
    });
}

/// A config with the image that runs, these kernel arguments and one file.
fn config_of(name: &str, arguments: &[&str]) -> String {
    let files = json!({"storage": {"files": [file("/etc/a", 0o644, &format!("{name}\n"))]}});
    let mut config = machine_config(name, files);
    config["spec"]["osImageURL"] = json!(IMAGE);
    config["spec"]["kernelArguments"] = json!(arguments);
    config.to_string()
}

/// A node whose record asks for `recorded`, with this command line in its boot entry and in the kernel.
fn node_of(recorded: &[&str], entry: &str, booted: &str) -> OstreeNode {
    let node = OstreeNode::new();
    let name = "rendered-worker-1";
    node.root.write(
        "etc/machine-config-daemon/currentconfig",
        &config_of(name, recorded),
    );
    node.root.write("etc/a", &format!("{name}\n"));
    node.root.write("stub/kargs", &format!("{entry}\n"));
    let shown = format!("{booted} ostree=/ostree/boot.1/rhcos/0/0\n");
    node.root.write("cmdline", &shown);
    node
}

#[test]
fn arguments_that_only_files_left_behind_are_drift_and_go_with_the_next_full_run() {
    with_mounts(|| {
        let node = node_of(&["audit=0"], "rw audit=0", "rw audit=0");
        for name in ["rendered-worker-2", "rendered-worker-3"] {
            node.root.write("config", &config_of(name, &[]));
            let args = ["apply", "--yes", "--files-only", "/config"];
            let run = node.run(&args);
            assert_eq!(run.code(), 3, "{}{}", run.out(), run.err());
            let verified = node.run(&["verify"]);
            assert_eq!(verified.code(), 3, "{}", verified.out());
            let said = flat(&verified.out());
            let words = "audit=0 still present, from an earlier config";
            assert!(said.contains(words), "{said}");
        }
        node.run(&["apply", "--yes", "/config"]).ok();
        assert_eq!(node.root.read("stub/kargs"), "rw\n");
        node.run(&["verify"]).ok();
    });
}

#[test]
fn an_argument_with_a_quoted_blank_arrives_as_grub_hands_it_over() {
    with_mounts(|| {
        let quoted = r#"dyndbg="file x +p""#;
        let node = node_of(&[], "rw", "rw");
        let name = "rendered-worker-2";
        node.root.write("config", &config_of(name, &[quoted]));
        let plan = node.run(&["plan", "/config"]);
        let option = format!("'--append={quoted}'");
        assert!(flat(&plan.out()).contains(&option), "{}", plan.out());
        node.run(&["apply", "--yes", "/config"]).ok();
        let staged = node.root.read("stub/kargs");
        assert_eq!(staged, format!("rw {quoted}\n"));
        node.reboots_into(IMAGE);
        let line = r#"rw "dyndbg=file x +p" ostree=/ostree/boot.1/rhcos/0/0"#;
        node.root.write("cmdline", &format!("{line}\n"));
        node.awaits_since_the_boot_before();
        let complete = node.run(&["complete"]).ok();
        assert!(!node.root.exists(AWAITED), "{}", complete.out());
        let status = flat(&node.run(&["status"]).out());
        assert!(!status.contains("Mismatch"), "{status}");
        assert!(!status.contains("did not come up"), "{status}");
        let plan = flat(&node.run(&["plan", "/config"]).out());
        assert!(!plan.contains("--append"), "{plan}");
        assert!(!plan.contains("reboot"), "{plan}");
        // What asked for it is remembered under the line of the boot entry.
        node.root
            .write("config", &config_of("rendered-worker-3", &[]));
        let plan = flat(&node.run(&["plan", "/config"]).out());
        let option = format!("'--delete-if-present={quoted}'");
        assert!(plan.contains(&option), "{plan}");
    });
}

#[test]
fn every_way_to_quote_reads_as_the_same_argument() {
    let generated = ("[a-z._-]{1,4}", "[a-z0-9 ,=+;*]{0,8}", "[a-z=]{0,3}");
    check(generated, |(key, value, other)| {
        let mut forms = vec![format!("{key}=\"{value}\""), format!("\"{key}={value}\"")];
        if !value.contains(' ') {
            forms.push(format!("{key}={value}"));
        }
        let another = Kargs::parse(&format!("{key}=\"{value}x\""));
        for one in &forms {
            let line = format!("rw {one} {other}");
            let entry = BootEntry::parse("x", &format!("options {line}\n")).options;
            for two in &forms {
                let of_config = Kargs::from_entries(&[two]);
                prop_assert_eq!(of_config.tokens().len(), 1);
                let booted = Kargs::parse(&line).written_as(&of_config);
                prop_assert!(booted.tokens().contains(two), "{} as {}", one, two);
                prop_assert_eq!(&booted, &entry.written_as(&of_config));
                prop_assert!(!another.written_as(&of_config).tokens().contains(two));
            }
        }
        Ok(())
    });
}
