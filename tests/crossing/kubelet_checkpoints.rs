//! Checkpoint files of the node's kubelet and the image's kubelet.

use super::Lab;

const POD_STATUS: &str = "var/lib/kubelet/pod_status_manager_state";
const ALLOCATED: &str = "var/lib/kubelet/allocated_pods_state";
const PROCESSORS: &str = "var/lib/kubelet/cpu_manager_state";
const CLEANUP: &str = "etc/systemd/system/kubelet-cleanup.service";

/// A node of one release and an image of another.
fn lab(from: &str, to: &str) -> Lab {
    let lab = Lab::healthy();
    let release = format!("ID=rhel\nVERSION_ID=9.6\nRHEL_VERSION=9.6\nOPENSHIFT_VERSION={from}\n");
    lab.node.write("etc/os-release", &release);
    lab.node.write("usr/lib/os-release", &release);
    lab.write_packages(&[("openshift-kubelet", to), ("systemd", "257")]);
    lab.write_api_server(&format!("v{to}"), "kubernetes=1.99.0");
    lab
}

fn checks(lab: &Lab) -> Vec<String> {
    let found = lab.findings().into_iter();
    let own = found.filter(|finding| finding.check == "kubelet-checkpoints");
    own.map(|finding| format!("{} {}", finding.severity, finding.text))
        .collect()
}

#[test]
fn a_file_that_the_other_kubelet_may_refuse_is_a_warning() {
    for (from, to, file, is_told) in [
        ("4.18.2", "4.19.0", POD_STATUS, true),
        ("4.19.2", "4.18.0", POD_STATUS, true),
        ("4.18.2", "4.18.9", POD_STATUS, false),
        ("4.19.2", "4.20.0", POD_STATUS, false),
        ("4.21.2", "4.20.0", ALLOCATED, true),
        ("4.20.2", "4.21.0", ALLOCATED, false),
        ("4.18.2", "4.19.0", PROCESSORS, true),
        ("4.18.2", "4.18.3", PROCESSORS, false),
    ] {
        let lab = lab(from, to);
        assert_eq!(checks(&lab), [""; 0], "{from} {to}");
        lab.node.write(file, "{}");
        let found = checks(&lab);
        assert_eq!(
            found.len(),
            usize::from(is_told),
            "{from} {to} {file}: {found:?}"
        );
        for one in found {
            assert!(one.starts_with("warning "), "{one}");
            for words in [
                file,
                "Kubernetes 1.",
                from,
                to,
                "checkpoint is corrupted",
                ".mco-rescue-",
            ] {
                assert!(one.contains(words), "{words}: {one}");
            }
        }
    }
}

#[test]
fn a_file_that_the_next_boot_removes_does_not_matter() {
    let lab = lab("4.18.2", "4.19.0");
    lab.node.write(PROCESSORS, "{}");
    let unit = format!("[Service]\nExecStart=/bin/rm -f /{PROCESSORS}\n");
    lab.node.write(CLEANUP, &unit);
    // Nothing starts it yet.
    assert_eq!(checks(&lab).len(), 1);
    lab.node.link(
        "etc/systemd/system/multi-user.target.wants/kubelet-cleanup.service",
        &format!("/{CLEANUP}"),
    );
    assert_eq!(checks(&lab), [""; 0]);
    lab.node.remove(CLEANUP);
    lab.node.link(CLEANUP, "/dev/null");
    assert_eq!(checks(&lab).len(), 1);
}
