//! What `systemctl is-enabled` says of a unit.
//!
//! Links are only looked at here; changing them is in `install`.

use std::collections::BTreeMap;
use std::fmt;

use super::fault::{Fault, Problem};
use super::lookup::{
    Context, Info, Mode, Search, basename, is_from_generator, is_hidden_or_backup, is_runtime,
    is_transient,
};
use super::support::Support;
use super::unit_name::{self, UnitName, UnitNameKind};
use super::unit_tree::{CONFIG_DIR, UnitEntry, UnitTree, relative};
use super::view::View;

/// How a unit is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitFileState {
    /// Links in the config directory want, require or alias it.
    Enabled,
    /// The same in `/run`.
    EnabledRuntime,
    /// A link in the config directory leads to a file outside of the search path.
    Linked,
    /// The same in `/run`.
    LinkedRuntime,
    /// The name is an alias of another unit.
    Alias,
    /// Masked.
    Masked,
    /// Masked in `/run`.
    MaskedRuntime,
    /// There is nothing to enable.
    Static,
    /// It could be enabled.
    Disabled,
    /// Other units or names would be enabled with it, or are.
    Indirect,
    /// Written by a generator.
    Generated,
    /// Written by systemd at run time.
    Transient,
    /// There is no such unit.
    NotFound,
}

impl fmt::Display for UnitFileState {
    /// The word that systemctl prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            UnitFileState::Enabled => "enabled",
            UnitFileState::EnabledRuntime => "enabled-runtime",
            UnitFileState::Linked => "linked",
            UnitFileState::LinkedRuntime => "linked-runtime",
            UnitFileState::Alias => "alias",
            UnitFileState::Masked => "masked",
            UnitFileState::MaskedRuntime => "masked-runtime",
            UnitFileState::Static => "static",
            UnitFileState::Disabled => "disabled",
            UnitFileState::Indirect => "indirect",
            UnitFileState::Generated => "generated",
            UnitFileState::Transient => "transient",
            UnitFileState::NotFound => "not-found",
        })
    }
}

/// What `systemctl is-enabled UNIT` prints, or why it cannot tell (which other
/// commands of systemctl show as `bad`).
pub fn unit_file_state(
    tree: &UnitTree,
    unit: &str,
    support: &Support,
) -> Result<UnitFileState, Problem> {
    let view = View::new(tree);
    let state = find_state(&view, unit, support);
    if let Some(subject) = view.finish().1.pop_first() {
        return Err(Problem {
            subject,
            fault: Fault::NotRead,
        });
    }
    match state {
        Err(Fault::NotFound) => Ok(UnitFileState::NotFound),
        Err(fault) => Err(Problem {
            subject: unit.to_owned(),
            fault,
        }),
        Ok(state) => Ok(state),
    }
}

fn find_state(view: &View<'_>, unit: &str, support: &Support) -> Result<UnitFileState, Fault> {
    let mut context = Context::new(support);
    let id = context.discover(view, unit, Search::LOAD_FOLLOW)?;
    let info = context.info(id);
    if info.mode == Some(Mode::Masked) {
        let runtime = is_runtime(&info.path);
        return Ok(if runtime {
            UnitFileState::MaskedRuntime
        } else {
            UnitFileState::Masked
        });
    }
    let instance =
        UnitName::parse(&info.name).is_some_and(|name| name.kind() == UnitNameKind::Instance);
    if unit != basename(&info.path) && !instance {
        return Ok(UnitFileState::Alias);
    }
    if is_from_generator(&info.path) {
        return Ok(UnitFileState::Generated);
    }
    if is_transient(&info.path) {
        return Ok(UnitFileState::Transient);
    }
    let by_own_names = Links {
        tree: view.tree(),
        info,
        instance,
        known_names: true,
    };
    let by_any_name = Links {
        known_names: false,
        ..by_own_names
    };
    Ok(
        match (by_own_names.state(support), by_any_name.state(support)) {
            (Some(state), _) => state,
            (None, Some(_)) => UnitFileState::Indirect,
            (None, None) if info.section.has_rules() => UnitFileState::Disabled,
            (None, None) if !info.section.also.is_empty() => UnitFileState::Indirect,
            (None, None) => UnitFileState::Static,
        },
    )
}

/// The links that have to do with a unit.
#[derive(Clone, Copy)]
struct Links<'v> {
    tree: &'v UnitTree,
    info: &'v Info,
    instance: bool,
    /// Only count links whose names `[Install]` would give.
    known_names: bool,
}

/// What one directory of the search path has for a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    /// A link of the unit's own name that leads to a file of the same name.
    SameName,
    Enabling,
}

impl Links<'_> {
    fn state(&self, support: &Support) -> Option<UnitFileState> {
        let mut runtime = Found::Nothing;
        let mut elsewhere = false;
        let mut linked = false;
        // Links below the unit file in priority have no effect under its own name.
        let mut hidden = false;
        for dir in &self.tree.dirs {
            match self.in_search_dir(&dir.entries, hidden, support) {
                Found::Enabling if dir.path == CONFIG_DIR => return Some(UnitFileState::Enabled),
                Found::SameName if dir.path == CONFIG_DIR => linked = true,
                Found::Enabling if is_runtime(&dir.path) => runtime = Found::Enabling,
                Found::SameName if is_runtime(&dir.path) && runtime == Found::Nothing => {
                    runtime = Found::SameName
                }
                Found::Enabling => elsewhere = true,
                Found::SameName | Found::Nothing => (),
            }
            hidden |= relative(&self.info.path, &dir.path).is_some();
        }
        match runtime {
            Found::Enabling => Some(UnitFileState::EnabledRuntime),
            _ if elsewhere && self.instance => Some(UnitFileState::Static),
            _ if linked => Some(UnitFileState::Linked),
            Found::SameName => Some(UnitFileState::LinkedRuntime),
            Found::Nothing => None,
        }
    }

    fn in_search_dir(
        &self,
        entries: &BTreeMap<String, UnitEntry>,
        hidden: bool,
        support: &Support,
    ) -> Found {
        for (name, entry) in entries {
            let UnitEntry::Directory(links) = entry else {
                continue;
            };
            let mut suffixes = support.dependency_suffixes().iter();
            let dependencies = suffixes.any(|suffix| name.ends_with(suffix));
            if dependencies && !is_hidden_or_backup(name) && self.has_dependency(links) {
                return Found::Enabling;
            }
        }
        let mut found = Found::Nothing;
        for (name, entry) in entries {
            let UnitEntry::Link(target) = entry else {
                continue;
            };
            match self.as_alias(name, target, hidden) {
                Found::Nothing => (),
                _ if is_hidden_or_backup(name) => (),
                Found::Enabling => return Found::Enabling,
                Found::SameName => found = Found::SameName,
            }
        }
        found
    }

    fn has_dependency(&self, links: &BTreeMap<String, UnitEntry>) -> bool {
        let own = &self.info.name;
        let link = |name: &str, entry: &UnitEntry| {
            matches!(entry, UnitEntry::Link(_)) && !is_hidden_or_backup(name)
        };
        if links.get(own).is_some_and(|entry| link(own, entry)) {
            return true;
        }
        let of_template =
            |name: &str| unit_name::template_of(name).is_some_and(|template| template == *own);
        own.contains("@.")
            && links
                .iter()
                .any(|(name, entry)| of_template(name) && link(name, entry) && self.counts(name))
    }

    fn as_alias(&self, name: &str, target: &str, hidden: bool) -> Found {
        let to_unit = basename(target) == self.info.name;
        let by_name = !hidden && name == self.info.name;
        if to_unit && by_name {
            Found::SameName
        } else if (to_unit || by_name) && self.counts(name) {
            Found::Enabling
        } else {
            Found::Nothing
        }
    }

    /// Whether a link of this name counts.
    fn counts(&self, name: &str) -> bool {
        let default = || {
            let template = UnitName::parse(&self.info.name)?;
            template.with_instance(self.info.section.default_instance.as_deref()?)
        };
        !self.known_names
            || name == self.info.name
            || self.info.section.alias.iter().any(|alias| alias == name)
            || default().is_some_and(|instance| instance == name)
    }
}
