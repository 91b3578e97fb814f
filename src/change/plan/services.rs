//! Files in a config that their service rejects. The config is applied nevertheless, as by the daemon: `doctor` reports the
//! same finding afterwards.

use super::{LiveEvidence, Payload, Plan, PlanInputs, PlannedStep, Step};
use crate::base::kargs::Kargs;
use crate::base::notice::Notice;
use crate::config::controllers::kubelet::values::MachineSize;
use crate::node::kernel_modules::{ModuleBlock, SettingPlace, is_settings_file, turns_modules_off};
use crate::node::service_configs::{ConfiguredService, find_fault};

/// Adds a notice for each such file that the plan writes.
pub(super) fn add_services(plan: &mut Plan, size: Option<MachineSize>) {
    let steps = plan.steps.iter();
    let found: Vec<Notice> = steps.filter_map(|step| judge_step(step, size)).collect();
    plan.notices.extend(found);
}

fn judge_step(planned: &PlannedStep, size: Option<MachineSize>) -> Option<Notice> {
    let (Step::Put { path, new, .. }, Payload::Contents(contents)) =
        (&planned.step, &planned.payload)
    else {
        return None;
    };
    let (service, said) = find_fault(path, (new.uid, new.mode), size, || contents.bytes().ok())?;
    let consequence = match service {
        ConfiguredService::Kubelet => "the kubelet does not start with this file",
        ConfiguredService::StaticPod => "the kubelet does not run this pod",
        ConfiguredService::Crio => "CRI-O does not start with this file",
        _ => "NetworkManager ignores this file",
    };
    Some(Notice::new(
        path.to_string(),
        format!("{consequence}: {said}"),
    ))
}

/// Adds a notice for each kernel module that the node needs and this config turns off: the effect only shows at the next boot.
pub(super) fn add_modules(plan: &mut Plan, inputs: &PlanInputs<'_>, evidence: &dyn LiveEvidence) {
    let arguments = Kargs::from_entries(&inputs.config.kernel_arguments);
    let files: Vec<(String, String)> = plan.steps.iter().filter_map(settings_of).collect();
    if files.is_empty() && !turns_modules_off(&arguments) {
        return;
    }
    let mut modules = match evidence.kernel_modules(inputs.config) {
        Ok(modules) => modules,
        Err(error) => {
            plan.notices.push(Notice::new(
                "kernel modules",
                format!(
                    "whether the node needs what this config turns off is not known: {error:#}"
                ),
            ));
            return;
        }
    };
    for (path, text) in &files {
        modules.overwrite(path, text);
    }
    let brings = |place: &SettingPlace| match place {
        SettingPlace::Lines { file, .. } => files.iter().any(|(path, _)| path == file),
        SettingPlace::Argument(_) => true,
    };
    for (needed, setting) in modules.find_blocked(&arguments) {
        if !brings(&setting.place) {
            continue;
        }
        let turns = match setting.block {
            ModuleBlock::Never => "turns off the kernel module",
            ModuleBlock::ByNameOnly => "lets only a program that names it load the kernel module",
        };
        plan.notices.push(Notice::new(
            setting.place.to_string(),
            format!(
                "{turns} {} from the next boot on, and {} ({})",
                needed.name, needed.by, setting.said
            ),
        ));
    }
}

/// Returns path and text of a file of settings that a step writes.
fn settings_of(planned: &PlannedStep) -> Option<(String, String)> {
    match (&planned.step, &planned.payload) {
        (Step::Put { path, .. }, Payload::Contents(contents)) if is_settings_file(path) => {
            let bytes = contents.bytes().ok()?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some((path.to_string(), text))
        }
        _ => None,
    }
}
