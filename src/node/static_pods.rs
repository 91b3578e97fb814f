//! The static pods of a control-plane node: manifests, revisions, and every certificate in their directories. Keys are compared
//! with their certificates and never stored.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::base::order::StableOrder;
use crate::base::paths;
use crate::config::document::{data_url, yaml};
use crate::host::net;
use crate::host::root::{EntryType, Root, RootError, RootPath, sha256_hex};

use super::certificates::seconds_of_time;
use super::pod_manifest::PodManifest;

/// The static pods that operators install.
pub const NAMES: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

/// Maximum number of revisions of a pod that are read, newest first; the pruner keeps about ten.
const MAX_REVISIONS: usize = 16;
/// Maximum number of files that are read of one directory; a real one has less than a hundred.
const MAX_FILES: usize = 2000;
/// Largest manifest, certificate or kubeconfig that is read.
const MAX_SIZE: u64 = 1 << 20;

/// The static pods of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticPods {
    /// The pods that are installed here, in the order of [`NAMES`].
    pub pods: Vec<StaticPod>,
    /// Manifests that were stopped on purpose.
    pub stopped: Vec<String>,
    /// Directories that an interrupted installer left, as paths.
    pub staging: Vec<String>,
    /// Certificates of the active revisions, and of the directories without a revision.
    pub certificates: Vec<PodCertificate>,
    /// Files that could not be read, with the reason.
    pub unseen: Vec<String>,
}

/// One static pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticPod {
    /// Its name, as used in the names of its directories.
    pub name: &'static str,
    /// Path of the manifest that the kubelet reads.
    pub path: String,
    /// That manifest.
    pub manifest: FoundManifest,
    /// Its revisions, oldest first.
    pub revisions: Vec<PodRevision>,
    /// Faults in the directory without a revision, in files that the pod needs.
    pub certs: Vec<FileProblem>,
}

/// A manifest and its state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum FoundManifest {
    /// No file.
    #[default]
    Missing,
    /// A file that the kubelet cannot use: the reason.
    Unusable(String),
    /// A file that could not be read: the reason.
    Unseen(String),
    /// A manifest.
    Found(PodManifest),
}

/// A revision of a static pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRevision {
    /// Its number.
    pub number: u32,
    /// Path of its directory.
    pub directory: String,
    /// The revision's copy of the manifest.
    pub manifest: FoundManifest,
    /// Its secrets and config maps, such as `secrets/etcd-client`.
    pub parts: Vec<String>,
    /// Its files, with their sizes.
    pub files: BTreeMap<String, u64>,
    /// What is wrong with its files.
    pub problems: Vec<FileProblem>,
}

/// A file that its pod cannot use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProblem {
    /// Its path.
    pub path: String,
    /// The defect.
    pub defect: FileDefect,
}

/// A defect of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileDefect {
    /// It is missing although the manifest or its config refers to it.
    Missing,
    /// It has no content.
    Empty,
    /// It has content, for example zero bytes, but no certificate or key.
    NoPem,
    /// The private key next to this certificate belongs to another one.
    OtherKey,
}

/// A certificate below the directories of static pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodCertificate {
    /// Path of its file.
    pub path: String,
    /// It belongs to a bundle of authorities and is not a client or server certificate.
    pub in_bundle: bool,
    /// Its fields.
    pub subject: String,
    /// Its issuer.
    pub issuer: String,
    /// Identifier of its key, if it has one.
    pub key_id: Option<String>,
    /// Identifier of its issuer's key, if it has one.
    pub issuer_key_id: Option<String>,
    /// Start of its validity, in seconds since 1970.
    pub not_before: u64,
    /// End of its validity, in seconds since 1970.
    pub not_after: u64,
}

impl StaticPod {
    /// Returns the manifest that the kubelet reads, if it is usable.
    pub fn running(&self) -> Option<&PodManifest> {
        match &self.manifest {
            FoundManifest::Found(manifest) => Some(manifest),
            _ => None,
        }
    }

    /// Returns the active revision: that of the manifest, or the newest complete one if the manifest is unusable.
    pub fn in_force(&self) -> Option<&PodRevision> {
        match self.running().and_then(|manifest| manifest.revision) {
            Some(number) => self.revisions.iter().find(|one| one.number == number),
            None => self.newest_complete(),
        }
    }

    /// Returns the newest revision that is complete.
    pub fn newest_complete(&self) -> Option<&PodRevision> {
        self.revisions.iter().rev().find(|one| one.is_complete())
    }
}

impl PodRevision {
    /// Returns true if the pod can run from this revision: its manifest is usable and has its number, and no file that the pod
    /// needs is missing, empty or damaged.
    pub fn is_complete(&self) -> bool {
        let own = match &self.manifest {
            FoundManifest::Found(manifest) => manifest.revision == Some(self.number),
            _ => false,
        };
        own && self.problems.is_empty()
    }
}

/// Reads the static pods; `None` if no control plane is installed at this root.
///
/// # Errors
/// The directory of the revisions cannot be read.
pub fn read_static_pods(root: &Root) -> Result<Option<StaticPods>, RootError> {
    let resources = RootPath::fixed(paths::STATIC_POD_RESOURCES);
    let entries = root.list_types(&resources)?;
    let directories = entries.into_iter();
    let directories = directories.filter(|(_, kind)| *kind == EntryType::Directory);
    let names: Vec<String> = directories.map(|(name, _)| name).collect();
    let mut reader = Reader {
        root,
        resources,
        unseen: Vec::new(),
        pairs: BTreeMap::new(),
    };
    let pods: Vec<StaticPod> = NAMES
        .into_iter()
        .filter_map(|name| reader.read_pod(name, &names))
        .collect();
    if pods.is_empty() {
        return Ok(None);
    }
    let mut certificates = Vec::new();
    for pod in &pods {
        let own = pod.in_force().map(|revision| revision.directory.clone());
        let certs = format!("/{}/{}-certs", paths::STATIC_POD_RESOURCES, pod.name);
        for directory in own.into_iter().chain([certs]) {
            certificates.extend(reader.read_certificates(&directory));
        }
    }
    let stopped = root.list(&RootPath::fixed(paths::MANIFESTS_STOPPED));
    let stopped = stopped.unwrap_or_else(|error| {
        reader.unseen.push(error.to_string());
        Vec::new()
    });
    let staging = reader.list_directory(&format!("/{}/staging", paths::STATIC_POD_RESOURCES));
    Ok(Some(StaticPods {
        pods,
        stopped,
        staging: staging.into_iter().map(|(path, _)| path).collect(),
        certificates,
        unseen: reader.unseen,
    }))
}

/// The reading of a root.
struct Reader<'a> {
    root: &'a Root,
    resources: RootPath,
    unseen: Vec<String>,
    /// Whether certificates match their keys, by the digests of both: revisions share most of them.
    pairs: BTreeMap<(String, String), Option<bool>>,
}

/// The files of a directory of static pods: path and size.
type Files = BTreeMap<String, u64>;

impl Reader<'_> {
    fn read_pod(&mut self, name: &'static str, directories: &[String]) -> Option<StaticPod> {
        let path = format!("/{}/{name}-pod.yaml", paths::MANIFESTS);
        let manifest = self.read_manifest(&path);
        let prefix = format!("{name}-pod-");
        let numbers = directories.iter().filter_map(|directory| {
            let number = directory.strip_prefix(&prefix)?;
            let number: u32 = number.parse().ok()?;
            // The installer writes neither leading zeros nor a sign.
            (format!("{prefix}{number}") == *directory).then_some(number)
        });
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        let first = numbers.len().saturating_sub(MAX_REVISIONS);
        let numbers = numbers.split_off(first);
        let uses_revisions = match &manifest {
            FoundManifest::Found(manifest) => manifest
                .mounts
                .iter()
                .any(|(_, directory)| directory.contains(&format!("/{prefix}"))),
            _ => false,
        };
        // A bootstrap machine runs pods with the same names, but without revisions.
        if numbers.is_empty() && !uses_revisions {
            return None;
        }
        let certs_directory = format!("{}/{name}-certs", self.resources);
        let certs = self.list_files(&certs_directory);
        let revisions: Vec<PodRevision> = numbers
            .into_iter()
            .map(|number| self.read_revision(name, number, &manifest))
            .collect();
        let mut pod = StaticPod {
            name,
            path,
            manifest,
            revisions,
            certs: Vec::new(),
        };
        pod.certs = self.judge_certs(&pod, &certs_directory, &certs);
        Some(pod)
    }

    /// Judges the directory without a revision, for the needs of the active pod.
    fn judge_certs(&mut self, pod: &StaticPod, directory: &str, files: &Files) -> Vec<FileProblem> {
        let of_revision = pod.in_force().map(|revision| &revision.manifest);
        let manifest = match (&pod.manifest, of_revision) {
            (FoundManifest::Found(manifest), _) | (_, Some(FoundManifest::Found(manifest))) => {
                manifest
            }
            _ => return Vec::new(),
        };
        let mut named = manifest.named.clone();
        if let Some(revision) = pod.in_force() {
            named.extend(self.named_in_config(manifest, &revision.directory));
        }
        self.find_problems(directory, files, &named)
    }

    fn read_revision(&mut self, name: &str, number: u32, running: &FoundManifest) -> PodRevision {
        let directory = format!("{}/{name}-pod-{number}", self.resources);
        let manifest = self.read_manifest(&format!("{directory}/{name}-pod.yaml"));
        let files = self.list_files(&directory);
        let of_running = match running {
            FoundManifest::Found(running) if running.revision == Some(number) => Some(running),
            _ => None,
        };
        let named = match (of_running, &manifest) {
            (Some(manifest), _) | (None, FoundManifest::Found(manifest)) => {
                let mut named = manifest.named.clone();
                named.extend(self.named_in_config(manifest, &directory));
                named
            }
            _ => Vec::new(),
        };
        let problems = self.find_problems(&directory, &files, &named);
        let part = |path: &String| {
            let below = path.strip_prefix(&directory)?.trim_start_matches('/');
            Some(below.rsplit_once('/')?.0.to_owned())
        };
        let mut parts: Vec<String> = files.keys().filter_map(part).collect();
        parts.dedup();
        PodRevision {
            number,
            manifest,
            parts,
            files,
            problems,
            directory,
        }
    }

    /// Finds the missing ones among the named files in a directory, and keys that are empty or belong to other certificates.
    fn find_problems(
        &mut self,
        directory: &str,
        files: &Files,
        named: &[String],
    ) -> Vec<FileProblem> {
        let mut problems = Vec::new();
        let below = format!("{directory}/");
        let mut named: Vec<&String> = named
            .iter()
            .filter(|path| path.starts_with(&below))
            .collect();
        named.sort();
        named.dedup();
        for path in &named {
            if files.contains_key(*path) || self.unseen_below(directory) {
                continue;
            }
            if !self.path_exists(path) {
                problems.push(FileProblem {
                    path: (*path).clone(),
                    defect: FileDefect::Missing,
                });
            }
        }
        for (path, size) in files {
            let needed = named.contains(&path) && !path.contains("/cloud-config/");
            let defect = self.find_defect(files, path, *size, needed);
            problems.extend(defect.map(|defect| FileProblem {
                path: path.clone(),
                defect,
            }));
        }
        problems
    }

    /// Returns what is wrong with a file that exists. One that is `needed` must not be empty.
    fn find_defect(
        &mut self,
        files: &Files,
        path: &str,
        size: u64,
        needed: bool,
    ) -> Option<FileDefect> {
        if size == 0 {
            return (needed || is_credential(path, files)).then_some(FileDefect::Empty);
        }
        if is_pem(path, files) && self.has_no_pem(path) {
            return Some(FileDefect::NoPem);
        }
        let key = format!("{}.key", path.strip_suffix(".crt")?);
        let has_key = files.get(&key).is_some_and(|size| *size > 0);
        (has_key && self.is_other_key(path, &key)).then_some(FileDefect::OtherKey)
    }

    fn has_no_pem(&mut self, path: &str) -> bool {
        const BEGIN: &[u8] = b"-----BEGIN ";
        let bytes = self.read_file(path);
        bytes.is_some_and(|bytes| !bytes.windows(BEGIN.len()).any(|part| part == BEGIN))
    }

    fn unseen_below(&self, directory: &str) -> bool {
        self.unseen.iter().any(|why| why.contains(directory))
    }

    fn is_other_key(&mut self, certificate: &str, key: &str) -> bool {
        // A pair that may be in the middle of a replacement is read twice.
        (0..2).all(|_| self.matches_key(certificate, key) == Some(false))
    }

    fn matches_key(&mut self, certificate: &str, key: &str) -> Option<bool> {
        let (certificate, key) = (self.read_file(certificate)?, self.read_file(key)?);
        let both = (sha256_hex(&certificate), sha256_hex(&key));
        let answer = self.pairs.entry(both);
        *answer.or_insert_with(|| net::key_matches(&certificate, &key))
    }

    /// Returns the files that the pod's config refers to, if it has one.
    fn named_in_config(&mut self, manifest: &PodManifest, directory: &str) -> Vec<String> {
        let path = format!("{directory}/configmaps/config/config.yaml");
        let config = self.read_file(&path);
        let named = config.and_then(|bytes| manifest.named_in_config(&bytes).ok());
        named.unwrap_or_default()
    }

    fn read_manifest(&mut self, path: &str) -> FoundManifest {
        let bytes = match RootPath::parse(path).map(|path| self.root.read_within(&path, MAX_SIZE)) {
            Ok(Ok(Some(bytes))) => bytes,
            Ok(Ok(None)) => return FoundManifest::Missing,
            Ok(Err(error)) => {
                self.unseen.push(error.to_string());
                return FoundManifest::Unseen(error.cause.to_string());
            }
            Err(error) => return FoundManifest::Unseen(error.to_string()),
        };
        match PodManifest::parse(&bytes) {
            Ok(manifest) => FoundManifest::Found(manifest),
            Err(why) => FoundManifest::Unusable(why.to_string()),
        }
    }

    /// Returns the files two levels below `secrets` and `configmaps`.
    fn list_files(&mut self, directory: &str) -> Files {
        let mut files = Files::new();
        for kind in ["secrets", "configmaps"] {
            for (part, _) in self.list_directory(&format!("{directory}/{kind}")) {
                for (path, entry) in self.list_directory(&part) {
                    if entry == EntryType::Directory || files.len() >= MAX_FILES {
                        continue;
                    }
                    let Ok(at) = RootPath::parse(&path) else {
                        continue;
                    };
                    match self.root.stat(&at) {
                        Ok(Some(stat)) => {
                            files.insert(path, u64::try_from(stat.st_size).unwrap_or_default());
                        }
                        Ok(None) => {}
                        Err(error) => self.unseen.push(error.to_string()),
                    }
                }
            }
        }
        files
    }

    /// Returns the entries of a directory as paths; a directory that cannot be read is recorded.
    fn list_directory(&mut self, directory: &str) -> Vec<(String, EntryType)> {
        let Ok(path) = RootPath::parse(directory) else {
            return Vec::new();
        };
        match self.root.list_types(&path) {
            Ok(entries) => {
                let mut entries: Vec<_> = entries
                    .into_iter()
                    .take(MAX_FILES)
                    .map(|(name, kind)| (format!("{directory}/{name}"), kind))
                    .collect();
                entries.order_by(|a, b| a.0.cmp(&b.0));
                entries
            }
            Err(error) => {
                self.unseen.push(error.to_string());
                Vec::new()
            }
        }
    }

    fn path_exists(&self, path: &str) -> bool {
        let path = RootPath::parse(path);
        path.is_ok_and(|path| self.root.exists(&path).unwrap_or(true))
    }

    fn read_file(&mut self, path: &str) -> Option<Vec<u8>> {
        let parsed = RootPath::parse(path).ok()?;
        match self.root.read_within(&parsed, MAX_SIZE) {
            Ok(bytes) => bytes,
            Err(error) => {
                let why = error.to_string();
                if !self.unseen.contains(&why) {
                    self.unseen.push(why);
                }
                None
            }
        }
    }

    fn read_certificates(&mut self, directory: &str) -> Vec<PodCertificate> {
        let mut all = Vec::new();
        for path in self.list_files(directory).into_keys() {
            let holds = [".crt", ".pem", "kubeconfig"];
            if !holds.iter().any(|ending| path.ends_with(ending)) {
                continue;
            }
            let bytes = self.read_file(&path).unwrap_or_default();
            all.extend(certificates_in(&path, &bytes));
        }
        all
    }
}

/// Returns true for keys, certificates and credentials of a secret: none of them is ever empty.
fn is_credential(path: &str, files: &Files) -> bool {
    let endings = ["kubeconfig", "/token"];
    let named = endings.iter().any(|ending| path.ends_with(ending));
    is_pem(path, files) || (named && path.contains("/secrets/"))
}

/// Returns true for a secret's key, and for a certificate next to one. Authorities next to a token may be of any kind.
fn is_pem(path: &str, files: &Files) -> bool {
    let beside = path.strip_suffix(".crt").map(|stem| format!("{stem}.key"));
    let in_pair = beside.is_some_and(|key| files.contains_key(&key));
    path.contains("/secrets/") && (in_pair || path.ends_with(".key"))
}

/// Returns the first certificate of a client or server, or all certificates of a bundle.
fn certificates_in(path: &str, bytes: &[u8]) -> Vec<PodCertificate> {
    let in_bundle = path.contains("/configmaps/");
    let is_kubeconfig = path.ends_with("kubeconfig");
    let blocks = if is_kubeconfig {
        client_certificate(bytes).unwrap_or_default()
    } else {
        bytes.to_vec()
    };
    let found = net::system_certificates(&blocks);
    let found = found.iter().filter_map(|der| net::read_certificate(der));
    let number = if in_bundle && !is_kubeconfig {
        MAX_FILES
    } else {
        1
    };
    let found = found.take(number).map(|one| PodCertificate {
        path: path.to_owned(),
        in_bundle: in_bundle && !is_kubeconfig,
        not_before: seconds_of_time(one.not_before),
        not_after: seconds_of_time(one.not_after),
        subject: one.subject,
        issuer: one.issuer,
        key_id: one.key_id,
        issuer_key_id: one.issuer_key_id,
    });
    found.collect()
}

/// Returns the certificate that a kubeconfig presents to the API.
fn client_certificate(bytes: &[u8]) -> Option<Vec<u8>> {
    let document = yaml::parse_yaml(std::str::from_utf8(bytes).ok()?).ok()?;
    let users = document.get("users")?.as_array()?;
    let data = users.iter().find_map(|user| {
        let data = user.pointer("/user/client-certificate-data");
        data.and_then(Value::as_str)
    });
    data_url(&format!("data:;base64,{}", data?)).ok()
}
