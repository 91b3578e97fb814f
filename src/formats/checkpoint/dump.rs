//! Go values as `spew` dumps them for a checksum (`%#v`, sorted keys): the type precedes the value of each field of a struct,
//! there are no types inside maps and slices, and a pointer there is `<*>`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

type Object = Map<String, Value>;

/// Returns the dump of a processor checkpoint (version 2); `None` if a value has another type.
pub(super) fn of_processors(object: &Object) -> Option<String> {
    let pods = of_map(object.get("entries"), |containers| {
        of_map(Some(containers), |set| Some(set.as_str()?.to_owned()))
    })?;
    Some(format!(
        "(*state.CPUManagerCheckpoint){{PolicyName:(string){} DefaultCPUSet:(string){} \
         Entries:(map[string]map[string]string){pods} Checksum:(checksum.Checksum)0}}",
        text_at(object, "policyName")?,
        text_at(object, "defaultCpuSet")?,
    ))
}

/// Returns the dump of a memory checkpoint, of version 1 or with the memory of pods; `None` if a value has another type.
pub(super) fn of_memory(object: &Object, with_pods: bool) -> Option<String> {
    let pods = match with_pods {
        true => {
            let pods = of_map(object.get("podEntries"), |pod| {
                let pod = pod.as_object()?;
                let blocks = of_list(pod.get("memoryBlocks"), of_block)?;
                Some(format!("{{MemoryBlocks:([]state.Block){blocks}}}"))
            })?;
            format!(" PodEntries:(state.PodMemoryAssignments){pods}")
        }
        false if object.contains_key("podEntries") => return None,
        false => String::new(),
    };
    let entries = of_map(object.get("entries"), |containers| {
        of_map(Some(containers), |blocks| of_list(Some(blocks), of_block))
    })?;
    Some(format!(
        "(*state.MemoryManagerCheckpoint){{PolicyName:(string){} MachineState:(state.NUMANodeMap){} \
         Entries:(state.ContainerMemoryAssignments){entries}{pods} Checksum:(checksum.Checksum)0}}",
        text_at(object, "policyName")?,
        of_nodes(object.get("machineState"))?,
    ))
}

/// Dumps a map whose keys are numbers, in their order.
fn of_nodes(value: Option<&Value>) -> Option<String> {
    let mut nodes = BTreeMap::new();
    if let Some(value) = value.filter(|value| !value.is_null()) {
        for (number, node) in value.as_object()? {
            nodes.insert(number.parse::<i64>().ok()?, of_node(node)?);
        }
    }
    let all = nodes
        .iter()
        .map(|(number, node)| format!("{number}:{node}"));
    Some(format!("map[{}]", all.collect::<Vec<_>>().join(" ")))
}

fn of_node(node: &Value) -> Option<String> {
    let node = node.as_object()?;
    let memory = of_map(node.get("memoryMap"), |table| {
        let table = table.as_object()?;
        Some(format!(
            "<*>{{TotalMemSize:(uint64){} SystemReserved:(uint64){} Allocatable:(uint64){} Reserved:(uint64){} Free:(uint64){}}}",
            number_at(table, "total")?,
            number_at(table, "systemReserved")?,
            number_at(table, "allocatable")?,
            number_at(table, "reserved")?,
            number_at(table, "free")?,
        ))
    })?;
    Some(format!(
        "<*>{{NumberOfAssignments:(int){} MemoryMap:(map[v1.ResourceName]*state.MemoryTable){memory} Cells:([]int){}}}",
        number_at(node, "numberOfAssignments")?,
        of_list(node.get("cells"), of_number)?,
    ))
}

fn of_block(block: &Value) -> Option<String> {
    let block = block.as_object()?;
    Some(format!(
        "{{NUMAAffinity:([]int){} Type:(v1.ResourceName){} Size:(uint64){}}}",
        of_list(block.get("numaAffinity"), of_number)?,
        text_at(block, "type")?,
        number_at(block, "size")?,
    ))
}

fn of_number(value: &Value) -> Option<String> {
    value.as_u64().map(|number| number.to_string())
}

/// Dumps a map; a missing one is dumped as an empty one.
fn of_map(value: Option<&Value>, of: impl Fn(&Value) -> Option<String>) -> Option<String> {
    let mut parts = BTreeMap::new();
    if let Some(value) = value.filter(|value| !value.is_null()) {
        for (key, value) in value.as_object()? {
            parts.insert(key.as_str(), of(value)?);
        }
    }
    let all = parts.iter().map(|(key, value)| format!("{key}:{value}"));
    Some(format!("map[{}]", all.collect::<Vec<_>>().join(" ")))
}

fn of_list(value: Option<&Value>, of: impl Fn(&Value) -> Option<String>) -> Option<String> {
    match value {
        None | Some(Value::Null) => Some("<nil>".to_owned()),
        Some(value) => {
            let all: Option<Vec<String>> = value.as_array()?.iter().map(of).collect();
            Some(format!("[{}]", all?.join(" ")))
        }
    }
}

fn text_at<'a>(object: &'a Object, key: &str) -> Option<&'a str> {
    match object.get(key) {
        None | Some(Value::Null) => Some(""),
        Some(value) => value.as_str(),
    }
}

fn number_at(object: &Object, key: &str) -> Option<u64> {
    match object.get(key) {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_u64(),
    }
}
