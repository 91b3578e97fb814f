//! A medium with an image: an OCI directory or archive, skopeo's `dir:`, or a Docker archive.

mod check;
mod error;
mod files;

pub use check::{BlobRole, BlobState, BlobVerdict, MediumCheck, MediumReport};
pub use error::{Address, AddressError, MediumError};

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use serde::Deserialize;

use crate::base::reason::Reason;
use crate::host::root::Root;

use super::Digest;
use super::archive::Archive;
use super::manifest::{Descriptor, Manifest};
use files::{MediumFiles, is_no_directory};

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
        let above = Root::open_above(path).map_err(|error| open(error.into()))?;
        let (root, inside) = above.ok_or_else(nothing)?;
        let file = root
            .open_file(&inside)
            .map_err(|error| open(error.into()))?;
        Archive::list_files(file.ok_or_else(nothing)?).map_err(|error| MediumError::Archive {
            path: path.to_owned(),
            error,
        })
    }

    fn has_file(&self, file: &str) -> Result<bool, MediumError> {
        Ok(self.size_of(file)?.is_some())
    }

    fn size_of(&self, file: &str) -> Result<Option<u64>, MediumError> {
        let size = self.files.size_of(file);
        size.map_err(|error| self.read_error(file, error.into()))
    }

    fn find_form(&self) -> Result<Form, MediumError> {
        let is_directory = matches!(self.files, MediumFiles::Directory(_));
        if self.has_file("index.json")? && self.has_file("oci-layout")? {
            return Ok(if is_directory {
                Form::OciDirectory
            } else {
                Form::OciArchive
            });
        }
        if self.has_file("manifest.json")? {
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
    pub fn address_of(
        &self,
        wanted: &Digest,
    ) -> Result<Result<Address, AddressError>, MediumError> {
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
    pub fn list_images(&self) -> Result<Vec<Digest>, MediumError> {
        let named = self.named_manifests()?.into_iter();
        Ok(named.map(|descriptor| descriptor.digest).collect())
    }

    /// Returns the architecture in an image's config, in Go's names; `None` for a list, or if the config cannot be read.
    pub fn read_architecture(&self, image: &Digest) -> Option<String> {
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
        let read = self.files.read_file(&file, with);
        let read = read.map_err(|error| self.read_error(&file, error.into()))?;
        read.ok_or_else(|| self.read_error(&file, Errno::ENOENT.into()))
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
        let size = self.files.size_of(&file).ok().flatten()?;
        if size > MAX_MANIFEST {
            return None;
        }
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
                    digest: Digest::of_bytes(&bytes),
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
        let bytes = self.files.read_file(file, read);
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
        if top.is_ok_and(|bytes| Digest::of_bytes(&bytes) == *digest) {
            "manifest.json".to_owned()
        } else {
            format!("{}.manifest.json", digest.hex())
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
            let begin = self.files.read_file(file, |reader| {
                let mut begin = Vec::new();
                reader.take(2).read_to_end(&mut begin)?;
                Ok(begin)
            });
            let begin = begin.map_err(|error| self.read_error(file, error.into()))?;
            // A compressed layer is uncompressed first, which changes its size.
            match (self.size_of(file)?, begin) {
                (Some(size), Some(begin)) if begin != [0x1f, 0x8b] => {
                    layers.push((id.clone(), size))
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(Digest::of_bytes(
            docker_manifest(&config, &layers).as_bytes(),
        )))
    }
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
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(", ")
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
        &Digest::of_bytes(config),
    );
    let layer = |(digest, size): &(Digest, u64)| part("image.rootfs.diff.tar.gzip", *size, digest);
    let layers: Vec<String> = layers.iter().map(layer).collect();
    format!(
        r#"{{"schemaVersion":2,"mediaType":"{DOCKER}.distribution.manifest.v2+json","config":{config},"layers":[{}]}}"#,
        layers.join(",")
    )
}
