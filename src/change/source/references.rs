//! Fetches, verifies and merges the configs that a config refers to (docs/develop/ignition.md: Merging), and fetches the remote
//! contents of its files (docs/develop/ignition.md).
//!
//! Everything is fetched before anything is planned, so a failing server changes nothing on the node. Deliberate differences
//! from Ignition: nesting, number, size and time are bounded; a config that refers to itself is an error; an empty answer is an
//! error instead of "no config at all"; hashes are compared case-insensitively, and for empty contents too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::SourceError;
use crate::base::reason::Reason;
use crate::config::document::ignition::{File, HttpHeader, Meta, ProxySection, Resource};
use crate::config::document::{
    self, ConfigLayer, ContentsError, DocumentError, Finding, MachineConfig, data_url,
    gunzip_within, has_hash,
};

/// Maximum depth of references between configs.
const MAX_DEPTH: usize = 16;
/// Maximum number of configs that one config may refer to, on all levels in total.
const MAX_CONFIGS: usize = 128;
/// Maximum size of a config after decompression (64 MiB).
const MAX_CONFIG: u64 = 64 << 20;
/// Maximum size of a certificate bundle after decompression (8 MiB).
const MAX_BUNDLE: u64 = 8 << 20;
/// Maximum size of all remote contents of files after decompression (512 MiB): they are kept in memory until they are written.
const MAX_CONTENTS: u64 = 512 << 20;
/// Time limit for the headers of an answer (docs/develop/ignition.md: Fetching).
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// The network settings of a config.
#[derive(Debug, Clone, Default)]
pub struct ReferenceNetwork {
    /// Proxies.
    pub proxy: ProxySection,
    /// Time limit for the headers of one response.
    pub header_timeout: Duration,
    /// Time limit for all attempts and the body of one source; `None` if only the limit of the whole run applies.
    pub total_timeout: Option<Duration>,
    /// PEM bundles that are trusted in addition to those of the system.
    pub authorities: Vec<Arc<[u8]>>,
}

/// A resource to fetch.
#[derive(Debug, Clone, Copy)]
pub struct WantedReference<'a> {
    /// An `http` or `https` URL.
    pub url: &'a str,
    /// Headers of the config.
    pub headers: &'a [(String, String)],
    /// Maximum size of the body; a larger one is an error.
    pub max_bytes: u64,
    /// The body will be compared with a hash.
    pub verified: bool,
}

/// Fetches resources: the network.
pub trait Fetch {
    /// Returns the body at a URL, or a line with the error and the next step.
    fn fetch_body(
        &mut self,
        network: &ReferenceNetwork,
        wanted: WantedReference<'_>,
    ) -> Result<Vec<u8>, Reason>;
}

/// Completes a config: fetches its references and the contents of its files.
pub(super) fn complete_references(
    config: MachineConfig,
    fetch: &mut dyn Fetch,
) -> Result<MachineConfig, SourceError> {
    if !config.bare {
        return Ok(config);
    }
    let mut loader = Loader {
        fetch,
        origin: config.origin.clone(),
        network: ReferenceNetwork::default(),
        bundles: BTreeMap::new(),
        configs: 0,
        contents: 0,
        warnings: Vec::new(),
    };
    let mut config = match &config.layer {
        Some(layer) => loader.load_merged(layer)?,
        None => config,
    };
    if config.bare {
        loader.fill_files(&mut config)?;
    }
    Ok(config)
}

struct Loader<'a> {
    fetch: &'a mut dyn Fetch,
    origin: String,
    /// The current settings: those of all configs read so far, as in Ignition.
    network: ReferenceNetwork,
    bundles: BTreeMap<String, Arc<[u8]>>,
    configs: usize,
    contents: u64,
    warnings: Vec<Finding>,
}

/// A config that is being completed.
struct Frame {
    layer: ConfigLayer,
    /// The chain of sources from the first config to this one.
    way: Vec<String>,
    /// The config's name in messages.
    origin: String,
}

impl Loader<'_> {
    fn load_merged(&mut self, layer: &ConfigLayer) -> Result<MachineConfig, SourceError> {
        let frame = Frame {
            layer: layer.clone(),
            way: Vec::new(),
            origin: self.origin.clone(),
        };
        self.adopt_settings(&layer.ignition_section(), &frame.origin)?;
        let rendered = self.merge_config(frame)?;
        let origin = match self.configs {
            1 => format!("{} with the config it refers to", self.origin),
            count => format!("{} with the {count} configs it refers to", self.origin),
        };
        let mut config = document::parse_document(rendered.to_document(), &origin)?;
        let merged = std::mem::take(&mut config.warnings);
        config.warnings.clone_from(&layer.warnings);
        config.warnings.append(&mut self.warnings);
        // The merged config repeats the warnings of its layers.
        let known = config.warnings.clone();
        let new = |finding: &Finding| known.iter().all(|old| old.message != finding.message);
        config.warnings.extend(merged.into_iter().filter(new));
        Ok(config)
    }

    /// Merges a config. `replace` replaces its whole content; otherwise each config in `merge` is merged over it, depth first.
    fn merge_config(&mut self, frame: Frame) -> Result<ConfigLayer, SourceError> {
        let references = frame.layer.references();
        if let Some(resource) = references.replace {
            let child = self.child_frame(&resource, &frame, "ignition.config.replace")?;
            self.adopt_settings(&child.layer.ignition_section(), &child.origin)?;
            return self.merge_config(child);
        }
        let mut current = frame.layer.clone();
        for (index, resource) in references.merge.iter().enumerate() {
            let child =
                self.child_frame(resource, &frame, &format!("ignition.config.merge[{index}]"))?;
            self.adopt_settings(
                &current.merged_with(&child.layer).ignition_section(),
                &child.origin,
            )?;
            current = current.merged_with(&self.merge_config(child)?);
        }
        Ok(current)
    }

    fn child_frame(
        &mut self,
        resource: &Resource,
        parent: &Frame,
        at: &str,
    ) -> Result<Frame, SourceError> {
        let place = format!("{at} of {}", parent.origin);
        let source = resource.source.as_deref().unwrap_or_default().to_owned();
        self.configs += 1;
        self.check_bounds(&source, parent)
            .map_err(|problem| refuse_reference(&place, problem.to_string()))?;
        let bytes = self.load_bytes(resource, MAX_CONFIG, &place)?;
        if bytes.is_empty() {
            let problem = "the config there is empty. Check the source";
            return Err(refuse_reference(&place, problem));
        }
        let name = shown_source(&source);
        let text = String::from_utf8(bytes)
            .map_err(|_| refuse_reference(&place, format!("{name} is not UTF-8 text")))?;
        let origin = format!("{name} ({place})");
        let mut layer = document::parse_layer(&text, "").map_err(|findings| DocumentError {
            origin: origin.clone(),
            findings,
        })?;
        let named = std::mem::take(&mut layer.warnings)
            .into_iter()
            .map(|mut finding| {
                finding.path = format!("{} of {name}", finding.path);
                finding
            });
        self.warnings.extend(named);
        let mut way = parent.way.clone();
        way.push(source);
        Ok(Frame { layer, way, origin })
    }

    fn check_bounds(&self, source: &String, parent: &Frame) -> Result<(), Reason> {
        if parent.way.contains(source) {
            return Err("the config refers to itself. Remove the reference".into());
        }
        if parent.way.len() >= MAX_DEPTH {
            return Err(format!(
                "configs refer to one another more than {MAX_DEPTH} levels deep. Merge some of them into one file"
            ).into());
        }
        if self.configs > MAX_CONFIGS {
            return Err(format!(
                "there are more than {MAX_CONFIGS} references. Merge some of them into one file"
            )
            .into());
        }
        Ok(())
    }

    /// Applies the network settings of a config; without authorities, the previous ones stay trusted.
    fn adopt_settings(&mut self, meta: &Meta, origin: &str) -> Result<(), SourceError> {
        // Zero means no limit, and so does a negative number.
        let seconds = |given: i64| Duration::from_secs(u64::try_from(given).unwrap_or_default());
        let timeouts = &meta.timeouts;
        self.network.proxy = meta.proxy.clone();
        self.network.header_timeout = timeouts
            .http_response_headers
            .map_or(HEADER_TIMEOUT, seconds);
        let total = timeouts.http_total.map(seconds);
        self.network.total_timeout = total.filter(|total| !total.is_zero());
        let mut named = Vec::new();
        for (index, resource) in meta.security.tls.certificate_authorities.iter().enumerate() {
            let place =
                format!("ignition.security.tls.certificateAuthorities[{index}] of {origin}");
            named.push(self.load_bundle(resource, &place)?);
        }
        if !named.is_empty() {
            self.network.authorities = named;
        }
        Ok(())
    }

    fn load_bundle(&mut self, resource: &Resource, place: &str) -> Result<Arc<[u8]>, SourceError> {
        let source = resource.source.as_deref().unwrap_or_default().to_owned();
        if let Some(known) = self.bundles.get(&source) {
            return Ok(Arc::clone(known));
        }
        let bytes: Arc<[u8]> = self.load_bytes(resource, MAX_BUNDLE, place)?.into();
        self.bundles.insert(source, Arc::clone(&bytes));
        Ok(bytes)
    }

    /// Returns the bytes of a resource: fetched or decoded, decompressed, verified.
    fn load_bytes(
        &mut self,
        resource: &Resource,
        max: u64,
        place: &str,
    ) -> Result<Vec<u8>, SourceError> {
        let packed = self
            .raw_bytes(resource, max)
            .map_err(|problem| refuse_reference(place, problem.to_string()))?;
        let source = resource.source.as_deref().unwrap_or_default();
        let gzip = resource.compression.as_deref() == Some("gzip") && !source.is_empty();
        let bytes = if gzip {
            gunzip_within(&packed, max)
                .map_err(|error| refuse_reference(place, error.to_string()))?
        } else {
            packed
        };
        match &resource.verification.hash {
            Some(hash) if !has_hash(&bytes, hash) => {
                let problem = format!(
                    "the content of {} does not match the hash in the config. Ask the config's author for the right hash",
                    shown_source(source)
                );
                Err(refuse_reference(place, problem))
            }
            _ => Ok(bytes),
        }
    }

    fn raw_bytes(&mut self, resource: &Resource, max: u64) -> Result<Vec<u8>, Reason> {
        let source = resource.source.as_deref().unwrap_or_default();
        if source.is_empty() {
            return Ok(Vec::new());
        }
        if is_http(source) {
            let wanted = WantedReference {
                url: source,
                headers: &parse_headers(&resource.http_headers)?,
                max_bytes: max,
                verified: resource.verification.hash.is_some(),
            };
            return self.fetch.fetch_body(&self.network, wanted);
        }
        match data_url(source) {
            Ok(bytes) if bytes.len() as u64 > max => {
                Err(format!("the data is larger than {} MiB", max >> 20).into())
            }
            Ok(bytes) => Ok(bytes),
            Err(ContentsError::Remote(scheme)) => Err(format!(
                "{scheme} sources are not fetched. Get the file by other means and name it with an http, \
                 https or data URL"
            ).into()),
            Err(error) => Err(Reason::from_error(error)),
        }
    }

    /// Fetches the remote contents of every file.
    fn fill_files(&mut self, config: &mut MachineConfig) -> Result<(), SourceError> {
        if !config.ignition.storage.files.iter().any(has_remote) {
            return Ok(());
        }
        self.adopt_settings(&config.ignition.ignition, &config.origin)?;
        let ignition = Arc::make_mut(&mut config.ignition);
        for (index, file) in ignition.storage.files.iter_mut().enumerate() {
            let place = format!(
                "storage.files[{index}] ({}) of {}",
                file.path, config.origin
            );
            let parts = std::iter::once(&mut file.contents).chain(&mut file.append);
            for resource in parts.filter(|resource| is_remote(resource)) {
                let left = MAX_CONTENTS.saturating_sub(self.contents);
                let bytes = self.load_bytes(resource, left, &place)?;
                self.contents += bytes.len() as u64;
                resource.set_fetched(bytes.into());
            }
        }
        Ok(())
    }
}

fn refuse_reference(place: &str, problem: impl Into<String>) -> SourceError {
    SourceError::Reference {
        place: place.to_owned(),
        problem: problem.into(),
    }
}

fn has_remote(file: &File) -> bool {
    is_remote(&file.contents) || file.append.iter().any(is_remote)
}

/// Returns true for HTTP URLs; schemes are case-insensitive.
fn is_http(source: &str) -> bool {
    let scheme = source.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
    })
}

fn is_remote(resource: &Resource) -> bool {
    resource
        .source
        .as_deref()
        .is_some_and(|source| !source.is_empty() && !source.starts_with("data:"))
}

/// Returns the headers. A header without a value is an error when it is sent (docs/develop/ignition.md: Parsing).
fn parse_headers(given: &[HttpHeader]) -> Result<Vec<(String, String)>, Reason> {
    given
        .iter()
        .map(|header| match &header.value {
            Some(value) => Ok((header.name.clone(), value.clone())),
            None => Err(format!("the http header {} has no value", header.name).into()),
        })
        .collect()
}

/// Returns the name of a source for messages: without credentials, query or contents.
fn shown_source(source: &str) -> String {
    if source.is_empty() || source.starts_with("data:") {
        "the data URL".to_owned()
    } else {
        crate::base::secrets::redacted_url(source)
    }
}
