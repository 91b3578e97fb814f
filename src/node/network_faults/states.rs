//! The states of nmstate: which one NetworkManager is configured from, and what is wrong with it.

use crate::base::reason::Reason;
use crate::config::document::yaml;
use crate::host::root::{EntryType, RootPath};
use crate::node::network_manager::is_copy_name;

use super::{NetworkFaultKind, Search};

/// The script of the rendered config that selects an nmstate file.
const CHOOSER: &str = "usr/local/bin/nmstate-configuration.sh";

/// Its directory.
const CHOSEN: &str = "etc/nmstate/openshift";

/// The directory of nmstate's service.
const STATES: &str = "etc/nmstate";

/// Name of the script for sentences.
const CHOOSER_NAME: &str = "nmstate-configuration.sh";

impl Search<'_> {
    /// Judges the nmstate states, and returns the texts of those that are applied.
    pub(super) fn find_states(&mut self) -> Vec<String> {
        let mut applied = Vec::new();
        let chooser = RootPath::fixed(CHOOSER);
        if self.files.exists(&chooser).unwrap_or_else(|error| {
            self.found.unseen.push(error.to_string());
            false
        }) {
            applied.extend(self.find_chosen_state());
        }
        let folder = RootPath::fixed(STATES);
        let all = self.list_directory(&folder, EntryType::File);
        for path in &all {
            let name = path.name();
            if name.ends_with(".yml") {
                applied.extend(self.read_state(path));
                continue;
            }
            let lower = name.to_ascii_lowercase();
            let stem = [".yaml", ".yml", ".json"]
                .into_iter()
                .find_map(|end| lower.strip_suffix(end));
            let Some(stem) = stem.filter(|_| !is_copy_name(name)) else {
                continue;
            };
            let is = |other: &RootPath, end: &str| {
                other
                    .name()
                    .strip_suffix(end)
                    .is_some_and(|name| name.eq_ignore_ascii_case(stem))
            };
            // A version of nmstate that reads it leaves this mark.
            if !all.iter().any(|other| is(other, ".applied")) {
                let twin = all.iter().find(|other| is(other, ".yml"));
                let said = match twin {
                    Some(twin) => {
                        format!("nmstate reads {twin}; new versions stop at two files of one name")
                    }
                    None => {
                        "not applied: older versions of nmstate read only names that end in .yml"
                            .to_owned()
                    }
                };
                self.add_fault(NetworkFaultKind::UnreadState, path, said);
            }
        }
        applied
    }

    /// Judges the files from which the script selects one: `cluster.yml`, or the short host name.
    pub(super) fn find_chosen_state(&mut self) -> Option<String> {
        let folder = RootPath::fixed(CHOSEN);
        let short = |name: &&str| name.split('.').next().unwrap_or_default().to_owned();
        let hosts = self.known.hosts.iter().map(short);
        // The name of a host that has not been given one yet.
        let hosts: Vec<String> = hosts.filter(|name| name != "localhost").collect();
        let all = self.list_directory(&folder, EntryType::File);
        let (mut own, mut cluster, mut others) = (None, None, Vec::new());
        for path in all {
            let name = path.name();
            if name == "applied" || is_copy_name(name) {
                continue;
            }
            let stem = match stem_of(name) {
                Ok(stem) => stem,
                Err(said) => {
                    self.add_fault(NetworkFaultKind::UnreadState, &path, said.to_string());
                    continue;
                }
            };
            let slot = match stem {
                "cluster" => &mut cluster,
                stem if hosts.iter().any(|host| host == stem) => &mut own,
                _ => {
                    others.push(path);
                    continue;
                }
            };
            *slot = Some(path);
        }
        for path in self.list_directory(&folder, EntryType::Directory) {
            let said = format!("never read: {CHOOSER_NAME} takes files of {folder} alone");
            self.add_fault(NetworkFaultKind::UnreadState, &path, said);
        }
        self.judge_others(&hosts, &others, own.is_some() || cluster.is_some());
        let chosen = [own, cluster].into_iter().flatten();
        for path in chosen.collect::<Vec<_>>() {
            match self.read_text(&path) {
                Some(text) if text.is_empty() => {
                    let said =
                        format!("never read: it is empty, and {CHOOSER_NAME} passes over it");
                    self.add_fault(NetworkFaultKind::UnreadState, &path, said);
                }
                _ => return self.read_state(&path),
            }
        }
        None
    }

    fn judge_others(&mut self, hosts: &[String], others: &[RootPath], has_state: bool) {
        if hosts.is_empty() {
            return;
        }
        for path in others {
            let stem = path.name().trim_end_matches(".yml");
            let alike = hosts.iter().find(|host| host.eq_ignore_ascii_case(stem));
            if let Some(host) = alike {
                let said = format!("never read: the host's name is written {host}");
                self.add_fault(NetworkFaultKind::UnreadState, path, said);
            } else if !has_state {
                let said = format!("not for this host, whose name is {}", hosts.join(" or "));
                self.add_fault(NetworkFaultKind::StateOfOthers, path, said);
            }
        }
    }

    /// Returns the text of a state if nmstate accepts it.
    fn read_state(&mut self, path: &RootPath) -> Option<String> {
        let text = self.read_text(path)?;
        let is_blank = |line: &str| line.trim().is_empty() || line.trim().starts_with('#');
        if text.lines().all(is_blank) {
            return None;
        }
        let said = match yaml::parse_yaml(&text) {
            Ok(value) if value.is_object() => return Some(text),
            Ok(value) if value.is_null() => return None,
            Ok(_) => "it is not a map of interfaces, routes and so on".to_owned(),
            Err(error) => format!("no YAML: {error}"),
        };
        self.add_fault(NetworkFaultKind::BadState, path, said);
        None
    }
}

/// Returns the name of a file without its ending, or why it is never read.
fn stem_of(name: &str) -> Result<&str, Reason> {
    match name.strip_suffix(".yml") {
        None => Err(format!(
            "never read: {CHOOSER_NAME} takes NAME.yml or cluster.yml, and no other ending"
        )
        .into()),
        Some(stem) if stem.contains('.') => Err(format!(
            "never read: {CHOOSER_NAME} asks for the host's name without its domain"
        )
        .into()),
        Some(stem) => Ok(stem),
    }
}
