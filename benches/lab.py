"""A fresh file system, roots on it, and programs that are run, timed and weighed."""

import argparse
import ctypes
import json
import math
import os
import re
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

IGNITION = Path("/usr/lib/dracut/modules.d/30ignition/ignition")
QUIET = [
    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
]


@dataclass
class Contender:
    """A job to be measured: commands one after the other, each of which has to succeed."""

    commands: list
    # Called before each run, not timed.
    prepare: object = None
    times: list = field(default_factory=list)
    # Peak of resident memory, in bytes.
    peak: int = 0

    def run(self, before=()):
        """Runs it once and returns how many seconds it took."""
        if self.prepare:
            self.prepare()
        begun = time.perf_counter()
        for command in self.commands:
            spawn([*before, *command])
        return time.perf_counter() - begun

    def weigh(self, work):
        """Notes its peak of resident memory, from a run that is not timed: caches are cold, and the wrapper costs."""
        note = work / "peak"
        # What a program has in memory counts for what it starts, until that is another program; time(1) is small.
        self.run(before=["/usr/bin/time", "-q", "-a", "-o", str(note), "-f", "%M"])
        self.peak = max(int(line) for line in note.read_text().split()) * 1024
        note.unlink()


def make_parser():
    """The options that every program of benches/ gets from the script that starts it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    return parser


class Failed(Exception):
    """A command did not succeed."""


def spawn(command):
    """Runs a command without a shell, its output thrown away."""
    child = os.posix_spawnp(command[0], command, os.environ, file_actions=QUIET)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise Failed(f"exit status {status} from: {' '.join(command)[:300]}")


def race(contenders, work, budget, most):
    """
    Runs the contenders in turns (A B C, B C A, ...), so that whatever else the machine does meets all of them alike,
    for about `budget` seconds: two turns at least, and three of what is not slow beyond measure.
    """
    for contender in contenders:
        contender.weigh(work)
    begun = time.monotonic()
    for turn in range(most):
        allowed = {0: math.inf, 1: math.inf, 2: 5 * budget}.get(turn, budget)
        if time.monotonic() - begun > allowed:
            break
        at = turn % len(contenders)
        for contender in contenders[at:] + contenders[:at]:
            contender.times.append(contender.run())


def sprint(commands, work, blocks):
    """Times of very short commands, by hyperfine without a shell, in turns of twenty runs: a list for each of them."""
    results = work / "hyperfine.json"
    options = ["-N", "--style", "none", "--warmup", "3", "--runs", "20", "--export-json", str(results)]
    lines = [" ".join(command) for command in commands]
    times = [[] for _ in commands]
    for _ in range(blocks):
        # What it says of outliers is not for people who share a machine.
        subprocess.run(["hyperfine", *options, *lines], check=True, capture_output=True)
        for all_blocks, result in zip(times, json.loads(results.read_text())["results"]):
            all_blocks += result["times"]
    return times


@contextmanager
def fresh_file_system(work, mib):
    """A new ext4 on a loop device, as a half-full one would even out the differences."""
    image, mounted = work / "disk", work / "fs"
    image.unlink(missing_ok=True)
    mounted.mkdir(exist_ok=True)
    with open(image, "wb") as disk:
        disk.truncate(mib * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard", image], check=True)
    # Without the thread that goes on to clear inode tables meanwhile.
    subprocess.run(["mount", "-o", "loop,noinit_itable", image, mounted], check=True)
    try:
        yield mounted
    finally:
        os.chdir(work)
        subprocess.run(["umount", mounted], check=True)
        image.unlink()


def spare_the_machine():
    """Who wants nearly all memory there is gets none, and fails, rather than somebody else."""
    available = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if available:
        most = int(available.group(1)) * 1024 * 3 // 4
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def make_root(root):
    """A root before its first config, and on disk, so that nobody pays for what was done before."""
    shutil.rmtree(root, ignore_errors=True)
    for directory in ("etc/selinux", "var/lib", "home/core"):
        (root / directory).mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(root / "home/core", 1000, 1000)
    (root / "etc/os-release").write_text('ID="rhcos"\nVARIANT_ID=coreos\n')
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\ncore:x:1000:\n")
    flush(root)


def flush(path):
    """Flushes the file system of a path."""
    spawn(["sync", "-f", str(path)])


@dataclass
class Spent:
    """What a run has to wait for: flushes, and the bytes that it writes."""

    flushes: int
    # Seconds for one flush of hardly anything, and for writing as many bytes.
    flush: float
    bytes: int
    writing: float


def spent(command, prepare, directory, count):
    """What `command` has to wait for on the file system of `directory`, where it leaves `count` bytes."""
    trial = directory / "trial"
    flushes = [write_and_flush(trial, 4096) for _ in range(15)]
    floor = statistics.median(flushes)
    writes = [write_and_flush(trial, count) for _ in range(3)]
    trial.unlink()
    flush(directory)
    prepare()
    return Spent(count_flushes(command), floor, count, max(0, statistics.median(writes) - floor))


def write_and_flush(path, count):
    """How many seconds it takes to write so many bytes to a new file, and to flush its file system."""
    piece = os.urandom(1 << 20)
    path.unlink(missing_ok=True)
    flush(path.parent)
    with open(path, "wb", buffering=0) as out:
        begun = time.perf_counter()
        for at in range(0, count, len(piece)):
            out.write(piece[: count - at])
        if ctypes.CDLL(None, use_errno=True).syncfs(out.fileno()) != 0:
            raise Failed(f"syncfs: {os.strerror(ctypes.get_errno())}")
        return time.perf_counter() - begun


FLUSHES = ("fsync", "fdatasync", "syncfs", "sync")


def count_flushes(command):
    """How many flushes a command asks for."""
    with tempfile.NamedTemporaryFile("r") as trace:
        options = ["-f", "-qq", "-e", f"trace={','.join(FLUSHES)}", "-e", "signal=none", "-o", trace.name]
        spawn(["strace", *options, *command])
        # A call that another thread interrupts has a second line, without its name in front.
        return len(re.findall(rf"^\d+ +(?:{'|'.join(FLUSHES)})\(", trace.read(), re.MULTILINE))


def bytes_below(directory):
    """The bytes of all files below a directory, each inode once."""
    files = {}
    for top, _, names in os.walk(directory):
        for name in names:
            found = os.lstat(os.path.join(top, name))
            files[found.st_ino] = found.st_size
    return sum(files.values())


def checked_files(root):
    """The files that `verify` reads in an applied root: all but the marks and originals that the daemon keeps."""
    kept = [root / "etc/machine-config-daemon" / name for name in ("orig", "noorig")]
    found = []
    for top in ("etc", "usr", "home"):
        for directory, _, names in os.walk(root / top):
            if not any(Path(directory).is_relative_to(at) for at in kept):
                found += [os.path.join(directory, name) for name in names]
    regular = [path for path in found if os.path.isfile(path) and not os.path.islink(path)]
    return sorted(os.path.relpath(path, root) for path in regular)
