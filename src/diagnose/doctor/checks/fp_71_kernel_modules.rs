//! FP-71: modprobe settings prevent a kernel module that the node needs from being loaded.

use crate::base::invocation::{kargs_command, shell_word};
use crate::base::kargs::{Kargs, KargsChange};
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, FixChange,
};
use crate::node::kernel_modules::{KernelModules, ModuleSetting, NeededModule, SettingPlace};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-71",
    title: "a kernel module that the node needs is turned off",
    looks_at: "/etc/modprobe.d and its siblings, kernel arguments of the next boot, modules.dep",
    explain: "Hardening guides and workarounds for security holes turn kernel modules off: `install openvswitch /bin/false` in \
/etc/modprobe.d, or module_blacklist= among the kernel arguments. What is loaded stays loaded, so nothing is seen until the next \
boot. Then the bridge br-ex is missing, or CRI-O mounts no container.\n\n\
This check covers the modules of Open vSwitch, CRI-O, the network of pods, nftables, and the bonds and VLANs of NetworkManager, and \
the modules that these depend on. A `blacklist` line keeps a module from being loaded by what it provides, not by its name.\n\n\
A line or an argument that the recorded config brings is never taken out here: change its MachineConfig, or the daemon brings it \
back. The fix takes the other lines out. A file of the OS is hidden by a copy in /etc/modprobe.d without them. rpm-ostree kargs \
--delete=ARGUMENT takes an argument off.",
    judge: judge_modules,
};

fn judge_modules(evidence: &DoctorEvidence) -> CheckVerdict {
    let modules = match evidence.kernel_modules.seen() {
        Ok(modules) => modules,
        Err(why) => return CheckVerdict::not_seen(format!("settings of modprobe: {why}")),
    };
    let arguments = match evidence.system.facts() {
        Some(facts) => Ok(&facts.arguments),
        None => evidence.arguments_on_disk.seen(),
    };
    let none = Kargs::default();
    let judged = Judged {
        evidence,
        modules,
        arguments: arguments.unwrap_or(&none),
    };
    let verdict = CheckVerdict::healthy().and_findings(judged.find_all());
    match arguments {
        Err(why) if !modules.needed.is_empty() => {
            verdict.and_unseen(format!("kernel arguments that turn modules off: {why}"))
        }
        _ => verdict,
    }
}

struct Judged<'a> {
    evidence: &'a DoctorEvidence,
    modules: &'a KernelModules,
    arguments: &'a Kargs,
}

impl Judged<'_> {
    fn find_all(&self) -> Vec<DoctorFinding> {
        let blocked = self.modules.find_blocked(self.arguments).into_iter();
        blocked
            .map(|(needed, setting)| self.module_finding(needed, &setting))
            .collect()
    }

    fn module_finding(&self, needed: &NeededModule, setting: &ModuleSetting) -> DoctorFinding {
        let name = &needed.name;
        let (weight, means) = needed.effect_of(setting);
        let finding = DoctorFinding::new(weight.into(), needed.turned_off(), means)
            .with_evidence(setting.place.to_string(), &setting.said)
            .with_message(Some(needed.describe_failure()));
        let load = format!("modprobe {}", shell_word(name));
        if self.is_of_config(setting) {
            let source = match &setting.place {
                SettingPlace::Lines { file, .. } => file.clone(),
                SettingPlace::Argument(_) => setting.said.clone(),
            };
            let finding = finding
                .with_evidence("the recorded config", format!("brings {source}"))
                .next(format!(
                    "oc get mc -o name   # the MachineConfig with {source} has to change"
                ));
            return if self.evidence.live {
                // Settings that the config requests are left alone.
                finding.next(format!("{load} --ignore-install   # until the next boot"))
            } else {
                finding.next(format!(
                    "{}   # until the daemon brings it back",
                    self.take_out(setting)
                ))
            };
        }
        let finding = finding
            .next(self.take_out(setting))
            .fixed_by(self.cure_changes(name));
        if self.evidence.live {
            finding.after_fix(load)
        } else {
            finding
        }
    }

    fn is_of_config(&self, setting: &ModuleSetting) -> bool {
        match &setting.place {
            SettingPlace::Lines { file, .. } => self.evidence.is_of_config(file),
            SettingPlace::Argument(_) => {
                let records = self.evidence.records.get();
                let config = records.and_then(|records| records.recorded_config());
                let arguments = config
                    .into_iter()
                    .flat_map(|config| &config.kernel_arguments);
                let mut tokens = arguments.flat_map(|line| line.split_whitespace());
                tokens.any(|token| token == setting.said)
            }
        }
    }

    /// Returns the command that removes one setting.
    fn take_out(&self, setting: &ModuleSetting) -> String {
        match &setting.place {
            SettingPlace::Argument(_) => {
                kargs_command(&[KargsChange::Delete(setting.said.clone())])
            }
            SettingPlace::Lines { file, first, last } if file.starts_with("/etc/") => {
                let lines = if first == last {
                    first.to_string()
                } else {
                    format!("{first},{last}")
                };
                format!("sed -i {lines}d {}", self.evidence.shell_path(file))
            }
            // A file of the OS is overridden by one with the same name.
            SettingPlace::Lines { file, .. } => {
                format!(
                    "ln -s /dev/null {}",
                    self.evidence.shell_path(&hiding_path(file))
                )
            }
        }
    }

    /// Returns the changes that remove every setting that disables a module; none if one of them cannot be removed.
    fn cure_changes(&self, name: &str) -> Vec<FixChange> {
        let settings = self.modules.find_blocking(name, self.arguments);
        let mut files: Vec<&String> = Vec::new();
        for setting in &settings {
            match &setting.place {
                SettingPlace::Lines { file, .. } if !self.is_of_config(setting) => files.push(file),
                SettingPlace::Lines { .. } | SettingPlace::Argument(_) => return Vec::new(),
            }
        }
        files.dedup();
        let change = |file: &String| {
            let text = self.modules.file_without(file, &settings)?;
            match file {
                file if file.starts_with("/etc/") => Some(FixChange::replace_file(file, text)),
                file if file.starts_with("/usr/") => {
                    Some(FixChange::create_file(hiding_path(file), 0o644, text))
                }
                _ => None,
            }
        };
        let changes: Option<Vec<FixChange>> = files.into_iter().map(change).collect();
        changes.unwrap_or_default()
    }
}

/// Returns the path of the file that overrides one of the OS.
fn hiding_path(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    format!("/etc/modprobe.d/{name}")
}
