//! A medium with an image: an OCI directory or archive, skopeo's `dir:`, or a Docker archive.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::archive::{Archive, ArchiveError};
use super::manifest::{Descriptor, Manifest, ManifestError};
use super::{Digest, ImageName};
use crate::base::reason::Reason;
use crate::host::root::{ResolveError, Root, RootError, RootPath, digest_reader};
use nix::errno::Errno;

/// Maximum size of a manifest (4 MiB), the same limit as in registries.
const MAX_MANIFEST: u64 = 4 << 20;
/// Lists in lists.
const MAX_DEPTH: usize = 3;
/// Maximum number of manifests that are read on one level.
const MAX_NAMED: usize = 4096;

/// The layout of an image on a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `oci:PATH`.
    OciDirectory,
    /// `oci-archive:PATH`.
    OciArchive,
    /// `dir:PATH`.
    Dir,
    /// `docker-archive:PATH`, written by `docker save` and `podman save`: layers are uncompressed and the digest is lost.
    DockerArchive,
}

/// A medium that was opened.
#[derive(Debug)]
pub struct Medium {
    /// Layout.
    pub form: Form,
    /// Path on the running system.
    pub path: PathBuf,
    files: MediumFiles,
}

#[derive(Debug)]
enum MediumFiles {
    Directory(Root),
    Archive(Archive),
}

/// The reason why a medium cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MediumError {
    /// It cannot be opened.
    #[error("opening {path}: {reason}; look whether the medium is mounted", path = .path.display())]
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

/// An image on a medium: the contents of its config, and its layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedImage {
    /// Digest of its manifest.
    pub digest: Digest,
    /// Architecture in Go's names; `None` if the config has none.
    pub architecture: Option<String>,
    /// Labels of its config.
    pub labels: BTreeMap<String, String>,
    /// Its layers, lowest first.
    pub layers: Vec<Descriptor>,
}

/// The part of an image's config that is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ImageConfig {
    pub(super) architecture: String,
    pub(super) config: InnerConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct InnerConfig {
    pub(super) labels: Option<BTreeMap<String, String>>,
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

/// How thoroughly blobs are checked.
#[allow(
    missing_debug_implementations,
    reason = "a caller's function has nothing to show"
)]
pub enum MediumCheck<'a> {
    /// Only their sizes, which is quick on every medium.
    Sizes,
    /// Their contents too, which means reading the whole image. The function is called with each number of bytes read.
    Digests(&'a mut dyn FnMut(u64)),
}

/// The result of a check: the parts of the wanted image on a medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediumReport {
    /// Digest of the wanted image.
    pub wanted: Digest,
    /// The verdict.
    pub verdict: BlobVerdict,
    /// Every blob that it needs, including the manifests.
    pub blobs: Vec<Blob>,
}

/// Whether a medium provides an image bit-exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobVerdict {
    /// It does. Has the manifest for this machine if the wanted digest is that of a list.
    Exact(Option<Digest>),
    /// It has the image, but parts are missing or damaged: see the blobs.
    Damaged,
    /// The wanted digest is that of a list without an image for this machine; the machines in the list.
    NoPlatform(Vec<String>),
    /// It has other images; their digests.
    Other(Vec<Digest>),
    /// The manifest is present, but nothing refers to it, so no program finds it.
    Unnamed,
    /// Its format cannot preserve digests; the digest of an image created from it.
    Lost(Option<Digest>),
}

/// A part of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// Its digest.
    pub digest: Digest,
    /// Its purpose in the image.
    pub role: BlobRole,
    /// Its size according to the manifest, in bytes.
    pub size: u64,
    /// Its state on the medium.
    pub state: BlobState,
}

/// The purpose of a blob in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobRole {
    /// A list of manifests.
    List,
    /// The manifest of an image.
    Manifest,
    /// Its config.
    Config,
    /// A layer.
    Layer,
}

/// The state of a blob on the medium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobState {
    /// Complete, as far as it was checked.
    Whole,
    /// Nothing.
    Missing,
    /// Present with a wrong number of bytes.
    Size(u64),
    /// Present with the right size, but another digest.
    Differs(Digest),
}

impl Medium {
    /// Opens a directory or archive, and detects its format by its content.
    ///
    /// # Errors
    /// It is missing, or has no image.
    pub fn open(path: &Path) -> Result<Self, MediumError> {
        let open = |reason: Reason| MediumError::Open {
            path: path.to_owned(),
            reason,
        };
        let files = match Root::open(path) {
            Ok(root) => MediumFiles::Directory(root),
            Err(error) if !is_no_directory(&error) => return Err(open(error.into())),
            Err(_) => MediumFiles::Archive(Self::open_archive(path)?),
        };
        let mut medium = Self {
            form: Form::Dir,
            path: path.to_owned(),
            files,
        };
        medium.form = medium.find_form()?;
        Ok(medium)
    }

    fn open_archive(path: &Path) -> Result<Archive, MediumError> {
        let open = |reason: Reason| MediumError::Open {
            path: path.to_owned(),
            reason,
        };
        let nothing = || open(Errno::ENOENT.into());
        let above = match path.parent() {
            Some(above) if above.as_os_str().is_empty() => Path::new("."),
            Some(above) => above,
            None => return Err(nothing()),
        };
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(nothing)?;
        let root = Root::open(above).map_err(|error| open(error.into()))?;
        let inside =
            RootPath::parse(&format!("/{name}")).map_err(|error| open(error.to_string().into()))?;
        let file = root
            .open_file(&inside)
            .map_err(|error| open(error.into()))?;
        Archive::list(file.ok_or_else(nothing)?).map_err(|error| MediumError::Archive {
            path: path.to_owned(),
            error,
        })
    }

    fn find_form(&self) -> Result<Form, MediumError> {
        let is_directory = matches!(self.files, MediumFiles::Directory(_));
        if self.files.size("index.json").is_some() && self.files.size("oci-layout").is_some() {
            return Ok(if is_directory {
                Form::OciDirectory
            } else {
                Form::OciArchive
            });
        }
        if self.files.size("manifest.json").is_some() {
            let list = self.read_bounded("manifest.json")?;
            let is_docker = list.trim_ascii_start().starts_with(b"[");
            return match (is_docker, is_directory) {
                (true, _) => Ok(Form::DockerArchive),
                (false, true) => Ok(Form::Dir),
                (false, false) => Err(MediumError::NoImage(self.path.clone())),
            };
        }
        Err(MediumError::NoImage(self.path.clone()))
    }

    /// Returns its reference for skopeo and rpm-ostree, such as `oci:/mnt/os`.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.form, self.path.display())
    }

    /// Returns the address under which skopeo finds the image with this digest, which is on the medium.
    ///
    /// # Errors
    /// The medium cannot be read. The inner error: skopeo cannot find the image.
    pub fn address(&self, wanted: &Digest) -> Result<Result<Address, AddressError>, MediumError> {
        let mut address = Address {
            form: self.form,
            path: self.path.clone(),
            name: None,
        };
        if !matches!(self.form, Form::OciDirectory | Form::OciArchive) {
            return Ok(Ok(address));
        }
        if self.path.to_string_lossy().contains(':') {
            return Ok(Err(AddressError::Colon));
        }
        let top = self.top_manifests()?;
        if top.len() > 1 {
            address.name = self.name_of(wanted, &top);
            if address.name.is_none() {
                return Ok(Err(AddressError::Nameless(top.len())));
            }
        }
        Ok(Ok(address))
    }

    /// Returns the name of the image, or of the list that contains it. Of several images with one name skopeo takes the first.
    fn name_of(&self, wanted: &Digest, top: &[Descriptor]) -> Option<String> {
        let holds = |one: &Descriptor| {
            let inner = self.read_list(one).into_iter().flatten();
            inner.into_iter().any(|inner| &inner.digest == wanted)
        };
        let exact = top.iter().find(|one| &one.digest == wanted);
        let found = exact.or_else(|| top.iter().find(|one| holds(one)))?;
        let first = top.iter().find(|one| one.name == found.name)?;
        (first.digest == found.digest).then(|| found.name.clone())?
    }

    /// Returns the digests of the images on it, lists first.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn images(&self) -> Result<Vec<Digest>, MediumError> {
        let named = self.named_manifests()?.into_iter();
        Ok(named.map(|descriptor| descriptor.digest).collect())
    }

    /// Checks whether it provides the image with this digest, for an architecture in Go's names (`amd64`).
    ///
    /// # Errors
    /// The medium cannot be read. Missing or damaged parts of the image are in the report instead.
    pub fn examine(
        &self,
        wanted: &Digest,
        architecture: &str,
        check: &mut MediumCheck<'_>,
    ) -> Result<MediumReport, MediumError> {
        let mut report = MediumReport {
            wanted: wanted.clone(),
            verdict: BlobVerdict::Damaged,
            blobs: Vec::new(),
        };
        if self.form == Form::DockerArchive {
            report.verdict = BlobVerdict::Lost(self.docker_digest()?);
            return Ok(report);
        }
        let named = self.named_manifests()?;
        let Some(descriptor) = named.iter().find(|one| &one.digest == wanted) else {
            let lies_there = self.files.size(&self.manifest_file(wanted)).is_some();
            report.verdict = match lies_there {
                true => BlobVerdict::Unnamed,
                false => BlobVerdict::Other(named.into_iter().map(|one| one.digest).collect()),
            };
            return Ok(report);
        };
        self.add_manifests(descriptor, architecture, check, &mut report)?;
        Ok(report)
    }

    /// Returns the architecture in an image's config, in Go's names; `None` for a list, or if the config cannot be read.
    pub fn architecture(&self, image: &Digest) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Config {
            architecture: String,
        }
        let Ok(Manifest::Image { config, .. }) = self.read_manifest(&self.manifest_file(image))
        else {
            return None;
        };
        let bytes = self.read_bounded(&self.blob_file(&config.digest)).ok()?;
        let config: Config = serde_json::from_slice(&bytes).ok()?;
        Some(config.architecture).filter(|name| !name.is_empty())
    }

    /// Returns the labels, architecture and layers of the wanted image, or of the only one if none is wanted.
    ///
    /// # Errors
    /// The medium cannot be read; it does not have the wanted image, or has several and none is wanted; it does not preserve
    /// layers, as a Docker archive.
    pub fn describe_image(
        &self,
        wanted: Option<&Digest>,
        architecture: &str,
    ) -> Result<DescribedImage, MediumError> {
        if self.form == Form::DockerArchive {
            return Err(MediumError::Docker(self.path.clone()));
        }
        let mut current = match wanted {
            Some(wanted) => wanted.clone(),
            None => match self.top_manifests()?.as_slice() {
                [only] => only.digest.clone(),
                several => return Err(MediumError::NotOne(self.path.clone(), several.len())),
            },
        };
        for _ in 0..=MAX_DEPTH {
            match self.read_manifest(&self.manifest_file(&current))? {
                Manifest::List(all) => match select_machine(&all, architecture) {
                    Some(inner) => current = inner.digest.clone(),
                    None => {
                        let machines = platform_names(&all).join(", ");
                        return Err(MediumError::NoMachine(self.path.clone(), machines));
                    }
                },
                Manifest::Image { config, layers } => {
                    let bytes = self.read_bounded(&self.blob_file(&config.digest))?;
                    let config: ImageConfig = serde_json::from_slice(&bytes).unwrap_or_default();
                    let (architecture, layers) = (config.architecture, layers);
                    return Ok(DescribedImage {
                        digest: current,
                        architecture: Some(architecture).filter(|name| !name.is_empty()),
                        labels: config.config.labels.unwrap_or_default(),
                        layers,
                    });
                }
            }
        }
        Err(MediumError::NoImage(self.path.clone()))
    }

    /// Calls `with` on the bytes of a layer as stored on the medium. Several threads can read at once.
    ///
    /// # Errors
    /// The layer is missing or cannot be read.
    pub fn read_layer<T>(
        &self,
        layer: &Descriptor,
        with: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> Result<T, MediumError> {
        let file = self.blob_file(&layer.digest);
        let read = self.files.read(&file, with);
        let read = read.map_err(|error| self.read_error(&file, error.into()))?;
        read.ok_or_else(|| self.read_error(&file, Errno::ENOENT.into()))
    }

    /// Adds a manifest and everything that it refers to to the report, and updates the verdict.
    fn add_manifests(
        &self,
        descriptor: &Descriptor,
        architecture: &str,
        check: &mut MediumCheck<'_>,
        report: &mut MediumReport,
    ) -> Result<(), MediumError> {
        let wanted = report.wanted.clone();
        let mut current = descriptor.clone();
        for _ in 0..=MAX_DEPTH {
            let file = self.manifest_file(&current.digest);
            // Manifests are small, so their contents are always checked.
            let state = self.blob_state(&file, &current, &mut MediumCheck::Digests(&mut |_| {}))?;
            let whole = state == BlobState::Whole;
            let manifest = if whole {
                Some(self.read_manifest(&file)?)
            } else {
                None
            };
            let role = match manifest {
                Some(Manifest::List(_)) => BlobRole::List,
                _ => BlobRole::Manifest,
            };
            report.blobs.push(make_blob(&current, role, state));
            match manifest {
                None => return Ok(()),
                Some(Manifest::Image { config, layers }) => {
                    self.add_parts(&config, &layers, check, report)?;
                    let inner = (current.digest != wanted).then_some(current.digest);
                    if report
                        .blobs
                        .iter()
                        .all(|blob| blob.state == BlobState::Whole)
                    {
                        report.verdict = BlobVerdict::Exact(inner);
                    }
                    return Ok(());
                }
                Some(Manifest::List(all)) => match select_machine(&all, architecture) {
                    Some(inner) => current = inner.clone(),
                    None => {
                        report.verdict = BlobVerdict::NoPlatform(platform_names(&all));
                        return Ok(());
                    }
                },
            }
        }
        Ok(())
    }

    fn add_parts(
        &self,
        config: &Descriptor,
        layers: &[Descriptor],
        check: &mut MediumCheck<'_>,
        report: &mut MediumReport,
    ) -> Result<(), MediumError> {
        let roles = std::iter::once((config, BlobRole::Config));
        let mut seen = BTreeSet::new();
        for (descriptor, role) in roles.chain(layers.iter().map(|layer| (layer, BlobRole::Layer))) {
            if seen.insert(descriptor.digest.clone()) {
                let state =
                    self.blob_state(&self.blob_file(&descriptor.digest), descriptor, check)?;
                report.blobs.push(make_blob(descriptor, role, state));
            }
        }
        Ok(())
    }

    fn blob_state(
        &self,
        file: &str,
        descriptor: &Descriptor,
        check: &mut MediumCheck<'_>,
    ) -> Result<BlobState, MediumError> {
        match self.files.size(file) {
            None => return Ok(BlobState::Missing),
            Some(size) if size != descriptor.size => return Ok(BlobState::Size(size)),
            Some(_) => {}
        }
        let MediumCheck::Digests(progress) = check else {
            return Ok(BlobState::Whole);
        };
        let found = self.files.read(file, |reader| {
            digest_reader(CountedReader { reader, progress })
        });
        let found = found.map_err(|error| self.read_error(file, error.into()))?;
        Ok(match found {
            None => BlobState::Missing,
            Some((_, hex)) if hex == descriptor.digest.hex() => BlobState::Whole,
            Some((_, hex)) => BlobState::Differs(Digest(hex)),
        })
    }

    /// Returns every manifest that can be reached from the top, each once, those nearest to the top first.
    fn named_manifests(&self) -> Result<Vec<Descriptor>, MediumError> {
        let mut level = self.top_manifests()?;
        let mut all: Vec<Descriptor> = Vec::new();
        let mut seen = BTreeSet::new();
        for _ in 0..=MAX_DEPTH {
            level.retain(|descriptor| seen.insert(descriptor.digest.clone()));
            let lists = level
                .iter()
                .filter_map(|descriptor| self.read_list(descriptor));
            let below = lists.flatten().take(MAX_NAMED).collect();
            all.append(&mut level);
            level = below;
        }
        Ok(all)
    }

    /// Returns the entries of a manifest if it is a list and can be read.
    fn read_list(&self, descriptor: &Descriptor) -> Option<Vec<Descriptor>> {
        let file = self.manifest_file(&descriptor.digest);
        self.files
            .size(&file)
            .filter(|size| *size <= MAX_MANIFEST)?;
        match self.read_manifest(&file) {
            Ok(Manifest::List(inner)) => Some(inner),
            _ => None,
        }
    }

    fn top_manifests(&self) -> Result<Vec<Descriptor>, MediumError> {
        match self.form {
            Form::OciDirectory | Form::OciArchive => match self.read_manifest("index.json")? {
                Manifest::List(all) => Ok(all),
                Manifest::Image { .. } => Ok(Vec::new()),
            },
            Form::Dir => {
                let bytes = self.read_bounded("manifest.json")?;
                let descriptor = Descriptor {
                    digest: Digest::of(&bytes),
                    size: bytes.len() as u64,
                    media_type: String::new(),
                    platform: None,
                    name: None,
                };
                Ok(vec![descriptor])
            }
            Form::DockerArchive => Ok(Vec::new()),
        }
    }

    fn read_manifest(&self, file: &str) -> Result<Manifest, MediumError> {
        Manifest::parse(&self.read_bounded(file)?).map_err(|error| MediumError::Manifest {
            path: self.path.clone(),
            file: file.to_owned(),
            error,
        })
    }

    fn read_bounded(&self, file: &str) -> Result<Vec<u8>, MediumError> {
        let read = |reader: &mut dyn Read| {
            let mut bytes = Vec::new();
            reader.take(MAX_MANIFEST + 1).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = self.files.read(file, read);
        let bytes = bytes.map_err(|error| self.read_error(file, error.into()))?;
        let missing = || self.read_error(file, Errno::ENOENT.into());
        let bytes = bytes.ok_or_else(missing)?;
        if bytes.len() as u64 > MAX_MANIFEST {
            return Err(self.read_error(
                file,
                "more than 4 MiB, which is not a manifest".to_owned().into(),
            ));
        }
        Ok(bytes)
    }

    fn read_error(&self, file: &str, reason: Reason) -> MediumError {
        MediumError::Read {
            path: self.path.clone(),
            file: file.to_owned(),
            reason,
        }
    }

    fn blob_file(&self, digest: &Digest) -> String {
        match self.form {
            Form::Dir => digest.hex().to_owned(),
            _ => format!("blobs/sha256/{}", digest.hex()),
        }
    }

    fn manifest_file(&self, digest: &Digest) -> String {
        if self.form != Form::Dir {
            return self.blob_file(digest);
        }
        let top = self.read_bounded("manifest.json");
        match top.is_ok_and(|bytes| Digest::of(&bytes) == *digest) {
            true => "manifest.json".to_owned(),
            false => format!("{}.manifest.json", digest.hex()),
        }
    }

    /// Returns the digest of the manifest that skopeo creates from a Docker archive, with its uncompressed layers.
    fn docker_digest(&self) -> Result<Option<Digest>, MediumError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct MediumImage {
            config: String,
            layers: Vec<String>,
        }
        let list = self.read_bounded("manifest.json")?;
        let images: Vec<MediumImage> = serde_json::from_slice(&list).unwrap_or_default();
        // With several images, the wanted one cannot be determined.
        let Some(image) = images.first().filter(|_| images.len() == 1) else {
            return Ok(None);
        };
        let config = self.read_bounded(&image.config)?;
        let ids = diff_ids(&config);
        if ids.len() != image.layers.len() {
            return Ok(None);
        }
        let mut layers = Vec::new();
        for (id, file) in ids.iter().zip(&image.layers) {
            let begin = self.files.read(file, |reader| {
                let mut begin = Vec::new();
                reader.take(2).read_to_end(&mut begin)?;
                Ok(begin)
            });
            let begin = begin.map_err(|error| self.read_error(file, error.into()))?;
            // A compressed layer is uncompressed first, which changes its size.
            match (self.files.size(file), begin) {
                (Some(size), Some(begin)) if begin != [0x1f, 0x8b] => {
                    layers.push((id.clone(), size))
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(Digest::of(
            docker_manifest(&config, &layers).as_bytes(),
        )))
    }
}

impl MediumReport {
    /// Returns the blobs that are missing or damaged.
    pub fn bad(&self) -> impl Iterator<Item = &Blob> {
        self.blobs
            .iter()
            .filter(|blob| blob.state != BlobState::Whole)
    }

    /// Returns true if the image is complete and intact.
    pub fn is_exact(&self) -> bool {
        matches!(self.verdict, BlobVerdict::Exact(_))
    }

    /// Returns the compressed size of all layers in bytes. Importing them needs more, because they are uncompressed.
    pub fn layer_bytes(&self) -> u64 {
        let layers = self
            .blobs
            .iter()
            .filter(|blob| blob.role == BlobRole::Layer);
        layers.map(|blob| blob.size).sum()
    }

    /// Returns the same, except for layers that the node already has
    /// ([`crate::node::command::rpm_ostree::status::Deployments::layers`]).
    pub fn new_layer_bytes(&self, on_node: &[String]) -> u64 {
        let new = |blob: &&Blob| {
            blob.role == BlobRole::Layer && !on_node.contains(&blob.digest.to_string())
        };
        self.blobs.iter().filter(new).map(|blob| blob.size).sum()
    }

    /// Returns the verdict in words, with both digests if they differ, and the command that makes a good copy.
    pub fn words(&self, image: &ImageName, medium: &Medium) -> String {
        let (wanted, at) = (&self.wanted, medium.reference());
        let copy = copy_command(image, wanted);
        match &self.verdict {
            BlobVerdict::Exact(None) => format!("{at} has {wanted}, whole"),
            BlobVerdict::Exact(Some(inner)) => {
                format!("{at} has {wanted}, a list of images, and {inner} of it whole")
            }
            BlobVerdict::Damaged => {
                let bad: Vec<String> = self.bad().map(ToString::to_string).collect();
                format!(
                    "{at} has {wanted}, but damaged: {}; copy it again: {copy}",
                    bad.join(", ")
                )
            }
            BlobVerdict::NoPlatform(machines) => format!(
                "{at} has {wanted}, a list of images for {}, but none for this machine; give the release of its architecture",
                machines.join(", ")
            ),
            BlobVerdict::Other(has) => format!(
                "{at} does not have {wanted}; it has {}; a copy keeps its digest only with: {copy}",
                digests_text(has)
            ),
            BlobVerdict::Unnamed => format!(
                "{at} has the manifest {wanted}, but its index.json does not name it; copy it again: {copy}"
            ),
            BlobVerdict::Lost(has) => format!(
                "{at} is an archive of Docker, which cannot keep digests: {wanted} is wanted, and an image made of it would be {}; \
                 make another copy: {copy}",
                has.as_ref()
                    .map_or_else(|| "another one".to_owned(), ToString::to_string)
            ),
        }
    }
}

/// Returns the command that copies an image and preserves its digest; a list is copied with all its images.
pub fn copy_command(image: &ImageName, digest: &Digest) -> String {
    format!(
        "skopeo copy --all --preserve-digests docker://{}@{digest} oci:DIRECTORY",
        image.repository()
    )
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OciDirectory => "oci",
            Self::OciArchive => "oci-archive",
            Self::Dir => "dir",
            Self::DockerArchive => "docker-archive",
        })
    }
}

impl fmt::Display for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            BlobRole::List => "list",
            BlobRole::Manifest => "manifest",
            BlobRole::Config => "config",
            BlobRole::Layer => "layer",
        };
        write!(f, "{role} {} ", self.digest)?;
        match &self.state {
            BlobState::Whole => f.write_str("is whole"),
            BlobState::Missing => f.write_str("is missing"),
            BlobState::Size(size) => write!(f, "has {size} of {} bytes", self.size),
            BlobState::Differs(found) => write!(f, "holds other bytes ({found})"),
        }
    }
}

impl MediumFiles {
    /// Returns the number of bytes that are present; `None` if the file is missing.
    fn size(&self, name: &str) -> Option<u64> {
        match self {
            Self::Archive(archive) => archive.size(name),
            Self::Directory(root) => {
                let place = root.place(&path_inside(name)?).ok()??;
                let stat = place.stat().ok()??;
                let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
                is_file.then(|| u64::try_from(stat.st_size).unwrap_or_default())
            }
        }
    }

    fn read<T>(
        &self,
        name: &str,
        with: impl FnOnce(&mut dyn Read) -> io::Result<T>,
    ) -> io::Result<Option<T>> {
        match self {
            Self::Archive(archive) => archive.read(name, with),
            Self::Directory(root) => {
                // Opening a pipe would block forever.
                let Some(path) = path_inside(name).filter(|_| self.size(name).is_some()) else {
                    return Ok(None);
                };
                let file = root.open_file(&path).map_err(io::Error::other)?;
                file.map(|mut file| with(&mut file)).transpose()
            }
        }
    }
}

struct CountedReader<'a, 'b> {
    reader: &'a mut dyn Read,
    progress: &'a mut &'b mut dyn FnMut(u64),
}

impl Read for CountedReader<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        (self.progress)(read as u64);
        Ok(read)
    }
}

fn path_inside(name: &str) -> Option<RootPath> {
    RootPath::parse(&format!("/{name}")).ok()
}

fn make_blob(descriptor: &Descriptor, role: BlobRole, state: BlobState) -> Blob {
    Blob {
        digest: descriptor.digest.clone(),
        role,
        size: descriptor.size,
        state,
    }
}

fn select_machine<'a>(all: &'a [Descriptor], architecture: &str) -> Option<&'a Descriptor> {
    let fits = |one: &&Descriptor| match &one.platform {
        Some((os, machine)) => os == "linux" && machine == architecture,
        None => false,
    };
    // A list of one image without a platform is taken to be for this machine.
    let only = || {
        all.first()
            .filter(|one| all.len() == 1 && one.platform.is_none())
    };
    all.iter().find(fits).or_else(only)
}

fn platform_names(all: &[Descriptor]) -> Vec<String> {
    let named = all.iter().filter_map(|one| one.platform.as_ref());
    named
        .map(|(os, machine)| format!("{os}/{machine}"))
        .collect()
}

fn digests_text(digests: &[Digest]) -> String {
    const MANY: usize = 4;
    let mut words: Vec<String> = digests.iter().take(MANY).map(ToString::to_string).collect();
    if digests.len() > MANY {
        words.push(format!("{} more", digests.len() - MANY));
    }
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    }
}

/// Returns the digests of the uncompressed layers in a config.
fn diff_ids(config: &[u8]) -> Vec<Digest> {
    let config: serde_json::Value = serde_json::from_slice(config).unwrap_or_default();
    let ids = config
        .pointer("/rootfs/diff_ids")
        .and_then(|ids| ids.as_array());
    let ids = ids.map(Vec::as_slice).unwrap_or_default();
    ids.iter()
        .filter_map(|id| Digest::parse(id.as_str()?))
        .collect()
}

/// Returns the manifest byte for byte as skopeo writes it.
fn docker_manifest(config: &[u8], layers: &[(Digest, u64)]) -> String {
    const DOCKER: &str = "application/vnd.docker";
    let part = |kind: &str, size: u64, digest: &Digest| {
        format!(r#"{{"mediaType":"{DOCKER}.{kind}","size":{size},"digest":"{digest}"}}"#)
    };
    let config = part(
        "container.image.v1+json",
        config.len() as u64,
        &Digest::of(config),
    );
    let layer = |(digest, size): &(Digest, u64)| part("image.rootfs.diff.tar.gzip", *size, digest);
    let layers: Vec<String> = layers.iter().map(layer).collect();
    format!(
        r#"{{"schemaVersion":2,"mediaType":"{DOCKER}.distribution.manifest.v2+json","config":{config},"layers":[{}]}}"#,
        layers.join(",")
    )
}
/// Returns true if the path is missing, or is a file.
fn is_no_directory(error: &RootError) -> bool {
    let kinds = [Errno::ENOTDIR, Errno::ENOENT];
    matches!(error.cause, ResolveError::System(errno) if kinds.contains(&errno))
}
