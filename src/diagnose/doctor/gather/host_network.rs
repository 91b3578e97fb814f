//! Gathers the names and addresses of the host, current and configured ones, and facts about its start: the firmware's boot
//! entries, and waiting units.

use std::path::Path;

use crate::diagnose::doctor::Look;
use crate::diagnose::doctor::evidence::DoctorEvidence;
use crate::host::root::{Root, RootPath};
use crate::node::command::{CommandRunner, ip, systemctl};
use crate::node::kernel::read_uptime;
use crate::node::network_faults::{NetworkFaults, NodeKnowledge, find_network_faults};
use crate::node::platform::BlockStorage;
use crate::node::{
    boot_variables, boot_waits, host_name, node_address, static_network, virtual_addresses,
};

impl DoctorEvidence {
    pub(super) fn of_host_network(&mut self, root: &Root, runner: &dyn CommandRunner) {
        self.host_names = host_name::read_host_names(root).into();
        let names = self.all_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.static_network = Look::Seen(static_network::read_static_addresses(root, &names));
        self.network_faults = Look::Seen(self.network_faults(root, &names));
        self.node_addresses = Look::Seen(node_address::read_node_addresses(root, &names));
        self.interfaces = if self.live {
            ip::query_addresses(runner).into()
        } else {
            Look::Unseen("interfaces have addresses only on the running node".to_owned())
        };
    }

    fn network_faults(&self, root: &Root, hosts: &[&str]) -> NetworkFaults {
        let arguments = self.boot_arguments().ok();
        let made = arguments.map(|arguments| static_network::parse_arguments(arguments).made);
        let made: Vec<String> = made.into_iter().flatten().map(|(_, name)| name).collect();
        let interfaces = self.network.get();
        let interfaces = interfaces.and_then(|network| network.interfaces.as_deref());
        let known = NodeKnowledge {
            hosts,
            made: &made,
            interfaces,
        };
        find_network_faults(root, None, known)
    }

    pub(super) fn of_start(&mut self, root: &Root, runner: &dyn CommandRunner) {
        self.virtual_addresses = virtual_addresses::read_virtual_addresses(root).into();
        self.boot_waits = boot_waits::read_boot_waits(root).into();
        self.jobs = if self.live {
            systemctl::query_jobs(runner).into()
        } else {
            Look::Unseen("the node's systemd answers only on the node itself".to_owned())
        };
        self.uptime = self.live.then(read_uptime).flatten();
        let stamp = RootPath::fixed("boot/ignition.firstboot");
        self.first_boot_stamp = root.exists(&stamp).into();
        if self.live {
            self.of_firmware(root, &BlockStorage::observe(root), &["/sysroot", "/"])
        } else {
            self.of_rescue_system()
        }
    }

    /// Reads the firmware of the machine if its disk is mounted in a rescue system.
    fn of_rescue_system(&mut self) {
        let point = match self.root.trim_end_matches('/') {
            "" => "/",
            point => point,
        }
        .to_owned();
        let machine = Root::open(Path::new("/"));
        let machine = machine.map(|machine| (BlockStorage::observe(&machine), machine));
        match machine {
            Ok((storage, machine)) if storage.mounted_at(&point).is_some() => {
                self.of_firmware(&machine, &storage, &[&point]);
            }
            // A plain directory does not belong to this machine.
            _ => {
                let why = "only the machine that starts this disk has them".to_owned();
                self.boot_variables = Look::Unseen(why.clone());
                self.system_disk = Look::Unseen(why);
            }
        }
    }

    fn of_firmware(&mut self, machine: &Root, storage: &BlockStorage, points: &[&str]) {
        self.boot_variables = match boot_variables::read_boot_variables(machine) {
            Ok(variables) => Look::Seen(variables),
            Err(why) => Look::Unseen(why.to_string()),
        };
        self.system_disk = match boot_variables::find_disk(storage, points) {
            Ok(disk) => Look::Seen(disk),
            Err(why) => Look::Unseen(why.to_string()),
        };
    }

    /// Returns every name that the node's files may use for it, the most certain first.
    fn all_names(&self) -> Vec<String> {
        let names = self.host_names.get();
        let of_host = names.iter().flat_map(|names| {
            let given = names.given.as_ref().map(|(_, name)| name);
            [given, names.kernel.as_ref(), names.file.as_ref()]
        });
        let mut all: Vec<String> = self.node_name().map(str::to_owned).into_iter().collect();
        for name in of_host.flatten() {
            if !all.contains(name) {
                all.push(name.clone());
            }
        }
        all
    }
}
