//! What monitoring reads: exit codes, metrics, the check for greenboot, and the plugin for sos.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Lacks, PROGRAM, Run, TestRoot, by_operator, file, machine_config, skip};

const NAME: &str = "rendered-worker-0123456789abcdef0123456789abcdex";

fn config() -> Value {
    let files = json!([file("/etc/pool.conf", 0o644, "of the pool\n")]);
    machine_config(NAME, json!({"storage": {"files": files}}))
}

/// The samples of a file by name and labels, read by the rules of the text format: `HELP` and `TYPE` once before the samples
/// of each metric, all of one metric together, names and labels of the allowed letters, a number as the value.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let (mut helped, mut typed): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    assert!(text.ends_with('\n'), "the last line has no end");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(!helped.contains(&name), "{name} twice");
            assert!(help.ends_with('.'), "{line}");
            helped.push(name);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!((helped.last(), kind), (Some(&name), "gauge"), "{line}");
            assert!(!typed.contains(&name), "{name} twice");
            typed.push(name);
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            assert_eq!(typed.last(), Some(&name), "{line}");
            let letters = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(
                name.starts_with("mco_rescue_") && name.chars().all(letters),
                "{line}"
            );
            labels(sample.strip_prefix(name).unwrap());
            let value: f64 = value.parse().unwrap();
            assert!(
                all.insert(sample.to_owned(), value).is_none(),
                "{sample} twice"
            );
        }
    }
    assert_eq!(helped, typed);
    all
}

fn labels(text: &str) {
    if text.is_empty() {
        return;
    }
    let mut rest = text.strip_prefix('{').unwrap().strip_suffix('}').unwrap();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap();
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{text}"
        );
        let end = after
            .char_indices()
            .scan(false, |escaped, (at, c)| {
                let ends = c == '"' && !*escaped;
                *escaped = c == '\\' && !*escaped;
                Some((at, ends))
            })
            .find(|(_, ends)| *ends)
            .unwrap()
            .0;
        rest = &after[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

fn metrics(root: &TestRoot, file: &Path) -> BTreeMap<String, f64> {
    root.run(&["status", "--metrics", file.to_str().unwrap()])
        .ok();
    let text = fs::read_to_string(file).unwrap();
    if let Ok(output) = Command::new("promtool").arg("--version").output()
        && output.status.success()
    {
        let check = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(fs::File::open(file).unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(check.status.success() && said.is_empty(), "{said}");
    }
    samples(&text)
}

#[test]
fn metrics_are_written_whole_for_all_to_read() {
    let root = TestRoot::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mco_rescue.prom");
    let first = metrics(&root, &path);
    assert_eq!(first["mco_rescue_record_usable"], 0.0);
    assert!(!first.contains_key("mco_rescue_last_run_finished_timestamp_seconds"));
    assert!(!first.contains_key("mco_rescue_cache_newest_timestamp_seconds"));

    root.apply(&config());
    let cached = root.config(&by_operator("worker", "of the cache\n"));
    root.run(&["fetch", cached.path()]).ok();
    let run = root
        .run(&["status", "--metrics", path.to_str().unwrap()])
        .ok();
    assert_eq!(run.out(), "");
    let found = metrics(&root, &path);
    let version = env!("CARGO_PKG_VERSION");
    let info = format!("mco_rescue_info{{version=\"{version}\",recorded=\"{NAME}\",desired=\"\"}}");
    for (name, value) in [
        (info.as_str(), 1.0),
        ("mco_rescue_record_usable", 1.0),
        ("mco_rescue_run_unfinished", 0.0),
        ("mco_rescue_trial_running", 0.0),
        ("mco_rescue_reboot_needed", 0.0),
        ("mco_rescue_boot_awaited", 0.0),
        ("mco_rescue_boot_failed", 0.0),
        ("mco_rescue_cache_configs", 1.0),
        ("mco_rescue_last_run_result{result=\"done\"}", 1.0),
        ("mco_rescue_last_run_result{result=\"rolled-back\"}", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name}: {found:?}");
    }
    let at = |name: &str| found[&format!("mco_rescue_{name}_timestamp_seconds")];
    assert!(at("cache_newest") > 1.6e9 && at("last_run_finished") > 1.6e9);
    assert!(at("status") >= at("last_run_finished"));
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    let names: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "a temporary file is left: {names:?}");
}

/// Every file below a directory of the root.
fn files_below(root: &TestRoot, dir: &str, all: &mut Vec<String>) {
    for entry in fs::read_dir(root.path(dir)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{dir}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files_below(root, &path, all)
        } else {
            all.push(path)
        }
    }
}

#[test]
fn damage_takes_metrics_away_and_never_makes_them_wrong() {
    let root = TestRoot::new();
    root.apply(&config());
    let cached = root.config(&by_operator("worker", "of the cache\n"));
    root.run(&["fetch", cached.path()]).ok();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mco_rescue.prom");
    let whole = metrics(&root, &path);
    let mut all = vec!["etc/machine-config-daemon/currentconfig".to_owned()];
    files_below(&root, "var/lib/mco-rescue", &mut all);
    assert!(all.len() > 4, "{all:?}");
    for damaged in all {
        let before = fs::read(root.path(&damaged)).unwrap();
        fs::write(root.path(&damaged), "damaged").unwrap();
        let _ = fs::remove_file(&path);
        let run = root.run(&["status", "--metrics", path.to_str().unwrap()]);
        if run.code() == 0 {
            let found = samples(&fs::read_to_string(&path).unwrap());
            for (name, value) in &found {
                let is_own = ["timestamp", "record_usable", "info", "cache_configs"]
                    .iter()
                    .any(|own| name.contains(own));
                assert!(
                    is_own || whole.get(name) == Some(value),
                    "{damaged}: {name} is {value}, and {:?} before",
                    whole.get(name)
                );
            }
        } else {
            assert!(!path.exists(), "{damaged}");
        }
        fs::write(root.path(&damaged), before).unwrap();
    }
}

#[test]
fn metrics_replace_no_file_of_another_program() {
    let root = TestRoot::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.prom");
    fs::write(&path, "# HELP other x\n").unwrap();
    let refused = root.run(&["status", "--metrics", path.to_str().unwrap()]);
    let refused = refused.exits(1);
    assert!(
        refused.err().contains("give another file"),
        "{}",
        refused.err()
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "# HELP other x\n");
}

#[test]
fn doctor_quiet_says_all_by_its_exit_code() {
    let root = TestRoot::new();
    root.apply(&config());
    let loud = root.run(&["doctor"]);
    let quiet = root.run(&["doctor", "--quiet"]);
    assert_eq!((quiet.code(), quiet.out()), (loud.code(), String::new()));
    root.write("etc/machine-config-daemon/currentconfig", "{");
    let broken = root.run(&["doctor", "--quiet"]).exits(6);
    assert_eq!(broken.out(), "");
    // A document that is asked for is printed.
    let document = root.run(&["doctor", "--quiet", "--output", "json"]);
    assert_eq!(document.exits(6).json()["schema"], "mco-rescue/doctor/v1");
}

#[test]
fn the_check_for_greenboot_fails_where_doctor_finds_something_critical() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("mco-rescue");
    let check = |code: &str| {
        let script = format!("#!/bin/sh\n[ \"$*\" = 'doctor --quiet' ] || exit 9\n{code}\n");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new("bash");
        command.arg("packaging/greenboot/50_mco_rescue.sh");
        Run::of(command.env("MCO_RESCUE", &program).output().unwrap())
    };
    for (code, wanted, words) in [
        ("exit 0", 0, "nothing to do"),
        ("exit 3", 0, "a warning"),
        ("exit 6", 1, "something critical"),
        ("exit 1", 1, "could not be judged"),
        ("kill -9 $$", 1, "could not be judged"),
    ] {
        let run = check(code).exits(wanted);
        let said = run.out() + &run.err();
        assert!(said.contains(words), "{code}: {said}");
    }
    // The real program, on a root that is broken.
    let root = TestRoot::new();
    root.apply(&config());
    root.write("etc/machine-config-daemon/currentconfig", "{");
    let real = check(&format!(
        "exec {PROGRAM} --root '{}' doctor --quiet",
        root.dir().display()
    ));
    real.exits(1);
}

#[test]
fn the_plugin_for_sos_is_loaded_and_collects() {
    let plugin = "packaging/sos/mco_rescue.py";
    let script = r#"
import sys, types
calls = []
module = types.ModuleType('sos.report.plugins')
class Plugin:
    def add_cmd_output(self, commands): calls.extend([commands] if isinstance(commands, str) else commands)
    def add_journal(self, units=None, identifier=None): calls.append('journal %s' % (units or identifier))
module.Plugin = Plugin
module.IndependentPlugin = type('IndependentPlugin', (), {})
for name in ('sos', 'sos.report'): sys.modules[name] = types.ModuleType(name)
sys.modules['sos.report.plugins'] = module
space = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), space)
space['McoRescue']().setup()
print('\n'.join(calls))
"#;
    let mut command = Command::new("python3");
    let output = command.args(["-B", "-c", script, plugin]).output().unwrap();
    let calls = Run::of(output).ok().out();
    let commands: Vec<&str> = calls
        .lines()
        .filter_map(|line| line.strip_prefix("mco-rescue "))
        .collect();
    assert!(commands.len() > 4, "{calls}");
    let root = TestRoot::new();
    root.apply(&config());
    for line in commands {
        // A command that the program does not know ends with 2.
        let args: Vec<&str> = line.split(' ').collect();
        let run = root.run(&args);
        assert!(run.code() != 2, "{line}: {}", run.err());
    }
    take_by_the_real_sos(plugin);
}

/// Lets the classes of the real sos judge every call of the plugin.
fn take_by_the_real_sos(plugin: &str) {
    let has_sos = |python: &&str| {
        let mut command = Command::new(python);
        let output = command.args(["-c", "import sos.report.plugins"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let Some(python) = ["/usr/bin/python3", "python3"].into_iter().find(has_sos) else {
        return skip(
            Lacks::Setup,
            "no sos: its plugin was loaded with a stand-in",
        );
    };
    let script = r#"
import inspect, sys
import sos.report.plugins as real
space = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'), space)
made = space['McoRescue']
assert issubclass(made, real.Plugin) and issubclass(made, real.IndependentPlugin)
def bound(name):
    wanted = inspect.signature(getattr(real.Plugin, name))
    return lambda self, *values, **named: print(name, wanted.bind(self, *values, **named).arguments)
names = {name: bound(name) for name in ('add_cmd_output', 'add_journal')}
type('Bound', (made,), {'__init__': lambda self: None, **names})().setup()
"#;
    let mut command = Command::new(python);
    let output = command.args(["-B", "-c", script, plugin]).output().unwrap();
    let calls = Run::of(output).ok().out();
    assert!(calls.lines().count() > 4, "{calls}");
}
