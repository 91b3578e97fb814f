//! Checkpoint files of the kubelet: which of them its next start refuses. Pure.
//!
//! The kubelet protects most of them with FNV-1a (32 bits) over a dump of the Go value. The known dumps are reproduced here; a
//! file with other fields is not judged.

mod dump;

use serde_json::{Map, Value};

/// A checkpoint file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointFile {
    /// Exclusive processors of containers.
    Cpu,
    /// Memory of NUMA nodes.
    Memory,
    /// Dynamic resource allocation.
    Dra,
    /// Pod resources, up to Kubernetes 1.32.
    PodStatus,
    /// Pod resources as admitted, since Kubernetes 1.33.
    Allocated,
    /// Pod resources as the runtime has them, since Kubernetes 1.33.
    Actuated,
    /// Devices of device plugins. The kubelet starts without it.
    Devices,
}

/// All files.
pub const ALL: [CheckpointFile; 7] = [
    CheckpointFile::Cpu,
    CheckpointFile::Memory,
    CheckpointFile::Dra,
    CheckpointFile::PodStatus,
    CheckpointFile::Allocated,
    CheckpointFile::Actuated,
    CheckpointFile::Devices,
];

/// The verdict on one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointVerdict {
    /// The kubelet accepts it.
    Sound,
    /// The kubelet refuses it.
    Damaged {
        /// The damage.
        why: String,
        /// The error of the kubelet's parser, verbatim, if known.
        error: Option<String>,
    },
    /// It has fields or values of another release, so it is not judged.
    Unknown(String),
}

/// A file that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedCheckpoint {
    /// The verdict.
    pub verdict: CheckpointVerdict,
    /// `policyName` in it.
    pub policy: Option<String>,
    /// True if it has the format of Kubernetes 1.31 and older, which 1.32 cannot read.
    pub is_old_form: bool,
}

/// First minor version of Kubernetes that uses [`CheckpointFile::Allocated`] instead of [`CheckpointFile::PodStatus`].
const SUCCESSORS: u32 = 33;
/// First minor version that reads only the new format of [`CheckpointFile::PodStatus`].
pub const NEW_FORM: u32 = 32;
/// Last minor version for which the dump of a processor file is known.
const KNOWN_DUMP: u32 = 35;

/// Returns the minor version of Kubernetes in a release of OpenShift such as `4.18.3`: 1.31. Release 5.0 follows 4.22.
pub fn kubernetes_minor(release: &str) -> Option<u32> {
    let mut numbers = release.trim().trim_start_matches('v').split(['.', '-']);
    let (major, minor): (u32, u32) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    match major {
        4 if minor >= 3 => minor.checked_add(13),
        5 => minor.checked_add(36),
        _ => None,
    }
}

impl CheckpointFile {
    /// Returns true if a kubelet of one minor version may refuse an intact file written by another minor version.
    pub fn breaks_between(self, from: u32, to: u32) -> bool {
        if !self.is_read_by(Some(to)) {
            return false;
        }
        match self {
            // Its format changed once, incompatibly in both directions.
            Self::PodStatus => (from < NEW_FORM) != (to < NEW_FORM),
            // A newer kubelet reads the files of an older one. The reverse is not guaranteed.
            Self::Allocated | Self::Actuated => to < from,
            Self::Cpu | Self::Memory | Self::Dra => from != to,
            Self::Devices => false,
        }
    }

    /// Returns the warning about a file for which [`Self::breaks_between`] is true; `whose` names the owner of the next
    /// kubelet.
    pub fn describe_break(self, from: u32, to: u32, whose: &str) -> String {
        let path = self.path();
        format!(
            "/{path} was written by the kubelet of Kubernetes 1.{from}; that of {whose}, 1.{to}, may refuse it and not start"
        )
    }

    /// Returns the advice for it.
    pub fn advise_after_break(self) -> String {
        let path = self.path();
        format!(
            "After the boot, if the kubelet does not start: mv /{path} /{path}.mco-rescue-$(date -u +%Y%m%dT%H%M%SZ)"
        )
    }

    /// Returns its path below the root.
    pub fn path(self) -> &'static str {
        match self {
            Self::Cpu => "var/lib/kubelet/cpu_manager_state",
            Self::Memory => "var/lib/kubelet/memory_manager_state",
            Self::Dra => "var/lib/kubelet/dra_manager_state",
            Self::PodStatus => "var/lib/kubelet/pod_status_manager_state",
            Self::Allocated => "var/lib/kubelet/allocated_pods_state",
            Self::Actuated => "var/lib/kubelet/actuated_pods_state",
            Self::Devices => "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
        }
    }

    /// Returns true if a kubelet of this minor version reads it; true for an unknown version.
    pub fn is_read_by(self, minor: Option<u32>) -> bool {
        match self {
            Self::PodStatus => minor.is_none_or(|minor| minor < SUCCESSORS),
            Self::Allocated | Self::Actuated => minor.is_none_or(|minor| minor >= SUCCESSORS),
            _ => true,
        }
    }

    /// Returns the key in the kubelet's configuration for the policy that the file names, and the key's default.
    pub fn policy_key(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Cpu => Some(("cpuManagerPolicy", "none")),
            Self::Memory => Some(("memoryManagerPolicy", "None")),
            _ => None,
        }
    }

    /// Returns the kubelet's message about a file that it refuses with this parser error.
    pub fn kubelet_message(self, error: &str) -> String {
        let path = self.path();
        let of_manager = |name: &str| {
            format!(
                "could not restore state from checkpoint: {error}, please drain this node and delete {name} checkpoint file \
                 \"/{path}\" before restarting Kubelet"
            )
        };
        match self {
            Self::Cpu => of_manager("the CPU manager"),
            Self::Memory => of_manager("the memory manager"),
            Self::PodStatus | Self::Allocated | Self::Actuated => of_manager("pod allocation"),
            Self::Dra => format!("failed to get checkpoint dra_manager_state: {error}"),
            Self::Devices => {
                "Continue after failing to read checkpoint file. Device allocation info may NOT be up-to-date".to_owned()
            }
        }
    }

    /// Judges the bytes of the file, for a kubelet of this minor version of Kubernetes.
    pub fn judge_bytes(self, bytes: &[u8], minor: Option<u32>) -> JudgedCheckpoint {
        let mut checkpoint = JudgedCheckpoint {
            verdict: CheckpointVerdict::Sound,
            policy: None,
            is_old_form: false,
        };
        let object = match parse_object(bytes) {
            Ok(object) => object,
            Err(verdict) => {
                checkpoint.verdict = verdict;
                return checkpoint;
            }
        };
        checkpoint.policy = find_policy(&object);
        checkpoint.is_old_form = self == Self::PodStatus && is_old_form(&object);
        checkpoint.verdict = match self {
            Self::Devices => CheckpointVerdict::Sound,
            _ if object.contains_key("data") => self.judge_data(&object),
            Self::Cpu => judge_processors(&object, minor),
            Self::Memory => judge_memory(&object),
            Self::Dra => CheckpointVerdict::Sound,
            Self::PodStatus if checkpoint.is_old_form => CheckpointVerdict::Sound,
            Self::PodStatus | Self::Allocated | Self::Actuated => other_form(),
        };
        checkpoint
    }

    /// Judges a file that stores its contents as one string.
    fn judge_data(self, object: &Map<String, Value>) -> CheckpointVerdict {
        let has_legacy = matches!(self, Self::Cpu | Self::Memory);
        let (key, known): (&str, &[&str]) = if has_legacy {
            (
                "dataChecksum",
                &[
                    "data",
                    "dataChecksum",
                    "policyName",
                    "defaultCpuSet",
                    "machineState",
                    "entries",
                    "podEntries",
                    "checksum",
                ],
            )
        } else {
            ("checksum", &["data", "checksum", "version"])
        };
        if let Some(field) = unknown_field(object, known) {
            return field;
        }
        let (Some(data), Some(stored)) = (
            object.get("data").and_then(Value::as_str),
            object.get(key).and_then(Value::as_u64),
        ) else {
            return other_form();
        };
        let made = u64::from(fnv1a_of(&["(string)", data]));
        if made == stored || (has_legacy && stored == 0) {
            CheckpointVerdict::Sound
        } else {
            corrupted_verdict(key, stored, made)
        }
    }
}

/// Parses a file like Go does: invalid UTF-8 is replaced.
fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>, CheckpointVerdict> {
    let damaged = |why: &str, error: Option<String>| CheckpointVerdict::Damaged {
        why: why.to_owned(),
        error,
    };
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let error = "unexpected end of JSON input".to_owned();
        return Err(damaged("empty", Some(error)));
    }
    if bytes.iter().all(|byte| *byte == 0) {
        let error = r"invalid character '\x00' looking for beginning of value".to_owned();
        let why = format!("{} bytes, all of them NUL", bytes.len());
        return Err(damaged(&why, Some(error)));
    }
    let text = String::from_utf8_lossy(bytes);
    let mut stream = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let value = match stream.next() {
        Some(Ok(value)) => value,
        // These are limits of this parser, not of Go's.
        Some(Err(error)) if is_own_limit(&error.to_string()) => {
            return Err(CheckpointVerdict::Unknown(format!(
                "JSON that cannot be read here ({error})"
            )));
        }
        Some(Err(error)) if error.is_eof() => {
            let words = "unexpected end of JSON input".to_owned();
            return Err(damaged("cut short", Some(words)));
        }
        Some(Err(error)) => return Err(damaged(&format!("no JSON ({error})"), None)),
        None => return Err(damaged("empty", None)),
    };
    let rest = text.get(stream.byte_offset()..).unwrap_or_default();
    let rest = rest.trim_matches([' ', '\t', '\r', '\n']);
    if let Some(first) = rest.chars().next() {
        let why = format!("{} bytes follow the JSON object", rest.len());
        let shown = match first {
            '\0' => r"\x00".to_owned(),
            first => first.to_string(),
        };
        let error = format!("invalid character '{shown}' after top-level value");
        return Err(damaged(&why, Some(error)));
    }
    match value {
        Value::Object(object) => Ok(object),
        _ => Err(damaged("no JSON object", None)),
    }
}

fn is_own_limit(error: &str) -> bool {
    ["recursion limit", "surrogate", "out of range", "hex escape"]
        .iter()
        .any(|limit| error.contains(limit))
}

/// Returns the policy in the contents; those in `data` take precedence if there are any.
fn find_policy(object: &Map<String, Value>) -> Option<String> {
    let inner: Option<Value> = object
        .get("data")
        .and_then(Value::as_str)
        .and_then(|data| serde_json::from_str(data).ok());
    let name = match &inner {
        Some(inner) => inner.get("policyName"),
        None => object.get("policyName"),
    };
    let name = name.and_then(Value::as_str)?;
    (!name.is_empty()).then(|| name.to_owned())
}

fn is_old_form(object: &Map<String, Value>) -> bool {
    let keys = ["allocationEntries", "resizeStatusEntries"];
    keys.iter().any(|key| object.contains_key(*key))
}

/// Judges a processor file of version 2.
fn judge_processors(object: &Map<String, Value>, minor: Option<u32>) -> CheckpointVerdict {
    let known = ["policyName", "defaultCpuSet", "entries", "checksum"];
    if let Some(field) = unknown_field(object, &known) {
        return field;
    }
    let Some(dump) = dump::of_processors(object) else {
        return other_form();
    };
    let made = u64::from(fnv1a_of(&[&dump]));
    match object.get("checksum").and_then(Value::as_u64) {
        Some(0) => CheckpointVerdict::Sound,
        Some(stored) if stored == made => CheckpointVerdict::Sound,
        Some(_) if minor.is_some_and(|minor| minor > KNOWN_DUMP) => other_form(),
        Some(stored) => corrupted_verdict("checksum", stored, made),
        None => other_form(),
    }
}

/// Judges a memory file of version 1 or 2. Fields vary between releases: a wrong checksum proves nothing.
fn judge_memory(object: &Map<String, Value>) -> CheckpointVerdict {
    let known = [
        "policyName",
        "machineState",
        "entries",
        "podEntries",
        "checksum",
    ];
    if let Some(field) = unknown_field(object, &known) {
        return field;
    }
    let stored = object.get("checksum").and_then(Value::as_u64);
    let made = [false, true].map(|with_pods| dump::of_memory(object, with_pods));
    let mut made = made
        .iter()
        .flatten()
        .map(|dump| u64::from(fnv1a_of(&[dump])));
    if made.any(|made| Some(made) == stored) {
        CheckpointVerdict::Sound
    } else {
        CheckpointVerdict::Unknown("its checksum matches none of the known forms".to_owned())
    }
}

fn unknown_field(object: &Map<String, Value>, known: &[&str]) -> Option<CheckpointVerdict> {
    let field = object.keys().find(|key| !known.contains(&key.as_str()))?;
    let shown: String = field.chars().take(40).collect();
    Some(CheckpointVerdict::Unknown(format!(
        "it has the field {shown:?}, which is not known here"
    )))
}

fn other_form() -> CheckpointVerdict {
    CheckpointVerdict::Unknown("its form is not known here".to_owned())
}

fn corrupted_verdict(key: &str, stored: u64, made: u64) -> CheckpointVerdict {
    CheckpointVerdict::Damaged {
        why: format!("{key} is {stored}, its contents have {made}"),
        error: Some("checkpoint is corrupted".to_owned()),
    }
}

/// Returns FNV-1a (32 bits) of the concatenated parts.
fn fnv1a_of(parts: &[&str]) -> u32 {
    let bytes = parts.iter().flat_map(|part| part.bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use CheckpointVerdict::{Damaged, Sound, Unknown};

    /// Checksums from Kubernetes' own tests.
    #[test]
    fn the_checksums_of_the_kubelet_are_made_again() {
        for (file, text) in [
            (
                CheckpointFile::Allocated,
                r#"{"data":"{\"policyName\":\"none\",\"defaultCPUSet\":\"4-6\"}","checksum":657950972}"#,
            ),
            (
                CheckpointFile::Cpu,
                r#"{"policyName":"none","defaultCpuSet":"","entries":{},"checksum":1353318690}"#,
            ),
            (
                CheckpointFile::Cpu,
                r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#,
            ),
            (
                CheckpointFile::Cpu,
                r#"{"policyName":"none","defaultCpuSet":"4-6","entries":{},"checksum":354655845}"#,
            ),
            (
                CheckpointFile::Cpu,
                r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container2":"1-3","container1":"4-6"}},"checksum":3610638499}"#,
            ),
            (
                CheckpointFile::Memory,
                r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":4215593881}"#,
            ),
            (
                CheckpointFile::Memory,
                r#"{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":1278640530}"#,
            ),
        ] {
            assert_eq!(
                file.judge_bytes(text.as_bytes(), None).verdict,
                Sound,
                "{text}"
            );
            let wrong = text.replace("none", "nine").replace("512", "513");
            let verdict = file.judge_bytes(wrong.as_bytes(), None).verdict;
            match file {
                CheckpointFile::Memory => assert!(matches!(verdict, Unknown(_)), "{wrong}"),
                _ => assert!(matches!(verdict, Damaged { .. }), "{wrong}: {verdict:?}"),
            }
        }
    }

    #[test]
    fn what_the_kubelet_cannot_parse_is_damaged_with_its_words() {
        for (bytes, why, error) in [
            (&b""[..], "empty", "unexpected end of JSON input"),
            (b" \n", "empty", "unexpected end of JSON input"),
            (
                &[0; 9],
                "9 bytes, all of them NUL",
                r"invalid character '\x00' looking for beginning of value",
            ),
            (b"{\"data\":\"", "cut short", "unexpected end of JSON input"),
            (
                b"{\"data\":\"\",\"checksum\":1}\"checksum\":2}",
                "13 bytes follow the JSON object",
                "invalid character '\"' after top-level value",
            ),
            (
                b"{}\0\0",
                "2 bytes follow the JSON object",
                r"invalid character '\x00' after top-level value",
            ),
        ] {
            let verdict = CheckpointFile::Allocated.judge_bytes(bytes, None).verdict;
            let expected = Damaged {
                why: why.to_owned(),
                error: Some(error.to_owned()),
            };
            assert_eq!(verdict, expected);
        }
        for bytes in [&b"x"[..], b"[]", b"{\"a\" 1}", b"\xff"] {
            let verdict = CheckpointFile::Devices.judge_bytes(bytes, None).verdict;
            assert!(matches!(verdict, Damaged { .. }), "{bytes:?}: {verdict:?}");
        }
    }

    #[test]
    fn nothing_is_claimed_of_other_forms() {
        let deep = "[".repeat(500) + &"]".repeat(500);
        let deep = format!(r#"{{"data":{deep}}}"#);
        for (file, text, minor) in [
            (
                CheckpointFile::Cpu,
                r#"{"policyName":"none","defaultCpuSet":"","podEntries":{},"checksum":1}"#,
                None,
            ),
            (
                CheckpointFile::Cpu,
                r#"{"policyName":"none","defaultCpuSet":"","entries":{"a":"1"},"checksum":1}"#,
                None,
            ),
            (
                CheckpointFile::Cpu,
                r#"{"policyName":"none","defaultCpuSet":"4-6","checksum":1}"#,
                Some(36),
            ),
            (
                CheckpointFile::Allocated,
                r#"{"data":"","checksum":1,"more":2}"#,
                None,
            ),
            (
                CheckpointFile::Allocated,
                r#"{"data":"","checksum":"1"}"#,
                None,
            ),
            (CheckpointFile::Allocated, "{}", None),
            (
                CheckpointFile::Memory,
                r#"{"policyName":"None","machineState":{"x":1},"checksum":1}"#,
                None,
            ),
            (CheckpointFile::Dra, &deep, None),
            (
                CheckpointFile::Dra,
                r#"{"data":"\ud800","checksum":1}"#,
                None,
            ),
        ] {
            let verdict = file.judge_bytes(text.as_bytes(), minor).verdict;
            assert!(matches!(verdict, Unknown(_)), "{text}: {verdict:?}");
        }
    }

    #[test]
    fn policy_form_and_readers_are_known() {
        let of = |text: &str| {
            CheckpointFile::Cpu
                .judge_bytes(text.as_bytes(), None)
                .policy
        };
        assert_eq!(
            of(r#"{"policyName":"none","checksum":0}"#).as_deref(),
            Some("none")
        );
        let data = r#"{"policyName":"none","data":"{\"policyName\":\"static\"}","dataChecksum":0}"#;
        assert_eq!(of(data).as_deref(), Some("static"));
        let old = br#"{"allocationEntries":{},"checksum":1}"#;
        let judged = CheckpointFile::PodStatus.judge_bytes(old, Some(32));
        assert!(judged.is_old_form && judged.verdict == Sound);
        assert_eq!(kubernetes_minor("4.18.3-rc.1"), Some(31));
        assert_eq!(kubernetes_minor("4.17.0-okd-scos.1"), Some(30));
        assert_eq!(kubernetes_minor("5.0"), Some(36));
        assert_eq!(
            [kubernetes_minor(""), kubernetes_minor("9.6")],
            [None, None]
        );
        let breaks = |from, to| ALL.map(|file| file.breaks_between(from, to));
        assert!(breaks(31, 31).iter().all(|breaks| !breaks));
        assert_eq!(
            breaks(31, 32),
            [true, true, true, true, false, false, false]
        );
        assert_eq!(
            breaks(32, 31),
            [true, true, true, true, false, false, false]
        );
        assert_eq!(
            breaks(33, 34),
            [true, true, true, false, false, false, false]
        );
        assert_eq!(breaks(34, 33), [true, true, true, false, true, true, false]);
        assert!(!CheckpointFile::PodStatus.is_read_by(Some(33)));
        assert!(!CheckpointFile::Actuated.is_read_by(Some(32)));
        assert!(ALL.iter().all(|file| file.is_read_by(None)));
    }
}
