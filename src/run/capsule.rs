//! Capsules: what a run remembers of them, and what a directory holds for a new one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::base::paths;
use crate::change::capsule::accepted::AcceptedCapsules;
use crate::change::capsule::document::{
    CapsuleConfig, CapsuleDocument, CapsuleFile, CapsuleImage, VERSION, why_not_path,
};
use crate::change::capsule::opened::CapsuleFacts;
use crate::change::capsule::policy::CapsuleInput;
use crate::change::capsule::{CAPSULE, SIGNATURE};
use crate::change::image::export::DESCRIPTION;
use crate::change::image::source::{ObjectSource, STREAM};
use crate::change::source;
use crate::change::source::gate::open_capsule;
use crate::change::staging::image_source::SourceOptions;
use crate::change::transaction::store_value;
use crate::config::document;
use crate::host::progress::{self, Work};
use crate::host::root::{EntryType, Root, RootPath, digest_ahead, sha256_hex};
use crate::node::images::object_store::read_image;
use crate::node::images::ostree_objects::parse_checksum;
use crate::run::events::{self, NodeEvent};

/// Remembers a capsule whose config or image (`what`) a run takes, so that no older one is accepted any more, and says so in the
/// journal. `digest` is that of the config.
///
/// # Errors
/// It cannot be remembered; nothing was changed.
pub fn remember_capsule(
    root: &Root,
    facts: &CapsuleFacts,
    what: &str,
    digest: Option<&str>,
) -> Result<()> {
    let before = AcceptedCapsules::read(root)?;
    let is_known = before.as_ref().is_some_and(|before| {
        before.last == *facts && digest.is_none_or(|digest| before.signer_of(digest) == Some(facts))
    });
    // A config of the cache was signed by an earlier capsule.
    let is_older = before
        .as_ref()
        .is_some_and(|before| before.last.sequence > facts.sequence);
    if !is_known && !is_older {
        let accepted =
            AcceptedCapsules::after_capsule(before, facts, digest.map(|digest| (what, digest)));
        store_value(root, paths::CAPSULES, &accepted).context("remembering the capsule")?;
    }
    events::send_event(root, &NodeEvent::CapsuleAccepted(&facts.to_string()), what);
    Ok(())
}

/// Remembers the capsule of an image that is about to be staged from a medium.
///
/// # Errors
/// The capsule was changed since the plan was made, or cannot be remembered.
pub fn remember_image_capsule(root: &Root, options: &SourceOptions<'_>, image: &str) -> Result<()> {
    let Some(path) = options.os_from else {
        return Ok(());
    };
    let near = (path != Path::new(STREAM)).then_some(path);
    match open_capsule(root, &options.capsule, CapsuleInput::Images, near)? {
        Some(opened) => remember_capsule(root, &opened.facts, image, None),
        None => Ok(()),
    }
}

/// For whom a new capsule is.
#[derive(Debug, Clone, Default)]
pub struct CapsuleScope {
    /// Name and domain of the cluster.
    pub cluster: Option<String>,
    /// Pools.
    pub pools: Vec<String>,
    /// Nodes.
    pub nodes: Vec<String>,
    /// Its end in RFC 3339.
    pub not_after: Option<String>,
    /// Its number.
    pub sequence: u64,
    /// Images that their digests prove.
    pub images: Vec<String>,
}

/// Lists a directory: every file, the configs among them, and the images of exports.
///
/// # Errors
/// Something cannot be read, or cannot be in a capsule.
pub fn list_directory(directory: &Path, scope: CapsuleScope) -> Result<CapsuleDocument> {
    let _phase = progress::begin_phase(Work::new("Hashing the files of the capsule"));
    let root = Root::open(directory).with_context(|| format!("opening {}", directory.display()))?;
    let mut listing = CapsuleListing {
        root: &root,
        files: Vec::new(),
        configs: BTreeMap::new(),
        images: scope
            .images
            .into_iter()
            .map(|image| (image, None))
            .collect(),
    };
    for name in root.list_top()? {
        listing.add_path(&name)?;
    }
    let mut files = listing.files;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let configs = listing.configs.into_iter();
    let images = listing.images.into_iter();
    Ok(CapsuleDocument {
        version: VERSION,
        cluster: scope.cluster,
        pools: scope.pools,
        nodes: scope.nodes,
        not_after: scope.not_after,
        sequence: scope.sequence,
        files,
        configs: configs
            .map(|(name, sha256)| CapsuleConfig { name, sha256 })
            .collect(),
        images: images
            .map(|(reference, content_checksum)| CapsuleImage {
                reference,
                content_checksum,
            })
            .collect(),
    })
}

struct CapsuleListing<'a> {
    root: &'a Root,
    files: Vec<CapsuleFile>,
    configs: BTreeMap<String, String>,
    images: BTreeMap<String, Option<String>>,
}

impl CapsuleListing<'_> {
    fn add_path(&mut self, relative: &str) -> Result<()> {
        // Some file systems have it from the start.
        if [CAPSULE, SIGNATURE, "lost+found"].contains(&relative) {
            return Ok(());
        }
        if let Some(why) = why_not_path(relative) {
            bail!("{relative:?} cannot be in a capsule: {why}. Rename it, or remove it");
        }
        let path = RootPath::parse(&format!("/{relative}"))?;
        let above = path.parent();
        let types = match &above {
            Some(above) => self.root.list_types(above)?,
            None => Vec::new(),
        };
        let found = types.into_iter().find(|(name, _)| name == path.name());
        let is_directory = match found {
            Some((_, kind)) => kind == EntryType::Directory,
            None => self
                .root
                .plain_directory(&path)
                .is_ok_and(|found| found.is_some()),
        };
        if is_directory {
            self.add_directory(&path)
        } else {
            self.add_file(&path)
        }
    }

    fn add_directory(&mut self, path: &RootPath) -> Result<()> {
        if self.root.exists(&path.join(DESCRIPTION)?)? {
            return self.add_images(path);
        }
        for name in self.root.list(path)? {
            self.add_path(&format!("{}/{name}", path.relative()))?;
        }
        Ok(())
    }

    /// Adds the images of an export. Its files are not listed: their names are their hashes, and the checksum of the content is of
    /// all of them.
    fn add_images(&mut self, path: &RootPath) -> Result<()> {
        let place = self.root.shown().join(path.relative());
        let source = ObjectSource::open(&place)?;
        let source =
            source.with_context(|| format!("{} is not a whole export", place.display()))?;
        for (image, commit) in source.list_images()? {
            let commit = parse_checksum(&commit);
            let commit = commit.with_context(|| format!("the ref of {image} is damaged"))?;
            let stored = read_image(source.metadata(), &image, &commit)?;
            self.images.insert(image, Some(stored.content));
        }
        Ok(())
    }

    fn add_file(&mut self, path: &RootPath) -> Result<()> {
        let relative = path.relative().to_owned();
        let is_plain = |mode: u32| mode & libc::S_IFMT == libc::S_IFREG;
        let place = self.root.open_place(path)?;
        let stat = place
            .as_ref()
            .map(|place| place.stat())
            .transpose()?
            .flatten();
        let (Some(place), Some(stat)) = (place, stat.filter(|stat| is_plain(stat.st_mode))) else {
            bail!("{relative} is a link or a device; a capsule has plain files only");
        };
        let expected = u64::try_from(stat.st_size).unwrap_or_default();
        if source::is_document(&relative) && expected <= document::MAX_JSON {
            let bytes = self.root.read_within(path, document::MAX_JSON)?;
            let bytes = bytes.with_context(|| format!("{relative} is gone"))?;
            self.add_config(&relative, &bytes);
            self.files.push(CapsuleFile {
                size: bytes.len() as u64,
                sha256: sha256_hex(&bytes),
                path: relative,
            });
            return Ok(());
        }
        let (size, sha256) = digest_ahead(place.open_file()?, expected)
            .with_context(|| format!("reading {relative}"))?;
        self.files.push(CapsuleFile {
            path: relative,
            size,
            sha256,
        });
        Ok(())
    }

    fn add_config(&mut self, relative: &str, bytes: &[u8]) {
        match document::parse_document(bytes, relative) {
            Ok(config) if !config.bare => {
                self.configs.insert(config.name, sha256_hex(bytes));
            }
            Ok(_) => {
                self.configs
                    .insert(relative.replace([' ', '/'], "-"), sha256_hex(bytes));
            }
            Err(error) => log::info!("{relative} is listed as a file: {error}"),
        }
    }
}
