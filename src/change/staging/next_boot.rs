//! Determines what the next boot enters, and who arranged that. Every command uses this module.

use anyhow::Result;

use super::awaited::{Awaited, Entered};
use super::deployments::drop_command;
use crate::base::kargs::Kargs;
use crate::change::plan::staged::name_stager;
use crate::host::root::Root;
use crate::node::command::CommandRunner;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::engine::Engine;
use crate::node::staged::StagedEvidence;
use crate::node::system::SystemFacts;

/// The next boot after a clean shutdown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextBoot {
    /// What it enters.
    pub enters: Entered,
    /// Why it enters that.
    pub way: BootWay,
    /// Who staged or queued the first deployment in the list, which may be locked; `None` if that is the running one.
    pub by: Option<Author>,
    /// Kernel arguments of this boot that it does not have.
    pub without: Vec<String>,
    /// Kernel arguments that it has in addition to those of this boot.
    pub with: Vec<String>,
    /// The command after which it enters the running deployment; `None` if it already does.
    pub stay: Option<String>,
}

/// Why the next boot enters its deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootWay {
    /// It is the running one.
    Stays,
    /// It is staged: a clean shutdown writes it.
    Staged,
    /// Its boot entry is already first, after a rollback or as the default: any boot enters it.
    Queued,
}

impl BootWay {
    /// Returns its word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Stays => "stays",
            Self::Staged => "staged",
            Self::Queued => "queued",
        }
    }
}

/// Who staged or queued a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Author {
    /// A run of this program.
    Ours,
    /// Possibly a run of this program that was interrupted while it staged the same image.
    PerhapsOurs,
    /// Another program or an admin, in words, as far as known.
    Others(String),
    /// Unknown: queueing a deployment leaves no trace.
    Unknown,
}

impl Author {
    /// Returns the author in words; `None` if it is, or may be, a run of this program.
    pub fn foreign_author(&self) -> Option<&str> {
        match self {
            Self::Ours | Self::PerhapsOurs => None,
            Self::Others(who) => Some(who),
            Self::Unknown => Some(QUEUED_BY),
        }
    }
}

const QUEUED_BY: &str = "an unknown program, by a rollback or as the default";

/// Determines what the next boot enters; `None` if no deployment is listed. `stager` names who staged the staged deployment.
pub fn find_next_boot(
    facts: &SystemFacts,
    awaited: Option<&Awaited>,
    stager: impl FnOnce() -> String,
) -> Option<NextBoot> {
    let all = &facts.deployments;
    let (first, entered) = (all.next_boot()?, all.entered_next()?);
    let way = match entered {
        _ if entered.booted => BootWay::Stays,
        _ if entered.staged => BootWay::Staged,
        _ => BootWay::Queued,
    };
    let by = match first {
        _ if first.booted => None,
        _ if awaited.is_some_and(|awaited| awaited.was_made_for(first)) => {
            let is_named = awaited.is_some_and(|awaited| awaited.staged.is_some());
            Some(if is_named {
                Author::Ours
            } else {
                Author::PerhapsOurs
            })
        }
        _ if first.staged => Some(Author::Others(stager())),
        _ => Some(Author::Unknown),
    };
    let arguments = arguments_of(facts, first, entered);
    let differs =
        |a: &Kargs, b: &Kargs| a.missing_from(b).iter().map(ToString::to_string).collect();
    let (without, with) = match arguments.filter(|_| way != BootWay::Stays) {
        Some(next) => (
            differs(&facts.booted_arguments, next),
            differs(next, &facts.booted_arguments),
        ),
        None => Default::default(),
    };
    Some(NextBoot {
        enters: Entered {
            deployment: Some(entered.name()),
            image: Some(entered.image()),
            kernel_arguments: arguments.map(|arguments| arguments.tokens().to_vec()),
        },
        way,
        by,
        without,
        with,
        stay: stay_command(facts, way),
    })
}

/// Returns the arguments of the entered deployment. The engine only reports those of the first deployment. An empty command
/// line means unknown, because bootc reports none.
fn arguments_of<'a>(
    facts: &'a SystemFacts,
    first: &Deployment,
    entered: &Deployment,
) -> Option<&'a Kargs> {
    let arguments = match entered {
        _ if entered.index == first.index => Some(&facts.arguments),
        _ if entered.booted => Some(&facts.booted_arguments),
        _ => None,
    };
    arguments.filter(|arguments| !arguments.is_empty())
}

/// Returns the command after which the next boot enters the running deployment.
fn stay_command(facts: &SystemFacts, way: BootWay) -> Option<String> {
    let all = &facts.deployments;
    let index = all.booted()?.index;
    match (way, facts.engine) {
        (BootWay::Stays, _) => None,
        (BootWay::Staged, engine) => drop_command(engine, all)
            .map(|line| format!("{} {}", line.program, line.args.join(" "))),
        (BootWay::Queued, Engine::RpmOstree) => Some("rpm-ostree rollback".to_owned()),
        (BootWay::Queued, Engine::Bootc) => Some(format!("ostree admin set-default {index}")),
    }
}

/// Determines what the next boot of a running node enters.
///
/// # Errors
/// A file of the node cannot be read.
pub fn observe_next_boot(
    root: &Root,
    runner: &dyn CommandRunner,
    facts: &SystemFacts,
    awaited: Option<&Awaited>,
) -> Result<Option<NextBoot>> {
    let evidence = match facts.deployments.staged() {
        Some(staged) if !awaited.is_some_and(|awaited| awaited.was_made_for(staged)) => {
            StagedEvidence::observe(root, runner)?.unwrap_or_default()
        }
        _ => StagedEvidence::default(),
    };
    let stager = || name_stager(&evidence, Some(facts));
    Ok(find_next_boot(facts, awaited, stager))
}

impl NextBoot {
    /// Returns who chose it, in words, if it enters a deployment that is not running and that no run of this program expects.
    pub fn foreign_author(&self) -> Option<&str> {
        match self.way {
            BootWay::Stays => None,
            _ => self.by.as_ref().and_then(Author::foreign_author),
        }
    }

    /// Returns the word for the author in documents.
    pub fn author(&self) -> Option<&'static str> {
        self.by.as_ref().map(|by| match by {
            Author::Ours => "mco-rescue",
            Author::PerhapsOurs | Author::Unknown => "unknown",
            Author::Others(_) => "others",
        })
    }

    /// Describes the changes of kernel arguments; empty if there are none.
    pub fn arguments_words(&self) -> String {
        let list = |word: &str, all: &[String]| {
            if all.is_empty() {
                None
            } else {
                Some(format!("{word} {}", all.join(" ")))
            }
        };
        let all = [list("without", &self.without), list("with", &self.with)];
        let all: Vec<String> = all.into_iter().flatten().collect();
        all.join(" and ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::plan::os_tests::{booted, deployment, facts, staged};

    const NEW: &str = "quay.example/os@sha256:bbbb";

    fn of(all: Vec<Deployment>, arguments: &str) -> NextBoot {
        let stager = || "somebody".to_owned();
        find_next_boot(&facts(all, arguments, "rw a=1"), None, stager).unwrap()
    }

    #[test]
    fn each_way_has_its_author_and_the_command_that_undoes_it() {
        let kept = || deployment(NEW, "k");
        let mut locked = staged(NEW);
        locked.finalization_locked = true;
        let rows = [
            (vec![booted("x"), kept()], BootWay::Stays, "", None),
            (
                vec![staged(NEW), booted("x")],
                BootWay::Staged,
                "somebody",
                Some("rpm-ostree cleanup -p"),
            ),
            // rpm-ostree's clean-up would also remove the queued one.
            (
                vec![staged(NEW), kept(), booted("x")],
                BootWay::Staged,
                "somebody",
                Some("ostree admin undeploy 0"),
            ),
            (
                vec![kept(), booted("x")],
                BootWay::Queued,
                QUEUED_BY,
                Some("rpm-ostree rollback"),
            ),
            (vec![locked, booted("x")], BootWay::Stays, "", None),
        ];
        for (all, way, foreign, stay) in rows {
            let next = of(all, "rw a=1");
            assert_eq!(next.way, way, "{next:?}");
            assert_eq!(
                next.foreign_author().unwrap_or_default(),
                foreign,
                "{next:?}"
            );
            assert_eq!(next.stay.as_deref(), stay, "{next:?}");
        }
    }

    #[test]
    fn kernel_arguments_that_come_and_go_are_named() {
        let next = of(vec![staged("x"), booted("x")], "rw b=2");
        assert_eq!(next.arguments_words(), "without a=1 and with b=2");
        // Unknown arguments are not a difference.
        let next = of(vec![staged("x"), booted("x")], "");
        assert_eq!(next.arguments_words(), "");
        assert_eq!(next.enters.kernel_arguments, None);
    }
}
