//! Files of a config that their service does not take. The config is carried out nevertheless, as the daemon would: the
//! same words are a finding of `doctor` afterwards.

use super::{Payload, Plan, PlannedStep, Step};
use crate::node::service_configs::{Service, find_fault};
use crate::notice::Notice;

/// Adds a notice for each such file that the plan writes.
pub(super) fn add(plan: &mut Plan) {
    let found: Vec<Notice> = plan.steps.iter().filter_map(judge_step).collect();
    plan.notices.extend(found);
}

fn judge_step(planned: &PlannedStep) -> Option<Notice> {
    let (Step::Put { path, new, .. }, Payload::Contents(contents)) =
        (&planned.step, &planned.payload)
    else {
        return None;
    };
    let (service, said) = find_fault(path, (new.uid, new.mode), || contents.bytes().ok())?;
    let consequence = match service {
        Service::Kubelet => "the kubelet does not start with this file",
        Service::Crio => "CRI-O does not start with this file",
        _ => "NetworkManager ignores this file",
    };
    Some(Notice {
        subject: path.to_string(),
        message: format!("{consequence}: {said}"),
    })
}
