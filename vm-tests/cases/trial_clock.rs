//! The clock of a node jumps while a change is on trial (story: a node whose NTP server is wrong).
//!
//! Prepared: a node in config A, started by its own GRUB. Config B has the same image and arguments, and other files and units.
//! It is tried twice without a reboot, and the clock is set by days forward and by years back meanwhile. True afterwards: the
//! deadline stays the same moment of the kernel's clock; without a confirmation the change goes back then, neither earlier
//! nor later; and a login of the jumped clock confirms the second trial, which stays beyond its deadline.

use std::time::Duration;

use serde_json::Value;

use super::boot_trials::{disks_in_a, last_trial, public_key};
use super::node::PROGRAM;
use super::os;
use crate::lab::Case;
use crate::lab::loaded::Loaded;
use crate::lab::node::Booted;

/// Time for a confirmation, in seconds: some logins of an emulated node.
const WINDOW: u64 = 150;
/// The guard looks once a second, and takes longer on a busy machine. The second guard comes 10 to 40 s after the deadline.
const LATEST: f64 = 60.0;
const TRIAL: &str = "/var/lib/mco-rescue/trial.json";

#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_clock_that_jumps_moves_no_deadline() {
    let Some(case) = Case::begin_as_root("8 trial, the clock jumps") else {
        return;
    };
    let disks = disks_in_a();
    let key = public_key(&disks);
    let mut node = Loaded::of(&case, &disks);
    node.has_this_program();
    case.prepared();
    let mut booted = node.start();
    booted.comes_up();
    let a = os::config_a(&key, &os::image("a"));
    let b = os::config_b_soft(&key, &os::image("a"));
    booted.bring("b.json", b.to_string().as_bytes());

    let until = tries_b(&booted);
    jumps(&booted, "+3 days");
    assert_eq!(deadline(&booted), Some(until), "forward");
    jumps(&booted, "-2 years");
    assert_eq!(deadline(&booted), Some(until), "back");
    waits_until_ended(&mut booted);
    let last = last_trial(&booted);
    assert_eq!(last["outcome"], "reverted", "{last}");
    let why = last["why"].as_str().unwrap();
    assert!(why.contains("no confirmation came within"), "{why}");
    let went = went_back_at(&booted);
    let late = went - until;
    case.tell(&format!("it went back {late:.1} s after its deadline"));
    assert!((0.0..LATEST).contains(&late), "{late} s");
    os::is_all_of_a(&booted, &a);

    let until = tries_b(&booted);
    jumps(&booted, "+1 year");
    let said = booted.run(&format!("sudo {PROGRAM} confirm"));
    assert_eq!(said.code(), 0, "{}{}", said.out(), said.err());
    jumps(&booted, "-1 month");
    while since_boot(&booted) < until + LATEST {
        std::thread::sleep(Duration::from_secs(2));
    }
    let last = last_trial(&booted);
    assert_eq!(last["outcome"], "confirmed", "{last}");
    booted.ask("test -e /etc/site/b && test ! -e /etc/site/a");
    booted.power_off();
}

/// Begins a trial. Gives its deadline, in seconds since the boot.
fn tries_b(booted: &Booted) -> f64 {
    let before = since_boot(booted);
    let said = booted.run(&format!(
        "sudo {PROGRAM} apply --yes --detach --try={WINDOW}s b.json"
    ));
    assert_eq!(said.code(), 0, "{}{}", said.out(), said.err());
    let until = deadline(booted).expect("no trial waits");
    assert!(until > before + WINDOW as f64, "{before}, {until}");
    until
}

/// The deadline of the trial that waits, in seconds since the boot.
fn deadline(booted: &Booted) -> Option<f64> {
    let trial = booted.run(&format!("sudo cat {TRIAL}"));
    let trial: Value = serde_json::from_str(&trial.out()).ok()?;
    let until = trial["until"].as_u64()?;
    (trial["phase"] == "waiting").then(|| until as f64 / 1000.0)
}

/// Sets the clock, and leaves everything that looks at it the time for a look.
fn jumps(booted: &Booted, by: &str) {
    let (before, after) = (
        booted.ask("date +%s"),
        booted.ask(&format!("sudo date -s '{by}' +%s")),
    );
    let seconds = |text: &str| text.trim().parse::<i64>().unwrap();
    let jump = seconds(&after) - seconds(&before);
    assert!(jump.abs() > 2 * 86_400, "{by}: {jump} s");
    std::thread::sleep(Duration::from_secs(8));
}

fn waits_until_ended(booted: &mut Booted) {
    booted.comes_to(&format!("sudo test ! -e {TRIAL}"));
}

fn since_boot(booted: &Booted) -> f64 {
    let text = booted.ask("cat /proc/uptime");
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// The moment at which the guard began the way back, in seconds since the boot.
fn went_back_at(booted: &Booted) -> f64 {
    let lines = booted.ask("sudo journalctl -b -o json -u 'mco-rescue-guard*' --no-pager");
    let entries = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut went = entries.filter(|entry| {
        let message = entry["MESSAGE"].as_str().unwrap_or_default();
        message.contains("goes back: no confirmation")
    });
    let first = went.next();
    let first = first.unwrap_or_else(|| panic!("the guard says nothing: {lines}"));
    let stamp: f64 = first["__MONOTONIC_TIMESTAMP"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    stamp / 1e6
}
