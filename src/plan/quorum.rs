//! Whether a control-plane node may leave for a reboot: etcd needs more than half of its members.

use super::Plan;
use crate::node::etcd::{Etcd, Member};
use crate::notice::Notice;

/// What a reboot of this node means for etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Quorum {
    /// Nothing.
    Holds,
    /// It is away meanwhile, or nobody knows: in words.
    Told(String),
    /// It would be lost: in words.
    Lost(String),
}

/// Judges the members without this node.
pub fn judge_quorum(etcd: &Etcd) -> Quorum {
    let members = match etcd {
        Etcd::NotHere => return Quorum::Holds,
        Etcd::Silent(why) => {
            return Quorum::Told(format!(
                "this node is of the control plane, but its etcd gives no answer ({why}), so nobody knows whether the \
                 others can do without it. Before the reboot, on another member: etcdctl endpoint health --cluster"
            ));
        }
        Etcd::Known(members) => members,
    };
    let voters: Vec<&Member> = members.iter().filter(|member| !member.learner).collect();
    let needed = voters.len() / 2 + 1;
    let (well, ill): (Vec<&Member>, Vec<&Member>) = voters
        .iter()
        .filter(|member| !member.own)
        .partition(|member| member.ill.is_none());
    if well.len() >= needed {
        return Quorum::Holds;
    }
    if voters.len() == 1 {
        return Quorum::Told(
            "this node is the only member of etcd: the control plane is away while it boots"
                .to_owned(),
        );
    }
    let ill: Vec<String> = ill
        .into_iter()
        .map(|member| {
            format!(
                "{} ({})",
                named(member),
                member.ill.as_deref().unwrap_or_default()
            )
        })
        .collect();
    let ill = match ill.is_empty() {
        true => String::new(),
        false => format!("; not well: {}", ill.join(", ")),
    };
    Quorum::Lost(format!(
        "with this node away {} of {} members of etcd are left, and {needed} are needed{ill}. Mend the others first, or \
         --ignore-quorum",
        well.len(),
        voters.len(),
    ))
}

/// Adds it to a plan: against a reboot that is asked for, and told where one is only staged for.
pub(super) fn add(plan: &mut Plan, etcd: &Etcd, blocks: bool) {
    let notice = |message| Notice {
        subject: "etcd".to_owned(),
        message,
    };
    match judge_quorum(etcd) {
        Quorum::Holds => {}
        Quorum::Lost(why) if blocks => plan.blockers.push(notice(why)),
        Quorum::Lost(why) | Quorum::Told(why) => plan.notices.push(notice(why)),
    }
}

fn named(member: &Member) -> &str {
    if member.name.is_empty() {
        "(a member that has not started)"
    } else {
        &member.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `o`: this node; `w`: well; `i`: ill; `l`: a learner that is well.
    fn of(members: &str) -> Quorum {
        let member = |kind: char| Member {
            name: format!("m{kind}"),
            urls: Vec::new(),
            own: kind == 'o',
            learner: kind == 'l',
            ill: (kind == 'i').then(|| "no answer".to_owned()),
        };
        judge_quorum(&Etcd::Known(members.chars().map(member).collect()))
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
    fn who_is_not_well_is_named_with_the_way_out() {
        let Quorum::Lost(words) = of("owi") else {
            panic!("quorum would be lost")
        };
        assert_eq!(
            words,
            "with this node away 1 of 3 members of etcd are left, and 2 are needed; not well: mi (no answer). Mend the \
             others first, or --ignore-quorum"
        );
    }
}
