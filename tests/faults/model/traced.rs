//! Runs of the real program, call by call, in the model: strace tells the order of the calls, and the journal what the
//! run was to do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::plan::{
    DEPTH, FREE, HISTORY, INTENT, INTENT_NEW, JOURNAL, JOURNAL_NEW, Kind, MARK, MARK_NEW, MARKER,
    MARKER_NEW, MARKER_TEXT, MODE, Object, Path, Plan, STAGE, STATUS, STATUS_NEW, StageDir, Step,
    away_name, is_staged, new_name, old_name,
};
use super::random::Story;
use super::world::{NOTHING, Name, Node, World};
use crate::support::faults::{Scene, arguments};
use crate::support::{PROGRAM, STATE, TestRoot};

const CALLS: &str = "openat,?chmod,write,?pwrite64,?writev,?copy_file_range,?sendfile,fchmod,?fchmodat,?fchmodat2,fchown,\
    fchownat,linkat,unlinkat,renameat,renameat2,mkdirat,symlinkat,fsync,fdatasync,syncfs";

/// `fchmodat2` in a strace that does not know it, and what a C library makes of it. Neither names its file.
const NAMELESS: [&str; 2] = ["syscall_0x1c4", "chmod"];

fn knows_all() -> bool {
    let mut command = Command::new("strace");
    command.args(["-e", "trace=fchmodat2", "-o", "/dev/null", "true"]);
    command.stderr(Stdio::null()).status().unwrap().success()
}

/// Numbers for words.
#[derive(Default)]
struct Words {
    numbers: BTreeMap<String, u32>,
}

impl Words {
    fn number(&mut self, word: &str) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(word.to_owned()).or_insert(next)
    }
}

/// Names, owners and contents as numbers.
struct Dictionary {
    names: Words,
    owners: Words,
    contents: Words,
}

impl Dictionary {
    fn new() -> Self {
        let mut contents = Words::default();
        // What is empty is 0, and the marker's text is known.
        contents.number(&digest(b""));
        contents.number("marker");
        assert_eq!(contents.numbers["marker"], MARKER_TEXT);
        Self {
            names: Words::default(),
            owners: Words::default(),
            contents,
        }
    }

    fn name(&mut self, name: &str) -> Name {
        let known = [
            ("journal.json", JOURNAL),
            (".journal.json.new", JOURNAL_NEW),
            ("committed", MARK),
            (".committed.new", MARK_NEW),
            ("intent.json", INTENT),
            (".intent.json.new", INTENT_NEW),
            ("marker", MARKER),
            (".marker.new", MARKER_NEW),
            ("status.json", STATUS),
            (".status.json.new", STATUS_NEW),
            ("history", HISTORY),
            ("stage", STAGE),
        ];
        if let Some((_, number)) = known.iter().find(|(known, _)| *known == name) {
            return *number;
        }
        for prefix in ["new-", "tree-", "old-", "away-"] {
            let rest = name.strip_prefix(prefix);
            if let Some(index) = rest.and_then(|rest| rest.parse().ok()) {
                let number = match prefix {
                    "new-" | "tree-" => new_name(index),
                    "old-" => old_name(index),
                    _ => away_name(index),
                };
                assert!(is_staged(number), "{name}: too many steps for the model");
                return number;
            }
        }
        FREE + self.names.number(name) as Name
    }

    /// Of an absolute path of the root.
    fn path(&mut self, path: &str) -> Path {
        let parts = path.split('/').filter(|part| !part.is_empty());
        parts.fold(Path::default(), |path, part| path.join(self.name(part)))
    }

    fn attr(&mut self, mode: u32, owner: (u32, u32)) -> u32 {
        (mode & MODE) + self.owners.number(&format!("{owner:?}")) * (MODE + 1)
    }

    /// An object of a journal.
    fn object(&mut self, json: &Value) -> Object {
        if json.is_null() {
            return Object::default();
        }
        let number = |key: &str| json[key].as_u64().unwrap() as u32;
        let kind = json["type"].as_str().unwrap_or("directory");
        let content = match kind {
            "file" => self.contents.number(json["sha256"].as_str().unwrap()),
            "symlink" => self
                .contents
                .number(&format!("-> {}", json["target"].as_str().unwrap())),
            _ => 0,
        };
        let mode = if kind == "symlink" { 0 } else { number("mode") };
        Object {
            there: true,
            is_dir: kind == "directory",
            attr: self.attr(mode, (number("uid"), number("gid"))),
            content,
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One call that worked: its name, and its arguments as strace writes them.
struct Call {
    name: String,
    args: Vec<String>,
    result: String,
}

/// The calls of a log with descriptors in words (`-y`); those of several threads in the order in which they ended.
fn calls_of(log: &str) -> Vec<Call> {
    let mut begun: BTreeMap<&str, String> = BTreeMap::new();
    let mut all = Vec::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        let rest = rest.trim_start();
        if let Some(start) = rest.strip_suffix("<unfinished ...>") {
            begun.insert(thread, start.trim_end().to_owned());
            continue;
        }
        let whole = match rest
            .strip_prefix("<... ")
            .and_then(|rest| rest.split_once("resumed>"))
        {
            Some((_, end)) => begun.remove(thread).unwrap_or_default() + end,
            None => rest.to_owned(),
        };
        let Some((call, result)) = whole.rsplit_once(" = ") else {
            continue;
        };
        let Some((name, args)) = call.trim_end().split_once('(') else {
            continue;
        };
        // It failed, or the process was killed at it.
        if result.starts_with(['-', '?']) {
            continue;
        }
        let args = args.strip_suffix(')').unwrap_or(args);
        all.push(Call {
            name: name.to_owned(),
            args: split_args(args),
            result: result.to_owned(),
        });
    }
    all
}

/// At the commas that are in no string and in no path.
fn split_args(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let (mut quoted, mut escaped, mut depth) = (false, false, 0);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '<' | '[' | '{' if !quoted => depth += 1,
            '>' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                all.push(String::new());
                continue;
            }
            _ => {}
        }
        all.last_mut().unwrap().push(c);
    }
    all.iter().map(|arg| arg.trim().to_owned()).collect()
}

/// The path of a descriptor like `5</root/etc>`.
fn of_descriptor(arg: &str) -> Option<&str> {
    let (_, path) = arg.split_once('<')?;
    let path = path.strip_suffix('>')?;
    path.starts_with('/').then_some(path)
}

fn quoted(arg: &str) -> &str {
    arg.trim_matches('"')
}

/// The run that leads a root to the new state, and the root before and after it, in the model.
struct Recording {
    dictionary: Dictionary,
    top: String,
    world: World,
    /// How often each file that is made is still to be written to, by its number among them.
    writes: Vec<usize>,
    made: BTreeMap<Node, usize>,
    journal: Value,
    plan: Plan,
}

/// What happens to a run at one of its calls.
#[derive(Debug, Clone, Copy)]
pub struct Accident {
    pub call: &'static str,
    pub nth: usize,
    /// In the words of strace.
    pub fault: &'static str,
    /// What leads out of it; a run that was not killed ends by itself.
    pub recover: Option<&'static [&'static str]>,
}

/// Runs the program under strace and gives its log.
fn trace(root: &TestRoot, accident: Option<&Accident>, args: &[&str]) -> String {
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-s", "1000000", "-o"]);
    command.arg(log.path()).arg("-e");
    command.arg(format!("trace={}", if knows_all() { CALLS } else { "all" }));
    if let Some(Accident {
        call, nth, fault, ..
    }) = accident
    {
        command.arg("-e");
        command.arg(format!("inject={call}:{fault}:when={nth}"));
    }
    command.args([PROGRAM, "--quiet", "--root"]).arg(root.dir());
    command.args(args);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let wanted: &[Option<i32>] = match accident {
        None => &[Some(0)],
        Some(Accident {
            recover: Some(_), ..
        }) => &[None],
        // An error while it tidies up is none of the run.
        Some(_) => &[Some(0), Some(1), Some(4)],
    };
    let code = output.status.code();
    assert!(
        wanted.contains(&code),
        "{args:?} {accident:?}: {code:?} {said}"
    );
    fs::read_to_string(log.path()).unwrap()
}

/// Runs the program on a root, and gives the story that the model makes of it. If the run is killed, its recovery follows
/// in the same story, without a power cut in between. Nothing if the run ended before it wrote a journal.
pub fn record(root: &TestRoot, scene: &Scene, accident: Option<&Accident>) -> Option<Story> {
    let top = fs::canonicalize(root.dir()).unwrap();
    let top = top.to_str().unwrap().to_owned();
    let mut dictionary = Dictionary::new();
    let before = Tree::read(&top, &mut dictionary);
    let config = root.config(scene.new.as_ref().unwrap_or(&Value::Null));
    let args = arguments(scene.new.as_ref(), &config);
    let mut log = trace(root, accident, &args);
    if let Some(recover) = accident.and_then(|accident| accident.recover) {
        log += &trace(root, None, recover);
    }
    let found = Tree::read(&top, &mut dictionary);
    // Where the run leads to without an accident.
    let other = scene.root();
    other.run(&args).exits(0);
    let after = Tree::read(other.dir().to_str().unwrap(), &mut dictionary);
    let calls = calls_of(&log);
    let calls = calls.iter().filter(|call| {
        let text = call.args.join(" ") + &call.result;
        let is_known = CALLS.split([',', '?']).any(|known| known == call.name);
        let is_ours = text.contains(&top) && !text.contains("(deleted)");
        (is_known && is_ours) || NAMELESS.contains(&call.name.as_str())
    });
    let calls: Vec<&Call> = calls.collect();
    // Every name of the calls, before there is a table for them.
    let named = calls.iter().filter(|call| call.name != "write");
    for arg in named.flat_map(|call| &call.args) {
        if arg.starts_with('"') && !arg.starts_with("\"/") && arg.len() < 200 {
            dictionary.path(quoted(arg));
        }
        let path = of_descriptor(arg).and_then(|path| path.strip_prefix(&top));
        if let Some(path) = path {
            dictionary.path(path);
        }
    }
    let journal = journal_of(&calls)?;
    let mut plan = plan_of(&journal, &mut dictionary);
    let makes = calls.iter().filter(|call| call.name == "mkdirat").count();
    let creates = calls
        .iter()
        .filter(|call| call.name == "openat" && call.args[2].contains("O_CREAT"))
        .count();
    let names = FREE as usize + dictionary.names.numbers.len() + 2;
    let links = calls.iter().filter(|call| call.name == "symlinkat").count();
    let mut world = World::new(
        before.dirs() + makes + 16,
        before.entries.len() + creates + links + 16,
        names,
    );
    before.build(&mut world);
    world.settle();
    know_what_changes_attributes(&mut plan, &world);
    let mut recording = Recording {
        dictionary,
        top,
        world,
        writes: writes_of(&calls),
        made: BTreeMap::new(),
        journal,
        plan,
    };
    for call in &calls {
        recording.replay(call);
    }
    Some(recording.into_story(&before, &after, &found))
}

/// A change of attributes is of what was there, or of what an earlier step puts there; the journal does not say it again.
fn know_what_changes_attributes(plan: &mut Plan, world: &World) {
    for index in 0..plan.steps.len() {
        let step = plan.steps[index];
        let earlier = plan.steps[..index].iter().rev();
        let mut earlier = earlier.filter(|earlier| earlier.path == step.path);
        let before = earlier.next().map(|earlier| earlier.new);
        let before = before.unwrap_or_else(|| Object::at(world, &step.path));
        if step.kind == Kind::Attr {
            let (old, new) = (step.old.attr, step.new.attr);
            plan.steps[index].old = Object {
                attr: old,
                ..before
            };
            plan.steps[index].new = Object {
                attr: new,
                ..before
            };
        }
    }
}

/// How often each file that is made is written to.
fn writes_of(calls: &[&Call]) -> Vec<usize> {
    let mut counts: Vec<usize> = Vec::new();
    // By descriptor, as one thread uses it.
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    for call in calls {
        match call.name.as_str() {
            "openat" => {
                open.remove(&call.result);
                if call.args[2].contains("O_CREAT") {
                    open.insert(call.result.clone(), counts.len());
                    counts.push(0);
                }
            }
            "write" | "pwrite64" | "writev" => {
                if let Some(number) = open.get(&call.args[0]) {
                    counts[*number] += 1;
                }
            }
            _ => {}
        }
    }
    counts
}

/// A tree as it is on disk.
struct Tree {
    /// Path, `lstat`, content; parents first.
    entries: Vec<(Path, fs::Metadata, u32, u32)>,
    top: fs::Metadata,
}

impl Tree {
    fn read(top: &str, dictionary: &mut Dictionary) -> Self {
        let mut tree = Self {
            entries: Vec::new(),
            top: fs::metadata(top).unwrap(),
        };
        tree.add(top, top, dictionary);
        tree
    }

    fn add(&mut self, top: &str, dir: &str, dictionary: &mut Dictionary) {
        let mut all: Vec<_> = fs::read_dir(dir).unwrap().map(Result::unwrap).collect();
        all.sort_by_key(fs::DirEntry::file_name);
        for entry in all {
            let path = entry.path();
            let text = path.to_str().unwrap();
            let stat = fs::symlink_metadata(&path).unwrap();
            let is_link = stat.file_type().is_symlink();
            let word = if is_link {
                format!("-> {}", fs::read_link(&path).unwrap().to_str().unwrap())
            } else if stat.is_file() {
                digest(&fs::read(&path).unwrap())
            } else {
                String::new()
            };
            let short = dictionary.path(text.strip_prefix(top).unwrap());
            let is_marker = short.name() == MARKER && text.ends_with(&format!("{STATE}/marker"));
            let content = match word.as_str() {
                "" => 0,
                _ if is_marker => MARKER_TEXT,
                word => dictionary.contents.number(word),
            };
            let mode = if is_link { 0 } else { stat.mode() };
            let attr = dictionary.attr(mode, (stat.uid(), stat.gid()));
            self.entries.push((short, stat.clone(), attr, content));
            if stat.is_dir() {
                self.add(top, text, dictionary);
            }
        }
    }

    fn objects(&self) -> impl Iterator<Item = (Path, Object)> + '_ {
        let all = self.entries.iter();
        all.map(|(path, stat, attr, content)| {
            let object = Object {
                there: true,
                is_dir: stat.is_dir(),
                attr: *attr,
                content: *content,
            };
            (*path, object)
        })
    }

    fn by_path(&self) -> BTreeMap<(u8, [Name; DEPTH]), Object> {
        let all = self.objects();
        all.map(|(path, object)| (path.len_and_parts(), object))
            .collect()
    }

    fn dirs(&self) -> usize {
        let dirs = self.entries.iter().filter(|(_, stat, ..)| stat.is_dir());
        1 + dirs.count()
    }

    fn build(&self, world: &mut World) {
        let mut devices = vec![self.top.dev()];
        let mut known: BTreeMap<(u64, u64), Node> = BTreeMap::new();
        world.make_root(0);
        for (path, stat, attr, content) in &self.entries {
            let (dir, name) = path.place(world).unwrap();
            if !devices.contains(&stat.dev()) {
                devices.push(stat.dev());
                let root = world.make_root(devices.len() - 1);
                world.mount(dir, name, root);
                world.set_attr(root, *attr);
            } else if stat.is_dir() {
                world.make_dir(dir, name, *attr);
            } else if let Some(node) = known.get(&(stat.dev(), stat.ino())) {
                world.link(*node, dir, name);
            } else {
                let node = world.create_link(dir, name, *attr, *content);
                known.insert((stat.dev(), stat.ino()), node);
            }
        }
    }
}

/// The journal of a run, if it was written.
fn journal_of(calls: &[&Call]) -> Option<Value> {
    let is_its = |call: &&&Call| {
        let path = of_descriptor(&call.args[0]).unwrap_or_default();
        call.name == "write" && path.ends_with("/.journal.json.new")
    };
    let pieces = calls.iter().filter(is_its);
    let bytes: Vec<u8> = pieces.flat_map(|call| unescaped(&call.args[1])).collect();
    (!bytes.is_empty()).then(|| serde_json::from_slice(&bytes).unwrap())
}

/// The bytes of a string of strace.
fn unescaped(arg: &str) -> Vec<u8> {
    let text = arg
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let mut rest = text.unwrap().bytes().peekable();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        let is_digit = |byte: &u8| (b'0'..=b'7').contains(byte);
        bytes.push(match byte {
            b'\\' => match rest.next().unwrap() {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                digit if is_digit(&digit) => {
                    let mut number = u32::from(digit - b'0');
                    for _ in 0..2 {
                        let next = rest.next_if(is_digit);
                        number = next.map_or(number, |next| number * 8 + u32::from(next - b'0'));
                    }
                    number as u8
                }
                other => other,
            },
            other => other,
        });
    }
    bytes
}

fn plan_of(journal: &Value, dictionary: &mut Dictionary) -> Plan {
    let state = dictionary.path(STATE);
    let id = dictionary.name(journal["id"].as_str().unwrap());
    let stages = journal["stages"].as_array().unwrap().iter();
    let stages = stages.map(|stage| {
        let stage = stage.as_str().unwrap();
        let (above, _) = stage.rsplit_once('/').unwrap();
        StageDir {
            path: dictionary.path(stage),
            // The mounts of these tests are not disks, so that their tops are not searched.
            searched: ["", "/etc", &format!("/{STATE}/stage")].contains(&above),
        }
    });
    let stages: Vec<StageDir> = stages.collect();
    let steps = journal["steps"].as_array().unwrap().iter();
    let steps = steps.map(|json| {
        let (old, new) = (
            dictionary.object(&json["old"]),
            dictionary.object(&json["new"]),
        );
        let nothing = Object::default();
        let (kind, old, new) = match json["step"].as_str().unwrap() {
            "make-directory" => (Kind::MakeDir, nothing, dictionary.object(json)),
            "remove-directory" => (Kind::RemoveDir, dictionary.object(json), nothing),
            "put" if old.there && old.is_dir != new.is_dir => (Kind::Exchange, old, new),
            "put" => (Kind::Put, old, new),
            "remove" => (Kind::Remove, old, new),
            _ => (Kind::Attr, old, new),
        };
        Step {
            kind,
            path: dictionary.path(json["path"].as_str().unwrap()),
            stage: json["stage"].as_u64().unwrap() as usize,
            old,
            new,
            within: json["within"].as_u64().map(|above| above as usize),
        }
    });
    let steps: Vec<Step> = steps.collect();
    Plan {
        state,
        stages,
        history: state.join(HISTORY).join(id),
        steps,
        held: Vec::new(),
        journal: dictionary.contents.number("journal"),
        mark: dictionary.contents.number("mark"),
        intent: dictionary.contents.number("intent"),
    }
}

impl Recording {
    /// The path of the model, of one of the machine; nothing for one that is not below the root.
    fn path(&mut self, path: &str) -> Option<Path> {
        let below = path.strip_prefix(&self.top)?;
        (below.is_empty() || below.starts_with('/')).then(|| self.dictionary.path(below))
    }

    /// Directory and name of two arguments.
    fn place(&mut self, call: &Call, at: usize) -> Option<(Node, Name)> {
        let mut dir = self.path(of_descriptor(&call.args[at])?)?;
        let mut name = quoted(&call.args[at + 1]);
        while let Some((above, below)) = name.split_once('/') {
            dir = dir.join(self.dictionary.name(above));
            name = below;
        }
        let dir = dir.at(&self.world);
        assert!(self.world.is_dir(dir), "{:?}", call.args);
        Some((dir, self.dictionary.name(name)))
    }

    fn node(&mut self, arg: &str) -> Option<Node> {
        let path = self.path(of_descriptor(arg)?)?;
        let node = path.at(&self.world);
        assert_ne!(node, NOTHING, "{arg} is not in the model");
        Some(node)
    }

    fn mode(text: &str) -> u32 {
        u32::from_str_radix(text.trim_start_matches('0'), 8).unwrap_or(0)
    }

    fn set_mode(&mut self, node: Node, mode: u32) {
        let attr = self.world.attr(node);
        self.world.set_attr(node, (attr & !MODE) | mode);
    }

    fn set_owner(&mut self, node: Node, user: &str, group: &str) {
        let attr = self.world.attr(node);
        let owner = (user.parse().unwrap(), group.parse().unwrap());
        let wanted = self.dictionary.attr(attr & MODE, owner);
        self.world.set_attr(node, wanted);
    }

    fn replay(&mut self, call: &Call) {
        let done = self.try_replay(call);
        // A descriptor of something else.
        done.unwrap_or_default();
    }

    fn try_replay(&mut self, call: &Call) -> Option<()> {
        let args = &call.args;
        match call.name.as_str() {
            "openat" if args[2].contains("O_CREAT") => {
                let (dir, name) = self.place(call, 0)?;
                let number = self.made.len();
                let mut node = self.world.find(dir, name);
                if node == NOTHING {
                    let attr = self.dictionary.attr(Self::mode(&args[3]), own_ids());
                    node = self.world.create(dir, name, attr);
                }
                assert!(self.made.insert(node, number).is_none(), "{args:?}");
            }
            "openat" => {}
            "write" | "pwrite64" | "writev" | "copy_file_range" | "sendfile" => {
                let node = self.node(&args[0])?;
                let left = self.made.get(&node).map(|number| {
                    self.writes[*number] -= 1;
                    self.writes[*number]
                });
                let path = self.path(of_descriptor(&args[0])?)?;
                let word = match left {
                    Some(0) => self.whole(&path),
                    _ => format!("{} of node {node}", self.world.moment()),
                };
                let content = self.dictionary.contents.number(&word);
                self.world.write(node, content);
            }
            "fchmod" => {
                let node = self.node(&args[0])?;
                self.set_mode(node, Self::mode(&args[1]));
            }
            "fchmodat" | "fchmodat2" => {
                let (dir, name) = self.place(call, 0)?;
                self.set_mode(self.world.find(dir, name), Self::mode(&args[2]));
            }
            // It is for the step whose object has not got this mode yet.
            name if NAMELESS.contains(&name) => {
                let mode = match args[2..].first().and_then(|arg| arg.strip_prefix("0x")) {
                    Some(mode) => u32::from_str_radix(mode, 16).unwrap(),
                    None => Self::mode(&args[1]),
                };
                let world = &self.world;
                let needs = |step: &&Step| {
                    let sides = [step.old.attr & MODE, step.new.attr & MODE];
                    let node = step.path.at(world);
                    step.kind == Kind::Attr
                        && sides.contains(&mode)
                        && world.attr(node) & MODE != mode
                };
                let node = self.plan.steps.iter().find(needs)?.path.at(world);
                self.set_mode(node, mode);
            }
            "fchown" => {
                let node = self.node(&args[0])?;
                self.set_owner(node, &args[1], &args[2]);
            }
            "fchownat" => {
                let (dir, name) = self.place(call, 0)?;
                self.set_owner(self.world.find(dir, name), &args[2], &args[3]);
            }
            "symlinkat" => {
                let (dir, name) = self.place(call, 1)?;
                let target = format!("-> {}", quoted(&args[0]));
                let content = self.dictionary.contents.number(&target);
                let attr = self.dictionary.attr(0, own_ids());
                self.world.create_link(dir, name, attr, content);
            }
            "mkdirat" => {
                let (dir, name) = self.place(call, 0)?;
                let attr = self.dictionary.attr(Self::mode(&args[2]), own_ids());
                self.world.make_dir(dir, name, attr);
            }
            "linkat" => {
                let (dir, name) = self.place(call, 0)?;
                let (to, new) = self.place(call, 2)?;
                self.world.link(self.world.find(dir, name), to, new);
            }
            "unlinkat" => {
                let (dir, name) = self.place(call, 0)?;
                assert!(self.world.unlink(dir, name), "{args:?}");
            }
            "renameat" | "renameat2" => {
                let (from, to) = (self.place(call, 0)?, self.place(call, 2)?);
                let flags = args.get(4).map_or("", String::as_str);
                let done = match flags {
                    "RENAME_EXCHANGE" => self.world.exchange(from, to),
                    _ => self.world.rename(from, to),
                };
                assert!(done, "{args:?}");
            }
            "fsync" | "fdatasync" => {
                let node = self.node(&args[0])?;
                self.world.flush_node(node);
            }
            "syncfs" => {
                let node = self.node(&args[0])?;
                self.world.flush_fs(self.world.fs_of(node));
            }
            other => panic!("the model does not know {other}"),
        }
        Some(())
    }

    /// The word for the content of a file that is written to its end.
    fn whole(&self, path: &Path) -> String {
        let state = self.plan.state;
        let own = [
            (JOURNAL_NEW, "journal"),
            (MARK_NEW, "mark"),
            (INTENT_NEW, "intent"),
            (MARKER_NEW, "marker"),
        ];
        let of_state = own.iter().find(|(name, _)| *path == state.join(*name));
        if let Some((_, word)) = of_state {
            return (*word).to_owned();
        }
        let steps = self.journal["steps"].as_array().unwrap();
        let of_step = |side: &str, index: usize| {
            let digest = steps[index][side]["sha256"].as_str();
            digest.map(str::to_owned)
        };
        let found = (0..steps.len()).find_map(|index| match path.name() {
            _ if *path == self.plan.staged_path(index) => of_step("new", index),
            // A copy on another file system.
            name if name == old_name(index) => of_step("old", index),
            _ => None,
        });
        found.unwrap_or_else(|| format!("all of {path:?}"))
    }

    fn into_story(self, before: &Tree, after: &Tree, found: &Tree) -> Story {
        let Self {
            world,
            plan,
            writes,
            ..
        } = self;
        assert!(writes.iter().all(|left| *left == 0), "{writes:?}");
        // The model has come to what is on disk.
        for (path, object) in found.objects().filter(|(path, _)| !path.is_in(&plan.state)) {
            assert_eq!(Object::at(&world, &path), object, "{path:?}");
        }
        let all = before.objects().chain(after.objects());
        let all: BTreeMap<_, Path> = all
            .map(|(path, _)| (path.len_and_parts(), path))
            .filter(|(_, path)| !path.is_in(&plan.state))
            .collect();
        let (old, new) = (before.by_path(), after.by_path());
        let of = |tree: &BTreeMap<(u8, [Name; DEPTH]), Object>, path: &Path| {
            tree.get(&path.len_and_parts()).copied().unwrap_or_default()
        };
        let paths: Vec<Path> = all
            .into_values()
            .filter(|path| of(&old, path) != of(&new, path))
            .collect();
        assert!(!paths.is_empty());
        let state = |tree| paths.iter().map(|path| of(tree, path)).collect();
        let states = [state(&old), state(&new)];
        Story::of_run(world, plan, paths, states)
    }
}

fn own_ids() -> (u32, u32) {
    let here = fs::metadata("/proc/self").unwrap();
    (here.uid(), here.gid())
}
