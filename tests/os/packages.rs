//! Extensions and kernel types on a live OSTree node whose rpm-ostree is a named stub: what it is asked for, what it is
//! lent meanwhile, and what is left when it fails. Beside it, containers tools that are real.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::mounts::with_mounts;
use crate::support::ostree_node::{self, IMAGE, NEXT, OstreeNode};
use crate::support::{file, flat_run, machine_config};
use serde_json::{Value, json};

const REPO_FILE: &str = "etc/yum.repos.d/coreos-extensions.repo";

/// A config of these parts of `spec`.
fn config(spec: Value) -> String {
    let mut config = machine_config(
        "rendered-worker-1",
        json!({"storage": {"files": [file("/etc/new", 0o644, "new\n")]}}),
    );
    let all = config["spec"].as_object_mut().unwrap();
    all.insert("osImageURL".to_owned(), json!(IMAGE));
    for (key, value) in spec.as_object().unwrap() {
        all.insert(key.clone(), value.clone());
    }
    config.to_string()
}

/// A node with a config at `/config`, and a repository at `/packages`.
fn node(spec: Value) -> OstreeNode {
    let node = OstreeNode::new();
    node.root.write("config", &config(spec));
    node.root
        .write("packages/repodata/repomd.xml", "<repomd/>\n");
    node
}

const APPLY: [&str; 5] = [
    "apply",
    "--yes",
    "/config",
    "--extensions-from",
    "/packages",
];

/// Nothing of what rpm-ostreed was lent is there any more.
fn nothing_is_lent(node: &OstreeNode) {
    for path in [
        REPO_FILE,
        "run/mco-extensions",
        "run/tmp-rpm-ostree-policy.json",
        "run/systemd/system/rpm-ostreed.service.d/temporal-policy-binding.conf",
    ] {
        assert!(!node.root.exists(path), "{path} is still there");
    }
}

#[test]
fn extensions_come_from_a_directory_that_is_lent_and_taken_back() {
    with_mounts(|| {
        let node = node(json!({"extensions": ["usbguard", "kerberos"]}));
        let plan = node
            .run(&["plan", "/config", "--extensions-from", "/packages"])
            .ok();
        let said = plan.out().split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "packages come from /packages",
            "extensions: rpm-ostree install krb5-workstation libkadm5 usbguard",
        ] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        assert_eq!(node.calls(), Vec::<String>::new(), "a plan changes nothing");
        node.run(&APPLY).ok();
        assert_eq!(
            node.calls(),
            [
                "ostree admin pin 0",
                "rpm-ostree install krb5-workstation libkadm5 usbguard",
                "  with a repository",
            ]
        );
        nothing_is_lent(&node);
        assert!(node.root.exists("etc/new"));
        // Staged already: only the reboot is missing.
        let again = node.run(&APPLY).ok();
        assert_eq!(node.calls().len(), 3, "{}", again.out());
    });
}

#[test]
fn a_package_that_cannot_be_taken_away_is_a_failure() {
    with_mounts(|| {
        let node = node(json!({"extensions": ["usbguard"]}));
        node.run(&APPLY).ok();
        node.reboots_into(IMAGE);
        let booted = node.root.read("stub/booted");
        node.root.write(
            "stub/booted",
            &booted.replace("packages=\"\"", "packages=\"usbguard\""),
        );
        node.root.remove("var/lib/mco-rescue/awaited.json");
        let none = config(json!({})).replace("rendered-worker-1", "rendered-worker-2");
        node.root.write("none", &none);
        node.root.write("stub/fails", "uninstall\n");
        let run = node.run(&["apply", "--yes", "/none"]).exits(1);
        assert!(run.err().contains("nothing is staged"), "{}", run.err());
        assert!(!run.out().contains("Applied"), "{}", run.out());
        assert!(!node.root.exists("stub/staged"));
    });
}

#[test]
fn a_realtime_kernel_is_given_back_and_swapped_again_around_another_image() {
    with_mounts(|| {
        let spec =
            json!({"kernelType": "realtime", "osImageURL": NEXT, "kernelArguments": ["nohz=on"]});
        let node = node(spec);
        node.runs(
            IMAGE,
            "kernel-rt-core kernel-rt-modules kernel-rt-modules-extra",
            "kernel kernel-core",
        );
        node.program("podman", "exit 1");
        node.root.write(
            "etc/containers/policy.json",
            r#"{"default": [{"type": "insecureAcceptAnything"}]}"#,
        );
        node.run(&APPLY).ok();
        let calls = node.calls();
        let verbs: Vec<&str> = calls
            .iter()
            .filter_map(|call| call.strip_prefix("rpm-ostree "))
            .map(|call| call.split(" --").next().unwrap())
            .collect();
        assert_eq!(
            verbs,
            [
                "override reset kernel kernel-core",
                "rebase ostree-unverified-registry:quay.example/os@sha256:2222222222222222222222222222222222222222222222222222222222222222",
                "kargs",
                "override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra",
            ]
        );
        nothing_is_lent(&node);
    });
}

#[test]
fn packages_that_cannot_be_had_leave_the_node_as_it_was() {
    with_mounts(|| {
        let node = node(json!({"extensions": ["usbguard"], "kernelArguments": ["nohz=on"]}));
        node.root.write("stub/fails", "install\n");
        let said = node.run(&APPLY).exits(1).err();
        for words in [
            "staging the extensions",
            "Packages not found: nonsense",
            "nothing is staged, and no file was changed",
            "Give the extensions image of the same release",
        ] {
            assert!(said.contains(words), "no {words:?} in {said}");
        }
        assert_eq!(node.calls().last().unwrap(), "ostree admin pin --unpin 0");
        assert!(node.calls().contains(&"rpm-ostree cleanup -p".to_owned()));
        assert!(!node.root.exists("stub/staged"));
        assert!(!node.root.exists("etc/new"));
        for kept in ["awaited.json", "pins.json"] {
            assert!(
                !node.root.exists(&format!("var/lib/mco-rescue/{kept}")),
                "{kept}"
            );
        }
        nothing_is_lent(&node);
    });
}

#[test]
fn success_is_proven_by_what_is_staged_and_not_by_the_exit_code() {
    with_mounts(|| {
        let node = node(json!({"extensions": ["usbguard"]}));
        node.root.write("stub/forgets", "");
        let said = node.run(&APPLY).exits(1).err();
        let words =
            "the following extension packages are missing from the staged deployment: [usbguard]";
        assert!(said.contains(words), "{said}");
        assert!(!node.root.exists("etc/new"));
    });
}

#[test]
fn what_stands_against_packages_is_said_before_anything_is_done() {
    with_mounts(|| {
        let refused = |spec: Value, args: &[&str], words: &[&str]| {
            let node = node(spec);
            let said = node
                .run(&[&["plan", "/config"], args].concat())
                .exits(1)
                .out();
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in words {
                assert!(said.contains(word), "no {word:?} in {said}");
            }
            node.run(&[&["apply", "--yes", "/config"], args].concat())
                .exits(1);
            assert_eq!(node.calls(), Vec::<String>::new());
            assert!(!node.root.exists("etc/new"));
        };
        let usbguard = || json!({"extensions": ["usbguard"]});
        let image = "spec.baseOSExtensionsContainerImage";
        refused(
            usbguard(),
            &[],
            &[image, "--extensions-from DIR", "--files-only"],
        );
        let from = ["--extensions-from", "/etc"];
        refused(usbguard(), &from, &["/etc has neither repodata/repomd.xml"]);
        let pages = json!({"kernelType": "64k-pages"});
        let words = "64k-pages is only supported for aarch64 architecture";
        refused(pages, &["--extensions-from", "/packages"], &[words]);
    });
}

#[test]
fn files_only_leaves_packages_alone_and_says_so() {
    with_mounts(|| {
        let node = node(json!({"extensions": ["usbguard"]}));
        let said = node
            .run(&["apply", "--yes", "/config", "--files-only"])
            .exits(0);
        assert!(said.out().contains("install usbguard"), "{}", said.out());
        assert_eq!(node.calls(), Vec::<String>::new());
        assert!(node.root.exists("etc/new"));
    });
}

/// Ends the program while rpm-ostree works on its change.
#[test]
fn a_signal_ends_the_transaction_and_takes_everything_back() {
    with_mounts(|| {
        let node = node(json!({"extensions": ["usbguard"]}));
        node.root.write("stub/hangs", "install\n");
        let never = node.root.path("stub/never");
        nix::unistd::mkfifo(&never, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let child = node.start(&APPLY);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !node.root.exists("stub/now") {
            assert!(Instant::now() < deadline, "rpm-ostree was never called");
            std::thread::sleep(Duration::from_millis(2));
        }
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&output.status),
            Some(15),
            "{said}"
        );
        assert!(said.contains("ended by SIGTERM"), "{said}");
        assert!(said.contains("nothing is staged"), "{said}");
        let calls = node.calls();
        let asked = |call: &str| calls.iter().any(|other| other == call);
        assert!(
            asked("rpm-ostree cancel") && asked("rpm-ostree cleanup -p"),
            "{calls:?}"
        );
        assert!(!node.root.exists("etc/new"));
        nothing_is_lent(&node);
    });
}

#[test]
fn an_image_for_another_architecture_is_refused_and_staged_when_asked() {
    with_mounts(|| {
        let node = node(json!({"osImageURL": NEXT}));
        node.program(
            "podman",
            &format!(r#"echo '[{{"Id": "ab12", "RepoDigests": ["{NEXT}"], "Arch": "mips64"}}]'"#),
        );
        let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
        node.root.write("etc/containers/policy.json", policy);
        let storage = ["plan", "/config", "--from-storage"];
        let said = node.run(&storage).exits(1).out();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in ["is for mips64, and this machine is", "--other-architecture"] {
            assert!(said.contains(words), "{said}");
        }
        node.run(&[&storage[..], &["--other-architecture"]].concat())
            .ok();
        let image = ["pivot", NEXT, "--from-storage", "--yes"];
        node.run(&image).exits(1);
        assert_eq!(node.calls().len(), 0, "{:?}", node.calls());
    });
}

#[test]
fn one_image_of_the_storage_is_excepted_from_a_strict_policy_while_it_is_staged() {
    with_mounts(|| {
        let node = node(json!({"osImageURL": NEXT}));
        let policy = r#"{"default": [{"type": "reject"}]}"#;
        node.root.write("etc/containers/policy.json", policy);
        node.program(
            "podman",
            &format!(
                r#"case $1 in
images) echo '[{{"Id": "ab12", "RepoDigests": ["{NEXT}"]}}]' ;;
system) echo '{{"store": {{"graphDriverName": "overlay", "graphRoot": "/var/lib/containers/storage"}}}}' ;;
*) exit 1 ;;
esac"#
            ),
        );
        node.run(&["apply", "--yes", "/config", "--from-storage"])
            .ok();
        assert_eq!(
            node.calls()[1..],
            [
                "systemctl daemon-reload".to_owned(),
                "systemctl try-restart -- rpm-ostreed.service".to_owned(),
                format!("rpm-ostree rebase ostree-unverified-image:containers-storage:{NEXT}"),
                "  with a policy of its own".to_owned(),
                "systemctl daemon-reload".to_owned(),
                "systemctl try-restart -- rpm-ostreed.service".to_owned(),
            ]
        );
        assert_eq!(node.root.read("etc/containers/policy.json"), policy);
        nothing_is_lent(&node);
    });
}

#[test]
fn what_a_cut_off_run_lent_is_taken_back_by_the_next_one() {
    with_mounts(|| {
        let node = node(json!({"kernelArguments": ["nohz=on"]}));
        node.root.write("run/mco-rescue/lent", "");
        node.root.write(REPO_FILE, "[coreos-extensions]\n");
        node.root
            .write("run/mco-extensions/os-extensions-content-1/a", "");
        fs::write(node.root.path("run/tmp-rpm-ostree-policy.json"), "{}").unwrap();
        node.run(&["apply", "--yes", "/config"]).ok();
        nothing_is_lent(&node);
        assert!(!node.calls().contains(&"  with a repository".to_owned()));
    });
}

#[test]
fn a_repository_of_a_boot_before_goes_with_the_files_or_gives_way_to_ours() {
    with_mounts(|| {
        for spec in [
            json!({"kernelArguments": ["nohz=on"]}),
            json!({"extensions": ["usbguard"]}),
        ] {
            let node = node(spec);
            node.root.write(REPO_FILE, "[coreos-extensions]\n");
            node.run(&APPLY).ok();
            nothing_is_lent(&node);
            assert!(node.root.exists("etc/new"));
        }
    });
}

/// A config that is recorded and on disk, as a node is in it.
fn recorded(spec: Value) -> OstreeNode {
    let node = node(spec);
    let record = node.root.read("config");
    node.root
        .write("etc/machine-config-daemon/currentconfig", &record);
    node.root.write("etc/new", "new\n");
    node
}

#[test]
fn the_forecast_knows_the_packages_that_are_staged() {
    with_mounts(|| {
        let node = node(json!({"extensions": ["usbguard"]}));
        // STUB of rpm: what runs has no package of an extension, and owns no file.
        node.program(
            "rpm",
            r#"case $1 in -q) echo "package $2 is not installed"; exit 1 ;; *) shift 3; for file in "$@"; do echo "file $file is not owned by any package"; done; exit 1 ;; esac"#,
        );
        let degraded = "extension package verification failed";
        for args in [
            &["plan", "/config", "--extensions-from", "/packages"][..],
            &APPLY,
            &["status"],
        ] {
            let said = flat_run(&node.run(args).ok());
            assert!(!said.contains(degraded), "{args:?}: {said}");
            let adopted = "adopted if the cluster wants this config";
            assert!(said.contains(adopted), "{args:?}: {said}");
        }
        // Without that boot it is so.
        node.run(&["rollback", "--yes"]).ok();
        assert!(!node.root.exists("stub/staged"));
        node.root.write("etc/new", "new\n");
        node.root.write(
            "etc/machine-config-daemon/currentconfig",
            &node.root.read("config"),
        );
        let said = flat_run(&node.run(&["status"]).ok());
        assert!(said.contains(degraded), "{said}");
    });
}

#[test]
fn what_somebody_else_staged_of_the_same_image_is_not_taken_for_ours() {
    with_mounts(|| {
        let foreign = |write: &dyn Fn(&OstreeNode), words: &str| {
            let node = recorded(json!({}));
            node.root.write("run/ostree/staged-deployment", "");
            write(&node);
            let said = flat_run(&node.run(&["plan", "/config"]).exits(1));
            // The whole digest stands above.
            let short = &IMAGE[..IMAGE.len() - 52];
            let drop = format!("drop the staged deployment: {short} with {words}");
            for words in [drop.as_str(), "an OS deployment is staged", "--takeover"] {
                assert!(said.contains(words), "no {words:?} in {said}");
            }
            assert!(!said.contains("staged already"), "{said}");
            node.run(&["apply", "--yes", "/config", "--takeover"]).ok();
            assert!(node.calls().contains(&"rpm-ostree cleanup -p".to_owned()));
        };
        let staged = |node: &OstreeNode, more: &str| {
            let text = format!(
                "image=ostree-unverified-registry:{IMAGE}\npackages=\"\"\nremovals=\"\"\n{more}\n"
            );
            node.root.write("stub/staged", &text);
        };
        foreign(
            &|node| {
                staged(node, "");
                node.root.write("stub/kargs", "rw foreign=1\n");
                node.root.write("stub/kargs-before", "rw\n");
            },
            "kernel argument foreign=1",
        );
        foreign(&|node| staged(node, "packages=vim"), "package vim");
        let local = r#"byhand='"requested-local-packages": ["nano-5.6-1"], "base-local-replacements": [[["a"],["b"]]],'"#;
        foreign(
            &|node| staged(node, local),
            "local packages: nano-5.6-1, packages of the image that are replaced: 1",
        );
        // What this config, or the one before, asks for is ours, whoever staged it.
        let node = recorded(json!({"kernelArguments": ["nohz=on"]}));
        staged(&node, "");
        node.root.write("stub/kargs", "rw nohz=on\n");
        let said = flat_run(&node.run(&["plan", "/config"]).ok());
        assert!(said.contains("nothing more to stage"), "{said}");
    });
}

#[test]
fn what_was_changed_by_hand_is_in_plan_status_and_doctor() {
    with_mounts(|| {
        for (json, words) in [
            (
                r#""unlocked": "development","#,
                "/usr is unlocked (development)",
            ),
            (
                r#""unlocked": "transient", "live-replaced": "13666cef","#,
                "packages are applied live, until the next boot",
            ),
            (
                r#""base-local-replacements": [[["a"],["b"]]],"#,
                "packages of the image that are replaced: 1",
            ),
        ] {
            let node = recorded(json!({}));
            let booted = node.root.read("stub/booted");
            node.root
                .write("stub/booted", &format!("{booted}byhand='{json}'\n"));
            let said = flat_run(&node.run(&["plan", "/config"]).ok());
            let plan = format!("what runs was changed by hand: {words}");
            assert!(said.contains(&plan), "no {plan:?} in {said}");
            let said = flat_run(&node.run(&["status"]).ok());
            assert!(
                said.contains(&format!("changed by hand: {words}")),
                "{said}"
            );
            let said = flat_run(&node.run(&["doctor"]));
            assert!(
                said.contains("the operating system was changed by hand"),
                "{said}"
            );
            assert!(said.contains(words), "{said}");
        }
    });
}

#[test]
fn an_image_that_is_kept_on_the_node_comes_back_without_a_registry() {
    with_mounts(|| {
        let node = node(json!({}));
        node.reboots_into(NEXT);
        node.root
            .write("stub/pinned", &format!("{}\n", ostree_node::BOOTED));
        let plan = flat_run(&node.run(&["plan", "/config"]).ok());
        let words = format!(
            "image {IMAGE}, instead of {NEXT}: it is on the node (b0b0b0b0b0b0), no download"
        );
        assert!(plan.contains(&words), "no {words:?} in {plan}");
        assert!(!plan.contains("pull:"), "{plan}");
        node.run(&["apply", "--yes", "/config"]).ok();
        let call = format!(
            "rpm-ostree rebase --custom-origin-url=pivot://{IMAGE} \
             --custom-origin-description=Managed by machine-config-operator {}",
            ostree_node::BOOTED
        );
        assert!(node.calls().contains(&call), "{:?}", node.calls());
        let status = flat_run(&node.run(&["status"]).ok());
        assert!(
            status.contains(&format!("Staged {IMAGE} (runs after a reboot)")),
            "{status}"
        );
        // A way that is asked for is taken.
        let stored = node.run(&["plan", "/config", "--from-storage", "--takeover"]);
        assert!(
            !flat_run(&stored).contains("no download"),
            "{}",
            stored.out()
        );
    });
}

#[test]
fn arguments_that_zipl_never_hears_of_are_not_staged() {
    with_mounts(|| {
        let node = node(json!({"kernelArguments": ["nohz=on"]}));
        node.root.write("boot/bootmap", "blocks");
        node.root
            .write("sysroot/ostree/repo/config", "[sysroot]\nreadonly=true\n");
        let run = node.run(&["apply", "--yes", "/config"]).exits(1);
        let said = run.out() + &run.err();
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            said.contains("ostree config set sysroot.bootloader zipl"),
            "{said}"
        );
        assert_eq!(node.calls(), Vec::<String>::new());
        assert!(!node.root.exists("etc/new"), "nothing was changed");
        node.root
            .write("sysroot/ostree/repo/config", "[sysroot]\nbootloader=zipl\n");
        node.run(&["apply", "--yes", "/config"]).ok();
    });
}
