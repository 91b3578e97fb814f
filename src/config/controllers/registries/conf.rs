//! registries.conf: the entries as the controller builds them, and the bytes as the controller's TOML encoder writes them.

use std::fmt::Write;

use serde::Deserialize;

use super::scopes::is_nested;
use super::sets::MirroredSource;
use crate::base::go_quote::quote_go;
use crate::base::reason::Reason;
use crate::config::controllers::toml_text::quote_toml;

/// The search list of the template.
pub(super) const SEARCH: [&str; 2] = ["registry.access.redhat.com", "docker.io"];
/// `pull-from-mirror` of mirrors for digests.
pub(super) const DIGEST_ONLY: &str = "digest-only";
/// `pull-from-mirror` of mirrors for tags.
pub(super) const TAG_ONLY: &str = "tag-only";

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Conf {
    /// `unqualified-search-registries`.
    pub(super) unqualified_search_registries: Option<Vec<String>>,
    /// `short-name-mode`; older operators do not write it.
    pub(super) short_name_mode: Option<String>,
    /// `additional-layer-store-auth-helper`; older operators do not write it.
    pub(super) additional_layer_store_auth_helper: Option<String>,
    /// The tables `[[registry]]`.
    #[serde(default)]
    pub(super) registry: Vec<Entry>,
    /// Mirrors for digests are marked at the registry, as by older operators.
    #[serde(skip)]
    pub(super) marks_registries: bool,
}

/// One table `[[registry]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Entry {
    /// `prefix`; only for wildcards.
    #[serde(default)]
    pub(super) prefix: String,
    /// `location`.
    #[serde(default)]
    pub(super) location: String,
    /// `insecure`.
    #[serde(default)]
    pub(super) insecure: bool,
    /// `blocked`.
    #[serde(default)]
    pub(super) blocked: bool,
    /// `mirror-by-digest-only`, which older operators wrote.
    #[serde(default)]
    pub(super) mirror_by_digest_only: bool,
    /// The tables `[[registry.mirror]]`.
    #[serde(default)]
    pub(super) mirror: Vec<Endpoint>,
}

/// One table `[[registry.mirror]]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Endpoint {
    /// `location`.
    #[serde(default)]
    pub(super) location: String,
    /// `insecure`.
    #[serde(default)]
    pub(super) insecure: bool,
    /// `pull-from-mirror`.
    #[serde(default)]
    pub(super) pull_from_mirror: String,
}

impl Entry {
    /// Creates an entry for exactly this scope.
    pub(super) fn new(scope: &str) -> Self {
        let scope = scope.to_owned();
        if scope.starts_with("*.") {
            return Self {
                prefix: scope,
                ..Self::default()
            };
        }
        Self {
            location: scope,
            ..Self::default()
        }
    }

    /// Returns the names to which the entry applies.
    pub(super) fn scope(&self) -> &str {
        if self.prefix.is_empty() {
            &self.location
        } else {
            &self.prefix
        }
    }
}

impl Conf {
    /// Returns the template's file.
    pub(super) fn template() -> Self {
        Self::new(Some(SEARCH.map(str::to_owned).to_vec()))
    }

    /// Creates a file without registries in the current operator's form.
    pub(super) fn new(search: Option<Vec<String>>) -> Self {
        Self {
            unqualified_search_registries: search,
            short_name_mode: Some(String::new()),
            additional_layer_store_auth_helper: Some(String::new()),
            registry: Vec::new(),
            marks_registries: false,
        }
    }

    /// Returns the same file without registries.
    pub(super) fn header(&self) -> Self {
        Self {
            registry: Vec::new(),
            ..self.clone()
        }
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The message of the TOML parser.
    pub(super) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let mut conf: Self = toml::from_str(text)?;
        for entry in conf.registry.iter_mut().filter(|entry| entry.is_marked()) {
            conf.marks_registries = true;
            entry.mirror_by_digest_only = false;
            for mirror in &mut entry.mirror {
                DIGEST_ONLY.clone_into(&mut mirror.pull_from_mirror);
            }
        }
        Ok(conf)
    }

    /// Returns the entry of a scope, which is created if it is missing.
    fn ensure_entry(&mut self, scope: &str) -> &mut Entry {
        let found = self
            .registry
            .iter()
            .position(|entry| entry.scope() == scope);
        let index = found.unwrap_or_else(|| {
            self.registry.push(Entry::new(scope));
            self.registry.len() - 1
        });
        &mut self.registry[index]
    }

    /// Adds mirrors, blocked and insecure scopes to the file, in the controller's order.
    ///
    /// # Errors
    /// The controller's message about a mirrored wildcard that contains another entry.
    pub(super) fn add_scopes(
        &mut self,
        insecure: &[String],
        blocked: &[String],
        digests: &[MirroredSource],
        tags: &[MirroredSource],
    ) -> Result<(), Reason> {
        self.add_mirrors(digests, DIGEST_ONLY);
        self.add_mirrors(tags, TAG_ONLY);
        for scope in blocked {
            self.ensure_entry(scope);
        }
        for scope in insecure {
            self.ensure_entry(scope).insecure = true;
            for entry in &mut self.registry {
                entry.insecure |= is_nested(entry.scope(), scope);
                for mirror in &mut entry.mirror {
                    mirror.insecure |= is_nested(&mirror.location, scope);
                }
            }
        }
        for scope in blocked {
            self.ensure_entry(scope).blocked = true;
            for entry in &mut self.registry {
                entry.blocked |= is_nested(entry.scope(), scope);
            }
        }
        for mirrored in digests.iter().chain(tags) {
            self.copy_mirrors(&mirrored.source)?;
        }
        Ok(())
    }

    fn add_mirrors(&mut self, sources: &[MirroredSource], pull: &str) {
        for mirrored in sources {
            let entry = self.ensure_entry(&mirrored.source);
            entry.blocked |= mirrored.is_never_asked;
            let mirrors = mirrored.mirrors.iter().map(|location| Endpoint {
                location: location.clone(),
                insecure: false,
                pull_from_mirror: pull.to_owned(),
            });
            entry.mirror.extend(mirrors);
        }
    }

    /// Copies the mirrors of a source to nested entries that have none.
    fn copy_mirrors(&mut self, source: &str) -> Result<(), Reason> {
        let mirrors = self.ensure_entry(source).mirror.clone();
        let inside = self.registry.iter_mut().filter(|entry| {
            entry.scope() != source && entry.mirror.is_empty() && is_nested(entry.scope(), source)
        });
        for entry in inside {
            let rest = entry.scope().strip_prefix(source);
            let Some(rest) = rest.filter(|_| !source.starts_with("*.")) else {
                let source = quote_go(source);
                return Err(format!(
                    "internal error: mirrorsAdjustedForNestedScope for a wildcard scope {source}"
                )
                .into());
            };
            let adjusted = mirrors.iter().map(|mirror| Endpoint {
                location: format!("{}{rest}", mirror.location),
                ..mirror.clone()
            });
            entry.mirror = adjusted.collect();
        }
        Ok(())
    }

    /// Returns the bytes of the file.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        if let Some(search) = &self.unqualified_search_registries {
            let names: Vec<String> = search.iter().map(|name| quote_toml(name)).collect();
            let _ = writeln!(
                out,
                "unqualified-search-registries = [{}]",
                names.join(", ")
            );
        }
        let others = [
            ("short-name-mode", &self.short_name_mode),
            (
                "additional-layer-store-auth-helper",
                &self.additional_layer_store_auth_helper,
            ),
        ];
        for (key, value) in others {
            if let Some(value) = value {
                let _ = writeln!(out, "{key} = {}", quote_toml(value));
            }
        }
        for entry in &self.registry {
            if self.marks_registries && entry.has_digests_alone() {
                entry.with_mark().write_entry(&mut out)
            } else {
                entry.write_entry(&mut out)
            }
        }
        out
    }
}

impl Entry {
    /// Returns true if only the registry marks its mirrors as being for digests.
    fn is_marked(&self) -> bool {
        let silent = self
            .mirror
            .iter()
            .all(|mirror| mirror.pull_from_mirror.is_empty());
        self.mirror_by_digest_only && silent && !self.mirror.is_empty()
    }

    fn has_digests_alone(&self) -> bool {
        let is_digest = |mirror: &Endpoint| mirror.pull_from_mirror == DIGEST_ONLY;
        !self.mirror.is_empty() && self.mirror.iter().all(is_digest)
    }

    /// Returns the entry with the mark at the registry.
    fn with_mark(&self) -> Self {
        let mut entry = self.clone();
        entry.mirror_by_digest_only = true;
        for mirror in &mut entry.mirror {
            mirror.pull_from_mirror.clear();
        }
        entry
    }

    fn write_entry(&self, out: &mut String) {
        let _ = writeln!(out, "\n[[registry]]");
        let _ = writeln!(out, "  prefix = {}", quote_toml(&self.prefix));
        if !self.location.is_empty() {
            let _ = writeln!(out, "  location = {}", quote_toml(&self.location));
        }
        if self.insecure {
            out.push_str("  insecure = true\n");
        }
        if self.blocked {
            out.push_str("  blocked = true\n");
        }
        if self.mirror_by_digest_only {
            out.push_str("  mirror-by-digest-only = true\n");
        }
        for mirror in &self.mirror {
            let _ = writeln!(out, "\n  [[registry.mirror]]");
            if !mirror.location.is_empty() {
                let _ = writeln!(out, "    location = {}", quote_toml(&mirror.location));
            }
            if mirror.insecure {
                out.push_str("    insecure = true\n");
            }
            if !mirror.pull_from_mirror.is_empty() {
                let pull = quote_toml(&mirror.pull_from_mirror);
                let _ = writeln!(out, "    pull-from-mirror = {pull}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_the_controller_quotes_them() {
        let rows = [
            ("quay.io", r#""quay.io""#),
            ("a<b>&c.test", r#""a<b>&c.test""#),
            ("q'uote", r#""q'uote""#),
            ("x\"y\\z", r#""x\"y\\z""#),
            ("\t\n\r\x08\x0c", r#""\t\n\r\b\f""#),
            ("\x01\x1f\x7f", r#""\u0001\u001f\u007f""#),
            ("ü\u{2028}", "\"ü\u{2028}\""),
        ];
        for (text, expected) in rows {
            assert_eq!(quote_toml(text), expected);
        }
    }

    #[test]
    fn an_entry_inside_of_two_mirrored_sources_gets_the_mirrors_of_the_first() {
        let source = |source: &str, mirror: &str| MirroredSource {
            source: source.to_owned(),
            mirrors: vec![mirror.to_owned()],
            is_never_asked: false,
        };
        let mut conf = Conf::default();
        let digests = [source("q.io", "m.test"), source("q.io/team", "n.test")];
        let blocked = ["q.io/team/x".to_owned()];
        conf.add_scopes(&[], &blocked, &digests, &[]).unwrap();
        let mirrors = &conf.registry.last().unwrap().mirror;
        let locations: Vec<&str> = mirrors.iter().map(|m| &*m.location).collect();
        assert_eq!(locations, ["m.test/team/x"]);
    }
}
