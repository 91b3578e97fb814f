//! The pointer config of a node, which directs Ignition to its Machine Config Server. If the server is unavailable, the config
//! that it would serve can replace the reference.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::contents::has_hash;
use super::finding::Finding;

/// JSON pointers to the references of a config.
const REPLACE: &str = "/ignition/config/replace";
const MERGE: &str = "/ignition/config/merge";

/// Returns the addresses of Machine Config Servers in a pointer config.
pub fn server_addresses(pointer: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<Value>(pointer) else {
        return Vec::new();
    };
    let references = value
        .pointer(REPLACE)
        .into_iter()
        .chain(merge_references(&value));
    let source = |reference: &Value| reference["source"].as_str().map(str::to_owned);
    references
        .filter_map(source)
        .filter(|source| requested_pool(source).is_some())
        .collect()
}

/// Returns the pool in a server's address: `https://HOST:PORT/config/POOL`.
pub fn requested_pool(source: &str) -> Option<&str> {
    let address = source.strip_prefix("http")?.split(['?', '#']).next()?;
    let (_, pool) = address.rsplit_once("/config/")?;
    (!pool.is_empty() && !pool.contains('/')).then_some(pool)
}

/// Returns the authorities that a pointer config trusts, as written: sources of bundles.
pub fn trusted_authorities(pointer: &str) -> Vec<String> {
    let value: Value = serde_json::from_str(pointer).unwrap_or_default();
    let all = value.pointer("/ignition/security/tls/certificateAuthorities");
    let all = all.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| one["source"].as_str().map(str::to_owned))
        .collect()
}

/// Returns the pointer config with the server's address replaced by the served config; without a pointer, a config that
/// contains only the served one.
///
/// # Errors
/// The pointer cannot be parsed, needs more than its Machine Config Server, or requires other bytes.
pub fn with_served(pointer: Option<&str>, served: &str) -> Result<String, Finding> {
    let source = format!("data:;base64,{}", STANDARD.encode(served));
    let Some(pointer) = pointer else {
        let version = version_of(served)?;
        return Ok(
            json!({"ignition": {"version": version, "config": {"merge": [{"source": source}]}}})
                .to_string(),
        );
    };
    let mut value: Value = serde_json::from_str(pointer)
        .map_err(|error| Finding::error("the pointer config", error.to_string()))?;
    let mut replaced = 0;
    if let Some(reference) = value.pointer_mut(REPLACE) {
        replaced += replace_reference(reference, "ignition.config.replace", &source, served)?;
    }
    let merge = value.pointer_mut(MERGE).and_then(Value::as_array_mut);
    for (index, reference) in merge.into_iter().flatten().enumerate() {
        let at = format!("ignition.config.merge[{index}]");
        replaced += replace_reference(reference, &at, &source, served)?;
    }
    match replaced {
        1 => Ok(value.to_string()),
        0 => Err(Finding::error(
            "ignition.config",
            "the pointer config leads to no Machine Config Server, so there is nothing to replace",
        )),
        _ => Err(Finding::error(
            "ignition.config",
            "the pointer config leads to several Machine Config Servers, but only one config is available",
        )),
    }
}

fn merge_references(value: &Value) -> impl Iterator<Item = &Value> {
    value
        .pointer(MERGE)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// Replaces a server's address with the config; a reference that needs no network is kept. Returns the number of replacements.
fn replace_reference(
    reference: &mut Value,
    at: &str,
    source: &str,
    served: &str,
) -> Result<usize, Finding> {
    let address = reference["source"].as_str().unwrap_or_default();
    if address.is_empty() || address.starts_with("data:") {
        return Ok(0);
    }
    if requested_pool(address).is_none() {
        let message = "the pointer config also needs this address, and no local config replaces it";
        return Err(Finding::error(format!("{at}.source"), message));
    }
    if let Some(hash) = reference["verification"]["hash"].as_str()
        && !has_hash(served.as_bytes(), hash)
    {
        let message = "the available config does not have the hash in the pointer config";
        return Err(Finding::error(format!("{at}.verification.hash"), message));
    }
    *reference = json!({ "source": source });
    Ok(1)
}

fn version_of(served: &str) -> Result<String, Finding> {
    let value: Value = serde_json::from_str(served).unwrap_or_default();
    let version = value.pointer("/ignition/version").and_then(Value::as_str);
    version.map(str::to_owned).ok_or_else(|| {
        Finding::error(
            "ignition.version",
            "missing; this is not an Ignition config",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVED: &str = r#"{"ignition":{"version":"3.2.0"}}"#;
    const URL: &str = "https://api-int.example:22623/config/worker";

    fn pointer(merge: &Value) -> String {
        json!({
            "ignition": {"version": "3.3.0", "config": {"merge": merge},
                "security": {"tls": {"certificateAuthorities": [{"source": "data:,pem"}]}}},
            "storage": {"files": [{"path": "/etc/hostname", "contents": {"source": "data:,node7"}}]},
        })
        .to_string()
    }

    #[test]
    fn the_server_gives_way_and_everything_else_stays() {
        let text = pointer(
            &json!([{"source": "data:,%7B%7D"}, {"source": URL, "httpHeaders": [{"name": "a", "value": "b"}]}]),
        );
        assert_eq!(server_addresses(&text), [URL]);
        assert_eq!(requested_pool(URL), Some("worker"));
        assert_eq!(trusted_authorities(&text), ["data:,pem"]);
        let made: Value = serde_json::from_str(&with_served(Some(&text), SERVED).unwrap()).unwrap();
        let merge = made.pointer(MERGE).unwrap();
        assert_eq!(merge[0]["source"], "data:,%7B%7D");
        let source = merge[1]["source"].as_str().unwrap();
        assert_eq!(super::super::data_url(source).unwrap(), SERVED.as_bytes());
        assert!(merge[1].get("httpHeaders").is_none());
        assert_eq!(made["storage"]["files"][0]["path"], "/etc/hostname");
        assert_eq!(made["ignition"]["version"], "3.3.0");
    }

    #[test]
    fn without_a_pointer_there_is_the_config_alone() {
        let made: Value = serde_json::from_str(&with_served(None, SERVED).unwrap()).unwrap();
        assert_eq!(made["ignition"]["version"], "3.2.0");
        assert_eq!(made.pointer(MERGE).unwrap().as_array().unwrap().len(), 1);
    }

    #[test]
    fn what_cannot_be_stood_for_is_refused_with_its_place() {
        let other = json!([{"source": URL}, {"source": "https://files.example/more.ign"}]);
        let hash = json!([{"source": URL, "verification": {"hash": format!("sha256-{}", "0".repeat(64))}}]);
        let two = json!([{"source": URL}, {"source": URL}]);
        for (merge, place, said) in [
            (
                other,
                "ignition.config.merge[1].source",
                "also needs this address",
            ),
            (
                hash,
                "ignition.config.merge[0].verification.hash",
                "does not have the hash",
            ),
            (two, "ignition.config", "several"),
            (json!([]), "ignition.config", "no Machine Config Server"),
        ] {
            let finding = with_served(Some(&pointer(&merge)), SERVED).unwrap_err();
            assert_eq!(finding.path, place);
            assert!(finding.message.contains(said), "{}", finding.message);
        }
        assert!(with_served(Some("{"), SERVED).is_err());
    }
}
