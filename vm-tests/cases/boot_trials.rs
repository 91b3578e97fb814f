//! A change that the node does not survive: its boot loader and its guard take it back (story: the bad image).
//!
//! Prepared: a node on OSTree in config A, started by a real GRUB from a `/boot` of its own, ext4 or xfs. Config B, with
//! another image, other arguments, files and units, was applied with `--try --reboot`, and the machine is at the reset before
//! its first boot with B. That boot dies, in one of many ways. A person at the management controller switches the node off and
//! on again where it does not do so by itself. True afterwards: GRUB started the new entry once; the node runs the old
//! deployment with the arguments, files, units and records of A; `core` can log in; `status` says that the trial went back,
//! and why; and the boot loader counts nothing any more.
//!
//! What stands in for something: the new image is made bad by the harness before it is started for the first time (its
//! kernel, its initramfs, its arguments, its `/etc`); a kernel without the driver of the root disk is one that is told not to
//! load it; a hardware watchdog is softdog, as Debian's kernel for virtual machines has no driver for those of QEMU; the
//! command `blscfg` of GRUB is one of the harness. Not shown: an entry that GRUB cannot load leads to the old one at once
//! (`fallback` with an id), which Red Hat's GRUB knows and Debian's does not.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::node::PROGRAM;
use super::os::{self, Story};
use crate::lab::grub::{Entry, FileSystem};
use crate::lab::loaded::{self, Loaded};
use crate::lab::node::Booted;
use crate::lab::qemu::{End, Shown};
use crate::lab::random::Random;
use crate::lab::{Case, checkout, images};

/// How long a boot that shows nothing any more is watched before its power is switched off.
const WATCHED: Duration = Duration::from_secs(15);
/// How long a run of the machine may take. Emulation on a busy machine is slow, and the limits below are part of it.
const LONGEST: Duration = Duration::from_secs(900);
/// The time that a boot of the trial has, from the start of its kernel, in seconds.
const BOOT_LIMIT: u64 = 300;
/// The time for a confirmation, in seconds.
const WINDOW: u64 = 60;

/// A way to die.
struct Death {
    name: &'static str,
    harm: Harm,
    /// What the console shows when nothing goes on, and only a power cycle helps. `None`: the machine resets itself.
    stuck: Option<&'static str>,
    /// What the table says: who notices it, and who makes the machine start again.
    notices: &'static str,
    /// A part of the reason in `status`.
    why: &'static str,
}

/// What is wrong with the new image, or what happens to it.
#[derive(Debug, Clone, Copy)]
enum Harm {
    /// Arguments of its kernel.
    Arguments(&'static str),
    /// The kernel does not begin as one.
    KernelHeader,
    /// The kernel cannot be unpacked.
    KernelMiddle,
    /// The kernel is missing.
    KernelGone,
    /// A unit of the initramfs never ends.
    InitramfsHangs,
    /// Half of the initramfs is missing.
    InitramfsTorn,
    /// A line of `/etc/fstab`.
    Fstab(&'static str),
    /// A unit that is wanted by a target. The lines of its sections are given.
    Unit {
        target: &'static str,
        unit: &'static str,
        service: &'static str,
    },
    /// The same with a watchdog of systemd.
    WatchedUnit(&'static str),
    /// sshd is masked.
    NoSshd,
}

/// Neither the new deployment nor the boot loader says more than this.
const OLD_BOOTED: &str = "the previous deployment was booted instead of the new one";
/// The guard of the new boot had begun its work.
const CUT_OFF: &str = "the boot with the change did not finish";
const BLOCKED: &str = "had not finished after";
const UNCONFIRMED: &str = "no confirmation came within";

/// PID 1 catches this signal and freezes.
const FREEZES: &str = "ExecStart=/bin/sh -c 'sleep 5; kill -SEGV 1'\n";

const DEATHS: &[Death] = &[
    Death {
        name: "panic with panic=5",
        harm: Harm::Arguments("panic=5 rdinit=/nonexistent root=/dev/nonexistent"),
        stuck: None,
        notices: "kernel resets; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "panic without panic=",
        harm: Harm::Arguments("rdinit=/nonexistent root=/dev/nonexistent"),
        stuck: Some("end Kernel panic"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "kernel missing",
        harm: Harm::KernelGone,
        stuck: Some("Press any key to continue"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "kernel file is not a kernel",
        harm: Harm::KernelHeader,
        stuck: Some("Press any key to continue"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "kernel cannot be unpacked",
        harm: Harm::KernelMiddle,
        stuck: Some("System halted"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "initramfs torn",
        harm: Harm::InitramfsTorn,
        stuck: Some("end Kernel panic"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "initramfs hangs",
        harm: Harm::InitramfsHangs,
        stuck: Some("THE INITRAMFS HANGS"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "emergency shell of the initramfs",
        harm: Harm::Arguments("rd.break=pre-mount"),
        stuck: Some("Entering emergency mode"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "no driver of the root disk",
        harm: Harm::Arguments("module_blacklist=virtio_blk rd.retry=20"),
        stuck: Some("Entering emergency mode"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "root= of no disk",
        harm: Harm::Arguments("root=LABEL=nowhere rd.retry=20"),
        stuck: Some("Entering emergency mode"),
        notices: "power cycle; GRUB",
        why: OLD_BOOTED,
    },
    Death {
        name: "fstab with a missing disk",
        harm: Harm::Fstab("LABEL=nowhere /var/mnt ext4 x-systemd.device-timeout=10s 0 2"),
        stuck: None,
        notices: "guard, at the boot limit",
        why: BLOCKED,
    },
    Death {
        name: "a unit blocks the early boot",
        harm: Harm::Unit {
            target: "sysinit.target",
            unit: "DefaultDependencies=no\nBefore=sysinit.target\n",
            service: "Type=oneshot\nExecStart=/bin/sleep infinity\n",
        },
        stuck: None,
        notices: "guard, at the boot limit",
        why: BLOCKED,
    },
    Death {
        name: "a unit blocks the late boot",
        harm: Harm::Unit {
            target: "multi-user.target",
            unit: "Before=ssh.service\n",
            service: "Type=oneshot\nExecStart=/bin/sleep infinity\n",
        },
        stuck: None,
        notices: "guard, at the boot limit",
        why: BLOCKED,
    },
    Death {
        name: "panic after the root is mounted",
        harm: Harm::Unit {
            target: "multi-user.target",
            unit: "After=mco-rescue-trial.service\n",
            service: "ExecStart=/bin/sh -c 'sleep 5; echo c >/proc/sysrq-trigger'\n",
        },
        stuck: None,
        notices: "kernel resets (kernel.panic of the trial); GRUB",
        why: CUT_OFF,
    },
    Death {
        name: "PID 1 crashes",
        harm: Harm::Unit {
            target: "multi-user.target",
            unit: "After=mco-rescue-trial.service\n",
            service: FREEZES,
        },
        stuck: None,
        notices: "guard, at the boot limit, which resets the machine without PID 1",
        why: BLOCKED,
    },
    Death {
        name: "PID 1 crashes, with a watchdog",
        harm: Harm::WatchedUnit(
            "ExecStart=/bin/sh -c 'until grep -q active /sys/class/watchdog/watchdog0/state; do sleep 1; done; kill -SEGV 1'\n",
        ),
        stuck: None,
        notices: "watchdog resets (softdog); GRUB",
        why: CUT_OFF,
    },
    Death {
        name: "no sshd after the boot",
        harm: Harm::NoSshd,
        stuck: None,
        notices: "guard, when the time is up",
        why: UNCONFIRMED,
    },
];

/// Makes one test of each of these.
macro_rules! deaths {
    ($($test:ident: $name:literal, $file_system:ident;)*) => {$(
        #[test]
        #[ignore = "a big guest: make vm-test runs it"]
        fn $test() {
            dies($name, FileSystem::$file_system);
        }
    )*};
}

deaths! {
    panic_with_a_time: "panic with panic=5", Ext4;
    panic_for_ever: "panic without panic=", Xfs;
    kernel_missing: "kernel missing", Xfs;
    kernel_is_none: "kernel file is not a kernel", Ext4;
    kernel_is_damaged: "kernel cannot be unpacked", Ext4;
    initramfs_torn: "initramfs torn", Xfs;
    initramfs_hangs: "initramfs hangs", Ext4;
    initramfs_shell: "emergency shell of the initramfs", Xfs;
    no_driver: "no driver of the root disk", Ext4;
    no_root: "root= of no disk", Xfs;
    fstab: "fstab with a missing disk", Ext4;
    blocks_early: "a unit blocks the early boot", Xfs;
    blocks_late: "a unit blocks the late boot", Ext4;
    late_panic: "panic after the root is mounted", Xfs;
    pid_1: "PID 1 crashes", Ext4;
    pid_1_watched: "PID 1 crashes, with a watchdog", Xfs;
    no_sshd: "no sshd after the boot", Ext4;
}

fn dies(name: &str, file_system: FileSystem) {
    let title = format!("8 boot trial, {name}, {}", file_system.name());
    let Some(case) = Case::begin_as_root(&title) else {
        return;
    };
    let death = DEATHS.iter().find(|death| death.name == name).unwrap();
    let mut trial = Trial::new(&case, file_system);
    trial.harm(death.harm);
    let booted = trial.comes_back(death, None);
    trial.is_as_before(booted, death.why);
}

/// Power fails in the boot of the trial, and in the boot that takes it back; from the moment at which GRUB starts the entry,
/// in seconds.
#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn power_cuts_in_the_trial_and_on_the_way_back() {
    let Some(case) = Case::begin_as_root("8 boot trial, power cuts, ext4") else {
        return;
    };
    let mut random = Random::seeded_with(&case, 8);
    cuts(&case, FileSystem::Ext4, &mut random);
}

fn cuts(case: &Case, file_system: FileSystem, random: &mut Random) {
    let mut trial = Trial::new(case, file_system);
    let cuts =
        [random.below(90), random.below(90)].map(|seconds| Duration::from_secs(seconds as u64));
    case.tell(&format!("power cuts after {cuts:?}"));
    let death = Death {
        name: "power cuts in the trial and on the way back",
        harm: Harm::Arguments(""),
        stuck: None,
        notices: "GRUB; the guard of the old boot",
        why: "",
    };
    let booted = trial.comes_back(&death, Some(cuts));
    trial.is_as_before(booted, death.why);
}

/// A good change: it is confirmed by a new login, and nothing goes back, after one more reboot neither.
#[test]
#[ignore = "a big guest: make vm-test runs it"]
fn a_good_image_stays_once_it_is_confirmed() {
    let Some(case) = Case::begin_as_root("8 boot trial, good and confirmed, xfs") else {
        return;
    };
    let mut trial = Trial::new(&case, FileSystem::Xfs);
    trial.is_confirmed();
}

/// Seeded accidents: a death, a file system, and perhaps a power cut on the way back. `MCO_RESCUE_TRIALS` is their number.
#[test]
#[ignore = "big guests: make vm-test runs it"]
fn seeded_deaths_at_boot_end_in_the_old_system() {
    let Some(case) = Case::begin_as_root("8 boot trial, seeds") else {
        return;
    };
    let count = std::env::var("MCO_RESCUE_TRIALS").ok();
    let count: usize = count.and_then(|count| count.parse().ok()).unwrap_or(2);
    let mut random = Random::seeded_with(&case, 59);
    for number in 0..count {
        let file_system = [FileSystem::Ext4, FileSystem::Xfs][random.below(2)];
        let kind = random.below(DEATHS.len() + 2);
        let one = Case::begin_as_root(&format!("8 boot trial, seed {number}")).unwrap();
        match kind.checked_sub(DEATHS.len()) {
            Some(0) => cuts(&one, file_system, &mut random),
            Some(_) => Trial::new(&one, file_system).is_confirmed(),
            None => {
                let death = &DEATHS[kind];
                one.tell(&format!("{} on {}", death.name, file_system.name()));
                let mut trial = Trial::new(&one, file_system);
                trial.harm(death.harm);
                let booted = trial.comes_back(death, None);
                trial.is_as_before(booted, death.why);
            }
        }
    }
}

/// The disks of a node that was in A for a while.
pub fn disks_in_a() -> PathBuf {
    let mut made_of = vec![images::name_of(&images::with_two_systems())];
    let units = fs::read_dir(checkout().join("systemd")).unwrap();
    let mut sources: Vec<PathBuf> = units.map(|unit| unit.unwrap().path()).collect();
    sources.sort();
    for source in ["os.rs", "configs.rs"] {
        sources.push(checkout().join("vm-tests/cases").join(source));
    }
    made_of.extend(sources.iter().map(|source| images::text_of(source)));
    images::kept("trial", &made_of, |out| {
        let case = Case::begin_as_root("8 boot trial, the node").unwrap();
        let mut story = Story::begin(&case);
        let booted = story.in_a();
        booted.ask(&format!("sudo {PROGRAM} install"));
        let key = booted.key().to_owned();
        booted.power_off();
        loaded::keep(out, story.node.disk(), story.boot_disk(), &key);
    })
}

/// The disks of that node when it is about to boot B for the first time.
fn disks() -> PathBuf {
    let in_a = disks_in_a();
    let made_of = [
        images::name_of(&in_a),
        images::name_of(&images::program()),
        format!("{BOOT_LIMIT} {WINDOW}"),
        images::text_of(&checkout().join("vm-tests/guest/grub/grub.cfg")),
    ];
    images::kept("tried", &made_of, |out| {
        let case = Case::begin_as_root("8 boot trial, apply").unwrap();
        let mut node = Loaded::of(&case, &in_a);
        node.has_this_program();
        let key = public_key(&in_a);
        let mut booted = node.start();
        booted.comes_up();
        case.tell(&format!("boot: {:.0} s", booted.guest.seconds()));
        let b = os::config_b(&key, &os::image("b"));
        booted.bring("b.json", b.to_string().as_bytes());
        let begun = Instant::now();
        let said = booted.run(&format!(
            "sudo {PROGRAM} apply --yes --try={WINDOW}s --boot-limit={BOOT_LIMIT}s --reboot b.json"
        ));
        case.tell(&format!(
            "apply: {:.0} s: {}{}",
            begun.elapsed().as_secs_f64(),
            said.out(),
            said.err()
        ));
        assert_eq!(
            booted.guest.ended(),
            End::Rebooted,
            "{}",
            booted.guest.tail()
        );
        case.tell(&format!(
            "apply and shutdown: {:.0} s",
            begun.elapsed().as_secs_f64()
        ));
        is_armed(&node);
        loaded::keep(out, node.root_disk(), node.boot.path(), &in_a.join("key"));
    })
}

/// GRUB has two entries, starts the new one next, and knows the old one.
fn is_armed(node: &Loaded<'_>) -> (Entry, Entry) {
    let mut entries = node.entries();
    assert_eq!(entries.len(), 2, "{entries:?}");
    let (new, old) = (entries.remove(0), entries.remove(0));
    assert!(new.options.contains("site.is=b"), "{new:?}");
    assert_ne!(new.linux, old.linux);
    assert_ne!(new.system(), old.system());
    let variables = node.boot.environment();
    assert_eq!(variables["mco_rescue_trial"], "armed", "{variables:?}");
    assert_eq!(variables["mco_rescue_trial_entry"], old.id);
    (new, old)
}

pub fn public_key(disks: &Path) -> String {
    let key = fs::read_to_string(disks.join("key.pub")).unwrap();
    key.trim().to_owned()
}

/// One node, and what it is led through.
struct Trial<'a> {
    case: &'a Case,
    node: Loaded<'a>,
    a: Value,
    b: Value,
    new: Entry,
    old: Entry,
}

/// How a run of the machine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// By itself: a reset.
    Reset,
    /// From outside, after the sign.
    PowerCycle,
    /// In the middle.
    PowerCut,
}

impl<'a> Trial<'a> {
    fn new(case: &'a Case, file_system: FileSystem) -> Self {
        let disks = disks();
        let key = public_key(&disks);
        let node = Loaded::again(case, &disks, file_system);
        let (new, old) = is_armed(&node);
        case.prepared();
        Self {
            case,
            a: os::config_a(&key, &os::image("a")),
            b: os::config_b(&key, &os::image("b")),
            node,
            new,
            old,
        }
    }

    /// Switches the node on until the old deployment is up.
    fn comes_back(&mut self, death: &Death, cuts: Option<[Duration; 2]>) -> Booted {
        let begun = Instant::now();
        let mut runs: Vec<(Vec<String>, Ended, u64)> = Vec::new();
        let booted = loop {
            assert!(runs.len() < 4, "{runs:?}");
            let mut booted = self.node.start();
            let cut = cuts.and_then(|cuts| cuts.get(runs.len()).copied());
            let ended = self.watch(&mut booted, death.stuck, cut);
            let Some(ended) = ended else {
                break booted;
            };
            let systems = self.node.started_in(&booted);
            self.case.tell(&format!(
                "{systems:?}: {ended:?} after {:.0} s",
                booted.guest.seconds()
            ));
            runs.push((systems, ended, booted.guest.seconds() as u64));
        };
        self.case.tell(&format!(
            "TABLE | {} | {} | {} | {runs:?} | {:.0} s to the login |",
            death.name,
            self.node.boot.file_system().name(),
            death.notices,
            begun.elapsed().as_secs_f64()
        ));
        let started = runs.iter().flat_map(|(systems, ..)| systems);
        let of_new = started
            .filter(|system| *system == self.new.system())
            .count();
        assert!(of_new <= 1, "the bad entry was started again: {runs:?}");
        let cycled = runs.iter().any(|(_, ended, _)| *ended == Ended::PowerCycle);
        assert_eq!(cycled, death.stuck.is_some(), "{runs:?}");
        booted
    }

    /// Watches a run of the machine. `None`: it is the old entry's, and `core` can log in.
    fn watch(
        &self,
        booted: &mut Booted,
        stuck: Option<&str>,
        cut: Option<Duration>,
    ) -> Option<Ended> {
        // Another default gives both entries other ids.
        let of_old = [&self.old, &self.new]
            .map(|entry| format!("Booting `{} {}", entry.id, self.old.system()));
        let [first, second] = &of_old;
        if let Some(cut) = cut {
            booted.guest.wait_for("Booting `");
            if let Some(shown) = booted.guest.shows_or_ends(&[], cut) {
                panic!("{shown:?}: {}", booted.guest.tail());
            }
            booted.guest.cut();
            return Some(Ended::PowerCut);
        }
        let texts: Vec<&str> = [first.as_str(), second].into_iter().chain(stuck).collect();
        match booted.guest.shows_or_ends(&texts, LONGEST) {
            Some(Shown::Text(0 | 1)) => {
                booted.comes_up();
                None
            }
            Some(Shown::Text(_)) => {
                let more = booted.guest.shows_or_ends(&[first, second], WATCHED);
                assert_eq!(more, None, "it goes on by itself: {}", booted.guest.tail());
                booted.guest.cut();
                Some(Ended::PowerCycle)
            }
            Some(Shown::End(_)) => Some(Ended::Reset),
            None => panic!("nothing happens: {}", booted.guest.tail()),
        }
    }

    /// Everything is as in A, and `status` says why.
    fn is_as_before(&mut self, mut booted: Booted, why: &str) {
        booted.shares_a_connection();
        booted.comes_to(&format!(
            "sudo {PROGRAM} status -o json | grep -q '\"outcome\": *\"reverted\"'"
        ));
        let last = last_trial(&booted);
        self.case.tell(&last.to_string());
        let said = last["why"].as_str().unwrap();
        assert!(said.contains(why), "{why}: {said}");
        let started = self.node.started_in(&booted);
        assert_eq!(started.last().map(String::as_str), Some(self.old.system()));
        os::is_all_of_a(&booted, &self.a);
        let failed = booted.ask("systemctl --failed --no-legend --plain");
        assert_eq!(failed, "");
        os::nothing_is_awaited(&booted);
        booted.power_off();
        self.counts_nothing();
    }

    fn counts_nothing(&self) {
        let variables = self.node.boot.environment();
        let state = variables.get("mco_rescue_trial");
        assert!(
            !state.is_some_and(|state| state == "armed" || state == "fired"),
            "{variables:?}"
        );
        assert!(
            self.node.boot.read_file("grub2/custom.cfg").is_none(),
            "our lines are left"
        );
    }

    /// B boots, is confirmed, and stays.
    fn is_confirmed(&mut self) {
        let mut booted = self.node.start();
        booted.lets_core_in();
        booted.comes_to(&format!("sudo {PROGRAM} confirm"));
        self.case
            .tell(&format!("confirmed after {:.0} s", booted.guest.seconds()));
        booted.comes_up();
        assert_eq!(last_trial(&booted)["outcome"], "confirmed");
        os::is_all_of_b(&booted, &self.b);
        booted.run("sudo systemctl --no-block reboot");
        assert_eq!(
            booted.guest.ended(),
            End::Rebooted,
            "{}",
            booted.guest.tail()
        );
        self.counts_nothing();
        let mut booted = self.node.start();
        booted.comes_up();
        os::is_all_of_b(&booted, &self.b);
        assert_eq!(self.node.started_in(&booted), [self.new.system()]);
        booted.power_off();
    }

    /// Makes the new image bad, before it is started for the first time.
    fn harm(&self, harm: Harm) {
        let service = |target: &str, unit: &str, service: &str| {
            let text = format!(
                "[Unit]\nDescription=A unit of a bad image\n{unit}[Service]\n{service}[Install]\nWantedBy={target}\n"
            );
            self.in_etc(|etc| {
                let units = etc.join("systemd/system");
                let wants = units.join(format!("{target}.wants"));
                fs::create_dir_all(&wants).unwrap();
                fs::write(units.join("bad.service"), text).unwrap();
                symlink("../bad.service", wants.join("bad.service")).unwrap();
            });
        };
        match harm {
            Harm::Arguments(words) => self.adds_arguments(words),
            Harm::Fstab(line) => self.in_etc(|etc| {
                let fstab = etc.join("fstab");
                let text = fs::read_to_string(&fstab).unwrap();
                fs::write(&fstab, format!("{text}{line}\n")).unwrap();
            }),
            Harm::Unit {
                target,
                unit,
                service: lines,
            } => service(target, unit, lines),
            Harm::WatchedUnit(lines) => {
                self.adds_arguments("systemd.watchdog_sec=20");
                self.in_etc(|etc| {
                    fs::create_dir_all(etc.join("modules-load.d")).unwrap();
                    fs::write(etc.join("modules-load.d/softdog.conf"), "softdog\n").unwrap();
                });
                service(
                    "multi-user.target",
                    "After=mco-rescue-trial.service\n",
                    lines,
                );
            }
            Harm::NoSshd => self.in_etc(|etc| {
                let unit = etc.join("systemd/system/ssh.service");
                symlink("/dev/null", unit).unwrap();
            }),
            // What unpacks it speaks on no console of the later kernel.
            Harm::KernelMiddle => {
                self.adds_arguments("earlyprintk=serial,ttyS0,115200");
                self.harms_boot(harm);
            }
            Harm::KernelHeader | Harm::KernelGone | Harm::InitramfsHangs | Harm::InitramfsTorn => {
                self.harms_boot(harm);
            }
        }
    }

    fn in_etc(&self, work: impl FnOnce(&Path) + Send) {
        self.node
            .with_deployment(&self.new, |root| work(&root.join("etc")));
    }

    fn adds_arguments(&self, words: &str) {
        self.node.boot.mounted(|top| {
            let entry = top
                .join("loader/entries")
                .join(format!("{}.conf", self.new.id));
            let text = fs::read_to_string(&entry).unwrap();
            let more = format!("{} {words}", self.new.options);
            fs::write(&entry, text.replace(&self.new.options, &more)).unwrap();
        });
    }

    fn harms_boot(&self, harm: Harm) {
        self.node.boot.mounted(|top| {
            let path = |file: &str| top.join(file.trim_start_matches('/'));
            let (kernel, initramfs) = (path(&self.new.linux), path(&self.new.initrd));
            let open = |path: &Path| File::options().write(true).open(path).unwrap();
            match harm {
                Harm::KernelHeader => open(&kernel).write_all_at(&[0; 4096], 0).unwrap(),
                Harm::KernelMiddle => open(&kernel).write_all_at(&[0x5a; 65536], 3 << 20).unwrap(),
                Harm::KernelGone => fs::remove_file(&kernel).unwrap(),
                Harm::InitramfsTorn => {
                    let file = open(&initramfs);
                    let half = file.metadata().unwrap().len() / 2;
                    file.set_len(half).unwrap();
                }
                _ => {
                    let mut file = File::options().append(true).open(&initramfs).unwrap();
                    let length = file.metadata().unwrap().len();
                    let padding = usize::try_from(length.next_multiple_of(4) - length).unwrap();
                    file.write_all(&[0; 3][..padding]).unwrap();
                    file.write_all(&hanging_unit()).unwrap();
                }
            }
        });
    }
}

pub fn last_trial(booted: &Booted) -> Value {
    let status = booted.ask(&format!("sudo {PROGRAM} status -o json || true"));
    let status: Value = serde_json::from_str(&status).unwrap();
    status["last_trial"].clone()
}

/// An archive with a unit that never ends, before the root is mounted.
fn hanging_unit() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let units = dir.path().join("etc/systemd/system");
    fs::create_dir_all(units.join("initrd.target.requires")).unwrap();
    let unit = "[Unit]\nDescription=Never ends\nDefaultDependencies=no\nBefore=sysroot.mount initrd-root-fs.target\n\
        [Service]\nType=oneshot\nStandardOutput=tty\nTTYPath=/dev/console\n\
        ExecStart=/bin/sh -c 'echo THE INITRAMFS HANGS; while :; do sleep 1000; done'\n";
    fs::write(units.join("hangs.service"), unit).unwrap();
    let link = units.join("initrd.target.requires/hangs.service");
    symlink("../hangs.service", link).unwrap();
    images::packed(dir.path(), "cat")
}
