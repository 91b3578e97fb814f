//! ssh-keygen: signs a file with a key of the user, of an agent or of a token.

use std::fs::File;
use std::path::Path;

use super::{CommandError, TerminalCommand};

const PROGRAM: &str = "ssh-keygen";

/// Signs a file, and returns the signature. ssh-keygen asks for a passphrase or a touch at the terminal.
///
/// # Errors
/// It is not installed, or does not sign.
pub fn sign_file(file: File, key: &Path, namespace: &str) -> Result<Vec<u8>, CommandError> {
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
        input: file,
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
