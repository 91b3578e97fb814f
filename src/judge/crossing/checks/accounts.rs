//! Can the users that the image needs be created on this node?

use std::collections::BTreeSet;

use crate::formats::systemd::sysusers::find_missing;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::{Platform, Seen};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("accounts", judge);

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    match find_orphans(target, node) {
        Ok(found) => found,
        Err(why) => {
            let what = format!("the accounts cannot be read: {why}");
            vec![CrossingFinding::unknown("accounts", what)]
        }
    }
}

/// Returns the names in a file of the image such as `passwd`; none if it has no such file.
fn names_of_image(target: &Target, path: &str) -> Seen<BTreeSet<String>> {
    let text = target.tree.read_text(path)?;
    let lines = text.iter().flat_map(|text| text.lines());
    let names = lines.filter_map(|line| line.split(':').next());
    Ok(names.map(str::to_owned).collect())
}

fn find_orphans(target: &Target, node: &Platform) -> Seen<Vec<CrossingFinding>> {
    let accounts = node.accounts.as_ref().map_err(Clone::clone)?;
    let mut files: Vec<(String, String)> = Vec::new();
    for path in target.tree.files_below("usr/lib/sysusers.d") {
        let text = target.tree.read_text(path)?;
        files.extend(text.map(|text| (path.to_owned(), text)));
    }
    let users = &accounts.users | &names_of_image(target, "usr/lib/passwd")?;
    let groups = &accounts.groups | &names_of_image(target, "usr/lib/group")?;
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
        CrossingFinding::warning("accounts", what)
            .with_evidence(format!("/{} of the image", orphan.file), format!("asks for the group {}", orphan.name))
            .with_evidence("/etc/gshadow", format!("has a line {}, and /etc/group has none", orphan.name))
            .with_prevented(format!("/etc/gshadow: Group \"{}\" already exists.", orphan.name))
            .next(format!("sed -i '/^{}:/d' /etc/gshadow", orphan.name))
    });
    Ok(each.collect())
}
