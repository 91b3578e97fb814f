//! What the next boot keeps: files of the image, and systems whose `/etc` or root every boot makes anew.

use std::fs;

use serde_json::{Value, json};

use crate::support::ostree_node::{IMAGE, OstreeNode, service_config};
use crate::support::{
    Lacks, PROGRAM, Run, TestRoot, file, flat_run, is_root, machine_config, skip,
};

fn files(paths: &[&str]) -> Value {
    let files: Vec<Value> = paths
        .iter()
        .map(|path| file(path, 0o644, "new\n"))
        .collect();
    machine_config("rendered-worker-1", json!({"storage": {"files": files}}))
}

#[test]
fn an_etc_that_every_boot_makes_anew_is_refused_unless_it_is_meant() {
    for (place, text, path, is_refused) in [
        (
            "usr/lib/ostree",
            "[etc]\ntransient=true\n",
            "/etc/new",
            true,
        ),
        ("usr/lib/ostree", "[root]\ntransient = true\n", "/new", true),
        ("etc/ostree", "[etc]\ntransient=1\n", "/etc/new", true),
        (
            "usr/lib/ostree",
            "[etc]\ntransient=false\n",
            "/etc/new",
            false,
        ),
        (
            "usr/lib/ostree",
            "[composefs]\nenabled=true\n",
            "/etc/new",
            false,
        ),
    ] {
        let root = TestRoot::new();
        root.write("usr/etc/a", "");
        root.write(&format!("{place}/prepare-root.conf"), text);
        let config = root.config(&files(&[path]));
        let before = root.everything();
        let run = root.run(&["apply", "--yes", config.path()]);
        if !is_refused {
            run.ok();
            continue;
        }
        let run = run.exits(1);
        let said = flat_run(&run);
        assert!(said.contains("every boot recreates it"), "{said}");
        assert!(said.contains("gone after the next reboot"), "{said}");
        assert!(
            said.contains(&format!("/{place}/prepare-root.conf")),
            "{said}"
        );
        assert_eq!(root.everything(), before);
        let meant = ["apply", "--yes", "--until-reboot", config.path()];
        let said = flat_run(&root.run(&meant).ok());
        assert!(said.contains("as asked (--until-reboot)"), "{said}");
        assert!(root.exists(path), "{path}");
    }
    // Of a system that OSTree does not boot, the file says nothing.
    let root = TestRoot::new();
    root.write(
        "usr/lib/ostree/prepare-root.conf",
        "[etc]\ntransient=true\n",
    );
    root.apply(&files(&["/etc/new"]));
}

#[test]
fn a_running_system_says_itself_that_its_etc_is_transient() {
    if !is_root() {
        return skip(Lacks::Root, "namespaces need root");
    }
    let node = OstreeNode::new();
    let config = service_config("rendered-worker-one", IMAGE, "one\n");
    node.root.write("one", &config.to_string());
    // The configuration of the image is that of its next boot, and this one says what it did.
    let booted = b"transient-etc\0\0\0/run/ostree/transient-etc\0\0s\x0f";
    let before = fs::read(node.root.path("run/ostree-booted")).unwrap_or_default();
    fs::write(node.root.path("run/ostree-booted"), booted).unwrap();
    let said = flat_run(&node.run(&["apply", "--yes", "/one"]).exits(1));
    assert!(
        said.contains("transient-etc in /run/ostree-booted"),
        "{said}"
    );
    node.run(&["apply", "--yes", "--until-reboot", "/one"]).ok();
    // The way back needs no such word.
    node.run(&["rollback", "--yes"]).ok();
    fs::write(node.root.path("run/ostree-booted"), before).unwrap();
    node.run(&["apply", "--yes", "/one"]).ok();
}

#[test]
fn nothing_below_usr_of_a_deployment_is_changed() {
    let root = TestRoot::empty();
    let node = TestRoot::new();
    let name = format!("{}.0", "a1".repeat(32));
    fs::rename(node.dir(), root.path(&name)).unwrap();
    fs::create_dir(node.dir()).unwrap();
    root.write(&format!("{name}/usr/etc/a"), "");
    root.write(&format!("{name}/usr/lib/there.conf"), "old\n");
    root.link(&format!("{name}/usr/local"), "../var/usrlocal");
    root.link(&format!("{name}/opt/image"), "/usr/share/image");
    for directory in ["usr/share/image", "var/usrlocal/bin"] {
        fs::create_dir_all(root.path(&format!("{name}/{directory}"))).unwrap();
    }
    let deployment = root.path(&name);
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(PROGRAM);
        Run::of(
            command
                .arg("--root")
                .arg(&deployment)
                .args(args)
                .output()
                .unwrap(),
        )
    };
    let before = root.everything();
    for path in ["/usr/lib/new.conf", "/usr/lib/there.conf", "/opt/image/new"] {
        let config = root.config(&files(&["/etc/new", path]));
        let said = flat_run(&run(&["apply", "--yes", config.path()]).exits(1));
        assert!(
            said.contains(&format!("{path} is a path of the image")),
            "{said}"
        );
        assert_eq!(root.everything(), before, "{path}");
    }
    // What the image has already is not a change, and /usr/local is below /var.
    let mut there = files(&["/etc/new", "/usr/local/bin/new"]);
    let same = file("/usr/lib/there.conf", 0o644, "old\n");
    there["spec"]["config"]["storage"]["files"]
        .as_array_mut()
        .unwrap()
        .push(same);
    let config = root.config(&there);
    run(&["apply", "--yes", config.path()]).ok();
    assert!(root.exists(&format!("{name}/var/usrlocal/bin/new")));
    run(&["verify", config.path()]).ok();
}
