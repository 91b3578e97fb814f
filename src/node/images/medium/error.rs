//! Why a medium cannot be used, and where an image on it is.

use std::fmt;
use std::path::PathBuf;

use crate::base::reason::Reason;
use crate::node::images::Form;
use crate::node::images::archive::ArchiveError;
use crate::node::images::manifest::ManifestError;

/// The reason why a medium cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// It cannot be opened.
    #[error("opening {path}: {reason}; check whether the medium is mounted", path = .path.display())]
    Open {
        /// Path of the medium.
        path: PathBuf,
        /// The system's error.
        reason: Reason,
    },
    /// It is an archive that cannot be listed.
    #[error("listing {path}: {error}", path = .path.display())]
    Archive {
        /// Path of the medium.
        path: PathBuf,
        /// The error.
        error: ArchiveError,
    },
    /// It has none of the four formats.
    #[error(
        "{path} holds no image: neither oci-layout and index.json, nor manifest.json; make one with \
         skopeo copy --all --preserve-digests docker://IMAGE oci:PATH", path = .0.display()
    )]
    NoImage(PathBuf),
    /// It is a Docker archive, which preserves neither layers nor digests.
    #[error(
        "{path} is an archive of Docker, which keeps no digests; make another copy with skopeo copy --all --preserve-digests \
         docker://IMAGE oci:PATH", path = .0.display()
    )]
    Docker(PathBuf),
    /// It has no image, or several and the caller named none.
    #[error(
        "{path} holds {1} images; name the one that is meant by its digest, as HOST/PATH@sha256:DIGEST", path = .0.display()
    )]
    NotOne(PathBuf, usize),
    /// It has a list without an image for this architecture.
    #[error("{path} has images for {1} and none for this machine; take the release of its architecture", path = .0.display())]
    NoMachine(PathBuf, String),
    /// A file on it cannot be read.
    #[error("reading {file} of {path}: {reason}; copy the image to the medium again", path = .path.display())]
    Read {
        /// The medium.
        path: PathBuf,
        /// The file in it.
        file: String,
        /// The system's error.
        reason: Reason,
    },
    /// A manifest on it cannot be parsed.
    #[error("reading {file} of {path}: {error}; copy the image to the medium again", path = .path.display())]
    Manifest {
        /// The medium.
        path: PathBuf,
        /// The file in it.
        file: String,
        /// The error.
        error: ManifestError,
    },
}

/// The reason why no program would find an image that is on the medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The rest of such a path would be taken for an image name.
    #[error(
        "its path has a colon, and skopeo takes what follows for the name of an image. Mount or move it elsewhere"
    )]
    Colon,
    /// There are several images, and the wanted one has no unique name.
    #[error(
        "it holds {0} images, and the wanted one has no name of its own there, by which skopeo could find it. \
         Put it into a directory alone: skopeo copy --all --preserve-digests docker://IMAGE oci:PATH"
    )]
    Nameless(usize),
}

/// The address under which skopeo finds an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The form of its medium.
    pub form: Form,
    /// Path of the medium.
    pub path: PathBuf,
    /// Name of the image, if the medium has several.
    pub name: Option<String>,
}

impl fmt::Display for Address {
    /// Formats the address for skopeo and rpm-ostree, such as `oci:/mnt/os:9.6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.form, self.path.display())?;
        match &self.name {
            Some(name) => write!(f, ":{name}"),
            None => Ok(()),
        }
    }
}
