//! Diffs of files for the screen: lines of text, and SSH keys by their fingerprints.

use crate::base::diff::{SecretLines, unified_diff};
use crate::base::object::{Object, ObjectKind};
use crate::base::ssh_key::describe_key_change;
use crate::change::plan::{self, Payload, Plan, PlannedStep, Step};
use crate::change::session::Session;
use crate::host::root::{Root, RootPath};
use crate::report::is_secret_step;
use crate::report::plan::Diffs;

/// Maximum size for a diff; larger files are not read line by line.
const MAX_DIFF: u64 = 4 << 20;

/// Returns the diffs of the text files that a plan replaces; secrets only if requested.
pub(super) fn of_session(session: &Session<'_>, plan: &Plan, show_secrets: bool) -> Diffs {
    let secrets = if show_secrets {
        SecretLines::Shown
    } else {
        SecretLines::Hidden
    };
    let mut diffs = Diffs::new();
    for planned in &plan.steps {
        if let Some(diff) = of_key(&session.root, planned) {
            diffs.insert(planned.step.path().clone(), diff);
            continue;
        }
        let Step::Put {
            path,
            old: Some(old),
            new,
        } = &planned.step
        else {
            continue;
        };
        let both_files = matches!(
            (&old.kind, &new.kind),
            (ObjectKind::File { .. }, ObjectKind::File { .. })
        );
        let record = planned.section == plan::Section::Records;
        let is_large = old.size().max(new.size()) > MAX_DIFF;
        if !both_files
            || is_large
            || old.kind == new.kind
            || record
            || (is_secret_step(planned) && !show_secrets)
        {
            continue;
        }
        if let Some(diff) = diff(&session.root, path, &planned.payload, secrets) {
            diffs.insert(path.clone(), diff);
        }
    }
    diffs
}

fn diff(root: &Root, path: &RootPath, payload: &Payload, secrets: SecretLines) -> Option<String> {
    let on_disk = root.read_file(path).ok()??;
    unified_diff(&on_disk, &payload_bytes(root, payload)?, secrets)
}

/// Returns the key files that a plan changes, each with its keys by fingerprint.
pub(super) fn of_keys(root: &Root, plan: &Plan) -> Diffs {
    let steps = plan.steps.iter();
    let diff = |planned| {
        let planned: &PlannedStep = planned;
        Some((planned.step.path().clone(), of_key(root, planned)?))
    };
    steps.filter_map(diff).collect()
}

/// Returns how a step changes a key file; `None` for any other step.
pub(super) fn of_key(root: &Root, planned: &PlannedStep) -> Option<String> {
    let path = planned.step.path();
    if !is_key_file(path) {
        return None;
    }
    let is_file = |object: &Object| matches!(object.kind, ObjectKind::File { .. });
    let (old, new) = match &planned.step {
        Step::Put { new, old, .. } if is_file(new) => (old.as_ref(), Some(new)),
        Step::Remove { old, .. } => (Some(old), None),
        _ => return None,
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let before = match old {
        Some(old) if is_file(old) => text(root.read_small(path).ok()??),
        _ => String::new(),
    };
    let after = match new {
        Some(_) => text(payload_bytes(root, &planned.payload)?),
        None => String::new(),
    };
    Some(describe_key_change(&before, &after)).filter(|diff| !diff.is_empty())
}

fn is_key_file(path: &RootPath) -> bool {
    let path = path.relative();
    let fragment = path
        .rsplit_once('/')
        .is_some_and(|(above, _)| above.ends_with("/.ssh/authorized_keys.d"));
    fragment || path.ends_with("/.ssh/authorized_keys")
}

/// Returns the bytes that a step writes; `None` if it writes none.
pub(super) fn payload_bytes(root: &Root, payload: &Payload) -> Option<Vec<u8>> {
    match payload {
        Payload::Bytes(bytes) => Some(bytes.clone()),
        Payload::Record(text) => Some(text.as_bytes().to_vec()),
        Payload::Contents(contents) => contents.bytes().ok(),
        Payload::CopyOf(source) => root.read_file(source).ok()?,
        Payload::None | Payload::LinkTo(_) | Payload::NameOf(_) | Payload::TreeOf(_) => None,
    }
}
