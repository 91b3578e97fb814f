//! A capsule whose signature was verified, and its files.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};

use super::document::{CapsuleDocument, CapsuleFile, DocumentFault, MAX_CAPSULE};
use super::{CAPSULE, NAMESPACE, SIGNATURE};
use crate::base::reason::Reason;
use crate::formats::sshsig::{
    AllowedSigners, MAX_SIGNATURE, SignatureError, SignerError, SshSignature,
};
use crate::host::caller;
use crate::host::root::{Root, RootError, RootPath, digest_ahead, sha256_hex};

/// Maximum size of a file that is read into memory through a capsule, in bytes (256 MiB).
const MAX_READ: u64 = 256 << 20;

/// Who signed a capsule, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapsuleFacts {
    /// Sequence number.
    pub sequence: u64,
    /// SHA-256 of `capsule.json`.
    pub sha256: String,
    /// Who has the key, as `allowed_signers` names them.
    pub signer: String,
    /// Fingerprint of the key.
    pub key: String,
    /// Its end; `None` if it has none.
    pub not_after: Option<String>,
}

impl std::fmt::Display for CapsuleFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ({}), capsule {}",
            self.signer, self.key, self.sequence
        )
    }
}

/// The reason why nothing is read from a capsule.
#[derive(Debug, thiserror::Error)]
pub enum CapsuleError {
    /// One of its two files cannot be read.
    #[error("reading {path}: {reason}")]
    Read {
        /// Its path.
        path: String,
        /// The system's error.
        reason: Reason,
    },
    /// There is no list.
    #[error("{0} is missing")]
    Missing(String),
    /// One of its two files is a directory, a link or a device.
    #[error("{0} is not a plain file, so it is not read")]
    NotPlain(String),
    /// The signature is not accepted.
    #[error("the signature of {path} {fault}")]
    Signer {
        /// Path of the capsule.
        path: String,
        /// What is wrong.
        fault: SignerError,
    },
    /// The list is not accepted.
    #[error("{path} {fault}")]
    Document {
        /// Path of the capsule.
        path: String,
        /// What is wrong.
        fault: DocumentFault,
    },
    /// A file is not in the list.
    #[error("{0} is not in the capsule, so it is not read")]
    NotListed(String),
    /// A file is not what the list says.
    #[error("{path} is not the file of the capsule ({why}), so it is not read")]
    Differs {
        /// Its path.
        path: String,
        /// What differs.
        why: String,
    },
}

/// A capsule as it is on a medium, before its signature was looked at.
#[derive(Debug)]
pub struct UnverifiedCapsule {
    root: Root,
    shown: String,
    text: Vec<u8>,
    /// Its signature.
    pub signature: Result<SshSignature, SignatureError>,
}

/// A capsule whose signature was verified.
#[derive(Debug)]
pub struct OpenedCapsule {
    /// The list.
    pub document: CapsuleDocument,
    /// Who signed it.
    pub facts: CapsuleFacts,
    root: Root,
}

impl UnverifiedCapsule {
    /// Reads list and signature of a directory, each once.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read(directory: &Path) -> Result<Self, CapsuleError> {
        let root = Root::open(directory).map_err(|error| CapsuleError::Read {
            path: directory.display().to_string(),
            reason: error.into(),
        })?;
        let shown = directory.join(CAPSULE).display().to_string();
        let text = read_plain(&root, CAPSULE, MAX_CAPSULE)?;
        let text = text.ok_or_else(|| CapsuleError::Missing(shown.clone()))?;
        let signature = match read_plain(&root, SIGNATURE, MAX_SIGNATURE)? {
            Some(bytes) => SshSignature::parse(&bytes),
            None => Err(SignatureError::Missing),
        };
        Ok(Self {
            root,
            shown,
            text,
            signature,
        })
    }

    /// Returns the list without any verification, for people to look at.
    ///
    /// # Errors
    /// It is not one.
    pub fn document(&self) -> Result<CapsuleDocument, CapsuleError> {
        let parsed = CapsuleDocument::parse(&self.text);
        parsed.map_err(|fault| CapsuleError::Document {
            path: self.shown.clone(),
            fault,
        })
    }

    /// Verifies the signature by the keys that may sign at `time`; the list is parsed only then.
    ///
    /// # Errors
    /// The signature or the list is not accepted.
    pub fn verify(
        self,
        signers: &AllowedSigners,
        time: u64,
    ) -> Result<OpenedCapsule, CapsuleError> {
        let refused = |fault| CapsuleError::Signer {
            path: self.shown.clone(),
            fault,
        };
        let signature = self.signature.as_ref();
        let signature = signature.map_err(|error| refused(error.clone().into()))?;
        let signer = signers.verify(signature, &self.text, NAMESPACE, time);
        let signer = signer.map_err(refused)?;
        let document = self.document()?;
        let facts = CapsuleFacts {
            sequence: document.sequence,
            sha256: sha256_hex(&self.text),
            signer: signer.principals.clone(),
            key: signer.key.fingerprint.clone(),
            not_after: document.not_after.clone(),
        };
        Ok(OpenedCapsule {
            document,
            facts,
            root: self.root,
        })
    }
}

impl OpenedCapsule {
    /// Reads a file of the list: what is returned is the copy whose hash was compared. A file elsewhere is compared by its hash.
    ///
    /// # Errors
    /// It is not in the list, or differs from it.
    pub fn read_file(&self, path: &Path) -> Result<Vec<u8>, CapsuleError> {
        let shown = path.display().to_string();
        let Some(inside) = self.path_inside(path)? else {
            let file = caller::open_file(path).map_err(|error| read_error(path, error))?;
            let bytes = read_bounded(file).map_err(|error| read_error(path, error))?;
            return if self.lists_contents(&bytes) {
                Ok(bytes)
            } else {
                Err(CapsuleError::NotListed(shown))
            };
        };
        let listed = self.document.find_file(&inside);
        let listed = listed.ok_or_else(|| CapsuleError::NotListed(shown.clone()))?;
        let (file, size) = self.open_listed(listed)?;
        if size > MAX_READ {
            return Err(differs_error(&shown, "it is too large to be a config"));
        }
        let bytes = read_bounded(file).map_err(|error| read_error(path, error))?;
        if bytes.len() as u64 == listed.size && sha256_hex(&bytes) == listed.sha256 {
            Ok(bytes)
        } else {
            Err(differs_error(&shown, "its contents differ"))
        }
    }

    /// Returns true if a listed config has these contents.
    pub fn lists_contents(&self, bytes: &[u8]) -> bool {
        let digest = sha256_hex(bytes);
        self.document.configs.iter().any(|one| one.sha256 == digest)
    }

    /// Hashes a file of the list.
    ///
    /// # Errors
    /// It differs from the list, or cannot be read.
    pub fn check_file(&self, listed: &CapsuleFile) -> Result<(), CapsuleError> {
        let (file, size) = self.open_listed(listed)?;
        // A file that grows while it is read is not read to its end.
        let bounded = file.take(size + 1);
        let read = digest_ahead(bounded, size);
        let (found, digest) = read.map_err(|error| read_error(Path::new(&listed.path), error))?;
        if found == listed.size && digest == listed.sha256 {
            Ok(())
        } else {
            Err(differs_error(&listed.path, "its contents differ"))
        }
    }

    /// Opens a plain file of the list, without following a link, and compares its size.
    fn open_listed(&self, listed: &CapsuleFile) -> Result<(File, u64), CapsuleError> {
        let failed = |error: RootError| CapsuleError::Read {
            path: listed.path.clone(),
            reason: error.into(),
        };
        let missing = || differs_error(&listed.path, "there is no file of this name");
        let path = RootPath::parse(&format!("/{}", listed.path)).map_err(|_| missing())?;
        let above = match path.parent() {
            Some(above) => self.root.open_within(&above).map_err(failed)?,
            None => self.root.open_again().map_err(failed)?,
        };
        let name = RootPath::parse(&format!("/{}", path.name())).map_err(|_| missing())?;
        match open_plain(&above, &name).map_err(failed)? {
            PlainFile::Open(file, size) if size == listed.size => Ok((file, size)),
            PlainFile::Open(..) => Err(differs_error(&listed.path, "its size differs")),
            PlainFile::OtherType => Err(differs_error(&listed.path, "it is not a plain file")),
            PlainFile::Missing => Err(missing()),
        }
    }

    /// Returns the path below the directory of the capsule; `None` if it is elsewhere. A link at its end is not followed.
    fn path_inside(&self, path: &Path) -> Result<Option<String>, CapsuleError> {
        let failed = |error: std::io::Error| read_error(path, error);
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(CapsuleError::NotListed(path.display().to_string()));
        };
        let above = caller::resolve_links(directory_of(path)).map_err(failed)?;
        let top = caller::resolve_links(self.root.shown()).map_err(failed)?;
        let inside = above.strip_prefix(&top).ok();
        let inside = inside.map(|inside| inside.join(name).display().to_string());
        Ok(inside)
    }
}

/// Returns the directory in which a file is.
pub fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
        Some(above) => above.to_owned(),
        None => PathBuf::from("/"),
    }
}

fn differs_error(path: &str, why: &str) -> CapsuleError {
    CapsuleError::Differs {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

fn read_error(path: &Path, error: std::io::Error) -> CapsuleError {
    CapsuleError::Read {
        path: path.display().to_string(),
        reason: error.into(),
    }
}

fn read_bounded(file: File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_READ + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= MAX_READ {
        Ok(bytes)
    } else {
        Err(nix::errno::Errno::EFBIG.into())
    }
}

/// Reads a plain file of the capsule itself; `None` if there is none.
fn read_plain(
    root: &Root,
    name: &'static str,
    limit: u64,
) -> Result<Option<Vec<u8>>, CapsuleError> {
    let path = root.shown().join(name);
    let opened = open_plain(root, &RootPath::fixed(name));
    let opened = opened.map_err(|error| CapsuleError::Read {
        path: path.display().to_string(),
        reason: error.into(),
    })?;
    let (file, size) = match opened {
        PlainFile::Open(file, size) => (file, size),
        PlainFile::OtherType => return Err(CapsuleError::NotPlain(path.display().to_string())),
        PlainFile::Missing => return Ok(None),
    };
    let mut bytes = Vec::new();
    let read = file.take(limit + 1).read_to_end(&mut bytes);
    read.map_err(|error| read_error(&path, error))?;
    if size <= limit && bytes.len() as u64 <= limit {
        Ok(Some(bytes))
    } else {
        Err(read_error(&path, nix::errno::Errno::EFBIG.into()))
    }
}

/// What stands under a name.
enum PlainFile {
    Missing,
    /// A directory, a link or a device.
    OtherType,
    /// A plain file, opened, with its size in bytes.
    Open(File, u64),
}

/// Opens a plain file without following a link.
fn open_plain(root: &Root, path: &RootPath) -> Result<PlainFile, RootError> {
    let Some(place) = root.open_place(path)? else {
        return Ok(PlainFile::Missing);
    };
    let failed = |errno: nix::errno::Errno| RootError::at(path, errno);
    let is_plain = |mode: u32| mode & libc::S_IFMT == libc::S_IFREG;
    // A device is not even opened.
    match place.stat().map_err(failed)? {
        None => return Ok(PlainFile::Missing),
        Some(stat) if !is_plain(stat.st_mode) => return Ok(PlainFile::OtherType),
        Some(_) => {}
    }
    let file = place.open_file().map_err(failed)?;
    let stat = fstat(&file).map_err(failed)?;
    if !is_plain(stat.st_mode) {
        return Ok(PlainFile::OtherType);
    }
    let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    Ok(PlainFile::Open(file, size))
}
