//! The processor of a machine, from `/proc/cpuinfo`.

use std::collections::BTreeSet;

use super::Seen;

/// Features that every processor of the machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Processor {
    /// x86, with its flags.
    X86 {
        /// Name of the model.
        model: String,
        /// Flags.
        flags: BTreeSet<String>,
    },
    /// POWER, with the oldest supported generation, such as 9.
    Power(u32),
    /// IBM Z, with its features.
    Z(BTreeSet<String>),
    /// Another architecture, without levels.
    Other,
}

/// Parses `/proc/cpuinfo`.
///
/// # Errors
/// It describes no processor.
pub(super) fn parse_processor(text: &str) -> Seen<Processor> {
    let values = |wanted: &'static str| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.filter_map(move |(key, value)| (key.trim() == wanted).then_some(value.trim()))
    };
    let common = |key: &'static str| {
        let sets = values(key).map(|line| -> BTreeSet<String> {
            line.split_ascii_whitespace().map(str::to_owned).collect()
        });
        sets.reduce(|known, more| known.intersection(&more).cloned().collect())
    };
    let is_z = values("vendor_id").any(|vendor| vendor == "IBM/S390");
    if let Some(features) = common("features").filter(|_| is_z) {
        return Ok(Processor::Z(features));
    }
    if let Some(flags) = common("flags") {
        let model = values("model name").next().unwrap_or_default().to_owned();
        return Ok(Processor::X86 { model, flags });
    }
    let generation = |cpu: &str| -> Option<u32> {
        let digits = cpu.strip_prefix("POWER")?;
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        digits.get(..end)?.parse().ok()
    };
    if let Some(oldest) = values("cpu").filter_map(generation).min() {
        return Ok(Processor::Power(oldest));
    }
    if text.trim().is_empty() {
        Err("/proc/cpuinfo is empty".into())
    } else {
        Ok(Processor::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_of_every_processor() {
        let set = |text: &str| text.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
        let text = "processor\t: 0\nmodel name\t: A\nflags\t\t: fpu sse avx\n\nprocessor\t: 1\nflags\t\t: sse fpu\n";
        let expected = Processor::X86 {
            model: "A".to_owned(),
            flags: set("fpu sse"),
        };
        assert_eq!(parse_processor(text), Ok(expected));
        let text = "processor\t: 0\ncpu\t\t: POWER10 (architected)\n\nprocessor\t: 1\ncpu\t\t: POWER9, altivec supported\n";
        assert_eq!(parse_processor(text), Ok(Processor::Power(9)));
        let text =
            "vendor_id       : IBM/S390\nfeatures\t: esan3 vx vxd vxe\nprocessor 0: version = 00\n";
        assert_eq!(
            parse_processor(text),
            Ok(Processor::Z(set("esan3 vx vxd vxe")))
        );
        let text = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\n";
        assert_eq!(parse_processor(text), Ok(Processor::Other));
        assert!(parse_processor("\n").is_err());
    }
}
