//! Is the image a node image, for this machine, and not older than the node's?

use super::{ARCHITECTURE, faults};
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::node_programs::PROGRAMS;
use crate::node::os_release::Class;
use crate::node::platform::Platform;

/// The check of the architecture.
pub(super) const MACHINE: CrossingCheck = CrossingCheck::of_image(ARCHITECTURE, judge_architecture);

/// The check that the image is a node image.
pub(super) const NODE_IMAGE: CrossingCheck = CrossingCheck::of_image("node-image", judge_kind);

/// The check of the release.
pub(super) const RELEASE: CrossingCheck = CrossingCheck::of_image("release", judge_release);

fn judge_architecture(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let (Some(wanted), Ok(own)) = (&target.tree.architecture, &node.architecture) else {
        return Vec::new();
    };
    if wanted == own {
        return Vec::new();
    }
    let what = format!("the image is for {wanted}, and this machine is {own}");
    vec![
        CrossingFinding::inhibitor("architecture", what)
            .with_evidence(&target.tree.source, format!("architecture {wanted}"))
            .with_prevented("Exec format error")
            .next("Take the image of the same release for this architecture."),
    ]
}

fn judge_kind(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let other = [
        ("io.openshift.release", "a release payload"),
        ("io.openshift.os.extensions", "the image of extensions"),
    ];
    let labels = &target.tree.labels;
    let label = |key: &str| labels.get(key).filter(|value| *value != "false");
    let found = other
        .iter()
        .find_map(|(key, noun)| Some((key, noun, label(key)?)));
    if let Some((key, noun, value)) = found {
        let what = format!("it is {noun} and not an image that a node runs");
        return vec![
            CrossingFinding::inhibitor("the image", what)
                .with_evidence(format!("label {key}"), value)
                .with_prevented("the image is not ostree-bootable")
                .next("Take the image rhel-coreos of the release: oc adm release info --image-for=rhel-coreos RELEASE"),
        ];
    }
    let programs = match &node.programs {
        Ok(programs) => programs,
        Err(why) => {
            let unseen = faults::note_unseen("programs of the node", std::slice::from_ref(why));
            return unseen.into_iter().collect();
        }
    };
    let missing: Vec<&(&str, &str)> = PROGRAMS
        .iter()
        .filter(|(program, _)| programs.contains(program) && !target.tree.exists(program))
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let names = missing.iter().map(|(program, _)| format!("/{program}"));
    let names = names.collect::<Vec<_>>().join(", ");
    let units = missing.iter().map(|(_, unit)| *unit);
    let units = units.collect::<Vec<_>>().join(", ");
    let what = format!("the image has no {names}, which this node runs");
    vec![
        CrossingFinding::inhibitor("the image", what)
            .with_evidence(&target.tree.source, format!("{names}: missing"))
            .with_prevented(format!(
                "{units}: Main process exited, code=exited, status=203/EXEC"
            ))
            .next("Take the node image of the cluster's release: oc adm release info --image-for=rhel-coreos RELEASE"),
    ]
}

fn judge_release(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let (old, new) = (&node.os_release, &target.os_release);
    let warning = |subject: &str, what: String| {
        CrossingFinding::warning(subject, what)
            .with_evidence("/etc/os-release of the node", old.name())
            .with_evidence("/usr/lib/os-release of the image", new.name())
    };
    if new.get("ID").is_empty() {
        let what = "the image has no usable os-release, so its release is unknown".to_owned();
        return vec![CrossingFinding::unknown("os-release", what)];
    }
    let mut all = Vec::new();
    if old.class() != Class::Other && new.class() != old.class() {
        let what = format!(
            "the image is {}, and this node runs {}: the Machine Config Daemon treats them differently",
            new.name(),
            old.name()
        );
        all.push(
            warning("system", what)
                .next("Take the image of the node's own system, unless the change is wanted."),
        );
    }
    if let (Some(before), Some(after)) = (old.el_major(), new.el_major())
        && after < before
    {
        let what = format!(
            "the image has Enterprise Linux {after}, and this node runs {before}: the state in /etc and /var is from the newer \
             system, and going back is not supported"
        );
        all.push(warning("release", what).next(
            "Go back only with an earlier deployment: mco-rescue rollback, or rpm-ostree rollback.",
        ));
    }
    if let Some((stream, major)) = find_other_stream(target) {
        let what = format!(
            "the image says that it belongs to the stream {stream}, but holds Enterprise Linux {major}"
        );
        let finding =
            warning("stream", what).with_evidence("label io.openshift.os.streamclass", stream);
        let next = "Take the image that the cluster names: oc get osimagestream cluster -o yaml";
        all.push(finding.next(next));
    }
    all
}

/// Returns the stream that an image names and its major version, if they do not fit.
fn find_other_stream(target: &Target) -> Option<(&str, u32)> {
    let stream = target.tree.labels.get("io.openshift.os.streamclass")?;
    let major = target.os_release.el_major()?;
    let (_, number) = stream.rsplit_once('-')?;
    (number.parse() != Ok(major)).then_some((stream.as_str(), major))
}
