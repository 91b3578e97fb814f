"""The tables: what was measured, and beside each goal the figure and whether it is met."""

import os
import platform
import re
import statistics
import time
from pathlib import Path

MIB = 1024 * 1024
NOTHING = "-"

# Title, and the columns: the rival, the floor.
SECTIONS = {
    "apply": ("apply, durable, on a root without a config", "Ignition", "tar"),
    "verify": ("verify, nothing differs", "sha256", "cat"),
    "again": ("apply again, nothing to do", None, "verify"),
    "plan": ("plan, on a root without a config", None, None),
    "start": ("the shortest runs", None, "true"),
}

# The cases that docs/performance.md shows.
MANUAL = (
    *("baremetal-worker", "files-100", "files-1000", "files-10000", "units-1000"),
    *("big-32", "big-256", "big-256-gzip", "big-512-gzip", "--version", "firstboot"),
)

LEGEND = """\
Times are medians, ± half the width of the middle half. Contenders run in turns; a ratio is the
median of the turns' own ratios, with their quartiles. /ours: how many times our time the one before
takes. Peak: the most resident memory of ours, mapped files included. Ignition: Debian's, fetch and
files, which flushes nothing; tar: `tar x && sync -f` of the tree that apply leaves; sha256:
`sha256sum -c` of the files that verify reads; cat: those files read; verify (below "apply again"):
of the same document; true: `/bin/true`, in short turns of hyperfine.
"""


class Row:
    """One line of a table."""

    def __init__(self, name, ours, rival, floor):
        self.name = name
        self.ours = median(ours)
        self.spread = half_width(ours.times)
        self.peak = ours.peak
        self.rival, self.floor = median(rival), median(floor)
        # How many times the floor we take, and how many times our time the rival takes.
        self.above = ratios(ours, floor)
        self.faster = ratios(rival, ours)


class Results:
    """Everything that was measured."""

    def __init__(self):
        self.rows = {section: {} for section in SECTIONS}
        # Sizes in bytes: of the documents by case, and of the program.
        self.documents = {}
        self.binary = None
        self.load = os.getloadavg()[0]
        # What was passed over, and what failed.
        self.notes = []

    def add(self, section, name, ours, rival, floor):
        """Takes the contenders of one comparison."""
        self.rows[section][name] = Row(name, ours, rival, floor)

    def row(self, section, name):
        """A line, or None where that case was not measured."""
        return self.rows[section].get(name)

    def workers(self, section):
        """The lines of real workers; of the example where there are no real ones."""
        named = [row for name, row in self.rows[section].items() if name.endswith("-worker")]
        real = [row for row in named if row.name != "example-worker"]
        return real or named


def median(contender):
    """The median time in seconds, if there is one."""
    return statistics.median(contender.times) if contender else None


def quartiles(values):
    """The quartiles, none of them outside what was measured."""
    return statistics.quantiles(values, n=4, method="inclusive")


def half_width(values):
    """Half the width of the middle half of the values."""
    low, _, high = quartiles(values)
    return (high - low) / 2


def ratios(above, below):
    """The quartiles of the ratios turn by turn, if there are two contenders."""
    if not (above and below):
        return None
    return quartiles([a / b for a, b in zip(above.times, below.times)])


def decimals(number):
    """How many make three digits together with those before the point."""
    return max(0, 3 - len(str(int(number))))


def duration(seconds, spread=None):
    """A time for people, with three digits that mean something."""
    if seconds is None:
        return NOTHING
    factor, unit = (1, "s") if seconds >= 1 else (1000, "ms")
    digits = decimals(seconds * factor)
    value = f"{seconds * factor:.{digits}f}"
    return f"{value} {unit}" if spread is None else f"{value}±{spread * factor:.{digits}f} {unit}"


def ratio(found, spread=True):
    """A ratio for people."""
    if found is None:
        return NOTHING
    low, middle, high = found
    digits = decimals(middle)
    shown = f"{middle:.{digits}f}"
    return f"{shown} ({low:.{digits}f}-{high:.{digits}f})" if spread else shown


def size(count):
    """Bytes for people."""
    return f"{count / MIB:.1f} MiB" if count < 100 * MIB else f"{count / MIB:.0f} MiB"


def table(lines):
    """A Markdown table, in columns for the terminal too."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    rule = ["-" * width for width in widths]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths)] for line in [lines[0], rule, *lines[1:]]]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded) + "\n"


def section_table(section, rows):
    """One comparison, all cases; without columns that nobody is in."""
    _, rival, floor = SECTIONS[section]
    columns = [("case", lambda row: row.name), ("ours", lambda row: duration(row.ours, row.spread))]
    if floor:
        columns.append((floor, lambda row: duration(row.floor)))
        # Of blocks of runs, not of turns: their difference says more than their ratio.
        blocks = (f"ours-{floor}", lambda row: duration(row.ours - row.floor))
        columns.append(blocks if section == "start" else (f"ours/{floor}", lambda row: ratio(row.above)))
    if rival:
        columns.append((rival, lambda row: duration(row.rival)))
        columns.append(("/ours", lambda row: ratio(row.faster, spread=False)))
    columns.append(("peak", lambda row: size(row.peak)))
    lines = [[title for title, _ in columns]]
    lines += [[value(row) for _, value in columns] for row in rows]
    return table(lines)


def goals(results):
    """Every goal that something was measured for: what, the figure, and whether it is met."""
    found = []

    def at_most(what, goal, figure, shown, unit=""):
        found.append([what, f"<= {goal:g}{unit}", shown, "met" if figure <= goal else "NOT met"])

    def floor(section, row, what, goal):
        if row:
            at_most(f"{what} / {SECTIONS[section][2]}: {row.name}", goal, row.above[1], ratio(row.above))

    def peak(section, row, what, goal):
        if row:
            at_most(f"{what}, peak: {row.name}", round(goal / MIB, 1), row.peak / MIB, size(row.peak), " MiB")

    worker = slowest(results.workers("apply"))
    floor("apply", worker, "apply", 1.5)
    if worker and worker.faster:
        least = min(results.workers("apply"), key=lambda row: row.faster[1])
        met = "met" if least.faster[1] >= 5 else "NOT met"
        found.append([f"Ignition / apply: {least.name}", ">= 5", ratio(least.faster), met])
    peak("apply", largest(results.workers("apply")), "apply", 8 * MIB)
    for many in ("files-1000", "files-10000"):
        floor("apply", results.row("apply", many), "apply", 1.5)
    for section in ("apply", "verify"):
        ten_thousand = results.row(section, "files-10000")
        if ten_thousand:
            peak(section, ten_thousand, section, 1.3 * results.documents["files-10000"])
        growth(results, section, found)
    for name in results.documents:
        if name.startswith("big-"):
            for section in ("apply", "verify"):
                peak(section, results.row(section, name), section, results.documents[name] + 16 * MIB)
    for section, what, goal in (("verify", "verify", 1.3), ("again", "apply again", 1.2)):
        names = [name for name in results.rows[section] if not name.endswith(("-worker", "-master", "-infra"))]
        floor(section, slowest(results.workers(section)), what, goal)
        for name in names:
            floor(section, results.row(section, name), what, goal)
    start(results, at_most)
    return found


def slowest(rows):
    """The worst of several, by the ratio to the floor."""
    return max(rows, key=lambda row: row.above[1], default=None)


def largest(rows):
    """The worst of several, by memory."""
    return max(rows, key=lambda row: row.peak, default=None)


def growth(results, section, found):
    """Whether ten times the files take ten times as long."""
    small, large = results.row(section, "files-1000"), results.row(section, "files-10000")
    if small and large:
        more = (large.ours / 10_000) / (small.ours / 1000) - 1
        met = "met" if more <= 0.15 else "NOT met"
        shown = f"{more:+.0%}".replace("%", " %")
        found.append([f"{section}, per file: 1,000 to 10,000 files", "<= +15 %", shown, met])


def start(results, at_most):
    """The goals of the shortest runs, and of the program itself."""
    if results.binary is None:
        return
    version, boot = results.row("start", "--version"), results.row("start", "firstboot")
    more = (version.ours - version.floor) * 1000
    at_most("--version, more than /bin/true", 2, more, f"{more:.2f} ms", " ms")
    at_most("firstboot, nothing to do", 10, boot.ours * 1000, duration(boot.ours, boot.spread), " ms")
    at_most("the static binary", 6, results.binary / 1e6, f"{results.binary / 1e6:.2f} MB", " MB")


def machine(load):
    """The class of machine, and when."""
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    virtual = "virtual, " if " hypervisor" in Path("/proc/cpuinfo").read_text() else ""
    linux = ".".join(platform.release().split(".")[:2])
    return (
        f"{time.strftime('%Y-%m-%d')}, load before: {load:.1f}; {virtual}{os.cpu_count()} x {cpu.group(1) if cpu else platform.machine()}, "
        f"{memory:.0f} GiB,\nLinux {linux}, ext4 on a loop device"
    )


def tables(results, names=None):
    """What was measured where and when, and a table for each comparison: of all cases, or those named."""
    parts = [f"Measured {machine(results.load)}\n"]
    for section, rows in results.rows.items():
        wanted = [row for row in rows.values() if names is None or row.name in names]
        if wanted:
            parts.append(f"### {SECTIONS[section][0]}\n\n{section_table(section, wanted)}")
    return parts


def manual(results):
    """The part of it that docs/performance.md shows."""
    return "\n".join([*tables(results, MANUAL), LEGEND])


def text(results):
    """All of it."""
    parts = tables(results)
    met = goals(results)
    if met:
        parts.append("### goals\n\n" + table([["what", "goal", "figure", ""], *met]))
    if results.notes:
        parts.append("\n".join(results.notes) + "\n")
    parts.append(LEGEND)
    return "\n".join(parts)
