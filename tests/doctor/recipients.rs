//! `doctor --bundle --recipient`: what is encrypted here is opened by the real `age`, with keys that it and the real
//! `ssh-keygen` made.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::{Lacks, TestRoot, flat, skip};

/// Keys of a person: the secret one in a file, the public one as a line.
struct Pair {
    secret: PathBuf,
    public: String,
}

/// A root, and a directory for what is written.
struct Desk {
    root: TestRoot,
    dir: TempDir,
}

impl Desk {
    fn new() -> Self {
        Self {
            root: TestRoot::new(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn ssh(&self, name: &str, kind: &[&str]) -> Option<Pair> {
        let secret = self.path(name);
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-N", "", "-C", "me@desk", "-t"]);
        let made = command.args(kind).arg("-f").arg(&secret).output();
        if !made.is_ok_and(|made| made.status.success()) {
            skip(
                Lacks::Setup,
                "no keys of ssh-keygen (Debian: openssh-client)",
            );
            return None;
        }
        let public = fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
        Some(Pair {
            secret,
            public: public.trim().to_owned(),
        })
    }

    fn age(&self, name: &str) -> Option<Pair> {
        let secret = self.path(name);
        let made = Command::new("age-keygen").arg("-o").arg(&secret).output();
        if !made.is_ok_and(|made| made.status.success()) {
            skip(Lacks::Setup, "no keys of age-keygen (Debian: age)");
            return None;
        }
        let text = fs::read_to_string(&secret).unwrap();
        let mut lines = text.lines();
        let public = lines.find_map(|line| line.strip_prefix("# public key: "));
        Some(Pair {
            public: public.unwrap().to_owned(),
            secret,
        })
    }

    /// Every kind of key that there is.
    fn keys(&self) -> Option<Vec<Pair>> {
        Some(vec![
            self.age("age")?,
            self.ssh("ed25519", &["ed25519"])?,
            self.ssh("rsa2048", &["rsa", "-b", "2048"])?,
            // 384 bytes are 512 letters: eight whole lines and an empty one.
            self.ssh("rsa3072", &["rsa", "-b", "3072"])?,
        ])
    }

    /// Writes a bundle for these keys, and gives its path and what was said.
    fn bundle(&self, name: &str, keys: &[&str]) -> (PathBuf, String) {
        let path = self.path(name);
        let mut command = self.root.command(&["doctor", "--bundle"]);
        command.arg(&path).stdin(Stdio::null());
        for key in keys {
            command.args(["--recipient", key]);
        }
        let output = command.output().unwrap();
        let code = output.status.code().unwrap();
        assert!([0, 1, 3, 6].contains(&code), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        (path, said + &String::from_utf8(output.stderr).unwrap())
    }
}

/// The content as the real `age` decrypts it; nothing if the key is not the one.
fn opened(secret: &Path, path: &Path) -> Option<Vec<u8>> {
    let mut age = Command::new("age");
    age.arg("-d").arg("-i").arg(secret).arg(path);
    let output = age.stdin(Stdio::null()).output().unwrap();
    output.status.success().then_some(output.stdout)
}

/// Names and contents of the archive, by the real `tar`.
fn listed(archive: &[u8]) -> String {
    let mut tar = Command::new("tar")
        .args(["-tzf", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut tar.stdin.take().unwrap(), archive).unwrap();
    let output = tar.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_kind_of_key_opens_the_bundle_with_the_real_age_and_no_other_does() {
    let desk = Desk::new();
    let (Some(keys), Some(stranger)) = (desk.keys(), desk.age("stranger")) else {
        return;
    };
    for (number, pair) in keys.iter().enumerate() {
        let (path, said) = desk.bundle(&format!("{number}.age"), &[&pair.public]);
        let archive = opened(&pair.secret, &path).unwrap_or_else(|| panic!("{said}"));
        let names = listed(&archive);
        assert!(names.contains("mco-rescue-bundle/doctor.json"), "{names}");
        assert_eq!(opened(&stranger.secret, &path), None, "{said}");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(
            said.contains(&format!("age -d -i KEYFILE {}", path.display())),
            "{said}"
        );
        let bytes = fs::read(&path).unwrap();
        let clear = b"mco-rescue";
        assert!(!bytes.windows(clear.len()).any(|part| part == clear));
    }
}

#[test]
fn one_bundle_for_several_people_is_opened_by_each() {
    let desk = Desk::new();
    let Some(keys) = desk.keys() else { return };
    // Two lines of a file as sshd reads it, with a comment and options; one key given itself, and one of them twice.
    let file = desk.path("authorized_keys");
    let text = format!(
        "# us\n\n{}\nfrom=\"10.0.0.0/8,a b\",no-pty {}\n",
        keys[1].public, keys[2].public
    );
    fs::write(&file, text).unwrap();
    let given = [
        keys[0].public.as_str(),
        file.to_str().unwrap(),
        &keys[1].public,
        &keys[3].public,
    ];
    let (path, said) = desk.bundle("all.age", &given);
    let mut contents = keys.iter().map(|pair| opened(&pair.secret, &path));
    let first = contents.next().unwrap();
    assert!(
        first.is_some() && contents.all(|one| one == first),
        "{said}"
    );
    // Each is named once: an ssh key by its fingerprint.
    assert_eq!(said.matches("\n  ssh-ed25519 SHA256:").count(), 1, "{said}");
    assert_eq!(said.matches("\n  ssh-rsa SHA256:").count(), 2, "{said}");
    assert_eq!(
        said.matches(&format!("\n  {}\n", keys[0].public)).count(),
        1,
        "{said}"
    );
}

#[test]
fn a_key_that_is_not_right_is_refused_by_its_place_and_nothing_is_written() {
    let desk = Desk::new();
    let (Some(good), Some(other)) = (
        desk.ssh("good", &["ed25519"]),
        desk.ssh("other", &["ecdsa", "-b", "256"]),
    ) else {
        return;
    };
    let Some(age) = desk.age("age") else { return };
    let secret = fs::read_to_string(&age.secret).unwrap();
    let secret = secret
        .lines()
        .find(|line| line.starts_with("AGE-"))
        .unwrap()
        .to_owned();
    let mut damaged = age.public.clone();
    damaged.pop();
    let half = &good.public[..40];
    let file = |name: &str, text: &str| {
        fs::write(desk.path(name), text).unwrap();
        desk.path(name).to_str().unwrap().to_owned()
    };
    let good_line = &good.public;
    let cases = [
        (damaged, "key 2 of --recipient is not a complete age key"),
        (
            half.to_owned(),
            "key 2 of --recipient is not a complete key",
        ),
        (secret.clone(), "key 2 of --recipient is a secret key"),
        (
            other.public.clone(),
            "key 2 of --recipient is a key of type ecdsa-sha2-nistp256, which age cannot",
        ),
        ("age1yubikey1qwerty".to_owned(), "of an age plugin"),
        (
            "nobody-there".to_owned(),
            "begins neither with age1, ssh-ed25519 nor ssh-rsa, and no file has that name",
        ),
        (
            file("keys", &format!("{good_line}\n# x\n{}\n", other.public)),
            "line 3 of",
        ),
        (
            file("garbage", &format!("{good_line}\n\u{1}\u{2}rubbish\n")),
            "line 2 of",
        ),
        (file("secret", &secret), "is a secret key"),
        (file("empty", "# nobody\n"), "has no key"),
        (good.secret.to_str().unwrap().to_owned(), "is a secret key"),
        (
            desk.dir.path().to_str().unwrap().to_owned(),
            "reading the keys",
        ),
    ];
    for (key, words) in cases {
        let path = desk.path("bundle");
        let run = desk.root.run(&[
            "doctor",
            "--bundle",
            path.to_str().unwrap(),
            "--recipient",
            good_line,
            "--recipient",
            &key,
        ]);
        assert_eq!(run.code(), 1, "{words}: {}", run.out());
        let said = flat(&run.err());
        assert!(said.contains(words), "no {words:?} in {said}");
        assert!(!said.contains(&secret), "{said}");
        assert!(!path.exists(), "{words}");
    }
}

#[test]
fn keys_without_a_bundle_are_a_wrong_command_line() {
    let root = TestRoot::new();
    root.run(&["doctor", "--recipient", "age1"]).exits(2);
    root.run(&["doctor", "FP-03", "--bundle", "x", "--recipient", "age1"])
        .exits(2);
}

#[test]
fn what_is_there_is_not_written_over_by_an_encrypted_one_either() {
    let desk = Desk::new();
    let Some(pair) = desk.age("age") else { return };
    fs::write(desk.path("bundle"), "mine").unwrap();
    std::os::unix::fs::symlink("nowhere", desk.path("link")).unwrap();
    for name in ["bundle", "link"] {
        let (path, said) = desk.bundle(name, &[&pair.public]);
        assert!(said.contains("give another FILE"), "{said}");
        let is_link = fs::symlink_metadata(&path).unwrap().is_symlink();
        assert_eq!(is_link, name == "link");
    }
    assert_eq!(fs::read_to_string(desk.path("bundle")).unwrap(), "mine");
    let mut left: Vec<_> = fs::read_dir(desk.dir.path())
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["age", "bundle", "link"]);
}
