//! The daemon's container stands still while names change (cgroup v2 `cgroup.freeze`), and is ended once the
//! records are written, so that it starts anew and judges the finished state.
//!
//! Bounded: a container that does not stand still in time is let go, and the run goes on. Recoverable: the
//! journal, durable before anything is frozen, names the cgroups, and goes only after they were let go;
//! `recover` lets them go too, and a reboot forgets them. Letting go of what runs or is gone does nothing.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Where cgroup v2 is mounted: alone, or beside version 1.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
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
            log::warn!("ending {}: {error}; restart the daemon", dir.display());
        }
    }
    thaw(cgroups);
}

/// Lets all of them go.
pub fn thaw(cgroups: &[String]) {
    for dir in cgroups.iter().filter_map(|cgroup| directory(cgroup)) {
        match write(&dir.join("cgroup.freeze"), "0") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                log::warn!("thawing {}: {error}", dir.display());
            }
            _ => {}
        }
    }
}

/// A cgroup that exists. Its path may come from a journal: nothing in it climbs.
#[allow(
    clippy::disallowed_methods,
    reason = "cgroupfs of the running kernel, not a path of the node's root"
)]
fn directory(cgroup: &str) -> Option<PathBuf> {
    let relative = cgroup.strip_prefix('/')?;
    if relative.is_empty()
        || relative
            .split('/')
            .any(|part| matches!(part, "" | "." | ".."))
    {
        return None;
    }
    let mut places = MOUNTS
        .iter()
        .map(|mount| PathBuf::from(mount).join(relative));
    places.find(|dir| dir.join("cgroup.freeze").exists())
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
    fn no_path_leads_out_of_the_hierarchy() {
        for bad in ["", "/", "a", "/../etc", "/a/../..", "//a", "/a/./b"] {
            assert_eq!(directory(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_kernel_says_when_all_stand_still() {
        assert!(is_frozen("populated 1\nfrozen 1\n"));
        assert!(!is_frozen("populated 1\nfrozen 0\n"));
    }
}
