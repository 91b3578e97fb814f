//! Are there network connections in formats that the image's NetworkManager no longer reads?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, CrossingSeverity, Target};
use crate::node::platform::{LegacyConnection, Platform};

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("legacy-connections", judge);

/// Directory of NetworkManager's plugins.
const PLUGINS: &str = "usr/lib64/NetworkManager";
const PLUGIN: &str = "libnm-settings-plugin-ifcfg-rh.so";
/// The failure. It is not logged, because the files are never looked at.
const LOST: &str = "the interface has no connection after the boot, and no log says so";

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    let Some(reason) = reads_no_ifcfg(target) else {
        return Vec::new();
    };
    let network = &node.legacy_network;
    let own = network
        .connections
        .iter()
        .filter(|one| one.replaced_by.is_none());
    let own: Vec<&LegacyConnection> = own.collect();
    let mut found: Vec<CrossingFinding> = own
        .iter()
        .map(|one| {
            judge_connection(one, &network.rules).with_evidence(&target.tree.source, &reason)
        })
        .collect();
    // Rules without a connection have no effect today either, nor do those next to a keyfile.
    for (path, name) in &network.rules {
        if let Some(one) = own.iter().find(|one| one.name == *name) {
            let rules = report_rules(path, one);
            found.push(rules.with_evidence(&target.tree.source, &reason));
        }
    }
    found.extend(network.dhclient.iter().map(|path| report_dhclient(path)));
    found.extend(note_unread(&network.unseen));
    found
}

fn report_rules(path: &str, one: &LegacyConnection) -> CrossingFinding {
    let name = &one.name;
    CrossingFinding::inhibitor(name,
        "these rules of policy routing are lost, and cannot be migrated",
    )
    .with_evidence(path, format!("rules beside {}", one.path))
    .with_prevented("Legacy network configuration with policy routing rules found")
    .next(format!("nmcli connection migrate {}", one.path))
    .next(format!(
        "nmcli connection modify {name} +ipv4.routing-rules 'priority 100 from SUBNET table TABLE' # for each line of {path}"
    ))
    .next(format!("rm {path}"))
}

fn report_dhclient(path: &str) -> CrossingFinding {
    let what = "dhclient is gone, and the DHCP client of NetworkManager takes its place";
    CrossingFinding::warning("dhclient", what)
        .with_evidence(path, "[main] dhcp=dhclient")
        .with_prevented(
            "another lease: the new client has another identifier and may get another address",
        )
        .next(format!(
            "Take the line out of {path}, then: systemctl reload NetworkManager"
        ))
}

fn note_unread(unseen: &[String]) -> Option<CrossingFinding> {
    if unseen.is_empty() {
        return None;
    }
    let finding = CrossingFinding::unknown(
        "old connections",
        "files of old connections cannot be read, and it is unknown if any is in use",
    );
    let unseen = unseen.iter().take(3);
    let finding = unseen.fold(finding, |finding, path| {
        finding.with_evidence(path, "not read")
    });
    Some(finding.next("ls -l /etc/sysconfig/network-scripts"))
}

/// Returns the reason why the image ignores `ifcfg-` files; `None` if it reads them.
fn reads_no_ifcfg(target: &Target) -> Option<String> {
    let mut plugins = target.tree.files_below(PLUGINS).peekable();
    if plugins.peek().is_some() {
        let has_it = plugins.any(|path| path.ends_with(PLUGIN));
        return (!has_it).then(|| format!("{PLUGIN} is missing below {PLUGINS}"));
    }
    let major = target.os_release.el_major().filter(|major| *major >= 10)?;
    Some(format!("EL {major} reads no ifcfg files"))
}

fn judge_connection(one: &LegacyConnection, rules: &[(String, String)]) -> CrossingFinding {
    let severity = if one.on_boot {
        CrossingSeverity::Inhibitor
    } else {
        // It is not activated automatically, and can be recreated by hand.
        CrossingSeverity::Warning
    };
    let what = "the connection of this interface is only in an ifcfg file, which the image's NetworkManager ignores";
    let mut said = format!("DEVICE={}", one.device);
    if let Some(mac) = &one.mac {
        said += &format!(" HWADDR={mac}");
    }
    let finding = CrossingFinding::new(severity, &one.device, what)
        .with_evidence(&one.path, said)
        .with_prevented(LOST);
    let has_rules = rules.iter().any(|(_, name)| *name == one.name);
    let migrate = format!("nmcli connection migrate {}", one.path);
    let look = format!(
        "nmcli connection show # a file of {} has to be in /etc/NetworkManager/system-connections",
        one.device
    );
    if one.is_simple && !has_rules {
finding.next(migrate)
} else {
finding.next(migrate).next(look)
}
    .next("On a system that does not run: write the keyfile by hand (man nm-settings-keyfile), mode 0600.")
}
