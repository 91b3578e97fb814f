//! Kernel modules and an initramfs that the image does not bring.

use super::Lab;
use super::hardware::{ALIASES, DEPENDENCIES, OWN_KERNEL};

#[test]
fn a_module_that_every_boot_loads_has_to_be_in_the_image() {
    let lab = Lab::healthy();
    lab.node.write(
        "etc/modules-load.d/a.conf",
        "# x\n; y\nigb\nvirtio-net\next4\nnvidia\n",
    );
    lab.node.write("etc/modules-load.d/b.txt", "other\n");
    assert_eq!(lab.short(), ["own-modules warning nvidia"]);
    assert!(
        lab.findings()[0]
            .text
            .contains("Failed to find module 'nvidia'")
    );
    // The node's own kernel does not have it either.
    let own = format!("usr/lib/modules/{OWN_KERNEL}");
    lab.node.write(&format!("{own}/modules.alias"), ALIASES);
    lab.node.write(&format!("{own}/modules.dep"), DEPENDENCIES);
    assert_eq!(lab.short(), Vec::<String>::new());
}

#[test]
fn modules_that_were_added_are_a_warning() {
    let lab = Lab::healthy();
    lab.node.write(
        &format!("usr/lib/modules/{OWN_KERNEL}/extra/gpu/nvidia.ko.xz"),
        "x",
    );
    lab.node
        .write(&format!("usr/lib/modules/{OWN_KERNEL}/extra/readme"), "x");
    assert_eq!(lab.short(), ["own-modules warning added modules"]);
    assert!(lab.findings()[0].text.contains("extra/gpu/nvidia.ko.xz"));
}

#[test]
fn an_initramfs_of_the_node_is_a_warning() {
    let lab = Lab::healthy();
    lab.write_origin("[rpmostree]\nregenerate-initramfs=true\n");
    assert_eq!(lab.short(), ["own-modules warning initramfs"]);
    assert!(
        lab.findings()[0]
            .text
            .contains("rpm-ostree initramfs --disable")
    );
}
