//! Whether there is room: bytes and inodes for old, new, journal and records, per mount.

use std::collections::BTreeMap;

use super::{Builder, Payload, Step};
use crate::paths;
use crate::root::RootPath;

/// Journal and history cost about this much per step.
const JOURNAL_BYTES: u64 = 1024;
/// Directories, markers and the status file.
const OVERHEAD_BYTES: u64 = 64 << 10;
/// The same in inodes: each file has a new version beside it for a moment.
const OVERHEAD_INODES: u64 = 16;
const BLOCK: u64 = 4096;

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
    /// Blocks what would end in a full disk, and what lies on a read-only mount.
    pub(super) fn check_space(&mut self) {
        if self.plan.steps.is_empty() {
            return;
        }
        let node = self.node();
        let state = node.mount_for(&RootPath::fixed(paths::INTENT));
        let mut needs: BTreeMap<u64, SpaceNeed> = BTreeMap::new();
        for planned in &self.plan.steps {
            let mount = node.mount_for(planned.step.path());
            let need = needs.entry(mount).or_default();
            if let Step::MakeDirectory { .. } = planned.step {
                need.bytes += BLOCK;
                need.inodes += 1;
            }
            if let Step::Put { new, .. } = &planned.step {
                need.bytes += blocks(new.size());
                need.inodes += u64::from(!matches!(planned.payload, Payload::None)) + 1;
            }
            let own = needs.entry(state).or_default();
            own.bytes += JOURNAL_BYTES;
            if mount != state {
                own.add(self.kept_of(&planned.step));
            }
        }
        let own = needs.entry(state).or_default();
        own.bytes += OVERHEAD_BYTES;
        own.inodes += OVERHEAD_INODES;
        for (id, need) in needs {
            self.check_mount(id, need);
        }
    }

    /// The room of what the history keeps of a step. Across mounts it is a copy, of a directory with all that is in it.
    fn kept_of(&self, step: &Step) -> SpaceNeed {
        let (Step::Put { old: Some(old), .. } | Step::Remove { old, .. }) = step else {
            return SpaceNeed::default();
        };
        let tree = self.node().trees.get(step.path());
        let tree = tree.filter(|_| old.is_directory()).into_iter().flatten();
        let sizes = tree.copied().chain([old.size()]);
        let room = |size: u64| blocks(size).max(if old.is_directory() { BLOCK } else { 0 });
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
            .find(|planned| self.node().mount_for(planned.step.path()) == id);
        let shown = first.map_or_else(
            || format!("/{}", paths::STATE),
            |planned| planned.step.path().to_string(),
        );
        if mount.read_only {
            self.block(
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
            self.block(&shown, message);
        }
        if mount.free_inodes.is_some_and(|free| need.inodes > free) {
            let message = format!(
                "not enough inodes on its file system: {} are needed, {} are free. Remove some files, then run again",
                need.inodes,
                mount.free_inodes.unwrap_or_default(),
            );
            self.block(&shown, message);
        }
    }
}

fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK) * BLOCK
}
