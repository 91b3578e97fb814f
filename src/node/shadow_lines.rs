//! Lines of `shadow(5)`: checks whether a line is intact, and repairs a broken one.
//!
//! A password field with a line break or a colon breaks its line, so that logins cannot read it.

use std::collections::BTreeSet;

/// Number of fields of a line: name, password, seven more.
const FIELDS: usize = 9;
/// Number of fields in the oldest form, which is still accepted.
const FIELDS_OF_OLD: usize = 5;
/// A password field that no password matches.
const LOCKED: &str = "*";

/// Returns true if the system accepts a line as an entry; given without its line break.
pub fn is_whole(line: &str) -> bool {
    let fields: Vec<&str> = line.split(':').collect();
    let number = |field: &&str| field.is_empty() || field.parse::<i64>().is_ok();
    let right_count = [FIELDS, FIELDS_OF_OLD].contains(&fields.len());
    right_count && !name_of(line).is_empty() && fields.iter().skip(2).all(number)
}

/// Returns the text with one intact line for `user`, whose password is locked if it had none; `None` if no line of the user is
/// broken. `is_known` returns true for accounts in `passwd`.
pub fn mend_shadow_lines(
    text: &str,
    user: &str,
    is_known: &dyn Fn(&str) -> bool,
) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let is_of_user = |line: &&str| !user.is_empty() && name_of(line) == user;
    let mut of_user = lines.iter().filter(|line| is_of_user(line));
    if of_user.all(|line| is_whole(line)) {
        return None;
    }
    let mut has_line = lines.iter().any(|line| is_of_user(line) && is_whole(line));
    let (mut seen, mut kept) = (BTreeSet::new(), Vec::new());
    let mut rest = lines.as_slice();
    while let Some((line, behind)) = rest.split_first() {
        rest = behind;
        if !is_of_user(line) || is_whole(line) {
            seen.insert(name_of(line));
            kept.push((*line).to_owned());
            continue;
        }
        let is_next = |line: &str| {
            let other = name_of(line);
            is_whole(line) && (other == user || is_known(other) && !seen.contains(other))
        };
        let pieces = line_pieces(line, behind, &is_next);
        rest = behind.get(pieces.len() - 1..).unwrap_or_default();
        if !has_line {
            kept.push(rebuild_line(user, &pieces.concat()));
            has_line = true;
        }
    }
    Some(kept.iter().map(|line| format!("{line}\n")).collect())
}

/// Returns a broken line together with its parts on the following lines.
fn line_pieces<'t>(
    line: &'t str,
    behind: &[&'t str],
    is_next: &dyn Fn(&str) -> bool,
) -> Vec<&'t str> {
    let mut pieces = vec![line];
    let mut colons = line.matches(':').count();
    let mut behind = behind.iter().take_while(|line| !is_next(line));
    while colons < FIELDS - 1
        && let Some(piece) = behind.next()
    {
        colons += piece.matches(':').count();
        pieces.push(piece);
    }
    pieces
}

/// Returns an intact line, with the day fields of the broken one if they are readable.
fn rebuild_line(user: &str, joined: &str) -> String {
    let fields: Vec<&str> = joined.split(':').collect();
    let days = fields.len().checked_sub(FIELDS - 2).filter(|at| *at >= 2);
    let days = days.and_then(|at| fields.get(at..)).unwrap_or_default();
    let line = format!("{user}:{LOCKED}:{}", days.join(":"));
    if is_whole(&line) {
        line
    } else {
        format!("{user}:{LOCKED}:::::::")
    }
}

fn name_of(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::node::shadow_lines::*;
    use proptest::prelude::*;

    fn known(name: &str) -> bool {
        ["root", "core", "last"].contains(&name)
    }

    #[test]
    fn the_system_reads_nine_fields_or_five() {
        for line in ["a:*:19000:0:99999:7:::", "a:*:::::::", "a::1:2:3"] {
            assert!(is_whole(line), "{line}");
        }
        for line in [
            "",
            "a",
            "a:*",
            "a:*:19000:",
            "a:$6$x:y:19000:0:99999:7:::",
            "a:*:x:0:99999:7:::",
            ":*:19000:0:99999:7:::",
        ] {
            assert!(!is_whole(line), "{line}");
        }
    }

    #[test]
    fn a_text_without_a_broken_line_of_the_user_is_left() {
        for text in ["", "core:*:1::::::\n", "x:broken\ncore:*:1::::::", "x:y\n"] {
            assert_eq!(mend_shadow_lines(text, "core", &known), None, "{text}");
        }
        assert_eq!(mend_shadow_lines(":x\n", "", &known), None);
    }

    #[test]
    fn what_is_left_of_a_line_without_its_days_gets_none() {
        let mended = mend_shadow_lines("core:$6$x\nlast:*:1::::::\n", "core", &known);
        assert_eq!(mended.as_deref(), Some("core:*:::::::\nlast:*:1::::::\n"));
    }

    proptest! {
        /// Whatever was in the password, the line is intact afterwards and all others are unchanged.
        #[test]
        fn any_password_is_taken_out_of_its_line(password in "[a:\n\r$!xor0 ]{0,12}|[^\0]{0,12}") {
            let (head, tail) = ("root:!:1::::::\n", "last:*:2::::::\n");
            let broken = format!("{head}core:{password}:19000:0:99999:7:::\n{tail}");
            let whole = format!("{head}core:*:19000:0:99999:7:::\n{tail}");
            let lines: Vec<&str> = broken.lines().collect();
            // A value that is an intact line itself is left in place.
            prop_assume!(!lines.iter().any(|line| name_of(line) == "core" && is_whole(line)));
            let mended = mend_shadow_lines(&broken, "core", &known);
            prop_assert_eq!(mended.as_deref(), Some(whole.as_str()));
        }

        #[test]
        fn mending_is_done_once(text in "([a-c]|core|root)(:[x0-9]{0,3}){0,9}\n{0,3}([a-c:0-9]{0,9}\n){0,4}") {
            if let Some(text) = mend_shadow_lines(&text, "core", &known) {
                prop_assert_eq!(super::mend_shadow_lines(&text, "core", &known), None);
                let of_core = |line: &&str| name_of(line) == "core";
                prop_assert_eq!(text.lines().filter(of_core).count(), 1);
            }
        }
    }
}
