//! FP-47: a database of Open vSwitch or OVN is damaged.

use crate::base::text::count_noun;
use crate::diagnose::doctor::{
    CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, FixChange, messages,
};
use crate::formats::ovsdb::{OvsdbLog, OvsdbStop};
use crate::node::ovsdb_files::OPEN_VSWITCH;

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-47",
    title: "a database of Open vSwitch or OVN is damaged",
    looks_at: "/etc/openvswitch/conf.db, and the databases of OVN",
    explain: "Open vSwitch keeps its bridges in /etc/openvswitch/conf.db, and OVN its networks in /var/lib/ovn-ic/etc. Both are logs of \
JSON records; each record has its length and its SHA-1 in the line before.\n\n\
A first record that is wrong, or an empty file, keeps ovsdb-server from starting: no bridge, and no network. The \
start script creates a missing file, but does not replace a broken one. A wrong record further on does not keep it \
from starting: it uses what came before, and cuts off the rest at its next write. That is normal for the last record \
after a power cut. In the middle it takes the node's bridges back to an older state.\n\n\
/etc/openvswitch/conf.db is made again: moved aside, it is created when ovsdb-server starts, and \
ovs-configuration.service builds br-ex. The node has no network meanwhile: use the console, or a reboot. The \
databases of OVN are filled from the API by ovnkube.\n\n\
Of databases of more than 16 MiB in all, only the first record is read, up to 16 MiB; with --deep everything. The rows are not compared with \
the addresses of the node: FP-12 looks at these.",
    judge: judge_databases,
};

fn judge_databases(evidence: &DoctorEvidence) -> CheckVerdict {
    let files = match evidence.ovsdb_files.seen() {
        Ok(files) => files,
        Err(why) => return CheckVerdict::not_seen(format!("the databases of Open vSwitch: {why}")),
    };
    let mut verdict = CheckVerdict::healthy();
    for why in &files.unread {
        verdict = verdict.and_unseen(format!("a database of Open vSwitch: {why}"));
    }
    for path in &files.skipped {
        verdict = verdict.and_skipped(format!("the hashes of /{path}"));
    }
    let findings = files.all.iter();
    verdict.and_findings(findings.filter_map(|(path, log)| judge_log(evidence, path, log)))
}

fn judge_log(evidence: &DoctorEvidence, path: &str, log: &OvsdbLog) -> Option<DoctorFinding> {
    let stop = log.fault.as_ref()?;
    let of_switch = path == OPEN_VSWITCH;
    let finding = if log.records == 0 {
        find_unreadable(evidence, path, of_switch)
    } else if stop.behind > 0 {
        find_dropped(evidence, path, of_switch, stop)
    } else {
        let means = "The last write was interrupted, as by a power cut. ovsdb-server uses what came before, and cuts the record off at \
                     its next write.";
        let what = if of_switch {
            "the database of Open vSwitch ends in an incomplete record"
        } else {
            "a database of OVN ends in an incomplete record"
        };
        DoctorFinding::notice(what, means).next(evidence.own_command("doctor FP-47"))
    };
    let said = format!(
        "{} are sound, then at offset {}: {}",
        count_noun(to_usize(log.records), "record"),
        stop.offset,
        stop.fault
    );
    Some(
        finding
            .with_evidence(format!("/{path}"), said)
            .with_message(Some(messages::fill_message(
                messages::OVSDB,
                &stop.fault.to_string(),
            ))),
    )
}

fn to_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn find_unreadable(evidence: &DoctorEvidence, path: &str, of_switch: bool) -> DoctorFinding {
    if of_switch {
        let means = "ovsdb-server does not start with this file, so there is no bridge and no network. It is made again at the next boot \
                     if it is moved aside.";
        let finding = DoctorFinding::critical("Open vSwitch cannot read its database", means)
            .fixed_by([FixChange::move_aside(format!("/{path}"))]);
        return after_move(evidence, finding, path);
    }
    let means = "The database server of OVN does not start with this file, so pods on this node get no network. ovnkube fills a new one \
                 from the API.";
    let finding = DoctorFinding::critical("OVN cannot read a database", means);
    move_ovn(evidence, finding, path)
}

fn find_dropped(
    evidence: &DoctorEvidence,
    path: &str,
    of_switch: bool,
    stop: &OvsdbStop,
) -> DoctorFinding {
    let what = if of_switch {
        "Open vSwitch returns to an older state"
    } else {
        "a database of OVN returns to an older state"
    };
    let means = format!(
        "ovsdb-server reads no further than the wrong record. {} behind it will be cut off at the next write.",
        count_noun(to_usize(stop.behind), "record")
    );
    let finding = DoctorFinding::warning(what, means);
    if of_switch {
        after_move(evidence, finding, path)
    } else {
        move_ovn(evidence, finding, path)
    }
}

/// Adds the commands that make Open vSwitch recreate its database.
fn after_move(evidence: &DoctorEvidence, finding: DoctorFinding, path: &str) -> DoctorFinding {
    let file = evidence.shell_path(&format!("/{path}"));
    let moves = format!("mv {file} {file}.mco-rescue-damaged");
    if evidence.live {
        finding
            .next(
                "systemctl stop openvswitch ovsdb-server   # on the console: the network goes away",
            )
            .next(moves)
            .next("systemctl start openvswitch && systemctl restart ovs-configuration")
    } else {
        finding.next(moves)
    }
}

fn move_ovn(evidence: &DoctorEvidence, finding: DoctorFinding, path: &str) -> DoctorFinding {
    let file = evidence.shell_path(&format!("/{path}"));
    let moves = format!("mv {file} {file}.mco-rescue-damaged");
    if evidence.live {
        finding
            .next_all(evidence.stop_workloads())
            .next(moves)
            .next_all(evidence.start_workloads())
    } else {
        finding.next(moves)
    }
}
