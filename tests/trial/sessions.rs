//! Logins at a real sshd, and which of them may confirm a trial.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use mco_rescue::node::login_session::{
    ConfirmationRefusal, LoginSession, SessionKeeper, judge_confirmation, milliseconds_since_boot,
};

use crate::support::sshd::{CLIENT, NODE, NODE_TOO, Sshd, with_sshd};
use crate::support::{Lacks, install, skip};

/// The command that shows the login; as root, who alone confirms: others cannot read which program serves a connection.
fn show_session(sshd: &Sshd, user: &str) -> String {
    let sudo = if user == "root" { "" } else { "sudo -n " };
    format!("{sudo}{} trial session", sshd.program())
}

/// The users whose logins can confirm here.
fn users() -> &'static [&'static str] {
    if std::path::Path::new("/usr/bin/sudo").exists() {
        &["root", "core"]
    } else {
        skip(Lacks::Setup, "no sudo between login and program");
        &["root"]
    }
}

fn parse(text: &str) -> LoginSession {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The moment at which a change is in place. The kernel shows the start of a process in steps of 10 ms, so the next login
/// comes a little later.
fn change_now() -> u64 {
    let now = milliseconds_since_boot();
    while milliseconds_since_boot() < now + 20 {
        std::thread::yield_now();
    }
    now
}

/// What a program wrote that no login waits for.
fn wait_for_session(sshd: &Sshd, name: &str) -> LoginSession {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let text = fs::read_to_string(sshd.path(name)).unwrap_or_default();
        if text.ends_with("}\n") {
            return parse(&text);
        }
        assert!(Instant::now() < end, "{name} was not written: {text}");
        std::thread::yield_now();
    }
}

#[test]
fn a_new_ssh_login_confirms_through_whatever_stands_between() {
    with_sshd(|sshd| {
        let program = sshd.program();
        let session = format!("{program} trial session");
        let starter = parse(&sshd.run("root", &session));
        let change = change_now();
        let mut cases = vec![
            ("root", session.clone()),
            ("root", format!("bash -c 'sh -c \"{session}; true\"; true'")),
            ("root", format!("su root -c '{session}'")),
            ("root", format!("nohup setsid -w {session}")),
            // sudo removes the variables of ssh.
            ("root", format!("env -i {session}")),
        ];
        if users().contains(&"core") {
            cases.push(("core", format!("sudo -n {session}")));
            cases.push(("core", format!("sudo -n sh -c '{session}; true'")));
        }
        // An ordinary user cannot read which program serves the connection: that proves nothing.
        let login = parse(&sshd.run("core", &session));
        let refusal = judge_confirmation(&starter, &login, change);
        assert_eq!(refusal, Err(ConfirmationRefusal::UnknownServer));
        for (user, script) in cases {
            let login = parse(&sshd.run(user, &script));
            assert_eq!(
                judge_confirmation(&starter, &login, change),
                Ok(()),
                "{script}"
            );
            let ssh = login.ssh.unwrap();
            assert_eq!(ssh.client, CLIENT.parse().ok(), "{script}");
            assert_eq!(ssh.server, NODE.parse().ok(), "{script}");
            assert!(ssh.channel.started >= ssh.process.started, "{script}");
            if let (Some(then), Some(now)) = (starter.audit, login.audit) {
                assert_ne!(then, now, "{script}");
            }
        }
    });
}

#[test]
fn a_channel_of_an_old_connection_confirms_nothing() {
    with_sshd(|sshd| {
        for user in users() {
            let session = show_session(sshd, user);
            let first = sshd.open_master(user, &format!("first-{user}"));
            let other = sshd.open_master(user, &format!("other-{user}"));
            let starter = parse(&sshd.run_shared(&first, &session));
            let change = change_now();
            let judge = |login: &LoginSession| judge_confirmation(&starter, login, change);
            assert_eq!(judge(&starter), Err(ConfirmationRefusal::SameLogin));
            let second = parse(&sshd.run_shared(&first, &session));
            assert_eq!(judge(&second), Err(ConfirmationRefusal::SharedConnection));
            // sshd is started anew, as the change of its files asks for; the old connections live on.
            sshd.restart();
            let old = parse(&sshd.run_shared(&other, &session));
            let verdict = judge(&old);
            assert!(
                matches!(verdict, Err(ConfirmationRefusal::OlderThanChange { .. })),
                "{user}: {verdict:?}"
            );
            let new = parse(&sshd.run(user, &session));
            assert_eq!(judge(&new), Ok(()), "{user}");
            // A connection that is shared, but was opened after the change.
            let after = sshd.open_master(user, &format!("after-{user}"));
            let new = parse(&sshd.run_shared(&after, &session));
            assert_eq!(judge(&new), Ok(()), "{user}");
        }
    });
}

#[test]
fn a_login_from_the_node_itself_confirms_nothing() {
    with_sshd(|sshd| {
        let session = format!("{} trial session", sshd.program());
        for (from, to) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.9", "127.0.0.1"),
            (NODE, NODE),
            (NODE_TOO, NODE),
        ] {
            let login = parse(&sshd.run_from_node("root", from, to, &session));
            let verdict = judge_confirmation(&LoginSession::default(), &login, 0);
            let client = from.parse().unwrap();
            assert_eq!(verdict, Err(ConfirmationRefusal::FromNodeItself { client }));
        }
    });
}

#[test]
fn a_program_of_the_name_of_sshd_confirms_nothing() {
    with_sshd(|sshd| {
        let program = sshd.program();
        let name = sshd.path("sshd").display().to_string();
        install("/bin/bash".as_ref(), name.as_ref());
        fs::set_permissions(&name, fs::Permissions::from_mode(0o755)).unwrap();
        // In an old login, a process that begins after the change, with name and title of one that serves a connection.
        let script = format!(
            "bash -c 'exec -a \"sshd: core [priv]\" {name} -c \"{program} trial session; true\"'; true"
        );
        let old = sshd.open_master("root", "old");
        let starter = parse(&sshd.run("root", &show_session(sshd, "root")));
        let change = change_now();
        let login = parse(&sshd.run_shared(&old, &script));
        let program = format!("{name} of uid 0");
        assert_eq!(
            login.ssh.as_ref().map(|ssh| ssh.process.started > change),
            Some(true)
        );
        let refusal = judge_confirmation(&starter, &login, change).unwrap_err();
        assert!(
            refusal.to_string().contains(&format!("({program})")),
            "{refusal}"
        );
        assert_eq!(refusal, ConfirmationRefusal::OtherServer { program });
    });
}

#[test]
fn a_program_that_left_its_login_confirms_nothing() {
    with_sshd(|sshd| {
        let program = sshd.program();
        let out = sshd.path("left").display().to_string();
        // It waits until the shell that started it has ended.
        let left = format!(
            "(setsid sh -c 'while kill -0 '$$' 2>/dev/null; do :; done; {program} trial session >{out}' >/dev/null 2>&1 &)"
        );
        sshd.run("root", &left);
        let login = wait_for_session(sshd, "left");
        assert_eq!(login.ssh, None);
        let refusal = judge_confirmation(&LoginSession::default(), &login, 0).unwrap_err();
        let words = refusal.to_string();
        assert!(words.contains("confirm --from-console"), "{words}");
        if !std::path::Path::new("/usr/bin/tmux").exists() {
            skip(Lacks::Setup, "no tmux");
            return;
        }
        let out = sshd.path("tmux").display().to_string();
        let socket = sshd.path("tmux-socket").display().to_string();
        sshd.run(
            "root",
            &format!(
                "tmux -S {socket} -f /dev/null new-session -d '{program} trial session >{out}'"
            ),
        );
        let login = wait_for_session(sshd, "tmux");
        assert_eq!(
            (login.ssh.clone(), login.keeper),
            (None, Some(SessionKeeper::Multiplexer))
        );
        let refusal = judge_confirmation(&LoginSession::default(), &login, 0);
        assert_eq!(refusal, Err(ConfirmationRefusal::Multiplexer));
    });
}
