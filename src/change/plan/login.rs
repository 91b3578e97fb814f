//! Ensures that a login as `core` stays possible by sshd's rules: judges the state that the run would leave in the same way as
//! the current one.

use super::{Payload, Plan, Step};
use crate::base::notice::Notice;
use crate::base::object::{Object, ObjectKind};
use crate::base::text::count_noun;
use crate::formats::sshd::Certainty;
use crate::host::root::RootPath;
use crate::node::login::Login;
use crate::node::view::{FileKind, FileStatus, Leftover};

/// Logins before a run and after it.
#[derive(Debug, Clone)]
pub struct Logins {
    /// As the node is now.
    pub before: Login,
    /// As the run would leave it.
    pub after: Login,
}

/// Returns what the steps of a plan leave at their paths.
pub fn find_leftovers(plan: &Plan) -> Vec<(RootPath, Leftover)> {
    let steps = plan.steps.iter();
    let leftover = |planned: &super::PlannedStep| match &planned.step {
        Step::MakeDirectory { mode, uid, gid, .. } => {
            Leftover::Directory(file_status(FileKind::Directory, *mode, *uid, *gid))
        }
        Step::RemoveDirectory { .. } | Step::Remove { .. } => Leftover::Nothing,
        Step::Put { path, new, .. } => of_object(plan, path, new, &planned.payload),
        Step::Metadata { new, .. } => {
            Leftover::Status(file_status(FileKind::Directory, new.mode, new.uid, new.gid))
        }
    };
    steps
        .map(|planned| (planned.step.path().clone(), leftover(planned)))
        .collect()
}

fn of_object(plan: &Plan, path: &RootPath, new: &Object, payload: &Payload) -> Leftover {
    let status = |kind| file_status(kind, new.mode, new.uid, new.gid);
    match (&new.kind, payload) {
        (ObjectKind::Symlink { target }, _) => Leftover::Link(target.clone()),
        (ObjectKind::Directory, _) => Leftover::Directory(status(FileKind::Directory)),
        (_, Payload::CopyOf(source) | Payload::LinkTo(source) | Payload::NameOf(source)) => {
            Leftover::CopyOf(status(FileKind::File), source.clone())
        }
        _ => {
            let bytes = plan.text_of(path).unwrap_or_default();
            Leftover::File(status(FileKind::File), bytes)
        }
    }
}

fn file_status(kind: FileKind, mode: u32, uid: u32, gid: u32) -> FileStatus {
    FileStatus {
        kind,
        mode,
        uid,
        gid,
    }
}

/// Adds a blocker if sshd no longer lets `core` log in after a plan. `may_lock` is the user's choice, if the command has an
/// option for it.
pub(super) fn check_login(plan: &mut Plan, logins: &Logins, may_lock: Option<bool>) {
    let (before, after) = (&logins.before, &logins.after);
    if before.over_ssh() == Certainty::No || after.over_ssh() != Certainty::No {
        return;
    }
    let malformed = || {
        let file = after.files.iter().find(|file| file.malformed > 0)?;
        let lines = count_noun(file.malformed, "line");
        Some((
            file.path.clone(),
            format!("sshd cannot read its {lines}, and there is no other key"),
        ))
    };
    let has_keys = after.files.iter().any(|file| file.keys > 0);
    if !has_keys && after.kept_out.is_empty() && malformed().is_none() {
        // The check of keys and passwords reports it.
        return;
    }
    let refused = || {
        after
            .files
            .iter()
            .find(|file| file.keys > 0)?
            .refused
            .as_ref()
    };
    let (subject, why) = match (after.kept_out.first(), refused(), malformed()) {
        (Some(cause), ..) => (cause.place.clone(), cause.said.clone()),
        (None, Some(why), _) => ("sshd".to_owned(), why.clone()),
        (None, None, Some(malformed)) if !has_keys => malformed,
        (None, None, _) => return,
    };
    let left = match (after.at_console(), after.root_has_keys) {
        (_, true) => ". Only root can log in then",
        (true, false) => ". Only the console is left then",
        (false, false) => "",
    };
    let message = format!("afterwards sshd would not let core in: {why}{left}");
    let is_last = left.is_empty() && after.passwords.is_some();
    if is_last && may_lock == Some(false) {
        let cure = if has_keys || !after.kept_out.is_empty() {
            "Change that setting"
        } else {
            "Give a config with complete keys"
        };
        let message = format!("{message}. {cure}, or use --allow-lockout if it is meant");
        plan.blockers.push(Notice::new(subject, message));
    } else {
        plan.notices.push(Notice::new(subject, message));
    }
}
