#!/usr/bin/env python3
"""Prints the licences of everything that is linked into the program, with their texts.

    packaging/third-party.py TARGET

The list is that of Cargo.lock for the target; the texts are in the crates themselves. Of the C library, of GCC's part and of
Rust's library they are those of this machine's packages. The output is the same of the same versions: no path of this machine,
no date. A text that is missing is an error, and names the crate.
"""

import json
import os
import subprocess
import sys

NAMES = ("LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE")
RULE = "=" * 78
# The C library is linked in. Its licence asks for a way to link the program with another one.
RELINK = """The program is linked statically with the GNU C library, which is under the LGPL, version 2.1 or later. The complete
source of the program and the commands of its build are public: `make static` links it with the C library of
your machine."""
# Name, and the places of its text: Debian, then Fedora.
SYSTEM = (
    ("GNU C library", ("/usr/share/doc/libc6-dev/copyright", "/usr/share/licenses/glibc/LICENSES")),
    (
        "GNU Lesser General Public License, version 2.1",
        ("/usr/share/common-licenses/LGPL-2.1", "/usr/share/licenses/glibc/COPYING.LIB"),
    ),
    (
        "libgcc, with the GCC Runtime Library Exception",
        ("/usr/share/doc/libgcc-s1/copyright", "/usr/share/licenses/libgcc/COPYING.RUNTIME"),
    ),
)


def fail(message):
    """Ends the program with a message."""
    sys.exit(f"packaging/third-party.py: {message}")


def said_by_cargo(*arguments):
    """Returns what cargo prints."""
    said = subprocess.run(("cargo", *arguments), stdout=subprocess.PIPE, text=True, check=False)
    if said.returncode != 0:
        fail("cargo does not list the crates; run `cargo fetch --locked` first")
    return said.stdout


def list_linked(target):
    """Returns the packages of the program, without those that only tests, build scripts and the compiler use."""
    form = ("--prefix", "none", "--format", "{p}")
    tree = said_by_cargo("tree", "--locked", "-e", "normal,no-proc-macro", "--target", target, *form)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    listed = json.loads(said_by_cargo("metadata", "--format-version", "1", "--locked", "--filter-platform", target))
    # The program itself has no source: its licence is in LICENSE.
    packages = [
        package
        for package in listed["packages"]
        if package["source"] and (package["name"], "v" + package["version"]) in linked
    ]
    return sorted(packages, key=lambda one: (one["name"], one["version"]))


def read_texts(package):
    """Returns the texts of one crate, in the order of their names."""
    directory = os.path.dirname(package["manifest_path"])
    names = sorted(name for name in os.listdir(directory) if name.upper().startswith(NAMES))
    texts = []
    for name in names:
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append((name, file.read().replace("\r\n", "\n").strip()))
    return texts


def print_crates(packages):
    """Prints the list of the crates, and each distinct text once with the crates that it is of."""
    print(RULE, "Crates", RULE, "", sep="\n")
    users = {}
    for package in packages:
        licence = (package["license"] or "see the text").replace("/", " OR ")
        print(f"{package['name']} {package['version']}: {licence}")
        texts = read_texts(package)
        if not texts:
            # A crate of a workspace whose licence is beside the others.
            texts = [
                text
                for other in packages
                if other["repository"] and other["repository"] == package["repository"]
                for text in read_texts(other)
            ]
        if not texts:
            fail(f"{package['name']} {package['version']} has no text of its licence ({licence})")
        for name, text in texts:
            users.setdefault(text, (name, []))[1].append(f"{package['name']} {package['version']}")
    for text, (name, crates) in users.items():
        print("", RULE, f"{name} of", *(f"  {crate}" for crate in dict.fromkeys(crates)), RULE, "", text, sep="\n")


def print_system():
    """Prints the texts of what is not a crate."""
    for name, places in SYSTEM:
        here = [place for place in places if os.path.isfile(place)]
        if not here:
            fail(f"{name}: no text of its licence at {' or '.join(places)}; install the package that has it")
        with open(here[0], encoding="utf-8", errors="replace") as file:
            print("", RULE, name, RULE, "", file.read().strip(), sep="\n")


def main():
    """Prints everything."""
    if len(sys.argv) != 2:
        fail("usage: packaging/third-party.py TARGET")
    print("What is linked into mco-rescue, with the licence of each part.\n")
    print(RELINK, "\n")
    print("Rust's standard library is under MIT OR Apache-2.0; its notices are in rust-library.html.\n")
    print_crates(list_linked(sys.argv[1]))
    print_system()


if __name__ == "__main__":
    main()
