//! Media with OS images, as skopeo makes them and as they break on the way.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::mounts::{mount, with_mounts};
use crate::support::{Lacks, TestRoot, skip};
use flate2::Compression;
use flate2::write::GzEncoder;
use mco_rescue::host::root::Root;
use mco_rescue::node::command::rpm_ostree::cause::RpmOstreeError;
use mco_rescue::node::command::{CommandLine, CommandRunner, HostRunner};
use mco_rescue::node::images::manifest::go_architecture;
use mco_rescue::node::images::medium::{
    Address, AddressError, BlobRole, BlobState, BlobVerdict, MediumReport,
};
use mco_rescue::node::images::policy::SignaturePolicy;
use mco_rescue::node::images::pull::Trace;
use mco_rescue::node::images::{
    Digest, Form, ImageName, Medium, MediumCheck, MediumError, extensions, storage,
};
use serde_json::json;

/// An OCI directory with one image of two layers, made by hand.
struct Image {
    dir: tempfile::TempDir,
    manifest: Digest,
    layers: Vec<Digest>,
}

/// A file of an image of extensions.
const METADATA: &str = "usr/share/rpm-ostree/extensions/repodata/repomd.xml";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

impl Image {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("os/blobs/sha256")).unwrap();
        let mut image = Self {
            dir,
            manifest: Digest::of_bytes(b""),
            layers: Vec::new(),
        };
        image.manifest = image.make("amd64");
        image.write_index(&[image.descriptor(&image.manifest.clone(), MANIFEST, "amd64")]);
        fs::write(
            image.path("os/oci-layout"),
            r#"{"imageLayoutVersion": "1.0.0"}"#,
        )
        .unwrap();
        image
    }

    fn make(&mut self, machine: &str) -> Digest {
        let tars = [tar_of(METADATA, &[1; 4000]), tar_of(machine, &[2; 50])];
        let ids: Vec<String> = tars
            .iter()
            .map(|tar| Digest::of_bytes(tar).to_string())
            .collect();
        let config = json!({
            "architecture": machine, "os": "linux", "config": {"Labels": {"ostree.bootable": "true"}},
            "rootfs": {"type": "layers", "diff_ids": ids}, "history": [{"created_by": "a"}, {"created_by": "b"}],
        });
        let config = self.put(config.to_string().as_bytes());
        self.layers = tars.iter().map(|tar| self.put(&packed(tar))).collect();
        let part = |digest: &Digest, kind: &str| {
            let size = fs::metadata(self.blob(digest)).unwrap().len();
            json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest.to_string(), "size": size})
        };
        let layers: Vec<_> = self
            .layers
            .iter()
            .map(|layer| part(layer, "layer.v1.tar+gzip"))
            .collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": part(&config, "config.v1+json"), "layers": layers});
        self.put(manifest.to_string().as_bytes())
    }

    /// The config of a manifest names the machine that it is for; a list names several.
    fn architecture(&self, image: &Digest) -> Option<String> {
        Medium::open(&self.path("os"))
            .unwrap()
            .read_architecture(image)
    }

    /// Puts a list for two machines on top, as a release has it.
    fn with_list(self) -> (Self, Digest) {
        let (image, list, _) = self.with_list_for(&["arm64"]);
        (image, list)
    }

    /// The same for these machines too; also returns their manifests.
    fn with_list_for(mut self, machines: &[&str]) -> (Self, Digest, Vec<Digest>) {
        let others: Vec<Digest> = machines.iter().map(|one| self.make(one)).collect();
        let mut all = vec![self.descriptor(&self.manifest.clone(), MANIFEST, "amd64")];
        let pairs = others.iter().zip(machines);
        all.extend(pairs.map(|(digest, machine)| self.descriptor(digest, MANIFEST, machine)));
        let list = self.put(
            json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": all})
                .to_string()
                .as_bytes(),
        );
        let size = fs::metadata(self.blob(&list)).unwrap().len();
        self.write_index(&[json!({"mediaType": INDEX, "digest": list.to_string(), "size": size})]);
        (self, list, others)
    }

    fn descriptor(&self, digest: &Digest, kind: &str, machine: &str) -> serde_json::Value {
        let size = fs::metadata(self.blob(digest)).unwrap().len();
        json!({"mediaType": kind, "digest": digest.to_string(), "size": size, "platform": {"os": "linux", "architecture": machine}})
    }

    fn write_index(&self, manifests: &[serde_json::Value]) {
        let index = json!({"schemaVersion": 2, "manifests": manifests});
        fs::write(self.path("os/index.json"), index.to_string()).unwrap();
    }

    fn put(&self, bytes: &[u8]) -> Digest {
        let digest = Digest::of_bytes(bytes);
        fs::write(self.blob(&digest), bytes).unwrap();
        digest
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        self.path("os/blobs/sha256").join(digest.hex())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn examine(&self, wanted: &Digest) -> MediumReport {
        examine(&self.path("os"), wanted)
    }

    /// A copy that the real skopeo makes; `None` where there is no skopeo.
    fn copied(&self, transport: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
        let (from, to) = (
            format!("oci:{}", self.path("os").display()),
            self.path(name),
        );
        let output = Command::new("skopeo")
            .args(["--insecure-policy", "copy"])
            .args(options)
            .args([from, format!("{transport}:{}", to.display())])
            .output();
        let Ok(output) = output else {
            skip(
                Lacks::Setup,
                "skopeo is not installed; media that it makes are not compared",
            );
            return None;
        };
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Some(to)
    }
}

fn tar_of(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, name, content).unwrap();
    tar.into_inner().unwrap()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn examine(path: &Path, wanted: &Digest) -> MediumReport {
    let medium = Medium::open(path).unwrap();
    medium
        .check_image(wanted, "amd64", &mut MediumCheck::Digests(&mut |_| {}))
        .unwrap()
}

fn name(digest: &Digest) -> ImageName {
    ImageName::parse(&format!("quay.example/os@{digest}")).unwrap()
}

#[test]
fn a_whole_image_can_be_had_and_every_byte_of_it_is_counted() {
    let image = Image::new();
    let medium = Medium::open(&image.path("os")).unwrap();
    assert_eq!(medium.form, Form::OciDirectory);
    let mut read = 0;
    let report = medium
        .check_image(
            &image.manifest,
            "amd64",
            &mut MediumCheck::Digests(&mut |bytes| read += bytes),
        )
        .unwrap();
    assert_eq!(report.verdict, BlobVerdict::Exact(None));
    let roles: Vec<BlobRole> = report.blobs.iter().map(|blob| blob.role).collect();
    assert_eq!(
        roles,
        [
            BlobRole::Manifest,
            BlobRole::Config,
            BlobRole::Layer,
            BlobRole::Layer
        ]
    );
    let parts: u64 = report.blobs[1..].iter().map(|blob| blob.size).sum();
    assert_eq!(read, parts);
    assert_eq!(
        medium.list_images().unwrap().as_slice(),
        std::slice::from_ref(&image.manifest)
    );
    assert!(
        report
            .describe_verdict(&name(&image.manifest), &medium)
            .ends_with("whole")
    );
}

#[test]
fn what_is_missing_short_or_damaged_is_named() {
    let image = Image::new();
    let layer = image.blob(&image.layers[0]);
    let whole = fs::read(&layer).unwrap();
    let state = || {
        image
            .examine(&image.manifest)
            .bad_blobs()
            .next()
            .unwrap()
            .state
            .clone()
    };

    fs::write(&layer, &whole[..10]).unwrap();
    assert_eq!(state(), BlobState::Size(10));

    let mut other = whole.clone();
    *other.last_mut().unwrap() ^= 1;
    fs::write(&layer, &other).unwrap();
    assert_eq!(state(), BlobState::Differs(Digest::of_bytes(&other)));
    let medium = Medium::open(&image.path("os")).unwrap();
    let by_size = medium
        .check_image(&image.manifest, "amd64", &mut MediumCheck::Sizes)
        .unwrap();
    assert!(by_size.is_exact(), "sizes alone do not show it");

    fs::remove_file(&layer).unwrap();
    assert_eq!(state(), BlobState::Missing);
    let report = image.examine(&image.manifest);
    assert_eq!(report.verdict, BlobVerdict::Damaged);
    let words = report.describe_verdict(&name(&image.manifest), &medium);
    assert!(
        words.contains(&format!("layer {} is missing", image.layers[0])),
        "{words}"
    );
    assert!(
        words.contains("skopeo copy --all --preserve-digests docker://quay.example/os@sha256:"),
        "{words}"
    );
}

#[test]
fn a_damaged_manifest_is_seen_whatever_is_checked() {
    let image = Image::new();
    let manifest = image.blob(&image.manifest);
    let text = fs::read_to_string(&manifest)
        .unwrap()
        .replace("\"schemaVersion\":2", "\"schemaVersion\":3");
    fs::write(&manifest, text).unwrap();
    let medium = Medium::open(&image.path("os")).unwrap();
    let report = medium
        .check_image(&image.manifest, "amd64", &mut MediumCheck::Sizes)
        .unwrap();
    assert_eq!(report.verdict, BlobVerdict::Damaged);
    assert!(matches!(report.blobs[0].state, BlobState::Differs(_)));
}

#[test]
fn another_image_is_reported_with_both_digests() {
    let image = Image::new();
    let wanted = Digest::of_bytes(b"another");
    let report = image.examine(&wanted);
    assert_eq!(
        report.verdict,
        BlobVerdict::Other(vec![image.manifest.clone()])
    );
    let words = report.describe_verdict(&name(&wanted), &Medium::open(&image.path("os")).unwrap());
    assert!(
        words.contains(&wanted.to_string()) && words.contains(&image.manifest.to_string()),
        "{words}"
    );
}

#[test]
fn a_list_gives_the_image_of_this_machine_by_name() {
    let (image, list) = Image::new().with_list();
    let report = image.examine(&list);
    assert_eq!(
        report.verdict,
        BlobVerdict::Exact(Some(image.manifest.clone()))
    );
    assert_eq!(
        (report.blobs[0].role, report.blobs[1].role),
        (BlobRole::List, BlobRole::Manifest)
    );
    assert_eq!(
        image.architecture(&image.manifest).as_deref(),
        Some("amd64")
    );
    assert_eq!(image.architecture(&list), None);
    // The image in the list can be wanted by its own digest too.
    assert_eq!(
        image.examine(&image.manifest).verdict,
        BlobVerdict::Exact(None)
    );
    let medium = Medium::open(&image.path("os")).unwrap();
    let other = medium
        .check_image(&list, "s390x", &mut MediumCheck::Sizes)
        .unwrap();
    assert_eq!(
        other.verdict,
        BlobVerdict::NoPlatform(vec!["linux/amd64".into(), "linux/arm64".into()])
    );
}

#[test]
fn each_architecture_finds_its_own_image_by_the_name_that_the_kernel_has_for_it() {
    let (image, list, others) = Image::new().with_list_for(&["arm64", "ppc64le", "s390x"]);
    let mut manifests = vec![image.manifest.clone()];
    manifests.extend(others);
    let medium = Medium::open(&image.path("os")).unwrap();
    let examine = |machine: &str| {
        let report = medium.check_image(&list, go_architecture(machine), &mut MediumCheck::Sizes);
        report.unwrap()
    };
    for (machine, manifest) in ["x86_64", "aarch64", "ppc64le", "s390x"]
        .iter()
        .zip(&manifests)
    {
        let verdict = examine(machine).verdict;
        assert_eq!(verdict, BlobVerdict::Exact(Some(manifest.clone())));
        let named = image.architecture(manifest);
        assert_eq!(named.as_deref(), Some(go_architecture(machine)));
    }
    let report = examine("riscv64");
    let name = ImageName::parse(&format!("quay.io/os@{list}")).unwrap();
    let words = report.describe_verdict(&name, &medium);
    let found = "a list of images for linux/amd64, linux/arm64, linux/ppc64le, linux/s390x, but none for this machine";
    assert!(words.contains(found), "{words}");
}

#[test]
fn a_manifest_that_nothing_names_is_not_found_by_anybody() {
    let image = Image::new();
    image.write_index(&[]);
    assert_eq!(image.examine(&image.manifest).verdict, BlobVerdict::Unnamed);
}

#[test]
fn a_list_that_names_itself_does_not_go_on_for_ever() {
    let image = Image::new();
    let index = image.path("os/index.json");
    let text = format!(
        r#"{{"schemaVersion": 2, "manifests": [{{"mediaType": "{INDEX}", "digest": "sha256:{}", "size": 3}}]}}"#,
        "0".repeat(64)
    );
    fs::write(&index, &text).unwrap();
    // Named by a digest that is not its own; it names itself again.
    fs::write(image.path("os/blobs/sha256").join("0".repeat(64)), &text).unwrap();
    let report = image.examine(&image.manifest);
    assert_eq!(report.verdict, BlobVerdict::Unnamed);
}

#[test]
fn what_skopeo_copies_with_its_digests_can_be_had_in_every_form() {
    let image = Image::new();
    for (transport, file, form) in [
        ("oci", "oci", Form::OciDirectory),
        ("oci-archive", "os.tar", Form::OciArchive),
        ("dir", "dir", Form::Dir),
    ] {
        let Some(path) = image.copied(transport, file, &["--preserve-digests"]) else {
            return;
        };
        let medium = Medium::open(&path).unwrap();
        assert_eq!(medium.form, form);
        assert_eq!(
            medium.reference(),
            format!("{transport}:{}", path.display())
        );
        let report = examine(&path, &image.manifest);
        assert_eq!(
            report.verdict,
            BlobVerdict::Exact(None),
            "{transport}: {:?}",
            report.blobs
        );
        assert_eq!(report.blobs.len(), 4);
    }
}

#[test]
fn what_skopeo_copies_of_a_list_can_be_had_by_the_lists_digest() {
    let (image, list) = Image::new().with_list();
    for (transport, file) in [("oci", "oci"), ("dir", "dir")] {
        let Some(path) = image.copied(transport, file, &["--all", "--preserve-digests"]) else {
            return;
        };
        let report = examine(&path, &list);
        assert_eq!(
            report.verdict,
            BlobVerdict::Exact(Some(image.manifest.clone())),
            "{transport}: {report:?}"
        );
    }
}

/// The descriptor under a name, as `skopeo copy … oci:PATH:NAME` writes it.
fn named(mut descriptor: serde_json::Value, name: &str) -> serde_json::Value {
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": name});
    descriptor
}

#[test]
fn of_several_images_each_is_brought_by_its_name() {
    with_storage(|| {
        let (mut image, list) = Image::new().with_list();
        let of_list = image.manifest.clone();
        let other = image.make("another");
        let size = fs::metadata(image.blob(&list)).unwrap().len();
        let list = json!({"mediaType": INDEX, "digest": list.to_string(), "size": size});
        image.write_index(&[
            named(list, "release"),
            named(
                image.descriptor(&other, MANIFEST, "amd64"),
                "quay.example/os:9.7",
            ),
        ]);
        let medium = Medium::open(&image.path("os")).unwrap();
        for (digest, name) in [(&of_list, "release"), (&other, "quay.example/os:9.7")] {
            let address = medium.address_of(digest).unwrap().unwrap().to_string();
            assert_eq!(address, format!("{}:{name}", medium.reference()));
            let wanted = format!("quay.example/os@{digest}");
            done(&storage::copy_into_storage(&address, &wanted)).unwrap();
        }
        // Without the name the real one takes none.
        let wanted = format!("quay.example/os@{other}");
        let said = done(&storage::copy_into_storage(&medium.reference(), &wanted)).unwrap_err();
        assert!(said.contains("more than one image"), "{said}");
    });
}

#[test]
fn an_image_that_skopeo_cannot_be_led_to_is_named_with_the_reason() {
    let mut image = Image::new();
    let (first, other) = (image.manifest.clone(), image.make("another"));
    let both = [&first, &other].map(|digest| image.descriptor(digest, MANIFEST, "amd64"));
    let address = |image: &Image, digest: &Digest| {
        let medium = Medium::open(&image.path("os")).unwrap();
        medium
            .address_of(digest)
            .unwrap()
            .map(|address| address.name)
    };
    image.write_index(&both);
    for digest in [&first, &other] {
        assert_eq!(address(&image, digest), Err(AddressError::Nameless(2)));
    }
    // Of one name the first is taken.
    image.write_index(&both.clone().map(|one| named(one, "os")));
    assert_eq!(address(&image, &first), Ok(Some("os".to_owned())));
    assert_eq!(address(&image, &other), Err(AddressError::Nameless(2)));
    // One alone needs no name.
    image.write_index(&both[..1]);
    assert_eq!(address(&image, &first), Ok(None));

    let colon = image.path("12:30");
    fs::rename(image.path("os"), &colon).unwrap();
    let medium = Medium::open(&colon).unwrap();
    assert_eq!(medium.address_of(&first).unwrap(), Err(AddressError::Colon));
}

#[test]
fn an_archive_of_docker_is_refused_with_the_digest_that_skopeo_would_give_it() {
    let image = Image::new();
    let Some(path) = image.copied("docker-archive", "docker.tar", &[]) else {
        return;
    };
    let raw = Command::new("skopeo")
        .args([
            "inspect",
            "--raw",
            &format!("docker-archive:{}", path.display()),
        ])
        .output()
        .unwrap();
    let would_be = Digest::of_bytes(&raw.stdout);
    let report = examine(&path, &image.manifest);
    assert_eq!(report.verdict, BlobVerdict::Lost(Some(would_be.clone())));
    let words = report.describe_verdict(&name(&image.manifest), &Medium::open(&path).unwrap());
    for needed in [
        image.manifest.to_string(),
        would_be.to_string(),
        "skopeo copy --all --preserve-digests".into(),
    ] {
        assert!(words.contains(&needed), "{words}");
    }
}

#[test]
fn an_archive_that_ends_early_is_damaged_and_a_packed_one_is_refused() {
    let image = Image::new();
    let archive = image.path("os.tar");
    let mut tar = tar::Builder::new(fs::File::create(&archive).unwrap());
    tar.append_path_with_name(image.path("os/oci-layout"), "oci-layout")
        .unwrap();
    tar.append_path_with_name(image.path("os/index.json"), "index.json")
        .unwrap();
    let mut blobs = vec![image.manifest.clone()];
    for entry in fs::read_dir(image.path("os/blobs/sha256")).unwrap() {
        let hex = entry.unwrap().file_name().to_str().unwrap().to_owned();
        let digest = Digest::parse(&format!("sha256:{hex}")).unwrap();
        if digest != image.manifest && digest != image.layers[1] {
            blobs.push(digest);
        }
    }
    blobs.push(image.layers[1].clone());
    for digest in &blobs {
        tar.append_path_with_name(image.blob(digest), format!("blobs/sha256/{}", digest.hex()))
            .unwrap();
    }
    tar.finish().unwrap();
    drop(tar);
    assert_eq!(
        examine(&archive, &image.manifest).verdict,
        BlobVerdict::Exact(None)
    );

    // The last layer is cut off 20 bytes after its header.
    let bytes = fs::read(&archive).unwrap();
    let last = fs::metadata(image.blob(&image.layers[1]))
        .unwrap()
        .len()
        .div_ceil(512)
        * 512;
    let end = bytes.len() - 1024 - last as usize + 20;
    fs::write(&archive, &bytes[..end]).unwrap();
    let report = examine(&archive, &image.manifest);
    assert_eq!(report.verdict, BlobVerdict::Damaged);
    let bad: Vec<_> = report
        .bad_blobs()
        .map(|blob| (blob.digest.clone(), blob.state.clone()))
        .collect();
    assert_eq!(bad, [(image.layers[1].clone(), BlobState::Size(20))]);

    fs::write(&archive, packed(&bytes)).unwrap();
    let error = Medium::open(&archive).unwrap_err().to_string();
    assert!(
        error.contains("compressed") && error.contains("gunzip"),
        "{error}"
    );
}

#[test]
fn what_is_not_a_medium_is_refused_by_name() {
    let image = Image::new();
    let missing = Medium::open(&image.path("none")).unwrap_err();
    assert!(matches!(missing, MediumError::Open { .. }), "{missing}");
    fs::create_dir(image.path("empty")).unwrap();
    let empty = Medium::open(&image.path("empty")).unwrap_err().to_string();
    assert!(
        empty.contains("skopeo copy --all --preserve-digests"),
        "{empty}"
    );
    fs::write(image.path("text"), "not an archive").unwrap();
    assert!(Medium::open(&image.path("text")).is_err());
}

#[test]
fn a_medium_cannot_lead_out_of_itself() {
    let image = Image::new();
    let layer = image.blob(&image.layers[0]);
    let outside = image.path("outside");
    fs::rename(&layer, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &layer).unwrap();
    let report = image.examine(&image.manifest);
    assert_eq!(report.bad_blobs().next().unwrap().state, BlobState::Missing);
}

#[test]
fn the_trace_of_a_pull_comes_from_the_files_of_the_root() {
    let root = TestRoot::empty();
    root.write(
        "etc/containers/registries.conf",
        "[[registry]]\nlocation = \"quay.example\"\n",
    );
    root.write(
        "etc/containers/registries.conf.d/10-mirror.conf",
        "[[registry]]\nlocation = \"quay.example\"\n[[registry.mirror]]\nlocation = \"mirror.local\"\n",
    );
    root.write("etc/containers/registries.conf.d/not-read.txt", "not TOML");
    root.write(
        "var/lib/kubelet/config.json",
        r#"{"auths": {"mirror.local": {"auth": "c2VjcmV0OnNlY3JldA=="}}}"#,
    );
    let image = ImageName::parse("quay.example/os:1").unwrap();
    let opened = Root::open(root.dir()).unwrap();
    let error = Trace::read(&opened, &image).unwrap_err().to_string();
    assert!(
        error.contains("/etc/containers/policy.json is missing"),
        "{error}"
    );

    root.write(
        "etc/containers/policy.json",
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    );
    let trace = Trace::read(&opened, &image).unwrap();
    let asked: Vec<&str> = trace
        .asked_places()
        .map(|source| source.name.as_str())
        .collect();
    assert_eq!(asked, ["mirror.local/os:1", "quay.example/os:1"]);
    assert_eq!(
        trace.secrets.as_deref(),
        Some("/var/lib/kubelet/config.json")
    );
    assert!(!trace.to_string().contains("c2VjcmV0"));

    // Tools of 2026 read the files of the image where `/etc` has none, and fragments of both.
    let of_image = "usr/share/containers";
    let mirror = |host: &str| {
        format!(
            "[[registry]]\nlocation = \"quay.example\"\n[[registry.mirror]]\nlocation = \"{host}\"\n"
        )
    };
    let places = || {
        let trace = Trace::read(&opened, &image).unwrap();
        let asked = trace.asked_places().map(|source| source.name.clone());
        asked.collect::<Vec<String>>()
    };
    root.write(
        &format!("{of_image}/registries.conf"),
        &mirror("of-image.local"),
    );
    let fragment = format!("{of_image}/registries.conf.d/10-mirror.conf");
    root.write(&fragment, &mirror("hidden.local"));
    assert_eq!(places(), ["mirror.local/os:1", "quay.example/os:1"]);
    root.remove("etc/containers/registries.conf.d/10-mirror.conf");
    assert_eq!(places(), ["hidden.local/os:1", "quay.example/os:1"]);
    root.remove(&fragment);
    root.remove("etc/containers/registries.conf");
    assert_eq!(places(), ["of-image.local/os:1", "quay.example/os:1"]);
    root.write("etc/containers/registries.conf", "");
    assert_eq!(places(), ["quay.example/os:1"]);
    let policy = root.read("etc/containers/policy.json");
    root.remove("etc/containers/policy.json");
    assert!(Trace::read(&opened, &image).is_err());
    root.write(&format!("{of_image}/policy.json"), &policy);
    assert_eq!(places(), ["quay.example/os:1"]);

    // What the daemon links there comes first.
    root.write("run/ostree/auth.json", r#"{"auths": {}}"#);
    let trace = Trace::read(&opened, &image).unwrap();
    assert_eq!(trace.secrets.as_deref(), Some("/run/ostree/auth.json"));
}

const REGISTRIES: &str = r#"
[[registry]]
prefix = "127.0.0.1:1/release"
location = "127.0.0.1:1/primary"
mirror-by-digest-only = true
[[registry.mirror]]
location = "127.0.0.1:2/m1"
insecure = true
[[registry.mirror]]
location = "127.0.0.1:3/m2"
[[registry]]
location = "127.0.0.1:3"
blocked = true
[[registry]]
prefix = "127.0.0.1:1/tags"
location = "127.0.0.1:1/tags"
[[registry.mirror]]
location = "127.0.0.1:4"
pull-from-mirror = "tag-only"
[[registry.mirror]]
location = "127.0.0.1:5"
pull-from-mirror = "digest-only"
"#;
/// Takes the place of the table of the same prefix.
const DROP_IN: &str = "[[registry]]\nlocation = \"127.0.0.1:6\"\nblocked = true\n";

/// The places that the real skopeo asks, in order, and those of them that it finds blocked.
fn skopeo_asks(home: &TestRoot, image: &str) -> Option<(Vec<String>, Vec<String>)> {
    let output = Command::new("skopeo")
        .args(["--debug", "inspect", "--raw", &format!("docker://{image}")])
        .env("HOME", home.dir())
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_RUNTIME_DIR")
        .output();
    let Ok(output) = output else {
        skip(
            Lacks::Setup,
            "skopeo is not installed; its way through registries.conf is not compared",
        );
        return None;
    };
    let log = String::from_utf8_lossy(&output.stderr).replace("\\\"", "\"");
    let quoted = |line: &str, before: &str| {
        let (_, rest) = line.split_once(before)?;
        Some(rest.split('"').next()?.to_owned())
    };
    let asked = log
        .lines()
        .filter_map(|line| quoted(line, "Trying to access \""));
    let blocked = log
        .lines()
        .filter(|line| line.contains(" is blocked in ") && line.contains("failed: "));
    let blocked = blocked.filter_map(|line| quoted(line, "Accessing \""));
    Some((asked.collect(), blocked.collect()))
}

#[test]
fn a_pull_goes_the_way_that_skopeo_goes() {
    let home = TestRoot::empty();
    let folder = ".config/containers";
    home.write(&format!("{folder}/registries.conf"), REGISTRIES);
    home.write(&format!("{folder}/registries.conf.d/1.conf"), DROP_IN);
    let root = TestRoot::empty();
    root.write("etc/containers/registries.conf", REGISTRIES);
    root.write("etc/containers/registries.conf.d/1.conf", DROP_IN);
    root.write(
        "etc/containers/policy.json",
        r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
    );
    let opened = Root::open(root.dir()).unwrap();
    let digest = Digest::of_bytes(b"x");
    for name in ["release/os", "released/os", "tags/os", "release"] {
        for suffix in [":1".to_owned(), format!("@{digest}")] {
            for host in ["127.0.0.1:1", "127.0.0.1:3", "127.0.0.1:6"] {
                let image = format!("{host}/{name}{suffix}");
                let Some((asked, blocked)) = skopeo_asks(&home, &image) else {
                    return;
                };
                let trace = Trace::read(&opened, &ImageName::parse(&image).unwrap()).unwrap();
                let is_blocked =
                    |why: &Option<String>| why.as_ref().is_some_and(|why| why.contains("blocked"));
                let of = |only_blocked: bool| -> Vec<String> {
                    let all = trace
                        .sources
                        .iter()
                        .filter(|one| one.skipped.is_none() || is_blocked(&one.skipped));
                    let all = all.filter(|one| !only_blocked || is_blocked(&one.skipped));
                    all.map(|one| one.name.clone()).collect()
                };
                assert_eq!(of(false), asked, "{image}\n{trace}");
                assert_eq!(of(true), blocked, "{image}\n{trace}");
            }
        }
    }
}

#[test]
fn a_policy_decides_as_it_does_for_skopeo() {
    let image = Image::new();
    let here = image.path("os");
    let here = here.to_str().unwrap();
    let above = image.dir.path().to_str().unwrap();
    for (scope, other) in [
        (here, above),
        (above, "/elsewhere"),
        ("", "/elsewhere"),
        ("/elsewhere", above),
    ] {
        for (inside, outside) in [
            ("reject", "insecureAcceptAnything"),
            ("insecureAcceptAnything", "reject"),
        ] {
            let text = json!({
                "default": [{"type": outside}],
                "transports": {"oci": {scope: [{"type": inside}], other: [{"type": outside}]}},
            })
            .to_string();
            let policy = image.path("policy.json");
            fs::write(&policy, &text).unwrap();
            let output = Command::new("skopeo")
                .args([
                    "--policy",
                    policy.to_str().unwrap(),
                    "copy",
                    &format!("oci:{here}"),
                ])
                .arg(format!("dir:{}", image.path("copy").display()))
                .output();
            let Ok(output) = output else {
                skip(
                    Lacks::Setup,
                    "skopeo is not installed; its reading of policies is not compared",
                );
                return;
            };
            let ruling = SignaturePolicy::parse(&text).unwrap().of_medium(&Address {
                form: Form::OciDirectory,
                path: here.into(),
                name: None,
            });
            let words = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                ruling.rejects(),
                !output.status.success(),
                "{text}: {ruling} {words}"
            );
            if ruling.rejects() {
                assert_eq!(
                    RpmOstreeError::of_words(&words).kind(),
                    "policy-rejects",
                    "{words}"
                );
            }
        }
    }
}

/// Runs a command line of ours as the program does, which has given up what it never needs.
fn done(line: &CommandLine) -> Result<String, String> {
    let run = || {
        mco_rescue::host::sys::privileges::keep_possible();
        HostRunner.run(line).unwrap()
    };
    let answer = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    match answer.status {
        Some(0) => Ok(answer.stdout),
        _ => Err(answer.stderr),
    }
}

/// With the real podman and a storage of its own; `None`, said aloud, where there is no podman.
fn with_storage(test: impl FnOnce() + Send) {
    let there = Command::new("podman").arg("--version").output().is_ok();
    if !there {
        return skip(Lacks::Setup, "podman is not installed");
    }
    with_mounts(|| {
        for dir in ["/var/lib/containers", "/run/containers", "/run/libpod"] {
            fs::create_dir_all(dir).unwrap();
            mount(&["-t", "tmpfs", "-o", "size=64m", "tmpfs", dir]);
        }
        test();
    });
}

#[test]
fn an_image_of_a_medium_is_in_the_storage_under_its_very_name() {
    with_storage(|| {
        let image = Image::new();
        let name = format!("quay.example/os@{}", image.manifest);
        let from = format!("oci:{}", image.path("os").display());
        let there =
            || storage::parse_stored(&done(&storage::list_images(&name)).unwrap(), &name).unwrap();
        assert_eq!(there(), None);
        done(&storage::copy_into_storage(&from, &name)).unwrap();
        assert_eq!(there().unwrap().repo_digest, name);
        // Again, and under a name whose digest it does not have.
        done(&storage::copy_into_storage(&from, &name)).unwrap();
        let other = format!("quay.example/os@sha256:{}", "2".repeat(64));
        let said = done(&storage::copy_into_storage(&from, &other)).unwrap_err();
        assert!(said.contains("Digest"), "{said}");
    });
}

#[test]
fn the_exception_lets_skopeo_read_this_one_image_and_no_other() {
    with_storage(|| {
        let (one, mut two) = (Image::new(), Image::new());
        two.manifest = two.make("another");
        two.write_index(&[two.descriptor(&two.manifest.clone(), MANIFEST, "another")]);
        let names = [&one, &two].map(|image| {
            let name = format!("quay.example/os@{}", image.manifest);
            let from = format!("oci:{}", image.path("os").display());
            done(&storage::copy_into_storage(&from, &name)).unwrap();
            name
        });
        let policy = r#"{"default": [{"type": "reject"}]}"#;
        let stored = done(&storage::list_images(&names[0])).unwrap();
        let stored = storage::parse_stored(&stored, &names[0]).unwrap().unwrap();
        let place = storage::parse_place(&done(&storage::system_info()).unwrap()).unwrap();
        let excepted = storage::with_exception(policy, &place, &stored).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let copies = |policy: &str, name: &str| {
            let file = dir.path().join("policy.json");
            fs::write(&file, policy).unwrap();
            let mut skopeo = Command::new("skopeo");
            skopeo.arg("--policy").arg(&file).arg("copy");
            skopeo.arg(format!("containers-storage:{name}"));
            skopeo.arg(format!("dir:{}", dir.path().join("copy").display()));
            skopeo.output().unwrap().status.success()
        };
        assert!(!copies(policy, &names[0]));
        assert!(copies(&excepted, &names[0]));
        assert!(!copies(&excepted, &names[1]));
    });
}

#[test]
fn the_content_of_an_image_of_extensions_is_had_through_a_container_that_never_runs() {
    with_storage(|| {
        let image = Image::new();
        let name = format!("quay.example/extensions@{}", image.manifest);
        let from = format!("oci:{}", image.path("os").display());
        done(&storage::copy_into_storage(&from, &name)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        done(&extensions::create_container(&name, "pivot-1")).unwrap();
        done(&extensions::copy_content(
            "pivot-1",
            dir.path().to_str().unwrap(),
        ))
        .unwrap();
        assert_eq!(fs::read(dir.path().join(METADATA)).unwrap(), [1; 4000]);
        done(&extensions::remove_container("pivot-1")).unwrap();
        assert!(done(&extensions::copy_content("pivot-1", "/tmp")).is_err());
    });
}
