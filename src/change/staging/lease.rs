//! What is temporarily provided to rpm-ostreed while an operating system is staged, and removed however the run ends: the
//! extensions repository, and the daemon's exception of one image from the signature policy (docs/develop/agreement.md: Operating
//! system, Packages).

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};

use crate::change::plan::PackageRepository;
use crate::change::transaction::Lock;
use crate::change::transaction::place::{self, Placement};
use crate::host::root::{Root, RootPath};
use crate::host::sys::runtime;
use crate::judge::drift::text_object;
use crate::node::command::rpm_ostree::cause::RpmOstreeError;
use crate::node::command::{CommandLine, CommandRunner, systemctl};
use crate::node::images::auth::Secrets;
use crate::node::images::extensions::{self, REPO_FILE};
use crate::node::images::policy::SignaturePolicy;
use crate::node::images::pull::read_policy_text;
use crate::node::images::storage;
use crate::node::system::ask_rpm_ostree;
use crate::node::{Host, Labels};

const DAEMON: &str = "rpm-ostreed.service";

/// Provides these on one root.
#[allow(
    missing_debug_implementations,
    reason = "the runner of programs is a trait object"
)]
pub struct Lease<'a> {
    /// The root.
    pub root: &'a Root,
    /// The lock of the run.
    pub lock: &'a Lock,
    /// Starts programs.
    pub runner: &'a dyn CommandRunner,
}

impl Lease<'_> {
    /// Removes everything that was provided during this boot, even by an interrupted run. From a previous boot, only the
    /// repository can be left, which is a matter for the plan, because it knows whether another program uses it.
    pub fn remove_all(&self) -> Result<()> {
        if !runtime::has_runtime(runtime::LENT) {
            return Ok(());
        }
        let repository = RootPath::parse(REPO_FILE)?;
        place::remove_file(self.root, self.lock, &repository)?;
        let removed = |path: &str| {
            runtime::remove_path(path)
                .with_context(|| format!("removing {path}; remove it by hand"))
        };
        removed(runtime::EXTENSIONS)?;
        let bound = removed(runtime::POLICY_BINDING)?;
        removed(runtime::POLICY)?;
        if bound {
            restart_daemon(self.runner)?;
        }
        runtime::remove_runtime(runtime::LENT).context("forgetting what was lent")
    }

    /// Records that there is something to remove.
    fn record_begin(&self) -> Result<()> {
        runtime::write_runtime(runtime::LENT, b"").context("noting what is lent")
    }

    /// Lends the packages.
    pub fn lease_repository(&self, from: &PackageRepository) -> Result<(), RpmOstreeError> {
        self.record_begin()
            .map_err(|error| RpmOstreeError::of_failure(&error))?;
        let directory = match from {
            PackageRepository::Directory(directory) => directory.clone(),
            PackageRepository::Image(image) => self.copy_of(image)?,
        };
        let text = extensions::repo_file(&directory);
        self.put_file(&text)
            .map_err(|error| RpmOstreeError::of_failure(&error))
    }

    /// Copies the content of the extensions image to a directory, using a container that never runs.
    fn copy_of(&self, image: &str) -> Result<String, RpmOstreeError> {
        let here = self.runner.run(&storage::list_images(image));
        let here = here.map_err(|error| RpmOstreeError::of_error(&error))?;
        if !matches!(storage::parse_stored(&here.stdout, image), Ok(Some(_))) {
            let secrets = Secrets::read(self.root);
            let secrets = secrets.map_err(|error| RpmOstreeError::Unknown(error.to_string()))?;
            run_line(
                self.runner,
                &extensions::pull_image(image, secrets.file.as_deref()),
            )?;
        }
        let id = SystemTime::now().duration_since(UNIX_EPOCH);
        let id = id.unwrap_or_default().as_nanos();
        let name = format!("ostree-container-pivot-{id:x}");
        let directory = format!("{}/os-extensions-content-{id:x}", runtime::EXTENSIONS);
        runtime::make_directory(&directory)
            .map_err(|error| RpmOstreeError::Unknown(format!("making {directory}: {error}")))?;
        run_line(self.runner, &extensions::create_container(image, &name))?;
        let copied = run_line(self.runner, &extensions::copy_content(&name, &directory));
        if let Err(cause) = run_line(self.runner, &extensions::remove_container(&name)) {
            log::warn!("removing the container {name}: {cause}. Next: podman rm -f {name}");
        }
        copied?;
        if !matches!(
            Labels::read(self.root).policy,
            crate::formats::labels::LabelPolicy::None
        ) {
            run_line(self.runner, &extensions::label_directory(&directory))?;
        }
        Ok(format!("{directory}/{}", extensions::REPOSITORY))
    }

    fn put_file(&self, text: &str) -> Result<()> {
        let path = RootPath::parse(REPO_FILE)?;
        let host = Host::observe(self.root)?;
        let labels = Labels::read(self.root);
        let object = text_object(text.as_bytes(), 0o644, host.attainable_owner((0, 0)));
        place::make_parent(self.root, self.lock, &path, &host, &labels)?;
        let label = labels.wanted_label(&path, &object.kind);
        let placement = Placement {
            path: &path,
            object: &object,
            bytes: text.as_bytes(),
            label: label.as_deref(),
        };
        place::put_file(self.root, self.lock, &placement)?;
        Ok(())
    }

    /// Provides a policy that accepts this one image of containers-storage, if the node's policy would not. The image's digest
    /// was verified when it was copied under its name.
    pub fn lease_exception(&self, image: &str) -> Result<()> {
        let policy = read_policy_text(self.root)?;
        let Some(policy) = policy else { return Ok(()) };
        let policy = String::from_utf8_lossy(&policy);
        if !storage::needs_exception(&SignaturePolicy::parse(&policy)?) {
            return Ok(());
        }
        let answer = |line: &CommandLine| {
            let answer = ask_rpm_ostree(self.runner, line);
            answer.map_err(|cause| anyhow!(cause.to_line()))
        };
        let stored = storage::parse_stored(&answer(&storage::list_images(image))?, image)?;
        let stored = stored
            .with_context(|| format!("{image} is not in containers-storage under its name"))?;
        let place = storage::parse_place(&answer(&storage::system_info())?)?;
        let text = storage::with_exception(&policy, &place, &stored)?;
        self.record_begin()?;
        let lend = |path: &str, text: &str| {
            runtime::write_for_programs(path, text.as_bytes())
                .with_context(|| format!("writing {path}"))
        };
        lend(runtime::POLICY, &text)?;
        lend(
            runtime::POLICY_BINDING,
            &storage::policy_binding(runtime::POLICY),
        )?;
        restart_daemon(self.runner)
    }
}

/// Restarts the daemon, which reads these files at its start.
fn restart_daemon(runner: &dyn CommandRunner) -> Result<()> {
    systemctl::daemon_reload(runner)?;
    Ok(systemctl::try_restart(runner, DAEMON)?)
}

fn run_line(runner: &dyn CommandRunner, line: &CommandLine) -> Result<String, RpmOstreeError> {
    ask_rpm_ostree(runner, line)
}
