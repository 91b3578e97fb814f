//! The power fails at any moment of a run, and the disks have any part of what was in their caches.
//!
//! A tiny guest makes one run on disks that record each request. On the host thousands of disks are made of each
//! recording, as a power cut may have left them: at a moment of the run everything is there that was answered before a
//! flush that is done; of the other writes any are lost or torn. Each is mounted and judged: no path is torn; `recover`
//! leads to the old tree or the new one, and to the new one where the run had said that it was done; a second `recover`
//! has nothing to do; `rollback` takes the new tree back; `apply` ends it, `verify` finds nothing, nothing of ours lies
//! about.
//!
//! Which write is lost: all, none, each one alone, all but each one, all until one, all of one disk, any. A part of
//! 512 or 4096 bytes of a write is lost in the same ways. Of two writes at one place either may be on the disk.

mod image;
mod import;
mod power_up;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use self::image::{Content, Drawn};
use self::power_up::{Mounted, Verdicts};
use crate::lab::qemu::{Guest, Machine};
use crate::lab::random::Random;
use crate::lab::recorded::{Recorder, Recording};
use crate::lab::{Case, images};
use crate::support::faults::{Scene, copy_tree};
use crate::support::mounts::{Disk, with_mounts};
use crate::support::scenes::{WATCHED, bare, can_disturb, everything_is_asked_for, update};
use crate::support::{TestRoot, copy_program};

type Recorded<'a> = image::Recorded<Story<'a>>;

const SCRIPT: &str = include_str!("../guest/crash-images.sh");
/// Images of each recording: of a sample, and at full size.
const SAMPLE: usize = 18;
const MANY: usize = 60;
/// Runs of one guest.
const AT_ONCE: usize = 9;
/// What is promised of each file system at full size.
const ENOUGH: usize = 2000;

/// A file system, and how it is mounted.
struct FileSystem {
    kind: &'static str,
    mkfs: &'static [&'static str],
    mebibytes: u64,
    options: &'static str,
    /// The block of its superblock. A disk has to write it in one piece, or nothing mounts it.
    superblock: Range<u64>,
}

const EXT4: &[&str] = &[
    "mkfs.ext4",
    "-q",
    "-F",
    "-m",
    "0",
    "-b",
    "4096",
    "-J",
    "size=4",
];

const ORDERED: FileSystem = FileSystem {
    kind: "ext4",
    mkfs: EXT4,
    mebibytes: 24,
    options: "data=ordered,noauto_da_alloc",
    superblock: 0..4096,
};
const JOURNALED: FileSystem = FileSystem {
    options: "data=journal",
    ..ORDERED
};
const XFS: FileSystem = FileSystem {
    kind: "xfs",
    mkfs: &["mkfs.xfs", "-q", "-f", "--unsupported"],
    mebibytes: 32,
    options: "nouuid",
    superblock: 0..512,
};

const BTRFS: FileSystem = FileSystem {
    kind: "btrfs",
    mkfs: &["mkfs.btrfs", "-q", "-f", "-m", "single"],
    mebibytes: 128,
    options: "rw",
    superblock: 65536..69632,
};

/// Which directory of which disk is where in the root.
struct Layout {
    name: &'static str,
    disks: usize,
    binds: &'static [(usize, &'static str, &'static str)],
}

const LAYOUTS: [Layout; 4] = [
    Layout {
        name: "one file system",
        disks: 1,
        binds: &[(0, "", "")],
    },
    Layout {
        name: "/etc and /var bound",
        disks: 1,
        binds: &[
            (0, "deploy", ""),
            (0, "deploy/etc", "etc"),
            (0, "var", "var"),
        ],
    },
    Layout {
        name: "/var elsewhere",
        disks: 2,
        binds: &[(0, "", ""), (1, "", "var")],
    },
    Layout {
        name: "/etc elsewhere",
        disks: 2,
        binds: &[(0, "", ""), (1, "", "etc")],
    },
];

/// Which run is recorded.
#[derive(Clone, Copy, PartialEq)]
enum Job {
    Apply,
    /// What an `apply` that was killed has left.
    Recover,
}

/// What else the node does during the run.
#[derive(Debug, Clone, Copy)]
enum Mood {
    Nothing,
    /// Another program flushes all the time.
    Flushes,
    /// Contents are written as soon as they are there, and now and then something is flushed.
    Writes,
}

/// What is recorded: a run that leads from the one state of a scene to the other.
#[derive(Clone, Copy)]
struct Story<'a> {
    name: &'a str,
    scene: &'a Scene,
    layout: &'a Layout,
    job: Job,
    mood: Mood,
    /// What strace makes of the run's own calls.
    faults: &'a [&'a str],
}

#[test]
fn every_crash_image_is_the_old_or_the_new_node_on_ext4() {
    every_image("7 crash images, ext4 data=ordered", &ORDERED);
}

#[test]
fn every_crash_image_is_the_old_or_the_new_node_on_ext4_with_its_data_in_the_journal() {
    every_image("7 crash images, ext4 data=journal", &JOURNALED);
}

#[test]
fn every_crash_image_is_the_old_or_the_new_node_on_xfs() {
    every_image("7 crash images, xfs", &XFS);
}

#[test]
fn every_crash_image_is_the_old_or_the_new_node_on_btrfs() {
    every_image("7 crash images, btrfs", &BTRFS);
}

/// What shows that the tests above can fail.
#[test]
fn crash_images_of_disks_without_flushes_are_noticed() {
    on_a_bench(
        "7 crash images without flushes",
        &ORDERED,
        |bench, scenes| {
            let story = Story::new(&scenes[0], &LAYOUTS[0], Mood::Flushes);
            bench.noticed(&story, |moment, begin| moment < begin);
        },
    );
}

#[test]
fn crash_images_of_a_run_without_its_first_barrier_are_noticed() {
    on_a_bench("7 crash images, no barrier 1", &ORDERED, |bench, scenes| {
        let mut story = Story::new(&scenes[0], &LAYOUTS[0], Mood::Flushes);
        story.faults = &["syncfs:retval=0:when=1"];
        bench.noticed(&story, |_, _| true);
    });
}

#[test]
fn crash_images_of_a_run_without_its_last_barrier_are_noticed() {
    on_a_bench("7 crash images, no barrier 2", &ORDERED, |bench, scenes| {
        let mut story = Story::new(&scenes[0], &LAYOUTS[0], Mood::Nothing);
        // Any of these writes the file system's journal, and with it all names.
        story.faults = &["syncfs:retval=0:when=2+", "fsync:retval=0:when=2+"];
        bench.noticed(&story, |_, _| true);
    });
}

impl<'a> Story<'a> {
    fn new((name, scene): &'a (&'static str, Scene), layout: &'a Layout, mood: Mood) -> Self {
        Self {
            name,
            scene,
            layout,
            job: Job::Apply,
            mood,
            faults: &[],
        }
    }

    fn recovery(self) -> Self {
        Self {
            job: Job::Recover,
            ..self
        }
    }

    fn title(&self) -> String {
        let job = match self.job {
            Job::Apply => self.name.to_owned(),
            Job::Recover => format!("recovery of {}", self.name),
        };
        let mood = match self.mood {
            Mood::Nothing => "alone",
            Mood::Flushes => "beside flushes",
            Mood::Writes => "beside writes",
        };
        format!("{}, {job}, {mood}", self.layout.name)
    }

    /// What the guest does; its disks come after so many others.
    fn script(&self, name: usize, first: usize) -> String {
        let disks: Vec<String> = (0..self.layout.disks)
            .map(|disk| device(first + disk))
            .collect();
        let arguments = match self.job {
            Job::Apply => format!("apply --yes /{name}.json"),
            Job::Recover => "recover".to_owned(),
        };
        let mut script = format!(
            "NAME={name} DISKS='{}' PAUSE={} PROGRAM='{} mco-rescue --root /mnt' ARGUMENTS='{arguments}'\nplace() {{\n",
            disks.join(" "),
            match self.mood {
                Mood::Nothing => "",
                Mood::Flushes => "0",
                Mood::Writes => "20000",
            },
            tracer(self.faults),
        );
        for (disk, inside, at) in self.layout.binds {
            let _ = writeln!(
                script,
                "mount -o bind /disks/{}/{inside} /mnt/{at}",
                disks[*disk]
            );
        }
        script + "}\nstory\n"
    }
}

/// The scenes, each with files that another program may flush.
fn scenes() -> [(&'static str, Scene); 2] {
    [("an update", update(&[])), ("overwriting", bare())].map(|(name, scene)| {
        let root = scene.root();
        root.write("etc/of-others", "\0");
        root.write("var/of-others", "\0");
        let scene = Scene::leading(&root, scene.new.clone(), &WATCHED, &[]);
        (name, scene)
    })
}

/// What a case works with.
struct Bench<'a> {
    case: &'a Case,
    fs: &'a FileSystem,
    random: Random,
}

fn on_a_bench(
    name: &str,
    fs: &FileSystem,
    work: impl FnOnce(&mut Bench<'_>, &[(&'static str, Scene)]) + Send,
) {
    if !can_disturb() {
        return;
    }
    with_mounts(|| {
        let Some(case) = Case::begin_as_root(name) else {
            return;
        };
        if Disk::new(fs.mebibytes, fs.mkfs).is_none() {
            return;
        }
        let random = if everything_is_asked_for() {
            Random::seeded(&case)
        } else {
            Random::seeded_with(&case, 1)
        };
        let mut bench = Bench {
            case: &case,
            fs,
            random,
        };
        work(&mut bench, &scenes());
    });
}

fn every_image(name: &str, fs: &FileSystem) {
    on_a_bench(name, fs, |bench, scenes| {
        let all = everything_is_asked_for();
        let only = std::env::var("VM_STORY").ok();
        let mut stories = Vec::new();
        if all || only.is_some() {
            for layout in &LAYOUTS {
                for mood in [Mood::Nothing, Mood::Flushes, Mood::Writes] {
                    stories.extend(scenes.iter().map(|one| Story::new(one, layout, mood)));
                    stories.push(Story::new(&scenes[0], layout, mood).recovery());
                }
            }
        } else {
            stories.push(Story::new(&scenes[0], &LAYOUTS[0], Mood::Nothing));
            stories.push(Story::new(&scenes[1], &LAYOUTS[1], Mood::Flushes));
            stories.push(Story::new(&scenes[0], &LAYOUTS[2], Mood::Writes));
            stories.push(Story::new(&scenes[0], &LAYOUTS[0], Mood::Flushes).recovery());
        }
        stories.retain(|story| {
            only.as_ref()
                .is_none_or(|only| story.title().contains(only))
        });
        let wanted = std::env::var("VM_IMAGES").ok();
        let usual = if all { MANY } else { SAMPLE };
        let wanted = wanted.map_or(usual, |count| {
            count.parse().expect("VM_IMAGES is no number")
        });
        let (mut tried, mut bad, mut problems) = (0, 0, Vec::new());
        for some in stories.chunks(AT_ONCE) {
            for recording in bench.record(some) {
                let verdicts = bench.tried(&recording, wanted);
                tried += verdicts.len();
                if problems.is_empty() {
                    problems.extend(bench.smallest(&recording, &verdicts));
                }
                let complaints = recording.complaints(&verdicts);
                bad += complaints.len();
                problems.extend(complaints);
            }
        }
        bench.case.tell(&format!(
            "{tried} images of {} runs, {bad} of them bad",
            stories.len()
        ));
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        assert!(
            !all || only.is_some() || wanted < MANY || tried >= ENOUGH,
            "too few images: {tried}"
        );
    });
}

impl Bench<'_> {
    /// The disks before a run.
    fn prepare(&self, story: &Story<'_>) -> Vec<Disk> {
        let disks: Vec<Disk> = (0..story.layout.disks)
            .map(|_| Disk::new(self.fs.mebibytes, self.fs.mkfs).unwrap())
            .collect();
        let mounted = Mounted::new(story.layout, self.fs, &disks).unwrap();
        for top in &mounted.tops {
            let _ = fs::remove_dir(top.path().join("lost+found"));
        }
        copy_tree(story.scene.template(), mounted.root.dir());
        if story.job == Job::Recover {
            let (first, last) = story.scene.renames();
            story
                .scene
                .kill(&mounted.root, "renameat", usize::midpoint(first, last));
        }
        drop(mounted);
        disks
    }

    /// Makes the runs in a guest, one after another.
    fn record<'s>(&self, stories: &[Story<'s>]) -> Vec<Recorded<'s>> {
        let before: Vec<Vec<Disk>> = stories.iter().map(|story| self.prepare(story)).collect();
        let mut machine = Machine::tiny(&images::tiny());
        let disks: Vec<&Disk> = before.iter().flatten().collect();
        let (fs, count) = (self.fs, disks.len());
        let marks = device(count);
        let mut script = format!(
            "FS={} OPTIONS={} MARKS={marks}\n{SCRIPT}",
            fs.kind, fs.options
        );
        let mut first = 0;
        for (name, story) in stories.iter().enumerate() {
            script += &story.script(name, first);
            first += story.layout.disks;
            let config = story.scene.new.as_ref().unwrap().to_string();
            machine = machine.file(&format!("{name}.json"), config.as_bytes());
        }
        machine = machine.file("case.sh", script.as_bytes());
        if stories.iter().any(|story| !story.faults.is_empty()) {
            machine = machine.archive(&with_strace(self.case));
        }
        let (log, guest) = recorded(self.case, machine, &disks);
        let mut first = 0;
        let numbered = stories.iter().enumerate().zip(&before);
        let recorded = numbered.map(|((name, story), before)| {
            let mark = |what: &str| {
                let mark = log.mark(count, &format!("{what} {name}\n"));
                mark.unwrap_or_else(|| panic!("no `{what}` is recorded: {}", guest.tail()))
            };
            let disks = first..first + before.len();
            first = disks.end;
            Recorded {
                story: *story,
                before: before.iter().map(Content::of).collect(),
                superblock: fs.superblock.clone(),
                log: log.of(disks),
                begin: mark("begin"),
                done: mark("done"),
                end: mark("end"),
                flushes: |_, _| true,
            }
        });
        recorded.collect()
    }

    /// Judges so many images of a run and says how it went. Two thirds are of the time in which `recover` has something
    /// to do, as far as the first third shows it.
    fn tried(&mut self, run: &Recorded<'_>, wanted: usize) -> Verdicts {
        let begun = Instant::now();
        let mut drawn = Drawn::new(run);
        let anywhere = run.begin..=run.end;
        let some = drawn.images(wanted / 3, &anywhere, &mut self.random);
        let mut verdicts = run.judged(self.fs, &some);
        let within = busy(&verdicts).unwrap_or(anywhere);
        let more = drawn.images(wanted - verdicts.len(), &within, &mut self.random);
        verdicts.extend(run.judged(self.fs, &more));
        let disks = run.before.len();
        let count = |kind: usize| verdicts.values().filter(|one| one.kinds()[kind]).count();
        let mut results: BTreeMap<&str, usize> = BTreeMap::new();
        for verdict in verdicts.values() {
            *results.entry(&verdict.result).or_default() += 1;
        }
        self.case.tell(&format!(
            "{}: {} images of {} writes and {} flushes, {} torn, {} lost, {} stuck, {:.1} s; recover: {results:?}",
            run.story.title(),
            verdicts.len(),
            run.log.writes(disks, run.begin, run.end),
            run.log.before_flushes(disks, run.begin, run.end).len(),
            count(0),
            count(1),
            count(2),
            begun.elapsed().as_secs_f64()
        ));
        verdicts
    }

    /// A bad image with as little lost as makes it bad; its disks are kept with the case.
    fn smallest(&self, run: &Recorded<'_>, verdicts: &Verdicts) -> Option<String> {
        let mut bad = verdicts.iter().filter(|(_, verdict)| !verdict.is_good());
        let mut image = bad.next()?.0.clone();
        for number in image.fates.keys().copied().collect::<Vec<_>>() {
            let mut without = image.clone();
            without.fates.remove(&number);
            if !run.judge(self.fs, &without).is_good() {
                image = without;
            }
        }
        for (number, disk) in run.disks(&image).iter().enumerate() {
            fs::copy(disk.path(), self.case.path(&format!("bad-disk-{number}"))).unwrap();
        }
        let verdict = run.judge(self.fs, &image);
        let words = run.words(&image);
        Some(format!("smallest: {words}\n{}", verdict.shown()))
    }

    /// Judges images until something is torn or lost, which must happen.
    fn noticed(&mut self, story: &Story<'_>, flushes: fn(usize, usize) -> bool) {
        let begun = Instant::now();
        for attempt in 1..=5 {
            let mut run = self.record(&[*story]).remove(0);
            run.flushes = flushes;
            let anywhere = run.begin..=run.end;
            let images = Drawn::new(&run).images(60, &anywhere, &mut self.random);
            for (number, some) in images.chunks(6).enumerate() {
                let mut verdicts = run.judged(self.fs, some);
                verdicts.retain(|_, one| one.kinds()[0] || one.kinds()[1]);
                if let Some(first) = run.complaints(&verdicts).first() {
                    return self.case.tell(&format!(
                        "noticed in recording {attempt} after some {} images, {:.1} s: {first}",
                        6 * (number + 1),
                        begun.elapsed().as_secs_f64(),
                    ));
                }
            }
        }
        panic!("nothing was noticed");
    }
}

/// Starts a guest on disks that record each request, and one more for its marks; gives the recording when it has ended.
fn recorded(case: &Case, mut machine: Machine, disks: &[&Disk]) -> (Recording, Guest) {
    let blank = Disk::blank();
    blank.file().set_len(1 << 20).unwrap();
    let sockets = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::default();
    for (number, disk) in disks.iter().copied().chain([&blank]).enumerate() {
        let socket = sockets.path().join(number.to_string());
        recorder.serve(disk.path(), &socket);
        machine = machine.served_disk(&socket);
    }
    let mut guest = machine.start(case.dir(), "recorded");
    guest.powers_off();
    assert_eq!(guest.values("BROKEN"), [""; 0], "{}", guest.tail());
    (recorder.end(), guest)
}

/// From the last moment before those at which `recover` had something to do to the first one after them.
fn busy(verdicts: &Verdicts) -> Option<RangeInclusive<usize>> {
    let moments = |busy: bool| {
        let such = verdicts
            .iter()
            .filter(move |(_, one)| (one.result != "nothing") == busy);
        such.map(|(image, _)| image.moment)
    };
    let (first, last) = (moments(true).min()?, moments(true).max()?);
    let before = moments(false).filter(|at| *at < first).max();
    let after = moments(false).filter(|at| *at > last).min();
    Some(before.unwrap_or(first)..=after.unwrap_or(last))
}

/// The name of a disk in the guest.
fn device(number: usize) -> String {
    let letter = ('a'..='z').nth(number).unwrap();
    format!("vd{letter}")
}

/// The words before the program in the guest.
fn tracer(faults: &[&str]) -> String {
    if faults.is_empty() {
        return String::new();
    }
    let calls: Vec<&str> = faults
        .iter()
        .map(|fault| fault.split(':').next().unwrap())
        .collect();
    let mut words = format!("strace -f -qq -o /dev/null -e trace={}", calls.join(","));
    for fault in faults {
        let _ = write!(words, " -e inject={fault}");
    }
    words
}

/// strace and its libraries, as an archive.
fn with_strace(case: &Case) -> PathBuf {
    let root = TestRoot::empty();
    let strace = crate::lab::run(Command::new("sh").args(["-c", "command -v strace"]));
    copy_program(&root, strace.trim());
    let there = root.path(strace.trim());
    fs::create_dir_all(root.path("bin")).unwrap();
    fs::copy(there, root.path("bin/strace")).unwrap();
    let path = case.path("strace.cpio");
    fs::write(&path, images::packed(root.dir(), "cat")).unwrap();
    path
}
