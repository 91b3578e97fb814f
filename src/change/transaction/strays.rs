//! Staging directories that no run needs any more: on a disk that was not mounted when its run was recovered, or on one that
//! lost their removal in a power cut. They contain old files, including secrets, so every later run removes them.
//!
//! Only ours: by name, owner and mode, in the places where runs create them, and not where another root below this one has a
//! state directory of its own, because its runs are its own matter. Names in them that are not ours are kept and logged.

use nix::sys::stat::SFlag;

use super::journal::is_staged_name;
use super::leavings::{empty_directory, remove_staged};
use crate::base::paths;
use crate::host::root::{Root, RootPath};

/// Prefix of every staging directory outside of the state directory; the id of its run follows.
const PREFIX: &str = ".mco-rescue-";

/// Returns the staging directories of finished runs, except those of the run with this id.
pub(super) fn find_stages(root: &Root, pending: Option<&str>) -> Vec<RootPath> {
    let stage = RootPath::fixed(paths::STAGE);
    let names = root.list(&stage).unwrap_or_default().into_iter();
    let own = names.filter(|name| is_id(name));
    let own = own.filter_map(|name| stage.join(&name).ok());
    let mut all: Vec<RootPath> = own.collect();
    for place in stage_places(root) {
        all.extend(stages_in(root, place.as_ref()));
    }
    all.retain(|path| is_ours(root, path) && !pending.is_some_and(|id| is_of(path, id)));
    all
}

/// Returns true if all these staging directories can be found by location and name alone.
pub(super) fn are_searched(root: &Root, stages: &[RootPath]) -> bool {
    let places = stage_places(root);
    let mut stages = stages.iter();
    stages.all(|path| path.is_in(paths::STAGE) || places.contains(&path.parent()))
}

/// Removes them and returns those that were removed.
pub(super) fn sweep_stages(root: &Root, pending: Option<&str>) -> Vec<RootPath> {
    let mut all = find_stages(root, pending);
    all.retain(|path| {
        empty_directory(root, path, is_staged_name, remove_staged)
            && !root.exists(path).unwrap_or(true)
    });
    all
}

/// Returns the top of every mount, or if the top is not writable, as in a deployment, the directory below it.
fn stage_places(root: &Root) -> Vec<Option<RootPath>> {
    let mut all = vec![None, Some(RootPath::fixed("etc"))];
    let others = root.mount_points().into_iter();
    let others = others.filter(|place| !is_of_another_root(root, place));
    all.extend(others.map(Some));
    all.dedup();
    all
}

fn is_of_another_root(root: &Root, place: &RootPath) -> bool {
    place.ancestors().any(|above| {
        let state = above.join(paths::STATE);
        state.is_ok_and(|state| root.exists(&state).unwrap_or(true))
    })
}

fn stages_in(root: &Root, place: Option<&RootPath>) -> Vec<RootPath> {
    let names = match place {
        Some(place) => root.list(place),
        None => root.list_top(),
    };
    let names = names.unwrap_or_default().into_iter();
    let ours = names.filter(|name| name.strip_prefix(PREFIX).is_some_and(is_id));
    let paths = ours.filter_map(|name| match place {
        Some(place) => place.join(&name).ok(),
        None => RootPath::parse(&format!("/{name}")).ok(),
    });
    paths.collect()
}

/// Returns true for `MILLISECONDS-PROCESS`, with a third number if a run has many steps.
fn is_id(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (2..=3).contains(&parts.len()) && parts.iter().all(number)
}

fn is_of(path: &RootPath, id: &str) -> bool {
    let name = path.name();
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    let rest = name.strip_prefix(id);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn is_ours(root: &Root, path: &RootPath) -> bool {
    let stat = root.open_place(path).ok().flatten();
    let stat = stat.and_then(|place| place.stat().ok().flatten());
    stat.is_some_and(|stat| {
        stat.st_mode == SFlag::S_IFDIR.bits() | 0o700
            && stat.st_uid == nix::unistd::geteuid().as_raw()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_names_that_runs_give_are_ids() {
        for good in ["1795366912825-27649", "1-1", "1795366912825-27649-3"] {
            assert!(is_id(good), "{good}");
        }
        for bad in ["", "1", "1-", "-1", "1-x", "1-2-3-4", "backup", "1-2/3"] {
            assert!(!is_id(bad), "{bad}");
        }
        let path = RootPath::parse("/data/.mco-rescue-1-2-3").unwrap();
        assert!(is_of(&path, "1-2") && !is_of(&path, "1-3") && !is_of(&path, "1-22"));
    }
}
