//! Gathers the names and addresses of the host: those that it has, and those that its files give it.

use crate::command::{CommandRunner, ip};
use crate::doctor::Look;
use crate::doctor::evidence::DoctorEvidence;
use crate::node::{host_name, node_address, static_network};
use crate::root::Root;

impl DoctorEvidence {
    pub(super) fn of_host_network(&mut self, root: &Root, runner: &dyn CommandRunner) {
        self.host_names = host_name::read(root).into();
        let names = self.all_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.static_network = Look::Seen(static_network::read(root, &names));
        self.node_addresses = Look::Seen(node_address::read(root, &names));
        self.interfaces = match self.live {
            true => ip::query_addresses(runner).into(),
            false => Look::Unseen("interfaces have addresses only on the running node".to_owned()),
        };
    }

    /// Every name that this node may be called by in its files, the surest first.
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
