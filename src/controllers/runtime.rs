//! The ContainerRuntimeConfig controller: `99-POOL-generated-containerruntime`.

use super::{Cluster, Generation};

/// Adds the MachineConfigs, refusals and notes of this controller.
pub(super) fn sync(_cluster: &Cluster, _generation: &mut Generation) {}
