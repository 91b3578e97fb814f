//! Keys that change nothing are named, wherever in an object they stand.

use std::process::{Command, Stdio};

use serde_json::json;

use super::scene::{IMAGE, cluster, parts};
use crate::support::{PROGRAM, Run, TestRoot};

fn render(object: &str) -> Run {
    let root = TestRoot::empty();
    let items: Vec<_> = parts().into_iter().chain(cluster()).collect();
    root.write(
        "all.json",
        &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
    );
    root.write("object.yaml", object);
    let mut command = Command::new(PROGRAM);
    command.current_dir(root.dir()).args([
        "render",
        "worker",
        "--parts",
        "all.json",
        "object.yaml",
    ]);
    command.args(["--os-image", IMAGE, "--extensions-image", IMAGE]);
    Run::of(command.stdin(Stdio::null()).output().unwrap())
}

fn document(kind: &str, api: &str, spec: &str) -> String {
    format!("apiVersion: {api}\nkind: {kind}\nmetadata: {{name: cluster}}\n{spec}\n")
}

#[test]
fn a_key_that_no_object_of_the_kind_has_is_named() {
    let own = "machineconfiguration.openshift.io/v1";
    let config = "config.openshift.io/v1";
    let selector = "machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: \"\"}}";
    let table = [
        (
            "ContainerRuntimeConfig",
            own,
            format!("spec: {{{selector}, containerRuntimeConfig: {{pidLimit: 4096}}}}"),
            "spec.containerRuntimeConfig.pidLimit has no effect",
        ),
        (
            "ContainerRuntimeConfig",
            own,
            format!("spec: {{{selector}, containerRuntimeConfig: {{}}, pidsLimit: 4096}}"),
            "spec.pidsLimit has no effect",
        ),
        (
            "Image",
            config,
            "spec: {registrySources: {blockedRegistry: [a.example]}}".to_owned(),
            "spec.registrySources.blockedRegistry has no effect",
        ),
        (
            "Image",
            config,
            "spec: {blockedRegistries: [a.example]}".to_owned(),
            "spec.blockedRegistries has no effect",
        ),
        (
            "Image",
            config,
            "registrySources: {blockedRegistries: [a.example]}".to_owned(),
            "registrySources has no effect; the keys here are apiVersion",
        ),
        (
            "Node",
            config,
            "spec: {workerLatency: Default}".to_owned(),
            "spec.workerLatency has no effect",
        ),
        (
            "APIServer",
            config,
            "spec: {tlsSecurityProfiles: {type: Old}}".to_owned(),
            "spec.tlsSecurityProfiles has no effect",
        ),
        (
            "ImageDigestMirrorSet",
            config,
            "spec: {imageDigestMirrors: [], imageTagMirrors: []}".to_owned(),
            "spec.imageTagMirrors has no effect",
        ),
        (
            "ImageTagMirrorSet",
            config,
            "spec: {imageTagMirrors: [{source: q.example, mirrors: [m.example], policy: x}]}"
                .to_owned(),
            "spec.imageTagMirrors[0].policy has no effect",
        ),
        (
            "CRIOCredentialProviderConfig",
            config,
            "spec: {matchImage: [a.example]}".to_owned(),
            "spec.matchImage has no effect; the keys here are matchImages",
        ),
        (
            "MachineConfigPool",
            own,
            "spec: {osImageStream: {names: rhel-10}}".to_owned(),
            "spec.osImageStream.names has no effect",
        ),
    ];
    for (kind, api, spec, words) in table {
        let said = render(&document(kind, api, &spec)).ok().err();
        let named = format!("{kind} cluster: {words}");
        assert!(said.contains(&named), "{named}: {said}");
    }
}

#[test]
fn settings_for_gomaxprocs_are_not_passed_over() {
    let selector = "machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: \"\"}}";
    let runtime = document(
        "ContainerRuntimeConfig",
        "machineconfiguration.openshift.io/v1",
        &format!(
            "spec: {{{selector}, containerRuntimeConfig: {{containerGomaxprocsBehavior: Autosize}}}}"
        ),
    );
    let said = render(&runtime).ok().err();
    assert!(
        said.contains(
            "spec.containerRuntimeConfig.containerGomaxprocsBehavior: \"Autosize\" is not rendered"
        ),
        "{said}"
    );
    let kubelet = document(
        "KubeletConfig",
        "machineconfiguration.openshift.io/v1",
        &format!("spec: {{{selector}, systemGomaxprocsBehavior: Autosize, logLevels: 3}}"),
    );
    // This small cluster has no kubelet.conf to start from, so the object is looked at by itself.
    let objects =
        mco_rescue::config::controllers::read_objects(kubelet.as_bytes(), "k.yaml").unwrap();
    let base = mco_rescue::config::controllers::Base::Parts(std::collections::BTreeMap::new());
    let cluster = mco_rescue::config::controllers::Cluster::new(objects, base, "worker");
    let notes = mco_rescue::config::controllers::generate_configs(&cluster).notes;
    let has = |words: &str, inexact: bool| {
        notes
            .iter()
            .any(|note| note.text.starts_with(words) && note.inexact == inexact)
    };
    assert!(
        has(
            "spec.systemGomaxprocsBehavior: \"Autosize\" is not rendered",
            true
        ),
        "{notes:?}"
    );
    assert!(
        has(
            "spec.logLevels has no effect; the keys here are machineConfigPoolSelector, kubeletConfig, logLevel",
            false
        ),
        "{notes:?}"
    );
}
