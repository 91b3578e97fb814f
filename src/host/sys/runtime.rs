//! Files for one boot below `/run`, from the initramfs to the real root: they survive the switch of the root and are lost with
//! the boot.
#![allow(
    clippy::disallowed_methods,
    reason = "the one place that writes below /run; never the node's root"
)]

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::reason::Reason;

/// Directory, relative to the root.
pub const DIRECTORY: &str = "/run/mco-rescue";
/// File with the result of the run in the initramfs.
pub const FIRSTBOOT: &str = "firstboot.json";
/// The document that this program gave Ignition.
pub const GIVEN: &str = "given.json";
/// The capsule through which it was read.
pub const GIVEN_CAPSULE: &str = "given-capsule.json";
/// The origin of an imported image, from which ostree stages it.
pub const ORIGIN: &str = "origin";
/// Exists while rpm-ostreed uses files of this program.
pub const LENT: &str = "lent";
/// Exists if the root was writable before the shell began.
pub const SHELL: &str = "shell.json";

/// Directory of a rehearsal: its scene, its config, and the place where its namespaces mount their root.
pub const REHEARSAL: &str = "/run/mco-rescue-rehearsal";

/// Returns the path of a file, for messages and for programs that open it by name.
pub fn runtime_path(name: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(name)
}

/// Writes a file that only root may read.
pub fn write_runtime(name: &str, bytes: &[u8]) -> io::Result<()> {
    make_directory(DIRECTORY)?;
    let begun = runtime_path(&format!(".{name}.new"));
    write_file(&begun, bytes, 0o600)?;
    fs::rename(&begun, runtime_path(name))
}

/// Writes a file in place with this mode, whatever the umask is. Does not follow a link.
fn write_file(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    // An existing file keeps its mode, and a new one gets the mode of the umask.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(bytes)
}

/// Writes a value as JSON.
pub fn write_json(name: &str, value: &impl Serialize) -> io::Result<()> {
    write_runtime(name, &serde_json::to_vec_pretty(value)?)
}

/// Reads a value; `None` if it is missing.
///
/// # Errors
/// The file cannot be read, or has another form. The error names the file.
pub fn read_json<T: DeserializeOwned>(name: &str) -> io::Result<Option<T>> {
    read_json_at(&runtime_path(name))
}

fn read_json_at<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let named = |error: io::Error| {
        let words = format!("{}: {}", path.display(), Reason::from(error));
        io::Error::other(words)
    };
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| named(error.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(named(error)),
    }
}

/// Returns the time at which a file was written, in seconds since 1970; `None` if it is missing or its time is not known.
pub fn time_of_writing(name: &str) -> Option<u64> {
    let time = fs::metadata(runtime_path(name)).ok()?.modified().ok()?;
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

/// Removes a file; a missing one is not an error.
pub fn remove_runtime(name: &str) -> io::Result<()> {
    match fs::remove_file(runtime_path(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if the file exists.
pub fn has_runtime(name: &str) -> bool {
    runtime_path(name).exists()
}

/// File in which Ignition looks for the image's config before it queries its platform; only in the initramfs.
pub const IGNITION_CONFIG: &str = "/usr/lib/ignition/user.ign";

/// Writes a config there, or removes it.
pub fn write_ignition_config(bytes: Option<&[u8]>) -> io::Result<()> {
    let path = Path::new(IGNITION_CONFIG);
    let Some(bytes) = bytes else {
        return fs::remove_file(path);
    };
    make_parent(path)?;
    write_file(path, bytes, 0o600)
}

/// Directory to which the daemon copies extension images.
pub const EXTENSIONS: &str = "/run/mco-extensions";
/// The daemon's policy with an exception for one image.
pub const POLICY: &str = "/run/tmp-rpm-ostree-policy.json";
/// Drop-in that mounts it over the node's policy, only for rpm-ostreed.
pub const POLICY_BINDING: &str =
    "/run/systemd/system/rpm-ostreed.service.d/temporal-policy-binding.conf";

/// Writes a file below `/run` for programs that do not run as root, and creates its directory.
///
/// # Errors
/// The system's error.
pub fn write_for_programs(path: &str, bytes: &[u8]) -> io::Result<()> {
    let path = Path::new(path);
    make_parent(path)?;
    write_file(path, bytes, 0o644)
}

/// Writes a file below `/run` that only root may read, and creates its directory.
///
/// # Errors
/// The system's error.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    make_parent(path)?;
    write_file(path, bytes, 0o600)
}

/// Creates a directory below `/run`, and its parents, in which only this user can create files.
///
/// # Errors
/// The system's error, or the name belongs to another user or to a link.
pub fn make_directory(path: &str) -> io::Result<()> {
    make_closed(Path::new(path))
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), make_closed)
}

/// Creates a directory in which only this user can create files, whatever the umask is; closes an existing one to others.
fn make_closed(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755).create(path)?;
    let directory = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)?;
    let found = directory.metadata()?;
    if found.uid() != nix::unistd::geteuid().as_raw() {
        let words = format!("{} belongs to uid {}", path.display(), found.uid());
        return Err(io::Error::other(words));
    }
    let mode = found.mode() & 0o7777;
    match mode & 0o022 {
        0 => Ok(()),
        _ => directory.set_permissions(fs::Permissions::from_mode(mode & !0o022)),
    }
}

/// Removes a file or directory that was made available to programs. Returns true if it existed.
pub fn remove_path(path: &str) -> io::Result<bool> {
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
/// Name of our text about a trial.
const ANNOUNCEMENT: &str = "60-mco-rescue";
/// Name of our text on a node that needs attention. A trial has its own, which appears and disappears at other times.
const TROUBLE: &str = "61-mco-rescue";

/// Makes every later login show a text, until [`withdraw_announcement`] or the next boot. Replaces an earlier text.
///
/// # Errors
/// The system's error.
pub fn announce_at_login(text: &str) -> io::Result<()> {
    announce_in(MOTD.as_ref(), ANNOUNCEMENT, text)
}

/// Makes every later login show that the node needs attention, or removes that text.
///
/// # Errors
/// The system's error.
pub fn show_trouble_at_login(text: Option<&str>) -> io::Result<()> {
    match text {
        Some(text) => announce_in(MOTD.as_ref(), TROUBLE, text),
        None => remove_path(&format!("{MOTD}/{TROUBLE}")).map(drop),
    }
}

/// Removes the text. Returns true if there was one.
///
/// # Errors
/// The system's error.
pub fn withdraw_announcement() -> io::Result<bool> {
    remove_path(&announcement_path())
}

/// Returns the path of the text, for a program that removes it later.
pub fn announcement_path() -> String {
    format!("{MOTD}/{ANNOUNCEMENT}")
}

fn announce_in(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    make_closed(directory)?;
    // Written in place: there it gets the label that sshd may read, and an incomplete text harms no login.
    write_file(&directory.join(name), text.as_bytes(), 0o644)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_cannot_be_read_is_not_a_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        assert_eq!(read_json_at::<bool>(&path).unwrap(), None);
        fs::write(&path, "true").unwrap();
        assert_eq!(read_json_at(&path).unwrap(), Some(true));
        fs::write(&path, "tru").unwrap();
        let torn = read_json_at::<bool>(&path).unwrap_err().to_string();
        assert!(torn.starts_with(path.to_str().unwrap()), "{torn}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let obstacle = read_json_at::<bool>(&path).unwrap_err().to_string();
        assert!(obstacle.ends_with("is a directory"), "{obstacle}");
    }

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
