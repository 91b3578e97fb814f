//! What `fetch` keeps besides, while the network is good: what the API says of this node and of its policies, and
//! what the daemon's log tells before it is gone. None of it is needed for a fetch, so nothing here fails it.

use std::time::Duration;

use anyhow::{Context, Result};

use super::FetchArgs;
use crate::base::paths;
use crate::base::time::now;
use crate::change::source::{self, Http, ReferenceNetwork};
use crate::change::transaction::store_value;
use crate::host::net::{self, FetchCause, FetchError, FetchRequest};
use crate::host::root::Root;
use crate::judge::daemon::annotations::{self, Annotations, ApiAccess};
use crate::judge::daemon::pod_log::{self, DaemonLog};
use crate::judge::daemon::policies::{self, Policies, PolicyRequest};
use crate::node::host_name::registered_name;
use crate::report::fetch::ClusterReport;

/// For one answer of the API, so that the timer's service ends in its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Until the head of an answer is there.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// A rendered config may not be larger than this (16 MiB): the operator refuses those above 1.5 MiB.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// Asks the API, reads the log, and keeps what is seen.
pub(super) fn ask_cluster(root: &Root, args: &FetchArgs) -> ClusterReport {
    let log = or_said(keep_log(root), "the daemon's log is not kept");
    let access = annotations::read_access(root).context("looking for the kubelet's credentials");
    let Some(access) = or_said(access, "the API is not asked") else {
        return ClusterReport {
            daemon_log: log.flatten(),
            ..ClusterReport::default()
        };
    };
    let api = ApiClient { root, args, access };
    let node = api.annotations();
    // Who gave no answer at all would only be waited for once more.
    let answers = node
        .as_ref()
        .map_or_else(|error| status(error).is_some(), |_| true);
    let policies =
        answers.then(|| or_said(api.policies(), "the disruption policies are not known"));
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

/// The HTTP status that an answer was refused for.
fn status(error: &anyhow::Error) -> Option<u16> {
    match error.downcast_ref::<FetchError>()?.cause {
        FetchCause::Status(code) => Some(code),
        _ => None,
    }
}

/// Logs go with their pod; what they told is kept, and written only when it is new.
fn keep_log(root: &Root) -> Result<Option<DaemonLog>> {
    let known = pod_log::read_pod_log(root)?;
    if let Some(log) = &known
        && pod_log::read_daemon_log(root)?.as_ref() != Some(log)
    {
        store_value(root, paths::DAEMON_LOG, log)?;
    }
    Ok(known)
}

/// The cluster's API, asked as the kubelet.
struct ApiClient<'a> {
    root: &'a Root,
    args: &'a FetchArgs,
    access: ApiAccess,
}

impl ApiClient<'_> {
    fn annotations(&self) -> Result<Annotations> {
        let name = registered_name(self.root)?;
        let answer = self.get(&annotations::node_url(&self.access.server, &name))?;
        let seen = annotations::parse_annotations(&answer, now())?;
        store_value(self.root, paths::ANNOTATIONS, &seen)?;
        Ok(seen)
    }

    fn policies(&self) -> Result<Policies> {
        let before = policies::read_policies(self.root)?;
        let (asked, given) = match self.get(&policies::policies_url(&self.access.server)) {
            Ok(answer) => {
                let answer = policies::parse_answer(&answer, now())?;
                let asked = match answer.policies {
                    Some(_) => PolicyRequest::Given,
                    None => PolicyRequest::NotReady,
                };
                (asked, (answer.policies, Some(answer.overrides)))
            }
            Err(error) => (refusal(&error).ok_or(error)?, (None, None)),
        };
        let policies = Policies::after(before, asked, given, now());
        store_value(self.root, paths::POLICIES, &policies)?;
        Ok(policies)
    }

    fn get(&self, url: &str) -> Result<Vec<u8>> {
        let settings = Http::new(self.root).settings(&ReferenceNetwork::default());
        let mut settings = settings.map_err(anyhow::Error::msg)?;
        settings.certificates.clone_from(&self.access.authorities);
        settings.identity = Some(self.access.identity.clone());
        settings.names.given.clone_from(&self.args.resolve);
        settings.header_timeout = HEADER_TIMEOUT;
        settings.total_timeout = Some(Duration::from_secs(self.args.timeout).min(PATIENCE));
        let mut request = FetchRequest::new(url, MAX_BYTES);
        request.retry = false;
        let json = ("Accept".into(), "application/json".into());
        request.headers.push(json);
        Ok(net::fetch_url(&settings, &request, &mut source::show_progress())?.bytes)
    }
}

/// What the API means where it has no policies for us.
fn refusal(error: &anyhow::Error) -> Option<PolicyRequest> {
    match status(error)? {
        401 | 403 => Some(PolicyRequest::NotAllowed),
        404 => Some(PolicyRequest::None),
        _ => None,
    }
}
