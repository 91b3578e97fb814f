//! The conditions that units wait for during boot, from files: marks below `/run`, name servers, and images that they need.

use crate::host::root::{Root, RootError, RootPath};
use crate::node::images_on_disk;

/// Mark of the dispatcher script: the bridge br-ex is up.
pub const BR_EX_UP: &str = "run/nodeip-configuration/br-ex-up";
/// The address that was chosen during this boot.
pub const PRIMARY_ADDRESS: &str = "run/nodeip-configuration/primary-ip";
/// Exists if nmstate has created the bridge.
pub const NMSTATE_APPLIED: &str = "etc/nmstate/openshift/applied";
/// Mark of the resolv-prepender: the node's resolver is set up.
pub const RESOLVER_DONE: &str = "run/resolv-prepender-kni-conf-done";
/// The name servers that NetworkManager knows.
pub const RESOLVER: &str = "run/NetworkManager/resolv.conf";
/// The drop-in that makes the kubelet wait for that mark.
pub const KUBELET_WAITS: &str =
    "etc/systemd/system/kubelet.service.d/10-mco-on-prem-wait-resolv.conf";
/// Units that the kubelet requires.
const REQUIRED: &str = "etc/systemd/system/kubelet-dependencies.target.requires";

/// Units that need an image, each with the file that names it.
const NEEDS_IMAGE: [(&str, &str); 3] = [
    (
        "nodeip-configuration.service",
        "etc/systemd/system/nodeip-configuration.service",
    ),
    (
        "nodeip-configuration-vsphere-upi.service",
        "etc/systemd/system/nodeip-configuration-vsphere-upi.service",
    ),
    (
        "on-prem-resolv-prepender.service",
        "usr/local/bin/resolv-prepender.sh",
    ),
];

/// The conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BootWaits {
    /// The bridge br-ex was up.
    pub br_ex_up: bool,
    /// The chosen address.
    pub primary_address: Option<String>,
    /// nmstate has made the bridge.
    pub nmstate_applied: bool,
    /// The resolver is set up.
    pub resolver_done: bool,
    /// NetworkManager knows a name server.
    pub has_servers: bool,
    /// The kubelet waits for the resolver.
    pub kubelet_waits: bool,
    /// Images that units need.
    pub images: Vec<NeededImage>,
}

/// An image that a unit needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededImage {
    /// The unit.
    pub unit: &'static str,
    /// The file that names the image.
    pub place: String,
    /// The image.
    pub image: String,
    /// The image is in the node's store; `None` if that is unknown.
    pub here: Option<bool>,
    /// The kubelet does not start without this unit.
    pub required: bool,
}

impl BootWaits {
    /// Returns the image that a unit needs.
    pub fn image_of(&self, unit: &str) -> Option<&NeededImage> {
        self.images.iter().find(|one| one.unit == unit)
    }
}

/// Reads the conditions.
///
/// # Errors
/// A file cannot be read.
pub fn read_boot_waits(root: &Root) -> Result<BootWaits, RootError> {
    let exists = |path| root.exists(&RootPath::fixed(path));
    let text = |path| -> Result<Option<String>, RootError> {
        let bytes = root.read_small(&RootPath::fixed(path))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    };
    let mut images = Vec::new();
    for (unit, place) in NEEDS_IMAGE {
        if let Some(image) = text(place)?.as_deref().and_then(image_in) {
            let required = match RootPath::fixed(REQUIRED).join(unit) {
                Ok(link) => root.exists(&link)?,
                Err(_) => false,
            };
            images.push(NeededImage {
                unit,
                place: format!("/{place}"),
                here: images_on_disk::has_image(root, &image).ok().flatten(),
                image,
                required,
            });
        }
    }
    let servers = text(RESOLVER)?.unwrap_or_default();
    Ok(BootWaits {
        br_ex_up: exists(BR_EX_UP)?,
        primary_address: text(PRIMARY_ADDRESS)?.filter(|address| !address.is_empty()),
        nmstate_applied: exists(NMSTATE_APPLIED)?,
        resolver_done: exists(RESOLVER_DONE)?,
        has_servers: servers.contains("nameserver"),
        kubelet_waits: text(KUBELET_WAITS)?.is_some_and(|text| !text.is_empty()),
        images,
    })
}

/// Returns the first word that contains a digest.
fn image_in(text: &str) -> Option<String> {
    let mut words = text.split(|letter: char| letter.is_whitespace() || "\"'\\;".contains(letter));
    let image = words.find(|word| word.contains("@sha256:"))?;
    Some(image.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_the_word_with_a_digest() {
        let text = "ExecStart=/bin/bash -c \" \\\n  podman run --net=host \\\n  quay.example/cfg@sha256:12ab \\\n  node-ip set; \\\n done\"\n";
        assert_eq!(
            image_in(text).as_deref(),
            Some("quay.example/cfg@sha256:12ab")
        );
        let quoted = "if ! podman image exists \"quay.example/cfg@sha256:12ab\"; then";
        assert_eq!(
            image_in(quoted).as_deref(),
            Some("quay.example/cfg@sha256:12ab")
        );
        assert_eq!(image_in("podman run quay.example/cfg:latest"), None);
    }
}
