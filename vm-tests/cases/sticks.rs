//! Somebody puts an image onto a stick as people have them, and pulls it out too early (story: a stick for a technician).
//!
//! Prepared: the disk of a node with two images in a real OSTree repository, and a stick of vfat, or of exfat. A tiny guest mounts
//! both, as this machine's kernel may know neither. True afterwards, by case:
//!
//! 1. With any room on the stick either all of the export is there, or nothing of it was begun. What is there is a repository that
//!    ostree finds sound. A stick that is read-only is read and not written. On vfat a file of 4 GiB is refused before anything is
//!    written, and so is an archive of that size, each with a way out.
//! 2. The power is cut at any moment of an export: the stick has no image, or a whole one, and the same command completes it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::lab::qemu::{Guest, Machine};
use crate::lab::random::Random;
use crate::lab::{Case, disk, images};
use crate::support::images::{ImageRepository, NEW_REF, REPOSITORY, content_of, ostree};
use crate::support::ostree_node::NEXT;
use crate::support::{Lacks, TestRoot, skip};

const SCRIPT: &str = include_str!("../guest/sticks.sh");
/// Size of a stick, in mebibytes.
const STICK: u64 = 16;
/// Cuts of each file system, unless `VM_CUTS` says how many.
const CUTS: usize = 4;

/// A disk that is formatted for the stick. Clusters are as large as those of a stick of 32 GB.
struct Format {
    /// The file system in the guest.
    fs: &'static str,
    mkfs: &'static [&'static str],
}

const VFAT: Format = Format {
    fs: "vfat",
    mkfs: &["mkfs.vfat", "-s", "32"],
};
const EXFAT: Format = Format {
    fs: "exfat",
    mkfs: &["mkfs.exfat", "-c", "32K"],
};

/// A node's disk, a stick, and who plugs it in.
struct Desk<'a> {
    case: &'a Case,
    format: &'a Format,
    sibling: PathBuf,
    stick: PathBuf,
    /// What is on the stick, on a disk that this machine can mount.
    copy: PathBuf,
    content: String,
    boots: usize,
}

impl<'a> Desk<'a> {
    /// `None`, said aloud, without ostree.
    fn new(case: &'a Case, format: &'a Format) -> Option<Self> {
        let root = TestRoot::new();
        let repository = ImageRepository::new(&root.path(REPOSITORY))?;
        repository.import_old("2026-01-01T00:00:00Z");
        repository.import_new("2026-02-02T00:00:00Z");
        let sibling = case.path("sibling");
        let from = root.dir().to_str().unwrap();
        disk::formatted(&sibling, 64, &["mke2fs", "-q", "-t", "ext4", "-d", from]);
        let stick = case.path("stick");
        disk::formatted(&stick, STICK, format.mkfs);
        Some(Self {
            case,
            format,
            sibling,
            stick,
            copy: case.path("copy"),
            content: content_of(&repository.path, NEW_REF),
            boots: 0,
        })
    }

    fn start(&mut self, step: &str) -> Guest {
        self.boots += 1;
        disk::formatted(&self.copy, 64, &["mke2fs", "-q", "-t", "ext4"]);
        let (fs, boot) = (self.format.fs, self.boots);
        let script = format!("FS={fs} IMAGE={NEXT} STEP={step}\n{SCRIPT}");
        Machine::tiny(&images::tiny())
            .file("case.sh", script.as_bytes())
            .disk(&self.sibling)
            .disk(&self.stick)
            .disk(&self.copy)
            .start(self.case.dir(), &format!("boot-{boot}"))
    }

    fn boot(&mut self, step: &str) -> Guest {
        let mut guest = self.start(step);
        guest.powers_off();
        assert_eq!(guest.values("HALF"), [""; 0], "{}", guest.tail());
        guest
    }

    /// What is on the stick is all of the image, as ostree on this machine reads it.
    fn is_sound(&self) {
        disk::mounted(&self.copy, |top| {
            let os = top.join("os");
            ostree(&os, &["fsck"]);
            assert_eq!(content_of(&os, NEW_REF), self.content);
        });
    }
}

/// What an export ended with, and what it said.
fn ended(line: &str) -> (&str, &str) {
    line.split_once(' ').unwrap()
}

/// Whether the stick has the image; then it is the whole one.
fn has_image(desk: &Desk<'_>, guest: &Guest) -> bool {
    let listed = guest.value("LISTED ");
    let Ok(listed) = serde_json::from_str::<Value>(&listed) else {
        return false;
    };
    let images = listed["images"].as_array().unwrap();
    let found = images.iter().find(|one| one["image"] == NEXT);
    if let Some(found) = found {
        assert_eq!(found["content_checksum"], desk.content.as_str(), "{listed}");
    }
    found.is_some()
}

fn takes_all_or_nothing(name: &str, format: &Format) {
    let Some(case) = Case::begin_as_root(name) else {
        return;
    };
    let Some(mut desk) = Desk::new(&case, format) else {
        return;
    };
    case.prepared();
    let guest = desk.boot("everything");
    let filled = guest.values("FILLED ");
    let (last, refused) = filled.split_last().unwrap();
    assert_eq!(ended(last).0, "0", "{last}");
    assert!(refused.len() > 2, "{filled:#?}");
    for line in refused {
        let (code, said) = ended(line);
        assert_eq!(code, "1", "{line}");
        let words = "more bytes are needed than are free there";
        assert!(said.contains(words), "{line}");
    }
    for what in ["WHOLE ", "AGAIN ", "MENDED "] {
        let line = guest.value(what);
        assert_eq!(ended(&line).0, "0", "{line}");
    }
    // Another export cannot be written there; of this one nothing is left to write.
    let [other, whole] = &guest.values("READONLY ")[..] else {
        panic!("{}", guest.tail());
    };
    assert_eq!(ended(other).0, "1", "{other}");
    assert!(other.to_lowercase().contains("read-only"), "{other}");
    assert_eq!(ended(whole).0, "0", "{whole}");
    assert!(has_image(&desk, &guest), "{}", guest.tail());
    let large = guest.values("LARGE ");
    for (line, way_out) in large.iter().zip([
        "use a medium with exfat or ext4",
        "name a directory there instead of FILE.tar",
    ]) {
        let (code, said) = ended(line);
        assert_eq!(code, "1", "{line}");
        let words = match format.fs {
            "vfat" => format!("a file there has at most 4294967295; {way_out}"),
            _ => "more bytes are needed than are free there".to_owned(),
        };
        assert!(said.contains(&words), "{line}");
    }
    desk.is_sound();
    case.tell(&format!("{} sizes refused, then all", refused.len()));
}

#[test]
fn a_stick_of_vfat_takes_all_of_an_image_or_nothing() {
    takes_all_or_nothing("11 stick of vfat", &VFAT);
}

#[test]
fn a_stick_of_exfat_takes_all_of_an_image_or_nothing() {
    if Command::new("mkfs.exfat").arg("-V").output().is_err() {
        return skip(Lacks::Setup, "no mkfs.exfat (Debian: exfatprogs)");
    }
    takes_all_or_nothing("11 stick of exfat", &EXFAT);
}

#[test]
fn a_stick_whose_export_is_cut_off_has_no_image_or_all_of_it() {
    let Some(case) = Case::begin_as_root("11 stick pulled out") else {
        return;
    };
    let Some(mut desk) = Desk::new(&case, &VFAT) else {
        return;
    };
    let cuts = std::env::var("VM_CUTS").ok();
    let cuts = cuts.map_or(CUTS, |cuts| cuts.parse().expect("VM_CUTS is no number"));
    let mut random = Random::seeded(&case);
    case.prepared();
    let (mut with, mut without) = (0, 0);
    for _ in 0..cuts {
        disk::formatted(&desk.stick, STICK, VFAT.mkfs);
        let mut guest = desk.start("cut");
        guest.wait_for("EXPORTS");
        let moment = Duration::from_millis(random.below(400) as u64);
        guest.comes_to("BEGUN", moment);
        guest.cut();
        drop(guest);
        let guest = desk.boot("again");
        if has_image(&desk, &guest) {
            with += 1;
        } else {
            without += 1;
        }
        let line = guest.value("AGAIN ");
        assert_eq!(ended(&line).0, "0", "{line}");
        desk.is_sound();
    }
    case.tell(&format!(
        "{cuts} cuts: {without} without an image, {with} with all of it"
    ));
}
