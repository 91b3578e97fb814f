//! Where the bits of a wanted image come from: looked at before anything is staged.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::BitsArgs;
use crate::command::{CommandLine, CommandRunner, HostRunner};
use crate::images::manifest::go_architecture;
use crate::images::medium::{Check, Medium};
use crate::images::pull::Trace;
use crate::images::{ImageName, storage};
use crate::node::deploy_directories;
use crate::plan::{Notice, OsStep, Plan};
use crate::privileges::Capability;
use crate::root::Root;

/// Copying an image takes as long as reading the medium.
const COPY: Duration = Duration::from_secs(3600);

/// What skopeo wants for unpacking layers as they are. Without one of these it takes itself for an ordinary user's, makes
/// a user namespace and ends there, as nobody's ids are left to be mapped.
const STORES: [Capability; 7] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_MKNOD,
    Capability::CAP_SETFCAP,
    Capability::CAP_SYS_ADMIN,
];

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

/// Adds to a plan what stands against getting its image, and the step that brings it from a medium.
pub fn look(root: &Root, plan: &mut Plan, args: &BitsArgs) -> Result<()> {
    old_deployments(root, plan)?;
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
        Some(path) => medium(plan, path, &name, &image),
        None if args.from_storage => stored(plan, &image),
        None => traced(root, plan, &name),
    }
    Ok(())
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
fn medium(plan: &mut Plan, path: &Path, name: &ImageName, image: &str) {
    let Some(digest) = &name.digest else {
        let message = format!(
            "{image} has no digest, so no medium can be proven to hold it. Name it by its digest"
        );
        return block(plan, "spec.osImageURL", message);
    };
    let architecture = go_architecture(std::env::consts::ARCH);
    let examined = Medium::open(path).and_then(|medium| {
        let report = medium.examine(digest, architecture, &mut Check::Sizes)?;
        Ok((medium, report))
    });
    let subject = path.display().to_string();
    match examined {
        Ok((medium, report)) if report.is_exact() => {
            let bring = OsStep::Bring {
                from: medium.reference(),
                image: image.to_owned(),
            };
            let at = plan
                .os
                .steps
                .iter()
                .position(|step| matches!(step, OsStep::Image { .. }));
            plan.os.steps.insert(at.unwrap_or_default(), bring);
        }
        Ok((medium, report)) => block(plan, &subject, report.words(name, &medium)),
        Err(error) => block(plan, &subject, error.to_string()),
    }
}

fn stored(plan: &mut Plan, image: &str) {
    let subject = "containers-storage";
    let missing = format!(
        "{image} is not there under this very name. Bring it: skopeo copy --preserve-digests SOURCE containers-storage:{image}"
    );
    match HostRunner.run(&storage::images(image)) {
        Ok(answer) => match storage::stored(&answer.stdout, image) {
            Ok(Some(_)) => {}
            Ok(None) => block(plan, subject, missing),
            Err(error) => block(plan, subject, error.to_string()),
        },
        Err(error) => block(
            plan,
            subject,
            format!("{error}; podman knows what is in it"),
        ),
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

/// Brings an image into containers-storage under its very name; another digest than the name's is refused by skopeo.
pub fn copy(from: &str, image: &str) -> CommandLine {
    CommandLine {
        program: "skopeo".to_owned(),
        args: vec![
            "copy".to_owned(),
            "--preserve-digests".to_owned(),
            from.to_owned(),
            format!("containers-storage:{image}"),
        ],
        timeout: COPY,
        capabilities: &STORES,
    }
}
