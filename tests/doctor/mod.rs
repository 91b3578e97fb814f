//! `doctor`: each check on nodes that are well and on nodes with one trouble, and the command itself.
//! A check has its file, as in `src/diagnose/doctor/checks`; two nodes are shared: a `worker`, and a `small` one.

mod bundle;
mod command;
mod doors;
pub(crate) mod etcd_data;
mod fix;
mod fp_01;
mod fp_02;
mod fp_03;
mod fp_04;
mod fp_05;
mod fp_06;
mod fp_07;
mod fp_08;
mod fp_09;
mod fp_10;
mod fp_12;
mod fp_13;
mod fp_14;
mod fp_15;
mod fp_16;
mod fp_17;
mod fp_18;
mod fp_19;
mod fp_20;
mod fp_21;
mod fp_22;
mod fp_23;
mod fp_24;
mod fp_25;
mod fp_26;
mod fp_27;
mod fp_28;
mod fp_29;
mod fp_30;
mod fp_31;
mod fp_32;
mod fp_33;
mod fp_34;
mod fp_39;
mod fp_40;
mod fp_41;
mod fp_44;
mod fp_45;
mod fp_46;
mod fp_47;
mod fp_48;
mod fp_49;
mod fp_50;
mod fp_51;
mod fp_53;
mod fp_54;
mod fp_55;
mod fp_57;
mod fp_59;
mod fp_61;
mod fp_62;
mod fp_63;
mod fp_66;
mod fp_67;
mod fp_71;
mod fp_72;
mod master;
mod real_sshd;
mod recipients;
mod sabotage;
mod small;
mod until;
mod watched;
mod worker;

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::ostree_node::OstreeNode;
use crate::support::{RECORD, Run, TestRoot, commands};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::Value;

/// Exit codes.
const FINE: i32 = 0;
const WARNING: i32 = 3;
const CRITICAL: i32 = 6;

const DAY: Duration = Duration::from_secs(86_400);

/// A self-signed certificate with its key, as the kubelet keeps its own: both in one file.
fn signed(name: &str, from: SystemTime, until: SystemTime) -> String {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = from.into();
    params.not_after = until.into();
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}

/// Valid from the first day of a year until that of another.
fn by_years(name: &str, from: i32, until: i32) -> String {
    let (from, until) = (
        rcgen::date_time_ymd(from, 1, 1),
        rcgen::date_time_ymd(until, 1, 1),
    );
    signed(name, from.into(), until.into())
}

/// Valid until so many days from now; of days before now, expired, and of none an hour ago.
fn certificate(name: &str, days: i64) -> String {
    let now = SystemTime::now();
    let span = DAY * u32::try_from(days.abs()).unwrap();
    let until = match days {
        1.. => now + span,
        0 => now - DAY / 24,
        ..0 => now - span,
    };
    signed(name, now - DAY * 4000, until)
}

/// The same for tests of other directories.
pub(crate) fn certificate_of(name: &str, days: i64) -> String {
    certificate(name, days)
}

fn answer(run: &Run) -> Value {
    assert!(
        [0, 3, 6].contains(&run.code()),
        "{}{}",
        run.out(),
        run.err()
    );
    run.json()
}

fn doctor(root: &TestRoot) -> Value {
    root.run_with_bootc_alone(&["doctor"]);
    answer(&root.run(&["doctor", "--output", "json"]))
}

/// The answer on a booted node.
fn doctor_on(node: &OstreeNode) -> Value {
    answer(&node.run(&["doctor", "--output", "json"]))
}

/// The answer on a booted node, with this exit code.
fn doctor_exits(node: &OstreeNode, code: i32) -> Value {
    node.run(&["doctor", "--output", "json"]).exits(code).json()
}

/// Carries out a command that the check's first finding prints.
#[track_caller]
fn carry_out(report: &Value, id: &str, number: usize) {
    let command = of(report, id)[0]["next"][number].clone();
    let command = command.as_str().unwrap();
    let status = Command::new("sh").args(["-c", command]).status();
    assert!(status.unwrap().success(), "{command}");
}

/// Runs `doctor` on a simple terminal.
fn doctor_with(root: &TestRoot, args: &[&str]) -> Run {
    let mut command = root.command(&["doctor"]);
    command.args(args).env("TERM", "dumb").stdin(Stdio::null());
    let output = command.output().unwrap();
    commands::check(&output, root.dir().to_str().unwrap());
    Run::of(output)
}

/// One thing that is wrong.
struct Sick {
    id: &'static str,
    code: i32,
    /// A part of what is said, and of a command.
    what: &'static str,
    next: &'static str,
    sicken: fn(&TestRoot),
}

/// Something that a check cannot look at, and why.
type Dark = (&'static str, &'static str, fn(&TestRoot));

fn of(seen: &Value, id: &str) -> Vec<Value> {
    let all = seen["findings"].as_array().unwrap().iter();
    all.filter(|one| one["id"] == id).cloned().collect()
}

/// The one finding of a check, with its severity; all its words.
#[track_caller]
fn found(seen: &Value, id: &str, severity: &str) -> String {
    let all = of(seen, id);
    assert_eq!(all.len(), 1, "{id}: {seen:#}");
    assert_eq!(all[0]["severity"], severity, "{:#}", all[0]);
    assert!(
        !all[0]["next"].as_array().unwrap().is_empty(),
        "{:#}",
        all[0]
    );
    assert!(all[0]["what"].as_str().unwrap().len() <= 60, "{:#}", all[0]);
    all[0].to_string()
}

fn finding<'a>(report: &'a Value, id: &str) -> &'a Value {
    let mut findings = report["findings"].as_array().unwrap().iter();
    let found = findings.find(|one| one["id"] == id);
    found.unwrap_or_else(|| panic!("no {id}: {report:#}"))
}

fn ids(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

/// What a check could not look at.
#[track_caller]
fn unseen(seen: &Value, id: &str) -> String {
    let mut checks = seen["checks"].as_array().unwrap().iter();
    let check = checks.find(|check| check["id"] == id).unwrap();
    check["unseen"].to_string()
}

#[track_caller]
fn says(text: &str, all: &[&str]) {
    for one in all {
        assert!(text.contains(one), "no {one:?} in {text}");
    }
}
