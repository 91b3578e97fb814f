//! The model beside real file systems: what a real ext4 or xfs holds after a power cut must be a state that the model
//! allows; and what a stricter model would allow is refuted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::world::{Dice, NOTHING, Name, Node, World};
use crate::support::mounts::{Disk, unmount, with_mounts};
use crate::support::say;
use crate::support::scenes::everything_is_asked_for;

const NAMES: usize = 6;
const DIRS: usize = 40;
/// One more name than the others, for a file that has nothing to do with them.
const OTHER: &str = "other";

/// A file system to compare with.
struct Kind {
    name: &'static str,
    mkfs: &'static [&'static str],
    options: &'static str,
    /// A copy is mounted beside the first.
    of_copy: &'static str,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "ext4",
        mkfs: &["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4"],
        options: ",commit=600,noauto_da_alloc",
        of_copy: "",
    },
    Kind {
        name: "ext4 as it is mounted anywhere",
        mkfs: &["mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4"],
        options: "",
        of_copy: "",
    },
    Kind {
        name: "xfs",
        mkfs: &["mkfs.xfs", "-q", "-f", "--unsupported"],
        options: ",nouuid",
        of_copy: ",nouuid",
    },
];

/// What was found, by what it would contradict.
#[derive(Debug, Default)]
struct Tally {
    states: usize,
    older: usize,
    torn: usize,
    contradictions: Vec<String>,
}

/// Operations on a directory and in the model at once.
struct Pair<'a> {
    top: PathBuf,
    world: World,
    dice: &'a mut Dice,
    /// By number, the bytes that a file holds after a write.
    contents: Vec<Vec<u8>>,
    told: Vec<String>,
}

impl Pair<'_> {
    /// Directories that are there, with their paths.
    fn dirs(&self) -> Vec<(Node, PathBuf)> {
        let mut all = vec![(1, self.top.clone())];
        let mut at = 0;
        while at < all.len() {
            let (dir, path) = all[at].clone();
            for name in self.world.names(dir) {
                let node = self.world.find(dir, name);
                if self.world.is_dir(node) {
                    all.push((node, path.join(name.to_string())));
                }
            }
            at += 1;
        }
        all
    }

    fn place(&mut self) -> (Node, Name, PathBuf) {
        let dirs = self.dirs();
        let (dir, path) = dirs[self.dice.below(dirs.len())].clone();
        let name = self.dice.below(NAMES) as Name;
        (dir, name, path.join(name.to_string()))
    }

    /// One operation, if the dice hit one that can be done.
    fn step(&mut self) {
        let (dir, name, path) = self.place();
        let node = self.world.find(dir, name);
        let is_dir = self.world.is_dir(node);
        let what = self.dice.below(22);
        let told = match what {
            0..=4 if node == NOTHING => {
                let mut options = File::options();
                options.create_new(true).write(true).mode(0o600);
                let mut file = options.open(&path).unwrap();
                let node = self.world.create(dir, name, 0o600);
                self.write(&mut file, node);
                "create"
            }
            0..=2 if !is_dir => {
                let mut file = File::options().write(true).open(&path).unwrap();
                self.write(&mut file, node);
                "write"
            }
            5 | 6 if node == NOTHING && self.dirs().len() < 8 => {
                fs::DirBuilder::new().mode(0o755).create(&path).unwrap();
                self.world.make_dir(dir, name, 0o755);
                "mkdir"
            }
            5..=7 if node != NOTHING && !is_dir => {
                fs::remove_file(&path).unwrap();
                self.world.unlink(dir, name);
                "unlink"
            }
            5..=7 if is_dir && self.world.is_empty(node) => {
                fs::remove_dir(&path).unwrap();
                self.world.unlink(dir, name);
                "rmdir"
            }
            8..=12 if node != NOTHING => return self.rename((dir, name, &path), node, is_dir),
            13 if node != NOTHING && !is_dir => {
                let (to, new, target) = self.place();
                if self.world.find(to, new) != NOTHING {
                    return;
                }
                fs::hard_link(&path, &target).unwrap();
                self.world.link(node, to, new);
                "link"
            }
            14 | 15 if node != NOTHING => {
                let base = if is_dir { 0o700 } else { 0o600 };
                let mode = base + self.dice.below(64) as u32;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                self.world.set_attr(node, mode);
                "chmod"
            }
            16 | 17 if node != NOTHING => {
                File::open(&path).unwrap().sync_all().unwrap();
                self.world.flush_node(node);
                "fsync"
            }
            18 => {
                File::open(path.parent().unwrap())
                    .unwrap()
                    .sync_all()
                    .unwrap();
                self.world.flush_node(dir);
                "fsync of the directory of"
            }
            19 if self.dice.one_in(3) => {
                nix::unistd::syncfs(File::open(&self.top).unwrap()).unwrap();
                self.world.flush_fs(0);
                "syncfs"
            }
            20 | 21 => {
                // It makes the file system write its journal, and nothing of ours.
                let other = File::open(self.top.parent().unwrap().join(OTHER)).unwrap();
                other.set_modified(SystemTime::now()).unwrap();
                other.sync_all().unwrap();
                "fsync of another file instead of"
            }
            _ => return,
        };
        self.told.push(format!("{told} {}", path.display()));
    }

    fn rename(&mut self, (dir, name, path): (Node, Name, &Path), node: Node, is_dir: bool) {
        let (to, new, target) = self.place();
        if target.starts_with(path) || path.starts_with(&target) {
            return;
        }
        let there = self.world.find(to, new);
        let told = if there != NOTHING && there != node && self.dice.one_in(2) {
            let flags = RenameFlags::RENAME_EXCHANGE;
            renameat2(AT_FDCWD, path, AT_FDCWD, &target, flags).unwrap();
            self.world.exchange((dir, name), (to, new));
            "exchange"
        } else if there == NOTHING {
            let flags = RenameFlags::RENAME_NOREPLACE;
            renameat2(AT_FDCWD, path, AT_FDCWD, &target, flags).unwrap();
            self.world.rename((dir, name), (to, new));
            "rename"
        } else if there != node && !is_dir && !self.world.is_dir(there) {
            fs::rename(path, &target).unwrap();
            self.world.rename((dir, name), (to, new));
            "rename over"
        } else {
            return;
        };
        let text = format!("{told} {} {}", path.display(), target.display());
        self.told.push(text);
    }

    /// Other bytes from the beginning on; what was longer keeps its end.
    fn write(&mut self, file: &mut File, node: Node) {
        let number = self.contents.len();
        let length = 1 + self.dice.below(3 * 4096);
        let mut bytes = vec![b'a' + (number % 26) as u8; length];
        file.write_all(&bytes).unwrap();
        let before = &self.contents[self.world.content(node) as usize];
        bytes.extend(before.iter().skip(length));
        self.contents.push(bytes);
        self.world.write(node, number as u32);
    }

    /// What contradicts the model in what a power cut left.
    fn compare(&self, found: &Path, tally: &mut Tally) {
        let moment = self.world.moment();
        let from = self.world.names_from(moment);
        let mut why = Vec::new();
        tally.states += 1;
        for then in (from..=moment).rev() {
            let world = self.world.names_at(then);
            let mut nodes = BTreeMap::new();
            let same = same_names(&world, 1, found, &mut nodes);
            let same = same.and_then(|()| {
                let mut files = nodes.values();
                files.try_for_each(|(node, path)| self.may_hold(*node, path))
            });
            match same {
                Ok(()) => {
                    tally.older += usize::from(then < moment && !same_at_end(&self.world, found));
                    let files = nodes.values();
                    let torn = files.filter(|(node, path)| {
                        let now = &self.contents[self.world.content(*node) as usize];
                        fs::read(path).unwrap() != *now
                    });
                    tally.torn += torn.count();
                    return;
                }
                Err(what) => why.push(format!("{then}: {what}")),
            }
        }
        let told = self.told.join("\n");
        tally.contradictions.push(format!(
            "no names from {from} to {moment}: {why:#?}\n{told}"
        ));
    }

    /// The bytes of a file are durable ones, with any part of what was written later.
    fn may_hold(&self, node: Node, path: &Path) -> Result<(), String> {
        let bytes = fs::read(path).unwrap();
        let (durable, later) = self.world.contents_at(node, self.world.moment());
        let durable = &self.contents[durable as usize];
        let later: Vec<&Vec<u8>> = later
            .iter()
            .map(|id| &self.contents[*id as usize])
            .collect();
        let longest = later.iter().map(|bytes| bytes.len()).max();
        let longest = longest.unwrap_or(0).max(durable.len());
        let is_allowed = |(at, byte): (usize, &u8)| {
            let of_later = later.iter().any(|bytes| bytes.get(at) == Some(byte));
            of_later || durable.get(at).map_or(*byte == 0, |old| old == byte)
        };
        if (durable.len()..=longest).contains(&bytes.len())
            && bytes.iter().enumerate().all(is_allowed)
        {
            return Ok(());
        }
        let size = bytes.len();
        Err(format!(
            "the {size} bytes of {} come from no write",
            path.display()
        ))
    }
}

/// Names, types, modes and which names are of one file; `nodes` are the files, by their number on disk.
fn same_names(
    world: &World,
    dir: Node,
    path: &Path,
    nodes: &mut BTreeMap<u64, (Node, PathBuf)>,
) -> Result<(), String> {
    let mut wanted: Vec<String> = world.names(dir).map(|name| name.to_string()).collect();
    wanted.sort();
    let entries = fs::read_dir(path).unwrap();
    let mut found: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    if found != wanted {
        return Err(format!(
            "{} holds {found:?}, not {wanted:?}",
            path.display()
        ));
    }
    for name in found {
        let node = world.find(dir, name.parse().unwrap());
        let path = path.join(&name);
        let stat = fs::symlink_metadata(&path).unwrap();
        let at = path.display();
        if stat.is_dir() != world.is_dir(node) {
            return Err(format!("{at} is of another type"));
        }
        if stat.mode() & 0o7777 != world.attr(node) {
            return Err(format!(
                "{at} has mode {:o}, not {:o}",
                stat.mode(),
                world.attr(node)
            ));
        }
        if stat.is_dir() {
            same_names(world, node, &path, nodes)?;
        } else {
            let known = nodes.entry(stat.ino()).or_insert((node, path.clone()));
            if known.0 != node {
                return Err(format!("{at} is the same file as {}", known.1.display()));
            }
        }
    }
    Ok(())
}

fn same_at_end(world: &World, found: &Path) -> bool {
    same_names(world, 1, found, &mut BTreeMap::new()).is_ok()
}

/// Random operations on a real file system, with power cuts at random moments.
fn compare_with(kind: &Kind, traces: usize, seed: u64) -> Option<Tally> {
    let disk = Disk::new(if kind.name == "xfs" { 32 } else { 16 }, kind.mkfs)?;
    let (here, copy_at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    disk.mount(here.path(), kind.options);
    File::create(here.path().join(OTHER)).unwrap();
    let mut tally = Tally::default();
    for trace in 0..traces {
        let mut dice = Dice::new(seed + trace as u64);
        let top = here.path().join(format!("trace-{trace}"));
        fs::create_dir(&top).unwrap();
        nix::unistd::syncfs(File::open(&top).unwrap()).unwrap();
        let mut world = World::new(DIRS, 200, NAMES);
        world.make_root(0);
        let steps = 6 + dice.below(60);
        let mut pair = Pair {
            top: top.clone(),
            world,
            dice: &mut dice,
            contents: vec![Vec::new()],
            told: Vec::new(),
        };
        for _ in 0..steps {
            pair.step();
        }
        let copy = disk.copy_at_rest();
        copy.mount(copy_at.path(), kind.of_copy);
        pair.compare(&copy_at.path().join(format!("trace-{trace}")), &mut tally);
        unmount(copy_at.path());
        fs::remove_dir_all(&top).unwrap();
    }
    unmount(here.path());
    Some(tally)
}

#[test]
fn what_a_real_file_system_keeps_is_what_the_model_allows() {
    with_mounts(|| {
        let seed = super::seed();
        for kind in &KINDS {
            let started = Instant::now();
            let traces = match everything_is_asked_for() {
                true if kind.name == "xfs" => 400,
                true => 300,
                false => 14,
            };
            let Some(tally) = compare_with(kind, traces, seed) else {
                continue;
            };
            say(&format!(
                "the model beside {}: {} power cuts (seed {seed}), {} with older names, {} files not whole, {} contradictions, {} s",
                kind.name,
                tally.states,
                tally.older,
                tally.torn,
                tally.contradictions.len(),
                started.elapsed().as_secs()
            ));
            assert!(
                tally.contradictions.is_empty(),
                "{}",
                tally.contradictions[0]
            );
            // A model in which names or contents are durable at once would be wrong.
            assert!(tally.older > 0, "names were durable at once");
            assert!(tally.torn > 0, "contents were durable at once");
        }
    });
}

#[test]
fn two_real_file_systems_do_not_keep_one_order() {
    with_mounts(|| {
        let kind = &KINDS[0];
        let (Some(one), Some(other)) = (Disk::new(16, kind.mkfs), Disk::new(16, kind.mkfs)) else {
            return;
        };
        let tops = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (disk, top) in [&one, &other].into_iter().zip(&tops) {
            disk.mount(top.path(), kind.options);
        }
        File::create(tops[0].path().join("first")).unwrap();
        File::create(tops[1].path().join("second")).unwrap();
        nix::unistd::syncfs(File::open(tops[1].path()).unwrap()).unwrap();
        let copies = [one.copy_at_rest(), other.copy_at_rest()];
        for (copy, top) in copies.iter().zip(&tops) {
            unmount(top.path());
            copy.mount(top.path(), "");
        }
        assert!(!tops[0].path().join("first").exists());
        assert!(tops[1].path().join("second").exists());
        tops.iter().for_each(|top| unmount(top.path()));
    });
}
