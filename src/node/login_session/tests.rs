//! Tests of `login_session`.

use super::*;

fn ssh_login(pid: u32, started: u64, channel: u32) -> LoginSession {
    LoginSession {
        boot: "one".to_owned(),
        audit: Some(4),
        ssh: Some(SshConnection {
            process: ProcessMark { pid, started },
            channel: ProcessMark {
                pid: channel,
                started: started + 300,
            },
            client: Some([192, 0, 2, 7].into()),
            server: Some([192, 0, 2, 10].into()),
            origin: ClientOrigin::Remote,
            served_by: ServerProgram::Sshd,
        }),
        scope: Some("session-4.scope".to_owned()),
        tty: Some("pts/0".to_owned()),
        keeper: None,
    }
}

#[test]
fn only_a_connection_after_the_change_confirms() {
    let starter = ssh_login(100, 1_000, 110);
    let judge = |confirmer: &LoginSession| judge_confirmation(&starter, confirmer, 60_000);
    assert_eq!(judge(&ssh_login(500, 60_010, 510)), Ok(()));
    // The number of an ended process is reused.
    assert_eq!(judge(&ssh_login(100, 70_000, 110)), Ok(()));
    assert_eq!(judge(&starter), Err(ConfirmationRefusal::SameLogin));
    assert_eq!(
        judge(&ssh_login(100, 1_000, 700)),
        Err(ConfirmationRefusal::SharedConnection)
    );
    for (started, before) in [(2_000, 58_000), (60_000, 0)] {
        assert_eq!(
            judge(&ssh_login(300, started, 310)),
            Err(ConfirmationRefusal::OlderThanChange { before })
        );
    }
    let mut none = ssh_login(1, 1, 1);
    none.ssh = None;
    for (tty, keeper, words) in [
        (
            Some("tty1"),
            None,
            "console login (tty1) is not an ssh login",
        ),
        (Some("ttyS0"), None, "console login (ttyS0)"),
        (None, None, "no login is not an ssh login"),
        (Some("pts/3"), Some(SessionKeeper::Container), "a container"),
        (None, Some(SessionKeeper::Cron), "cron is not an ssh login"),
        (
            Some("pts/1"),
            Some(SessionKeeper::Multiplexer),
            "tmux and screen",
        ),
    ] {
        none.tty = tty.map(str::to_owned);
        none.keeper = keeper;
        let said = judge(&none).unwrap_err().to_string();
        assert!(said.starts_with(words), "{said}");
        assert!(said.contains("confirm"), "{said}");
        let way_out = said.contains("confirm --from-console");
        assert_eq!(
            way_out,
            keeper != Some(SessionKeeper::Multiplexer),
            "{said}"
        );
    }
}

/// The kernel's view of the network on a node with two addresses in each family.
const NETWORK: [(&str, &str); 2] = [
    (
        "fib_trie",
        "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 127.0.0.1\n        \
             /32 host LOCAL\n     |-- 192.0.2.7\n        /24 link UNICAST\n     |-- 192.0.2.10\n        /32 host LOCAL\n     \
             |-- 192.0.2.11\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n",
    ),
    (
        "if_inet6",
        "20010db8000000000000000000000010 02 40 00 80     ens3\nfe800000000000000000000000000002 02 40 20 80     ens3\n\
             00000000000000000000000000000001 01 80 10 80       lo\n",
    ),
];

#[test]
fn only_another_machine_confirms() {
    use ClientOrigin::{Node, Remote, Unknown};
    let (dir, proc) = processes(&[(70, "bash", 1, 700, "-bash\0")]);
    for (client, server, wanted) in [
        ("127.0.0.1", "127.0.0.1", Node),
        ("127.0.0.2", "192.0.2.10", Node),
        ("::1", "::1", Node),
        ("192.0.2.10", "192.0.2.10", Node),
        // Two addresses of the node.
        ("192.0.2.11", "192.0.2.10", Node),
        ("2001:db8::10", "fe80::2", Node),
        ("::ffff:192.0.2.11", "::ffff:192.0.2.10", Node),
        ("192.0.2.7", "192.0.2.10", Remote),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.10", Remote),
        ("fe80::1", "fe80::2", Remote),
        ("UNKNOWN", "UNKNOWN", Unknown),
    ] {
        let (client_address, server) = (client.parse().ok(), server.parse().ok());
        let origin = find_origin(&proc, 70, client_address, server);
        assert_eq!(origin, wanted, "{client}");
        let mut login = ssh_login(9, 90_000, 10);
        let ssh = login.ssh.as_mut().unwrap();
        (ssh.client, ssh.server, ssh.origin) = (client_address, server, origin);
        let verdict = judge_confirmation(&LoginSession::default(), &login, 0);
        assert_eq!(verdict.is_ok(), wanted == Remote, "{client}: {verdict:?}");
    }
    // Without readable addresses, nothing is proved.
    for (name, _) in NETWORK {
        std::fs::remove_file(dir.path().join("70/net").join(name)).unwrap();
    }
    for client in ["192.0.2.7", "fe80::1"] {
        let origin = find_origin(&proc, 70, client.parse().ok(), None);
        assert_eq!(origin, Unknown, "{client}");
    }
    let mut login = ssh_login(9, 90_000, 10);
    login.ssh.as_mut().unwrap().origin = Unknown;
    let refusal = judge_confirmation(&LoginSession::default(), &login, 0).unwrap_err();
    assert!(refusal.to_string().contains("confirm --from-console"));
}

#[test]
fn a_program_that_has_only_the_name_of_sshd_confirms_nothing() {
    use ServerProgram::{Other, Sshd, Unknown};
    let other = |words: &str| Other(words.to_owned());
    let container = "0::/kubepods.slice/crio-1.scope\n";
    let cases: [(&str, &str, &str, ServerProgram); 9] = [
        ("0", "/usr/sbin/sshd", "0::/x\n", Sshd),
        ("0", "/usr/libexec/openssh/sshd-session", "0::/x\n", Sshd),
        ("0", "/usr/sbin/sshd (deleted)", "0::/x\n", Sshd),
        (
            "1000",
            "/usr/sbin/sshd",
            "0::/x\n",
            other("/usr/sbin/sshd of uid 1000"),
        ),
        ("0", "/tmp/sshd", "0::/x\n", other("/tmp/sshd of uid 0")),
        (
            "0",
            "/usr/bin/perl",
            "0::/x\n",
            other("/usr/bin/perl of uid 0"),
        ),
        (
            "0",
            "/usr/sbin/sshd",
            container,
            other("/usr/sbin/sshd of a container"),
        ),
        ("", "/usr/sbin/sshd", "0::/x\n", Unknown),
        ("0", "", "0::/x\n", Unknown),
    ];
    for (uid, program, cgroup, wanted) in cases {
        let (dir, proc) = processes(&[(50, "sshd", 1, 500, "sshd: core [priv]")]);
        let place = dir.path().join("50");
        std::fs::write(place.join("status"), format!("Name:\tsshd\nUid:\t{uid}\n")).unwrap();
        std::fs::write(place.join("cgroup"), cgroup).unwrap();
        std::fs::remove_file(place.join("exe")).unwrap();
        if !program.is_empty() {
            std::os::unix::fs::symlink(program, place.join("exe")).unwrap();
        }
        assert_eq!(find_server(&proc, 50), wanted, "{uid} {program}");
        let mut login = ssh_login(9, 90_000, 10);
        login.ssh.as_mut().unwrap().served_by = wanted.clone();
        let verdict = judge_confirmation(&LoginSession::default(), &login, 0);
        assert_eq!(verdict.is_ok(), wanted == Sshd, "{verdict:?}");
    }
}

#[test]
fn after_a_reboot_every_ssh_login_is_new() {
    let starter = ssh_login(100, 1_000, 110);
    let mut after = ssh_login(100, 1_000, 110);
    after.boot = "two".to_owned();
    assert_eq!(judge_confirmation(&starter, &after, 9_000_000), Ok(()));
    after.ssh = None;
    assert!(judge_confirmation(&starter, &after, 0).is_err());
}

#[test]
fn a_login_is_kept_in_a_file_and_an_empty_one_is_read() {
    let login = ssh_login(100, 1_000, 110);
    let text = serde_json::to_string(&login).unwrap();
    assert_eq!(serde_json::from_str::<LoginSession>(&text).unwrap(), login);
    let none: LoginSession = serde_json::from_str("{}").unwrap();
    assert_eq!(none, LoginSession::default());
}

/// Creates a directory in the form of `/proc`. Each process has number, name, parent, start in ticks, and command line.
fn processes(all: &[(u32, &str, u32, u64, &str)]) -> (tempfile::TempDir, Proc) {
    let dir = tempfile::tempdir().unwrap();
    for (pid, name, parent, ticks, command_line) in all {
        let place = dir.path().join(pid.to_string());
        std::fs::create_dir(&place).unwrap();
        let zeros = ["0"; 14].join(" ");
        // Terminal 34816 is pts/0.
        let stat = format!("{pid} ({name}) S {parent} 1 1 34816 {zeros} {ticks} 1 2 3\n");
        std::fs::write(place.join("stat"), stat).unwrap();
        std::fs::write(place.join("cmdline"), command_line).unwrap();
        let environment = "A=b\0SSH_CONNECTION=fe80::7%ens3 50000 192.0.2.10 22\0";
        std::fs::write(place.join("environ"), environment).unwrap();
        std::fs::write(place.join("sessionid"), "4294967295").unwrap();
        let cgroup = "1:name=systemd:/x\n0::/user.slice/user-1000.slice/session-12.scope\n";
        std::fs::write(place.join("cgroup"), cgroup).unwrap();
        std::fs::write(place.join("status"), "Name:\tx\nUid:\t0\t0\t0\t0\n").unwrap();
        std::os::unix::fs::symlink("/usr/sbin/sshd", place.join("exe")).unwrap();
        std::fs::create_dir(place.join("net")).unwrap();
        for (name, text) in NETWORK {
            std::fs::write(place.join("net").join(name), text).unwrap();
        }
    }
    let proc = Proc(dir.path().to_owned());
    (dir, proc)
}

#[test]
fn the_process_of_the_connection_is_found_in_every_form_of_sshd() {
    let listener = "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups";
    type Chain<'a> = &'a [(u32, &'a str, u32, u64, &'a str)];
    let (own, shell) = (
        (90, "mco-rescue", 80, 900, "mco-rescue\0confirm\0"),
        |parent| (70, "bash", parent, 700, "-bash\0"),
    );
    let sudo = (80, "sudo (a) b", 70, 800, "sudo\0mco-rescue\0");
    let cases: [(&str, Chain<'_>, Option<u32>); 7] = [
        (
            "8.0, core",
            &[
                own,
                sudo,
                shell(60),
                (60, "sshd", 50, 600, "sshd: core@pts/0"),
                (50, "sshd", 40, 500, "sshd: core [priv]"),
                (40, "sshd", 1, 10, "/usr/sbin/sshd\0-D\0"),
            ],
            Some(50),
        ),
        (
            "9.2, root",
            &[
                own,
                sudo,
                shell(50),
                (50, "sshd", 40, 500, "sshd: root@notty"),
                (40, "sshd", 1, 10, listener),
            ],
            Some(50),
        ),
        (
            "9.9, core",
            &[
                own,
                sudo,
                shell(60),
                (60, "sshd-session", 50, 600, "sshd-session: core@pts/0"),
                (50, "sshd-session", 40, 500, "sshd-session: core [priv]"),
                (40, "sshd", 1, 10, listener),
            ],
            Some(50),
        ),
        (
            "socket unit",
            &[
                own,
                sudo,
                shell(60),
                (60, "sshd", 50, 600, "sshd: core@pts/0"),
                (50, "sshd", 1, 500, "sshd: core [priv]"),
            ],
            Some(50),
        ),
        (
            "listener replaced meanwhile",
            &[
                own,
                sudo,
                shell(50),
                (50, "sshd", 1, 500, "sshd: root@pts/0"),
            ],
            Some(50),
        ),
        (
            "a shell of the listener",
            &[own, sudo, shell(40), (40, "sshd", 1, 10, listener)],
            None,
        ),
        (
            "its parent ended",
            &[
                own,
                sudo,
                (70, "bash", 1, 700, "bash\0"),
                (1, "systemd", 0, 0, "init\0"),
            ],
            None,
        ),
    ];
    for (case, all, wanted) in cases {
        let (_dir, proc) = processes(all);
        let login = observe_process(&proc, 90);
        let found = login.ssh.as_ref().map(|ssh| ssh.process.pid);
        assert_eq!(found, wanted, "{case}");
        if let Some(ssh) = login.ssh {
            assert_eq!(ssh.process.started, 5_000, "{case}");
            assert_eq!(ssh.channel.pid, 70, "{case}");
            assert_eq!(ssh.client, "fe80::7".parse().ok(), "{case}");
            assert_eq!(ssh.origin, ClientOrigin::Remote, "{case}");
            assert_eq!(ssh.served_by, ServerProgram::Sshd, "{case}");
        }
        assert_eq!(login.tty.as_deref(), Some("pts/0"));
        assert_eq!(login.audit, None);
        assert_eq!(login.scope.as_deref(), Some("session-12.scope"));
    }
}

#[test]
fn what_outlives_a_login_is_named() {
    for (name, keeper) in [
        ("tmux: server", Some(SessionKeeper::Multiplexer)),
        ("SCREEN", Some(SessionKeeper::Multiplexer)),
        ("crond", Some(SessionKeeper::Cron)),
        ("conmon", Some(SessionKeeper::Container)),
        ("bash", None),
    ] {
        let (_dir, proc) = processes(&[
            (9, "mco-rescue", 8, 9, "x"),
            (8, "sh", 7, 8, "x"),
            (7, name, 1, 7, "x"),
        ]);
        assert_eq!(observe_process(&proc, 9).keeper, keeper, "{name}");
    }
}

#[test]
fn a_circle_and_damaged_files_end_the_search() {
    let (_dir, proc) = processes(&[(9, "a", 8, 9, ""), (8, "b", 9, 8, "")]);
    assert_eq!(find_ancestors(&proc, 9).len(), MAX_DEPTH);
    for text in [
        "",
        "9",
        "9 (",
        "9 (a) S",
        "9 (a) S x 1 1 0 0",
        "x (a) S 1 1 1 0",
    ] {
        assert_eq!(parse_stat(text), None, "{text:?}");
    }
    let (_dir, proc) = processes(&[]);
    assert_eq!(observe_process(&proc, 9).ssh, None);
}

#[test]
fn the_kernel_shows_this_process_with_a_start_before_now() {
    let proc = Proc(PathBuf::from("/proc"));
    let chain = find_ancestors(&proc, std::process::id());
    let own = chain.first().unwrap();
    assert_eq!(own.mark.pid, std::process::id());
    assert!(own.mark.started <= milliseconds_since_boot());
    assert!(!observe_session().boot.is_empty());
}

#[test]
fn terminals_have_the_names_that_people_know() {
    for (device, name) in [
        (0, None),
        (34816, Some("pts/0")),
        (137 << 8 | 44, Some("pts/300")),
        (4 << 8 | 1, Some("tty1")),
        (4 << 8 | 64, Some("ttyS0")),
        (204 << 8 | 64, Some("ttyAMA0")),
        (229 << 8, Some("hvc0")),
        (5 << 8 | 1, Some("5:1")),
    ] {
        assert_eq!(tty_name(device).as_deref(), name, "{device}");
    }
}

#[test]
fn a_record_names_the_user_and_the_login_as_far_as_they_are_known() {
    let none = LoginSession::default();
    let console = LoginSession {
        tty: Some("ttyS0".to_owned()),
        ..LoginSession::default()
    };
    let core = || Some("core".to_owned());
    assert_eq!(describe_login(None, &none), None);
    assert_eq!(describe_login(core(), &none), core());
    let said = describe_login(core(), &console);
    assert_eq!(said.as_deref(), Some("core, console login (ttyS0)"));
    let said = describe_login(None, &console);
    assert_eq!(said.as_deref(), Some("console login (ttyS0)"));
}
