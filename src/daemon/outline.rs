//! What an update takes, in outline: refused, drained, rebooted.

use crate::document::{MachineConfig, refusals};

/// An update in outline.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    /// Why the daemon refuses it, in its words.
    pub refusal: Option<String>,
    /// Whether it asks for a drain first; nothing where that depends on what is not known here.
    pub drain: Option<bool>,
    /// Whether it ends in a reboot; nothing likewise.
    pub reboot: Option<bool>,
}

/// What the daemon makes of an update. `forced`: the force file is there.
pub fn outline(old: &MachineConfig, new: &MachineConfig, forced: bool) -> Outline {
    if let Some(first) = refusals(old, new).into_iter().next() {
        return Outline {
            refusal: Some(first.sentence),
            ..Outline::default()
        };
    }
    let os = old.os_image_url != new.os_image_url
        || old.kernel_arguments != new.kernel_arguments
        || old.kernel_type != new.kernel_type
        || old.extensions != new.extensions;
    let files = old.ignition.storage.files != new.ignition.storage.files;
    let units = old.ignition.systemd != new.ignition.systemd;
    let reboot = if forced || os || units {
        Some(true)
    } else if files {
        None
    } else {
        Some(false)
    };
    Outline {
        refusal: None,
        drain: reboot,
        reboot,
    }
}
