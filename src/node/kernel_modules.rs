//! Kernel modules that a node needs, and the modprobe settings that prevent them from being loaded (modprobe.d(5)).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::fault_group::FaultWeight;
use super::kubelet_state::{is_enabled, unit_text};
use super::network::Network;
use super::platform::NextConfig;
use super::platform::node_files::NodeFiles;
use crate::base::kargs::Kargs;
use crate::config::document::MachineConfig;
use crate::host::root::{Root, RootError, RootPath};

/// Directories of settings. A file hides files of the same name in later directories.
const DIRECTORIES: [&str; 4] = [
    "etc/modprobe.d",
    "run/modprobe.d",
    "usr/local/lib/modprobe.d",
    "usr/lib/modprobe.d",
];
const MODULES: &str = "usr/lib/modules";

/// The argument that makes the kernel itself refuse modules.
const REFUSED_BY_KERNEL: &str = "module_blacklist";
/// The argument that modprobe treats like `blacklist` lines.
const REFUSED_BY_MODPROBE: &str = "modprobe.blacklist";

/// The effect of a setting on a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleBlock {
    /// It is never loaded.
    Never,
    /// It can only be loaded by name, not on demand through an alias.
    ByNameOnly,
}

/// A setting that prevents a module from being loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleSetting {
    /// The module, with `_` for `-`; a pattern in `install` lines.
    pub module: String,
    /// The effect.
    pub block: ModuleBlock,
    /// The source.
    pub place: SettingPlace,
    /// The line or the argument.
    pub said: String,
}

/// The source of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingPlace {
    /// Lines of a file; a line that ends in a backslash continues in the next one.
    Lines {
        /// The file, such as `/etc/modprobe.d/a.conf`.
        file: String,
        /// Number of the first line.
        first: usize,
        /// Number of the last line.
        last: usize,
    },
    /// A kernel argument with this name.
    Argument(&'static str),
}

impl SettingPlace {
    /// Returns true if the place is a line of this file.
    pub fn is_in(&self, path: &str) -> bool {
        matches!(self, Self::Lines { file, .. } if file == path)
    }
}

impl fmt::Display for SettingPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lines { file, first, .. } => write!(f, "{file}:{first}"),
            Self::Argument(name) => write!(f, "kernel argument {name}"),
        }
    }
}

/// A module without which part of the node does not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededModule {
    /// Name of the module.
    pub name: String,
    /// The part that needs it and for what purpose, as a clause.
    pub by: &'static str,
    /// It is loaded by name.
    pub by_name: bool,
}

impl NeededModule {
    /// Describes the module as turned off.
    pub fn turned_off(&self) -> String {
        format!("the kernel module {} is turned off", self.name)
    }

    /// Returns the consequence of a setting that turns it off.
    pub fn effect_of(&self, setting: &ModuleSetting) -> (FaultWeight, String) {
        let by = self.by;
        match setting.block {
            ModuleBlock::Never => (
                FaultWeight::Fatal,
                format!("The next boot does not load it, and {by}."),
            ),
            ModuleBlock::ByNameOnly => (
                FaultWeight::Partial,
                format!("The next boot loads it only if a program asks for it by name, and {by}."),
            ),
        }
    }

    /// Returns the failure message.
    pub fn describe_failure(&self) -> String {
        format!("modprobe: ERROR: could not insert '{}'", self.name)
    }
}

/// The settings that prevent modules of a node from being loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelModules {
    /// Settings of modprobe, in modprobe's order.
    pub settings: Vec<ModuleSetting>,
    /// The contents of the files with such settings, except symbolic links.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Modules that the node needs.
    pub needed: Vec<NeededModule>,
}

const OPEN_VSWITCH: &str = "Open vSwitch needs it for the cluster network";
const CONTAINERS: &str = "CRI-O needs it for the file systems of containers";
const PODS: &str = "pods need it for their network";
const FILTER: &str = "the cluster network needs it for its filters";
const BOND: &str = "NetworkManager needs it for a bond";
const VLAN: &str = "NetworkManager needs it for a VLAN";

/// The unit that creates the bridge of the cluster network.
const BRIDGE_UNIT: &str = "ovs-configuration.service";
const KUBELET_UNIT: &str = "kubelet.service";

/// Reads the settings of a node and the modules that it needs, derived from its connections and from its units, or those of the
/// config that it will get.
///
/// # Errors
/// A file or directory cannot be read.
pub fn read_kernel_modules(
    root: &Root,
    network: &Network,
    wanted: Option<&MachineConfig>,
) -> Result<KernelModules, RootError> {
    read_next(root, network, wanted, None)
}

/// Reads the same; with `next`, with the settings as they will be after a run of that config.
///
/// # Errors
/// A file or directory cannot be read.
pub fn read_next(
    root: &Root,
    network: &Network,
    wanted: Option<&MachineConfig>,
    next: Option<NextConfig<'_>>,
) -> Result<KernelModules, RootError> {
    let brings = |name: &str| {
        let units = wanted
            .into_iter()
            .flat_map(|config| &config.ignition.systemd.units);
        units
            .filter(|unit| unit.enabled == Some(true))
            .any(|unit| unit.name == name)
    };
    let mut needed = Vec::new();
    let mut need = |name: &str, by, by_name| {
        needed.push(NeededModule {
            name: name.to_owned(),
            by,
            by_name,
        });
    };
    if brings(BRIDGE_UNIT) || is_enabled(root, BRIDGE_UNIT)? {
        need("openvswitch", OPEN_VSWITCH, true);
        need("geneve", OPEN_VSWITCH, false);
    }
    if brings(KUBELET_UNIT) || unit_text(root, KUBELET_UNIT)?.is_some() {
        need("overlay", CONTAINERS, false);
        need("veth", PODS, false);
        need("nf_tables", FILTER, false);
    }
    let in_force = network.keyfiles.iter().filter(|one| one.is_in_force());
    let kinds: BTreeSet<&str> = in_force.map(|one| &*one.kind).collect();
    for (kind, module, by) in [("bond", "bonding", BOND), ("vlan", "8021q", VLAN)] {
        if kinds.contains(kind) {
            need(module, by, false);
        }
    }
    let mut modules = KernelModules {
        needed,
        ..read_settings(root, &NodeFiles::new(root, next))?
    };
    if !modules.needed.is_empty() {
        modules.add_dependencies(&read_kernels(root)?);
    }
    Ok(modules)
}

/// The modules of the kernels on an operating system.
#[derive(Debug, Default)]
struct Kernels {
    /// Modules with those that are loaded before them.
    dependencies: BTreeMap<String, BTreeSet<String>>,
    /// Modules that are built into the kernel.
    built_in: BTreeSet<String>,
}

impl KernelModules {
    /// Adds the modules that needed modules depend on. Built-in modules need no loading.
    fn add_dependencies(&mut self, kernels: &Kernels) {
        let needed = std::mem::take(&mut self.needed);
        for one in needed {
            let below = kernels.dependencies.get(&one.name);
            let below = below.into_iter().flatten().map(|name| NeededModule {
                name: name.clone(),
                by: one.by,
                // modprobe loads it by name, before the module that depends on it.
                by_name: true,
            });
            self.needed.extend(below);
            if !kernels.built_in.contains(&one.name) {
                self.needed.push(one);
            }
        }
    }

    /// Replaces the settings of a file with those of its planned content.
    pub fn overwrite(&mut self, path: &str, text: &str) {
        self.settings.retain(|setting| !setting.place.is_in(path));
        self.settings.extend(parse_settings(path, text));
    }

    /// Returns the settings that prevent a needed module from being loaded, each with that module. `arguments` are the kernel
    /// arguments of the boot in question.
    pub fn find_blocked(&self, arguments: &Kargs) -> Vec<(&NeededModule, ModuleSetting)> {
        let all = self.all_settings(arguments);
        let mut found: Vec<(&NeededModule, ModuleSetting)> = Vec::new();
        for needed in &self.needed {
            let is_blocked = |setting: &&ModuleSetting| needed.is_blocked_by(setting);
            let worst = all.iter().filter(is_blocked).min_by_key(|one| one.block);
            let is_new = |setting: &&ModuleSetting| {
                found.iter().all(|(_, other)| other.place != setting.place)
            };
            found.extend(worst.filter(is_new).map(|one| (needed, one.clone())));
        }
        found
    }

    /// Returns all settings that prevent the module of this name from being loaded for any of its users.
    pub fn find_blocking(&self, name: &str, arguments: &Kargs) -> Vec<ModuleSetting> {
        let named = |needed: &&NeededModule| needed.name == name;
        let needed: Vec<&NeededModule> = self.needed.iter().filter(named).collect();
        let mut all = self.all_settings(arguments);
        all.retain(|setting| needed.iter().any(|one| one.is_blocked_by(setting)));
        all
    }

    fn all_settings(&self, arguments: &Kargs) -> Vec<ModuleSetting> {
        let mut all = of_arguments(arguments);
        all.extend(self.settings.iter().cloned());
        all
    }

    /// Returns a file without the lines of these settings; `None` if its text is unknown.
    pub fn file_without(&self, path: &str, settings: &[ModuleSetting]) -> Option<Vec<u8>> {
        let is_left = |number: usize| {
            !settings.iter().any(|setting| match &setting.place {
                SettingPlace::Lines { file, first, last } => {
                    file == path && (*first..=*last).contains(&number)
                }
                SettingPlace::Argument(_) => false,
            })
        };
        let lines = self.files.get(path)?.split_inclusive(|byte| *byte == b'\n');
        let left = lines.enumerate().filter(|(at, _)| is_left(at + 1));
        Some(left.flat_map(|(_, line)| line).copied().collect())
    }
}

impl NeededModule {
    fn is_blocked_by(&self, setting: &ModuleSetting) -> bool {
        matches_pattern(&setting.module, &self.name)
            && (setting.block == ModuleBlock::Never || !self.by_name)
    }
}

/// Returns true if modprobe reads its settings from this path.
pub fn is_settings_file(path: &RootPath) -> bool {
    path.name().ends_with(".conf") && path.is_in(DIRECTORIES[0])
}

/// Returns true if the name in a setting, possibly a pattern, matches the module.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == name;
    };
    name.strip_prefix(before).is_some_and(|rest| {
        (0..=rest.len()).any(|at| {
            rest.get(at..)
                .is_some_and(|rest| matches_pattern(after, rest))
        })
    })
}

/// Returns true if kernel arguments turn any module off.
pub fn turns_modules_off(arguments: &Kargs) -> bool {
    !of_arguments(arguments).is_empty()
}

fn of_arguments(arguments: &Kargs) -> Vec<ModuleSetting> {
    let mut all = Vec::new();
    for token in arguments.tokens() {
        let Some((key, value)) = token.split_once('=') else {
            continue;
        };
        let (name, block) = match key {
            REFUSED_BY_KERNEL => (REFUSED_BY_KERNEL, ModuleBlock::Never),
            REFUSED_BY_MODPROBE => (REFUSED_BY_MODPROBE, ModuleBlock::ByNameOnly),
            _ => continue,
        };
        all.extend(value.split(',').map(|module| ModuleSetting {
            module: with_underscores(module),
            block,
            place: SettingPlace::Argument(name),
            said: token.clone(),
        }));
    }
    all
}

fn with_underscores(name: &str) -> String {
    name.replace('-', "_")
}

fn read_settings(root: &Root, node: &NodeFiles<'_>) -> Result<KernelModules, RootError> {
    let mut files: BTreeMap<String, RootPath> = BTreeMap::new();
    for folder in DIRECTORIES.map(RootPath::fixed) {
        for name in node.list(&folder)? {
            if let (true, Ok(path)) = (name.ends_with(".conf"), folder.join(&name)) {
                files.entry(name).or_insert(path);
            }
        }
    }
    let mut modules = KernelModules::default();
    for path in files.values() {
        // A link to /dev/null disables a file of the OS.
        let Some(bytes) = node.read_small(path)? else {
            continue;
        };
        let settings = parse_settings(&path.to_string(), &String::from_utf8_lossy(&bytes));
        let is_plain = node.is_written(path) || root.read_link(path)?.is_none();
        if !settings.is_empty() && is_plain {
            modules.files.insert(path.to_string(), bytes);
        }
        modules.settings.extend(settings);
    }
    Ok(modules)
}

/// Parses a file of `modprobe.d`. `install` commands that may still load the module are not judged.
pub fn parse_settings(path: &str, text: &str) -> Vec<ModuleSetting> {
    let mut all = Vec::new();
    let mut number = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        number += 1;
        let first = number;
        let mut whole = line.to_owned();
        while let Some(begin) = whole.strip_suffix('\\') {
            let Some(next) = lines.next() else { break };
            number += 1;
            whole = format!("{begin}{next}");
        }
        let mut words = whole.split([' ', '\t']).filter(|word| !word.is_empty());
        let (Some(command), Some(module)) = (words.next(), words.next()) else {
            continue;
        };
        let block = match command {
            "blacklist" => ModuleBlock::ByNameOnly,
            "install" if is_no_command(&words.collect::<Vec<_>>()) => ModuleBlock::Never,
            _ => continue,
        };
        all.push(ModuleSetting {
            module: with_underscores(module),
            block,
            place: SettingPlace::Lines {
                file: path.to_owned(),
                first,
                last: number,
            },
            said: whole.trim().to_owned(),
        });
    }
    all
}

/// Returns true if an `install` command loads nothing.
fn is_no_command(words: &[&str]) -> bool {
    let program = words
        .first()
        .map(|word| word.rsplit('/').next().unwrap_or(word));
    let ends = |word: &&&str| !["&&", "||", ";"].contains(*word);
    words.iter().skip(1).all(|word| ends(&word))
        && matches!(program, Some("true" | "false" | ":" | "exit"))
}

fn read_kernels(root: &Root) -> Result<Kernels, RootError> {
    let mut kernels = Kernels::default();
    let folder = RootPath::fixed(MODULES);
    for version in root.list(&folder)? {
        let Ok(of_version) = folder.join(&version) else {
            continue;
        };
        let text = |name: &str| -> Result<String, RootError> {
            let bytes = match of_version.join(name) {
                Ok(path) => root.read_file(&path)?,
                Err(_) => None,
            };
            Ok(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())
        };
        for line in text("modules.dep")?.lines() {
            let Some((module, below)) = line.split_once(':') else {
                continue;
            };
            let below = below.split_whitespace().map(module_of);
            let of_module = kernels.dependencies.entry(module_of(module)).or_default();
            of_module.extend(below);
        }
        let built_in = text("modules.builtin")?;
        kernels.built_in.extend(built_in.lines().map(module_of));
    }
    Ok(kernels)
}

/// Returns the module name of a file such as `kernel/net/openvswitch/openvswitch.ko.xz`.
fn module_of(path: &str) -> String {
    let name = path.trim().rsplit('/').next().unwrap_or(path);
    with_underscores(name.split_once(".ko").map_or(name, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<(String, ModuleBlock)> {
        let all = parse_settings("/etc/modprobe.d/a.conf", text);
        all.into_iter().map(|one| (one.module, one.block)).collect()
    }

    #[test]
    fn commands_that_load_nothing_turn_a_module_off() {
        use ModuleBlock::{ByNameOnly, Never};
        for (text, expected) in [
            (
                "install vport-geneve /bin/false\n",
                vec![("vport_geneve", Never)],
            ),
            ("install a /usr/bin/true # for now\n", vec![("a", Never)]),
            (
                "  install\ta  \\\n /bin/false\nblacklist b\n",
                vec![("a", Never), ("b", ByNameOnly)],
            ),
            ("install a exit 0\n", vec![("a", Never)]),
            (
                "install a /bin/true && modprobe --ignore-install a\n",
                vec![],
            ),
            ("install a /sbin/modprobe --ignore-install a\n", vec![]),
            (
                "#install a /bin/false\noptions a b=1\ninstall a\nblacklist\n\\\n",
                vec![],
            ),
        ] {
            let expected: Vec<_> = expected
                .iter()
                .map(|(name, block)| ((*name).to_owned(), *block))
                .collect();
            assert_eq!(blocks(text), expected, "{text}");
        }
        assert_eq!(
            parse_settings("/a", "\\\n\n#\ninstall x \\\n/bin/false\n")[0].place,
            SettingPlace::Lines {
                file: "/a".to_owned(),
                first: 4,
                last: 5
            }
        );
    }

    #[test]
    fn a_blacklisted_module_is_still_loaded_by_its_name() {
        let modules = KernelModules {
            settings: parse_settings("/a", "blacklist openvswitch\nblacklist geneve\n"),
            needed: vec![
                NeededModule {
                    name: "openvswitch".into(),
                    by: "x",
                    by_name: true,
                },
                NeededModule {
                    name: "geneve".into(),
                    by: "x",
                    by_name: false,
                },
            ],
            ..KernelModules::default()
        };
        let found = |line: &str| -> Vec<String> {
            let found = modules.find_blocked(&Kargs::parse(line));
            found
                .iter()
                .map(|(needed, by)| format!("{} {}", needed.name, by.place))
                .collect()
        };
        assert_eq!(found("rw"), ["geneve /a:2"]);
        assert_eq!(
            found("module_blacklist=x,openvswitch"),
            [
                "openvswitch kernel argument module_blacklist",
                "geneve /a:2"
            ]
        );
        assert_eq!(found("modprobe.blacklist=openvswitch"), ["geneve /a:2"]);
    }
}
