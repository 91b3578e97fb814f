//! The fuzz targets on a short corpus: the fixtures, the example, what once went wrong, and a few thousand
//! mutations of them, the same in every run.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use crate::support::fuzz_targets::{TARGETS, Target, sound_database};
use crate::support::say;

/// What a target once failed on, and pieces that lead it to rarely used code.
const SEEDS: &[(&str, &[u8])] = &[
    // A line with too few fields was read, and the next one changed.
    ("accounts", b"core:!broken\ncore:*:19000:0:99999:7:::\n"),
    // The blanks after a Unicode line separator were read as text.
    ("go_yaml", b"\x04\x01\x01a\x05\x0d\xe2\x80\xa8       12:"),
    ("data_url", b"data:text/plain;charset=\"a,b\";base64,eA=="),
    ("data_url", b";base64,YR=="),
    ("data_url", b",a%20b?c"),
    ("gunzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x4b\x04\x00\x43\xbe\xb7\xe8\x01\x00\x00\x00"),
    ("units", b"[Unit]\nAfter=a.service \\\n b.service\n; comment \\\n[Install]\nWantedBy=%i.target\nAlso=a@%j.socket\nAlias=b.service\n"),
    ("units", b"enable a@.service b c\ndisable *.[st]ocket\nignore a?.service\n"),
    ("accounts", b"root:x:0:0::/root:/bin/sh\ncore:!*:1000:1001::/home/core:/bin/bash\n"),
    ("accounts", b"wheel:x:10:core,root\ncore:*:19000:0:99999:7:::"),
    ("go_yaml", b"\x04\x04\x01a\x05\x09- a: b #c\x02on\x07\x0612:30 \x03'a'\x05\x04\n\n a\x01~\x03\x02\x02\x01\x02\x00"),
    ("kargs", b"root=x console=tty0 a=1 a=1 b\na=1 b console=tty0\nb a=2 \"c d\" console=ttyS0 console=tty0"),
    ("kargs", b"k=1 k k=2\nk k=1\nk=2 k"),
    ("answers", b"error: Creating importer: failed to invoke method OpenImage: open /m/os/index.json: no such file or directory"),
    ("answers", b"error: Transaction in progress: rebase x\n You can cancel\nerror: Importing: min-free-space-percent '3%' would be exceeded"),
    ("answers", b"{\"deployments\": [{\"osname\": \"a\", \"checksum\": \"b\", \"serial\": 0, \"booted\": true, \"container-image-reference\": \"ostree-unverified-registry:a.b/c:1\"}], \"transaction\": [\"x\"]}"),
    ("answers", b"quay.example/os:1\n[[registry]]\nprefix = \"quay.example\"\nblocked = true\n[[registry.mirror]]\nlocation = \"m.b\"\n"),
    ("answers", b"quay.example/os:1\n{\"default\": [{\"type\": \"reject\"}], \"transports\": {\"docker\": {\"quay.example\": [{\"type\": \"x\"}]}}, \"auths\": {\"a\": {}}}"),
    ("answers", b"kind: MachineConfiguration\nmetadata: {generation: 1}\nspec: {nodeDisruptionPolicy: {sshkey: {actions: [{type: Reload}]}}}\n"),
    ("answers", b"title x\nversion 2\noptions a ostree=/b\nlinux /ostree/c/vmlinuz\nID='x'\n"),
    // Records of the log: sum, ids, snapshot, entry, state. A snapshot: data with its position.
    ("etcd_log", b"\x04\x00\x01\x04\x08\x07\x10\x08\x05\x04\x08\x00\x10\x00\x02\x06\x08\x00\x10\x01\x18\x01\x03\x06\x08\x01\x10\x01\x18\x01"),
    ("etcd_log", b"\x04\x00\x01\x04\x08\x07\x10\x08\x05\x16\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02\x0f\x08\x00\x10\x01\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ("etcd_log", b"\x0a\x02{}\x12\x06\x0a\x00\x10\x07\x18\x01"),
    // A length of 2^60.
    ("etcd_log", b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x10{}"),
    ("etcd_log", b"\x10\x00\x00\x00\x00\x00\x00\x10\x08\x04\x10\x00"),
    ("etcd_database", b"\x0a\x10\x01\x10\x10\xff\x0f\x0c\x7f"),
    ("ovsdb", b"OVSDB JSON 25 eb4c2590f8310518b2c3521154925f537f0e39c3\n{\"name\":\"a\",\"tables\":{}}\nOVSDB JSON 7 ee6093f27ea000b9b837f4a91ac7199131483d31\n{\"b\":1}"),
    ("ovsdb", b"OVSDB CLUSTER 1152921504606846976 eb4c2590f8310518b2c3521154925f537f0e39c3\n{}"),
    ("checkpoints", b"{\"policyName\":\"static\",\"defaultCpuSet\":\"0-3\",\"entries\":{\"pod\":{\"a\":\"1,2\"}},\"checksum\":1}"),
    ("checkpoints", b"{\"policyName\":\"Static\",\"machineState\":{\"0\":{\"numberOfAssignments\":1,\"memoryMap\":{\"memory\":{\"total\":1}},\"cells\":[0]}},\"entries\":{\"p\":{\"a\":[{\"numaAffinity\":[0],\"type\":\"memory\",\"size\":1}]}},\"checksum\":2}"),
    ("checkpoints", b"4.18.3\n{\"data\":\"{}\",\"checksum\":18446744073709551615}"),
    ("luks", b"{\"keyslots\":{\"0\":{}},\"tokens\":{\"0\":{\"type\":\"clevis\",\"keyslots\":[\"0\"],\"jwe\":{\"protected\":\"eyJjbGV2aXMiOnsicGluIjoidHBtMiIsInRwbTIiOnsicGNyX2lkcyI6IjQsNyJ9fX0\"}}}}"),
    ("node_files", b"\x01\x00\x00\x00\x1e\x00C\x00\x00\x00\x04\x01\x2a\x00aaaabbbbbbbbccccccccGGGGGGGGGGGGGGGG\x02\x02\x04\x04\x08\x00A\x00\x00\x00\x7f\xff\x04\x00"),
    ("node_files", b"vrrp_script chk {\n script \"/usr/bin/a\"\n}\nvrrp_instance a_API_0 {\n interface br-ex\n unicast_src_ip 192.0.2.1\n unicast_peer {\n 192.0.2.2\n }\n virtual_ipaddress {\n 192.0.2.9/32\n }\n}\n"),
    ("node_files", b"totem {\n config_version: 1\n}\nnodelist {\n node {\n ring0_addr: 192.0.2.1\n name: a\n }\n}\nexport NODE_a_IP=\"192.0.2.1\"\nserver a\n"),
    ("recorder", b"{\"facts\":{\"etc\":{\"/etc/fstab\":\"0644 9 bytes\"}},\"unseen\":{\"clock\":\"x\"},\"copies\":{\"/a\":\"b\"}}"),
    ("recorder", b"{\"version\":1,\"number\":1,\"at\":1,\"event\":\"boot\",\"outcome\":\"good\",\"boot\":null,\"key\":\"a\",\"parts\":{},\"missing\":[]}"),
    ("recorder", b"digest 1 2 3.4 5.6 /etc/a b\nother 18446744073709551615 -1 -9223372036854775808.0 0.0 /b\r\r\nsnapshot-000001.json"),
    ("recipients", b"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBdBmyV7tmBKXQFcrHRXpnDTYlFTREUPCl0aYrhYEcEO me"),
    ("recipients", b"\x03\x00\x03\xff\xff\xff\xff\xff\xff\xff\xff"),
    ("fleet", b"{\"schema\":\"mco-rescue/status/v1\",\"recorded\":\"rendered-worker-1\",\"now\":1,\"os\":{\"booted\":\"a\",\"by_hand\":[\"x\"]},\"pending\":\"staged\",\"daemon\":{\"branches\":[{\"prediction\":{\"state\":\"done\"}}]}}\n{\"schema\":\"mco-rescue/status/v1\",\"recorded\":\"rendered-worker-2\",\"now\":2}\n{\"schema\":\"mco-rescue/doctor/v1\",\"findings\":[{\"id\":\"FP-01\",\"severity\":\"warning\",\"what\":\"a\"}]}\nworker-2/status.json\nworker-99999999999999999999.tar.gz"),
    ("kubelet_configs", b"maxPods: 250\nvolumeStatsAggPeriod: 0s\nsystemCgroups: /a\n---\n---\napiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: a}\nspec:\n  logLevel: 3\n  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ''}}\n  kubeletConfig: {maxPods: 300, syncFrequency: 90s, reservedSystemCPUs: '0', systemReserved: {memory: 1Gi}, reservedMemory: [{limits: {memory: 1.5Gi}}]}\n---\n---\nmaxPods=300\nevictionHard.a=1"),
    ("kubelet_configs", b"kind: a\n---\n---\napiVersion: config.openshift.io/v1\nkind: Node\nmetadata: {name: cluster}\nspec: {workerLatencyProfile: LowUpdateSlowReaction, cgroupMode: v2}\n---\napiVersion: config.openshift.io/v1\nkind: APIServer\nmetadata: {name: cluster}\nspec: {tlsSecurityProfile: {type: Old}}"),
    ("runtime_configs", b"[storage]\ndriver = \"overlay\"\n[storage.options]\n# size = \"\"\nsize = \"\"\n---\n---\napiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: a}\nspec:\n  machineConfigPoolSelector: {matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ''}}\n  containerRuntimeConfig: {pidsLimit: 4096, logLevel: debug, logSizeMax: 1Gi, overlaySize: 8G, defaultRuntime: crun}\n---\n---\npidsLimit=4096\noverlaySize=20G"),
    ("runtime_configs", b"a = 1\n---\n---\napiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata: {name: '\"a'}\nspec:\n  machineConfigPoolSelector: {matchLabels: {a: b}}\n  containerRuntimeConfig: {logLevel: '\"', defaultRuntime: runc}\n---\n---\nlogLevel=\ndefaultRuntime=kata"),
    ("registries", b"apiVersion: config.openshift.io/v1\nkind: Image\nmetadata: {name: cluster}\nspec: {registrySources: {insecureRegistries: ['*.a.test'], blockedRegistries: [q.io/a]}}\n---\napiVersion: config.openshift.io/v1\nkind: ImageDigestMirrorSet\nmetadata: {name: a}\nspec: {imageDigestMirrors: [{source: q.io, mirrors: [m.test/a, q.io], mirrorSourcePolicy: AllowContactingSource}]}\n---\napiVersion: config.openshift.io/v1\nkind: ClusterVersion\nmetadata: {name: version}\nstatus: {desired: {image: 'r.test/a@sha256:1111111111111111111111111111111111111111111111111111111111111111'}}\n---\napiVersion: config.openshift.io/v1\nkind: ClusterImagePolicy\nmetadata: {name: a}\nspec: {scopes: [q.io, '*.a.test'], policy: {rootOfTrust: {policyType: PublicKey, publicKey: {keyData: a2V5}}}}\n---8<---\nunqualified-search-registries = [\"docker.io\"]\nshort-name-mode = \"\"\nadditional-layer-store-auth-helper = \"\"\n\n[[registry]]\n  prefix = \"\"\n  location = \"q.io\"\n  blocked = true\n\n  [[registry.mirror]]\n    location = \"m.test/a\"\n    pull-from-mirror = \"digest-only\"\n\n---8<---\n{\n  \"default\": [\n    {\n      \"type\": \"reject\"\n    }\n  ],\n  \"transports\": {}\n}"),
    ("registries", b"m.test/x\n---8<---\nunqualified-search-registries = [\"docker.io\"]\nshort-name-mode = \"\"\nadditional-layer-store-auth-helper = \"\"\n\n[[registry]]\n  prefix = \"\"\n  location = \"q.io\"\n  blocked = true\n\n  [[registry.mirror]]\n    location = \"m.test/a\"\n    pull-from-mirror = \"digest-only\"\n"),
    ("butane", b"variant: openshift\nversion: 4.22.0\nmetadata:\n  name: a\n  labels: {machineconfiguration.openshift.io/role: worker}\nstorage:\n  files:\n  - &a\n    path: /etc/a\n    mode: 0644\n    contents:\n      inline: |\n        x\n  - <<: *a\n    path: /etc/b\nsystemd:\n  units:\n  - {name: a.service, enabled: yes, contents: \"[Install]\\nWantedBy=a\"}\nopenshift:\n  kernel_arguments: [a=b, 'c: d']\n  fips: true\n"),
    ("butane", b"variant: openshift\nversion: 4.19.0\nmetadata:\n  name: a\n  labels: {machineconfiguration.openshift.io/role: worker}\nboot_device:\n  layout: ppc64le\n  mirror: {devices: [/dev/a, /dev/b]}\n  luks: {tpm2: true, tang: [{url: u, thumbprint: t}]}\nstorage:\n  filesystems:\n  - {device: /dev/c, path: /var/c, format: xfs, with_mount_unit: true}\npasswd:\n  users: [{name: core, ssh_authorized_keys: [a]}]\n"),
    ("render", b"{\"ignition\":{\"version\":\"3.5.0\"},\"storage\":{\"files\":[{\"path\":\"/a\",\"contents\":{\"source\":\"data:,x\"}}]}}\n---\n{\"ignition\":{\"version\":\"2.2.0\"},\"storage\":{\"files\":[{\"filesystem\":\"root\",\"path\":\"/a\"}]}}"),
];

/// Texts that a byte-wise mutation would hardly find.
const WORDS: &[&str] = &[
    "ignition",
    "version",
    "3.0.0",
    "2.2.0",
    "storage",
    "files",
    "path",
    "contents",
    "source",
    "data:,",
    "gzip",
    "compression",
    "systemd",
    "units",
    "name",
    "enabled",
    "mask",
    "dropins",
    "passwd",
    "users",
    "append",
    "null",
    "true",
    "-1",
    "4096",
    "[Install]",
    "WantedBy=",
    "%i",
    "\\\n",
    "\r\n",
    "\u{feff}",
    "\u{2028}",
    "---\n",
    "? ",
    "- ",
    ": ",
    "|+\n",
    "'",
    "\"",
    "\\",
    "{}",
    "[]",
    "0o17",
    "1e400",
    "18446744073709551616",
];

/// A small generator of numbers (xorshift): the corpus must be the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }
}

fn mutated(seed: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(data.len() + 1);
        let end = (at + random.below(16)).min(data.len());
        match random.below(6) {
            0 if at < data.len() => data[at] = random.below(256) as u8,
            1 => drop(data.drain(at..end)),
            2 => drop(data.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
            3 => data.truncate(at),
            4 => {
                let piece = data[at..end].to_vec();
                drop(data.splice(at..at, piece));
            }
            _ => {
                let from = random.below(other.len() + 1);
                let to = (from + random.below(64)).min(other.len());
                drop(data.splice(at..end, other[from..to].iter().copied()));
            }
        }
    }
    data
}

fn files(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let files = paths.iter().filter(|path| path.is_file());
    files
        .map(|path| fs::read(path).unwrap())
        .filter(|bytes| bytes.len() < 20_000)
        .collect()
}

/// Whole documents, for the targets that read such.
fn documents() -> Vec<Vec<u8>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "tests/fixtures/machine-configs/accepted",
        "tests/fixtures/machine-configs/refused",
        "tests/fixtures/spec2",
    ];
    folders
        .iter()
        .flat_map(|folder| files(&top.join(folder)))
        .collect()
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let own = SEEDS.iter().filter(|(name, _)| *name == target);
    let mut seeds: Vec<_> = own.map(|(_, bytes)| bytes.to_vec()).collect();
    seeds.push(Vec::new());
    if matches!(target, "document" | "render") {
        seeds.extend(documents());
    }
    if target == "etcd_database" {
        seeds.push(sound_database());
    }
    seeds
}

/// How many mutations of all seeds together.
fn mutations(target: &str) -> usize {
    let times = std::env::var("MCO_RESCUE_MUTATIONS").ok();
    let times = times.map_or(1, |times| times.parse().unwrap());
    let number = match target {
        "document" | "render" => 1500,
        // A mutation of these hashes two whole headers, or computes with several keys.
        "luks" | "recipients" => 500,
        _ => 3000,
    };
    number * times
}

fn holds(target: Target, data: &[u8]) -> bool {
    catch_unwind(|| target(data)).is_ok()
}

#[test]
fn every_target_holds_on_its_seeds_and_their_mutations() {
    let mut failed = Vec::new();
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        failed.extend(
            seeds
                .iter()
                .filter(|seed| !holds(target, seed))
                .map(|seed| (name, seed.clone())),
        );
        for _ in 0..mutations(name) {
            let (seed, other) = (
                &seeds[random.below(seeds.len())],
                &seeds[random.below(seeds.len())],
            );
            let data = mutated(seed, other, &mut random);
            if !holds(target, &data) {
                failed.push((name, data));
            }
        }
        say(&format!(
            "{name}: {} seeds, {} mutations",
            seeds.len(),
            mutations(name)
        ));
    }
    let failed: Vec<_> = failed
        .iter()
        .map(|(name, data)| format!("{name}: b\"{}\"", data.escape_ascii()))
        .collect();
    assert!(
        failed.is_empty(),
        "{} inputs fail\n{}",
        failed.len(),
        failed[..failed.len().min(5)].join("\n")
    );
}
