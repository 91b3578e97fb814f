//! A network between an administrator's machine and a box: two namespaces, a virtual cable, and a real ssh.
//!
//! The administrator's side is a network namespace of the test alone, so that every box can have the same address. It
//! ends with the test, however that ends. The box keeps its own namespace; the cable is plugged in at each of its boots.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

use super::run;

/// The address of the box.
pub const NODE: &str = "10.77.0.2";
/// The address of the administrator's machine.
const ADMIN: &str = "10.77.0.1";
/// Both of them, as `ip` and a keyfile have it.
const LENGTH: &str = "/24";
/// The name of the box's interface.
pub const INTERFACE: &str = "lan0";
/// Seconds until a login counts as refused. The way is a virtual cable, so one lost packet and its repetition fit.
const LOGIN: &str = "2";

/// The administrator's side: a network namespace and a key.
#[derive(Debug)]
pub struct Lan {
    network: File,
    key: PathBuf,
}

impl Lan {
    /// A network of its own, and a new key, which is kept below the directory.
    pub fn new(dir: &Path) -> Self {
        let key = dir.join("key");
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "core@bastion", "-f"]);
        run(keygen.arg(&key));
        let namespace = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        let network = thread::scope(|scope| scope.spawn(namespace).join().unwrap());
        Self { network, key }
    }

    /// The line for `authorized_keys`.
    pub fn public_key(&self) -> String {
        let text = fs::read_to_string(self.key.with_extension("pub")).unwrap();
        text.trim().to_owned()
    }

    /// The keyfile of NetworkManager with which the box answers.
    pub fn keyfile() -> String {
        keyfile(
            INTERFACE,
            &format!("method=manual\naddress1={NODE}{LENGTH}"),
        )
    }

    /// The file with the key that opens the box.
    pub fn key(&self) -> &Path {
        &self.key
    }

    /// Runs something on the administrator's machine, as far as the network goes.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        within(&self.network, work)
    }

    /// Plugs the cable into the network of this process, as the host has its number.
    pub fn plug_in(&self, pid: u32) {
        let script = format!(
            "! ip link show admin0 >/dev/null 2>&1 || ip link del admin0; \
             ip link add admin0 type veth peer name {INTERFACE} netns {pid}; \
             ip addr add {ADMIN}{LENGTH} dev admin0; ip link set admin0 up"
        );
        within(&self.network, || {
            run(Command::new("bash").args(["-euc", &script]));
        });
    }

    /// `ssh core@node COMMAND` in a connection of its own, to its end. It is killed after this many seconds.
    pub fn ssh(&self, seconds: u32, command: &str) -> Output {
        self.ssh_by(&[], seconds, command, &[])
    }

    /// The same with more options of ssh and something on its standard input.
    pub fn ssh_by(&self, options: &[&str], seconds: u32, command: &str, input: &[u8]) -> Output {
        let mut child = self.start_ssh(options, seconds, command);
        // It may be gone before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// The same, not waited for. Its output is read when it is waited for.
    pub fn start_ssh(&self, options: &[&str], seconds: u32, command: &str) -> Child {
        let mut ssh = Command::new("timeout");
        ssh.args(["--signal=KILL", &seconds.to_string()]);
        // It ends with the one that is killed.
        ssh.args(["setpriv", "--pdeathsig", "KILL"]);
        ssh.args(["ssh", "-F", "/dev/null", "-q", "-i"])
            .arg(&self.key);
        let timeout = format!("ConnectTimeout={LOGIN}");
        for option in [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "ServerAliveInterval=1",
            "ServerAliveCountMax=2",
            timeout.as_str(),
        ] {
            ssh.args(["-o", option]);
        }
        ssh.args(options).args([&format!("core@{NODE}"), command]);
        let ssh = ssh.stdin(Stdio::piped());
        let ssh = ssh.stdout(Stdio::piped()).stderr(Stdio::piped());
        within(&self.network, || ssh.spawn().unwrap())
    }

    /// Reports if `core` can log in with a new connection and become root.
    pub fn lets_in(&self) -> bool {
        self.ssh(5, "sudo -n true").status.success()
    }
}

/// A keyfile with this text below `[ipv4]`.
pub fn keyfile(interface: &str, ipv4: &str) -> String {
    format!(
        "[connection]\nid=lan\nuuid=6f1d1c3e-5b0a-4a55-9d5c-2a6f0e5a7c01\ntype=ethernet\ninterface-name={interface}\n\n\
         [ipv4]\n{ipv4}\n\n[ipv6]\nmethod=disabled\n"
    )
}

/// Runs something in a network namespace; threads and programs that it starts stay there.
pub fn within<T: Send>(network: &File, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(network.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}
