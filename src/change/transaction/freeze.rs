//! Freezes the daemon's container while names change (cgroup v2 `cgroup.freeze`), and kills it once the records are written, so
//! that it restarts and judges the finished state.
//!
//! Bounded: a container that does not freeze in time is thawed, and the run continues. Recoverable: the journal, which is
//! durable before anything is frozen, lists the cgroups, and is removed only after they were thawed. `recover` thaws them too,
//! and they do not survive a reboot. Thawing a cgroup that is running or missing does nothing.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::host::running;
use crate::node::activity::{START_ANEW, cgroup_directory as directory};

/// Time limit of a freeze: longer than any process needs that is not stuck in the kernel.
const PATIENCE: Duration = Duration::from_secs(2);

/// Freezes all of them, and waits until they are frozen.
pub(super) fn freeze_cgroups(cgroups: &[String]) {
    for cgroup in cgroups {
        let Some(dir) = directory(cgroup) else {
            continue;
        };
        if let Err(error) = freeze_one(&dir) {
            log::warn!("freezing {}: {error}; going on without", dir.display());
            thaw_cgroups(std::slice::from_ref(cgroup));
        }
    }
}

fn freeze_one(dir: &std::path::Path) -> io::Result<()> {
    running::write_setting(dir.join("cgroup.freeze"), "1")?;
    let deadline = Instant::now() + PATIENCE;
    while !is_frozen(&running::read_text(dir.join("cgroup.events"))?) {
        if Instant::now() >= deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    log::info!("{} is frozen", dir.display());
    Ok(())
}

/// Kills every process in them; the container runtime restarts the container.
pub(super) fn kill_cgroups(cgroups: &[String]) {
    for dir in cgroups.iter().filter_map(|cgroup| directory(cgroup)) {
        // Kernels before 5.14 cannot do this; the container then continues where it was.
        if let Err(error) = running::write_setting(dir.join("cgroup.kill"), "1") {
            log::warn!("killing {}: {error}. Next: {START_ANEW}", dir.display());
        }
    }
    thaw_cgroups(cgroups);
}

/// Thaws all of them.
pub(super) fn thaw_cgroups(cgroups: &[String]) {
    for dir in cgroups.iter().filter_map(|cgroup| directory(cgroup)) {
        match running::write_setting(dir.join("cgroup.freeze"), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let dir = dir.display();
                log::warn!(
                    "thawing {dir}: {error}; the daemon stays frozen until: echo 0 >{dir}/cgroup.freeze"
                );
            }
            _ => {}
        }
    }
}

/// Returns the control files of the frozen ones: `echo 0` to a file thaws its cgroup.
pub(super) fn frozen_files(cgroups: &[String]) -> Vec<PathBuf> {
    let dirs = cgroups.iter().filter_map(|cgroup| directory(cgroup));
    let stands = |dir: &PathBuf| {
        running::read_text(dir.join("cgroup.events")).is_ok_and(|said| is_frozen(&said))
    };
    dirs.filter(stands)
        .map(|dir| dir.join("cgroup.freeze"))
        .collect()
}

fn is_frozen(events: &str) -> bool {
    events.lines().any(|line| line == "frozen 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_when_all_stand_still() {
        assert!(is_frozen("populated 1\nfrozen 1\n"));
        assert!(!is_frozen("populated 1\nfrozen 0\n"));
    }
}
