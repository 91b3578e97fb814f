//! The words of a value in a unit file.

/// Returns true for a blank, as systemd strips them.
pub(super) fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// The effect of a backslash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backslash {
    /// It is an ordinary character.
    Ordinary,
    /// It is kept together with the next character, which then neither opens nor closes quotes.
    KeepsNext,
}

/// Returns the words, with grouping quotes removed, and true if every quote is closed. If one is not, the words before it are
/// returned.
pub(super) fn quoted_words(value: &str, backslash: Backslash) -> (Vec<String>, bool) {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match quote {
            _ if c == '\\' && backslash == Backslash::KeepsNext => {
                let word = word.get_or_insert_default();
                word.push(c);
                word.extend(chars.next());
            }
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if matches!(c, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if is_blank(c) => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.filter(|_| quote.is_none()));
    (words, quote.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_counts_in_command_lines_only() {
        let value = r#"a\" b 'c d' "" e"#;
        let of =
            |words: &[&str]| -> Vec<String> { words.iter().map(|one| (*one).into()).collect() };
        let kept = (of(&[r#"a\""#, "b", "c d", "", "e"]), true);
        assert_eq!(quoted_words(value, Backslash::KeepsNext), kept);
        let value = r#"a\" b 'c d'" e"#;
        let grouped = (of(&[r"a\ b 'c d'", "e"]), true);
        assert_eq!(quoted_words(value, Backslash::Ordinary), grouped);
        assert_eq!(
            quoted_words("a 'b", Backslash::Ordinary),
            (of(&["a"]), false)
        );
    }
}
