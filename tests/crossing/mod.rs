//! Crossings: a node, an image that it is to run, and `preflight` between them.
//!
//! [`Lab::healthy`] is a node and an image on which `preflight` finds nothing. Each test breaks one thing of it, and expects
//! exactly the finding of that breakage.

mod container_runtime;
mod identity;
mod kernel_arguments;

use std::fs;

use serde_json::Value;

use crate::support::{TestRoot, flat_run};

/// Version of the target's kernel.
pub const KERNEL: &str = "6.12.0-55.el10.x86_64";

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
    /// The whole finding as JSON, to look for words.
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
        lab.add_boot();
        lab.add_runtime();
        lab
    }

    /// `/boot` of the node: one entry, and its kernel.
    fn add_boot(&self) {
        self.node.link("boot/loader", "loader.1");
        self.write_entry("rw root=UUID=1");
        for name in ["vmlinuz-5.14", "initramfs-5.14.img"] {
            self.node
                .write(&format!("boot/ostree/rhcos-aa/{name}"), name);
        }
    }

    /// CRI-O's configuration as the daemon writes it, and the runtime in the image.
    fn add_runtime(&self) {
        self.node.write(
            "etc/crio/crio.conf.d/00-default",
            "[crio]\n[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.runc]\nruntime_path = \"\"\n\
             [crio.runtime.runtimes.crun]\nruntime_path = \"\"\n",
        );
        for name in ["crio", "crun", "kubelet"] {
            self.target.write(&format!("usr/bin/{name}"), name);
        }
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
        let target = self.target.dir().to_str().unwrap();
        let args = ["preflight", "--output", "json", "--os-from", target];
        let document = self.node.run(&args).json();
        let all = document["findings"].as_array().unwrap().iter();
        let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        all.map(|one| Finding {
            check: text(one, "check"),
            severity: text(one, "severity"),
            subject: text(one, "subject"),
            text: one.to_string(),
        })
        .collect()
    }

    /// The findings in short: check, severity and subject.
    pub fn short(&self) -> Vec<String> {
        let all = self.findings().into_iter();
        all.map(|one| format!("{} {} {}", one.check, one.severity, one.subject))
            .collect()
    }
}

#[test]
fn nothing_is_found_on_a_healthy_node() {
    assert_eq!(Lab::healthy().short(), Vec::<String>::new());
}

#[test]
fn a_target_that_is_no_image_is_an_error() {
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
