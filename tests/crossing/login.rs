//! Does sshd of the image still let core in, and can the users of the image be made?

use std::os::unix::fs::{PermissionsExt, chown};

use super::Lab;
use crate::support::{Lacks, is_root, skip};

const MAIN: &str =
    "Include /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile .ssh/authorized_keys\n";
const DROP_IN: &str =
    "AuthorizedKeysCommand /usr/libexec/ssh-key-dir %u\nAuthorizedKeysCommandUser root\n";

/// A node and an image with the settings of CoreOS, and a key of core.
fn lab() -> Lab {
    let lab = Lab::healthy();
    for (root, below) in [
        (&lab.node, "etc"),
        (&lab.node, "usr/etc"),
        (&lab.target, "usr/etc"),
    ] {
        root.write(&format!("{below}/ssh/sshd_config"), MAIN);
        root.write(
            &format!("{below}/ssh/sshd_config.d/40-ssh-key-dir.conf"),
            DROP_IN,
        );
    }
    for root in [&lab.node, &lab.target] {
        root.write("usr/libexec/ssh-key-dir", "#!/bin/sh\n");
        std::fs::set_permissions(
            root.path("usr/libexec/ssh-key-dir"),
            PermissionsExt::from_mode(0o755),
        )
        .unwrap();
    }
    lab.node.write(
        "home/core/.ssh/authorized_keys.d/ignition",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a\n",
    );
    for path in ["", "/authorized_keys.d", "/authorized_keys.d/ignition"] {
        chown(
            lab.node.path(&format!("home/core/.ssh{path}")),
            Some(1000),
            Some(1000),
        )
        .unwrap();
    }
    lab
}

#[test]
fn settings_of_the_node_that_stay_over_an_image_are_judged_with_those_of_the_image() {
    if !is_root() {
        return skip(Lacks::Root, "sshd's program has to belong to root");
    }
    let nothing = Vec::<String>::new();
    let lab = lab();
    assert_eq!(lab.short(), nothing);
    // The image has another drop-in: what the node did not change becomes that of the image.
    lab.target
        .remove("usr/etc/ssh/sshd_config.d/40-ssh-key-dir.conf");
    lab.target.write(
        "usr/etc/ssh/sshd_config.d/40-authorized-keys-file.conf",
        "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/*\n",
    );
    assert_eq!(lab.short(), nothing);
    // A file of the node that is read before it says otherwise.
    lab.node.write(
        "etc/ssh/sshd_config.d/10-own.conf",
        "AuthorizedKeysFile .ssh/authorized_keys\n",
    );
    assert_eq!(lab.short(), ["login inhibitor sshd"]);
    assert!(lab.findings()[0].text.contains("10-own.conf:1"));
}

#[test]
fn a_main_file_of_a_config_without_include_keeps_the_settings_of_the_image_out() {
    if !is_root() {
        return skip(Lacks::Root, "sshd's program has to belong to root");
    }
    // As on a node of EL 8: sshd reads the usual file, and its own sshd_config has no drop-ins.
    let lab = lab();
    lab.node.write("etc/ssh/sshd_config", "PermitRootLogin no\nAuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/ignition\n");
    assert_eq!(lab.short(), Vec::<String>::new());
    let other = self::lab();
    other.node.write(
        "etc/ssh/sshd_config",
        &format!("{DROP_IN}PermitRootLogin no\n"),
    );
    assert_eq!(other.short(), Vec::<String>::new());
    other.target.remove("usr/libexec/ssh-key-dir");
    assert_eq!(other.short(), ["login inhibitor sshd"]);
    assert!(
        other.findings()[0]
            .text
            .contains("/usr/libexec/ssh-key-dir is missing")
    );
    other
        .node
        .write("etc/shadow", "core:$6$salt$hash:19000:0:99999:7:::\n");
    other.node.write(
        "etc/ssh/sshd_config",
        &format!("{DROP_IN}PasswordAuthentication no\nKbdInteractiveAuthentication no\n"),
    );
    assert_eq!(other.short(), ["login warning sshd"]);
}

#[test]
fn keys_of_the_host_that_a_group_reads_are_of_no_use_for_a_newer_sshd() {
    if !is_root() {
        return skip(Lacks::Root, "sshd's program has to belong to root");
    }
    let lab = lab();
    lab.node.write(
        "etc/group",
        "root:x:0:\nssh_keys:x:999:\ncore:x:1000:\nwheel:x:10:core\n",
    );
    let key = "etc/ssh/ssh_host_ed25519_key";
    lab.node.write(key, "key\n");
    lab.node.chmod(key, 0o640);
    chown(lab.node.path(key), Some(0), Some(999)).unwrap();
    assert_eq!(lab.short(), ["login inhibitor keys of the host"]);
    assert!(
        lab.findings()[0]
            .text
            .contains("chmod 0600 /etc/ssh/ssh_host_ed25519_key")
    );
    lab.target.write(
        "usr/lib/systemd/system/ssh-host-keys-migration.service",
        "[Service]\n",
    );
    assert_eq!(lab.short(), Vec::<String>::new());
    lab.node.write("var/lib/.ssh-host-keys-migration", "");
    assert_eq!(lab.short(), ["login inhibitor keys of the host"]);
    lab.node.chmod(key, 0o600);
    assert_eq!(lab.short(), Vec::<String>::new());
}

#[test]
fn a_line_of_gshadow_that_stops_the_users_of_the_image_is_named() {
    let lab = Lab::healthy();
    lab.target.write(
        "usr/lib/sysusers.d/ovs.conf",
        "u openvswitch - \"Open vSwitch\" /\ng hugetlbfs -\n",
    );
    lab.node.write("etc/gshadow", "root:::\nwheel:::core\n");
    assert_eq!(lab.short(), Vec::<String>::new());
    lab.node.write("etc/gshadow", "root:::\nhugetlbfs:!::\n");
    assert_eq!(lab.short(), ["accounts warning accounts"]);
    let text = &lab.findings()[0].text;
    assert!(
        text.contains("such as openvswitch")
            && text.contains("sed -i '/^hugetlbfs:/d' /etc/gshadow"),
        "{text}"
    );
    // The image has the accounts itself.
    lab.target
        .write("usr/lib/group", "hugetlbfs:x:802:\nopenvswitch:x:801:\n");
    assert_eq!(lab.short(), Vec::<String>::new());
}
