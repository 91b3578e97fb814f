//! GVariant, the serialisation that OSTree uses for its objects and for files below `/run/ostree` (GLib's GVariant specification).
//!
//! Only the containers that OSTree needs are here. Every value is bounded by its own end, so damaged bytes yield fewer values and
//! never wrong ones.

/// Returns the width of an offset in a container of this size, in bytes.
pub fn offset_width(size: usize) -> usize {
    match size {
        0..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// Returns the offset of this width at a position; `None` past the end.
pub fn read_offset(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let read = bytes.get(at..at.checked_add(width)?)?;
    let mut number = [0; 8];
    number.get_mut(..width)?.copy_from_slice(read);
    usize::try_from(u64::from_le_bytes(number)).ok()
}

/// Returns the members of an array whose members have variable lengths and this alignment.
pub fn split_array(array: &[u8], alignment: usize) -> Option<Vec<&[u8]>> {
    if array.is_empty() {
        return Some(Vec::new());
    }
    let width = offset_width(array.len());
    let table = read_offset(array, array.len().checked_sub(width)?, width)?;
    let offsets = array.get(table..)?;
    let (mut all, mut begin) = (Vec::new(), 0_usize);
    for at in (0..offsets.len()).step_by(width) {
        let end = read_offset(offsets, at, width)?;
        // Padding precedes each member except the first.
        begin = begin.checked_next_multiple_of(alignment)?;
        all.push(array.get(begin..end.min(table))?);
        begin = end;
    }
    Some(all)
}

/// Appends the end offsets of a container's members, each in as few bytes as possible.
pub fn append_offsets(mut body: Vec<u8>, ends: &[usize]) -> Vec<u8> {
    let mut widths = [1, 2, 4, 8].into_iter();
    let fits = |width: &usize| offset_width(body.len() + ends.len() * width) <= *width;
    let width = widths.find(fits).unwrap_or(8);
    for end in ends {
        body.extend(end.to_le_bytes().iter().take(width));
    }
    body
}

/// A dictionary from names to values of any type (`a{sv}`).
#[derive(Debug, Clone, Copy)]
pub struct Dictionary<'a>(pub &'a [u8]);

impl<'a> Dictionary<'a> {
    /// Returns the dictionary with this name.
    pub fn dictionary(self, key: &[u8]) -> Option<Dictionary<'a>> {
        self.value(key, b"a{sv}").map(Dictionary)
    }

    /// Returns the string with this name.
    pub fn text(self, key: &[u8]) -> Option<String> {
        read_string(self.value(key, b"s")?)
    }

    /// Returns the boolean with this name.
    pub fn flag(self, key: &[u8]) -> Option<bool> {
        match self.value(key, b"b")? {
            [flag] => Some(*flag == 1),
            _ => None,
        }
    }

    /// Returns the list of strings with this name.
    pub fn list(self, key: &[u8]) -> Option<Vec<String>> {
        let value = self.value(key, b"as")?;
        split_array(value, 1)?
            .into_iter()
            .map(read_string)
            .collect()
    }

    /// Returns the bytes of the value with this name, if it has this type.
    pub fn value(self, key: &[u8], kind: &[u8]) -> Option<&'a [u8]> {
        let (_, variant) = self.entries()?.into_iter().find(|(name, _)| *name == key)?;
        variant.strip_suffix(kind)?.strip_suffix(b"\0")
    }

    /// Returns the names.
    pub fn names(self) -> Option<Vec<String>> {
        let entries = self.entries()?.into_iter();
        let names = entries.map(|(name, _)| String::from_utf8_lossy(name).into_owned());
        Some(names.collect())
    }

    /// Returns each name with its value and the value's type.
    fn entries(self) -> Option<Vec<(&'a [u8], &'a [u8])>> {
        let entries = split_array(self.0, 8)?.into_iter().map(|entry| {
            let width = offset_width(entry.len());
            let end = read_offset(entry, entry.len().checked_sub(width)?, width)?;
            let name = entry.get(..end)?.strip_suffix(b"\0")?;
            let value = end.checked_next_multiple_of(8)?;
            Some((name, entry.get(value..entry.len() - width)?))
        });
        entries.collect()
    }
}

fn read_string(bytes: &[u8]) -> Option<String> {
    let text = bytes.strip_suffix(b"\0")?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_as_wide_as_the_whole_needs() {
        assert_eq!(append_offsets(vec![7; 3], &[3]), [7, 7, 7, 3]);
        assert_eq!(append_offsets(vec![7; 254], &[254]).len(), 255);
        assert_eq!(append_offsets(vec![7; 255], &[255]).len(), 257);
    }

    #[test]
    fn damaged_bytes_yield_no_wrong_values() {
        for length in 0..600 {
            for byte in [0, 1, 31, 32, 64, 0xff] {
                let bytes = vec![byte; length];
                let dictionary = Dictionary(&bytes);
                assert_eq!(dictionary.text(b"name"), None);
                split_array(&bytes, 1);
            }
        }
        assert_eq!(split_array(&[], 8), Some(Vec::new()));
    }
}
