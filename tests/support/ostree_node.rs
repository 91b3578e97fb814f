//! A root in which the program sees itself on a live OSTree node, with named stubs of its programs.
//!
//! The stubs answer as the captured programs do and keep what they are told; the real ones are in `vm-tests/`.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};

use serde_json::{Value, json};

use super::commands;
use super::mounts::mount;
use crate::support::{
    POLICY, Run, TestRoot, copy_program, file, install, install_program, machine_config,
    null_device, unsealed,
};

/// What a run waits for at the next boot.
pub const AWAITED: &str = "var/lib/mco-rescue/awaited.json";
/// The id of a boot that is not the one of this machine.
pub const OTHER_BOOT: &str = "00000000-0000-0000-0000-000000000000";

/// Checksum of the deployment that runs.
pub const BOOTED: &str = "b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0";
/// Checksum of another one.
pub const ARRIVED: &str = "a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2";
/// The image that runs.
pub const IMAGE: &str =
    "quay.example/os@sha256:1111111111111111111111111111111111111111111111111111111111111111";
/// Another one.
pub const NEXT: &str =
    "quay.example/os@sha256:2222222222222222222222222222222222222222222222222222222222222222";

/// What `ostree=` names.
const LINK: &str = "sysroot/ostree/boot.1/rhcos/0/0";

/// STUB of rpm-ostree: what is staged is a file with its image, its packages and its removals; all calls are kept.
/// `fails` holds the first words of a command that fails, `hangs` of one that never ends its work. No registry answers
/// where packages would be updated. `byhand` of `booted` or `staged` is put into the status as it is.
pub const RPM_OSTREE: &str = r#"
cd /stub
json() { list=; for word in $*; do list="$list${list:+, }\"$word\""; done; }
deployment() {
    json $packages; requested=$list; json $removals
    is=false; [ "$1" != "$pinned" ] || is=true
    case $image in pivot://*) origin="\"custom-origin\": [\"$image\", \"words\"]" ;; *) origin="\"container-image-reference\": \"$image\"" ;; esac
    printf '{"checksum": "%s", "serial": %s, "osname": "rhcos", "staged": %s, "booted": %s, "pinned": %s, %s, %s "requested-packages": [%s], "requested-base-removals": [%s]}' \
        "$1" "$2" "$3" "$4" "$is" "$origin" "$byhand" "$requested" "$list"
    byhand=
}
stage() { printf 'image=%s\npackages="%s"\nremovals="%s"\n' "$image" "$packages" "$removals" >staged; }
read -r pinned <pinned; read -r fails <fails; read -r hangs <hangs; read -r kargs <kargs
case $* in
    "status --json")
        printf '{"deployments": ['
        if [ -e staged ]; then . ./staged; deployment 5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed 1 true false; printf ', '; fi
        . ./booted; deployment "$checksum" 0 false true
        if [ -e previous ]; then . ./previous; printf ', '; deployment "$checksum" 0 false false; fi
        printf '], "transaction": null}\n'; exit ;;
    status) echo 'State: idle'; exit ;;
    --version) printf "rpm-ostree:\n Version: '2024.7'\n Features:\n  - container\n"; exit ;;
    kargs) echo "$kargs"; exit ;;
esac
echo "rpm-ostree $*" >>log
[ ! -e /etc/yum.repos.d/coreos-extensions.repo ] || echo "  with a repository" >>log
[ ! -e /run/tmp-rpm-ostree-policy.json ] || echo "  with a policy of its own" >>log
. ./booted; [ ! -e staged ] || . ./staged
all=$*
if [ -n "$fails" ]; then case $* in $fails*) echo 'error: Packages not found: nonsense' >&2; exit 1 ;; esac; fi
verb=$1; shift
case $verb in
    cleanup)
        rm -f staged /run/ostree/staged-deployment /run/ostree/nextroot-booted
        if [ -e kargs-before ]; then read -r kargs <kargs-before; echo "$kargs" >kargs; rm -f kargs-before; fi ;;
    cancel) ;;
    rebase)
        origin=
        for word in "$@"; do case $word in --custom-origin-url=*) origin=${word#*=} ;; -*) ;; *) image=$word ;; esac; done
        image=${origin:-$image}; stage ;;
    kargs)
        before=$kargs
        for word in "$@"; do case $word in --append=*) kargs="$kargs ${word#*=}" ;; esac; done
        for word in "$@"; do
            case $word in --delete-if-present=*) ;; *) continue ;; esac
            away=${word#*=}; found=; kept=
            case " $before " in *" $away "*) ;; *) continue ;; esac
            for one in $kargs; do
                if [ -z "$found" ] && [ "$one" = "$away" ]; then found=yes; else kept="$kept${kept:+ }$one"; fi
            done
            if [ -z "$found" ]; then echo "error: No key '${away%%=*}' found" >&2; exit 1; fi
            kargs=$kept
        done
        if [ "$kargs" = "$before" ]; then echo 'No changes.'; exit; fi
        [ -e kargs-before ] || echo "$before" >kargs-before
        echo "$kargs" >kargs; stage ;;
    update)
        case $image in
            ostree-unverified-registry:*) echo 'error: Creating importer: failed to invoke method OpenImage: pinging container registry: dial tcp: connect: connection refused' >&2; exit 1 ;;
        esac ;;
    install | uninstall | override)
        into=; [ "$verb $1" != 'override remove' ] || into=removals
        [ "$verb $1" != 'override reset' ] || removals=
        case $verb in
            override) shift ;;
            install) while [ $# -gt 0 ] && [ "$1" != --uninstall ]; do [ -e /stub/forgets ] || packages="$packages $1"; shift; done ;;
            uninstall) for word in "$@"; do set -- "$@" --uninstall "$word"; shift; done ;;
        esac
        while [ $# -gt 0 ]; do
            case $1 in
                --install) [ -e /stub/forgets ] || packages="$packages $2"; shift ;;
                --uninstall) kept=; for word in $packages; do [ "$word" = "$2" ] || kept="$kept $word"; done; packages=$kept; shift ;;
                *) [ "$into" != removals ] || removals="$removals $1" ;;
            esac
            shift
        done
        stage ;;
    *) echo "error: Unknown command '$verb'" >&2; exit 1 ;;
esac
if [ -n "$hangs" ]; then case $all in $hangs*) echo waiting >now; read -r word <never ;; esac; fi
"#;

/// Checksum of what the stub of bootc stages.
pub const STAGED: &str = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed";

/// STUB of bootc: what is booted, staged and left for a rollback is a file each with checksum, image, transport, and
/// `yes` where the system is layered, and a serial other than 0. `fails` holds the first word of a command that fails, `changes-nothing` makes a
/// switch stage nothing, and `no-storage` a rollback fail after it, as captured. What is staged gets the file of ostree that lies prepared.
pub const BOOTC: &str = r#"
cd /stub
entry() {
    [ -e "$1" ] || { printf null; return; }
    read -r sum image transport layered serial <"$1"
    own="{\"image\": {\"image\": \"$image\", \"transport\": \"$transport\"}, \"imageDigest\": \"sha256:${image##*:}\", \"architecture\": \"amd64\", \"timestamp\": \"2026-05-01T00:00:00Z\", \"version\": \"9.8\"}"
    is=false; [ "$layered" != yes ] || { is=true; own=null; }
    lock=false; [ "$1" != bootc-staged ] || [ ! -e bootc-locked ] || lock=true
    printf '{"cachedUpdate": null, "composefs": null, "softRebootCapable": false, "store": "ostreeContainer", "image": %s, "incompatible": %s, "pinned": false, "downloadOnly": %s, "ostree": {"stateroot": "rhcos", "checksum": "%s", "deploySerial": %s}}' "$own" "$is" "$lock" "$sum" "${serial:-0}"
}
case $* in
    "status --json --format-version 1")
        printf '{"apiVersion": "org.containers.bootc/v1", "kind": "BootcHost", "metadata": {"name": "host"}, "spec": {"image": null, "bootOrder": "default"}, "status": {"readOnly": false, "type": "bootcHost", "usrOverlay": null, "staged": '
        entry bootc-staged; printf ', "booted": '; entry bootc-booted; printf ', "rollback": '; entry bootc-rollback
        queued=false; [ ! -e bootc-queued ] || queued=true
        printf ', "rollbackQueued": %s}}\n' "$queued"; exit ;;
esac
echo "bootc $*" >>log
read -r fails <fails
[ -z "$fails" ] || case $* in $fails*) echo 'error: Switching: Switching (ostree): Preparing import: Fetching manifest: failed to invoke method OpenImage: pinging container registry: dial tcp: connect: connection refused' >&2; exit 1 ;; esac
case $* in
    "switch --transport "*)
        if [ -e changes-nothing ]; then echo 'Image specification is unchanged.'; exit; fi
        sum=5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed
        echo "$sum $4 $3 no" >bootc-staged
        cat staged-file >/run/ostree/staged-deployment
        case $3 in registry) scheme=ostree-unverified-registry ;; *) scheme=ostree-unverified-image:$3 ;; esac
        printf '[origin]\ncontainer-image-reference=%s:%s\n' "$scheme" "$4" >/sysroot/ostree/deploy/rhcos/deploy/$sum.0.origin
        echo "Queued for next boot: $4" ;;
    rollback)
        rm -f bootc-staged /run/ostree/staged-deployment
        if [ -e bootc-queued ]; then rm -f bootc-queued; else echo >bootc-queued; fi
        [ ! -e no-storage ] || { echo 'error: Rollback: Rollback (ostree): Updating storage root mtime: update_timestamps: No such file or directory (os error 2)' >&2; exit 1; } ;;
    *) echo "error: unrecognized subcommand '$1'" >&2; exit 2 ;;
esac
"#;

/// STUB of ostree on such a node: places of the deployments, pins, the staged one that is removed, and a commit that is
/// staged with the arguments of the boot entry that runs, as captured of `ostree admin deploy`. `old-ostree` makes it one without
/// some options; `fails` as in the stub of bootc, `kills` ends the caller before anything is staged. The serial of what is staged is one more than that of an equal commit.
const OSTREE_OF_BOOTC: &str = r#"
cd /stub
line() { [ ! -e "$1" ] || { read -r sum image transport layered serial <"$1"; printf '%s rhcos %s.%s%s\n    origin: <unknown origin type>\n' "$2" "$sum" "${serial:-0}" "$3"; }; }
number() { printf "\\$(printf %03o $(($1 % 256)))"; [ "$2" = 1 ] || printf "\\$(printf %03o $(($1 / 256)))"; }
nuls() { left=$1; while [ $left -gt 0 ]; do printf '\000'; left=$((left - 1)); done; }
# The file of ostree, a dictionary of GVariant: the name, and the arguments if there are any.
staged_file() {
    name=$1; shift
    size=0; for word in "$@"; do size=$((size + ${#word} + 1)); done
    wide=1; [ $((size + $#)) -le 255 ] || wide=2
    entry=$((8 + size + $# * wide + 3)); far=1; [ $entry -lt 255 ] || far=2
    entry=$((entry + far)); whole=$((120 + entry)); last=1; [ $((whole + 2)) -le 255 ] || last=2
    printf 'target\000\000name\000\000\000\000%s\000\000s' "$name"; number 5 1; nuls 2
    printf 'osname\000\000rhcos\000\000s'; number 7 1; number 78 1; number 97 1
    printf '\000a{sv}'; number 7 1
    [ $# -gt 0 ] || { number 114 1; return; }
    nuls 6; printf 'kargs\000\000\000'
    end=0; for word in "$@"; do printf '%s\000' "$word"; done
    for word in "$@"; do end=$((end + ${#word} + 1)); number $end $wide; done
    printf '\000as'; number 6 $far
    number 114 $last; number $whole $last
}
if [ "$*" = 'admin deploy --help' ]; then
    printf 'Usage:\n  ostree admin deploy [OPTION…] REFSPEC\n  --os=OSNAME\n  --origin-file=FILENAME\n  --stage  Complete deployment at OS shutdown\n  --karg-append=NAME=VALUE\n'
    [ -e old-ostree ] || printf '  --karg-delete=NAME=VALUE\n'
    exit
fi
if [ "$*" = 'admin status' ]; then
    line bootc-staged ' ' ' (staged)'
    [ ! -e bootc-queued ] || line bootc-rollback ' ' ''
    line bootc-booted '*' ''
    [ -e bootc-queued ] || line bootc-rollback ' ' ''
    exit
fi
echo "ostree $*" >>log
read -r fails <fails
[ -z "$fails" ] || case $* in $fails*) echo 'error: Writing deployment: No space left on device' >&2; exit 1 ;; esac
case $* in 'admin deploy --stage '*)
    [ ! -e kills ] || { rm -f kills; kill -9 $PPID; exit 1; }
    origin=; added=; away=; changed=
    for word in "$@"; do
        case $word in
            --origin-file=*) origin=${word#*=} ;;
            --karg-append=*) added="$added ${word#*=}"; changed=yes ;;
            --karg-delete=*) away="$away ${word#*=}"; changed=yes ;;
        esac
        commit=$word
    done
    [ -e "$origin" ] || { echo "error: No such file or directory" >&2; exit 1; }
    reference=; while read -r key; do case $key in container-image-reference=*) reference=${key#*=} ;; esac; done <"$origin"
    while read -r key rest; do [ "$key" != options ] || kargs=$rest; done </boot/loader/entries/ostree-1.conf
    kargs="$kargs$added"
    for gone in $away; do
        found=; kept=
        for one in $kargs; do if [ -z "$found" ] && [ "$one" = "$gone" ]; then found=yes; else kept="$kept${kept:+ }$one"; fi; done
        [ -n "$found" ] || { echo "error: No key '${gone%%=*}' found" >&2; exit 1; }
        kargs=$kept
    done
    new=0
    for one in bootc-staged bootc-booted bootc-rollback; do
        [ -e $one ] || continue
        read -r sum image transport layered serial <$one
        [ "$sum" != "$commit" ] || [ $((${serial:-0} + 1)) -le $new ] || new=$((${serial:-0} + 1))
    done
    case $reference in
        ostree-unverified-registry:*) transport=registry; image=${reference#*:} ;;
        *) image=${reference#*:}; transport=${image%%:*}; image=${image#*:} ;;
    esac
    printf '[origin]\ncontainer-image-reference=%s\n' "$reference" >/sysroot/ostree/deploy/rhcos/deploy/$commit.$new.origin
    echo "$commit $image $transport no $new" >bootc-staged
    rm -f bootc-locked
    [ -n "$changed" ] || kargs=
    staged_file "$commit.$new" $kargs >/run/ostree/staged-deployment ;;
esac
case $* in
    'admin undeploy 0') rm -f bootc-staged bootc-locked /run/ostree/staged-deployment /run/ostree/nextroot-booted ;;
    'admin set-default 1') if [ -e bootc-queued ]; then rm -f bootc-queued; else echo >bootc-queued; fi ;;
esac
"#;

/// The bytes of `/run/ostree/staged-deployment` as ostree writes them: a dictionary of GVariant.
pub fn staged_file(name: &str, locked: bool, arguments: &[&str]) -> Vec<u8> {
    fn text(value: &str) -> Vec<u8> {
        [value.as_bytes(), b"\0"].concat()
    }
    fn entry(key: &str, value: &[u8], kind: &str) -> Vec<u8> {
        let mut bytes = text(key);
        let end = bytes.len();
        bytes.resize(end.next_multiple_of(8), 0);
        bytes.extend(value);
        bytes.push(0);
        bytes.extend(kind.as_bytes());
        let width = if bytes.len() < 0xff { 1 } else { 2 };
        bytes.extend(&end.to_le_bytes()[..width]);
        bytes
    }
    fn array(all: &[Vec<u8>], alignment: usize) -> Vec<u8> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for one in all {
            bytes.resize(usize::next_multiple_of(bytes.len(), alignment), 0);
            bytes.extend(one);
            ends.push(bytes.len());
        }
        let width = if bytes.len() + ends.len() <= 0xff {
            1
        } else {
            2
        };
        ends.iter()
            .for_each(|end| bytes.extend(&end.to_le_bytes()[..width]));
        bytes
    }
    let names = [
        entry("name", &text(name), "s"),
        entry("osname", &text("rhcos"), "s"),
    ];
    let words: Vec<Vec<u8>> = arguments.iter().map(|word| text(word)).collect();
    let mut all = vec![
        entry("target", &array(&names, 8), "a{sv}"),
        entry("kargs", &array(&words, 1), "as"),
    ];
    if locked {
        all.push(entry("locked", &[1], "b"));
    }
    array(&all, 8)
}

/// The thread whose node runs programs now, and how often it took its turn. A node sees the processes of the machine:
/// the rpm-ostree of another test would be an update at work to it.
static TURN: (Mutex<Option<(ThreadId, usize)>>, Condvar) = (Mutex::new(None), Condvar::new());

/// While it lives, no node of another thread runs a program.
pub struct Turn;

impl Turn {
    /// Waits until no node of another thread runs a program.
    pub fn take() -> Self {
        let own = thread::current().id();
        let mut owner = TURN.0.lock().unwrap();
        while owner.is_some_and(|(thread, _)| thread != own) {
            owner = TURN.1.wait(owner).unwrap();
        }
        let times = owner.map_or(0, |(_, times)| times);
        *owner = Some((own, times + 1));
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut owner = TURN.0.lock().unwrap();
        *owner = owner.and_then(|(thread, times)| (times > 1).then_some((thread, times - 1)));
        TURN.1.notify_all();
    }
}

/// The node; `with_mounts` has to be around it.
pub struct OstreeNode {
    /// Its root.
    pub root: TestRoot,
    /// Kept from the first started program on: its end is the test's matter.
    turns: RefCell<Vec<Turn>>,
}

impl Drop for OstreeNode {
    fn drop(&mut self) {
        // Lazily, which always works: nothing of the kernel's may be met when the root is removed.
        for _ in 0..2 {
            let mut command = Command::new("umount");
            // All that is mounted below goes with it, even where something else is mounted over that.
            let command = command.arg("--lazy").arg(self.root.path("proc"));
            let _ = command.stderr(Stdio::null()).status();
        }
        if fs::read_dir(self.root.path("proc"))
            .unwrap()
            .next()
            .is_some()
        {
            std::process::abort();
        }
    }
}

/// Returns a config with this image and one file, `/etc/service.conf` with this text.
pub fn service_config(name: &str, image: &str, text: &str) -> Value {
    let ignition = json!({"storage": {"files": [file("/etc/service.conf", 0o644, text)]}});
    let mut config = machine_config(name, ignition);
    config["spec"]["osImageURL"] = json!(image);
    config
}

impl OstreeNode {
    /// An idle node of RHEL CoreOS that runs [`IMAGE`].
    pub fn new() -> Self {
        let root = TestRoot::new();
        for program in ["/bin/sh", "/bin/rm"] {
            copy_program(&root, program);
        }
        for dir in ["proc", "dev", "usr/sbin", "run", "stub", "etc/yum.repos.d"] {
            fs::create_dir_all(root.path(dir)).unwrap();
        }
        null_device(&root);
        let proc = root.path("proc");
        mount(&["-t", "proc", "proc", proc.to_str().unwrap()]);
        root.write("cmdline", "rw ostree=/ostree/boot.1/rhcos/0/0\n");
        let (line, shown) = (root.path("cmdline"), root.path("proc/cmdline"));
        mount(&["--bind", line.to_str().unwrap(), shown.to_str().unwrap()]);
        // The kernel's name is that of the machine which tests.
        root.write("kernel-hostname", "worker-0\n");
        let name = root.path("kernel-hostname");
        let shown = root.path("proc/sys/kernel/hostname");
        mount(&["--bind", name.to_str().unwrap(), shown.to_str().unwrap()]);
        let node = Self {
            root,
            turns: RefCell::default(),
        };
        node.root.write(
            "etc/os-release",
            "ID=rhcos\nVARIANT_ID=coreos\nVERSION_ID=9.6\n",
        );
        node.root.write(POLICY.0, POLICY.1);
        node.boots(BOOTED);
        node.runs(IMAGE, "", "");
        for file in ["fails", "hangs", "pinned", "log"] {
            node.root.write(
                &format!("stub/{file}"),
                if file == "log" { "" } else { "\n" },
            );
        }
        node.root.write("stub/kargs", "rw\n");
        install_program(&node.root.path("usr/mco-rescue"));
        node.program("rpm-ostree", RPM_OSTREE);
        fs::create_dir_all(node.root.path("run/ostree")).unwrap();
        // STUB of ostree: what is pinned is a checksum in a file.
        node.program(
            "ostree",
            r#"echo "ostree $*" >>/stub/log
case $* in "admin pin --unpin "*) echo >/stub/pinned ;; "admin pin 0") . /stub/booted; echo "$checksum" >/stub/pinned ;;
    "admin set-default "*) [ ! -e /stub/queued ] || : >/stub/queued ;; esac"#,
        );
        node.program(
            "systemctl",
            r#"case $* in daemon-reload | try-restart* | *reboot) echo "systemctl $*" >>/stub/log ;; *) exit 1 ;; esac"#,
        );
        node
    }

    /// The same with bootc in the place of rpm-ostree, which is missing. There is no real bootc in any test.
    pub fn of_bootc() -> Self {
        let node = Self::new();
        copy_program(&node.root, "/bin/cat");
        node.root.remove("usr/sbin/rpm-ostree");
        node.program("bootc", BOOTC);
        node.program("ostree", OSTREE_OF_BOOTC);
        // STUB of systemd-run: what follows `--` is run at once, and its output goes to the journal.
        node.program(
            "systemd-run",
            r#"while [ "$1" != -- ]; do shift; done; shift; exec "$@" >/stub/unit-log 2>&1"#,
        );
        // STUB of journalctl, which has that alone.
        node.program(
            "journalctl",
            r#"case $* in --sync) ;; *_SYSTEMD_UNIT=mco-rescue-bootc.service) cat /stub/unit-log ;; *) exit 1 ;; esac"#,
        );
        node.root.write(
            "stub/bootc-booted",
            &format!("{BOOTED} {IMAGE} registry no\n"),
        );
        node.command_line("rw");
        let file = staged_file(&format!("{STAGED}.0"), false, &["rw"]);
        fs::write(node.root.path("stub/staged-file"), file).unwrap();
        node
    }

    /// As somebody else leaves it: an image is staged, by this engine, and locked or not.
    pub fn is_staged_by_others(&self, bootc: bool, image: &str, locked: bool) {
        // The serial that each stub gives what it stages.
        let name = format!("{STAGED}.{}", if bootc { 0 } else { 1 });
        let file = staged_file(&name, locked, &["rw"]);
        fs::write(self.root.path("run/ostree/staged-deployment"), file).unwrap();
        let reference = format!("ostree-unverified-registry:{image}");
        let origin = format!("sysroot/ostree/deploy/rhcos/deploy/{name}.origin");
        let text = format!("[origin]\ncontainer-image-reference={reference}\n");
        self.root.write(&origin, &text);
        if bootc {
            let line = format!("{STAGED} {image} registry no\n");
            self.root.write("stub/bootc-staged", &line);
            if locked {
                self.root.write("stub/bootc-locked", "\n");
            }
        } else {
            let text = format!("image={reference}\npackages=\"\"\nremovals=\"\"\n");
            self.root.write("stub/staged", &text);
        }
    }

    /// As after a clean reboot into what is staged, with either engine.
    pub fn reboots_into_staged(&self, bootc: bool, image: &str) {
        if bootc {
            let before = self.root.read("stub/bootc-booted");
            self.root.write("stub/bootc-rollback", &before);
            self.keeps(&before);
            self.root.write(
                "stub/bootc-booted",
                &format!("{ARRIVED} {image} registry no\n"),
            );
        }
        self.reboots_into(image);
        for file in [
            "stub/bootc-staged",
            "stub/bootc-locked",
            "run/ostree/staged-deployment",
            "run/ostree/nextroot-booted",
        ] {
            if self.root.exists(file) {
                self.root.remove(file);
            }
        }
    }

    /// Keeps the directory of a deployment, which no longer runs.
    fn keeps(&self, line: &str) {
        self.deployment_directory(line.split(' ').next().unwrap());
    }

    /// Sets the arguments of this boot: its command line, and the boot entry, which has a variable of the boot loader.
    pub fn command_line(&self, arguments: &str) {
        let link = "ostree=/ostree/boot.1/rhcos/0/0";
        self.root.write("cmdline", &format!("{arguments} {link}\n"));
        let entry = format!(
            "title Node (ostree:0)\nversion 1\noptions {arguments} $ignition_firstboot {link}\n\
             linux /ostree/rhcos-0/vmlinuz\n"
        );
        self.root.write("boot/loader/entries/ostree-1.conf", &entry);
    }

    /// As after a reboot into the rollback of bootc, from [`ARRIVED`] to [`BOOTED`].
    pub fn boots_back(&self) {
        let (booted, back) = ("stub/bootc-booted", "stub/bootc-rollback");
        let (one, other) = (self.root.read(booted), self.root.read(back));
        self.keeps(&one);
        self.root.write(booted, &other);
        self.root.write(back, &one);
        if self.root.exists("stub/bootc-queued") {
            self.root.remove("stub/bootc-queued");
        }
        self.boots(BOOTED);
    }

    /// Makes the kernel's `ostree=` lead to a deployment.
    fn boots(&self, checksum: &str) {
        let link = self.root.path(LINK);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&link);
        let target = format!("../../../deploy/rhcos/deploy/{checksum}.0");
        std::os::unix::fs::symlink(target, link).unwrap();
    }

    /// As after a swap of boot entries: the directory that the kernel's `ostree=` leads through has got another name.
    /// The root is the directory of what runs, as after a boot.
    pub fn swaps_boot_entries(&self) {
        let deployment = self.deployment_directory(BOOTED);
        let (root, there) = (self.root.dir(), deployment.to_str().unwrap());
        mount(&["--bind", root.to_str().unwrap(), there]);
        let boot = self.root.path("sysroot/ostree");
        fs::rename(boot.join("boot.1"), boot.join("boot.0")).unwrap();
    }

    /// The same where the root is an overlay that was made of that directory.
    pub fn swaps_boot_entries_under_an_overlay(&self) {
        let booted = self.backing_of(BOOTED);
        fs::write(self.root.path("run/ostree-booted"), booted).unwrap();
        let boot = self.root.path("sysroot/ostree");
        fs::rename(boot.join("boot.1"), boot.join("boot.0")).unwrap();
    }

    /// The marker of a soft reboot into a deployment, as `ostree admin prepare-soft-reboot` leaves it.
    pub fn has_soft_reboot_marker(&self, checksum: &str) {
        let marker = self.backing_of(checksum);
        fs::write(self.root.path("run/ostree/nextroot-booted"), marker).unwrap();
    }

    /// The dictionary by which ostree names the directory of a deployment.
    fn backing_of(&self, checksum: &str) -> Vec<u8> {
        let meta = fs::metadata(self.deployment_directory(checksum)).unwrap();
        let mut bytes = b"backing-root-device-inode\0\0\0\0\0\0\0".to_vec();
        bytes.extend(meta.dev().to_ne_bytes());
        bytes.extend(meta.ino().to_ne_bytes());
        bytes.extend(b"\0(tt)\x1a");
        bytes
    }

    fn deployment_directory(&self, checksum: &str) -> PathBuf {
        let path = format!("sysroot/ostree/deploy/rhcos/deploy/{checksum}.0");
        let path = self.root.path(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Sets what is booted.
    pub fn runs(&self, image: &str, packages: &str, removals: &str) {
        let text = format!(
            "checksum={BOOTED}\nimage=ostree-unverified-registry:{image}\npackages=\"{packages}\"\nremovals=\"{removals}\"\n"
        );
        self.root.write("stub/booted", &text);
        let origin = format!("sysroot/ostree/deploy/rhcos/deploy/{BOOTED}.0.origin");
        let text =
            format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{image}\n");
        self.root.write(&origin, &text);
    }

    /// As after a reboot into what was staged: another deployment runs, and the one from before is still there.
    pub fn reboots_into(&self, image: &str) {
        let before = self.root.read("stub/booted");
        self.root.write("stub/previous", &before);
        self.root.write(
            "stub/booted",
            &before.replace(BOOTED, ARRIVED).replace(IMAGE, image),
        );
        for file in ["stub/staged", "stub/kargs-before"] {
            if self.root.exists(file) {
                self.root.remove(file);
            }
        }
        self.boots(ARRIVED);
        let origin = format!("sysroot/ostree/deploy/rhcos/deploy/{ARRIVED}.0.origin");
        let text =
            format!("[origin]\ncontainer-image-reference=ostree-unverified-registry:{image}\n");
        self.root.write(&origin, &text);
    }

    /// Dates what is awaited to another boot: this machine is not booted for a test.
    pub fn awaits_since_the_boot_before(&self) {
        let mut awaited = unsealed(&self.root.read(AWAITED));
        awaited["boot"] = json!(OTHER_BOOT);
        self.root.write(AWAITED, &awaited.to_string());
    }

    /// A program of the node.
    pub fn program(&self, name: &str, script: &str) {
        self.root.write("script", &format!("#!/bin/sh\n{script}\n"));
        install(
            &self.root.path("script"),
            &self.root.path(&format!("usr/sbin/{name}")),
        );
    }

    /// The calls that would change something, and what they saw.
    pub fn calls(&self) -> Vec<String> {
        self.root
            .read("stub/log")
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command
            .arg(self.root.dir())
            .arg("/usr/mco-rescue")
            .args(args);
        command.stdin(Stdio::null());
        command
    }

    /// Runs the program on it.
    pub fn run(&self, args: &[&str]) -> Run {
        let _turn = Turn::take();
        let output = self.command(args).output().unwrap();
        commands::check(&output, commands::root_of(args));
        commands::check_engine(&output, self.root.dir());
        Run::of(output)
    }

    /// Runs the program on it with this standard input.
    pub fn run_with(&self, args: &[&str], input: Stdio) -> Run {
        let _turn = Turn::take();
        let output = self.command(args).stdin(input).output().unwrap();
        commands::check(&output, commands::root_of(args));
        commands::check_engine(&output, self.root.dir());
        Run::of(output)
    }

    /// Starts the program on it.
    pub fn start(&self, args: &[&str]) -> Child {
        self.turns.borrow_mut().push(Turn::take());
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}
