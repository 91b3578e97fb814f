//! FP-63: files for pulls that have no effect.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::worker::{self, Branch, Row, SECRET, all_met, healthy, sick, well};
use super::{doctor, found, of, says};
use crate::support::{Lacks, TestRoot, file, flat, skip};

const ID: &str = "FP-63";
const MIRRORS: &str = "etc/containers/registries.conf.d";
const LOOKASIDE: &str = "etc/containers/registries.d";
const CERTIFICATES: &str = "etc/containers/certs.d";
const OLD_CERTIFICATES: &str = "etc/docker/certs.d";
const PEM: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const MIRROR: &str = "[[registry]]\nlocation = \"quay.example\"\n[[registry.mirror]]\nlocation = \"mirror.example:5000/q\"\n";

const UNREAD: Branch = Branch {
    id: ID,
    severity: "notice",
    what: "a file for pulls is not read",
    seen: &[],
    next: &["ls -l ROOT/etc/"],
};

fn certificate(root: &TestRoot, place: &str, name: &str) {
    root.write(&format!("{place}/{name}"), PEM);
}

const ROWS: [Row; 20] = [
    well(ID, |root| {
        root.write(&format!("{MIRRORS}/10-a.conf"), MIRROR);
        root.write(&format!("{MIRRORS}/10-a.conf.rpmsave"), MIRROR);
        root.write(&format!("{LOOKASIDE}/a.yaml"), "docker: {}\n");
        certificate(root, CERTIFICATES, "mirror.example:5000/ca.crt");
        certificate(root, OLD_CERTIFICATES, "mirror.example/ca.crt");
        certificate(root, OLD_CERTIFICATES, "other.example/client.cert");
        certificate(root, OLD_CERTIFICATES, "other.example/client.key");
        root.write(&format!("{OLD_CERTIFICATES}/.create"), "by the config");
    }),
    sick(
        |root| root.write(&format!("{MIRRORS}/10-a.toml"), MIRROR),
        Branch {
            seen: &["10-a.toml", "only names that end in .conf are"],
            ..UNREAD
        },
    ),
    sick(
        |root| root.write(&format!("{LOOKASIDE}/a.yml"), "docker: {}\n"),
        Branch {
            seen: &["a.yml", "only names that end in .yaml are"],
            ..UNREAD
        },
    ),
    sick(
        |root| root.write(&format!("{MIRRORS}/more.conf/10-a.conf"), MIRROR),
        Branch {
            seen: &["more.conf", "it is a directory"],
            ..UNREAD
        },
    ),
    sick(
        |root| certificate(root, CERTIFICATES, "ca.crt"),
        Branch {
            seen: &["in a directory with the name of the registry"],
            ..UNREAD
        },
    ),
    // The port belongs to the name, on either side.
    sick(
        |root| {
            root.write(&format!("{MIRRORS}/10-a.conf"), MIRROR);
            certificate(root, CERTIFICATES, "mirror.example/ca.crt");
        },
        Branch {
            seen: &["not read for mirror.example:5000"],
            ..UNREAD
        },
    ),
    sick(
        |root| certificate(root, OLD_CERTIFICATES, "quay.example:443/ca.crt"),
        Branch {
            seen: &["not read for quay.example:"],
            ..UNREAD
        },
    ),
    // The form of a ConfigMap's key.
    sick(
        |root| certificate(root, OLD_CERTIFICATES, "mirror.example..5000/ca.crt"),
        Branch {
            seen: &["the directory of the registry is mirror.example:5000"],
            ..UNREAD
        },
    ),
    sick(
        |root| {
            certificate(root, CERTIFICATES, "mirror.example:5000/ca.crt");
            certificate(root, OLD_CERTIFICATES, "mirror.example:5000/ca.crt");
        },
        Branch {
            seen: &["/etc/docker/certs.d/mirror.example:5000", "and comes first"],
            ..UNREAD
        },
    ),
    sick(
        |root| certificate(root, CERTIFICATES, "quay.example/ca.pem"),
        Branch {
            seen: &["ca.pem", "has to end in .crt"],
            ..UNREAD
        },
    ),
    sick(
        |root| root.write(&format!("{CERTIFICATES}/quay.example/ca.crt"), "0\u{82}"),
        Branch {
            seen: &["it is not PEM"],
            ..UNREAD
        },
    ),
    sick(
        |root| certificate(root, CERTIFICATES, "quay.example/org/ca.crt"),
        Branch {
            seen: &["/etc/containers/certs.d/quay.example/org"],
            ..UNREAD
        },
    ),
    sick(
        |root| certificate(root, CERTIFICATES, "quay.example/ca.cert"),
        Branch {
            severity: "warning",
            what: "no image can be pulled from a registry",
            seen: &["ca.key is missing beside it, and every pull from quay.example fails"],
            ..UNREAD
        },
    ),
    sick(
        |root| certificate(root, OLD_CERTIFICATES, "quay.example/client.key"),
        Branch {
            severity: "warning",
            what: "no image can be pulled from a registry",
            seen: &["client.cert is missing beside it"],
            ..UNREAD
        },
    ),
    sick(
        |root| root.write("etc/containers/auth.json", "{}"),
        Branch {
            seen: &["/var/lib/kubelet/config.json is used"],
            ..UNREAD
        },
    ),
    sick(
        |root| root.link(&format!("{CERTIFICATES}/quay.example/ca.crt"), "/nowhere"),
        Branch {
            seen: &["it is a dangling link"],
            ..UNREAD
        },
    ),
    sick(
        |root| {
            certificate(root, CERTIFICATES, "quay.example/a.key");
            root.link(&format!("{CERTIFICATES}/quay.example/a.cert"), "/nowhere");
        },
        Branch {
            severity: "warning",
            what: "no image can be pulled from a registry",
            seen: &["its link leads nowhere, and every pull from quay.example fails"],
            ..UNREAD
        },
    ),
    sick(
        |root| root.write("root/.config/containers/policy.json", "{}"),
        Branch {
            severity: "warning",
            what: "root has files for pulls of its own",
            seen: &["skip /etc/containers/policy.json"],
            next: &["ls -l ROOT/root/.config/containers/policy.json"],
            ..UNREAD
        },
    ),
    // The table of the later file is the only one of its prefix.
    sick(
        |root| {
            root.write("etc/containers/registries.conf", MIRROR);
            let text = "[[registry]]\nlocation = \"quay.example\"\ninsecure = true\n";
            root.write(&format!("{MIRRORS}/99-insecure.conf"), text);
        },
        Branch {
            seen: &[
                "99-insecure.conf",
                "that in /etc/containers/registries.conf, whose mirrors are not asked any more",
            ],
            ..UNREAD
        },
    ),
    // That of the recorded OS image is FP-05's.
    well(ID, |root| root.write(&format!("{MIRRORS}/bad.conf"), "[[")),
];

#[test]
fn files_for_pulls_that_nothing_reads_are_named() {
    all_met(&ROWS);
}

#[test]
fn without_an_image_of_the_os_what_stops_every_pull_is_named_all_the_same() {
    let root = healthy();
    fs::remove_dir(root.path("usr/etc")).unwrap();
    root.write(&format!("{LOOKASIDE}/a.yaml"), "[[registry]]\n");
    let text = found(&doctor(&root), ID, "warning");
    says(
        &text,
        &[
            "no image can be pulled",
            "/etc/containers/registries.d/a.yaml",
        ],
    );
}

#[test]
fn a_plan_names_what_its_config_brings_and_pulls_do_not_take() {
    let root = healthy();
    root.write(&format!("{MIRRORS}/old.toml"), MIRROR);
    let mut config = worker::prepared_for("OVNKubernetes", "rendered-worker-b");
    let files = config["spec"]["config"]["storage"]["files"].as_array_mut();
    files.unwrap().extend([
        file(&format!("/{LOOKASIDE}/99-search.yaml"), 0o644, "a = 1\n"),
        file(&format!("/{MIRRORS}/99-mirror.toml"), 0o644, MIRROR),
        file(&format!("/{CERTIFICATES}/quay.example/ca.cert"), 0o644, PEM),
    ]);
    let config = root.config(&config);
    let text = flat(&root.run(&["plan", config.path()]).out());
    says(
        &text,
        &[
            "no image can be pulled with this file: reading /etc/containers/registries.d/99-search.yaml",
            "/etc/containers/registries.conf.d/99-mirror.toml: not read",
            "every pull from quay.example fails",
        ],
    );
    assert!(!text.contains("old.toml"), "{text}");
    // What the config brings is more than left behind.
    root.run(&["apply", "--yes", "--files-only", config.path()])
        .ok();
    let all = of(&doctor(&root), ID);
    let unread = all.iter().find(|one| one["what"] == UNREAD.what).unwrap();
    assert_eq!(unread["severity"], "warning", "{unread:#}");
}

#[test]
fn an_entry_of_a_pull_secret_that_cannot_be_used_is_named_without_its_value() {
    let root = healthy();
    let secret = |entry: Value| {
        json!({"auths": {"quay.example": {"auth": "YTpi"}, "placeholder": entry}}).to_string()
    };
    root.write(SECRET, &secret(json!({"auth": "nonsense!"})));
    let text = found(&doctor(&root), "FP-27", "warning");
    says(
        &text,
        &["placeholder", "auth is not base64", "reject the whole file"],
    );
    assert!(!text.contains("nonsense!"), "{text}");
    root.write(SECRET, &secret(json!({"identitytoken": "hidden-words"})));
    let text = found(&doctor(&root), "FP-27", "warning");
    says(
        &text,
        &["an identity token alone", "refuses pulls for this name"],
    );
    assert!(!text.contains("hidden-words"), "{text}");
    root.write(SECRET, &secret(json!({})));
    assert_eq!(of(&doctor(&root), "FP-27"), Vec::<Value>::new());
}

/// Returns what skopeo says of a pull with these files, which ends before or at a connection that is refused; `None` where it
/// is not installed.
fn skopeo(root: &TestRoot) -> Option<String> {
    let place = |path: &str| root.path(path).display().to_string();
    let mut command = Command::new("skopeo");
    command
        .args([
            "--registries-conf",
            &place("etc/containers/registries.conf"),
        ])
        .args(["--policy", &place("etc/containers/policy.json")])
        .args(["--registries.d", &place(LOOKASIDE)])
        .args(["copy", "--authfile", &place(SECRET)])
        .args([
            "--src-cert-dir",
            &place("etc/containers/certs.d/127.0.0.1:1"),
        ])
        .args([
            "docker://127.0.0.1:1/a/b:1",
            &format!("dir:{}", place("out")),
        ]);
    let output = command.output().ok()?;
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn skopeo_itself_stops_at_the_same_files() {
    let main = "etc/containers/registries.conf";
    let policy = "etc/containers/policy.json";
    let lookaside = format!("{LOOKASIDE}/a.yaml");
    let other = format!("{LOOKASIDE}/b.yaml");
    let client = "etc/containers/certs.d/127.0.0.1:1/ca.cert";
    let cases: [(&str, &str, bool); 27] = [
        (main, "", true),
        (
            main,
            "[registries.search]\nregistries = ['a.example']\n",
            true,
        ),
        (main, "[[registry]]\nprefix = 'a.example'\n", false),
        (main, "[[registry]]\nprefix = '*.example'\n", true),
        (main, "[[registry]]\nprefix = '*.example/a'\n", false),
        (
            main,
            "[[registry]]\nlocation = 'https://a.example'\n",
            false,
        ),
        (
            main,
            "[[registry]]\nlocation = 'a'\nblocked = true\n[[registry]]\nprefix = 'b'\nlocation = 'a'\n",
            false,
        ),
        (
            main,
            "[[registry]]\nlocation = 'a'\n[[registry.mirror]]\ninsecure = true\n",
            false,
        ),
        (main, "[[registry]]\nlocation = 'a'\nunknown = 1\n", true),
        (
            main,
            "unqualified-search-registries = ['a.example/b']\n",
            false,
        ),
        (
            main,
            "unqualified-search-registries = ['a.example:5000']\n",
            true,
        ),
        (main, "short-name-mode = 'on'\n", false),
        (&lookaside, "", true),
        (&lookaside, "a = 1\n", false),
        (
            &lookaside,
            "docker:\n  a.example:\n    sigstore: file:///a\n",
            true,
        ),
        (&lookaside, "docker: [a]\n", false),
        (&lookaside, "docker:\n  a.example: b\n", false),
        (&other, "docker:\n  known.example: {}\n", true),
        (
            policy,
            r#"{"default": [{"type": "insecureAcceptAnything"}], "transport": {}}"#,
            false,
        ),
        (policy, r#"{"default": [{"type": "accept"}]}"#, false),
        (
            policy,
            r#"{"default": [{"type": "insecureAcceptAnything", "keyPath": "/a"}]}"#,
            false,
        ),
        (policy, r#"{"default": []}"#, false),
        (
            SECRET,
            r#"{"auths": {"127.0.0.1:1": {"auth": "!"}}}"#,
            false,
        ),
        (
            SECRET,
            r#"{"auths": {"other.example": {"auth": "!"}}}"#,
            true,
        ),
        (SECRET, r#"{"auths": [1]}"#, false),
        (client, PEM, false),
        ("etc/containers/certs.d/127.0.0.1:1/ca.pem", "x", true),
    ];
    for (place, text, tries) in cases {
        let root = healthy();
        root.write(main, "");
        fs::create_dir_all(root.path(MIRRORS)).unwrap();
        fs::create_dir_all(root.path(LOOKASIDE)).unwrap();
        fs::create_dir_all(root.path("etc/containers/certs.d/127.0.0.1:1")).unwrap();
        root.write(place, text);
        let Some(said) = skopeo(&root) else {
            skip(Lacks::Setup, "skopeo is not installed here");
            return;
        };
        // The connection itself is refused.
        let tried = said.contains("connection refused");
        assert_eq!(tried, tries, "{place}: {text}: {said}");
        let report = doctor(&root);
        let ids = ["FP-05", "FP-27", ID];
        let stops = |one: &Value| one["severity"] != "notice";
        let found = ids
            .iter()
            .flat_map(|id| of(&report, id))
            .any(|one| stops(&one));
        // An entry for another registry stops the kubelet alone.
        let of_others = place == SECRET && tries;
        assert_eq!(found, !tries || of_others, "{place}: {text}: {report:#}");
    }
}
