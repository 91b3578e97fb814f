//! Sections that the operator does not accept, in Butane's words.

use super::out::{Out, OutValue};
use super::report::Report;
use super::version::{ButaneVersion, SchemaLevel};

const USER_FIELD: &str = "fields other than \"name\", \"ssh_authorized_keys\", and \"password_hash\" (4.13.0+) are not supported \
     in this spec version";

/// Fields of a user that a MachineConfig may not have.
const USER_FIELDS: [&str; 12] = [
    "gecos",
    "groups",
    "homeDir",
    "noCreateHome",
    "noLogInit",
    "noUserGroup",
    "passwordHash",
    "primaryGroup",
    "shell",
    "shouldExist",
    "system",
    "uid",
];

/// Checks the values of a config.
pub(super) fn check_support(config: &Out, version: ButaneVersion, report: &mut Report) {
    let storage = config.get("storage");
    let filesystems = storage
        .map(|storage| storage.items_at("filesystems"))
        .unwrap_or_default();
    for filesystem in filesystems {
        if filesystem.text_at("format") == Some("btrfs") {
            let message = "btrfs is not supported in this spec version";
            report.add_error(filesystem.place_of(&["format"]), message);
        }
    }
    for filesystem in filesystems {
        if version.level >= SchemaLevel::V5 && filesystem.text_at("format") == Some("none") {
            let message = "format \"none\" is not supported in this spec version";
            report.add_error(filesystem.place_of(&["format"]), message);
        }
    }
    for file in storage
        .map(|storage| storage.items_at("files"))
        .unwrap_or_default()
    {
        let source = file
            .get("contents")
            .and_then(|contents| contents.text_at("source"));
        if source.is_some_and(is_foreign) {
            let message = "file contents source must be data URL in this spec version";
            report.add_error(file.place_of(&["contents", "source"]), message);
        }
        let mode = file.number_at("mode").unwrap_or_default();
        if version.minor >= 10 && mode & !0o777 != 0 {
            let message = "special mode bits are not supported in this spec version";
            report.add_error(file.place_of(&["mode"]), message);
        }
    }
    let users = config.get("passwd").map(|passwd| passwd.items_at("users"));
    for user in users.unwrap_or_default() {
        if user.text_at("name") != Some("core") {
            let message = "users other than \"core\" are not supported in this spec version";
            report.add_error(user.place_of(&["name"]), message);
        }
    }
}

/// Returns true if a source is a URL with a scheme other than `data`. Invalid URLs are found later.
fn is_foreign(source: &str) -> bool {
    let unreadable = source.starts_with(':') || source.chars().any(|c| c.is_ascii_control());
    !unreadable && !source.to_ascii_lowercase().starts_with("data:")
}

/// Returns errors for fields that the operator refuses entirely. Not used for raw output.
pub(super) fn check_fields(config: &Out, version: ButaneVersion) -> Report {
    let mut report = Report::default();
    let mut refuse = |value: Option<&Out>, message: &str| {
        if let Some(value) = value.filter(|value| !is_empty(value)) {
            report.add_error(value.from.clone(), message);
        }
    };
    refuse(
        config.get("kernelArguments"),
        "this section cannot be used for kernel arguments in this spec version; use openshift.kernel_arguments instead",
    );
    let passwd = config.get("passwd");
    refuse(
        passwd.and_then(|passwd| passwd.get("groups")),
        "groups are not supported in this spec version",
    );
    for user in passwd
        .map(|passwd| passwd.items_at("users"))
        .unwrap_or_default()
    {
        for key in USER_FIELDS {
            if key != "passwordHash" || version.minor < 13 {
                refuse(user.get(key), USER_FIELD);
            }
        }
    }
    if let Some(storage) = config.get("storage") {
        check_storage(storage, version, &mut refuse);
    }
    report
}

/// Refuses what a MachineConfig cannot have in its section of files.
fn check_storage(
    storage: &Out,
    version: ButaneVersion,
    refuse: &mut dyn FnMut(Option<&Out>, &str),
) {
    refuse(
        storage.get("directories"),
        "directories are not supported in this spec version",
    );
    for file in storage.items_at("files") {
        refuse(
            file.get("append"),
            "appending to files is not supported in this spec version",
        );
        let Some(contents) = file.get("contents") else {
            continue;
        };
        if version.minor < 10 && contents.text_at("compression") != Some("") {
            refuse(
                contents.get("compression"),
                "file compression is not supported in this spec version",
            );
        }
        refuse(
            contents.get("httpHeaders"),
            "file HTTP headers are not supported in this spec version",
        );
    }
    refuse(
        storage.get("links"),
        "links are not supported in this spec version",
    );
}

/// Returns true for an empty list, and for a mapping of such lists. An empty text counts as a value.
fn is_empty(value: &Out) -> bool {
    match &value.value {
        OutValue::Leaf(_) => false,
        OutValue::List(items) => items.is_empty(),
        OutValue::Map(entries) => entries.iter().all(|entry| is_empty(&entry.1)),
    }
}
