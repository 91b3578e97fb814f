//! Ignition's own catalogue of cases, in our words: a start state, a bare config, and what has to come of it.
//! Each case runs for every spec version from its first one on.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::{TestRoot, is_root, say};
use serde_json::{Value, json};

/// What has to come of a case.
enum Expect {
    /// Applied; then each check holds.
    Applied(&'static [Check]),
    /// Refused, and nothing on disk is changed.
    Refused,
}
use Expect::{Applied, Refused};

enum Check {
    /// A regular file with these contents.
    File(&'static str, &'static str),
    /// Permission bits.
    Mode(&'static str, u32),
    /// Owner and group.
    Owner(&'static str, u32, u32),
    /// A symbolic link with this text.
    Link(&'static str, &'static str),
    /// A directory.
    Dir(&'static str),
    /// Two names of one inode.
    Same(&'static str, &'static str),
    /// Nothing is there.
    Absent(&'static str),
}
use Check::{Absent, Dir, File, Link, Mode, Owner, Same};

/// Topic, name, first minor version, start state, config without its version, expectation.
type Case = (
    &'static str,
    &'static str,
    u64,
    &'static [&'static str],
    &'static str,
    Expect,
);

/// Start states are words: `file PATH TEXT`, `link PATH TARGET`, `hard PATH TARGET`, `dir PATH`.
const CASES: &[Case] = &[
    (
        "files",
        "a plain file",
        0,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:,some%20text%0A"}}]}}"#,
        Applied(&[File("srv/a", "some text\n"), Mode("srv/a", 0o644)]),
    ),
    (
        "files",
        "base64",
        0,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:;base64,c29tZSB0ZXh0Cg=="}}]}}"#,
        Applied(&[File("srv/a", "some text\n")]),
    ),
    (
        "files",
        "owner by id",
        0,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:,x"},"user":{"id":500},"group":{"id":501}}]}}"#,
        Applied(&[File("srv/a", "x"), Owner("srv/a", 500, 501)]),
    ),
    (
        "files",
        "append to an existing file keeps its owner",
        0,
        &["file srv/a one"],
        r#"{"storage":{"files":[{"path":"/srv/a","append":[{"source":"data:,two"}]}]}}"#,
        Applied(&[File("srv/a", "onetwo")]),
    ),
    (
        "files",
        "an unknown key is ignored",
        0,
        &[],
        r#"{"storage":{"files":[{"filesystem":"root","path":"/srv/a","contents":{"source":"data:,x"}}]}}"#,
        Applied(&[File("srv/a", "x"), Mode("srv/a", 0o644)]),
    ),
    (
        "files",
        "special bits",
        6,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a","mode":3565,"contents":{"source":"data:,x"}},{"path":"/srv/b","mode":1517,"contents":{"source":"data:,x"},"user":{"id":1001},"group":{"id":1001}}]}}"#,
        Applied(&[
            Mode("srv/a", 0o6755),
            Mode("srv/b", 0o2755),
            Owner("srv/b", 1001, 1001),
        ]),
    ),
    (
        "files",
        "a dangling link is not a regular file",
        0,
        &["link etc/a /usr/nowhere"],
        r#"{"storage":{"files":[{"path":"/etc/a","overwrite":false,"mode":420}]}}"#,
        Refused,
    ),
    (
        "files",
        "a dangling link may be overwritten",
        0,
        &["link etc/a /usr/nowhere"],
        r#"{"storage":{"files":[{"path":"/etc/a","mode":420,"overwrite":true,"contents":{"source":""}}]}}"#,
        Applied(&[
            File("etc/a", ""),
            Mode("etc/a", 0o644),
            Absent("usr/nowhere"),
        ]),
    ),
    (
        "files",
        "two names that resolve to one path",
        0,
        &["link srv /"],
        r#"{"storage":{"files":[{"path":"/srv/b/c","contents":{"source":"data:,x"}},{"path":"/b/c","contents":{"source":"data:,y"}}]}}"#,
        Refused,
    ),
    (
        "files",
        "parents that are links are followed inside the root",
        0,
        &["dir var/real", "link srv /var/real"],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:,x"}}]}}"#,
        Applied(&[File("var/real/a", "x"), Link("srv", "/var/real")]),
    ),
    (
        "hash",
        "the right hash",
        1,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:,asdf","verification":{"hash":"sha256-f0e4c2f76c58916ec258f246851bea091d14d4247a2fc3e18694461b1816e13b"}}}]}}"#,
        Applied(&[File("srv/a", "asdf")]),
    ),
    (
        "hash",
        "another hash",
        1,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:,asdf","verification":{"hash":"sha256-e57cc41647638ccb9fb6844f2810807bcaa2aa800438cfb065f17adf6afb48d0"}}}]}}"#,
        Refused,
    ),
    (
        "dirs",
        "a new directory",
        0,
        &[],
        r#"{"storage":{"directories":[{"path":"/srv/d"}]}}"#,
        Applied(&[Dir("srv/d"), Mode("srv/d", 0o755)]),
    ),
    (
        "dirs",
        "contents are kept, the mode is set",
        0,
        &["file srv/d/x kept"],
        r#"{"storage":{"directories":[{"path":"/srv/d","mode":511}]}}"#,
        Applied(&[Mode("srv/d", 0o777), File("srv/d/x", "kept")]),
    ),
    (
        "dirs",
        "a file is in the way",
        0,
        &["file srv/d x"],
        r#"{"storage":{"directories":[{"path":"/srv/d"}]}}"#,
        Refused,
    ),
    (
        "dirs",
        "a file in the way may be overwritten",
        0,
        &["file srv/d x"],
        r#"{"storage":{"directories":[{"path":"/srv/d","overwrite":true}],"files":[{"path":"/srv/d/below","contents":{"source":"data:,y"}}]}}"#,
        Applied(&[Dir("srv/d"), Mode("srv/d", 0o755), File("srv/d/below", "y")]),
    ),
    (
        "dirs",
        "a link to a directory is none",
        0,
        &["dir srv/real", "link srv/d /srv/real"],
        r#"{"storage":{"directories":[{"path":"/srv/d"}]}}"#,
        Refused,
    ),
    (
        "files",
        "a directory may be overwritten",
        0,
        &["file srv/a/b/c x", "link srv/a/l /etc"],
        r#"{"storage":{"files":[{"path":"/srv/a","overwrite":true,"contents":{"source":"data:,y"}}]}}"#,
        Applied(&[File("srv/a", "y"), Dir("etc")]),
    ),
    (
        "files",
        "a pipe may be overwritten",
        0,
        &["pipe srv/a"],
        r#"{"storage":{"files":[{"path":"/srv/a","overwrite":true,"contents":{"source":"data:,y"}}]}}"#,
        Applied(&[File("srv/a", "y")]),
    ),
    (
        "files",
        "a pipe without overwrite",
        0,
        &["pipe srv/a"],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:,y"}}]}}"#,
        Refused,
    ),
    (
        "files",
        "a directory without overwrite",
        0,
        &["dir srv/a"],
        r#"{"storage":{"files":[{"path":"/srv/a","contents":{"source":"data:,y"}}]}}"#,
        Refused,
    ),
    (
        "files",
        "one below another",
        0,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a/b","contents":{"source":"data:,y"}},{"path":"/srv/a","contents":{"source":"data:,x"}}]}}"#,
        Refused,
    ),
    (
        "files",
        "one below another that replaces a directory",
        0,
        &["dir srv/a"],
        r#"{"storage":{"files":[{"path":"/srv/a/b","contents":{"source":"data:,y"}},{"path":"/srv/a","overwrite":true,"contents":{"source":"data:,x"}}]}}"#,
        Refused,
    ),
    (
        "links",
        "a soft link may be put over a directory",
        0,
        &["file srv/l/x x"],
        r#"{"storage":{"links":[{"path":"/srv/l","target":"/srv/t","overwrite":true}]}}"#,
        Applied(&[Link("srv/l", "/srv/t")]),
    ),
    (
        "links",
        "a hard link may be put over a directory",
        0,
        &["file srv/l/x x", "file srv/t y"],
        r#"{"storage":{"links":[{"path":"/srv/l","target":"/srv/t","hard":true,"overwrite":true}]}}"#,
        Applied(&[Same("srv/l", "srv/t")]),
    ),
    (
        "links",
        "a hard link that is there",
        0,
        &["file target x", "hard existing target"],
        r#"{"storage":{"links":[{"path":"/existing","target":"/target","hard":true}]}}"#,
        Applied(&[Same("existing", "target")]),
    ),
    (
        "links",
        "a soft link",
        0,
        &["file srv/t x"],
        r#"{"storage":{"links":[{"path":"/srv/l","target":"/srv/t","hard":false}]}}"#,
        Applied(&[Link("srv/l", "/srv/t")]),
    ),
    (
        "links",
        "a soft link that is there",
        0,
        &["file target x", "link existing /target"],
        r#"{"storage":{"links":[{"path":"/existing","target":"/target"}]}}"#,
        Applied(&[Link("existing", "/target")]),
    ),
    (
        "links",
        "a soft link over a file",
        0,
        &["file srv/l x"],
        r#"{"storage":{"files":[{"path":"/srv/t","contents":{"source":"data:,y"}}],"links":[{"path":"/srv/l","target":"/srv/t","overwrite":true}]}}"#,
        Applied(&[File("srv/t", "y"), Link("srv/l", "/srv/t")]),
    ),
    (
        "links",
        "a hard link to a dangling soft link",
        0,
        &["link bar nonexistent"],
        r#"{"storage":{"links":[{"path":"/foo","target":"/bar","hard":true}]}}"#,
        Applied(&[Same("foo", "bar")]),
    ),
    (
        "links",
        "a hard link to a file of the same config, in a deeper place",
        0,
        &[],
        r#"{"storage":{"files":[{"path":"/srv/a/b/c","contents":{"source":"data:,x"}}],"links":[{"path":"/l","target":"/srv/a/b/c","hard":true}]}}"#,
        Applied(&[Same("l", "srv/a/b/c")]),
    ),
    (
        "links",
        "a hard link to something else",
        0,
        &["file wrong x", "file target x", "hard existing wrong"],
        r#"{"storage":{"links":[{"path":"/existing","target":"/target","hard":true}]}}"#,
        Refused,
    ),
    (
        "links",
        "a soft link to something else",
        0,
        &["link existing /wrong"],
        r#"{"storage":{"links":[{"path":"/existing","target":"/target"}]}}"#,
        Refused,
    ),
    (
        "links",
        "a soft link over a directory",
        0,
        &["file srv/l/x x"],
        r#"{"storage":{"links":[{"path":"/srv/l","target":"/srv/t"}]}}"#,
        Refused,
    ),
    (
        "units",
        "instances of a template",
        0,
        &[],
        r#"{"systemd":{"units":[{"name":"say@.service","contents":"[Service]\nExecStart=/bin/echo %i\n[Install]\nWantedBy=multi-user.target\n"},{"name":"say@one.service","enabled":true},{"name":"say@two.service","enabled":true}]}}"#,
        Applied(&[
            Link(
                "etc/systemd/system/multi-user.target.wants/say@one.service",
                "/etc/systemd/system/say@.service",
            ),
            File(
                "etc/systemd/system-preset/20-ignition.preset",
                "enable say@.service one two\n",
            ),
        ]),
    ),
    (
        "units",
        "unmasked and enabled",
        0,
        &[
            "link etc/systemd/system/a.service /dev/null",
            "unit a.service",
            "unit b.service",
        ],
        r#"{"systemd":{"units":[{"name":"a.service","mask":false},{"name":"b.service","enabled":true,"mask":false}]}}"#,
        Applied(&[
            Absent("etc/systemd/system/a.service"),
            Absent("etc/systemd/system/b.service"),
            File(
                "etc/systemd/system-preset/20-ignition.preset",
                "enable b.service\n",
            ),
        ]),
    ),
    (
        "units",
        "disabling removes links and knows no missing units",
        0,
        &[
            "unit a.service",
            "link etc/systemd/system/multi-user.target.wants/a.service /usr/lib/systemd/system/a.service",
        ],
        r#"{"systemd":{"units":[{"enabled":false,"name":"a.service"},{"enabled":false,"name":"missing.service"}]}}"#,
        Applied(&[Absent(
            "etc/systemd/system/multi-user.target.wants/a.service",
        )]),
    ),
    (
        "units",
        "a drop-in of a unit of the OS",
        0,
        &[],
        r#"{"systemd":{"units":[{"name":"systemd-journald.service","dropins":[{"name":"debug.conf","contents":"[Service]\nEnvironment=A=b"}]}]}}"#,
        Applied(&[File(
            "etc/systemd/system/systemd-journald.service.d/debug.conf",
            "[Service]\nEnvironment=A=b",
        )]),
    ),
    (
        "units",
        "a mask",
        0,
        &[],
        r#"{"systemd":{"units":[{"name":"systemd-journald.service","mask":true}]}}"#,
        Applied(&[Link(
            "etc/systemd/system/systemd-journald.service",
            "/dev/null",
        )]),
    ),
];

fn prepare(root: &TestRoot, words: &str) {
    let parts: Vec<&str> = words.splitn(3, ' ').collect();
    match parts.as_slice() {
        ["file", path, text] => root.write(path, text),
        ["link", path, target] => root.link(path, target),
        ["hard", path, target] => fs::hard_link(root.path(target), root.path(path)).unwrap(),
        ["pipe", path] => {
            fs::create_dir_all(root.path(path).parent().unwrap()).unwrap();
            nix::unistd::mkfifo(&root.path(path), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        ["dir", path] => fs::create_dir_all(root.path(path)).unwrap(),
        ["unit", name] => {
            let text = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
            root.write(&format!("usr/lib/systemd/system/{name}"), text);
        }
        other => panic!("unknown start state {other:?}"),
    }
}

fn check(root: &TestRoot, check: &Check) -> bool {
    let meta = |path: &str| fs::symlink_metadata(root.path(path)).ok();
    match check {
        File(path, text) => meta(path).is_some_and(|m| m.is_file()) && root.read(path) == *text,
        Mode(path, mode) => meta(path).is_some_and(|m| m.mode() & 0o7777 == *mode),
        Owner(path, uid, gid) => {
            !is_root() || meta(path).is_some_and(|m| (m.uid(), m.gid()) == (*uid, *gid))
        }
        Link(path, target) => root.target(path).as_deref() == Some(target),
        Dir(path) => meta(path).is_some_and(|m| m.is_dir()),
        Same(a, b) => meta(a).is_some() && meta(a).map(|m| m.ino()) == meta(b).map(|m| m.ino()),
        Absent(path) => meta(path).is_none(),
    }
}

/// What is wrong with the outcome of one case in one version; nothing if it is right.
fn judge(case: &Case, minor: u64) -> Option<String> {
    let (topic, name, _, start, config, expect) = case;
    let root = TestRoot::new();
    start.iter().for_each(|words| prepare(&root, words));
    let before = root.everything();
    let mut config: Value = serde_json::from_str(config).unwrap();
    config["ignition"] = json!({"version": format!("3.{minor}.0")});
    let config = root.config(&config);
    let run = root.run(&["apply", "--yes", config.path()]);
    let right = match expect {
        Applied(checks) => run.code() == 0 && checks.iter().all(|one| check(&root, one)),
        Refused => run.code() != 0 && root.snapshot() == before,
    };
    (!right).then(|| {
        format!(
            "{topic}: {name} (3.{minor}): exit {}\n{}{}",
            run.code(),
            run.out(),
            run.err()
        )
    })
}

#[test]
fn the_catalogue_comes_out_as_ignition_has_it() {
    let mut wrong = Vec::new();
    let mut runs = 0;
    for case in CASES {
        for minor in case.2..=6 {
            runs += 1;
            wrong.extend(judge(case, minor));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut topics = std::collections::BTreeMap::new();
    CASES
        .iter()
        .for_each(|case| *topics.entry(case.0).or_insert(0) += 1);
    say(&format!(
        "{} catalogue cases in {runs} runs: {topics:?}",
        CASES.len()
    ));
}
