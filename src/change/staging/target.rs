//! The files of the image that a node is going to run, wherever they are: on a medium, in containers-storage, in a deployment
//! or in the repository of the node. Nothing is fetched or unpacked for this.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::image_source::SourceOptions;
use crate::base::invocation::mco_rescue;
use crate::change::image::source::{ObjectSource, WithNode};
use crate::host::root::{Root, RootPath};
use crate::node::command::rpm_ostree::status::digest_in;
use crate::node::deploy_directories;
use crate::node::images::ImageName;
use crate::node::images::manifest::go_architecture;
use crate::node::images::medium::{Medium, MediumError};
use crate::node::images::object_store::{MetadataSource, ObjectStore, read_image};
use crate::node::images::ostree_objects::parse_checksum;
use crate::node::images::tree::{self, ImageTree};

/// Reads the files of an image; `None` if it is neither on the given medium nor on the node.
///
/// # Errors
/// The medium, the storage or a deployment cannot be read, or the medium does not have the image.
pub fn find_target(
    root: &Root,
    image: Option<&str>,
    options: &SourceOptions<'_>,
) -> Result<Option<ImageTree>> {
    if let Some(path) = options.os_from {
        return match ObjectSource::open(path)? {
            Some(source) => {
                let tree = read_stored_objects(root, &source, image);
                source.close();
                tree
            }
            None => read_medium(path, image).map(Some),
        };
    }
    let Some(image) = image else {
        return Ok(None);
    };
    if !options.from_storage {
        if let Some(tree) = read_deployment(root, image)? {
            return Ok(Some(tree));
        }
        if let Some(tree) = read_own_repository(root, image)? {
            return Ok(Some(tree));
        }
    }
    let stored = tree::read_stored(root, image).map_err(anyhow::Error::msg);
    stored.context("looking for the image in containers-storage")
}

/// Reads an image in an OSTree repository. Of an archive or a stream only the directories are known before it is unpacked.
fn read_stored_objects(
    root: &Root,
    source: &ObjectSource,
    image: Option<&str>,
) -> Result<Option<ImageTree>> {
    let ObjectSource::Repository(store) = source else {
        return Ok(None);
    };
    let images = source.list_images()?;
    let name = match (image, images.len()) {
        (Some(image), _) => image.to_owned(),
        (None, 1) => images.into_keys().next().unwrap_or_default(),
        (None, count) => bail!("{} has {count} images; name one of them", store.shown()),
    };
    let digest = digest_in(&name).with_context(|| format!("{name} has no digest"))?;
    let node = ObjectStore::of_node(root)?;
    let with_node = node.as_ref().map(|node| WithNode { source, node });
    let metadata: &dyn MetadataSource = match &with_node {
        Some(both) => both,
        None => source.metadata(),
    };
    let stored = source.find_image(metadata, &name, digest)?;
    let stored = stored.with_context(|| format!("{} does not have {name}", store.shown()))?;
    let stores: Vec<&ObjectStore> = node.iter().chain([store]).collect();
    Ok(Some(tree::read_objects(metadata, &stores, &stored)?))
}

/// Reads a medium, or a directory with the files themselves.
fn read_medium(path: &Path, image: Option<&str>) -> Result<ImageTree> {
    match Medium::open(path) {
        Ok(medium) => {
            let name = image.and_then(|image| ImageName::parse(image).ok());
            let wanted = name.and_then(|name| name.digest);
            let architecture = go_architecture(std::env::consts::ARCH);
            let described = medium.describe_image(wanted.as_ref(), architecture)?;
            Ok(tree::read_image(&medium, &described)?)
        }
        Err(MediumError::NoImage(_)) => {
            let root = Root::open(path)?;
            let tree = tree::read_directory(&root, &path.display().to_string())?;
            if tree.files.is_empty() {
                bail!(
                    "{} holds no image: neither oci-layout and index.json, nor usr/lib/os-release. Give the path of an \
                     OCI directory, of an OCI archive, or of a deployment",
                    path.display()
                );
            }
            Ok(tree)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the deployment of an image that is on the node: staged, kept, or running.
fn read_deployment(root: &Root, image: &str) -> Result<Option<ImageTree>> {
    let all = deploy_directories::list_deploy_directories(root)?;
    let found = all.iter().find(|one| one.image.as_deref() == Some(image));
    let Some(found) = found else {
        return Ok(None);
    };
    let directory = root.open_within(&found.path)?;
    let source = found.path.to_string();
    // Only its `usr` belongs to the image, and only while it is checked out.
    if !directory.exists(&RootPath::fixed("usr"))? {
        return Ok(None);
    }
    Ok(Some(tree::read_directory(&directory, &source)?))
}

/// Reads an image that is in the node's repository and has no deployment.
fn read_own_repository(root: &Root, image: &str) -> Result<Option<ImageTree>> {
    let Some(store) = ObjectStore::of_node(root)? else {
        return Ok(None);
    };
    let commits = store.image_commits()?;
    let Some(commit) = commits.get(image).and_then(|commit| parse_checksum(commit)) else {
        return Ok(None);
    };
    let stored = read_image(&store, image, &commit)?;
    Ok(Some(tree::read_objects(&store, &[&store], &stored)?))
}

/// Returns the message about an image whose files cannot be looked at yet.
pub fn describe_missing(image: &str, os_from: Option<&Path>) -> String {
    match os_from {
        Some(archive) => format!(
            "{} is an archive or a stream, so {image} cannot be inspected before it is in the repository of this node. To inspect it \
             first, export it to a directory instead, or unpack the archive, and then: {}",
            archive.display(),
            mco_rescue("preflight --os-from DIRECTORY")
        ),
        None => format!(
            "{image} is not on this node, so it cannot be inspected before it is staged. Copy it to a medium. \
             Next: skopeo copy --all --preserve-digests docker://{image} oci:DIRECTORY, then {}",
            mco_rescue("preflight --os-from DIRECTORY")
        ),
    }
}
