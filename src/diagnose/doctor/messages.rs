//! The messages of other programs that the checks know, each with the command that leads out. Checks take the words that they
//! look for, or predict, from here; `man --errors` and the manual show the whole table.

/// The program that prints a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageSource {
    /// The Machine Config Daemon.
    Daemon,
    /// Ignition, or the unit that waits for it.
    Ignition,
    /// rpm-ostree, ostree, bootc and what they pull images with.
    Ostree,
    /// The kubelet and its static pods.
    Kubelet,
    /// CRI-O and podman.
    Runtime,
    /// etcd.
    Etcd,
    /// systemd, sshd, NetworkManager and other services.
    Services,
}

impl MessageSource {
    /// All sources, in the order of the page.
    pub const ALL: [Self; 7] = [
        Self::Daemon,
        Self::Ignition,
        Self::Ostree,
        Self::Kubelet,
        Self::Runtime,
        Self::Etcd,
        Self::Services,
    ];

    /// Returns the name as a heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Daemon => "Machine Config Daemon",
            Self::Ignition => "Ignition",
            Self::Ostree => "rpm-ostree, ostree, bootc and registries",
            Self::Kubelet => "kubelet",
            Self::Runtime => "CRI-O and podman",
            Self::Etcd => "etcd",
            Self::Services => "systemd, sshd and other services",
        }
    }
}

/// A message of another program.
#[derive(Debug, Clone, Copy)]
pub struct KnownMessage {
    /// The program.
    pub source: MessageSource,
    /// Its words; `...` is where a name or number is.
    pub words: &'static str,
    /// Ids of the checks that explain it.
    pub checks: &'static [&'static str],
    /// The command that leads out.
    pub next: &'static str,
}

/// Returns a message with a value at its `...`.
pub fn fill_message(words: &str, value: &str) -> String {
    words.replacen("...", value, 1)
}

/// Defines each message once: as a constant for the checks, and as a row of the table.
macro_rules! messages {
    ($($name:ident: $source:ident $words:literal $checks:expr, $next:literal;)*) => {
        $(#[doc = concat!("`", $words, "`")] pub const $name: &str = $words;)*
        /// All messages.
        pub const MESSAGES: &[KnownMessage] = &[$(KnownMessage {
            source: MessageSource::$source,
            words: $name,
            checks: &$checks,
            next: $next,
        }),*];
    };
}

messages! {
    ON_DISK_STATE: Daemon "unexpected on-disk state" ["FP-03", "FP-01"], "mco-rescue verify";
    CONTENT_MISMATCH: Daemon "content mismatch for file" ["FP-03"], "mco-rescue verify";
    PULL_SECRET_MISMATCH: Daemon "content mismatch for file ... /var/lib/kubelet/config.json" ["FP-27"], "mco-rescue verify";
    MODE_MISMATCH: Daemon "mode mismatch for file" ["FP-03"], "mco-rescue verify";
    NO_STAT: Daemon "could not stat file" ["FP-03"], "mco-rescue verify";
    OTHER_IMAGE: Daemon "expected target osImageURL ..., have" ["FP-01"], "mco-rescue apply";
    LACKS_ARGUMENTS: Daemon "missing expected kernel arguments" ["FP-01", "FP-18"], "mco-rescue apply";
    CONFIG_NOT_FOUND: Daemon "machineconfig.machineconfiguration.openshift.io \"...\" not found" ["FP-04"], "mco-rescue cache list";
    NO_ANNOTATION: Daemon "annotation not found" ["FP-22"], "mco-rescue status --for-cluster";
    INITIAL_ANNOTATIONS: Daemon "initial annotations" ["FP-22"], "mco-rescue status --for-cluster";
    DISK_OVERRIDES: Daemon "Disk currentConfig \"...\" overrides node's currentConfig annotation \"...\"" ["FP-23"], "mco-rescue status --for-cluster";
    NOT_DRAINED: Daemon "failed to drain node" ["FP-34"], "oc get pdb -A";
    DRAIN_TIMEOUT: Daemon "global timeout reached" ["FP-34"], "oc get pdb -A";
    NOT_PERMITTED: Daemon "operation not permitted" ["FP-13"], "mco-rescue apply --clear-immutable";
    NOT_ENABLED: Daemon "error enabling units" ["FP-25"], "mco-rescue verify";
    FIPS_CHANGE: Daemon "detected change to FIPS flag; refusing to modify FIPS on a running cluster" ["FP-20"], "mco-rescue doctor FP-20";
    NOT_RECONCILED: Daemon "can't reconcile config" ["FP-20", "FP-21"], "mco-rescue plan";
    EXTENSIONS: Daemon "extension package" ["FP-19"], "mco-rescue plan";
    NOTHING_STAGED: Daemon "no staged deployment found after applying extensions" ["FP-19"], "mco-rescue plan";
    NO_KUBECONFIG: Daemon "cannot stat /etc/kubernetes/kubeconfig" ["FP-61"], "mco-rescue doctor";
    MARKED_DEGRADED: Daemon "Marking Degraded due to:" ["FP-21"], "mco-rescue status";
    MARKED_UNRECONCILABLE: Daemon "Marking Unreconcilable due to:" ["FP-21", "FP-20"], "mco-rescue plan";

    IGNITION_FETCHES: Ignition "A start job is running for Ignition (fetch)" ["FP-02", "FP-29"], "mco-rescue doctor";
    IGNITION_ATTEMPT: Ignition "GET error: ... attempt #" ["FP-02", "FP-06", "FP-29"], "mco-rescue doctor";
    NO_NAME_SERVER: Ignition "lookup ... on [::1]:53: connection refused" ["FP-02", "FP-32"], "mco-rescue doctor";
    UNKNOWN_AUTHORITY: Ignition "x509: certificate signed by unknown authority" ["FP-06"], "mco-rescue fetch --ca FILE";
    NOT_YET_VALID: Ignition "x509: certificate has expired or is not yet valid" ["FP-15", "FP-06", "FP-09"], "date -u";

    NOT_PERMITTED_BY_C: Ostree "Operation not permitted" ["FP-13"], "mco-rescue apply --clear-immutable";
    BUSY: Ostree "Transaction in progress" ["FP-14"], "rpm-ostree status";
    OWNER_CHANGED: Ostree "Bus owner changed, aborting" ["FP-14"], "systemctl restart rpm-ostreed";
    KERNEL_LAYOUT: Ostree "assertion failed (kernel_layout->bootcsum == bootcsum)" ["FP-50"], "mco-rescue doctor --deep";
    CORRUPTED_OBJECT: Ostree "Corrupted ... object; checksum expected=" ["FP-50"], "mco-rescue doctor --deep";
    NO_PACKAGE: Ostree "error: Packages not found: ..." ["FP-51"], "rpm-ostree uninstall NAME";
    FREE_SPACE: Ostree "min-free-space-percent '...%' would be exceeded" ["FP-16"], "mco-rescue doctor";
    NO_SPACE_FOR_KERNEL: Ostree "regfile copy: No space left on device" ["FP-07"], "mco-rescue doctor";

    NODE_NOT_FOUND: Kubelet "node \"...\" not found" ["FP-45"], "mco-rescue doctor";
    BOOTSTRAP_EXPIRED: Kubelet "Part of the existing bootstrap client certificate is expired" ["FP-09"], "oc get csr";
    CHECKPOINT_CORRUPTED: Kubelet "checkpoint is corrupted" ["FP-41"], "mco-rescue doctor --fix FP-41";
    STATIC_POD_LIFECYCLE: Kubelet "static pod lifecycle failure" ["FP-54"], "mco-rescue doctor";
    HOST_PATH: Kubelet "MountVolume.SetUp failed: hostPath type check failed" ["FP-54"], "mco-rescue doctor";
    NO_PEM: Kubelet "tls: failed to find any PEM data in certificate input" ["FP-54"], "mco-rescue doctor";
    OTHER_KEY: Kubelet "tls: private key does not match public key" ["FP-54"], "mco-rescue doctor";
    FALLBACK: Kubelet "startup-monitor.static-pods.openshift.io/fallback-for-revision: ..." ["FP-54"], "mco-rescue doctor";

    WIPED: Runtime "File ... not found. Wiping storage directory ... because of suspected unclean shutdown" ["FP-48"], "mco-rescue doctor --fix FP-48";
    LAYER_NOT_KNOWN: Runtime "layer not known" ["FP-10", "FP-48"], "mco-rescue doctor";
    PODMAN_125: Runtime "Source image rejected" ["FP-05"], "mco-rescue pivot --os-from DIR";
    NOT_AUTHORIZED: Runtime "unauthorized: access to the requested resource is not authorized" ["FP-05", "FP-27", "FP-63"], "mco-rescue doctor";

    NO_SNAPSHOT_FILE: Etcd "failed to find database snapshot file (snap: snapshot file doesn't exist)" ["FP-40"], "mco-rescue doctor FP-40";
    INVALID_DATABASE: Etcd "invalid database" ["FP-40"], "mco-rescue doctor FP-40";
    DATABASE_TOO_SMALL: Etcd "file size too small" ["FP-40"], "mco-rescue doctor FP-40";
    FAULT_ADDRESS: Etcd "unexpected fault address" ["FP-40"], "mco-rescue doctor FP-40";
    PAGE_IDENTIFIES: Etcd "assertion failed: Page expected to be: ..., but self identifies as ..." ["FP-40"], "mco-rescue doctor FP-40";
    FREE_PAGES: Etcd "freepages: failed to get all reachable pages (...)" ["FP-40"], "mco-rescue doctor FP-40";
    WAL_MISSING: Etcd "wal: file not found" ["FP-40"], "mco-rescue doctor FP-40";
    WAL_BOUNDS: Etcd "wal: slice bounds out of range" ["FP-40"], "mco-rescue doctor FP-40";
    WAL_SNAPSHOT: Etcd "wal: snapshot mismatch" ["FP-40"], "mco-rescue doctor FP-40";
    WAL_REPAIRED: Etcd "repaired WAL" ["FP-40"], "mco-rescue doctor FP-40";
    ENTRY_TYPE: Etcd "unknown entry type; must be either EntryNormal or EntryConfChange" ["FP-40"], "mco-rescue doctor FP-40";
    WIRE_TYPE: Etcd "proto: wrong wireType" ["FP-40"], "mco-rescue doctor FP-40";
    NO_CLUSTER: Etcd "could not retrieve cluster information from the given URLs" ["FP-40"], "mco-rescue doctor FP-40";
    LOST_LOG: Etcd "tocommit(...) is out of range [lastIndex(...)]. Was the raft log corrupted, truncated, or lost?" ["FP-40"], "mco-rescue doctor FP-40";
    CORRUPT_CLUSTER: Etcd "etcdserver: corrupt cluster" ["FP-40"], "oc -n openshift-etcd rsh etcd-NODE etcdctl alarm list";
    SPACE_EXCEEDED: Etcd "mvcc: database space exceeded" ["FP-40"], "oc -n openshift-etcd rsh etcd-NODE etcdctl endpoint status --cluster -w table";

    EXTERNAL_ETCD: Etcd "external etcd pod manifest" ["FP-55"], "pcs resource cleanup etcd";
    NEW_CLUSTER: Etcd "force_new_cluster held by multiple nodes" ["FP-55"], "pcs status";

    RESOLV_PREPENDER: Services "NM resolv-prepender failed" ["FP-44"], "systemctl list-jobs";
    NOT_INSERTED: Services "modprobe: ERROR: could not insert '...'" ["FP-71"], "mco-rescue doctor";
    NOT_SPAWNED: Services "Failed at step EXEC spawning ...: No such file or directory" ["FP-49"], "mco-rescue doctor";
    SYSUSERS: Services "systemd-sysusers: ..." ["FP-66"], "mco-rescue doctor";
    OVSDB: Services "ovsdb-server: ..." ["FP-47"], "mco-rescue doctor";
    KEEPALIVED: Services "Script '...' now returning 1" ["FP-53"], "mco-rescue doctor";
    PUBLICKEY: Services "Permission denied (publickey)" ["FP-33"], "mco-rescue apply --root DIR --key FILE";
    ROOT_LOCKED: Services "Cannot open access to console, the root account is locked" ["FP-30"], "mco-rescue doctor FP-30";
    NO_USER: Services "id: '...': no such user" ["FP-66"], "mco-rescue doctor";
    UNLABELED: Services "unlabeled_t" ["FP-26", "FP-67"], "mco-rescue doctor --fix FP-26";
}

/// Returns the checks that explain a cause of rpm-ostree, by its name.
pub fn checks_of_cause(kind: &str) -> &'static [&'static str] {
    match kind {
        "busy" | "cancelled" | "daemon-died" | "daemon-down" | "lock-held" => &["FP-14"],
        "no-argument" => &["FP-18"],
        "no-space" => &["FP-07", "FP-16"],
        "packages" => &["FP-51", "FP-19"],
        "immutable" => &["FP-13"],
        "finalize-failed" => &["FP-01", "FP-07"],
        "corrupt" => &["FP-05", "FP-50"],
        "no-credentials" | "unauthorized" => &["FP-05", "FP-27", "FP-63"],
        "policy-too-weak" | "policy-rejects" | "not-found" | "fetcher-denied" | "missing-blob"
        | "truncated" | "unreachable" | "refused" | "registry-fault" | "certificate" => &["FP-05"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::doctor::checks::CHECKS;
    use crate::node::command::rpm_ostree::cause::PHRASES;

    #[test]
    fn every_check_that_a_message_names_exists() {
        let is_known = |id: &&str| CHECKS.iter().any(|check| check.id == *id);
        for message in MESSAGES {
            assert!(!message.checks.is_empty(), "{}", message.words);
            assert!(message.checks.iter().all(is_known), "{}", message.words);
        }
        for phrase in PHRASES {
            let cause = crate::node::command::rpm_ostree::cause::cause_of_phrase(phrase);
            assert!(
                checks_of_cause(cause.kind()).iter().all(is_known),
                "{phrase}"
            );
        }
    }

    #[test]
    fn no_message_is_there_twice() {
        for (index, message) in MESSAGES.iter().enumerate() {
            let twice = MESSAGES[..index]
                .iter()
                .any(|one| one.words == message.words);
            assert!(!twice, "{}", message.words);
        }
    }
}
