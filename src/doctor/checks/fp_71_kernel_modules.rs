//! FP-71: settings of modprobe keep a kernel module that the node needs from being loaded.

use crate::doctor::{CheckSeverity, CheckVerdict, DoctorCheck, DoctorEvidence, DoctorFinding};
use crate::invocation::kargs_command;
use crate::kargs::{Kargs, KargsChange};
use crate::node::kernel_modules::{ModuleBlock, ModuleSetting, NeededModule};

pub(super) const CHECK: DoctorCheck = DoctorCheck {
    id: "FP-71",
    title: "a kernel module that the node needs is turned off",
    looks_at: "/etc/modprobe.d and its siblings, kernel arguments of the next boot, modules.dep",
    explain: "Hardening guides and workarounds for security holes turn kernel modules off: `install openvswitch /bin/false` in \
/etc/modprobe.d, or module_blacklist= among the kernel arguments. What is loaded stays loaded, so nothing is seen until the next \
boot. Then the bridge br-ex is missing, or CRI-O mounts no container.\n\n\
Judged are the modules of Open vSwitch, CRI-O, the network of pods, nftables, and the bonds and VLANs of NetworkManager, and \
the modules that these depend on. A `blacklist` line keeps a module from being loaded by what it provides, not by its name.\n\n\
Take the line out where it is written: in the cluster, the MachineConfig with the file, or the daemon brings it back. \
rpm-ostree kargs takes an argument off.",
    judge: judge_modules,
};

fn judge_modules(evidence: &DoctorEvidence) -> CheckVerdict {
    let modules = match evidence.kernel_modules.seen() {
        Ok(modules) => modules,
        Err(why) => return CheckVerdict::unseen(format!("settings of modprobe: {why}")),
    };
    let arguments = match evidence.system.facts() {
        Some(facts) => Ok(&facts.arguments),
        None => evidence.arguments_on_disk.seen(),
    };
    let none = Kargs::default();
    let blocked = modules.find_blocked(arguments.unwrap_or(&none));
    let findings = blocked
        .iter()
        .map(|(needed, setting)| finding(evidence, needed, setting));
    let verdict = CheckVerdict::healthy().and(findings);
    match arguments {
        Err(why) if !modules.needed.is_empty() => {
            verdict.and_unseen(format!("kernel arguments that turn modules off: {why}"))
        }
        _ => verdict,
    }
}

fn finding(
    evidence: &DoctorEvidence,
    needed: &NeededModule,
    setting: &ModuleSetting,
) -> DoctorFinding {
    let NeededModule { name, by, .. } = needed;
    let severity = match setting.block {
        ModuleBlock::Never => CheckSeverity::Critical,
        ModuleBlock::ByNameOnly => CheckSeverity::Warning,
    };
    let means = match setting.block {
        ModuleBlock::Never => format!("After the next boot {by} is without it."),
        ModuleBlock::ByNameOnly => {
            format!("After the next boot {by} is without it, unless a program loads it by name.")
        }
    };
    let finding = DoctorFinding::new(
        severity,
        format!("the kernel module {name} is turned off"),
        means,
    )
    .seen(&setting.place, &setting.said)
    .daemon(Some(format!("modprobe: ERROR: could not insert '{name}'")));
    finding.next(match setting.place.rsplit_once(':') {
        None => kargs_command(&[KargsChange::Delete(setting.said.clone())]),
        Some((file, line)) if file.starts_with("/etc/") => {
            format!("sed -i {line}d {}", evidence.path(file))
        }
        // A file of the OS is hidden by one of the same name.
        Some((file, _)) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            let path = evidence.path(&format!("/etc/modprobe.d/{name}"));
            format!("ln -s /dev/null {path}")
        }
    })
}
