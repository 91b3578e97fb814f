//! A node's root in a scratch directory, the program run on it, and what the tree looks like.

pub mod ansible;
pub mod commands;
#[allow(dead_code, reason = "each kind of test uses a part")]
pub mod control_plane;
pub mod dns;
pub mod documents;
pub mod faults;
pub mod fuzz_targets;
pub mod http;
pub mod ignition;
pub mod images;
pub mod live;
pub mod luks;
pub mod machine;
pub mod mcs;
pub mod mounts;
pub mod notify;
#[allow(dead_code, reason = "in part for the boxes of vm-tests")]
pub mod oci;
pub mod ostree_node;
pub mod patch;
pub mod scenes;
pub mod secret_forms;
pub mod services;
pub mod skip;
pub mod sshd;
pub mod steps;
pub mod sysroot;
pub mod trace;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

pub(crate) use skip::{Lacks, skip};
use tempfile::TempDir;

/// The program under test: the one that was built with the tests, or the one that `TESTED_BINARY` named at that time.
/// `make test` names the release.
pub const PROGRAM: &str = match option_env!("TESTED_BINARY") {
    Some(path) => path,
    None => env!("CARGO_BIN_EXE_mco-rescue"),
};

/// The system of a [`TestRoot`].
pub const OS_RELEASE: &str = "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhcos\"\nVARIANT_ID=coreos\n\
    VERSION_ID=\"4.18\"\nVERSION=\"418.94.202501221327-0\"\n\
    PRETTY_NAME=\"Red Hat Enterprise Linux CoreOS 418.94.202501221327-0\"\n";

/// The config that the daemon takes for the one the node is in.
pub const RECORD: &str = "etc/machine-config-daemon/currentconfig";
/// The directory of our own state.
pub const STATE: &str = "var/lib/mco-rescue";

/// The containers' policy file as the image of every node brings it; without one, nothing can be pulled.
pub const POLICY: (&str, &str) = (
    "etc/containers/policy.json",
    r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
);

/// A root directory that looks like a node which has booted before.
pub struct TestRoot {
    dir: TempDir,
}

/// What stands at one path: type, mode, owner, and content or link target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: char,
    pub mode: u32,
    pub owner: (u32, u32),
    pub content: Vec<u8>,
}

/// Every path below a root, relative.
pub type Snapshot = BTreeMap<String, Entry>;

impl TestRoot {
    /// A CoreOS with accounts, a machine id, a kubeconfig, empty `var/lib`; `core` owns its home.
    pub fn new() -> Self {
        let root = Self {
            dir: scratch_directory(),
        };
        let (uid, gid) = root.core();
        for dir in [
            "usr/lib/systemd/system",
            "var/lib",
            "home/core",
            "etc/kubernetes",
        ] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        root.write(
            "etc/passwd",
            &format!("root:x:0:0::/root:/bin/sh\ncore:x:{uid}:{gid}::/home/core:/bin/bash\n"),
        );
        root.write(
            "etc/group",
            &format!("root:x:0:\ncore:x:{gid}:\nwheel:x:10:core\n"),
        );
        root.write(
            "etc/shadow",
            "root:*:19000:0:99999:7:::\ncore:*:19000:0:99999:7:::\n",
        );
        root.chmod("etc/shadow", 0o600);
        root.write("usr/lib/os-release", OS_RELEASE);
        root.link("etc/os-release", "../usr/lib/os-release");
        root.write("etc/machine-id", "0123456789abcdef0123456789abcdef\n");
        root.write("etc/kubernetes/kubeconfig", "kind: Config\n");
        root.chmod("etc/kubernetes/kubeconfig", 0o600);
        std::os::unix::fs::chown(root.path("home/core"), Some(uid), Some(gid)).unwrap();
        root
    }

    /// Nothing in it yet.
    pub fn empty() -> Self {
        Self {
            dir: scratch_directory(),
        }
    }

    /// Uid and gid of `core`: 1000 as root, else our own.
    pub fn core(&self) -> (u32, u32) {
        let meta = fs::metadata(self.dir.path()).unwrap();
        if meta.uid() == 0 {
            (1000, 1000)
        } else {
            (meta.uid(), meta.gid())
        }
    }

    /// The path of the root itself.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A path inside the root.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.dir.path().join(relative.trim_start_matches('/'))
    }

    /// Writes a file (0644) with its parents.
    pub fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        // NetworkManager takes no connection that others may read.
        let mode = if relative.contains("NetworkManager/system-connections/") {
            0o600
        } else {
            0o644
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Makes a symbolic link with its parents.
    pub fn link(&self, relative: &str, target: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub fn chmod(&self, relative: &str, mode: u32) {
        fs::set_permissions(self.path(relative), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn remove(&self, relative: &str) {
        fs::remove_file(self.path(relative)).unwrap();
    }

    pub fn read(&self, relative: &str) -> String {
        fs::read_to_string(self.path(relative)).unwrap()
    }

    pub fn mode(&self, relative: &str) -> u32 {
        fs::symlink_metadata(self.path(relative)).unwrap().mode() & 0o7777
    }

    pub fn exists(&self, relative: &str) -> bool {
        fs::symlink_metadata(self.path(relative)).is_ok()
    }

    /// The target of a link, or nothing.
    pub fn target(&self, relative: &str) -> Option<String> {
        Some(
            fs::read_link(self.path(relative))
                .ok()?
                .to_str()
                .unwrap()
                .to_owned(),
        )
    }

    /// Writes a config beside the root (not into it) and gives its path.
    pub fn config(&self, value: &serde_json::Value) -> Config {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, value.to_string().as_bytes()).unwrap();
        Config(file)
    }

    /// Runs `mco-rescue --root ROOT ARGS…` without standard input. A command that it prints and that does not work is an
    /// error of every test ([`commands`]).
    pub fn run(&self, args: &[&str]) -> Run {
        let output = self.command(args).stdin(Stdio::null()).output().unwrap();
        commands::check(&output, self.dir.path().to_str().unwrap());
        commands::check_engine(&output, self.dir.path());
        Run::of(output)
    }

    /// Runs a command that only reads once more, as on a node that has bootc and no rpm-ostree: what it says about the operating
    /// system is in the words of that node ([`commands::check_engine`]).
    pub fn run_with_bootc_alone(&self, args: &[&str]) {
        let is_there = |name: &&str| self.exists(&format!("usr/bin/{name}"));
        // The top of a disk has no usr, which is that of its deployments.
        if ["bootc", "rpm-ostree"].iter().any(is_there) || !self.exists("usr") {
            return;
        }
        let is_new = !self.exists("usr/bin");
        // A full disk takes no program.
        if fs::create_dir_all(self.path("usr/bin")).is_err() {
            return;
        }
        if fs::write(self.path("usr/bin/bootc"), "").is_ok() {
            let _ = self.run(args);
        }
        let _ = fs::remove_file(self.path("usr/bin/bootc"));
        if is_new {
            fs::remove_dir(self.path("usr/bin")).unwrap();
        }
    }

    /// The same, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("--root").arg(self.dir.path()).args(args);
        command
    }

    /// Applies a config, which must work.
    pub fn apply(&self, value: &serde_json::Value) -> Run {
        let config = self.config(value);
        self.run(&["apply", "--yes", config.path()]).ok()
    }

    /// Everything but our own state directory.
    pub fn snapshot(&self) -> Snapshot {
        let mut all = self.everything();
        all.retain(|path, _| !path.starts_with(STATE));
        all
    }

    /// Everything.
    pub fn everything(&self) -> Snapshot {
        let mut all = Snapshot::new();
        walk(self.dir.path(), "", &mut all);
        all
    }
}

/// What is mounted in a root is never deleted with it: everything below it is unmounted first.
impl Drop for TestRoot {
    fn drop(&mut self) {
        let root = self.dir.path().to_str().unwrap();
        let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        let points: Vec<&str> = points.filter(|point| point.starts_with(root)).collect();
        for point in points.iter().rev() {
            let status = Command::new("umount").args(["-l", point]).status();
            // Then rather leave it all behind.
            if !status.is_ok_and(|status| status.success()) {
                eprintln!("{point} cannot be unmounted");
                std::process::abort();
            }
        }
    }
}

fn walk(dir: &Path, prefix: &str, all: &mut Snapshot) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        let (kind, content) = if meta.is_symlink() {
            (
                'l',
                fs::read_link(entry.path())
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .as_bytes()
                    .to_vec(),
            )
        } else if meta.is_dir() {
            walk(&entry.path(), &format!("{path}/"), all);
            ('d', Vec::new())
        } else if meta.is_file() {
            ('f', fs::read(entry.path()).unwrap())
        } else {
            // A pipe or device: reading one may wait for ever.
            ('s', Vec::new())
        };
        all.insert(
            path,
            Entry {
                kind,
                mode: meta.mode() & 0o7777,
                owner: (meta.uid(), meta.gid()),
                content,
            },
        );
    }
}

/// A config file outside the root.
pub struct Config(tempfile::NamedTempFile);

impl Config {
    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

/// A finished run.
#[derive(Debug)]
pub struct Run(Output);

impl Run {
    /// The result of a command that was put together by hand. A document that is not as the manual describes it is an
    /// error of every test.
    pub fn of(output: Output) -> Self {
        documents::check(&output.stdout);
        Self(output)
    }

    pub fn output(&self) -> &Output {
        &self.0
    }

    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap_or(-1)
    }

    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.0.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}{}", self.out(), self.err()))
    }

    /// Panics with all output unless the exit code is 0.
    pub fn ok(self) -> Self {
        self.exits(0)
    }

    /// Panics with all output unless the exit code is this one.
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(
            self.code(),
            code,
            "stdout:\n{}\nstderr:\n{}",
            self.out(),
            self.err()
        );
        self
    }
}

/// Text without its line breaks.
pub fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All that a run printed, without line breaks.
pub fn flat_run(run: &Run) -> String {
    flat(&(run.out() + &run.err()))
}

/// A rendered MachineConfig with this Ignition config (its version is added), with the marks that the operator gives it.
pub fn machine_config(name: &str, mut ignition: serde_json::Value) -> serde_json::Value {
    if ignition.get("ignition").is_none() {
        ignition["ignition"] = serde_json::json!({"version": "3.5.0"});
    }
    serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": rendered_metadata(name),
        "spec": {
            "osImageURL": "registry.example/os@sha256:0",
            "baseOSExtensionsContainerImage": "",
            "config": ignition,
            "kernelArguments": [],
            "extensions": [],
            "fips": false,
            "kernelType": "default",
        },
    })
}

/// Gives a rendered config that was changed the name that the operator would give it.
pub fn name_anew(config: &mut serde_json::Value) {
    let hash = mco_rescue::config::render::name_hash(&config["spec"]).unwrap();
    let name = config["metadata"]["name"].as_str().unwrap();
    let (pool, _) = name.rsplit_once('-').unwrap();
    config["metadata"]["name"] = serde_json::json!(format!("{pool}-{hash}"));
}

/// The unit without which no rendered config is a whole one.
pub fn kubelet_unit() -> serde_json::Value {
    serde_json::json!({"name": "kubelet.service", "contents": "[Service]\nExecStart=/usr/bin/kubelet\n"})
}

/// Owner and annotation of a rendered MachineConfig of the pool in its name.
pub fn rendered_metadata(name: &str) -> serde_json::Value {
    let pool = name
        .strip_prefix("rendered-")
        .and_then(|rest| rest.rsplit_once('-'));
    let pool = pool.map_or("worker", |(pool, _)| pool);
    serde_json::json!({
        "name": name,
        "annotations": {
            "machineconfiguration.openshift.io/generated-by-controller-version": "7ff337a4ffac8e7562692181178ede61e4b2eec5",
            "machineconfiguration.openshift.io/release-image-version": "",
        },
        "ownerReferences": [{
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfigPool",
            "name": pool,
            "uid": "00000000-0000-0000-0000-000000000000",
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

/// A config with `/etc/pool.conf`, rendered by the operator's rules, so that the hash in its name is right.
pub fn by_operator(pool: &str, text: &str) -> serde_json::Value {
    let root = TestRoot::new();
    let config = root.config(&serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": "99-x", "labels": {"machineconfiguration.openshift.io/role": pool}},
        "spec": {"config": {"ignition": {"version": "3.4.0"},
            "storage": {"files": [file("/etc/pool.conf", 0o644, text)]}}},
    }));
    let image = "registry.example/os@sha256:0";
    let args = ["render", pool, config.path(), "--os-image", image];
    root.run(&args).ok().json()
}

/// A state file as JSON, without its seal: it can be written back with other contents.
pub fn unsealed(text: &str) -> serde_json::Value {
    let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
    if let Some(members) = value.as_object_mut() {
        members.remove("checksum");
    }
    value
}

/// A file entry with plain text.
pub fn file(path: &str, mode: u32, text: &str) -> serde_json::Value {
    let encoded: String = text.bytes().map(|b| format!("%{b:02X}")).collect();
    serde_json::json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": format!("data:,{encoded}")}})
}

/// In memory where that can be had: `syncfs` would wait for everything else the machine writes.
/// `MCO_RESCUE_TEST_DIR` names another place, such as a file system to be tested.
fn scratch_directory() -> TempDir {
    let place = std::env::var("MCO_RESCUE_TEST_DIR").unwrap_or_else(|_| "/dev/shm".to_owned());
    tempfile::tempdir_in(place)
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

/// Says something that the test runner does not swallow: what was skipped, how much was compared.
pub fn say(text: &str) {
    use std::io::Write;
    let line = format!("{text}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A port where nobody listens, and which the kernel gives to nobody by itself.
pub fn unused_port(addresses: &[&str]) -> u16 {
    use std::net::{TcpListener, UdpSocket};
    use std::sync::atomic::{AtomicU16, Ordering};
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = 10_000 + (std::process::id() % 200) as u16 * 100;
    let free = |address: &&str, port| {
        UdpSocket::bind((*address, port)).is_ok() && TcpListener::bind((*address, port)).is_ok()
    };
    (0..100)
        .map(|_| start + NEXT.fetch_add(1, Ordering::SeqCst))
        .find(|port| addresses.iter().all(|address| free(address, *port)))
        .expect("no free port")
}

/// Whether we are root; tests that need it say so when they pass over something.
pub fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// The captured data beside the checkout, if it is there.
pub fn shared_data(relative: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../shared/data")
        .join(relative);
    if path.exists() {
        return Some(path);
    }
    skip(
        Lacks::Shared,
        &format!("../shared/data/{relative} is not there"),
    );
    None
}

/// By another process: a file that we write ourselves cannot be run while another test's child holds it open.
pub fn install(from: &Path, to: &Path) {
    let status = Command::new("install").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// The program without what only a debugger needs, a third of its size: roots get a copy, and runs on a live node make one more.
pub fn stripped_program() -> &'static Path {
    static STRIPPED: OnceLock<PathBuf> = OnceLock::new();
    STRIPPED.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mco-rescue");
        // Under a name of its own first: another test process may be running the old one.
        let new = path.with_extension(std::process::id().to_string());
        let mut strip = Command::new("strip");
        let status = strip.arg("-o").arg(&new).arg(PROGRAM).status().unwrap();
        assert!(status.success());
        fs::rename(&new, &path).unwrap();
        path
    })
}

/// Copies the program into a root.
pub fn install_program(to: &Path) {
    install(stripped_program(), to);
}

/// A program of this system with the libraries that it is linked with, at the same places.
pub fn copy_program(root: &TestRoot, program: &str) {
    copy_unpacked(root, "", program);
}

/// The same for a program whose package is unpacked in a directory: its libraries come from there too, if they are there.
pub fn copy_unpacked(root: &TestRoot, dir: &str, program: &str) {
    let program = format!("{dir}{program}");
    let mut ldd = Command::new("ldd");
    if !dir.is_empty() {
        ldd.env("LD_LIBRARY_PATH", format!("{dir}/usr/lib/x86_64-linux-gnu"));
    }
    let output = ldd.arg(&program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let files = text.split_whitespace().filter(|word| word.starts_with('/'));
    for file in files.chain([program.as_str()]) {
        let place = root.path(file.strip_prefix(dir).unwrap_or(file));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        install(file.as_ref(), &place);
    }
}

/// `/dev/null` of a root that is entered.
pub fn null_device(root: &TestRoot) {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    mknod(&root.path("dev/null"), SFlag::S_IFCHR, mode, makedev(1, 3)).unwrap();
}
