//! bootc: its status document and its command lines.
//!
//! Pure: text in, values out. Minor releases add keys without changing the version of the document, so unknown keys are ignored
//! and missing ones are treated as null. An entry with layered packages, overrides or another kernel has no image in this
//! document (`incompatible`): its origin file names the image ([`super::origin`]).

use std::time::Duration;

use serde::Deserialize;

use super::CommandLine;
use super::origin::OriginFile;
use super::rpm_ostree::status::{Deployment, Deployments};
use crate::host::sys::privileges::Capability;

/// The content of `bootc status --json --format-version 1`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootcStatus {
    /// The image of the staged entry, or of the booted one.
    pub wanted: Option<ImageReference>,
    /// The next boot enters the rollback entry.
    pub rollback_queued: bool,
    /// The entry that is written at a clean shutdown.
    pub staged: Option<BootcEntry>,
    /// The booted entry; `None` if neither bootc nor ostree booted the system.
    pub booted: Option<BootcEntry>,
    /// The first entry of the booted stateroot that is neither staged nor booted.
    pub rollback: Option<BootcEntry>,
    /// All other entries, including those of other stateroots.
    pub others: Vec<BootcEntry>,
    /// `/usr` is writable: until the next boot (`transient`) or permanently (`persistent`).
    pub usr_overlay: Option<UsrOverlay>,
}

/// A deployment, which bootc calls a boot entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootcEntry {
    /// The image; `None` for a plain commit, and for an incompatible entry.
    pub image: Option<ImageStatus>,
    /// An update whose manifest was fetched but which is not staged.
    pub cached_update: Option<ImageStatus>,
    /// rpm-ostree changed packages, the kernel or modules on the node, which bootc cannot describe.
    pub incompatible: bool,
    /// Pinned: clean-ups keep it.
    pub pinned: bool,
    /// Staged but locked: a reboot does not enter it.
    pub download_only: bool,
    /// A soft reboot can enter it; `None` if this version of bootc does not report it.
    pub soft_reboot_capable: Option<bool>,
    /// The OSTree deployment.
    pub ostree: Option<OstreeEntry>,
    /// The entry of bootc's composefs backend.
    pub composefs: Option<ComposefsEntry>,
}

/// An image as pulled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageStatus {
    /// Its name.
    pub image: ImageReference,
    /// Version of the OS.
    pub version: Option<String>,
    /// Digest of the pulled manifest. The name may contain the digest of the manifest list instead.
    pub digest: String,
}

/// The name of an image, with its transport.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ImageReference {
    /// Its name, or a path.
    pub image: String,
    /// `registry`, `containers-storage`, `oci`, `oci-archive` or `docker-daemon`.
    pub transport: String,
    /// How its signature is verified; `None` if it is not.
    #[serde(default)]
    pub signature: Option<Signature>,
}

/// How the signature of an image is verified.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Signature {
    /// By the keys of an ostree remote.
    OstreeRemote(String),
    /// By the policy of the container tools.
    ContainerPolicy,
    /// It is not.
    Insecure,
}

/// An OSTree deployment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OstreeEntry {
    /// Name of the stateroot.
    pub stateroot: String,
    /// Checksum of the commit.
    pub checksum: String,
    /// Serial number among deployments of one commit.
    pub deploy_serial: u64,
}

/// An entry of bootc's composefs backend.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComposefsEntry {
    /// Digest of the file system.
    pub verity: String,
    /// `Bls` or `Uki`.
    #[serde(default)]
    pub boot_type: Option<String>,
    /// The boot loader.
    #[serde(default)]
    pub bootloader: Option<String>,
}

/// A layer over `/usr`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsrOverlay {
    /// `readOnly` or `readWrite`.
    pub access_mode: String,
    /// `transient` or `persistent`.
    pub persistence: String,
}

/// The reason why the document cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootcError {
    /// It is not JSON, or has an unexpected structure.
    #[error(
        "reading the answer of bootc status: {0}; check it: bootc status --json --format-version 1"
    )]
    Unreadable(String),
    /// It is a different kind of document.
    #[error(
        "bootc status gave a document of {kind} ({version}), not of BootcHost (org.containers.bootc/v1); check it: \
         bootc status --json --format-version 1"
    )]
    OtherDocument {
        /// Its `kind`.
        kind: String,
        /// Its `apiVersion`.
        version: String,
    },
}

impl BootcStatus {
    /// Parses the output of `bootc status --json --format-version 1`.
    ///
    /// # Errors
    /// The output is not such a document.
    pub fn read(json: &str) -> Result<Self, BootcError> {
        let unreadable = |error: String| BootcError::Unreadable(error);
        let mut reader = serde_json::Deserializer::from_str(json);
        let host: Host = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| unreadable(error.to_string()))?;
        reader
            .end()
            .map_err(|error| unreadable(error.to_string()))?;
        // The oldest version, v1alpha1, has the same keys.
        if host.kind != "BootcHost" || !host.api_version.starts_with("org.containers.bootc/v1") {
            return Err(BootcError::OtherDocument {
                kind: host.kind,
                version: host.api_version,
            });
        }
        let spec = host.spec.unwrap_or_default();
        let status = host.status.unwrap_or_default();
        let queued = spec.boot_order.as_deref() == Some("rollback");
        let entry = |raw: Option<RawEntry>| raw.map(RawEntry::into_entry);
        Ok(Self {
            wanted: spec.image,
            rollback_queued: status.rollback_queued.unwrap_or(queued),
            staged: entry(status.staged),
            booted: entry(status.booted),
            rollback: entry(status.rollback),
            others: status
                .other_deployments
                .unwrap_or_default()
                .into_iter()
                .map(RawEntry::into_entry)
                .collect(),
            usr_overlay: status.usr_overlay,
        })
    }

    /// Returns the deployments in the order of the boot menu, as rpm-ostree would list them. `origin` reads the origin file of
    /// a deployment; without one, the entry's own image is used.
    ///
    /// bootc does not report the position of its other deployments; they are last here.
    pub fn to_deployments(
        &self,
        origin: &dyn Fn(&OstreeEntry) -> Option<OriginFile>,
    ) -> Deployments {
        let (before, after) = if self.rollback_queued {
            (self.rollback.as_ref(), None)
        } else {
            (None, self.rollback.as_ref())
        };
        let entries = [self.staged.as_ref(), before, self.booted.as_ref(), after];
        let entries = entries.into_iter().flatten().chain(&self.others);
        let is = |one: &Option<BootcEntry>, entry: &BootcEntry| {
            one.as_ref().is_some_and(|one| std::ptr::eq(one, entry))
        };
        let mut all: Vec<Deployment> = Vec::new();
        for entry in entries {
            let Some(ostree) = &entry.ostree else {
                continue;
            };
            let booted = is(&self.booted, entry);
            let unlocked = self.usr_overlay.as_ref().filter(|_| booted);
            all.push(Deployment {
                index: all.len(),
                booted,
                staged: is(&self.staged, entry),
                unlocked: unlocked.map(UsrOverlay::as_unlocked).unwrap_or_default(),
                ..entry.to_deployment(ostree, origin(ostree))
            });
        }
        let update = self
            .booted
            .as_ref()
            .and_then(|one| one.cached_update.as_ref());
        Deployments {
            all,
            cached_update: update.map(|one| one.version.clone().unwrap_or(one.digest.clone())),
            ..Deployments::default()
        }
    }
}

impl BootcEntry {
    fn to_deployment(&self, ostree: &OstreeEntry, origin: Option<OriginFile>) -> Deployment {
        let own = self.image.as_ref().map(|one| one.image.as_origin());
        let origin = origin.unwrap_or_default();
        Deployment {
            osname: ostree.stateroot.clone(),
            checksum: ostree.checksum.clone(),
            serial: ostree.deploy_serial,
            version: self.image.as_ref().and_then(|one| one.version.clone()),
            pinned: self.pinned,
            finalization_locked: self.download_only,
            digest: self.image.as_ref().map(|one| one.digest.clone()),
            ..with_origin(Deployment::default(), origin, own)
        }
    }
}

/// Returns the deployment with the data of its origin file. `own` is the reference to use if that file has none.
pub fn with_origin(one: Deployment, origin: OriginFile, own: Option<String>) -> Deployment {
    Deployment {
        refspec: origin.refspec.or(one.refspec),
        custom_origin: origin.custom_url.map(|url| (url, String::new())),
        reference: origin.reference.or(own),
        packages: origin.packages.clone(),
        requested_packages: origin.packages,
        local_packages: origin.local_packages,
        removals: origin.removals,
        replacements: origin.replacements,
        own_initramfs: origin.own_initramfs,
        ..one
    }
}

impl ImageReference {
    /// Returns `container-image-reference` of an origin file, as ostree's container code writes it.
    pub fn as_origin(&self) -> String {
        let Self {
            image, transport, ..
        } = self;
        let is_registry = transport == "registry";
        let place = if is_registry {
            format!("docker://{image}")
        } else {
            format!("{transport}:{image}")
        };
        match &self.signature {
            Some(Signature::OstreeRemote(remote)) if is_registry => {
                format!("ostree-remote-registry:{remote}:{image}")
            }
            Some(Signature::OstreeRemote(remote)) => {
                format!("ostree-remote-image:{remote}:{place}")
            }
            Some(Signature::ContainerPolicy) => format!("ostree-image-signed:{place}"),
            None | Some(Signature::Insecure) if is_registry => {
                format!("ostree-unverified-registry:{image}")
            }
            None | Some(Signature::Insecure) => format!("ostree-unverified-image:{place}"),
        }
    }
}

impl UsrOverlay {
    /// Returns rpm-ostree's word for it.
    fn as_unlocked(&self) -> String {
        let word = match (self.access_mode.as_str(), self.persistence.as_str()) {
            ("readWrite", "persistent") => "hotfix",
            ("readWrite", _) => "development",
            _ => "transient",
        };
        word.to_owned()
    }
}

/// The document as JSON.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Host {
    api_version: String,
    kind: String,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    image: Option<ImageReference>,
    #[serde(default)]
    boot_order: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    staged: Option<RawEntry>,
    #[serde(default)]
    booted: Option<RawEntry>,
    #[serde(default)]
    rollback: Option<RawEntry>,
    #[serde(default)]
    other_deployments: Option<Vec<RawEntry>>,
    #[serde(default)]
    rollback_queued: Option<bool>,
    #[serde(default)]
    usr_overlay: Option<UsrOverlay>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEntry {
    #[serde(default)]
    image: Option<RawImage>,
    #[serde(default)]
    cached_update: Option<RawImage>,
    #[serde(default)]
    incompatible: Option<bool>,
    #[serde(default)]
    pinned: Option<bool>,
    #[serde(default)]
    soft_reboot_capable: Option<bool>,
    #[serde(default)]
    download_only: Option<bool>,
    #[serde(default)]
    ostree: Option<OstreeEntry>,
    #[serde(default)]
    composefs: Option<ComposefsEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawImage {
    image: ImageReference,
    #[serde(default)]
    version: Option<String>,
    image_digest: String,
}

impl RawImage {
    fn into_image(self) -> ImageStatus {
        ImageStatus {
            image: self.image,
            version: self.version,
            digest: self.image_digest,
        }
    }
}

impl RawEntry {
    fn into_entry(self) -> BootcEntry {
        BootcEntry {
            image: self.image.map(RawImage::into_image),
            cached_update: self.cached_update.map(RawImage::into_image),
            incompatible: self.incompatible.unwrap_or_default(),
            pinned: self.pinned.unwrap_or_default(),
            download_only: self.download_only.unwrap_or_default(),
            soft_reboot_capable: self.soft_reboot_capable,
            ostree: self.ostree,
            composefs: self.composefs,
        }
    }
}

/// Questions.
const QUESTION: Duration = Duration::from_secs(60);
/// For changes without new content.
pub(super) const SMALL: Duration = Duration::from_secs(600);
/// For a pull.
pub(super) const LARGE: Duration = Duration::from_secs(3600);

/// Where the bytes of an image come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The registry in its name, or a mirror.
    Registry,
    /// `containers-storage`, under the same name.
    Storage,
}

/// The timer of bootc's automatic update, which also reboots.
pub const UPDATE_TIMER: &str = "bootc-fetch-apply-updates.timer";
/// The unit in which bootc runs, and ostree where it stages in place of bootc: with all privileges of the system, and only one
/// at a time.
pub const UNIT: &str = "mco-rescue-bootc.service";

/// Returns the command line of `bootc status` in its only versioned format.
///
/// bootc queries from its own mount namespace. To find out whether it already runs in one, it reads the namespace of process 1.
pub fn status_json() -> CommandLine {
    CommandLine::new(
        "bootc",
        to_strings(&["status", "--json", "--format-version", "1"]),
        QUESTION,
    )
    .with_capabilities(&[
        Capability::CAP_SYS_ADMIN,
        Capability::CAP_SYS_PTRACE,
        Capability::CAP_DAC_OVERRIDE,
        Capability::CAP_DAC_READ_SEARCH,
    ])
}

/// Returns the command line that stages an image for the next boot. Never with `--apply`, which would reboot.
pub fn switch_to(transport: Transport, image: &str) -> CommandLine {
    let transport = match transport {
        Transport::Registry => "registry",
        Transport::Storage => "containers-storage",
    };
    in_unit(LARGE, &["bootc", "switch", "--transport", transport, image])
}

/// Returns true if this command runs in [`UNIT`], where it continues without its client.
pub fn is_in_unit(line: &CommandLine) -> bool {
    line.program == "systemd-run" && line.args.iter().any(|word| word.ends_with(UNIT))
}

/// Returns the command that works in [`UNIT`], as it can be typed without the unit; the whole line where it is none of these.
pub fn command_in_unit(line: &CommandLine) -> &[String] {
    let begin = line.args.iter().position(|word| word == "--");
    let begin = begin.filter(|_| is_in_unit(line));
    begin
        .and_then(|begin| line.args.get(begin + 1..))
        .unwrap_or(&line.args)
}

/// Wraps a command so that systemd starts it, in the domain that the SELinux policy assigns: a child process could get no more
/// privileges than mco-rescue has kept. Its output goes to the journal ([`super::journalctl::errors_of_unit`]): connected to
/// mco-rescue by a pipe, it would die half-way together with it. systemd expands variables in a command, so each `$` is
/// doubled.
pub(super) fn in_unit(timeout: Duration, command: &[&str]) -> CommandLine {
    let unit = format!("--unit={UNIT}");
    let run = ["--wait", "--collect", "--quiet", &unit, "--"];
    let command = command.iter().map(|word| word.replace('$', "$$"));
    CommandLine {
        program: "systemd-run".to_owned(),
        args: to_strings(&run).into_iter().chain(command).collect(),
        timeout,
        // systemd does the work; it only needs a request from root.
        capabilities: &[],
    }
}

fn to_strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}
