//! What differs in the operating system: its image and its kernel arguments.

use crate::base::go_quote::quote_go;
use crate::base::kargs::Kargs;
use crate::base::secrets::redacted_arguments;
use crate::config::document::MachineConfig;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::os_release::Class;
use crate::node::system::SystemFacts;
use crate::node::{NodeState, Records, System};

use super::{Drift, DriftKind};

/// Returns the differences of the operating system, if it was queried: the daemon checks these first.
pub fn os_drifts(config: &MachineConfig, layered: Option<&str>, node: &NodeState) -> Vec<Drift> {
    let Some(facts) = node.system.facts() else {
        return Vec::new();
    };
    if facts.class == Class::Other {
        return Vec::new();
    }
    let mut all = Vec::new();
    let runs = facts.deployments.booted().map(|booted| booted.image());
    all.extend(image_drift(config, layered, &runs.unwrap_or_default()));
    all.extend(missing_arguments(config, Some(&facts.arguments)));
    all.extend(disordered_arguments(config, &facts.arguments));
    all.extend(left_arguments(config, facts));
    all
}

/// The operating system of a disk's deployment, as far as its files tell.
#[derive(Debug, Clone, Copy)]
pub struct DiskOs<'a> {
    /// The image in the origin file; `None` if the file or the config names none.
    pub image: Option<&'a str>,
    /// The kernel arguments of the default boot entry; `None` if no entry is visible.
    pub arguments: Option<&'a Kargs>,
}

impl<'a> DiskOs<'a> {
    /// Returns what is known of a disk; `None` for a directory without a deployment, and for the root of a running system or an
    /// initramfs.
    pub fn find(config: &MachineConfig, node: &'a NodeState) -> Option<Self> {
        let host = &node.host;
        let is_elsewhere = node.system == System::NotAsked && !host.live && !host.in_initramfs;
        let image = node.os.image.as_deref().filter(|image| !image.is_empty());
        (is_elsewhere && host.deployment.is_some()).then(|| Self {
            image: image.filter(|_| !config.os_image_url.is_empty()),
            arguments: node.os.entry_arguments.as_ref(),
        })
    }
}

/// Returns the differences between a disk's deployment and the config, with `layered` in place of its image if there is one.
pub fn disk_drifts(config: &MachineConfig, layered: Option<&str>, node: &NodeState) -> Vec<Drift> {
    let Some(disk) = DiskOs::find(config, node) else {
        return Vec::new();
    };
    let image = disk.image;
    let image = image.and_then(|image| disk_image_drift(config, layered, image));
    let arguments = disk.arguments;
    let arguments = arguments.and_then(|present| absent_arguments(config, present));
    image.into_iter().chain(arguments).collect()
}

/// Returns the difference between the image of a disk's deployment and `layered`, or else the config's image.
pub fn disk_image_drift(
    config: &MachineConfig,
    layered: Option<&str>,
    image: &str,
) -> Option<Drift> {
    let wanted = wanted_image(config, layered);
    image_drift(config, layered, image).map(|drift| Drift {
        detail: format!("{wanted:?} is wanted, this disk boots {image:?}"),
        ..drift
    })
}

/// Returns `layered`, or else the config's image.
pub fn wanted_image<'a>(config: &'a MachineConfig, layered: Option<&'a str>) -> &'a str {
    let layered = layered.filter(|image| !image.is_empty());
    layered.unwrap_or(&config.os_image_url)
}

/// Returns the difference between the running image and `layered`, or else the config's image.
pub fn image_drift(config: &MachineConfig, layered: Option<&str>, runs: &str) -> Option<Drift> {
    let wanted = wanted_image(config, layered);
    (runs != wanted).then(|| Drift {
        kind: DriftKind::Image,
        subject: "OS image".to_owned(),
        detail: format!("{wanted:?} is wanted, {runs:?} runs"),
        daemon: Some(format!(
            "expected target osImageURL {}, have {}",
            quote_go(wanted),
            quote_go(runs)
        )),
    })
}

/// Returns the kernel arguments that the daemon misses. Of `present`, it sees only those without blanks, because it splits what
/// it reads at every blank (docs/develop/agreement.md: Validation). If `present` is `None`, returns those that it would miss in any
/// case.
pub fn missing_arguments(config: &MachineConfig, present: Option<&Kargs>) -> Option<Drift> {
    let asked_for = Kargs::from_entries(&config.kernel_arguments);
    let never = asked_for.never_found();
    let absent = present.map(|present| asked_for.missing_from(present));
    let absent = absent.unwrap_or_default();
    let tokens = asked_for.tokens().iter().map(String::as_str);
    let is_missing = |token: &&str| never.contains(token) || absent.contains(token);
    let list = tokens.filter(is_missing).collect::<Vec<_>>().join(" ");
    let mut detail = Vec::new();
    if !absent.is_empty() {
        detail.push(format!("{} missing", absent.join(" ")));
    }
    let unseen: Vec<&str> = never
        .into_iter()
        .filter(|one| !absent.contains(one))
        .collect();
    if !unseen.is_empty() {
        let all = unseen.join(" ");
        detail.push(format!(
            "{all}: the daemon splits it at its blank, and never finds it"
        ));
    }
    (!list.is_empty()).then(|| Drift {
        kind: DriftKind::Arguments,
        subject: "kernel arguments".to_owned(),
        detail: redacted_arguments(&detail.join("; ")),
        daemon: Some(format!(
            "missing expected kernel arguments: [{}]",
            redacted_arguments(&list)
        )),
    })
}

/// Returns the kernel arguments that are not `present`, in the quoting of the config. The daemon may miss more.
pub fn absent_arguments(config: &MachineConfig, present: &Kargs) -> Option<Drift> {
    let asked_for = Kargs::from_entries(&config.kernel_arguments);
    let present = present.written_as(&asked_for);
    let is_absent = !asked_for.missing_from(&present).is_empty();
    is_absent
        .then(|| missing_arguments(config, Some(&present)))
        .flatten()
}

/// Returns kernel arguments that are all `present`, but not in the order that gives them their meaning. The daemon ignores
/// order.
fn disordered_arguments(config: &MachineConfig, present: &Kargs) -> Option<Drift> {
    let asked_for = Kargs::from_entries(&config.kernel_arguments);
    let list = asked_for.out_of_order(present).join(" ");
    (!list.is_empty()).then(|| Drift {
        kind: DriftKind::Arguments,
        subject: "kernel arguments".to_owned(),
        detail: format!(
            "{}: present, but in another order, which matters here",
            redacted_arguments(&list)
        ),
        daemon: None,
    })
}

/// The running operating system compared with the recorded config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OsMatch {
    /// It is the recorded one.
    Recorded,
    /// It differs, in words.
    Differs(String),
    /// There is nothing to compare: no usable record, or a system whose images the daemon does not stage.
    NoneToCompare,
    /// Unknown, for this reason.
    Unknown(String),
}

/// Compares the running operating system with the recorded config.
pub fn match_os(records: &Records, system: &System) -> OsMatch {
    match system {
        System::Silent(why) => OsMatch::Unknown(why.clone()),
        System::NotAsked | System::Composefs(_) => OsMatch::NoneToCompare,
        System::Known(facts) => {
            let comparable = records.recorded_config().is_some()
                && facts.deployments.booted().is_some()
                && facts.class != Class::Other;
            match os_mismatch(records, facts) {
                Some(words) => OsMatch::Differs(words),
                None if comparable => OsMatch::Recorded,
                None => OsMatch::NoneToCompare,
            }
        }
    }
}

/// Describes the differences of the running operating system from the recorded config.
pub fn os_mismatch(records: &Records, facts: &SystemFacts) -> Option<String> {
    let config = records.recorded_config()?;
    let booted = facts.deployments.booted()?;
    if facts.class == Class::Other {
        return None;
    }
    let layered = records.current_image.as_deref();
    let image = (!config.os_image_url.is_empty())
        .then(|| image_drift(config, layered, &booted.image()))
        .flatten();
    let missing = absent_arguments(config, &facts.booted_arguments);
    let left = arguments_left(config, facts, booted, &facts.booted_arguments);
    let all: Vec<String> = [image, missing, left]
        .into_iter()
        .flatten()
        .map(|drift| format!("{}: {}", drift.subject, drift.detail))
        .collect();
    (!all.is_empty()).then(|| format!("{} is recorded, but {}", config.name, all.join("; ")))
}

/// Returns true if the next boot enters the operating system of the recorded config.
pub fn is_next(records: &Records, facts: &SystemFacts) -> bool {
    let next = facts.deployments.next_boot();
    let next = next.filter(|next| !next.booted && !next.finalization_locked);
    let (Some(config), Some(next)) = (records.recorded_config(), next) else {
        return false;
    };
    let layered = records.current_image.as_deref();
    image_drift(config, layered, &next.image()).is_none()
        && absent_arguments(config, &facts.arguments).is_none()
}

/// Returns the kernel arguments of the next boot that its deployment's config asked for, and this config does not. The daemon
/// does not look for them.
pub fn left_arguments(config: &MachineConfig, facts: &SystemFacts) -> Option<Drift> {
    let next = facts.deployments.next_boot()?;
    arguments_left(config, facts, next, &facts.arguments)
}

/// Returns the arguments of a deployment that its own config asked for, and `config` does not.
fn arguments_left(
    config: &MachineConfig,
    facts: &SystemFacts,
    deployment: &Deployment,
    present: &Kargs,
) -> Option<Drift> {
    let asked = facts.asked.find_requests(&deployment.name(), present)?;
    let old = Kargs::from_entries(&asked.arguments);
    let wanted = Kargs::from_entries(&config.kernel_arguments);
    let list = present.written_as(&old).left_over(&old, &wanted).join(" ");
    (!list.is_empty()).then(|| Drift {
        kind: DriftKind::Arguments,
        subject: "kernel arguments".to_owned(),
        detail: format!(
            "{} still present, from an earlier config",
            redacted_arguments(&list)
        ),
        daemon: None,
    })
}
