//! Can the image's kernel mount the node's XFS file systems?

use crate::judge::crossing::{CrossingCheck, CrossingFinding, Target};
use crate::node::platform::Platform;

/// The check.
pub(super) const CHECK: CrossingCheck = CrossingCheck::of_image("xfs-format", judge);

fn judge(target: &Target, node: &Platform) -> Vec<CrossingFinding> {
    if target.os_release.el_major().is_none_or(|major| major < 10) {
        return Vec::new();
    }
    let all = node.xfs.iter().filter_map(|xfs| {
        let points = xfs.points.join(", ");
        match &xfs.version {
            Ok(5..) => None,
            Ok(version) => {
                let what = format!("{points} is an XFS of version {version}, which EL 10 does not mount");
                Some(
                    CrossingFinding::inhibitor(&xfs.source, what)
                        .with_evidence(&xfs.source, format!("superblock version {version}"))
                        .with_prevented("Deprecated V4 format (crc=0) not supported by kernel.")
                        .next(
                            "The format cannot be changed in place. Install the node again, or recreate the file system \
                             and restore its content.",
                        ),
                )
            }
            Err(reason) => {
                let what = format!("the version of the XFS on {points} is not known: {reason}");
                let point = xfs.points.first().map_or("/", String::as_str);
                Some(
                    CrossingFinding::unknown(&xfs.source, what)
                        .next(format!("xfs_info {point} | grep crc=1")),
                )
            }
        }
    });
    all.collect()
}
