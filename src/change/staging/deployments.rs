//! The deployments of the running node: queries, and changes in one transaction at a time.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::awaited::{Awaited, Leaving, OsRun, Ran, VERSION, Way};
use super::{quorum, state};
use crate::base::invocation::{mco_rescue, reboot_command};
use crate::base::kargs::Kargs;
use crate::base::time::current_time;
use crate::change::transaction;
use crate::change::transaction::journal::ConfigRef;
use crate::host::progress::{self, Work};
use crate::host::root::Root;
use crate::judge::drift::{self, OsMatch};
use crate::node::boot::{BootIdentity, is_soft_prepared};
use crate::node::command::rpm_ostree::arguments;
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::rpm_ostree::status::{Deployment, Deployments};
use crate::node::command::{
    CommandLine, CommandOutput, CommandRunner, bootc, journalctl, ostree, systemctl,
};
use crate::node::engine::{Engine, translate_for_engine};
use crate::node::system::{self, ask_rpm_ostree};
use crate::node::{Host, Records, System};

/// Time limit for the end of a cancelled transaction.
const CANCEL: Duration = Duration::from_secs(120);
/// The unit that finalizes the staged deployment when it stops.
const FINALIZE: &str = "ostree-finalize-staged.service";
/// Pause between two queries for the end of a transaction.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Runs a command that changes deployments. If the client is killed, the daemon continues the transaction, so that has to be
/// ended.
pub fn run_transaction(
    root: &Root,
    runner: &dyn CommandRunner,
    line: &CommandLine,
    ended: &dyn Fn() -> bool,
) -> Result<(), RpmOstreeError> {
    let begun = current_time();
    let cause = match runner.run_until(line, ended) {
        Ok(answer) => match RpmOstreeError::of_command(&with_log(runner, line, begun, answer)) {
            None => return Ok(()),
            Some(cause) => cause,
        },
        Err(error) => RpmOstreeError::of_error(&error),
    };
    if matches!(
        cause,
        RpmOstreeError::NoAnswer { .. } | RpmOstreeError::ClientKilled
    ) {
        if bootc::is_in_unit(line) {
            end_bootc(runner)
        } else {
            end_transaction(root, runner)
        }
    }
    Err(cause)
}

/// Adds the journal of a failed unit of this program to its output.
fn with_log(
    runner: &dyn CommandRunner,
    line: &CommandLine,
    begun: u64,
    answer: CommandOutput,
) -> CommandOutput {
    if !bootc::is_in_unit(line) || matches!(answer.status, None | Some(0)) {
        return answer;
    }
    let log = journalctl::errors_of_unit(runner, bootc::UNIT, begun);
    let log = log.unwrap_or_else(|error| format!("its output is not known: {error}"));
    let said = format!("{}\n{log}", answer.stderr);
    let stderr = match (said.trim(), answer.status) {
        ("", Some(status)) => format!("{} ended with status {status}", bootc::UNIT),
        (said, _) => said.to_owned(),
    };
    CommandOutput { stderr, ..answer }
}

/// Stops our unit, which continues without its client.
fn end_bootc(runner: &dyn CommandRunner) {
    if let Err(error) = systemctl::stop_units(runner, &[bootc::UNIT]) {
        log::warn!(
            "stopping {unit}: {error}. Next: systemctl stop {unit}",
            unit = bootc::UNIT
        );
    }
}

fn end_transaction(root: &Root, runner: &dyn CommandRunner) {
    if let Err(cause) = ask_rpm_ostree(runner, &arguments::cancel_transaction()) {
        log::warn!("cancelling the transaction: {cause}");
    }
    let waiting = Work::new("Waiting for rpm-ostree to end its transaction");
    let _phase = progress::begin_phase(waiting.with_deadline(CANCEL));
    let until = Instant::now() + CANCEL;
    while Instant::now() < until {
        if read_deployments(root, runner).is_ok_and(|all| all.transaction.is_none()) {
            return;
        }
        thread::sleep(ASK_AGAIN);
    }
    log::warn!(
        "a transaction of rpm-ostree still runs. Next: rpm-ostree status, then rpm-ostree cancel"
    );
}

/// Returns the current deployments.
pub fn read_deployments(
    root: &Root,
    runner: &dyn CommandRunner,
) -> Result<Deployments, RpmOstreeError> {
    Ok(system::read_deployments(root, runner)?.1)
}

/// Returns the kernel arguments of the next boot, without those that belong to a deployment.
///
/// # Errors
/// rpm-ostree gives no answer; or if it is missing, bootc does not, or a file cannot be read.
pub fn next_arguments(root: &Root, runner: &dyn CommandRunner) -> Result<Kargs, RpmOstreeError> {
    // If rpm-ostree is installed, one query is enough.
    match system::next_arguments(root, runner, Engine::RpmOstree, &Deployments::default()) {
        Err(RpmOstreeError::NotInstalled(_)) => {
            let (engine, all) = system::read_deployments(root, runner)?;
            system::next_arguments(root, runner, engine, &all)
        }
        other => other,
    }
}

/// Drops the staged deployment and nothing else.
///
/// # Errors
/// The program fails.
pub fn drop_staged(root: &Root, runner: &dyn CommandRunner) -> Result<(), RpmOstreeError> {
    let (engine, all) = system::read_deployments(root, runner)?;
    match drop_command(engine, &all) {
        Some(line) => ask_rpm_ostree(runner, &line).map(drop),
        None => Ok(()),
    }
}

/// Returns the command that drops the staged deployment; `None` if there is nothing to drop. rpm-ostree's clean-up removes
/// everything before the running deployment, so ostree is used if another one is queued; bootc has no command for it.
pub fn drop_command(engine: Engine, all: &Deployments) -> Option<CommandLine> {
    let staged = all
        .staged()
        .map(|staged| arguments::undeploy_index(staged.index));
    match engine {
        // Even if nothing is staged, there may be leftovers in the way.
        Engine::RpmOstree if all.queued().is_none() => Some(arguments::drop_pending()),
        Engine::RpmOstree | Engine::Bootc => staged,
    }
}

/// Makes the running deployment the next boot's again; a queued one is kept.
///
/// # Errors
/// The program fails.
pub fn keep_running(root: &Root, runner: &dyn CommandRunner) -> Result<(), RpmOstreeError> {
    let (engine, all) = system::read_deployments(root, runner)?;
    let Some(booted) = all.booted().map(Deployment::name) else {
        return Ok(());
    };
    enter_deployment(root, runner, engine, &all, &booted)
}

/// Makes a deployment that was queued before the next boot's again.
///
/// # Errors
/// The program fails.
pub fn queue_again(
    root: &Root,
    runner: &dyn CommandRunner,
    queued: &str,
) -> Result<(), RpmOstreeError> {
    let (engine, all) = system::read_deployments(root, runner)?;
    enter_deployment(root, runner, engine, &all, queued)
}

/// How a run that changed the operating system is reverted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WayBack {
    /// The node has not left the previous deployment: the staged one is dropped, and the files are restored now.
    StillHere,
    /// The next boot enters the previous deployment; the files are restored there.
    NextBoot,
}

/// Returns true if the next boot enters what a run of this program staged and still waits for, or the target of its rollback.
pub fn is_staged_by_us(root: &Root, runner: &dyn CommandRunner) -> Result<bool> {
    let Some(awaited) = state::read_awaited(root)?.filter(|_| root.is_live()) else {
        return Ok(false);
    };
    let all = read_deployments(root, runner).map_err(|cause| explain_cause(root, &cause))?;
    Ok(all
        .next_boot()
        .is_some_and(|first| awaited.was_made_for(first)))
}

/// Returns true if reverting this run also drops the staged deployment.
pub fn is_staged_by_run(root: &Root, runner: &dyn CommandRunner, run: &str) -> Result<bool> {
    let awaited = state::read_awaited(root)?;
    let its = awaited.is_some_and(|one| one.run.as_deref() == Some(run));
    Ok(its && is_staged_by_us(root, runner)?)
}

/// Clears the pending boot if the next boot enters the running deployment, as after every finished run that stages nothing.
///
/// The run is over by then, so an error is only logged.
pub fn settle_awaited(root: &Root, runner: &dyn CommandRunner) {
    settle_pins(root, runner, None);
}

/// Does the same after a run of files. The files of runs whose operating system never ran are below those of this run, so they
/// are reverted with it, because their system is no longer going to boot.
pub fn settle_after_run(root: &Root, runner: &dyn CommandRunner, run: &str) {
    settle_pins(root, runner, Some(run));
}

fn settle_pins(root: &Root, runner: &dyn CommandRunner, run: Option<&str>) {
    if let Err(error) = try_settle(root, runner, run) {
        log::warn!(
            "all is in place, but what is awaited cannot be settled: {error:#}. Next: {}",
            mco_rescue("status")
        );
    }
}

fn try_settle(root: &Root, runner: &dyn CommandRunner, run: Option<&str>) -> Result<()> {
    let Some(awaited) = state::read_awaited(root)?.filter(|_| root.is_live()) else {
        return Ok(());
    };
    match read_deployments(root, runner) {
        Ok(all) if all.next_boot().is_some_and(|next| next.booted) => {
            if let Some(run) = run {
                remember_earlier(root, runner, &awaited, run)?;
            }
            state::forget_awaited(root)
        }
        Ok(_) => Ok(()),
        Err(cause) => {
            log::warn!("{}", explain_cause(root, &cause));
            Ok(())
        }
    }
}

fn remember_earlier(
    root: &Root,
    runner: &dyn CommandRunner,
    awaited: &Awaited,
    run: &str,
) -> Result<()> {
    let history = state::summarise_runs(&transaction::read_history(root)?).into_iter();
    let before: Vec<Ran> = history.skip_while(|one| one.id == run).collect();
    let inherited = awaited.inherited_part(&state::read_booted(root, runner)?, &before);
    if inherited.earlier.is_empty() {
        return Ok(());
    }
    let one = OsRun {
        run: run.to_owned(),
        from: None,
        earlier: inherited.earlier,
    };
    state::store_os_run(root, one)
}

/// Describes how the running operating system differs from that of the recorded config.
///
/// # Errors
/// It is unknown: rpm-ostree gives no answer.
pub fn describe_half(root: &Root, runner: &dyn CommandRunner) -> Result<Option<String>> {
    let records = Records::read(root)?;
    let system = System::observe(root, &Host::observe(root)?, runner)?;
    match drift::match_os(&records, &system) {
        OsMatch::Recorded | OsMatch::NoneToCompare => Ok(None),
        OsMatch::Differs(words) => Ok(Some(words)),
        OsMatch::Unknown(why) => bail!(
            "the running system cannot be compared with the record: {why}. Next: {}",
            mco_rescue("complete")
        ),
    }
}

/// Returns the sentence with the next step, translated for this root's engine.
pub fn explain_cause(root: &Root, cause: &RpmOstreeError) -> anyhow::Error {
    anyhow::anyhow!(translate_for_engine(root, &cause.to_line()))
}

/// The deployment to return to no longer exists, so retrying is pointless.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct DeploymentMissing(String);

/// Makes the previous deployment the next boot's.
///
/// If the node is already running it, the record of the pending boot is kept: until the files are restored, a boot has to
/// restore them.
pub fn go_back(
    root: &Root,
    runner: &dyn CommandRunner,
    leaving: &Leaving,
    config: &str,
) -> Result<WayBack> {
    let (engine, mut all) =
        system::read_deployments(root, runner).map_err(|cause| explain_cause(root, &cause))?;
    let booted = all.require_booted()?.name();
    if booted != leaving.to && all.find_named(&leaving.to).is_none() {
        let missing = format!(
            "the deployment that ran before {config} is gone, so its operating system cannot be restored automatically. \
             Stage its image: {}; or revert only the files: {}",
            mco_rescue("pivot IMAGE"),
            mco_rescue("rollback --files-only")
        );
        return Err(DeploymentMissing(missing).into());
    }
    let is_back = booted == leaving.to;
    if !is_back {
        let boot = state::read_booted(root, runner)?.boot;
        state::store_awaited(root, &awaited_back(leaving, config, booted, boot))?;
    }
    let failed = |error: anyhow::Error| match state::forget_awaited(root) {
        Ok(()) if !is_back => error.context("making the previous deployment the next one"),
        _ => error,
    };
    if all.staged().is_some() || is_back && all.queued().is_none() {
        drop_staged(root, runner).map_err(|cause| failed(explain_cause(root, &cause)))?;
        all =
            read_deployments(root, runner).map_err(|cause| failed(explain_cause(root, &cause)))?;
    }
    enter_deployment(root, runner, engine, &all, &leaving.to)
        .map_err(|cause| failed(explain_cause(root, &cause)))?;
    Ok(if is_back {
        WayBack::StillHere
    } else {
        WayBack::NextBoot
    })
}

/// Finalizes the staged deployment now instead of at shutdown: its boot entry then exists, and a failure is noticed before the
/// reboot.
///
/// # Errors
/// ostree cannot write it.
pub fn finalize_staged(root: &Root, runner: &dyn CommandRunner) -> Result<()> {
    let all = read_deployments(root, runner).map_err(|cause| explain_cause(root, &cause))?;
    if all.staged().is_none() {
        return Ok(());
    }
    systemctl::stop_units(runner, &[FINALIZE]).context("finalizing the staged deployment")?;
    let all = read_deployments(root, runner).map_err(|cause| explain_cause(root, &cause))?;
    match all.staged() {
        Some(_) => {
            bail!("the staged deployment was not finalized. Next: journalctl -b -u {FINALIZE}")
        }
        None if all.next_boot().is_some_and(|next| next.booted) => {
            bail!("the staged deployment is gone. Next: journalctl -b -u {FINALIZE}")
        }
        None => Ok(()),
    }
}

/// Makes a deployment the next boot's with ostree alone, if no daemon answers.
///
/// # Errors
/// No boot entry leads there, or ostree fails.
pub fn enter_without_daemon(runner: &dyn CommandRunner, name: &str) -> Result<()> {
    let answer = runner.run(&ostree::list_deployments())?;
    let names = ostree::names_in_order(&answer.stdout);
    if answer.status != Some(0) || names.is_empty() {
        bail!("ostree admin status: {}", answer.stderr.trim());
    }
    let index = names.iter().position(|other| other == name);
    let Some(index) = index else {
        return Err(DeploymentMissing(format!("ostree knows no deployment {name}")).into());
    };
    let answer = runner.run(&arguments::set_default(index))?;
    if answer.status != Some(0) {
        bail!("ostree admin set-default: {}", answer.stderr.trim());
    }
    Ok(())
}

/// Makes a written deployment the next boot's.
fn enter_deployment(
    root: &Root,
    runner: &dyn CommandRunner,
    engine: Engine,
    all: &Deployments,
    name: &str,
) -> Result<(), RpmOstreeError> {
    let Some(wanted) = all.find_named(name).filter(|wanted| wanted.index != 0) else {
        return Ok(());
    };
    // If another deployment is already first, rpm-ostree's rollback makes the running one first again.
    let runs_first = all.booted().is_some_and(|booted| booted.index == 0);
    let rollback = all.rollback().filter(|_| runs_first);
    let is_rollback = rollback.is_some_and(|next| next.index == wanted.index);
    let line = match engine {
        Engine::RpmOstree if is_rollback => arguments::swap_rollback(),
        // bootc's own rollback refuses a deployment with layered packages, and fails if its storage is missing.
        Engine::RpmOstree | Engine::Bootc => arguments::set_default(wanted.index),
    };
    run_transaction(root, runner, &line, &|| false)
}

fn awaited_back(leaving: &Leaving, config: &str, booted: String, boot: BootIdentity) -> Awaited {
    let mut runs = leaving.runs.iter();
    let run = runs.next().cloned();
    Awaited {
        version: VERSION,
        way: Way::Back,
        config: ConfigRef {
            name: config.to_owned(),
            digest: String::new(),
            origin: "rollback".to_owned(),
        },
        run,
        files_after: None,
        head: None,
        earlier: runs.rev().cloned().collect(),
        boot,
        from: booted,
        way_back: None,
        staged: Some(leaving.to.clone()),
        image: None,
        kernel_arguments: Vec::new(),
        gone_arguments: Vec::new(),
        since: current_time(),
        failed: None,
        half: false,
    }
}

/// Reboots as requested, unless etcd would lose its quorum now.
pub fn reboot_node(root: &Root, runner: &dyn CommandRunner, ignore_quorum: bool) -> Result<()> {
    quorum::allow_reboot(root, ignore_quorum)?;
    let answer = runner.run(&systemctl::reboot_node(is_soft_prepared(root)))?;
    if answer.status != Some(0) {
        bail!(
            "rebooting: {}. Next: {}",
            answer.stderr.trim(),
            reboot_command()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::node::command::CommandError;

    /// STUB of the host: rpm-ostree's status documents in order, and an error for one command.
    struct Scripted {
        status: RefCell<Vec<&'static str>>,
        fault: Option<(&'static str, CommandError)>,
        calls: RefCell<Vec<String>>,
    }

    impl Scripted {
        fn new(status: &[&'static str]) -> Self {
            Self {
                status: RefCell::new(status.iter().rev().copied().collect()),
                fault: None,
                calls: RefCell::default(),
            }
        }

        /// Returns the commands without the queries.
        fn changes(&self) -> Vec<String> {
            let calls = self.calls.borrow();
            let changes = calls.iter().filter(|call| !call.contains("status"));
            changes.cloned().collect()
        }
    }

    impl CommandRunner for Scripted {
        fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
            let call = format!("{} {}", command.program, command.args.join(" "));
            self.calls.borrow_mut().push(call.clone());
            if let Some((begin, error)) = &self.fault
                && call.starts_with(begin)
            {
                return Err(error.clone());
            }
            let answer = if call.contains("status") {
                self.status.borrow_mut().pop().unwrap_or_default()
            } else {
                ""
            };
            Ok(CommandOutput {
                status: Some(0),
                stdout: answer.to_owned(),
                stderr: String::new(),
            })
        }
    }

    /// An empty root.
    fn slash() -> Root {
        Root::open(&std::env::temp_dir()).unwrap()
    }

    const IDLE: &str = include_str!("../../../tests/fixtures/rpm-ostree/idle.json");
    const BUSY: &str = include_str!("../../../tests/fixtures/rpm-ostree/busy.json");
    const ROLLED_BACK: &str = include_str!("../../../tests/fixtures/rpm-ostree/rolled-back.json");

    #[test]
    fn a_client_that_gives_no_answer_leaves_no_transaction_behind() {
        let mut host = Scripted::new(&[BUSY, IDLE]);
        let late = CommandError::TimedOut("rpm-ostree".to_owned(), 1);
        host.fault = Some(("rpm-ostree rollback", late));
        let ended = run_transaction(&slash(), &host, &arguments::swap_rollback(), &|| false);
        assert!(
            matches!(ended, Err(RpmOstreeError::NoAnswer { .. })),
            "{ended:?}"
        );
        assert_eq!(
            *host.calls.borrow(),
            [
                "rpm-ostree rollback",
                "rpm-ostree cancel",
                "rpm-ostree status --json",
                "rpm-ostree status --json"
            ],
            "the transaction is cancelled, and its end is awaited"
        );
    }

    #[test]
    fn a_missing_program_cancels_nothing() {
        let mut host = Scripted::new(&[]);
        host.fault = Some(("rpm-ostree", CommandError::Missing("rpm-ostree".to_owned())));
        assert!(run_transaction(&slash(), &host, &arguments::swap_rollback(), &|| false).is_err());
        assert_eq!(host.changes(), ["rpm-ostree rollback"]);
    }

    #[test]
    fn a_deployment_becomes_the_next_one_by_the_command_that_fits_its_place() {
        for (status, index, wanted) in [
            (IDLE, 0, &[][..]),
            (IDLE, 1, &["rpm-ostree rollback"]),
            // The running deployment is not first: `rpm-ostree rollback` would not choose by index.
            (ROLLED_BACK, 0, &[]),
            (ROLLED_BACK, 1, &["ostree admin set-default 1"]),
        ] {
            let host = Scripted::new(&[status]);
            let all = read_deployments(&slash(), &host).unwrap();
            let name = all.all[index].name();
            enter_deployment(&slash(), &host, Engine::RpmOstree, &all, &name).unwrap();
            assert_eq!(host.changes(), wanted, "{name}");
        }
    }
}
