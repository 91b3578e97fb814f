//! Are kernel modules that the node needs disabled?

use super::faults;
use crate::base::invocation::kargs_command;
use crate::base::kargs::{Kargs, KargsChange};
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::kernel_modules::{ModuleSetting, NeededModule, SettingPlace};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_node("blocked-modules", judge);

fn judge(_: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let modules = match node.file_faults.as_ref().map(|found| &found.modules) {
        None => return Vec::new(),
        Some(Ok(modules)) => modules,
        Some(Err(why)) => {
            return faults::note_unseen("settings of modprobe", std::slice::from_ref(why))
                .into_iter()
                .collect();
        }
    };
    let arguments = node.next_arguments();
    let none = Kargs::default();
    let of_boot = arguments.as_ref().map_or(&none, |(_, arguments)| arguments);
    let blocked = modules.find_blocked(of_boot);
    let mut all: Vec<CrossingFinding> = blocked
        .iter()
        .filter_map(|(needed, setting)| describe_block(node, needed, setting))
        .collect();
    if let (Err(why), false) = (&arguments, modules.needed.is_empty()) {
        let what = format!("it is unknown whether some of them turn kernel modules off: {why}");
        all.push(
            CrossingFinding::unknown("kernel arguments", what)
                .next("Look at the options of the entries below /boot/loader/entries."),
        );
    }
    all
}

fn describe_block(
    node: &Platform,
    needed: &NeededModule,
    setting: &ModuleSetting,
) -> Option<CrossingFinding> {
    let (weight, means) = needed.effect_of(setting);
    let what = faults::to_sentences(&needed.turned_off(), &means);
    let finding = CrossingFinding::new(faults::severity_of(weight)?, &needed.name, what)
        .with_evidence(setting.place.to_string(), &setting.said)
        .with_prevented(needed.describe_failure());
    Some(match &setting.place {
        SettingPlace::Lines { file, .. } => faults::look_at(node, file, finding),
        SettingPlace::Argument(_) if node.record.asks_for(&setting.said) => {
            finding.next("Take it out of the MachineConfig. Then apply the new rendered config.")
        }
        SettingPlace::Argument(_) => {
            finding.next(kargs_command(&[KargsChange::Delete(setting.said.clone())]))
        }
    })
}
