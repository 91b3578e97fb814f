//! What people read: signs and counts of `rollback`, half documents, names that are not files.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::{
    self, Lacks, PROGRAM, Run, TestRoot, by_operator, file, flat, is_root, kubelet_unit,
    machine_config, skip,
};
use serde_json::{Value, json};

const NAME: &str = "rendered-worker-a";

/// Five files in directories that are not there yet, one over a file of the OS.
fn config() -> Value {
    let ignition = json!({
        "storage": {"files": [
            file("/etc/of-os.conf", 0o644, "ours\n"),
            file("/etc/deep/er/one", 0o644, "1\n"),
            file("/etc/deep/er/two", 0o644, "2\n"),
            file("/opt/tool/bin/run", 0o755, "#!/bin/sh\n"),
            file("/var/lib/tool/state", 0o600, "x\n"),
        ]},
        "systemd": {"units": [kubelet_unit()]},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]},
    });
    machine_config(NAME, ignition)
}

/// The lines of a plan that begin with one of its signs.
fn changes(text: &str) -> Vec<String> {
    let signs = ["    + ", "    ~ ", "    - "];
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with("Changes ("));
    let signed = lines.filter(|line| signs.iter().any(|sign| line.starts_with(sign)));
    signed.map(|line| line.trim_start().to_owned()).collect()
}

/// The number in a line such as `- 3 originals (-v lists them)`.
fn counted(lines: &[String], what: &str) -> Option<(char, usize)> {
    let line = lines
        .iter()
        .find(|line| line.contains(&format!(" {what}")))?;
    let mut words = line.split(' ');
    let sign = words.next()?.chars().next()?;
    Some((sign, words.next()?.parse().ok()?))
}

fn applied() -> TestRoot {
    let root = TestRoot::new();
    root.write("usr/etc/of-os.conf", "of the OS\n");
    root.write("etc/of-os.conf", "of the OS\n");
    root.apply(&config());
    root
}

#[test]
fn rollback_signs_what_goes_as_gone_and_counts_directories() {
    let root = applied();
    let brief = root.run(&["rollback"]).exits(1).out();
    let lines = changes(&brief);
    // Everything is new but for two files, so all of it goes.
    let kept: Vec<&String> = lines.iter().filter(|line| !line.starts_with('-')).collect();
    assert!(
        kept.iter()
            .all(|line| line.starts_with("~ /etc/of-os.conf") || line.starts_with("~ /etc/shadow")),
        "{kept:?}"
    );
    let (sign, directories) = counted(&lines, "director").unwrap();
    let (originals_sign, originals) = counted(&lines, "original").unwrap();
    assert_eq!((sign, originals_sign), ('-', '-'), "{brief}");
    assert!(directories > 5 && originals > 3, "{brief}");
    assert!(
        !lines.iter().any(|line| line.starts_with("- /etc/deep ")),
        "{brief}"
    );

    let all = changes(&root.run(&["rollback", "-v"]).exits(1).out());
    assert_eq!(counted(&all, "director"), None);
    assert!(
        all.iter().any(|line| line.starts_with("- /etc/deep ")),
        "{all:?}"
    );
    // What is counted is what `-v` lists.
    assert_eq!(
        all.len(),
        lines.len() - 2 + directories + originals,
        "{brief}"
    );
    let total = format!("Changes ({}):", all.len());
    assert!(brief.contains(&total), "{total}: {brief}");
}

#[test]
fn rollback_signs_what_comes_again_as_new() {
    let root = applied();
    let mut less = config();
    less["metadata"]["name"] = json!("rendered-worker-b");
    less["spec"]["config"]["storage"] = json!({});
    let less = root.config(&less);
    let args = ["apply", "--yes", "--allow-removals", less.path()];
    root.run(&args).ok();
    let lines = changes(&root.run(&["rollback"]).exits(1).out());
    for path in ["/etc/deep/er/one", "/opt/tool/bin/run"] {
        let line = format!("+ {path}  existed before");
        assert!(lines.iter().any(|one| one.starts_with(&line)), "{lines:?}");
    }
    assert_eq!(counted(&lines, "original").unwrap().0, '+', "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with('-')), "{lines:?}");
}

// Half documents.

/// As `oc get mc NAME -o yaml` prints it: keys in order, a line break at the end.
const YAML: &str = include_str!("../../examples/rendered-worker.yaml");

fn show(root: &TestRoot, document: &[u8]) -> Run {
    let mut command = root.command(&["show", "-"]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Whoever refuses a document early may close it.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), document);
    Run::of(child.wait_with_output().unwrap())
}

const CUT: &str = "cut short, copy it again";

#[test]
fn json_that_was_cut_short_says_so_wherever_it_ends() {
    let text = serde_json::to_string_pretty(&config()).unwrap();
    let root = TestRoot::new();
    for at in [
        1,
        2,
        10,
        40,
        200,
        text.len() / 2,
        text.len() - 30,
        text.len() - 2,
    ] {
        let run = show(&root, &text.as_bytes()[..at]).exits(1);
        assert!(run.err().contains(CUT), "{at}: {}", run.err());
        assert!(run.err().contains(" at line "), "{at}: {}", run.err());
    }
    show(&root, text.as_bytes()).ok();
    // What is wrong in another way is not said to be cut short.
    let run = show(&root, text.replace("\"spec\":", "spec:").as_bytes()).exits(1);
    assert!(!run.err().contains("cut short"), "{}", run.err());
}

/// Every line at which a copy may end, and places within lines.
#[test]
fn yaml_that_was_cut_short_says_so_wherever_it_ends() {
    use mco_rescue::config::document;
    let says = |text: &str| match document::parse_document(text.as_bytes(), "it") {
        Err(error) => error.to_string(),
        Ok(config) => {
            let all = config.warnings.iter().map(ToString::to_string);
            all.collect::<Vec<_>>().join("; ")
        }
    };
    assert!(!says(YAML).contains("cut short"), "{}", says(YAML));
    let ends = YAML.match_indices('\n').map(|(at, _)| at + 1);
    let within = (1..YAML.len()).step_by(97);
    let mut count = 0;
    for at in ends.chain(within).filter(|at| *at < YAML.len()) {
        let half = &YAML[..at];
        // In the very last value nothing is missing but its end; the hash in the name tells.
        if half.contains("osImageURL: ") {
            continue;
        }
        assert!(says(half).contains(CUT), "at {at}: {}", says(half));
        count += 1;
    }
    assert!(count > 700, "{count}");
}

#[test]
fn a_config_that_lost_its_last_letters_is_refused_by_its_name() {
    let root = TestRoot::new();
    let half = root.path("half.yaml");
    fs::write(&half, &YAML[..YAML.len() - 9]).unwrap();
    let run = root.run(&["plan", half.to_str().unwrap()]).exits(1);
    assert!(
        flat(&run.out()).contains("they were changed or cut short"),
        "{}",
        run.out()
    );
}

#[test]
fn a_copy_without_bytes_says_to_copy_again() {
    let root = TestRoot::new();
    for document in [&b""[..], b"\n", &[0; 4096], b"{\"a\": \"caf\xc3"] {
        let run = show(&root, document).exits(1);
        assert!(run.err().contains("copy it again"), "{}", run.err());
    }
}

#[test]
fn half_parts_for_render_and_half_policies_say_so_too() {
    let root = TestRoot::new();
    let part = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "99-x"}, "spec": {"config": {"ignition": {"version": "3.4.0"}}}});
    let text = part.to_string();
    let half = root.path("half.json");
    fs::write(&half, &text[..text.len() - 4]).unwrap();
    let run = root
        .run(&["render", "worker", half.to_str().unwrap()])
        .exits(1);
    assert!(run.err().contains(CUT), "{}", run.err());
    let config = root.config(&config());
    let run = root
        .run(&["plan", config.path(), "--policy", half.to_str().unwrap()])
        .exits(1);
    assert!(run.err().contains(CUT), "{}", run.err());
}

// Names that are not files.

fn kept(root: &TestRoot, config: &Value) -> String {
    let file = root.config(config);
    root.run(&["fetch", file.path()]).ok();
    config["metadata"]["name"].as_str().unwrap().to_owned()
}

#[test]
fn the_name_of_a_config_in_place_of_a_file_leads_to_the_cache() {
    let root = TestRoot::new();
    let first = kept(&root, &by_operator("worker", "one\n"));
    let said = |args: &[&str]| root.run(args).exits(1).err();
    for command in ["apply", "plan", "verify", "show"] {
        let err = said(&[command, &first]);
        assert!(
            err.contains(&format!("Did you mean cached:{first}?")),
            "{err}"
        );
    }
    // A beginning of it will do, and of several all are named.
    let err = said(&["plan", &first[..20]]);
    assert!(err.contains(&format!("cached:{first}?")), "{err}");
    let second = kept(&root, &by_operator("worker", "two\n"));
    let err = said(&["plan", "rendered-worker"]);
    assert!(
        err.contains(&format!("cached:{first}")) && err.contains(&format!("cached:{second}")),
        "{err}"
    );
    // Nothing of that name: what is there, and where to get it.
    let err = said(&["plan", "rendered-master-0"]);
    assert!(
        err.contains(&first)
            && err.contains("oc get mc rendered-master-0 -o yaml > rendered-master-0.yaml"),
        "{err}"
    );
    let empty = TestRoot::new();
    let err = empty.run(&["plan", "rendered-master-0"]).exits(1).err();
    assert!(
        err.contains("cache is empty") && err.contains("mco-rescue fetch"),
        "{err}"
    );
}

#[test]
fn the_recorded_name_and_a_file_with_another_ending_are_reported() {
    let root = applied();
    let err = root.run(&["verify", NAME]).exits(1).err();
    assert!(
        err.contains("recorded to be in this config: leave the name out"),
        "{err}"
    );
    fs::write(root.path("next.yaml"), YAML).unwrap();
    for given in ["next", "next.json", "next.yml"] {
        let mut command = Command::new(PROGRAM);
        command
            .args(["--root", ".", "show", given])
            .current_dir(root.dir());
        let run = Run::of(command.output().unwrap()).exits(1);
        assert!(
            run.err().contains("Did you mean next.yaml?"),
            "{}",
            run.err()
        );
    }
    let err = root.run(&["show", "/nowhere/next.yaml"]).exits(1).err();
    assert!(
        err.contains("there is no file \"/nowhere/next.yaml\" to read a config from"),
        "{err}"
    );
}

#[test]
fn the_cache_takes_names_as_everything_else_does() {
    let root = TestRoot::new();
    let name = kept(&root, &by_operator("worker", "one\n"));
    let cached = format!("cached:{name}");
    assert!(
        root.run(&["cache", "export", &cached])
            .ok()
            .out()
            .contains(&name)
    );
    root.run(&["cache", "forget", &cached]).ok();
    assert!(
        root.run(&["cache", "export", &name])
            .exits(1)
            .err()
            .contains("has no config")
    );
}

// Escapes and labels.

/// A record with several errors, which every command that looks at the node speaks of.
#[test]
fn no_screen_shows_an_escaped_line_break_or_a_label_of_a_rule() {
    let root = TestRoot::new();
    let mut broken = config();
    broken["spec"]["config"]["storage"]["files"][0]["path"] = json!("relative");
    broken["spec"]["config"]["storage"]["files"][1]["mode"] = json!(-1);
    root.write(
        "etc/machine-config-daemon/currentconfig",
        &broken.to_string(),
    );
    let config = root.config(&config());
    let given = root.config(&broken);
    for args in [
        &["status"][..],
        &["status", "-v"],
        &["doctor"],
        &["verify"],
        &["plan"],
        &["plan", "-v", config.path()],
        &["plan", given.path()],
        &["fetch", given.path()],
        &["rollback"],
    ] {
        let run = root.run(args);
        let text = run.out() + &run.err();
        assert!(!text.contains("\\n"), "{args:?}: {text}");
        let mut labels = text.split("(V").skip(1);
        let label = labels.find(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        assert_eq!(label, None, "{args:?}: {text}");
    }
    let plan = root.run(&["plan", config.path()]).out();
    assert!(
        plan.contains("2 errors") || plan.contains("relative"),
        "{plan}"
    );
}

// SSH keys.

/// A key pair made by the real `ssh-keygen`: the public line, and its fingerprint as `ssh-keygen -lf` prints it.
struct Pair {
    dir: tempfile::TempDir,
    public: String,
    fingerprint: String,
}

impl Pair {
    fn file(&self) -> String {
        self.dir.path().join("key.pub").to_str().unwrap().to_owned()
    }

    fn private(&self) -> String {
        self.dir.path().join("key").to_str().unwrap().to_owned()
    }

    /// The part that makes it a key.
    fn secret_looking(&self) -> &str {
        self.public.split(' ').nth(1).unwrap()
    }
}

/// Nothing where `ssh-keygen` is not here, or makes no such key any more.
fn pair(kind: &[&str], comment: &str) -> Option<Pair> {
    let dir = tempfile::tempdir().unwrap();
    let private = dir.path().join("key");
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-N", "", "-C", comment, "-t"])
        .args(kind);
    let Ok(made) = command.arg("-f").arg(&private).output() else {
        skip(Lacks::Setup, "ssh-keygen is not installed");
        return None;
    };
    if !made.status.success() {
        skip(
            Lacks::Machine,
            &format!("ssh-keygen makes no key of type {kind:?}"),
        );
        return None;
    }
    let public = dir.path().join("key.pub");
    let listed = Command::new("ssh-keygen")
        .arg("-lf")
        .arg(&public)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    Some(Pair {
        public: fs::read_to_string(&public).unwrap().trim().to_owned(),
        fingerprint: listed.split(' ').nth(1).unwrap().to_owned(),
        dir,
    })
}

const KINDS: [&[&str]; 5] = [
    &["ed25519"],
    &["rsa", "-b", "2048"],
    &["ecdsa", "-b", "256"],
    &["ecdsa", "-b", "384"],
    &["ecdsa", "-b", "521"],
];

fn with_keys(name: &str, keys: &[&str]) -> Value {
    let mut config = config();
    config["metadata"]["name"] = json!(name);
    config["spec"]["config"]["passwd"]["users"][0]["sshAuthorizedKeys"] = json!(keys);
    config
}

const KEYS: &str = "home/core/.ssh/authorized_keys.d/ignition";

#[test]
fn keys_have_the_fingerprints_that_ssh_keygen_prints() {
    use mco_rescue::base::ssh_key::PublicKey;
    let mut count = 0;
    for (kind, comment) in KINDS
        .iter()
        .flat_map(|kind| [(kind, "me@there"), (kind, "two words"), (kind, "")])
    {
        let Some(pair) = pair(kind, comment) else {
            continue;
        };
        let key = PublicKey::check(&pair.public).unwrap();
        assert_eq!(key.fingerprint, pair.fingerprint, "{kind:?}");
        assert_eq!(key.comment, comment);
        let optioned = format!("from=\"10.0.0.0/8\",no-pty {}", pair.public);
        assert_eq!(
            PublicKey::parse(&optioned).unwrap().fingerprint,
            pair.fingerprint
        );
        let root = TestRoot::new();
        let shown = root
            .run(&[
                "show",
                root.config(&with_keys(NAME, &[&pair.public])).path(),
            ])
            .ok()
            .out();
        assert!(
            shown.contains(&format!("{} {}", key.kind, pair.fingerprint)),
            "{shown}"
        );
        count += 1;
    }
    support::say(&format!("{count} keys beside ssh-keygen"));
}

#[test]
fn a_plan_names_the_keys_that_come_go_and_stay_and_shows_none() {
    let Some((old, stays, new)) = (|| {
        Some((
            pair(&["ed25519"], "old@desk")?,
            pair(&["ed25519"], "stays")?,
            pair(&["ed25519"], "new@desk")?,
        ))
    })() else {
        return;
    };
    let root = TestRoot::new();
    let say = |run: Run| run.out() + &run.err();
    let first = root.config(&with_keys(NAME, &[&old.public, &stays.public]));
    let mut said = vec![say(root.run(&["plan", first.path()]))];
    said.push(say(root.run(&["apply", "--yes", first.path()]).ok()));
    let next = root.config(&with_keys(
        "rendered-worker-b",
        &[&stays.public, &new.public],
    ));
    let plan = root.run(&["plan", "--show-secrets", next.path()]).out();
    for (sign, key, comment) in [
        ('-', &old, "old@desk"),
        (' ', &stays, "stays"),
        ('+', &new, "new@desk"),
    ] {
        let line = format!("        {sign}ssh-ed25519 {} {comment}\n", key.fingerprint);
        assert!(plan.contains(&line), "{line}: {plan}");
    }
    said.push(plan);
    said.push(say(root.run(&["plan", "--output", "json", next.path()])));
    said.push(say(root
        .run(&["apply", "--yes", "--allow-removals", next.path()])
        .ok()));
    let back = say(root.run(&["rollback"]));
    assert!(
        back.contains(&format!("-ssh-ed25519 {} new@desk", new.fingerprint)),
        "{back}"
    );
    said.push(back);
    // A key that somebody added by hand is told by verify.
    let text = root.read(KEYS) + &old.public + "\n";
    root.write(KEYS, &text);
    let verify = say(root.run(&["verify", "--show-secrets"]).exits(3));
    assert!(
        verify.contains(&format!("-ssh-ed25519 {} old@desk", old.fingerprint)),
        "{verify}"
    );
    said.push(verify);
    for text in said {
        for key in [&old, &stays, &new] {
            assert!(!text.contains(key.secret_looking()), "{text}");
        }
    }
}

#[test]
fn one_key_is_added_on_a_locked_out_node_and_taken_back() {
    let Some(pair) = pair(&["ed25519"], "me@desk") else {
        return;
    };
    let root = TestRoot::new();
    root.apply(&config());
    // Everything else may be in disorder: it stays so.
    root.write("etc/deep/er/one", "edited\n");
    let before = root.snapshot();
    let asked = root.run(&["apply", "--key", &pair.file()]).exits(1);
    assert!(
        asked
            .out()
            .contains(&format!("+ssh-ed25519 {} me@desk", pair.fingerprint)),
        "{}",
        asked.out()
    );
    let words: Vec<String> = asked.out().split_whitespace().map(str::to_owned).collect();
    assert!(
        words.join(" ").contains("verify reports the difference"),
        "{}",
        asked.out()
    );
    assert_eq!(root.snapshot(), before);

    let run = root.run(&["apply", "--yes", "--key", &pair.file()]).ok();
    assert!(
        run.out()
            .replace('\n', " ")
            .contains("mco-rescue rollback --root"),
        "{}",
        run.out()
    );
    assert_eq!(
        root.read(KEYS),
        format!("ssh-ed25519 AAAA a\n{}\n", pair.public)
    );
    assert_eq!(root.mode(KEYS), 0o600);
    let mut changed = root.snapshot();
    changed.insert(KEYS.to_owned(), before[KEYS].clone());
    assert_eq!(changed, before, "nothing else was changed");

    let verify = root.run(&["verify"]).exits(3).out();
    assert!(
        verify.contains(&pair.fingerprint) && verify.contains("the daemon does not check this"),
        "{verify}"
    );
    let status = root.run(&["status"]).ok().out();
    assert!(status.contains("an SSH key for core"), "{status}");
    // A second time there is nothing to do, and no run that rollback would take back first.
    let again = root.run(&["apply", "--yes", "--key", &pair.file()]).ok();
    assert!(again.out().contains("already"), "{}", again.out());
    root.run(&["rollback", "--yes"]).ok();
    assert_eq!(root.snapshot(), before);
}

#[test]
fn a_key_needs_no_record_and_goes_where_the_nodes_sshd_looks() {
    let Some(pair) = pair(&["ed25519"], "me@desk") else {
        return;
    };
    let root = TestRoot::new();
    let run = root
        .run(&["apply", "--yes", "--output", "json", "--key", &pair.file()])
        .ok();
    assert_eq!(run.json()["fingerprint"], pair.fingerprint.as_str());
    assert_eq!(root.read(KEYS), format!("{}\n", pair.public));
    for directory in ["home/core/.ssh", "home/core/.ssh/authorized_keys.d"] {
        assert_eq!(root.mode(directory), 0o700);
    }
    let old = TestRoot::new();
    old.write(
        "usr/lib/os-release",
        "ID=rhcos\nVARIANT_ID=coreos\nVERSION_ID=4.12\nRHEL_VERSION=8.6\n",
    );
    old.run(&["apply", "--yes", "--key", &pair.file()]).ok();
    assert_eq!(
        old.read("home/core/.ssh/authorized_keys"),
        format!("{}\n", pair.public)
    );
    assert!(!old.exists("home/core/.ssh/authorized_keys.d"));
    // A directory of keys that others may write is refused, and then the key is of no use.
    let open = TestRoot::new();
    std::fs::create_dir(open.path("home/core/.ssh")).unwrap();
    let (uid, gid) = open.core();
    std::os::unix::fs::chown(open.path("home/core/.ssh"), Some(uid), Some(gid)).unwrap();
    open.chmod("home/core/.ssh", 0o777);
    let run = open.run(&["apply", "--yes", "--key", &pair.file()]).ok();
    assert!(
        run.err().contains("sshd rejects it") && run.err().contains("FP-33"),
        "{}",
        run.err()
    );
    let none = TestRoot::new();
    none.remove("etc/passwd");
    let run = none
        .run(&["apply", "--yes", "--key", &pair.file()])
        .exits(1);
    assert!(run.out().contains("no user core"), "{}", run.out());
}

#[test]
fn a_key_for_a_missing_core_creates_that_user() {
    if !is_root() {
        return skip(Lacks::Root, "creating a user needs root");
    }
    let Some(pair) = pair(&["ed25519"], "me@desk") else {
        return;
    };
    let root = TestRoot::new();
    root.write("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    root.write("etc/group", "root:x:0:\nwheel:x:10:\nsudo:x:11:\n");
    root.write("etc/login.defs", "USERGROUPS_ENAB yes\n");
    root.write(
        "home/core/.ssh/authorized_keys.d/ignition",
        "ssh-ed25519 AAAA a\n",
    );
    let before = root.snapshot();
    let found = root.run(&["doctor"]).exits(6).out();
    let next = format!(
        "mco-rescue apply --key FILE --root {}",
        root.dir().display()
    );
    for wanted in [
        "no login works: the user core is missing",
        &format!("  Next     {next}\n"),
        "/etc/passwd: no user core",
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let run = root.run(&["apply", "--yes", "--key", &pair.file()]).ok();
    let said = flat(&run.out());
    assert!(
        said.contains("the user core is missing, and is created"),
        "{said}"
    );
    let passwd = root.read("etc/passwd");
    assert!(
        passwd.contains("\ncore:x:1000:1000:CoreOS Admin:/home/core:"),
        "{passwd}"
    );
    assert!(root.read("etc/group").contains("wheel:x:10:core"));
    assert_eq!(
        root.read(KEYS),
        format!("ssh-ed25519 AAAA a\n{}\n", pair.public)
    );
    let found = root.run(&["doctor"]);
    assert!(!found.out().contains("FP-33:"), "{}", found.out());
    root.run(&["rollback", "--yes"]).ok();
    let mut after = root.snapshot();
    // The lock of the account files stays.
    after.remove("etc/.pwd.lock");
    assert_eq!(after, before);
}

#[test]
fn what_is_not_a_public_key_is_refused_with_place_and_words_and_never_shown() {
    let (Some(pair), Some(rsa)) = (
        pair(&["ed25519"], "me"),
        pair(&["rsa", "-b", "1024"], "weak"),
    ) else {
        return;
    };
    let root = TestRoot::new();
    let before = root.everything();
    let private = fs::read_to_string(pair.private()).unwrap();
    let run = root
        .run(&["apply", "--yes", "--key", &pair.private()])
        .exits(1);
    assert!(
        run.err().contains("private key") && run.err().contains(&pair.file()),
        "{}",
        run.err()
    );
    for line in private.lines().filter(|line| !line.starts_with('-')) {
        assert!(!(run.out() + &run.err()).contains(line));
    }
    let half = &pair.public[..40];
    let wrapped = pair.public.replacen("AAAAC3", "AAAAC3\n", 1);
    let other = pair.public.replacen("ssh-ed25519", "ssh-rsa", 1);
    let two = format!("{0}\n{0}\n", pair.public);
    let optioned = format!("no-pty {}", pair.public);
    let rubbish = format!("# my key\n\n{}", "hunter2 is not a key");
    for (text, words) in [
        (half, "line 1 is not a complete key"),
        (&wrapped, "line 1 is not a complete key"),
        (&other, "line 1 says ssh-rsa"),
        (&two, "has 2 keys"),
        (&optioned, "line 1 has options"),
        (&rsa.public, "RSA key of 1024 bits"),
        (
            "ssh-dss AAAAB3NzaC1kc3M= old",
            "line 1 is a ssh-dss key, which sshd does not accept",
        ),
        (&rubbish, "line 3 is not a public key"),
        ("", "has no key"),
        (
            "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 4\nhunter2\n",
            "private key",
        ),
        ("-----BEGIN EC PRIVATE KEY-----\nhunter2\n", "private key"),
        (
            "---- BEGIN SSH2 PUBLIC KEY ----\nhunter2\n",
            "ssh-keygen -i -f",
        ),
    ] {
        let file = pair.dir.path().join("given");
        fs::write(&file, text).unwrap();
        let run = root
            .run(&["apply", "--yes", "--key", file.to_str().unwrap()])
            .exits(1);
        assert!(run.err().contains(words), "{words}: {}", run.err());
        assert!(
            !run.err().contains("hunter2") && !run.err().contains("\\n"),
            "{}",
            run.err()
        );
        assert!(run.err().contains(file.to_str().unwrap()), "{}", run.err());
    }
    let run = root.run(&["apply", "--key", "/nowhere.pub"]).exits(1);
    assert!(run.err().contains("/nowhere.pub"), "{}", run.err());
    root.run(&["apply", "--key", &pair.file(), "x.yaml"])
        .exits(2);
    assert_eq!(root.everything(), before);
}
