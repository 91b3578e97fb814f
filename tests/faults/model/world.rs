//! A model of file systems that forget at a power cut: what was flushed stays, of what was changed since each file system
//! keeps the names up to some moment, and of every file anything between nothing and all.
//!
//! It is compact, as the tests are not optimised: an object is a number, and a directory is a row of a table.

/// A file, link or directory; 0 is nothing.
pub type Node = u16;
/// One component of a path.
pub type Name = u16;

pub const NOTHING: Node = 0;
/// The most file systems of a world.
pub const MOUNTS: usize = 3;

/// A content that is not whole has one of these on top of its number.
const TORN: [u32; 3] = [1 << 29, 2 << 29, 3 << 29];

/// The content as it would be if it were whole.
pub fn as_whole(content: u32) -> u32 {
    content & (TORN[0] - 1)
}

/// Numbers from a seed (xorshift).
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        dice.0 |= 1;
        for _ in 0..4 {
            dice.next();
        }
        dice
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 3
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// From `from` to `to`, both included; the ends more often than the rest.
    fn between(&mut self, from: usize, to: usize) -> usize {
        match self.next() & 3 {
            0 => from,
            1 => to,
            _ => from + self.below(to - from + 1),
        }
    }
}

/// The state of all objects.
#[derive(Clone, Default)]
pub struct Tables {
    /// By directory and name.
    slots: Vec<Node>,
    /// Mode, owner and flags of each node, as one number.
    attrs: Vec<u32>,
    contents: Vec<u32>,
}

impl Tables {
    fn copy_from(&mut self, other: &Self) {
        self.slots.clone_from(&other.slots);
        self.attrs.clone_from(&other.attrs);
        self.contents.clone_from(&other.contents);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// One name changes, or two at once.
    Names,
    Attr,
    Write,
    FlushNode,
    FlushAll,
    /// A flush that was left out.
    Nothing,
}

#[derive(Debug, Clone, Copy)]
struct Change {
    what: What,
    fs: u8,
    node: Node,
    first: (u32, Node),
    second: (u32, Node),
    value: u32,
}

const NO_SLOT: u32 = u32::MAX;

/// File systems from a power-up on.
#[derive(Clone, Default)]
pub struct World {
    row: usize,
    dirs: usize,
    next_dir: Node,
    next_file: Node,
    fs_of: Vec<u8>,
    base: Tables,
    pub now: Tables,
    log: Vec<Change>,
}

impl World {
    /// At most `dirs` directories in its lifetime, `files` other objects, and `names` different names.
    pub fn new(dirs: usize, files: usize, names: usize) -> Self {
        let nodes = dirs + files + 2;
        let tables = Tables {
            slots: vec![NOTHING; (dirs + 1) * names],
            attrs: vec![0; nodes],
            contents: vec![0; nodes],
        };
        Self {
            row: names,
            dirs,
            next_dir: 1,
            next_file: dirs as Node + 1,
            fs_of: vec![0; nodes],
            base: tables.clone(),
            now: tables,
            log: Vec::with_capacity(256),
        }
    }

    pub fn is_dir(&self, node: Node) -> bool {
        node != NOTHING && (node as usize) <= self.dirs
    }

    pub fn fs_of(&self, node: Node) -> usize {
        self.fs_of[node as usize] as usize
    }

    /// The moment after everything that was done so far.
    pub fn moment(&self) -> usize {
        self.log.len()
    }

    /// Everything so far is durable, and forgotten as history.
    pub fn settle(&mut self) {
        self.log.clear();
        self.base.copy_from(&self.now);
    }

    fn slot(&self, dir: Node, name: Name) -> usize {
        dir as usize * self.row + name as usize
    }

    pub fn find(&self, dir: Node, name: Name) -> Node {
        self.now.slots[self.slot(dir, name)]
    }

    pub fn attr(&self, node: Node) -> u32 {
        self.now.attrs[node as usize]
    }

    pub fn content(&self, node: Node) -> u32 {
        self.now.contents[node as usize]
    }

    /// The names in a directory.
    pub fn names(&self, dir: Node) -> impl Iterator<Item = Name> + '_ {
        let start = self.slot(dir, 0);
        let row = &self.now.slots[start..start + self.row];
        let used = row.iter().enumerate().filter(|(_, node)| **node != NOTHING);
        used.map(|(name, _)| name as Name)
    }

    pub fn is_empty(&self, dir: Node) -> bool {
        let start = self.slot(dir, 0);
        let row = &self.now.slots[start..start + self.row];
        row.iter().all(|node| *node == NOTHING)
    }

    /// The root of a file system; mounted where `find` gives it, by [`World::mount`].
    pub fn make_root(&mut self, fs: usize) -> Node {
        let node = self.next_dir;
        self.next_dir += 1;
        self.fs_of[node as usize] = fs as u8;
        node
    }

    pub fn mount(&mut self, dir: Node, name: Name, root: Node) {
        let slot = self.slot(dir, name);
        self.now.slots[slot] = root;
        self.base.slots[slot] = root;
    }

    fn born(&mut self, is_dir: bool, fs: usize, attr: u32) -> Node {
        let next = if is_dir {
            assert!((self.next_dir as usize) <= self.dirs, "too few directories");
            &mut self.next_dir
        } else {
            &mut self.next_file
        };
        let node = *next;
        *next += 1;
        let at = node as usize;
        if at >= self.fs_of.len() {
            self.fs_of.resize(at + 16, 0);
            for tables in [&mut self.base, &mut self.now] {
                tables.attrs.resize(at + 16, 0);
                tables.contents.resize(at + 16, 0);
            }
        }
        self.fs_of[at] = fs as u8;
        // It has no name yet, so this can be known before.
        self.base.attrs[at] = attr;
        self.now.attrs[at] = attr;
        node
    }

    fn set_names(&mut self, fs: usize, first: (usize, Node), second: Option<(usize, Node)>) {
        self.now.slots[first.0] = first.1;
        let mut change = Change {
            what: What::Names,
            fs: fs as u8,
            node: NOTHING,
            first: (first.0 as u32, first.1),
            second: (NO_SLOT, NOTHING),
            value: 0,
        };
        if let Some((slot, node)) = second {
            self.now.slots[slot] = node;
            change.second = (slot as u32, node);
        }
        self.log.push(change);
    }

    fn note(&mut self, what: What, fs: usize, node: Node, value: u32) {
        self.log.push(Change {
            what,
            fs: fs as u8,
            node,
            first: (NO_SLOT, NOTHING),
            second: (NO_SLOT, NOTHING),
            value,
        });
    }

    /// An empty file or a link.
    pub fn create(&mut self, dir: Node, name: Name, attr: u32) -> Node {
        let fs = self.fs_of(dir);
        let node = self.born(false, fs, attr);
        let slot = self.slot(dir, name);
        self.set_names(fs, (slot, node), None);
        node
    }

    /// A link, whole with its name.
    pub fn create_link(&mut self, dir: Node, name: Name, attr: u32, content: u32) -> Node {
        let node = self.create(dir, name, attr);
        self.base.contents[node as usize] = content;
        self.now.contents[node as usize] = content;
        node
    }

    pub fn make_dir(&mut self, dir: Node, name: Name, attr: u32) -> Node {
        let fs = self.fs_of(dir);
        let node = self.born(true, fs, attr);
        let slot = self.slot(dir, name);
        self.set_names(fs, (slot, node), None);
        node
    }

    pub fn link(&mut self, node: Node, dir: Node, name: Name) {
        let slot = self.slot(dir, name);
        self.set_names(self.fs_of(dir), (slot, node), None);
    }

    /// Removes a name, of a directory too. Gives false where there is none.
    pub fn unlink(&mut self, dir: Node, name: Name) -> bool {
        let slot = self.slot(dir, name);
        if self.now.slots[slot] == NOTHING {
            return false;
        }
        self.set_names(self.fs_of(dir), (slot, NOTHING), None);
        true
    }

    /// Gives false where there is nothing to be renamed, or another file system.
    pub fn rename(&mut self, from: (Node, Name), to: (Node, Name)) -> bool {
        let (a, b) = (self.slot(from.0, from.1), self.slot(to.0, to.1));
        let node = self.now.slots[a];
        if node == NOTHING || self.fs_of(from.0) != self.fs_of(to.0) {
            return false;
        }
        // Of two names of one file the kernel leaves both.
        if self.now.slots[b] == node {
            return true;
        }
        self.set_names(self.fs_of(to.0), (b, node), Some((a, NOTHING)));
        true
    }

    pub fn exchange(&mut self, one: (Node, Name), other: (Node, Name)) -> bool {
        let (a, b) = (self.slot(one.0, one.1), self.slot(other.0, other.1));
        let (x, y) = (self.now.slots[a], self.now.slots[b]);
        if x == NOTHING || y == NOTHING || self.fs_of(one.0) != self.fs_of(other.0) {
            return false;
        }
        self.set_names(self.fs_of(one.0), (a, y), Some((b, x)));
        true
    }

    pub fn set_attr(&mut self, node: Node, attr: u32) {
        self.now.attrs[node as usize] = attr;
        self.note(What::Attr, self.fs_of(node), node, attr);
    }

    pub fn write(&mut self, node: Node, content: u32) {
        self.now.contents[node as usize] = content;
        self.note(What::Write, self.fs_of(node), node, content);
    }

    /// `fsync` of a file or directory: durable is all that happened on its file system before its last change.
    pub fn flush_node(&mut self, node: Node) {
        let row = self.row;
        let is_of = |slot: u32| slot != NO_SLOT && slot as usize / row == node as usize;
        let touches = |change: &Change| match change.what {
            What::Names => {
                let ((a, x), (b, y)) = (change.first, change.second);
                x == node || y == node || is_of(a) || is_of(b)
            }
            What::Attr | What::Write => change.node == node,
            What::FlushNode | What::FlushAll | What::Nothing => false,
        };
        let last = self.log.iter().rposition(touches);
        let upto = last.map_or(0, |at| at as u32 + 1);
        self.note(What::FlushNode, self.fs_of(node), node, upto);
    }

    /// `syncfs`.
    pub fn flush_fs(&mut self, fs: usize) {
        self.note(What::FlushAll, fs, NOTHING, 0);
    }

    /// A power cut at a moment, as dice want it: `after` is the world that is found.
    pub fn cut(&self, moment: usize, dice: &mut Dice, after: &mut Self) {
        after.row = self.row;
        after.dirs = self.dirs;
        after.next_dir = self.next_dir;
        after.next_file = self.next_file;
        after.fs_of.clone_from(&self.fs_of);
        after.log.clear();
        let log = &self.log[..moment];
        // Up to where each file system was flushed, names and contents.
        let mut names = [0; MOUNTS];
        let mut contents = [0; MOUNTS];
        let mut files: [(Node, usize); 16] = [(NOTHING, 0); 16];
        let mut flushed = 0;
        let mut at = 0;
        while at < moment {
            let change = &log[at];
            match change.what {
                What::FlushAll => {
                    names[change.fs as usize] = at;
                    contents[change.fs as usize] = at;
                }
                What::FlushNode => {
                    let floor = &mut names[change.fs as usize];
                    *floor = (*floor).max(change.value as usize);
                    // One that is forgotten here only forgets more than it may: none is, with so many.
                    if !self.is_dir(change.node) {
                        files[flushed % 16] = (change.node, at);
                        flushed += 1;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        for floor in &mut names {
            *floor = dice.between(*floor, moment);
        }
        // Contents: all that can be lost is lost, nothing is, or something.
        let mood = dice.next() & 3;
        let tables = &mut after.now;
        tables.copy_from(&self.base);
        let mut at = 0;
        while at < moment {
            let change = &log[at];
            let fs = change.fs as usize;
            match change.what {
                What::Names if at < names[fs] => {
                    let ((a, x), (b, y)) = (change.first, change.second);
                    tables.slots[a as usize] = x;
                    if b != NO_SLOT {
                        tables.slots[b as usize] = y;
                    }
                }
                What::Attr if at < names[fs] => tables.attrs[change.node as usize] = change.value,
                What::Write => {
                    let known = &files[..flushed.min(16)];
                    let durable = at < contents[fs]
                        || known
                            .iter()
                            .any(|file| file.0 == change.node && at < file.1);
                    let content = &mut tables.contents[change.node as usize];
                    if durable || mood == 1 {
                        *content = change.value;
                    } else if mood != 0 {
                        match dice.next() % 5 {
                            0 => {}
                            1 => *content = change.value,
                            torn => *content = change.value | TORN[torn as usize - 2],
                        }
                    }
                }
                _ => {}
            }
            at += 1;
        }
        after.base.copy_from(&after.now);
    }

    /// Up to which moment, at least, the names of the first file system are durable at a moment.
    pub fn names_from(&self, moment: usize) -> usize {
        let before = self.log[..moment].iter().enumerate();
        let floors = before.map(|(at, change)| match change.what {
            What::FlushAll => at,
            What::FlushNode => change.value as usize,
            _ => 0,
        });
        floors.max().unwrap_or_default()
    }

    /// The content of a node that is durable at a moment, and those that were written later.
    pub fn contents_at(&self, node: Node, moment: usize) -> (u32, Vec<u32>) {
        let mut durable = self.base.contents[node as usize];
        let mut later = Vec::new();
        for change in &self.log[..moment] {
            match change.what {
                What::Write if change.node == node => later.push(change.value),
                What::FlushAll => durable = later.drain(..).next_back().unwrap_or(durable),
                What::FlushNode if change.node == node => {
                    durable = later.drain(..).next_back().unwrap_or(durable);
                }
                _ => {}
            }
        }
        (durable, later)
    }

    /// The names and attributes as they were at a moment.
    pub fn names_at(&self, moment: usize) -> Self {
        let mut then = self.clone();
        then.now.copy_from(&self.base);
        for change in &self.log[..moment] {
            match change.what {
                What::Names => {
                    let ((a, x), (b, y)) = (change.first, change.second);
                    then.now.slots[a as usize] = x;
                    if b != NO_SLOT {
                        then.now.slots[b as usize] = y;
                    }
                }
                What::Attr => then.now.attrs[change.node as usize] = change.value,
                _ => {}
            }
        }
        then
    }

    /// The moment from which on the file with this content is durable with its last name: after the first flush of its
    /// file system that follows. Nothing if there is no such file.
    pub fn promised(&self, content: u32) -> Option<usize> {
        let mut all = self.log.iter().rev();
        let written = all.find(|change| change.what == What::Write && change.value == content)?;
        let is_named =
            |change: &Change| change.what == What::Names && change.first.1 == written.node;
        let named = self.log.iter().rposition(is_named)?;
        let flushes = |change: &Change| {
            change.fs == written.fs && matches!(change.what, What::FlushAll | What::FlushNode)
        };
        let flushed = self.log[named..].iter().position(flushes)?;
        Some(named + flushed + 1)
    }

    /// The moments of all flushes.
    pub fn flushes(&self) -> Vec<usize> {
        let all = self.log.iter().enumerate();
        let all = all.filter(|(_, change)| matches!(change.what, What::FlushAll | What::FlushNode));
        all.map(|(at, _)| at).collect()
    }

    /// As if there were no flush at this moment.
    pub fn leave_out(&mut self, flush: usize) {
        self.log[flush].what = What::Nothing;
    }

    /// What was done, one line each.
    pub fn tell(&self) -> String {
        let lines = self.log.iter().enumerate();
        let row = self.row as u32;
        let slot = |(slot, node): (u32, Node)| match slot {
            NO_SLOT => String::new(),
            slot => format!(" {}/{}={node}", slot / row, slot % row),
        };
        let lines = lines.map(|(at, change)| {
            let Change {
                what,
                fs,
                node,
                value,
                ..
            } = change;
            let (first, second) = (slot(change.first), slot(change.second));
            format!("{at} fs{fs} {what:?} {node} {value}{first}{second}\n")
        });
        lines.collect()
    }

    /// As from now on: a program that starts after a power-up.
    pub fn copy_from(&mut self, other: &Self) {
        self.row = other.row;
        self.dirs = other.dirs;
        self.next_dir = other.next_dir;
        self.next_file = other.next_file;
        self.fs_of.clone_from(&other.fs_of);
        self.base.copy_from(&other.base);
        self.now.copy_from(&other.now);
        self.log.clone_from(&other.log);
    }
}
