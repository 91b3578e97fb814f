//! Commits of the node that ostree stages if bootc is the engine: with other kernel arguments, and images that were kept. bootc
//! has no command for either.

use std::fmt::Display;

use crate::base::invocation::shell_words;
use crate::base::kargs::Kargs;
use crate::base::reason::Reason;
use crate::host::root::Root;
use crate::host::sys::runtime;
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::rpm_ostree::status::{Deployment, Deployments};
use crate::node::command::{CommandLine, bootc, ostree};
use crate::node::image_arguments;
use crate::node::images::object_store::{ObjectStore, read_image};
use crate::node::images::ostree_objects::parse_checksum;
use crate::node::images::tree::read_objects;
use crate::node::system::{deployment_path, inherited_arguments, origin_path, read_origin};

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
    let next = next.ok_or_else(|| unknown_error("no deployment is listed for the next boot"))?;
    stage_again(root, next, &next.checksum, wanted)
}

/// Returns the command that stages a kept deployment of this image, with the arguments of the running one. Those of the two
/// images change as under `bootc switch`.
///
/// # Errors
/// Its origin file cannot be read, or the arguments of an image cannot; or it has no deployment and is not in the repository.
pub(super) fn stage_kept(
    root: &Root,
    all: &Deployments,
    running: &Result<Kargs, Reason>,
    image: &str,
    commit: &str,
) -> Result<CommandLine, RpmOstreeError> {
    let Some(kept) = all.kept_alone(image, commit) else {
        return stage_imported(root, all, running, image, commit);
    };
    let present = read_inherited(root)?;
    let without = stage_again(root, kept, commit, &present)?;
    let brought = running.clone().and_then(|running| {
        let new = arguments_of_kept(root, kept)?;
        Ok(image_arguments::carry_over(&present, &running, &new))
    });
    match brought {
        Ok(wanted) if wanted == present => Ok(without),
        Ok(wanted) => stage_again(root, kept, commit, &wanted),
        Err(why) => Err(RpmOstreeError::ImageArguments {
            why,
            without: shell_words(bootc::command_in_unit(&without)),
        }),
    }
}

/// Returns the command that stages an image of the repository that has no deployment, with the origin that a pull from its registry
/// would write.
fn stage_imported(
    root: &Root,
    all: &Deployments,
    running: &Result<Kargs, Reason>,
    image: &str,
    commit: &str,
) -> Result<CommandLine, RpmOstreeError> {
    let booted = all
        .booted()
        .ok_or_else(|| unknown_error("no deployment is booted"))?;
    let store = ObjectStore::of_node(root).map_err(unknown_error)?;
    let store = store.ok_or_else(|| unknown_error("the node has no OSTree repository"))?;
    let checksum =
        parse_checksum(commit).ok_or_else(|| unknown_error("the commit has no checksum"))?;
    let stored = read_image(&store, image, &checksum).map_err(unknown_error)?;
    let tree = read_objects(&store, &[&store], &stored).map_err(unknown_error)?;
    let new = image_arguments::of_tree(&tree).map_err(unknown_error)?;
    let present = read_inherited(root)?;
    let running = running.as_ref().map_err(unknown_error)?;
    let wanted = image_arguments::carry_over(&present, running, &new);
    let origin =
        format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{image}\n");
    let file = runtime::runtime_path(runtime::ORIGIN).display().to_string();
    let written = runtime::write_runtime(runtime::ORIGIN, origin.as_bytes());
    written.map_err(|error| unknown_error(format!("writing {file}: {error}")))?;
    let changes = present.changes_to(&wanted);
    Ok(ostree::stage_commit(
        &booted.osname,
        &file,
        &changes,
        commit,
    ))
}

/// Reads the arguments that the image of a kept deployment brings; or why not, with the place in the node's root.
fn arguments_of_kept(root: &Root, kept: &Deployment) -> Result<Kargs, Reason> {
    let path = deployment_path(&kept.osname, &kept.name()).map_err(Reason::from_error)?;
    let directory = root.open_within(&path).map_err(Reason::from_error)?;
    image_arguments::read_image_arguments(&directory).map_err(|why| format!("{path}{why}").into())
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
        Some(origin) if !origin.image_name().is_empty() || origin.refspec.is_some() => None,
        Some(_) => Some("it names no image"),
        None => Some("no such file"),
    };
    if let Some(why) = why.map(str::to_owned) {
        return Err(RpmOstreeError::OriginUnreadable { file, why });
    }
    let changes = read_inherited(root)?.changes_to(wanted);
    Ok(ostree::stage_commit(stateroot, &file, &changes, commit))
}

fn read_inherited(root: &Root) -> Result<Kargs, RpmOstreeError> {
    inherited_arguments(root).map_err(unknown_error)
}

fn unknown_error(error: impl Display) -> RpmOstreeError {
    RpmOstreeError::Unknown(error.to_string())
}
