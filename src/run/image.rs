//! `image`: which image is taken from a node, what the receiver has already, and the writing of an export.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use crate::base::invocation::mco_rescue;
use crate::base::reason::Reason;
use crate::change::image::export::{DESCRIPTION, Export, ExportError};
use crate::change::image::medium::{
    DirectoryTarget, MediumRoom, TarTarget, create_archive, remove_archive,
};
use crate::change::image::source::{ObjectSource, STREAM};
use crate::host::progress::{self, Work};
use crate::host::root::Root;
use crate::node::Host;
use crate::node::images::medium::{Medium, MediumError};
use crate::node::images::object_store::{
    ObjectId, ObjectStore, StoredImage, list_objects, read_image,
};
use crate::node::images::ostree_objects::parse_checksum;
use crate::node::os::Os;

/// Room for what is written at once.
const BUFFER: usize = 1 << 20;

/// Opens the OSTree repository of a root.
///
/// # Errors
/// It cannot be read, or there is none.
pub fn open_store(root: &Root) -> Result<ObjectStore> {
    let store = ObjectStore::of_node(root).context("reading the OSTree repository")?;
    store.with_context(|| {
        format!(
            "{} has no OSTree repository, so there is no image to take from it",
            root.shown().display()
        )
    })
}

/// Opens a source of images.
///
/// # Errors
/// It cannot be read, or has no OSTree objects.
pub fn open_source(path: &Path) -> Result<ObjectSource> {
    if let Some(source) = ObjectSource::open(path)? {
        return Ok(source);
    }
    match Medium::open(path) {
        Ok(_) | Err(MediumError::NoImage(_)) => bail!(
            "{} has no OSTree repository and is not an export of mco-rescue image export; OCI media are listed by skopeo inspect",
            path.display()
        ),
        Err(error) => Err(error.into()),
    }
}

/// Returns the named image, or that of the deployment, or the only one.
///
/// # Errors
/// The repository cannot be read, it does not have the image, or it is not known which one runs.
pub fn choose_image(root: &Root, store: &ObjectStore, named: Option<&str>) -> Result<StoredImage> {
    let all = store.image_commits().context("reading the images")?;
    let wanted = match named {
        Some(name) => name.to_owned(),
        None => {
            let host = Host::observe(root).context("looking at the node")?;
            let system =
                Os::observe(root, &host).context("reading the origin of the deployment")?;
            match (system.image.filter(|image| !image.is_empty()), all.len()) {
                (Some(image), _) => image,
                (None, 1) => all.keys().next().cloned().unwrap_or_default(),
                (None, _) => bail!(
                    "it is not known which image runs here; name one of {} with --image",
                    mco_rescue("image list")
                ),
            }
        }
    };
    let commit = all.get(&wanted).and_then(|commit| parse_checksum(commit));
    let commit = commit.with_context(|| {
        format!(
            "the OSTree repository does not have {wanted} as an image that was imported from a registry. The images it has: {}",
            mco_rescue("image list")
        )
    })?;
    Ok(read_image(store, &wanted, &commit)?)
}

/// Lists the objects that the receiver has: by the names of `since`, an image of this node or a source.
///
/// # Errors
/// A name is neither, or the objects cannot be read.
pub fn list_received(store: &ObjectStore, since: &[String]) -> Result<BTreeSet<ObjectId>> {
    let mut present = BTreeSet::new();
    for name in since {
        match store.image_commits()?.get(name) {
            Some(commit) => {
                let commit = parse_checksum(commit).context("the ref of that image is damaged")?;
                let image = read_image(store, name, &commit)?;
                present.extend(list_objects(store, &image.commits())?);
            }
            None if name.contains('@') => bail!(
                "this node does not have {name} either, so what the receiver has is unknown; leave out --since"
            ),
            None => {
                let source = open_source(Path::new(name))?;
                for (image, commit) in source.list_images()? {
                    let commit = parse_checksum(&commit).context("a ref there is damaged")?;
                    let image = read_image(source.metadata(), &image, &commit)?;
                    present.extend(list_objects(source.metadata(), &image.commits())?);
                }
            }
        }
    }
    Ok(present)
}

/// Writes an export: to a stream, which `stream` opens, if the destination is `-`, to a file if its name ends in .tar, else to a
/// directory.
///
/// # Errors
/// There is no room, or the destination cannot be written; what is there is incomplete then.
pub fn write_export<W: Write>(
    planned: &Export<'_>,
    destination: &Path,
    stream: impl FnOnce() -> W,
) -> Result<()> {
    let shown = destination.display().to_string();
    let work = Work::new(format!("Writing the image to {shown}")).with_total(planned.bytes());
    let _phase = progress::begin_phase(work);
    let written = if destination == Path::new(STREAM) {
        let out = io::BufWriter::with_capacity(BUFFER, stream());
        planned.write_to(&mut TarTarget::write_to(out))
    } else if destination.extension().is_some_and(|end| end == "tar") {
        write_archive(planned, destination, &shown)?
    } else {
        write_directory(planned, destination, &shown)?
    };
    written.with_context(|| {
        format!("the export to {shown} was not completed; run the command again when this is fixed")
    })
}

/// Writes an archive. The outer error is one before the first byte, after which nothing is there.
fn write_archive(
    planned: &Export<'_>,
    destination: &Path,
    shown: &str,
) -> Result<Result<(), ExportError>> {
    let file = create_archive(destination).map_err(|error| {
        let way = match error.kind() {
            io::ErrorKind::AlreadyExists => "remove it, or give another FILE",
            _ => "give another FILE",
        };
        let reason = Reason::from(error);
        anyhow!("creating {shown}: {reason}; {way}")
    })?;
    let room = MediumRoom::of_path(destination).map_err(ExportError::at_start)?;
    if let Err(error) = planned.check_archive_room(shown, &room) {
        remove_archive(destination).map_err(ExportError::at_start)?;
        return Err(error.into());
    }
    let written = write_file(planned, file);
    if written.is_err()
        && let Err(error) = remove_archive(destination)
    {
        log::warn!("removing {shown}: {error}; remove it by hand");
    }
    Ok(written)
}

/// Writes a directory. The outer error is one before the first byte.
fn write_directory(
    planned: &Export<'_>,
    destination: &Path,
    shown: &str,
) -> Result<Result<(), ExportError>> {
    let mut directory =
        DirectoryTarget::make_or_continue(destination, DESCRIPTION).map_err(|error| {
            let reason = Reason::from(error);
            anyhow!(
                "using {shown}: {reason}. Name a directory of a medium that is mounted for writing"
            )
        })?;
    let room = MediumRoom::of_path(destination).map_err(ExportError::at_start)?;
    planned.check_directory_room(&directory, &room)?;
    Ok(planned.write_to(&mut directory))
}

fn write_file(planned: &Export<'_>, file: File) -> Result<(), ExportError> {
    let mut out = io::BufWriter::with_capacity(BUFFER, file);
    planned.write_to(&mut TarTarget::write_to(&mut out))?;
    out.flush().map_err(ExportError::at_end)?;
    let file = out.get_ref();
    file.sync_all().map_err(ExportError::at_end)
}
