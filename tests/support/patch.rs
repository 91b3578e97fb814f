//! JSON patches, as the captured transitions are written.

use serde_json::Value;

/// Applies a JSON patch of the operations that the captured cases use.
pub fn patch(document: &mut Value, operations: &Value) {
    for op in operations.as_array().unwrap() {
        let path = op["path"].as_str().unwrap();
        match op["op"].as_str().unwrap() {
            "replace" => *document.pointer_mut(path).unwrap() = op["value"].clone(),
            "add" => add(document, path, op["value"].clone()),
            "remove" => drop(remove(document, path)),
            "move" => {
                let value = remove(document, op["from"].as_str().unwrap());
                add(document, path, value);
            }
            other => panic!("unknown patch operation {other}"),
        }
    }
}

fn add(document: &mut Value, path: &str, value: Value) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    match document.pointer_mut(parent).unwrap() {
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => list.insert(key.parse().unwrap(), value),
        Value::Object(map) => drop(map.insert(key.to_owned(), value)),
        other => panic!("cannot add to {other}"),
    }
}

fn remove(document: &mut Value, path: &str) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    match document.pointer_mut(parent).unwrap() {
        Value::Array(list) => list.remove(key.parse().unwrap()),
        Value::Object(map) => map.remove(key).unwrap(),
        other => panic!("cannot remove from {other}"),
    }
}
