//! Finding and reading units: systemd's search path, links between names, drop-ins.
//!
//! The units that an operation encounters are stored in a [`Context`]. It reads the [`View`] and never changes links; `install`
//! does that.

use std::collections::BTreeMap;

use super::chase::PathNodes;
use super::fault::Fault;
use super::install_section::InstallSection;
use super::support::Support;
use super::unit_entry::TreeNode;
use super::unit_name::{self, UnitName, UnitNameKind};
use super::unit_tree::{CONFIG_DIR, RUNTIME_CONFIG_DIR, UnitEntry, UnitTree, path_below};
use super::view::View;

/// Maximum number of names of a unit that systemd follows.
pub(super) const FOLLOW_MAX: usize = 64;

/// The form of a unit file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnitFileForm {
    Regular,
    /// A link to another name in the search path.
    Alias,
    /// A link to a file outside of the search path.
    Linked,
    Masked,
}

/// The depth of a search for a unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchDepth {
    /// The `[Install]` section is read.
    pub(super) load: bool,
    /// Links in configuration directories are followed.
    pub(super) follow_config: bool,
}

impl SearchDepth {
    pub(super) const FOLLOW: SearchDepth = SearchDepth {
        load: false,
        follow_config: true,
    };
    pub(super) const LOAD: SearchDepth = SearchDepth {
        load: true,
        follow_config: false,
    };
    pub(super) const LOAD_FOLLOW: SearchDepth = SearchDepth {
        load: true,
        follow_config: true,
    };
}

/// The known facts about a unit.
#[derive(Debug, Clone)]
pub(super) struct Info {
    pub(super) name: String,
    pub(super) path: String,
    /// `None` until it is found.
    pub(super) mode: Option<UnitFileForm>,
    /// Only named in an `Also=`.
    pub(super) auxiliary: bool,
    pub(super) section: InstallSection,
    link_target: String,
}

/// The index of a unit in a [`Context`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InfoId(usize);

/// The units encountered in one operation, in order.
pub(super) struct Context<'s> {
    support: &'s Support,
    infos: Vec<Info>,
    by_name: BTreeMap<String, InfoId>,
    processed: usize,
}

impl<'s> Context<'s> {
    pub(super) fn new(support: &'s Support) -> Self {
        Context {
            support,
            infos: Vec::new(),
            by_name: BTreeMap::new(),
            processed: 0,
        }
    }

    pub(super) fn info(&self, id: InfoId) -> &Info {
        &self.infos[id.0]
    }

    fn info_mut(&mut self, id: InfoId) -> &mut Info {
        &mut self.infos[id.0]
    }

    pub(super) fn find_info(&self, name: &str) -> Option<InfoId> {
        self.by_name.get(name).copied()
    }

    /// Returns the next unit that has not been processed. Processing may add more.
    pub(super) fn next(&mut self) -> Option<InfoId> {
        let next = InfoId(self.processed);
        (self.processed < self.infos.len()).then(|| {
            self.processed += 1;
            next
        })
    }

    pub(super) fn add_unit(&mut self, name: &str, auxiliary: bool) -> Result<InfoId, Fault> {
        if UnitName::parse(name).is_none() {
            return Err(Fault::InvalidName);
        }
        if let Some(id) = self.find_info(name) {
            self.info_mut(id).auxiliary &= auxiliary;
            return Ok(id);
        }
        let id = InfoId(self.infos.len());
        self.by_name.insert(name.to_owned(), id);
        self.infos.push(Info {
            name: name.to_owned(),
            path: String::new(),
            mode: None,
            auxiliary,
            section: InstallSection::default(),
            link_target: String::new(),
        });
        Ok(id)
    }

    /// Adds a unit and finds the unit that it finally stands for.
    pub(super) fn discover_unit(
        &mut self,
        view: &View<'_>,
        name: &str,
        search: SearchDepth,
    ) -> Result<InfoId, Fault> {
        let id = self.add_unit(name, false)?;
        self.traverse_links(view, id, search)
    }

    /// Finds a unit, and follows its links to the unit it stands for.
    pub(super) fn traverse_links(
        &mut self,
        view: &View<'_>,
        start: InfoId,
        search: SearchDepth,
    ) -> Result<InfoId, Fault> {
        self.search_unit(view, start, search)?;
        let mut id = start;
        let mut followed = 0;
        while matches!(
            self.info(id).mode,
            Some(UnitFileForm::Alias | UnitFileForm::Linked)
        ) {
            followed += 1;
            if followed > FOLLOW_MAX || (!search.follow_config && is_config(&self.info(id).path)) {
                return Err(Fault::TooManyLinks);
            }
            match self.name_behind(id) {
                None => self.follow_link(view, id, search)?,
                Some(name) => {
                    id = self.add_unit(&name, false)?;
                    self.search_unit(view, id, search)
                        .map_err(|fault| match fault {
                            Fault::NotFound => Fault::DanglingAlias,
                            other => other,
                        })?;
                }
            }
        }
        Ok(id)
    }

    /// Returns the other unit that this alias stands for; `None` if the link leads to a file for the same unit.
    fn name_behind(&self, id: InfoId) -> Option<String> {
        let info = self.info(id);
        let target = file_name(&info.link_target);
        if info.mode == Some(UnitFileForm::Linked) || target == info.name {
            return None;
        }
        let instance = UnitName::parse(&info.name)?
            .instance
            .filter(|i| !i.is_empty());
        let template = UnitName::parse(target).filter(|name| name.kind() == UnitNameKind::Template);
        let name = match (instance, template) {
            (Some(instance), Some(template)) => template.with_instance(instance)?,
            _ => target.to_owned(),
        };
        (name != info.name).then_some(name)
    }

    fn follow_link(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        search: SearchDepth,
    ) -> Result<(), Fault> {
        let info = self.info_mut(id);
        info.path = std::mem::take(&mut info.link_target);
        info.mode = None;
        let path = info.path.clone();
        self.load_or_readlink(view, id, &path, search)
    }

    /// Finds the file of a unit, by its name or as an instance of a template.
    pub(super) fn search_unit(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        search: SearchDepth,
    ) -> Result<(), Fault> {
        let info = self.info(id);
        if info.mode.is_some() {
            return Ok(());
        }
        let parsed = UnitName::parse(&info.name).ok_or(Fault::InvalidName)?;
        if parsed.instance.is_some() && !parsed.may_template() {
            return Err(Fault::NotTemplatable);
        }
        let template = (parsed.kind() == UnitNameKind::Instance)
            .then(|| parsed.template())
            .flatten();
        let name = info.name.clone();
        let names: Vec<String> = std::iter::once(name).chain(template).collect();
        for name in &names {
            if self.search_name(view, id, name, search)? {
                if search.load && self.info(id).mode != Some(UnitFileForm::Masked) {
                    self.load_dropins(view, id, &names)?;
                }
                return Ok(());
            }
        }
        Err(Fault::NotFound)
    }

    fn search_name(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        name: &str,
        search: SearchDepth,
    ) -> Result<bool, Fault> {
        for dir in view.search_dirs() {
            if !dir.entries.contains_key(name) {
                continue;
            }
            let path = format!("{}/{name}", dir.path);
            match self.load_or_readlink(view, id, &path, search) {
                Ok(()) => {
                    self.info_mut(id).path = path;
                    return Ok(true);
                }
                Err(Fault::NotFound) => (),
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    /// Reads the drop-ins. They are sorted by file name across all directories; the first of a name hides the others.
    fn load_dropins(&mut self, view: &View<'_>, id: InfoId, names: &[String]) -> Result<(), Fault> {
        let mut files = BTreeMap::new();
        for name in names {
            let dropins = format!("{name}.d");
            for dir in view.search_dirs() {
                if !dir.entries.contains_key(&dropins) {
                    continue;
                }
                // A directory that cannot be reached does not count.
                let Ok(dir) = follow_path(view, &format!("{}/{dropins}", dir.path)) else {
                    continue;
                };
                let TreeNode::Directory(entries) = view.node_at(&dir) else {
                    continue;
                };
                for file in entries
                    .keys()
                    .filter(|file| file.ends_with(".conf") && !file.starts_with('.'))
                {
                    files
                        .entry(file.clone())
                        .or_insert_with(|| format!("{dir}/{file}"));
                }
            }
        }
        files.into_values().try_for_each(|path| {
            let loaded = self.load_dropin(view, id, &path);
            loaded.map_err(|fault| match fault {
                Fault::NoDirectory | Fault::NameTooLong | Fault::TooManyLinks => {
                    Fault::Dropin(path, Box::new(fault))
                }
                other => other,
            })
        })
    }

    fn load_dropin(&mut self, view: &View<'_>, id: InfoId, path: &str) -> Result<(), Fault> {
        let path = follow_path(view, path)?;
        match view.node_at(&path) {
            TreeNode::File(contents) => self.read_section(id, view.text_at(&path, contents)),
            TreeNode::Null => Ok(()),
            TreeNode::Missing => Err(Fault::NotFound),
            TreeNode::Link(_) | TreeNode::Directory(_) | TreeNode::Other => Err(Fault::NotRegular),
        }
    }

    /// Uses the file at `path` as the main file of the unit.
    fn load_or_readlink(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        path: &str,
        search: SearchDepth,
    ) -> Result<(), Fault> {
        let mode = match view.node_at(path) {
            TreeNode::Missing => return Err(Fault::NotFound),
            TreeNode::Directory(_) | TreeNode::Other => return Err(Fault::NotRegular),
            TreeNode::Null => UnitFileForm::Masked,
            TreeNode::Link(target) => self.classify_link(view, id, path, target)?,
            TreeNode::File(contents) => match view.text_at(path, contents) {
                "" => UnitFileForm::Masked,
                text if search.load => {
                    self.read_section(id, text)?;
                    UnitFileForm::Regular
                }
                _ => UnitFileForm::Regular,
            },
        };
        self.info_mut(id).mode = Some(mode);
        Ok(())
    }

    fn read_section(&mut self, id: InfoId, text: &str) -> Result<(), Fault> {
        let support = self.support;
        let info = self.info_mut(id);
        let known = info.section.also.len();
        let name = UnitName::parse(&info.name).ok_or(Fault::InvalidName)?;
        let result = info.section.read_file(&name, text, support);
        let also: Vec<String> = info.section.also.iter().skip(known).cloned().collect();
        for name in also {
            self.add_unit(&name, true)?;
        }
        Ok(result?)
    }

    fn classify_link(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        path: &str,
        target: &str,
    ) -> Result<UnitFileForm, Fault> {
        // A link through a file does not count: systemd continues its search.
        let target = match view.chase_path(&join_target(path, target), false) {
            Err(Fault::NoDirectory) => return Err(Fault::NotFound),
            target => target?,
        };
        let alias = view.below_search_path(&target);
        if alias {
            check_alias(file_name(path), file_name(&target))?;
        }
        let mode = match view.is_null_or_empty(&target)? {
            Some(true) => UnitFileForm::Masked,
            _ if alias => UnitFileForm::Alias,
            _ => UnitFileForm::Linked,
        };
        self.info_mut(id).link_target = target;
        Ok(mode)
    }
}

/// Returns the path, or the target of the link there.
fn follow_path(view: &View<'_>, path: &str) -> Result<String, Fault> {
    match view.node_at(path) {
        TreeNode::Link(_) => view.chase_path(path, true),
        _ => Ok(path.to_owned()),
    }
}

/// Checks that a unit may have this other name.
pub(super) fn check_alias(alias: &str, unit: &str) -> Result<(), Fault> {
    let bad = || Fault::BadAlias(unit.to_owned());
    let from = UnitName::parse(alias).ok_or(Fault::InvalidName)?;
    if !from.may_alias() || (from.kind() != UnitNameKind::Plain && !from.may_template()) {
        return Err(bad());
    }
    if alias == unit {
        return Err(Fault::TooManyLinks);
    }
    let to = UnitName::parse(unit).ok_or_else(bad)?;
    let kinds_fit = from.kind() == to.kind()
        || (from.kind() == UnitNameKind::Instance && to.kind() == UnitNameKind::Template);
    let instances_fit = to.kind() != UnitNameKind::Instance || from.instance == to.instance;
    if kinds_fit && instances_fit && from.suffix == to.suffix {
        Ok(())
    } else {
        Err(bad())
    }
}

/// Returns the target of a link at `path` as a complete path, not yet normalized.
pub(super) fn join_target(path: &str, target: &str) -> String {
    if target.starts_with('/') {
        target.to_owned()
    } else {
        format!("{}/{target}", parent_path(path))
    }
}

/// Returns the last component of a path.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// Returns the directory that contains a path.
pub(super) fn parent_path(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Returns true for a unit file in the administrator's configuration.
fn is_config(path: &str) -> bool {
    matches!(parent_path(path), CONFIG_DIR | RUNTIME_CONFIG_DIR)
}

/// Returns true for a path that a reboot removes.
pub(super) fn is_runtime(path: &str) -> bool {
    path_below(path, "/run").is_some()
}

/// Returns true for a unit file of a generator or of systemd itself.
pub(super) fn is_generated(path: &str) -> bool {
    is_from_generator(path) || is_transient(path)
}

/// Returns true for a unit file of a generator.
pub(super) fn is_from_generator(path: &str) -> bool {
    matches!(
        parent_path(path),
        "/run/systemd/generator" | "/run/systemd/generator.early" | "/run/systemd/generator.late"
    )
}

/// Returns true for a unit file of systemd itself.
pub(super) fn is_transient(path: &str) -> bool {
    parent_path(path) == "/run/systemd/transient"
}

/// Returns the paths of all links below the config directory that could be named after a unit.
pub(super) fn config_links(tree: &UnitTree) -> impl Iterator<Item = String> + use<> {
    let entries = tree.entries_of(CONFIG_DIR);
    let links = entries.map(|entries| links_below(entries, CONFIG_DIR));
    links.unwrap_or_default().into_iter()
}

fn links_below(entries: &BTreeMap<String, UnitEntry>, dir: &str) -> Vec<String> {
    let mut links = Vec::new();
    for (name, entry) in entries
        .iter()
        .filter(|(name, _)| !is_hidden_or_backup(name))
    {
        match entry {
            UnitEntry::Directory(entries) => {
                links.extend(links_below(entries, &format!("{dir}/{name}")))
            }
            UnitEntry::Link(_) if unit_name::is_valid(name) => links.push(format!("{dir}/{name}")),
            _ => (),
        }
    }
    links
}

/// Returns true for names that systemd skips when it lists a directory.
pub(super) fn is_hidden_or_backup(name: &str) -> bool {
    const ENDINGS: [&str; 17] = [
        "rpmnew",
        "rpmsave",
        "rpmorig",
        "dpkg-old",
        "dpkg-new",
        "dpkg-tmp",
        "dpkg-dist",
        "dpkg-bak",
        "dpkg-backup",
        "dpkg-remove",
        "ucf-new",
        "ucf-old",
        "ucf-dist",
        "swp",
        "bak",
        "old",
        "new",
    ];
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    name.starts_with('.') || name.ends_with('~') || ending.is_some_and(|e| ENDINGS.contains(&e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn aliases_must_fit_in_type_and_form() {
        for (alias, unit) in [
            ("a.service", "b.service"),
            ("a@.timer", "b@.timer"),
            ("a@x.service", "b@x.service"),
            ("a@x.service", "b@.service"),
        ] {
            assert_eq!(check_alias(alias, unit), Ok(()), "{alias} {unit}");
        }
        for (alias, unit) in [
            ("a.socket", "b.service"),
            ("a.service", "b@.service"),
            ("a@x.service", "b@y.service"),
            ("a.mount", "b.mount"),
            ("a@.service", "b@x.service"),
        ] {
            assert_eq!(
                check_alias(alias, unit),
                Err(Fault::BadAlias(unit.to_owned())),
                "{alias} {unit}"
            );
        }
        assert_eq!(
            check_alias("a.service", "a.service"),
            Err(Fault::TooManyLinks)
        );
    }

    #[test]
    fn a_unit_is_auxiliary_only_as_long_as_nothing_else_names_it() {
        let support = Support::of_version(252);
        let mut context = Context::new(&support);
        for (auxiliary, expected) in [(true, true), (false, false), (true, false)] {
            let id = context.add_unit("a.service", auxiliary).unwrap();
            assert_eq!(context.info(id).auxiliary, expected);
        }
    }
}
