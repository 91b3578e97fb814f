//! A guest: what it is made of, its console, and how it ended.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::accel;
use super::images::Tiny;
use super::qmp::Qmp;

/// How long anything may take that takes seconds: emulation on a busy machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(400);

/// OVMF without Secure Boot, and its empty variables.
const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
const OVMF_VARIABLES: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";

/// How a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    PoweredOff,
    Rebooted,
    /// QEMU gave up by itself, or the kernel panicked.
    Broke,
}

/// What came first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The index of a text.
    Text(usize),
    End(End),
}

/// A machine that has not been started.
#[derive(Clone)]
pub struct Machine {
    /// None: the first disk has a boot loader.
    kernel: Option<PathBuf>,
    initrd: Vec<PathBuf>,
    files: Vec<(String, Vec<u8>)>,
    append: String,
    memory: u32,
    accelerator: Option<&'static str>,
    devices: Vec<OsString>,
    disks: usize,
}

impl Machine {
    /// A kernel and busybox.
    pub fn tiny(tiny: &Tiny) -> Self {
        Self::of(&tiny.kernel, &tiny.initrd).memory(256)
    }

    /// A kernel and the archives of its initramfs, which it unpacks one after another.
    pub fn of(kernel: &Path, initrd: &[PathBuf]) -> Self {
        Self {
            kernel: Some(kernel.to_owned()),
            initrd: initrd.to_vec(),
            append: "console=ttyS0 panic=-1 no_timer_check quiet".to_owned(),
            ..Self::with_boot_loader()
        }
    }

    /// Its firmware is OVMF with `variables`, a copy of its own: it starts `EFI/BOOT/BOOTX64.EFI` of a disk.
    pub fn with_efi(variables: &Path) -> Self {
        fs::copy(OVMF_VARIABLES, variables).unwrap();
        let code = format!("if=pflash,format=raw,unit=0,readonly=on,file={OVMF_CODE}");
        let own = format!("if=pflash,format=raw,unit=1,file={}", variables.display());
        Self::with_boot_loader()
            .memory(512)
            .device(&["-drive", &code, "-drive", &own])
    }

    /// Its firmware starts the boot loader of its first disk.
    pub fn with_boot_loader() -> Self {
        Self {
            kernel: None,
            initrd: Vec::new(),
            files: Vec::new(),
            append: String::new(),
            memory: 1024,
            accelerator: None,
            devices: Vec::new(),
            disks: 0,
        }
    }

    /// Mebibytes.
    pub fn memory(mut self, mebibytes: u32) -> Self {
        self.memory = mebibytes;
        self
    }

    /// With a processor that images of RHEL 9 run on: QEMU's own model is older. To the kernel it is one of AMD, which has no
    /// need of page tables of its own: with them emulation loses its translated addresses at each system call.
    pub fn with_v2(self) -> Self {
        let host = self.accelerator.unwrap_or_else(accel::accelerator) == "kvm";
        let emulated = ["-cpu", "Nehalem,vendor=AuthenticAMD"];
        self.device(if host { &[] } else { &emulated })
    }

    /// Without the question which.
    pub fn accelerator(mut self, accelerator: &'static str) -> Self {
        self.accelerator = Some(accelerator);
        self
    }

    /// One more file at the top of its initramfs.
    pub fn file(mut self, name: &str, content: &[u8]) -> Self {
        self.files.push((name.to_owned(), content.to_vec()));
        self
    }

    /// One more archive of its initramfs.
    pub fn archive(mut self, path: &Path) -> Self {
        self.initrd.push(path.to_owned());
        self
    }

    /// More words for the kernel.
    pub fn append(mut self, words: &str) -> Self {
        self.append.push(' ');
        self.append.push_str(words);
        self
    }

    /// Words for QEMU.
    pub fn device(mut self, words: &[&str]) -> Self {
        self.devices.extend(words.iter().map(OsString::from));
        self
    }

    /// A disk; what the guest has written to it survives the guest's sudden end.
    pub fn disk(mut self, image: &Path) -> Self {
        let drive = format!("file={},format=raw,if=virtio,cache=unsafe", image.display());
        self.disks += 1;
        self.device(&["-drive", &drive])
    }

    /// A disk whose every write and flush is written to a log besides.
    pub fn recorded_disk(self, image: &Path, log: &Path) -> Self {
        fs::write(log, "").unwrap();
        let node = |name: &str, path: &Path| {
            format!("driver=file,node-name={name},filename={}", path.display())
        };
        self.device(&[
            "-blockdev",
            &node("data", image),
            "-blockdev",
            &node("log", log),
        ])
        .device(&[
            "-blockdev",
            "driver=blklogwrites,node-name=both,file=data,log=log",
        ])
        .device(&["-device", "virtio-blk-pci,drive=both"])
    }

    /// A disk with a volatile cache that is served at a socket.
    pub fn served_disk(mut self, socket: &Path) -> Self {
        let name = format!("served{}", self.disks);
        self.disks += 1;
        let node = format!(
            "driver=nbd,node-name={name},server.type=unix,server.path={}",
            socket.display()
        );
        let device = format!("virtio-blk-pci,drive={name},discard=off,write-zeroes=off");
        self.device(&["-blockdev", &node, "-device", &device])
    }

    /// Starts it. Console and archives are kept in `dir` under this name.
    pub fn start(&self, dir: &Path, name: &str) -> Guest {
        let console = dir.join(format!("{name}.console"));
        let _ = fs::remove_file(&console);
        let initrd = self.initrd(dir, name);
        // A socket's path has to be short.
        let sockets = tempfile::tempdir().unwrap();
        let child = self
            .command(&initrd, &console, sockets.path())
            .spawn()
            .unwrap();
        let mut guest = Guest {
            child,
            console,
            initrd,
            sockets,
            qmp: None,
            serial: None,
            started: Instant::now(),
        };
        guest.connect();
        guest
    }

    fn initrd(&self, dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(format!("{name}.initrd"));
        join_archives(&self.initrd, &self.files, &path);
        path
    }

    fn command(&self, initrd: &Path, console: &Path, sockets: &Path) -> Command {
        let accelerator = self.accelerator.unwrap_or_else(accel::accelerator);
        // It ends with the thread that runs the case, whatever ends that.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args("-nodefaults -no-user-config -display none -no-reboot -smp 1".split(' '));
        command.args(["-machine", "q35", "-accel", accelerator]);
        if accelerator == "kvm" {
            command.args(["-cpu", "host"]);
        }
        command.args(["-m", &self.memory.to_string(), "-device", "virtio-rng-pci"]);
        let (serial, control) = (sockets.join("serial"), sockets.join("qmp"));
        let serial = serial.display();
        let log = console.display();
        let serial = format!("socket,id=serial,path={serial},server=on,wait=off,logfile={log}");
        command.args(["-chardev", &serial, "-serial", "chardev:serial"]);
        command
            .arg("-qmp")
            .arg(format!("unix:{},server=on,wait=off", control.display()));
        if let Some(kernel) = &self.kernel {
            command
                .arg("-kernel")
                .arg(kernel)
                .arg("-initrd")
                .arg(initrd);
            command.args(["-append", &self.append]);
        }
        command.args(&self.devices);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let complaints = fs::File::create(console.with_extension("qemu")).unwrap();
        command.stderr(complaints);
        command
    }
}

/// Writes one initramfs of archives, with `files` at its top.
pub fn join_archives(archives: &[PathBuf], files: &[(String, Vec<u8>)], out: &Path) {
    let mut all = fs::File::create(out).unwrap();
    for archive in archives {
        let length = std::io::copy(&mut fs::File::open(archive).unwrap(), &mut all).unwrap();
        // The kernel wants the next one aligned.
        let padding = length.next_multiple_of(4) - length;
        all.write_all(&[0; 3][..usize::try_from(padding).unwrap()])
            .unwrap();
    }
    if !files.is_empty() {
        all.write_all(&archive(files)).unwrap();
    }
}

/// An archive as the kernel reads it, uncompressed, with files at its top.
fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        fs::write(dir.path().join(name), content).unwrap();
    }
    super::images::packed(dir.path(), "cat")
}

/// A running guest. It ends with this value.
pub struct Guest {
    child: Child,
    console: PathBuf,
    initrd: PathBuf,
    sockets: TempDir,
    qmp: Option<Qmp>,
    serial: Option<UnixStream>,
    started: Instant,
}

impl Guest {
    fn connect(&mut self) {
        let socket = self.sockets.path().join("qmp");
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.qmp.is_none() && self.runs() && Instant::now() < deadline {
            self.qmp = Qmp::connect(&socket);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it has not ended yet.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What is on the console so far.
    pub fn console(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&text).replace('\r', "")
    }

    /// Since it was started.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Whether the console shows this in time. It does not when the guest ends before.
    pub fn comes_to(&mut self, text: &str, limit: Duration) -> bool {
        self.shows(|console| console.contains(text), limit)
    }

    fn shows(&mut self, what: impl Fn(&str) -> bool, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            let runs = self.runs();
            if what(&self.console()) {
                return true;
            }
            if !runs || Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the console shows this, which it must.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(text, |console| console.contains(text));
    }

    /// The same of anything.
    pub fn wait_until(&mut self, name: &str, what: impl Fn(&str) -> bool) {
        assert!(
            self.shows(what, PATIENCE),
            "`{name}` does not come: {}",
            self.tail()
        );
    }

    /// The end of the console, for messages.
    pub fn tail(&self) -> String {
        let console = self.console();
        let lines: Vec<&str> = console.lines().collect();
        let tail = &lines[lines.len().saturating_sub(40)..];
        let complaints = fs::read_to_string(self.console.with_extension("qemu"));
        format!("{}\n{}", complaints.unwrap_or_default(), tail.join("\n"))
    }

    /// What follows this at the beginning of a line, of every such line.
    pub fn values(&self, prefix: &str) -> Vec<String> {
        let console = self.console();
        let lines = console.lines().filter_map(|line| line.strip_prefix(prefix));
        lines.map(|value| value.trim().to_owned()).collect()
    }

    /// The one such line's value.
    pub fn value(&self, prefix: &str) -> String {
        let mut values = self.values(prefix);
        assert_eq!(values.len(), 1, "`{prefix}` in {}", self.tail());
        values.remove(0)
    }

    /// A path for a socket of this guest, short enough for one.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.sockets.path().join(name)
    }

    /// Types on the serial console.
    pub fn send(&mut self, text: &str) {
        let path = self.sockets.path().join("serial");
        let stream = self.serial.get_or_insert_with(|| {
            let stream = UnixStream::connect(path).unwrap();
            // Somebody has to read what the guest says, or it would wait for ever.
            let mut said = stream.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
            stream
        });
        stream.write_all(text.as_bytes()).unwrap();
    }

    /// Pulls a network card's cable, or puts it back.
    pub fn set_link(&mut self, card: &str, up: bool) {
        let qmp = self.qmp.as_mut().unwrap();
        qmp.command("set_link", &json!({"name": card, "up": up}));
    }

    /// The power fails.
    pub fn cut(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, by itself.
    pub fn ended(&mut self) -> End {
        let deadline = Instant::now() + PATIENCE;
        while self.runs() {
            assert!(
                Instant::now() < deadline,
                "it does not end: {}",
                self.tail()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let reason = self.qmp.take().and_then(Qmp::reason);
        match reason.as_deref() {
            Some("guest-shutdown") => End::PoweredOff,
            Some("guest-reset") if !self.console().contains("Kernel panic") => End::Rebooted,
            _ => End::Broke,
        }
    }

    /// Waits until the console shows one of these texts, or the guest ends. `None`: neither happened in time.
    pub fn shows_or_ends(&mut self, texts: &[&str], limit: Duration) -> Option<Shown> {
        let deadline = Instant::now() + limit;
        loop {
            let runs = self.runs();
            let console = self.console();
            if let Some(found) = texts.iter().position(|text| console.contains(text)) {
                return Some(Shown::Text(found));
            }
            if !runs {
                return Some(Shown::End(self.ended()));
            }
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The same; it must have switched itself off.
    pub fn powers_off(&mut self) {
        let end = self.ended();
        assert_eq!(end, End::PoweredOff, "{}", self.tail());
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.initrd);
    }
}
