//! The rules of spec 2 that the conversion relies on, applied to the config as written.
//!
//! Anything that spec 3 checks in the same way (modes, owners, unit names, unit files, data URLs) is left to spec 3's checks.

use super::model::{
    Create, Filesystem, Spec2Config, Spec2Directory, Spec2File, Spec2Link, Spec2User,
};
use crate::config::document::finding::{Finding, path_below};

/// URL schemes of spec 2 that spec 3 also has.
const SCHEMES: [&str; 5] = ["http", "https", "tftp", "s3", "data"];

/// Raises 2.0 and 2.1 to 2.2: implied values become explicit.
pub(super) fn raise_to_2_2(config: &mut Spec2Config, minor: u64, at: &str) -> Vec<Finding> {
    let mut warnings = Vec::new();
    if minor == 0 {
        for file in &mut config.storage.files {
            file.user.id.get_or_insert(0);
            file.group.id.get_or_insert(0);
        }
    }
    if minor >= 2 {
        return warnings;
    }
    let mut explicit = |mode: &mut Option<i64>, path: String| {
        if mode.is_none() {
            *mode = Some(0);
            let message = format!(
                "missing, which means 0000 in spec 2.{minor}: only root can read it. Give a mode if that is not meant"
            );
            warnings.push(Finding::warning(path_below(at, &path), message));
        }
    };
    for (index, file) in config.storage.files.iter_mut().enumerate() {
        explicit(&mut file.mode, format!("storage.files[{index}].mode"));
    }
    for (index, directory) in config.storage.directories.iter_mut().enumerate() {
        let path = format!("storage.directories[{index}].mode");
        explicit(&mut directory.mode, path);
    }
    warnings
}

/// Checks a config of 2.2 or later.
pub(super) fn check_config(config: &Spec2Config, at: &str) -> Vec<Finding> {
    let mut rules = Spec2Checker {
        at,
        findings: Vec::new(),
    };
    rules.check_references(config);
    rules.check_networkd(config);
    rules.check_sections(config);
    rules.check_nodes(config);
    for (index, user) in config.passwd.users.iter().enumerate() {
        rules.check_user(&format!("passwd.users[{index}]"), user);
    }
    rules.findings
}

struct Spec2Checker<'a> {
    at: &'a str,
    findings: Vec<Finding>,
}

impl Spec2Checker<'_> {
    fn add_error(&mut self, path: &str, message: impl Into<String>) {
        self.findings
            .push(Finding::error(path_below(self.at, path), message));
    }

    fn add_warning(&mut self, path: &str, message: impl Into<String>) {
        self.findings
            .push(Finding::warning(path_below(self.at, path), message));
    }

    fn check_references(&mut self, config: &Spec2Config) {
        let config_at = "ignition.config";
        let references = &config.ignition.config;
        for (index, reference) in references.append.iter().enumerate() {
            let path = format!("{config_at}.append[{index}]");
            let hash = reference.verification.hash.as_deref();
            self.check_source(&path, &reference.source, hash);
        }
        if let Some(reference) = &references.replace {
            let hash = reference.verification.hash.as_deref();
            self.check_source(&format!("{config_at}.replace"), &reference.source, hash);
        }
        let authorities = &config.ignition.security.tls.certificate_authorities;
        for (index, reference) in authorities.iter().enumerate() {
            let path = format!("ignition.security.tls.certificateAuthorities[{index}]");
            let hash = reference.verification.hash.as_deref();
            self.check_source(&path, &reference.source, hash);
        }
    }

    /// Checks the schemes and the only hash function of spec 2. An empty source means an empty file.
    fn check_source(&mut self, path: &str, source: &str, hash: Option<&str>) {
        let scheme = source.split_once(':').map_or("", |(scheme, _)| scheme);
        if scheme == "oem" {
            let message = "oem: URLs have no place in spec 3; inline the contents as a data URL";
            self.add_error(&format!("{path}.source"), message);
        } else if !source.is_empty() && !SCHEMES.contains(&scheme) {
            let message = "has none of the URL schemes http, https, tftp, s3 and data";
            self.add_error(&format!("{path}.source"), message);
        }
        if let Some(problem) = hash.and_then(malformed_hash) {
            self.add_error(&format!("{path}.verification.hash"), problem);
        }
    }

    fn check_networkd(&mut self, config: &Spec2Config) {
        for index in 0..config.networkd.units.len() {
            self.add_error(
                &format!("networkd.units[{index}]"),
                "spec 3 has no networkd units; write the file below /etc/systemd/network instead",
            );
        }
    }

    /// Checks named file systems, and deprecated keys of partitions.
    fn check_sections(&mut self, config: &Spec2Config) {
        for (index, filesystem) in config.storage.filesystems.iter().enumerate() {
            self.check_filesystem(&format!("storage.filesystems[{index}]"), filesystem);
        }
        for (i, disk) in config.storage.disks.iter().enumerate() {
            let partitions = disk.get("partitions").and_then(serde_json::Value::as_array);
            for (j, partition) in partitions.into_iter().flatten().enumerate() {
                for key in ["size", "start"] {
                    let given = partition.get(key).and_then(serde_json::Value::as_i64);
                    if given.is_some_and(|sectors| sectors != 0) {
                        let message = format!("is deprecated and not converted; use {key}MiB");
                        let path = format!("storage.disks[{i}].partitions[{j}].{key}");
                        self.add_error(&path, message);
                    }
                }
            }
        }
    }

    fn check_filesystem(&mut self, path: &str, filesystem: &Filesystem) {
        if filesystem.name != "root" {
            let message = format!(
                "file system {:?} has no known mount point; only \"root\" is converted",
                filesystem.name
            );
            self.add_error(path, message);
        } else if filesystem.mount.is_some() {
            let message =
                "the definition of \"root\" is dropped; the root file system exists already";
            self.add_warning(&format!("{path}.mount"), message);
        }
    }

    fn check_nodes(&mut self, config: &Spec2Config) {
        let storage = &config.storage;
        for (index, file) in storage.files.iter().enumerate() {
            let path = format!("storage.files[{index}]");
            let Spec2File {
                filesystem,
                path: node,
                ..
            } = file;
            self.check_node(&path, filesystem, node);
            self.check_file(&path, file);
        }
        for (index, directory) in storage.directories.iter().enumerate() {
            let Spec2Directory {
                filesystem, path, ..
            } = directory;
            self.check_node(&format!("storage.directories[{index}]"), filesystem, path);
        }
        for (index, link) in storage.links.iter().enumerate() {
            let Spec2Link {
                filesystem, path, ..
            } = link;
            self.check_node(&format!("storage.links[{index}]"), filesystem, path);
        }
    }

    fn check_node(&mut self, at: &str, filesystem: &str, path: &str) {
        match filesystem {
            "root" => {}
            "" => self.add_error(
                &format!("{at}.filesystem"),
                "missing; spec 2 wants \"root\" here",
            ),
            other => self.add_error(
                &format!("{at}.filesystem"),
                format!(
                    "file system {other:?} has no known mount point; only \"root\" is converted"
                ),
            ),
        }
        if !path.starts_with('/') {
            self.add_error(
                &format!("{at}.path"),
                format!("{path:?} is not an absolute path"),
            );
        }
    }

    fn check_file(&mut self, path: &str, file: &Spec2File) {
        if file.append && file.overwrite == Some(true) {
            let message = "a file cannot be both appended to and overwritten";
            self.add_error(&format!("{path}.append"), message);
        }
        let hash = file.contents.verification.hash.as_deref();
        self.check_source(&format!("{path}.contents"), &file.contents.source, hash);
    }

    fn check_user(&mut self, path: &str, user: &Spec2User) {
        let Some(create) = &user.create else {
            return;
        };
        let path = format!("{path}.create");
        if has_user_level_fields(user) {
            let message = "the user has such fields itself too; keep those and drop create";
            self.add_error(&path, message);
        } else if *create != Create::default() {
            let message = "is deprecated; its fields become those of the user. The Machine Config Daemon would drop them";
            self.add_warning(&path, message);
        } else {
            self.add_warning(&path, "is deprecated and has no effect here");
        }
    }
}

fn has_user_level_fields(user: &Spec2User) -> bool {
    let texts = [
        &user.gecos,
        &user.home_dir,
        &user.primary_group,
        &user.shell,
    ];
    let flags = [
        user.no_create_home,
        user.no_user_group,
        user.no_log_init,
        user.system,
    ];
    user.uid.is_some()
        || !user.groups.is_empty()
        || texts.iter().any(|text| !text.is_empty())
        || flags.contains(&true)
}

fn malformed_hash(hash: &str) -> Option<&'static str> {
    let Some(sum) = hash.strip_prefix("sha512-") else {
        return Some("is not of the form `sha512-HEX`, the only one of spec 2");
    };
    let hex = sum.len() == 128 && sum.bytes().all(|b| b.is_ascii_hexdigit());
    (!hex).then_some("does not have the 128 hexadecimal digits of a sha512 hash")
}
