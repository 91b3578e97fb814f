//! Records that are not as the daemon writes them: what every command says of each, beside what Go's reader makes of it.

use std::fs;

use crate::support::{RECORD, TestRoot, by_operator, flat_run, say};
use serde_json::{Value, json};

/// What the daemon does at its start, once it has read the record.
enum Start {
    /// It takes the record for the config that the API has.
    Adopts,
    /// The same, of a record that is refused here.
    AdoptsByName,
    /// Degraded with exactly this.
    Says(&'static str),
    /// Degraded, with a message that depends on the version of Go; words of the reason.
    Fails(&'static str),
    /// It takes the record for another config, which is not known here.
    Unknown,
}
use Start::{Adopts, AdoptsByName, Fails, Says, Unknown};

/// Changes of the text of a record. Each was read by Go 1.19's `json.Decoder` into the types of the API.
fn rows(whole: &str) -> Vec<(&'static str, String, Start)> {
    let with = |from: &str, to: &str| {
        assert!(whole.contains(from), "no {from}");
        whole.replacen(from, to, 1)
    };
    let spec = |key: &str, value: Value| {
        let mut config: Value = serde_json::from_str(whole).unwrap();
        config["spec"][key] = value;
        config.to_string()
    };
    let inner = &whole[1..whole.len() - 1];
    let tail = |tail: &str| format!("{whole}{tail}");
    vec![
        ("as it is", whole.to_owned(), Adopts),
        ("a newline", tail("\n"), Adopts),
        ("blanks before it", format!(" \n\t{whole}"), Adopts),
        ("garbage behind it", tail("xx"), Adopts),
        ("a brace behind it", tail("}"), Adopts),
        ("two values", tail(whole), Adopts),
        ("zeros behind it", tail("\0\0\0"), Adopts),
        ("a comment behind it", tail("# mine"), Adopts),
        ("Spec", with("\"spec\"", "\"Spec\""), Adopts),
        ("METADATA", with("\"metadata\"", "\"METADATA\""), Adopts),
        ("FIPS", with("\"fips\"", "\"FIPS\""), Adopts),
        ("osImageUrl", with("osImageURL", "osImageUrl"), Adopts),
        ("a long s", with("\"spec\"", "\"\u{17f}pec\""), Adopts),
        (
            "fips twice",
            with("\"fips\":false", "\"fips\":true,\"fips\":false"),
            Adopts,
        ),
        (
            "spec twice",
            format!("{{\"spec\":{{\"fips\":true}},{inner}}}"),
            Adopts,
        ),
        (
            "a part of spec behind it",
            format!("{{{inner},\"spec\":{{}}}}"),
            Adopts,
        ),
        (
            "another name before it",
            with("\"name\":", "\"name\":\"x\",\"Name\":"),
            Adopts,
        ),
        (
            "config twice",
            with("\"config\":", "\"config\":7,\"config\":"),
            Adopts,
        ),
        (
            "an unknown key twice",
            format!("{{{inner},\"z\":1,\"z\":2}}"),
            Adopts,
        ),
        (
            "another kind",
            format!("{{\"kind\":\"Node\",{inner}}}"),
            Adopts,
        ),
        (
            "another version",
            format!("{{\"apiVersion\":\"v9\",{inner}}}"),
            Adopts,
        ),
        ("null for fips", spec("fips", Value::Null), Adopts),
        ("no UTF-8", with("\"fips\"", "\"z\":\"?\",\"fips\""), Adopts),
        ("config: a string", spec("config", json!("x")), AdoptsByName),
        ("config: a list", spec("config", json!([])), AdoptsByName),
        (
            "config: no version",
            spec("config", json!({})),
            AdoptsByName,
        ),
        (
            "config: a version of the future",
            spec("config", json!({"ignition": {"version": "9.0.0"}})),
            AdoptsByName,
        ),
        ("Storage", with("\"storage\"", "\"Storage\""), AdoptsByName),
        (
            "an unknown kernel",
            spec("kernelType", json!("x")),
            AdoptsByName,
        ),
        (
            "an unknown extension",
            spec("extensions", json!(["x"])),
            AdoptsByName,
        ),
        ("empty", String::new(), Says("EOF")),
        ("blanks", " \n".to_owned(), Says("EOF")),
        ("cut off", whole[..200].to_owned(), Says("unexpected EOF")),
        (
            "without its last brace",
            whole[..whole.len() - 1].to_owned(),
            Says("unexpected EOF"),
        ),
        (
            "zeros",
            "\0".repeat(20),
            Says(r"invalid character '\x00' looking for beginning of value"),
        ),
        (
            "a byte order mark",
            format!("\u{feff}{whole}"),
            Says("invalid character 'ï' looking for beginning of value"),
        ),
        (
            "a comment before it",
            format!("// mine\n{whole}"),
            Says("invalid character '/' looking for beginning of value"),
        ),
        (
            "a list",
            format!("[{whole}]"),
            Says("json: cannot unmarshal array into Go value of type v1.MachineConfig"),
        ),
        (
            "true",
            "true".to_owned(),
            Says("json: cannot unmarshal bool into Go value of type v1.MachineConfig"),
        ),
        (
            "YAML",
            "metadata:\n  name: a\nspec: {}\n".to_owned(),
            Says("invalid character 'm' looking for beginning of value"),
        ),
        (
            "fips: a string",
            spec("fips", json!("x")),
            Fails("spec.fips is not true or false"),
        ),
        (
            "fips: a string, then not",
            with("\"fips\":false", "\"fips\":\"x\",\"fips\":false"),
            Fails("spec.fips is not"),
        ),
        (
            "an argument: a number",
            spec("kernelArguments", json!([1])),
            Fails("spec.kernelArguments is not a list of strings"),
        ),
        (
            "spec: a list",
            with("\"spec\":{", "\"spec\":[],\"Spec\":{"),
            Fails("spec is not an object"),
        ),
        (
            "a label: a number",
            with("\"name\":", "\"labels\":{\"a\":1},\"name\":"),
            Fails("metadata.labels is not"),
        ),
        (
            "a comma too many",
            format!("{{{inner},}}"),
            Fails("not valid JSON"),
        ),
        (
            "a key without quotes",
            with("\"spec\"", "spec"),
            Fails("not valid JSON"),
        ),
        (
            "the name: null",
            with("\"name\":", "\"name\":null,\"was\":"),
            Unknown,
        ),
        (
            "a list of objects",
            format!("{{\"items\":[{whole}]}}"),
            Unknown,
        ),
    ]
}

fn record_of(config: &Value) -> String {
    let root = TestRoot::new();
    root.apply(config);
    root.read(RECORD)
}

#[test]
fn every_command_agrees_with_the_daemon_on_a_record_that_it_did_not_write() {
    let config = by_operator("worker", "a\n");
    let whole = record_of(&config);
    let rows = rows(&whole);
    for (what, text, start) in &rows {
        let root = TestRoot::new();
        root.apply(&config);
        let file = root.config(&config);
        root.run(&["fetch", file.path()]).ok();
        let name = config["metadata"]["name"].as_str().unwrap();
        let kept = json!({"version": 1, "node": "n", "seen": 1_750_000_000, "current": name, "desired": name,
            "state": "Done"});
        root.write("var/lib/mco-rescue/annotations.json", &kept.to_string());
        let mut bytes = text.clone().into_bytes();
        let is_no_text = *what == "no UTF-8";
        bytes
            .iter_mut()
            .filter(|byte| is_no_text && **byte == b'?')
            .for_each(|byte| *byte = 0xff);
        fs::write(root.path(RECORD), &bytes).unwrap();

        let status = root.run(&["status", "--output", "json"]).ok().json();
        let branches = status["daemon"]["branches"].as_array().unwrap();
        let seen = &branches[0]["prediction"];
        let because = seen["because"].to_string();
        let (state, error) = (seen["state"].as_str().unwrap(), seen["error"].as_str());
        let verify = match start {
            Says(_) | Fails(_) => root.run(&["verify", file.path()]),
            Adopts | AdoptsByName | Unknown => root.run(&["verify"]),
        };
        let doctor = flat_run(&root.run(&["doctor"]));
        let broken = "the daemon's record cannot be read";
        match start {
            Adopts | AdoptsByName => {
                assert_eq!((state, error), ("done", None), "{what}: {seen}");
                assert_eq!(seen["record_after"], name, "{what}");
                assert_eq!(verify.code(), 0, "{what}: {}", flat_run(&verify));
                assert!(!doctor.contains(broken), "{what}: {doctor}");
                let refused = doctor.contains("the daemon's record is refused here");
                assert_eq!(refused, matches!(start, AdoptsByName), "{what}: {doctor}");
            }
            Says(said) => {
                assert_eq!((state, error), ("degraded", Some(*said)), "{what}: {seen}");
                assert_eq!(verify.code(), 3, "{what}: {}", flat_run(&verify));
                assert!(
                    flat_run(&verify).contains(said),
                    "{what}: {}",
                    flat_run(&verify)
                );
                assert!(doctor.contains(broken), "{what}: {doctor}");
            }
            Fails(words) => {
                assert_eq!((state, error), ("degraded", None), "{what}: {seen}");
                assert!(because.contains(words), "{what}: {because}");
                assert_eq!(verify.code(), 3, "{what}: {}", flat_run(&verify));
                assert!(doctor.contains(broken), "{what}: {doctor}");
            }
            Unknown => assert_eq!((state, error), ("unknown", None), "{what}: {seen}"),
        }
        // It is written anew, and then the daemon is done.
        root.run(&["apply", "--yes", "--files-only", file.path()])
            .ok();
        assert_eq!(root.read(RECORD).trim(), whole, "{what}");
        let status = root.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(
            status["daemon"]["branches"][0]["prediction"]["state"], "done",
            "{what}"
        );
        root.run(&["verify"]).ok();
    }
    say(&format!("{} records", rows.len()));
}

/// Its update starts from the record, not from the API's object.
#[test]
fn an_update_that_starts_from_a_record_that_is_refused_here_is_not_predicted() {
    let (old, new) = (by_operator("worker", "a\n"), by_operator("worker", "b\n"));
    let root = TestRoot::new();
    root.apply(&old);
    for config in [&old, &new] {
        let file = root.config(config);
        root.run(&["fetch", file.path()]).ok();
    }
    let mut record = old.clone();
    record["spec"]["kernelType"] = json!("x");
    root.write(RECORD, &record.to_string());
    let kept = json!({"version": 1, "node": "n", "seen": 1_750_000_000, "current": old["metadata"]["name"],
        "desired": new["metadata"]["name"], "state": "Done"});
    root.write("var/lib/mco-rescue/annotations.json", &kept.to_string());
    let status = root.run(&["status", "--output", "json"]).ok().json();
    let seen = &status["daemon"]["branches"][0]["prediction"];
    assert_eq!(
        (&seen["state"], &seen["drain"]),
        (&json!("unknown"), &Value::Null),
        "{seen}"
    );
    assert!(
        seen["because"]
            .to_string()
            .contains("kernelType=x is invalid"),
        "{seen}"
    );
}
