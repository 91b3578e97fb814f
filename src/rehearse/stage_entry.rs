//! The first process in the namespaces of a rehearsal: it lays the private root, and becomes the system that boots in it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::scene::{EtcChanges, RehearsalScene, SceneInterface, stand_in_files};
use crate::base::paths::CAPSULE_POLICY;
use crate::host::running;
use crate::host::sys::privileges::{self, Capability};
use crate::host::sys::runtime::REHEARSAL;
use crate::node::command::{CommandError, CommandLine, CommandRunner, become_init};
use crate::node::mounts::stage::PrivateRoot;

/// Options of `apply` for a root that is not kept: what it would refuse is another command's subject.
const APPLY: [&str; 17] = [
    "--yes",
    "--quiet",
    "apply",
    "--files-only",
    "--no-actions",
    "--ignore-unsupported",
    "--allow-lockout",
    "--allow-account-files",
    "--clear-immutable",
    "--takeover",
    "--ignore-quorum",
    "--until-reboot",
    "--not-a-node",
    "--not-rendered",
    "--allow-removals",
    "--edited-config",
    "--other-architecture",
];

/// Options of `rollback` for such a root.
const REVERT: [&str; 5] = ["--yes", "--quiet", "rollback", "--no-actions", "--takeover"];

/// What the boot never gets, so that it cannot act on the kernel that it shares with the node.
const FORBIDDEN: [Capability; 11] = [
    Capability::CAP_SYS_MODULE,
    Capability::CAP_SYS_RAWIO,
    Capability::CAP_SYS_TIME,
    Capability::CAP_SYS_BOOT,
    Capability::CAP_SYSLOG,
    Capability::CAP_MKNOD,
    Capability::CAP_AUDIT_CONTROL,
    Capability::CAP_AUDIT_READ,
    Capability::CAP_MAC_ADMIN,
    Capability::CAP_WAKE_ALARM,
    Capability::CAP_BLOCK_SUSPEND,
];

/// What writing a node's files needs.
const WRITE: [Capability; 10] = [
    Capability::CAP_CHOWN,
    Capability::CAP_DAC_OVERRIDE,
    Capability::CAP_DAC_READ_SEARCH,
    Capability::CAP_FOWNER,
    Capability::CAP_FSETID,
    Capability::CAP_SETFCAP,
    Capability::CAP_MKNOD,
    Capability::CAP_SYS_ADMIN,
    Capability::CAP_SYS_CHROOT,
    Capability::CAP_LINUX_IMMUTABLE,
];

/// Kinds of network interfaces that lead nowhere, in the order of preference; each is the name of its kernel module. A kind that the
/// kernel does not have yet is not asked for, as that would load its module.
const DUMMIES: [&str; 3] = ["dummy", "veth", "bridge"];

/// Lays the private root and boots it. Returns only with an error.
///
/// # Errors
/// This is not the first process of its own namespaces, or a step failed.
pub fn boot_stage(runner: &dyn CommandRunner, scene: &Path) -> Result<std::convert::Infallible> {
    if std::process::id() != 1 {
        bail!("this part of a rehearsal runs in namespaces of its own; use: mco-rescue rehearse");
    }
    let scene = running::read_bytes(scene).context("reading the scene")?;
    let scene: RehearsalScene = serde_json::from_slice(&scene).context("reading the scene")?;
    make_network(runner, &scene.interfaces);
    let place = Path::new(REHEARSAL).join("stage");
    let stage = PrivateRoot::lay_overlays(&place, &scene.layers)?;
    stage.mount_system(&scene.console)?;
    for rollback in &scene.rollbacks {
        let args = REVERT
            .into_iter()
            .chain(rollback.iter().map(String::as_str));
        run_on_stage(runner, &scene, &stage, args)
            .context("reverting the runs since the last boot")?;
    }
    if let Some(changes) = &scene.etc {
        merge_etc(runner, &stage, changes).context("merging /etc")?;
    }
    if let Some(config) = &scene.config {
        apply_config(runner, &scene, &stage, config)?;
    }
    for (name, text) in stand_in_files() {
        stage.put_in_run(&name, &text)?;
    }
    stage.enter_root(&scene.host_name)?;
    privileges::forbid_capabilities(&FORBIDDEN).context("dropping capabilities")?;
    Err(become_init(&scene.arguments)).context("starting systemd of the rehearsed system")
}

fn apply_config(
    runner: &dyn CommandRunner,
    scene: &RehearsalScene,
    stage: &PrivateRoot,
    config: &Path,
) -> Result<()> {
    let root = stage.root().display().to_string();
    // The config was read as the node demands it. What is applied here is the copy of this program, which no capsule lists.
    let policies = CAPSULE_POLICY.map(|path| format!("/{path}"));
    let words = [root.as_str(), "rm", "-f", "--"].map(str::to_owned);
    run_tool(
        runner,
        "chroot",
        words.into_iter().chain(policies).collect(),
    )?;
    let config = config.display().to_string();
    let args = APPLY.into_iter().chain([config.as_str()]);
    run_on_stage(runner, scene, stage, args)
}

/// Runs this program with the private root as its root.
fn run_on_stage<'a>(
    runner: &dyn CommandRunner,
    scene: &RehearsalScene,
    stage: &PrivateRoot,
    args: impl Iterator<Item = &'a str>,
) -> Result<()> {
    let root = ["--root".to_owned(), stage.root().display().to_string()];
    let line = CommandLine::new(
        scene.program.display().to_string(),
        root.into_iter().chain(args.map(str::to_owned)),
        Duration::from_secs(60),
    )
    .with_capabilities(&WRITE);
    let output = runner.run(&line)?;
    match output.status {
        Some(0) => Ok(()),
        _ => bail!("{}", output.stderr.trim().trim_start_matches("error: ")),
    }
}

/// Lays the changes of the running `/etc` over that of another deployment, as ostree does when it finalizes the deployment: whole
/// files win over those of the image.
fn merge_etc(runner: &dyn CommandRunner, stage: &PrivateRoot, changes: &EtcChanges) -> Result<()> {
    let list: String = changes.put.iter().map(|path| format!("{path}\0")).collect();
    stage.put_in_run("etc.list", &list)?;
    let inside = stage.root().join("run");
    let (archive, list) = (inside.join("etc.tar"), inside.join("etc.list"));
    let attributes = ["--xattrs", "--xattrs-include=*", "--acls"].map(str::to_owned);
    let mut pack = vec![
        "--create".to_owned(),
        format!("--file={}", archive.display()),
        format!("--directory={}", changes.from.display()),
        "--no-recursion".to_owned(),
        "--null".to_owned(),
        "--verbatim-files-from".to_owned(),
        format!("--files-from={}", list.display()),
    ];
    pack.extend(attributes.clone());
    run_tool(runner, "tar", pack)?;
    // Inside the private root, where a link cannot lead out of it.
    let root = stage.root().display().to_string();
    let inside = |words: &[&str]| {
        let words = words.iter().map(|word| (*word).to_owned());
        [root.clone()].into_iter().chain(words).collect::<Vec<_>>()
    };
    for path in &changes.removed {
        run_tool(
            runner,
            "chroot",
            inside(&["rm", "-rf", "--", &format!("/etc/{path}")]),
        )?;
    }
    let mut unpack = inside(&[
        "tar",
        "--extract",
        "--file=/run/etc.tar",
        "--directory=/etc",
    ]);
    unpack.extend(["--numeric-owner", "--same-permissions", "--unlink-first"].map(str::to_owned));
    unpack.extend(attributes);
    run_tool(runner, "chroot", unpack)?;
    run_tool(
        runner,
        "chroot",
        inside(&["rm", "-f", "/run/etc.tar", "/run/etc.list"]),
    )
}

fn run_tool(runner: &dyn CommandRunner, program: &str, args: Vec<String>) -> Result<()> {
    let line = CommandLine::new(program, args, Duration::from_secs(60)).with_capabilities(&WRITE);
    let output = runner.run(&line)?;
    match output.status {
        Some(0) => Ok(()),
        _ => Err(CommandError::Failed(program.to_owned(), output.stderr.trim().to_owned()).into()),
    }
}

/// Creates the network interfaces, which lead nowhere, and a default route over the first one: programs wait for one. Without a kind
/// of interface for it, the addresses are those of the loopback. What cannot be made is left out.
fn make_network(runner: &dyn CommandRunner, interfaces: &[SceneInterface]) {
    let version = sysinfo::System::kernel_version().unwrap_or_default();
    let builtin = running::read_text(format!("/usr/lib/modules/{version}/modules.builtin"));
    let builtin = builtin.unwrap_or_default();
    let has_kind = |kind: &&&str| {
        running::exists(format!("/sys/module/{kind}")) || builtin.contains(&format!("/{kind}.ko"))
    };
    let kind = DUMMIES.iter().find(has_kind);
    let mut commands = vec!["link set lo up".to_owned()];
    for interface in interfaces {
        let name = match kind {
            Some(kind) => {
                commands.push(format!("link add {} type {kind}", interface.name));
                commands.push(format!("link set {} up", interface.name));
                interface.name.as_str()
            }
            None => "lo",
        };
        let addresses = interface.addresses.iter();
        commands.extend(
            addresses.map(|(address, prefix)| format!("addr add {address}/{prefix} dev {name}")),
        );
    }
    let first = interfaces.first().filter(|_| kind.is_some());
    let device = first.map_or("lo", |interface| interface.name.as_str());
    commands.push(format!("route add default dev {device}"));
    for command in commands {
        let line = CommandLine::new("ip", command.split(' '), Duration::from_secs(10))
            .with_capabilities(&[Capability::CAP_NET_ADMIN]);
        match runner.run(&line) {
            Ok(output) if output.status == Some(0) => {}
            Ok(output) => log::info!("ip {command}: {}", output.stderr.trim()),
            Err(error) => {
                log::info!("{error}");
                return;
            }
        }
    }
}
