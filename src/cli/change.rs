//! `change`: an object of the cluster is changed on the node, and becomes a new rendered config in the cache.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::access::{self, AccessNeed};
use super::session::{Unnamed, choose_config, open_root};
use super::ui::Ui;
use super::{ChangeArgs, ChangeCommand, Output, WithArgs, fetch, machine, objects};
use crate::controllers::derive::{Derived, Request, derive};
use crate::controllers::generated::GENERATED_BY;
use crate::controllers::{ApiObject, if_forgotten};
use crate::document;
use crate::document::MachineConfig;
use crate::error::ExitCode;
use crate::node::Records;
use crate::paths;
use crate::render::Pool;
use crate::report;
use crate::report::change::DerivedChange;
use crate::root::Root;
use crate::source;
use crate::source::cache;
use crate::source::changes::{Change, Changes};
use crate::time::now;
use crate::transaction::store_value;

/// A change before it is derived.
struct Wanted {
    /// In words.
    what: String,
    /// Objects that made the config as it is, as far as it tells them.
    known: Vec<ApiObject>,
    /// The objects that are new or changed.
    given: Vec<ApiObject>,
    /// Notes on them.
    notes: Vec<String>,
}

/// Runs `change`.
pub(super) fn run(ui: &Ui<'_>, command: &ChangeCommand) -> Result<ExitCode> {
    let ChangeCommand::With(WithArgs { from: args, .. }) = command;
    let root = open_root(ui)?;
    machine::expect_system(&root)?;
    let need = if args.dry_run {
        AccessNeed::Read
    } else {
        AccessNeed::Write
    };
    access::expect_access(&root, need)?;
    let records = Records::read(&root).context("reading the daemon's records")?;
    let base = choose_config(&root, args.from.as_deref(), Unnamed::Recorded, &records)?.config;
    let Some(pool) = cache::pool_of(&base) else {
        bail!(
            "{} names no pool; give a rendered MachineConfig with --from",
            base.name
        );
    };
    let rendered: Value = serde_json::from_str(&base.record).context("reading the config")?;
    let wanted = match command {
        ChangeCommand::With(args) => with(args)?,
    };
    let objects: Vec<Value> = wanted
        .given
        .iter()
        .map(|object| object.value.clone())
        .collect();
    let derived = derive_change(args, &base, &pool, rendered, &wanted)?;
    let change = describe(&base, &pool, &wanted, &derived, objects);
    let text = serde_json::to_string(&derived.rendered)?;
    if !change.unchanged && !args.dry_run {
        keep(&root, &records, &change, text)?;
    }
    let change = DerivedChange {
        kept: !change.unchanged && !args.dry_run,
        ..change
    };
    match ui.output {
        Output::Json => report::print(report::change::to_json(&change)?.as_bytes())?,
        Output::Text => report::print(report::change::to_text(&change).as_bytes())?,
    }
    Ok(ExitCode::Done)
}

/// The objects of files.
fn with(args: &WithArgs) -> Result<Wanted> {
    let mut given = Vec::new();
    for file in &args.files {
        given.extend(objects::read_given(&source::read_named(file)?, file)?);
    }
    let titles: Vec<String> = given.iter().map(ApiObject::title).collect();
    Ok(Wanted {
        what: titles.join(", "),
        known: Vec::new(),
        given,
        notes: Vec::new(),
    })
}

/// Derives the new config: of the cluster's parts where they are given, else on top of the node's config.
fn derive_change(
    args: &ChangeArgs,
    base: &MachineConfig,
    pool: &str,
    rendered: Value,
    wanted: &Wanted,
) -> Result<Derived> {
    let version = rendered
        .pointer("/metadata/annotations")
        .and_then(|all| all.get(GENERATED_BY)?.as_str());
    let mut request = Request {
        pool: Pool {
            name: pool.to_owned(),
            os_image: Some(base.os_image_url.clone()).filter(|image| !image.is_empty()),
            extensions_image: Some(base.extensions_image.clone()).filter(|image| !image.is_empty()),
            controller_version: version.map(str::to_owned),
        },
        configs: Vec::new(),
        known: Vec::new(),
        given: Vec::new(),
        base: None,
        release_image: args.release_image.clone(),
    };
    let mut configs = Vec::new();
    for object in &wanted.given {
        match object.is_machine_config() {
            true => configs.push(object.clone()),
            false => request.given.push(object.clone()),
        }
    }
    if args.parts.is_empty() {
        request.known.clone_from(&wanted.known);
        request.base = Some((base.name.clone(), rendered));
    } else {
        for parts in &args.parts {
            request.known.extend(objects::read_parts(parts)?);
        }
        let parts = request
            .known
            .extract_if(.., |object| object.is_machine_config());
        let mut parts: Vec<ApiObject> = parts
            .filter(|one| objects::has_role_of(one, pool))
            .collect();
        parts.retain(|part| !configs.iter().any(|new| new.name == part.name));
        configs.extend(parts);
    }
    for object in configs {
        let input = objects::read_config(&object)?;
        request.configs.push((object, input));
    }
    Ok(derive(request)?)
}

fn describe(
    base: &MachineConfig,
    pool: &str,
    wanted: &Wanted,
    derived: &Derived,
    objects: Vec<Value>,
) -> DerivedChange {
    let texts = |inexact: bool| {
        let notes = derived
            .notes
            .iter()
            .filter(move |note| note.inexact == inexact);
        notes.map(|note| note.text.clone())
    };
    let mut if_forgotten: Vec<String> = wanted
        .given
        .iter()
        .map(|object| if_forgotten(&object.kind).to_owned())
        .collect();
    if_forgotten.dedup();
    DerivedChange {
        what: wanted.what.clone(),
        config: derived.name().to_owned(),
        from: base.name.clone(),
        pool: pool.to_owned(),
        unchanged: derived.name() == base.name,
        exact: derived.is_exact(),
        reasons: texts(true).collect(),
        notes: wanted.notes.iter().cloned().chain(texts(false)).collect(),
        if_forgotten,
        objects,
        kept: false,
    }
}

/// The new config goes into the cache, and its objects beside it.
fn keep(root: &Root, records: &Records, change: &DerivedChange, text: String) -> Result<()> {
    let mut changes = Changes::read(root).context("reading the changes")?;
    changes.add(Change {
        config: change.config.clone(),
        from: change.from.clone(),
        what: change.what.clone(),
        made: now(),
        exact: change.exact,
        reasons: change.reasons.clone(),
        objects: change.objects.clone(),
    });
    // First the objects: a config without them would be one that the cluster never gets.
    store_value(root, paths::CHANGES, &changes)?;
    let config = document::parse(text.as_bytes(), &change.config)?;
    let origin = format!("a change of {}: {}", change.from, change.what);
    fetch::keep_config(root, records, &config, text, &origin)?;
    Ok(())
}
