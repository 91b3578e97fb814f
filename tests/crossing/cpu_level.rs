//! The level of the processor against the C library of the image.

use std::fs;
use std::process::Command;

use super::Lab;
use super::hardware::FLAGS_V3;
use crate::support::{Lacks, skip};

const FOUND: &str = "cpu-level inhibitor processor";

fn processors(lab: &Lab, flags: &[&str]) {
    let all = flags
        .iter()
        .map(|flags| format!("processor\t: 0\nmodel name\t: A\nflags\t\t: {flags}\n\n"));
    lab.node.write("proc/cpuinfo", &all.collect::<String>());
}

/// The flags of v3 without these.
fn without(lost: &[&str]) -> String {
    let kept = FLAGS_V3.split(' ').filter(|flag| !lost.contains(flag));
    kept.collect::<Vec<_>>().join(" ")
}

/// Links a library of this level as the image's C library; false if there is no compiler that can.
fn add_library(lab: &Lab, level: &str) -> bool {
    let source = lab.target.path("a.c");
    let library = lab.target.path("usr/lib64/libc.so.6");
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    fs::write(&source, "int a(void) { return 1; }\n").unwrap();
    let mut compiler = Command::new("cc");
    compiler.args([
        "-shared",
        "-nostdlib",
        "-fPIC",
        &format!("-Wl,-z,x86-64-{level}"),
        "-o",
    ]);
    let status = compiler.arg(&library).arg(&source).status();
    let linked = cfg!(target_arch = "x86_64") && status.is_ok_and(|status| status.success());
    if !linked {
        skip(
            Lacks::program("cc"),
            &format!("no C compiler for x86-64 with -z x86-64-{level}"),
        );
    }
    linked
}

#[test]
fn an_old_processor_is_found_with_the_flags_that_it_lacks() {
    let lab = Lab::healthy();
    let old = without(&["avx2", "bmi1", "abm"]);
    processors(&lab, &[&old, &old]);
    assert_eq!(lab.short(), [FOUND]);
    let text = &lab.findings()[0].text;
    for words in [
        "lacks avx2, bmi1, abm",
        "Fatal glibc error: CPU does not support x86-64-v3",
        "bwrap(/usr/bin/true): Child process exited with code 127",
        "EL 10 is built for x86-64-v3",
        "switch it off and on again",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn the_weakest_processor_counts() {
    let lab = Lab::healthy();
    processors(&lab, &[FLAGS_V3, &without(&["movbe"])]);
    assert_eq!(lab.short(), [FOUND]);
}

#[test]
fn the_note_of_the_library_decides_before_the_major() {
    let lab = Lab::healthy();
    processors(&lab, &[&without(&["avx2"])]);
    if add_library(&lab, "v2") {
        assert_eq!(lab.short(), Vec::<String>::new());
    }
    if add_library(&lab, "v3") {
        assert_eq!(lab.short(), [FOUND]);
        let text = &lab.findings()[0].text;
        assert!(
            text.contains("usr/lib64/libc.so.6") && text.contains("up to x86-64-v3"),
            "{text}"
        );
    }
    if add_library(&lab, "v4") {
        processors(&lab, &[FLAGS_V3]);
        assert!(lab.findings()[0].text.contains("lacks avx512f"));
    }
}

#[test]
fn a_damaged_library_leaves_the_major() {
    let lab = Lab::healthy();
    lab.target
        .write("usr/lib64/libc.so.6", "\x7fELF\x02\x01 and no more");
    assert_eq!(lab.short(), Vec::<String>::new());
    processors(&lab, &[&without(&["fma"])]);
    assert_eq!(lab.short(), [FOUND]);
}

#[test]
fn an_image_of_el_9_needs_less() {
    let lab = Lab::healthy();
    lab.target.write(
        "usr/lib/os-release",
        "ID=rhel\nVARIANT_ID=coreos\nRHEL_VERSION=9.8\nVERSION_ID=9.8\n",
    );
    let of_check = |lab: &Lab| {
        lab.short()
            .into_iter()
            .filter(|one| one.starts_with("cpu-level"))
            .collect::<Vec<_>>()
    };
    processors(&lab, &[&without(&["avx", "avx2"])]);
    assert_eq!(of_check(&lab), Vec::<String>::new());
    processors(&lab, &[&without(&["sse4_2"])]);
    assert_eq!(of_check(&lab), [FOUND]);
}

#[test]
fn other_architectures_have_their_own_words() {
    for (cpuinfo, words) in [
        (
            "processor\t: 0\ncpu\t\t: POWER8 (architected), altivec supported\n",
            Some("POWER9 or later required"),
        ),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", None),
        (
            "vendor_id       : IBM/S390\nfeatures\t: esan3 vx vxd\n",
            Some("z14 or later required"),
        ),
        (
            "vendor_id       : IBM/S390\nfeatures\t: esan3 vx vxd vxe\n",
            None,
        ),
        ("processor\t: 0\nFeatures\t: fp asimd\n", None),
    ] {
        let lab = Lab::healthy();
        lab.node.write("proc/cpuinfo", cpuinfo);
        let found = lab.findings();
        assert_eq!(found.len(), usize::from(words.is_some()), "{cpuinfo}");
        assert!(
            found.iter().all(|one| one.text.contains(words.unwrap())),
            "{cpuinfo}"
        );
    }
}

#[test]
fn without_proc_the_processor_is_not_known() {
    let lab = Lab::healthy();
    lab.node.remove("proc/cpuinfo");
    assert_eq!(lab.short(), ["cpu-level unknown processor"]);
    let command = match std::env::consts::ARCH {
        "x86_64" => "/lib64/ld-linux-x86-64.so.2 --help | grep x86-64-v",
        "powerpc64" | "s390x" => "LD_SHOW_AUXV=1 /usr/bin/true | grep AT_PLATFORM",
        _ => return,
    };
    assert!(lab.findings()[0].text.contains(command));
}
