//! Do the changes that rpm-ostree makes to the image on this node still work with the new image?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::command::rpm_ostree::packages::{Requester, requester_of};
use crate::node::engine::Engine;
use crate::node::platform::{OriginSections, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("packages", judge);

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let origin = match &node.origin {
        Ok(origin) => origin,
        Err(reason) => {
            let what = format!("packages that were added to the image are not known: {reason}");
            let finding = CrossingFinding::unknown("packages", what);
            return vec![finding.next("rpm-ostree status --booted")];
        }
    };
    if node.engine == Ok(Engine::Bootc) {
        return judge_under_bootc(origin).into_iter().collect();
    }
    let mut findings = Vec::new();
    let changes_major = node.os_release.el_major() != target.os_release.el_major();
    let local = origin.local.iter().map(|package| (package, "uninstall"));
    let replaced = origin
        .replaced
        .iter()
        .map(|package| (package, "override reset"));
    for (package, command) in local.chain(replaced) {
        if changes_major {
            findings.push(judge_local(target, origin, package, command));
        }
    }
    if target.packages.is_none() {
        let others = origin.requested.iter().chain(&origin.removed);
        let others: Vec<&str> = others.map(String::as_str).collect();
        if !others.is_empty() {
            let what =
                "the image has no list of its packages, so these changes of it are not judged";
            findings.push(
                CrossingFinding::unknown("packages", what)
                    .with_evidence(&origin.place, others.join(" "))
                    .next("rpm-ostree status --booted"),
            );
        }
        return findings;
    }
    let requested = origin.requested.iter();
    findings.extend(requested.filter_map(|name| judge_requested(target, origin, name)));
    let removed = origin.removed.iter();
    findings.extend(removed.filter_map(|name| judge_removed(target, origin, name)));
    findings
}

/// Judges a switch by `bootc`, which carries nothing of it over.
fn judge_under_bootc(origin: &OriginSections) -> Option<CrossingFinding> {
    let lists = [
        ("requested", &origin.requested),
        ("from files", &origin.local),
        ("replaced", &origin.replaced),
        ("removed", &origin.removed),
    ];
    let lists = lists.iter().filter(|(_, names)| !names.is_empty());
    let mut has: Vec<String> = lists
        .map(|(how, names)| format!("{how}: {}", names.join(" ")))
        .collect();
    if origin.own_initramfs {
        has.push("an initramfs that is built on the node".to_owned());
    }
    if has.is_empty() {
        return None;
    }
    let what = "the image that runs was changed on the node, and bootc switch loses that without a word, so nothing is staged";
    let finding = CrossingFinding::inhibitor("packages", what)
        .with_evidence(&origin.place, has.join("; "))
        .next("Bring an image that has all of this: build it on top of the new one.");
    Some(finding)
}

fn judge_requested(
    target: &Target,
    origin: &OriginSections,
    name: &str,
) -> Option<CrossingFinding> {
    if target.find_package(name).is_some() {
        return None;
    }
    let extension = match requester_of(name) {
        Requester::Kernel => return None,
        Requester::Extension(extension) => Some(extension),
        Requester::Admin => None,
    };
    let is_centos = target.os_release.get("ID") == "centos";
    let is_gone =
        |extension: &str| is_centos && ["sandboxed-containers", "two-node-ha"].contains(&extension);
    let what = match extension {
        Some(extension) if !is_gone(extension) => return None,
        Some(extension) => format!(
            "{name} was installed for the extension {extension}, which this stream does not have"
        ),
        None => format!(
            "{name} was installed on top of the image; neither the image nor an extension brings it, so rpm-ostree \
             does not stage the image"
        ),
    };
    let finding = CrossingFinding::inhibitor(name, what)
        .with_evidence(&origin.place, format!("requested={name}"))
        .with_prevented(format!("error: Packages not found: {name}"));
    Some(match extension {
        Some(extension) => finding.next(format!(
            "Take {extension} out of spec.extensions of the MachineConfig."
        )),
        None => finding.next(format!("rpm-ostree uninstall {name}")),
    })
}

fn judge_removed(target: &Target, origin: &OriginSections, name: &str) -> Option<CrossingFinding> {
    if target.find_package(name).is_some() {
        return None;
    }
    let what = format!("the node removes {name} from its image, and the new one does not have it");
    Some(
        CrossingFinding::warning(name, what)
            .with_evidence(&origin.place, format!("remove={name}"))
            .with_prevented(format!("Inactive base removals: {name}"))
            .next(format!("rpm-ostree override reset {name}")),
    )
}

/// Judges a package installed from a file, on top of an image of another major version.
fn judge_local(
    target: &Target,
    origin: &OriginSections,
    package: &str,
    command: &str,
) -> CrossingFinding {
    let name = name_of(package);
    let major = target.os_release.el_major();
    let is_of_other = built_for(package).is_some_and(|built| Some(built) != major);
    let (severity, what) = if is_of_other {
        (
            CrossingSeverity::Inhibitor,
            "this package was installed from a file, and it is built for another major version",
        )
    } else {
        (
            CrossingSeverity::Warning,
            "this package was installed from a file, and it goes on top of the new image too",
        )
    };
    let finding = CrossingFinding::new(severity, name, what).with_evidence(&origin.place, package);
    let finding = if is_of_other {
        finding.with_prevented("error: Could not depsolve transaction")
    } else {
        finding
    };
    finding.next(format!("rpm-ostree {command} {name}"))
}

/// Returns the name part of `NAME-VERSION-RELEASE.ARCH`.
fn name_of(package: &str) -> &str {
    let mut parts = package.rsplitn(3, '-');
    let (_, _, name) = (parts.next(), parts.next(), parts.next());
    name.unwrap_or(package)
}

/// Returns the major version that a release such as `1.el9_4.x86_64` names.
fn built_for(package: &str) -> Option<u32> {
    let (_, after) = package.rsplit_once(".el")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
