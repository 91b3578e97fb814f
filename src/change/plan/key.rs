//! Adds one SSH key for `core`, and changes nothing else.

use super::{Builder, Payload, Plan, PlanInputs, PlanOptions, Section};
use crate::base::invocation::mco_rescue;
use crate::base::object::ObjectKind;
use crate::base::paths;
use crate::host::root::RootPath;
use crate::judge::drift::text_object;

/// A key that is added.
#[derive(Debug, Clone, Copy)]
pub struct Addition<'a> {
    /// The file that it is added to.
    pub file: &'a RootPath,
    /// The current text of that file; `None` if it is missing or too large for a key file.
    pub text: Option<&'a str>,
    /// The line.
    pub line: &'a str,
    /// The daemon writes this file, and a config determines its content.
    pub of_config: bool,
}

/// Plans the addition. The config in `inputs` is empty.
pub(super) fn one_more_key(inputs: PlanInputs<'_>, key: Addition<'_>) -> Plan {
    let mut builder = Builder::new(inputs, PlanOptions::default());
    builder.add_key(key);
    builder.check_ownership();
    builder.plan_labels();
    builder.check_space();
    builder.plan
}

impl Builder<'_> {
    fn add_key(&mut self, key: Addition<'_>) {
        let Some(&core) = self.node().accounts.users.get("core") else {
            let message =
                "the root has no user core, so no key can give a login. Look at /etc/passwd";
            return self.add_blocker("core", message);
        };
        let found = self.node().object(key.file);
        let is_file = found.is_some_and(|found| matches!(found.kind, ObjectKind::File { .. }));
        if is_file && key.text.is_none() {
            let message = "is larger than 1 MiB, the limit for key files. Check what is in it";
            return self.add_blocker(key.file.to_string(), message);
        }
        for directory in [paths::CORE_SSH, paths::CORE_KEYS_DIR] {
            let why = "belongs to a user other than core";
            self.own_directory(&RootPath::fixed(directory), core, why);
        }
        let text = with_line(key.text.unwrap_or_default(), key.line);
        let wanted = text_object(
            text.as_bytes(),
            0o600,
            self.node().host.attainable_owner(core),
        );
        let payload = Payload::Bytes(text.into_bytes());
        let why = "one more SSH key for core";
        self.put_object(key.file, wanted, payload, Section::Users, why);
        if self.plan.steps.is_empty() {
            return;
        }
        let message = if key.of_config {
            format!(
                "the config does not contain this key: verify reports the difference, and the next {} removes \
                 the key. The daemon does not compare keys; it removes the key when it writes those of core. \
                 To keep it, add it to a MachineConfig. Undo: {}",
                mco_rescue("apply"),
                mco_rescue("rollback")
            )
        } else {
            format!(
                "no config contains this file, and verify does not check it; the daemon removes it when it writes the \
                 keys of core. To keep the key, add it to a MachineConfig. Undo: {}",
                mco_rescue("rollback")
            )
        };
        self.add_notice(key.file.to_string(), message);
    }
}

/// Returns a text with a line appended, unless it has that line already.
fn with_line(text: &str, line: &str) -> String {
    if text.lines().any(|one| one.trim() == line) {
        return text.to_owned();
    }
    let ends = text.is_empty() || text.ends_with('\n');
    let end = if ends { "" } else { "\n" };
    format!("{text}{end}{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_added_once_and_whole() {
        assert_eq!(with_line("", "k"), "k\n");
        assert_eq!(with_line("a\n", "k"), "a\nk\n");
        assert_eq!(with_line("a", "k"), "a\nk\n");
        assert_eq!(with_line("k \na\n", "k"), "k \na\n");
    }
}
