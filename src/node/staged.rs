//! The deployment that waits for the next reboot, and the evidence of what staged it.

use nix::sys::stat::FileStat;

use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::command::origin::OriginFile;
use crate::node::command::ostree::StagedFile;
use crate::node::command::rpm_ostree::arguments;
use crate::node::command::rpm_ostree::status::staged_by;
use crate::node::command::systemctl::UnitActivity;
use crate::node::command::{CommandRunner, bootc, systemctl};

/// Units of programs that stage a deployment on their own.
const STAGERS: [&str; 2] = ["bootc-operator-switch.service", bootc::UPDATE_TIMER];

/// Largest file of a staged deployment that is read, in bytes.
const MAX_STAGED_FILE: u64 = 1 << 20;

/// The evidence of a staged deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StagedEvidence {
    /// The file from which ostree writes the deployment at shutdown; `None` if its format is not known.
    pub file: Option<StagedFile>,
    /// Its origin file.
    pub origin: Option<OriginFile>,
    /// The program that was at work when the deployment was staged, according to the journal, in words.
    pub client: Option<String>,
    /// The running units of programs that stage on their own.
    pub units: Vec<UnitActivity>,
}

impl StagedEvidence {
    /// Reads the evidence; `None` if nothing is staged.
    ///
    /// # Errors
    /// The root cannot be read. A missing or failing program is only logged.
    pub fn observe(root: &Root, runner: &dyn CommandRunner) -> Result<Option<Self>, RootError> {
        if !root.is_live() || !root.exists(&RootPath::fixed(paths::STAGED_DEPLOYMENT))? {
            return Ok(None);
        }
        let file = staged_file(root)?;
        let origin = match &file {
            Some(file) => read_staged_origin(root, file)?,
            None => None,
        };
        let units = systemctl::query_activity(runner, &STAGERS).unwrap_or_else(|error| {
            log::info!("querying systemd: {error}");
            Vec::new()
        });
        let path = RootPath::fixed(paths::STAGED_DEPLOYMENT);
        let written = root.read_with_stat(&path, MAX_STAGED_FILE)?;
        let journal = runner.run(&arguments::staging_journal());
        let journal = journal.inspect_err(|error| log::info!("reading the journal: {error}"));
        let client = match (journal, written) {
            (Ok(journal), Some((_, stat))) => staged_by(&journal.stdout, written_at(&stat)),
            _ => None,
        };
        Ok(Some(Self {
            file,
            origin,
            client,
            units: units.into_iter().filter(UnitActivity::is_running).collect(),
        }))
    }
}

/// Returns the time when a file was last changed, in microseconds since 1970.
fn written_at(stat: &FileStat) -> u64 {
    let micros = stat.st_mtime * 1_000_000 + stat.st_mtime_nsec / 1_000;
    u64::try_from(micros).unwrap_or_default()
}

/// Reads the origin file of the staged deployment.
///
/// # Errors
/// It cannot be read.
pub fn read_staged_origin(root: &Root, file: &StagedFile) -> Result<Option<OriginFile>, RootError> {
    let path = format!(
        "/{}/{}/deploy/{}.origin",
        paths::STATEROOTS,
        file.stateroot,
        file.name
    );
    let Ok(path) = RootPath::parse(&path) else {
        return Ok(None);
    };
    let bytes = root.read(&path)?;
    Ok(bytes.map(|bytes| OriginFile::parse(&String::from_utf8_lossy(&bytes))))
}

/// Reads the file of the staged deployment, with its lock in the new or the older form.
///
/// # Errors
/// A file cannot be read.
pub fn staged_file(root: &Root) -> Result<Option<StagedFile>, RootError> {
    let Some(bytes) = root.read(&RootPath::fixed(paths::STAGED_DEPLOYMENT))? else {
        return Ok(None);
    };
    let lock = root.exists(&RootPath::fixed(paths::STAGED_LOCK))?;
    Ok(StagedFile::parse(&bytes).map(|file| StagedFile {
        locked: file.locked || lock,
        ..file
    }))
}
