//! Services that read the files of a trial: a real sshd, a real nft and the kernel's settings, in namespaces of their own.
//! systemctl is a STUB here, which does what the lines `ExecReload=` and `ExecStart=` of the real units say.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use mco_rescue::change::plan::activation::{ChangedPath, activation_jobs};
use mco_rescue::host::root::{Root, RootPath};
use mco_rescue::judge::daemon::actions::default_policies;
use mco_rescue::node::command::HostRunner;
use mco_rescue::node::command::job::{self, Done, Job};
use mco_rescue::node::services_at_work::ServicesAtWork;

use crate::support::services::{ServiceNode, command, wait_until, with_services};
use crate::support::{Lacks, skip};

const PORT: u16 = 2222;
const OTHER: u16 = 2223;

/// A STUB of systemctl for one unit: `reload` and `restart` are the lines of the unit, and it runs while a process has the
/// number in `/run/unit.pid`. As with systemd, another process than the caller does the work, with its capabilities.
fn stub_systemctl(node: &mut ServiceNode, reload: &str, restart: &str) {
    let manager = format!(
        "mkfifo /run/asked /run/answered\n\
         while read -r verb words; do\n\
         MAINPID=$(cat /run/unit.pid 2>/dev/null || echo none)\n\
         case $verb in\n\
         reload-or-restart) {reload} ;;\n\
         restart) {restart} ;;\n\
         reset-failed|daemon-reload) ;;\n\
         run) $words ;;\n\
         *) echo \"not in the stub: $verb $words\"; false ;;\nesac >/run/said 2>&1\n\
         echo $? >/run/answered\ndone <>/run/asked"
    );
    node.program("stub-manager", &format!("# STUB\n{manager}"));
    let ask = |line: &str| {
        format!(
            "echo \"{line}\" >/run/asked; read -r status </run/answered; cat /run/said >&2; exit $status"
        )
    };
    let show = "# STUB\nif [ \"$1\" = list-units ]; then exit; fi\nif [ \"$1\" = show ]; then echo Id=\"$4\"\n\
                if kill -0 $(cat /run/unit.pid) 2>/dev/null; then echo ActiveState=active; echo SubState=running\n\
                else echo ActiveState=failed; echo SubState=failed; fi; exit; fi\n";
    node.program("systemctl", &format!("{show}{}", ask("$*")));
    let options = "# STUB\nwhile [ \"${1#--}\" != \"$1\" ]; do shift; done\n";
    node.program("systemd-run", &format!("{options}{}", ask("run $*")));
    node.start("/usr/bin/stub-manager", &[]);
    wait_until("the stub of the manager runs", || {
        Path::new("/run/answered").exists()
    });
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

fn sshd_config(port: u16) -> String {
    format!("Port {port}\nHostKey /etc/ssh/site_key\nPidFile none\nUsePAM no\n")
}

const CONFIG: &str = "/etc/ssh/sshd_config";

/// A real sshd with its files in the node's own `/etc/ssh`.
fn with_server(test: impl FnOnce(&mut ServiceNode, usize) + Send) {
    with_services(|node| {
        let users = fs::read_to_string("/etc/passwd").unwrap();
        if !users.contains("\nsshd:") {
            let line = "sshd:x:110:65534::/run/sshd:/usr/sbin/nologin\n";
            fs::write("/etc/passwd", users + line).unwrap();
        }
        command(&[
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-f",
            "/etc/ssh/site_key",
        ]);
        fs::write(CONFIG, sshd_config(PORT)).unwrap();
        fs::create_dir("/run/sshd").unwrap();
        let child = node.start("sshd", &["-D", "-e"]);
        let pid = node.child(child).id().to_string();
        fs::write("/run/unit.pid", pid).unwrap();
        // As the unit of RHEL reloads: without a check.
        let restart = "/usr/sbin/sshd -D -e 2>>/run/sshd.log & echo $! >/run/unit.pid";
        stub_systemctl(node, "kill -HUP $MAINPID", restart);
        wait_until("sshd listens", || listens(PORT));
        test(node, child);
        // One that the stub has started ends with the test.
        let pid = fs::read_to_string("/run/unit.pid").unwrap();
        let _ = Command::new("kill").arg(pid.trim()).output();
    });
}

fn sshd() -> Job {
    Job::Sshd("sshd.service".to_owned())
}

#[test]
fn a_bad_configuration_ends_the_listener_at_a_reload_without_a_check() {
    with_server(|node, child| {
        fs::write(CONFIG, sshd_config(PORT) + "Pork 22\n").unwrap();
        let pid = node.child(child).id().to_string();
        command(&["kill", "-HUP", &pid]);
        assert!(!node.child(child).wait().unwrap().success());
        assert!(!listens(PORT));
        // The way back: the old file, and a server that lives again.
        fs::write(CONFIG, sshd_config(PORT)).unwrap();
        let failed = job::carry_out_all(&HostRunner, &job::jobs_back(&[sshd()]));
        assert_eq!(failed, [""; 0]);
        wait_until("sshd listens again", || listens(PORT));
    });
}

#[test]
fn the_job_refuses_a_bad_configuration_and_the_listener_lives() {
    with_server(|node, child| {
        let bad = [
            (
                format!("{}Pork 22\n", sshd_config(PORT)),
                "Bad configuration option: Pork",
            ),
            (
                sshd_config(PORT).replace("site_key", "missing"),
                "no hostkeys available",
            ),
        ];
        for (text, words) in bad {
            fs::write(CONFIG, text).unwrap();
            let error = job::carry_out(&HostRunner, &sshd())
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error}");
            assert!(node.child(child).try_wait().unwrap().is_none());
            assert!(listens(PORT));
        }
        // On the way back a restart after the refused check would end it as well.
        let restart = Job::Restart("sshd.service".to_owned());
        let failed = job::carry_out_all(&HostRunner, &[sshd(), restart]);
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(listens(PORT));
    });
}

#[test]
fn a_good_configuration_is_read_there_and_back() {
    with_server(|_, _| {
        fs::write(CONFIG, sshd_config(OTHER)).unwrap();
        assert_eq!(job::carry_out(&HostRunner, &sshd()), Ok(Done::Done));
        wait_until("sshd listens at the new port", || {
            listens(OTHER) && !listens(PORT)
        });
        fs::write(CONFIG, sshd_config(PORT)).unwrap();
        assert_eq!(
            job::carry_out_all(&HostRunner, &[sshd().reverse_job()]),
            [""; 0]
        );
        wait_until("sshd listens at the old port", || {
            listens(PORT) && !listens(OTHER)
        });
    });
}

#[test]
fn rules_of_the_firewall_are_read_there_and_back() {
    with_services(|node| {
        let rules = |port: u16| {
            format!(
                "flush ruleset\ntable inet site {{\nchain in {{\ntype filter hook input priority 0;\n\
                 tcp dport {port} drop;\n}}\n}}\n"
            )
        };
        let file = "/etc/nftables.conf";
        fs::write(file, rules(4444)).unwrap();
        command(&["nft", "-f", file]);
        // It is a oneshot that stays active.
        fs::write("/run/unit.pid", std::process::id().to_string()).unwrap();
        let unit = fs::read_to_string("/usr/lib/systemd/system/nftables.service").unwrap();
        let reload = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecReload="));
        stub_systemctl(node, reload.unwrap(), "exit 1");
        let set = || command(&["nft", "list", "ruleset"]);
        assert!(set().contains("4444"));
        let job = Job::ReloadOrRestart("nftables.service".to_owned());
        fs::write(
            file,
            "flush ruleset\ntable inet site {\nchain in {\nnonsense\n}\n}\n",
        )
        .unwrap();
        let error = job::carry_out(&HostRunner, &job).unwrap_err().to_string();
        assert!(error.contains("syntax error"), "{error}");
        assert!(set().contains("4444"), "a bad file changes no rule");
        fs::write(file, rules(5555)).unwrap();
        assert_eq!(job::carry_out(&HostRunner, &job), Ok(Done::Done));
        assert!(set().contains("5555") && !set().contains("4444"));
        fs::write(file, rules(4444)).unwrap();
        assert_eq!(
            job::carry_out_all(&HostRunner, &[job.reverse_job()]),
            [""; 0]
        );
        assert!(set().contains("4444") && !set().contains("5555"));
    });
}

/// Settings of the network's own; no other is touched.
#[test]
fn a_setting_of_the_kernel_goes_back_though_its_file_is_gone() {
    if !Path::new("/usr/lib/systemd/systemd-sysctl").exists() {
        skip(Lacks::Setup, "no systemd-sysctl");
        return;
    }
    with_services(|node| {
        let setting = || fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap();
        let before = setting();
        let new = if before.trim() == "0" { "1" } else { "0" };
        let file = "/etc/sysctl.d/99-site.conf";
        fs::create_dir_all("/etc/sysctl.d").unwrap();
        // The unit reads all files; those of this machine are none of the test's.
        let restart = format!("if [ -e {file} ]; then /usr/lib/systemd/systemd-sysctl {file}; fi");
        stub_systemctl(node, "exit 1", &restart);
        let root = Root::open(Path::new("/")).unwrap();
        let names = ["net/ipv4/ip_forward".to_owned()];
        let facts = ServicesAtWork::observe(&root, &HostRunner, &names).unwrap();
        let path = RootPath::parse(file).unwrap();
        let changed = ChangedPath {
            path,
            before: false,
            after: true,
            masks: false,
            port: false,
        };
        let mut jobs = activation_jobs(&[changed], &facts, &default_policies()).jobs;
        let job = jobs.pop().unwrap();
        assert!(matches!(job, Job::Sysctls(_)) && jobs.is_empty());
        fs::write(file, format!("net.ipv4.ip_forward = {new}\n")).unwrap();
        assert_eq!(job::carry_out(&HostRunner, &job), Ok(Done::Done));
        assert_eq!(setting().trim(), new);
        fs::remove_file(file).unwrap();
        assert_eq!(
            job::carry_out_all(&HostRunner, &[job.reverse_job()]),
            [""; 0]
        );
        assert_eq!(setting(), before);
    });
}
