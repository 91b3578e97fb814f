//! `capsule`: lists a directory and signs the list, verifies one, shows one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, Subcommand};

use crate::base::error::ExitCode;
use crate::base::invocation::shell_words;
use crate::base::time::{current_time, parse_day_or_time};
use crate::change::capsule::opened::UnverifiedCapsule;
use crate::change::capsule::policy::read_signers;
use crate::change::capsule::{CAPSULE, NAMESPACE, SIGNATURE};
use crate::change::session::open_root;
use crate::change::source;
use crate::change::source::gate::{judge_capsule, prove_time};
use crate::change::transaction::write_readable_output;
use crate::cli::ui::Ui;
use crate::formats::sshsig::{AllowedSigners, SshSignature};
use crate::host::caller;
use crate::host::progress::{self, Work};
use crate::node::command::ssh_keygen;
use crate::report;
use crate::report::capsule::{CapsuleCheck, CapsuleView, MadeCapsule, SignatureView};
use crate::run::capsule::{CapsuleScope, list_directory};

/// What to do with a capsule.
#[derive(Debug, Subcommand)]
pub enum CapsuleCommand {
    /// List every file of a directory in DIR/capsule.json, and sign the list
    ///
    /// ssh-keygen signs: with a file, a key of the agent (name its public key), or a key on
    /// a token, which asks for a touch. Images of `mco-rescue image export` below DIR are listed
    /// by their digest and the checksum of their content.
    Make(MakeArgs),
    /// Verify the signature of DIR/capsule.json and every file in it; changes nothing
    ///
    /// By the keys that the node trusts, and as the node would: for this node, now, and not
    /// older than the last one. Or by those of a file, without asking a node.
    Verify {
        /// The directory of the capsule
        #[arg(value_name = "DIR")]
        directory: PathBuf,

        /// The keys that may sign, in the format of OpenSSH's allowed_signers
        /// [default: /etc/mco-rescue/allowed_signers of the node]
        #[arg(long, value_name = "FILE")]
        signers: Option<PathBuf>,
    },
    /// Show what is in DIR/capsule.json, without verifying it; changes nothing
    Show {
        /// The directory of the capsule
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// What the capsule says.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("signing").required(true).args(["sign", "unsigned"])))]
pub struct MakeArgs {
    /// The directory whose files it lists
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,

    /// Sign with it: a private key, or one in the agent
    ///
    /// A key of the agent or of a token is named by the file of its public key
    #[arg(long, value_name = "KEY")]
    pub sign: Option<PathBuf>,

    /// Write the list alone; it is signed elsewhere
    ///
    /// Prints the command for that
    #[arg(long)]
    pub unsigned: bool,

    /// Only for this cluster, such as one.example.com
    ///
    /// Its name and domain
    #[arg(long, value_name = "CLUSTER")]
    pub cluster: Option<String>,

    /// Only for nodes of this pool
    ///
    /// May be given several times
    #[arg(long, value_name = "POOL")]
    pub pool: Vec<String>,

    /// Only for this node
    ///
    /// May be given several times
    #[arg(long, value_name = "NODE")]
    pub node: Vec<String>,

    /// Not accepted after this time [default: no end]
    ///
    /// Such as 2027-01-31T12:00:00Z
    /// [default: no end]
    #[arg(long, value_name = "TIME", value_parser = end_time)]
    pub not_after: Option<String>,

    /// Number, larger than that of every earlier capsule
    /// [default: the seconds since 1970]
    #[arg(long, value_name = "NUMBER", hide_short_help = true)]
    pub sequence: Option<u64>,

    /// Also allow this image, which its digest proves, as NAME@sha256:DIGEST: of an OCI
    /// directory or archive; may be given several times
    #[arg(long, value_name = "IMAGE", hide_short_help = true)]
    pub image: Vec<String>,
}

fn end_time(text: &str) -> Result<String, String> {
    parse_day_or_time(text)?;
    Ok(if text.contains('T') {
        text.to_owned()
    } else {
        format!("{text}T23:59:59Z")
    })
}

/// Runs `capsule`.
pub(super) fn run(ui: &Ui<'_>, command: &CapsuleCommand) -> Result<ExitCode> {
    match command {
        CapsuleCommand::Make(args) => make(ui, args),
        CapsuleCommand::Verify { directory, signers } => verify(ui, directory, signers.as_deref()),
        CapsuleCommand::Show { directory } => show(ui, directory),
    }
}

fn make(ui: &Ui<'_>, args: &MakeArgs) -> Result<ExitCode> {
    let directory = &args.directory;
    let document = list_directory(
        directory,
        CapsuleScope {
            cluster: args.cluster.clone(),
            pools: args.pool.clone(),
            nodes: args.node.clone(),
            not_after: args.not_after.clone(),
            sequence: args.sequence.unwrap_or_else(current_time),
            images: args.image.clone(),
        },
    )?;
    let list = directory.join(CAPSULE);
    let text = document
        .to_text()
        .map_err(|fault| anyhow::anyhow!("the capsule {fault}; nothing was written"))?;
    write(&list, text.as_bytes(), is_list)?;
    let key = match &args.sign {
        Some(key) => Some(sign(directory, key, text.as_bytes())?),
        None => None,
    };
    let words = shell_words(&[
        "ssh-keygen",
        "-Y",
        "sign",
        "-f",
        "KEY",
        "-n",
        NAMESPACE,
        &list.display().to_string(),
    ]);
    let made = MadeCapsule {
        schema: "mco-rescue/capsule-made/v1",
        directory: directory.display().to_string(),
        sign: key.is_none().then_some(words),
        key,
        capsule: document,
    };
    ui.print(
        || report::capsule::made_json(&made),
        || report::capsule::made_text(&made),
    )?;
    Ok(ExitCode::Done)
}

/// Signs the list, and returns the fingerprint of the key.
fn sign(directory: &Path, key: &Path, text: &[u8]) -> Result<String> {
    let list = directory.join(CAPSULE);
    let file = caller::open_file(&list).with_context(|| format!("reading {}", list.display()))?;
    let signed = ssh_keygen::sign_file(file, key, NAMESPACE)?;
    let signature = SshSignature::parse(&signed)
        .map_err(|fault| anyhow::anyhow!("the signature {fault}; nothing was signed"))?;
    // The file may have changed since it was written.
    let verified = signature.verify(text, NAMESPACE);
    verified.map_err(|fault| anyhow::anyhow!("the signature {fault}; nothing was signed"))?;
    write(&directory.join(SIGNATURE), &signed, is_signature)?;
    Ok(signature.key.fingerprint)
}

fn write(path: &Path, bytes: &[u8], is_ours: fn(&[u8]) -> bool) -> Result<()> {
    let written = write_readable_output(path, bytes, is_ours);
    written.with_context(|| format!("writing {}", path.display()))
}

fn is_list(beginning: &[u8]) -> bool {
    beginning.starts_with(b"{\n  \"version\": ")
}

fn is_signature(beginning: &[u8]) -> bool {
    beginning.starts_with(b"-----BEGIN SSH SIGNATURE-----")
}

fn verify(ui: &Ui<'_>, directory: &Path, signers: Option<&Path>) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    let keys = match signers {
        Some(file) => given_signers(file)?,
        None => read_signers(&root)?.context(
            "this node has no /etc/mco-rescue/allowed_signers. Name a file with the keys that may sign: --signers FILE",
        )?,
    };
    let opened = UnverifiedCapsule::read(directory)?.verify(&keys, prove_time(&root).at)?;
    if signers.is_none() {
        judge_capsule(&root, &opened, directory)?;
    }
    let mut problems = Vec::new();
    {
        let bytes = opened.document.files.iter().map(|file| file.size).sum();
        let _phase =
            progress::begin_phase(Work::new("Hashing the files of the capsule").with_total(bytes));
        for file in &opened.document.files {
            problems.extend(opened.check_file(file).err().map(|error| error.to_string()));
        }
    }
    let is_whole = problems.is_empty();
    let check = CapsuleCheck {
        schema: "mco-rescue/capsule-check/v1",
        directory: directory.display().to_string(),
        signed: opened.facts,
        files: opened.document.files.len(),
        problems,
    };
    ui.print(
        || report::capsule::check_json(&check),
        || report::capsule::check_text(&check),
    )?;
    if is_whole {
        Ok(ExitCode::Done)
    } else {
        bail!(
            "{} does not hold what its capsule says",
            directory.display()
        )
    }
}

fn given_signers(file: &Path) -> Result<AllowedSigners> {
    let bytes = source::read_named(&file.display().to_string())?;
    let text = String::from_utf8(bytes).with_context(|| format!("reading {}", file.display()))?;
    let parsed = AllowedSigners::parse(&text);
    for line in &parsed.skipped {
        log::warn!(
            "{}, line {} is skipped: {}",
            file.display(),
            line.number,
            line.reason
        );
    }
    Ok(parsed)
}

fn show(ui: &Ui<'_>, directory: &Path) -> Result<ExitCode> {
    let capsule = UnverifiedCapsule::read(directory)?;
    let signature = match &capsule.signature {
        Ok(signature) => SignatureView {
            key: Some(signature.key.fingerprint.clone()),
            problem: None,
        },
        Err(fault) => SignatureView {
            key: None,
            problem: Some(format!("it {fault}")),
        },
    };
    let view = CapsuleView {
        schema: "mco-rescue/capsule/v1",
        directory: directory.display().to_string(),
        signature,
        capsule: capsule.document()?,
    };
    ui.print(
        || report::capsule::view_json(&view),
        || report::capsule::view_text(&view),
    )?;
    Ok(ExitCode::Done)
}
