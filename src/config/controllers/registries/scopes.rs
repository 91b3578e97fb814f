//! Registry scopes (`HOST[:PORT][/PATH]`, `*.HOST`): which are nested, and which the controller accepts.

/// Returns true if the scope `inner` equals the scope `outer` or is nested in it. The port is part of the host: `a.test` does
/// not contain `a.test:5000`.
pub(in crate::config::controllers) fn is_nested(inner: &str, outer: &str) -> bool {
    if inner == outer {
        return true;
    }
    let rest = inner.strip_prefix(outer);
    if rest.is_some_and(|rest| rest.starts_with('/')) {
        return true;
    }
    let domain = outer.strip_prefix('*').filter(|text| text.starts_with('.'));
    domain.is_some_and(|domain| match inner.split_once(':') {
        Some((host, _)) => host.ends_with(domain) && !host.contains('/'),
        None => inner
            .split('/')
            .next()
            .is_some_and(|host| host.ends_with(domain)),
    })
}

/// Returns true for a scope that is valid in the lists of `Image cluster`.
pub(super) fn is_scope(text: &str) -> bool {
    if !text.contains('*') {
        return !text.is_empty();
    }
    let rest = text.strip_prefix("*.");
    rest.is_some_and(|rest| !rest.contains(['/', '@', ':', '*']))
}

/// Returns true for a valid source of a mirror set.
pub(super) fn is_source(text: &str) -> bool {
    match text.strip_prefix("*.") {
        Some(host) => host.split('.').all(is_label),
        None => is_mirror(text),
    }
}

/// Returns true for a valid mirror of a mirror set: `HOST[:PORT][/PATH]`, without scheme, tag or digest.
pub(super) fn is_mirror(text: &str) -> bool {
    let mut parts = text.split('/');
    let host = parts.next().unwrap_or_default();
    is_host(host) && parts.all(is_path_part)
}

/// Returns true for `HOST` and `HOST:PORT`.
pub(super) fn is_host(text: &str) -> bool {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_label(label: &str) -> bool {
    let all = label
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'-');
    all && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
}

/// Returns true for lower-case letters and digits, with `.`, `_`, `__` or dashes between them.
pub(super) fn is_path_part(part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_separator =
        |text: &str| ["", ".", "_", "__"].contains(&text) || text.bytes().all(|byte| byte == b'-');
    let whole = part.starts_with(is_word) && part.ends_with(is_word);
    whole && part.split(is_word).all(is_separator)
}

/// Returns the name in an image reference without tag and digest, like `reference.Parse` of the containers libraries.
pub(super) fn name_of(reference: &str) -> Result<&str, &'static str> {
    const INVALID: &str = "invalid reference format";
    let (rest, digest) = match reference.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (reference, None),
    };
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest.get(last..).and_then(|part| part.find(':')) {
        Some(colon) => (&rest[..last + colon], rest.get(last + colon + 1..)),
        None => (rest, None),
    };
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    let has_path = parts.clone().next().is_some();
    let is_name = if has_path {
        is_host(first) || is_path_part(first)
    } else {
        is_path_part(first)
    };
    let is_reference = is_name
        && parts.all(is_path_part)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if !is_reference {
        return Err(INVALID);
    }
    if name.len() > 255 {
        return Err("repository name must not be more than 255 characters");
    }
    Ok(name)
}

/// Returns the name in a fully written reference, as required by `reference.ParseNamed`: `docker.io/x` is refused,
/// `docker.io/library/x` is accepted.
pub(super) fn full_name_of(reference: &str) -> Result<&str, &'static str> {
    const NOT_CANONICAL: &str = "repository name must be canonical";
    let Some((host, path)) = reference.split_once('/') else {
        return Err(match name_of(reference) {
            Ok(_) => NOT_CANONICAL,
            Err(reason) => reason,
        });
    };
    let remote = path.split(':').next().unwrap_or_default();
    let is_domain = host.contains(['.', ':'])
        || host == "localhost"
        || host.bytes().any(|byte| byte.is_ascii_uppercase());
    if remote.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err("invalid reference format: repository name must be lowercase");
    }
    let name = name_of(reference)?;
    let of_docker = host == "docker.io" && !path.contains('/');
    if !is_domain || of_docker || host == "index.docker.io" {
        return Err(NOT_CANONICAL);
    }
    Ok(name)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first = tag.bytes().next();
    first.is_some_and(is_word)
        && tag.len() <= 128
        && tag
            .bytes()
            .all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    let length = match digest.split_once(':') {
        Some(("sha256", _)) => 64,
        Some(("sha384", _)) => 96,
        Some(("sha512", _)) => 128,
        _ => return false,
    };
    let hex = digest.split_once(':').map_or("", |(_, hex)| hex);
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    hex.len() == length && hex.bytes().all(is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_part_of_the_host_and_a_wildcard_means_hosts() {
        let rows = [
            ("quay.io", "quay.io", true),
            ("quay.io/team/app", "quay.io/team", true),
            ("quay.io/teammate", "quay.io/team", false),
            ("a.test:5000", "a.test", false),
            ("a.test:5000/x", "a.test:5000", true),
            ("x.corp.test", "*.corp.test", true),
            ("x.corp.test:5000/y", "*.corp.test", true),
            ("*.guest.corp.test", "*.corp.test", true),
            ("corp.test", "*.corp.test", false),
            ("quay.io/x.corp.test", "*.corp.test", false),
            ("quay.io/x.corp.test:1", "*.corp.test", false),
            ("*.corp.test", "*.corp.test", true),
        ];
        for (inner, outer, expected) in rows {
            assert_eq!(is_nested(inner, outer), expected, "{inner} in {outer}");
        }
    }

    #[test]
    fn a_star_stands_only_before_a_domain() {
        let taken = ["quay.io", "*.lab.test", "anything else", "*.x", "*."];
        let refused = ["", "*", "foo*.test", "*.a/b", "*.a:5000", "*.*.x", "a*"];
        assert!(taken.into_iter().all(is_scope));
        for scope in refused {
            assert!(!is_scope(scope), "{scope}");
        }
    }

    #[test]
    fn mirrors_have_no_scheme_tag_digest_or_upper_case_path() {
        let taken = [
            "m.test",
            "M.test:5000/a/b-c__d.e",
            "localhost",
            "a/b--c",
            "1.2.3.4:443",
        ];
        let refused = [
            "",
            "https://m.test",
            "m.test/app:v1",
            "m.test/App",
            "m.test/",
            "m.test//a",
            "-m.test",
            "m..test",
            "m.test:/a",
            "m.test/a___b",
            "m.test/a.-b",
            "m.test/-a",
            "*.m.test",
            "m.test/a@sha256:00",
        ];
        for mirror in taken {
            assert!(is_mirror(mirror) && is_source(mirror), "{mirror}");
        }
        for mirror in refused {
            assert!(!is_mirror(mirror), "{mirror}");
        }
        assert!(is_source("*.m.test") && !is_source("*.m.test/a") && !is_source("*.m.test:1"));
    }

    #[test]
    fn a_name_of_docker_has_to_be_written_in_full() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let named = format!("quay.io/a/b@{digest}");
        assert_eq!(full_name_of(&named), Ok("quay.io/a/b"));
        assert_eq!(full_name_of("q.test:5000/a/b:v1.2"), Ok("q.test:5000/a/b"));
        assert_eq!(full_name_of("localhost/a"), Ok("localhost/a"));
        for text in ["docker.io/ocp4", "m.test", "host/a", "index.docker.io/a/b"] {
            let reason = "repository name must be canonical";
            assert_eq!(full_name_of(text), Err(reason), "{text}");
        }
        for text in ["", "quay.io/a@sha256:1", "quay.io/a:", "quay.io/a//b"] {
            assert_eq!(
                full_name_of(text),
                Err("invalid reference format"),
                "{text}"
            );
        }
    }
}
