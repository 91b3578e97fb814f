//! The evidence for the checks shared with `preflight`: the next operating system, and the node as the checks of
//! [`crate::judge::crossing`] see it.

use crate::judge::crossing::Target;
use crate::node::platform::Platform;

/// The system that the next boot enters, and the node.
#[derive(Debug, Clone)]
pub struct CrossingEvidence {
    /// The files of the next system.
    pub target: Target,
    /// The node.
    pub node: Box<Platform>,
    /// The relation of that system to the running one.
    pub moment: CrossingMoment,
}

/// The system that the next boot enters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CrossingMoment {
    /// Another deployment.
    Next {
        /// `CHECKSUM.SERIAL`.
        name: String,
        /// True if it is staged; otherwise it is the default of the boot menu.
        staged: bool,
    },
    /// The system of this root.
    Present,
}
