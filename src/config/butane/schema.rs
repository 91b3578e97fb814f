//! The keys of the input, their types, and the corresponding keys of Ignition.
//!
//! Fields are in the order in which Butane reports and writes them.

use super::version::{Level, Origin};

/// A mapping with known keys.
#[derive(Debug)]
pub(super) struct Record {
    /// Its type in Butane's own errors.
    pub(super) name: &'static str,
    /// The layer that defines it.
    pub(super) origin: Origin,
    /// Its keys.
    pub(super) fields: &'static [Field],
}

/// One key of a mapping.
#[derive(Debug)]
pub(super) struct Field {
    /// The key of the input.
    pub(super) name: &'static str,
    /// The type of its value.
    pub(super) kind: Kind,
    /// The schema level that introduced it.
    pub(super) since: Level,
    /// False for a key that only Butane has.
    pub(super) is_output: bool,
}

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A text; empty if it is missing.
    Text,
    /// Text that may be missing.
    OptionalText,
    /// An optional integer.
    Number,
    /// An optional boolean.
    Flag,
    /// A list of texts, with the type of one in Butane's own errors.
    Texts(Named),
    /// A mapping.
    Record(&'static Record),
    /// A list of mappings.
    Records(&'static Record),
    /// A mapping with arbitrary keys and values.
    Labels,
}

/// The type of an item of a list of texts: `string`, or a type of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) enum Named {
    /// `string`
    Plain,
    /// A type of the base layer.
    Base(&'static str),
}

impl Record {
    /// Returns the field of a key at a level.
    pub(super) fn field(&self, name: &str, level: Level) -> Option<&'static Field> {
        self.fields_at(level).find(|field| field.name == name)
    }

    /// Returns the fields of a level.
    pub(super) fn fields_at(&self, level: Level) -> impl Iterator<Item = &'static Field> {
        self.fields.iter().filter(move |field| field.since <= level)
    }
}

const fn field(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        kind,
        since: Level::V3,
        is_output: true,
    }
}

const fn since(level: Level, field: Field) -> Field {
    Field {
        since: level,
        ..field
    }
}

const fn input(name: &'static str, kind: Kind) -> Field {
    Field {
        is_output: false,
        ..field(name, kind)
    }
}

const fn base(name: &'static str, fields: &'static [Field]) -> Record {
    Record {
        name,
        origin: Origin::Base,
        fields,
    }
}

const fn fcos(name: &'static str, fields: &'static [Field]) -> Record {
    Record {
        name,
        origin: Origin::Fcos,
        fields,
    }
}

use Kind::{Flag, Labels, Number, OptionalText, Records, Text, Texts};

const STRINGS: Kind = Texts(Named::Plain);

const fn one(record: &'static Record) -> Kind {
    Kind::Record(record)
}

/// The whole input.
pub(super) static CONFIG: Record = Record {
    name: "Config",
    origin: Origin::OpenShift,
    fields: &[
        input("version", Text),
        input("variant", Text),
        field("ignition", one(&IGNITION)),
        since(Level::V5, field("kernel_arguments", one(&KERNEL_ARGUMENTS))),
        field("passwd", one(&PASSWD)),
        field("storage", one(&STORAGE)),
        field("systemd", one(&SYSTEMD)),
        input("boot_device", one(&BOOT_DEVICE)),
        since(Level::V5, input("grub", one(&GRUB))),
        input("metadata", one(&METADATA)),
        input("openshift", one(&OPENSHIFT)),
    ],
};

static METADATA: Record = Record {
    name: "Metadata",
    origin: Origin::OpenShift,
    fields: &[field("name", Text), field("labels", Labels)],
};

static OPENSHIFT: Record = Record {
    name: "OpenShift",
    origin: Origin::OpenShift,
    fields: &[
        field("kernel_arguments", STRINGS),
        field("extensions", STRINGS),
        field("fips", Flag),
        field("kernel_type", OptionalText),
    ],
};

static IGNITION: Record = base(
    "Ignition",
    &[
        field("config", one(&IGNITION_CONFIG)),
        field("proxy", one(&PROXY)),
        field("security", one(&SECURITY)),
        field("timeouts", one(&TIMEOUTS)),
    ],
);

static IGNITION_CONFIG: Record = base(
    "IgnitionConfig",
    &[
        field("merge", Records(&RESOURCE)),
        field("replace", one(&RESOURCE)),
    ],
);

static PROXY: Record = base(
    "Proxy",
    &[
        field("http_proxy", OptionalText),
        field("https_proxy", OptionalText),
        field("no_proxy", STRINGS),
    ],
);

static SECURITY: Record = base("Security", &[field("tls", one(&TLS))]);

static TLS: Record = base(
    "TLS",
    &[field("certificate_authorities", Records(&RESOURCE))],
);

static TIMEOUTS: Record = base(
    "Timeouts",
    &[
        field("http_response_headers", Number),
        field("http_total", Number),
    ],
);

static KERNEL_ARGUMENTS: Record = base(
    "KernelArguments",
    &[
        field("should_exist", Texts(Named::Base("KernelArgument"))),
        field("should_not_exist", Texts(Named::Base("KernelArgument"))),
    ],
);

static PASSWD: Record = base(
    "Passwd",
    &[
        field("groups", Records(&PASSWD_GROUP)),
        field("users", Records(&PASSWD_USER)),
    ],
);

static PASSWD_GROUP: Record = base(
    "PasswdGroup",
    &[
        field("gid", Number),
        field("name", Text),
        field("password_hash", OptionalText),
        field("should_exist", Flag),
        field("system", Flag),
    ],
);

/// A user.
pub(super) static PASSWD_USER: Record = base(
    "PasswdUser",
    &[
        field("gecos", OptionalText),
        field("groups", Texts(Named::Base("Group"))),
        field("home_dir", OptionalText),
        field("name", Text),
        field("no_create_home", Flag),
        field("no_log_init", Flag),
        field("no_user_group", Flag),
        field("password_hash", OptionalText),
        field("primary_group", OptionalText),
        field(
            "ssh_authorized_keys",
            Texts(Named::Base("SSHAuthorizedKey")),
        ),
        since(Level::V5, input("ssh_authorized_keys_local", STRINGS)),
        field("shell", OptionalText),
        field("should_exist", Flag),
        field("system", Flag),
        field("uid", Number),
    ],
);

static STORAGE: Record = base(
    "Storage",
    &[
        field("directories", Records(&DIRECTORY)),
        field("disks", Records(&DISK)),
        field("files", Records(&FILE)),
        field("filesystems", Records(&FILESYSTEM)),
        field("links", Records(&LINK)),
        field("luks", Records(&LUKS)),
        field("raid", Records(&RAID)),
        input("trees", Records(&TREE)),
    ],
);

static DIRECTORY: Record = base(
    "Directory",
    &[
        field("group", one(&NODE_GROUP)),
        field("overwrite", Flag),
        field("path", Text),
        field("user", one(&NODE_USER)),
        field("mode", Number),
    ],
);

/// A file.
pub(super) static FILE: Record = base(
    "File",
    &[
        field("group", one(&NODE_GROUP)),
        field("overwrite", Flag),
        field("path", Text),
        field("user", one(&NODE_USER)),
        field("append", Records(&RESOURCE)),
        field("contents", one(&RESOURCE)),
        field("mode", Number),
    ],
);

static LINK: Record = base(
    "Link",
    &[
        field("group", one(&NODE_GROUP)),
        field("overwrite", Flag),
        field("path", Text),
        field("user", one(&NODE_USER)),
        field("hard", Flag),
        field("target", OptionalText),
    ],
);

static NODE_GROUP: Record = base(
    "NodeGroup",
    &[field("id", Number), field("name", OptionalText)],
);

static NODE_USER: Record = base(
    "NodeUser",
    &[field("id", Number), field("name", OptionalText)],
);

/// Contents from anywhere.
pub(super) static RESOURCE: Record = base(
    "Resource",
    &[
        field("compression", OptionalText),
        field("http_headers", Records(&HTTP_HEADER)),
        field("source", OptionalText),
        input("inline", OptionalText),
        input("local", OptionalText),
        field("verification", one(&VERIFICATION)),
    ],
);

static HTTP_HEADER: Record = base(
    "HTTPHeader",
    &[field("name", Text), field("value", OptionalText)],
);

static VERIFICATION: Record = base("Verification", &[field("hash", OptionalText)]);

static DISK: Record = base(
    "Disk",
    &[
        field("device", Text),
        field("partitions", Records(&PARTITION)),
        field("wipe_table", Flag),
    ],
);

static PARTITION: Record = base(
    "Partition",
    &[
        field("guid", OptionalText),
        field("label", OptionalText),
        field("number", Number),
        field("resize", Flag),
        field("should_exist", Flag),
        field("size_mib", Number),
        field("start_mib", Number),
        field("type_guid", OptionalText),
        field("wipe_partition_entry", Flag),
    ],
);

static FILESYSTEM: Record = base(
    "Filesystem",
    &[
        field("device", Text),
        field("format", OptionalText),
        field("label", OptionalText),
        field("mount_options", STRINGS),
        field("options", STRINGS),
        field("path", OptionalText),
        field("uuid", OptionalText),
        field("wipe_filesystem", Flag),
        input("with_mount_unit", Flag),
    ],
);

static LUKS: Record = base(
    "Luks",
    &[
        since(Level::V6, field("cex", one(&CEX))),
        field("clevis", one(&CLEVIS)),
        field("device", OptionalText),
        since(Level::V5, field("discard", Flag)),
        field("key_file", one(&RESOURCE)),
        field("label", OptionalText),
        field("name", Text),
        since(Level::V5, field("open_options", STRINGS)),
        field("options", STRINGS),
        field("uuid", OptionalText),
        field("wipe_volume", Flag),
    ],
);

static CEX: Record = base("Cex", &[field("enabled", Flag)]);

static CLEVIS: Record = base(
    "Clevis",
    &[
        field("custom", one(&CLEVIS_CUSTOM)),
        field("tang", Records(&TANG)),
        field("threshold", Number),
        field("tpm2", Flag),
    ],
);

static CLEVIS_CUSTOM: Record = base(
    "ClevisCustom",
    &[
        field("config", OptionalText),
        field("needs_network", Flag),
        field("pin", OptionalText),
    ],
);

static TANG: Record = base(
    "Tang",
    &[
        since(Level::V5, field("advertisement", OptionalText)),
        field("thumbprint", OptionalText),
        field("url", OptionalText),
    ],
);

static RAID: Record = base(
    "Raid",
    &[
        field("devices", Texts(Named::Base("Device"))),
        field("level", OptionalText),
        field("name", Text),
        field("options", STRINGS),
        field("spares", Number),
    ],
);

static TREE: Record = base(
    "Tree",
    &[
        field("local", Text),
        field("path", OptionalText),
        since(Level::V8, field("user", one(&NODE_USER))),
        since(Level::V8, field("group", one(&NODE_GROUP))),
        since(Level::V8, field("file_mode", Number)),
        since(Level::V8, field("dir_mode", Number)),
    ],
);

static SYSTEMD: Record = base(
    "Systemd",
    &[
        field("units", Records(&UNIT)),
        since(Level::V8, input("quadlets", Records(&QUADLET))),
    ],
);

/// A unit.
pub(super) static UNIT: Record = base(
    "Unit",
    &[
        field("contents", OptionalText),
        since(Level::V5, input("contents_local", OptionalText)),
        field("dropins", Records(&DROPIN)),
        field("enabled", Flag),
        field("mask", Flag),
        field("name", Text),
    ],
);

/// A drop-in.
pub(super) static DROPIN: Record = base(
    "Dropin",
    &[
        field("contents", OptionalText),
        since(Level::V5, input("contents_local", OptionalText)),
        field("name", Text),
    ],
);

static QUADLET: Record = base(
    "Quadlet",
    &[
        field("contents", OptionalText),
        field("contents_local", OptionalText),
        field("name", Text),
        field("rootful", Flag),
    ],
);

static BOOT_DEVICE: Record = fcos(
    "BootDevice",
    &[
        field("layout", OptionalText),
        field("luks", one(&BOOT_DEVICE_LUKS)),
        field("mirror", one(&BOOT_DEVICE_MIRROR)),
    ],
);

static BOOT_DEVICE_LUKS: Record = fcos(
    "BootDeviceLuks",
    &[
        since(Level::V6, field("cex", one(&CEX))),
        since(Level::V5, field("discard", Flag)),
        since(Level::V6, field("device", OptionalText)),
        field("tang", Records(&TANG)),
        field("threshold", Number),
        field("tpm2", Flag),
    ],
);

static BOOT_DEVICE_MIRROR: Record = fcos("BootDeviceMirror", &[field("devices", STRINGS)]);

static GRUB: Record = fcos("Grub", &[field("users", Records(&GRUB_USER))]);

static GRUB_USER: Record = fcos(
    "GrubUser",
    &[field("name", Text), field("password_hash", OptionalText)],
);
