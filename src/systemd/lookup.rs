//! Finding and reading units: systemd's search path, links between names, drop-ins.
//!
//! What an operation knows of the units it has met is kept in a [`Context`]; it
//! reads the [`View`] and never changes links, which is done by `install`.

use std::collections::BTreeMap;

use super::fault::Fault;
use super::install_section::InstallSection;
use super::support::Support;
use super::unit_name::{self, UnitName, UnitNameKind};
use super::unit_tree::{CONFIG_DIR, RUNTIME_CONFIG_DIR, UnitEntry, UnitTree, relative};
use super::view::{Node, View};

/// systemd follows a unit's names this often.
pub(super) const FOLLOW_MAX: usize = 64;

/// How a unit file is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Regular,
    /// A link to another name in the search path.
    Alias,
    /// A link to a file outside of the search path.
    Linked,
    Masked,
}

/// How far to look for a unit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// Read the `[Install]` section.
    pub(super) load: bool,
    /// Follow links in configuration directories.
    pub(super) follow_config: bool,
}

impl Search {
    pub(super) const FOLLOW: Search = Search {
        load: false,
        follow_config: true,
    };
    pub(super) const LOAD: Search = Search {
        load: true,
        follow_config: false,
    };
    pub(super) const LOAD_FOLLOW: Search = Search {
        load: true,
        follow_config: true,
    };
}

/// What is known of a unit.
#[derive(Debug, Clone)]
pub(super) struct Info {
    pub(super) name: String,
    pub(super) path: String,
    /// `None` until it was found.
    pub(super) mode: Option<Mode>,
    /// Only met in an `Also=`.
    pub(super) auxiliary: bool,
    pub(super) section: InstallSection,
    link_target: String,
}

/// Which unit of a [`Context`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InfoId(usize);

/// The units met in one operation, in the order in which they were met.
pub(super) struct Context<'s> {
    support: &'s Support,
    infos: Vec<Info>,
    processed: usize,
}

impl<'s> Context<'s> {
    pub(super) fn new(support: &'s Support) -> Self {
        Context {
            support,
            infos: Vec::new(),
            processed: 0,
        }
    }

    pub(super) fn info(&self, id: InfoId) -> &Info {
        &self.infos[id.0]
    }

    fn info_mut(&mut self, id: InfoId) -> &mut Info {
        &mut self.infos[id.0]
    }

    pub(super) fn find(&self, name: &str) -> Option<InfoId> {
        self.infos
            .iter()
            .position(|info| info.name == name)
            .map(InfoId)
    }

    /// The next unit that was not yet processed. Processing can add more.
    pub(super) fn next(&mut self) -> Option<InfoId> {
        let next = InfoId(self.processed);
        (self.processed < self.infos.len()).then(|| {
            self.processed += 1;
            next
        })
    }

    pub(super) fn add(&mut self, name: &str, auxiliary: bool) -> Result<InfoId, Fault> {
        if UnitName::parse(name).is_none() {
            return Err(Fault::InvalidName);
        }
        if let Some(id) = self.find(name) {
            self.info_mut(id).auxiliary &= auxiliary;
            return Ok(id);
        }
        self.infos.push(Info {
            name: name.to_owned(),
            path: String::new(),
            mode: None,
            auxiliary,
            section: InstallSection::default(),
            link_target: String::new(),
        });
        Ok(InfoId(self.infos.len() - 1))
    }

    /// Add a unit and find what it finally is.
    pub(super) fn discover(
        &mut self,
        view: &View<'_>,
        name: &str,
        search: Search,
    ) -> Result<InfoId, Fault> {
        let id = self.add(name, false)?;
        self.traverse(view, id, search)
    }

    /// Find a unit, and follow its links to the unit it stands for.
    pub(super) fn traverse(
        &mut self,
        view: &View<'_>,
        start: InfoId,
        search: Search,
    ) -> Result<InfoId, Fault> {
        self.search(view, start, search)?;
        let mut id = start;
        let mut followed = 0;
        while matches!(self.info(id).mode, Some(Mode::Alias | Mode::Linked)) {
            followed += 1;
            if followed > FOLLOW_MAX || (!search.follow_config && is_config(&self.info(id).path)) {
                return Err(Fault::TooManyLinks);
            }
            match self.name_behind(id) {
                None => self.follow(view, id, search)?,
                Some(name) => {
                    id = self.add(&name, false)?;
                    self.search(view, id, search).map_err(|fault| match fault {
                        Fault::NotFound => Fault::DanglingAlias,
                        other => other,
                    })?;
                }
            }
        }
        Ok(id)
    }

    /// The other unit that this alias stands for; `None` if the link leads to a file for the same unit.
    fn name_behind(&self, id: InfoId) -> Option<String> {
        let info = self.info(id);
        let target = basename(&info.link_target);
        if info.mode == Some(Mode::Linked) || target == info.name {
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

    fn follow(&mut self, view: &View<'_>, id: InfoId, search: Search) -> Result<(), Fault> {
        let info = self.info_mut(id);
        info.path = std::mem::take(&mut info.link_target);
        info.mode = None;
        let path = info.path.clone();
        self.load_or_readlink(view, id, &path, search)
    }

    /// Find the file of a unit, by its name or as an instance of a template.
    pub(super) fn search(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        search: Search,
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
                if search.load && self.info(id).mode != Some(Mode::Masked) {
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
        search: Search,
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

    /// Drop-ins count by file name over all directories; the first of a name hides the others.
    fn load_dropins(&mut self, view: &View<'_>, id: InfoId, names: &[String]) -> Result<(), Fault> {
        let mut files = BTreeMap::new();
        for name in names {
            let dropins = format!("{name}.d");
            for dir in view.search_dirs() {
                if !dir.entries.contains_key(&dropins) {
                    continue;
                }
                // A directory that cannot be reached counts as none.
                let Ok(dir) = followed(view, &format!("{}/{dropins}", dir.path)) else {
                    continue;
                };
                let Node::Directory(entries) = view.node(&dir) else {
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
        let path = followed(view, path)?;
        match view.node(&path) {
            Node::File(contents) => self.read_section(id, view.contents(&path, contents)),
            Node::Null => Ok(()),
            Node::Missing => Err(Fault::NotFound),
            Node::Link(_) | Node::Directory(_) | Node::Other => Err(Fault::NotRegular),
        }
    }

    /// Look at the file at `path` as the main file of the unit.
    fn load_or_readlink(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        path: &str,
        search: Search,
    ) -> Result<(), Fault> {
        let mode = match view.node(path) {
            Node::Missing => return Err(Fault::NotFound),
            Node::Directory(_) | Node::Other => return Err(Fault::NotRegular),
            Node::Null => Mode::Masked,
            Node::Link(target) => self.readlink(view, id, path, target)?,
            Node::File(contents) => match view.contents(path, contents) {
                "" => Mode::Masked,
                text if search.load => {
                    self.read_section(id, text)?;
                    Mode::Regular
                }
                _ => Mode::Regular,
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
        let result = info.section.read(&name, text, support);
        let also: Vec<String> = info.section.also.iter().skip(known).cloned().collect();
        for name in also {
            self.add(&name, true)?;
        }
        Ok(result?)
    }

    fn readlink(
        &mut self,
        view: &View<'_>,
        id: InfoId,
        path: &str,
        target: &str,
    ) -> Result<Mode, Fault> {
        // A link through a file counts as none: systemd looks for the unit further on.
        let target = match view.chase(&join(path, target), false) {
            Err(Fault::NoDirectory) => return Err(Fault::NotFound),
            target => target?,
        };
        let alias = view.below_search_path(&target);
        if alias {
            check_alias(basename(path), basename(&target))?;
        }
        let mode = match view.is_null_or_empty(&target)? {
            Some(true) => Mode::Masked,
            _ if alias => Mode::Alias,
            _ => Mode::Linked,
        };
        self.info_mut(id).link_target = target;
        Ok(mode)
    }
}

/// The path, or where it leads if it is a link.
fn followed(view: &View<'_>, path: &str) -> Result<String, Fault> {
    match view.node(path) {
        Node::Link(_) => view.chase(path, true),
        _ => Ok(path.to_owned()),
    }
}

/// Whether a unit may have this other name.
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

/// Where a link at `path` leads, not yet normalised.
pub(super) fn join(path: &str, target: &str) -> String {
    if target.starts_with('/') {
        target.to_owned()
    } else {
        format!("{}/{target}", parent(path))
    }
}

/// The last component of a path.
pub(super) fn basename(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The directory that a path is in.
pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Whether a unit file is configuration of the administrator.
fn is_config(path: &str) -> bool {
    matches!(parent(path), CONFIG_DIR | RUNTIME_CONFIG_DIR)
}

/// Whether a path is gone after a reboot.
pub(super) fn is_runtime(path: &str) -> bool {
    relative(path, "/run").is_some()
}

/// Whether a unit file was written by a generator or by systemd itself.
pub(super) fn is_generated(path: &str) -> bool {
    is_from_generator(path) || is_transient(path)
}

/// Whether a unit file was written by a generator.
pub(super) fn is_from_generator(path: &str) -> bool {
    matches!(
        parent(path),
        "/run/systemd/generator" | "/run/systemd/generator.early" | "/run/systemd/generator.late"
    )
}

/// Whether a unit file was written by systemd itself.
pub(super) fn is_transient(path: &str) -> bool {
    parent(path) == "/run/systemd/transient"
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

/// Names that systemd passes over when it lists a directory.
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
            let id = context.add("a.service", auxiliary).unwrap();
            assert_eq!(context.info(id).auxiliary, expected);
        }
    }
}
