//! A deployment that another program or an admin staged: its author, the boot that enters it, and the possible commands. It is
//! never dropped without a request (docs/explanation/operating-system.md).

use crate::node::command::origin::OriginFile;
use crate::node::command::rpm_ostree::status::Deployment;
use crate::node::engine::Engine;
use crate::node::staged::StagedEvidence;
use crate::node::system::SystemFacts;

/// The unit in which the bootc operator's daemon stages deployments.
const OPERATOR: &str = "bootc-operator-switch.service";

/// Names the program or person that staged it, with the evidence.
pub fn name_stager(staged: &StagedEvidence, facts: Option<&SystemFacts>) -> String {
    let mut all = Vec::new();
    for unit in &staged.units {
        all.push(match unit.name.as_str() {
            OPERATOR => format!("the bootc operator ({OPERATOR} is {})", unit.active),
            name => format!("bootc's automatic update ({name} is {})", unit.active),
        });
    }
    if let Some(driver) = facts.and_then(|facts| facts.deployments.driver.as_ref()) {
        let unit = if driver.unit.is_empty() {
            String::new()
        } else {
            format!(" ({})", driver.unit)
        };
        all.push(format!("{}{unit}, which drives the updates", driver.name));
    }
    if let Some(client) = &staged.client {
        all.push(client.clone());
    }
    if all.is_empty() {
        all.push(by_origin(staged.origin.as_ref(), facts).to_owned());
    }
    all.join("; ")
}

/// Names the engine from the origin file. Without layered packages, both engines write the same.
fn by_origin(origin: Option<&OriginFile>, facts: Option<&SystemFacts>) -> &'static str {
    let is_bootc = facts.is_some_and(|facts| facts.engine == Engine::Bootc);
    match origin {
        Some(origin) if origin.is_of_rpm_ostree() => {
            "rpm-ostree (its origin file has keys that only rpm-ostree writes)"
        }
        _ if is_bootc => "bootc, the only engine here",
        Some(_) => "rpm-ostree, bootc or ostree (its origin file has an image alone)",
        None => "an unknown program (it has no origin file)",
    }
}

/// Describes the staged deployment: image, version, deployment and packages.
pub fn name_staged(staged: &StagedEvidence, facts: Option<&SystemFacts>) -> String {
    let known = facts.and_then(|facts| facts.deployments.staged());
    let image = known.map(Deployment::image);
    let image = image.or_else(|| staged.origin.as_ref().map(OriginFile::image_name));
    let file = staged.file.as_ref();
    let name = known.map(Deployment::name);
    let name = name.or_else(|| file.map(|file| file.name.clone()));
    let image = image.filter(|image| !image.is_empty());
    let mut words = match (image, &name) {
        (Some(image), Some(name)) => format!("{image} ({})", short_name(name)),
        (Some(image), None) => image,
        (None, Some(name)) => format!("the deployment {}", short_name(name)),
        (None, None) => "a deployment that no program names".to_owned(),
    };
    if let Some(version) = known.and_then(|known| known.version.as_ref()) {
        words += &format!(", version {version}");
    }
    let packages = known.map(|known| known.requested_packages.clone());
    let packages = packages.or_else(|| staged.origin.as_ref().map(|one| one.packages.clone()));
    let packages = packages.unwrap_or_default();
    if !packages.is_empty() {
        words += &format!(", with {}", packages.join(" "));
    }
    words
}

/// Returns `CHECKSUM.SERIAL` with only the start of the checksum.
fn short_name(name: &str) -> String {
    match name.split_once('.') {
        Some((checksum, serial)) if checksum.len() > 12 && checksum.is_ascii() => {
            format!("{}….{serial}", &checksum[..12])
        }
        _ => name.to_owned(),
    }
}

/// Returns true if no reboot enters it.
pub fn is_locked(staged: &StagedEvidence, facts: Option<&SystemFacts>) -> bool {
    let known = facts.and_then(|facts| facts.deployments.staged());
    known.is_some_and(|known| known.finalization_locked)
        || staged.file.as_ref().is_some_and(|file| file.locked)
}

/// Returns the command that makes the staged deployment take effect.
pub fn enter_command(locked: bool, facts: Option<&SystemFacts>) -> String {
    let known = facts.and_then(|facts| facts.deployments.staged());
    match (locked, facts.map(|facts| facts.engine)) {
        (false, _) => "systemctl reboot enters it".to_owned(),
        (true, Some(Engine::Bootc)) => {
            "bootc upgrade --from-downloaded releases it, then systemctl reboot enters it"
                .to_owned()
        }
        (true, _) => {
            let checksum = known.map_or("CHECKSUM", |known| known.base_commit());
            format!("rpm-ostree finalize-deployment {checksum} releases it and reboots into it")
        }
    }
}

/// Describes the deployment that is queued for the next boot without being staged, by a rollback or as the default. Staging
/// another replaces it.
pub fn name_queued(facts: &SystemFacts, ours: bool) -> Option<String> {
    let next = facts.deployments.queued()?;
    let image = next.image();
    let what = if image.is_empty() {
        format!("the deployment {}", short_name(&next.name()))
    } else {
        format!("{image} ({})", short_name(&next.name()))
    };
    let who = if ours {
        "by mco-rescue rollback"
    } else {
        "by a rollback or as the default, not by mco-rescue"
    };
    Some(format!(
        "{what} is queued for the next boot, {who}. What this run stages takes its place, and a later clean-up can remove \
         it. Enter it instead: systemctl reboot. Keep it: ostree admin pin {}",
        next.index
    ))
}

/// The message about a prepared soft reboot.
pub const SOFT_REBOOT: &str = "a soft reboot is prepared (/run/ostree/nextroot-booted): systemctl reboot enters that \
    deployment without restarting the kernel, and staging anything cancels it. Cancel it: ostree admin \
    prepare-soft-reboot --reset";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::plan::os::tests::{booted, facts, staged};
    use crate::node::command::ostree::StagedFile;
    use crate::node::command::rpm_ostree::status::Driver;
    use crate::node::command::systemctl::UnitActivity;

    const NEW: &str = "quay.example/os@sha256:bbbb";

    fn evidence(origin: &str) -> StagedEvidence {
        StagedEvidence {
            file: Some(StagedFile {
                name: "s.0".to_owned(),
                ..StagedFile::default()
            }),
            origin: (!origin.is_empty()).then(|| OriginFile::parse(origin)),
            ..StagedEvidence::default()
        }
    }

    fn unit(name: &str) -> UnitActivity {
        UnitActivity {
            name: name.to_owned(),
            active: "active".into(),
            sub: "running".to_owned(),
        }
    }

    #[test]
    fn who_staged_is_reported_with_the_evidence() {
        let of_image =
            format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{NEW}\n");
        let layered = format!("{of_image}[packages]\nrequested=vim;\n");
        let here = |engine| {
            let mut here = facts(vec![staged(NEW), booted("x")], "rw", "rw");
            here.engine = engine;
            here
        };
        let (rpm, bootc) = (here(Engine::RpmOstree), here(Engine::Bootc));
        assert!(
            name_stager(&evidence(&of_image), Some(&rpm)).contains("rpm-ostree, bootc or ostree")
        );
        assert!(name_stager(&evidence(&of_image), Some(&bootc)).contains("bootc, the only engine"));
        assert!(name_stager(&evidence(&layered), Some(&rpm)).starts_with("rpm-ostree (its origin"));
        assert!(name_stager(&evidence(""), None).starts_with("an unknown program"));
        let mut operator = evidence(&of_image);
        operator.units = vec![unit(OPERATOR), unit("bootc-fetch-apply-updates.timer")];
        let said = name_stager(&operator, Some(&rpm));
        assert!(
            said.contains("the bootc operator (bootc-operator-switch.service is active)"),
            "{said}"
        );
        assert!(
            said.contains("bootc-fetch-apply-updates.timer is active"),
            "{said}"
        );
        let mut driven = rpm.clone();
        driven.deployments.driver = Some(Driver {
            name: "Zincati".to_owned(),
            unit: "zincati.service".to_owned(),
        });
        let mut client = evidence(&of_image);
        client.client = Some("rpm-ostree: Rebase for client(id:cli uid:0)".to_owned());
        let said = name_stager(&client, Some(&driven));
        assert_eq!(
            said,
            "Zincati (zincati.service), which drives the updates; rpm-ostree: Rebase for client(id:cli uid:0)"
        );
    }

    #[test]
    fn what_is_staged_is_named_as_far_as_it_is_known() {
        let mut layered = staged(NEW);
        layered.version = Some("9.8".to_owned());
        layered.requested_packages = vec!["vim".to_owned()];
        let here = facts(vec![layered, booted("x")], "rw", "rw");
        let said = name_staged(&evidence(""), Some(&here));
        assert_eq!(said, format!("{NEW} (s.0), version 9.8, with vim"));
        let long = StagedEvidence {
            file: Some(StagedFile {
                name: format!("{}.2", "5e".repeat(32)),
                ..StagedFile::default()
            }),
            ..StagedEvidence::default()
        };
        assert_eq!(name_staged(&long, None), "the deployment 5e5e5e5e5e5e….2");
        assert!(name_staged(&StagedEvidence::default(), None).starts_with("a deployment that no"));
    }

    #[test]
    fn what_is_queued_is_neither_booted_nor_staged() {
        let kept = || crate::change::plan::os::tests::deployment(NEW, "k");
        let queued = |all| name_queued(&facts(all, "rw", "rw"), false);
        let said = queued(vec![kept(), booted("x")]).unwrap();
        assert!(
            said.starts_with(&format!("{NEW} (k.0) is queued")),
            "{said}"
        );
        for all in [
            vec![booted("x"), kept()],
            vec![staged(NEW), booted("x")],
            vec![kept()],
            vec![],
        ] {
            assert_eq!(queued(all), None);
        }
    }

    #[test]
    fn a_locked_one_is_released_by_the_engine_that_is_there() {
        let mut locked = staged(NEW);
        locked.finalization_locked = true;
        let mut here = facts(vec![locked, booted("x")], "rw", "rw");
        assert!(is_locked(&evidence(""), Some(&here)));
        assert!(!is_locked(&evidence(""), None));
        let command = |facts: &SystemFacts| enter_command(true, Some(facts));
        assert!(command(&here).starts_with("rpm-ostree finalize-deployment s releases"));
        here.engine = Engine::Bootc;
        assert!(command(&here).starts_with("bootc upgrade --from-downloaded"));
        assert_eq!(
            enter_command(false, Some(&here)),
            "systemctl reboot enters it"
        );
    }
}
