//! zipl, the boot loader of IBM Z. It starts a kernel from a list of blocks that zipl itself writes. OSTree runs it after a
//! change of the boot entries only if its repository's configuration names it.

use super::host::host_architecture;
use super::ostree_repository::REPOSITORY;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};

/// The command that makes OSTree run zipl after each change of the boot entries.
pub const CURE: &str = "ostree config set sysroot.bootloader zipl";

/// A machine with zipl whose repository does not name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedZipl {
    /// Why the machine is known to use zipl: a file, or the architecture.
    pub sign: String,
    /// Path of the configuration of the repository.
    pub config: String,
    /// The boot loader in it; `None` if it names none.
    pub named: Option<String>,
}

/// Returns the problem on a machine with zipl; `None` on other machines, and if OSTree runs it.
///
/// # Errors
/// The reason why the configuration of the repository is unknown.
pub fn find_unused(root: &Root) -> Result<Option<UnusedZipl>, Reason> {
    let mut file = None;
    for path in paths::ZIPL {
        let exists = root.exists(&RootPath::fixed(path));
        if exists.map_err(Reason::from_error)? {
            file = Some(path);
            break;
        }
    }
    let sign = match file {
        Some(path) => format!("/{path}"),
        None if host_architecture(root, root.is_live()) == Some("s390x") => "s390x".to_owned(),
        None => return Ok(None),
    };
    let path = RootPath::fixed(REPOSITORY)
        .join("config")
        .map_err(Reason::from_error)?;
    let bytes = root.read_small(&path).map_err(Reason::from_error)?;
    let bytes = bytes.ok_or_else(|| format!("{path} is missing"))?;
    let named = read_bootloader(&String::from_utf8_lossy(&bytes));
    Ok((named.as_deref() != Some("zipl")).then(|| UnusedZipl {
        sign,
        config: path.to_string(),
        named,
    }))
}

/// Returns `bootloader=` in the section `sysroot`; the last one if there are several.
fn read_bootloader(text: &str) -> Option<String> {
    let mut is_sysroot = false;
    let mut found = None;
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_sysroot = line == "[sysroot]";
        } else if let Some((key, value)) = line.split_once('=')
            && is_sysroot
            && key.trim() == "bootloader"
        {
            found = Some(value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_loader_of_a_repository_is_read() {
        for (text, named) in [
            (
                "[core]\nmode=bare\n[sysroot]\nreadonly=true\nbootloader = zipl\n",
                Some("zipl"),
            ),
            ("[sysroot]\nbootloader=none\n", Some("none")),
            ("[core]\nbootloader=zipl\n[sysroot]\n", None),
            ("[sysroot]\n#bootloader=zipl\n", None),
            ("", None),
        ] {
            assert_eq!(read_bootloader(text).as_deref(), named, "{text}");
        }
    }
}
