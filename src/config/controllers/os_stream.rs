//! OSImageStream: the OS images that a pool selects by the name of a stream.
//!
//! A pool names its stream. A custom pool without one uses that of the pool `worker`; every other pool uses the default stream
//! of `OSImageStream cluster`.

use serde_json::Value;

use super::registries::refuse_object;
use super::{ApiObject, Cluster, ConfigPool, Note, ObjectRefusal};
use crate::base::go_quote::quote_go;

const KIND: &str = "OSImageStream";
/// The feature gate.
const GATE: &str = "OSStreams";
/// The annotation with the version of the operator that wrote the object.
const WRITTEN_BY: &str = "machineconfiguration.openshift.io/release-image-version";
const OF_POOL: &str = "spec.osImageStream.name";

/// The images of a pool's stream.
#[derive(Debug)]
pub(super) struct StreamImages {
    /// The name of the stream.
    pub(super) stream: String,
    /// Image of the operating system.
    pub(super) os: String,
    /// Image with its extensions.
    pub(super) extensions: String,
}

/// Returns the stream that is set for a pool, directly or by the pool `worker`, with the object that sets it.
fn named_stream<'a>(cluster: &'a Cluster, pool: &str) -> Option<(&'a ApiObject, &'a str)> {
    let of = |name: &str| {
        let object = cluster.find_single("MachineConfigPool", name)?;
        let stream = object.get("/spec/osImageStream/name")?.as_str()?;
        (!stream.is_empty()).then_some((object, stream))
    };
    let is_custom = ConfigPool::built_in(pool).is_none();
    of(pool).or_else(|| is_custom.then(|| of("worker")).flatten())
}

fn text_at<'a>(object: &'a ApiObject, pointer: &str) -> Option<&'a str> {
    let text = object.get(pointer)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// Returns the default stream: the one that an admin requested, or else the current one.
fn default_stream(streams: &ApiObject) -> Option<&str> {
    text_at(streams, "/spec/defaultStream").or_else(|| text_at(streams, "/status/defaultStream"))
}

/// Returns the name of a pool's stream, if the objects contain it.
pub(super) fn name_of_pool<'a>(cluster: &'a Cluster, pool: &str) -> Option<&'a str> {
    let of_cluster = || default_stream(cluster.find_single(KIND, "cluster")?);
    let own = named_stream(cluster, pool).map(|(_, stream)| stream);
    own.or_else(of_cluster)
}

/// Returns the images of a pool's stream; `None` if no object has them.
///
/// # Errors
/// The stream is not available, or the object has no list of streams.
pub(super) fn images_of_pool(
    cluster: &Cluster,
    pool: &str,
    notes: &mut Vec<Note>,
) -> Result<Option<StreamImages>, ObjectRefusal> {
    let named = named_stream(cluster, pool);
    let Some(streams) = cluster.find_single(KIND, "cluster") else {
        if let Some((object, stream)) = named {
            notes.push(note_about(object, format!(
                "The pool {pool} takes the OS stream {stream}, whose images are not known: give the object OSImageStream cluster, too \
                 (`oc get osimagestream cluster -o yaml`)."
            )));
        }
        return Ok(None);
    };
    if cluster.named_gate(GATE) == Some(false) {
        notes.push(Note {
            inexact: false,
            ..note_about(
                streams,
                format!(
                    "OS streams have no effect: the feature gate {GATE} is off in this cluster."
                ),
            )
        });
        return Ok(None);
    }
    note_version(streams, cluster, notes);
    if named.is_none() {
        note_missing_pools(cluster, pool, streams, notes);
    }
    let (object, stream, at) = match named {
        Some((object, stream)) => (object, stream, OF_POOL),
        None => {
            let default = default_stream(streams).ok_or_else(|| refuse_default(streams, pool))?;
            (streams, default, "spec.defaultStream")
        }
    };
    let set = find_stream(object, at, pool, stream, streams)?;
    read_images(streams, set, stream).map(Some)
}

/// Returns the images of a stream.
fn read_images(
    streams: &ApiObject,
    set: &Value,
    stream: &str,
) -> Result<StreamImages, ObjectRefusal> {
    let image = |key: &str| {
        set.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (os, extensions) = (image("osImage"), image("osExtensionsImage"));
    if os.is_empty() || extensions.is_empty() {
        let message = format!("the stream {stream} lacks its osImage or its osExtensionsImage");
        let advice =
            "take the object from the cluster again (`oc get osimagestream cluster -o yaml`)";
        return Err(refuse_object(
            streams,
            "status.availableStreams",
            message,
            advice,
        ));
    }
    Ok(StreamImages {
        stream: stream.to_owned(),
        os,
        extensions,
    })
}

fn refuse_default(streams: &ApiObject, pool: &str) -> ObjectRefusal {
    let message = format!("could not get OSImageStreamSet for pool {pool}: no default stream");
    refuse_object(
        streams,
        "spec.defaultStream",
        message,
        "name one of the streams in status.availableStreams",
    )
}

/// Returns a stream by its name. `object` names it, in the field `at`.
fn find_stream<'a>(
    object: &ApiObject,
    at: &'static str,
    pool: &str,
    stream: &str,
    streams: &'a ApiObject,
) -> Result<&'a Value, ObjectRefusal> {
    let available = available_streams(streams)?;
    let found = available
        .iter()
        .find(|set| set.get("name").and_then(Value::as_str) == Some(stream));
    found.ok_or_else(|| unknown_stream(object, at, pool, stream, available))
}

/// Refuses a pool with a stream if a MachineConfig of the admin sets the image.
///
/// # Errors
/// The operator's message.
pub(super) fn refuse_override(
    cluster: &Cluster,
    pool: &str,
    images: &StreamImages,
    image: &str,
) -> Result<(), ObjectRefusal> {
    let own = cluster
        .find_single("MachineConfigPool", pool)
        .filter(|object| text_at(object, "/spec/osImageStream/name").is_some());
    match own {
        Some(object) if image != images.os => Err(refuse_object(
            object,
            OF_POOL,
            "cannot override MachineConfig osImageURL and set MachineConfigPool spec.osImageStream.name simultaneously",
            format!(
                "a MachineConfig sets osImageURL to {image}: remove that, or the stream of the pool"
            ),
        )),
        _ => Ok(()),
    }
}

fn note_about(object: &ApiObject, text: String) -> Note {
    Note::inexact(object.title(), text)
}

/// Adds a note if another version wrote the object: the operator only accepts its own version's.
fn note_version(streams: &ApiObject, cluster: &Cluster, notes: &mut Vec<Note>) {
    let annotations = streams.get("/metadata/annotations");
    let version = annotations.and_then(|all| all.get(WRITTEN_BY)?.as_str());
    if let (Some(version), Some(operator)) = (version, cluster.base.operator())
        && version != operator
    {
        notes.push(note_about(streams, format!(
            "The operator renders nothing yet: ignoring OSImageStream with version {version} (my version: {operator}). Take all \
             objects at the same time."
        )));
    }
}

/// Adds a note about pools whose object is missing, and which could use another stream than the default.
fn note_missing_pools(cluster: &Cluster, pool: &str, streams: &ApiObject, notes: &mut Vec<Note>) {
    let is_custom = ConfigPool::built_in(pool).is_none();
    let names = [Some(pool), is_custom.then_some("worker")];
    let missing: Vec<&str> = names
        .into_iter()
        .flatten()
        .filter(|name| cluster.find_single("MachineConfigPool", name).is_none())
        .collect();
    if !missing.is_empty() {
        notes.push(note_about(streams, format!(
            "The default stream is taken, because the MachineConfigPool {} was not given. If it names a stream, give it too.",
            missing.join(" and ")
        )));
    }
}

fn available_streams(streams: &ApiObject) -> Result<&[Value], ObjectRefusal> {
    let list = streams
        .get("/status/availableStreams")
        .and_then(Value::as_array);
    list.map(Vec::as_slice).filter(|list| !list.is_empty()).ok_or_else(|| {
        let message = "the object does not list the streams; the operator fills its status in";
        let advice = "give the object of the cluster with its status (`oc get osimagestream cluster -o yaml`)";
        refuse_object(streams, "status.availableStreams", message, advice)
    })
}

fn unknown_stream(
    object: &ApiObject,
    at: &str,
    pool: &str,
    stream: &str,
    available: &[Value],
) -> ObjectRefusal {
    let names: Vec<&str> = available
        .iter()
        .filter_map(|set| set.get("name")?.as_str())
        .collect();
    let message = match at {
        OF_POOL => format!(
            "could not get OSImageStreamSet for pool {pool}: osimagestreams.machineconfiguration.openshift.io {} not found",
            quote_go(stream)
        ),
        _ => format!(
            "could not find the requested {stream} default stream in the list of OSImageStreams [{}]",
            names.join(" ")
        ),
    };
    refuse_object(
        object,
        at,
        message,
        format!("name one of the available streams: {}", names.join(", ")),
    )
}
