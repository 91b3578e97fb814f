//! `firstboot --complete`: does the work of the first-boot service on the booted node if the service itself cannot.
//!
//! Without a registry its units retry forever, and the kubelet waits for them (docs/develop/agreement.md: First boot). The pull
//! alone is harmless: it holds the boot until the reboot, or until there is nothing left to wait for. The service itself discards
//! the staged deployment on each attempt, so it is stopped before anything is staged.

use crate::cli::ui::Ui;
use anyhow::{Context, Error, Result, anyhow, bail};

use crate::base::error::ExitCode;
use crate::base::invocation::{ON_THE_NODE, mco_rescue};
use crate::base::paths;
use crate::change::session::{Unnamed, choose_config, open_root};
use crate::change::source::SourceError;
use crate::change::source::cache::{read_cache, whole_entries};
use crate::cli::apply::ApplyArgs;
use crate::cli::firstboot::FirstbootArgs;
use crate::cli::{Output, apply};
use crate::host::root::Root;
use crate::node::Records;
use crate::report;
use crate::run::first_boot_units::continue_boot;

/// Does the work, and lets the boot continue if no reboot is needed.
pub(super) fn run(ui: &Ui<'_>, args: &FirstbootArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    expect_booted_node(&root)?;
    let code = match apply::run(ui, &ApplyArgs::of_first_boot(args)) {
        Ok(code) => code,
        Err(error) => return Err(name_the_way_to_a_config(&root, error)?),
    };
    if args.dry_run {
        return Ok(code);
    }
    if code == ExitCode::Done && continue_boot(&root, ui.runner)? {
        say_that_boot_goes_on(ui);
    }
    Ok(code)
}

/// Refuses the disk of another node: only a booted system stages what the service would stage.
fn expect_booted_node(root: &Root) -> Result<()> {
    if root.is_live() {
        return Ok(());
    }
    let records = Records::read(root).context("reading the daemon's records")?;
    let chosen = choose_config(root, None, Unnamed::Wanted, &records);
    let apply = match chosen {
        Ok(_) => "apply",
        Err(_) => "apply CONFIG",
    };
    bail!(
        "only the booted node finishes its first boot, as nothing can be staged from here; files, units and users can be \
         written. Next: {}, then {ON_THE_NODE}mco-rescue firstboot --complete",
        mco_rescue(apply)
    )
}

/// Returns the error with the commands that help: `firstboot` accepts no file, so it fails if the node has no config.
fn name_the_way_to_a_config(root: &Root, error: Error) -> Result<Error> {
    let Some(SourceError::NoneRecorded(why)) = error.downcast_ref() else {
        return Ok(error);
    };
    let cached = read_cache(root)?;
    Ok(match whole_entries(&cached).next() {
        Some(newest) => anyhow!(
            "no config was given, and {why}. The newest config in the cache is {}. Next: {}",
            newest.name,
            mco_rescue(&format!("apply cached:{} --takeover", newest.name))
        ),
        None => anyhow!(
            "no config was given, and {why}. FILE is /{} of another node of the pool, or what `oc get mc NAME -o yaml` \
             prints where the API answers; HOST is a Machine Config Server. Next: {}, or {}",
            paths::MCS_CONTENT,
            mco_rescue("apply FILE --takeover"),
            mco_rescue("fetch --server HOST --pool POOL")
        ),
    })
}

fn say_that_boot_goes_on(ui: &Ui<'_>) {
    if ui.output == Output::Text {
        let said = "The units of the first boot are stopped; what waited for them starts now.\n";
        report::print_result(said.as_bytes());
    }
}
