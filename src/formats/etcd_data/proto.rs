//! Fields of protobuf messages, accepted and refused like by the code that etcd is built with.

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number.
    Number(u64),
    /// Bytes, text or a message.
    Bytes(&'a [u8]),
    /// A value of another kind; no message here contains one.
    Other,
}

/// A fault of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Malformed {
    /// The message ends inside a field.
    End,
    /// A field is invalid, or of another kind.
    Field,
}

/// The kind of a number.
pub(super) const NUMBER: u8 = 0;
/// The kind of bytes, text or a message.
pub(super) const BYTES: u8 = 2;

/// Reads the fields of a message in their order.
#[derive(Debug)]
pub(super) struct ProtoFields<'a>(&'a [u8], &'static [u8]);

/// Returns the fields of a message, of which those from 1 on are known to have these kinds.
pub(super) fn read_fields<'a>(message: &'a [u8], kinds: &'static [u8]) -> ProtoFields<'a> {
    ProtoFields(message, kinds)
}

impl<'a> Iterator for ProtoFields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read_field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> ProtoFields<'a> {
    fn read_field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let (read_number, kind) = self.read_tag()?;
        let place = usize::try_from(read_number - 1).unwrap_or(usize::MAX);
        if self.1.get(place).is_some_and(|known| *known != kind) {
            return Err(Malformed::Field);
        }
        let value = match kind {
            0 => Value::Number(self.read_varint()?),
            2 => {
                let length = self.read_varint()?;
                Value::Bytes(self.take_bytes(length)?)
            }
            _ => {
                self.skip_value(kind)?;
                Value::Other
            }
        };
        Ok((read_number, value))
    }

    fn read_tag(&mut self) -> Result<(u32, u8), Malformed> {
        let tag = self.read_varint()?;
        let kind = u8::try_from(tag & 7).map_err(|_| Malformed::Field)?;
        // Go keeps 32 bits of the number, as a signed value.
        let number = u32::try_from((tag >> 3) & 0xffff_ffff).map_err(|_| Malformed::Field)?;
        match number {
            0 | 0x8000_0000.. => Err(Malformed::Field),
            number => Ok((number, kind)),
        }
    }

    /// Skips a value, or a group with all groups inside it.
    fn skip_value(&mut self, mut kind: u8) -> Result<(), Malformed> {
        let mut depth = 0_u32;
        loop {
            match kind {
                0 => drop(self.read_varint()?),
                1 => drop(self.take_bytes(8)?),
                5 => drop(self.take_bytes(4)?),
                2 => {
                    let length = self.read_varint()?;
                    self.take_bytes(length)?;
                }
                3 => depth = depth.saturating_add(1),
                4 if depth > 0 => depth -= 1,
                _ => return Err(Malformed::Field),
            }
            if depth == 0 {
                return Ok(());
            }
            kind = u8::try_from(self.read_varint()? & 7).map_err(|_| Malformed::Field)?;
        }
    }

    fn read_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Malformed::End)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::Field)
    }

    fn take_bytes(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        // Go treats it as a signed number.
        let length = i64::try_from(length).map_err(|_| Malformed::Field)?;
        let length = usize::try_from(length).map_err(|_| Malformed::End)?;
        let (read_bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed::End)?;
        self.0 = rest;
        Ok(read_bytes)
    }
}

/// Returns the number in a field, or an error if the field has another kind.
pub(super) fn read_number(value: Value<'_>) -> Result<u64, Malformed> {
    match value {
        Value::Number(read_number) => Ok(read_number),
        Value::Bytes(_) | Value::Other => Err(Malformed::Field),
    }
}

/// Returns the bytes in a field, or an error if the field has another kind.
pub(super) fn read_bytes(value: Value<'_>) -> Result<&[u8], Malformed> {
    match value {
        Value::Bytes(read_bytes) => Ok(read_bytes),
        Value::Number(_) | Value::Other => Err(Malformed::Field),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_etcd_reads_them() {
        let read = |message: &[u8]| {
            read_fields(message, &[NUMBER, NUMBER, BYTES])
                .collect::<Result<Vec<_>, _>>()
                .map(|all| all.len())
        };
        let (end, field) = (Err(Malformed::End), Err(Malformed::Field));
        for (message, read_number) in [
            (&b"\x08\x01\x10\x80\x01\x1a\x02ab"[..], Ok(3)),
            (b"", Ok(0)),
            // Unknown fields: of eight bytes, of four bytes, and a group.
            (b"\x51\x00\x00\x00\x00\x00\x00\x00\x00", Ok(1)),
            (b"\x55\x00\x00\x00\x00", Ok(1)),
            (b"\x53\x08\x01\x54", Ok(1)),
            // Truncated, a number of 11 bytes, field 0, the end of a missing group, a group without an end.
            (b"\x08", end),
            (b"\x19", field),
            (b"\x51", end),
            (b"\x1a\x03ab", end),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", field),
            (b"\x00\x01", field),
            (b"\x54", field),
            (b"\x63\x63\x63\x63", end),
            (b"\x63\x63\x64\x64", Ok(1)),
            (b"\x53\x08\x01", end),
        ] {
            assert_eq!(read(message), read_number, "{message:x?}");
        }
    }
}
