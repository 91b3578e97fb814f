//! The lists of a kernel's modules: which module handles a device, and what a module depends on.

use std::collections::{BTreeMap, BTreeSet};

use super::module_name;
use crate::formats::systemd::glob_matches;

/// The lists of one kernel. Names have `_` for `-`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleLists {
    /// Patterns by bus, such as `pci`, each with its module.
    aliases: BTreeMap<String, Vec<(String, String)>>,
    /// Modules that are built into the kernel.
    builtin: BTreeSet<String>,
    /// Modules with their dependencies.
    needs: BTreeMap<String, Vec<String>>,
}

impl ModuleLists {
    /// Parses the lists, whose files `text` returns by name: `modules.alias`, `modules.dep` and the lists of built-in modules.
    /// Missing lists are treated as empty.
    pub fn parse(mut text: impl FnMut(&str) -> Option<Vec<u8>>) -> Self {
        let mut read = |name: &str| text(name).unwrap_or_default();
        let mut lists = Self::default();
        for line in String::from_utf8_lossy(&read("modules.alias")).lines() {
            let mut words = line.split_ascii_whitespace();
            if let (Some("alias"), Some(pattern), Some(module)) =
                (words.next(), words.next(), words.next())
            {
                lists.add_alias(pattern, module);
            }
        }
        for entry in read("modules.builtin.modinfo").split(|byte| *byte == 0) {
            let entry = String::from_utf8_lossy(entry);
            // `virtio_pci.alias=pci:v00001AF4d*`
            if let Some((module, rest)) = entry.split_once('.') {
                lists.builtin.insert(normal_name(module));
                if let Some(pattern) = rest.strip_prefix("alias=") {
                    lists.add_alias(pattern, module);
                }
            }
        }
        let builtin = read("modules.builtin");
        let builtin = String::from_utf8_lossy(&builtin);
        lists
            .builtin
            .extend(builtin.lines().filter_map(module_name));
        for line in String::from_utf8_lossy(&read("modules.dep")).lines() {
            if let Some((module, needs)) = line.split_once(':')
                && let Some(module) = module_name(module.trim())
            {
                let needs = needs.split_ascii_whitespace().filter_map(module_name);
                lists.needs.insert(module, needs.collect());
            }
        }
        lists
    }

    fn add_alias(&mut self, pattern: &str, module: &str) {
        let bus = bus_of(pattern).to_owned();
        let entry = (normal_alias(pattern), normal_name(module));
        self.aliases.entry(bus).or_default().push(entry);
    }

    /// Returns true if no module is listed.
    pub fn is_empty(&self) -> bool {
        self.aliases.is_empty() || (self.needs.is_empty() && self.builtin.is_empty())
    }

    /// Returns the modules that handle a device with this `modalias`.
    pub fn modules_of(&self, modalias: &str) -> BTreeSet<&str> {
        let wanted = normal_alias(modalias);
        let patterns = self.aliases.get(bus_of(modalias)).into_iter().flatten();
        let fits = patterns.filter(|(pattern, _)| glob_matches(pattern, &wanted));
        fits.map(|(_, module)| module.as_str()).collect()
    }

    /// Returns true if the module is built into the kernel.
    pub fn is_builtin(&self, module: &str) -> bool {
        self.builtin.contains(module)
    }

    /// Returns true if a module or an alias of this name exists, built in or as a file.
    pub fn knows(&self, module: &str) -> bool {
        let module = normal_name(module);
        self.is_builtin(&module)
            || self.needs.contains_key(&module)
            || !self.modules_of(&module).is_empty()
    }

    /// Returns a module with all its dependencies that are not built in.
    pub fn with_needs<'a>(&'a self, module: &'a str) -> BTreeSet<&'a str> {
        let all = [module].into_iter().chain(
            // `modules.dep` also lists indirect dependencies.
            self.needs
                .get(module)
                .into_iter()
                .flatten()
                .map(String::as_str),
        );
        all.filter(|module| !self.is_builtin(module)).collect()
    }
}

/// Returns the bus of an alias: the part before the colon. Patterns of another bus never match.
fn bus_of(alias: &str) -> &str {
    alias.split_once(':').map_or("", |(bus, _)| bus)
}

fn normal_name(name: &str) -> String {
    name.replace('-', "_")
}

/// Treats `-` and `_` as equal except within brackets, like the kernel's tools.
fn normal_alias(alias: &str) -> String {
    let mut inside = false;
    let letters = alias.chars().map(|letter| {
        inside = (inside || letter == '[') && letter != ']';
        match letter {
            '-' if !inside => '_',
            letter => letter,
        }
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(files: &[(&str, &str)]) -> ModuleLists {
        ModuleLists::parse(|name| {
            let found = files.iter().find(|(file, _)| *file == name);
            found.map(|(_, text)| text.as_bytes().to_vec())
        })
    }

    #[test]
    fn a_device_is_taken_by_pattern() {
        let lists = lists(&[
            (
                "modules.alias",
                "# Aliases\nalias pci:v00008086d00001533sv*sd*bc*sc*i* igb\nalias scsi:t-0x00* sd_mod\n\
                 alias usb:v0BDAp8153d30[0-9]*dc*dsc*dp*ic*isc*ip*in* r8152\nalias acpi*:PNP0C0C:* button\n\
                 alias fs-xfs xfs\nbroken\n",
            ),
            (
                "modules.builtin.modinfo",
                "virtio_pci.license=GPL\0virtio_pci.alias=pci:v00001AF4d*sv*sd*bc*sc*i*\0",
            ),
            ("modules.builtin", "kernel/drivers/virtio/virtio-ring.ko\n"),
            (
                "modules.dep",
                "kernel/drivers/net/igb.ko.xz: kernel/i2c-algo.ko.xz kernel/dca.ko.xz\nkernel/dca.ko.xz:\n",
            ),
        ]);
        for (alias, modules) in [
            (
                "pci:v00008086d00001533sv00008086sd00000001bc02sc00i00",
                "igb",
            ),
            ("pci:v00008086d00001534sv00008086sd00000001bc02sc00i00", ""),
            (
                "pci:v00001AF4d00001000sv00001AF4sd00000001bc02sc00i00",
                "virtio_pci",
            ),
            ("scsi:t-0x00", "sd_mod"),
            ("usb:v0BDAp8153d3013dc00dsc00dp00icFFiscFFip00in00", "r8152"),
            ("usb:v0BDAp8153dA013dc00dsc00dp00icFFiscFFip00in00", ""),
            ("", ""),
        ] {
            let found: Vec<_> = lists.modules_of(alias).into_iter().collect();
            assert_eq!(found.join(" "), modules, "{alias}");
        }
        let needs: Vec<_> = lists.with_needs("igb").into_iter().collect();
        assert_eq!(needs, ["dca", "i2c_algo", "igb"]);
        assert!(lists.is_builtin("virtio_ring") && lists.is_builtin("virtio_pci"));
        assert!(lists.with_needs("virtio_ring").is_empty());
        assert!(lists.knows("dca") && lists.knows("fs-xfs") && !lists.knows("e1000"));
        assert!(!lists.is_empty() && ModuleLists::default().is_empty());
    }
}
