//! Imports an image into the node's OSTree repository through `ostree pull-local`, which checks every object.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::base::paths;
use crate::change::image::import::{ImportNeed, find_import_need, unpack_for_pull};
use crate::change::image::medium::DirectoryTarget;
use crate::change::image::source::ObjectSource;
use crate::host::progress::{self, Work};
use crate::host::root::{Root, to_hex};
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::rpm_ostree::status::digest_in;
use crate::node::command::{CommandLine, ostree};
use crate::node::images::object_store::ObjectStore;

fn not_imported(from: &str, why: &dyn Display) -> RpmOstreeError {
    RpmOstreeError::NotImported {
        from: from.to_owned(),
        why: why.to_string(),
    }
}

/// An image that was judged when the plan was made.
#[derive(Debug)]
pub(super) struct PlannedImport<'a> {
    /// The repository, archive or stream.
    pub(super) from: &'a str,
    /// The image.
    pub(super) image: &'a str,
    /// Its merge commit.
    pub(super) commit: &'a str,
    /// Checksum of its layers.
    pub(super) layers_checksum: &'a str,
}

/// Compares the image at a source with the node's repository again, as it is now.
fn find_need(
    root: &Root,
    source: &ObjectSource,
    planned: &PlannedImport<'_>,
) -> Result<ImportNeed, RpmOstreeError> {
    let image = planned.image;
    let failed = |error: &dyn Display| not_imported(&source.metadata().shown(), error);
    let node = ObjectStore::of_node(root).map_err(|error| failed(&error))?;
    let node = node.ok_or_else(|| failed(&"the node's OSTree repository is gone"))?;
    let digest = digest_in(image).unwrap_or_default();
    let need = find_import_need(&node, source, image, digest).map_err(|error| failed(&error))?;
    match need {
        Some(need)
            if to_hex(&need.image.commit) == planned.commit
                && need.image.layers_checksum == planned.layers_checksum =>
        {
            Ok(need)
        }
        _ => Err(failed(&"it has another image than when the plan was made")),
    }
}

fn remove_scratch(scratch: &Path) {
    if let Err(error) = DirectoryTarget::remove_directory(scratch) {
        log::warn!("removing {}: {error}; remove it by hand", scratch.display());
    }
}

/// Imports the image of a step. `run` starts a command and returns when it has ended.
///
/// # Errors
/// The source has changed or cannot be read, or ostree fails.
pub(super) fn import_image(
    root: &Root,
    planned: &PlannedImport<'_>,
    run: &dyn Fn(&CommandLine) -> Result<(), RpmOstreeError>,
) -> Result<(), RpmOstreeError> {
    let from = planned.from;
    let failed = |error: &dyn Display| not_imported(from, error);
    let source = ObjectSource::open(Path::new(from)).map_err(|error| failed(&error))?;
    let source = source.ok_or_else(|| failed(&"it is gone"))?;
    let need = find_need(root, &source, planned)?;
    let scratch = PathBuf::from(format!("/{}", paths::IMAGE_IMPORT));
    let is_archive = matches!(source, ObjectSource::Archive(_));
    let pulled_from = if is_archive {
        scratch.display().to_string()
    } else {
        from.to_owned()
    };
    if is_archive {
        let work = Work::new("Unpacking the image").with_total(need.bytes);
        let _phase = progress::begin_phase(work);
        if let Err(error) = unpack_for_pull(source, &need, &scratch) {
            remove_scratch(&scratch);
            return Err(failed(&error));
        }
    }
    let layers = need
        .layers
        .iter()
        .map(|(name, commit)| (name.clone(), to_hex(commit)));
    let image = (need.image.image_ref(), planned.commit.to_owned());
    let refs: Vec<(String, String)> = layers.chain([image]).collect();
    let commits: Vec<String> = refs.iter().map(|(_, commit)| commit.clone()).collect();
    let pulled = run(&ostree::pull_commits(&pulled_from, &commits));
    if is_archive {
        remove_scratch(&scratch);
    }
    pulled.map_err(|cause| match cause {
        RpmOstreeError::NoAnswer { .. }
        | RpmOstreeError::ClientKilled
        | RpmOstreeError::Cancelled
        | RpmOstreeError::NotInstalled(_)
        | RpmOstreeError::NoSpace { .. } => cause,
        other => not_imported(from, &other),
    })?;
    run(&ostree::set_refs(&refs))
}
