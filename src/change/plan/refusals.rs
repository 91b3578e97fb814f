//! What the config itself, or the way to it, gives as reasons to refuse a run.

use crate::base::secrets::shown_arguments;
use crate::config::document::{
    MachineConfig, TransitionRefusal, find_refusals, override_of, unconditional_refusals,
};
use crate::node::Baseline;
use crate::node::accounts::find_no_hash;

use super::Builder;

/// The field in which a cluster lists accepted changes of storage sections.
const OVERRIDES_FIELD: &str = "spec.irreconcilableValidationOverrides.storage";

impl<'a> Builder<'a> {
    /// Checks warnings and unsupported parts of the document.
    pub(super) fn check_document(&mut self) {
        for warning in &self.inputs.config.warnings {
            self.add_notice(&warning.path, &warning.message);
        }
        self.check_passwords();
        // An append is among the transitions that the daemon refuses, with the daemon's message.
        let parts = self
            .inputs
            .desired
            .unsupported
            .iter()
            .filter(|part| !part.path.ends_with(".append"));
        for part in parts {
            let unchanged = self
                .inputs
                .old
                .is_some_and(|old| old.unsupported.contains(part));
            if part.skippable && unchanged {
                self.add_notice(
                    &part.path,
                    format!("{}; as before, left alone", part.message),
                );
            } else if let Some(name) = self.find_override(&part.path) {
                self.note_passed(&part.path, name, &part.message);
            } else if part.skippable && self.options.ignore_unsupported {
                self.add_notice(&part.path, format!("{}; accepted", part.message));
            } else if part.skippable {
                self.add_blocker(
                    &part.path,
                    format!(
                        "{}. The rest can be applied with --ignore-unsupported",
                        part.message
                    ),
                );
            } else {
                self.add_blocker(&part.path, &part.message);
            }
        }
    }

    /// Adds notices about password fields with which no login works. They are written unchanged, as by the daemon.
    pub(super) fn check_passwords(&mut self) {
        let users = &self.inputs.config.ignition.passwd.users;
        for (index, user) in users.iter().enumerate() {
            let why = user.password_hash.as_deref().and_then(find_no_hash);
            if let Some(why) = why {
                let prefix = if self.inputs.desired.bare {
                    ""
                } else {
                    "spec.config."
                };
                let at = format!("{prefix}passwd.users[{index}].passwordHash");
                let message = format!(
                    "no password of {} works: the field is not a crypt(5) hash; {why}. Make one with `mkpasswd -m sha-512`, and \
                     write it in single quotes",
                    user.name
                );
                self.add_notice(self.inputs.config.original_place(at), message);
            }
        }
    }

    /// Checks whether the daemon would accept this transition, and whether the OS has to change.
    pub(super) fn check_transition(&mut self) {
        match self.inputs.baseline {
            Baseline::Known(old) => {
                for refusal in find_refusals(old, self.inputs.config) {
                    match self.find_override(&refusal.path) {
                        Some(name) => self.note_passed(&refusal.path, name, &refusal.reason),
                        None => self.add_refusal(refusal),
                    }
                }
            }
            Baseline::Unknown(why) => {
                self.add_notice(
                    "currentconfig",
                    format!("{why}: nothing is removed as stale"),
                );
                for refusal in unconditional_refusals(self.inputs.config) {
                    self.add_refusal(refusal);
                }
            }
        }
        self.operating_system();
        self.check_fips();
    }

    /// Checks FIPS mode. The kernel is in FIPS mode from its start or never, and the daemon cannot switch it.
    pub(super) fn check_fips(&mut self) {
        let wanted = self.inputs.config.fips;
        let host = &self.node().host;
        if host.fips.is_none_or(|fips| fips == wanted) {
            return;
        }
        let message = if !host.in_initramfs {
            "detected change to FIPS flag; refusing to modify FIPS on a running cluster. \
             FIPS mode is set at installation only"
        } else if wanted {
            "is true, but the kernel was booted without FIPS mode: what is created in this boot does not follow its rules. Boot \
             with fips=1 on the kernel command line (and boot=UUID=... if /boot is a separate file system), or install with it"
        } else {
            "is false, and the kernel was booted with fips=1: the daemon would refuse the difference. Boot without it, or \
             give the config of a cluster that was installed in FIPS mode"
        };
        self.add_blocker("spec.fips", message);
    }

    /// Returns the override with which the cluster accepts a change of this section.
    fn find_override(&self, path: &str) -> Option<&'static str> {
        let given = &self.inputs.overrides?.storage;
        override_of(path).filter(|name| given.iter().any(|given| given == name))
    }

    fn note_passed(&mut self, path: &str, name: &str, what: &str) {
        let said = self.plan.notices.iter().any(|one| one.subject == path);
        if !said {
            let message = format!(
                "{what}; the cluster allows that ({name} in {OVERRIDES_FIELD}), but it is not applied to this \
                 node"
            );
            self.add_notice(path, message);
        }
    }

    /// Explains why a change of a section is not accepted, and which override would accept it.
    fn override_hint(&self, refusal: &TransitionRefusal) -> String {
        let Some(name) = refusal.lifted_by else {
            return String::new();
        };
        match self.inputs.overrides {
            Some(_) => format!(
                " The cluster's MachineConfiguration has no {name} in {OVERRIDES_FIELD}, which would let it pass."
            ),
            None => format!(
                " It would take the step where the cluster's MachineConfiguration has {name} in {OVERRIDES_FIELD}, which \
                 is not known here: give that object with --policy FILE."
            ),
        }
    }

    fn add_refusal(&mut self, refusal: TransitionRefusal) {
        if refusal.harmless && self.options.ignore_unsupported {
            self.add_notice(
                refusal.path,
                format!(
                    "the daemon would refuse this step: {}; accepted",
                    refusal.sentence
                ),
            );
        } else {
            let mut hint = self.override_hint(&refusal);
            if refusal.harmless {
                hint.push_str(" Use --ignore-unsupported to apply the config anyway");
            }
            self.add_blocker(
                refusal.path,
                format!(
                    "the daemon would refuse this step: {}.{hint}",
                    refusal.sentence
                ),
            );
        }
    }

    pub(super) fn os_changes(&mut self, old: &MachineConfig) {
        let new = self.inputs.config;
        let table = [
            (
                "spec.osImageURL",
                old.os_image_url != new.os_image_url,
                format!("{} -> {}", old.os_image_url, new.os_image_url),
            ),
            (
                "spec.kernelArguments",
                old.kernel_arguments != new.kernel_arguments,
                format!(
                    "{:?} -> {:?}",
                    shown_arguments(&old.kernel_arguments),
                    shown_arguments(&new.kernel_arguments)
                ),
            ),
            (
                "spec.extensions",
                old.extensions != new.extensions,
                format!("{:?} -> {:?}", old.extensions, new.extensions),
            ),
            (
                "spec.kernelType",
                old.kernel_type != new.kernel_type,
                format!(
                    "{} -> {}",
                    old.kernel_type.as_str(),
                    new.kernel_type.as_str()
                ),
            ),
        ];
        for (path, _, change) in table.into_iter().filter(|(_, changed, _)| *changed) {
            if self.options.files_only {
                self.add_notice(path, format!("{change}: not applied (--files-only); the daemon will report it until it is"));
            } else {
                let message = format!(
                    "{change}: the operating system is not changed here. Use --files-only for the rest"
                );
                self.add_blocker(path, message);
            }
        }
    }
}
