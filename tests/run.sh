#!/usr/bin/env bash
# Runs `cargo test` with the given options, and says what was skipped and why,
# before the last summary: tests/run.sh [OPTION...]
set -euo pipefail

skips=$(mktemp)
trap 'rm -f -- "$skips"' EXIT
export MCO_RESCUE_SKIPS=$skips

# The reasons, each with its count, in the order of docs/develop/testing.md's words.
list_skipped() {
    local count
    count=$(wc -l <"$skips")
    if ((count == 0)); then
        printf '\nSkipped: nothing.\n'
        return
    fi
    printf '\nSkipped: %s (docs/develop/testing.md explains the words).\n' "$count"
    cut -f 1,2 "$skips" | sort | uniq -c | while read -r times word why; do
        printf '%5d  %-12s %s\n' "$times" "$word" "$why"
    done
}

# The summary of a test program is held back until the next one prints: the list comes before the last.
run() {
    local line held=''
    while IFS= read -r line; do
        if [[ $line == 'test result: '* ]]; then
            held=$line
        elif [[ -z $held || -n $line ]]; then
            if [[ -n $held ]]; then
                printf '%s\n\n' "$held"
                held=''
            fi
            printf '%s\n' "$line"
        fi
    done
    if [[ -n $held ]]; then
        list_skipped
        printf '\n%s\n' "$held"
    fi
}

# The pipe would take the colours away.
colours=()
if [[ -t 1 && ! -v NO_COLOR && $* != *' -- '* ]]; then
    colours=(-- --color always)
fi
cargo test --locked "$@" "${colours[@]}" | run
