#!/bin/bash
# A check for greenboot, in /etc/greenboot/check/required.d or wanted.d: fails while this node
# needs a person. greenboot runs it at the end of a boot.
#
# MCO_RESCUE: the program, if it is not found by its name.
set -euo pipefail

program=${MCO_RESCUE:-mco-rescue}
if ! command -v "$program" >/dev/null; then
    for program in /usr/local/bin/mco-rescue /usr/bin/mco-rescue; do
        [[ -x $program ]] && break
    done
fi
if ! command -v "$program" >/dev/null; then
    echo 'mco-rescue is not installed on this node, so nothing is checked.'
    exit 0
fi

# An unfinished run, or a boot that failed, is no matter of doctor's other checks.
code=0
"$program" doctor --quiet || code=$?
case $code in
    0) echo 'mco-rescue doctor: nothing to do' ;;
    3) echo 'mco-rescue doctor: a warning; the boot counts as good. Next: mco-rescue doctor' ;;
    6)
        echo 'mco-rescue doctor: something critical. Next: mco-rescue doctor' >&2
        exit 1
        ;;
    *)
        echo "mco-rescue doctor ended with $code, so the node could not be judged. Next: mco-rescue doctor" >&2
        exit 1
        ;;
esac
