//! Where the bits of a wanted image come from: looked at before anything is staged.

use std::path::Path;

use anyhow::Result;

use super::BitsArgs;
use crate::command::{CommandRunner, HostRunner};
use crate::images::manifest::go_architecture;
use crate::images::medium::{Address, Check, Medium};
use crate::images::policy::Ruling;
use crate::images::pull::{self, Trace};
use crate::images::{ImageName, extensions, storage};
use crate::node::deploy_directories;
use crate::notice::Notice;
use crate::paths;
use crate::plan::fit::{Accepted, Doubt, Doubtful};
use crate::plan::{OsStep, Plan, PlannedStep, Repository};
use crate::root::Root;

/// From where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bits {
    /// A registry, or a mirror of it.
    Registry,
    /// `containers-storage`, under the very name.
    Storage,
}

impl BitsArgs {
    /// What rpm-ostree is told.
    pub fn bits(&self) -> Bits {
        if self.from_storage || self.os_from.is_some() {
            Bits::Storage
        } else {
            Bits::Registry
        }
    }
}

/// Adds to a plan what stands against getting its image and packages, and the steps that bring them from media.
/// `extensions`: the image of extensions that the config names, or nothing.
pub fn look(
    root: &Root,
    plan: &mut Plan,
    args: &BitsArgs,
    accepted: Accepted,
    extensions: &str,
) -> Result<()> {
    old_deployments(root, plan)?;
    packages(plan, args.extensions_from.as_deref(), extensions);
    extensions_image(root, plan);
    if args.bits() == Bits::Storage {
        plan.os.fetch_image();
    }
    let image = plan.os.steps.iter().find_map(|step| match step {
        OsStep::Image { to, .. } => Some(to.clone()),
        _ => None,
    });
    let Some(image) = image else { return Ok(()) };
    let name = match ImageName::parse(&image) {
        Ok(name) => name,
        Err(error) => {
            block(plan, "spec.osImageURL", error.to_string());
            return Ok(());
        }
    };
    match &args.os_from {
        Some(path) => medium(root, plan, path, (&name, &image), accepted),
        None if args.from_storage => stored(root, plan, &image, accepted),
        None => traced(root, plan, &name),
    }
    Ok(())
}

/// Packages come from a directory, or from the image that the config names.
fn packages(plan: &mut Plan, directory: Option<&Path>, image: &str) {
    if !plan.os.repository {
        return;
    }
    let from = match directory {
        Some(directory) => match repository_in(directory) {
            Ok(found) => Repository::Directory(found),
            Err(why) => return block(plan, &directory.display().to_string(), why),
        },
        None if image.is_empty() => {
            return block(
                plan,
                "spec.baseOSExtensionsContainerImage",
                "is empty, and packages on top of the image are needed. Give a directory that holds them: \
                 --extensions-from DIR; or --files-only for the rest"
                    .to_owned(),
            );
        }
        None => Repository::Image(image.to_owned()),
    };
    let first = plan.os.steps.iter().position(OsStep::is_staging);
    let at = first.unwrap_or(plan.os.steps.len());
    plan.os.steps.insert(at, OsStep::Repository(from));
    // A stale one gives way to ours, which is gone before the files.
    let is_stale = |step: &PlannedStep| step.step.path().to_string() == extensions::REPO_FILE;
    plan.steps.retain(|step| !is_stale(step));
}

/// The repository in a directory: itself, or below it as in the image of extensions. rpm-ostree wants a whole path.
#[allow(
    clippy::disallowed_methods,
    reason = "a directory that the caller named, never the node's root"
)]
fn repository_in(directory: &Path) -> Result<String, String> {
    let whole = std::path::absolute(directory).map_err(|error| error.to_string())?;
    let candidates = [whole.clone(), whole.join(extensions::REPOSITORY)];
    let is_repository = |path: &&std::path::PathBuf| path.join(extensions::METADATA).is_file();
    let found = candidates.iter().find(is_repository);
    let Some(found) = found else {
        return Err(format!(
            "has neither {0} nor {1}/{0}: it is no repository of packages. Unpack the image of extensions of the \
             wanted release there",
            extensions::METADATA,
            extensions::REPOSITORY
        ));
    };
    match found.to_str() {
        Some(text) if !text.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => {
            Err("has a blank in its path, which a repository file cannot hold. Move it".to_owned())
        }
    }
}

/// What cannot be removed with the deployments that do not run stops ostree half-way.
fn old_deployments(root: &Root, plan: &mut Plan) -> Result<()> {
    if !plan.os.steps.iter().any(OsStep::is_staging) {
        return Ok(());
    }
    let mut found = Vec::new();
    for directory in deploy_directories::list(root)? {
        if directory.name != plan.os.booted {
            found.extend(deploy_directories::immutable(root, &directory)?);
        }
    }
    if !found.is_empty() {
        let paths: Vec<String> = found.iter().map(ToString::to_string).collect();
        let paths = paths.join(" ");
        let message = format!(
            "{paths}: the immutable attribute is set in a deployment that does not run, so ostree cannot clean up and \
             fails. Find out who set it, then: chattr -i {paths}"
        );
        block(plan, "old deployments", message);
    }
    Ok(())
}

/// Only bit-exact copies can have the digest of the name.
fn medium(
    root: &Root,
    plan: &mut Plan,
    path: &Path,
    (name, image): (&ImageName, &str),
    accepted: Accepted,
) {
    let Some(digest) = &name.digest else {
        let message = format!(
            "{image} has no digest, so no medium can be proven to hold it. Name it by its digest"
        );
        return block(plan, "spec.osImageURL", message);
    };
    let architecture = go_architecture(std::env::consts::ARCH);
    let examined = Medium::open(path).and_then(|medium| {
        let report = medium.examine(digest, architecture, &mut Check::Sizes)?;
        let address = medium.address(digest)?;
        Ok((medium, report, address))
    });
    let subject = path.display().to_string();
    match examined {
        Ok((medium, report, Ok(address))) if report.is_exact() => {
            let found = medium.architecture(digest);
            judge_architecture(plan, found.as_deref(), image, accepted);
            bring(root, plan, address, image);
        }
        Ok((_, report, Err(error))) if report.is_exact() => {
            block(plan, &subject, error.to_string());
        }
        Ok((medium, report, _)) => block(plan, &subject, report.words(name, &medium)),
        Err(error) => block(plan, &subject, error.to_string()),
    }
}

/// An image for another machine is staged without complaint, and does not boot.
fn judge_architecture(plan: &mut Plan, found: Option<&str>, image: &str, accepted: Accepted) {
    let own = go_architecture(std::env::consts::ARCH);
    let Some(found) = found.filter(|found| *found != own) else {
        return;
    };
    let why = format!(
        "{image} is for {found}, and this machine is {own}: it would not boot. Take the release for {own}"
    );
    Doubtful::new(Doubt::OtherArchitecture, "spec.osImageURL", why).add_to(plan, accepted);
}

/// skopeo copies it, which asks the policy as every copy does.
fn bring(root: &Root, plan: &mut Plan, address: Address, image: &str) {
    if let Err(error) = HostRunner.run(&storage::version()) {
        return block(plan, "skopeo", format!("{error}; it copies the image"));
    }
    match pull::policy_of(root) {
        Ok(policy) => {
            let ruling = policy.of_medium(&without_links(&address));
            if !ruling.accepts_anything() {
                block(plan, "policy", refusal(&ruling, &address, image));
            }
        }
        Err(error) => block(plan, "policy", error.to_string()),
    }
    let step = OsStep::Bring {
        from: address.to_string(),
        image: image.to_owned(),
    };
    let is_image = |step: &OsStep| matches!(step, OsStep::Image { .. });
    let at = plan.os.steps.iter().position(is_image);
    plan.os.steps.insert(at.unwrap_or_default(), step);
}

/// A medium has no signatures, so whatever is wanted besides a digest refuses it. The policy stays as it is.
fn refusal(ruling: &Ruling, address: &Address, image: &str) -> String {
    format!(
        "/{} does not let {address} be copied: {ruling}. If its digest is proof enough: skopeo --insecure-policy copy \
         --preserve-digests {address} containers-storage:{image}; then say --from-storage",
        paths::POLICY
    )
}

/// As the policy names it.
#[allow(
    clippy::disallowed_methods,
    reason = "a medium that the caller named, never the node's root"
)]
fn without_links(address: &Address) -> Address {
    let whole = address.path.canonicalize();
    Address {
        path: whole.unwrap_or_else(|_| address.path.clone()),
        ..address.clone()
    }
}

fn stored(root: &Root, plan: &mut Plan, image: &str, accepted: Accepted) {
    if let Err(error) = pull::policy_of(root) {
        block(plan, "policy", error.to_string());
    }
    let missing = format!(
        "{image} is not there under this very name. Bring it: skopeo copy --preserve-digests SOURCE containers-storage:{image}"
    );
    match in_storage(image) {
        Ok(Some(found)) => {
            judge_architecture(plan, found.architecture.as_deref(), image, accepted);
        }
        Ok(None) => block(plan, "containers-storage", missing),
        Err(error) => block(plan, "containers-storage", error),
    }
}

/// What podman has under this very name.
fn in_storage(image: &str) -> Result<Option<storage::Stored>, String> {
    let answer = HostRunner.run(&storage::images(image));
    let answer = answer.map_err(|error| format!("{error}; podman knows what is in it"))?;
    storage::stored(&answer.stdout, image).map_err(|error| error.to_string())
}

/// The image of extensions is pulled by podman, unless it is there.
fn extensions_image(root: &Root, plan: &mut Plan) {
    let from = plan.os.steps.iter().find_map(|step| match step {
        OsStep::Repository(Repository::Image(image)) => Some(image.clone()),
        _ => None,
    });
    let Some(image) = from else { return };
    const SUBJECT: &str = "spec.baseOSExtensionsContainerImage";
    let name = match (in_storage(&image), ImageName::parse(&image)) {
        (Ok(Some(_)), _) => return,
        (Ok(None), Ok(name)) => name,
        (Err(error), _) => return block(plan, SUBJECT, error),
        (_, Err(error)) => return block(plan, SUBJECT, error.to_string()),
    };
    match Trace::read(root, &name) {
        Ok(trace) => {
            if let Some(why) = trace.blocked() {
                block(plan, SUBJECT, format!("{image} cannot be pulled: {why}"));
            }
        }
        Err(error) => block(plan, SUBJECT, error.to_string()),
    }
}

/// How the pull would be decided is said before it is tried.
fn traced(root: &Root, plan: &mut Plan, name: &ImageName) {
    match Trace::read(root, name) {
        Ok(trace) => match trace.blocked() {
            Some(why) => block(plan, "pull", why),
            None => {
                let notice = Notice {
                    subject: "pull".to_owned(),
                    message: trace.to_string(),
                };
                plan.notices.push(notice);
            }
        },
        Err(error) => block(plan, "pull", error.to_string()),
    }
}

fn block(plan: &mut Plan, subject: &str, message: String) {
    plan.blockers.push(Notice {
        subject: subject.to_owned(),
        message,
    });
}
