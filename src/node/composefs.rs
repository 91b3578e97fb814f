//! The traces of bootc's composefs backend, which is not an OSTree system.

use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

use super::host::Host;
use super::kernel::kernel_command_line;

/// Returns the traces of bootc's composefs backend, in words; `None` on every other system. An OSTree system with a composefs
/// root also has `ostree=` in its kernel command line and does not use that backend.
///
/// # Errors
/// The root cannot be read.
pub fn composefs_traces(root: &Root, host: &Host) -> Result<Option<String>, RootError> {
    let has = |path: &'static str| root.exists(&RootPath::fixed(path));
    if host.live || host.in_initramfs {
        let line = kernel_command_line().unwrap_or_default();
        let Some(argument) = composefs_argument(&line) else {
            return Ok(None);
        };
        let beside = if has(paths::COMPOSEFS)? {
            format!("; /{}", paths::COMPOSEFS)
        } else {
            String::new()
        };
        return Ok(Some(format!("kernel argument {argument}{beside}")));
    }
    let both = has(paths::PHYSICAL_COMPOSEFS)? && has(paths::PHYSICAL_COMPOSEFS_STATE)?;
    Ok(both.then(|| "composefs/images and state/deploy on its disk".to_owned()))
}

/// Returns the kernel argument that names a deployment of the composefs backend, shortened.
fn composefs_argument(line: &str) -> Option<String> {
    let line = Kargs::parse(line);
    let mut words = line.tokens().iter();
    if words.clone().any(|word| word.starts_with("ostree=")) {
        return None;
    }
    let is_one = |word: &&String| {
        let mut names = ["composefs=", "composefs.digest="].into_iter();
        names.any(|name| word.starts_with(name))
    };
    let word = words.find(is_one)?;
    let short: String = word.chars().take(24).collect();
    Some(if short.len() < word.len() {
        format!("{short}…")
    } else {
        short
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_composefs_backend_is_not_an_ostree_system_with_a_composefs_root() {
        let digest = "0123456789abcdef".repeat(8);
        for (line, argument) in [
            (
                format!("root=UUID=1 composefs={digest} rw"),
                Some("composefs=0123456789abcd…"),
            ),
            (
                format!("composefs=?{digest}"),
                Some("composefs=?0123456789abc…"),
            ),
            ("composefs=ab".to_owned(), Some("composefs=ab")),
            (
                format!("rw composefs.digest={digest}"),
                Some("composefs.digest=0123456…"),
            ),
            (
                format!("composefs={digest} ostree=/ostree/boot.1/rhcos/0/0"),
                None,
            ),
            ("rw ostree=/ostree/boot.1/rhcos/0/0".to_owned(), None),
            ("rd.composefs=1 root=UUID=1".to_owned(), None),
        ] {
            assert_eq!(composefs_argument(&line).as_deref(), argument, "{line}");
        }
    }
}
