//! Queries the node's own etcd, before a reboot is prepared and again right before it.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::base::invocation::reboot_command;
use crate::change::plan::{self, Quorum};
use crate::change::source;
use crate::host::net::{self, FetchRequest, FetchSettings};
use crate::host::root::Root;
use crate::node::etcd::{self, Etcd, EtcdAccess, EtcdMember, LOCAL};
use crate::node::neighbours::has_fencing;

/// Time limit for an answer: members on one network answer immediately or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_BYTES: u64 = 1 << 20;

/// Refuses to stop the pods if the quorum would be lost now.
pub fn allow_stopping(root: &Root, ignored: bool) -> Result<()> {
    match plan::judge_quorum(&read_etcd(root)?) {
        Quorum::Lost(why) if !ignored => Err(anyhow::anyhow!(
            "not stopping the workloads: {why}. Nothing was changed"
        )),
        _ => Ok(()),
    }
}

/// Refuses a reboot if the quorum would be lost now.
pub fn allow_reboot(root: &Root, ignored: bool) -> Result<()> {
    match plan::judge_quorum(&read_etcd(root)?) {
        Quorum::Lost(why) if !ignored => Err(anyhow::anyhow!(
            "not rebooting: {why}. What is staged stays; reboot once etcd would keep its quorum. Next: {}",
            reboot_command()
        )),
        _ => Ok(()),
    }
}

/// Returns the state of etcd if this is a running control-plane node.
pub fn read_etcd(root: &Root) -> Result<Etcd> {
    if !root.is_live() || !etcd::is_here(root).context("looking for etcd")? {
        return Ok(Etcd::NotHere);
    }
    let known = etcd::read_etcd_access(root).map_err(anyhow::Error::from);
    let known = known.and_then(|access| list_members(&access));
    let kind = if has_fencing(root).context("looking for Pacemaker")? {
        Etcd::Fenced
    } else {
        Etcd::Known
    };
    Ok(known.map_or_else(|error| Etcd::Silent(format!("{error:#}")), kind))
}

/// Returns all members, each with its health.
fn list_members(access: &EtcdAccess) -> Result<Vec<EtcdMember>> {
    let list = format!("{LOCAL}/v3/cluster/member/list");
    let mut all = etcd::parse_members(&get_url(access, &list, Some(b"{}"))?)?;
    for member in all.iter_mut().filter(|member| member.ill.is_none()) {
        let own = LOCAL.to_owned();
        let url = if member.own {
            Some(&own)
        } else {
            member.urls.first()
        };
        let Some(url) = url else { continue };
        member.ill = match get_url(access, &format!("{url}/health"), None) {
            Ok(answer) => etcd::find_health_fault(&answer),
            Err(error) => Some(format!("{error:#}")),
        };
    }
    Ok(all)
}

fn get_url(access: &EtcdAccess, url: &str, body: Option<&[u8]>) -> Result<Vec<u8>> {
    let settings = FetchSettings {
        certificates: access.authorities.clone(),
        identity: Some(access.identity.clone()),
        header_timeout: PATIENCE,
        connect_timeout: PATIENCE,
        total_timeout: Some(PATIENCE),
        ..FetchSettings::default()
    };
    let mut request = FetchRequest::new(url, MAX_BYTES);
    request.body = body;
    request.retry = false;
    Ok(net::fetch_url(&settings, &request, &mut source::show_progress())?.bytes)
}
