//! Users and groups of bare Ignition configs: the account files, homes and keys that Ignition itself makes, from
//! the real tools, on a second run too.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::ignition::{can_compare, try_ignite};
use crate::support::{
    self, Lacks, PROGRAM, Snapshot, TestRoot, file, flat_run, is_root, say, skip,
};
use mco_rescue::host::root::Root;
use mco_rescue::node::command::{CommandError, CommandLine, CommandOutput, CommandRunner};
use serde_json::{Value, json};

const OLD_HASH: &str = "$6$old$oldhash";

fn config(mut parts: Value) -> Value {
    // What Debian's Ignition takes at most.
    parts["ignition"] = json!({"version": "3.3.0"});
    parts
}

fn users(users: Value) -> Value {
    config(json!({"passwd": {"users": users}}))
}

fn groups(groups: Value) -> Value {
    config(json!({"passwd": {"groups": groups}}))
}

/// Whether accounts can be made here.
fn can_run() -> bool {
    let tools = std::path::Path::new("/usr/sbin/useradd").exists();
    if !is_root() || !tools {
        skip(
            Lacks::root_or_program("useradd"),
            "making accounts needs root and shadow-utils",
        );
    }
    is_root() && tools
}

/// A small root with real account files: `core` and `old` have homes, `daemon` has none of its own.
fn accounts() -> TestRoot {
    let root = TestRoot::new();
    let lines = "root:x:0:0:root:/root:/bin/bash\n\
                 daemon:x:2:2:daemon:/sbin:/sbin/nologin\n\
                 core:x:1000:1000:CoreOS Admin:/home/core:/bin/bash\n\
                 old:x:1100:1100:Old User:/home/old:/bin/bash\n";
    root.write("etc/passwd", lines);
    let lines = "root:x:0:\ndaemon:x:2:\nmail:x:12:\nwheel:x:10:core,old\nadm:x:4:old\nusers:x:100:\n\
                 core:x:1000:\nold:x:1100:\nspare:x:1200:\n";
    root.write("etc/group", lines);
    let lines = format!(
        "root:*:19000:0:99999:7:::\ndaemon:*:19000:0:99999:7:::\ncore:!:19000:0:99999:7:::\n\
         old:{OLD_HASH}:19000:0:99999:7:::\n"
    );
    root.write("etc/shadow", &lines);
    let lines = "root:::\ndaemon:::\nmail:::\nwheel:::core,old\nadm:::old\nusers:::\ncore:!::\nold:!::\nspare:!::\n";
    root.write("etc/gshadow", lines);
    root.chmod("etc/shadow", 0);
    root.chmod("etc/gshadow", 0);
    root.write("etc/subuid", "core:100000:65536\n");
    root.write("etc/subgid", "core:100000:65536\n");
    let lines = "MAIL_DIR /var/spool/mail\nUMASK 022\nHOME_MODE 0700\nPASS_MAX_DAYS 99999\nPASS_MIN_DAYS 0\n\
                 PASS_WARN_AGE 7\nUID_MIN 1000\nUID_MAX 60000\nSYS_UID_MIN 201\nSYS_UID_MAX 999\nGID_MIN 1000\n\
                 GID_MAX 60000\nSYS_GID_MIN 201\nSYS_GID_MAX 999\nCREATE_HOME yes\nUSERGROUPS_ENAB yes\n\
                 ENCRYPT_METHOD SHA512\n";
    root.write("etc/login.defs", lines);
    let lines = "GROUP=100\nHOME=/home\nINACTIVE=-1\nEXPIRE=\nSHELL=/bin/bash\nSKEL=/etc/skel\nCREATE_MAIL_SPOOL=yes\n";
    root.write("etc/default/useradd", lines);
    root.write(
        "etc/nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\n",
    );
    root.write("etc/skel/.bash profile", "# a profile\n");
    root.write("etc/skel/bin/tool", "#!/bin/sh\n");
    root.chmod("etc/skel/bin/tool", 0o755);
    root.chmod("etc/skel/bin", 0o750);
    root.link("etc/skel/profile", "/etc/skel/.bash profile");
    root.link("etc/skel/elsewhere", "../nowhere");
    root.write("home/old/work", "years of it\n");
    root.link("home/old/link", "/etc/passwd");
    for dir in ["var/spool/mail", "sbin", "root", "proc"] {
        fs::create_dir_all(root.path(dir)).unwrap();
    }
    for path in ["home/old", "home/old/work", "home/old/link"] {
        std::os::unix::fs::lchown(root.path(path), Some(1100), Some(1100)).unwrap();
    }
    root
}

/// Everything that both make: not the copies that the tools keep of old files, nor what each keeps for itself.
fn comparable(root: &TestRoot) -> Snapshot {
    let own = [
        "etc/machine-config-daemon",
        "etc/.ignition-result.json",
        "etc/.pwd.lock",
        "etc/passwd-",
        "etc/shadow-",
        "etc/group-",
        "etc/gshadow-",
        "etc/subuid-",
        "etc/subgid-",
    ];
    let mut tree = root.snapshot();
    tree.retain(|path, _| !own.contains(&path.as_str()));
    tree
}

fn today() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
        / 86_400
}

/// What came of one config.
enum Outcome {
    /// The same tree of this many paths.
    Same(usize),
    /// Both refused it.
    Refused,
}

/// Applies by Ignition and by us, from one start state, and compares the trees. `left` are paths that we leave on
/// purpose.
fn compare(name: &str, config: &Value, start: &dyn Fn(&TestRoot), left: &[&str]) -> Outcome {
    loop {
        // The day of the last change is in the shadow file; over midnight the comparison is made again.
        let day = today();
        let outcome = compare_once(name, config, start, left);
        if day == today() {
            return outcome;
        }
    }
}

fn compare_once(name: &str, config: &Value, start: &dyn Fn(&TestRoot), left: &[&str]) -> Outcome {
    let (theirs, ours) = (accounts(), accounts());
    start(&theirs);
    start(&ours);
    let before = ours.everything();
    let said = reference(&theirs, config);
    let document = ours.config(config);
    let run = ours.run(&["apply", "--yes", document.path()]);
    let Ok(()) = said else {
        assert_eq!(
            run.code(),
            1,
            "{name}: only Ignition refuses\n{}\n{config}\n{}",
            said.unwrap_err(),
            run.out()
        );
        assert_eq!(ours.snapshot(), without_state(before), "{name}");
        return Outcome::Refused;
    };
    assert_eq!(
        run.code(),
        0,
        "{name}: {}{}\n{config}",
        run.out(),
        run.err()
    );
    let (wanted, mut found) = (comparable(&theirs), comparable(&ours));
    for path in left {
        let prefix = format!("{path}/");
        assert!(
            found.contains_key(*path) && !wanted.contains_key(*path),
            "{name}: {path}"
        );
        found.retain(|at, _| at != path && !at.starts_with(&prefix));
    }
    for (path, entry) in &wanted {
        let other = found.get(path);
        assert_eq!(
            other,
            Some(entry),
            "{name}: {path}: {} / {}\n{config}",
            text(other),
            text(Some(entry))
        );
    }
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>(),
        "{name}"
    );
    same_again(name, &ours, document.path());
    Outcome::Same(wanted.len())
}

/// Ignition's tree. Debian's version gives every new group the password `*` and cannot change existing ones; what
/// newer ones do with such groups is done here by the tools themselves (docs/develop/ignition.md: Users).
fn reference(root: &TestRoot, config: &Value) -> Result<(), String> {
    let groups = config["passwd"]["groups"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = root.read("etc/group");
    let exists = |group: &Value| {
        text.lines()
            .any(|line| line.split(':').next() == group["name"].as_str())
    };
    let hashed = |group: &Value| {
        group["passwordHash"]
            .as_str()
            .is_some_and(|hash| !hash.is_empty())
    };
    if groups.iter().all(|group| hashed(group) && !exists(group)) {
        return try_ignite(root, config);
    }
    for group in &groups {
        let gone = group["shouldExist"] == json!(false);
        let (program, there) = match (exists(group), gone) {
            (false, true) => continue,
            (true, true) => ("groupdel", true),
            (false, false) => ("groupadd", false),
            (true, false) => ("groupmod", true),
        };
        let mut command = Command::new(format!("/usr/sbin/{program}"));
        command.arg("--root").arg(root.dir());
        if !gone && group["gid"].is_i64() {
            command.args(["--gid", &group["gid"].to_string()]);
        }
        if !gone && hashed(group) {
            command.args(["--password", group["passwordHash"].as_str().unwrap()]);
        }
        if !there && group["system"] == json!(true) {
            command.arg("--system");
        }
        let run = command
            .arg(group["name"].as_str().unwrap())
            .output()
            .unwrap();
        if !run.status.success() {
            return Err(String::from_utf8_lossy(&run.stderr).into_owned());
        }
    }
    let mut users = config.clone();
    users["passwd"]["groups"] = json!([]);
    try_ignite(root, &users)
}

fn without_state(mut tree: Snapshot) -> Snapshot {
    tree.retain(|path, _| !path.starts_with("var/lib/mco-rescue"));
    tree
}

fn text(entry: Option<&support::Entry>) -> String {
    entry.map_or_else(String::new, |e| {
        String::from_utf8_lossy(&e.content).into_owned()
    })
}

/// A second run has nothing to do, and `verify` finds nothing.
fn same_again(name: &str, root: &TestRoot, config: &str) {
    let before = root.everything();
    let plan = root.run(&["plan", config, "--output", "json"]).ok().json();
    assert_eq!(plan["steps"], json!([]), "{name}");
    root.run(&["apply", "--yes", config]).ok();
    root.run(&["verify", config]).ok();
    assert_eq!(root.everything(), before, "{name}");
}

/// Name, config, and what we leave where Ignition removes it.
type Case = (&'static str, Value, &'static [&'static str]);

fn cases() -> Vec<Case> {
    let key = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ test@host";
    vec![
        (
            "groups.add",
            groups(
                json!([{"name": "testgroup", "gid": 1500}, {"name": "systemgroup", "system": true}]),
            ),
            &[],
        ),
        (
            "users.add",
            users(json!([
                {"name": "test", "passwordHash": "zJW/EKqqIk44o", "sshAuthorizedKeys": [key]},
                {"name": "jenkins", "uid": 1020, "shouldExist": true},
            ])),
            &[],
        ),
        (
            "every field of a user",
            config(
                json!({"passwd": {"groups": [{"name": "team", "gid": 3000}], "users": [{
                    "name": "full", "uid": 2000, "gecos": "Full Name,Room 1", "homeDir": "/srv/homes/full",
                    "primaryGroup": "team", "groups": ["wheel", "adm"], "noLogInit": true, "shell": "/bin/zsh",
                    "passwordHash": "$6$salt$hash", "sshAuthorizedKeys": [key, "ssh-ed25519 AAAA second"],
                }]}}),
            ),
            &[],
        ),
        (
            "a primary group by number",
            users(json!([{"name": "a", "primaryGroup": "100"}])),
            &[],
        ),
        (
            "a system user",
            users(json!([{"name": "svc", "system": true}])),
            &[],
        ),
        (
            "a system user without home",
            users(
                json!([{"name": "svc", "system": true, "noCreateHome": true, "shell": "/sbin/nologin"}]),
            ),
            &[],
        ),
        (
            "no group of its own",
            users(json!([{"name": "a", "noUserGroup": true}])),
            &[],
        ),
        (
            "no home",
            users(json!([{"name": "a", "noCreateHome": true, "gecos": "nobody's home"}])),
            &[],
        ),
        (
            "an empty hash and no hash",
            users(json!([{"name": "a", "passwordHash": ""}, {"name": "b", "passwordHash": null}])),
            &[],
        ),
        (
            "empty texts count as none",
            users(
                json!([{"name": "a", "homeDir": "", "gecos": "", "shell": "", "primaryGroup": "", "groups": []}]),
            ),
            &[],
        ),
        (
            "two users with each other's ids taken",
            users(json!([{"name": "a"}, {"name": "b", "uid": 1102}, {"name": "c"}])),
            &[],
        ),
        (
            "false is not true",
            users(
                json!([{"name": "a", "system": false, "noCreateHome": false, "noUserGroup": false, "noLogInit": false}]),
            ),
            &[],
        ),
        (
            "a group password",
            groups(
                json!([{"name": "g", "passwordHash": "$6$a$b"}, {"name": "h", "passwordHash": ""}]),
            ),
            &[],
        ),
        (
            "an existing group gets another number",
            groups(json!([{"name": "spare", "gid": 1201}])),
            &[],
        ),
        (
            "an existing group gets a password",
            groups(json!([{"name": "spare", "passwordHash": "$6$a$b"}])),
            &[],
        ),
        (
            "an existing group stays",
            groups(json!([{"name": "spare", "system": true}])),
            &[],
        ),
        (
            "a group goes",
            groups(
                json!([{"name": "spare", "shouldExist": false}, {"name": "nope", "shouldExist": false}]),
            ),
            &[],
        ),
        (
            "a user goes, its home stays",
            users(
                json!([{"name": "old", "shouldExist": false}, {"name": "nope", "shouldExist": false}]),
            ),
            &["home/old"],
        ),
        (
            "an existing user is changed",
            users(
                json!([{"name": "old", "gecos": "New Name", "shell": "/bin/sh", "groups": ["adm", "spare"], "passwordHash": "$6$new$hash"}]),
            ),
            &[],
        ),
        (
            "an existing user is locked",
            users(json!([{"name": "old", "passwordHash": ""}])),
            &[],
        ),
        (
            "an existing user without hash keeps it",
            users(json!([{"name": "old", "gecos": "x"}])),
            &[],
        ),
        (
            "keys for an existing user",
            users(json!([{"name": "old", "sshAuthorizedKeys": [key]}])),
            &[],
        ),
        (
            "another uid takes the files along",
            users(json!([{"name": "old", "uid": 1101}])),
            &[],
        ),
        (
            "another group takes the files along",
            users(json!([{"name": "old", "primaryGroup": "spare"}])),
            &[],
        ),
        (
            "other ids and keys at once",
            users(
                json!([{"name": "old", "uid": 1101, "primaryGroup": "users", "sshAuthorizedKeys": [key]}]),
            ),
            &[],
        ),
        (
            "owners by name of users and groups that the same config makes",
            config(json!({
                "passwd": {"users": [{"name": "web"}], "groups": [{"name": "www"}]},
                "storage": {
                    "files": [{"path": "/srv/www/index", "user": {"name": "web"}, "group": {"name": "www"}, "contents": {"source": "data:,x"}}],
                    "directories": [{"path": "/srv/www", "user": {"name": "web"}, "mode": 0o2755 & 0o777}],
                    "links": [{"path": "/srv/link", "target": "/srv/www", "user": {"name": "web"}, "group": {"name": "web"}}],
                },
            })),
            &[],
        ),
        (
            "directories in the home have the mode that the config gives",
            config(json!({
                "passwd": {"users": [{"name": "test", "sshAuthorizedKeys": [key]}]},
                "storage": {"directories": [
                    {"path": "/home/test/.ssh", "mode": 0o750, "user": {"name": "test"}, "group": {"name": "test"}},
                    {"path": "/home/test", "mode": 0o711},
                ]},
            })),
            &[],
        ),
        (
            "a name that no user may have",
            users(json!([{"name": "a b"}])),
            &[],
        ),
        ("no name at all", users(json!([{}])), &[]),
        (
            "a colon in the comment",
            users(json!([{"name": "old", "gecos": "a:b"}])),
            &[],
        ),
        (
            "a uid that is taken",
            users(json!([{"name": "a", "uid": 1100}])),
            &[],
        ),
        (
            "a gid that is taken",
            groups(json!([{"name": "a", "gid": 1100}])),
            &[],
        ),
        (
            "a negative uid",
            users(json!([{"name": "a", "uid": -7}])),
            &[],
        ),
        (
            "a primary group that is missing",
            users(json!([{"name": "a", "primaryGroup": "nope"}])),
            &[],
        ),
        (
            "a supplementary group that is missing",
            users(json!([{"name": "old", "groups": ["adm", "nope"]}])),
            &[],
        ),
        (
            "a group that is somebody's primary one",
            groups(json!([{"name": "old", "shouldExist": false}])),
            &[],
        ),
        (
            "two users with keys in one home",
            users(json!([
                {"name": "a", "homeDir": "/srv/x", "sshAuthorizedKeys": ["ssh-rsa A"]},
                {"name": "b", "homeDir": "/srv/x", "sshAuthorizedKeys": ["ssh-rsa B"]},
            ])),
            &[],
        ),
        (
            "an option as a comment",
            users(json!([{"name": "a", "gecos": "--root"}])),
            &[],
        ),
        (
            "a relative home",
            users(json!([{"name": "a", "homeDir": "home/a"}])),
            &[],
        ),
        (
            "a colon in the hash",
            users(json!([{"name": "a", "passwordHash": "a:b"}])),
            &[],
        ),
    ]
}

#[test]
fn every_field_comes_out_as_ignition_has_it() {
    if !can_compare() {
        return;
    }
    let (mut same, mut refused) = (0, 0);
    for (name, config, left) in cases() {
        match compare(name, &config, &|_| {}, left) {
            Outcome::Same(_) => same += 1,
            Outcome::Refused => refused += 1,
        }
    }
    assert!(same >= 27 && refused >= 10, "{same} {refused}");
    say(&format!(
        "{same} configs with users and groups give Ignition's tree, {refused} are refused by both"
    ));
}

/// Changes the start state.
type Start<'a> = &'a dyn Fn(&TestRoot);

#[test]
fn other_start_states_come_out_as_ignition_has_it() {
    if !can_compare() {
        return;
    }
    let one = users(json!([{"name": "a", "groups": ["adm"], "passwordHash": "$6$a$b"}]));
    let states: [(&str, Start<'_>); 9] = [
        ("no subordinate ids", &|root| {
            root.remove("etc/subuid");
            root.remove("etc/subgid");
        }),
        ("no gshadow", &|root| root.remove("etc/gshadow")),
        ("no defaults of useradd", &|root| {
            root.remove("etc/default/useradd")
        }),
        ("no skeleton", &|root| {
            fs::remove_dir_all(root.path("etc/skel")).unwrap()
        }),
        ("no directory for mail", &|root| {
            fs::remove_dir(root.path("var/spool/mail")).unwrap()
        }),
        ("a mailbox that is there", &|root| {
            root.write("var/spool/mail/a", "mail\n")
        }),
        ("a home that is there", &|root| {
            root.write("home/a/own", "x\n")
        }),
        ("a link to the homes", &|root| {
            fs::rename(root.path("home"), root.path("var/home")).unwrap();
            symlink("var/home", root.path("home")).unwrap();
        }),
        ("malformed lines", &|root| {
            let lines = root.read("etc/passwd") + "broken\n::\na b:x:y:z\n";
            root.write("etc/passwd", &lines);
        }),
    ];
    for (name, start) in states {
        assert!(
            matches!(compare(name, &one, start, &[]), Outcome::Same(_)),
            "{name}"
        );
    }
}

/// A small generator with a fixed seed: the same configs in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one<'t>(&mut self, of: &[&'t str]) -> &'t str {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    /// A field in one of so many cases.
    fn field(
        &mut self,
        entry: &mut Value,
        one_in: u64,
        name: &str,
        value: impl FnOnce(&mut Self) -> Value,
    ) {
        if self.below(one_in) == 0 {
            entry[name] = value(self);
        }
    }

    fn group(&mut self, name: &str) -> Value {
        let mut group = json!({"name": name});
        let number = 1200 + self.below(400);
        self.field(&mut group, 2, "gid", |_| json!(number));
        self.field(&mut group, 3, "passwordHash", |_| {
            json!(format!("$6$g{number}$hash"))
        });
        self.field(&mut group, 4, "system", |r| json!(r.below(2) == 0));
        self.field(&mut group, 40, "shouldExist", |r| json!(r.below(2) == 0));
        group
    }

    fn user(&mut self, name: &str) -> Value {
        let is_new = name.starts_with('u');
        let mut user = json!({"name": name});
        let number = 2000 + self.below(600);
        let groups = ["wheel", "adm", "users", "spare", "g0", "g1", "100"];
        self.field(&mut user, 3, "uid", |_| json!(number));
        self.field(&mut user, 2, "passwordHash", |r| {
            json!(r.one(&["", "$6$a$b", "$6$c$d", "!x"]))
        });
        self.field(&mut user, 2, "gecos", |r| {
            json!(r.one(&["", "A B", "R\u{f6}mer,1", "-x"]))
        });
        self.field(&mut user, 3, "primaryGroup", |r| json!(r.one(&groups)));
        self.field(&mut user, 2, "groups", |r| {
            let mut chosen: Vec<_> = groups.iter().take(6).filter(|_| r.below(3) == 0).collect();
            chosen.dedup();
            json!(chosen)
        });
        self.field(&mut user, 4, "shell", |r| {
            json!(r.one(&["/bin/sh", "/sbin/nologin", ""]))
        });
        self.field(&mut user, 4, "noUserGroup", |r| json!(r.below(2) == 0));
        self.field(&mut user, 4, "noLogInit", |r| json!(r.below(2) == 0));
        self.field(&mut user, 4, "system", |r| json!(r.below(2) == 0));
        self.field(&mut user, 2, "sshAuthorizedKeys", |r| {
            json!([format!("ssh-rsa A{}", r.below(9)), "ssh-rsa B"])
        });
        if is_new {
            self.field(&mut user, 3, "homeDir", |r| {
                json!(r.one(&["/srv/a b/home", "/var/lib/x", "/home/deep/er", ""]))
            });
            self.field(&mut user, 5, "noCreateHome", |r| json!(r.below(2) == 0));
            self.field(&mut user, 9, "shouldExist", |r| json!(r.below(2) == 0));
        }
        user
    }

    fn config(&mut self) -> Value {
        let (mut groups, mut users) = (Vec::new(), Vec::new());
        for name in ["spare", "g0", "g1", "adm"] {
            if self.below(8) > 0 {
                groups.push(self.group(name));
            }
        }
        for name in ["old", "core", "u0", "u1", "u2"] {
            if self.below(2) == 0 {
                users.push(self.user(name));
            }
        }
        config(json!({"passwd": {"groups": groups, "users": users}}))
    }
}

fn compare_generated(seed: u64, rounds: u32) {
    if !can_compare() {
        return;
    }
    let mut random = Random(seed);
    let (mut same, mut paths, mut refused) = (0, 0, 0);
    for round in 0..rounds {
        let config = random.config();
        match compare(
            &format!("seed {seed}, round {round}"),
            &config,
            &|_| {},
            &[],
        ) {
            Outcome::Same(count) => {
                same += 1;
                paths += count;
            }
            Outcome::Refused => refused += 1,
        }
    }
    assert!(same >= rounds / 2, "seed {seed}: {same} of {rounds}");
    say(&format!(
        "seed {seed}: {same} generated configs give Ignition's accounts ({paths} paths), {refused} are refused by both"
    ));
}

#[test]
fn generated_accounts_come_out_as_ignition_has_them() {
    compare_generated(20_261_121, 75);
}

#[test]
fn more_generated_accounts_come_out_as_ignition_has_them() {
    compare_generated(7, 75);
}

/// Applied, and a second run has nothing to do. Gives what was said.
fn applies(root: &TestRoot, config: &Value) -> String {
    let document = root.config(config);
    let run = root.run(&["apply", "--yes", document.path()]).ok();
    same_again("applied", root, document.path());
    flat_run(&run)
}

/// Refused with these words by `plan` and `apply`, and nothing is changed.
fn refused(root: &TestRoot, config: &Value, words: &str) {
    let before = root.snapshot();
    let document = root.config(config);
    for args in [
        &["plan", document.path()][..],
        &["apply", "--yes", document.path()],
    ] {
        let run = root.run(args).exits(1);
        assert!(flat_run(&run).contains(words), "{}", flat_run(&run));
    }
    assert_eq!(root.snapshot(), before);
}

fn line(root: &TestRoot, path: &str, name: &str) -> String {
    let text = root.read(path);
    let found = text
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")));
    found.unwrap_or_default().to_owned()
}

#[test]
fn plan_shows_every_step_and_changes_nothing() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let before = root.everything();
    let config = root.config(&users(
        json!([{"name": "a", "sshAuthorizedKeys": ["ssh-rsa A"], "groups": ["adm"]}]),
    ));
    let plan = root
        .run(&["plan", config.path(), "--output", "json"])
        .ok()
        .json();
    let steps = plan["steps"].as_array().unwrap();
    let paths: Vec<&str> = steps
        .iter()
        .map(|step| step["path"].as_str().unwrap())
        .collect();
    for path in [
        "/etc/passwd",
        "/etc/shadow",
        "/etc/group",
        "/etc/gshadow",
        "/etc/subuid",
        "/etc/subgid",
        "/home/a",
        "/home/a/bin/tool",
        "/var/spool/mail/a",
        "/home/a/.ssh/authorized_keys.d/ignition",
    ] {
        assert!(paths.contains(&path), "{path} is not in {paths:?}");
    }
    assert_eq!(root.everything(), before);
    let verify = root.run(&["verify", config.path()]).exits(3);
    assert!(
        flat_run(&verify).contains("/etc/passwd users or groups differ"),
        "{}",
        flat_run(&verify)
    );
    assert_eq!(root.everything(), before);
}

#[test]
fn verify_finds_what_was_changed_by_hand() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let config =
        users(json!([{"name": "a", "shell": "/bin/sh", "sshAuthorizedKeys": ["ssh-rsa A"]}]));
    applies(&root, &config);
    let document = root.config(&config);
    let lines = root
        .read("etc/passwd")
        .replace("/home/a:/bin/sh", "/home/a:/bin/zsh");
    root.write("etc/passwd", &lines);
    root.write("home/a/.ssh/authorized_keys.d/ignition", "ssh-rsa B\n");
    let verify = flat_run(&root.run(&["verify", document.path()]).exits(3));
    assert!(
        verify.contains("/etc/passwd") && verify.contains("SSH keys of a"),
        "{verify}"
    );
    applies(&root, &config);
    assert!(line(&root, "etc/passwd", "a").ends_with("/home/a:/bin/sh"));
}

#[test]
fn a_filled_home_is_not_moved_but_the_command_is_said() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let config = users(json!([{"name": "old", "homeDir": "/srv/old home"}]));
    refused(
        &root,
        &config,
        "passwd.users[0].homeDir: the home should move to /srv/old home, and /home/old is not empty.",
    );
    refused(&root, &config, "mv -T /home/old '/srv/old home'");
    fs::create_dir_all(root.path("srv")).unwrap();
    fs::rename(root.path("home/old"), root.path("srv/old home")).unwrap();
    applies(&root, &config);
    assert!(line(&root, "etc/passwd", "old").contains(":/srv/old home:"));
    assert_eq!(root.read("srv/old home/work"), "years of it\n");
}

#[test]
fn an_empty_home_moves_with_its_mode_and_owner() {
    if !can_run() {
        return;
    }
    let root = accounts();
    fs::remove_file(root.path("home/old/work")).unwrap();
    fs::remove_file(root.path("home/old/link")).unwrap();
    root.chmod("home/old", 0o711);
    let said = applies(
        &root,
        &users(json!([{"name": "old", "homeDir": "/srv/old", "uid": 1500}])),
    );
    assert!(said.contains("rmdir /home/old"), "{said}");
    let entry = &root.everything()["srv/old"];
    assert_eq!((entry.mode, entry.owner), (0o711, (1500, 1100)));
}

#[test]
fn a_missing_home_is_made_only_for_keys() {
    if !can_run() {
        return;
    }
    let root = accounts();
    fs::remove_dir_all(root.path("home/old")).unwrap();
    applies(&root, &users(json!([{"name": "old", "gecos": "x"}])));
    assert!(!root.exists("home/old"));
    let keys = json!([{"name": "old", "noCreateHome": true, "sshAuthorizedKeys": ["ssh-rsa A"]}]);
    refused(&root, &users(keys), "noCreateHome is set");
    applies(
        &root,
        &users(json!([{"name": "old", "sshAuthorizedKeys": ["ssh-rsa A"]}])),
    );
    let tree = root.everything();
    for (path, mode) in [
        ("home/old", 0o700),
        ("home/old/.ssh", 0o700),
        ("home/old/.ssh/authorized_keys.d/ignition", 0o600),
    ] {
        assert_eq!(
            (tree[path].mode, tree[path].owner),
            (mode, (1100, 1100)),
            "{path}"
        );
    }
}

#[test]
fn no_keys_leave_the_keys_that_are_there() {
    if !can_run() {
        return;
    }
    let root = accounts();
    applies(
        &root,
        &users(json!([{"name": "old", "sshAuthorizedKeys": ["ssh-rsa A"]}])),
    );
    applies(
        &root,
        &users(json!([{"name": "old", "sshAuthorizedKeys": []}])),
    );
    assert_eq!(
        root.read("home/old/.ssh/authorized_keys.d/ignition"),
        "ssh-rsa A\n"
    );
}

#[test]
fn a_link_in_the_home_is_not_followed() {
    if !can_run() {
        return;
    }
    let root = accounts();
    fs::create_dir_all(root.path("srv/other")).unwrap();
    root.link("home/old/.ssh", "/srv/other");
    let config = users(json!([{"name": "old", "sshAuthorizedKeys": ["ssh-rsa A"]}]));
    refused(
        &root,
        &config,
        "/home/old/.ssh: a symbolic link to /srv/other is where a directory should be",
    );
}

#[test]
fn what_a_removed_user_leaves_is_said_and_kept() {
    if !can_run() {
        return;
    }
    let root = accounts();
    root.write("var/spool/mail/old", "mail\n");
    let config = root.config(&users(json!([{"name": "old", "shouldExist": false}])));
    let said = flat_run(&root.run(&["apply", "--yes", config.path()]).ok());
    assert!(
        said.contains("rm -rf /home/old") && said.contains("rm -rf /var/spool/mail/old"),
        "{said}"
    );
    assert_eq!(root.read("home/old/work"), "years of it\n");
    assert_eq!(
        (
            line(&root, "etc/passwd", "old"),
            line(&root, "etc/shadow", "old")
        ),
        (String::new(), String::new())
    );
}

#[test]
fn nobody_is_locked_out_of_core() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let lines = root.read("etc/shadow").replace("core:!:", "core:$6$a$b:");
    root.write("etc/shadow", &lines);
    let words = "neither key nor password is left. Use --allow-lockout";
    let locked = users(json!([{"name": "core", "passwordHash": ""}]));
    refused(&root, &locked, words);
    refused(
        &root,
        &users(json!([{"name": "core", "shouldExist": false}])),
        words,
    );
    applies(
        &root,
        &users(json!([{"name": "core", "passwordHash": "", "sshAuthorizedKeys": ["ssh-rsa A"]}])),
    );
    // With a key the password may go; then the key is the last one.
    let config = users(json!([{"name": "core", "shouldExist": false}]));
    refused(&root, &config, words);
    let document = root.config(&config);
    root.run(&["apply", "--yes", "--allow-lockout", document.path()])
        .ok();
    assert_eq!(line(&root, "etc/passwd", "core"), "");
}

#[test]
fn users_and_groups_of_the_os_come_to_etc_only_where_they_change() {
    if !can_run() {
        return;
    }
    let root = accounts();
    root.write(
        "usr/lib/passwd",
        "svc:x:990:990:Service:/:/sbin/nologin\ntaken:x:1101:1101::/:/sbin/nologin\n",
    );
    root.write(
        "usr/lib/group",
        "wheel:x:10:\njournal:x:190:\nsvc:x:990:\nrender:x:105:\n",
    );
    let before = root.read("etc/passwd");
    applies(
        &root,
        &users(json!([{"name": "a", "groups": ["wheel", "journal"]}])),
    );
    // The numbers of the OS's own users are taken.
    assert!(line(&root, "etc/passwd", "a").starts_with("a:x:1102:1102:"));
    assert!(root.read("etc/passwd").starts_with(&before));
    assert_eq!(
        root.read("etc/passwd").lines().count(),
        before.lines().count() + 1
    );
    assert_eq!(line(&root, "etc/group", "wheel"), "wheel:x:10:core,old,a");
    assert_eq!(line(&root, "etc/group", "journal"), "journal:x:190:a");
    assert_eq!(
        line(&root, "etc/group", "render") + &line(&root, "etc/group", "svc"),
        ""
    );
    applies(&root, &users(json!([{"name": "svc", "gecos": "Other"}])));
    assert_eq!(
        line(&root, "etc/passwd", "svc"),
        "svc:x:990:990:Other:/:/sbin/nologin"
    );
    refused(
        &root,
        &users(json!([{"name": "taken", "shouldExist": false}])),
        "comes with the OS, in /usr/lib/passwd",
    );
    refused(
        &root,
        &groups(json!([{"name": "render", "shouldExist": false}])),
        "comes with the OS, in /usr/lib/group",
    );
}

#[test]
fn a_tool_that_refuses_is_quoted_with_its_entry() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let cases = [
        (
            users(json!([{"name": "a", "uid": 1100}])),
            "passwd.users[0]: useradd: UID 1100 is not unique.",
        ),
        (
            users(json!([{"name": "a"}, {"name": "old", "homeDir": "home"}])),
            "passwd.users[1]: usermod: homedir must be an absolute path",
        ),
        (
            groups(json!([{"name": "g"}, {"name": "h", "gid": 10}])),
            "passwd.groups[1]: groupadd: GID '10' already exists",
        ),
        (
            users(json!([{"name": "a", "passwordHash": "x:y"}])),
            "passwd.users[0].passwordHash is not a password hash",
        ),
    ];
    for (config, words) in cases {
        refused(&root, &config, words);
    }
}

#[test]
fn account_files_that_cannot_be_read_or_replaced_are_named() {
    if !can_run() {
        return;
    }
    let one = users(json!([{"name": "a"}]));
    let root = accounts();
    root.remove("etc/group");
    fs::create_dir(root.path("etc/group")).unwrap();
    refused(&root, &one, "/etc/group: is a directory");
    let root = accounts();
    fs::rename(root.path("etc/group"), root.path("etc/group.real")).unwrap();
    root.link("etc/group", "group.real");
    refused(&root, &one, "/etc/group is not a regular file");
    let root = accounts();
    root.remove("etc/passwd");
    refused(
        &root,
        &one,
        "the root has no /etc/passwd, so its accounts cannot be changed. Check --root",
    );
}

#[test]
fn the_lock_of_the_account_files_is_respected() {
    if !can_run() {
        return;
    }
    let root = accounts();
    root.write("etc/.pwd.lock", "");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(root.path("etc/.pwd.lock"))
        .unwrap();
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_SETLK(&whole)).unwrap();
    let document = root.config(&groups(json!([{"name": "spare", "gid": 1201}])));
    let run = root.run(&["apply", "--yes", document.path()]).exits(1);
    assert!(
        flat_run(&run).contains("locking the account files (/etc/.pwd.lock)"),
        "{}",
        flat_run(&run)
    );
    drop(file);
    root.run(&["apply", "--yes", document.path()]).ok();
}

#[test]
fn an_entry_of_storage_does_not_fight_with_one_of_passwd() {
    if !can_run() {
        return;
    }
    let root = accounts();
    // Whole files replace those of the skeleton.
    let mut both = users(json!([{"name": "a"}]));
    both["storage"] = json!({"files": [file("/home/a/.bash profile", 0o600, "ours\n")]});
    applies(&root, &both);
    assert_eq!(root.read("home/a/.bash profile"), "ours\n");
    let mut both = users(json!([{"name": "b"}]));
    both["storage"] =
        json!({"files": [{"path": "/home/b/.bash profile", "append": [{"source": "data:,x"}]}]});
    refused(
        &root,
        &both,
        "storage.files[0]: /home/b/.bash profile is changed for an entry of passwd too",
    );
    let mut both = users(json!([{"name": "old", "uid": 1500}]));
    both["storage"] = json!({"files": [{"path": "/home/old/work", "mode": 0o600}]});
    refused(
        &root,
        &both,
        "storage.files[0]: /home/old/work is changed for an entry of passwd too",
    );
    let mut both = groups(json!([{"name": "new"}]));
    both["storage"] = json!({"files": [file("/etc/group", 0o644, "root:x:0:\n")]});
    refused(
        &root,
        &both,
        "storage.files[0]: /etc/group is changed for an entry of passwd too",
    );
}

#[test]
fn a_home_with_too_many_files_is_for_chown() {
    if !can_run() {
        return;
    }
    let root = accounts();
    for n in 0..10_001 {
        fs::write(root.path(&format!("home/old/{n}")), "").unwrap();
        chown(root.path(&format!("home/old/{n}")), Some(1100), Some(1100)).unwrap();
    }
    let config = users(json!([{"name": "old", "uid": 1500}]));
    refused(
        &root,
        &config,
        "run again: chown -hR --from=1100 1500 /home/old",
    );
}

#[test]
fn mount_points_in_homes_are_refused_by_name() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let mut mountpoint = users(json!([{"name": "test", "sshAuthorizedKeys": ["ssh-rsa A"]}]));
    mountpoint["storage"] = json!({
        "filesystems": [{"path": "/home/test/.ssh/foo/bar", "device": "/dev/vdb", "format": "ext4"}],
        "directories": [{"path": "/home/test/.ssh", "mode": 0o750, "user": {"name": "test"}, "group": {"name": "test"}}],
    });
    refused(&root, &mountpoint, "storage.filesystems: 1 entry");
    let document = root.config(&mountpoint);
    root.run(&["apply", "--yes", "--ignore-unsupported", document.path()])
        .ok();
    assert_eq!(
        (root.mode("home/test"), root.mode("home/test/.ssh")),
        (0o700, 0o750)
    );
}

#[test]
fn no_hash_is_shown_or_passed_to_a_program() {
    if !can_run() {
        return;
    }
    let traced = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        return skip(
            Lacks::program("strace"),
            "strace is not installed or may not trace here",
        );
    }
    let (user, group) = ("$6$usersecret$hash", "$6$groupsecret$hash");
    let config = config(json!({"passwd": {
        "users": [{"name": "a", "passwordHash": user}, {"name": "old", "passwordHash": user}],
        "groups": [{"name": "g", "passwordHash": group}, {"name": "spare", "passwordHash": group}],
    }}));
    let root = accounts();
    let document = root.config(&config);
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut said = String::new();
    for command in ["plan", "verify", "apply", "status"] {
        let mut args = vec!["-v", "-v", "--yes", command];
        args.extend((command != "status").then_some(document.path()));
        let run = root.run(&args);
        said += &(run.out() + &run.err());
        said += &root.run(&[&args[..], &["--output", "json"]].concat()).out();
    }
    assert_eq!(
        line(&root, "etc/shadow", "old").split(':').nth(1),
        Some(user)
    );
    assert_eq!(
        line(&root, "etc/gshadow", "spare").split(':').nth(1),
        Some(group)
    );
    let root = accounts();
    let status = Command::new("strace")
        .args(["-f", "-s", "9999", "-e", "trace=execve", "-o"])
        .arg(log.path())
        .args([PROGRAM, "--yes", "--root"])
        .arg(root.dir())
        .args(["apply", document.path()])
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let calls = fs::read_to_string(log.path()).unwrap();
    assert!(
        calls.contains("groupmod") && calls.contains("useradd"),
        "{calls}"
    );
    for secret in ["usersecret", "groupsecret", "oldhash"] {
        assert!(
            !said.contains(secret) && !calls.contains(secret),
            "{secret}: {said}{calls}"
        );
    }
}

/// Runs the program in a mount namespace that a script has prepared.
fn run_in(script: &str, root: &TestRoot, args: &[&str]) -> Option<Output> {
    let works = Command::new("unshare").args(["--mount", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        skip(
            Lacks::root_or_program("unshare"),
            "mount namespaces cannot be made here",
        );
        return None;
    }
    let script = format!("{script} && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, PROGRAM, "--root"]);
    Some(command.arg(root.dir()).args(args).output().unwrap())
}

#[test]
fn the_private_copy_is_gone_whatever_happens() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let tool = tempfile::NamedTempFile::new().unwrap();
    fs::set_permissions(tool.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let tool = tool.into_temp_path();
    let fake = format!("mount --bind {} /usr/sbin/useradd", tool.display());
    let document = root.config(&users(json!([{"name": "a"}])));
    let refused = root.config(&users(json!([{"name": "b", "uid": 0}])));
    let tools = [
        ("the real tool", "true", document.path(), "", Some(0)),
        ("a tool that refuses", "true", refused.path(), "", Some(1)),
        (
            "a tool that crashes",
            fake.as_str(),
            document.path(),
            "kill -SEGV $$",
            Some(1),
        ),
        // The signal waits until the copy is gone.
        (
            "a run that is told to end",
            fake.as_str(),
            document.path(),
            "kill -TERM $PPID",
            None,
        ),
        (
            "a look at the copy",
            fake.as_str(),
            document.path(),
            "ls -lR /run >&2; exit 9",
            Some(1),
        ),
    ];
    for (name, prepare, document, script, code) in tools {
        let shown = tempfile::tempdir().unwrap();
        let source = tempfile::NamedTempFile::new().unwrap();
        fs::write(source.path(), format!("#!/bin/sh\n{script}\n")).unwrap();
        support::install(source.path(), &tool);
        let run = format!("mount --bind {} /run && {prepare}", shown.path().display());
        let Some(output) = run_in(&run, &root, &["plan", document]) else {
            return;
        };
        assert_eq!(output.status.code(), code, "{name}: {}", words(&output));
        let left = fs::read_dir(shown.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        // mount(8) keeps notes of its own there.
        let left: Vec<_> = left.filter(|name| name != "mount").collect();
        assert!(left.is_empty(), "{name}: {left:?}");
        if name == "a look at the copy" {
            assert!(
                words(&output).contains("drwx------")
                    && words(&output).contains("-rw------- 1 root root"),
                "{}",
                words(&output)
            );
            assert!(!words(&output).contains("-rw-r--"), "{}", words(&output));
        }
    }
}

fn words(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn without_the_tools_nothing_is_changed_but_a_password_can_be_set() {
    if !can_run() {
        return;
    }
    let hide = "mount -t tmpfs none /usr/sbin";
    let root = accounts();
    let before = root.snapshot();
    let document = root.config(&users(json!([{"name": "a"}])));
    let Some(output) = run_in(hide, &root, &["apply", "--yes", document.path()]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(1));
    assert!(
        words(&output).contains("passwd.users[0]: useradd is not installed on the running system"),
        "{}",
        words(&output)
    );
    assert_eq!(root.snapshot(), before);
    let output = run_in(hide, &root, &["verify", document.path()]).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(
        words(&output).contains("passwd.users[0] useradd is not installed"),
        "{}",
        words(&output)
    );
    // A rescue may have no tools at all.
    let document = root.config(&users(json!([{"name": "core", "passwordHash": "$6$new$hash", "sshAuthorizedKeys": ["ssh-rsa A"]}])));
    let output = run_in(hide, &root, &["apply", "--yes", document.path()]).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    assert!(
        words(&output).contains("the date of its last change is not updated"),
        "{}",
        words(&output)
    );
    assert_eq!(
        line(&root, "etc/shadow", "core"),
        "core:$6$new$hash:19000:0:99999:7:::"
    );
    assert_eq!(
        root.read("home/core/.ssh/authorized_keys.d/ignition"),
        "ssh-rsa A\n"
    );
}

#[test]
fn where_the_kernel_has_selinux_the_tools_run_without_a_view_of_it() {
    if !can_run() {
        return;
    }
    let root = accounts();
    let pretend = "mount -t tmpfs none /sys/fs && mkdir /sys/fs/selinux && \
                   mount -t tmpfs none /sys/fs/selinux && touch /sys/fs/selinux/enforce";
    let document = root.config(&users(json!([{"name": "a", "uid": 1234}])));
    let Some(output) = run_in(pretend, &root, &["apply", "--yes", document.path()]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
    assert!(line(&root, "etc/passwd", "a").starts_with("a:x:1234:"));
    let hidden = format!("{pretend} && mount -t tmpfs none /usr/sbin");
    let document = root.config(&users(json!([{"name": "b"}])));
    let output = run_in(&hidden, &root, &["plan", document.path()]).unwrap();
    assert!(
        words(&output).contains("useradd is not installed"),
        "{}",
        words(&output)
    );
}

#[test]
fn an_ordinary_user_is_told_to_be_root() {
    if !can_run() {
        return;
    }
    let root = accounts();
    fs::set_permissions(root.dir(), fs::Permissions::from_mode(0o755)).unwrap();
    let ordinary = |config: &Value| {
        let document = root.config(config);
        fs::set_permissions(document.path(), fs::Permissions::from_mode(0o644)).unwrap();
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            PROGRAM,
            "--root",
        ]);
        words(
            &command
                .arg(root.dir())
                .args(["plan", document.path()])
                .output()
                .unwrap(),
        )
    };
    let one = users(json!([{"name": "a"}]));
    assert!(
        ordinary(&one).contains("Nothing was changed. Run it with sudo"),
        "{}",
        ordinary(&one)
    );
    // A root of the user's own, but for the files with hashes.
    let own = Command::new("chown")
        .args(["-R", "65534:65534"])
        .arg(root.dir())
        .status();
    assert!(own.unwrap().success());
    for path in ["etc/shadow", "etc/gshadow"] {
        std::os::unix::fs::chown(root.path(path), Some(0), Some(0)).unwrap();
    }
    assert!(
        ordinary(&one).contains(
            "/etc/gshadow: permission denied. Run it with sudo. Next: sudo mco-rescue --root "
        ),
        "{}",
        ordinary(&one)
    );
    root.chmod("etc/shadow", 0o644);
    root.chmod("etc/gshadow", 0o644);
    assert!(
        ordinary(&one).contains("passwd.users[0]: useradd needs root. Run as root"),
        "{}",
        ordinary(&one)
    );
    assert!(
        !ordinary(&users(json!([{"name": "old", "gecos": "Old User"}]))).contains("needs root")
    );
}

/// Answers as a host whose tools never end.
struct Stuck;

impl CommandRunner for Stuck {
    fn run(&self, command: &CommandLine) -> Result<CommandOutput, CommandError> {
        Err(CommandError::TimedOut(
            command.program.clone(),
            command.timeout.as_secs(),
        ))
    }
}

#[test]
fn a_tool_that_hangs_is_a_problem_of_its_entry() {
    if !can_run() {
        return;
    }
    let tree = accounts();
    let root = Root::open(tree.dir()).unwrap();
    let text = users(json!([{"name": "a"}])).to_string();
    let config = mco_rescue::config::document::parse_document(text.as_bytes(), "a test").unwrap();
    let desired = mco_rescue::config::document::Desired::from_config(&config);
    let prepared = mco_rescue::judge::accounts::prepare_accounts(&root, &config, &desired, &Stuck)
        .unwrap()
        .unwrap();
    let problem = prepared.problem.unwrap();
    assert_eq!(problem.subject, "passwd.users[0]");
    assert!(
        problem
            .message
            .starts_with("useradd gave no answer within 60 s"),
        "{}",
        problem.message
    );
    assert_eq!(prepared.before, prepared.after);
}

#[test]
fn a_run_killed_at_any_rename_is_finished_or_undone() {
    if !can_run() {
        return;
    }
    let works = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !works.is_ok_and(|status| status.success()) {
        return skip(
            Lacks::program("strace"),
            "strace is not installed or may not trace here",
        );
    }
    // The day of the last change is in the tree; over midnight everything is done again.
    loop {
        let day = today();
        let kills = kill_everywhere();
        if day == today() {
            return say(&format!(
                "{kills} kills of a run with users and groups, all finished or undone"
            ));
        }
    }
}

fn kill_everywhere() -> usize {
    let config = config(json!({"passwd": {
        "groups": [{"name": "team", "gid": 3000}],
        "users": [
            {"name": "a", "sshAuthorizedKeys": ["ssh-rsa A"], "groups": ["team"]},
            {"name": "old", "uid": 1500, "passwordHash": "$6$new$hash"},
        ],
    }}));
    let reference = accounts();
    let before = comparable(&reference);
    applies(&reference, &config);
    let after = comparable(&reference);
    let mut kills = 0;
    for call in ["renameat", "renameat2", "fchownat"] {
        for nth in 1.. {
            let root = accounts();
            let document = root.config(&config);
            let status = Command::new("strace")
                .args(["-o", "/dev/null", "-e", &format!("trace={call}")])
                .args(["-e", &format!("inject={call}:signal=KILL:when={nth}")])
                .args([PROGRAM, "--yes", "--root"])
                .arg(root.dir())
                .args(["apply", document.path()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
            if status.signal() != Some(9) {
                assert!(status.success() && nth > 1, "{call} {nth}");
                break;
            }
            kills += 1;
            root.run(&["recover"]).ok();
            let tree = comparable(&root);
            assert!(tree == before || tree == after, "{call} {nth}");
            root.run(&["apply", "--yes", document.path()]).ok();
            assert_eq!(comparable(&root), after, "{call} {nth}");
        }
    }
    kills
}
