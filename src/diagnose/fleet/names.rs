//! Node names, derived from file names.

/// The directory in a bundle.
const BUNDLE: &str = "mco-rescue-bundle";
/// The suffixes after a node's name in a file name.
const KINDS: [&str; 2] = ["status", "doctor"];

/// Returns the node that a JSON file belongs to, by its path below the gathered directory: `NODE.json`, `NODE.status.json`,
/// `NODE-doctor.json`, or `NODE/status.json`.
pub fn node_of_document(path: &[String]) -> Option<String> {
    let (file, above) = path.split_last()?;
    let stem = file.strip_suffix(".json")?;
    let own = KINDS
        .iter()
        .find_map(|kind| stem.strip_suffix(kind))
        .map_or(stem, |stem| stem.trim_end_matches(['.', '-', '_']));
    if !own.is_empty() {
        return Some(own.to_owned());
    }
    let mut above = above.iter().rev();
    above.find(|name| *name != BUNDLE).cloned()
}

/// Returns the node that a bundle belongs to; `None` if the file is not a bundle.
pub fn node_of_bundle(file: &str) -> Option<String> {
    let stem = [".tar.gz", ".tgz"]
        .iter()
        .find_map(|ending| file.strip_suffix(ending))?;
    let own = stem.strip_suffix("bundle").unwrap_or(stem);
    let own = own.trim_end_matches(['.', '-', '_']);
    Some(if own.is_empty() { stem } else { own }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_their_nodes_in_every_usual_way() {
        for (path, node) in [
            ("worker-0.json", Some("worker-0")),
            ("worker-0.example.net.json", Some("worker-0.example.net")),
            ("worker-0.status.json", Some("worker-0")),
            ("worker-0-doctor.json", Some("worker-0")),
            ("worker-0/status.json", Some("worker-0")),
            ("worker-0/mco-rescue-bundle/doctor.json", Some("worker-0")),
            ("doctor/worker-0.json", Some("worker-0")),
            ("status.json", None),
            ("worker-0.txt", None),
        ] {
            let path: Vec<String> = path.split('/').map(str::to_owned).collect();
            assert_eq!(node_of_document(&path).as_deref(), node, "{path:?}");
        }
        assert_eq!(
            node_of_bundle("worker-0.tar.gz").as_deref(),
            Some("worker-0")
        );
        assert_eq!(
            node_of_bundle("worker-0-bundle.tgz").as_deref(),
            Some("worker-0")
        );
        assert_eq!(node_of_bundle("bundle.tar.gz").as_deref(), Some("bundle"));
        assert_eq!(node_of_bundle("worker-0.tar.gz.age"), None);
    }
}
