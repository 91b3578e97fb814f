//! TLS profiles: the versions and ciphers that the operator derives from them.

use serde_json::Value;

/// The kubelet settings of a TLS profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::config::controllers) struct TlsSettings {
    /// Such as `VersionTLS12`.
    pub(in crate::config::controllers) min_version: String,
    /// Names of the ciphers (IANA), in order.
    pub(in crate::config::controllers) ciphers: Vec<String>,
}

/// Ciphers of the profile Old, in OpenSSL's names. Modern has the first three of them, Intermediate the first nine.
const OLD: [&str; 24] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-RSA-AES256-SHA384",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA256",
    "AES256-SHA256",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

/// Returns the settings of a `tlsSecurityProfile`; those of Intermediate if it is missing or unknown.
pub(in crate::config::controllers) fn tls_settings(profile: Option<&Value>) -> TlsSettings {
    let get = |pointer: &str| profile.and_then(|profile| profile.pointer(pointer));
    let (version, count) = match get("/type").and_then(Value::as_str) {
        Some("Custom") if get("/custom").is_some_and(Value::is_object) => {
            let ciphers = get("/custom/ciphers").and_then(Value::as_array);
            let ciphers = ciphers.into_iter().flatten().filter_map(Value::as_str);
            let version = get("/custom/minTLSVersion").and_then(Value::as_str);
            return TlsSettings {
                min_version: version.unwrap_or_default().to_owned(),
                ciphers: ciphers.filter_map(iana_name).collect(),
            };
        }
        Some("Modern") => ("VersionTLS13", 3),
        Some("Old") => ("VersionTLS10", OLD.len()),
        _ => ("VersionTLS12", 9),
    };
    TlsSettings {
        min_version: version.to_owned(),
        ciphers: OLD
            .iter()
            .take(count)
            .filter_map(|name| iana_name(name))
            .collect(),
    }
}

/// Returns the IANA name of a cipher; `None` if the operator drops it.
fn iana_name(name: &str) -> Option<String> {
    if OLD.iter().take(3).any(|known| *known == name) {
        return Some(name.to_owned());
    }
    let (exchange, cipher) = if let Some(cipher) = name.strip_prefix("ECDHE-ECDSA-") {
        ("ECDHE_ECDSA", cipher)
    } else if let Some(cipher) = name.strip_prefix("ECDHE-RSA-") {
        ("ECDHE_RSA", cipher)
    } else {
        ("RSA", name)
    };
    let cipher = match (cipher, exchange) {
        ("AES128-GCM-SHA256", _) => "AES_128_GCM_SHA256",
        ("AES256-GCM-SHA384", _) => "AES_256_GCM_SHA384",
        ("AES128-SHA256", _) => "AES_128_CBC_SHA256",
        ("AES128-SHA", _) => "AES_128_CBC_SHA",
        ("AES256-SHA", _) => "AES_256_CBC_SHA",
        ("CHACHA20-POLY1305", "ECDHE_ECDSA" | "ECDHE_RSA") => "CHACHA20_POLY1305_SHA256",
        ("DES-CBC3-SHA", "RSA" | "ECDHE_RSA") => "3DES_EDE_CBC_SHA",
        _ => return None,
    };
    Some(format!("TLS_{exchange}_WITH_{cipher}"))
}

/// Applies other settings to a template file: to keys of `kubelet.conf`, or to options in the metrics proxy's command. Returns
/// `None` if the file has neither, or already has the settings.
pub(super) fn edit_template(text: &str, settings: &TlsSettings) -> Option<String> {
    let mut edited = String::new();
    let mut in_list = false;
    for line in text.split_inclusive('\n') {
        let (body, end) = match line.strip_suffix('\n') {
            Some(body) => (body, "\n"),
            None => (line, ""),
        };
        let content = body.trim_start();
        let indent = body.len() - content.len();
        if in_list && content.starts_with("- ") {
            continue;
        }
        in_list = false;
        if body.starts_with("tlsMinVersion:") {
            edited.push_str(&format!("tlsMinVersion: {}{end}", settings.min_version));
        } else if body == "tlsCipherSuites:" {
            in_list = true;
            edited.push_str(line);
            for cipher in &settings.ciphers {
                edited.push_str(&format!("    - {cipher}\n"));
            }
        } else if let Some(value) = content.strip_prefix("- --tls-cipher-suites=") {
            let blanks = value.len() - value.trim_end_matches(' ').len();
            let (all, blanks) = (settings.ciphers.join(","), " ".repeat(blanks));
            let start = " ".repeat(indent);
            edited.push_str(&format!("{start}- --tls-cipher-suites={all}{blanks}{end}"));
        } else if content.starts_with("- --tls-min-version=") {
            let (start, version) = (" ".repeat(indent), &settings.min_version);
            edited.push_str(&format!("{start}- --tls-min-version={version}{end}"));
        } else {
            edited.push_str(line);
        }
    }
    (edited != text).then_some(edited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn profiles_are_those_of_the_operator() {
        let count = |profile: Value| tls_settings(Some(&profile)).ciphers.len();
        assert_eq!(count(json!({"type": "Modern"})), 3);
        assert_eq!(count(json!({"type": "Intermediate"})), 9);
        // Go does not know three of its 24 ciphers.
        assert_eq!(count(json!({"type": "Old"})), 21);
        assert_eq!(
            tls_settings(None),
            tls_settings(Some(&json!({"type": "Custom"})))
        );
    }

    #[test]
    fn names_of_openssl_become_names_of_iana() {
        for (name, iana) in [
            (
                "ECDHE-RSA-DES-CBC3-SHA",
                Some("TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
            ),
            ("DES-CBC3-SHA", Some("TLS_RSA_WITH_3DES_EDE_CBC_SHA")),
            (
                "ECDHE-ECDSA-CHACHA20-POLY1305",
                Some("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
            ),
            ("AES128-SHA256", Some("TLS_RSA_WITH_AES_128_CBC_SHA256")),
            ("AES256-SHA256", None),
            ("ECDHE-RSA-AES256-SHA384", None),
            ("DHE-RSA-AES128-GCM-SHA256", None),
            ("CHACHA20-POLY1305", None),
        ] {
            assert_eq!(iana_name(name).as_deref(), iana, "{name}");
        }
    }

    #[test]
    fn only_the_lines_of_tls_change_in_a_template() {
        let old = "a: b\ntlsMinVersion: VersionTLS12\ntlsCipherSuites:\n    - X\n    - Y\nlast:\n    - Z\n";
        let settings = TlsSettings {
            min_version: "VersionTLS13".to_owned(),
            ciphers: vec!["C".to_owned()],
        };
        let new = "a: b\ntlsMinVersion: VersionTLS13\ntlsCipherSuites:\n    - C\nlast:\n    - Z\n";
        assert_eq!(edit_template(old, &settings).as_deref(), Some(new));
        assert_eq!(edit_template(new, &settings), None);
        let old = "  - --tls-cipher-suites=X,Y \n  - --tls-min-version=VersionTLS12";
        let new = "  - --tls-cipher-suites=C \n  - --tls-min-version=VersionTLS13";
        assert_eq!(edit_template(old, &settings).as_deref(), Some(new));
    }
}
