//! Gathers the facts of a snapshot, through the readers that other commands use. Nothing is changed, and what cannot be
//! read is left out with its reason.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::base::kargs::Kargs;
use crate::base::paths;
use crate::base::reason::Reason;
use crate::base::secrets::{is_secret_name, redacted_argument, redacted_url};
use crate::base::time::format_utc;
use crate::change::session::known_signer;
use crate::change::source::server;
use crate::diagnose::recorder::bounds::bound_facts;
use crate::diagnose::recorder::digest::DigestKey;
use crate::diagnose::recorder::known::{FileStamp, KnownFiles};
use crate::diagnose::recorder::{Area, AreaFacts, Snapshot, secrets};
use crate::host::root::{Root, RootPath, sha256_hex};
use crate::judge::daemon::annotations;
use crate::node::command::systemctl::ActiveState;
use crate::node::command::{CommandRunner, rpm, systemctl};
use crate::node::platform::{read_interfaces, read_unmounted_partitions};
use crate::node::{Host, OsRelease, bootloader, certificates, deploy_directories, os};

/// Entries of `/etc` that are listed one by one.
pub const MAX_LISTED: usize = 2500;
/// Disks that are listed.
const MAX_DISKS: usize = 200;
/// Units that are listed.
const MAX_UNITS: usize = 400;
/// Certificates that are listed.
const MAX_CERTIFICATES: usize = 400;
/// Largest text of a small file.
const MAX_TEXT: u64 = 256 << 10;

/// Reads a node for a snapshot.
pub(super) struct Observer<'a> {
    /// The root.
    pub root: &'a Root,
    /// Starts programs; of a root that does not run, none is started.
    pub runner: &'a dyn CommandRunner,
    /// The key of the digests.
    pub key: &'a DigestKey,
    /// Digests of the last snapshot.
    pub known: &'a KnownFiles,
    /// Digests of this one.
    pub fresh: KnownFiles,
    /// The snapshot before: versions of the same deployment are not asked for again.
    pub before: Option<&'a Snapshot>,
    /// Time by the clock of this machine; seconds since 1970.
    pub now: u64,
    /// Number of files that were read.
    pub files_read: usize,
    /// Number of bytes that were read.
    pub bytes_read: u64,
}

impl Observer<'_> {
    /// Reads all facts.
    pub(super) fn observe(&mut self) -> Snapshot {
        let mut all = Snapshot::default();
        all.put_area(Area::BootEntries, self.boot_entries());
        all.put_area(Area::Deployment, self.deployment_facts());
        all.put_area(Area::Origin, self.origin_facts());
        all.put_area(Area::CommandLine, self.command_line());
        all.put_area(Area::BootFiles, self.boot_files());
        if let Some(facts) = self.system_partition().transpose() {
            all.put_area(Area::Esp, facts);
        }
        all.put_area(Area::Interfaces, self.interface_facts());
        all.put_area(Area::Addresses, self.address_facts());
        all.put_area(Area::Disks, self.disk_facts());
        all.put_area(Area::Certificates, Ok(self.certificate_facts()));
        let etc = self.tree_facts(&RootPath::fixed("etc"));
        let etc = etc.map_err(Reason::from_error);
        let etc = etc.and_then(|facts| facts.ok_or_else(|| "/etc is missing".into()));
        all.put_area(Area::Etc, etc.map(|facts| bound_facts(facts, MAX_LISTED)));
        all.put_area(Area::Units, self.unit_facts());
        all.put_area(Area::Config, self.config_facts());
        all.put_area(Area::Daemon, self.daemon_facts());
        all.put_area(Area::Clock, self.clock_facts());
        let versions = self.version_facts(&all);
        all.put_area(Area::Versions, versions);
        all
    }

    /// Returns the text of a file; `None` if it is missing.
    fn read_text(&self, path: &str) -> Result<Option<String>, Reason> {
        let path = RootPath::parse(path).map_err(Reason::from_error)?;
        let bytes = self.root.read_within(&path, MAX_TEXT);
        let bytes = bytes.map_err(Reason::from_error)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()))
    }

    fn path_exists(&self, path: &'static str) -> Result<bool, Reason> {
        let exists = self.root.exists(&RootPath::fixed(path));
        exists.map_err(Reason::from_error)
    }

    fn list_names(&self, path: &RootPath) -> Result<Vec<String>, Reason> {
        self.root.list(path).map_err(Reason::from_error)
    }

    /// Returns the size of a file in bytes; `None` if it is missing.
    fn file_size(&self, path: &RootPath) -> Result<Option<i64>, Reason> {
        let place = self.root.open_place(path).map_err(Reason::from_error)?;
        let Some(place) = place else { return Ok(None) };
        let stat = place.stat();
        let stat = stat.map_err(|errno| format!("{path}: {}", errno.desc()))?;
        Ok(stat.map(|stat| stat.st_size))
    }

    /// Returns `NAME=VALUE` with a digest in place of what is secret in it.
    fn show_setting(&self, setting: &str) -> String {
        let setting = match setting.split_once('=') {
            Some((name, value)) if value.contains("://") => {
                format!("{name}={}", redacted_url(value))
            }
            None if setting.contains("://") => redacted_url(setting),
            _ => setting.to_owned(),
        };
        let digest = |secret: &str| format!("#{}", self.key.digest(secret.as_bytes()));
        redacted_argument(&setting, &digest).into_owned()
    }

    /// Returns the arguments by their names.
    fn argument_facts(&self, kargs: &Kargs) -> AreaFacts {
        let mut facts = AreaFacts::new();
        for token in kargs.tokens() {
            let shown = self.show_setting(token);
            let (name, value) = shown.split_once('=').unwrap_or((&shown, ""));
            let known = facts.entry(name.to_owned()).or_default();
            let space = if known.is_empty() { "" } else { " " };
            *known = format!("{known}{space}{value}");
        }
        facts
    }

    /// Returns the value of a variable of the boot loader, which may hold kernel arguments.
    fn show_variable(&self, key: &str, value: &str) -> String {
        if is_secret_name(key) {
            return format!("#{}", self.key.digest(value.as_bytes()));
        }
        let kargs = Kargs::parse(value);
        let shown = kargs.tokens().iter().map(|token| self.show_setting(token));
        shown.collect::<Vec<_>>().join(" ")
    }

    fn argument_line(&self, kargs: &Kargs) -> String {
        let facts = self.argument_facts(kargs);
        let words = facts.iter().map(|(name, value)| match value.as_str() {
            "" => name.clone(),
            value => format!("{name}={value}"),
        });
        words.collect::<Vec<_>>().join(" ")
    }

    fn boot_entries(&self) -> Result<AreaFacts, Reason> {
        let entries = bootloader::read_boot_entries(self.root).map_err(Reason::from_error)?;
        if !self.path_exists("boot/loader")? {
            return if self.path_exists("boot/grub")? {
                Ok(AreaFacts::new())
            } else {
                Err("/boot/loader is missing".into())
            };
        }
        let mut facts = AreaFacts::new();
        let default = entries.first().map(|entry| entry.file.clone());
        facts.extend(default.map(|file| ("default".to_owned(), file)));
        for entry in entries {
            let mut put = |key: &str, value: String| {
                if !value.is_empty() {
                    facts.insert(format!("{} {key}", entry.file), value);
                }
            };
            put("title", entry.title.clone());
            put("version", entry.version.clone());
            put("linux", entry.linux.clone());
            put("initrd", entry.initrd.join(" "));
            put("options", self.argument_line(&entry.options));
        }
        Ok(facts)
    }

    fn deployment_facts(&self) -> Result<AreaFacts, Reason> {
        let all =
            deploy_directories::list_deploy_directories(self.root).map_err(Reason::from_error)?;
        let host = Host::observe(self.root).map_err(Reason::from_error)?;
        let mut facts: AreaFacts = all
            .into_iter()
            .map(|one| {
                let image = one.image.filter(|image| !image.is_empty());
                (one.name, image.unwrap_or_else(|| "no image".to_owned()))
            })
            .collect();
        if let Some(name) = host.deployment {
            facts.insert("in use".to_owned(), name);
        }
        Ok(facts)
    }

    fn origin_facts(&self) -> Result<AreaFacts, Reason> {
        let host = Host::observe(self.root).map_err(Reason::from_error)?;
        let Some(deployment) = host.deployment else {
            return Ok(AreaFacts::new());
        };
        let text = os::read_origin(self.root, &deployment).map_err(Reason::from_error)?;
        let mut facts = AreaFacts::new();
        let mut section = String::new();
        for line in text.unwrap_or_default().lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=') {
                let shown = self.show_setting(&format!("{}={}", key.trim(), value.trim()));
                let value = shown.split_once('=').map_or("", |(_, value)| value);
                facts.insert(format!("{section}.{}", key.trim()), value.to_owned());
            }
        }
        Ok(facts)
    }

    fn command_line(&self) -> Result<AreaFacts, Reason> {
        let line = self.read_text("/proc/cmdline")?;
        let line = line.ok_or("/proc/cmdline is missing below this root")?;
        Ok(self.argument_facts(&Kargs::parse(&line)))
    }

    fn boot_files(&mut self) -> Result<AreaFacts, Reason> {
        let mut facts = AreaFacts::new();
        for file in BOOT_FILES {
            if let Ok(path) = RootPath::parse(&format!("/boot/{file}")) {
                let fact = self.file_fact(&path);
                facts.extend(fact.map(|fact| (path.to_string(), fact)));
            }
        }
        for file in ["/boot/grub2/grubenv", "/boot/grub/grubenv"] {
            let text = self.read_text(file)?.unwrap_or_default();
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            for (key, value) in lines.filter_map(|line| line.split_once('=')) {
                // These change at each boot.
                if !key.starts_with("boot_") {
                    facts.insert(format!("{file} {key}"), self.show_variable(key, value));
                }
            }
        }
        let kernels = bootloader::list_kernel_directories(self.root).map_err(Reason::from_error)?;
        for kernel in kernels {
            let words = format!("{} bytes", kernel.bytes);
            facts.insert(format!("/boot/ostree/{}", kernel.name), words);
        }
        let top = RootPath::fixed(paths::BOOT);
        let kernels = self.list_names(&top)?.into_iter();
        let kernels = kernels.filter(|name| KERNELS.iter().any(|begin| name.starts_with(begin)));
        for path in kernels.filter_map(|name| top.join(&name).ok()) {
            let size = self.file_size(&path)?;
            facts.extend(size.map(|size| (path.to_string(), format!("{size} bytes"))));
        }
        Ok(facts)
    }

    /// Reads a partition. If it is not mounted, only files whose size or time changed are read again.
    fn system_partition(&mut self) -> Result<Option<AreaFacts>, Reason> {
        for place in ["boot/efi", "efi"] {
            let top = RootPath::fixed(place);
            let facts = self.tree_facts(&top).map_err(Reason::from_error)?;
            if let Some(facts) = facts.filter(|facts| !facts.is_empty()) {
                return Ok(Some(bound_facts(facts, 300)));
            }
        }
        let (known, key) = (self.known, self.key);
        let found = read_unmounted_partitions(self.root, &mut |path, size, modified| {
            let stamp = FileStamp::of_fat(size, modified);
            known.find_digest(&unmounted_name(path), stamp).is_none()
        })?;
        let mut facts = AreaFacts::new();
        for file in found {
            let path = unmounted_name(&file.path);
            let stamp = FileStamp::of_fat(file.size, file.modified);
            let digest = match &file.bytes {
                Some(bytes) => key.digest(bytes),
                None => known
                    .find_digest(&path, stamp)
                    .unwrap_or_default()
                    .to_owned(),
            };
            self.fresh.add_digest(&path, stamp, &digest, self.now);
            facts.insert(path, format!("{} bytes #{digest}", file.size));
        }
        Ok((!facts.is_empty()).then_some(facts))
    }

    fn interface_facts(&self) -> Result<AreaFacts, Reason> {
        let mut facts = AreaFacts::new();
        // Functions of a device come and go with the pods that use them.
        for one in read_interfaces(self.root)?
            .into_iter()
            .filter(|one| !one.is_function)
        {
            let mut put = |key: &str, value: Option<String>| {
                facts.extend(value.map(|value| (format!("{} {key}", one.name), value)));
            };
            put("address", one.mac.map(|mac| mac.address));
            put("driver", one.driver);
            put("path", one.path);
        }
        Ok(facts)
    }

    fn address_facts(&self) -> Result<AreaFacts, Reason> {
        let trie = self.read_text("/proc/net/fib_trie")?;
        let trie = trie.ok_or("/proc/net/fib_trie is missing below this root")?;
        let mut facts = AreaFacts::new();
        let mut last = "";
        for line in trie.lines().map(str::trim) {
            if let Some(address) = line.strip_prefix("|-- ") {
                last = address;
            } else if line.starts_with("/32 host LOCAL") && !last.starts_with("127.") {
                facts.insert(last.to_owned(), "IPv4".to_owned());
            }
        }
        let inet6 = self.read_text("/proc/net/if_inet6")?.unwrap_or_default();
        for line in inet6.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // 00 is the scope of addresses that other networks reach.
            if let [address, _, _, "00", _, interface] = words.as_slice()
                && let Some(address) = parse_ipv6(address)
            {
                facts.insert(address, format!("IPv6, {interface}"));
            }
        }
        Ok(facts)
    }

    fn disk_facts(&self) -> Result<AreaFacts, Reason> {
        let by_id = RootPath::fixed("dev/disk/by-id");
        let names = self.list_names(&by_id)?;
        if names.is_empty() {
            return Err("/dev/disk/by-id is missing below this root".into());
        }
        let whole = |name: &String| {
            let is_part = name.rsplit_once("-part");
            let is_part = is_part.is_some_and(|(_, rest)| rest.bytes().all(|b| b.is_ascii_digit()));
            !is_part && !VIRTUAL.iter().any(|begin| name.starts_with(begin))
        };
        let mut facts = AreaFacts::new();
        for name in names.into_iter().filter(whole).take(MAX_DISKS) {
            let path = by_id.join(&name).map_err(Reason::from_error)?;
            let link = self.root.read_link(&path);
            let Some(link) = link.map_err(Reason::from_error)? else {
                continue;
            };
            let device = link.rsplit('/').next().unwrap_or_default();
            let blocks = self.read_text(&format!("/sys/class/block/{device}/size"))?;
            let bytes = blocks.and_then(|text| text.parse::<u64>().ok()?.checked_mul(512));
            let words = bytes.map_or_else(|| "disk".to_owned(), |bytes| format!("{bytes} bytes"));
            facts.insert(name, words);
        }
        Ok(facts)
    }

    fn certificate_facts(&self) -> AreaFacts {
        let (all, unseen) = certificates::read_certificates(self.root);
        let mut facts = AreaFacts::new();
        for one in all.into_iter().take(MAX_CERTIFICATES) {
            let dates = format!(
                "{} to {}",
                format_utc(one.not_before),
                format_utc(one.not_after)
            );
            let subject = format!("{} {}", one.path, one.subject);
            // A bundle may hold several of one name.
            let known = facts.entry(subject).or_default();
            let space = if known.is_empty() { "" } else { ", " };
            *known = format!("{known}{space}{dates}");
        }
        facts.extend(unseen.into_iter().map(|why| (why, "unreadable".to_owned())));
        facts
    }

    fn unit_facts(&self) -> Result<AreaFacts, Reason> {
        if !self.root.is_live() {
            return Err("the node's systemd answers only on the node itself".into());
        }
        let all = systemctl::query_units(self.runner).map_err(Reason::from_error)?;
        let facts = all.into_iter().filter_map(|unit| {
            let is_of_session = unit.name.starts_with("run-")
                || unit.name.starts_with("user@")
                || unit.name.starts_with("user-runtime-dir@");
            let is_service = unit.name.ends_with(".service");
            let state = match (&unit.active, unit.sub.as_str()) {
                (ActiveState::Failed, _) => "failed",
                (ActiveState::Active, "running") if is_service && !is_of_session => "running",
                _ => return None,
            };
            Some((unit.name, state.to_owned()))
        });
        Ok(facts.take(MAX_UNITS).collect())
    }

    fn config_facts(&self) -> Result<AreaFacts, Reason> {
        let mut facts = AreaFacts::new();
        let record = self.root.read(&RootPath::fixed(paths::CURRENT_CONFIG));
        if let Some(bytes) = record.map_err(Reason::from_error)? {
            let name = serde_json::from_slice::<Named>(&bytes);
            let name = name.map_or_else(|_| "unreadable".to_owned(), |named| named.metadata.name);
            facts.insert("recorded".to_owned(), name);
            let digest = format!("{} bytes #{}", bytes.len(), self.key.digest(&bytes));
            facts.insert("recorded contents".to_owned(), digest);
            let signed = known_signer(self.root, Some(&sha256_hex(&bytes)));
            facts.extend(
                signed.map(|signed| ("recorded config signed by".to_owned(), signed.to_string())),
            );
        }
        let image = self.read_text(&format!("/{}", paths::CURRENT_IMAGE))?;
        facts.extend(image.map(|image| ("recorded image".to_owned(), redacted_url(&image))));
        let seen = annotations::read_annotations(self.root).map_err(Reason::from_error)?;
        if let Some(seen) = seen {
            let more = seen.more.unwrap_or_default();
            let told = [
                ("current for the cluster", seen.current),
                ("wanted by the cluster", seen.desired),
                ("current image for the cluster", more.current_image),
                ("image wanted by the cluster", more.desired_image),
            ];
            let told = told.into_iter();
            let told = told.filter_map(|(key, value)| {
                let value = value.filter(|value| !value.is_empty())?;
                Some((key.to_owned(), redacted_url(&value)))
            });
            facts.extend(told);
        }
        Ok(facts)
    }

    fn daemon_facts(&self) -> Result<AreaFacts, Reason> {
        let seen = annotations::read_annotations(self.root).map_err(Reason::from_error)?;
        let state = seen.and_then(|seen| seen.state);
        Ok(state
            .map(|state| ("state".to_owned(), state))
            .into_iter()
            .collect())
    }

    /// Returns the offset in steps, so that it is the same at each boot of a node with a good clock.
    fn clock_facts(&self) -> Result<AreaFacts, Reason> {
        let heard = server::remembered_clock(self.root).map_err(Reason::from_error)?;
        let offset = heard.and_then(|heard| Some((heard.seen?, heard.date)));
        let words = offset.map(|(own, said)| {
            let (off, side) = if own >= said {
                (own - said, "ahead of")
            } else {
                (said - own, "behind")
            };
            match off {
                0..=5 => "as that of the server".to_owned(),
                6..=60 => format!("less than a minute {side} the server"),
                61..=3600 => format!("less than an hour {side} the server"),
                3601..=86_400 => format!("less than a day {side} the server"),
                _ => format!("{} days {side} the server", off / 86_400),
            }
        });
        Ok(words
            .map(|words| ("node".to_owned(), words))
            .into_iter()
            .collect())
    }

    fn version_facts(&self, now: &Snapshot) -> Result<AreaFacts, Reason> {
        let mut facts = AreaFacts::new();
        let mut put = |key: &str, value: Option<String>| {
            let value = value.filter(|value| !value.is_empty());
            facts.extend(value.map(|value| (key.to_owned(), value)));
        };
        put("kernel", self.read_text("/proc/sys/kernel/osrelease")?);
        let release = OsRelease::read(self.root).map_err(Reason::from_error)?;
        let keys = ["OSTREE_VERSION", "VERSION", "VERSION_ID"];
        let mut version = keys.iter().map(|key| release.get(key));
        let version = version.find(|version| !version.is_empty());
        put(
            "os",
            version.map(|version| format!("{} {version}", release.get("ID"))),
        );
        put(
            "cluster release",
            Some(release.get("OPENSHIFT_VERSION").to_owned()),
        );
        put("systemd", self.systemd_version()?);
        for (key, path) in [("kubelet", "usr/bin/kubelet"), ("crio", "usr/bin/crio")] {
            let size = self.file_size(&RootPath::fixed(path))?;
            put(
                &format!("{key} program"),
                size.map(|size| format!("{size} bytes")),
            );
        }
        facts.extend(self.package_versions(now, &facts)?);
        Ok(facts)
    }

    /// Returns the version in the name of the library that systemd's programs share.
    fn systemd_version(&self) -> Result<Option<String>, Reason> {
        for place in [
            "usr/lib/systemd",
            "usr/lib64/systemd",
            "usr/lib/x86_64-linux-gnu/systemd",
        ] {
            let names = self.list_names(&RootPath::fixed(place))?;
            let version = names
                .iter()
                .find_map(|name| name.strip_prefix("libsystemd-shared-")?.strip_suffix(".so"));
            if let Some(version) = version {
                return Ok(Some(version.to_owned()));
            }
        }
        Ok(None)
    }

    /// Returns the versions of packages. rpm is asked only if the snapshot before is of other programs.
    fn package_versions(&self, now: &Snapshot, own: &AreaFacts) -> Result<AreaFacts, Reason> {
        let programs = ["kubelet program", "crio program"];
        let in_use = |snapshot: &Snapshot| {
            snapshot
                .get_fact(Area::Deployment, "in use")
                .map(str::to_owned)
        };
        let same = self.before.filter(|before| {
            let is_same = |key: &&str| {
                before.get_fact(Area::Versions, key) == own.get(*key).map(String::as_str)
            };
            in_use(before) == in_use(now) && programs.iter().all(is_same)
        });
        if let Some(facts) = same.and_then(|before| before.facts.get(&Area::Versions)) {
            let known = facts
                .iter()
                .filter(|(key, _)| PACKAGES.contains(&key.as_str()));
            let known = known.map(|(key, value)| (key.clone(), value.clone()));
            return Ok(known.collect());
        }
        if !self.root.is_live() || !self.path_exists("usr/bin/rpm")? {
            return Ok(AreaFacts::new());
        }
        rpm::query_versions(self.runner, &PACKAGES).map_err(Reason::from_error)
    }
}

/// Returns the name of a file of a partition that is not mounted.
fn unmounted_name(path: &str) -> String {
    format!("EFI/{path}")
}

/// Packages whose versions are kept.
const PACKAGES: [&str; 4] = [
    "openshift-kubelet",
    "openshift-hyperkube",
    "cri-o",
    "systemd",
];

/// Files of the boot loader below `/boot`.
const BOOT_FILES: [&str; 14] = [
    "loader/loader.conf",
    "grub2/grub.cfg",
    "grub2/user.cfg",
    "grub2/console.cfg",
    "grub2/bootuuid.cfg",
    "grub2/custom.cfg",
    "grub/grub.cfg",
    "grub/custom.cfg",
    "bootupd-state.json",
    "ignition.firstboot",
    "ignition/config.ign",
    ".root_uuid",
    "zipl/zipl.conf",
    "coreos/firstboot-network",
];

/// Beginnings of the names of kernels that the distribution puts into `/boot` itself.
const KERNELS: [&str; 3] = ["vmlinuz-", "initrd.img-", "initramfs-"];

/// Beginnings of names of devices that the node makes itself.
const VIRTUAL: [&str; 5] = ["dm-", "md-", "lvm-", "nbd", "zvol"];

/// The name in a MachineConfig; the rest is skipped.
#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

fn parse_ipv6(digits: &str) -> Option<String> {
    let number = u128::from_str_radix(digits, 16).ok()?;
    (digits.len() == 32).then(|| std::net::Ipv6Addr::from(number).to_string())
}

/// Reads the list of files of which copies are kept, and those files. What is refused is returned with its reason.
pub(super) fn read_copies(root: &Root) -> (BTreeMap<String, String>, Vec<String>) {
    let list = RootPath::fixed(paths::RECORDER_COPIES);
    let (mut kept, mut refused) = (BTreeMap::new(), Vec::new());
    let list = match root.read_within(&list, MAX_TEXT) {
        Ok(Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Ok(None) => return (kept, refused),
        Err(error) => return (kept, vec![error.to_string()]),
    };
    let lines = list.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut total = 0;
    for line in lines {
        match read_copy(root, line) {
            Ok(None) => {}
            Ok(Some(text)) if total + text.len() <= MAX_COPIES => {
                total += text.len();
                kept.insert(line.to_owned(), text);
            }
            Ok(Some(_)) => refused.push(format!(
                "{line} is not copied: all copies together may have {} KiB",
                MAX_COPIES >> 10
            )),
            Err(why) => refused.push(format!("{line} is not copied: it {why}")),
        }
    }
    (kept, refused)
}

/// Bytes of all copies together.
const MAX_COPIES: usize = 32 << 10;
/// Bytes of one copy.
const MAX_COPY: u64 = 16 << 10;

fn read_copy(root: &Root, line: &str) -> Result<Option<String>, Reason> {
    if let Some(why) = secrets::refuse_path(line) {
        return Err(why.into());
    }
    let path = RootPath::parse(line).map_err(Reason::from_error)?;
    let place = root
        .open_place(&path)
        .map_err(|error| error.cause.to_string())?;
    let Some(place) = place else { return Ok(None) };
    let stat = place.stat().map_err(|errno| errno.desc().to_owned())?;
    let Some(stat) = stat else { return Ok(None) };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err("is not a file".into());
    }
    if stat.st_mode & 0o004 == 0 {
        return Err("is not readable by all users".into());
    }
    if u64::try_from(stat.st_size).unwrap_or(u64::MAX) > MAX_COPY {
        return Err(format!("has more than {} KiB", MAX_COPY >> 10).into());
    }
    let bytes = place.read_file().map_err(|errno| errno.desc().to_owned())?;
    let text = String::from_utf8(bytes.unwrap_or_default());
    let text = text.map_err(|_| "is not text".to_owned())?;
    match secrets::refuse_text(&text) {
        Some(why) => Err(why.into()),
        None => Ok(Some(text)),
    }
}
