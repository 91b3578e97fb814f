//! The verdict on the data of etcd beside that of the real etcd: a member with data, copies of it that are damaged, and what etcd
//! does with each.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::Value;

use super::{doctor, of};
use crate::support::mounts::with_network;
use crate::support::{Lacks, TestRoot, say, skip};

/// A fixed order of numbers for a seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % end.max(1)
    }

    fn between(&mut self, from: u64, end: u64) -> u64 {
        from + self.below(end.saturating_sub(from))
    }
}

/// What etcd did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Did {
    Started,
    Repaired,
    Refused,
}

pub(crate) struct Etcd(Child);

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a member on a directory; it has finished its start when its output says so. Returns its output until then.
pub(crate) fn start(data: &Path, state: &str, more: &[&str]) -> (Etcd, bool, String) {
    let mut etcd = Command::new("etcd");
    let (client, peer) = ("http://127.0.0.1:2379", "http://127.0.0.1:2380");
    etcd.args(["--name", "m0", "--data-dir"]).arg(data);
    etcd.args([
        "--listen-client-urls",
        client,
        "--advertise-client-urls",
        client,
    ]);
    etcd.args([
        "--listen-peer-urls",
        peer,
        "--initial-advertise-peer-urls",
        peer,
    ]);
    etcd.args([
        "--initial-cluster",
        "m0=http://127.0.0.1:2380",
        "--initial-cluster-state",
        state,
    ]);
    etcd.args([
        "--heartbeat-interval",
        "10",
        "--election-timeout",
        "100",
        "--logger",
        "zap",
    ]);
    etcd.args(["--log-outputs", "stderr"]).args(more);
    etcd.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = Etcd(etcd.spawn().unwrap());
    let output = child.0.stderr.take().unwrap();
    let mut said = String::new();
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).unwrap() > 0 {
        let text = String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned();
        said.push_str(&text);
        if text.contains("serving client traffic") {
            // A program dies of a closed output.
            std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
            return (child, true, said);
        }
    }
    (child, false, said)
}

/// What etcd does with a directory, and its words.
pub(super) fn try_start(data: &Path) -> (Did, String) {
    let before = files(&data.join("member/wal"), ".wal.broken");
    let (etcd, ready, said) = start(data, "existing", &[]);
    drop(etcd);
    let repaired = files(&data.join("member/wal"), ".wal.broken") != before;
    let did = match (ready, repaired) {
        (true, true) => Did::Repaired,
        (true, false) => Did::Started,
        (false, _) => Did::Refused,
    };
    (did, said)
}

/// Asks the member by its JSON gateway; it has to agree.
pub(crate) fn ask(path: &str, body: &str) -> Vec<u8> {
    let answer = try_ask(path, body);
    assert!(
        answer.starts_with(b"HTTP/1.0 200"),
        "{path}: {}",
        String::from_utf8_lossy(&answer)
    );
    answer
}

/// The same; it may refuse.
pub(super) fn try_ask(path: &str, body: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect("127.0.0.1:2379").unwrap();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

pub(crate) fn put(key: &str, value: &[u8]) {
    ask(
        "/v3/kv/put",
        &format!(
            r#"{{"key":"{}","value":"{}"}}"#,
            BASE64_STANDARD.encode(key),
            BASE64_STANDARD.encode(value)
        ),
    );
}

pub(super) fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let status = Command::new("cp")
        .args(["-a", "--sparse=always"])
        .arg(from)
        .arg(to)
        .status();
    assert!(status.unwrap().success());
}

/// Data directories of members, and a database that is older than the rest.
pub(super) struct Bases {
    dir: PathBuf,
    _owner: tempfile::TempDir,
}

/// Returns the bases, which are made once; within a network of its own.
pub(super) fn bases() -> &'static Bases {
    static BASES: OnceLock<Bases> = OnceLock::new();
    BASES.get_or_init(Bases::make)
}

/// Runs a test that starts etcd, in a network of its own.
pub(crate) fn with_etcd(test: impl FnOnce() + Send) {
    match Command::new("etcd").arg("--version").output() {
        Ok(_) => with_network(test),
        Err(_) => skip(Lacks::Setup, "etcd is not installed"),
    }
}

impl Bases {
    /// A member that wrote keys and snapshots, and the same with its log cut into files.
    fn make() -> Self {
        let owner = tempfile::tempdir().unwrap();
        let dir = owner.path();
        let plain = dir.join("plain");
        let (etcd, ready, said) = start(&plain, "new", &["--snapshot-count", "40"]);
        assert!(ready, "{said}");
        for number in 0..330 {
            let value = vec![b'a' + (number % 26) as u8; 40 + (number * 37) % 900];
            put(&format!("/registry/pods/p{:03}", number % 150), &value);
            if number == 60 {
                ask("/v3/lease/grant", r#"{"ID": 77, "TTL": 100000}"#);
            }
            if number == 120 {
                put("/registry/big", &vec![b'z'; 300_000]);
                // The member writes its database at the next commit of it.
                ask("/v3/maintenance/hash", "{}");
                fs::copy(plain.join("member/snap/db"), dir.join("old.db")).unwrap();
            }
        }
        for number in 0..20 {
            let key = BASE64_STANDARD.encode(format!("/registry/pods/p{number:03}"));
            ask("/v3/kv/deleterange", &format!(r#"{{"key":"{key}"}}"#));
        }
        ask(
            "/v3/kv/compaction",
            r#"{"revision": 200, "physical": true}"#,
        );
        put("/registry/last", b"last");
        drop(etcd);
        let wal = wal_files(&plain).pop().unwrap();
        // Files are allocated in advance: the zeros behind the records are made fewer.
        let used = records(&fs::read(&wal).unwrap()).last().unwrap().end as u64;
        let file = fs::OpenOptions::new().write(true).open(&wal).unwrap();
        file.set_len(used + 65536).unwrap();
        for name in ["0.tmp", "1.tmp"] {
            let _ = fs::remove_file(plain.join("member/wal").join(name));
        }
        let cut = dir.join("cut");
        copy(&plain, &cut);
        cut_log(&cut, 4);
        Self {
            dir: dir.to_owned(),
            _owner: owner,
        }
    }

    /// Puts the data of a sound member into a root; `cut`: with a log of four files.
    pub(super) fn put(&self, cut: bool, root: &TestRoot) -> PathBuf {
        let to = root.path("var/lib/etcd");
        fs::create_dir_all(root.path("var/lib")).unwrap();
        copy(&self.dir.join(if cut { "cut" } else { "plain" }), &to);
        to
    }

    /// A database that is older than the newest snapshots.
    pub(super) fn old_database(&self) -> PathBuf {
        self.dir.join("old.db")
    }
}

pub(super) fn wal_files(data: &Path) -> Vec<PathBuf> {
    files(&data.join("member/wal"), ".wal")
}

pub(super) fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).into_iter().flatten();
    let mut all: Vec<PathBuf> = all.map(|one| one.unwrap().path()).collect();
    all.retain(|path| path.to_str().unwrap().ends_with(ending));
    all.sort();
    all
}

/// A record of a log: where it is, its type, and its data.
pub(super) struct Record {
    begin: usize,
    end: usize,
    kind: u64,
    data: Vec<u8>,
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

fn to_varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

pub(super) fn records(file: &[u8]) -> Vec<Record> {
    let mut all = Vec::new();
    let mut begin = 0;
    while begin + 8 <= file.len() {
        let frame = u64::from_le_bytes(file[begin..begin + 8].try_into().unwrap());
        if frame == 0 {
            break;
        }
        let length = (frame & !(0xff << 56)) as usize;
        let padding = if frame >> 63 == 1 {
            (frame >> 56 & 7) as usize
        } else {
            0
        };
        let (mut at, stop) = (begin + 8, begin + 8 + length);
        let (mut kind, mut data) = (0, Vec::new());
        while at < stop {
            match varint(file, &mut at) {
                0x08 => kind = varint(file, &mut at),
                0x10 => drop(varint(file, &mut at)),
                _ => {
                    let size = varint(file, &mut at) as usize;
                    data = file[at..at + size].to_vec();
                    at += size;
                }
            }
        }
        all.push(Record {
            begin,
            end: stop + padding,
            kind,
            data,
        });
        begin = stop + padding;
    }
    all
}

fn crc32c(mut sum: u32, bytes: &[u8]) -> u32 {
    sum = !sum;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 {
                sum >> 1 ^ 0x82f6_3b78
            } else {
                sum >> 1
            };
        }
    }
    !sum
}

fn write_record(file: &mut Vec<u8>, sum: &mut u32, kind: u64, data: Option<&[u8]>) {
    *sum = crc32c(*sum, data.unwrap_or_default());
    let mut record = [
        vec![0x08],
        to_varint(kind),
        vec![0x10],
        to_varint((*sum).into()),
    ]
    .concat();
    if let Some(data) = data {
        record.extend([vec![0x1a], to_varint(data.len() as u64), data.to_vec()].concat());
    }
    let padding = (8 - record.len() % 8) % 8;
    let mut frame = record.len() as u64;
    if padding > 0 {
        frame |= (0x80 | padding as u64) << 56;
    }
    file.extend(frame.to_le_bytes());
    file.extend(&record);
    file.extend(vec![0; padding]);
}

fn field(message: &[u8], wanted: u64) -> u64 {
    let mut at = 0;
    while at < message.len() {
        let tag = varint(message, &mut at);
        if tag & 7 == 2 {
            at += varint(message, &mut at) as usize;
            continue;
        }
        let number = varint(message, &mut at);
        if tag >> 3 == wanted {
            return number;
        }
    }
    0
}

/// Writes the log of a member anew, as files that follow each other: each begins with the sum so far, the ids and the state.
fn cut_log(data: &Path, count: usize) {
    let path = wal_files(data).pop().unwrap();
    let all = records(&fs::read(&path).unwrap());
    let size = all.len() / count + 1;
    let (mut sum, mut index, mut state) = (0, 0, Vec::new());
    let metadata = all.iter().find(|one| one.kind == 1).unwrap().data.clone();
    fs::remove_file(&path).unwrap();
    for (number, part) in all[2..].chunks(size).enumerate() {
        let name = format!(
            "{number:016x}-{:016x}.wal",
            if number == 0 { 0 } else { index + 1 }
        );
        let mut file = Vec::new();
        write_record(&mut file, &mut sum, 4, None);
        write_record(&mut file, &mut sum, 1, Some(&metadata));
        if number > 0 {
            write_record(&mut file, &mut sum, 3, Some(&state));
        }
        for record in part {
            write_record(&mut file, &mut sum, record.kind, Some(&record.data));
            match record.kind {
                2 => index = field(&record.data, 3),
                3 => state = record.data.clone(),
                _ => {}
            }
        }
        if number + 1 == count {
            file.extend([0; 65536]);
        }
        fs::write(path.with_file_name(name), file).unwrap();
    }
}

fn patch(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn flip(path: &Path, byte: u64, bit: u64) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut old = [0];
    file.read_exact_at(&mut old, byte).unwrap();
    file.write_all_at(&[old[0] ^ 1 << bit], byte).unwrap();
}

fn fill(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn set_len(path: &Path, length: u64) {
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(length)
        .unwrap();
}

fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const PAGE: u64 = 4096;

/// Ways to damage a member.
const KINDS: [&str; 52] = [
    "wal-flip-data",
    "wal-flip-frame",
    "wal-flip-sum",
    "wal-flip-type",
    "wal-flip-old-file",
    "wal-truncated-anywhere",
    "wal-truncated-in-last-record",
    "wal-empty",
    "wal-old-truncated",
    "wal-old-empty",
    "wal-zero-sector-tail",
    "wal-zero-sector-middle",
    "wal-zero-sector-old",
    "wal-zero-to-end",
    "wal-garbage-sector",
    "wal-oldest-removed",
    "wal-middle-removed",
    "wal-last-removed",
    "wal-renamed-sequence",
    "wal-renamed-index",
    "wal-foreign-file",
    "wal-tmp-left",
    "wal-garbage-behind-end",
    "wal-record-lost",
    "wal-sector-swapped",
    "snap-truncated",
    "snap-empty",
    "snap-flip",
    "snap-newest-removed",
    "snap-all-removed",
    "snap-all-garbage",
    "snap-orphan",
    "snap-left-overs",
    "db-meta0-zero",
    "db-meta1-zero",
    "db-metas-zero",
    "db-meta-flip",
    "db-missing",
    "db-empty",
    "db-truncated",
    "db-two-pages",
    "db-old",
    "db-old-and-sent",
    "db-old-and-bad-sent",
    "db-page-zero",
    "db-page-header-flip",
    "db-page-flip",
    "db-pages-swapped",
    "db-page-garbage",
    "db-freelist-stored",
    "dir-wal-removed",
    "dir-snap-removed",
];

/// Damages a copy of a member; returns what was done.
pub(super) fn damage(bases: &Bases, kind: &str, dice: &mut Dice, to: &Path) -> String {
    let many = kind.contains("old-") && kind.starts_with("wal")
        || kind.contains("oldest")
        || kind.contains("sector-old")
        || kind.contains("middle-removed")
        || kind.contains("last-removed")
        || kind.contains("renamed")
        || dice.below(3) == 0;
    copy(&bases.dir.join(if many { "cut" } else { "plain" }), to);
    let wals = wal_files(to);
    let (wal, snap) = (to.join("member/wal"), to.join("member/snap"));
    let last = wals.last().unwrap();
    let old = &wals[dice.below(wals.len() as u64 - 1) as usize];
    let all = records(&fs::read(last).unwrap());
    let used = all.last().unwrap().end as u64;
    let record = &all[dice.below(all.len() as u64) as usize];
    let db = snap.join("db");
    let pages = fs::metadata(&db).unwrap().len() / PAGE;
    let page = dice.between(2, pages);
    let snaps = files(&snap, ".snap");
    let newest = snaps.last().unwrap();
    let bit = dice.below(8);
    let mut done = format!("{}: ", if many { "cut" } else { "plain" });
    let mut note = |text: String| done.push_str(&text);
    match kind {
        "wal-flip-data" => {
            let at = dice.between(record.begin as u64 + 16, record.end as u64);
            note(format!("byte {at} bit {bit}"));
            flip(last, at, bit);
        }
        "wal-flip-frame" => {
            let at = record.begin as u64 + dice.below(8);
            note(format!("byte {at} bit {bit} of {used}"));
            flip(last, at, bit);
        }
        "wal-flip-sum" => {
            let at = record.begin as u64 + 11 + dice.below(4);
            note(format!("byte {at} bit {bit} kind {}", record.kind));
            flip(last, at, bit);
        }
        "wal-flip-type" => {
            let at = record.begin as u64 + 8 + dice.below(2);
            note(format!("byte {at} bit {bit} kind {}", record.kind));
            flip(last, at, bit);
        }
        "wal-flip-old-file" => {
            let at = dice.below(fs::metadata(old).unwrap().len());
            note(format!("{old:?} byte {at} bit {bit}"));
            flip(old, at, bit);
        }
        "wal-truncated-anywhere" => {
            let at = dice.between(1, used);
            note(format!("at {at} of {used}"));
            set_len(last, at);
        }
        "wal-truncated-in-last-record" => {
            let record = all.iter().rev().find(|one| one.kind == 2).unwrap();
            let at = dice.between(record.begin as u64 + 1, record.end as u64);
            note(format!("at {at} of {used}"));
            set_len(last, at);
        }
        "wal-empty" => set_len(last, 0),
        "wal-old-truncated" => {
            let at = dice.between(1, fs::metadata(old).unwrap().len());
            note(format!("{old:?} at {at}"));
            set_len(old, at);
        }
        "wal-old-empty" => {
            note(format!("{old:?}"));
            set_len(old, 0);
        }
        "wal-zero-sector-tail" => {
            let at = (used - 1 - dice.below(1024)) / 512 * 512;
            note(format!("sector at {at} of {used}"));
            fill(last, at, &[0; 512]);
        }
        "wal-zero-sector-middle" => {
            let at = dice.below(used / 512) * 512;
            note(format!("sector at {at} of {used}"));
            fill(last, at, &[0; 512]);
        }
        "wal-zero-sector-old" => {
            let at = dice.below(fs::metadata(old).unwrap().len() / 512) * 512;
            note(format!("{old:?} sector at {at}"));
            fill(old, at, &[0; 512]);
        }
        "wal-zero-to-end" => {
            let at = dice.between(1, used);
            note(format!("from {at} of {used}"));
            fill(last, at, &vec![0; (used - at) as usize]);
        }
        "wal-garbage-sector" => {
            let at = dice.below(used / 512) * 512;
            let garbage: Vec<u8> = (0..512).map(|_| dice.below(256) as u8).collect();
            note(format!("sector at {at} of {used}"));
            fill(last, at, &garbage);
        }
        "wal-oldest-removed" => {
            let count = 1 + dice.below(2) as usize;
            note(format!("{count}"));
            wals[..count]
                .iter()
                .for_each(|path| fs::remove_file(path).unwrap());
            if dice.below(2) == 0 {
                note(", newest snapshot too".to_owned());
                fs::remove_file(newest).unwrap();
            }
        }
        "wal-middle-removed" => {
            let place = 1 + dice.below(wals.len() as u64 - 2) as usize;
            note(format!("{:?}", wals[place]));
            fs::remove_file(&wals[place]).unwrap();
        }
        "wal-last-removed" => {
            let count = 1 + dice.below(3) as usize;
            note(format!("{count}"));
            wals.iter()
                .rev()
                .take(count)
                .for_each(|path| fs::remove_file(path).unwrap());
        }
        "wal-renamed-sequence" => {
            let name = old.file_name().unwrap().to_str().unwrap().replacen(
                "000000000000000",
                "000000000000001",
                1,
            );
            note(format!("{old:?} to {name}"));
            fs::rename(old, old.with_file_name(name)).unwrap();
        }
        "wal-renamed-index" => {
            let name = old.file_name().unwrap().to_str().unwrap();
            let index = dice.below(800);
            let name = format!("{}-{index:016x}.wal", &name[..16]);
            note(format!("{old:?} to {name}"));
            fs::rename(old, old.with_file_name(name)).unwrap();
        }
        "wal-foreign-file" => fs::write(
            wal.join(["note.wal", "lost+found", "x.wal.broken"][dice.below(3) as usize]),
            "x",
        )
        .unwrap(),
        "wal-tmp-left" => {
            fs::write(wal.join("0.tmp"), vec![0; dice.below(100_000) as usize]).unwrap()
        }
        "wal-garbage-behind-end" => {
            let at = used + 8 + dice.below(5000);
            note(format!("at {at}"));
            fill(last, at, b"garbage behind the end of the log");
        }
        "wal-record-lost" => {
            note(format!("record at {} kind {}", record.begin, record.kind));
            let (begin, end) = (record.begin, record.end);
            patch(last, |bytes| drop(bytes.drain(begin..end)));
        }
        "wal-sector-swapped" => {
            let (one, other) = (
                dice.below(used / 512) as usize * 512,
                dice.below(used / 512) as usize * 512,
            );
            note(format!("{one} and {other}"));
            patch(last, |bytes| {
                (0..512).for_each(|byte| bytes.swap(one + byte, other + byte))
            });
        }
        "snap-truncated" => set_len(newest, dice.between(1, fs::metadata(newest).unwrap().len())),
        "snap-empty" => {
            let count = 1 + dice.below(2) as usize;
            note(format!("{count}"));
            snaps
                .iter()
                .rev()
                .take(count)
                .for_each(|path| set_len(path, 0));
        }
        "snap-flip" => {
            let at = dice.below(fs::metadata(newest).unwrap().len());
            note(format!("byte {at} bit {bit}"));
            flip(newest, at, bit);
        }
        "snap-newest-removed" => {
            let count = 1 + dice.below(3) as usize;
            note(format!("{count}"));
            snaps
                .iter()
                .rev()
                .take(count)
                .for_each(|path| fs::remove_file(path).unwrap());
        }
        "snap-all-removed" => snaps.iter().for_each(|path| fs::remove_file(path).unwrap()),
        "snap-all-garbage" => snaps
            .iter()
            .for_each(|path| fs::write(path, "garbage").unwrap()),
        "snap-orphan" => {
            let name = format!("{:016x}-{:016x}.snap", 9, 100_000 + dice.below(100));
            fs::copy(newest, snap.join(name)).unwrap();
        }
        "snap-left-overs" => {
            for name in [
                "db.tmp.12345",
                "tmp987",
                "0000000000000002-0000000000000001.snap.broken",
            ] {
                if dice.below(3) > 0 {
                    note(format!("{name} "));
                    fs::write(snap.join(name), "x").unwrap();
                }
            }
        }
        "db-meta0-zero" => fill(&db, 0, &[0; PAGE as usize]),
        "db-meta1-zero" => fill(&db, PAGE, &[0; PAGE as usize]),
        "db-metas-zero" => fill(&db, 0, &[0; 2 * PAGE as usize]),
        "db-meta-flip" => {
            let at = dice.below(2) * PAGE + 16 + dice.below(64);
            note(format!("byte {at} bit {bit}"));
            flip(&db, at, bit);
        }
        "db-missing" => {
            fs::remove_file(&db).unwrap();
            if dice.below(2) == 0 {
                note("and snapshots".to_owned());
                snaps.iter().for_each(|path| fs::remove_file(path).unwrap());
            }
        }
        "db-empty" => {
            set_len(&db, 0);
            if dice.below(2) == 0 {
                note("and snapshots".to_owned());
                snaps.iter().for_each(|path| fs::remove_file(path).unwrap());
            }
        }
        "db-truncated" => {
            note(format!("at page {page} of {pages}"));
            set_len(&db, page * PAGE + dice.below(2) * dice.below(PAGE));
        }
        "db-two-pages" => {
            let length = dice.between(1, 2 * PAGE);
            note(format!("{length}"));
            set_len(&db, length);
        }
        "db-old" => assert!(fs::copy(bases.old_database(), &db).is_ok()),
        "db-old-and-sent" | "db-old-and-bad-sent" => {
            let name = newest.file_name().unwrap().to_str().unwrap();
            let sent = snap.join(format!("{}.snap.db", &name[17..33]));
            fs::copy(&db, &sent).unwrap();
            if kind.contains("bad") {
                set_len(&sent, dice.below(3 * PAGE));
            }
            fs::copy(bases.old_database(), &db).unwrap();
        }
        "db-page-zero" => {
            note(format!("{page}"));
            fill(&db, page * PAGE, &[0; PAGE as usize]);
        }
        "db-page-header-flip" => {
            let at = page * PAGE + dice.below(16);
            note(format!("page {page} byte {} bit {bit}", at % PAGE));
            flip(&db, at, bit);
        }
        "db-page-flip" => {
            let at = page * PAGE + dice.between(16, PAGE);
            note(format!("page {page} byte {} bit {bit}", at % PAGE));
            flip(&db, at, bit);
        }
        "db-pages-swapped" => {
            let other = dice.between(2, pages);
            note(format!("{page} and {other}"));
            let (one, other) = ((page * PAGE) as usize, (other * PAGE) as usize);
            patch(&db, |bytes| {
                (0..PAGE as usize).for_each(|byte| bytes.swap(one + byte, other + byte))
            });
        }
        "db-page-garbage" => {
            note(format!("{page}"));
            let garbage: Vec<u8> = (0..PAGE).map(|_| dice.below(256) as u8).collect();
            fill(&db, page * PAGE, &garbage);
        }
        "db-freelist-stored" => {
            let sound = dice.below(2) == 0;
            note(format!("sound: {sound}"));
            patch(&db, |bytes| store_freelist(bytes, sound));
        }
        "dir-wal-removed" => fs::remove_dir_all(&wal).unwrap(),
        "dir-snap-removed" => fs::remove_dir_all(&snap).unwrap(),
        kind => panic!("{kind}"),
    }
    done
}

/// Stores an empty list of free pages in the newest commit, or a page of another type in its place.
fn store_freelist(bytes: &mut Vec<u8>, sound: bool) {
    let long = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let page = PAGE as usize;
    let meta = if long(bytes, 16 + 48) > long(bytes, page + 16 + 48) {
        0
    } else {
        page
    } + 16;
    let number = long(bytes, meta + 40);
    let at = number as usize * page;
    if bytes.len() < at + page {
        bytes.resize(at + page, 0);
    }
    bytes[at..at + page].fill(0);
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
    bytes[at + 8] = if sound { 0x10 } else { 0x20 };
    bytes[meta + 32..meta + 40].copy_from_slice(&number.to_le_bytes());
    bytes[meta + 40..meta + 48].copy_from_slice(&(number + 1).to_le_bytes());
    let sum = fnv(&bytes[meta..meta + 56]);
    bytes[meta + 56..meta + 64].copy_from_slice(&sum.to_le_bytes());
}

/// What the program says of a member: the class, and its words.
fn verdict(root: &TestRoot) -> (Did, String) {
    let all = of(&doctor(root), "FP-40");
    let words = all.iter().map(Value::to_string).collect::<String>();
    let has = |what: &str| all.iter().any(|one| one["what"] == what);
    let refuses = |one: &Value| {
        one["severity"] == "critical" && one["what"] != "the log of etcd lost its end"
    };
    let did = if all.iter().any(refuses) {
        Did::Refused
    } else if has("the log of etcd ends in an incomplete record") || words.contains("offset ") {
        Did::Repaired
    } else {
        Did::Started
    };
    (did, words)
}

/// Disagreements by the version of etcd alone: what this program says by the rules of 3.5, and what 3.4 does.
fn explained(ours: &(Did, String), etcd: &(Did, String)) -> Option<&'static str> {
    let (words, said) = (&ours.1, &etcd.1);
    match (&ours.0, &etcd.0) {
        (Did::Repaired, Did::Refused) if said.contains("max entry size limit exceeded") => Some(
            "3.4 refuses records above 10 MiB, 3.5 cuts off a record that is longer than the file",
        ),
        (Did::Refused, Did::Started)
            if words.contains("self identifies as") || words.contains("not in order") =>
        {
            Some("bbolt of 3.4 does not compare the number of a page and the order of its keys")
        }
        _ => None,
    }
}

#[test]
fn the_verdict_on_damaged_data_is_that_of_etcd() {
    with_etcd(|| {
        let asked = std::env::var("MCO_RESCUE_ETCD").ok();
        let count = asked.map_or(24, |count| count.parse().unwrap());
        let seed = std::env::var("MCO_RESCUE_SEED").map_or(1, |seed| seed.parse::<u64>().unwrap());
        let root = TestRoot::new();
        let bases = bases();
        for cut in [false, true] {
            let data = bases.put(cut, &root);
            assert_eq!(of(&doctor(&root), "FP-40"), Vec::<Value>::new());
            assert_eq!(try_start(&data).0, Did::Started);
        }
        let data = root.path("var/lib/etcd");
        let (mut tally, mut wrong) = ([0; 5], Vec::new());
        for number in 0..count {
            // A few of all kinds where only a few are made.
            let kind = KINDS[(number * if count < KINDS.len() { 7 } else { 1 }) % KINDS.len()];
            let mut dice = Dice::new(seed * 1_000_003 + number as u64);
            let done = damage(bases, kind, &mut dice, &data);
            let ours = verdict(&root);
            let etcd = try_start(&data);
            tally[etcd.0.clone() as usize] += 1;
            if ours.0 == etcd.0 {
                tally[3] += 1;
            } else if let Some(why) = explained(&ours, &etcd) {
                tally[4] += 1;
                say(&format!(
                    "{kind} {done}: {:?}, etcd {:?}: {why}",
                    ours.0, etcd.0
                ));
            } else {
                let said: Vec<&str> = etcd
                    .1
                    .lines()
                    .filter(|line| !line.contains("\"info\""))
                    .take(3)
                    .collect();
                wrong.push(format!(
                    "{kind} {done}: {:?}, etcd {:?}\n{}\n{said:#?}",
                    ours.0, etcd.0, ours.1
                ));
            }
        }
        let [started, repaired, refused, same, version] = tally;
        say(&format!(
            "etcd: {count} damaged members (seed {seed}): {started} started, {repaired} repaired themselves, {refused} refused; \
             {same} verdicts are the same, {version} differ by the version"
        ));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
