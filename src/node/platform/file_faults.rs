//! Faults in the files of a node as of the next boot, judged by the rules of `doctor`.

use super::{NextConfig, Seen};
use crate::base::kargs::Kargs;
use crate::base::reason::Reason;
use crate::config::document::MachineConfig;
use crate::formats::systemd::needed;
use crate::host::root::Root;
use crate::node::fault_group::FaultGroup;
use crate::node::host_name::{self, HostNames};
use crate::node::kernel_modules::{self, KernelModules};
use crate::node::network::{self, Network};
use crate::node::network_faults::{
    NetworkFaultKind, NetworkFaults, NodeKnowledge, find_network_faults,
};
use crate::node::pull_files::{PullFaultKind, find_pull_faults};
use crate::node::selinux_state::{self, SelinuxFaultKind};
use crate::node::service_configs::{self, BrokenConfig};
use crate::node::unit_links::{NeededMask, find_needed_masks, read_unit_links};
use crate::node::{host, static_network};

/// Faults in one kind of file, and the files that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeighedFaults<K> {
    /// The faults by kind.
    pub groups: Vec<FaultGroup<K>>,
    /// Files that could not be read, with the reason.
    pub unseen: Vec<String>,
}

/// The faults.
#[derive(Debug, Clone)]
pub struct FileFaults {
    /// Network configuration that has no effect.
    pub network: WeighedFaults<NetworkFaultKind>,
    /// The cluster network needs IPv6 in the kernel.
    pub needs_ipv6: bool,
    /// Files for image pulls that are not read, or that make pulls fail.
    pub pulls: WeighedFaults<PullFaultKind>,
    /// Files that their service rejects.
    pub services: Seen<Vec<BrokenConfig>>,
    /// The kernel modules that the node needs, and the settings that turn them off.
    pub modules: Seen<KernelModules>,
    /// Faults of SELinux.
    pub selinux: Seen<Vec<FaultGroup<SelinuxFaultKind>>>,
    /// Masks of units that the node needs.
    pub masks: Seen<Vec<NeededMask>>,
    /// Units that the next config masks, each with the consequence.
    pub masked_by_config: Vec<(String, String)>,
    /// The kernel type in the config.
    pub kernel_type: &'static str,
    /// The architecture as in `uname -m`; `None` if unknown.
    pub machine: Option<&'static str>,
}

/// Facts about the node that are not in its files.
pub(super) struct Around<'a> {
    /// The config of the next boot: the new one, or else the recorded one.
    pub(super) config: Option<&'a MachineConfig>,
    /// The kernel arguments of the next boot.
    pub(super) arguments: &'a Seen<Kargs>,
}

impl FileFaults {
    /// Reads the files; with `next`, as they will be after a run of that config.
    pub(super) fn observe(root: &Root, next: Option<NextConfig<'_>>, around: &Around<'_>) -> Self {
        let config = around.config;
        let network = network::read_network(root);
        let faults = find_network(root, next, around.arguments, &network);
        let pulls = find_pull_faults(root, next);
        let selinux =
            selinux_state::read_selinux_state(root, next).map(|state| state.group_faults());
        let modules = kernel_modules::read_next(root, &network, config, next);
        Self {
            needs_ipv6: network::needs_ipv6(config, Some(&network)),
            network: WeighedFaults {
                groups: faults.group_faults(config),
                unseen: faults.unseen,
            },
            pulls: WeighedFaults {
                groups: pulls.group_faults(config),
                unseen: pulls.unseen,
            },
            services: service_configs::read_service_configs(root, next).map_err(Reason::from_error),
            modules: modules.map_err(Reason::from_error),
            selinux: selinux.map_err(Reason::from_error),
            masks: find_masks(root, next, config),
            masked_by_config: next.map(|next| masked_by(next.config)).unwrap_or_default(),
            kernel_type: config.map_or("default", |config| config.kernel_type.as_str()),
            machine: host::host_architecture(root, root.is_live()),
        }
    }
}

fn find_network(
    root: &Root,
    next: Option<NextConfig<'_>>,
    arguments: &Seen<Kargs>,
    network: &Network,
) -> NetworkFaults {
    let names = host_name::read_host_names(root);
    let current = names.as_ref().ok().and_then(HostNames::current_name);
    let hosts: Vec<&str> = current.map(|(_, name)| name).into_iter().collect();
    let made = arguments.as_ref().map(static_network::parse_arguments);
    let made = made.map(|found| found.made).into_iter().flatten();
    let made: Vec<String> = made.map(|(_, name)| name).collect();
    let known = NodeKnowledge {
        hosts: &hosts,
        made: &made,
        interfaces: network.interfaces.as_deref(),
    };
    let mut faults = find_network_faults(root, next, known);
    faults
        .unseen
        .extend(names.err().map(|error| error.to_string()));
    faults
}

/// Returns the masks that exist at the next boot. A run rewrites the files of its config.
fn find_masks(
    root: &Root,
    next: Option<NextConfig<'_>>,
    config: Option<&MachineConfig>,
) -> Seen<Vec<NeededMask>> {
    let links = read_unit_links(root).map_err(Reason::from_error)?;
    let mut masks = find_needed_masks(&links, config);
    let is_written = |mask: &NeededMask| next.is_some() && mask.of_config;
    masks.retain(|mask| !mask.is_runtime() && !is_written(mask));
    Ok(masks)
}

fn masked_by(config: &MachineConfig) -> Vec<(String, String)> {
    let units = config.ignition.systemd.units.iter();
    let masked = units.filter(|unit| unit.mask == Some(true));
    let found = masked.filter_map(|unit| {
        let message = needed::masked_by_config(&unit.name)?;
        Some((unit.name.clone(), message))
    });
    found.collect()
}
