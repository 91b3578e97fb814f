//! The x86-64 processor level that a program requires, from its property note.
//!
//! All reads are bounded: this machine never booted the image.

/// Program header type of the property note.
const PT_GNU_PROPERTY: u32 = 0x6474_e553;
/// Section or program header type of general notes.
const SHT_NOTE: u32 = 7;
/// Type of the property note.
const NT_GNU_PROPERTY_TYPE_0: u32 = 5;
/// Property: the required levels, one bit each.
const X86_ISA_1_NEEDED: u32 = 0xc000_8002;
/// Maximum number of headers that are read.
const MAX_HEADERS: usize = 1024;

/// Returns the levels that a 64-bit ELF file requires, as bits: 1 baseline, 2 v2, 4 v3, 8 v4; `None` if it has no such property
/// or is not such a file.
pub fn x86_isa_needed(elf: &[u8]) -> Option<u32> {
    let is_elf = elf.starts_with(b"\x7fELF\x02\x01");
    let in_segments = || {
        let (start, size, count) = (
            number_at(elf, 32, 8)?,
            number_at(elf, 54, 2)?,
            number_at(elf, 56, 2)?,
        );
        let headers = (0..count.min(MAX_HEADERS)).filter_map(|index| {
            let at = start.checked_add(index.checked_mul(size)?)?;
            let kind = word_at(elf, at)?;
            (kind == PT_GNU_PROPERTY).then_some(())?;
            part_of(
                elf,
                number_at(elf, at.checked_add(8)?, 8)?,
                number_at(elf, at.checked_add(32)?, 8)?,
            )
        });
        headers.filter_map(isa_in_notes).next()
    };
    let in_sections = || {
        let (start, size, count) = (
            number_at(elf, 40, 8)?,
            number_at(elf, 58, 2)?,
            number_at(elf, 60, 2)?,
        );
        let headers = (0..count.min(MAX_HEADERS)).filter_map(|index| {
            let at = start.checked_add(index.checked_mul(size)?)?;
            (word_at(elf, at.checked_add(4)?)? == SHT_NOTE).then_some(())?;
            part_of(
                elf,
                number_at(elf, at.checked_add(24)?, 8)?,
                number_at(elf, at.checked_add(32)?, 8)?,
            )
        });
        headers.filter_map(isa_in_notes).next()
    };
    is_elf.then(|| in_segments().or_else(in_sections)).flatten()
}

/// Searches notes: sizes of name and content, type, name, content, each padded to eight bytes.
fn isa_in_notes(mut notes: &[u8]) -> Option<u32> {
    while notes.len() >= 12 {
        let (name, size) = (number_at(notes, 0, 4)?, number_at(notes, 4, 4)?);
        let content = 12_usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let end = content.checked_add(size)?;
        if word_at(notes, 8)? == NT_GNU_PROPERTY_TYPE_0 && notes.get(12..16) == Some(b"GNU\0") {
            let found = isa_in_properties(notes.get(content..end)?);
            if found.is_some() {
                return found;
            }
        }
        notes = notes.get(end.checked_next_multiple_of(8)?..)?;
    }
    None
}

/// Searches properties: type, size, content padded to eight bytes.
fn isa_in_properties(mut properties: &[u8]) -> Option<u32> {
    while properties.len() >= 8 {
        let size = number_at(properties, 4, 4)?;
        if word_at(properties, 0)? == X86_ISA_1_NEEDED && size == 4 {
            return word_at(properties, 8);
        }
        let end = 8_usize.checked_add(size)?.checked_next_multiple_of(8)?;
        properties = properties.get(end..)?;
    }
    None
}

fn part_of(bytes: &[u8], start: usize, size: usize) -> Option<&[u8]> {
    bytes.get(start..start.checked_add(size)?)
}

/// Reads a little-endian number of up to eight bytes.
fn number_at(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let digits = part_of(bytes, at, size)?.iter().rev();
    let value = digits.fold(0_u64, |value, byte| (value << 8) | u64::from(*byte));
    usize::try_from(value).ok()
}

fn word_at(bytes: &[u8], at: usize) -> Option<u32> {
    u32::try_from(number_at(bytes, at, 4)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a file with one property note, found by a program header or by a section header.
    fn elf(by_segment: bool, needed: u32) -> Vec<u8> {
        let mut notes = Vec::new();
        // Another note precedes the wanted one.
        for word in [4_u32, 4, 1] {
            notes.extend(word.to_le_bytes());
        }
        notes.extend(b"GNU\0abcd\0\0\0\0");
        for word in [4_u32, 32, NT_GNU_PROPERTY_TYPE_0] {
            notes.extend(word.to_le_bytes());
        }
        notes.extend(b"GNU\0");
        for (kind, value) in [(0xc000_0002_u32, 3_u32), (X86_ISA_1_NEEDED, needed)] {
            for word in [kind, 4, value, 0] {
                notes.extend(word.to_le_bytes());
            }
        }
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut header = vec![0_u8; 64];
        let (offset, kind) = if by_segment { (8, 0) } else { (24, 4) };
        let id = if by_segment {
            PT_GNU_PROPERTY
        } else {
            SHT_NOTE
        };
        header[kind..kind + 4].copy_from_slice(&id.to_le_bytes());
        header[offset..offset + 8].copy_from_slice(&128_u64.to_le_bytes());
        header[32..40].copy_from_slice(&(notes.len() as u64).to_le_bytes());
        let (table, size) = if by_segment { (32, 54) } else { (40, 58) };
        file[table..table + 8].copy_from_slice(&64_u64.to_le_bytes());
        file[size..size + 2].copy_from_slice(&64_u16.to_le_bytes());
        file[size + 2..size + 4].copy_from_slice(&1_u16.to_le_bytes());
        file.extend(header);
        file.extend(notes);
        file
    }

    #[test]
    fn the_level_is_found_in_segments_and_in_sections() {
        for by_segment in [true, false] {
            assert_eq!(x86_isa_needed(&elf(by_segment, 7)), Some(7), "{by_segment}");
            assert_eq!(x86_isa_needed(&elf(by_segment, 3)), Some(3), "{by_segment}");
        }
    }

    #[test]
    fn a_damaged_file_names_no_level() {
        let whole = elf(true, 7);
        for length in 0..whole.len() {
            // Truncating it anywhere must not panic. The level is the last word but one.
            let found = x86_isa_needed(&whole[..length]);
            assert_eq!(found, None, "{length}");
        }
        for index in 0..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut file = whole.clone();
                file[index] = value;
                let _ = x86_isa_needed(&file);
            }
        }
        assert_eq!(x86_isa_needed(b"#!/bin/sh\n"), None);
    }
}
