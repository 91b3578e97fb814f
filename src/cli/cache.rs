//! `cache`: the configs that the node stores for times without network.

use crate::cli::ui::Ui;
use anyhow::{Context, Result, bail};

use crate::base::error::ExitCode;
use crate::base::paths;
use crate::base::text;
use crate::change::session::access;
use crate::change::session::access::AccessNeed;
use crate::change::session::machine;
use crate::change::session::open_root;
use crate::change::source::{self, cache};
use crate::change::transaction::open_store;
use crate::host::root::Root;
use crate::node::Records;
use crate::report;
use clap::Subcommand;

/// What to do with the cache.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// List the configs, the newest first; changes nothing
    List,
    /// Print the document of a config as it came; changes nothing
    Export {
        /// Name of the config, or a beginning of it that fits no other
        name: String,
    },
    /// Remove a config from the cache; nothing else on the node is changed
    Forget {
        /// Name of the config, or of the damaged file
        name: String,
    },
}

/// Runs `cache`.
pub(super) fn run(ui: &Ui<'_>, command: &CacheCommand) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(
        &root,
        match command {
            CacheCommand::List | CacheCommand::Export { .. } => AccessNeed::Read,
            CacheCommand::Forget { .. } => AccessNeed::Write,
        },
    )?;
    match command {
        CacheCommand::List => list(ui, &root)?,
        CacheCommand::Export { name } => {
            let all = cache::read_cache(&root).context("reading the cache")?;
            let entry = source::find_named(name, &all)?;
            report::print_bytes(entry.document().as_bytes())?;
        }
        CacheCommand::Forget { name } => forget(ui, &root, name)?,
    }
    Ok(ExitCode::Done)
}

fn list(ui: &Ui<'_>, root: &Root) -> Result<()> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let all = cache::read_cache(root).context("reading the cache")?;
    let recorded = records.name();
    ui.print(
        || report::fetch::list_json(&all, recorded.as_deref()),
        || report::fetch::list_text(&all, recorded.as_deref()),
    )
}

/// Removes an entry. A damaged file is named by its file name, any other entry by its config.
fn forget(ui: &Ui<'_>, root: &Root, name: &str) -> Result<()> {
    let all = cache::read_cache(root).context("reading the cache")?;
    let damaged = all.iter().find_map(|cached| match cached {
        cache::Cached::Damaged(path, _) if path.name() == name => Some(name.to_owned()),
        _ => None,
    });
    let file = match damaged {
        Some(file) => file,
        None => source::find_named(name, &all)?.file_name(),
    };
    if all.is_empty() {
        bail!("the cache is empty; there is nothing to forget");
    }
    open_store(root, paths::CACHE)?.remove_file(&file)?;
    ui.print_result(
        || report::fetch::forgotten_json(name),
        || format!("Removed from the cache: {}\n", text::make_inline(name)),
    )?;
    Ok(())
}
