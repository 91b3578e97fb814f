//! Configuration with which a service does not start, or which it ignores: the kubelet's, that of the image store, and
//! NetworkManager connections.

use std::collections::BTreeMap;

use serde_json::Value;

use super::fault_group::FaultWeight;
use super::keyfile_faults::find_keyfile_fault;
use super::network_manager::{self, KEYFILES, is_copy_name, is_keyfile_name};
use super::platform::NextConfig;
use super::platform::node_files::NodeFiles;
use crate::config::controllers::kubelet::values::{
    MachineSize, ValueFault, find_faults, find_faults_of_sizing,
};
use crate::config::document::modes::octal_hint;
use crate::config::document::yaml;
use crate::host::root::{Root, RootError, RootPath};
use crate::node::host::machine_size;

/// The kubelet's configuration file, if its unit names none.
const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.conf";
/// The file with the system's resource reservations, which the kubelet gets as options.
const NODE_SIZING: &str = "/etc/node-sizing-enabled.env";
const KUBELET_UNIT: &str = "etc/systemd/system/kubelet.service";
const KUBELET_DROP_INS: &str = "etc/systemd/system/kubelet.service.d";
const MANIFESTS: &str = "etc/kubernetes/manifests";
const CRIO_CONFIG: &str = "etc/crio/crio.conf";
const CRIO: &str = "etc/crio/crio.conf.d";
/// The location of container images, for CRI-O and podman (containers-storage.conf(5)).
const STORAGE: &str = "etc/containers/storage.conf";
/// Drivers of that store.
const DRIVERS: [&str; 7] = ["", "overlay", "overlay2", "vfs", "btrfs", "zfs", "aufs"];

/// The service that a file configures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfiguredService {
    /// The kubelet.
    Kubelet,
    /// CRI-O.
    Crio,
    /// A static pod, which the kubelet starts.
    StaticPod,
    /// NetworkManager.
    NetworkManager,
    /// The SSH server.
    Ssh,
    /// sudo.
    Sudo,
    /// chronyd.
    Chrony,
}

/// The effect of a file that a service rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceEffect {
    /// Its weight.
    pub weight: FaultWeight,
    /// What is wrong, in a few words.
    pub what: &'static str,
    /// The consequence, as a sentence.
    pub means: &'static str,
}

impl ConfiguredService {
    /// Returns the effect of a file that the service rejects.
    pub fn reject_effect(self) -> ServiceEffect {
        let (weight, what, means) = match self {
            Self::Kubelet => (
                FaultWeight::Fatal,
                "the kubelet does not start with its configuration",
                "The kubelet exits each time it starts, the node is NotReady, and no pod starts here.",
            ),
            Self::Crio => (
                FaultWeight::Fatal,
                "CRI-O does not start with one of its files",
                "CRI-O and podman do not open the store of images, and no pod starts. Without this file they read that of the OS.",
            ),
            Self::StaticPod => (
                FaultWeight::Partial,
                "the kubelet rejects the manifest of a static pod",
                "The kubelet refuses the manifest, and the pod does not run.",
            ),
            Self::NetworkManager => (
                FaultWeight::Partial,
                "NetworkManager ignores a connection's file",
                "The connection is missing, now or after the next boot.",
            ),
            Self::Ssh => (
                FaultWeight::Partial,
                "sshd does not start again",
                "Existing connections stay. After the next start of sshd no new ones are possible.",
            ),
            Self::Sudo => (
                FaultWeight::Partial,
                "sudo rejects its rules",
                "core can no longer become root.",
            ),
            Self::Chrony => (
                FaultWeight::Partial,
                "chronyd does not start again",
                "The clock is not kept right after the next start of chronyd, and certificates depend on it.",
            ),
        };
        ServiceEffect {
            weight,
            what,
            means,
        }
    }
}

/// A file that its service rejects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenConfig {
    /// The service.
    pub service: ConfiguredService,
    /// Path of the file.
    pub place: String,
    /// The fault; it quotes no content except one key.
    pub said: String,
    /// The message in the log of the service.
    pub words: String,
    /// The file exists and only its permissions are wrong.
    pub only_mode: bool,
    /// The file is readable, but a value in it is wrong.
    pub of_value: bool,
}

/// Reads the files of the kubelet, NetworkManager and the image store; with `next`, as they will be after a run of that config.
///
/// # Errors
/// A file cannot be read.
pub fn read_service_configs(
    root: &Root,
    next: Option<NextConfig<'_>>,
) -> Result<Vec<BrokenConfig>, RootError> {
    let files = &NodeFiles::new(root, next);
    let size = machine_size(root);
    let mut all = Vec::new();
    all.extend(read_kubelet(files, size)?);
    all.extend(read_storage(files)?);
    all.extend(read_sizing(files, size)?);
    all.extend(read_manifests(files)?);
    let settings = network_manager::NetworkManagerSettings::read_files(files);
    let mut unseen = settings.unseen.clone();
    let keyfiles = network_manager::list_by(files, &settings, &mut unseen).into_iter();
    if let Some(error) = unseen.into_iter().next() {
        return Err(error);
    }
    for path in keyfiles.filter(|path| !is_copy_name(path.name())) {
        all.extend(read_keyfile(root, files, &path)?);
    }
    Ok(all)
}

/// The settings in CRI-O's configuration files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrioSettings {
    /// Files that it does not read.
    pub broken: Vec<BrokenConfig>,
    /// The program of the default runtime, without which it does not start; `None` if it is looked up by its name.
    pub runtime: Option<String>,
}

impl CrioSettings {
    /// Reads the files of a root; a later one replaces a runtime of an earlier one as a whole.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read_files(root: &Root) -> Result<Self, RootError> {
        let files = NodeFiles::new(root, None);
        let folder = RootPath::fixed(CRIO);
        let mut names = files.list(&folder)?;
        names.sort();
        let drop_ins = names.iter().filter_map(|name| folder.join(name).ok());
        let mut settings = Self::default();
        let mut default = None;
        let mut paths = BTreeMap::new();
        for path in std::iter::once(RootPath::fixed(CRIO_CONFIG)).chain(drop_ins) {
            let Some(text) = files.read_text(&path)? else {
                continue;
            };
            let table = match toml::from_str::<toml::Table>(&text) {
                Ok(table) => table,
                Err(error) => {
                    settings.broken.push(of_crio(&path, error.message()));
                    continue;
                }
            };
            let runtime = table.get("crio").and_then(|crio| crio.get("runtime"));
            let name = runtime.and_then(|runtime| runtime.get("default_runtime")?.as_str());
            default = name.map(str::to_owned).or(default);
            let all = runtime.and_then(|runtime| runtime.get("runtimes")?.as_table());
            paths.extend(all.into_iter().flatten().map(|(name, runtime)| {
                let path = runtime.get("runtime_path").and_then(|path| path.as_str());
                (name.clone(), path.map(str::to_owned))
            }));
        }
        let named = default.and_then(|name| paths.remove(&name)?);
        settings.runtime = named.filter(|path| path.starts_with('/'));
        Ok(settings)
    }
}

fn of_crio(path: &RootPath, said: &str) -> BrokenConfig {
    BrokenConfig {
        service: ConfiguredService::Crio,
        place: path.to_string(),
        words: format!("crio.service: Failed with result 'exit-code'. ({said})"),
        said: said.to_owned(),
        only_mode: false,
        of_value: false,
    }
}

fn read_storage(files: &NodeFiles<'_>) -> Result<Option<BrokenConfig>, RootError> {
    let Some(bytes) = files.read_small(&RootPath::fixed(STORAGE))? else {
        return Ok(None);
    };
    let fault = judge_storage(&String::from_utf8_lossy(&bytes));
    Ok(fault.map(|said| of_crio(&RootPath::fixed(STORAGE), &said)))
}

/// Returns the fault because of which CRI-O and podman do not open the image store.
fn judge_storage(text: &str) -> Option<String> {
    let table = match toml::from_str::<toml::Table>(text) {
        Ok(table) => table,
        Err(error) => return Some(error.message().to_owned()),
    };
    let storage = table.get("storage")?;
    for key in ["driver", "graphroot", "runroot"] {
        match storage.get(key).map(toml::Value::as_str) {
            Some(None) => return Some(format!("storage.{key} is not a string")),
            Some(Some(driver)) if key == "driver" && !DRIVERS.contains(&driver) => {
                return Some(format!("storage.driver: there is no driver {driver}"));
            }
            Some(Some(path))
                if key != "driver" && !path.is_empty() && !path.starts_with(['/', '$']) =>
            {
                return Some(format!("storage.{key} is not an absolute path: {path}"));
            }
            _ => {}
        }
    }
    None
}

fn read_kubelet(
    files: &NodeFiles<'_>,
    size: Option<MachineSize>,
) -> Result<Option<BrokenConfig>, RootError> {
    let text = |path: &RootPath| -> Result<Option<String>, RootError> {
        let bytes = files.read_small(path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    };
    let mut unit = text(&RootPath::fixed(KUBELET_UNIT))?.unwrap_or_default();
    let drop_ins = RootPath::fixed(KUBELET_DROP_INS);
    for name in files.list(&drop_ins)? {
        if let (true, Ok(path)) = (name.ends_with(".conf"), drop_ins.join(&name)) {
            unit += "\n";
            unit += &text(&path)?.unwrap_or_default();
        }
    }
    let named = find_option(&unit, "--config");
    let file = named.as_deref().unwrap_or(KUBELET_CONFIG);
    let Ok(path) = RootPath::parse(file) else {
        return Ok(None);
    };
    let fault = match text(&path)? {
        Some(text) => judge_kubelet(&text, size),
        // If no unit names the file, the node may have no kubelet.
        None => named
            .is_some()
            .then(|| unreadable_file("the file is missing")),
    };
    Ok(fault.map(|fault| of_kubelet(path.to_string(), fault)))
}

/// Reads the system's resource reservations.
fn read_sizing(
    files: &NodeFiles<'_>,
    size: Option<MachineSize>,
) -> Result<Option<BrokenConfig>, RootError> {
    let bytes = files.read_small(&RootPath::fixed(NODE_SIZING))?;
    let fault = bytes.and_then(|bytes| judge_sizing(&String::from_utf8_lossy(&bytes), size));
    Ok(fault.map(|fault| of_kubelet(NODE_SIZING.to_owned(), fault)))
}

/// Reads the manifests of static pods.
fn read_manifests(files: &NodeFiles<'_>) -> Result<Vec<BrokenConfig>, RootError> {
    let folder = RootPath::fixed(MANIFESTS);
    let mut all = Vec::new();
    for name in files
        .list(&folder)?
        .iter()
        .filter(|name| !name.starts_with('.'))
    {
        let Ok(path) = folder.join(name) else {
            continue;
        };
        let bytes = files.read_small(&path)?;
        let fault = bytes.and_then(|bytes| find_bad_mode(&String::from_utf8_lossy(&bytes)));
        all.extend(fault.map(|ValueFault { said, words }| BrokenConfig {
            service: ConfiguredService::StaticPod,
            place: path.to_string(),
            said,
            words,
            only_mode: false,
            of_value: true,
        }));
    }
    Ok(all)
}

/// Returns the first file mode in a pod's volumes because of which the kubelet refuses the pod.
fn find_bad_mode(text: &str) -> Option<ValueFault> {
    // A manifest that is not a pod is a separate fault.
    let pod = yaml::parse_yaml(text).ok()?;
    let volumes = pod.pointer("/spec/volumes")?.as_array()?;
    volumes
        .iter()
        .enumerate()
        .find_map(|(index, volume)| bad_mode_below(volume, &format!("spec.volumes[{index}]")))
}

fn bad_mode_below(value: &Value, at: &str) -> Option<ValueFault> {
    match value {
        Value::Object(entries) => entries.iter().find_map(|(key, value)| {
            let at = format!("{at}.{key}");
            match value.as_i64().filter(|_| ["defaultMode", "mode"].contains(&key.as_str())) {
                Some(mode) if !(0..=0o777).contains(&mode) => Some(ValueFault {
                    said: match octal_hint(mode, false) {
                        Some(hint) => format!("{at}: {hint}"),
                        None => format!("{at} is {mode}, and has to be between 0 and 0777 (511)"),
                    },
                    words: format!("Invalid value: {mode}: must be a number between 0 and 0777 (octal), both inclusive"),
                }),
                Some(_) => None,
                None => bad_mode_below(value, &at),
            }
        }),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| bad_mode_below(item, &format!("{at}[{index}]")))
        }
        _ => None,
    }
}

fn of_kubelet(place: String, ValueFault { said, words }: ValueFault) -> BrokenConfig {
    let of_value = !words.is_empty();
    let words = match words.as_str() {
        "" => format!("failed to load Kubelet config file {place}"),
        _ => words,
    };
    BrokenConfig {
        service: ConfiguredService::Kubelet,
        place,
        said,
        words,
        only_mode: false,
        of_value,
    }
}

/// Returns the fault of a file that the kubelet cannot load at all.
fn unreadable_file(said: impl Into<String>) -> ValueFault {
    ValueFault {
        said: said.into(),
        words: String::new(),
    }
}

/// Combines all faults of a file into one, with the kubelet's message for the first.
fn join_faults(faults: Vec<ValueFault>) -> Option<ValueFault> {
    let words = faults.first()?.words.clone();
    let said: Vec<String> = faults.into_iter().map(|fault| fault.said).collect();
    let said = said.join("; ");
    Some(ValueFault { said, words })
}

fn judge_sizing(text: &str, size: Option<MachineSize>) -> Option<ValueFault> {
    join_faults(find_faults_of_sizing(text, size))
}

/// Returns the last value of an option on the command line of a unit; `None` if it contains a variable.
fn find_option(unit: &str, name: &str) -> Option<String> {
    let lines = unit.lines().map(str::trim);
    let lines = lines.filter(|line| !line.starts_with(['#', ';']));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let mut values = words.iter().enumerate().filter_map(|(index, word)| {
        let rest = word.strip_prefix(name)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => words.get(index + 1).copied(),
            None => None,
        }
    });
    let value = values.next_back()?.trim_matches(['"', '\'']);
    (value.starts_with('/') && !value.contains(['$', '%'])).then(|| value.to_owned())
}

/// Returns the fault because of which the kubelet rejects its configuration.
fn judge_kubelet(text: &str, size: Option<MachineSize>) -> Option<ValueFault> {
    if text
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .is_empty()
    {
        return Some(unreadable_file("the file is empty"));
    }
    let value = match serde_json::from_str::<Value>(text) {
        Ok(value) => value,
        Err(_) => match yaml::parse_yaml(text) {
            Ok(value) => value,
            Err(error) => return Some(unreadable_file(format!("neither YAML nor JSON: {error}"))),
        },
    };
    let field = |key: &str| value.get(key).and_then(Value::as_str);
    match (field("kind"), field("apiVersion")) {
        (Some("KubeletConfiguration"), Some(version))
            if version.starts_with("kubelet.config.k8s.io/") =>
        {
            join_faults(find_faults(&value, size))
        }
        (Some("KubeletConfiguration"), _) => Some(unreadable_file(
            "apiVersion is not kubelet.config.k8s.io/v1beta1",
        )),
        (Some(_), _) => Some(unreadable_file("kind is not KubeletConfiguration")),
        (None, _) => Some(unreadable_file("it has no kind: KubeletConfiguration")),
    }
}

/// Returns owner and mode of a regular file that is not empty; links are not followed.
fn owner_and_mode(
    root: &Root,
    files: &NodeFiles<'_>,
    path: &RootPath,
) -> Result<Option<(u32, u32)>, RootError> {
    if files.is_written(path) {
        return files.owner_and_mode(path);
    }
    // An empty file is the result of a power cut, for which there is another check: changing permissions does not fix it.
    let is_full =
        |stat: &libc::stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_size > 0;
    let stat = root.stat(path)?.filter(is_full);
    Ok(stat.map(|stat| (stat.st_uid, stat.st_mode & 0o7777)))
}

fn read_keyfile(
    root: &Root,
    files: &NodeFiles<'_>,
    path: &RootPath,
) -> Result<Option<BrokenConfig>, RootError> {
    let Some((uid, mode)) = owner_and_mode(root, files, path)? else {
        return Ok(None);
    };
    let broken = |said: String, words: String, only_mode| BrokenConfig {
        service: ConfiguredService::NetworkManager,
        place: path.to_string(),
        said,
        words: format!("keyfile: load: \"{path}\": failed to load connection: {words}"),
        only_mode,
        of_value: false,
    };
    if uid != 0 {
        let words = format!("File owner ({uid}) is insecure");
        return Ok(Some(broken(format!("owner {uid}"), words, true)));
    }
    if mode & 0o077 != 0 {
        let words = format!(
            "File permissions ({:06o}) are insecure",
            libc::S_IFREG | mode
        );
        let said = format!("mode {mode:04o}");
        return Ok(Some(broken(said, words, true)));
    }
    let bytes = files.read_small(path)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    if text
        .trim_matches(|c: char| c.is_whitespace() || c == '\0')
        .is_empty()
    {
        return Ok(None);
    }
    Ok(find_keyfile_fault(&text).map(|(line, said)| {
        broken(
            format!("line {line}: {said}"),
            format!("Key file line {line}: {said}"),
            false,
        )
    }))
}

/// Returns the service that would reject a file, and the fault. The file is about to be written with this owner and mode, on a
/// machine of this size. `content` is only called if it matters.
pub fn find_fault(
    path: &RootPath,
    (uid, mode): (u32, u32),
    size: Option<MachineSize>,
    content: impl FnOnce() -> Option<Vec<u8>>,
) -> Option<(ConfiguredService, String)> {
    let text = || Some(String::from_utf8_lossy(&content()?).into_owned());
    if path.to_string() == KUBELET_CONFIG {
        return Some((
            ConfiguredService::Kubelet,
            judge_kubelet(&text()?, size)?.said,
        ));
    }
    if path.to_string() == NODE_SIZING {
        return Some((
            ConfiguredService::Kubelet,
            judge_sizing(&text()?, size)?.said,
        ));
    }
    if path.is_in(MANIFESTS) {
        return Some((ConfiguredService::StaticPod, find_bad_mode(&text()?)?.said));
    }
    if *path == RootPath::fixed(STORAGE) {
        return Some((ConfiguredService::Crio, judge_storage(&text()?)?));
    }
    if path.is_in(CRIO) {
        let error = toml::from_str::<toml::Table>(&text()?).err()?;
        return Some((ConfiguredService::Crio, error.message().to_owned()));
    }
    let is_read = is_keyfile_name(path.name(), false) && !is_copy_name(path.name());
    if !path.is_in(KEYFILES) || !is_read {
        return None;
    }
    if uid != 0 || mode & 0o077 != 0 {
        let said = format!(
            "owner {uid}, mode {:04o}; it has to be 0 and 0600",
            mode & 0o7777
        );
        return Some((ConfiguredService::NetworkManager, said));
    }
    let (line, said) = find_keyfile_fault(&text()?)?;
    Some((
        ConfiguredService::NetworkManager,
        format!("line {line}: {said}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_option_of_a_command_line_counts() {
        let unit = "[Service]\n# --config=/x\nExecStart=/usr/bin/kubelet \\\n  --config=/etc/a.conf \\\n  --config-dir=/d \\\n  --config /etc/b.conf\n";
        assert_eq!(
            find_option(unit, "--config").as_deref(),
            Some("/etc/b.conf")
        );
        for other in [
            "",
            "ExecStart=x --config=$FILE",
            "x --config-dir=/d",
            "x --config",
        ] {
            assert_eq!(find_option(other, "--config"), None, "{other}");
        }
    }

    #[test]
    fn a_configuration_of_the_kubelet_is_known_by_kind_and_version() {
        let good = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";
        let json =
            r#"{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1"}"#;
        for text in [good, json] {
            assert_eq!(judge_kubelet(text, None), None);
        }
        for (text, said) in [
            ("", "empty"),
            ("\0\0\n", "empty"),
            ("junk", "no kind"),
            ("kind: [", "neither YAML nor JSON"),
            ("kind: Pod\napiVersion: v1\n", "kind is not"),
            ("kind: KubeletConfiguration\n", "apiVersion"),
            (&format!("{good}maxPods: many\n"), "maxPods"),
            (&format!("{good}clusterDNS: 10.0.0.1\n"), "clusterDNS"),
            (
                &format!("{good}syncFrequency: soon\n"),
                "syncFrequency: time: invalid",
            ),
        ] {
            let fault = judge_kubelet(text, None).unwrap().said;
            assert!(fault.contains(said), "{text}: {fault}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "files of a test, not of a node")]
    fn the_runtime_of_crio_is_that_of_the_last_file() {
        let dir = tempfile::tempdir().unwrap();
        let drop_ins = dir.path().join(CRIO);
        std::fs::create_dir_all(&drop_ins).unwrap();
        let write = |name: &str, text: &str| std::fs::write(drop_ins.join(name), text).unwrap();
        let read = || CrioSettings::read_files(&Root::open(dir.path()).unwrap()).unwrap();
        assert_eq!(read(), CrioSettings::default());
        write(
            "00-default",
            "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\n",
        );
        assert_eq!(read().runtime.as_deref(), Some("/usr/bin/crun"));
        write(
            "60-site",
            "[crio.runtime.runtimes.crun]\nruntime_root = \"/run/crun\"\n",
        );
        assert_eq!(read().runtime, None);
        write("70-site", "[crio.runtime\n");
        let broken = read().broken;
        assert_eq!(broken[0].place, format!("/{CRIO}/70-site"));
        assert!(broken[0].said.contains("unclosed table"), "{broken:?}");
    }

    #[test]
    fn the_store_of_images_has_a_known_driver_and_absolute_paths() {
        for good in [
            "",
            "[storage]\ndriver = \"overlay\"\nrunroot = \"/run/containers/storage\"\n",
            "[storage]\ngraphroot = \"$HOME/x\"\ndriver = \"\"\n[storage.options]\npull_options = {enable_partial_images = \"true\"}\n",
        ] {
            assert_eq!(judge_storage(good), None, "{good}");
        }
        for (bad, said) in [
            ("[storage\n", "unclosed table"),
            ("[storage]\ndriver = overlay\n", "string"),
            ("[storage]\ndriver = \"overlayfs\"\n", "no driver overlayfs"),
            (
                "[storage]\ngraphroot = 1\n",
                "storage.graphroot is not a string",
            ),
            ("[storage]\nrunroot = \"run/x\"\n", "not an absolute path"),
        ] {
            let fault = judge_storage(bad).unwrap();
            assert!(fault.contains(said), "{bad}: {fault}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_ends_the_program(text in "[a-z\\[\\]=#; \\n\\r]{0,80}") {
            let _ = judge_kubelet(&text, None);
            let _ = find_option(&text, "--config");
        }
    }
}
