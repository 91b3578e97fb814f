//! The origin file of a deployment: the image and packages that it was made from. rpm-ostree and bootc write the same file, and
//! it has the facts that bootc omits from its status of a node with layered packages.

use super::rpm_ostree::reference::image_of;

/// Groups that rpm-ostree adds. bootc refuses to update a deployment that has one, and `bootc switch` drops them silently.
const LAYERING: [&str; 4] = ["rpmostree", "packages", "overrides", "modules"];

/// The content of an origin file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OriginFile {
    /// `container-image-reference`, scheme included.
    pub reference: Option<String>,
    /// The refspec, if the deployment is of a plain commit.
    pub refspec: Option<String>,
    /// `custom-url`: of the daemon, `pivot://IMAGE`.
    pub custom_url: Option<String>,
    /// Packages requested on top of the image.
    pub packages: Vec<String>,
    /// Packages requested from local files.
    pub local_packages: Vec<String>,
    /// Packages of the image that are removed.
    pub removals: Vec<String>,
    /// Number of packages of the image that are replaced.
    pub replacements: usize,
    /// The initramfs is built on the node.
    pub own_initramfs: bool,
    /// The groups of rpm-ostree in the file.
    pub layering: Vec<String>,
}

impl OriginFile {
    /// Parses a file. Unknown lines are ignored.
    pub fn parse(text: &str) -> Self {
        let (mut origin, mut group) = (Self::default(), String::new());
        for line in text.lines().map(str::trim) {
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|line| line.strip_suffix(']'))
            {
                group = name.to_owned();
                if LAYERING.contains(&name) {
                    origin.layering.push(group.clone());
                }
                continue;
            }
            if line.starts_with('#') {
                continue;
            }
            if let Some((key, value)) = line.split_once('=') {
                origin.take_setting(&group, key.trim(), value.trim());
            }
        }
        origin
    }

    fn take_setting(&mut self, group: &str, key: &str, value: &str) {
        let list = || -> Vec<String> {
            let names = value.split(';').map(str::trim);
            let names = names.filter(|name| !name.is_empty());
            names.map(str::to_owned).collect()
        };
        // Local packages are listed with the digest of their file.
        let local = || list().iter().map(|one| without_digest(one)).collect();
        match (group, key) {
            ("origin", "container-image-reference") => self.reference = non_empty(value),
            ("origin", "refspec" | "baserefspec") => self.refspec = non_empty(value),
            (_, "custom-url") => self.custom_url = non_empty(value),
            ("packages", "requested") => self.packages = list(),
            ("packages", "requested-local") => self.local_packages = local(),
            ("overrides", "remove") => self.removals = list(),
            ("overrides", "replace-local" | "replace") => self.replacements += list().len(),
            ("rpmostree", "regenerate-initramfs") => self.own_initramfs = value == "true",
            _ => {}
        }
    }

    /// Returns the image in the form that the daemon compares with `osImageURL` byte by byte; empty without an image.
    pub fn image_name(&self) -> String {
        image_of(self.reference.as_deref(), self.custom_url.as_deref())
    }

    /// Returns true if rpm-ostree wrote the file: bootc writes nothing but the image reference.
    pub fn is_of_rpm_ostree(&self) -> bool {
        !self.layering.is_empty() || self.refspec.is_some() || self.custom_url.is_some()
    }
}

fn non_empty(value: &str) -> Option<String> {
    (!value.is_empty()).then(|| value.to_owned())
}

fn without_digest(name: &str) -> String {
    match name.split_once(':') {
        Some((digest, name)) if digest.len() == 64 => name.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layered_origin_still_names_its_image() {
        let text = "[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.example/os@sha256:1\n\n\
            [packages]\nrequested=usbguard;kata-containers;\nrequested-local=\
            aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:tool-1-1.x86_64;\n\
            [overrides]\nremove=kernel;\nreplace-local=b:vim-1;\n[rpmostree]\nregenerate-initramfs=true\n";
        let origin = OriginFile::parse(text);
        assert_eq!(origin.image_name(), "quay.example/os@sha256:1");
        assert_eq!(origin.packages, ["usbguard", "kata-containers"]);
        assert_eq!(origin.local_packages, ["tool-1-1.x86_64"]);
        assert_eq!(origin.removals, ["kernel"]);
        assert_eq!((origin.replacements, origin.own_initramfs), (1, true));
        assert_eq!(origin.layering, ["packages", "overrides", "rpmostree"]);
        assert!(origin.is_of_rpm_ostree());
    }

    #[test]
    fn requested_packages_are_those_of_their_section_alone() {
        let text = "[origin]\nrequested=no\n[packages]\nrequested=usbguard;kata-containers;\n[x]\nrequested=no\n";
        assert_eq!(
            OriginFile::parse(text).packages,
            ["usbguard", "kata-containers"]
        );
        assert!(OriginFile::parse("[origin]\nx=y\n").packages.is_empty());
    }

    #[test]
    fn an_image_alone_can_be_of_either_engine() {
        let text = "# made\n[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.example/os:1\n";
        let origin = OriginFile::parse(text);
        assert_eq!(origin.image_name(), "quay.example/os:1");
        assert!(!origin.is_of_rpm_ostree());
        for other in [
            "[origin]\nrefspec=a/b\n",
            "[origin]\nbaserefspec=a/b\n[packages]\n",
        ] {
            let origin = OriginFile::parse(other);
            assert!(origin.is_of_rpm_ostree());
            assert_eq!(origin.image_name(), "");
        }
        let pivoted = OriginFile::parse("[origin]\ncustom-url=pivot://quay.example/os:1\n");
        assert_eq!(pivoted.image_name(), "quay.example/os:1");
    }
}
