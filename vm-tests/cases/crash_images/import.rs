//! The power fails while an image from a stick is imported into the node's OSTree repository.
//!
//! ostree is Debian's; rpm-ostree, bootc and systemd-run are the stubs of `tests/os`. On each image the repository is sound, `recover` ends what was
//! begun, and the same command brings the image. If the run had ended, the image is there without the stick.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::image::{Content, Drawn, Image, Recorded};
use super::{FileSystem, MANY, ORDERED, SAMPLE, SCRIPT, recorded};
use crate::lab::qemu::Machine;
use crate::lab::random::Random;
use crate::lab::{Case, images, run};
use crate::support::faults::copy_tree;
use crate::support::images::{ImageRepository, NEW_REF, REPOSITORY, content_of, receiver};
use crate::support::mounts::{Disk, mount, unmount, with_mounts};
use crate::support::ostree_node::{NEXT, OstreeNode};
use crate::support::scenes::everything_is_asked_for;
use crate::support::{TestRoot, flat};

const FS: FileSystem = FileSystem {
    mebibytes: 48,
    ..ORDERED
};
/// What of the node is on its disk. The rest of its root is that of the test.
const KEPT: [&str; 3] = ["etc", "var", "sysroot"];
const OPTIONS: &str = "--os-from /media/os --unproven-image --accept-risk boot-filesystem";
/// Mounts what a node needs below `/mnt`.
const PLACE: &str = "
place() {
    for one in etc var sysroot; do
        mount -o bind /disks/vda/$one /mnt/$one
    done
    mount -t proc proc /mnt/proc
    mount -o bind /mnt/cmdline /mnt/proc/cmdline
    mount -o bind /mnt/kernel-hostname /mnt/proc/sys/kernel/hostname
}
story
";

/// A node without the image, a stick that has it, and what a boot finds of the stubs.
struct Import {
    node: OstreeNode,
    stubs: tempfile::TempDir,
    content: String,
}

impl Import {
    fn new() -> Option<Self> {
        let sibling = TestRoot::new();
        let repository = ImageRepository::new(&sibling.path(REPOSITORY))?;
        repository.import_old("2026-01-01T00:00:00Z");
        repository.import_new("2026-02-02T00:00:00Z");
        let node = receiver(false);
        let stick = node.root.path("media/os");
        fs::create_dir_all(&stick).unwrap();
        let export = ["image", "export", "--image", NEXT, stick.to_str().unwrap()];
        sibling.run(&export).ok();
        let stubs = tempfile::tempdir().unwrap();
        copy_tree(&node.root.path("stub"), stubs.path());
        Some(Self {
            node,
            stubs,
            content: content_of(&repository.path, NEW_REF),
        })
    }

    fn record(&self, case: &Case) -> Recorded<()> {
        let archived = tempfile::tempdir().unwrap();
        let root = archived.path().join("mnt");
        // Without what is mounted below it.
        let mut copy = Command::new("cp");
        run(copy.arg("-ax").arg(self.node.root.dir()).arg(&root));
        fs::copy(images::program(), root.join("usr/mco-rescue")).unwrap();
        let disk = Disk::new(FS.mebibytes, FS.mkfs).unwrap();
        let top = tempfile::tempdir().unwrap();
        disk.mount(top.path(), "");
        for name in KEPT {
            let (from, to) = (root.join(name), top.path().join(name));
            fs::create_dir(&to).unwrap();
            copy_tree(&from, &to);
            fs::remove_dir_all(&from).unwrap();
            fs::create_dir(&from).unwrap();
        }
        unmount(top.path());
        let archive = case.path("node.cpio");
        fs::write(&archive, images::packed(archived.path(), "zstd -1 -q")).unwrap();
        let script = format!(
            "FS={} OPTIONS={} MARKS=vdb\n{SCRIPT}\nNAME=0 DISKS=vda PAUSE= PROGRAM='chroot /mnt /usr/mco-rescue' \
             ARGUMENTS='pivot --yes {NEXT} {OPTIONS}'\n{PLACE}",
            FS.kind, FS.options
        );
        let machine = Machine::tiny(&images::tiny_alone()).memory(768).with_v2();
        let machine = machine.archive(&archive).file("case.sh", script.as_bytes());
        let (log, guest) = recorded(case, machine, &[&disk]);
        let mark = |what: &str| {
            let mark = log.mark(1, &format!("{what} 0\n"));
            mark.unwrap_or_else(|| panic!("no `{what}` is recorded: {}", guest.tail()))
        };
        let [begin, done, end] = ["begin", "done", "end"].map(mark);
        Recorded {
            story: (),
            before: vec![Content::of(&disk)],
            superblock: FS.superblock.clone(),
            begin,
            done,
            end,
            log: log.of(0..1),
            flushes: |_, _| true,
        }
    }

    /// Problems of a node whose power is on again.
    fn judge(&self, run: &Recorded<()>, image: &Image) -> Vec<String> {
        let (root, disk) = (&self.node.root, run.disks(image).remove(0));
        let top = tempfile::tempdir().unwrap();
        if !disk.try_mount(top.path(), &format!(",{}", FS.options)) {
            return vec!["the disk cannot be mounted".to_owned()];
        }
        for path in ["stub", "run"] {
            let _ = fs::remove_dir_all(root.path(path));
            fs::create_dir_all(root.path(path)).unwrap();
        }
        fs::create_dir(root.path("run/ostree")).unwrap();
        copy_tree(self.stubs.path(), &root.path("stub"));
        for name in KEPT {
            let (from, to) = (top.path().join(name), root.path(name));
            mount(&["--bind", from.to_str().unwrap(), to.to_str().unwrap()]);
        }
        let problems = self.judge_mounted(image.moment >= run.done);
        for name in KEPT {
            unmount(&root.path(name));
        }
        unmount(top.path());
        problems
    }

    fn judge_mounted(&self, is_done: bool) -> Vec<String> {
        let repository = self.node.root.path(REPOSITORY);
        let mut problems = Vec::new();
        if let Err(why) = asks_ostree(&repository, &["fsck", "--quiet"]) {
            problems.push(format!("the repository is not sound: {why}"));
        }
        if is_done {
            problems.extend(self.lacks_the_image("after the run was done"));
        }
        let pivot = format!("pivot --yes {NEXT} {OPTIONS}");
        for command in ["recover", &pivot] {
            let run = self.node.run(&command.split(' ').collect::<Vec<_>>());
            if run.code() != 0 {
                let said = flat(&format!("{} {}", run.out(), run.err()));
                problems.push(format!("{command} ended with {}: {said}", run.code()));
            }
        }
        if let Err(why) = asks_ostree(&repository, &["fsck", "--quiet"]) {
            problems.push(format!("the repository is not mended: {why}"));
        }
        problems.extend(self.lacks_the_image("in the end"));
        problems
    }

    fn lacks_the_image(&self, when: &str) -> Option<String> {
        let shown = asks_ostree(&self.node.root.path(REPOSITORY), &["show", NEW_REF]);
        match shown {
            Ok(shown) if shown.contains(&self.content) => None,
            Ok(other) | Err(other) => Some(format!("{when} the image is not there: {other}")),
        }
    }
}

fn asks_ostree(repository: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("ostree");
    command.arg(format!("--repo={}", repository.display()));
    let output = command.args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(said.into_owned())
    } else {
        Err(flat(&said))
    }
}

#[test]
fn every_crash_image_of_an_import_is_sound_and_comes_to_the_image() {
    with_mounts(|| {
        let Some(case) = Case::begin_as_root("7 crash images of an import") else {
            return;
        };
        let Some(import) = Import::new() else { return };
        let mut recorded = import.record(&case);
        let mut random = Random::seeded_with(&case, 1);
        let wanted = std::env::var("VM_IMAGES").ok();
        let usual = if everything_is_asked_for() {
            MANY
        } else {
            SAMPLE
        };
        let wanted = wanted.map_or(usual, |count| {
            count.parse().expect("VM_IMAGES is no number")
        });
        let anywhere = recorded.begin..=recorded.end;
        let judged = |run: &Recorded<()>, image: &Image| {
            let problems = import.judge(run, image);
            (!problems.is_empty()).then(|| format!("{}\n{}", run.words(image), problems.join("\n")))
        };
        let drawn = Drawn::new(&recorded).images(wanted, &anywhere, &mut random);
        let bad: Vec<String> = drawn
            .iter()
            .filter_map(|image| judged(&recorded, image))
            .collect();
        let (disks, flushes) = (
            1,
            recorded.log.before_flushes(1, recorded.begin, recorded.end),
        );
        case.tell(&format!(
            "{} images of {} writes and {} flushes, {} of them bad",
            drawn.len(),
            recorded.log.writes(disks, recorded.begin, recorded.end),
            flushes.len(),
            bad.len()
        ));
        assert!(bad.is_empty(), "{}", bad.join("\n\n"));
        // Without flushes the same run is unsound, which shows that the judgement can fail.
        recorded.flushes = |moment, begin| moment < begin;
        let drawn = Drawn::new(&recorded).images(MANY, &anywhere, &mut random);
        let first = drawn.iter().find_map(|image| judged(&recorded, image));
        case.tell(&format!(
            "without flushes: {}",
            first.expect("nothing was noticed")
        ));
    });
}
