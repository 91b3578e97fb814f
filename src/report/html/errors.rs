//! `man --errors`: the known messages of other programs, with the check that explains each and the command that leads out.
//!
//! Made of the tables that the program itself judges by. The page works without its script, which only searches.

use super::{Html, page_with_script};
use crate::base::invocation::{advise_doctor, set_commands_apart, whole_command};
use crate::diagnose::doctor::checks::CHECKS;
use crate::diagnose::doctor::messages::{KnownMessage, MESSAGES, MessageSource, checks_of_cause};
use crate::node::command::rpm_ostree::cause::{PHRASES, RpmOstreeError, cause_of_phrase};

/// The search: filters the messages as one types or pastes.
const SCRIPT: &str = include_str!("errors.js");

/// Returns the page.
pub fn to_html() -> String {
    let mut html = Html::default();
    html.open("header", "");
    html.line("h1", "", "Errors of a node, and the way out");
    html.line(
        "p",
        "soft",
        &format!("mco-rescue {}", env!("CARGO_PKG_VERSION")),
    );
    html.line(
        "p",
        "",
        "Messages of the Machine Config Daemon and of other programs on a node. Each has the check of mco-rescue doctor that \
         explains it, and the command to begin with. In a message, ... is where a name is.",
    );
    html.out.push_str(
        "<p class=\"search\" hidden><label>Search, or paste a line of a log: <input type=\"search\" autofocus></label> \
         <output class=\"soft\"></output></p>\n",
    );
    let mut links: Vec<(&str, &str)> = MessageSource::ALL
        .iter()
        .map(|source| (anchor(*source), source.title()))
        .collect();
    links.push(("checks", "All checks"));
    html.links(&links);
    html.end("header");
    html.open("main", "");
    html.out.push('\n');
    for source in MessageSource::ALL {
        html.open("section", "");
        html.heading(anchor(source), source.title());
        messages(&mut html, source);
        if source == MessageSource::Ostree {
            causes(&mut html);
        }
        html.end("section");
    }
    checks(&mut html);

    html.end("main");
    html.open("footer", "");
    html.line(
        "p",
        "",
        "This page loads nothing and sends nothing. Its script only searches; without it the search of the browser does.",
    );
    html.end("footer");
    page_with_script("Errors \u{2013} mco-rescue", "", html, SCRIPT)
}

fn checks(html: &mut Html) {
    html.open("section", "");
    html.heading("checks", "All checks");
    for check in CHECKS {
        let command = format!("mco-rescue doctor {}", check.id);
        let looks_at = format!("Looks at {}.", check.looks_at);
        card(html, &[], &[check.id], Some(&looks_at), vec![command]);
    }
    html.end("section");
}

fn anchor(source: MessageSource) -> &'static str {
    match source {
        MessageSource::Daemon => "daemon",
        MessageSource::Ignition => "ignition",
        MessageSource::Ostree => "ostree",
        MessageSource::Kubelet => "kubelet",
        MessageSource::Runtime => "runtime",
        MessageSource::Etcd => "etcd",
        MessageSource::Services => "services",
    }
}

/// Adds the messages of a program: those with the same checks and the same command together.
fn messages(html: &mut Html, source: MessageSource) {
    let mut all: Vec<(&KnownMessage, Vec<&str>)> = Vec::new();
    for message in MESSAGES.iter().filter(|one| one.source == source) {
        let is_same = |one: &KnownMessage| (one.checks, one.next) == (message.checks, message.next);
        match all.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, words)) => words.push(message.words),
            None => all.push((message, vec![message.words])),
        }
    }
    for (message, words) in all {
        let next = vec![message.next.to_owned()];
        card(html, &words, message.checks, None, next);
    }
}

/// Adds the causes that a run recognises in the output of rpm-ostree, each with its phrases.
fn causes(html: &mut Html) {
    let mut all: Vec<(RpmOstreeError, Vec<&str>)> = Vec::new();
    for phrase in PHRASES {
        let cause = cause_of_phrase(phrase);
        match all
            .iter_mut()
            .find(|(known, _)| known.kind() == cause.kind())
        {
            Some((_, phrases)) => phrases.push(phrase),
            None => all.push((cause, vec![phrase])),
        }
    }
    for (cause, phrases) in all {
        let checks = checks_of_cause(cause.kind());
        // On this page no run failed, which could be repeated.
        let next = cause
            .next_step()
            .replace(&whole_command(), "mco-rescue apply");
        let name = format!("A run of mco-rescue calls it {:?}.", cause.kind());
        card(html, &phrases, checks, Some(&name), steps(&next));
    }
}

/// Adds one entry: messages, checks, a note, and what to do.
fn card(html: &mut Html, words: &[&str], checks: &[&str], note: Option<&str>, next: Vec<String>) {
    html.open("article", "card");
    html.out.push('\n');
    for words in words {
        html.open("p", "").put("code", "", words.trim()).end("p");
    }
    for id in checks {
        let title = CHECKS.iter().find(|check| check.id == *id);
        let title = title.map_or("", |check| check.title);
        html.open("p", "").put("b", "", id).text(" ");
        html.text(title).end("p");
    }
    if let Some(note) = note {
        html.line("p", "soft small", note);
    }
    next.iter().for_each(|step| html.step(step));
    html.end("article");
}

/// Returns the commands of a next step, each alone; an instruction in words stays as it is.
fn steps(next: &str) -> Vec<String> {
    let advice = advise_doctor(next);
    let (words, commands) = set_commands_apart(&advice);
    if commands.is_empty() {
        vec![words.to_owned()]
    } else {
        commands
            .into_iter()
            .map(|line| match line.split_once(": ") {
                Some(("Next" | "then" | "or", command)) => command.to_owned(),
                _ => line,
            })
            .collect()
    }
}
