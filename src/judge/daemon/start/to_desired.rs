//! The end of the start: the update to the desired config, and what makes the daemon refuse it.

use crate::base::paths;
use crate::config::document::ignition::Unit;
use crate::config::document::{KernelType, MachineConfig, undecodable_message};
use crate::judge::daemon::midway::Failure;
use crate::judge::daemon::release::Rule;
use crate::judge::daemon::update::decide_allowing;
use crate::node::os_release::Class;

use super::{Annotation, StartUpdate, State, Stop, Subject, Walk, brings_kubeconfig, no_podman};

impl<'a> Walk<'a> {
    /// Predicts an update from the config on disk.
    pub(super) fn start_update(
        &mut self,
        from: &Subject<'a>,
        desired: &str,
    ) -> Result<State, Stop> {
        let to = self.api_config(&Annotation::Is(desired.to_owned()));
        let (drain, reboot) = self.update_effects(from, &to)?;
        self.out.update = Some(StartUpdate {
            from: from.name.clone(),
            to: desired.to_owned(),
        });
        self.explain_update(from, desired);
        self.out.force_file_after = false;
        self.out.drain = if self.here.single_replica {
            Some(false)
        } else {
            drain
        };
        self.on_the_way(from, &to)?;
        self.out.reboot = reboot;
        self.out.record_after = Some(desired.to_owned());
        Ok(match reboot {
            Some(false) => State::Done,
            Some(true) | None => State::Working,
        })
    }

    /// Reports a failure in the daemon's order: files and units, the mode of the kubeconfig, the operating system.
    fn on_the_way(&mut self, from: &Subject<'a>, to: &Subject<'a>) -> Result<(), Stop> {
        if let Some(said) = to.config.and_then(undecodable_message) {
            return Err(Stop::Degraded(said));
        }
        match (self.here.fails)(&to.name) {
            Some(Failure::Says(said)) => return Err(Stop::Degraded(said)),
            Some(Failure::Over(why)) => return Err(Stop::Fails(why)),
            None => {}
        }
        let brings = |subject: &Subject<'a>| subject.config.is_some_and(brings_kubeconfig);
        // An update that drops it removes it as a stale file before the daemon checks it.
        let drops = to.config.is_some() && brings(from);
        let is_there = self.here.triggers.kubeconfig && !drops;
        if !is_there && !brings(to) {
            let path = paths::KUBECONFIG;
            self.warn_of_units(from, to);
            return Err(Stop::Degraded(format!(
                "cannot stat /{path}: stat /{path}: no such file or directory"
            )));
        }
        match (from.config, to.config, &self.here.os.podman) {
            (Some(old), Some(new), Some(failure)) if self.asks_podman(old, new) => {
                self.warn_of_units(from, to);
                Err(no_podman(&new.os_image_url, failure))
            }
            _ => Ok(()),
        }
    }

    /// Warns about units that a failed update leaves changed, under a release that does not revert them.
    fn warn_of_units(&mut self, from: &Subject<'a>, to: &Subject<'a>) {
        let (Some(old), Some(new)) = (from.config, to.config) else {
            return;
        };
        let new = &new.ignition.systemd.units;
        let is_changed = |old: &&Unit| {
            let same_name = |new: &&Unit| new.name == old.name;
            new.iter().find(same_name).is_some_and(|new| *new != **old)
        };
        let changed = old.ignition.systemd.units.iter().filter(is_changed);
        let changed: Vec<&str> = changed.map(|unit| unit.name.as_str()).collect();
        if !changed.is_empty() && !self.here.release.has_rule(Rule::UnitsRolledBack) {
            self.add_reason(format!(
                "its rollback leaves changed units as the update has written them: {}; later releases revert them",
                changed.join(", ")
            ));
        }
    }

    /// Returns true if the image is the first change of the operating system: packages and kernels begin with a pull.
    fn asks_podman(&self, from: &MachineConfig, to: &MachineConfig) -> bool {
        let plain = |config: &MachineConfig| {
            config.extensions.is_empty() && config.kernel_type == KernelType::Default
        };
        let os = &self.here.os;
        from.os_image_url != to.os_image_url
            && os.class != Class::Other
            && os.booted.as_ref() != Some(&to.os_image_url)
            && plain(from)
            && plain(to)
    }

    /// Returns whether the update drains and reboots, if both configs are available.
    fn update_effects(
        &mut self,
        from: &Subject<'a>,
        to: &Subject<'a>,
    ) -> Result<(Option<bool>, Option<bool>), Stop> {
        let (Some(old), Some(new)) = (from.config, to.config) else {
            let missing = if to.config.is_none() { to } else { from };
            let words = format!(
                "drain and reboot are unknown: {} is not available here",
                missing.name
            );
            self.add_reason(words);
            // The force file requests both for every config.
            let forced = self.here.triggers.force.then_some(true);
            return Ok((forced, forced));
        };
        let allowed = self.here.overrides.map_or(&[][..], |known| &known.storage);
        let forced = self.here.triggers.force;
        let takes = decide_allowing(old, new, self.here.policies, allowed, forced);
        let refused = |reason: &str| {
            Stop::Unreconcilable(format!(
                "can't reconcile config {} with {}: {reason}",
                from.name, to.name
            ))
        };
        if let Some(refusal) = &takes.refusal {
            if let (Some(name), None) = (refusal.lifted_by, self.here.overrides) {
                self.add_reason(format!(
                    "unless {name} is in spec.irreconcilableValidationOverrides.storage of the cluster's \
                     MachineConfiguration, which is unknown here"
                ));
            }
            return Err(refused(&refusal.sentence));
        }
        if self.here.fips.is_some_and(|fips| fips != new.fips) {
            return Err(refused(
                "detected change to FIPS flag; refusing to modify FIPS on a running cluster",
            ));
        }
        if takes.diff.os_update && !self.here.triggers.force {
            self.add_reason(format!(
                "it stages {}, which it has to pull",
                new.os_image_url
            ));
            let extensions = &new.extensions_image;
            let is_needed = !new.extensions.is_empty() || new.kernel_type != KernelType::Default;
            let pulls = is_needed || !self.here.release.has_rule(Rule::ExtensionsWhenNeeded);
            if pulls && !extensions.is_empty() && self.here.os.class == Class::EnterpriseCoreos {
                self.add_reason(format!(
                    "it also pulls the image of extensions, {extensions}"
                ));
            }
        }
        if !self.here.policies_known && takes.diff.reboot_parts().is_empty() {
            self.add_reason(
                "by the default disruption policies, as the cluster's are unknown here",
            );
        }
        // A change to or from a layered image is an update of the operating system too.
        let image = !self.same_image();
        Ok((Some(image || takes.drain), Some(image || takes.reboots())))
    }

    /// Adds the reason for an update to the current config.
    fn explain_update(&mut self, from: &Subject<'a>, desired: &str) {
        if from.name == desired && self.here.triggers.force {
            self.add_reason("the force file requests a complete rewrite");
        } else if from.name == desired {
            self.add_reason("the Node's annotation desiredImage differs from the node's image");
        }
    }
}
