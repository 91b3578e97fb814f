//! What is done to a root in the tests of faults: a dozen steps that have every kind between them.
#![allow(unsafe_code)]

use std::fs;

use serde_json::{Value, json};

use super::faults::{Scene, can_trace};
use crate::support::{self, Lacks, Snapshot, TestRoot, file, machine_config, skip};

/// Everything that makes, changes, removes or flushes; a name that strace does not know is skipped.
pub const WATCHED: [&str; 24] = [
    "openat",
    "write",
    "?pwrite64",
    "?writev",
    "fchmod",
    "?chmod",
    "?fchmodat",
    "?fchmodat2",
    "fchown",
    "fchownat",
    "lsetxattr",
    "utimensat",
    "linkat",
    "unlinkat",
    "renameat",
    "renameat2",
    "mkdirat",
    "symlinkat",
    "fsync",
    "fdatasync",
    "syncfs",
    "ftruncate",
    "flock",
    "fcntl",
];

/// `None`, said aloud, where it cannot be done.
pub fn can_disturb() -> bool {
    if !support::is_root() {
        skip(Lacks::Root, "owners and labels need root");
        return false;
    }
    can_trace()
}

/// Everything instead of a sample (`make faults`).
pub fn everything_is_asked_for() -> bool {
    std::env::var("MCO_RESCUE_FAULTS").is_ok_and(|what| what == "all")
}

fn unit(text: &str) -> String {
    format!("[Service]\nExecStart=/bin/{text}\n[Install]\nWantedBy=multi-user.target\n")
}

fn furnished() -> TestRoot {
    let root = TestRoot::new();
    for path in ["usr/etc/taken.conf", "etc/taken.conf"] {
        root.write(path, "of the OS\n");
    }
    root.write(
        "usr/lib/systemd/system-preset/99-default.preset",
        "disable *\n",
    );
    root.write("etc/.pwd.lock", "");
    root.chmod("etc/.pwd.lock", 0o600);
    root
}

fn keys(text: &str) -> Value {
    json!({"name": "core", "sshAuthorizedKeys": [format!("ssh-ed25519 {text}")], "passwordHash": format!("$6${text}")})
}

fn old_config() -> Value {
    machine_config(
        "rendered-worker-old",
        json!({
            "storage": {"files": [
                file("/etc/replaced.conf", 0o644, "old\n"),
                file("/etc/stale.conf", 0o644, "soon gone\n"),
            ]},
            "systemd": {"units": [
                {"name": "masked.service", "contents": unit("masked")},
                {"name": "gone.service", "enabled": true, "contents": unit("gone")},
            ]},
            "passwd": {"users": [keys("old")]},
        }),
    )
}

/// Adds, replaces, deletes, takes over, masks, links, makes directories, changes a mode, re-keys.
fn new_config() -> Value {
    machine_config(
        "rendered-worker-new",
        json!({
            "storage": {"files": [
                file("/etc/replaced.conf", 0o600, "new and longer\n"),
                file("/etc/taken.conf", 0o644, "taken over from the OS\n"),
                file("/var/lib/app/data", 0o755, "in a new directory\n"),
            ]},
            "systemd": {"units": [
                {"name": "b.service", "enabled": true, "contents": unit("b")},
                {"name": "masked.service", "mask": true},
            ]},
            "passwd": {"users": [keys("new")]},
        }),
    )
}

/// Where the last run is taken back.
pub fn taking_back() -> Scene {
    let root = furnished();
    root.apply(&old_config());
    root.apply(&new_config());
    Scene::leading(&root, None, &WATCHED, &[])
}

/// From one MachineConfig to another. `standing` is what the file system refuses all the time.
pub fn update(standing: &[&str]) -> Scene {
    let root = furnished();
    root.apply(&old_config());
    root.chmod("etc/kubernetes/kubeconfig", 0o644);
    let scene = Scene::leading(&root, Some(new_config()), &WATCHED, standing);
    let kinds = |path: &str| {
        let kind = |tree: &Snapshot| tree.get(path).map(|entry| entry.kind);
        (kind(&scene.before), kind(&scene.after))
    };
    let units = "etc/systemd/system";
    assert_eq!(kinds("etc/stale.conf"), (Some('f'), None));
    assert_eq!(kinds("var/lib/app/data"), (None, Some('f')));
    let wanted = format!("{units}/multi-user.target.wants");
    assert_eq!(
        kinds(&format!("{units}/masked.service")),
        (Some('f'), Some('l'))
    );
    assert_eq!(kinds(&format!("{wanted}/b.service")), (None, Some('l')));
    assert_eq!(kinds(&format!("{wanted}/gone.service")), (Some('l'), None));
    let differs = |path: &str| scene.before[path] != scene.after[path];
    assert!(differs("etc/shadow") && differs("home/core/.ssh/authorized_keys.d/ignition"));
    assert!(differs("etc/replaced.conf") && differs("etc/kubernetes/kubeconfig"));
    scene
}

/// Gives a file an SELinux label, where the file system has them.
fn label(root: &TestRoot, path: &str) {
    let path = std::ffi::CString::new(root.path(path).to_str().unwrap()).unwrap();
    let label = b"system_u:object_r:etc_t:s0\0";
    // SAFETY: path and label live through the call, and the length is the label's.
    let set = unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            c"security.selinux".as_ptr(),
            label.as_ptr().cast(),
            label.len(),
            0,
        )
    };
    assert_eq!(set, 0, "labels cannot be set here");
}

/// With `overwrite`: a directory gives way to a file, a file to a directory; owner and mode of one change; links.
pub fn bare() -> Scene {
    let root = furnished();
    root.write("srv/tree/a/b", "in a tree that has to go\n");
    root.write("srv/plain", "a file where a directory is wanted\n");
    root.write("srv/labelled", "old\n");
    label(&root, "srv/labelled");
    fs::create_dir(root.path("srv/dir")).unwrap();
    let owned = |path: &str, mode: u32| {
        let mut file = file(path, mode, "new\n");
        file["user"] = json!({"id": 12});
        file["group"] = json!({"id": 13});
        file
    };
    let new = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {
            "files": [file("/srv/tree", 0o640, "a file\n"), owned("/srv/labelled", 0o600), owned("/srv/plain/below", 0o644), owned("/srv/made/deep/file", 0o640)],
            "directories": [
                {"path": "/srv/plain", "overwrite": true, "mode": 0o750},
                {"path": "/srv/dir", "overwrite": true, "mode": 0o750, "user": {"id": 12}, "group": {"id": 13}},
                {"path": "/srv/made", "mode": 0o2775, "user": {"id": 12}, "group": {"id": 13}},
            ],
            "links": [
                {"path": "/srv/link", "target": "tree", "user": {"id": 12}},
                {"path": "/srv/hard", "target": "/srv/tree", "hard": true},
                {"path": "/srv/made/link", "target": "deep"},
                {"path": "/srv/made/hard", "target": "/srv/made/deep/file", "hard": true},
                {"path": "/srv/outside", "target": "/srv/made/deep/file", "hard": true},
            ],
        },
    });
    let scene = Scene::leading(&root, Some(new), &WATCHED, &[]);
    let kind = |tree: &Snapshot, path: &str| tree[path].kind;
    assert_eq!(
        (
            kind(&scene.before, "srv/tree"),
            kind(&scene.after, "srv/tree")
        ),
        ('d', 'f')
    );
    assert_eq!(
        (
            kind(&scene.before, "srv/plain"),
            kind(&scene.after, "srv/plain")
        ),
        ('f', 'd')
    );
    let dir = &scene.after["srv/dir"];
    assert_eq!((dir.mode, dir.owner), (0o750, (12, 13)));
    scene
}
