//! The changes of the campaign in `rehearsals.rs`: what breaks a boot, and what does not.

use serde_json::{Value, json};

use crate::support::file;

/// A change of the config, and what it does to the boot.
pub struct Change {
    pub name: &'static str,
    /// Files and units, laid over the config.
    pub more: Value,
    /// A command that ends with 0 on a node that the change has broken; empty for a harmless one.
    pub broken: &'static str,
    /// The subject of the finding; empty for a harmless one.
    pub subject: &'static str,
}

pub fn service(name: &str, text: &str) -> Value {
    let text = format!(
        "[Unit]\nDescription=Of the site\n[Service]\n{text}\n[Install]\nWantedBy=multi-user.target\n"
    );
    json!({"name": name, "enabled": true, "contents": text})
}

fn unit(name: &str, text: &str) -> Value {
    json!({"name": name, "enabled": true, "contents": text})
}

pub fn drop_in(name: &str, text: &str) -> Value {
    json!({"name": name, "dropins": [{"name": "60-site.conf", "contents": text}]})
}

pub fn units(units: Value) -> Value {
    json!({"files": [], "units": units})
}

pub fn files(files: Value) -> Value {
    json!({"files": files, "units": []})
}

fn broken(name: &'static str, more: Value, broken: &'static str, subject: &'static str) -> Change {
    Change {
        name,
        more,
        broken,
        subject,
    }
}

fn harmless(name: &'static str, more: Value) -> Change {
    broken(name, more, "", "")
}

const SITE_FAILED: &str =
    "systemctl show -p ActiveState,SubState site.service | grep -E 'failed|auto-restart'";

#[rustfmt::skip]
fn units_and_logins() -> Vec<Change> {
    let bad_file = |path: &str, text: &str| files(json!([file(path, 0o600, text)]));
    let socket = |name: &str| unit(name, "[Socket]\nListenStream=7777\nService=site-in.service\n[Install]\nWantedBy=sockets.target\n");
    vec![
        broken("a service that fails", units(json!([service("site.service", "Type=oneshot\nExecStart=/bin/false")])), SITE_FAILED, "site.service"),
        harmless("a service that works", units(json!([service("site.service", "ExecStart=/bin/sleep infinity")]))),
        broken("a program that is missing", units(json!([service("site.service", "ExecStart=/usr/bin/nothing-here")])), SITE_FAILED, "site.service"),
        broken("a user that is missing", units(json!([service("site.service", "User=nobody-here\nExecStart=/bin/sleep infinity")])), SITE_FAILED, "site.service"),
        broken("an option that sshd does not have", bad_file("/etc/ssh/sshd_config.d/60-site.conf", "NoSuchOption yes\n"), "! systemctl is-active ssh.service", "ssh.service"),
        harmless("an option of sshd", bad_file("/etc/ssh/sshd_config.d/60-site.conf", "ClientAliveInterval 180\n")),
        broken("sshd masked", units(json!([{"name": "ssh.service", "mask": true}])), "! systemctl is-active ssh.service", "ssh.service"),
        broken("a mount unit of another name", units(json!([unit("data.mount", "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/var/other\n[Install]\nWantedBy=multi-user.target\n")])), "systemctl show -p LoadState data.mount | grep bad-setting", "data.mount"),
        harmless("a mount unit", units(json!([unit("var-site.mount", "[Mount]\nWhat=tmpfs\nType=tmpfs\nWhere=/var/site\n[Install]\nWantedBy=multi-user.target\n")]))),
        broken("sudoers that do not parse", files(json!([file("/etc/sudoers.d/60-site", 0o440, "core ALL=(ALL\n")])), "! visudo -c", "sudo"),
        harmless("sudoers that parse", files(json!([file("/etc/sudoers.d/60-site", 0o440, "core ALL=(ALL) NOPASSWD: ALL\n")]))),
        broken("two services that wait for each other", units(json!([
            unit("site.service", "[Unit]\nAfter=site-two.service\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"),
            unit("site-two.service", "[Unit]\nAfter=site.service\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"),
        ])), "! systemctl is-active site.service || ! systemctl is-active site-two.service", "site"),
        broken("the kubelet without its environment", units(json!([drop_in("kubelet.service", "[Service]\nEnvironmentFile=/etc/kubernetes/nothing\n")])), "! systemctl is-active kubelet.service", "kubelet.service"),
        harmless("the kubelet with an optional environment", units(json!([drop_in("kubelet.service", "[Service]\nEnvironmentFile=-/etc/kubernetes/nothing\n")]))),
        broken("the kubelet of a program that is missing", units(json!([drop_in("kubelet.service", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet-next\n")])), "! systemctl is-active kubelet.service", "kubelet.service"),
        broken("the kubelet needs a unit that is missing", units(json!([drop_in("kubelet.service", "[Unit]\nRequires=nothing-here.service\nAfter=nothing-here.service\n")])), "! systemctl is-active kubelet.service", "kubelet.service"),
        broken("crio as a user that is missing", units(json!([drop_in("crio.service", "[Service]\nUser=nobody-here\n")])), "! systemctl is-active crio.service", "crio.service"),
        broken("rules that nft refuses", bad_file("/etc/sysconfig/nftables.conf", "table inet {{{\n"), "systemctl is-failed nftables.service", "nftables.service"),
        harmless("rules of nft", bad_file("/etc/sysconfig/nftables.conf", "table inet site { chain in { type filter hook input priority 0; }; }\n")),
        broken("a PAM module that is missing", files(json!([file("/etc/pam.d/sshd", 0o644, "account required pam_unix.so\nsession required pam_nothing.so\n")])), "! systemd-run -q --wait -p PAMName=sshd -p User=core true", "login"),
        broken("a generator that fails", files(json!([file("/etc/systemd/system-generators/60-site", 0o755, "#!/bin/sh\nexit 1\n")])), "! /etc/systemd/system-generators/60-site", "systemd"),
        broken("a path that is not absolute", units(json!([service("site.service", "ExecStart=bin/x y\nWorkingDirectory=relative")])), "systemctl show -p LoadState,ActiveState site.service | grep -E 'bad-setting|failed'", "site.service"),
        broken("a service that is never ready", units(json!([service("site.service", "Type=notify\nTimeoutStartSec=4\nExecStart=/bin/sleep infinity")])), SITE_FAILED, "site.service"),
        broken("a service that is restarted forever", units(json!([service("site.service", "Restart=always\nRestartSec=30\nExecStart=/bin/false")])), SITE_FAILED, "site.service"),
        broken("a step of the boot without an end", units(json!([unit("site.service", "[Unit]\nBefore=multi-user.target\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/bin/sleep infinity\n[Install]\nRequiredBy=multi-user.target\n")])), "systemctl list-jobs | grep -q 'site.service.*running'", "the boot"),
        broken("a timer of a date that does not exist", units(json!([unit("site.timer", "[Timer]\nOnCalendar=someday\nUnit=site-in.service\n[Install]\nWantedBy=timers.target\n")])), "systemctl show -p LoadState site.timer | grep bad-setting", "site.timer"),
        harmless("a timer", units(json!([service("site-in.service", "Type=oneshot\nExecStart=/bin/true"), unit("site.timer", "[Timer]\nOnCalendar=daily\nUnit=site-in.service\n[Install]\nWantedBy=timers.target\n")]))),
        broken("two sockets on one port", units(json!([service("site-in.service", "ExecStart=/bin/sleep infinity"), socket("site.socket"), socket("site-two.socket")])), "systemctl --failed | grep -q 'site.*socket'", "socket"),
        broken("a mount that the boot needs and that fails", units(json!([unit("var-site.mount", "[Unit]\nBefore=local-fs.target\n[Mount]\nWhat=tmpfs\nType=tmpfs\nOptions=size=nothing\nWhere=/var/site\n[Install]\nRequiredBy=local-fs.target\n")])), "systemctl is-active emergency.target", "the boot"),
        broken("D-Bus masked", units(json!([{"name": "dbus.service", "mask": true}, {"name": "dbus.socket", "mask": true}])), "! systemctl is-active dbus.service", "dbus"),
        broken("logind masked", units(json!([{"name": "systemd-logind.service", "mask": true}])), "! systemctl is-active systemd-logind.service", "systemd-logind.service"),
        broken("a conflict with sshd", units(json!([unit("site.service", "[Unit]\nConflicts=ssh.service\nAfter=ssh.service\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")])), "! systemctl is-active ssh.service", "ssh.service"),
        broken("a condition that keeps sshd from starting", units(json!([drop_in("ssh.service", "[Unit]\nConditionPathExists=/etc/nothing-here\n")])), "! systemctl is-active ssh.service", "ssh.service"),
        harmless("a condition of a service of the site", units(json!([unit("site.service", "[Unit]\nConditionPathExists=/etc/nothing-here\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")]))),
        harmless("a setting of the kernel that does not exist", bad_file("/etc/sysctl.d/60-site.conf", "net.nothing.here = 1\n")),
        harmless("a file of the site", bad_file("/etc/site/more.conf", "x\n")),
        harmless("a drop-in of crio", units(json!([drop_in("crio.service", "[Service]\nNice=5\n")]))),
        harmless("a service that asks for the network", units(json!([unit("site.service", "[Unit]\nWants=network-online.target\nAfter=network-online.target\n[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n")]))),
        harmless("a directory by tmpfiles", bad_file("/etc/tmpfiles.d/site.conf", "d /run/site 0755 root root\n")),
        harmless("an account by sysusers", bad_file("/etc/sysusers.d/site.conf", "u site - \"Of the site\" /run/site\n")),
    ]
}

/// A service of the site that fails, as a part of a config.
pub fn failing_service() -> Value {
    units(json!([service(
        "site.service",
        "Type=oneshot\nExecStart=/bin/false"
    )]))
}

/// Every change of the campaign.
pub fn all_changes() -> Vec<Change> {
    let parts = [
        units_and_logins(),
        broken_services(),
        broken_parts_of_the_node(),
        broken_files(),
        harmless_units(),
        harmless_files(),
        harmless_settings(),
    ];
    parts.into_iter().flatten().collect()
}

#[rustfmt::skip]
/// Services of the site that do not come up, each as the text below `[Service]`.
fn broken_services() -> Vec<Change> {
    let fails = |(name, text): (&'static str, &str)| broken(name, units(json!([service("site.service", text)])), SITE_FAILED, "site.service");
    let refused = |(name, text): (&'static str, &str)| broken(name, units(json!([service("site.service", text)])), "systemctl show -p LoadState site.service | grep bad-setting", "site.service");
    let script = |name: &'static str, mode: u32, text: &str| broken(name, json!({"files": [file("/usr/local/bin/site", mode, text)], "units": [service("site.service", "Type=oneshot\nExecStart=/usr/local/bin/site")]}), SITE_FAILED, "site.service");
    let mut all: Vec<Change> = [
        ("a step before the start that fails", "ExecStartPre=/bin/false\nExecStart=/bin/sleep infinity"),
        ("a status that is not a success", "Type=oneshot\nExecStart=/bin/sh -c 'exit 3'"),
        ("a working directory that is missing", "WorkingDirectory=/nothing-here\nExecStart=/bin/sleep infinity"),
        ("an environment file that is missing", "EnvironmentFile=/etc/nothing-here\nExecStart=/bin/sleep infinity"),
        ("a group that is missing", "Group=nobody-here\nExecStart=/bin/sleep infinity"),
        ("a root directory that is missing", "RootDirectory=/nothing-here\nExecStart=/bin/sleep infinity"),
        ("a credential that is missing", "LoadCredential=key:/etc/nothing-here\nExecStart=/bin/sleep infinity"),
        ("a path that it may write and that is missing", "ReadWritePaths=/nothing-here\nExecStart=/bin/sleep infinity"),
        ("a daemon that does not fork", "Type=forking\nTimeoutStartSec=4\nExecStart=/bin/false"),
        ("a step after the start that fails", "ExecStart=/bin/sleep infinity\nExecStartPost=/bin/false"),
    ].into_iter().map(fails).collect();
    all.extend([
        ("two programs of a simple service", "ExecStart=/bin/true\nExecStart=/bin/true"),
        ("a service without a program", "Restart=no"),
        ("a oneshot that is always restarted", "Type=oneshot\nRestart=always\nExecStart=/bin/true"),
    ].map(refused));
    all.extend([
        script("a script without its x bit", 0o644, "#!/bin/sh\nexit 0\n"),
        script("a script of an interpreter that is missing", 0o755, "#!/usr/bin/nothing-here\nexit 0\n"),
        script("a script with the line ends of another system", 0o755, "#!/bin/sh\r\nexit 0\r\n"),
        script("a script with an unset variable", 0o755, "#!/bin/sh\nset -u\necho $NOTHING\n"),
    ]);
    all
}

#[rustfmt::skip]
/// Changes of what the node needs.
fn broken_parts_of_the_node() -> Vec<Change> {
    let ssh = |name: &'static str, text: &str| broken(name, files(json!([file("/etc/ssh/sshd_config.d/60-site.conf", 0o600, text)])), "! systemctl is-active ssh.service", "ssh");
    let drop_in_of = |name: &'static str, of: &'static str, text: &str| broken(name, units(json!([drop_in(of, text)])), of_inactive(of), of);
    vec![
        ssh("a port of sshd that is not a number", "Port many\n"),
        ssh("a host key that is missing", "HostKey /etc/ssh/nothing-here\n"),
        ssh("a command for keys without its user", "AuthorizedKeysCommand /bin/true\n"),
        drop_in_of("a step before sshd that fails", "ssh.service", "[Service]\nExecStartPre=/bin/false\n"),
        drop_in_of("sshd needs a unit that is missing", "ssh.service", "[Unit]\nRequires=nothing-here.service\nAfter=nothing-here.service\n"),
        drop_in_of("sshd asserts a file that is missing", "ssh.service", "[Unit]\nAssertPathExists=/etc/nothing-here\n"),
        drop_in_of("D-Bus as a user that is missing", "dbus.service", "[Service]\nUser=nobody-here\n"),
        drop_in_of("crio needs a unit that is missing", "crio.service", "[Unit]\nRequires=nothing-here.service\nAfter=nothing-here.service\n"),
        drop_in_of("the kubelet after a condition", "kubelet.service", "[Unit]\nConditionPathExists=/etc/nothing-here\n"),
        broken("sudoers that everybody may write", files(json!([file("/etc/sudoers.d/60-site", 0o666, "core ALL=(ALL) NOPASSWD: ALL\n")])), "! visudo -c", "sudo"),
        broken("a stack of PAM without an end", files(json!([file("/etc/pam.d/sshd", 0o644, "account required pam_deny.so\n")])), "! systemd-run -q --wait -p PAMName=sshd -p User=core true", "login"),
        broken("a target that the boot needs and that is missing", units(json!([drop_in("multi-user.target", "[Unit]\nRequires=nothing-here.target\n")])), "! systemctl is-active multi-user.target", "the boot"),
        broken("a mount of an image that is missing", units(json!([unit("etc-site.mount", "[Mount]\nWhat=/nothing-here\nType=ext4\nOptions=loop\nWhere=/etc/site\n[Install]\nWantedBy=multi-user.target\n")])), "systemctl is-failed etc-site.mount", "etc-site.mount"),
        broken("a socket without its service", units(json!([unit("site.socket", "[Socket]\nListenStream=7777\n[Install]\nWantedBy=sockets.target\n")])), "! systemctl is-active site.socket", "site.socket"),
        broken("a path unit of a relative path", units(json!([service("site-in.service", "Type=oneshot\nExecStart=/bin/true"), unit("site.path", "[Path]\nPathExists=relative\nUnit=site-in.service\n[Install]\nWantedBy=multi-user.target\n")])), "systemctl show -p LoadState site.path | grep bad-setting", "site.path"),
        broken("a generator of a unit that is refused", files(json!([file("/etc/systemd/system-generators/60-site", 0o755, "#!/bin/sh\nprintf '[Service]\\nRestart=no\\n' >$1/site.service\nmkdir -p $1/multi-user.target.wants\nln -s ../site.service $1/multi-user.target.wants/\n")])), "systemctl show -p LoadState site.service | grep bad-setting", "site.service"),
        broken("a step that the boot needs and that fails", units(json!([unit("site.service", "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n[Service]\nType=oneshot\nExecStart=/bin/false\n[Install]\nRequiredBy=sysinit.target\n")])), "! systemctl is-active multi-user.target", "target"),
    ]
}

/// Returns a command that ends with 0 if a unit does not run.
fn of_inactive(unit: &str) -> &'static str {
    format!("! systemctl is-active {unit}").leak()
}

#[rustfmt::skip]
fn harmless_units() -> Vec<Change> {
    let runs = |(name, text): (&'static str, &str)| harmless(name, units(json!([service("site.service", text)])));
    let one = |(name, of, text): (&'static str, &str, &str)| harmless(name, units(json!([unit(of, text)])));
    let extends = |(name, of, text): (&'static str, &str, &str)| harmless(name, units(json!([drop_in(of, text)])));
    let mut all: Vec<Change> = [
        ("a oneshot that works", "Type=oneshot\nExecStart=/bin/true"),
        ("a oneshot that remains", "Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true"),
        ("a service of another user", "User=nobody\nExecStart=/bin/sleep infinity"),
        ("a service of a dynamic user", "DynamicUser=yes\nExecStart=/bin/sleep infinity"),
        ("a service with an environment", "Environment=A=b\nExecStart=/bin/sh -c 'test $A = b && exec sleep infinity'"),
        ("a failure that is skipped", "Type=oneshot\nExecStart=-/bin/false"),
        ("a status that counts as success", "Type=oneshot\nSuccessExitStatus=3\nExecStart=/bin/sh -c 'exit 3'"),
        ("a service in a private directory", "PrivateTmp=yes\nExecStart=/bin/sh -c 'touch /tmp/x && exec sleep infinity'"),
        ("a service with a state directory", "StateDirectory=site\nExecStart=/bin/sh -c 'touch /var/lib/site/x && exec sleep infinity'"),
        ("a service with limits", "LimitNOFILE=4096\nMemoryMax=64M\nTasksMax=16\nExecStart=/bin/sleep infinity"),
        ("a service that is protected", "ProtectSystem=strict\nProtectHome=yes\nNoNewPrivileges=yes\nExecStart=/bin/sleep infinity"),
        ("a service that writes below /etc", "Type=oneshot\nExecStart=/bin/sh -c 'echo x >/etc/site-wrote'"),
        ("a service that reads the journal", "Type=oneshot\nExecStart=/bin/sh -c 'journalctl -n 1 >/dev/null'"),
        ("a service that asks D-Bus", "Type=oneshot\nExecStart=/bin/systemctl is-active dbus.service"),
    ].into_iter().map(runs).collect();
    all.extend([
        ("a target of the site", "site.target", "[Unit]\nDescription=Of the site\n[Install]\nWantedBy=multi-user.target\n"),
        ("a slice of the site", "site.slice", "[Slice]\nMemoryMax=1G\n[Install]\nWantedBy=multi-user.target\n"),
        ("an automatic mount", "var-auto.automount", "[Automount]\nWhere=/var/auto\n"),
        ("a unit that is not enabled by anything", "site-other.service", "[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=rescue.target\n"),
    ].map(one));
    all.extend([
        ("more environment of the kubelet", "kubelet.service", "[Service]\nEnvironment=SITE=1\n"),
        ("the kubelet after a step that works", "kubelet.service", "[Service]\nExecStartPre=/bin/true\n"),
        ("an order of sshd", "ssh.service", "[Unit]\nAfter=time-sync.target\n"),
        ("a restart of sshd", "ssh.service", "[Service]\nRestart=always\nRestartSec=5\n"),
        ("a limit of D-Bus", "dbus.service", "[Service]\nLimitNOFILE=65536\n"),
        ("a comment in a drop-in", "crio.service", "# Of the site.\n"),
    ].map(extends));
    all.push(harmless("a socket with its service", units(json!([service("site.service", "ExecStart=/bin/sleep infinity"), unit("site.socket", "[Socket]\nListenStream=7778\n[Install]\nWantedBy=sockets.target\n")]))));
    all.push(harmless("a path unit", units(json!([service("site-in.service", "Type=oneshot\nExecStart=/bin/true"), unit("site.path", "[Path]\nPathExists=/etc/nothing-here\nUnit=site-in.service\n[Install]\nWantedBy=multi-user.target\n")]))));
    all.push(harmless("a mask of a unit that nobody needs", units(json!([{"name": "site-old.service", "mask": true}]))));
    all
}

#[rustfmt::skip]
/// Files that leave the boot as it is.
fn harmless_files() -> Vec<Change> {
    let put = |(name, path, mode, text): (&'static str, &str, u32, &str)| harmless(name, files(json!([file(path, mode, text)])));
    [
        ("several options of sshd", "/etc/ssh/sshd_config.d/60-site.conf", 0o600, "MaxAuthTries 4\nX11Forwarding no\nPasswordAuthentication no\n"),
        ("an option of the journal", "/etc/systemd/journald.conf.d/60-site.conf", 0o644, "[Journal]\nSystemMaxUse=100M\n"),
        ("an option of logind", "/etc/systemd/logind.conf.d/60-site.conf", 0o644, "[Login]\nKillUserProcesses=no\n"),
        ("an option of systemd", "/etc/systemd/system.conf.d/60-site.conf", 0o644, "[Manager]\nDefaultTasksMax=4096\n"),
        ("a message of the day", "/etc/motd", 0o644, "Of the site\n"),
        ("a profile", "/etc/profile.d/site.sh", 0o644, "export SITE=1\n"),
        ("limits", "/etc/security/limits.d/site.conf", 0o644, "core soft nofile 4096\n"),
        ("an option of a module", "/etc/modprobe.d/site.conf", 0o644, "options nothing a=b\n"),
        ("a rule of udev", "/etc/udev/rules.d/99-site.rules", 0o644, "SUBSYSTEM==\"nothing\", MODE=\"0660\"\n"),
        ("registries", "/etc/containers/registries.conf.d/site.conf", 0o644, "short-name-mode = \"disabled\"\n"),
        ("a config of crio", "/etc/crio/crio.conf.d/60-site", 0o644, "[crio.runtime]\npids_limit = 8192\n"),
        ("a certificate", "/etc/pki/ca-trust/source/anchors/site.crt", 0o644, "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"),
        ("a script that nobody starts", "/usr/local/bin/site", 0o755, "#!/usr/bin/nothing-here\n"),
        ("a name of a host", "/etc/hosts.site", 0o644, "192.0.2.1 site\n"),
        ("a comment for PAM", "/etc/pam.d/site", 0o644, "# Of the site.\n"),
        ("a policy of D-Bus", "/etc/dbus-1/system.d/site.conf", 0o644, "<!DOCTYPE busconfig PUBLIC \"-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN\" \"http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd\">\n<busconfig/>\n"),
        ("a link of the network", "/etc/systemd/network/60-site.link", 0o644, "[Match]\nMACAddress=02:00:00:00:00:01\n[Link]\nName=site0\n"),
        ("a log rotation", "/etc/logrotate.d/site", 0o644, "/var/log/site { missingok }\n"),
        ("a large file", "/etc/site/large.conf", 0o644, "x\n"),
    ].into_iter().map(put).collect()
}

#[rustfmt::skip]
/// Files that their reader refuses, and accounts that cannot be made.
fn broken_files() -> Vec<Change> {
    let put = |path: &str, mode: u32, text: &str| files(json!([file(path, mode, text)]));
    let kubelet = |name: &'static str, text: &str, step: &str| broken(name, json!({
        "files": [file("/etc/kubernetes/kubelet.conf", 0o644, &format!("kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n{text}"))],
        "units": [drop_in("kubelet.service", &format!("# STAND-IN for the kubelet's own reading.\n[Service]\nExecStartPre={step} /etc/kubernetes/kubelet.conf\n"))],
    }), "! systemctl is-active kubelet.service", "/etc/kubernetes/kubelet.conf");
    let crio = |name: &'static str, text: &str, subject| broken(name, json!({
        "files": [file("/etc/crio/crio.conf.d/60-site", 0o644, text)],
        "units": [drop_in("crio.service", "[Service]\nExecStart=\nExecStart=/usr/bin/crio\nRestart=no\n")],
    }), "! systemctl is-active crio.service", subject);
    let keyfile = "[connection]\nid=site\ntype=dummy\ninterface-name=site0\nautoconnect=false\n";
    vec![
        crio("a drop-in that crio refuses", "[crio.runtime]\npids_limit = many\n", "/etc/crio/crio.conf.d/60-site"),
        crio("a limit of crio that is not a number", "[crio.runtime]\npids_limit = \"many\"\n", "crio"),
        crio("a runtime that is missing", "[crio.runtime]\ndefault_runtime = \"site\"\n[crio.runtime.runtimes.site]\nruntime_path = \"/usr/bin/nothing-here\"\n", "crio.service"),
        broken("a preset that turns sshd off", json!({
            "files": [file("/etc/systemd/system-preset/00-site.preset", 0o644, "disable ssh.service\n")],
            "units": [drop_in("ssh.service", "[Service]\nNice=0\n")],
        }), "! systemctl is-active ssh.service", "ssh.service"),
        broken("a user that cannot be made", json!({
            "files": [file("/etc/sysusers.d/site.conf", 0o644, "u Site! - \"Of the site\"\n")],
            "units": [service("site.service", "User=Site!\nExecStart=/bin/sleep infinity")],
        }), "systemctl show -p ActiveState,SubState,LoadState site.service | grep -E 'failed|auto-restart|bad-setting'", "site"),
        broken("a line that tmpfiles refuses", put("/etc/tmpfiles.d/site.conf", 0o644, "directory /run/site 0755 root root\n"), "! test -d /run/site", "/etc/tmpfiles.d/site.conf"),
        broken("a kernel argument that a unit asks for", units(json!([drop_in("ssh.service", "[Unit]\nConditionKernelCommandLine=nothing.here\n")])), "! systemctl is-active ssh.service", "ssh.service"),
        kubelet("a limit of the kubelet that is not a number", "maxPods: many\n", "/bin/grep -qE '^maxPods: [0-9]+$'"),
        kubelet("a reservation of the kubelet below zero", "maxPods: 250\nsystemReserved:\n  memory: -1Gi\n", "/bin/sh -c '! grep -q -- \": -\" $0'"),
        broken("a kubelet.conf that is empty", put("/etc/kubernetes/kubelet.conf", 0o644, ""), "! systemctl is-active kubelet.service", "/etc/kubernetes/kubelet.conf"),
        broken("a connection that everybody may read", put("/etc/NetworkManager/system-connections/site.nmconnection", 0o644, keyfile), "! nmcli -t -f NAME connection | grep -qx site", "/etc/NetworkManager/system-connections/site.nmconnection"),
        broken("a store of images of an unknown driver", put("/etc/containers/storage.conf", 0o644, "[storage]\ndriver = \"overlayfs\"\nrunroot = \"/run/containers/storage\"\ngraphroot = \"/var/lib/containers/storage\"\n"), "! podman info", "/etc/containers/storage.conf"),
    ]
}

#[rustfmt::skip]
/// What people set on nodes.
fn harmless_settings() -> Vec<Change> {
    let put = |(name, path, mode, text): (&'static str, &str, u32, &str)| harmless(name, files(json!([file(path, mode, text)])));
    let core = |name, user: Value| harmless(name, json!({"core": user}));
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA core@bastion";
    let kubelet = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";
    let mut all: Vec<Change> = [
        ("servers of the time", "/etc/chrony.conf", 0o644, "server 192.0.2.1 iburst\nmakestep 1.0 3\n"),
        ("a setting of the kernel", "/etc/sysctl.d/60-site.conf", 0o644, "vm.max_map_count = 262144\nnet.ipv4.ip_forward = 1\n"),
        ("more hosts", "/etc/hosts", 0o644, "127.0.0.1 localhost\n192.0.2.1 site\n"),
        ("a module to load", "/etc/modules-load.d/site.conf", 0o644, "overlay\n"),
        ("a proxy", "/etc/mco/proxy.env", 0o644, "HTTP_PROXY=http://192.0.2.1:3128\n"),
        ("a config of NetworkManager", "/etc/NetworkManager/conf.d/60-site.conf", 0o644, "[main]\nrc-manager=unmanaged\n"),
        ("a connection", "/etc/NetworkManager/system-connections/site.nmconnection", 0o600, "[connection]\nid=site\ntype=dummy\ninterface-name=site0\nautoconnect=false\n"),
        ("a script of NetworkManager", "/etc/NetworkManager/dispatcher.d/60-site", 0o755, "#!/bin/sh\nexit 0\n"),
        ("a policy of images", "/etc/containers/policy.json", 0o644, "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}\n"),
        ("a mirror of images", "/etc/containers/registries.conf.d/60-site.conf", 0o644, "[[registry]]\nlocation = \"quay.example\"\n[[registry.mirror]]\nlocation = \"192.0.2.1:5000\"\n"),
        ("the runtime of crio", "/etc/crio/crio.conf.d/60-site", 0o644, "[crio.runtime]\ndefault_runtime = \"crun\"\n[crio.runtime.runtimes.crun]\nruntime_path = \"/usr/bin/crun\"\n"),
        ("a static pod", "/etc/kubernetes/manifests/site.yaml", 0o600, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: site\nspec:\n  containers:\n  - name: site\n    image: quay.example/site\n"),
        ("rules of polkit", "/etc/polkit-1/rules.d/60-site.rules", 0o644, "// Of the site.\n"),
        ("rules of the audit", "/etc/audit/rules.d/60-site.rules", 0o640, "-w /etc/passwd -p wa\n"),
        ("a banner of sshd", "/etc/ssh/sshd_config.d/60-site.conf", 0o600, "Banner /etc/issue\nLogLevel VERBOSE\n"),
        ("options of ssh", "/etc/ssh/ssh_config.d/60-site.conf", 0o644, "Host *\n    ServerAliveInterval 30\n"),
        ("an environment", "/etc/environment", 0o644, "SITE=1\n"),
        ("a time limit of systemd", "/etc/systemd/system.conf.d/60-site.conf", 0o644, "[Manager]\nDefaultTimeoutStopSec=30s\n"),
        ("a limit of all services", "/etc/systemd/system/service.d/60-site.conf", 0o644, "[Service]\nLimitCORE=0\n"),
        ("a preset of the site", "/etc/systemd/system-preset/60-site.preset", 0o644, "enable site.service\ndisable other.service\n"),
        ("links and files by tmpfiles", "/etc/tmpfiles.d/site.conf", 0o644, "L /run/site-link - - - - /etc/motd\nf /run/site-file 0644 root root - text\nd /var/lib/site 0700 root root 10d\n"),
        ("a group by sysusers", "/etc/sysusers.d/site.conf", 0o644, "g site -\nm core site\n"),
        ("rules for one command", "/etc/sudoers.d/60-site", 0o440, "%wheel ALL=(root) NOPASSWD: /usr/bin/journalctl\n"),
    ].into_iter().map(put).collect();
    all.extend([
        ("more pods", "maxPods: 500\n"),
        ("evictions of the kubelet", "maxPods: 250\nevictionHard:\n  memory.available: 500Mi\n  nodefs.available: 10%\nsystemReserved:\n  memory: 1Gi\n  cpu: 500m\n"),
    ].map(|(name, text)| harmless(name, files(json!([file("/etc/kubernetes/kubelet.conf", 0o644, &format!("{kubelet}{text}"))])))));
    all.push(core("another key of core", json!({"name": "core", "sshAuthorizedKeys": [key]})));
    all.push(core("a password of core", json!({"name": "core", "sshAuthorizedKeys": [key], "passwordHash": "$6$salt$0"})));
    all.push(harmless("a kernel argument that a unit asks for and that is there", units(json!([drop_in("kubelet.service", "[Unit]\nConditionKernelCommandLine=audit=0\n")]))));
    all
}
