//! Boot loader entries (`boot/loader/entries`), and the kernels below `boot/ostree`.

use crate::base::kargs::Kargs;
use crate::base::order::StableOrder;
use crate::base::paths;
use crate::host::root::{Root, RootError, RootPath};

/// A file of the Boot Loader Specification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootEntry {
    /// File name without `.conf`.
    pub file: String,
    /// Title in the menu.
    pub title: String,
    /// Version; ostree numbers its entries, and the highest is the default.
    pub version: String,
    /// Path of the kernel on the file system of `/boot`.
    pub linux: String,
    /// The initramfs, and other files loaded with it.
    pub initrd: Vec<String>,
    /// The kernel arguments, `ostree=` among them.
    pub options: Kargs,
}

/// A directory of ostree below `/boot`: one kernel with its initramfs, possibly shared by several deployments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelDirectory {
    /// `STATEROOT-CHECKSUM`.
    pub name: String,
    /// Size of all its files in bytes.
    pub bytes: u64,
}

impl BootEntry {
    /// Parses a file. Repeated `options` lines are joined, repeated `initrd` lines are kept in order, and of any other repeated
    /// key the last wins. Comments and unknown keys are skipped.
    pub fn parse(file: &str, text: &str) -> Self {
        let mut entry = Self {
            file: file.trim_end_matches(".conf").to_owned(),
            ..Self::default()
        };
        let mut options = Vec::new();
        for line in text.lines().map(str::trim) {
            let (key, value) = line.split_once([' ', '\t']).unwrap_or((line, ""));
            let value = value.trim().to_owned();
            match key {
                "title" => entry.title = value,
                "version" => entry.version = value,
                "linux" => entry.linux = value,
                "initrd" => entry
                    .initrd
                    .extend(value.split_whitespace().map(str::to_owned)),
                "options" => options.push(value),
                _ => {}
            }
        }
        entry.options = Kargs::parse(&options.join(" "));
        entry
    }

    /// Returns the link to its deployment: `/ostree/boot.N/STATEROOT/CHECKSUM/INDEX`.
    pub fn ostree_link(&self) -> Option<&str> {
        let mut tokens = self.options.tokens().iter();
        tokens.find_map(|token| token.strip_prefix("ostree="))
    }

    /// Returns the directory of its kernel below `boot/ostree`.
    pub fn kernel_directory(&self) -> Option<&str> {
        let (above, _) = self.linux.rsplit_once('/')?;
        let (before, name) = above.rsplit_once('/')?;
        before.ends_with("ostree").then_some(name)
    }
}

/// Sorts the entries, default first: ostree orders them by the number in `version`, then by file name.
pub fn in_order(mut entries: Vec<BootEntry>) -> Vec<BootEntry> {
    let number = |entry: &BootEntry| entry.version.parse::<u64>().ok();
    entries.order_by(|a, b| {
        let by_number = number(b).cmp(&number(a));
        let by_text = || b.version.cmp(&a.version).then(b.file.cmp(&a.file));
        by_number.then_with(by_text)
    });
    entries
}

/// Returns the entry of the running kernel, found by its `ostree=`.
pub fn find_booted_entry<'a>(
    entries: &'a [BootEntry],
    command_line: &Kargs,
) -> Option<&'a BootEntry> {
    let mut tokens = command_line.tokens().iter();
    let link = tokens.find_map(|token| token.strip_prefix("ostree="))?;
    entries
        .iter()
        .find(|entry| entry.ostree_link() == Some(link))
}

/// Returns the entry of the running kernel even if the entries were rewritten since the boot: their links then use another
/// `/ostree/boot.N` directory.
pub fn booted_since_rewritten<'a>(
    entries: &'a [BootEntry],
    command_line: &Kargs,
) -> Option<&'a BootEntry> {
    let below = |link: &str| link.splitn(4, '/').nth(3).map(str::to_owned);
    let mut tokens = command_line.tokens().iter();
    let link = tokens.find_map(|token| token.strip_prefix("ostree="))?;
    let is_same = |entry: &&BootEntry| {
        let there = entry.ostree_link().and_then(below);
        there.is_some() && there == below(link)
    };
    entries.iter().find(is_same)
}

/// Reads the entries of a root, default first.
///
/// # Errors
/// A directory or file cannot be read.
pub fn read_boot_entries(root: &Root) -> Result<Vec<BootEntry>, RootError> {
    let folder = RootPath::fixed(paths::BOOT_ENTRIES);
    let mut entries = Vec::new();
    for name in root.list(&folder)? {
        let Some(path) = name
            .ends_with(".conf")
            .then(|| folder.join(&name).ok())
            .flatten()
        else {
            continue;
        };
        if let Some(bytes) = root.read(&path)? {
            entries.push(BootEntry::parse(&name, &String::from_utf8_lossy(&bytes)));
        }
    }
    Ok(in_order(entries))
}

/// Reads the kernels below `boot/ostree`.
///
/// # Errors
/// A directory cannot be read.
pub fn list_kernel_directories(root: &Root) -> Result<Vec<KernelDirectory>, RootError> {
    let folder = RootPath::fixed(paths::BOOT_OSTREE);
    let mut all = Vec::new();
    for name in root.list(&folder)? {
        if let Ok(path) = folder.join(&name) {
            let bytes = bytes_in(root, &path, 2)?;
            all.push(KernelDirectory { name, bytes });
        }
    }
    Ok(all)
}

fn bytes_of(root: &Root, path: &RootPath) -> Result<u64, RootError> {
    let stat = root.stat(path)?;
    let is_file = |mode: u32| mode & libc::S_IFMT == libc::S_IFREG;
    let size = stat
        .filter(|stat| is_file(stat.st_mode))
        .map(|stat| stat.st_size);
    Ok(u64::try_from(size.unwrap_or_default()).unwrap_or_default())
}

/// Returns the size of the files in a directory and its subdirectories, down to `levels`.
fn bytes_in(root: &Root, path: &RootPath, levels: usize) -> Result<u64, RootError> {
    let mut total = bytes_of(root, path)?;
    if levels > 0 {
        for name in root.list(path)? {
            if let Ok(below) = path.join(&name) {
                total += bytes_in(root, &below, levels - 1)?;
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_boot_counts_and_foreign_keys_are_read_as_any_other() {
        let text = "title A (ostree:0)\nversion 3\noptions root=x rw ostree=/ostree/boot.1/os/ab/0\n\
                    linux /ostree/os-ab/vmlinuz-6\nx-options-source-tuned nohz_full=2-7 isolcpus=2-7\ngrub_users $grub_users\n";
        for file in [
            "ostree-1+3",
            "ostree-2+2-1",
            "ostree-2-rhcos+0-3",
            "ostree-2",
        ] {
            let entry = BootEntry::parse(&format!("{file}.conf"), text);
            assert_eq!(entry.file, file);
            assert_eq!(entry.version, "3");
            assert_eq!(entry.ostree_link(), Some("/ostree/boot.1/os/ab/0"));
            assert_eq!(entry.kernel_directory(), Some("os-ab"));
            // Arguments that another program owns are in `options` only where it put them there.
            assert!(
                !entry
                    .options
                    .tokens()
                    .iter()
                    .any(|word| word.contains("isolcpus"))
            );
        }
        // The number decides, whatever the file names are.
        let entry = |file: &str, version: &str| BootEntry {
            file: file.to_owned(),
            version: version.to_owned(),
            ..BootEntry::default()
        };
        let sorted = in_order(vec![entry("ostree-2+2-1", "2"), entry("ostree-1+3", "10")]);
        assert_eq!(sorted[0].file, "ostree-1+3");
    }

    const ENTRY: &str = "title Some OS 1 (ostree:0)\nversion 2\noptions root=x\noptions ostree=/ostree/boot.0/os/ab/0 q\n\
                         linux /ostree/os-ab/vmlinuz-6\ninitrd /ostree/os-ab/initramfs-6.img\n# comment\ngrub_users $x\n";

    #[test]
    fn an_entry_names_kernel_and_deployment() {
        let entry = BootEntry::parse("ostree-2.conf", ENTRY);
        assert_eq!(entry.file, "ostree-2");
        assert_eq!(entry.title, "Some OS 1 (ostree:0)");
        assert_eq!(
            entry.options,
            Kargs::parse("root=x ostree=/ostree/boot.0/os/ab/0 q")
        );
        assert_eq!(entry.ostree_link(), Some("/ostree/boot.0/os/ab/0"));
        assert_eq!(entry.kernel_directory(), Some("os-ab"));
        assert_eq!(entry.initrd, ["/ostree/os-ab/initramfs-6.img"]);
    }

    #[test]
    fn the_kernel_may_be_below_boot_where_that_is_not_a_mount() {
        let entry = BootEntry::parse("x", "linux /boot/ostree/os-ab/vmlinuz");
        assert_eq!(entry.kernel_directory(), Some("os-ab"));
        assert_eq!(
            BootEntry::parse("x", "linux /vmlinuz").kernel_directory(),
            None
        );
    }

    #[test]
    fn the_highest_version_is_the_default_and_numbers_are_numbers() {
        let entry = |file: &str, version: &str| BootEntry {
            file: file.to_owned(),
            version: version.to_owned(),
            ..BootEntry::default()
        };
        let sorted = in_order(vec![
            entry("a", "2"),
            entry("b", "10"),
            entry("c", ""),
            entry("d", "2"),
        ]);
        let files: Vec<&str> = sorted.iter().map(|entry| entry.file.as_str()).collect();
        assert_eq!(files, ["b", "d", "a", "c"]);
    }

    #[test]
    fn the_booted_entry_is_found_by_its_link() {
        let entries = [
            BootEntry::parse("x", "options ostree=/a"),
            BootEntry::parse("y", ENTRY),
        ];
        let line = Kargs::parse("BOOT_IMAGE=x ostree=/ostree/boot.0/os/ab/0 root=x");
        assert_eq!(find_booted_entry(&entries, &line).unwrap().file, "y");
        assert_eq!(find_booted_entry(&entries, &Kargs::parse("root=x")), None);
    }
}
