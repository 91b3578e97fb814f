use std::collections::BTreeMap;

use super::*;
use crate::config::controllers::{Base, ConfigPool, read_objects};

const TEMPLATE: &str = "# A comment.\n[storage]\ndriver = \"overlay\"\nrunroot = \"/run/storage\"\n\
     graphroot = \"/var/lib/storage\"\n[storage.options]\nadditionalimagestores = [\n]\n\
     [storage.options.pull_options]\nuse_hard_links = \"false\"\nenable_partial_images = \"true\"\n\
     [storage.options.overlay]\nskip_mount_home = \"true\"\nsize = \"\"\n";

fn cluster(objects: &str, gate: Option<bool>) -> Cluster {
    let file = GeneratedFile::new(STORAGE, TEMPLATE);
    let template = GeneratedConfig {
        name: "00-worker".to_owned(),
        pool: "worker".to_owned(),
        files: vec![file],
        ..GeneratedConfig::default()
    };
    let parts = BTreeMap::from([("00-worker".to_owned(), template.object(None))]);
    Cluster {
        pools: vec![
            ConfigPool::built_in("master").unwrap(),
            ConfigPool::built_in("worker").unwrap(),
        ],
        objects: read_objects(objects.as_bytes(), "limits.yaml").unwrap(),
        gates: gate.map(|on| BTreeMap::from([(validate::GATE.to_owned(), on)])),
        release_image: None,
        base: Base::Parts(parts),
    }
}

fn object(name: &str, metadata: &str, config: &str) -> String {
    format!(
        "---\napiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata:\n  name: {name}\n\
         {metadata}spec:\n  machineConfigPoolSelector:\n    matchLabels:\n      \
         pools.operator.machineconfiguration.openshift.io/worker: \"\"\n  containerRuntimeConfig: {config}\n"
    )
}

fn generate(cluster: &Cluster) -> Generation {
    let mut generation = Generation::default();
    sync_runtime(cluster, &mut generation);
    generation
}

/// Values, and the words with which they are refused.
const REFUSED: &[(&str, &str)] = &[
    ("{pidsLimit: 19}", "invalid PidsLimit 19"),
    ("{pidsLimit: -1}", "invalid PidsLimit -1"),
    (
        "{pidsLimit: \"many\"}",
        "pidsLimit has to be a whole number, but is \"many\"",
    ),
    (
        "{logSizeMax: 8Ki}",
        "invalid LogSizeMax \"8Ki\", cannot be less than 8kB",
    ),
    (
        "{overlaySize: -1G}",
        "invalid overlaySize \"-1G\", cannot be less than 0",
    ),
    (
        "{overlaySize: 8GB}",
        "overlaySize is \"8GB\": quantities must match the regular expression \
             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    ),
    (
        "{logLevel: loud}",
        "invalid LogLevel \"loud\", must be one of error, fatal, panic, warn, info, debug, or trace",
    ),
    (
        "{defaultRuntime: kata}",
        "invalid DefaultRuntime \"kata\", must be one of crun, runc",
    ),
    (
        "{additionalLayerStores: [{path: \"\"}, {path: /a//b}], additionalImageStores: [{path: a b}]}",
        "invalid AdditionalLayerStores: path must not be empty\ninvalid AdditionalLayerStores path \"/a//b\": must \
             not contain consecutive forward slashes\ninvalid AdditionalImageStores path \"a b\": must be an absolute \
             path containing only alphanumeric characters, '/', '.', '_', and '-'",
    ),
    (
        "null",
        "spec.containerRuntimeConfig is missing; this stops the operator's controller",
    ),
];

#[test]
fn refuses_values_in_the_controllers_words() {
    for &(config, words) in REFUSED {
        let generation = generate(&cluster(&object("a", "", config), Some(false)));
        let messages: Vec<&str> = generation
            .refusals
            .iter()
            .map(|refusal| refusal.message.as_str())
            .collect();
        assert_eq!(messages, [words], "{config}");
        assert!(generation.configs.is_empty(), "{config}");
        let refusal = &generation.refusals[0];
        assert!(
            refusal.place.starts_with("limits.yaml: spec"),
            "{}",
            refusal.place
        );
        assert!(refusal.place.contains("line"), "{}", refusal.place);
        assert!(!refusal.advice.is_empty());
    }
}

#[test]
fn writes_stores_only_with_the_gate() {
    let config = "{additionalLayerStores: [{path: /layers}], additionalImageStores: [{path: /images}, {path: /more}], \
                  additionalArtifactStores: [{path: /artifacts}]}";
    let on = generate(&cluster(&object("a", "", config), Some(true)));
    let files: Vec<(&str, String)> = on.configs[0]
        .files
        .iter()
        .map(|file| {
            (
                file.path.as_str(),
                String::from_utf8(file.contents.clone()).unwrap(),
            )
        })
        .collect();
    let storage = "[storage]\n  driver = \"overlay\"\n  runroot = \"/run/storage\"\n  graphroot = \"/var/lib/storage\"\n  \
                   [storage.options]\n    additionalimagestores = [\"/images\", \"/more\"]\n    additionallayerstores = \
                   [\"/layers:ref\"]\n    force_mask = 0\n    auto-userns-min-size = 0\n    auto-userns-max-size = 0\n    \
                   [storage.options.overlay]\n      skip_mount_home = \"true\"\n    [storage.options.pull_options]\n      \
                   enable_partial_images = \"true\"\n      use_hard_links = \"false\"\n";
    let artifacts =
        "[crio]\n  [crio.runtime]\n    additional_artifact_stores = [\"/artifacts\"]\n".to_owned();
    let path = "/etc/crio/crio.conf.d/01-ctrcfg-additionalArtifactStores";
    assert_eq!(files, [(STORAGE, storage.to_owned()), (path, artifacts)]);
    assert!(on.notes.is_empty(), "{:?}", on.notes);
    let off = generate(&cluster(&object("a", "", config), Some(false)));
    assert!(off.configs[0].files.is_empty());
    assert!(
        off.notes
            .iter()
            .any(|note| note.text.contains("is off") && !note.inexact)
    );
    let unknown = generate(&cluster(&object("a", "", config), None));
    assert!(
        unknown
            .notes
            .iter()
            .any(|note| note.text.contains("unknown") && note.inexact)
    );
}

#[test]
fn counts_names_as_the_controller_does() {
    let at = |day: &str| format!("  creationTimestamp: \"2026-01-{day}T00:00:00Z\"\n");
    let config = "{pidsLimit: 2048}";
    let names = |objects: &[String]| -> Vec<String> {
        let generation = generate(&cluster(&objects.concat(), Some(false)));
        let names = generation.configs.iter().map(|made| made.name.clone());
        names
            .chain(
                generation
                    .refusals
                    .iter()
                    .map(|refusal| refusal.message.clone()),
            )
            .collect()
    };
    let plain = "99-worker-generated-containerruntime";
    let in_turn = [object("a", "", config), object("b", "", config)];
    assert_eq!(names(&in_turn), [plain.to_owned(), format!("{plain}-1")]);
    let both_there = [
        object("a", &at("01"), config),
        object("b", &at("02"), config),
    ];
    assert_eq!(
        names(&both_there),
        [format!("{plain}-1"), format!("{plain}-2")]
    );
    let suffix = |text: &str| {
        format!(
            "  annotations:\n    machineconfiguration.openshift.io/mc-name-suffix: \"{text}\"\n"
        )
    };
    let annotated = [object("a", &suffix("9"), config), object("b", "", config)];
    assert_eq!(
        names(&annotated),
        [format!("{plain}-9"), TOO_MANY.to_owned()]
    );
    let odd = [object("a", &suffix("x"), config), object("b", "", config)];
    assert_eq!(
        names(&odd)[1],
        "error converting x to int: strconv.Atoi: parsing \"x\": invalid syntax"
    );
}

#[test]
fn refuses_runc_where_the_pool_takes_rhel_10() {
    let stream = "---\napiVersion: machineconfiguration.openshift.io/v1alpha1\nkind: OSImageStream\nmetadata:\n  name: \
                  cluster\nstatus:\n  defaultStream: rhel-10\n";
    let runc = object("a", "", "{defaultRuntime: runc}") + stream;
    let refused = generate(&cluster(&runc, Some(false)));
    assert!(
        refused.refusals[0]
            .message
            .starts_with("MachineConfigPool worker targets a RHEL 10")
    );
    assert!(refused.configs.is_empty());
    let crun = object("a", "", "{defaultRuntime: crun}") + stream;
    assert_eq!(generate(&cluster(&crun, Some(false))).configs.len(), 1);
}

#[test]
fn on_a_rendered_config_says_what_an_earlier_object_left() {
    let mut node = cluster(&object("a", "", "{overlaySize: 8G}"), Some(false));
    let earlier = generate(&cluster(
        &object("b", "", "{overlaySize: 7G, pidsLimit: 100}"),
        Some(false),
    ));
    node.base = Base::Rendered(earlier.configs[0].object(None));
    let generation = generate(&node);
    let texts: Vec<&str> = generation
        .notes
        .iter()
        .map(|note| note.text.as_str())
        .collect();
    assert!(
        texts.iter().any(|text| text.contains("already rewritten")),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("pidsLimit stays")),
        "{texts:?}"
    );
    assert!(generation.notes.iter().all(|note| note.inexact));
    let exact = generate(&cluster(&object("a", "", "{overlaySize: 8G}"), Some(false)));
    assert_eq!(generation.configs[0].files, exact.configs[0].files);
}

#[test]
fn makes_objects_of_settings() {
    let pool = ConfigPool::built_in("worker").unwrap();
    let made = from_settings(&pool, &["pidsLimit=4096", "overlaySize=8G"]).unwrap();
    let text = serde_json::to_string(&made).unwrap();
    let mut cluster = cluster(&text, Some(false));
    cluster.pools.retain(|pool| pool.name == "worker");
    let generation = generate(&cluster);
    assert_eq!(generation.configs[0].files.len(), 2);
    for (settings, words) in [
        (&["pidsLimit"][..], "no `=`"),
        (&["pidsLimits=3"], "not a field"),
        (&["pidsLimit=many"], "whole number"),
        (&["logLevel=info", "loglevel=warn"], "given twice"),
        (&[], "no setting"),
    ] {
        let error = from_settings(&pool, settings).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}
