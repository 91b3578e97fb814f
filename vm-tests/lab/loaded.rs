//! A node whose own boot loader chooses what it boots.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::grub::{self, BootDisk, Entry, FileSystem, START};
use super::images::{self, Layout};
use super::node::{Booted, Node};
use super::qemu::Machine;
use super::{Case, disk, run};

/// What the harness adds to the arguments of the installed system: where its console is, and what emulation needs.
const CONSOLE: &str = "console=ttyS0 no_timer_check quiet";
/// What the other cases have in their arguments; a node has not.
const OF_OTHERS: &str = "rd.shell=0 rd.emergency=poweroff";

/// A node with a disk for GRUB and `/boot`, and a disk for its root.
pub struct Loaded<'a> {
    node: Node<'a>,
    pub boot: BootDisk,
}

impl<'a> Loaded<'a> {
    /// Of a directory with the disks `root` and `boot` of a node that a key, `key`, opens: one that another boot loader has
    /// started until now, with a `boot` without partitions. As root.
    pub fn of(case: &'a Case, disks: &Path) -> Self {
        let boot = BootDisk::of(
            &case.path("boot.disk"),
            FileSystem::Ext4,
            &disks.join("boot"),
            0,
        );
        boot.mounted(|top| has_a_console(&top.join("loader/entries")));
        Self::with(case, disks, boot)
    }

    /// Of a directory with the disks of such a node, as [`keep`] leaves them.
    pub fn again(case: &'a Case, disks: &Path, file_system: FileSystem) -> Self {
        let (path, from) = (case.path("boot.disk"), disks.join("boot"));
        if file_system == FileSystem::Ext4 {
            return Self::with(case, disks, BootDisk::copy(&path, &from, file_system));
        }
        // As if it had been like that from the beginning.
        let node = Self::with(case, disks, BootDisk::of(&path, file_system, &from, START));
        let own = format!("/boot {} ", file_system.name());
        node.of_every_deployment(|root| {
            let fstab = root.join("etc/fstab");
            let text = fs::read_to_string(&fstab).unwrap();
            assert!(text.contains("/boot ext4 "), "{text}");
            fs::write(&fstab, text.replace("/boot ext4 ", &own)).unwrap();
        });
        node
    }

    fn with(case: &'a Case, disks: &Path, boot: BootDisk) -> Self {
        let node = Node::opened_by(
            case,
            Layout::Ostree,
            &disks.join("root"),
            &disks.join("key"),
        );
        Self { node, boot }
    }

    /// Its root's disk.
    pub fn root_disk(&self) -> &Path {
        self.node.disk()
    }

    /// Works on the deployment of an entry, while no guest runs.
    pub fn with_deployment(&self, entry: &Entry, work: impl FnOnce(&Path) + Send) {
        let words = entry.options.split_whitespace();
        let path = words
            .filter_map(|word| word.strip_prefix("ostree=/"))
            .next_back();
        let path = path.expect("no ostree=").to_owned();
        disk::mounted(self.node.disk(), |top| work(&top.join(path)));
    }

    /// Works on the stateroot, while no guest runs.
    fn with_stateroot(&self, work: impl FnOnce(&Path) + Send) {
        disk::mounted(self.node.disk(), |top| {
            work(&top.join("ostree/deploy/rhcos"))
        });
    }

    /// Puts the program under test on it: it may have come with another build.
    pub fn has_this_program(&self) {
        self.with_stateroot(|stateroot| {
            let program = stateroot.join("var/usrlocal/bin/mco-rescue");
            fs::remove_file(&program).unwrap();
            fs::copy(images::program(), &program).unwrap();
        });
    }

    fn of_every_deployment(&self, work: impl Fn(&Path) + Send + Sync) {
        for entry in self.entries() {
            self.with_deployment(&entry, &work);
        }
    }

    /// Switches it on: the firmware starts GRUB, and GRUB does the rest.
    pub fn start(&mut self) -> Booted {
        self.boot.flash();
        let machine = Machine::with_boot_loader()
            .with_v2()
            .disk(self.boot.path())
            .disk(self.node.disk());
        self.node.boot(&machine)
    }

    /// The systems that GRUB started in this run of the machine.
    pub fn started_in(&self, booted: &Booted) -> Vec<String> {
        grub::started(&booted.guest.console())
    }

    /// The boot entries, the default first.
    pub fn entries(&self) -> Vec<Entry> {
        self.boot.entries()
    }
}

/// The entries of an installed node say where its console is.
fn has_a_console(entries: &Path) {
    for entry in fs::read_dir(entries).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(OF_OTHERS), "{text}");
        fs::write(&path, text.replace(OF_OTHERS, CONSOLE)).unwrap();
    }
}

/// Keeps the disks of a node with the key that opens it.
pub fn keep(out: &Path, root: &Path, boot: &Path, key: &Path) {
    fs::create_dir(out).unwrap();
    disk::copy(root, &out.join("root"));
    disk::copy(boot, &out.join("boot"));
    for (from, name) in [
        (key.to_owned(), "key"),
        (key.with_extension("pub"), "key.pub"),
    ] {
        run(Command::new("cp").arg("-p").arg(from).arg(out.join(name)));
    }
}
