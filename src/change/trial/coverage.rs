//! The accidents after which a trial on this node reverts on its own, and those after which it does not; shown before it
//! begins.

use serde::Serialize;

/// The facts that determine which accidents are covered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CoverageFacts {
    /// A reboot is part of the trial.
    pub reboots: bool,
    /// The operating system or its kernel arguments change; the old deployment is kept on the disk.
    pub system: bool,
    /// The reason why the boot loader cannot revert on its own; `None` if it can.
    pub no_counter: Option<String>,
    /// A hardware watchdog is there.
    pub watchdog: bool,
    /// `kernel.panic`: seconds after which a panic reboots; 0 for never.
    pub panic: i32,
}

/// One accident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Accident {
    /// The accident.
    pub what: &'static str,
    /// The node recovers on its own.
    pub covered: bool,
    /// What reverts the change, or the reason why nothing does.
    pub by: String,
}

impl Accident {
    /// Returns the accident with what becomes of the node.
    pub fn describe_accident(&self) -> String {
        if self.covered {
            format!("{}: recovers by itself ({})", self.what, self.by)
        } else {
            format!("{}: does NOT recover by itself: {}", self.what, self.by)
        }
    }
}

/// Returns the accidents in the order in which they can happen.
pub fn list_accidents(facts: &CoverageFacts) -> Vec<Accident> {
    let mut all = vec![
        covered_accident(
            "login, network, sshd or a firewall broken",
            "the guard, when the time is up",
        ),
        covered_accident(
            "the guard killed",
            "systemd starts it again; a second timer looks every 30 s",
        ),
    ];
    if !facts.reboots {
        all.extend([
            covered_accident(
                "power cut, or a reboot by a person or the daemon",
                "the next boot, before the network starts",
            ),
            by_reset(
                facts,
                "kernel panic or hang",
                "the next boot reverts the change",
            ),
        ]);
        return all;
    }
    all.push(covered_accident(
        "the boot ends without a network or login",
        "the guard, when the time is up",
    ));
    all.push(covered_accident(
        "a unit that blocks the boot",
        "the guard, which starts before other services",
    ));
    if !facts.system {
        all.push(covered_accident(
            "power cut in the boot",
            "the next boot, before the network starts",
        ));
        all.push(by_reset(
            facts,
            "panic, hang, a root that does not mount",
            "the next boot reverts the change, as soon as /var is mounted",
        ));
        return all;
    }
    all.extend(list_accidents_of_system(facts));
    all
}

/// Returns the same for a boot into another OS image.
fn list_accidents_of_system(facts: &CoverageFacts) -> Vec<Accident> {
    let mut all = Vec::new();
    match &facts.no_counter {
        None => {
            all.push(covered_accident(
                "power cut in the boot",
                "GRUB starts the old deployment",
            ));
            all.push(not_covered(
                "a kernel that GRUB cannot load",
                "older versions of GRUB wait in the menu: choose the old entry, or a power cycle starts it",
            ));
            all.push(by_reset(
                facts,
                "panic or hang of the kernel",
                "GRUB starts the old deployment",
            ));
            all.push(not_covered(
                "hang or shell in the initramfs",
                "nothing resets the node there: a power cycle by hand or BMC starts the old deployment",
            ));
        }
        Some(why) => {
            all.push(not_covered(
                "kernel, initramfs or root that does not start",
                &format!("{why}: choose the old entry in the boot menu by hand"),
            ));
            all.push(covered_accident(
                "power cut in the boot",
                "the next boot that reaches /var returns to the old deployment",
            ));
        }
    }
    all
}

/// Returns an accident that only a reset of the machine ends.
fn by_reset(facts: &CoverageFacts, what: &'static str, then: &str) -> Accident {
    match (facts.watchdog, facts.panic) {
        (true, _) => covered_accident(what, &format!("the watchdog resets the node; {then}")),
        (false, 1..) => Accident {
            what,
            covered: false,
            by: format!(
                "a panic reboots after {} s, and {then}; a hang needs a power cycle, as there is no watchdog",
                facts.panic
            ),
        },
        (false, _) => Accident {
            what,
            covered: false,
            by: format!("there is no watchdog: it needs a power cycle; {then}"),
        },
    }
}

fn covered_accident(what: &'static str, by: &str) -> Accident {
    Accident {
        what,
        covered: true,
        by: by.to_owned(),
    }
}

fn not_covered(what: &'static str, by: &str) -> Accident {
    Accident {
        what,
        covered: false,
        by: by.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(facts: &CoverageFacts) -> Vec<(&'static str, bool)> {
        let all = list_accidents(facts).into_iter();
        all.map(|one| (one.what, one.covered)).collect()
    }

    #[test]
    fn without_a_boot_loader_that_counts_a_boot_that_fails_is_not_covered() {
        let mut facts = CoverageFacts {
            reboots: true,
            system: true,
            no_counter: Some("/boot is on RAID".to_owned()),
            watchdog: true,
            panic: 10,
        };
        let row = "kernel, initramfs or root that does not start";
        assert!(said(&facts).contains(&(row, false)));
        facts.no_counter = None;
        assert!(!said(&facts).iter().any(|(what, _)| *what == row));
        assert!(said(&facts).contains(&("panic or hang of the kernel", true)));
        facts.watchdog = false;
        assert!(said(&facts).contains(&("panic or hang of the kernel", false)));
    }

    #[test]
    fn files_without_a_reboot_are_covered_but_for_hangs() {
        let facts = CoverageFacts::default();
        let open: Vec<&str> = list_accidents(&facts)
            .iter()
            .filter(|one| !one.covered)
            .map(|one| one.what)
            .collect();
        assert_eq!(open, ["kernel panic or hang"]);
    }
}
