//! Checks the free space: bytes and inodes for old and new objects, journal and records, on each mount.

use std::collections::BTreeMap;

use super::{Builder, Payload, Step};
use crate::base::paths;
use crate::host::root::RootPath;

/// Approximate size of a step in the journal and the history, in bytes.
const JOURNAL_BYTES: u64 = 1024;
/// Inodes for directories, markers and the status file, a block each: a new version of a file briefly exists next to the old
/// one.
const OVERHEAD_INODES: u64 = 16;

#[derive(Default, Clone, Copy)]
struct SpaceNeed {
    bytes: u64,
    inodes: u64,
}

impl SpaceNeed {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.inodes += other.inodes;
    }
}

impl Builder<'_> {
    /// Adds blockers for mounts with too little space, and for read-only mounts.
    pub(super) fn check_space(&mut self) {
        if self.plan.steps.is_empty() {
            return;
        }
        let node = self.node();
        let state = node.mount_for(&RootPath::fixed(paths::INTENT));
        let mut needs: BTreeMap<u64, SpaceNeed> = BTreeMap::new();
        for planned in &self.plan.steps {
            // It is never changed, whatever is mounted there.
            if self.is_of_image(planned.step.path()) {
                continue;
            }
            let mount = node.mount_for(planned.step.path());
            let block = self.block_of(mount);
            let need = needs.entry(mount).or_default();
            if let Step::MakeDirectory { .. } = planned.step {
                need.bytes += block;
                need.inodes += 1;
            }
            if let Step::Put { new, .. } = &planned.step {
                need.bytes += new.size().next_multiple_of(block);
                need.inodes += u64::from(!matches!(planned.payload, Payload::None)) + 1;
            }
            let own = needs.entry(state).or_default();
            own.bytes += JOURNAL_BYTES;
            if mount != state {
                own.add(self.kept_of(&planned.step, self.block_of(state)));
            }
        }
        let own = needs.entry(state).or_default();
        own.bytes += OVERHEAD_INODES * self.block_of(state);
        own.inodes += OVERHEAD_INODES;
        for (id, need) in needs {
            self.check_mount(id, need);
        }
    }

    /// Returns the minimum space of a file on a mount.
    fn block_of(&self, mount: u64) -> u64 {
        self.node().mounts.get(&mount).map_or(1, |one| one.block)
    }

    /// Returns the space for a step's old object in the history. Across mounts it is a copy; a directory is copied with all its
    /// content.
    fn kept_of(&self, step: &Step, block: u64) -> SpaceNeed {
        let (Step::Put { old: Some(old), .. } | Step::Remove { old, .. }) = step else {
            return SpaceNeed::default();
        };
        let tree = self.node().trees.get(step.path());
        let tree = tree.filter(|_| old.is_directory()).into_iter().flatten();
        let sizes = tree.copied().chain([old.size()]);
        let least = if old.is_directory() { block } else { 0 };
        let room = |size: u64| size.next_multiple_of(block).max(least);
        sizes.fold(SpaceNeed::default(), |need, size| SpaceNeed {
            bytes: need.bytes + room(size),
            inodes: need.inodes + 1,
        })
    }

    fn check_mount(&mut self, id: u64, need: SpaceNeed) {
        let Some(mount) = self.node().mounts.get(&id).copied() else {
            return;
        };
        let first = self
            .plan
            .steps
            .iter()
            .map(|planned| planned.step.path())
            .find(|path| self.node().mount_for(path) == id && !self.is_of_image(path));
        let shown = first.map_or_else(|| format!("/{}", paths::STATE), ToString::to_string);
        if mount.read_only {
            self.add_blocker(
                &shown,
                "is on a read-only mount. Remount it read-write first, then run again",
            );
        }
        if need.bytes > mount.free_bytes {
            let message = format!(
                "not enough room on its file system: {} KiB are needed, {} KiB are free. Free some, then run again",
                need.bytes / 1024,
                mount.free_bytes / 1024,
            );
            self.add_blocker(&shown, message);
        }
        if mount.free_inodes.is_some_and(|free| need.inodes > free) {
            let message = format!(
                "not enough inodes on its file system: {} are needed, {} are free. Remove some files, then run again",
                need.inodes,
                mount.free_inodes.unwrap_or_default(),
            );
            self.add_blocker(&shown, message);
        }
    }
}
