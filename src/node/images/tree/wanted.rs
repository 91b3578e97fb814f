//! The files of an image that the pre-crossing checks read.

/// How much of a file is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// Nothing.
    Nothing,
    /// Its name and size.
    Presence,
    /// Its content too, up to this many bytes.
    Content(u64),
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Directories whose files are kept: by name, or with their content up to a limit.
const DIRECTORIES: [(&str, Want); 18] = [
    ("usr/bin", Want::Presence),
    ("usr/sbin", Want::Presence),
    ("usr/libexec/crio", Want::Presence),
    ("usr/etc/crio", Want::Content(MIB)),
    ("usr/lib/bootupd/updates", Want::Content(16 * MIB)),
    ("usr/lib/efi", Want::Content(16 * MIB)),
    ("usr/lib/bootc/kargs.d", Want::Content(64 * KIB)),
    ("usr/share/openshift/base", Want::Content(8 * MIB)),
    ("usr/share/buildinfo", Want::Content(MIB)),
    ("usr/lib/systemd/system", Want::Presence),
    ("usr/lib/systemd/network", Want::Content(64 * KIB)),
    ("usr/etc/systemd/network", Want::Content(64 * KIB)),
    ("usr/etc/ssh", Want::Content(64 * KIB)),
    ("usr/lib/sysusers.d", Want::Content(64 * KIB)),
    ("usr/lib/NetworkManager", Want::Presence),
    ("usr/lib64/NetworkManager", Want::Presence),
    ("usr/share/rpm", Want::Presence),
    ("usr/lib/sysimage/rpm", Want::Presence),
];

/// Single files.
const FILES: [(&str, Want); 12] = [
    ("usr/lib/systemd/systemd", Want::Presence),
    ("usr/lib/os-release", Want::Content(64 * KIB)),
    ("usr/lib64/libc.so.6", Want::Content(8 * MIB)),
    ("usr/lib64/ld-linux-x86-64.so.2", Want::Content(4 * MIB)),
    ("usr/lib/ostree-boot", Want::Presence),
    ("usr/lib/systemd/system/soft-reboot.target", Want::Presence),
    ("usr/lib/passwd", Want::Content(MIB)),
    ("usr/lib/group", Want::Content(MIB)),
    ("usr/libexec/ssh-key-dir", Want::Presence),
    (
        "usr/lib/systemd/system/ssh-host-keys-migration.service",
        Want::Presence,
    ),
    ("usr/lib/ostree/prepare-root.conf", Want::Content(64 * KIB)),
    ("usr/etc/selinux/config", Want::Content(64 * KIB)),
];

/// Lists of a kernel's modules, below `usr/lib/modules/VERSION`.
const MODULE_LISTS: [&str; 6] = [
    "modules.alias",
    "modules.builtin",
    "modules.builtin.modinfo",
    "modules.dep",
    "modules.softdep",
    "modules.order",
];

/// Returns how much of a file is kept. `path` has no leading slash, and `usr/etc` instead of `/etc`.
pub(super) fn find_want(path: &str) -> Want {
    if let Some(rest) = path.strip_prefix("usr/lib/modules/") {
        return match rest.split_once('/') {
            Some((_, "vmlinuz" | "initramfs.img" | ".vmlinuz.hmac")) => Want::Presence,
            Some((_, name)) if MODULE_LISTS.contains(&name) => Want::Content(16 * MIB),
            _ => Want::Nothing,
        };
    }
    if let Some((_, want)) = FILES.iter().find(|(file, _)| *file == path) {
        return *want;
    }
    let inside = |directory: &str| {
        path.strip_prefix(directory)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    let found = DIRECTORIES.iter().find(|(directory, _)| inside(directory));
    found.map_or(Want::Nothing, |(_, want)| *want)
}

/// Directories that are slow to read and only needed for a crossing.
const ONLY_FOR_A_CROSSING: [&str; 5] = [
    "usr/lib/modules",
    "usr/lib/systemd/system",
    "usr/share/buildinfo",
    "usr/share/rpm",
    "usr/lib/sysimage/rpm",
];

/// Returns the directories whose files are read; fewer if `brief` is set.
pub(super) fn wanted_directories(brief: bool) -> impl Iterator<Item = &'static str> {
    let kept = DIRECTORIES.iter().map(|(directory, _)| *directory);
    let all = kept.chain(["usr/lib/modules"]);
    all.filter(move |directory| !brief || !ONLY_FOR_A_CROSSING.contains(directory))
}

/// Returns the single files that are read.
pub(super) fn single_files() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(file, _)| *file)
}

/// Returns true for a directory with very many files, none of which is kept.
pub(super) fn is_pruned(path: &str) -> bool {
    let below = path.strip_prefix("usr/lib/modules/");
    below.is_some_and(|rest| rest.contains('/'))
}
