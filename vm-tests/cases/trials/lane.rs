//! A node in a box, and one trial after the other on it.

use std::ops::{Deref, DerefMut};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::changes::{Effect, Part, Site};
use super::judge::{PATIENCE, Said, State};
use super::plan::{Boot, Trial, Twist};
use crate::cases::node::PROGRAM;
use crate::lab::boxes::{BoxNode, golden};
use crate::lab::random::Random;
use crate::lab::{Case, Shell, run};
use crate::support::Run;

const GUARD: &str = "mco-rescue-guard.service";
const LATE_GUARD: &str = "mco-rescue-guard-late";
const TRIAL: &str = "/var/lib/mco-rescue/trial.json";

/// A trial that held: what is told of it in the table.
#[derive(Debug, Clone)]
pub struct Held {
    /// The change had the effect that it is meant to have, while the trial ran.
    pub bit: bool,
    /// As `status` says it.
    pub reason: String,
    /// From the end of the time for a confirmation until a login was possible and everything was as before.
    pub seconds: Option<f64>,
}

/// An ssh that ends with this value.
struct Client(Child);

impl Deref for Client {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node, and the config that it is in.
pub struct Lane<'a> {
    case: &'a Case,
    node: BoxNode<'a>,
    site: Site,
    window: u64,
}

impl<'a> Lane<'a> {
    /// A fresh node that is well.
    pub fn new(case: &'a Case, window: u64) -> Self {
        let _ = fs::remove_dir_all(case.path("box"));
        let node = BoxNode::on_lan(case);
        let site = Site::new(&node.lan().public_key(), &golden().a());
        let mut lane = Self {
            case,
            node,
            site,
            window,
        };
        // The other image is on a medium.
        let mut copy = Command::new("cp");
        run(copy
            .arg("-al")
            .arg(golden().oci())
            .arg(lane.node.media().join("os")));
        lane.node.boot();
        let config = lane.site.config().to_string();
        lane.node.bring("/root/a.json", config.as_bytes());
        lane.node.ask(&format!(
            "{PROGRAM} apply --yes a.json && {PROGRAM} install && \
             install -D /dev/null /var/lib/systemd/linger/core"
        ));
        lane.node.reboot();
        assert!(lane.lets_in(), "no login: {}", lane.journal());
        lane
    }

    /// The node.
    pub fn node(&self) -> &BoxNode<'a> {
        &self.node
    }

    /// The config that it is in.
    pub fn site(&self) -> Site {
        self.site.clone()
    }

    /// Its status of trials.
    pub fn said(&self) -> Said {
        Said::by(&self.node).unwrap()
    }

    /// The journal of all of its boots.
    pub fn journal(&mut self) -> String {
        self.node.journal()
    }

    /// Reports if an administrator can log in with a new connection.
    pub fn lets_in(&self) -> bool {
        self.node.lan().lets_in()
    }

    /// `core` at the node, with a new connection; to its end.
    pub fn by_ssh(&self, seconds: u32, command: &str) -> Run {
        Run::of(self.node.lan().ssh(seconds, command))
    }

    /// Brings a config to the home of `core`, as `scp` does it.
    pub fn bring(&self, site: &Site) -> Result<(), String> {
        let config = site.config().to_string();
        let lan = self.node.lan();
        let output = lan.ssh_by(&[], 20, "cat >t.json", config.as_bytes());
        is(output.status.success(), || {
            "the config cannot be brought".to_owned()
        })
    }

    /// Runs one trial to its end.
    pub fn run(&mut self, trial: &Trial) -> Result<Held, String> {
        if let Twist::System(boot) = trial.twist {
            self.run_system(trial, boot)
        } else if trial.good {
            self.run_good(trial)
        } else {
            self.run_bad(trial)
        }
    }

    // -- bad ----------------------------------------------------------------------

    fn run_bad(&mut self, trial: &Trial) -> Result<Held, String> {
        let mut random = Random::of(trial.seed);
        let before = State::of(&self.node, true);
        let mut tried = self.site.clone();
        let (name, effect) = tried.spoil(trial.part, &mut random);
        self.case
            .tell(&format!("{}: bad: {}: {name}", trial.number, trial.kind()));
        self.bring(&tried)?;
        let begun = boottime();
        let mut apply = self.begin(trial, &tried);
        if let Twist::ApplyKilled(after) = trial.twist {
            self.node.run(
                "for n in $(seq 200); do pgrep -f '^[^ ]*mco-rescue apply' && break; sleep 0.05; done",
            );
            thread::sleep(Duration::from_millis(after));
            self.node.run("pkill -KILL -f '^[^ ]*mco-rescue apply'");
        }
        if trial.twist == Twist::ClientGone {
            // Its connection is open by then.
            self.comes_to(|lane| lane.phase().is_some());
            let _ = apply.kill();
        }
        let deadline = self.wait_until_in_place(trial, effect, &mut apply)?;
        let mut bit = false;
        if deadline.is_some() && !matches!(trial.twist, Twist::PowerCut(_) | Twist::ForeignReboot) {
            bit = self.bites(effect)?;
        }
        self.disturb(trial, deadline)?;
        let said = self.comes_back(trial, &before)?;
        let seconds = seconds_since(deadline.unwrap_or(begun));
        drop(apply);
        if matches!(trial.twist, Twist::ConfirmCut(_)) && said.result() == "confirmed" {
            self.site = tried;
            self.is_in_config("after the confirmation")?;
        } else {
            before
                .is_reached_by(&self.node)
                .map_err(|differences| format!("it is not as before: {differences}"))?;
            self.tells_of_the_revert(&said, effect, trial)?;
        }
        Ok(Held {
            bit,
            reason: said.reason(),
            seconds: Some(seconds),
        })
    }

    /// What the twist does to a node with the change in place.
    fn disturb(&mut self, trial: &Trial, deadline: Option<u64>) -> Result<(), String> {
        let deadline = deadline.unwrap_or_else(boottime);
        match trial.twist {
            Twist::GuardKilled(times) => self.kill_guard(times),
            Twist::GuardStopped => {
                self.node.run(&format!("systemctl stop {GUARD}"));
            }
            Twist::BothStopped => {
                self.node.run(&format!(
                    "systemctl stop {LATE_GUARD}.timer {LATE_GUARD}.service {GUARD}"
                ));
                sleep_until(deadline);
                self.node.cut();
                self.node.start();
            }
            Twist::PowerCut(after) => {
                thread::sleep(Duration::from_millis(after));
                self.node.cut();
                self.node.start();
            }
            Twist::PowerCutInRevert(after) => {
                sleep_until(deadline + after);
                self.node.cut();
                self.node.start();
            }
            Twist::ConfirmCut(after) => {
                let lan = self.node.lan();
                let mut confirm = lan.start_ssh(&[], 30, &format!("sudo {PROGRAM} confirm"));
                thread::sleep(Duration::from_millis(after));
                let _ = confirm.kill();
                let _ = confirm.wait();
                sleep_until(deadline);
            }
            Twist::SameChannel => self.is_refused_over_the_first_connection()?,
            Twist::NoLogin => self.is_refused_without_a_login()?,
            Twist::ForeignReboot => {
                self.node.run("systemctl --no-block reboot");
                self.node.is_down();
                self.node.start();
            }
            Twist::FullDisk => {
                // To the last block, as root may use what is reserved. Whatever is freed is taken at once.
                self.node.run(
                    "fallocate -l $(df --output=avail -B1 /var | tail -n 1) /var/fill; \
                     systemd-run --unit=filler sh -c 'while :; do cat /dev/zero >>/var/fill; sleep 0.02; done'; \
                     until [ $(df --output=avail -B1 /var | tail -n 1) = 0 ]; do sleep 0.1; done",
                );
            }
            Twist::TakenBackByHand => {
                let run = self.node.run(&format!("{PROGRAM} rollback --yes"));
                is(run.code() == 0, || {
                    format!("rollback: {}{}", run.out(), run.err())
                })?;
            }
            Twist::SecondTrial => self.refuses_another()?,
            Twist::TooLate => {
                sleep_until(deadline + 100);
                self.comes_to(|lane| lane.lets_in());
                let run = self.by_ssh(20, &format!("sudo {PROGRAM} confirm"));
                is(run.code() != 0, || {
                    format!("a late confirmation ended with 0: {}", run.out())
                })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Waits for a login and the end of the trial, which must come true; gives what is said of it.
    fn comes_back(&mut self, trial: &Trial, before: &State) -> Result<Said, String> {
        let begun = Instant::now();
        let mut full = trial.twist == Twist::FullDisk;
        loop {
            if !self.node.runs() {
                self.node.is_down();
                self.node.start();
            }
            if self.phase().is_none() {
                if full {
                    self.node.ask("systemctl stop filler; rm /var/fill");
                    full = false;
                }
                // While the node starts, no trial can be seen either: it says itself that none runs.
                if self.lets_in()
                    && let Ok(said) = Said::by(&self.node)
                    && !said.runs()
                {
                    return Ok(said);
                }
            }
            if begun.elapsed() > PATIENCE {
                let logs_in = self.lets_in();
                let said = Said::by(&self.node).map(|said| said.parts());
                return Err(format!(
                    "it does not come back: login {logs_in}, {said:?}; {:?}",
                    before.is_reached_by(&self.node)
                ));
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn tells_of_the_revert(
        &self,
        said: &Said,
        effect: Effect,
        trial: &Trial,
    ) -> Result<(), String> {
        // What was never in place may be no trial at all.
        if effect == Effect::Refused
            || matches!(trial.twist, Twist::ApplyKilled(_)) && said.result() != "reverted"
        {
            return Ok(());
        }
        is(said.result() == "reverted", || {
            format!("status does not say that it went back: {}", said.parts())
        })?;
        // The power may have failed once everything was back, and with it went what is in memory.
        if matches!(trial.twist, Twist::PowerCut(_) | Twist::PowerCutInRevert(_)) {
            return Ok(());
        }
        let motd = self.by_ssh(10, "cat /run/motd.d/60-mco-rescue");
        is(motd.out().contains("mco-rescue"), || {
            format!("motd does not say it: {}{}", motd.out(), motd.err())
        })
    }

    // -- good ---------------------------------------------------------------------

    fn run_good(&mut self, trial: &Trial) -> Result<Held, String> {
        let mut random = Random::of(trial.seed);
        let mut tried = self.site.clone();
        let name = tried.improve(trial.part, trial.number, &mut random);
        self.case
            .tell(&format!("{}: good: {}: {name}", trial.number, trial.kind()));
        self.bring(&tried)?;
        let mut apply = self.begin(trial, &tried);
        if trial.twist == Twist::ClientGone {
            self.comes_to(|lane| lane.phase().is_some());
            let _ = apply.kill();
        }
        let deadline = match trial.twist {
            // A probe may confirm it at once.
            Twist::Probe => {
                self.follow(&mut apply, |lane| lane.phase().is_some())?;
                self.comes_to(|lane| lane.phase().is_none());
                boottime() + self.window(trial) * 1000
            }
            _ => {
                let deadline = self.wait_until_in_place(trial, Effect::Unseen, &mut apply)?;
                deadline.ok_or("it was never in place")?
            }
        };
        match trial.twist {
            Twist::GuardKilled(times) => self.kill_guard(times),
            Twist::SameChannel => self.is_refused_over_the_first_connection()?,
            Twist::NoLogin => self.is_refused_without_a_login()?,
            Twist::SecondTrial => self.refuses_another()?,
            Twist::Late => sleep_until(deadline - self.window(trial) * 1000 / 3),
            _ => {}
        }
        if trial.twist != Twist::Probe {
            let run = self.by_ssh(30, &format!("sudo {PROGRAM} confirm"));
            is(run.code() == 0, || {
                format!("confirm: {}: {}{}", run.code(), run.out(), run.err())
            })?;
        }
        drop(apply);
        self.site = tried;
        self.is_in_config("after the confirmation")?;
        let confirmed = State::of(&self.node, true);
        // Nothing goes back afterwards.
        sleep_until(deadline + 1500);
        confirmed
            .is_reached_by(&self.node)
            .map_err(|differences| format!("it changed after the confirmation: {differences}"))?;
        self.is_in_config("after the deadline")?;
        let said = Said::by(&self.node)?;
        is(!said.runs() && said.result() == "confirmed", || {
            format!(
                "status does not say that it was confirmed: {}",
                said.parts()
            )
        })?;
        is(self.lets_in(), || "no login after the deadline".to_owned())?;
        Ok(Held {
            bit: false,
            reason: said.reason(),
            seconds: None,
        })
    }

    // -- with a reboot ------------------------------------------------------------

    fn run_system(&mut self, trial: &Trial, boot: Boot) -> Result<Held, String> {
        let mut random = Random::of(trial.seed);
        let before = State::of(&self.node, boot == Boot::FilesAlone);
        let mut tried = self.site.clone();
        let (name, effect) = match (trial.good, boot) {
            (true, _) => (
                tried.improve(trial.part, trial.number, &mut random),
                Effect::Unseen,
            ),
            (false, Boot::Blocked) => {
                tried.block_the_boot();
                ("blocked".to_owned(), Effect::Unseen)
            }
            (false, _) => {
                // Only a boot shows what a unit does, and what sshd does not take.
                let (name, _) = tried.spoil(trial.part, &mut random);
                (name, Effect::CutsOff)
            }
        };
        if matches!(boot, Boot::Image | Boot::Blocked | Boot::Cut(_)) {
            let (a, b) = (golden().a(), golden().b());
            tried.image = if tried.image == a { b } else { a };
        }
        if boot == Boot::Arguments {
            tried.arguments = vec!["audit=0".to_owned(), format!("site.trial={}", trial.number)];
        }
        let good = if trial.good { "good" } else { "bad" };
        self.case.tell(&format!(
            "{}: {good}: {}: {name}",
            trial.number,
            trial.kind()
        ));
        self.bring(&tried)?;
        let began = boottime();
        let mut apply = self.begin(trial, &tried);
        if let Boot::Cut(after) = boot {
            self.follow(&mut apply, |lane| !lane.node.runs())?;
            self.node.is_down();
            self.node.start();
            thread::sleep(Duration::from_millis(after));
            self.node.cut();
            self.node.start();
        }
        let is_over = |lane: &mut Self| match lane.phase() {
            Some(trial) => trial["phase"] == "waiting",
            None => boot == Boot::Blocked || matches!(boot, Boot::Cut(_)),
        };
        if matches!(boot, Boot::Image | Boot::Arguments | Boot::FilesAlone) {
            self.follow(&mut apply, is_over)?;
        }
        if boot == Boot::Blocked {
            self.follow(&mut apply, |lane| {
                lane.phase()
                    .is_some_and(|trial| trial["phase"] == "trial-boot")
            })?;
        }
        let waiting = self.phase().and_then(|trial| trial["until"].as_u64());
        if trial.good {
            let deadline = waiting.ok_or("no confirmation is awaited")?;
            self.site = tried;
            return self.is_confirmed_after_a_boot(deadline);
        }
        let bit = waiting.is_some() && self.bites(effect)?;
        let said = self.comes_back(trial, &before)?;
        let seconds = seconds_since(waiting.unwrap_or(began));
        before
            .is_reached_by(&self.node)
            .map_err(|differences| format!("it is not as before: {differences}"))?;
        self.tells_of_the_revert(&said, effect, trial)?;
        Ok(Held {
            bit,
            reason: said.reason(),
            seconds: Some(seconds),
        })
    }

    fn is_confirmed_after_a_boot(&mut self, deadline: u64) -> Result<Held, String> {
        self.comes_to(|lane| lane.lets_in());
        let run = self.by_ssh(30, &format!("sudo {PROGRAM} confirm"));
        is(run.code() == 0, || {
            format!("confirm: {}: {}{}", run.code(), run.out(), run.err())
        })?;
        sleep_until(deadline + 1500);
        self.is_in_config("after the deadline")?;
        let arguments = self.node.run("cat /proc/cmdline").out();
        let wanted = self.site.arguments.iter();
        for argument in wanted {
            is(arguments.contains(argument), || {
                format!("no {argument}: {arguments}")
            })?;
        }
        let said = Said::by(&self.node)?;
        is(said.result() == "confirmed", || {
            format!("it is not confirmed: {}", said.parts())
        })?;
        is(self.lets_in(), || "no login after the deadline".to_owned())?;
        Ok(Held {
            bit: false,
            reason: said.reason(),
            seconds: None,
        })
    }

    /// Boots the node whenever it has ended, until something is true.
    fn follow(
        &mut self,
        apply: &mut Child,
        mut is_true: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), String> {
        let begun = Instant::now();
        let mut trial = false;
        while !is_true(self) {
            if !self.node.runs() {
                self.node.is_down();
                self.node.start();
            }
            trial |= self.phase().is_some();
            let ended = apply.try_wait().unwrap().is_some();
            is(trial || !ended || self.phase().is_some(), || {
                format!("no trial: {}", output_of(apply))
            })?;
            let mut said = String::new();
            if trial && self.phase().is_none() && self.lets_in() {
                // In the middle of a boot the file is not in sight yet.
                let now = Said::by(&self.node)?;
                if !now.runs() {
                    said = now.parts();
                }
            }
            is(said.is_empty() || is_true(self), || {
                format!("it ended: {said}")
            })?;
            is(begun.elapsed() < PATIENCE, || {
                format!("it does not come to it: {:?}", self.phase())
            })?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn is_in_config(&self, when: &str) -> Result<(), String> {
        let recorded = self
            .node
            .run("cat /etc/machine-config-daemon/currentconfig")
            .out();
        let recorded: Value = serde_json::from_str(&recorded).map_err(|error| error.to_string())?;
        let wanted = self.site.config();
        is(
            recorded["metadata"]["name"] == wanted["metadata"]["name"],
            || format!("{when}: another config is recorded"),
        )?;
        let verify = self.node.run(&format!("{PROGRAM} verify"));
        is(verify.code() == 0, || {
            format!("{when}: verify: {}{}", verify.out(), verify.err())
        })
    }

    // -- steps --------------------------------------------------------------------

    /// Seconds that a confirmation has; some twists take a while.
    fn window(&self, trial: &Trial) -> u64 {
        match trial.twist {
            Twist::GuardKilled(10) => 4 * self.window,
            Twist::SecondTrial => 2 * self.window,
            _ => self.window,
        }
    }

    fn begin(&self, trial: &Trial, tried: &Site) -> Client {
        let probe = match (trial.twist, trial.good) {
            (Twist::Probe, true) => " --probe 'systemctl is-active sshd.service'",
            (Twist::Probe, false) => " --probe 'systemctl is-active site-never.service'",
            _ => "",
        };
        let boot = match trial.twist {
            Twist::System(Boot::Blocked) => " --reboot --boot-limit 15s",
            Twist::System(_) => " --reboot",
            _ => "",
        };
        // The deployment of the first image is kept.
        let medium = if tried.image != self.site.image && tried.image == golden().b() {
            " --os-from /run/media/os"
        } else {
            ""
        };
        // A unit that the node is reached by may be masked.
        let command = format!(
            "sudo {PROGRAM} apply --yes --try={}s{probe}{boot}{medium} --allow-removals --detach t.json",
            self.window(trial)
        );
        let socket = self.socket();
        let options = [
            "-o",
            "ControlMaster=yes",
            "-o",
            &socket,
            "-o",
            "ControlPersist=120",
        ];
        let _ = fs::remove_file(self.socket_path());
        let options: &[&str] = if trial.twist == Twist::SameChannel {
            &options
        } else {
            &[]
        };
        Client(self.node.lan().start_ssh(options, 150, &command))
    }

    /// Waits until the change is in place; gives the deadline, or nothing if there is no such moment.
    fn wait_until_in_place(
        &self,
        trial: &Trial,
        effect: Effect,
        apply: &mut Child,
    ) -> Result<Option<u64>, String> {
        let begun = Instant::now();
        let mut seen = false;
        loop {
            match self.phase() {
                Some(trial) if trial["phase"] == "waiting" => return Ok(trial["until"].as_u64()),
                Some(trial) => {
                    seen = true;
                    if trial["phase"] == "reverting" {
                        return Ok(None);
                    }
                }
                // It came and went.
                None if seen => return Ok(None),
                None if matches!(trial.twist, Twist::ApplyKilled(_)) => return Ok(None),
                None => {}
            }
            let ended = apply.try_wait().unwrap().is_some();
            if ended && self.phase().is_none() {
                let refused = effect == Effect::Refused || trial.twist == Twist::ClientGone;
                return if refused {
                    Ok(None)
                } else {
                    Err(format!("no trial: {}", output_of(apply)))
                };
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the change is never in place: {:?}", self.phase()));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reports if the change does what it is meant to do; one that is meant to cut the node off must.
    fn bites(&self, effect: Effect) -> Result<bool, String> {
        match effect {
            Effect::CutsOff => {
                // The trial may have ended meanwhile.
                let in_time = |lane: &Self| {
                    lane.phase()
                        .is_some_and(|trial| trial["phase"] == "waiting")
                };
                let refused = !self.lets_in();
                is(refused || !in_time(self), || {
                    "the change does not cut the node off".to_owned()
                })?;
                Ok(refused)
            }
            Effect::Stops(unit) => {
                let state = self.node.run(&format!("systemctl is-active {unit}"));
                let runs = state.out().trim() == "active";
                is(!runs, || format!("{unit} runs with the bad file"))?;
                Ok(true)
            }
            Effect::Unseen => Ok(!self.lets_in()),
            Effect::Refused => Ok(false),
        }
    }

    fn kill_guard(&self, times: usize) {
        for _ in 0..times {
            self.node.run(&format!(
                "for n in $(seq 100); do pid=$(systemctl show -P MainPID {GUARD}); [ $pid != 0 ] && break; sleep 0.05; done; \
                 [ $pid = 0 ] || kill -KILL $pid"
            ));
        }
    }

    fn is_refused_over_the_first_connection(&self) -> Result<(), String> {
        let lan = self.node.lan();
        let socket = self.socket();
        let options = ["-o", "ControlMaster=no", "-o", &socket];
        let run = Run::of(lan.ssh_by(&options, 6, &format!("sudo {PROGRAM} confirm"), &[]));
        is(run.code() != 0, || {
            format!("confirmed by the login that began it: {}", run.out())
        })
    }

    fn is_refused_without_a_login(&self) -> Result<(), String> {
        let run = self.node.run(&format!("{PROGRAM} confirm"));
        is(run.code() != 0, || {
            format!("confirmed without a login: {}", run.out())
        })
    }

    fn refuses_another(&self) -> Result<(), String> {
        for command in ["apply --yes --try=8s --detach", "apply --yes"] {
            let run = self.node.run(&format!("{PROGRAM} {command} /root/a.json"));
            is(run.code() != 0, || {
                format!("{command} during a trial ended with 0: {}", run.out())
            })?;
        }
        Ok(())
    }

    fn socket_path(&self) -> std::path::PathBuf {
        // A socket's path is short.
        std::env::temp_dir().join(format!("mco-trial-{}-{:p}", std::process::id(), self.case))
    }

    fn socket(&self) -> String {
        format!("ControlPath={}", self.socket_path().display())
    }

    /// The trial that runs, as its file has it.
    pub fn phase(&self) -> Option<Value> {
        let text = fs::read(self.node.seen(TRIAL)?).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Waits a while until something is true; what follows will see if it never was.
    fn comes_to(&self, is_true: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !is_true(self) && begun.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Milliseconds of CLOCK_BOOTTIME, which host and box share.
fn boottime() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    now.tv_sec() as u64 * 1000 + now.tv_nsec() as u64 / 1_000_000
}

/// Negative, if the moment is still to come.
fn seconds_since(moment: u64) -> f64 {
    (boottime() as f64 - moment as f64) / 1000.0
}

fn sleep_until(moment: u64) {
    thread::sleep(Duration::from_millis(moment.saturating_sub(boottime())));
}

fn is(true_: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if true_ { Ok(()) } else { Err(message()) }
}

fn output_of(child: &mut Child) -> String {
    use std::io::Read;
    let mut text = String::new();
    if let Some(out) = child.stdout.as_mut() {
        let _ = out.read_to_string(&mut text);
    }
    if let Some(err) = child.stderr.as_mut() {
        let _ = err.read_to_string(&mut text);
    }
    text
}

/// A bad change made by hand, without a trial: used to show that the observer sees it.
pub fn cuts_off_without_a_trial(lane: &mut Lane<'_>, part: Part, name: &str) -> Result<(), String> {
    let before = State::of(&lane.node, true);
    let mut tried = lane.site.clone();
    tried.spoil_by(part, name);
    lane.node
        .bring("/root/t.json", tried.config().to_string().as_bytes());
    lane.node.ask(&format!("{PROGRAM} apply --yes t.json"));
    lane.node.run(ACTIVATION);
    let refused = !lane.lets_in();
    is(State::of(&lane.node, true) != before, || {
        "no difference is seen".to_owned()
    })?;
    lane.node.ask(&format!("{PROGRAM} rollback --yes"));
    lane.node.run(ACTIVATION);
    before.is_reached_by(&lane.node)?;
    lane.comes_to(|lane| lane.lets_in());
    is(lane.lets_in(), || {
        "no login after the way back by hand".to_owned()
    })?;
    is(refused, || {
        "the change does not cut the node off".to_owned()
    })
}

/// What a person does by hand so that everything reads its files again.
const ACTIVATION: &str = "systemctl daemon-reload; systemctl reset-failed; systemctl restart ssh.service; systemctl reload-or-restart nftables.service; \
    nmcli connection reload; nmcli --wait 5 connection up lan || nmcli device disconnect lan0";
