//! FP-44: a unit waits for something that never happens, and the kubelet waits for the unit.

use std::net::IpAddr;

use crate::base::invocation::shell_word;
use crate::diagnose::doctor::{
    CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding, Fact, messages,
};
use crate::node::boot_waits::{
    BR_EX_UP, BootWaits, KUBELET_WAITS, NMSTATE_APPLIED, NeededImage, PRIMARY_ADDRESS, RESOLVER,
    RESOLVER_DONE,
};
use crate::node::command::systemctl::{ActiveState, UnitJob};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-44",
    title: "a unit waits, and the kubelet waits for it",
    looks_at: "jobs of systemd, how long they run, and what their units wait for",
    explain: "Before the kubelet, units wait for a host name, an address, the bridge br-ex, name servers or the time. Most of \
them wait without any limit; the console says: A start job is running for ... / no limit. A job is reported if it runs \
for more than two minutes (ten where a cloud's metadata service is asked, fifteen in a first boot) and its condition is \
still false:\n\n\
node-valid-hostname: a name other than localhost, five minutes. nodeip-configuration: an address, found by a container \
whose image has to be on the node. wait-for-br-ex-up, ovs-configuration: the bridge. wait-for-node-ip: an address that \
can be used. on-prem-resolv-prepender: name servers of NetworkManager and an image; the kubelet waits for its mark. \
chrony-wait: the time. The units of a first boot are FP-02 and FP-05, and the first container of haproxy is FP-53.\n\n\
systemctl stop UNIT lets the boot go on only where the kubelet wants the unit (node-valid-hostname, chrony-wait, \
wait-for-node-ip). Where it requires the unit, stopping it cancels the kubelet too: make the condition true instead. \
Where Pacemaker manages the kubelet, systemd does not start it.",
    judge: judge_jobs,
};

/// Seconds after which an ordinary unit counts as late.
const LATE: u64 = 120;
/// Likewise for units that query a metadata service.
const LATE_FOR_CLOUD: u64 = 600;
/// Likewise during a first boot, which pulls images and waits for everything that is new.
const LATE_FIRST: u64 = 900;
/// Likewise for the kubelet, which retries its condition every ten seconds.
const LATE_FOR_KUBELET: u64 = 300;

/// A waiting unit and its condition.
struct Wait {
    /// The facts that show that its condition is still false.
    facts: Vec<Fact>,
    /// The message that its program prints meanwhile.
    words: Option<&'static str>,
    /// The command that helps.
    next: String,
    /// It has no limit.
    endless: bool,
}

fn judge_jobs(evidence: &DoctorEvidence) -> CheckVerdict {
    let waits = match evidence.boot_waits.seen() {
        Ok(waits) => waits,
        Err(why) => return CheckVerdict::not_seen(format!("conditions of units: {why}")),
    };
    let verdict = CheckVerdict::healthy();
    let jobs = match evidence.jobs.seen() {
        Ok(jobs) => jobs,
        Err(why) => {
            let verdict = verdict.and_findings(find_lacking_image(evidence, waits));
            // Jobs on another kind of system are not a problem of a node.
            return if evidence.boots_images {
                verdict.and_unseen(format!("jobs of systemd: {why}"))
            } else {
                verdict
            };
        }
    };
    let running = jobs
        .iter()
        .filter(|job| job.running && matches!(job.kind.as_str(), "start" | "restart"));
    let mut found: Vec<DoctorFinding> = Vec::new();
    for job in running {
        let late = late_after(evidence, &job.unit);
        let Some(seconds) = job_age(evidence, job).filter(|seconds| *seconds > late) else {
            continue;
        };
        if let Some(wait) = unmet_condition(evidence, waits, &job.unit) {
            found.push(report_wait(evidence, jobs, job, seconds, wait));
        }
    }
    if found.is_empty() {
        found.extend(find_waiting_kubelet(evidence, waits));
    }
    if found.is_empty() {
        found.extend(find_lacking_image(evidence, waits));
    }
    verdict.and_findings(found)
}

/// Returns the number of seconds since a unit began to start.
fn job_age(evidence: &DoctorEvidence, job: &UnitJob) -> Option<u64> {
    evidence.uptime?.checked_sub(job.began? / 1_000_000)
}

fn is_of_cloud(unit: &str) -> bool {
    let name = unit.trim_end_matches(".service");
    // `vsphere-hostname`, `aws-kubelet-nodename`; `node-valid-hostname` is handled separately.
    (name.ends_with("-hostname") && name != "node-valid-hostname")
        || name.ends_with("-kubelet-nodename")
}

/// Returns the number of seconds after which a unit is late.
fn late_after(evidence: &DoctorEvidence, unit: &str) -> u64 {
    match evidence.first_boot_files.is_waiting() || evidence.never_booted {
        true => LATE_FIRST,
        false if is_of_cloud(unit) => LATE_FOR_CLOUD,
        false => LATE,
    }
}

/// Returns what a unit still waits for; `None` for a unit that is not in the table, or whose condition is met.
fn unmet_condition(evidence: &DoctorEvidence, waits: &BootWaits, unit: &str) -> Option<Wait> {
    match unit {
        "node-valid-hostname.service" => wait_for_host_name(evidence),
        "nodeip-configuration.service" | "nodeip-configuration-vsphere-upi.service" => {
            wait_for_address(waits, unit)
        }
        "ovs-configuration.service" => {
            let interfaces = evidence.interfaces.get()?;
            let there = interfaces.iter().any(|one| one.name == "br-ex");
            let facts = vec![Fact::new("ip addr", "no br-ex")];
            (!there).then(|| Wait::endless_wait(facts, None, journal_of(unit)))
        }
        "wait-for-br-ex-up.service" => wait_for_bridge(evidence, waits),
        "wait-for-node-ip.service" => wait_for_address_in_use(evidence, waits),
        "on-prem-resolv-prepender.service" => wait_for_resolver(waits, unit),
        "chrony-wait.service" => Some(Wait {
            facts: vec![Fact::new("chronyc waitsync", "still waits")],
            words: None,
            next: "systemctl stop chrony-wait.service".to_owned(),
            endless: false,
        }),
        _ if is_of_cloud(unit) => Some(Wait {
            facts: vec![Fact::new("the metadata service", "has not answered")],
            words: None,
            next: journal_of(unit),
            endless: false,
        }),
        _ => None,
    }
}

impl Wait {
    /// Returns a wait that does not end by itself.
    fn endless_wait(facts: Vec<Fact>, words: Option<&'static str>, next: String) -> Self {
        Self {
            facts,
            words,
            next,
            endless: true,
        }
    }
}

fn journal_of(unit: &str) -> String {
    let name = unit.trim_end_matches(".service");
    format!("journalctl -b -u {} -n 20", shell_word(name))
}

fn missing_file(path: &str) -> Fact {
    Fact::new(format!("/{path}"), "missing")
}

fn wait_for_host_name(evidence: &DoctorEvidence) -> Option<Wait> {
    let names = evidence.host_names.get()?;
    let kernel = names.kernel.as_deref()?;
    // FP-45 reports the name if there is a certificate to compare it with.
    if !kernel.contains("localhost") || evidence.node_name().is_some() {
        return None;
    }
    Some(Wait {
        facts: vec![Fact::new("/proc/sys/kernel/hostname", kernel)],
        words: Some("waiting for non-localhost hostname to be assigned"),
        next: "hostnamectl set-hostname --static NAME".to_owned(),
        endless: false,
    })
}

/// Returns the wait for the choice of the node's address, which may first pull an image.
fn wait_for_address(waits: &BootWaits, unit: &str) -> Option<Wait> {
    if waits.primary_address.is_some() {
        return None;
    }
    let image = waits.image_of(unit);
    if let Some(image) = image.filter(|image| image.here == Some(false)) {
        let facts = vec![missing_file(PRIMARY_ADDRESS), missing_image(image)];
        return Some(Wait::endless_wait(facts, None, pull_command(image)));
    }
    let words = "Failed to find a suitable node IP";
    let facts = vec![missing_file(PRIMARY_ADDRESS)];
    Some(Wait::endless_wait(facts, Some(words), journal_of(unit)))
}

fn wait_for_bridge(evidence: &DoctorEvidence, waits: &BootWaits) -> Option<Wait> {
    if waits.br_ex_up {
        return None;
    }
    let interfaces = evidence.interfaces.get();
    let mut all = interfaces.iter().flat_map(|all| all.iter());
    let is_up = all.any(|one| one.name == "br-ex" && !one.addresses.is_empty());
    let (fact, next) = if is_up {
        ("br-ex has an address", format!("touch /{BR_EX_UP}"))
    } else {
        (
            "no br-ex with an address",
            "journalctl -b -u ovs-configuration -n 20".to_owned(),
        )
    };
    let facts = vec![missing_file(BR_EX_UP), Fact::new("ip addr", fact)];
    Some(Wait::endless_wait(facts, None, next))
}

/// Returns the wait for the node's address on an interface, after nmstate was applied.
fn wait_for_address_in_use(evidence: &DoctorEvidence, waits: &BootWaits) -> Option<Wait> {
    if !waits.nmstate_applied {
        return None;
    }
    let Some(address) = &waits.primary_address else {
        let words = "No primary ip to bind was found";
        let facts = vec![
            Fact::new(format!("/{NMSTATE_APPLIED}"), "exists"),
            missing_file(PRIMARY_ADDRESS),
        ];
        let next = "journalctl -b -u nodeip-configuration -n 20".to_owned();
        return Some(Wait::endless_wait(facts, Some(words), next));
    };
    let interfaces = evidence.interfaces.get()?.iter();
    let mut all = interfaces.flat_map(|one| &one.addresses);
    let wanted: IpAddr = address.parse().ok()?;
    if all.any(|one| one.local == wanted) {
        return None;
    }
    let facts = vec![
        Fact::new(format!("/{PRIMARY_ADDRESS}"), address),
        Fact::new("ip addr", "not on any interface"),
    ];
    Some(Wait::endless_wait(facts, None, "ip -br addr".to_owned()))
}

fn wait_for_resolver(waits: &BootWaits, unit: &str) -> Option<Wait> {
    if waits.resolver_done {
        return None;
    }
    if !waits.has_servers {
        let words = "NM resolv-prepender: NM resolv.conf still empty of nameserver";
        let facts = vec![Fact::new(format!("/{RESOLVER}"), "no nameserver")];
        return Some(Wait::endless_wait(
            facts,
            Some(words),
            "nmcli device show".to_owned(),
        ));
    }
    let image = waits.image_of(unit);
    Some(match image.filter(|image| image.here == Some(false)) {
        Some(image) => Wait::endless_wait(vec![missing_image(image)], None, pull_command(image)),
        None => Wait::endless_wait(vec![missing_file(RESOLVER_DONE)], None, journal_of(unit)),
    })
}

fn missing_image(image: &NeededImage) -> Fact {
    Fact::new(&image.place, format!("{} is not on the node", image.image))
}

fn pull_command(image: &NeededImage) -> String {
    format!(
        "podman pull --authfile /var/lib/kubelet/config.json {}",
        shell_word(&image.image)
    )
}

/// Returns true if the kubelet runs, or systemd is not meant to start it.
fn has_kubelet(evidence: &DoctorEvidence) -> bool {
    let units = evidence.units.get();
    let mut units = units.iter().flat_map(|units| units.iter());
    evidence.fencing
        || units.any(|unit| unit.name == "kubelet.service" && unit.active == ActiveState::Active)
}

fn report_wait(
    evidence: &DoctorEvidence,
    jobs: &[UnitJob],
    job: &UnitJob,
    seconds: u64,
    wait: Wait,
) -> DoctorFinding {
    let severity = if wait.endless && !has_kubelet(evidence) {
        CheckSeverity::Critical
    } else {
        CheckSeverity::Warning
    };
    let unit = &job.unit;
    let waiting = jobs.iter().filter(|one| !one.running).count();
    let holds_kubelet = jobs.iter().any(|one| one.unit == "kubelet.service");
    let means = match (holds_kubelet, wait.endless) {
        (true, true) => {
            "The unit has no limit, and the kubelet is not started before it ends. Make its condition true; the boot goes on \
             by itself then."
        }
        (true, false) => "The kubelet is not started before the unit ends or gives up.",
        (false, _) => "The boot does not finish before the unit ends.",
    };
    let what = if unit.len() > 42 {
        "a unit of the boot still waits".to_owned()
    } else {
        format!("{unit} still waits")
    };
    DoctorFinding::new(severity, what, means)
        .with_evidence(
            "systemctl list-jobs",
            format!("{unit}, start, running for {}", format_minutes(seconds)),
        )
        .seen_all(wait.facts)
        .with_evidence("jobs that wait for others", waiting.to_string())
        .with_message(wait.words.map(str::to_owned))
        .next(wait.next)
}

fn format_minutes(seconds: u64) -> String {
    match seconds / 60 {
        1 => "1 minute".to_owned(),
        minutes => format!("{minutes} minutes"),
    }
}

/// Reports a kubelet whose own condition is false: it has no job between two attempts.
fn find_waiting_kubelet(evidence: &DoctorEvidence, waits: &BootWaits) -> Option<DoctorFinding> {
    let late = evidence.uptime? > LATE_FOR_KUBELET;
    let units = evidence.units.get()?;
    let kubelet = units.iter().find(|unit| unit.name == "kubelet.service")?;
    // A failing condition leaves it inactive, or about to be restarted.
    let is_waiting = matches!(
        kubelet.active,
        ActiveState::Activating | ActiveState::Inactive
    );
    if !late || !is_waiting || !waits.kubelet_waits || waits.resolver_done || evidence.fencing {
        return None;
    }
    let means = "The kubelet is not started before the node's resolver is set up, and nothing sets it up now.";
    Some(
        DoctorFinding::critical("the kubelet waits for the node's resolver", means)
            .with_evidence(
                "systemctl show kubelet.service",
                format!("{} ({})", kubelet.active, kubelet.sub),
            )
            .with_evidence(format!("/{KUBELET_WAITS}"), "waits for the file below")
            .with_evidence(format!("/{RESOLVER_DONE}"), "missing")
            .with_message(Some(messages::RESOLV_PREPENDER.to_owned()).filter(|_| waits.has_servers))
            .next("systemctl start --no-block on-prem-resolv-prepender.service")
            .next("journalctl -b -u on-prem-resolv-prepender -n 20"),
    )
}

/// Reports a missing image that makes the next boot wait for a registry.
fn find_lacking_image(evidence: &DoctorEvidence, waits: &BootWaits) -> Option<DoctorFinding> {
    let is_lacking = |image: &&NeededImage| image.required && image.here == Some(false);
    let image = waits.images.iter().find(is_lacking)?;
    let means = "The unit starts a container of it before the kubelet, and pulls it without any limit. Where the registry does \
                 not answer, the next boot does not end.";
    let finding = DoctorFinding::notice("the next boot needs an image from a registry", means)
        .with_evidence("unit", image.unit)
        .seen_all([missing_image(image)]);
    Some(if evidence.live {
        finding.next(pull_command(image))
    } else {
        finding.next(format!(
            "ls -l {}",
            evidence.shell_path("var/lib/containers/storage")
        ))
    })
}
