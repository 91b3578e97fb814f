//! The MachineConfig, assembled entry by entry.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

use super::limits::{MAX_FILE, STATIC_PODS, better_as_object, limit_of};
use super::{KeepRequest, Keeping, Kept, Unkept};
use crate::base::object::{Object, ObjectKind};
use crate::host::root::RootPath;
use crate::judge::drift::{self, kind_noun};

/// A unit of the MachineConfig.
#[derive(Debug, Default)]
pub(super) struct KeptUnit {
    pub(super) contents: Option<String>,
    pub(super) enabled: Option<bool>,
    pub(super) mask: Option<bool>,
    pub(super) dropins: BTreeMap<String, String>,
}

/// The parts so far.
pub(super) struct Builder<'a> {
    pub(super) request: &'a KeepRequest<'a>,
    pub(super) units: BTreeMap<String, KeptUnit>,
    files: BTreeMap<String, Value>,
    keys: Vec<String>,
    password: Option<String>,
    arguments: Vec<String>,
    result: Kept,
}

impl<'a> Builder<'a> {
    pub(super) fn new(request: &'a KeepRequest<'a>) -> Self {
        Self {
            request,
            units: BTreeMap::new(),
            files: BTreeMap::new(),
            keys: Vec::new(),
            password: None,
            arguments: Vec::new(),
            result: Kept::default(),
        }
    }

    pub(super) fn keep_subject(&mut self, subject: &str, what: &str) {
        self.result.kept.push(Keeping {
            subject: subject.to_owned(),
            what: what.to_owned(),
        });
    }

    pub(super) fn refuse_subject(&mut self, subject: &str, reason: &str, next: &str) {
        self.result.unkept.push(Unkept {
            subject: subject.to_owned(),
            reason: reason.to_owned(),
            next: next.to_owned(),
            secret: false,
        });
    }

    /// Returns true if something may be included: it is not a secret, or secrets are requested.
    pub(super) fn may_take(&mut self, subject: &str, secret: Option<&str>) -> bool {
        let Some(reason) = secret else {
            return true;
        };
        if self.request.with_secrets {
            self.result.has_secrets = true;
            return true;
        }
        self.result.unkept.push(Unkept {
            subject: subject.to_owned(),
            reason: format!("it may be a secret ({reason}), and everyone who may read MachineConfigs could read it"),
            next: "take it with --with-secrets, or keep it in a Secret of the cluster".to_owned(),
            secret: true,
        });
        false
    }

    /// Returns the object at a path, as observed.
    pub(super) fn find_object(&self, path: &RootPath) -> Option<&'a Object> {
        let found = self.request.found.get(path);
        found.or_else(|| self.request.node.object(path))
    }

    /// Returns a regular file with its bytes; refuses anything else.
    pub(super) fn regular_file(&mut self, path: &RootPath) -> Option<(Object, &'a [u8])> {
        let subject = path.to_string();
        if let Some((reason, next)) = self.find_limit(path) {
            self.refuse_subject(&subject, reason, next);
            return None;
        }
        if let Some(cause) = self.request.node.obstructed.get(path) {
            self.refuse_subject(
                &subject,
                &format!("cannot be examined: {cause}"),
                "run it as root",
            );
            return None;
        }
        let Some(object) = self.find_object(path) else {
            self.refuse_subject(
                &subject,
                "the file is missing, and a MachineConfig cannot remove a file",
                "take it out of the MachineConfig that brings it, or restore it with `mco-rescue apply`",
            );
            return None;
        };
        if !matches!(object.kind, ObjectKind::File { .. }) {
            let reason = format!(
                "it is {}; a MachineConfig holds only regular files",
                kind_noun(&object.kind)
            );
            self.refuse_subject(
                &subject,
                &reason,
                "put a file there, or make it with a unit that runs at boot",
            );
            return None;
        }
        match self.request.contents.get(path) {
            Some(bytes) => Some((object.clone(), bytes)),
            None => {
                self.refuse_unread(&subject, object);
                None
            }
        }
    }

    /// Refuses a file whose contents are not known.
    fn refuse_unread(&mut self, subject: &str, object: &Object) {
        if object.size() <= MAX_FILE {
            return self.refuse_subject(subject, "it cannot be read", "run it as root");
        }
        let reason = format!(
            "it has {} bytes; a MachineConfig holds files up to {MAX_FILE}",
            object.size()
        );
        let next = "put it into the OS image, or fetch it with a unit";
        self.refuse_subject(subject, &reason, next);
    }

    /// Returns the reason why a path is not kept. A path given by name may be kept even if an object expresses it better.
    fn find_limit(&self, path: &RootPath) -> Option<(&'static str, &'static str)> {
        let is_named = self.request.within.contains(path);
        // The templates create some static pods and their files; those of operators are in no config.
        let mut files = self.request.desired.files.iter();
        let is_of_pods = STATIC_PODS.iter().any(|directory| path.is_in(directory));
        if is_of_pods && !drift::is_exempt(path) && files.any(|file| file.path == *path) {
            return None;
        }
        limit_of(path).or_else(|| better_as_object(path).filter(|_| !is_named))
    }

    pub(super) fn note_attributes(&mut self, path: &RootPath) {
        if let Some(names) = self.request.attributes.get(path) {
            let reason = format!(
                "its extended attributes ({}) are not kept; a MachineConfig has none",
                names.join(", ")
            );
            self.refuse_subject(
                &path.to_string(),
                &reason,
                "set them with a unit that runs at boot",
            );
        }
    }

    pub(super) fn add_file(
        &mut self,
        path: &RootPath,
        bytes: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) {
        let mut entry = json!({
            "path": path.to_string(),
            "overwrite": true,
            "mode": mode,
            "contents": { "compression": "", "source": data_url(bytes) },
        });
        if let Some((user, group)) = owner {
            entry["user"] = json!({ "id": user });
            entry["group"] = json!({ "id": group });
        }
        self.files.insert(path.to_string(), entry);
    }

    pub(super) fn add_keys(&mut self, keys: Vec<String>) {
        self.keys.extend(keys);
    }

    pub(super) fn set_password(&mut self, hash: &str) {
        self.password = Some(hash.to_owned());
    }

    pub(super) fn add_argument(&mut self, argument: &str) {
        self.arguments.push(argument.to_owned());
    }

    pub(super) fn finish(mut self) -> Kept {
        self.result.unkept.sort();
        self.result.unkept.dedup();
        if !self.result.kept.is_empty() {
            self.result.config = Some(self.object_of_all());
        }
        self.result
    }

    fn object_of_all(&mut self) -> Value {
        let mut config = Map::new();
        config.insert("ignition".to_owned(), json!({ "version": "3.2.0" }));
        if !self.keys.is_empty() || self.password.is_some() {
            let mut user = json!({ "name": "core" });
            if !self.keys.is_empty() {
                user["sshAuthorizedKeys"] = self.keys.clone().into();
            }
            if let Some(hash) = &self.password {
                user["passwordHash"] = hash.as_str().into();
            }
            config.insert("passwd".to_owned(), json!({ "users": [user] }));
        }
        if !self.files.is_empty() {
            let files: Vec<Value> = std::mem::take(&mut self.files).into_values().collect();
            config.insert("storage".to_owned(), json!({ "files": files }));
        }
        if !self.units.is_empty() {
            let units: Vec<Value> = self
                .units
                .iter()
                .map(|(name, unit)| unit.unit_object(name))
                .collect();
            config.insert("systemd".to_owned(), json!({ "units": units }));
        }
        let mut spec = Map::new();
        spec.insert("config".to_owned(), config.into());
        if !self.arguments.is_empty() {
            spec.insert("kernelArguments".to_owned(), self.arguments.clone().into());
        }
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {
                "name": self.request.name,
                "labels": { "machineconfiguration.openshift.io/role": self.request.pool },
            },
            "spec": spec,
        })
    }
}

impl KeptUnit {
    fn unit_object(&self, name: &str) -> Value {
        let mut unit = json!({ "name": name });
        if let Some(contents) = &self.contents {
            unit["contents"] = contents.as_str().into();
        }
        if let Some(enabled) = self.enabled {
            unit["enabled"] = enabled.into();
        }
        if let Some(mask) = self.mask {
            unit["mask"] = mask.into();
        }
        if !self.dropins.is_empty() {
            let dropins = self.dropins.iter();
            let all: Vec<Value> = dropins
                .map(|(name, contents)| json!({ "name": name, "contents": contents }))
                .collect();
            unit["dropins"] = all.into();
        }
        unit
    }
}

/// Returns a data URL: percent-encoded if that is shorter, otherwise base64.
fn data_url(bytes: &[u8]) -> String {
    let mut plain = "data:,".to_owned();
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                plain.push(char::from(*byte));
            }
            // Writing to a string cannot fail.
            _ => drop(write!(plain, "%{byte:02X}")),
        }
    }
    let base64 = format!("data:;base64,{}", BASE64_STANDARD.encode(bytes));
    if base64.len() < plain.len() {
        base64
    } else {
        plain
    }
}
