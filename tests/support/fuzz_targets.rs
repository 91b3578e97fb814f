//! What every fuzz target does with a piece of data: run by `cargo fuzz` on what it makes up, and by
//! `tests/config/corpus.rs` on a short corpus. A target panics when the program would, or when what it promises fails.

use std::sync::OnceLock;

use mco_rescue::command::HostRunner;
use mco_rescue::command::bootc::BootcStatus;
use mco_rescue::command::origin::Origin;
use mco_rescue::command::ostree::StagedFile;
use mco_rescue::command::rpm_ostree::arguments::Version;
use mco_rescue::command::rpm_ostree::cause::RpmOstreeError;
use mco_rescue::command::rpm_ostree::status::{self, Deployments, StatusText};
use mco_rescue::daemon;
use mco_rescue::daemon::actions::Changed;
use mco_rescue::daemon::policies;
use mco_rescue::daemon::registries::{self, RegistryChange};
use mco_rescue::document::{self, ContentsError, Desired, MachineConfig, yaml};
use mco_rescue::drift;
use mco_rescue::images::auth::Secrets;
use mco_rescue::images::manifest::Manifest;
use mco_rescue::images::policy::SignaturePolicy;
use mco_rescue::images::registries::Registries;
use mco_rescue::images::tree::{self, ModuleLists};
use mco_rescue::images::{ImageName, pull, storage};
use mco_rescue::kargs::Kargs;
use mco_rescue::node::bootloader::{self, BootEntry};
use mco_rescue::node::os_release::OsRelease;
use mco_rescue::node::platform::{Interface, LinkFile, of_arguments, pinned_by_arguments};
use mco_rescue::node::pod_manifest::PodManifest;
use mco_rescue::node::{self, Accounts, NodeState, Records};
use mco_rescue::plan::{self, Inputs, Options};
use mco_rescue::render::{self, Pool};
use mco_rescue::root::Root;
use mco_rescue::systemd::unit_name::UnitName;
use mco_rescue::systemd::{InstallSection, PresetDir, Presets, Support, unit_file};
use serde_json::{Map, Value, json};

/// The body of a target.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: [(&str, Target); 9] = [
    ("document", document),
    ("data_url", data_url),
    ("gunzip", gunzip),
    ("units", units),
    ("accounts", accounts),
    ("go_yaml", go_yaml),
    ("render", rendering),
    ("kargs", kargs),
    ("answers", answers),
];

/// A document of any kind: it is refused with at least one error, or it can be planned on a node.
pub fn document(data: &[u8]) {
    match document::parse(data, "fuzz") {
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
        Options::default(),
        Options {
            request_force: false,
            ignore_unsupported: true,
            files_only: true,
            allow_lockout: true,
            allow_account_files: true,
        },
    ] {
        let inputs = Inputs {
            crossing: &[],
            accounts: None,
            overrides: None,
            config,
            desired: &desired,
            baseline: records.baseline(),
            old: None,
            records,
            node,
        };
        let plan = plan::changes(inputs, options);
        let _ = plan::step_drifts(&plan.steps, desired.bare);
    }
    let _ = drift::daemon_verdict(&config.name, None, &drift::find_drifts(&desired, node));
    let _ = document::find_refusals(config, config);
    let _ = document::unconditional_refusals(config);
    let unchanged = daemon::decide_update(config, config, &daemon::default_policies(), false);
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
        let node = node::observe(&root, Default::default(), &HostRunner).unwrap();
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
        let _ = InstallSection::default().read(&name, &text, &support);
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
        assert_eq!(after.password(user), Some("$6$a$b"), "{user:?}");
    }
}

/// What is hashed for the name of a rendered config is YAML that reads as the same value.
pub fn go_yaml(data: &[u8]) {
    let mut data = data;
    let config = json!({"a": value(&mut data, 0)});
    let text = render::hashed_text(&json!({ "config": config })).unwrap();
    if text.contains(['\u{85}', '\u{2028}', '\u{2029}']) {
        assert!(yaml::parse(&text).is_err(), "{text}");
        return;
    }
    let read = yaml::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(read["config"], config, "{text}");
    assert_eq!(
        render::hashed_text(&read).as_deref(),
        Ok(text.as_str()),
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
    let changed = present.apply_changes(&changes).unwrap();
    assert!(
        changed.changes_to(&wanted).is_empty(),
        "{changed}: {wanted}"
    );
}

/// What rpm-ostree, podman, the boot loader and the containers tools leave to be read: nothing of it ends us, and every
/// cause has words and a next step.
pub fn answers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let cause = RpmOstreeError::of_words(&text);
    assert!(!cause.next_step().is_empty() && !cause.kind().is_empty());
    let _ = (
        cause.to_string(),
        Version::parse_answer(&text),
        StatusText::read(&text),
    );
    let _ = (status::finalize_failure(&text), status::begun(&text));
    let _ = (StagedFile::parse(data), Origin::parse(&text));
    if let Ok(here) = BootcStatus::read(&text) {
        let all = here.deployments(&|_| None).all;
        assert!(all.iter().filter(|one| one.booted).count() <= 1);
        assert!(all.iter().enumerate().all(|(at, one)| one.index == at));
    }
    if let Ok(here) = Deployments::read(&text) {
        assert!(here.all.iter().filter(|one| one.booted).count() <= 1);
        let _ = (here.rollback(), here.layers(), here.pinned_copy_of_booted());
        for one in &here.all {
            assert_eq!(
                here.named(&one.name()).map(|other| &other.checksum),
                Some(&one.checksum)
            );
            let _ = here.standing(&one.image(), one.digest.as_deref());
        }
    }
    if let Ok(pod) = PodManifest::parse(data) {
        let of_config = pod.named_in_config(data).unwrap_or_default();
        let mut named = pod.named.iter().chain(&of_config);
        assert!(named.all(|path| path.starts_with("/etc/kubernetes/static-pod-resources/")));
    }
    let registries = registries::change_of_texts(&text, &text);
    assert!(
        !matches!(registries, RegistryChange::Unsafe(_)),
        "nothing changed, and it is unsafe"
    );
    if let Ok(brought) = policies::in_file(&text, "fuzz", 0) {
        let changed = Changed {
            files: vec!["/etc/containers/policy.json", &text],
            units: vec!["crio.service"],
            users: true,
        };
        let queue = daemon::actions::action_queue(&changed, &brought.policies.cluster);
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
        let _ = (entry.ostree(), entry.kernel_directory());
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
    let _ = file.applies(&Interface::default(), None, Some("igb"));
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
        let trace = pull::Trace::of(&image, &registries, &secrets, &policy);
        assert!(!trace.sources.is_empty() && !trace.to_string().is_empty());
        assert!(trace.blocked().is_some() || trace.asked().count() > 0);
    }
}
