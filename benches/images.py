"""An OS image in an OSTree repository, as a node has it after an import: what `image export` and its import are measured with."""

import random
import shutil
import subprocess

MIB = 1024 * 1024
IMAGE = f"quay.example/os@sha256:{'2' * 64}"
REF = f"ostree/container/image/docker_3A__2F__2F_quay_2E_example/os_40_sha256_3A_{'2' * 64}"
LAYER = f"sha256:{'1' * 64}"
LAYER_REF = f"ostree/container/blob/sha256_3A_{'1' * 64}"


def ostree(repository, *arguments):
    """Runs ostree on a repository; returns what it printed."""
    command = ["ostree", f"--repo={repository}", *arguments]
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip()


def make_sibling(root, scratch, mib):
    """A node's repository below `root` with one image of so many MiB: most files are small, and most bytes are in large ones."""
    tree = scratch / "tree"
    chance = random.Random(1)
    left, number = mib * MIB, 0
    while left > 0:
        directory = tree / f"usr/lib/{number % 997}"
        directory.mkdir(parents=True, exist_ok=True)
        size = min(left, int(chance.paretovariate(0.75) * 900), 64 * MIB)
        (directory / str(number)).write_bytes(chance.randbytes(size))
        left, number = left - max(size, 1), number + 1
    repository = root / "sysroot/ostree/repo"
    repository.mkdir(parents=True)
    ostree(repository, "init", "--mode=bare")
    ostree(repository, "config", "set", "core.fsync", "false")
    fixed = ["commit", "--no-bindings", f"--tree=dir={tree}"]
    ostree(repository, *fixed, f"--branch={LAYER_REF}")
    manifest = f'{{"schemaVersion":2,"layers":[{{"mediaType":"x","digest":"{LAYER}","size":1}}]}}'
    metadata = {"manifest-digest": IMAGE.split("@")[1], "manifest": manifest}
    words = [f"--add-metadata-string=ostree.{key}={value}" for key, value in metadata.items()]
    ostree(repository, *fixed, f"--branch={REF}", *words)
    ostree(repository, "config", "set", "core.fsync", "true")
    shutil.rmtree(tree)
    return repository


def import_command(repository, export):
    """What an import from a directory runs on a node."""
    commit = ostree(export, "rev-parse", REF)
    pull = ["pull-local", "--untrusted", "--disable-verify-bindings", str(export), commit, LAYER_REF]
    return ["ostree", f"--repo={repository}", *pull]
