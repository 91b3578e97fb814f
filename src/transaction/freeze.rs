//! The daemon's container stands still while names change (cgroup v2 `cgroup.freeze`), and is ended once the
//! records are written, so that it starts anew and judges the finished state.
//!
//! Bounded: a container that does not stand still in time is let go, and the run goes on. Recoverable: the
//! journal, durable before anything is frozen, names the cgroups, and goes only after they were let go;
//! `recover` lets them go too, and a reboot forgets them. Letting go of what runs or is gone does nothing.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::node::activity::{START_ANEW, cgroup_directory as directory};

/// Longer than any process needs that is not stuck in the kernel.
const PATIENCE: Duration = Duration::from_secs(2);

/// Freezes all of them, and waits until they stand still.
pub fn freeze(cgroups: &[String]) {
    for cgroup in cgroups {
        let Some(dir) = directory(cgroup) else {
            continue;
        };
        if let Err(error) = freeze_one(&dir) {
            log::warn!("freezing {}: {error}; going on without", dir.display());
            thaw(std::slice::from_ref(cgroup));
        }
    }
}

fn freeze_one(dir: &std::path::Path) -> io::Result<()> {
    write(&dir.join("cgroup.freeze"), "1")?;
    let deadline = Instant::now() + PATIENCE;
    while !is_frozen(&read(&dir.join("cgroup.events"))?) {
        if Instant::now() >= deadline {
            return Err(io::Error::from(io::ErrorKind::TimedOut));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    log::info!("{} stands still", dir.display());
    Ok(())
}

/// Ends everything in them: what they belong to is started anew by who watches over it.
pub fn end(cgroups: &[String]) {
    for dir in cgroups.iter().filter_map(|cgroup| directory(cgroup)) {
        // Kernels before 5.14 cannot; then it goes on where it was.
        if let Err(error) = write(&dir.join("cgroup.kill"), "1") {
            log::warn!("ending {}: {error}. Next: {START_ANEW}", dir.display());
        }
    }
    thaw(cgroups);
}

/// Lets all of them go.
pub fn thaw(cgroups: &[String]) {
    for dir in cgroups.iter().filter_map(|cgroup| directory(cgroup)) {
        match write(&dir.join("cgroup.freeze"), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let dir = dir.display();
                log::warn!(
                    "thawing {dir}: {error}; the daemon stands still until: echo 0 >{dir}/cgroup.freeze"
                );
            }
            _ => {}
        }
    }
}

/// The files that thaw those of them that stand still: `echo 0` into each.
pub fn standing(cgroups: &[String]) -> Vec<PathBuf> {
    let dirs = cgroups.iter().filter_map(|cgroup| directory(cgroup));
    let stands =
        |dir: &PathBuf| read(&dir.join("cgroup.events")).is_ok_and(|said| is_frozen(&said));
    dirs.filter(stands)
        .map(|dir| dir.join("cgroup.freeze"))
        .collect()
}

fn is_frozen(events: &str) -> bool {
    events.lines().any(|line| line == "frozen 1")
}

#[allow(
    clippy::disallowed_methods,
    reason = "cgroupfs of the running kernel, not a path of the node's root"
)]
fn read(path: &std::path::Path) -> io::Result<String> {
    std::fs::read_to_string(path)
}

#[allow(
    clippy::disallowed_methods,
    reason = "cgroupfs of the running kernel, not a path of the node's root"
)]
fn write(path: &std::path::Path, text: &str) -> io::Result<()> {
    std::fs::write(path, text)
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
