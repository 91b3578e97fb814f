//! Commits of the node that ostree stages if bootc is the engine: with other kernel arguments, and images that were kept. bootc
//! has no command for either.

use crate::base::kargs::Kargs;
use crate::host::root::Root;
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::rpm_ostree::status::{Deployment, Deployments};
use crate::node::command::{CommandLine, ostree};
use crate::node::system::{inherited_arguments, origin_path, read_origin};

/// Returns the command that stages the next boot's deployment again, with exactly these arguments and its own origin.
///
/// # Errors
/// Its origin file or the boot entries cannot be read.
pub(super) fn change_arguments(
    root: &Root,
    all: &Deployments,
    wanted: &Kargs,
) -> Result<CommandLine, RpmOstreeError> {
    let next = all.next_boot();
    let next = next.ok_or_else(|| unknown("no deployment is listed for the next boot"))?;
    stage_again(root, next, &next.checksum, wanted)
}

/// Returns the command that stages a kept deployment of this image, with the arguments of the running one.
///
/// # Errors
/// It no longer exists, or its origin file cannot be read.
pub(super) fn stage_kept(
    root: &Root,
    all: &Deployments,
    image: &str,
    commit: &str,
) -> Result<CommandLine, RpmOstreeError> {
    let kept = all.kept_alone(image, commit);
    let kept = kept.ok_or_else(|| unknown(&format!("the kept deployment of {image} is gone")))?;
    stage_again(root, kept, commit, &inherited(root)?)
}

fn stage_again(
    root: &Root,
    deployment: &Deployment,
    commit: &str,
    wanted: &Kargs,
) -> Result<CommandLine, RpmOstreeError> {
    let (stateroot, name) = (&deployment.osname, deployment.name());
    let file = origin_path(stateroot, &name)?.to_string();
    let why = match read_origin(root, stateroot, &name)? {
        Some(origin) if !origin.image().is_empty() || origin.refspec.is_some() => None,
        Some(_) => Some("it names no image"),
        None => Some("no such file"),
    };
    if let Some(why) = why.map(str::to_owned) {
        return Err(RpmOstreeError::OriginUnreadable { file, why });
    }
    let changes = inherited(root)?.changes_to(wanted);
    Ok(ostree::stage_commit(stateroot, &file, &changes, commit))
}

fn inherited(root: &Root) -> Result<Kargs, RpmOstreeError> {
    inherited_arguments(root).map_err(|error| unknown(&error.to_string()))
}

fn unknown(words: &str) -> RpmOstreeError {
    RpmOstreeError::Unknown(words.to_owned())
}
