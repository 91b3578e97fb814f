//! The state of a unit as `systemctl is-enabled` prints it.
//!
//! Only reads links; `install` changes them.

use std::collections::BTreeMap;
use std::fmt;

use super::fault::{Fault, Problem};
use super::lookup::{
    Context, Info, SearchDepth, UnitFileForm, file_name, is_from_generator, is_hidden_or_backup,
    is_runtime, is_transient,
};
use super::support::Support;
use super::unit_name::{self, UnitName, UnitNameKind};
use super::unit_tree::{CONFIG_DIR, UnitEntry, UnitTree, path_below};
use super::view::View;

/// The enablement of a unit.
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
    /// No `[Install]` section, so nothing to enable.
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

/// Returns the state printed by `systemctl is-enabled UNIT`, or the problem with the unit (which other systemctl commands show
/// as `bad`).
pub fn unit_file_state(
    tree: &UnitTree,
    unit: &str,
    support: &Support,
) -> Result<UnitFileState, Problem> {
    let view = View::new(tree);
    let state = find_state(&view, unit, support);
    if let Some(subject) = view.into_parts().1.pop_first() {
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
    let id = context.discover_unit(view, unit, SearchDepth::LOAD_FOLLOW)?;
    let info = context.info(id);
    if info.mode == Some(UnitFileForm::Masked) {
        let runtime = is_runtime(&info.path);
        return Ok(if runtime {
            UnitFileState::MaskedRuntime
        } else {
            UnitFileState::Masked
        });
    }
    let instance =
        UnitName::parse(&info.name).is_some_and(|name| name.kind() == UnitNameKind::Instance);
    if unit != file_name(&info.path) && !instance {
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
        match (
            by_own_names.enabled_state(support),
            by_any_name.enabled_state(support),
        ) {
            (Some(state), _) => state,
            (None, Some(_)) => UnitFileState::Indirect,
            (None, None) if info.section.has_rules() => UnitFileState::Disabled,
            (None, None) if !info.section.also.is_empty() => UnitFileState::Indirect,
            (None, None) => UnitFileState::Static,
        },
    )
}

/// The links that involve a unit.
#[derive(Clone, Copy)]
struct Links<'v> {
    tree: &'v UnitTree,
    info: &'v Info,
    instance: bool,
    /// True to count only links whose names `[Install]` would give.
    known_names: bool,
}

/// The effect of one directory of the search path on a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkEffect {
    Nothing,
    /// A link of the unit's own name that leads to a file of the same name.
    SameName,
    Enabling,
}

impl Links<'_> {
    fn enabled_state(&self, support: &Support) -> Option<UnitFileState> {
        let mut runtime = LinkEffect::Nothing;
        let mut elsewhere = false;
        let mut linked = false;
        // Links with a lower priority than the unit file have no effect under its own name.
        let mut hidden = false;
        for dir in &self.tree.dirs {
            match self.in_search_dir(&dir.entries, hidden, support) {
                LinkEffect::Enabling if dir.path == CONFIG_DIR => {
                    return Some(UnitFileState::Enabled);
                }
                LinkEffect::SameName if dir.path == CONFIG_DIR => linked = true,
                LinkEffect::Enabling if is_runtime(&dir.path) => runtime = LinkEffect::Enabling,
                LinkEffect::SameName if is_runtime(&dir.path) && runtime == LinkEffect::Nothing => {
                    runtime = LinkEffect::SameName
                }
                LinkEffect::Enabling => elsewhere = true,
                LinkEffect::SameName | LinkEffect::Nothing => (),
            }
            hidden |= path_below(&self.info.path, &dir.path).is_some();
        }
        match runtime {
            LinkEffect::Enabling => Some(UnitFileState::EnabledRuntime),
            _ if elsewhere && self.instance => Some(UnitFileState::Static),
            _ if linked => Some(UnitFileState::Linked),
            LinkEffect::SameName => Some(UnitFileState::LinkedRuntime),
            LinkEffect::Nothing => None,
        }
    }

    fn in_search_dir(
        &self,
        entries: &BTreeMap<String, UnitEntry>,
        hidden: bool,
        support: &Support,
    ) -> LinkEffect {
        for (name, entry) in entries {
            let UnitEntry::Directory(links) = entry else {
                continue;
            };
            let mut suffixes = support.dependency_suffixes().iter();
            let dependencies = suffixes.any(|suffix| name.ends_with(suffix));
            if dependencies && !is_hidden_or_backup(name) && self.has_dependency(links) {
                return LinkEffect::Enabling;
            }
        }
        let mut found = LinkEffect::Nothing;
        for (name, entry) in entries {
            let UnitEntry::Link(target) = entry else {
                continue;
            };
            match self.as_alias(name, target, hidden) {
                LinkEffect::Nothing => (),
                _ if is_hidden_or_backup(name) => (),
                LinkEffect::Enabling => return LinkEffect::Enabling,
                LinkEffect::SameName => found = LinkEffect::SameName,
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
            && links.iter().any(|(name, entry)| {
                of_template(name) && link(name, entry) && self.counts_link(name)
            })
    }

    fn as_alias(&self, name: &str, target: &str, hidden: bool) -> LinkEffect {
        let to_unit = file_name(target) == self.info.name;
        let by_name = !hidden && name == self.info.name;
        if to_unit && by_name {
            LinkEffect::SameName
        } else if (to_unit || by_name) && self.counts_link(name) {
            LinkEffect::Enabling
        } else {
            LinkEffect::Nothing
        }
    }

    /// Returns true for a link with a name that counts.
    fn counts_link(&self, name: &str) -> bool {
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
