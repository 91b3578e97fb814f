//! What is read through a capsule, and what is not read at all: the facts of the node against its policy.

use std::iter;
use std::path::{Path, PathBuf};

use super::identity::{Membership, NodeIdentity};
use super::server;
use crate::base::invocation::whole_command;
use crate::change::capsule::accepted::{AcceptedCapsules, AcceptedError};
use crate::change::capsule::opened::{
    CapsuleError, OpenedCapsule, UnverifiedCapsule, directory_of,
};
use crate::change::capsule::policy::{
    CapsuleInput, CapsulePolicy, CapsulePolicyError, read_signers,
};
use crate::change::capsule::scope::{
    NodeScope, ProvenTime, ScopeAnswer, why_not_here, why_not_now,
};
use crate::change::capsule::{CAPSULE, SIGNATURE};
use crate::host::caller;
use crate::host::root::{Root, RootError};
use crate::node::login_session::observe_session;
use crate::node::{Machine, Records, certificates, clock};

/// Directories above a file in which its capsule is looked for.
const MAX_ABOVE: usize = 16;

/// What the user says about capsules.
#[derive(Debug, Clone, Copy, Default)]
pub struct CapsuleOptions<'a> {
    /// The directory of the capsule [default: that of the input, or one above it].
    pub directory: Option<&'a Path>,
    /// Reads what no capsule proves; at the node's console only.
    pub accepts_unsigned: bool,
    /// Where a named config comes from.
    pub origin: ConfigOrigin,
}

/// Where a named config comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConfigOrigin {
    /// From a person.
    #[default]
    Named,
    /// From a medium in an initramfs.
    FirstBoot,
    /// From the boot image, or from this program, which has read it already.
    Trusted,
}

/// A named config, and what the user says about capsules.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConfigRequest<'a> {
    /// A file, `-`, or a name in the cache; `None` for the node's own choice.
    pub named: Option<&'a str>,
    /// Capsules.
    pub capsule: CapsuleOptions<'a>,
}

impl<'a> From<Option<&'a str>> for ConfigRequest<'a> {
    fn from(named: Option<&'a str>) -> Self {
        Self {
            named,
            capsule: CapsuleOptions::default(),
        }
    }
}

/// The reason why an input is not read.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// It is not known what the node demands.
    #[error(transparent)]
    Policy(#[from] CapsulePolicyError),
    /// It is not known what the node has seen.
    #[error(transparent)]
    Accepted(#[from] AcceptedError),
    /// The node's pool, name or cluster cannot be read.
    #[error("reading for which node a capsule is: {0}")]
    Node(#[from] RootError),
    /// The capsule, or a file in it.
    #[error(transparent)]
    Capsule(#[from] CapsuleError),
    /// There is no capsule.
    #[error(
        "{what} may be read only through a capsule ({key} = required in the policy), and there is none. Make one: mco-rescue capsule make \
         DIR --sign KEY"
    )]
    Demanded {
        /// The input.
        what: String,
        /// The key in the policy.
        key: &'static str,
    },
    /// The node trusts no key.
    #[error(
        "this node has no /etc/mco-rescue/allowed_signers, so no capsule can be verified. A MachineConfig provides it; for a first boot \
         the image does, in /usr/lib/mco-rescue"
    )]
    NoSigners,
    /// The capsule is not for this node, or not any more.
    #[error("the capsule {path}, signed by {signer}, {why}")]
    NotHere {
        /// Path of the capsule.
        path: String,
        /// Who signed it.
        signer: String,
        /// The reason.
        why: String,
    },
    /// The override is not for this login.
    #[error("{why}. --accept-unsigned is for a login at the node's console, and this is: {login}")]
    NotAtConsole {
        /// What would be passed over.
        why: Box<GateError>,
        /// The login.
        login: String,
    },
}

/// Opens the capsule through which an input has to be read, and judges it; `None` if the input may be read without one. `near` is
/// the path of the input.
///
/// # Errors
/// The input must not be read.
pub fn open_capsule(
    root: &Root,
    options: &CapsuleOptions<'_>,
    input: CapsuleInput,
    near: Option<&Path>,
) -> Result<Option<OpenedCapsule>, GateError> {
    let initramfs = initramfs_of(options)?;
    let trusted: Vec<&Root> = iter::once(root).chain(&initramfs).collect();
    let policy = CapsulePolicy::read(&trusted)?;
    let found = match options.directory {
        Some(directory) => Some(directory.to_owned()),
        None => near.map(find_directory).transpose()?.flatten(),
    };
    let input = match near {
        // Another name of standard input, or a pipe of the shell.
        Some(path) if !policy.demands_capsule(input) && caller::is_stream(path) => {
            CapsuleInput::Stdin
        }
        _ => input,
    };
    let is_demanded = policy.demands_capsule(input);
    let Some(directory) = found else {
        return if is_demanded {
            accept_unsigned(options, demanded_error(input, near))
        } else {
            Ok(None)
        };
    };
    let Some(signers) = read_signers(&trusted)? else {
        if is_demanded || options.directory.is_some() {
            return accept_unsigned(options, GateError::NoSigners);
        }
        log::warn!(
            "{} is not verified: this node has no /etc/mco-rescue/allowed_signers",
            directory.join(CAPSULE).display()
        );
        return Ok(None);
    };
    let opened = UnverifiedCapsule::read(&directory)
        .and_then(|capsule| capsule.verify(&signers, prove_time(root).at))
        .map_err(GateError::from);
    let judged = opened.and_then(|opened| {
        judge_capsule(root, &opened, &directory)?;
        Ok(opened)
    });
    match judged {
        Ok(opened) => Ok(Some(opened)),
        Err(error) => accept_unsigned(options, error),
    }
}

/// Returns the error for an input without the capsule that it needs.
fn demanded_error(input: CapsuleInput, near: Option<&Path>) -> GateError {
    GateError::Demanded {
        what: match near {
            Some(path) => path.display().to_string(),
            None => "standard input".to_owned(),
        },
        key: input.key(),
    }
}

/// Opens the initramfs that reads a medium: it may bring a policy and keys to a root that has none yet.
fn initramfs_of(options: &CapsuleOptions<'_>) -> Result<Option<Root>, CapsulePolicyError> {
    match options.origin {
        ConfigOrigin::FirstBoot => Ok(Some(Root::open(Path::new("/"))?)),
        ConfigOrigin::Named | ConfigOrigin::Trusted => Ok(None),
    }
}

/// Judges if a verified capsule is for this node, now, and not older than the last one.
///
/// # Errors
/// It is not, or the node's facts cannot be read.
pub fn judge_capsule(
    root: &Root,
    opened: &OpenedCapsule,
    directory: &Path,
) -> Result<(), GateError> {
    let time = prove_time(root);
    let accepted = AcceptedCapsules::read(root)?;
    let replayed = || accepted.as_ref()?.why_replayed(&opened.facts);
    let why = match why_not_now(&opened.document, &time).or_else(replayed) {
        Some(why) => Some(why),
        None => why_not_here(&opened.document, &IdentifiedNode::observe(root)?),
    };
    match why {
        None => Ok(()),
        Some(why) => Err(GateError::NotHere {
            path: directory.join(CAPSULE).display().to_string(),
            signer: opened.facts.signer.clone(),
            why,
        }),
    }
}

/// Reads no capsule, if the user accepts that at the console.
fn accept_unsigned(
    options: &CapsuleOptions<'_>,
    why: GateError,
) -> Result<Option<OpenedCapsule>, GateError> {
    if !options.accepts_unsigned {
        return Err(why);
    }
    let login = observe_session();
    if login.is_at_console() {
        log::warn!("{why}; accepted at the console ({})", whole_command());
        Ok(None)
    } else {
        Err(GateError::NotAtConsole {
            why: why.into(),
            login: login.to_string(),
        })
    }
}

/// Returns the directory of a capsule: that of a path, or one above it.
fn find_directory(near: &Path) -> Result<Option<PathBuf>, CapsuleError> {
    let failed = |error: std::io::Error| CapsuleError::Read {
        path: near.display().to_string(),
        reason: error.into(),
    };
    let start = if caller::is_directory(near) {
        near.to_owned()
    } else {
        directory_of(near)
    };
    let start = match caller::resolve_links(start) {
        Ok(start) => start,
        // The input is missing, which its reader reports.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    for above in start.ancestors().take(MAX_ABOVE) {
        for name in [CAPSULE, SIGNATURE] {
            if caller::exists(above.join(name)).map_err(failed)? {
                return Ok(Some(above.to_owned()));
            }
        }
    }
    Ok(None)
}

/// Returns the newest time that the node can prove (FP-15): that of its clock, or of something that has certainly passed.
pub fn prove_time(root: &Root) -> ProvenTime {
    let clock = clock::read_clock(root);
    let (certificates, _) = certificates::read_certificates(root);
    let signed = certificates
        .into_iter()
        .map(|one| (one.not_before, one.path));
    let written = clock.passed.into_iter().map(|one| (one.at, one.place));
    let server = server::remembered_clock(root).unwrap_or_else(|error| {
        log::warn!("{error}");
        None
    });
    let server = server.map(|kept| (kept.date, kept.url));
    let newest = signed.chain(written).chain(server).max();
    match newest.filter(|(at, _)| *at > clock.now) {
        Some((at, place)) => ProvenTime {
            at,
            by: Some(place),
        },
        None => ProvenTime {
            at: clock.now,
            by: None,
        },
    }
}

/// What a node says of itself.
struct IdentifiedNode {
    identity: NodeIdentity,
    name: Option<String>,
}

impl IdentifiedNode {
    fn observe(root: &Root) -> Result<Self, RootError> {
        let records = Records::read(root)?;
        Ok(Self {
            identity: NodeIdentity::observe(root, &records, None)?,
            name: Machine::observe(root)?.name,
        })
    }
}

impl NodeScope for IdentifiedNode {
    fn matches_cluster(&self, name: &str) -> ScopeAnswer {
        let hosts = self.identity.hosts.iter().map(|host| host.says.as_str());
        let domains: Vec<&str> = hosts
            .filter_map(|host| host.strip_prefix("api-int.").or(host.strip_prefix("api.")))
            .collect();
        match domains.first() {
            None => ScopeAnswer::Unknown,
            Some(_) if domains.iter().any(|own| own.eq_ignore_ascii_case(name)) => {
                ScopeAnswer::Same
            }
            Some(own) => ScopeAnswer::Other(format!("of {own}")),
        }
    }

    fn matches_pool(&self, name: &str) -> ScopeAnswer {
        match self.identity.membership_of(name) {
            Membership::Member => ScopeAnswer::Same,
            Membership::Stranger(witness) => {
                ScopeAnswer::Other(format!("of pool {} by {}", witness.says, witness.place))
            }
            Membership::Unknown => ScopeAnswer::Unknown,
        }
    }

    fn matches_name(&self, name: &str) -> ScopeAnswer {
        let short = |name: &str| {
            name.split('.')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase()
        };
        match &self.name {
            None => ScopeAnswer::Unknown,
            Some(own) if own.eq_ignore_ascii_case(name) => ScopeAnswer::Same,
            // One of the two may lack the domain.
            Some(own) if own.contains('.') != name.contains('.') && short(own) == short(name) => {
                ScopeAnswer::Same
            }
            Some(own) => ScopeAnswer::Other(own.clone()),
        }
    }
}
