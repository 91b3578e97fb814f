//! The real `ansible-playbook` with the playbook of `examples/`, on roots that are its hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Lacks, PROGRAM, Run, skip};

/// The environment that tests/ansible.sh makes.
fn made() -> PathBuf {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    checkout().join(target).join("ansible")
}

/// The lint of collections; `None`, said aloud, where it is missing.
pub fn lint() -> Option<Command> {
    let program = made().join("bin/ansible-lint");
    if !program.exists() {
        skip(
            Lacks::Setup,
            "no ansible-lint here (tests/setup.sh makes one)",
        );
        return None;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(&program);
    command.env("PATH", format!("{}:{path}", made().join("bin").display()));
    Some(command)
}

/// What tests/ansible.sh made, else one of the system; `None`, said aloud, where there is neither.
fn program() -> Option<PathBuf> {
    let made = made();
    if made.join("done").exists() {
        return Some(made.join("bin/ansible-playbook"));
    }
    let output = Command::new("ansible-playbook").arg("--version").output();
    if output.is_ok_and(|output| output.status.success()) {
        return Some("ansible-playbook".into());
    }
    skip(
        Lacks::Setup,
        "no ansible-playbook here (tests/setup.sh makes one)",
    );
    None
}

fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Hosts, what they are told, and the directories that the playbook leaves something in.
pub struct Fleet {
    ansible: PathBuf,
    hosts: Vec<(String, Value)>,
    dir: TempDir,
}

impl Fleet {
    /// No hosts yet; `None`, said aloud, without ansible-playbook.
    pub fn new() -> Option<Self> {
        let fleet = Self {
            ansible: program()?,
            hosts: Vec::new(),
            dir: tempfile::tempdir().unwrap(),
        };
        for directory in ["home", "workspace"] {
            fs::create_dir(fleet.path(directory)).unwrap();
        }
        Some(fleet)
    }

    /// Adds a host that is a directory here, where no module of Ansible can run: it has no Python.
    pub fn host(&mut self, name: &str, root: &Path) {
        let own = json!({"ansible_connection": "local", "mco_rescue_root": root});
        self.host_with(name, own);
    }

    /// Adds a host with these variables.
    pub fn host_with(&mut self, name: &str, mut own: Value) {
        own["ansible_remote_tmp"] = json!(self.path("remote").join(name));
        own["ansible_python_interpreter"] = json!("/nonexistent");
        self.hosts.push((name.to_owned(), own));
    }

    /// Goes on with one host alone.
    pub fn only(&mut self, name: &str) {
        self.hosts.retain(|(host, _)| host == name);
    }

    /// A path in the directory of this fleet.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of the control host, and gives its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The playbook with these variables.
    pub fn play(&self, variables: &Value, options: &[&str]) -> Play {
        let hosts: serde_json::Map<String, Value> = self.hosts.iter().cloned().collect();
        let inventory = json!({"nodes": {"hosts": hosts}});
        self.play_book("playbook.yml", &inventory, variables, options)
    }

    /// The playbook of a fleet: hosts whose name begins with `master` are control planes, all others workers.
    pub fn play_fleet(&self, variables: &Value, options: &[&str]) -> Play {
        let (masters, workers): (serde_json::Map<_, _>, serde_json::Map<_, _>) = self
            .hosts
            .iter()
            .cloned()
            .partition(|(name, _)| name.starts_with("master"));
        let inventory =
            json!({"control_planes": {"hosts": masters}, "workers": {"hosts": workers}});
        self.play_book("playbooks/fleet.yml", &inventory, variables, options)
    }

    fn play_book(
        &self,
        book: &str,
        inventory: &Value,
        variables: &Value,
        options: &[&str],
    ) -> Play {
        let mut all = json!({
            "mco_rescue_become": false,
            "mco_rescue_binary": stripped(),
            "mco_rescue_workspace": self.path("workspace"),
            "mco_rescue_reports": self.path("reports"),
        });
        let given = variables.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(given);
        let mut command = Command::new(&self.ansible);
        command
            .arg("-i")
            .arg(self.write("hosts.json", &inventory.to_string()));
        command.args(["-e", &all.to_string()]).args(options);
        command.arg(checkout().join("examples/ansible").join(book));
        // Nobody's own settings; the rest of the environment stays, as of a person who calls it.
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ANSIBLE")) {
            command.env_remove(name);
        }
        command.env("HOME", self.path("home")).env("NO_COLOR", "1");
        command.env("ANSIBLE_NOCOLOR", "1").env("LC_ALL", "C.UTF-8");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        Play(Run::of(command.output().unwrap()))
    }

    /// The status document that was gathered of a host.
    pub fn report(&self, host: &str) -> Option<Value> {
        let text = fs::read(self.path("reports").join(format!("{host}.json"))).ok()?;
        Some(serde_json::from_slice(&text).unwrap())
    }

    /// Every file that is left where the nodes had the program and the config.
    pub fn left_behind(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for directory in ["workspace", "remote"] {
            files(&self.path(directory), &mut found);
        }
        found
    }
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The program under test without debugging information, which would be copied to every host.
fn stripped() -> &'static Path {
    static STRIPPED: OnceLock<TempDir> = OnceLock::new();
    let dir = STRIPPED.get_or_init(|| {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = dir.path().join("mco-rescue");
        let status = Command::new("strip")
            .arg("-o")
            .arg(path)
            .arg(PROGRAM)
            .status();
        assert!(status.unwrap().success());
        dir
    });
    Box::leak(Box::new(dir.path().join("mco-rescue")))
}

/// A finished playbook.
pub struct Play(pub Run);

impl Play {
    /// Panics with all that it said unless every host came to its end.
    pub fn ok(self) -> Self {
        Self(self.0.ok())
    }

    /// Panics with all that it said unless a host failed.
    pub fn fails(self) -> Self {
        assert_ne!(self.0.code(), 0, "{}{}", self.0.out(), self.0.err());
        self
    }

    /// All that it said.
    pub fn said(&self) -> String {
        self.0.out() + &self.0.err()
    }

    /// What it counted for a host, such as `changed`; `None` of one that it never came to.
    pub fn count(&self, host: &str, what: &str) -> Option<u32> {
        let out = self.0.out();
        let (_, recap) = out.split_once("PLAY RECAP")?;
        let of_host = |line: &&str| line.split_whitespace().next() == Some(host);
        let line = recap.lines().find(of_host)?;
        let number = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix(&format!("{what}=")));
        Some(number?.parse().unwrap())
    }
}
