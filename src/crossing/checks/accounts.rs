//! Can the users that the image needs be made on this node?

use std::collections::BTreeSet;

use crate::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::Platform;
use crate::systemd::sysusers::find_missing;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck {
    id: "accounts",
    title: "the users of the image can be made",
    is_of_image: true,
    judge,
};

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let accounts = match &node.accounts {
        Ok(accounts) => accounts,
        Err(why) => {
            let what = format!("the accounts cannot be read: {why}");
            return vec![CrossingFinding::new(
                CrossingSeverity::Unknown,
                "accounts",
                what,
            )];
        }
    };
    let files: Vec<(String, String)> = target
        .tree
        .below("usr/lib/sysusers.d")
        .filter_map(|path| Some((path.to_owned(), target.tree.text(path)?)))
        .collect();
    let of_image = |path: &str| -> BTreeSet<String> {
        let text = target.tree.text(path).unwrap_or_default();
        let names = text.lines().filter_map(|line| line.split(':').next());
        names.map(str::to_owned).collect()
    };
    let users = &accounts.users | &of_image("usr/lib/passwd");
    let groups = &accounts.groups | &of_image("usr/lib/group");
    let missing = find_missing(&files, &users, &groups);
    let orphans = missing
        .iter()
        .filter(|one| one.is_group && accounts.group_shadows.contains(&one.name));
    let first = missing.iter().find(|one| !one.is_group).or(missing.first());
    let each = orphans.map(|orphan| {
        let what = match first {
            Some(first) => format!(
                "systemd-sysusers stops at the group {}, and makes none of the accounts of the image, such as {}",
                orphan.name, first.name
            ),
            None => format!("systemd-sysusers stops at the group {}", orphan.name),
        };
        CrossingFinding::new(CrossingSeverity::Warning, "accounts", what)
            .seen(format!("/{} of the image", orphan.file), format!("asks for the group {}", orphan.name))
            .seen("/etc/gshadow", format!("has a line {}, and /etc/group has none", orphan.name))
            .prevents(format!("/etc/gshadow: Group \"{}\" already exists.", orphan.name))
            .next(format!("sed -i '/^{}:/d' /etc/gshadow", orphan.name))
    });
    each.collect()
}
