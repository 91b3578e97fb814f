//! Command lines of rpm-ostree, and of ostree where rpm-ostree has none (docs/agreement.md: Operating system, Packages).
//!
//! Every one has a deadline. When it passes, the client is killed and the daemon goes on: run `cancel`, then `status`
//! until it names no transaction.

use std::time::Duration;

use crate::base::kargs::KargsChange;
use crate::host::sys::privileges::Capability;
use crate::node::command::CommandLine;

/// Questions, which start the daemon if need be.
const QUESTION: Duration = Duration::from_secs(60);
/// For changes without new content; staging a deployment takes tens of seconds on a slow disk.
const SMALL: Duration = Duration::from_secs(600);
/// For imports of images and unpacking of packages.
const LARGE: Duration = Duration::from_secs(3600);

/// The answer of `rpm-ostree --version`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Year and release; `None` for another form.
    pub number: Option<(u32, u32)>,
    /// Such as `container`, without which no image can be deployed.
    pub features: Vec<String>,
}

impl Version {
    /// Parses the answer, which is YAML of a fixed form. Missing fields stay empty.
    pub fn parse_answer(stdout: &str) -> Self {
        // The first document is rpm-ostree's own; `ostree --version` has the same form.
        let lines = stdout.lines().map(str::trim);
        let number = lines.clone().find_map(|line| line.strip_prefix("Version:"));
        let number = number.map(|text| text.trim().trim_matches(['\'', '"']));
        let features = lines.filter_map(|line| line.strip_prefix("- "));
        Self {
            number: number.and_then(|text| {
                let (year, release) = text.split_once('.')?;
                Some((year.parse().ok()?, release.split('.').next()?.parse().ok()?))
            }),
            features: features.map(str::to_owned).collect(),
        }
    }

    /// Returns true if it can deploy images; else the daemon updates through a container (docs/agreement.md: Operating system).
    pub fn has_containers(&self) -> bool {
        self.features.iter().any(|feature| feature == "container")
    }

    /// Returns true if a rebase to an image needs `--experimental`: 2024.7 is the oldest version seen without.
    fn wants_experimental(&self) -> bool {
        self.number.is_none_or(|number| number < (2024, 7))
    }
}

/// The target of a rebase, by the source of its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebaseTarget {
    /// The registry of the image's name, or a mirror of it in `registries.conf`. The origin keeps the name.
    Registry(String),
    /// `containers-storage`, under exactly this name. The origin keeps the name.
    Storage(String),
    /// An OCI directory. The origin is the path, which the daemon does not accept (docs/agreement.md: Operating system).
    OciDirectory(String),
    /// An OCI archive, unpacked whole below `/var/tmp` first. The origin is the path.
    OciArchive(String),
    /// A commit in the local repository, with the daemon's old form of an origin.
    Commit {
        /// Checksum of the commit.
        checksum: String,
        /// The image that it was made of, as the daemon compares it.
        image: String,
    },
    /// A reference as `status` shows it, scheme included.
    Reference(String),
}

impl RebaseTarget {
    /// Returns the reference as rpm-ostree takes it.
    pub fn as_reference(&self) -> String {
        match self {
            Self::Registry(image) => format!("ostree-unverified-registry:{image}"),
            Self::Storage(image) => format!("ostree-unverified-image:containers-storage:{image}"),
            Self::OciDirectory(path) => format!("ostree-unverified-image:oci:{path}"),
            Self::OciArchive(path) => format!("ostree-unverified-image:oci-archive:{path}"),
            Self::Commit { checksum, .. } => checksum.clone(),
            Self::Reference(reference) => reference.clone(),
        }
    }

    /// Returns the image name that the daemon will read from the deployment afterwards.
    pub fn image_name(&self) -> String {
        match self {
            Self::Commit { image, .. } => image.clone(),
            other => {
                crate::node::command::rpm_ostree::reference::of_reference(&other.as_reference())
            }
        }
    }
}

/// `rpm-ostree status --json`. Ask again for some seconds where it fails: the daemon may be about to start or to end.
pub fn status_json() -> CommandLine {
    rpm_ostree_line(QUESTION, ["status", "--json"])
}

/// `rpm-ostree status`: the initiator of a transaction and the last failed finalization are in the text only.
pub fn status_text() -> CommandLine {
    rpm_ostree_line(QUESTION, ["status"])
}

/// `rpm-ostree --version`.
pub fn show_version() -> CommandLine {
    rpm_ostree_line(QUESTION, ["--version"])
}

/// The arguments of the deployment that the next boot would take.
pub fn show_kargs() -> CommandLine {
    rpm_ostree_line(QUESTION, ["kargs"])
}

/// Stages a deployment with other kernel arguments; `None` if nothing is to be changed.
pub fn change_kargs(changes: &[KargsChange]) -> Option<CommandLine> {
    let options = changes.iter().map(KargsChange::command_option);
    let args = std::iter::once("kargs".to_owned()).chain(options);
    (!changes.is_empty()).then(|| rpm_ostree_line(SMALL, args))
}

/// Stages a deployment of another image or commit.
pub fn rebase_to(target: &RebaseTarget, version: &Version) -> CommandLine {
    let mut args = vec!["rebase".to_owned()];
    if let RebaseTarget::Commit { image, .. } = target {
        args.push(format!("--custom-origin-url=pivot://{image}"));
        args.push("--custom-origin-description=Managed by machine-config-operator".to_owned());
    } else if version.wants_experimental() {
        args.push("--experimental".to_owned());
    }
    args.push(target.as_reference());
    rpm_ostree_line(LARGE, args)
}

/// Drops the staged deployment, also one that another program staged.
pub fn drop_pending() -> CommandLine {
    rpm_ostree_line(SMALL, ["cleanup", "-p"])
}

/// Makes the rollback deployment the first one, at once; refused while something is staged.
pub fn swap_rollback() -> CommandLine {
    rpm_ostree_line(SMALL, ["rollback"])
}

/// Ends the running transaction; succeeds where there is none.
pub fn cancel_transaction() -> CommandLine {
    rpm_ostree_line(QUESTION, ["cancel"])
}

/// Takes packages of the image away and puts others in their place.
pub fn override_remove(packages: &[&str], install: &[&str]) -> CommandLine {
    let fixed = ["override", "remove"].map(str::to_owned);
    let removed = packages.iter().map(|name| (*name).to_owned());
    let args = fixed.into_iter().chain(removed);
    rpm_ostree_line(LARGE, args.chain(repeat_option("--install", install)))
}

/// Gives packages of the image back and takes others away.
pub fn override_reset(packages: &[&str], uninstall: &[&str]) -> CommandLine {
    let fixed = ["override", "reset"].map(str::to_owned);
    let given_back = packages.iter().map(|name| (*name).to_owned());
    let args = fixed.into_iter().chain(given_back);
    rpm_ostree_line(LARGE, args.chain(repeat_option("--uninstall", uninstall)))
}

/// A change of packages, whose arguments were planned.
pub fn change_packages(command: &[String]) -> CommandLine {
    rpm_ostree_line(LARGE, command.iter().cloned())
}

/// Adds and removes layered packages; `None` if nothing is to be changed.
///
/// The daemon runs `update`, which asks the registry for the image first and fails without one, even if the image is
/// named by its digest. The packages stand in the same order.
pub fn layer_packages(install: &[&str], uninstall: &[&str]) -> Option<CommandLine> {
    let sorted = |names: &[&str]| {
        let mut names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        names.sort();
        names
    };
    let (install, uninstall) = (sorted(install), sorted(uninstall));
    let args = match (install.is_empty(), uninstall.is_empty()) {
        (true, true) => return None,
        (true, false) => [vec!["uninstall".to_owned()], uninstall],
        (false, _) => {
            let away = repeat_option("--uninstall", &uninstall);
            [vec!["install".to_owned()], [install, away].concat()]
        }
    };
    Some(rpm_ostree_line(LARGE, args.concat()))
}

/// Pins a deployment, by its index in the list, so that it is not cleaned up.
pub fn pin_deployment(index: usize) -> CommandLine {
    ostree_line(vec!["admin".into(), "pin".into(), index.to_string()])
}

/// Removes the pin of a deployment.
pub fn unpin_deployment(index: usize) -> CommandLine {
    let fixed = ["admin", "pin", "--unpin"].map(str::to_owned);
    ostree_line(fixed.into_iter().chain([index.to_string()]).collect())
}

/// The log of the previous shutdown's finalization; one JSON object per line. `soft`: the shutdown was that of a soft reboot.
pub fn finalize_journal(soft: bool) -> CommandLine {
    let boot = if soft { "0" } else { "-1" };
    journal_query(&["-b", boot, "-u", "ostree-finalize-staged.service"])
}

/// The log of this boot's stagings: transactions of rpm-ostreed, and what bootc says before it stages; one JSON object per
/// line.
pub fn staging_journal() -> CommandLine {
    journal_query(&[
        "-b",
        "_SYSTEMD_UNIT=rpm-ostreed.service",
        "+",
        &format!("{BOOTC_ID}={BOOTC_STAGES}"),
    ])
}

/// The field with the ids of bootc's messages; its logger puts this letter before every name.
pub const BOOTC_ID: &str = "F_MESSAGE_ID";
/// The id of bootc's message about the image that it stages now.
pub const BOOTC_STAGES: &str = "8f7a2b1c3d4e5f6a7b8c9d0e1f2a3b4c";

/// Makes the deployment at this place the one of the next boot.
pub fn set_default(index: usize) -> CommandLine {
    ostree_line(vec![
        "admin".to_owned(),
        "set-default".to_owned(),
        index.to_string(),
    ])
}

/// Removes the deployment at this place: the staged one, where bootc has no command for it.
pub fn undeploy(index: usize) -> CommandLine {
    ostree_line(vec![
        "admin".to_owned(),
        "undeploy".to_owned(),
        index.to_string(),
    ])
}

fn journal_query(which: &[&str]) -> CommandLine {
    let output = ["--no-pager", "-o", "json", "-n", "1000"];
    CommandLine {
        program: "journalctl".to_owned(),
        args: which
            .iter()
            .chain(&output)
            .map(|arg| (*arg).to_owned())
            .collect(),
        timeout: QUESTION,
        capabilities: &[],
    }
}

/// An option once for each name, in the form of two arguments that the daemon uses.
fn repeat_option<S: AsRef<str>>(option: &str, names: &[S]) -> Vec<String> {
    let both = |name: &S| [option.to_owned(), name.as_ref().to_owned()];
    names.iter().flat_map(both).collect()
}

fn rpm_ostree_line<A: Into<String>>(
    timeout: Duration,
    args: impl IntoIterator<Item = A>,
) -> CommandLine {
    CommandLine {
        program: "rpm-ostree".to_owned(),
        args: args.into_iter().map(Into::into).collect(),
        timeout,
        // The daemon does the work; the client only asks it, as root.
        capabilities: &[],
    }
}

/// Unlike rpm-ostree it works itself: in a mount namespace of its own, where it makes the sysroot writable. To see
/// whether it is in one already it reads that of the first process, and what it removes may be immutable.
fn ostree_line(args: Vec<String>) -> CommandLine {
    CommandLine {
        program: "ostree".to_owned(),
        args,
        timeout: SMALL,
        capabilities: &[
            Capability::CAP_SYS_ADMIN,
            Capability::CAP_SYS_PTRACE,
            Capability::CAP_LINUX_IMMUTABLE,
            Capability::CAP_CHOWN,
            Capability::CAP_FOWNER,
            Capability::CAP_DAC_OVERRIDE,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::kargs::{Kargs, daemon_sequence};

    const IMAGE: &str = "quay.example/os@sha256:1";

    fn line(command: &CommandLine) -> String {
        format!("{} {}", command.program, command.args.join(" "))
    }

    fn version(number: (u32, u32)) -> Version {
        Version {
            number: Some(number),
            features: vec!["container".to_owned()],
        }
    }

    #[test]
    fn the_version_tells_what_it_can_do() {
        let text =
            "rpm-ostree:\n Version: '2024.7'\n Features:\n  - rust\n  - compose\n  - container\n";
        let read = Version::parse_answer(text);
        assert_eq!(read.number, Some((2024, 7)));
        assert!(read.has_containers() && !read.wants_experimental());
        assert!(!Version::parse_answer("rpm-ostree:\n Version: '2021.1'\n").has_containers());
        assert!(Version::parse_answer("something else").wants_experimental());
    }

    #[test]
    fn a_rebase_says_where_the_bits_come_from() {
        let new = version((2025, 6));
        let name = || IMAGE.to_owned();
        for (target, args) in [
            (
                RebaseTarget::Registry(name()),
                "ostree-unverified-registry:quay.example/os@sha256:1",
            ),
            (
                RebaseTarget::Storage(name()),
                "ostree-unverified-image:containers-storage:quay.example/os@sha256:1",
            ),
            (
                RebaseTarget::OciDirectory("/m/os".into()),
                "ostree-unverified-image:oci:/m/os",
            ),
            (
                RebaseTarget::OciArchive("/m/os.tar".into()),
                "ostree-unverified-image:oci-archive:/m/os.tar",
            ),
            (
                RebaseTarget::Reference("ostree-image-signed:docker://q/os:1".into()),
                "ostree-image-signed:docker://q/os:1",
            ),
        ] {
            assert_eq!(
                line(&rebase_to(&target, &new)),
                format!("rpm-ostree rebase {args}")
            );
        }
        let old = rebase_to(&RebaseTarget::Registry(name()), &version((2023, 9)));
        assert_eq!(old.args[1], "--experimental");
    }

    #[test]
    fn only_names_leave_an_origin_that_the_daemon_accepts() {
        let commit = RebaseTarget::Commit {
            checksum: "ab".into(),
            image: IMAGE.into(),
        };
        for target in [
            RebaseTarget::Registry(IMAGE.into()),
            RebaseTarget::Storage(IMAGE.into()),
            commit.clone(),
        ] {
            assert_eq!(target.image_name(), IMAGE);
        }
        assert_ne!(
            RebaseTarget::OciDirectory("/m/os".into()).image_name(),
            IMAGE
        );
        let args = rebase_to(&commit, &Version::default()).args;
        assert_eq!(
            args[1],
            "--custom-origin-url=pivot://quay.example/os@sha256:1"
        );
        assert_eq!(args.last().unwrap(), "ab");
    }

    #[test]
    fn kernel_arguments_are_one_command_or_none() {
        let changes = daemon_sequence(&Kargs::parse("a"), &Kargs::parse("b c=\"d e\""));
        assert_eq!(
            change_kargs(&changes).unwrap().args,
            [
                "kargs",
                "--delete-if-present=a",
                "--append=b",
                "--append=c=\"d e\""
            ]
        );
        assert_eq!(change_kargs(&[]), None);
    }

    #[test]
    fn packages_come_in_the_daemons_order() {
        assert_eq!(
            line(&layer_packages(&["usbguard", "kata-containers"], &["sysstat"]).unwrap()),
            "rpm-ostree install kata-containers usbguard --uninstall sysstat"
        );
        assert_eq!(
            line(&layer_packages(&[], &["usbguard", "sysstat"]).unwrap()),
            "rpm-ostree uninstall sysstat usbguard"
        );
        assert_eq!(layer_packages(&[], &[]), None);
        assert_eq!(
            line(&override_reset(&["kernel"], &["kernel-rt-core"])),
            "rpm-ostree override reset kernel --uninstall kernel-rt-core"
        );
    }

    #[test]
    fn deployments_are_pinned_by_their_place_in_the_list() {
        assert_eq!(line(&pin_deployment(1)), "ostree admin pin 1");
        assert_eq!(line(&unpin_deployment(2)), "ostree admin pin --unpin 2");
    }

    #[test]
    fn every_command_has_a_deadline_of_minutes_at_least() {
        let all = [
            status_json(),
            cancel_transaction(),
            swap_rollback(),
            drop_pending(),
        ];
        assert!(all.iter().all(|line| line.timeout >= QUESTION));
    }
}
