//! The target image: its tree, and the facts that several checks need.

use serde::Deserialize;

use crate::node::OsRelease;
use crate::node::images::tree::{ImageTree, ModuleLists};

/// The image that the node is going to run.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// The files of the image.
    pub tree: ImageTree,
    /// Its `os-release`.
    pub os_release: OsRelease,
    /// Version of its kernel, such as `6.12.0-55.el10.x86_64`; `None` if the tree has no kernel or several.
    pub kernel: Option<String>,
    /// The modules of this kernel; empty if the tree has no module lists.
    pub modules: ModuleLists,
    /// Its packages, if the image lists them.
    pub packages: Option<Vec<Package>>,
}

/// A package of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Name.
    pub name: String,
    /// Version, without epoch and release.
    pub version: String,
    /// Release.
    pub release: String,
    /// Architecture as rpm names it.
    pub architecture: String,
}

/// The package list that the build of a node image leaves in the image.
const PACKAGE_LIST: &str = "usr/share/openshift/base/meta.json";

impl Target {
    /// Extracts the facts from a tree.
    pub fn from_tree(tree: ImageTree) -> Self {
        let os_release = OsRelease::parse(&tree.text_of("usr/lib/os-release").unwrap_or_default());
        let kernel = match kernels_of(&tree).as_slice() {
            [kernel] => Some((*kernel).to_owned()),
            _ => None,
        };
        let packages = tree
            .text_of(PACKAGE_LIST)
            .and_then(|text| parse_packages(&text));
        let modules = kernel
            .as_deref()
            .map_or_else(ModuleLists::default, |version| {
                ModuleLists::parse(|name| {
                    let path = format!("usr/lib/modules/{version}/{name}");
                    tree.bytes_of(&path).map(<[u8]>::to_vec)
                })
            });
        Self {
            os_release,
            kernel,
            modules,
            packages,
            tree,
        }
    }

    /// Returns the versions of all kernels of the image.
    pub fn kernel_versions(&self) -> Vec<&str> {
        kernels_of(&self.tree)
    }

    /// Returns the path of a file that belongs to the kernel, such as `modules.alias`.
    pub fn kernel_file(&self, name: &str) -> Option<String> {
        let version = self.kernel.as_deref()?;
        Some(format!("usr/lib/modules/{version}/{name}"))
    }

    /// Returns the package of this name.
    pub fn find_package(&self, name: &str) -> Option<&Package> {
        self.packages.as_ref()?.iter().find(|one| one.name == name)
    }
}

fn kernels_of(tree: &ImageTree) -> Vec<&str> {
    let versions = tree.files_below("usr/lib/modules").filter_map(|path| {
        let (version, name) = path.strip_prefix("usr/lib/modules/")?.split_once('/')?;
        (name == "vmlinuz").then_some(version)
    });
    versions.collect()
}

/// Reads `rpmdb.pkglist`: arrays of name, epoch, version, release and architecture.
fn parse_packages(text: &str) -> Option<Vec<Package>> {
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "rpmdb.pkglist")]
        list: Vec<(String, String, String, String, String)>,
    }
    let meta: Meta = serde_json::from_str(text).ok()?;
    let packages = meta.list.into_iter();
    Some(
        packages
            .map(|(name, _, version, release, architecture)| Package {
                name,
                version,
                release,
                architecture,
            })
            .collect(),
    )
}
