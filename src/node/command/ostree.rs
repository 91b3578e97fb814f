//! Files of ostree below `/run/ostree`, which nothing here writes; the output of `ostree admin status`, for the places of deployments, and `ostree admin deploy`, which stages a commit of
//! the node if rpm-ostree is missing: bootc has no command for kernel arguments or for an image that was kept.

use std::time::Duration;

use super::rpm_ostree::status::{Deployment, Deployments};
use super::{CommandLine, bootc};
use crate::base::invocation::shell_word;
use crate::base::kargs::KargsChange;
use crate::base::order::StableOrder;
use crate::formats::gvariant::Dictionary;

/// Returns the command line of `ostree admin status`.
pub fn list_deployments() -> CommandLine {
    query_line(&["admin", "status"])
}

/// Returns the command line of `ostree admin deploy --help`, which lists the options of this version.
pub fn deploy_help() -> CommandLine {
    query_line(&["admin", "deploy", "--help"])
}

fn query_line(args: &[&str]) -> CommandLine {
    CommandLine::new("ostree", args, Duration::from_secs(60))
}

/// The options of [`stage_commit`].
const DEPLOY_OPTIONS: [&str; 5] = [
    "--stage",
    "--os",
    "--origin-file",
    "--karg-append",
    "--karg-delete",
];

/// Returns the options of [`stage_commit`] that the output of `ostree admin deploy --help` does not list.
pub fn missing_options(help: &str) -> Vec<&'static str> {
    let is_known = |option: &str| {
        let mut words = help.split_whitespace();
        words.any(|word| word.split('=').next() == Some(option))
    };
    let all = DEPLOY_OPTIONS.into_iter();
    all.filter(|option| !is_known(option)).collect()
}

/// Returns the command line that stages a commit of the node and replaces the staged deployment. ostree starts from the kernel
/// arguments in the boot entry of the running deployment, appends first and then deletes.
pub fn stage_commit(
    stateroot: &str,
    origin: &str,
    changes: &[KargsChange],
    commit: &str,
) -> CommandLine {
    let options = changes.iter().map(|change| match change {
        KargsChange::Append(token) => format!("--karg-append={token}"),
        KargsChange::Delete(token) => format!("--karg-delete={token}"),
    });
    let fixed = ["ostree", "admin", "deploy", "--stage"].map(str::to_owned);
    let places = [
        format!("--os={stateroot}"),
        format!("--origin-file={origin}"),
    ];
    let all: Vec<String> = fixed
        .into_iter()
        .chain(places)
        .chain(options)
        .chain([commit.to_owned()])
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    bootc::in_unit(bootc::SMALL, &all)
}

/// Returns the command line that copies commits from another repository into the system's repository. Each object is hashed.
/// ostree makes `/sysroot` writable for itself.
pub fn pull_commits(from: &str, commits: &[String]) -> CommandLine {
    let fixed = [
        "ostree",
        "pull-local",
        "--untrusted",
        "--disable-verify-bindings",
        from,
    ];
    let commits = commits.iter().map(String::as_str);
    let all: Vec<&str> = fixed.into_iter().chain(commits).collect();
    bootc::in_unit(bootc::LARGE, &all)
}

/// Returns the command line that lets refs of the system's repository name commits, in this order.
pub fn set_refs(refs: &[(String, String)]) -> CommandLine {
    // `ostree refs` sets one at a time, and each unit takes a while.
    let set = |(name, commit): &(String, String)| {
        let create = shell_word(&format!("--create={name}"));
        format!("ostree refs --force {create} {}", shell_word(commit))
    };
    let script: Vec<String> = refs.iter().map(set).collect();
    bootc::in_unit(bootc::SMALL, &["sh", "-c", &script.join(" && ")])
}

/// Returns `CHECKSUM.SERIAL` of each deployment in the output of `ostree admin status`, in the order of the boot menu.
pub fn names_in_order(status: &str) -> Vec<String> {
    let is_name = |word: &&str| {
        word.split_once('.').is_some_and(|(checksum, serial)| {
            checksum.len() == 64
                && checksum.bytes().all(|byte| byte.is_ascii_hexdigit())
                && serial.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let name = |line: &str| {
        let mut words = line.trim_start_matches('*').split_whitespace();
        words.nth(1).filter(is_name).map(str::to_owned)
    };
    status.lines().filter_map(name).collect()
}

/// Parses the output of `ostree admin status`: the deployments in the order of the boot menu, without their images. The command
/// needs neither the lock of the sysroot nor a capability.
pub fn read_listed(status: &str) -> Vec<Deployment> {
    let mut all: Vec<Deployment> = Vec::new();
    for line in status.lines() {
        if let Some(one) = read_name_line(line) {
            let index = all.len();
            all.push(Deployment { index, ..one });
        } else if let Some(one) = all.last_mut() {
            match line.trim().split_once(": ") {
                Some(("Version", version)) => one.version = Some(version.to_owned()),
                Some(("Unlocked", how)) => one.unlocked = how.to_owned(),
                Some(("Pinned", _)) => one.pinned = true,
                Some(("origin refspec", refspec)) => one.refspec = Some(refspec.to_owned()),
                _ => {}
            }
        }
    }
    all
}

/// Parses a line such as `* rhcos CHECKSUM.0 (staged)`.
fn read_name_line(line: &str) -> Option<Deployment> {
    let name = names_in_order(line).pop()?;
    let (checksum, serial) = name.split_once('.')?;
    let osname = line.trim_start_matches('*').split_whitespace().next()?;
    let is = |word: &str| line.contains(word);
    let finalization_locked = is("(finalization locked)");
    Some(Deployment {
        osname: osname.to_owned(),
        checksum: checksum.to_owned(),
        serial: serial.parse().ok()?,
        booted: line.starts_with('*'),
        staged: is("(staged)") || finalization_locked,
        finalization_locked,
        pinned: is("(pinned)"),
        ..Deployment::default()
    })
}

/// Sorts deployments into the order of these names. Their order is kept if any deployment is missing from the names.
pub fn in_order(all: &mut Deployments, names: &[String]) {
    let place = |name: &str| names.iter().position(|other| other == name);
    if all.all.iter().any(|one| place(&one.name()).is_none()) {
        return;
    }
    all.all.order_by_key(|one| place(&one.name()));
    for one in &mut all.all {
        one.index = place(&one.name()).unwrap_or(one.index);
    }
}

/// The content of `/run/ostree/staged-deployment`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StagedFile {
    /// `CHECKSUM.SERIAL` of the deployment that is written at a clean shutdown.
    pub name: String,
    /// Its stateroot.
    pub stateroot: String,
    /// It is not written at shutdown: it is only a download, or waits for `finalize-deployment`.
    pub locked: bool,
    /// Its kernel arguments, as one line or a list of words, if the file has them.
    pub arguments: Option<String>,
}

impl StagedFile {
    /// Parses the file; `None` if it names no deployment.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let file = Dictionary(bytes);
        let target = file.dictionary(b"target")?;
        Some(Self {
            name: target.text(b"name")?,
            stateroot: target.text(b"osname").unwrap_or_default(),
            locked: file.flag(b"locked").unwrap_or_default(),
            arguments: file.list(b"kargs").map(|words| words.join(" ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by `ostree-prepare-root` 2025.2 as `/run/ostree-booted`.
    const WRITTEN: &[u8] = b"backing-root-device-inode\0\0\0\0\0\0\0\
        \x02\x07\0\0\0\0\0\0\x1b\0\0\0\0\0\0\0\0(tt)\x1a\0\0\
        root.transient\0\0\0\0b\x0f\0\0\0\0sysroot-ro\0\0\0\0\0\0\x01\0b\x0b6Ld";

    /// Returns one entry, padded as GLib pads it.
    fn entry(key: &str, value: &[u8], kind: &str) -> Vec<u8> {
        let mut bytes = [key.as_bytes(), b"\0"].concat();
        let end = bytes.len();
        bytes.resize(end.next_multiple_of(8), 0);
        bytes.extend(value);
        bytes.push(0);
        bytes.extend(kind.as_bytes());
        let width = if bytes.len() < 0xff { 1 } else { 2 };
        bytes.extend(&end.to_le_bytes()[..width]);
        bytes
    }

    fn array(all: &[Vec<u8>], alignment: usize) -> Vec<u8> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for one in all {
            bytes.resize(usize::next_multiple_of(bytes.len(), alignment), 0);
            bytes.extend(one);
            ends.push(bytes.len());
        }
        let width = if bytes.len() + ends.len() <= 0xff {
            1
        } else {
            2
        };
        for end in ends {
            bytes.extend(&end.to_le_bytes()[..width]);
        }
        bytes
    }

    fn text(value: &str) -> Vec<u8> {
        [value.as_bytes(), b"\0"].concat()
    }

    fn staged(more: &[Vec<u8>]) -> Vec<u8> {
        let name = format!("{}.1", "5e".repeat(32));
        let target = array(
            &[
                entry("name", &text(&name), "s"),
                entry("osname", &text("rhcos"), "s"),
            ],
            8,
        );
        let all = [&[entry("target", &target, "a{sv}")], more].concat();
        array(&all, 8)
    }

    #[test]
    fn a_file_of_ostree_itself_is_read() {
        let file = Dictionary(WRITTEN);
        assert_eq!(file.flag(b"root.transient"), Some(false));
        assert_eq!(file.flag(b"sysroot-ro"), Some(true));
        assert_eq!(file.flag(b"other"), None);
        assert_eq!(file.text(b"sysroot-ro"), None, "of another type");
        assert_eq!(
            file.value(b"backing-root-device-inode", b"(tt)")
                .unwrap()
                .len(),
            16
        );
    }

    #[test]
    fn the_staged_deployment_is_named_with_its_lock_and_its_arguments() {
        let kargs = array(&[text("rw"), text("nosmt"), text("root=LABEL=root")], 1);
        let more = [entry("kargs", &kargs, "as"), entry("locked", &[1], "b")];
        let read = StagedFile::parse(&staged(&more)).unwrap();
        assert_eq!(read.name, format!("{}.1", "5e".repeat(32)));
        assert_eq!(read.stateroot, "rhcos");
        assert!(read.locked);
        assert_eq!(read.arguments.as_deref(), Some("rw nosmt root=LABEL=root"));
        let open = StagedFile::parse(&staged(&[entry("locked", &[0], "b")])).unwrap();
        assert_eq!((open.locked, open.arguments), (false, None));
        // Longer than one-byte offsets can reach.
        let long = array(&[text(&"x".repeat(400))], 1);
        let long = StagedFile::parse(&staged(&[entry("kargs", &long, "as")])).unwrap();
        assert_eq!(long.arguments.map(|line| line.len()), Some(400));
    }

    #[test]
    fn places_are_those_of_ostree() {
        let name = |letter: &str, serial: u64| Deployment {
            checksum: letter.repeat(64),
            serial,
            ..Deployment::default()
        };
        // Printed by libostree 2025.2.
        let text = format!(
            "  rhcos {}.0 (staged)\n    origin: <unknown origin type>\n* rhcos {}.1\n    Version: 9\n  other {}.0 (pinned)\n",
            "b".repeat(64),
            "a".repeat(64),
            "d".repeat(64)
        );
        let names = names_in_order(&text);
        assert_eq!(names.len(), 3);
        let mut all = Deployments {
            all: vec![name("d", 0), name("a", 1), name("b", 0)],
            ..Deployments::default()
        };
        in_order(&mut all, &names);
        let found: Vec<(usize, &str)> = all
            .all
            .iter()
            .map(|one| (one.index, &one.checksum[..1]))
            .collect();
        assert_eq!(found, [(0, "b"), (1, "a"), (2, "d")]);
        let before = all.clone();
        in_order(&mut all, &names[1..]);
        assert_eq!(all, before, "one is not in the list");
    }

    #[test]
    fn deployments_are_read_without_bootc() {
        // Printed by libostree 2026.4.
        let text = format!(
            "  rhcos {}.1 (finalization locked)\n    Version: 9.8\n    origin: <unknown origin type>\n* rhcos {}.0\n    Unlocked: \
             development\n    Pinned: yes\n    origin: <unknown origin type>\n  other {}.2 (rollback)\n    origin refspec: a:b\n",
            "b".repeat(64),
            "a".repeat(64),
            "d".repeat(64)
        );
        let all = read_listed(&text);
        let row = |one: &Deployment| {
            let flags = (one.booted, one.staged, one.finalization_locked, one.pinned);
            (one.index, one.osname.clone(), one.serial, flags)
        };
        let rhcos = || "rhcos".to_owned();
        assert_eq!(
            all.iter().map(row).collect::<Vec<_>>(),
            [
                (0, rhcos(), 1, (false, true, true, false)),
                (1, rhcos(), 0, (true, false, false, true)),
                (2, "other".to_owned(), 2, (false, false, false, false)),
            ]
        );
        assert_eq!(all[0].version.as_deref(), Some("9.8"));
        assert_eq!(all[1].unlocked, "development");
        assert_eq!(all[2].refspec.as_deref(), Some("a:b"));
        assert!(read_listed("error: x\n").is_empty());
    }

    #[test]
    fn a_damaged_file_names_nothing_and_breaks_nothing() {
        assert_eq!(StagedFile::parse(b""), None);
        assert_eq!(StagedFile::parse(b"staged"), None);
        let whole = staged(&[entry("locked", &[1], "b")]);
        for length in 0..whole.len() {
            let cut = StagedFile::parse(&whole[..length]);
            assert!(cut.is_none_or(|cut| !cut.name.is_empty()), "{length}");
        }
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 0xff;
            let _ = StagedFile::parse(&other);
        }
    }
}
