//! One boot of a rehearsal: the unit, its console, and questions to the system inside.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::pty::openpty;
use nix::unistd::ttyname;

use super::facts::{
    PROPERTIES, ProbeFacts, RehearsalEnd, RehearsedBoot, UnitFacts, parse_units, read_complaints,
    read_file_faults, started_programs,
};
use super::scene::{RehearsalScene, STAND_INS};
use crate::host::progress::{self, Work};
use crate::host::root::Root;
use crate::host::running;
use crate::host::sys::runtime::{self, REHEARSAL};
use crate::host::sys::signals::DeferredSignals;
use crate::node::command::rehearsal_unit::{
    UNIT, UnitBounds, forget_failure, is_rehearsing, query_result, run_inside, start_rehearsal,
    stop_rehearsal,
};
use crate::node::command::{CommandError, CommandOutput, CommandRunner, systemctl};
use crate::node::service_configs::{BrokenConfig, CrioSettings, read_service_configs};

/// Name of the file with the config, below [`REHEARSAL`].
pub const CONFIG: &str = "config.json";
/// Memory for processes and for what they write: 512 MiB.
pub const MEMORY: u64 = 512 << 20;
/// Processes and threads.
const TASKS: u32 = 2048;
/// Seconds for laying the stage and for the questions, besides the boot itself.
const AROUND: u64 = 120;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Time for one answer of the system inside, which has the lowest priority on a node that may be busy.
const ANSWER: Duration = Duration::from_secs(60);
/// Bytes of the console that are kept.
const CONSOLE: usize = 4 << 20;
/// Free bytes at which the memory for files counts as full: what is left of a write that failed is less than a page.
const FULL: u64 = 64 << 10;
/// Failed units whose journal is read, and lines of each.
const LOGS: usize = 20;
const LINES: &str = "8";

/// Programs that go on after a line of a file that they refuse, and say so in the journal alone.
const LENIENT: [&str; 2] = [
    "--identifier=systemd-tmpfiles",
    "--identifier=systemd-sysusers",
];

/// Questions to the booted system besides its units: id, and the program with its arguments. One that the system does not have is
/// not asked.
const PROBES: [(&str, &[&str]); 6] = [
    ("sshd", &["sshd", "-t"]),
    (
        "login",
        &[
            "systemd-run",
            "--quiet",
            "--wait",
            "--collect",
            "--property=PAMName=sshd",
            "--property=User=core",
            "true",
        ],
    ),
    ("sudo", &["visudo", "-c"]),
    ("chrony", &["chronyd", "-p"]),
    ("network-manager", &["NetworkManager", "--print-config"]),
    ("crio", &["crio", "config"]),
];

/// The status of nsenter if the program is missing.
const NO_PROGRAM: i32 = 127;

/// Boots a scene, and returns what was seen of it. `config` is the text of the config that the scene applies. Nothing of it is left
/// afterwards.
///
/// # Errors
/// The boot cannot be started, or the program was asked to end.
pub fn boot_scene(
    runner: &dyn CommandRunner,
    scene: &RehearsalScene,
    config: Option<&str>,
    limit: Duration,
) -> Result<RehearsedBoot> {
    let signals = DeferredSignals::new();
    let running = RunningBoot::start_boot(runner, scene, config, limit);
    let running = running.inspect_err(|_| remove_files())?;
    let facts = running.watch_boot(&signals, limit);
    running.end_boot();
    facts
}

/// A boot that was started.
struct RunningBoot<'a> {
    runner: &'a dyn CommandRunner,
    console: std::cell::RefCell<Console>,
}

impl<'a> RunningBoot<'a> {
    fn start_boot(
        runner: &'a dyn CommandRunner,
        scene: &RehearsalScene,
        config: Option<&str>,
        limit: Duration,
    ) -> Result<Self> {
        let terminal = openpty(None, None).context("opening a terminal")?;
        let console = ttyname(&terminal.slave).context("naming the terminal")?;
        let scene = RehearsalScene {
            console,
            ..scene.clone()
        };
        let here = Path::new(REHEARSAL);
        let write = |name: &str, bytes: &[u8]| runtime::write_private(&here.join(name), bytes);
        let stage = here.join("stage").display().to_string();
        let text = serde_json::to_vec(&scene)?;
        write("scene.json", &text)
            .and_then(|()| runtime::make_directory(&stage))
            .context("writing the scene")?;
        if let Some(config) = config {
            write(CONFIG, config.as_bytes()).context("writing the config")?;
        }
        let bounds = UnitBounds {
            memory: MEMORY,
            tasks: TASKS,
            seconds: limit.as_secs() + AROUND,
        };
        let path = here.join("scene.json").display().to_string();
        let program = scene.program.display().to_string();
        let args = ["rehearse", "--stage", &path];
        let console = scene.console.display().to_string();
        let line = start_rehearsal(&program, &args, bounds, REHEARSAL, &console);
        // Of an earlier one, which was ended from outside.
        forget_failure(runner)?;
        let started = runner.run(&line)?;
        if started.status != Some(0) {
            bail!("systemd-run: {}", started.stderr.trim());
        }
        let console = Console::new(terminal.master.into())?;
        // The other end stays open inside; here it would hide the end of the boot.
        drop(terminal.slave);
        Ok(Self {
            runner,
            console: console.into(),
        })
    }

    /// Waits for the end of the boot, and asks.
    fn watch_boot(&self, signals: &DeferredSignals, limit: Duration) -> Result<RehearsedBoot> {
        let _phase = progress::begin_phase(Work::new("Rehearsing the boot").with_deadline(limit));
        let deadline = Instant::now() + limit;
        let mut first = None;
        loop {
            self.console.borrow_mut().read_output();
            if signals.waiting_signal().is_some() {
                bail!("the rehearsal was ended before it had a result");
            }
            if first.is_none() {
                first = self.find_init()?;
            }
            if first.is_none() && !is_rehearsing(self.runner)? {
                return self.describe_end(false);
            }
            let state = first.map(|pid| self.system_state(pid)).transpose()?;
            match state.as_deref() {
                Some("running" | "degraded") => {
                    return self.gather_facts(first, RehearsalEnd::Started);
                }
                Some("maintenance") => return self.gather_facts(first, RehearsalEnd::Emergency),
                Some(_) if !is_rehearsing(self.runner)? => return self.describe_end(true),
                _ => {}
            }
            if Instant::now() >= deadline {
                let jobs = first.map(|pid| self.running_jobs(pid)).transpose()?;
                return self
                    .gather_facts(first, RehearsalEnd::StillStarting(jobs.unwrap_or_default()));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns the first process inside once it is systemd.
    fn find_init(&self) -> Result<Option<u32>> {
        let Some(main) = systemctl::main_pid(self.runner, UNIT)? else {
            return Ok(None);
        };
        let children = format!("/proc/{main}/task/{main}/children");
        // It may have ended by now; the unit's state shows that.
        let Ok(children) = running::read_text(children) else {
            return Ok(None);
        };
        let child = children.split_whitespace().next();
        let Some(pid) = child.and_then(|pid| pid.parse::<u32>().ok()) else {
            return Ok(None);
        };
        let name = running::read_text(format!("/proc/{pid}/comm"));
        let is_init = name.is_ok_and(|name| matches!(name.trim(), "systemd" | "init"));
        Ok(is_init.then_some(pid))
    }

    fn run_inside(&self, pid: u32, words: &[&str]) -> Result<CommandOutput, CommandError> {
        run_inside(self.runner, pid, words, ANSWER)
    }

    fn system_state(&self, pid: u32) -> Result<String> {
        let answer = self.run_inside(pid, &["systemctl", "is-system-running"])?;
        Ok(answer.stdout.trim().to_owned())
    }

    fn running_jobs(&self, pid: u32) -> Result<Vec<String>> {
        let options = ["systemctl", "list-jobs", "--no-legend", "--plain", "--full"];
        let answer = self.run_inside(pid, &options)?;
        let running = |line: &&str| line.split_whitespace().nth(3) == Some("running");
        let name = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        Ok(answer
            .stdout
            .lines()
            .filter(running)
            .filter_map(name)
            .collect())
    }

    /// Describes a boot whose first process has ended: a failed step of the stage is an error of the rehearsal.
    fn describe_end(&self, was_booted: bool) -> Result<RehearsedBoot> {
        let result = query_result(self.runner)?;
        if result == "oom-kill" {
            bail!(
                "the rehearsal needs more than {} MiB of memory; it has no result",
                MEMORY >> 20
            );
        }
        self.console.borrow_mut().read_output();
        let console = self.console.borrow().text();
        match console.split_once("error: ") {
            Some((_, said)) if !was_booted => bail!("{}", said.replace('\r', "").trim()),
            _ => Ok(RehearsedBoot::without_units(
                RehearsalEnd::Ended,
                read_complaints(&console),
            )),
        }
    }

    fn gather_facts(&self, pid: Option<u32>, end: RehearsalEnd) -> Result<RehearsedBoot> {
        self.console.borrow_mut().read_output();
        let mut complaints = read_complaints(&self.console.borrow().text());
        let Some(pid) = pid else {
            return Ok(RehearsedBoot::without_units(end, complaints));
        };
        let times = self.run_inside(
            pid,
            &[
                "systemctl",
                "show",
                "--property=UserspaceTimestampMonotonic,FinishTimestampMonotonic",
            ],
        )?;
        let time = |name: &str| {
            let mut lines = times.stdout.lines().filter_map(|line| line.split_once('='));
            let value = lines.find(|(key, _)| *key == name).map(|(_, value)| value);
            value
                .and_then(|value| value.parse::<u64>().ok())
                .filter(|time| *time > 0)
        };
        let begun = time("UserspaceTimestampMonotonic").unwrap_or_default();
        let shown = self.run_inside(pid, &["systemctl", "show", PROPERTIES, "*"])?;
        let units = parse_units(&shown.stdout, begun);
        if units.is_empty() {
            bail!(
                "the systemd of the rehearsal lists no units: {}",
                shown.stderr.trim()
            );
        }
        complaints.extend(self.read_refused_lines(pid)?);
        let (refused_files, runtime) = read_service_files(pid)?;
        let mut missing = self.find_missing(pid, &units)?;
        if let Some(program) = runtime
            && self.is_missing(pid, &program)?
        {
            missing.insert((program, "crio.service".to_owned()));
        }
        Ok(RehearsedBoot {
            refused_files,
            logs: self.read_logs(pid, &units)?,
            probes: self.run_probes(pid)?,
            missing,
            is_full: is_full(pid)?,
            duration: time("FinishTimestampMonotonic").map(|end| end.saturating_sub(begun)),
            end,
            units,
            complaints,
        })
    }

    fn read_refused_lines(&self, pid: u32) -> Result<Vec<String>> {
        let [tmpfiles, sysusers] = LENIENT;
        let words = [
            "journalctl",
            "--no-pager",
            "--output=cat",
            tmpfiles,
            sysusers,
        ];
        let journal = self.run_inside(pid, &words)?;
        Ok(read_file_faults(&journal.stdout).collect())
    }

    fn read_logs(
        &self,
        pid: u32,
        units: &BTreeMap<String, UnitFacts>,
    ) -> Result<BTreeMap<String, Vec<String>>> {
        let failed = units.iter().filter(|(_, unit)| unit.has_failed());
        let mut logs = BTreeMap::new();
        for (name, _) in failed.take(LOGS) {
            let words = [
                "journalctl",
                "--no-pager",
                "--output=cat",
                "--lines",
                LINES,
                "--unit",
                name,
            ];
            let answer = self.run_inside(pid, &words)?;
            let lines = answer
                .stdout
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty());
            // A service that is restarted says the same again.
            let mut seen = BTreeSet::new();
            let lines = lines.filter(|line| seen.insert(*line));
            logs.insert(name.clone(), lines.map(str::to_owned).collect());
        }
        Ok(logs)
    }

    fn run_probes(&self, pid: u32) -> Result<Vec<ProbeFacts>> {
        let mut facts = Vec::new();
        for (id, words) in PROBES {
            let answer = self.run_inside(pid, words);
            let failed = match answer {
                Ok(answer) if answer.status == Some(0) => None,
                Ok(answer) if answer.status == Some(NO_PROGRAM) => continue,
                Ok(answer) => Some(last_lines(&answer)),
                Err(error @ CommandError::TimedOut(..)) => Some(error.to_string()),
                Err(error) => return Err(error.into()),
            };
            facts.push(ProbeFacts { id, failed });
        }
        Ok(facts)
    }

    /// Looks for the programs of the services that were started in name only.
    fn find_missing(
        &self,
        pid: u32,
        units: &BTreeMap<String, UnitFacts>,
    ) -> Result<BTreeSet<(String, String)>> {
        let mut missing = BTreeSet::new();
        let is_loaded = |name: &&&str| units.get(**name).is_some_and(|unit| unit.load == "loaded");
        for name in STAND_INS.iter().filter(is_loaded) {
            let files = self.run_inside(pid, &["systemctl", "cat", name])?;
            for program in started_programs(&files.stdout) {
                if self.is_missing(pid, &program)? {
                    missing.insert((program, (*name).to_owned()));
                }
            }
        }
        Ok(missing)
    }

    fn is_missing(&self, pid: u32, program: &str) -> Result<bool> {
        let found = self.run_inside(pid, &["test", "-x", program])?;
        Ok(found.status == Some(1))
    }

    /// Ends the boot, and removes its files. What remains is logged: systemd ends the unit at its time limit.
    fn end_boot(self) {
        if let Err(error) = stop_rehearsal(self.runner) {
            log::warn!("ending the rehearsal: {error}");
        }
        remove_files();
    }
}

/// Returns true if nothing more can be written to the private root.
fn is_full(pid: u32) -> Result<bool> {
    let free = running::free_bytes(format!("/proc/{pid}/root"));
    let free = free.context("asking for the space of the rehearsal")?;
    Ok(free < FULL)
}

/// Reads the files of services that do not really run: those that the service would refuse, and the program of the default runtime.
fn read_service_files(pid: u32) -> Result<(Vec<BrokenConfig>, Option<String>)> {
    let root = Root::open(Path::new(&format!("/proc/{pid}/root")));
    let read = root.and_then(|root| {
        let refused = read_service_configs(&root, None)?;
        Ok((refused, CrioSettings::read_files(&root)?))
    });
    let (mut refused, crio) = read.context("reading the configuration of services")?;
    refused.extend(crio.broken);
    Ok((refused, crio.runtime))
}

fn remove_files() {
    if let Err(error) = runtime::remove_path(REHEARSAL) {
        log::warn!("removing {REHEARSAL}: {error}");
    }
}

/// Returns what a failed program said.
fn last_lines(answer: &CommandOutput) -> String {
    let said = [&answer.stderr, &answer.stdout].map(|text| text.trim());
    let said = said.into_iter().find(|said| !said.is_empty());
    said.unwrap_or("it failed without a message").to_owned()
}

/// The terminal of the boot, read without blocking.
struct Console {
    master: std::fs::File,
    bytes: Vec<u8>,
}

impl Console {
    fn new(master: std::fs::File) -> Result<Self> {
        fcntl(master.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))
            .context("reading the terminal")?;
        Ok(Self {
            master,
            bytes: Vec::new(),
        })
    }

    /// Reads what is there. The oldest half is dropped when there is too much.
    fn read_output(&mut self) {
        let mut piece = [0; 16 << 10];
        // No data, or the other end is closed; both are the end for now.
        while let Ok(count @ 1..) = self.master.read(&mut piece) {
            self.bytes
                .extend_from_slice(piece.get(..count).unwrap_or_default());
            if self.bytes.len() > CONSOLE {
                self.bytes.drain(..CONSOLE / 2);
            }
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}
