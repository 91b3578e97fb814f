//! What follows from changed files on a running node: shown by `plan`, done by `apply` between files and records,
//! undone and done again by `recover`. systemctl, crictl and update-ca-trust are stand-ins that note what they were
//! asked, and what was on disk at that moment; the real systemd is asked in `vm-tests`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::Turn;
use crate::support::{self, RECORD, Run, TestRoot, file, flat, install, machine_config};
use serde_json::{Value, json};

const POLICY: &str = "etc/containers/policy.json";

/// Notes what it is asked in `/calls`, with the first line of the policy file and which config is recorded. It
/// fails where a line of `/fails` stands in what it is asked, kills its parent where one of `/kills` does, asks it to
/// end where one of `/terms` does; the units of `/runs` run.
const STAND_IN: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int listed(const char *list, const char *said) {
    char line[256];
    FILE *file = fopen(list, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line && strstr(said, line)) return 1;
    }
    return 0;
}
static char text[1 << 20];
static const char *content(const char *path) {
    FILE *file = fopen(path, "r");
    text[file ? fread(text, 1, sizeof text - 1, file) : 0] = 0;
    return text;
}
int main(int c, char **v) {
    char said[4096] = "", policy[64] = "";
    const char *name = strrchr(v[0], '/');
    strcat(said, name ? name + 1 : v[0]);
    for (int i = 1; i < c; i++) { strcat(said, " "); strncat(said, v[i], 256); }
    if (c > 1 && !strcmp(v[1], "show")) {
        for (int i = 2, units = 0; i < c; units |= !strcmp(v[i++], "--"))
            if (units)
                printf("Id=%s\nActiveState=%s\nSubState=x\nJob=\nLoadState=loaded\nResult=success\n"
                       "ConditionResult=yes\nExecMainStatus=0\n\n", v[i], listed("/runs", v[i]) ? "active" : "inactive");
        return 0;
    }
    sscanf(content("/etc/containers/policy.json"), "%63[^\n]", policy);
    const char *record = strstr(content("/etc/machine-config-daemon/currentconfig"), "worker-new") ? "new" : "old";
    FILE *calls = fopen("/calls", "a");
    fprintf(calls, "%s [%s, record %s]\n", said, policy, record);
    fclose(calls);
    if (c > 1 && !strcmp(v[1], "pods")) printf("aa11\nbb22\n");
    if (listed("/kills", said)) kill(getppid(), SIGKILL);
    if (listed("/terms", said)) kill(getppid(), SIGTERM);
    if (listed("/fails", said)) { fprintf(stderr, "Job for it failed.\n"); return 1; }
    return 0;
}
"#;

/// The stand-in, built once.
fn stand_in() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = tempfile::Builder::new().suffix(".c").tempfile().unwrap();
        fs::write(source.path(), STAND_IN).unwrap();
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("actions-stand-in");
        let mut cc = Command::new("cc");
        let cc = cc.args(["-static", "-o"]).arg(&program).arg(source.path());
        assert!(cc.status().unwrap().success());
        program
    })
}

/// A root in which the program sees itself on a live node with systemd, in config `rendered-worker-old`.
struct Live {
    root: TestRoot,
    /// Its programs and stand-ins for a daemon would be seen by the nodes of other tests.
    _turn: Turn,
}

impl Live {
    fn new(old: &Value) -> Self {
        let root = TestRoot::new();
        root.apply(old);
        for dir in ["proc", "dev", "usr/bin", "run/systemd/system"] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        root.write("dev/null", "");
        mount(&["-t", "proc", "proc", root.path("proc").to_str().unwrap()]);
        for program in ["systemctl", "update-ca-trust", "crictl"] {
            install(stand_in(), &root.path(&format!("usr/bin/{program}")));
        }
        support::install_program(&root.path("mco"));
        root.write("runs", "crio.service\n");
        let live = Self {
            root,
            _turn: Turn::take(),
        };
        // What a run on a live node puts first is there already.
        live.run(&["install"]).ok();
        live.calls();
        live
    }

    /// The one that changes the signature policy.
    fn with_policy(text: &str) -> Self {
        let live = Self::new(&old());
        live.brings(&new(text));
        live
    }

    fn brings(&self, config: &Value) {
        self.root.write("config", &config.to_string());
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = Command::new("chroot");
        command.arg(self.root.dir()).arg("/mco").args(args);
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Daemons that other tests start are seen here too.
    fn apply(&self, more: &[&str]) -> Run {
        self.run(&[&["apply", "--takeover", "--yes"][..], more, &["/config"]].concat())
    }

    fn plan(&self, more: &[&str]) -> Value {
        let args = [
            &["plan", "--takeover", "--output", "json"][..],
            more,
            &["/config"],
        ]
        .concat();
        self.run(&args).ok().json()
    }

    /// What was asked since the last time.
    fn calls(&self) -> Vec<String> {
        let path = self.root.path("calls");
        let calls = fs::read_to_string(&path).unwrap_or_default();
        let _ = fs::remove_file(path);
        calls.lines().map(str::to_owned).collect()
    }

    /// Everything below `/etc`, with modes, owners and digests.
    fn etc(&self) -> String {
        let list =
            r"find . -printf '%P %y %m %U %G %l\n' | sort; find . -type f | sort | xargs sha256sum";
        let mut sh = Command::new("sh");
        let sh = sh.args(["-c", list]).current_dir(self.root.path("etc"));
        String::from_utf8(sh.output().unwrap().stdout).unwrap()
    }

    fn recorded(&self) -> String {
        let record: Value = serde_json::from_str(&self.root.read(RECORD)).unwrap();
        record["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// The kernel of another boot, as far as its id tells.
    fn reboots(&self) {
        self.root
            .write("boot-id", "00000000-1111-2222-3333-444444444444\n");
        let id = self.root.path("proc/sys/kernel/random/boot_id");
        let from = self.root.path("boot-id");
        mount(&["--bind", from.to_str().unwrap(), id.to_str().unwrap()]);
    }
}

fn config(name: &str, files: Value) -> Value {
    machine_config(name, json!({"storage": {"files": files}}))
}

fn old() -> Value {
    config(
        "rendered-worker-old",
        json!([file(&format!("/{POLICY}"), 0o644, "old\n")]),
    )
}

fn new(policy: &str) -> Value {
    config(
        "rendered-worker-new",
        json!([file(&format!("/{POLICY}"), 0o644, policy)]),
    )
}

const RELOADED: &str = "systemctl reload -- crio.service [new, record old]";
const RELOADED_BACK: &str = "systemctl reload -- crio.service [old, record old]";

#[test]
fn a_service_reads_the_new_file_before_the_record_says_so() {
    with_mounts(|| {
        let live = Live::with_policy("new\n");
        let after = &live.plan(&[])["after"];
        assert_eq!(after["queue"][0]["reload"]["serviceName"], "crio.service");
        assert_eq!(
            after["queue"][0]["why"],
            "policy for /etc/containers/policy.json"
        );
        assert_eq!(
            (&after["drain"], &after["reboot"]),
            (&Value::Null, &json!(false))
        );
        let text = live.run(&["plan", "--takeover", "/config"]).ok().out();
        let said = "After the files (the operator's default policies; those of the cluster are not known here): \
                    - reload crio.service (policy for /etc/containers/policy.json)";
        assert!(flat(&text).contains(said), "{text}");
        assert_eq!(live.calls(), [""; 0], "a plan tells nobody");
        let said = live.apply(&[]).ok().out();
        assert!(said.contains("reload crio.service: done"), "{said}");
        assert!(!said.contains("Next:"), "{said}");
        assert_eq!(live.calls(), [RELOADED]);
        assert_eq!(live.recorded(), "rendered-worker-new");
        let status = live.run(&["status", "--output", "json"]).ok().json();
        let phases = status["last_run"]["phases"].as_array().unwrap();
        let told = phases.iter().find(|phase| phase["name"] == "actions");
        assert_eq!(told.unwrap()["result"], "reload crio.service: done");
        // Done is done.
        live.apply(&[]).ok();
        assert_eq!(live.calls(), [""; 0]);
    });
}

#[test]
fn a_service_that_does_not_run_is_left_alone_and_that_is_said() {
    with_mounts(|| {
        let live = Live::with_policy("new\n");
        live.root.write("runs", "");
        let run = live.apply(&["--output", "json"]).ok().json();
        let done = json!([[{"job": "reload", "unit": "crio.service"}, "not-running"]]);
        assert_eq!(run["told"]["done"], done);
        assert_eq!(live.calls(), [""; 0]);
    });
}

#[test]
fn a_service_that_does_not_take_the_new_file_gets_the_old_one_back() {
    with_mounts(|| {
        let live = Live::with_policy("new\n");
        live.root.write("fails", "reload -- crio.service\n");
        let before = live.etc();
        let run = live.apply(&[]).exits(4);
        let said = flat(&run.err());
        for words in [
            "reload crio.service: running systemctl: Job for it failed.",
            "systemctl status crio.service",
            "everything was restored",
        ] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        assert_eq!(live.calls(), [RELOADED, RELOADED_BACK]);
        assert_eq!(live.root.read(POLICY), "old\n");
        assert_eq!(live.recorded(), "rendered-worker-old");
        assert_eq!(live.etc(), before);
        assert_eq!(live.run(&["recover"]).ok().out(), "Nothing to recover.\n");
    });
}

/// Two files with a policy each: the first service takes the new file, the second does not.
#[test]
fn who_has_read_the_new_files_reads_the_old_ones_again() {
    with_mounts(|| {
        let live = Live::new(&old());
        let files = json!([
            file(&format!("/{POLICY}"), 0o644, "new\n"),
            file("/etc/kubernetes/credential-providers/a.yaml", 0o644, "a\n"),
        ]);
        live.brings(&config("rendered-worker-new", files));
        live.root.write("fails", "restart -- kubelet.service\n");
        let said = live.apply(&[]).exits(4).err();
        assert!(
            flat(&said).contains("with the old files: restart kubelet.service"),
            "{said}"
        );
        let kubelet = "systemctl restart -- kubelet.service";
        let wanted = [
            RELOADED.to_owned(),
            format!("{kubelet} [new, record old]"),
            RELOADED_BACK.to_owned(),
            format!("{kubelet} [old, record old]"),
        ];
        assert_eq!(live.calls(), wanted);
        assert!(
            !live
                .root
                .exists("etc/kubernetes/credential-providers/a.yaml")
        );
    });
}

#[test]
fn pacemakers_kubelet_is_neither_restarted_nor_stopped() {
    with_mounts(|| {
        let live = Live::new(&old());
        live.root
            .write("etc/corosync/corosync.conf", "totem {\n}\n");
        let path = "/etc/kubernetes/credential-providers/a.yaml";
        let files = json!([
            file(&format!("/{POLICY}"), 0o644, "new\n"),
            file(path, 0o644, "a\n"),
        ]);
        live.brings(&config("rendered-worker-new", files));
        let plan = flat(&live.run(&["plan", "--takeover", "/config"]).ok().out());
        assert!(plan.contains("kubelet.service is not restarted"), "{plan}");
        assert!(plan.contains("pcs node standby"), "{plan}");
        let said = live.apply(&[]).ok().out();
        assert!(!said.contains("systemctl restart kubelet"), "{said}");
        assert_eq!(live.calls(), [RELOADED], "CRI-O alone");
        assert!(live.root.exists(path.trim_start_matches('/')));
    });
}

#[test]
fn the_bundles_are_made_without_their_unit_where_it_fails() {
    with_mounts(|| {
        let live = Live::new(&old());
        let bundle = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
        let files = json!([
            file(&format!("/{POLICY}"), 0o644, "old\n"),
            file(bundle, 0o600, "a\n"),
        ]);
        live.brings(&config("rendered-worker-new", files));
        live.root.write("fails", "coreos-update-ca-trust.service\n");
        let said = live.apply(&[]).ok().out();
        assert!(
            flat(&said).contains("failed; update-ca-trust ran instead"),
            "{said}"
        );
        let wanted = [
            "systemctl restart -- coreos-update-ca-trust.service [old, record old]",
            "update-ca-trust [old, record old]",
            "systemctl restart -- crio.service [old, record old]",
        ];
        assert_eq!(live.calls(), wanted);
    });
}

/// Killed while the service reads: the files are in place, the record is old.
fn killed() -> Live {
    let live = Live::with_policy("new\n");
    live.root.write("kills", "reload -- crio.service\n");
    live.apply(&[]);
    live.root.remove("kills");
    assert_eq!(live.calls(), [RELOADED]);
    assert_eq!(
        (live.root.read(POLICY).as_str(), live.recorded().as_str()),
        ("new\n", "rendered-worker-old")
    );
    live
}

#[test]
fn after_a_kill_the_same_boot_is_reported_again() {
    with_mounts(|| {
        let live = killed();
        live.run(&["recover"]).ok();
        assert_eq!(live.calls(), [RELOADED]);
        assert_eq!(live.recorded(), "rendered-worker-new");
    });
}

#[test]
fn after_a_reboot_no_service_is_notified() {
    with_mounts(|| {
        let live = killed();
        live.reboots();
        live.run(&["recover"]).ok();
        assert_eq!(live.calls(), [""; 0]);
        assert_eq!(live.recorded(), "rendered-worker-new");
    });
}

#[test]
fn an_interrupted_run_that_is_reverted_lets_the_services_read_the_old_files() {
    with_mounts(|| {
        let live = killed();
        live.run(&["recover", "--back"]).ok();
        assert_eq!(live.calls(), [RELOADED_BACK]);
        assert_eq!(live.root.read(POLICY), "old\n");
        let live = killed();
        live.reboots();
        live.run(&["recover", "--back"]).ok();
        assert_eq!(live.calls(), [""; 0]);
        assert_eq!(live.root.read(POLICY), "old\n");
    });
}

#[test]
fn a_recovery_whose_service_fails_goes_back() {
    with_mounts(|| {
        let live = killed();
        live.root.write("fails", "reload -- crio.service\n");
        let said = live.run(&["recover"]).exits(4).err();
        assert!(
            flat(&said).contains("the interrupted run was undone"),
            "{said}"
        );
        assert_eq!(live.calls(), [RELOADED, RELOADED_BACK]);
        assert_eq!(live.root.read(POLICY), "old\n");
        assert_eq!(live.run(&["recover"]).ok().out(), "Nothing to recover.\n");
    });
}

#[test]
fn a_rollback_tells_whoever_was_told() {
    with_mounts(|| {
        let live = Live::with_policy("new\n");
        live.apply(&[]).ok();
        live.calls();
        let run = live.run(&["rollback", "--yes", "--takeover"]).ok();
        assert!(
            flat(&run.out()).contains("after the files: reload crio.service"),
            "{}",
            run.out()
        );
        assert_eq!(
            live.calls(),
            ["systemctl reload -- crio.service [old, record new]"]
        );
        assert_eq!(live.recorded(), "rendered-worker-old");
        live.apply(&[]).ok();
        live.calls();
        live.run(&["rollback", "--yes", "--takeover", "--no-actions"])
            .ok();
        assert_eq!(live.calls(), [""; 0]);
    });
}

#[test]
fn a_change_without_a_notified_service_is_left_as_the_next_step() {
    with_mounts(|| {
        let live = Live::with_policy("new\n");
        let said = live.apply(&["--no-actions"]).ok().out();
        assert!(
            said.contains("Next: systemctl reload crio.service\n"),
            "{said}"
        );
        assert_eq!(live.calls(), [""; 0]);
        assert_eq!(live.recorded(), "rendered-worker-new");
    });
}

#[test]
fn a_file_without_policy_needs_a_reboot_which_is_done_only_when_asked() {
    with_mounts(|| {
        let live = Live::new(&old());
        let files = json!([
            file(&format!("/{POLICY}"), 0o644, "new\n"),
            file("/etc/x", 0o644, "x\n"),
        ]);
        live.brings(&config("rendered-worker-new", files));
        let after = &live.plan(&[])["after"];
        assert_eq!(
            after["queue"],
            json!([{"type": "Reboot", "why": "/etc/x has no policy"}])
        );
        assert_eq!(after["drain"], "it would reboot");
        let said = live.apply(&[]).ok().out();
        assert!(
            said.ends_with("/etc/x has no policy.\nNext: systemctl reboot\n"),
            "{said}"
        );
        assert_eq!(live.calls(), [""; 0]);
        live.brings(&old());
        live.apply(&["--reboot"]).ok();
        assert_eq!(
            live.calls(),
            ["systemctl --no-block reboot [old, record old]"]
        );
    });
}

#[test]
fn a_clusters_policies_win_over_the_defaults_and_a_given_file_over_both() {
    with_mounts(|| {
        let live = Live::with_policy("new\n");
        let policies = |service: &str| {
            json!({"kind": "MachineConfiguration", "metadata": {"name": "cluster", "generation": 4},
                "status": {"observedGeneration": 4, "nodeDisruptionPolicyStatus": {"clusterPolicies": {
                    "files": [{"path": "/etc/containers", "actions": [
                        {"type": "DaemonReload"},
                        {"type": "Restart", "restart": {"serviceName": service}}]}]}}}})
        };
        live.root
            .write("kept.json", &policies("kept.service").to_string());
        live.root
            .write("given.json", &policies("given.service").to_string());
        let pool = json!([{"kind": "MachineConfigPool", "name": "worker", "controller": true}]);
        let mut config = old();
        config["metadata"]["ownerReferences"] = pool;
        live.root.write("cacheable", &config.to_string());
        live.run(&["fetch", "--policy", "/kept.json", "/cacheable"])
            .ok();
        let after = live.plan(&[])["after"].clone();
        assert_eq!(after["queue"][1]["restart"]["serviceName"], "kept.service");
        let whose = after["policies"].as_str().unwrap();
        assert!(
            whose.starts_with("the cluster's policies, as of 2"),
            "{whose}"
        );
        let after = live.plan(&["--policy", "/given.json"])["after"].clone();
        assert_eq!(
            after["policies"],
            "the cluster's policies, from /given.json"
        );
        live.apply(&["--policy", "/given.json"]).ok();
        let wanted = [
            "systemctl daemon-reload [new, record old]",
            "systemctl restart -- given.service [new, record old]",
        ];
        assert_eq!(live.calls(), wanted);
        // One that is not a policy is told before anything else.
        let said = live
            .run(&["plan", "--policy", "/config", "/config"])
            .exits(1)
            .err();
        assert!(
            said.contains("oc get machineconfiguration cluster"),
            "{said}"
        );
    });
}

/// A registry is removed from registries.conf: pods may need an image from it.
fn unsafe_registries() -> Live {
    let path = "/etc/containers/registries.conf";
    let registry =
        |name: &str| format!("[[registry]]\nlocation = \"{name}\"\nmirror-by-digest-only = true\n");
    let live = Live::new(&config(
        "rendered-worker-old",
        json!([file(
            path,
            0o644,
            &(registry("a.example") + &registry("b.example"))
        )]),
    ));
    live.brings(&config(
        "rendered-worker-new",
        json!([file(path, 0o644, &registry("a.example"))]),
    ));
    live
}

#[test]
fn a_drain_is_only_told() {
    with_mounts(|| {
        let live = unsafe_registries();
        let after = &live.plan(&[])["after"];
        assert_eq!(after["queue"][0]["type"], "Special");
        assert_eq!(
            after["drain"],
            "in registries.conf registry b.example is removed"
        );
        live.apply(&[]).ok();
        assert_eq!(
            live.calls(),
            ["systemctl reload -- crio.service [, record old]"]
        );
    });
}

#[test]
fn workloads_stop_before_the_files_change_where_that_is_asked_for() {
    with_mounts(|| {
        let live = unsafe_registries();
        live.root.remove("usr/bin/crictl");
        let said = live.apply(&["--stop-workloads"]).exits(1).err();
        assert!(said.contains("crictl is not installed"), "{said}");
        assert_eq!(live.calls(), [""; 0]);
        assert_eq!(live.recorded(), "rendered-worker-old");
        install(stand_in(), &live.root.path("usr/bin/crictl"));
        live.apply(&["--stop-workloads"]).ok();
        let calls = live.calls();
        let words: Vec<&str> = calls
            .iter()
            .map(|call| call.split(" [").next().unwrap())
            .collect();
        let pods = "crictl pods -q --state ready";
        let wanted = [
            pods,
            "systemctl stop -- kubelet.service",
            pods,
            "crictl stopp aa11",
            "crictl stopp bb22",
            "systemctl reload -- crio.service",
            "systemctl start -- kubelet.service",
        ];
        assert_eq!(words, wanted);
    });
}

#[test]
fn workloads_run_again_where_the_run_fails() {
    with_mounts(|| {
        let live = unsafe_registries();
        live.root.write("fails", "reload -- crio.service\n");
        live.apply(&["--stop-workloads"]).exits(4);
        let last = live.calls().pop().unwrap();
        assert!(
            last.starts_with("systemctl start -- kubelet.service"),
            "{last}"
        );
        // Where the daemon drains nothing, nothing stops.
        let live = Live::with_policy("new\n");
        let run = live.apply(&["--stop-workloads"]).ok();
        assert!(run.err().contains("would not drain"), "{}", run.err());
        assert_eq!(live.calls(), [RELOADED]);
    });
}

const STOPPED: &str = "var/lib/mco-rescue/stopped.json";

#[test]
fn a_run_that_is_killed_before_its_journal_leaves_no_kubelet_stopped() {
    with_mounts(|| {
        for (kills, next) in [
            ("stop -- kubelet.service\n", &["recover"][..]),
            ("stopp aa11\n", &["recover"]),
            ("stopp bb22\n", &["recover", "--back"]),
            ("stopp aa11\n", &["complete"]),
        ] {
            let live = unsafe_registries();
            live.root.write("kills", kills);
            live.apply(&["--stop-workloads"]);
            live.root.remove("kills");
            let calls = live.calls();
            assert!(
                !calls.iter().any(|call| call.starts_with(KUBELET_STARTS)),
                "{calls:?}"
            );
            assert!(live.root.exists(STOPPED), "{kills}");
            // Nothing is awaited, so `complete` has nothing to do; the next run of any kind has.
            let next = if next == ["complete"] {
                live.apply(&[]).ok()
            } else {
                live.run(next).ok()
            };
            let calls = live.calls();
            assert!(
                calls.iter().any(|call| call.starts_with(KUBELET_STARTS)),
                "{kills}: {calls:?}"
            );
            let said = next.err();
            assert!(
                said.contains("the kubelet, which an interrupted run had stopped"),
                "{said}"
            );
            assert!(!live.root.exists(STOPPED), "{kills}");
        }
        // One that ends keeps nothing, and what another boot had stopped runs since.
        let live = unsafe_registries();
        live.apply(&["--stop-workloads"]).ok();
        assert!(!live.root.exists(STOPPED));
        live.root
            .write(STOPPED, "{\"version\": 1, \"boot\": \"another\"}");
        live.calls();
        live.run(&["recover"]).ok();
        assert!(!live.root.exists(STOPPED));
        assert_eq!(live.calls(), [""; 0]);
    });
}

const KUBELET_STARTS: &str = "systemctl start -- kubelet.service";

#[test]
fn whoever_ends_the_run_ends_with_a_kubelet_that_runs() {
    with_mounts(|| {
        // Asked to end between two pods.
        let live = unsafe_registries();
        live.root.write("terms", "stopp aa11\n");
        let said = live.apply(&["--stop-workloads"]).err();
        assert!(
            said.contains("ended by SIGTERM; no file was changed"),
            "{said}"
        );
        let calls = live.calls();
        assert!(
            calls.last().unwrap().starts_with(KUBELET_STARTS),
            "{calls:?}"
        );
        assert!(!calls.iter().any(|call| call.contains("bb22")), "{calls:?}");
        assert_eq!(live.recorded(), "rendered-worker-old");
        // Killed once the files are there, and recovered one way or the other.
        for back in [&["recover"][..], &["recover", "--back"]] {
            let live = unsafe_registries();
            live.root.write("kills", "reload -- crio.service\n");
            live.apply(&["--stop-workloads"]);
            live.root.remove("kills");
            let calls = live.calls();
            assert!(
                !calls.iter().any(|call| call.starts_with(KUBELET_STARTS)),
                "{calls:?}"
            );
            live.run(back).ok();
            let calls = live.calls();
            assert!(
                calls.last().unwrap().starts_with(KUBELET_STARTS),
                "{back:?}: {calls:?}"
            );
        }
    });
}

#[test]
fn the_force_file_asks_for_a_reboot_whatever_changes() {
    with_mounts(|| {
        let live = Live::with_policy("new\n");
        live.root.write("run/machine-config-daemon-force", "");
        let queue = live.plan(&[])["after"]["queue"].clone();
        let why = "/run/machine-config-daemon-force exists";
        assert_eq!(queue, json!([{"type": "Reboot", "why": why}]));
    });
}

#[test]
fn what_was_changed_by_hand_is_reported_like_a_change_and_never_needs_a_reboot() {
    with_mounts(|| {
        let files = json!([
            file(&format!("/{POLICY}"), 0o644, "old\n"),
            file("/etc/chrony.conf", 0o644, "old\n"),
        ]);
        let live = Live::new(&config("rendered-worker-old", files.clone()));
        live.brings(&config("rendered-worker-old", files));
        live.root.write(POLICY, "edited\n");
        live.root.write("etc/chrony.conf", "edited\n");
        let said = live.apply(&[]).ok().out();
        assert_eq!(live.calls(), [RELOADED_BACK]);
        let next = "Restart what reads /etc/chrony.conf, or reboot";
        assert!(flat(&said).contains(next), "{said}");
    });
}

#[test]
fn another_root_has_no_services_to_notify() {
    let root = TestRoot::new();
    root.apply(&old());
    let config = root.config(&new("new\n"));
    let plan = root
        .run(&["plan", "--output", "json", config.path()])
        .ok()
        .json();
    assert_eq!(plan["after"], Value::Null);
    let run = root.run(&["apply", "--yes", config.path()]).ok();
    assert!(!run.out().contains("crio"), "{}", run.out());
    let run = root.run(&["apply", "--yes", "--stop-workloads", config.path()]);
    assert!(
        run.exits(1)
            .err()
            .contains("works only on the running node")
    );
    // A journal without a boot reads as before.
    let history = root.run(&["status", "--output", "json"]).ok().json();
    let id = history["history"][0]["id"].as_str().unwrap().to_owned();
    let journal = root.read(&format!("var/lib/mco-rescue/history/{id}/journal.json"));
    assert!(
        !journal.contains("\"jobs\"") && !journal.contains("\"boot\""),
        "{journal}"
    );
}
