//! The configuration files of sshd, below a root.

use crate::base::reason::Reason;
use crate::formats::sshd::{ConfigFiles, matches_pattern};
use crate::host::root::RootPath;
use crate::node::view::NodeView;

/// Reads files of a root, either as they are or as a run would leave them.
pub(in crate::node) struct ViewFiles<'a>(pub(in crate::node) &'a NodeView<'a>);

impl ConfigFiles for ViewFiles<'_> {
    fn read_text(&self, path: &str) -> Result<Option<String>, Reason> {
        let path = RootPath::parse(path).map_err(Reason::from_error)?;
        self.0.text(&path).map_err(Reason::from_error)
    }

    fn match_paths(&self, pattern: &str) -> Result<Vec<String>, Reason> {
        let mut found = vec![String::new()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let mut next = Vec::new();
            for above in found {
                self.expand_part(&above, part, &mut next)?;
            }
            found = next;
        }
        found.sort();
        Ok(found)
    }
}

impl ViewFiles<'_> {
    /// Adds the paths below a directory that match one component of a pattern.
    fn expand_part(&self, above: &str, part: &str, found: &mut Vec<String>) -> Result<(), Reason> {
        if !part.contains(['*', '?', '[']) {
            let path = RootPath::parse(&format!("{above}/{part}"));
            let path = path.map_err(Reason::from_error)?;
            if self.0.exists(&path).map_err(Reason::from_error)? {
                found.push(path.to_string());
            }
            return Ok(());
        }
        if part.contains('[') {
            return Err(format!("Include {above}/{part}: brackets are not understood here").into());
        }
        let directory = RootPath::parse(above).map_err(Reason::from_error)?;
        let names = self.0.names(&directory).map_err(Reason::from_error)?;
        let is_meant = |name: &String| {
            matches_pattern(name, part) && (!name.starts_with('.') || part.starts_with('.'))
        };
        let names = names.into_iter().filter(is_meant);
        found.extend(names.map(|name| format!("{above}/{name}")));
        Ok(())
    }
}
