#!/usr/bin/env python3
"""Makes a bill of materials from standard input the same wherever and whenever it was made.

    cargo sbom ... | packaging/settle-sbom.py TARGET

Lists, whose order is chance, are sorted. The time becomes that of the commit (SOURCE_DATE_EPOCH), a random number one of the contents, and a path of this machine the name of
the project. The target is added as a property or an annotation of the document.
"""

import json
import os
import re
import sys
import uuid
from datetime import datetime, timezone


def settle(value):
    """Returns a document in which lists are sorted, and a path of this machine is the project."""
    if isinstance(value, dict):
        return {key: settle(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted((settle(one) for one in value), key=lambda one: json.dumps(one, sort_keys=True))
    if isinstance(value, str):
        return re.sub(r"(path\+)?file://[^#\s\"]*", "project:mco-rescue", value)
    return value


def main():
    """Prints the document."""
    target = sys.argv[1]
    document = settle(json.load(sys.stdin))
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    created = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    is_spdx = "spdxVersion" in document
    if is_spdx:
        document["creationInfo"]["created"] = created
        document["documentNamespace"] = ""
        document["name"] = "mco-rescue"
        document["comment"] = f"target: {target}"
    else:
        document["serialNumber"] = ""
        document.setdefault("metadata", {})["timestamp"] = created
        # The user who ran cargo-sbom.
        document["metadata"].pop("authors", None)
        # cargo-sbom gives it the name of the directory.
        document["metadata"].setdefault("component", {})["name"] = "mco-rescue"
        properties = document["metadata"].setdefault("properties", [])
        properties.append({"name": "cargo:target", "value": target})
    text = json.dumps(document, sort_keys=True)
    number = uuid.uuid5(uuid.NAMESPACE_URL, text)
    if is_spdx:
        document["documentNamespace"] = f"https://spdx.org/spdxdocs/mco-rescue-{number}"
    else:
        document["serialNumber"] = f"urn:uuid:{number}"
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
