//! What `apply` puts on a node: files, units, accounts and labels, and what it refuses.

mod actions;
mod bare;
mod boot;
mod both_names;
mod catalogue;
mod enablement;
mod full_disk;
mod guards;
mod ignition;
mod labels;
mod large;
mod lock;
mod machine;
mod meant;
mod meanwhile;
mod nodes;
mod originals;
mod passwd;
mod processors;
mod real_configs;
mod refused;
mod right_config;
mod semantics;
mod units;
mod values;
mod watchers;
