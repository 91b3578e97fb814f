//! Crossings: a node, an image that it is to run, and `preflight` between them.
//!
//! [`Lab::healthy`] is a node and an image on which `preflight` finds nothing. Each test breaks one thing of it, and expects
//! exactly the finding of that breakage.

mod boot_entries;
mod boot_filesystem;
mod bootable;
mod container_runtime;
mod cpu_level;
pub mod disks;
mod drivers;
pub mod firmware;
mod forms;
pub mod hardware;
mod identity;
mod interface_names;
mod kernel_arguments;
mod kubelet_checkpoints;
mod kubelet_skew;
mod legacy_connections;
mod login;
mod node_files;
mod own_modules;
mod packages;
mod run;

use std::fs;

use base64::Engine;
use serde_json::{Value, json};

use crate::support::{TestRoot, flat_run, machine_config};

/// Version of the target's kernel.
pub const KERNEL: &str = "6.12.0-55.el10.x86_64";

/// UUID of the node's root file system.
pub const ROOT_UUID: &str = "11111111-0000-4000-8000-000000000001";
/// UUID of its `/boot`.
pub const BOOT_UUID: &str = "22222222-0000-4000-8000-000000000002";

/// Type of an EFI system partition.
pub const ESP_TYPE: &str = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b";

/// A block device.
#[derive(Default)]
pub struct Device<'a> {
    /// Such as `8:3`.
    pub number: &'a str,
    /// Such as `sda3`.
    pub name: &'a str,
    /// Number of the disk that it is a partition of.
    pub disk: &'a str,
    /// What udev found out.
    pub properties: &'a [(&'a str, &'a str)],
}

/// A node and a target image, which lies unpacked in a directory.
pub struct Lab {
    pub node: TestRoot,
    pub target: TestRoot,
}

/// A finding, as the program prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub check: String,
    pub severity: String,
    pub subject: String,
    /// The whole finding as JSON, to look for words; without the place of the root.
    pub text: String,
}

impl Lab {
    /// A node of EL 9 and an image of EL 10 that suit each other.
    pub fn healthy() -> Self {
        let lab = Self {
            node: TestRoot::new(),
            target: TestRoot::empty(),
        };
        lab.node.write(
            "proc/cmdline",
            "rw root=UUID=1 ostree=/ostree/boot.1/rhcos/aa/0\n",
        );
        lab.target.write(
            "usr/lib/os-release",
            "NAME=\"Red Hat Enterprise Linux CoreOS\"\nID=\"rhel\"\nVARIANT_ID=coreos\nVERSION_ID=\"10.0\"\n\
             RHEL_VERSION=10.0\nOPENSHIFT_VERSION=\"5.0\"\nPRETTY_NAME=\"Red Hat Enterprise Linux CoreOS 10.0\"\n",
        );
        for name in ["vmlinuz", "initramfs.img"] {
            lab.target
                .write(&format!("usr/lib/modules/{KERNEL}/{name}"), name);
        }
        lab.target.write("usr/lib/systemd/systemd", "init");
        lab.add_boot();
        lab.add_disk();
        lab.add_runtime();
        lab.write_origin("");
        lab.write_packages(&[("openshift-kubelet", "5.0.0"), ("systemd", "257")]);
        lab.write_api_server("v5.0.1", "kubernetes=1.36.1");
        lab.add_hardware();
        lab
    }

    /// `/boot` of the node: one entry, and its kernel.
    pub fn add_boot(&self) {
        self.node.link("boot/loader", "loader.1");
        self.write_entry(&format!("rw root=UUID={ROOT_UUID} boot=UUID={BOOT_UUID}"));
        for name in ["vmlinuz-5.14", "initramfs-5.14.img"] {
            self.node
                .write(&format!("boot/ostree/rhcos-aa/{name}"), name);
        }
        self.node
            .write("boot/.root_uuid", &format!("{ROOT_UUID}\n"));
        self.node
            .write("boot/grub2/grub.cfg", "# by bootupd\nblscfg\n");
        self.node.write(
            "boot/bootupd-state.json",
            r#"{"installed":{"EFI":{"meta":{"timestamp":"2025-01-01T00:00:00Z","version":"grub2-1,shim-1"}}}}"#,
        );
        // The boot loader of the node is that of the image.
        for (name, content) in [
            ("BOOT/BOOTX64.EFI", "shim"),
            ("redhat/shimx64.efi", "shim"),
            ("redhat/grubx64.efi", "grub"),
        ] {
            self.node.write(&format!("boot/efi/EFI/{name}"), content);
            self.target
                .write(&format!("usr/lib/bootupd/updates/EFI/{name}"), content);
        }
        self.target.write(
            "usr/lib/bootupd/updates/EFI.json",
            r#"{"timestamp":"2025-06-01T00:00:00Z","version":"grub2-2,shim-2"}"#,
        );
        self.node.write(
            "boot/efi/EFI/redhat/grub.cfg",
            "search --fs-uuid --set prefix --no-floppy $uuid\n",
        );
        self.node.write("sys/firmware/efi/fw_platform_size", "64\n");
    }

    /// The disk of the node, as the installer makes it, and its mounts.
    fn add_disk(&self) {
        self.add_device(&Device {
            number: "8:0",
            name: "sda",
            ..Device::default()
        });
        self.add_device(&Device {
            number: "8:2",
            name: "sda2",
            disk: "8:0",
            properties: &[("ID_PART_ENTRY_TYPE", ESP_TYPE), ("ID_FS_TYPE", "vfat")],
        });
        self.add_device(&Device {
            number: "8:3",
            name: "sda3",
            disk: "8:0",
            properties: &[
                ("ID_SERIAL", "disk-1"),
                ("ID_FS_LABEL", "boot"),
                ("ID_FS_TYPE", "ext4"),
                ("ID_FS_UUID", BOOT_UUID),
            ],
        });
        self.add_device(&Device {
            number: "8:4",
            name: "sda4",
            disk: "8:0",
            properties: &[
                ("ID_SERIAL", "disk-1"),
                ("ID_FS_LABEL", "root"),
                ("ID_FS_TYPE", "xfs"),
                ("ID_FS_UUID", ROOT_UUID),
            ],
        });
        self.write_mounts("8:3", "8:4");
    }

    /// Writes the superblock of an XFS in place of a device.
    pub fn write_xfs(&self, device: &str, version: u16) {
        let mut block = vec![0; 512];
        block[..4].copy_from_slice(b"XFSB");
        // The upper bits are features.
        block[100..102].copy_from_slice(&(0xb4a0 | version).to_be_bytes());
        self.node.write(device, "");
        fs::write(self.node.path(device), block).unwrap();
    }

    /// The mounts of the first process: the numbers of the devices with `/boot` and with the root file system.
    pub fn write_mounts(&self, boot: &str, root: &str) {
        let source = match root {
            "8:4" => "/dev/sda4",
            _ => "/dev/mapper/root",
        };
        self.write_xfs(source, 5);
        let lines = format!(
            "22 1 0:30 / / rw,relatime shared:1 - overlay composefs ro\n\
             23 22 {root} / /sysroot rw,relatime shared:2 - xfs {source} rw\n\
             24 22 {root} /ostree/deploy/rhcos/var /var rw,relatime shared:3 - xfs {source} rw\n\
             25 22 {boot} / /boot ro,nosuid,nodev,relatime shared:4 - ext4 /dev/sda3 rw\n\
             26 25 8:2 / /boot/efi ro,relatime shared:5 - vfat /dev/sda2 rw\n"
        );
        self.node.write("proc/1/mountinfo", &lines);
    }

    /// Adds a block device, or changes one: udev's record of it, and its place in `/sys`.
    pub fn add_device(&self, device: &Device) {
        let Device {
            number, name, disk, ..
        } = device;
        let mut record = format!("I:1000\nE:ID_BUS=ata\nS:disk/by-x/{name}\n");
        if !disk.is_empty() {
            record += &format!("E:ID_PART_ENTRY_DISK={disk}\n");
        }
        for (key, value) in device.properties {
            record += &format!("E:{key}={value}\n");
        }
        self.node
            .write(&format!("run/udev/data/b{number}"), &record);
        let at = format!("sys/devices/pci0000:00/0000:00:05.0/block/{name}");
        self.node
            .write(&format!("{at}/uevent"), &format!("DEVNAME={name}\n"));
        self.node
            .write(&format!("{at}/dev"), &format!("{number}\n"));
        let link = format!("sys/dev/block/{number}");
        if !self.node.exists(&link) {
            self.node.link(&link, &format!("../../../{at}"));
            let class = format!("sys/class/block/{name}");
            self.node.link(&class, &format!("../../../{at}"));
        }
    }

    /// CRI-O's configuration as the daemon writes it, and the runtime in the image.
    fn add_runtime(&self) {
        self.node.write(
            "etc/crio/crio.conf.d/00-default",
            "[crio]\n[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.runc]\nruntime_path = \"\"\n\
             [crio.runtime.runtimes.crun]\nruntime_path = \"\"\n",
        );
        for name in ["crio", "crun", "kubelet", "ovs-vsctl"] {
            self.target.write(&format!("usr/bin/{name}"), name);
            self.node.write(&format!("usr/bin/{name}"), name);
        }
    }

    /// The booted deployment's origin, with sections of rpm-ostree.
    pub fn write_origin(&self, sections: &str) {
        let name = format!("{}.0", "cd".repeat(32));
        let below = "sysroot/ostree/deploy/rhcos/deploy";
        fs::create_dir_all(self.node.path(&format!("{below}/{name}"))).unwrap();
        let origin = format!(
            "[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.example/os@sha256:1\n{sections}"
        );
        self.node.write(&format!("{below}/{name}.origin"), &origin);
        if !self.node.exists("sysroot/ostree/boot.1") {
            self.node.link("sysroot/ostree/boot.1", "boot.1.1");
            self.node.link(
                "sysroot/ostree/boot.1.1/rhcos/aa/0",
                &format!("../../../deploy/rhcos/deploy/{name}"),
            );
        }
    }

    /// The list of packages in the image.
    pub fn write_packages(&self, packages: &[(&str, &str)]) {
        let all = packages.iter();
        let all: Vec<_> = all
            .map(|(name, version)| json!([name, "0", version, "1.el10", "x86_64"]))
            .collect();
        let text = json!({"rpmdb.pkglist": all}).to_string();
        self.target
            .write("usr/share/openshift/base/meta.json", &text);
    }

    /// The static pod of the API server, and its image in containers-storage with these labels.
    pub fn write_api_server(&self, version: &str, versions: &str) {
        let (image, id) = ("quay.example/k@sha256:77", "ef".repeat(32));
        let pod = json!({"spec": {"containers": [
            {"name": "setup", "image": "quay.example/other@sha256:1"},
            {"name": "kube-apiserver", "image": image},
        ]}});
        let manifest = "etc/kubernetes/manifests/kube-apiserver-pod.yaml";
        self.node.write(manifest, &pod.to_string());
        let images = "var/lib/containers/storage/overlay-images";
        let stored = json!([{"id": id, "digest": "sha256:77", "names": [image]}]);
        self.node
            .write(&format!("{images}/images.json"), &stored.to_string());
        let labels = json!({"version": version, "io.openshift.build.versions": versions});
        let config = json!({"config": {"Labels": labels}}).to_string();
        // The storage names a file by its key in base64.
        let key = base64::engine::general_purpose::STANDARD.encode(format!("sha256:{id}"));
        self.node.write(&format!("{images}/{id}/={key}"), &config);
    }

    /// Writes the boot entry of the node with these kernel arguments.
    pub fn write_entry(&self, arguments: &str) {
        let entry = format!(
            "title RHCOS (ostree:0)\nversion 1\noptions {arguments} ostree=/ostree/boot.1/rhcos/aa/0\n\
             linux /ostree/rhcos-aa/vmlinuz-5.14\ninitrd /ostree/rhcos-aa/initramfs-5.14.img\n"
        );
        self.node
            .write("boot/loader.1/entries/ostree-1.conf", &entry);
    }

    /// What `preflight` finds; the document is checked against its schema.
    pub fn findings(&self) -> Vec<Finding> {
        findings_of(&self.node, self.target.dir().to_str().unwrap())
    }

    /// The findings in short: check, severity and subject.
    pub fn short(&self) -> Vec<String> {
        short_of(&self.node, self.target.dir().to_str().unwrap())
    }
}

/// What `preflight` finds on a node for the image at a path.
pub fn findings_of(node: &TestRoot, target: &str) -> Vec<Finding> {
    let args = ["preflight", "--output", "json", "--os-from", target];
    node.run_with_bootc_alone(&args);
    let document = node.run(&args).json();
    let all = document["findings"].as_array().unwrap().iter();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    all.map(|one| Finding {
        check: text(one, "check"),
        severity: text(one, "severity"),
        subject: text(one, "subject"),
        text: one.to_string().replace(node.dir().to_str().unwrap(), ""),
    })
    .collect()
}

/// The findings in short: check, severity and subject.
pub fn short_of(node: &TestRoot, target: &str) -> Vec<String> {
    let all = findings_of(node, target).into_iter();
    all.map(|one| format!("{} {} {}", one.check, one.severity, one.subject))
        .collect()
}

#[test]
fn nothing_is_found_on_a_healthy_node() {
    assert_eq!(Lab::healthy().short(), Vec::<String>::new());
}

/// The result stands above, and what is done by hand before the commands.
#[test]
fn the_last_line_is_a_command() {
    let lab = Lab::healthy();
    let (old, new) = ("boot/ostree/rhcos-aa", "boot/ostree/rhcos-bb");
    fs::rename(lab.node.path(old), lab.node.path(new)).unwrap();
    let target = lab.target.dir().to_str().unwrap();
    let said = lab
        .node
        .run(&["preflight", "--os-from", target])
        .exits(1)
        .out();
    assert!(
        said.contains("\nResult    The image is not staged until"),
        "{said}"
    );
    assert!(
        said.contains("Mount it at /boot, then run preflight again."),
        "{said}"
    );
    let last = said.lines().last().unwrap().trim_start();
    assert!(last.starts_with("Next: "), "{said}");
}

#[test]
fn units_that_systemd_refuses_are_found_on_the_node_and_in_the_config_that_is_to_come() {
    let lab = Lab::healthy();
    let text =
        "[Mount]\nWhat=/dev/sdb1\nWhere=/var/log/audit\n[Install]\nRequiredBy=local-fs.target\n";
    let target = lab.target.dir().to_str().unwrap().to_owned();
    let unit = |name: &str| json!([{"name": name, "enabled": true, "contents": text}]);
    let ends = |name: &str| {
        let list = json!({"systemd": {"units": unit(name)}});
        let mut config = machine_config("rendered-worker-a", list);
        config["spec"]["osImageURL"] = "quay.example/os:a".into();
        let given = lab.node.config(&config);
        let args = [
            "preflight",
            "--output",
            "json",
            given.path(),
            "--os-from",
            &target,
        ];
        lab.node.run(&args)
    };
    assert_eq!(
        ends("var-log-audit.mount").ok().json()["findings"],
        json!([])
    );
    let found = ends("var-log.mount").exits(1).json()["findings"].to_string();
    for words in [
        "\"units\"",
        "inhibitor",
        "local-fs.target requires var-log.mount: the next boot ends in emergency mode",
        "the unit has to be named var-log-audit.mount",
    ] {
        assert!(found.contains(words), "{found}");
    }
    lab.node.write("etc/systemd/system/var-log.mount", text);
    assert_eq!(lab.short(), ["units warning var-log.mount"]);
    lab.node.link(
        "etc/systemd/system/local-fs.target.requires/var-log.mount",
        "/etc/systemd/system/var-log.mount",
    );
    assert_eq!(lab.short(), ["units inhibitor var-log.mount"]);
}

#[test]
fn an_image_that_cannot_be_meant_is_an_error_with_a_way_out() {
    let lab = Lab::healthy();
    let docker = TestRoot::empty();
    docker.write("manifest.json", r#"[{"Config": "c", "Layers": ["l"]}]"#);
    let docker = docker.dir().to_str().unwrap();
    for (args, words) in [
        (&["quay.example/os@sha256:1111"][..], "64 hex digits"),
        (
            &["--os-from", docker],
            "skopeo copy --all --preserve-digests",
        ),
        (
            &["--os-from", "/nonexistent"],
            "check whether the medium is mounted",
        ),
        (&["/nonexistent"], "there is no such file"),
        (&[], "preflight --os-from PATH"),
    ] {
        let args: Vec<&str> = ["preflight"].iter().chain(args).copied().collect();
        let said = flat_run(&lab.node.run(&args).exits(1));
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn a_target_that_is_not_an_image_is_an_error() {
    let lab = Lab::healthy();
    fs::remove_dir_all(lab.target.path("usr")).unwrap();
    let target = lab.target.dir().to_str().unwrap();
    let run = lab.node.run(&["preflight", "--os-from", target]).exits(1);
    assert!(
        flat_run(&run).contains("holds no image"),
        "{}",
        flat_run(&run)
    );
}
