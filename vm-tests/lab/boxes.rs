//! Boxes: a node in namespaces, with the real systemd, the real ostree and a real shutdown, and without a machine.
//!
//! A boot takes a second or two, so this is the ordinary form of a case about the operating system. `guest/box` says
//! what is real in one and what is laid over. A real rpm-ostree is taken from the tar that `BOX_RPM_OSTREE` names. Without
//! a name the stand-in of `guest/rpm-ostree` is used, and the test says so. `BOX_BOOTC` names the tar of a real bootc, with the
//! libraries that it needs, and the node has no rpm-ostree then unless `BOX_ENGINES=both`; the images are still made by the
//! rpm-ostree of `BOX_RPM_OSTREE`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{fmt, thread};

use super::images::{self, kept_in, name_of, script, text_of};
use super::lan::{Lan, within};
use super::{Case, Shell, checkout, disk, run};
use crate::support::http::{Response, Routes, Server};
use crate::support::{self, Lacks, Run, oci, say};

/// How long a boot or a shutdown may take on a busy machine; it takes seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// As in the origins and in the configuration of containers.
const IMAGE: &str = "quay.example/okd/os";
/// Where the image's host is mirrored inside.
const REGISTRY: ([u8; 4], u16) = ([0, 0, 0, 0], 5000);

/// What changes deployments in a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// Of this tar.
    RpmOstree(PathBuf),
    /// bootc of the second tar, and rpm-ostree of the first one: to make the images, and in the node if `both`.
    Bootc {
        rpm_ostree: PathBuf,
        bootc: PathBuf,
        both: bool,
    },
    /// The scripts of the checkout.
    StandIn,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RpmOstree(_) => f.write_str("box, rpm-ostree"),
            Self::Bootc { both: false, .. } => f.write_str("box, bootc"),
            Self::Bootc { both: true, .. } => f.write_str("box, both engines"),
            Self::StandIn => f.write_str("box, stand-in"),
        }
    }
}

impl Engine {
    fn find() -> Self {
        let Some(rpm_ostree) = tar_named_by("BOX_RPM_OSTREE") else {
            say("box: STAND-IN for rpm-ostree; BOX_RPM_OSTREE=TAR names a real one");
            return Self::StandIn;
        };
        let Some(bootc) = tar_named_by("BOX_BOOTC") else {
            return Self::RpmOstree(rpm_ostree);
        };
        let both = std::env::var("BOX_ENGINES").is_ok_and(|engines| engines == "both");
        Self::Bootc {
            rpm_ostree,
            bootc,
            both,
        }
    }

    /// Returns true if the node's own engine is a real rpm-ostree.
    pub fn is_real_rpm_ostree(&self) -> bool {
        matches!(self, Self::RpmOstree(_) | Self::Bootc { both: true, .. })
    }

    /// The program that an administrator changes deployments with.
    pub fn program(&self) -> &'static str {
        match self {
            Self::Bootc { both: false, .. } => "bootc",
            _ => "rpm-ostree",
        }
    }

    /// The command that drops what is staged.
    pub fn drops_staged(&self) -> &'static str {
        match self.program() {
            "bootc" => "ostree admin undeploy 0",
            _ => "rpm-ostree cleanup -p",
        }
    }

    /// The command that stages the booted system without the argument `audit=0`.
    pub fn deletes_audit(&self) -> &'static str {
        match self.program() {
            "bootc" => {
                "cd /ostree/deploy/rhcos/deploy && cp *.origin /run/origin && \
                 ostree admin deploy --stage --os=rhcos --origin-file=/run/origin --karg-delete=audit=0 $(ls | grep -o '^[0-9a-f]*' | head -n 1)"
            }
            _ => "rpm-ostree kargs --delete=audit=0",
        }
    }

    /// What `box.sh` takes.
    fn source(&self) -> PathBuf {
        match self {
            Self::RpmOstree(tar)
            | Self::Bootc {
                rpm_ostree: tar, ..
            } => tar.clone(),
            Self::StandIn => checkout().join("vm-tests/guest/rpm-ostree"),
        }
    }

    fn key(&self) -> String {
        let source = self.source();
        match self {
            Self::RpmOstree(_) => images::hash(&fs::read(source).unwrap()),
            Self::Bootc { bootc, both, .. } => {
                let all = [source, bootc.clone()].map(|tar| images::hash(&fs::read(tar).unwrap()));
                format!("{} {both}", all.concat())
            }
            Self::StandIn => ["client", "daemon"]
                .map(|name| text_of(&source.join(name)))
                .concat(),
        }
    }
}

fn tar_named_by(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).filter(|named| !named.is_empty())?;
    let named = PathBuf::from(named);
    let path = named
        .canonicalize()
        .unwrap_or_else(|error| panic!("{variable}: {}: {error}", named.display()));
    say(&format!("box: {variable}={}", path.display()));
    Some(path)
}

/// The disks that every box gets copies of, and the image that its node does not run yet.
pub struct Golden {
    /// What works in it.
    pub engine: Engine,
    dir: PathBuf,
}

impl Golden {
    /// The image 1.0, which runs, as a config names it.
    pub fn a(&self) -> String {
        self.named("a")
    }

    /// The image 2.0.
    pub fn b(&self) -> String {
        self.named("b")
    }

    /// The image 2.0 as an OCI directory.
    pub fn oci(&self) -> PathBuf {
        self.dir.join("oci-b")
    }

    fn named(&self, name: &str) -> String {
        format!("{IMAGE}@{}", text_of(&self.dir.join(name)))
    }
}

/// Made once: packages a minute, disks half of one.
pub fn golden() -> &'static Golden {
    static GOLDEN: OnceLock<Golden> = OnceLock::new();
    GOLDEN.get_or_init(|| {
        let engine = Engine::find();
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("boxes");
        fs::create_dir_all(&cache).unwrap();
        let root_script = script("box-root.sh");
        let root = kept_in(&cache, "root", &[text_of(&root_script)], |out| {
            run(Command::new(&root_script).arg(out));
        });
        let parts = ["box.sh", "furnish.sh", "shape.sh", "on-top.sh"];
        let mut made_of: Vec<String> = parts.map(|name| text_of(&script(name))).to_vec();
        let images = include_str!("../../tests/support/oci.rs").to_owned();
        made_of.extend([name_of(&root), engine.key(), images]);
        let name = match engine {
            Engine::RpmOstree(_) => "rpm-ostree",
            Engine::Bootc { both: false, .. } => "bootc",
            Engine::Bootc { both: true, .. } => "both",
            Engine::StandIn => "stand-in",
        };
        let dir = kept_in(&cache, name, &made_of, |out| build(&engine, &root, out));
        Golden { engine, dir }
    })
}

fn build(engine: &Engine, root: &Path, out: &Path) {
    fs::create_dir_all(out).unwrap();
    let (source, repository, b) = (engine.source(), out.join("repository"), out.join("oci-b"));
    let on_root = |what: &str, to: &Path, more: &Path| {
        let mut command = Command::new(script("on-top.sh"));
        command.arg(root).arg(script("box.sh")).arg(what);
        if let Engine::Bootc { bootc, both, .. } = engine {
            command.env("BOOTC", bootc);
            command.env(
                "RPM_OSTREE",
                if *both {
                    "in the node"
                } else {
                    "to make images"
                },
            );
        }
        run(command.arg(to).arg(&source).arg(more));
    };
    let hollow = (*engine == Engine::StandIn).then(|| oci::image(&b));
    let name = hollow.as_ref().map(|digest| format!("{IMAGE}@{digest}"));
    on_root("commit", &repository, Path::new(&name.unwrap_or_default()));
    on_root("disks", out, &repository);
    let (first, second) = match hollow {
        Some(digest) => (format!("sha256:{}", "a".repeat(64)), digest),
        None => {
            let (oci, layer) = (out.join("oci"), out.join("layer-b"));
            let second = oci::derived(&oci, &b, &layer, "2.0");
            fs::remove_dir_all(layer).unwrap();
            (oci::digest(&oci), second)
        }
    };
    fs::write(out.join("a"), first).unwrap();
    fs::write(out.join("b"), second).unwrap();
    fs::remove_dir_all(repository).unwrap();
    let _ = fs::remove_dir_all(out.join("oci"));
}

/// The first thing that a box needs and that is not here.
pub fn missing() -> Option<(Lacks, &'static str)> {
    static MISSING: OnceLock<Option<(Lacks, &str)>> = OnceLock::new();
    *MISSING.get_or_init(look_for_missing)
}

fn look_for_missing() -> Option<(Lacks, &'static str)> {
    const PROGRAMS: [&str; 8] = [
        "mmdebstrap",
        "mke2fs",
        "ostree",
        "unshare",
        "nsenter",
        "setpriv",
        "setsid",
        "xz",
    ];
    if !support::is_root() {
        return Some((Lacks::Root, "root"));
    }
    let absent =
        |program: &&&str| !super::runs(program, "--version") && !super::runs(program, "-V");
    if let Some(program) = PROGRAMS.iter().find(absent) {
        return Some((Lacks::Setup, program));
    }
    let works = |script: &str| {
        let mut command = Command::new("unshare");
        command.args("--mount --uts --ipc --net --pid --fork --cgroup bash -euc".split(' '));
        let output = command.arg(script).stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    let needs = [
        ("namespaces", "true"),
        ("loop devices", "losetup --find"),
        (
            "a cgroup2 that can be written",
            "group=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)/mco-rescue-probe.$$; mkdir $group; rmdir $group",
        ),
        (
            "overlay",
            "mount -t tmpfs none /mnt; mkdir /mnt/{a,b,c,d}; \
             mount -t overlay -o lowerdir=/mnt/a,upperdir=/mnt/b,workdir=/mnt/c none /mnt/d",
        ),
    ];
    let fails = |need: &&(&str, &str)| !works(need.1);
    needs
        .iter()
        .find(fails)
        .map(|(what, _)| (Lacks::Machine, *what))
}

/// A node in a box. It ends with this value.
pub struct BoxNode<'a> {
    case: &'a Case,
    dir: PathBuf,
    boots: usize,
    /// While it holds the other end of its standard input it is kept up.
    up: Option<Child>,
    /// Where it is reached from outside, if it is.
    lan: Option<Lan>,
}

impl<'a> BoxNode<'a> {
    /// A node that runs 1.0 and has the program, and nothing else of ours.
    pub fn new(case: &'a Case) -> Self {
        let dir = case.path("box");
        fs::create_dir_all(dir.join("media")).unwrap();
        for name in ["root", "boot"] {
            disk::copy(&golden().dir.join(name), &dir.join(name));
        }
        disk::mounted(&dir.join("root"), |top| {
            let bin = top.join("ostree/deploy/rhcos/var/usrlocal/bin/mco-rescue");
            run(Command::new("install")
                .args(["-m", "0755"])
                .arg(images::program())
                .arg(bin));
        });
        Self {
            case,
            dir,
            boots: 0,
            up: None,
            lan: None,
        }
    }

    /// A node that an administrator reaches by ssh as `core`: with sshd, NetworkManager and the rules of nftables.
    pub fn on_lan(case: &'a Case) -> Self {
        let mut node = Self::new(case);
        let lan = Lan::new(&node.dir);
        node.prepare(|root| put_on_lan(&root.join("etc")));
        node.lan = Some(lan);
        node
    }

    /// Works on the tree of 1.0 before the first boot.
    pub fn prepare(&self, work: impl FnOnce(&Path) + Send) {
        disk::mounted(&self.dir.join("root"), |top| {
            let stateroot = top.join("ostree/deploy/rhcos");
            let deployments = fs::read_dir(stateroot.join("deploy")).unwrap();
            let mut paths = deployments.map(|entry| entry.unwrap().path());
            work(&paths.find(|path| path.is_dir()).unwrap());
        });
    }

    /// The administrator's side of its network.
    pub fn lan(&self) -> &Lan {
        self.lan.as_ref().expect("it is not on a network")
    }

    /// A path of the running node, from outside.
    pub fn seen(&self, path: &str) -> Option<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid()?));
        Some(root.join(path.trim_start_matches('/')))
    }

    /// What is `/run/media` inside.
    pub fn media(&self) -> PathBuf {
        self.dir.join("media")
    }

    /// Boots it, until systemd has started everything.
    pub fn boot(&mut self) {
        let begun = Instant::now();
        self.start();
        while !self.is_started() {
            assert!(self.runs(), "it does not come up: {}", self.tail());
            assert!(begun.elapsed() < PATIENCE, "it hangs: {}", self.tail());
            thread::sleep(Duration::from_millis(20));
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.case.tell(&format!("boot: {seconds:.1} s"));
    }

    /// Boots it, until its first process runs and its cable is plugged in.
    pub fn start(&mut self) {
        assert!(self.up.is_none(), "it runs already");
        self.boots += 1;
        let console = File::create(self.console()).unwrap();
        let mut command = Command::new("setsid");
        command
            .arg(checkout().join("vm-tests/guest/box"))
            .arg(&self.dir);
        command
            .stdin(Stdio::piped())
            .stderr(console.try_clone().unwrap());
        let begun = Instant::now();
        // Of the boot before, if that was cut.
        let _ = fs::remove_file(self.dir.join("pid"));
        self.up = Some(command.stdout(console).spawn().unwrap());
        let pid = loop {
            if let Some(pid) = self.pid() {
                break pid;
            }
            assert!(self.runs(), "it does not start: {}", self.tail());
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not start: {}",
                self.tail()
            );
            thread::sleep(Duration::from_millis(20));
        };
        if let Some(lan) = &self.lan {
            lan.plug_in(pid);
        }
    }

    fn is_started(&self) -> bool {
        let state = self.run("systemctl is-system-running --wait").out();
        matches!(state.trim(), "running" | "degraded")
    }

    /// Whether it has not ended yet.
    pub fn runs(&mut self) -> bool {
        let up = self.up.as_mut();
        up.is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// `systemctl reboot`, into what is the default then.
    pub fn reboot(&mut self) {
        // It may be gone before systemctl has its answer.
        self.run("systemctl --no-block reboot");
        self.is_down();
        self.boot();
    }

    /// Waits until it has ended, as it was asked to by something inside, and can be booted again.
    pub fn is_down(&mut self) {
        let begun = Instant::now();
        while self.runs() {
            assert!(
                begun.elapsed() < PATIENCE,
                "it does not end: {}",
                self.tail()
            );
            thread::sleep(Duration::from_millis(20));
        }
        self.up = None;
        let seconds = begun.elapsed().as_secs_f64();
        self.case.tell(&format!("shutdown: {seconds:.1} s"));
    }

    /// `systemctl soft-reboot`, until the new user space has started everything. (In a box logind does not see `/run/nextroot`,
    /// so that `systemctl reboot` never becomes soft by itself.)
    pub fn soft_reboot(&mut self) {
        let ask = |node: &Self, key: &str| node.try_run(&format!("systemctl show -P {key}"));
        let count = |node: &Self| ask(node, "SoftRebootsCount").out();
        let before = count(self);
        self.try_run("systemctl --no-block soft-reboot");
        let begun = Instant::now();
        let is_up = |node: &Self| {
            // The state of the new one, and not the last of the old one.
            let is_new = ![before.as_str(), ""].contains(&count(node).as_str());
            is_new
                && matches!(
                    ask(node, "SystemState").out().trim(),
                    "running" | "degraded"
                )
        };
        while !is_up(self) {
            assert!(self.runs(), "it ended: {}", self.tail());
            assert!(begun.elapsed() < PATIENCE, "it hangs: {}", self.tail());
            thread::sleep(Duration::from_millis(20));
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.case.tell(&format!("soft reboot: {seconds:.1} s"));
    }

    /// The power fails: everything inside ends at once.
    pub fn cut(&mut self) {
        if let Some(pid) = self.pid() {
            run(Command::new("kill").args(["-KILL", &pid.to_string()]));
        }
        self.end();
    }

    /// What keeps it up is killed, and cannot clean up.
    pub fn loses_its_keeper(&mut self) {
        let mut up = self.up.take().expect("it does not run");
        up.kill().unwrap();
        up.wait().unwrap();
    }

    /// Waits until no process and no disk of it is left on the host, which must come true.
    pub fn vanishes(&self) {
        let begun = Instant::now();
        while self
            .pid()
            .is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
            || !self.disks_in_use().is_empty()
        {
            assert!(begun.elapsed() < PATIENCE, "{}", self.disks_in_use());
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn disks_in_use(&self) -> String {
        let used = |name: &str| run(Command::new("losetup").arg("-j").arg(self.dir.join(name)));
        used("root") + &used("boot")
    }

    fn end(&mut self) {
        if let Some(mut up) = self.up.take() {
            drop(up.stdin.take());
            let _ = up.wait();
        }
    }

    /// The journal of all of its boots; read from its disk if it does not run.
    pub fn journal(&mut self) -> String {
        if self.runs() && self.pid().is_some() {
            return self.run("journalctl --no-pager -o short-precise").out();
        }
        let mut text = String::new();
        disk::mounted(&self.dir.join("root"), |top| {
            let journal = top.join("ostree/deploy/rhcos/var/log/journal");
            let mut journalctl = Command::new("journalctl");
            journalctl.args(["--no-pager", "-o", "short-precise", "-D"]);
            let output = journalctl.arg(journal).output();
            text = output.map_or_else(
                |error| error.to_string(),
                |output| String::from_utf8_lossy(&output.stdout).into_owned(),
            );
        });
        text
    }

    /// A file inside.
    pub fn bring(&self, path: &str, content: &[u8]) {
        fs::write(self.media().join("brought"), content).unwrap();
        self.ask(&format!(
            "mkdir -p $(dirname {path}) && install -m 0644 /run/media/brought {path}"
        ));
    }

    /// The registry that the image's host is mirrored by, at this boot: what `answer` makes of each request.
    pub fn registry(
        &self,
        answer: impl Fn(&crate::support::http::Request) -> Response + Send + Sync + 'static,
    ) -> Registry {
        let pid = self.pid().expect("it does not run");
        let network = File::open(format!("/proc/{pid}/ns/net")).unwrap();
        let routes = Routes::new().at("*", answer);
        let server = within(&network, || Server::at(REGISTRY.into(), routes));
        Registry {
            server: Some(server),
            network,
        }
    }

    /// Of its pid 1, as the host has it.
    fn pid(&self) -> Option<u32> {
        let text = fs::read_to_string(self.dir.join("pid")).ok()?;
        text.trim().parse().ok()
    }

    fn console(&self) -> PathBuf {
        self.case.path(&format!("boot-{}.console", self.boots))
    }

    fn tail(&self) -> String {
        let console = fs::read(self.console()).unwrap_or_default();
        let journal = self
            .run("journalctl -b -n 30 --no-pager; systemctl list-jobs")
            .out();
        format!("{}\n{journal}", String::from_utf8_lossy(&console))
    }
}

impl BoxNode<'_> {
    /// Without waiting for ever: what ends all processes stops them first, and nsenter stays stopped.
    fn try_run(&self, command: &str) -> Run {
        let mut timeout = Command::new("timeout");
        timeout.args(["--signal=KILL", "5", "nsenter"]);
        self.run_by(timeout, command)
    }

    fn run_by(&self, mut shell: Command, command: &str) -> Run {
        let pid = self.pid().unwrap_or_default().to_string();
        shell
            .args(["-t", &pid])
            .args("-m -u -i -n -p -C env -i HOME=/root LC_ALL=C".split(' '));
        shell.arg("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        shell.args(["bash", "-c", &format!("cd /root; {command}")]);
        Run::of(shell.stdin(Stdio::null()).output().unwrap())
    }
}

impl Shell for BoxNode<'_> {
    /// As root, in `/root`.
    fn run(&self, command: &str) -> Run {
        self.run_by(Command::new("nsenter"), command)
    }
}

impl Drop for BoxNode<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// What is in `/etc` of a node that is reached from outside. The key of `core` comes with its config.
fn put_on_lan(etc: &Path) {
    let write = |path: PathBuf, mode: &str, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        run(Command::new("chmod").arg(mode).arg(path));
    };
    let connections = etc.join("NetworkManager/system-connections");
    write(
        connections.join("lan.nmconnection"),
        "0600",
        &Lan::keyfile(),
    );
    // As the package of the distribution of CoreOS has it.
    let nftables = "[Unit]\nDescription=Netfilter Tables\nWants=network-pre.target\nBefore=network-pre.target\n\
        [Service]\nType=oneshot\nExecStart=/sbin/nft -f /etc/sysconfig/nftables.conf\n\
        ExecReload=/sbin/nft 'flush ruleset; include \"/etc/sysconfig/nftables.conf\";'\nExecStop=/sbin/nft flush ruleset\n\
        RemainAfterExit=yes\n[Install]\nWantedBy=multi-user.target\n";
    write(
        etc.join("systemd/system/nftables.service"),
        "0644",
        nftables,
    );
    write(etc.join("sysconfig/nftables.conf"), "0600", "# none\n");
    let wants = etc.join("systemd/system/multi-user.target.wants");
    for unit in ["ssh", "NetworkManager", "nftables"] {
        let of_the_image = format!("/usr/lib/systemd/system/{unit}.service");
        let of_the_node = format!("/etc/systemd/system/{unit}.service");
        let target = if unit == "nftables" {
            of_the_node
        } else {
            of_the_image
        };
        fs::create_dir_all(&wants).unwrap();
        std::os::unix::fs::symlink(target, wants.join(format!("{unit}.service"))).unwrap();
    }
}

/// A server in a box's network. It ends with this value.
pub struct Registry {
    server: Option<Server>,
    network: File,
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Its end is told over the network it is in.
        let server = self.server.take();
        within(&self.network, || drop(server));
    }
}

/// A registry that has one image, under any name.
pub fn registry_of(
    oci: &Path,
) -> impl Fn(&crate::support::http::Request) -> Response + Send + Sync + use<> {
    let oci = oci.to_owned();
    move |request| {
        let parts: Vec<&str> = request.path().trim_matches('/').split('/').collect();
        let [.., kind, digest] = parts.as_slice() else {
            return Response::ok("{}");
        };
        let Ok(bytes) = fs::read(oci.join("blobs").join(digest.replace(':', "/"))) else {
            return Response::status(404);
        };
        let media = match *kind {
            "manifests" => "application/vnd.oci.image.manifest.v1+json",
            _ => "application/octet-stream",
        };
        let headers = [("Content-Type", media), ("Docker-Content-Digest", digest)];
        let response = Response::new(200, &headers, &bytes);
        match request.method.as_str() {
            "HEAD" => response.head(),
            _ => response,
        }
    }
}

/// Groups of boxes that are still there although what keeps a box up is gone.
pub fn groups_left() -> Vec<PathBuf> {
    let top = run(Command::new("findmnt").args(["-n", "-t", "cgroup2", "-o", "TARGET"]));
    let groups = fs::read_dir(top.lines().next().unwrap()).unwrap();
    let groups = groups.map_while(Result::ok).map(|entry| entry.path());
    let left = |path: &PathBuf| {
        let name = name_of(path);
        let keeper = name.strip_prefix("mco-rescue-box.");
        keeper.is_some_and(|keeper| !Path::new("/proc").join(keeper).exists())
    };
    groups.filter(left).collect()
}
