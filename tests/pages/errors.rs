//! `man --errors`: the known messages of other programs on one page, to search.

use std::fs;
use std::process::{Command, Stdio};

use mco_rescue::diagnose::doctor::checks::CHECKS;
use mco_rescue::diagnose::doctor::messages::{MESSAGES, MessageSource, checks_of_cause};
use mco_rescue::node::command::rpm_ostree::cause::{PHRASES, cause_of_phrase};

use super::browser::{DESK, PHONE, shown, shown_after};
use crate::support::{PROGRAM, Run};

/// The page of the manual with the same table.
const MANUAL: &str = "docs/reference/messages.md";

fn page() -> String {
    let mut command = Command::new(PROGRAM);
    let command = command.args(["man", "--errors"]).stdin(Stdio::null());
    Run::of(command.output().unwrap()).exits(0).out()
}

/// A text as the page spells it.
fn escaped(text: &str) -> String {
    let text = text.trim().replace('&', "&amp;").replace('<', "&lt;");
    let text = text.replace('>', "&gt;").replace('"', "&quot;");
    text.replace('\'', "&#39;")
}

#[test]
fn every_pattern_of_the_checks_is_on_the_page_with_its_check_and_command() {
    let page = page();
    for message in MESSAGES {
        let words = format!("<code>{}</code>", escaped(message.words));
        let card = page.split("<article").find(|card| card.contains(&words));
        let card = card.unwrap_or_else(|| panic!("no {words}"));
        assert!(card.contains(&escaped(message.next)), "{card}");
        for id in message.checks {
            let check = CHECKS.iter().find(|check| check.id == *id).unwrap();
            assert!(
                card.contains(&format!("<b>{id}</b> {}", escaped(check.title))),
                "{card}"
            );
        }
    }
    for phrase in PHRASES {
        let words = format!("<code>{}</code>", escaped(phrase));
        assert!(page.contains(&words), "no {words}");
    }
    for check in CHECKS {
        assert!(
            page.contains(&format!("mco-rescue doctor {}<", check.id)),
            "{}",
            check.id
        );
    }
    // The page repeats no command of the run that made it.
    assert!(!page.contains("man --errors"), "{page}");
}

/// What a check predicts another program to say comes from the table.
#[test]
fn no_check_has_a_message_of_its_own() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir("src/diagnose/doctor/checks").unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let flat = code.split_whitespace().collect::<Vec<_>>().join(" ");
        for call in flat
            .split(".daemon(")
            .skip(1)
            .chain(flat.split("says(evidence,").skip(1))
        {
            // The argument ends where its parenthesis does.
            let mut depth = 1;
            let argument = call.find(|c: char| {
                depth += i32::from(c == '(') - i32::from(c == ')');
                depth == 0
            });
            let argument = &call[..argument.unwrap_or(0)];
            let own = argument.split('"').skip(1).step_by(2);
            // Names of annotations, and the parts between two messages, are no words of their own.
            let own = own.filter(|words| words.replace("{}", "").trim().len() > 12);
            let own = own.filter(|words| !words.starts_with("{PREFIX}") && *words != "64k-pages");
            wrong.extend(own.map(|words| format!("{}: {words}", path.display())));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn the_page_may_run_its_own_script_and_nothing_else() {
    let page = page();
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(
        page.contains("default-src 'none'; style-src 'sha256-"),
        "{page}"
    );
    assert!(page.contains("; script-src 'sha256-"), "{page}");
    for word in [
        "unsafe", "<img", "<iframe", "<link", "<form", " src=", " onclick", "http://", "https://",
    ] {
        assert!(!page.contains(word), "{word}");
    }
}

#[test]
fn a_browser_searches_the_page_and_sends_nothing() {
    let page = page();
    for width in [PHONE, DESK] {
        let Some(seen) = shown(&page, width) else {
            return;
        };
        assert_eq!(
            (seen.console, seen.active, seen.overflow <= 0),
            (Vec::new(), 1, true)
        );
        assert_eq!(seen.outside, Vec::<String>::new());
        assert!(
            seen.text.contains("wal: snapshot mismatch")
                && seen.text.contains("error enabling units")
        );
    }
    let typed = |words: &str| {
        let script = format!(
            "const i = d.querySelector('input'); i.value = {}; i.dispatchEvent(new Event('input'));",
            serde_json::json!(words)
        );
        shown_after(&page, DESK, &script).unwrap()
    };
    // Words of a message, of a title, and the id of a check.
    let seen = typed("staged deployment extensions");
    assert!(
        seen.text
            .contains("no staged deployment found after applying extensions"),
        "{seen:?}"
    );
    assert!(!seen.text.contains("wal: snapshot mismatch"), "{seen:?}");
    assert!(typed("fp-40").text.contains("wal: snapshot mismatch"));
    // A whole line of a log, with names between.
    let line = "E1129 12:00:00.000 writer.go:226] Marking Degraded due to: \"failed to drain node: worker-0 after 1 hour\"";
    let seen = typed(line);
    assert!(seen.text.contains("failed to drain node"), "{seen:?}");
    assert!(!seen.text.contains("wal: snapshot mismatch"), "{seen:?}");
    assert_eq!(seen.console, Vec::<String>::new());
    let seen = typed("no such words anywhere");
    assert!(seen.text.contains("Nothing fits"), "{seen:?}");
    // Without the script all of it is there, and no field that does nothing.
    let (before, rest) = page.split_once("<script>").unwrap();
    let plain = format!("{before}{}", rest.split_once("</script>").unwrap().1);
    let seen = shown(&plain, PHONE).unwrap();
    seen.is_well();
    seen.says(&["wal: snapshot mismatch", "error enabling units"]);
    assert!(!seen.text.contains("Search, or paste"), "{seen:?}");
}

/// The same table, for a reader of the manual.
fn table() -> String {
    let mut text = "# Messages of other programs\n\n\
        Find the words of your log, and run the command. `...` is where a name is. The same is one page for a browser, with a search, that needs no\n\
        network: `/usr/share/doc/mco-rescue/errors.html`, or `mco-rescue man --errors >errors.html`. This page is generated from the program.\n"
        .to_owned();
    let row = |words: &str, checks: &[&str], next: &str| {
        let checks = checks.iter().map(|id| format!("[{id}](../doctor/{id}.md)"));
        let checks: Vec<String> = checks.collect();
        let next = match next {
            "" => String::new(),
            next => format!("`{next}`"),
        };
        // A line of a table has no bars, and quotes its own quotes.
        let quote = if words.contains('`') { "``" } else { "`" };
        let words = words.trim().replace('|', "\\|");
        format!(
            "| {quote}{words}{quote} | {} | {next} |\n",
            checks.join(", ")
        )
    };
    for source in MessageSource::ALL {
        text += &format!(
            "\n## {}\n\n| message | checks | command |\n|---|---|---|\n",
            source.title()
        );
        for one in MESSAGES.iter().filter(|one| one.source == source) {
            text += &row(one.words, one.checks, one.next);
        }
        if source == MessageSource::Ostree {
            for phrase in PHRASES {
                let kind = cause_of_phrase(phrase).kind();
                text += &row(phrase, checks_of_cause(kind), "");
            }
        }
    }
    text
}

#[test]
fn the_table_of_the_manual_is_that_of_the_program() {
    let text = table();
    if std::env::var_os("MCO_RESCUE_WRITE_DOCS").is_some() {
        fs::write(MANUAL, &text).unwrap();
    }
    let is = fs::read_to_string(MANUAL).unwrap();
    assert!(
        is == text,
        "MCO_RESCUE_WRITE_DOCS=1 cargo test --test main pages::errors writes {MANUAL}"
    );
}
