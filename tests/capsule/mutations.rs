//! Random sticks: whatever a stick has become, a node applies what was signed or nothing.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::keys::{Stick, config_text, make_key, sign};
use super::moments::number;
use super::signatures::{NAMESPACE, Numbers, is_verified};
use crate::support::faults::{copy_tree, duplicate, on_threads};
use crate::support::{flat, say};

const MUTATIONS: usize = 500;
const FILES: [&str; 3] = ["capsule.json", "capsule.json.sig", "configs/one.json"];
const LETTERS: &[u8] = b"0123456789\"{}[],: \n=/.A";
const TEXTS: [&str; 2] = ["1\n", "2\n"];

/// Two signed capsules, each with a config of the same size, and files that an attacker may have.
struct Signed {
    /// Files of each capsule, in the order of [`FILES`].
    capsules: [[Vec<u8>; 3]; 2],
    /// Signatures of the first capsule by another key, and for another purpose.
    others: [Vec<u8>; 2],
}

impl Signed {
    fn new(stick: &Stick) -> Option<Self> {
        let read = || FILES.map(|name| fs::read(stick.path(name)).unwrap());
        let first = read();
        let keys = tempfile::tempdir().unwrap();
        let other = make_key(keys.path(), "other", &["ed25519"])?;
        let list = stick.stick.path().join(FILES[0]);
        let others = [(&other.file, NAMESPACE), (&stick.key.file, "file")]
            .map(|(key, namespace)| sign(key, namespace, &list, &[]));
        stick.put(FILES[2], &config_text("rendered-worker-2", TEXTS[1]));
        stick.make(&["--sequence", "8"]);
        let capsules = [first, read()];
        assert_eq!(capsules[0][2].len(), capsules[1][2].len());
        Some(Self { capsules, others })
    }

    /// Returns one of the attacker's files, to replace a file of the capsule.
    fn any(&self, place: usize, numbers: &mut Numbers) -> &[u8] {
        match numbers.below(if place == 1 { 4 } else { 2 }) {
            capsule @ (0 | 1) => &self.capsules[capsule][place],
            other => &self.others[other - 2],
        }
    }

    /// Files of a stick after one to three changes.
    fn mutated(&self, numbers: &mut Numbers) -> [Vec<u8>; 3] {
        let mut files = self.capsules[numbers.below(2)].clone();
        for _ in 0..=numbers.below(3) {
            let place = numbers.below(3);
            let other = self.any(place, numbers).to_vec();
            mutate(&mut files[place], &other, numbers);
        }
        files
    }
}

/// Makes one change, perhaps with a part of another file.
fn mutate(file: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let at = numbers.below(file.len().max(1));
    let end = file.len().min(at + 1 + numbers.below(40));
    let range = at..end;
    match numbers.below(10) {
        0 | 1 => *file = other.to_vec(),
        2 if !file.is_empty() => file[at] ^= 1 << numbers.below(8),
        3 if !file.is_empty() => file[at] = LETTERS[numbers.below(LETTERS.len())],
        4 => drop(file.drain(range)),
        5 => file.truncate(at),
        6 => {
            let part = file[range].to_vec();
            let to = numbers.below(file.len().max(1));
            file.splice(to..to, part);
        }
        7 => {
            let from = numbers.below(other.len());
            let part = &other[from..other.len().min(from + 40)];
            file.splice(range, part.to_vec());
        }
        8 if !file.is_empty() => {
            let mut lines: Vec<Vec<u8>> = file
                .split_inclusive(|byte| *byte == b'\n')
                .map(<[u8]>::to_vec)
                .collect();
            let (one, two) = (numbers.below(lines.len()), numbers.below(lines.len()));
            lines.swap(one, two);
            *file = lines.concat();
        }
        _ => file.extend_from_slice(&other[..other.len().min(end)]),
    }
}

/// The number of the capsule that was applied; `None` if nothing was. Anything else is a complaint.
fn judge(stick: &Stick, signed: &Signed, files: &[Vec<u8>; 3]) -> Result<Option<usize>, String> {
    let (root, media) = (duplicate(stick.root.dir()), tempfile::tempdir().unwrap());
    copy_tree(stick.stick.path(), media.path());
    for (name, bytes) in FILES.iter().zip(files) {
        fs::write(media.path().join(name), bytes).unwrap();
    }
    let before = root.snapshot();
    let config = media.path().join(FILES[2]);
    let run = root.run(&["apply", "--yes", config.to_str().unwrap()]);
    let said = flat(&format!("{} {}", run.out(), run.err()));
    let read = |path: &Path| fs::read_to_string(path).ok();
    let applied = read(&root.path("etc/from-stick"));
    if run.code() == 1 && applied.is_none() && root.snapshot() == before {
        return Ok(None);
    }
    let which = TEXTS
        .iter()
        .position(|text| applied.as_deref() == Some(*text));
    let signed = which.filter(|which| {
        let [list, _, config] = &signed.capsules[*which];
        (list, config) == (&files[0], &files[2])
    });
    match signed {
        Some(which) if run.code() == 0 && number(&root) == Some(7 + which as u64) => {
            let allowed = root.path("etc/mco-rescue/allowed_signers");
            let signature = media.path().join(FILES[1]);
            if is_verified(
                &allowed,
                "alice@example.com",
                NAMESPACE,
                &signature,
                &files[0],
            ) {
                Ok(Some(which))
            } else {
                Err(format!("ssh-keygen does not accept this signature: {said}"))
            }
        }
        _ => Err(format!(
            "{}, {applied:?}, {:?}: {said}",
            run.code(),
            number(&root)
        )),
    }
}

#[test]
fn a_stick_with_random_changes_gives_what_was_signed_or_nothing() {
    let Some(stick) = Stick::new() else { return };
    let Some(signed) = Signed::new(&stick) else {
        return;
    };
    let counts = [const { AtomicUsize::new(0) }; 3];
    let times = std::env::var("MCO_RESCUE_MUTATIONS").ok();
    let times: usize = times.map_or(1, |times| times.parse().unwrap());
    let all: Vec<usize> = (0..MUTATIONS * times).collect();
    let problems = on_threads(&all, |seed| {
        let mut numbers = Numbers::of_seed(*seed);
        let files = signed.mutated(&mut numbers);
        let is_changed = signed.capsules.iter().all(|whole| *whole != files);
        let kind = match judge(&stick, &signed, &files) {
            Ok(None) => 0,
            Ok(Some(_)) => 1 + usize::from(is_changed),
            Err(why) => return vec![format!("mutation {seed}: {why}")],
        };
        counts[kind].fetch_add(1, Ordering::Relaxed);
        Vec::new()
    });
    let [refused, whole, other] = counts.map(AtomicUsize::into_inner);
    say(&format!(
        "{} changed sticks: {refused} refused, {whole} were whole capsules again, {other} had another signature of the same list",
        all.len()
    ));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(refused * 2 > all.len() && whole > 0, "{refused} {whole}");
}
