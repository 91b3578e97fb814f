//! `image`: the operating system images in this node's OSTree repository, and their export for nodes without a registry.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::base::reason::Reason;
use crate::change::image::export::{DESCRIPTION, Export, ExportError};
use crate::change::image::medium::{
    DirectoryTarget, MediumRoom, TarTarget, create_archive, remove_archive,
};
use crate::change::image::source::{ObjectSource, STREAM};
use crate::change::image::trust;
use crate::change::session::{machine, open_root};
use crate::cli::ui::Ui;
use crate::host::progress::{self, Work};
use crate::host::root::{Root, to_hex};
use crate::judge::daemon::annotations;
use crate::node::images::medium::{Medium, MediumError};
use crate::node::images::object_store::{
    MetadataSource, ObjectId, ObjectStore, StoredImage, list_objects, read_image,
};
use crate::node::images::ostree_objects::parse_checksum;
use crate::node::os::Os;
use crate::node::{Host, Machine};
use crate::report;
use crate::report::image::{ExportDone, ImageEntry, ImagesDocument};

/// What to do with images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// List the images of this node's OSTree repository, or of a medium, with the
    /// checksums of their content; changes nothing
    List {
        /// A mounted disk of another node, an OSTree repository or an export
        /// [default: this node]
        path: Option<PathBuf>,
    },
    /// Copy an image out of this node's OSTree repository, for a node that reaches no
    /// registry; changes nothing on this node
    ///
    /// A directory becomes an OSTree repository of the mode archive: any file system has
    /// room for it, and `ostree pull-local` reads it. A name that ends in .tar becomes one
    /// file, and `-` is a stream.
    Export {
        /// A directory, FILE.tar, or - for standard output
        #[arg(value_name = "DEST")]
        destination: PathBuf,

        /// HOST/PATH@sha256:DIGEST [default: the image of the deployment that runs]
        #[arg(long, value_name = "IMAGE")]
        image: Option<String>,

        /// Leave out the objects of this: the receiver's mounted disk, its OSTree
        /// repository or an earlier export; or an image of this node that the
        /// receiver has, too, as HOST/PATH@sha256:DIGEST
        #[arg(long, value_name = "DIR|IMAGE")]
        since: Vec<String>,
    },
}

/// Runs `image`.
pub(super) fn run(ui: &Ui<'_>, command: &ImageCommand) -> Result<ExitCode> {
    match command {
        ImageCommand::List { path: Some(path) } => list_source(ui, path),
        ImageCommand::List { path: None } => {
            let root = open_root(&ui.root)?;
            machine::expect_system(&root)?;
            list(ui, &root, &open_store(&root)?)
        }
        ImageCommand::Export {
            destination,
            image,
            since,
        } => {
            let root = open_root(&ui.root)?;
            machine::expect_system(&root)?;
            let store = open_store(&root)?;
            let image = choose_image(&root, &store, image.as_deref())?;
            let present = objects_of_receiver(&store, since)?;
            export(ui, &store, &image, &present, destination)
        }
    }
}

fn open_store(root: &Root) -> Result<ObjectStore> {
    let store = ObjectStore::of_node(root).context("reading the OSTree repository")?;
    store.with_context(|| {
        format!(
            "{} has no OSTree repository, so there is no image to take from it",
            root.shown().display()
        )
    })
}

/// Opens a source of images. What cannot be opened is reported with its reason.
fn open_source(path: &Path) -> Result<ObjectSource> {
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

fn list_source(ui: &Ui<'_>, path: &Path) -> Result<ExitCode> {
    let source = open_source(path)?;
    let images = source.list_images()?;
    print_list(ui, Owner::default(), source.metadata(), images)
}

fn list(ui: &Ui<'_>, root: &Root, store: &ObjectStore) -> Result<ExitCode> {
    let machine = Machine::observe(root).context("reading the name of the node")?;
    let images = store.image_commits().context("reading the images")?;
    let owner = Owner {
        node: machine.name,
        api_server: annotations::name_cluster(root),
    };
    print_list(ui, owner, store, images)
}

/// The node that a repository belongs to; a medium has none.
#[derive(Default)]
struct Owner {
    node: Option<String>,
    api_server: Option<String>,
}

fn print_list(
    ui: &Ui<'_>,
    owner: Owner,
    source: &dyn MetadataSource,
    images: impl IntoIterator<Item = (String, String)>,
) -> Result<ExitCode> {
    let images = images.into_iter().map(|(image, commit)| {
        let read = parse_checksum(&commit).map(|checksum| read_image(source, &image, &checksum));
        let (known, problem) = match read {
            Some(Ok(known)) => (Some(known), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, Some("its ref is damaged".to_owned())),
        };
        let (content_checksum, architecture) = known
            .map(|known| (Some(known.content), known.architecture))
            .unwrap_or_default();
        ImageEntry {
            image,
            commit,
            content_checksum,
            architecture,
            problem,
        }
    });
    let document = ImagesDocument {
        schema: trust::SCHEMA,
        node: owner.node,
        api_server: owner.api_server,
        repository: source.shown(),
        images: images.collect(),
    };
    ui.print(
        || report::image::to_json(&document),
        || report::image::to_text(&document),
    )?;
    Ok(ExitCode::Done)
}

/// Returns the named image, or that of the deployment, or the only one.
fn choose_image(root: &Root, store: &ObjectStore, named: Option<&str>) -> Result<StoredImage> {
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

/// Lists what the receiver has.
fn objects_of_receiver(store: &ObjectStore, since: &[String]) -> Result<BTreeSet<ObjectId>> {
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

fn export(
    ui: &Ui<'_>,
    store: &ObjectStore,
    image: &StoredImage,
    present: &BTreeSet<ObjectId>,
    destination: &Path,
) -> Result<ExitCode> {
    let shown = destination.display().to_string();
    let planned = {
        let _phase = progress::begin_phase(Work::new("Listing the objects of the image"));
        Export::plan_export(store, image, present)?
    };
    let is_stream = destination == Path::new(STREAM);
    if is_stream && io::IsTerminal::is_terminal(&io::stdout()) {
        bail!("standard output is a terminal; pipe it into another command, or name a directory");
    }
    {
        let work = Work::new(format!("Writing the image to {shown}")).with_total(planned.bytes());
        let _phase = progress::begin_phase(work);
        let written = match destination.extension().is_some_and(|end| end == "tar") {
            _ if is_stream => {
                let out = io::BufWriter::with_capacity(1 << 20, io::stdout().lock());
                planned.write_to(&mut TarTarget::write_to(out))
            }
            true => {
                let file = create_archive(destination).map_err(|error| {
                    let reason = Reason::from(error);
                    anyhow::anyhow!("creating {shown}: {reason}; give another FILE")
                })?;
                let room = MediumRoom::of_path(destination).map_err(ExportError::at_start)?;
                if let Err(error) = planned.check_archive_room(&shown, &room) {
                    remove_archive(destination).map_err(ExportError::at_start)?;
                    return Err(error.into());
                }
                write_file(&planned, file)
            }
            false => {
                let mut directory = DirectoryTarget::make_or_continue(destination, DESCRIPTION).map_err(|error| {
                    let reason = Reason::from(error);
                    anyhow::anyhow!("using {shown}: {reason}. Name a directory of a medium that is mounted for writing")
                })?;
                let room = MediumRoom::of_path(destination).map_err(ExportError::at_start)?;
                planned.check_directory_room(&directory, &room)?;
                planned.write_to(&mut directory)
            }
        };
        written.with_context(|| {
            format!("{shown} is incomplete; run the command again when this is mended")
        })?;
    }
    let done = ExportDone {
        schema: "mco-rescue/exported/v1",
        image: &image.name,
        content: &image.content,
        target: &shown,
        objects: planned.count(),
        left_out: planned.left_out(),
        bytes: planned.bytes(),
    };
    let text = match ui.output {
        Output::Json => report::image::export_json(&done)?,
        Output::Text => report::image::export_text(&done),
    };
    if is_stream {
        log::info!("exported {} ({})", image.name, to_hex(&image.commit));
    } else {
        report::print(text.as_bytes())?;
    }
    Ok(ExitCode::Done)
}

fn write_file(planned: &Export<'_>, file: File) -> Result<(), ExportError> {
    let mut out = io::BufWriter::with_capacity(1 << 20, file);
    planned.write_to(&mut TarTarget::write_to(&mut out))?;
    out.flush().map_err(ExportError::at_end)?;
    let file = out.get_ref();
    file.sync_all().map_err(ExportError::at_end)
}
