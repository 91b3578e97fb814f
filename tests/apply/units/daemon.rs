//! The daemon's update of units, step by step on a root, with the real `systemctl --root` (its own code is not at hand).
//! Where the program deliberately does something else, so does this.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Lacks, TestRoot, skip};

const CONFIG_DIR: &str = "etc/systemd/system";
const DIRS: [&str; 3] = [CONFIG_DIR, "run/systemd/system", "usr/lib/systemd/system"];
/// The version of systemd that is modelled.
const VERSION: &str = "systemd 252 ";

/// The real systemctl.
pub struct Systemctl(PathBuf);

impl Systemctl {
    /// Finds one of the version that is modelled, or says aloud that nothing is compared.
    pub fn find() -> Option<Self> {
        let search = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::env::split_paths(&search).map(|dir| dir.join("systemctl"));
        let found = paths.into_iter().find(|path| {
            let output = Command::new(path).arg("--version").output();
            output.is_ok_and(|output| output.stdout.starts_with(VERSION.as_bytes()))
        });
        if found.is_none() {
            skip(
                Lacks::other_version("systemctl"),
                "no systemctl of systemd 252, so nothing is compared with it",
            );
        }
        found.map(Self)
    }

    fn run(&self, root: &TestRoot, verb: &str, units: &[&str]) -> Output {
        let mut command = Command::new(&self.0);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin");
        command.env("SYSTEMCTL_SKIP_SYSV", "1");
        command.arg(format!("--root={}", root.dir().display()));
        command.arg(verb).args(units).output().unwrap()
    }

    fn succeeds(&self, root: &TestRoot, verb: &str, units: &[&str]) -> Result<(), String> {
        let output = self.run(root, verb, units);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(said)
    }

    /// The daemon's update from `old` to `new`; its error where it fails half-way.
    pub fn update(&self, root: &TestRoot, old: &[Value], new: &[Value]) -> Result<(), String> {
        self.stale_dropins(root, old, new);
        let listed: BTreeSet<&str> = new
            .iter()
            .map(name)
            .filter(|u| is_listed(root, u))
            .collect();
        let changed: Vec<&Value> = new.iter().filter(|unit| !old.contains(unit)).collect();
        for unit in &changed {
            self.write(root, unit)?;
            if unit["enabled"].is_null() {
                let _ = self.run(root, "preset", &[name(unit)]);
            }
        }
        self.stale_units(root, old, new);
        for (verb, wanted) in [("enable", true), ("disable", false)] {
            let switched = |unit: &&&Value| unit["enabled"] == wanted;
            let by_daemon = |unit: &&&Value| has_contents(unit) || listed.contains(name(unit));
            let to_switch = changed.iter().filter(switched).filter(by_daemon);
            let to_switch: Vec<&str> = to_switch.map(|unit| name(unit)).collect();
            if !to_switch.is_empty() {
                self.succeeds(root, verb, &to_switch)?;
            }
            // So are those that have not changed, and instances although no file of their name is listed.
            for unit in new.iter().filter(|unit| unit["enabled"] == wanted) {
                if !to_switch.contains(&name(unit)) && can_be_found(root, unit) {
                    let _ = self.run(root, verb, &[name(unit)]);
                }
            }
        }
        // Disabling a template takes the masks of its instances away.
        for unit in new.iter().filter(|unit| unit["mask"] == true) {
            let path = format!("{CONFIG_DIR}/{}", name(unit));
            if !root.exists(&path) {
                root.link(&path, "/dev/null");
            }
        }
        Ok(())
    }

    /// They go first here, not last.
    fn stale_dropins(&self, root: &TestRoot, old: &[Value], new: &[Value]) {
        for unit in old {
            let now = new.iter().find(|now| name(now) == name(unit));
            for dropin in dropins(unit) {
                let kept = now.is_some_and(|now| dropins(now).any(|d| name(d) == name(dropin)));
                if !kept {
                    remove(&dropin_path(root, unit, dropin));
                }
            }
        }
    }

    fn write(&self, root: &TestRoot, unit: &Value) -> Result<(), String> {
        for dropin in dropins(unit) {
            let path = dropin_path(root, unit, dropin);
            match dropin["contents"].as_str() {
                Some(text) if !text.is_empty() => write(&path, text),
                _ => remove(&path),
            }
        }
        let path = root.path(&format!("{CONFIG_DIR}/{}", name(unit)));
        if unit["mask"] == true {
            remove(&path);
            symlink("/dev/null", path).unwrap();
        } else if has_contents(unit) {
            let state = self.run(root, "is-enabled", &[name(unit)]);
            if state.status.success() && state.stdout == b"enabled\n" {
                self.succeeds(root, "disable", &[name(unit)])?;
            }
            remove(&path);
            write(&path, unit["contents"].as_str().unwrap());
        } else if unit["mask"] == false {
            remove(&path);
        }
        Ok(())
    }

    fn stale_units(&self, root: &TestRoot, old: &[Value], new: &[Value]) {
        for unit in old.iter().map(name) {
            if new.iter().any(|now| name(now) == unit) {
                continue;
            }
            let _ = self.run(root, "preset", &[unit]);
            remove(&root.path(&format!("{CONFIG_DIR}/{unit}")));
            // Links of what is not a unit any more go too.
            let state = self.run(root, "is-enabled", &[unit]);
            if String::from_utf8_lossy(&state.stderr).contains("No such file or directory") {
                let before = links(root);
                let _ = self.run(root, "disable", &[unit]);
                let after = links(root);
                for (path, target) in before.iter().filter(|(path, _)| !after.contains_key(*path)) {
                    let own = path.rsplit('/').next().unwrap();
                    if own != unit && is_listed(root, own) {
                        root.link(&format!("{CONFIG_DIR}{path}"), target);
                    }
                }
            }
        }
    }
}

/// Every link below the directory of the configuration, with its target.
pub fn links(root: &TestRoot) -> BTreeMap<String, String> {
    let mut links = BTreeMap::new();
    collect(&root.path(CONFIG_DIR), "", &mut links);
    links
}

fn collect(dir: &Path, below: &str, links: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        let at = format!("{below}/{}", path.file_name().unwrap().to_str().unwrap());
        if let Ok(target) = fs::read_link(&path) {
            links.insert(at, target.to_str().unwrap().to_owned());
        } else if path.is_dir() {
            collect(&path, &at, links);
        }
    }
}

fn is_listed(root: &TestRoot, unit: &str) -> bool {
    DIRS.iter().any(|dir| root.exists(&format!("{dir}/{unit}")))
}

fn can_be_found(root: &TestRoot, unit: &Value) -> bool {
    let template = name(unit)
        .split_once('@')
        .map(|(prefix, _)| format!("{prefix}@.service"));
    let of_template = template.is_some_and(|template| is_listed(root, &template));
    has_contents(unit) || is_listed(root, name(unit)) || of_template
}

fn name(object: &Value) -> &str {
    object["name"].as_str().unwrap()
}

fn has_contents(unit: &Value) -> bool {
    unit["contents"]
        .as_str()
        .is_some_and(|text| !text.is_empty())
}

fn dropins(unit: &Value) -> impl Iterator<Item = &Value> {
    unit["dropins"].as_array().into_iter().flatten()
}

fn dropin_path(root: &TestRoot, unit: &Value, dropin: &Value) -> PathBuf {
    root.path(&format!("{CONFIG_DIR}/{}.d/{}", name(unit), name(dropin)))
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}
