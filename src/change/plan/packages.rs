//! Packages on top of the image: another kernel, and extensions (docs/develop/agreement.md: Operating system, Packages).
//!
//! Starts from the deployment of the next boot, not from the record; the commands are the daemon's.

use super::Builder;
use super::os::or_blocked;
use super::os_plan::{OsPlan, OsStep, PackageChange};
use crate::base::notice::Notice;
use crate::node::command::CommandLine;
use crate::node::command::rpm_ostree::packages::{
    PackagesError, change_extensions, kernel_type, kernel_type_of, packages_of, undo_kernel,
};
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::os_release::Class;
use crate::node::system::SystemFacts;

/// The architecture for which a kernel is requested.
const ARCHITECTURE: &str = std::env::consts::ARCH;

impl Builder<'_> {
    /// Adds the steps that install the packages of the config and remove those that it no longer requests.
    pub(super) fn plan_packages(
        &mut self,
        facts: &SystemFacts,
        plan: &mut OsPlan,
        changes: &mut Vec<Notice>,
    ) {
        let config = self.inputs.config;
        if facts.class != Class::EnterpriseCoreos {
            if !config.extensions.is_empty() || config.kernel_type.as_str() != "default" {
                self.add_notice(
                    "spec.extensions, spec.kernelType",
                    "the daemon changes packages on RHEL CoreOS and its kin only; nothing is changed here either"
                        .to_owned(),
                );
            }
            return;
        }
        let wanted = WantedPackages {
            kernel: config.kernel_type.as_str(),
            extensions: &config.extensions,
            were: plan.had_extensions,
        };
        match plan.add_packages(facts, &wanted, ARCHITECTURE) {
            Ok(added) => changes.extend(added),
            Err((path, error)) => or_blocked(self, path, error.to_string()),
        }
    }
}

/// The packages that a config requests.
pub(super) struct WantedPackages<'a> {
    /// `spec.kernelType`.
    pub kernel: &'a str,
    /// `spec.extensions`.
    pub extensions: &'a [String],
    /// The previous config requested some.
    pub were: bool,
}

impl OsPlan {
    /// Adds the commands; returns notices about the changes.
    fn add_packages(
        &mut self,
        facts: &SystemFacts,
        wanted: &WantedPackages<'_>,
        architecture: &str,
    ) -> Result<Vec<Notice>, (&'static str, PackagesError)> {
        let Some(base) = self.base_deployment(facts).cloned() else {
            return Ok(Vec::new());
        };
        let mut changes = Vec::new();
        let kernel = self.plan_kernel(&base, wanted.kernel, architecture);
        changes.extend(kernel.map_err(|error| ("spec.kernelType", error))?);
        let packages = self.plan_extensions(&base, wanted);
        changes.extend(packages.map_err(|error| ("spec.extensions", error))?);
        self.repository |= self.changes_image() && base.is_layered();
        Ok(changes)
    }

    /// Returns the deployment from which the commands start: dropping one also drops its packages.
    fn base_deployment<'a>(&self, facts: &'a SystemFacts) -> Option<&'a Deployment> {
        let deployments = &facts.deployments;
        if self.starts_from_running() {
            deployments.booted()
        } else {
            deployments.next_boot()
        }
    }

    /// Plans the kernel. A replaced kernel does not survive a change of the image: it is restored first, and replaced again
    /// afterwards.
    fn plan_kernel(
        &mut self,
        base: &Deployment,
        wanted: &str,
        architecture: &str,
    ) -> Result<Option<Notice>, PackagesError> {
        let runs = kernel_type_of(base);
        let swap = kernel_type(wanted, architecture)?;
        if runs == wanted && !(self.changes_image() && swap.is_some()) {
            return Ok(None);
        }
        if let Some(line) = undo_kernel(base) {
            let before = self.steps.iter().position(OsStep::is_staging);
            let at = before.unwrap_or(self.steps.len());
            self.steps
                .insert(at, package_step(PackageChange::KernelBack, &line));
        }
        self.repository |= swap.is_some();
        self.steps
            .extend(swap.map(|line| package_step(PackageChange::Kernel, &line)));
        self.kernel_type = Some(wanted.to_owned());
        Ok(Some(Notice::new(
            "spec.kernelType",
            format!("{runs} -> {wanted}"),
        )))
    }

    fn plan_extensions(
        &mut self,
        base: &Deployment,
        wanted: &WantedPackages<'_>,
    ) -> Result<Option<Notice>, PackagesError> {
        // The daemon leaves packages alone that no config has ever requested.
        if wanted.extensions.is_empty() && !wanted.were {
            return Ok(None);
        }
        let required = packages_of(wanted.extensions)?;
        self.packages = required.iter().map(|name| (*name).to_owned()).collect();
        let Some(line) = change_extensions(wanted.extensions, base)? else {
            return Ok(None);
        };
        self.repository |= line.args.first().is_some_and(|verb| verb == "install");
        let message = line.args.clone();
        self.steps
            .push(package_step(PackageChange::Extensions, &line));
        Ok(Some(Notice::new("spec.extensions", message.join(" "))))
    }
}

fn package_step(what: PackageChange, line: &CommandLine) -> OsStep {
    OsStep::Packages {
        what,
        command: line.args.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::os::tests::{booted, deployment, facts, staged};
    use super::*;

    const OLD: &str = "quay.example/os@sha256:aaaa";
    const NEW: &str = "quay.example/os@sha256:bbbb";

    fn with(mut deployment: Deployment, packages: &[&str], removals: &[&str]) -> Deployment {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        deployment.requested_packages = owned(packages);
        deployment.removals = owned(removals);
        deployment
    }

    fn realtime(deployment: Deployment) -> Deployment {
        with(
            deployment,
            &["kernel-rt-core", "kernel-rt-modules"],
            &["kernel", "kernel-core"],
        )
    }

    /// Returns the commands of a plan, its repository, and its notices.
    fn planned(
        all: Vec<Deployment>,
        image: &str,
        kernel: &str,
        extensions: &[&str],
        were: bool,
    ) -> (Vec<String>, bool, Vec<String>) {
        let facts = facts(all, "rw", "rw");
        let mut plan = OsPlan::of_image(&facts, image);
        plan.repository = false;
        let extensions: Vec<String> = extensions.iter().map(|name| (*name).to_owned()).collect();
        let wanted = WantedPackages {
            kernel,
            extensions: &extensions,
            were,
        };
        let said = plan.add_packages(&facts, &wanted, "x86_64").unwrap();
        let words = |step: &OsStep| match step {
            OsStep::Packages { command, .. } if command[0] == "override" => {
                Some(command[..2].join(" "))
            }
            OsStep::Packages { command, .. } => Some(command[0].clone()),
            OsStep::Image { .. } => Some("rebase".to_owned()),
            OsStep::DropStaged { .. } => Some("drop".to_owned()),
            _ => None,
        };
        let said = said.into_iter().map(|notice| notice.message).collect();
        (
            plan.steps.iter().filter_map(words).collect(),
            plan.repository,
            said,
        )
    }

    /// What a row of the table asks for, with which packages, and what is expected.
    #[derive(Clone)]
    struct Row {
        what: &'static str,
        all: Vec<Deployment>,
        kernel: &'static str,
        extensions: &'static [&'static str],
        /// The recorded config asked for them.
        were: bool,
        steps: &'static [&'static str],
        repository: bool,
    }

    /// Nothing is asked for, and nothing is done.
    fn row(what: &'static str, all: Vec<Deployment>) -> Row {
        Row {
            what,
            all,
            kernel: "default",
            extensions: &[],
            were: false,
            steps: &[],
            repository: false,
        }
    }

    #[track_caller]
    fn all_met(rows: &[Row]) {
        for row in rows {
            let all = row.all.clone();
            let (found, needs, _) = planned(all, NEW, row.kernel, row.extensions, row.were);
            assert_eq!(found, row.steps, "{}", row.what);
            assert_eq!(needs, row.repository, "{}", row.what);
        }
    }

    #[test]
    fn the_commands_are_those_that_are_missing_in_the_daemons_order() {
        let has = || with(booted(NEW), &["usbguard"], &[]);
        let wants = |what, all| Row {
            extensions: &["usbguard"],
            ..row(what, all)
        };
        all_met(&[
            row("nothing wanted", vec![booted(NEW)]),
            row("never asked for", vec![has()]),
            Row {
                were: true,
                ..wants("there already", vec![has()])
            },
            Row {
                steps: &["install"],
                repository: true,
                ..wants("one more", vec![booted(NEW)])
            },
            Row {
                were: true,
                steps: &["uninstall"],
                ..row("not wanted any more", vec![has()])
            },
            Row {
                were: true,
                steps: &["rebase"],
                repository: true,
                ..wants(
                    "kept packages are fetched for another image",
                    vec![with(booted(OLD), &["usbguard"], &[])],
                )
            },
            wants(
                "staged with them",
                vec![with(staged(NEW), &["usbguard"], &[]), booted(OLD)],
            ),
            Row {
                steps: &["drop", "rebase", "install"],
                repository: true,
                ..wants(
                    "what is dropped takes them along",
                    vec![with(staged("x/y:z"), &["usbguard"], &[]), booted(OLD)],
                )
            },
        ]);
    }

    #[test]
    fn the_commands_for_a_kernel_are_in_the_daemons_order() {
        let wants = |what, all| Row {
            kernel: "realtime",
            ..row(what, all)
        };
        all_met(&[
            Row {
                steps: &["override remove"],
                repository: true,
                ..wants("realtime", vec![booted(NEW)])
            },
            wants("is realtime", vec![realtime(booted(NEW))]),
            Row {
                steps: &["override reset"],
                ..row("back to the image's", vec![realtime(booted(NEW))])
            },
            Row {
                steps: &["override reset", "rebase", "override remove"],
                repository: true,
                ..wants(
                    "realtime through another image",
                    vec![realtime(booted(OLD))],
                )
            },
            Row {
                extensions: &["usbguard"],
                steps: &["override reset", "rebase", "override remove", "install"],
                repository: true,
                ..wants("all at once", vec![realtime(booted(OLD))])
            },
        ]);
    }

    #[test]
    fn what_changes_is_said() {
        let (_, _, said) = planned(vec![booted(NEW)], NEW, "realtime", &["sysstat"], false);
        assert_eq!(said, ["default -> realtime", "install sysstat"]);
    }

    #[test]
    fn what_cannot_be_had_is_an_error_at_its_place() {
        let facts = facts(vec![deployment(NEW, "b")], "rw", "rw");
        let known = ["nonsense".to_owned()];
        let error = |kernel, extensions| {
            let wanted = WantedPackages {
                kernel,
                extensions,
                were: false,
            };
            OsPlan::default()
                .add_packages(&facts, &wanted, "x86_64")
                .unwrap_err()
                .0
        };
        assert_eq!(error("64k-pages", &[][..]), "spec.kernelType");
        assert_eq!(error("default", &known[..]), "spec.extensions");
    }
}
