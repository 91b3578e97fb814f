//! FP-61: the bootstrap kubeconfig is missing.

use super::worker::{self, Branch, Row, all_met, healthy, import, prepared_for, sick, well};
use super::{RECORD, doctor, of};

const KUBECONFIG: &str = "etc/kubernetes/kubeconfig";

const NO_KUBECONFIG: Branch = Branch {
    id: "FP-61",
    severity: "warning",
    what: "the bootstrap kubeconfig is missing",
    seen: &[
        "cannot stat /etc/kubernetes/kubeconfig: stat /etc/kubernetes/kubeconfig: no such file or directory",
        "next update fails without it",
    ],
    next: &[
        "ssh core@OTHER-NODE sudo cat /etc/kubernetes/kubeconfig > ROOT/etc/kubernetes/kubeconfig",
        "chmod 0600 ROOT/etc/kubernetes/kubeconfig",
    ],
};

const BOOTSTRAP: [Row; 6] = [
    sick(|root| root.remove(KUBECONFIG), NO_KUBECONFIG),
    sick(
        |root| {
            root.remove(KUBECONFIG);
            root.link(KUBECONFIG, "nowhere");
        },
        NO_KUBECONFIG,
    ),
    sick(
        |root| {
            import(root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
            worker::annotated(root, "rendered-worker-a", "rendered-worker-b");
            root.remove(KUBECONFIG);
        },
        NO_KUBECONFIG,
    ),
    sick(
        |root| root.write(KUBECONFIG, ""),
        Branch {
            id: "FP-61",
            severity: "warning",
            what: "the bootstrap kubeconfig is empty",
            seen: &["0 bytes", "cannot request a certificate"],
            next: &["ssh core@OTHER-NODE sudo cat", "chmod 0600 ROOT"],
        },
    ),
    well("FP-61", |root| {
        root.remove(KUBECONFIG);
        root.write("etc/kubernetes/kept", "kind: Config\n");
        root.link(KUBECONFIG, "kept");
    }),
    // The first boot brings it.
    well("FP-61", |root| {
        root.remove(KUBECONFIG);
        root.remove(RECORD);
    }),
];

#[test]
fn a_kubeconfig_that_is_gone_is_found_wherever_status_speaks_of_it() {
    all_met(&BOOTSTRAP);
    for desired in ["rendered-worker-a", "rendered-worker-b"] {
        let root = healthy();
        import(&root, &prepared_for("OVNKubernetes", "rendered-worker-b"));
        worker::annotated(&root, "rendered-worker-a", desired);
        root.remove(KUBECONFIG);
        let status = root.run(&["status"]).ok().out();
        assert!(status.contains("/etc/kubernetes/kubeconfig"), "{status}");
        assert_eq!(of(&doctor(&root), "FP-61").len(), 1);
    }
}
