//! Nodes on two disks: the order of what both have written is not fixed at a power cut, and each of them forgets by itself.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::{Value, json};

use super::way_out::furnished;
use crate::support::faults::{Call, copy_tree, count, demand, traced};
use crate::support::mounts::{Disk, mount, unmount, with_mounts};
use crate::support::scenes::can_disturb;
use crate::support::steps::Stepped;
use crate::support::{STATE, TestRoot, file, machine_config, say};

const EXT4: [&str; 7] = ["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4"];
/// Nothing is written unless the program asks for it.
const LAZY: &str = ",commit=600,noauto_da_alloc";
const OTHER: &str = "srv/data";

/// A root on one disk with another one below it.
struct TwoDisks {
    root: TestRoot,
    disks: [Disk; 2],
}

impl TwoDisks {
    fn mounted(disks: [Disk; 2]) -> Self {
        let root = TestRoot::empty();
        disks[0].mount(root.dir(), LAZY);
        fs::create_dir_all(root.path(OTHER)).unwrap();
        disks[1].mount(&root.path(OTHER), LAZY);
        Self { root, disks }
    }

    /// `None`, said aloud, where there are no disks.
    fn new(tree: &Path) -> Option<Self> {
        let disks = [Disk::new(24, &EXT4)?, Disk::new(24, &EXT4)?];
        let node = Self::mounted(disks);
        copy_tree(tree, node.root.dir());
        // Mounted anew, so that all of this is on the disks.
        Some(Self::mounted(node.unmounted()))
    }

    fn unmounted(self) -> [Disk; 2] {
        unmount(&self.root.path(OTHER));
        unmount(self.root.dir());
        self.disks
    }

    /// What a power cut leaves now.
    fn cut(&self) -> Self {
        Self::mounted(self.disks.each_ref().map(Disk::copy))
    }

    fn staged(&self) -> Vec<String> {
        let all = self.root.everything().into_keys();
        all.filter(|path| path.starts_with(&format!("{OTHER}/.mco-rescue-")))
            .collect()
    }
}

fn on_two_disks(text: &str) -> Value {
    let name = format!("rendered-worker-{}", text.trim());
    machine_config(
        &name,
        json!({"storage": {"files": [
            file("/etc/a.conf", 0o644, text),
            file("/srv/data/secret", 0o600, text),
        ]}}),
    )
}

#[test]
fn what_another_disk_forgets_of_a_finished_run_is_swept_at_the_next_boot() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let template = furnished();
        fs::create_dir_all(template.path(OTHER)).unwrap();
        template.apply(&on_two_disks("old\n"));
        let Some(node) = TwoDisks::new(template.dir()) else {
            return;
        };
        let config = node.root.config(&on_two_disks("new\n"));
        let apply = ["apply", "--yes", config.path()];
        let run = traced(&node.root, "syncfs,fsync", &[], &apply);
        assert_eq!(run.code, Some(0), "{}", run.err);
        // Two for each file system.
        assert_eq!(count(&run.calls, "syncfs"), 2 * 2);
        assert_eq!(count(&run.calls, "fsync"), 0);
        assert_eq!(node.staged(), [""; 0]);

        // Removing what was staged is the one thing that the power cut takes back.
        let after = node.cut();
        assert_eq!(after.root.read("etc/a.conf"), "new\n");
        assert_eq!(after.root.read("srv/data/secret"), "new\n");
        let staged = after.staged();
        let secret = staged.iter().find(|path| path.contains("/old-"));
        assert_eq!(after.root.read(secret.unwrap()), "old\n");
        after.root.run(&["recover", "--at-boot"]).ok();
        assert_eq!(after.staged(), [""; 0]);
        assert_eq!(
            after.root.run(&["recover"]).ok().out(),
            "Nothing to recover.\n"
        );
        after.unmounted();

        // Where the run is known to be over, the place and the name alone lead there.
        let after = node.cut();
        for file in ["intent.json", "journal.json", "committed"] {
            fs::remove_file(after.root.path(&format!("{STATE}/{file}"))).unwrap();
        }
        let doctor = after.root.run(&["doctor"]);
        assert!(
            doctor.out().contains(&format!("/{}", staged[0])),
            "{}",
            doctor.out()
        );
        assert_eq!(after.staged(), staged, "doctor only looks");
        let run = after.root.run(&["recover", "--at-boot"]).ok();
        assert!(
            run.err().contains(&format!("/{}", staged[0])),
            "{}",
            run.err()
        );
        assert_eq!(after.staged(), [""; 0]);
        after.unmounted();
        drop(node.unmounted());
    });
}

/// A power cut after this call, when one of the two disks has written all of its names, and the other none.
struct Ahead {
    call: Call,
    disks: [Disk; 2],
    is_over: bool,
}

/// Stops a run after every call, and lets one disk write its names.
fn ahead(template: &TestRoot, which: usize, faults: &[&str]) -> Option<Vec<Ahead>> {
    let node = TwoDisks::new(template.dir())?;
    let config = node.root.config(&on_two_disks("new\n"));
    let apply = ["apply", "--yes", config.path()];
    let faults: Vec<String> = faults.iter().map(|&fault| fault.to_owned()).collect();
    let mut run = Stepped::start(
        &node.root,
        "renameat,renameat2,unlinkat,linkat,syncfs",
        &faults,
        &apply,
    );
    let tops = [node.root.dir().to_owned(), node.root.path(OTHER)];
    let top = &tops[which];
    let write_names = || {
        let top = fs::File::open(top).unwrap();
        top.set_modified(SystemTime::now()).unwrap();
        top.sync_all().unwrap();
    };
    let mut all: Vec<Ahead> = Vec::new();
    while let Some(call) = run.next() {
        write_names();
        let disks = node.disks.each_ref().map(Disk::copy);
        all.push(Ahead {
            call,
            disks,
            is_over: false,
        });
        run.resume();
    }
    let output = run.output();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let call = all.last().unwrap().call.clone();
    let disks = node.disks.each_ref().map(Disk::copy);
    all.push(Ahead {
        call,
        disks,
        is_over: true,
    });
    drop(node.unmounted());
    Some(all)
}

/// Recovers such a node. Returns complaints, and true if the journal had no name although the run had changed one.
fn recovered_ahead(ahead: Ahead) -> (Vec<String>, bool) {
    let is_over = ahead.is_over;
    let node = TwoDisks::mounted(ahead.disks);
    let root = &node.root;
    let read = || ["etc/a.conf", "srv/data/secret"].map(|path| root.read(path));
    let has = |name: &str| root.exists(&format!("{STATE}/{name}"));
    let unnamed = has(".journal.json.new") && !has("journal.json");
    let was_changed = unnamed && read().contains(&"new\n".to_owned());
    let mut problems = demand(root, &["recover"], 0);
    let [one, other] = read();
    let whole = one == other && ["old\n", "new\n"].contains(&one.as_str());
    if !whole || (is_over && one != "new\n") {
        problems.push(format!("{one:?} and {other:?}"));
    }
    problems.extend(node.staged());
    problems.extend(demand(root, &["recover"], 0));
    drop(node.unmounted());
    let complain = |problem| format!("after {}: {problem}", ahead.call.line);
    (problems.into_iter().map(complain).collect(), was_changed)
}

#[test]
fn of_two_disks_either_may_be_ahead_of_the_other_at_a_power_cut() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let template = furnished();
        fs::create_dir_all(template.path(OTHER)).unwrap();
        template.apply(&on_two_disks("old\n"));
        let stop = ["renameat,renameat2,unlinkat,linkat,syncfs:signal=STOP"];
        let mut unnamed = 0;
        for which in [0, 1] {
            let Some(moments) = ahead(&template, which, &stop) else {
                return;
            };
            let count = moments.len();
            let (problems, changed): (Vec<_>, Vec<_>) =
                moments.into_iter().map(recovered_ahead).unzip();
            let problems = problems.concat();
            say(&format!(
                "disk {which} ahead: {count} moments, {} failures",
                problems.len()
            ));
            assert!(problems.is_empty(), "{}", problems.join("\n"));
            unnamed += changed.into_iter().filter(|changed| *changed).count();
        }
        assert!(unnamed > 0, "no cut took the journal's name");

        // What shows that this can fail: the names of the other disk are not waited for.
        let faults = [
            "syncfs:retval=0:signal=STOP:when=3",
            "renameat,renameat2,unlinkat,linkat:signal=STOP",
        ];
        let moments = ahead(&template, 0, &faults).unwrap();
        let problems = moments.into_iter().map(|moment| recovered_ahead(moment).0);
        assert!(!problems.collect::<Vec<_>>().concat().is_empty());
    });
}

#[test]
fn bind_mounts_of_one_file_system_cost_no_flush() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        // As on an OSTree node: /etc and /var are mounts of their own, and of the same disk.
        let Some(disk) = Disk::new(24, &EXT4) else {
            return;
        };
        let template = furnished();
        let root = TestRoot::empty();
        disk.mount(root.dir(), LAZY);
        copy_tree(template.dir(), root.dir());
        let mounts = ["etc", "var"].map(|path| root.path(path));
        for path in &mounts {
            let path = path.to_str().unwrap();
            mount(&["--bind", path, path]);
        }
        for text in ["old\n", "new\n"] {
            let config = root.config(&on_two_disks(text));
            let apply = ["apply", "--yes", config.path()];
            let run = traced(&root, "syncfs,fsync", &[], &apply);
            assert_eq!(run.code, Some(0), "{}", run.err);
            let flushes = ["syncfs", "fsync"].map(|call| count(&run.calls, call));
            assert_eq!(flushes, [2, 0], "{text}");
        }
        mounts.iter().for_each(|path| unmount(path));
        unmount(root.dir());
    });
}

#[test]
fn only_our_own_left_overs_are_swept() {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let template = furnished();
        fs::create_dir_all(template.path(OTHER)).unwrap();
        template.apply(&on_two_disks("old\n"));
        let Some(node) = TwoDisks::new(template.dir()) else {
            return;
        };
        let root = &node.root;
        let make = |name: &str, mode: u32, inside: &str| {
            root.write(&format!("{OTHER}/{name}/{inside}"), "left\n");
            root.chmod(&format!("{OTHER}/{name}"), mode);
        };
        make(".mco-rescue-1-1", 0o700, "old-3");
        make(".mco-rescue-1-2", 0o755, "old-3");
        make(".mco-rescue-1-3", 0o700, "new-1");
        make(".mco-rescue-notes", 0o700, "old-3");
        make(".mco-rescue-1-4", 0o700, "away-2");
        make(".mco-rescue-1-4", 0o700, "notes");
        std::os::unix::fs::chown(
            root.path(&format!("{OTHER}/.mco-rescue-1-3")),
            Some(1000),
            None,
        )
        .unwrap();
        // Another root, with a run of its own.
        let disk = Disk::new(24, &EXT4).unwrap();
        fs::create_dir_all(root.path("mnt")).unwrap();
        disk.mount(&root.path("mnt"), LAZY);
        root.write(&format!("mnt/{STATE}/intent.json"), "{}");
        root.write("mnt/.mco-rescue-1-5/old-1", "needed\n");
        root.chmod("mnt/.mco-rescue-1-5", 0o700);
        let run = root.run(&["recover"]).ok();
        let said = run.err();
        assert!(
            said.contains("/srv/data/.mco-rescue-1-1 of an earlier run"),
            "{said}"
        );
        assert!(
            said.contains("/srv/data/.mco-rescue-1-4/notes was not made by mco-rescue"),
            "{said}"
        );
        let left = [
            ".mco-rescue-1-2",
            ".mco-rescue-1-2/old-3",
            ".mco-rescue-1-3",
            ".mco-rescue-1-3/new-1",
            ".mco-rescue-1-4",
            ".mco-rescue-1-4/notes",
            ".mco-rescue-notes",
            ".mco-rescue-notes/old-3",
        ];
        assert_eq!(node.staged(), left.map(|name| format!("{OTHER}/{name}")));
        assert_eq!(root.read("mnt/.mco-rescue-1-5/old-1"), "needed\n");
        unmount(&root.path("mnt"));
        drop(node.unmounted());
    });
}
