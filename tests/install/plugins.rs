//! The plugin of kubectl and oc, found by the real kubectl; the cluster is a stand-in `oc`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Lacks, PROGRAM, Run, TestRoot, file, machine_config, skip};

const NAME: &str = "rendered-worker-0123456789abcdef0123456789abcdex";

/// A cluster of two workers that are roots here, and a third node that does not answer.
struct Cluster {
    dir: TempDir,
    roots: Vec<TestRoot>,
}

/// `oc get nodes`, and `oc debug node/NAME -- chroot /host mco-rescue ...` in the root of this name. Like `oc debug`, it makes
/// 1 of every exit code but 0.
const OC: &str = r#"#!/bin/bash
printf '%s\n' "$*" >>"$0.calls"
dir=$(dirname "$0")
if [[ $1 == get ]]; then
    case "$*" in *worker*) printf 'first\nsecond\n' ;; *empty*) ;; *) printf 'first\nsecond\nthird\n' ;; esac
    exit
fi
[[ "$1 $2 $4 $5 $6" == 'debug --quiet -- chroot /host' ]] || { echo "unexpected: $*" >&2; exit 64; }
node=${3#node/}
program=$7
shift 7
echo 'Starting pod/x-debug ...' >&2
[[ -L $dir/roots/$node ]] || { echo "error: node $node does not answer" >&2; exit 1; }
[[ $program == mco-rescue ]] || { echo "chroot: failed to run command $program" >&2; exit 1; }
"$PROGRAM" --root "$dir/roots/$node/" "$@" || exit 1
"#;

impl Cluster {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Self {
            roots: vec![TestRoot::new(), TestRoot::new()],
            dir,
        };
        cluster.script("oc", OC);
        fs::create_dir(cluster.path("roots")).unwrap();
        let files = json!([file("/etc/pool.conf", 0o644, "of the pool\n")]);
        let config = machine_config(NAME, json!({"storage": {"files": files}}));
        for (name, root) in ["first", "second"].iter().zip(&cluster.roots) {
            root.apply(&config);
            let link = cluster.path("roots").join(name);
            std::os::unix::fs::symlink(root.dir(), link).unwrap();
        }
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a program. Another process writes it: a child that another test forks at that moment would keep the file open for
    /// writing, and nothing could start it.
    fn script(&self, name: &str, text: &str) {
        let mut writer = Command::new("sh");
        writer.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]);
        let writer = writer.arg(self.path(name)).stdin(Stdio::piped()).spawn();
        let mut writer = writer.unwrap();
        let mut input = writer.stdin.take().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        drop(input);
        assert!(writer.wait().unwrap().success());
    }

    fn command(&self, program: &str, args: &[&str]) -> Run {
        let plugins = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/kubectl");
        let path = format!("{}:{plugins}:/usr/bin:/bin", self.dir.path().display());
        let mut command = Command::new(program);
        command.args(args).env("PATH", path).env("PROGRAM", PROGRAM);
        command
            .env("HOME", self.dir.path())
            .env_remove("KUBECONFIG");
        Run::of(command.stdin(Stdio::null()).output().unwrap())
    }

    fn oc(&self, args: &[&str]) -> Run {
        self.command("packaging/kubectl/oc-mco_rescue", args)
    }
}

#[test]
fn kubectl_finds_the_plugin_and_shows_its_help() {
    let cluster = Cluster::new();
    if Command::new("kubectl")
        .arg("version")
        .arg("--client")
        .output()
        .is_err()
    {
        skip(Lacks::Setup, "kubectl is not installed");
        return;
    }
    let list = cluster.command("kubectl", &["plugin", "list"]).ok().out();
    assert!(
        list.contains("packaging/kubectl/kubectl-mco_rescue"),
        "{list}"
    );
    let help = cluster
        .command("kubectl", &["mco-rescue", "--help"])
        .ok()
        .out();
    assert!(
        help.contains("kubectl mco-rescue [OPTIONS] NODE COMMAND..."),
        "{help}"
    );
    let status = cluster.command(
        "kubectl",
        &["mco-rescue", "first", "status", "--output", "json"],
    );
    assert_eq!(status.ok().json()["recorded"], NAME);
}

#[test]
fn a_command_runs_on_the_node_that_was_named() {
    let cluster = Cluster::new();
    cluster.roots[1].write("etc/pool.conf", "by hand\n");
    cluster.oc(&["first", "verify"]).ok();
    let differs = cluster.oc(&["second", "verify"]).exits(1).out();
    assert!(differs.contains("/etc/pool.conf"), "{differs}");
    let absent = cluster.oc(&["third", "status"]).exits(1).err();
    assert!(absent.contains("node third does not answer"), "{absent}");
}

#[test]
fn a_wrong_command_line_is_refused_before_the_cluster_is_asked() {
    let cluster = Cluster::new();
    for (args, words) in [
        (&["--no-such"][..], "there is no option --no-such"),
        (&["first"], "name a command for the node first"),
        (&["--user"], "--user wants a value"),
        (
            &["Not_A_Node", "status"],
            "Not_A_Node is not a name of a node",
        ),
        (&["gather"], "gather wants one directory"),
        (
            &["gather", "--pool", "a b", "x"],
            "a b is not a name of a pool",
        ),
        (&["--ssh", "gather", "x"], "name the nodes"),
    ] {
        let refused = cluster.oc(args);
        let said = refused.err();
        assert!(said.contains(words), "{args:?}: {said}");
        assert!(!cluster.path("oc.calls").exists(), "{args:?}");
    }
    cluster.oc(&[]).exits(2);
    fs::remove_file(cluster.path("oc")).unwrap();
    let missing = cluster.oc(&["first", "status"]).exits(127).err();
    assert!(missing.contains("oc is missing here"), "{missing}");
}

#[test]
fn a_pool_is_gathered_as_must_gather_lays_files_out() {
    let cluster = Cluster::new();
    // A finding is not a failure of gathering.
    cluster.roots[1].write("etc/machine-config-daemon/currentconfig", "{");
    let reports = cluster.path("reports.called");
    let report = format!(
        "#!/bin/sh\necho \"$*\" >'{}'\nexec {PROGRAM} \"$@\"\n",
        reports.display()
    );
    cluster.script("mco-rescue", &report);
    let out = cluster.path("out");
    let out = out.to_str().unwrap();
    let run = cluster.oc(&["gather", "--pool", "worker", out]).ok();
    assert!(
        run.out().contains("first: gathered\nsecond: gathered\n"),
        "{}",
        run.out()
    );
    let at = cluster.path("out/cluster-scoped-resources/mco-rescue");
    for node in ["first", "second"] {
        for document in ["status", "doctor"] {
            let text = fs::read_to_string(at.join(node).join(format!("{document}.json"))).unwrap();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["schema"], format!("mco-rescue/{document}/v1"));
        }
    }
    let mode = fs::metadata(cluster.path("out"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(
        fs::read_to_string(reports).unwrap(),
        format!("report {out}\n")
    );
    let page = fs::read_to_string(cluster.path("out/fleet.html")).unwrap();
    assert!(page.contains("first") && page.contains("second"));
}

#[test]
fn a_node_that_gives_nothing_is_named_and_stops_nothing() {
    let cluster = Cluster::new();
    let out = cluster.path("out");
    let run = cluster.oc(&["gather", out.to_str().unwrap()]).exits(1);
    assert!(
        run.err().contains("1 of 3 nodes are not whole: third"),
        "{}",
        run.err()
    );
    assert!(
        run.out().contains("Where mco-rescue is installed"),
        "{}",
        run.out()
    );
    let at = cluster.path("out/cluster-scoped-resources/mco-rescue");
    assert!(at.join("second/doctor.json").exists() && !at.join("third/status.json").exists());
    let log = fs::read_to_string(at.join("third/status.json.log")).unwrap();
    assert!(log.contains("does not answer"), "{log}");
    let none = cluster.oc(&["gather", "--pool", "empty", out.to_str().unwrap()]);
    let none = none.exits(1).err();
    assert!(none.contains("no node is in the pool empty"), "{none}");
}

#[test]
fn words_for_a_node_go_through_ssh_unchanged() {
    let cluster = Cluster::new();
    // As sshd does: one line for a shell.
    let ssh = "#!/bin/bash\n[[ \"$1 $2 $3\" == '-o BatchMode=yes --' ]] || exit 64\necho \"to $4\"\nexec sh -c \"$5\"\n";
    cluster.script("ssh", ssh);
    cluster.script("sudo", "#!/bin/sh\nshift\nprintf '<%s>' \"$@\"\nexit 6\n");
    let words = [
        "--ssh", "--user", "admin", "first", "show", "a b", "$(id)", "it's", ";x",
    ];
    let run = cluster.oc(&words).exits(6);
    assert_eq!(run.out(), "to admin@first\n<show><a b><$(id)><it's><;x>");
}
