//! The configs that are available in an initramfs, nearest first: named, from the server, in the image, in the cache, on a medium.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::base::paths;
use crate::change::source::gate::{CapsuleOptions, ConfigOrigin};
use crate::change::source::identity::{Membership, NodeIdentity};
use crate::change::source::{
    self, ConfigMedium, ConfigMediumError, ReadConfig, SourceError, cache,
};
use crate::config::document::{self, MachineConfig};
use crate::config::render;
use crate::diagnose::first_boot::{self, AvailableConfig, Mode, Parameters};
use crate::host::caller;
use crate::host::root::{Root, RootPath};
use crate::node::Records;
use crate::node::command::CommandRunner;
use crate::run::fetch::{FetchOptions, into_cache};
use crate::run::front::{Front, RunNews};

/// What to apply.
#[derive(Debug, Default)]
pub(super) struct HandedConfig {
    /// An argument of `apply`; `None` if the node should choose itself, or if nothing is available.
    pub(super) argument: Option<String>,
    /// If it has to be read through a capsule.
    pub(super) origin: ConfigOrigin,
}

/// Returns what to apply. A medium must stay mounted until the config is read.
pub(super) fn choose_config(
    root: &Root,
    front: &dyn Front,
    parameters: &Parameters,
    recorded: bool,
) -> Result<(HandedConfig, Option<ConfigMedium>)> {
    if let Some(named) = &parameters.config {
        let handed = HandedConfig {
            argument: Some(named_argument(named, parameters, root)?),
            origin: ConfigOrigin::FirstBoot,
        };
        return Ok((handed, None));
    }
    if let Some(server) = &parameters.server {
        let name = fetch_config(root, parameters, None, Some(server))?;
        let handed = HandedConfig {
            argument: Some(format!("cached:{name}")),
            ..HandedConfig::default()
        };
        return Ok((handed, None));
    }
    if parameters.mode == Mode::Apply && recorded {
        return Ok((HandedConfig::default(), None));
    }
    let mut all = FoundConfigs::default();
    all.add_image(Some(root));
    all.configs.extend(of_cache(root)?);
    let medium = match (all.is_empty(), parameters.mode) {
        (false, _) => None,
        // A medium is expected here: it may be slow to appear, or be plugged in only now.
        (true, Mode::Apply) => wait_for_medium(front, parameters.timeout),
        (true, _) => find_medium(front.runner()),
    };
    if let Some(medium) = &medium {
        all.add_medium(root, medium);
    }
    let mut all = all.into_configs()?;
    if all.is_empty() && parameters.mode == Mode::Apply {
        bail!(
            "no config is available: none in the image or the cache, and no medium labelled MCO-RESCUE within {} s. \
             Name one: mco_rescue.config=PATH, or mco_rescue.server=https://HOST:22623/config/POOL",
            parameters.timeout.as_secs()
        );
    }
    if parameters.pool().is_none() {
        of_own_pool(root, &mut all)?;
    }
    if all.is_empty() {
        return Ok((HandedConfig::default(), None));
    }
    let only = first_boot::find_only(&all, parameters.pool()).map_err(anyhow::Error::msg)?;
    log::info!("{} is available ({})", only.name, only.place);
    let handed = HandedConfig {
        argument: Some(only.argument.clone()),
        origin: only.origin,
    };
    Ok((handed, medium))
}

/// Keeps only the configs that may be of the node's pool.
fn of_own_pool(root: &Root, all: &mut Vec<AvailableConfig>) -> Result<()> {
    let records = Records::read(root).context("reading the daemon's records")?;
    let node = NodeIdentity::observe(root, &records, None)?;
    all.retain(|one| {
        let stands = one.pool.as_deref().map(|pool| node.membership_of(pool));
        if let Some(Membership::Stranger(witness)) = stands {
            log::warn!(
                "{} ({}) is skipped: this node belongs to pool {} according to {}",
                one.name,
                one.place,
                witness.says,
                witness.place
            );
            return false;
        }
        true
    });
    Ok(())
}

/// Returns the argument for a named config: a path in the initramfs, otherwise on the root; a name in the cache is returned
/// unchanged. A URL is first fetched into the cache.
fn named_argument(named: &str, parameters: &Parameters, root: &Root) -> Result<String> {
    if named.contains("://") {
        let name = fetch_config(root, parameters, Some(named), None)?;
        return Ok(format!("cached:{name}"));
    }
    if caller::is_there(named) {
        return Ok(named.to_owned());
    }
    let on_root = RootPath::parse(named).ok();
    let on_root = on_root.map(|path| root.outer_name(&path)).transpose()?;
    let on_root = on_root.flatten().map(|path| path.display().to_string());
    Ok(on_root.unwrap_or_else(|| named.to_owned()))
}

/// Gets a config into the cache of the root, and returns its name.
fn fetch_config(
    root: &Root,
    parameters: &Parameters,
    url: Option<&str>,
    server: Option<&str>,
) -> Result<String> {
    let authority = format!("/{}", paths::IMAGE_AUTHORITY);
    let base = server.map(|url| url.rsplit_once("/config/").map_or(url, |(base, _)| base));
    let options = FetchOptions {
        capsule: CapsuleOptions::default(),
        source: url,
        from_media: false,
        pool: parameters.pool(),
        server: base,
        ca: caller::is_there(&authority).then_some(&authority),
        resolve: &[],
        policy: None,
        digest: None,
        timeout: parameters.timeout.max(Duration::from_secs(1)),
        awaits_name_server: true,
    };
    into_cache(root, &options).context("fetching the config")
}

/// The configs that were found, and messages about skipped ones.
#[derive(Default)]
pub(super) struct FoundConfigs {
    configs: Vec<AvailableConfig>,
    passed_over: Vec<String>,
}

impl FoundConfigs {
    /// Adds the configs in the initramfs, and in the image's own root if that is mounted.
    pub(super) fn add_image(&mut self, root: Option<&Root>) {
        let directory = format!("/{}", paths::IMAGE_CONFIGS);
        if caller::is_there(&directory) {
            let documents = source::documents_in(&directory);
            self.add_files(None, documents.map_err(Into::into), "in the initramfs");
        }
        if let Some(root) = root {
            self.add_files(None, documents_of(root), "in the image");
        }
    }

    /// Adds every config of a medium, as far as the policy of `root` allows it. Messages name the label: where the medium is mounted
    /// means nothing to anybody.
    pub(super) fn add_medium(&mut self, root: &Root, medium: &ConfigMedium) {
        let documents = source::documents_in(&medium.path());
        let before = self.passed_over.len();
        self.add_files(
            Some(root),
            documents.map_err(Into::into),
            "on the medium MCO-RESCUE",
        );
        for why in self.passed_over.iter_mut().skip(before) {
            *why = why.replace(&medium.path(), "MCO-RESCUE:");
        }
    }

    /// Adds a config of the boot image, or with `root` one that is read by its policy.
    fn add_files(
        &mut self,
        root: Option<&Root>,
        documents: Result<Vec<String>>,
        place: &'static str,
    ) {
        match documents {
            Ok(documents) => {
                for path in documents {
                    self.add_file(root, &path, place);
                }
            }
            Err(error) => self.pass_over(format!("looking for configs: {error:#}")),
        }
    }

    /// Adds the config in a file: one of the boot image, or with `root` one that is read by its policy.
    pub(super) fn add_file(&mut self, root: Option<&Root>, path: &str, place: &'static str) {
        let bytes = match root {
            Some(root) => {
                read_by_policy(root, path, ConfigOrigin::FirstBoot).map(|read| read.bytes)
            }
            None => source::read_named(path),
        };
        let config = bytes
            .map_err(anyhow::Error::from)
            .and_then(|bytes| Ok(document::parse_document(bytes, path)?))
            .and_then(require_rendered);
        match config {
            Ok(config) => self.configs.push(AvailableConfig {
                pool: cache::pool_of(&config),
                name_matches: render::name_matches(&config.record),
                name: config.name,
                argument: path.to_owned(),
                origin: match root {
                    Some(_) => ConfigOrigin::FirstBoot,
                    None => ConfigOrigin::Trusted,
                },
                place,
            }),
            Err(error) => {
                let why = format!("{error:#}");
                self.pass_over(if why.contains(path) {
                    why
                } else {
                    format!("{path} is skipped: {why}")
                });
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.configs.is_empty()
    }

    fn pass_over(&mut self, why: String) {
        log::warn!("{why}");
        self.passed_over.push(why);
    }

    /// Returns the configs.
    ///
    /// # Errors
    /// There is no config, but something was skipped, which may have been the right one.
    pub(super) fn into_configs(self) -> Result<Vec<AvailableConfig>> {
        if self.is_empty() && !self.passed_over.is_empty() {
            bail!("no config can be read: {}", self.passed_over.join("; "));
        }
        Ok(self.configs)
    }
}

/// Reads a config of an initramfs: of the image, or as the policy of `root` demands it.
pub(super) fn read_by_policy(
    root: &Root,
    path: &str,
    origin: ConfigOrigin,
) -> Result<ReadConfig, SourceError> {
    let options = CapsuleOptions {
        origin,
        ..CapsuleOptions::default()
    };
    source::read_config(root, path, &options)
}

/// Returns the files in the directory of the root, by the paths under which the initramfs opens them. A link on the root cannot
/// lead to a file of the initramfs.
fn documents_of(root: &Root) -> Result<Vec<String>> {
    let directory = RootPath::fixed(paths::IMAGE_CONFIGS);
    let mut all = Vec::new();
    for name in root.list(&directory)? {
        let path = directory.join(&name)?;
        if source::is_document(&name)
            && let Some(path) = root.outer_name(&path)?
        {
            all.push(path.display().to_string());
        }
    }
    Ok(all)
}

/// Refuses a MachineConfig that is only a part of a rendered config, as the node would get nothing else.
fn require_rendered(config: MachineConfig) -> Result<MachineConfig> {
    let proven = render::name_matches(&config.record) == Some(true);
    let why = config.why_not_rendered(proven).filter(|_| !config.bare);
    match why {
        Some(why) => bail!("{} is not a rendered config: {why}", config.name),
        None => Ok(config),
    }
}

fn of_cache(root: &Root) -> Result<Vec<AvailableConfig>> {
    let cached = cache::read_cache(root).context("reading the cache")?;
    let available = |entry: &cache::CacheEntry| AvailableConfig {
        name: entry.name.clone(),
        pool: entry.pool.clone(),
        name_matches: entry.name_matches,
        argument: format!("cached:{}", entry.name),
        origin: ConfigOrigin::Trusted,
        place: "in the node's cache",
    };
    Ok(cache::whole_entries(&cached).map(available).collect())
}

fn wait_for_medium(front: &dyn Front, bound: Duration) -> Option<ConfigMedium> {
    let started = Instant::now();
    let mut found = find_medium(front.runner());
    if found.is_none() {
        front.tell(RunNews::MediumAwaited {
            seconds: bound.as_secs(),
        });
    }
    while found.is_none() && started.elapsed() < bound {
        thread::sleep(Duration::from_secs(1));
        found = find_medium(front.runner());
    }
    found
}

/// Returns the medium, if one is plugged in.
pub(super) fn find_medium(runner: &dyn CommandRunner) -> Option<ConfigMedium> {
    match ConfigMedium::find_medium(runner) {
        Ok(medium) => Some(medium),
        Err(ConfigMediumError::None) => None,
        Err(error) => {
            log::warn!("{error}");
            None
        }
    }
}
