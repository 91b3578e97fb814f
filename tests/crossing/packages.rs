//! Packages that rpm-ostree adds to, removes from or replaces in the image.

use super::Lab;

const FILE: &str = "ab";

fn with_origin(sections: &str) -> Lab {
    let lab = Lab::healthy();
    lab.write_origin(sections);
    lab
}

#[test]
fn a_package_that_no_source_of_the_image_brings_is_an_inhibitor() {
    let lab = with_origin("[packages]\nrequested=htop;usbguard;systemd;kernel-rt-core;\n");
    let found = lab.findings();
    assert_eq!(lab.short(), ["packages inhibitor htop"]);
    for words in [".origin", "requested=htop", "rpm-ostree uninstall htop"] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn a_package_of_a_file_of_another_major_version_is_an_inhibitor() {
    let digest = FILE.repeat(32);
    let lab = with_origin(&format!(
        "[packages]\nrequested-local={digest}:agent-1.2-3.el9.x86_64;{digest}:site-ca-1-1.noarch;\n\
         [overrides]\nreplace-local={digest}:kernel-core-5.14.0-1.el9_6.x86_64;\n"
    ));
    assert_eq!(
        lab.short(),
        [
            "packages inhibitor agent",
            "packages inhibitor kernel-core",
            "packages warning site-ca"
        ]
    );
    let found = lab.findings();
    assert!(
        found[1]
            .text
            .contains("rpm-ostree override reset kernel-core")
    );
}

#[test]
fn local_packages_stay_within_a_major_version() {
    let digest = FILE.repeat(32);
    let lab = with_origin(&format!(
        "[packages]\nrequested-local={digest}:agent-1.2-3.el9.x86_64;\n"
    ));
    lab.target.write(
        "usr/lib/os-release",
        "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=9.6\nRHEL_VERSION=9.6\n",
    );
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn an_override_of_a_package_that_the_image_lacks_does_nothing() {
    let lab = with_origin("[overrides]\nremove=moby-engine;systemd;\n");
    assert_eq!(lab.short(), ["packages warning moby-engine"]);
}

#[test]
fn extensions_that_the_stream_lacks_are_named() {
    let lab = with_origin("[packages]\nrequested=kata-containers;\n");
    assert_eq!(lab.short(), [""; 0]);
    lab.target.write(
        "usr/lib/os-release",
        "ID=centos\nVARIANT_ID=coreos\nVERSION_ID=10\nOPENSHIFT_VERSION=5.0\n",
    );
    let found = lab.findings();
    assert_eq!(lab.short(), ["packages inhibitor kata-containers"]);
    assert!(found[0].text.contains("sandboxed-containers"));
}

#[test]
fn missing_evidence_is_said() {
    let lab = with_origin("[packages]\nrequested=htop;\n");
    lab.target.remove("usr/share/openshift/base/meta.json");
    assert_eq!(lab.short(), ["packages unknown packages"]);
    let lab = with_origin("");
    lab.target.remove("usr/share/openshift/base/meta.json");
    assert_eq!(lab.short(), [""; 0], "nothing was added");
    let lab = Lab::healthy();
    std::fs::remove_dir_all(lab.node.path("sysroot")).unwrap();
    let mut short = lab.short();
    short.retain(|one| one.starts_with("packages"));
    assert_eq!(short, ["packages unknown packages"]);
}

#[test]
fn the_link_of_a_running_kernel_may_be_gone() {
    let lab = with_origin("[packages]\nrequested=htop;\n");
    lab.node.remove("sysroot/ostree/boot.1.1/rhcos/aa/0");
    assert_eq!(lab.short(), ["packages inhibitor htop"]);
}
