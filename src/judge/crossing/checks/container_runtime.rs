//! Does the image have the program of CRI-O's default runtime?

use std::collections::BTreeMap;

use serde::Deserialize;

use super::faults;
use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::{CrioFile, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("container-runtime", judge);

/// First CRI-O release that uses crun by default.
const CRUN_SINCE: (u32, u32) = (1, 31);

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawFile {
    crio: RawCrio,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawCrio {
    runtime: RawRuntime,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawRuntime {
    default_runtime: Option<String>,
    runtimes: BTreeMap<String, RawHandler>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawHandler {
    runtime_path: Option<String>,
}

/// The part of the merged configuration that matters here.
#[derive(Debug)]
struct Runtimes {
    default: String,
    /// Name, `runtime_path` and the place that sets it.
    tables: BTreeMap<String, String>,
    /// The setting of the default; `None` if CRI-O's own default applies.
    set_by: Option<SetBy>,
}

/// A place that sets the default runtime.
#[derive(Debug)]
struct SetBy {
    file: String,
    line: usize,
    is_targets: bool,
    /// True if the file does nothing else.
    alone: bool,
}

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let files = match node.crio.merge_files(&target.tree) {
        Ok(files) => files,
        Err(reason) => {
            let what = format!("the configuration of CRI-O is not known: {reason}");
            let finding = CrossingFinding::unknown("CRI-O", what);
            return vec![
                finding.next("crio config --default=false 2>/dev/null | grep default_runtime"),
            ];
        }
    };
    let mut runtimes = Runtimes::compiled_in(target);
    let mut findings = Vec::new();
    for file in &files {
        if let Err(error) = runtimes.add_file(file) {
            findings.push(refused_file(file, &error));
        }
    }
    match &node.crio.service {
        Ok(service) => {
            for (place, text) in service {
                runtimes.add_options(place, text);
            }
        }
        // The command line overrides all files.
        Err(why) => {
            let unseen = faults::note_unseen("options of CRI-O", std::slice::from_ref(why));
            findings.extend(unseen);
            return findings;
        }
    }
    findings.extend(judge_default(target, node, &runtimes));
    findings
}

impl Runtimes {
    /// Returns the configuration without any file.
    fn compiled_in(target: &Target) -> Self {
        let version = target.find_package("cri-o").map(|package| {
            let mut numbers = package.version.split('.').map(|part| part.parse().ok());
            (
                numbers.next().flatten().unwrap_or(0),
                numbers.next().flatten().unwrap_or(0),
            )
        });
        let is_old = version.is_some_and(|version| version < CRUN_SINCE);
        let default = if is_old { "runc" } else { "crun" };
        Self {
            default: default.to_owned(),
            tables: BTreeMap::from([(default.to_owned(), String::new())]),
            set_by: None,
        }
    }

    fn add_file(&mut self, file: &CrioFile) -> Result<(), toml::de::Error> {
        let raw: RawFile = toml::from_str(&file.text)?;
        let raw = raw.crio.runtime;
        if let Some(name) = raw.default_runtime.filter(|name| !name.is_empty()) {
            self.default = name;
            let meant = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
            let lines = || file.text.lines().map(str::trim);
            self.set_by = Some(SetBy {
                file: format!("/etc/crio/{}", file.path),
                line: 1 + lines()
                    .position(|line| line.contains("default_runtime") && !line.starts_with('#'))
                    .unwrap_or_default(),
                is_targets: file.is_targets,
                alone: lines().filter(meant).count() == 1,
            });
        }
        for (name, handler) in raw.runtimes {
            let path = self.tables.entry(name).or_default();
            if let Some(given) = handler.runtime_path {
                *path = given;
            }
        }
        Ok(())
    }

    /// Applies options and variables of the command line, which override all files.
    fn add_options(&mut self, place: &str, text: &str) {
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                continue;
            }
            for key in ["--default-runtime", "CONTAINER_DEFAULT_RUNTIME"] {
                let rest = line.split_once(key).map(|(_, rest)| rest);
                let rest = rest.and_then(|rest| rest.strip_prefix(['=', ' ']));
                let value = rest.and_then(|rest| rest.split([' ', '"', '\'']).next());
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    self.default = value.to_owned();
                    self.set_by = Some(SetBy {
                        file: place.to_owned(),
                        line: index + 1,
                        is_targets: false,
                        alone: false,
                    });
                }
            }
        }
    }
}

fn refused_file(file: &CrioFile, error: &toml::de::Error) -> CrossingFinding {
    let path = format!("/etc/crio/{}", file.path);
    let said = error.to_string();
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = "CRI-O does not start with this file, which it reads whatever its ending is";
    CrossingFinding::inhibitor(&path, what)
        .with_evidence(&path, said)
        .with_prevented("crio.service: Failed with result 'exit-code'.")
        .next(format!(
            "Correct the file, or move it aside: {}",
            command_to_move_aside(&path)
        ))
}

/// Returns the command that moves a file to the directory above, where CRI-O reads only `crio.conf`.
fn command_to_move_aside(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("mv {path} /etc/crio/{name}.mco-rescue-aside")
}

fn judge_default(target: &Target, node: &Platform, runtimes: &Runtimes) -> Option<CrossingFinding> {
    let name = &runtimes.default;
    let stop = |what: String| CrossingFinding::inhibitor(name, what);
    let finding = match runtimes.tables.get(name) {
        None => stop(format!(
            "{name} is CRI-O's default runtime, and no file has a table for it"
        ))
        .with_prevented(format!(
            "default_runtime set to \"{name}\", but no runtime entry table [crio.runtime.runtimes.{name}] was found"
        )),
        Some(path) => match find_program(target, node, name, path) {
            Program::Found => return None,
            Program::Unknown(reason) => {
                let what = format!("{name} is CRI-O's default runtime, and {reason}");
                let finding = CrossingFinding::unknown(name, what);
                return Some(with_places(finding, target, runtimes, path));
            }
            Program::Missing => {
                let words = if path.is_empty() {
                    format!("\"{name}\" not found in $PATH")
                } else {
                    format!("invalid runtime_path for runtime '{name}'")
                };
                let what =
                    format!("{name} is CRI-O's default runtime, and the image does not have its program");
                stop(what).with_prevented(words)
            }
        },
    };
    let path = runtimes.tables.get(name).map_or("", String::as_str);
    let mut finding = with_places(finding, target, runtimes, path);
    for command in find_cures(node, runtimes) {
        finding = finding.next(command);
    }
    Some(finding)
}

fn with_places(
    finding: CrossingFinding,
    target: &Target,
    runtimes: &Runtimes,
    path: &str,
) -> CrossingFinding {
    let name = &runtimes.default;
    let said = format!("default_runtime = \"{name}\"");
    let finding = match &runtimes.set_by {
        Some(by) => finding.with_evidence(format!("{}:{}", by.file, by.line), said),
        None => finding.with_evidence("CRI-O's own default", said),
    };
    let program = if path.is_empty() { name } else { path };
    finding.with_evidence(&target.tree.source, format!("program {program}"))
}

fn find_cures(node: &Platform, runtimes: &Runtimes) -> Vec<String> {
    let name = &runtimes.default;
    let Some(by) = &runtimes.set_by else {
        return vec!["Take another image; this one lacks the runtime of its own CRI-O.".to_owned()];
    };
    let SetBy { file, line, .. } = by;
    if by.is_targets {
        return vec![
            "Take another image; this one lacks the runtime that its own /etc names.".to_owned(),
        ];
    }
    let mut all = Vec::new();
    if node.record.files.contains(file) {
        all.push(format!(
            "In the cluster, delete the ContainerRuntimeConfig that sets defaultRuntime to {name}, or change the \
             MachineConfig that writes {file}. Then apply the new rendered config together with the image."
        ));
    }
    all.push(if by.alone {
        command_to_move_aside(file)
    } else {
        format!("sed -i {line}d {file}")
    });
    all
}

/// Looks for a program in `/usr/local`, which belongs to the node.
fn find_local_program(node: &Platform, name: &str) -> Program {
    match &node.crio.local_programs {
        Ok(names) if names.iter().any(|one| one == name) => Program::Found,
        Ok(_) => Program::Missing,
        Err(why) => Program::Unknown(format!("the node's own programs cannot be listed: {why}")),
    }
}

enum Program {
    Found,
    Missing,
    Unknown(String),
}

/// Looks for the program of a runtime in the image; a program outside of `/usr` belongs to the node and stays.
fn find_program(target: &Target, node: &Platform, name: &str, path: &str) -> Program {
    let tree = &target.tree;
    if tree.files_below("usr/bin").next().is_none() {
        return Program::Unknown("the programs of the image were not read".to_owned());
    }
    let has = |found: bool| {
        if found {
            Program::Found
        } else {
            Program::Missing
        }
    };
    if path.is_empty() {
        let in_image =
            ["usr/bin", "usr/sbin"].map(|directory| tree.exists(&format!("{directory}/{name}")));
        return if in_image.contains(&true) {
            Program::Found
        } else {
            find_local_program(node, name)
        };
    }
    let path = path.trim_start_matches('/');
    let path = match path.split_once('/') {
        Some((top @ ("bin" | "sbin" | "lib" | "lib64"), rest)) => format!("usr/{top}/{rest}"),
        _ => path.to_owned(),
    };
    if let Some(rest) = path.strip_prefix("usr/local/") {
        let file = rest.rsplit('/').next().unwrap_or(rest);
        return find_local_program(node, file);
    }
    let listed = ["usr/bin/", "usr/sbin/", "usr/libexec/crio/"];
    if listed.iter().any(|directory| path.starts_with(directory)) {
        has(tree.exists(&path))
    } else {
        // EL 10 has all programs in usr/bin, and a link in place of the other directory.
        Program::Unknown(format!(
            "/{path} is not among the files that are read from an image"
        ))
    }
}
