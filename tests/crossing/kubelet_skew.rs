//! The image's kubelet and the cluster's API server.

use super::Lab;

#[test]
fn a_kubelet_newer_than_the_api_server_is_an_inhibitor() {
    let lab = Lab::healthy();
    lab.write_api_server("v4.22.3", "kubernetes=1.35.1");
    let found = lab.findings();
    assert_eq!(lab.short(), ["kubelet-skew inhibitor kubelet"]);
    for words in [
        "openshift-kubelet-5.0.0",
        "/etc/kubernetes/manifests/kube-apiserver-pod.yaml",
        "v4.22.3",
        "oc adm release info",
    ] {
        assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
    }
}

#[test]
fn a_kubelet_of_kubernetes_is_compared_with_kubernetes() {
    let lab = Lab::healthy();
    lab.write_packages(&[("kubelet", "1.36.0"), ("systemd", "257")]);
    lab.write_api_server("v5.0.0", "kubernetes=1.35.1, x=1");
    assert_eq!(lab.short(), ["kubelet-skew inhibitor kubelet"]);
    lab.write_api_server("v5.0.0", "kubernetes=1.36.2");
    assert_eq!(lab.short(), [""; 0]);
    lab.write_api_server("v5.0.0", "kubernetes=1.40.0");
    assert_eq!(lab.short(), ["kubelet-skew warning kubelet"]);
}

#[test]
fn a_manifest_in_yaml_is_read_too() {
    let lab = Lab::healthy();
    lab.write_api_server("v4.22.3", "kubernetes=1.35.1");
    lab.node.write(
        "etc/kubernetes/manifests/kube-apiserver-pod.yaml",
        "spec:\n  containers:\n  - name: kube-apiserver\n    image: quay.example/k@sha256:77\n",
    );
    assert_eq!(lab.short(), ["kubelet-skew inhibitor kubelet"]);
}

#[test]
fn without_a_control_plane_the_nodes_own_release_counts() {
    let lab = Lab::healthy();
    lab.node
        .remove("etc/kubernetes/manifests/kube-apiserver-pod.yaml");
    let found = lab.findings();
    assert_eq!(lab.short(), ["kubelet-skew unknown kubelet"]);
    assert!(found[0].text.contains("newer than the node's release 4.18"));
    assert!(found[0].text.contains("oc get clusterversion"));
    lab.write_packages(&[("openshift-kubelet", "4.18.9"), ("systemd", "257")]);
    assert_eq!(lab.short(), [""; 0]);
}

#[test]
fn an_image_of_the_api_server_that_is_not_in_the_storage_proves_nothing() {
    let lab = Lab::healthy();
    lab.node
        .remove("var/lib/containers/storage/overlay-images/images.json");
    assert_eq!(lab.short(), ["kubelet-skew unknown kubelet"]);
    lab.node
        .write("etc/kubernetes/manifests/kube-apiserver-pod.yaml", "{}");
    assert_eq!(lab.short(), ["kubelet-skew unknown kubelet"]);
}
