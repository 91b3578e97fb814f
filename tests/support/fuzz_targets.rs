//! What every fuzz target does with a piece of data: run by `cargo fuzz` on what it makes up, and by
//! `tests/config/corpus.rs` on a short corpus. A target panics when the program would, or when what it promises fails.

use std::sync::OnceLock;

use mco_rescue::base::kargs::{Kargs, KargsChange};
use mco_rescue::change::plan::{self, PlanInputs, PlanOptions};
use mco_rescue::config::butane;
use mco_rescue::config::controllers::kubelet::from_settings;
use mco_rescue::config::controllers::{
    Base, Cluster, ConfigPool, GeneratedFile, generate_configs, read_objects,
    registries as mirror_files, runtime,
};
use mco_rescue::config::document::{self, ContentsError, Desired, Ignition, MachineConfig, yaml};
use mco_rescue::config::render::{self, Pool};
use mco_rescue::diagnose::fleet::{self, Fleet, FleetNode};
use mco_rescue::diagnose::recorder::known::KnownFiles;
use mco_rescue::diagnose::recorder::{Snapshot, format};
use mco_rescue::formats::age::{self, Recipient};
use mco_rescue::formats::etcd_data::bolt::{BoltError, Database};
use mco_rescue::formats::etcd_data::snap;
use mco_rescue::formats::etcd_data::start::{self, DatabaseState, MemberFiles, SnapFile};
use mco_rescue::formats::etcd_data::wal::{self, WalName, WalReader};
use mco_rescue::formats::go_yaml::{self, YamlNode};
use mco_rescue::formats::systemd::unit_name::UnitName;
use mco_rescue::formats::systemd::{InstallSection, PresetDir, Presets, Support, unit_file};
use mco_rescue::formats::{checkpoint, ovsdb};
use mco_rescue::host::root::{Root, sha256_hex};
use mco_rescue::host::sealed;
use mco_rescue::judge::daemon::actions::ActionChanges;
use mco_rescue::judge::daemon::registries::{self, RegistryChange};
use mco_rescue::judge::daemon::{self, policies};
use mco_rescue::judge::drift;
use mco_rescue::node::bootloader::{self, BootEntry};
use mco_rescue::node::command::HostRunner;
use mco_rescue::node::command::bootc::BootcStatus;
use mco_rescue::node::command::origin::OriginFile;
use mco_rescue::node::command::ostree::StagedFile;
use mco_rescue::node::command::rpm_ostree::arguments::RpmOstreeVersion;
use mco_rescue::node::command::rpm_ostree::cause::RpmOstreeError;
use mco_rescue::node::command::rpm_ostree::status::{self, Deployments};
use mco_rescue::node::images::auth::Secrets;
use mco_rescue::node::images::manifest::Manifest;
use mco_rescue::node::images::policy::SignaturePolicy;
use mco_rescue::node::images::registries::Registries;
use mco_rescue::node::images::tree::{self, ModuleLists};
use mco_rescue::node::images::{ImageName, pull, storage};
use mco_rescue::node::os_release::OsRelease;
use mco_rescue::node::platform::{
    Interface, LinkFile, of_arguments, parse_luks, pinned_by_arguments,
};
use mco_rescue::node::pod_manifest::PodManifest;
use mco_rescue::node::two_nodes::{self, Corosync};
use mco_rescue::node::{self, Accounts, NodeState, Records, boot_variables, virtual_addresses};
use serde_json::{Map, Value, json};

/// The body of a target.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: [(&str, Target); 22] = [
    ("document", document),
    ("data_url", data_url),
    ("gunzip", gunzip),
    ("units", units),
    ("accounts", accounts),
    ("go_yaml", go_yaml),
    ("render", rendering),
    ("kargs", kargs),
    ("answers", answers),
    ("etcd_log", etcd_log),
    ("etcd_database", etcd_database),
    ("ovsdb", ovsdb_log),
    ("checkpoints", checkpoints),
    ("luks", luks),
    ("node_files", node_files),
    ("recorder", recorded),
    ("recipients", recipients),
    ("fleet", fleet_documents),
    ("kubelet_configs", kubelet_configs),
    ("runtime_configs", runtime_configs),
    ("registries", registry_objects),
    ("butane", butane_configs),
];

/// A document of any kind: it is refused with at least one error, or it can be planned on a node.
pub fn document(data: &[u8]) {
    match document::parse_document(data, "fuzz") {
        Ok(config) => plan_on_a_node(&config),
        Err(error) => {
            assert!(!error.findings.is_empty(), "refused for no reason");
            assert!(!error.to_string().is_empty());
        }
    }
}

fn plan_on_a_node(config: &MachineConfig) {
    let (node, records) = empty_node();
    let desired = Desired::from_config(config);
    let _ = plan::paths_of_interest(&desired, None, None);
    for options in [
        PlanOptions::default(),
        PlanOptions {
            request_force: false,
            ignore_unsupported: true,
            files_only: true,
            allow_lockout: true,
            allow_account_files: true,
        },
    ] {
        let inputs = PlanInputs {
            crossing: &[],
            accounts: None,
            overrides: None,
            unchanged: None,
            config,
            desired: &desired,
            baseline: records.baseline(),
            old: None,
            records,
            node,
        };
        let plan = plan::plan_changes(inputs, options);
        let _ = plan::step_drifts(&plan.steps, desired.bare);
    }
    let _ = drift::daemon_verdict(&config.name, None, &drift::find_drifts(&desired, node));
    let _ = document::find_refusals(config, config);
    let _ = document::unconditional_refusals(config);
    let unchanged =
        daemon::decide_allowing(config, config, &daemon::default_policies(), &[], false);
    assert!(!unchanged.reboots(), "nothing changed, and it reboots");
}

/// A node with nothing but accounts, looked at once.
fn empty_node() -> &'static (NodeState, Records) {
    static NODE: OnceLock<(NodeState, Records)> = OnceLock::new();
    NODE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let passwd = "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/bash\n";
        std::fs::write(dir.path().join("etc/passwd"), passwd).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let node = node::observe_node(&root, Default::default(), &HostRunner).unwrap();
        (node, Records::read(&root).unwrap())
    })
}

/// A `data:` URL; and whatever the bytes are, both encodings of them lead back to them.
pub fn data_url(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for url in [text.to_string(), format!("data:{text}")] {
        if let Ok(bytes) = document::data_url(&url) {
            assert!(bytes.len() <= url.len(), "more bytes than the URL has");
        }
    }
    let percent: String = data.iter().map(|byte| format!("%{byte:02x}")).collect();
    for url in [
        format!("data:,{percent}"),
        format!("data:text/plain;base64,{}", base64(data)),
    ] {
        assert_eq!(document::data_url(&url).unwrap(), data);
    }
}

/// RFC 4648, with padding.
fn base64(data: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in data.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= chunk.len() {
                letter as char
            } else {
                '='
            });
        }
    }
    text
}

/// A gzip stream never unpacks to more than it may.
pub fn gunzip(data: &[u8]) {
    const LIMIT: u64 = 1 << 16;
    match document::gunzip_within(data, LIMIT) {
        Ok(bytes) => assert!(bytes.len() as u64 <= LIMIT),
        Err(ContentsError::TooLarge(_)) => {
            // More room gives more, or shows what is wrong behind the limit.
            if let Ok(bytes) = document::gunzip_within(data, 1 << 24) {
                assert!(bytes.len() as u64 > LIMIT);
            }
        }
        Err(error) => assert!(matches!(error, ContentsError::Gzip(_)), "{error}"),
    }
}

/// A unit file, by Ignition's grammar and by systemd's, and a preset file.
pub fn units(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match unit_file::parse_options(&text) {
        Ok(options) => options.iter().for_each(|option| {
            assert!(text.contains(option.name.as_str()), "a name from nowhere");
        }),
        Err(error) => assert!(error.line <= 1 + text.matches('\n').count(), "{error}"),
    }
    let support = Support {
        upheld_by: true,
        preset_ignore: true,
    };
    for unit in ["a.service", "a@.service", "a@b.service"] {
        let name = UnitName::parse(unit).unwrap();
        let _ = InstallSection::default().read_file(&name, &text, &support);
    }
    presets(&text, &support);
    let _ = text.lines().map(UnitName::parse).count();
}

fn presets(text: &str, support: &Support) {
    let files = [("10-a.preset".to_owned(), text.to_owned())].into();
    let path = "/etc/systemd/system-preset".to_owned();
    let presets = Presets::from_dirs(&[PresetDir { path, files }], support);
    for unit in text
        .split_whitespace()
        .chain(["a.service", "a@b.service"])
        .take(64)
    {
        let _ = presets.decision_for(unit);
    }
}

/// Account files: a changed password field is read back, and nothing else changes.
pub fn accounts(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    let mut accounts = Accounts::parse(std::slice::from_ref(&text), std::slice::from_ref(&text));
    assert!(
        accounts
            .users
            .keys()
            .chain(accounts.groups.keys())
            .all(|name| !name.contains(':'))
    );
    let _ = node::accounts::count_keys(&text);
    accounts.shadow = Some(text.clone());
    for user in text
        .lines()
        .filter_map(|line| line.split(':').next())
        .take(64)
    {
        let Some(changed) = accounts.shadow_with(user, "$6$a$b") else {
            continue;
        };
        if !accounts.is_broken(user) {
            assert_eq!(changed.matches('\n').count(), text.matches('\n').count());
        }
        let after = Accounts {
            shadow: Some(changed),
            ..Accounts::default()
        };
        assert_eq!(after.find_password(user), Some("$6$a$b"), "{user:?}");
    }
}

/// What is hashed for the name of a rendered config is YAML that reads as the same value.
pub fn go_yaml(data: &[u8]) {
    let mut data = data;
    let config = json!({"a": value(&mut data, 0)});
    let written = |config: &Value| {
        let mut text = String::new();
        let fields = [("config", &YamlNode::from(config))];
        go_yaml::write_yaml(fields.into_iter(), &mut |piece| text.push_str(piece));
        text
    };
    let text = written(&config);
    if text.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        assert!(yaml::parse_yaml(&text).is_err(), "{text}");
        return;
    }
    let read = yaml::parse_yaml(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read["config"], config, "{text}");
    assert_eq!(
        written(&read["config"]),
        text,
        "another text the second time"
    );
}

/// A value made from the bytes, the same for the same bytes.
fn value(data: &mut &[u8], depth: usize) -> Value {
    match byte(data) % 8 {
        0 => Value::Null,
        1 => (byte(data) & 1 == 1).into(),
        2 => (i64::from(byte(data)) << (byte(data) % 48)).into(),
        3 if depth < 8 => {
            let items = byte(data) % 5;
            (0..items).map(|_| value(data, depth + 1)).collect()
        }
        4 if depth < 8 => {
            let pairs = byte(data) % 5;
            let pairs = (0..pairs).map(|_| (string(data), value(data, depth + 1)));
            pairs.collect::<Map<_, _>>().into()
        }
        _ => string(data).into(),
    }
}

fn byte(data: &mut &[u8]) -> u8 {
    let Some((first, rest)) = data.split_first() else {
        return 0;
    };
    *data = rest;
    *first
}

fn string(data: &mut &[u8]) -> String {
    let length = usize::from(byte(data)).min(data.len());
    let (text, rest) = data.split_at(length);
    *data = rest;
    String::from_utf8_lossy(text).into_owned()
}

/// Up to three configs with kernel arguments, one after the other: what is rendered of them is a config
/// whose name fits, and holds their arguments in order.
pub fn rendering(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (mut inputs, mut arguments) = (Vec::new(), Vec::new());
    for (index, part) in text.split("\n---\n").take(3).enumerate() {
        let _ = render::read_inputs(part.as_bytes(), "fuzz");
        let Ok(config) = serde_json::from_str::<Value>(part) else {
            continue;
        };
        let own: Vec<String> = part.split_whitespace().take(4).map(str::to_owned).collect();
        let object = json!({
            "metadata": {"name": format!("{index}"), "labels": {"machineconfiguration.openshift.io/role": "worker"}},
            "spec": {"config": config, "kernelArguments": own},
        });
        if let Ok(read) = render::read_inputs(object.to_string().as_bytes(), "fuzz") {
            inputs.extend(read);
            arguments.extend(own);
        }
    }
    let pool = Pool {
        name: "worker".to_owned(),
        ..Pool::default()
    };
    if let Ok(rendered) = render::render_pool(inputs, &pool) {
        assert_eq!(rendered["spec"]["kernelArguments"], json!(arguments));
        let text = rendered.to_string();
        assert_eq!(render::name_matches(&text), Some(true), "{text}");
        self::document(text.as_bytes());
    }
}

/// Two command lines and two configs, one on each line: what is printed reads as itself, and the changes lead to
/// the wanted arguments, after which there is nothing left to change.
pub fn kargs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n').map(Kargs::parse);
    let mut next = || lines.next().unwrap_or_default();
    let (present, old, new) = (next(), next(), next());
    for one in [&present, &old, &new] {
        assert_eq!(&Kargs::parse(&one.to_string()), one);
    }
    let wanted = present.after_change(&old, &new);
    assert!(new.missing_from(&wanted).is_empty(), "{wanted}");
    let changes = present.changes_to(&wanted);
    // libostree before 2024 refuses a bare key among several; the changes never need it to take another one.
    assert_eq!(apply_changes(present.tokens(), &changes), wanted.tokens());
}

/// The arguments after changes as rpm-ostree makes them: it skips deletions of what is not there word for word, appends
/// first, and then lets libostree delete.
pub fn apply_changes(present: &[String], changes: &[KargsChange]) -> Vec<String> {
    let mut tokens = present.to_vec();
    tokens.extend(changes.iter().filter_map(|change| match change {
        KargsChange::Append(token) => Some(token.clone()),
        KargsChange::Delete(_) => None,
    }));
    for change in changes {
        if let KargsChange::Delete(token) = change
            && present.contains(token)
        {
            let at = tokens.iter().position(|one| one == token);
            tokens.remove(at.expect("an argument that is deleted once too often"));
        }
    }
    tokens
}

/// What rpm-ostree, podman, the boot loader and the containers tools leave to be read: nothing of it ends us, and every
/// cause has words and a next step.
pub fn answers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let cause = RpmOstreeError::of_words(&text);
    assert!(!cause.next_step().is_empty() && !cause.kind().is_empty());
    let _ = (
        cause.to_string(),
        RpmOstreeVersion::parse_answer(&text),
        status::read_finalize_error(&text),
    );
    let _ = status::finalize_failure(&text);
    let _ = (StagedFile::parse(data), OriginFile::parse(&text));
    if let Ok(here) = BootcStatus::read(&text) {
        let all = here.to_deployments(&|_| None).all;
        assert!(all.iter().filter(|one| one.booted).count() <= 1);
        assert!(all.iter().enumerate().all(|(at, one)| one.index == at));
    }
    if let Ok(here) = Deployments::read(&text) {
        assert!(here.all.iter().filter(|one| one.booted).count() <= 1);
        let _ = (here.rollback(), here.pinned_copy_of_booted());
        for one in &here.all {
            assert_eq!(
                here.find_named(&one.name()).map(|other| &other.checksum),
                Some(&one.checksum)
            );
            let _ = here.find_image(&one.image(), one.digest.as_deref());
        }
    }
    if let Ok(pod) = PodManifest::parse(data) {
        let of_config = pod.named_in_config(data).unwrap_or_default();
        let mut named = pod.named.iter().chain(&of_config);
        assert!(named.all(|path| path.starts_with("/etc/kubernetes/static-pod-resources/")));
    }
    let source = format!("data:;base64,{}", base64(data));
    let config: Ignition = serde_json::from_value(json!({"storage": {"files": [
        {"path": "/etc/containers/registries.conf", "contents": {"source": source}},
    ]}}))
    .unwrap();
    let registries = registries::registry_change(&config, &config);
    assert!(
        !matches!(registries, RegistryChange::Unsafe(_)),
        "nothing changed, and it is unsafe"
    );
    if let Ok(brought) = policies::in_file(&text, "fuzz", 0) {
        let changed = ActionChanges {
            files: vec!["/etc/containers/policy.json", &text],
            units: vec!["crio.service"],
            users: true,
        };
        let queue = daemon::actions::follow_policies(&changed, &brought.policies.cluster);
        let reboots = queue.iter().filter(|q| q.action == daemon::Action::Reboot);
        assert!(
            reboots.count() == 0 || queue.len() == 1,
            "a reboot does not stand alone"
        );
    }
    let entries = bootloader::in_order(vec![
        BootEntry::parse("a", &text),
        BootEntry::parse("b", "version 1"),
    ]);
    for entry in entries {
        let _ = (entry.ostree_link(), entry.kernel_directory());
    }
    let _ = (OsRelease::parse(&text).class(), Manifest::parse(data));
    let _ = (
        storage::parse_stored(&text, "a"),
        storage::parse_place(&text),
    );
    pulled(&text);
    files_of_an_image(data, &text);
}

/// The files of an image that no node runs, and those of a node that are compared with them.
fn files_of_an_image(data: &[u8], text: &str) {
    let isa = tree::x86_isa_needed(data);
    assert!(isa.is_none() || data.starts_with(b"\x7fELF"));
    let lists = ModuleLists::parse(|_| Some(data.to_vec()));
    let alias = text.lines().next().unwrap_or_default();
    assert!(
        lists
            .modules_of(alias)
            .iter()
            .all(|module| !module.contains('-'))
    );
    let file = LinkFile::parse("/etc/systemd/network/a.link", text);
    let _ = file.applies_to(&Interface::default(), None, Some("igb"));
    let arguments = Kargs::parse(text);
    let _ = (of_arguments(&arguments), pinned_by_arguments(&arguments));
}

/// The first line is the name of an image, the rest each of the files in turn.
fn pulled(text: &str) {
    let (name, rest) = text.split_once('\n').unwrap_or((text, text));
    let registries = Registries::parse(&[("a".to_owned(), rest.to_owned())]).unwrap_or_default();
    let accepting =
        SignaturePolicy::parse(r#"{"default": [{"type": "insecureAcceptAnything"}]}"#).unwrap();
    let policy = SignaturePolicy::parse(rest).unwrap_or(accepting);
    for name in [name, "quay.example:5000/a/os:1"] {
        let Ok(image) = ImageName::parse(name) else {
            continue;
        };
        assert_eq!(ImageName::parse(&image.to_string()).as_ref(), Ok(&image));
        let secrets = Secrets::parse("a", rest.as_bytes());
        let trace = pull::Trace::from_files(&image, &registries, &secrets, &policy);
        assert!(!trace.sources.is_empty() && !trace.to_string().is_empty());
        assert!(trace.blocked().is_some() || trace.asked_places().count() > 0);
    }
}

/// The log of etcd and its snapshots: the bytes as a file, and as records and a snapshot with right sums. The place where
/// reading ends is in the file, and a prediction is made of whatever was read.
pub fn etcd_log(data: &[u8]) {
    let sealed = sealed_log(data);
    let mut snapshot = vec![0x08];
    snapshot.extend(varint(crc32c(0, data).into()));
    snapshot.push(0x12);
    snapshot.extend(varint(data.len() as u64));
    snapshot.extend(data);
    let name = WalName::parse("0000000000000000-0000000000000000.wal").unwrap();
    for log in [data, &sealed] {
        let mut reader = WalReader::default();
        let _ = reader.read(&name, log.len() as u64, true, log).unwrap();
        let log_read = reader.finish();
        assert!(log_read.files[0].end <= log.len() as u64);
        let _ = wal::check_head(log);
        for (bytes, index) in [(data, 0), (&snapshot, u64::MAX)] {
            let named = log_read.files[0].snapshots.last().copied();
            let read = [
                snap::read_snapshot(bytes),
                named.ok_or(snap::SnapError::Empty),
            ];
            let snapshots = read.map(|read| SnapFile {
                name: String::new(),
                read,
            });
            let _ = start::predict_start(&MemberFiles {
                log: log_read.clone(),
                snapshots: snapshots.to_vec(),
                sent: vec![(index, None)],
                database: DatabaseState::Sound(index),
            });
        }
    }
}

/// Records of the bytes: a kind, a length, and so many bytes of data, each with the right sum.
fn sealed_log(mut data: &[u8]) -> Vec<u8> {
    let (mut log, mut sum) = (Vec::new(), 0);
    while !data.is_empty() {
        let kind = byte(&mut data) % 8;
        let length = usize::from(byte(&mut data)).min(data.len());
        let (own, rest) = data.split_at(length);
        data = rest;
        if kind != 4 {
            sum = crc32c(sum, own);
        }
        let mut record = vec![0x08, kind, 0x10];
        record.extend(varint(sum.into()));
        if kind != 4 {
            record.push(0x1a);
            record.extend(varint(length as u64));
            record.extend(own);
        }
        let padding = (8 - record.len() % 8) % 8;
        let mut frame = record.len() as u64;
        if padding > 0 {
            frame |= (0x80 | padding as u64) << 56;
        }
        record.resize(record.len() + padding, 0);
        log.extend(frame.to_le_bytes());
        log.extend(record);
    }
    log
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// CRC-32C, bit by bit.
fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(sum & 1))
        })
    };
    !bytes.iter().fold(!before, step)
}

/// Bytes of a page.
const PAGE: usize = 1024;

/// The database of etcd: the bytes as a file, and as changes (place and byte) of a sound one. Both get meta pages with right
/// sums, or hardly any would be looked at further.
pub fn etcd_database(data: &[u8]) {
    let mut changed = sound_database();
    let length = changed.len();
    for change in data.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % length;
        changed[at] = change[2];
    }
    if data.is_empty() {
        let sound = Database::open(&changed[..], length as u64).unwrap();
        sound.walk_pages().unwrap();
        let contents = sound.read_contents().unwrap();
        assert_eq!((contents.consistent_index, contents.alarms), (7, vec![1]));
    }
    for bytes in [data.to_vec(), with_sums(data.to_vec()), with_sums(changed)] {
        let length = bytes.len() as u64;
        let database = match Database::open(&bytes[..], length) {
            Ok(database) => database,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        let _ = database.is_short();
        for read in [database.read_contents().map(drop), database.walk_pages()] {
            // It never reads outside of the file: that is a fault of the database, and none of the disk.
            assert!(!matches!(read, Err(BoltError::Read(_))), "{read:?}");
        }
    }
}

/// Writes the sums of both meta pages anew.
fn with_sums(mut bytes: Vec<u8>) -> Vec<u8> {
    for meta in [16, PAGE + 16] {
        let Some(page) = bytes.get_mut(meta..meta + 64) else {
            continue;
        };
        let sum = page[..56].iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        page[56..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// A database with a tree of two leaves, and with buckets inside of the root page.
pub fn sound_database() -> Vec<u8> {
    let inline = |items: &[(u32, &[u8], &[u8])]| [vec![0; 16], bolt_page(0, 2, items)].concat();
    let index = inline(&[(0, b"consistent_index", &7_u64.to_be_bytes())]);
    let alarm = inline(&[(0, b"\x08\x01\x10\x01", b"")]);
    let tree = [4_u64.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    let revision = |number: u8| [vec![0; 7], vec![number, b'_'], vec![0; 8]].concat();
    let (first, second) = (revision(1), revision(2));
    let value = b"\x0a\x01a\x10\x01\x18\x01\x20\x01\x2a\x01b";
    let root: [(u32, &[u8], &[u8]); 3] = [
        (1, b"alarm", &alarm),
        (1, b"key", &tree),
        (1, b"meta", &index),
    ];
    let branch = [(5, &first[..]), (6, &second[..])];
    let pages = [
        meta_page(0),
        meta_page(1),
        bolt_page(2, 2, &root),
        bolt_page(3, 0x10, &[]),
        branch_page(4, &branch),
        bolt_page(5, 2, &[(0, &first, value)]),
        bolt_page(6, 2, &[(0, &second, value)]),
    ];
    let mut all = Vec::new();
    for mut page in pages {
        page.resize(PAGE, 0);
        all.extend(page);
    }
    with_sums(all)
}

fn page_header(id: u64, flags: u16, count: usize) -> Vec<u8> {
    let mut page = id.to_le_bytes().to_vec();
    page.extend(flags.to_le_bytes());
    page.extend((count as u16).to_le_bytes());
    page.extend([0; 4]);
    page
}

fn meta_page(id: u64) -> Vec<u8> {
    let mut page = page_header(id, 4, 0);
    for number in [0xed0c_daed_u32, 2, PAGE as u32, 0] {
        page.extend(number.to_le_bytes());
    }
    // Root bucket, its sequence, free pages, number of pages, commit.
    for number in [2, 0, 3, 7, id] {
        page.extend(number.to_le_bytes());
    }
    page.resize(16 + 64, 0);
    page
}

fn bolt_page(id: u64, flags: u16, items: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
    let mut page = page_header(id, flags, items.len());
    let mut at = 16 * items.len();
    for (place, (flags, key, value)) in items.iter().enumerate() {
        let position = at - 16 * place;
        for number in [
            *flags,
            position as u32,
            key.len() as u32,
            value.len() as u32,
        ] {
            page.extend(number.to_le_bytes());
        }
        at += key.len() + value.len();
    }
    for (_, key, value) in items {
        page.extend(*key);
        page.extend(*value);
    }
    page
}

fn branch_page(id: u64, items: &[(u64, &[u8])]) -> Vec<u8> {
    let mut page = page_header(id, 1, items.len());
    let mut at = 16 * items.len();
    for (place, (child, key)) in items.iter().enumerate() {
        page.extend(((at - 16 * place) as u32).to_le_bytes());
        page.extend((key.len() as u32).to_le_bytes());
        page.extend(child.to_le_bytes());
        at += key.len();
    }
    items.iter().for_each(|(_, key)| page.extend(*key));
    page
}

/// A database of Open vSwitch: no more records than lines, and a fault is in the file.
pub fn ovsdb_log(data: &[u8]) {
    for first in [true, false] {
        let log = ovsdb::read_ovsdb(&mut &data[..], first).unwrap();
        assert!(log.records <= data.len() as u64);
        assert!(
            log.fault
                .is_none_or(|stop| stop.offset <= data.len() as u64)
        );
    }
}

/// Checkpoints of the kubelet: each file is judged for each kubelet, and a refusal has words.
pub fn checkpoints(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let inside = json!({"data": text, "checksum": 1, "dataChecksum": 0}).to_string();
    let minor = text.lines().next().and_then(checkpoint::kubernetes_minor);
    for file in checkpoint::ALL {
        for minor in [minor, None, Some(31), Some(34)] {
            for bytes in [data, inside.as_bytes()] {
                let judged = file.judge_bytes(bytes, minor);
                if let checkpoint::CheckpointVerdict::Damaged { why, error } = judged.verdict {
                    assert!(!why.is_empty());
                    assert!(!file.kubelet_message(&error.unwrap_or_default()).is_empty());
                }
            }
        }
    }
}

/// A header of LUKS: the bytes as a device, and as the JSON in a header of two whole copies.
pub fn luks(data: &[u8]) {
    const SIZE: usize = 0x4000;
    let _ = parse_luks(data);
    if data.len() > SIZE - 4096 {
        return;
    }
    let copy = |mark: &[u8; 4], at: usize| {
        let mut bytes = vec![0; SIZE];
        bytes[..4].copy_from_slice(mark);
        bytes[4..8].copy_from_slice(b"\xba\xbe\x00\x02");
        bytes[8..16].copy_from_slice(&(SIZE as u64).to_be_bytes());
        bytes[72..78].copy_from_slice(b"sha256");
        bytes[256..264].copy_from_slice(&(at as u64).to_be_bytes());
        bytes[4096..4096 + data.len()].copy_from_slice(data);
        let digest = sha256_hex(&bytes);
        for at in 0..32 {
            bytes[448 + at] = u8::from_str_radix(&digest[2 * at..2 * at + 2], 16).unwrap();
        }
        bytes
    };
    let mut device = copy(b"LUKS", 0);
    device.extend(copy(b"SKUL", SIZE));
    let text = data.split(|byte| *byte == 0).next().unwrap_or_default();
    if serde_json::from_slice::<Value>(text).is_ok() {
        assert_eq!(parse_luks(&device).unwrap().damaged, None);
    }
    // One copy is damaged.
    device[500] ^= 1;
    let _ = parse_luks(&device);
    device.truncate(SIZE + data.len());
    let _ = parse_luks(&device);
}

/// Boot entries of EFI firmware, and the configurations of keepalived, haproxy and corosync.
pub fn node_files(data: &[u8]) {
    if let Some(entry) = boot_variables::parse_entry(data) {
        // A letter has two bytes, and at most three in the text.
        assert!(entry.title.len() <= 2 * data.len());
        assert!(entry.file.unwrap_or_default().len() <= 2 * data.len());
    }
    let text = String::from_utf8_lossy(data);
    let lines = text.lines().count();
    let found = virtual_addresses::parse_keepalived(&text);
    assert!(found.instances.len() + found.scripts.len() <= lines);
    assert!(virtual_addresses::count_servers(&text) <= lines);
    assert!(Corosync::parse(&text).nodes.len() <= lines);
    assert!(two_nodes::parse_members(&text).len() <= lines);
}

/// Files of the recorder: the bytes as each of them, and as the text in one that is whole.
pub fn recorded(data: &[u8]) {
    let name = |text: &[u8]| sha256_hex(text)[..32].to_owned();
    let mut snapshot = Snapshot::default();
    let _ = format::unpack_part(&name(data), data, &mut snapshot);
    let packed = format::pack_text(data).unwrap();
    let _ = format::unpack_part(&name(data), &packed, &mut snapshot);
    for (name, text) in format::part_texts(&snapshot).unwrap().values() {
        let mut again = Snapshot::default();
        format::unpack_part(name, &format::pack_text(text).unwrap(), &mut again).unwrap();
    }
    let mut record = Vec::new();
    sealed::write_sealed(|out| out.write_all(data), &mut record).unwrap();
    for bytes in [data, &record] {
        if let Ok(record) = format::parse_record(bytes) {
            let again = format::record_bytes(&record).unwrap();
            assert_eq!(format::parse_record(&again).as_ref(), Ok(&record));
        }
    }
    let text = String::from_utf8_lossy(data);
    let text = format!("mco-rescue-digests-1 key\n{text}\n");
    let known = format!("{text}{}\n", sha256_hex(text.as_bytes()));
    for bytes in [data, known.as_bytes()] {
        let known = KnownFiles::parse(bytes, "key");
        assert_eq!(KnownFiles::parse(&known.to_bytes("key"), "key"), known);
    }
    for file in text.lines() {
        let _ = format::is_leftover(file);
        if let Some(number) = format::record_of_file(file) {
            assert_eq!(
                format::record_of_file(&format::record_file(number)),
                Some(number)
            );
        }
    }
}

/// Keys to encrypt to: lines, and keys of ssh whose numbers are the bytes. To a key that is accepted a file can be encrypted, or
/// the reason is said.
pub fn recipients(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (one, two) = data.split_at(
        data.len()
            .min(usize::from(data.first().copied().unwrap_or(0))),
    );
    let made = [
        ssh_line("ssh-rsa", &[one, two]),
        ssh_line("ssh-rsa", &[&[1, 0, 1], data]),
        ssh_line("ssh-ed25519", &[data]),
    ];
    let lines = text.lines().take(16).map(str::to_owned);
    for line in lines.chain(made) {
        match Recipient::parse(&line) {
            Ok(key) => {
                assert!(!key.shown().is_empty());
                let _ = age::encrypt_to(b"text", &[key]).map_err(|error| error.to_string());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn ssh_line(kind: &str, fields: &[&[u8]]) -> String {
    let mut blob = Vec::new();
    for field in [kind.as_bytes()].iter().chain(fields) {
        blob.extend((field.len() as u32).to_be_bytes());
        blob.extend(*field);
    }
    format!("{kind} {}", base64(&blob))
}

/// Documents of nodes, one on each line: whatever can be read is compared, and no node is lost.
pub fn fleet_documents(data: &[u8]) {
    let mut nodes = Vec::new();
    for (number, line) in data.split(|byte| *byte == b'\n').take(16).enumerate() {
        let text = String::from_utf8_lossy(line);
        let path: Vec<String> = text.split('/').map(str::to_owned).collect();
        let name = fleet::node_of_document(&path).or_else(|| fleet::node_of_bundle(&text));
        let mut node = FleetNode {
            name: name.unwrap_or_else(|| format!("{text}{number}")),
            ..FleetNode::default()
        };
        match fleet::read_document(line) {
            Ok(document) => node.add_document(document),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        if let Ok(value) = serde_json::from_slice::<Value>(line) {
            node.add_document(fleet::NodeDocument::Status(value.clone()));
            node.add_document(fleet::NodeDocument::Doctor(value));
        }
        let _ = (node.pool().is_some(), node.status_time());
        let _ = node.status.as_ref().map(fleet::five_facts);
        nodes.push(node);
    }
    let number = nodes.len();
    let fleet = Fleet::new(nodes, Vec::new(), 0);
    assert_eq!(fleet.nodes.len(), number);
}

/// A kubelet.conf, then objects of the API, then settings, with lines of dashes between them: each object is refused with
/// its place, or becomes a kubelet.conf that can be read.
pub fn kubelet_configs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut pieces = text.splitn(3, "\n---\n---\n");
    let conf = pieces.next().unwrap_or_default();
    let contents: String = conf.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let part = json!({
        "metadata": {"name": "98-worker-generated-kubelet", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/kubernetes/kubelet.conf", "contents": {"source": format!("data:,{contents}")}},
        ]}}},
    });
    let objects = pieces.next().unwrap_or_default();
    let objects = read_objects(objects.as_bytes(), "fuzz").unwrap_or_default();
    let parts = [("98-worker-generated-kubelet".to_owned(), part.clone())].into();
    for base in [Base::Parts(parts), Base::Rendered(part)] {
        let generation = generate_configs(&Cluster::new(objects.clone(), base, "worker"));
        for refusal in &generation.refusals {
            assert!(!refusal.message.is_empty() && refusal.place.starts_with("fuzz"));
        }
        let files = generation.configs.iter().flat_map(|config| &config.files);
        for file in files.filter(|file| file.path == "/etc/kubernetes/kubelet.conf") {
            let written = String::from_utf8(file.contents.clone()).unwrap();
            let read = yaml::parse_yaml(&written);
            assert!(read.is_ok_and(|value| value.is_object()), "{written}");
        }
    }
    let settings: Vec<&str> = pieces.next().unwrap_or_default().lines().collect();
    let pool = ConfigPool::built_in("worker").unwrap();
    let _ = from_settings(&pool, &settings);
}

/// A storage.conf, then objects of the API, then settings, with lines of dashes between them: each object is refused with its
/// place, or becomes files below `/etc` that are valid TOML.
pub fn runtime_configs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut pieces = text.splitn(3, "\n---\n---\n");
    let storage = pieces.next().unwrap_or_default();
    let entry = GeneratedFile::new("/etc/containers/storage.conf", storage.as_bytes()).entry();
    let part = json!({
        "metadata": {"name": "00-worker", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [entry]}}},
    });
    let objects = pieces.next().unwrap_or_default();
    let objects = read_objects(objects.as_bytes(), "fuzz").unwrap_or_default();
    let is_sound = toml::from_str::<toml::Table>(storage).is_ok();
    let parts = [("00-worker".to_owned(), part.clone())].into();
    for base in [Base::Parts(parts), Base::Rendered(part)] {
        let generation = generate_configs(&Cluster::new(objects.clone(), base, "worker"));
        for refusal in &generation.refusals {
            assert!(!refusal.message.is_empty() && refusal.place.starts_with("fuzz"));
        }
        for file in generation.configs.iter().flat_map(|config| &config.files) {
            let written = String::from_utf8_lossy(&file.contents);
            let is_toml = file.path.starts_with("/etc/crio/crio.conf.d/")
                || is_sound && file.path == "/etc/containers/storage.conf";
            assert!(file.path.starts_with("/etc/"), "{}", file.path);
            assert!(
                !is_toml || toml::from_str::<toml::Table>(&written).is_ok(),
                "{written}"
            );
        }
    }
    let settings: Vec<&str> = pieces.next().unwrap_or_default().lines().collect();
    let pool = ConfigPool::built_in("worker").unwrap();
    let _ = runtime::from_settings(&pool, &settings);
}

/// Objects of mirrors and policies, then a registries.conf, then a policy.json, between lines `---8<---`.
pub fn registry_objects(data: &[u8]) {
    const CONF: &str = "/etc/containers/registries.conf";
    let text = String::from_utf8_lossy(data);
    let mut parts = text.split("\n---8<---\n");
    let mut next = || parts.next().unwrap_or_default();
    let (objects, conf, policy) = (next(), next(), next());
    let files = [(CONF, conf), ("/etc/containers/policy.json", policy)]
        .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    let entries = files
        .iter()
        .map(|(path, bytes)| GeneratedFile::new(path.as_str(), bytes.as_slice()).entry());
    let entries: Vec<Value> = entries.collect();
    let config = json!({ "spec": { "config": { "storage": { "files": entries } } } });
    for file in mirror_files::owned_files(&config) {
        assert!(file.path.starts_with("/etc/"));
    }
    let files = mirror_files::files_in_force(&config);
    if let Ok(inverted) = mirror_files::invert_files(&files) {
        let mirrors: Vec<String> = objects.lines().take(3).map(str::to_owned).collect();
        let source = conf.lines().last().unwrap_or_default();
        if let Ok(change) =
            mirror_files::add_mirror(&inverted, source, &mirrors, mirrors.len() > 2, false)
        {
            assert_eq!(change.objects.len(), inverted.objects.len() + 1);
        }
    }
    let Ok(objects) = read_objects(objects.as_bytes(), "objects.yaml") else {
        return;
    };
    let mut cluster = Cluster::new(objects, Base::Rendered(config), "worker");
    cluster.gates = Some([("SigstoreImageVerification".to_owned(), true)].into());
    let made = generate_configs(&cluster);
    for refusal in made.refusals {
        assert!(!refusal.message.is_empty() && !refusal.advice.is_empty());
    }
    let mut made = made.configs.iter();
    let registries = made.find(|config| config.name == "99-worker-generated-registries");
    let made = registries.into_iter().flat_map(|config| &config.files);
    let made = made.map(|file| (file.path.clone(), file.contents.clone()));
    let _ = mirror_files::invert_files(&made.collect());
}

/// A Butane config: it is refused with a reason, or its MachineConfig is text that is read back as the same object.
pub fn butane_configs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _ = butane::is_butane(&text);
    for raw in [false, true] {
        let translation = butane::translate_butane(&text, None, butane::OutputOptions { raw });
        assert_eq!(translation.output.is_some(), translation.error.is_none());
        assert!(
            translation
                .report
                .iter()
                .all(|entry| entry.line > 0 && entry.column > 0)
        );
        if let (Some(output), Some(object)) = (&translation.output, &translation.machine_config) {
            // Go's large numbers are read as floats, and a few line ends differ between readers.
            if let Ok(read) = yaml::parse_yaml(output)
                && !output.contains("e+")
            {
                assert_eq!(&read, object);
            }
        }
    }
}
