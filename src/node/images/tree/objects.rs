//! The tree of an image that is stored as OSTree objects.

use std::io::Read;

use super::wanted::{self, Want, find_want};
use super::{ImageTree, TreeFile, initramfs, is_initramfs};
use crate::node::images::object_store::{
    FileContent, MetadataSource, ObjectStore, StoreError, StoredImage,
};
use crate::node::images::ostree_objects::{Checksum, Commit, DirTree, OstreeObjectKind};

/// Reads the tree of an image. Files are looked for in each of the repositories.
///
/// # Errors
/// An object is missing or damaged.
pub fn read_objects(
    metadata: &dyn MetadataSource,
    stores: &[&ObjectStore],
    image: &StoredImage,
) -> Result<ImageTree, StoreError> {
    let id = (OstreeObjectKind::Commit, image.commit);
    let bytes = metadata.read_metadata(&id)?;
    let commit = Commit::parse(&bytes).ok_or_else(|| metadata.object_fault(&id, FORM))?;
    let mut tree = ImageTree {
        source: metadata.shown(),
        architecture: image.architecture.clone(),
        labels: image.labels.clone(),
        ..ImageTree::default()
    };
    let mut waiting = vec![(String::new(), commit.tree)];
    while let Some((folder, checksum)) = waiting.pop() {
        let id = (OstreeObjectKind::DirTree, checksum);
        let bytes = metadata.read_metadata(&id)?;
        let directory = DirTree::parse(&bytes).ok_or_else(|| metadata.object_fault(&id, FORM))?;
        for (name, file) in directory.files {
            let path = format!("{folder}{name}");
            if let Some(found) = read_file(metadata, stores, &path, &file, &mut tree)? {
                tree.files.insert(path, found);
            }
        }
        for inner in directory.directories {
            let path = format!("{folder}{}", inner.name);
            if may_contain_wanted(&path) {
                waiting.push((format!("{path}/"), inner.tree));
            }
        }
    }
    Ok(tree)
}

const FORM: &str = "has an unknown form";

/// Returns true if a wanted file may be below a directory.
fn may_contain_wanted(path: &str) -> bool {
    let inside = |inner: &str, outer: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let leads_to = |wanted: &'static str| inside(wanted, path) || inside(path, wanted);
    !wanted::is_pruned(path)
        && (wanted::wanted_directories(false).any(leads_to) || wanted::single_files().any(leads_to))
}

fn read_file(
    metadata: &dyn MetadataSource,
    stores: &[&ObjectStore],
    path: &str,
    checksum: &Checksum,
    tree: &mut ImageTree,
) -> Result<Option<TreeFile>, StoreError> {
    let want = find_want(path);
    if want == Want::Nothing {
        return Ok(None);
    }
    let id = (OstreeObjectKind::File, *checksum);
    for store in stores {
        if store.stat_object(&id)?.is_none() {
            continue;
        }
        let (size, content) = match store.read_content(&id)? {
            FileContent::Link(target) => {
                return Ok(Some(TreeFile {
                    link: Some(target),
                    ..TreeFile::default()
                }));
            }
            FileContent::File(size, content) => (size, content),
        };
        let mut file = TreeFile {
            size,
            ..TreeFile::default()
        };
        match want {
            Want::Content(limit) if size <= limit => {
                let mut bytes = Vec::new();
                let read = content.take(limit + 1).read_to_end(&mut bytes);
                read.map_err(|_| store.object_fault(&id, "is damaged"))?;
                if bytes.len() as u64 != size {
                    return Err(store.object_fault(&id, "is damaged"));
                }
                file.bytes = Some(bytes);
            }
            _ if is_initramfs(path) => tree.initramfs = Some(initramfs::list_modules(content)),
            _ => {}
        }
        return Ok(Some(file));
    }
    Err(metadata.object_fault(&id, "is missing"))
}
