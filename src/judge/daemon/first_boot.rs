//! The daemon's first-boot service: what it would change to reach its config (docs/develop/agreement.md: First boot).

use crate::base::kargs::Kargs;
use crate::config::document::{KernelType, MachineConfig};

/// The work left for the first-boot service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstBootWork {
    /// Nothing to change: the service removes its file, and the boot goes on.
    Nothing,
    /// It changes these, and reboots.
    Changes(Vec<&'static str>),
    /// The operating system, or the file, could not be read.
    Unknown,
}

/// Returns the work needed to reach `config` on a node that runs `booted`, with the kernel arguments of its next boot. The
/// daemon compares the requested arguments in boot order; another order is a change.
pub fn find_first_boot_work(
    config: &MachineConfig,
    booted: &str,
    arguments: &Kargs,
) -> FirstBootWork {
    let requested = &config.kernel_arguments;
    let there = Kargs::first_boot(arguments, requested);
    let mut all = Vec::new();
    if config.os_image_url != booted {
        all.push("the OS image");
    }
    let is_there = |entry: &String| there.tokens().contains(entry);
    if there.tokens() != requested.as_slice() {
        all.push(if requested.iter().all(is_there) {
            "the order of the kernel arguments"
        } else {
            "kernel arguments"
        });
    }
    if config.kernel_type != KernelType::Default {
        all.push("the kernel");
    }
    if !config.extensions.is_empty() {
        all.push("the packages of extensions");
    }
    if all.is_empty() {
        FirstBootWork::Nothing
    } else {
        FirstBootWork::Changes(all)
    }
}
