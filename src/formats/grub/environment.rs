//! GRUB's environment block (`grubenv`): 1024 bytes with a first line, lines `name=value`, and `#` up to the end.
//!
//! GRUB writes it in place before it starts a kernel, so its size never changes. Foreign contents are preserved, byte for byte
//! and in order.

/// Size of the block in bytes.
pub const SIZE: usize = 1024;
/// First line of the block.
pub const SIGNATURE: &[u8] = b"# GRUB Environment Block\n";

/// An environment block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    lines: Vec<Line>,
}

/// A line without its end; an escaped line break is part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// It begins with `#`.
    Comment(Vec<u8>),
    /// Name and value, as they are in the block.
    Variable(Vec<u8>, Vec<u8>),
}

/// The reason why a block cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// Another size.
    #[error("it has {0} bytes and not {SIZE}")]
    Size(usize),
    /// Another first line.
    #[error("its first line is not that of an environment block")]
    Signature,
    /// Bytes after the last complete line.
    #[error("its last line has no end")]
    End,
    /// A line that is neither a variable nor a comment.
    #[error("its line {0} is not a variable")]
    Line(usize),
    /// A byte that terminates a string for GRUB.
    #[error("it has a zero byte at offset {0}")]
    Zero(usize),
    /// A name that is not valid for a script's variable.
    #[error("{0:?} cannot be the name of a variable")]
    Name(String),
    /// Not enough space for another value.
    #[error("it is full: {0} bytes are missing")]
    Full(usize),
}

impl Environment {
    /// Parses a block.
    ///
    /// # Errors
    /// It is damaged, or has another size. GRUB would ignore it, or read only part of it.
    pub fn parse(block: &[u8]) -> Result<Self, EnvironmentError> {
        if block.len() != SIZE {
            return Err(EnvironmentError::Size(block.len()));
        }
        if let Some(offset) = block.iter().position(|&byte| byte == 0) {
            return Err(EnvironmentError::Zero(offset));
        }
        let body = block.strip_prefix(SIGNATURE);
        let body = body.ok_or(EnvironmentError::Signature)?;
        let padding = body.iter().rev().take_while(|&&byte| byte == b'#').count();
        let mut rest = body.get(..body.len() - padding).unwrap_or_default();
        let mut lines = Vec::new();
        while !rest.is_empty() {
            let length = line_length(rest).ok_or(EnvironmentError::End)?;
            let (line, next) = rest.split_at(length);
            lines.push(Line::parse(line).ok_or(EnvironmentError::Line(lines.len() + 2))?);
            rest = next.get(1..).unwrap_or_default();
        }
        Ok(Self { lines })
    }

    /// Returns the value of a variable; of repeated ones the last wins, as for GRUB.
    pub fn get(&self, name: &str) -> Option<String> {
        let mut values = self.lines.iter().rev();
        values.find_map(|line| match line {
            Line::Variable(own, value) if own == name.as_bytes() => Some(unescape_value(value)),
            _ => None,
        })
    }

    /// Returns all variables in their order.
    pub fn variables(&self) -> Vec<(String, String)> {
        let pair = |line: &Line| match line {
            Line::Variable(name, value) => Some((
                String::from_utf8_lossy(name).into_owned(),
                unescape_value(value),
            )),
            Line::Comment(_) => None,
        };
        self.lines.iter().filter_map(pair).collect()
    }

    /// Sets a variable in place, or adds it at the end. A full block is left unchanged.
    ///
    /// # Errors
    /// The block does not have enough space, or the name or value cannot be stored.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), EnvironmentError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(fits) {
            return Err(EnvironmentError::Name(name.to_owned()));
        }
        if let Some(offset) = value.bytes().position(|byte| byte == 0) {
            return Err(EnvironmentError::Zero(offset));
        }
        let mut changed = self.clone();
        let line = Line::Variable(name.as_bytes().to_vec(), escape_value(value));
        let place = changed.lines.iter().position(|line| line.is_of(name));
        match place.and_then(|at| changed.lines.get_mut(at)) {
            Some(old) => *old = line,
            None => changed.lines.push(line),
        }
        let mut seen = false;
        changed
            .lines
            .retain(|line| !line.is_of(name) || !std::mem::replace(&mut seen, true));
        let needed = changed.length();
        if needed > SIZE {
            return Err(EnvironmentError::Full(needed - SIZE));
        }
        *self = changed;
        Ok(())
    }

    /// Removes a variable. Returns true if there was one.
    pub fn unset(&mut self, name: &str) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| !line.is_of(name));
        self.lines.len() != before
    }

    /// Returns the block.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut block = SIGNATURE.to_vec();
        for line in &self.lines {
            match line {
                Line::Comment(text) => block.extend_from_slice(text),
                Line::Variable(name, value) => {
                    block.extend_from_slice(name);
                    block.push(b'=');
                    block.extend_from_slice(value);
                }
            }
            block.push(b'\n');
        }
        block.resize(SIZE, b'#');
        block
    }

    /// Returns the offset of the value of a variable in the block, if it is stored as this text.
    pub fn offset_of(&self, name: &str, value: &str) -> Option<usize> {
        let mut offset = SIGNATURE.len();
        let mut found = None;
        for line in &self.lines {
            if let Line::Variable(own, stored) = line
                && own == name.as_bytes()
            {
                let is_it = stored == value.as_bytes();
                found = is_it.then_some(offset + own.len() + 1);
            }
            offset += line.length();
        }
        found
    }

    fn length(&self) -> usize {
        SIGNATURE.len() + self.lines.iter().map(Line::length).sum::<usize>()
    }
}

impl Line {
    fn parse(line: &[u8]) -> Option<Self> {
        if line.first() == Some(&b'#') {
            return Some(Self::Comment(line.to_vec()));
        }
        let at = line.iter().position(|&byte| byte == b'=')?;
        let (name, value) = line.split_at(at);
        Some(Self::Variable(
            name.to_vec(),
            value.get(1..).unwrap_or_default().to_vec(),
        ))
    }

    fn is_of(&self, wanted: &str) -> bool {
        matches!(self, Self::Variable(name, _) if name == wanted.as_bytes())
    }

    /// Returns its length in the block, including its end.
    fn length(&self) -> usize {
        match self {
            Self::Comment(text) => text.len() + 1,
            Self::Variable(name, value) => name.len() + value.len() + 2,
        }
    }
}

/// Returns the length of the first line; a backslash escapes the next byte.
fn line_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'\n' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn escape_value(value: &str) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(value.len());
    for byte in value.bytes() {
        if matches!(byte, b'\\' | b'\n') {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    escaped
}

fn unescape_value(value: &[u8]) -> String {
    let mut bytes = value.iter();
    let mut text = Vec::with_capacity(value.len());
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => text.extend(bytes.next()),
            _ => text.push(byte),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &str) -> Vec<u8> {
        let mut block = [SIGNATURE, lines.as_bytes()].concat();
        block.resize(SIZE, b'#');
        block
    }

    #[test]
    fn foreign_lines_stay_byte_for_byte() {
        let old =
            block("# WARNING: x\nboot_success=1\n#a=b\\\nc\nkernelopts=root=x \\\\ y\\\nz\n=\n");
        let mut environment = Environment::parse(&old).unwrap();
        assert_eq!(environment.to_bytes(), old);
        assert_eq!(environment.get("kernelopts").unwrap(), "root=x \\ y\nz");
        assert_eq!(environment.get("a"), None);
        environment.set("mine", "one").unwrap();
        environment.set("boot_success", "0").unwrap();
        let text = String::from_utf8(environment.to_bytes()).unwrap();
        assert!(text.contains("# WARNING: x\nboot_success=0\n#a=b\\\nc\nkernelopts="));
        assert!(environment.unset("mine"));
        assert!(!environment.unset("mine"));
        environment.set("boot_success", "1").unwrap();
        assert_eq!(environment.to_bytes(), old);
    }

    #[test]
    fn a_block_that_grub_would_not_read_whole_is_refused() {
        let error = |bytes: &[u8]| Environment::parse(bytes).unwrap_err();
        assert_eq!(error(b""), EnvironmentError::Size(0));
        assert_eq!(error(&block("")[..1023]), EnvironmentError::Size(1023));
        assert_eq!(
            error(&[block(""), vec![b'#']].concat()),
            EnvironmentError::Size(1025)
        );
        assert_eq!(error(&[b'#'; SIZE]), EnvironmentError::Signature);
        assert_eq!(error(&block("a=b")), EnvironmentError::End);
        assert_eq!(error(&block("a=b\\\n")), EnvironmentError::End);
        assert_eq!(error(&block("a=b\nabc\n")), EnvironmentError::Line(3));
        assert_eq!(error(&block("\na=b\n")), EnvironmentError::Line(2));
        let mut zeros = block("a=b\n");
        zeros[1000..].fill(0);
        assert_eq!(error(&zeros), EnvironmentError::Zero(1000));
    }

    #[test]
    fn a_full_block_is_an_error_and_stays_as_it_was() {
        let mut environment = Environment::parse(&block("a=b\n")).unwrap();
        let room = SIZE - SIGNATURE.len() - "a=b\n".len() - "c=\n".len();
        let before = environment.clone();
        let full = environment.set("c", &"x".repeat(room + 1));
        assert_eq!(full, Err(EnvironmentError::Full(1)));
        assert_eq!(environment, before);
        environment.set("c", &"x".repeat(room)).unwrap();
        let bytes = environment.to_bytes();
        assert_eq!(bytes.len(), SIZE);
        assert_eq!(Environment::parse(&bytes).unwrap(), environment);
        // Without padding, a value of the same length still fits; an escape needs an extra byte.
        environment.set("a", "c").unwrap();
        assert_eq!(environment.set("a", "\\"), Err(EnvironmentError::Full(1)));
    }

    #[test]
    fn of_a_repeated_variable_the_last_one_counts_and_one_stays() {
        let mut environment = Environment::parse(&block("a=1\nb=2\na=3\n")).unwrap();
        assert_eq!(environment.get("a").unwrap(), "3");
        assert_eq!(environment.offset_of("a", "1"), None);
        assert_eq!(environment.offset_of("a", "3"), Some(SIGNATURE.len() + 10));
        environment.set("a", "4").unwrap();
        assert_eq!(environment.to_bytes(), block("a=4\nb=2\n"));
        assert_eq!(
            environment.set("a=b", "1"),
            Err(EnvironmentError::Name("a=b".to_owned()))
        );
    }
}
