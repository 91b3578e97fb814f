//! What `make install` gives a package: these files and no others, man pages that `man` reads without a warning,
//! completions that real shells complete with, and a module that the real dracut finds and
//! puts into an initramfs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{self, Lacks, PROGRAM, TestRoot, is_root, skip};

const MODULE: &str = "usr/lib/dracut/modules.d/50mco-rescue";
/// The commands that the help lists, and those below them, as in the names of their pages.
fn commands() -> Vec<String> {
    let mut all = Vec::new();
    for command in listed_in_help(&[]) {
        let below = listed_in_help(&[&command]);
        all.extend(below.iter().map(|sub| format!("{command}-{sub}")));
        all.push(command);
    }
    assert!(all.len() > 15 && all.contains(&"cache-list".to_owned()));
    all
}

fn listed_in_help(command: &[&str]) -> Vec<String> {
    let help = help(command);
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return Vec::new();
    };
    let lines = list.lines().take_while(|line| !line.is_empty());
    let lines = lines.filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| !line.starts_with(' '));
    let names = names.filter_map(|line| line.split(' ').next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

fn help(command: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(command).arg("--help").output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// `make TARGET` of the checkout below a directory, with no compiler at hand and an unfriendly umask.
///
/// Instead of the program, whose debug form is large, a script that calls it is installed.
fn make(target: &str, root: &TestRoot, more: &[&str]) {
    root.write("program", &format!("#!/bin/sh\nexec {PROGRAM} \"$@\"\n"));
    root.chmod("program", 0o755);
    let said = Command::new("sh")
        .args(["-c", "umask 077; exec make \"$@\"", "make"])
        .arg(target)
        .arg(format!("BINARY={}", root.path("program").display()))
        .arg(format!("DESTDIR={}", root.path("package").display()))
        .args(more)
        .env("PATH", "/usr/bin:/bin")
        .env_remove("PREFIX")
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&said.stdout), text(&said.stderr));
    assert!(said.status.success(), "make {target}: {out}{err}");
    assert!(!out.contains("cargo"), "a second build: {out}");
}

fn installed() -> TestRoot {
    let root = TestRoot::empty();
    make("install", &root, &["PREFIX=/usr"]);
    root
}

/// Files below a directory with their modes; directories end in `/`.
fn listed(directory: &Path) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            let meta = entry.metadata().unwrap();
            let path = entry.path();
            let name = path.strip_prefix(directory).unwrap().to_str().unwrap();
            let name = format!("{name}{}", if meta.is_dir() { "/" } else { "" });
            found.insert(name, meta.permissions().mode() & 0o7777);
            if meta.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

pub(super) fn files(directory: &Path) -> BTreeMap<String, u32> {
    let mut all = listed(directory);
    all.retain(|name, _| !name.ends_with('/'));
    all
}

/// What is to be there, by prefix; dracut's part is where dracut looks.
fn expected(prefix: &str) -> BTreeMap<String, u32> {
    let fixed = [
        "lib/systemd/catalog/mco-rescue.catalog",
        "lib/systemd/system/mco-rescue-complete.service",
        "lib/systemd/system/mco-rescue-fetch.service",
        "lib/systemd/system/mco-rescue-fetch.timer",
        "lib/systemd/system/mco-rescue-record.service",
        "lib/systemd/system/mco-rescue-recover.service",
        "lib/systemd/system/mco-rescue-trial.service",
        "share/bash-completion/completions/mco-rescue",
        "share/doc/mco-rescue/README.md",
        "share/doc/mco-rescue/errors.html",
        "share/doc/mco-rescue/examples/Containerfile",
        "share/doc/mco-rescue/examples/machine-os-config.yaml",
        "share/doc/mco-rescue/examples/rendered-worker-next.yaml",
        "share/doc/mco-rescue/examples/rendered-worker.yaml",
        "share/fish/vendor_completions.d/mco-rescue.fish",
        "share/licenses/mco-rescue/LICENSE",
        "share/man/man8/mco-rescue.8",
        "share/mco-rescue/sos/mco_rescue.py",
        "share/zsh/site-functions/_mco-rescue",
    ];
    let pages = commands().into_iter();
    let pages = pages.map(|command| format!("share/man/man8/mco-rescue-{command}.8"));
    let mut all: BTreeMap<String, u32> = fixed
        .map(str::to_owned)
        .into_iter()
        .chain(pages)
        .map(|name| (format!("{prefix}/{name}"), 0o644))
        .collect();
    all.insert(format!("{prefix}/bin/mco-rescue"), 0o755);
    for script in ["greenboot/50_mco_rescue.sh", "kubectl/kubectl-mco_rescue"] {
        all.insert(format!("{prefix}/share/mco-rescue/{script}"), 0o755);
    }
    // The whole manual, so that the links of the README lead somewhere.
    let manual = files(Path::new("docs")).into_keys();
    all.extend(manual.map(|page| (format!("{prefix}/share/doc/mco-rescue/docs/{page}"), 0o644)));
    for part in [
        "ignition-fetch.conf",
        "mco-rescue-beside-ignition.service",
        "mco-rescue-firstboot.service",
        "mco-rescue-shell.service",
    ] {
        all.insert(format!("{MODULE}/{part}"), 0o644);
    }
    all.insert(format!("{MODULE}/module-setup.sh"), 0o755);
    let conf = "usr/lib/dracut/dracut.conf.d/50-mco-rescue.conf";
    all.insert(conf.to_owned(), 0o644);
    all
}

#[test]
fn install_puts_exactly_these_files_with_these_modes() {
    for (prefix, more) in [("usr", &["PREFIX=/usr"][..]), ("usr/local", &[][..])] {
        let root = TestRoot::empty();
        make("install", &root, more);
        let package = root.path("package");
        assert_eq!(files(&package), expected(prefix));
        let directories = listed(&package);
        let directories = directories.iter().filter(|(name, _)| name.ends_with('/'));
        let odd: Vec<_> = directories.filter(|(_, mode)| **mode != 0o755).collect();
        assert!(odd.is_empty(), "{odd:?}");
    }
}

#[test]
fn uninstall_takes_exactly_that_away() {
    let root = installed();
    let others = [
        "package/usr/bin/mco-rescue-of-somebody-else",
        "package/usr/lib/systemd/system/mco-rescue-mine.service",
        "package/usr/share/doc/mco-rescue/notes",
    ];
    for other in others {
        root.write(other, "mine\n");
    }
    make("uninstall", &root, &["PREFIX=/usr"]);
    let left: Vec<String> = files(&root.path("package")).into_keys().collect();
    let others = others.map(|path| path.trim_start_matches("package/").to_owned());
    assert_eq!(left, others);
    for gone in [
        MODULE,
        "usr/share/licenses/mco-rescue",
        "usr/share/mco-rescue",
        "usr/share/doc/mco-rescue/docs",
    ] {
        assert!(!root.exists(&format!("package/{gone}")), "{gone}");
    }
    make("uninstall", &root, &["PREFIX=/usr"]);
}

#[test]
fn installed_units_start_the_installed_program_and_can_be_enabled() {
    let root = installed();
    for unit in [
        "mco-rescue-complete.service",
        "mco-rescue-fetch.service",
        "mco-rescue-recover.service",
        "mco-rescue-trial.service",
    ] {
        let text = root.read(&format!("package/usr/lib/systemd/system/{unit}"));
        assert!(text.contains("ExecStart=/usr/bin/mco-rescue "), "{text}");
        assert!(!text.contains("/usr/local"), "{text}");
    }
    let enabled = Command::new("systemctl")
        .arg("--root")
        .arg(root.path("package"))
        .args(["enable", "mco-rescue-recover.service"])
        .args(["mco-rescue-complete.service", "mco-rescue-fetch.timer"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&enabled.stderr);
    assert!(enabled.status.success(), "{said}");
    let wants = "package/etc/systemd/system/sysinit.target.wants/mco-rescue-recover.service";
    assert!(
        fs::symlink_metadata(root.path(wants)).is_ok(),
        "{wants}: {said}"
    );
}

// Man pages.

fn pages(root: &TestRoot) -> Vec<std::path::PathBuf> {
    let found = fs::read_dir(root.path("package/usr/share/man/man8")).unwrap();
    let found: Vec<_> = found.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), commands().len() + 1);
    found
}

/// A program's output, or a word that it is not here.
fn said_by(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let program = command.get_program().display();
            skip(Lacks::Setup, &format!("{program}: {error}"));
            None
        }
    }
}

#[test]
fn man_pages_are_read_without_a_warning() {
    let root = installed();
    let readers: [&[&str]; 2] = [
        &["groff", "-man", "-Tutf8", "-ww"],
        &["mandoc", "-Tlint", "-Wwarning"],
    ];
    for reader in readers {
        let mut command = Command::new(reader[0]);
        command.args(&reader[1..]).args(pages(&root));
        let Some(output) = said_by(&mut command) else {
            continue;
        };
        let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
        if reader[0] == "mandoc" {
            said.push_str(&String::from_utf8_lossy(&output.stdout));
        }
        // The day of a build has no place in a page that is the same of the same sources.
        let said: Vec<&str> = said
            .lines()
            .filter(|line| !line.contains("missing date"))
            .collect();
        assert!(said.is_empty(), "{reader:?}: {said:#?}");
    }
}

#[test]
fn the_synopsis_of_each_page_names_the_options_of_its_help() {
    let root = installed();
    for command in commands() {
        let page = root.read(&format!(
            "package/usr/share/man/man8/mco-rescue-{command}.8"
        ));
        let (_, synopsis) = page.split_once(".SH SYNOPSIS").unwrap();
        let synopsis = synopsis.split("\n.SH").next().unwrap().replace('\\', "");
        let words: Vec<&str> = command.split('-').collect();
        let help = help(&words);
        let options: Vec<&str> = help.lines().filter_map(option).collect();
        assert!(options.len() >= 5, "{command}: {options:?}");
        for option in options {
            assert!(
                synopsis.contains(option),
                "{command}: {option} is not in {synopsis}"
            );
        }
    }
}

/// The long option that a line of the help begins with.
fn option(line: &str) -> Option<&str> {
    let line = line.trim_start().strip_prefix('-')?;
    let at = line.find("--").map_or(0, |at| at + 1);
    let name = line.get(at..)?.strip_prefix('-')?;
    name.split([' ', '.', '[']).next()
}

#[test]
fn the_first_page_ends_with_the_exit_codes() {
    let root = installed();
    let page = root.read("package/usr/share/man/man8/mco-rescue.8");
    let version = env!("CARGO_PKG_VERSION");
    let changes = fs::read_to_string("CHANGELOG.md").unwrap();
    let heading = format!("## [{version}] - ");
    let date = changes
        .lines()
        .find_map(|line| line.strip_prefix(heading.as_str()));
    let title = format!(
        ".TH MCO-RESCUE 8 \"{}\" \"mco-rescue {version}\"\n",
        date.unwrap()
    );
    assert!(page.starts_with(&title), "{page}");
    let (_, codes) = page.split_once(".SH \"EXIT CODES\"").unwrap();
    assert!(codes.contains("5  the run is unfinished"), "{codes}");
}

#[test]
fn the_examples_of_a_page_fit_on_a_screen() {
    let root = installed();
    let pages = fs::read_dir(root.path("package/usr/share/man/man8")).unwrap();
    let mut count = 0;
    for page in pages {
        let page = fs::read_to_string(page.unwrap().path()).unwrap();
        let examples = page
            .split_once(".SH EXAMPLES\n")
            .map_or("", |(_, rest)| rest);
        for line in examples.lines().take_while(|line| !line.starts_with(".SH")) {
            count += 1;
            // man puts seven blanks before each.
            let width = 7 + line.replace('\\', "").chars().count();
            assert!(width <= 80, "{width}: {line}");
        }
    }
    assert!(count > 20, "only {count} lines were found");
}

// Shells.

/// What bash offers for a line whose last word is being completed.
fn offered_by_bash(file: &Path, line: &[&str]) -> Vec<String> {
    let script = "source \"$1\"; shift\n\
        spec=$(complete -p mco-rescue); [[ $spec =~ -F\\ ([^ ]+) ]]; function=${BASH_REMATCH[1]}\n\
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()\n\
        \"$function\" mco-rescue \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"\n\
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .arg(file)
        .args(line)
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let root = installed();
    let file = root.path("package/usr/share/bash-completion/completions/mco-rescue");
    let cases: [(&[&str], &[&str]); 6] = [
        (&["mco-rescue", "ap"], &["apply"]),
        (&["mco-rescue", "ren"], &["render"]),
        (&["mco-rescue", "apply", "--files"], &["--files-only"]),
        (&["mco-rescue", "cache", "ex"], &["export"]),
        (
            &["mco-rescue", "plan", "--output", ""],
            &["text", "json", "yaml"],
        ),
        (&["mco-rescue", "comp"], &["complete"]),
    ];
    for (line, wanted) in cases {
        assert_eq!(offered_by_bash(&file, line), wanted, "{line:?}");
    }
}

/// A node with two configs in its cache, whose names begin in different ways.
fn cached() -> (TestRoot, [String; 2]) {
    let root = TestRoot::new();
    let names = ["worker", "infra"].map(|pool| {
        let config = support::by_operator(pool, pool);
        root.run(&["fetch", root.config(&config).path()]).ok();
        config["metadata"]["name"].as_str().unwrap().to_owned()
    });
    (root, names)
}

/// Where shells find the program under test.
fn with_program() -> String {
    let bin = Path::new(PROGRAM).parent().unwrap();
    format!("{}:/usr/bin:/bin", bin.display())
}

/// What bash offers where the cursor is at the end of a line, which it splits as readline does.
fn offered_for(file: &Path, line: &str) -> Vec<String> {
    let script = "source \"$1\"; COMP_LINE=$2; COMP_POINT=${#2}\n\
        spec=$(complete -p mco-rescue); [[ $spec =~ -F\\ ([^ ]+) ]]; function=${BASH_REMATCH[1]}\n\
        COMP_WORDS=(${2//:/ : }); [[ $2 == *[\\ :] ]] && COMP_WORDS+=(\"\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n\
        COMPREPLY=(); cd \"$3\"\n\
        \"$function\" mco-rescue \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"\n\
        [[ -z ${COMPREPLY[*]} ]] || printf '%s\\n' \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["--norc", "-c", script, "bash"])
        .arg(file)
        .arg(line)
        .arg(file.parent().unwrap())
        .env("PATH", with_program())
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_what_only_the_node_knows() {
    let root = installed();
    let file = root.path("package/usr/share/bash-completion/completions/mco-rescue");
    let (node, [worker, infra]) = cached();
    let at = format!("mco-rescue --root {}", node.dir().display());
    let offered = |line: &str| offered_for(&file, &format!("{at} {line}"));
    // Behind the colon alone, as readline takes what is before it for another word.
    for command in [
        "apply",
        "plan",
        "verify",
        "show",
        "plan --files-only",
        "apply -v",
    ] {
        assert_eq!(
            offered(&format!("{command} cached:")),
            [infra.clone(), worker.clone()],
            "{command}"
        );
    }
    assert_eq!(
        offered("plan cached:rendered-w"),
        std::slice::from_ref(&worker)
    );
    assert_eq!(
        offered("plan c"),
        [format!("cached:{infra}"), format!("cached:{worker}")]
    );
    // Files are configs, too.
    let all = offered("plan ");
    assert!(
        all.contains(&"mco-rescue".to_owned()) && all.contains(&format!("cached:{worker}")),
        "{all:?}"
    );
    assert_eq!(
        offered("cache export rendered-i"),
        std::slice::from_ref(&infra)
    );
    assert_eq!(offered("cache forget "), [infra.clone(), worker]);
    assert_eq!(offered("plan --desired rendered-i"), [infra]);
    assert_eq!(offered("fetch --pool "), ["infra", "master", "worker"]);
    assert_eq!(offered("render w"), ["worker"]);
    let ids = ["FP-60", "FP-61", "FP-62", "FP-63", "FP-66", "FP-67"];
    assert_eq!(offered("doctor FP-6"), ids);
    assert_eq!(offered("doctor --bun"), ["--bundle"]);
    assert_eq!(offered("diff n"), ["now"]);
    assert_eq!(offered("diff good "), ["good", "now"]);
    let risk = "pivot --accept-risk interface-n";
    assert_eq!(offered(risk), ["interface-names"]);
    // The value of another option, and what follows CONFIG, are left alone.
    assert!(
        !offered("plan --os-from c")
            .iter()
            .any(|one| one.starts_with("cached:"))
    );
    assert!(
        !offered("plan x.yaml c")
            .iter()
            .any(|one| one.starts_with("cached:"))
    );
}

#[test]
fn bash_offers_the_runs_and_the_files_of_a_node() {
    let root = installed();
    let file = root.path("package/usr/share/bash-completion/completions/mco-rescue");
    let node = TestRoot::new();
    let one = support::file("/etc/one.conf", 0o644, "1\n");
    let storage = serde_json::json!({"storage": {"files": [one]}});
    node.apply(&support::machine_config("rendered-worker-one", storage));
    let list = node.run(&["rollback", "--list", "-o", "json"]).ok().json();
    let id = list["runs"][0]["id"].as_str().unwrap();
    let at = format!("mco-rescue --root {}", node.dir().display());
    let offered = |line: &str| offered_for(&file, &format!("{at} {line}"));
    assert_eq!(offered("rollback --to "), [id]);
    assert_eq!(offered("show /etc/on"), ["/etc/one.conf"]);
    assert_eq!(offered("show cached:x /etc/on"), ["/etc/one.conf"]);
}

/// A real bash with readline, at a terminal of its own: what is typed, and what the finished line does.
#[test]
fn a_tab_in_a_real_bash_completes_a_name_with_a_colon() {
    let root = installed();
    let file = root.path("package/usr/share/bash-completion/completions/mco-rescue");
    let (node, [worker, _]) = cached();
    let mut bash = Command::new("script");
    bash.args(["-qec", "bash --norc --noprofile -i", "/dev/null"])
        .env("PATH", with_program())
        .env("TERM", "dumb")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let Ok(mut bash) = bash.spawn() else {
        return skip(Lacks::Setup, "script(1) is not installed");
    };
    let typed = format!(
        "source {}\nset -x\nmco-rescue --root {} show cached:rendered-w\t --output json\nexit\n",
        file.display(),
        node.dir().display()
    );
    std::io::Write::write_all(&mut bash.stdin.take().unwrap(), typed.as_bytes()).unwrap();
    let said = bash.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    // The program itself takes a beginning of the name, so the line counts.
    let line = format!(
        "+ mco-rescue --root {} show cached:{worker} --output json",
        node.dir().display()
    );
    assert!(said.contains(&line), "{said}");
}

#[test]
fn zsh_takes_the_completion_from_its_function_path() {
    let root = installed();
    let script = "fpath=($1 $fpath); autoload -Uz compinit; compinit -u -D; \
        print -r -- $_comps[mco-rescue]; autoload -Uz +X _mco-rescue && print read";
    let mut zsh = Command::new("zsh");
    let directory = root.path("package/usr/share/zsh/site-functions");
    let Some(output) = said_by(zsh.args(["-f", "-c", script, "zsh"]).arg(directory)) else {
        return;
    };
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(out, "_mco-rescue\nread\n", "{output:?}");
}

#[test]
fn zsh_asks_the_program_for_names() {
    let root = installed();
    let script = root.read("package/usr/share/zsh/site-functions/_mco-rescue");
    for (begins, kind) in [
        ("::config -- ", "configs"),
        ("::id -- ", "checks"),
        (":pool -- ", "pools"),
        ("--pool=", "pools"),
    ] {
        let mut lines = script
            .lines()
            .filter(|line| line.starts_with(&format!("'{begins}")));
        assert!(lines.clone().count() > 0, "{begins}");
        assert!(
            lines.all(|line| line.ends_with(&format!(":_mco_rescue_{kind}' \\"))),
            "{begins}"
        );
    }
    let (node, [worker, infra]) = cached();
    let asks = "compadd() { print -rl -- ${(P)2} }; BUFFER=$2; autoload -Uz +X compinit; compdef() { }\n\
        source $1; _mco_rescue_names configs";
    let mut zsh = Command::new("zsh");
    zsh.args(["-f", "-c", asks, "zsh"])
        .arg(root.path("package/usr/share/zsh/site-functions/_mco-rescue"))
        .arg(format!("mco-rescue --root {} plan ", node.dir().display()))
        .env("PATH", with_program());
    let Some(output) = said_by(&mut zsh) else {
        return;
    };
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        out,
        format!("cached:{infra}\ncached:{worker}\n"),
        "{output:?}"
    );
}

#[test]
fn fish_completes_commands_and_options() {
    let root = installed();
    let (node, [worker, _]) = cached();
    let at = format!("mco-rescue --root {}", node.dir().display());
    let name = format!("cached:{worker}");
    for (line, wanted) in [
        ("mco-rescue ap", "apply"),
        ("mco-rescue apply --files", "--files-only"),
        ("mco-rescue cache ex", "export"),
        ("mco-rescue doctor FP-61", "FP-61"),
        (&format!("{at} plan cached:rendered-w"), &name),
        (&format!("{at} cache export rendered-w"), &worker),
        (&format!("{at} fetch --pool inf"), "infra"),
    ] {
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c"])
            .arg("source $argv[1]; complete -C $argv[2]")
            .arg(root.path("package/usr/share/fish/vendor_completions.d/mco-rescue.fish"))
            .arg(line)
            .env("HOME", root.dir())
            .env("PATH", with_program());
        let Some(output) = said_by(&mut fish) else {
            return;
        };
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let names: Vec<&str> = out
            .lines()
            .filter_map(|line| line.split('\t').next())
            .collect();
        assert_eq!(names, [wanted], "{line}: {output:?}");
    }
}

// dracut.

/// The real dracut's directory in the package's place, with what is installed; nothing where dracut is not here.
fn with_dracut() -> Option<TestRoot> {
    let real = Path::new("/usr/lib/dracut");
    if !real.join("dracut-functions.sh").exists() {
        skip(Lacks::Setup, "dracut is not installed");
        return None;
    }
    let root = TestRoot::empty();
    let lib = root.path("package/usr/lib");
    fs::create_dir_all(&lib).unwrap();
    let copied = Command::new("cp").arg("-a").arg(real).arg(&lib).status();
    assert!(copied.unwrap().success());
    Some(root)
}

#[test]
fn dracut_finds_the_installed_module() {
    let Some(root) = with_dracut() else { return };
    let base = root.path("package/usr/lib/dracut");
    let before = modules(&base);
    make("install", &root, &["PREFIX=/usr"]);
    let mut after = modules(&base);
    assert!(
        before.len() > 5 && !before.contains(&"mco-rescue".to_owned()),
        "{before:?}"
    );
    after.retain(|name| !before.contains(name));
    assert_eq!(after, ["mco-rescue"]);
}

/// As the real dracut lists them.
fn modules(base: &Path) -> Vec<String> {
    let output = Command::new("dracut")
        .args(["--no-kernel", "--list-modules"])
        .env("dracutbasedir", base)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn the_installed_configuration_puts_program_and_units_into_an_initramfs_unless_it_is_masked() {
    if !is_root() {
        return skip(Lacks::Root, "dracut makes an initramfs as root only");
    }
    let Some(root) = with_dracut() else { return };
    make("install", &root, &["PREFIX=/usr"]);
    // The module would find the program of the system that it runs on.
    let beside = root.path(&format!("package/{MODULE}/mco-rescue"));
    fs::copy(root.path("package/usr/bin/mco-rescue"), beside).unwrap();
    let confdir = root.path("confdir");
    fs::create_dir(&confdir).unwrap();
    let image = initramfs(&root, &confdir);
    for path in [
        "usr/bin/mco-rescue",
        "usr/lib/systemd/system/initrd.target.wants/mco-rescue-firstboot.service",
        "usr/lib/systemd/system/ignition-fetch.service.d/50-mco-rescue.conf",
    ] {
        assert!(image.lines().any(|line| line == path), "{path}: {image}");
    }
    root.link("confdir/50-mco-rescue.conf", "/dev/null");
    let image = initramfs(&root, &confdir);
    assert!(!image.contains("mco-rescue"), "{image}");
    assert!(image.contains("usr/lib/systemd/systemd"), "{image}");
}

/// The paths in what the real dracut makes.
fn initramfs(root: &TestRoot, confdir: &Path) -> String {
    let image = root.path("image");
    let made = Command::new("dracut")
        .args(["--force", "--no-kernel", "--no-hostonly"])
        .args(["--no-early-microcode", "--compress", "cat"])
        .args(["-m", "systemd systemd-initrd", "--confdir"])
        .arg(confdir)
        .arg(&image)
        .env("dracutbasedir", root.path("package/usr/lib/dracut"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let listed = Command::new("cpio")
        .args(["--quiet", "-it"])
        .stdin(fs::File::open(&image).unwrap())
        .output()
        .unwrap();
    String::from_utf8(listed.stdout).unwrap()
}
