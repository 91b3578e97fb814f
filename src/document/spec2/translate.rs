//! A reduced config of spec 2 in the form of spec 3.

use serde_json::{Value, json};

use super::model::{
    Create, RESULT_VERSION, Reference, Spec2Contents, Spec2Directory, Spec2Dropin, Spec2File,
    Spec2Group, Spec2Header, Spec2Link, Spec2Meta, Spec2Unit, Spec2User,
};
use super::reduce::{Placed, PlacedUnit, PlacedUser, Reduced};
use crate::document::finding::path_below;
use crate::document::ignition::{self, NodeOwner, Verification};
use crate::document::written::Places;

/// Translates, and says where everything came from.
pub fn translate(config: Reduced, at: &str) -> (Value, Places) {
    let mut places = Places::default();
    places.add(
        path_below(at, "ignition.config.merge"),
        path_below(at, "ignition.config.append"),
    );
    let files = entries(config.files, |index, placed_file| {
        let result = path_below(at, &format!("storage.files[{index}]"));
        file(placed_file, &result, &mut places)
    });
    let units = entries(config.units, |index, placed_unit| {
        let result = path_below(at, &format!("systemd.units[{index}]"));
        unit(placed_unit, &result, &mut places)
    });
    let users = entries(config.users, |index, placed_user| {
        let result = path_below(at, &format!("passwd.users[{index}]"));
        user(placed_user, &result, &mut places)
    });
    let storage = config.storage;
    let config = object([
        ("ignition", meta(config.ignition)),
        (
            "passwd",
            section([
                ("users", users),
                ("groups", entries(config.passwd.groups, |_, g| group(g))),
            ]),
        ),
        (
            "storage",
            section([
                ("disks", list(storage.disks)),
                ("raid", list(storage.raid)),
                ("files", files),
                (
                    "directories",
                    entries(storage.directories, |_, d| directory(d)),
                ),
                ("links", entries(storage.links, |_, l| link(l))),
            ]),
        ),
        ("systemd", section([("units", units)])),
    ]);
    (config, places)
}

/// An object of the members that are there.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    members
        .into_iter()
        .filter(|(_, value)| !value.is_null())
        .collect()
}

/// An object that is absent when it has no member.
fn section<const N: usize>(members: [(&str, Value); N]) -> Value {
    let section = object(members);
    if section.as_object().is_some_and(serde_json::Map::is_empty) {
        return Value::Null;
    }
    section
}

/// A list that is absent when it has no entry.
fn list<T: Into<Value>>(entries: Vec<T>) -> Value {
    if entries.is_empty() {
        return Value::Null;
    }
    entries.into()
}

fn entries<T>(from: Vec<T>, mut to: impl FnMut(usize, T) -> Value) -> Value {
    let entries = from.into_iter().enumerate();
    list(entries.map(|(index, entry)| to(index, entry)).collect())
}

/// Spec 2 cannot tell an empty text from none; spec 3 can, and means none.
fn text(text: String) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    text.into()
}

/// The same for what is off.
fn flag(flag: bool) -> Value {
    if flag { Value::Bool(true) } else { Value::Null }
}

fn meta(meta: Spec2Meta) -> Value {
    let authorities = meta.security.tls.certificate_authorities;
    let authorities = entries(authorities, |_, authority| reference(authority));
    object([
        ("version", RESULT_VERSION.into()),
        (
            "config",
            section([
                ("merge", entries(meta.config.append, |_, r| reference(r))),
                (
                    "replace",
                    meta.config.replace.map_or(Value::Null, reference),
                ),
            ]),
        ),
        (
            "proxy",
            section([
                ("httpProxy", text(meta.proxy.http_proxy)),
                ("httpsProxy", text(meta.proxy.https_proxy)),
                ("noProxy", list(meta.proxy.no_proxy)),
            ]),
        ),
        (
            "security",
            section([("tls", section([("certificateAuthorities", authorities)]))]),
        ),
        (
            "timeouts",
            section([
                (
                    "httpResponseHeaders",
                    meta.timeouts.http_response_headers.into(),
                ),
                ("httpTotal", meta.timeouts.http_total.into()),
            ]),
        ),
    ])
}

fn reference(reference: Reference) -> Value {
    object([
        ("source", reference.source.into()),
        ("httpHeaders", headers(reference.http_headers)),
        ("verification", verification(reference.verification)),
    ])
}

/// The source stays even when it is empty: it then means an empty file, not "no contents".
fn contents(contents: Spec2Contents) -> Value {
    object([
        ("source", contents.source.into()),
        ("compression", text(contents.compression)),
        ("httpHeaders", headers(contents.http_headers)),
        ("verification", verification(contents.verification)),
    ])
}

fn headers(headers: Vec<Spec2Header>) -> Value {
    entries(headers, |_, header| {
        object([("name", header.name.into()), ("value", text(header.value))])
    })
}

fn verification(verification: Verification) -> Value {
    section([("hash", verification.hash.into())])
}

fn owner(owner: NodeOwner) -> Value {
    section([
        ("id", owner.id.into()),
        ("name", text(owner.name.unwrap_or_default())),
    ])
}

/// Files of spec 2 replace what is there unless they say otherwise; those that append never do.
fn file(file: Placed<Spec2File>, result: &str, places: &mut Places) -> Value {
    places.add(result.to_owned(), file.at.clone());
    let append = file.entry.append;
    let file_contents = contents(file.entry.contents);
    let (file_contents, fragments) = if append {
        places.add(
            format!("{result}.append[0]"),
            format!("{}.contents", file.at),
        );
        (Value::Null, json!([file_contents]))
    } else {
        (file_contents, Value::Null)
    };
    object([
        ("path", file.entry.path.into()),
        (
            "overwrite",
            (!append && file.entry.overwrite != Some(false)).into(),
        ),
        ("mode", file.entry.mode.into()),
        ("user", owner(file.entry.user)),
        ("group", owner(file.entry.group)),
        ("contents", file_contents),
        ("append", fragments),
    ])
}

fn directory(directory: Spec2Directory) -> Value {
    object([
        ("path", directory.path.into()),
        ("overwrite", directory.overwrite.into()),
        ("mode", directory.mode.into()),
        ("user", owner(directory.user)),
        ("group", owner(directory.group)),
    ])
}

fn link(link: Spec2Link) -> Value {
    object([
        ("path", link.path.into()),
        ("overwrite", link.overwrite.into()),
        ("user", owner(link.user)),
        ("group", owner(link.group)),
        ("target", link.target.into()),
        ("hard", flag(link.hard)),
    ])
}

fn unit(placed_unit: PlacedUnit, result: &str, places: &mut Places) -> Value {
    let PlacedUnit { at, unit, dropins } = placed_unit;
    places.add(result.to_owned(), at);
    let dropins = entries(dropins, |index, dropin| {
        places.add(format!("{result}.dropins[{index}]"), dropin.at);
        let Spec2Dropin { name, contents } = dropin.entry;
        object([("name", name.into()), ("contents", text(contents))])
    });
    object([
        ("name", unit.name.clone().into()),
        ("enabled", enabled(&unit)),
        ("mask", flag(unit.mask)),
        ("contents", text(unit.contents)),
        ("dropins", dropins),
    ])
}

/// A unit as the daemon verifies it: by its mask and its texts.
pub fn as_written(unit: &Spec2Unit) -> ignition::Unit {
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

/// `enabled` counts where it says no; the older `enable` can only say yes.
fn enabled(unit: &Spec2Unit) -> Value {
    match (unit.enabled, unit.enable) {
        (Some(false), _) => Value::Bool(false),
        (Some(true), _) | (None, true) => Value::Bool(true),
        (None, false) => Value::Null,
    }
}

fn user(placed_user: PlacedUser, result: &str, places: &mut Places) -> Value {
    let PlacedUser { at, mut user, keys } = placed_user;
    places.add(result.to_owned(), at.clone());
    if let Some(create) = user.create.take() {
        take_over(&mut user, create);
        for key in CREATE_KEYS {
            places.add(format!("{result}.{key}"), format!("{at}.create.{key}"));
        }
    }
    let keys = entries(keys, |index, key| {
        places.add(format!("{result}.sshAuthorizedKeys[{index}]"), key.at);
        key.entry.into()
    });
    object([
        ("name", user.name.into()),
        ("passwordHash", user.password_hash.into()),
        ("sshAuthorizedKeys", keys),
        ("uid", user.uid.into()),
        ("gecos", text(user.gecos)),
        ("homeDir", text(user.home_dir)),
        ("noCreateHome", flag(user.no_create_home)),
        ("primaryGroup", text(user.primary_group)),
        ("groups", list(user.groups)),
        ("noUserGroup", flag(user.no_user_group)),
        ("noLogInit", flag(user.no_log_init)),
        ("shell", text(user.shell)),
        ("system", flag(user.system)),
    ])
}

/// The fields of `create`, which are those of a user since 2.1.
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

/// A user with `create` has none of these fields itself: that was refused before.
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

fn group(group: Spec2Group) -> Value {
    object([
        ("name", group.name.into()),
        ("gid", group.gid.into()),
        ("passwordHash", text(group.password_hash)),
        ("system", flag(group.system)),
    ])
}
