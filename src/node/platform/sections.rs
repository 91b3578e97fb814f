//! Files with sections and assignments: keyfiles of NetworkManager, `.link` files of systemd.

/// An assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) struct Assignment<'a> {
    /// Section, such as `connection`; empty before the first one.
    pub(in crate::node) section: &'a str,
    /// Key.
    pub(in crate::node) key: &'a str,
    /// Value, without blanks around it.
    pub(in crate::node) value: &'a str,
}

/// Returns the assignments in order. Other lines are skipped.
pub(in crate::node) fn parse_assignments(text: &str) -> Vec<Assignment<'_>> {
    let (mut section, mut all) = ("", Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name;
            continue;
        }
        if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            all.push(Assignment {
                section,
                key,
                value,
            });
        }
    }
    all
}
