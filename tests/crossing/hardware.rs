//! The hardware of the healthy node: a processor, a disk, two interfaces; and the drivers in the image.

use std::fs;

use super::{KERNEL, Lab};

/// Version of the node's own kernel.
pub const OWN_KERNEL: &str = "5.14.0-570.el9_6.x86_64";
/// Flags of a processor of the level v3.
pub const FLAGS_V3: &str = "fpu cx8 cmov mmx fxsr sse sse2 syscall abm avx avx2 bmi1 bmi2 cx16 f16c fma lahf_lm movbe pni popcnt sse4_1 sse4_2 ssse3 xsave";
/// Directory of the first interface's device.
pub const ENO1: &str = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
/// Directory of the second interface's device, a virtio one below its PCI device.
pub const ENS2: &str = "sys/devices/pci0000:00/0000:00:02.0/virtio0";
/// Directory of the controller of the disk that the lab mounts.
pub const DISK: &str = "sys/devices/pci0000:00/0000:00:05.0";

/// Patterns of the modules in the image.
pub const ALIASES: &str = "# Aliases extracted from modules themselves.\n\
    alias pci:v00008086d00001533sv*sd*bc*sc*i* igb\n\
    alias pci:v*d*sv*sd*bc01sc06i01* ahci\n\
    alias virtio:d00000001v* virtio_net\n\
    alias fs-xfs xfs\n";
/// Modules in files, with those they need.
pub const DEPENDENCIES: &str = "kernel/drivers/net/ethernet/intel/igb/igb.ko.xz: kernel/drivers/i2c/i2c-algo-bit.ko.xz\n\
    kernel/drivers/i2c/i2c-algo-bit.ko.xz:\n\
    kernel/drivers/ata/ahci.ko.xz: kernel/drivers/ata/lib-ahci.ko.xz\n\
    kernel/drivers/ata/lib-ahci.ko.xz:\n\
    kernel/drivers/net/virtio_net.ko.xz:\n\
    kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz\n\
    kernel/lib/libcrc32c.ko.xz:\n";

/// Modules in the initramfs of the image.
pub const INITRAMFS: [&str; 7] = [
    "ahci",
    "lib-ahci",
    "xfs",
    "libcrc32c",
    "igb",
    "i2c-algo-bit",
    "virtio_net",
];

impl Lab {
    /// Adds the hardware to the node, and its drivers to the image.
    pub fn add_hardware(&self) {
        let processor = |number: u32| {
            format!("processor\t: {number}\nmodel name\t: A\nflags\t\t: {FLAGS_V3}\n\n")
        };
        self.node
            .write("proc/cpuinfo", &(processor(0) + &processor(1)));
        self.node
            .write("proc/sys/kernel/osrelease", &format!("{OWN_KERNEL}\n"));
        self.device(
            DISK,
            "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01",
            "pci/drivers/ahci",
        );
        self.device(
            ENO1,
            "pci:v00008086d00001533sv00008086sd00000001bc02sc00i00",
            "pci/drivers/igb",
        );
        self.interface("eno1", ENO1, 2, "52:54:00:aa:bb:01");
        self.device(
            ENS2.rsplit_once('/').unwrap().0,
            "pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00",
            "pci/drivers/virtio-pci",
        );
        self.device(
            ENS2,
            "virtio:d00000001v00001AF4",
            "virtio/drivers/virtio_net",
        );
        self.interface("ens2", ENS2, 3, "52:54:00:aa:bb:02");
        self.keyfile(
            "lan",
            "type=ethernet",
            "[ethernet]\nmac-address=52:54:00:aa:bb:01\n",
        );
        self.add_drivers(ALIASES, DEPENDENCIES);
        self.add_initramfs(&INITRAMFS);
    }

    /// Adds a device to which a driver is bound.
    pub fn device(&self, path: &str, modalias: &str, driver: &str) {
        self.node
            .write(&format!("{path}/modalias"), &format!("{modalias}\n"));
        let up = "../".repeat(path.matches('/').count());
        self.node.write(&format!("sys/bus/{driver}/bind"), "");
        self.node
            .link(&format!("{path}/driver"), &format!("{up}bus/{driver}"));
    }

    /// Adds an interface to a device.
    pub fn interface(&self, name: &str, device: &str, index: u32, mac: &str) {
        let at = format!("{device}/net/{name}");
        for (file, text) in [
            ("type", "1"),
            ("ifindex", &index.to_string()),
            ("address", mac),
            ("addr_assign_type", "0"),
            ("operstate", "down"),
        ] {
            self.node
                .write(&format!("{at}/{file}"), &format!("{text}\n"));
        }
        self.node.link(&format!("{at}/device"), "../..");
        let below = device.strip_prefix("sys").unwrap();
        self.node.link(
            &format!("sys/class/net/{name}"),
            &format!("../..{below}/net/{name}"),
        );
    }

    /// Adds a connection of NetworkManager.
    pub fn keyfile(&self, id: &str, connection: &str, more: &str) {
        let file = format!("etc/NetworkManager/system-connections/{id}.nmconnection");
        self.node.write(
            &file,
            &format!("[connection]\nid={id}\nuuid={id}\n{connection}\n{more}"),
        );
        self.node.chmod(&file, 0o600);
    }

    /// Writes the lists of modules of the image's kernel.
    pub fn add_drivers(&self, aliases: &str, dependencies: &str) {
        let write = |name: &str, text: &str| {
            self.target
                .write(&format!("usr/lib/modules/{KERNEL}/{name}"), text);
        };
        write("modules.alias", aliases);
        write("modules.dep", dependencies);
        write(
            "modules.builtin",
            "kernel/drivers/virtio/virtio_pci.ko\nkernel/fs/ext4/ext4.ko\n",
        );
        write(
            "modules.builtin.modinfo",
            "virtio_pci.license=GPL\0virtio_pci.alias=pci:v00001AF4d*sv*sd*bc*sc*i*\0",
        );
    }

    /// Writes an initramfs with these modules: an archive of the format newc.
    pub fn add_initramfs(&self, modules: &[&str]) {
        let mut archive = Vec::new();
        let paths = modules
            .iter()
            .map(|name| format!("usr/lib/modules/{KERNEL}/kernel/{name}.ko.xz"));
        for path in paths.chain(["TRAILER!!!".to_owned()]) {
            let mut fields = [0_usize; 13];
            (fields[1], fields[11]) = (0o100_644, path.len() + 1);
            let fields: String = fields.iter().map(|field| format!("{field:08x}")).collect();
            archive.extend(format!("070701{fields}{path}\0").bytes());
            archive.resize(archive.len().next_multiple_of(4), 0);
        }
        let file = self
            .target
            .path(&format!("usr/lib/modules/{KERNEL}/initramfs.img"));
        fs::write(file, archive).unwrap();
    }
}
