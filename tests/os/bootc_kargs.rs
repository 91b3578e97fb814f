//! Kernel arguments, and images that are kept, on a node with bootc alone: ostree stages them, as bootc has no command for
//! either. Both are named stubs here, which do what was captured of bootc 1.16.9 and libostree 2026.4.

use serde_json::{Value, json};

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{
    ARRIVED, AWAITED, BOOTED, IMAGE, NEXT, OstreeNode, STAGED, service_config, staged_file,
};
use crate::support::{RECORD, Run, flat_run};

const ONE: &str = "rendered-worker-1";
const TWO: &str = "rendered-worker-2";
const STAGED_FILE: &str = "run/ostree/staged-deployment";
const DEPLOYS: &str = "/sysroot/ostree/deploy/rhcos/deploy";

/// A node in its first config, which runs. The second one has another image and one argument more, the third one the
/// first image with that argument.
fn node() -> OstreeNode {
    let node = OstreeNode::of_bootc();
    let write = |path, config: Value| node.root.write(path, &config.to_string());
    write("one", service_config(ONE, IMAGE, "one\n"));
    let mut two = service_config(TWO, NEXT, "two\n");
    two["spec"]["kernelArguments"] = json!(["nosmt"]);
    write("two", two);
    let mut three = service_config("rendered-worker-3", IMAGE, "three\n");
    three["spec"]["kernelArguments"] = json!(["nosmt"]);
    write("three", three);
    node.run(&["apply", "--yes", "/one"]).ok();
    node
}

fn says(run: &Run, words: &[&str]) {
    let said = flat_run(run) + &run.err().replace('\n', " ");
    for words in words {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

fn recorded(node: &OstreeNode) -> String {
    let record: Value = serde_json::from_str(&node.root.read(RECORD)).unwrap();
    record["metadata"]["name"].as_str().unwrap().to_owned()
}

fn deploy(commit: &str, origin: &str, options: &str) -> String {
    let options = match options {
        "" => String::new(),
        some => format!("{some} "),
    };
    format!(
        "ostree admin deploy --stage --os=rhcos --origin-file={DEPLOYS}/{origin}.origin {options}{commit}"
    )
}

/// As after a clean reboot into what is staged, with these arguments.
fn reboots(node: &OstreeNode, image: &str, arguments: &str) {
    node.reboots_into_staged(true, image);
    node.command_line(arguments);
    node.awaits_since_the_boot_before();
    node.run(&["complete"]).ok();
    node.root.write("stub/log", "");
}

#[test]
fn an_image_with_arguments_comes_with_one_reboot_and_goes_back_without_a_registry() {
    with_mounts(|| {
        let node = node();
        says(
            &node.run(&["plan", "/two"]).ok(),
            &["kernel arguments --append=nosmt"],
        );
        node.run(&["apply", "--yes", "/two"]).ok();
        let name = format!("{STAGED}.0");
        let calls = [
            "ostree admin pin 0".to_owned(),
            format!("bootc switch --transport registry {NEXT}"),
            deploy(STAGED, &name, "--karg-append=nosmt"),
        ];
        assert_eq!(node.calls(), calls);
        let origin = node
            .root
            .read(&format!("{}/{STAGED}.1.origin", &DEPLOYS[1..]));
        assert!(
            origin.ends_with(&format!("=ostree-unverified-registry:{NEXT}\n")),
            "{origin}"
        );
        let status = node.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(status["os"]["staged"], json!(NEXT));
        assert_eq!(status["os"]["staged_by"], Value::Null, "by a run of ours");
        assert_eq!(
            status["awaited"]["kernel_arguments"],
            json!(["nosmt"]),
            "{status:#}"
        );

        // A second run finds nothing to do.
        node.root.write("stub/log", "");
        node.run(&["apply", "--yes", "/two"]).ok();
        assert_eq!(node.calls(), Vec::<String>::new());

        reboots(&node, NEXT, "rw nosmt");
        node.run(&["verify", "/two"]).ok();
        assert_eq!(recorded(&node), TWO);
        assert!(!node.root.exists(AWAITED));

        // The image of before is kept: no switch, which would ask the registry.
        node.root.write("stub/fails", "switch\n");
        node.run(&["apply", "--yes", "/one"]).ok();
        let calls = [
            "ostree admin pin 0".to_owned(),
            deploy(BOOTED, &format!("{BOOTED}.0"), ""),
            deploy(BOOTED, &format!("{BOOTED}.1"), "--karg-delete=nosmt"),
        ];
        assert_eq!(node.calls(), calls);
        node.boots_back();
        node.root.remove("stub/bootc-staged");
        node.root.remove(STAGED_FILE);
        node.command_line("rw");
        node.awaits_since_the_boot_before();
        node.run(&["complete"]).ok();
        node.run(&["verify", "/one"]).ok();
        assert_eq!(recorded(&node), ONE);
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
    });
}

#[test]
fn arguments_alone_are_staged_over_what_runs_with_its_origin() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/three"]).ok();
        let calls = [
            "ostree admin pin 0".to_owned(),
            deploy(BOOTED, &format!("{BOOTED}.0"), "--karg-append=nosmt"),
        ];
        assert_eq!(node.calls(), calls);
        let origin = |serial: u32| {
            let path = format!("{}/{BOOTED}.{serial}.origin", &DEPLOYS[1..]);
            node.root.read(&path)
        };
        assert_eq!(origin(1), origin(0));
        let status = node.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(
            status["next_boot"]["kernel_arguments"],
            json!(["rw", "nosmt"]),
            "{status:#}"
        );
        // Back before the reboot: it is only dropped.
        node.root.write("stub/log", "");
        node.run(&["rollback", "--yes"]).ok();
        assert!(
            node.calls().contains(&"ostree admin undeploy 0".to_owned()),
            "{:?}",
            node.calls()
        );
        assert!(!node.root.exists(STAGED_FILE));
        assert_eq!(recorded(&node), ONE);
        // And again, to its end.
        node.run(&["apply", "--yes", "/three"]).ok();
        reboots(&node, IMAGE, "rw nosmt");
        node.run(&["verify", "/three"]).ok();
        // They go again, with all that another program has put between.
        node.command_line("rw nosmt site=1");
        node.run(&["apply", "--yes", "/one"]).ok();
        let calls = node.calls();
        let last = calls.last().unwrap();
        assert!(last.contains(" --karg-delete=nosmt "), "{last}");
        let arguments =
            String::from_utf8_lossy(&std::fs::read(node.root.path(STAGED_FILE)).unwrap())
                .into_owned();
        assert!(
            arguments.contains("site=1") && arguments.contains("$ignition_firstboot"),
            "{arguments}"
        );
        assert!(!arguments.contains("nosmt"), "{arguments}");
    });
}

#[test]
fn a_run_that_ended_between_the_image_and_its_arguments_is_finished_or_taken_back() {
    with_mounts(|| {
        for finishes in [true, false] {
            let node = node();
            node.root.write("stub/kills", "");
            let run = node.run(&["apply", "--yes", "/two"]);
            assert_ne!(run.code(), 0);
            assert!(node.root.exists(STAGED_FILE), "the image is staged");
            assert_eq!(node.root.read("etc/service.conf"), "one\n");
            let status = node.run(&["status"]).ok();
            says(
                &status,
                &["Boot into", "mco-rescue apply", "mco-rescue rollback"],
            );
            node.root.write("stub/log", "");
            if finishes {
                node.run(&["apply", "--yes", "/two"]).ok();
                let staged = deploy(STAGED, &format!("{STAGED}.0"), "--karg-append=nosmt");
                assert!(node.calls().contains(&staged), "{:?}", node.calls());
                assert!(
                    !node.calls().iter().any(|call| call.starts_with("bootc")),
                    "{:?}",
                    node.calls()
                );
                reboots(&node, NEXT, "rw nosmt");
                node.run(&["verify", "/two"]).ok();
            } else {
                node.run(&["rollback", "--yes"]).ok();
                assert!(
                    node.calls().contains(&"ostree admin undeploy 0".to_owned()),
                    "{:?}",
                    node.calls()
                );
                assert!(!node.root.exists(STAGED_FILE));
                node.run(&["verify", "/one"]).ok();
            }
            assert!(!node.root.exists(AWAITED));
        }
    });
}

#[test]
fn arguments_that_cannot_be_staged_leave_nothing_behind() {
    with_mounts(|| {
        let node = node();
        node.root.write("stub/fails", "admin deploy\n");
        let run = node.run(&["apply", "--yes", "/two"]).exits(1);
        says(
            &run,
            &[
                "staging the kernel arguments",
                "no space left on",
                "nothing is staged, and no file was changed",
            ],
        );
        assert!(!node.root.exists(STAGED_FILE));
        assert!(!node.root.exists(AWAITED));
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
        assert_eq!(node.calls().last().unwrap(), "ostree admin undeploy 0");
    });
}

#[test]
fn an_ostree_that_stages_no_arguments_is_named_before_anything_changes() {
    with_mounts(|| {
        for missing in [true, false] {
            let node = node();
            if missing {
                node.root.remove("usr/sbin/ostree");
            } else {
                node.root.write("stub/old-ostree", "");
            }
            let why = if missing {
                "ostree is not installed"
            } else {
                "this ostree is too old: its admin deploy has no --karg-delete"
            };
            let words = [
                "no command for kernel arguments: --append=nosmt",
                why,
                "--files-only",
            ];
            says(&node.run(&["plan", "/three"]).exits(1), &words);
            node.run(&["apply", "--yes", "/three"]).exits(1);
            assert_eq!(node.calls(), Vec::<String>::new());
            assert_eq!(node.root.read("etc/service.conf"), "one\n");
            // The rest comes.
            node.run(&["apply", "--yes", "--files-only", "/three"])
                .exits(3);
            assert_eq!(node.root.read("etc/service.conf"), "three\n");
        }
    });
}

#[test]
fn an_origin_file_that_cannot_be_used_is_named_and_nothing_is_staged() {
    with_mounts(|| {
        let file = format!("{}/{BOOTED}.0.origin", &DEPLOYS[1..]);
        for (text, why) in [
            (None, "is a directory"),
            (Some("[origin]\n"), "it names no image"),
        ] {
            let node = node();
            node.root.remove(&file);
            match text {
                None => std::fs::create_dir(node.root.path(&file)).unwrap(),
                Some(text) => node.root.write(&file, text),
            }
            let run = node.run(&["apply", "--yes", "/three"]).exits(1);
            says(&run, &[&file, why]);
            let stages = |call: &String| call.contains("--stage");
            assert!(!node.calls().iter().any(stages), "{:?}", node.calls());
            assert!(!node.root.exists(AWAITED));
            assert_eq!(node.root.read("etc/service.conf"), "one\n");
        }
    });
}

#[test]
fn locked_arguments_are_reported_and_staged_anew_on_request() {
    with_mounts(|| {
        let node = node();
        node.is_staged_by_others(true, IMAGE, true);
        let file = staged_file(&format!("{STAGED}.0"), true, &["rw", "nosmt"]);
        std::fs::write(node.root.path(STAGED_FILE), file).unwrap();
        let refused = node.run(&["plan", "/three"]).exits(1);
        says(&refused, &["locked", "--takeover"]);
        node.run(&["apply", "--yes", "--takeover", "/three"]).ok();
        let calls = node.calls();
        assert_eq!(calls[0], "ostree admin pin 1", "{calls:?}");
        assert_eq!(calls[1], "ostree admin undeploy 0", "{calls:?}");
        assert_eq!(
            calls[2],
            deploy(BOOTED, &format!("{BOOTED}.0"), "--karg-append=nosmt")
        );
        reboots(&node, IMAGE, "rw nosmt");
        assert!(
            node.root
                .exists(&format!("{}/{ARRIVED}.0.origin", &DEPLOYS[1..]))
        );
        node.run(&["verify", "/three"]).ok();
    });
}

#[test]
fn a_way_back_needs_no_storage_of_bootc() {
    with_mounts(|| {
        let node = node();
        node.run(&["apply", "--yes", "/three"]).ok();
        reboots(&node, IMAGE, "rw nosmt");
        // bootc has staged nothing on this node, so its storage is missing, and a rollback of its own fails after it.
        node.root.write("stub/no-storage", "");
        let run = node.run(&["rollback", "--yes"]).ok();
        says(&run, &["systemctl reboot"]);
        assert_eq!(node.calls(), ["ostree admin set-default 1"]);
        node.boots_back();
        node.command_line("rw");
        node.awaits_since_the_boot_before();
        node.run(&["complete"]).ok();
        node.run(&["verify", "/one"]).ok();
        assert_eq!(node.root.read("etc/service.conf"), "one\n");
    });
}

/// The image of the kept deployment is looked at, and has nothing but its arguments.
const RISKS: [&str; 6] = [
    "--accept-risk",
    "bootable",
    "--accept-risk",
    "boot-filesystem",
    "--accept-risk",
    "image-arguments",
];

/// Runs a command that takes these risks.
fn run_at_risk(node: &OstreeNode, args: &[&str]) -> Run {
    node.run(&[args, &RISKS].concat())
}

/// The arguments that images bring, as a test writes them: those of what runs, and those of the deployment that is kept.
fn images_bring(node: &OstreeNode, running: &str, kept: &str) {
    let file = "usr/lib/bootc/kargs.d/10-site.toml";
    node.root.write(file, running);
    let kept_file = format!("{}/{BOOTED}.0/{file}", &DEPLOYS[1..]);
    node.root.write(&kept_file, kept);
}

/// The running image is that of TWO, and that of ONE is kept.
fn node_in_two() -> OstreeNode {
    let node = node();
    node.run(&["apply", "--yes", "/two"]).ok();
    reboots(&node, NEXT, "rw site.b=1 nosmt both=1");
    // No registry answers.
    node.root.write("stub/fails", "switch\n");
    node
}

#[test]
fn a_kept_image_brings_its_own_arguments_and_those_of_the_running_one_go() {
    with_mounts(|| {
        let node = node_in_two();
        images_bring(
            &node,
            "kargs = [\"site.b=1\", \"both=1\"]\n",
            "kargs = [\"both=1\", \"site.a=1\"]\n",
        );
        let plan = run_at_risk(&node, &["plan", "/one"]).ok();
        says(&plan, &["/usr/lib/bootc/kargs.d", "site.b=1 both=1"]);
        let run = run_at_risk(&node, &["apply", "--yes", "/one"]).ok();
        let of_images = "--karg-delete=site.b=1 --karg-append=site.a=1";
        let all = "--karg-delete=site.b=1 --karg-delete=nosmt --karg-append=site.a=1";
        let calls = [
            "ostree admin pin 0".to_owned(),
            deploy(BOOTED, &format!("{BOOTED}.0"), of_images),
            deploy(BOOTED, &format!("{BOOTED}.1"), all),
        ];
        assert_eq!(node.calls(), calls);
        let words =
            "kernel arguments of the image itself (/usr/lib/bootc/kargs.d): +site.a=1 -site.b=1";
        says(&run, &[words]);
        let status = node.run(&["status", "--output", "json"]).ok().json();
        assert_eq!(
            status["next_boot"]["kernel_arguments"],
            json!(["rw", "both=1", "site.a=1"]),
            "{status:#}"
        );
    });
}

#[test]
fn an_argument_that_a_config_asks_for_stays_where_a_kept_image_does_not_bring_it() {
    with_mounts(|| {
        let node = node_in_two();
        images_bring(&node, "kargs = [\"site.b=1\"]\n", "kargs = []\n");
        let mut back = service_config("rendered-worker-4", IMAGE, "four\n");
        back["spec"]["kernelArguments"] = json!(["nosmt", "site.b=1"]);
        node.root.write("four", &back.to_string());
        let plan = run_at_risk(&node, &["plan", "/four"]).ok();
        says(&plan, &["kernel arguments --append=site.b=1"]);
        run_at_risk(&node, &["apply", "--yes", "/four"]).ok();
        let status = node.run(&["status", "--output", "json"]).ok().json();
        let staged = status["next_boot"]["kernel_arguments"].to_string();
        for argument in ["\"nosmt\"", "\"site.b=1\"", "\"both=1\""] {
            assert!(staged.contains(argument), "{staged}");
        }
    });
}

#[test]
fn arguments_of_a_kept_image_that_cannot_be_read_are_named_and_nothing_is_staged() {
    with_mounts(|| {
        let right = "kargs = [\"site.b=1\"]\n";
        let broken = "kargs = 1\n";
        let kept = format!("{DEPLOYS}/{BOOTED}.0/usr/lib/bootc/kargs.d/10-site.toml");
        for (running, of_kept, file) in [
            (right, broken, kept.as_str()),
            (broken, right, "/usr/lib/bootc/kargs.d/10-site.toml"),
        ] {
            let node = node_in_two();
            images_bring(&node, running, of_kept);
            let run = run_at_risk(&node, &["apply", "--yes", "/one"]).exits(1);
            let words = format!("{file}: invalid type");
            says(
                &run,
                &[&words, "nothing is staged, and no file was changed"],
            );
            let stages = |call: &String| call.contains("--stage");
            assert!(!node.calls().iter().any(stages), "{:?}", node.calls());
            assert!(!node.root.exists(AWAITED));
            assert_eq!(recorded(&node), TWO);
        }
    });
}
