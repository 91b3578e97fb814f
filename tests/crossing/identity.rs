//! Is it an image for nodes, for this machine, and not older than the node's?

use super::forms::{Entry, oci_with, tar_of};
use super::{Lab, short_of};
use mco_rescue::node::images::manifest::go_architecture;

/// The architecture of this machine, as images name it.
fn own() -> &'static str {
    go_architecture(std::env::consts::ARCH)
}

/// The layer of an image with the parts that the node has, except one.
fn image(lab: &Lab, labels: &[(&str, &str)], architecture: &str) -> String {
    let release = lab.target.read("usr/lib/os-release");
    let layer = tar_of(&[
        Entry::File("usr/lib/os-release", release.as_bytes()),
        Entry::File("usr/bin/kubelet", b""),
        Entry::File("usr/bin/crio", b""),
        Entry::File("usr/bin/crun", b""),
        Entry::File("usr/bin/ovs-vsctl", b""),
    ]);
    let dir = lab.node.dir().with_extension("oci");
    oci_with(&dir, &[layer], labels, architecture);
    dir.to_str().unwrap().to_owned()
}

/// The findings of the checks of this file, on an image that is otherwise nearly empty.
fn found(lab: &Lab, labels: &[(&str, &str)], architecture: &str) -> Vec<String> {
    let dir = image(lab, labels, architecture);
    let all = short_of(&lab.node, &dir);
    std::fs::remove_dir_all(dir).unwrap();
    let own = ["architecture", "node-image", "release"];
    let is_own = |one: &String| own.iter().any(|id| one.starts_with(&format!("{id} ")));
    all.into_iter().filter(is_own).collect()
}

#[test]
fn an_image_of_another_kind_is_an_inhibitor() {
    let lab = Lab::healthy();
    let nothing = Vec::<String>::new();
    assert_eq!(found(&lab, &[("containers.bootc", "1")], own()), nothing);
    assert_eq!(
        found(&lab, &[("io.openshift.release", "4.18.3")], own()),
        ["node-image inhibitor the image"]
    );
    assert_eq!(
        found(&lab, &[("io.openshift.os.extensions", "true")], own()),
        ["node-image inhibitor the image"]
    );
    assert_eq!(
        found(&lab, &[("io.openshift.os.streamclass", "rhel-9")], own()),
        ["release warning stream"]
    );
    assert_eq!(
        found(&lab, &[("io.openshift.os.streamclass", "rhel-10")], own()),
        nothing
    );
}

#[test]
fn only_an_image_with_the_name_of_this_architecture_is_for_this_machine() {
    let lab = Lab::healthy();
    let of_image = ["amd64", "arm64", "ppc64le", "s390x"];
    assert!(of_image.contains(&own()), "{}", own());
    for name in of_image {
        let findings = found(&lab, &[], name);
        let of_this = findings
            .iter()
            .filter(|one| one.starts_with("architecture "));
        let expected = usize::from(name != own());
        assert_eq!(of_this.count(), expected, "{name}: {findings:?}");
    }
}

#[test]
fn a_program_of_the_node_that_the_image_lacks_is_an_inhibitor() {
    let lab = Lab::healthy();
    lab.target.remove("usr/bin/ovs-vsctl");
    let findings = lab.findings();
    assert_eq!(lab.short(), ["node-image inhibitor the image"]);
    for words in [
        "/usr/bin/ovs-vsctl",
        "ovs-configuration.service",
        "203/EXEC",
    ] {
        assert!(findings[0].text.contains(words), "{}", findings[0].text);
    }
}

#[test]
fn an_older_image_and_another_system_are_warnings() {
    let lab = Lab::healthy();
    lab.node.write(
        "usr/lib/os-release",
        "ID=\"rhel\"\nVARIANT_ID=coreos\nVERSION_ID=\"10.0\"\nRHEL_VERSION=10.0\n",
    );
    lab.target.write(
        "usr/lib/os-release",
        "ID=\"rhel\"\nVARIANT_ID=coreos\nVERSION_ID=\"9.6\"\nRHEL_VERSION=9.6\n",
    );
    assert!(lab.short().contains(&"release warning release".to_owned()));
    lab.target.write(
        "usr/lib/os-release",
        "ID=fedora\nVARIANT_ID=coreos\nVERSION_ID=42\n",
    );
    assert!(lab.short().contains(&"release warning system".to_owned()));
    lab.target.write("usr/lib/os-release", "");
    assert!(
        lab.short()
            .contains(&"release unknown os-release".to_owned())
    );
}
