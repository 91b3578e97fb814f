//! Container references of deployments, and the image names that the daemon derives from them.

/// Returns the image name that the daemon reads from a deployment (docs/develop/agreement.md: Operating system), derived from its
/// container reference and the URL of its custom origin; empty if neither names an image.
pub fn image_of(reference: Option<&str>, custom_url: Option<&str>) -> String {
    match (reference, custom_url) {
        (Some(reference), _) if !reference.is_empty() => of_reference(reference),
        (_, Some(url)) => url.strip_prefix("pivot://").unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Returns a container reference without its signature scheme and transport.
pub fn of_reference(reference: &str) -> String {
    let rest = |prefix: &str| reference.strip_prefix(prefix);
    let after_remote = |prefix| rest(prefix).and_then(|rest| rest.split_once(':'));
    if let Some(image) = rest("ostree-unverified-registry:") {
        return image.to_owned();
    }
    if let Some((_, image)) = after_remote("ostree-remote-registry:") {
        return image.to_owned();
    }
    let with_transport = rest("ostree-image-signed:")
        .or_else(|| rest("ostree-unverified-image:"))
        .or_else(|| after_remote("ostree-remote-image:").map(|(_, rest)| rest))
        .unwrap_or(reference);
    let (transport, image) = with_transport
        .split_once(':')
        .unwrap_or(("", with_transport));
    match transport {
        "docker" => image.trim_start_matches("//").to_owned(),
        _ => image.to_owned(),
    }
}
