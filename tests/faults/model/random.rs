//! Random plans: one to three file systems, a dozen kinds of changes, a second run after the first.

use super::plan::{
    FREE, HELD, HISTORY, Kind, MODE, Object, Path, Plan, STAGE, STEPS, StageDir, Step,
};
use super::run::{Ended, Failure, Fault, run};
use super::world::{Dice, MOUNTS, Name, Node, World};

const STATE: Name = FREE;
const IDS: Name = FREE + 1;
const STAGES: Name = FREE + 4;
const TOPS: Name = FREE + 7;
const DIRS: Name = FREE + 10;
const BELOW: Name = FREE + 12;
const TARGETS: Name = FREE + 14;
/// As many names as there are.
const NAMES: usize = TARGETS as usize + 24;

#[derive(Clone)]
/// Some runs after each other in one world, from one power-up on.
pub struct Story {
    pub world: World,
    /// Those that were run, and the first once more for a run after a recovery.
    pub plans: Vec<Plan>,
    ends: Vec<Ended>,
    /// What is at the paths before the first run, after it, and so on.
    states: Vec<Vec<Object>>,
    paths: Vec<Path>,
}

/// What a verdict is about.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    pub from: usize,
    pub to: usize,
}

struct Maker<'a> {
    world: World,
    dice: &'a mut Dice,
    mounts: usize,
    next: Name,
    content: u32,
    paths: Vec<Path>,
}

impl Maker<'_> {
    fn number(&mut self) -> u32 {
        self.content += 1;
        self.content
    }

    fn fresh(&mut self) -> Name {
        self.next += 1;
        self.next - 1
    }

    fn top(&self, fs: usize) -> Path {
        if fs == 0 {
            Path::default()
        } else {
            Path::new(&[TOPS + fs as Name])
        }
    }

    fn some_dir(&mut self) -> (usize, Path) {
        let fs = self.dice.below(self.mounts);
        let dir = self.top(fs).join(DIRS + self.dice.below(2) as Name);
        let deep = self.dice.one_in(3);
        (fs, if deep { dir.join(BELOW) } else { dir })
    }

    fn new_file(&mut self) -> Object {
        Object {
            there: true,
            is_dir: false,
            attr: 0o644 + (self.dice.below(2) as u32) * (MODE + 1),
            content: self.number(),
        }
    }

    fn new_dir(&mut self) -> Object {
        Object {
            there: true,
            is_dir: true,
            attr: 0o755 + (self.dice.below(3) as u32) * (MODE + 1),
            content: 0,
        }
    }

    fn put_there(&mut self, path: Path, object: &Object) -> Node {
        let (dir, name) = path.place(&self.world).unwrap();
        if object.is_dir {
            return self.world.make_dir(dir, name, object.attr);
        }
        let node = self.world.create(dir, name, object.attr);
        self.world.write(node, object.content);
        node
    }

    /// Adds the steps of one change.
    fn add(&mut self, steps: &mut Vec<Step>, kind: usize) {
        let (stage, dir) = self.some_dir();
        let path = dir.join(self.fresh());
        self.paths.push(path);
        let none = Object::default();
        let step = |kind, path, old, new| Step {
            kind,
            path,
            stage,
            old,
            new,
            within: None,
        };
        let below = path.join(TARGETS);
        match kind {
            0 => {
                let new = self.new_file();
                steps.push(step(Kind::Put, path, none, new));
            }
            1 | 2 => {
                let (old, new) = (self.new_file(), self.new_file());
                self.put_there(path, &old);
                steps.push(step(Kind::Put, path, old, new));
            }
            3 => {
                let old = self.new_file();
                self.put_there(path, &old);
                steps.push(step(Kind::Remove, path, old, none));
            }
            4 => {
                let (new, inside) = (self.new_dir(), self.new_file());
                self.paths.push(below);
                let top = steps.len();
                steps.push(step(Kind::MakeDir, path, none, new));
                let within = |step: Step, above| Step {
                    within: Some(above),
                    ..step
                };
                steps.push(within(step(Kind::Put, below, none, inside), top));
                if self.dice.one_in(2) {
                    let deeper = path.join(BELOW);
                    let file = deeper.join(TARGETS);
                    let (new, inside) = (self.new_dir(), self.new_file());
                    self.paths.extend([deeper, file]);
                    steps.push(within(step(Kind::MakeDir, deeper, none, new), top));
                    let put = within(step(Kind::Put, file, none, inside), steps.len() - 1);
                    steps.push(put);
                }
            }
            5 => {
                let (old, inside) = (self.new_dir(), self.new_file());
                self.put_there(path, &old);
                if self.dice.one_in(2) {
                    self.paths.push(below);
                    self.put_there(below, &inside);
                    steps.push(step(Kind::Remove, below, inside, none));
                }
                steps.push(step(Kind::RemoveDir, path, old, none));
            }
            6 => {
                let mut old = if self.dice.one_in(2) {
                    self.new_dir()
                } else {
                    self.new_file()
                };
                old.attr = 0o644;
                let mut new = old;
                // The mode, and perhaps the owner.
                new.attr = 0o600 + (self.dice.below(2) as u32) * (MODE + 1);
                self.put_there(path, &old);
                steps.push(step(Kind::Attr, path, old, new));
            }
            7 => {
                let (old, inside, new) = (self.new_dir(), self.new_file(), self.new_file());
                self.put_there(path, &old);
                self.paths.push(below);
                self.put_there(below, &inside);
                steps.push(step(Kind::Exchange, path, old, new));
            }
            _ => {
                let (old, inside, new) = (self.new_file(), self.new_file(), self.new_dir());
                self.put_there(path, &old);
                self.paths.push(below);
                steps.push(step(Kind::Exchange, path, old, new));
                steps.push(step(Kind::Put, below, none, inside));
            }
        }
    }

    /// What a later run does to what an earlier one did.
    fn again(&mut self, earlier: &Step, steps: &mut Vec<Step>) {
        let mut step = *earlier;
        step.old = earlier.new;
        step.within = None;
        match earlier.kind {
            Kind::Put if self.dice.one_in(3) => {
                step.kind = Kind::Remove;
                step.new = Object::default();
            }
            Kind::Put => step.new = self.new_file(),
            // Its directory has gone, too.
            Kind::Remove if step.path.name() == TARGETS => return,
            Kind::Remove => {
                step.kind = Kind::Put;
                step.new = self.new_file();
            }
            Kind::Attr => step.new = earlier.old,
            _ => return,
        }
        steps.push(step);
    }

    fn plan(&mut self, number: usize, steps: Vec<Step>, deep: bool) -> Plan {
        let state = Path::new(&[STATE]);
        let id = IDS + number as Name;
        let stages = (0..self.mounts).map(|fs| {
            let path = match fs {
                0 => state.join(STAGE).join(id),
                _ if deep => self.top(fs).join(DIRS).join(STAGES + number as Name),
                _ => self.top(fs).join(STAGES + number as Name),
            };
            StageDir {
                path,
                searched: fs == 0 || !deep,
            }
        });
        let own = 1000 + 10 * number as u32;
        Plan {
            state,
            stages: stages.collect(),
            history: state.join(HISTORY).join(id),
            steps,
            held: Vec::new(),
            journal: own,
            mark: own + 1,
            intent: own + 2,
        }
    }
}

impl Story {
    /// A story by dice, with a mistake planted in it.
    pub fn new(dice: &mut Dice, fault: Fault) -> Self {
        let mounts = 1 + dice.below(MOUNTS);
        let mut world = World::new(96, 400, NAMES);
        for fs in 0..mounts {
            let root = world.make_root(fs);
            if fs > 0 {
                world.mount(1, TOPS + fs as Name, root);
            }
        }
        let mut maker = Maker {
            world,
            dice,
            mounts,
            next: TARGETS + 1,
            content: 10,
            paths: Vec::new(),
        };
        for fs in 0..mounts {
            let top = maker.top(fs);
            for dir in 0..2 {
                let path = top.join(DIRS + dir);
                let object = maker.new_dir();
                maker.put_there(path, &object);
                maker.put_there(path.join(BELOW), &object);
            }
        }
        let mut steps = Vec::new();
        for _ in 0..1 + maker.dice.below(4) {
            let kind = maker.dice.below(9);
            maker.add(&mut steps, kind);
        }
        // A record.
        maker.add(&mut steps, 1);
        let deep = maker.dice.one_in(6);
        let mut first = maker.plan(0, steps, deep);
        if maker.dice.one_in(4) {
            let (_, dir) = maker.some_dir();
            let of_step = maker.dice.below(first.steps.len());
            let of_step = first.steps[of_step];
            let path = if of_step.kind == Kind::Put && of_step.old.there {
                of_step.path
            } else {
                dir
            };
            let node = path.at(&maker.world);
            let attr = maker.world.attr(node) | HELD;
            maker.world.set_attr(node, attr);
            first.held.push(path);
        }
        let failure = match maker.dice.below(6) {
            0 => Failure::Step(maker.dice.below(first.steps.len())),
            1 if maker.dice.one_in(2) => Failure::Barrier,
            1 => Failure::Staging,
            _ => Failure::None,
        };
        let mut plans = vec![first];
        if maker.dice.one_in(3) {
            let mut steps = Vec::new();
            if failure == Failure::None {
                for step in plans[0].steps.clone() {
                    maker.again(&step, &mut steps);
                }
            }
            for _ in 0..1 + maker.dice.below(2) {
                let kind = maker.dice.below(9);
                maker.add(&mut steps, kind);
            }
            assert!(steps.len() <= STEPS);
            let deep = maker.dice.one_in(6);
            let held = plans[0].held.clone();
            plans.push(Plan {
                held,
                ..maker.plan(1, steps, deep)
            });
        }
        let repeated = Plan {
            held: plans[0].held.clone(),
            ..maker.plan(2, plans[0].steps.clone(), deep)
        };
        let runs = plans.len();
        plans.push(repeated);
        let Maker {
            mut world,
            mut paths,
            ..
        } = maker;
        world.settle();
        paths.sort_unstable_by_key(|path| path.len_and_parts());
        paths.dedup();
        let mut story = Self {
            world,
            plans,
            ends: Vec::new(),
            states: Vec::new(),
            paths,
        };
        story.play(runs, failure, fault);
        story
    }

    fn play(&mut self, runs: usize, failure: Failure, fault: Fault) {
        self.states.push(self.objects(&self.world));
        for number in 0..runs {
            let failure = if number == 0 { failure } else { Failure::None };
            let ended = run(&mut self.world, &self.plans[number], failure, fault);
            self.ends.push(ended);
            let state = self.objects(&self.world);
            if ended.good {
                self.states.push(state);
            } else {
                // Half-way it may also be finished by a recovery.
                assert_eq!(Some(&state), self.states.last());
                let mut planned = World::default();
                planned.copy_from(&self.world);
                run(&mut planned, &self.plans[number], Failure::None, fault);
                self.states.push(self.objects(&planned));
                self.states.push(state);
            }
        }
    }

    fn objects(&self, world: &World) -> Vec<Object> {
        let all = self.paths.iter();
        all.map(|path| Object::at(world, path)).collect()
    }

    /// How the targets of a world differ from every state that is allowed.
    pub fn differences(&self, world: &World, allowed: Allowed) -> String {
        let found = self.objects(world);
        let all = (allowed.from..=allowed.to).map(|number| {
            let pairs = self
                .paths
                .iter()
                .zip(found.iter().zip(&self.states[number]));
            let differ = pairs.filter(|(_, (found, wanted))| found != wanted);
            let differ: Vec<String> = differ
                .map(|(path, (found, wanted))| format!("  {path:?}: {found:?} for {wanted:?}"))
                .collect();
            format!("unlike state {number}:\n{}\n", differ.join("\n"))
        });
        all.collect()
    }

    /// Which states may be found after a power cut at a moment: those of a run that is on its way or is done.
    pub fn allowed(&self, moment: usize) -> Allowed {
        let mut from = 0;
        for ended in &self.ends {
            let after = from + if ended.good { 1 } else { 2 };
            if moment < ended.at {
                return Allowed { from, to: after };
            }
            from = after;
        }
        Allowed { from, to: from }
    }

    /// The story of one run that was recorded, with the objects at these paths before it and after it.
    pub fn of_run(world: World, plan: Plan, paths: Vec<Path>, states: [Vec<Object>; 2]) -> Self {
        let [old, new] = states;
        let promised = world.promised(plan.mark);
        let mut story = Self {
            world,
            plans: vec![plan],
            ends: Vec::new(),
            states: vec![old.clone(), new.clone(), old],
            paths,
        };
        let found = story.objects(&story.world);
        let good = found == new;
        let all = Allowed { from: 0, to: 1 };
        assert!(
            good || found == story.states[0],
            "half of the paths are new: {}",
            story.differences(&story.world, all)
        );
        let at = promised.filter(|_| good).unwrap_or(story.world.moment());
        story.ends.push(Ended { at, good });
        story
    }

    /// The plan of a run after a recovery, if the story has one.
    pub fn can_repeat(&self) -> bool {
        self.plans.len() > self.ends.len()
    }

    /// The same run once more, in a world that was recovered to the state before it. Gives the moment of its exit.
    pub fn repeat(&self, world: &mut World, fault: Fault) -> usize {
        let plan = self.plans.last().unwrap();
        run(world, plan, Failure::None, fault).at
    }

    /// Which state a world is in that was recovered; or what is wrong with it.
    pub fn judge(&self, world: &World, allowed: Allowed) -> Result<usize, &'static str> {
        let is = |state: &Vec<Object>| {
            let mut at = 0;
            while at < self.paths.len() {
                if Object::at(world, &self.paths[at]) != state[at] {
                    return false;
                }
                at += 1;
            }
            true
        };
        let Some(found) = (allowed.from..=allowed.to).find(|number| is(&self.states[*number]))
        else {
            let known = self.states.iter().any(is);
            return Err(if known {
                "another state than the one that was promised"
            } else {
                "the targets are neither all old nor all new"
            });
        };
        for path in self.plans.iter().flat_map(|plan| &plan.held) {
            let node = path.at(world);
            if node != 0 && world.attr(node) & HELD == 0 {
                return Err("a flag is lost");
            }
        }
        self.left_over(world)?;
        let mut number = 0;
        for (plan, ended) in self.plans.iter().zip(&self.ends) {
            number += 1;
            if found >= number && ended.good {
                let again = self.plans.last().filter(|_| number == 1);
                let again = again.is_some_and(|plan| kept(world, plan).is_ok());
                kept(world, plan).or(if again { Ok(()) } else { kept(world, plan) })?;
            }
            number += usize::from(!ended.good);
        }
        Ok(found)
    }

    fn left_over(&self, world: &World) -> Result<(), &'static str> {
        use super::plan::{HISTORY, MARKER, MARKER_NEW, STATUS};
        let state = self.plans[0].state.at(world);
        let unknown = !world.is_dir(state) || world.names(state).all(|name| name == MARKER_NEW);
        let stages = self.plans.iter().flat_map(|plan| &plan.stages);
        // Without a state directory the next run finds them.
        let mut left = stages.filter(|stage| !(unknown && stage.searched));
        if left.any(|stage| world.is_dir(stage.path.at(world))) {
            return Err("a staging directory is left over");
        }
        if !unknown
            && !world
                .names(state)
                .all(|name| [HISTORY, MARKER, STATUS].contains(&name))
        {
            return Err("the state directory is not tidy");
        }
        Ok(())
    }
}

/// Everything that taking a run back needs is in the history.
fn kept(world: &World, plan: &Plan) -> Result<(), &'static str> {
    let history = plan.history.at(world);
    let journal = world.find(history, super::plan::JOURNAL);
    if world.content(journal) != plan.journal {
        return Err("the journal is missing in the history");
    }
    for (index, step) in plan.steps.iter().enumerate() {
        let is_kept = matches!(step.kind, Kind::Put | Kind::Exchange | Kind::Remove);
        if is_kept && step.old.there {
            let node = world.find(history, super::plan::old_name(index));
            if Object::of(world, node) != step.old {
                return Err("an old object is missing in the history");
            }
        }
    }
    Ok(())
}
