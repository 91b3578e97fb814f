//! The login that a process belongs to, and whether that login may confirm a trial.
//!
//! A trial has to be confirmed through a login that was opened after the change. A new ssh connection proves that network,
//! sshd, keys and accounts work; a second channel of an old connection, a terminal multiplexer or a console proves nothing. The
//! evidence is what the kernel records about processes, because `sudo` removes environment variables: the nearest sshd process
//! among the ancestors, and the time when it started. sshd starts one process for each connection, when it accepts it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::kernel::boot_id;
use crate::base::invocation::mco_rescue;
use crate::host::running;

/// Value of `/proc/self/sessionid` outside of a login.
const NO_SESSION: u32 = u32::MAX;
/// Maximum number of ancestors that are examined.
const MAX_DEPTH: usize = 256;
/// Clock ticks of `/proc` per second. The kernel's interface fixes this on every platform of a node.
const TICKS: u64 = 100;
/// Paths of the sshd programs that serve a connection, for various distributions.
const SSHD_PROGRAMS: [&str; 5] = [
    "/usr/sbin/sshd",
    "/usr/bin/sshd",
    "/usr/libexec/openssh/sshd-session",
    "/usr/lib/openssh/sshd-session",
    "/usr/lib/ssh/sshd-session",
];
/// Maximum number of bytes that are read of a file in `/proc`.
const MAX_BYTES: usize = 256 << 10;

/// A process, identified so that a later one with the same number is not confused with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMark {
    /// Its number.
    pub pid: u32,
    /// Its start, in milliseconds since the kernel started (`CLOCK_BOOTTIME`); may be up to 10 ms early.
    pub started: u64,
}

/// An ssh connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshConnection {
    /// The sshd process that serves it, started when the connection was accepted.
    pub process: ProcessMark,
    /// The program that sshd started for it, such as a shell. Each channel of a shared connection has its own.
    pub channel: ProcessMark,
    /// Address of the client, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// Address of the node that the client used, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<IpAddr>,
    /// Where the client runs.
    #[serde(default)]
    pub origin: ClientOrigin,
    /// The program that serves it.
    #[serde(default)]
    pub served_by: ServerProgram,
}

/// The machine of an ssh client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientOrigin {
    /// Its address, or those of the node, could not be read.
    #[default]
    Unknown,
    /// This node: the connection crosses no network.
    Node,
    /// Another machine.
    Remote,
}

/// The program that serves an ssh connection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerProgram {
    /// It could not be read.
    #[default]
    Unknown,
    /// The node's sshd: it runs as root and not in a container.
    Sshd,
    /// Another program with the name of sshd.
    Other(String),
}

/// The login that a process belongs to. A field that is missing from a file was unknown when it was written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoginSession {
    /// Id of the boot.
    #[serde(default)]
    pub boot: String,
    /// Id of the audit session, which the kernel assigns to each login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<u32>,
    /// The ssh connection, if an ancestor is an sshd process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<SshConnection>,
    /// The systemd session, such as `session-4.scope`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The terminal, such as `pts/0`, `tty1` or `ttyS0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<String>,
    /// An ancestor that outlives logins or does not belong to one, such as `tmux`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<SessionKeeper>,
}

/// A program that runs others outside of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionKeeper {
    /// tmux or screen.
    Multiplexer,
    /// A container, such as the pod of `oc debug`.
    Container,
    /// cron or at.
    Cron,
}

impl fmt::Display for LoginSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.ssh, self.keeper) {
            (Some(ssh), _) => match ssh.client {
                Some(client) => write!(f, "ssh login from {client}")?,
                None => f.write_str("ssh login")?,
            },
            (None, Some(SessionKeeper::Multiplexer)) => f.write_str("tmux or screen")?,
            (None, Some(SessionKeeper::Container)) => f.write_str("a container")?,
            (None, Some(SessionKeeper::Cron)) => f.write_str("cron")?,
            (None, None) if self.is_console() => f.write_str("console login")?,
            (None, None) => f.write_str("no login")?,
        }
        match &self.tty {
            Some(tty) => write!(f, " ({tty})"),
            None => Ok(()),
        }
    }
}

impl LoginSession {
    /// Returns true for a login at a console or a serial line of the machine, and through nothing else.
    pub fn is_at_console(&self) -> bool {
        self.ssh.is_none() && self.keeper.is_none() && self.is_console()
    }

    /// Returns true if the terminal is a console or a serial line of the machine.
    fn is_console(&self) -> bool {
        let tty = self.tty.as_deref().unwrap_or_default();
        !tty.is_empty() && !tty.starts_with("pts/")
    }
}

/// Returns the milliseconds since the kernel started, including suspended time: the clock of [`ProcessMark::started`].
pub fn milliseconds_since_boot() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME);
    let now = now.map(std::time::Duration::from).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the login that this process belongs to. The addresses of its ssh connection are missing if this process may not read
/// the environment of the shell (`CAP_SYS_PTRACE`), so call this before capabilities are dropped.
pub fn observe_session() -> LoginSession {
    let proc = Proc(PathBuf::from("/proc"));
    LoginSession {
        boot: boot_id().unwrap_or_default(),
        ..observe_process(&proc, std::process::id())
    }
}

/// Value of `/proc/self/loginuid` outside of a login.
const NO_LOGIN: &str = "4294967295";

/// Returns who runs this process, for records: `core, ssh login from 192.0.2.7 (pts/0)`; `None` for a service. The user is that
/// of the login, which `sudo` keeps: the kernel's audit records it, and `sudo` names it where audit is off.
pub fn describe_caller() -> Option<String> {
    let user = read_login_user().or_else(|| std::env::var("SUDO_USER").ok());
    describe_login(user, &observe_session())
}

fn describe_login(user: Option<String>, login: &LoginSession) -> Option<String> {
    let is_login = login.ssh.is_some() || login.keeper.is_some() || login.is_console();
    match (user, is_login) {
        (Some(user), true) => Some(format!("{user}, {login}")),
        (Some(user), false) => Some(user),
        (None, true) => Some(login.to_string()),
        (None, false) => None,
    }
}

/// Returns the name of the login's user, or its number if this machine does not list it.
fn read_login_user() -> Option<String> {
    let uid = running::read_text("/proc/self/loginuid").ok()?;
    let uid = Some(uid.trim()).filter(|uid| *uid != NO_LOGIN)?;
    let accounts = running::read_text("/etc/passwd").unwrap_or_default();
    let name = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    Some(name.unwrap_or_else(|| format!("user {uid}")))
}

/// The kernel's files about processes.
struct Proc(PathBuf);

impl Proc {
    fn read_file(&self, pid: u32, name: &str) -> Option<Vec<u8>> {
        let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        running::read_at_most(self.0.join(pid.to_string()).join(name), limit).ok()
    }

    fn read_text(&self, pid: u32, name: &str) -> String {
        let bytes = self.read_file(pid, name).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn read_stat(&self, pid: u32) -> Option<ProcessStat> {
        parse_stat(&self.read_text(pid, "stat"))
    }

    /// Returns the real user of a process.
    fn read_uid(&self, pid: u32) -> Option<u32> {
        let status = self.read_text(pid, "status");
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Returns the path of the executable that a process runs.
    fn read_program(&self, pid: u32) -> Option<String> {
        let link = running::read_link(self.0.join(pid.to_string()).join("exe")).ok()?;
        let path = link.to_string_lossy().into_owned();
        // An update has since replaced the file.
        Some(path.trim_end_matches(" (deleted)").to_owned())
    }

    /// Returns the node's addresses in the address family of `like`; `None` if they could not be read.
    fn own_addresses(&self, like: IpAddr, pid: u32) -> Option<Vec<IpAddr>> {
        let (file, parse): (_, fn(&str) -> Vec<IpAddr>) = match like {
            IpAddr::V4(_) => ("net/fib_trie", parse_fib_trie),
            IpAddr::V6(_) => ("net/if_inet6", parse_if_inet6),
        };
        let text = String::from_utf8(self.read_file(pid, file)?).ok()?;
        let addresses = parse(&text);
        // A node that uses this family has an address in it.
        (!addresses.is_empty()).then_some(addresses)
    }
}

/// Parses the local IPv4 addresses in `/proc/net/fib_trie`: lines such as `|-- 192.0.2.10`, each followed by `/32 host LOCAL`.
fn parse_fib_trie(text: &str) -> Vec<IpAddr> {
    let lines = text.lines().map(str::trim);
    let pairs = lines.clone().zip(lines.skip(1));
    let local = pairs.filter(|(_, route)| *route == "/32 host LOCAL");
    let addresses = local.filter_map(|(address, _)| address.strip_prefix("|-- "));
    addresses.filter_map(|text| text.parse().ok()).collect()
}

/// Parses the IPv6 addresses in `/proc/net/if_inet6`: 32 hex digits at the start of each line.
fn parse_if_inet6(text: &str) -> Vec<IpAddr> {
    let words = text.lines().filter_map(|line| line.split(' ').next());
    let numbers = words.filter_map(|word| u128::from_str_radix(word, 16).ok());
    numbers.map(|bits| Ipv6Addr::from(bits).into()).collect()
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessStat {
    mark: ProcessMark,
    name: String,
    parent: u32,
    tty: u32,
}

/// Parses `PID (NAME) STATE PPID PGRP SESSION TTY ...`; the name may contain blanks and parentheses.
fn parse_stat(text: &str) -> Option<ProcessStat> {
    let (pid, rest) = text.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // proc(5) counts fields from 1; the first field here is number 3.
    let field = |number: usize| fields.get(number - 3).copied();
    let ticks: u64 = field(22)?.parse().ok()?;
    Some(ProcessStat {
        mark: ProcessMark {
            pid: pid.parse().ok()?,
            started: ticks.checked_mul(1000)? / TICKS,
        },
        name: name.to_owned(),
        parent: field(4)?.parse().ok()?,
        tty: field(7)?.parse::<i32>().ok()?.cast_unsigned(),
    })
}

/// Reads the login of a process, without the boot.
fn observe_process(proc: &Proc, pid: u32) -> LoginSession {
    let chain = find_ancestors(proc, pid);
    let cgroup = proc.read_text(pid, "cgroup");
    let audit = proc.read_text(pid, "sessionid").trim().parse().ok();
    let ssh = find_connection(proc, &chain);
    LoginSession {
        boot: String::new(),
        audit: audit.filter(|id| *id != NO_SESSION),
        scope: session_scope(&cgroup),
        tty: chain.first().and_then(|process| tty_name(process.tty)),
        keeper: ssh
            .is_none()
            .then(|| find_keeper(&chain, &cgroup))
            .flatten(),
        ssh,
    }
}

/// Returns a process and its ancestors, nearest first.
fn find_ancestors(proc: &Proc, pid: u32) -> Vec<ProcessStat> {
    let mut chain: Vec<ProcessStat> = Vec::new();
    let mut next = pid;
    while next != 0 && chain.len() < MAX_DEPTH {
        let Some(process) = proc.read_stat(next) else {
            break;
        };
        next = process.parent;
        chain.push(process);
    }
    chain
}

/// Returns the nearest ssh connection in a chain of processes. Several sshd processes may serve it: the outermost of them was
/// started when the connection was accepted; the listener above it is not counted.
fn find_connection(proc: &Proc, chain: &[ProcessStat]) -> Option<SshConnection> {
    let first = chain.iter().position(|one| is_sshd(&one.name))?;
    let sshd = chain.get(first..)?.iter();
    let serving = sshd
        .take_while(|one| is_sshd(&one.name))
        .filter(|one| serves_connection(&proc.read_text(one.mark.pid, "cmdline")));
    let process = serving.last()?.mark;
    let channel = chain.get(first.checked_sub(1)?)?.mark;
    let environment = proc.read_file(channel.pid, "environ").unwrap_or_default();
    let (client, server) = parse_addresses(&environment);
    Some(SshConnection {
        process,
        channel,
        client,
        server,
        origin: find_origin(proc, channel.pid, client, server),
        served_by: find_server(proc, process.pid),
    })
}

/// Returns where a client runs. `pid` is a process in the node's network namespace.
fn find_origin(
    proc: &Proc,
    pid: u32,
    client: Option<IpAddr>,
    server: Option<IpAddr>,
) -> ClientOrigin {
    let Some(client) = client.map(|client| client.to_canonical()) else {
        return ClientOrigin::Unknown;
    };
    let server = server.map(|server| server.to_canonical());
    if client.is_loopback() || Some(client) == server {
        return ClientOrigin::Node;
    }
    match proc.own_addresses(client, pid) {
        None => ClientOrigin::Unknown,
        Some(own) if own.contains(&client) => ClientOrigin::Node,
        Some(_) => ClientOrigin::Remote,
    }
}

/// Examines the process that serves a connection, because any program can have the name of sshd.
fn find_server(proc: &Proc, pid: u32) -> ServerProgram {
    let (Some(uid), Some(program), Some(cgroup)) = (
        proc.read_uid(pid),
        proc.read_program(pid),
        proc.read_file(pid, "cgroup"),
    ) else {
        return ServerProgram::Unknown;
    };
    let cgroup = String::from_utf8_lossy(&cgroup);
    let is_program = SSHD_PROGRAMS.iter().any(|path| program.ends_with(path));
    match (uid, is_program, is_of_container(&cgroup)) {
        (0, true, false) => ServerProgram::Sshd,
        (0, true, true) => ServerProgram::Other(format!("{program} of a container")),
        _ => ServerProgram::Other(format!("{program} of uid {uid}")),
    }
}

fn is_sshd(name: &str) -> bool {
    matches!(name, "sshd" | "sshd-session" | "sshd-auth")
}

/// Returns true for the command line of a process that serves a connection: sshd replaces it with a title such as `sshd: core
/// [priv]` or `sshd-session: core@pts/0`. A listener keeps its original command line, or has one that ends in `[listener] 0 of
/// 10-100 startups`.
fn serves_connection(command_line: &str) -> bool {
    let title = command_line.split('\0').next().unwrap_or_default();
    let is_title = ["sshd: ", "sshd-session: ", "sshd-auth: "]
        .iter()
        .any(|start| title.starts_with(start));
    is_title && !title.contains(" [listener] ")
}

/// Parses `SSH_CONNECTION=CLIENT PORT SERVER PORT` in an environment.
fn parse_addresses(environment: &[u8]) -> (Option<IpAddr>, Option<IpAddr>) {
    let name = b"SSH_CONNECTION=";
    let mut all = environment.split(|byte| *byte == 0);
    let value = all.find_map(|one| one.strip_prefix(name));
    let value = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    let words: Vec<&str> = value.split(' ').collect();
    let address = |index: usize| {
        let word = words.get(index)?;
        // A link-local address includes its interface.
        let word = word.split('%').next().unwrap_or(word);
        word.parse().ok()
    };
    (address(0), address(2))
}

/// Finds `session-4.scope` in the text of `/proc/PID/cgroup`.
fn session_scope(cgroup: &str) -> Option<String> {
    let mut parts = cgroup.lines().flat_map(|line| line.split('/'));
    parts
        .find(|part| part.starts_with("session-") && part.ends_with(".scope"))
        .map(str::to_owned)
}

fn find_keeper(chain: &[ProcessStat], cgroup: &str) -> Option<SessionKeeper> {
    let of_name = |name: &str| match name {
        "crond" | "cron" | "atd" => Some(SessionKeeper::Cron),
        "conmon" | "containerd-shim" => Some(SessionKeeper::Container),
        _ if name.starts_with("tmux") => Some(SessionKeeper::Multiplexer),
        _ if name.eq_ignore_ascii_case("screen") => Some(SessionKeeper::Multiplexer),
        _ => None,
    };
    let found = chain.iter().skip(1).find_map(|one| of_name(&one.name));
    found.or(is_of_container(cgroup).then_some(SessionKeeper::Container))
}

/// Returns true for the cgroup of a process in a container.
fn is_of_container(cgroup: &str) -> bool {
    let marks = ["/kubepods", "crio-", "libpod-"];
    marks.iter().any(|mark| cgroup.contains(mark))
}

/// Returns the name of a terminal from its device number.
fn tty_name(device: u32) -> Option<String> {
    let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00);
    Some(match (major, minor) {
        (0, _) => return None,
        (4, 0..64) => format!("tty{minor}"),
        (4, _) => format!("ttyS{}", minor - 64),
        (136..=143, _) => format!("pts/{}", (major - 136) * 256 + minor),
        (204, 64..) => format!("ttyAMA{}", minor - 64),
        (229, _) => format!("hvc{minor}"),
        _ => format!("{major}:{minor}"),
    })
}

/// The reason why a login may not confirm a trial.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmationRefusal {
    /// It is the login that began the trial.
    #[error(
        "this is the ssh login that began the trial; it was open before the change. {}",
        open_new_connection()
    )]
    SameLogin,
    /// It is a second channel of the connection that began the trial.
    #[error(
        "this login shares the ssh connection that began the trial (ControlMaster), so nothing was connected after the change. {}",
        open_new_connection()
    )]
    SharedConnection,
    /// The ssh connection was opened before the change was complete.
    #[error("this ssh connection is {} older than the change, so it does not prove that the node can be reached now. {}", format_seconds(*before), open_new_connection())]
    OlderThanChange {
        /// Milliseconds between connection and change.
        before: u64,
    },
    /// The ssh client runs on the node.
    #[error(
        "this ssh connection comes from the node itself ({client}), so it crosses no network. {}",
        open_new_connection()
    )]
    FromNodeItself {
        /// Address of the client.
        client: IpAddr,
    },
    /// It is unknown where the ssh client runs.
    #[error(
        "the address of the client of this ssh connection, or those of the node, could not be read: it may come from the node itself, \
         and proves nothing. {}; if you are sure that you came over the network: `{}`",
        open_new_connection(),
        mco_rescue("confirm --from-console")
    )]
    UnknownClient,
    /// The server only has the name of sshd.
    #[error(
        "the process above that is named sshd is not the sshd of the node ({program}), so it does not prove that the node can be \
         reached. {}; if you are sure that the network does not matter: `{}`",
        open_new_connection(),
        mco_rescue("confirm --from-console")
    )]
    OtherServer {
        /// What it is.
        program: String,
    },
    /// The program that serves the connection could not be examined.
    #[error(
        "the program that serves this ssh connection could not be read: it may be another one than the sshd of the node, and proves \
         nothing. {}; if you are sure that you came over the network: `{}`",
        open_new_connection(),
        mco_rescue("confirm --from-console")
    )]
    UnknownServer,
    /// It is in tmux or screen, whose server may be older than the change and than the login that displays it.
    #[error(
        "tmux and screen go on over several logins, so this one proves nothing. Leave it, and run `{}` in the shell of a new ssh connection",
        mco_rescue("confirm")
    )]
    Multiplexer,
    /// It is on a console, in a container or in a job: no ancestor is an sshd process.
    #[error(
        "{login} is not an ssh login, so it does not prove that the node can be reached. {}; if you are sure that the network does not matter: `{}`",
        open_new_connection(),
        mco_rescue("confirm --from-console")
    )]
    NoSshLogin {
        /// The login, in words.
        login: String,
    },
}

/// Returns the next step after most refusals.
fn open_new_connection() -> String {
    format!(
        "Open a new connection (`ssh -o ControlPath=none NODE`) and run `{}` there",
        mco_rescue("confirm")
    )
}

fn format_seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}

/// Checks whether a login may confirm a trial.
///
/// `in_place_since` is the time when all changes were complete, in milliseconds of [`milliseconds_since_boot`]. It is only
/// compared if confirmer and starter belong to the same boot: after a reboot every connection is new.
///
/// # Errors
/// The reason for the refusal, with the next step.
pub fn judge_confirmation(
    starter: &LoginSession,
    confirmer: &LoginSession,
    in_place_since: u64,
) -> Result<(), ConfirmationRefusal> {
    let Some(ssh) = &confirmer.ssh else {
        return Err(match confirmer.keeper {
            Some(SessionKeeper::Multiplexer) => ConfirmationRefusal::Multiplexer,
            _ => ConfirmationRefusal::NoSshLogin {
                login: confirmer.to_string(),
            },
        });
    };
    if starter.boot == confirmer.boot {
        let began = starter
            .ssh
            .as_ref()
            .filter(|began| began.process == ssh.process);
        match began {
            Some(began) if began.channel == ssh.channel => {
                return Err(ConfirmationRefusal::SameLogin);
            }
            Some(_) => return Err(ConfirmationRefusal::SharedConnection),
            None => {}
        }
        if ssh.process.started <= in_place_since {
            let before = in_place_since - ssh.process.started;
            return Err(ConfirmationRefusal::OlderThanChange { before });
        }
    }
    match &ssh.served_by {
        ServerProgram::Sshd => {}
        ServerProgram::Unknown => return Err(ConfirmationRefusal::UnknownServer),
        ServerProgram::Other(program) => {
            let program = program.clone();
            return Err(ConfirmationRefusal::OtherServer { program });
        }
    }
    match (ssh.origin, ssh.client) {
        (ClientOrigin::Remote, _) => Ok(()),
        (ClientOrigin::Node, Some(client)) => Err(ConfirmationRefusal::FromNodeItself { client }),
        (ClientOrigin::Unknown, _) | (ClientOrigin::Node, None) => {
            Err(ConfirmationRefusal::UnknownClient)
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "files of a test, not of a node")]
mod tests;
