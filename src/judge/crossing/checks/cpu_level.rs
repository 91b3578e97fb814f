//! Does the processor support everything that the image's C library requires?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, Evidence, Target};
use crate::node::images::tree::x86_isa_needed;
use crate::node::platform::{Platform, Processor};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("cpu-level", judge);

/// Files whose note states the level: the C library, and the loader, which refuses to start any program.
const LIBRARIES: [&str; 2] = ["usr/lib64/libc.so.6", "usr/lib64/ld-linux-x86-64.so.2"];

/// An x86-64 level: its bit in the note, its name, and the flags that it adds.
struct Level {
    bit: u32,
    name: &'static str,
    flags: &'static [&'static str],
}

/// Levels in order, with the names of their flags in `/proc/cpuinfo`: `pni` is SSE3, `abm` has LZCNT.
const LEVELS: [Level; 4] = [
    Level {
        bit: 1,
        name: "baseline",
        flags: &[
            "cmov", "cx8", "fpu", "fxsr", "mmx", "syscall", "sse", "sse2",
        ],
    },
    Level {
        bit: 2,
        name: "v2",
        flags: &[
            "cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3",
        ],
    },
    Level {
        bit: 4,
        name: "v3",
        flags: &[
            "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave",
        ],
    },
    Level {
        bit: 8,
        name: "v4",
        flags: &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
    },
];

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let major = target.os_release.el_major();
    let finding = match &node.processor {
        Ok(Processor::X86 { model, flags }) => {
            let of_image = target.tree.architecture.as_deref();
            // An image of another architecture is reported by another check.
            let wanted = of_image.is_none_or(|name| name == "amd64");
            let (level, evidence) = match x86_level(target, major).filter(|_| wanted) {
                Some(found) => found,
                None => return Vec::new(),
            };
            judge_x86(model, level, evidence, |flag| flags.contains(flag))
        }
        Ok(Processor::Power(generation)) => judge_power(*generation, major),
        Ok(Processor::Z(features)) => judge_z(major, |feature| features.contains(feature)),
        Ok(Processor::Other) => None,
        Err(reason) if is_leveled(target, major) => Some(
            CrossingFinding::unknown(
                "processor",
                "the processor cannot be compared with what the image is built for",
            )
            .with_evidence("/proc/cpuinfo", reason.to_string())
            .next("Run the same command on the node while it runs.")
            .next(level_command(
                target
                    .tree
                    .architecture
                    .as_deref()
                    .or(node.architecture.as_deref().ok()),
            )),
        ),
        Err(_) => None,
    };
    finding.into_iter().collect()
}

/// Returns the command with which the C library of a running node prints the level of its processor; `architecture` is Go's
/// name.
fn level_command(architecture: Option<&str>) -> &'static str {
    match architecture {
        Some("ppc64le" | "s390x") => "LD_SHOW_AUXV=1 /usr/bin/true | grep AT_PLATFORM",
        _ => "/lib64/ld-linux-x86-64.so.2 --help | grep x86-64-v",
    }
}

/// Returns true if the image is for an architecture with levels.
fn is_leveled(target: &Target, major: Option<u32>) -> bool {
    match target.tree.architecture.as_deref() {
        Some("amd64") | None => x86_level(target, major).is_some(),
        Some(other) => matches!(other, "ppc64le" | "s390x") && major >= Some(9),
    }
}

/// Returns the highest level that the image needs, as an index into [`LEVELS`], with the evidence.
fn x86_level(target: &Target, major: Option<u32>) -> Option<(usize, Evidence)> {
    let highest = |bits: u32| LEVELS.iter().rposition(|level| bits & level.bit != 0);
    let of_files = LIBRARIES.iter().filter_map(|path| {
        let bits = x86_isa_needed(target.tree.bytes_of(path)?)?;
        let level = highest(bits)?;
        let said = format!(
            "x86 ISA needed: {bits:#x}, up to x86-64-{}",
            LEVELS.get(level)?.name
        );
        let place = (*path).to_owned();
        Some((level, Evidence { place, said }))
    });
    of_files.max_by_key(|(level, _)| *level).or_else(|| {
        let level = match major? {
            9 => 1,
            10.. => 2,
            _ => return None,
        };
        let name = LEVELS.get(level)?.name;
        let said = format!("EL {} is built for x86-64-{name}", major?);
        let place = "os-release of the image".to_owned();
        Some((level, Evidence { place, said }))
    })
}

fn judge_x86(
    model: &str,
    level: usize,
    needed: Evidence,
    has: impl Fn(&str) -> bool,
) -> Option<CrossingFinding> {
    let up_to = LEVELS.get(..=level)?;
    let flags = up_to.iter().flat_map(|level| level.flags);
    let missing: Vec<&str> = flags.filter(|flag| !has(flag)).copied().collect();
    if missing.is_empty() {
        return None;
    }
    let name = up_to.last()?.name;
    let what = format!(
        "the image is built for x86-64-{name}, and this processor lacks {}",
        missing.join(", ")
    );
    let words = format!("Fatal glibc error: CPU does not support x86-64-{name}");
    let staged = "bwrap(/usr/bin/true): Child process exited with code 127";
    let model = match model {
        "" => "every processor counts".to_owned(),
        model => model.to_owned(),
    };
    Some(
        CrossingFinding::inhibitor("processor", what)
            .with_evidence("/proc/cpuinfo", model)
            .with_evidence(needed.place, needed.said)
            .with_prevented(format!("{words}; while it is staged: {staged}"))
            .next(format!(
                "On a virtual machine: raise its processor model to one of x86-64-{name} (libvirt: host-passthrough; \
                 VMware: the EVC mode), then switch it off and on again. A reboot keeps the old model."
            ))
            .next("On hardware: the node stays on its image, or another machine takes its place."),
    )
}

/// Judges POWER: EL 9 and later start on POWER9.
fn judge_power(generation: u32, major: Option<u32>) -> Option<CrossingFinding> {
    let major = major.filter(|major| *major >= 9 && generation < 9)?;
    let what =
        format!("EL {major} needs POWER9, and the oldest processor here is POWER{generation}");
    let finding = CrossingFinding::inhibitor("processor", what);
    Some(
        finding
            .with_evidence("/proc/cpuinfo", format!("cpu: POWER{generation}"))
            .with_prevented("Fatal glibc error: CPU lacks ISA 3.00 support (POWER9 or later required)")
            .next("Take the partition out of its compatibility mode, or move the node to newer hardware."),
    )
}

/// Judges IBM Z: EL 9 and later start on a z14, whose processors have `vxe`.
fn judge_z(major: Option<u32>, has: impl Fn(&str) -> bool) -> Option<CrossingFinding> {
    let major = major.filter(|major| *major >= 9 && !has("vxe"))?;
    let what = format!("EL {major} needs a z14, and this processor lacks vxe");
    let finding = CrossingFinding::inhibitor("processor", what);
    Some(
        finding
            .with_evidence("/proc/cpuinfo", "features: no vxe")
            .with_prevented("Fatal glibc error: CPU lacks VXE support (z14 or later required)")
            .next("Move the node to newer hardware, or raise the processor model of the guest."),
    )
}
