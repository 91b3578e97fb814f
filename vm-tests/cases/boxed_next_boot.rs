//! What the next boot enters, and who made it so, in boxes (story: two programs change one node).
//!
//! Prepared: a node that runs 1.0 and is in config A of `os.rs`. Between the runs another program, `rpm-ostree` or `ostree`
//! at the hand of an administrator, stages, swaps and drops. True at each step, by case:
//!
//! 1. An argument that is taken away, another image over the awaited one and a swap of the boot entries are named, with the
//!    command that stays with what runs; that command, run as printed, leads there.
//! 2. A queued rollback is given up without a registry. The image of what is queued is not staged again, and what else comes
//!    with it is said.
//! 3. A run that dropped a staging goes back to what ran. An argument with a quoted blank arrives.
//! 4. An image in the repository of the node needs no registry, and a rebase that failed staged nothing (rpm-ostree alone).

use serde_json::{Value, json};

use super::boxed_os::{KEY, Story};
use super::configs;
use super::node::PROGRAM;
use super::os::{config_a, config_b, is_all_of_a, is_all_of_b, runs, unwrapped};
use crate::lab::boxes::golden;
use crate::lab::{Case, Shell};
use crate::support::{Lacks, skip};

impl Story<'_> {
    /// Words of `status` that have to be there, and such that may not.
    fn status(&self, wanted: &[&str], untrue: &[&str]) -> String {
        let screen = self.node.ask(&format!("{PROGRAM} status"));
        let said = with_short_digests(&unwrapped(&screen));
        for words in wanted {
            assert!(
                said.contains(&with_short_digests(words)),
                "no {words:?} in {screen}"
            );
        }
        for words in untrue {
            assert!(
                !said.contains(&with_short_digests(words)),
                "{words:?} in {screen}"
            );
        }
        screen
    }

    /// What `doctor` finds about the system that is booted, and the one of the next boot.
    fn finding(&self) -> Value {
        let run = self.node.run(&format!("{PROGRAM} doctor --output json"));
        let seen: Value = serde_json::from_str(&run.out()).unwrap();
        let mut all = seen["findings"].as_array().unwrap().iter();
        let found = all.find(|finding| finding["id"] == "FP-01").cloned();
        found.unwrap_or_default()
    }

    /// `status` and `doctor` say that another program made the next boot another; the command that `status` prints
    /// leads back to what runs.
    fn leaves_and_stays(&self, words: &[&str], command: &str) {
        let stay = format!("keep the running system: {command}");
        let by = ["not by mco-rescue, but by", &stay];
        self.status(&[words, &by].concat(), &["at the next boot"]);
        let found = self.finding();
        assert_eq!(
            found["what"], "the next boot leaves the recorded OS",
            "{found:#}"
        );
        self.node.ask(command);
        self.status(&[], &["Staged", "Queued", "Awaited", "Mixed"]);
        assert_eq!(self.finding(), Value::Null);
    }

    fn brings(&self, name: &str, config: &Value) {
        let path = format!("/root/{name}.json");
        self.node.bring(&path, config.to_string().as_bytes());
    }
}

/// Cuts every digest to 12 digits. A screen prints a digest whole once, and its first 12 digits after that.
fn with_short_digests(text: &str) -> String {
    let mut parts = text.split("sha256:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| {
        let digits = part.chars().take_while(char::is_ascii_hexdigit).count();
        format!("{out}sha256:{}{}", &part[..digits.min(12)], &part[digits..])
    })
}

/// Gives a config another name, as its contents demand.
fn renamed(mut config: Value) -> Value {
    let hash = mco_rescue::config::render::name_hash(&config["spec"]).unwrap();
    config["metadata"]["name"] = json!(format!("rendered-worker-{hash}"));
    config
}

fn rebase() -> String {
    match golden().engine.program() {
        "bootc" => format!("bootc switch {}", golden().b()),
        _ => format!(
            "rpm-ostree rebase ostree-unverified-registry:{}",
            golden().b()
        ),
    }
}

#[test]
fn a_box_whose_next_boot_another_program_changes_says_so() {
    let Some(case) = Case::begin_in_box("box: two programs change one node") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    let drop_staged = golden().engine.drops_staged();
    story.node.ask(golden().engine.deletes_audit());
    story.leaves_and_stays(&["without audit=0"], drop_staged);
    story.node.ask(&rebase());
    story.leaves_and_stays(&["Staged", &golden().b()], drop_staged);

    // Over what is awaited: arguments and files of B, on the system of A.
    let on_a = config_b(KEY, &golden().a());
    story.brings("on-a", &on_a);
    story.node.ask(&format!("{PROGRAM} apply --yes on-a.json"));
    let name = configs::name(&on_a);
    story.status(&[name, "at the next boot"], &["Mixed"]);
    story.node.ask(&rebase());
    let (a, b) = (golden().a(), golden().b());
    let words =
        format!("{name}, but the next boot does not enter it: {a} was staged, but {b} comes");
    story.status(&[&words], &["at the next boot. Next"]);
    story
        .node
        .ask(&format!("{PROGRAM} rollback --yes --takeover"));
    story.status(&[], &["Staged", "Awaited", "Mixed"]);
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
    drop(registry);

    // Swapped: A is entered next, with equal arguments.
    let same = renamed({
        let mut config = config_a(KEY, &golden().b());
        config["spec"]["osImageURL"] = json!(golden().b());
        config
    });
    story.brings("same", &same);
    let registry = story.registry();
    story.node.ask(&format!("{PROGRAM} apply --yes same.json"));
    drop(registry);
    story.node.reboot();
    assert_eq!(runs(&story.node), "2.0");
    story.awaits_nothing();
    let roll_back = format!("{} rollback", golden().engine.program());
    story.node.ask(&roll_back);
    let stay = match golden().engine.program() {
        "bootc" => "ostree admin set-default 1",
        _ => &roll_back,
    };
    story.leaves_and_stays(&["Queued", &golden().a()], stay);
}

#[test]
fn a_box_whose_rollback_is_queued_needs_no_registry_to_stay() {
    let Some(case) = Case::begin_in_box("box: a queued rollback is given up") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    drop(registry);
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
    for way in ["pivot --yes", "apply --yes --takeover b.json"] {
        story.node.ask(&format!("{PROGRAM} rollback --yes"));
        let next = ["Next: systemctl reboot"];
        story.status(&next, &["mco-rescue plan", "mco-rescue apply"]);
        story.node.ask(&format!("{PROGRAM} {way}"));
        story.status(&[], &["Awaited", "Queued", "Mixed"]);
    }
    story.node.ask(&format!("{PROGRAM} rollback --yes"));
    // The image of the rollback comes with its files and arguments.
    let pivot = |story: &Story<'_>, image: String| {
        let said = story.node.ask(&format!("{PROGRAM} pivot --yes {image}"));
        unwrapped(&said)
    };
    let said = pivot(&story, golden().a());
    let words = format!(
        "by the rollback from {}, at the next boot",
        configs::name(&story.b)
    );
    assert!(said.contains(&words), "{said}");
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);
    // What another program queued comes with its own.
    story
        .node
        .ask(&format!("{} rollback", golden().engine.program()));
    let said = pivot(&story, golden().b());
    assert!(
        said.contains("the next boot enters this image, without audit=0 and with nosmt site.is=b"),
        "{said}"
    );
}

#[test]
fn a_box_whose_run_dropped_a_staging_is_reverted_to_what_ran() {
    let Some(case) = Case::begin_in_box("box: a staging is dropped by a run") else {
        return;
    };
    let mut story = Story::in_a(&case);
    let registry = story.registry();
    story.applies_b("");
    let mut same_os = story.a.clone();
    let files = same_os["spec"]["config"]["storage"]["files"].as_array_mut();
    files
        .unwrap()
        .push(crate::support::file("/etc/site/e", 0o640, "e\n"));
    story.brings("e", &renamed(same_os));
    story.node.ask(&format!("{PROGRAM} apply --yes e.json"));
    drop(registry);
    story.node.ask(&format!("{PROGRAM} rollback --yes"));
    story.status(&[], &["Staged", "Awaited", "Mixed"]);
    story.node.reboot();
    is_all_of_a(&story.node, &story.a);

    let mut quoted = story.a.clone();
    let argument = "dyndbg=\"file drivers/usb/* +p\"";
    quoted["spec"]["kernelArguments"] = json!(["audit=0", argument]);
    story.brings("quoted", &renamed(quoted));
    let run = story
        .node
        .run(&format!("{PROGRAM} apply --yes quoted.json"));
    case.tell(&format!("{}{}", run.out(), run.err()));
    if run.code() == 0 {
        story.node.reboot();
        let arguments = story.node.ask("cat /proc/cmdline");
        assert!(arguments.contains(argument), "{arguments}");
        story.awaits_nothing();
    }
}

#[test]
fn a_box_takes_an_image_of_its_repository_and_blames_no_rebase_that_failed() {
    let Some(case) = Case::begin_in_box("box: an image in the repository") else {
        return;
    };
    if !golden().engine.is_real_rpm_ostree() {
        return skip(Lacks::Counterpart, "only rpm-ostree has these commands");
    }
    let mut story = Story::in_a(&case);
    let nothing = format!("quay.example/okd/os@sha256:{}", "0".repeat(64));
    let run = story.node.run(&format!(
        "rpm-ostree rebase ostree-unverified-registry:{nothing}"
    ));
    assert_ne!(run.code(), 0, "{}", run.out());
    let commit = story
        .node
        .ask("ostree rev-parse $(ostree refs | head -n 1)");
    case.tell(&story.node.ask(&format!(
        "ostree admin deploy --stage --os=rhcos --karg-append=site.is=x {}",
        commit.trim()
    )));
    let status = story.status(&["not by mco-rescue, but by"], &["Rebase for client"]);
    case.tell(&status);
    story.node.ask("rpm-ostree cleanup -p");

    let registry = story.registry();
    story.node.ask(&format!(
        "unshare --mount sh -c 'mount -o remount,rw /sysroot && ostree container image pull /ostree/repo ostree-unverified-registry:{}'",
        golden().b()
    ));
    drop(registry);
    let plan = unwrapped(&story.node.ask(&format!("{PROGRAM} plan b.json || true")));
    assert!(plan.contains("no download"), "{plan}");
    story.applies_b("");
    story.node.reboot();
    is_all_of_b(&story.node, &story.b);
}
