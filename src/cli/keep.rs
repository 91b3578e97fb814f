//! `keep`: writes the changes made by hand on the node as one MachineConfig.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::Output;
use crate::base::error::ExitCode;
use crate::base::invocation::mco_rescue;
use crate::base::object::{Object, ObjectKind};
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::change::session::access;
use crate::change::session::access::AccessNeed;
use crate::change::session::machine;
use crate::change::session::{Session, Unnamed, open_root};
use crate::change::source::cache;
use crate::change::transaction::{self, Pending};
use crate::change::trial::store::read_trial;
use crate::cli::ui::Ui;
use crate::config::document::{self, MachineConfig};
use crate::config::render::{self, Pool, RenderedChanges};
use crate::diagnose::keep::{self, KeepRequest, Kept, NameProblem};
use crate::formats::systemd::{UnitFileState, unit_file_state};
use crate::host::root::{EntryType, Root, RootPath, extended_attributes};
use crate::judge::drift::Drift;
use crate::node::{Recorded, Records};
use crate::report;
use crate::report::keep::KeepReport;
use clap::Args;
use std::path::PathBuf;

/// What is kept, and where it is written.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Files and directories of the node [default: everything that verify finds]
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,

    /// Its name [default: 99-POOL-zz-kept]
    ///
    /// Of two MachineConfigs with one path the later name wins
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Write it to a new file [default: print it]
    ///
    /// Only its owner can read the file
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,

    /// Keep this kernel argument, too
    #[arg(long, value_name = "ARGUMENT")]
    pub argument: Vec<String>,

    /// Take contents that may be secret, too
    ///
    /// Who may read MachineConfigs can read them then
    #[arg(long)]
    pub with_secrets: bool,
}

/// Maximum number of files below the named directories.
const MAX_FILES: usize = 512;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;

/// Runs `keep`.
pub(super) fn run(ui: &Ui<'_>, args: &KeepArgs) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    machine::expect_system(&root)?;
    access::expect_access(&root, AccessNeed::Read)?;
    expect_whole(&root)?;
    let within = named_paths(&args.paths)?;
    let records = Records::read(&root).context("reading the daemon's records")?;
    let pool = recorded_pool(&records)?;
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| keep::default_name(&pool));
    match keep::check_name(&name, &pool) {
        Some(NameProblem::Refused(why)) => bail!("--name: {why}"),
        Some(NameProblem::MayLose(why)) => log::warn!("{why}"),
        None => {}
    }
    let session = Session::observe(root, ui.runner, None, Unnamed::Recorded)?;
    let (_, drifts) = session.compare();
    let found = find_files(&session, &within, &drifts)?;
    let read = read_files(&session, &drifts, &found)?;
    let request = KeepRequest {
        pool: &pool,
        name: &name,
        desired: &session.desired,
        node: &session.node,
        drifts: &drifts,
        within: &within,
        found: &found,
        contents: &read.contents,
        attributes: &read.attributes,
        states: &BTreeMap::new(),
        arguments: &args.argument,
        with_secrets: args.with_secrets,
    };
    let (mut kept, with_secrets) = take_secrets(ui, args, &request)?;
    let mut left = Vec::new();
    if let Some(config) = &kept.config {
        let mut again = look_again(&session, config, &pool)?;
        let states = unit_states(&again, config);
        // The state of a unit can only be read now, as the merged config contains the unit with its file.
        if !states.is_empty() {
            kept = keep::keep_changes(&KeepRequest {
                states: &states,
                with_secrets,
                ..request
            });
            let config = kept
                .config
                .as_ref()
                .context("making the MachineConfig again")?;
            again = look_again(&session, config, &pool)?;
        }
        left = find_left(&again, &kept, &within);
    }
    print(ui, args, &session, &name, &kept, &left)?;
    let is_whole = kept.unkept.is_empty() && left.is_empty();
    Ok(if is_whole {
        ExitCode::Done
    } else {
        ExitCode::Drift
    })
}

/// Refuses a node that is between two states.
fn expect_whole(root: &Root) -> Result<()> {
    match transaction::find_pending(root)? {
        Pending::Nothing | Pending::Staged(_) => {}
        Pending::Unfinished(config, _) | Pending::Committed(config) => bail!(
            "a run to {} was interrupted, so not every difference was made by hand. Next: {}, then {}",
            config.name,
            mco_rescue("recover"),
            mco_rescue("keep")
        ),
    }
    if read_trial(root)?.is_some() {
        bail!(
            "a trial runs, and what it changed may go back. Next: {}, or {}, then {}",
            mco_rescue("confirm"),
            mco_rescue("rollback"),
            mco_rescue("keep")
        );
    }
    Ok(())
}

fn named_paths(names: &[String]) -> Result<Vec<RootPath>> {
    let path = |name: &String| {
        RootPath::parse(name).map_err(|error| {
            anyhow!("{name}: {error}; write a path of the node from / on, such as /etc/chrony.conf")
        })
    };
    names.iter().map(path).collect()
}

/// Returns the pool of the recorded config.
fn recorded_pool(records: &Records) -> Result<String> {
    let config = match &records.current_config {
        Recorded::Present(config) => config,
        Recorded::Missing => bail!(
            "/{} is missing, so nothing says what this node was. An apply writes the record. Next: {}",
            paths::CURRENT_CONFIG,
            mco_rescue("apply CONFIG")
        ),
        Recorded::Broken(why) => bail!(
            "/{} is damaged: {why}. An apply writes the record anew. Next: {}",
            paths::CURRENT_CONFIG,
            mco_rescue("apply CONFIG")
        ),
    };
    if config.spec2.is_some() || config.bare {
        bail!(
            "the recorded config {} is not a rendered MachineConfig of spec 3, so nothing can be merged over it",
            config.name
        );
    }
    let pool = cache::pool_of(config);
    pool.ok_or_else(|| {
        anyhow!(
            "{} does not say its pool; apply a rendered config first",
            config.name
        )
    })
}

/// Makes the MachineConfig, first without secrets. Secrets are added after a question, or with the option. Also returns whether
/// they were added.
fn take_secrets(ui: &Ui<'_>, args: &KeepArgs, request: &KeepRequest<'_>) -> Result<(Kept, bool)> {
    let shows = args.to.is_none() && std::io::stdout().is_terminal();
    let mut kept = keep::keep_changes(request);
    let mut with_secrets = request.with_secrets;
    let withheld = kept.unkept.iter().filter(|one| one.secret);
    let withheld: Vec<&str> = withheld.map(|one| one.subject.as_str()).collect();
    if !withheld.is_empty() && !shows {
        let question = format!(
            "{} may be secret. Put them into the MachineConfig?",
            withheld.join(", ")
        );
        if ui.ask(&question)? {
            with_secrets = true;
            kept = keep::keep_changes(&KeepRequest {
                with_secrets,
                ..*request
            });
        }
    }
    if kept.has_secrets && shows {
        bail!(
            "the MachineConfig has contents that may be secret, and standard output is a terminal; add --to FILE"
        );
    }
    Ok((kept, with_secrets))
}

/// Merges the MachineConfig into the recorded config, as the cluster would, and observes the node for the result.
fn look_again<'a>(session: &Session<'a>, config: &Value, pool: &str) -> Result<Session<'a>> {
    let merged = merge(&session.chosen.config, config, pool).context(
        "merging the MachineConfig over the recorded config, which is how the cluster would use it",
    )?;
    let root = session.root.again()?;
    Session::of_config(root, session.runner, session.records.clone(), merged)
}

fn unit_states(session: &Session<'_>, config: &Value) -> BTreeMap<String, UnitFileState> {
    let node = &session.node;
    let state = |name: &str| unit_file_state(&node.units, name, &node.systemd).ok();
    let units = keep::units_of(config).into_iter();
    units
        .filter_map(|name| Some((name.to_owned(), state(name)?)))
        .collect()
}

/// Returns the differences from the merged config that are not reported yet.
fn find_left(again: &Session<'_>, kept: &Kept, within: &[RootPath]) -> Vec<Drift> {
    let (_, mut drifts) = again.compare();
    let is_named = |path: &RootPath| {
        within.is_empty()
            || within
                .iter()
                .any(|limit| path == limit || path.is_in(limit.relative()))
    };
    drifts.retain(|drift| {
        let end = drift.subject.rsplit('/').next();
        let is_known = kept
            .unkept
            .iter()
            .any(|one| one.subject == drift.subject || Some(one.subject.as_str()) == end);
        let path = RootPath::parse(&drift.subject).ok();
        !is_known && path.map_or(within.is_empty(), |path| is_named(&path))
    });
    drifts
}

fn merge(recorded: &MachineConfig, kept: &Value, pool: &str) -> Result<MachineConfig> {
    let base: Value = serde_json::from_slice(recorded.record.as_bytes())?;
    let changes = RenderedChanges {
        parts: render::read_inputs(kept.to_string().as_bytes(), "the kept changes")?,
        ..RenderedChanges::default()
    };
    let pool = Pool {
        name: pool.to_owned(),
        ..Pool::default()
    };
    let rendered = render::render_on_top(&base, changes, &recorded.origin, &pool)?;
    Ok(document::parse_document(
        rendered.to_string().as_bytes(),
        "the kept changes",
    )?)
}

/// Returns the files at and below the named paths that are not in the config.
fn find_files(
    session: &Session<'_>,
    within: &[RootPath],
    drifts: &[Drift],
) -> Result<BTreeMap<RootPath, Object>> {
    let mut search = Search {
        session,
        found: BTreeMap::new(),
    };
    for path in within {
        let seen = session.root.observe(path);
        match seen.with_context(|| format!("looking at {path}"))? {
            None if drifts.iter().any(|drift| drift.subject == path.to_string()) => {}
            None => bail!(
                "{path}: there is no such file or directory; write a path of the node, such as /etc/chrony.conf"
            ),
            Some((object, _)) if object.kind == ObjectKind::Directory => {
                search.look_below(path, 0)?
            }
            Some((object, _)) => {
                if !search.is_of_config(path) {
                    search.found.insert(path.clone(), object);
                }
            }
        }
    }
    Ok(search.found)
}

struct Search<'a> {
    session: &'a Session<'a>,
    found: BTreeMap<RootPath, Object>,
}

impl Search<'_> {
    /// Returns true if the comparison with the config covers the path.
    fn is_of_config(&self, path: &RootPath) -> bool {
        let desired = &self.session.desired;
        let is_unit = |name: &String| crate::judge::drift::unit_path(name).as_ref() == Some(path);
        desired.files.iter().any(|file| file.path == *path)
            || path.relative() == paths::CORE_KEYS
            || desired.units.iter().any(|unit| {
                let is_dropin = |name: &String| {
                    crate::judge::drift::dropin_path(&unit.name, name).as_ref() == Some(path)
                };
                is_unit(&unit.name) && (unit.contents.is_some() || unit.mask.is_some())
                    || unit.dropins.iter().any(|dropin| is_dropin(&dropin.name))
            })
    }

    fn look_below(&mut self, directory: &RootPath, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            bail!("{directory}: too deep; name a directory nearer to the files");
        }
        let mut entries = self
            .session
            .root
            .list_types(directory)
            .with_context(|| format!("listing {directory}"))?;
        entries.order_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in entries {
            let Ok(path) = directory.join(&name) else {
                log::warn!(
                    "{directory}: a name cannot be written in a MachineConfig, and is left out"
                );
                continue;
            };
            if kind == EntryType::Directory {
                self.look_below(&path, depth + 1)?;
            } else {
                self.look_at(path)?;
            }
        }
        Ok(())
    }

    fn look_at(&mut self, path: RootPath) -> Result<()> {
        if self.is_of_config(&path) || keep::is_left_out(&path) || is_switch(&path) {
            return Ok(());
        }
        let root = &self.session.root;
        let Some((object, _)) = root
            .observe(&path)
            .with_context(|| format!("reading {path}"))?
        else {
            return Ok(());
        };
        // The file of the OS image exists anyway.
        if self.session.node.host.has_usr_etc && path.is_in("etc") {
            let packaged = RootPath::parse(&format!("/usr{path}"));
            let packaged = packaged
                .ok()
                .and_then(|path| root.observe(&path).ok().flatten());
            if packaged.is_some_and(|(packaged, _)| packaged.is_like(&object)) {
                return Ok(());
            }
        }
        if self.found.len() >= MAX_FILES {
            bail!(
                "{path}: more than {MAX_FILES} files that no config has; name a directory nearer to the files"
            );
        }
        self.found.insert(path, object);
        Ok(())
    }
}

/// Returns true for a link that enables a unit, which is kept with the unit.
fn is_switch(path: &RootPath) -> bool {
    let above = path.above().unwrap_or_default();
    above.starts_with(paths::UNITS) && (above.ends_with(".wants") || above.ends_with(".requires"))
}

/// The contents and attributes of files.
#[derive(Default)]
struct ReadFiles {
    contents: BTreeMap<RootPath, Vec<u8>>,
    attributes: BTreeMap<RootPath, Vec<String>>,
}

fn read_files(
    session: &Session<'_>,
    drifts: &[Drift],
    found: &BTreeMap<RootPath, Object>,
) -> Result<ReadFiles> {
    let mut read = ReadFiles::default();
    for path in keep::paths_to_read(&session.desired, &session.node, drifts, found) {
        let bytes = match session.root.read_within(&path, keep::MAX_FILE) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            // The report lists the file as unreadable.
            Err(error) => {
                log::warn!("{error}");
                continue;
            }
        };
        if let Ok(Some(file)) = session.root.open_file(&path) {
            let names = extended_attributes(&file)
                .with_context(|| format!("reading the extended attributes of {path}"))?;
            let names: Vec<String> = names
                .iter()
                .map(|(name, _)| name.to_string_lossy().into_owned())
                .collect();
            if !names.is_empty() {
                read.attributes.insert(path.clone(), names);
            }
        }
        read.contents.insert(path, bytes);
    }
    Ok(read)
}

fn print(
    ui: &Ui<'_>,
    args: &KeepArgs,
    session: &Session<'_>,
    name: &str,
    kept: &Kept,
    left: &[Drift],
) -> Result<()> {
    let yaml = kept.config.as_ref().map(report::keep::to_yaml);
    if let (Some(path), Some(yaml)) = (&args.to, &yaml) {
        write(path, yaml)?;
    }
    let written = args.to.as_ref().filter(|_| yaml.is_some());
    let shown = written.map(|path| path.display().to_string());
    let report = KeepReport {
        name,
        recorded: &session.chosen.config.name,
        to: shown.as_deref(),
        kept,
        left,
    };
    let has_written = written.is_some();
    match (ui.output, &yaml, written) {
        (Output::Json, ..) => {
            report::print_whole_report(report::keep::to_json(&report)?.as_bytes(), has_written)?;
        }
        (Output::Text, Some(yaml), None) => {
            report::print_bytes(yaml.as_bytes())?;
            report::print_aside(&report::keep::to_text(&report));
        }
        (Output::Text, ..) => {
            report::print_report(report::keep::to_text(&report).as_bytes(), has_written)?;
        }
    }
    Ok(())
}

fn write(path: &Path, yaml: &str) -> Result<()> {
    transaction::write_output(path, yaml.as_bytes(), |_| false).map_err(|why| {
        anyhow!(
            "writing {}: {why}; give another file with --to. Nothing was written",
            path.display()
        )
    })
}
