//! A big guest: a node with systemd, reached as its administrator reaches it.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::images::{self, Layout};
use super::qemu::{Guest, Machine, PATIENCE};
use super::{Case, Shell, disk, run};
use crate::support::{self, Run};

/// The card that ssh comes by, and the cluster's network.
const MANAGEMENT: &str = "52:54:00:00:00:01";
const CLUSTER: &str = "52:54:00:00:00:02";
/// QEMU's name of the cluster's card.
pub const CLUSTER_CARD: &str = "cluster";

/// A node: its disk, the key that opens it, and how it is booted.
pub struct Node<'a> {
    case: &'a Case,
    layout: Layout,
    disk: PathBuf,
    key: PathBuf,
    boots: usize,
}

impl<'a> Node<'a> {
    /// A node that has never booted, with a key that nobody has told it yet.
    pub fn new(case: &'a Case, layout: Layout) -> Self {
        Self::of(case, layout, &images::node(layout))
    }

    /// The same with another disk.
    pub fn of(case: &'a Case, layout: Layout, image: &Path) -> Self {
        let key = case.path("key");
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "core@bastion", "-f"]);
        run(keygen.arg(&key));
        Self::opened_by(case, layout, image, &key)
    }

    /// The same with a disk that knows this key.
    pub fn opened_by(case: &'a Case, layout: Layout, image: &Path, key: &Path) -> Self {
        let disk = case.path("node.disk");
        disk::copy(image, &disk);
        Self {
            case,
            layout,
            disk,
            key: key.to_owned(),
            boots: 0,
        }
    }

    /// Its disk, while no guest runs on it.
    pub fn disk(&self) -> &Path {
        &self.disk
    }

    /// The line for `authorized_keys`.
    pub fn public_key(&self) -> String {
        fs::read_to_string(self.key.with_extension("pub"))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Works on its root, mounted on the host: what an installer, or the time before the story, has done to it.
    pub fn prepare(&self, work: impl FnOnce(&Path) + Send) {
        disk::mounted(&self.disk, |top| work(&self.root_of(top)));
    }

    /// The deployment, and its `/var` where it will be.
    fn root_of(&self, top: &Path) -> PathBuf {
        if self.layout == Layout::Plain {
            return top.to_owned();
        }
        let deployments = fs::read_dir(top.join("ostree/deploy/rhcos/deploy")).unwrap();
        let mut paths = deployments.map(|entry| entry.unwrap().path());
        paths.find(|path| path.is_dir()).unwrap()
    }

    /// What the boot loader would give the kernel.
    fn kernel_arguments(&self) -> String {
        let common = "rd.shell=0 rd.emergency=poweroff systemd.show_status=0";
        match self.layout {
            Layout::Plain => format!("root=LABEL=root rw {common}"),
            Layout::Ostree => {
                let entry = disk::read(&self.disk, "/boot/loader/entries/ostree-1-rhcos.conf");
                let options = entry.lines().find_map(|line| line.strip_prefix("options "));
                format!("{} {common}", options.unwrap())
            }
        }
    }

    /// The machine: this initramfs, its disk, and a card for ssh alone.
    pub fn machine(&self, initramfs: &Path) -> Machine {
        Machine::of(&images::node_kernel(), &[initramfs.to_owned()])
            .append(&self.kernel_arguments())
            .disk(&self.disk)
    }

    /// Boots this machine with a card for ssh.
    pub fn boot(&mut self, machine: &Machine) -> Booted {
        let port = support::unused_port(&["127.0.0.1"]);
        let net = format!("user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22");
        let card = format!("virtio-net-pci,netdev=ssh,mac={MANAGEMENT}");
        let machine = machine.clone().device(&["-netdev", &net, "-device", &card]);
        Booted {
            guest: self.start(&machine),
            port,
            key: self.key.clone(),
            shares: false,
        }
    }

    /// Boots it as it is.
    pub fn start(&mut self, machine: &Machine) -> Guest {
        self.boots += 1;
        machine.start(self.case.dir(), &format!("boot-{}", self.boots))
    }
}

/// The card of the cluster's network. `forward` is a port of the host's loopback that is `10.0.3.100:22623` there;
/// nothing else is.
pub fn cluster_network(machine: Machine, forward: Option<u16>) -> Machine {
    let forward = forward.map_or_else(String::new, |port| {
        format!(",guestfwd=tcp:10.0.3.100:22623-cmd:socat - TCP4:127.0.0.1:{port}")
    });
    let net = format!("user,id={CLUSTER_CARD},net=10.0.3.0/24,restrict=on{forward}");
    let card = format!("virtio-net-pci,netdev={CLUSTER_CARD},mac={CLUSTER}");
    machine.device(&["-netdev", &net, "-device", &card])
}

/// A node that is up, or on its way.
pub struct Booted {
    pub guest: Guest,
    port: u16,
    key: PathBuf,
    shares: bool,
}

impl Booted {
    /// The port of the host's loopback that is its sshd.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file with the key that opens it.
    pub fn key(&self) -> &Path {
        &self.key
    }

    fn ssh(&self, key: &Path, command: &str) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "/dev/null", "-q", "-p", &self.port.to_string(), "-i"])
            .arg(key);
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "ConnectTimeout=20",
        ] {
            ssh.args(["-o", option]);
        }
        if self.shares {
            let socket = format!("ControlPath={}", self.guest.socket("ssh").display());
            let options = ["ControlMaster=auto", "ControlPersist=600", &socket];
            ssh.args(options.map(|option| ["-o", option]).as_flattened());
        }
        ssh.args(["core@127.0.0.1", command]).stdin(Stdio::null());
        ssh
    }

    /// From now on all commands go over one connection: emulation takes seconds for a login. Such a login confirms no later
    /// change.
    pub fn shares_a_connection(&mut self) {
        self.shares = true;
    }

    /// Waits until `core` can log in, which must come true, and until systemd has started everything.
    pub fn comes_up(&mut self) {
        self.lets_core_in();
        self.run("systemctl is-system-running --wait");
    }

    /// Waits until `core` can log in, which must come true; the boot may still go on, or hang.
    pub fn lets_core_in(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.try_login(&self.key).status.success() {
            assert!(
                Instant::now() < deadline,
                "nobody can log in: {}",
                self.guest.tail()
            );
            assert!(self.guest.runs(), "it is gone: {}", self.guest.tail());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn try_login(&self, key: &Path) -> Output {
        self.ssh(key, "true").output().unwrap()
    }

    /// Whether this key opens it, now that it is up.
    pub fn lets_in(&self, key: &Path) -> bool {
        self.try_login(key).status.success()
    }

    /// `ssh core@node COMMAND`, to its end.
    pub fn run(&self, command: &str) -> Run {
        Run::of(self.ssh(&self.key, command).output().unwrap())
    }

    /// The same; it must end well. Gives what it printed.
    pub fn ask(&self, command: &str) -> String {
        Shell::ask(self, command)
    }

    /// Waits until a command ends well, which must come true.
    pub fn comes_to(&mut self, command: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(command).code() != 0 {
            assert!(Instant::now() < deadline, "{command}: it does not come");
            assert!(self.guest.runs(), "it is gone: {}", self.guest.tail());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// A file in the home of `core`, as `scp` leaves it.
    pub fn bring(&self, name: &str, content: &[u8]) {
        let mut ssh = self.ssh(&self.key, &format!("cat >{name} && chmod 755 {name}"));
        let mut child = ssh.stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(content).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// Ends it as an administrator does.
    pub fn power_off(mut self) {
        self.run("sudo systemctl --no-block poweroff");
        self.guest.powers_off();
    }
}

impl Shell for Booted {
    fn run(&self, command: &str) -> Run {
        Self::run(self, command)
    }
}
