//! A control-plane node as it runs, and rows of what is done to it and found then.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::worker::{self, Branch, ETCD, copy};
use super::{doctor, ids};
use crate::support::TestRoot;
use crate::support::control_plane::ControlPlane;

/// The directories of one pod.
pub(super) const RESOURCES: &str = "etc/kubernetes/static-pod-resources";

/// A root with this control plane; all else is well.
pub(super) fn with(plane: &ControlPlane) -> TestRoot {
    let root = worker::healthy();
    fs::remove_dir_all(root.path(ETCD)).unwrap();
    plane.write(&root);
    root
}

/// Something done to a healthy control-plane node, and the one finding then; nothing: all is well still.
pub(super) struct Row {
    pub(super) done: fn(&TestRoot),
    pub(super) found: Option<Branch>,
}

/// Each row on a copy of the node: exactly its finding and no other. All rows that are not met are told at once.
#[track_caller]
pub(super) fn all_met(template: &TestRoot, rows: &[Row]) {
    let met = |row: &Row| {
        let root = copy(template);
        (row.done)(&root);
        let report = doctor(&root);
        match &row.found {
            Some(branch) => {
                assert_eq!(ids(&report), [branch.id], "{report:#}");
                branch.met_by(&report, root.dir().to_str().unwrap());
            }
            None => assert_eq!(ids(&report), Vec::<String>::new(), "{report:#}"),
        }
    };
    let failed: Vec<usize> = (0..rows.len())
        .filter(|number| catch_unwind(AssertUnwindSafe(|| met(&rows[*number]))).is_err())
        .collect();
    assert!(failed.is_empty(), "rows {failed:?}, as above");
}
