//! The key that signs is lost, and the node demands capsules: somebody at the machine applies a stick without one.
//!
//! A tiny guest has the tree of a node and a stick. `--accept-unsigned` works on its serial console. It is refused
//! without a terminal, and below a program that is called `tmux`. Logins through a real sshd are in `tests/capsule/override_login.rs`.

use std::fs;

use serde_json::json;

use crate::lab::qemu::Machine;
use crate::lab::{Case, images};
use crate::support::faults::copy_tree;
use crate::support::{TestRoot, file, machine_config};

const SCRIPT: &str = r#"
cat >/try.sh <<'END'
#!/bin/sh
cp -a /node "/run/$1"
mco-rescue apply --root "/run/$1" --yes $2 /stick/one.json >"/run/$1.said" 2>&1
echo "$?" >"/run/$1.code"
END
cat >/tmux <<'END'
#!/bin/sh
/try.sh tmux --accept-unsigned
exit
END
chmod 0755 /try.sh /tmux
/try.sh none --accept-unsigned
setsid -c /tmux </dev/ttyS0
setsid -c /try.sh serial --accept-unsigned </dev/ttyS0
setsid -c /try.sh without </dev/ttyS0
for login in none tmux serial without; do
    echo "LOGIN $login $(cat "/run/$login.code") $([ -e "/run/$login/etc/from-stick" ] && echo applied || echo nothing)"
    tr '\n' ' ' <"/run/$login.said" | sed "s/^/SAID $login /"
    echo
done
"#;

#[test]
fn the_override_for_a_lost_key_is_for_the_console_of_the_machine_alone() {
    let Some(case) = Case::begin("console: a stick without a capsule") else {
        return;
    };
    let tree = tempfile::tempdir().unwrap();
    let (node, stick) = (tree.path().join("node"), tree.path().join("stick"));
    fs::create_dir_all(&node).unwrap();
    fs::create_dir_all(&stick).unwrap();
    let root = TestRoot::new();
    root.write("etc/mco-rescue/policy", "media = required\n");
    copy_tree(root.dir(), &node);
    let files = json!({"storage": {"files": [file("/etc/from-stick", 0o644, "1\n")]}});
    let config = machine_config("rendered-worker-1", files);
    fs::write(stick.join("one.json"), config.to_string()).unwrap();
    let archive = case.path("tree.cpio");
    fs::write(&archive, images::packed(tree.path(), "cat")).unwrap();
    case.prepared();
    let machine = Machine::tiny(&images::tiny())
        .archive(&archive)
        .file("diskless", b"")
        .file("case.sh", SCRIPT.as_bytes());
    let mut guest = machine.start(case.dir(), "console");
    guest.powers_off();
    let said = |login: &str| guest.values(&format!("SAID {login} ")).join(" ");
    for (login, result, words) in [
        ("none", "1 nothing", "this is: no login"),
        ("tmux", "1 nothing", "this is: tmux or screen (ttyS0)"),
        ("serial", "0 applied", "accepted at the console"),
        ("without", "1 nothing", "media = required"),
    ] {
        let found = guest.value(&format!("LOGIN {login} "));
        assert_eq!(found, result, "{login}: {}", said(login));
        assert!(said(login).contains(words), "{login}: {}", said(login));
    }
    case.tell(&format!("four logins after {:.1} s", guest.seconds()));
}
