//! The errors of rpm-ostree, recognised by their text: it has no distinct exit codes.
//!
//! The wording differs between versions, so only the common parts are matched: the tail that comes from the system or from
//! skopeo, or one of rpm-ostree's own sentences. A cause says nothing about the current state of the system: the error may have
//! occurred after the deployment was staged, so read the status after each one.

mod recognise;

use std::fmt;

pub use self::recognise::PHRASES;

use self::recognise::{error_line, of_finalization, recognise_cause, waits_for_lock};

use crate::base::invocation::{advise_doctor, mco_rescue, whole_command};
use crate::base::reason::Reason;
use crate::node::command::{CommandError, CommandOutput};

/// A failed command of rpm-ostree or ostree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RpmOstreeError {
    /// The system was not booted by ostree.
    NotOstree,
    /// Another transaction is running: the command line that began it.
    Busy(String),
    /// The transaction was cancelled.
    Cancelled,
    /// The daemon died during its work.
    DaemonDied,
    /// The daemon does not start; the error from systemd or the bus.
    DaemonDown(String),
    /// The client was killed by a signal; the daemon continues its transaction.
    ClientKilled,
    /// The client timed out; the daemon continues its transaction.
    NoAnswer {
        /// The program.
        program: String,
        /// The deadline in seconds.
        seconds: u64,
    },
    /// The program is not installed.
    NotInstalled(String),
    /// Another process holds the lock of the sysroot.
    LockHeld,
    /// This reference is already booted or staged; its content may have changed since.
    SameReference(String),
    /// There is no deployment to roll back to.
    NoRollback,
    /// A deployment is staged and has to be dropped first.
    StagedInTheWay,
    /// A staged deployment is locked and waits for `finalize-deployment`, or is unexpectedly not locked.
    FinalizationLocked,
    /// A different deployment is staged: the expected one, and the one found.
    OtherStaged(String, String),
    /// A kernel argument to be deleted or replaced is missing, or occurs more than once.
    NoArgument(String),
    /// We are not root.
    NotRoot,
    /// Another program is in charge of updates: its name and its unit.
    Driver(String, String),
    /// This rpm-ostree does not accept the command line.
    Usage(String),
    /// The reference does not begin with a scheme that rpm-ostree knows.
    UnknownScheme(String),
    /// The reference has a scheme, but the rest is invalid.
    BadReference(String),
    /// A ref of the local repository is ambiguous.
    AmbiguousRef(String),
    /// The objects of an image cannot be imported.
    NotImported {
        /// The repository, archive or stream.
        from: String,
        /// What went wrong.
        why: String,
    },
    /// The image is not an OSTree image.
    NotBootable,
    /// A signed reference needs a stricter policy: the default `insecureAcceptAnything` is refused.
    PolicyTooWeak,
    /// The signature policy does not accept the image.
    PolicyRejects(String),
    /// No space.
    NoSpace {
        /// The full file system.
        place: FullDisk,
        /// The amount, in rpm-ostree's words. May be empty.
        detail: String,
    },
    /// The image is missing.
    NotFound(String),
    /// The unprivileged process that fetches the image is not allowed to read it.
    FetcherDenied(String),
    /// The unprivileged process that fetches the image looks for credentials in a place that it may not read, because it has no
    /// credentials file of its own.
    NoCredentials(String),
    /// A blob of the image is missing.
    MissingBlob(String),
    /// The image ends too early.
    Truncated(String),
    /// A blob of the image has the wrong digest.
    Corrupt(String),
    /// The registry cannot be reached.
    Unreachable(String),
    /// The registry, its mirror or the name server refuses connections.
    Refused(String),
    /// The registry or its mirror answers with an HTTP error status.
    RegistryFault(String),
    /// The registry rejects the credentials.
    Unauthorized(String),
    /// The certificate of the registry is not trusted.
    Certificate(String),
    /// Packages are unavailable or conflict.
    Packages(String),
    /// A file cannot be changed even by root: `chattr +i`.
    Immutable(String),
    /// The origin file of a deployment is missing, unreadable, or names no image.
    OriginUnreadable {
        /// Its path.
        file: String,
        /// The error, in words.
        why: String,
    },
    /// The kernel arguments of an image cannot be read.
    ImageArguments {
        /// The file and the error, in words.
        why: Reason,
        /// The command that stages the image without them.
        without: String,
    },
    /// The previous shutdown failed to finalize the staged deployment; the error.
    FinalizeFailed(Box<RpmOstreeError>),
    /// Any other error, in its own words.
    Unknown(String),
}

/// Returns the cause of a phrase of [`PHRASES`], with capital letters in the place of names.
pub fn cause_of_phrase(phrase: &str) -> RpmOstreeError {
    let phrase = if phrase.contains("...") {
        phrase.replace("...", "NAME")
    } else {
        format!("{phrase}NAME (UNIT)")
    };
    RpmOstreeError::of_words(&format!("error: /PATH: {phrase}"))
}

/// A full file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDisk {
    /// `/boot`: kernel and initramfs.
    Boot,
    /// `/sysroot`: the repository and the deployments.
    Sysroot,
    /// `/var/tmp`, where archives are completely unpacked.
    VarTmp,
}

impl FullDisk {
    /// Returns the mount point.
    pub fn mount_path(self) -> &'static str {
        match self {
            Self::Boot => "/boot",
            Self::Sysroot => "/sysroot",
            Self::VarTmp => "/var/tmp",
        }
    }

    /// Returns the next step that frees space there.
    fn next_step(self) -> &'static str {
        match self {
            Self::Boot => "rpm-ostree cleanup -r # drops the rollback deployment and its kernel",
            Self::Sysroot => {
                "rpm-ostree cleanup -b -p -m, then podman image prune, then journalctl --vacuum-size=100M"
            }
            Self::VarTmp => {
                "unpack the archive on a medium and give it as oci:PATH, which needs no room below /var/tmp"
            }
        }
    }
}

impl RpmOstreeError {
    /// Returns the cause of a failure; `None` if the program succeeded. Exit status 77 means that there was nothing to do.
    pub fn of_command(answer: &CommandOutput) -> Option<Self> {
        match answer.status {
            Some(0 | 77) => None,
            // The exit status of timeout(1).
            Some(124) if waits_for_lock(&answer.stdout) => Some(Self::LockHeld),
            None => Some(Self::ClientKilled),
            // Never standard output: it has progress messages and the status of units.
            Some(_) => Some(Self::of_words(&answer.stderr)),
        }
    }

    /// Returns the cause if the program gave no result.
    pub fn of_error(error: &CommandError) -> Self {
        match error {
            CommandError::Missing(program) => Self::NotInstalled(program.clone()),
            // The plain `ostree` does the work itself and waits for nothing but the lock.
            CommandError::TimedOut(program, _) if program == "ostree" => Self::LockHeld,
            CommandError::TimedOut(program, seconds) => Self::NoAnswer {
                program: program.clone(),
                seconds: *seconds,
            },
            CommandError::Failed(program, words) => match Self::of_words(words) {
                Self::Unknown(_) => Self::Unknown(format!("{program} cannot be run: {words}")),
                known => known,
            },
            CommandError::Interrupted(_) => Self::ClientKilled,
        }
    }

    /// Returns the cause of a failure within this program, in its words.
    pub fn of_failure(error: &anyhow::Error) -> Self {
        Self::Unknown(format!("{error:#}"))
    }

    /// Returns the cause from a program's standard error or from the journal.
    pub fn of_words(text: &str) -> Self {
        // Numbers are followed by a no-break space.
        let text = text.trim().replace('\u{a0}', " ");
        let text = text.as_str();
        if let Some(rest) = of_finalization(text) {
            return Self::FinalizeFailed(Box::new(Self::of_words(rest)));
        }
        recognise_cause(text).unwrap_or_else(|| Self::Unknown(error_line(text).to_owned()))
    }

    /// Returns the error as a sentence with the next step.
    pub fn to_line(&self) -> String {
        format!("{self}. {}", advise_doctor(&self.next_step()))
    }

    /// Returns a stable name for scripts, such as `no-space`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotOstree => "not-ostree",
            Self::Busy(_) => "busy",
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
            Self::OriginUnreadable { .. } => "origin-unreadable",
            Self::ImageArguments { .. } => "image-arguments",
            Self::FinalizeFailed(_) => "finalize-failed",
            Self::NotImported { .. } => "not-imported",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the error as a sentence without its end.
    fn to_sentence(&self) -> String {
        match self {
            Self::NotOstree => "this system was not booted by ostree".into(),
            Self::Busy(title) => format!("a transaction is in progress: {title}"),
            Self::Cancelled => "the transaction was cancelled".into(),
            Self::DaemonDied => "rpm-ostreed ended during the transaction".into(),
            Self::DaemonDown(words) => format!("rpm-ostreed does not start: {words}"),
            Self::ClientKilled => "the program was ended by a signal".into(),
            Self::NoAnswer { program, seconds } => {
                format!("{program} gave no answer within {seconds} s")
            }
            Self::NotInstalled(program) => format!("{program} is not installed"),
            Self::LockHeld => "another process holds the lock of the sysroot".into(),
            Self::SameReference(reference) => format!("{reference} is booted or staged already"),
            Self::NoRollback => "there is no deployment to go back to".into(),
            Self::StagedInTheWay => "a staged deployment is in the way".into(),
            Self::FinalizationLocked => "the staged deployment is locked".into(),
            Self::OtherStaged(wanted, found) => format!("{found} is staged, not {wanted}"),
            Self::NoArgument(words) => format!("changing kernel arguments: {words}"),
            Self::NotRoot => "only root may do that".into(),
            Self::Driver(name, unit) => format!("updates are driven by {name} ({unit})"),
            Self::Usage(words) => {
                format!("this rpm-ostree does not understand its arguments: {words}")
            }
            Self::UnknownScheme(reference) => {
                format!("{reference} begins with no scheme that rpm-ostree knows")
            }
            Self::BadReference(reference) => {
                format!("{reference} names no transport that rpm-ostree knows")
            }
            Self::AmbiguousRef(name) => format!("the ref {name} has several meanings"),
            Self::NotBootable => {
                "the image is not an OS image: it has no ostree.bootable label".into()
            }
            Self::PolicyTooWeak => {
                "the signature policy accepts anything, so a signed reference proves nothing".into()
            }
            Self::PolicyRejects(words) => {
                format!("the signature policy refuses the image: {words}")
            }
            Self::NoSpace { place, detail } => format!(
                "no space left on {}{}",
                place.mount_path(),
                label_text(": ", Some(detail).filter(|detail| !detail.is_empty()))
            ),
            Self::NotFound(what) => format!("{what} is missing"),
            Self::FetcherDenied(path) => {
                format!("the user that fetches images may not read {path}")
            }
            Self::NoCredentials(path) => format!(
                "the user that fetches images looks for credentials in {path}, which it may not read"
            ),
            Self::MissingBlob(path) => format!("a part of the image is missing: {path}"),
            Self::Truncated(words) => format!("the image ends too early: {words}"),
            Self::Corrupt(words) => format!("the image is damaged: {words}"),
            Self::Unreachable(words) => format!("the registry cannot be reached: {words}"),
            Self::Refused(words) => format!("a connection was refused: {words}"),
            Self::RegistryFault(words) => {
                format!("the registry or one of its mirrors failed: {words}")
            }
            Self::Unauthorized(words) => format!("the registry wants other credentials: {words}"),
            Self::Certificate(words) => {
                format!("the certificate of the registry is not trusted: {words}")
            }
            Self::Packages(words) => format!("packages: {words}"),
            Self::Immutable(path) => format!("{path} may not be changed"),
            Self::OriginUnreadable { file, why } => {
                format!("the origin file of a deployment cannot be used: {file}: {why}")
            }
            Self::ImageArguments { why, .. } => {
                format!(
                    "the kernel arguments of an image (/usr/lib/bootc/kargs.d) cannot be read: {why}"
                )
            }
            Self::FinalizeFailed(inner) => {
                format!("the last shutdown could not finish the staged deployment: {inner}")
            }
            Self::NotImported { from, why } => format!("{from}: {why}"),
            Self::Unknown(words) => words.clone(),
        }
    }

    /// Returns the next step for the user.
    pub fn next_step(&self) -> String {
        match self {
            Self::NotOstree => "apply files only: mco-rescue apply skips the operating system on such a root".into(),
            Self::Busy(_) => then_again("rpm-ostree cancel # or wait for it"),
            Self::Cancelled => format!("{} # and let no other program cancel it", whole_command()),
            Self::DaemonDied | Self::DaemonDown(_) => then_again(DAEMON),
            Self::ClientKilled | Self::NoAnswer { .. } => then_again(GOES_ON),
            Self::NotInstalled(program) => format!("run this where {program} is installed"),
            Self::LockHeld => then_again("fuser -v /ostree/lock # shows the process that holds it"),
            Self::SameReference(_) => "rpm-ostree status # with this digest nothing is to be done, or rpm-ostree upgrade # takes the new content"
                    .into(),
            Self::NoRollback => format!("{} # deploys the wanted image", mco_rescue("pivot IMAGE")),
            Self::StagedInTheWay => then_again("rpm-ostree cleanup -p"),
            Self::FinalizationLocked => "rpm-ostree finalize-deployment CHECKSUM # finishes it, or rpm-ostree cleanup -p # drops it".into(),
            Self::OtherStaged(..) => "rpm-ostree status # another deployment was staged meanwhile".into(),
            Self::NoArgument(_) => "rpm-ostree kargs # shows the current ones".into(),
            Self::NotRoot => format!("{} # as root", whole_command()),
            Self::Driver(_, unit) => then_again(&format!("systemctl stop {unit}")),
            Self::Usage(_) => "rpm-ostree --version # it is older or newer than what mco-rescue knows".into(),
            Self::UnknownScheme(_) | Self::BadReference(_) => REFERENCE.into(),
            Self::AmbiguousRef(name) => format!("ostree refs --list | grep {name}"),
            Self::NotBootable => "give the node's OS image, not another image of the release".into(),
            Self::PolicyTooWeak => "use an unverified reference with a digest, or write a policy.json that names the keys".into(),
            Self::PolicyRejects(_) => "look at /etc/containers/policy.json; it is never weakened by mco-rescue".into(),
            Self::NoSpace { place, .. } => match place {
                FullDisk::VarTmp => place.next_step().into(),
                _ => then_again(place.next_step()),
            },
            Self::NotFound(_) => "check whether the medium is mounted and the name is right".into(),
            Self::FetcherDenied(path) => format!(
                    "the fetching process is not root: give every directory above {path} mode 0755 and the files 0644"
                ),
            Self::NoCredentials(_) => then_again("echo '{\"auths\": {}}' >/etc/ostree/auth.json # or the pull secret"),
            Self::MissingBlob(_) | Self::Truncated(_) => COPY_AGAIN.into(),
            Self::Corrupt(_) => format!("{}, or {COPY_AGAIN} if the medium, mirror or registry has it so", whole_command()),
            Self::Unreachable(_) | Self::Refused(_) => MIRROR.into(),
            Self::RegistryFault(_) => "look at the log and the disk of the registry or mirror that answered so, and run this again; or \
                 bring the image into containers-storage under this very name, and use --from-storage"
                    .into(),
            Self::Unauthorized(_) => "look at the pull secret: /etc/ostree/auth.json, /run/ostree/auth.json, /var/lib/kubelet/config.json"
                    .into(),
            Self::Certificate(_) => "put the registry's authority below /etc/docker/certs.d/HOST:PORT/ca.crt, and look at the clock: date"
                    .into(),
            Self::Packages(_) => "give the extensions image of the same release; without it leave the extensions out".into(),
            Self::Immutable(_) => "lsattr -R /ostree/deploy, then chattr -i FILE # but not the directory of a deployment itself, which has it \
                 by design"
                    .into(),
            Self::OriginUnreadable { file, .. } => then_again(&write_origin(file)),
            Self::ImageArguments { without, .. } => {
                then_again(&format!("{without} # stages the image without them"))
            }
            Self::FinalizeFailed(inner) => inner.next_step(),
            Self::NotImported { .. } => {
                "mco-rescue image export DIRECTORY # on a healthy node".into()
            }
            Self::Unknown(_) => "rpm-ostree status, then journalctl -u rpm-ostreed".into(),
        }
    }
}

/// Returns the command that rewrites an origin file, and keeps what is in its place.
fn write_origin(file: &str) -> String {
    format!(
        "unshare -m sh -c 'mount -o remount,rw /sysroot; [ ! -e {file} ] || mv -T {file} {file}.old; printf \"[origin]\\ncontainer-image-reference=ostree-unverified-registry:IMAGE\\n\" >{file}' # the IMAGE of this deployment; ostree refs --list ostree/container/image lists those of the node"
    )
}

/// Returns commands followed by the command of this run.
fn then_again(commands: &str) -> String {
    format!("{commands}, then {}", whole_command())
}

/// Next steps of several causes.
const DAEMON: &str = "systemctl status dbus.socket rpm-ostreed";
const GOES_ON: &str = "rpm-ostree cancel # the daemon may go on and stage its result, then rpm-ostree status # until it says idle";
const REFERENCE: &str =
    "give an image as NAME@sha256:DIGEST, or a medium as oci:PATH or oci-archive:PATH";
const COPY_AGAIN: &str = "skopeo copy --all --preserve-digests docker://IMAGE oci:PATH # copies the image to the medium again";
const MIRROR: &str = "name a mirror in /etc/containers/registries.conf; or bring the image into containers-storage under this very \
     name, and use --from-storage";

/// Returns a text after its label; empty without a text.
fn label_text(label: &str, text: Option<&String>) -> String {
    text.map(|text| format!("{label}{text}"))
        .unwrap_or_default()
}

/// Prints a gerund for an activity. The next step is not included.
impl fmt::Display for RpmOstreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_sentence())
    }
}

impl std::error::Error for RpmOstreeError {}

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
                RpmOstreeError::of_words(words),
                RpmOstreeError::NotFound("/m/os/index.json".into())
            );
        }
    }

    #[test]
    fn a_blob_that_is_not_there_is_not_an_image_that_is_not_there() {
        let words = "error: Importing: Unencapsulating base: failed to invoke method GetBlob: failed to invoke method GetBlob: open /m/blobs/sha256/ab: no such file or directory";
        assert_eq!(
            RpmOstreeError::of_words(words),
            RpmOstreeError::MissingBlob("/m/blobs/sha256/ab".into())
        );
    }

    #[test]
    fn only_the_fetcher_is_denied_in_lower_case() {
        let fetcher = "error: Creating importer: Failed to invoke skopeo proxy method OpenImage: remote error: faccessat /m/os: permission denied";
        assert!(
            matches!(RpmOstreeError::of_words(fetcher), RpmOstreeError::FetcherDenied(path) if path == "/m/os")
        );
        let ostree = "error: readlinkat: /proc/1/ns/mnt: Permission denied";
        assert!(
            matches!(RpmOstreeError::of_words(ostree), RpmOstreeError::Unknown(words) if words.contains("/proc/1"))
        );
    }

    #[test]
    fn space_is_missing_where_the_words_say() {
        for (words, place) in [
            (
                "error: Installing kernel: regfile copy: No space left on device",
                FullDisk::Boot,
            ),
            (
                "error: Creating new current bootlinks: mkdir(boot.0.1): No space left on device",
                FullDisk::Sysroot,
            ),
            (
                "error: Importing: min-free-space-percent '3%' would be exceeded, at least 2.1 MB requested",
                FullDisk::Sysroot,
            ),
            (
                "error: untarring file \"/var/tmp/x\": write /var/tmp/x/y: no space left on device",
                FullDisk::VarTmp,
            ),
        ] {
            let cause = RpmOstreeError::of_words(words);
            assert!(
                matches!(cause, RpmOstreeError::NoSpace { place: p, .. } if p == place),
                "{words}: {cause:?}"
            );
        }
        let words = "error: Importing: min-free-space-percent '3%' would be exceeded, at least 2.1 MB requested";
        assert!(
            RpmOstreeError::of_words(words)
                .to_string()
                .ends_with("at least 2.1 MB requested")
        );
    }

    #[test]
    fn success_has_no_cause_and_neither_has_nothing_to_do() {
        for status in [0, 77] {
            assert_eq!(
                RpmOstreeError::of_command(&answer(Some(status), "", "error: x")),
                None
            );
        }
    }

    #[test]
    fn a_program_that_ended_early_leaves_a_transaction_behind() {
        assert_eq!(
            RpmOstreeError::of_command(&answer(None, "", "")),
            Some(RpmOstreeError::ClientKilled)
        );
        let late = RpmOstreeError::of_error(&CommandError::TimedOut("rpm-ostree".into(), 5));
        for cause in [RpmOstreeError::ClientKilled, late] {
            assert!(cause.next_step().contains("rpm-ostree cancel"), "{cause}");
        }
    }

    #[test]
    fn standard_output_is_not_searched() {
        let output = "Active: inactive\nerror: Transaction in progress: x\n";
        let cause = RpmOstreeError::of_command(&answer(
            Some(1),
            output,
            "error: Loading sysroot: exit status: 1",
        ));
        assert_eq!(cause.unwrap().kind(), "daemon-down");
    }

    #[test]
    fn every_phrase_is_recognised() {
        for phrase in PHRASES {
            assert_ne!(cause_of_phrase(phrase).kind(), "unknown", "{phrase}");
        }
    }

    /// Messages, and the kind of their cause.
    const KINDS: &[(&str, &str)] = &[
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
    ];

    #[test]
    fn the_signature_policy_is_told_from_the_registry() {
        for &(words, kind) in KINDS {
            assert_eq!(RpmOstreeError::of_words(words).kind(), kind, "{words}");
        }
    }
}
