//! Gathers configuration that services would refuse: with this program's readers, and on the running node with the services' own
//! programs.

use anyhow::Result;

use crate::host::root::Root;
use crate::node::command::CommandRunner;
use crate::node::command::config_test::ConfigTest;
use crate::node::service_configs::{self, BrokenConfig, ConfiguredService};

/// Programs that test their configuration, each with its service and main file.
const TESTS: [(ConfigTest, ConfiguredService, &str); 3] = [
    (
        ConfigTest::Sshd,
        ConfiguredService::Ssh,
        "/etc/ssh/sshd_config",
    ),
    (ConfigTest::Visudo, ConfiguredService::Sudo, "/etc/sudoers"),
    (
        ConfigTest::Chronyd,
        ConfiguredService::Chrony,
        "/etc/chrony.conf",
    ),
];

/// Returns the faults in the files, and on a running node those that the programs report.
pub(super) fn find_broken(
    root: &Root,
    runner: &dyn CommandRunner,
    asks: bool,
) -> Result<Vec<BrokenConfig>> {
    let mut all = service_configs::read_service_configs(root, None)?;
    if asks {
        all.extend(TESTS.into_iter().filter_map(|(test, service, file)| {
            let words = test.find_fault(runner)?;
            Some(BrokenConfig {
                service,
                place: file.to_owned(),
                said: words.clone(),
                words,
                only_mode: false,
                of_value: false,
            })
        }));
    }
    Ok(all)
}
