//! Files of one boot below `/run`, from the initramfs to the real root: they survive the switch and are lost with
//! the boot.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Directory, relative to the root.
pub const DIRECTORY: &str = "/run/mco-rescue";
/// File with the result of the run in the initramfs.
pub const FIRSTBOOT: &str = "firstboot.json";
/// The document that Ignition was given by us.
pub const GIVEN: &str = "given.json";
/// rpm-ostreed has something of ours.
pub const LENT: &str = "lent";
/// The root was writable before the shell began.
pub const SHELL: &str = "shell.json";

/// Returns the path of a file, for messages and for a program that reads it by its name.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(name)
}

/// Writes a file that only root may read.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn write(name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut directory = fs::DirBuilder::new();
    directory.recursive(true).mode(0o700).create(DIRECTORY)?;
    let begun = path(&format!(".{name}.new"));
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&begun)?;
    file.write_all(bytes)?;
    fs::rename(&begun, path(name))
}

/// Writes a value as JSON.
pub fn write_json(name: &str, value: &impl Serialize) -> io::Result<()> {
    write(name, &serde_json::to_vec_pretty(value)?)
}

/// Reads a value; nothing where there is none, or none that can be read.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn read_json<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_slice(&fs::read(path(name)).ok()?).ok()
}

/// When a file was written; seconds since 1970.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn written(name: &str) -> Option<u64> {
    let time = fs::metadata(path(name)).ok()?.modified().ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Removes a file; one that is not there is fine.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn remove(name: &str) -> io::Result<()> {
    match fs::remove_file(path(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if there is such a file.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn has(name: &str) -> bool {
    path(name).exists()
}

/// Directory in which Ignition looks for a config of the image before it asks its platform; in the initramfs only.
pub const IGNITION_CONFIG: &str = "/usr/lib/ignition/user.ign";

/// Puts a config there, or takes it away.
#[allow(
    clippy::disallowed_methods,
    reason = "the initramfs itself, which is gone after the boot; never the node's root"
)]
pub fn write_ignition_config(bytes: Option<&[u8]>) -> io::Result<()> {
    let path = PathBuf::from(IGNITION_CONFIG);
    let Some(bytes) = bytes else {
        return fs::remove_file(path);
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Directory to which the daemon copies images of extensions.
pub const EXTENSIONS: &str = "/run/mco-extensions";
/// The daemon's policy with one image excepted.
pub const POLICY: &str = "/run/tmp-rpm-ostree-policy.json";
/// Drop-in that mounts it over the node's policy, for rpm-ostreed alone.
pub const POLICY_BINDING: &str =
    "/run/systemd/system/rpm-ostreed.service.d/temporal-policy-binding.conf";

/// Writes a file of `/run` that programs read which are not root's, with the directory it is in.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn write_for_programs(path: &str, bytes: &[u8]) -> io::Result<()> {
    let path = PathBuf::from(path);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, bytes)
}

/// Makes a directory of `/run`, and those above it.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn make_directory(path: &str) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// Removes a file or directory that was lent to programs. Returns true if it existed.
#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
pub fn take_back(path: &str) -> io::Result<bool> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Directory of texts that `pam_motd` shows at each login.
const MOTD: &str = "/run/motd.d";
/// Our text in it on a trial.
const ANNOUNCEMENT: &str = "60-mco-rescue";
/// Our text in it on a node that needs a person. A trial has its own, which comes and goes at other times.
const TROUBLE: &str = "61-mco-rescue";

/// Makes every later login show a text, until [`withdraw_announcement`] or the next boot. A text from before is replaced.
///
/// # Errors
/// The system's error.
pub fn announce_at_login(text: &str) -> io::Result<()> {
    announce_in(MOTD.as_ref(), ANNOUNCEMENT, text)
}

/// Makes every later login show that the node needs a person, or takes that text away.
///
/// # Errors
/// The system's error.
pub fn show_trouble_at_login(text: Option<&str>) -> io::Result<()> {
    match text {
        Some(text) => announce_in(MOTD.as_ref(), TROUBLE, text),
        None => take_back(&format!("{MOTD}/{TROUBLE}")).map(drop),
    }
}

/// Takes the text away. Returns true if there was one.
///
/// # Errors
/// The system's error.
pub fn withdraw_announcement() -> io::Result<bool> {
    take_back(&announcement_path())
}

/// Returns the path of the text, for a program that removes it later.
pub fn announcement_path() -> String {
    format!("{MOTD}/{ANNOUNCEMENT}")
}

#[allow(
    clippy::disallowed_methods,
    reason = "/run of the running system, never the node's root"
)]
fn announce_in(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    if !directory.is_dir() {
        fs::create_dir_all(directory)?;
        // Whatever the mask of this process is: logins read it as their own users.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    }
    // Written at its place: there it gets the label that sshd may read, and half a text harms no login.
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(directory.join(name))?;
    // Whatever the mask of this process is.
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of a test, not of a node")]
mod tests {
    use super::*;

    #[test]
    fn a_text_for_logins_replaces_the_one_before_and_all_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let motd = dir.path().join("run/motd.d");
        for text in ["a long text\nof two lines\n", "short\n"] {
            announce_in(&motd, ANNOUNCEMENT, text).unwrap();
            let path = motd.join(ANNOUNCEMENT);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o644);
        }
        let elsewhere = dir.path().join("elsewhere");
        fs::remove_file(motd.join(ANNOUNCEMENT)).unwrap();
        std::os::unix::fs::symlink(&elsewhere, motd.join(ANNOUNCEMENT)).unwrap();
        assert!(announce_in(&motd, ANNOUNCEMENT, "text").is_err());
        assert!(!elsewhere.exists());
    }
}
