//! The file `allowed_signers`.

use super::options::{SignerOptions, matches_patterns};
use super::signature::SshSignature;
use super::wire::SignatureError;
use crate::base::reason::Reason;
use crate::base::ssh_key::{KeyError, PublicKey, read_wire};
use crate::base::time::format_utc;

/// Keys that may sign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedSigners {
    signers: Vec<AllowedSigner>,
    /// Lines that allow no signer.
    pub skipped: Vec<SkippedLine>,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedSigner {
    /// Who has the key, as the file names them.
    pub principals: String,
    /// The key.
    pub key: PublicKey,
    blob: Vec<u8>,
    options: SignerOptions,
}

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedLine {
    /// Its number, from 1.
    pub number: usize,
    /// The reason.
    pub reason: Reason,
}

/// The reason why a signature is not by an allowed signer; its text is the end of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignerError {
    /// The signature itself.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The key is not in the file.
    #[error("is by the key {0}, which is not allowed to sign")]
    Unknown(String),
    /// The key is in the file, but not for this.
    #[error("is by the key {key} of {principals}, which {reason}")]
    NotAllowed {
        /// Its fingerprint.
        key: String,
        /// Who has it.
        principals: String,
        /// What the file says of it.
        reason: String,
    },
}

impl AllowedSigners {
    /// Parses the file. Lines that cannot be used allow no signer, as in OpenSSH.
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_start_matches([' ', '\t']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match parse_line(line) {
                Ok(signer) => all.signers.push(signer),
                Err(reason) => all.skipped.push(SkippedLine {
                    number: index + 1,
                    reason,
                }),
            }
        }
        all
    }

    /// Verifies a signature of a message, by a key that may sign for `namespace` at `time`, in seconds since 1970.
    ///
    /// # Errors
    /// The signature is wrong, or its key may not sign.
    pub fn verify(
        &self,
        signature: &SshSignature,
        message: &[u8],
        namespace: &str,
        time: u64,
    ) -> Result<&AllowedSigner, SignerError> {
        signature.verify(message, namespace)?;
        let mut refused = SignerError::Unknown(signature.key.fingerprint.clone());
        for signer in &self.signers {
            if signer.blob != signature.blob {
                continue;
            }
            match signer.why_not(namespace, time) {
                None => return Ok(signer),
                Some(reason) => {
                    refused = SignerError::NotAllowed {
                        key: signature.key.fingerprint.clone(),
                        principals: signer.principals.clone(),
                        reason,
                    }
                }
            }
        }
        Err(refused)
    }
}

impl AllowedSigner {
    fn why_not(&self, namespace: &str, time: u64) -> Option<String> {
        let options = &self.options;
        let is_for = |patterns: &String| matches_patterns(namespace, patterns);
        if !options.namespaces.as_ref().is_none_or(is_for) {
            return Some(format!("may not sign for the namespace {namespace}"));
        }
        if let Some(after) = options.valid_after.filter(|after| time < *after) {
            return Some(format!("is valid only from {}", format_utc(after)));
        }
        let before = options.valid_before.filter(|before| time > *before)?;
        Some(format!("was valid until {}", format_utc(before)))
    }
}

fn parse_line(line: &str) -> Result<AllowedSigner, Reason> {
    let (principals, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').ok_or("a quote that does not end")?,
        None => line.split_once([' ', '\t']).ok_or("there is no key")?,
    };
    let rest = rest.trim_start_matches([' ', '\t']);
    if principals.is_empty() {
        return Err("it names nobody".into());
    }
    let (options, key) = match PublicKey::check(rest) {
        Ok(_) => (SignerOptions::default(), rest),
        Err(KeyError::NoType) => {
            let end = end_of_options(rest).ok_or("there is no key")?;
            let (options, key) = rest.split_at(end);
            (SignerOptions::parse(options)?, key)
        }
        Err(error) => return Err(format!("it {error}").into()),
    };
    if options.is_authority {
        return Err("certificates are not accepted, so a cert-authority allows nobody".into());
    }
    let key = key.trim_start_matches([' ', '\t']);
    PublicKey::check(key).map_err(|error| format!("the key {error}"))?;
    let (key, wire) = read_wire(key).map_err(|error| format!("the key {error}"))?;
    Ok(AllowedSigner {
        principals: principals.to_owned(),
        key,
        blob: wire.blob,
        options,
    })
}

/// Returns the first blank outside of quotes.
fn end_of_options(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.find(|letter: char| {
        let is_end = !is_quoted && matches!(letter, ' ' | '\t');
        if letter == '"' && !is_escaped {
            is_quoted = !is_quoted;
        }
        is_escaped = letter == '\\' && !is_escaped;
        is_end
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO me@there";

    #[test]
    fn lines_are_read_as_openssh_reads_them_or_allow_nobody() {
        let lines = [
            "# comment",
            "",
            &format!("alice,bob {KEY}"),
            &format!(
                "  \"carol,*@example.com\"\tnamespaces=\"a,b c\",valid-before=\"20300101\" {KEY}"
            ),
            &format!("* cert-authority {KEY}"),
            &format!("dora namespace=\"x\" {KEY}"),
            KEY,
            "eve",
            &format!("\"frank {KEY}"),
            "gina ssh-ed25519 AAAA",
            "hugo ssh-ed25519-cert-v01@openssh.com AAAA",
        ];
        let parsed = AllowedSigners::parse(&lines.join("\n"));
        let names: Vec<&str> = parsed
            .signers
            .iter()
            .map(|one| one.principals.as_str())
            .collect();
        assert_eq!(names, ["alice,bob", "carol,*@example.com"]);
        let skipped: Vec<usize> = parsed.skipped.iter().map(|one| one.number).collect();
        assert_eq!(skipped, [5, 6, 7, 8, 9, 10, 11]);
        assert!(
            parsed.skipped[0]
                .reason
                .to_string()
                .contains("cert-authority")
        );
    }

    #[test]
    fn a_key_signs_only_for_its_namespaces_and_in_its_time() {
        let line = format!(
            "a namespaces=\"capsule\",valid-after=\"19700101000010Z\",valid-before=\"19700101000020Z\" {KEY}"
        );
        let signer = parse_line(&line).unwrap();
        assert_eq!(signer.why_not("capsule", 10), None);
        assert_eq!(signer.why_not("capsule", 20), None);
        assert!(signer.why_not("capsule", 9).is_some());
        assert!(signer.why_not("capsule", 21).is_some());
        assert!(signer.why_not("git", 15).is_some());
    }
}
