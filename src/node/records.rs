//! The daemon's records on the node: the config that the daemon takes for the node's.

use nix::errno::Errno;
use nix::sys::stat::FileStat;

use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::config::document::{self, DocumentError, MachineConfig, RecordReading, Text};
use crate::host::root::{ResolveError, Root, RootError, RootPath};

/// A MachineConfig stored on the node.
#[derive(Debug, Clone)]
pub enum Recorded {
    /// No such file.
    Missing,
    /// A file that is refused here, for this reason. The daemon may still read it ([`RecordReader`]).
    Broken(Reason),
    /// A complete MachineConfig.
    Present(Box<MachineConfig>),
}

/// How the daemon's own parser treats `currentconfig` (docs/develop/agreement.md: Files on a node).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordReader {
    /// Like this program: it reads the same config, or there is no file.
    Same,
    /// It reads a config of this name, which is refused here; the name may be empty.
    Reads(String),
    /// It fails with exactly this message, and the daemon is Degraded.
    Says(String),
    /// It fails with a message that depends on the version of Go; the reason.
    Fails(Reason),
}

/// The daemon's files on a node.
#[derive(Debug, Clone)]
pub struct Records {
    /// `currentconfig`.
    pub current_config: Recorded,
    /// How the daemon treats it.
    pub reader: RecordReader,
    /// Time of its last write, in seconds since 1970 by the node's clock.
    pub written: Option<u64>,
    /// `currentimage`, trimmed; `None` if there is no such file.
    pub current_image: Option<String>,
    /// The full config that the Machine Config Server served at the first boot.
    pub mcs_content: Recorded,
    /// `node-annotations.json` exists, so the daemon will ignore `currentconfig`.
    pub node_annotations: bool,
    /// A backup copy of one of these exists, so the node's first boot is over.
    pub first_boot_over: bool,
    /// The encapsulated first-boot config exists, so the first-boot service runs at the next boot.
    pub encapsulated: bool,
}

/// The current config of the disk: the "old" side of a transition.
#[derive(Debug, Clone, Copy)]
pub enum Baseline<'a> {
    /// A config that has its Ignition part.
    Known(&'a MachineConfig),
    /// It is unknown, for this reason; nothing is then removed as stale.
    Unknown(&'static str),
}

impl<'a> Baseline<'a> {
    /// Returns the config, if there is one.
    pub fn config(self) -> Option<&'a MachineConfig> {
        match self {
            Self::Known(config) => Some(config),
            Self::Unknown(_) => None,
        }
    }
}

impl Records {
    /// Reads the records.
    pub fn read(root: &Root) -> Result<Self, RootError> {
        Self::read_knowing(root, &[])
    }

    /// Reads the records. Faster if the recorded config equals one of the known configs.
    pub fn read_knowing(root: &Root, known: &[&MachineConfig]) -> Result<Self, RootError> {
        Self::read_by(root, known, document::parse_document)
    }

    /// Reads the records. `share` gets the text of `currentconfig` before it is parsed, so that another thread can work on it.
    pub fn read_and_share(root: &Root, share: impl FnOnce(&Text)) -> Result<Self, RootError> {
        Self::read_by(root, &[], |bytes, origin| {
            document::parse_and_share(bytes, origin, share)
        })
    }

    fn read_by(
        root: &Root,
        known: &[&MachineConfig],
        parse: impl FnOnce(Vec<u8>, &str) -> Result<MachineConfig, DocumentError>,
    ) -> Result<Self, RootError> {
        let image = root.read(&RootPath::fixed(paths::CURRENT_IMAGE))?;
        let (strictly, own_text) = read_record(root, paths::CURRENT_CONFIG, known, parse)?;
        let (current_config, reader) = if own_text {
            (strictly, RecordReader::Same)
        } else {
            as_the_daemon_reads(root, strictly)?
        };
        Ok(Self {
            current_config,
            reader,
            written: written_time(root),
            current_image: image.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()),
            mcs_content: read_record(root, paths::MCS_CONTENT, known, document::parse_document)?.0,
            node_annotations: root.exists(&RootPath::fixed(paths::NODE_ANNOTATIONS))?,
            first_boot_over: root.exists(&RootPath::fixed(paths::NODE_ANNOTATIONS_KEPT))?,
            encapsulated: root.exists(&RootPath::fixed(paths::ENCAPSULATED))?,
        })
    }

    /// Returns the recorded config, if there is a readable one.
    pub fn recorded_config(&self) -> Option<&MachineConfig> {
        match &self.current_config {
            Recorded::Present(config) => Some(config),
            Recorded::Missing | Recorded::Broken(_) => None,
        }
    }

    /// Returns the name of the recorded config.
    pub fn name(&self) -> Option<String> {
        self.recorded_config().map(|config| config.name.clone())
    }

    /// Returns the old side of a transition (docs/explanation/operating-system.md). After a first boot `currentconfig` has an empty
    /// Ignition part, which would make every file look new and nothing stale.
    pub fn baseline(&self) -> Baseline<'_> {
        let current = match &self.current_config {
            Recorded::Missing => return Baseline::Unknown("the node has no currentconfig"),
            Recorded::Broken(_) => return Baseline::Unknown("currentconfig cannot be read"),
            Recorded::Present(config) => config,
        };
        if !current.emptied {
            return Baseline::Known(current);
        }
        match &self.mcs_content {
            Recorded::Present(served) if served.name == current.name => Baseline::Known(served),
            _ => Baseline::Unknown(
                "currentconfig has an empty Ignition part, as first boot leaves it",
            ),
        }
    }
}

/// Reads a record again as the daemon does, unless the whole file is a config that is accepted here.
fn as_the_daemon_reads(
    root: &Root,
    strictly: Recorded,
) -> Result<(Recorded, RecordReader), RootError> {
    let path = RootPath::fixed(paths::CURRENT_CONFIG);
    let bytes = match root.read_within(&path, document::MAX_JSON) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok((Recorded::Missing, RecordReader::Same)),
        Err(error) if is_directory(&error) => {
            // Go's message for reading a directory.
            let said = format!("read {path}: is a directory");
            return Ok((strictly, RecordReader::Says(said)));
        }
        Err(error) => return Err(error),
    };
    Ok(match document::read_record(&bytes) {
        RecordReading::Says(said) => (strictly, RecordReader::Says(said)),
        RecordReading::Fails(why) => (strictly, RecordReader::Fails(why)),
        RecordReading::Object { name, text } => {
            match document::parse_document(text, &path.to_string()) {
                Ok(config) => (Recorded::Present(Box::new(config)), RecordReader::Same),
                Err(error) => {
                    let broken = match strictly {
                        Recorded::Broken(why) => why,
                        // For example an Ignition config, which the daemon takes for an object without a name.
                        Recorded::Missing | Recorded::Present(_) => Reason::from_error(error),
                    };
                    (Recorded::Broken(broken), RecordReader::Reads(name))
                }
            }
        }
    })
}

/// Returns the time of the last write; `None` if it is unavailable.
fn written_time(root: &Root) -> Option<u64> {
    let stat = root.stat(&RootPath::fixed(paths::CURRENT_CONFIG)).ok()??;
    u64::try_from(stat.st_mtime).ok()
}

/// Returns the known config that equals a record.
fn find_same(
    root: &Root,
    file: &'static str,
    known: &[&MachineConfig],
) -> Result<Option<MachineConfig>, RootError> {
    let path = RootPath::fixed(file);
    for config in known {
        let Some(document) = root.open_followed(&path)? else {
            return Ok(None);
        };
        let has_digest = root.known_digest(&document).as_deref() == Some(&*config.digest);
        // The caller reports a read error when it reads the whole file.
        if has_digest || config.is_text_of(document).unwrap_or(false) {
            return Ok(Some(MachineConfig {
                origin: format!("/{file}"),
                additions: Vec::new(),
                ..(*config).clone()
            }));
        }
    }
    Ok(None)
}

/// The result of reading a record.
enum Read {
    Known(Box<MachineConfig>),
    Bytes(Vec<u8>, FileStat),
    Nothing,
}

fn is_directory(error: &RootError) -> bool {
    error.cause == ResolveError::System(Errno::EISDIR)
}

/// Reads a record. Also returns whether the file is exactly a config as the daemon writes it, or is missing.
fn read_record(
    root: &Root,
    file: &'static str,
    known: &[&MachineConfig],
    parse: impl FnOnce(Vec<u8>, &str) -> Result<MachineConfig, DocumentError>,
) -> Result<(Recorded, bool), RootError> {
    let read = || -> Result<_, RootError> {
        if let Some(same) = find_same(root, file, known)? {
            return Ok(Read::Known(Box::new(same)));
        }
        let read = root.read_with_stat(&RootPath::fixed(file), document::MAX_JSON)?;
        Ok(read.map_or(Read::Nothing, |(bytes, stat)| Read::Bytes(bytes, stat)))
    };
    let (bytes, stat) = match read() {
        Ok(Read::Known(config)) => return Ok((Recorded::Present(config), true)),
        Ok(Read::Nothing) => return Ok((Recorded::Missing, true)),
        Ok(Read::Bytes(bytes, stat)) => (bytes, stat),
        Err(error) if is_directory(&error) => {
            let problem = format!("/{file} is a directory. Move it away, then apply a config");
            return Ok((Recorded::Broken(problem.into()), false));
        }
        Err(error) => return Err(error),
    };
    let json = bytes.trim_ascii_start().starts_with(b"{");
    let written = bytes.trim_ascii().len();
    Ok(match parse(bytes, &format!("/{file}")) {
        Ok(config) => {
            // The record as on disk, not converted to JSON or padded with blanks.
            let size = config.record.len() as u64;
            let sha256 = config.digest.clone().into();
            if json && !config.bare {
                root.digests()
                    .learn_read(&stat, &ObjectKind::File { size, sha256 });
            }
            let own_text = json && config.record.len() == written;
            (Recorded::Present(Box::new(config)), own_text)
        }
        Err(error) => (Recorded::Broken(Reason::from_error(error)), false),
    })
}
