//! The operating system of the root: its image and kernel arguments, from files.

use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath, skip_obstacle};
use crate::node::command::origin::OriginFile;

use super::bootloader::read_boot_entries;
use super::host::Host;
use super::kernel::kernel_command_line;
use super::system::OF_DEPLOYMENTS;

/// The operating system, as far as files describe it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Os {
    /// The image of the root's deployment in the daemon's form (docs/develop/agreement.md: Operating system); `None` if unknown, empty
    /// if the deployment has no image.
    pub image: Option<String>,
    /// Packages requested on top of the image, if the deployment is known.
    pub packages: Option<Vec<String>>,
    /// The arguments of the running kernel, if it is the root's kernel.
    pub kernel_arguments: Option<Kargs>,
    /// The arguments of the default boot entry, without those that belong to a deployment, if another kernel runs; `None` if
    /// no entry is visible.
    pub entry_arguments: Option<Kargs>,
}

impl Os {
    /// Reads the origin of the deployment and the kernel command line.
    pub fn observe(root: &Root, host: &Host) -> Result<Self, RootError> {
        let boots_this = host.live || host.in_initramfs;
        let arguments = boots_this.then(kernel_command_line).flatten();
        let origin = match &host.deployment {
            Some(deployment) => read_origin(root, deployment)?,
            None => None,
        };
        let entries = if boots_this {
            Vec::new()
        } else {
            read_boot_entries(root)?
        };
        let default = entries.first();
        Ok(Self {
            image: origin.as_deref().map(of_origin),
            packages: origin
                .as_deref()
                .map(|text| OriginFile::parse(text).packages),
            kernel_arguments: arguments.map(|line| Kargs::parse(line.trim())),
            entry_arguments: default.map(|entry| entry.options.without(&OF_DEPLOYMENTS)),
        })
    }
}

/// Returns the origin file next to the deployment, which a running deployment sees below its `sysroot`.
///
/// # Errors
/// The file cannot be read.
pub fn read_origin(root: &Root, deployment: &str) -> Result<Option<String>, RootError> {
    let stateroots = RootPath::fixed(paths::STATEROOTS);
    for name in skip_obstacle(root.list(&stateroots))? {
        let file = format!("/{}/{name}/deploy/{deployment}.origin", paths::STATEROOTS);
        let Ok(path) = RootPath::parse(&file) else {
            continue;
        };
        if let Some(bytes) = root.read(&path)? {
            return Ok(Some(String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    Ok(None)
}

/// Returns the pull specification in an origin file, in the form that the daemon compares with `osImageURL` byte by byte.
pub fn of_origin(origin: &str) -> String {
    OriginFile::parse(origin).image_name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_reference_gives_the_string_that_the_daemon_compares() {
        for (reference, image) in [
            (
                "ostree-unverified-registry:quay.example/os@sha256:1",
                "quay.example/os@sha256:1",
            ),
            (
                "ostree-unverified-image:docker://quay.example/os@sha256:1",
                "quay.example/os@sha256:1",
            ),
            (
                "ostree-unverified-image:registry:quay.example/os:1",
                "quay.example/os:1",
            ),
            (
                "ostree-image-signed:docker://quay.example/os:1",
                "quay.example/os:1",
            ),
            (
                "ostree-remote-registry:fedora:quay.example/os:1",
                "quay.example/os:1",
            ),
            (
                "ostree-remote-image:fedora:docker://quay.example/os:1",
                "quay.example/os:1",
            ),
            (
                "ostree-unverified-image:containers-storage:quay.example/os@sha256:1",
                "quay.example/os@sha256:1",
            ),
            ("ostree-unverified-image:oci:/mnt/os", "/mnt/os"),
        ] {
            let origin = format!("[origin]\ncontainer-image-reference={reference}\n");
            assert_eq!(of_origin(&origin), image, "{reference}");
        }
        assert_eq!(of_origin("[origin]\nrefspec=rhcos/x\n"), "");
        assert_eq!(
            of_origin(
                "[origin]\nbaserefspec=x\n\n[rpmostree]\ncustom-url=pivot://quay.example/os@sha256:1\n"
            ),
            "quay.example/os@sha256:1"
        );
    }
}
