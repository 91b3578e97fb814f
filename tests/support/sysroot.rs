//! The disk of an OSTree system, made by the real ostree.

use std::process::{Command, Stdio};

use crate::support::{Lacks, TestRoot, is_root, say, skip};

/// A sysroot that the real ostree deploys into.
pub struct Sysroot(pub TestRoot);

impl Drop for Sysroot {
    fn drop(&mut self) {
        let mut command = Command::new("chattr");
        command.args(["-R", "-i"]).arg(self.0.dir());
        let _ = command.stderr(Stdio::null()).status();
    }
}

impl Sysroot {
    /// With one commit and no deployment; `None`, said aloud, where there is no ostree, or it cannot work here.
    pub fn new() -> Option<Self> {
        let root = Self(TestRoot::empty());
        let tree = TestRoot::empty();
        tree.write("usr/lib/modules/6.1/vmlinuz", &"k".repeat(3000));
        tree.write("usr/lib/modules/6.1/initramfs.img", &"i".repeat(5000));
        tree.write(
            "usr/lib/os-release",
            "ID=scos\nPRETTY_NAME=\"Some OS\"\nVERSION=1\n",
        );
        tree.link("usr/etc/os-release", "../usr/lib/os-release");
        for mount_point in ["var", "boot", "sysroot"] {
            std::fs::create_dir(tree.path(mount_point)).unwrap();
        }
        // A deployment sees the physical root there.
        root.0.link("sysroot", ".");
        let top = root.0.dir().display();
        let steps = [
            vec!["admin".into(), "init-fs".into(), format!("{top}")],
            vec![
                "admin".into(),
                "os-init".into(),
                format!("--sysroot={top}"),
                "os".into(),
            ],
            vec![
                format!("--repo={top}/ostree/repo"),
                "commit".into(),
                "--branch=os/x".into(),
                format!("--tree=dir={}", tree.dir().display()),
            ],
        ];
        let works = is_root() && steps.iter().all(|args| Self::ostree(args));
        if !works {
            skip(
                Lacks::root_or_program("ostree"),
                "deployments by the real ostree: it is not installed, or cannot work here",
            );
        }
        works.then_some(root)
    }

    fn ostree(args: &[String]) -> bool {
        let mut command = Command::new("ostree");
        let output = command.args(args).output();
        let failed = |output: &std::process::Output| say(&String::from_utf8_lossy(&output.stderr));
        output.is_ok_and(|output| {
            if !output.status.success() {
                failed(&output);
            }
            output.status.success()
        })
    }

    /// One more deployment.
    pub fn deploy(&self, options: &[String]) -> bool {
        let mut args: Vec<String> = ["admin", "deploy", "--os=os"].map(str::to_owned).to_vec();
        args.push(format!("--sysroot={}", self.0.dir().display()));
        args.extend_from_slice(options);
        args.push("os/x".to_owned());
        Self::ostree(&args)
    }
}
