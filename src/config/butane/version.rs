//! The versions of the variant `openshift`, and how they differ.

/// One version of the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ButaneVersion {
    /// The number after `4.`; 23 is also 5.0, and 24 is 5.1.
    pub(super) minor: u32,
    /// Butane's version as text, such as `4.22.0`.
    pub(super) text: &'static str,
    /// The schema that it is based on.
    pub(super) level: SchemaLevel,
    /// The version of the Ignition config in the output.
    pub(super) ignition: &'static str,
}

/// The schema of Fedora CoreOS that a version is based on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SchemaLevel {
    /// fcos 1.3
    V3,
    /// fcos 1.5
    V5,
    /// fcos 1.6
    V6,
    /// fcos 1.8-experimental
    V8,
}

const fn version(
    minor: u32,
    text: &'static str,
    level: SchemaLevel,
    ignition: &'static str,
) -> ButaneVersion {
    ButaneVersion {
        minor,
        text,
        level,
        ignition,
    }
}

/// Every version with a translator.
pub(super) const VERSIONS: [ButaneVersion; 18] = [
    version(8, "4.8.0", SchemaLevel::V3, "3.2.0"),
    version(9, "4.9.0", SchemaLevel::V3, "3.2.0"),
    version(10, "4.10.0", SchemaLevel::V3, "3.2.0"),
    version(11, "4.11.0", SchemaLevel::V3, "3.2.0"),
    version(12, "4.12.0", SchemaLevel::V3, "3.2.0"),
    version(13, "4.13.0", SchemaLevel::V3, "3.2.0"),
    version(14, "4.14.0", SchemaLevel::V5, "3.4.0"),
    version(15, "4.15.0", SchemaLevel::V5, "3.4.0"),
    version(16, "4.16.0", SchemaLevel::V5, "3.4.0"),
    version(17, "4.17.0", SchemaLevel::V5, "3.4.0"),
    version(18, "4.18.0", SchemaLevel::V5, "3.4.0"),
    version(19, "4.19.0", SchemaLevel::V6, "3.5.0"),
    version(20, "4.20.0", SchemaLevel::V6, "3.5.0"),
    version(21, "4.21.0", SchemaLevel::V6, "3.5.0"),
    version(22, "4.22.0", SchemaLevel::V6, "3.5.0"),
    version(
        23,
        "4.23.0-experimental",
        SchemaLevel::V8,
        "3.7.0-experimental",
    ),
    version(23, "5.0.0", SchemaLevel::V6, "3.5.0"),
    version(
        24,
        "5.1.0-experimental",
        SchemaLevel::V8,
        "3.7.0-experimental",
    ),
];

impl ButaneVersion {
    /// Finds the translator of a version, which is given as a semantic version.
    pub(super) fn find_version(text: &str) -> Option<Self> {
        VERSIONS.into_iter().find(|version| version.text == text)
    }

    /// Returns major and minor number in the form of upstream's type names.
    fn underscored(self) -> String {
        let parts: Vec<&str> = self.text.split('.').take(2).collect();
        parts.join("_")
    }

    /// Returns true if contents may be compressed.
    pub(super) fn may_compress(self) -> bool {
        self.minor >= 10
    }

    /// Returns true if FIPS mode selects the cipher of LUKS.
    pub(super) fn has_fips_cipher(self) -> bool {
        self.minor <= 19
    }

    /// Returns true for an unstable version, whose output the operator cannot read.
    pub(super) fn is_experimental(self) -> bool {
        self.level == SchemaLevel::V8
    }

    /// Returns the Go package of a type, which decoding errors mention.
    pub(super) fn go_package(self, origin: TypeOrigin) -> String {
        let (base, fcos) = match self.level {
            SchemaLevel::V3 => ("v0_3", "v1_3"),
            SchemaLevel::V5 => ("v0_5", "v1_5"),
            SchemaLevel::V6 => ("v0_6", "v1_6"),
            SchemaLevel::V8 => ("v0_8_exp", "v1_8_exp"),
        };
        match origin {
            TypeOrigin::Base => base.to_owned(),
            TypeOrigin::Fcos => fcos.to_owned(),
            TypeOrigin::OpenShift if self.is_experimental() => {
                format!("v{}_exp", self.underscored())
            }
            TypeOrigin::OpenShift => format!("v{}", self.underscored()),
        }
    }
}

/// The layer of Butane that defines a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeOrigin {
    /// The part that all variants share.
    Base,
    /// Fedora CoreOS.
    Fcos,
    /// This variant.
    OpenShift,
}

/// Returns the canonical form of a semantic version; `None` if it is invalid.
pub(super) fn to_semantic(text: &str) -> Option<String> {
    let (rest, metadata) = match text.split_once('+') {
        Some((rest, metadata)) => (rest, Some(metadata)),
        None => (text, None),
    };
    let (numbers, pre_release) = match rest.split_once('-') {
        Some((numbers, pre_release)) => (numbers, Some(pre_release)),
        None => (rest, None),
    };
    let identifier = |text: &str| {
        let mut parts = text.split('.');
        parts.all(|part| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
    };
    if !pre_release.is_none_or(identifier) || !metadata.is_none_or(identifier) {
        return None;
    }
    let parts: Vec<&str> = numbers.splitn(3, '.').collect();
    let parsed: Option<Vec<i64>> = parts.iter().map(|part| part.parse().ok()).collect();
    let parsed = parsed.filter(|parsed| parsed.len() == 3)?;
    let mut canonical = parsed
        .iter()
        .map(i64::to_string)
        .collect::<Vec<_>>()
        .join(".");
    if let Some(pre_release) = pre_release {
        canonical = format!("{canonical}-{pre_release}");
    }
    if let Some(metadata) = metadata {
        canonical = format!("{canonical}+{metadata}");
    }
    Some(canonical)
}
