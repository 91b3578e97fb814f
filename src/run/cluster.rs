//! Additional facts that `fetch` stores while the network works: the API's data on this node and its policies, and facts from the
//! daemon's log before it is deleted. A fetch does not need any of it, so failures here are ignored.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::base::paths;
use crate::base::time::current_time;
use crate::change::source::{self, Http, ReferenceNetwork};
use crate::change::transaction::store_value;
use crate::host::net::{self, FetchCause, FetchError, FetchRequest};
use crate::host::root::Root;
use crate::judge::daemon::annotations::{self, Annotations, ApiAccess};
use crate::judge::daemon::pod_log::{self, DaemonLog};
use crate::judge::daemon::policies::{self, Policies, PolicyRequest};
use crate::node::host_name::registered_name;

/// Time limit for one answer of the API, so that the timer's service ends in time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for the header of an answer.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of a rendered config (16 MiB); the operator refuses more than 1.5 MiB.
pub const MAX_BYTES: u64 = 16 << 20;

/// The sources of the cluster's desired state, best evidence first.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ClusterReport {
    /// The node's annotations, as the API reported them.
    pub annotations: Option<Annotations>,
    /// The last configs in the daemon's log on the node.
    pub daemon_log: Option<DaemonLog>,
    /// The disruption policies, and the result of the last request for them.
    pub policies: Option<Policies>,
}

/// How the cluster is asked.
#[derive(Debug, Clone, Copy)]
pub struct ClusterRequest<'a> {
    /// The addresses of host names.
    pub resolve: &'a [(String, IpAddr)],
    /// The time limit for each answer.
    pub within: Duration,
}

/// Queries the API, reads the log, and stores the results.
pub fn ask_cluster(root: &Root, request: ClusterRequest<'_>) -> ClusterReport {
    let log = or_said(keep_log(root), "the daemon's log is not kept");
    let access = annotations::read_access(root).context("looking for the kubelet's credentials");
    let Some(access) = or_said(access, "the API is not asked") else {
        return ClusterReport {
            daemon_log: log.flatten(),
            ..ClusterReport::default()
        };
    };
    let api = ApiClient {
        root,
        request,
        access,
    };
    let node = api.get_annotations();
    // If there was no answer at all, a second query would only wait again.
    let answers = node
        .as_ref()
        .map_or_else(|error| http_status(error).is_some(), |_| true);
    let policies =
        answers.then(|| or_said(api.get_policies(), "the disruption policies are not known"));
    ClusterReport {
        annotations: or_said(node, "the node's annotations are not known"),
        policies: policies.flatten(),
        daemon_log: log.flatten(),
    }
}

fn or_said<T>(result: Result<T>, what: &str) -> Option<T> {
    result
        .inspect_err(|error| log::info!("{what}: {error:#}"))
        .ok()
}

/// Returns the HTTP status of a refused answer.
fn http_status(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<FetchError>()?.cause {
        FetchCause::Status(code) => Some(code),
        _ => None,
    }
}

/// Stores facts from the daemon's log, which is deleted with its pod. They are written only if they are new.
fn keep_log(root: &Root) -> Result<Option<DaemonLog>> {
    let known = pod_log::read_pod_log(root)?;
    if let Some(log) = &known
        && pod_log::read_daemon_log(root)?.as_ref() != Some(log)
    {
        store_value(root, paths::DAEMON_LOG, log)?;
    }
    Ok(known)
}

/// A client of the cluster's API, with the kubelet's credentials.
struct ApiClient<'a> {
    root: &'a Root,
    request: ClusterRequest<'a>,
    access: ApiAccess,
}

impl ApiClient<'_> {
    fn get_annotations(&self) -> Result<Annotations> {
        let name = registered_name(self.root)?;
        let answer = self.get_object(&annotations::node_url(&self.access.server, &name))?;
        let seen = annotations::parse_annotations(&answer, current_time())?;
        store_value(self.root, paths::ANNOTATIONS, &seen)?;
        Ok(seen)
    }

    fn get_policies(&self) -> Result<Policies> {
        let before = policies::read_policies(self.root)?;
        let (asked, given) = match self.get_object(&policies::policies_url(&self.access.server)) {
            Ok(answer) => {
                let answer = policies::parse_answer(&answer, current_time())?;
                let asked = match answer.policies {
                    Some(_) => PolicyRequest::Given,
                    None => PolicyRequest::NotReady,
                };
                (asked, (answer.policies, Some(answer.overrides)))
            }
            Err(error) => (policy_refusal(&error).ok_or(error)?, (None, None)),
        };
        let policies = Policies::after_request(before, asked, given, current_time());
        store_value(self.root, paths::POLICIES, &policies)?;
        Ok(policies)
    }

    fn get_object(&self, url: &str) -> Result<Vec<u8>> {
        let settings = Http::new(self.root).fetch_settings(&ReferenceNetwork::default());
        let mut settings = settings.map_err(anyhow::Error::msg)?;
        settings.certificates.clone_from(&self.access.authorities);
        settings.identity = Some(self.access.identity.clone());
        settings.names.given = self.request.resolve.to_vec();
        settings.header_timeout = HEADER_TIMEOUT;
        settings.total_timeout = Some(self.request.within.min(PATIENCE));
        let mut request = FetchRequest::new(url, MAX_BYTES);
        request.retry = false;
        let json = ("Accept".into(), "application/json".into());
        request.headers.push(json);
        Ok(net::fetch_url(&settings, &request, &mut source::show_progress())?.bytes)
    }
}

/// Returns the meaning of an answer without policies.
fn policy_refusal(error: &anyhow::Error) -> Option<PolicyRequest> {
    match http_status(error)? {
        401 | 403 => Some(PolicyRequest::NotAllowed),
        404 => Some(PolicyRequest::None),
        _ => None,
    }
}
