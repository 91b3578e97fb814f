//! The fields of Ignition spec 3: how each one merges, and the version that introduced it (docs/develop/ignition.md: Merging, Parsing).

use std::borrow::Cow;

use serde_json::Value;

/// One key of an object.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// The minor version of spec 3 that introduced it.
    pub(super) since: u64,
    pub(super) kind: FieldKind,
}

/// The kind of a field, which determines how it merges.
pub(super) enum FieldKind {
    /// The child's value, if it has one.
    Scalar,
    /// Key by key.
    Object(&'static [Field]),
    /// Items with the same key are merged in place; new items of the child follow.
    List(Key, &'static [Field]),
    /// The same, but a key may only occur in one list of the object.
    Shared(Key, &'static [Field]),
    /// The child's items follow the parent's, including duplicates.
    Appended(&'static [Field]),
}

/// The key that identifies an item.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key {
    /// The item, a string.
    Itself,
    /// The text of one field.
    Field(&'static str),
    /// The number of a partition, or its label if it has no number.
    NumberOrLabel,
}

impl Key {
    /// Returns the key of an item; items without one have the empty key.
    pub(super) fn key_of(self, item: &impl Item) -> Cow<'_, str> {
        match self {
            Self::Itself => item.text().unwrap_or_default().into(),
            Self::Field(name) => text_at(item, name).into(),
            Self::NumberOrLabel => match item.field("number").and_then(Item::number) {
                Some(number) if number != 0 => format!("number:{number}").into(),
                _ => format!("label:{}", text_at(item, "label")).into(),
            },
        }
    }
}

/// A JSON value in any parsed form.
pub(super) trait Item: Sized {
    /// Returns the value of a key if this is an object.
    fn field(&self, key: &str) -> Option<&Self>;
    /// Returns the text if this is a string.
    fn text(&self) -> Option<&str>;
    /// Returns the number if this is an integer.
    fn number(&self) -> Option<i64>;
    /// Returns the items if this is a list; otherwise empty.
    fn items(&self) -> &[Self];
}

impl Item for Value {
    fn field(&self, key: &str) -> Option<&Self> {
        self.get(key)
    }

    fn text(&self) -> Option<&str> {
        self.as_str()
    }

    fn number(&self) -> Option<i64> {
        self.as_i64()
    }

    fn items(&self) -> &[Self] {
        self.as_array().map_or(&[], Vec::as_slice)
    }
}

const ITSELF: Key = Key::Itself;
const BY_NAME: Key = Key::Field("name");
const BY_PATH: Key = Key::Field("path");
const BY_DEVICE: Key = Key::Field("device");
const BY_SOURCE: Key = Key::Field("source");
const BY_URL: Key = Key::Field("url");

const STRINGS: &[Field] = &[];

const fn field(name: &'static str, kind: FieldKind) -> Field {
    Field {
        name,
        since: 0,
        kind,
    }
}

const fn scalar(name: &'static str) -> Field {
    field(name, FieldKind::Scalar)
}

const fn object(name: &'static str, fields: &'static [Field]) -> Field {
    field(name, FieldKind::Object(fields))
}

const fn list(name: &'static str, key: Key, fields: &'static [Field]) -> Field {
    field(name, FieldKind::List(key, fields))
}

const fn set(name: &'static str) -> Field {
    list(name, ITSELF, STRINGS)
}

const fn since(minor: u64, field: Field) -> Field {
    Field {
        name: field.name,
        since: minor,
        kind: field.kind,
    }
}

fn text_at<'v>(item: &'v impl Item, key: &str) -> &'v str {
    item.field(key).and_then(Item::text).unwrap_or_default()
}

/// All fields of a config of spec 3.
pub(super) static CONFIG: &[Field] = &[
    object("ignition", IGNITION),
    since(3, object("kernelArguments", KERNEL_ARGUMENTS)),
    object("passwd", PASSWD),
    object("storage", STORAGE),
    object("systemd", SYSTEMD),
];

const IGNITION: &[Field] = &[
    object(
        "config",
        &[
            list("merge", BY_SOURCE, REFERENCE),
            object("replace", REFERENCE),
        ],
    ),
    since(
        1,
        object(
            "proxy",
            &[scalar("httpProxy"), scalar("httpsProxy"), set("noProxy")],
        ),
    ),
    object(
        "security",
        &[object(
            "tls",
            &[list("certificateAuthorities", BY_SOURCE, REFERENCE)],
        )],
    ),
    object(
        "timeouts",
        &[scalar("httpResponseHeaders"), scalar("httpTotal")],
    ),
    scalar("version"),
];

const KERNEL_ARGUMENTS: &[Field] = &[
    field("shouldExist", FieldKind::Shared(ITSELF, STRINGS)),
    field("shouldNotExist", FieldKind::Shared(ITSELF, STRINGS)),
];

pub(super) const HEADERS: Field = since(
    1,
    list("httpHeaders", BY_NAME, &[scalar("name"), scalar("value")]),
);

/// A source of a file; has had compression since 3.0.
const RESOURCE: &[Field] = &[
    scalar("compression"),
    HEADERS,
    scalar("source"),
    object("verification", &[scalar("hash")]),
];

const REFERENCE: &[Field] = &[
    since(1, scalar("compression")),
    HEADERS,
    scalar("source"),
    object("verification", &[scalar("hash")]),
];

const PASSWD: &[Field] = &[
    list(
        "groups",
        BY_NAME,
        &[
            scalar("gid"),
            scalar("name"),
            scalar("passwordHash"),
            since(2, scalar("shouldExist")),
            scalar("system"),
        ],
    ),
    list("users", BY_NAME, USER),
];

const USER: &[Field] = &[
    scalar("gecos"),
    set("groups"),
    scalar("homeDir"),
    scalar("name"),
    scalar("noCreateHome"),
    scalar("noLogInit"),
    scalar("noUserGroup"),
    scalar("passwordHash"),
    scalar("primaryGroup"),
    scalar("shell"),
    since(2, scalar("shouldExist")),
    set("sshAuthorizedKeys"),
    scalar("system"),
    scalar("uid"),
];

const STORAGE: &[Field] = &[
    field("directories", FieldKind::Shared(BY_PATH, DIRECTORY)),
    list("disks", BY_DEVICE, DISK),
    field("files", FieldKind::Shared(BY_PATH, FILE)),
    list("filesystems", BY_DEVICE, FILESYSTEM),
    field("links", FieldKind::Shared(BY_PATH, LINK)),
    since(2, list("luks", BY_NAME, LUKS)),
    list("raid", BY_NAME, RAID),
];

const OWNER: &[Field] = &[scalar("id"), scalar("name")];

const DIRECTORY: &[Field] = &[
    object("group", OWNER),
    scalar("overwrite"),
    scalar("path"),
    object("user", OWNER),
    scalar("mode"),
];

const FILE: &[Field] = &[
    object("group", OWNER),
    scalar("overwrite"),
    scalar("path"),
    object("user", OWNER),
    field("append", FieldKind::Appended(RESOURCE)),
    object("contents", RESOURCE),
    scalar("mode"),
];

const LINK: &[Field] = &[
    object("group", OWNER),
    scalar("overwrite"),
    scalar("path"),
    object("user", OWNER),
    scalar("hard"),
    scalar("target"),
];

const DISK: &[Field] = &[
    scalar("device"),
    list("partitions", Key::NumberOrLabel, PARTITION),
    scalar("wipeTable"),
];

const PARTITION: &[Field] = &[
    scalar("guid"),
    scalar("label"),
    scalar("number"),
    since(2, scalar("resize")),
    scalar("shouldExist"),
    scalar("sizeMiB"),
    scalar("startMiB"),
    scalar("typeGuid"),
    scalar("wipePartitionEntry"),
];

const FILESYSTEM: &[Field] = &[
    scalar("device"),
    scalar("format"),
    scalar("label"),
    since(1, field("mountOptions", FieldKind::Appended(STRINGS))),
    field("options", FieldKind::Appended(STRINGS)),
    scalar("path"),
    scalar("uuid"),
    scalar("wipeFilesystem"),
];

const LUKS: &[Field] = &[
    since(5, object("cex", &[scalar("enabled")])),
    object("clevis", CLEVIS),
    scalar("device"),
    since(4, scalar("discard")),
    object("keyFile", RESOURCE),
    scalar("label"),
    scalar("name"),
    since(4, set("openOptions")),
    field("options", FieldKind::Appended(STRINGS)),
    scalar("uuid"),
    scalar("wipeVolume"),
];

const CLEVIS: &[Field] = &[
    object(
        "custom",
        &[scalar("config"), scalar("needsNetwork"), scalar("pin")],
    ),
    list(
        "tang",
        BY_URL,
        &[
            since(4, scalar("advertisement")),
            scalar("thumbprint"),
            scalar("url"),
        ],
    ),
    scalar("threshold"),
    scalar("tpm2"),
];

const RAID: &[Field] = &[
    set("devices"),
    scalar("level"),
    scalar("name"),
    field("options", FieldKind::Appended(STRINGS)),
    scalar("spares"),
];

const SYSTEMD: &[Field] = &[list(
    "units",
    BY_NAME,
    &[
        scalar("contents"),
        list("dropins", BY_NAME, &[scalar("contents"), scalar("name")]),
        scalar("enabled"),
        scalar("mask"),
        scalar("name"),
    ],
)];
