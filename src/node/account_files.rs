//! The account files as values, with their users and groups. No I/O, and `Debug` prints no secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::base::paths;
use crate::node::shadow_lines::is_whole;

/// The files that shadow-utils changes, in the order in which it writes them.
pub const WRITTEN: [&str; 6] = [
    paths::GROUP,
    paths::GSHADOW,
    paths::PASSWD,
    paths::SHADOW,
    paths::SUBUID,
    paths::SUBGID,
];

/// Pairs of a file in `etc` and the file with the OS's own entries (nss-altfiles).
const TWINS: [(&str, &str); 2] = [
    (paths::PASSWD, paths::USR_PASSWD),
    (paths::GROUP, paths::USR_GROUP),
];

/// The account files of a root; missing files have no entry.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AccountFiles {
    texts: BTreeMap<&'static str, Vec<u8>>,
}

impl fmt::Debug for AccountFiles {
    // shadow is among them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccountFiles({} files)", self.texts.len())
    }
}

/// A line of `passwd`.
#[derive(Clone, PartialEq, Eq)]
#[allow(
    missing_debug_implementations,
    reason = "a password hash must not get into a message"
)]
pub struct UserEntry {
    /// Login name.
    pub name: String,
    /// The password field; `x` means that the password is in the shadow file.
    password: String,
    /// Numeric id.
    pub uid: u32,
    /// Number of the primary group.
    pub gid: u32,
    /// Comment.
    pub gecos: String,
    /// Home directory.
    pub home: String,
    /// Login shell.
    pub shell: String,
}

/// A line of `group`.
#[derive(Clone, PartialEq, Eq)]
#[allow(
    missing_debug_implementations,
    reason = "a password hash must not get into a message"
)]
pub struct GroupEntry {
    /// Name.
    pub name: String,
    /// The password field; `gshadow` takes precedence.
    password: String,
    /// Numeric id.
    pub gid: u32,
    members: Vec<String>,
}

impl AccountFiles {
    /// Stores the bytes of one file; its path is one of [`crate::base::paths`].
    pub fn insert(&mut self, path: &'static str, bytes: Vec<u8>) {
        self.texts.insert(path, bytes);
    }

    /// Returns the bytes of one file.
    pub fn bytes_of(&self, path: &str) -> Option<&[u8]> {
        self.texts.get(path).map(Vec::as_slice)
    }

    /// Returns the text of one file; empty if it is missing.
    pub fn text_of(&self, path: &str) -> String {
        String::from_utf8_lossy(self.bytes_of(path).unwrap_or_default()).into_owned()
    }

    /// Returns the OS's lines whose names `etc` does not have. A lookup finds them after those of `etc`.
    pub fn shipped_lines(&self, path: &str) -> Vec<&[u8]> {
        let twin = TWINS.iter().find(|(own, _)| *own == path);
        let twin = twin.and_then(|(_, twin)| self.bytes_of(twin));
        let own: BTreeSet<&[u8]> = split_lines(self.bytes_of(path).unwrap_or_default())
            .map(first_field)
            .collect();
        split_lines(twin.unwrap_or_default())
            .filter(|line| !line.is_empty() && !own.contains(first_field(line)))
            .collect()
    }

    /// Returns a file followed by the OS's lines for it; `None` if both are missing.
    pub fn merged_file(&self, path: &str) -> Option<Vec<u8>> {
        let shipped = self.shipped_lines(path);
        if shipped.is_empty() {
            return self.bytes_of(path).map(<[u8]>::to_vec);
        }
        let mut all = self.bytes_of(path).unwrap_or_default().to_vec();
        if !all.is_empty() && !all.ends_with(b"\n") {
            all.push(b'\n');
        }
        for line in shipped {
            all.extend_from_slice(line);
            all.push(b'\n');
        }
        Some(all)
    }

    /// Returns all readable lines of `passwd`, those of the OS last.
    pub fn users(&self) -> Vec<UserEntry> {
        let text = self.merged_file(paths::PASSWD).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().filter_map(parse_user).collect()
    }

    /// Returns the user with this name.
    pub fn find_user(&self, name: &str) -> Option<UserEntry> {
        self.users().into_iter().find(|user| user.name == name)
    }

    /// Returns all readable lines of `group`, those of the OS last.
    pub fn groups(&self) -> Vec<GroupEntry> {
        let text = self.merged_file(paths::GROUP).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().filter_map(parse_group).collect()
    }

    /// Returns the group with this name.
    pub fn find_group(&self, name: &str) -> Option<GroupEntry> {
        self.groups().into_iter().find(|group| group.name == name)
    }

    /// Returns the groups of a user with their numbers: the primary group, and every group whose line lists the user, including
    /// an OS line whose name `etc` also has.
    pub fn groups_of(&self, user: &UserEntry) -> Vec<(String, u32)> {
        let texts = [paths::GROUP, paths::USR_GROUP].map(|path| self.text_of(path));
        let all: Vec<GroupEntry> = texts
            .iter()
            .flat_map(|text| text.lines().filter_map(parse_group))
            .collect();
        let primary = all.iter().find(|group| group.gid == user.gid);
        let named = |group: &&GroupEntry| group.members.contains(&user.name);
        let all = primary.into_iter().chain(all.iter().filter(named));
        let mut found: Vec<(String, u32)> = Vec::new();
        for group in all {
            if !found.iter().any(|(_, gid)| *gid == group.gid) {
                found.push((group.name.clone(), group.gid));
            }
        }
        if primary.is_none() {
            found.insert(0, (String::new(), user.gid));
        }
        found
    }

    /// Returns the group with this name or number, resolved as shadow-utils does: a number is always a gid.
    pub fn group_of(&self, name: &str) -> Option<GroupEntry> {
        let number: Option<u32> = name.parse().ok();
        let means = |group: &GroupEntry| match number {
            Some(gid) => group.gid == gid,
            None => group.name == name,
        };
        self.groups().into_iter().find(means)
    }

    /// Returns the effective password field of a user.
    pub fn find_password(&self, name: &str) -> Option<String> {
        let entry = self.find_user(name)?;
        if entry.password != "x" {
            return Some(entry.password);
        }
        self.shadow_password(name)
    }

    /// Returns the password field of `shadow` for a user, from an intact line.
    pub fn shadow_password(&self, name: &str) -> Option<String> {
        let text = self.text_of(paths::SHADOW);
        let mut lines = text.lines().filter(|line| is_whole(line));
        lines.find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next() == Some(name);
            fields.next().filter(|_| found).map(str::to_owned)
        })
    }

    /// Returns the files with fields replaced: a field that equals the first of a pair becomes the second.
    pub fn with_fields(&self, pairs: &[(String, String)]) -> Self {
        let mut files = self.clone();
        for bytes in files.texts.values_mut() {
            if pairs.iter().any(|(from, _)| contains_word(bytes, from)) {
                *bytes = replace_pairs(bytes, pairs);
            }
        }
        files
    }

    /// Returns the effective password field of a group.
    pub fn group_password(&self, name: &str) -> Option<String> {
        let hidden = self.find_field(paths::GSHADOW, name, 1);
        hidden.or_else(|| self.find_group(name).map(|group| group.password))
    }

    /// Returns true if these are exactly the user's supplementary groups, in `group` and in `gshadow`.
    pub fn is_member_of_exactly(&self, name: &str, wanted: &BTreeSet<String>) -> bool {
        let listed = |members: &str| members.split(',').any(|member| member == name);
        let hidden = self.text_of(paths::GSHADOW);
        let in_hidden = hidden.lines().all(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            match fields.as_slice() {
                [group, _, _, members] => wanted.contains(*group) == listed(members),
                _ => true,
            }
        });
        let mut groups = self.groups().into_iter();
        in_hidden
            && groups.all(|group| {
                wanted.contains(&group.name) == group.members.iter().any(|member| member == name)
            })
    }

    fn find_field(&self, path: &str, name: &str, index: usize) -> Option<String> {
        let text = self.text_of(path);
        let mut lines = text.lines().map(|line| line.split(':'));
        let found = lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields));
        found?.nth(index.checked_sub(1)?).map(str::to_owned)
    }

    /// Returns these files after the tools ran on a copy: merged lines that did not change are removed again. `found` returns
    /// the bytes in the copy. The files of the OS itself do not change.
    pub fn after_tools(&self, mut found: impl FnMut(&'static str) -> Option<Vec<u8>>) -> Self {
        let mut after = self.clone();
        for path in WRITTEN {
            let bytes = found(path);
            if bytes == self.merged_file(path) {
                continue;
            }
            match bytes {
                Some(bytes) => after.insert(path, without_lines(&bytes, &self.shipped_lines(path))),
                None => drop(after.texts.remove(path)),
            }
        }
        after
    }
}

fn without_lines(bytes: &[u8], shipped: &[&[u8]]) -> Vec<u8> {
    let shipped: BTreeSet<&[u8]> = shipped.iter().copied().collect();
    let own = bytes.split_inclusive(|&b| b == b'\n');
    own.filter(|line| !shipped.contains(line.strip_suffix(b"\n").unwrap_or(line)))
        .flatten()
        .copied()
        .collect()
}

fn contains_word(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len().max(1))
        .any(|window| window == word.as_bytes())
}

fn replace_pairs(bytes: &[u8], pairs: &[(String, String)]) -> Vec<u8> {
    let mut all = Vec::new();
    for field in bytes.split_inclusive(|b| b":\n".contains(b)) {
        let text = field.strip_suffix(b":").or(field.strip_suffix(b"\n"));
        let text = text.unwrap_or(field);
        let pair = pairs.iter().find(|(from, _)| from.as_bytes() == text);
        all.extend_from_slice(pair.map_or(text, |(_, to)| to.as_bytes()));
        all.extend_from_slice(field.get(text.len()..).unwrap_or_default());
    }
    all
}

impl UserEntry {
    /// Returns a user that has no line in any file, with this home directory.
    pub fn unknown(name: &str, home: &str) -> Self {
        Self {
            name: name.to_owned(),
            password: String::new(),
            uid: u32::MAX,
            gid: u32::MAX,
            gecos: String::new(),
            home: home.to_owned(),
            shell: String::new(),
        }
    }
}

fn split_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&b| b == b'\n')
}

fn first_field(line: &[u8]) -> &[u8] {
    line.split(|&b| b == b':').next().unwrap_or_default()
}

fn parse_user(line: &str) -> Option<UserEntry> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, password, uid, gid, gecos, home, shell] = fields.as_slice() else {
        return None;
    };
    Some(UserEntry {
        name: (*name).to_owned(),
        password: (*password).to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        gecos: (*gecos).to_owned(),
        home: (*home).to_owned(),
        shell: (*shell).to_owned(),
    })
}

fn parse_group(line: &str) -> Option<GroupEntry> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, password, gid, members] = fields.as_slice() else {
        return None;
    };
    Some(GroupEntry {
        name: (*name).to_owned(),
        password: (*password).to_owned(),
        gid: gid.parse().ok()?,
        members: members.split(',').map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    use crate::node::account_files::*;
    use proptest::prelude::*;

    fn files(texts: &[(&'static str, &str)]) -> AccountFiles {
        let mut files = AccountFiles::default();
        for (path, text) in texts {
            files.insert(path, text.as_bytes().to_vec());
        }
        files
    }

    #[test]
    fn lines_of_the_os_count_where_etc_has_none() {
        let files = files(&[
            (paths::GROUP, "root:x:0:\nadm:x:4:own"),
            (paths::USR_GROUP, "adm:x:4:theirs\nwheel:x:10:\n"),
        ]);
        assert_eq!(
            files.merged_file(paths::GROUP).unwrap(),
            b"root:x:0:\nadm:x:4:own\nwheel:x:10:\n"
        );
        assert_eq!(files.group_of("10").unwrap().name, "wheel");
        assert!(files.is_member_of_exactly("own", &BTreeSet::from(["adm".to_owned()])));
    }

    #[test]
    fn only_a_changed_line_of_the_os_comes_to_etc() {
        let before = files(&[
            (paths::GROUP, "root:x:0:\n"),
            (paths::USR_GROUP, "adm:x:4:\nwheel:x:10:\n"),
        ]);
        let found = |path: &str| {
            (path == paths::GROUP)
                .then(|| b"root:x:0:\nadm:x:4:\nwheel:x:10:a\nnew:x:1000:\n".to_vec())
        };
        assert_eq!(
            before.after_tools(found).text_of(paths::GROUP),
            "root:x:0:\nwheel:x:10:a\nnew:x:1000:\n"
        );
        // Where no tool changed anything, not even a missing line break at the end is added.
        let odd = files(&[(paths::GROUP, "root:x:0:"), (paths::USR_GROUP, "a:x:1:\n")]);
        assert_eq!(odd.after_tools(|path| odd.merged_file(path)), odd);
    }

    #[test]
    fn the_password_that_counts_is_the_one_in_shadow() {
        let files = files(&[
            (paths::PASSWD, "a:x:1:1::/:/bin/sh\nb:old:2:2::/:/bin/sh\n"),
            (paths::SHADOW, "a:hash:1::::::\n"),
            (paths::GROUP, "g:x:1:\nh:y:2:\n"),
            (paths::GSHADOW, "g:!::\n"),
        ]);
        assert_eq!(files.find_password("a").as_deref(), Some("hash"));
        assert_eq!(files.find_password("b").as_deref(), Some("old"));
        assert_eq!(files.group_password("g").as_deref(), Some("!"));
        assert_eq!(files.group_password("h").as_deref(), Some("y"));
    }

    #[test]
    fn no_hash_is_in_a_debug_text() {
        let files = files(&[(paths::SHADOW, "a:hash:1::::::\n")]);
        assert_eq!(format!("{files:?}"), "AccountFiles(1 files)");
    }

    proptest! {
        #[test]
        fn merging_and_taking_out_again_is_the_identity(own in "([a-c]:x:[0-9]{0,2}:\n?|\\PC{0,9}\n){0,5}", theirs in "([a-e]:x:1:\n){0,5}") {
            let files = files(&[(paths::GROUP, &own), (paths::USR_GROUP, &theirs)]);
            prop_assert_eq!(files.after_tools(|path| files.merged_file(path)), files.clone());
            files.groups();
            files.users();
        }
    }
}
