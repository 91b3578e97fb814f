//! Does the image have the units that /etc refers to?

use super::faults;
use crate::base::text::count_noun;
use crate::formats::systemd::needed;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;
use crate::node::unit_links::{UNITS_OF_OS, UnitLink};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("missing-units", judge);

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let lost = match &node.lost_units {
        Ok(lost) if lost.is_empty() => return Vec::new(),
        Ok(lost) => lost,
        Err(why) => {
            return faults::note_unseen("units", std::slice::from_ref(why))
                .into_iter()
                .collect();
        }
    };
    if !has_units(target) {
        let what = "the image has no list of its units, so it is unknown whether it has those that are enabled";
        return vec![
            CrossingFinding::unknown("units", what)
                .with_evidence(&target.tree.source, format!("/{UNITS_OF_OS}: missing")),
        ];
    }
    let (needed, others): (Vec<&UnitLink>, Vec<&UnitLink>) = lost
        .iter()
        .partition(|link| needed::describe_loss(link.path.name()).is_some());
    let mut all: Vec<CrossingFinding> = needed.into_iter().filter_map(describe_needed).collect();
    // The unit may belong to a package layered on the image.
    let is_layered = match &node.origin {
        Ok(origin) => !origin.requested.is_empty() || !origin.local.is_empty(),
        Err(_) => true,
    };
    if !is_layered {
        all.extend(describe_others(&others));
    }
    all
}

/// Returns true if the units of the image are known: every system has this one.
fn has_units(target: &Target) -> bool {
    target
        .tree
        .exists(&format!("{UNITS_OF_OS}/multi-user.target"))
}

fn describe_needed(link: &UnitLink) -> Option<CrossingFinding> {
    let unit = link.path.name();
    let what = format!(
        "the node needs this unit, and the image does not have it: {}",
        needed::describe_loss(unit)?
    );
    Some(
        CrossingFinding::inhibitor(unit, what)
            .with_evidence(link.path.to_string(), "a link to a unit of the image")
            .with_prevented(format!("Unit {unit} could not be found"))
            .next("Take the node image of the cluster's release: oc adm release info --image-for=rhel-coreos RELEASE"),
    )
}

fn describe_others(links: &[&UnitLink]) -> Option<CrossingFinding> {
    let (first, rest) = links.split_first()?;
    let more = match rest.len() {
        0 => String::new(),
        more => format!(", and {}", count_noun(more, "more link")),
    };
    let what = "it is enabled, and the image does not have it any more";
    let place = first.path.to_string();
    Some(
        CrossingFinding::warning(first.path.name(), what)
            .with_evidence(place, format!("a link to a unit of the image{more}"))
            .next(format!("systemctl disable {}", first.path.name())),
    )
}
