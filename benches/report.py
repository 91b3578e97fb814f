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
    "status": ("status, nothing differs", None, None),
    "image": ("an OS image: image export, and ostree's import of it", None, "cp"),
    "start": ("the shortest runs", None, "true"),
}

# The cases of the short summary for a release.
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
of the same document; cp: `cp -a && sync -f` of the objects of the image; true: `/bin/true`, in short turns of hyperfine. Documents are read, not mapped:
all of a peak but the program's own pages, some 4 MiB, is memory of its own.
"""

SPENT = """\
Total = flushes x flush + bytes / bandwidth + rest. Flushes: counted by strace; flush: the median of
`syncfs` after a small write on the same file system; bytes: all that apply leaves on disk, written to
one file and flushed once, without that flush; rest: what is left of the total, a negative rest means
that flushes or writes overlapped with work.
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
        # What the time of apply went to, by case.
        self.spent = {}
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


class Goals:
    """Every goal that something was measured for: what, the figure, whether it is met, and the goal of before."""

    def __init__(self):
        self.lines = []

    def at_most(self, what, goal, figure, shown, unit="", before=None):
        """A figure that is not to be larger."""
        self.add(what, "<=", goal, figure, shown, unit, before)

    def at_least(self, what, goal, figure, shown, before=None):
        """A figure that is not to be smaller."""
        self.add(what, ">=", goal, figure, shown, "", before)

    def add(self, what, sign, goal, figure, shown, unit, before):
        """One line; `before` is the goal that stood there before this one, None if it is the same."""

        def judged(bound):
            met = figure <= bound if sign == "<=" else figure >= bound
            return [f"{sign} {bound:g}{unit}", "met" if met else "NOT met"]

        same = before is None or before == goal
        (wanted, met), (wanted_before, met_before) = judged(goal), [NOTHING, NOTHING] if same else judged(before)
        self.lines.append([what, wanted, shown, met, wanted_before, met_before])


def goals(results):
    """The lines of all goals."""
    found = Goals()

    def floor(section, row, what, goal, before=None):
        if row:
            name = f"{what} / {SECTIONS[section][2]}: {row.name}"
            found.at_most(name, goal, row.above[1], ratio(row.above), before=before)

    def rival(row, goal, before=None):
        if row and row.faster:
            found.at_least(f"Ignition / apply: {row.name}", goal, row.faster[1], ratio(row.faster), before)

    def peak(section, row, what, goal, before=None):
        if row:
            in_mib = [bound and round(bound / MIB, 1) for bound in (goal, before)]
            found.at_most(f"{what}, peak: {row.name}", in_mib[0], row.peak / MIB, size(row.peak), " MiB", in_mib[1])

    files = [name for name in results.documents if name.startswith("files-")]
    units = [name for name in results.documents if name.startswith("units-")]
    large = [name for name in results.documents if name.startswith("big-")]
    floor("apply", slowest(results.workers("apply")), "apply", 1.5)
    for name in files:
        floor("apply", results.row("apply", name), "apply", 1.5)
    for name in units + large:
        floor("apply", results.row("apply", name), "apply", 1.8)
    workers = [row for row in results.workers("apply") if row.faster]
    rival(min(workers, key=lambda row: row.faster[1], default=None), 4, 5)
    for name in files:
        rival(results.row("apply", name), 4)
    for name in units:
        rival(results.row("apply", name), 1.5)
    peak("apply", largest(results.workers("apply")), "apply", 8 * MIB)
    for section in ("apply", "verify"):
        growth(results, section, found)
    for section in ("apply", "again", "plan", "verify", "status"):
        ten_thousand = results.row(section, "files-10000")
        if ten_thousand:
            document = results.documents["files-10000"]
            peak(section, ten_thousand, section, document + 24 * MIB, 1.3 * document)
        for name in large:
            document = results.documents[name]
            peak(section, results.row(section, name), section, document + 8 * MIB, document + 16 * MIB)
    floor("verify", slowest(results.workers("verify")), "verify", 2, 1.3)
    for name in files + units:
        floor("verify", results.row("verify", name), "verify", 2, 1.3)
    for name in large:
        row = results.row("verify", name)
        if row and row.faster:
            slower = [1 / figure for figure in reversed(row.faster)]
            found.at_most(f"verify / sha256sum: {name}", 1.2, slower[1], ratio(slower))
            found.at_most(f"verify / cat: {name} (before)", 1.3, row.above[1], ratio(row.above))
    floor("again", slowest(results.workers("again")), "apply again", 1.2)
    for name in files + units + large:
        floor("again", results.row("again", name), "apply again", 1.2)
    for name in ("export", "import"):
        floor("image", results.row("image", name), "image", 1.3)
        peak("image", results.row("image", name), "image", 64 * MIB)
    start(results, found)
    return found.lines


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
        more = ((large.ours / 10_000) / (small.ours / 1000) - 1) * 100
        found.at_most(f"{section}, per file: 1,000 to 10,000 files, more", 15, more, f"{more:+.0f} %", " %")


def start(results, found):
    """The goals of the shortest runs, and of the program itself."""
    if results.binary is None:
        return
    version, boot = results.row("start", "--version"), results.row("start", "firstboot")
    more = (version.ours - version.floor) * 1000
    found.at_most("--version, more than /bin/true", 2, more, f"{more:.2f} ms", " ms")
    found.at_most("firstboot, nothing to do", 10, boot.ours * 1000, duration(boot.ours, boot.spread), " ms")
    found.at_most("the static binary", 6, results.binary / 1e6, f"{results.binary / 1e6:.2f} MB", " MB")


def spent_table(results, names=None):
    """What the time of apply went to."""
    lines = [["case", "total", "flushes", "flush", "x", "bytes", "written in", "rest"]]
    for name, spent in results.spent.items():
        row = results.row("apply", name)
        if row and (names is None or name in names):
            flushing = spent.flushes * spent.flush
            rest = row.ours - flushing - spent.writing
            cells = [duration(row.ours), str(spent.flushes), duration(spent.flush), duration(flushing)]
            sign = "-" if rest < 0 else ""
            cells += [size(spent.bytes), duration(spent.writing), sign + duration(abs(rest))]
            lines.append([name, *cells])
    return f"### where the time of apply goes\n\n{table(lines)}\n{SPENT}" if len(lines) > 1 else ""


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
    """The tables for the figures of a release."""
    return "\n".join([*tables(results, MANUAL), LEGEND, spent_table(results, MANUAL)]).rstrip("\n") + "\n"


def text(results):
    """All of it."""
    parts = tables(results)
    parts.append(spent_table(results))
    met = goals(results)
    if met:
        parts.append("### goals\n\n" + table([["what", "goal", "figure", "", "before", ""], *met]))
    if results.notes:
        parts.append("\n".join(results.notes) + "\n")
    parts.append(LEGEND)
    return "\n".join(part for part in parts if part)
