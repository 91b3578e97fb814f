//! Another machine of the network: a network namespace at the other end of a cable.

use std::io::Read;
use std::process::{Child, Command, Stdio};

/// It is there until it is dropped.
pub struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine {
    /// Connects it; both ends of the cable have this name. Addresses are for the caller to give.
    pub fn connect(cable: &str) -> Self {
        let mut child = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut ready)
            .unwrap();
        let machine = Self(child);
        let pid = machine.0.id();
        ip(&format!(
            "link add {cable} type veth peer name {cable} netns {pid}"
        ));
        machine
    }

    /// Returns a command that runs there, in the mounts and with the processes of the node.
    pub fn command(&self, program: &str) -> Command {
        let target = self.0.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", &target, program]);
        command
    }

    /// Calls `ip` there, which must work.
    pub fn ip(&self, line: &str) {
        let status = self.command("ip").args(line.split(' ')).status();
        assert!(status.unwrap().success(), "in the other machine: ip {line}");
    }
}

/// Calls `ip` on the node, which must work.
pub fn ip(line: &str) {
    let status = Command::new("ip").args(line.split(' ')).status();
    assert!(status.unwrap().success(), "ip {line}");
}
