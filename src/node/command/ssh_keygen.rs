//! ssh-keygen: signs a file with a key of the user, of an agent or of a token.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{CommandError, TerminalCommand};

const PROGRAM: &str = "ssh-keygen";

/// Signs a text, and returns the signature. ssh-keygen asks for a passphrase or a touch at the terminal.
///
/// # Errors
/// It is not installed, or does not sign.
pub fn sign_text(text: &[u8], key: &Path, namespace: &str) -> Result<Vec<u8>, CommandError> {
    let failed = |error: io::Error| CommandError::Failed(PROGRAM.to_owned(), error.to_string());
    let command = TerminalCommand {
        program: PROGRAM,
        args: vec![
            "-Y".into(),
            "sign".into(),
            "-f".into(),
            key.into(),
            "-n".into(),
            namespace.into(),
        ],
        input: file_of(text).map_err(failed)?,
    };
    let (status, output) = command.run()?;
    match status {
        Some(0) => Ok(output),
        _ => Err(CommandError::Failed(
            PROGRAM.to_owned(),
            "it did not sign; its reason is above".to_owned(),
        )),
    }
}

/// Returns a file in memory with this text.
fn file_of(text: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("signed", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text)?;
    file.rewind()?;
    Ok(file)
}
