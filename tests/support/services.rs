//! Real services in namespaces: `/usr`, `/etc`, `/run` and the network of this machine are not touched.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::mounts::{mount, with_network};
use super::{Lacks, is_root, skip};

/// The programs that tests/services.sh unpacks.
pub fn find_services() -> Option<PathBuf> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(target)
        .join("services");
    if dir.join("done").exists() {
        return Some(fs::canonicalize(dir).unwrap());
    }
    let lacks = if is_root() { Lacks::Setup } else { Lacks::Root };
    skip(
        lacks,
        "no NetworkManager, nft, sshd and chronyd, which are unpacked from Debian packages",
    );
    None
}

/// A node of namespaces, on which services can be started. They end with this value.
pub struct ServiceNode {
    dir: TempDir,
    children: Vec<Child>,
}

impl Drop for ServiceNode {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the test with the unpacked programs in `/usr`, an `/etc` and a `/run` of its own, and a network with nothing but a
/// loopback device.
pub fn with_services(test: impl FnOnce(&mut ServiceNode) + Send) {
    let Some(unpacked) = find_services() else {
        return;
    };
    with_network(|| {
        let dir = super::scratch_directory();
        let node = ServiceNode {
            dir,
            children: Vec::new(),
        };
        for name in ["usr", "etc"] {
            for part in ["upper", "work"] {
                fs::create_dir_all(node.path(&format!("{name}-{part}"))).unwrap();
            }
            let upper = node.path(&format!("{name}-upper"));
            let work = node.path(&format!("{name}-work"));
            let options = format!(
                "lowerdir={}:/{name},upperdir={},workdir={}",
                unpacked.join(name).display(),
                upper.display(),
                work.display()
            );
            mount(&[
                "-t",
                "overlay",
                "-o",
                &options,
                "overlay",
                &format!("/{name}"),
            ]);
        }
        mount(&["-t", "tmpfs", "-o", "mode=755", "none", "/run"]);
        // Devices of its own network; nothing asks udev where it cannot be written.
        mount(&["-t", "sysfs", "-o", "ro", "none", "/sys"]);
        let state = node.path("state");
        fs::create_dir(&state).unwrap();
        mount(&["--bind", state.to_str().unwrap(), "/var/lib"]);
        let mut node = node;
        test(&mut node);
        drop(node);
        // The scratch directory of an overlay goes once its mount has gone.
        for name in ["/etc", "/usr"] {
            let _ = Command::new("umount").args(["-l", name]).status();
        }
    });
}

impl ServiceNode {
    /// A path of the scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a program into the node. Its script says that it is a stub.
    pub fn program(&self, name: &str, script: &str) {
        let path = Path::new("/usr/bin").join(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Starts a program, of `/usr/sbin` or by its path, which ends with the node.
    pub fn start(&mut self, program: &str, args: &[&str]) -> usize {
        let name = program.rsplit('/').next().unwrap();
        let log = fs::File::create(self.path(&format!("{name}.log"))).unwrap();
        let child = Command::new(Path::new("/usr/sbin").join(program))
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.children.push(child);
        self.children.len() - 1
    }

    /// A program that was started.
    pub fn child(&mut self, index: usize) -> &mut Child {
        &mut self.children[index]
    }

    /// The output of a program that was started.
    pub fn log(&self, program: &str) -> String {
        fs::read_to_string(self.path(&format!("{program}.log"))).unwrap_or_default()
    }

    /// Ends a program orderly and waits for it.
    pub fn end(&mut self, index: usize) {
        let child = &mut self.children[index];
        let pid = child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        child.wait().unwrap();
    }
}

/// Runs a command, which must work, and returns its output.
pub fn command(words: &[&str]) -> String {
    let (program, args) = words.split_first().unwrap();
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {text}{err}");
    text
}

/// Waits until something is so. A minute is far more than it takes.
pub fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The bus and the NetworkManager of a node, with a cable between the devices `v0` and `v1`.
pub struct Network<'n> {
    /// The node.
    pub node: &'n mut ServiceNode,
    manager: usize,
}

/// Below this are the keyfiles.
const KEYFILES: &str = "/etc/NetworkManager/system-connections";

impl<'n> Network<'n> {
    /// Starts the bus, and NetworkManager with the keyfiles that are there.
    pub fn begin(node: &'n mut ServiceNode) -> Self {
        fs::create_dir_all("/run/dbus").unwrap();
        fs::create_dir_all("/var/lib/NetworkManager").unwrap();
        let config = "[main]\nplugins=keyfile\nauth-polkit=root-only\ndhcp=internal\nrc-manager=unmanaged\n\
                      no-auto-default=*\n";
        fs::write("/etc/NetworkManager/NetworkManager.conf", config).unwrap();
        symlink("/usr/bin/dbus-daemon", "/usr/sbin/dbus-daemon").unwrap();
        node.start("dbus-daemon", &["--system", "--nofork", "--nopidfile"]);
        wait_until("the bus starts", || {
            Path::new("/run/dbus/system_bus_socket").exists()
        });
        command(&[
            "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1",
        ]);
        command(&["ip", "link", "set", "v1", "up"]);
        let mut network = Self { node, manager: 0 };
        network.start();
        network
    }

    /// Starts NetworkManager, and waits until it answers and has done what it does at its start.
    pub fn start(&mut self) {
        self.manager = self.node.start("NetworkManager", &["--no-daemon"]);
        let runs = || {
            let state = Command::new("nmcli")
                .args(["-g", "STARTUP,RUNNING", "general", "status"])
                .output()
                .unwrap();
            String::from_utf8_lossy(&state.stdout).trim() == "started:running"
        };
        wait_until("NetworkManager starts", runs);
    }

    /// Ends NetworkManager.
    pub fn end(&mut self) {
        self.node.end(self.manager);
    }

    /// Writes a keyfile as an administrator does.
    pub fn write(&self, name: &str, text: &str) -> String {
        let path = format!("{KEYFILES}/{name}.nmconnection");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    /// The log of NetworkManager.
    pub fn log(&self) -> String {
        self.node.log("NetworkManager")
    }
}

/// A keyfile for a device with an address; the comment is the administrator's.
pub fn keyfile(id: u32, device: &str, address: &str, more: &str) -> String {
    format!(
        "# by hand\n[connection]\nid=c{id}\nuuid=11111111-1111-1111-1111-{id:012}\ntype=ethernet\n\
         interface-name={device}\n{more}\n[ipv4]\nmethod=manual\naddress1={address}/24\n\n[ipv6]\nmethod=disabled\n"
    )
}

/// The IPv4 addresses of a device.
pub fn addresses(device: &str) -> Vec<String> {
    let text = command(&["ip", "-4", "-o", "addr", "show", "dev", device]);
    let words = text
        .lines()
        .filter_map(|line| line.split_whitespace().nth(3));
    let plain = words.filter_map(|word| word.split('/').next());
    plain.map(str::to_owned).collect()
}
