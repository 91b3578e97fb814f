//! What a plan needs to know about a node: the paths, units and packages to read.

use crate::base::paths;
use crate::config::document::Desired;
use crate::host::root::RootPath;
use crate::judge::accounts::Prepared;
use crate::judge::drift::{dropin_path, unit_path};
use crate::node::Interest;

use crate::judge::drift::enablement;

/// Returns everything that `plan` and `drifts` need.
pub fn paths_of_interest(
    desired: &Desired,
    old: Option<&Desired>,
    accounts: Option<&Prepared>,
) -> Interest {
    let mut interest = Interest {
        overlay: enablement::unit_entries(desired),
        system: !desired.bare,
        ..Interest::default()
    };
    for config in std::iter::once(desired).chain(old) {
        files_of(config, &mut interest);
        units_of(config, &mut interest);
    }
    interest
        .paths
        .extend(accounts.map(Prepared::paths).unwrap_or_default());
    let fixed = [
        paths::CORE_HOME,
        paths::CORE_SSH,
        paths::CORE_KEYS_DIR,
        paths::CORE_KEYS,
        paths::SHADOW,
        paths::KUBECONFIG,
        paths::CURRENT_CONFIG,
        paths::ENCAPSULATED,
        paths::ENCAPSULATED_KEPT,
        paths::CURRENT_IMAGE,
        paths::NODE_ANNOTATIONS,
        paths::NODE_ANNOTATIONS_KEPT,
        paths::REVERT,
        paths::REVERT_UNIT,
        paths::REVERT_LINK,
        paths::EXTENSIONS_REPOSITORY,
        paths::FORCE,
        paths::IGNITION_PRESET,
        paths::STATUS,
    ];
    interest.paths.extend(
        fixed
            .into_iter()
            .chain(paths::LEAKED_LINKS)
            .map(RootPath::fixed),
    );
    interest
}

fn files_of(config: &Desired, interest: &mut Interest) {
    interest
        .paths
        .extend(config.additions.iter().map(|file| file.path.clone()));
    interest.paths.extend(
        config
            .directories
            .iter()
            .map(|directory| directory.path.clone()),
    );
    let through = config.written_paths.values();
    interest
        .paths
        .extend(through.flat_map(|written| written.through.iter().cloned()));
    for link in &config.links {
        interest.paths.insert(link.path.clone());
        interest
            .in_the_way
            .extend(link.overwrite.then(|| link.path.clone()));
        let target = RootPath::parse(&format!("/{}", link.target.trim_start_matches('/')));
        interest.paths.extend(target.ok().filter(|_| link.hard));
    }
    for file in &config.files {
        let appended = file
            .bare
            .as_ref()
            .is_some_and(|bare| !bare.append.is_empty());
        let gives_way = file.bare.as_ref().is_some_and(|bare| bare.overwrite);
        interest
            .in_the_way
            .extend(gives_way.then(|| file.path.clone()));
        interest.texts.extend(appended.then(|| file.path.clone()));
        interest.originals.insert(file.path.clone());
        interest.paths.insert(file.path.clone());
        interest.packaged.insert(file.path.clone());
    }
}

fn units_of(config: &Desired, interest: &mut Interest) {
    for unit in &config.units {
        interest.units.insert(unit.name.clone());
        let dropins = unit
            .dropins
            .iter()
            .filter_map(|dropin| dropin_path(&unit.name, &dropin.name));
        for path in unit_path(&unit.name).into_iter().chain(dropins) {
            interest.originals.insert(path.clone());
            interest.paths.insert(path);
        }
    }
}
