//! Does an image have what a node needs to deploy it and to start it?

use super::forms::{Entry, oci_with, tar_of};
use super::{KERNEL, Lab, short_of};
use mco_rescue::node::images::manifest::go_architecture;

fn own(all: Vec<String>) -> Vec<String> {
    let own = all.into_iter().filter(|one| one.starts_with("bootable "));
    own.collect()
}

#[test]
fn an_image_without_a_kernel_with_two_or_without_an_init_is_an_inhibitor() {
    let kernel = format!("usr/lib/modules/{KERNEL}/vmlinuz");
    type Change<'a> = &'a dyn Fn(&Lab);
    let rows: [(&str, Change<'_>, &[&str], &str); 4] = [
        ("whole", &|_| {}, &[], ""),
        (
            "no kernel",
            &|lab| lab.target.remove(&kernel),
            &["bootable inhibitor kernel"],
            "Failed to find kernel in /usr/lib/modules",
        ),
        (
            "two kernels",
            &|lab| lab.target.write("usr/lib/modules/6.13/vmlinuz", ""),
            &["bootable inhibitor kernel"],
            "vmlinuz of 6.12.0-55.el10.x86_64, 6.13",
        ),
        (
            "no init",
            &|lab| lab.target.remove("usr/lib/systemd/systemd"),
            &["bootable inhibitor init"],
            "No /sbin/init, trying fallback",
        ),
    ];
    for (what, change, wanted, words) in rows {
        let lab = Lab::healthy();
        change(&lab);
        assert_eq!(own(lab.short()), wanted, "{what}");
        let all = lab.findings();
        let found = all.iter().find(|one| one.check == "bootable");
        assert_eq!(found.is_some(), !words.is_empty(), "{what}");
        if let Some(found) = found {
            assert!(found.text.contains(words), "{what}: {}", found.text);
        }
    }
    // Another init than systemd.
    let lab = Lab::healthy();
    lab.target.remove("usr/lib/systemd/systemd");
    lab.target.write("usr/sbin/init", "");
    assert_eq!(own(lab.short()), Vec::<String>::new());
}

#[test]
fn an_image_that_the_signature_policy_rejects_is_an_inhibitor() {
    let accepts = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    let rejects = r#"{"default": [{"type": "reject"}]}"#;
    let rows: [(Option<&str>, &[&str]); 4] = [
        (Some(accepts), &[]),
        (Some(rejects), &["image-fetch inhibitor fetching the image"]),
        (Some("{"), &["image-fetch inhibitor fetching the image"]),
        (None, &["image-fetch inhibitor fetching the image"]),
    ];
    for (policy, wanted) in rows {
        let lab = Lab::healthy();
        let path = "etc/containers/policy.json";
        match policy {
            Some(text) => lab.node.write(path, text),
            None if lab.node.exists(path) => lab.node.remove(path),
            None => {}
        }
        let dir = lab.node.dir().with_extension("oci");
        let layer = tar_of(&[Entry::File("usr/lib/systemd/systemd", b"")]);
        let architecture = go_architecture(std::env::consts::ARCH);
        oci_with(&dir, &[layer], &[("containers.bootc", "1")], architecture);
        let all = short_of(&lab.node, dir.to_str().unwrap());
        std::fs::remove_dir_all(&dir).unwrap();
        let fetch = all.into_iter().filter(|one| one.starts_with("image-fetch"));
        assert_eq!(fetch.collect::<Vec<_>>(), wanted, "{policy:?}");
    }
}

#[test]
fn an_image_without_a_label_of_an_os_image_is_an_inhibitor() {
    let lab = Lab::healthy();
    let kernel = format!("usr/lib/modules/{KERNEL}/vmlinuz");
    let release = lab.target.read("usr/lib/os-release");
    let layer = || {
        tar_of(&[
            Entry::File("usr/lib/os-release", release.as_bytes()),
            Entry::File("usr/lib/systemd/systemd", b""),
            Entry::File(&kernel, b""),
        ])
    };
    let rows = [
        (("ostree.bootable", "true"), None),
        (("containers.bootc", "1"), None),
        (("name", "ubi9"), Some("bootable inhibitor label")),
    ];
    for (label, wanted) in rows {
        let dir = lab.node.dir().with_extension("oci");
        let architecture = go_architecture(std::env::consts::ARCH);
        oci_with(&dir, &[layer()], &[label], architecture);
        let all = short_of(&lab.node, dir.to_str().unwrap());
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(own(all), Vec::from_iter(wanted), "{label:?}");
    }
}

/// `bootc switch` carries them over, and fails where it cannot parse them.
#[test]
fn kernel_arguments_that_an_image_brings_are_named_on_a_node_of_bootc() {
    let file = "usr/lib/bootc/kargs.d/10-site.toml";
    let rows: [(&str, &str, &str, &[&str]); 6] = [
        ("kargs = [\"quiet\"]\n", "kargs = [\"quiet\"]\n", "", &[]),
        (
            "kargs = [\"a=1\", \"both\"]\n",
            "kargs = [\"both\", \"b=1\"]\nmatch-architectures = [\"s390x\", \"x86_64\", \"aarch64\", \"powerpc64\"]\n",
            "warning",
            &["come: b=1", "go: a=1"],
        ),
        ("", "kargs = 1\n", "inhibitor", &["invalid type", file]),
        (
            "",
            "kargs = [\"a\"]\nextra = 1\n",
            "inhibitor",
            &["unknown field `extra`"],
        ),
        (
            "kargs = 1\n",
            "kargs = [\"b=1\"]\n",
            "unknown",
            &["invalid type", "come: b=1"],
        ),
        ("kargs = 1\n", "", "unknown", &["invalid type"]),
    ];
    for (running, new, severity, words) in rows {
        let lab = Lab::healthy();
        for (root, text) in [(&lab.node, running), (&lab.target, new)] {
            if !text.is_empty() {
                root.write(file, text);
            }
        }
        assert_eq!(
            lab.short(),
            Vec::<String>::new(),
            "rpm-ostree reads none of them"
        );
        lab.node.write("usr/bin/bootc", "");
        let found = lab.findings();
        let shown: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.check, one.severity))
            .collect();
        let wanted = match severity {
            "" => Vec::new(),
            severity => vec![format!("image-arguments {severity}")],
        };
        assert_eq!(shown, wanted, "{running}{new}");
        for words in words {
            assert!(found[0].text.contains(words), "{words}: {}", found[0].text);
        }
    }
}
