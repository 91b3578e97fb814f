//! Tests of `status`.

use crate::node::command::rpm_ostree::status::*;

fn status(name: &str) -> Deployments {
    let path = format!(
        "{}/tests/fixtures/rpm-ostree/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    #[allow(clippy::disallowed_methods, reason = "a fixture, not a node")]
    let text = std::fs::read_to_string(path).unwrap();
    Deployments::read(&text).unwrap()
}

/// Returns the image of a deployment in a fixture.
fn image(deployments: &Deployments, index: usize) -> String {
    deployments.all[index].image()
}

#[test]
fn the_wanted_image_is_booted_staged_kept_or_absent() {
    let idle = status("idle");
    assert_eq!(idle.find_image(&image(&idle, 0), None), Standing::Booted);
    assert_eq!(
        idle.find_image("quay.example/os@sha256:0", None),
        Standing::Absent
    );
    assert_eq!(
        idle.find_image("", None),
        Standing::Absent,
        "a deployment of no image is not wanted"
    );

    let staged = status("staged-image");
    assert_eq!(
        staged.find_image(&image(&staged, 0), None),
        Standing::Staged
    );
    assert_eq!(
        staged.find_image(&image(&staged, 1), None),
        Standing::Booted
    );

    let twice = status("same-image-twice");
    assert_eq!(twice.find_image(&image(&twice, 1), None), Standing::Kept(1));

    let back = status("rolled-back");
    assert_eq!(back.find_image(&image(&back, 0), None), Standing::Next);
}

#[test]
fn the_same_manifest_under_another_name_is_not_what_the_daemon_accepts() {
    let here = status("other-transport");
    let digest = here.all[0].digest.clone().unwrap();
    let wanted = format!("quay.example/os@{digest}");
    let other = Standing::OtherName(0, "/mnt/os".to_owned());
    assert_eq!(here.find_image(&wanted, None), other);
    let list = "quay.example/os@sha256:0";
    assert_eq!(here.find_image(list, None), Standing::Absent);
    assert_eq!(here.find_image(list, Some(&digest)), other);
}

#[test]
fn a_name_without_digest_fits_only_with_the_digest_it_has_now() {
    let mut here = status("idle");
    here.all[0].reference = Some("ostree-unverified-registry:quay.example/os:1".to_owned());
    let digest = here.all[0].digest.clone();
    assert_eq!(here.find_image("quay.example/os:1", None), Standing::Booted);
    assert_eq!(
        here.find_image("quay.example/os:1", digest.as_deref()),
        Standing::Booted
    );
    assert_eq!(
        here.find_image("quay.example/os:1", Some("sha256:0")),
        Standing::Absent
    );
}

#[test]
fn the_next_boot_depends_on_a_clean_shutdown() {
    let staged = status("staged-image");
    assert!(staged.next_boot().unwrap().staged);
    assert!(staged.after_power_cut().unwrap().booted);
    assert!(!staged.only_arguments_staged());
    assert!(status("staged-arguments").only_arguments_staged());
    let back = status("rolled-back");
    assert_eq!(back.next_boot(), back.after_power_cut());
    assert_eq!(back.rollback(), None, "what is left of is the first");
}

#[test]
fn a_pinned_copy_may_be_the_booted_one_itself() {
    assert!(
        status("staged-image")
            .pinned_copy_of_booted()
            .unwrap()
            .booted
    );
    assert_eq!(
        status("same-image-twice").pinned_copy_of_booted(),
        None,
        "another commit is pinned"
    );
    assert_eq!(status("idle").pinned_copy_of_booted(), None);
}

#[test]
fn ours_are_those_that_our_records_name() {
    let here = status("same-image-twice");
    let records = [here.all[2].name(), "gone.0".to_owned()];
    let ours: Vec<_> = here
        .own_deployments(&records)
        .map(|deployment| deployment.index)
        .collect();
    assert_eq!(ours, [2]);
    assert_eq!(here.rollback().unwrap().index, 1);
}

#[test]
fn an_old_form_of_origin_still_counts() {
    let here = status("legacy-pivot");
    assert!(
        here.require_booted()
            .unwrap()
            .image()
            .starts_with("quay.example/os@sha256:")
    );
    assert_eq!(here.all[0].digest, None);
}

#[test]
fn what_was_changed_on_the_node_is_seen() {
    let here = status("layered");
    let booted = here.require_booted().unwrap();
    assert!(booted.is_layered() && booted.is_unlocked() && booted.finalization_locked);
    assert_eq!(booted.removals, ["kernel", "kernel-core"]);
    assert_eq!(booted.base_removals, ["kernel", "kernel-core"]);
    assert_eq!(booted.requested_packages, ["kernel-rt-core", "usbguard"]);
    assert_eq!(here.driver.unwrap().unit, "zincati.service");
    assert_eq!(here.cached_update.as_deref(), Some("415.92.1"));
    let idle = status("idle");
    assert!(!idle.all[0].is_layered() && !idle.all[0].is_unlocked());
}

#[test]
fn a_running_transaction_is_reported_with_its_client() {
    let busy = status("busy").transaction.unwrap();
    assert_eq!(
        (busy.method.as_str(), busy.client.as_str()),
        ("Rebase", ":1.112")
    );
    assert_eq!(status("idle").transaction, None);
}

#[test]
fn an_unreadable_answer_says_where() {
    let no_number =
        r#"{"deployments": [{"osname": "a", "checksum": "b", "serial": "x", "booted": true}]}"#;
    for (text, words) in [
        ("", "EOF"),
        ("rpm-ostreed.service - dead", "expected value"),
        ("{}", "missing field `deployments`"),
        (no_number, "deployments[0].serial"),
        (r#"{"deployments": []} trailing"#, "trailing"),
    ] {
        let error = Deployments::read(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let one = r#"{"osname": "a", "checksum": "b", "serial": 0, "booted": true}"#;
    let two = format!(r#"{{"deployments": [{one}, {one}]}}"#);
    assert_eq!(Deployments::read(&two), Err(StatusError::SeveralBooted(2)));
    let none = Deployments::read(r#"{"deployments": []}"#).unwrap();
    assert_eq!(none.require_booted(), Err(StatusError::NoneBooted));
}

#[test]
fn only_the_text_tells_what_failed() {
    let text = "State: busy\nWarning: failed to finalize previous deployment\n         error: Installing kernel: regfile copy: No space left on device\n         check `journalctl`\nTransaction: rebase x \n  Initiator: client(id:cli uid:0)\nDeployments:\n";
    assert_eq!(
        read_finalize_error(text).as_deref(),
        Some("Installing kernel: regfile copy: No space left on device")
    );
    assert_eq!(read_finalize_error("State: idle\nDeployments:\n"), None);
}

#[test]
fn the_journal_tells_why_finalizing_failed_in_either_form() {
    let plain = "Finalizing staged deployment\nerror: Installing kernel: x\nerror: later\n";
    let objects = "{\"MESSAGE\":\"Finalized deployment\"}\n{\"MESSAGE\":null}\n{\"MESSAGE\":[101,114,114,111,114,58,32,73,110,115,116,97,108,108,105,110,103,32,107,101,114,110,101,108,58,32,120]}\n";
    for journal in [plain, objects] {
        assert_eq!(
            finalize_failure(journal).as_deref(),
            Some("Installing kernel: x")
        );
    }
    assert_eq!(finalize_failure("Finalized deployment\n"), None);
}

#[test]
fn the_journal_tells_who_staged_what_is_staged() {
    let path = "/org/projectatomic/rpmostree1/rhcos";
    let entry = |second: u64, words: &str| {
        format!("{{\"__REALTIME_TIMESTAMP\":\"{second}000000\",\"MESSAGE\":\"{words}\"}}\n")
    };
    let who = "Rebase for client(id:cli dbus:1.5 unit:session-12.scope uid:0)";
    let begun = entry(100, &format!("Initiated txn {who}: {path}"));
    let done = entry(110, &format!("Txn Rebase on {path} successful"));
    let failed = entry(110, &format!("Txn Rebase on {path} failed: No such image"));
    let cleanup = entry(
        200,
        &format!("Initiated txn Cleanup for client(id:cli uid:0): {path}"),
    ) + &entry(201, &format!("Txn Cleanup on {path} successful"));
    let bootc = format!(
        "{{\"__REALTIME_TIMESTAMP\":\"300000000\",\"F_MESSAGE_ID\":\"{}\",\"MESSAGE\":\"Staging image for deployment: quay.example/os:2\"}}\n",
        arguments::BOOTC_STAGES
    );
    let person_said = "rpm-ostree: Rebase for client(id:cli dbus:1.5 unit:session-12.scope uid:0)";
    let bootc_said = "bootc: Staging image for deployment: quay.example/os:2";
    let all = format!("{begun}{done}{cleanup}{bootc}");
    for (journal, second, said) in [
        (begun.clone(), 105, Some(person_said)),
        (format!("{begun}{done}"), 109, Some(person_said)),
        // It staged nothing, so another program has staged the deployment.
        (format!("{begun}{failed}"), 150, None),
        (format!("{begun}{failed}"), 105, None),
        // The deployment that it staged has been replaced.
        (format!("{begun}{done}"), 150, None),
        (format!("{begun}{done}{cleanup}"), 105, Some(person_said)),
        (all.clone(), 303, Some(bootc_said)),
        (all.clone(), 290, None),
        (all, 400, None),
        ("no JSON\n".to_owned(), 1, None),
        (String::new(), 1, None),
    ] {
        let is = staged_by(&journal, second * 1_000_000);
        assert_eq!(is.as_deref(), said, "{second}: {journal}");
    }
}
