//! Values that a config may have, and that mean something else than they seem to: they are named before they are applied.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{PROGRAM, Run, TestRoot, file, machine_config};

/// Places and messages of the notices of a plan.
pub(super) fn notices(root: &TestRoot, config: &Value) -> Vec<String> {
    let config = root.config(config);
    let run = root.run(&["plan", "--files-only", "--output", "json", config.path()]);
    let plan = run.ok().json();
    let all = plan["notices"].as_array().unwrap().iter();
    all.map(|one| {
        format!(
            "{}: {}",
            one["subject"].as_str().unwrap(),
            one["message"].as_str().unwrap()
        )
    })
    .collect()
}

fn render(yaml: &str) -> Run {
    let root = TestRoot::empty();
    root.write("part.yaml", yaml);
    let mut command = Command::new(PROGRAM);
    command.current_dir(root.dir()).args([
        "render",
        "worker",
        "part.yaml",
        "--os-image",
        "a",
        "--extensions-image",
        "a",
    ]);
    Run::of(command.stdin(Stdio::null()).output().unwrap())
}

fn part(mode: &str) -> String {
    format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {{name: 50-a, labels: \
         {{machineconfiguration.openshift.io/role: worker}}}}\nspec:\n  config:\n    ignition: {{version: 3.4.0}}\n    storage:\n      \
         files:\n      - {{path: /etc/a, mode: {mode}, contents: {{source: \"data:,a\"}}}}\n"
    )
}

#[test]
fn a_mode_that_was_meant_in_octal_is_named_as_it_is_written() {
    for (mode, words) in [
        (
            "644",
            "644 is a decimal number; if the mode 0644 is meant, write 0644 in YAML, or 420 in JSON",
        ),
        (
            "755",
            "755 is a decimal number; if the mode 0755 is meant, write 0755 in YAML, or 493 in JSON",
        ),
        ("600", "or 384 in JSON"),
        (
            "4755",
            "4755 is a decimal number; if the mode 4755 is meant",
        ),
    ] {
        let said = render(&part(mode)).exits(1).err();
        assert!(
            said.contains("files[0].mode (line 9)") && said.contains(words),
            "{mode}: {said}"
        );
    }
    let said = render(&part("\"0644\"")).exits(1).err();
    assert!(
        said.contains("write the number without quotes, such as 0644 in YAML"),
        "{said}"
    );
    // The daemon takes this one.
    let said = render(&part("400")).ok().err();
    assert!(
        said.contains("400 is a decimal number; if the mode 0400 is meant"),
        "{said}"
    );
    for mode in ["0644", "420", "0o600", "0", "0755", "0440"] {
        let said = render(&part(mode)).ok().err();
        assert!(!said.contains("mode"), "{mode}: {said}");
    }
}

#[test]
fn the_plan_names_what_older_releases_make_of_a_decimal_mode() {
    let root = TestRoot::new();
    let with = |mode: u32| {
        machine_config(
            "rendered-worker-1",
            json!({"storage": {"files": [file("/etc/a", mode, "a")]}}),
        )
    };
    let said = notices(&root, &with(132)).join("\n");
    assert!(
        said.contains("storage.files[0].mode")
            && said.contains("132 is the mode 0204")
            && said.contains("decimal number 644"),
        "{said}"
    );
    assert!(!notices(&root, &with(0o644)).join("\n").contains("mode"));
}

#[test]
fn directories_of_a_bare_config_are_judged_by_their_own_rule() {
    let root = TestRoot::new();
    let with = |mode: u32| json!({"ignition": {"version": "3.4.0"}, "storage": {"directories": [{"path": "/etc/d", "mode": mode}]}});
    let said = notices(&root, &with(755)).join("\n");
    assert!(
        said.contains("storage.directories[0].mode")
            && said.contains("write 0755 in YAML, or 493 in JSON"),
        "{said}"
    );
    for mode in [0o755, 0o700, 0o1777] {
        let said = notices(&root, &with(mode)).join("\n");
        assert!(!said.contains("decimal"), "{mode:o}: {said}");
    }
}

#[test]
fn modes_in_the_volumes_of_a_static_pod_are_judged() {
    let root = TestRoot::new();
    let with = |mode: &str| {
        let text = format!(
            "kind: Pod\nspec:\n  volumes:\n  - downwardAPI: {{items: [{{path: a, mode: {mode}}}]}}\n"
        );
        let pod = file("/etc/kubernetes/manifests/site.yaml", 0o600, &text);
        notices(
            &root,
            &machine_config("rendered-worker-1", json!({"storage": {"files": [pod]}})),
        )
        .join("\n")
    };
    let said = with("644");
    assert!(said.contains("the kubelet does not run this pod: spec.volumes[0].downwardAPI.items[0].mode: 644 is a decimal number"), "{said}");
    for mode in ["0644", "420", "511"] {
        assert!(!with(mode).contains("does not run"), "{mode}");
    }
}

/// With `passwordHash`; the key lets core in, so that nothing blocks the plan.
fn with_password(hash: &str) -> Value {
    let user =
        json!({"name": "core", "passwordHash": hash, "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]});
    machine_config("rendered-worker-1", json!({"passwd": {"users": [user]}}))
}

#[test]
fn a_password_that_is_not_a_hash_is_named_and_not_shown() {
    let root = TestRoot::new();
    for (hash, why) in [
        (
            r"\$6\$rounds=5000\$abcdefgh\$value",
            "it has a backslash in it",
        ),
        ("6$salt$value", "its first $ is missing"),
        ("$6$rounds=5000$salt", "it ends before its hash"),
        ("$6", "it ends before its hash"),
        (
            "secret of mine",
            "it is plain text, or a shell expanded the parts",
        ),
        (".Kx/9w", "it is plain text, or a shell expanded the parts"),
    ] {
        let all = notices(&root, &with_password(hash));
        let found = all
            .iter()
            .find(|one| one.contains("no password of core works"));
        let found = found.unwrap_or_else(|| panic!("{hash}: {all:?}"));
        assert!(
            found.starts_with("spec.config.passwd.users[0].passwordHash: ") && found.contains(why),
            "{hash}: {found}"
        );
        assert!(!found.contains(hash), "{found}");
    }
    for hash in [
        "",
        "!",
        "*",
        "!!",
        "!$6$salt$value",
        "$6$salt$value",
        "$y$j9T$salt$value",
        "$6$rounds=5000$salt$value",
        "abcdefghijklm",
    ] {
        let all = notices(&root, &with_password(hash));
        assert!(
            !all.iter().any(|one| one.contains("no password")),
            "{hash}: {all:?}"
        );
    }
}

const KUBELET: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

fn with_kubelet(text: &str) -> Value {
    let conf = file(
        "/etc/kubernetes/kubelet.conf",
        0o644,
        &format!("{KUBELET}{text}"),
    );
    machine_config("rendered-worker-1", json!({"storage": {"files": [conf]}}))
}

#[test]
fn reservations_with_which_no_kubelet_starts_are_named_before_the_run() {
    let root = TestRoot::new();
    let named = |config: &Value| {
        let all = notices(&root, config);
        all.into_iter()
            .find(|one| one.contains("the kubelet does not start with this file"))
    };
    for (text, words) in [
        ("kubeReserved: {cpu: -200m}\n", "kubeReserved.cpu is -200m"),
        (
            "evictionHard: {memory.available: 110%}\n",
            "evictionHard.memory.available is 110%",
        ),
        (
            "systemReserved: {memory: \"1\", pid: x}\n",
            "systemReserved.pid is \"x\", which is not a quantity",
        ),
    ] {
        let found = named(&with_kubelet(text)).unwrap_or_default();
        assert!(found.contains(words), "{text}: {found}");
    }
    let large = with_kubelet("kubeReserved: {memory: 9Gi, cpu: 500m}\n");
    assert_eq!(named(&large), None, "nothing is known of the machine");
    root.write(
        "proc/meminfo",
        "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
    );
    root.write("sys/devices/system/cpu/online", "0-1,3\n");
    let found = named(&large).unwrap_or_default();
    assert!(
        found.contains(
            "kubeReserved.memory reserve 9663676416 bytes, and the machine has 8589934592"
        ),
        "{found}"
    );
    let many = with_kubelet("kubeReserved: {cpu: 3500m}\n");
    assert!(
        named(&many)
            .unwrap_or_default()
            .contains("the machine has 3000")
    );
    assert_eq!(
        named(&with_kubelet("kubeReserved: {cpu: 500m, memory: 1Gi}\n")),
        None
    );
    // What the operator takes out of kubelet.conf.
    let sizes = "NODE_SIZING_ENABLED=false\nSYSTEM_RESERVED_MEMORY=-1Gi\n";
    let env = machine_config(
        "rendered-worker-1",
        json!({"storage": {"files": [file("/etc/node-sizing-enabled.env", 0o644, sizes)]}}),
    );
    assert!(
        named(&env)
            .unwrap_or_default()
            .contains("SYSTEM_RESERVED_MEMORY is -1Gi")
    );
}
