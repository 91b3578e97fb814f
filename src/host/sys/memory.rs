//! Keeps the memory of the process private, because it contains password hashes and keys. When memory runs out, the program
//! says so and exits.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU8, Ordering};

use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};

use crate::base::error::ExitCode;
use crate::base::invocation::kept_command;

/// Prevents core dumps of this process and of the programs that it starts.
///
/// As root, this also blocks debuggers without privileges, and core dump handlers that ignore the limit. For an ordinary user,
/// who cannot read any hashes, `/proc/self` stays accessible, which the C library needs on kernels before 6.6.
///
/// # Errors
/// The kernel's error; everything works without it.
pub fn keep_private() -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    if nix::unistd::geteuid().is_root() {
        set_dumpable(false)?;
    }
    Ok(())
}

/// The system allocator. When memory runs out, prints the cause and exits with a code that reflects the node's state; otherwise
/// a signal would end the program.
#[derive(Debug)]
pub struct Memory;

/// The stage of the run, for the message and the exit code of [`end`].
static STAGE: AtomicU8 = AtomicU8::new(UNCHANGED_STAGE);

/// Nothing is changed, or nothing is known about it.
const UNCHANGED_STAGE: u8 = 0;

/// Names are being changed: a run that ends here is unfinished.
const CHANGING_STAGE: u8 = 1;

/// All changes are on disk, but not verified yet.
const CHANGED_STAGE: u8 = 2;

/// A stage of a run, which lasts until this is dropped.
#[derive(Debug)]
pub struct RunStage(());

impl RunStage {
    /// Enters the stage in which names are changed.
    pub fn enter_changing() -> Self {
        Self::enter_stage(CHANGING_STAGE)
    }

    /// Enters the stage in which all changes are on disk, but not verified yet.
    pub fn enter_changed() -> Self {
        Self::enter_stage(CHANGED_STAGE)
    }

    fn enter_stage(stage: u8) -> Self {
        STAGE.store(stage, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for RunStage {
    fn drop(&mut self) {
        STAGE.store(UNCHANGED_STAGE, Ordering::Relaxed);
    }
}

// SAFETY: every call is forwarded unchanged to the system's allocator, and its result is returned unless it is null.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are those that the system's allocator requires.
        require_memory(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        require_memory(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        require_memory(unsafe { System.realloc(old, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn require_memory(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        exit_without_memory();
    }
    memory
}

const UNCHANGED: &str = "error: no memory is left for this program, or its limit is too low (ulimit -v). Free some.\n\
                         Next: ";
const CHANGING: &str = "error: no memory is left for this program, and the run is unfinished. Free some.\n\
                        Next: ";

const UNVERIFIED: &str = "warn: the config is applied, but no memory is left to verify it, or the limit is too low \
                          (ulimit -v). Free some.\nNext: ";

/// Exits for lack of memory. Nothing can be cleaned up without memory; `recover` does that from the state on disk.
fn exit_without_memory() -> ! {
    let (text, next, code) = match STAGE.load(Ordering::Relaxed) {
        CHANGING_STAGE => (CHANGING, "recover", ExitCode::Incomplete),
        CHANGED_STAGE => (UNVERIFIED, "verify", ExitCode::Done),
        _ => (UNCHANGED, "status", ExitCode::Error),
    };
    // SAFETY: the texts live as long as the process, and the calls do not allocate.
    unsafe {
        for text in [text, kept_command(next), "\n"] {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        }
        libc::_exit(code as libc::c_int)
    }
}

/// Reserves space for `more` bytes. Doubles the capacity, like any vector, but does not exceed `limit` unless needed.
pub fn make_room(bytes: &mut Vec<u8>, more: usize, limit: u64) {
    let needed = bytes.len().saturating_add(more);
    if needed > bytes.capacity() {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let room = bytes.capacity().saturating_mul(2).min(limit).max(needed);
        bytes.reserve_exact(room - bytes.len());
    }
}
