//! What is read of bootc. There is no bootc on this machine: the documents are constructed from its schema, ours in
//! `tests/fixtures/bootc`, and more beside the checkout.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::shared_data;
use mco_rescue::node::command::bootc::{BootcError, BootcStatus};
use mco_rescue::node::command::origin::OriginFile;
use mco_rescue::node::command::rpm_ostree::status::Deployments;

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bootc");
    fixtures.join(name).with_extension("json")
}

fn status(path: &Path) -> BootcStatus {
    let text = fs::read_to_string(path).unwrap();
    BootcStatus::read(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn deployments(path: &Path) -> Deployments {
    status(path).to_deployments(&|_| None)
}

/// Returns true if the running system uses bootc's composefs backend, and is therefore not an OSTree system.
fn is_composefs(status: &BootcStatus) -> bool {
    let booted = status.booted.as_ref();
    booted.is_some_and(|one| one.ostree.is_none() && one.composefs.is_some())
}

/// A letter for each deployment in its order: staged, booted, locked, pinned.
fn flags(all: &Deployments) -> Vec<String> {
    let row = |one: &mco_rescue::node::command::rpm_ostree::status::Deployment| {
        let all = [
            (one.staged, 's'),
            (one.booted, 'b'),
            (one.finalization_locked, 'l'),
            (one.pinned, 'p'),
        ];
        let letters = all.iter().filter(|(is, _)| *is).map(|(_, letter)| *letter);
        letters.collect::<String>()
    };
    all.all.iter().map(row).collect()
}

#[test]
fn deployments_stand_in_the_order_of_the_boot_menu() {
    let rows: [(&str, &[&str], &[&str]); 8] = [
        (
            "staged",
            &["s", "b", "p", ""],
            &["b.0", "a.0", "c.0", "d.2"],
        ),
        ("locked", &["sl", "b"], &["b.0", "a.0"]),
        ("layered", &["b", ""], &["a.0", "c.0"]),
        ("rollback-queued", &["", "b"], &["c.0", "a.0"]),
        ("signed", &["s", "b", ""], &["b.0", "a.0", "c.0"]),
        ("old-keys", &["s", "b"], &["b.0", "a.0"]),
        ("composefs", &[], &[]),
        ("not-booted", &[], &[]),
    ];
    for (name, wanted, names) in rows {
        let all = deployments(&fixture(name));
        assert_eq!(flags(&all), wanted, "{name}");
        let short = |text: String| format!("{}{}", &text[..1], &text[64..]);
        let found: Vec<String> = all.all.iter().map(|one| short(one.name())).collect();
        assert_eq!(found, names, "{name}");
    }
    let queued = deployments(&fixture("rollback-queued"));
    assert!(!queued.next_boot().unwrap().booted);
    assert_eq!(queued.cached_update.as_deref(), Some("10.2.1"));
    let staged = deployments(&fixture("staged"));
    assert_eq!(staged.all[3].osname, "rhcos_4.18");
    assert_eq!(staged.rollback().unwrap().index, 2);
    let old = status(&fixture("old-keys"));
    assert_eq!(old.staged.unwrap().soft_reboot_capable, None);
    assert!(is_composefs(&status(&fixture("composefs"))));
    assert!(!is_composefs(&status(&fixture("not-booted"))));
}

#[test]
fn a_reference_is_the_one_that_an_origin_file_has() {
    let all = deployments(&fixture("signed")).all;
    let references: Vec<&str> = all
        .iter()
        .filter_map(|one| one.reference.as_deref())
        .collect();
    let digest = |digit: &str| digit.repeat(64);
    assert_eq!(
        references,
        [
            "ostree-remote-image:site:oci:/mnt/os".to_owned(),
            format!(
                "ostree-image-signed:docker://quay.example/os@sha256:{}",
                digest("1")
            ),
            format!(
                "ostree-unverified-registry:quay.example/os@sha256:{}",
                digest("3")
            ),
        ]
    );
    assert_eq!(
        all[1].image(),
        format!("quay.example/os@sha256:{}", digest("1"))
    );
    assert_eq!(all[1].unlocked, "development");
}

#[test]
fn of_a_layered_node_the_origin_file_decides() {
    let status = status(&fixture("layered"));
    assert!(status.booted.as_ref().unwrap().incompatible);
    let blind = status.to_deployments(&|_| None);
    assert_eq!(blind.all[0].image(), "", "bootc knows no image of it");
    let text = "[origin]\ncontainer-image-reference=ostree-unverified-registry:quay.example/os@sha256:9\n\
        [packages]\nrequested=usbguard;\n[overrides]\nremove=kernel;\n";
    let seen = status.to_deployments(&|one| {
        (one.checksum.starts_with('a') && one.stateroot == "rhcos").then(|| OriginFile::parse(text))
    });
    let booted = seen.booted().unwrap();
    assert_eq!(booted.image(), "quay.example/os@sha256:9");
    assert_eq!(booted.requested_packages, ["usbguard"]);
    assert!(booted.is_layered());
}

#[test]
fn bad_input_is_a_clear_error() {
    for (text, words) in [
        ("", "EOF"),
        ("error: x", "expected value"),
        ("{}", "missing field `apiVersion`"),
        (
            r#"{"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "status": {"booted": {"ostree": {"stateroot": "a", "checksum": 1}}}}"#,
            "status.booted.ostree.checksum",
        ),
        (
            r#"{"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost"} x"#,
            "trailing",
        ),
        (
            r#"{"apiVersion": "org.containers.bootc/v2", "kind": "BootcHost"}"#,
            "(org.containers.bootc/v2)",
        ),
        (r#"{"apiVersion": "v1", "kind": "Node"}"#, "Node (v1)"),
    ] {
        let error = BootcStatus::read(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        assert!(
            error.contains("bootc status --json --format-version 1"),
            "{error}"
        );
    }
    assert!(matches!(
        BootcStatus::read(r#"{"apiVersion": "v1", "kind": "Node"}"#),
        Err(BootcError::OtherDocument { .. })
    ));
    // All that is needed of it may be missing.
    let bare = r#"{"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost"}"#;
    assert_eq!(BootcStatus::read(bare), Ok(BootcStatus::default()));
}

#[test]
fn every_document_beside_the_checkout_is_read() {
    let Some(directory) = shared_data("bootc") else {
        return;
    };
    let rows: [(&str, &[&str]); 14] = [
        ("booted", &["b", ""]),
        ("composefs", &[]),
        ("download-only", &["sl", "b", ""]),
        ("incompatible", &["b", ""]),
        ("incompatible-booted-staged-image", &["s", "b"]),
        ("not-booted", &[]),
        ("oci-directory", &["s", "b"]),
        ("pinned-other-stateroot", &["bp", "p", ""]),
        ("rollback-queued", &["", "b"]),
        ("signed", &["b"]),
        ("soft-reboot-capable", &["s", "b"]),
        ("staged", &["s", "b", ""]),
        ("staged-old-keys", &["s", "b", ""]),
        ("usr-overlay", &["b"]),
    ];
    let files = fs::read_dir(&directory).unwrap();
    let files = files.filter(|file| {
        let name = file.as_ref().unwrap().file_name();
        name.to_string_lossy().ends_with(".json")
    });
    assert_eq!(files.count(), rows.len(), "each document has a row");
    let mut wrong = Vec::new();
    for (name, wanted) in rows {
        let path = directory.join(name).with_extension("json");
        let found = flags(&deployments(&path));
        if found != wanted {
            wrong.push(format!("{name}: {found:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    let composefs = status(&directory.join("composefs.json"));
    assert!(is_composefs(&composefs));
    let layered = status(&directory.join("incompatible.json")).booted.unwrap();
    assert!(layered.incompatible && layered.image.is_none());
}
