//! Paths on a node, relative to the root, one constant each.
//!
//! Which program writes each one, and when: docs/develop/agreement.md: Files on a node.

/// The daemon's record of the node's config; a MachineConfig as JSON.
pub const CURRENT_CONFIG: &str = "etc/machine-config-daemon/currentconfig";
/// The daemon's record of the layered image; empty on nodes without layering.
pub const CURRENT_IMAGE: &str = "etc/machine-config-daemon/currentimage";
/// Left by the Machine Config Server; while it exists the daemon ignores `currentconfig`.
pub const NODE_ANNOTATIONS: &str = "etc/machine-config-daemon/node-annotations.json";
/// The same file once the daemon has moved it aside; the name really has no "s".
pub const NODE_ANNOTATIONS_KEPT: &str = "etc/machine-config-daemon/node-annotation.json.bak";
/// Makes the daemon skip its comparison, rewrite everything, and reboot.
pub const FORCE: &str = "run/machine-config-daemon-force";
/// The config for the service that leaves on-cluster layering.
pub const REVERT: &str = "etc/mco/machineconfig-revert.json";
/// The unit file of that service.
pub const REVERT_UNIT: &str = "etc/systemd/system/machine-config-daemon-revert.service";
/// Link that enables the revert service.
pub const REVERT_LINK: &str =
    "etc/systemd/system/multi-user.target.requires/machine-config-daemon-revert.service";
/// The name of the system-wide crypto policy. In FIPS mode the system mounts another file over it.
pub const CRYPTO_POLICY: &str = "etc/crypto-policies/config";
/// Crypto policies and their modules.
pub const CRYPTO_POLICIES: &str = "etc/crypto-policies/policies";
/// The daemon's repository of extensions while it stages them.
pub const EXTENSIONS_REPOSITORY: &str = "etc/yum.repos.d/coreos-extensions.repo";
/// Copies of files as the OS shipped them.
pub const ORIG: &str = "etc/machine-config-daemon/orig";
/// Stamps for files without an original.
pub const NOORIG: &str = "etc/machine-config-daemon/noorig";
/// First-boot input of the daemon; an active trigger as long as it exists.
pub const ENCAPSULATED: &str = "etc/ignition-machine-config-encapsulated.json";
/// The same after the first boot.
pub const ENCAPSULATED_KEPT: &str = "etc/ignition-machine-config-encapsulated.json.bak";
/// The full MachineConfig as the Machine Config Server served it.
pub const MCS_CONTENT: &str = "etc/mcs-machine-config-content.json";
/// The bootstrap kubeconfig, which the daemon sets to 0600 in every update.
pub const KUBECONFIG: &str = "etc/kubernetes/kubeconfig";
/// Admin's unit directory.
pub const UNITS: &str = "etc/systemd/system";
/// Preset lines that Ignition writes for the first boot.
pub const IGNITION_PRESET: &str = "etc/systemd/system-preset/20-ignition.preset";
/// Decides if the next boot is systemd's first boot.
pub const MACHINE_ID: &str = "etc/machine-id";
/// Accounts of the root.
pub const PASSWD: &str = "etc/passwd";
/// Accounts that the OS ships (nss-altfiles).
pub const USR_PASSWD: &str = "usr/lib/passwd";
/// Groups of the root.
pub const GROUP: &str = "etc/group";
/// Groups that the OS ships.
pub const USR_GROUP: &str = "usr/lib/group";
/// Password hashes.
pub const SHADOW: &str = "etc/shadow";
/// Group passwords.
pub const GSHADOW: &str = "etc/gshadow";
/// Ranges of subordinate user ids.
pub const SUBUID: &str = "etc/subuid";
/// Ranges of subordinate group ids.
pub const SUBGID: &str = "etc/subgid";
/// Limits and defaults of shadow-utils.
pub const LOGIN_DEFS: &str = "etc/login.defs";
/// Defaults of useradd.
pub const USERADD_DEFAULTS: &str = "etc/default/useradd";
/// Lock of the account files, as shadow-utils takes it.
pub const PWD_LOCK: &str = "etc/.pwd.lock";
/// Home of the only user a MachineConfig may have.
pub const CORE_HOME: &str = "home/core";
/// Keys and other files of sshd for the user.
pub const CORE_SSH: &str = "home/core/.ssh";
/// Directory of key fragments.
pub const CORE_KEYS_DIR: &str = "home/core/.ssh/authorized_keys.d";
/// The keys of the config.
pub const CORE_KEYS: &str = "home/core/.ssh/authorized_keys.d/ignition";
/// Below any home: keys and other files of sshd for the user.
pub const SSH: &str = ".ssh";
/// Below any home: directory of key fragments.
pub const KEYS_DIR: &str = ".ssh/authorized_keys.d";
/// Below any home: the keys of the config.
pub const KEYS: &str = ".ssh/authorized_keys.d/ignition";
/// Keys put there by hand.
pub const CORE_AUTHORIZED_KEYS: &str = "home/core/.ssh/authorized_keys";
/// Present in the initramfs only.
pub const INITRD_RELEASE: &str = "etc/initrd-release";
/// SELinux configuration of the root.
pub const SELINUX_CONFIG: &str = "etc/selinux/config";

/// Exists if OSTree booted the system; contains the result.
pub const OSTREE_BOOTED: &str = "run/ostree-booted";
/// Exists while a deployment waits for the next reboot.
pub const STAGED_DEPLOYMENT: &str = "run/ostree/staged-deployment";
/// Exists while that deployment is locked, in an older way than by its own file: no shutdown finalizes it.
pub const STAGED_LOCK: &str = "run/ostree/staged-deployment-locked";
/// Exists while a soft reboot into another deployment is prepared.
pub const NEXT_ROOT_BOOTED: &str = "run/ostree/nextroot-booted";
/// Objects and images of bootc's composefs backend, as the running system sees them.
pub const COMPOSEFS: &str = "sysroot/composefs";
/// The same on a disk that is not booted.
pub const PHYSICAL_COMPOSEFS: &str = "composefs/images";
/// Deployments on such a disk.
pub const PHYSICAL_COMPOSEFS_STATE: &str = "state/deploy";
/// Boot loader entries.
pub const BOOT_ENTRIES: &str = "boot/loader/entries";
/// A link to the directory that ostree replaces whenever it changes the boot entries.
pub const BOOT_LOADER: &str = "boot/loader";
/// Kernels of the deployments, one directory for each distinct one.
pub const BOOT_OSTREE: &str = "boot/ostree";
/// Directories of GRUB's files; the first one with files is used.
pub const GRUB: [&str; 2] = ["boot/grub2", "boot/grub"];
/// Files that only zipl, the boot loader of s390x, creates.
pub const ZIPL: [&str; 2] = ["boot/bootmap", "boot/ostree-bootloader-update.stamp"];
/// Files that only systemd-boot has.
pub const SYSTEMD_BOOT: [&str; 3] = [
    "boot/loader/loader.conf",
    "boot/EFI/systemd",
    "boot/efi/EFI/systemd",
];
/// Firmware whose boot loader is petitboot.
pub const OPAL: &str = "sys/firmware/opal";
/// Exists until Ignition's first boot has ended.
pub const FIRST_BOOT_STAMP: &str = "boot/ignition.firstboot";
/// Name and version of the operating system.
pub const OS_RELEASE: &str = "etc/os-release";
/// The same file as shipped by the OS.
pub const USR_OS_RELEASE: &str = "usr/lib/os-release";
/// Registries, their mirrors, and blocked registries.
pub const REGISTRIES: &str = "etc/containers/registries.conf";
/// Files that add to it.
pub const REGISTRIES_D: &str = "etc/containers/registries.conf.d";
/// Places of signatures.
pub const LOOKASIDE: &str = "etc/containers/registries.d";
/// Signatures that images need.
pub const POLICY: &str = "etc/containers/policy.json";
/// The same file of the image: container tools of 2026 (Podman 6) read it if `/etc` has none. Older ones ship none there.
pub const POLICY_OF_IMAGE: &str = "usr/share/containers/policy.json";
/// The registries of the image, used in the same way.
pub const REGISTRIES_OF_IMAGE: &str = "usr/share/containers/registries.conf";
/// Fragments of the image; one of the same name in `/etc` overrides it.
pub const REGISTRIES_D_OF_IMAGE: &str = "usr/share/containers/registries.conf.d";
/// Credentials that rpm-ostree uses for a pull; the first file that exists is used (docs/develop/agreement.md: Files on a node).
pub const PULL_SECRETS: [&str; 3] = [
    "run/ostree/auth.json",
    "etc/ostree/auth.json",
    "var/lib/kubelet/config.json",
];

/// The socket of the system bus; exists once the bus can be queried.
pub const SYSTEM_BUS: &str = "run/dbus/system_bus_socket";
/// Exists while a shutdown is scheduled.
pub const SCHEDULED_SHUTDOWN: &str = "run/systemd/shutdown/scheduled";

/// Names with fixed addresses; of the running system.
pub const HOSTS: &str = "etc/hosts";
/// Name servers; of the running system.
pub const RESOLV_CONF: &str = "etc/resolv.conf";
/// The authorities that the OS trusts, one bundle per distribution family; the first one that exists is used.
pub const CA_BUNDLES: [&str; 3] = [
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/ssl/certs/ca-certificates.crt",
];

/// Kernels and boot loader entries.
pub const BOOT: &str = "boot";
/// The physical root of an OSTree system, as a deployment sees it.
pub const SYSROOT: &str = "sysroot";
/// The lock of everything that changes deployments, as a deployment sees it.
pub const SYSROOT_LOCK: &str = "sysroot/ostree/lock";
/// The stateroots of an OSTree system, as a deployment sees them.
pub const STATEROOTS: &str = "sysroot/ostree/deploy";
/// The static pod of etcd: a node that has it belongs to the control plane.
pub const ETCD_POD: &str = "etc/kubernetes/manifests/etcd-pod.yaml";
/// The pod of an etcd that Pacemaker starts (two nodes with fencing).
pub const EXTERNAL_ETCD_POD: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/external-etcd-pod/pod.yaml";
/// Configuration of a cluster that Pacemaker manages; written when it is set up.
pub const COROSYNC: &str = "etc/corosync/corosync.conf";
/// Store of the registry in which a control-plane node keeps release images.
pub const RELEASE_REGISTRY: &str = "var/lib/iri-registry";
/// The authority of that registry's certificate.
pub const RELEASE_REGISTRY_AUTHORITY: &str = "etc/pki/ca-trust/source/anchors/iri-root-ca.crt";
/// The directory with that authority, as skopeo takes it.
pub const AUTHORITY_ANCHORS: &str = "etc/pki/ca-trust/source/anchors";
/// The pull secret of the kubelet.
pub const KUBELET_PULL_SECRET: &str = "var/lib/kubelet/config.json";
/// Files of the lifecycle agent, which upgrades and installs from seed images.
pub const LIFECYCLE_AGENT: &str = "var/lib/lca";
/// Time of its monitor.
pub const AUTO_ROLLBACK: &str = "var/lib/lca/autorollback_config.json";
/// Certificates by which members of etcd know each other.
pub const ETCD_CERTIFICATES: &str =
    "etc/kubernetes/static-pod-resources/etcd-certs/secrets/etcd-all-certs";
/// Authorities of etcd, in releases from new to old.
pub const ETCD_AUTHORITIES: [&str; 2] = [
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-all-bundles/server-ca-bundle.crt",
    "etc/kubernetes/static-pod-resources/etcd-certs/configmaps/etcd-serving-ca/ca-bundle.crt",
];
/// The same on a disk that is not booted.
pub const PHYSICAL_STATEROOTS: &str = "ostree/deploy";
/// Written by Ignition when it has written its config.
pub const IGNITION_RESULT: &str = "etc/.ignition-result.json";
/// Configs that an image contains, in its root and in its initramfs.
pub const IMAGE_CONFIGS: &str = "usr/lib/mco-rescue/configs";
/// The Machine Config Server's authority that an image contains.
pub const IMAGE_AUTHORITY: &str = "usr/lib/mco-rescue/ca.pem";
/// Files that may contain the authority of the node's Machine Config Server: bundles, kubeconfigs, and the pointer config with
/// which the node was provisioned (docs/develop/agreement.md: Server).
pub const AUTHORITIES: [&str; 8] = [
    "etc/kubernetes/kubelet-ca.crt",
    "etc/kubernetes/ca.crt",
    KUBECONFIG,
    KUBELET_KUBECONFIG,
    "etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "boot/ignition/config.ign",
    "usr/lib/ignition/user.ign",
    SERVER,
];
/// Authorities that an admin or the daemon added to those of the OS.
pub const ANCHORS: &str = "etc/pki/ca-trust/source/anchors";

/// The keys that may sign capsules, in OpenSSH's format: by a MachineConfig, else of the image.
pub const ALLOWED_SIGNERS: [&str; 2] = [
    "etc/mco-rescue/allowed_signers",
    "usr/lib/mco-rescue/allowed_signers",
];
/// The inputs for which a capsule is demanded, in the same places.
pub const CAPSULE_POLICY: [&str; 2] = ["etc/mco-rescue/policy", "usr/lib/mco-rescue/policy"];

/// State of this program.
pub const STATE: &str = "var/lib/mco-rescue";
/// Proves that this `var` is the node's real one.
pub const MARKER: &str = "var/lib/mco-rescue/marker";
/// Exists while the kubelet is stopped for a run.
pub const STOPPED: &str = "var/lib/mco-rescue/stopped.json";
/// The paths that a run is about to change.
pub const INTENT: &str = "var/lib/mco-rescue/intent.json";
/// All steps of a run; its existence is the commit point.
pub const JOURNAL: &str = "var/lib/mco-rescue/journal.json";
/// The steps of a run that has not changed any name on the state's file system yet: the journal before it is renamed.
pub const PREPARED_JOURNAL: &str = "var/lib/mco-rescue/.journal.json.new";
/// Exists once a run can only go forward.
pub const COMMITTED: &str = "var/lib/mco-rescue/committed";
/// The last run.
pub const STATUS: &str = "var/lib/mco-rescue/status.json";
/// A repository with what an archive has of an image, while ostree imports it.
pub const IMAGE_IMPORT: &str = "var/lib/mco-rescue/image-import";
/// Staging directories on the mount of `var`.
pub const STAGE: &str = "var/lib/mco-rescue/stage";
/// Old objects and journals of finished runs.
pub const HISTORY: &str = "var/lib/mco-rescue/history";

/// Snapshots of the flight recorder.
pub const RECORDER: &str = "var/lib/mco-rescue/recorder";
/// Copies of the newest snapshots, for a rescue system.
pub const BOOT_RECORDER: &str = "boot/mco-rescue";
/// Text files of which the flight recorder keeps copies; written by an admin.
pub const RECORDER_COPIES: &str = "etc/mco-rescue/recorder-copies";
/// The boot that is awaited.
pub const AWAITED: &str = "var/lib/mco-rescue/awaited.json";
/// Runs that changed the operating system too.
pub const OS_RUNS: &str = "var/lib/mco-rescue/os-runs.json";
/// Requests of configs for the operating system, by deployment.
pub const ASKED: &str = "var/lib/mco-rescue/asked.json";
/// Runs after which the node has to be rebooted.
pub const REBOOTS: &str = "var/lib/mco-rescue/reboots.json";
/// The trial that runs (`--try`).
pub const TRIAL: &str = "var/lib/mco-rescue/trial.json";
/// The result of the last trial.
pub const TRIAL_RESULT: &str = "var/lib/mco-rescue/trial-result.json";
/// Space reserved for the rollback of a trial.
pub const TRIAL_RESERVE: &str = "var/lib/mco-rescue/trial-reserve";
/// The configuration of `ostree-prepare-root`; the second file takes precedence.
pub const PREPARE_ROOT: [&str; 2] = [
    "usr/lib/ostree/prepare-root.conf",
    "etc/ostree/prepare-root.conf",
];
/// The copy of the program that guards a trial during this boot.
pub const GUARD_PROGRAM: &str = "run/mco-rescue/trial/mco-rescue";
/// The same if nothing below `/run` can be executed.
pub const GUARD_PROGRAM_KEPT: &str = "var/lib/mco-rescue/trial-guard";
/// Guards a trial after a reboot.
pub const TRIAL_UNIT: &str = "etc/systemd/system/mco-rescue-trial.service";
/// The trial unit in an image that includes it.
pub const IMAGE_TRIAL_UNIT: &str = "usr/lib/systemd/system/mco-rescue-trial.service";
/// Link that enables it.
pub const IMAGE_TRIAL_LINK: &str =
    "usr/lib/systemd/system/sysinit.target.wants/mco-rescue-trial.service";
/// Link that enables the trial unit.
pub const TRIAL_LINK: &str = "etc/systemd/system/sysinit.target.wants/mco-rescue-trial.service";
/// The directories that `install` created.
pub const INSTALL: &str = "var/lib/mco-rescue/install.json";
/// This program, where its units run it.
pub const PROGRAM: &str = "usr/local/bin/mco-rescue";
/// Finishes an interrupted run at boot.
pub const RECOVER_UNIT: &str = "etc/systemd/system/mco-rescue-recover.service";
/// Link that enables the recover unit.
pub const RECOVER_LINK: &str = "etc/systemd/system/sysinit.target.wants/mco-rescue-recover.service";
/// Verifies after a reboot that the staged deployment is running.
pub const COMPLETE_UNIT: &str = "etc/systemd/system/mco-rescue-complete.service";
/// Link that enables the complete unit.
pub const COMPLETE_LINK: &str =
    "etc/systemd/system/multi-user.target.wants/mco-rescue-complete.service";
/// Records the facts of a boot at its end.
pub const RECORD_UNIT: &str = "etc/systemd/system/mco-rescue-record.service";
/// Link that enables the unit that records.
pub const RECORD_LINK: &str =
    "etc/systemd/system/multi-user.target.wants/mco-rescue-record.service";
/// Path of a mask that lasts until the next boot.
pub const COMPLETE_RUNTIME_UNIT: &str = "run/systemd/system/mco-rescue-complete.service";
/// The completion unit in an image that includes it.
pub const IMAGE_COMPLETE_UNIT: &str = "usr/lib/systemd/system/mco-rescue-complete.service";
/// Link that enables it.
pub const IMAGE_COMPLETE_LINK: &str =
    "usr/lib/systemd/system/multi-user.target.wants/mco-rescue-complete.service";
/// The recovery unit in an image that includes it.
pub const IMAGE_RECOVER_UNIT: &str = "usr/lib/systemd/system/mco-rescue-recover.service";
/// Link that enables it.
pub const IMAGE_RECOVER_LINK: &str =
    "usr/lib/systemd/system/sysinit.target.wants/mco-rescue-recover.service";
/// Refreshes the cache.
pub const FETCH_SERVICE: &str = "etc/systemd/system/mco-rescue-fetch.service";
/// Starts that service from time to time.
pub const FETCH_TIMER: &str = "etc/systemd/system/mco-rescue-fetch.timer";
/// Link that enables the timer.
pub const TIMER_LINK: &str = "etc/systemd/system/timers.target.wants/mco-rescue-fetch.timer";
/// Prevents the presets of a first boot from disabling these units.
pub const PRESET: &str = "etc/systemd/system-preset/30-mco-rescue.preset";
/// Explains entries of the journal in `journalctl -x`.
pub const CATALOGUE: &str = "usr/local/lib/systemd/catalog/mco-rescue.catalog";
/// Time at which systemd last started the timer; written by systemd.
pub const TIMER_STAMP: &str = "var/lib/systemd/timers/stamp-mco-rescue-fetch.timer";
/// State of one boot.
pub const RUNTIME: &str = "run/mco-rescue";
/// While it exists, the recovery unit starts even if nothing is pending.
pub const CHECK: &str = "run/mco-rescue-check";
/// Exists where systemd runs.
pub const SYSTEMD_RUNS: &str = "run/systemd/system";

/// Rendered configs that were fetched, one per file.
pub const CACHE: &str = "var/lib/mco-rescue/cache";
/// Deployments that we pinned.
pub const PINS: &str = "var/lib/mco-rescue/pins.json";
/// Changes that were made in place of the cluster's controllers, with their objects.
pub const CHANGES: &str = "var/lib/mco-rescue/changes.json";
/// Address and authority of the Machine Config Server, as last known.
pub const SERVER: &str = "var/lib/mco-rescue/server.json";
/// Time of the server's clock at its last answer, together with that of the node.
pub const SERVER_CLOCK: &str = "var/lib/mco-rescue/server-clock.json";
/// The last capsule that was accepted, and who signed which config.
pub const CAPSULES: &str = "var/lib/mco-rescue/capsules.json";
/// The node's annotations, as the API last reported them.
pub const ANNOTATIONS: &str = "var/lib/mco-rescue/annotations.json";
/// The cluster's node disruption policies, as the API last reported them.
pub const POLICIES: &str = "var/lib/mco-rescue/disruption-policies.json";
/// Configs that the daemon updated to, from its log when it was last read.
pub const DAEMON_LOG: &str = "var/lib/mco-rescue/daemon-log.json";
/// Logs of containers: `NAMESPACE_POD_UID/CONTAINER/N.log`.
pub const POD_LOGS: &str = "var/log/pods";
/// The manifests of static pods that the kubelet runs.
pub const MANIFESTS: &str = "etc/kubernetes/manifests";
/// The revisions of static pods, and their certificates without a revision.
pub const STATIC_POD_RESOURCES: &str = "etc/kubernetes/static-pod-resources";
/// Manifests that a restore or `disable-etcd.sh` took out of the kubelet's directory.
pub const MANIFESTS_STOPPED: &str = "home/core/assets/manifests-stopped";
/// Logs of the daemon's previous pod.
pub const PREVIOUS_LOGS: &str = "etc/machine-config-daemon/previous-logs";
/// The kubelet's API address and its identity there.
pub const KUBELET_KUBECONFIG: &str = "var/lib/kubelet/kubeconfig";
/// The kubelet's client certificate for the API, with its key.
pub const KUBELET_CLIENT: &str = "var/lib/kubelet/pki/kubelet-client-current.pem";
/// The kubelet's serving certificate, with its key.
pub const KUBELET_SERVING: &str = "var/lib/kubelet/pki/kubelet-server-current.pem";
/// The daemon's message if its first boot failed to change the OS (openshift/machine-config-operator#6124).
pub const FIRST_PIVOT_FAILED: &str = "run/mcd-firstboot-pivot-failed";
/// Written at a shutdown that could not finalize the staged deployment, with the reason.
pub const FINALIZE_FAILURE: &str = "boot/ostree/finalize-failure.stamp";
/// Written by the daemon when the bootstrap's config does not exist in the cluster.
pub const BOOTSTRAP_DIFF: &str = "etc/machine-config-daemon/bootstrapconfigdiff";
/// The node's name, if it is fixed.
pub const HOSTNAME: &str = "etc/hostname";
/// The host of the API, which is also that of the Machine Config Server; shell assignments.
pub const APISERVER_URL: &str = "etc/kubernetes/apiserver-url.env";

/// The authority of the kubelet's clients; the daemon's updates skip it (docs/develop/agreement.md: Files).
pub const KUBELET_CA: &str = "etc/kubernetes/kubelet-ca.crt";
/// Files that the daemon does not validate, because it also writes them according to the cluster's state (docs/develop/agreement.md:
/// Validation).
pub const EXEMPT: [&str; 3] = [
    KUBELET_CA,
    "etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "etc/mco/internal-registry-pull-secret.json",
];
/// Files that are never deleted as stale (docs/develop/agreement.md: Stale files), besides everything below [`CERTS_D`].
pub const NEVER_STALE: [&str; 3] = [
    "etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    "etc/kubernetes/kubelet-ca.crt",
    "etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
];
/// Registry certificates, which the daemon manages outside the MachineConfig.
pub const CERTS_D: &str = "etc/docker/certs.d";
/// Links that older releases leaked; the daemon removes them in every update (docs/develop/agreement.md: Stale files). If a unit of the
/// config asks for one in `[Install]`, it stays.
pub const LEAKED_LINKS: [&str; 2] = [
    "etc/systemd/system/network-online.target.requires/node-valid-hostname.service",
    "etc/systemd/system/network-online.target.wants/ovs-configuration.service",
];
/// Files whose content is secret even if their mode does not show it.
pub const SECRETS: [&str; 6] = [
    "var/lib/kubelet/config.json",
    "etc/kubernetes/kubeconfig",
    KUBELET_KUBECONFIG,
    "etc/mco/internal-registry-pull-secret.json",
    "etc/shadow",
    "etc/gshadow",
];

#[cfg(test)]
mod tests {
    use crate::host::root::RootPath;

    #[test]
    fn every_constant_is_a_clean_root_relative_path() {
        let (constants, _) = include_str!("paths.rs").split_once("#[cfg(test)]").unwrap();
        let code = constants
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let paths: Vec<&str> = code
            .flat_map(|line| line.split('"').skip(1).step_by(2))
            .collect();
        assert!(paths.len() > 150, "{}", paths.len());
        for path in paths {
            let parsed = RootPath::parse(&format!("/{path}")).unwrap();
            assert_eq!(parsed.relative(), path);
        }
    }
}
