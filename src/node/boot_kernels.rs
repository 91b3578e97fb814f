//! The kernels of the boot entries, compared with those of their deployments and with the checksum in their directory's name.

use std::fs::File;
use std::io::{self, Read};

use super::bootloader::BootEntry;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootError, RootPath, digest_reader};

/// The kernel of a boot entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootKernel {
    /// The entry's file, without `.conf`.
    pub entry: String,
    /// It is the default entry.
    pub is_default: bool,
    /// Kernel and initramfs.
    pub files: Vec<BootFile>,
    /// The checksums, if they were computed.
    pub sums: Option<Result<KernelSums, Reason>>,
}

/// A file of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFile {
    /// Path below `/boot`.
    pub path: String,
    /// Its size; `None` if it is missing.
    pub size: Option<u64>,
    /// Path of the original kernel in the deployment.
    pub own: String,
    /// Size of the original; `None` if it is missing, or the deployment is not visible.
    pub own_size: Option<u64>,
}

/// Checksums of kernel and initramfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSums {
    /// The checksum in the name of the directory.
    pub expected: String,
    /// The checksum of the files in `/boot`; `None` if one is missing.
    pub boot: Option<String>,
    /// The checksum of the originals; `None` if one is missing.
    pub own: Option<String>,
}

impl BootFile {
    /// Returns true if a size or a missing file indicates damage.
    pub fn is_suspicious(&self) -> bool {
        match self.size {
            None | Some(0) => true,
            size => self.own_size.is_some() && self.own_size != size,
        }
    }
}

/// Reads the kernels of all entries. They are hashed if `deep` is set or a size indicates damage.
///
/// # Errors
/// A path cannot be resolved.
pub fn read_boot_kernels(
    root: &Root,
    entries: &[BootEntry],
    deep: bool,
) -> Result<Vec<BootKernel>, RootError> {
    let mut all: Vec<BootKernel> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let Some((directory, expected)) = of_ostree(entry) else {
            continue;
        };
        let files = list_files(root, entry, directory)?;
        // Entries may share a kernel.
        if files.is_empty() || all.iter().any(|other| same_kernel(&other.files, &files)) {
            continue;
        }
        let hashes = deep || files.iter().any(BootFile::is_suspicious);
        let sums = match hashes {
            false => None,
            true if has_device_tree(root, directory)? => {
                Some(Err("checksums with device trees are not known here".into()))
            }
            true => Some(compare_sums(root, expected, &files)),
        };
        all.push(BootKernel {
            entry: entry.file.clone(),
            is_default: index == 0,
            files,
            sums,
        });
    }
    Ok(all)
}

fn same_kernel(one: &[BootFile], other: &[BootFile]) -> bool {
    let paths = |files: &[BootFile]| {
        files
            .iter()
            .map(|file| file.path.clone())
            .collect::<Vec<_>>()
    };
    paths(one) == paths(other)
}

/// Returns the directory of the entry's kernel and the checksum in its name.
fn of_ostree(entry: &BootEntry) -> Option<(&str, &str)> {
    let directory = entry.kernel_directory()?;
    let (_, checksum) = directory.rsplit_once('-')?;
    let is_checksum = checksum.len() == 64 && checksum.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_checksum.then_some((directory, checksum))
}

fn list_files(root: &Root, entry: &BootEntry, directory: &str) -> Result<Vec<BootFile>, RootError> {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let kernel = name(&entry.linux);
    let Some(version) = kernel.strip_prefix("vmlinuz-") else {
        return Ok(Vec::new());
    };
    let link = entry.ostree_link().unwrap_or_default();
    let modules = format!("/{}{link}/usr/lib/modules/{version}", paths::SYSROOT);
    let initramfs = entry.initrd.iter().map(|path| name(path));
    let initramfs = initramfs.filter(|name| name.starts_with("initramfs-"));
    let mut all = Vec::new();
    for (name, originals) in std::iter::once((kernel.clone(), &["vmlinuz"][..]))
        .chain(initramfs.map(|name| (name, &["initramfs.img", "initramfs"][..])))
    {
        let path = format!("/{}/{directory}/{name}", paths::BOOT_OSTREE);
        let mut file = BootFile {
            size: file_size(root, &path)?,
            path,
            own: String::new(),
            own_size: None,
        };
        for original in originals {
            file.own = format!("{modules}/{original}");
            file.own_size = file_size(root, &file.own)?;
            if file.own_size.is_some() {
                break;
            }
        }
        all.push(file);
    }
    Ok(all)
}

fn file_size(root: &Root, path: &str) -> Result<Option<u64>, RootError> {
    let Some(file) = open_file(root, path)? else {
        return Ok(None);
    };
    Ok(file.metadata().ok().map(|metadata| metadata.len()))
}

fn open_file(root: &Root, path: &str) -> Result<Option<File>, RootError> {
    match RootPath::parse(path) {
        Ok(path) => root.open_followed(&path),
        Err(_) => Ok(None),
    }
}

fn has_device_tree(root: &Root, directory: &str) -> Result<bool, RootError> {
    let path = RootPath::parse(&format!("/{}/{directory}", paths::BOOT_OSTREE));
    let Ok(path) = path else { return Ok(false) };
    let names = root.list(&path)?;
    let is_tree = |name: &String| name.starts_with("devicetree") || name == "dtb";
    Ok(names.iter().any(is_tree))
}

fn compare_sums(root: &Root, expected: &str, files: &[BootFile]) -> Result<KernelSums, Reason> {
    let boot: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let own: Vec<&str> = files.iter().map(|file| file.own.as_str()).collect();
    Ok(KernelSums {
        expected: expected.to_owned(),
        boot: checksum_of(root, &boot)?,
        own: checksum_of(root, &own)?,
    })
}

/// Returns the checksum of the concatenated files; `None` if one is missing.
fn checksum_of(root: &Root, paths: &[&str]) -> Result<Option<String>, Reason> {
    let mut all: Box<dyn Read> = Box::new(io::empty());
    for path in paths {
        match open_file(root, path).map_err(Reason::from_error)? {
            Some(file) => all = Box::new(all.chain(file)),
            None => return Ok(None),
        }
    }
    let digest = digest_reader(all).map_err(|error| format!("{}: {error}", paths.join(" ")))?;
    Ok(Some(digest.1))
}

/// Returns the names of the deployments that the entries boot.
///
/// # Errors
/// A path cannot be resolved.
pub fn list_boot_deployments(root: &Root, entries: &[BootEntry]) -> Result<Vec<String>, RootError> {
    let mut all = Vec::new();
    for entry in entries {
        all.extend(deployment_of(root, entry)?);
    }
    Ok(all)
}

/// Returns the name of the deployment that an entry boots; `None` if the entry's link is broken.
///
/// # Errors
/// A path cannot be resolved.
pub fn deployment_of(root: &Root, entry: &BootEntry) -> Result<Option<String>, RootError> {
    let Some(link) = entry.ostree_link() else {
        return Ok(None);
    };
    let Ok(path) = RootPath::parse(&format!("/{}{link}", paths::SYSROOT)) else {
        return Ok(None);
    };
    let target = root.read_link(&path)?;
    Ok(target.and_then(|target| target.rsplit('/').next().map(str::to_owned)))
}
