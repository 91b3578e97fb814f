//! The parts of an OSTree system that are recreated at every boot: `transient` in the configuration of `ostree-prepare-root`.
//!
//! For a running system the source is `/run/ostree-booted`; for other deployments, the configuration file of the image.

use super::Host;
use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};
use crate::host::running;

/// The key in `/run/ostree-booted` that marks a transient `/etc`.
const ETC_KEY: &[u8] = b"transient-etc\0";
/// The key for a transient root; its value is a boolean.
const ROOT_KEY: &[u8] = b"root.transient\0";

/// The parts that are recreated at every boot, each with its evidence in words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transient {
    /// `/etc`.
    pub etc: Option<String>,
    /// Everything except `/etc`, `/var` and mounts.
    pub root: Option<String>,
}

impl Transient {
    /// Reads the transient parts of a root; none on a system that OSTree does not boot.
    ///
    /// # Errors
    /// An existing file cannot be read.
    pub fn observe(root: &Root, host: &Host) -> Result<Self, RootError> {
        match host.live || host.in_initramfs {
            true => {
                Ok(read_booted()?.map_or_else(Self::default, |booted| Self::of_booted(&booted)))
            }
            false if host.is_image() => Self::of_files(root),
            false => Ok(Self::default()),
        }
    }

    fn of_booted(booted: &[u8]) -> Self {
        let evidence = |key: &str| format!("{key} in /{}", paths::OSTREE_BOOTED);
        let has_etc = find_key(booted, ETC_KEY).is_some();
        // The value is aligned to eight bytes.
        let value = find_key(booted, ROOT_KEY).map(|end| end.next_multiple_of(8));
        let has_root = value.and_then(|at| booted.get(at)) == Some(&1);
        Self {
            etc: has_etc.then(|| evidence("transient-etc")),
            root: has_root.then(|| evidence("root.transient")),
        }
    }

    fn of_files(root: &Root) -> Result<Self, RootError> {
        let mut found = Self::default();
        // The second file takes precedence.
        for path in paths::PREPARE_ROOT {
            let Some(bytes) = root.read(&RootPath::fixed(path))? else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes);
            for (section, place) in [("etc", &mut found.etc), ("root", &mut found.root)] {
                let evidence = || format!("[{section}] transient=true in /{path}");
                if let Some(is_transient) = transient_in(&text, section) {
                    *place = is_transient.then(evidence);
                }
            }
        }
        Ok(found)
    }
}

/// Returns the offset after a key.
fn find_key(bytes: &[u8], key: &[u8]) -> Option<usize> {
    let mut windows = bytes.windows(key.len());
    Some(windows.position(|found| found == key)? + key.len())
}

/// Parses `transient` in a section as GLib parses a boolean of a key file.
fn transient_in(text: &str, section: &str) -> Option<bool> {
    let mut inside = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            inside = name.strip_suffix(']') == Some(section);
        } else if let Some((key, value)) = line.split_once('=')
            && inside
            && key.trim() == "transient"
        {
            found = Some(matches!(value.trim(), "true" | "1"));
        }
    }
    found
}

fn read_booted() -> Result<Option<Vec<u8>>, RootError> {
    let path = format!("/{}", paths::OSTREE_BOOTED);
    running::read_if_present(&path).map_err(|error| RootError::of_system(&path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_system_says_what_is_transient() {
        let none = b"root.transient\0\0\0\0b\x0f\0\0\0\0sysroot-ro\0\0\0\0\0\0\x01\0b";
        assert_eq!(Transient::of_booted(none), Transient::default());
        assert_eq!(Transient::of_booted(b""), Transient::default());
        let root = b"root.transient\0\0\x01\0b\0\0\0\0\0root.transient-ro\0\0\0\0\0\0\0\0\0b";
        let found = Transient::of_booted(root);
        assert_eq!((found.etc, found.root.is_some()), (None, true));
        let etc = b"transient-etc\0\0\0/run/ostree/transient-etc.Ab1\0\0s";
        assert!(Transient::of_booted(etc).etc.is_some());
    }

    #[test]
    fn the_last_word_of_a_section_counts() {
        for (text, wanted) in [
            ("", None),
            ("[etc]\ntransient=true\n", Some(true)),
            ("[etc]\ntransient = 1\n", Some(true)),
            ("[etc]\n# transient=true\n", None),
            (
                "[etc]\ntransient=false\n[root]\ntransient=true\n",
                Some(false),
            ),
            ("[root]\ntransient=true\n", None),
            ("transient=true\n[etc]\n", None),
        ] {
            assert_eq!(transient_in(text, "etc"), wanted, "{text:?}");
        }
    }
}
