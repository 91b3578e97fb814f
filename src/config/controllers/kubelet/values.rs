//! Kubelet configuration values with which the kubelet exits at its start, although the operator accepts them.

use serde_json::{Map, Value};

use super::decode::find_type_fault;
use super::duration;
use crate::base::reason::Reason;
use crate::config::controllers::quantity::Quantity;

/// The size of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineSize {
    /// Bytes of memory.
    pub memory: u64,
    /// Processors that are online.
    pub processors: u64,
}

/// A value that the kubelet refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueFault {
    /// The field with its value, and what is wrong with it.
    pub said: String,
    /// The message in the kubelet's log.
    pub words: String,
}

/// Resources that can be reserved.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];
/// Signals of an eviction.
const SIGNALS: [&str; 9] = [
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];
/// Numbers that must not be negative.
const COUNTS: [&str; 7] = [
    "eventBurst",
    "eventRecordQPS",
    "maxOpenFiles",
    "maxPods",
    "podsPerCore",
    "registryBurst",
    "registryPullQPS",
];
/// Variables of the reservations in `/etc/node-sizing-enabled.env`, with their resources.
const VARIABLES: [(&str, &str); 3] = [
    ("SYSTEM_RESERVED_MEMORY", "memory"),
    ("SYSTEM_RESERVED_CPU", "cpu"),
    ("SYSTEM_RESERVED_ES", "ephemeral-storage"),
];

fn value_fault(said: impl Into<String>, words: impl Into<String>) -> ValueFault {
    ValueFault {
        said: said.into(),
        words: words.into(),
    }
}

/// Returns the faults in a kubelet's configuration. `size` is that of its machine, if known.
pub fn find_faults(config: &Value, size: Option<MachineSize>) -> Vec<ValueFault> {
    let map = |name: &str| config.get(name).and_then(Value::as_object);
    let mut faults = Vec::new();
    for name in ["systemReserved", "kubeReserved"] {
        faults.extend(
            entries_of(map(name)).filter_map(|(key, value)| judge_reservation(name, key, value)),
        );
    }
    let grace = map("evictionSoftGracePeriod");
    for name in ["evictionHard", "evictionSoft"] {
        faults.extend(
            entries_of(map(name)).filter_map(|(key, value)| judge_threshold(name, key, value)),
        );
    }
    let lacks_grace = |key: &&String| grace.is_none_or(|all| !all.contains_key(*key));
    faults.extend(
        entries_of(map("evictionSoft"))
            .map(|(key, _)| key)
            .filter(lacks_grace)
            .map(|key| {
                value_fault(
                    format!("evictionSoft.{key} has no evictionSoftGracePeriod.{key}"),
                    format!("grace period must be specified for the soft eviction threshold {key}"),
                )
            }),
    );
    faults.extend(entries_of(grace).filter_map(|(key, value)| judge_grace(key, value)));
    faults.extend(
        entries_of(map("evictionMinimumReclaim"))
            .filter_map(|(key, value)| judge_reclaim(key, value)),
    );
    faults.extend(judge_numbers(config));
    if faults.is_empty() {
        let types = config.as_object().and_then(find_type_fault);
        faults.extend(types.map(|(said, words)| value_fault(said, words)));
    }
    if let Some(size) = size.filter(|_| faults.is_empty()) {
        faults.extend(judge_sums(config, size));
    }
    faults
}

/// Returns the faults in `/etc/node-sizing-enabled.env`. With automatic sizing its values are not used.
pub fn find_faults_of_sizing(text: &str, size: Option<MachineSize>) -> Vec<ValueFault> {
    let value = |name: &str| {
        let mut lines = text.lines().rev();
        lines.find_map(|line| {
            line.trim()
                .strip_prefix(name)?
                .strip_prefix('=')
                .map(str::to_owned)
        })
    };
    if value("NODE_SIZING_ENABLED").as_deref() == Some("true") {
        return Vec::new();
    }
    let mut reserved = Map::new();
    let mut faults = Vec::new();
    for (variable, resource) in VARIABLES {
        let Some(value) = value(variable).map(|value| value.trim_matches('"').to_owned()) else {
            continue;
        };
        if value.is_empty() {
            continue;
        }
        let value = Value::from(value);
        faults.extend(judge_quantity(variable, resource, &value));
        reserved.insert(resource.to_owned(), value);
    }
    if let Some(size) = size.filter(|_| faults.is_empty()) {
        faults.extend(judge_sums(
            &serde_json::json!({ "systemReserved": reserved }),
            size,
        ));
    }
    faults
}

fn entries_of(map: Option<&Map<String, Value>>) -> impl Iterator<Item = (&String, &Value)> {
    map.into_iter().flatten()
}

fn judge_reservation(map: &str, key: &str, value: &Value) -> Option<ValueFault> {
    if !RESERVABLE.contains(&key) {
        return Some(value_fault(
            format!(
                "{map}.{key}: only {} can be reserved",
                RESERVABLE.join(", ")
            ),
            format!("cannot reserve \"{key}\" resource"),
        ));
    }
    judge_quantity(&format!("{map}.{key}"), key, value)
}

fn judge_quantity(at: &str, resource: &str, value: &Value) -> Option<ValueFault> {
    let text = match read_text(at, value) {
        Ok(text) => text,
        Err(fault) => return Some(fault),
    };
    match Quantity::parse(text) {
        Err(error) => Some(value_fault(
            format!("{at} is {text:?}, which is not a quantity"),
            error.to_string(),
        )),
        Ok(quantity) if quantity.is_negative() => Some(value_fault(
            format!("{at} is {text}, and a reservation cannot be negative"),
            format!("resource quantity for \"{resource}\" cannot be negative: {text}"),
        )),
        Ok(_) => None,
    }
}

/// Returns the text of a map value; a number is not valid there.
fn read_text<'v>(at: &str, value: &'v Value) -> Result<&'v str, ValueFault> {
    value.as_str().ok_or_else(|| {
        value_fault(
            format!("{at} is {value}, and has to be a text in quotes"),
            "json: cannot unmarshal number into Go struct field",
        )
    })
}

fn judge_threshold(map: &str, key: &str, value: &Value) -> Option<ValueFault> {
    let at = format!("{map}.{key}");
    if !SIGNALS.contains(&key) {
        return Some(value_fault(
            format!(
                "{at}: {key} is not a signal; those are {}",
                SIGNALS.join(", ")
            ),
            format!("unknown eviction signal {key}"),
        ));
    }
    let text = match read_text(&at, value) {
        Ok(text) => text,
        Err(fault) => return Some(fault),
    };
    if let Some(percent) = text.strip_suffix('%') {
        return judge_percentage(&at, key, text, percent);
    }
    match Quantity::parse(text) {
        Err(error) => Some(value_fault(
            format!("{at} is {text:?}, which is neither a quantity nor a percentage"),
            error.to_string(),
        )),
        Ok(quantity) if !quantity.is_positive() => Some(value_fault(
            format!("{at} is {text}, and has to be above 0"),
            format!("eviction threshold {key} must be positive: {text}"),
        )),
        Ok(_) => None,
    }
}

fn judge_percentage(at: &str, key: &str, text: &str, percent: &str) -> Option<ValueFault> {
    let bound = match percent.parse::<f64>() {
        Ok(value) if value < 0.0 => ">= 0%",
        Ok(value) if value > 100.0 => "<= 100%",
        Ok(value) if value.is_finite() => return None,
        _ => {
            return Some(value_fault(
                format!("{at} is {text:?}, which is not a percentage"),
                format!("strconv.ParseFloat: parsing \"{percent}\": invalid syntax"),
            ));
        }
    };
    Some(value_fault(
        format!("{at} is {text}, and has to be between 0% and 100%"),
        format!("eviction percentage threshold {key} must be {bound}: {text}"),
    ))
}

fn judge_grace(key: &str, value: &Value) -> Option<ValueFault> {
    let at = format!("evictionSoftGracePeriod.{key}");
    let text = match read_text(&at, value) {
        Ok(text) => text,
        Err(fault) => return Some(fault),
    };
    match duration::parse_duration(text) {
        Err(error) => Some(value_fault(
            format!("{at} is {text:?}, which is not a duration"),
            error.to_string(),
        )),
        Ok(nanoseconds) if nanoseconds < 0 => Some(value_fault(
            format!("{at} is {text}, and cannot be negative"),
            format!("invalid eviction grace period specified: {text}, must be a positive value"),
        )),
        Ok(_) => None,
    }
}

fn judge_reclaim(key: &str, value: &Value) -> Option<ValueFault> {
    let at = format!("evictionMinimumReclaim.{key}");
    let text = match read_text(&at, value) {
        Ok(text) => text,
        Err(fault) => return Some(fault),
    };
    let negative = match text.strip_suffix('%') {
        Some(percent) => percent
            .parse::<f64>()
            .map(|value| value < 0.0)
            .map_err(Reason::from_error),
        None => Quantity::parse(text).map(|quantity| quantity.is_negative()),
    };
    match negative {
        Err(error) => Some(value_fault(
            format!("{at} is {text:?}, which is neither a quantity nor a percentage"),
            error.to_string(),
        )),
        Ok(true) => Some(value_fault(
            format!("{at} is {text}, and cannot be negative"),
            format!("negative eviction minimum reclaim specified for {key}"),
        )),
        Ok(false) => None,
    }
}

/// Judges counts and percentages that the kubelet validates.
fn judge_numbers(config: &Value) -> Vec<ValueFault> {
    let number = |name: &str| config.get(name).and_then(Value::as_i64);
    let words = |name: &str| format!("invalid configuration: {name}");
    let negative = COUNTS.into_iter().filter_map(|name| {
        let value = number(name).filter(|value| *value < 0)?;
        Some(value_fault(
            format!("{name} is {value}, and cannot be negative"),
            words(name),
        ))
    });
    let mut faults: Vec<ValueFault> = negative.collect();
    let [high, low] = ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"]
        .map(|name| (name, number(name)));
    for (name, value) in [high, low] {
        if let Some(value) = value.filter(|value| !(0..=100).contains(value)) {
            faults.push(value_fault(
                format!("{name} is {value}, and has to be between 0 and 100"),
                words(name),
            ));
        }
    }
    if let (Some(high), Some(low)) = (high.1, low.1)
        && low >= high
    {
        faults.push(value_fault(
            format!("imageGCLowThresholdPercent is {low}, and has to be below imageGCHighThresholdPercent, {high}"),
            words("imageGCLowThresholdPercent"),
        ));
    }
    faults
}

/// Judges reservations that exceed the machine's resources.
fn judge_sums(config: &Value, size: MachineSize) -> Vec<ValueFault> {
    let resources = [
        ("memory", "bytes", i128::from(size.memory)),
        (
            "cpu",
            "thousandths of a processor",
            i128::from(size.processors) * 1000,
        ),
    ];
    let judge = |(resource, unit, capacity): (&str, &str, i128)| {
        let (names, sum) = sum_reserved(config, resource, capacity);
        (sum > capacity).then(|| {
            value_fault(
                format!("{} reserve {sum} {unit}, and the machine has {capacity}", names.join(" and ")),
                format!("invalid Node Allocatable configuration. Resource \"{resource}\" has a reservation of"),
            )
        })
    };
    resources.into_iter().filter_map(judge).collect()
}

/// Returns the fields that reserve a resource, and their sum.
fn sum_reserved(config: &Value, resource: &str, capacity: i128) -> (Vec<String>, i128) {
    let mut names = Vec::new();
    let mut sum = 0;
    for map in ["systemReserved", "kubeReserved", "evictionHard"] {
        let key = match (map, resource) {
            ("evictionHard", "memory") => "memory.available",
            ("evictionHard", _) => continue,
            _ => resource,
        };
        let Some(text) = config.get(map).and_then(|map| map.get(key)?.as_str()) else {
            continue;
        };
        let amount = match text.strip_suffix('%') {
            Some(percent) => percent
                .parse::<i128>()
                .ok()
                .map(|percent| capacity * percent / 100),
            None => Quantity::parse(text).ok().map(|quantity| match resource {
                "cpu" => i128::from(quantity.thousandths()),
                _ => i128::from(quantity.value()),
            }),
        };
        if let Some(amount) = amount.filter(|amount| *amount > 0) {
            names.push(format!("{map}.{key}"));
            sum += amount;
        }
    }
    (names, sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SIZE: MachineSize = MachineSize {
        memory: 8 << 30,
        processors: 4,
    };

    /// Reservations and limits with which no kubelet starts, and words of the fault.
    fn faulty_reservations() -> Vec<(Value, &'static str)> {
        vec![
            (
                json!({"kubeReserved": {"cpu": "-200m"}}),
                "kubeReserved.cpu is -200m",
            ),
            (
                json!({"systemReserved": {"memory": "-1Gi"}}),
                "systemReserved.memory is -1Gi",
            ),
            (
                json!({"systemReserved": {"memory": "1 Gi"}}),
                "not a quantity",
            ),
            (json!({"systemReserved": {"memory": 1}}), "text in quotes"),
            (
                json!({"kubeReserved": {"gpu": "1"}}),
                "only cpu, memory, ephemeral-storage, pid",
            ),
            (
                json!({"kubeReserved": {"memory": "5Gi"}, "systemReserved": {"memory": "4Gi"}}),
                "systemReserved.memory and kubeReserved.memory reserve",
            ),
            (
                json!({"kubeReserved": {"memory": "7Gi"}, "evictionHard": {"memory.available": "20%"}}),
                "evictionHard.memory.available reserve",
            ),
            (
                json!({"kubeReserved": {"cpu": "4500m"}}),
                "reserve 4500 thousandths",
            ),
            (json!({"maxPods": -1}), "maxPods is -1"),
            (
                json!({"imageGCHighThresholdPercent": 120}),
                "between 0 and 100",
            ),
            (
                json!({"imageGCHighThresholdPercent": 70, "imageGCLowThresholdPercent": 80}),
                "has to be below",
            ),
        ]
    }

    /// Returns the same for evictions.
    fn faulty_evictions() -> Vec<(Value, &'static str)> {
        vec![
            (
                json!({"evictionHard": {"memory.available": "110%"}}),
                "between 0% and 100%",
            ),
            (
                json!({"evictionHard": {"memory.available": "-5%"}}),
                "between 0% and 100%",
            ),
            (
                json!({"evictionHard": {"memory.available": "x%"}}),
                "not a percentage",
            ),
            (
                json!({"evictionHard": {"memory.available": "-100Mi"}}),
                "above 0",
            ),
            (
                json!({"evictionHard": {"memory.available": "0"}}),
                "above 0",
            ),
            (
                json!({"evictionHard": {"memory.free": "1Gi"}}),
                "is not a signal",
            ),
            (
                json!({"evictionSoft": {"nodefs.available": "1Gi"}}),
                "has no evictionSoftGracePeriod.nodefs.available",
            ),
            (
                json!({"evictionSoftGracePeriod": {"nodefs.available": "-1m"}}),
                "cannot be negative",
            ),
            (
                json!({"evictionSoftGracePeriod": {"nodefs.available": "soon"}}),
                "not a duration",
            ),
            (
                json!({"evictionMinimumReclaim": {"nodefs.available": "-1Gi"}}),
                "cannot be negative",
            ),
        ]
    }

    #[test]
    fn values_with_which_no_kubelet_starts_are_found() {
        for (config, words) in faulty_reservations().into_iter().chain(faulty_evictions()) {
            let faults = find_faults(&config, Some(SIZE));
            assert!(
                faults.len() == 1 && faults[0].said.contains(words),
                "{config}: {faults:?}"
            );
        }
        let fine = json!({
            "kubeReserved": {"cpu": "500m", "memory": "1Gi", "pid": "1000", "ephemeral-storage": "1Gi"}, "systemReserved": {"cpu": "3500m", "memory": "6Gi"},
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.inodesFree": "0%", "pid.available": "100%"},
            "evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"},
            "evictionMinimumReclaim": {"memory.available": "0Mi"}, "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80, "maxPods": 0,
        });
        assert_eq!(find_faults(&fine, Some(SIZE)), []);
        assert_eq!(
            find_faults(&json!({"kubeReserved": {"memory": "1Ti"}}), None),
            [],
            "the machine is unknown"
        );
    }

    #[test]
    fn the_file_with_sizes_counts_only_where_they_are_not_computed() {
        let text = "NODE_SIZING_ENABLED=false\nSYSTEM_RESERVED_MEMORY=-1Gi\nSYSTEM_RESERVED_CPU=500m\nSYSTEM_RESERVED_ES=\n";
        let faults = find_faults_of_sizing(text, None);
        assert!(
            faults.len() == 1 && faults[0].said.starts_with("SYSTEM_RESERVED_MEMORY is -1Gi"),
            "{faults:?}"
        );
        assert_eq!(
            find_faults_of_sizing(&text.replace("false", "true"), None),
            []
        );
        let large = text.replace("-1Gi", "9Gi");
        assert_eq!(find_faults_of_sizing(&large, None), []);
        assert_eq!(find_faults_of_sizing(&large, Some(SIZE)).len(), 1);
    }
}
