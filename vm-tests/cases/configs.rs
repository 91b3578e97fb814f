//! The configs of the guests: small rendered MachineConfigs, named as the operator would name them.

use std::process::Command;

use serde_json::{Value, json};

use crate::lab::run;
use crate::support::{PROGRAM, file, machine_config};

/// The rendered MachineConfig of a pool `worker` with this Ignition config.
pub fn rendered(ignition: Value) -> Value {
    let mut config = machine_config("50-site", ignition);
    config["metadata"]["labels"] = json!({"machineconfiguration.openshift.io/role": "worker"});
    let written = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(written.path(), config.to_string()).unwrap();
    let rendered = run(Command::new(PROGRAM)
        .args(["render", "worker"])
        .arg(written.path()));
    serde_json::from_str(&rendered).unwrap()
}

/// The same as an older operator would have rendered it: Debian's Ignition understands nothing newer.
pub fn older(mut config: Value) -> Value {
    config["spec"]["config"]["ignition"]["version"] = json!("3.2.0");
    let hash = mco_rescue::config::render::name_hash(&config["spec"]).unwrap();
    config["metadata"]["name"] = json!(format!("rendered-worker-{hash}"));
    config
}

/// Its name.
pub fn name(config: &Value) -> &str {
    config["metadata"]["name"].as_str().unwrap()
}

/// The user `core` with one key and a password's hash.
pub fn core(key: &str) -> Value {
    json!({"name": "core", "sshAuthorizedKeys": [key], "passwordHash": format!("$6$salt${}", key.len())})
}

/// A service that stands in for something and does nothing.
pub fn idle(what: &str) -> String {
    format!(
        "[Unit]\nDescription={what} (stand-in)\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
    )
}

/// The two configs of the power cuts: files come, go and change, with units, links and the key of `core`.
pub fn before_and_after() -> (Value, Value) {
    let config = |text: &str, only: &str, key: &str, mask: bool, gone: Value| {
        let mut files: Vec<Value> = (0..24)
            .map(|n| {
                file(
                    &format!("/etc/site/{n:02}.conf"),
                    0o644,
                    &format!("{text} {n}\n").repeat(200),
                )
            })
            .collect();
        files.push(file(
            &format!("/etc/{only}.conf"),
            0o600,
            "only in one of the two\n",
        ));
        files.push(file(
            "/etc/of-the-os.conf",
            0o644,
            &format!("taken over {text}\n"),
        ));
        files.push(file(
            &format!("/var/lib/{only}/data"),
            0o755,
            "in a directory of its own\n",
        ));
        let units = json!([
            {"name": "kubelet.service", "enabled": true, "contents": idle(&format!("kubelet {text}"))},
            {"name": "agent.service", "enabled": !mask, "contents": idle(&format!("agent {text}"))},
            {"name": "site.service", "mask": mask},
            gone,
        ]);
        rendered(json!({
            "storage": {"files": files},
            "systemd": {"units": units},
            "passwd": {"users": [core(key)]},
        }))
    };
    let unit = json!({"name": "soon-gone.service", "enabled": true, "contents": idle("soon gone")});
    let dropin = json!({"name": "crio.service", "dropins": [{"name": "10-site.conf", "contents": "[Service]\nNice=5\n"}]});
    (
        config("old", "before", "ssh-ed25519 old", false, unit),
        config("new", "after", "ssh-ed25519 new", true, dropin),
    )
}

/// What a worker's config has, small: the kubelet and what it needs, all stand-ins, and the key of `core`. `more` has other `files`
/// and `units`, or another `core`.
pub fn worker(key: &str, max_pods: u32, more: Value) -> Value {
    let kubelet = "[Unit]\nDescription=kubelet (stand-in): runs when its config can be read\n\
        Requires=crio.service\nAfter=crio.service kubelet-dependencies.target\nWants=kubelet-dependencies.target\n\
        [Service]\nExecStartPre=/bin/grep -q ^maxPods: /etc/kubernetes/kubelet.conf\nExecStart=/bin/sleep infinity\n\
        [Install]\nWantedBy=multi-user.target\n";
    let dependencies = "[Unit]\nDescription=What the kubelet needs (stand-in)\nRequires=basic.target\nAfter=basic.target\n";
    let kubelet_conf = format!(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: {max_pods}\n"
    );
    let mut files = vec![
        file("/etc/kubernetes/kubelet.conf", 0o644, &kubelet_conf),
        file(
            "/etc/crio/crio.conf.d/00-default",
            0o644,
            "[crio.runtime]\npids_limit = 2048\n",
        ),
    ];
    let mut units = vec![
        json!({"name": "kubelet.service", "enabled": true, "contents": kubelet}),
        json!({"name": "crio.service", "enabled": true, "contents": idle("container runtime")}),
        json!({"name": "kubelet-dependencies.target", "contents": dependencies}),
    ];
    for file in more["files"].as_array().cloned().unwrap_or_default() {
        files.retain(|known| known["path"] != file["path"]);
        files.push(file);
    }
    for unit in more["units"].as_array().cloned().unwrap_or_default() {
        match units.iter_mut().find(|known| known["name"] == unit["name"]) {
            Some(known) => known["dropins"] = unit["dropins"].clone(),
            None => units.push(unit),
        }
    }
    let user = match &more["core"] {
        Value::Null => json!({"name": "core", "sshAuthorizedKeys": [key]}),
        user => user.clone(),
    };
    rendered(json!({
        "storage": {"files": files},
        "systemd": {"units": units},
        "passwd": {"users": [user]},
    }))
}
