//! The registries controller: mirrors, blocked and allowed registries, and image policies become
//! `99-POOL-generated-registries`.

use super::{Cluster, Generation};

/// Adds the MachineConfigs, refusals and notes of this controller.
pub(super) fn sync(_cluster: &Cluster, _generation: &mut Generation) {}
