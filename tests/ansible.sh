#!/usr/bin/env bash
# Makes a virtual environment with ansible-playbook in a directory:
# tests/ansible.sh DIR. Nothing outside DIR is written; 120 MB, a minute
# the first time. Needs Python 3.11 with venv, and a package index.
#
# From the index rather than from the distribution: it needs no root, and the
# version is the same on every machine.
set -euo pipefail

dir=${1:?usage: ansible.sh DIR}
wanted='ansible-core==2.19.14 cffi==2.1.1 cryptography==50.0.2 Jinja2==3.1.6 MarkupSafe==3.0.4
packaging==26.3 pycparser==3.12 PyYAML==6.0.3 resolvelib==1.2.1'
lint=ansible-lint==26.10.1

if [[ -e $dir/done && $(<"$dir/done") == "$wanted $lint" ]]; then
    exit 0
fi
rm -rf -- "$dir"
mkdir -p "$dir"
timeout 60 python3 -m venv "$dir"
# shellcheck disable=SC2086  # a list of words
timeout 180 "$dir/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 1 \
    --only-binary :all: $wanted
"$dir/bin/ansible-playbook" --version >/dev/null
# The lint of the collection; the test that needs it says so where it is missing.
timeout 180 "$dir/bin/pip" install --quiet --disable-pip-version-check --no-input --retries 1 \
    --only-binary :all: "$lint" || echo "no $lint" >&2
printf '%s\n' "$wanted $lint" >"$dir/done"
