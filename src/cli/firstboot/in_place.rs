//! `firstboot --complete`: does the work of the first-boot service on the booted node if the service itself cannot.
//!
//! Without a registry its units retry forever, and the kubelet waits for them (docs/develop/agreement.md: First boot). The pull
//! alone is harmless: it holds the boot until the reboot, or until there is nothing left to wait for. The service itself discards
//! the staged deployment on each attempt, so it is stopped before anything is staged.

use crate::cli::ui::Ui;
use anyhow::{Error, Result, anyhow};

use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::base::paths;
use crate::change::session::open_root;
use crate::change::source::SourceError;
use crate::cli::apply::ApplyArgs;
use crate::cli::firstboot::FirstbootArgs;
use crate::cli::{Output, apply};
use crate::report;
use crate::run::first_boot_units::continue_boot;

/// Does the work, and lets the boot continue if no reboot is needed.
pub(super) fn run(ui: &Ui<'_>, args: &FirstbootArgs) -> Result<ExitCode> {
    let applied = apply::run(ui, &ApplyArgs::of_first_boot(args));
    let code = applied.map_err(name_the_way_to_a_config)?;
    if args.dry_run {
        return Ok(code);
    }
    if code == ExitCode::Done && continue_boot(&open_root(&ui.root)?, ui.runner)? {
        say_that_boot_goes_on(ui);
    }
    Ok(code)
}

/// Returns the error with another command that helps: `firstboot` accepts no file, so it fails if the node has no config.
fn name_the_way_to_a_config(error: Error) -> Error {
    match error.downcast_ref() {
        Some(SourceError::NoneRecorded(why)) => anyhow!(
            "no config was given, and {why}. Copy /{} from another node of the pool, or write one where the API answers: \
             `oc get mc NAME -o yaml`. Then: `{}`. From the Machine Config Server: `{}`",
            paths::MCS_CONTENT,
            mco_rescue("apply FILE --takeover"),
            mco_rescue("fetch --server HOST --pool POOL")
        ),
        _ => error,
    }
}

fn say_that_boot_goes_on(ui: &Ui<'_>) {
    if ui.output == Output::Text {
        let said = "The units of the first boot are stopped; what waited for them starts now.\n";
        report::print_result(said.as_bytes());
    }
}
