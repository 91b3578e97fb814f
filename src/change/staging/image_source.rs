//! Where a wanted image comes from, determined before anything is staged.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::release_registry;
use crate::base::invocation::{mco_rescue, shell_word};
use crate::base::notice::Notice;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::change::capsule::document::CapsuleImage;
use crate::change::capsule::opened::{CapsuleFacts, OpenedCapsule};
use crate::change::capsule::policy::CapsuleInput;
use crate::change::image::import::{ImportNeed, find_import_need};
use crate::change::image::source::{ObjectSource, STREAM};
use crate::change::image::trust::{ContentTrust, judge_content};
use crate::change::plan::fit::{Doubt, Doubtful};
use crate::change::plan::{ImageEvidence, OsPlan, OsStep, PackageRepository};
use crate::change::source::gate::{CapsuleOptions, GateError, open_capsule};
use crate::host::caller;
use crate::host::root::{Root, RootError, RootPath, to_hex};
use crate::judge::daemon::annotations;
use crate::node::command::CommandRunner;
use crate::node::deploy_directories;
use crate::node::engine::Engine;
use crate::node::images::manifest::go_architecture;
use crate::node::images::medium::{Address, Medium, MediumCheck, MediumError};
use crate::node::images::object_store::ObjectStore;
use crate::node::images::policy::Ruling;
use crate::node::images::pull::{self, Trace};
use crate::node::images::{ImageName, extensions, storage};
use crate::node::ostree_repository::imported_images;
use crate::node::space::{Fit, MIN_FREE_PERCENT, Space};

/// Credentials files that bootc uses; the first that exists is used.
const BOOTC_SECRETS: [&str; 3] = [
    "run/ostree/auth.json",
    "etc/ostree/auth.json",
    "usr/lib/ostree/auth.json",
];

/// Port of the release registry of a control-plane node.
const RELEASE_REGISTRY_PORT: &str = ":22625";

/// The source of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageSource {
    /// A registry or its mirror.
    Registry,
    /// `containers-storage`, under exactly its name.
    Storage,
}

/// The options that choose the source.
#[derive(Debug, Clone, Copy, Default)]
pub struct SourceOptions<'a> {
    /// A medium with the image.
    pub os_from: Option<&'a Path>,
    /// The capsule that the image is read through.
    pub capsule: CapsuleOptions<'a>,
    /// Lists of images of other nodes, which the image of a medium is compared with.
    pub os_proofs: &'a [PathBuf],
    /// The image is in containers-storage, under exactly its name.
    pub from_storage: bool,
    /// A directory with the packages of extensions and kernels.
    pub extensions_from: Option<&'a Path>,
}

impl SourceOptions<'_> {
    /// Returns the source to pass to rpm-ostree.
    pub fn source(&self) -> ImageSource {
        if self.from_storage || self.os_from.is_some() {
            ImageSource::Storage
        } else {
            ImageSource::Registry
        }
    }

    /// Returns the source to pass to rpm-ostree for a plan: an image that is copied first is then in the storage.
    pub fn source_of(&self, os: &OsPlan) -> ImageSource {
        if os.brings_image() {
            ImageSource::Storage
        } else {
            self.source()
        }
    }
}

/// Looks for the image and the packages that the steps of `os` need: their sources, and any blockers. `extensions` is the
/// config's extensions image, or empty.
///
/// # Errors
/// The directories of deployments cannot be read.
pub fn find_image_source(
    root: &Root,
    runner: &dyn CommandRunner,
    os: &OsPlan,
    options: &SourceOptions<'_>,
    extensions: &str,
) -> Result<ImageEvidence> {
    let mut search = Search {
        root,
        runner,
        found: ImageEvidence::default(),
    };
    if os.steps.iter().any(OsStep::is_staging) {
        search.old_deployments(&os.booted)?;
    }
    if os.repository {
        search.find_packages(options.extensions_from, extensions);
    }
    search.extensions_image();
    let capsule = match options
        .os_from
        .map(|path| open_image_capsule(root, path, options))
    {
        Some(Ok(capsule)) => capsule,
        None => None,
        Some(Err(error)) => {
            search.add_blocker("capsule", error.to_string());
            return Ok(search.found);
        }
    };
    let objects = match options.os_from.map(ObjectSource::open).transpose() {
        Ok(objects) => objects.flatten(),
        Err(error) => {
            let path = options.os_from.map(|path| path.display().to_string());
            search.add_blocker(&path.unwrap_or_default(), error.to_string());
            return Ok(search.found);
        }
    };
    search.found.signed = capsule
        .as_ref()
        .and_then(|capsule| signer_of(capsule, os.image.as_deref()?));
    if let Some(source) = objects {
        if let Some(image) = os.image_to_fetch(false) {
            let proofs = ContentProofs {
                capsule: capsule.as_ref(),
                lists: options.os_proofs,
            };
            search.find_objects(&source, &image, &proofs);
        }
        source.close();
        return Ok(search.found);
    }
    search.found.from_storage = options.source() == ImageSource::Storage;
    if let Some(image) = os.image_to_fetch(search.found.from_storage) {
        if let Some(capsule) = &capsule {
            search.expect_signed(capsule, &image);
        }
        search.find_image(&image, options);
        if os.engine == Engine::Bootc && options.source() == ImageSource::Registry {
            search.credentials_of_bootc();
        }
    }
    Ok(search.found)
}

/// What proves the content of an image.
struct ContentProofs<'a> {
    /// A signed statement.
    capsule: Option<&'a OpenedCapsule>,
    /// Lists of other nodes.
    lists: &'a [PathBuf],
}

/// Opens the capsule of an image on a medium.
fn open_image_capsule(
    root: &Root,
    path: &Path,
    options: &SourceOptions<'_>,
) -> Result<Option<OpenedCapsule>, GateError> {
    let near = (path != Path::new(STREAM)).then_some(path);
    open_capsule(root, &options.capsule, CapsuleInput::Images, near)
}

/// Returns what a capsule states of the image with this digest.
fn signed_image<'a>(capsule: &'a OpenedCapsule, digest: &str) -> Result<&'a CapsuleImage, Reason> {
    let suffix = format!("@{digest}");
    let mut images = capsule.document.images.iter();
    images
        .find(|image| image.reference.ends_with(&suffix))
        .ok_or_else(|| {
            let words = format!(
                "the capsule of {} does not have an image with the digest {digest}. On the machine with the key, beside the image: \
                 mco-rescue capsule make DIR --sign KEY, and for OCI media --image NAME@{digest}",
                capsule.facts
            );
            words.into()
        })
}

/// Returns the capsule, if it states something of this image.
fn signer_of(capsule: &OpenedCapsule, image: &str) -> Option<CapsuleFacts> {
    let digest = ImageName::parse(image).ok()?.digest?;
    let signed = signed_image(capsule, &digest.to_string());
    signed.is_ok().then(|| capsule.facts.clone())
}

/// Returns the reason why the node's tools refuse to fetch an image, regardless of the network; `None` if there is none, or if
/// the image is available locally.
///
/// # Errors
/// In words: the deployments of the node or the medium cannot be read.
pub fn foresee_refusal(
    root: &Root,
    image: Option<&str>,
    options: &SourceOptions<'_>,
) -> Result<Option<String>, Reason> {
    let name = image.map(ImageName::parse).transpose();
    let name = name.map_err(Reason::from_error)?;
    match (options.os_from, name) {
        (Some(path), name) => refusal_of_medium(root, path, name.as_ref()),
        (None, Some(name)) if !options.from_storage => {
            let kept =
                deploy_directories::list_deploy_directories(root).map_err(Reason::from_error)?;
            let imported = imported_images(root).map_err(Reason::from_error)?;
            if kept.iter().any(|one| one.image.as_deref() == image)
                || image.is_some_and(|image| imported.contains_key(image))
            {
                return Ok(None);
            }
            let trace = Trace::read(root, &name);
            Ok(trace.map_or_else(|error| Some(error.to_string()), |trace| trace.blocked()))
        }
        _ => Ok(None),
    }
}

/// Returns the reason why a medium's image is refused. A directory of files is never copied by a tool that checks the policy.
fn refusal_of_medium(
    root: &Root,
    path: &Path,
    name: Option<&ImageName>,
) -> Result<Option<String>, Reason> {
    let medium = match Medium::open(path) {
        Err(MediumError::NoImage(_)) => return Ok(None),
        opened => opened.map_err(Reason::from_error)?,
    };
    let all = medium.list_images().map_err(Reason::from_error)?;
    let named = name.and_then(|name| name.digest.clone());
    let Some(digest) = named.or_else(|| all.into_iter().next()) else {
        return Ok(None);
    };
    let address = medium.address_of(&digest).map_err(Reason::from_error)?;
    let Ok(address) = address else {
        return Ok(None);
    };
    let image = name.map_or_else(|| "IMAGE".to_owned(), ToString::to_string);
    Ok(policy_refusal(root, &address, &image))
}

/// Returns the reason why the node's policy for images refuses one on a medium; `None` if it accepts the image.
fn policy_refusal(root: &Root, address: &Address, image: &str) -> Option<String> {
    match pull::read_policy(root) {
        Ok(policy) => {
            let ruling = policy.of_medium(&without_links(address));
            (!ruling.accepts_anything()).then(|| refuse_medium(&ruling, address, image))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Returns the absolute path of a source, as ostree runs in another directory. A stream has no path.
fn absolute_path(shown: &str) -> Result<String, Reason> {
    if shown == STREAM {
        return Ok(shown.to_owned());
    }
    let path = std::path::absolute(shown).map_err(Reason::from_error)?;
    Ok(path.display().to_string())
}

/// The search for the image and the packages of one plan.
struct Search<'a> {
    root: &'a Root,
    runner: &'a dyn CommandRunner,
    found: ImageEvidence,
}

impl Search<'_> {
    fn find_image(&mut self, image: &str, options: &SourceOptions<'_>) {
        let name = match ImageName::parse(image) {
            Ok(name) => name,
            Err(error) => return self.add_blocker("spec.osImageURL", error.to_string()),
        };
        match options.os_from {
            Some(path) => self.examine_medium(path, &name, image),
            None if options.from_storage => self.find_stored(image),
            None => self.trace_pull(&name),
        }
    }

    /// Finds the packages: in a directory, or in the config's extensions image.
    fn find_packages(&mut self, directory: Option<&Path>, image: &str) {
        let from = match directory {
            Some(directory) => match repository_in(directory) {
                Ok(found) => PackageRepository::Directory(found),
                Err(why) => {
                    return self.add_blocker(&directory.display().to_string(), why.to_string());
                }
            },
            None if image.is_empty() => {
                return self.add_blocker(
                "spec.baseOSExtensionsContainerImage",
                "is empty, and packages on top of the image are needed. Give a directory that holds them: \
                 --extensions-from DIR; or --files-only for the rest"
                    .to_owned(),
            );
            }
            None => PackageRepository::Image(image.to_owned()),
        };
        self.found.repository = Some(from);
    }

    /// Checks old deployments: objects in them that cannot be removed make ostree stop half-way.
    fn old_deployments(&mut self, booted: &str) -> Result<()> {
        let mut found = Vec::new();
        for directory in deploy_directories::list_deploy_directories(self.root)? {
            if directory.name != booted {
                found.extend(deploy_directories::list_immutable(self.root, &directory)?);
            }
        }
        if !found.is_empty() {
            let paths: Vec<String> = found.iter().map(ToString::to_string).collect();
            let paths = paths.join(" ");
            let message = format!(
                "{paths}: the immutable attribute is set in a deployment that is not running, so ostree cannot clean up and \
             fails. Find out who set it, then: chattr -i {paths}"
            );
            self.add_blocker("old deployments", message);
        }
        Ok(())
    }

    /// Examines a medium. Only bit-exact copies can have the digest in the name.
    fn examine_medium(&mut self, path: &Path, name: &ImageName, image: &str) {
        let Some(digest) = &name.digest else {
            let message = format!(
                "{image} has no digest, so no medium can be proven to hold it. Name it by its digest"
            );
            return self.add_blocker("spec.osImageURL", message);
        };
        let architecture = go_architecture(std::env::consts::ARCH);
        let examined = Medium::open(path).and_then(|medium| {
            let report = medium.check_image(digest, architecture, &mut MediumCheck::Sizes)?;
            let address = medium.address_of(digest)?;
            Ok((medium, report, address))
        });
        let subject = path.display().to_string();
        match examined {
            Ok((medium, report, Ok(address))) if report.is_exact() => {
                let found = medium.read_architecture(digest);
                self.judge_architecture(found.as_deref(), image);
                self.plan_copy(&address, image);
            }
            Ok((_, report, Err(error))) if report.is_exact() => {
                self.add_blocker(&subject, error.to_string());
            }
            Ok((medium, report, _)) => {
                self.add_blocker(&subject, report.describe_verdict(name, &medium))
            }
            Err(error) => self.add_blocker(&subject, error.to_string()),
        }
    }

    /// Examines an image that is stored as OSTree objects, and compares it with the node's repository.
    fn find_objects(&mut self, source: &ObjectSource, image: &str, proofs: &ContentProofs<'_>) {
        let subject = source.metadata().shown();
        if let Err(why) = self.examine_objects(source, image, proofs) {
            self.add_blocker(&subject, why.to_string());
        }
    }

    fn examine_objects(
        &mut self,
        source: &ObjectSource,
        image: &str,
        proofs: &ContentProofs<'_>,
    ) -> Result<(), Reason> {
        let name = ImageName::parse(image).map_err(Reason::from_error)?;
        let digest = name.digest.ok_or_else(|| {
            format!("{image} has no digest, so no medium can be proven to hold it. Name it by its digest")
        })?;
        let node = ObjectStore::of_node(self.root).map_err(Reason::from_error)?;
        let node = node.ok_or("this node has no OSTree repository to import the image into")?;
        let need = find_import_need(&node, source, image, &digest.to_string())
            .map_err(Reason::from_error)?;
        let shown = source.metadata().shown();
        let Some(need) = need else {
            return Err(format!(
                "it does not have {image}. The images it has: {}",
                mco_rescue(&format!("image list {}", shell_word(&shown)))
            )
            .into());
        };
        if need.image.digest != digest.to_string() {
            return Err(format!(
                "its ref {image} leads to an image with the digest {}; take the image from another node",
                need.image.digest
            ).into());
        }
        self.judge_architecture(need.image.architecture.as_deref(), image);
        self.require_proof(&need, image, proofs)?;
        let is_unpacked = matches!(source, ObjectSource::Archive(_));
        let missing = self.find_missing_room(need.bytes, is_unpacked);
        if let Some(missing) = missing.map_err(Reason::from_error)? {
            return Err(missing.into());
        }
        self.found.bring = Some(OsStep::Import {
            from: absolute_path(&shown)?,
            image: image.to_owned(),
            commit: to_hex(&need.image.commit),
            layers_checksum: need.image.layers_checksum,
            objects: need.missing.len(),
            bytes: need.bytes,
        });
        Ok(())
    }

    /// Describes the room that an import lacks; `None` if it fits. An archive is unpacked below `/var` before ostree imports it.
    fn find_missing_room(
        &self,
        bytes: u64,
        is_unpacked: bool,
    ) -> Result<Option<String>, RootError> {
        let space = |path: &'static str| Space::read_space(self.root, &RootPath::fixed(path));
        let (sysroot, var) = (
            space(paths::SYSROOT)?,
            space("var")?.filter(|_| is_unpacked),
        );
        let is_shared = |var: &Space| sysroot.is_some_and(|sysroot| sysroot.device == var.device);
        let copies = 1 + u64::from(var.as_ref().is_some_and(is_shared));
        let apart = var.filter(|var| !is_shared(var));
        let imported =
            format!("for what ostree imports and leaves free ({MIN_FREE_PERCENT} percent)");
        let unpacked = "for the archive, which is unpacked there first".to_owned();
        let rooms = [
            (paths::SYSROOT, sysroot, copies, MIN_FREE_PERCENT, imported),
            ("var", apart, 1, 0, unpacked),
        ];
        for (place, space, copies, percent, what) in rooms {
            let fit = space.map(|space| space.fit_import(bytes.saturating_mul(copies), percent));
            if let Some(Fit::TooSmall { missing }) = fit {
                return Ok(Some(format!(
                    "{missing} bytes are missing in /{place} {what}. Make room: podman image prune --all, or rpm-ostree cleanup -m"
                )));
            }
        }
        Ok(None)
    }

    /// Adds the proofs of an image's content, or the doubt that there are none.
    fn require_proof(
        &mut self,
        need: &ImportNeed,
        image: &str,
        proofs: &ContentProofs<'_>,
    ) -> Result<(), Reason> {
        let content = &need.image.content;
        if let Some(capsule) = proofs.capsule {
            let signed = signed_image(capsule, &need.image.digest)?;
            let signer = &capsule.facts;
            let compared = [
                ("content", content, &signed.content_checksum),
                (
                    "layers",
                    &need.image.layers_checksum,
                    &signed.layers_checksum,
                ),
            ];
            for (what, found, signed) in compared {
                if let Some(signed) = signed.as_ref().filter(|signed| *signed != found) {
                    return Err(format!(
                        "the checksum of its {what} is {found}, and the capsule of {signer} says {signed}: one of the two was \
                         changed. Take the image from another node"
                    ).into());
                }
            }
            // Without a checksum the capsule proves the digest alone.
            if signed.content_checksum.is_some() {
                self.found.notices.push(Notice::new(
                    "content",
                    format!("{content} is the content of {image}, signed by {signer}"),
                ));
                return Ok(());
            }
        }
        let cluster = match proofs.lists {
            [] => None,
            _ => annotations::name_cluster(self.root).map_err(|error| {
                format!(
                    "{error}, so it is unknown whether the other nodes belong to this cluster. Fix that file, or leave out --os-proof \
                     and use --unproven-image"
                )
            })?,
        };
        let judged = judge_content(&need.image, proofs.lists, cluster.as_deref());
        match judged.map_err(Reason::from_error)? {
            ContentTrust::Agreed(nodes) => self.found.notices.push(Notice::new(
                "content",
                format!(
                    "{content} is the content of {image} on {}",
                    nodes.join(" and ")
                ),
            )),
            ContentTrust::Contradicted(node, other) => {
                return Err(format!(
                    "its content is {content}, and on {node} the same image has the content {other}: one of the two was changed. \
                     Take the image from another node"
                ).into());
            }
            ContentTrust::OtherCluster(node, server) => {
                return Err(format!(
                    "{node} belongs to the cluster of {server}, so its document proves nothing here. Give the documents of two nodes \
                     of one cluster"
                ).into());
            }
            ContentTrust::Unproven(nodes) => {
                let known = match nodes.first() {
                    Some(node) => format!("only {node} vouches"),
                    None => "no other node vouches".to_owned(),
                };
                let why = format!(
                    "{known} that {content} is the content of {image}, with the layers that are there: the digest proves the manifest, not the files"
                );
                let instead = "On two more nodes: mco-rescue image list --output json >NODE.json, or mco-rescue status --output json >NODE.json if it runs there; then give both documents: --os-proof NODE.json";
                let doubtful = Doubtful::new(Doubt::UnprovenImage, "content", why, instead);
                self.found.doubts.push(doubtful);
            }
        }
        Ok(())
    }

    /// Blocks an image that a capsule does not have. Its digest proves the rest.
    fn expect_signed(&mut self, capsule: &OpenedCapsule, image: &str) {
        let digest = ImageName::parse(image).ok().and_then(|name| name.digest);
        let digest = digest.map(|digest| digest.to_string()).unwrap_or_default();
        match signed_image(capsule, &digest) {
            Ok(_) => self.found.notices.push(Notice::new(
                "image",
                format!("{image} is signed by {}", capsule.facts),
            )),
            Err(why) => self.add_blocker("capsule", why.to_string()),
        }
    }

    /// Adds a doubt about an image for another architecture, which can be staged but does not boot.
    fn judge_architecture(&mut self, found: Option<&str>, image: &str) {
        let own = go_architecture(std::env::consts::ARCH);
        let Some(found) = found.filter(|found| *found != own) else {
            return;
        };
        let why = format!("{image} is for {found}, and this machine is {own}: it would not boot");
        let instead = format!("Take the release for {own}");
        let doubtful = Doubtful::new(Doubt::OtherArchitecture, "spec.osImageURL", why, instead);
        self.found.doubts.push(doubtful);
    }

    /// Plans to copy the image with skopeo, which checks the policy.
    fn plan_copy(&mut self, address: &Address, image: &str) {
        if let Err(error) = self.runner.run(&storage::skopeo_version()) {
            return self.add_blocker("skopeo", format!("{error}; it copies the image"));
        }
        if let Some(why) = policy_refusal(self.root, address, image) {
            self.add_blocker("policy", why);
        }
        self.found.bring = Some(OsStep::Bring {
            from: address.to_string(),
            image: image.to_owned(),
        });
    }

    fn find_stored(&mut self, image: &str) {
        if let Err(error) = pull::read_policy(self.root) {
            self.add_blocker("policy", error.to_string());
        }
        let missing = format!(
            "{image} is not in containers-storage under exactly this name. Copy it: skopeo copy --preserve-digests SOURCE containers-storage:{image}"
        );
        match self.in_storage(image) {
            Ok(Some(found)) => {
                self.judge_architecture(found.architecture.as_deref(), image);
            }
            Ok(None) => self.add_blocker("containers-storage", missing),
            Err(error) => self.add_blocker("containers-storage", error.to_string()),
        }
    }

    /// Returns the image that podman has under exactly this name.
    fn in_storage(&self, image: &str) -> Result<Option<storage::Stored>, Reason> {
        let answer = self.runner.run(&storage::list_images(image));
        let answer = answer.map_err(|error| format!("{error}; podman knows what is in it"))?;
        storage::parse_stored(&answer.stdout, image).map_err(Reason::from_error)
    }

    /// Checks that podman has the extensions image or can pull it.
    fn extensions_image(&mut self) {
        let Some(PackageRepository::Image(image)) = self.found.repository.clone() else {
            return;
        };
        const SUBJECT: &str = "spec.baseOSExtensionsContainerImage";
        let name = match (self.in_storage(&image), ImageName::parse(&image)) {
            (Ok(Some(_)), _) => return,
            (Ok(None), Ok(name)) => name,
            (Err(error), _) => return self.add_blocker(SUBJECT, error.to_string()),
            (_, Err(error)) => return self.add_blocker(SUBJECT, error.to_string()),
        };
        match Trace::read(self.root, &name) {
            Ok(trace) => {
                if let Some(why) = trace.blocked() {
                    self.add_blocker(SUBJECT, format!("{image} cannot be pulled: {why}"));
                }
            }
            Err(error) => self.add_blocker(SUBJECT, error.to_string()),
        }
    }

    /// Adds notices about how a pull will be decided.
    fn trace_pull(&mut self, name: &ImageName) {
        let trace = Trace::read(self.root, name);
        if self.is_in_release_registry(name, trace.as_ref().ok()) {
            return;
        }
        match trace {
            Ok(trace) => match trace.blocked() {
                Some(why) => self.add_blocker("pull", why),
                None => {
                    let notice = Notice::new("pull", trace.to_string());
                    self.found.notices.push(notice);
                }
            },
            Err(error) => self.add_blocker("pull", error.to_string()),
        }
    }

    /// Looks for the image in a control-plane node's own registry of release images. rpm-ostree uses that registry if a mirror
    /// leads there. Otherwise it is queried here, and if it has the image, the image is copied from it; returns true in that
    /// case.
    fn is_in_release_registry(&mut self, name: &ImageName, trace: Option<&Trace>) -> bool {
        match release_registry::is_present(self.root) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => {
                self.found.notices.push(Notice::new(
                    "release registry",
                    format!(
                        "it is unknown whether this node has a release registry, so it is not queried: {error}"
                    ),
                ));
                return false;
            }
        }
        let is_its = |source: &&pull::PullPlace| {
            let host = source.name.split('/').next().unwrap_or_default();
            host.ends_with(RELEASE_REGISTRY_PORT)
        };
        let mirror = trace.and_then(|trace| trace.asked_places().find(is_its));
        let found = match (&mirror, &name.digest) {
            (Some(_), _) => None,
            (None, Some(digest)) => Some(release_registry::find_image(self.root, digest)),
            (None, None) => return false,
        };
        let (message, taken) = match (mirror, found) {
            (Some(source), _) => (
                format!(
                    "the release registry of this cluster is queried: {}. If it does not answer: systemctl status iri-registry",
                    source.name
                ),
                false,
            ),
            (None, Some(Ok(from))) => {
                if !self.is_allowed(&from) {
                    return false;
                }
                let message = format!(
                    "the registry of this node has the image, so it is copied from there: {from}"
                );
                self.found.bring = Some(OsStep::Bring {
                    from,
                    image: name.to_string(),
                });
                (message, true)
            }
            (None, Some(Err(why))) => (
                format!(
                    "this node has a release registry (/{}), but it does not have this image: {why}. Look at it: systemctl \
                     status iri-registry",
                    paths::RELEASE_REGISTRY
                ),
                false,
            ),
            (None, None) => return false,
        };
        self.found
            .notices
            .push(Notice::new("release registry", message));
        taken
    }

    /// Returns true if skopeo is installed and the signature policy lets it copy from a registry; otherwise adds a notice with
    /// the reason.
    fn is_allowed(&mut self, from: &str) -> bool {
        let mut refused = |why: String| {
            self.found.notices.push(Notice::new(
                "release registry",
                format!("{from} is skipped: {why}"),
            ));
            false
        };
        if let Err(error) = self.runner.run(&storage::skopeo_version()) {
            return refused(format!("{error}; it copies the image"));
        }
        let name = ImageName::parse(from.trim_start_matches("docker://"));
        let ruling = match (pull::read_policy(self.root), name) {
            (Ok(policy), Ok(name)) => policy.of_registry(&name),
            (Err(error), _) => return refused(error.to_string()),
            (_, Err(error)) => return refused(error.to_string()),
        };
        if ruling.accepts_anything() {
            true
        } else {
            refused(format!("/{}: {ruling}", paths::POLICY))
        }
    }

    /// Checks bootc's credentials. Unlike rpm-ostree, for which the daemon creates a link, bootc does not use the kubelet's.
    fn credentials_of_bootc(&mut self) {
        let has = |path| !matches!(self.root.exists(&RootPath::fixed(path)), Ok(false));
        if BOOTC_SECRETS.into_iter().any(has) {
            return;
        }
        let places = BOOTC_SECRETS.map(|path| format!("/{path}")).join(", ");
        self.found.notices.push(Notice::new(
            "credentials",
            format!(
                "bootc reads them only from {places}, and none of these exists. If the registry needs some: mkdir -p \
                 /run/ostree && ln -s /{} /{}",
                paths::PULL_SECRETS[2], BOOTC_SECRETS[0]
            ),
        ));
    }

    fn add_blocker(&mut self, subject: &str, message: String) {
        self.found.blockers.push(Notice::new(subject, message));
    }
}

/// Returns the RPM repository in a directory: the directory itself, or the same path below it as in the extensions image.
/// rpm-ostree requires an absolute path.
fn repository_in(directory: &Path) -> Result<String, Reason> {
    let whole = std::path::absolute(directory).map_err(Reason::from_error)?;
    let candidates = [whole.clone(), whole.join(extensions::REPOSITORY)];
    let is_repository =
        |path: &&std::path::PathBuf| caller::is_file(path.join(extensions::METADATA));
    let found = candidates.iter().find(is_repository);
    let Some(found) = found else {
        return Err(format!(
            "has neither {0} nor {1}/{0}: it is not a repository of packages. Unpack the image of extensions of the \
             wanted release there",
            extensions::METADATA,
            extensions::REPOSITORY
        ).into());
    };
    match found.to_str() {
        Some(text) if !text.contains(char::is_whitespace) => Ok(text.to_owned()),
        _ => Err("has a blank in its path, which a repository file cannot hold. Move it".into()),
    }
}

/// Returns the refusal of a medium. A medium has no signatures, so any policy that requires more than a digest refuses it. The
/// policy is not changed.
fn refuse_medium(ruling: &Ruling, address: &Address, image: &str) -> String {
    format!(
        "/{} does not let {address} be copied: {ruling}. If its digest is proof enough: skopeo --insecure-policy copy \
         --preserve-digests {address} containers-storage:{image}; then use --from-storage",
        paths::POLICY
    )
}

/// Returns the path in the form of the policy.
fn without_links(address: &Address) -> Address {
    let whole = caller::resolve_links(&address.path);
    Address {
        path: whole.unwrap_or_else(|_| address.path.clone()),
        ..address.clone()
    }
}
