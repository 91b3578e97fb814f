//! Why rpm-ostree refused, told from its words: it has no exit code per cause.
//!
//! The wording differs between versions, so what is looked for is what they have in common: the tail that comes
//! from the system or from skopeo, or one of rpm-ostree's own sentences. A cause never says what state the system is
//! in now: an error may come after the deployment was staged, so read the status after every one.

use std::fmt;

use crate::command::{CommandError, CommandOutput};
use crate::invocation::mco_rescue;

/// Why a command of rpm-ostree or ostree did not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The system was not booted by ostree.
    NotOstree,
    /// Another transaction is running.
    Busy {
        /// The command line that began it.
        title: String,
        /// Who that is, where the status in words was read too.
        initiator: Option<String>,
        /// When it began, where the journal tells; in words.
        since: Option<String>,
    },
    /// The transaction was cancelled.
    Cancelled,
    /// The daemon ended while it worked.
    DaemonDied,
    /// The daemon does not start; what systemd said, or the bus.
    DaemonDown(String),
    /// The program was ended by a signal; the daemon goes on with its transaction.
    ClientKilled,
    /// The program did not answer in time; the daemon goes on with its transaction.
    NoAnswer {
        /// The program.
        program: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The program is not installed.
    NotInstalled(String),
    /// Another process holds the lock of the sysroot.
    LockHeld,
    /// It is the reference that is booted or staged already; its content may be another one.
    SameReference(String),
    /// There is no deployment to go back to.
    NoRollback,
    /// Something is staged, and has to be dropped first.
    StagedInTheWay,
    /// A staged deployment waits for `finalize-deployment`, or does not.
    FinalizationLocked,
    /// Another deployment than expected is staged: the one expected, and the one found.
    OtherStaged(String, String),
    /// A kernel argument to be deleted or replaced is not there, or not once.
    NoArgument(String),
    /// We are not root.
    NotRoot,
    /// Updates are another program's: its name and its unit.
    Driver(String, String),
    /// A mistake in the command line: this rpm-ostree does not know it.
    Usage(String),
    /// The reference begins with no scheme that rpm-ostree knows.
    UnknownScheme(String),
    /// The reference has a scheme, but what follows cannot be.
    BadReference(String),
    /// A ref of the local repository has several meanings.
    AmbiguousRef(String),
    /// The image is no OSTree image.
    NotBootable,
    /// A signed reference needs a policy that does not accept anything.
    PolicyTooWeak,
    /// The signature policy does not accept the image.
    PolicyRejects(String),
    /// No space.
    NoSpace {
        /// Where.
        place: Place,
        /// The words that tell how much, if any.
        detail: String,
    },
    /// The image is not there.
    NotFound(String),
    /// The fetching process, which is not root, may not read the image.
    FetcherDenied(String),
    /// The fetching process looks for credentials where it may not read, as there is no file of them for it.
    NoCredentials(String),
    /// A blob of the image is not there.
    MissingBlob(String),
    /// The image ends too early.
    Truncated(String),
    /// A blob of the image is not what its digest says.
    Corrupt(String),
    /// The registry cannot be reached.
    Unreachable(String),
    /// The registry, a mirror of it or the name server refuses connections.
    Refused(String),
    /// The registry or a mirror of it answers with an HTTP status of failure.
    RegistryFault(String),
    /// The registry wants other credentials.
    Unauthorized(String),
    /// The certificate of the registry is not trusted.
    Certificate(String),
    /// Packages are not to be had, or do not fit together.
    Packages(String),
    /// A file may not be changed although we are root: `chattr +i`.
    Immutable(String),
    /// The previous shutdown could not finalize what was staged; the words of the error.
    FinalizeFailed(Box<Cause>),
    /// Something else, in its own words.
    Unknown(String),
}

/// Where space is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `/boot`: kernel and initramfs.
    Boot,
    /// `/sysroot`: the repository and the deployments.
    Sysroot,
    /// `/var/tmp`, where archives are unpacked whole.
    VarTmp,
}

impl Place {
    /// The path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Boot => "/boot",
            Self::Sysroot => "/sysroot",
            Self::VarTmp => "/var/tmp",
        }
    }
}

impl Cause {
    /// The cause of an answer; `None` where the program succeeded. 77 means that nothing was to be done.
    pub fn of(answer: &CommandOutput) -> Option<Self> {
        match answer.status {
            Some(0 | 77) => None,
            // As timeout(1) ends a program.
            Some(124) if answer.stdout.contains(LOCK) => Some(Self::LockHeld),
            None => Some(Self::ClientKilled),
            // Never the standard output: it holds progress, and the status of units.
            Some(_) => Some(Self::of_words(&answer.stderr)),
        }
    }

    /// The cause of no answer at all.
    pub fn of_error(error: &CommandError) -> Self {
        match error {
            CommandError::Missing(program) => Self::NotInstalled(program.clone()),
            // The plain `ostree` does its work itself, and waits for nothing but the lock.
            CommandError::TimedOut(program, _) if program == "ostree" => Self::LockHeld,
            CommandError::TimedOut(program, seconds) => Self::NoAnswer {
                program: program.clone(),
                seconds: *seconds,
            },
            CommandError::Failed(_, words) => Self::of_words(words),
            CommandError::Interrupted(_) => Self::ClientKilled,
        }
    }

    /// The cause of a failure on our own side, in its words.
    pub fn of_failure(error: &anyhow::Error) -> Self {
        Self::Unknown(format!("{error:#}"))
    }

    /// The cause in what a program wrote to its standard error, or in the journal.
    pub fn of_words(text: &str) -> Self {
        // Numbers stand before a space that does not break.
        let text = text.trim().replace('\u{a0}', " ");
        let text = text.as_str();
        if let Some((_, rest)) = text.split_once("failed on previous boot: ") {
            return Self::FinalizeFailed(Box::new(Self::of_words(rest)));
        }
        sentence(text)
            .or_else(|| of_image(text))
            .or_else(|| of_system(text))
            .unwrap_or_else(|| Self::Unknown(error_line(text).to_owned()))
    }

    /// The same transaction with who began it, and when.
    #[must_use]
    pub fn begun_by(self, who: Option<String>, when: Option<String>) -> Self {
        match self {
            Self::Busy { title, .. } => Self::Busy {
                title,
                initiator: who,
                since: when,
            },
            other => other,
        }
    }

    /// A stable name for programs, such as `no-space`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotOstree => "not-ostree",
            Self::Busy { .. } => "busy",
            Self::Cancelled => "cancelled",
            Self::DaemonDied => "daemon-died",
            Self::DaemonDown(_) => "daemon-down",
            Self::ClientKilled => "client-killed",
            Self::NoAnswer { .. } => "no-answer",
            Self::NotInstalled(_) => "not-installed",
            Self::LockHeld => "lock-held",
            Self::SameReference(_) => "same-reference",
            Self::NoRollback => "no-rollback",
            Self::StagedInTheWay => "staged-in-the-way",
            Self::FinalizationLocked => "finalization-locked",
            Self::OtherStaged(..) => "other-staged",
            Self::NoArgument(_) => "no-argument",
            Self::NotRoot => "not-root",
            Self::Driver(..) => "driver",
            Self::Usage(_) => "usage",
            Self::UnknownScheme(_) => "unknown-scheme",
            Self::BadReference(_) => "bad-reference",
            Self::AmbiguousRef(_) => "ambiguous-ref",
            Self::NotBootable => "not-bootable",
            Self::PolicyTooWeak => "policy-too-weak",
            Self::PolicyRejects(_) => "policy-rejects",
            Self::NoSpace { .. } => "no-space",
            Self::NotFound(_) => "not-found",
            Self::FetcherDenied(_) => "fetcher-denied",
            Self::NoCredentials(_) => "no-credentials",
            Self::MissingBlob(_) => "missing-blob",
            Self::Truncated(_) => "truncated",
            Self::Corrupt(_) => "corrupt",
            Self::Unreachable(_) => "unreachable",
            Self::Refused(_) => "refused",
            Self::RegistryFault(_) => "registry-fault",
            Self::Unauthorized(_) => "unauthorized",
            Self::Certificate(_) => "certificate",
            Self::Packages(_) => "packages",
            Self::Immutable(_) => "immutable",
            Self::FinalizeFailed(_) => "finalize-failed",
            Self::Unknown(_) => "unknown",
        }
    }

    /// What to do next.
    pub fn next(&self) -> String {
        match self {
            Self::NotOstree => "apply files only: mco-rescue apply skips the operating system on such a root".into(),
            Self::Busy { .. } => "wait for it, or end it: rpm-ostree cancel; then run this again".into(),
            Self::Cancelled => "run this again when nobody cancels it".into(),
            Self::DaemonDied | Self::DaemonDown(_) => {
                "look at it: systemctl status dbus.socket rpm-ostreed; then run this again".into()
            }
            Self::ClientKilled | Self::NoAnswer { .. } => {
                "the daemon may go on and stage its result: rpm-ostree cancel, wait until rpm-ostree status says idle, then run this again".into()
            }
            Self::NotInstalled(program) => format!("run this where {program} is installed"),
            Self::LockHeld => "find who holds it: fuser -v /ostree/lock; then run this again".into(),
            Self::SameReference(_) => {
                "compare the digest in rpm-ostree status: nothing is to be done, or rpm-ostree upgrade takes the new content".into()
            }
            Self::NoRollback => format!("there is only this deployment; deploy the wanted image: {}", mco_rescue("pivot IMAGE")),
            Self::StagedInTheWay => "drop it: rpm-ostree cleanup -p; then run this again".into(),
            Self::FinalizationLocked => "finish it: rpm-ostree finalize-deployment CHECKSUM, or drop it: rpm-ostree cleanup -p".into(),
            Self::OtherStaged(..) => "read rpm-ostree status again: somebody staged another deployment".into(),
            Self::NoArgument(_) => "read them again: rpm-ostree kargs".into(),
            Self::NotRoot => "run this as root".into(),
            Self::Driver(_, unit) => format!("stop it: systemctl stop {unit}; then run this again"),
            Self::Usage(_) => "look at rpm-ostree --version: it is older or newer than what mco-rescue knows".into(),
            Self::UnknownScheme(_) | Self::BadReference(_) => {
                "give an image as NAME@sha256:DIGEST, or a medium as oci:PATH or oci-archive:PATH".into()
            }
            Self::AmbiguousRef(name) => format!("look at it: ostree refs --list | grep {name}"),
            Self::NotBootable => "give the node's OS image, not another image of the release".into(),
            Self::PolicyTooWeak => "use an unverified reference with a digest, or write a policy.json that names the keys".into(),
            Self::PolicyRejects(_) => "look at /etc/containers/policy.json; it is never weakened by mco-rescue".into(),
            Self::NoSpace { place: Place::Boot, .. } => {
                "make room: rpm-ostree cleanup -r drops the rollback deployment and its kernel; then run this again".into()
            }
            Self::NoSpace { place: Place::Sysroot, .. } => {
                "make room: rpm-ostree cleanup -b -p -m, podman image prune, journalctl --vacuum-size=100M; then run this again".into()
            }
            Self::NoSpace { place: Place::VarTmp, .. } => {
                "unpack the archive on a medium and give it as oci:PATH, which needs no room below /var/tmp".into()
            }
            Self::NotFound(_) => "look whether the medium is mounted and the name is right".into(),
            Self::FetcherDenied(path) => {
                format!("the fetching process is not root: give every directory above {path} mode 0755 and the files 0644")
            }
            Self::NoCredentials(_) => {
                "give it a file of credentials, the pull secret or an empty one: echo '{\"auths\": {}}' >/etc/ostree/auth.json; then run this again".into()
            }
            Self::Corrupt(_) => {
                "run this again; if it comes again, the medium, mirror or registry has it so: copy the image there again, \
                 skopeo copy --all --preserve-digests docker://IMAGE oci:PATH"
                    .into()
            }
            Self::MissingBlob(_) | Self::Truncated(_) => {
                "copy the image to the medium again: skopeo copy --all --preserve-digests docker://IMAGE oci:PATH".into()
            }
            Self::Unreachable(_) | Self::Refused(_) => {
                "name a mirror in /etc/containers/registries.conf; or bring the image into containers-storage under this very \
                 name, and say --from-storage"
                    .into()
            }
            Self::RegistryFault(_) => {
                "look at the log and the disk of the registry or mirror that answered so, and run this again; or bring the \
                 image into containers-storage under this very name, and say --from-storage"
                    .into()
            }
            Self::Unauthorized(_) => "look at the pull secret: /etc/ostree/auth.json, /run/ostree/auth.json, /var/lib/kubelet/config.json".into(),
            Self::Certificate(_) => "put the registry's authority below /etc/docker/certs.d/HOST:PORT/ca.crt, and look at the clock: date".into(),
            Self::Packages(_) => "give the extensions image of the same release; without it leave the extensions out".into(),
            Self::Immutable(_) => {
                "find the flag: lsattr -R /ostree/deploy; then chattr -i on it, but not on the directory of a deployment itself, which has it by design".into()
            }
            Self::FinalizeFailed(inner) => inner.next(),
            Self::Unknown(_) => "read rpm-ostree status and journalctl -u rpm-ostreed".into(),
        }
    }
}

/// In the gerund where it is an activity, without what to do next.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOstree => f.write_str("this system was not booted by ostree"),
            Self::Busy {
                title,
                initiator,
                since,
            } => {
                write!(f, "a transaction is in progress: {title}")?;
                let mut also = |label: &str, text: &Option<String>| match text {
                    Some(text) => write!(f, ", {label} {text}"),
                    None => Ok(()),
                };
                also("begun by", initiator)?;
                also("since", since)
            }
            Self::Cancelled => f.write_str("the transaction was cancelled"),
            Self::DaemonDied => f.write_str("rpm-ostreed ended during the transaction"),
            Self::DaemonDown(words) => write!(f, "rpm-ostreed does not start: {words}"),
            Self::ClientKilled => f.write_str("the program was ended by a signal"),
            Self::NoAnswer { program, seconds } => {
                write!(f, "{program} gave no answer within {seconds} s")
            }
            Self::NotInstalled(program) => write!(f, "{program} is not installed"),
            Self::LockHeld => f.write_str("another process holds the lock of the sysroot"),
            Self::SameReference(reference) => write!(f, "{reference} is booted or staged already"),
            Self::NoRollback => f.write_str("there is no deployment to go back to"),
            Self::StagedInTheWay => f.write_str("a staged deployment is in the way"),
            Self::FinalizationLocked => f.write_str("the staged deployment is locked"),
            Self::OtherStaged(wanted, found) => write!(f, "{found} is staged, and not {wanted}"),
            Self::NoArgument(words) => write!(f, "changing kernel arguments: {words}"),
            Self::NotRoot => f.write_str("only root may do that"),
            Self::Driver(name, unit) => write!(f, "updates are driven by {name} ({unit})"),
            Self::Usage(words) => write!(
                f,
                "this rpm-ostree does not understand its arguments: {words}"
            ),
            Self::UnknownScheme(reference) => {
                write!(f, "{reference} begins with no scheme that rpm-ostree knows")
            }
            Self::BadReference(reference) => {
                write!(f, "{reference} names no transport that rpm-ostree knows")
            }
            Self::AmbiguousRef(name) => write!(f, "the ref {name} has several meanings"),
            Self::NotBootable => {
                f.write_str("the image is no OS image: it has no ostree.bootable label")
            }
            Self::PolicyTooWeak => f.write_str(
                "the signature policy accepts anything, so a signed reference proves nothing",
            ),
            Self::PolicyRejects(words) => {
                write!(f, "the signature policy refuses the image: {words}")
            }
            Self::NoSpace { place, detail } => {
                write!(f, "no space left on {}", place.path())?;
                if detail.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {detail}")
                }
            }
            Self::NotFound(what) => write!(f, "{what} is not there"),
            Self::FetcherDenied(path) => {
                write!(f, "the user that fetches images may not read {path}")
            }
            Self::NoCredentials(path) => write!(
                f,
                "the user that fetches images looks for credentials in {path}, which it may not read"
            ),
            Self::MissingBlob(path) => write!(f, "a part of the image is missing: {path}"),
            Self::Truncated(words) => write!(f, "the image ends too early: {words}"),
            Self::Corrupt(words) => write!(f, "the image is damaged: {words}"),
            Self::Unreachable(words) => write!(f, "the registry cannot be reached: {words}"),
            Self::Refused(words) => write!(f, "a connection was refused: {words}"),
            Self::RegistryFault(words) => {
                write!(
                    f,
                    "the registry or a mirror of it failed by itself: {words}"
                )
            }
            Self::Unauthorized(words) => write!(f, "the registry wants other credentials: {words}"),
            Self::Certificate(words) => {
                write!(f, "the certificate of the registry is not trusted: {words}")
            }
            Self::Packages(words) => write!(f, "packages: {words}"),
            Self::Immutable(path) => write!(f, "{path} may not be changed"),
            Self::FinalizeFailed(inner) => write!(
                f,
                "the last shutdown could not finish the staged deployment: {inner}"
            ),
            Self::Unknown(words) => f.write_str(words),
        }
    }
}

/// What the plain `ostree` says while it waits.
const LOCK: &str = "Waiting for sysroot lock";

/// The last `error:` line without its prefix; else the last line.
fn error_line(text: &str) -> &str {
    let strip = |line: &str| line.find("error: ").map(|at| at + "error: ".len());
    let errors = text.lines().rev();
    errors
        .filter_map(|line| line.get(strip(line)?..))
        .map(str::trim)
        .next()
        .or_else(|| text.lines().last().map(str::trim))
        .unwrap_or_default()
}

/// The rest of the line after these words.
fn after<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(words)?;
    Some(rest.lines().next().unwrap_or_default().trim())
}

fn quoted(rest: &str) -> String {
    let rest = rest.trim_start_matches(['\'', '"', '`']);
    let end = rest.find(['\'', '"', '`']).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default().to_owned()
}

/// rpm-ostree's own sentences.
fn sentence(text: &str) -> Option<Cause> {
    of_others(text)
        .or_else(|| of_reference(text))
        .or_else(|| of_request(text))
        .or_else(|| of_state(text))
}

/// Sentences about what others do.
fn of_others(text: &str) -> Option<Cause> {
    if let Some(title) = after(text, "Transaction in progress: ") {
        return Some(Cause::Busy {
            title: title.to_owned(),
            initiator: None,
            since: None,
        });
    }
    if let Some(rest) = after(text, "deployments are driven by ") {
        let (name, unit) = rest.split_once(" (").unwrap_or((rest, ""));
        let unit = unit.trim_end_matches(')');
        return Some(Cause::Driver(name.to_owned(), unit.to_owned()));
    }
    let rest = after(text, "Expected staged base checksum ")?;
    let (wanted, found) = rest.split_once(", but found ").unwrap_or((rest, ""));
    Some(Cause::OtherStaged(wanted.to_owned(), found.to_owned()))
}

/// Sentences about the reference that was given.
fn of_reference(text: &str) -> Option<Cause> {
    if let Some(reference) = after(text, "Old and new refs are equal: ") {
        return Some(Cause::SameReference(reference.to_owned()));
    }
    if let Some(reference) = after(text, "Invalid refspec ") {
        let has_scheme = reference.starts_with("ostree-");
        let reference = reference.to_owned();
        return Some(match has_scheme {
            true => Cause::BadReference(reference),
            false => Cause::UnknownScheme(reference),
        });
    }
    let rest = after(text, "Refspec ").filter(|rest| rest.contains(" not unique"))?;
    let name = rest.split(' ').next()?;
    Some(Cause::AmbiguousRef(name.to_owned()))
}

/// Sentences about what else was asked for.
fn of_request(text: &str) -> Option<Cause> {
    let has = |all: &[&str]| all.iter().any(|words| text.contains(words));
    let line = || error_line(text).to_owned();
    if has(&["No key '", "No karg '", "Multiple values for key"]) {
        Some(Cause::NoArgument(line()))
    } else if has(&["Unknown option ", "Unknown command ", "usage error: "]) {
        Some(Cause::Usage(line()))
    } else if has(&[
        "Packages not found",
        "Could not depsolve",
        "No packages in transaction",
    ]) {
        Some(Cause::Packages(line()))
    } else {
        None
    }
}

/// Sentences about the daemon and its deployments, which name nothing.
fn of_state(text: &str) -> Option<Cause> {
    let has = |words: &str| text.contains(words);
    let bus = [
        "Loading sysroot: exit status",
        "Unit dbus",
        "Failed to connect to bus",
        "Unit rpm-ostreed.service is masked",
        "Could not connect: ",
        "org.freedesktop.DBus.Error",
    ];
    if has("not booted via libostree") {
        Some(Cause::NotOstree)
    } else if has("Bus owner changed") {
        Some(Cause::DaemonDied)
    } else if has("Operation was cancelled") {
        Some(Cause::Cancelled)
    } else if bus.iter().any(|words| has(words)) {
        let first = text.lines().next().unwrap_or_default();
        Some(Cause::DaemonDown(
            first.trim_start_matches("error: ").to_owned(),
        ))
    } else if has("No rollback deployment found") {
        Some(Cause::NoRollback)
    } else if has("Staged deployment (remove with") {
        Some(Cause::StagedInTheWay)
    } else if has("finalization is locked") || has("deployment is locked") || has("not locked") {
        Some(Cause::FinalizationLocked)
    } else if has("not allowed for user") || has("must be root") || has("needs root") {
        Some(Cause::NotRoot)
    } else if has(LOCK) {
        Some(Cause::LockHeld)
    } else {
        None
    }
}

/// What the import of an image says.
fn of_image(text: &str) -> Option<Cause> {
    let has = |words: &str| text.contains(words);
    let line = || tail(error_line(text)).to_owned();
    if has("ostree.bootable label") {
        Some(Cause::NotBootable)
    } else if has("default of `insecureAcceptAnything`") {
        Some(Cause::PolicyTooWeak)
    } else if has("rejected by policy")
        || has("ignature was required")
        || has("Source image rejected")
    {
        Some(Cause::PolicyRejects(line()))
    } else if let Some(rest) = after(text, "archive file not found: ") {
        Some(Cause::NotFound(quoted(rest)))
    } else if has("manifest unknown") || has("name unknown") || has("repository not found") {
        Some(Cause::NotFound(line()))
    } else if has("unexpected EOF") {
        Some(Cause::Truncated(line()))
    } else if DAMAGED.iter().any(|words| has(words)) {
        Some(Cause::Corrupt(line()))
    } else {
        None
    }
}

/// What ostree, skopeo and podman say of bytes that do not have their digest.
const DAMAGED: [&str; 4] = [
    "orrupted ",
    "igest did not match",
    "does not match expected sha256:",
    "checksum expected=",
];

/// What the system says at the end of the line.
fn of_system(text: &str) -> Option<Cause> {
    let lower = text.to_lowercase();
    let has = |words: &str| lower.contains(words);
    let line = error_line(text);
    let end = || tail(line).to_owned();
    if has("no space left on device") || has("min-free-space") {
        Some(no_space(text, line))
    } else if has("no such file or directory") {
        let path = path_in(line).unwrap_or(line).to_owned();
        Some(match text.contains("GetBlob") {
            true => Cause::MissingBlob(path),
            false => Cause::NotFound(path),
        })
    // As skopeo writes it; the C library, and with it ostree, begins with a capital.
    } else if text.contains("permission denied") {
        let mut words = line
            .split([' ', '"', '\''])
            .map(|word| word.trim_end_matches([':', ',']));
        Some(match words.find(|word| word.ends_with("/auth.json")) {
            Some(path) => Cause::NoCredentials(path.to_owned()),
            None => Cause::FetcherDenied(path_in(line).unwrap_or(line).to_owned()),
        })
    // The other way round: only ostree meets the flags of deployments.
    } else if text.contains("Operation not permitted") {
        let inside = after(line, "unlinkat(").and_then(|rest| rest.split(')').next());
        let path = path_in(line).or(inside).unwrap_or("a file of a deployment");
        Some(Cause::Immutable(path.to_owned()))
    } else if has("unauthorized")
        || has("authentication required")
        || has("access to the resource is denied")
    {
        Some(Cause::Unauthorized(end()))
    } else if has("x509: ") || has("certificate signed by") {
        Some(Cause::Certificate(end()))
    // Before the others: it may be that of a mirror, and the registry itself cannot be reached.
    } else if has("unexpected http status") || has("unexpected status code") {
        Some(Cause::RegistryFault(end()))
    } else if has("connection refused") {
        Some(Cause::Refused(end()))
    } else if UNREACHABLE.iter().any(|words| has(words)) {
        Some(Cause::Unreachable(end()))
    } else {
        None
    }
}

const UNREACHABLE: [&str; 7] = [
    "no such host",
    "i/o timeout",
    "network is unreachable",
    "no route to host",
    "handshake timeout",
    "deadline exceeded",
    "server misbehaving",
];

fn no_space(text: &str, line: &str) -> Cause {
    let has = |words: &str| text.contains(words);
    let place = if has("/var/tmp/") {
        Place::VarTmp
    } else if has("Installing kernel") || has("bootfs") || has("/boot/") {
        Place::Boot
    } else {
        Place::Sysroot
    };
    let detail = match line.find("min-free-space") {
        Some(at) => line.get(at..).unwrap_or_default(),
        None => "",
    };
    Cause::NoSpace {
        place,
        detail: detail.to_owned(),
    }
}

/// The innermost part of nested messages: what says which host, file or digest. Parts are joined by `: `.
fn tail(line: &str) -> &str {
    let layers = [
        "remote error: ",
        "OpenImage: ",
        "GetBlob: ",
        "Importing regfile: ",
    ];
    let starts = layers
        .iter()
        .filter_map(|words| Some(line.rfind(words)? + words.len()));
    line.get(starts.max().unwrap_or_default()..).unwrap_or(line)
}

/// The first absolute path in the innermost part.
fn path_in(line: &str) -> Option<&str> {
    let rest = tail(line);
    let words = rest.split([' ', '"', '\'']);
    let path = words.map(|word| word.trim_end_matches([':', ',']));
    path.filter(|word| word.len() > 1)
        .find(|word| word.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: Option<i32>, stdout: &str, stderr: &str) -> CommandOutput {
        CommandOutput {
            status,
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        }
    }

    #[test]
    fn two_wordings_of_one_failure_have_one_cause() {
        let older = "error: Creating importer: Failed to invoke skopeo proxy method OpenImage: remote error: open /m/os/index.json: no such file or directory";
        let newer = "error: Creating importer: failed to invoke method OpenImage: failed to invoke method OpenImage: open /m/os/index.json: no such file or directory";
        for words in [older, newer] {
            assert_eq!(
                Cause::of_words(words),
                Cause::NotFound("/m/os/index.json".into())
            );
        }
    }

    #[test]
    fn a_blob_that_is_not_there_is_not_an_image_that_is_not_there() {
        let words = "error: Importing: Unencapsulating base: failed to invoke method GetBlob: failed to invoke method GetBlob: open /m/blobs/sha256/ab: no such file or directory";
        assert_eq!(
            Cause::of_words(words),
            Cause::MissingBlob("/m/blobs/sha256/ab".into())
        );
    }

    #[test]
    fn only_the_fetcher_is_denied_in_lower_case() {
        let fetcher = "error: Creating importer: Failed to invoke skopeo proxy method OpenImage: remote error: faccessat /m/os: permission denied";
        assert!(matches!(Cause::of_words(fetcher), Cause::FetcherDenied(path) if path == "/m/os"));
        let ostree = "error: readlinkat: /proc/1/ns/mnt: Permission denied";
        assert!(
            matches!(Cause::of_words(ostree), Cause::Unknown(words) if words.contains("/proc/1"))
        );
    }

    #[test]
    fn space_is_missing_where_the_words_say() {
        for (words, place) in [
            (
                "error: Installing kernel: regfile copy: No space left on device",
                Place::Boot,
            ),
            (
                "error: Creating new current bootlinks: mkdir(boot.0.1): No space left on device",
                Place::Sysroot,
            ),
            (
                "error: Importing: min-free-space-percent '3%' would be exceeded, at least 2.1 MB requested",
                Place::Sysroot,
            ),
            (
                "error: untarring file \"/var/tmp/x\": write /var/tmp/x/y: no space left on device",
                Place::VarTmp,
            ),
        ] {
            let cause = Cause::of_words(words);
            assert!(
                matches!(cause, Cause::NoSpace { place: p, .. } if p == place),
                "{words}: {cause:?}"
            );
        }
        let words = "error: Importing: min-free-space-percent '3%' would be exceeded, at least 2.1 MB requested";
        assert!(
            Cause::of_words(words)
                .to_string()
                .ends_with("at least 2.1 MB requested")
        );
    }

    #[test]
    fn a_transaction_is_told_with_who_began_it_and_when() {
        let words = "error: Transaction in progress: rebase ostree-unverified-image:oci:/m/os \n You can cancel the current transaction with `rpm-ostree cancel`\n";
        let cause = Cause::of_words(words)
            .begun_by(Some("client(id:cli uid:0)".into()), Some("10:24".into()));
        assert_eq!(
            cause.to_string(),
            "a transaction is in progress: rebase ostree-unverified-image:oci:/m/os, begun by client(id:cli uid:0), since 10:24"
        );
    }

    #[test]
    fn success_has_no_cause_and_neither_has_nothing_to_do() {
        for status in [0, 77] {
            assert_eq!(Cause::of(&answer(Some(status), "", "error: x")), None);
        }
    }

    #[test]
    fn a_program_that_ended_early_leaves_a_transaction_behind() {
        assert_eq!(Cause::of(&answer(None, "", "")), Some(Cause::ClientKilled));
        let late = Cause::of_error(&CommandError::TimedOut("rpm-ostree".into(), 5));
        for cause in [Cause::ClientKilled, late] {
            assert!(cause.next().contains("rpm-ostree cancel"), "{cause}");
        }
    }

    #[test]
    fn standard_output_is_not_searched() {
        let output = "Active: inactive\nerror: Transaction in progress: x\n";
        let cause = Cause::of(&answer(
            Some(1),
            output,
            "error: Loading sysroot: exit status: 1",
        ));
        assert_eq!(cause.unwrap().kind(), "daemon-down");
    }

    #[test]
    fn the_signature_policy_is_told_from_the_registry() {
        for (words, kind) in [
            (
                "error: Preparing import: Fetching manifest: containers-policy.json specifies a default of `insecureAcceptAnything`; refusing usage",
                "policy-too-weak",
            ),
            (
                "error: remote error: Source image rejected: Running image docker://q/os:1 is rejected by policy.",
                "policy-rejects",
            ),
            (
                "error: remote error: reading manifest 1 in q/os: unauthorized: access to the requested resource is not authorized",
                "unauthorized",
            ),
            (
                "error: remote error: pinging container registry q: Get \"https://q/v2/\": x509: certificate signed by unknown authority",
                "certificate",
            ),
            (
                "error: remote error: reading manifest 1 in q/os: manifest unknown",
                "not-found",
            ),
            (
                "error: Importing: Parsing layer blob sha256:37: failed to invoke method FinishPipe: failed to invoke method FinishPipe: corrupted blob, expecting sha256:37",
                "corrupt",
            ),
            (
                "error: Preparing import: Fetching manifest: failed to invoke method GetFullConfig: failed to invoke method GetFullConfig: Download config.json digest sha256:e6 does not match expected sha256:06",
                "corrupt",
            ),
            (
                "error: Creating importer: failed to invoke method OpenImage: failed to invoke method OpenImage: stat /run/containers/989/auth.json: permission denied",
                "no-credentials",
            ),
            (
                "error: Creating importer: Failed to invoke skopeo proxy method OpenImage: remote error: getting username and password: reading JSON file \"/run/containers/989/auth.json\": open /run/containers/989/auth.json: permission denied",
                "no-credentials",
            ),
            (
                "error: Creating importer: failed to invoke method OpenImage: failed to invoke method OpenImage: (Mirrors also failed: [127.0.0.1:5000/okd/os@sha256:2e: pinging container registry 127.0.0.1:5000: received unexpected HTTP status: 500 Internal Server Error]): quay.example/okd/os@sha256:2e: pinging container registry quay.example: Get \"https://quay.example/v2/\": dial tcp: lookup quay.example on [::1]:53: read udp [::1]:57031->[::1]:53: read: connection refused",
                "registry-fault",
            ),
            ("error: Packages not found: kernel-rt-core", "packages"),
            (
                "error: ostree-finalize-staged.service failed on previous boot: Installing kernel: regfile copy: No space left on device",
                "finalize-failed",
            ),
            (
                "error: Cleaning deployments: unlinkat(x): Operation not permitted",
                "immutable",
            ),
            (
                "time=\"2026-11-21T21:25:53Z\" level=error msg=\"writing \\\"0 0 1\\n\\\" to /proc/3220/gid_map: write /proc/3220/gid_map: operation not permitted\"",
                "unknown",
            ),
            ("error: something new", "unknown"),
        ] {
            assert_eq!(Cause::of_words(words).kind(), kind, "{words}");
        }
    }
}
