//! The requests of configs, by the deployment that was made for each.

use serde::{Deserialize, Serialize};

use crate::base::kargs::Kargs;

/// Version of the file.
pub const VERSION: u32 = 1;

/// The requests of configs, by the deployment that was made for each, stored in `/var/lib/mco-rescue/asked.json`. The daemon's
/// record may already be of a later config.
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
    /// Its complete kernel command line: a name may be reused with another one.
    pub command_line: Vec<String>,
    /// The kernel arguments that the config requested.
    pub arguments: Vec<String>,
    /// The extensions that the config requested.
    pub extensions: Vec<String>,
}

impl AskedFor {
    /// Returns true if the boot loader produces this command line from it; quoting may differ.
    fn is_of(&self, command_line: &Kargs) -> bool {
        let own = Kargs::from_entries(&self.command_line);
        command_line.written_as(&own) == own
    }
}

/// Number of deployments that are stored; a node has three or four.
const DEPLOYMENTS_KEPT: usize = 8;

impl Asked {
    /// Finds the stored requests of a deployment's config. An image that was staged alone has the command line of another
    /// deployment, and therefore its requests.
    pub fn find_requests(&self, deployment: &str, command_line: &Kargs) -> Option<&AskedFor> {
        let mut alike = self
            .deployments
            .iter()
            .rev()
            .filter(|one| one.is_of(command_line));
        let its = alike.clone().find(|one| one.deployment == deployment);
        its.or_else(|| alike.next())
    }

    /// Stores the requests of a deployment's config.
    pub fn remember_requests(&mut self, one: AskedFor) {
        self.version = VERSION;
        self.deployments
            .retain(|other| other.deployment != one.deployment);
        self.deployments.push(one);
        let too_many = self.deployments.len().saturating_sub(DEPLOYMENTS_KEPT);
        self.deployments.drain(..too_many);
    }
}
