//! Files that are larger than the pieces in which they are decoded, hashed and written.

use std::fs;
use std::io::Write;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::support::{TestRoot, machine_config};

/// Bytes that do not repeat in step with any piece.
fn bytes(size: usize) -> Vec<u8> {
    (0_u64..)
        .flat_map(|n| ((n * n) ^ (n << 7)).to_le_bytes())
        .take(size)
        .collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn file(path: &str, bytes: &[u8], compression: Option<&str>) -> Value {
    let source = format!("data:;base64,{}", STANDARD.encode(bytes));
    let contents = json!({"source": source, "compression": compression});
    json!({"path": path, "mode": 0o644, "overwrite": true, "contents": contents})
}

/// A size around the pieces, one that is many pieces, and one behind which the disk begins to write.
const SIZES: [usize; 4] = [(2 << 20) - 1, 2 << 20, (3 << 20) + 1, (9 << 20) + 12_345];

#[test]
fn large_files_come_out_as_they_are_in_the_config() {
    let root = TestRoot::new();
    let all: Vec<Vec<u8>> = SIZES.into_iter().map(bytes).collect();
    let plain = all.iter().enumerate();
    let plain = plain.map(|(n, bytes)| file(&format!("/etc/plain-{n}"), bytes, None));
    let packed = all.iter().enumerate();
    let packed =
        packed.map(|(n, bytes)| file(&format!("/etc/packed-{n}"), &gzip(bytes), Some("gzip")));
    let files: Vec<Value> = plain.chain(packed).collect();
    let config = machine_config("rendered-worker-big", json!({"storage": {"files": files}}));
    root.apply(&config);
    for (n, bytes) in all.iter().enumerate() {
        for kind in ["plain", "packed"] {
            let found = fs::read(root.path(&format!("etc/{kind}-{n}"))).unwrap();
            assert!(found == *bytes, "{kind}-{n}: {} bytes", found.len());
        }
    }
    root.run(&["verify"]).ok();
}

/// Its size and the time of its last change stay; only the change time tells.
#[test]
fn one_other_byte_of_a_large_file_is_found() {
    let root = TestRoot::new();
    let bytes = bytes(5 << 20);
    let files = [file("/etc/large", &bytes, None)];
    root.apply(&machine_config(
        "rendered-worker-big",
        json!({"storage": {"files": files}}),
    ));
    for at in [0, 1 << 20, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let path = root.path("etc/large");
        fs::write(&path, &changed).unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(long_ago).unwrap();
        root.run(&["verify"]).exits(3);
        root.run(&["apply", "--yes"]).ok();
        assert!(fs::read(&path).unwrap() == bytes);
    }
}

#[test]
fn a_large_file_that_is_cut_off_in_the_document_is_refused_before_anything_is_written() {
    let root = TestRoot::new();
    let packed = gzip(&bytes(5 << 20));
    let cut = file(
        "/etc/cut",
        &packed[..packed.len() - packed.len() / 4],
        Some("gzip"),
    );
    let config = machine_config("rendered-worker-cut", json!({"storage": {"files": [cut]}}));
    let before = root.snapshot();
    let config = root.config(&config);
    let run = root.run(&["apply", "--yes", config.path()]).exits(1);
    assert!(
        run.err().contains("storage.files[0].contents.source"),
        "{run:?}"
    );
    assert!(root.snapshot() == before);
}
