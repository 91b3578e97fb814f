//! What people see of a trial, at real terminals and real logins.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mco_rescue::host::sys::runtime;
use mco_rescue::node::command::HostRunner;
use mco_rescue::node::command::wall::write_to_terminals;

use crate::support::sshd::{Sshd, with_sshd};

/// A login with a terminal, and the output that it shows.
struct Terminal {
    ssh: Child,
    input: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn open(sshd: &Sshd, user: &str, script: &str) -> Self {
        let mut command = sshd.with_terminal(user, script);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut ssh = command.spawn().unwrap();
        let mut pipe = ssh.stdout.take().unwrap();
        let (send, output) = channel();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut piece) {
                let _ = send.send(piece[..length].to_vec());
            }
        });
        Self {
            input: ssh.stdin.take(),
            ssh,
            output,
            seen: String::new(),
        }
    }

    /// Reads until the words are shown. Returns everything so far.
    fn wait_for(&mut self, words: &str) -> &str {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.seen.contains(words) {
            let left = end.saturating_duration_since(Instant::now());
            let piece = self.output.recv_timeout(left);
            let piece = piece.unwrap_or_else(|_| panic!("{words:?} is not in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&piece));
        }
        &self.seen
    }

    fn write(&mut self, text: &str) {
        self.input
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
    }
}

#[test]
fn a_message_reaches_the_terminals_of_all_users() {
    with_sshd(|sshd| {
        let mut all: Vec<Terminal> = ["root", "core"]
            .map(|user| Terminal::open(sshd, user, "echo ready; exec cat"))
            .into();
        for terminal in &mut all {
            terminal.wait_for("ready");
        }
        write_to_terminals(&HostRunner, "first line\n-second line: 60 seconds\n");
        for terminal in &mut all {
            terminal.wait_for("-second line: 60 seconds");
            assert!(terminal.seen.contains("first line"), "{}", terminal.seen);
        }
    });
}

#[test]
fn a_new_login_shows_the_announcement_until_it_is_withdrawn() {
    with_sshd(|sshd| {
        let shown = |sshd: &Sshd| {
            let mut terminal = Terminal::open(sshd, "core", "");
            terminal.write("echo en''d\nexit\n");
            terminal.wait_for("end").to_owned()
        };
        assert!(!runtime::withdraw_announcement().unwrap());
        assert!(!shown(sshd).contains("on trial"));
        runtime::announce_at_login("changes are on trial\n").unwrap();
        assert!(shown(sshd).contains("changes are on trial"));
        runtime::announce_at_login("reverted\n").unwrap();
        let text = shown(sshd);
        assert!(
            text.contains("reverted") && !text.contains("on trial"),
            "{text}"
        );
        assert!(runtime::withdraw_announcement().unwrap());
        assert!(!shown(sshd).contains("reverted"));
    });
}
