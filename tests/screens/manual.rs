//! The manual: its links lead somewhere, what it names exists, and the pages of the checks are those of the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use clap::error::ErrorKind;
use mco_rescue::cli::Cli;
use mco_rescue::judge::crossing::checks::ALL;
use serde_json::Value;

use crate::support::PROGRAM;

/// With this variable the pages of the checks are written, and not compared.
const WRITE: &str = "MCO_RESCUE_WRITE_DOCS";

/// The page that leads from a symptom to a check.
const SYMPTOMS: &str = "docs/reference/symptoms.md";
/// The page that leads from a message to a check.
const MESSAGES: &str = "docs/reference/messages.md";

fn output(args: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// README and everything below docs.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md")];
    let mut directories = vec![PathBuf::from("docs")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The text without its blocks of code.
fn prose(page: &str) -> String {
    let mut code = false;
    let mut prose = String::new();
    for line in page.lines() {
        if line.starts_with("```") {
            code = !code;
        } else if !code && !line.starts_with("    ") {
            prose += line;
            prose.push('\n');
        }
    }
    prose
}

/// The targets of `[text](target)`.
fn links(prose: &str) -> Vec<String> {
    prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned())
        .collect()
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().to_lowercase();
    letters
        .chars()
        .filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&prose(&text)) {
            if link.contains("://") {
                continue;
            }
            count += 1;
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap_or(Path::new("")).join(file),
            };
            let Ok(text) = fs::read_to_string(&target).or_else(|_| {
                // A directory is shown by its README.
                fs::read_to_string(target.join("README.md"))
            }) else {
                wrong.push(format!("{}: {link}: no such file", page.display()));
                continue;
            };
            let mut headings = text.lines().filter(|line| line.starts_with('#'));
            if !heading.is_empty() && !headings.any(|line| anchor(line) == heading) {
                wrong.push(format!("{}: {link}: no such heading", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 40, "only {count} links were found");
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let mut reached = BTreeSet::new();
    let mut next = vec![PathBuf::from("README.md")];
    while let Some(page) = next.pop() {
        let page = if page.is_dir() {
            page.join("README.md")
        } else {
            page
        };
        let Ok(text) = fs::read_to_string(&page) else {
            continue;
        };
        let directory = page.parent().unwrap_or(Path::new("")).to_owned();
        if reached.insert(fs::canonicalize(&page).unwrap()) {
            let targets = links(&prose(&text)).into_iter();
            let targets = targets.map(|link| link.split('#').next().unwrap_or_default().to_owned());
            next.extend(
                targets
                    .filter(|target| !target.is_empty())
                    .map(|target| directory.join(target)),
            );
        }
    }
    let all: BTreeSet<PathBuf> = pages()
        .iter()
        .map(|page| fs::canonicalize(page).unwrap())
        .collect();
    let lost: Vec<_> = all.difference(&reached).collect();
    assert!(lost.is_empty(), "no link leads to {lost:?}");
}

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string("README.md").unwrap();
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    assert!(
        lines <= 200,
        "README.md has {lines} lines; docs/ is for the rest"
    );
    assert!(
        words <= 1_200,
        "README.md has {words} words; docs/ is for the rest"
    );
}

/// What `make demo` prints, whole, with the program under test.
fn demo() -> String {
    let output = Command::new("examples/demo.sh")
        .env("BINARY", PROGRAM)
        .env("DEMO_LINES", "1000")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_pages_and_the_picture_show_what_the_demo_prints() {
    let demo = demo();
    let mut count = 0;
    for page in ["README.md", "docs/tutorial/first-repair.md"] {
        let text = fs::read_to_string(page).unwrap();
        for block in text
            .split("\n```\n")
            .filter(|block| block.starts_with("$ "))
        {
            // What is cut off is an ellipsis; the rest comes in this order.
            let mut rest = demo.as_str();
            for line in block.lines().filter(|line| *line != "...") {
                count += 1;
                let at = rest.find(line);
                rest = at
                    .and_then(|at| rest.get(at + line.len()..))
                    .unwrap_or_else(|| {
                        panic!("{page}: make demo does not print, in this order: {line}")
                    });
            }
        }
    }
    assert!(count > 40, "only {count} lines were found");
    // Times and sizes of a run differ, and what it says of them.
    let picture = fs::read_to_string("docs/demo.svg").unwrap();
    for said in [
        "WARNING FP-03",
        "content mismatch for file",
        "Applied rendered-worker",
        "Clean: ",
    ] {
        assert!(demo.contains(said) && picture.contains(said), "{said}");
    }
}

/// Places in the manual that comments name: `docs/develop/agreement.md: Units, Packages`.
fn cited(text: &str) -> Vec<(String, Vec<String>)> {
    // A comment goes on in the next line.
    let lines = text.lines().map(|line| {
        line.trim_start()
            .trim_start_matches("//")
            .trim_start_matches(['/', '!'])
    });
    let text = lines.collect::<Vec<_>>().join(" ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let places = text.split("docs/").skip(1).filter_map(|rest| {
        let (page, rest) = rest.split_once(".md")?;
        let page = page
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-/".contains(letter))
            .then_some(page)?;
        let headings = rest
            .strip_prefix(": ")
            .and_then(|rest| rest.split([')', ';', '.']).next());
        let headings = headings
            .unwrap_or_default()
            .split(", ")
            .filter(|heading| !heading.is_empty());
        Some((
            format!("docs/{page}.md"),
            headings.map(str::to_owned).collect(),
        ))
    });
    places.collect()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_place_of_the_manual_that_code_cites_is_there() {
    let mut all = Vec::new();
    for directory in ["src", "tests", "vm-tests"] {
        sources(Path::new(directory), &mut all);
    }
    let mut count = 0;
    let mut wrong = Vec::new();
    for source in all.iter().filter(|path| !path.ends_with("manual.rs")) {
        for (page, headings) in cited(&fs::read_to_string(source).unwrap()) {
            count += 1;
            let text = fs::read_to_string(&page).unwrap_or_default();
            let is_there = |heading: &String| {
                text.lines().any(|line| {
                    line.trim_start_matches('#').trim() == heading && line.starts_with('#')
                })
            };
            if text.is_empty() || !headings.iter().all(is_there) {
                wrong.push(format!("{}: {page}: {headings:?}", source.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 80, "only {count} were found");
}

/// Directories of the repository whose files the manual names.
const TREES: [&str; 7] = [
    "src/",
    "tests/",
    "vm-tests/",
    "benches/",
    "systemd/",
    "dracut/50",
    "examples/",
];

#[test]
fn every_file_of_the_repository_that_the_manual_names_is_there() {
    let mut count = 0;
    let mut wrong = Vec::new();
    let mut all = pages();
    all.extend(["CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from));
    for page in all {
        let text = prose(&fs::read_to_string(&page).unwrap());
        for quoted in text.split('`').skip(1).step_by(2) {
            let is_path = TREES.iter().any(|tree| quoted.starts_with(tree));
            // `src/diagnose/doctor/checks/fp_NN_name.rs` stands for any.
            if !is_path || quoted.contains([' ', '*']) || quoted.contains("NN") {
                continue;
            }
            count += 1;
            if !Path::new(quoted).exists() {
                wrong.push(format!("{}: {quoted}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 25, "only {count} were found");
}

/// Options in backticks, such as `--root DIR`.
fn named_options(prose: &str) -> BTreeSet<String> {
    let quoted = prose.split('`').skip(1).step_by(2);
    let words = quoted.flat_map(|quoted| {
        // Options of other programs stand behind their names.
        let foreign = quoted
            .split_whitespace()
            .next()
            .is_some_and(|first| !first.starts_with("--") && !is_command(first));
        let words: Vec<&str> = if foreign {
            Vec::new()
        } else {
            quoted.split_whitespace().collect()
        };
        words
    });
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(|word| {
            word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric())
                .split('=')
                .next()
                .unwrap()
                .to_owned()
        })
        .collect()
}

const COMMANDS: [&str; 21] = [
    "rehearse",
    "man",
    "butane",
    "apply",
    "pivot",
    "plan",
    "verify",
    "show",
    "doctor",
    "status",
    "fetch",
    "cache",
    "render",
    "keep",
    "report",
    "confirm",
    "recover",
    "complete",
    "firstboot",
    "install",
    "rollback",
];

fn is_command(word: &str) -> bool {
    word == "mco-rescue" || word == "./mco-rescue" || COMMANDS.contains(&word)
}

#[test]
fn every_option_that_the_manual_names_exists() {
    let mut help = output(&["--help"]);
    for command in COMMANDS {
        help += &output(&[command, "--help"]);
    }
    for what in ["mirror", "kubelet", "runtime", "with"] {
        help += &output(&["change", what, "--help"]);
    }
    help += &output(&["image", "export", "--help"]);
    help += &output(&["capsule", "make", "--help"]);
    help += &output(&["capsule", "verify", "--help"]);
    let known: BTreeSet<&str> = help
        .split(|letter: char| letter.is_whitespace() || "=,[].`'()".contains(letter))
        .filter(|word| word.starts_with("--"))
        .collect();
    let mut count = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for option in named_options(&prose(&text)) {
            count += 1;
            assert!(
                known.contains(option.as_str()),
                "{}: {option} is not an option of any command",
                page.display()
            );
        }
    }
    assert!(count > 40, "only {count} options were found");
}

/// The commands of this program in a page's blocks of code, without what stands around them.
fn shown_commands(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut commands = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let code = if fenced {
            line
        } else {
            line.strip_prefix("    ").unwrap_or_default()
        };
        let code = code.trim_start_matches("$ ").trim_start_matches("sudo ");
        let (program, arguments) = code.split_once(' ').unwrap_or_default();
        if program.rsplit('/').next() == Some("mco-rescue") {
            let end = arguments.find([';', '|', '>', '<', '&', '#', '(']);
            commands.push(
                arguments
                    .get(..end.unwrap_or(arguments.len()))
                    .unwrap_or_default()
                    .trim()
                    .to_owned(),
            );
        }
    }
    commands
}

#[test]
fn every_command_that_the_manual_shows_can_be_typed() {
    let mut count = 0;
    for page in pages() {
        for command in shown_commands(&fs::read_to_string(&page).unwrap()) {
            count += 1;
            // Text in quotes is one word; which one does not matter here.
            let parts = command.split('\'').enumerate();
            let parts = parts.map(|(at, part)| if at % 2 == 0 { part } else { "quoted" });
            let unquoted = parts.collect::<String>();
            let words = unquoted.split_whitespace();
            let parsed = Cli::try_parse_from(std::iter::once("mco-rescue").chain(words));
            if let Err(error) = parsed {
                let harmless = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
                assert!(
                    harmless.contains(&error.kind()),
                    "{}: mco-rescue {command}: {error}",
                    page.display()
                );
            }
        }
    }
    assert!(count > 60, "only {count} were found");
}

/// Page of one check, and its row in the table.
fn page_of_check(id: &str) -> (String, String) {
    let check: Value = serde_json::from_str(&output(&["doctor", id, "--output", "json"])).unwrap();
    let text = |key: &str| check.get(key).unwrap().as_str().unwrap().to_owned();
    let (title, looks_at) = (text("title"), text("looks_at"));
    let page = format!(
        "<!-- Written by tests/screens/manual.rs from the check itself: {WRITE}=1 cargo test --test main manual -->\n\n\
         # {id}: {title}\n\n**Checks** {looks_at}.\n\n{}\n",
        text("explanation")
    );
    (
        page,
        format!("| [{id}]({id}.md) | {title} | {looks_at} |\n"),
    )
}

#[test]
fn every_check_of_preflight_has_its_row() {
    let page = fs::read_to_string("docs/reference/crossing.md").unwrap();
    let rows: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(id, _)| id)
        .collect();
    let checks = ALL.iter().map(|check| check.id);
    // What systemd reports about the units is not a check of the image alone.
    let checks: BTreeSet<&str> = checks.chain(["units"]).collect();
    assert_eq!(rows, checks);
}

#[test]
fn the_pages_of_the_checks_are_those_of_the_program() {
    let root = tempfile::tempdir().unwrap();
    for directory in ["etc", "usr"] {
        fs::create_dir(root.path().join(directory)).unwrap();
    }
    let all = Command::new(PROGRAM)
        .args(["doctor", "--output", "json", "--root"])
        .arg(root.path())
        .output()
        .unwrap();
    let all: Value = serde_json::from_slice(&all.stdout).unwrap();
    let checks = all.get("checks").unwrap().as_array().unwrap();
    let ids: Vec<&str> = checks
        .iter()
        .map(|check| check.get("id").unwrap().as_str().unwrap())
        .collect();
    let mut table = format!(
        "<!-- Written by tests/screens/manual.rs from the checks: {WRITE}=1 cargo test --test main manual -->\n\n\
         # The checks of `mco-rescue doctor`\n\n\
         `mco-rescue doctor` reads what the other commands read, and certificates, clock, disk and network configuration. It \
         reports what is wrong, the worst first. It changes nothing, and each command that it starts has a deadline. It uses the \
         network once: it asks the server of the last `fetch` for the time, for at most two seconds, and only on the node itself.\n\n\
         Each finding names its evidence, the message of the daemon that it explains, what it means, and the next commands. The \
         report ends with the worst finding and its next command. `--list` lists the checks, `mco-rescue doctor ID` explains one. \
         `--fix ID` cures a finding that has a line `Fix`, where files alone are the cure ([recovery.md](../how-to/recovery.md)). `--bundle FILE` writes everything into an archive for \
         support, with digests in place of contents. `--until DATE` looks ahead ([Back after months off](../how-to/long-downtime.md)). `--deep` also runs the slow parts, which hash objects and whole databases; without \
         it the report says that they were skipped. The exit code is that of the worst finding: 6 critical, 3 warning, 0 notice or \
         nothing, and 1 where the root holds no system. What could not be read is listed under \"Not checked\", not as healthy; alone it does not change the exit code, except that a user who is not root gets 1. Of a disk in another machine, dates are judged by \
         the clock of that machine.\n\n\
         | check | finds | looks at |\n|---|---|---|\n"
    );
    let directory = Path::new("docs/doctor");
    let mut written = BTreeSet::from([directory.join("README.md")]);
    let mut pages = Vec::new();
    for id in ids {
        let (page, row) = page_of_check(id);
        table += &row;
        let path = directory.join(format!("{id}.md"));
        written.insert(path.clone());
        let index = [SYMPTOMS, MESSAGES].map(|page| fs::read_to_string(page).unwrap());
        let index = index.concat();
        assert!(
            index.contains(&format!("[{id}](")),
            "neither {SYMPTOMS} nor {MESSAGES} has {id}"
        );
        pages.push((path, page));
    }
    pages.push((directory.join("README.md"), table));
    for (path, page) in pages {
        if std::env::var_os(WRITE).is_some() {
            fs::write(&path, &page).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == page,
            "{} is not what the check says: {WRITE}=1 cargo test --test main manual",
            path.display()
        );
    }
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        assert!(written.contains(&path), "{} is of no check", path.display());
    }
}
