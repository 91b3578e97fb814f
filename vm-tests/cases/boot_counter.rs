//! GRUB takes a start back that no user space sees: GRUB alone on a disk, without a kernel.
//!
//! Prepared: a first disk with the real GRUB of Debian (BIOS), which looks for the file system `boot` as that of CoreOS does; and
//! a second disk with `/boot` on ext4 or XFS. Its `grub.cfg` is written like that of a node, but its two entries print their id
//! and reboot: they stand in for kernels that never come to anything. The program arms and disarms on the mounted disk, and each
//! disk is copied while it is mounted: what a power cut leaves, with a journal that GRUB does not replay.
//! True afterwards: an armed start takes the new entry, and the disk says `fired`; every start after it takes the old one; before
//! arming and after disarming the new one starts. A disk that GRUB cannot write leads to the old one at once. Not shown: `fallback`
//! with an id, which Red Hat's GRUB knows, and Debian 12's does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lab::{Case, accel, run};
use crate::support::mounts::{Disk, unmount, with_mounts};
use crate::support::{Lacks, TestRoot, skip};

const NEW: &str = "ostree-2-os";
const OLD: &str = "ostree-1-os";
const MODULES: &str = "biosdisk ext2 xfs normal test loadenv serial terminal configfile search search_label echo reboot";
const EARLY: &str = "search --label boot --set prefix\nset prefix=($prefix)/grub2\nnormal\n";
const HEAD: &str = "set pager=0\nif [ -f ${config_directory}/grubenv ]; then\n  load_env -f ${config_directory}/grubenv\n\
                    elif [ -s $prefix/grubenv ]; then\n  load_env\nfi\nserial --unit=0 --speed=115200\nterminal_output serial\n\
                    set timeout=0\n";
const CUSTOM: &str = "if [ -f $prefix/custom.cfg ]; then\n  source $prefix/custom.cfg\nfi\n";
const USER: &str = "if [ -f ${prefix}/user.cfg ]; then\n  source ${prefix}/user.cfg\nfi\n";

const PASSWORD: &str = "GRUB2_PASSWORD=grub.pbkdf2.sha512.10000.AB.CD\n";

const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-L", "boot"];
const XFS: &[&str] = &["mkfs.xfs", "-q", "-f", "--unsupported", "-L", "boot"];

/// As CoreOS has it: the first boot of a node gets one more kernel argument.
const IGNITION: &str = "search --label boot --set root\nset ignition_firstboot=\"\"\nif [ -f \"/ignition.firstboot\" ]; then\n  \
                        set ignition_network_kcmdline=''\n  source \"/ignition.firstboot\"\n  \
                        set ignition_firstboot=\"ignition.firstboot ${ignition_network_kcmdline}\"\nfi\n";

/// STUB of an entry: it shows its id, and the arguments that a kernel gets for a first boot.
fn entry(id: &str) -> String {
    format!(
        "menuentry '{id}' --id {id} {{\n  echo \"started: {id} [$ignition_firstboot]\"\n  reboot\n}}\n"
    )
}

/// The disk with GRUB: the boot sector, and behind it everything else.
fn loader(case: &Case) -> Option<PathBuf> {
    let boot = Path::new("/usr/lib/grub/i386-pc/boot.img");
    if !boot.is_file() {
        skip(
            Lacks::Setup,
            "the boot sector of GRUB is not here (on Debian: grub-pc-bin)",
        );
        return None;
    }
    let (early, core, disk) = (
        case.path("early.cfg"),
        case.path("core"),
        case.path("loader"),
    );
    fs::write(&early, EARLY).unwrap();
    let mut command = Command::new("grub-mkimage");
    command
        .args(["-O", "i386-pc", "-p", "/grub2", "-c"])
        .arg(&early);
    command.arg("-o").arg(&core).args(MODULES.split(' '));
    run(&mut command);
    let mut image = [fs::read(boot).unwrap(), fs::read(core).unwrap()].concat();
    image.resize(1 << 20, 0);
    fs::write(&disk, image).unwrap();
    Some(disk)
}

/// A node's `/boot` on a disk of its own.
struct BootDisk<'a> {
    case: &'a Case,
    loader: PathBuf,
    root: TestRoot,
    disk: Disk,
}

impl<'a> BootDisk<'a> {
    /// `None`, said aloud, where there are no disks.
    fn new(
        case: &'a Case,
        mkfs: &[&str],
        config: &str,
        script: Option<(&str, &str)>,
    ) -> Option<Self> {
        let loader = loader(case)?;
        let disk = Disk::new(64, mkfs)?;
        let root = TestRoot::new();
        fs::create_dir(root.path("boot")).unwrap();
        disk.mount(&root.path("boot"), "");
        root.write("boot/grub2/grub.cfg", config);
        root.write("boot/loader.1/entries/x.conf", "title x\n");
        root.link("boot/loader", "loader.1");
        let mut command = Command::new("grub-editenv");
        run(command.arg(root.path("boot/grub2/grubenv")).arg("create"));
        if let Some((name, text)) = script {
            root.write(&format!("boot/grub2/{name}"), text);
        }
        let boot = Self {
            case,
            loader,
            root,
            disk,
        };
        boot.settle();
        Some(boot)
    }

    /// Everything is on the disk, and not in its journal.
    fn settle(&self) {
        unmount(&self.root.path("boot"));
        self.disk.mount(&self.root.path("boot"), "");
    }

    fn counter(&self, args: &[&str]) -> String {
        self.root
            .run(&[&["trial", "boot-counter"], args].concat())
            .ok()
            .out()
    }

    /// What a power cut leaves now.
    fn cut(&self) -> Disk {
        self.disk.copy()
    }

    /// Starts GRUB with this disk; gives the entry that it took.
    fn start(&self, disk: &Disk, options: &str) -> String {
        let console = self.case.path("console");
        let _ = fs::remove_file(&console);
        let drive =
            |path: &Path, more: &str| format!("file={},format=raw,if=virtio{more}", path.display());
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "timeout",
            "120",
            "qemu-system-x86_64",
        ]);
        command.args(
            "-nodefaults -no-user-config -display none -no-reboot -m 128 -machine q35".split(' '),
        );
        command.args(["-accel", accel::accelerator()]);
        command.args([
            "-drive",
            &drive(&self.loader, ",readonly=on"),
            "-drive",
            &drive(disk.path(), options),
        ]);
        command
            .arg("-serial")
            .arg(format!("file:{}", console.display()));
        let status = command.stdin(Stdio::null()).status().unwrap();
        let said = String::from_utf8_lossy(&fs::read(&console).unwrap()).into_owned();
        assert!(status.success(), "GRUB does not come to an entry: {said}");
        let started: Vec<&str> = said.split("started: ").skip(1).collect();
        assert_eq!(started.len(), 1, "{said}");
        started[0].split_whitespace().next().unwrap().to_owned()
    }

    /// The arguments for a first boot that the last started entry shows.
    fn of_the_first_boot(&self) -> String {
        let said = fs::read(self.case.path("console")).unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        let (_, rest) = said.rsplit_once('[').expect("no entry was started");
        rest.split(']').next().unwrap().trim().to_owned()
    }

    /// The state on a disk, as the program reads it.
    fn state_on(disk: &Disk, options: &str) -> String {
        let root = TestRoot::new();
        let boot = root.path("boot");
        fs::create_dir(&boot).unwrap();
        disk.mount(&boot, options);
        let shown = root.run(&["trial", "boot-counter", "show"]).ok().out();
        unmount(&boot);
        let state = shown.lines().find_map(|line| line.strip_prefix("state: "));
        state.unwrap().to_owned()
    }
}

impl Drop for BootDisk<'_> {
    fn drop(&mut self) {
        unmount(&self.root.path("boot"));
    }
}

fn config(scripts: [&str; 2]) -> String {
    [HEAD, scripts[0], &entry(NEW), &entry(OLD), scripts[1]].concat()
}

/// `options` are those with which a copy can be mounted beside its original.
fn counts(name: &str, mkfs: &[&str], options: &str) {
    let Some(case) = Case::begin_as_root(name) else {
        return;
    };
    with_mounts(|| {
        let Some(boot) = BootDisk::new(
            &case,
            mkfs,
            &config(["", CUSTOM]),
            Some(("custom.cfg", "set mine=1")),
        ) else {
            return;
        };
        case.prepared();
        assert_eq!(boot.start(&boot.cut(), ""), NEW);

        boot.counter(&["arm", OLD]);
        let disk = boot.cut();
        assert_eq!(boot.start(&disk, ""), NEW);
        assert_eq!(
            BootDisk::state_on(&disk, options),
            format!("fired, back to {OLD}")
        );
        assert_eq!(boot.start(&disk, ""), OLD);
        assert_eq!(boot.start(&disk, ""), OLD);

        // Armed anew over the block that GRUB wrote to.
        boot.counter(&["disarm"]);
        assert_eq!(boot.start(&boot.cut(), ""), NEW);
        boot.counter(&["arm", OLD]);
        let disk = boot.cut();
        assert_eq!(boot.start(&disk, ""), NEW);
        assert_eq!(boot.start(&disk, ""), OLD);
        boot.counter(&["disarm"]);
        let disk = boot.cut();
        assert_eq!([boot.start(&disk, ""), boot.start(&disk, "")], [NEW, NEW]);
        assert_eq!(boot.root.read("boot/grub2/custom.cfg"), "set mine=1");
    });
}

#[test]
fn grub_tries_once_and_then_takes_the_old_entry_on_ext4() {
    counts("24 boot counter, ext4", EXT4, "");
}

#[test]
fn grub_tries_once_and_then_takes_the_old_entry_on_xfs() {
    counts("24 boot counter, xfs", XFS, ",nouuid");
}

#[test]
fn a_configuration_that_runs_user_cfg_twice_tries_once_too() {
    let Some(case) = Case::begin_as_root("24 boot counter, user.cfg") else {
        return;
    };
    with_mounts(|| {
        let Some(boot) = BootDisk::new(
            &case,
            EXT4,
            &config([USER, USER]),
            Some(("user.cfg", PASSWORD)),
        ) else {
            return;
        };
        case.prepared();
        boot.counter(&["arm", OLD]);
        assert!(
            boot.root
                .read("boot/grub2/user.cfg")
                .contains("# BEGIN mco-rescue trial\n")
        );
        let disk = boot.cut();
        assert_eq!(boot.start(&disk, ""), NEW);
        assert_eq!(boot.start(&disk, ""), OLD);
    });
}

/// A node that is to be provisioned anew while a trial runs gets its argument in whichever entry is started.
#[test]
fn the_lines_of_the_first_boot_and_of_a_trial_do_not_disturb_each_other() {
    let Some(case) = Case::begin_as_root("24 boot counter, first boot") else {
        return;
    };
    with_mounts(|| {
        let own = ("custom.cfg", "set mine=1\n");
        let Some(boot) = BootDisk::new(&case, EXT4, &config([IGNITION, CUSTOM]), Some(own)) else {
            return;
        };
        case.prepared();
        boot.root.write("boot/ignition.firstboot", "");
        boot.settle();
        assert_eq!(boot.start(&boot.cut(), ""), NEW);
        assert_eq!(boot.of_the_first_boot(), "ignition.firstboot");
        let shown = boot.counter(&["show"]);
        assert!(
            shown.contains("the first boot of this node has not finished"),
            "{shown}"
        );
        boot.root.remove("boot/ignition.firstboot");

        boot.counter(&["arm", OLD]);
        let disk = boot.cut();
        assert_eq!(boot.start(&disk, ""), NEW);
        assert_eq!(boot.of_the_first_boot(), "");
        assert_eq!(boot.start(&disk, ""), OLD);
        assert_eq!(boot.of_the_first_boot(), "");

        let again = "set ignition_network_kcmdline='ip=dhcp'\n";
        boot.root.write("boot/ignition.firstboot", again);
        boot.settle();
        let disk = boot.cut();
        for entry in [NEW, OLD, OLD] {
            assert_eq!(boot.start(&disk, ""), entry);
            assert_eq!(boot.of_the_first_boot(), "ignition.firstboot ip=dhcp");
        }
        boot.counter(&["disarm"]);
        assert_eq!(boot.start(&boot.cut(), ""), NEW);
        assert_eq!(boot.root.read("boot/grub2/custom.cfg"), "set mine=1\n");
    });
}

#[test]
fn grub_takes_the_old_entry_at_once_where_it_cannot_write() {
    let Some(case) = Case::begin_as_root("24 boot counter, no writing") else {
        return;
    };
    with_mounts(|| {
        let Some(boot) = BootDisk::new(&case, EXT4, &config(["", CUSTOM]), None) else {
            return;
        };
        case.prepared();
        boot.counter(&["arm", OLD]);
        let disk = boot.cut();
        assert_eq!(boot.start(&disk, ",readonly=on"), OLD);
        assert_eq!(boot.start(&disk, ",readonly=on"), OLD);
        assert_eq!(
            BootDisk::state_on(&disk, ""),
            format!("armed, back to {OLD}")
        );
        assert_eq!(boot.start(&disk, ""), NEW);
    });
}

/// As ostree does for another default: the id of the arming is that of another entry then.
#[test]
fn other_boot_entries_since_the_arming_end_the_counting() {
    let Some(case) = Case::begin_as_root("24 boot counter, other entries") else {
        return;
    };
    with_mounts(|| {
        let Some(boot) = BootDisk::new(&case, EXT4, &config(["", CUSTOM]), None) else {
            return;
        };
        case.prepared();
        boot.counter(&["arm", OLD]);
        let mut command = Command::new("grub-editenv");
        let block = boot.root.path("boot/grub2/grubenv");
        run(command.arg(block).args(["set", "mco_rescue_trial=fired"]));
        boot.settle();
        assert_eq!(boot.start(&boot.cut(), ""), OLD);
        boot.root.write("boot/loader.0/entries/x.conf", "title x\n");
        boot.root.link("boot/loader.new", "loader.0");
        fs::rename(
            boot.root.path("boot/loader.new"),
            boot.root.path("boot/loader"),
        )
        .unwrap();
        boot.settle();
        let disk = boot.cut();
        assert_eq!(boot.start(&disk, ""), NEW);
        assert_eq!(
            BootDisk::state_on(&disk, ""),
            format!("fired, back to {OLD}")
        );
    });
}
