//! Documents: bytes in, values out. No I/O, and no default that depends on a node.

mod check;
mod desired;
mod encoding;
mod fields;
mod finding;
pub mod ignition;
mod json;
mod layer;
mod lines;
mod list;
mod machine_config;
pub mod merge;
pub mod pointer;
mod provenance;
mod reconcile;
mod resource;
mod served;
pub mod spec2;
mod text;
mod url;
pub mod yaml;

pub use desired::{
    BareFile, Desired, DesiredDirectory, DesiredFile, DesiredLink, Owner, Undecodable, Unsupported,
    undecodable,
};
pub use encoding::not_text;
pub use finding::{CUT_SHORT, DocumentError, Finding, Severity};
pub use ignition::Ignition;
pub use layer::{Layer, References};
pub use list::List;
pub use machine_config::{KernelType, MAX_JSON, MachineConfig, parse};
pub use provenance::{Provenance, brings_kubelet, pool_in};
pub use reconcile::{FORCE_FILE, Refusal, override_of, refusals, unconditional};
pub use resource::{Contents, ContentsError, Measured, data_url, gunzip_within, has_hash};
pub use served::{serve, with_first_boot_files};
pub use text::Text;
