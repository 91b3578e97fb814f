//! Manifests and manifest lists, in the formats of OCI and Docker.

use serde::Deserialize;

use super::Digest;

/// Maximum number of entries. A longer list is not a manifest.
const MAX_BLOBS: usize = 4096;

/// A reference to another document by digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Digest of its bytes.
    pub digest: Digest,
    /// Number of its bytes.
    pub size: u64,
    /// Its media type.
    pub media_type: String,
    /// For a manifest in a list: operating system and architecture, in Go's names (`linux`, `amd64`).
    pub platform: Option<(String, String)>,
    /// The image's name, in an OCI directory with several images.
    pub name: Option<String>,
}

/// A manifest, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    /// The manifest of one image.
    Image {
        /// Its config.
        config: Descriptor,
        /// Its layers, lowest first.
        layers: Vec<Descriptor>,
    },
    /// A list of images, one for each architecture.
    List(Vec<Descriptor>),
}

/// The reason why bytes are not a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not JSON, or of an unexpected structure.
    #[error("{0}")]
    Form(String),
    /// Docker's first format, whose digest is not that of its bytes.
    #[error("it is of schema version 1, which no OS image has")]
    Old,
    /// A digest that is not a SHA-256.
    #[error("the digest {0:?} is not a SHA-256 digest")]
    Digest(String),
    /// Too long a list.
    #[error("it names more than 4096 blobs")]
    TooMany,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
    #[serde(default)]
    schema_version: u32,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
    manifests: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<RawPlatform>,
    #[serde(default)]
    annotations: Option<std::collections::BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct RawPlatform {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

impl Manifest {
    /// Parses a manifest, a Docker manifest list, or an OCI index (including `index.json`).
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let raw: RawManifest =
            serde_json::from_slice(bytes).map_err(|e| ManifestError::Form(e.to_string()))?;
        if raw.schema_version == 1 {
            return Err(ManifestError::Old);
        }
        if let Some(manifests) = raw.manifests {
            return check_descriptors(manifests).map(Self::List);
        }
        match (raw.config, raw.layers) {
            (Some(config), Some(layers)) => Ok(Self::Image {
                config: check_descriptor(config)?,
                layers: check_descriptors(layers)?,
            }),
            _ => Err(ManifestError::Form(
                "it has neither config and layers nor manifests".into(),
            )),
        }
    }
}

/// Returns Go's name of an architecture, which images use; Rust and `uname -m` have other names.
pub fn go_architecture(machine: &str) -> &str {
    match machine {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        // Rust uses one name for both byte orders.
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        "loongarch64" => "loong64",
        other => other,
    }
}

fn check_descriptors(all: Vec<RawDescriptor>) -> Result<Vec<Descriptor>, ManifestError> {
    if all.len() > MAX_BLOBS {
        return Err(ManifestError::TooMany);
    }
    all.into_iter().map(check_descriptor).collect()
}

fn check_descriptor(raw: RawDescriptor) -> Result<Descriptor, ManifestError> {
    const NAME: &str = "org.opencontainers.image.ref.name";
    let digest = Digest::parse(&raw.digest).ok_or(ManifestError::Digest(raw.digest))?;
    Ok(Descriptor {
        digest,
        size: raw.size,
        media_type: raw.media_type,
        platform: raw
            .platform
            .map(|platform| (platform.os, platform.architecture)),
        name: raw.annotations.and_then(|mut all| all.remove(NAME)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_for_this_machine_is_found_under_the_name_that_go_has_for_it() {
        for (rust, uname, go) in [
            ("x86_64", "x86_64", "amd64"),
            ("aarch64", "aarch64", "arm64"),
            #[cfg(target_endian = "little")]
            ("powerpc64", "ppc64le", "ppc64le"),
            #[cfg(target_endian = "big")]
            ("powerpc64", "ppc64", "ppc64"),
            ("ppc64le", "ppc64le", "ppc64le"),
            ("s390x", "s390x", "s390x"),
            ("riscv64", "riscv64", "riscv64"),
            ("loongarch64", "loongarch64", "loong64"),
        ] {
            assert_eq!(go_architecture(rust), go);
            assert_eq!(go_architecture(uname), go);
            assert_eq!(go_architecture(go), go);
        }
    }

    #[test]
    fn manifests_lists_and_other_things_are_told_apart() {
        let hex = "0".repeat(64);
        let blob = format!(r#"{{"mediaType": "x", "digest": "sha256:{hex}", "size": 3}}"#);
        let image =
            format!(r#"{{"schemaVersion": 2, "config": {blob}, "layers": [{blob}, {blob}]}}"#);
        assert!(
            matches!(Manifest::parse(image.as_bytes()), Ok(Manifest::Image { layers, .. }) if layers.len() == 2)
        );
        let list = format!(
            r#"{{"manifests": [{{"digest": "sha256:{hex}", "size": 3, "platform": {{"os": "linux", "architecture": "arm64"}}}}]}}"#
        );
        let Ok(Manifest::List(all)) = Manifest::parse(list.as_bytes()) else {
            panic!("no list");
        };
        assert_eq!(
            all[0].platform,
            Some(("linux".into(), go_architecture("aarch64").into()))
        );
        assert_eq!(
            Manifest::parse(br#"{"schemaVersion": 1, "fsLayers": []}"#),
            Err(ManifestError::Old)
        );
        let weak = r#"{"manifests": [{"digest": "sha512:12", "size": 3}]}"#;
        assert!(matches!(
            Manifest::parse(weak.as_bytes()),
            Err(ManifestError::Digest(_))
        ));
        assert!(matches!(
            Manifest::parse(b"{}"),
            Err(ManifestError::Form(_))
        ));
    }
}
