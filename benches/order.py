"""Finds the functions that everyday commands call, and writes their names for the linker. Started by benches/order."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from bisect import bisect_left
from pathlib import Path

from configs import EXAMPLE, SHARED, big_file, files_of, units_of
from lab import Failed, make_parser, make_root

# How much of what a prefix matches has to be called, in bytes.
SHARE = 0.95
# The least number of parts of a name that a prefix has: the first ones say nothing.
LEAST = 8

PTRACE_TRACEME, PTRACE_CONT, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_SETOPTIONS = 0, 7, 12, 13, 0x4200
# Clones, forks and programs that are started are followed, and end with the tracer.
FOLLOW = 0x02 | 0x04 | 0x08 | 0x10 | 0x100000
WALL = 0x40000000
# The place of the instruction pointer among the 27 registers of x86-64.
REGISTERS, POINTER = 27, 16
BREAKPOINT = b"\xcc"

HEADER = """\
# Functions that the everyday commands call (--version, plan, apply, verify, status), by their names for the linker.
# build.rs has them placed side by side: a run then has a third of the program in memory, and not two thirds.
# `make order` writes this file. A name that no longer exists does no harm, and a function that is missing here is
# only placed elsewhere. A line is the beginning of a name; `*` is a number that depends on the compiler.
"""


def ptrace(request, process, address=0, data=0):
    """The system call; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_void_p(argument) if isinstance(argument, int) else argument for argument in (address, data)]
    if libc.ptrace(ctypes.c_long(request), ctypes.c_int(process), *arguments) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Memory:
    """The memory of a stopped process."""

    def __init__(self, process):
        self.file = os.open(f"/proc/{process}/mem", os.O_RDWR)

    def __enter__(self):
        return self.file

    def __exit__(self, *_):
        os.close(self.file)


def called(command, functions):
    """
    Runs a command and returns the addresses of the functions that it enters, from a sorted list of all. Raises Failed
    if it cannot be traced or does not succeed.
    """
    process = os.fork()
    if process == 0:
        try:
            ptrace(PTRACE_TRACEME, 0)
            quiet = os.open("/dev/null", os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(quiet, stream)
            os.execv(command[0], command)
        finally:
            os._exit(127)
    _, status = os.waitpid(process, 0)
    if not os.WIFSTOPPED(status):
        raise Failed(f"cannot be traced: {command[0]}")
    ptrace(PTRACE_SETOPTIONS, process, 0, FOLLOW)
    maps = Path(f"/proc/{process}/maps").read_text()
    base = next(int(line.split("-")[0], 16) for line in maps.splitlines() if line.endswith(command[0]))
    original = {}
    with Memory(process) as memory:
        for address in functions:
            original[address] = os.pread(memory, 1, base + address)
            os.pwrite(memory, BREAKPOINT, base + address)
    ptrace(PTRACE_CONT, process)
    found, result = set(), None
    while True:
        try:
            stopped, status = os.waitpid(-1, WALL)
        except ChildProcessError:
            break
        if not os.WIFSTOPPED(status):
            if stopped == process:
                result = os.waitstatus_to_exitcode(status)
            continue
        signal_number = os.WSTOPSIG(status)
        event = status >> 16
        if event or signal_number == signal.SIGSTOP:
            ptrace(PTRACE_CONT, stopped)
            continue
        if signal_number != signal.SIGTRAP:
            ptrace(PTRACE_CONT, stopped, 0, signal_number)
            continue
        registers = (ctypes.c_ulong * REGISTERS)()
        ptrace(PTRACE_GETREGS, stopped, 0, registers)
        address = registers[POINTER] - 1 - base
        at = bisect_left(functions, address)
        if at == len(functions) or functions[at] != address:
            ptrace(PTRACE_CONT, stopped, 0, signal_number)
            continue
        # Each function is of interest once. Another thread may stop at the same place before it is restored.
        found.add(address)
        with Memory(stopped) as memory:
            os.pwrite(memory, original[address], base + address)
        registers[POINTER] -= 1
        ptrace(PTRACE_SETREGS, stopped, 0, registers)
        ptrace(PTRACE_CONT, stopped)
    if result != 0:
        raise Failed(f"exit status {result} from: {' '.join(command)[:300]}")
    return found


def everyday(program, work):
    """The commands, on roots below `work`; each root is new where its first command runs."""
    yield [program, "--version"]
    documents = {"files": files_of(100), "units": units_of(100), "big": big_file(4), "gzip": big_file(4, True)}
    paths = [EXAMPLE]
    real = SHARED / "baremetal-worker.json"
    if real.is_file():
        paths.append(real)
    else:
        print(f"SKIP: the config of a real worker ({real.name}) is not here", file=sys.stderr)
    for name, write in documents.items():
        paths.append(work / f"{name}.json")
        write(paths[-1])
    for path in paths:
        root = work / "root"
        make_root(root)
        on = [program, "--root", str(root)]
        yield [*on, "plan", str(path)]
        yield [*on, "apply", "--yes", str(path)]
        yield [*on, "verify"]
        yield [*on, "plan"]
        yield [*on, "apply", "--yes"]
        yield [*on, "status"]
        shutil.rmtree(root)


def functions_of(program):
    """Size and names of each function of a program, by address. The names of equal functions share an address."""
    listed = subprocess.run(["nm", "-S", "--defined-only", program], check=True, capture_output=True, text=True).stdout
    functions = {}
    for address, size, name in re.findall(r"^([0-9a-f]+) ([0-9a-f]+) [tTwW] (\S+)$", listed, re.MULTILINE):
        functions.setdefault(int(address, 16), (int(size, 16), []))[1].append(name)
    return functions


def parts(name):
    """
    The parts of a name in Rust's mangling, identifiers whole. The hash of a crate and the distance to an earlier part
    become `*`, as they depend on the compiler and on the lengths of hashes.
    """
    found, at = [], 0
    while at < len(name):
        if number := re.match(r"Cs[0-9A-Za-z]+_|B[0-9A-Za-z]*_", name[at:]):
            found += [number.group()[0], "*", "_"]
            at += number.end()
        elif length := re.match(r"([1-9][0-9]*)_?", name[at:]):
            end = at + length.end() + int(length.group(1))
            found.append(name[at:end])
            at = end
        else:
            found.append(name[at])
            at += 1
    return found


class Tree:
    """Names by their parts, with the bytes of the functions, and of those that are called."""

    def __init__(self):
        self.called = 0
        self.bytes = 0
        self.below = {}

    def add(self, way, size, is_called):
        """Adds a function below the parts of its name."""
        at = self
        for part in [*way, ""]:
            at.bytes += size
            at.called += size if is_called else 0
            at = at.below.setdefault(part, Tree())
        at.bytes += size
        at.called += size if is_called else 0

    def prefixes(self, way=()):
        """The shortest beginnings of names of which nearly all bytes are called."""
        if self.called and len(way) >= LEAST and self.called >= SHARE * self.bytes:
            yield "".join(way)
            return
        for part, below in sorted(self.below.items()):
            if part:
                yield from below.prefixes((*way, part))
            elif below.called:
                yield "".join(way)


def main():
    arguments = make_parser().parse_args()

    functions = functions_of(arguments.program)
    if not any(name.startswith("_R") for _, names in functions.values() for name in names):
        raise SystemExit(f"benches/order: {arguments.program} has no names of functions; build it with strip=none")
    addresses = sorted(functions)
    found = set()
    try:
        for command in everyday(arguments.program, arguments.work):
            found |= called(command, addresses)
    except Failed as problem:
        raise SystemExit(f"benches/order: {problem}") from None
    tree = Tree()
    for address, (size, names) in functions.items():
        for name in names:
            # The C library is no part of this: its functions have no sections of their own.
            if name.startswith("_R"):
                tree.add(parts(name), size, address in found)
    lines = list(tree.prefixes())
    arguments.results.write_text(HEADER + "".join(f"{line}\n" for line in lines))
    size = sum(functions[address][0] for address in found)
    whole = sum(size for size, _ in functions.values())
    print(f"{len(found)} of {len(functions)} functions are called, {size:,} of {whole:,} bytes: {len(lines)} names")
    print(f"This is in {arguments.results}")


main()
