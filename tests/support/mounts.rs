//! Mounts that only the test sees, and disks that are files.
#![allow(unsafe_code)]

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use crate::support::{Lacks, is_root, skip};

/// Runs the test in a mount namespace of its own; its mounts vanish with the thread.
pub fn with_mounts(test: impl FnOnce() + Send) {
    if !is_root() {
        skip(Lacks::Root, "mounting needs root");
        return;
    }
    let ended = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: no memory is involved; only this thread gets another view of the mounts.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
                skip(Lacks::Machine, "no mount namespace can be made here");
                return;
            }
            mount(&["--make-rprivate", "/"]);
            test();
        });
        thread.join()
    });
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}

/// The same in a network of its own too, with nothing but a loopback: a port that a program fixes is free there.
pub fn with_network(test: impl FnOnce() + Send) {
    with_mounts(|| {
        // SAFETY: no memory is involved; only this thread and what it starts get a network of their own.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        test();
    });
}

/// Calls `mount`, which must work.
pub fn mount(args: &[&str]) {
    let status = Command::new("mount").args(args).status().unwrap();
    assert!(status.success(), "mount {args:?}");
}

/// A file system in a file, in memory where that can be had.
pub struct Disk(NamedTempFile);

impl Disk {
    /// `None`, said aloud, where there is no such `mkfs` or it cannot be mounted.
    pub fn new(mebibytes: u64, mkfs: &[&str]) -> Option<Self> {
        let disk = Self::blank();
        disk.file().set_len(mebibytes << 20).unwrap();
        let (program, options) = mkfs.split_first().unwrap();
        let mut command = Command::new(program);
        command.args(options).arg(disk.0.path());
        let made = command.stdout(Stdio::null()).output();
        let there = tempfile::tempdir().unwrap();
        let works =
            made.is_ok_and(|output| output.status.success()) && disk.try_mount(there.path(), "");
        if !works {
            skip(
                Lacks::program(program),
                &format!("{program} or loop devices are not to be had"),
            );
            return None;
        }
        unmount(there.path());
        Some(disk)
    }

    /// A file without anything in it.
    pub fn blank() -> Self {
        Self(NamedTempFile::new_in("/dev/shm").unwrap_or_else(|_| NamedTempFile::new().unwrap()))
    }

    /// The disk as it is at this moment: what a power cut would leave of it.
    pub fn copy(&self) -> Self {
        let copy = Self::blank();
        std::io::copy(&mut File::open(self.0.path()).unwrap(), &mut copy.file()).unwrap();
        copy
    }

    /// The same, at a moment in which the file system writes nothing.
    pub fn copy_at_rest(&self) -> Self {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let copy = self.copy();
            if std::fs::read(copy.0.path()).unwrap() == std::fs::read(self.0.path()).unwrap() {
                return copy;
            }
            assert!(Instant::now() < deadline, "the disk is never at rest");
        }
    }

    /// The file, to be written.
    pub fn file(&self) -> File {
        File::options().write(true).open(self.0.path()).unwrap()
    }

    /// Mounts it; `options` begin with a comma.
    pub fn mount(&self, at: &Path, options: &str) {
        assert!(self.try_mount(at, options), "the disk cannot be mounted");
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Mounts it if that can be done; `options` begin with a comma.
    pub fn try_mount(&self, at: &Path, options: &str) -> bool {
        let mut command = Command::new("mount");
        command.arg("-o").arg(format!("loop{options}"));
        command.arg(self.path()).arg(at).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Takes a mount away. A program that another thread is just starting holds copies of our descriptors for a
/// moment, so that the mount can be busy that long.
pub fn unmount(at: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let output = Command::new("umount").arg(at).output().unwrap();
        if output.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("busy") && Instant::now() < deadline, "{said}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
