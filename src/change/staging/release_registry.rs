//! The registry of release images that a control-plane node may run itself: `iri-registry.service`, port 22625. It works
//! without the cluster's API and without an external network, so it is tried before an external registry.

use std::time::Duration;

use serde::Deserialize;
use std::collections::BTreeMap;

use crate::base::paths;
use crate::base::reason::Reason;
use crate::host::net::{self, FetchRequest, FetchSettings};
use crate::host::root::{Root, RootError, RootPath};
use crate::node::images::Digest;

/// Host and port of the registry on the node itself.
pub(super) const HOST: &str = "localhost:22625";
/// Repositories of a release: its payload, and the images that it refers to, such as the OS image.
const REPOSITORIES: [&str; 2] = [PAYLOADS, "openshift/release"];
/// The repository of the payloads; its tags are the versions of the releases, such as `4.22.16-x86_64`.
const PAYLOADS: &str = "openshift/release-images";
/// Accepted forms of a manifest.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// A manifest is not larger.
const MAX_MANIFEST: u64 = 4 << 20;
/// Time limit: the registry is local, so a slower answer is not going to come.
const BOUND: Duration = Duration::from_secs(5);

/// Returns true if the node has the store of such a registry.
///
/// # Errors
/// It cannot be looked for, or is not a directory.
pub(super) fn is_present(root: &Root) -> Result<bool, RootError> {
    let store = RootPath::fixed(paths::RELEASE_REGISTRY);
    Ok(root.open_directory(&store)?.is_some())
}

/// Queries the node's registry for the manifest of an image, and returns the reference from which to copy it.
///
/// # Errors
/// The reasons why no repository of the registry has it, in words.
pub(super) fn find_image(root: &Root, digest: &Digest) -> Result<String, Reason> {
    let mut reasons = Vec::new();
    for repository in REPOSITORIES {
        match find_in_repository(root, repository, digest) {
            Ok(reference) => return Ok(reference),
            Err(reason) => reasons.push(reason.to_string()),
        }
    }
    // Without an answer, the reason is the same for both.
    reasons.dedup();
    let mut text = reasons.join("; ");
    match list_releases(root) {
        Ok(releases) if !releases.is_empty() => {
            text += &format!("; it has the releases {}", releases.join(", "))
        }
        // The reasons above already say that it does not answer.
        Ok(_) | Err(_) => {}
    }
    Err(text.into())
}

fn find_in_repository(root: &Root, repository: &str, digest: &Digest) -> Result<String, Reason> {
    let url = format!("https://{HOST}/v2/{repository}/manifests/{digest}");
    let answer = ask_registry(root, &url)?;
    if Digest::of_bytes(&answer) != *digest {
        return Err(format!("{url} has another digest").into());
    }
    Ok(format!("docker://{HOST}/{repository}@{digest}"))
}

/// Returns the versions of the releases in the registry. Tags of signatures (`sha256-DIGEST.sig`) are left out.
fn list_releases(root: &Root) -> Result<Vec<String>, Reason> {
    #[derive(Deserialize)]
    struct Tags {
        #[serde(default)]
        tags: Option<Vec<String>>,
    }
    let url = format!("https://{HOST}/v2/{PAYLOADS}/tags/list");
    let tags: Tags = serde_json::from_slice(&ask_registry(root, &url)?)
        .map_err(|error| format!("{url}: {error}"))?;
    let mut releases = tags.tags.unwrap_or_default();
    releases.retain(|tag| !tag.ends_with(".sig"));
    releases.sort();
    Ok(releases)
}

/// Returns the bytes of the registry's answer.
fn ask_registry(root: &Root, url: &str) -> Result<Vec<u8>, Reason> {
    let mut request = FetchRequest::new(url, MAX_MANIFEST);
    request.retry = false;
    request.headers = vec![("Accept".to_owned(), ACCEPT.to_owned())];
    if let Some(login) = read_login(root)? {
        let header = ("Authorization".to_owned(), format!("Basic {login}"));
        request.headers.push(header);
    }
    let settings = FetchSettings {
        certificates: read_authorities(root)?,
        header_timeout: BOUND,
        connect_timeout: BOUND,
        total_timeout: Some(BOUND),
        ..FetchSettings::default()
    };
    let answer = net::fetch_url(&settings, &request, &mut |_| {});
    answer
        .map(|answer| answer.bytes)
        .map_err(Reason::from_error)
}

/// Reads the authority of the registry, and those of the system.
///
/// # Errors
/// A file cannot be read, or its certificates cannot.
fn read_authorities(root: &Root) -> Result<Vec<net::CertificateDer<'static>>, Reason> {
    let mut all = Vec::new();
    if let Some(pem) = read_file(root, paths::RELEASE_REGISTRY_AUTHORITY)? {
        let own = net::parse_bundle(&pem);
        all = own.map_err(|error| format!("/{}: {error}", paths::RELEASE_REGISTRY_AUTHORITY))?;
    }
    for path in paths::CA_BUNDLES {
        if let Some(pem) = read_file(root, path)? {
            all.extend(net::system_certificates(&pem));
            break;
        }
    }
    Ok(all)
}

fn read_file(root: &Root, path: &'static str) -> Result<Option<Vec<u8>>, Reason> {
    let read = root.read(&RootPath::fixed(path));
    read.map_err(Reason::from_error)
}

/// Returns user and password in the form of the pull secret: base64 of both; `None` if it has none for the registry.
///
/// # Errors
/// The pull secret cannot be read.
fn read_login(root: &Root) -> Result<Option<String>, Reason> {
    #[derive(Deserialize)]
    struct Secrets {
        auths: BTreeMap<String, Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(default)]
        auth: String,
    }
    let path = paths::KUBELET_PULL_SECRET;
    let Some(bytes) = read_file(root, path)? else {
        return Ok(None);
    };
    // The text of the error could have a part of a secret in it.
    let secrets = serde_json::from_slice::<Secrets>(&bytes);
    let mut secrets = secrets.map_err(|_| format!("/{path} is not a pull secret"))?;
    let login = secrets.auths.remove(HOST).map(|entry| entry.auth);
    Ok(login.filter(|login| !login.is_empty()))
}
