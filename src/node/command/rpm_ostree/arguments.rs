//! Command lines of rpm-ostree, and of ostree for what rpm-ostree cannot do (docs/develop/agreement.md: Operating system, Packages).
//!
//! Each has a time limit. When it passes, the client is killed but the daemon goes on: run `cancel`, then `status` until it
//! reports no transaction.

use std::time::Duration;

use crate::base::kargs::KargsChange;
use crate::host::sys::privileges::Capability;
use crate::node::command::CommandLine;

/// Time limit of queries, which may have to start the daemon.
const QUESTION: Duration = Duration::from_secs(60);
/// Time limit of changes without new content: staging a deployment takes tens of seconds on a slow disk.
const SMALL: Duration = Duration::from_secs(600);
/// Time limit of importing images and unpacking packages.
const LARGE: Duration = Duration::from_secs(3600);

/// The answer of `rpm-ostree --version`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RpmOstreeVersion {
    /// Year and release; `None` if the version has another form.
    pub number: Option<(u32, u32)>,
    /// Features such as `container`, without which no image can be deployed.
    pub features: Vec<String>,
}

impl RpmOstreeVersion {
    /// Parses the output, which is YAML of a fixed form. Missing fields stay empty.
    pub fn parse_answer(stdout: &str) -> Self {
        // The first document is rpm-ostree's; `ostree --version` has the same form.
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

    /// Returns true if rpm-ostree can deploy images. If not, the daemon updates through a container (docs/develop/agreement.md:
    /// Operating system).
    pub fn has_containers(&self) -> bool {
        self.features.iter().any(|feature| feature == "container")
    }

    /// Returns true if a rebase to an image needs `--experimental`. 2024.7 is the oldest version seen that does not need it.
    fn wants_experimental(&self) -> bool {
        self.number.is_none_or(|number| number < (2024, 7))
    }
}

/// The target of a rebase, by where its bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RebaseTarget {
    /// The registry in the image's name, or its mirror in `registries.conf`. The origin keeps the name.
    Registry(String),
    /// `containers-storage`, under exactly this name. The origin keeps the name.
    Storage(String),
    /// A commit in the local repository, with the origin in the daemon's older form.
    Commit {
        /// Checksum of the commit.
        checksum: String,
        /// The image that the commit was made from, in the form that the daemon compares.
        image: String,
    },
}

impl RebaseTarget {
    /// Returns the reference in the form that rpm-ostree accepts.
    pub fn as_reference(&self) -> String {
        match self {
            Self::Registry(image) => format!("ostree-unverified-registry:{image}"),
            Self::Storage(image) => format!("ostree-unverified-image:containers-storage:{image}"),
            Self::Commit { checksum, .. } => checksum.clone(),
        }
    }
}

/// Returns the command line of `rpm-ostree status --json`. Retry for some seconds if it fails: the daemon may be starting or
/// stopping.
pub fn status_json() -> CommandLine {
    rpm_ostree_line(QUESTION, ["status", "--json"])
}

/// Returns the command line of `rpm-ostree status`. Only this text names the initiator of a transaction and the last failed
/// finalization.
pub fn status_text() -> CommandLine {
    rpm_ostree_line(QUESTION, ["status"])
}

/// Returns the command line of `rpm-ostree --version`.
pub fn show_version() -> CommandLine {
    rpm_ostree_line(QUESTION, ["--version"])
}

/// Returns the command line that prints the kernel arguments of the next boot's deployment.
pub fn show_kargs() -> CommandLine {
    rpm_ostree_line(QUESTION, ["kargs"])
}

/// Returns the command line that stages a deployment with other kernel arguments; `None` if there are no changes.
pub fn change_kargs(changes: &[KargsChange]) -> Option<CommandLine> {
    let options = changes.iter().map(KargsChange::command_option);
    let args = std::iter::once("kargs".to_owned()).chain(options);
    (!changes.is_empty()).then(|| rpm_ostree_line(SMALL, args))
}

/// Returns the command line that stages a deployment of another image or commit.
pub fn rebase_to(target: &RebaseTarget, version: &RpmOstreeVersion) -> CommandLine {
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

/// Returns the command line that drops the staged deployment, whichever program staged it.
pub fn drop_pending() -> CommandLine {
    rpm_ostree_line(SMALL, ["cleanup", "-p"])
}

/// Returns the command line that makes the rollback deployment the default at once; refused while a deployment is staged.
pub fn swap_rollback() -> CommandLine {
    rpm_ostree_line(SMALL, ["rollback"])
}

/// Returns the command line that cancels the running transaction; it succeeds if there is none.
pub fn cancel_transaction() -> CommandLine {
    rpm_ostree_line(QUESTION, ["cancel"])
}

/// Returns the command line that removes packages of the image and installs others instead.
pub fn override_remove(packages: &[&str], install: &[&str]) -> CommandLine {
    let fixed = ["override", "remove"].map(str::to_owned);
    let removed = packages.iter().map(|name| (*name).to_owned());
    let args = fixed.into_iter().chain(removed);
    rpm_ostree_line(LARGE, args.chain(repeat_option("--install", install)))
}

/// Returns the command line that restores packages of the image and removes others.
pub fn override_reset(packages: &[&str], uninstall: &[&str]) -> CommandLine {
    let fixed = ["override", "reset"].map(str::to_owned);
    let given_back = packages.iter().map(|name| (*name).to_owned());
    let args = fixed.into_iter().chain(given_back);
    rpm_ostree_line(LARGE, args.chain(repeat_option("--uninstall", uninstall)))
}

/// Returns the command line of a planned change of packages.
pub fn change_packages(command: &[String]) -> CommandLine {
    rpm_ostree_line(LARGE, command.iter().cloned())
}

/// Returns the command line that adds and removes layered packages; `None` if there are no changes.
///
/// The daemon runs `update` instead, which first asks the registry for the image and fails without one, even if the image is
/// named by digest. The order of the packages is the same.
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

/// Returns the command line that pins a deployment, by its index in the list, so that it is not cleaned up.
pub fn pin_deployment(index: usize) -> CommandLine {
    ostree_line(vec!["admin".into(), "pin".into(), index.to_string()])
}

/// Returns the command line that unpins a deployment.
pub fn unpin_deployment(index: usize) -> CommandLine {
    let fixed = ["admin", "pin", "--unpin"].map(str::to_owned);
    ostree_line(fixed.into_iter().chain([index.to_string()]).collect())
}

/// Returns the query for the log of the previous shutdown's finalization, one JSON object per line. `soft` is true if that
/// shutdown was part of a soft reboot.
pub fn finalize_journal(soft: bool) -> CommandLine {
    let boot = if soft { "0" } else { "-1" };
    journal_query(&["-b", boot, "-u", "ostree-finalize-staged.service"])
}

/// Returns the query for this boot's stagings: transactions of rpm-ostreed, and bootc's message before it stages. One JSON
/// object per line.
pub fn staging_journal() -> CommandLine {
    journal_query(&[
        "-b",
        "_SYSTEMD_UNIT=rpm-ostreed.service",
        "+",
        &format!("{BOOTC_ID}={BOOTC_STAGES}"),
    ])
}

/// The journal field with the ids of bootc's messages; its logger prefixes every name with this letter.
pub const BOOTC_ID: &str = "F_MESSAGE_ID";
/// The id of the message with which bootc announces the image that it is about to stage.
pub const BOOTC_STAGES: &str = "8f7a2b1c3d4e5f6a7b8c9d0e1f2a3b4c";

/// Returns the command line that makes the deployment at this index the next boot's.
pub fn set_default(index: usize) -> CommandLine {
    ostree_line(vec![
        "admin".to_owned(),
        "set-default".to_owned(),
        index.to_string(),
    ])
}

/// Returns the command line that removes the deployment at this index. It is used for a staged one, because bootc has no
/// command for that.
pub fn undeploy_index(index: usize) -> CommandLine {
    ostree_line(vec![
        "admin".to_owned(),
        "undeploy".to_owned(),
        index.to_string(),
    ])
}

fn journal_query(which: &[&str]) -> CommandLine {
    let output = ["--no-pager", "-o", "json", "-n", "1000"];
    CommandLine::new("journalctl", which.iter().chain(&output), QUESTION)
}

/// Repeats an option for each name, as two separate arguments, like the daemon.
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
        // The daemon does the work; the client only sends a request as root.
        capabilities: &[],
    }
}

/// Returns a command line of ostree. Unlike the client of rpm-ostree, it does the work itself: it makes the sysroot writable in
/// a mount namespace of its own. To find out whether it already runs in one, it reads the namespace of process 1. Files that it
/// removes may be immutable.
fn ostree_line(args: Vec<String>) -> CommandLine {
    CommandLine::new("ostree", args, SMALL).with_capabilities(&[
        Capability::CAP_SYS_ADMIN,
        Capability::CAP_SYS_PTRACE,
        Capability::CAP_LINUX_IMMUTABLE,
        Capability::CAP_CHOWN,
        Capability::CAP_FOWNER,
        Capability::CAP_DAC_OVERRIDE,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGE: &str = "quay.example/os@sha256:1";

    fn line(command: &CommandLine) -> String {
        format!("{} {}", command.program, command.args.join(" "))
    }

    fn version(number: (u32, u32)) -> RpmOstreeVersion {
        RpmOstreeVersion {
            number: Some(number),
            features: vec!["container".to_owned()],
        }
    }

    #[test]
    fn the_version_tells_what_it_can_do() {
        let text =
            "rpm-ostree:\n Version: '2024.7'\n Features:\n  - rust\n  - compose\n  - container\n";
        let read = RpmOstreeVersion::parse_answer(text);
        assert_eq!(read.number, Some((2024, 7)));
        assert!(read.has_containers() && !read.wants_experimental());
        assert!(
            !RpmOstreeVersion::parse_answer("rpm-ostree:\n Version: '2021.1'\n").has_containers()
        );
        assert!(RpmOstreeVersion::parse_answer("something else").wants_experimental());
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
        let args = rebase_to(&commit, &RpmOstreeVersion::default()).args;
        assert_eq!(
            args[1],
            "--custom-origin-url=pivot://quay.example/os@sha256:1"
        );
        assert_eq!(args.last().unwrap(), "ab");
    }

    #[test]
    fn kernel_arguments_are_one_command_or_none() {
        let changes = [
            KargsChange::Delete("a".to_owned()),
            KargsChange::Append("b".to_owned()),
            KargsChange::Append("c=\"d e\"".to_owned()),
        ];
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
