//! `fetch` and `cache`: the config is on the node before the network is gone, from whom it should be, and whole.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use crate::support::http::{Authority, Response, Routes, Server, VALID};
use crate::support::mcs::{ca, fetch, fetch_within, rendered, server};
use crate::support::{
    self, Lacks, PROGRAM, Run, TestRoot, by_operator, flat_run, is_root, say, skip, trace,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const CACHE: &str = "var/lib/mco-rescue/cache";

/// Imports a config by file.
fn import(root: &TestRoot, config: &Value) -> Value {
    let config = root.config(config);
    kept(&root.run(&["fetch", config.path(), "--output", "json"]).ok())
}

/// The only config that was kept.
fn kept(run: &Run) -> Value {
    let outcome = run.json();
    assert_eq!(outcome["schema"], "mco-rescue/fetch/v1");
    assert_eq!(
        (
            outcome["kept"].as_array().unwrap().len(),
            &outcome["passed_over"]
        ),
        (1, &json!([]))
    );
    outcome["kept"][0].clone()
}

fn cache_files(root: &TestRoot) -> Vec<String> {
    let tree = root.everything();
    let below = tree
        .keys()
        .filter_map(|path| path.strip_prefix(&format!("{CACHE}/")));
    below.map(str::to_owned).collect()
}

#[test]
fn a_config_is_fetched_kept_and_applied_when_the_server_is_gone() {
    let authority = Authority::new("mcs");
    let config = rendered("rendered-worker-a", "from the server\n");
    let server = server(&authority, &config);
    let ca = ca(&authority);
    let root = TestRoot::new();
    let args = [
        "--pool",
        "worker",
        "--server",
        &server.url(""),
        "--ca",
        ca.path().to_str().unwrap(),
    ];
    let fetched = kept(&fetch(&root, &[&args[..], &["--output", "json"]].concat()).ok());
    assert_eq!(
        (&fetched["name"], &fetched["new"], &fetched["pool"]),
        (&json!("rendered-worker-a"), &json!(true), &json!("worker"))
    );
    // Where it was and whom it believed is remembered.
    let quiet = fetch(&root, &["--quiet"]).ok();
    assert_eq!((quiet.out(), quiet.err()), (String::new(), String::new()));
    let again = kept(&fetch(&root, &["--output", "json"]).ok());
    assert_eq!(again["new"], false);
    assert_eq!((cache_files(&root).len(), server.requests().len()), (1, 3));
    drop(server);
    fetch_within(1, &root, &[]).exits(1);
    let mut apply = Command::new(PROGRAM);
    if is_root() {
        // Without any network at all.
        apply = Command::new("unshare");
        apply.args(["--net", PROGRAM]);
    } else {
        skip(Lacks::Root, "a namespace without network needs root");
    }
    let run = apply
        .arg("--root")
        .arg(root.dir())
        .args(["apply", "--yes", "cached:rendered-worker-a"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(root.read("etc/pool.conf"), "from the server\n");
    let record: Value =
        serde_json::from_str(&root.read("etc/machine-config-daemon/currentconfig")).unwrap();
    assert_eq!(record, config);
}

#[test]
fn the_server_is_found_by_the_address_of_the_api_and_the_pool_by_the_record() {
    let authority = Authority::new("mcs");
    let server = server(&authority, &rendered("rendered-worker-b", "new\n"));
    let ca = ca(&authority);
    let root = TestRoot::new();
    root.apply(&rendered("rendered-worker-a", "old\n"));
    root.write(
        "etc/kubernetes/apiserver-url.env",
        "KUBERNETES_SERVICE_HOST='api-int.example'\n",
    );
    // Port 22623 is not ours to listen on, so that far it is only asked for.
    let said =
        flat_run(&fetch_within(1, &root, &["--resolve", "api-int.example:127.0.0.1"]).exits(1));
    assert!(
        said.contains("https://api-int.example:22623/config/worker"),
        "{said}"
    );
    let port = server.address().port();
    let run = fetch(
        &root,
        &[
            "--server",
            &format!("api-int.example:{port}"),
            "--resolve",
            "api-int.example:127.0.0.1",
            "--ca",
            ca.path().to_str().unwrap(),
        ],
    );
    assert!(flat_run(&run.ok()).contains("Kept rendered-worker-b"));
}

#[test]
fn another_authority_than_the_remembered_one_is_explained_and_not_believed() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let config = rendered("rendered-worker-a", "x\n");
    let first = server(&old, &config);
    let root = TestRoot::new();
    let file = ca(&old);
    let args = [
        "--pool",
        "worker",
        "--server",
        &first.url(""),
        "--ca",
        file.path().to_str().unwrap(),
    ];
    fetch(&root, &args).ok();
    let second = server(&new, &config);
    let said = flat_run(&fetch(&root, &["--server", &second.url("")]).exits(1));
    assert!(
        said.contains("the server has another one now, or another machine answers"),
        "{said}"
    );
    let file = ca(&new);
    fetch(
        &root,
        &[
            "--server",
            &second.url(""),
            "--ca",
            file.path().to_str().unwrap(),
        ],
    )
    .ok();
    fetch(&root, &[]).ok();
}

#[test]
fn without_tls_a_digest_has_to_vouch() {
    let config = rendered("rendered-worker-a", "x\n");
    let body = config.to_string();
    let digest: String = Sha256::digest(&body)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let server = Server::plain(Routes::new().at("/mc.json", move |_| Response::ok(&body)));
    let url = server.url("/mc.json");
    let root = TestRoot::new();
    let before = root.everything();
    let said = flat_run(&fetch(&root, &[&url]).exits(1));
    assert!(said.contains("the answer is not authenticated"), "{said}");
    let said = flat_run(&fetch(&root, &[&url, "--sha256", &"0".repeat(64)]).exits(1));
    assert!(said.contains("different digest"), "{said}");
    assert_eq!(root.everything(), before);
    assert_eq!(server.requests().len(), 1);
    fetch(&root, &[&url, "--sha256", &digest]).ok();
    assert_eq!(cache_files(&root).len(), 1);
}

#[test]
fn what_is_not_a_whole_config_of_the_pool_is_refused() {
    let root = TestRoot::new();
    let before = root.everything();
    let mut emptied = rendered("rendered-worker-a", "x\n");
    emptied["spec"]["config"] = json!({"ignition": {"version": "3.5.0"}});
    for (config, words) in [
        (
            json!({"ignition": {"version": "3.5.0"}}),
            "is not a complete MachineConfig",
        ),
        (emptied, "is not a complete MachineConfig"),
        (
            rendered("rendered-master-a", "x\n"),
            "of pool master, not of pool worker",
        ),
    ] {
        let config = root.config(&config);
        let said = flat_run(&fetch(&root, &[config.path(), "--pool", "worker"]).exits(1));
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(root.everything(), before);
}

#[test]
fn a_config_travels_from_one_node_to_another() {
    let (from, to) = (TestRoot::new(), TestRoot::new());
    let config = rendered("rendered-worker-a", "x\n");
    import(&from, &config);
    let exported = from
        .run(&["cache", "export", "rendered-worker-a"])
        .ok()
        .out();
    assert_eq!(serde_json::from_str::<Value>(&exported).unwrap(), config);
    let mut child = Command::new(PROGRAM)
        .arg("--root")
        .arg(to.dir())
        .args(["fetch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), exported.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let listed = to.run(&["cache", "list", "--output", "json"]).ok().json();
    assert_eq!(listed["entries"][0]["name"], "rendered-worker-a");
    assert_eq!(listed["entries"][0]["origin"], "standard input");
}

#[test]
fn five_configs_of_a_pool_are_kept_and_the_recorded_one_besides() {
    let root = TestRoot::new();
    let first = rendered("rendered-worker-0", "0\n");
    import(&root, &first);
    root.apply(&first);
    let mut forgotten = Vec::new();
    for number in 1..=7 {
        // The clock may not move between two of them; then the newest still stays.
        let one = import(
            &root,
            &rendered(&format!("rendered-worker-{number}"), &format!("{number}\n")),
        );
        forgotten.extend(one["forgotten"].as_array().unwrap().clone());
    }
    import(&root, &rendered("rendered-master-0", "m\n"));
    let listed = root.run(&["cache", "list", "--output", "json"]).ok().json();
    let names: Vec<&str> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"rendered-worker-0") && names.contains(&"rendered-worker-7"),
        "{names:?}"
    );
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with("rendered-worker-"))
            .count(),
        6,
        "{names:?}"
    );
    assert_eq!(forgotten.len(), 2);
    let recorded = &listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .find(|e| e["name"] == "rendered-worker-0")
        .unwrap()["recorded"];
    assert_eq!(recorded, &json!(true));
}

#[test]
fn a_damaged_entry_is_said_and_never_used() {
    let root = TestRoot::new();
    import(&root, &rendered("rendered-worker-a", "secret\n"));
    let file = cache_files(&root).remove(0);
    let path = format!("{CACHE}/{file}");
    let text = root.read(&path);
    for damaged in [
        text.replace("rendered-worker-a", "rendered-worker-b"),
        text[..text.len() / 2].to_owned(),
        String::new(),
    ] {
        root.write(&path, &damaged);
        let said = flat_run(&root.run(&["plan", "cached:rendered-worker-a"]).exits(1));
        assert!(said.contains("the cache has no config"), "{said}");
        let listed = flat_run(&root.run(&["cache", "list"]).ok());
        assert!(listed.contains("damaged, never used"), "{listed}");
    }
    root.run(&["cache", "forget", &file]).ok();
    assert_eq!(cache_files(&root), [""; 0]);
}

#[test]
fn a_name_may_be_cut_short_as_long_as_it_is_clear() {
    let root = TestRoot::new();
    import(&root, &rendered("rendered-worker-ab", "1\n"));
    import(&root, &rendered("rendered-worker-ac", "2\n"));
    assert_eq!(
        root.run(&["show", "cached:rendered-worker-ab", "/etc/pool.conf"])
            .ok()
            .out(),
        "1\n"
    );
    let said = flat_run(&root.run(&["plan", "cached:rendered-worker-a"]).exits(1));
    assert!(
        said.contains("is the beginning of several configs in the cache"),
        "{said}"
    );
    let said = flat_run(&root.run(&["plan", "cached:x"]).exits(1));
    assert!(
        said.contains("It has: ") && said.contains("rendered-worker-ab"),
        "{said}"
    );
    root.run(&["cache", "forget", "rendered-worker-ac"]).ok();
    root.run(&["plan", "cached:rendered"]).ok();
}

#[test]
fn nothing_from_the_cache_is_taken_unasked_but_it_is_said() {
    let root = TestRoot::new();
    root.apply(&rendered("rendered-worker-a", "a\n"));
    import(&root, &rendered("rendered-worker-b", "b\n"));
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(
        (&plan["config"], &plan["steps"]),
        (&json!("rendered-worker-a"), &json!([]))
    );
    assert_eq!(plan["others"][0]["name"], "rendered-worker-b");
    let said = flat_run(&root.run(&["plan"]).ok());
    assert!(
        said.contains("use it with cached:rendered-worker-b"),
        "{said}"
    );
}

#[test]
fn after_a_first_boot_the_full_config_comes_from_the_cache() {
    let root = TestRoot::new();
    let full = rendered("rendered-worker-a", "a\n");
    let mut emptied = full.clone();
    emptied["spec"]["config"] = json!({"ignition": {"version": "3.5.0"}});
    root.write(
        "etc/machine-config-daemon/currentconfig",
        &emptied.to_string(),
    );
    let said = flat_run(&root.run(&["plan"]).exits(1));
    assert!(said.contains("empty Ignition part"), "{said}");
    import(&root, &rendered("rendered-worker-b", "b\n"));
    let said = flat_run(&root.run(&["plan"]).exits(1));
    assert!(
        said.contains("mco-rescue plan cached:rendered-worker-b"),
        "{said}"
    );
    import(&root, &full);
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.read("etc/pool.conf"), "a\n");
}

#[test]
fn fetching_neither_finishes_nor_disturbs_an_interrupted_run() {
    let root = TestRoot::new();
    root.apply(&rendered("rendered-worker-a", "a\n"));
    let config = root.config(&rendered("rendered-worker-b", "b\n"));
    let killed = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=renameat",
            "-e",
            "inject=renameat:signal=SIGKILL:when=3",
            PROGRAM,
            "--root",
        ])
        .arg(root.dir())
        .args(["apply", "--yes", config.path()])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if killed.is_err() {
        return skip(Lacks::Setup, "strace is not installed");
    }
    let pending =
        |root: &TestRoot| root.run(&["status", "--output", "json"]).ok().json()["pending"].clone();
    assert_eq!(pending(&root), "unfinished");
    import(&root, &rendered("rendered-worker-c", "c\n"));
    assert_eq!(pending(&root), "unfinished");
    root.run(&["recover"]).ok();
    assert_eq!(root.read("etc/pool.conf"), "b\n");
    assert_eq!(cache_files(&root).len(), 1);
}

#[test]
fn a_fetch_that_is_killed_leaves_the_old_cache_or_the_new_one() {
    let config = rendered("rendered-worker-b", "b\n");
    let mut tried = 0;
    for call in ["openat", "write", "fsync", "renameat", "mkdirat"] {
        for nth in 1..40 {
            let root = TestRoot::new();
            import(&root, &rendered("rendered-worker-a", "a\n"));
            let file = root.config(&config);
            let status = Command::new("strace")
                .args([
                    "-f",
                    "-qq",
                    "-o",
                    "/dev/null",
                    "-e",
                    &format!("trace={call}"),
                ])
                .args([
                    "-e",
                    &format!("inject={call}:signal=SIGKILL:when={nth}"),
                    PROGRAM,
                    "--root",
                ])
                .arg(root.dir())
                .args(["fetch", file.path()])
                .stderr(Stdio::null())
                .stdout(Stdio::null())
                .status();
            let Ok(status) = status else {
                return skip(Lacks::Setup, "strace is not installed");
            };
            if status.success() {
                break;
            }
            tried += 1;
            let listed = root.run(&["cache", "list", "--output", "json"]).ok().json();
            assert_eq!(listed["damaged"], json!([]), "{call} {nth}");
            let names: Vec<&str> = listed["entries"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| e["name"].as_str().unwrap())
                .collect();
            assert!(
                names.contains(&"rendered-worker-a"),
                "{call} {nth}: {names:?}"
            );
            import(&root, &config);
            assert_eq!(
                cache_files(&root).len(),
                2,
                "{call} {nth}: {:?}",
                cache_files(&root)
            );
        }
    }
    assert!(tried > 8, "only {tried} points");
    say(&format!("{tried} points at which a fetch was killed"));
}

#[test]
fn the_cache_is_for_root_alone() {
    let root = TestRoot::new();
    import(&root, &rendered("rendered-worker-a", "secret\n"));
    let tree = root.everything();
    let file = tree
        .iter()
        .find(|(path, _)| path.starts_with(CACHE) && path.ends_with(".json"))
        .unwrap();
    assert_eq!((file.1.mode, tree[CACHE].mode), (0o600, 0o700));
}

#[test]
fn wrong_arguments_are_reported_before_anything_is_asked() {
    let root = TestRoot::new();
    for (args, words) in [
        (["--resolve", "host"], "is not of the form HOST:ADDR"),
        (["--sha256", "abc"], "is not 64 hexadecimal digits"),
        (["--timeout", "0"], "0"),
    ] {
        let run = root.run(&[&["fetch"], &args[..]].concat()).exits(2);
        assert!(run.err().contains(words), "{}", run.err());
    }
    let said = flat_run(&fetch(&root, &[]).exits(1));
    assert!(
        said.contains("fetch --pool POOL --server api-int.CLUSTER.DOMAIN --root"),
        "{said}"
    );
    let said = flat_run(&fetch(&root, &["--pool", "worker"]).exits(1));
    assert!(
        said.contains("Next: mco-rescue fetch --server api-int.CLUSTER.DOMAIN --root"),
        "{said}"
    );
}

/// A directory as somebody fills it: configs among other things.
fn fill(directory: &std::path::Path) {
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    write("a.json", &rendered("rendered-worker-a", "a\n").to_string());
    write("b.yaml", &rendered("rendered-worker-b", "b\n").to_string());
    write("broken.yml", "kind: [");
    write("pointer.ign", r#"{"ignition": {"version": "3.4.0"}}"#);
    write("notes.txt", "rendered-worker-c");
    fs::create_dir(directory.join("below.json")).unwrap();
}

fn came_from_the_directory(run: &Run) {
    let outcome = run.json();
    let names: Vec<&str> = outcome["kept"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["rendered-worker-a", "rendered-worker-b"]);
    let passed: Vec<String> = outcome["passed_over"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| {
            e["path"]
                .as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(passed, ["broken.yml", "pointer.ign"]);
}

#[test]
fn a_directory_gives_every_config_in_it_and_says_what_is_none() {
    let root = TestRoot::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let said = flat_run(&fetch(&root, &[path]).exits(1));
    assert!(
        said.contains("no rendered config was found there"),
        "{said}"
    );
    fill(directory.path());
    came_from_the_directory(&fetch(&root, &[path, "--output", "json"]).ok());
    assert_eq!(cache_files(&root).len(), 2);
}

#[test]
fn a_labelled_medium_is_read_and_let_go() {
    let root = TestRoot::new();
    let said = flat_run(&fetch(&root, &["--from-media"]).exits(1));
    if !is_root() {
        return skip(Lacks::Root, "mounting a medium needs root");
    }
    assert!(said.contains("no medium is labelled MCO-RESCUE"), "{said}");
    let work = tempfile::tempdir().unwrap();
    let (image, content) = (work.path().join("stick.img"), work.path().join("content"));
    fs::create_dir(&content).unwrap();
    fill(&content);
    let shell = |text: &str| {
        let script = format!(
            "set -e; I='{}'; C='{}'; {text}",
            image.display(),
            content.display()
        );
        Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    let made =
        shell("truncate -s 8M $I; mke2fs -q -t ext4 -L MCO-RESCUE -d $C $I; losetup -f --show $I");
    if !made.status.success() {
        return skip(
            Lacks::program("losetup"),
            &format!(
                "no loop device can be had: {}",
                String::from_utf8_lossy(&made.stderr)
            ),
        );
    }
    let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let run = fetch(&root, &["--from-media", "--output", "json"]);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let left: Vec<_> = fs::read_dir("/run")
        .unwrap()
        .filter(|e| {
            e.as_ref()
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .starts_with("mco-rescue-media")
        })
        .collect();
    shell(&format!("losetup -d {device}"));
    came_from_the_directory(&run.ok());
    assert!(!mounts.contains(&device) && left.is_empty(), "{left:?}");
}

#[test]
fn what_was_fetched_under_a_clock_of_the_future_is_not_the_latest_for_ever() {
    let root = TestRoot::new();
    let at_once = |number: usize| intact(&format!("{number}\n"));
    // A full cache of before entries were counted, its clock years ahead.
    for number in 0..5 {
        let kept = import(&root, &at_once(number));
        let path = format!("{CACHE}/{}.json", kept["digest"].as_str().unwrap());
        let mut entry: Value = serde_json::from_str(&root.read(&path)).unwrap();
        entry["fetched"] = json!(4_000_000_000_u64 + number as u64);
        entry.as_object_mut().unwrap().remove("order");
        root.write(&path, &entry.to_string());
    }
    root.apply(&at_once(0));
    for number in 5..8 {
        let new = at_once(number);
        import(&root, &new);
        let plan = root.run(&["plan", "--latest", "--output", "json"]).json();
        assert_eq!(plan["config"], new["metadata"]["name"], "{plan}");
        let listed = root.run(&["cache", "list", "--output", "json"]).ok().json();
        assert_eq!(
            listed["entries"][0]["name"], new["metadata"]["name"],
            "{listed}"
        );
    }
}

#[test]
fn the_latest_intact_config_of_the_pool_is_taken_when_asked() {
    let root = TestRoot::new();
    let said = flat_run(&root.run(&["plan", "--latest"]).exits(1));
    assert!(
        said.contains("the cache has no intact rendered config of any pool"),
        "{said}"
    );
    // Names with the operator's hash; one that is older, one of another pool, one whose hash is wrong.
    let (old, new, other) = (
        intact("old\n"),
        intact("new\n"),
        by_operator("master", "m\n"),
    );
    for (config, at) in [
        (&old, 1),
        (&new, 2),
        (&other, 3),
        (
            &rendered(
                "rendered-worker-0123456789abcdef0123456789abcdef",
                "wrong\n",
            ),
            4,
        ),
    ] {
        let kept = import(&root, config);
        // The clock of the test does not have to move.
        let path = format!("{CACHE}/{}.json", kept["digest"].as_str().unwrap());
        let mut entry: Value = serde_json::from_str(&root.read(&path)).unwrap();
        entry["fetched"] = json!(at);
        root.write(&path, &entry.to_string());
    }
    root.apply(&old);
    let plan = root.run(&["plan", "--latest", "--output", "json"]);
    let plan = plan.json();
    assert_eq!(plan["config"], new["metadata"]["name"], "{plan}");
    assert_eq!(root.run(&["plan", "--latest", "x.yaml"]).code(), 2);
}

#[test]
fn the_units_are_what_systemd_takes_and_lock_the_service_in() {
    let work = tempfile::tempdir().unwrap();
    let service = fs::read_to_string("systemd/mco-rescue-fetch.service").unwrap();
    let path = |name: &str| work.path().join(name);
    let service = service.replace("/usr/local/bin/mco-rescue", PROGRAM);
    fs::write(path("mco-rescue-fetch.service"), service).unwrap();
    fs::copy(
        "systemd/mco-rescue-fetch.timer",
        path("mco-rescue-fetch.timer"),
    )
    .unwrap();
    let analyze = |args: &[&str]| Command::new("systemd-analyze").args(args).output();
    let service = path("mco-rescue-fetch.service");
    let units = [
        service.to_str().unwrap().to_owned(),
        path("mco-rescue-fetch.timer").to_str().unwrap().to_owned(),
    ];
    let Ok(verified) = analyze(&["verify", "--man=no", &units[0], &units[1]]) else {
        return skip(Lacks::Setup, "systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(
        verified.status.success() && !said.contains("mco-rescue"),
        "{said}"
    );
    // From 0 (locked in) to 10; it has to reach the network, and runs as root to read what root owns.
    let security = analyze(&["security", "--offline=true", "--threshold=25", &units[0]]).unwrap();
    let said = String::from_utf8_lossy(&security.stdout).into_owned();
    assert!(
        security.status.success(),
        "{}",
        said.lines().last().unwrap_or_default()
    );
}

/// The arguments of the service, as systemd would give them.
fn service_arguments() -> Vec<String> {
    let service = fs::read_to_string("systemd/mco-rescue-fetch.service").unwrap();
    let line = service
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/mco-rescue "));
    line.unwrap().split(' ').map(str::to_owned).collect()
}

#[test]
fn the_service_asks_for_what_the_program_understands_and_says_nothing_when_nothing_is_new() {
    let config = intact("x\n");
    let cluster = Cluster::new(&config, name_of(&config));
    let root = cluster.node();
    cluster.fetch(&root);
    let arguments = service_arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let run = root.run(&arguments).ok();
    assert_eq!((run.out(), run.err()), (String::new(), String::new()));
    assert_eq!(cluster.config_server.requests().len(), 2);
}

/// The calls that the service may make: sets in the order of its lines, each added or taken away.
fn allowed_calls() -> Option<BTreeSet<String>> {
    let set = |name: &str| -> Option<BTreeSet<String>> {
        let mut todo = vec![name.to_owned()];
        let mut calls = BTreeSet::new();
        while let Some(name) = todo.pop() {
            if !name.starts_with('@') {
                calls.insert(name);
                continue;
            }
            let output = Command::new("systemd-analyze")
                .args(["syscall-filter", &name])
                .output()
                .ok()?;
            let text = String::from_utf8(output.stdout).unwrap();
            let lines = text.lines().skip(1).map(str::trim);
            todo.extend(
                lines
                    .filter(|line| !line.starts_with('#') && !line.is_empty())
                    .map(str::to_owned),
            );
        }
        Some(calls)
    };
    let service = fs::read_to_string("systemd/mco-rescue-fetch.service").unwrap();
    let mut allowed = set("@default")?;
    for line in service
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
    {
        let names = line.trim_start_matches('~').split(' ');
        for name in names {
            let calls = set(name)?;
            if line.starts_with('~') {
                allowed.retain(|call| !calls.contains(call));
            } else {
                allowed.extend(calls);
            }
        }
    }
    Some(allowed)
}

#[test]
fn the_service_may_make_every_call_that_it_makes() {
    let Some(allowed) = allowed_calls() else {
        return skip(Lacks::Setup, "systemd-analyze is not installed");
    };
    if !trace::can_trace() {
        return;
    }
    let config = intact("x\n");
    let cluster = Cluster::with_policies(&config, name_of(&config), |_| {
        Response::ok(policies(3, 3).to_string())
    });
    let root = cluster.node();
    let pod = "var/log/pods/openshift-machine-config-operator_machine-config-daemon-x7_uid";
    let head = "2026-11-18T10:00:00Z stderr F I1118 10:00:00.000000 3512 update.go:1]";
    let line = format!("{head} Completing update to target rendered-worker-a\n");
    root.write(&format!("{pod}/machine-config-daemon/3.log"), &line);
    cluster.fetch(&root);
    // Everything is made anew but the marker and where the server is.
    fs::remove_dir_all(root.path(CACHE)).unwrap();
    for kept in [
        "annotations.json",
        "disruption-policies.json",
        "daemon-log.json",
    ] {
        root.remove(&format!("var/lib/mco-rescue/{kept}"));
    }
    let arguments = service_arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let traced = trace::traced(&root, "all", &[], &arguments);
    assert_eq!(traced.code, Some(0), "{}", traced.said);
    let made: BTreeSet<&str> = traced.calls.iter().map(|call| call.name.as_str()).collect();
    assert!(
        ["connect", "renameat", "openat2"]
            .iter()
            .all(|call| made.contains(call)),
        "{made:?}"
    );
    let forbidden: Vec<_> = made
        .iter()
        .filter(|call| !allowed.contains(**call))
        .collect();
    assert!(forbidden.is_empty(), "{forbidden:?}");
    say(&format!(
        "{} kinds of system calls, all allowed to the service",
        made.len()
    ));
}

#[test]
fn without_any_capability_and_with_a_root_that_is_read_only_the_service_does_its_work() {
    if !is_root() {
        return skip(Lacks::Root, "only root can give everything up");
    }
    let config = intact("x\n");
    let cluster = Cluster::with_policies(&config, name_of(&config), |_| {
        Response::ok(policies(3, 3).to_string())
    });
    let root = cluster.node();
    cluster.fetch(&root);
    fs::remove_dir_all(root.path(CACHE)).unwrap();
    fs::remove_file(root.path(POLICIES)).unwrap();
    // What ProtectSystem=strict with StateDirectory= and CapabilityBoundingSet= make of a node.
    let script = "set -e; mount --bind \"$1\" \"$1\"; mount --bind \"$1/var/lib/mco-rescue\" \"$1/var/lib/mco-rescue\"
        mount -o remount,bind,ro \"$1\"; root=$1; shift
        if touch \"$root/etc/x\" 2>/dev/null; then exit 99; fi
        exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs \"$0\" --root \"$root\" \"$@\"";
    let run = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, PROGRAM])
        .arg(root.dir())
        .args(service_arguments())
        .output()
        .unwrap();
    let run = Run::of(run).ok();
    assert!(run.out().contains(name_of(&config)), "{}", run.out());
    assert_eq!(cache_files(&root).len(), 1);
    assert!(root.exists(POLICIES));
    drop(cluster);
}

fn name_of(config: &Value) -> &str {
    config["metadata"]["name"].as_str().unwrap()
}

/// A cluster: a Machine Config Server, and an API that knows the node and lets only its kubelet ask.
struct Cluster {
    authority: Authority,
    config_server: Server,
    api: Server,
}

impl Cluster {
    fn new(config: &Value, desired: &str) -> Self {
        Self::with_policies(config, desired, |_| Response::status(403))
    }

    /// One whose API answers so when it is asked for the disruption policies, the nth time.
    fn with_policies(
        config: &Value,
        desired: &str,
        policies: impl Fn(usize) -> Response + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new("cluster");
        let node = json!({"kind": "Node", "metadata": {"name": "node-7", "annotations": {
            "machineconfiguration.openshift.io/currentConfig": "rendered-worker-old",
            "machineconfiguration.openshift.io/desiredConfig": desired,
            "machineconfiguration.openshift.io/state": "Working",
        }}});
        let routes = Routes::new().at("/api/v1/nodes/node-7", move |_| {
            Response::ok(node.to_string())
        });
        let object = "/apis/operator.openshift.io/v1/machineconfigurations/cluster";
        let routes = routes.at(object, move |request| policies(request.nth));
        let api = Server::mutual(routes, &authority.issue(&["127.0.0.1"], VALID), &authority);
        Self {
            config_server: server(&authority, config),
            api,
            authority,
        }
    }

    /// A node of it, as the kubelet leaves one.
    fn node(&self) -> TestRoot {
        let root = TestRoot::new();
        root.write("etc/hostname", "Node-7\n");
        let client = self.authority.issue(&["system:node:node-7"], VALID).pem();
        root.write("var/lib/kubelet/pki/kubelet-client-2026.pem", &client);
        root.link(
            "var/lib/kubelet/pki/kubelet-client-current.pem",
            "/var/lib/kubelet/pki/kubelet-client-2026.pem",
        );
        let data = base64::Engine::encode(
            &base64::engine::general_purpose::STANDARD,
            &self.authority.pem,
        );
        let file = "/var/lib/kubelet/pki/kubelet-client-current.pem";
        root.write("var/lib/kubelet/kubeconfig", &format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster:\n    server: {}\n    \
             certificate-authority-data: {data}\ncontexts:\n- name: x\n  context:\n    cluster: c\n    user: u\n\
             current-context: x\nusers:\n- name: u\n  user:\n    client-certificate: {file}\n    client-key: {file}\n",
            self.api.url(""),
        ));
        root
    }

    fn fetch(&self, root: &TestRoot) -> Value {
        let ca = ca(&self.authority);
        let args = [
            "--pool",
            "worker",
            "--server",
            &self.config_server.url(""),
            "--ca",
            ca.path().to_str().unwrap(),
        ];
        fetch(root, &[&args[..], &["--output", "json"]].concat())
            .ok()
            .json()
    }
}

/// A config of pool worker with one file in it.
fn intact(text: &str) -> Value {
    by_operator("worker", text)
}

#[test]
fn the_config_that_the_cluster_wanted_last_is_taken_when_the_cluster_is_gone() {
    let (old, wanted) = (intact("old\n"), intact("wanted\n"));
    let name = wanted["metadata"]["name"].as_str().unwrap();
    let cluster = Cluster::new(&wanted, name);
    let root = cluster.node();
    root.apply(&old);
    let outcome = cluster.fetch(&root);
    assert_eq!(
        (
            &outcome["annotations"]["desired"],
            &outcome["annotations"]["node"]
        ),
        (&json!(name), &json!("node-7"))
    );
    drop(cluster);
    let status = root.run(&["status", "--output", "json"]).ok().json();
    assert_eq!(status["annotations"]["state"], "Working");
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], name);
    assert_eq!(plan["others"][0]["name"], old["metadata"]["name"]);
    assert!(
        plan["others"][0]["why"]
            .as_str()
            .unwrap()
            .contains("desired another one later"),
        "{plan}"
    );
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(root.read("etc/pool.conf"), "wanted\n");
    // Once it is recorded, nothing else is wanted.
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(
        (&plan["config"], &plan["steps"], &plan["others"]),
        (&json!(name), &json!([]), &json!([]))
    );
}

#[test]
fn a_wanted_config_that_is_not_at_hand_intact_is_only_named() {
    let old = intact("old\n");
    let wanted = rendered(
        "rendered-worker-0123456789abcdef0123456789abcdef",
        "not what its name says\n",
    );
    let cluster = Cluster::new(&wanted, wanted["metadata"]["name"].as_str().unwrap());
    let root = cluster.node();
    root.apply(&old);
    cluster.fetch(&root);
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(
        (&plan["config"], &plan["steps"]),
        (&old["metadata"]["name"], &json!([]))
    );
    assert_eq!(plan["others"].as_array().unwrap().len(), 1);
    assert!(
        plan["others"][0]["why"]
            .as_str()
            .unwrap()
            .contains("has no intact copy"),
        "{plan}"
    );
}

#[test]
fn an_api_that_does_not_answer_is_not_a_failure_of_the_fetch() {
    let config = intact("x\n");
    let cluster = Cluster::new(&config, "rendered-worker-x");
    let root = cluster.node();
    // Credentials of somebody whom this API does not know.
    let stranger = Authority::new("another cluster").issue(&["x"], VALID).pem();
    root.write("var/lib/kubelet/pki/kubelet-client-2026.pem", &stranger);
    let outcome = cluster.fetch(&root);
    assert_eq!(
        (
            outcome["kept"].as_array().unwrap().len(),
            &outcome["annotations"]
        ),
        (1, &Value::Null)
    );
    for broken in [
        "",
        "kind: [",
        "clusters: []\n",
        "clusters:\n- name: c\n  cluster: {}\n",
    ] {
        root.write("var/lib/kubelet/kubeconfig", broken);
        assert_eq!(cluster.fetch(&root)["annotations"], Value::Null);
    }
    root.write("var/lib/mco-rescue/annotations.json", "{");
    root.run(&["status"]).ok();
    root.run(&["plan", "--latest"]).ok();
}

/// The object that holds the disruption policies, as the API has it.
fn policies(generation: i64, observed: i64) -> Value {
    json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
    "metadata": {"name": "cluster", "generation": generation},
    "spec": {"managementState": "Managed"},
    "status": {"observedGeneration": observed, "nodeDisruptionPolicyStatus": {"clusterPolicies": {
        "files": [
            {"path": "/var/lib/kubelet/config.json", "actions": [{"type": "None"}]},
            {"path": "/etc/containers/registries.conf", "actions": [{"type": "Special"}]},
            {"path": "/etc/crio/policies", "actions": [
                {"type": "Reload", "reload": {"serviceName": "crio.service"}}]},
        ],
        "units": [{"name": "x.service", "actions": [{"type": "DaemonReload"},
            {"type": "Restart", "restart": {"serviceName": "x.service"}}]}],
        "sshkey": {"actions": [{"type": "None"}]},
    }}}})
}

const POLICIES: &str = "var/lib/mco-rescue/disruption-policies.json";

#[test]
fn the_disruption_policies_are_kept_as_long_as_nothing_better_is_known() {
    let answers = [
        (Response::ok(policies(3, 3).to_string()), "given", ""),
        (
            Response::status(403),
            "not-allowed",
            "not allowed to read them",
        ),
        (Response::status(404), "none", "the cluster has none"),
        (
            Response::ok(policies(4, 3).to_string()),
            "not-ready",
            "has not finished them",
        ),
    ];
    let config = intact("x\n");
    let bodies: Vec<Response> = answers.iter().map(|(body, ..)| body.clone()).collect();
    let cluster = Cluster::with_policies(&config, name_of(&config), move |nth| bodies[nth].clone());
    let root = cluster.node();
    let given = policies(3, 3);
    let given = &given["status"]["nodeDisruptionPolicyStatus"]["clusterPolicies"];
    for (_, asked, words) in &answers {
        let outcome = cluster.fetch(&root);
        assert_eq!(outcome["policies"]["asked"], *asked);
        // What was known stays known, with the time at which it was.
        assert_eq!(outcome["policies"]["known"]["cluster"], *given, "{asked}");
        let mut kept: Value = serde_json::from_str(&root.read(POLICIES)).unwrap();
        let seal = kept.as_object_mut().unwrap().shift_remove("checksum");
        assert!(seal.is_some(), "{kept}");
        assert_eq!(kept, outcome["policies"]);
        let status = flat_run(&root.run(&["status"]).ok());
        assert!(
            status.contains("Policies for 3 files and 1 unit ("),
            "{status}"
        );
        assert!(status.contains(words), "{status}");
    }
}

#[test]
fn an_api_that_does_not_let_the_kubelet_read_policies_makes_no_noise() {
    let config = intact("x\n");
    let cluster = Cluster::new(&config, name_of(&config));
    let root = cluster.node();
    cluster.fetch(&root);
    let quiet = fetch(&root, &["--quiet"]).ok();
    assert_eq!((quiet.out(), quiet.err()), (String::new(), String::new()));
    let status = flat_run(&root.run(&["status"]).ok());
    assert!(
        status.contains("Policies not allowed to read them ("),
        "{status}"
    );
    let status = root.run(&["status", "--output", "json"]).ok().json();
    assert_eq!(status["policies"]["known"], Value::Null);
}

#[test]
fn garbage_for_policies_changes_nothing_and_the_log_tells_the_place() {
    let mut wrong = policies(3, 3);
    wrong["status"]["nodeDisruptionPolicyStatus"]["clusterPolicies"]["files"][1] =
        json!({"path": "/x"});
    let bodies = [
        Response::ok(policies(3, 3).to_string()),
        Response::ok("{"),
        Response::ok(r#"{"kind": "Status", "metadata": {"generation": 1}}"#),
        Response::ok(wrong.to_string()),
        Response::status(500),
    ];
    let words = [
        "",
        "not a MachineConfiguration",
        "another kind",
        "clusterPolicies.files[1]",
        "answered 500",
    ];
    let config = intact("x\n");
    let answers = bodies.clone();
    let cluster =
        Cluster::with_policies(&config, name_of(&config), move |nth| answers[nth].clone());
    let root = cluster.node();
    cluster.fetch(&root);
    let before = root.read(POLICIES);
    for words in &words[1..] {
        let run = fetch(&root, &["--quiet", "-v"]).ok();
        assert!(
            flat_run(&run).contains(words),
            "{words}: {}",
            flat_run(&run)
        );
        assert_eq!(root.read(POLICIES), before);
    }
}

#[test]
fn the_api_is_asked_also_when_the_config_server_is_gone() {
    let config = intact("x\n");
    let mut cluster = Cluster::new(&config, name_of(&config));
    let root = cluster.node();
    cluster.fetch(&root);
    root.remove("var/lib/mco-rescue/annotations.json");
    let routes = Routes::new().at("*", |_| Response::status(404));
    let identity = cluster.authority.issue(&["127.0.0.1"], VALID);
    cluster.config_server = Server::tls(routes, &identity);
    let said = flat_run(&fetch(&root, &["--server", &cluster.config_server.url("")]).exits(1));
    assert!(
        said.contains("the pool has no rendered config there yet"),
        "{said}"
    );
    let status = root.run(&["status", "--output", "json"]).ok().json();
    assert_eq!(status["annotations"]["desired"], name_of(&config));
}

#[test]
fn what_the_daemons_log_told_is_kept_when_the_pod_is_gone() {
    let (old, wanted) = (intact("old\n"), intact("wanted\n"));
    let cluster = Cluster::new(&wanted, name_of(&wanted));
    let root = cluster.node();
    // The API cannot be asked: this node has no credentials.
    root.remove("var/lib/kubelet/kubeconfig");
    root.apply(&old);
    let pod = "var/log/pods/openshift-machine-config-operator_machine-config-daemon-x7_uid";
    let head = "stderr F I1118 10:00:00.000000    3512 update.go:1]";
    let (a, b) = (name_of(&old), name_of(&wanted));
    root.write(
        &format!("{pod}/machine-config-daemon/3.log"),
        &format!(
            "2026-11-18T10:00:00.000000000+00:00 {head} Disk currentConfig \"{a}\" overrides node's currentConfig \
             annotation \"{b}\"\n2026-11-18T10:00:01.5+00:00 {head} \"Starting update from {a} to {b}: &{{}}\"\n"
        ),
    );
    let outcome = cluster.fetch(&root);
    assert_eq!(outcome["annotations"], Value::Null);
    let wanted = &outcome["daemon_log"]["wanted"];
    assert_eq!(
        (&wanted["name"], &wanted["line"]),
        (&json!(b), &json!("starting"))
    );
    let before = root.everything();
    cluster.fetch(&root);
    let files = |tree: &support::Snapshot| tree["var/lib/mco-rescue/daemon-log.json"].clone();
    assert_eq!(files(&before), files(&root.everything()));
    fs::remove_dir_all(root.path("var/log")).unwrap();
    let status = flat_run(&root.run(&["status"]).ok());
    let line = format!("Log current {a} (2026-11-18T10:00:00Z) wanted {b} (2026-11-18T10:00:01Z)");
    assert!(status.contains(&line), "{status}");
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], b);
    root.write("var/lib/mco-rescue/daemon-log.json", "{");
    root.run(&["status"]).ok();
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["config"], a);
}

#[test]
fn an_authority_that_was_made_anew_under_its_old_name_is_not_a_broken_certificate() {
    let (old, new) = (Authority::new("root-ca"), Authority::new("root-ca"));
    let config = rendered("rendered-worker-a", "x\n");
    let server = server(&new, &config);
    let root = TestRoot::new();
    let file = ca(&old);
    let args = [
        "--pool",
        "worker",
        "--server",
        &server.url(""),
        "--ca",
        file.path().to_str().unwrap(),
    ];
    let said = flat_run(&fetch(&root, &args).exits(1));
    say(&said);
    assert!(
        said.contains("signed by no authority that is trusted here"),
        "{said}"
    );
    assert!(
        said.contains("--ca FILE") && !said.contains("renew"),
        "{said}"
    );
}

/// The places at which a node has authorities, with that of the server in the form of each place.
fn places(authority: &Authority) -> Vec<(&'static str, String)> {
    let engine = &base64::engine::general_purpose::STANDARD;
    let data = base64::Engine::encode(engine, &authority.pem);
    let kubeconfig = format!(
        "kind: Config\nclusters:\n- name: local\n  cluster:\n    server: https://x:6443\n    \
         certificate-authority-data: {data}\n"
    );
    let pointer = json!({"ignition": {"version": "3.4.0", "security": {"tls": {"certificateAuthorities": [
        {"source": format!("data:text/plain;charset=utf-8;base64,{data}")}]}}}});
    vec![
        ("etc/kubernetes/kubelet-ca.crt", authority.pem.clone()),
        ("etc/kubernetes/kubeconfig", kubeconfig.clone()),
        ("var/lib/kubelet/kubeconfig", kubeconfig),
        (
            "etc/pki/ca-trust/source/anchors/mine.crt",
            format!("# mine\n{}", authority.pem),
        ),
        ("boot/ignition/config.ign", pointer.to_string()),
    ]
}

#[test]
fn an_authority_at_hand_is_named_and_not_taken() {
    let (right, wrong) = (Authority::new("root-ca"), Authority::new("root-ca"));
    let config = rendered("rendered-worker-a", "x\n");
    let server = server(&right.intermediate("mcs"), &config);
    let url = server.url("");
    let args = ["--pool", "worker", "--server", &url];
    for (index, (place, text)) in places(&right).into_iter().enumerate() {
        let root = TestRoot::new();
        for (place, text) in places(&wrong) {
            root.write(place, &text);
        }
        let before = root.everything();
        let said = flat_run(&fetch(&root, &args).exits(1));
        assert!(
            said.contains("nothing on this node would verify it"),
            "{said}"
        );
        assert_eq!(root.everything(), before, "{place}");
        root.write(place, &text);
        let before = root.everything();
        let said = flat_run(&fetch(&root, &args).exits(1));
        let file = root.path(place).display().to_string();
        assert!(
            said.contains(&format!("give --ca {file}, else give the certificate")),
            "{place}: {said}"
        );
        assert!(
            said.contains("2. \"CN=mcs\" issued by \"CN=root-ca\", from Wed, 01 Jan 2020"),
            "{said}"
        );
        assert_eq!(root.everything(), before, "{place}");
        if index == 0 {
            say(&said);
        }
        fetch(&root, &[&args[..], &["--ca", &file]].concat()).ok();
        assert_eq!(cache_files(&root).len(), 1, "{place}");
    }
}

#[test]
fn what_is_wrong_with_the_given_bundle_is_said_of_it() {
    let root = TestRoot::new();
    for (text, words) in [
        ("", "there is no certificate in it"),
        ("hello\n", "line 1 is after the last certificate"),
        (
            "-----BEGIN CERTIFICATE-----\n",
            "the block that begins in line 1 has no end",
        ),
    ] {
        root.write("ca.pem", text);
        let file = root.path("ca.pem").display().to_string();
        let args = ["--pool", "worker", "--server", "127.0.0.1:1", "--ca", &file];
        let said = flat_run(&fetch(&root, &args).exits(1));
        assert!(
            said.contains(&format!("reading --ca {file}: {words}")),
            "{said}"
        );
    }
}
