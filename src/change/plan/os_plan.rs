//! The changes of the operating system that a plan makes, in the order of rpm-ostree's commands.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::base::kargs::{Kargs, KargsChange};
use crate::base::notice::Notice;
use crate::change::capsule::accepted::TakenFromCapsule;
use crate::change::capsule::opened::CapsuleFacts;
use crate::node::command::rpm_ostree::packages::layered_by;
use crate::node::command::rpm_ostree::status::{Deployment, Deployments, Standing};
use crate::node::engine::Engine;
use crate::node::requests::AskedFor;
use crate::node::system::SystemFacts;

/// One change of the operating system, effective at the next boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum OsStep {
    /// Pins the running deployment, so that no clean-up removes it.
    Pin {
        /// Its index in the list of deployments.
        index: usize,
        /// `CHECKSUM.SERIAL`.
        deployment: String,
    },
    /// Drops a staged deployment that is not wanted.
    DropStaged {
        /// Its image or checksum.
        what: String,
    },
    /// Copies the image from a medium into containers-storage, under exactly its name.
    Bring {
        /// The source in skopeo's form.
        from: String,
        /// The image.
        image: String,
    },
    /// Imports the image into the node's OSTree repository, from the objects of another node.
    Import {
        /// The repository, archive or stream.
        from: String,
        /// The image.
        image: String,
        /// Its merge commit.
        commit: String,
        /// Checksum of its layers.
        layers_checksum: String,
        /// Number of objects that the node lacks.
        objects: usize,
        /// Their size at the source, in bytes.
        bytes: u64,
    },
    /// Stages another image.
    Image {
        /// The running image.
        from: String,
        /// The wanted image: the origin will contain exactly this.
        to: String,
    },
    /// Stages the image of a deployment that is kept on the node: nothing is fetched.
    Kept {
        /// The running image.
        from: String,
        /// The wanted image: the origin will contain exactly this.
        to: String,
        /// The commit of the image.
        commit: String,
    },
    /// Makes the running deployment the next boot's again. The one that is queued, by a rollback or as the default, is replaced
    /// and kept.
    Stay {
        /// The queued deployment, in words.
        what: String,
        /// `CHECKSUM.SERIAL` of it.
        queued: String,
    },
    /// Other kernel arguments are staged.
    Arguments {
        /// Options of `rpm-ostree kargs`.
        changes: Vec<String>,
    },
    /// Fetches packages of all following steps from the extensions repository.
    Repository(PackageRepository),
    /// Stages other packages on top of the image.
    Packages {
        /// The kind of change.
        what: PackageChange,
        /// Arguments of rpm-ostree.
        command: Vec<String>,
    },
}

/// The location of the packages of extensions and kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageRepository {
    /// A directory on the node that has `repodata`.
    Directory(String),
    /// In an image: `spec.baseOSExtensionsContainerImage`.
    Image(String),
}

/// A change of packages on top of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PackageChange {
    /// The image's own kernel is restored.
    KernelBack,
    /// Another kernel replaces the image's.
    Kernel,
    /// Packages of wanted extensions are added, and those of others removed.
    Extensions,
}

impl OsStep {
    /// Returns true if it creates a deployment for the next boot.
    pub fn is_staging(&self) -> bool {
        matches!(
            self,
            Self::Image { .. } | Self::Kept { .. } | Self::Arguments { .. } | Self::Packages { .. }
        )
    }
}

/// The changes of the operating system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct OsPlan {
    /// The program that stages.
    #[serde(skip)]
    pub engine: Engine,
    /// In order.
    pub steps: Vec<OsStep>,
    /// The image that the next boot has to enter; `None` if the config has none.
    pub image: Option<String>,
    /// The kernel arguments that the config of the base deployment requested. The base is the deployment from which the next
    /// one is made.
    pub old_arguments: Kargs,
    /// That config asked for extensions.
    #[serde(skip)]
    pub had_extensions: bool,
    /// Stored requests of the base deployment's config, if only an image is staged.
    #[serde(skip)]
    pub base_asked: Option<AskedFor>,
    /// Requests of the running config; `None` if the record is left unchanged.
    #[serde(skip)]
    pub booted_asked: Option<AskedFor>,
    /// The extensions that this config requests.
    #[serde(skip)]
    pub extensions: Vec<String>,
    /// The arguments that this config requests.
    pub arguments: Kargs,
    /// Changes of arguments with which the run fixes findings about the image.
    #[serde(skip)]
    pub cures: Vec<KargsChange>,
    /// Packages on top of the image that the next boot has to have.
    pub packages: Vec<String>,
    /// The kernel type that the next boot has to have, if it changes.
    pub kernel_type: Option<String>,
    /// Packages have to be fetched.
    pub repository: bool,
    /// `CHECKSUM.SERIAL` of the running deployment.
    pub booted: String,
    /// The deployment of the next boot exists already, but is not running yet.
    pub waits_for_reboot: bool,
    /// The capsule that the image is taken from.
    #[serde(skip)]
    pub signed: Option<CapsuleFacts>,
}

impl OsPlan {
    /// Returns what is taken from a capsule, if the image is read through one.
    pub fn taken(&self) -> Option<TakenFromCapsule> {
        Some(TakenFromCapsule {
            what: self.image.clone()?,
            digest: None,
            signed: self.signed.clone()?,
        })
    }

    /// Plans the image alone, whatever else a config contains.
    pub fn of_image(facts: &SystemFacts, wanted: &str) -> Self {
        let mut plan = Self::default();
        if let Some(booted) = facts.deployments.booted() {
            plan.booted = booted.name();
            plan.add_image(facts, wanted, &[]);
            let next = facts.deployments.next_boot().filter(|next| !next.booted);
            let asked = match next.filter(|_| !plan.starts_from_running()) {
                Some(next) => facts.asked.find_requests(&next.name(), &facts.arguments),
                None => facts
                    .asked
                    .find_requests(&booted.name(), &facts.booted_arguments),
            };
            plan.base_asked = asked.cloned();
            plan.repository = plan.changes_image() && booted.is_layered();
            plan.fetch_for(facts);
            plan.plan_pin(booted);
        }
        plan
    }

    /// Returns true if another image is staged.
    pub fn changes_image(&self) -> bool {
        let is_image = |step: &OsStep| matches!(step, OsStep::Image { .. } | OsStep::Kept { .. });
        self.steps.iter().any(is_image)
    }

    /// Returns true if another image has to be fetched.
    pub(super) fn fetches_image(&self) -> bool {
        let fetches = |step: &OsStep| matches!(step, OsStep::Image { .. });
        self.steps.iter().any(fetches)
    }

    /// Uses the image from a medium or from containers-storage, as requested, and not from a kept deployment.
    pub fn fetch_image(&mut self) {
        for step in &mut self.steps {
            if let OsStep::Kept { from, to, .. } = step {
                let (from, to) = (std::mem::take(from), std::mem::take(to));
                *step = OsStep::Image { from, to };
            }
        }
    }

    /// Stages the image from a commit that is in the node's repository by then.
    pub(super) fn use_commit(&mut self, imported: &str) {
        for step in &mut self.steps {
            if let OsStep::Image { from, to } = step {
                *step = OsStep::Kept {
                    from: std::mem::take(from),
                    to: std::mem::take(to),
                    commit: imported.to_owned(),
                };
            }
        }
    }

    /// Adapts the plan to an engine. Under bootc, ostree stages a kept deployment with its own origin, or the commit of an image in
    /// the repository, if it can; a deployment with layered packages is fetched as an image instead.
    pub(super) fn fetch_for(&mut self, facts: &SystemFacts) {
        self.engine = facts.engine;
        if facts.engine == Engine::RpmOstree {
            return;
        }
        self.repository = false;
        let is_imported = |image: &String, commit: &String| {
            let imported = facts.imported.as_ref();
            imported.is_ok_and(|all| all.get(image) == Some(commit))
        };
        let is_available = |step: &OsStep| match step {
            OsStep::Kept { to, commit, .. } => {
                facts.deployments.kept_alone(to, commit).is_some() || is_imported(to, commit)
            }
            _ => true,
        };
        if facts.stages_commits.is_err() || !self.steps.iter().all(is_available) {
            self.fetch_image();
        }
    }

    /// Returns the image that has to be fetched. With `from_storage`, this includes that of a kept deployment.
    pub fn image_to_fetch(&self, from_storage: bool) -> Option<String> {
        self.steps.iter().find_map(|step| match step {
            OsStep::Image { to, .. } => Some(to.clone()),
            OsStep::Kept { to, .. } if from_storage => Some(to.clone()),
            _ => None,
        })
    }

    /// Returns true if the image is copied into containers-storage first.
    pub fn brings_image(&self) -> bool {
        let brings = |step: &OsStep| matches!(step, OsStep::Bring { .. });
        self.steps.iter().any(brings)
    }

    /// Returns true if a previously staged deployment is dropped.
    pub fn drops_staged(&self) -> bool {
        let drops = |step: &OsStep| matches!(step, OsStep::DropStaged { .. });
        self.steps.iter().any(drops)
    }

    /// Returns true if the queued deployment is replaced by the running one.
    pub fn replaces_queued(&self) -> bool {
        let stays = |step: &OsStep| matches!(step, OsStep::Stay { .. });
        self.steps.iter().any(stays)
    }

    /// Returns true if the new deployment is based on the running one, and not on that of the next boot.
    pub fn starts_from_running(&self) -> bool {
        self.drops_staged() || self.replaces_queued()
    }

    /// Adds the step that replaces the queued deployment.
    fn add_stay(&mut self, deployments: &Deployments) -> Option<Notice> {
        let queued = deployments.queued()?;
        let what = name_deployment(queued);
        let said = change_notice(
            "the next boot",
            format!("{what} is queued but not wanted; the running deployment stays"),
        );
        self.steps.push(OsStep::Stay {
            what,
            queued: queued.name(),
        });
        Some(said)
    }

    /// Adds the step that stages an image: from its commit if the node has it, otherwise from its source.
    fn stage_image(&mut self, facts: &SystemFacts, standing: &Standing, from: &str, wanted: &str) {
        let (from, to) = (from.to_owned(), wanted.to_owned());
        let kept = facts.deployments.kept_commit(standing);
        // rpm-ostree's clean-up, which drops the staged deployment, also removes images without a deployment.
        let imported = || match &facts.imported {
            Ok(imported) if !self.drops_staged() => imported.get(wanted).cloned(),
            Ok(_) => None,
            Err(why) => {
                log::warn!("the images in the node's repository are not known: {why}");
                None
            }
        };
        self.steps.push(match kept.or_else(imported) {
            Some(commit) => OsStep::Kept { from, to, commit },
            None => OsStep::Image { from, to },
        });
    }

    /// Adds the steps towards an image; returns a notice about the change. `foreign` lists what is staged but was not requested
    /// by any config.
    pub(super) fn add_image(
        &mut self,
        facts: &SystemFacts,
        wanted: &str,
        foreign: &[String],
    ) -> Option<Notice> {
        self.image = Some(wanted.to_owned());
        let deployments = &facts.deployments;
        // No reboot enters it, so waiting for one would be endless.
        let locked = deployments
            .staged()
            .is_some_and(|one| one.finalization_locked);
        let lock = locked.then(|| "a lock (a download only)".to_owned());
        let foreign: Vec<String> = foreign.iter().cloned().chain(lock).collect();
        let standing = deployments.find_image(wanted, None);
        let from = deployments.booted().map(Deployment::image);
        let from = from.unwrap_or_default();
        let next = deployments.next_boot();
        let goes_on =
            next.is_some_and(|next| next.image() == wanted && (next.booted || next.staged));
        match (&standing, deployments.staged()) {
            (Standing::Booted, _) if goes_on => return None,
            (Standing::Staged, Some(staged)) if !foreign.is_empty() => {
                let what = format!("{} with {}", name_deployment(staged), foreign.join(", "));
                self.steps.push(OsStep::DropStaged { what: what.clone() });
                self.add_stay(deployments);
                if from == wanted {
                    let message = format!("{what}: this config does not ask for that");
                    return Some(change_notice("the staged deployment", message));
                }
                self.stage_image(facts, &Standing::Absent, &from, wanted);
            }
            (Standing::Booted, None) => return self.add_stay(deployments),
            (Standing::Booted, Some(staged)) => {
                let what = name_deployment(staged);
                self.steps.push(OsStep::DropStaged { what: what.clone() });
                self.add_stay(deployments);
                return Some(change_notice(
                    "the staged deployment",
                    format!("{what} is not wanted"),
                ));
            }
            (Standing::Staged | Standing::Next, _) => self.waits_for_reboot = true,
            (_, staged) => {
                let dropped = staged.map(|staged| OsStep::DropStaged {
                    what: name_deployment(staged),
                });
                self.steps.extend(dropped);
                self.add_stay(deployments);
                self.stage_image(facts, &standing, &from, wanted);
            }
        }
        Some(change_notice(
            "spec.osImageURL",
            format!("{} -> {wanted}", or_none(&from)),
        ))
    }

    /// Pins the running deployment, so that no clean-up removes it.
    pub(super) fn plan_pin(&mut self, booted: &Deployment) {
        if !booted.pinned && self.steps.iter().any(OsStep::is_staging) {
            let (index, deployment) = (booted.index, booted.name());
            self.steps.insert(0, OsStep::Pin { index, deployment });
        }
    }

    /// Returns true if the wanted deployment is already staged and is kept.
    pub fn is_staged(&self) -> bool {
        self.waits_for_reboot && !self.drops_staged()
    }

    /// Returns true if the config only takes effect after a reboot.
    pub fn needs_reboot(&self) -> bool {
        self.waits_for_reboot || self.steps.iter().any(OsStep::is_staging)
    }

    /// Returns true if nothing is done and nothing is awaited.
    pub fn is_empty(&self) -> bool {
        !self.waits_for_reboot && self.steps.is_empty()
    }

    /// Returns packages that are removed and not added again.
    pub fn gone_packages(&self) -> Vec<&str> {
        let mut gone = Vec::new();
        for step in &self.steps {
            let OsStep::Packages { command, .. } = step else {
                continue;
            };
            for (comes, name) in layered_by(command) {
                if comes {
                    gone.retain(|other| *other != name)
                } else {
                    gone.push(name)
                }
            }
        }
        gone
    }

    /// Returns the arguments of the next boot, which would otherwise have `present`: those that the config requests, and the
    /// fixes.
    pub fn wanted_arguments(&self, present: &Kargs) -> Kargs {
        let wanted = present.after_change(&self.old_arguments, &self.arguments);
        wanted.cured_by(&self.cures)
    }

    /// Returns the arguments that the next boot's command line has to have: the config's, and those that fix findings about the
    /// image.
    pub fn awaited_arguments(&self) -> Kargs {
        self.arguments.cured_by(&self.cures)
    }

    /// Returns the arguments that the next boot's command line must not have, if staging leaves `present`: those of the
    /// previous config, and those that a fix deletes.
    pub fn gone_arguments(&self, present: &Kargs) -> Vec<String> {
        let awaited = self.awaited_arguments();
        let stays =
            |word: &&String| awaited.tokens().contains(word) || present.tokens().contains(word);
        let deleted = self.cures.iter().filter_map(|cure| match cure {
            KargsChange::Delete(word) => Some(word),
            KargsChange::Append(_) => None,
        });
        let old = self.old_arguments.tokens().iter().chain(deleted);
        let mut gone: Vec<String> = old.filter(|word| !stays(word)).cloned().collect();
        let mut seen = BTreeSet::new();
        gone.retain(|word| seen.insert(word.clone()));
        gone
    }
}

pub(super) fn change_notice(subject: &str, message: String) -> Notice {
    Notice::new(subject, message)
}

fn name_deployment(deployment: &Deployment) -> String {
    let image = deployment.image();
    if image.is_empty() {
        deployment.name()
    } else {
        image
    }
}

fn or_none(image: &str) -> &str {
    if image.is_empty() {
        "(no image)"
    } else {
        image
    }
}
