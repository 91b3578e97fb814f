//! Every `mco-rescue …` command that is printed can be typed as it stands: it leads to the same root, parses, and names
//! no config that is not there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{PROGRAM, TestRoot, file, kubelet_unit, machine_config, say};
use clap::{CommandFactory, Parser};
use mco_rescue::base::invocation::ON_THE_NODE;
use mco_rescue::cli::Cli;
use serde_json::{Value, json};

/// A root whose name has a blank.
struct Disk {
    _above: TestRoot,
    dir: PathBuf,
}

impl Disk {
    fn new() -> Self {
        let (above, node) = (TestRoot::empty(), TestRoot::new());
        let dir = above.path("my disk");
        let status = Command::new("cp")
            .arg("-a")
            .arg(node.dir())
            .arg(&dir)
            .status();
        assert!(status.unwrap().success());
        Self { _above: above, dir }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Everything that a command says, on one line: the lines of a paragraph are joined.
    fn says(&self, args: &[&str]) -> String {
        let mut command = Command::new(PROGRAM);
        command.arg("--root").arg(&self.dir).args(args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        said.split_whitespace().collect::<Vec<&str>>().join(" ")
    }
}

fn config(name: &str, text: &str) -> Value {
    machine_config(
        name,
        json!({
            "storage": {"files": [
                file("/etc/a.conf", 0o644, text), file("/etc/b.conf", 0o644, text),
            ]},
            "systemd": {"units": [kubelet_unit()]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA"]}]},
        }),
    )
}

/// Commands that look, and those that refuse or do something, the most harmful last.
fn lines(one: &str, other: &str) -> Vec<Vec<String>> {
    let texts = [
        "status",
        "status --for-cluster",
        "verify",
        "plan",
        "doctor",
        "doctor --fix FP-12",
        "doctor --fix FP-33",
        "cache list",
        "show",
        "show /etc/none",
        "plan cached:rendered-worker-none",
        "plan --latest",
        "plan https://a.example/b",
        "apply",
        "pivot",
        "rollback",
        "rollback --forget",
        "fetch --from-media",
        "cache export none",
        "recover --leave /etc/none",
        "recover --give-up",
        "recover",
        "complete",
        "install",
        "install --remove",
        "status --desired rendered-worker-none",
        "status --for-cluster --object none",
    ];
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
    let mut all: Vec<Vec<String>> = texts.iter().map(|text| words(text)).collect();
    for config in [one, other] {
        for verb in ["plan", "verify", "apply", "fetch"] {
            all.push(vec![verb.to_owned(), config.to_owned()]);
        }
    }
    for line in [
        "apply",
        "rollback",
        "recover",
        "install",
        "install --remove",
    ] {
        let mut line = words(line);
        line.push("--yes".to_owned());
        all.push(line);
    }
    all
}

/// Commands that lead to no root: they explain, merge files, or are for the node itself.
const ROOTLESS: [&str; 5] = [
    "doctor FP-",
    "render ",
    "doctor FP-33 and on the node:",
    "install there, which checks the units",
    "doctor FP-04",
];

/// The printed commands, each up to its root; what leads to none is an error.
fn commands(said: &str, root: &Path) -> Result<Vec<Vec<String>>, String> {
    let verbs: BTreeSet<String> = Cli::command()
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    let option = format!(" --root '{}'", root.display());
    let mut all = Vec::new();
    let parts: Vec<&str> = said.split("mco-rescue ").collect();
    for pair in parts.windows(2) {
        let (before, part) = (pair[0], pair[1]);
        let verb = part
            .split(|c: char| !c.is_ascii_lowercase())
            .next()
            .unwrap_or_default();
        let of_the_node = before.ends_with("on the node: ") || before.ends_with(ON_THE_NODE);
        if !verbs.contains(verb)
            || of_the_node
            || ROOTLESS.iter().any(|known| part.starts_with(known))
        {
            continue;
        }
        let Some((arguments, _)) = part.split_once(&option) else {
            return Err(format!("mco-rescue {part}"));
        };
        let mut words = vec!["mco-rescue".to_owned()];
        words.extend(
            arguments
                .split(' ')
                .map(|word| word.replace("HOST:ADDRESS", "h:10.0.0.1")),
        );
        words.extend(["--root".to_owned(), root.display().to_string()]);
        all.push(words);
    }
    Ok(all)
}

/// A config that a command names is there, or stands for one.
fn is_there(word: &str, cached: &str) -> bool {
    let stands_for_one = |word: &str| word.chars().all(|c| c.is_ascii_uppercase());
    match word.strip_prefix("cached:") {
        Some(name) => stands_for_one(name) || cached.contains(name),
        None => stands_for_one(word) || word.starts_with("--") || Path::new(word).exists(),
    }
}

#[test]
fn every_printed_command_can_be_typed_and_leads_to_the_same_root() {
    let scratch = TestRoot::empty();
    let one = scratch.config(&config("rendered-worker-one", "one\n"));
    let two = scratch.config(&config("rendered-worker-two", "two\n"));
    let mut foreign = config("rendered-infra-three", "three\n");
    foreign["spec"]["fips"] = json!(true);
    foreign["spec"]["kernelArguments"] = json!(["a=b"]);
    let foreign = scratch.config(&foreign);
    let mut bare = config("rendered-worker-x", "four\n");
    bare["metadata"] = json!({"name": "99-worker-x"});
    let bare = scratch.config(&bare);
    type Wreck = fn(&Disk);
    let states: [(&str, Wreck); 7] = [
        ("new", |_| ()),
        ("drifted", |disk| {
            disk.write("etc/a.conf", "by hand\n");
            let keyfile = "etc/NetworkManager/system-connections/a.nmconnection";
            disk.write(keyfile, "");
        }),
        ("damaged journal", |disk| {
            disk.write("var/lib/mco-rescue/journal.json", "{")
        }),
        ("damaged record", |disk| {
            disk.write("etc/machine-config-daemon/currentconfig", "{")
        }),
        ("no kubeconfig", |disk| {
            fs::remove_file(disk.dir.join("etc/kubernetes/kubeconfig")).unwrap()
        }),
        ("empty cache", |disk| {
            fs::remove_dir_all(disk.dir.join("var/lib/mco-rescue/cache")).unwrap()
        }),
        ("no record", |disk| {
            fs::remove_file(disk.dir.join("etc/machine-config-daemon/currentconfig")).unwrap()
        }),
    ];
    let (mut found, mut wrong) = (BTreeSet::new(), BTreeSet::new());
    for (state, change) in states {
        for (given, other) in [(&two, &foreign), (&two, &bare)] {
            let disk = Disk::new();
            if state != "new" {
                disk.says(&["apply", "--yes", one.path()]);
                disk.says(&["fetch", two.path()]);
            }
            change(&disk);
            for line in lines(given.path(), other.path()) {
                let line: Vec<&str> = line.iter().map(String::as_str).collect();
                let said = disk.says(&line);
                let cached = disk.says(&["--output", "json", "cache", "list"]);
                let all = commands(&said, &disk.dir);
                let Ok(all) = all.map_err(|part| {
                    let part: String = part.chars().take(90).collect();
                    wrong.insert(format!("{}: no root: {part}", line[0]));
                }) else {
                    continue;
                };
                for words in all {
                    let shown = words[1..words.len() - 2].join(" ");
                    match Cli::try_parse_from(&words) {
                        Ok(cli) if cli.root == disk.dir => drop(found.insert(shown.clone())),
                        Ok(_) => drop(wrong.insert(format!("{line:?}: other root: {shown}"))),
                        Err(error) => drop(wrong.insert(format!("{line:?}: {shown}: {error}"))),
                    }
                    let verb_with_config = ["plan", "apply", "verify"].contains(&words[1].as_str());
                    let named = words.get(2).filter(|_| verb_with_config && words.len() > 4);
                    if let Some(named) = named.filter(|named| !is_there(named, &cached)) {
                        wrong.insert(format!(
                            "{line:?} ({state}): names {named}, which is not there"
                        ));
                    }
                }
            }
        }
    }
    say(&format!("{} commands were printed: {found:?}", found.len()));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found.len() > 20, "{found:?}");
}
