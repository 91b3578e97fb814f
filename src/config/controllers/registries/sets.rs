//! Mirror sets: merges the lists of all objects for one source.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{ObjectRefusal, refuse_object, scopes};
use crate::base::go_quote::quote_go;
use crate::config::controllers::ApiObject;

/// A value of `mirrorSourcePolicy`.
pub(super) const NEVER: &str = "NeverContactSource";
/// The default of `mirrorSourcePolicy`.
pub(super) const ALLOW: &str = "AllowContactingSource";

/// One entry of an ImageDigestMirrorSet, ImageTagMirrorSet or ImageContentSourcePolicy.
#[derive(Debug, Clone)]
pub(super) struct MirrorRule<'a> {
    /// The object that contains it.
    pub(super) object: &'a ApiObject,
    /// Its path in the object, such as `spec.imageDigestMirrors[0]`.
    pub(super) path: String,
    /// `source`.
    pub(super) source: String,
    /// `mirrors`.
    pub(super) mirrors: Vec<String>,
    /// `mirrorSourcePolicy`, with its default.
    pub(super) policy: String,
}

/// The mirrors of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MirroredSource {
    /// The source.
    pub(super) source: String,
    /// Its mirrors, in order.
    pub(super) mirrors: Vec<String>,
    /// The source itself is never contacted.
    pub(super) is_never_asked: bool,
}

/// Merges the rules, by source in byte order. A rule whose only mirror is its source is left out.
pub(super) fn merge_rules(rules: &[MirrorRule<'_>]) -> Vec<MirroredSource> {
    let mut by_source: BTreeMap<&str, Vec<&MirrorRule<'_>>> = BTreeMap::new();
    for rule in rules {
        if rule.mirrors.iter().any(|mirror| *mirror != rule.source) {
            by_source.entry(&rule.source).or_default().push(rule);
        }
    }
    let merged = by_source.into_iter().map(|(source, rules)| {
        let lists: Vec<&[String]> = rules.iter().map(|rule| &*rule.mirrors).collect();
        MirroredSource {
            source: source.to_owned(),
            mirrors: in_one_order(source, &lists),
            is_never_asked: rules.iter().any(|rule| rule.policy == NEVER),
        }
    });
    merged.collect()
}

#[derive(Default)]
struct Mirror<'a> {
    before: BTreeSet<&'a str>,
    after: BTreeSet<&'a str>,
    is_used: bool,
}

/// Merges several lists of mirrors so that each list keeps its order, if they do not conflict. The source comes after the last
/// mirror of each list without it; at the very end it is left out.
pub(super) fn in_one_order(source: &str, lists: &[&[String]]) -> Vec<String> {
    let mut mirrors: BTreeMap<&str, Mirror<'_>> = BTreeMap::new();
    for list in lists {
        let has_source = list.iter().any(|mirror| mirror == source);
        let end = (!has_source).then_some(source);
        let all: Vec<&str> = list.iter().map(String::as_str).chain(end).collect();
        for pair in all.windows(2) {
            mirrors.entry(pair[0]).or_default().after.insert(pair[1]);
            mirrors.entry(pair[1]).or_default().before.insert(pair[0]);
        }
    }
    let names: Vec<&str> = mirrors.keys().copied().collect();
    let first = names.iter().filter(|name| mirrors[*name].before.is_empty());
    let mut free: VecDeque<&str> = first.copied().collect();
    let mut unused = names.iter();
    let mut order = Vec::new();
    // A cycle is broken at its first mirror in byte order.
    while let Some(name) = free.pop_front().or_else(|| unused.next().copied()) {
        let Some(mirror) = mirrors.get_mut(name).filter(|mirror| !mirror.is_used) else {
            continue;
        };
        mirror.is_used = true;
        order.push(name.to_owned());
        for next in mirror.after.clone() {
            if let Some(mirror) = mirrors.get_mut(next) {
                mirror.before.remove(name);
                if mirror.before.is_empty() && !mirror.is_used {
                    free.push_back(next);
                }
            }
        }
    }
    if order.last().is_some_and(|last| last == source) {
        order.pop();
    }
    order
}

/// Checks the rules, like the controller before it writes registries.conf.
pub(super) fn check_rules(rules: &[&[MirrorRule<'_>]]) -> Result<(), ObjectRefusal> {
    let mut policies: BTreeMap<&str, &str> = BTreeMap::new();
    for rule in rules.iter().copied().flatten() {
        check_rule(rule, &mut policies)?;
    }
    Ok(())
}

fn check_rule<'a>(
    rule: &'a MirrorRule<'_>,
    policies: &mut BTreeMap<&'a str, &'a str>,
) -> Result<(), ObjectRefusal> {
    let at = |key: &str| format!("{}.{key}", rule.path);
    let source = &rule.source;
    if !scopes::is_source(source) {
        let message = format!("invalid format for source {}", quote_go(source));
        let advice = "write HOST[:PORT][/PATH] or *.HOST, the path in lower case, without scheme, tag or digest";
        return Err(refuse_object(rule.object, &at("source"), message, advice));
    }
    let policy = policies.entry(source).or_insert(&rule.policy);
    if *policy != rule.policy {
        let message = format!(
            "conflicting mirrorSourcePolicy is set for the same source {} in imagedigestmirrorsets, imagetagmirrorsets, or imagecontentsourcepolicies",
            quote_go(source)
        );
        let advice = "give all rules of this source the same mirrorSourcePolicy; without one a rule has AllowContactingSource";
        // A rule without the key is shown completely.
        let is_written = super::text_at(rule.object, &at("mirrorSourcePolicy")).is_some();
        let place = if is_written {
            at("mirrorSourcePolicy")
        } else {
            rule.path.clone()
        };
        return Err(refuse_object(rule.object, &place, message, advice));
    }
    for (index, mirror) in rule.mirrors.iter().enumerate() {
        let at = at(&format!("mirrors[{index}]"));
        if !scopes::is_mirror(mirror) {
            let message = format!("invalid format for mirror {}", quote_go(mirror));
            let advice =
                "write HOST[:PORT][/PATH], the path in lower case, without scheme, tag or digest";
            return Err(refuse_object(rule.object, &at, message, advice));
        }
        if rule.policy == NEVER && mirror == source {
            let message = format!(
                "cannot set mirrorSourcePolicy: NeverContactSource if the source {} is one of the mirrors",
                quote_go(source)
            );
            let advice = "take the source out of its mirrors, or use AllowContactingSource";
            return Err(refuse_object(rule.object, &at, message, advice));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(source: &str, lists: &[&str]) -> String {
        let lists: Vec<Vec<String>> = lists
            .iter()
            .map(|list| list.split(' ').map(str::to_owned).collect())
            .collect();
        let lists: Vec<&[String]> = lists.iter().map(Vec::as_slice).collect();
        in_one_order(source, &lists).join(" ")
    }

    #[test]
    fn lists_of_one_source_keep_their_order_where_they_agree() {
        let rows: &[(&[&str], &str)] = &[
            (&["a b"], "a b"),
            (&["b c", "a b"], "a b c"),
            // Two lists without a common mirror: the free ones in byte order, in turn.
            (&["z y", "a b"], "a z b y"),
            (&["a s"], "a"),
            (&["s a"], "s a"),
            (&["a s b"], "a s b"),
            (&["a b c", "b a"], "a b c"),
            (&["z b c y", "c b x", "a s z"], "a b c x y s z"),
            (&["a a b"], "a b"),
        ];
        for (lists, expected) in rows {
            assert_eq!(order("s", lists), *expected, "{lists:?}");
        }
    }
}
