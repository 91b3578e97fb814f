//! policy.json, and the policies of namespaces.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::scopes::is_nested;
use crate::base::go_json;

/// The template's file.
pub(super) const TEMPLATE: &str = r#"{
    "default": [
        {
            "type": "insecureAcceptAnything"
        }
    ],
    "transports":
        {
            "docker-daemon":
                {
                    "": [{"type":"insecureAcceptAnything"}]
                }
        }
}"#;

/// Requirements by scope.
pub(super) type Scopes = BTreeMap<String, Vec<Value>>;

/// A policy.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Policy {
    /// `default`.
    pub(super) default: Vec<Value>,
    /// `transports`.
    pub(super) transports: BTreeMap<String, Scopes>,
}

/// Returns the requirement that accepts every image.
pub(super) fn accept_policy() -> Value {
    json!({"type": "insecureAcceptAnything"})
}

/// Returns the requirement that rejects every image.
pub(super) fn reject_policy() -> Value {
    json!({"type": "reject"})
}

impl Policy {
    /// Returns the template.
    pub(super) fn template() -> Self {
        let all = Scopes::from([(String::new(), vec![accept_policy()])]);
        Self {
            default: vec![accept_policy()],
            transports: BTreeMap::from([("docker-daemon".to_owned(), all)]),
        }
    }

    /// Parses a file; `None` if it is not a policy.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let list = |value: &Value| Some(value.as_array()?.clone());
        let scopes = |value: &Value| {
            let scopes = value.as_object()?.iter();
            scopes
                .map(|(scope, requirements)| Some((scope.clone(), list(requirements)?)))
                .collect::<Option<Scopes>>()
        };
        let transports = value.get("transports").and_then(Value::as_object);
        let transports = transports.into_iter().flatten();
        let transports = transports.map(|(name, value)| Some((name.clone(), scopes(value)?)));
        Some(Self {
            default: list(value.get("default")?)?,
            transports: transports.collect::<Option<_>>()?,
        })
    }

    /// Parses a file that is the template's or was written by the controller; `None` for any other.
    pub(super) fn parse_written(text: &str) -> Option<Self> {
        let policy = Self::parse(text.as_bytes())?;
        (text == TEMPLATE || policy.text() == text).then_some(policy)
    }

    /// Adds rejected and allowed scopes and the policies of scopes.
    pub(super) fn add_scopes(
        &mut self,
        rejected: &[String],
        allowed: &[String],
        policies: &Scopes,
    ) {
        let mut scopes = Scopes::new();
        if !allowed.is_empty() {
            self.default = vec![reject_policy()];
            let without_policy = allowed
                .iter()
                .filter(|scope| !policies.contains_key(*scope));
            scopes.extend(without_policy.map(|scope| (scope.clone(), vec![accept_policy()])));
        }
        if !rejected.is_empty() {
            self.default = vec![accept_policy()];
            let rejected = rejected.iter();
            scopes.extend(rejected.map(|scope| (scope.clone(), vec![reject_policy()])));
        }
        add_all(&mut scopes, policies);
        if scopes.is_empty() {
            return;
        }
        let atomic = scopes.iter().filter(|(scope, _)| is_atomic(scope));
        let atomic = atomic.map(|(scope, all)| (scope.clone(), all.clone()));
        let atomic = atomic.collect();
        self.transports.insert("atomic".to_owned(), atomic);
        self.transports.insert("docker".to_owned(), scopes);
    }

    /// Returns the policy of a namespace, with its own scopes.
    pub(super) fn with_namespace(&self, own: &Scopes) -> Self {
        let mut policy = self.clone();
        let docker = policy.transports.entry("docker".to_owned()).or_default();
        add_all(docker, own);
        let atomic = policy.transports.entry("atomic".to_owned()).or_default();
        let own_atomic = own.iter().filter(|(scope, _)| is_atomic(scope));
        let own_atomic = own_atomic.map(|(scope, all)| (scope.clone(), all.clone()));
        add_all(atomic, &own_atomic.collect());
        policy
    }

    /// Returns the bytes of the file.
    pub(super) fn text(&self) -> String {
        let transports = self.transports.iter().map(|(name, scopes)| {
            let scopes = scopes.iter();
            let scopes = scopes.map(|(scope, all)| (scope.clone(), Value::from(all.clone())));
            (name.clone(), Value::Object(scopes.collect()))
        });
        let transports: Map<String, Value> = transports.collect();
        go_json::to_indented_json(&json!({"default": self.default, "transports": transports}))
    }
}

fn add_all(scopes: &mut Scopes, more: &Scopes) {
    for (scope, requirements) in more {
        let all = scopes.entry(scope.clone()).or_default();
        all.extend_from_slice(requirements);
    }
}

/// Returns true if the transport is `atomic`, which supports at most three parts in a scope.
fn is_atomic(scope: &str) -> bool {
    scope.matches('/').count() < 3
}

/// Returns the first scope of policies that the allowed or rejected scopes forbid, with the end of the controller's message.
pub(super) fn find_forbidden<'a>(
    mut scopes: impl Iterator<Item = &'a str> + Clone,
    rejected: &[String],
    allowed: &[String],
) -> Option<(&'a str, &'static str)> {
    let lies_in = |scope: &str, all: &[String]| all.iter().any(|outer| is_nested(scope, outer));
    if !allowed.is_empty()
        && let Some(scope) = scopes.clone().find(|scope| !lies_in(scope, allowed))
    {
        return Some((scope, "is not nested inside allowedRegistries"));
    }
    let scope = scopes.find(|scope| lies_in(scope, rejected))?;
    Some((scope, "is nested inside blockedRegistries"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_says_what_its_values_say() {
        let read = Policy::parse(TEMPLATE.as_bytes());
        assert_eq!(read, Some(Policy::template()));
    }

    #[test]
    fn a_blocked_scope_that_is_allowed_too_is_rejected_and_a_deep_one_is_not_atomic() {
        let mut policy = Policy::template();
        let scope = |scope: &str| scope.to_owned();
        policy.add_scopes(
            &[scope("q.io/a/b/c")],
            &[scope("q.io/a/b/c")],
            &Scopes::new(),
        );
        assert_eq!(policy.default, [accept_policy()]);
        assert_eq!(policy.transports["docker"]["q.io/a/b/c"], [reject_policy()]);
        assert!(policy.transports["atomic"].is_empty());
        assert!(policy.text().contains("\"atomic\": {},\n"));
    }

    #[test]
    fn a_policy_takes_the_place_of_allowed_and_follows_a_rejection() {
        let own = Scopes::from([("a.test".to_owned(), vec![json!({"type": "x"})])]);
        let scopes = ["a.test".to_owned(), "b.test".to_owned()];
        let mut allowed = Policy::template();
        allowed.add_scopes(&[], &scopes, &own);
        assert_eq!(allowed.transports["docker"]["a.test"], own["a.test"]);
        assert_eq!(allowed.transports["docker"]["b.test"], [accept_policy()]);
        assert_eq!(allowed.default, [reject_policy()]);
        let mut blocked = Policy::template();
        blocked.add_scopes(&scopes, &[], &own);
        let both = [reject_policy(), json!({"type": "x"})];
        assert_eq!(blocked.transports["atomic"]["a.test"], both);
    }
}
