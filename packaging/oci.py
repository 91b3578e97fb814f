#!/usr/bin/env python3
"""Makes an image `FROM scratch` of a packed release, as an OCI layout: no daemon, no registry, the same bytes again.

    packaging/oci.py TARBALL OUT      OUT gets the directory mco-rescue-VERSION-ARCH.oci

`skopeo copy oci:DIRECTORY docker://REGISTRY/mco-rescue:VERSION` publishes it. Its one layer is /usr of the release, for
`COPY --from=` in an image of nodes; run, it starts the program.
"""

import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
from datetime import datetime, timezone

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TYPE = "application/vnd.oci.image."


def put(out, data, kind):
    """Writes a blob, and returns its descriptor."""
    digest = hashlib.sha256(data).hexdigest()
    with open(os.path.join(out, "blobs", "sha256", digest), "wb") as file:
        file.write(data)
    return {"mediaType": TYPE + kind, "digest": "sha256:" + digest, "size": len(data)}


def make_layer(tarball):
    """Returns /usr of the release as a tar archive, and the time of its files."""
    layer = io.BytesIO()
    time = 0
    with tarfile.open(tarball) as source, tarfile.open(fileobj=layer, mode="w", format=tarfile.GNU_FORMAT) as copy:
        for member in source:
            top, _, path = member.name.partition("/")
            if path == "usr" or path.startswith("usr/"):
                time = int(member.mtime)
                member.name = path
                copy.addfile(member, source.extractfile(member) if member.isreg() else None)
    return layer.getvalue(), time


def main():
    """Writes the layout."""
    tarball = sys.argv[1]
    name = os.path.basename(tarball).removesuffix(".tar.gz")
    _, _, rest = name.partition("mco-rescue-")
    version, _, arch = rest.rpartition("-")
    out = os.path.join(sys.argv[2], name + ".oci")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(os.path.join(out, "blobs", "sha256"))
    layer, time = make_layer(tarball)
    created = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "mco-rescue",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0",
    }
    config = {
        "created": created,
        "architecture": ARCHITECTURES.get(arch, arch),
        "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/mco-rescue"], "Env": ["PATH=/usr/bin"], "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": created, "created_by": "packaging/oci.py"}],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": TYPE + "manifest.v1+json",
        "config": put(out, json.dumps(config).encode(), "config.v1+json"),
        "layers": [put(out, gzip.compress(layer, 9, mtime=0), "layer.v1.tar+gzip")],
        "annotations": labels,
    }
    described = put(out, json.dumps(manifest).encode(), "manifest.v1+json")
    described["annotations"] = {"org.opencontainers.image.ref.name": version}
    index = {"schemaVersion": 2, "mediaType": TYPE + "index.v1+json", "manifests": [described]}
    for path, document in (("index.json", index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
        with open(os.path.join(out, path), "w", encoding="utf-8") as file:
            json.dump(document, file)
    print(out)


if __name__ == "__main__":
    main()
