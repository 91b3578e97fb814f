//! Pairs made by the operator's own controllers: objects in, MachineConfigs and names of rendered configs out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{PROGRAM, TestRoot, say, shared_data};
use mco_rescue::config::controllers::derive::{Derived, Request, derive_config};
use mco_rescue::config::controllers::{
    ApiObject, Base, Cluster, Generation, generate_configs, read_objects,
};
use mco_rescue::config::render::{Pool, read_inputs};
use serde_json::Value;

/// One captured case.
struct Pair {
    area: &'static str,
    name: String,
    base: PathBuf,
    input: String,
    expected: Value,
}

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn read_pairs(area: &'static str) -> Option<Vec<Pair>> {
    let data = shared_data("controllers")?;
    let mut files: Vec<PathBuf> = fs::read_dir(data.join(area))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let pair = |path: PathBuf| {
        let expected = read_json(&path);
        Pair {
            area,
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            base: data.join("base").join(expected["base"].as_str().unwrap()),
            input: expected["input"].as_str().unwrap().to_owned(),
            expected,
        }
    };
    Some(files.into_iter().map(pair).collect())
}

impl Pair {
    fn given(&self) -> Vec<ApiObject> {
        read_objects(self.input.as_bytes(), "input.yaml").unwrap()
    }

    /// The objects of the base. Of a Node in the input, the one of the base is not what stood there before.
    fn known(&self) -> Vec<ApiObject> {
        let path = self.base.join("cluster.yaml");
        let mut known = read_objects(&fs::read(path).unwrap(), "cluster.yaml").unwrap();
        if self.given().iter().any(|object| object.kind == "Node") {
            known.retain(|object| object.kind != "Node");
        }
        known
    }

    fn parts(&self) -> BTreeMap<String, Value> {
        let all = fs::read_dir(self.base.join("machineconfigs")).unwrap();
        let mut parts: BTreeMap<String, Value> = all
            .map(|entry| read_json(&entry.unwrap().path()))
            .map(|object| {
                (
                    object["metadata"]["name"].as_str().unwrap().to_owned(),
                    object,
                )
            })
            .collect();
        for object in self
            .given()
            .into_iter()
            .filter(ApiObject::is_machine_config)
        {
            parts.insert(object.name.clone(), object.value);
        }
        parts
    }

    fn generation(&self) -> (Cluster, Generation) {
        let mut objects = self.known();
        objects.extend(self.given());
        let cluster = Cluster::new(objects, Base::Parts(self.parts()), "worker");
        let generation = generate_configs(&cluster);
        (cluster, generation)
    }

    /// The difference between the MachineConfigs made here and those of the operator; `None` without one.
    fn difference_of_configs(&self) -> Option<String> {
        let (cluster, generation) = self.generation();
        let operator = cluster.base.operator().map(str::to_owned);
        let mut made = cluster_parts(&cluster);
        for name in &generation.deleted {
            made.remove(name);
        }
        let objects = generation
            .configs
            .iter()
            .map(|config| config.object(operator.as_deref()));
        for object in objects.chain(generation.changed_parts.iter().cloned()) {
            made.insert(
                object["metadata"]["name"].as_str().unwrap().to_owned(),
                object,
            );
        }
        let mut wanted = cluster_parts(&cluster);
        for name in self.expected["not_written"]
            .as_array()
            .into_iter()
            .flatten()
        {
            // Kept as they were by a running cluster.
            made.remove(name.as_str().unwrap());
            wanted.remove(name.as_str().unwrap());
        }
        for object in self.expected["machineconfigs"].as_array().unwrap() {
            wanted.insert(
                object["metadata"]["name"].as_str().unwrap().to_owned(),
                object.clone(),
            );
        }
        for (name, object) in &wanted {
            let Some(ours) = made.get(name) else {
                return Some(format!("{name} is not made"));
            };
            if let Some(why) = difference_of_objects(ours, object) {
                return Some(format!("{name}: {why}"));
            }
        }
        let surplus = made.keys().find(|name| !wanted.contains_key(*name))?;
        Some(format!("{surplus} is made, and not by the operator"))
    }

    /// The difference between the refusals here and the errors of the operator. The operator says what is wrong with a
    /// mirror of the object `Image cluster`; here it is said of the object that has the mirror.
    fn difference_of_errors(&self) -> Option<String> {
        let (_, generation) = self.generation();
        let errors = self.expected["errors"].as_array().unwrap();
        let kind = |error: &Value| error["kind"].as_str().unwrap().to_owned();
        let wanted: BTreeSet<(String, String)> = errors
            .iter()
            .map(|error| (kind(error), error["error"].as_str().unwrap().to_owned()))
            .collect();
        let refusals = generation.refusals.iter();
        let made: BTreeSet<(String, String)> = refusals
            .map(|refusal| {
                let (kind, _) = refusal.object.split_once(' ').unwrap();
                let kind = if self.area == "registries" {
                    "Image"
                } else {
                    kind
                };
                (kind.to_owned(), refusal.message.clone())
            })
            .collect();
        (wanted != made).then(|| format!("refused here: {made:?}; by the operator: {wanted:?}"))
    }

    /// Derives the config of a pool on top of the base's rendered one; `None` where a controller refuses that.
    fn derive_on_top(&self, pool: &str) -> Option<Derived> {
        let base = read_json(&self.base.join(format!("rendered-{pool}.json")));
        let mut given = self.given();
        let configs: Vec<ApiObject> = given
            .extract_if(.., |object| object.is_machine_config())
            .collect();
        let configs = configs.into_iter().filter(|object| {
            let role = mco_rescue::config::controllers::cluster::role_of(&object.value);
            role == Some(pool) || role == Some("worker") && pool != "master"
        });
        let configs = configs.map(|object| {
            let input = read_inputs(object.value.to_string().as_bytes(), "input")
                .unwrap()
                .pop();
            (object, input.unwrap())
        });
        let request = Request {
            pool: Pool {
                name: pool.to_owned(),
                ..Pool::default()
            },
            configs: configs.collect(),
            others: Vec::new(),
            known: Vec::new(),
            given: self.known().into_iter().chain(given).collect(),
            base: Some(("base".to_owned(), base)),
            release_image: None,
        };
        derive_config(request).ok()
    }

    /// Runs `render` for a pool, with the base's parts beside the input.
    fn render(&self, root: &TestRoot, pool: &str) -> Output {
        let input = root.path("input.yaml");
        fs::write(&input, &self.input).unwrap();
        let parts = root.path("parts");
        let has_node = self.given().iter().any(|object| object.kind == "Node");
        let _ = fs::remove_dir_all(&parts);
        fs::create_dir_all(parts.join("machineconfigs")).unwrap();
        for entry in fs::read_dir(self.base.join("machineconfigs")).unwrap() {
            let from = entry.unwrap().path();
            fs::copy(
                &from,
                parts.join("machineconfigs").join(from.file_name().unwrap()),
            )
            .unwrap();
        }
        let cluster = fs::read_to_string(self.base.join("cluster.yaml")).unwrap();
        let documents = cluster.split("\n---\n");
        let kept = documents.filter(|one| !(has_node && one.contains("kind: Node\n")));
        fs::write(
            parts.join("cluster.yaml"),
            kept.collect::<Vec<_>>().join("\n---\n"),
        )
        .unwrap();
        Command::new(PROGRAM)
            .args(["render", pool, "--parts"])
            .arg(&parts)
            .arg(&input)
            .args(["--os-image", &image("2"), "--extensions-image", &image("3")])
            .output()
            .unwrap()
    }
}

fn image(digit: &str) -> String {
    format!(
        "quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:{}",
        digit.repeat(64)
    )
}

fn cluster_parts(cluster: &Cluster) -> BTreeMap<String, Value> {
    match &cluster.base {
        Base::Parts(parts) => parts.clone(),
        Base::Rendered(_) => panic!("the base has parts"),
    }
}

/// The first difference of two MachineConfigs, of decoded files where it is one.
fn difference_of_objects(ours: &Value, wanted: &Value) -> Option<String> {
    if ours == wanted {
        return None;
    }
    let files = |object: &Value| -> Vec<(String, Value, String)> {
        let files = object.pointer("/spec/config/storage/files");
        let files = files.and_then(Value::as_array).cloned().unwrap_or_default();
        let decoded = |file: Value| {
            let source = file["contents"]["source"].as_str().unwrap_or_default();
            let bytes = mco_rescue::config::document::data_url(source).unwrap_or_default();
            let path = file["path"].as_str().unwrap_or_default().to_owned();
            (path, file, String::from_utf8_lossy(&bytes).into_owned())
        };
        files.into_iter().map(decoded).collect()
    };
    let (our_files, their_files) = (files(ours), files(wanted));
    let paths = |files: &[(String, Value, String)]| {
        files
            .iter()
            .map(|(path, ..)| path.clone())
            .collect::<Vec<_>>()
    };
    if paths(&our_files) != paths(&their_files) {
        return Some(format!(
            "files {:?}, wanted {:?}",
            paths(&our_files),
            paths(&their_files)
        ));
    }
    for ((path, ours, text), (_, wanted, wanted_text)) in our_files.iter().zip(&their_files) {
        if text != wanted_text {
            let lines = text.lines().zip(wanted_text.lines());
            let first = lines.enumerate().find(|(_, (a, b))| a != b);
            return Some(format!(
                "{path}: first different line {first:?}\n--- ours\n{text}\n--- wanted\n{wanted_text}"
            ));
        }
        if ours != wanted {
            return Some(format!("{path}: {ours}, wanted {wanted}"));
        }
    }
    Some(format!(
        "{}, wanted {}",
        ours["metadata"], wanted["metadata"]
    ))
}

/// Every pair of an area: the MachineConfigs and refusals, byte for byte.
fn compare(area: &'static str) {
    let Some(pairs) = read_pairs(area) else {
        return;
    };
    let difference = |pair: &Pair| {
        let found = pair
            .difference_of_errors()
            .or_else(|| pair.difference_of_configs())?;
        Some(format!("{}/{}: {found}", pair.area, pair.name))
    };
    let different: Vec<String> = pairs.iter().filter_map(difference).collect();
    say(&format!(
        "{area}: {} of {} equal",
        pairs.len() - different.len(),
        pairs.len()
    ));
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

/// Every pair of an area through the program: the name of each pool's rendered config, or the refusal.
fn compare_names(area: &'static str) {
    let Some(pairs) = read_pairs(area) else {
        return;
    };
    let root = TestRoot::new();
    let mut different = Vec::new();
    let mut names = 0;
    for pair in &pairs {
        let errors = pair.expected["errors"].as_array().unwrap();
        for (pool, name) in pair.expected["rendered_names"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let output = pair.render(&root, pool);
            let (out, err) = (
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr),
            );
            names += 1;
            let made = serde_json::from_str::<Value>(&out)
                .ok()
                .and_then(|object| Some(object["metadata"]["name"].as_str()?.to_owned()));
            let is_right = if errors.is_empty() {
                made.as_deref() == name.as_str()
            } else {
                output.status.code() == Some(1) && out.is_empty() && !err.is_empty()
            };
            if !is_right {
                different.push(format!(
                    "{}/{} {pool}: {made:?}, wanted {name}\n{err}",
                    pair.area, pair.name
                ));
            }
        }
    }
    say(&format!(
        "{area}: {} of {names} names equal",
        names - different.len()
    ));
    assert!(different.is_empty(), "{}", different.join("\n\n"));
}

#[test]
fn registries_are_those_of_the_operator() {
    compare("registries");
}

#[test]
fn kubelet_configs_are_those_of_the_operator() {
    compare("kubelet");
}

#[test]
fn runtime_configs_are_those_of_the_operator() {
    compare("runtime");
}

#[test]
fn node_configs_are_those_of_the_operator() {
    compare("node");
}

#[test]
fn several_objects_at_once_make_what_the_operator_makes() {
    compare("rendered");
}

#[test]
fn the_program_gives_the_names_of_the_operator() {
    for area in ["registries", "kubelet", "runtime", "node", "rendered"] {
        compare_names(area);
    }
}

/// On top of the node's rendered config, without the parts: the name is the cluster's wherever no note says that it may
/// differ.
#[test]
fn on_top_of_a_rendered_config_an_exact_name_is_the_clusters() {
    let (mut exact, mut equal, mut all, mut wrong) = (0, 0, 0, Vec::new());
    for area in ["registries", "kubelet", "runtime", "node", "rendered"] {
        for pair in read_pairs(area).into_iter().flatten() {
            if !pair.expected["errors"].as_array().unwrap().is_empty() {
                continue;
            }
            for (pool, name) in pair.expected["rendered_names"]
                .as_object()
                .into_iter()
                .flatten()
            {
                let Some(derived) = pair.derive_on_top(pool) else {
                    continue;
                };
                all += 1;
                let is_equal = Some(derived.name()) == name.as_str();
                exact += usize::from(derived.is_exact());
                equal += usize::from(is_equal);
                if derived.is_exact() && !is_equal {
                    wrong.push(format!(
                        "{area}/{} {pool}: {}, wanted {name}",
                        pair.name,
                        derived.name()
                    ));
                }
            }
        }
    }
    say(&format!(
        "on top of the rendered config: {equal} of {all} names equal, {exact} said to be exact"
    ));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        2 * exact >= all,
        "{exact} of {all}: a doubt about everything says nothing"
    );
}
