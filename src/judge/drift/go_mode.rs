//! The mode of a file, as Go prints it.

use crate::base::object::{Object, ObjectKind};

/// A file mode as Go prints it: type letters, permission letters, decimal, octal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GoMode(u32);

impl GoMode {
    const LETTERS: &'static str = "dalTLDpSugct?";

    pub(super) fn from_object(object: &Object) -> Self {
        let kind = match &object.kind {
            ObjectKind::File { .. } => 0,
            ObjectKind::Directory => 1 << 31,
            ObjectKind::Symlink { .. } => 1 << 27,
            ObjectKind::Special {
                type_bits: libc::S_IFIFO,
            } => 1 << 25,
            ObjectKind::Special {
                type_bits: libc::S_IFSOCK,
            } => 1 << 24,
            ObjectKind::Special {
                type_bits: libc::S_IFCHR,
            } => (1 << 26) | (1 << 21),
            ObjectKind::Special { .. } => 1 << 26,
        };
        let special = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];
        let bits: u32 = special
            .iter()
            .filter(|(unix, _)| object.mode & unix != 0)
            .map(|(_, go)| go)
            .sum();
        Self(kind | bits | (object.mode & 0o777))
    }
}

impl std::fmt::Display for GoMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let types: String = Self::LETTERS
            .chars()
            .enumerate()
            .filter(|(i, _)| self.0 & (1 << (31 - i)) != 0)
            .map(|(_, c)| c)
            .collect();
        let bits = "rwxrwxrwx"
            .chars()
            .enumerate()
            .map(|(i, c)| if self.0 & (1 << (8 - i)) != 0 { c } else { '-' });
        let types = if types.is_empty() { "-" } else { &types };
        // `%#o` writes a zero before every number but zero.
        let octal = match self.0 {
            0 => "0".to_owned(),
            bits => format!("0{bits:o}"),
        };
        write!(f, "{types}{}/{}/{octal}", bits.collect::<String>(), self.0)
    }
}
