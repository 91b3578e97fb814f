//! Paths of local files, relative to the files directory.

/// Butane's message if there is no directory of local files.
pub(super) const NO_FILES_DIR: &str =
    "local file paths are relative to a files directory that must be specified with -d/--files-dir";

/// Butane's message about a path that leads out of it.
pub(super) const ESCAPE: &str = "local file path traverses outside the files directory";

/// Returns a path below the directory without `.`, `..` and double slashes; `None` if it leads out of the directory.
pub(super) fn path_within(local: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in local.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_within_the_directory() {
        assert_eq!(path_within("a//b/./c").as_deref(), Some("a/b/c"));
        assert_eq!(path_within("/a/../b").as_deref(), Some("b"));
        assert_eq!(path_within(".").as_deref(), Some(""));
        for out in ["..", "../a", "a/../../b", "/.."] {
            assert_eq!(path_within(out), None, "{out:?}");
        }
    }
}
