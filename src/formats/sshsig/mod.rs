//! OpenSSH's signatures of files (`PROTOCOL.sshsig`), and the file `allowed_signers` (ssh-keygen(1), "ALLOWED SIGNERS").
//!
//! - [`SshSignature`] parses what `ssh-keygen -Y sign` writes, and verifies it with ring.
//! - [`AllowedSigners`] says which keys may sign, for which namespaces, and when.
//!
//! Where OpenSSH is lenient this is strict: nothing may follow a signature, every field has its only form, and certificates, SHA-1
//! and keys that `sshd` no longer accepts are refused. A key on a token has to report that it was touched.

mod allowed;
mod key;
mod options;
mod signature;
mod wire;

pub use allowed::{AllowedSigners, SignerError};
pub use signature::{MAX_SIGNATURE, SshSignature};
pub use wire::SignatureError;
