//! All sequences of up to three (`SEQUENCES=4`: four) of what can happen to a node whose operating system changes: three configs, an image
//! alone, the way back, a staging that is dropped, boots and power cuts. The program itself runs on every state that they
//! lead to; rpm-ostree and ostree are stand-ins with real lists of deployments, which behave as the captures say.
//!
//! After each sequence operating system, kernel arguments, files and record are of one config; or `status` names what
//! is not, and each command that it prints, followed to its end, leads to where they are.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::mounts::{mount, with_mounts};
use crate::support::ostree_node::OstreeNode;
use crate::support::{self, RECORD, Run, STATE, file, flat_run, machine_config, say};
use serde_json::{Value, json};

/// STAND-IN for rpm-ostree and `ostree admin`: a list of deployments in the order of the boot menu, a line each.
const DEPLOYMENTS: &str = r#"
cd /stub
each() { while IFS='|' read -r sum ser st bo pi im ar; do "$@"; done <d; }
line() { printf '%s|%s|%s|%s|%s|%s|%s\n' "$sum" "$ser" "$st" "$bo" "$pi" "$im" "$ar"; }
first() { IFS='|' read -r sum ser st bo pi im ar <d; }
written() { [ "$st" = true ] || line; }
put() { cat new >d; rm -f new; }
json() {
    printf '%s{"checksum": "%s", "serial": %s, "osname": "rhcos", "staged": %s, "booted": %s, "pinned": %s, "container-image-reference": "ostree-unverified-registry:%s", "requested-packages": [], "requested-base-removals": []}' \
        "$sep" "$sum" "$ser" "$st" "$bo" "$pi" "$im"
    sep=', '
}
serial() { [ "$sum" != "$wanted" ] || [ "$st" = true ] || [ "$ser" -lt "$free" ] || free=$((ser + 1)); }
stage() {
    image=$im arguments=$ar wanted=${im##*:} free=0
    each serial
    sum=$wanted ser=$free st=true bo=false pi=false im=$image ar=$arguments
    { line; each written; } >new
    put
}
front() { [ "$at" != "$number" ] || line; at=$((at + 1)); }
others() { [ "$at" = "$number" ] || line; at=$((at + 1)); }
enter() { number=$1; { at=0; each front; at=0; each others; } >new; put; }
dropped() { [ "$at" = "$number" ] || line; at=$((at + 1)); }
pinned() { [ "$at" != "$number" ] || pi=$to; line; at=$((at + 1)); }
place() { [ "$bo" != true ] || booted=$at; at=$((at + 1)); }
pending() { [ "$bo" != true ] || past=yes; [ "$pi" = false ] && [ -z "$past" ] || line; }
fail() { echo "error: $*" >&2; exit 1; }
case $0 in *rpm-ostree) ;; *)
    echo "ostree $*" >>log
    case $* in
        "admin pin --unpin "*) number=$4 to=false at=0; each pinned >new; put ;;
        "admin pin "*) number=$3 to=true at=0; each pinned >new; put ;;
        "admin undeploy "*) number=$3 at=0; each dropped >new; put ;;
        "admin set-default "*) first; [ "$st" = false ] || fail 'staged'; enter "$3" ;;
        *) fail "unknown: $*" ;;
    esac
    exit ;;
esac
case $* in
    "status --json") sep=; printf '{"deployments": ['; each json; printf '], "transaction": null}\n'; exit ;;
    status) echo 'State: idle'; exit ;;
    --version) printf "rpm-ostree:\n Version: '2025.6'\n Features:\n  - container\n"; exit ;;
    kargs) first; echo "$ar"; exit ;;
esac
echo "rpm-ostree $*" >>log
first
if [ -e fails ]; then
    read -r fails <fails
    case "$*" in "$fails"*) [ -z "$fails" ] || fail "No space left on device" ;; esac
fi
if [ -e waits ]; then echo waiting >now; read -r word <waits; fi
verb=$1; shift
case $verb in
    cancel) ;;
    cleanup) past=; each pending >new; put ;;
    rebase)
        named=
        for word in "$@"; do
            case $word in
                --custom-origin-url=*) named=${word#*pivot://} ;;
                -*) ;;
                *) to=${word#ostree-unverified-registry:} ;;
            esac
        done
        to=${named:-$to}
        [ "$to" != "$im" ] || fail "Old and new refs are equal: $to"
        im=$to; stage
        [ ! -e kills ] || kill -KILL "$PPID" ;;
    kargs)
        for word in "$@"; do
            key=${word#*=} kept=
            case $word in
                --delete*) for one in $ar; do
                    if [ "$one" = "$key" ]; then key=; else kept="$kept${kept:+ }$one"; fi
                done; ar=$kept ;;
                --append-if-missing=*) case " $ar " in *" $key "*) ;; *) ar="$ar $key" ;; esac ;;
                --append=*) ar="$ar $key" ;;
                *) fail "unknown: $word" ;;
            esac
        done
        stage ;;
    rollback)
        [ "$st" = false ] || fail 'Staged deployment (remove with cleanup -p)'
        booted= at=0; each place
        if [ "$booted" != 0 ]; then enter "$booted"; else
            [ "$at" -gt 1 ] || fail 'No rollback deployment found'
            enter 1
        fi ;;
    *) fail "Unknown command '$verb'" ;;
esac
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Apply(char),
    /// Of C; killed when the image is staged: rpm-ostreed goes on without it.
    Killed,
    Pivot,
    /// To the image of A.
    PivotBack,
    Rollback,
    Drop,
    RebootOld,
    RebootNew,
    PowerCut,
    /// Another program stages C.
    ForeignRebase,
    /// Another program takes the first kernel argument of the config away.
    ForeignArguments,
    /// Another program swaps the first two boot entries.
    ForeignRollback,
}

/// What other programs do.
const FOREIGN: [Act; 3] = [
    Act::ForeignRebase,
    Act::ForeignArguments,
    Act::ForeignRollback,
];

const ACTS: [Act; 10] = [
    Act::Apply('a'),
    Act::Apply('b'),
    Act::Apply('c'),
    Act::Killed,
    Act::Pivot,
    Act::Rollback,
    Act::Drop,
    Act::RebootOld,
    Act::RebootNew,
    Act::PowerCut,
];

pub(super) fn image(letter: char) -> String {
    format!("quay.example/os@sha256:{}", letter.to_string().repeat(64))
}

fn arguments(letter: char) -> &'static [&'static str] {
    match letter {
        'a' => &["audit=0"],
        'b' => &["nosmt"],
        _ => &["site.is=c", "audit=1"],
    }
}

pub(super) fn config(letter: char) -> String {
    let text = format!("{letter}\n");
    let ignition = json!({"storage": {"files": [file("/etc/service.conf", 0o644, &text)]}});
    let mut config = machine_config(&format!("rendered-worker-{letter}"), ignition);
    config["spec"]["osImageURL"] = json!(image(letter));
    config["spec"]["kernelArguments"] = json!(arguments(letter));
    config.to_string()
}

/// A deployment of the stand-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    name: String,
    staged: bool,
    pub(super) booted: bool,
    pinned: bool,
    pub(super) image: String,
    pub(super) arguments: String,
}

impl Line {
    fn read(line: &str) -> Self {
        let words: Vec<&str> = line.split('|').collect();
        Self {
            name: format!("{}|{}", words[0], words[1]),
            staged: words[2] == "true",
            booted: words[3] == "true",
            pinned: words[4] == "true",
            image: words[5].to_owned(),
            arguments: words[6].to_owned(),
        }
    }

    fn text(&self) -> String {
        let Self {
            name,
            staged,
            booted,
            pinned,
            image,
            arguments,
        } = self;
        format!("{name}|{staged}|{booted}|{pinned}|{image}|{arguments}\n")
    }
}

/// The files of a state, its boot, and its command line.
pub(super) struct Kept {
    files: tempfile::NamedTempFile,
    boot: String,
    line: String,
}

pub(super) struct Node {
    pub(super) node: OstreeNode,
    boots: u32,
    runs: u32,
    /// States from which each printed command leads to a whole node.
    led_out: HashSet<String>,
}

impl Node {
    /// In config A, whose deployment runs; no run can be taken back.
    pub(super) fn new() -> Self {
        let node = OstreeNode::new();
        support::copy_program(&node.root, "/bin/cat");
        node.program("rpm-ostree", DEPLOYMENTS);
        node.program("ostree", DEPLOYMENTS);
        let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
        node.root.write("etc/containers/policy.json", policy);
        for letter in ['a', 'b', 'c'] {
            node.root.write(&letter.to_string(), &config(letter));
        }
        node.root.write("boot_id", "boot-0\n");
        let shown = node.root.path("proc/sys/kernel/random/boot_id");
        let source = node.root.path("boot_id");
        mount(&["--bind", source.to_str().unwrap(), shown.to_str().unwrap()]);
        let mut made = Self {
            node,
            boots: 0,
            runs: 0,
            led_out: HashSet::new(),
        };
        let first = format!(
            "{}|0|false|true|false|{}|rw audit=0\n",
            "a".repeat(64),
            image('a')
        );
        made.node.root.write("stub/d", &first);
        made.node.root.write("stub/by", "-");
        made.boot();
        made.run(&["apply", "--yes", "/a"]).ok();
        fs::remove_dir_all(made.node.root.path(&format!("{STATE}/history"))).unwrap();
        made
    }

    pub(super) fn run(&mut self, args: &[&str]) -> Run {
        self.runs += 1;
        self.node.run(args)
    }

    /// Again while a process of another test on this machine is taken for the daemon's.
    fn run_alone(&mut self, args: &[&str]) -> Run {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let run = self.run(args);
            if !run.out().contains("is running. An update") || Instant::now() > deadline {
                return run;
            }
        }
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.node
            .root
            .read("stub/d")
            .lines()
            .map(Line::read)
            .collect()
    }

    fn set_lines(&self, lines: &[Line]) {
        let text: Vec<String> = lines.iter().map(Line::text).collect();
        self.node.root.write("stub/d", &text.concat());
    }

    /// Boots the deployment that the list calls booted.
    fn boot(&mut self) {
        self.boots += 1;
        let booted = self.lines().into_iter().find(|line| line.booted).unwrap();
        let name = booted.name.replace('|', ".");
        let link = self.node.root.path("sysroot/ostree/boot.1/rhcos/0/0");
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(format!("../../../deploy/rhcos/deploy/{name}"), link).unwrap();
        let origin = format!(
            "[origin]\ncontainer-image-reference=ostree-unverified-registry:{}\n",
            booted.image
        );
        self.node.root.write(
            &format!("sysroot/ostree/deploy/rhcos/deploy/{name}.origin"),
            &origin,
        );
        self.set_boot(
            &format!("boot-{}\n", self.boots),
            &format!("{} ostree=/ostree/boot.1/rhcos/0/0\n", booted.arguments),
        );
    }

    fn set_boot(&self, boot: &str, line: &str) {
        self.node.root.write("boot_id", boot);
        self.node.root.write("cmdline", line);
    }

    /// Boots the deployment of this name, and what runs first at a boot.
    fn boots_into(&mut self, name: &str) -> Option<Run> {
        self.enters(name);
        let awaited = self.node.root.exists(&format!("{STATE}/awaited.json"));
        awaited.then(|| self.run(&["complete"]))
    }

    fn enters(&mut self, name: &str) {
        let mut lines = self.lines();
        for line in &mut lines {
            line.booted = line.name == name;
        }
        self.set_lines(&lines);
        self.boot();
    }

    /// Reboots into what is the default then, or into what ran, without what runs first at a boot.
    pub(super) fn boots_without_completing(&mut self, is_new: bool) {
        self.finalize();
        let lines = self.lines();
        let ran = lines.iter().find(|line| line.booted).unwrap();
        let name = if is_new { &lines[0].name } else { &ran.name };
        self.enters(&name.clone());
    }

    /// An orderly shutdown writes the staged deployment; it, the one that ran, and pinned ones stay.
    fn finalize(&self) {
        let mut lines = self.lines();
        if !lines[0].staged {
            return;
        }
        lines[0].staged = false;
        let name = lines[0].name.clone();
        lines.retain(|line| line.booted || line.pinned || line.name == name);
        self.set_lines(&lines);
    }

    /// Does it, and keeps who staged what is staged.
    pub(super) fn takes(&mut self, act: Act) -> Option<Run> {
        let before = self.lines();
        let run = self.does(act);
        self.notes_author(&before, FOREIGN.contains(&act));
        run
    }

    /// The staged deployment has an author: the last one who changed it. Who queues one leaves no trace.
    fn notes_author(&self, before: &[Line], foreign: bool) {
        let staged = |all: &[Line]| {
            let staged = all.iter().find(|line| line.staged);
            staged.map(|line| line.name.clone())
        };
        let author = match (staged(before), staged(&self.lines())) {
            (_, None) => "-",
            (was, is) if was == is => return,
            _ if foreign => "others",
            _ => "mco-rescue",
        };
        self.node.root.write("stub/by", author);
    }

    /// What the next boot enters, and by whom: as `status` has to say it.
    fn model(&self) -> (String, String, &'static str, String) {
        let first = self.lines().into_iter().next().unwrap();
        let name = first.name.replace('|', ".");
        let (way, by) = match (first.staged, first.booted) {
            (true, _) => ("staged", self.node.root.read("stub/by")),
            (_, true) => ("stays", "-".to_owned()),
            _ if self.awaited_name().as_ref() == Some(&name) => ("queued", "mco-rescue".to_owned()),
            _ => ("queued", "unknown".to_owned()),
        };
        (name, first.image, way, by)
    }

    /// The deployment that a run waits for: no more once a boot of it failed.
    fn awaited_name(&self) -> Option<String> {
        let path = self.node.root.path(&format!("{STATE}/awaited.json"));
        let awaited: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).unwrap();
        let is_over = !awaited["failed"].is_null();
        Some(awaited["staged"].as_str().filter(|_| !is_over)?.to_owned())
    }

    /// Names a difference between the model and `status`.
    fn lies(&mut self) -> Option<String> {
        let said = self.run(&["status", "--output", "json"]).ok().out();
        let said: Value = serde_json::from_str(&said).unwrap();
        let next = &said["next_boot"];
        let text = |key: &str| next[key].as_str().unwrap_or("-").to_owned();
        let (deployment, image, way, by) = self.model();
        let is = [text("deployment"), text("image"), text("way"), text("by")];
        let wanted = [deployment, image, way.to_owned(), by];
        // Who staged it leaves no more than its name, and a run that is cut off not even that.
        let is_staged = wanted[2] == "staged";
        let is_like_ours = is_staged && self.awaited_name().as_ref() == Some(&wanted[0]);
        let is_author = is[3] == wanted[3] || (is_staged && is[3] == "unknown") || is_like_ours;
        let is_wrong = is[..3] != wanted[..3] || !is_author;
        is_wrong.then(|| format!("status says of the next boot {is:?}, which is {wanted:?}"))
    }

    /// Runs a program of the node, as another program or an admin does.
    pub(super) fn foreign(&self, words: &[&str]) {
        let mut command = Command::new("chroot");
        let (program, args) = words.split_first().unwrap();
        command.arg(self.node.root.dir());
        command.arg(format!("/usr/sbin/{program}")).args(args);
        command.output().unwrap();
    }

    fn does(&mut self, act: Act) -> Option<Run> {
        let lines = self.lines();
        let booted = lines.iter().position(|line| line.booted).unwrap();
        match act {
            Act::Apply(letter) => {
                let path = format!("/{letter}");
                Some(self.run(&["apply", "--yes", "--takeover", &path]))
            }
            Act::Killed => {
                self.node.root.write("stub/kills", "");
                let run = self.run(&["apply", "--yes", "--takeover", "/c"]);
                self.node.root.remove("stub/kills");
                Some(run)
            }
            Act::Pivot => Some(self.run(&["pivot", "--yes", "--takeover", &image('c')])),
            Act::PivotBack => Some(self.run(&["pivot", "--yes", "--takeover", &image('a')])),
            Act::Rollback => Some(self.run(&["rollback", "--yes", "--takeover"])),
            Act::Drop => {
                let dropped: Vec<Line> = lines.into_iter().filter(|line| !line.staged).collect();
                self.set_lines(&dropped);
                None
            }
            // Where nothing waits, the second entry of the menu is chosen.
            Act::RebootOld => {
                self.finalize();
                let lines = self.lines();
                let old = if booted == 0 {
                    lines.get(1).unwrap_or(&lines[0])
                } else {
                    lines.iter().find(|line| line.booted).unwrap()
                };
                self.boots_into(&old.name.clone())
            }
            Act::RebootNew => {
                self.finalize();
                let first = self.lines()[0].name.clone();
                self.boots_into(&first)
            }
            Act::ForeignRebase => {
                let target = format!("ostree-unverified-registry:{}", image('c'));
                self.foreign(&["rpm-ostree", "rebase", &target]);
                None
            }
            Act::ForeignArguments => {
                let first = &lines[0].arguments;
                let word = first.split(' ').find(|word| *word != "rw");
                let gone = format!("--delete={}", word?);
                self.foreign(&["rpm-ostree", "kargs", &gone]);
                None
            }
            Act::ForeignRollback => {
                self.foreign(&["rpm-ostree", "rollback"]);
                None
            }
            Act::PowerCut => {
                self.does(Act::Drop);
                let first = self.lines()[0].name.clone();
                self.boots_into(&first)
            }
        }
    }

    fn history(&self) -> Vec<String> {
        let all = fs::read_dir(self.node.root.path(&format!("{STATE}/history")));
        let names = all
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Two nodes of one key behave alike: without times, and with runs by their place.
    pub(super) fn key(&self) -> String {
        let read = |name: &str| {
            let path = self.node.root.path(&format!("{STATE}/{name}"));
            fs::read_to_string(path).unwrap_or_default()
        };
        let ours = ["awaited.json", "os-runs.json", "asked.json", "pins.json"].map(read);
        let mut text = ours.concat();
        let history = self.history();
        for (place, id) in history.iter().enumerate() {
            text = text.replace(id.as_str(), &format!("run {place}"));
            let journal: Value = serde_json::from_str(&read(&format!("history/{id}/journal.json")))
                .unwrap_or_default();
            text += &format!("{}\n", journal["config"]["name"]);
        }
        let boot = self.node.root.read("boot_id");
        let of_time = |line: &&str| {
            ["\"since\"", "\"checksum\""]
                .iter()
                .any(|key| line.contains(key))
        };
        let kept = text.lines().filter(|line| !of_time(line));
        let text: Vec<&str> = kept.collect();
        let text = text
            .join("\n")
            .replace(&format!("\"{}\"", boot.trim()), "\"now\"");
        let older = regex_lite::Regex::new("\"boot-[0-9]+\"").unwrap();
        let gone = regex_lite::Regex::new("[0-9]{12,}-[0-9]+").unwrap();
        let text = gone
            .replace_all(&older.replace_all(&text, "\"then\""), "gone")
            .into_owned();
        format!(
            "{}{}{}{}{text}",
            self.node.root.read("stub/d"),
            self.node.root.read("stub/by"),
            self.node.root.read("etc/service.conf"),
            self.recorded()
        )
    }

    /// What a person sees of it: without the memory of what each deployment was asked for, and without the runs.
    pub(super) fn visible(&self) -> String {
        let path = self.node.root.path(&format!("{STATE}/awaited.json"));
        let awaited: Value = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap(),
            Err(_) => Value::Null,
        };
        let keys = ["way", "config", "staged", "image", "failed", "half"];
        let awaited = keys.map(|key| awaited[key].to_string());
        format!(
            "{}{}{}{awaited:?}",
            self.node.root.read("stub/d"),
            self.node.root.read("etc/service.conf"),
            self.recorded()
        )
    }

    pub(super) fn recorded(&self) -> String {
        let record: Value = serde_json::from_str(&self.node.root.read(RECORD)).unwrap();
        record["metadata"]["name"].as_str().unwrap().to_owned()
    }

    /// The one config that everything is of.
    pub(super) fn whole(&self) -> Option<char> {
        let letter = self
            .node
            .root
            .read("etc/service.conf")
            .chars()
            .next()
            .unwrap();
        let line = self.node.root.read("cmdline");
        let words = line
            .split_whitespace()
            .filter(|word| !word.starts_with("ostree="));
        let mut present: Vec<&str> = words.collect();
        let mut wanted = [&["rw"], arguments(letter)].concat();
        present.sort_unstable();
        wanted.sort_unstable();
        let booted = self.lines().into_iter().find(|line| line.booted).unwrap();
        let is = self.recorded() == format!("rendered-worker-{letter}")
            && booted.image == image(letter)
            && present == wanted;
        is.then_some(letter)
    }

    pub(super) fn keep(&self) -> Kept {
        let files = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let mut command = Command::new("tar");
        command
            .args(["--format=posix", "-cf"])
            .arg(files.path())
            .arg("-C")
            .arg(self.node.root.dir());
        assert!(
            command
                .args(["etc", "var", "stub", "sysroot"])
                .status()
                .unwrap()
                .success()
        );
        let [boot, line] = ["boot_id", "cmdline"].map(|name| self.node.root.read(name));
        Kept { files, boot, line }
    }

    pub(super) fn restore(&self, kept: &Kept) {
        for dir in ["etc", "var", "stub", "sysroot"] {
            fs::remove_dir_all(self.node.root.path(dir)).unwrap();
        }
        let mut command = Command::new("tar");
        command
            .arg("-xf")
            .arg(kept.files.path())
            .arg("-C")
            .arg(self.node.root.dir());
        assert!(command.status().unwrap().success());
        self.set_boot(&kept.boot, &kept.line);
    }

    /// The commands that `status` prints beside what is awaited, or half.
    fn next(&mut self) -> (String, Vec<String>) {
        let said = self.run(&["status"]).ok().out();
        let own: Vec<&str> = said
            .lines()
            .skip_while(|line| !line.starts_with("Boot into") && !line.starts_with("Mismatch"))
            .take_while(|line| !line.starts_with("Recorded"))
            .collect();
        let text = own
            .join(" ")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let next = text
            .split("Next: ")
            .nth(1)
            .map(|next| next.split(" or: ").map(without_comment).collect());
        let mut next: Vec<String> = next.unwrap_or_default();
        let flat: Vec<&str> = said.split_whitespace().collect();
        if let Some((_, rest)) = flat.join(" ").split_once("; keep the running system: ") {
            let stay: Vec<&str> = rest.split(' ').take_while(|word| !is_label(word)).collect();
            next.extend([stay.join(" "), "systemctl reboot".to_owned()]);
        }
        (said, next)
    }

    /// Follows what `status` prints, each of its ways, until the node is whole; else what was met. `path` holds the
    /// states on the way here: a way that comes back to one of them never ends.
    pub(super) fn follow(&mut self, path: &mut Vec<String>) -> Result<(), String> {
        let key = self.key();
        if self.led_out.contains(&key) {
            return Ok(());
        }
        let (said, next) = self.next();
        if path.contains(&key) {
            return Err(format!("no end:\n{said}"));
        }
        if next.is_empty() && self.whole().is_none() {
            return Err(format!("a half that is not named:\n{said}"));
        }
        let kept = self.keep();
        path.push(key.clone());
        for command in next {
            self.restore(&kept);
            let run = self
                .obey(&command)
                .map_err(|error| format!("{error}\nafter {said}"))?;
            let words = run.map(|run| run.out() + &run.err()).unwrap_or_default();
            let led = self.follow(path);
            led.map_err(|error| format!("{command}:\n{words}\n{error}"))?;
        }
        path.pop();
        self.led_out.insert(key);
        Ok(())
    }

    /// Runs a command as it was printed.
    fn obey(&mut self, command: &str) -> Result<Option<Run>, String> {
        let words: Vec<&str> = command.split(' ').collect();
        match words.as_slice() {
            ["systemctl", "reboot"] => Ok(self.takes(Act::RebootNew)),
            ["rpm-ostree" | "ostree", ..] => {
                let before = self.lines();
                self.foreign(&words);
                self.notes_author(&before, true);
                Ok(None)
            }
            ["mco-rescue", "complete"] => Ok(Some(self.run(&["complete"]))),
            ["mco-rescue", rest @ ..] => {
                let before = self.lines();
                let run = self.run_alone(&[rest, &["--yes"]].concat());
                self.notes_author(&before, false);
                match run.code() {
                    0 => Ok(Some(run)),
                    code => Err(format!("{command}: {code} {}{}", run.out(), run.err())),
                }
            }
            _ => Err(format!("{command:?} is not a command")),
        }
    }
}

/// Returns a printed command without the words behind it.
fn without_comment(command: &str) -> String {
    let command = command.split(" # ").next();
    command.unwrap_or_default().to_owned()
}

/// True for the labels of `status` that come after what is staged or queued.
fn is_label(word: &str) -> bool {
    ["Boot", "Mismatch", "Recorded", "Queued", "Trial"].contains(&word)
}

/// Every state that sequences of this length lead to, each judged once: their number, and what was wrong.
fn explore(node: &mut Node, longest: usize, all: &[Act]) -> (usize, Vec<String>) {
    let mut met = HashSet::from([node.key()]);
    let mut wrong = Vec::new();
    let mut layer = vec![(Vec::new(), node.keep())];
    for _ in 0..longest {
        let mut next = Vec::new();
        for (acts, kept) in &layer {
            for act in all {
                node.restore(kept);
                let run = node.takes(*act);
                if !met.insert(node.key()) {
                    continue;
                }
                let acts: Vec<Act> = [acts.as_slice(), &[*act]].concat();
                let kept = node.keep();
                let words = run.map(|run| run.out() + &run.err()).unwrap_or_default();
                if let Some(lie) = node.lies() {
                    wrong.push(format!("{acts:?}: {lie}\n-- the last act said:\n{words}"));
                }
                if let Err(error) = node.follow(&mut Vec::new()) {
                    wrong.push(format!("{acts:?}: {error}\n-- the last act said:\n{words}"));
                }
                next.push((acts, kept));
            }
        }
        layer = next;
    }
    (met.len(), wrong)
}

#[test]
fn every_sequence_ends_whole_or_says_how_to_get_there() {
    with_mounts(|| {
        explores(&mut Node::new(), longest(3), &ACTS);
    });
}

/// The same where other programs stage, swap and take away between our own runs, from a node that runs its second config.
#[test]
fn status_says_what_the_next_boot_enters_whoever_made_it_so() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b')).unwrap().ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('b'));
        let all = [&ACTS[..], &[Act::PivotBack], &FOREIGN].concat();
        explores(&mut node, longest(3) - 1, &all);
    });
}

fn longest(usual: usize) -> usize {
    std::env::var("SEQUENCES").map_or(usual, |text| text.parse().unwrap())
}

fn explores(node: &mut Node, longest: usize, all: &[Act]) {
    let (states, wrong) = explore(node, longest, all);
    let sequences: usize = (1..=longest)
        .map(|length| all.len().pow(length as u32))
        .sum();
    say(&format!(
        "{sequences} sequences of up to {longest} lead to {states} states; the program ran {} times",
        node.runs
    ));
    let first: Vec<String> = wrong.iter().take(3).cloned().collect();
    assert!(
        wrong.is_empty(),
        "{} of {states} states:\n{}",
        wrong.len(),
        first.join("\n=====\n")
    );
}

/// Found by the table of sequences of four: the half of a killed run is chosen again in the boot menu.
#[test]
fn a_half_that_is_chosen_again_is_led_out_of() {
    with_mounts(|| {
        for letter in ['a', 'b', 'c'] {
            let mut node = Node::new();
            node.takes(Act::Killed);
            node.takes(Act::RebootNew);
            node.takes(Act::Apply(letter));
            node.takes(Act::RebootOld);
            let led = node.follow(&mut Vec::new());
            assert!(led.is_ok(), "{letter}: {}", led.unwrap_err());
        }
    });
}

#[test]
fn an_argument_that_cannot_be_taken_away_is_a_failure() {
    with_mounts(|| {
        let mut node = Node::new();
        let without = config('a').replace("[\"audit=0\"]", "[]");
        node.node
            .root
            .write("without", &without.replace("-worker-a", "-worker-d"));
        node.node.root.write("stub/fails", "kargs --delete\n");
        let run = node.run(&["apply", "--yes", "/without"]).exits(1);
        let said = flat_run(&run);
        assert!(
            said.contains("nothing is staged, and no file was changed"),
            "{said}"
        );
        assert!(!said.contains("Applied"), "{said}");
        assert_eq!(node.whole(), Some('a'));
        assert_eq!(node.lines().len(), 1);
    });
}

#[test]
fn a_node_without_the_rest_of_a_killed_run_is_named_a_half_with_both_ways_out() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Killed);
        let said = flat_run(&node.run(&["status"]).ok());
        let words =
            "rendered-worker-c, but the run was interrupted before its files were written; begun ";
        assert!(said.contains(words), "{said}");
        let next = ". Next: mco-rescue apply cached:rendered-worker-c or: mco-rescue rollback";
        assert!(said.contains(next), "{said}");
        let complete = node.takes(Act::RebootNew).unwrap().exits(3);
        let said = flat_run(&complete);
        assert!(
            said.contains(
                "the node is incomplete: the kernel arguments site.is=c audit=1 are missing"
            ),
            "{said}"
        );
        assert!(!said.contains("whole."), "{said}");
        for way in [
            "mco-rescue apply cached:rendered-worker-c",
            "mco-rescue rollback",
        ] {
            assert!(said.contains(way), "{said}");
        }
        // Healed; and the way back of that run leads to A, not to the half.
        node.run(&["apply", "--yes", "cached:rendered-worker-c"])
            .ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('c'));
        node.run(&["rollback", "--yes"]).ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('a'));
    });
}

#[test]
fn a_run_at_work_is_not_called_cut_off() {
    with_mounts(|| {
        let mut node = Node::new();
        let waits = node.node.root.path("stub/waits");
        nix::unistd::mkfifo(&waits, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let mut child = node.node.start(&["apply", "--yes", "/b"]);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !node.node.root.exists("stub/now") {
            assert!(Instant::now() < deadline, "rpm-ostree was never called");
            std::thread::sleep(Duration::from_millis(2));
        }
        let said = flat_run(&node.run(&["status"]).ok());
        assert!(
            said.contains("rendered-worker-b: a run is in progress"),
            "{said}"
        );
        assert!(!said.contains("cut off"), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn what_was_dropped_is_not_promised_and_what_is_to_go_is_not_forgotten() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b'));
        node.takes(Act::Drop);
        let said = flat_run(&node.run(&["status"]).ok());
        let words =
            "rendered-worker-b, but it is no longer staged, and its files are in place; begun ";
        assert!(said.contains(words), "{said}");
        let next = ". Next: mco-rescue apply cached:rendered-worker-b or: mco-rescue rollback";
        assert!(said.contains(next), "{said}");
        let plan = flat_run(&node.run(&["plan", "/b"]).ok());
        assert!(plan.contains("--delete-if-present=audit=0"), "{plan}");
        node.run(&["complete"]).exits(3);
        node.run(&["apply", "--yes", "cached:rendered-worker-b"])
            .ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('b'));
    });
}

#[test]
fn a_failed_arrival_is_reported_once() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b'));
        let failed = node.takes(Act::PowerCut).unwrap().exits(3);
        assert!(
            flat_run(&failed).contains("did not come up"),
            "{}",
            flat_run(&failed)
        );
        assert_eq!(node.whole(), Some('a'));
        let settled = node.takes(Act::RebootNew).unwrap().ok();
        assert!(
            flat_run(&settled).contains("no longer waits for a reboot"),
            "{}",
            flat_run(&settled)
        );
        assert!(node.takes(Act::RebootNew).is_none(), "nothing is awaited");
        // Or as soon as the node is brought elsewhere, or nowhere.
        for again in [["apply", "--yes", "/a"], ["rollback", "--yes", "--forget"]] {
            node.takes(Act::Apply('b'));
            node.takes(Act::PowerCut).unwrap().exits(3);
            node.run(&again).ok();
            assert!(
                node.takes(Act::RebootNew).is_none(),
                "nothing is awaited after {again:?}"
            );
        }
    });
}

#[test]
fn over_a_config_that_never_ran_the_arguments_and_the_way_back_are_those_of_what_runs() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b')).unwrap().ok();
        // What is staged is ours: nothing has to be taken over.
        node.run(&["apply", "--yes", "/c"]).ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('c'));
        node.run(&["rollback", "--yes"]).ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('a'));
    });
}

#[test]
fn files_of_a_later_run_stay_where_the_staging_before_it_was_lost() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b')).unwrap().ok();
        node.takes(Act::Drop);
        let same_os = config('a')
            .replace("-worker-a", "-worker-e")
            .replace("a%0A", "e%0A");
        node.node.root.write("e", &same_os);
        node.run(&["apply", "--yes", "/e"]).ok();
        assert!(node.takes(Act::RebootNew).is_none(), "nothing is awaited");
        assert_eq!(node.recorded(), "rendered-worker-e");
    });
}

#[test]
fn a_config_that_needs_no_reboot_over_a_staged_one_stays() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b')).unwrap().ok();
        let run = node.run(&["apply", "--yes", "/a"]).ok();
        let os = "the OS image, kernel arguments changed";
        assert!(!flat_run(&run).contains(os), "{}", run.out());
        assert_eq!(node.whole(), Some('a'));
        assert!(node.takes(Act::RebootNew).is_none(), "nothing is awaited");
        assert_eq!(node.whole(), Some('a'));
    });
}

#[test]
fn nothing_goes_back_at_a_boot_where_nothing_would_complete_it() {
    with_mounts(|| {
        let mut node = Node::new();
        node.takes(Act::Apply('b')).unwrap().ok();
        node.takes(Act::RebootNew).unwrap().ok();
        fs::create_dir_all(node.node.root.path("run/systemd/system")).unwrap();
        let unit = "etc/systemd/system/mco-rescue-complete.service";
        let said = flat_run(&node.run(&["rollback", "--yes"]).exits(1));
        let words = "mco-rescue-complete.service is missing: nothing would complete this run at the next boot. Install it: mco-rescue install";
        assert!(said.contains(words), "{said}");
        assert!(
            node.lines()[0].booted,
            "the next boot enters the running deployment"
        );
        node.node.root.link(unit, "/dev/null");
        let run = node.run(&["rollback", "--yes"]).exits(1);
        let said = flat_run(&run);
        assert!(
            said.contains("mco-rescue-complete.service is masked"),
            "{said}"
        );
        assert!(
            node.lines()[0].booted,
            "the next boot enters the running deployment"
        );
        node.run(&["rollback", "--yes", "--complete-by-hand"]).ok();
        node.takes(Act::RebootNew).unwrap().ok();
        assert_eq!(node.whole(), Some('a'));
    });
}
