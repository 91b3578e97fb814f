"""The documents that are measured: real ones where they are at hand, and generated ones, the same every time."""

import base64
import json
import random
import zlib
from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLE = CHECKOUT / "examples" / "rendered-worker.yaml"
# Captured from the operator; read where it is, never copied.
SHARED = CHECKOUT.parent / "shared" / "data" / "rendered"
VERSION = "3.4.0"
# The newest that Debian's Ignition understands.
IGNITION_KNOWS = "3.3.0"


@dataclass
class Case:
    """A document to be measured, made when its turn comes."""

    name: str
    # Where it is, or what writes it to a path.
    source: object
    # What the file system under it has to hold, in MiB.
    room: int = 1024
    # Above some hundred MiB, Ignition wants more memory than many a machine has.
    ignition: bool = True

    def document(self, work):
        """The path of the document; a generated one is written to `work`."""
        if isinstance(self.source, Path):
            return self.source
        path = work / f"{self.name}.json"
        self.source(path)
        return path


def every_case(quick):
    """All cases in the order in which they are measured, and whether real ones are among them."""
    real = sorted(SHARED.glob("baremetal-worker.json" if quick else "*.json")) if SHARED.is_dir() else []
    cases = [Case(path.stem, path) for path in real]
    cases.append(Case("example-worker", EXAMPLE))
    sizes = (100, 1000) if quick else (100, 1000, 10_000)
    cases += [Case(f"files-{count}", files_of(count)) for count in sizes]
    cases.append(Case("units-100", units_of(100)) if quick else Case("units-1000", units_of(1000)))
    if quick:
        cases += [Case("big-16", big_file(16)), Case("big-16-gzip", big_file(16, True))]
    else:
        cases += [Case("big-32", big_file(32)), Case("big-32-gzip", big_file(32, True))]
        cases += [Case("big-256", big_file(256), 4096), Case("big-256-gzip", big_file(256, True), 4096)]
        cases += [Case("big-512", big_file(512), 6144, False), Case("big-512-gzip", big_file(512, True), 6144, False)]
    return cases, bool(real)


def machine_config(storage=None, units=None):
    """A rendered MachineConfig with these files and units."""
    config = {"ignition": {"version": VERSION}}
    if storage is not None:
        config["storage"] = {"files": storage}
    if units is not None:
        config["systemd"] = {"units": units}
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        # No digest in the name: it would have to be that of the contents.
        "metadata": {
            "name": "rendered-worker-bench",
            "ownerReferences": [{"kind": "MachineConfigPool", "name": "worker"}],
        },
        "spec": {"config": config, "osImageURL": "", "kernelType": "default"},
    }


def file_entry(path, source, compression=None):
    """A file of the config."""
    contents = {"source": source}
    if compression:
        contents["compression"] = compression
    return {"path": path, "mode": 0o644, "overwrite": True, "contents": contents}


def text(generator, size):
    """So many bytes of printable text that hardly compresses."""
    return base64.b64encode(generator.randbytes(size * 3 // 4))[:size]


def data_url(content):
    """The form that the operator gives contents."""
    return "data:text/plain;charset=utf-8;base64," + base64.b64encode(content).decode()


def files_of(count):
    """`count` files of 4 KiB, a hundred to a directory."""

    def write(path):
        generator = random.Random(1)
        entries = [
            file_entry(f"/etc/bench/{at // 100:03d}/file-{at:05d}.conf", data_url(text(generator, 4096)))
            for at in range(count)
        ]
        path.write_text(json.dumps(machine_config(storage=entries)))

    return write


def units_of(count):
    """`count` enabled services, each with a drop-in."""

    def unit(at):
        return {
            "name": f"bench-{at:04d}.service",
            "enabled": True,
            "contents": f"[Unit]\nDescription=Number {at}\nAfter=network.target\n\n"
            f"[Service]\nExecStart=/usr/bin/true {at}\n\n[Install]\nWantedBy=multi-user.target\n",
            "dropins": [{"name": "10-env.conf", "contents": f"[Service]\nEnvironment=NUMBER={at}\n"}],
        }

    return lambda path: path.write_text(json.dumps(machine_config(units=[unit(at) for at in range(count)])))


def big_file(mib, compressed=False):
    """One file of so many MiB, gzipped or not; written piece by piece, as the document may be larger than memory."""

    def write(path):
        marker = "PAYLOAD"
        entry = file_entry("/etc/bench/big.bin", marker, "gzip" if compressed else None)
        head, tail = json.dumps(machine_config(storage=[entry])).split(marker)
        with open(path, "wb") as out:
            out.write(f"{head}data:;base64,".encode())
            pieces = gzipped(log_lines(mib)) if compressed else plain(mib)
            for piece in in_threes(pieces):
                out.write(base64.b64encode(piece))
            out.write(tail.encode())

    return write


def plain(mib):
    """Text that hardly compresses, a MiB at a time."""
    generator = random.Random(2)
    return (text(generator, MIB) for _ in range(mib))


def log_lines(mib):
    """Text that gzip makes an eleventh of or so, a MiB at a time, like a log."""
    generator = random.Random(3)
    line = b"%08d node-%02d kubelet[4711]: MountVolume.SetUp succeeded for volume \"pvc-%02x\"\n"
    lines = [line % (at, generator.randrange(8), generator.randrange(256)) for at in range(20_000)]
    for _ in range(mib):
        cut = generator.randrange(len(lines))
        yield b"".join(lines[cut:] + lines[:cut])[:MIB].ljust(MIB, b"\n")


def gzipped(pieces):
    """The same as one gzip stream, piece by piece."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def in_threes(pieces):
    """The same bytes in pieces whose lengths are multiples of three, so that their base64 can be joined."""
    rest = b""
    for piece in pieces:
        rest += piece
        whole = len(rest) // 3 * 3
        yield rest[:whole]
        rest = rest[whole:]
    yield rest


def for_ignition(recorded, path):
    """
    The same config for Ignition, from the record of an applied one: its own part, without accounts and instances of
    units, which want a whole system in the root.
    """
    config = json.loads(recorded.read_bytes())["spec"]["config"]
    config["ignition"] = {"version": IGNITION_KNOWS}
    config.pop("passwd", None)
    units = config.get("systemd", {}).get("units", [])
    config.setdefault("systemd", {})["units"] = [u for u in units if not ("@" in u["name"] and "enabled" in u)]
    path.write_text(json.dumps(config))
