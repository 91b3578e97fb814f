//! The deployments of an OSTree system, from `rpm-ostree status`.
//!
//! Pure: text in, values out. Missing keys are optional and unknown ones are ignored, because the keys differ with the kind of
//! origin and the version. Kernel arguments are not in the output, and a failed finalization is only in its text form.

use serde::Deserialize;
use serde_json::Value;

use super::{arguments, reference};

/// The content of `status --json`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deployments {
    /// In the order of the boot menu: the next boot enters the first one.
    pub all: Vec<Deployment>,
    /// The running transaction.
    pub transaction: Option<Transaction>,
    /// The program that drives updates, such as Zincati.
    pub driver: Option<Driver>,
    /// An update that was found but not deployed: its version or checksum.
    pub cached_update: Option<String>,
}

/// A bootable tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deployment {
    /// Index in the list, as used by `ostree admin pin`.
    pub index: usize,
    /// Name of the stateroot.
    pub osname: String,
    /// Checksum of the commit. Importing the same image again produces a different one.
    pub checksum: String,
    /// Checksum of the commit below local packages.
    pub base_checksum: Option<String>,
    /// Serial number among deployments of one commit, such as after a change of kernel arguments.
    pub serial: u64,
    /// Version of the OS, such as `9.6.20250101-0`.
    pub version: Option<String>,
    /// It is booted.
    pub booted: bool,
    /// It is written only at the next clean shutdown, and lost in a power cut.
    pub staged: bool,
    /// Pinned: clean-ups keep it.
    pub pinned: bool,
    /// State of `/usr`: `none` (read-only), `development`, `hotfix` or `transient` (writable).
    pub unlocked: String,
    /// It waits for `finalize-deployment`. Some versions report that only in `run/ostree/staged-deployment`.
    pub finalization_locked: bool,
    /// Packages were applied to the running tree. They are in the staged deployment, but its name does not show them.
    pub live: bool,
    /// The refspec, if the deployment is of a plain commit.
    pub refspec: Option<String>,
    /// `custom-origin`: a URL, and a description.
    pub custom_origin: Option<(String, String)>,
    /// `container-image-reference`, scheme included.
    pub reference: Option<String>,
    /// Digest of the manifest: the identity of an image.
    pub digest: Option<String>,
    /// Packages requested on top of the image.
    pub requested_packages: Vec<String>,
    /// Packages requested from local files.
    pub local_packages: Vec<String>,
    /// Requested removals of the image's packages (`requested-base-removals`).
    pub removals: Vec<String>,
    /// Packages of the image that are actually removed.
    pub base_removals: Vec<String>,
    /// Packages that are actually installed on top.
    pub packages: Vec<String>,
    /// Number of packages of the image that are replaced.
    pub replacements: usize,
    /// The initramfs is built on the node.
    pub own_initramfs: bool,
    /// Date of the commit, in seconds since 1970.
    pub timestamp: Option<u64>,
}

/// A transaction of rpm-ostreed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Method, such as `Rebase`.
    pub method: String,
    /// The name of the client on the bus, such as `:1.112`.
    pub client: String,
    /// D-Bus object of the stateroot.
    pub path: String,
}

/// A program that drives updates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// Name of the program.
    pub name: String,
    /// Its unit; a rebase is refused while that is active.
    pub unit: String,
}

/// Where a wanted image is among the deployments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is booted.
    Booted,
    /// It is staged; the next clean reboot enters it.
    Staged,
    /// It is first in the list, written but not booted, as after a rollback: the next boot enters it in any case.
    Next,
    /// It exists under its name, at this index, but another deployment is before it.
    Kept(usize),
    /// A deployment at this index has the same manifest, but under another name, which the daemon does not accept.
    OtherName(usize, String),
    /// It does not exist.
    Absent,
}

/// The reason why the status cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// It is not JSON, or has an unexpected structure.
    #[error(
        "reading the answer of rpm-ostree status --json: {0}; check it: rpm-ostree status --json"
    )]
    Unreadable(String),
    /// Several deployments are booted.
    #[error(
        "reading the answer of rpm-ostree status --json: {0} deployments are booted at once; check: ostree admin status"
    )]
    SeveralBooted(usize),
    /// No deployment is booted: the running one is unknown.
    #[error("rpm-ostree status lists no booted deployment; check: ostree admin status")]
    NoneBooted,
}

impl Deployments {
    /// Parses the output of `rpm-ostree status --json`. Only valid with exit status 0: otherwise it may be a message of
    /// systemd.
    ///
    /// # Errors
    /// The output is not rpm-ostree's.
    pub fn read(json: &str) -> Result<Self, StatusError> {
        let unreadable = |error: String| StatusError::Unreadable(error);
        let mut reader = serde_json::Deserializer::from_str(json);
        let status: StatusJson = serde_path_to_error::deserialize(&mut reader)
            .map_err(|error| unreadable(error.to_string()))?;
        reader
            .end()
            .map_err(|error| unreadable(error.to_string()))?;
        let all: Vec<Deployment> = status
            .deployments
            .into_iter()
            .enumerate()
            .map(|(index, raw)| raw.into_deployment(index))
            .collect();
        match all.iter().filter(|deployment| deployment.booted).count() {
            0 | 1 => {}
            several => return Err(StatusError::SeveralBooted(several)),
        }
        Ok(Self {
            all,
            transaction: parse_transaction(&status.transaction),
            driver: parse_driver(&status.update_driver),
            cached_update: parse_cached(&status.cached_update),
        })
    }

    /// Returns the booted deployment.
    pub fn booted(&self) -> Option<&Deployment> {
        self.all.iter().find(|deployment| deployment.booted)
    }

    /// Returns the booted deployment, which every live OSTree system has.
    ///
    /// # Errors
    /// No deployment is booted.
    pub fn require_booted(&self) -> Result<&Deployment, StatusError> {
        self.booted().ok_or(StatusError::NoneBooted)
    }

    /// Returns the deployment that is written at a clean shutdown.
    pub fn staged(&self) -> Option<&Deployment> {
        self.all.iter().find(|deployment| deployment.staged)
    }

    /// Returns the first deployment, which the next boot enters after a clean shutdown, unless it is a staged one that is locked.
    /// [`Self::entered_next`] passes over a locked one.
    pub fn next_boot(&self) -> Option<&Deployment> {
        self.all.first()
    }

    /// Returns the deployment that would boot after a power cut now: a staged one does not survive it.
    pub fn after_power_cut(&self) -> Option<&Deployment> {
        self.all.iter().find(|deployment| !deployment.staged)
    }

    /// Returns the deployment that the next boot enters although it is neither running nor staged: after a rollback, or if it
    /// was made the default. A staged deployment takes precedence.
    pub fn queued(&self) -> Option<&Deployment> {
        self.booted()?;
        self.after_power_cut().filter(|first| !first.booted)
    }

    /// Returns the deployment that the next boot enters after a clean shutdown; a locked one is skipped.
    pub fn entered_next(&self) -> Option<&Deployment> {
        let is_entered = |one: &&Deployment| !(one.staged && one.finalization_locked);
        self.all.iter().find(is_entered)
    }

    /// Returns the deployment that `rpm-ostree rollback` would make the default and `cleanup -r` would remove: the next one of
    /// the stateroot after the booted one.
    pub fn rollback(&self) -> Option<&Deployment> {
        let booted = self.booted()?;
        let later = self.all.get(booted.index + 1..)?;
        later
            .iter()
            .find(|deployment| deployment.osname == booted.osname)
    }

    /// Returns the pinned deployments, which clean-ups keep.
    pub fn pinned(&self) -> impl Iterator<Item = &Deployment> {
        self.all.iter().filter(|deployment| deployment.pinned)
    }

    /// Returns a pinned deployment of the booted commit: the booted one itself or a copy.
    pub fn pinned_copy_of_booted(&self) -> Option<&Deployment> {
        let booted = self.booted()?;
        self.pinned()
            .filter(|deployment| deployment.osname == booted.osname)
            .find(|deployment| deployment.checksum == booted.checksum)
    }

    /// Returns the deployment with the name `CHECKSUM.SERIAL`, the form in which records store it, because indexes change.
    /// Deployments of other stateroots are ignored: they have another state of the node, whatever their names are.
    pub fn find_named(&self, name: &str) -> Option<&Deployment> {
        let own = self.booted().map(|booted| booted.osname.as_str());
        let is_own = |one: &&Deployment| own.is_none_or(|own| one.osname == own);
        self.all
            .iter()
            .filter(is_own)
            .find(|deployment| deployment.name() == name)
    }

    /// Returns the deployments that are in our records.
    pub fn own_deployments<'a>(
        &'a self,
        records: &'a [String],
    ) -> impl Iterator<Item = &'a Deployment> {
        records.iter().filter_map(|name| self.find_named(name))
    }

    /// Returns true if the staged deployment has the commit of the running one, so that only kernel arguments (or similar)
    /// change.
    pub fn only_arguments_staged(&self) -> bool {
        match (self.booted(), self.staged()) {
            (Some(booted), Some(staged)) => {
                booted.checksum == staged.checksum && booted.reference == staged.reference
            }
            _ => false,
        }
    }

    /// Returns where the wanted image is. `digest` is the digest of its manifest, if it is known from another source than the
    /// name.
    ///
    /// The daemon compares only the name. The content behind a name without digest may have changed, so if `digest` is given,
    /// both have to match; a name with a digest cannot change.
    pub fn find_image(&self, image: &str, digest: Option<&str>) -> Standing {
        let in_name = digest_in(image);
        let fits = |deployment: &&Deployment| {
            let same =
                in_name.is_some() || digest.is_none() || deployment.digest.as_deref() == digest;
            !image.is_empty() && deployment.image() == image && same
        };
        let found: Vec<&Deployment> = self.all.iter().filter(fits).collect();
        if found.iter().any(|deployment| deployment.staged) {
            return Standing::Staged;
        }
        if found.iter().any(|deployment| deployment.booted) {
            return Standing::Booted;
        }
        if let Some(first) = found.first() {
            return match first.index {
                0 => Standing::Next,
                index => Standing::Kept(index),
            };
        }
        // The digest in the name may be that of a manifest list, while the status has the digest for this machine.
        let same = |deployment: &&Deployment| {
            let has = deployment.digest.as_deref();
            has.is_some() && (has == in_name || has == digest)
        };
        match self.all.iter().find(same) {
            Some(other) => Standing::OtherName(other.index, other.image()),
            None => Standing::Absent,
        }
    }

    /// Returns the commit of a kept deployment whose name contains a digest, and therefore identifies its content.
    pub fn kept_commit(&self, standing: &Standing) -> Option<String> {
        let Standing::Kept(index) = standing else {
            return None;
        };
        let kept = self.all.get(*index)?;
        digest_in(&kept.image())?;
        Some(kept.base_commit().to_owned())
    }

    /// Returns the kept deployment of an image with this commit and without layered packages.
    pub fn kept_alone(&self, image: &str, commit: &str) -> Option<&Deployment> {
        let stateroot = self.booted().map(|booted| booted.osname.as_str());
        self.all.iter().find(|one| {
            one.image() == image
                && one.checksum == commit
                && !one.staged
                && !one.is_layered()
                && !one.own_initramfs
                && Some(one.osname.as_str()) == stateroot
        })
    }
}

impl Deployment {
    /// Returns `CHECKSUM.SERIAL`, the name of its directory.
    pub fn name(&self) -> String {
        format!("{}.{}", self.checksum, self.serial)
    }

    /// Returns the image name that the daemon compares byte by byte (docs/develop/agreement.md: Operating system); empty without an
    /// image.
    pub fn image(&self) -> String {
        let custom = self.custom_origin.as_ref().map(|(url, _)| url.as_str());
        reference::image_of(self.reference.as_deref(), custom)
    }

    /// Returns true if `/usr` may differ from its commit.
    pub fn is_unlocked(&self) -> bool {
        !matches!(self.unlocked.as_str(), "" | "none")
    }

    /// Returns changes that were made by hand: no config requests them, and the name of the image does not show them.
    pub fn by_hand(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.live {
            all.push("packages are applied live, until the next boot".to_owned());
        } else if self.is_unlocked() {
            all.push(format!("/usr is unlocked ({})", self.unlocked));
        }
        if !self.local_packages.is_empty() {
            all.push(format!("local packages: {}", self.local_packages.join(" ")));
        }
        if self.replacements > 0 {
            let count = self.replacements;
            all.push(format!("packages of the image that are replaced: {count}"));
        }
        let gone = self.removals.iter().filter(|name| !is_of_kernel(name));
        let gone: Vec<&str> = gone.map(String::as_str).collect();
        if !gone.is_empty() {
            all.push(format!(
                "packages of the image that are removed: {}",
                gone.join(" ")
            ));
        }
        all
    }

    /// Returns the commit of its image, without the layered packages.
    pub fn base_commit(&self) -> &str {
        self.base_checksum.as_deref().unwrap_or(&self.checksum)
    }

    /// Returns true if packages were added, removed or replaced on the node.
    pub fn is_layered(&self) -> bool {
        let lists = [
            &self.requested_packages,
            &self.local_packages,
            &self.removals,
        ];
        lists.iter().any(|list| !list.is_empty()) || self.replacements > 0
    }
}

/// Returns true for a kernel package, as requested by `spec.kernelType`.
pub fn is_of_kernel(package: &str) -> bool {
    package == "kernel" || package.starts_with("kernel-")
}

/// Returns the reason why the last shutdown failed to write the staged deployment, from the output of `rpm-ostree status`: the
/// JSON form does not have it. It is shown until the next reboot.
pub fn read_finalize_error(text: &str) -> Option<String> {
    let has_failed = text.contains("failed to finalize previous deployment");
    let mut lines = text.lines().map(str::trim);
    let error = lines.find_map(|line| line.strip_prefix("error:"));
    has_failed.then(|| error.unwrap_or_default().trim().to_owned())
}

/// Returns the error of the previous boot's `ostree-finalize-staged.service`: the first line that begins with `error:`, which
/// is what the daemon looks for (docs/develop/agreement.md: Validation). Accepts the journal as `-o json` or as plain lines.
pub fn finalize_failure(journal: &str) -> Option<String> {
    let mut messages = journal.lines().filter_map(journal_message);
    messages.find_map(|message| Some(message.strip_prefix("error:")?.trim().to_owned()))
}

/// Returns the program that staged a deployment, in words, from the journal of the stagings as `-o json`: the one that was at
/// work when the file of the staged deployment was written (`written`, microseconds since 1970). Returns `None` if none was.
pub fn staged_by(journal: &str, written: u64) -> Option<String> {
    let mut staging: Option<(u64, String)> = None;
    let mut by_bootc = None;
    for line in journal.lines() {
        let Some(entry) = StagingEntry::parse_line(line) else {
            continue;
        };
        let begun = staging.take();
        match entry.event {
            StagingEvent::Begun(who) => staging = Some((entry.time, who)),
            StagingEvent::Succeeded => {
                if let Some((from, who)) = begun
                    && is_within(written, from, entry.time)
                {
                    return Some(format!("rpm-ostree: {who}"));
                }
            }
            StagingEvent::Failed => {}
            StagingEvent::ByBootc(words) => {
                if is_within(written, entry.time, entry.time + BOOTC_STAGES_WITHIN) {
                    by_bootc = Some(format!("bootc: {words}"));
                }
            }
        }
    }
    // The journal does not have its end yet.
    let unfinished = staging.filter(|(from, _)| is_within(written, *from, u64::MAX));
    by_bootc.or(unfinished.map(|(_, who)| format!("rpm-ostree: {who}")))
}

/// Maximum difference between the clock of the journal and that of the file system, in microseconds.
const CLOCK_STEP: u64 = 1_000_000;
/// Maximum time from bootc's message until it has staged, in microseconds: the image has been pulled by then.
const BOOTC_STAGES_WITHIN: u64 = 60_000_000;

fn is_within(written: u64, from: u64, to: u64) -> bool {
    written >= from.saturating_sub(CLOCK_STEP) && written <= to.saturating_add(CLOCK_STEP)
}

/// A journal entry about a staging.
struct StagingEntry {
    /// Microseconds since 1970.
    time: u64,
    event: StagingEvent,
}

enum StagingEvent {
    /// A transaction began, with its client.
    Begun(String),
    /// The transaction ended well.
    Succeeded,
    /// The transaction staged nothing.
    Failed,
    /// bootc begins to stage something.
    ByBootc(String),
}

impl StagingEntry {
    fn parse_line(line: &str) -> Option<Self> {
        let entry: Value = serde_json::from_str(line).ok()?;
        let time = entry.get("__REALTIME_TIMESTAMP")?.as_str()?.parse().ok()?;
        let words = journal_message(line)?;
        let id = entry.get(arguments::BOOTC_ID).and_then(Value::as_str);
        let event = if id == Some(arguments::BOOTC_STAGES) {
            StagingEvent::ByBootc(words)
        } else if let Some(who) = words.strip_prefix("Initiated txn ") {
            let (who, _) = who.rsplit_once(": /").unwrap_or((who, ""));
            StagingEvent::Begun(who.to_owned())
        } else if words.starts_with("Txn ") && words.ends_with(" successful") {
            StagingEvent::Succeeded
        } else if words.starts_with("Txn ") && words.contains(" failed") {
            StagingEvent::Failed
        } else {
            return None;
        };
        Some(Self { time, event })
    }
}

/// Returns the message of a journal line. The journal exports messages that are not text as arrays of bytes.
fn journal_message(line: &str) -> Option<String> {
    if !line.starts_with('{') {
        return Some(line.to_owned());
    }
    let entry: Value = serde_json::from_str(line).ok()?;
    match entry.get("MESSAGE")? {
        Value::String(text) => Some(text.clone()),
        Value::Array(bytes) => {
            let byte = |value: &Value| u8::try_from(value.as_u64()?).ok();
            let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
            Some(String::from_utf8_lossy(&bytes?).into_owned())
        }
        _ => None,
    }
}

/// Returns the digest in a name `NAME@sha256:…`.
pub fn digest_in(image: &str) -> Option<&str> {
    let (_, digest) = image.rsplit_once('@')?;
    digest.contains(':').then_some(digest)
}

#[derive(Deserialize)]
struct StatusJson {
    deployments: Vec<Raw>,
    #[serde(default)]
    transaction: Value,
    #[serde(default, rename = "cached-update")]
    cached_update: Value,
    #[serde(default, rename = "update-driver")]
    update_driver: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Raw {
    osname: String,
    checksum: String,
    serial: u64,
    booted: bool,
    #[serde(default)]
    staged: Option<bool>,
    #[serde(default)]
    pinned: Option<bool>,
    #[serde(default)]
    unlocked: Option<String>,
    #[serde(default)]
    live_inprogress: Value,
    #[serde(default)]
    live_replaced: Value,
    #[serde(default)]
    finalization_locked: Option<bool>,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    base_checksum: Option<String>,
    #[serde(default)]
    origin: Option<String>,
    #[serde(default)]
    custom_origin: Option<Vec<String>>,
    #[serde(default)]
    container_image_reference: Option<String>,
    #[serde(default)]
    container_image_reference_digest: Option<String>,
    #[serde(default)]
    base_commit_meta: Value,
    #[serde(default)]
    timestamp: Option<u64>,
    #[serde(default)]
    regenerate_initramfs: Option<bool>,
    #[serde(default)]
    requested_packages: Value,
    #[serde(default)]
    requested_local_packages: Value,
    #[serde(default)]
    requested_base_removals: Value,
    #[serde(default)]
    base_removals: Value,
    #[serde(default)]
    base_local_replacements: Value,
    #[serde(default)]
    packages: Value,
}

impl Raw {
    fn into_deployment(self, index: usize) -> Deployment {
        let meta = |key: &str| Some(self.base_commit_meta.get(key)?.as_str()?.to_owned());
        let digest = self.container_image_reference_digest.clone();
        Deployment {
            digest: digest.or_else(|| meta("ostree.manifest-digest")),
            requested_packages: parse_names(&self.requested_packages),
            local_packages: parse_names(&self.requested_local_packages),
            removals: parse_names(&self.requested_base_removals),
            base_removals: parse_names(&self.base_removals),
            packages: parse_names(&self.packages),
            replacements: self.base_local_replacements.as_array().map_or(0, Vec::len),
            index,
            osname: self.osname,
            checksum: self.checksum,
            base_checksum: self.base_checksum,
            serial: self.serial,
            version: self.version,
            booted: self.booted,
            staged: self.staged.unwrap_or_default(),
            pinned: self.pinned.unwrap_or_default(),
            unlocked: self.unlocked.unwrap_or_default(),
            live: !self.live_inprogress.is_null() || !self.live_replaced.is_null(),
            finalization_locked: self.finalization_locked.unwrap_or_default(),
            refspec: self.origin,
            custom_origin: self.custom_origin.and_then(|parts| {
                let mut parts = parts.into_iter();
                Some((parts.next()?, parts.next().unwrap_or_default()))
            }),
            reference: self
                .container_image_reference
                .filter(|text| !text.is_empty()),
            own_initramfs: self.regenerate_initramfs.unwrap_or_default(),
            timestamp: self.timestamp,
        }
    }
}

/// Returns the names in a list of names, or of arrays that begin with one: installed packages are listed with further fields.
fn parse_names(list: &Value) -> Vec<String> {
    let name = |value: &Value| match value {
        Value::Array(parts) => parts.first()?.as_str().map(str::to_owned),
        other => other.as_str().map(str::to_owned),
    };
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(name).collect()
}

fn parse_transaction(value: &Value) -> Option<Transaction> {
    let part = |index: usize| {
        let text = value.get(index).and_then(Value::as_str);
        text.unwrap_or("unknown").to_owned()
    };
    (!value.is_null()).then(|| Transaction {
        method: part(0),
        client: part(1),
        path: part(2),
    })
}

fn parse_driver(value: &Value) -> Option<Driver> {
    let part = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
    Some(Driver {
        name: part("driver-name")?,
        unit: part("driver-sd-unit").unwrap_or_default(),
    })
}

fn parse_cached(value: &Value) -> Option<String> {
    let part = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
    part("version").or_else(|| part("checksum"))
}

#[cfg(test)]
mod tests;
