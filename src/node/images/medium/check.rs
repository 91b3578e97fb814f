//! The check of a medium: each part of its images, whether it is whole, and what to copy again.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read};

use crate::host::root::digest_reader;
use crate::node::images::manifest::{Descriptor, Manifest};
use crate::node::images::{Digest, Form, ImageName};

use super::error::MediumError;
use super::{MAX_DEPTH, Medium, digests_text, platform_names, select_machine};

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

impl MediumReport {
    /// Returns the blobs that are missing or damaged.
    pub fn bad_blobs(&self) -> impl Iterator<Item = &Blob> {
        self.blobs
            .iter()
            .filter(|blob| blob.state != BlobState::Whole)
    }

    /// Returns true if the image is complete and intact.
    pub fn is_exact(&self) -> bool {
        matches!(self.verdict, BlobVerdict::Exact(_))
    }

    /// Returns the verdict in words, with both digests if they differ, and the command that makes a good copy.
    pub fn describe_verdict(&self, image: &ImageName, medium: &Medium) -> String {
        let (wanted, at) = (&self.wanted, medium.reference());
        let copy = copy_command(image, wanted);
        match &self.verdict {
            BlobVerdict::Exact(None) => format!("{at} has {wanted}, whole"),
            BlobVerdict::Exact(Some(inner)) => {
                format!("{at} has {wanted}, a list of images, and {inner} of it whole")
            }
            BlobVerdict::Damaged => {
                let bad: Vec<String> = self.bad_blobs().map(ToString::to_string).collect();
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
fn copy_command(image: &ImageName, digest: &Digest) -> String {
    format!(
        "skopeo copy --all --preserve-digests docker://{}@{digest} oci:DIRECTORY",
        image.repository()
    )
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

fn make_blob(descriptor: &Descriptor, role: BlobRole, state: BlobState) -> Blob {
    Blob {
        digest: descriptor.digest.clone(),
        role,
        size: descriptor.size,
        state,
    }
}

impl Medium {
    /// Checks whether it provides the image with this digest, for an architecture in Go's names (`amd64`).
    ///
    /// # Errors
    /// The medium cannot be read. Missing or damaged parts of the image are in the report instead.
    pub fn check_image(
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
            let lies_there = self.has_file(&self.manifest_file(wanted))?;
            report.verdict = if lies_there {
                BlobVerdict::Unnamed
            } else {
                BlobVerdict::Other(named.into_iter().map(|one| one.digest).collect())
            };
            return Ok(report);
        };
        self.add_manifests(descriptor, architecture, check, &mut report)?;
        Ok(report)
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
        match self.size_of(file)? {
            None => return Ok(BlobState::Missing),
            Some(size) if size != descriptor.size => return Ok(BlobState::Size(size)),
            Some(_) => {}
        }
        let MediumCheck::Digests(progress) = check else {
            return Ok(BlobState::Whole);
        };
        let found = self.files.read_file(file, |reader| {
            digest_reader(CountedReader { reader, progress })
        });
        let found = found.map_err(|error| self.read_error(file, error.into()))?;
        Ok(match found {
            None => BlobState::Missing,
            Some((_, hex)) if hex == descriptor.digest.hex() => BlobState::Whole,
            Some((_, hex)) => BlobState::Differs(Digest(hex)),
        })
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
