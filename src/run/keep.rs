//! `keep`: the changes made by hand on the node as one MachineConfig. Changes nothing.
//!
//! [`KeepRun::observe_node`] reads the node, [`KeepRun::make_config`] makes the MachineConfig, and [`KeepRun::prove_config`] tries what it would do.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use crate::base::invocation::mco_rescue;
use crate::base::object::{Object, ObjectKind};
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::change::session::{Session, Unnamed};
use crate::change::source::cache;
use crate::change::transaction::{self, Pending};
use crate::change::trial::store::read_trial;
use crate::config::document::{self, MachineConfig};
use crate::config::render::{self, Pool, RenderedChanges};
use crate::diagnose::keep::{self, KeepRequest, Kept, NameProblem};
use crate::formats::systemd::{UnitFileState, unit_file_state};
use crate::host::root::{EntryType, Root, RootPath, extended_attributes};
use crate::judge::drift::{self, Drift};
use crate::node::command::CommandRunner;
use crate::node::{Recorded, Records};

/// Maximum number of files below the named directories.
const MAX_FILES: usize = 512;
/// Maximum depth of directories.
const MAX_DEPTH: usize = 16;

/// The options of `keep`.
#[derive(Debug, Clone, Copy)]
pub struct KeepOptions<'a> {
    /// Files and directories that limit it; empty for all differences.
    pub paths: &'a [String],
    /// The name of the MachineConfig, if it is given.
    pub name: Option<&'a str>,
    /// Kernel arguments of the node that should be kept.
    pub arguments: &'a [String],
}

/// A node with its differences from the recorded config.
#[allow(missing_debug_implementations, reason = "it borrows a runner")]
pub struct KeepRun<'a> {
    /// The recorded config and the node.
    pub session: Session<'a>,
    /// The name of the MachineConfig.
    pub name: String,
    pool: String,
    arguments: &'a [String],
    within: Vec<RootPath>,
    drifts: Vec<Drift>,
    found: BTreeMap<RootPath, Object>,
    read: ReadFiles,
}

impl<'a> KeepRun<'a> {
    /// Reads the differences and their files.
    ///
    /// # Errors
    /// The node is between two states, has no usable record, or cannot be read.
    pub fn observe_node(
        root: Root,
        runner: &'a dyn CommandRunner,
        options: KeepOptions<'a>,
    ) -> Result<Self> {
        expect_whole(&root)?;
        let within = named_paths(options.paths)?;
        let records = Records::read(&root).context("reading the daemon's records")?;
        let pool = recorded_pool(&records)?;
        let name = options.name.map(str::to_owned);
        let name = name.unwrap_or_else(|| keep::default_name(&pool));
        match keep::check_name(&name, &pool) {
            Some(NameProblem::Refused(why)) => bail!("--name: {why}"),
            Some(NameProblem::MayLose(why)) => log::warn!("{why}"),
            None => {}
        }
        let session = Session::observe(root, runner, None, Unnamed::Recorded)?;
        let (_, drifts) = session.compare_node();
        let found = find_files(&session, &within, &drifts)?;
        let read = read_files(&session, &drifts, &found)?;
        Ok(Self {
            session,
            name,
            pool,
            arguments: options.arguments,
            within,
            drifts,
            found,
            read,
        })
    }

    /// Makes the MachineConfig.
    pub fn make_config(&self, with_secrets: bool) -> Kept {
        self.make_with(with_secrets, &BTreeMap::new())
    }

    fn make_with(&self, with_secrets: bool, states: &BTreeMap<String, UnitFileState>) -> Kept {
        keep::keep_changes(&KeepRequest {
            pool: &self.pool,
            name: &self.name,
            desired: &self.session.desired,
            node: &self.session.node,
            drifts: &self.drifts,
            within: &self.within,
            found: &self.found,
            contents: &self.read.contents,
            attributes: &self.read.attributes,
            states,
            arguments: self.arguments,
            with_secrets,
        })
    }

    /// Merges what was made over the recorded config, and compares the node with the result. Returns what is kept, with the states
    /// of units, and the differences that are left.
    ///
    /// # Errors
    /// The MachineConfig cannot be merged, or the node cannot be read.
    pub fn prove_config(&self, mut kept: Kept, with_secrets: bool) -> Result<(Kept, Vec<Drift>)> {
        let Some(config) = &kept.config else {
            return Ok((kept, Vec::new()));
        };
        let mut again = look_again(&self.session, config, &self.pool)?;
        let states = unit_states(&again, config);
        // The state of a unit can only be read now, as the merged config contains the unit with its file.
        if !states.is_empty() {
            kept = self.make_with(with_secrets, &states);
            let config = kept
                .config
                .as_ref()
                .context("making the MachineConfig again")?;
            again = look_again(&self.session, config, &self.pool)?;
        }
        let left = find_left(&again, &kept, &self.within);
        Ok((kept, left))
    }
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
            "a trial runs, and what it changed may be reverted. Next: {}, or {}, then {}",
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
            "/{} is damaged: {why}. An apply writes the record again. Next: {}",
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

/// Merges the MachineConfig into the recorded config, as the cluster would, and observes the node for the result.
fn look_again<'a>(session: &Session<'a>, config: &Value, pool: &str) -> Result<Session<'a>> {
    let merged = merge_config(&session.chosen.config, config, pool).context(
        "merging the MachineConfig over the recorded config, which is how the cluster would use it",
    )?;
    let root = session.root.open_again()?;
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
    let (_, mut drifts) = again.compare_node();
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

fn merge_config(recorded: &MachineConfig, kept: &Value, pool: &str) -> Result<MachineConfig> {
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
        let is_unit = |name: &String| drift::unit_path(name).as_ref() == Some(path);
        desired.files.iter().any(|file| file.path == *path)
            || path.relative() == paths::CORE_KEYS
            || desired.units.iter().any(|unit| {
                let is_dropin =
                    |name: &String| drift::dropin_path(&unit.name, name).as_ref() == Some(path);
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
            let packaged = match RootPath::parse(&format!("/usr{path}")) {
                Ok(packaged) => root.observe(&packaged)?,
                Err(_) => None,
            };
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
    let above = path.parent_text().unwrap_or_default();
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
        let file = session.root.open_file(&path);
        if let Some(file) = file.with_context(|| format!("opening {path}"))? {
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
