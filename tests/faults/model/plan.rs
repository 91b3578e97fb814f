//! What a run in the model is to do, and the names that it uses.

use super::world::{NOTHING, Name, Node, World};

pub const JOURNAL: Name = 1;
pub const JOURNAL_NEW: Name = 2;
pub const MARK: Name = 3;
pub const MARK_NEW: Name = 4;
pub const INTENT: Name = 5;
pub const INTENT_NEW: Name = 6;
pub const MARKER: Name = 7;
pub const MARKER_NEW: Name = 8;
pub const STATUS: Name = 9;
pub const STATUS_NEW: Name = 10;
pub const HISTORY: Name = 11;
pub const STAGE: Name = 12;
/// The first of the staged names.
pub const STAGED: Name = 16;
/// The most steps of a plan.
pub const STEPS: usize = 40;
/// The first name that means nothing here.
pub const FREE: Name = STAGED + 3 * STEPS as Name;

/// Also of the directory of a step with all that is staged in it, which has a name of another kind on disk.
pub fn new_name(index: usize) -> Name {
    STAGED + 3 * index as Name
}

pub fn old_name(index: usize) -> Name {
    new_name(index) + 1
}

pub fn away_name(index: usize) -> Name {
    new_name(index) + 2
}

pub fn is_staged(name: Name) -> bool {
    (STAGED..FREE).contains(&name)
}

/// In an attribute: the flag of `chattr +i`.
pub const HELD: u32 = 1 << 31;
/// In an attribute: the mode. Above it is a number for the owner.
pub const MODE: u32 = 0xfff;

/// The most components of a path.
pub const DEPTH: usize = 12;

/// Components from the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path {
    len: u8,
    parts: [Name; DEPTH],
}

impl Path {
    pub fn new(parts: &[Name]) -> Self {
        parts
            .iter()
            .fold(Self::default(), |path, part| path.join(*part))
    }

    pub fn join(mut self, part: Name) -> Self {
        self.parts[self.len as usize] = part;
        self.len += 1;
        self
    }

    pub fn parent(mut self) -> Self {
        self.len -= 1;
        self.parts[self.len as usize] = 0;
        self
    }

    /// For ordering.
    pub fn len_and_parts(&self) -> (u8, [Name; DEPTH]) {
        (self.len, self.parts)
    }

    pub fn is_in(&self, above: &Self) -> bool {
        let parts = above.len as usize;
        self.len >= above.len && self.parts[..parts] == above.parts[..parts]
    }

    pub fn name(&self) -> Name {
        self.parts[self.len as usize - 1]
    }

    /// What is there; the root is node 1.
    pub fn at(&self, world: &World) -> Node {
        let mut node = 1;
        let mut part = 0;
        while part < self.len as usize {
            if !world.is_dir(node) {
                return NOTHING;
            }
            node = world.find(node, self.parts[part]);
            part += 1;
        }
        node
    }

    /// Its directory and its name in it.
    pub fn place(&self, world: &World) -> Option<(Node, Name)> {
        let dir = self.parent().at(world);
        world.is_dir(dir).then(|| (dir, self.name()))
    }
}

/// What an object is, as far as a run compares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Object {
    pub there: bool,
    pub is_dir: bool,
    pub attr: u32,
    pub content: u32,
}

impl Object {
    pub fn of(world: &World, node: Node) -> Self {
        if node == NOTHING {
            return Self::default();
        }
        Self {
            there: true,
            is_dir: world.is_dir(node),
            attr: world.attr(node) & !HELD,
            content: world.content(node),
        }
    }

    pub fn at(world: &World, path: &Path) -> Self {
        Self::of(world, path.at(world))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    MakeDir,
    RemoveDir,
    Put,
    /// A directory gives way to something else, or the other way round.
    Exchange,
    Remove,
    Attr,
}

#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub kind: Kind,
    pub path: Path,
    pub stage: usize,
    pub old: Object,
    pub new: Object,
    /// The step in whose staged directory the new object is staged.
    pub within: Option<usize>,
}

#[derive(Debug, Clone, Copy)]
pub struct StageDir {
    pub path: Path,
    /// It is found by its place alone.
    pub searched: bool,
}

/// One run, as its journal says.
#[derive(Debug, Clone)]
pub struct Plan {
    pub state: Path,
    pub stages: Vec<StageDir>,
    pub history: Path,
    pub steps: Vec<Step>,
    pub held: Vec<Path>,
    /// Contents of its files when they are whole.
    pub journal: u32,
    pub mark: u32,
    pub intent: u32,
}

impl Plan {
    /// Where the run stages the new object of a step.
    pub fn staged_path(&self, index: usize) -> Path {
        let step = &self.steps[index];
        match step.within {
            Some(above) => self.staged_path(above).join(step.path.name()),
            None => self.stages[step.stage].path.join(new_name(index)),
        }
    }

    /// The step that brings the new object of a step to its place.
    pub fn placed_by(&self, index: usize) -> usize {
        let within = self.steps[index].within;
        within.map_or(index, |above| self.placed_by(above))
    }
}

/// The content of the marker file, of every run.
pub const MARKER_TEXT: u32 = 1;
/// The content of a status file.
pub const STATUS_TEXT: u32 = 2;
