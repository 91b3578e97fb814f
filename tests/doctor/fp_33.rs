//! FP-33: nobody can log in.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use super::small::{self, directory, recorded};
use super::{Dark, answer, carry_out, doctor, found, of, says, unseen};
use crate::support::{Lacks, PROGRAM, Run, TestRoot, is_root, skip};
use serde_json::{Value, json};

pub(super) const DARK: &[Dark] = &[("FP-33", "keys and passwords", |root| {
    directory(root, "home/core/.ssh/authorized_keys");
})];

const WHOLE_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a\n";

#[test]
fn a_node_that_nobody_can_log_in_to_is_critical() {
    let root = small::node();
    root.chmod("home/core/.ssh", 0o777);
    let text = found(&doctor(&root), "FP-33", "critical");
    says(
        &text,
        &["/home/core/.ssh has mode 0777", "Permission denied"],
    );
    // A password is a way in at the console.
    root.write("etc/shadow", "core:$6$salt$hash:19000:0:99999:7:::\n");
    let seen = doctor(&root);
    found(&seen, "FP-33", "warning");
    assert!(!seen.to_string().contains("$6$"), "{seen:#}");
    root.chmod("home/core/.ssh", 0o700);
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.write(
        "etc/ssh/sshd_config.d/10-x.conf",
        "PubkeyAuthentication no\n",
    );
    says(&found(&doctor(&root), "FP-33", "warning"), &["10-x.conf"]);
}

#[test]
fn keys_of_somebody_else_are_refused_and_given_back_by_the_command() {
    if !is_root() {
        return skip(Lacks::Root, "giving files to others needs root");
    }
    let root = small::node();
    let keys = "home/core/.ssh/authorized_keys.d/ignition";
    std::os::unix::fs::chown(root.path(keys), Some(4242), None).unwrap();
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-33", "critical"),
        &["belongs to user 4242"],
    );
    carry_out(&seen, "FP-33", 0);
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}

#[test]
fn keys_that_are_gone_are_missed_only_where_the_config_gives_some() {
    let root = small::node();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    says(
        &found(&doctor(&root), "FP-33", "critical"),
        &[
            "gives 1 key to core",
            "mco-rescue apply",
            "mco-rescue apply --key FILE --root ",
        ],
    );
    root.run(&["apply", "--yes"]).ok();
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    recorded(&root, |spec| {
        spec["config"]["passwd"] = json!({"users": []})
    });
    found(&doctor(&root), "FP-33", "notice");
}

#[test]
fn without_a_record_nothing_is_said_of_what_it_gives() {
    let root = small::node();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    root.remove("etc/machine-config-daemon/currentconfig");
    // A system that no config has reached yet is meant to be closed.
    let unit = "etc/systemd/system/kubelet.service";
    if root.exists(unit) {
        root.remove(unit);
    }
    let text = found(&doctor(&root), "FP-33", "notice");
    assert!(!text.contains("gives 0 keys"), "{text}");
    root.write(unit, "[Service]\nExecStart=/usr/bin/kubelet\n");
    let text = found(&doctor(&root), "FP-33", "warning");
    says(
        &text,
        &[
            "there is none, so what core is meant to have is not known",
            "apply CONFIG",
        ],
    );
    assert!(!text.contains("gives 0 keys"), "{text}");
    // A password is a way in, and may be all that was meant.
    root.write("etc/shadow", "core:$6$salt$hash:19000:0:99999:7:::\n");
    found(&doctor(&root), "FP-33", "notice");
    root.write("etc/shadow", "core:\\$6\\$salt\\$hash:19000:0:99999:7:::\n");
    found(&doctor(&root), "FP-33", "warning");
    // One that cannot be read is not taken for one without keys.
    root.write("etc/machine-config-daemon/currentconfig", "{");
    let text = found(&doctor(&root), "FP-33", "warning");
    says(
        &text,
        &["it cannot be read, so what it gives to core is not known"],
    );
}

#[test]
fn a_shadow_file_that_is_missing_is_not_called_unreadable() {
    let root = small::node();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    root.remove("etc/shadow");
    let seen = doctor(&root);
    let text = found(&seen, "FP-33", "critical");
    says(
        &text,
        &[
            "no login works: no valid key, no password",
            "/etc/shadow",
            "is missing",
        ],
    );
    let unseen = unseen(&seen, "FP-33");
    assert!(!unseen.contains("shadow"), "{unseen}");
    // Without any account nothing is known of passwords.
    root.remove("etc/passwd");
    let seen = doctor(&root);
    says(
        &super::unseen(&seen, "FP-33"),
        &["passwords: /etc/shadow is missing"],
    );
}

#[test]
fn a_file_with_keys_that_sshd_refuses_beside_one_that_it_takes_is_a_warning() {
    let root = small::node();
    let keys = "home/core/.ssh/authorized_keys";
    root.write(
        keys,
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO b\n",
    );
    std::os::unix::fs::chown(root.path(keys), Some(root.core().0), Some(root.core().1)).unwrap();
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.chmod(keys, 0o666);
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-33", "warning"),
        &[
            "sshd ignores a file with keys",
            "authorized_keys has mode 0666",
            "chmod -R go-w",
        ],
    );
    carry_out(&seen, "FP-33", 0);
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}

#[test]
fn lines_that_sshd_cannot_read_are_no_keys() {
    let root = small::node();
    let keys = "home/core/.ssh/authorized_keys.d/ignition";
    let broken = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUP cut\n";
    root.write(keys, &broken.repeat(2));
    says(
        &found(&doctor(&root), "FP-33", "critical"),
        &[
            "no login works",
            "no key: sshd cannot read 2 lines",
            "gives 1 key to core",
        ],
    );
    let whole = root.read(keys) + "from=\"192.0.2.1\" " + WHOLE_KEY;
    root.write(keys, &whole);
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}

#[test]
fn passwords_that_only_root_may_see_are_not_taken_for_none() {
    if !is_root() {
        return skip(Lacks::Root, "keeping something from oneself needs root");
    }
    let root = small::node();
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    for directory in ["", "home/core/.ssh", "home/core/.ssh/authorized_keys.d"] {
        root.chmod(directory, 0o755);
    }
    let mut command = root.command(&["doctor", "--output", "json"]);
    let Ok(output) = command.uid(65534).stdin(Stdio::null()).output() else {
        return skip(
            Lacks::Machine,
            &format!("{PROGRAM} is where nobody may run it"),
        );
    };
    let seen = answer(&Run::of(output));
    says(
        &found(&seen, "FP-33", "warning"),
        &["no login works over ssh"],
    );
    says(&unseen(&seen, "FP-33"), &["/etc/shadow cannot be read"]);
}

#[test]
fn of_very_many_files_with_keys_the_rest_is_not_judged() {
    let root = small::node();
    for at in 0..1200 {
        let path = format!("home/core/.ssh/authorized_keys.d/k{at}");
        root.write(
            &path,
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO me\n",
        );
        if is_root() {
            let (uid, gid) = root.core();
            std::os::unix::fs::chown(root.path(&path), Some(uid), Some(gid)).unwrap();
        }
    }
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-33"), Vec::<Value>::new());
    let text = seen.to_string();
    assert!(
        text.contains("more files in /home/core/.ssh/authorized_keys.d"),
        "{text}"
    );
}

/// The drop-in of the OS, its program, and the main file.
fn settings_of_the_os(root: &TestRoot) {
    root.write(
        "etc/ssh/sshd_config",
        "Include /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile .ssh/authorized_keys\n",
    );
    root.write(
        "etc/ssh/sshd_config.d/40-ssh-key-dir.conf",
        "AuthorizedKeysCommand /usr/libexec/ssh-key-dir %u\nAuthorizedKeysCommandUser root\n",
    );
    root.write("usr/libexec/ssh-key-dir", "#!/bin/sh\n");
    root.chmod("usr/libexec/ssh-key-dir", 0o755);
}

const OWN: &str = "etc/ssh/sshd_config.d/10-own.conf";

#[test]
fn settings_that_keep_core_out_are_named_with_their_line() {
    if !is_root() {
        return skip(Lacks::Root, "sshd's program has to belong to root");
    }
    for (path, text, words) in [
        (
            "etc/ssh/sshd_config",
            "PermitRootLogin no\n",
            "no AuthorizedKeysCommand names ssh-key-dir",
        ),
        (
            OWN,
            "AuthorizedKeysCommand none\n",
            "10-own.conf:1: AuthorizedKeysCommand none",
        ),
        (OWN, "# who\nAllowUsers auditor\n", "10-own.conf:2"),
        (OWN, "DenyGroups wheel\n", "DenyGroups wheel"),
        (
            OWN,
            "Match User core\nPubkeyAuthentication no\n",
            "PubkeyAuthentication no",
        ),
        (
            OWN,
            "PermitRootLogn no\n",
            "Bad configuration option: PermitRootLogn",
        ),
        (
            OWN,
            "Match User x\nUsePAM no\n",
            "not allowed within a Match block",
        ),
        ("etc/nologin", "\n", "only root may log in"),
    ] {
        let root = small::node();
        settings_of_the_os(&root);
        assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
        root.write(path, text);
        says(&found(&doctor(&root), "FP-33", "critical"), &[words]);
        // A password is a way in at the console.
        root.write("etc/shadow", "core:$6$salt$hash:19000:0:99999:7:::\n");
        root.write(
            "etc/ssh/sshd_config.d/11-own.conf",
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        );
        found(&doctor(&root), "FP-33", "warning");
    }
    let root = small::node();
    settings_of_the_os(&root);
    root.link("etc/systemd/system/sshd.service", "/dev/null");
    let seen = doctor(&root);
    says(&found(&seen, "FP-33", "critical"), &["masked"]);
    carry_out(&seen, "FP-33", 0);
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}

#[test]
fn settings_that_depend_on_the_connection_are_not_judged() {
    if !is_root() {
        return skip(Lacks::Root, "sshd's program has to belong to root");
    }
    for text in [
        "Match Address 192.0.2.0/24\nDenyUsers core\n",
        "AllowUsers core@192.0.2.*\n",
        "Match LocalPort 2222\nPubkeyAuthentication no\n",
    ] {
        let root = small::node();
        settings_of_the_os(&root);
        root.write(OWN, text);
        let seen = doctor(&root);
        assert_eq!(of(&seen, "FP-33"), Vec::<Value>::new(), "{text}");
        says(
            &unseen(&seen, "FP-33"),
            &["if sshd lets core in: /etc/ssh/sshd_config.d/10-own.conf"],
        );
    }
}

#[test]
fn keys_of_any_other_file_that_sshd_reads_are_keys() {
    if !is_root() {
        return skip(Lacks::Root, "sshd's program has to belong to root");
    }
    let root = small::node();
    settings_of_the_os(&root);
    root.remove("home/core/.ssh/authorized_keys.d/ignition");
    root.write(OWN, "AuthorizedKeysFile /etc/ssh/keys/%u\n");
    found(&doctor(&root), "FP-33", "critical");
    root.write(
        "etc/ssh/keys/core",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO a\n",
    );
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.chmod("etc/ssh/keys/core", 0o600);
    says(
        &found(&doctor(&root), "FP-33", "critical"),
        &["/etc/ssh/keys/core belongs to user 0 with mode 0600"],
    );
    // Newer versions of CoreOS name the directory itself.
    let root = small::node();
    settings_of_the_os(&root);
    root.remove("etc/ssh/sshd_config.d/40-ssh-key-dir.conf");
    root.write(
        "etc/ssh/sshd_config.d/40-authorized-keys-file.conf",
        "AuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/*\n",
    );
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
    root.write(OWN, "AuthorizedKeysFile .ssh/authorized_keys\n");
    says(
        &found(&doctor(&root), "FP-33", "critical"),
        &["sshd does not read it"],
    );
    root.remove(OWN);
    // Its sshd is an older one, which takes no patterns.
    root.write("usr/sbin/sshd", "\u{7f}ELF OpenSSH_8.7p1, OpenSSL");
    found(&doctor(&root), "FP-33", "critical");
    root.write("usr/sbin/sshd", "\u{7f}ELF OpenSSH_10.0p1, OpenSSL");
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}

#[test]
fn keys_that_core_cannot_read_are_no_keys() {
    if !is_root() {
        return skip(Lacks::Root, "giving files to others needs root");
    }
    let root = small::node();
    for path in [
        "home/core/.ssh",
        "home/core/.ssh/authorized_keys.d",
        "home/core/.ssh/authorized_keys.d/ignition",
    ] {
        std::os::unix::fs::chown(root.path(path), Some(0), Some(0)).unwrap();
    }
    let seen = doctor(&root);
    says(
        &found(&seen, "FP-33", "critical"),
        &[
            "authorized_keys.d/ignition belongs to user 0 with mode 0600: closed to the user who logs in",
        ],
    );
    carry_out(&seen, "FP-33", 0);
    assert_eq!(of(&doctor(&root), "FP-33"), Vec::<Value>::new());
}
