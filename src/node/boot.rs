//! What distinguishes one boot of a node from another: the kernel's boot id, the soft reboots since, and the deployment.
//!
//! A soft reboot (systemd 254 and later) restarts user space under the same kernel: boot id, `/proc/cmdline` and `/run` stay,
//! and another deployment can be entered. From 256 on, systemd counts soft reboots; 254 and 255 only show that user space
//! started again.

use serde::{Deserialize, Serialize};

use crate::host::root::Root;
use crate::host::running;
use crate::node::command::{CommandRunner, systemctl};
use crate::node::kernel::boot_id;

use super::host::systemd_runs;

/// One boot. Its fields are stored in files that outlive it; files of older versions of this program have the id alone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BootIdentity {
    /// The kernel's boot id (`/proc/sys/kernel/random/boot_id`).
    #[serde(rename = "boot")]
    pub id: String,
    /// Number of soft reboots since the kernel started; `None` if systemd does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soft_reboots: Option<u32>,
    /// Start of user space, in microseconds since the kernel started; `None` if systemd does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_space: Option<u64>,
    /// `CHECKSUM.SERIAL` of the running deployment; `None` on systems without OSTree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_deployment: Option<String>,
}

impl BootIdentity {
    /// Reads the current boot; `None` if the root is not that of the running system. `deployment` is the running one.
    pub fn observe(
        root: &Root,
        deployment: Option<String>,
        runner: &dyn CommandRunner,
    ) -> Option<Self> {
        let id = root.is_live().then(boot_id).flatten()?;
        let known = if systemd_runs(root) {
            systemctl::query_user_space(runner)
        } else {
            Ok(systemctl::UserSpace::default())
        };
        let known = known.unwrap_or_else(|error| {
            log::info!("soft reboots are not known: {error}");
            systemctl::UserSpace::default()
        });
        Some(Self {
            id,
            soft_reboots: known.soft_reboots,
            user_space: known.began,
            boot_deployment: deployment,
        })
    }

    /// Returns true if both are the same boot, as far as their known fields show.
    pub fn is_same(&self, other: &Self) -> bool {
        let user_space = match (self.soft_reboots, other.soft_reboots) {
            (Some(one), Some(two)) => one == two,
            _ => may_agree(self.user_space.as_ref(), other.user_space.as_ref()),
        };
        let deployments = (
            self.boot_deployment.as_ref(),
            other.boot_deployment.as_ref(),
        );
        self.id == other.id && user_space && may_agree(deployments.0, deployments.1)
    }

    /// Returns true if this boot began with a soft reboot some time after `other`, under the same kernel.
    pub fn is_soft_after(&self, other: &Self) -> bool {
        self.id == other.id && !self.is_same(other)
    }

    /// Returns the time at which user space started, in seconds since 1970. `kernel` is the start of the kernel, in the same
    /// unit.
    pub fn start_time(&self, kernel: u64) -> u64 {
        kernel.saturating_add(self.user_space.unwrap_or_default() / 1_000_000)
    }
}

fn may_agree<T: PartialEq>(one: Option<&T>, two: Option<&T>) -> bool {
    one.is_none() || two.is_none() || one == two
}

/// Directory that a soft reboot enters if a file system is mounted there.
pub const NEXT_ROOT: &str = "/run/nextroot";

/// Returns true if a soft reboot of the running system is prepared: systemd 255 and later then makes every `systemctl reboot` a
/// soft one.
pub fn is_soft_prepared(root: &Root) -> bool {
    let mounts = || running::read_text("/proc/self/mountinfo").unwrap_or_default();
    root.is_live() && has_next_root(&mounts())
}

/// Returns true if a line mounts the next root: lines like `36 35 98:0 /of/the/disk /mnt rw,noatime shared:1 - ext4 /dev/root rw`.
fn has_next_root(mounts: &str) -> bool {
    let point = |line: &str| line.split(' ').nth(4) == Some(NEXT_ROOT);
    mounts.lines().any(point)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(
        id: &str,
        count: Option<u32>,
        user_space: Option<u64>,
        deployment: &str,
    ) -> BootIdentity {
        BootIdentity {
            id: id.to_owned(),
            soft_reboots: count,
            user_space,
            boot_deployment: Some(deployment.to_owned()),
        }
    }

    #[test]
    fn boots_are_told_apart_by_every_version_of_systemd_that_can_make_them() {
        // What each version shows for the first boot, and for the one after a soft reboot.
        type Shown = (Option<u32>, Option<u64>);
        let versions: [(&str, Shown, Shown); 4] = [
            ("257", (Some(0), Some(5)), (Some(1), Some(90))),
            ("256, soft before", (Some(2), Some(80)), (Some(3), Some(90))),
            ("254", (None, Some(5)), (None, Some(90))),
            ("no answer", (None, None), (None, None)),
        ];
        for (version, then, soft) in versions {
            for deployment in ["aa.0", "bb.0"] {
                let before = boot("then", then.0, then.1, "aa.0");
                let same = deployment == "aa.0";
                let hard = boot("now", then.0, then.1, deployment);
                assert!(!hard.is_same(&before), "{version} {deployment}");
                assert!(!hard.is_soft_after(&before), "{version} {deployment}");
                let soft = boot("then", soft.0, soft.1, deployment);
                let tells = version != "no answer" || !same;
                assert_eq!(soft.is_same(&before), !tells, "{version} {deployment}");
                assert_eq!(soft.is_soft_after(&before), tells, "{version} {deployment}");
            }
            let none = boot("then", then.0, then.1, "aa.0");
            assert!(none.is_same(&none.clone()), "{version}");
        }
        // Version 252 has no soft reboots and shows no count.
        let el9 = boot("then", None, Some(5), "aa.0");
        assert!(el9.is_same(&el9.clone()));
        // systemd was replaced without a reboot: the count is new.
        assert!(boot("then", Some(0), Some(5), "aa.0").is_same(&el9));
    }

    #[test]
    fn what_an_older_program_wrote_is_read() {
        let old: BootIdentity = serde_json::from_str(r#"{"boot": "then"}"#).unwrap();
        assert!(boot("then", Some(0), Some(5), "aa.0").is_same(&old));
        assert!(!boot("now", Some(0), Some(5), "aa.0").is_same(&old));
        let text = serde_json::to_string(&old).unwrap();
        assert_eq!(text, r#"{"boot":"then"}"#);
    }

    #[test]
    fn the_mount_that_makes_a_reboot_soft_is_found() {
        let line = |point: &str| format!("36 35 98:0 / {point} rw shared:1 - ext4 /dev/root rw\n");
        assert!(has_next_root(&(line("/run") + &line("/run/nextroot"))));
        assert!(!has_next_root(
            &(line("/run/nextroot/etc") + &line("/x/run/nextroot"))
        ));
    }
}
