//! Requests of configs, by the deployment that was made for them.

use serde::{Deserialize, Serialize};

use crate::base::kargs::Kargs;

/// Version of the file.
pub const VERSION: u32 = 1;

/// Requests of configs, by the deployment that was made for them; kept in `/var/lib/mco-rescue/asked.json`. The
/// record of the daemon may be of a later config by now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Asked {
    /// Version of the file.
    pub version: u32,
    /// The oldest first.
    pub deployments: Vec<AskedFor>,
}

/// The requests of the config of one deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedFor {
    /// `CHECKSUM.SERIAL`.
    pub deployment: String,
    /// Its whole command line: a name may come again with another one.
    pub command_line: Vec<String>,
    /// The kernel arguments that the config asked for.
    pub arguments: Vec<String>,
    /// The extensions that it asked for.
    pub extensions: Vec<String>,
}

impl AskedFor {
    /// Returns true if the boot loader makes this command line of it: it may quote anew.
    fn is_of(&self, command_line: &Kargs) -> bool {
        let own = Kargs::from_entries(&self.command_line);
        command_line.written_as(&own) == own
    }
}

/// Number of deployments that are stored; a node has three or four.
const DEPLOYMENTS_KEPT: usize = 8;

impl Asked {
    /// Finds the requests of the config of a deployment, if they are remembered. An image that was staged alone took its
    /// command line from another one, and so what was asked for.
    pub fn of(&self, deployment: &str, command_line: &Kargs) -> Option<&AskedFor> {
        let mut alike = self
            .deployments
            .iter()
            .rev()
            .filter(|one| one.is_of(command_line));
        let its = alike.clone().find(|one| one.deployment == deployment);
        its.or_else(|| alike.next())
    }

    /// Remembers what the config of a deployment asked for.
    pub fn remember(&mut self, one: AskedFor) {
        self.version = VERSION;
        self.deployments
            .retain(|other| other.deployment != one.deployment);
        self.deployments.push(one);
        let too_many = self.deployments.len().saturating_sub(DEPLOYMENTS_KEPT);
        self.deployments.drain(..too_many);
    }
}
