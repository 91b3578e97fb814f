//! Logins at a real sshd against what the program says of the same files. All of it is in a mount namespace of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mco_rescue::formats::sshd::Certainty;
use mco_rescue::host::root::Root;
use mco_rescue::node::login;
use mco_rescue::node::sshd_ports::{self, SshdListener};

use crate::support::mounts::{mount, with_mounts};
use crate::support::sshd::find_sshd;
use crate::support::{Lacks, TestRoot, skip};

const KEYS: &str = "home/core/.ssh/authorized_keys";
const FOLDER: &str = "home/core/.ssh/authorized_keys.d";
const FRAGMENT: &str = "home/core/.ssh/authorized_keys.d/ignition";
const CONFIG: &str = "etc/ssh/sshd_config";
const DROP_IN: &str = "etc/ssh/sshd_config.d/40-ssh-key-dir.conf";
const KEY_DIR: &str = "opt/libexec/ssh-key-dir";

/// A node whose files this namespace has in the places of its own.
struct Node {
    root: TestRoot,
    sshd: PathBuf,
    key: String,
}

impl Node {
    fn new(sshd: PathBuf) -> Self {
        let root = TestRoot::new();
        let key = root.path("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(&key)
            .status();
        assert!(made.unwrap().success());
        let node = Self {
            key: root.read("key.pub"),
            root,
            sshd,
        };
        node.reset();
        for (from, to) in [
            ("etc/ssh", "/etc/ssh"),
            ("etc/passwd", "/etc/passwd"),
            ("etc/group", "/etc/group"),
            ("etc/shadow", "/etc/shadow"),
            ("home", "/home"),
            ("opt", "/opt"),
        ] {
            mount(&["--bind", node.root.path(from).to_str().unwrap(), to]);
        }
        fs::create_dir_all(node.root.path("pam.d")).unwrap();
        let pam = "auth required pam_deny.so\naccount required pam_permit.so\nsession required pam_permit.so\n";
        node.root.write("pam.d/sshd", pam);
        if Path::new("/etc/pam.d").exists() {
            let from = node.root.path("pam.d");
            mount(&["--bind", from.to_str().unwrap(), "/etc/pam.d"]);
        }
        mount(&["-t", "tmpfs", "-o", "mode=755", "none", "/run"]);
        fs::create_dir("/run/sshd").unwrap();
        node
    }

    /// Makes the node as the OS ships it; the directories stay, as they are mounted.
    fn reset(&self) {
        let _ = fs::remove_file(self.root.path("rsa"));
        for directory in ["etc/ssh", "home", "opt"] {
            fs::create_dir_all(self.root.path(directory)).unwrap();
            for entry in fs::read_dir(self.root.path(directory)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    fs::remove_dir_all(path).unwrap()
                } else {
                    fs::remove_file(path).unwrap()
                }
            }
        }
        let text = |path: &str, text: &str| {
            self.root.write(path, text);
        };
        text(
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nsshd:x:110:65534::/run/sshd:/usr/sbin/nologin\n\
             nobody:x:65534:65534::/:/usr/sbin/nologin\ncore:x:1000:1000::/home/core:/bin/sh\n",
        );
        text(
            "etc/group",
            "root:x:0:\nwheel:x:10:core\nsudo:x:27:\nnogroup:x:65534:\ncore:x:1000:\n",
        );
        text("etc/shadow", "root:*:19000::::::\ncore:*:19000::::::\n");
        text(
            CONFIG,
            "Include /etc/ssh/sshd_config.d/*.conf\nAuthorizedKeysFile .ssh/authorized_keys\n",
        );
        text(
            DROP_IN,
            "AuthorizedKeysCommand /opt/libexec/ssh-key-dir %u\nAuthorizedKeysCommandUser root\n",
        );
        // As the program of CoreOS: three names are looked at, with the rights of the user.
        text(
            KEY_DIR,
            "#!/bin/sh\ncd / && exec /usr/bin/setpriv --reuid \"$1\" --regid \"$1\" --clear-groups /bin/sh -c '\n\
             fine() { case $(stat -L -c \"%u %a\" \"$1\") in \"0 \"*[2367]|\"0 \"*[2367]?) return 1;; \"0 \"*) ;; \
             \"1000 \"*[2367]|\"1000 \"*[2367]?) return 1;; \"1000 \"*) ;; *) return 1;; esac; }\n\
             d=/home/core/.ssh; fine $d && fine $d/authorized_keys.d || exit 1\n\
             for f in $d/authorized_keys.d/*; do [ -f \"$f\" ] && fine \"$f\" && cat \"$f\"; done'\n",
        );
        self.root.chmod(KEY_DIR, 0o755);
        text("etc/ssh/ssh_host_ed25519_key", "");
        self.root.remove("etc/ssh/ssh_host_ed25519_key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(self.root.path("etc/ssh/ssh_host_ed25519_key"))
            .status();
        assert!(made.unwrap().success());
        text(FRAGMENT, &self.key);
        self.root.chmod(FRAGMENT, 0o600);
        self.root.chmod(FOLDER, 0o700);
        self.root.chmod("home/core/.ssh", 0o700);
        self.root.chmod("home/core", 0o700);
        self.give(&["home/core", "home/core/.ssh", FOLDER, FRAGMENT]);
    }

    /// Gives paths to core.
    fn give(&self, paths: &[&str]) {
        self.own(paths, 1000);
    }

    fn own(&self, paths: &[&str], uid: u32) {
        for path in paths {
            chown(self.root.path(path), Some(uid), Some(uid)).unwrap();
        }
    }

    /// Puts the key where sshd reads it without any program.
    fn key_at(&self, path: &str) {
        self.root.write(path, &self.key);
        if path.starts_with("home") {
            self.give(&[path]);
        }
    }

    /// Makes an RSA key the key of core until the next reset.
    fn rsa_key(&self, bits: u32) {
        let key = self.root.path("rsa");
        let _ = fs::remove_file(&key);
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "rsa", "-b", &bits.to_string(), "-N", "", "-f"])
            .arg(&key)
            .status();
        assert!(made.unwrap().success());
        self.root.write(FRAGMENT, &self.root.read("rsa.pub"));
        self.root.chmod(FRAGMENT, 0o600);
        self.give(&[FRAGMENT]);
    }

    /// The places at which the real sshd would listen, as it prints them.
    fn listens_at(&self) -> BTreeSet<String> {
        let output = Command::new(&self.sshd).arg("-T").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("listenaddress "));
        lines.map(str::to_owned).collect()
    }

    /// The settings of a drop-in before that of the OS.
    fn set(&self, text: &str) {
        self.root.write("etc/ssh/sshd_config.d/10-own.conf", text);
    }

    /// Returns true if a login as `core` works, with the words of sshd.
    fn logs_in(&self) -> (bool, String) {
        let proxy = format!("ProxyCommand={} -i -e", self.sshd.display());
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-o", &proxy, "-i"]);
        command.arg(self.root.path("key"));
        if self.root.exists("rsa") {
            command.arg("-i").arg(self.root.path("rsa"));
        }
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "IdentitiesOnly=yes",
        ] {
            command.args(["-o", option]);
        }
        command.args(["core@node", "echo", "in"]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.stdout == b"in\n", said)
    }

    /// Compares the program with sshd; returns the program's answer.
    #[track_caller]
    fn compare(&self, what: &str) -> Certainty {
        let root = Root::open(self.root.dir()).unwrap();
        let login = login::read_login(&root).unwrap();
        let (works, said) = self.logs_in();
        let answer = login.over_ssh();
        let agree = match answer {
            Certainty::Yes => works,
            Certainty::No => !works,
            Certainty::Unknown => true,
        };
        assert!(agree, "{what}: sshd: {works}; {login:#?}\n{said}");
        answer
    }
}

fn with_node(test: impl FnOnce(&Node) + Send) {
    let Some(sshd) = find_sshd() else {
        return skip(
            Lacks::Setup,
            "no sshd; tests/setup.sh unpacks one on Debian",
        );
    };
    with_mounts(|| test(&Node::new(sshd)));
}

/// A change of the node, and if a login works then; `None`: it depends on the connection.
type Case = (&'static str, Option<bool>, fn(&Node));

const CASES: &[Case] = &[
    ("as the OS ships it", Some(true), |_| {}),
    ("no Include", Some(false), |node| {
        node.root.write(
            CONFIG,
            "PermitRootLogin no\nAuthorizedKeysFile .ssh/authorized_keys\n",
        );
    }),
    (
        "no Include, and the key in the usual file",
        Some(true),
        |node| {
            node.root.write(CONFIG, "PermitRootLogin no\n");
            node.key_at(KEYS);
        },
    ),
    ("AuthorizedKeysCommand none", Some(false), |node| {
        node.set("AuthorizedKeysCommand none\n")
    }),
    (
        "AuthorizedKeysCommand none behind the first one",
        Some(true),
        |node| {
            node.root.write(
                "etc/ssh/sshd_config.d/50-own.conf",
                "AuthorizedKeysCommand none\n",
            );
        },
    ),
    ("no AuthorizedKeysCommandUser", Some(false), |node| {
        node.root.write(
            DROP_IN,
            "AuthorizedKeysCommand /opt/libexec/ssh-key-dir %u\n",
        );
    }),
    ("the program is missing", Some(false), |node| {
        node.root.remove(KEY_DIR)
    }),
    ("others may write the program", Some(false), |node| {
        node.root.chmod(KEY_DIR, 0o777)
    }),
    ("the program belongs to core", Some(false), |node| {
        node.give(&[KEY_DIR])
    }),
    ("others may write above the program", Some(false), |node| {
        node.root.chmod("opt/libexec", 0o777)
    }),
    ("AuthorizedKeysFile with the fragment", Some(true), |node| {
        node.set("AuthorizedKeysCommand none\nAuthorizedKeysFile .ssh/authorized_keys .ssh/authorized_keys.d/ignition\n");
    }),
    ("AuthorizedKeysFile none", Some(false), |node| {
        node.key_at(KEYS);
        node.set("AuthorizedKeysCommand none\nAuthorizedKeysFile none\n");
    }),
    ("AuthorizedKeysFile in /etc by %u", Some(true), |node| {
        node.key_at("etc/ssh/keys/core");
        node.set("AuthorizedKeysCommand none\nAuthorizedKeysFile /etc/ssh/keys/%u\n");
    }),
    (
        "AuthorizedKeysFile in /etc by %h and %%",
        Some(false),
        |node| {
            node.key_at("etc/ssh/keys/core");
            node.set("AuthorizedKeysCommand none\nAuthorizedKeysFile /etc/ssh/keys%h%%\n");
        },
    ),
    (
        "AuthorizedKeysFile in a directory that others write",
        Some(false),
        |node| {
            node.key_at("etc/ssh/keys/core");
            node.root.chmod("etc/ssh/keys", 0o777);
            node.set("AuthorizedKeysCommand none\nAuthorizedKeysFile /etc/ssh/keys/%u\n");
        },
    ),
    ("a file that only root reads", Some(false), |node| {
        node.key_at("etc/ssh/keys/core");
        node.root.chmod("etc/ssh/keys/core", 0o600);
        node.set("AuthorizedKeysCommand none\nAuthorizedKeysFile /etc/ssh/keys/%u\n");
    }),
    ("the first AuthorizedKeysFile counts", Some(true), |node| {
        node.key_at(KEYS);
        node.set("AuthorizedKeysFile .ssh/authorized_keys\nAuthorizedKeysFile none\nAuthorizedKeysCommand none\n");
    }),
    ("all belongs to root, closed", Some(false), |node| {
        node.own(&["home/core/.ssh", FOLDER, FRAGMENT], 0);
    }),
    ("all belongs to root, open", Some(true), |node| {
        node.own(&["home/core/.ssh", FOLDER, FRAGMENT], 0);
        for (path, mode) in [
            ("home/core/.ssh", 0o755),
            (FOLDER, 0o755),
            (FRAGMENT, 0o644),
        ] {
            node.root.chmod(path, mode);
        }
    }),
    ("the home belongs to root, closed", Some(false), |node| {
        node.own(&["home/core"], 0)
    }),
    (
        "the fragment belongs to another user",
        Some(false),
        |node| {
            node.own(&[FRAGMENT], 4242);
            node.root.chmod(FRAGMENT, 0o644);
        },
    ),
    ("others may write .ssh", Some(false), |node| {
        node.root.chmod("home/core/.ssh", 0o777)
    }),
    (
        "others may write the home, and the program does not mind",
        Some(true),
        |node| {
            node.root.chmod("home/core", 0o777);
        },
    ),
    (
        "others may write the home, and sshd minds",
        Some(false),
        |node| {
            node.key_at(KEYS);
            node.root.remove(FRAGMENT);
            node.root.chmod("home/core", 0o777);
        },
    ),
    ("StrictModes no", Some(true), |node| {
        node.key_at(KEYS);
        node.root.remove(FRAGMENT);
        node.root.chmod("home/core", 0o777);
        node.set("StrictModes no\n");
    }),
    ("AllowUsers of another", Some(false), |node| {
        node.set("AllowUsers auditor\n")
    }),
    ("AllowUsers twice", Some(true), |node| {
        node.set("AllowUsers auditor\nallowusers c?re\n")
    }),
    ("AllowUsers with a host", None, |node| {
        node.set("AllowUsers core@192.0.2.1\n")
    }),
    ("AllowUsers with any host", Some(true), |node| {
        node.set("AllowUsers core@*\n")
    }),
    ("AllowUsers with a ! means nothing", Some(false), |node| {
        node.set("AllowUsers !root\n")
    }),
    ("DenyUsers", Some(false), |node| {
        node.set("DenyUsers root co*\n")
    }),
    ("DenyUsers before AllowUsers", Some(false), |node| {
        node.set("AllowUsers core\nDenyUsers core\n")
    }),
    ("DenyUsers with a !", Some(true), |node| {
        node.set("DenyUsers !core\n")
    }),
    (
        "AllowGroups of a group that core is in",
        Some(true),
        |node| node.set("AllowGroups wheel\n"),
    ),
    ("AllowGroups of another", Some(false), |node| {
        node.set("AllowGroups sudo auditors\n")
    }),
    ("AllowGroups of the primary group", Some(true), |node| {
        node.set("AllowGroups core\n")
    }),
    ("DenyGroups", Some(false), |node| {
        node.set("DenyGroups wheel\n")
    }),
    ("PubkeyAuthentication no", Some(false), |node| {
        node.set("PubkeyAuthentication=no\n")
    }),
    (
        "PubkeyAuthentication no in the block of another",
        Some(true),
        |node| {
            node.set("Match User auditor\nPubkeyAuthentication no\n");
        },
    ),
    (
        "PubkeyAuthentication no in the block of core",
        Some(false),
        |node| {
            node.root.write(
                "etc/ssh/sshd_config.d/99-own.conf",
                "Match User root,core\n  PubkeyAuthentication no\n",
            );
        },
    ),
    (
        "a block comes before what counts for all",
        Some(true),
        |node| {
            node.set("PubkeyAuthentication no\nMatch Group wheel\n  PubkeyAuthentication yes\n");
        },
    ),
    ("a block ends with its file", Some(true), |node| {
        node.set("Match User auditor\n  X11Forwarding no\n");
    }),
    ("a block around an Include", Some(false), |node| {
        node.root
            .write("etc/ssh/own", "AuthorizedKeysCommand none\n");
        node.set("Match User core\n  Include own\n");
    }),
    ("a block of another around an Include", Some(true), |node| {
        node.root
            .write("etc/ssh/own", "Match all\nPubkeyAuthentication no\n");
        node.set("Match User auditor\n  Include /etc/ssh/own\n");
    }),
    ("Match all", Some(false), |node| {
        node.set("Match all\n  AllowUsers auditor\n")
    }),
    ("Match with a list and a !", Some(true), |node| {
        node.set("Match User *,!core\n  PubkeyAuthentication no\n");
    }),
    ("Match Address", None, |node| {
        node.set("Match Address 192.0.2.0/24\n  PubkeyAuthentication no\n")
    }),
    (
        "AuthenticationMethods with a password that core has not",
        Some(false),
        |node| {
            node.set("AuthenticationMethods publickey,password\n");
        },
    ),
    (
        "AuthenticationMethods with one list of a key",
        Some(true),
        |node| {
            node.set("AuthenticationMethods publickey,password publickey\n");
        },
    ),
    ("AuthenticationMethods any", Some(true), |node| {
        node.set("AuthenticationMethods any\n")
    }),
    ("AuthenticationMethods without a key", Some(false), |node| {
        node.set("AuthenticationMethods password\n")
    }),
    ("PermitRootLogin no", Some(true), |node| {
        node.set("PermitRootLogin no\n")
    }),
    (
        "PubkeyAcceptedAlgorithms without the type of the key",
        Some(false),
        |node| {
            node.set("PubkeyAcceptedAlgorithms ecdsa-sha2-nistp256,rsa-sha2-512\n");
        },
    ),
    ("PubkeyAcceptedAlgorithms with less", Some(true), |node| {
        node.set("PubkeyAcceptedAlgorithms -ecdsa*\n");
    }),
    (
        "RequiredRSASize above the length of the key",
        Some(false),
        |node| {
            node.rsa_key(2048);
            node.set("RequiredRSASize 3072\n");
        },
    ),
    (
        "RequiredRSASize of the length of the key",
        Some(true),
        |node| {
            node.rsa_key(2048);
            node.set("RequiredRSASize 2048\n");
        },
    ),
    (
        "RequiredRSASize and a key of another type",
        Some(true),
        |node| {
            node.set("RequiredRSASize 16384\n");
        },
    ),
    (
        "ForceCommand of a program that is not a shell",
        Some(false),
        |node| {
            node.set("ForceCommand /bin/false\n");
        },
    ),
    ("the shell is nologin", Some(false), |node| {
        let text = node
            .root
            .read("etc/passwd")
            .replace("/home/core:/bin/sh", "/home/core:/usr/sbin/nologin");
        node.root.write("etc/passwd", &text);
    }),
    ("a locked account without PAM", Some(false), |node| {
        node.root
            .write("etc/shadow", "root:*:19000::::::\ncore:!:19000::::::\n");
        node.set("UsePAM no\n");
    }),
    ("a locked account with PAM", Some(true), |node| {
        node.root
            .write("etc/shadow", "root:*:19000::::::\ncore:!:19000::::::\n");
        node.set("UsePAM yes\n");
    }),
    ("a keyword that sshd does not have", Some(false), |node| {
        node.set("PermitRootLogn no\n")
    }),
    ("a value that it does not take", Some(false), |node| {
        node.set("PubkeyAuthentication maybe\n")
    }),
    ("a keyword without a value", Some(false), |node| {
        node.set("AllowUsers\n")
    }),
    (
        "a keyword of all connections in a block",
        Some(false),
        |node| {
            node.set("Match User auditor\n  UsePAM yes\n");
        },
    ),
    ("a bad Match", Some(false), |node| {
        node.set("Match Users core\n")
    }),
    ("a relative program", Some(false), |node| {
        node.set("AuthorizedKeysCommand ssh-key-dir\n")
    }),
    ("an open quote", Some(false), |node| {
        node.set("Banner \"/etc/issue\n")
    }),
    ("an old keyword", Some(true), |node| {
        node.set("UsePrivilegeSeparation sandbox\nProtocol 2\n")
    }),
    ("a comment behind", Some(true), |node| {
        node.set("AllowUsers core # and others\n")
    }),
    (
        "a link in the directory that leads nowhere",
        Some(false),
        |node| {
            symlink("nowhere", node.root.path("etc/ssh/sshd_config.d/60-x.conf")).unwrap();
        },
    ),
    ("an Include of nothing", Some(true), |node| {
        node.set("Include /etc/ssh/nothing.d/*.conf /etc/ssh/nothing\n")
    }),
    ("an Include of itself", Some(false), |node| {
        node.set("Include /etc/ssh/sshd_config\n")
    }),
    ("a hidden file is not included", Some(true), |node| {
        node.root
            .write("etc/ssh/sshd_config.d/.own.conf", "DenyUsers core\n");
    }),
    (
        "others read the only key of the host",
        Some(false),
        |node| {
            node.root.chmod("etc/ssh/ssh_host_ed25519_key", 0o644);
            node.set("HostKey /etc/ssh/ssh_host_ed25519_key\n");
        },
    ),
    ("HostKey of a file that is missing", Some(false), |node| {
        node.set("HostKey /etc/ssh/own_key\n")
    }),
];

#[test]
fn a_login_works_where_the_program_says_so_and_nowhere_else() {
    with_node(|node| {
        for (what, wanted, change) in CASES {
            node.reset();
            change(node);
            let answer = node.compare(what);
            let wanted = match wanted {
                Some(true) => Certainty::Yes,
                Some(false) => Certainty::No,
                None => Certainty::Unknown,
            };
            assert_eq!(answer, wanted, "{what}");
        }
    });
}

#[test]
fn sshd_listens_where_the_program_says_so() {
    with_node(|node| {
        for text in [
            "",
            "Port 2222\nPort 22\n",
            "Port=2222\nListenAddress 0.0.0.0\n",
            "ListenAddress 192.0.2.1\nPort 2222\nListenAddress [::]:7\n",
            "Include /etc/ssh/more/*.conf\nPort \"23\" # x\n",
        ] {
            node.reset();
            node.root.write("etc/ssh/more/a.conf", "Port 24\n");
            node.set(text);
            let root = Root::open(node.root.dir()).unwrap();
            let all = sshd_ports::read_sshd_ports(&root).unwrap();
            let own = all.iter().flat_map(|one| match one {
                SshdListener::Everywhere(port) => {
                    vec![format!("0.0.0.0:{port}"), format!("[::]:{port}")]
                }
                SshdListener::At(address) => vec![address.to_string()],
            });
            let (own, real): (BTreeSet<String>, _) = (own.collect(), node.listens_at());
            // An address of all of one family counts as all addresses here.
            assert!(real.is_subset(&own), "{text:?}: {real:?} {own:?}");
            let ports = |all: &BTreeSet<String>| -> BTreeSet<String> {
                all.iter()
                    .filter_map(|one| Some(one.rsplit_once(':')?.1.to_owned()))
                    .collect()
            };
            assert_eq!(ports(&own), ports(&real), "{text:?}");
        }
    });
}

/// Numbers that look random, and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// A line of the settings.
fn line(numbers: &mut Numbers) -> String {
    match numbers.below(12) {
        0 => format!(
            "AllowUsers {}",
            numbers.of(&["core", "auditor core", "c*", "!core", "root"])
        ),
        1 => format!(
            "DenyUsers {}",
            numbers.of(&["auditor", "core", "?ore", "root"])
        ),
        2 => format!(
            "AllowGroups {}",
            numbers.of(&["wheel", "core", "sudo", "w*"])
        ),
        3 => format!("DenyGroups {}", numbers.of(&["sudo", "wheel", "x*"])),
        4 => format!("PubkeyAuthentication {}", numbers.of(&["yes", "no"])),
        5 => format!(
            "AuthorizedKeysCommand {}",
            numbers.of(&["none", "/opt/libexec/ssh-key-dir %u"])
        ),
        6 => format!(
            "AuthorizedKeysFile {}",
            numbers.of(&[
                "none",
                ".ssh/authorized_keys",
                "%h/.ssh/authorized_keys.d/ignition",
                "/etc/ssh/keys/%u"
            ])
        ),
        7 => format!(
            "AuthenticationMethods {}",
            numbers.of(&[
                "any",
                "publickey",
                "publickey,password",
                "password publickey"
            ])
        ),
        8 | 9 => format!(
            "Match {}",
            numbers.of(&[
                "User core",
                "User auditor",
                "Group wheel",
                "Group sudo,*el",
                "all",
                "User=core Group core"
            ])
        ),
        10 => format!(
            "Include {}",
            numbers.of(&["/etc/ssh/more/*.conf", "more/a.conf", "nothing"])
        ),
        _ => format!("PasswordAuthentication {}", numbers.of(&["yes", "no"])),
    }
}

#[test]
fn whatever_the_settings_are_sshd_and_the_program_agree() {
    with_node(|node| {
        let (mut yes, mut no) = (0, 0);
        for seed in 0..60 {
            let mut numbers = Numbers(seed * 7919 + 17);
            let mut text = |count: usize| -> String {
                let lines = (0..count).map(|_| line(&mut numbers) + "\n");
                lines.collect()
            };
            let texts = [text(2), text(3), text(2)];
            node.reset();
            node.key_at(KEYS);
            node.key_at("etc/ssh/keys/core");
            let without_includes = |text: &str| -> String {
                let lines = text.lines().filter(|line| !line.starts_with("Include"));
                lines.map(|line| format!("{line}\n")).collect()
            };
            node.root
                .write("etc/ssh/more/a.conf", &without_includes(&texts[0]));
            node.set(&texts[1]);
            let rest = node.root.read(CONFIG);
            node.root.write(CONFIG, &(rest + &texts[2]));
            match node.compare(&format!("{seed}: {texts:#?}")) {
                Certainty::Yes => yes += 1,
                Certainty::No => no += 1,
                Certainty::Unknown => panic!("{seed}: {texts:#?}"),
            }
        }
        assert!(yes > 10 && no > 10, "{yes} and {no}");
    });
}
