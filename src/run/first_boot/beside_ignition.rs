//! Helps an Ignition whose server does not answer: after a while, an available config is written to the path at which Ignition
//! looks for the image's own config, and Ignition runs all its stages with it. This program does none of Ignition's work.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::available::{self, FoundConfigs};
use crate::change::capsule::opened::CapsuleFacts;
use crate::change::source::{self, ConfigMedium, Http, ReadConfig, ReferenceNetwork};
use crate::config::document::{self, pointer};
use crate::diagnose::first_boot::{self, AvailableConfig, Parameters};
use crate::host::root::Root;
use crate::host::sys::runtime;
use crate::host::{net, running};
use crate::node::command::{CommandRunner, ignition, systemctl};
use crate::run::front::{Front, RunNews};

/// Ignition writes this file once it has its config (docs/develop/ignition.md: First boot).
const FETCHED: &str = "/run/ignition.json";
/// File with Ignition's platform.
const ENVIRONMENT: &str = "/run/ignition.env";
/// Places of pointer configs without the network, in Ignition's order.
const POINTERS: [&str; 2] = [
    runtime::IGNITION_CONFIG,
    "/sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw",
];
/// The unit that fetches the config.
const FETCH: &str = "ignition-fetch.service";
/// Pause between two checks whether Ignition has its config.
const LOOK: Duration = Duration::from_millis(500);
/// Pause between two searches for a medium, each with a message, after the timeout.
const AGAIN: Duration = Duration::from_secs(30);

/// Waits and gives Ignition a config after the timeout.
pub fn wait_beside_ignition(parameters: &Parameters, front: &dyn Front) {
    let started = Instant::now();
    let mut next = started + parameters.timeout;
    while !running::exists(FETCHED) {
        thread::sleep(LOOK);
        if Instant::now() < next {
            continue;
        }
        let pointer = pointer_config();
        let cause = why_silent(pointer.as_deref());
        match give_config(parameters, front.runner(), pointer.as_deref()) {
            Ok(Some(name)) => {
                let why = cause.unwrap_or_else(|| "its fetch did not end in time".to_owned());
                front.tell(RunNews::IgnitionGiven {
                    config: &name,
                    why: &why,
                });
                return;
            }
            Ok(None) => tell_waiting(
                front,
                cause,
                started,
                "no config is available. Plug in a medium labelled MCO-RESCUE; it is looked for every 30 s",
            ),
            Err(error) => tell_waiting(
                front,
                Some(format!("{error:#}")),
                started,
                "Ignition keeps asking. Boot with mco_rescue=shell to look",
            ),
        }
        next = Instant::now() + AGAIN;
    }
}

fn tell_waiting(front: &dyn Front, cause: Option<String>, started: Instant, next: &str) {
    let cause =
        cause.unwrap_or_else(|| "the server answers us, but Ignition has nothing yet".to_owned());
    front.tell(RunNews::IgnitionWaits {
        cause: &cause,
        seconds: started.elapsed().as_secs(),
        next,
    });
}

fn pointer_config() -> Option<String> {
    let read = |path: &&str| source::read_named(path).ok();
    let bytes = POINTERS.iter().find_map(read)?;
    String::from_utf8(bytes).ok()
}

/// Returns the cause, found by one request of this program, which is clearer than Ignition's log; `None` if the server answers.
fn why_silent(pointer: Option<&str>) -> Option<String> {
    let pointer = pointer?;
    let url = pointer::server_addresses(pointer).into_iter().next()?;
    let root = Root::open(Path::new("/")).ok()?;
    let mut network = ReferenceNetwork::default();
    for bundle in pointer::trusted_authorities(pointer) {
        let bytes = document::data_url(&bundle).ok()?;
        network.authorities.push(bytes.into());
    }
    let mut settings = Http::new(&root).fetch_settings(&network).ok()?;
    settings.header_timeout = Duration::from_secs(10);
    settings.total_timeout = Some(Duration::from_secs(20));
    let request = net::FetchRequest {
        retry: false,
        ..net::FetchRequest::new(&url, 16 << 20)
    };
    let answer = net::fetch_url(&settings, &request, &mut source::show_progress());
    answer.err().map(|error| error.to_string())
}

/// Gives Ignition the only available config; returns `None` if there is none.
fn give_config(
    parameters: &Parameters,
    runner: &dyn CommandRunner,
    pointer: Option<&str>,
) -> Result<Option<String>> {
    let pool = pointer.and_then(|text| pointer::server_addresses(text).into_iter().next());
    let pool = pool.as_deref().and_then(pointer::requested_pool);
    // The root is not mounted yet: what is demanded is in the initramfs.
    let initramfs = Root::open(Path::new("/"))?;
    let (all, _medium) = all_available(&initramfs, parameters, runner)?;
    if all.is_empty() {
        return Ok(None);
    }
    let chosen = first_boot::find_only(&all, pool).map_err(anyhow::Error::msg)?;
    let (served, signed) = serve_config(&initramfs, chosen)?;
    let config = pointer::with_served(pointer, &served)
        .map_err(|finding| anyhow::anyhow!("{}: {}", finding.path, finding.message))?;
    let before = running::exists(runtime::IGNITION_CONFIG);
    let before = before.then(|| source::read_named(runtime::IGNITION_CONFIG));
    let before = before.transpose()?;
    runtime::write_ignition_config(Some(config.as_bytes()))
        .with_context(|| format!("writing {}", runtime::IGNITION_CONFIG))?;
    if let Err(error) = make_ignition_read(runner) {
        // The unit that is still fetching must not find the config later.
        runtime::write_ignition_config(before.as_deref())
            .with_context(|| format!("putting {} back", runtime::IGNITION_CONFIG))?;
        return Err(error.context(format!("giving Ignition {}", chosen.name)));
    }
    if let Some(signed) = &signed {
        runtime::write_json(runtime::GIVEN_CAPSULE, signed).context("keeping who signed it")?;
    }
    runtime::write_runtime(runtime::GIVEN, served.as_bytes()).context("keeping what was given")?;
    end_fetch(runner)?;
    Ok(Some(format!("{} ({})", chosen.name, chosen.place)))
}

/// Returns the available configs: named, in the initramfs, or on a medium. The root is not mounted yet.
fn all_available(
    initramfs: &Root,
    parameters: &Parameters,
    runner: &dyn CommandRunner,
) -> Result<(Vec<AvailableConfig>, Option<ConfigMedium>)> {
    let named = parameters.config.as_deref();
    let mut all = FoundConfigs::default();
    if let Some(named) = named.filter(|named| named.starts_with('/')) {
        all.add_file(Some(initramfs), named, "named on the kernel command line");
        return Ok((all.into_configs()?, None));
    }
    all.add_image(None);
    if all.is_empty() {
        let medium = available::find_medium(runner);
        if let Some(medium) = &medium {
            all.add_medium(initramfs, medium);
        }
        return Ok((all.into_configs()?, medium));
    }
    Ok((all.into_configs()?, None))
}

/// Returns the config as a server would serve it, and who signed it: a rendered config gets the files of a first boot.
fn serve_config(
    initramfs: &Root,
    chosen: &AvailableConfig,
) -> Result<(String, Option<CapsuleFacts>)> {
    let ReadConfig { bytes, signed } =
        available::read_by_policy(initramfs, &chosen.argument, chosen.origin)?;
    let config = document::parse_document(bytes.as_slice(), &chosen.argument)?;
    if !config.bare && config.additions.is_empty() {
        let made = document::serve_config(&config);
        let made = made.map_err(|finding| anyhow::anyhow!("{}: {}", finding.path, finding.message));
        return Ok((made?, signed));
    }
    let text = String::from_utf8(bytes).context("reading the config")?;
    if !text.trim_start().starts_with('{') {
        bail!("{}: Ignition reads JSON only", chosen.argument);
    }
    Ok((text, signed))
}

fn make_ignition_read(runner: &dyn CommandRunner) -> Result<()> {
    let environment = source::read_named(ENVIRONMENT).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let platform =
        ignition::platform_id(&environment).context("the platform of this boot is not known")?;
    let answer = runner.run(&ignition::fetch_offline(platform))?;
    if answer.status != Some(0) || !running::exists(FETCHED) {
        bail!(
            "Ignition rejects it: {}",
            ignition::failure_line(&answer.stderr)
        );
    }
    Ok(())
}

/// Ends the fetch by a signal that its unit counts as success, so that the next stages begin
/// (dracut/50mco-rescue/ignition-fetch.conf).
fn end_fetch(runner: &dyn CommandRunner) -> Result<()> {
    let pid = systemctl::main_pid(runner, FETCH)?;
    if let Some(pid) = pid {
        kill(Pid::from_raw(pid), Signal::SIGTERM).with_context(|| format!("ending {FETCH}"))?;
    }
    Ok(())
}
