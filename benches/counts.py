"""Counts the instructions of commands, and of the functions of the pure core in them. Started by benches/counts."""

import os
import re
import subprocess
import time
from pathlib import Path

from configs import EXAMPLE, files_of, units_of
from lab import make_parser, make_root
from report import NOTHING, table

# Names in the tables of the functions whose share is told, with all that they call.
CORE = {
    "parse and check": "mco_rescue::config::document::parse::parse",
    "desired state": "mco_rescue::config::document::desired::Desired::from_config",
    "look at the node": "mco_rescue::node::observe_with",
    "plan": "mco_rescue::change::plan::changes",
    "drift": "mco_rescue::judge::drift::find_drifts",
}

# Name, arguments, functions. Paths are relative, so that where the checkout is does not count.
COMMANDS = [
    ("--version", ["--version"], []),
    ("verify, example-worker", ["--root", "worker", "verify"], []),
    ("verify, units-100", ["--root", "units", "verify"], ["look at the node"]),
    ("show, files-1000", ["--root", "fresh", "show", "files-1000.json"], ["parse and check", "desired state"]),
    ("plan, files-1000", ["--root", "fresh", "plan", "files-1000.json"], ["look at the node", "plan"]),
    ("apply, files-1000", ["--root", "fresh", "apply", "--yes", "files-1000.json"], []),
    ("verify, files-1000", ["--root", "fresh", "verify"], ["look at the node", "plan", "drift"]),
    ("apply again, files-1000", ["--root", "fresh", "apply", "--yes", "files-1000.json"], []),
]


def count(program, arguments, functions):
    """Instructions of a run and of some of its functions, calls included; None for one that is not to be found."""
    out = Path("callgrind.out")
    counter = ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}"]
    subprocess.run([*counter, program, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    total = int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE).group(1))
    found = inclusive(out) if functions else {}
    out.unlink()
    return total, [found.get(CORE[name]) for name in functions]


def inclusive(out):
    """What each function took with all that it calls, by its name."""
    command = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--tree=none", str(out)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for match in re.finditer(r"^\s*([\d,]+)(?: +\([^)]*\))?  \S*?:(\S+)(?: \[.*)?$", said, re.MULTILINE):
        instructions = int(match.group(1).replace(",", ""))
        # A function has a line for each source file of which something was inlined; the whole is the largest.
        found[match.group(2)] = max(instructions, found.get(match.group(2), 0))
    return found


def previous(results):
    """The figures of the table that is there already, by their names."""
    if not results.exists():
        return {}
    lines = re.findall(r"^\| (.*?) +\| +([\d,]+) +\|", results.read_text(), re.MULTILINE)
    return {name: int(figure.replace(",", "")) for name, figure in lines}


def line(name, instructions, before):
    """A line of the table."""
    if instructions is None:
        return [name, NOTHING, NOTHING, "not found: inlined, or named anew"]
    if not before:
        return [name, f"{instructions:,}", NOTHING, NOTHING]
    return [name, f"{instructions:,}", f"{before:,}", f"{instructions / before - 1:+.2%}".replace("%", " %")]


def main():
    arguments = make_parser().parse_args()
    before = previous(arguments.results)

    os.chdir(arguments.work)
    files_of(1000)(Path("files-1000.json"))
    units_of(100)(Path("units-100.json"))
    make_root(Path("fresh"))
    for root, document in (("worker", str(EXAMPLE)), ("units", "units-100.json")):
        make_root(Path(root))
        count(arguments.program, ["--root", root, "apply", "--yes", document], [])
    lines = [["what", "instructions", "before", "change"]]
    for name, command, functions in COMMANDS:
        total, parts = count(arguments.program, command, functions)
        lines.append(line(name, total, before.get(name)))
        for function, part in zip(functions, parts):
            label = f"{name}: {function}"
            lines.append(line(label, part, before.get(label)))
    text = f"Counted {time.strftime('%Y-%m-%d')}, {os.uname().machine}, without the kernel's share\n\n{table(lines)}"
    arguments.results.write_text(text)
    print(f"{text}\nThis is in {arguments.results}")


main()
