//! NetworkManager's checkpoints and connections, with a real NetworkManager in a network of its own.

use std::fs;
use std::process::Command;

use mco_rescue::node::command::job::{self, Done, Job};
use mco_rescue::node::command::network_manager::{
    Begun, NetworkCheckpoint, RolledBack, begin_checkpoint, commit_checkpoint, extend_checkpoint,
    is_alive, roll_back_checkpoint,
};
use mco_rescue::node::command::{CommandError, HostRunner};

use crate::support::services::{Network, addresses, command, keyfile, wait_until, with_services};

const OLD: &str = "192.0.2.10";
const NEW: &str = "198.51.100.7";

/// A node whose device `v0` has the old address by the keyfile whose path is returned.
fn with_network_manager(test: impl FnOnce(&mut Network<'_>, &str) + Send) {
    with_services(|node| {
        let mut network = Network::begin(node);
        let path = network.write("v0", &keyfile(1, "v0", OLD, ""));
        command(&["nmcli", "connection", "reload"]);
        command(&["nmcli", "connection", "up", "c1"]);
        assert_eq!(addresses("v0"), [OLD]);
        test(&mut network, &path);
    });
}

fn armed(seconds: u32) -> NetworkCheckpoint {
    match begin_checkpoint(&HostRunner, seconds).unwrap() {
        Begun::Armed(checkpoint) => checkpoint,
        other => panic!("{other:?}"),
    }
}

/// Another program's checkpoint, as nmstate makes it.
fn make_foreign() -> String {
    let name = "org.freedesktop.NetworkManager";
    let object = "/org/freedesktop/NetworkManager";
    let words = [
        "busctl",
        "--system",
        "call",
        name,
        object,
        name,
        "CheckpointCreate",
        "aouu",
        "0",
        "600",
        "6",
    ];
    let said = command(&words);
    said.trim()
        .trim_start_matches("o \"")
        .trim_end_matches('"')
        .to_owned()
}

fn checkpoint_property(path: &str, property: &str) -> Option<String> {
    let output = Command::new("busctl")
        .args([
            "--system",
            "get-property",
            "org.freedesktop.NetworkManager",
            path,
        ])
        .args(["org.freedesktop.NetworkManager.Checkpoint", property])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

fn back(jobs: &[Job]) -> Vec<String> {
    job::carry_out_all(&HostRunner, &job::jobs_back(jobs))
}

#[test]
fn a_changed_connection_goes_back_with_its_address_and_its_bytes() {
    with_network_manager(|network, path| {
        let before = fs::read(path).unwrap();
        let checkpoint = armed(600);
        assert!(is_alive(&HostRunner, &checkpoint).unwrap());

        network.write("v0", &keyfile(1, "v0", NEW, ""));
        // The file alone changes nothing.
        assert_eq!(addresses("v0"), [OLD]);
        let job = Job::Connection(path.to_owned());
        assert_eq!(job::carry_out(&HostRunner, &job), Ok(Done::Done));
        assert_eq!(addresses("v0"), [NEW]);

        let rolled = roll_back_checkpoint(&HostRunner, &checkpoint).unwrap();
        assert_eq!(rolled, RolledBack::Done(Vec::new()));
        wait_until("the old address is back", || addresses("v0") == [OLD]);
        // NetworkManager has its own way to write it.
        assert_ne!(fs::read(path).unwrap(), before);
        assert_eq!(
            roll_back_checkpoint(&HostRunner, &checkpoint),
            Ok(RolledBack::Gone)
        );

        fs::write(path, &before).unwrap();
        assert_eq!(back(&[job]), [""; 0]);
        assert_eq!(addresses("v0"), [OLD]);
        assert_eq!(fs::read(path).unwrap(), before);
    });
}

#[test]
fn the_files_and_their_jobs_go_back_without_a_checkpoint_too() {
    with_network_manager(|network, path| {
        let before = fs::read(path).unwrap();
        network.write("v0", &keyfile(1, "v0", NEW, ""));
        let job = Job::Connection(path.to_owned());
        assert_eq!(job::carry_out(&HostRunner, &job), Ok(Done::Done));
        assert_eq!(addresses("v0"), [NEW]);
        fs::write(path, &before).unwrap();
        assert_eq!(back(&[job]), [""; 0]);
        assert_eq!(addresses("v0"), [OLD]);
    });
}

#[test]
fn network_manager_goes_back_by_itself_at_the_end_of_the_time() {
    with_network_manager(|network, path| {
        let checkpoint = armed(600);
        network.write("v0", &keyfile(1, "v0", NEW, ""));
        job::carry_out(&HostRunner, &Job::Connection(path.to_owned())).unwrap();
        assert_eq!(addresses("v0"), [NEW]);
        assert!(extend_checkpoint(&HostRunner, &checkpoint, 1).unwrap());
        wait_until("the old address is back", || addresses("v0") == [OLD]);
        wait_until("it has ended", || {
            !is_alive(&HostRunner, &checkpoint).unwrap()
        });
        assert!(!commit_checkpoint(&HostRunner, &checkpoint).unwrap());
        assert!(!extend_checkpoint(&HostRunner, &checkpoint, 600).unwrap());
    });
}

#[test]
fn a_confirmed_change_stays() {
    with_network_manager(|network, path| {
        let checkpoint = armed(600);
        let timeout = || checkpoint_property(&checkpoint.path, "RollbackTimeout");
        assert_eq!(timeout().as_deref(), Some("u 600"));
        network.write("v0", &keyfile(1, "v0", NEW, ""));
        job::carry_out(&HostRunner, &Job::Connection(path.to_owned())).unwrap();
        assert!(commit_checkpoint(&HostRunner, &checkpoint).unwrap());
        assert_eq!(timeout(), None);
        assert_eq!(addresses("v0"), [NEW]);
        assert!(!commit_checkpoint(&HostRunner, &checkpoint).unwrap());
    });
}

#[test]
fn a_restart_of_network_manager_ends_the_checkpoint_and_nothing_goes_back() {
    with_network_manager(|network, path| {
        let ours = armed(600);
        network.write("v0", &keyfile(1, "v0", NEW, ""));
        job::carry_out(&HostRunner, &Job::Connection(path.to_owned())).unwrap();
        network.end();
        assert!(!is_alive(&HostRunner, &ours).unwrap());
        network.start();
        assert!(!is_alive(&HostRunner, &ours).unwrap());
        assert_eq!(addresses("v0"), [NEW]);
        // The next program's checkpoint has the same path; it is neither ended nor rolled back.
        let foreign = make_foreign();
        assert_eq!(foreign, ours.path);
        assert_eq!(
            roll_back_checkpoint(&HostRunner, &ours),
            Ok(RolledBack::Gone)
        );
        assert!(!commit_checkpoint(&HostRunner, &ours).unwrap());
        assert!(!extend_checkpoint(&HostRunner, &ours, 5).unwrap());
        let timeout = checkpoint_property(&foreign, "RollbackTimeout");
        assert_eq!(timeout.as_deref(), Some("u 600"));
        assert_eq!(addresses("v0"), [NEW]);
    });
}

#[test]
fn a_checkpoint_of_another_program_stays() {
    with_network_manager(|_, _| {
        let foreign = make_foreign();
        let begun = begin_checkpoint(&HostRunner, 60).unwrap();
        let Begun::Held(words) = begun else {
            panic!("{begun:?}");
        };
        assert!(words.contains(&foreign), "{words}");
        assert!(checkpoint_property(&foreign, "Created").is_some());
    });
}

#[test]
fn a_new_connection_is_activated_and_forgotten_again() {
    with_network_manager(|network, _| {
        let path = network.write("v0-site", &keyfile(2, "v0", NEW, "autoconnect-priority=10"));
        let job = Job::NewConnection(path.clone());
        assert_eq!(job::carry_out(&HostRunner, &job), Ok(Done::Done));
        assert_eq!(addresses("v0"), [NEW]);
        fs::remove_file(&path).unwrap();
        assert_eq!(back(&[job]), [""; 0]);
        // The connection of before takes its device again.
        wait_until("the old address is back", || addresses("v0") == [OLD]);
    });
}

#[test]
fn a_removed_connection_comes_back() {
    with_network_manager(|_, path| {
        let before = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        let job = Job::GoneConnection(path.to_owned());
        assert_eq!(job::carry_out(&HostRunner, &job), Ok(Done::Done));
        wait_until("the address goes", || addresses("v0").is_empty());
        fs::write(path, before).unwrap();
        // As the program writes it.
        command(&["chmod", "600", path]);
        assert_eq!(back(&[job]), [""; 0]);
        assert_eq!(addresses("v0"), [OLD]);
    });
}

#[test]
fn a_bridge_and_its_port_come_and_go() {
    with_network_manager(|network, path| {
        let before = fs::read(path).unwrap();
        let bridge = "[connection]\nid=br\nuuid=22222222-2222-2222-2222-222222222222\ntype=bridge\n\
                      interface-name=br0\n[bridge]\nstp=false\n[ipv4]\nmethod=manual\naddress1=198.51.100.7/24\n\
                      [ipv6]\nmethod=disabled\n";
        let port = "[connection]\nid=c1\nuuid=11111111-1111-1111-1111-000000000001\ntype=ethernet\n\
                    interface-name=v0\nmaster=br0\nslave-type=bridge\n";
        let bridge = network.write("br0", bridge);
        network.write("v0", port);
        let jobs = [
            Job::NewConnection(bridge.clone()),
            Job::Connection(path.to_owned()),
        ];
        for job in &jobs {
            assert_eq!(
                job::carry_out(&HostRunner, job),
                Ok(Done::Done),
                "{}",
                network.log()
            );
        }
        assert_eq!(addresses("br0"), [NEW]);
        assert!(command(&["ip", "-o", "link", "show", "v0"]).contains("master br0"));
        assert_eq!(addresses("v0"), [""; 0]);
        fs::remove_file(bridge).unwrap();
        fs::write(path, before).unwrap();
        assert_eq!(back(&jobs), [""; 0]);
        wait_until("the old address is back", || addresses("v0") == [OLD]);
        let bridge = || !std::path::Path::new("/sys/class/net/br0").exists();
        wait_until("the bridge goes", bridge);
    });
}

#[test]
fn a_file_that_network_manager_does_not_take_is_a_failure() {
    with_network_manager(|network, path| {
        let job = Job::Connection(path.to_owned());
        let before = fs::read(path).unwrap();
        fs::write(path, "[connection\nno keyfile").unwrap();
        let error = job::carry_out(&HostRunner, &job).unwrap_err().to_string();
        assert!(
            error.contains(&format!("NetworkManager ignores {path}")),
            "{error}"
        );
        fs::write(path, &before).unwrap();
        // Others may read it: NetworkManager refuses it, as it may hold secrets.
        command(&["chmod", "644", path]);
        let error = job::carry_out(&HostRunner, &job).unwrap_err().to_string();
        assert!(error.contains("ignores"), "{error}");
        command(&["chmod", "600", path]);
        assert_eq!(back(&[job]), [""; 0]);
        assert_eq!(addresses("v0"), [OLD]);
        // One whose device is missing waits for it, as at a boot. One that an administrator starts is not started.
        let missing = network.write("v9", &keyfile(9, "v9", NEW, ""));
        let by_hand = network.write("v1", &keyfile(8, "v1", NEW, "autoconnect=false"));
        for path in [missing, by_hand] {
            let done = job::carry_out(&HostRunner, &Job::NewConnection(path.clone()));
            assert_eq!(done, Ok(Done::NotRunning), "{path}");
        }
        // One that was active and cannot be so again is a failure.
        network.write("v0", &keyfile(1, "v9", NEW, ""));
        let error = job::carry_out(&HostRunner, &Job::Connection(path.to_owned()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("No suitable device"), "{error}");
    });
}

#[test]
fn without_network_manager_there_is_no_checkpoint_and_no_activation() {
    with_network_manager(|network, path| {
        let checkpoint = armed(600);
        network.end();
        assert_eq!(begin_checkpoint(&HostRunner, 60), Ok(Begun::NotRunning));
        assert_eq!(
            roll_back_checkpoint(&HostRunner, &checkpoint),
            Ok(RolledBack::Gone)
        );
        let error = job::carry_out(&HostRunner, &Job::Connection(path.to_owned())).unwrap_err();
        assert!(
            error.to_string().contains("NetworkManager is not running"),
            "{error}"
        );
    });
    with_services(|_| {
        // Without a bus.
        assert_eq!(begin_checkpoint(&HostRunner, 60), Ok(Begun::NotRunning));
    });
    with_services(|node| {
        node.program("busctl", "exit 1 # STUB: it fails without a word");
        let error = begin_checkpoint(&HostRunner, 60).unwrap_err();
        assert!(matches!(error, CommandError::Failed(..)), "{error}");
    });
}
