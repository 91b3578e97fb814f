//! The power is on again: the disks are mounted, `recover` runs, and the tree is judged.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Mutex;

use tempfile::TempDir;

use super::image::Image;
use super::{FileSystem, Layout, Recorded};
use crate::support::faults::{demand, on_threads};
use crate::support::mounts::{Disk, mount, unmount};
use crate::support::{Run, TestRoot, flat};

/// How often a person does what is printed before giving up.
const STEPS: usize = 5;
/// Complaints of one kind that are shown; the rest follows from them.
const SHOWN: usize = 4;

/// Disks that are mounted as a layout has them.
pub struct Mounted {
    pub root: TestRoot,
    pub tops: Vec<TempDir>,
    points: Vec<PathBuf>,
}

impl Mounted {
    /// `None` where a file system cannot be mounted.
    pub fn new(layout: &Layout, fs: &FileSystem, disks: &[Disk]) -> Option<Self> {
        let mut mounted = Self {
            root: TestRoot::empty(),
            tops: Vec::new(),
            points: Vec::new(),
        };
        for disk in disks {
            let top = tempfile::tempdir().unwrap();
            if !disk.try_mount(top.path(), &format!(",{}", fs.options)) {
                return None;
            }
            mounted.points.push(top.path().to_owned());
            mounted.tops.push(top);
        }
        for (disk, inside, at) in layout.binds {
            let inside = mounted.points[*disk].join(inside);
            let at = mounted.root.path(at);
            fs::create_dir_all(&inside).unwrap();
            fs::create_dir_all(&at).unwrap();
            mount(&["--bind", inside.to_str().unwrap(), at.to_str().unwrap()]);
            mounted.points.push(at);
        }
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for point in self.points.iter().rev() {
            unmount(point);
        }
    }
}

/// Images, and what is to be said of them.
pub type Verdicts = BTreeMap<Image, Verdict>;

/// What is wrong with an image.
#[derive(Default)]
pub struct Verdict {
    /// Paths that are neither old nor new, or a mix of both trees.
    torn: Vec<String>,
    /// What a run that was done had changed and is not there.
    lost: Vec<String>,
    /// What no printed command leads out of.
    stuck: Vec<String>,
    /// What `recover` did.
    pub result: String,
    /// And what it said.
    said: String,
    /// Our own files as the cut had left them.
    ours: Vec<String>,
}

impl Verdict {
    pub fn is_good(&self) -> bool {
        self.kinds() == [false; 3]
    }

    pub fn kinds(&self) -> [bool; 3] {
        [&self.torn, &self.lost, &self.stuck].map(|all| !all.is_empty())
    }

    pub fn shown(&self) -> String {
        let mut text = format!("    found: {}\n", self.ours.join(" "));
        let _ = writeln!(text, "    {}", flat(&self.said));
        for (name, all) in [
            ("torn", &self.torn),
            ("lost", &self.lost),
            ("stuck", &self.stuck),
        ] {
            for problem in all.iter().take(SHOWN) {
                let _ = writeln!(text, "    {name}: {problem}");
            }
            if all.len() > SHOWN {
                let _ = writeln!(text, "    {name}: and {} more", all.len() - SHOWN);
            }
        }
        text
    }
}

impl Recorded<'_> {
    /// Judges images on a few threads.
    pub fn judged(&self, fs: &FileSystem, images: &[Image]) -> Verdicts {
        let verdicts = Mutex::new(Verdicts::new());
        on_threads(images, |image| {
            let verdict = self.judge(fs, image);
            verdicts.lock().unwrap().insert(image.clone(), verdict);
            Vec::new()
        });
        verdicts.into_inner().unwrap()
    }

    /// What there is to be said about the bad ones.
    pub fn complaints(&self, verdicts: &Verdicts) -> Vec<String> {
        let title = self.story.title();
        let bad = verdicts.iter().filter(|(_, verdict)| !verdict.is_good());
        let shown = |(image, verdict): (&Image, &Verdict)| {
            format!("{title}: {}\n{}", self.words(image), verdict.shown())
        };
        bad.map(shown).collect()
    }

    /// Judges one; what cannot even be read is not mended either.
    pub fn judge(&self, fs: &FileSystem, image: &Image) -> Verdict {
        let judged = catch_unwind(AssertUnwindSafe(|| self.powered_up(fs, image)));
        judged.unwrap_or_else(|panic| Verdict {
            stuck: vec![format!("the tree cannot be judged: {}", reason(&*panic))],
            ..Verdict::default()
        })
    }

    /// The power is on again.
    fn powered_up(&self, fs: &FileSystem, image: &Image) -> Verdict {
        let mut verdict = Verdict::default();
        let disks = self.disks(image);
        let Some(mounted) = Mounted::new(self.story.layout, fs, &disks) else {
            verdict.stuck.push("a disk cannot be mounted".to_owned());
            return verdict;
        };
        let (root, scene) = (&mounted.root, self.story.scene);
        let names = root.everything().into_keys();
        let is_shown = |name: &String| {
            let kept = name.contains("/history/") && name.contains("/old-");
            name.contains("mco-rescue") && !kept
        };
        let ours = names.filter(is_shown);
        verdict.ours = ours.collect();
        verdict.torn.extend(scene.torn(root));
        match led_out(root) {
            Ok((result, said)) => {
                verdict.result = result;
                verdict.said = said;
                verdict.torn.extend(scene.between(root));
                if image.moment >= self.done {
                    verdict.lost.extend(scene.unlike_new(root));
                }
                let again = root.run(&["recover", "--output", "json"]);
                if again.code() != 0 || again.json()["result"] != "nothing" {
                    let what = "a second recover has something to do";
                    verdict.stuck.push(format!("{what}: {}", all_of(&again)));
                }
            }
            Err(said) => verdict.stuck.push(said),
        }
        if scene.unlike_new(root).is_empty() {
            verdict
                .stuck
                .extend(demand(root, &["rollback", "--yes"], 0));
            let back = scene.unlike_old(root).into_iter();
            let complain = |problem| format!("after a rollback {problem}");
            verdict.stuck.extend(back.map(complain));
        }
        verdict.stuck.extend(scene.applied_afterwards(root));
        verdict
    }
}

/// Recovers, and does what is printed if that is not enough; gives what was done, and all that was said.
fn led_out(root: &TestRoot) -> Result<(String, String), String> {
    let run = root.run(&["recover", "--output", "json"]);
    let mut said = format!("recover: {}: {}", run.code(), all_of(&run));
    if run.code() == 0 {
        let result = run.json()["result"].as_str().unwrap_or_default().to_owned();
        return Ok((result, said));
    }
    let mut next = vec!["recover".to_owned()];
    for _ in 0..STEPS {
        let args: Vec<&str> = next.iter().map(String::as_str).collect();
        let run = root.run(&args);
        let text = all_of(&run);
        let _ = write!(said, "{}: {}: {text}", args.join(" "), run.code());
        if run.code() == 0 && args[0] == "recover" {
            return Ok((next.join(" "), said));
        }
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("Next: mco-rescue "));
        let words = line.unwrap_or_default().split_whitespace();
        let words = words.map(str::to_owned);
        next = words.take_while(|word| word != "--root").collect();
        if next.is_empty() {
            break;
        }
    }
    Err(format!("no way out: {said}"))
}

fn reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_default()
}

fn all_of(run: &Run) -> String {
    run.out() + &run.err()
}
