//! `capsule`: lists a directory and signs the list, verifies one, shows one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args, Subcommand};
use nix::unistd::{AccessFlags, access};

use crate::base::error::ExitCode;
use crate::base::invocation::shell_words;
use crate::base::reason::Reason;
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

fn end_time(text: &str) -> Result<String, Reason> {
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
    expect_writable(directory)?;
    let sequence = match args.sequence {
        Some(sequence) => sequence,
        None => next_sequence(directory)?,
    };
    let document = list_directory(
        directory,
        CapsuleScope {
            cluster: args.cluster.clone(),
            pools: args.pool.clone(),
            nodes: args.node.clone(),
            not_after: args.not_after.clone(),
            sequence,
            images: args.image.clone(),
        },
    )?;
    let list = directory.join(CAPSULE);
    let text = document
        .to_text()
        .map_err(|fault| anyhow::anyhow!("the capsule {fault}; nothing was written"))?;
    // A capsule from before stays as it is if nobody signs.
    let signed = args.sign.as_deref().map(|key| sign(key, text.as_bytes()));
    let signed = signed.transpose()?;
    write(&list, text.as_bytes(), is_list)?;
    if let Some((bytes, _)) = &signed {
        write(&directory.join(SIGNATURE), bytes, is_signature)?;
    }
    let key = signed.map(|(_, key)| key);
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

/// Refuses a directory in which nothing can be written, before its files are hashed and a key is touched.
fn expect_writable(directory: &Path) -> Result<()> {
    if caller::is_there(directory) && !caller::is_directory(directory) {
        bail!("{} is not a directory", directory.display());
    }
    access(directory, AccessFlags::W_OK).map_err(|errno| {
        let reason = Reason::from(errno);
        anyhow::anyhow!(
            "writing into {}: {reason}; nothing was signed",
            directory.display()
        )
    })
}

/// Returns the seconds since 1970, or the number after that of the capsule in the directory, if that is larger: nodes take no two
/// capsules of one number.
fn next_sequence(directory: &Path) -> Result<u64> {
    if !caller::exists(directory.join(CAPSULE))? {
        return Ok(current_time());
    }
    let before = UnverifiedCapsule::read(directory).and_then(|capsule| capsule.document());
    let before = before.context("reading the existing capsule; remove it, or give a --sequence")?;
    Ok(current_time().max(before.sequence.saturating_add(1)))
}

/// Signs a list. Returns the signature, and the fingerprint of the key.
fn sign(key: &Path, text: &[u8]) -> Result<(Vec<u8>, String)> {
    let signed = ssh_keygen::sign_text(text, key, NAMESPACE)?;
    let signature = SshSignature::parse(&signed)
        .map_err(|fault| anyhow::anyhow!("the signature {fault}; nothing was signed"))?;
    let verified = signature.verify(text, NAMESPACE);
    verified.map_err(|fault| anyhow::anyhow!("the signature {fault}; nothing was signed"))?;
    Ok((signed, signature.key.fingerprint))
}

fn write(path: &Path, bytes: &[u8], is_ours: fn(&[u8]) -> bool) -> Result<()> {
    let written = write_readable_output(path, bytes, is_ours);
    written.with_context(|| format!("writing {}", path.display()))
}

fn is_list(beginning: &[u8]) -> bool {
    // In whatever form it was signed elsewhere.
    String::from_utf8_lossy(beginning).contains("\"version\"") && beginning.starts_with(b"{")
}

fn is_signature(beginning: &[u8]) -> bool {
    beginning.starts_with(b"-----BEGIN SSH SIGNATURE-----")
}

fn verify(ui: &Ui<'_>, directory: &Path, signers: Option<&Path>) -> Result<ExitCode> {
    let root = open_root(&ui.root)?;
    let keys = match signers {
        Some(file) => given_signers(file)?,
        None => read_signers(&[&root])?.context(
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
        images: opened.document.images.len(),
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
