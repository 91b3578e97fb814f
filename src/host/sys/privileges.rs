//! The capabilities of this process: those that it does not need are dropped.
//!
//! Capabilities belong to threads. The main thread drops some before a byte of a document is read, and more before a
//! transaction, when the plan shows which ones are needed; a program is started from a thread that keeps only what that program
//! needs. Dropping never fails a run: a process that is not allowed to do it (of an ordinary user, in a container) has little
//! to drop.

use caps::{CapSet, CapsHashSet, errors::CapsError};

pub use caps::Capability;

/// Capabilities for writing other users' files; kept to the end, because undoing needs them as well.
const FILES: [Capability; 5] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
];
/// Capabilities for flags, for labels (including another policy's), for ostree, for the account and container tools, and for a
/// requested reboot.
const SOMETIMES: [Capability; 9] = [
    Capability::CAP_SYS_BOOT,
    Capability::CAP_SYS_PTRACE,
    Capability::CAP_LINUX_IMMUTABLE,
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_MAC_ADMIN,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_AUDIT_WRITE,
    Capability::CAP_MKNOD,
    Capability::CAP_SETFCAP,
];

/// Returns the capabilities in force.
pub fn effective_capabilities() -> CapsHashSet {
    caps::read(None, CapSet::Effective).unwrap_or_default()
}

/// Returns true for root, and for a process that can read and write all users' files like root.
pub fn opens_all() -> bool {
    nix::unistd::geteuid().is_root()
        || effective_capabilities().contains(&Capability::CAP_DAC_OVERRIDE)
}

/// Drops what no run ever needs.
pub fn keep_possible() {
    keep_capabilities(&[&FILES[..], &SOMETIMES[..]].concat());
}

/// Drops what this run does not need: everything except those for files and `more`.
pub fn keep_needed(more: &[Capability]) {
    keep_capabilities(&[&FILES, more].concat());
}

/// Drops everything except these, in this thread and in everything it starts.
pub fn keep_capabilities(wanted: &[Capability]) {
    if let Err(error) = try_keep(wanted) {
        log::warn!("giving up capabilities: {error}");
    }
}

fn try_keep(wanted: &[Capability]) -> Result<(), CapsError> {
    let wanted: CapsHashSet = wanted.iter().copied().collect();
    // While CAP_SETPCAP is available; without it, started programs are restricted by no_new_privs.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::all().difference(&wanted) {
            let dropped = caps::drop(None, CapSet::Bounding, *capability);
            // An older kernel neither knows nor grants some of them.
            let is_known = || caps::has_cap(None, CapSet::Bounding, *capability).is_ok();
            if dropped.is_err() && is_known() {
                dropped?;
            }
        }
    }
    if caps::runtime::ambient_set_supported().is_ok() {
        caps::clear(None, CapSet::Ambient)?;
    }
    caps::clear(None, CapSet::Inheritable)?;
    for set in [CapSet::Effective, CapSet::Permitted] {
        let kept: CapsHashSet = caps::read(None, set)?
            .intersection(&wanted)
            .copied()
            .collect();
        caps::set(None, set, &kept)?;
    }
    Ok(())
}

/// Drops everything, in a thread that starts no program. Opens no file.
pub fn keep_none() {
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
        if let Err(error) = caps::clear(None, set) {
            log::warn!("giving up capabilities: {error}");
        }
    }
}

/// Makes sure that this process, and the program that it becomes, never has these again.
///
/// # Errors
/// The kernel refuses.
pub fn forbid_capabilities(unwanted: &[Capability]) -> Result<(), CapsError> {
    unwanted
        .iter()
        .try_for_each(|capability| caps::drop(None, CapSet::Bounding, *capability))
}

/// Limits a thread that is about to start a program to these, whatever its file or user id grants.
pub fn keep_for_program(wanted: &[Capability]) {
    if let Err(errno) = nix::sys::prctl::set_no_new_privs() {
        log::warn!("holding privileges: {errno}");
    }
    keep_capabilities(wanted);
}

#[cfg(test)]
mod tests {
    use crate::host::sys::privileges::*;

    /// Runs in a separate thread, because dropped capabilities do not come back.
    fn in_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    #[test]
    fn what_is_not_kept_is_gone_from_every_set() {
        let before = effective_capabilities();
        let kept = [Capability::CAP_CHOWN];
        in_thread(|| {
            keep_capabilities(&kept);
            for set in [CapSet::Effective, CapSet::Permitted] {
                let left = caps::read(None, set).unwrap();
                let wanted: CapsHashSet = kept.into_iter().filter(|c| before.contains(c)).collect();
                assert_eq!(left, wanted);
            }
            assert!(caps::read(None, CapSet::Inheritable).unwrap().is_empty());
            if before.contains(&Capability::CAP_SETPCAP) {
                let bounding = caps::read(None, CapSet::Bounding).unwrap();
                assert!(
                    bounding.is_subset(&kept.into_iter().collect()),
                    "{bounding:?}"
                );
            }
        });
        assert_eq!(effective_capabilities(), before);
    }

    #[test]
    fn a_thread_that_keeps_none_has_none() {
        let before = effective_capabilities();
        in_thread(|| {
            keep_none();
            for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable] {
                assert!(caps::read(None, set).unwrap().is_empty(), "{set:?}");
            }
        });
        assert_eq!(effective_capabilities(), before);
    }

    #[test]
    fn giving_up_twice_is_not_an_error() {
        in_thread(|| {
            try_keep(&FILES).unwrap();
            try_keep(&[]).unwrap();
            try_keep(&FILES).unwrap();
            assert!(effective_capabilities().is_empty());
        });
    }
}
