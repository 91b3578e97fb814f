//! A real sshd with users and keys of its own, and real logins at it. Everything is in namespaces: `/etc/passwd`, `/run` and the
//! network of this machine are not touched.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::machine::{Machine, ip};
use super::mounts::{mount, with_network};
use super::{Lacks, install_program, skip};

/// Address of the node.
pub const NODE: &str = "192.0.2.10";
/// Another address of the node.
pub const NODE_TOO: &str = "192.0.2.11";
/// Address of the client, which is in a network of its own.
pub const CLIENT: &str = "192.0.2.7";
/// Port of sshd.
pub const PORT: u16 = 2222;

/// The sshd of tests/openssh.sh, or that of this machine.
pub fn find_sshd() -> Option<PathBuf> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
    let unpacked = unpacked.join("openssh/usr/sbin/sshd");
    [unpacked, "/usr/sbin/sshd".into()]
        .into_iter()
        .find(|path| path.exists())
}

/// A running sshd; it ends with this value.
pub struct Sshd {
    dir: TempDir,
    program: PathBuf,
    listener: Child,
    masters: Vec<Child>,
    /// The client's.
    machine: Machine,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        for child in self.masters.iter_mut().chain([&mut self.listener]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs the test beside a real sshd, in a network of its own.
pub fn with_sshd(test: impl FnOnce(&mut Sshd) + Send) {
    let Some(program) = find_sshd() else {
        skip(
            Lacks::Setup,
            "no sshd; tests/setup.sh unpacks one on Debian",
        );
        return;
    };
    with_network(|| {
        let machine = connect_client();
        let dir = super::scratch_directory();
        let at = |name: &str| dir.path().join(name);
        open_to_all(dir.path(), 0o755);
        install_program(&at("mco-rescue"));
        open_to_all(&at("mco-rescue"), 0o755);
        make_users(dir.path());
        make_keys(dir.path());
        mount(&["-t", "tmpfs", "-o", "mode=755", "none", "/run"]);
        fs::create_dir("/run/sshd").unwrap();
        fs::write("/run/utmp", "").unwrap();
        let helpers = program.parent().unwrap().join("../lib/openssh");
        if helpers.exists() && Path::new("/usr/lib/openssh").exists() {
            let helpers = helpers.to_str().unwrap();
            mount(&["--bind", helpers, "/usr/lib/openssh"]);
        }
        let listener = listen(&program, dir.path());
        let mut sshd = Sshd {
            dir,
            program,
            listener,
            masters: Vec::new(),
            machine,
        };
        test(&mut sshd);
    });
}

/// Connects the machine of the client.
fn connect_client() -> Machine {
    let machine = Machine::connect("client");
    machine.ip(&format!("addr add {CLIENT}/24 dev client"));
    machine.ip("link set client up");
    for address in [NODE, NODE_TOO] {
        ip(&format!("addr add {address}/24 dev client"));
    }
    ip("link set client up");
    machine
}

fn open_to_all(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Users, and what PAM and sudo allow them.
fn make_users(dir: &Path) {
    let at = |name: &str| dir.join(name);
    let passwd = "root:x:0:0::/root:/bin/sh\nsshd:x:110:65534::/run/sshd:/usr/sbin/nologin\n\
                  core:x:1000:1000::/:/bin/sh\n";
    fs::write(at("passwd"), passwd).unwrap();
    let group = "root:x:0:\ntty:x:5:\nutmp:x:43:\nnogroup:x:65534:\ncore:x:1000:\n";
    fs::write(at("group"), group).unwrap();
    let lines = "root:*:19000:0:99999:7:::\nsshd:!:19000::::::\ncore:*:19000:0:99999:7:::\n";
    fs::write(at("shadow"), lines).unwrap();
    let sudoers =
        "Defaults env_reset\nroot ALL=(ALL) NOPASSWD: ALL\ncore ALL=(ALL) NOPASSWD: ALL\n";
    fs::write(at("sudoers"), sudoers).unwrap();
    open_to_all(&at("sudoers"), 0o440);
    fs::create_dir(at("pam.d")).unwrap();
    // The node's own lines of the session; nothing is asked of the user.
    let pam = "auth required pam_permit.so\naccount required pam_permit.so\n\
               session optional pam_loginuid.so\nsession optional pam_motd.so\n";
    for program in ["sshd", "sudo", "su", "other"] {
        fs::write(
            at("pam.d").join(program),
            pam.replace(
                "optional pam_loginuid",
                match program {
                    "sshd" => "optional pam_loginuid",
                    _ => "optional pam_permit",
                },
            ),
        )
        .unwrap();
    }
    for name in ["passwd", "group", "shadow", "sudoers", "pam.d"] {
        let target = format!("/etc/{name}");
        if Path::new(&target).exists() {
            mount(&["--bind", at(name).to_str().unwrap(), &target]);
        }
    }
}

fn make_keys(dir: &Path) {
    for name in ["host_key", "key"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(dir.join(name))
            .status();
        assert!(made.unwrap().success());
    }
    fs::copy(dir.join("key.pub"), dir.join("keys")).unwrap();
    open_to_all(&dir.join("keys"), 0o644);
    let config = format!(
        "Port {PORT}\nHostKey {dir}/host_key\nAuthorizedKeysFile {dir}/keys\nStrictModes no\nPidFile none\n\
         UsePAM yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\nPrintMotd no\n\
         PrintLastLog no\n",
        dir = dir.display()
    );
    fs::write(dir.join("sshd_config"), config).unwrap();
}

/// Starts a listener, and waits until it takes connections.
fn listen(program: &Path, dir: &Path) -> Child {
    let log = fs::File::create(dir.join("log")).unwrap();
    let mut command = Command::new(program);
    command
        .args(["-D", "-e", "-f"])
        .arg(dir.join("sshd_config"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect((NODE, PORT)).is_err() {
        let log = || fs::read_to_string(dir.join("log")).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "{}", log());
        assert!(Instant::now() < end, "{}", log());
        std::thread::yield_now();
    }
    child
}

impl Sshd {
    /// A file of the scratch directory, which users may read.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program under test, as a user may run it.
    pub fn program(&self) -> String {
        self.path("mco-rescue").display().to_string()
    }

    /// Ends the listener and starts another one, as a restart of the unit does: connections stay.
    pub fn restart(&mut self) {
        self.listener.kill().unwrap();
        self.listener.wait().unwrap();
        self.listener = listen(&self.program, self.dir.path());
    }

    /// A client on its own machine.
    fn client(&self, user: &str) -> Command {
        self.with_options(self.machine.command("ssh"), user)
    }

    fn with_options(&self, mut command: Command, user: &str) -> Command {
        command
            .args(["-F", "none", "-q", "-i"])
            .arg(self.path("key"));
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
        ] {
            command.args(["-o", option]);
        }
        let port = PORT.to_string();
        command.args(["-p", &port, "-l", user]);
        command.stdin(Stdio::null());
        command
    }

    /// A connection that others share; it stays open. The name of its socket is returned.
    pub fn open_master(&mut self, user: &str, name: &str) -> PathBuf {
        let socket = self.path(name);
        let mut command = self.client(user);
        command.args(["-M", "-N", "-S"]).arg(&socket);
        let mut master = command.arg(NODE).spawn().unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while !socket.exists() {
            assert!(master.try_wait().unwrap().is_none(), "{}", self.log());
            assert!(Instant::now() < end, "{}", self.log());
            std::thread::yield_now();
        }
        self.masters.push(master);
        socket
    }

    /// Runs a script in a second channel of a shared connection.
    pub fn run_shared(&self, socket: &Path, script: &str) -> String {
        let mut command = self.client("unused");
        command.arg("-S").arg(socket).args([NODE, script]);
        self.said(command.output().unwrap())
    }

    /// Runs a script in a new login.
    pub fn run(&self, user: &str, script: &str) -> String {
        let mut command = self.client(user);
        command.args(["-S", "none", NODE, script]);
        self.said(command.output().unwrap())
    }

    /// Runs a script in a new login that the node itself opens, from one of its addresses to another.
    pub fn run_from_node(&self, user: &str, from: &str, to: &str, script: &str) -> String {
        let mut command = self.with_options(Command::new("ssh"), user);
        command.args(["-b", from, "-S", "none", to, script]);
        self.said(command.output().unwrap())
    }

    /// The command of a new login with a terminal.
    pub fn with_terminal(&self, user: &str, script: &str) -> Command {
        let mut command = self.client(user);
        command.args(["-S", "none", "-tt", NODE]);
        if !script.is_empty() {
            command.arg(script);
        }
        command
    }

    fn said(&self, output: Output) -> String {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}{err}{}", self.log());
        text
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}
