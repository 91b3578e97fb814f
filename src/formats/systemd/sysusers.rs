//! The accounts that packages of the OS request (sysusers.d), and those that are missing.

use std::collections::BTreeSet;

/// An account that a line requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedAccount {
    /// Its name.
    pub name: String,
    /// It is a group.
    pub is_group: bool,
    /// The file that requests it.
    pub file: String,
}

/// Returns the missing accounts that files of sysusers.d, given by path and text, request.
pub fn find_missing(
    files: &[(String, String)],
    users: &BTreeSet<String>,
    groups: &BTreeSet<String>,
) -> Vec<WantedAccount> {
    let mut found: Vec<WantedAccount> = Vec::new();
    let lines = files
        .iter()
        .flat_map(|(file, text)| text.lines().map(move |line| (file, line)));
    for (file, line) in lines {
        for (name, is_group) in names_in(line) {
            let known = if is_group { groups } else { users };
            let is_listed = |one: &WantedAccount| one.name == name && one.is_group == is_group;
            if !known.contains(&name) && !found.iter().any(is_listed) {
                found.push(WantedAccount {
                    name,
                    is_group,
                    file: file.clone(),
                });
            }
        }
    }
    found
}

/// Returns the users and groups that a line creates: `u` with a group of the same name unless it names another one.
fn names_in(line: &str) -> Vec<(String, bool)> {
    let line = line.trim();
    // An unclosed quote is a syntax error, and the line is ignored.
    let is_open = line.matches('"').count() % 2 == 1;
    if line.is_empty() || line.starts_with('#') || is_open {
        return Vec::new();
    }
    let mut words = line.split_whitespace().map(|word| word.trim_matches('"'));
    let kind = words.next().unwrap_or_default();
    let is_name = |name: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        !name.is_empty() && name.chars().all(plain)
    };
    let Some(name) = words.next().filter(is_name).map(str::to_owned) else {
        return Vec::new();
    };
    let second = words.next().unwrap_or_default();
    match kind.trim_end_matches('!') {
        "u" => {
            if second.contains(':') {
                vec![(name, false)]
            } else {
                vec![(name.clone(), false), (name, true)]
            }
        }
        "g" => vec![(name, true)],
        "m" if is_name(&second) => vec![(name, false), (second.to_owned(), true)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_ask_for_what_systemd_sysusers_makes() {
        let names = |line: &str| {
            let names = names_in(line).into_iter();
            let names =
                names.map(|(name, is_group)| format!("{name}{}", if is_group { ":" } else { "" }));
            names.collect::<Vec<_>>().join(" ")
        };
        for (line, wanted) in [
            ("# u a", ""),
            (
                "u openvswitch - \"Open vSwitch\" /",
                "openvswitch openvswitch:",
            ),
            ("u! root 0 \"Super User\" /root", "root root:"),
            ("u nobody 65534:65534", "nobody"),
            ("g hugetlbfs -", "hugetlbfs:"),
            ("m openvswitch hugetlbfs", "openvswitch hugetlbfs:"),
            ("r - 500-900", ""),
            ("u %b", ""),
            ("u \"a", ""),
        ] {
            assert_eq!(names(line), wanted, "{line}");
        }
    }
}
