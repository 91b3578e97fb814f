//! The only way to pass over a test or a part of one.

/// What this machine lacks for it. `docs/develop/testing.md` explains the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// A program or data that `tests/setup.sh` brings.
    Setup,
    /// The rights of root.
    Root,
    /// An ability of the kernel, of a file system or of the hardware.
    Machine,
    /// A counterpart that has to be built or asked for by hand.
    Counterpart,
    /// Captures beside the checkout, in `../shared`.
    Shared,
}

impl Lacks {
    /// Returns what is missing where something that needs a program does not work: the program, or what this machine is able to do.
    pub(crate) fn program(name: &str) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let sbin = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
        let mut places = std::env::split_paths(&path).chain(sbin);
        if places.any(|place| place.join(name).exists()) {
            Self::Machine
        } else {
            Self::Setup
        }
    }

    /// The same for something that root alone can do.
    pub(crate) fn root_or_program(name: &str) -> Self {
        if is_root() {
            Self::program(name)
        } else {
            Self::Root
        }
    }

    /// The same for something that root alone can do, with the programs of every system.
    pub(crate) fn root_or_machine() -> Self {
        Self::root_or_program("true")
    }

    /// Returns what is missing where a program of another version is not enough: Debian's release decides the version.
    pub(crate) fn other_version(name: &str) -> Self {
        match Self::program(name) {
            Self::Machine => Self::Counterpart,
            missing => missing,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Root => "root",
            Self::Machine => "machine",
            Self::Counterpart => "counterpart",
            Self::Shared => "shared",
        }
    }

    /// Returns why that is not a reason where everything has to be there that can be.
    fn objection(self) -> Option<&'static str> {
        match self {
            Self::Setup => Some("tests/setup.sh installs what is missing"),
            Self::Root if is_root() => Some("this is root"),
            _ => None,
        }
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = std::fs::metadata("/proc/self").expect("/proc is not mounted");
    own.uid() == 0
}

/// Says that something is not tested here, and why, past the test runner's capture, and adds it to the list that `MCO_RESCUE_SKIPS` names.
///
/// # Panics
///
/// With `MCO_RESCUE_STRICT=1` if nothing need be missing.
pub(crate) fn skip(lacks: Lacks, why: &str) {
    use std::io::Write;
    let word = lacks.word();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    let strict = std::env::var_os("MCO_RESCUE_STRICT").is_some_and(|strict| strict == "1");
    if let Some(objection) = lacks.objection().filter(|_| strict) {
        panic!("skipped ({word}: {why}), but {objection}");
    }
    let mut error = std::io::stderr();
    let _ = error.write_all(format!("SKIP ({word}): {why}\n").as_bytes());
    if let Some(list) = std::env::var_os("MCO_RESCUE_SKIPS") {
        let mut list = std::fs::OpenOptions::new()
            .append(true)
            .open(list)
            .expect("MCO_RESCUE_SKIPS is not a file");
        let line = format!("{word}\t{}\t{test}\n", why.replace(['\n', '\t'], " "));
        list.write_all(line.as_bytes())
            .expect("the list of skipped tests cannot be written");
    }
}
