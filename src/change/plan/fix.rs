//! Fixes that only change files, for `doctor --fix`: changes of single files, converted to steps.
//!
//! Nothing is deleted: an object in the way is renamed, next to its old name. Files that the recorded config owns are left to
//! `apply`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer};

use super::{Attributes, Builder, InTheWay, Payload, Plan, PlanInputs, PlanOptions, Section, Step};
use crate::base::invocation::mco_rescue;
use crate::base::object::{Object, ObjectKind};
use crate::base::paths;
use crate::base::time::format_utc;
use crate::config::document::Desired;
use crate::host::root::RootPath;
use crate::judge::drift::{dropin_path, kind_noun, text_object, unit_path};
use crate::node::Interest;

/// One change of a fix. Paths are absolute, as the node sees them: `/etc/name`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum FixChange {
    /// Renames a file or link to `NAME.mco-rescue-TIME`, with mode, owner, times and label. If programs read every name in its
    /// directory, it is moved to a parent directory.
    MoveAside {
        /// The file or link.
        path: String,
    },
    /// Changes the permission bits of a file or directory.
    SetMode {
        /// The file or directory.
        path: String,
        /// The new bits.
        #[serde(serialize_with = "serialize_octal")]
        mode: u32,
    },
    /// Changes owner and group of a file or directory.
    SetOwner {
        /// The file or directory.
        path: String,
        /// The new owner.
        uid: u32,
        /// The new group.
        gid: u32,
    },
    /// Creates a file at a free path. Owner and group are root.
    CreateFile {
        /// The new file.
        path: String,
        /// Its permission bits.
        #[serde(serialize_with = "serialize_octal")]
        mode: u32,
        /// Its content.
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// Copies a file with content and owner, replacing the file at the path, if any.
    CopyFile {
        /// The source.
        from: String,
        /// The new file.
        path: String,
        /// Its permission bits.
        #[serde(serialize_with = "serialize_octal")]
        mode: u32,
    },
    /// Changes the content of a file; mode, owner and label are kept.
    ReplaceFile {
        /// The file.
        path: String,
        /// Its new content.
        #[serde(skip)]
        content: Vec<u8>,
    },
    /// Creates a symbolic link, replacing the file or link at the path, if any.
    MakeLink {
        /// The link.
        path: String,
        /// Its target.
        target: String,
    },
}

impl FixChange {
    /// Returns the path that changes.
    pub fn path(&self) -> &str {
        match self {
            Self::MoveAside { path }
            | Self::SetMode { path, .. }
            | Self::SetOwner { path, .. }
            | Self::CreateFile { path, .. }
            | Self::CopyFile { path, .. }
            | Self::ReplaceFile { path, .. }
            | Self::MakeLink { path, .. } => path,
        }
    }

    fn is_move(&self) -> bool {
        matches!(self, Self::MoveAside { .. })
    }

    fn is_of_attributes(&self) -> bool {
        matches!(self, Self::SetMode { .. } | Self::SetOwner { .. })
    }

    fn is_put(&self) -> bool {
        !self.is_move() && !self.is_of_attributes()
    }

    /// Returns the path that the change only reads.
    fn source(&self) -> Option<&str> {
        match self {
            Self::CopyFile { from, .. } => Some(from),
            _ => None,
        }
    }

    /// Returns the change that moves a file or link aside.
    pub fn move_aside(path: impl Into<String>) -> Self {
        Self::MoveAside { path: path.into() }
    }

    /// Returns the change that sets permission bits.
    pub fn set_mode(path: impl Into<String>, mode: u32) -> Self {
        Self::SetMode {
            path: path.into(),
            mode,
        }
    }

    /// Returns the change that sets owner and group.
    pub fn set_owner(path: impl Into<String>, uid: u32, gid: u32) -> Self {
        Self::SetOwner {
            path: path.into(),
            uid,
            gid,
        }
    }

    /// Returns the change that creates a file.
    pub fn create_file(path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        Self::CreateFile {
            path: path.into(),
            mode,
            content: content.into(),
        }
    }

    /// Returns the change that copies a file.
    pub fn copy_file(from: impl Into<String>, path: impl Into<String>, mode: u32) -> Self {
        Self::CopyFile {
            from: from.into(),
            path: path.into(),
            mode,
        }
    }

    /// Returns the change that creates a link.
    pub fn make_link(path: impl Into<String>, target: impl Into<String>) -> Self {
        Self::MakeLink {
            path: path.into(),
            target: target.into(),
        }
    }

    /// Returns the change that replaces a file's content.
    pub fn replace_file(path: impl Into<String>, content: impl Into<Vec<u8>>) -> Self {
        Self::ReplaceFile {
            path: path.into(),
            content: content.into(),
        }
    }
}

fn serialize_octal<S: Serializer>(mode: &u32, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&format!("{mode:04o}"))
}

/// The changes of one run, and the time for the names of renamed objects.
#[derive(Debug, Clone, Copy)]
pub struct FixInputs<'a> {
    /// The changes, in order.
    pub changes: &'a [FixChange],
    /// Seconds since 1970.
    pub time: u64,
}

impl FixInputs<'_> {
    /// Returns the paths that have to be observed before the changes are planned.
    pub fn paths_observed(&self) -> Interest {
        let changes = self.changes.iter();
        let named = changes.flat_map(|change| {
            let path = RootPath::parse(change.path()).ok();
            let source = change.source().and_then(|path| RootPath::parse(path).ok());
            let aside = path.as_ref().and_then(|path| aside_path(path, self.time));
            [path, source, aside].into_iter().flatten()
        });
        Interest {
            paths: named.chain([RootPath::fixed(paths::STATUS)]).collect(),
            ..Interest::default()
        }
    }
}

/// Directories in which programs, or our own checks, read every name, each with the nearest parent directory that is safe.
const READ_WHOLE: [(&str, &str); 18] = [
    (
        "etc/NetworkManager/system-connections",
        "etc/NetworkManager",
    ),
    (
        "run/NetworkManager/system-connections",
        "run/NetworkManager",
    ),
    ("etc/NetworkManager/dispatcher.d", "etc/NetworkManager"),
    ("etc/systemd/system", "etc/systemd"),
    ("etc/systemd/user", "etc/systemd"),
    ("etc/kubernetes/manifests", "etc/kubernetes"),
    ("etc/crio/crio.conf.d", "etc/crio"),
    ("etc/sysconfig/network-scripts", "etc/sysconfig"),
    ("etc/pki/ca-trust/source", "etc/pki/ca-trust"),
    (
        "etc/machine-config-daemon/orig",
        "etc/machine-config-daemon",
    ),
    (
        "etc/machine-config-daemon/noorig",
        "etc/machine-config-daemon",
    ),
    ("etc/cron.d", "etc"),
    ("etc/dnsmasq.d", "etc"),
    ("etc/logrotate.d", "etc"),
    ("home/core/.ssh/authorized_keys.d", "home/core/.ssh"),
    ("var/home/core/.ssh/authorized_keys.d", "var/home/core/.ssh"),
    ("etc/iscsi/nodes", "etc/iscsi"),
    ("etc/openvswitch/conf.d", "etc/openvswitch"),
];

/// Returns the new name of a file or link that is moved aside.
fn aside_path(path: &RootPath, time: u64) -> Option<RootPath> {
    let stamp: String = format_utc(time)
        .chars()
        .filter(|c| !"-:".contains(*c))
        .collect();
    let name = format!("{}.mco-rescue-{stamp}", path.name());
    let read_whole = READ_WHOLE.iter().find(|(whole, _)| path.is_in(whole));
    match read_whole {
        // Files in different subdirectories may have the same name.
        Some((whole, above)) => {
            let below = path.relative().strip_prefix(whole)?.trim_start_matches('/');
            let name = format!("{}.mco-rescue-{stamp}", below.replace('/', "."));
            RootPath::fixed(above).join(&name).ok()
        }
        None => match path.parent() {
            Some(parent) => parent.join(&name).ok(),
            None => RootPath::parse(&format!("/{name}")).ok(),
        },
    }
}

/// Plans the changes. The config in `inputs` is empty; its old one is the recorded config.
pub(super) fn plan_fix(inputs: PlanInputs<'_>, work: FixInputs<'_>) -> Plan {
    let mut builder = Builder::new(inputs, PlanOptions::default());
    let indexed = work.changes.iter().enumerate();
    let puts = indexed.filter(|(_, change)| change.is_put());
    let last_puts: BTreeMap<&str, usize> = puts.map(|(at, change)| (change.path(), at)).collect();
    let mut moved = BTreeSet::new();
    for (at, change) in work.changes.iter().enumerate() {
        let last = last_puts.get(change.path());
        let beside = Beside {
            is_moved: moved.contains(change.path()),
            is_put: last.is_some_and(|last| *last > at),
        };
        builder.plan_change(change, beside, work.time);
        if change.is_move() {
            moved.insert(change.path());
        }
    }
    builder.second_names();
    builder.check_ownership();
    builder.plan_labels();
    builder.check_space();
    builder.plan
}

/// Other changes of the same path.
#[derive(Debug, Clone, Copy)]
struct Beside {
    /// An earlier one moves the existing object aside.
    is_moved: bool,
    /// A later one puts something in its place.
    is_put: bool,
}

impl Builder<'_> {
    fn plan_change(&mut self, change: &FixChange, beside: Beside, time: u64) {
        let path = match RootPath::parse(change.path()) {
            Ok(path) => path,
            Err(error) => return self.add_blocker(change.path(), error.to_string()),
        };
        let attributes = change.is_of_attributes();
        if !attributes && self.is_touched(&path) {
            let message = "would be changed twice. Change it by hand";
            return self.add_blocker(path.to_string(), message);
        }
        if !attributes && self.inputs.old.is_some_and(|old| contains_path(old, &path)) {
            let message = format!(
                "belongs to the recorded config, so only the config may change it. Compare and correct it: {}, {}",
                mco_rescue("verify"),
                mco_rescue("apply")
            );
            return self.add_blocker(path.to_string(), message);
        }
        match change {
            FixChange::MoveAside { .. } => self.move_aside(&path, beside.is_put, time),
            FixChange::SetMode { mode, .. } => {
                self.change_attributes(&path, |old| Attributes { mode: *mode, ..old });
            }
            FixChange::SetOwner { uid, gid, .. } => self.change_owner(&path, *uid, *gid),
            FixChange::CreateFile { mode, content, .. } => {
                self.create_file(&path, *mode, content, beside.is_moved);
            }
            FixChange::CopyFile { from, mode, .. } => self.copy_file(&path, from, *mode),
            FixChange::ReplaceFile { content, .. } => self.replace_file(&path, content),
            FixChange::MakeLink { target, .. } => self.make_link(&path, target),
        }
    }

    /// Blocks a change whose file differs from what the check saw.
    fn block_unlike(&mut self, path: &RootPath, found: Option<&Object>, wanted: &str) {
        let what = found.map_or("missing".to_owned(), |found| kind_noun(&found.kind));
        let message = format!(
            "is {what}, not {wanted}. Look again: {}",
            mco_rescue("doctor")
        );
        self.add_blocker(path.to_string(), message);
    }

    /// Plans a rename. If something replaces the object, that is a separate change.
    fn move_aside(&mut self, path: &RootPath, is_put: bool, time: u64) {
        let node = self.node();
        let found = node.object(path);
        let Some(old) = found.filter(|old| is_file_or_link(old)).cloned() else {
            return self.block_unlike(path, found, "a file or link");
        };
        let Some(aside) = aside_path(path, time) else {
            return self.add_blocker(
                path.to_string(),
                "cannot get a longer name. Move it by hand",
            );
        };
        if let Some(found) = node.object(&aside) {
            let what = kind_noun(&found.kind);
            let message = format!("{what} has this name already. Run it again");
            return self.add_blocker(aside.to_string(), message);
        }
        if !self.may_touch(path, Some(&old), InTheWay::Stays)
            || !self.may_touch(&aside, None, InTheWay::Stays)
        {
            return;
        }
        // A hard link preserves everything about the file.
        let payload = Payload::NameOf(path.clone());
        let put = Step::Put {
            path: aside.clone(),
            new: old.clone(),
            old: None,
        };
        let why = format!("{path} gets this name");
        self.push_step(put, payload, Section::Files, why);
        if is_put {
            return;
        }
        let remove = Step::Remove {
            path: path.clone(),
            old,
        };
        let why = format!("is moved aside to {aside}");
        self.push_step(remove, Payload::None, Section::Files, why);
    }

    fn change_attributes(&mut self, path: &RootPath, change: impl Fn(Attributes) -> Attributes) {
        let found = self.node().object(path);
        let has_attributes = |found: &&Object| !matches!(found.kind, ObjectKind::Symlink { .. });
        let Some(old) = found.filter(has_attributes).map(Attributes::from) else {
            return self.block_unlike(path, found, "a file or directory");
        };
        // Mode and owner of one path are changed in one step.
        for planned in &mut self.plan.steps {
            if let Step::Metadata { path: at, new, .. } = &mut planned.step
                && at == path
            {
                *new = change(*new);
                return;
            }
        }
        let new = change(old);
        if self.is_touched(path) {
            let message = "would be changed twice. Change it by hand";
            return self.add_blocker(path.to_string(), message);
        }
        if new != old {
            let why = "owner or permissions are wrong";
            self.put_attributes(path, old, new, Section::Files, why);
        }
    }

    fn change_owner(&mut self, path: &RootPath, uid: u32, gid: u32) {
        let found = self.node().object(path);
        let is_right = found.is_some_and(|found| found.owner() == (uid, gid));
        if !self.node().host.can_chown && !is_right {
            let message = "needs another owner, which only root can give. Run it with sudo";
            return self.add_blocker(path.to_string(), message);
        }
        self.change_attributes(path, |old| Attributes { uid, gid, ..old });
    }

    fn create_file(&mut self, path: &RootPath, mode: u32, content: &[u8], is_moved: bool) {
        if let Some(found) = self.node().object(path).filter(|_| !is_moved) {
            return self.block_unlike(path, Some(found), "missing");
        }
        let owner = self.node().host.attainable_owner((0, 0));
        let new = text_object(content, mode, owner);
        let payload = Payload::Bytes(content.to_vec());
        self.put_object(path, new, payload, Section::Files, "is missing");
    }

    fn copy_file(&mut self, path: &RootPath, from: &str, mode: u32) {
        let source = RootPath::parse(from).ok();
        let found = source.as_ref().and_then(|path| self.node().object(path));
        let is_read = |found: &&Object| {
            matches!(found.kind, ObjectKind::File { .. }) && !found.kind.is_unread()
        };
        let (Some(source), Some(found)) = (&source, found.filter(is_read)) else {
            let message = "is missing, or is not a file that can be copied. Check it: ls -l";
            return self.add_blocker(from, message);
        };
        let (uid, gid) = self.node().host.attainable_owner(found.owner());
        let new = Object::new(found.kind.clone(), mode, (uid, gid));
        let why = format!("is the copy of {source}");
        let payload = Payload::CopyOf(source.clone());
        self.put_object(path, new, payload, Section::Files, why);
    }

    fn replace_file(&mut self, path: &RootPath, content: &[u8]) {
        let found = self.node().object(path);
        let is_file = |found: &&Object| matches!(found.kind, ObjectKind::File { .. });
        let Some(old) = found.filter(is_file) else {
            return self.block_unlike(path, found, "a file");
        };
        let new = text_object(content, old.mode, old.owner());
        let payload = Payload::Bytes(content.to_vec());
        self.put_object(path, new, payload, Section::Files, "its content is wrong");
    }

    fn make_link(&mut self, path: &RootPath, target: &str) {
        let (uid, gid) = self.node().host.attainable_owner((0, 0));
        let new = Object::new(
            ObjectKind::Symlink {
                target: target.to_owned(),
            },
            0o777,
            (uid, gid),
        );
        let why = "the link is missing or leads elsewhere";
        self.put_object(path, new, Payload::None, Section::Nodes, why);
    }
}

fn is_file_or_link(object: &Object) -> bool {
    matches!(
        object.kind,
        ObjectKind::File { .. } | ObjectKind::Symlink { .. }
    )
}

/// Returns true if a config has this file, unit file or drop-in.
fn contains_path(config: &Desired, path: &RootPath) -> bool {
    let mut units = config.units.iter();
    config.file_at(path).is_some()
        || units.any(|unit| {
            let is_file = unit.contents.is_some() && unit_path(&unit.name).as_ref() == Some(path);
            let mut dropins = unit.dropins.iter();
            is_file || dropins.any(|one| dropin_path(&unit.name, &one.name).as_ref() == Some(path))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_moved_aside_is_not_read_there() {
        let name = |path: &str| aside_path(&RootPath::parse(path).unwrap(), 1_764_000_000).unwrap();
        for (path, expected) in [
            ("/etc/a", "/etc/a.mco-rescue-20251124T160000Z"),
            ("/a", "/a.mco-rescue-20251124T160000Z"),
            (
                "/etc/NetworkManager/system-connections/x.nmconnection",
                "/etc/NetworkManager/x.nmconnection.mco-rescue-20251124T160000Z",
            ),
            (
                "/etc/systemd/system/a.service.d/20-x.conf",
                "/etc/systemd/a.service.d.20-x.conf.mco-rescue-20251124T160000Z",
            ),
        ] {
            assert_eq!(name(path).to_string(), expected);
        }
        for (whole, above) in READ_WHOLE {
            let whole = RootPath::fixed(whole);
            assert!(whole.is_in(above) && !RootPath::fixed(above).is_in(whole.relative()));
            let rules = READ_WHOLE.iter();
            let mut others =
                rules.filter(|(other, _)| RootPath::fixed(above).join("x").unwrap().is_in(other));
            assert!(others.next().is_none(), "{above} is read whole itself");
        }
    }
}
