//! Kernel arguments, and words of sentences that quote them.

use std::borrow::Cow;
use std::ops::Range;

use super::names::NameKind;
use super::values::is_secret_value;
use super::{Secret, marks, names, replace_secrets, secret_placeholder, url};
use crate::base::kargs::Kargs;

/// Arguments and settings whose value is `NAME:SECRET`.
const CREDENTIALS: [&str; 5] = [
    "systemd.set_credential",
    "systemd.set_credential_binary",
    "SetCredential",
    "SetCredentialEncrypted",
    "set-credential",
];

/// Returns true if the value of a kernel argument is or contains a secret.
pub fn has_secret_argument(argument: &str) -> bool {
    !find_secrets(argument).is_empty()
}

/// Returns true if the name is that of an argument or variable whose value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    names::kind_of(name).is_some()
}

/// Returns a kernel argument with a secret value replaced; its name is unchanged.
pub fn redacted_argument<'a>(argument: &'a str, shown: &dyn Fn(&str) -> String) -> Cow<'a, str> {
    replace_secrets(argument, find_secrets(argument), shown)
}

/// Returns a kernel argument with a secret value replaced by its size.
pub fn shown_argument(argument: &str) -> Cow<'_, str> {
    redacted_argument(argument, &|secret| secret_placeholder(secret.len()))
}

/// Returns kernel arguments with secret values replaced by their sizes.
pub fn shown_arguments(arguments: &[String]) -> Vec<Cow<'_, str>> {
    arguments.iter().map(|one| shown_argument(one)).collect()
}

/// Returns a kernel command line with secret values replaced by their sizes.
pub fn redacted_arguments(line: &str) -> String {
    let kargs = Kargs::parse(line);
    let shown = kargs.tokens().iter().map(|token| shown_argument(token));
    shown.collect::<Vec<_>>().join(" ")
}

/// Returns sentences, or a program's output, with words such as `password=...`, logins in addresses, and anything that only a
/// secret looks like hidden. Words about secrets are kept.
pub fn redacted_words(text: &str) -> Cow<'_, str> {
    let mut all = Vec::new();
    marks::find_blocks(text, &mut all);
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let mut found = Vec::new();
        marks::find_marks(line, start, &mut found);
        all.extend(found);
        all.extend(url::find_logins(line).map(|login| Secret {
            at: start + login.start..start + login.end,
            why: marks::WHY_LOGIN,
        }));
        let mut from = 0;
        while let Some(equals) = line.get(from..).and_then(|rest| rest.find('=')) {
            let equals = from + equals;
            if let Some(secret) = of_assignment(line, equals) {
                all.push(Secret {
                    at: start + secret.start..start + secret.end,
                    why: WHY,
                });
            }
            from = equals + 1;
        }
        start += line.len();
    }
    replace_secrets(text, marks::in_order(all), &|secret| {
        secret_placeholder(secret.len())
    })
}

const WHY: &str = "it has a setting that looks like a password";

/// Returns the secret value of the word with an equals sign at this position.
fn of_assignment(line: &str, equals: usize) -> Option<Range<usize>> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let before = line.get(..equals)?;
    let name = before.trim_end_matches(is_name).len();
    let opens = before.get(..name)?.chars().next_back();
    let rest = line.get(equals + 1..)?;
    let is_quote = |c: &char| "\"'`".contains(*c);
    let is_escaped = before.get(..name)?.ends_with("\\\"");
    let end = match (rest.chars().next().filter(is_quote), opens.filter(is_quote)) {
        _ if rest.starts_with("\\\"") => 2 + rest.get(2..)?.find("\\\"")?,
        (Some(quote), _) => 1 + rest.get(1..)?.find(quote)?,
        (None, Some(_)) if is_escaped => rest.find(['\\', '"', '\n']).unwrap_or(rest.len()),
        (None, Some(quote)) => find_unescaped(rest, quote),
        (None, None) => rest
            .find(|c: char| c.is_whitespace() || "\"'`,;)]}\\".contains(c))
            .unwrap_or(rest.len()),
    };
    let word = line.get(name..equals + 1 + end)?;
    let found = of_token(word, false).or_else(|| of_scheme(word))?;
    Some(name + found.start..name + found.end)
}

/// Returns where a quoted text or the line ends; in a document, quotes inside a text are escaped.
fn find_unescaped(rest: &str, quote: char) -> usize {
    let mut before = ' ';
    for (at, c) in rest.char_indices() {
        if c == '\n' || c == quote && before != '\\' {
            return at;
        }
        before = if before == '\\' { ' ' } else { c };
    }
    rest.len()
}

/// Returns the secrets of one kernel argument.
pub(super) fn find_secrets(argument: &str) -> Vec<Secret> {
    let mut all: Vec<Secret> = Vec::new();
    marks::find_marks(argument, 0, &mut all);
    let logins = url::find_logins(argument).map(|at| Secret {
        at,
        why: marks::WHY_LOGIN,
    });
    all.extend(logins);
    let found = of_scheme(argument)
        .into_iter()
        .chain(of_token(argument, true));
    all.extend(found.map(|at| Secret { at, why: WHY }));
    // Any part of a query may be a token.
    if let Some(address) = argument.find("://")
        && let Some(query) = argument.get(address..).and_then(|rest| rest.find('?'))
    {
        let start = address + query + 1;
        let end = argument.trim_end_matches('"').len();
        if argument
            .get(start..end)
            .is_some_and(|query| !query.is_empty() && query != "...")
        {
            all.push(Secret {
                at: start..end,
                why: marks::WHY_LOGIN,
            });
        }
    }
    marks::in_order(all)
}

/// Returns the secret value of `NAME=VALUE`. For a kernel argument, any value of a key is one.
fn of_token(argument: &str, is_argument: bool) -> Option<Range<usize>> {
    let (name, _) = argument.split_once('=')?;
    let start = name.len() + 1;
    let name = name.trim_start_matches(['"', '\'']).trim_start_matches('-');
    let value = argument.get(start..)?;
    let is_quote = ['"', '\'', '\\'];
    let opened = value.len() - value.trim_start_matches(is_quote).len();
    let value = value.trim_matches(is_quote);
    let start = start + opened;
    if CREDENTIALS.contains(&name) {
        return of_credential(value).map(|at| start + at.start..start + at.end);
    }
    // An option of rpm-ostree: `--append=password=...`.
    if argument.starts_with("--") && names::kind_of(name).is_none() {
        let inner = of_token(value, is_argument)?;
        return Some(start + inner.start..start + inner.end);
    }
    let kind = match names::kind_of(name)? {
        NameKind::Random if is_argument => NameKind::Secret,
        kind => kind,
    };
    is_secret_value(kind, value, false).then_some(start..start + value.len())
}

/// Returns the login of `iscsi:user:word@server`, which has no slashes.
pub(super) fn of_scheme(argument: &str) -> Option<Range<usize>> {
    let at = argument.find("iscsi:")?;
    let start = at + "iscsi:".len();
    let rest = argument.get(start..)?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let login = rest.get(..end)?.rfind('@')?;
    let words = rest.get(..login)?;
    let is_address = words.starts_with("//");
    (!is_address && words.contains(':') && !words.starts_with("(secret"))
        .then_some(start..start + login)
}

/// Returns the secret of `NAME:SECRET`.
pub(super) fn of_credential(value: &str) -> Option<Range<usize>> {
    let start = value.find(':')? + 1;
    let secret = value.get(start..)?;
    (!secret.is_empty() && !secret.starts_with("(secret")).then_some(start..value.len())
}

/// Returns true for the name of a setting whose value is `NAME:SECRET`.
pub(super) fn is_credential(name: &str) -> bool {
    CREDENTIALS.contains(&name)
}
