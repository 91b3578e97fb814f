//! Judges whether a control-plane node may reboot: etcd needs more than half of its members.

use super::Plan;
use crate::base::notice::Notice;
use crate::node::etcd::{Etcd, EtcdMember};

/// The effect of a reboot of this node on etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quorum {
    /// The quorum holds.
    Holds,
    /// The member is unavailable meanwhile, or its state is unknown: the reason.
    Told(String),
    /// The quorum would be lost: the reason.
    Lost(String),
}

/// Judges the members without this node.
pub fn judge_quorum(etcd: &Etcd) -> Quorum {
    let members = match etcd {
        Etcd::NotHere => return Quorum::Holds,
        Etcd::Silent(why) => {
            return Quorum::Told(format!(
                "this is a control-plane node, but its etcd does not answer ({why}), so it is unknown whether the \
                 other members have a quorum without it. Before the reboot, on another member: etcdctl endpoint health --cluster"
            ));
        }
        Etcd::Fenced(members) => return judge_fenced(members),
        Etcd::Known(members) => members,
    };
    let voters: Vec<&EtcdMember> = members.iter().filter(|member| !member.learner).collect();
    let needed = voters.len() / 2 + 1;
    let (well, ill): (Vec<&EtcdMember>, Vec<&EtcdMember>) = voters
        .iter()
        .filter(|member| !member.own)
        .partition(|member| member.ill.is_none());
    if well.len() >= needed {
        return Quorum::Holds;
    }
    if voters.len() == 1 {
        return Quorum::Told(
            "this node is the only member of etcd: the control plane is down while it boots"
                .to_owned(),
        );
    }
    let ill: Vec<String> = ill
        .into_iter()
        .map(|member| {
            format!(
                "{} ({})",
                member_name(member),
                member.ill.as_deref().unwrap_or_default()
            )
        })
        .collect();
    let ill = if ill.is_empty() {
        String::new()
    } else {
        format!("; not well: {}", ill.join(", "))
    };
    Quorum::Lost(format!(
        "without this node {} of {} members of etcd are left, and {needed} are needed{ill}. Repair the others first, or use \
         --ignore-quorum",
        well.len(),
        voters.len(),
    ))
}

/// Judges two nodes with fencing. By arithmetic alone neither could ever reboot. Pacemaker removes this member when it stops in
/// an orderly way, and the other one continues alone, if it has a vote and is healthy.
fn judge_fenced(members: &[EtcdMember]) -> Quorum {
    let lost = |why: String| {
        Quorum::Lost(format!(
            "{why}, so no etcd would be left that can go on alone. See: pcs status, etcdctl member list. Wait for it, or use \
             --ignore-quorum"
        ))
    };
    let Some(other) = members.iter().find(|member| !member.own) else {
        return Quorum::Told(
            "the other node is not a member of etcd now: the control plane is down while this one boots. Two nodes that both continue \
             alone lose data: see pcs status first"
                .to_owned(),
        );
    };
    match &other.ill {
        Some(why) => lost(format!("{} is unhealthy ({why})", member_name(other))),
        None if other.learner => lost(format!(
            "{} has no vote yet (a learner)",
            member_name(other)
        )),
        None => Quorum::Told(format!(
            "two nodes with fencing: while this one boots, {} goes on alone, as Pacemaker decides. Before the reboot: pcs node \
             standby $(hostname), and afterwards pcs node unstandby $(hostname); never both nodes at once",
            member_name(other)
        )),
    }
}

/// Adds the result to a plan: as a blocker if this run reboots, or as a notice if it only stages.
pub(super) fn add_quorum(plan: &mut Plan, etcd: &Etcd, blocks: bool) {
    let notice = |message| Notice::new("etcd", message);
    match judge_quorum(etcd) {
        Quorum::Holds => {}
        Quorum::Lost(why) if blocks => plan.blockers.push(notice(why)),
        Quorum::Lost(why) | Quorum::Told(why) => plan.notices.push(notice(why)),
    }
}

fn member_name(member: &EtcdMember) -> &str {
    if member.name.is_empty() {
        "(a member that has not started)"
    } else {
        &member.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members: `o` this node, `w` healthy, `i` unhealthy, `l` a healthy learner.
    fn of(members: &str) -> Quorum {
        judge_quorum(&etcd(members))
    }

    fn etcd(members: &str) -> Etcd {
        let member = |kind: char| EtcdMember {
            name: format!("m{kind}"),
            urls: Vec::new(),
            own: kind == 'o',
            learner: kind == 'l',
            ill: (kind == 'i').then(|| "no answer".to_owned()),
        };
        Etcd::Known(members.chars().map(member).collect())
    }

    #[test]
    fn more_than_half_have_to_be_left() {
        for holds in ["oww", "owwww", "owwii", "owww", "owwl"] {
            let judged = of(holds);
            let expected = holds != "owwii";
            assert_eq!(judged == Quorum::Holds, expected, "{holds}: {judged:?}");
        }
        for lost in [
            "owi",
            "oww".replace('w', "i").as_str(),
            "ow",
            "owl",
            "owwii",
            "oi",
        ] {
            assert!(matches!(of(lost), Quorum::Lost(_)), "{lost}");
        }
        assert!(matches!(of("o"), Quorum::Told(_)));
        assert!(matches!(of("ol"), Quorum::Told(_)));
        assert_eq!(judge_quorum(&Etcd::NotHere), Quorum::Holds);
        assert!(matches!(
            judge_quorum(&Etcd::Silent("x".into())),
            Quorum::Told(_)
        ));
    }

    #[test]
    fn of_two_nodes_with_fencing_the_other_has_to_be_well_and_to_have_a_vote() {
        let fenced = |members: &str| {
            let Etcd::Known(all) = etcd(members) else {
                panic!("members are known")
            };
            judge_quorum(&Etcd::Fenced(all))
        };
        for (members, words) in [
            ("oi", "mi is unhealthy (no answer)"),
            ("ol", "ml has no vote yet"),
        ] {
            let Quorum::Lost(why) = fenced(members) else {
                panic!("{members} would lose it")
            };
            assert!(why.contains(words), "{why}");
            assert!(why.ends_with("--ignore-quorum"), "{why}");
        }
        for (members, words) in [
            ("ow", "mw goes on alone"),
            ("o", "not a member of etcd now"),
        ] {
            let Quorum::Told(why) = fenced(members) else {
                panic!("{members} can go on")
            };
            assert!(why.contains(words), "{why}");
        }
        // Two masters and an arbiter are three members like any other three.
        assert_eq!(of("oww"), Quorum::Holds);
        assert!(matches!(of("owi"), Quorum::Lost(_)));
        // Without fencing, neither of two members can.
        assert!(matches!(of("ow"), Quorum::Lost(_)));
    }

    #[test]
    fn who_is_not_well_is_named_with_the_way_out() {
        let Quorum::Lost(words) = of("owi") else {
            panic!("quorum would be lost")
        };
        assert_eq!(
            words,
            "without this node 1 of 3 members of etcd are left, and 2 are needed; not well: mi (no answer). Repair the \
             others first, or use --ignore-quorum"
        );
    }
}
