//! The flight recorder: facts about a node at the end of each boot and of each run, and the differences between two of them
//! (docs/explanation/recorder.md).
//!
//! Values in, values out, except for [`shelf`], which reads the stored files, and [`look`], which reads the node. A fact is a line
//! of text under a key, so that every kind of fact is stored and compared in the same way. Contents of files are stored as digests
//! with the node's own key: without the key, a short secret cannot be guessed.

pub mod bounds;
pub mod differences;
pub mod digest;
mod facts;
mod files;
pub mod format;
pub mod harm;
pub mod known;
pub mod look;
pub mod retention;
pub mod secrets;
pub mod shelf;
pub mod timeline;

use std::collections::BTreeMap;

use crate::base::reason::Reason;
use serde::{Deserialize, Serialize};

pub use differences::{Difference, FactChange, compare_snapshots};

/// Number of snapshots that are kept.
pub const KEPT: usize = 64;
/// Number of snapshots that are kept below `/boot`.
pub const KEPT_ON_BOOT: usize = 8;
/// Maximum size of a snapshot on disk, in bytes.
pub const MAX_SNAPSHOT: usize = 40 << 10;

/// A kind of facts, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// The entries of the boot loader.
    BootEntries,
    /// The deployments.
    Deployment,
    /// The origin file of the deployment.
    Origin,
    /// The command line of the running kernel.
    CommandLine,
    /// Versions of kernel, OS, systemd, kubelet and CRI-O.
    Versions,
    /// Files of the boot loader's configuration.
    BootFiles,
    /// Files of the EFI system partition.
    Esp,
    /// Network interfaces: hardware addresses and drivers.
    Interfaces,
    /// Network addresses.
    Addresses,
    /// Disks by id.
    Disks,
    /// Validity of certificates.
    Certificates,
    /// Everything below `/etc`.
    Etc,
    /// Running and failed units.
    Units,
    /// The node's config, and the one that the cluster wants.
    Config,
    /// The verdict of the daemon.
    Daemon,
    /// The difference between the node's clock and that of its server.
    Clock,
}

impl Area {
    /// All areas, in their order.
    pub const ALL: [Self; 16] = [
        Self::BootEntries,
        Self::Deployment,
        Self::Origin,
        Self::CommandLine,
        Self::Versions,
        Self::BootFiles,
        Self::Esp,
        Self::Interfaces,
        Self::Addresses,
        Self::Disks,
        Self::Certificates,
        Self::Etc,
        Self::Units,
        Self::Config,
        Self::Daemon,
        Self::Clock,
    ];

    /// Returns the name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::BootEntries => "Boot entries",
            Self::Deployment => "Deployments",
            Self::Origin => "Origin of the deployment",
            Self::CommandLine => "Kernel command line",
            Self::Versions => "Versions",
            Self::BootFiles => "Files of the boot loader",
            Self::Esp => "EFI system partition",
            Self::Interfaces => "Network interfaces",
            Self::Addresses => "Addresses",
            Self::Disks => "Disks",
            Self::Certificates => "Certificates",
            Self::Etc => "Files below /etc",
            Self::Units => "Units",
            Self::Config => "Config",
            Self::Daemon => "Machine Config Daemon",
            Self::Clock => "Clock",
        }
    }

    /// Returns the part of a snapshot that stores the area: areas that change together are stored together.
    pub(crate) fn part_of(self) -> Part {
        match self {
            Self::BootEntries
            | Self::Deployment
            | Self::Origin
            | Self::CommandLine
            | Self::Versions
            | Self::BootFiles
            | Self::Esp => Part::Boot,
            Self::Interfaces | Self::Addresses | Self::Disks => Part::Machine,
            Self::Etc => Part::Etc,
            Self::Certificates | Self::Units | Self::Config | Self::Daemon | Self::Clock => {
                Part::State
            }
        }
    }
}

/// A part of a snapshot that is stored as one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// What boots.
    Boot,
    /// The hardware and its addresses.
    Machine,
    /// `/etc`.
    Etc,
    /// State that changes on its own.
    State,
    /// Copies of text files.
    Copies,
}

/// Facts of one area, by subject.
pub type AreaFacts = BTreeMap<String, String>;

/// The facts about a node at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The facts of each area that was read.
    pub facts: BTreeMap<Area, AreaFacts>,
    /// The areas that could not be read, with the reason.
    pub unseen: BTreeMap<Area, String>,
    /// Copies of the text files on the node's own list, by path.
    pub copies: BTreeMap<String, String>,
}

impl Snapshot {
    /// Adds the facts of an area, or the reason why they are missing.
    pub fn put_area(&mut self, area: Area, facts: Result<AreaFacts, Reason>) {
        match facts {
            Ok(facts) => drop(self.facts.insert(area, facts)),
            Err(why) => drop(self.unseen.insert(area, why.to_string())),
        }
    }

    /// Returns one fact.
    pub fn get_fact(&self, area: Area, subject: &str) -> Option<&str> {
        self.facts.get(&area)?.get(subject).map(String::as_str)
    }
}

/// The reason for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// The end of a boot.
    Boot,
    /// The end of `apply`.
    Apply,
    /// The end of `rollback`.
    Rollback,
    /// `record`, started by hand.
    ByHand,
}

/// The result of a boot or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The boot finished: the kubelet runs, or the node has none and `multi-user.target` was reached.
    Good,
    /// The kubelet does not run at the end of the boot.
    NoKubelet,
    /// The start left no snapshot: the boot did not finish, or could not record it.
    NoEnd,
    /// The boot is running and has left no snapshot so far.
    Running,
    /// The run is done.
    Done,
    /// The run failed and was undone.
    RolledBack,
    /// The run failed and needs `recover`.
    Incomplete,
    /// Facts alone.
    Taken,
}

/// The record of a snapshot: one file that lists the parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Version of the format.
    pub version: u32,
    /// Number of the snapshot. Numbers increase whatever the clock does.
    pub number: u64,
    /// Time by the node's clock; seconds since 1970.
    pub at: u64,
    /// The reason for the snapshot.
    pub event: Event,
    /// The result.
    pub outcome: Outcome,
    /// Boot id, if the snapshot is from the running system.
    pub boot: Option<String>,
    /// Id of the run.
    pub run: Option<String>,
    /// The node's config at that time.
    pub config: Option<String>,
    /// The deployment that ran.
    pub deployment: Option<String>,
    /// The kernel that ran.
    pub kernel: Option<String>,
    /// Id of the key of the digests: digests made with different keys cannot be compared.
    pub key: String,
    /// The names of the parts.
    pub parts: BTreeMap<Part, String>,
    /// The reasons why something is missing, such as the copy below `/boot`.
    pub notes: Vec<String>,
}

impl SnapshotRecord {
    /// The version that this program writes.
    pub const VERSION: u32 = 1;

    /// Returns true for the snapshot of a boot that finished.
    pub fn is_good_boot(&self) -> bool {
        self.event == Event::Boot && self.outcome == Outcome::Good
    }
}
