//! `--recipient`: the keys to which a bundle is encrypted, each given directly or in a file.

use anyhow::{Context, Result, bail};

use crate::change::source;
use crate::formats::age::{Recipient, RecipientError};
use crate::host::caller;

/// Maximum size of a key file.
const MAX_FILE: usize = 256 << 10;

/// Reads all keys. Nothing is examined or written before all of them are valid.
pub(super) fn read(given: &[String]) -> Result<Vec<Recipient>> {
    let mut all: Vec<Recipient> = Vec::new();
    for (index, key) in given.iter().enumerate() {
        let place = format!("key {} of --recipient", index + 1);
        let found = match Recipient::parse(key) {
            Ok(recipient) => vec![recipient],
            Err(RecipientError::NoKey) if caller::is_there(key) => of_file(key)?,
            Err(RecipientError::NoKey) => {
                bail!(
                    "{place} {}, and no file has that name",
                    RecipientError::NoKey
                )
            }
            Err(error) => bail!("{place} {error}. Nothing was written"),
        };
        // A repeated key counts once.
        all.extend(
            found
                .into_iter()
                .filter(|one| !all.contains(one))
                .collect::<Vec<_>>(),
        );
    }
    Ok(all)
}

/// Reads a file with one key per line, such as `authorized_keys`.
fn of_file(name: &str) -> Result<Vec<Recipient>> {
    let bytes = source::read_named(name).with_context(|| format!("reading the keys in {name}"))?;
    if bytes.len() > MAX_FILE {
        bail!("{name} is too large for a file of keys; give one with a key a line");
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut all = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match Recipient::parse(line) {
            Ok(recipient) => all.push(recipient),
            Err(error) => bail!("line {} of {name} {error}. Nothing was written", index + 1),
        }
    }
    if all.is_empty() {
        bail!("{name} has no key; give one with a key a line");
    }
    Ok(all)
}
