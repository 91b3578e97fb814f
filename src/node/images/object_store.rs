//! An OSTree repository at any place: the node's own, that of a mounted disk, or an exported one. It is only read.
//!
//! Images are found as ostree-ext imported them: a merge commit under `ostree/container/image/NAME`, whose metadata has the
//! manifest's digest, the manifest and the image's config, and one commit for each layer under `ostree/container/blob/DIGEST`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader, Read};

use flate2::read::DeflateDecoder;
use nix::sys::stat::FileStat;
use serde_json::Value;

use super::ostree_objects::{
    ArchivedHeader, Checksum, Commit, DirTree, OstreeObjectKind, object_path, parse_checksum,
};
use crate::host::root::{
    EntryType, Place, Root, RootError, RootPath, sha256_hex, skip_obstacle, to_hex,
};
use crate::node::command::origin::OriginFile;
use crate::node::command::rpm_ostree::status::digest_in;
use crate::node::images::medium::ImageConfig;

/// Path of the node's repository, as a deployment sees it.
pub const NODE_REPOSITORY: &str = "sysroot/ostree/repo";
/// Places of the repository on a disk, in an export, or in the repository itself, relative to what was named.
const PLACES: [&str; 4] = ["", "ostree/repo", "sysroot/ostree/repo", "repo"];
/// Refs of images, each below its name in ostree-ext's escapes.
const IMAGE_REFS: &str = "refs/heads/ostree/container/image";
/// Prefix of the refs of images.
const IMAGE_PREFIX: &str = "ostree/container/image";
/// Prefix of the refs of layers.
const LAYER_PREFIX: &str = "ostree/container/blob";
/// Key in the metadata of a commit: the digest of the image's manifest.
const MANIFEST_DIGEST: &str = "ostree.manifest-digest";
/// Key in the metadata of a commit with packages that were layered on the node.
const CLIENT_LAYER: &str = "rpmostree.clientlayer";
/// Maximum size of a metadata object, in bytes; OSTree's own limit is also 128 MiB.
pub const MAX_METADATA: u64 = 128 << 20;
/// Maximum size of the header of an archived file, in bytes.
const MAX_HEADER: u32 = 1 << 20;
/// Maximum number of objects in one repository.
pub const MAX_OBJECTS: usize = 4_000_000;

/// How a repository stores the objects of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreMode {
    /// As they are in a deployment, with owners and attributes.
    Bare,
    /// Compressed, with owners and attributes in a header.
    Archive,
}

impl StoreMode {
    /// Returns the extension of a file's object.
    pub fn file_extension(self) -> &'static str {
        match self {
            Self::Bare => "file",
            Self::Archive => "filez",
        }
    }
}

/// An object of a repository.
pub type ObjectId = (OstreeObjectKind, Checksum);

/// The content of a file's object.
#[allow(missing_debug_implementations, reason = "a reader has nothing to show")]
pub enum FileContent {
    /// Target of a symbolic link.
    Link(String),
    /// Size in bytes, and the bytes.
    File(u64, Box<dyn Read>),
}

/// An OSTree repository.
#[derive(Debug)]
pub struct ObjectStore {
    root: Root,
    mode: StoreMode,
    /// The directory with the stateroots beside it: what contains it, and its path there. An export has none.
    stateroots: Option<(Root, RootPath)>,
}

/// The reason why a repository or an image in it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The repository stores files in another way.
    #[error(
        "{path}: the repository has the mode {mode:?}, and only bare and archive are supported; pull the image into one: ostree \
         --repo=DIR init --mode=archive, then ostree --repo=DIR pull-local {path}"
    )]
    Mode {
        /// Path of the repository.
        path: String,
        /// Its mode.
        mode: String,
    },
    /// An object is missing, or its content does not match its name.
    #[error(
        "{path}/{object}: {fault}, so the image there is incomplete; check it with ostree fsck --repo={path}, or take the image \
         from another node"
    )]
    Object {
        /// Path of the repository.
        path: String,
        /// Path of the object below it.
        object: String,
        /// What is wrong.
        fault: &'static str,
    },
    /// A ref or a commit of an image does not have the form that ostree-ext writes.
    #[error("{path}: the image {image} {why}")]
    Image {
        /// Path of the repository.
        path: String,
        /// Name of the image.
        image: String,
        /// The difference.
        why: String,
    },
}

/// An image in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    /// Its name with the digest, as `osImageURL` has it.
    pub name: String,
    /// Its merge commit.
    pub commit: Checksum,
    /// Digest of its manifest, according to the commit: `sha256:` and 64 hex digits.
    pub digest: String,
    /// Checksum of its tree, as `ostree show` prints it.
    pub content: String,
    /// Architecture in Go's names, if its config has one.
    pub architecture: Option<String>,
    /// Labels of its config.
    pub labels: BTreeMap<String, String>,
    /// Layers, lowest first: the full ref and the commit of each.
    pub layers: Vec<(String, Checksum)>,
    /// SHA-256 of lines with the ref of each layer, a blank, and the checksum of its tree.
    pub layers_checksum: String,
}

impl StoredImage {
    /// Returns the full ref of the image in a repository that imported it from its registry.
    pub fn image_ref(&self) -> String {
        format!(
            "{IMAGE_PREFIX}/{}",
            escape_ref(&format!("docker://{}", self.name))
        )
    }

    /// Returns every commit of the image: the merge commit, then the layers.
    pub fn commits(&self) -> Vec<Checksum> {
        let layers = self.layers.iter().map(|(_, commit)| *commit);
        [self.commit].into_iter().chain(layers).collect()
    }
}

impl ObjectStore {
    /// Opens the repository of a node; `None` if it has none.
    ///
    /// # Errors
    /// It cannot be read, or its mode is not supported.
    pub fn of_node(root: &Root) -> Result<Option<Self>, StoreError> {
        Self::open_below(root, NODE_REPOSITORY)
    }

    /// Opens the repository in a directory: that of a repository, a mounted disk, a sysroot or an export. `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or its mode is not supported.
    pub fn find(directory: &Root) -> Result<Option<Self>, StoreError> {
        for place in PLACES {
            if let Some(store) = Self::open_below(directory, place)? {
                return Ok(Some(store));
            }
        }
        Ok(None)
    }

    fn open_below(directory: &Root, place: &str) -> Result<Option<Self>, StoreError> {
        let root = match place {
            "" => directory.open_again()?,
            place => {
                let path = path_of(place)?;
                match directory.plain_directory(&path)? {
                    Some(_) => directory.open_within(&path)?,
                    None => return Ok(None),
                }
            }
        };
        let objects = RootPath::fixed("objects");
        let Some(config) = root.read_small(&RootPath::fixed("config"))? else {
            return Ok(None);
        };
        if root.plain_directory(&objects)?.is_none() {
            return Ok(None);
        }
        let mode = match mode_in(&String::from_utf8_lossy(&config)).as_str() {
            "bare" => StoreMode::Bare,
            "archive" | "archive-z2" => StoreMode::Archive,
            other => {
                return Err(StoreError::Mode {
                    path: root.shown().display().to_string(),
                    mode: other.to_owned(),
                });
            }
        };
        let stateroots = match place.strip_suffix("ostree/repo") {
            Some(above) => Some((
                directory.open_again()?,
                path_of(&format!("{above}ostree/deploy"))?,
            )),
            None => None,
        };
        Ok(Some(Self {
            root,
            mode,
            stateroots,
        }))
    }

    /// Returns how it stores files.
    pub fn mode(&self) -> StoreMode {
        self.mode
    }

    /// Returns the commit of each complete image, by image name. Images without a digest in the name are skipped.
    ///
    /// rpm-ostree removes the ref of an image that no deployment has as its container reference. An image that was imported from
    /// another node is then known by the origin of its deployment alone; a power cut does not remove that.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub fn image_commits(&self) -> Result<BTreeMap<String, String>, RootError> {
        let mut found = self.deployed_images()?;
        found.extend(self.named_images()?);
        Ok(found)
    }

    /// Returns the commit of each image that a deployment consists of, without layered packages.
    fn deployed_images(&self) -> Result<BTreeMap<String, String>, RootError> {
        let mut found = BTreeMap::new();
        for (name, origin) in self.read_origins()? {
            let commit = name.split('.').next().unwrap_or_default();
            let image = origin.image_name();
            let (Some(digest), Some(checksum)) = (digest_in(&image), parse_checksum(commit)) else {
                continue;
            };
            if !self.is_complete(&checksum)? {
                continue;
            }
            match read_content_checksum(self, &checksum, digest) {
                Ok(Some(_)) => drop(found.insert(image, commit.to_owned())),
                Ok(None) => {}
                Err(error) => {
                    log::warn!("it is not known if {image} is in the repository: {error}");
                }
            }
        }
        Ok(found)
    }

    /// Reads the origins of deployments, each with the name of its file.
    fn read_origins(&self) -> Result<Vec<(String, OriginFile)>, RootError> {
        let mut origins = Vec::new();
        let Some((root, stateroots)) = &self.stateroots else {
            return Ok(origins);
        };
        for stateroot in skip_obstacle(root.list(stateroots))? {
            let Ok(folder) = stateroots.join(&format!("{stateroot}/deploy")) else {
                continue;
            };
            for name in skip_obstacle(root.list(&folder))? {
                let path = folder.join(&name).ok();
                let Some(path) = path.filter(|_| name.ends_with(".origin")) else {
                    continue;
                };
                if let Some(bytes) = root.read_small(&path)? {
                    let text = String::from_utf8_lossy(&bytes);
                    origins.push((name, OriginFile::parse(&text)));
                }
            }
        }
        Ok(origins)
    }

    /// Returns the commit of each complete image that has a ref.
    fn named_images(&self) -> Result<BTreeMap<String, String>, RootError> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![String::new()];
        while let Some(folder) = waiting.pop() {
            let path = path_of(&format!("{IMAGE_REFS}{folder}"))?;
            for (name, kind) in self.root.list_types(&path)? {
                let below = format!("{folder}/{name}");
                if kind == EntryType::Directory {
                    waiting.push(below);
                } else if let Some(image) = image_of_ref(below.trim_start_matches('/'))
                    && let Some(commit) = self.complete_commit(&format!("{IMAGE_REFS}{below}"))?
                {
                    found.insert(image, commit);
                }
            }
        }
        Ok(found)
    }

    /// Returns the commit that a ref names, if it is in the repository and its pull is complete.
    fn complete_commit(&self, path: &str) -> Result<Option<String>, RootError> {
        let Some(bytes) = self.root.read_small(&path_of(path)?)? else {
            return Ok(None);
        };
        let commit = String::from_utf8_lossy(&bytes).trim().to_owned();
        let Some(checksum) = parse_checksum(&commit) else {
            return Ok(None);
        };
        Ok(self.is_complete(&checksum)?.then_some(commit))
    }

    /// Returns true if a layer has a ref in the repository, and its pull is complete.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub fn has_layer(&self, name: &str) -> Result<bool, RootError> {
        let commit = self.complete_commit(&format!("refs/heads/{name}"))?;
        Ok(commit.is_some())
    }

    /// Returns true if a commit is in the repository and its pull is complete.
    fn is_complete(&self, commit: &Checksum) -> Result<bool, RootError> {
        let partial = path_of(&format!("state/{}.commitpartial", to_hex(commit)))?;
        let object = path_of(&object_path(commit, "commit"))?;
        Ok(self.root.exists(&object)? && !self.root.exists(&partial)?)
    }

    /// Returns the status of an object's file; `None` if it is missing.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn stat_object(&self, id: &ObjectId) -> Result<Option<FileStat>, StoreError> {
        match self.root.open_place(&path_of(&self.path_of(id))?)? {
            Some(place) => place.stat().map_err(|errno| self.error_at(id, errno)),
            None => Ok(None),
        }
    }

    /// Returns the place of an object.
    ///
    /// # Errors
    /// It is missing, or its directory cannot be opened.
    pub fn place_of(&self, id: &ObjectId) -> Result<Place, StoreError> {
        let place = self.root.open_place(&path_of(&self.path_of(id))?)?;
        place.ok_or_else(|| self.object_fault(id, "is missing"))
    }

    /// Returns the content of a file's object. It is not checked.
    ///
    /// # Errors
    /// It is missing, or cannot be read.
    pub fn read_content(&self, id: &ObjectId) -> Result<FileContent, StoreError> {
        let failed = |errno| self.error_at(id, errno);
        let place = self.place_of(id)?;
        let stat = place.stat().map_err(failed)?;
        let stat = stat.ok_or_else(|| self.object_fault(id, "is missing"))?;
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        match self.mode {
            StoreMode::Bare if stat.st_mode & libc::S_IFMT == libc::S_IFLNK => {
                let target = place.read_target().map_err(failed)?;
                Ok(FileContent::Link(target.to_string_lossy().into_owned()))
            }
            StoreMode::Bare => Ok(FileContent::File(
                size,
                Box::new(place.open_file().map_err(failed)?),
            )),
            StoreMode::Archive => {
                let file = BufReader::new(place.open_file().map_err(failed)?);
                let content =
                    read_archived(file).map_err(|_| self.object_fault(id, "is damaged"))?;
                content.ok_or_else(|| self.object_fault(id, "has an unknown form"))
            }
        }
    }

    /// Returns the path of an object below the repository.
    pub fn path_of(&self, (kind, checksum): &ObjectId) -> String {
        let extension = match kind {
            OstreeObjectKind::File => self.mode.file_extension(),
            kind => kind.extension(),
        };
        object_path(checksum, extension)
    }

    /// Returns the error of a system call on an object.
    pub fn error_at(&self, id: &ObjectId, errno: nix::errno::Errno) -> StoreError {
        StoreError::Root(RootError::at(
            format!("{}/{}", self.shown(), self.path_of(id)),
            errno,
        ))
    }
}

impl MetadataSource for ObjectStore {
    fn read_metadata(&self, id: &ObjectId) -> Result<Vec<u8>, StoreError> {
        let (_, checksum) = id;
        let bytes = self
            .root
            .read_within(&path_of(&self.path_of(id))?, MAX_METADATA)?;
        let bytes = bytes.ok_or_else(|| self.object_fault(id, "is missing"))?;
        match parse_checksum(&sha256_hex(&bytes)) {
            Some(found) if found == *checksum => Ok(bytes),
            _ => Err(self.object_fault(id, "is damaged")),
        }
    }

    fn find_layer(&self, name: &str) -> Result<Option<Checksum>, StoreError> {
        // An export may leave out the objects of a layer, which its receiver has.
        let bytes = self
            .root
            .read_small(&path_of(&format!("refs/heads/{name}"))?)?;
        let commit = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        Ok(commit.and_then(|commit| parse_checksum(&commit)))
    }

    fn shown(&self) -> String {
        self.root.shown().display().to_string()
    }
}

/// Metadata objects and layers of images: those of a repository, or of the head of an archive.
pub trait MetadataSource {
    /// Returns a metadata object that matches its name.
    ///
    /// # Errors
    /// It is missing or damaged.
    fn read_metadata(&self, id: &ObjectId) -> Result<Vec<u8>, StoreError>;

    /// Returns the commit of a layer, by its full ref; `None` if there is no such ref. The commit itself may be missing.
    ///
    /// # Errors
    /// The ref cannot be read.
    fn find_layer(&self, name: &str) -> Result<Option<Checksum>, StoreError>;

    /// Returns the path, for messages.
    fn shown(&self) -> String;

    /// Returns the error of an object.
    fn object_fault(&self, id: &ObjectId, fault: &'static str) -> StoreError {
        let (kind, checksum) = id;
        StoreError::Object {
            path: self.shown(),
            object: object_path(checksum, kind.extension()),
            fault,
        }
    }
}

/// Reads an image by its commit.
///
/// # Errors
/// An object is missing or damaged, or the commit is not that of an image.
pub fn read_image(
    source: &dyn MetadataSource,
    name: &str,
    commit: &Checksum,
) -> Result<StoredImage, StoreError> {
    let wrong = |why: &str| StoreError::Image {
        path: source.shown(),
        image: name.to_owned(),
        why: why.to_owned(),
    };
    let bytes = source.read_metadata(&(OstreeObjectKind::Commit, *commit))?;
    let unknown = || wrong("has a commit of an unknown form; take it from another node");
    let parsed = Commit::parse(&bytes).ok_or_else(unknown)?;
    let names = parsed.metadata.names().ok_or_else(unknown)?;
    if names.iter().any(|name| name == CLIENT_LAYER) {
        return Err(wrong(
            "has packages that were layered on the node; take the image itself from another node",
        ));
    }
    let text = |key: &str| parsed.metadata.text(key.as_bytes());
    let digest = text(MANIFEST_DIGEST);
    let digest = digest.ok_or_else(|| wrong("was not imported from a container registry"))?;
    let config = match text("ostree.container.image-config") {
        None => ImageConfig::default(),
        Some(config) => serde_json::from_str(&config).map_err(|_| unknown())?,
    };
    let mut layers = Vec::new();
    for digest in layer_digests(&parsed).ok_or_else(unknown)? {
        let name = layer_ref(&digest);
        let Some(commit) = source.find_layer(&name)? else {
            return Err(wrong(&format!(
                "lacks its layer {digest}; take it from another node"
            )));
        };
        layers.push((name, commit));
    }
    let layers_checksum = checksum_layers(source, &layers)?;
    Ok(StoredImage {
        name: name.to_owned(),
        commit: *commit,
        digest,
        content: parsed.content_checksum(),
        architecture: (!config.architecture.is_empty()).then_some(config.architecture),
        labels: config.config.labels.unwrap_or_default(),
        layers,
        layers_checksum,
    })
}

/// Returns the digest of each layer in the manifest of an image's commit, lowest first. `None` if the commit has no manifest.
fn layer_digests(image: &Commit<'_>) -> Option<Vec<String>> {
    let manifest = image.metadata.text(b"ostree.manifest")?;
    let manifest: Value = serde_json::from_str(&manifest).ok()?;
    let listed = manifest.get("layers")?.as_array()?.iter();
    let digest = |layer: &Value| Some(layer.get("digest")?.as_str()?.to_owned());
    listed.map(digest).collect()
}

/// Returns the full ref of a layer.
fn layer_ref(digest: &str) -> String {
    format!("{LAYER_PREFIX}/{}", escape_ref(digest))
}

/// Returns the SHA-256 of lines with the ref of each layer, a blank, and the checksum of its tree.
///
/// The digest of a layer is that of a compressed archive, from which its tree cannot be computed again. A later update takes a layer
/// that has a ref from the repository. So a witness has to know the trees of the layers too, not only that of the image.
fn checksum_layers(
    source: &dyn MetadataSource,
    layers: &[(String, Checksum)],
) -> Result<String, StoreError> {
    let mut lines = String::new();
    for (name, commit) in layers {
        let id = (OstreeObjectKind::Commit, *commit);
        let bytes = source.read_metadata(&id)?;
        let parsed = Commit::parse(&bytes).ok_or_else(|| source.object_fault(&id, FORM))?;
        lines += &format!("{name} {}\n", parsed.content_checksum());
    }
    Ok(sha256_hex(lines.as_bytes()))
}

/// Returns the checksum of the layers of an image's commit; `None` if a layer has no ref.
///
/// # Errors
/// A commit is missing or damaged.
pub fn read_layers_checksum(
    source: &dyn MetadataSource,
    commit: &Checksum,
) -> Result<Option<String>, StoreError> {
    let id = (OstreeObjectKind::Commit, *commit);
    let bytes = source.read_metadata(&id)?;
    let parsed = Commit::parse(&bytes).ok_or_else(|| source.object_fault(&id, FORM))?;
    let mut layers = Vec::new();
    for digest in layer_digests(&parsed).into_iter().flatten() {
        let name = layer_ref(&digest);
        let Some(commit) = source.find_layer(&name)? else {
            return Ok(None);
        };
        layers.push((name, commit));
    }
    if layers.is_empty() {
        return Ok(None);
    }
    checksum_layers(source, &layers).map(Some)
}

/// Returns the checksum of the tree of a commit that is the image with this digest; `None` if it has layered packages or is another
/// image.
///
/// # Errors
/// The commit is missing or damaged.
pub fn read_content_checksum(
    source: &dyn MetadataSource,
    commit: &Checksum,
    digest: &str,
) -> Result<Option<String>, StoreError> {
    let id = (OstreeObjectKind::Commit, *commit);
    let bytes = source.read_metadata(&id)?;
    let parsed = Commit::parse(&bytes).ok_or_else(|| source.object_fault(&id, FORM))?;
    let names = parsed.metadata.names();
    let names = names.ok_or_else(|| source.object_fault(&id, FORM))?;
    let is_layered = names.iter().any(|name| name == CLIENT_LAYER);
    let own = parsed.metadata.text(MANIFEST_DIGEST.as_bytes());
    let is_it = !is_layered && own.as_deref() == Some(digest);
    Ok(is_it.then(|| parsed.content_checksum()))
}

/// Lists the objects of commits. Metadata objects are read and checked; of files only the names are known.
///
/// # Errors
/// A metadata object is missing or damaged, or there are too many objects.
pub fn list_objects(
    source: &dyn MetadataSource,
    commits: &[Checksum],
) -> Result<BTreeSet<ObjectId>, StoreError> {
    let mut found = BTreeSet::new();
    let mut trees = Vec::new();
    for commit in commits {
        let id = (OstreeObjectKind::Commit, *commit);
        if !found.insert(id) {
            continue;
        }
        let bytes = source.read_metadata(&id)?;
        let parsed = Commit::parse(&bytes).ok_or_else(|| source.object_fault(&id, FORM))?;
        add_attributes(source, &mut found, parsed.attributes)?;
        trees.push(parsed.tree);
    }
    while let Some(tree) = trees.pop() {
        let id = (OstreeObjectKind::DirTree, tree);
        if !found.insert(id) {
            continue;
        }
        let bytes = source.read_metadata(&id)?;
        let parsed = DirTree::parse(&bytes).ok_or_else(|| source.object_fault(&id, FORM))?;
        let files = parsed.files.into_iter();
        found.extend(files.map(|(_, file)| (OstreeObjectKind::File, file)));
        for directory in parsed.directories {
            add_attributes(source, &mut found, directory.attributes)?;
            trees.push(directory.tree);
        }
        if found.len() > MAX_OBJECTS {
            return Err(source.object_fault(&id, "is one of too many objects"));
        }
    }
    Ok(found)
}

fn add_attributes(
    source: &dyn MetadataSource,
    found: &mut BTreeSet<ObjectId>,
    attributes: Checksum,
) -> Result<(), StoreError> {
    let id = (OstreeObjectKind::DirMeta, attributes);
    if found.insert(id) {
        source.read_metadata(&id)?;
    }
    Ok(())
}

const FORM: &str = "has an unknown form";

/// Reads the header of an archived file, and returns the content after it; `None` if the header has another form.
fn read_archived(mut file: impl Read + 'static) -> io::Result<Option<FileContent>> {
    let mut framing = [0; 8];
    file.read_exact(&mut framing)?;
    let [a, b, c, d, ..] = framing;
    let length = u32::from_be_bytes([a, b, c, d]);
    let mut header = vec![0; usize::try_from(length.min(MAX_HEADER)).unwrap_or_default()];
    file.read_exact(&mut header)?;
    let Some(header) = ArchivedHeader::parse(&header) else {
        return Ok(None);
    };
    Ok(Some(match header.target {
        Some(target) => FileContent::Link(target),
        None => FileContent::File(header.size, Box::new(DeflateDecoder::new(file))),
    }))
}

fn path_of(below: &str) -> Result<RootPath, RootError> {
    RootPath::parse(&format!("/{below}"))
        .map_err(|_| RootError::at(below, nix::errno::Errno::EINVAL))
}

/// Returns the mode in a repository's configuration.
pub fn mode_in(config: &str) -> String {
    let mut values = config
        .lines()
        .filter_map(|line| line.trim().strip_prefix("mode")?.trim().strip_prefix('='));
    values.next().unwrap_or_default().trim().to_owned()
}

/// Returns the name of a ref's image with its digest, in the form that the daemon compares.
fn image_of_ref(escaped: &str) -> Option<String> {
    let reference = unescape_ref(escaped)?;
    let schemes = ["docker://", "containers-storage:"];
    let image = schemes
        .iter()
        .find_map(|scheme| reference.strip_prefix(scheme))?;
    digest_in(image).map(|_| image.to_owned())
}

/// Escapes a name for a ref as ostree-ext does: `_3A_` is the character with this hexadecimal code, and two underscores are one.
pub fn escape_ref(plain: &str) -> String {
    let mut escaped = String::new();
    let mut follows_alphanumeric = false;
    let mut letters = plain.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '/' if follows_alphanumeric && letters.peek().is_some() => escaped.push('/'),
            '-' => escaped.push('-'),
            '_' => escaped.push_str("__"),
            letter if letter.is_ascii_alphanumeric() => escaped.push(letter),
            other => escaped.push_str(&format!("_{:02X}_", u32::from(other))),
        }
        follows_alphanumeric = letter.is_ascii_alphanumeric();
    }
    escaped
}

/// Reverts the escapes of a ref.
fn unescape_ref(escaped: &str) -> Option<String> {
    let mut plain = String::new();
    let mut rest = escaped;
    while let Some((before, after)) = rest.split_once('_') {
        plain.push_str(before);
        let (code, after) = after.split_once('_')?;
        match code {
            "" => plain.push('_'),
            code => plain.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?),
        }
        rest = after;
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_image_is_read_from_its_ref() {
        let digest = "c".repeat(64);
        let image = format!("quay.example/os_2@sha256:{digest}");
        for scheme in ["docker_3A__2F__2F_", "containers-storage_3A_"] {
            let name = format!("{scheme}quay_2E_example/os__2_40_sha256_3A_{digest}");
            assert_eq!(image_of_ref(&name), Some(image.clone()), "{scheme}");
        }
        for other in [
            "docker_3A__2F__2F_quay_2E_example/os_3A_latest".to_owned(),
            format!("oci_3A__2F_mnt_40_sha256_3A_{digest}"),
            "docker_3A__2F__2F_quay_2Z_".to_owned(),
            "docker_3A".to_owned(),
        ] {
            assert_eq!(image_of_ref(&other), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_escaped_as_in_the_refs_of_a_node() {
        let digest = "c".repeat(64);
        let name = format!("docker://quay.example:5000/a-b/os_2@sha256:{digest}");
        let escaped = escape_ref(&name);
        assert_eq!(
            escaped,
            format!("docker_3A__2F__2F_quay_2E_example_3A_5000/a-b/os__2_40_sha256_3A_{digest}")
        );
        assert_eq!(unescape_ref(&escaped), Some(name));
    }
}
