//! The start of the daemon as a table: every condition of the reconcile contract, the interaction matrix, first boots,
//! and every message that the daemon can end in, each with the smallest node that leads to it.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::{file, machine_config, say};
use mco_rescue::base::reason::Reason;
use mco_rescue::config::document::{self, MachineConfig};
use mco_rescue::judge::daemon::default_policies;
use mco_rescue::judge::daemon::first_boot::FirstBootWork;
use mco_rescue::judge::daemon::midway::Failure;
use mco_rescue::judge::daemon::release::Release;
use mco_rescue::judge::daemon::start::{
    Annotation, DaemonRecord, DiskComparison, KnownConfig, OF_CURRENT, Prediction, Situation,
    StartAnnotations, StartOs, State, Triggers, predict_start,
};
use mco_rescue::judge::drift::{Drift, DriftKind};
use mco_rescue::node::os_release::Class;
use serde_json::{Value, json};

const IMAGE: &str = "registry.example/os@sha256:0";
const OTHER: &str = "registry.example/os@sha256:1";
const LAYERED: &str = "registry.example/layered@sha256:2";

/// A node that may be changed before the daemon starts. As it is made it is settled in A.
struct Node {
    release: Release,
    annotations: StartAnnotations,
    single_replica: bool,
    api: BTreeSet<&'static str>,
    pool: Option<&'static str>,
    configs: BTreeMap<String, MachineConfig>,
    record: Recorded,
    image: Option<&'static str>,
    initial: Option<Result<StartAnnotations, Reason>>,
    triggers: Triggers,
    first_boot: FirstBootWork,
    os: StartOs,
    fips: Option<bool>,
    drifts: Vec<Drift>,
    root_cause: Option<&'static str>,
    failing: Option<Failure>,
}

enum Recorded {
    Missing,
    Broken(&'static str),
    Undecodable(Reason),
    Refused(&'static str, Reason),
    In(&'static str),
    /// In A, with an empty Ignition part, as a first boot leaves it.
    EmptiedA(Box<MachineConfig>),
}

fn emptied_a() -> Recorded {
    let (_, config) = config("a", |spec| {
        spec["config"] = json!({"ignition": {"version": "3.5.0"}});
    });
    Recorded::EmptiedA(Box::new(config))
}

fn config(name: &str, change: impl FnOnce(&mut Value)) -> (String, MachineConfig) {
    let mut value = machine_config(
        name,
        json!({"storage": {"files": [file("/etc/a", 0o644, name)]}}),
    );
    change(&mut value["spec"]);
    let config = document::parse_document(value.to_string().as_bytes(), "test").unwrap();
    (name.to_owned(), config)
}

fn is(name: &str) -> Annotation {
    Annotation::Is(name.to_owned())
}

/// What the server gives for a first boot.
fn first(name: &str) -> StartAnnotations {
    StartAnnotations {
        current: is(name),
        desired: is(name),
        current_image: Annotation::Absent,
        desired_image: Annotation::Absent,
    }
}

fn drift(kind: DriftKind, said: &str) -> Drift {
    Drift {
        kind,
        subject: "/etc/a".into(),
        detail: String::new(),
        daemon: Some(said.into()),
    }
}

const CONTENT: &str = "content mismatch for file \"/etc/a\"";

impl Node {
    fn settled() -> Self {
        let configs = [
            config("a", |_| {}),
            config("b", |_| {}),
            config("disk", |spec| {
                spec["config"]["storage"]["disks"] = json!([{"device": "/dev/vdb"}]);
            }),
            config("keys", |spec| {
                spec["config"]["storage"]["files"] = json!([file("/etc/a", 0o644, "a")]);
                spec["config"]["passwd"] =
                    json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-x y"]}]});
            }),
            config("fips", |spec| spec["fips"] = json!(true)),
            config("usbguard", |spec| spec["extensions"] = json!(["usbguard"])),
            config("ipsec", |spec| spec["extensions"] = json!(["ipsec"])),
            config("spec34", |spec| {
                spec["config"]["ignition"]["version"] = json!("3.4.0")
            }),
            config("spec36", |spec| {
                spec["config"]["ignition"]["version"] = json!("3.6.0")
            }),
            config("image", |spec| spec["osImageURL"] = json!(OTHER)),
            config("kubeconfig", |spec| {
                let own = file("/etc/kubernetes/kubeconfig", 0o600, "kind: Config");
                spec["config"]["storage"]["files"] = json!([own]);
            }),
            config("emptied", |spec| {
                spec["config"] = json!({"ignition": {"version": "3.5.0"}});
            }),
        ];
        Self {
            release: Release::NEWEST,
            annotations: first("a"),
            single_replica: false,
            api: [
                "a",
                "b",
                "c",
                "disk",
                "keys",
                "fips",
                "usbguard",
                "ipsec",
                "spec34",
                "spec36",
                "emptied",
                "image",
                "kubeconfig",
            ]
            .into(),
            pool: Some("a"),
            configs: configs.into(),
            record: Recorded::In("a"),
            image: Some(""),
            initial: None,
            triggers: Triggers {
                kubeconfig: true,
                ..Triggers::default()
            },
            first_boot: FirstBootWork::Unknown,
            os: StartOs {
                class: Class::EnterpriseCoreos,
                booted: Some(IMAGE.into()),
                packages: Some(BTreeSet::new()),
                podman: None,
            },
            fips: Some(false),
            drifts: Vec::new(),
            root_cause: None,
            failing: None,
        }
    }

    fn api_lacks(&mut self, name: &str) {
        assert!(self.api.remove(name));
    }

    fn start(&self) -> Prediction {
        let at_hand: BTreeMap<String, KnownConfig<'_>> = self
            .configs
            .iter()
            .map(|(name, config)| {
                let proven = true;
                (name.clone(), KnownConfig { config, proven })
            })
            .collect();
        let policies = default_policies();
        let compare = |_: &MachineConfig, _: Option<&str>| DiskComparison {
            drifts: self.drifts.clone(),
            os_unknown: self.os.booted.is_none(),
            root_cause: self.root_cause.map(str::to_owned),
        };
        let mut seen = predict_start(&Situation {
            release: self.release,
            node: "node0",
            annotations: &self.annotations,
            single_replica: self.single_replica,
            pool_target: self.pool,
            configs: &at_hand,
            record: match self.record {
                Recorded::Missing => DaemonRecord::Missing,
                Recorded::Broken(said) => DaemonRecord::Broken(said),
                Recorded::Undecodable(ref why) => DaemonRecord::Undecodable(why),
                Recorded::Refused(name, ref why) => DaemonRecord::Refused { name, why },
                Recorded::In(name) => DaemonRecord::Present(&self.configs[name]),
                Recorded::EmptiedA(ref config) => DaemonRecord::Present(config),
            },
            image: self.image,
            initial: self.initial.as_ref().map(Result::as_ref),
            triggers: self.triggers,
            first_boot: &self.first_boot,
            os: &self.os,
            fips: self.fips,
            policies: &policies,
            policies_known: false,
            overrides: None,
            compare: &compare,
            fails: &|_| self.failing.clone(),
        });
        // The daemon stops at the first object that it does not find.
        let mut needs = seen.needs.iter();
        let lacks = needs.find(|need| {
            let name = need.machine_config.as_str();
            name != OF_CURRENT && !self.api.contains(name)
        });
        if let Some(need) = lacks {
            (seen.state, seen.error) = (State::Degraded, Some(need.otherwise.clone()));
        }
        seen
    }
}

/// What has to come of a row. Of words, a part that has to be in `because`, or the whole error.
enum End {
    /// Done, nothing begun; and words on it.
    Adopted(&'static str),
    /// An update to this one: drain, reboot.
    Goes(&'static str, Option<bool>, Option<bool>),
    /// Degraded with exactly this.
    Degraded(&'static str),
    /// An update to this one that begins with a drain, does not get to its end, and leaves the record; with exactly this.
    Midway(&'static str, &'static str),
    /// The same, with a message that is not known; and words on it.
    MidwayOver(&'static str, &'static str),
    /// Degraded before anything has begun, with a message that is not known; and words on it.
    Over(&'static str),
    /// Unreconcilable with exactly this.
    Unreconcilable(&'static str),
    /// A rebase to this image before anything else.
    Pivots(&'static str),
    /// It cannot be told, for this reason.
    Unknown(&'static str),
}
use End::{Adopted, Degraded, Goes, Midway, MidwayOver, Over, Pivots, Unknown, Unreconcilable};

type Row = (&'static str, fn(&mut Node), End);

const BOTH: Option<bool> = Some(true);
const NOT: Option<bool> = Some(false);

const ROWS: &[Row] = &[
    // The interaction matrix: applied B, current A.
    ("settled", |_| {}, Adopted("")),
    (
        "applied B, desired B",
        |n| (n.record, n.annotations.desired) = (Recorded::In("b"), is("b")),
        Adopted(""),
    ),
    (
        "applied B, desired still A: the race, or not wanted",
        |n| n.record = Recorded::In("b"),
        Goes("a", BOTH, BOTH),
    ),
    (
        "applied B, desired C",
        |n| (n.record, n.annotations.desired) = (Recorded::In("b"), is("c")),
        Goes("c", None, None),
    ),
    // The thirteen conditions, each broken alone.
    (
        "2: the object of current is gone",
        |n| n.api_lacks("a"),
        Degraded("machineconfig.machineconfiguration.openshift.io \"a\" not found"),
    ),
    (
        "2: the object of desired is gone",
        |n| {
            n.annotations.desired = is("b");
            n.api_lacks("b");
        },
        Degraded("machineconfig.machineconfiguration.openshift.io \"b\" not found"),
    ),
    (
        "2: of current even where the record names another",
        |n| {
            (n.record, n.annotations.desired) = (Recorded::In("b"), is("b"));
            n.api_lacks("a");
        },
        Degraded("machineconfig.machineconfiguration.openshift.io \"a\" not found"),
    ),
    (
        "3: the record still says A",
        |n| (n.annotations.desired, n.drifts) = (is("b"), vec![drift(DriftKind::Content, CONTENT)]),
        Degraded(
            "unexpected on-disk state validating against a: content mismatch for file \"/etc/a\"",
        ),
    ),
    (
        "3: no record, files A, desired B",
        |n| (n.record, n.annotations.desired) = (Recorded::Missing, is("b")),
        Goes("b", BOTH, BOTH),
    ),
    (
        "3: an empty record",
        |n| n.record = Recorded::Broken("EOF"),
        Degraded("EOF"),
    ),
    (
        "3: a record that is cut off",
        |n| n.record = Recorded::Broken("unexpected EOF"),
        Degraded("unexpected EOF"),
    ),
    (
        "3: the record has no Ignition part",
        |n| {
            (n.record, n.annotations) = (Recorded::In("emptied"), first("emptied"));
        },
        Adopted("removes no stale one"),
    ),
    (
        "3: a record that only the daemon can read, of the same name",
        |n| n.record = Recorded::Refused("a", "kernelType=x is invalid".into()),
        Adopted(""),
    ),
    (
        "3: the same, and the Node has no annotations",
        |n| {
            n.record = Recorded::Refused("a", "kernelType=x is invalid".into());
            n.annotations.current = Annotation::Absent;
        },
        Adopted("currentConfig comes from the record"),
    ),
    (
        "3: the same, and another one is desired",
        |n| {
            n.record = Recorded::Refused("a", "kernelType=x is invalid".into());
            n.annotations.desired = is("b");
        },
        Unknown("is refused here: kernelType=x is invalid"),
    ),
    (
        "3: the same, and the files differ",
        |n| {
            n.record = Recorded::Refused("a", "kernelType=x is invalid".into());
            n.drifts = vec![drift(DriftKind::Content, CONTENT)];
        },
        Degraded(
            "unexpected on-disk state validating against a: content mismatch for file \"/etc/a\"",
        ),
    ),
    (
        "3: a record that only the daemon can read, of another name",
        |n| n.record = Recorded::Refused("b", "kernelType=x is invalid".into()),
        Unknown("is refused here: kernelType=x is invalid"),
    ),
    (
        "3: a record that only the daemon can read, without a name",
        |n| n.record = Recorded::Refused("", "metadata.name: missing".into()),
        Unknown("is refused here: metadata.name: missing"),
    ),
    (
        "3: a record with a field of another type",
        |n| n.record = Recorded::Undecodable("spec.fips is not true or false".into()),
        Over(
            "it cannot read /etc/machine-config-daemon/currentconfig: spec.fips is not true or false",
        ),
    ),
    (
        "4: a layered image nobody wants",
        |n| n.image = Some(LAYERED),
        Goes("a", BOTH, BOTH),
    ),
    (
        "4: the layered image that is wanted",
        |n| (n.image, n.annotations.desired_image) = (Some(LAYERED), is(LAYERED)),
        Adopted(""),
    ),
    (
        "4: and does not run",
        |n| {
            (n.image, n.annotations.desired_image) = (Some(LAYERED), is(LAYERED));
            let said = "expected target osImageURL \"registry.example/layered@sha256:2\", have \"registry.example/os@sha256:0\"";
            n.drifts = vec![drift(DriftKind::Image, said)];
        },
        Degraded(
            "unexpected on-disk state validating against registry.example/layered@sha256:2: expected target osImageURL \
             \"registry.example/layered@sha256:2\", have \"registry.example/os@sha256:0\"",
        ),
    ),
    (
        "5: node-annotations.json is there: the record does not count",
        |n| (n.initial, n.record) = (Some(Ok(first("a"))), Recorded::In("b")),
        Adopted("is ignored, as the daemon treats this as a first boot"),
    ),
    (
        "6: another image runs",
        |n| {
            n.drifts = vec![drift(
                DriftKind::Image,
                "expected target osImageURL \"x\", have \"y\"",
            )]
        },
        Degraded(
            "unexpected on-disk state validating against a: expected target osImageURL \"x\", have \"y\"",
        ),
    ),
    (
        "6: as what was staged could not be written",
        |n| {
            n.drifts = vec![drift(
                DriftKind::Image,
                "expected target osImageURL \"x\", have \"y\"",
            )];
            n.root_cause = Some("error: No space left on device");
        },
        Degraded(
            "unexpected on-disk state validating against a: expected target osImageURL \"x\", have \"y\"; possible root \
             cause: error: No space left on device",
        ),
    ),
    (
        "7: kernel arguments are missing",
        |n| {
            n.drifts = vec![drift(
                DriftKind::Arguments,
                "missing expected kernel arguments: [a b]",
            )]
        },
        Degraded(
            "unexpected on-disk state validating against a: missing expected kernel arguments: [a b]",
        ),
    ),
    (
        "8: the operating system is looked at first",
        |n| {
            let image = drift(
                DriftKind::Image,
                "expected target osImageURL \"x\", have \"y\"",
            );
            n.drifts = vec![image, drift(DriftKind::Content, CONTENT)];
        },
        Degraded(
            "unexpected on-disk state validating against a: expected target osImageURL \"x\", have \"y\"",
        ),
    ),
    (
        "9: a package of an extension is missing",
        |n| (n.record, n.annotations) = (Recorded::In("usbguard"), first("usbguard")),
        Degraded(
            "extension package verification failed: extension \"usbguard\" verification failed: no valid package set is \
             fully installed. Tried 1 package set(s), missing packages per set: [[usbguard]]",
        ),
    ),
    (
        "9: of two sets neither is whole",
        |n| {
            (n.record, n.annotations) = (Recorded::In("ipsec"), first("ipsec"));
            n.os.packages = Some(["libreswan".to_owned()].into());
        },
        Degraded(
            "extension package verification failed: extension \"ipsec\" verification failed: no valid package set is \
             fully installed. Tried 2 package set(s), missing packages per set: [[NetworkManager-libreswan \
             openvswitch3.5-ipsec] [NetworkManager-libreswan]]",
        ),
    ),
    (
        "9: the older set is whole",
        |n| {
            (n.record, n.annotations) = (Recorded::In("ipsec"), first("ipsec"));
            n.os.packages = Some(
                ["libreswan", "NetworkManager-libreswan"]
                    .map(str::to_owned)
                    .into(),
            );
        },
        Adopted(""),
    ),
    (
        "9: rpm was not asked",
        |n| {
            (n.record, n.annotations) = (Recorded::In("usbguard"), first("usbguard"));
            n.os.packages = None;
        },
        Adopted("if the packages of its extensions are installed: usbguard"),
    ),
    (
        "9: Fedora has no extensions to the daemon",
        |n| {
            (n.record, n.annotations) = (Recorded::In("usbguard"), first("usbguard"));
            n.os.class = Class::Coreos;
        },
        Adopted(""),
    ),
    (
        "10: the encapsulated file",
        |n| n.triggers.encapsulated = true,
        Adopted("the first-boot service runs first"),
    ),
    (
        "11: the revert service",
        |n| n.triggers.revert = true,
        Adopted("the revert service runs first"),
    ),
    (
        "11: a staged deployment",
        |n| n.triggers.staged = true,
        Adopted("a deployment is staged"),
    ),
    (
        "11: the repository of extensions",
        |n| n.triggers.repository = true,
        Adopted("coreos-extensions.repo is stale"),
    ),
    (
        "11: the force file",
        |n| n.triggers.force = true,
        Goes("a", BOTH, BOTH),
    ),
    (
        "11: the force file, over drift",
        |n| (n.triggers.force, n.drifts) = (true, vec![drift(DriftKind::Content, CONTENT)]),
        Goes("a", BOTH, BOTH),
    ),
    (
        "12: no kubeconfig, but nothing to do",
        |n| n.triggers.kubeconfig = false,
        Adopted("the next update fails without it"),
    ),
    (
        "12: no kubeconfig at an update",
        |n| (n.triggers.kubeconfig, n.annotations.desired) = (false, is("b")),
        Degraded(
            "cannot stat /etc/kubernetes/kubeconfig: stat /etc/kubernetes/kubeconfig: no such file or directory",
        ),
    ),
    // Annotations.
    (
        "a Node without annotations, and a record",
        |n| n.annotations = absent(),
        Degraded(
            "machineconfiguration.openshift.io/desiredConfig annotation not found on node 'node0'",
        ),
    ),
    (
        "a Node without annotations, no record, no first boot",
        |n| (n.annotations, n.record) = (absent(), Recorded::Missing),
        Degraded("open /etc/machine-config-daemon/currentconfig: no such file or directory"),
    ),
    (
        "a Node without annotations and a broken record",
        |n| (n.annotations, n.record) = (absent(), Recorded::Broken("EOF")),
        Degraded("EOF"),
    ),
    (
        "desired alone is missing",
        |n| n.annotations.desired = Annotation::Absent,
        Degraded(
            "machineconfiguration.openshift.io/desiredConfig annotation not found on node 'node0'",
        ),
    ),
    (
        "nothing is known",
        |n| n.annotations = StartAnnotations::default(),
        Unknown("the cluster's desired config"),
    ),
    (
        "nothing is known of current, and there is no record",
        |n| {
            n.annotations = StartAnnotations {
                desired: is("a"),
                ..StartAnnotations::default()
            };
            n.record = Recorded::Missing;
        },
        Unknown("the node has no record"),
    ),
    (
        "the config that is compared is not available",
        |n| (n.record, n.annotations) = (Recorded::Missing, first("c")),
        Unknown("which is not available here"),
    ),
    // First boots.
    (
        "a first boot",
        |n| {
            (n.initial, n.record, n.annotations) =
                (Some(Ok(first("a"))), Recorded::Missing, absent())
        },
        Adopted(""),
    ),
    (
        "a first boot of which the Node knows another goal",
        |n| {
            (n.initial, n.record) = (Some(Ok(first("a"))), Recorded::Missing);
            n.annotations.desired = is("b");
        },
        Goes("b", BOTH, BOTH),
    ),
    (
        "a first boot with a config that the API lacks",
        |n| {
            (n.initial, n.annotations, n.pool) = (Some(Ok(first("x"))), absent(), Some("a"));
            n.record = Recorded::Refused("x", "the daemon reads its name".into());
        },
        Degraded(
            "bootstrap generated MC x and in-cluster generated MC a for this node do not match. Please check \
             machine-config-daemon logs or the on disk diff file located at \
             /etc/machine-config-daemon/bootstrapconfigdiff",
        ),
    ),
    (
        "the same, and no record",
        |n| {
            (n.initial, n.annotations, n.record) =
                (Some(Ok(first("x"))), absent(), Recorded::Missing);
        },
        Degraded(
            "error fetching current config on disk during bootstrap: open \
             /etc/machine-config-daemon/currentconfig: no such file or directory, config: <nil>",
        ),
    ),
    (
        "the same, and the record of another one",
        |n| (n.initial, n.annotations) = (Some(Ok(first("x"))), absent()),
        Degraded("error current config a on disk does not match current config on annotation: x"),
    ),
    (
        "a first boot whose desired config the API lacks",
        |n| {
            (n.initial, n.record) = (Some(Ok(first("a"))), Recorded::Missing);
            n.annotations.desired = is("b");
            n.api_lacks("b");
        },
        Degraded("machineconfig.machineconfiguration.openshift.io \"b\" not found"),
    ),
    (
        "a first boot with another image",
        |n| {
            (n.initial, n.record, n.annotations) =
                (Some(Ok(first("a"))), Recorded::Missing, absent());
            n.os.booted = Some(OTHER.into());
        },
        Pivots(IMAGE),
    ),
    (
        "a first boot with another image, and a podman that fails",
        |n| {
            (n.initial, n.record, n.annotations) =
                (Some(Ok(first("a"))), Recorded::Missing, absent());
            n.os.booted = Some(OTHER.into());
            n.os.podman = Some("exit status 125\nno space\n".into());
        },
        Degraded(
            "error running podman images --format=json --filter reference=registry.example/os@sha256:0: exit status \
             125\nno space\n",
        ),
    ),
    (
        "a first boot of which nobody knows what runs",
        |n| {
            (n.initial, n.record, n.annotations) =
                (Some(Ok(first("a"))), Recorded::Missing, absent());
            n.os.booted = None;
        },
        Adopted("otherwise the daemon rebases to it and reboots first"),
    ),
    (
        "a first boot with drift",
        |n| {
            (n.initial, n.record, n.annotations) =
                (Some(Ok(first("a"))), Recorded::Missing, absent());
            n.drifts = vec![drift(DriftKind::Content, CONTENT)];
        },
        Degraded(
            "unexpected on-disk state validating against a: content mismatch for file \"/etc/a\"",
        ),
    ),
    (
        "a first boot with annotations that cannot be read",
        |n| (n.initial, n.annotations) = (Some(Err("EOF".into())), absent()),
        Degraded("failed to unmarshal initial annotations: EOF"),
    ),
    // Updates.
    (
        "of the only node",
        |n| (n.single_replica, n.annotations.desired) = (true, is("b")),
        Goes("b", NOT, BOTH),
    ),
    (
        "keys alone",
        |n| n.annotations.desired = is("keys"),
        Goes("keys", NOT, NOT),
    ),
    (
        "what the daemon never does",
        |n| n.annotations.desired = is("disk"),
        Unreconcilable(
            "can't reconcile config a with disk: configs a, disk are not reconcilable: new machineconfig \"a\" is not \
             reconcilable against \"disk\": ignition disks section contains changes",
        ),
    ),
    (
        "FIPS",
        |n| n.annotations.desired = is("fips"),
        Unreconcilable(
            "can't reconcile config a with fips: configs a, fips are not reconcilable: new machineconfig \"a\" is not \
             reconcilable against \"fips\": detected change to FIPS flag; refusing to modify FIPS on a running cluster",
        ),
    ),
    (
        "FIPS of the kernel",
        |n| (n.fips, n.annotations.desired) = (Some(true), is("b")),
        Unreconcilable(
            "can't reconcile config a with b: detected change to FIPS flag; refusing to modify FIPS on a running cluster",
        ),
    ),
    (
        "keys alone, where the record of A has no Ignition part: every file is new",
        |n| (n.record, n.annotations.desired) = (emptied_a(), is("keys")),
        Goes("keys", BOTH, BOTH),
    ),
    (
        "an update over a user that is not there",
        |n| {
            n.annotations.desired = is("b");
            n.failing = Some(Failure::Says("failed to retrieve UserID".into()));
        },
        Midway("b", "failed to retrieve UserID"),
    ),
    (
        "an update over a unit that cannot be enabled",
        |n| {
            n.annotations.desired = is("b");
            n.failing = Some(Failure::Over("unit x cannot be enabled".into()));
        },
        MidwayOver("b", "unit x cannot be enabled"),
    ),
    (
        "what an update would fail over, and no update",
        |n| n.failing = Some(Failure::Over("unit x cannot be enabled".into())),
        Adopted(""),
    ),
    (
        "an update without the kubeconfig",
        |n| (n.triggers.kubeconfig, n.annotations.desired) = (false, is("b")),
        Midway("b", NO_KUBECONFIG),
    ),
    (
        "an update that brings it",
        |n| (n.triggers.kubeconfig, n.annotations.desired) = (false, is("kubeconfig")),
        Goes("kubeconfig", BOTH, BOTH),
    ),
    (
        "an update that drops it",
        |n| (n.record, n.annotations) = (Recorded::In("kubeconfig"), to_b_from("kubeconfig")),
        Midway("b", NO_KUBECONFIG),
    ),
    (
        "an update to another image, where podman does not answer",
        |n| (n.os.podman, n.annotations.desired) = (Some("exit status 1\n".into()), is("image")),
        Midway(
            "image",
            "error running podman images --format=json --filter reference=registry.example/os@sha256:1: exit status 1\n",
        ),
    ),
    (
        "where podman does not answer, and no other image is wanted",
        |n| (n.os.podman, n.annotations.desired) = (Some("exit status 1\n".into()), is("b")),
        Goes("b", BOTH, BOTH),
    ),
    // Version skew.
    (
        "a version of Ignition that no daemon takes yet",
        |n| (n.record, n.annotations) = (Recorded::In("spec36"), first("spec36")),
        Degraded(
            "unexpected on-disk state validating against spec36: failed to parse Ignition for validation: parsing \
             Ignition config failed: unknown version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4,3.5",
        ),
    ),
    (
        "a version of Ignition that an older daemon does not take",
        |n| n.release = "4.18".parse().unwrap(),
        Degraded(
            "unexpected on-disk state validating against a: failed to parse Ignition for validation: parsing Ignition \
             config failed: unknown version. Supported spec versions: 2.2,3.0,3.1,3.2,3.3,3.4",
        ),
    ),
    (
        "and one that it takes",
        |n| {
            n.release = "4.18".parse().unwrap();
            (n.record, n.annotations) = (Recorded::In("spec34"), first("spec34"));
        },
        Adopted(""),
    ),
    (
        "a unit that is on and should be off",
        |n| {
            n.drifts = vec![drift(
                DriftKind::Enablement,
                "unit \"u\" expected enabled=false, but systemd reports \"enabled\"",
            )]
        },
        Degraded(
            "unexpected on-disk state validating against a: unit \"u\" expected enabled=false, but systemd reports \
             \"enabled\"",
        ),
    ),
    (
        "which an older daemon does not see",
        |n| {
            n.release = "4.19.0".parse().unwrap();
            n.drifts = vec![drift(
                DriftKind::Enablement,
                "unit \"u\" expected enabled=false, but systemd reports \"enabled\"",
            )];
        },
        Adopted(""),
    ),
    (
        "packages that an older daemon does not ask for",
        |n| {
            n.release = "4.20.0".parse().unwrap();
            (n.record, n.annotations) = (Recorded::In("usbguard"), first("usbguard"));
        },
        Adopted(""),
    ),
];

const NO_KUBECONFIG: &str = "cannot stat /etc/kubernetes/kubeconfig: stat /etc/kubernetes/kubeconfig: no such file or directory";

fn to_b_from(name: &str) -> StartAnnotations {
    StartAnnotations {
        desired: is("b"),
        ..first(name)
    }
}

fn absent() -> StartAnnotations {
    StartAnnotations {
        current: Annotation::Absent,
        desired: Annotation::Absent,
        current_image: Annotation::Absent,
        desired_image: Annotation::Absent,
    }
}

fn check(what: &str, seen: &Prediction, end: &End) {
    let state = (seen.state, seen.error.as_deref());
    let begins = seen.update.as_ref().map(|update| update.to.as_str());
    let because = seen.because.join("; ");
    match end {
        Adopted(words) => {
            assert_eq!(state, (State::Done, None), "{what}: {because}");
            assert_eq!(
                (begins, seen.drain, seen.reboot),
                (None, NOT, NOT),
                "{what}"
            );
            assert!(because.contains(words), "{what}: {because}");
            assert_eq!(because.is_empty(), words.is_empty(), "{what}: {because}");
        }
        Goes(to, drain, reboot) => {
            assert_eq!(begins, Some(*to), "{what}: {state:?}");
            assert_eq!((seen.drain, seen.reboot), (*drain, *reboot), "{what}");
            let ends = if *reboot == NOT {
                State::Done
            } else {
                State::Working
            };
            assert_eq!(state, (ends, None), "{what}");
            assert_eq!(seen.record_after.as_deref(), Some(*to), "{what}");
            assert!(!seen.force_file_after, "{what}");
        }
        Degraded(said) => assert_eq!(state, (State::Degraded, Some(*said)), "{what}: {because}"),
        Over(words) => {
            assert_eq!(state, (State::Degraded, None), "{what}");
            assert!(because.contains(words), "{what}: {because}");
            assert_eq!(begins, None, "{what}");
        }
        Midway(to, said) => {
            assert_eq!(state, (State::Degraded, Some(*said)), "{what}: {because}");
            begun(what, seen, to);
        }
        MidwayOver(to, words) => {
            assert_eq!(state, (State::Degraded, None), "{what}");
            assert!(because.contains(words), "{what}: {because}");
            begun(what, seen, to);
        }
        Unreconcilable(said) => {
            assert_eq!(state, (State::Unreconcilable, Some(*said)), "{what}");
            assert_eq!(begins, None, "{what}");
        }
        Pivots(image) => {
            assert_eq!(seen.pivot.as_deref(), Some(*image), "{what}");
            assert_eq!((seen.state, seen.reboot), (State::Working, BOTH), "{what}");
            assert!(seen.node_annotations_after, "{what}");
        }
        Unknown(words) => {
            assert_eq!(state, (State::Unknown, None), "{what}");
            assert!(because.contains(words), "{what}: {because}");
            assert_eq!((seen.drain, seen.reboot), (None, None), "{what}");
        }
    }
}

/// Begun with a drain, and ended before the reboot and the record.
fn begun(what: &str, seen: &Prediction, to: &str) {
    let update = seen.update.as_ref().unwrap();
    assert_eq!(update.to, to, "{what}");
    assert_eq!((seen.drain, seen.reboot), (BOTH, NOT), "{what}");
    assert_eq!(seen.record_after.as_ref(), Some(&update.from), "{what}");
}

#[test]
fn every_condition_alone_leads_to_the_daemons_words() {
    for (what, change, end) in ROWS {
        let mut node = Node::settled();
        change(&mut node);
        check(what, &node.start(), end);
    }
    say(&format!("{} rows", ROWS.len()));
}

#[test]
fn a_first_boot_ends_with_its_annotations_put_away_and_a_record() {
    let mut node = Node::settled();
    (node.initial, node.record, node.annotations) =
        (Some(Ok(first("a"))), Recorded::Missing, absent());
    let seen = node.start();
    assert!(!seen.node_annotations_after);
    assert_eq!(seen.record_after.as_deref(), Some("a"));
    let renamed: Vec<(&str, &str)> = seen
        .renamed
        .iter()
        .map(|one| (one.from.as_str(), one.to.as_str()))
        .collect();
    assert_eq!(
        renamed,
        [(
            "/etc/machine-config-daemon/node-annotations.json",
            "/etc/machine-config-daemon/node-annotation.json.bak"
        )]
    );
}
