//! What a power cut may leave of a recorded run: disks on which any of the unflushed writes are lost or torn.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;
use std::fs;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;

use crate::lab::random::Random;
use crate::lab::recorded::{Fate, Kind, Recording};
use crate::support::mounts::Disk;

/// Lost writes of an image that are shown.
const SHOWN: usize = 12;

/// A recorded run, and the disks before it.
pub struct Recorded<S> {
    pub story: S,
    pub before: Vec<Content>,
    pub log: Recording,
    /// Never torn at 512 bytes.
    pub superblock: Range<u64>,
    /// Since when everything before the run is on the disks.
    pub begin: usize,
    /// When the run had ended with 0.
    pub done: usize,
    pub end: usize,
    /// Whether a flush at a moment does something, as far as the images go.
    pub flushes: fn(usize, usize) -> bool,
}

/// The disks after a cut.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    pub moment: usize,
    pub fates: BTreeMap<usize, Fate>,
}

/// A disk, without what is zero.
pub struct Content {
    length: u64,
    parts: Vec<(u64, Vec<u8>)>,
}

impl Content {
    pub fn of(disk: &Disk) -> Self {
        let bytes = fs::read(disk.path()).unwrap();
        let parts = bytes.chunks(1 << 16).enumerate();
        let parts = parts.filter(|(_, part)| part.iter().any(|byte| *byte != 0));
        Self {
            length: bytes.len() as u64,
            parts: parts
                .map(|(number, part)| ((number << 16) as u64, part.to_vec()))
                .collect(),
        }
    }

    fn disk(&self) -> Disk {
        let disk = Disk::blank();
        let file = disk.file();
        file.set_len(self.length).unwrap();
        for (offset, part) in &self.parts {
            file.write_all_at(part, *offset).unwrap();
        }
        disk
    }
}

impl<S> Recorded<S> {
    fn volatile(&self, moment: usize) -> Vec<usize> {
        let flushes = |at: usize| (self.flushes)(at, self.begin);
        self.log.volatile(self.before.len(), moment, flushes)
    }

    /// Moments at which the caches have most, and those after which the run has to be there.
    fn moments(&self) -> Vec<usize> {
        let flushes = self
            .log
            .before_flushes(self.before.len(), self.begin, self.end);
        let all: BTreeSet<usize> = flushes.into_iter().chain([self.done, self.end]).collect();
        all.into_iter().collect()
    }

    /// Some parts of a write, where it has several.
    fn torn(&self, number: usize, random: &mut Random) -> Option<Fate> {
        let Kind::Write { offset, data, .. } = &self.log.request(number).kind else {
            return None;
        };
        let end = offset + data.len() as u64;
        let is_superblock = *offset < self.superblock.end && self.superblock.start < end;
        let sizes = if is_superblock {
            [4096; 2]
        } else {
            [512, 4096]
        };
        let size = sizes[random.below(2)];
        let parts = data.len().div_ceil(size);
        let until = random.below(parts);
        let kept: Vec<bool> = match random.below(3) {
            0 => (0..parts).map(|part| part < until).collect(),
            1 => (0..parts).map(|part| part >= until).collect(),
            _ => (0..parts).map(|_| random.below(2) == 0).collect(),
        };
        (parts > 1).then_some(Fate::Torn(size, kept))
    }

    pub fn disks(&self, image: &Image) -> Vec<Disk> {
        let numbered = self.before.iter().enumerate();
        let replayed = |(number, content): (usize, &Content)| {
            let disk = content.disk();
            self.log
                .replay(number, &disk.file(), image.moment, &image.fates);
            disk
        };
        numbered.map(replayed).collect()
    }

    pub fn words(&self, image: &Image) -> String {
        let when = match image.moment {
            at if at >= self.done => "after the run was done",
            _ => "while the run was under way",
        };
        let (moment, begin, done) = (image.moment, self.begin, self.done);
        let cached = self.volatile(moment).len();
        let mut text = format!(
            "cut {when} (at {moment}; begun at {begin}, done at {done}); of {cached} writes in the caches not:"
        );
        if image.fates.len() > SHOWN {
            let _ = write!(text, " {} of them, the first:", image.fates.len());
        }
        for (number, fate) in image.fates.iter().take(SHOWN) {
            let request = self.log.request(*number);
            let Kind::Write { offset, data, .. } = &request.kind else {
                continue;
            };
            let _ = write!(
                text,
                " [{} {}+{} came {} {fate:?}]",
                request.disk,
                offset,
                data.len(),
                request.came
            );
        }
        text
    }
}

/// Images that differ in what is on their disks.
pub struct Drawn<'a, S> {
    run: &'a Recorded<S>,
    known: HashSet<(bool, BTreeMap<usize, Option<Fate>>)>,
    images: Vec<Image>,
}

impl<'a, S> Drawn<'a, S> {
    pub fn new(run: &'a Recorded<S>) -> Self {
        Self {
            run,
            known: HashSet::new(),
            images: Vec::new(),
        }
    }

    /// So many that were not drawn before, of moments in this time, or all that are found.
    pub fn images(
        &mut self,
        wanted: usize,
        within: &RangeInclusive<usize>,
        random: &mut Random,
    ) -> Vec<Image> {
        let mut moments = self.run.moments();
        moments.retain(|at| within.contains(at));
        let cached: Vec<Vec<usize>> = moments.iter().map(|at| self.run.volatile(*at)).collect();
        for at in [self.run.done, self.run.end] {
            if let Ok(number) = moments.binary_search(&at) {
                self.add(at, &cached[number], |_| None);
                self.add(at, &cached[number], |_| Some(Fate::Lost));
            }
        }
        for _ in 0..wanted * 20 {
            if self.images.len() >= wanted {
                break;
            }
            let number = random.below(moments.len());
            self.draw(moments[number], &cached[number], random);
        }
        std::mem::take(&mut self.images)
    }

    fn draw(&mut self, moment: usize, cached: &[usize], random: &mut Random) {
        let lost = |is_lost: bool| is_lost.then_some(Fate::Lost);
        let one = cached.get(random.below(cached.len())).copied().unwrap_or(0);
        let log = &self.run.log;
        match random.below(12) {
            0 => self.add(moment, cached, |_| None),
            1 => self.add(moment, cached, |_| Some(Fate::Lost)),
            2 | 3 => self.add(moment, cached, |at| lost(at == one)),
            4 => self.add(moment, cached, |at| lost(at != one)),
            5 => self.add(moment, cached, |at| lost(at < one)),
            6 => self.add(moment, cached, |at| lost(at > one)),
            7 => {
                let disk = random.below(self.run.before.len());
                self.add(moment, cached, |at| lost(log.request(at).disk == disk));
            }
            kind @ (8 | 9) => {
                let torn = self.run.torn(one, random);
                let others = kind == 9;
                self.add(moment, cached, |at| {
                    if at == one {
                        torn.clone()
                    } else {
                        lost(others)
                    }
                });
            }
            _ => {
                let (run, share) = (self.run, [0.1, 0.5, 0.9][random.below(3)]);
                self.add(moment, cached, |at| {
                    if random.fraction() >= share {
                        None
                    } else if random.below(4) == 0 {
                        run.torn(at, random)
                    } else {
                        Some(Fate::Lost)
                    }
                });
            }
        }
    }

    /// The image in which each write that was in a cache has met this fate.
    fn add(
        &mut self,
        moment: usize,
        cached: &[usize],
        mut fate: impl FnMut(usize) -> Option<Fate>,
    ) {
        let fates = cached.iter().filter_map(|at| Some((*at, fate(*at)?)));
        let fates: BTreeMap<usize, Fate> = fates.collect();
        let run = self.run;
        let came = run.log.until(run.before.len(), moment);
        let there = came.filter(|at| fates.get(at) != Some(&Fate::Lost));
        let there = there.map(|at| (at, fates.get(&at).cloned())).collect();
        if self.known.insert((moment >= run.done, there)) {
            self.images.push(Image { moment, fates });
        }
    }
}
