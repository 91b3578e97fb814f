//! The node configuration: `97-POOL-generated-kubelet`.

use super::{Cluster, Generation};

/// Adds the MachineConfigs, refusals and notes of this controller.
pub(super) fn sync(_cluster: &Cluster, _generation: &mut Generation) {}
