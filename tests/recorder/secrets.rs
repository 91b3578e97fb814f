//! No stored byte tells a secret.

use std::fs;
use std::io::Read;
use std::path::PathBuf;

use super::{ON_BOOT, STORE, boots, end_of_boot, files, node};
use crate::support::TestRoot;
use sha2::{Digest, Sha256};

/// Stands in every secret.
const CANARY: &str = "CanaryOfTheRecorder";
/// A short secret, which a plain digest would give away.
const SHORT: &str = "hunter2\n";

/// Everything that is stored, unpacked as well as it is.
fn stored(root: &TestRoot) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for directory in [STORE, ON_BOOT] {
        for name in files(root, directory, "") {
            let path = root.path(&format!("{directory}/{name}"));
            let bytes = fs::read(&path).unwrap();
            if name.starts_with("part-") {
                let mut text = Vec::new();
                let mut decoder = flate2::read::ZlibDecoder::new(bytes.as_slice());
                decoder.read_to_end(&mut text).unwrap();
                all.push((path.clone(), text));
            }
            all.push((path, bytes));
        }
    }
    all
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn with_secrets() -> TestRoot {
    let root = node();
    for (path, mode, text) in [
        (
            "etc/shadow",
            0o600,
            format!("core:$6$salt${CANARY}:1:0:99999:7:::\n"),
        ),
        ("etc/gshadow", 0o600, format!("core:{CANARY}::\n")),
        (
            "etc/kubernetes/kubeconfig",
            0o600,
            format!("users:\n- user:\n    token: {CANARY}\n"),
        ),
        (
            "etc/ssh/ssh_host_ed25519_key",
            0o600,
            format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{CANARY}\n"),
        ),
        (
            "etc/NetworkManager/system-connections/wifi.nmconnection",
            0o600,
            format!("[wifi-security]\npsk={CANARY}\n"),
        ),
        // Careless, and on the list.
        ("etc/careless.conf", 0o644, format!("password = {CANARY}\n")),
        (
            "etc/careless-url",
            0o644,
            format!("http://user:{CANARY}@proxy.example\n"),
        ),
        ("etc/pin", 0o600, SHORT.to_owned()),
        (
            "boot/grub2/user.cfg",
            0o600,
            format!("GRUB2_PASSWORD=grub.pbkdf2.sha512.10000.{CANARY}\n"),
        ),
        (
            "boot/grub2/grubenv",
            0o644,
            format!("root_password={CANARY}\nproxy=http://u:{CANARY}@a\n"),
        ),
    ] {
        root.write(path, &text);
        root.chmod(path, mode);
    }
    root.write(
        "proc/cmdline",
        &format!("root=UUID=1 rd.iscsi.password={CANARY} ip=dhcp proxy=http://u:{CANARY}@proxy.example:3128 token={CANARY}\n"),
    );
    root.write(
        "boot/loader/entries/ostree-1.conf",
        &format!(
            "title a\nversion 1\nlinux /v\noptions root=UUID=1 rd.iscsi.in.password={CANARY}\n"
        ),
    );
    root.write(
        "etc/mco-rescue/recorder-copies",
        "/etc/shadow\n/etc/kubernetes/kubeconfig\n/etc/careless.conf\n/etc/careless-url\n/etc/pin\n/etc/ssh/ssh_host_ed25519_key\n/var/lib/kubelet/config.json\n/etc/../etc/shadow\n/etc/fstab\n",
    );
    root
}

#[test]
fn no_secret_is_in_any_stored_byte() {
    let root = with_secrets();
    let said = end_of_boot(&root);
    // Each that was refused is told, without its contents.
    assert_eq!(said["notes"].as_array().unwrap().len(), 8, "{said:#}");
    root.write("etc/pin", "hunter3\n");
    root.chmod("etc/pin", 0o600);
    boots(&root, "boot-2");
    end_of_boot(&root);
    let all = stored(&root);
    assert!(all.len() > 12);
    for (path, bytes) in &all {
        let text = String::from_utf8_lossy(bytes);
        assert!(!contains(bytes, CANARY.as_bytes()), "{path:?}: {text}");
        assert!(!contains(bytes, b"hunter"), "{path:?}");
    }
    // The file without a secret is copied.
    assert!(
        all.iter()
            .any(|(_, bytes)| contains(bytes, b"UUID=1 / xfs"))
    );
    for args in [&["history"][..], &["diff", "1", "2"], &["diff"]] {
        let run = root.run(args);
        assert!(!(run.out() + &run.err()).contains(CANARY), "{args:?}");
    }
}

#[test]
fn a_digest_cannot_be_made_without_the_key() {
    let one = with_secrets();
    end_of_boot(&one);
    let other = with_secrets();
    end_of_boot(&other);
    let digest = |root: &TestRoot| {
        let all = stored(root);
        let text = all.iter().find_map(|(_, bytes)| {
            let text = std::str::from_utf8(bytes).ok()?;
            let (_, rest) = text.split_once("\"/etc/pin\":\"0600 8 bytes #")?;
            Some(rest.split('"').next().unwrap().to_owned())
        });
        text.unwrap()
    };
    // The same file has another digest on another node.
    assert_ne!(digest(&one), digest(&other));
    let plain = Sha256::digest(SHORT.as_bytes());
    let hex: String = plain.iter().map(|byte| format!("{byte:02x}")).collect();
    use base64::Engine;
    let base64 = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(plain);
    for (path, bytes) in stored(&one) {
        for form in [
            hex.as_bytes().get(..8).unwrap(),
            base64.as_bytes().get(..6).unwrap(),
            &plain[..6],
        ] {
            assert!(!contains(&bytes, form), "{path:?}");
        }
    }
    // The key is for root alone, and only on the node itself.
    assert_eq!(one.mode(&format!("{STORE}/key")), 0o600);
    let key = one.read(&format!("{STORE}/key"));
    assert_eq!(key.trim().len(), 64);
    assert_ne!(key, other.read(&format!("{STORE}/key")));
    for name in files(&one, ON_BOOT, "") {
        let bytes = fs::read(one.path(&format!("{ON_BOOT}/{name}"))).unwrap();
        assert!(!contains(&bytes, key.trim().as_bytes()), "{name}");
    }
}
