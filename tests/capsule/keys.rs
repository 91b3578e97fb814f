//! Keys and signatures of the real `ssh-keygen`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Lacks, Run, TestRoot, file, flat, machine_config, skip};

/// A key that `ssh-keygen` made.
#[derive(Debug, Clone)]
pub struct SigningKey {
    pub file: PathBuf,
    /// Type and key, without a comment.
    pub public: String,
}

/// Makes a key; `None` without `ssh-keygen`.
pub fn make_key(directory: &Path, name: &str, kind: &[&str]) -> Option<SigningKey> {
    let file = directory.join(name);
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-N", "", "-C", "", "-t"]).args(kind);
    let made = command.arg("-f").arg(&file).output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip(
            Lacks::Setup,
            "no keys of ssh-keygen (Debian: openssh-client)",
        );
        return None;
    }
    let public = fs::read_to_string(file.with_extension("pub")).unwrap();
    Some(SigningKey {
        file,
        public: public.trim().to_owned(),
    })
}

/// Signs a message with `ssh-keygen -Y sign`.
pub fn sign(key: &Path, namespace: &str, message: &Path, options: &[&str]) -> Vec<u8> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-Y", "sign", "-f"]).arg(key);
    command.args(["-n", namespace]).args(options);
    let input = fs::File::open(message).unwrap();
    let made = command.stdin(Stdio::from(input)).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    made.stdout
}

/// A stick and a node that trusts a key.
pub struct Stick {
    pub root: TestRoot,
    pub stick: TempDir,
    pub key: SigningKey,
    _keys: TempDir,
}

/// The config on the stick.
pub const NAME: &str = "rendered-worker-1";

/// A rendered config with one file.
pub fn config_text(name: &str, text: &str) -> String {
    let files = json!({"storage": {"files": [file("/etc/from-stick", 0o644, text)]}});
    machine_config(name, files).to_string()
}

impl Stick {
    /// A stick with a config, a signed capsule, and a node whose policy demands one for everything; `None` without `ssh-keygen`.
    pub fn new() -> Option<Self> {
        let keys = tempfile::tempdir().unwrap();
        let key = make_key(keys.path(), "key", &["ed25519"])?;
        let stick = Self {
            root: TestRoot::new(),
            stick: tempfile::tempdir().unwrap(),
            key,
            _keys: keys,
        };
        stick.put("configs/one.json", &config_text(NAME, "1\n"));
        stick.allow("");
        let all = "media = required\nfirst-boot = required\nstdin = required\nimages = required\n";
        stick.root.write("etc/mco-rescue/policy", all);
        stick.make(&["--sequence", "7"]);
        Some(stick)
    }

    pub fn path(&self, name: &str) -> String {
        self.stick.path().join(name).display().to_string()
    }

    pub fn config(&self) -> String {
        self.path("configs/one.json")
    }

    pub fn put(&self, name: &str, text: &str) {
        let path = self.stick.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes the node trust the key, with options of a line.
    pub fn allow(&self, options: &str) {
        let line = format!("alice@example.com {options} {}\n", self.key.public);
        self.root.write("etc/mco-rescue/allowed_signers", &line);
    }

    /// Makes the capsule anew, as a person elsewhere does.
    pub fn make(&self, more: &[&str]) -> Run {
        let (stick, key) = (self.path(""), self.key.file.display().to_string());
        let args = [&["capsule", "make", &stick, "--sign", &key], more].concat();
        let run = self.root.run(&args);
        assert_eq!(run.code(), 0, "{}", run.err());
        run
    }

    /// Signs `capsule.json` as it is.
    pub fn sign_as(&self, key: &Path, namespace: &str) {
        let list = self.stick.path().join("capsule.json");
        let signature = sign(key, namespace, &list, &[]);
        fs::write(self.stick.path().join("capsule.json.sig"), signature).unwrap();
    }

    /// Changes `capsule.json` and signs it again.
    pub fn change(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.path("capsule.json")).unwrap();
        let changed = text.replace(from, to);
        assert_ne!(changed, text, "{from}");
        self.put("capsule.json", &changed);
        self.sign_as(&self.key.file, "mco-rescue-capsule");
    }

    /// Applies the config.
    pub fn apply(&self) -> Run {
        self.root.run(&["apply", "--yes", &self.config()])
    }

    /// Asserts that nothing is read from the stick, by any command, with these words.
    pub fn refuses(&self, words: &str) {
        let config = self.config();
        let stick = self.path("");
        let before = self.root.snapshot();
        for command in [
            &["apply", "--yes", &config][..],
            &["plan", &config],
            &["verify", &config],
            &["fetch", &config],
            &["fetch", &stick],
        ] {
            let run = self.root.run(command);
            let said = flat(&format!("{} {}", run.out(), run.err()));
            assert_eq!(run.code(), 1, "{command:?}: {said}");
            assert!(
                said.contains(words) || *command == ["fetch", &stick],
                "{command:?}: {said}"
            );
        }
        assert_eq!(self.root.snapshot(), before);
    }
}
