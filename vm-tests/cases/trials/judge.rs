//! What is seen of a node from outside of it, before a trial and after.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cases::node::PROGRAM;
use crate::lab::Shell;
use crate::lab::boxes::BoxNode;

/// How long a node may take to come back after the stated time, on a busy machine; it takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Digest, mode and owner of everything in `/etc` and of the keys of `core`; the boot entries and deployments; and what the
/// services made of it: which run, the rules of the firewall, the addresses. What a trial says is no part of it.
const EVERYTHING: &str = "cd / && \
    find etc var/home/core/.ssh -xdev ! -path 'etc/motd.d*' ! -path etc/.updated -printf '%p %y %m %U:%G %l\\n' | sort; \
    find etc var/home/core/.ssh -xdev -type f ! -path 'etc/motd.d*' ! -path etc/.updated -print0 | sort -z | xargs -0 sha256sum; \
    tr ' ' '\\n' </proc/cmdline | sed 's/boot[.][01]/boot/' | sort; ostree admin status | grep '^[*]'; cat /usr/lib/os-version; \
    for unit in sshd NetworkManager nftables kubelet crio; do echo $unit $(systemctl is-active $unit); done; \
    nft list ruleset; ip -4 -o addr show | tr -s ' '";

/// What has to be the same where no reboot is part of the trial.
const BOOT: &str = "cat /boot/loader/entries/*.conf | sort; ostree admin status";

/// A node's state as text, a fact in each line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    facts: String,
    /// The entries of other deployments count too.
    with_boot: bool,
}

impl State {
    /// Looks at the node as it is now.
    pub fn of(node: &BoxNode<'_>, with_boot: bool) -> Self {
        let mut facts = node.run(EVERYTHING).out();
        if with_boot {
            facts += &node.run(BOOT).out();
        }
        Self { facts, with_boot }
    }

    /// Waits until the node is in this state; gives the differences if it does not come to that.
    pub fn is_reached_by(&self, node: &BoxNode<'_>) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let now = Self::of(node, self.with_boot);
            if now == *self {
                return Ok(());
            }
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(self.differences(&now));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn differences(&self, now: &Self) -> String {
        let only = |one: &Self, other: &Self, sign: &str| {
            let others: std::collections::HashSet<&str> = other.facts.lines().collect();
            let lines = one.facts.lines().filter(|line| !others.contains(line));
            lines
                .take(20)
                .map(|line| format!("{sign} {line}\n"))
                .collect::<String>()
        };
        only(self, now, "-") + &only(now, self, "+")
    }
}

/// What the node says of its trials.
#[derive(Debug, Clone)]
pub struct Said(Value);

impl Said {
    /// By `status`.
    pub fn by(node: &BoxNode<'_>) -> Result<Self, String> {
        let run = node.run(&format!("{PROGRAM} status --output json"));
        let status = serde_json::from_str(&run.out());
        status
            .map(Self)
            .map_err(|error| format!("status: {error}: {}{}", run.out(), run.err()))
    }

    /// Reports if a trial runs.
    pub fn runs(&self) -> bool {
        !self.0["trial"].is_null()
    }

    /// How the last one ended.
    pub fn result(&self) -> String {
        self.0["last_trial"]["outcome"]
            .as_str()
            .unwrap_or("none")
            .to_owned()
    }

    /// Why it ended so.
    pub fn reason(&self) -> String {
        self.0["last_trial"]["why"]
            .as_str()
            .unwrap_or("none")
            .to_owned()
    }

    /// Both parts, for messages.
    pub fn parts(&self) -> String {
        format!(
            "trial: {} last_trial: {}",
            self.0["trial"], self.0["last_trial"]
        )
    }
}
