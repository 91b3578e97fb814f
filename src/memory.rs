//! What the process holds stays in it: password hashes and keys are in its memory.

use nix::errno::Errno;
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, setrlimit};

/// From here on a crash leaves no core dump, of this process or of a program that it starts.
///
/// As root the process is also closed to debuggers without privilege, and to those handlers of core dumps that ignore
/// the limit. An ordinary user, who can read no hashes, keeps his own `/proc/self`, which the C library needs on
/// kernels before 6.6.
///
/// # Errors
/// What the kernel said; everything works all the same.
pub fn keep_private() -> Result<(), Errno> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    if nix::unistd::geteuid().is_root() {
        set_dumpable(false)?;
    }
    Ok(())
}
