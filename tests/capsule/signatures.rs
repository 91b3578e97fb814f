//! Signatures: the verdicts are those of `ssh-keygen -Y verify`, or stricter where the documentation says so.

use std::fs;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mco_rescue::formats::sshsig::{AllowedSigners, SshSignature};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use sha2::{Digest, Sha256, Sha512};

use super::keys::{SigningKey, Stick, make_key, sign};
use crate::support::flat;

pub(super) const NAMESPACE: &str = "mco-rescue-capsule";
/// The time of every verdict: 2026-07-01.
const TIME: (u64, &str) = (1_782_864_000, "20260701000000Z");

/// Numbers that are the same in each run.
pub(super) struct Numbers(u64);

impl Numbers {
    /// Numbers that differ from those of any other seed.
    pub(super) fn of_seed(seed: usize) -> Self {
        let seed = u64::try_from(seed).unwrap() + 1;
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }
}

fn armored(blob: &[u8]) -> Vec<u8> {
    let letters = STANDARD.encode(blob);
    let mut out = "-----BEGIN SSH SIGNATURE-----\n".to_owned();
    for line in letters.as_bytes().chunks(70) {
        out.push_str(std::str::from_utf8(line).unwrap());
        out.push('\n');
    }
    out.push_str("-----END SSH SIGNATURE-----\n");
    out.into_bytes()
}

fn decoded(armored: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(armored).unwrap();
    let letters: String = text
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    STANDARD.decode(letters).unwrap()
}

/// What is asked of both.
#[derive(Debug)]
struct Question<'a> {
    allowed: &'a Path,
    signature: Vec<u8>,
    message: Vec<u8>,
    principal: &'a str,
    namespace: &'a str,
}

impl Question<'_> {
    fn ours(&self) -> Result<(), String> {
        let allowed = AllowedSigners::parse(&fs::read_to_string(self.allowed).unwrap());
        let signature = SshSignature::parse(&self.signature).map_err(|error| error.to_string())?;
        let signer = allowed.verify(&signature, &self.message, self.namespace, TIME.0);
        let signer = signer.map_err(|error| error.to_string())?;
        let mut principals = signer.principals.split(',');
        if principals.any(|one| match one.strip_prefix('*') {
            Some(domain) => self.principal.ends_with(domain),
            None => self.principal == one,
        }) {
            Ok(())
        } else {
            Err("is by another person".to_owned())
        }
    }

    fn of_openssh(&self, directory: &Path) -> bool {
        let signature = directory.join("asked.sig");
        fs::write(&signature, &self.signature).unwrap();
        is_verified(
            self.allowed,
            self.principal,
            self.namespace,
            &signature,
            &self.message,
        )
    }

    /// Asks both, and returns the verdict that they share. OpenSSH also accepts version 0, which nothing writes.
    fn agreed(&self, directory: &Path) -> bool {
        let (ours, theirs) = (self.ours(), self.of_openssh(directory));
        if matches!(&ours, Err(why) if why.starts_with("has version 0")) {
            return false;
        }
        assert_eq!(ours.is_ok(), theirs, "{ours:?}\n{self:?}");
        theirs
    }
}

/// Returns true if `ssh-keygen -Y verify` accepts a signature at [`TIME`].
pub(super) fn is_verified(
    allowed: &Path,
    principal: &str,
    namespace: &str,
    signature: &Path,
    message: &[u8],
) -> bool {
    let mut asked = tempfile::tempfile().unwrap();
    asked.write_all(message).unwrap();
    asked.rewind().unwrap();
    let mut command = Command::new("ssh-keygen");
    command.env("TZ", "UTC").args(["-Y", "verify", "-f"]);
    command.arg(allowed).args(["-I", principal]);
    command.args(["-n", namespace, "-s"]).arg(signature);
    command.arg(format!("-Overify-time={}", TIME.1));
    let output = command.stdin(Stdio::from(asked)).output().unwrap();
    output.status.success()
}

fn keys_in(directory: &Path) -> Option<Vec<SigningKey>> {
    let kinds: [(&str, &[&str]); 5] = [
        ("ed25519", &["ed25519"]),
        ("p256", &["ecdsa", "-b", "256"]),
        ("p384", &["ecdsa", "-b", "384"]),
        ("rsa2048", &["rsa", "-b", "2048"]),
        ("rsa3072", &["rsa", "-b", "3072"]),
    ];
    let made = kinds
        .iter()
        .map(|(name, kind)| make_key(directory, name, kind));
    made.collect()
}

#[test]
fn a_thousand_signatures_get_the_verdict_of_ssh_keygen() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let Some(keys) = keys_in(directory) else {
        return;
    };
    let allowed = directory.join("allowed");
    // Each line has its own form; the last but one key is expired for one person, and not for another.
    let lines = [
        format!("alice {}", keys[0].public),
        format!(
            "*@example.com,bob namespaces=\"git,mco-*\" {} x y",
            keys[1].public
        ),
        format!(
            "carol valid-after=\"20260101\",valid-before=\"20270101Z\" {}",
            keys[2].public
        ),
        format!("dora namespaces=\"git\" {}", keys[3].public),
        format!("eve valid-before=\"20260630235959Z\" {}", keys[4].public),
    ];
    fs::write(&allowed, lines.join("\n") + "\n").unwrap();
    let people = ["alice", "bob", "carol", "dora", "eve", "x@example.com"];
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let (mut asked, mut accepted) = (0, 0);
    while asked < 1000 {
        let index = numbers.below(keys.len());
        let message = format!("capsule {asked}").into_bytes();
        let file = directory.join("message");
        fs::write(&file, &message).unwrap();
        let namespace = ["git", NAMESPACE][usize::from(index != 3)];
        let hash = ["-Ohashalg=sha256", "-Ohashalg=sha512"][numbers.below(2)];
        let signature = sign(&keys[index].file, namespace, &file, &[hash]);
        let blob = decoded(&signature);
        for change in 0..5 {
            let mut question = Question {
                allowed: &allowed,
                signature: signature.clone(),
                message: message.clone(),
                principal: people[index],
                namespace,
            };
            let mut changed = blob.clone();
            let place = numbers.below(blob.len());
            match change {
                0 => {}
                1 => changed[place] ^= 1 << numbers.below(8),
                2 if numbers.below(2) == 0 => changed.truncate(place),
                2 => changed.push(0),
                3 => {
                    question.principal = people[numbers.below(people.len())];
                    question.namespace = ["git", NAMESPACE, "file"][numbers.below(3)];
                }
                _ => {
                    question.message = format!("capsule {}", asked + numbers.below(2)).into_bytes()
                }
            }
            if changed != blob {
                question.signature = armored(&changed);
            }
            accepted += usize::from(question.agreed(directory));
            asked += 1;
        }
    }
    assert!((150..600).contains(&accepted), "{accepted} of {asked}");
}

fn put(out: &mut Vec<u8>, field: &[u8]) {
    out.extend(u32::try_from(field.len()).unwrap().to_be_bytes());
    out.extend(field);
}

/// Signs bytes.
type Signer = Box<dyn Fn(&[u8]) -> Vec<u8>>;

/// A key on a token, with what the token would do.
struct Token {
    kind: &'static str,
    blob: Vec<u8>,
    sign: Signer,
}

impl Token {
    fn ed25519() -> Self {
        let random = SystemRandom::new();
        let document = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let kind = "sk-ssh-ed25519@openssh.com";
        let mut blob = Vec::new();
        for field in [kind.as_bytes(), pair.public_key().as_ref(), b"ssh:"] {
            put(&mut blob, field);
        }
        let sign = move |message: &[u8]| pair.sign(message).as_ref().to_vec();
        Self {
            kind,
            blob,
            sign: Box::new(sign),
        }
    }

    fn p256() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let kind = "sk-ecdsa-sha2-nistp256@openssh.com";
        let mut blob = Vec::new();
        for field in [
            kind.as_bytes(),
            b"nistp256",
            pair.public_key().as_ref(),
            b"ssh:",
        ] {
            put(&mut blob, field);
        }
        let sign = move |message: &[u8]| {
            let made = pair.sign(&SystemRandom::new(), message).unwrap();
            let mut out = Vec::new();
            for half in made.as_ref().chunks(32) {
                let digits: Vec<u8> = half.iter().copied().skip_while(|byte| *byte == 0).collect();
                let zero = digits[0] >= 0x80;
                put(&mut out, &[&[0][..usize::from(zero)], &digits].concat());
            }
            out
        };
        Self {
            kind,
            blob,
            sign: Box::new(sign),
        }
    }

    fn signature(&self, message: &[u8], flags: u8, counter: u32) -> Vec<u8> {
        let mut signed = b"SSHSIG".to_vec();
        for field in [
            NAMESPACE.as_bytes(),
            b"",
            b"sha512",
            &Sha512::digest(message),
        ] {
            put(&mut signed, field);
        }
        let mut asked = Sha256::digest(b"ssh:").to_vec();
        asked.push(flags);
        asked.extend(counter.to_be_bytes());
        asked.extend(Sha256::digest(&signed));
        let mut inner = Vec::new();
        put(&mut inner, self.kind.as_bytes());
        put(&mut inner, &(self.sign)(&asked));
        inner.push(flags);
        inner.extend(counter.to_be_bytes());
        let mut out = b"SSHSIG\0\0\0\x01".to_vec();
        for field in [&self.blob, NAMESPACE.as_bytes(), b"", b"sha512", &inner] {
            put(&mut out, field);
        }
        armored(&out)
    }
}

#[test]
fn a_key_on_a_token_signs_if_somebody_touched_it() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    if make_key(directory, "any", &["ed25519"]).is_none() {
        return;
    }
    for token in [Token::ed25519(), Token::p256()] {
        let allowed = directory.join("allowed");
        let line = format!("token {} {}\n", token.kind, STANDARD.encode(&token.blob));
        fs::write(&allowed, line).unwrap();
        let question = |flags, counter, message: &[u8]| Question {
            allowed: &allowed,
            signature: token.signature(b"capsule", flags, counter),
            message: message.to_vec(),
            principal: "token",
            namespace: NAMESPACE,
        };
        for (flags, counter) in [(1, 0), (5, 77)] {
            assert!(question(flags, counter, b"capsule").agreed(directory));
        }
        assert!(!question(1, 5, b"another").agreed(directory));
        // ssh-keygen asks for none of the flags. A flag that only says that a PIN was given is no touch.
        for flags in [0, 4] {
            let untouched = question(flags, 5, b"capsule");
            assert!(untouched.of_openssh(directory), "{flags}");
            let why = untouched.ours().unwrap_err();
            assert!(why.contains("was not touched"), "{flags}: {why}");
        }
        let blob = decoded(&token.signature(b"capsule", 1, 1));
        for place in 0..blob.len() {
            let mut changed = blob.clone();
            changed[place] ^= 1;
            let question = Question {
                signature: armored(&changed),
                ..question(1, 1, b"capsule")
            };
            assert!(question.ours().is_err(), "byte {place}");
        }
    }
}

#[test]
fn a_capsule_is_read_by_the_key_of_a_token_if_somebody_touched_it() {
    for token in [Token::ed25519(), Token::p256()] {
        let Some(stick) = Stick::new() else { return };
        let line = format!(
            "token@example.com namespaces=\"{NAMESPACE}\" {} {}\n",
            token.kind,
            STANDARD.encode(&token.blob)
        );
        stick.root.write("etc/mco-rescue/allowed_signers", &line);
        let list = fs::read(stick.path("capsule.json")).unwrap();
        let sign = |flags, counter| {
            let signature = token.signature(&list, flags, counter);
            fs::write(stick.path("capsule.json.sig"), signature).unwrap();
        };
        let verify = || {
            let run = stick
                .root
                .run(&["capsule", "verify", &stick.path(""), "-o", "json"]);
            (run.code(), flat(&format!("{} {}", run.out(), run.err())))
        };
        // The key of the stick is trusted no more, and the token did not sign yet.
        stick.refuses("the signature of");
        sign(0, 7);
        let (code, said) = verify();
        assert!(code == 1 && said.contains("was not touched"), "{said}");
        stick.refuses("was not touched");
        sign(1, u32::MAX);
        let text = String::from_utf8(list.clone()).unwrap();
        stick.put("capsule.json", &text.replace(": 7,", ": 8,"));
        stick.refuses("does not match");
        stick.put("capsule.json", &text);
        let (code, said) = verify();
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("token@example.com"), "{said}");
        assert_eq!(stick.apply().code(), 0);
        let status = stick.root.run(&["status", "--output", "json"]).json();
        let signed = &status["recorded_signed"];
        assert_eq!(signed["signer"], "token@example.com", "{status:#}");
    }
}

/// Replaces the last occurrence of a field in a signature.
fn replaced(blob: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let places = blob.windows(from.len()).rposition(|part| part == from);
    let place = places.unwrap();
    [&blob[..place], to, &blob[place + from.len()..]].concat()
}

#[test]
fn what_openssh_would_let_pass_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    let Some(key) = make_key(directory, "key", &["ed25519"]) else {
        return;
    };
    let message = directory.join("message");
    fs::write(&message, "capsule").unwrap();
    let allowed = directory.join("allowed");
    let refused = |signature: &[u8], words: &str| {
        let question = Question {
            allowed: &allowed,
            signature: signature.to_vec(),
            message: b"capsule".to_vec(),
            principal: "a",
            namespace: NAMESPACE,
        };
        let said = question.ours().unwrap_err();
        assert!(said.contains(words), "{said}");
    };
    fs::write(&allowed, format!("a {}\n", key.public)).unwrap();
    let good = sign(&key.file, NAMESPACE, &message, &[]);
    refused(&[&good, b"x".as_slice()].concat(), "follows its last line");
    refused(&[b"\n", good.as_slice()].concat(), "first line");
    refused(&good.repeat(2), "follows its last line");
    refused(&vec![b'A'; 20_000], "too large");
    refused(
        &armored(&[&decoded(&good), b"".as_slice(), b"\0"].concat()),
        "follows its last field",
    );

    // A certificate: OpenSSH takes it if its authority is in the file.
    let mut command = Command::new("ssh-keygen");
    command
        .args(["-q", "-s"])
        .arg(&key.file)
        .args(["-I", "a", "-n", "a"]);
    assert!(make_key(directory, "user", &["ed25519"]).is_some());
    assert!(
        command
            .arg(directory.join("user.pub"))
            .status()
            .unwrap()
            .success()
    );
    fs::write(&allowed, format!("a cert-authority {}\n", key.public)).unwrap();
    let certified = sign(&directory.join("user-cert.pub"), NAMESPACE, &message, &[]);
    refused(&certified, "certificate");
    let parsed = AllowedSigners::parse(&fs::read_to_string(&allowed).unwrap());
    assert!(
        parsed.skipped.len() == 1
            && parsed.skipped[0]
                .reason
                .to_string()
                .contains("cert-authority")
    );

    // SHA-1 has the name of the key.
    let rsa = make_key(directory, "rsa", &["rsa", "-b", "2048"]).unwrap();
    fs::write(&allowed, format!("a {}\n", rsa.public)).unwrap();
    let blob = decoded(&sign(&rsa.file, NAMESPACE, &message, &[]));
    let mut sha1 = replaced(&blob, b"rsa-sha2-512", b"ssh-rsaaaaaa");
    refused(&armored(&sha1), "ssh-rsaaaaaa");
    let at = sha1
        .windows(12)
        .rposition(|part| part == b"ssh-rsaaaaaa")
        .unwrap();
    sha1.drain(at + 7..at + 12);
    sha1[at - 1] = 7;
    // The field around it is five bytes shorter, too.
    let around = at - 8;
    let length = u32::from_be_bytes(sha1[around..around + 4].try_into().unwrap()) - 5;
    sha1[around..around + 4].copy_from_slice(&length.to_be_bytes());
    refused(&armored(&sha1), "algorithm ssh-rsa,");

    let p521 = make_key(directory, "p521", &["ecdsa", "-b", "521"]).unwrap();
    fs::write(&allowed, format!("a {}\n", p521.public)).unwrap();
    refused(&sign(&p521.file, NAMESPACE, &message, &[]), "P-521");
    let small = make_key(directory, "small", &["rsa", "-b", "1024"]).unwrap();
    fs::write(&allowed, format!("a {}\n", small.public)).unwrap();
    refused(&sign(&small.file, NAMESPACE, &message, &[]), "1024 bits");
}
