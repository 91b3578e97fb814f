//! Words of a line, and patterns.

/// Splits a line into its keyword and the rest, like `strdelim`: at blanks, or at one `=`. Returns `None` for a comment or an
/// empty line.
pub(super) fn split_keyword(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_matches(is_blank);
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    if let Some((keyword, rest)) = line.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
        return Some((keyword, after_delimiter(rest)));
    }
    let end = line.find(|c: char| is_blank(c) || c == '=');
    let (keyword, rest) = line.split_at(end.unwrap_or(line.len()));
    Some((keyword, after_delimiter(rest)))
}

fn after_delimiter(rest: &str) -> &str {
    let rest = rest.trim_start_matches(is_blank);
    let rest = rest.strip_prefix('=').unwrap_or(rest);
    rest.trim_start_matches(is_blank)
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{c}')
}

/// Splits arguments at blanks, with quotes and backslashes; a word that begins with `#` ends them. Returns `None` if a quote is
/// not closed.
pub(super) fn split_arguments(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        match chars.peek() {
            None | Some('#') => return Some(words),
            Some(_) => words.push(next_word(&mut chars)?),
        }
    }
}

fn next_word(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut word = String::new();
    let mut quote: Option<char> = None;
    while let Some(c) = chars.next_if(|c| quote.is_some() || !matches!(c, ' ' | '\t')) {
        let is_escaped =
            |next: &char| matches!(next, '\'' | '"' | '\\') || (quote.is_none() && *next == ' ');
        match (c, quote) {
            ('\\', _) => word.push(chars.next_if(is_escaped).unwrap_or('\\')),
            ('"' | '\'', None) => quote = Some(c),
            (_, Some(open)) if c == open => quote = None,
            _ => word.push(c),
        }
    }
    quote.is_none().then_some(word)
}

/// Returns true if a text matches a pattern with `*` and `?`.
pub fn matches_pattern(text: &str, pattern: &str) -> bool {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (mut at, mut of, mut star) = (0, 0, None);
    while at < text.len() {
        match pattern.get(of) {
            Some(b'*') => {
                star = Some((of, at));
                of += 1;
            }
            Some(b'?') => (at, of) = (at + 1, of + 1),
            Some(letter) if text.get(at) == Some(letter) => (at, of) = (at + 1, of + 1),
            _ => match star {
                Some((place, from)) => {
                    star = Some((place, from + 1));
                    (at, of) = (from + 1, place + 1);
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(of).all(|letter| *letter == b'*')
}

/// Returns true if a text matches a comma-separated list of patterns: at least one of them, and none that is negated with `!`.
pub(super) fn matches_list(text: &str, list: &str) -> bool {
    let mut found = false;
    for pattern in list.split(',') {
        match pattern.strip_prefix('!') {
            Some(pattern) if matches_pattern(text, pattern) => return false,
            Some(_) => {}
            None => found = found || matches_pattern(text, pattern),
        }
    }
    found
}

/// Returns true if one of several texts matches a list of patterns, and none of them matches a negated one.
pub(super) fn any_matches_list(texts: &[String], list: &str) -> bool {
    let denied = |text: &String| {
        let mut denied = list
            .split(',')
            .filter_map(|pattern| pattern.strip_prefix('!'));
        denied.any(|pattern| matches_pattern(text, pattern))
    };
    !texts.iter().any(denied) && texts.iter().any(|text| matches_list(text, list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_sshd() {
        for (line, wanted) in [
            ("", None),
            ("  # Port 22", None),
            ("Port 22", Some(("Port", "22"))),
            (" Port=22 ", Some(("Port", "22"))),
            ("Port = 22", Some(("Port", "22"))),
            ("\"Port\" 22", Some(("Port", "22"))),
            ("Port", Some(("Port", ""))),
        ] {
            assert_eq!(split_keyword(line), wanted, "{line:?}");
        }
        let words = |text: &str| split_arguments(text).map(|words| words.join("|"));
        assert_eq!(words("a  \"b c\" # d").as_deref(), Some("a|b c"));
        assert_eq!(words(r"a\ b c'd e'#f").as_deref(), Some("a b|cd e#f"));
        assert_eq!(words("\"a"), None);
    }

    #[test]
    fn patterns_and_lists_are_those_of_sshd() {
        for (text, pattern, is) in [
            ("core", "core", true),
            ("core", "c*", true),
            ("core", "*e", true),
            ("core", "c?re", true),
            ("core", "cor", false),
            ("core", "*x*", false),
            ("", "*", true),
        ] {
            assert_eq!(matches_pattern(text, pattern), is, "{text} {pattern}");
        }
        assert!(matches_list("core", "root,c*"));
        assert!(!matches_list("core", "*,!core"));
        assert!(!matches_list("core", "!root"));
        let groups = ["core".to_owned(), "wheel".to_owned()];
        assert!(any_matches_list(&groups, "wheel"));
        assert!(!any_matches_list(&groups, "core,!wheel"));
    }
}
