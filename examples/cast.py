#!/usr/bin/env python3
"""Makes docs/demo.svg of what examples/demo.sh prints: DEMO_LINES=1000 examples/demo.sh | examples/cast.py > docs/demo.svg

One frame for each command from `doctor` on, one after the other, in a loop. Text stays text."""
import sys
from xml.sax.saxutils import escape

ROWS, WIDTH, LINE, SECONDS = 19, 820, 18, 6
KEEP = ("doctor", "verify", "apply", "verify")


def frames(text):
    """The commands with their output, from `doctor` on; the comment above a command comes first."""
    blocks, comment = [], ""
    for line in text.splitlines():
        if line.startswith("# "):
            comment = line
        elif line.startswith("$ mco-rescue"):
            blocks.append([comment, "", line])
        elif blocks and not line.startswith("$ "):
            blocks[-1].append(line)
    names = [block[2].split()[2] for block in blocks]
    blocks, shown = blocks[names.index("doctor"):], []
    for block in blocks:
        if len(shown) < len(KEEP) and block[2].split()[2] == KEEP[len(shown)]:
            shown.append(block)
    return [shorten(block) for block in shown]


def shorten(block):
    while block and not block[-1]:
        block.pop()
    if len(block) <= ROWS:
        return block
    # What came of a run is below its plan; of a report the beginning counts.
    applied = [at for at, line in enumerate(block) if line.startswith("Applied")]
    end = block[applied[0] : applied[0] + 2] if applied else block[-1:]
    return block[: ROWS - 1 - len(end)] + ["...", *end]


def text_of(line, row):
    kind = "c" if line.startswith("#") else "p" if line.startswith("$") else "o"
    bad = line.startswith(("WARNING", "Differences")) or "maxOpenFiles" in line or "[exit code 3]" in line
    good = line.startswith(("Applied", "Clean", "Done"))
    kind = "b" if bad else "g" if good else kind
    return f'<text class="{kind}" x="16" y="{44 + row * LINE}" xml:space="preserve">{escape(line)}</text>'


def main():
    all_frames = frames(sys.stdin.read())
    count, height = len(all_frames), 44 + ROWS * LINE
    share = 100 / count
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="The demo of mco-rescue">')
    print("<style>")
    print("text{font:13px monospace;fill:#d8dee9}.c{fill:#8fa1b3}.p{fill:#fff;font-weight:bold}.b{fill:#ffb86c}.g{fill:#7fd88f}")
    print(f".f{{opacity:0;animation:f {count * SECONDS}s step-end infinite}}@keyframes f{{0%{{opacity:1}}{share:g}%{{opacity:0}}}}")
    print("@media(prefers-reduced-motion:reduce){.f{animation:none}.f:first-of-type{opacity:1}}")
    print("</style>")
    print(f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#1d2430"/>')
    for color, x in (("#ff5f56", 18), ("#ffbd2e", 36), ("#27c93f", 54)):
        print(f'<circle cx="{x}" cy="16" r="5" fill="{color}"/>')
    for at, lines in enumerate(all_frames):
        print(f'<g class="f" style="animation-delay:{at * SECONDS}s">')
        for row, line in enumerate(lines):
            print(text_of(line, row))
        print("</g>")
    print("</svg>")


main()
