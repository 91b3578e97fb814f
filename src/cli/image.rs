//! `image`: the operating system images in this node's OSTree repository, and their export for nodes without a registry.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use crate::base::error::ExitCode;
use crate::change::image::export::Export;
use crate::change::image::source::STREAM;
use crate::change::image::trust;
use crate::change::session::{machine, open_root};
use crate::cli::ui::Ui;
use crate::host::progress::{self, Work};
use crate::host::root::{Root, to_hex};
use crate::judge::daemon::annotations;
use crate::node::Machine;
use crate::node::images::object_store::{
    MetadataSource, ObjectId, ObjectStore, StoredImage, read_image,
};
use crate::node::images::ostree_objects::parse_checksum;
use crate::report;
use crate::report::image::{ExportDone, ImageEntry, ImagesDocument};
use crate::run::image::{choose_image, list_received, open_source, open_store, write_export};

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
            let present = list_received(&store, since)?;
            export(ui, &store, &image, &present, destination)
        }
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
    // A list without the name of its cluster would count in any.
    let cluster = annotations::name_cluster(root).context("reading the name of the cluster")?;
    let owner = Owner {
        node: machine.name,
        api_server: cluster,
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
        let known = known.as_ref();
        ImageEntry {
            image,
            commit,
            content_checksum: known.map(|known| known.content.clone()),
            layers_checksum: known.map(|known| known.layers_checksum.clone()),
            architecture: known.and_then(|known| known.architecture.clone()),
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
    write_export(&planned, destination, || io::stdout().lock())?;
    let done = ExportDone {
        schema: "mco-rescue/exported/v1",
        image: &image.name,
        content: &image.content,
        target: &shown,
        objects: planned.count(),
        left_out: planned.left_out(),
        bytes: planned.bytes(),
    };
    if is_stream {
        log::info!("exported {} ({})", image.name, to_hex(&image.commit));
        return Ok(ExitCode::Done);
    }
    ui.print(
        || report::image::export_json(&done),
        || report::image::export_text(&done),
    )?;
    Ok(ExitCode::Done)
}
