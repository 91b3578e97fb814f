//! `doctor --bundle`: the evidence in one archive for other people. It does not contain the contents of files from a config: these
//! are listed by digest, and secrets by a digest with a key of the node. User, password and query are removed from URLs.

use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::base::reason::Reason;
use crate::base::time::current_time;
use crate::change::session::predict::GivenDaemon;
use crate::change::transaction;
use crate::formats::age::{self, Recipient};
use crate::host::root::Root;
use crate::node::Machine;
use crate::node::command::CommandRunner;
use crate::report::bundle::{Bundle, BundlePiece, gather_pieces, pack_bundle};

/// Writes the archive, and returns its list of contents.
pub(super) fn write(
    root: &Root,
    runner: &dyn CommandRunner,
    daemon: GivenDaemon<'_>,
    path: &Path,
    recipients: &[Recipient],
    doctor: [String; 2],
) -> Result<String> {
    let [text, json] = doctor;
    let mut pieces = vec![
        BundlePiece::new("doctor.txt", "what was found, for people", Ok(text)),
        BundlePiece::new("doctor.json", "the same for programs", Ok(json)),
    ];
    pieces.extend(gather_pieces(root, runner, daemon));
    let packed = pack_bundle(pieces, Machine::observe(root).ok().as_ref(), current_time());
    let Bundle { list, archive } =
        packed.map_err(|error| anyhow!("packing the bundle: {}", Reason::from(error)))?;
    let bytes = match recipients {
        [] => archive,
        recipients => age::encrypt_to(&archive, recipients).context("encrypting the bundle")?,
    };
    // An earlier bundle is never overwritten.
    transaction::write_output(path, &bytes, |_| false).map_err(|why| {
        let path = path.display();
        anyhow!(
            "writing {path}: {why}; give another FILE that does not exist yet, where there is room"
        )
    })?;
    Ok(list)
}
