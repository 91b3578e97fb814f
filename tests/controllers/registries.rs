//! Mirrors, blocked registries and image policies: the files that they become, and the way back.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use mco_rescue::config::controllers::registries::{
    Inverted, add_mirror, files_in_force, invert_files, owned_files, remove_mirror,
};
use mco_rescue::config::controllers::{
    ApiObject, Base, Cluster, ConfigPool, GeneratedFile, Generation, generate_configs, read_objects,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{say, shared_data};

type Files = BTreeMap<String, Vec<u8>>;

const CONF: &str = "/etc/containers/registries.conf";
const POLICY: &str = "/etc/containers/policy.json";
const SIGSTORE: &str = "/etc/containers/registries.d/sigstore-registries.yaml";
const SEARCH: &str = "/etc/containers/registries.conf.d/01-image-searchRegistries.conf";
const RELEASE: &str =
    "r.test/rel/image@sha256:1111111111111111111111111111111111111111111111111111111111111111";
const TEMPLATE: &str =
    "unqualified-search-registries = ['registry.access.redhat.com', 'docker.io']\n";
const HEADER: &str = "unqualified-search-registries = [\"registry.access.redhat.com\", \"docker.io\"]\n\
                      short-name-mode = \"\"\nadditional-layer-store-auth-helper = \"\"\n";

/// A rendered config with these files, and the template's registries.conf if there is no other.
fn rendered(files: &Files) -> Value {
    let template = (CONF.to_owned(), TEMPLATE.as_bytes().to_vec());
    let mut all = Files::from([template]);
    all.extend(files.clone());
    let files = all
        .into_iter()
        .map(|(path, bytes)| GeneratedFile::new(path, bytes).entry());
    json!({ "spec": { "config": { "storage": { "files": files.collect::<Vec<Value>>() } } } })
}

fn cluster(objects: Vec<ApiObject>, files: &Files) -> Cluster {
    Cluster {
        pools: vec![ConfigPool::built_in("worker").unwrap()],
        objects,
        gates: Some(BTreeMap::from([(
            "SigstoreImageVerification".to_owned(),
            true,
        )])),
        release_image: Some(RELEASE.to_owned()),
        base: Base::Rendered(rendered(files)),
    }
}

fn image(lists: &str) -> String {
    format!(
        "apiVersion: config.openshift.io/v1\nkind: Image\nmetadata:\n  name: cluster\nspec:\n  registrySources: {lists}\n"
    )
}

/// A mirror set of one rule.
fn mirrors(kind: &str, rule: &str) -> String {
    let (api, list) = match kind {
        "ImageDigestMirrorSet" => ("config.openshift.io/v1", "imageDigestMirrors"),
        "ImageTagMirrorSet" => ("config.openshift.io/v1", "imageTagMirrors"),
        _ => ("operator.openshift.io/v1alpha1", "repositoryDigestMirrors"),
    };
    format!(
        "apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: set\nspec:\n  {list}:\n  - {rule}\n"
    )
}

fn policy(kind: &str, scopes: &str) -> String {
    let namespace = if kind == "ImagePolicy" {
        "  namespace: team\n"
    } else {
        ""
    };
    format!(
        "apiVersion: config.openshift.io/v1\nkind: {kind}\nmetadata:\n  name: signed\n{namespace}spec:\n  scopes: {scopes}\n  policy:\n    rootOfTrust:\n      policyType: PublicKey\n      publicKey:\n        keyData: a2V5\n"
    )
}

fn objects(documents: &[String]) -> Vec<ApiObject> {
    read_objects(documents.join("---\n").as_bytes(), "set.yaml").unwrap()
}

fn generation(documents: &[String]) -> Generation {
    generate_configs(&cluster(objects(documents), &Files::new()))
}

fn files_of(generation: &Generation) -> Files {
    let messages: Vec<&str> = generation
        .refusals
        .iter()
        .map(|r| r.message.as_str())
        .collect();
    assert_eq!(messages, Vec::<&str>::new());
    // The kubelet's controller writes its own where the feature gates are known.
    let own = |name: &str| name.ends_with("-generated-registries");
    let configs = generation.configs.iter().filter(|config| own(&config.name));
    let [config] = &configs.collect::<Vec<_>>()[..] else {
        panic!("one pool, {} configs", generation.configs.len());
    };
    assert_eq!(config.name, "99-worker-generated-registries");
    config
        .files
        .iter()
        .map(|file| (file.path.clone(), file.contents.clone()))
        .collect()
}

fn text<'a>(files: &'a Files, path: &str) -> &'a str {
    files
        .get(path)
        .map_or("(missing)", |bytes| std::str::from_utf8(bytes).unwrap())
}

/// The controller's words, the place and the advice of the only refusal.
fn refusal(generation: &Generation) -> (&str, &str, &str) {
    let [refusal] = &generation.refusals[..] else {
        panic!("{:?}", generation.refusals);
    };
    assert!(generation.configs.is_empty());
    (&refusal.message, &refusal.place, &refusal.advice)
}

#[test]
fn the_old_and_the_new_kind_of_mirrors_give_the_same_bytes() {
    let rule = "{source: quay.io/app, mirrors: [b.test/app, a.test/app]}";
    let [old, new] = ["ImageContentSourcePolicy", "ImageDigestMirrorSet"]
        .map(|kind| files_of(&generation(&[image("{}"), mirrors(kind, rule)])));
    assert_eq!(old, new);
    let entry = "\n[[registry]]\n  prefix = \"\"\n  location = \"quay.io/app\"\n\n  [[registry.mirror]]\n    location = \"b.test/app\"\n    pull-from-mirror = \"digest-only\"\n\n  [[registry.mirror]]\n    location = \"a.test/app\"\n    pull-from-mirror = \"digest-only\"\n";
    assert_eq!(text(&old, CONF), format!("{HEADER}{entry}"));
}

#[test]
fn empty_lists_count_for_some_files() {
    let none: [&str; 0] = [];
    let rows = [
        ("{}", &none[..]),
        ("{insecureRegistries: []}", &[CONF]),
        ("{blockedRegistries: []}", &none),
        ("{allowedRegistries: []}", &none),
        ("{containerRuntimeSearchRegistries: []}", &[SEARCH]),
        (
            "{insecureRegistries: null, containerRuntimeSearchRegistries: null}",
            &none,
        ),
    ];
    for (lists, expected) in rows {
        let files = files_of(&generation(&[image(lists)]));
        assert_eq!(files.keys().collect::<Vec<_>>(), expected, "{lists}");
        assert!([HEADER, "(missing)"].contains(&text(&files, CONF)));
    }
    let without_mirrors = mirrors("ImageTagMirrorSet", "{source: quay.io/app}");
    let files = files_of(&generation(&[image("{}"), without_mirrors]));
    assert_eq!(text(&files, CONF), HEADER);
}

#[test]
fn search_registries_are_a_drop_in_of_three_lines() {
    let lists = r#"{containerRuntimeSearchRegistries: ["a\"b\\c\u0001", q.test]}"#;
    let files = files_of(&generation(&[image(lists)]));
    let first = r#"unqualified-search-registries = ["a\"b\\c\u0001", "q.test"]"#;
    let expected =
        format!("{first}\nshort-name-mode = \"\"\nadditional-layer-store-auth-helper = \"\"\n");
    assert_eq!(text(&files, SEARCH), expected);
}

#[test]
fn refusals_name_the_place_and_the_next_step() {
    let conf = "could not Create/Update MachineConfig: could not update registries config with new changes: ";
    let json =
        "could not Create/Update MachineConfig: could not update policy json with new changes: ";
    let digest = |rule: &str| mirrors("ImageDigestMirrorSet", rule);
    let rows: [(Vec<String>, String, &str); 8] = [
        (
            vec![image("{insecureRegistries: [ok.test, 'a*']}")],
            format!("{conf}invalid entry for insecure registries \"a*\""),
            "set.yaml: spec.registrySources.insecureRegistries[1] (line 6)",
        ),
        (
            vec![
                image("{}"),
                digest("{source: 'q.io:v1/x', mirrors: [m.test]}"),
            ],
            format!("{conf}invalid format for source \"q.io:v1/x\""),
            "set.yaml: spec.imageDigestMirrors[0].source (line 14)",
        ),
        (
            vec![
                image("{}"),
                digest("{source: q.io, mirrors: [m.test, 'https://m.test']}"),
            ],
            format!("{conf}invalid format for mirror \"https://m.test\""),
            "set.yaml: spec.imageDigestMirrors[0].mirrors[1] (line 14)",
        ),
        (
            vec![
                image("{}"),
                digest("{source: q.io, mirrors: [m.test], mirrorSourcePolicy: NeverContactSource}"),
                mirrors("ImageTagMirrorSet", "{source: q.io, mirrors: [n.test]}"),
            ],
            format!(
                "{conf}conflicting mirrorSourcePolicy is set for the same source \"q.io\" in imagedigestmirrorsets, imagetagmirrorsets, or imagecontentsourcepolicies"
            ),
            "set.yaml: spec.imageTagMirrors[0] (line 22)",
        ),
        (
            vec![
                image("{}"),
                digest(
                    "{source: q.io, mirrors: [m.test, q.io], mirrorSourcePolicy: NeverContactSource}",
                ),
            ],
            format!(
                "{conf}cannot set mirrorSourcePolicy: NeverContactSource if the source \"q.io\" is one of the mirrors"
            ),
            "set.yaml: spec.imageDigestMirrors[0].mirrors[1] (line 14)",
        ),
        (
            vec![
                image("{insecureRegistries: [a.corp.test]}"),
                digest("{source: '*.corp.test', mirrors: [m.test]}"),
            ],
            format!(
                "{conf}internal error: mirrorsAdjustedForNestedScope for a wildcard scope \"*.corp.test\""
            ),
            "set.yaml: spec.registrySources (line 6)",
        ),
        (
            vec![image(
                "{blockedRegistries: [a.test], allowedRegistries: [b.test]}",
            )],
            format!(
                "{json}invalid images config: only one of AllowedRegistries or BlockedRegistries may be specified"
            ),
            "set.yaml: spec.registrySources.blockedRegistries (line 6)",
        ),
        (
            vec![
                image("{allowedRegistries: [b.test]}"),
                policy("ClusterImagePolicy", "[a.test/x]"),
            ],
            format!(
                "{json}clusterimagePolicy configured for the scope a.test/x is not nested inside allowedRegistries"
            ),
            "set.yaml: spec.scopes[0] (line 13)",
        ),
    ];
    for (documents, message, place) in rows {
        let generation = generation(&documents);
        let (found, found_place, advice) = refusal(&generation);
        assert_eq!((found, found_place), (message.as_str(), place));
        assert!(!advice.is_empty(), "{message}");
    }
}

#[test]
fn the_release_image_is_asked_for_only_where_registries_are_blocked() {
    let ask = |lists: &str, release: Option<&str>| {
        let mut cluster = cluster(objects(&[image(lists)]), &Files::new());
        cluster.release_image = release.map(str::to_owned);
        generate_configs(&cluster)
    };
    let unknown = ask("{blockedRegistries: [docker.io]}", None);
    let (_, place, advice) = refusal(&unknown);
    assert_eq!(
        place,
        "set.yaml: spec.registrySources.blockedRegistries (line 6)"
    );
    assert!(advice.contains("--release-image") && advice.contains("ClusterVersion version"));
    let allowed = ask("{allowedRegistries: [quay.io]}", None);
    assert!(text(&files_of(&allowed), POLICY).contains("\"quay.io\""));
    let bad = ask("{}", Some("docker.io/ocp"));
    assert_eq!(refusal(&bad).0, "error parsing reference of release image");
}

#[test]
fn the_release_image_stays_available() {
    let digest = |mirror: &str| {
        let rule = format!("{{source: r.test/rel, mirrors: [{mirror}]}}");
        mirrors("ImageDigestMirrorSet", &rule)
    };
    let lists = "{blockedRegistries: [r.test, docker.io]}";
    let mirrored = generation(&[image(lists), digest("m.test/copy")]);
    let files = files_of(&mirrored);
    assert_eq!(text(&files, CONF).matches("blocked = true").count(), 3);
    let policy: Value = serde_json::from_slice(&files[POLICY]).unwrap();
    let kinds = |scope: &str| &policy["transports"]["docker"][scope][0]["type"];
    assert_eq!(kinds("r.test/rel/image"), "insecureAcceptAnything");
    assert_eq!(
        (kinds("r.test"), kinds("docker.io")),
        (&json!("reject"), &json!("reject"))
    );
    let note = |generation: &Generation| generation.notes.first().unwrap().text.clone();
    for mirror in ["r.test/copy", "docker.io/a/b"] {
        let blocked = generation(&[image(lists), digest(mirror)]);
        assert!(!text(&files_of(&blocked), POLICY).contains("\"r.test\""));
        assert!(note(&blocked).contains("error adding [\"r.test\"] to blocked registries"));
    }
    // A mirror that is not a name of an image makes the controller forget both lists.
    let short = mirrors(
        "ImageDigestMirrorSet",
        "{source: r.test/rel/image, mirrors: [docker.io/x]}",
    );
    let forgotten = generation(&[image(lists), short]);
    assert!(!text(&files_of(&forgotten), CONF).contains("blocked"));
    assert!(note(&forgotten).starts_with("Neither blockedRegistries nor allowedRegistries"));
}

#[test]
fn policies_count_only_with_the_feature_gate() {
    let documents = [image("{}"), policy("ClusterImagePolicy", "[a.test]")];
    let with = |gate: Option<bool>, kubelet: &str| {
        let kubelet = (
            "/etc/kubernetes/kubelet.conf".to_owned(),
            kubelet.as_bytes().to_vec(),
        );
        let mut cluster = cluster(objects(&documents), &Files::from([kubelet]));
        let gates = gate.map(|on| ("SigstoreImageVerification".to_owned(), on));
        cluster.gates = gates.map(|gate| BTreeMap::from([gate]));
        generate_configs(&cluster)
    };
    let kubelet = "featureGates:\n  SigstoreImageVerification: true\n";
    for on in [with(Some(true), ""), with(None, kubelet)] {
        assert_eq!(
            text(&files_of(&on), SIGSTORE),
            "docker:\n  a.test:\n    use-sigstore-attachments: true\n"
        );
    }
    let off = with(Some(false), kubelet);
    assert_eq!(files_of(&off).len(), 0);
    assert!(
        off.notes
            .iter()
            .any(|note| note.text.contains("SigstoreImageVerification is off"))
    );
    let unknown = with(None, "");
    assert!(refusal(&unknown).2.contains("FeatureGate cluster"));
}

#[test]
fn a_policy_of_a_namespace_leaves_the_policy_of_the_cluster_alone() {
    let files = files_of(&generation(&[
        image("{}"),
        policy("ImagePolicy", "[a.test/x, a/b/c/d]"),
    ]));
    assert!(text(&files, POLICY).starts_with("{\n    \"default\": [\n        {"));
    let own: Value = serde_json::from_slice(&files["/etc/crio/policies/team.json"]).unwrap();
    let scopes = |transport: &str| {
        let scopes = own["transports"][transport].as_object().unwrap();
        scopes.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(scopes("docker"), ["a.test/x", "a/b/c/d"]);
    assert_eq!(scopes("atomic"), ["a.test/x"]);
}

#[test]
fn what_may_be_a_mistake_is_noted() {
    let wrong_name = image("{}").replace("name: cluster", "name: custer");
    let wrong_api = mirrors("ImageDigestMirrorSet", "{source: q.io, mirrors: [m.test]}")
        .replace("config.openshift.io/v1", "operator.openshift.io/v1alpha1");
    let wrong_key = mirrors("ImageTagMirrorSet", "{source: q.io, mirror: [m.test]}");
    let generation = generation(&[wrong_name, wrong_api, wrong_key]);
    let texts: Vec<&str> = generation
        .notes
        .iter()
        .map(|note| note.text.as_str())
        .collect();
    for part in [
        "only the Image with the name `cluster`",
        "its lists of registries are taken as empty",
        "its apiVersion is operator.openshift.io/v1alpha1",
        "spec.imageTagMirrors[0].mirror has no effect; the keys here are source, mirrors",
    ] {
        assert!(
            texts.iter().any(|text| text.contains(part)),
            "{part}: {texts:?}"
        );
    }
}

#[test]
fn a_rendered_config_gives_the_search_list_and_tells_what_would_be_lost() {
    let conf = format!(
        "{}\n[[registry]]\n  prefix = \"\"\n  location = \"q.io\"\n\n  [[registry.mirror]]\n    location = \"m.test\"\n    pull-from-mirror = \"tag-only\"\n",
        HEADER.replace("docker.io", "own.test")
    );
    let files = Files::from([(CONF.to_owned(), conf.into_bytes())]);
    let documents = [image("{insecureRegistries: [x.test]}")];
    let generation = generate_configs(&cluster(objects(&documents), &files));
    let made = files_of(&generation);
    assert!(text(&made, CONF).starts_with(
        "unqualified-search-registries = [\"registry.access.redhat.com\", \"own.test\"]\n"
    ));
    let inexact: Vec<&str> = generation
        .notes
        .iter()
        .filter(|note| note.inexact)
        .map(|note| note.text.as_str())
        .collect();
    assert!(
        inexact
            .iter()
            .any(|text| text.contains("unqualified-search-registries"))
    );
    assert!(
        inexact
            .iter()
            .any(|text| text.contains("mirror m.test of q.io")),
        "{inexact:?}"
    );
}

#[test]
fn without_objects_of_this_controller_nothing_changes() {
    assert!(
        generate_configs(&cluster(Vec::new(), &Files::new()))
            .configs
            .is_empty()
    );
    let parts = |name: Option<&str>| {
        let parts = name.map(|name| (name.to_owned(), json!({ "metadata": { "name": name } })));
        let mut cluster = cluster(Vec::new(), &Files::new());
        cluster.base = Base::Parts(parts.into_iter().collect());
        let made = generate_configs(&cluster).configs;
        made.iter()
            .filter(|config| config.name.ends_with("registries"))
            .count()
    };
    assert_eq!(parts(Some("99-worker-generated-registries")), 0);
    assert_eq!(parts(None), 1);
}

#[test]
fn the_parts_give_the_same_files_as_the_rendered_config() {
    let documents = [image("{insecureRegistries: [x.test]}")];
    let mut cluster = cluster(objects(&documents), &Files::new());
    let of_rendered = files_of(&generate_configs(&cluster));
    let mut part = rendered(&Files::new());
    part["metadata"] = json!({
        "name": "00-worker",
        "labels": { "machineconfiguration.openshift.io/role": "worker" },
    });
    cluster.base = Base::Parts(BTreeMap::from([("00-worker".to_owned(), part)]));
    let of_parts = files_of(&generate_configs(&cluster));
    assert!(text(&of_parts, CONF).starts_with(HEADER));
    assert_eq!(of_parts, of_rendered);
}

#[test]
fn a_custom_pool_inherits_the_files_of_worker() {
    let mut cluster = cluster(
        objects(&[image("{insecureRegistries: [x.test]}")]),
        &Files::new(),
    );
    cluster.pools[0].name = "infra".to_owned();
    let generation = generate_configs(&cluster);
    assert_eq!(files_of(&generation).len(), 1);
}

#[test]
fn files_that_go_with_the_generated_part_are_known() {
    let documents = [
        image("{blockedRegistries: [x.test], containerRuntimeSearchRegistries: [y.test]}"),
        policy("ImagePolicy", "[a.test]"),
    ];
    let config = rendered(&files_of(&generation(&documents)));
    let owned = owned_files(&config);
    let with_template = owned.iter().filter(|file| file.template.is_some());
    let with_template: Vec<&str> = with_template.map(|file| file.path.as_str()).collect();
    assert_eq!((owned.len(), with_template), (5, vec![POLICY, CONF]));
    let restored = owned.iter().find(|file| file.path == CONF).unwrap();
    let contents = &restored.template.as_ref().unwrap()["contents"];
    let source = "data:,unqualified-search-registries%20%3D%20%5B'registry.access.redhat.com'%2C%20'docker.io'%5D%0A";
    assert_eq!(contents, &json!({ "source": source }));
    assert_eq!(owned_files(&rendered(&Files::new())), []);
}

fn invert_conf(text: &str) -> Result<Inverted, String> {
    let files = Files::from([(CONF.to_owned(), text.as_bytes().to_vec())]);
    invert_files(&files).map_err(|error| error.to_string())
}

#[test]
fn a_line_that_no_object_makes_is_named() {
    let entry = "\n[[registry]]\n  prefix = \"\"\n  location = \"q.io\"\n";
    let mirror = "\n  [[registry.mirror]]\n    location = \"m.test\"\n";
    let rows = [
        (format!("# mine\n{HEADER}"), "line 1: `# mine` is a comment"),
        (
            format!("{HEADER}{entry}{mirror}"),
            "line 11: API objects produce `pull-from-mirror = \"digest-only\"` here",
        ),
        (
            format!("{HEADER}{entry}  blocked = true\n"),
            "line 8: no API object produces `blocked = true`; they produce `insecure = true` here",
        ),
        (
            format!("{HEADER}{entry}").replace("prefix = \"\"", "prefix = \"x.io\""),
            "line 6: no API object produces `prefix = \"x.io\"`",
        ),
        (
            format!("{HEADER}{entry}").replace("  prefix", "prefix"),
            "line 6: `prefix = \"\"` is not indented as the controller does it",
        ),
        (
            format!("{HEADER}credential-helpers = [\"x\"]\n"),
            "line 4: ",
        ),
        (format!("{HEADER}[[registry]\n"), "line 4: this is not TOML"),
        (
            format!("{HEADER}{entry}  mirror-by-digest-only = true\n"),
            "mirror-by-digest-only",
        ),
    ];
    for (conf, expected) in rows {
        let error = invert_conf(&conf).unwrap_err();
        assert!(
            error.contains(expected) && error.starts_with(CONF),
            "{expected}: {error}"
        );
    }
}

#[test]
fn a_file_of_an_older_operator_keeps_its_form() {
    let header = "unqualified-search-registries = [\"docker.io\"]\nshort-name-mode = \"\"\n";
    let entry = "\n[[registry]]\n  prefix = \"\"\n  location = \"q.io\"\n  insecure = true\n";
    let mirrored = "\n[[registry]]\n  prefix = \"\"\n  location = \"r.io\"\n  mirror-by-digest-only = true\n\n  \
        [[registry.mirror]]\n    location = \"m.test/r\"\n";
    for conf in [
        format!("{header}{entry}"),
        format!("{header}{mirrored}"),
        format!("{header}{mirrored}{entry}"),
    ] {
        let inverted = invert_conf(&conf).unwrap();
        let files = Files::from([(CONF.to_owned(), conf.into_bytes())]);
        let again = files_of(&generate_configs(&cluster(made(&inverted.objects), &files)));
        assert_eq!(text(&again, CONF), text(&files, CONF));
        // A new mirror is written in the same form.
        let new = ["new.test/x".to_owned()];
        let change = add_mirror(&inverted, "zz.test/app", &new, false, false).unwrap();
        let changed = files_of(&generate_configs(&cluster(made(&change.objects), &files)));
        let marked = "location = \"zz.test/app\"\n  mirror-by-digest-only = true\n";
        assert_eq!(
            text(&changed, CONF).contains(marked),
            text(&files, CONF).contains("mirror-by-digest-only")
        );
    }
}

#[test]
fn a_policy_of_another_is_left_alone() {
    let files = Files::from([(
        POLICY.to_owned(),
        b"{\"default\": [{\"type\": \"reject\"}]}\n".to_vec(),
    )]);
    let inverted = invert_files(&files).unwrap();
    assert!(
        inverted
            .ambiguities
            .iter()
            .any(|text| text.contains("policy.json"))
    );
    assert_eq!(owned_files(&rendered(&files)), []);
}

fn made(objects: &[Value]) -> Vec<ApiObject> {
    let objects = objects.iter().cloned();
    objects
        .map(|object| ApiObject::new(object, "made"))
        .collect()
}

fn inverted_again(inverted: &Inverted, files: &Files) -> Files {
    let mut cluster = cluster(made(&inverted.objects), files);
    cluster.release_image = Some(inverted.release_image.clone());
    files_of(&generate_configs(&cluster))
}

#[test]
fn real_files_are_turned_back_into_objects() {
    let mut files: Vec<(String, Files)> = Vec::new();
    if let Some(pairs) = shared_data("controllers/registries") {
        for path in fs::read_dir(pairs)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            let pair: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let configs = pair["machineconfigs"].as_array().unwrap().iter();
            let found = configs.map(|config| (path.display().to_string(), files_in_force(config)));
            files.extend(found);
        }
    }
    for directory in ["rendered", "machineconfigs", "controllers/base"] {
        let Some(directory) = shared_data(directory) else {
            continue;
        };
        add_configs(&directory, &mut files);
    }
    files.retain(|(_, files)| !files.is_empty());
    say(&format!("{} sets of files", files.len()));
    for (origin, files) in files {
        let inverted = invert_files(&files).unwrap_or_else(|error| panic!("{origin}: {error}"));
        let again = inverted_again(&inverted, &files);
        let is_template = |path: &str| [CONF, POLICY].contains(&path) && !again.contains_key(path);
        for (path, bytes) in files.iter().filter(|(path, _)| !is_template(path)) {
            assert_eq!(text(&again, path).as_bytes(), bytes, "{origin}: {path}");
        }
        let new = ["new.test/x".to_owned()];
        let change = add_mirror(&inverted, "zz.test/app", &new, false, false).unwrap();
        let changed = generate_configs(&cluster(made(&change.objects), &files));
        let after = Inverted {
            objects: change.objects,
            ..inverted.clone()
        };
        let back = remove_mirror(&after, "zz.test/app", &new, false).unwrap();
        assert_eq!(back.objects, inverted.objects, "{origin}");
        assert!(text(&files_of(&changed), CONF).contains("new.test/x"));
    }
}

/// The files of every MachineConfig below a directory.
fn add_configs(directory: &Path, files: &mut Vec<(String, Files)>) {
    for path in fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if path.is_dir() {
            add_configs(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            let config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            files.push((path.display().to_string(), files_in_force(&config)));
        }
    }
}

#[test]
fn names_that_are_no_repositories_are_refused_in_plain_words() {
    let rows = [
        (
            "https://q.io/app",
            "m.test",
            "leave `https://` out: q.io/app",
        ),
        ("q.io/app:v1", "m.test", "has a tag"),
        ("q.io/App", "m.test", "upper case"),
        ("q.io/app@sha256:1", "m.test", "has a digest"),
        ("q.io/app/", "m.test", "ends with a slash"),
        ("app", "m.test", "write it in full"),
        ("", "m.test", "is empty"),
        ("q.io/*", "m.test", "is not a wildcard"),
        ("q.io", "*.m.test", "only a source can be a wildcard"),
        ("q.io", "m.test:x/y", "host of a registry"),
        ("q.io", "m.test/a..b", "is not a repository"),
        ("q.io", "m.test/a b", "has a blank"),
        ("q.io", "q.io", "is the source itself"),
    ];
    for (source, mirror, expected) in rows {
        let mirrors = [mirror.to_owned()];
        let error = add_mirror(&Inverted::default(), source, &mirrors, false, false).unwrap_err();
        assert!(
            error.to_string().contains(expected),
            "{source} {mirror}: {error}"
        );
    }
    for mirrors in [Vec::new(), vec!["m.test".to_owned(); 2]] {
        assert!(add_mirror(&Inverted::default(), "q.io", &mirrors, true, false).is_err());
    }
    assert!(
        add_mirror(
            &Inverted::default(),
            "*.q.io",
            &["m.test".to_owned()],
            true,
            true
        )
        .is_ok()
    );
}

#[test]
fn a_new_mirror_is_an_object_of_its_own_and_fits_to_the_others() {
    let documents = [
        image("{}"),
        mirrors(
            "ImageDigestMirrorSet",
            "{source: q.io, mirrors: [a.test, b.test]}",
        ),
    ];
    let inverted = invert_files(&files_of(&generation(&documents))).unwrap();
    let names = |all: &[&str]| {
        all.iter()
            .map(|name| (*name).to_owned())
            .collect::<Vec<_>>()
    };
    let add =
        |mirrors: &[&str], tags, never| add_mirror(&inverted, "q.io", &names(mirrors), tags, never);
    let object = |mirrors: &[&str], tags, never| add(mirrors, tags, never).unwrap().apply.unwrap();
    let digest = object(&["c.test"], false, false);
    assert_eq!(digest["kind"], "ImageDigestMirrorSet");
    let rule = json!([{ "source": "q.io", "mirrors": ["c.test"] }]);
    assert_eq!(digest["spec"]["imageDigestMirrors"], rule);
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name(&digest).starts_with("mco-rescue-q-io-"));
    let other = object(&["d.test"], false, false);
    assert_ne!(name(&digest), name(&other));
    assert_eq!(
        object(&["c.test"], true, false)["kind"],
        "ImageTagMirrorSet"
    );
    let never = add(&["c.test"], true, true).unwrap_err().to_string();
    assert!(
        never.contains("leave --never-contact-source out"),
        "{never}"
    );
    let order = add(&["b.test", "a.test"], false, false)
        .unwrap_err()
        .to_string();
    assert!(order.contains("(a.test, b.test)"), "{order}");
    assert!(add(&["a.test"], false, false).unwrap().notes[0].contains("nothing changes"));
    let gone = remove_mirror(&inverted, "q.io", &names(&["a.test"]), true).unwrap_err();
    assert!(gone.to_string().contains("without --tags"), "{gone}");
}

const SCOPES: [&str; 16] = [
    "q.io",
    "q.io/a",
    "q.io/a/b",
    "q.io/ab",
    "m.test",
    "m.test:5000",
    "m.test:5000/x",
    "*.corp.test",
    "x.corp.test",
    "x.corp.test/y",
    "*.x.corp.test",
    "docker.io",
    "r.test",
    "r.test/rel/image",
    "A.test",
    "q.io/a/b/c/d",
];

fn scopes(most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&SCOPES[..]), 0..=most)
}

/// Rules of mirrors. A wildcard and a source that is never asked have one rule: of several the controller may make an
/// order that no single rule gives.
fn rules(never: &[&'static str], rules: Vec<(&'static str, Vec<&'static str>)>) -> Vec<Value> {
    let mut seen: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for (source, mirrors) in rules {
        let is_never = never.contains(&source);
        if (is_never || source.starts_with('*')) && seen.contains(&source) {
            continue;
        }
        seen.push(source);
        let mut unique: Vec<&str> = Vec::new();
        for mirror in mirrors {
            let is_wrong = mirror.starts_with('*') || is_never && mirror == source;
            if !is_wrong && !unique.contains(&mirror) {
                unique.push(mirror);
            }
        }
        let mut rule = json!({ "source": source, "mirrors": unique });
        if is_never {
            rule["mirrorSourcePolicy"] = "NeverContactSource".into();
        }
        all.push(rule);
    }
    all
}

prop_compose! {
    fn any_objects()(
        insecure in prop::option::of(scopes(3)),
        blocked in scopes(3),
        allowed in scopes(3),
        search in prop::option::of(scopes(2)),
        kind in 0..4,
        digests in prop::collection::vec((prop::sample::select(&SCOPES[..]), scopes(3)), 0..4),
        tags in prop::collection::vec((prop::sample::select(&SCOPES[..]), scopes(3)), 0..4),
        never in prop::sample::subsequence(SCOPES.to_vec(), 0..5),
        policies in prop::collection::vec((scopes(2), 0..3, prop::option::of(0..2)), 0..3),
    ) -> Vec<ApiObject> {
        let object = |kind: &str, name: String, spec: Value| json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": kind,
            "metadata": { "name": name, "namespace": null },
            "spec": spec,
        });
        let sources = json!({
            "insecureRegistries": insecure,
            "blockedRegistries": (kind % 2 == 1).then_some(blocked),
            "allowedRegistries": (kind == 2).then_some(allowed),
            "containerRuntimeSearchRegistries": search,
        });
        let digests = json!({ "imageDigestMirrors": rules(&never, digests) });
        let tags = json!({ "imageTagMirrors": rules(&never, tags) });
        let mut all = vec![object("Image", "cluster".to_owned(), json!({ "registrySources": sources }))];
        let sets = [("ImageDigestMirrorSet", digests), ("ImageTagMirrorSet", tags)];
        let sets = sets.into_iter().filter(|(_, spec)| !spec.as_object().unwrap().values().all(|all| all == &json!([])));
        all.extend(sets.map(|(kind, spec)| object(kind, "set".to_owned(), spec)));
        for (index, (scopes, key, namespace)) in policies.into_iter().enumerate() {
            let key = json!({ "policyType": "PublicKey", "publicKey": { "keyData": format!("QUF{key}") } });
            let spec = json!({ "scopes": scopes, "policy": { "rootOfTrust": key } });
            let kind = if namespace.is_some() { "ImagePolicy" } else { "ClusterImagePolicy" };
            let mut policy = object(kind, format!("p{index}"), spec);
            policy["metadata"]["namespace"] = json!(namespace.map(|number: i32| format!("ns{number}")));
            all.push(policy);
        }
        made(&all)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn what_the_controller_writes_is_turned_back(
        objects in any_objects(),
        source in prop::sample::select(&SCOPES[..]),
        tags in any::<bool>(),
        never in any::<bool>(),
    ) {
        let generation = generate_configs(&cluster(objects, &Files::new()));
        prop_assume!(generation.refusals.is_empty());
        let files = files_of(&generation);
        let inverted = invert_files(&files);
        prop_assert!(inverted.is_ok(), "{:?} {}", inverted, text(&files, CONF));
        let inverted = inverted.unwrap();
        prop_assert_eq!(&inverted_again(&inverted, &files), &files);
        let new = ["new.test/x".to_owned(), "aaa.test:5000".to_owned()];
        let Ok(change) = add_mirror(&inverted, source, &new, tags, never) else {
            return Ok(());
        };
        let mut changed = cluster(made(&change.objects), &files);
        changed.release_image = Some(inverted.release_image.clone());
        let changed = generate_configs(&changed);
        // Refused, or the lists of Image cluster change their effect.
        if !changed.refusals.is_empty() || changed.notes.iter().any(|note| note.object == "Image cluster") {
            return Ok(());
        }
        let after = files_of(&changed);
        prop_assert_ne!(&after, &files);
        let second = invert_files(&after).unwrap();
        let removed = remove_mirror(&second, source, &new, tags).unwrap();
        let last = inverted_again(&Inverted { objects: removed.objects, ..second.clone() }, &after);
        let is_named = |text: &String| {
            ["the places of", "if the mirrors of"].iter().any(|start| text.starts_with(start))
                || text.contains("are listed in blockedRegistries")
        };
        let had_no_entry = text(&files, CONF) == HEADER;
        prop_assert!(
            last == files || had_no_entry || second.ambiguities.iter().any(is_named),
            "{:?}\n{}\n{}", second.ambiguities, text(&after, CONF), text(&last, CONF)
        );
    }

    #[test]
    fn no_file_and_no_name_panics(conf in "\\PC{0,40}", source in "\\PC{0,20}", policy in "\\PC{0,40}") {
        let both = [(CONF, format!("{HEADER}{conf}")), (POLICY, policy)];
        let files: Files = both.map(|(path, text)| (path.to_owned(), text.into_bytes())).into();
        let _ = invert_files(&files);
        let _ = add_mirror(&Inverted::default(), &source, &[conf], true, true);
    }
}
