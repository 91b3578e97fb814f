//! The crossings of the campaign in `rehearsal_campaign.rs`: another tree, staged under the files of a node.

use serde_json::{Value, json};

use super::node::PROGRAM;
use super::rehearsal_changes::{drop_in, failing_service, service};
use super::rehearsals::{Rehearsed, config_of};
use crate::lab::Shell;
use crate::lab::boxes::{golden, registry_of};
use crate::support::file;

/// An image of the site, which is 2.0 with other files.
const IMAGE: &str = "quay.example/okd/site";

/// Another system, and what it does to the boot.
pub struct Crossing {
    pub name: &'static str,
    /// What the node has by hand, as commands.
    by_hand: &'static str,
    new: NewSystem,
    /// As of a change.
    pub broken: &'static str,
    pub subject: &'static str,
    /// Of the system that boots.
    pub version: &'static str,
}

/// What is staged.
enum NewSystem {
    /// The image 2.0 alone, which the recorded config names.
    Pivot,
    /// The image 2.0 with a config of these parts.
    Config(Value),
    /// The running image with these kernel arguments, through a config.
    Arguments(&'static [&'static str]),
    /// An image of the site: commands that change the tree of 2.0 in the present directory.
    Site(&'static str),
}

impl Crossing {
    /// Stages it, and returns what `preflight` is asked for it.
    pub fn stage(&self, rehearsed: &Rehearsed<'_>) -> Option<String> {
        let node = &rehearsed.node;
        node.ask(&format!("true; {}", self.by_hand));
        let registry = node.registry(registry_of(&golden().oci()));
        let apply = |config: Value| {
            node.bring("/root/b.json", config.to_string().as_bytes());
            node.ask(&format!(
                "{PROGRAM} apply --yes --allow-lockout --no-actions b.json"
            ));
            Some("b.json".to_owned())
        };
        let target = match &self.new {
            NewSystem::Pivot => {
                let config = config_of(&rehearsed.key, &json!({}), &golden().b(), &[]);
                node.bring("/root/b.json", config.to_string().as_bytes());
                // It is recorded, and the running system is not its own yet.
                let record = "apply --yes --files-only --no-actions b.json";
                node.run(&format!("{PROGRAM} {record}")).exits(3);
                node.ask(&format!("{PROGRAM} pivot --yes"));
                Some(golden().b())
            }
            NewSystem::Config(more) => apply(config_of(&rehearsed.key, more, &golden().b(), &[])),
            NewSystem::Arguments(arguments) => apply(config_of(
                &rehearsed.key,
                &json!({}),
                &golden().a(),
                arguments,
            )),
            NewSystem::Site(commands) => {
                let image = format!("{IMAGE}@sha256:{}", "c".repeat(64));
                node.bring("/root/stage", stage_site(commands, &image).as_bytes());
                node.ask("unshare --mount bash -eu /root/stage");
                Some(image)
            }
        };
        drop(registry);
        // The image by its name, as the next boot.
        if let Some(image) = target.as_ref().filter(|target| target.contains('@')) {
            let run = node.run(&format!("{PROGRAM} rehearse {image}"));
            assert!(run.out().contains("the staged deployment"), "{}", run.err());
            let other = format!("{IMAGE}@sha256:{}", "e".repeat(64));
            let refused = node.run(&format!("{PROGRAM} rehearse {other}"));
            assert_eq!(refused.code(), 1, "{}", refused.out());
            let said = refused.err();
            for next in [
                &format!("Next: mco-rescue pivot {other}"),
                "then: mco-rescue rehearse",
            ] {
                assert!(said.contains(next), "{said}");
            }
        }
        target
    }
}

/// A script that makes an image of the site from 2.0 and stages it, as an administrator can.
fn stage_site(commands: &str, image: &str) -> String {
    format!(
        "mount -o remount,rw /sysroot\n\
         tree=/sysroot/site-tree\n\
         ostree checkout --repo=/ostree/repo --require-hardlinks box/2 $tree\n\
         (cd $tree; put() {{ rm -f $1; mkdir -p $(dirname $1); cat >$1; }}; {commands})\n\
         ostree commit --repo=/ostree/repo -b box/site --tree=dir=$tree --link-checkout-speedup --no-xattrs --bootable -s site\n\
         rm -rf $tree\n\
         printf '[origin]\\ncontainer-image-reference=ostree-unverified-registry:{image}\\n' >/run/site.origin\n\
         ostree admin deploy --os=rhcos --stage --origin-file=/run/site.origin box/site\n"
    )
}

/// A unit of the image's own, which is enabled there.
const UNIT: &str = "printf '[Service]\\nType=oneshot\\nRemainAfterExit=yes\\nExecStart=/bin/grep -q image /etc/motd\\n' | put usr/lib/systemd/system/site.service; \
                    ln -s ../site.service usr/lib/systemd/system/multi-user.target.wants/; echo image | put usr/etc/motd";
const KUBELET: &str = "mkdir -p /etc/systemd/system/kubelet.service.d && \
                       printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/nohup /bin/sleep infinity\\n' >/etc/systemd/system/kubelet.service.d/60-site.conf";

/// Every crossing of the campaign.
pub fn all_crossings() -> Vec<Crossing> {
    let goes = |name, by_hand, new| Crossing {
        name,
        by_hand,
        new,
        broken: "",
        subject: "",
        version: "2.0",
    };
    let fails = |name, by_hand, new, broken, subject| Crossing {
        broken,
        subject,
        ..goes(name, by_hand, new)
    };
    let site = "systemctl is-failed site.service";
    let more = json!({
        "files": [file("/etc/ssh/sshd_config.d/60-site.conf", 0o600, "ClientAliveInterval 180\n")],
        "units": [service("site.service", "ExecStart=/bin/sleep infinity"), drop_in("kubelet.service", "[Service]\nNice=1\n")],
    });
    vec![
        goes("another image", "", NewSystem::Pivot),
        goes("another image with a config", "", NewSystem::Config(more)),
        goes(
            "another image under a hand-edited /etc",
            "echo by hand >/etc/motd; echo 'MaxAuthTries 4' >/etc/ssh/sshd_config.d/70-hand.conf; rm /etc/debian_version; systemctl mask systemd-timesyncd.service",
            NewSystem::Pivot,
        ),
        goes(
            "an image whose bad default loses to the node's own file",
            "echo '# by hand' >>/etc/ssh/sshd_config.d/40-core.conf",
            NewSystem::Site("echo NoSuchOption | put usr/etc/ssh/sshd_config.d/40-core.conf"),
        ),
        goes("an image with one more service", "", NewSystem::Site(UNIT)),
        Crossing {
            version: "1.0",
            ..goes(
                "other kernel arguments",
                "",
                NewSystem::Arguments(&["nosmt", "site.is=b"]),
            )
        },
        fails(
            "an image without the kubelet's program",
            KUBELET,
            NewSystem::Site("rm usr/bin/nohup"),
            "! systemctl is-active kubelet.service",
            "kubelet.service",
        ),
        fails(
            "an image with a default that sshd refuses",
            "",
            NewSystem::Site("echo NoSuchOption | put usr/etc/ssh/sshd_config.d/50-image.conf"),
            "! systemctl is-active ssh.service",
            "ssh",
        ),
        fails(
            "another image with a config whose service fails",
            "",
            NewSystem::Config(failing_service()),
            site,
            "site.service",
        ),
        fails(
            "an image whose service fails with the node's own file",
            "echo by hand >/etc/motd",
            NewSystem::Site(UNIT),
            site,
            "site.service",
        ),
        Crossing {
            version: "1.0",
            ..fails(
                "a kernel argument that masks sshd",
                "",
                NewSystem::Arguments(&["systemd.mask=ssh.service"]),
                "! systemctl is-active ssh.service",
                "ssh.service",
            )
        },
    ]
}
