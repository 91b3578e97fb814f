//! The laboratory: images that are built once, guests, their disks and consoles, and what a case leaves behind.

pub mod accel;
pub mod blklog;
pub mod boxes;
pub mod disk;
pub mod grub;
pub mod images;
pub mod lan;
pub mod loaded;
pub mod node;
pub mod qemu;
pub mod qmp;
pub mod random;
pub mod recorded;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Instant;

use crate::support::{Lacks, Run, say, skip};

/// One run of a case: where its disks and consoles are, and since when.
///
/// They are removed when it ends well. When it fails they stay, and their place is said.
pub struct Case {
    name: String,
    dir: PathBuf,
    begun: Mutex<Instant>,
    /// The accelerator, or the engine of a box.
    on: String,
}

impl Case {
    /// `None`, said aloud, where no guest can be run.
    pub fn begin(name: &str) -> Option<Self> {
        if let Some(missing) = missing() {
            skip(
                Lacks::Setup,
                &format!("{name}: no virtual machine without {missing}"),
            );
            return None;
        }
        // The images and the probe are nobody's time.
        Some(Self::on(name, accel::accelerator()))
    }

    /// The same for a case that mounts disks on the host.
    pub fn begin_as_root(name: &str) -> Option<Self> {
        if !crate::support::is_root() {
            skip(
                Lacks::Root,
                &format!("{name}: its images are built and its disks mounted as root"),
            );
            return None;
        }
        Self::begin(name)
    }

    /// The same for a case in a box; `None`, said aloud, where none can be made.
    pub fn begin_in_box(name: &str) -> Option<Self> {
        match boxes::missing() {
            Some((lacks, missing)) => {
                skip(lacks, &format!("{name}: no box without {missing}"));
                None
            }
            None => Some(Self::on(name, &boxes::golden().engine.to_string())),
        }
    }

    fn on(name: &str, on: &str) -> Self {
        let words = name.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("vm")
            .join(words.join("-"));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self {
            name: name.to_owned(),
            dir,
            begun: Mutex::new(Instant::now()),
            on: on.to_owned(),
        }
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Says how it goes.
    pub fn tell(&self, text: &str) {
        say(&format!("vm: {}: {text}", self.name));
    }

    /// The clock starts again: what was done until now is no part of the case.
    pub fn prepared(&self) {
        *self.begun.lock().unwrap() = Instant::now();
    }

    fn result(&self) -> String {
        let verdict = if thread::panicking() { "FAILED" } else { "ok" };
        let seconds = self.begun.lock().unwrap().elapsed().as_secs_f64();
        format!("{}\t{verdict}\t{seconds:.1} s\t{}\n", self.name, self.on)
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let result = self.result();
        say(&format!("vm: {}", result.trim_end().replace('\t', "  ")));
        if let Some(table) = std::env::var_os("VM_TABLE") {
            let file = OpenOptions::new().create(true).append(true).open(table);
            let _ = file.and_then(|mut file| file.write_all(result.as_bytes()));
        }
        if thread::panicking() {
            say(&format!(
                "vm: {}: consoles and disks are in {}",
                self.name,
                self.dir.display()
            ));
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// The first program that is not here.
fn missing() -> Option<&'static str> {
    static MISSING: OnceLock<Option<&str>> = OnceLock::new();
    const NEEDED: [(&str, &str); 6] = [
        ("qemu-system-x86_64", "--version"),
        ("busybox", "--help"),
        ("cpio", "--version"),
        ("depmod", "--version"),
        ("zstd", "--version"),
        ("mke2fs", "-V"),
    ];
    *MISSING.get_or_init(|| {
        let absent = |(program, asks): &&(&str, &str)| !runs(program, asks);
        NEEDED.iter().find(absent).map(|(program, _)| *program)
    })
}

fn runs(program: &str, asks: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(asks).stdin(Stdio::null());
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A node that answers a root shell's commands.
pub trait Shell {
    /// Runs a command to its end.
    fn run(&self, command: &str) -> Run;

    /// The same; it must end well. Gives what it printed.
    fn ask(&self, command: &str) -> String {
        let run = self.run(command);
        assert_eq!(run.code(), 0, "{command}: {}{}", run.out(), run.err());
        run.out().trim_end().to_owned()
    }
}

/// Runs a program to its end, which must be a good one; gives what it printed.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{said}{complained}",
        output.status
    );
    said
}

/// The checkout.
pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
