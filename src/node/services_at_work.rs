//! The services of a running node before a run, for the jobs that make them reload their files.

use std::collections::BTreeSet;

use crate::formats::systemd::UNIT_SEARCH_PATH;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::command::systemctl::{self, UnitActivity};
use crate::node::command::{CommandError, CommandRunner};

use super::neighbours;

/// Maximum length of a kernel setting's value that is kept.
const LONGEST_VALUE: usize = 4096;
/// Maximum number of settings that are kept; a pattern can match those of many devices.
const MOST_SETTINGS: usize = 4096;

/// Services, units and kernel settings before a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServicesAtWork {
    /// All units that systemd has loaded.
    pub units: Vec<UnitActivity>,
    /// Pacemaker manages kubelet and etcd.
    pub fencing: bool,
    /// Names of unit files outside of `/etc`: such a unit still exists without its file in `/etc`.
    pub shipped: BTreeSet<String>,
    /// Paths of links that make one unit start another.
    pub links: BTreeSet<RootPath>,
    /// Kernel settings with their values, such as `net/ipv4/ip_forward=0`.
    pub settings: Vec<String>,
}

/// The reason why a node cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum ServicesError {
    /// The manager.
    #[error(transparent)]
    Manager(#[from] CommandError),
    /// A path.
    #[error(transparent)]
    Path(#[from] RootError),
}

impl ServicesAtWork {
    /// Reads the services and settings. `settings` are names of kernel settings, such as `net/ipv4/ip_forward` or
    /// `net/ipv4/conf/*/rp_filter`.
    ///
    /// # Errors
    /// systemctl gives no answer, or a path cannot be read.
    pub fn observe(
        root: &Root,
        runner: &dyn CommandRunner,
        settings: &[String],
    ) -> Result<Self, ServicesError> {
        let mut all = Self {
            units: systemctl::query_units(runner)?,
            fencing: neighbours::has_fencing(root)?,
            settings: read_settings(root, settings),
            ..Self::default()
        };
        for directory in UNIT_SEARCH_PATH {
            let Ok(folder) = RootPath::parse(directory) else {
                continue;
            };
            for name in root.list(&folder)? {
                let Ok(path) = folder.join(&name) else {
                    continue;
                };
                if [".wants", ".requires", ".upholds"]
                    .iter()
                    .any(|end| name.ends_with(end))
                {
                    let links = root.list(&path)?;
                    let links = links.iter().filter_map(|link| path.join(link).ok());
                    all.links.extend(links);
                } else if !directory.trim_start_matches('/').starts_with("etc/") {
                    all.shipped.insert(name);
                }
            }
        }
        Ok(all)
    }

    /// Returns the state of a unit; `None` if systemd has not loaded it.
    pub fn find_unit(&self, name: &str) -> Option<&UnitActivity> {
        self.units.iter().find(|unit| unit.name == name)
    }
}

/// Returns the settings with their values. One that cannot be read, such as that of a missing module, cannot be restored and is
/// left out.
fn read_settings(root: &Root, names: &[String]) -> Vec<String> {
    let value = |path: &RootPath| {
        let name = path.relative().strip_prefix("proc/sys/")?;
        let bytes = root.read_within(path, 1 << 16).ok().flatten()?;
        let text = String::from_utf8(bytes).ok()?;
        let text = text.trim_end();
        let plain = !text.contains('\n') && text.len() <= LONGEST_VALUE;
        plain.then(|| format!("{name}={text}"))
    };
    let names = names.iter().flat_map(|name| find_settings(root, name));
    let paths: BTreeSet<RootPath> = names.take(MOST_SETTINGS).collect();
    paths.iter().filter_map(value).collect()
}

/// Returns the paths of a setting, or of all settings that match a pattern.
fn find_settings(root: &Root, name: &str) -> Vec<RootPath> {
    let mut found = vec![RootPath::fixed("proc/sys")];
    for part in name.split('/') {
        let below = |folder: &RootPath| -> Vec<RootPath> {
            let names = if part.contains(['*', '?']) {
                root.list(folder).unwrap_or_default()
            } else {
                vec![part.to_owned()]
            };
            let names = names
                .iter()
                .filter(|name| matches_pattern(part.as_bytes(), name.as_bytes()));
            names.filter_map(|name| folder.join(name).ok()).collect()
        };
        found = found.iter().flat_map(below).take(MOST_SETTINGS).collect();
    }
    found
}

/// Returns true if a name matches a pattern, with `*` as any characters and `?` as one. After a mismatch, the last `*` absorbs one more character.
fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut here, mut at) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while at < name.len() {
        match (pattern.get(here), name.get(at)) {
            (Some(b'*'), _) => {
                last_star = Some((here, at));
                here += 1;
            }
            (Some(wanted), Some(letter)) if *wanted == b'?' || wanted == letter => {
                here += 1;
                at += 1;
            }
            _ => match last_star {
                None => return false,
                Some((star, taken)) => {
                    last_star = Some((star, taken + 1));
                    here = star + 1;
                    at = taken + 1;
                }
            },
        }
    }
    pattern.iter().skip(here).all(|letter| *letter == b'*')
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of a test, not of a node")]
mod tests {
    use super::*;
    use crate::node::command::{CommandLine, CommandOutput};
    use std::fs;

    /// STUB of systemctl.
    struct Manager;

    impl CommandRunner for Manager {
        fn run(&self, _: &CommandLine) -> Result<CommandOutput, CommandError> {
            let lines = "sshd.service loaded active running OpenSSH\nsite.service loaded failed failed A site\n";
            Ok(CommandOutput {
                status: Some(0),
                stdout: lines.to_owned(),
                stderr: String::new(),
            })
        }
    }

    #[test]
    fn patterns_fit_as_those_of_a_shell() {
        for (pattern, name, wanted) in [
            ("*", "eth0", true),
            ("eth*", "eth0.5", true),
            ("e?h*5", "eth0.5", true),
            ("eth?", "eth", false),
            ("", "", true),
            ("", "a", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
        ] {
            assert_eq!(
                matches_pattern(pattern.as_bytes(), name.as_bytes()),
                wanted,
                "{pattern} {name}"
            );
        }
        // A hostile pattern takes no longer than the product of the lengths.
        let (pattern, name) = ("*a".repeat(200) + "b", "a".repeat(2000));
        assert!(!matches_pattern(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn units_links_and_settings_of_before_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/net/ipv4/conf/eth0/rp_filter", "1\n"),
            ("proc/sys/net/ipv4/conf/eth1.5/rp_filter", "2\n"),
            ("proc/sys/net/ipv4/conf/eth1.5/other", "3\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/kernel/lines", "one\ntwo\n"),
            ("usr/lib/systemd/system/site.service", ""),
            ("etc/systemd/system/own.service", ""),
            (
                "etc/systemd/system/multi-user.target.wants/site.service",
                "",
            ),
            (
                "usr/lib/systemd/system/basic.target.wants/other.service",
                "",
            ),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        let names = [
            "net/ipv4/conf/*/rp_filter",
            "net/ipv4/conf/eth?/rp_filter",
            "net/ipv4/tcp_rmem",
            "kernel/lines",
            "no/such",
        ];
        let names = names.map(str::to_owned);
        let all = ServicesAtWork::observe(&root, &Manager, &names).unwrap();
        assert_eq!(
            all.settings,
            [
                "net/ipv4/conf/eth0/rp_filter=1",
                "net/ipv4/conf/eth1.5/rp_filter=2",
                "net/ipv4/tcp_rmem=4096\t131072\t6291456"
            ]
        );
        assert!(all.find_unit("sshd.service").unwrap().is_running());
        assert!(!all.find_unit("site.service").unwrap().is_running());
        assert!(all.shipped.contains("site.service") && !all.shipped.contains("own.service"));
        assert_eq!(all.links.len(), 2);
        assert!(!all.fencing);
    }
}
