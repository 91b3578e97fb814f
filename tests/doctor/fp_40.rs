//! FP-40: the data of etcd is damaged. The data is that of a real etcd.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::Value;

use super::etcd_data::{ask, bases, files, start, try_ask, wal_files, with_etcd};
use super::{CRITICAL, FINE, WARNING, doctor, found, of, says, unseen};
use crate::support::TestRoot;
use crate::support::mounts::mount;

/// A root with a sound member; `cut`: with a log of four files.
fn sound(cut: bool) -> TestRoot {
    let root = TestRoot::new();
    bases().put(cut, &root);
    root
}

/// Damage, the severity, and parts of what is said.
type Row = (fn(&TestRoot), &'static str, &'static [&'static str]);

fn newest(root: &TestRoot, ending: &str) -> std::path::PathBuf {
    files(&root.path("var/lib/etcd/member/snap"), ending)
        .pop()
        .unwrap()
}

fn patch(path: &std::path::Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

const DB: &str = "var/lib/etcd/member/snap/db";

const ROWS: [Row; 11] = [
    (
        |root| {
            patch(&wal_files(&root.path("var/lib/etcd"))[1], |bytes| {
                bytes[900] ^= 1
            })
        },
        "critical",
        &[
            "the log of etcd is damaged",
            "0000000000000001-",
            "offset ",
            "crc mismatch",
            "member remove ID",
        ],
    ),
    (
        |root| fs::remove_file(&wal_files(&root.path("var/lib/etcd"))[1]).unwrap(),
        "critical",
        &[
            "a part of the log of etcd is missing",
            "from 0 to 2",
            "wal: file not found",
        ],
    ),
    (
        |root| fs::remove_dir_all(root.path("var/lib/etcd/member/wal")).unwrap(),
        "critical",
        &["the log of etcd is missing"],
    ),
    (
        |root| {
            patch(
                wal_files(&root.path("var/lib/etcd")).last().unwrap(),
                |bytes| {
                    bytes.truncate(bytes.len() - 65536 - 3);
                },
            )
        },
        "notice",
        &[
            "the log of etcd ends in an incomplete record",
            "offset ",
            "unexpected EOF",
        ],
    ),
    (
        |root| {
            patch(
                wal_files(&root.path("var/lib/etcd")).last().unwrap(),
                |bytes| bytes.truncate(3000),
            )
        },
        "critical",
        &[
            "the log of etcd lost its end",
            "it has entries up to",
            "tocommit(",
        ],
    ),
    (
        |root| patch(&root.path(DB), |bytes| bytes[..8192].fill(0)),
        "critical",
        &[
            "the database of etcd is damaged",
            "no valid meta page",
            "invalid database",
        ],
    ),
    (
        |root| patch(&root.path(DB), |bytes| bytes[40] ^= 1),
        "notice",
        &[
            "one of the two meta pages of etcd is not valid",
            "meta page 0",
        ],
    ),
    (
        |root| assert!(fs::copy(bases().old_database(), root.path(DB)).is_ok()),
        "critical",
        &[
            "the database of etcd is older than its snapshot",
            "failed to find database snapshot file",
            ".snap.db",
        ],
    ),
    (
        |root| fs::remove_file(root.path(DB)).unwrap(),
        "critical",
        &[
            "the database of etcd is missing",
            "failed to find database snapshot file",
        ],
    ),
    (
        |root| patch(&root.path(DB), |bytes| bytes.truncate(20 * 4096)),
        "critical",
        &[
            "the database of etcd is damaged",
            "beyond the end of the file",
        ],
    ),
    (
        |root| patch(&newest(root, ".snap"), |bytes| bytes[30] ^= 4),
        "notice",
        &["1 snapshot of etcd cannot be used", "snap: crc mismatch"],
    ),
];

#[test]
fn each_damage_of_a_member_is_found_and_nothing_else() {
    with_etcd(|| {
        let root = TestRoot::new();
        for (number, (damage, severity, words)) in ROWS.iter().enumerate() {
            bases().put(true, &root);
            assert_eq!(of(&doctor(&root), "FP-40"), Vec::<Value>::new(), "{number}");
            damage(&root);
            let code = if *severity == "critical" {
                CRITICAL
            } else {
                FINE
            };
            let seen = root.run(&["doctor", "--output", "json"]).exits(code).json();
            says(&found(&seen, "FP-40", severity), words);
        }
    });
}

#[test]
fn a_single_member_is_told_of_its_backup_and_its_script() {
    with_etcd(|| {
        let root = sound(false);
        let scripts = "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-scripts";
        root.write(
            &format!("{scripts}/etcd.env"),
            "export NODE_master_0_ETCD_NAME=\"master-0\"\n",
        );
        root.write(&format!("{scripts}/cluster-restore.sh"), "#!/bin/sh\n");
        let unread = format!("{scripts}/etcd.env");
        root.remove(&unread);
        root.link(&unread, "etcd.env");
        let text = unseen(&doctor(&root), "FP-40");
        assert!(text.contains(&unread), "{text}");
        root.remove(&unread);
        root.write(&unread, "export NODE_master_0_ETCD_NAME=\"master-0\"\n");
        let backup = "home/core/assets/backup/snapshot_2026-01-31_120000.db";
        root.write(backup, "");
        fs::copy(root.path(DB), root.path(backup)).unwrap();
        patch(&root.path(DB), |bytes| bytes[..8192].fill(0));
        let all = found(&doctor(&root), "FP-40", "critical");
        says(
            &all,
            &[
                "the only member",
                backup,
                "newest backup",
                scripts,
                "cluster-restore.sh DIRECTORY",
            ],
        );
        assert!(!all.contains("member remove"), "{all}");
    });
}

#[test]
fn a_running_etcd_is_healthy_and_a_damaged_old_file_is_found_before_its_restart() {
    with_etcd(|| {
        let root = sound(true);
        let data = root.path("var/lib/etcd");
        let (etcd, ready, said) = start(&data, "existing", &[]);
        assert!(ready, "{said}");
        for number in 0..20 {
            ask(
                "/v3/kv/put",
                &format!(
                    r#"{{"key":"{}","value":"eA=="}}"#,
                    BASE64_STANDARD.encode(format!("n{number}"))
                ),
            );
            let seen = root.run(&["doctor", "--deep", "--output", "json"]).json();
            assert_eq!(of(&seen, "FP-40"), Vec::<Value>::new());
        }
        patch_in_place(&wal_files(&data)[0], 700);
        let all = found(&doctor(&root), "FP-40", "critical");
        says(
            &all,
            &[
                "etcd runs, but cannot start again from its data",
                "0000000000000000-",
                "offset ",
            ],
        );
        drop(etcd);
        assert!(!start(&data, "existing", &[]).1, "etcd starts from it");
    });
}

#[test]
fn a_running_etcd_whose_locks_are_hidden_is_not_damage() {
    with_etcd(|| {
        let root = sound(false);
        let (etcd, ready, said) = start(&root.path("var/lib/etcd"), "existing", &[]);
        assert!(ready, "{said}");
        // As from a container with processes of its own.
        mount(&["--bind", "/dev/null", "/proc/locks"]);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // A thread of this one has its network.
            scope.spawn(|| {
                for number in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                    let key = BASE64_STANDARD.encode(format!("busy{}", number % 50));
                    ask(
                        "/v3/kv/put",
                        &format!(r#"{{"key":"{key}","value":"eA=="}}"#),
                    );
                }
            });
            for _ in 0..10 {
                let seen = root.run(&["doctor", "--deep", "--output", "json"]);
                let found = of(&seen.json(), "FP-40");
                if !found.is_empty() {
                    stop.store(true, Ordering::Relaxed);
                }
                assert_eq!(found, Vec::<Value>::new());
            }
            stop.store(true, Ordering::Relaxed);
        });
        drop(etcd);
    });
}

/// As a program that has the file open sees it, too.
fn patch_in_place(path: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_backup_of_the_real_etcd_is_sound_and_a_damaged_one_is_found() {
    with_etcd(|| {
        let root = sound(false);
        let (etcd, ready, said) = start(&root.path("var/lib/etcd"), "existing", &[]);
        assert!(ready, "{said}");
        let answer = ask("/v3/maintenance/snapshot", "{}");
        drop(etcd);
        let body = String::from_utf8(answer).unwrap();
        let (_, body) = body.split_once("\r\n\r\n").unwrap();
        let blob = |part: Result<Value, _>| {
            let part: Value = part.unwrap();
            BASE64_STANDARD
                .decode(part["result"]["blob"].as_str().unwrap_or_default())
                .unwrap()
        };
        let parts = serde_json::Deserializer::from_str(body).into_iter::<Value>();
        let backup: Vec<u8> = parts.flat_map(blob).collect();
        assert_eq!(backup.len() % 512, 32, "{}", backup.len());

        let place = "var/lib/etcd-auto-backup/one/snapshot_2026-02-01_120000.db";
        let file = root.path(place);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let found_in = |bytes: &[u8], words: &[&str]| {
            fs::write(&file, bytes).unwrap();
            match words {
                [] => assert_eq!(of(&doctor(&root), "FP-40"), Vec::<Value>::new()),
                words => says(&found(&doctor(&root), "FP-40", "warning"), words),
            }
            root.run(&["doctor"])
                .exits(if words.is_empty() { FINE } else { WARNING });
        };
        found_in(&backup, &[]);
        // A copied database has no hash.
        found_in(&backup[..backup.len() - 32], &[]);
        let mut flipped = backup.clone();
        flipped[backup.len() / 2] ^= 1;
        found_in(
            &flipped,
            &[
                "1 backup of etcd cannot be restored",
                "its SHA-256 is wrong",
                place,
            ],
        );
        found_in(
            &backup[..backup.len() / 2],
            &["it is cut off", ".mco-rescue-damaged"],
        );
        found_in(b"", &["it is empty"]);
        found_in(&[0; 9000], &["no valid meta page"]);
    });
}

#[test]
fn a_full_database_is_not_damage() {
    with_etcd(|| {
        let root = TestRoot::new();
        let data = root.path("var/lib/etcd");
        fs::create_dir_all(root.path("var/lib")).unwrap();
        let (etcd, ready, said) = start(&data, "new", &["--quota-backend-bytes", "100000"]);
        assert!(ready, "{said}");
        let value = BASE64_STANDARD.encode([b'x'; 50_000]);
        let put = format!(r#"{{"key":"YQ==","value":"{value}"}}"#);
        // A write that does not fit raises the alarm. The hash makes the database be written.
        let fits = |_: &u8| {
            ask("/v3/maintenance/hash", "{}");
            try_ask("/v3/kv/put", &put).starts_with(b"HTTP/1.0 200")
        };
        assert!((0..100).take_while(fits).count() < 100);
        ask("/v3/maintenance/hash", "{}");
        drop(etcd);
        let all = found(&doctor(&root), "FP-40", "warning");
        says(
            &all,
            &[
                "reached its quota",
                "alarm NOSPACE",
                "mvcc: database space exceeded",
                "alarm disarm",
            ],
        );
    });
}

#[test]
fn large_data_is_read_whole_only_if_it_is_asked_for() {
    with_etcd(|| {
        let root = sound(true);
        // A page in the middle that is wrong, in a file of more than 16 MiB.
        let file = root.path(DB);
        let number = patch_page(&file);
        fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .set_len(17 << 20)
            .unwrap();
        let seen = doctor(&root);
        assert_eq!(of(&seen, "FP-40"), Vec::<Value>::new());
        let checks = seen["checks"].to_string();
        says(
            &checks,
            &["the sums of etcd's log and the pages of its database"],
        );
        let seen = root
            .run(&["doctor", "--deep", "--output", "json"])
            .exits(CRITICAL)
            .json();
        says(
            &found(&seen, "FP-40", "critical"),
            &["the database of etcd is damaged", &format!("page {number}")],
        );
    });
}

/// Damages a page of a bucket's tree, and returns its number. Pages that are free keep what they held, so the tree is
/// followed from the newest meta page.
fn patch_page(file: &std::path::Path) -> usize {
    let bytes = fs::read(file).unwrap();
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let at_page = |number: u64| number as usize * 4096;
    let newest = [0, 1]
        .into_iter()
        .max_by_key(|meta| long(at_page(*meta) + 64));
    let root = at_page(long(at_page(newest.unwrap()) + 32));
    let elements = (0..usize::from(bytes[root + 10])).map(|number| root + 16 + 16 * number);
    let trees = elements.map(|at| at_page(long(at + short(at + 4) + short(at + 8))));
    let branch = trees.into_iter().find(|at| bytes[at + 8] == 1).unwrap();
    let number = long(branch + 24) as usize;
    patch(file, |bytes| bytes[number * 4096 + 8] = 0);
    number
}

#[test]
fn a_node_without_etcd_is_silent_and_a_member_without_data_is_noted() {
    let root = TestRoot::new();
    let seen = doctor(&root);
    assert_eq!(of(&seen, "FP-40"), Vec::<Value>::new());
    assert_eq!(unseen(&seen, "FP-40"), "[]");
    for directory in ["wal", "snap"] {
        fs::create_dir_all(root.path(&format!("var/lib/etcd/member/{directory}"))).unwrap();
    }
    says(
        &found(&doctor(&root), "FP-40", "notice"),
        &["etcd has no data on this node", "member list"],
    );
}
