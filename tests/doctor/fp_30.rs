//! FP-30: the console is silent.

use std::fs;

use super::small::{self, ENTRY, booted_with, live, record_on};
use super::{Dark, doctor, doctor_on, found, of, says};
use serde_json::Value;

pub(super) const DARK: &[Dark] = &[("FP-30", "console= of the kernel", |root| root.remove(ENTRY))];

#[test]
fn a_console_that_throws_everything_away_is_reported() {
    let root = small::node();
    root.write(
        ENTRY,
        "version 1\noptions rw console=tty0 console=ttynull\n",
    );
    says(
        &found(&doctor(&root), "FP-30", "warning"),
        &["switched off", "console=ttynull"],
    );
}

#[test]
fn a_running_node_is_asked_for_its_terminals() {
    live(|node| {
        record_on(node, |_| {});
        for name in ["ttyS0", "tty1"] {
            fs::create_dir_all(node.root.path("sys/class/tty").join(name)).unwrap();
        }
        for (arguments, what) in [
            ("", None),
            ("console=ttyS0,115200n8", None),
            ("console=ttyS9 console=tty0", None),
            ("console=tty0 console=ttyS9", Some("a missing terminal")),
            (
                "console=tty0 console=ttynull",
                Some("the console is switched off"),
            ),
        ] {
            booted_with(node, arguments);
            let seen = doctor_on(node);
            let Some(what) = what else {
                assert_eq!(of(&seen, "FP-30"), Vec::<Value>::new(), "{arguments}");
                continue;
            };
            let last = arguments.split(' ').next_back().unwrap();
            let command = format!("rpm-ostree kargs --delete-if-present={last}");
            says(&found(&seen, "FP-30", "warning"), &[what, &command]);
        }
    });
}
