//! The right machine: a plan is only carried out on a node of a cluster.
//!
//! A CoreOS, a system booted by OSTree, and a root with a record of the daemon are nodes; all other machines are left
//! unchanged. A directory without a system is not a root: usually a disk is not mounted.

use crate::base::invocation::mco_rescue;
use crate::base::notice::Notice;
use crate::node::Machine;

/// Returns the reason why a root must not be changed; `None` for a node, or if `meant` is set.
pub fn wrong_machine(machine: &Machine, meant: bool) -> Option<Notice> {
    if let Some(traces) = &machine.composefs {
        return Some(of_composefs(traces));
    }
    if let Some(notice) = no_system(machine) {
        return Some(notice);
    }
    let is_node = machine.is_coreos || machine.is_deployment || machine.record.is_some();
    if is_node || meant {
        return None;
    }
    let system = match machine.system.as_str() {
        "" => "a system without os-release",
        name => name,
    };
    let is = match &machine.name {
        Some(name) if machine.live => format!("{name} runs {system}"),
        Some(name) => format!("{} holds {system} of {name}", machine.root),
        None => format!("{} holds {system}", machine.root),
    };
    let message = format!(
        "{is}. It is not CoreOS, was not booted by OSTree, and has no record of the Machine Config Daemon. {} If this \
         machine is meant anyway: --not-a-node",
        next(machine)
    );
    Some(Notice::new("this is not a node of a cluster", message))
}

/// Returns the reason why a directory is not a root: it has no system. There is no override.
pub fn no_system(machine: &Machine) -> Option<Notice> {
    if let (Some(traces), false) = (&machine.composefs, machine.has_system) {
        return Some(of_composefs(traces));
    }
    // A record without a system is suspicious, but no reason to write.
    if machine.has_system {
        return None;
    }
    let next = if machine.is_etc {
        "It looks like the /etc of a system: name the directory above it with --root DIR"
    } else {
        "Mount the disk of the node there (`lsblk -f` lists the disks), or name another directory with --root DIR"
    };
    Some(Notice::new(
        "there is no system at this root",
        format!("{} has neither /usr nor /etc. {next}", machine.root),
    ))
}

/// Returns the reason to doubt that a root is that of a node: it has a system without a name, and no trace of a node.
pub fn no_trace(machine: &Machine) -> Option<String> {
    let is_traced = !machine.system.is_empty()
        || machine.is_deployment
        || machine.composefs.is_some()
        || machine.record.is_some();
    (!is_traced).then(|| {
        format!(
            "{} is not a node: it has no os-release and no record of the Machine Config Daemon. {}",
            machine.root,
            next(machine)
        )
    })
}

/// Returns the reason why a system with bootc's composefs backend is not changed: nothing that is known about nodes applies to
/// it.
pub fn of_composefs(traces: &str) -> Notice {
    Notice::new(
        "no OSTree node; bootc's composefs backend",
        format!(
            "{traces}. Neither rpm-ostree nor the Machine Config Daemon can manage such a system, and its /etc and \
             deployments lie elsewhere, so only commands that read work here: {}, {}, verify, show. Look at it: bootc \
             status; change it: bootc switch IMAGE",
            mco_rescue("status"),
            mco_rescue("doctor")
        ),
    )
}

fn next(machine: &Machine) -> &'static str {
    match (machine.live, machine.has_host) {
        (true, true) => "In a debug pod, run `chroot /host` first.",
        (true, false) => "Run this on the node, or name its mounted disk: --root DIR.",
        (false, _) => "Name the mounted disk of the node: --root DIR.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debian() -> Machine {
        Machine {
            root: "/".to_owned(),
            live: true,
            name: Some("laptop".to_owned()),
            system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            has_system: true,
            ..Machine::default()
        }
    }

    #[test]
    fn any_single_trace_makes_a_node_and_none_does_not() {
        let record = Some("/etc/machine-config-daemon/currentconfig".to_owned());
        for (is_coreos, is_deployment, record) in [
            (true, false, None),
            (false, true, None),
            (false, false, record),
        ] {
            let node = Machine {
                is_coreos,
                is_deployment,
                record,
                ..debian()
            };
            assert_eq!(wrong_machine(&node, false), None, "{node:?}");
        }
        let refused = wrong_machine(&debian(), false).unwrap();
        for word in [
            "laptop runs Debian GNU/Linux 12",
            "--not-a-node",
            "--root DIR",
        ] {
            assert!(refused.message.contains(word), "{refused:?}");
        }
        assert_eq!(wrong_machine(&debian(), true), None);
    }

    #[test]
    fn without_a_system_nothing_is_meant() {
        let nothing = Machine {
            root: "/mnt".to_owned(),
            ..Machine::default()
        };
        for meant in [false, true] {
            let refused = wrong_machine(&nothing, meant).unwrap();
            assert!(refused.message.contains("/mnt has neither"), "{refused:?}");
            assert!(refused.message.contains("lsblk"), "{refused:?}");
        }
        let etc = Machine {
            is_etc: true,
            ..nothing
        };
        let refused = wrong_machine(&etc, false).unwrap();
        assert!(refused.message.contains("directory above"), "{refused:?}");
    }

    #[test]
    fn a_system_of_the_composefs_backend_is_never_meant() {
        let traces = Some("kernel argument composefs=ab".to_owned());
        for (is_coreos, has_system) in [(true, true), (false, true), (false, false)] {
            let node = Machine {
                composefs: traces.clone(),
                is_coreos,
                has_system,
                ..debian()
            };
            let refused = wrong_machine(&node, true).unwrap();
            assert!(refused.subject.contains("bootc's composefs backend"));
            assert!(refused.message.starts_with("kernel argument composefs=ab"));
            assert_eq!(no_system(&node).is_some(), !has_system, "reading works");
        }
    }

    #[test]
    fn a_debug_pod_is_told_the_way_to_the_node() {
        let pod = Machine {
            has_host: true,
            ..debian()
        };
        let refused = wrong_machine(&pod, false).unwrap();
        assert!(refused.message.contains("chroot /host"), "{refused:?}");
    }
}
