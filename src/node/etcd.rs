//! The etcd of a control-plane node: the certificates on its disk, and the parsers for its answers about members and their
//! health. `staging/quorum` sends the requests, `plan/quorum` judges the answers. Uses etcd's own interface
//! (`/v3/cluster/member/list`, `/health`) and the paths of its static pod.

use serde::Deserialize;

use crate::base::paths;
use crate::host::net::{self, CertificateDer, ClientIdentity};
use crate::host::root::{Root, RootError, RootPath};

/// Client URL of this node's etcd.
pub const LOCAL: &str = "https://127.0.0.1:2379";

/// The etcd cluster of this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Etcd {
    /// This is not a control-plane node, or not the running system.
    #[default]
    NotHere,
    /// etcd did not answer the query: the reason.
    Silent(String),
    /// Its members.
    Known(Vec<EtcdMember>),
    /// Its members, on a cluster of two nodes with fencing: Pacemaker lets the other node continue alone.
    Fenced(Vec<EtcdMember>),
}

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMember {
    /// Name of the member; empty if it has not started yet.
    pub name: String,
    /// URLs for its clients.
    pub urls: Vec<String>,
    /// It is this node.
    pub own: bool,
    /// It is a learner, which has no vote yet.
    pub learner: bool,
    /// The reason why it is unhealthy; `None` if it is healthy.
    pub ill: Option<String>,
}

/// A reason why etcd cannot be queried.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The root cannot be read.
    #[error(transparent)]
    Root(#[from] RootError),
    /// The client certificate is missing.
    #[error("/{0} has no etcd-peer-NAME.crt with its key")]
    NoCertificate(&'static str),
    /// The authority is missing.
    #[error("no bundle with the authority of etcd is below /{0}")]
    NoAuthority(&'static str),
    /// A file cannot be used.
    #[error("{0}: {1}")]
    File(RootPath, String),
    /// The answer cannot be used.
    #[error("the answer is not a list of members: {0}")]
    Answer(String),
}

/// The access to etcd.
#[derive(Debug)]
pub struct EtcdAccess {
    /// The authorities that sign its server certificate.
    pub authorities: Vec<CertificateDer<'static>>,
    /// A client certificate that it accepts.
    pub identity: ClientIdentity,
}

/// Returns true if the root is that of a control-plane node.
///
/// # Errors
/// The root cannot be read.
pub fn is_here(root: &Root) -> Result<bool, RootError> {
    let pods = [paths::ETCD_POD, paths::EXTERNAL_ETCD_POD];
    for pod in pods {
        if root.exists(&RootPath::fixed(pod))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads the certificates of the node's etcd.
///
/// # Errors
/// A certificate is missing or broken.
pub fn read_etcd_access(root: &Root) -> Result<EtcdAccess, EtcdError> {
    let authority = |path| root.read(&RootPath::fixed(path)).transpose();
    let mut found = paths::ETCD_AUTHORITIES.into_iter().filter_map(authority);
    let bundle = found
        .next()
        .ok_or(EtcdError::NoAuthority(paths::ETCD_CERTIFICATES))??;
    let directory = RootPath::fixed(paths::ETCD_CERTIFICATES);
    for name in root.list(&directory)? {
        let Some(stem) = name
            .strip_suffix(".crt")
            .filter(|stem| stem.starts_with("etcd-peer-"))
        else {
            continue;
        };
        let file = |ending: &str| -> Result<Option<Vec<u8>>, EtcdError> {
            let text = format!("{directory}/{stem}.{ending}");
            let path = RootPath::parse(&text)
                .map_err(|error| EtcdError::File(directory.clone(), error.to_string()))?;
            Ok(root.read(&path)?)
        };
        let (Some(chain), Some(key)) = (file("crt")?, file("key")?) else {
            continue;
        };
        let bad = |error: net::BundleError| EtcdError::File(directory.clone(), error.to_string());
        return Ok(EtcdAccess {
            authorities: net::parse_bundle(&bundle).map_err(bad)?,
            identity: ClientIdentity::parse(&chain, &key).map_err(bad)?,
        });
    }
    Err(EtcdError::NoCertificate(paths::ETCD_CERTIFICATES))
}

/// Parses the members in an answer and assumes that all of them are healthy.
///
/// # Errors
/// The answer is not etcd's.
pub fn parse_members(answer: &[u8]) -> Result<Vec<EtcdMember>, EtcdError> {
    #[derive(Deserialize)]
    struct MemberAnswer {
        header: Header,
        members: Vec<MemberEntry>,
    }
    #[derive(Deserialize)]
    struct Header {
        member_id: String,
    }
    #[derive(Deserialize)]
    struct MemberEntry {
        #[serde(rename = "ID")]
        id: String,
        #[serde(default)]
        name: String,
        #[serde(default, rename = "clientURLs")]
        urls: Vec<String>,
        #[serde(default, rename = "isLearner")]
        learner: bool,
    }
    let answer: MemberAnswer =
        serde_json::from_slice(answer).map_err(|error| EtcdError::Answer(error.to_string()))?;
    let own = answer.header.member_id;
    let member = |entry: MemberEntry| EtcdMember {
        own: entry.id == own,
        ill: entry
            .urls
            .is_empty()
            .then(|| "it has not started".to_owned()),
        name: entry.name,
        urls: entry.urls,
        learner: entry.learner,
    };
    Ok(answer.members.into_iter().map(member).collect())
}

/// Returns the reason why a member is unhealthy, from its answer of `/health`; `None` if it is healthy.
pub fn find_health_fault(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Health {
        health: serde_json::Value,
        #[serde(default)]
        reason: String,
    }
    match serde_json::from_slice::<Health>(answer) {
        Ok(health) if health.health == "true" || health.health == true => None,
        Ok(health) if health.reason.is_empty() => Some("it says that it is not healthy".to_owned()),
        Ok(health) => Some(health.reason),
        Err(_) => Some("its answer is not that of etcd".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_with_who_we_are() {
        let answer = br#"{"header": {"cluster_id": "1", "member_id": "7", "raft_term": "2"}, "members": [
            {"ID": "7", "name": "m0", "peerURLs": ["https://10.0.0.1:2380"], "clientURLs": ["https://10.0.0.1:2379"]},
            {"ID": "8", "peerURLs": ["https://10.0.0.2:2380"], "isLearner": true}]}"#;
        let all = parse_members(answer).unwrap();
        assert_eq!(
            (all[0].own, all[0].learner, all[0].ill.clone()),
            (true, false, None)
        );
        assert_eq!((all[1].own, all[1].learner), (false, true));
        assert_eq!(all[1].ill.as_deref(), Some("it has not started"));
        assert!(parse_members(b"404 page not found").is_err());
    }

    #[test]
    fn health_is_reported_as_text_or_as_truth() {
        assert_eq!(find_health_fault(br#"{"health":"true"}"#), None);
        assert_eq!(find_health_fault(br#"{"health":true}"#), None);
        let why = find_health_fault(br#"{"health":"false","reason":"NO LEADER"}"#);
        assert_eq!(why.as_deref(), Some("NO LEADER"));
        assert!(find_health_fault(br#"{"health":"false"}"#).is_some());
        assert!(find_health_fault(b"").is_some());
    }
}
