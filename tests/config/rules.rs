//! Ignition's rules of validity, V1 to V30: for each what it refuses or warns of, and what is just good enough.
//! Every row stands for a bare config and for the Ignition part of a MachineConfig, in every spec version it
//! names; through the library in all of them, through the program in the last one.

mod messages;
mod table;

use std::collections::BTreeMap;

use crate::support::{TestRoot, machine_config, say};
use mco_rescue::config::document::{self, Desired, Finding, Severity};
use serde_json::{Value, json};
use table::Says::{Blocked, Error, Fine, Warn};
use table::{In, LAST, Row, SINCE, TABLES, config};

/// The documents of a row in one version, each with what leads its paths.
fn documents(kind: In, config: &Value) -> Vec<(&'static str, Value)> {
    let mut all = Vec::new();
    if kind != In::MachineConfig {
        all.push(("", config.clone()));
    }
    if kind != In::Bare {
        let name = "rendered-worker-5f0c2d7e8a914b3c6d1e0f9a8b7c6d5x";
        all.push(("spec.config.", machine_config(name, config.clone())));
    }
    all
}

/// What the library finds: errors, warnings, and what blocks.
fn findings(document: &Value) -> (Vec<Finding>, Vec<Finding>, Vec<(String, String)>) {
    match document::parse_document(document.to_string().as_bytes(), "it") {
        Ok(config) => {
            let blocked = Desired::from_config(&config).unsupported.into_iter();
            let blocked = blocked.map(|part| (part.path, part.message)).collect();
            (Vec::new(), config.warnings, blocked)
        }
        Err(error) => {
            let is_error = |finding: &Finding| finding.severity == Severity::Error;
            let (errors, warnings) = error.findings.into_iter().partition(is_error);
            (errors, warnings, Vec::new())
        }
    }
}

fn has(findings: &[Finding], path: &str, words: &str) -> bool {
    let mut findings = findings.iter();
    findings.any(|finding| finding.path == path && finding.message.contains(words))
}

/// The words with which a rule strikes.
fn words_of(rule: &str) -> Vec<&'static str> {
    let own = rows().filter(|row| row.0 == rule);
    let words = own.filter_map(|(.., says)| match says {
        Error(_, words) | Warn(_, words) | Blocked(_, words) => Some(*words),
        Fine => None,
    });
    words.filter(|words| !words.is_empty()).collect()
}

/// None of the rule's words are in a text.
fn is_silent(rule: &str, said: &str) -> bool {
    words_of(rule).iter().all(|words| !said.contains(words))
}

/// What is wrong with what the library says of a row; nothing when it is right.
fn judged_wrongly(row: &Row, prefix: &str, document: &Value) -> Option<String> {
    let (rule, .., says) = row;
    let (errors, warnings, blocked) = findings(document);
    let fits = match says {
        Error(path, words) => has(&errors, &format!("{prefix}{path}"), words),
        Warn(path, words) => errors.is_empty() && has(&warnings, &format!("{prefix}{path}"), words),
        Blocked(path, words) => blocked
            .iter()
            .any(|(at, said)| *at == format!("{prefix}{path}") && said.contains(words)),
        Fine => {
            let mut own = warnings.iter().filter(|w| !w.message.contains("came with"));
            errors.is_empty() && own.all(|w| is_silent(rule, &w.message))
        }
    };
    (!fits).then(|| format!("{rule} {document}: {errors:?} {warnings:?} {blocked:?}"))
}

fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.into_iter().flatten()
}

#[test]
fn every_rule_judges_every_document_in_every_version() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for row in rows() {
        for minor in row.1..=row.2 {
            for (prefix, document) in documents(row.3, &config(row.4, minor)) {
                wrong.extend(judged_wrongly(row, prefix, &document));
                count += 1;
            }
        }
    }
    say(&format!(
        "{count} documents judged by {} rows",
        rows().count()
    ));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_rule_has_a_row_that_it_strikes_and_one_that_it_lets_pass() {
    let mut tally: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (rule, .., says) in rows() {
        let counts = tally.entry(rule).or_default();
        match says {
            Fine => counts.1 += 1,
            _ => counts.0 += 1,
        }
    }
    for number in 1..=29 {
        let counts = tally.get(format!("V{number}").as_str());
        assert!(
            counts.is_some_and(|(struck, passed)| *struck > 0 && *passed > 0),
            "V{number}: {counts:?}"
        );
    }
    assert_eq!(tally["V30"].0, 4);
    let counts: Vec<String> = tally
        .iter()
        .map(|(rule, (a, b))| format!("{rule} {a}+{b}"))
        .collect();
    say(&format!(
        "rows that strike + rows that pass: {}",
        counts.join(", ")
    ));
}

#[test]
fn fields_are_ignored_with_a_warning_before_their_version_and_taken_from_it_on() {
    let mut wrong = Vec::new();
    for (field, since, text) in SINCE {
        for minor in 0..=LAST {
            // What is in a section that is newer itself goes with the section.
            let at = if field.starts_with("storage.luks[") && minor < 2 {
                "storage.luks"
            } else {
                field
            };
            for (prefix, document) in documents(In::Both, &config(text, minor)) {
                let (errors, warnings, _) = findings(&document);
                let words = "Raise ignition.version to use it";
                let told = has(&warnings, &format!("{prefix}{at}"), words);
                if !errors.is_empty() || told != (minor < *since) {
                    wrong.push(format!("{field} in 3.{minor}: {errors:?} {warnings:?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether the program would fetch something for this config; tests/config/references.rs sees to that.
fn fetches(document: &Value) -> bool {
    let text = document.to_string().to_lowercase();
    let references = document["ignition"]["config"] != Value::Null;
    let schemes = ["http:", "https:", "tftp:", "s3:", "gs:", "arn:"];
    references
        || schemes
            .iter()
            .any(|scheme| text.contains(&format!("\"source\":\"{scheme}")))
}

#[test]
fn the_program_says_what_every_row_is_about() {
    let root = TestRoot::new();
    let mut wrong = Vec::new();
    for (rule, _, last, kind, text, says) in rows() {
        for (prefix, document) in documents(*kind, &config(text, *last)) {
            let is_error = matches!(says, Error(..));
            if !is_error && prefix.is_empty() && fetches(&document) {
                continue;
            }
            let file = root.config(&document);
            let plan = root.run(&["plan", file.path(), "--output", "json"]);
            let said = plan.out() + &plan.err();
            let listed = |list: &str, path: &str, words: &str| {
                let plan: Value = serde_json::from_str(&plan.out()).unwrap_or_default();
                let mut all = plan[list].as_array().into_iter().flatten();
                all.any(|one| {
                    one["subject"] == format!("{prefix}{path}").as_str()
                        && one["message"].as_str().unwrap().contains(words)
                })
            };
            let fits = match says {
                Error(path, words) => {
                    plan.code() == 1
                        && plan.out().is_empty()
                        && said.contains(&format!("{prefix}{path}: "))
                        && said.contains(words)
                }
                Warn(path, words) => listed("notices", path, words),
                Blocked(path, words) => plan.code() == 1 && listed("blockers", path, words),
                Fine => {
                    let plan: Value = serde_json::from_str(&plan.out()).unwrap_or_default();
                    let mut notices = plan["notices"].as_array().into_iter().flatten();
                    plan.is_object()
                        && notices.all(|one| {
                            let said = one["message"].as_str().unwrap();
                            said.contains("came with") || is_silent(rule, said)
                        })
                }
            };
            // The numbers of the rules are for these tables alone.
            if !fits || said.contains(&format!("({rule})")) {
                let said: String = said.chars().take(600).collect();
                wrong.push(format!("{rule} {document}: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_document_with_many_errors_names_them_all() {
    let config = json!({
        "ignition": {"version": "3.5.0", "config": {"merge": [{}]}, "proxy": {"httpProxy": "a"}},
        "storage": {
            "files": [{"path": "a", "mode": -1, "user": {"id": 1, "name": "b"}, "overwrite": true,
                "contents": {"compression": "xz", "verification": {"hash": "x"}}, "append": [{}]},
                {"path": "a"}],
            "links": [{"path": "/l"}],
        },
        "systemd": {"units": [{"name": "a", "contents": "[", "dropins": [{"name": "b"}]}]},
    });
    let name = "rendered-worker-5f0c2d7e8a914b3c6d1e0f9a8b7c6d5x";
    let mut document = machine_config(name, config);
    document["spec"]["extensions"] = json!(["none"]);
    document["spec"]["kernelType"] = json!("none");
    let (errors, ..) = findings(&document);
    let said: String = errors
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect();
    for rule in [
        "V1", "V2", "V4", "V5", "V6", "V7", "V8", "V14", "V15", "V18", "V19", "V20", "V24", "V28",
    ] {
        assert!(!is_silent(rule, &said), "{rule} is not in\n{said}");
    }
    for words in [
        "a fragment to be appended",
        "invalid extensions",
        "kernelType",
    ] {
        assert!(said.contains(words), "{words} is not in\n{said}");
    }
}

/// What V3 says is what is done.
#[test]
fn special_bits_of_files_and_directories_count_from_3_6_on() {
    let text = r#"{"storage":{"files":[{"path":"/a","mode":2541}],"directories":[{"path":"/b","mode":1023}]}}"#;
    for (minor, file, directory) in [(0, 0o755, 0o777), (5, 0o755, 0o777), (6, 0o4755, 0o1777)] {
        let bytes = config(text, minor).to_string();
        let desired =
            Desired::from_config(&document::parse_document(bytes.as_bytes(), "it").unwrap());
        assert_eq!(desired.files[0].mode, file, "3.{minor}");
        assert_eq!(desired.directories[0].mode, Some(directory), "3.{minor}");
    }
}

/// The reader of JSON would fill the fields of an object from a list, one after the other.
#[test]
fn a_list_is_not_an_object() {
    let config = |text: &str| document::parse_document(text.as_bytes(), "it");
    for (text, path) in [
        (r#"{"items":[[null,null,{"name":"a"},{}]]}"#, "items[0]"),
        (r#"{"metadata":{"name":"a"},"spec":["os"]}"#, "spec"),
        (r#"{"metadata":["a"],"spec":{}}"#, "metadata"),
        (
            r#"{"metadata":{"name":"a","ownerReferences":[["b"]]},"spec":{}}"#,
            "metadata.ownerReferences[0]",
        ),
        (
            r#"{"metadata":{"name":"a"},"spec":{"config":[{"version":"3.5.0"}]}}"#,
            "spec.config",
        ),
        (
            r#"{"ignition":{"version":"3.5.0"},"storage":[]}"#,
            "storage",
        ),
        (
            r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[["/a"]]}}"#,
            "storage.files[0]",
        ),
        (
            r#"{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a","contents":["data:,x"]}]}}"#,
            "storage.files[0].contents",
        ),
        (
            r#"{"ignition":{"version":"3.5.0"},"kernelArguments":[["a"]]}"#,
            "kernelArguments",
        ),
        (
            r#"{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"root","path":"/a","user":[7]}]}}"#,
            "storage.files[0].user",
        ),
        (
            r#"{"ignition":{"version":"2.2.0"},"passwd":{"users":[["core"]]}}"#,
            "passwd.users[0]",
        ),
    ] {
        let found: Vec<_> = config(text).map_or_else(|error| error.findings, |_| Vec::new());
        assert_eq!(
            found.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(),
            [path],
            "{text}: {found:?}"
        );
    }
}

/// The line of each was once looked for by itself, in the whole text.
#[test]
fn a_document_with_thousands_of_errors_is_refused_at_once() {
    let file = "      - path: etc/relative\n        contents:\n          source: data:,x\n";
    let head = "metadata:\n  name: a\nspec:\n  config:\n    ignition:\n      version: 3.5.0\n    storage:\n      files:\n";
    let text = head.to_owned() + &file.repeat(4000);
    let start = std::time::Instant::now();
    let error = document::parse_document(text.as_bytes(), "it").unwrap_err();
    let last = error.findings.last().unwrap();
    assert_eq!(
        last.path,
        "spec.config.storage.files[3999].path (line 12006)"
    );
    let seconds = start.elapsed().as_secs();
    assert!(seconds < 20, "{seconds} s");
}
