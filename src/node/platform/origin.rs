//! The origin file of the booted deployment: how rpm-ostree changes the image on this node.

use super::{BootFiles, Seen};
use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::root::{Root, RootPath};
use crate::node::booted;
use crate::node::deploy_directories::{self, is_name};

/// The sections of rpm-ostree in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OriginSections {
    /// Path of the file.
    pub place: String,
    /// Requested packages, by name.
    pub requested: Vec<String>,
    /// Packages that were installed from files, by name, version, release and architecture.
    pub local: Vec<String>,
    /// Packages of the image that are removed.
    pub removed: Vec<String>,
    /// Packages from files that replace packages of the image.
    pub replaced: Vec<String>,
    /// The initramfs is built on the node.
    pub own_initramfs: bool,
}

impl OriginSections {
    /// Reads the file of the running deployment, or else of the one named by the kernel command line or the default boot entry.
    pub(super) fn observe(root: &Root, boot: &BootFiles, command_line: &Seen<Kargs>) -> Seen<Self> {
        if let Some(file) = origin_of_running(root)? {
            return Self::read_file(root, &file);
        }
        let of_line = |line: &Kargs| {
            let mut tokens = line.tokens().iter();
            tokens.find_map(|token| Some(token.strip_prefix("ostree=")?.to_owned()))
        };
        let of_kernel = command_line.as_ref().ok().and_then(of_line);
        let of_entry = || {
            boot.booted_entry(command_line)?
                .ostree_link()
                .map(str::to_owned)
        };
        let link = of_kernel
            .or_else(of_entry)
            .ok_or("no boot entry and no kernel argument names the deployment")?;
        let file = origin_of_link(root, &link)?
            .ok_or_else(|| format!("{link} leads to no deployment below /sysroot"))?;
        Self::read_file(root, &file)
    }

    fn read_file(root: &Root, file: &RootPath) -> Seen<Self> {
        match root.read_small(file) {
            Ok(Some(bytes)) => Ok(Self::parse_text(
                file.to_string(),
                &String::from_utf8_lossy(&bytes),
            )),
            Ok(None) => Err(format!("{file} is missing below this root").into()),
            Err(error) => Err(Reason::from_error(error)),
        }
    }

    fn parse_text(place: String, text: &str) -> Self {
        let mut origin = Self {
            place,
            ..Self::default()
        };
        let mut section = "";
        for line in text.lines().map(str::trim) {
            if let Some(name) = line
                .strip_prefix('[')
                .and_then(|rest| rest.strip_suffix(']'))
            {
                section = name;
                continue;
            }
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            if (section, key.trim()) == ("rpmostree", "regenerate-initramfs") {
                origin.own_initramfs = value.trim() == "true";
                continue;
            }
            let list = match (section, key.trim()) {
                ("packages", "requested") => &mut origin.requested,
                ("packages", "requested-local" | "requested-local-fileoverride") => {
                    &mut origin.local
                }
                ("overrides", "remove") => &mut origin.removed,
                ("overrides", "replace-local") => &mut origin.replaced,
                _ => continue,
            };
            let words = value
                .split(';')
                .map(str::trim)
                .filter(|word| !word.is_empty());
            list.extend(words.map(|word| without_digest(word).to_owned()));
        }
        origin
    }
}

/// Strips the digest that precedes the names of local packages.
fn without_digest(word: &str) -> &str {
    let word = word.strip_prefix("sha256:").unwrap_or(word);
    match word.split_once(':') {
        Some((digest, name)) if digest.len() == 64 => name,
        _ => word,
    }
}

/// Returns the origin file of the running deployment, which is identified by its directory: the `ostree=` of a running kernel
/// goes stale with the next change of the boot entries.
fn origin_of_running(root: &Root) -> Seen<Option<RootPath>> {
    if !root.is_live() {
        return Ok(None);
    }
    let name = booted::find_booted_deployment(root, true).map_err(Reason::from_error)?;
    let all = deploy_directories::list_deploy_directories(root).map_err(Reason::from_error)?;
    let beside = |name: String| {
        let running = all.iter().find(|one| one.name == name)?;
        let beside = running.path.parent()?.join(&format!("{name}.origin"));
        beside.ok()
    };
    Ok(name.and_then(beside))
}

/// Returns the origin file next to the deployment that `/ostree/boot.N/STATEROOT/CHECKSUM/INDEX` links to. The link of a
/// running kernel may no longer exist; the stateroot's deployment is then used if there is only one.
fn origin_of_link(root: &Root, link: &str) -> Seen<Option<RootPath>> {
    let Some(stateroot) = link.split('/').nth(3) else {
        return Ok(None);
    };
    let folder = RootPath::fixed(paths::STATEROOTS).join(&format!("{stateroot}/deploy"));
    let folder = folder.map_err(Reason::from_error)?;
    let at = RootPath::fixed(paths::SYSROOT).join(link);
    let target = root.read_link(&at.map_err(Reason::from_error)?);
    let target = target.map_err(Reason::from_error)?;
    let name = target.and_then(|target| Some(target.rsplit('/').next()?.to_owned()));
    let mut all = root.list(&folder).map_err(Reason::from_error)?;
    all.retain(|name| is_name(name));
    let only = || all.pop().filter(|_| all.is_empty());
    let name = name.filter(|name| is_name(name)).or_else(only);
    Ok(name.and_then(|name| folder.join(&format!("{name}.origin")).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sections_of_rpm_ostree_are_read() {
        let digest = "a".repeat(64);
        let text = format!(
            "[origin]\nrequested=no\n[packages]\nrequested=usbguard;sysstat;\nrequested-local={digest}:x-1-1.el9.x86_64;\n\
             [overrides]\nremove=y;\nreplace-local=sha256:{digest}:z-2-1.noarch\n[x]\nremove=no\n\
             [rpmostree]\nregenerate-initramfs=true\n"
        );
        let read = OriginSections::parse_text("p".to_owned(), &text);
        let wanted = OriginSections {
            place: "p".to_owned(),
            requested: vec!["usbguard".to_owned(), "sysstat".to_owned()],
            local: vec!["x-1-1.el9.x86_64".to_owned()],
            removed: vec!["y".to_owned()],
            replaced: vec!["z-2-1.noarch".to_owned()],
            own_initramfs: true,
        };
        assert_eq!(read, wanted);
    }
}
