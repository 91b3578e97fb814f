//! What the next boot has to bring: a deployment that was staged together with files (docs/explanation/operating-system.md), and judgements
//! on that boot. Values only; [`super::state`] reads and writes the file; `run/complete` and `run/rollback` act on it.

use serde::{Deserialize, Serialize};

use crate::base::invocation::mco_rescue;
use crate::base::kargs::Kargs;
use crate::base::secrets::redacted_arguments;
use crate::change::transaction::id_order;
use crate::change::transaction::journal::ConfigRef;
use crate::node::boot::BootIdentity;
use crate::node::command::rpm_ostree::status::Deployment;

/// The direction of the pending change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Forward to a staged deployment, whose files are already in place.
    Forward,
    /// Back to the previous deployment; its files are restored once it is running.
    Back,
}

/// The pending boot, stored in `/var/lib/mco-rescue/awaited.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Version of the file.
    pub version: u32,
    /// Forward or back.
    pub way: Way,
    /// The config whose files are in place, or are to be reverted.
    pub config: ConfigRef,
    /// The run of the files, which `rollback` reverts. Known before the files are written; older versions recorded it
    /// afterwards and may have left none.
    pub run: Option<String>,
    /// While the files are not yet in place: the newest run in the history until then, empty if there is none. Power can fail
    /// after they are in place; the history then shows that.
    #[serde(default)]
    pub files_after: Option<String>,
    /// The newest run in the history when this was staged, empty if there was none.
    #[serde(default)]
    pub head: Option<String>,
    /// Runs before `run` whose deployments never ran either, oldest first: their files are reverted together with its own.
    #[serde(default)]
    pub earlier: Vec<String>,
    /// The boot in which this was written.
    #[serde(flatten)]
    pub boot: BootIdentity,
    /// `CHECKSUM.SERIAL` of the deployment that was running then.
    pub from: String,
    /// `CHECKSUM.SERIAL` of the deployment to which `rollback` leads, if `from` itself is only half of a change.
    #[serde(default)]
    pub way_back: Option<String>,
    /// `CHECKSUM.SERIAL` of the deployment to be booted, once known.
    #[serde(default)]
    pub staged: Option<String>,
    /// The image to be booted, in the form that the daemon compares byte by byte; `None` if it does not change.
    pub image: Option<String>,
    /// Words that the kernel command line must have.
    pub kernel_arguments: Vec<String>,
    /// Words that it must no longer have.
    #[serde(default)]
    pub gone_arguments: Vec<String>,
    /// Seconds since 1970.
    pub since: u64,
    /// The reason why the wanted deployment did not boot, if it did not.
    pub failed: Option<String>,
    /// Because of that, the operating system and the files belong to different configs.
    #[serde(default)]
    pub half: bool,
}

/// Version of the file.
pub const VERSION: u32 = 1;

/// The origin of an image that was staged alone, for the recorded config.
pub const PIVOT: &str = "pivot";

/// Runs that also changed the operating system, stored in `/var/lib/mco-rescue/os-runs.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsRuns {
    /// Version of the file.
    pub version: u32,
    /// The oldest first.
    pub runs: Vec<OsRun>,
}

/// A run that switched from one deployment to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsRun {
    /// The run of the files.
    pub run: String,
    /// `CHECKSUM.SERIAL` of the deployment before the run, to which `rollback` returns. `None` if the run only changed files,
    /// on top of runs whose deployments never ran.
    #[serde(default)]
    pub from: Option<String>,
    /// Earlier runs whose deployments never ran, oldest first: they are reverted together with it.
    #[serde(default)]
    pub earlier: Vec<String>,
}

/// A finished run in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Its id.
    pub id: String,
    /// The config that it applied.
    pub config: String,
}

/// The boot to be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Booted {
    /// The boot.
    pub boot: BootIdentity,
    /// `CHECKSUM.SERIAL`.
    pub deployment: Option<String>,
    /// Its image.
    pub image: Option<String>,
    /// The words of the kernel command line.
    pub kernel_arguments: Vec<String>,
}

/// What a past or future boot enters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entered {
    /// `CHECKSUM.SERIAL`.
    pub deployment: Option<String>,
    /// Its image.
    pub image: Option<String>,
    /// The words of the kernel command line; `None` if unknown.
    pub kernel_arguments: Option<Vec<String>>,
}

/// The judgement on a boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The node has not been booted since.
    NotYet,
    /// The awaited deployment runs.
    Arrived,
    /// The previous deployment booted, so its files have to be restored too.
    Stayed,
    /// Something else is running, so nothing is changed. Describes the difference.
    Elsewhere(String),
}

/// The node's state, for judging the pending boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scene<'a> {
    /// The boot that runs.
    pub booted: &'a Booted,
    /// What the next boot enters; `None` if rpm-ostree does not report it.
    pub next: Option<&'a Entered>,
    /// The finished runs, newest first.
    pub history: &'a [Ran],
    /// A run of this program, or a transaction of rpm-ostree, is in progress.
    pub at_work: bool,
}

/// The state of the pending change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is being prepared right now.
    AtWork,
    /// Everything is prepared; only the reboot is missing.
    Waits,
    /// Everything was prepared, but it is unknown whether the next boot still enters it.
    NotKnown,
    /// The next boot enters something else. Describes the difference.
    Replaced(String),
    /// The run was interrupted before its files.
    CutOff,
    /// The next boot no longer enters it.
    Dropped,
    /// It failed in this boot, and that was reported.
    Failed,
    /// The node has been booted since; the result of judging that boot.
    Due(Arrival),
}

/// Which runs are reverted if the previous deployment booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoesBack {
    /// These, the newest first.
    Runs(Vec<String>),
    /// None: this config was applied later, and only the newest run can be reverted.
    Superseded(String),
}

/// The part of a pending run that the next staging run takes over.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inherited {
    /// Runs of files whose deployments never ran, oldest first.
    pub earlier: Vec<String>,
    /// Where `rollback` leads, if the running state is only half of a change.
    pub way_back: Option<String>,
}

/// How `rollback` proceeds if the last change has no files of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    /// The deployment to return to.
    pub to: String,
    /// Runs of files that are reverted with it, newest first.
    pub runs: Vec<String>,
}

impl Awaited {
    /// Judges a boot.
    pub fn judge_boot(&self, booted: &Booted) -> Arrival {
        if booted.boot.is_same(&self.written_in()) {
            return Arrival::NotYet;
        }
        let entered = Entered {
            deployment: booted.deployment.clone(),
            image: booted.image.clone(),
            kernel_arguments: Some(booted.kernel_arguments.clone()),
        };
        self.judge_entered(&entered, "runs")
    }

    /// Judges what a past or future boot enters; `enters` is the verb for messages, such as `runs`.
    fn judge_entered(&self, entered: &Entered, enters: &str) -> Arrival {
        let deployment = entered.deployment.as_deref();
        let stayed = deployment == Some(self.from.as_str());
        match (self.way, &self.staged) {
            _ if stayed => Arrival::Stayed,
            (Way::Back, Some(wanted)) if deployment != Some(wanted) => {
                let other = deployment.unwrap_or("an unknown deployment");
                Arrival::Elsewhere(format!("{wanted} should run, but {other} {enters}"))
            }
            (Way::Back, _) => Arrival::Arrived,
            (Way::Forward, _) => self
                .describe_missing(entered, enters)
                .map_or(Arrival::Arrived, Arrival::Elsewhere),
        }
    }

    /// Returns true if the run that this belongs to prepared it for the next boot. `first` is the first deployment in the list.
    pub fn was_made_for(&self, first: &Deployment) -> bool {
        let has_name = |name: &String| *name == first.name();
        let has_image = |image: &String| *image == first.image();
        match self.way {
            _ if self.failed.is_some() || first.booted => false,
            Way::Back => self.staged.as_ref().is_some_and(has_name),
            // Without a name, its staging was interrupted.
            Way::Forward => {
                (first.staged || self.staged.is_some())
                    && self.image.as_ref().is_none_or(has_image)
                    && self.staged.as_ref().is_none_or(has_name)
            }
        }
    }

    /// Returns the boot in which this was written. Older versions did not distinguish soft reboots and stored no deployment;
    /// until a boot is judged, it is the one that was running.
    fn written_in(&self) -> BootIdentity {
        let ran = || self.failed.is_none().then(|| self.from.clone());
        BootIdentity {
            boot_deployment: self.boot.boot_deployment.clone().or_else(ran),
            ..self.boot.clone()
        }
    }

    /// Returns the state of the pending change.
    pub fn judge_scene(&self, scene: &Scene<'_>) -> Verdict {
        match self.judge_boot(scene.booted) {
            _ if scene.at_work => Verdict::AtWork,
            Arrival::NotYet if self.failed.is_some() => Verdict::Failed,
            Arrival::NotYet if self.lacks_files(scene.history) => Verdict::CutOff,
            Arrival::NotYet => scene
                .next
                .map_or(Verdict::NotKnown, |next| self.judge_next(next)),
            arrival => Verdict::Due(arrival),
        }
    }

    /// Returns the state of the pending change if this is what the next boot enters.
    pub fn judge_next(&self, next: &Entered) -> Verdict {
        match self.judge_entered(next, "comes") {
            Arrival::Elsewhere(what) => Verdict::Replaced(what),
            Arrival::Stayed => Verdict::Dropped,
            Arrival::Arrived | Arrival::NotYet => Verdict::Waits,
        }
    }

    /// Returns true if its files were expected but are not in place.
    pub fn lacks_files(&self, history: &[Ran]) -> bool {
        self.files_after.is_some() && self.own_run(history).is_none()
    }

    /// Returns true if its files are in place.
    pub fn has_files(&self) -> bool {
        self.run.is_some() && self.files_after.is_none()
    }

    /// Returns the newest run in the history that wrote its files.
    pub fn own_run<'a>(&self, history: &'a [Ran]) -> Option<&'a Ran> {
        history
            .iter()
            .find(|run| self.is_its_run(&run.id, &run.config))
    }

    /// Returns which runs are reverted, counted from the newest in the history.
    pub fn goes_back(&self, history: &[Ran]) -> GoesBack {
        let belongs =
            |run: &&Ran| self.is_its_run(&run.id, &run.config) || self.earlier.contains(&run.id);
        let runs: Vec<String> = history
            .iter()
            .take_while(belongs)
            .map(|run| run.id.clone())
            .collect();
        match history.first() {
            Some(newest) if runs.is_empty() && history.iter().any(|run| belongs(&run)) => {
                GoesBack::Superseded(newest.config.clone())
            }
            _ => GoesBack::Runs(runs),
        }
    }

    /// Returns the part that a new staging run takes over while `booted` is running.
    pub fn inherited_part(&self, booted: &Booted, history: &[Ran]) -> Inherited {
        let never_ran = booted.deployment.as_deref() == Some(self.from.as_str());
        let was_judged = self.half && booted.boot.is_same(&self.boot);
        let is_half = was_judged
            || self.image.is_some() && booted.image == self.image && self.lacks_files(history);
        if self.way == Way::Back || !(never_ran || is_half) {
            return Inherited::default();
        }
        let earlier = match self.goes_back(history) {
            GoesBack::Runs(runs) => runs.into_iter().rev().collect(),
            GoesBack::Superseded(_) => Vec::new(),
        };
        let half = || is_half.then(|| self.from.clone()).filter(|_| !never_ran);
        Inherited {
            earlier,
            way_back: self.way_back.clone().or_else(half),
        }
    }

    /// Returns how `rollback` proceeds, if this is the last change and has no files of its own.
    pub fn plan_leaving(&self, booted: &Booted, history: &[Ran]) -> Option<Leaving> {
        let newest = history
            .first()
            .map(|run| run.id.clone())
            .unwrap_or_default();
        let is_last = self.head.as_ref().or(self.files_after.as_ref()) == Some(&newest);
        let stays = booted.deployment.as_deref() == Some(self.from.as_str());
        let is_over = stays && self.failed.is_some() && self.way_back.is_none();
        if self.way == Way::Back || self.own_run(history).is_some() || !is_last || is_over {
            return None;
        }
        let GoesBack::Runs(runs) = self.goes_back(history) else {
            return None;
        };
        let to = self.way_back.clone().unwrap_or_else(|| self.from.clone());
        Some(Leaving { to, runs })
    }

    /// Returns which deployment the node came from in this run.
    pub fn os_run(&self, run: String) -> OsRun {
        OsRun {
            run,
            from: Some(self.way_back.clone().unwrap_or_else(|| self.from.clone())),
            earlier: self.earlier.clone(),
        }
    }

    /// Returns the command that completes it.
    pub fn apply_command(&self) -> String {
        if self.config.origin == PIVOT {
            mco_rescue("apply")
        } else {
            mco_rescue(&format!("apply cached:{}", self.config.name))
        }
    }

    /// Returns true if this run in the history wrote the files.
    pub fn is_its_run(&self, id: &str, config: &str) -> bool {
        match (&self.run, &self.files_after) {
            (Some(run), _) => run == id,
            (None, Some(before)) => config == self.config.name && id_order(id) > id_order(before),
            (None, None) => false,
        }
    }

    /// Describes a difference to the expected state, if the previous deployment is not running.
    fn describe_missing(&self, entered: &Entered, enters: &str) -> Option<String> {
        if let Some(image) = &self.image
            && entered.image.as_ref() != Some(image)
        {
            let other = entered.image.as_deref().unwrap_or("an unknown image");
            return Some(format!("{image} was staged, but {other} {enters}"));
        }
        let of_boot = Kargs::from_entries(entered.kernel_arguments.as_ref()?);
        let known = [&self.kernel_arguments[..], &self.gone_arguments].concat();
        let of_boot = of_boot.written_as(&Kargs::from_entries(&known));
        let mut present = of_boot.tokens().to_vec();
        let mut missing = Vec::new();
        for word in &self.kernel_arguments {
            match present.iter().position(|other| other == word) {
                Some(at) => drop(present.remove(at)),
                None => missing.push(word.as_str()),
            }
        }
        if !missing.is_empty() {
            return Some(format!(
                "the kernel arguments {} are missing",
                redacted_arguments(&missing.join(" "))
            ));
        }
        let left = self
            .gone_arguments
            .iter()
            .filter(|word| present.contains(word));
        let left: Vec<&str> = left.map(String::as_str).collect();
        (!left.is_empty()).then(|| {
            format!(
                "the kernel arguments {} are still there",
                redacted_arguments(&left.join(" "))
            )
        })
    }
}

impl Awaited {
    /// Returns the state of the boot in words.
    pub fn describe_boot(&self, verdict: &Verdict) -> String {
        let name = &self.config.name;
        let failed = self.failed.as_deref().unwrap_or_default();
        match (verdict, self.way) {
            (Verdict::AtWork, _) => format!("{name}: a run is in progress"),
            (Verdict::Failed, Way::Back) => {
                format!("the rollback from {name} did not happen: {failed}")
            }
            (Verdict::Failed, _) if self.half => format!("{name} is incomplete: {failed}"),
            (Verdict::Failed, _) => format!("{name} did not come up: {failed}"),
            (Verdict::CutOff, _) => {
                format!("{name}, but the run was interrupted before its files were written")
            }
            (Verdict::Dropped, Way::Back) => {
                format!("the rollback from {name}, but the next boot no longer enters it")
            }
            (Verdict::Dropped, _) if self.run.is_none() && self.earlier.is_empty() => {
                format!("the image for {name}, but it is no longer staged")
            }
            (Verdict::Dropped, _) => {
                format!("{name}, but it is no longer staged, and its files are in place")
            }
            (Verdict::Replaced(what), Way::Back) => {
                format!("the rollback from {name}, but the next boot does not enter it: {what}")
            }
            (Verdict::Replaced(what), _) => {
                let files = if self.run.is_none() && self.earlier.is_empty() {
                    ""
                } else {
                    ", and its files are in place"
                };
                format!("{name}, but the next boot does not enter it: {what}{files}")
            }
            (Verdict::NotKnown, Way::Forward) => {
                format!("{name}; it is unknown whether the next boot enters it")
            }
            (Verdict::NotKnown, Way::Back) => {
                format!("the rollback from {name}; it is unknown whether the next boot enters it")
            }
            (Verdict::Due(_), _) => format!("{name}: this boot was not checked yet"),
            (Verdict::Waits, Way::Forward) => format!("{name}, at the next boot"),
            (Verdict::Waits, Way::Back) => format!("the rollback from {name}, at the next boot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::change::staging::awaited::*;

    fn awaited(way: Way) -> Awaited {
        Awaited {
            version: VERSION,
            way,
            config: ConfigRef {
                name: "rendered-worker-b".into(),
                digest: String::new(),
                origin: "test".into(),
            },
            run: Some("1-1".into()),
            files_after: None,
            head: None,
            earlier: Vec::new(),
            boot: identity("then", 0),
            from: "aa.0".into(),
            way_back: None,
            staged: None,
            image: Some("quay.example/os@sha256:b".into()),
            kernel_arguments: vec!["nosmt".into(), "nosmt".into()],
            gone_arguments: Vec::new(),
            since: 0,
            failed: None,
            half: false,
        }
    }

    fn identity(id: &str, soft_reboots: u32) -> BootIdentity {
        BootIdentity {
            id: id.to_owned(),
            soft_reboots: Some(soft_reboots),
            ..BootIdentity::default()
        }
    }

    fn booted(boot: &str, deployment: &str, image: &str, arguments: &[&str]) -> Booted {
        Booted {
            boot: BootIdentity {
                boot_deployment: Some(deployment.to_owned()),
                ..identity(boot, 0)
            },
            deployment: Some(deployment.into()),
            image: Some(image.into()),
            kernel_arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    #[test]
    fn a_boot_is_judged_by_deployment_image_and_arguments() {
        let (new, old) = ("quay.example/os@sha256:b", "quay.example/os@sha256:a");
        let both = ["rw", "nosmt", "nosmt"];
        let elsewhere = |text: &str| Arrival::Elsewhere(text.to_owned());
        let forward = [
            (booted("then", "aa.0", old, &[]), Arrival::NotYet),
            (booted("now", "bb.0", new, &both), Arrival::Arrived),
            (booted("now", "aa.0", old, &["rw"]), Arrival::Stayed),
            (
                booted("now", "cc.0", old, &both),
                elsewhere("quay.example/os@sha256:b was staged, but quay.example/os@sha256:a runs"),
            ),
            // Arguments are a multiset: having one of two is not enough.
            (
                booted("now", "bb.0", new, &["nosmt"]),
                elsewhere("the kernel arguments nosmt are missing"),
            ),
        ];
        for (booted, wanted) in forward {
            assert_eq!(
                awaited(Way::Forward).judge_boot(&booted),
                wanted,
                "{booted:?}"
            );
        }
        let back = [
            (booted("then", "aa.0", old, &[]), Arrival::NotYet),
            (booted("now", "zz.0", old, &[]), Arrival::Arrived),
            (booted("now", "aa.0", old, &[]), Arrival::Stayed),
        ];
        for (booted, wanted) in back {
            assert_eq!(awaited(Way::Back).judge_boot(&booted), wanted, "{booted:?}");
        }
    }

    /// Returns a boot as systemd shows it: the count from 256 on, the start of user space from 254 on.
    fn shown(systemd: u32, soft: u32) -> BootIdentity {
        BootIdentity {
            id: "then".to_owned(),
            soft_reboots: (systemd >= 256).then_some(soft),
            user_space: (systemd > 0).then_some(5_000_000 + u64::from(soft)),
            boot_deployment: None,
        }
    }

    #[test]
    fn every_kind_of_reboot_is_judged_with_every_systemd() {
        let (new, old) = ("quay.example/os@sha256:b", "quay.example/os@sha256:a");
        // 0 means that systemd gives no answer. 252 has no soft reboots.
        for systemd in [0, 252, 254, 255, 256, 257] {
            for kind in ["none", "soft", "hard"] {
                for entered in ["aa.0", "bb.0"] {
                    let impossible = kind == "none" && entered == "bb.0";
                    if impossible || kind == "soft" && systemd == 252 {
                        continue;
                    }
                    let mut boot = shown(systemd, u32::from(kind == "soft"));
                    if kind == "hard" {
                        boot.id = "now".to_owned();
                    }
                    boot.boot_deployment = Some(entered.to_owned());
                    let arguments = ["nosmt", "nosmt"];
                    let (image, arguments): (_, &[&str]) = match entered {
                        "aa.0" => (old, &[]),
                        _ => (new, &arguments),
                    };
                    let booted = Booted {
                        boot,
                        ..booted("", entered, image, arguments)
                    };
                    let wanted = match (kind, entered) {
                        ("none", _) => Arrival::NotYet,
                        // Without an answer, only a different deployment reveals a soft reboot.
                        ("soft", "aa.0") if systemd == 0 => Arrival::NotYet,
                        (_, "aa.0") => Arrival::Stayed,
                        _ => Arrival::Arrived,
                    };
                    let mut kept = awaited(Way::Forward);
                    kept.boot = shown(systemd, 0);
                    kept.boot.boot_deployment = Some("aa.0".to_owned());
                    let case = format!("systemd {systemd}, {kind}, {entered}");
                    assert_eq!(kept.judge_boot(&booted), wanted, "{case}");
                    // Versions that did not distinguish soft reboots stored the id alone.
                    kept.boot = BootIdentity {
                        id: "then".to_owned(),
                        ..BootIdentity::default()
                    };
                    let wanted = match (kind, entered) {
                        ("soft", "aa.0") => Arrival::NotYet,
                        _ => wanted,
                    };
                    assert_eq!(kept.judge_boot(&booted), wanted, "{case}, the id alone");
                    let text = serde_json::to_value(&kept).unwrap();
                    assert_eq!(text["boot"], "then", "{case}");
                    let read: Awaited = serde_json::from_value(text).unwrap();
                    assert_eq!(read, kept, "{case}");
                }
            }
        }
    }

    #[test]
    fn a_half_that_was_judged_in_this_boot_is_known_by_its_boot_alone() {
        // The running deployment differs from the one at the time of staging.
        let failed = Awaited {
            failed: Some("half".into()),
            half: true,
            boot: BootIdentity {
                id: "now".to_owned(),
                ..BootIdentity::default()
            },
            ..awaited(Way::Forward)
        };
        let runs = booted("now", "bb.0", "quay.example/os@sha256:b", &[]);
        assert_eq!(failed.judge_boot(&runs), Arrival::NotYet);
    }

    #[test]
    fn its_run_is_known_even_where_the_power_failed_before_its_name_was_kept() {
        let name = "rendered-worker-b";
        assert!(awaited(Way::Forward).is_its_run("1-1", name));
        assert!(!awaited(Way::Forward).is_its_run("2-1", name));
        let unnamed = |files_after: Option<&str>| Awaited {
            run: None,
            files_after: files_after.map(str::to_owned),
            ..awaited(Way::Forward)
        };
        assert!(unnamed(Some("9-7")).is_its_run("10-3", name));
        assert!(unnamed(Some("")).is_its_run("10-3", name));
        assert!(!unnamed(Some("9-7")).is_its_run("10-3", "rendered-worker-other"));
        // It is from before the staging, or only the operating system was staged.
        assert!(!unnamed(Some("10-3")).is_its_run("10-3", name));
        assert!(!unnamed(None).is_its_run("10-3", name));
    }

    #[test]
    fn a_change_of_arguments_alone_has_another_serial() {
        let arguments_only = Awaited {
            image: None,
            ..awaited(Way::Forward)
        };
        let again = booted("now", "aa.1", "x", &["nosmt", "nosmt"]);
        assert_eq!(arguments_only.judge_boot(&again), Arrival::Arrived);
        let old = booted("now", "aa.0", "x", &[]);
        assert_eq!(arguments_only.judge_boot(&old), Arrival::Stayed);
    }

    #[test]
    fn a_quoted_argument_is_found_as_it_was_asked_for() {
        let words = |kargs: Kargs| kargs.tokens().to_vec();
        let asked_for = Awaited {
            kernel_arguments: words(Kargs::from_entries(&[r#"dyndbg="file x +p""#])),
            ..awaited(Way::Forward)
        };
        // As written, and as GRUB passes it on.
        for line in [r#"rw dyndbg="file x +p""#, r#"rw "dyndbg=file x +p""#] {
            let runs = Booted {
                kernel_arguments: words(Kargs::parse(line)),
                ..booted("now", "bb.0", "quay.example/os@sha256:b", &[])
            };
            assert_eq!(asked_for.judge_boot(&runs), Arrival::Arrived, "{line}");
        }
    }
}
