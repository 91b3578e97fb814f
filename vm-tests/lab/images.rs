//! Images that are built once and kept by what they are made of.
//!
//! They are in `$XDG_CACHE_HOME/mco-rescue/vm` (or `~/.cache`), named by a hash of the scripts, lists and programs
//! that made them: a clean checkout on the same machine finds them there. One is built under a lock, under another
//! name, and renamed when it is whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use super::{checkout, run};
use crate::support::{PROGRAM, say};

/// How long a version is kept that is not the newest.
const KEPT: Duration = Duration::from_secs(3600);

/// What a tiny guest boots.
#[derive(Clone)]
pub struct Tiny {
    pub kernel: PathBuf,
    pub initrd: Vec<PathBuf>,
}

/// Without the program.
pub fn tiny_alone() -> Tiny {
    let kernel = kernel();
    let (script, init) = (script("tiny.sh"), checkout().join("vm-tests/guest/init"));
    let made_of = [text_of(&script), text_of(&init), name_of(&kernel)];
    let image = kept("tiny", &made_of, |out| {
        run(Command::new(&script).arg(out).arg(&kernel).arg(&init));
    });
    Tiny {
        kernel: kernel.join("vmlinuz"),
        initrd: vec![image],
    }
}

/// With the program as `/bin/mco-rescue`.
pub fn tiny() -> Tiny {
    let mut tiny = tiny_alone();
    tiny.initrd.push(program_archive());
    tiny
}

/// The kernel of the tiny guests, `vmlinuz`, and its modules with their index.
pub fn kernel() -> PathBuf {
    let script = script("kernel.sh");
    kept("kernel", &[text_of(&script)], |out| {
        run(Command::new(&script).arg(out));
    })
}

/// The program as guests get it: without debugging information.
pub fn program() -> PathBuf {
    static DIGEST: OnceLock<String> = OnceLock::new();
    let digest = DIGEST.get_or_init(|| hash(&fs::read(PROGRAM).unwrap()));
    kept("program", std::slice::from_ref(digest), |out| {
        run(Command::new("strip").arg("-o").arg(out).arg(PROGRAM));
    })
}

/// An archive with the program as `/bin/mco-rescue`.
pub fn program_archive() -> PathBuf {
    let program = program();
    kept("program-archive", &[name_of(&program)], |out| {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::copy(&program, dir.path().join("bin/mco-rescue")).unwrap();
        fs::write(out, packed(dir.path(), "zstd -1 -q")).unwrap();
    })
}

/// A directory as an archive that the kernel reads, through a program that packs it.
pub fn packed(dir: &Path, packer: &str) -> Vec<u8> {
    let pipe = format!("find . -mindepth 1 | LC_ALL=C sort | cpio -o -H newc --quiet | {packer}");
    let mut command = Command::new("bash");
    command
        .args(["-c", &format!("set -euo pipefail; {pipe}")])
        .current_dir(dir);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

pub fn script(name: &str) -> PathBuf {
    checkout().join("vm-tests/images").join(name)
}

/// A file's text, as part of a key.
pub fn text_of(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// An image's name holds its own key.
pub fn name_of(image: &Path) -> String {
    image.file_name().unwrap().to_str().unwrap().to_owned()
}

pub fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME is not set")).join(".cache");
    let base = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    let dir = base.join("mco-rescue/vm");
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// The image of this name that is made of these; built when it is not there.
pub fn kept(name: &str, made_of: &[String], build: impl FnOnce(&Path)) -> PathBuf {
    kept_in(&cache(), name, made_of, build)
}

/// The same in a directory of its own.
pub fn kept_in(dir: &Path, name: &str, made_of: &[String], build: impl FnOnce(&Path)) -> PathBuf {
    let path = dir.join(format!("{name}-{}", hash(made_of.join("\0").as_bytes())));
    let lock = lock(&dir.join(format!(".{name}.lock")), FlockArg::LockExclusive).unwrap();
    if !path.exists() {
        let begun = Instant::now();
        let unfinished = dir.join(format!(".{name}.unfinished"));
        remove(&unfinished);
        build(&unfinished);
        fs::rename(&unfinished, &path).unwrap();
        say(&format!(
            "vm: image {name}: built in {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
    }
    in_use(&path);
    prune(dir, name, &path);
    drop(lock);
    path
}

fn lock(path: &Path, how: FlockArg) -> Option<Flock<File>> {
    Flock::lock(File::create(path).unwrap(), how).ok()
}

/// Held until the program ends, so that nobody removes the image meanwhile.
fn in_use(path: &Path) {
    static HELD: Mutex<Vec<Flock<File>>> = Mutex::new(Vec::new());
    let held = lock(&beside(path), FlockArg::LockShared).unwrap();
    held.set_modified(SystemTime::now()).unwrap();
    HELD.lock().unwrap().push(held);
}

fn beside(image: &Path) -> PathBuf {
    image.with_file_name(format!(".{}.used", name_of(image)))
}

/// Removes the image's versions that nobody uses, or has used of late: another checkout may have other scripts.
fn prune(dir: &Path, name: &str, keep: &Path) {
    for entry in fs::read_dir(dir).unwrap().map_while(Result::ok) {
        let path = entry.path();
        let version = name_of(&path);
        let same = version
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('-'));
        let is_version = same.is_some_and(|key| key.bytes().all(|b| b.is_ascii_hexdigit()));
        if !is_version || path == keep || lately(&beside(&path)) {
            continue;
        }
        if lock(&beside(&path), FlockArg::LockExclusiveNonblock).is_some() {
            remove(&path);
            remove(&beside(&path));
        }
    }
}

fn lately(used: &Path) -> bool {
    let modified = fs::metadata(used).and_then(|meta| meta.modified());
    let ago = modified.ok().and_then(|time| time.elapsed().ok());
    ago.is_some_and(|ago| ago < KEPT)
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

/// A Debian tree with systemd, dracut, Ignition, OSTree and OpenSSH. Takes a minute or two and root the first time.
fn root() -> PathBuf {
    let script = script("root.sh");
    kept("root", &[text_of(&script)], |out| {
        run(Command::new(&script).arg(out));
    })
}

/// The kernel of that tree.
pub fn node_kernel() -> PathBuf {
    let boot = fs::read_dir(root().join("boot")).unwrap();
    let mut files = boot.map(|entry| entry.unwrap().path());
    files
        .find(|path| name_of(path).starts_with("vmlinuz-"))
        .unwrap()
}

/// Which kind of root a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One file system.
    Plain,
    /// A deployment of OSTree, with the `/var` of its stateroot.
    Ostree,
}

/// The disk of a node that has never booted. A case works on a copy.
pub fn node(layout: Layout) -> PathBuf {
    let (name, script) = match layout {
        Layout::Plain => ("node", script("node.sh")),
        Layout::Ostree => ("ostree", script("ostree.sh")),
    };
    let parts = ["furnish.sh", "shape.sh"].map(|name| text_of(&self::script(name)));
    on_root(name, &script, &parts, |_| {})
}

/// The disks of a node whose operating system can be changed, `root` and `boot`, in one directory.
pub fn with_two_systems() -> PathBuf {
    let initramfs = initramfs(Kind::Lean);
    let standin = checkout().join("vm-tests/guest/rpm-ostree");
    let texts = ["ostree.sh", "furnish.sh", "shape.sh"].map(|name| text_of(&script(name)));
    let parts = ["client", "daemon"].map(|name| text_of(&standin.join(name)));
    let more = [&texts[..], &parts[..], &[name_of(&initramfs)]].concat();
    on_root("os", &script("os.sh"), &more, |command| {
        command.arg(&initramfs).arg(&standin);
    })
}

/// The disk of a node of the next major version: Debian 13 with systemd 257. The kernel is that of the tiny guests.
pub fn next_node() -> PathBuf {
    let script = script("next-root.sh");
    let root = kept("next-root", &[text_of(&script)], |out| {
        run(Command::new(&script).arg(out));
    });
    let kernel = kernel();
    let parts = [text_of(&self::script("furnish.sh")), name_of(&kernel)];
    let script = self::script("next-node.sh");
    on_tree(&root, "next-node", &script, &parts, |command| {
        command.arg(&kernel);
    })
}

/// What dracut makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Without Ignition and network.
    Lean,
    Ignition,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Lean => "lean",
            Self::Ignition => "ignition",
        }
    }
}

/// The initramfs of an image that never heard of us.
pub fn initramfs(kind: Kind) -> PathBuf {
    let name = format!("initramfs-{}", kind.name());
    on_root(&name, &script("initramfs.sh"), &[], |command| {
        command.arg(kind.name());
    })
}

/// The same with the checkout's dracut module and the program.
pub fn initramfs_with_us(kind: Kind) -> PathBuf {
    let (module, program) = (checkout().join("dracut/50mco-rescue"), program());
    let name = format!("initramfs-{}-with-us", kind.name());
    let mut more = vec![name_of(&program)];
    let mut files: Vec<PathBuf> = fs::read_dir(&module)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    more.extend(files.iter().flat_map(|file| [name_of(file), text_of(file)]));
    on_root(&name, &script("initramfs.sh"), &more, |command| {
        command.arg(kind.name()).arg(&module).arg(&program);
    })
}

/// What a script makes of the tree; what it writes there is gone afterwards.
fn on_root(
    name: &str,
    script: &Path,
    more: &[String],
    arguments: impl FnOnce(&mut Command),
) -> PathBuf {
    on_tree(&root(), name, script, more, arguments)
}

/// The same of another tree.
fn on_tree(
    root: &Path,
    name: &str,
    script: &Path,
    more: &[String],
    arguments: impl FnOnce(&mut Command),
) -> PathBuf {
    let wrapper = self::script("on-top.sh");
    let mut made_of = vec![text_of(script), text_of(&wrapper), name_of(root)];
    made_of.extend_from_slice(more);
    kept(name, &made_of, |out| {
        let mut command = Command::new(&wrapper);
        command.arg(root).arg(script).arg(out);
        arguments(&mut command);
        run(&mut command);
    })
}
