//! What comes after the files on a running node: whose policies decide, what is done, and what is left to do.

use anyhow::{Context, Result};

use super::session::Session;
use super::work::now;
use crate::daemon::default_policies;
use crate::daemon::policies::{self, Brought, ClusterPolicies, Found, Overrides};
use crate::document::{FORCE_FILE, MachineConfig};
use crate::node::Recorded;
use crate::notice::Notice;
use crate::paths;
use crate::plan::{self, Options, Plan, Rules};
use crate::root::{Root, RootPath};
use crate::time::utc;

/// Decides what comes after the files, where a running system is there to be told.
///
/// # Errors
/// A file with policies that cannot be used, or what is kept cannot be read.
pub fn look(
    session: &Session,
    plan: &mut Plan,
    options: Options,
    file: Option<&str>,
) -> Result<()> {
    // A file that was named is read in any case: a mistake in it is better told now.
    let cluster = session.cluster(file)?;
    if !session.node.host.live || plan.is_empty() {
        return Ok(());
    }
    if plan.os.needs_reboot() {
        plan.notices.push(not_drained());
        return Ok(());
    }
    let forced = RootPath::parse(FORCE_FILE).is_ok_and(|path| {
        let there = session.root.exists(&path);
        there.unwrap_or_default()
    });
    let rules = Rules {
        policies: &cluster.policies,
        whose: &cluster.whose,
        forced,
        files_only: options.files_only,
    };
    let old = stepped_from(session);
    let new = &session.chosen.config;
    // What was staged for the config before never ran: only its files are changed.
    let same_os = |old: &MachineConfig| MachineConfig {
        os_image_url: new.os_image_url.clone(),
        kernel_arguments: new.kernel_arguments.clone(),
        extensions: new.extensions.clone(),
        kernel_type: new.kernel_type,
        ..old.clone()
    };
    let never_ran = old.filter(|_| plan.os.drops()).map(same_os);
    plan.after = Some(plan::after(plan, never_ran.as_ref().or(old), new, rules));
    plan.notices.extend(refused_record(session));
    Ok(())
}

/// The config that the daemon takes the node to be in. A record with an empty Ignition part has no files for it, so that
/// all files of another config are new.
fn stepped_from(session: &Session) -> Option<&MachineConfig> {
    if session.desired.bare {
        return None;
    }
    let new = &session.chosen.config;
    let recorded = session.records.recorded();
    let emptied = recorded.filter(|record| record.emptied && record.name != new.name);
    emptied.or_else(|| session.records.baseline().config())
}

/// A record that is refused here may well be one to the daemon.
fn refused_record(session: &Session) -> Option<Notice> {
    let records = &session.records;
    let refused = matches!(records.current_config, Recorded::Broken(_));
    let read = refused && records.unreadable.is_none() && !session.desired.bare;
    read.then(|| Notice {
        subject: format!("/{}", paths::CURRENT_CONFIG),
        message: "is refused here and read by the daemon, so what its update would do is not known: reckon with a drain \
                  and a reboot"
            .to_owned(),
    })
}

/// Whose policies they are where nobody's are known.
pub const DEFAULTS: &str =
    "the operator's default policies; those of the cluster are not known here";

fn not_drained() -> Notice {
    let message = "the daemon drains the node before it changes the operating system; this is not done here. Drain it \
                   while the API answers, or see --stop-workloads";
    Notice {
        subject: "drain".to_owned(),
        message: message.to_owned(),
    }
}

/// What counts of the cluster's MachineConfiguration.
#[derive(Debug)]
pub struct Cluster {
    /// The disruption policies.
    pub policies: ClusterPolicies,
    /// Where the policies come from, in words.
    pub whose: String,
    /// Changes of storage sections that the daemon lets pass; nothing where that is not known.
    pub overrides: Option<Overrides>,
}

/// Reads what counts: the file's, else what was fetched, else the operator's default policies.
///
/// # Errors
/// A file that cannot be used, or what is kept cannot be read.
pub fn cluster(root: &Root, file: Option<&str>) -> Result<Cluster> {
    file.map_or_else(|| known(root), given)
}

fn given(file: &str) -> Result<Cluster> {
    let brought = in_file(file)?;
    let whose = match brought.found {
        Found::Result => format!("the cluster's policies, from {file}"),
        Found::Asked => format!(
            "the operator's defaults with what {file} asks for; the operator's own result is not in it"
        ),
    };
    Ok(Cluster {
        policies: brought.policies.cluster,
        whose,
        overrides: Some(brought.overrides),
    })
}

fn known(root: &Root) -> Result<Cluster> {
    let kept = policies::remembered(root).context("reading the disruption policies")?;
    let (known, overrides) = kept.map_or((None, None), |kept| (kept.known, kept.overrides));
    let (policies, whose) = match known {
        Some(known) => {
            let whose = format!("the cluster's policies, as of {}", utc(known.seen));
            (known.cluster, whose)
        }
        None => (default_policies(), DEFAULTS.to_owned()),
    };
    Ok(Cluster {
        policies,
        whose,
        overrides,
    })
}

/// Reads the MachineConfiguration in a file.
///
/// # Errors
/// It cannot be read, or is another object.
pub fn in_file(file: &str) -> Result<Brought> {
    let bytes = crate::source::read_named(file)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(policies::in_file(&text, file, now())?)
}
