//! Ignition spec 2: every row of the conversion, every refusal with its path, real configs where they are there.

use crate::support::{self, machine_config, say, shared_data};
use mco_rescue::config::document::spec2::{Converted, convert_spec2, is_spec2};
use mco_rescue::config::document::{self, Finding, Severity};
use proptest::prelude::*;
use serde_json::{Value, json};

const AT: &str = "spec.config";

/// A config of this version with these sections.
fn config(version: &str, mut sections: Value) -> Value {
    sections["ignition"]["version"] = json!(version);
    sections
}

fn converted(version: &str, sections: Value) -> Converted {
    let config = config(version, sections);
    convert_spec2(&config, AT).unwrap_or_else(|findings| panic!("{config}: {findings:?}"))
}

/// The result, without its version.
fn result(version: &str, sections: Value) -> Value {
    let mut config = converted(version, sections).config;
    assert_eq!(config["ignition"]["version"], "3.5.0");
    config["ignition"]
        .as_object_mut()
        .unwrap()
        .remove("version");
    if config["ignition"] == json!({}) {
        config.as_object_mut().unwrap().remove("ignition");
    }
    config
}

fn errors(config: &Value) -> Vec<String> {
    let findings = convert_spec2(config, AT).expect_err(&config.to_string());
    assert!(findings.iter().all(|f| f.severity == Severity::Error));
    findings.iter().map(Finding::to_string).collect()
}

fn warned(version: &str, sections: Value) -> Vec<String> {
    let warnings = converted(version, sections).warnings;
    assert!(warnings.iter().all(|f| f.severity == Severity::Warning));
    warnings.into_iter().map(|finding| finding.path).collect()
}

fn files(files: Value) -> Value {
    json!({"storage": {"files": files}})
}

fn units(units: Value) -> Value {
    json!({"systemd": {"units": units}})
}

fn users(users: Value) -> Value {
    json!({"passwd": {"users": users}})
}

/// A file of spec 2, with more members.
fn file(path: &str, more: Value) -> Value {
    let mut file = json!({"filesystem": "root", "path": path});
    for (key, value) in more.as_object().unwrap() {
        file[key] = value.clone();
    }
    file
}

#[test]
fn every_row_of_the_conversion() {
    let hash = format!("sha512-{}", "a".repeat(128));
    let rows: Vec<(&str, Value, Value)> = vec![
        // Nothing.
        ("2.2.0", json!({}), json!({})),
        (
            "2.2.0",
            json!({"networkd": {}, "passwd": null, "storage": {}, "systemd": {"units": []}}),
            json!({}),
        ),
        // overwrite: true unless it says otherwise; the source is there even when empty.
        (
            "2.2.0",
            files(json!([file("/a", json!({}))])),
            files(json!([{"path": "/a", "overwrite": true, "contents": {"source": ""}}])),
        ),
        (
            "2.3.0",
            files(json!([file("/a", json!({"overwrite": true}))])),
            files(json!([{"path": "/a", "overwrite": true, "contents": {"source": ""}}])),
        ),
        (
            "2.2.0",
            files(json!([file(
                "/a",
                json!({"overwrite": false, "append": false})
            )])),
            files(json!([{"path": "/a", "overwrite": false, "contents": {"source": ""}}])),
        ),
        // append: a fragment instead of contents.
        (
            "2.2.0",
            files(json!([file(
                "/a",
                json!({"append": true, "contents": {"source": "data:,x"}})
            )])),
            files(json!([{"path": "/a", "overwrite": false, "append": [{"source": "data:,x"}]}])),
        ),
        // Empty texts are absent, hashes and gzip stay.
        (
            "2.2.0",
            files(json!([file(
                "/a",
                json!({"user": {"name": ""}, "group": {"name": ""}, "contents": {"source": "data:,", "compression": ""}})
            )])),
            files(json!([{"path": "/a", "overwrite": true, "contents": {"source": "data:,"}}])),
        ),
        (
            "2.2.0",
            files(json!([file(
                "/a",
                json!({"contents": {"source": "data:,", "compression": "gzip", "verification": {"hash": hash}}})
            )])),
            files(
                json!([{"path": "/a", "overwrite": true, "contents": {"source": "data:,", "compression": "gzip", "verification": {"hash": hash}}}]),
            ),
        ),
        // Modes: explicit zero up to 2.1, as given otherwise.
        (
            "2.0.0",
            files(json!([file("/a", json!({}))])),
            files(
                json!([{"path": "/a", "overwrite": true, "mode": 0, "user": {"id": 0}, "group": {"id": 0}, "contents": {"source": ""}}]),
            ),
        ),
        (
            "2.0.0",
            files(json!([file(
                "/a",
                json!({"mode": 420, "user": {"id": 3}, "group": {"id": 4}})
            )])),
            files(
                json!([{"path": "/a", "overwrite": true, "mode": 420, "user": {"id": 3}, "group": {"id": 4}, "contents": {"source": ""}}]),
            ),
        ),
        (
            "2.1.0",
            files(json!([file("/a", json!({"user": {"name": "core"}}))])),
            files(
                json!([{"path": "/a", "overwrite": true, "mode": 0, "user": {"name": "core"}, "contents": {"source": ""}}]),
            ),
        ),
        (
            "2.1.0",
            json!({"storage": {"directories": [file("/d", json!({}))]}}),
            json!({"storage": {"directories": [{"path": "/d", "mode": 0}]}}),
        ),
        (
            "2.2.0",
            json!({"storage": {"directories": [file("/d", json!({"overwrite": true}))]}}),
            json!({"storage": {"directories": [{"path": "/d", "overwrite": true}]}}),
        ),
        // Paths are joined to the root and cleaned.
        (
            "2.2.0",
            files(json!([file("//etc/./b/../a/", json!({}))])),
            files(json!([{"path": "/etc/a", "overwrite": true, "contents": {"source": ""}}])),
        ),
        // Links.
        (
            "2.2.0",
            json!({"storage": {"links": [file("/l", json!({"target": "/t", "hard": false})), file("/m", json!({"target": "/t", "hard": true, "overwrite": false}))]}}),
            json!({"storage": {"links": [{"path": "/l", "target": "/t"}, {"path": "/m", "target": "/t", "hard": true, "overwrite": false}]}}),
        ),
        // The root file system is dropped, disks and arrays stay for the refusal by name.
        (
            "2.2.0",
            json!({"storage": {"filesystems": [{"name": "root", "path": "/sysroot"}]}}),
            json!({}),
        ),
        (
            "2.2.0",
            json!({"storage": {"disks": [{"device": "/dev/a"}], "raid": [{"name": "r"}]}}),
            json!({"storage": {"disks": [{"device": "/dev/a"}], "raid": [{"name": "r"}]}}),
        ),
        // Units: enable and enabled, mask, empty contents.
        (
            "2.0.0",
            units(json!([{"name": "a.service", "enable": true}])),
            units(json!([{"name": "a.service", "enabled": true}])),
        ),
        (
            "2.0.0",
            units(json!([{"name": "a.service", "enable": false}])),
            units(json!([{"name": "a.service"}])),
        ),
        (
            "2.2.0",
            units(json!([{"name": "a.service", "enabled": false, "enable": true}])),
            units(json!([{"name": "a.service", "enabled": false}])),
        ),
        (
            "2.2.0",
            units(json!([{"name": "a.service", "enabled": true, "enable": false}])),
            units(json!([{"name": "a.service", "enabled": true}])),
        ),
        (
            "2.2.0",
            units(json!([{"name": "a.service", "enabled": null, "mask": false, "contents": ""}])),
            units(json!([{"name": "a.service"}])),
        ),
        (
            "2.2.0",
            units(
                json!([{"name": "a.service", "mask": true, "dropins": [{"name": "a.conf", "contents": ""}]}]),
            ),
            units(json!([{"name": "a.service", "mask": true, "dropins": [{"name": "a.conf"}]}])),
        ),
        // Users: what is empty or off is absent, an empty hash is not; create becomes the user's own.
        (
            "2.2.0",
            users(
                json!([{"name": "core", "passwordHash": "", "gecos": "", "noCreateHome": false, "groups": []}]),
            ),
            users(json!([{"name": "core", "passwordHash": ""}])),
        ),
        (
            "2.3.0",
            users(
                json!([{"name": "other", "uid": 0, "homeDir": "/h", "primaryGroup": "p", "groups": ["g"], "shell": "/s", "system": true, "noCreateHome": true, "noUserGroup": true, "noLogInit": true}]),
            ),
            users(
                json!([{"name": "other", "uid": 0, "homeDir": "/h", "primaryGroup": "p", "groups": ["g"], "shell": "/s", "system": true, "noCreateHome": true, "noUserGroup": true, "noLogInit": true}]),
            ),
        ),
        (
            "2.0.0",
            users(
                json!([{"name": "core", "create": {"uid": 1, "gecos": "g", "homeDir": "/h", "noCreateHome": true, "primaryGroup": "p", "groups": ["g"], "noUserGroup": true, "system": true, "noLogInit": true, "shell": "/s"}}]),
            ),
            users(
                json!([{"name": "core", "uid": 1, "gecos": "g", "homeDir": "/h", "noCreateHome": true, "primaryGroup": "p", "groups": ["g"], "noUserGroup": true, "system": true, "noLogInit": true, "shell": "/s"}]),
            ),
        ),
        (
            "2.2.0",
            users(json!([{"name": "core", "create": {}}])),
            users(json!([{"name": "core"}])),
        ),
        (
            "2.2.0",
            json!({"passwd": {"groups": [{"name": "g", "gid": 5, "passwordHash": "", "system": false}]}}),
            json!({"passwd": {"groups": [{"name": "g", "gid": 5}]}}),
        ),
        // References.
        (
            "2.2.0",
            json!({"ignition": {"config": {"append": [{"source": "data:,x", "verification": {"hash": hash}}]}}}),
            json!({"ignition": {"config": {"merge": [{"source": "data:,x", "verification": {"hash": hash}}]}}}),
        ),
        (
            "2.2.0",
            json!({"ignition": {"config": {"replace": {"source": "data:,x"}}}}),
            json!({"ignition": {"config": {"replace": {"source": "data:,x"}}}}),
        ),
        (
            "2.2.0",
            json!({"ignition": {"config": {"replace": null}}}),
            json!({}),
        ),
        (
            "2.1.0",
            json!({"ignition": {"timeouts": {"httpTotal": 0}}}),
            json!({"ignition": {"timeouts": {"httpTotal": 0}}}),
        ),
        // 2.4.
        (
            "2.4.0",
            json!({"ignition": {"proxy": {"httpsProxy": "http://p.registry.example"}}}),
            json!({"ignition": {"proxy": {"httpsProxy": "http://p.registry.example"}}}),
        ),
        // Up to 2.2 the last one wins and the list is reversed; later versions keep their order.
        (
            "2.2.0",
            units(json!([{"name": "a.service"}, {"name": "b.service"}])),
            units(json!([{"name": "b.service"}, {"name": "a.service"}])),
        ),
        (
            "2.3.0",
            units(json!([{"name": "a.service"}, {"name": "b.service"}])),
            units(json!([{"name": "a.service"}, {"name": "b.service"}])),
        ),
        (
            "2.2.0",
            users(json!([{"name": "core", "sshAuthorizedKeys": ["a", "a", "b"]}])),
            users(json!([{"name": "core", "sshAuthorizedKeys": ["a", "b"]}])),
        ),
    ];
    let count = rows.len();
    for (version, sections, wanted) in rows {
        let shown = format!("{version} {sections}");
        assert_eq!(result(version, sections), wanted, "{shown}");
    }
    say(&format!("{count} rows of the conversion"));
}

#[test]
fn every_refusal_names_its_path() {
    let rows: Vec<(Value, &str, &str)> = vec![
        // Versions.
        (json!({}), "ignition.version", "missing"),
        (json!("text"), "ignition.version", "missing"),
        (
            json!({"ignition": {"version": 2}}),
            "ignition.version",
            "missing or not a string",
        ),
        (
            json!({"ignitionVersion": 1}),
            "ignitionVersion",
            "spec 1 is not supported",
        ),
        (
            config("2.5.0", json!({})),
            "ignition.version",
            "2.0.0 to 2.4.0",
        ),
        (
            config("2.2.1", json!({})),
            "ignition.version",
            "unsupported",
        ),
        (
            config("3.5.0", json!({})),
            "ignition.version",
            "unsupported",
        ),
        (config("2.2", json!({})), "ignition.version", "X.Y.Z"),
        (config("2.2.0-dev", json!({})), "ignition.version", "X.Y.Z"),
        // Schema.
        (
            config(
                "2.2.0",
                files(json!([{"Filesystem": "root", "path": "/a"}])),
            ),
            "storage.files[0].Filesystem",
            "\"filesystem\"",
        ),
        (
            config("2.2.0", files(json!([file("/a", json!({"Mode": 1}))]))),
            "storage.files[0].Mode",
            "\"mode\"",
        ),
        (
            config("2.2.0", json!({"Networkd": {}})),
            "Networkd",
            "\"networkd\"",
        ),
        (
            config(
                "2.2.0",
                units(json!([{"name": "a.service", "Enable": true}])),
            ),
            "systemd.units[0].Enable",
            "\"enable\"",
        ),
        (
            config("2.2.0", files(json!([file("/a", json!({"mode": "0644"}))]))),
            "storage.files[0].mode",
            "invalid type",
        ),
        (
            config("2.2.0", files(json!([file("/a", json!({"append": []}))]))),
            "storage.files[0].append",
            "invalid type",
        ),
        (
            config("2.2.0", json!({"ignition": {"config": {"append": true}}})),
            "ignition.config.append",
            "invalid type",
        ),
        // Nodes.
        (
            config("2.2.0", files(json!([{"path": "/a"}]))),
            "storage.files[0].filesystem",
            "missing",
        ),
        (
            config(
                "2.2.0",
                files(json!([{"filesystem": "data", "path": "/a"}])),
            ),
            "storage.files[0].filesystem",
            "\"data\"",
        ),
        (
            config("2.2.0", files(json!([file("a", json!({}))]))),
            "storage.files[0].path",
            "not an absolute path",
        ),
        (
            config("2.2.0", files(json!([{"filesystem": "root"}]))),
            "storage.files[0].path",
            "not an absolute path",
        ),
        (
            config(
                "2.1.0",
                json!({"storage": {"directories": [file("d", json!({}))]}}),
            ),
            "storage.directories[0].path",
            "not an absolute path",
        ),
        (
            config(
                "2.1.0",
                json!({"storage": {"links": [{"filesystem": "x", "path": "/l", "target": "/t"}]}}),
            ),
            "storage.links[0].filesystem",
            "\"x\"",
        ),
        (
            config(
                "2.2.0",
                files(json!([file(
                    "/a",
                    json!({"append": true, "overwrite": true})
                )])),
            ),
            "storage.files[0].append",
            "both",
        ),
        // Sources and hashes.
        (
            config(
                "2.2.0",
                files(json!([file(
                    "/a",
                    json!({"contents": {"source": "oem:///a"}})
                )])),
            ),
            "storage.files[0].contents.source",
            "oem",
        ),
        (
            config(
                "2.2.0",
                files(json!([file(
                    "/a",
                    json!({"contents": {"source": "gs://b/a"}})
                )])),
            ),
            "storage.files[0].contents.source",
            "URL schemes",
        ),
        (
            config(
                "2.2.0",
                files(json!([file(
                    "/a",
                    json!({"contents": {"source": "plain"}})
                )])),
            ),
            "storage.files[0].contents.source",
            "URL schemes",
        ),
        (
            config(
                "2.2.0",
                files(json!([file(
                    "/a",
                    json!({"contents": {"source": "data:,", "verification": {"hash": format!("sha256-{}", "a".repeat(64))}}})
                )])),
            ),
            "storage.files[0].contents.verification.hash",
            "sha512",
        ),
        (
            config(
                "2.2.0",
                files(json!([file(
                    "/a",
                    json!({"contents": {"source": "data:,", "verification": {"hash": "sha512-00"}}})
                )])),
            ),
            "storage.files[0].contents.verification.hash",
            "128",
        ),
        (
            config(
                "2.2.0",
                json!({"ignition": {"config": {"append": [{"source": "oem:///a"}]}}}),
            ),
            "ignition.config.append[0].source",
            "oem",
        ),
        (
            config(
                "2.2.0",
                json!({"ignition": {"config": {"replace": {"source": "x"}}}}),
            ),
            "ignition.config.replace.source",
            "URL schemes",
        ),
        (
            config(
                "2.2.0",
                json!({"ignition": {"security": {"tls": {"certificateAuthorities": [{"source": "x"}]}}}}),
            ),
            "ignition.security.tls.certificateAuthorities[0].source",
            "URL schemes",
        ),
        // Sections.
        (
            config(
                "2.2.0",
                json!({"networkd": {"units": [{"name": "a.network"}]}}),
            ),
            "networkd.units[0]",
            "/etc/systemd/network",
        ),
        (
            config(
                "2.2.0",
                json!({"storage": {"filesystems": [{"name": "root"}, {"name": "data"}]}}),
            ),
            "storage.filesystems[1]",
            "\"data\"",
        ),
        (
            config(
                "2.2.0",
                json!({"storage": {"filesystems": [{"path": "/x"}]}}),
            ),
            "storage.filesystems[0]",
            "\"\"",
        ),
        (
            config(
                "2.3.0",
                json!({"storage": {"disks": [{"partitions": [{"size": 0}, {"size": 9}]}]}}),
            ),
            "storage.disks[0].partitions[1].size",
            "sizeMiB",
        ),
        (
            config(
                "2.3.0",
                json!({"storage": {"disks": [{"partitions": [{"start": 9}]}]}}),
            ),
            "storage.disks[0].partitions[0].start",
            "startMiB",
        ),
        // Users.
        (
            config("2.2.0", users(json!([{"name": "core"}, {"name": "eve"}]))),
            "passwd.users[1].name",
            "unexpected user with name: eve. Only core user is supported",
        ),
        (
            config(
                "2.1.0",
                users(json!([{"name": "core", "create": {}, "uid": 5}])),
            ),
            "passwd.users[0].create",
            "itself",
        ),
        (
            config(
                "2.2.0",
                users(json!([{"name": "core", "create": {"shell": "/s"}, "shell": "/s"}])),
            ),
            "passwd.users[0].create",
            "itself",
        ),
        // Duplicates that stay.
        (
            config(
                "2.3.0",
                files(json!([file("/a", json!({})), file("/a", json!({}))])),
            ),
            "storage.files[1].path",
            "files[0]",
        ),
        (
            config(
                "2.2.0",
                files(json!([file("/a", json!({})), file("//a", json!({}))])),
            ),
            "storage.files[0].path",
            "files[1]",
        ),
        (
            config(
                "2.2.0",
                json!({"storage": {"files": [file("/a", json!({}))], "directories": [file("/a", json!({}))]}}),
            ),
            "storage.directories[0].path",
            "files[0]",
        ),
        (
            config(
                "2.2.0",
                json!({"storage": {"files": [file("/a", json!({}))], "links": [file("/a", json!({"target": "/t"}))]}}),
            ),
            "storage.links[0].path",
            "files[0]",
        ),
        (
            config(
                "2.3.0",
                units(json!([{"name": "a.service"}, {"name": "a.service"}])),
            ),
            "systemd.units[1].name",
            "units[0]",
        ),
        (
            config(
                "2.2.0",
                units(
                    json!([{"name": "a.service", "dropins": [{"name": "x.conf"}, {"name": "x.conf"}]}]),
                ),
            ),
            "systemd.units[0].dropins[1].name",
            "dropins[0]",
        ),
        // A link above, with and without a slash.
        (
            config(
                "2.2.0",
                json!({"storage": {"files": [file("/l/a", json!({}))], "links": [file("/l", json!({"target": "/t"}))]}}),
            ),
            "storage.files[0].path",
            "link /l",
        ),
        (
            config(
                "2.2.0",
                json!({"storage": {"files": [file("/foobar", json!({}))], "links": [file("/foo", json!({"target": "/t"}))]}}),
            ),
            "storage.files[0].path",
            "link /foo",
        ),
        (
            config(
                "2.2.0",
                json!({"storage": {"links": [file("/l", json!({"target": "/t"})), file("/l2", json!({"target": "/t"}))]}}),
            ),
            "storage.links[1].path",
            "link /l",
        ),
    ];
    let count = rows.len();
    for (config, path, message) in rows {
        let found = errors(&config);
        let wanted = format!("{AT}.{path}: ");
        let hit = |text: &&String| text.starts_with(&wanted) && text.contains(message);
        assert!(
            found.iter().any(|text| hit(&text)),
            "{config}\n{wanted}{message}\n{found:#?}"
        );
    }
    say(&format!("{count} refusals"));
}

#[test]
fn warnings_name_what_is_lost_or_changed() {
    let rows: Vec<(&str, Value, &[&str])> = vec![
        ("2.2.0", json!({}), &[]),
        ("2.3.0", json!({}), &["ignition.version"]),
        ("2.4.0", json!({}), &["ignition.version"]),
        (
            "2.2.0",
            json!({"kernelArguments": {}, "storage": {"luks": []}}),
            &["kernelArguments", "storage.luks"],
        ),
        (
            "2.2.0",
            json!({"ignition": {"config": {"append": [{"source": "", "compression": "gzip"}]}}}),
            &["ignition.config.append[0].compression"],
        ),
        (
            "2.1.0",
            files(json!([file("/a", json!({}))])),
            &["storage.files[0].mode"],
        ),
        (
            "2.1.0",
            files(json!([file("/a", json!({"mode": 0, "append": true}))])),
            &["storage.files[0].append"],
        ),
        (
            "2.0.0",
            units(json!([{"name": "a.service", "enabled": true}])),
            &["systemd.units[0].enabled"],
        ),
        (
            "2.0.0",
            json!({"storage": {"links": [file("/l", json!({"target": "/t"}))]}}),
            &["storage.links"],
        ),
        (
            "2.3.0",
            json!({"ignition": {"proxy": {"noProxy": ["x"]}}}),
            &["ignition.version", "ignition.proxy"],
        ),
        (
            "2.2.0",
            files(json!([file("/a", json!({})), file("/a", json!({}))])),
            &["storage.files[0]"],
        ),
        (
            "2.2.0",
            units(json!([{"name": "a.service"}, {"name": "a.service"}])),
            &["systemd.units[0]"],
        ),
        (
            "2.2.0",
            users(json!([{"name": "core"}, {"name": "core"}])),
            &["passwd.users[0]"],
        ),
        (
            "2.2.0",
            users(json!([{"name": "core", "create": {"uid": 1}}])),
            &["passwd.users[0].create"],
        ),
        (
            "2.2.0",
            json!({"storage": {"filesystems": [{"name": "root", "mount": {"device": "/dev/a"}}]}}),
            &["storage.filesystems[0].mount"],
        ),
    ];
    for (version, sections, paths) in rows {
        let shown = format!("{version} {sections}");
        let wanted: Vec<String> = paths.iter().map(|path| format!("{AT}.{path}")).collect();
        assert_eq!(warned(version, sections), wanted, "{shown}");
    }
}

#[test]
fn fixtures_convert_to_their_counterparts_and_parse() {
    for name in ["v2_0", "v2_2", "v2_4"] {
        let read = |suffix: &str| -> Value {
            let path = format!(
                "{}/tests/fixtures/spec2/{name}{suffix}.json",
                env!("CARGO_MANIFEST_DIR")
            );
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let converted = convert_spec2(&read(""), AT).unwrap();
        assert_eq!(converted.config, read(".converted"), "{name}");
        assert_eq!(format!("v2_{}", converted.minor), name);
        parsed(&converted.config).unwrap();
    }
}

#[test]
fn paths_of_the_result_lead_back_to_the_document() {
    let sections = json!({
        "ignition": {"config": {"append": [{"source": "data:,"}]}},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["a"]}, {"name": "core", "sshAuthorizedKeys": ["b"], "create": {"uid": 1}}]},
        "storage": {
            "directories": [file("/d", json!({}))],
            "files": [file("/a", json!({"append": true})), file("/b", json!({})), file("/b", json!({}))],
        },
        "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "x.conf"}]}, {"name": "b.service"}, {"name": "a.service", "dropins": [{"name": "y.conf"}]}]},
    });
    let converted = converted("2.2.0", sections);
    for (result, original) in [
        (
            "ignition.config.merge[0].source",
            "ignition.config.append[0].source",
        ),
        ("passwd.users[0].uid", "passwd.users[1].create.uid"),
        ("passwd.users[0].name", "passwd.users[1].name"),
        (
            "passwd.users[0].sshAuthorizedKeys[1]",
            "passwd.users[0].sshAuthorizedKeys[0]",
        ),
        ("storage.directories[0].path", "storage.directories[0].path"),
        ("storage.files[0].mode", "storage.files[2].mode"),
        (
            "storage.files[1].append[0].source",
            "storage.files[0].contents.source",
        ),
        (
            "systemd.units[0].dropins[0].name",
            "systemd.units[2].dropins[0].name",
        ),
        (
            "systemd.units[0].dropins[1].name",
            "systemd.units[0].dropins[0].name",
        ),
        ("systemd.units[1].name", "systemd.units[1].name"),
    ] {
        assert_eq!(
            converted.original_path(&format!("{AT}.{result}")),
            format!("{AT}.{original}")
        );
    }
}

#[test]
fn a_bare_config_has_paths_without_prefix() {
    let bad = config("2.2.0", files(json!([file("a", json!({}))])));
    assert_eq!(
        convert_spec2(&bad, "").unwrap_err()[0].path,
        "storage.files[0].path"
    );
    assert!(is_spec2("2.2.0") && !is_spec2("3.2.0"));
}

/// The result in a MachineConfig, through the parser of spec 3.
fn parsed(config: &Value) -> Result<document::MachineConfig, document::DocumentError> {
    let object = machine_config("rendered-worker-1", config.clone());
    document::parse_document(object.to_string().as_bytes(), "test")
}

/// Documents of YAML, read as what the operator was given.
fn yaml_files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for pool in shared_data("machineconfigs")
        .into_iter()
        .flat_map(|dir| std::fs::read_dir(dir).unwrap())
    {
        let Ok(entries) = std::fs::read_dir(pool.unwrap().path()) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ext| ext == "yaml") {
                found.push((
                    path.display().to_string(),
                    std::fs::read_to_string(&path).unwrap(),
                ));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn real_configs_of_spec_2_convert_to_what_the_operator_rendered() {
    let (mut count, mut same) = (0, 0);
    for (path, text) in yaml_files() {
        let Some(config) = legacy_config(&text) else {
            continue;
        };
        let converted =
            convert_spec2(&config, AT).unwrap_or_else(|findings| panic!("{path}: {findings:?}"));
        parsed(&converted.config).unwrap_or_else(|error| panic!("{path}: {error}"));
        let pool = std::path::Path::new(&path)
            .parent()
            .unwrap()
            .file_name()
            .unwrap();
        same += compare_with_rendered(&converted.config, pool.to_str().unwrap(), &path);
        count += 1;
    }
    if count > 0 {
        assert!(same > 0, "nothing of {count} configs was rendered");
        say(&format!(
            "{count} real configs of spec 2 converted, {same} files as the operator rendered them"
        ));
    }
}

/// Files and units that the operator rendered from the same config; a later config of the pool may have
/// overruled some of it, so only what has the same contents is compared in full.
fn compare_with_rendered(config: &Value, pool: &str, path: &str) -> usize {
    let Some(rendered) = shared_data(&format!("rendered/{pool}.json")) else {
        return 0;
    };
    let rendered: Value =
        serde_json::from_str(&std::fs::read_to_string(rendered).unwrap()).unwrap();
    let theirs = rendered["spec"]["config"]["storage"]["files"]
        .as_array()
        .unwrap();
    let mut same = 0;
    for file in config["storage"]["files"].as_array().unwrap() {
        let their = theirs
            .iter()
            .find(|their| their["path"] == file["path"])
            .unwrap();
        if their["contents"]["source"] == file["contents"]["source"] {
            assert_eq!(their["mode"], file["mode"], "{path}: {}", file["path"]);
            assert_eq!(
                their["overwrite"], file["overwrite"],
                "{path}: {}",
                file["path"]
            );
            same += 1;
        }
    }
    same
}

/// The Ignition part of a MachineConfig in YAML, if it is of spec 2. Under another key the document's parser
/// hands it over as it is.
fn legacy_config(text: &str) -> Option<Value> {
    let text = text.replacen("\n  config:\n", "\n  legacy:\n", 1);
    let object = document::parse_document(text.as_bytes(), "test")
        .ok()?
        .record;
    let object: Value = serde_json::from_str(&object).unwrap();
    let config = &object["spec"]["legacy"];
    let version = config["ignition"]["version"].as_str()?;
    is_spec2(version).then(|| config.clone())
}

/// Values that look like a config more often than not: its own keys, with values that often fit.
fn arbitrary_value() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "files",
        "units",
        "users",
        "path",
        "filesystem",
        "name",
        "contents",
        "source",
        "dropins",
        "mode",
        "append",
        "overwrite",
        "create",
        "links",
        "directories",
        "enabled",
        "mask",
        "user",
        "id",
        "hash",
        "verification",
        "partitions",
        "odd",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(root|core|/[a.]{0,3}|data:,x|a\\.service|\\PC{0,6})".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone(), inner, 0..5)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn maybe<T: std::fmt::Debug + Clone + 'static>(
    values: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop::option::of(values)
}

fn arbitrary_file() -> impl Strategy<Value = Value> {
    let mode = maybe(prop_oneof![0..0o7777i64, any::<i64>()]);
    let source = "(|data:,x|data:,é|https://files.registry.example/a)";
    ("/[ab./]{0,6}", mode, any::<bool>(), maybe(any::<bool>()), source, maybe(0..9i64), maybe("[a-c]{0,2}")).prop_map(
        |(path, mode, append, overwrite, source, id, name)| {
            file(&path, json!({"mode": mode, "append": append, "overwrite": overwrite, "contents": {"source": source}, "user": {"id": id, "name": name}}))
        },
    )
}

fn arbitrary_unit() -> impl Strategy<Value = Value> {
    let dropins = prop::collection::vec(
        ("[xy]\\.conf", "(|\\[A\\]\nb=c\n|junk)")
            .prop_map(|(name, contents)| json!({"name": name, "contents": contents})),
        0..3,
    );
    ("[ab](\\.service|\\.socket|)", maybe(any::<bool>()), any::<bool>(), any::<bool>(), dropins).prop_map(
        |(name, enabled, enable, mask, dropins)| json!({"name": name, "enabled": enabled, "enable": enable, "mask": mask, "dropins": dropins}),
    )
}

/// Configs of which most convert.
fn arbitrary_config() -> impl Strategy<Value = Value> {
    let files = prop::collection::vec(arbitrary_file(), 0..4);
    let units = prop::collection::vec(arbitrary_unit(), 0..4);
    let keys = prop::collection::vec("[ab]", 0..3);
    (0..5u64, files, units, keys).prop_map(|(minor, files, units, keys)| {
        config(
            &format!("2.{minor}.0"),
            json!({
                "storage": {"files": files},
                "systemd": {"units": units},
                "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": keys}]},
            }),
        )
    })
}

/// Converts; what comes out is read as spec 3, or every error of that leads back to a path.
fn convert_and_parse(config: &Value) {
    let converted = match convert_spec2(config, AT) {
        Ok(converted) => converted,
        Err(findings) => {
            assert!(
                !findings.is_empty() && findings.iter().all(|f| f.path.starts_with(AT)),
                "{findings:?}"
            );
            return;
        }
    };
    assert!(converted.warnings.iter().all(|f| f.path.starts_with(AT)));
    let Err(error) = parsed(&converted.config) else {
        return;
    };
    for finding in error.findings {
        let original = converted.original_path(&finding.path);
        assert!(original.starts_with(AT), "{finding} {original}");
        assert!(!finding.message.contains("unknown key"), "{finding}");
    }
}

proptest! {
    #[test]
    fn arbitrary_json_never_panics(value in arbitrary_value(), minor in 0..6u64) {
        convert_and_parse(&value);
        let version = json!({"version": format!("2.{minor}.0")});
        for section in ["storage", "systemd", "passwd", "networkd"] {
            convert_and_parse(&json!({"ignition": version, section: value}));
        }
        convert_and_parse(&json!({"ignition": {"version": version["version"], "config": value}}));
    }

    #[test]
    fn what_converts_is_spec_3(config in arbitrary_config()) {
        convert_and_parse(&config);
    }

    #[test]
    fn every_path_of_a_legal_config_comes_from_its_last_entry(config in arbitrary_config()) {
        let Ok(converted) = convert_spec2(&config, AT) else {
            return Ok(());
        };
        let written = config["storage"]["files"].as_array().unwrap();
        for (index, file) in converted.config["storage"]["files"].as_array().into_iter().flatten().enumerate() {
            let original = converted.original_path(&format!("{AT}.storage.files[{index}]"));
            let number: usize = original.rsplit('[').next().unwrap().trim_end_matches(']').parse().unwrap();
            let entry = &written[number];
            let last = written.iter().rposition(|other| other["path"] == entry["path"]);
            prop_assert_eq!(last, Some(number));
            let source = file.pointer("/contents/source").or(file.pointer("/append/0/source"));
            prop_assert_eq!(source, entry.pointer("/contents/source"));
        }
    }
}

/// A MachineConfig whose Ignition part is of spec 2.
fn old(ignition: Value) -> Value {
    let mut config = support::machine_config("rendered-worker-old", json!({}));
    config["spec"]["config"] = ignition;
    config
}

#[test]
fn a_config_of_spec_2_is_applied_and_verified_by_the_rules_of_the_daemon() {
    let root = support::TestRoot::new();
    let config = old(json!({
        "ignition": {"version": "2.2.0"},
        "storage": {"files": [
            {"filesystem": "root", "path": "/etc/a", "mode": 420, "contents": {"source": "data:,shadowed"}},
            {"filesystem": "root", "path": "/etc/b", "mode": 384, "contents": {"source": "data:,b"}},
            {"filesystem": "root", "path": "/etc/a", "mode": 420, "contents": {"source": "data:,last"}},
        ]},
        "systemd": {"units": [{"name": "a.service", "dropins": [{"name": "10-empty.conf"}]}]},
    }));
    root.apply(&config);
    assert_eq!(
        (root.read("etc/a").as_str(), root.mode("etc/b")),
        ("last", 0o600)
    );
    // The daemon wants an empty drop-in of spec 2 to be there.
    assert_eq!(
        root.read("etc/systemd/system/a.service.d/10-empty.conf"),
        ""
    );
    let plan = root.run(&["plan", "--output", "json"]).ok().json();
    assert_eq!(plan["steps"], json!([]));
    root.remove("etc/systemd/system/a.service.d/10-empty.conf");
    let verdict = root.run(&["verify", "--output", "json"]).exits(3).json()["verdict"].clone();
    assert!(
        verdict.as_str().unwrap().contains("could not stat file"),
        "{verdict}"
    );
}

#[test]
fn a_newer_spec_2_is_applied_with_a_warning_that_the_daemon_would_refuse() {
    let root = support::TestRoot::new();
    let config = old(json!({
        "ignition": {"version": "2.4.0"},
        "storage": {"files": [{"filesystem": "root", "path": "/etc/a", "contents": {"source": "data:,a"}}]},
    }));
    let said = root.apply(&config).out();
    assert!(said.contains("spec.config.ignition.version"), "{said}");
    assert_eq!(root.read("etc/a"), "a");
}

#[test]
fn a_plan_names_the_places_of_the_document_not_of_its_conversion() {
    let root = support::TestRoot::new();
    let owned = |path: &str, user: &str| file(path, json!({"user": {"name": user}}));
    let sections = json!({
        "storage": {"files": [owned("/etc/a", "nobody-knows"), owned("/etc/b", "core"), owned("/etc/c", "core")]},
        "passwd": {"users": [{"name": "bad:name"}, {"name": "core"}]},
    });
    let config = root.config(&config("2.2.0", sections));
    let plan = root
        .run(&["plan", config.path(), "--output", "json"])
        .exits(1)
        .json();
    let blockers: Vec<&str> = plan["blockers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|blocker| blocker["subject"].as_str().unwrap())
        .collect();
    assert!(blockers.contains(&"storage.files[0]"), "{plan}");
    if support::is_root() {
        assert!(blockers.contains(&"passwd.users[0].name"), "{plan}");
    }
}
