//! Judges whether an update of this node is in progress (docs/develop/agreement.md: First boot, Update, Operating system).
//!
//! It is not evidence that the daemon is running, that it runs queries (`rpm-ostree status`, `podman images`), or that the
//! records differ: a node that needs rescue is in that state for days.

use std::collections::BTreeMap;

use crate::base::invocation::mco_rescue;
use crate::base::notice::Notice;
use crate::base::reason::Reason;
use crate::node::activity::{Controls, DAEMON, START_ANEW, container_of};
use crate::node::command::bootc::UPDATE_TIMER;
use crate::node::command::systemctl::UnitActivity;
use crate::node::engine::Engine;
use crate::node::system::SystemFacts;
use crate::node::{Activity, FIRST_BOOT_PULL, FIRST_BOOT_SERVICE, Process};

use super::staged::{SOFT_REBOOT, enter_command, is_locked, name_queued, name_staged, name_stager};

/// The daemon's subcommand that completes a first boot.
const FIRST_BOOT: &str = "firstboot-complete-machineconfig";
/// The daemon's subcommands that change the node on their own.
const WORKING: [&str; 3] = [FIRST_BOOT, "pivot", "once-from"];

/// A sign of an update in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActivityEvidence {
    /// The subject, and a sentence.
    pub notice: Notice,
    /// It is about the first-boot service or its pull, which retry forever without a registry.
    pub first_boot: bool,
    /// The possible commands for a staged deployment, in words; `None` for everything else.
    pub ways: Option<StagedWays>,
}

/// The possible commands for a staged deployment of another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StagedWays {
    /// The command that makes it take effect.
    pub enter: String,
    /// `--takeover` drops it.
    pub drops: bool,
    /// Files can be applied without it (`--files-only`).
    pub files_only: bool,
}

/// What is known about the staged deployment besides the activity.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StagedScene<'a> {
    /// The operating system.
    pub facts: Option<&'a SystemFacts>,
    /// It is the wanted one, or a run of this program staged it and the current run continues from there.
    pub wanted: bool,
    /// A run of this program staged it.
    pub ours: bool,
    /// The command has an option for files alone.
    pub files_only: bool,
    /// The plan stages something.
    pub stages: bool,
    /// The plan drops it.
    pub drops: bool,
    /// The deployment that is queued for the next boot is replaced.
    pub stays: bool,
}

/// Returns each piece of evidence. A staged deployment that is wanted is not included.
pub(super) fn find_activity(activity: &Activity, scene: StagedScene<'_>) -> Vec<ActivityEvidence> {
    let mut all = Vec::new();
    let by_pid: BTreeMap<u32, &Process> = activity
        .processes
        .iter()
        .map(|process| (process.pid, process))
        .collect();
    let working = activity.processes.iter().filter(|p| is_work(p, &by_pid));
    all.extend(working.map(|process| {
        let subject = format!("process {}", process.pid);
        ActivityEvidence {
            notice: activity_notice(&subject, format!("{} is running", process.args.join(" "))),
            first_boot: completes_a_first_boot(process, &by_pid),
            ways: None,
        }
    }));
    let busy = activity.units.iter().filter(|unit| unit.is_at_work());
    all.extend(busy.map(|unit| ActivityEvidence {
        notice: activity_notice(&unit.name, format!("is {} ({})", unit.active, unit.sub)),
        first_boot: [FIRST_BOOT_PULL, FIRST_BOOT_SERVICE].contains(&unit.name.as_str()),
        ways: None,
    }));
    all.extend(transaction_notice(activity).map(ActivityEvidence::from_notice));
    all.extend(locked_sysroot(activity, scene.facts).map(ActivityEvidence::from_notice));
    all.extend(staged_evidence(activity, scene));
    all.extend(shutdown_notice(activity).map(ActivityEvidence::from_notice));
    all
}

/// Returns evidence of a staged deployment that is not wanted, or of a prepared soft reboot.
fn staged_evidence(activity: &Activity, scene: StagedScene<'_>) -> Option<ActivityEvidence> {
    let place = "/run/ostree/staged-deployment";
    let (subject, message, enter) = match &activity.staged {
        _ if scene.wanted => return None,
        None if activity.soft_reboot => {
            let enter = "systemctl reboot enters it".to_owned();
            ("/run/nextroot", SOFT_REBOOT.to_owned(), enter)
        }
        None => return None,
        Some(staged) => {
            let what = name_staged(staged, scene.facts);
            let locked = is_locked(staged, scene.facts);
            let who = if scene.ours {
                "a run of mco-rescue".to_owned()
            } else {
                name_stager(staged, scene.facts)
            };
            let next = if locked {
                "It is locked (a download only): no reboot enters it in this state"
            } else {
                "The next reboot carries over /etc as it is then"
            };
            let mut message = format!("an OS deployment is staged: {what}, by {who}. {next}");
            if activity.soft_reboot {
                message += &format!("; {SOFT_REBOOT}");
            }
            (place, message, enter_command(locked, scene.facts))
        }
    };
    Some(ActivityEvidence {
        notice: activity_notice(subject, message),
        first_boot: false,
        ways: Some(StagedWays {
            enter,
            // Staging anything cancels a prepared soft reboot.
            drops: scene.drops || activity.staged.is_none() && scene.stages,
            files_only: scene.files_only,
        }),
    })
}

/// Returns a notice if systemd gave no answer.
pub(super) fn note_silence(activity: &Activity) -> Option<Notice> {
    let words = |why: &String| format!("whether an update is at work is unknown: {why}");
    let silence = activity.silence.as_ref().map(words);
    silence.map(|words| activity_notice("systemd", words))
}

/// Returns a notice about a transaction, for which there is no process or unit.
fn transaction_notice(activity: &Activity) -> Option<Notice> {
    activity.transaction.as_ref().map(|method| {
        let words = format!("a transaction is running ({method}); see `rpm-ostree status`");
        activity_notice("rpm-ostree", words)
    })
}

/// Returns a notice about the lock of the sysroot if bootc waits for it, and no process tells by its name that it has it.
fn locked_sysroot(activity: &Activity, facts: Option<&SystemFacts>) -> Option<Notice> {
    let facts = facts.filter(|facts| facts.engine == Engine::Bootc)?;
    facts.deployments.transaction.as_ref()?;
    let mut processes = activity.processes.iter();
    if processes.any(Process::changes_deployments) {
        return None;
    }
    let words = "a program other than bootc and ostree holds it, and bootc waits for it; see `lsof /sysroot/ostree/lock`";
    Some(activity_notice("/sysroot/ostree/lock", words.to_owned()))
}

fn shutdown_notice(activity: &Activity) -> Option<Notice> {
    activity.shutdown.then(|| {
        let words = "a shutdown is scheduled; see `shutdown --show`, and `shutdown -c`";
        activity_notice("/run/systemd/shutdown/scheduled", words.to_owned())
    })
}

/// Returns the cgroups of the daemon's containers; each includes everything below it. Only cgroups that are known to be
/// containers, can be frozen, and are not our own.
pub(super) fn daemon_containers(activity: &Activity) -> Vec<String> {
    let daemons = activity.processes.iter().filter(|p| p.program() == DAEMON);
    let cgroups = daemons.filter_map(|daemon| frozen_with(activity, daemon).ok());
    let mut all: Vec<String> = cgroups.map(|(cgroup, _)| cgroup.to_owned()).collect();
    all.sort();
    all.dedup();
    all
}

/// Describes what the daemon does while it watches files: one notice for each running daemon, without duplicates.
pub(super) fn note_watching(activity: &Activity) -> Vec<Notice> {
    let daemons = activity.processes.iter().filter(|one| {
        let argument = one.args.get(1).map_or("", String::as_str);
        one.program() == DAEMON && !WORKING.contains(&argument)
    });
    let mut all: Vec<Notice> = Vec::new();
    for daemon in daemons {
        let said = activity_notice(DAEMON, describe_meanwhile(frozen_with(activity, daemon)));
        if !all.contains(&said) {
            all.push(said);
        }
    }
    all
}

fn describe_meanwhile(frozen: Result<(&str, Controls), Reason>) -> String {
    match frozen {
        Ok((_, Controls { kill: true, .. })) => {
            "its container is frozen while names change, and ended afterwards, so that it restarts and judges \
             the finished state"
                .to_owned()
        }
        Ok(_) => format!(
            "its container is frozen while names change, but this kernel cannot end it (possible since 5.14): restart \
             it afterwards: {START_ANEW}"
        ),
        Err(why) => format!(
            "it is running and cannot be frozen: {why}. It may judge a partly applied state while names change: restart \
             it afterwards: {START_ANEW}"
        ),
    }
}

/// Returns a daemon's container and its controls, or why it cannot be frozen.
fn frozen_with<'a>(
    activity: &Activity,
    daemon: &'a Process,
) -> Result<(&'a str, Controls), Reason> {
    let Some(cgroup) = daemon.cgroup.as_deref() else {
        return Err("its cgroup of version 2 is unknown".into());
    };
    let Some(container) = container_of(cgroup) else {
        return Err(format!("its cgroup {cgroup} belongs to no container").into());
    };
    let ours = activity.own_cgroup.as_deref().unwrap_or_default();
    if ours == container || ours.starts_with(&format!("{container}/")) {
        return Err("this program runs in the same container".into());
    }
    match activity.containers.get(container) {
        Some(controls) if controls.freeze => Ok((container, *controls)),
        _ => Err(format!("{container} has no cgroup.freeze").into()),
    }
}

/// Returns a blocker for a piece of evidence.
pub(super) fn refuse_activity(evidence: ActivityEvidence) -> Notice {
    let next = if let Some(ways) = &evidence.ways {
        let over = if ways.drops {
            "--takeover drops it"
        } else {
            "--takeover leaves it staged and goes on"
        };
        let alone = if ways.files_only {
            "; leave the operating system alone: --files-only"
        } else {
            ""
        };
        format!(
            "It is not dropped unless requested. Wait: {}, then run this again; take over: {over}{alone}",
            ways.enter
        )
    } else if evidence.first_boot {
        format!(
            "The first boot is not complete yet: let it finish; or, if it cannot, do its work here: {}; or \
             use --takeover",
            mco_rescue("firstboot --complete")
        )
    } else {
        "An update of this node seems to be under way: let it finish, or use --takeover".to_owned()
    };
    evidence.with_message(|message| format!("{message}. {next}"))
}

/// Returns the notice for evidence that was overridden.
pub(super) fn taken_over(evidence: ActivityEvidence) -> Notice {
    evidence.with_message(|message| format!("{message}; accepted (--takeover)"))
}

/// Returns a notice about another program's staged deployment, for a run that only changes files.
pub(super) fn left_alone(evidence: ActivityEvidence) -> Notice {
    let enter = evidence.ways.as_ref().map(|ways| ways.enter.clone());
    let enter = enter.unwrap_or_default();
    evidence.with_message(|message| {
        format!("{message}. It is left alone, as asked (--files-only): {enter}")
    })
}

/// Returns a notice about the queued deployment that a plan replaces by staging another.
pub(super) fn note_queued(scene: StagedScene<'_>) -> Option<Notice> {
    let facts = scene.facts.filter(|_| scene.stages && scene.stays)?;
    Some(activity_notice(
        "the next boot",
        name_queued(facts, scene.ours)?,
    ))
}

/// Returns notices about programs that stage on their own, and can replace what a run stages.
pub(super) fn note_stagers(activity: &Activity, facts: Option<&SystemFacts>) -> Vec<Notice> {
    let mut all = Vec::new();
    let timer = activity.units.iter().find(|unit| unit.name == UPDATE_TIMER);
    if timer.is_some_and(UnitActivity::is_running) {
        let words = format!(
            "is active: bootc can replace what is staged, and reboots by itself. Stop it: systemctl mask --now \
             {UPDATE_TIMER}"
        );
        all.push(activity_notice(UPDATE_TIMER, words));
    }
    if let Some(driver) = facts.and_then(|facts| facts.deployments.driver.as_ref()) {
        let words = format!(
            "drives the updates of this node: rpm-ostree refuses another image while {unit} is active. Stop it: \
             systemctl stop {unit}",
            unit = driver.unit
        );
        all.push(activity_notice(&driver.name, words));
    }
    all
}

/// Returns a notice if another program has already staged what this config wants.
pub(super) fn note_staged_by_others(
    activity: &Activity,
    facts: Option<&SystemFacts>,
) -> Option<Notice> {
    let staged = activity.staged.as_ref()?;
    let who = name_stager(staged, facts);
    Some(activity_notice(
        "/run/ostree/staged-deployment",
        format!("what this config wants is already staged, by {who}; it is not staged again"),
    ))
}

/// Returns a notice about the service whose work this run does.
pub(super) fn stood_in_for(evidence: ActivityEvidence) -> Notice {
    evidence.with_message(|message| format!("{message}; its work is done here instead"))
}

impl ActivityEvidence {
    fn from_notice(notice: Notice) -> Self {
        Self {
            notice,
            first_boot: false,
            ways: None,
        }
    }

    fn with_message(self, message: impl FnOnce(&str) -> String) -> Notice {
        Notice {
            message: message(&self.notice.message),
            ..self.notice
        }
    }
}

fn is_work(process: &Process, all: &BTreeMap<u32, &Process>) -> bool {
    let argument = process.args.get(1).map_or("", String::as_str);
    if process.changes_deployments() {
        return true;
    }
    if process.program() == DAEMON {
        return WORKING.contains(&argument);
    }
    below_the_daemon(process, all) && changes_the_node(process)
}

/// Returns true for a descendant of the daemon, which starts some programs through shells and `systemd-run`.
fn below_the_daemon(process: &Process, all: &BTreeMap<u32, &Process>) -> bool {
    ancestors_of(process, all).any(|above| above.program() == DAEMON)
}

fn completes_a_first_boot(process: &Process, all: &BTreeMap<u32, &Process>) -> bool {
    let completes = |one: &Process| {
        one.program() == DAEMON && one.args.get(1).is_some_and(|word| word == FIRST_BOOT)
    };
    completes(process) || ancestors_of(process, all).any(completes)
}

/// Returns the ancestors of a process, nearest first.
fn ancestors_of<'a>(
    process: &'a Process,
    all: &BTreeMap<u32, &'a Process>,
) -> impl Iterator<Item = &'a Process> {
    let parent = |process: &&Process| all.get(&process.parent).copied();
    // A table that was read while processes came and went may contain a loop.
    std::iter::successors(Some(process), parent)
        .skip(1)
        .take(64)
}

fn changes_the_node(process: &Process) -> bool {
    let mut words = process.args.iter().skip(1).map(String::as_str);
    let has = |options: &[&str]| {
        let mut args = process.args.iter().skip(1);
        args.any(|arg| options.iter().any(|option| arg.starts_with(option)))
    };
    let command = words.find(|word| !word.starts_with('-')).unwrap_or("");
    match process.program() {
        "rpm-ostree" if command == "kargs" => has(&["--append", "--delete", "--replace"]),
        "rpm-ostree" => !matches!(command, "" | "status" | "db"),
        "podman" => matches!(command, "pull" | "create" | "cp" | "run"),
        "systemctl" => !matches!(
            command,
            "" | "status"
                | "show"
                | "is-active"
                | "is-enabled"
                | "is-failed"
                | "cat"
                | "list-units"
                | "list-unit-files"
                | "get-default"
        ),
        "nmstatectl" => command == "persist-nic-names",
        "bootupctl" => matches!(command, "update" | "adopt-and-update"),
        "skopeo" => command == "copy",
        "systemd-run" | "update-ca-trust" | "usermod" | "chcon" | "setenforce" => true,
        _ => false,
    }
}

fn activity_notice(subject: &str, message: String) -> Notice {
    Notice::new(subject, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::staged::StagedEvidence;

    fn process(pid: u32, parent: u32, line: &str) -> Process {
        Process {
            pid,
            parent,
            args: line.split(' ').map(str::to_owned).collect(),
            cgroup: None,
        }
    }

    fn of(processes: Vec<Process>) -> Activity {
        Activity {
            processes,
            ..Activity::default()
        }
    }

    #[test]
    fn a_daemon_that_lives_or_asks_is_not_evidence() {
        let daemon = "/usr/bin/machine-config-daemon start --hostname n";
        for child in [
            "rpm-ostree status --json",
            "rpm-ostree kargs",
            "rpm-ostree --version",
            "podman images --format=json",
            "podman system info",
            "systemctl is-enabled a.service",
            "journalctl -b -1",
        ] {
            let activity = of(vec![
                process(1, 0, "/usr/lib/systemd/systemd"),
                process(20, 1, daemon),
                process(21, 20, child),
            ]);
            assert_eq!(
                find_activity(&activity, StagedScene::default()),
                [],
                "{child}"
            );
        }
    }

    #[test]
    fn a_daemon_that_changes_the_node_is_evidence() {
        for child in [
            "rpm-ostree rebase --experimental ostree-unverified-registry:x",
            "/usr/bin/rpm-ostree kargs --delete-if-present=a --append=b",
            "rpm-ostree cleanup -p",
            "podman pull -q --authfile /var/lib/kubelet/config.json x",
            "systemctl reload crio",
            "systemctl reboot",
            "nmstatectl persist-nic-names --root / --kargs-out x",
            "systemd-run --unit machine-config-daemon-reboot sh",
        ] {
            let activity = of(vec![
                process(20, 1, "machine-config-daemon start"),
                process(21, 20, "chroot /rootfs sh"),
                process(22, 21, child),
            ]);
            let found = find_activity(&activity, StagedScene::default());
            assert_eq!(found.len(), 1, "{child}");
            assert_eq!(found[0].notice.subject, "process 22");
            assert!(found[0].notice.message.contains(child));
            assert!(!found[0].first_boot);
        }
    }

    #[test]
    fn what_others_run_is_not_the_daemon() {
        let activity = of(vec![
            process(10, 1, "bash"),
            process(11, 10, "rpm-ostree rebase x"),
            process(12, 10, "vi machine-config-daemon"),
            // A loop, possible in a table that was read while processes came and went.
            process(13, 14, "podman pull x"),
            process(14, 13, "sh"),
        ]);
        assert_eq!(find_activity(&activity, StagedScene::default()), []);
    }

    /// Returns a daemon in one cgroup, as seen by a program in another.
    fn daemon_in(cgroup: Option<&str>, own: &str, controls: Controls) -> Activity {
        let mut daemon = process(5, 1, "/usr/bin/machine-config-daemon start");
        daemon.cgroup = cgroup.map(str::to_owned);
        let mut other = process(6, 1, "kubelet");
        other.cgroup = Some("/kubepods.slice/crio-0b.scope".to_owned());
        let container = cgroup.and_then(container_of).map(str::to_owned);
        Activity {
            processes: vec![daemon, other],
            own_cgroup: Some(own.to_owned()),
            containers: container.into_iter().map(|one| (one, controls)).collect(),
            ..Activity::default()
        }
    }

    const SCOPE: &str = "/kubepods.slice/kubepods-pod1.slice/crio-0a.scope";
    const ALL: Controls = Controls {
        freeze: true,
        kill: true,
    };

    #[test]
    fn only_a_container_that_is_not_ours_may_be_frozen() {
        let below = format!("{SCOPE}/container");
        for cgroup in [SCOPE, &below] {
            let of = |own: &str| daemon_containers(&daemon_in(Some(cgroup), own, ALL));
            assert_eq!(of("/user.slice/session-1.scope"), [SCOPE]);
            let none: [&str; 0] = [];
            assert_eq!(of(SCOPE), none);
            assert_eq!(of(&format!("{SCOPE}/below")), none);
        }
        for no_container in [
            "/",
            "/system.slice/machine-config-daemon.service",
            "/kubepods.slice",
        ] {
            let none: [&str; 0] = [];
            let activity = daemon_in(Some(no_container), "/user.slice", ALL);
            assert_eq!(daemon_containers(&activity), none);
        }
    }

    #[test]
    fn a_running_daemon_that_is_not_frozen_or_not_ended_is_said() {
        let freeze_only = Controls {
            freeze: true,
            kill: false,
        };
        let (no, own) = (Controls::default(), "/user.slice");
        for (cgroup, own, controls, words) in [
            (Some(SCOPE), own, ALL, "ended afterwards"),
            (Some(SCOPE), own, freeze_only, "this kernel cannot end it"),
            (Some(SCOPE), own, no, "has no cgroup.freeze"),
            (Some(SCOPE), SCOPE, ALL, "runs in the same container"),
            (Some("/"), own, ALL, "its cgroup / belongs to no container"),
            (None, own, no, "its cgroup of version 2 is unknown"),
        ] {
            let said = note_watching(&daemon_in(cgroup, own, controls));
            assert_eq!(said.len(), 1);
            let message = &said[0].message;
            assert!(message.contains(words), "{message}");
            assert_eq!(
                message.contains("crictl stop"),
                controls != ALL || words != "ended afterwards"
            );
        }
        assert_eq!(note_watching(&Activity::default()), []);
        let at_work = of(vec![process(5, 1, "machine-config-daemon pivot")]);
        assert_eq!(note_watching(&at_work), [], "is evidence of its own");
    }

    #[test]
    fn the_first_boot_run_is_evidence_by_itself() {
        let line = "machine-config-daemon firstboot-complete-machineconfig --persist-nics";
        let child = "rpm-ostree rebase --experimental ostree-unverified-registry:x";
        let found = find_activity(
            &of(vec![process(5, 1, line), process(6, 5, child)]),
            StagedScene::default(),
        );
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|evidence| evidence.first_boot));
    }

    #[test]
    fn units_count_while_they_work() {
        for (active, sub, busy) in [
            ("activating", "start", true),
            ("activating", "auto-restart", true),
            ("active", "running", true),
            ("deactivating", "stop", true),
            ("active", "exited", false),
            ("inactive", "dead", false),
            ("failed", "failed", false),
        ] {
            let unit = UnitActivity {
                name: "machine-config-daemon-pull.service".to_owned(),
                active: active.into(),
                sub: sub.to_owned(),
            };
            let activity = Activity {
                units: vec![unit],
                ..Activity::default()
            };
            assert_eq!(
                !find_activity(&activity, StagedScene::default()).is_empty(),
                busy,
                "{active} {sub}"
            );
        }
    }

    #[test]
    fn a_foreign_staged_deployment_has_three_ways_out() {
        let refuse = |activity: &Activity, scene| {
            let found = find_activity(activity, scene);
            assert_eq!(found.len(), 1);
            (
                refuse_activity(found[0].clone()).message,
                left_alone(found[0].clone()).message,
            )
        };
        let staged = Activity {
            staged: Some(StagedEvidence::default()),
            ..Activity::default()
        };
        let drops = StagedScene {
            drops: true,
            files_only: true,
            ..StagedScene::default()
        };
        let (said, alone) = refuse(&staged, drops);
        for words in [
            "an OS deployment is staged: ",
            "by an unknown program",
            "Wait: systemctl reboot enters it",
            "--takeover drops it",
            "--files-only",
        ] {
            assert!(said.contains(words), "{said}");
        }
        assert!(
            alone.contains("left alone, as asked (--files-only)"),
            "{alone}"
        );
        let (said, _) = refuse(&staged, StagedScene::default());
        assert!(said.contains("--takeover leaves it staged"), "{said}");
        let ours = StagedScene {
            ours: true,
            files_only: false,
            ..drops
        };
        let (said, _) = refuse(&staged, ours);
        assert!(said.contains("by a run of mco-rescue"), "{said}");
        assert!(!said.contains("--files-only"), "{said}");
        let wanted = StagedScene {
            wanted: true,
            ..drops
        };
        assert_eq!(find_activity(&staged, wanted), []);
        let soft = Activity {
            soft_reboot: true,
            ..Activity::default()
        };
        let (said, _) = refuse(&soft, StagedScene::default());
        assert!(said.contains("prepare-soft-reboot --reset"), "{said}");
        let both = Activity {
            soft_reboot: true,
            ..staged
        };
        let (said, _) = refuse(&both, drops);
        assert!(said.contains("an OS deployment is staged"), "{said}");
        assert!(said.contains("a soft reboot is prepared"), "{said}");
    }

    #[test]
    fn what_is_queued_is_reported_where_something_is_staged() {
        use crate::change::plan::os::tests::{booted, deployment, facts};
        let here = facts(vec![deployment("x/y:z", "k"), booted("x")], "rw", "rw");
        let scene = StagedScene {
            facts: Some(&here),
            stages: true,
            stays: true,
            files_only: true,
            ..StagedScene::default()
        };
        let said = note_queued(scene).unwrap();
        assert_eq!(said.subject, "the next boot");
        for words in ["x/y:z (k.0) is queued", "Keep it: ostree admin pin 0"] {
            assert!(said.message.contains(words), "{said:?}");
        }
        for other in [
            StagedScene {
                stages: false,
                ..scene
            },
            StagedScene {
                stays: false,
                ..scene
            },
        ] {
            assert_eq!(note_queued(other), None);
        }
    }

    #[test]
    fn programs_that_stage_by_themselves_are_reported() {
        let timer = |active: &str| Activity {
            units: vec![UnitActivity {
                name: UPDATE_TIMER.to_owned(),
                active: active.into(),
                sub: "waiting".to_owned(),
            }],
            ..Activity::default()
        };
        assert_eq!(note_stagers(&timer("inactive"), None), []);
        let said = note_stagers(&timer("active"), None);
        assert!(
            said[0].message.contains("systemctl mask --now bootc-fetch"),
            "{said:?}"
        );
        assert_eq!(find_activity(&timer("active"), StagedScene::default()), []);
        let mut here = crate::change::plan::os::tests::facts(Vec::new(), "rw", "rw");
        here.deployments.driver = Some(crate::node::command::rpm_ostree::status::Driver {
            name: "Zincati".to_owned(),
            unit: "zincati.service".to_owned(),
        });
        let said = note_stagers(&Activity::default(), Some(&here));
        assert!(
            said[0].message.contains("systemctl stop zincati.service"),
            "{said:?}"
        );
    }

    #[test]
    fn a_switch_of_bootc_is_work_of_any_program() {
        for (line, work) in [
            ("bootc switch quay.example/os:2", true),
            ("/usr/bin/bootc upgrade --download-only", true),
            ("bootc status --json", false),
        ] {
            let activity = of(vec![process(10, 1, "bash"), process(11, 10, line)]);
            let found = find_activity(&activity, StagedScene::default());
            assert_eq!(!found.is_empty(), work, "{line}");
        }
    }

    #[test]
    fn transaction_staged_deployment_and_shutdown_are_each_named() {
        let activity = Activity {
            transaction: Some("rebase".to_owned()),
            staged: Some(StagedEvidence::default()),
            shutdown: true,
            ..Activity::default()
        };
        let found = find_activity(&activity, StagedScene::default());
        let subjects: Vec<_> = found.iter().map(|e| e.notice.subject.as_str()).collect();
        assert!(found.iter().all(|evidence| !evidence.first_boot));
        assert_eq!(
            subjects,
            [
                "rpm-ostree",
                "/run/ostree/staged-deployment",
                "/run/systemd/shutdown/scheduled"
            ]
        );
    }
}
