//! Capsules: what a run remembers of them, and what a directory holds for a new one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::change::capsule::accepted::TakenFromCapsule;
use crate::change::capsule::document::{
    CapsuleConfig, CapsuleDocument, CapsuleFile, CapsuleImage, VERSION, why_not_path,
};
use crate::change::capsule::{CAPSULE, SIGNATURE};
use crate::change::image::export::DESCRIPTION;
use crate::change::image::source::ObjectSource;
use crate::change::source;
use crate::change::transaction;
use crate::config::document;
use crate::host::progress::{self, Work};
use crate::host::root::{EntryType, Root, RootPath, digest_ahead, sha256_hex};
use crate::node::images::object_store::read_image;
use crate::node::images::ostree_objects::parse_checksum;
use crate::run::events::{self, NodeEvent};

/// Remembers what was taken from a capsule outside of a transaction, so that no older one is accepted any more, and says so in the
/// journal.
///
/// # Errors
/// It cannot be remembered.
pub fn remember_capsule(root: &Root, taken: &TakenFromCapsule) -> Result<()> {
    transaction::remember_capsule(root, taken)?;
    let signed = taken.signed.to_string();
    events::send_event(root, &NodeEvent::CapsuleAccepted(&signed), &taken.what);
    Ok(())
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
    let root = Root::open(directory)?;
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
        let added = listing.add_path(&name);
        added.with_context(|| format!("listing {}", directory.display()))?;
    }
    if listing.files.is_empty() && listing.images.is_empty() {
        bail!(
            "{} is empty; mount the stick, and copy onto it what the capsule is to hold",
            directory.display()
        );
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
            .map(|(reference, checksums)| {
                let (content_checksum, layers_checksum) = checksums.unzip();
                CapsuleImage {
                    reference,
                    content_checksum,
                    layers_checksum,
                }
            })
            .collect(),
    })
}

/// What file systems, other systems and an interrupted `capsule make` leave at the top of a stick. It changes without anybody's
/// doing.
const NOT_OURS: [&str; 8] = [
    "lost+found",
    "System Volume Information",
    "$RECYCLE.BIN",
    ".Trashes",
    ".fseventsd",
    ".Spotlight-V100",
    ".capsule.json.new",
    ".capsule.json.sig.new",
];

struct CapsuleListing<'a> {
    root: &'a Root,
    files: Vec<CapsuleFile>,
    configs: BTreeMap<String, String>,
    /// By reference: the checksums of the tree and of the layers, if its digest does not prove it.
    images: BTreeMap<String, Option<(String, String)>>,
}

impl CapsuleListing<'_> {
    fn add_path(&mut self, relative: &str) -> Result<()> {
        if [CAPSULE, SIGNATURE].contains(&relative) || NOT_OURS.contains(&relative) {
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
            let place = self.root.shown().join(path.relative());
            let source = ObjectSource::open(&place)?;
            let source =
                source.with_context(|| format!("{} is not a whole export", place.display()))?;
            return self.add_images(&source);
        }
        for name in self.root.list(path)? {
            self.add_path(&format!("{}/{name}", path.relative()))?;
        }
        Ok(())
    }

    /// Adds the images of an export. Its files are not listed: their names are their hashes, and the checksum of the content is of
    /// all of them.
    fn add_images(&mut self, source: &ObjectSource) -> Result<()> {
        for (image, commit) in source.list_images()? {
            let commit = parse_checksum(&commit);
            let commit = commit.with_context(|| format!("the ref of {image} is damaged"))?;
            let stored = read_image(source.metadata(), &image, &commit)?;
            self.images
                .insert(image, Some((stored.content, stored.layers_checksum)));
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
            bail!(
                "{relative} is a link, a device or a pipe; a capsule has plain files only. Remove it"
            );
        };
        let expected = u64::try_from(stat.st_size).unwrap_or_default();
        if source::is_document(&relative) && expected <= document::MAX_JSON {
            let bytes = self.root.read_within(path, document::MAX_JSON)?;
            let bytes = bytes.with_context(|| format!("{relative} is gone"))?;
            self.add_config(&relative, &bytes)?;
            self.files.push(CapsuleFile {
                size: bytes.len() as u64,
                sha256: sha256_hex(&bytes),
                path: relative,
            });
            return Ok(());
        }
        if let Some(source) = ObjectSource::open(&self.root.shown().join(&relative))? {
            self.add_images(&source)?;
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

    fn add_config(&mut self, relative: &str, bytes: &[u8]) -> Result<()> {
        let name = match document::parse_document(bytes, relative) {
            Ok(config) if !config.bare => config.name,
            Ok(_) => relative.replace([' ', '/'], "-"),
            Err(error) => {
                log::info!("{relative} is listed as a file: {error}");
                return Ok(());
            }
        };
        let digest = sha256_hex(bytes);
        if self
            .configs
            .get(&name)
            .is_some_and(|known| *known != digest)
        {
            bail!("{relative} is another config with the name {name}. Leave one of the two out");
        }
        self.configs.insert(name, digest);
        Ok(())
    }
}
