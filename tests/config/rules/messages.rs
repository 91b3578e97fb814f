//! Every message in `src/config/document` that a person can see is said by some document: a fixture, a row of the table,
//! one of the configs here; or the exceptions say why not. A new message without a case fails this test.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use mco_rescue::config::document::{self, Desired, MachineConfig};
use mco_rescue::config::render;
use serde_json::json;

use super::table::{LAST, TABLES, config};
use super::{In, documents};
use crate::support::say;

fn main_folder(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// The program without its tests and comments.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\n").next().unwrap();
    let lines = text.lines();
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The string literals of a piece of code.
fn literals(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find('"') {
        let before = &rest[..at];
        rest = &rest[at + 1..];
        if before.ends_with('\'') || before.ends_with("b'") {
            continue;
        }
        let mut literal = String::new();
        let mut chars = rest.char_indices();
        while let Some((index, c)) = chars.next() {
            match c {
                '\\' => match chars.next().unwrap().1 {
                    '\n' => {
                        let after = chars.clone().find(|(_, c)| !c.is_whitespace());
                        while chars.clone().next().map(|(i, _)| i) != after.map(|(i, _)| i) {
                            chars.next();
                        }
                    }
                    'n' => literal.push('\n'),
                    escaped => literal.push(escaped),
                },
                '"' => {
                    rest = &rest[index + 1..];
                    break;
                }
                c => literal.push(c),
            }
        }
        all.push(literal);
    }
    all
}

/// The longest piece of a message that is the same whatever it is about.
fn fixed_part(literal: &str) -> &str {
    let parts = literal.split(['{', '}']).step_by(2);
    parts.max_by_key(|part| part.len()).unwrap()
}

/// Whether a literal is a sentence for people.
fn is_message(literal: &str) -> bool {
    // What `Debug` prints, and words of the JSON reader that are replaced by plain ones.
    let foreign = [
        "Contents(",
        "Resource(",
        "Converted(",
        "expected struct",
        "expected a sequence",
        "invalid type: sequence",
        "invalid type: map",
    ];
    if foreign.iter().any(|start| literal.starts_with(start)) {
        return false;
    }
    let words = fixed_part(literal).split_whitespace();
    words
        .filter(|word| word.chars().all(|c| c.is_ascii_alphabetic() || c == ','))
        .count()
        >= 2
}

fn messages() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for path in files(&main_folder("src/config/document")) {
        let literals = literals(&code(&fs::read_to_string(&path).unwrap()));
        all.extend(literals.into_iter().filter(|literal| is_message(literal)));
    }
    all
}

/// Everything that is said about a document.
fn said(bytes: &[u8]) -> Vec<String> {
    match document::parse_document(bytes, "it") {
        Ok(config) => said_of(&config),
        Err(error) => error.findings.iter().map(ToString::to_string).collect(),
    }
}

fn said_of(config: &MachineConfig) -> Vec<String> {
    let warnings = config.warnings.iter().map(ToString::to_string);
    let desired = Desired::from_config(config);
    let blocked = desired.unsupported.into_iter().map(|part| part.message);
    let mut all: Vec<String> = warnings.chain(blocked).collect();
    let undecodable = desired.undecodable.into_iter();
    all.extend(undecodable.flat_map(|file| [file.when_compared(), file.when_written()]));
    let empty = br#"{"metadata":{"name":"a"},"spec":{"fips":true}}"#;
    let before = document::parse_document(empty, "it").unwrap();
    let refused = document::find_refusals(&before, config).into_iter();
    all.extend(refused.flat_map(|refusal| [refusal.sentence, refusal.reason]));
    all.extend(config.why_not_rendered(false));
    all
}

/// Configs whose messages neither a fixture nor the table of rules brings.
const MORE: &[&str] = &[
    r#"{"ignitionVersion":1}"#,
    r#""H4sI""#,
    r#""a""#,
    "[]",
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","mode":132},{"path":"/b","mode":644}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","mode":"0644"}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":""}},{"path":"/b","append":[{"source":"data:,b"}]}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":[]}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":{}}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/mcs-machine-config-content.json","contents":{"source":"x"}}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/mcs-machine-config-content.json","contents":{"source":"data:,%ff"}}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/mcs-machine-config-content.json","contents":{"source":"data:,%7B%7D"}}]}}"#,
    "? [a]\n: b\n",
    "a: 'b\u{2028}c'\n",
    r#"{"items":[[]]}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,x","verification":{"hash":"sha512-00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"}}}]}}"#,
    // Spec 2.
    r#"{"ignition":{"version":"2.9.0"}}"#,
    r#"{"ignition":{"version":"2.2"}}"#,
    r#"{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/a","append":true,"overwrite":true}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"data","path":"/a"},{"path":"/b"}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"storage":{"filesystems":[{"name":"data"}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"storage":{"filesystems":[{"name":"root","mount":{"device":"/dev/a","format":"xfs"}}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"storage":{"disks":[{"device":"/dev/a","partitions":[{"size":7}]}]}}"#,
    r#"{"ignition":{"version":"2.2.0","config":{"append":[{"source":"oem:///a"},{"source":"ftp://a.example"},{"source":"http://a.example","verification":{"hash":"sha256-0"}},{"source":"http://a.example","verification":{"hash":"sha512-0"}}]}}}"#,
    r#"{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"a.network"}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core","uid":7,"create":{"uid":8}}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core","create":{}}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core"},{"name":"admin"}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a.service","dropins":[{"name":"a.conf"},{"name":"a.conf"}]}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"storage":{"links":[{"filesystem":"root","path":"/foo","target":"/b"}],"files":[{"filesystem":"root","path":"/foobar"}]}}"#,
    r#"{"ignition":{"version":"2.2.0"},"storage":{"directories":[{"filesystem":"root","path":"/a"}],"files":[{"filesystem":"root","path":"/a"}]}}"#,
    // What is not a rendered config, each by another mark.
    r#"{"metadata":{"name":"99-a","labels":{"machineconfiguration.openshift.io/role":"worker"}},"spec":{}}"#,
    r#"{"metadata":{"name":"a","ownerReferences":[{"kind":"KubeletConfig"}]},"spec":{}}"#,
    r#"{"metadata":{"name":"a"},"spec":{}}"#,
    r#"{"metadata":{"name":"rendered-worker-a"},"spec":{}}"#,
    // Values that break a line of a file.
    r#"{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","passwordHash":"a:b","gecos":"a:b"}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a b.service","dropins":[{"name":"a\nb.conf"}]}]}}"#,
    r#"{"metadata":{"name":"a"},"spec":{"kernelArguments":["a=\"b\nc\""],"extensions":["a b"]}}"#,
    // Ignored where it is applied, looked into where it is rendered.
    r#"{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":[]}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/a","partitions":{}}]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"disks":[1]}}"#,
    r#"{"ignition":{"version":"3.5.0"},"storage":{"raid":[{"name":"a","devices":[1]}]}}"#,
];

/// What no document of a sensible size makes the program say.
const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "unpack to more than {0} MiB",
        "a file may unpack to a gibibyte, and a test of that takes one; the bound of configs is in tests/config/references.rs",
    ),
    (
        "a config of spec 2 must name its version",
        "without a version it is not read as spec 2",
    ),
];

/// What is said of a config by itself, in a MachineConfig that is applied, and in one that is rendered.
fn said_everywhere(text: &str) -> Vec<String> {
    let mut heard = said(text.as_bytes());
    let Ok(ignition) = serde_json::from_str::<serde_json::Value>(text) else {
        return heard;
    };
    let labels = json!({"machineconfiguration.openshift.io/role": "worker"});
    let whole = json!({"metadata": {"name": "a", "labels": labels}, "spec": {"config": &ignition}})
        .to_string();
    heard.extend(said(whole.as_bytes()));
    if let Err(error) = render::read_inputs(whole.as_bytes(), "it") {
        heard.extend(error.findings.iter().map(ToString::to_string));
    }
    heard
}

fn everything_said() -> Vec<String> {
    let fixtures = files(&main_folder("tests/fixtures"));
    let mut heard: Vec<String> = fixtures
        .iter()
        .flat_map(|path| said(&fs::read(path).unwrap()))
        .collect();
    heard.extend(MORE.iter().flat_map(|text| said_everywhere(text)));
    for row in TABLES.into_iter().flatten() {
        for minor in [row.1, row.2.min(LAST)] {
            let all = documents(In::Both, &config(row.4, minor)).into_iter();
            heard.extend(all.flat_map(|(_, document)| said(document.to_string().as_bytes())));
        }
    }
    heard.extend(said(&[0x1f, 0x8b]));
    heard.extend(said_of_pointers());
    heard.extend(said_of_records());
    heard.extend(HALVES.iter().flat_map(|half| said(half)));
    heard.extend(PACKED.iter().flat_map(|packed| said(packed)));
    heard
}

/// Files that hold no text, by their first bytes.
const PACKED: [&[u8]; 5] = [
    b"\xff\xfea\0",
    b"PK\x03\x04\xff",
    b"BZh9\xff",
    b"\xfd7zXZ\0\xff",
    b"\x28\xb5\x2f\xfd\xff",
];

/// Documents without their ends.
const HALVES: [&[u8]; 4] = [
    &[0; 8],
    b"{\"metadata\": {\"name\": \"caf\xc3",
    b"metadata:\n  name: \"rend",
    b"apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  annotations:\n    \
      machineconfiguration.openshift.io/generated-by-controller-version: a\n  name: rendered-worker-0\nspec:\n  \
      config:\n    ignition:\n      version: 3.5.0\n  fips: false\n",
];

/// What cannot be put in the place of a Machine Config Server, and what cannot be served.
fn said_of_pointers() -> Vec<String> {
    let url = "https://api-int.example:22623/config/worker";
    let served = r#"{"ignition":{"version":"3.2.0"}}"#;
    let zeros = "0".repeat(64);
    let merges = [
        json!([]),
        json!([{"source": url}, {"source": url}]),
        json!([{"source": "https://files.example/more.ign"}]),
        json!([{"source": url, "verification": {"hash": format!("sha256-{zeros}")}}]),
    ];
    let pointer = |merge: &serde_json::Value| {
        json!({"ignition": {"version": "3.2.0", "config": {"merge": merge}}}).to_string()
    };
    let mut findings: Vec<_> = merges
        .iter()
        .map(|merge| document::pointer::with_served(Some(&pointer(merge)), served))
        .collect();
    findings.push(document::pointer::with_served(Some("{"), served));
    findings.push(document::pointer::with_served(None, "{}"));
    let old = json!({"kind": "MachineConfig", "metadata": {"name": "a"},
        "spec": {"config": {"ignition": {"version": "2.2.0"}}}});
    let old = document::parse_document(old.to_string().as_bytes(), "test").unwrap();
    findings.push(document::serve_config(&old));
    let findings = findings.into_iter().filter_map(Result::err);
    findings.map(|finding| finding.to_string()).collect()
}

/// What the daemon's reader says of records.
fn said_of_records() -> Vec<String> {
    let records = [
        "[]",
        "<",
        "{,}",
        "{",
        r#"{"spec":[]}"#,
        r#"{"spec":{"fips":"x","kernelType":7}}"#,
        r#"{"spec":{"fips":7}}"#,
        r#"{"spec":{"extensions":"x"}}"#,
        r#"{"kind":7}"#,
        r#"{"metadata":{"labels":[]}}"#,
        r#"{"metadata":{"ownerReferences":{}}}"#,
        r#"{"metadata":{"generation":"x"}}"#,
    ];
    let said = |text: &&str| match document::read_record(text.as_bytes()) {
        document::RecordReading::Says(said) => said,
        document::RecordReading::Fails(why) => why.to_string(),
        document::RecordReading::Object { text, .. } => panic!("{text}"),
    };
    records.iter().map(said).collect()
}

#[test]
fn every_message_of_document_is_said_by_a_case() {
    let (heard, messages) = (everything_said(), messages());
    let is_said = |message: &&String| {
        let fixed = fixed_part(message);
        heard.iter().any(|said| said.contains(fixed))
    };
    let (told, missing): (Vec<_>, Vec<_>) = messages.iter().partition(is_said);
    let excused = |message: &&&String| EXCEPTIONS.iter().any(|(words, _)| message.contains(words));
    let (excused, missing): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|message| excused(&message));
    say(&format!(
        "{} messages said, {} excused",
        told.len(),
        excused.len()
    ));
    assert!(
        missing.is_empty(),
        "no case makes the program say:\n{missing:#?}"
    );
    assert_eq!(
        excused.len(),
        EXCEPTIONS.len(),
        "an exception is not needed any more"
    );
    assert!(
        told.len() > 100,
        "the messages are not found in the source any more"
    );
}
