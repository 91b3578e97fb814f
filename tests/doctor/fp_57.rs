//! FP-57: an encrypted disk of the system and its next boot, against cryptsetup too.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{doctor, found, of, says, unseen};
use crate::crossing::disks::{encrypted, tang, tpm};
use crate::crossing::{BOOT_UUID, Lab};
use crate::support::luks::{COPY, luks2, protected, tokens};
use crate::support::{Lacks, say, skip};

const ID: &str = "FP-57";
const HEADER: &str = "dev/sda4";

fn disk(pins: &[Value]) -> Lab {
    let lab = encrypted(pins);
    fs::create_dir_all(lab.node.path("usr/etc")).unwrap();
    lab
}

fn arguments(lab: &Lab, more: &str) {
    lab.write_entry(&format!("rw boot=UUID={BOOT_UUID} {more}"));
}

#[track_caller]
fn is_well(lab: &Lab) {
    let seen = doctor(&lab.node);
    assert_eq!(
        (of(&seen, ID), unseen(&seen, ID)),
        (vec![], "[]".to_owned())
    );
}

const STATIC: &str = "[ipv4]\nmethod=manual\naddress1=192.0.2.5/25,192.0.2.1\ndns=192.0.2.53;\n[ipv6]\nmethod=disabled\n";

#[test]
fn a_disk_that_opens_again_is_not_a_finding() {
    for pins in [&[][..], &[tpm("")], &[tpm("4,7")], &[tpm("7"), tang()]] {
        is_well(&disk(pins));
    }
    let lab = disk(&[tang()]);
    arguments(&lab, "rd.neednet=1");
    is_well(&lab);
    // A fixed address that the initramfs knows, and a second connection with DHCP.
    lab.keyfile("lan", "type=ethernet\ninterface-name=eno1", STATIC);
    arguments(
        &lab,
        "rd.neednet=1 ip=192.0.2.5::192.0.2.1:25::eno1:none nameserver=192.0.2.53",
    );
    is_well(&lab);
    arguments(&lab, "rd.neednet=1");
    lab.keyfile(
        "other",
        "type=ethernet\ninterface-name=ens2",
        "[ipv4]\nmethod=auto\n",
    );
    is_well(&lab);
}

#[test]
fn tang_without_a_network_in_the_initramfs_is_found() {
    let lab = disk(&[tang()]);
    let text = found(&doctor(&lab.node), ID, "warning");
    says(
        &text,
        &[
            "Tang may not be reached when the root disk is opened",
            "tang http://tang.example; 1 other key slot",
            "rpm-ostree kargs --append-if-missing=rd.neednet=1",
            "Error communicating with server",
        ],
    );
}

#[test]
fn a_static_network_that_the_initramfs_does_not_know_is_found_with_its_arguments() {
    let lab = disk(&[tang()]);
    arguments(&lab, "rd.neednet=1");
    lab.keyfile("lan", "type=ethernet\ninterface-name=eno1", STATIC);
    let text = found(&doctor(&lab.node), ID, "warning");
    says(
        &text,
        &[
            "--append-if-missing=ip=192.0.2.5::192.0.2.1:25::eno1:none --append-if-missing=nameserver=192.0.2.53",
            "[ipv4] address1=192.0.2.5/25,192.0.2.1",
            "cryptsetup luksAddKey /dev/sda4",
        ],
    );
    // One judgement, two doors.
    assert_eq!(
        lab.short()
            .iter()
            .filter(|one| one.starts_with("encrypted-root"))
            .count(),
        1
    );
    // A share that opens without a network is enough.
    let sss =
        json!({"pin": "sss", "sss": {"t": 1, "jwe": [protected(&tang()), protected(&tpm("7"))]}});
    fs::write(lab.node.path(HEADER), luks2(&tokens(&[sss]))).unwrap();
    is_well(&lab);
    let both =
        json!({"pin": "sss", "sss": {"t": 2, "jwe": [protected(&tang()), protected(&tpm("7"))]}});
    fs::write(lab.node.path(HEADER), luks2(&tokens(&[both]))).unwrap();
    says(
        &found(&doctor(&lab.node), ID, "warning"),
        &["2 of (tang http://tang.example, tpm2 registers 7)"],
    );
}

#[test]
fn the_name_of_a_tang_server_needs_a_name_server() {
    let lab = disk(&[tang()]);
    let address = "rd.neednet=1 ip=192.0.2.5::192.0.2.1:25::eno1:none";
    arguments(&lab, address);
    says(
        &found(&doctor(&lab.node), ID, "warning"),
        &[
            "by the name tang.example",
            "--append-if-missing=nameserver=ADDRESS",
        ],
    );
    arguments(&lab, &format!("{address}:192.0.2.53"));
    is_well(&lab);
    arguments(&lab, &format!("{address} nameserver=192.0.2.53"));
    is_well(&lab);
    for url in [
        "http://192.0.2.7",
        "http://192.0.2.7:8080/x",
        "http://[2001:db8::7]:80",
    ] {
        let lab = disk(&[json!({"pin": "tang", "tang": {"url": url}})]);
        arguments(&lab, address);
        is_well(&lab);
    }
}

#[test]
fn a_damaged_copy_is_a_warning_and_two_are_the_end() {
    for (at, copy) in [(5000, "first"), (COPY + 5000, "second")] {
        let lab = disk(&[tang()]);
        arguments(&lab, "rd.neednet=1");
        let mut header = fs::read(lab.node.path(HEADER)).unwrap();
        header[at] ^= 1;
        fs::write(lab.node.path(HEADER), &header).unwrap();
        let text = found(&doctor(&lab.node), ID, "warning");
        says(
            &text,
            &[
                "one copy of the header of an encrypted disk is damaged",
                &format!("{copy} copy: damaged"),
                "cryptsetup repair /dev/sda4",
                "luksHeaderBackup /dev/sda4",
            ],
        );
        header[at ^ COPY] ^= 1;
        fs::write(lab.node.path(HEADER), &header).unwrap();
        let text = found(&doctor(&lab.node), ID, "critical");
        says(
            &text,
            &[
                "the header of an encrypted disk is damaged",
                "Device /dev/sda4 is not a valid LUKS device.",
                "cryptsetup luksHeaderRestore /dev/sda4 --header-backup-file FILE",
                "do not reboot",
            ],
        );
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    let lab = disk(&[tang()]);
    lab.node.write(HEADER, "LUKS");
    says(&unseen(&doctor(&lab.node), ID), &["no LUKS"]);
    lab.node.remove(HEADER);
    says(&unseen(&doctor(&lab.node), ID), &["/dev/sda4 is missing"]);
    let mut old = vec![0; 4096];
    old[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
    fs::write(lab.node.path(HEADER), old).unwrap();
    says(
        &unseen(&doctor(&lab.node), ID),
        &["LUKS 1 keeps its tokens elsewhere"],
    );
}

fn cryptsetup(args: &[&str]) -> bool {
    let mut command = Command::new("cryptsetup");
    command.args(args).stdin(Stdio::null());
    let run = command.output();
    run.is_ok_and(|run| run.status.success())
}

/// A device that cryptsetup made, with a token like that of clevis.
fn real_device(lab: &Lab, metadata: &str) -> bool {
    let device = lab.node.path(HEADER);
    fs::write(&device, "").unwrap();
    fs::File::options()
        .write(true)
        .open(&device)
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    lab.node.write("key", "secret");
    let token =
        json!({"type": "clevis", "keyslots": ["0"], "jwe": {"protected": protected(&tang())}});
    lab.node.write("token", &token.to_string());
    let (device, key) = (device.to_str().unwrap().to_owned(), lab.node.path("key"));
    let made = cryptsetup(&[
        "luksFormat",
        "--type",
        "luks2",
        "--batch-mode",
        "--pbkdf",
        "pbkdf2",
        "--pbkdf-force-iterations",
        "1000",
        "--luks2-metadata-size",
        metadata,
        &device,
        key.to_str().unwrap(),
    ]);
    let token = lab.node.path("token");
    let works = made
        && cryptsetup(&[
            "token",
            "import",
            "--json-file",
            token.to_str().unwrap(),
            &device,
        ]);
    if !works {
        skip(
            Lacks::program("cryptsetup"),
            "cryptsetup makes no LUKS 2 here",
        );
    }
    works
}

#[test]
fn the_header_of_cryptsetup_is_read_as_cryptsetup_reads_it() {
    for metadata in ["16k", "128k"] {
        let lab = disk(&[]);
        if !real_device(&lab, metadata) {
            return;
        }
        let text = found(&doctor(&lab.node), ID, "warning");
        says(
            &text,
            &[
                "tang http://tang.example; no other key slot",
                "rd.neednet=1",
            ],
        );
        arguments(&lab, "rd.neednet=1");
        is_well(&lab);
    }
}

/// What is damaged, by place in the first copy and in the second.
#[test]
fn damaged_headers_open_here_exactly_if_they_open_with_cryptsetup() {
    let lab = disk(&[]);
    if !real_device(&lab, "16k") {
        return;
    }
    arguments(&lab, "rd.neednet=1");
    let whole = fs::read(lab.node.path(HEADER)).unwrap();
    let places = [
        0,
        5,
        7,
        15,
        20,
        80,
        120,
        200,
        260,
        300,
        448,
        479,
        480,
        511,
        600,
        4100,
        9000,
        COPY - 1,
    ];
    let (mut opened, mut lost) = (0, 0);
    for (index, place) in places.into_iter().enumerate() {
        // The first copy, the second, and both at different places.
        for both in [
            [Some(place), None],
            [None, Some(place)],
            [Some(place), Some(places[(index + 7) % places.len()])],
        ] {
            let mut header = whole.clone();
            for (copy, place) in both.into_iter().enumerate() {
                if let Some(place) = place {
                    header[copy * COPY + place] ^= 0x15;
                }
            }
            fs::write(lab.node.path(HEADER), &header).unwrap();
            let seen = doctor(&lab.node);
            let opens_here = unseen(&seen, ID) == "[]"
                && of(&seen, ID)
                    .iter()
                    .all(|one| one["severity"] != "critical");
            // cryptsetup mends what it can while it reads, so it gets a copy.
            fs::write(lab.node.path("copy"), &header).unwrap();
            let copy = lab.node.path("copy");
            let opens = cryptsetup(&["isLuks", "--type", "luks2", copy.to_str().unwrap()]);
            assert_eq!(opens_here, opens, "{both:?}: {:#}", seen["findings"]);
            *(if opens { &mut opened } else { &mut lost }) += 1;
        }
    }
    say(&format!(
        "cryptsetup opens {opened} of {} damaged headers, and so does the parser",
        opened + lost
    ));
    assert!(opened > 30 && lost > 10, "{opened} {lost}");
}
