//! The keys of the input, their types, and the corresponding keys of Ignition.
//!
//! Fields are in the order in which Butane reports and writes them.

use super::version::{SchemaLevel, TypeOrigin};

/// A mapping with known keys.
#[derive(Debug)]
pub(super) struct RecordSchema {
    /// Its type in Butane's own errors.
    pub(super) name: &'static str,
    /// The layer that defines it.
    pub(super) origin: TypeOrigin,
    /// Its keys.
    pub(super) fields: &'static [ButaneField],
}

/// One key of a mapping.
#[derive(Debug)]
pub(super) struct ButaneField {
    /// The key of the input.
    pub(super) name: &'static str,
    /// The type of its value.
    pub(super) kind: ButaneKind,
    /// The schema level that introduced it.
    pub(super) since: SchemaLevel,
    /// False for a key that only Butane has.
    pub(super) is_output: bool,
}

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum ButaneKind {
    /// A text; empty if it is missing.
    Text,
    /// Text that may be missing.
    OptionalText,
    /// An optional integer.
    Number,
    /// An optional boolean.
    Flag,
    /// A list of texts, with the type of one in Butane's own errors.
    Texts(NamedType),
    /// A mapping.
    Record(&'static RecordSchema),
    /// A list of mappings.
    Records(&'static RecordSchema),
    /// A mapping with arbitrary keys and values.
    Labels,
}

/// The type of an item of a list of texts: `string`, or a type of a layer.
#[derive(Debug, Clone, Copy)]
pub(super) enum NamedType {
    /// `string`
    Plain,
    /// A type of the base layer.
    Base(&'static str),
}

impl RecordSchema {
    /// Returns the field of a key at a level.
    pub(super) fn find_field(
        &self,
        name: &str,
        level: SchemaLevel,
    ) -> Option<&'static ButaneField> {
        self.fields_at(level).find(|field| field.name == name)
    }

    /// Returns the fields of a level.
    pub(super) fn fields_at(
        &self,
        level: SchemaLevel,
    ) -> impl Iterator<Item = &'static ButaneField> {
        self.fields.iter().filter(move |field| field.since <= level)
    }
}

const fn field(name: &'static str, kind: ButaneKind) -> ButaneField {
    ButaneField {
        name,
        kind,
        since: SchemaLevel::V3,
        is_output: true,
    }
}

const fn since(level: SchemaLevel, field: ButaneField) -> ButaneField {
    ButaneField {
        since: level,
        ..field
    }
}

const fn input(name: &'static str, kind: ButaneKind) -> ButaneField {
    ButaneField {
        is_output: false,
        ..field(name, kind)
    }
}

const fn base(name: &'static str, fields: &'static [ButaneField]) -> RecordSchema {
    RecordSchema {
        name,
        origin: TypeOrigin::Base,
        fields,
    }
}

const fn fcos(name: &'static str, fields: &'static [ButaneField]) -> RecordSchema {
    RecordSchema {
        name,
        origin: TypeOrigin::Fcos,
        fields,
    }
}

use ButaneKind::{Flag, Labels, Number, OptionalText, Records, Text, Texts};

const STRINGS: ButaneKind = Texts(NamedType::Plain);

const fn one(record: &'static RecordSchema) -> ButaneKind {
    ButaneKind::Record(record)
}

/// The whole input.
pub(super) static CONFIG: RecordSchema = RecordSchema {
    name: "Config",
    origin: TypeOrigin::OpenShift,
    fields: &[
        input("version", Text),
        input("variant", Text),
        field("ignition", one(&IGNITION)),
        since(
            SchemaLevel::V5,
            field("kernel_arguments", one(&KERNEL_ARGUMENTS)),
        ),
        field("passwd", one(&PASSWD)),
        field("storage", one(&STORAGE)),
        field("systemd", one(&SYSTEMD)),
        input("boot_device", one(&BOOT_DEVICE)),
        since(SchemaLevel::V5, input("grub", one(&GRUB))),
        input("metadata", one(&METADATA)),
        input("openshift", one(&OPENSHIFT)),
    ],
};

static METADATA: RecordSchema = RecordSchema {
    name: "Metadata",
    origin: TypeOrigin::OpenShift,
    fields: &[field("name", Text), field("labels", Labels)],
};

static OPENSHIFT: RecordSchema = RecordSchema {
    name: "OpenShift",
    origin: TypeOrigin::OpenShift,
    fields: &[
        field("kernel_arguments", STRINGS),
        field("extensions", STRINGS),
        field("fips", Flag),
        field("kernel_type", OptionalText),
    ],
};

static IGNITION: RecordSchema = base(
    "Ignition",
    &[
        field("config", one(&IGNITION_CONFIG)),
        field("proxy", one(&PROXY)),
        field("security", one(&SECURITY)),
        field("timeouts", one(&TIMEOUTS)),
    ],
);

static IGNITION_CONFIG: RecordSchema = base(
    "IgnitionConfig",
    &[
        field("merge", Records(&RESOURCE)),
        field("replace", one(&RESOURCE)),
    ],
);

static PROXY: RecordSchema = base(
    "Proxy",
    &[
        field("http_proxy", OptionalText),
        field("https_proxy", OptionalText),
        field("no_proxy", STRINGS),
    ],
);

static SECURITY: RecordSchema = base("Security", &[field("tls", one(&TLS))]);

static TLS: RecordSchema = base(
    "TLS",
    &[field("certificate_authorities", Records(&RESOURCE))],
);

static TIMEOUTS: RecordSchema = base(
    "Timeouts",
    &[
        field("http_response_headers", Number),
        field("http_total", Number),
    ],
);

static KERNEL_ARGUMENTS: RecordSchema = base(
    "KernelArguments",
    &[
        field("should_exist", Texts(NamedType::Base("KernelArgument"))),
        field("should_not_exist", Texts(NamedType::Base("KernelArgument"))),
    ],
);

static PASSWD: RecordSchema = base(
    "Passwd",
    &[
        field("groups", Records(&PASSWD_GROUP)),
        field("users", Records(&PASSWD_USER)),
    ],
);

static PASSWD_GROUP: RecordSchema = base(
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
pub(super) static PASSWD_USER: RecordSchema = base(
    "PasswdUser",
    &[
        field("gecos", OptionalText),
        field("groups", Texts(NamedType::Base("Group"))),
        field("home_dir", OptionalText),
        field("name", Text),
        field("no_create_home", Flag),
        field("no_log_init", Flag),
        field("no_user_group", Flag),
        field("password_hash", OptionalText),
        field("primary_group", OptionalText),
        field(
            "ssh_authorized_keys",
            Texts(NamedType::Base("SSHAuthorizedKey")),
        ),
        since(SchemaLevel::V5, input("ssh_authorized_keys_local", STRINGS)),
        field("shell", OptionalText),
        field("should_exist", Flag),
        field("system", Flag),
        field("uid", Number),
    ],
);

static STORAGE: RecordSchema = base(
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

static DIRECTORY: RecordSchema = base(
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
pub(super) static FILE: RecordSchema = base(
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

static LINK: RecordSchema = base(
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

static NODE_GROUP: RecordSchema = base(
    "NodeGroup",
    &[field("id", Number), field("name", OptionalText)],
);

static NODE_USER: RecordSchema = base(
    "NodeUser",
    &[field("id", Number), field("name", OptionalText)],
);

/// Contents from anywhere.
pub(super) static RESOURCE: RecordSchema = base(
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

static HTTP_HEADER: RecordSchema = base(
    "HTTPHeader",
    &[field("name", Text), field("value", OptionalText)],
);

static VERIFICATION: RecordSchema = base("Verification", &[field("hash", OptionalText)]);

static DISK: RecordSchema = base(
    "Disk",
    &[
        field("device", Text),
        field("partitions", Records(&PARTITION)),
        field("wipe_table", Flag),
    ],
);

static PARTITION: RecordSchema = base(
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

static FILESYSTEM: RecordSchema = base(
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

static LUKS: RecordSchema = base(
    "Luks",
    &[
        since(SchemaLevel::V6, field("cex", one(&CEX))),
        field("clevis", one(&CLEVIS)),
        field("device", OptionalText),
        since(SchemaLevel::V5, field("discard", Flag)),
        field("key_file", one(&RESOURCE)),
        field("label", OptionalText),
        field("name", Text),
        since(SchemaLevel::V5, field("open_options", STRINGS)),
        field("options", STRINGS),
        field("uuid", OptionalText),
        field("wipe_volume", Flag),
    ],
);

static CEX: RecordSchema = base("Cex", &[field("enabled", Flag)]);

static CLEVIS: RecordSchema = base(
    "Clevis",
    &[
        field("custom", one(&CLEVIS_CUSTOM)),
        field("tang", Records(&TANG)),
        field("threshold", Number),
        field("tpm2", Flag),
    ],
);

static CLEVIS_CUSTOM: RecordSchema = base(
    "ClevisCustom",
    &[
        field("config", OptionalText),
        field("needs_network", Flag),
        field("pin", OptionalText),
    ],
);

static TANG: RecordSchema = base(
    "Tang",
    &[
        since(SchemaLevel::V5, field("advertisement", OptionalText)),
        field("thumbprint", OptionalText),
        field("url", OptionalText),
    ],
);

static RAID: RecordSchema = base(
    "Raid",
    &[
        field("devices", Texts(NamedType::Base("Device"))),
        field("level", OptionalText),
        field("name", Text),
        field("options", STRINGS),
        field("spares", Number),
    ],
);

static TREE: RecordSchema = base(
    "Tree",
    &[
        field("local", Text),
        field("path", OptionalText),
        since(SchemaLevel::V8, field("user", one(&NODE_USER))),
        since(SchemaLevel::V8, field("group", one(&NODE_GROUP))),
        since(SchemaLevel::V8, field("file_mode", Number)),
        since(SchemaLevel::V8, field("dir_mode", Number)),
    ],
);

static SYSTEMD: RecordSchema = base(
    "Systemd",
    &[
        field("units", Records(&UNIT)),
        since(SchemaLevel::V8, input("quadlets", Records(&QUADLET))),
    ],
);

/// A unit.
pub(super) static UNIT: RecordSchema = base(
    "Unit",
    &[
        field("contents", OptionalText),
        since(SchemaLevel::V5, input("contents_local", OptionalText)),
        field("dropins", Records(&DROPIN)),
        field("enabled", Flag),
        field("mask", Flag),
        field("name", Text),
    ],
);

/// A drop-in.
pub(super) static DROPIN: RecordSchema = base(
    "Dropin",
    &[
        field("contents", OptionalText),
        since(SchemaLevel::V5, input("contents_local", OptionalText)),
        field("name", Text),
    ],
);

static QUADLET: RecordSchema = base(
    "Quadlet",
    &[
        field("contents", OptionalText),
        field("contents_local", OptionalText),
        field("name", Text),
        field("rootful", Flag),
    ],
);

static BOOT_DEVICE: RecordSchema = fcos(
    "BootDevice",
    &[
        field("layout", OptionalText),
        field("luks", one(&BOOT_DEVICE_LUKS)),
        field("mirror", one(&BOOT_DEVICE_MIRROR)),
    ],
);

static BOOT_DEVICE_LUKS: RecordSchema = fcos(
    "BootDeviceLuks",
    &[
        since(SchemaLevel::V6, field("cex", one(&CEX))),
        since(SchemaLevel::V5, field("discard", Flag)),
        since(SchemaLevel::V6, field("device", OptionalText)),
        field("tang", Records(&TANG)),
        field("threshold", Number),
        field("tpm2", Flag),
    ],
);

static BOOT_DEVICE_MIRROR: RecordSchema = fcos("BootDeviceMirror", &[field("devices", STRINGS)]);

static GRUB: RecordSchema = fcos("Grub", &[field("users", Records(&GRUB_USER))]);

static GRUB_USER: RecordSchema = fcos(
    "GrubUser",
    &[field("name", Text), field("password_hash", OptionalText)],
);
