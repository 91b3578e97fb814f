//! The override for a lost key, from logins that are not the console of the node. The console itself is in
//! `vm-tests/cases/console.rs`.

use std::fs;
use std::process::Stdio;

use super::keys::Stick;
use crate::support::flat;
use crate::support::sshd::{CLIENT, with_sshd};

#[test]
fn no_ssh_login_passes_over_a_missing_capsule_with_and_without_a_terminal() {
    with_sshd(|sshd| {
        let Some(stick) = Stick::new() else { return };
        fs::remove_file(stick.path("capsule.json")).unwrap();
        fs::remove_file(stick.path("capsule.json.sig")).unwrap();
        let apply = format!(
            "{} --root {} apply --yes --accept-unsigned {} 2>&1; echo CODE=$?",
            sshd.program(),
            stick.root.dir().display(),
            stick.config()
        );
        let plain = sshd.run("root", &apply);
        let mut terminal = sshd.with_terminal("root", &apply);
        let terminal = terminal.stdin(Stdio::null()).output().unwrap();
        let terminal = String::from_utf8_lossy(&terminal.stdout).into_owned();
        for (said, words) in [
            (plain, format!("this is: ssh login from {CLIENT}")),
            (terminal, format!("this is: ssh login from {CLIENT} (pts/")),
        ] {
            let said = flat(&said);
            assert!(said.contains(&words) && said.contains("CODE=1"), "{said}");
            assert!(said.contains("media = required"), "{said}");
        }
        assert!(!stick.root.exists("etc/from-stick"));
    });
}
