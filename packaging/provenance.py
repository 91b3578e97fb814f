#!/usr/bin/env python3
"""Prints the provenance of the files of the working directory: an in-toto statement with a SLSA predicate.

    packaging/provenance.py COMMIT

It names the sources, the compiler and the digests. It has no time and no name of a machine, so a second build gives the same
statement, and a difference is one of the files.
"""

import hashlib
import json
import os
import re
import subprocess
import sys

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
KINDS = (".tar.gz", ".json", ".rpm", ".raw")


def digest_of(path):
    """Returns the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def said_by(*command):
    """Returns what a program prints, or nothing where it is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def compilers_for(names):
    """Returns the compiler for C of each architecture that a packed program is for."""
    own = os.uname().machine
    compilers = {}
    for name in names:
        arch = name.removesuffix(".tar.gz").rpartition("-")[2]
        if name.endswith(".tar.gz") and not arch[:1].isdigit():
            tools = "" if arch == own else arch.replace("ppc64le", "powerpc64le") + "-linux-gnu-"
            compilers[arch] = said_by(tools + "gcc", "--version").partition("\n")[0]
    return compilers


def main():
    """Prints the statement."""
    commit = sys.argv[1] if len(sys.argv) > 1 else ""
    names = sorted(name for name in os.listdir(".") if name.endswith(KINDS) and name != "provenance.json")
    with open(os.path.join(SOURCES, "Cargo.toml"), encoding="utf-8") as file:
        version = re.search(r'^version = "(.*)"', file.read(), re.MULTILINE).group(1)
    lock = os.path.join(SOURCES, "Cargo.lock")
    sources = [{"name": "Cargo.lock", "digest": {"sha256": digest_of(lock)}}]
    if commit:
        sources.insert(0, {"name": "mco-rescue", "digest": {"gitCommit": commit}})
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest_of(name)}} for name in names],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:mco-rescue:make-release:v1",
                "externalParameters": {"version": version, "commit": commit, "command": "make release"},
                "internalParameters": {
                    "rustc": said_by("rustc", "--version"),
                    "cargo": said_by("cargo", "--version"),
                    "cc": compilers_for(names),
                },
                "resolvedDependencies": sources,
            },
            "runDetails": {"builder": {"id": "urn:mco-rescue:by-hand"}},
        },
    }
    print(json.dumps(statement, indent=2))


if __name__ == "__main__":
    main()
