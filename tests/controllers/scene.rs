//! A small cluster of our own: the MachineConfigs of its workers, and objects.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{PROGRAM, Run, TestRoot, file};

/// The version that the operator of this cluster has.
pub(super) const OPERATOR: &str = "0123456789abcdef0123456789abcdef01234567";
/// The image of its nodes.
pub(super) const IMAGE: &str =
    "registry.example/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// registries.conf as the templates have it.
const TEMPLATE: &str =
    "unqualified-search-registries = ['registry.access.redhat.com', 'docker.io']\n";

/// A MachineConfig with these files.
pub(super) fn part(name: &str, role: &str, generated: bool, files: &[Value]) -> Value {
    let mut config = json!({"ignition": {"version": "3.5.0"}});
    if !files.is_empty() {
        config["storage"] = json!({ "files": files });
    }
    let mut metadata = json!({
        "name": name,
        "labels": {"machineconfiguration.openshift.io/role": role},
    });
    if generated {
        metadata["annotations"] =
            json!({"machineconfiguration.openshift.io/generated-by-controller-version": OPERATOR});
    }
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": metadata,
        "spec": {
            "osImageURL": "", "baseOSExtensionsContainerImage": "", "config": config,
            "kernelArguments": null, "extensions": null, "fips": false, "kernelType": "",
        },
    })
}

/// The MachineConfigs of the workers, and one of the control plane.
pub(super) fn parts() -> Vec<Value> {
    vec![
        part(
            "00-worker",
            "worker",
            true,
            &[file("/etc/containers/registries.conf", 0o644, TEMPLATE)],
        ),
        part(
            "01-worker-kubelet",
            "worker",
            true,
            &[file("/etc/site", 0o644, "a\n")],
        ),
        part("99-worker-generated-registries", "worker", true, &[]),
        part(
            "99-worker-site",
            "worker",
            false,
            &[file("/etc/site-own", 0o600, "b\n")],
        ),
        part(
            "00-master",
            "master",
            true,
            &[file("/etc/site", 0o644, "master\n")],
        ),
        part("99-master-generated-registries", "master", true, &[]),
    ]
}

/// The objects that every cluster has.
pub(super) fn cluster() -> Vec<Value> {
    vec![
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"}, "spec": {}}),
        json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
            "status": {"desired": {"version": "4.22.0",
                "image": "registry.example/release@sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}}}),
    ]
}

/// A mirror of `quay.example/team`, as a YAML document.
pub(super) const MIRROR: &str = "\
apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata:
  name: lab
spec:
  imageDigestMirrors:
  - source: quay.example/team
    mirrors:
    - mirror.example:5000/team
";

/// Writes the cluster into a directory of the root, a list of all.
pub(super) fn write_parts(root: &TestRoot, name: &str) {
    let items: Vec<Value> = parts().into_iter().chain(cluster()).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    root.write(name, &list.to_string());
}

/// Runs `render worker` in a directory.
pub(super) fn render(root: &TestRoot, args: &[&str]) -> Run {
    let mut command = Command::new(PROGRAM);
    command
        .current_dir(root.dir())
        .args(["render", "worker"])
        .args(args);
    command.args(["--os-image", IMAGE, "--extensions-image", IMAGE]);
    Run::of(command.stdin(Stdio::null()).output().unwrap())
}
