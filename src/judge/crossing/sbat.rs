//! Boot loader generations (SBAT): a program's section, and the level below which shim refuses it. Pure.

use std::collections::BTreeMap;

/// A revocation level: the lowest accepted generation of each component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RevocationLevel {
    /// Its date, by which levels are compared; 0 for an empty level.
    pub(super) date: u64,
    /// Generations by component.
    pub(super) components: BTreeMap<String, u32>,
}

/// Maximum number of sections of a program.
const MAX_SECTIONS: usize = 96;
const SECTION: usize = 40;
/// Columns of a row of `.sbat`.
const COLUMNS: usize = 6;

impl RevocationLevel {
    /// Parses lines like `shim,2`; the first one is `sbat,1,DATE`.
    pub(super) fn parse_lines(text: &str) -> Self {
        let mut level = Self::default();
        for line in text.lines().map(|line| line.trim().trim_matches('\0')) {
            let mut columns = line.split(',');
            let (Some(name), Some(generation)) = (columns.next(), columns.next()) else {
                continue;
            };
            if let Ok(generation) = generation.trim().parse() {
                level.components.insert(name.to_owned(), generation);
            }
            if name == "sbat" {
                level.date = columns
                    .next()
                    .and_then(|date| date.parse().ok())
                    .unwrap_or(0);
            }
        }
        level
    }

    /// Returns the reason why shim refuses a program at this level.
    pub(super) fn refusal_reason(&self, program: &[u8]) -> Option<String> {
        if self.components.is_empty() {
            return None;
        }
        let rows = match find_section(program, ".sbat") {
            Some(section) => parse_rows(section),
            None => return Some("it has no SBAT section".to_owned()),
        };
        let Some(rows) = rows else {
            return Some("its SBAT section is not valid".to_owned());
        };
        rows.into_iter().find_map(|(name, own)| {
            let least = self
                .components
                .get(&name)
                .copied()
                .filter(|least| own < *least)?;
            Some(format!(
                "{name} has generation {own}, and {least} is required"
            ))
        })
    }
}

/// Returns the level that a shim sets when it boots: the first one compiled in.
pub(super) fn level_of_shim(program: &[u8]) -> Option<RevocationLevel> {
    let section = find_section(program, ".sbatlevel")?;
    // A format, then two offsets relative to the end of the format.
    let offset = usize::try_from(read_u32(section, 4)?).ok()?;
    let text = section.get(offset.checked_add(4)?..)?;
    let text = text.split(|byte| *byte == 0).next()?;
    let level = RevocationLevel::parse_lines(std::str::from_utf8(text).ok()?);
    (level.date > 0).then_some(level)
}

/// Returns component and generation of each row; `None` if shim regards the whole section as invalid.
fn parse_rows(section: &[u8]) -> Option<Vec<(String, u32)>> {
    let text = section.split(|byte| *byte == 0).next()?;
    let text = std::str::from_utf8(text).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.split(['\n', '\r']).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let columns: Vec<&str> = line.splitn(COLUMNS, ',').collect();
            let is_whole = columns.len() == COLUMNS && columns.iter().all(|one| !one.is_empty());
            let (name, generation) = (columns.first()?, columns.get(1)?);
            is_whole.then_some(((*name).to_owned(), generation.parse().ok()?))
        })
        .collect()
}

/// Returns a section of a PE program. A name of more than eight bytes is truncated, or stored in the string table.
fn find_section<'a>(program: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    let header = usize::try_from(read_u32(program, 0x3c)?).ok()?;
    let file = program.get(header..)?;
    if !program.starts_with(b"MZ") || !file.starts_with(b"PE\0\0") {
        return None;
    }
    let count = usize::from(read_u16(file, 6)?).min(MAX_SECTIONS);
    let table = 24 + usize::from(read_u16(file, 20)?);
    let symbols = u64::from(read_u32(file, 12)?) + u64::from(read_u32(file, 16)?) * 18;
    let strings = usize::try_from(symbols)
        .ok()
        .and_then(|at| program.get(at..));
    for index in 0..count {
        let entry = file.get(table + index * SECTION..)?.get(..SECTION)?;
        let name = entry.get(..8)?.split(|byte| *byte == 0).next()?;
        let name = std::str::from_utf8(name).unwrap_or_default();
        let long = name
            .strip_prefix('/')
            .and_then(|at| at.parse::<usize>().ok());
        let long = long.and_then(|at| strings?.get(at..)?.split(|byte| *byte == 0).next());
        let is_it = match long {
            Some(long) => long == wanted.as_bytes(),
            None => wanted.get(..8).unwrap_or(wanted) == name,
        };
        if is_it {
            let size = usize::try_from(read_u32(entry, 16)?).ok()?;
            let start = usize::try_from(read_u32(entry, 20)?).ok()?;
            return program.get(start..start.checked_add(size)?);
        }
    }
    None
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(two.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A PE program with these sections and nothing else.
    fn program(sections: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = b"MZ".to_vec();
        bytes.resize(0x3c, 0);
        bytes.extend(0x40u32.to_le_bytes());
        bytes.extend(b"PE\0\0\x64\x86");
        bytes.extend(u16::try_from(sections.len()).unwrap().to_le_bytes());
        bytes.extend([0; 16]);
        let mut start = bytes.len() + sections.len() * SECTION;
        let mut contents = Vec::<u8>::new();
        for (name, content) in sections {
            let mut entry = name.as_bytes().to_vec();
            entry.resize(16, 0);
            entry.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
            entry.extend(u32::try_from(start).unwrap().to_le_bytes());
            entry.resize(SECTION, 0);
            bytes.extend(entry);
            contents.extend(*content);
            start += content.len();
        }
        bytes.extend(contents);
        bytes
    }

    const ROWS: &[u8] =
        b"sbat,1,SBAT Version,sbat,1,https://x\ngrub,4,Free Software Foundation,grub,2.06,https://y\n\0\0";

    #[test]
    fn a_generation_below_the_level_is_refused() {
        let own = program(&[(".text", b"x"), (".sbat", ROWS)]);
        let refused = |level: &str| RevocationLevel::parse_lines(level).refusal_reason(&own);
        assert_eq!(refused(""), None);
        assert_eq!(refused("sbat,1,2024010900\nshim,4\ngrub,4\n"), None);
        assert_eq!(
            refused("sbat,1,2025021800\nshim,4\ngrub,5\n").unwrap(),
            "grub has generation 4, and 5 is required"
        );
    }

    #[test]
    fn without_a_valid_section_a_program_is_refused() {
        let level = RevocationLevel::parse_lines("sbat,1,2024010900\ngrub,4\n");
        for (sections, words) in [
            (vec![(".text", &b"x"[..])], "no SBAT section"),
            (vec![(".sbat", &b"grub,4,,grub,2,z\n"[..])], "not valid"),
            (vec![(".sbat", &b"grub,4,a,b\n"[..])], "not valid"),
            (vec![(".sbat", &b"grub,x,a,b,c,d\n"[..])], "not valid"),
        ] {
            let refused = level.refusal_reason(&program(&sections)).unwrap();
            assert!(refused.contains(words), "{refused}");
        }
        assert_eq!(RevocationLevel::default().refusal_reason(b""), None);
    }

    #[test]
    fn the_level_of_a_shim_is_its_first_one() {
        let mut section = vec![0, 0, 0, 0, 8, 0, 0, 0, 30, 0, 0, 0];
        section.extend(b"sbat,1,2023012900\0sbat,1,2024010900\nshim,4\0");
        for name in [".sbatlevel", ".sbatlev"] {
            let shim = program(&[(name.get(..8).unwrap(), &section)]);
            assert_eq!(level_of_shim(&shim).unwrap().date, 2_023_012_900);
        }
        assert_eq!(level_of_shim(&program(&[(".sbatlev", b"\0\0")])), None);
    }

    proptest! {
        #[test]
        fn damaged_programs_are_read_to_their_end(cut in 0usize..400, at in 0usize..400, byte in any::<u8>()) {
            let mut bytes = program(&[(".text", b"x"), (".sbat", ROWS), (".sbatlev", &[0; 20])]);
            if let Some(one) = bytes.get_mut(at) {
                *one = byte;
            }
            bytes.truncate(cut);
            let _ = level_of_shim(&bytes);
            let _ = RevocationLevel::parse_lines("sbat,1,2024010900\ngrub,4\n").refusal_reason(&bytes);
        }
    }
}
