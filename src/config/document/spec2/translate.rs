//! Translates a reduced config of spec 2 to spec 3.

use serde_json::{Value, json};

use super::model::{
    Create, RESULT_VERSION, Reference, Spec2Contents, Spec2Directory, Spec2Dropin, Spec2File,
    Spec2Group, Spec2Header, Spec2Link, Spec2Meta, Spec2Unit, Spec2User,
};
use super::reduce::{Placed, PlacedUnit, PlacedUser, Reduced};
use crate::config::document::finding::path_below;
use crate::config::document::ignition::{self, NodeOwner, Verification};
use crate::config::document::written::OriginalPlaces;

/// Translates a config, and records the original place of each part.
pub(super) fn translate_config(config: Reduced, at: &str) -> (Value, OriginalPlaces) {
    let mut places = OriginalPlaces::default();
    places.add_place(
        path_below(at, "ignition.config.merge"),
        path_below(at, "ignition.config.append"),
    );
    let files = json_entries(config.files, |index, placed_file| {
        let result = path_below(at, &format!("storage.files[{index}]"));
        translate_file(placed_file, &result, &mut places)
    });
    let units = json_entries(config.units, |index, placed_unit| {
        let result = path_below(at, &format!("systemd.units[{index}]"));
        translate_unit(placed_unit, &result, &mut places)
    });
    let users = json_entries(config.users, |index, placed_user| {
        let result = path_below(at, &format!("passwd.users[{index}]"));
        translate_user(placed_user, &result, &mut places)
    });
    let groups = json_entries(config.passwd.groups, |_, g| translate_group(g));
    let passwd = json_section([("users", users), ("groups", groups)]);
    let storage = config.storage;
    let config = json_object([
        ("ignition", translate_meta(config.ignition)),
        ("passwd", passwd),
        (
            "storage",
            json_section([
                ("disks", json_list(storage.disks)),
                ("raid", json_list(storage.raid)),
                ("files", files),
                (
                    "directories",
                    json_entries(storage.directories, |_, d| translate_directory(d)),
                ),
                (
                    "links",
                    json_entries(storage.links, |_, l| translate_link(l)),
                ),
            ]),
        ),
        ("systemd", json_section([("units", units)])),
    ]);
    (config, places)
}

/// Returns an object of the members that are not null.
fn json_object<const N: usize>(members: [(&str, Value); N]) -> Value {
    members
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect()
}

/// Returns an object, or null if it has no members.
fn json_section<const N: usize>(members: [(&str, Value); N]) -> Value {
    let section = json_object(members);
    if section.as_object().is_some_and(serde_json::Map::is_empty) {
        return Value::Null;
    }
    section
}

/// Returns a list, or null if it has no entries.
fn json_list<T: Into<Value>>(entries: Vec<T>) -> Value {
    if entries.is_empty() {
        return Value::Null;
    }
    entries.into()
}

fn json_entries<T>(from: Vec<T>, mut to: impl FnMut(usize, T) -> Value) -> Value {
    let entries = from.into_iter().enumerate();
    json_list(entries.map(|(index, entry)| to(index, entry)).collect())
}

/// Returns a text, or null if it is empty: spec 2, unlike spec 3, does not distinguish empty from missing.
fn json_text(text: String) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    text.into()
}

/// Returns true, or null for false.
fn json_flag(flag: bool) -> Value {
    if flag { Value::Bool(true) } else { Value::Null }
}

fn translate_meta(meta: Spec2Meta) -> Value {
    let authorities = meta.security.tls.certificate_authorities;
    let authorities = json_entries(authorities, |_, authority| translate_reference(authority));
    json_object([
        ("version", RESULT_VERSION.into()),
        (
            "config",
            json_section([
                (
                    "merge",
                    json_entries(meta.config.append, |_, r| translate_reference(r)),
                ),
                (
                    "replace",
                    meta.config.replace.map_or(Value::Null, translate_reference),
                ),
            ]),
        ),
        (
            "proxy",
            json_section([
                ("httpProxy", json_text(meta.proxy.http_proxy)),
                ("httpsProxy", json_text(meta.proxy.https_proxy)),
                ("noProxy", json_list(meta.proxy.no_proxy)),
            ]),
        ),
        (
            "security",
            json_section([(
                "tls",
                json_section([("certificateAuthorities", authorities)]),
            )]),
        ),
        (
            "timeouts",
            json_section([
                (
                    "httpResponseHeaders",
                    meta.timeouts.http_response_headers.into(),
                ),
                ("httpTotal", meta.timeouts.http_total.into()),
            ]),
        ),
    ])
}

fn translate_reference(reference: Reference) -> Value {
    json_object([
        ("source", reference.source.into()),
        ("httpHeaders", translate_headers(reference.http_headers)),
        (
            "verification",
            translate_verification(reference.verification),
        ),
    ])
}

/// Translates contents. The source is kept even if it is empty: that means an empty file, not missing contents.
fn translate_contents(contents: Spec2Contents) -> Value {
    json_object([
        ("source", contents.source.into()),
        ("compression", json_text(contents.compression)),
        ("httpHeaders", translate_headers(contents.http_headers)),
        (
            "verification",
            translate_verification(contents.verification),
        ),
    ])
}

fn translate_headers(headers: Vec<Spec2Header>) -> Value {
    json_entries(headers, |_, header| {
        json_object([
            ("name", header.name.into()),
            ("value", json_text(header.value)),
        ])
    })
}

fn translate_verification(verification: Verification) -> Value {
    json_section([("hash", verification.hash.into())])
}

fn translate_owner(owner: NodeOwner) -> Value {
    json_section([
        ("id", owner.id.into()),
        ("name", json_text(owner.name.unwrap_or_default())),
    ])
}

/// Translates a file. Files of spec 2 replace an existing one unless `overwrite` is false; those that append never do.
fn translate_file(file: Placed<Spec2File>, result: &str, places: &mut OriginalPlaces) -> Value {
    places.add_place(result.to_owned(), file.at.clone());
    let append = file.entry.append;
    let file_contents = translate_contents(file.entry.contents);
    let (file_contents, fragments) = if append {
        places.add_place(
            format!("{result}.append[0]"),
            format!("{}.contents", file.at),
        );
        (Value::Null, json!([file_contents]))
    } else {
        (file_contents, Value::Null)
    };
    json_object([
        ("path", file.entry.path.into()),
        (
            "overwrite",
            (!append && file.entry.overwrite != Some(false)).into(),
        ),
        ("mode", file.entry.mode.into()),
        ("user", translate_owner(file.entry.user)),
        ("group", translate_owner(file.entry.group)),
        ("contents", file_contents),
        ("append", fragments),
    ])
}

fn translate_directory(directory: Spec2Directory) -> Value {
    json_object([
        ("path", directory.path.into()),
        ("overwrite", directory.overwrite.into()),
        ("mode", directory.mode.into()),
        ("user", translate_owner(directory.user)),
        ("group", translate_owner(directory.group)),
    ])
}

fn translate_link(link: Spec2Link) -> Value {
    json_object([
        ("path", link.path.into()),
        ("overwrite", link.overwrite.into()),
        ("user", translate_owner(link.user)),
        ("group", translate_owner(link.group)),
        ("target", link.target.into()),
        ("hard", json_flag(link.hard)),
    ])
}

fn translate_unit(placed_unit: PlacedUnit, result: &str, places: &mut OriginalPlaces) -> Value {
    let PlacedUnit { at, unit, dropins } = placed_unit;
    places.add_place(result.to_owned(), at);
    let dropins = json_entries(dropins, |index, dropin| {
        places.add_place(format!("{result}.dropins[{index}]"), dropin.at);
        let Spec2Dropin { name, contents } = dropin.entry;
        json_object([("name", name.into()), ("contents", json_text(contents))])
    });
    json_object([
        ("name", unit.name.clone().into()),
        ("enabled", enabled_value(&unit)),
        ("mask", json_flag(unit.mask)),
        ("contents", json_text(unit.contents)),
        ("dropins", dropins),
    ])
}

/// Returns a unit as the daemon verifies it: its mask and its texts.
pub(super) fn as_written(unit: &Spec2Unit) -> ignition::Unit {
    let dropin = |dropin: &Spec2Dropin| ignition::Dropin {
        name: dropin.name.clone(),
        contents: Some(dropin.contents.clone()),
    };
    let dropins: Vec<_> = unit.dropins.iter().map(dropin).collect();
    ignition::Unit {
        name: unit.name.clone(),
        enabled: None,
        mask: unit.mask.then_some(true),
        contents: Some(unit.contents.clone()),
        dropins: dropins.into(),
    }
}

/// Returns whether a unit is enabled: `enabled` can be true or false; the older `enable` only has an effect if it is true.
fn enabled_value(unit: &Spec2Unit) -> Value {
    match (unit.enabled, unit.enable) {
        (Some(false), _) => Value::Bool(false),
        (Some(true), _) | (None, true) => Value::Bool(true),
        (None, false) => Value::Null,
    }
}

fn translate_user(placed_user: PlacedUser, result: &str, places: &mut OriginalPlaces) -> Value {
    let PlacedUser { at, mut user, keys } = placed_user;
    places.add_place(result.to_owned(), at.clone());
    if let Some(create) = user.create.take() {
        take_over(&mut user, create);
        for key in CREATE_KEYS {
            places.add_place(format!("{result}.{key}"), format!("{at}.create.{key}"));
        }
    }
    let keys = json_entries(keys, |index, key| {
        places.add_place(format!("{result}.sshAuthorizedKeys[{index}]"), key.at);
        key.entry.into()
    });
    json_object([
        ("name", user.name.into()),
        ("passwordHash", user.password_hash.into()),
        ("sshAuthorizedKeys", keys),
        ("uid", user.uid.into()),
        ("gecos", json_text(user.gecos)),
        ("homeDir", json_text(user.home_dir)),
        ("noCreateHome", json_flag(user.no_create_home)),
        ("primaryGroup", json_text(user.primary_group)),
        ("groups", json_list(user.groups)),
        ("noUserGroup", json_flag(user.no_user_group)),
        ("noLogInit", json_flag(user.no_log_init)),
        ("shell", json_text(user.shell)),
        ("system", json_flag(user.system)),
    ])
}

/// The fields of `create`, which have belonged to the user since 2.1.
const CREATE_KEYS: [&str; 10] = [
    "gecos",
    "groups",
    "homeDir",
    "noCreateHome",
    "noLogInit",
    "noUserGroup",
    "primaryGroup",
    "shell",
    "system",
    "uid",
];

/// Copies the fields of `create` to the user. A user with both was refused earlier.
fn take_over(user: &mut Spec2User, create: Create) {
    user.uid = create.uid;
    user.gecos = create.gecos;
    user.home_dir = create.home_dir;
    user.no_create_home = create.no_create_home;
    user.primary_group = create.primary_group;
    user.groups = create.groups;
    user.no_user_group = create.no_user_group;
    user.no_log_init = create.no_log_init;
    user.shell = create.shell;
    user.system = create.system;
}

fn translate_group(group: Spec2Group) -> Value {
    json_object([
        ("name", group.name.into()),
        ("gid", group.gid.into()),
        ("passwordHash", json_text(group.password_hash)),
        ("system", json_flag(group.system)),
    ])
}
