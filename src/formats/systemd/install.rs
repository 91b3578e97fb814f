//! `systemctl enable`, `disable` and `preset` as changes to links.
//!
//! The links that a systemd of version 252 would make or remove for the given units are computed here; the caller applies them.
//! Options of systemctl (`--runtime`, `--now`, `--force`, preset modes) do not exist here.
//!
//! Differences from `systemctl --root`, all deliberate:
//!
//! | systemctl | here | why |
//! |---|---|---|
//! | a name that is not a unit name is completed or escaped (`a` becomes `a.service`), and a path is taken as a unit file to link | [`Fault::InvalidName`] | the names come from a configuration that must be exact |
//! | of links to a removed alias, `disable --root` removes those it happens to list before the alias | all are removed | without `--root` systemctl removes them all; only there does it recognise the path |
//! | `*.wants` being a symlink to a directory in `/usr` is written through | [`Fault::ReadOnly`] | `/usr` of a node is read-only |
//! | `*.wants` being an absolute symlink leads outside of `--root` | followed inside the root | only `--root` does that |
//! | a link in `*.wants` that leads in a circle, or to a name that is too long, is kept | replaced | it wants nothing |
//! | a drop-in directory that is an absolute symlink is looked for outside of `--root` | followed inside the root | only `--root` does that |
//! | specifiers of the host (`%m`, `%H`, `%v`, …) expand to values of the host it runs on | [`Fault::Specifier`] | the host may be another one |
//! | where built for SysV, looks for init scripts first, and fails for a service whose file is broken even if its links could be removed | only does what units ask for (`SYSTEMCTL_SKIP_SYSV=1`) | a node has no init scripts |

use std::collections::BTreeSet;

use super::chase::PathNodes;
use super::fault::{Fault, Problem};
use super::lookup::{
    Context, Info, InfoId, SearchDepth, UnitFileForm, check_alias, config_links, file_name,
    is_generated, join_target, parent_path,
};
use super::preset::{PresetDecision, Presets};
use super::support::Support;
use super::unit_entry::TreeNode;
use super::unit_name::{self, UnitName, UnitNameKind};
use super::unit_tree::{CONFIG_DIR, LinkChange, UnitTree, path_below};
use super::view::View;

/// The result of an operation on links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallOutcome {
    /// The changes below [`CONFIG_DIR`], in order. A link that is replaced is removed first.
    pub changes: Vec<LinkChange>,
    /// Problems that systemctl reports before it exits successfully.
    pub problems: Vec<Problem>,
}

/// The reason that systemctl would exit with a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallError {
    /// The problems; never empty.
    pub problems: Vec<Problem>,
    /// The changes that systemctl would still have made.
    pub partial: Vec<LinkChange>,
}

impl std::fmt::Display for InstallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let problems: Vec<String> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&problems.join("; "))
    }
}

impl std::error::Error for InstallError {}

/// Returns the result of `systemctl enable UNIT...`. Units without an `[Install]` section change nothing and are not an error.
pub fn enable_units(
    tree: &UnitTree,
    units: &[&str],
    support: &Support,
) -> Result<InstallOutcome, InstallError> {
    LinkOperation::new(tree, support).run_operation(|op| op.enable_units(units))
}

/// Returns the result of `systemctl disable UNIT...`. Links of missing units are removed too; that they are missing is only
/// reported in [`InstallOutcome::problems`].
pub fn disable_units(
    tree: &UnitTree,
    units: &[&str],
    support: &Support,
) -> Result<InstallOutcome, InstallError> {
    LinkOperation::new(tree, support).run_operation(|op| op.disable_units(units))
}

/// Returns the result of `systemctl preset UNIT...`: each is enabled or disabled by the preset files.
pub fn preset_units(
    tree: &UnitTree,
    units: &[&str],
    support: &Support,
) -> Result<InstallOutcome, InstallError> {
    let presets = Presets::from_dirs(&tree.presets, support);
    LinkOperation::new(tree, support).run_operation(|op| op.preset_units(units, &presets))
}

/// An operation failed, and its problem is recorded.
struct Failed;

/// Number of requested links, as systemctl counts them. How it adds the numbers decides which failures matter.
type LinkCount = Result<usize, Failed>;

struct LinkOperation<'t> {
    view: View<'t>,
    support: &'t Support,
    problems: Vec<Problem>,
}

impl<'t> LinkOperation<'t> {
    fn new(tree: &'t UnitTree, support: &'t Support) -> Self {
        LinkOperation {
            view: View::new(tree),
            support,
            problems: Vec::new(),
        }
    }

    fn run_operation(
        mut self,
        body: impl FnOnce(&mut Self) -> LinkCount,
    ) -> Result<InstallOutcome, InstallError> {
        let status = body(&mut self);
        let (changes, unread) = self.view.into_parts();
        if !unread.is_empty() {
            let not_read = |subject| Problem {
                subject,
                fault: Fault::NotRead,
            };
            let problems = unread.into_iter().map(not_read).collect();
            return Err(InstallError {
                problems,
                partial: Vec::new(),
            });
        }
        match status {
            Ok(_) => Ok(InstallOutcome {
                changes,
                problems: self.problems,
            }),
            Err(Failed) => Err(InstallError {
                problems: self.problems,
                partial: changes,
            }),
        }
    }

    fn report_problem(&mut self, subject: &str, fault: Fault) -> Failed {
        self.add_problem(Problem::new(subject, fault))
    }

    fn add_problem(&mut self, problem: Problem) -> Failed {
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
        Failed
    }

    fn enable_units(&mut self, units: &[&str]) -> LinkCount {
        let mut context = Context::new(self.support);
        for unit in units {
            self.discover_enablable(&mut context, unit)?;
        }
        self.apply_links(&mut context, false)
    }

    fn disable_units(&mut self, units: &[&str]) -> LinkCount {
        let mut context = Context::new(self.support);
        for unit in units {
            context
                .add_unit(unit, false)
                .map_err(|fault| self.report_problem(unit, fault))?;
        }
        self.remove_links(&mut context)
    }

    fn preset_units(&mut self, units: &[&str], presets: &Presets) -> LinkCount {
        let mut plus = Context::new(self.support);
        let mut minus = Context::new(self.support);
        for unit in units {
            self.preset_one(unit, presets, &mut plus, &mut minus)?;
        }
        let removed = self.remove_links(&mut minus);
        let applied = self.apply_links(&mut plus, true);
        Ok(removed? + applied?)
    }

    /// Adds a unit to those to enable or those to disable. Aliases are left alone.
    fn preset_one(
        &mut self,
        unit: &str,
        presets: &Presets,
        plus: &mut Context<'_>,
        minus: &mut Context<'_>,
    ) -> Result<(), Failed> {
        if plus.find_info(unit).is_some() || minus.find_info(unit).is_some() {
            return Ok(());
        }
        let mut found = Context::new(self.support);
        let id = self.discover_unit(&mut found, unit, SearchDepth::FOLLOW)?;
        if found.info(id).name != unit {
            return Ok(());
        }
        match presets.decision_for(unit) {
            PresetDecision::Ignore => (),
            PresetDecision::Disable => {
                self.discover_unit(minus, unit, SearchDepth::FOLLOW)?;
            }
            PresetDecision::Enable(instances) if instances.is_empty() => {
                self.discover_enablable(plus, unit)?;
            }
            PresetDecision::Enable(instances) => {
                for instance in instances {
                    self.discover_enablable(plus, &instance)?;
                }
            }
        }
        Ok(())
    }

    fn discover_unit(
        &mut self,
        context: &mut Context<'_>,
        unit: &str,
        search: SearchDepth,
    ) -> Result<InfoId, Failed> {
        context
            .discover_unit(&self.view, unit, search)
            .map_err(|fault| self.report_problem(unit, fault))
    }

    fn discover_enablable(&mut self, context: &mut Context<'_>, unit: &str) -> Result<(), Failed> {
        let id = self.discover_unit(context, unit, SearchDepth::LOAD_FOLLOW)?;
        let info = context.info(id);
        if info.mode == Some(UnitFileForm::Masked) {
            return Err(self.report_problem(&info.path, Fault::Masked));
        }
        if is_generated(&info.path) {
            return Err(self.report_problem(&info.path, Fault::Generated));
        }
        Ok(())
    }

    /// Creates the links of all units in the context, and of those they name in `Also=`.
    fn apply_links(&mut self, context: &mut Context<'_>, lenient: bool) -> LinkCount {
        let mut status = Ok(0);
        while let Some(id) = context.next() {
            if let Err(fault) = context.traverse_links(&self.view, id, SearchDepth::LOAD) {
                let info = context.info(id);
                let failed = self.report_problem(&info.name, fault);
                if info.auxiliary {
                    continue;
                }
                return Err(failed);
            }
            let info = context.info(id);
            let made = match info.mode {
                Some(UnitFileForm::Masked) => {
                    self.report_problem(&info.path, Fault::Masked);
                    Ok(1)
                }
                Some(UnitFileForm::Regular) => self.install_unit(info, lenient),
                _ => Ok(0),
            };
            status = status.and_then(|count| Ok(count + made?));
        }
        status
    }

    /// Creates the links of one unit. Once an alias exists, later failures are only reported.
    fn install_unit(&mut self, info: &Info, lenient: bool) -> LinkCount {
        if !self.view.in_search_path(&info.path) {
            self.create_link(&info.path, &format!("{CONFIG_DIR}/{}", info.name), false)?;
        }
        let mut status = self.install_aliases(info);
        let section = &info.section;
        let lists = [&section.wanted_by, &section.required_by, &section.upheld_by];
        for (list, suffix) in lists.into_iter().zip([".wants", ".requires", ".upholds"]) {
            let made = self.install_dependencies(info, list, suffix, lenient);
            if matches!(status, Ok(0)) {
                status = made;
            }
        }
        status
    }

    /// Creates the aliases of a unit. The last one decides, unless one failed.
    fn install_aliases(&mut self, info: &Info) -> LinkCount {
        let mut status = Ok(0);
        for alias in &info.section.alias {
            let made = match self.alias_name(info, alias) {
                Ok(None) => continue,
                Ok(Some(name)) => {
                    self.create_link(&info.path, &format!("{CONFIG_DIR}/{name}"), false)
                }
                Err(problem) => Err(self.add_problem(problem)),
            };
            status = status.and(made);
        }
        status
    }

    /// Returns the path of an alias below the config directory; `None` for the unit's own name.
    fn alias_name(&self, info: &Info, alias: &str) -> Result<Option<String>, Problem> {
        let expanded = expand_setting(info, alias).map_err(|fault| Problem::new(alias, fault))?;
        if let Some((dir, link)) = expanded.rsplit_once('/') {
            let checked = check_dependency_alias(dir, link, &info.name);
            return checked
                .map(|()| Some(expanded.clone()))
                .map_err(|fault| Problem::new(expanded, fault));
        }
        let instance = UnitName::parse(&info.name)
            .and_then(|name| name.instance)
            .filter(|i| !i.is_empty());
        let template =
            UnitName::parse(&expanded).filter(|name| name.kind() == UnitNameKind::Template);
        let name = match (template, instance) {
            (Some(template), Some(instance)) => {
                template.with_instance(instance).unwrap_or_default()
            }
            _ => expanded,
        };
        match check_alias(&name, &info.name) {
            Ok(()) => Ok(Some(name)),
            Err(Fault::TooManyLinks) => Ok(None),
            Err(fault) => Err(Problem::new(name, fault)),
        }
    }

    fn install_dependencies(
        &mut self,
        info: &Info,
        list: &[String],
        suffix: &str,
        lenient: bool,
    ) -> LinkCount {
        if list.is_empty() {
            return Ok(0);
        }
        let (link, needs_instance) = self.dependency_name(info)?;
        let mut status = Ok(0);
        for wanted in list {
            let made = match dependency_target(info, wanted, needs_instance, &link) {
                Ok(unit) => self.create_link(
                    &info.path,
                    &format!("{CONFIG_DIR}/{unit}{suffix}/{link}"),
                    true,
                ),
                Err(Problem {
                    fault: Fault::InvalidName | Fault::NoInstance(_),
                    ..
                }) if lenient => continue,
                Err(problem) => Err(self.add_problem(problem)),
            };
            if matches!(status, Ok(0)) || (made.is_err() && status.is_ok()) {
                status = made;
            }
        }
        status
    }

    /// Returns the name of the unit's links in `*.wants`, and true if the wanting unit has to supply the instance.
    fn dependency_name(&mut self, info: &Info) -> Result<(String, bool), Failed> {
        let name = UnitName::parse(&info.name).filter(|name| name.kind() == UnitNameKind::Template);
        let Some(template) = name else {
            return Ok((info.name.clone(), false));
        };
        let Some(instance) = &info.section.default_instance else {
            return Ok((info.name.clone(), true));
        };
        let instance = template.with_instance(instance).unwrap_or_default();
        let mut context = Context::new(self.support);
        let found = context.add_unit(&instance, false).and_then(|id| {
            context.search_unit(&self.view, id, SearchDepth::FOLLOW)?;
            Ok(id)
        });
        let id = found.map_err(|fault| self.report_problem(&instance, fault))?;
        match context.info(id) {
            Info {
                mode: Some(UnitFileForm::Masked),
                path,
                ..
            } => Err(self.report_problem(path, Fault::Masked)),
            _ => Ok((instance, false)),
        }
    }

    /// Creates a link unless an equivalent one exists. Other links are replaced only with `force`.
    fn create_link(&mut self, target: &str, path: &str, force: bool) -> LinkCount {
        let dir = parent_path(path);
        let real = self.directory_of_links(dir);
        let real = real.map_err(|fault| self.report_problem(dir, fault))?;
        let path = &format!("{real}/{}", file_name(path));
        let there = match self.view.node_at(path) {
            TreeNode::Missing => None,
            TreeNode::Link(there) => Some(there.to_owned()),
            _ => return Err(self.report_problem(path, Fault::Exists)),
        };
        if let Some(there) = there {
            if self.are_equivalent(path, &there, target) {
                return Ok(1);
            }
            if !force {
                return Err(self.report_problem(path, Fault::ExistsAsLink(there)));
            }
            self.view.apply_change(LinkChange::Remove {
                path: path.to_owned(),
            });
        }
        self.view.apply_change(LinkChange::Create {
            path: path.to_owned(),
            target: target.to_owned(),
        });
        Ok(1)
    }

    /// Returns the directory at a path, or the one that a link there leads to. A missing one is created.
    fn directory_of_links(&self, dir: &str) -> Result<String, Fault> {
        let target = match self.view.node_at(dir) {
            TreeNode::Directory(_) | TreeNode::Missing => return Ok(dir.to_owned()),
            TreeNode::Link(target) => target.to_owned(),
            _ => return Err(Fault::NotADirectory),
        };
        let end = match self.view.chase_path(dir, true) {
            Err(Fault::TooManyLinks) => return Err(Fault::Circle),
            end => end?,
        };
        if end == "/usr" || path_below(&end, "/usr").is_some() {
            return Err(Fault::ReadOnly(end));
        }
        if end == "/" {
            return Ok(String::new());
        }
        if self.view.is_assumed(&end) {
            return Ok(end);
        }
        match self.view.node_at(&end) {
            TreeNode::Directory(_) => Ok(end),
            TreeNode::Missing => Err(Fault::DanglingDirectory(target)),
            _ => Err(Fault::NotADirectory),
        }
    }

    /// Returns true for two targets that are the same for systemd: one file, or one name in the search path.
    fn are_equivalent(&self, path: &str, there: &str, target: &str) -> bool {
        let (there, target) = (join_target(path, there), join_target(path, target));
        let same_file = || match (
            self.view.chase_path(&there, true),
            self.view.chase_path(&target, true),
        ) {
            (Ok(there), Ok(target)) => there == target,
            _ => false,
        };
        let same_name = file_name(&there) == file_name(&target)
            && self.view.below_search_path(&there)
            && self.view.below_search_path(&target);
        there == target || same_name || same_file()
    }

    /// Removes the links of all units in the context, and of those they name in `Also=`.
    fn remove_links(&mut self, context: &mut Context<'_>) -> LinkCount {
        let mut marked = BTreeSet::new();
        while let Some(id) = context.next() {
            let found = context.traverse_links(&self.view, id, SearchDepth::LOAD_FOLLOW);
            let info = context.info(id);
            let subject = if info.path.is_empty() {
                &info.name
            } else {
                &info.path
            };
            match (found, info.mode) {
                (Err(Fault::NotFound), _) if info.auxiliary => (),
                (Err(fault), _) => {
                    self.report_problem(subject, fault);
                }
                (Ok(_), Some(UnitFileForm::Regular)) => (),
                (Ok(_), Some(UnitFileForm::Masked)) => {
                    self.report_problem(subject, Fault::Masked);
                    continue;
                }
                (Ok(_), _) => continue,
            }
            marked.insert(info.name.clone());
        }
        if marked.is_empty() {
            Ok(0)
        } else {
            self.remove_marked(marked)
        }
    }

    /// Removes links until none is left that has a marked name or leads to one. A removed link is marked by its path.
    fn remove_marked(&mut self, mut marked: BTreeSet<String>) -> LinkCount {
        let mut status = Ok(0);
        loop {
            let mut again = false;
            for path in config_links(self.view.tree()) {
                match self.is_marked(&path, &marked) {
                    Ok(true) => {
                        self.view
                            .apply_change(LinkChange::Remove { path: path.clone() });
                        again |= marked.insert(path);
                    }
                    Ok(false) => (),
                    Err(fault) => status = Err(self.report_problem(&path, fault)),
                }
            }
            if !again {
                return status;
            }
        }
    }

    fn is_marked(&self, path: &str, marked: &BTreeSet<String>) -> Result<bool, Fault> {
        let name = file_name(path);
        if marked.contains(name)
            || unit_name::template_of(name).is_some_and(|t| marked.contains(&t))
        {
            return Ok(true);
        }
        let target = match self.view.chase_path(path, true) {
            Err(Fault::NotFound) => return Ok(false),
            target => target?,
        };
        Ok(marked.contains(&target) || marked.contains(file_name(&target)))
    }
}

/// Returns the unit that wants or requires this one.
fn dependency_target(
    info: &Info,
    wanted: &str,
    needs_instance: bool,
    link: &str,
) -> Result<String, Problem> {
    let unit = expand_setting(info, wanted).map_err(|fault| Problem::new(wanted, fault))?;
    match UnitName::parse(&unit) {
        None => Err(Problem::new(unit, Fault::InvalidName)),
        Some(name) if needs_instance && name.kind() == UnitNameKind::Plain => {
            Err(Problem::new(unit, Fault::NoInstance(link.to_owned())))
        }
        Some(_) => Ok(unit),
    }
}

fn expand_setting(info: &Info, text: &str) -> Result<String, Fault> {
    let name = UnitName::parse(&info.name).ok_or(Fault::InvalidName)?;
    Ok(unit_name::expand_specifiers(
        text,
        &name,
        info.section.default_instance.as_deref(),
    )?)
}

/// Checks an alias that is the path of a link in a `.wants` or `.requires` directory.
fn check_dependency_alias(dir: &str, link: &str, unit: &str) -> Result<(), Fault> {
    let bad = || Fault::BadAlias(unit.to_owned());
    let owner = dir
        .strip_suffix(".wants")
        .or_else(|| dir.strip_suffix(".requires"))
        .ok_or_else(bad)?;
    let owner = UnitName::parse(owner).ok_or_else(bad)?;
    let link_name = UnitName::parse(link).ok_or_else(bad)?;
    let fits = match link_name.kind() {
        UnitNameKind::Plain => link == unit,
        UnitNameKind::Template => link == unit && owner.kind() == UnitNameKind::Template,
        UnitNameKind::Instance => link == unit || link_name.template().as_deref() == Some(unit),
    };
    if fits { Ok(()) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::state::{UnitFileState, unit_file_state};
    use super::super::unit_tree::UnitEntry;
    use super::*;

    /// A vendor unit `a.service` with these install settings.
    fn tree(settings: &str) -> UnitTree {
        let mut tree = UnitTree::new();
        let text = format!("[Install]\n{settings}\n");
        tree.set_entry(
            "/usr/lib/systemd/system/a.service",
            UnitEntry::File(Some(text)),
        );
        tree
    }

    fn link(name: &str) -> LinkChange {
        LinkChange::Create {
            path: format!("{CONFIG_DIR}/{name}"),
            target: "/usr/lib/systemd/system/a.service".to_owned(),
        }
    }

    fn removal(name: &str) -> LinkChange {
        LinkChange::Remove {
            path: format!("{CONFIG_DIR}/{name}"),
        }
    }

    #[test]
    fn upheld_by_makes_links_from_254_on() {
        let mut tree = tree("UpheldBy=x.target");
        let old = enable_units(&tree, &["a.service"], &Support::of_version(253)).unwrap();
        assert_eq!(old, InstallOutcome::default());
        let new = enable_units(&tree, &["a.service"], &Support::of_version(254)).unwrap();
        assert_eq!(new.changes, [link("x.target.upholds/a.service")]);
        tree.apply_change(&link("x.target.upholds/a.service"));
        let state =
            |version| unit_file_state(&tree, "a.service", &Support::of_version(version)).unwrap();
        assert_eq!(
            (state(253), state(254)),
            (UnitFileState::Static, UnitFileState::Enabled)
        );
    }

    #[test]
    fn what_presets_ignore_stays_as_it_is() {
        let mut tree = tree("WantedBy=x.target");
        tree.apply_change(&link("x.target.wants/a.service"));
        let text = "ignore a.service\ndisable *\n".to_owned();
        tree.presets
            .first_mut()
            .unwrap()
            .files
            .insert("a.preset".to_owned(), text);
        let ignored = preset_units(&tree, &["a.service"], &Support::of_version(256)).unwrap();
        assert_eq!(ignored.changes, []);
        let disabled = preset_units(&tree, &["a.service"], &Support::of_version(255)).unwrap();
        assert_eq!(disabled.changes, [removal("x.target.wants/a.service")]);
    }

    #[test]
    fn enabling_and_disabling_leaves_the_tree_as_it_was() {
        let before = tree("WantedBy=x.target\nAlias=b.service");
        let support = Support::of_version(252);
        let mut after = before.clone();
        for run in [enable_units, disable_units] {
            let changes = run(&after, &["a.service"], &support).unwrap().changes;
            assert_eq!(changes.len(), 2);
            changes.iter().for_each(|change| after.apply_change(change));
        }
        assert_eq!(after, before);
    }

    #[test]
    fn contents_that_were_not_read_are_an_error_with_their_path() {
        let mut tree = UnitTree::new();
        tree.set_entry("/usr/lib/systemd/system/a.service", UnitEntry::File(None));
        let error = enable_units(&tree, &["a.service"], &Support::of_version(252)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/usr/lib/systemd/system/a.service was not read"
        );
        assert_eq!(error.partial, []);
    }

    #[test]
    fn a_failure_tells_the_links_made_before_it() {
        let tree = tree("WantedBy=x.target bad");
        let error = enable_units(&tree, &["a.service"], &Support::of_version(252)).unwrap_err();
        assert_eq!(error.to_string(), "bad is not a valid unit name");
        assert_eq!(error.partial, [link("x.target.wants/a.service")]);
    }
}
