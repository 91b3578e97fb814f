#!/usr/bin/env bash
# Story: a person edited a managed file on a node by hand. See it as the
# Machine Config Daemon will see it, and put it right, with nothing but the
# node itself. Works on a scratch directory; root is not needed.
set -euo pipefail

cd "$(dirname "$0")/.."
project=$PWD

# How many lines of a long listing are shown.
lines=${DEMO_LINES:-18}

# One root file below the scratch directory, made with its directories.
node_file() {
    mkdir -p "node/$(dirname "$1")"
    cat >"node/$1"
}

vendor_unit() {
    node_file "usr/lib/systemd/system/$1" <<UNIT
[Unit]
Description=$2

[Service]
ExecStart=$3

[Install]
WantedBy=multi-user.target
UNIT
}

# A small node: what the operating system brings, before any configuration.
make_node() {
    local uid gid
    uid=$(id -u)
    gid=$(id -g)
    mkdir -p node/var/lib node/home/core
    chmod 0700 node/home/core
    echo 0f1e2d3c4b5a69788796a5b4c3d2e1f0 | node_file etc/machine-id
    echo worker-0 | node_file etc/hostname
    printf '%s\n' 'ID="rhcos"' 'VARIANT_ID=coreos' \
        'PRETTY_NAME="Red Hat Enterprise Linux CoreOS 418.94"' |
        node_file etc/os-release
    printf '%s\n' "root:x:0:0::/root:/bin/bash" "core:x:$uid:$gid::/home/core:/bin/bash" |
        node_file etc/passwd
    printf '%s\n' 'root:*:20000::::::' 'core:*:20000::::::' | node_file etc/shadow
    printf '%s\n' 'root:x:0:' "core:x:$gid:" | node_file etc/group
    chmod 0600 node/etc/shadow
    echo '# written when the node joined' | node_file etc/kubernetes/kubeconfig
    chmod 0600 node/etc/kubernetes/kubeconfig
    vendor_unit chronyd.service 'Network time' '/usr/sbin/chronyd -n'
    vendor_unit crio.service 'Container runtime' /usr/bin/crio
}

# Type, name, inode and time of everything below etc: differs when touched.
fingerprint() {
    find node/etc ! -type d -printf '%y %p %i %T@\n' | LC_ALL=C sort
}

say() {
    printf '\n# %s\n' "$*"
}

fail() {
    printf '\ndemo: %s\n' "$*" >&2
    exit 1
}

# Runs mco-rescue, shows the command and what it says, and checks that it
# ends with the exit code given first. The whole output is left in `output`.
run() {
    local expected=$1 code=0 total
    shift
    printf '\n$ mco-rescue %s\n' "$*"
    "$binary" "$@" >output 2>&1 || code=$?
    fold -s -w 80 output >folded
    total=$(wc -l <folded)
    if ((code != expected)); then
        cat folded
        fail "mco-rescue $1 ended with exit code $code, expected $expected"
    fi
    head -n "$lines" folded
    if ((total > lines)); then
        echo "[... $((total - lines)) more lines]"
    fi
    if ((code != 0)); then
        echo "[exit code $code]"
    fi
}

expect() {
    grep -qF -- "$1" output || fail "expected this in the output above: $1"
}

# BINARY names one that is built already.
if [[ -n ${BINARY-} ]]; then
    binary=$(realpath "$BINARY")
else
    # Flags from outside would replace the static linking that the project asks for.
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_TARGET
    # Quick to build: the release is optimised as a whole, which takes minutes.
    echo 'Building the program; the first time takes some two minutes ...'
    cargo build --profile demo --locked
    host=$(rustc -vV | sed -n 's/^host: //p')
    target=${CARGO_TARGET_DIR:-target}
    binary=$(realpath "$target/$host/demo/mco-rescue")
fi

scratch=$(mktemp -d)
trap 'cd /; chmod -R u+rwX "$scratch"; rm -rf "$scratch"' EXIT
cd "$scratch"
umask 022
make_node
cp "$project/examples/rendered-worker.yaml" worker.yaml

say 'What is in this config?'
run 0 show worker.yaml

say 'What would it change on this node? (Nothing is touched.)'
run 0 plan worker.yaml --root node

say 'Make the node be what the config says.'
run 0 apply worker.yaml --yes --root node

say 'Is it? Asked as the Machine Config Daemon asks.'
run 0 verify --root node

say 'A person edits the kubelet configuration by hand.'
drifted=etc/kubernetes/kubelet.conf
cp "node/$drifted" intended
fingerprint >before
printf '\n$ echo "maxOpenFiles: 2000000" >> node/%s\n' "$drifted"
echo 'maxOpenFiles: 2000000' >>"node/$drifted"

say 'What is wrong with this node?'
run 3 doctor --root node
expect "FP-03"

say 'The daemon would call this node Degraded. Same check, before it does:'
run 3 verify --root node
expect "unexpected on-disk state validating against rendered-worker-"
expect "content mismatch for file \"/$drifted\""

say 'What would be done about it?'
run 0 plan --root node
expect "$drifted"

say 'Do it.'
run 0 apply --yes --root node
cmp -s "node/$drifted" intended || fail "/$drifted is not what the config says"
fingerprint >after
touched=$({ diff before after || true; } | sed -n 's/^[<>] . node\/\([^ ]*\) .*/\1/p' | sort -u)
[[ $touched == "$drifted" ]] || fail "the repair should touch $drifted alone, but touched: $touched"
echo "[under node/etc only $drifted was replaced]"

say 'And now?'
run 0 verify --root node
run 0 status --root node

printf '\nDone: the file is back, nothing else was touched, and the node is clean.\n'
