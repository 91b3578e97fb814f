# The power fails while the node's disk is being changed: what one boot of a
# tiny guest does. FS, DOCTOR and STEP are set by the case; a.json and b.json
# are the two configs, and /tree is the node before any.
# shellcheck shell=dash

begin() {
    if [ "$FS" = xfs ]; then
        load xfs
    fi
    mount -t "$FS" /dev/vda /mnt || echo "BROKEN mount"
}

rescue() {
    mco-rescue "$@" --root /mnt >/tmp/said 2>&1
    code=$?
}

apply() {
    rescue apply --yes "/$1.json"
    if [ $code != 0 ]; then
        echo "BROKEN apply $1 ended with $code"
        cat /tmp/said
    fi
}

# The run that is cut off, with a line on the console for each name that changes.
shown() {
    echo "APPLY begin"
    mco-rescue -vv apply --yes --root /mnt /b.json >/tmp/said || echo "BROKEN apply b"
    echo "APPLY done"
}

# Type, mode, owner, link target and content of everything but our own state.
everything() {
    find . \( -path ./var/lib/mco-rescue -o -path ./lost+found \) -prune -o -print | sort >/tmp/paths
    xargs stat -c '%A %u:%g %N' </tmp/paths
    find . -path ./var/lib/mco-rescue -prune -o -type f -print | sort | xargs sha256sum
}

tree() {
    (cd /mnt && everything) >/tmp/tree
    echo "TREE $1 $(sha256sum </tmp/tree | cut -c 1-64)"
}

# What no finished run leaves.
leftovers() {
    for name in intent.json journal.json committed stage; do
        if [ -e "/mnt/var/lib/mco-rescue/$name" ]; then
            echo "BROKEN $name is left over"
        fi
    done
}

prepare() {
    cp -a /tree/. /mnt/
    apply a
    apply b
    apply a
    tree a
    sync
    shown
    tree b
    apply a
    tree a
}

recovered() {
    if [ -n "$DOCTOR" ]; then
        rescue doctor
        echo "DOCTOR $(grep -o 'FP-10: .*' /tmp/said)"
    fi
    rescue recover --output json
    echo "RECOVER $code $(tr -d '\n' </tmp/said)"
    tree found
    cp /tmp/tree /tmp/found
    apply b
    tree ended
    rescue verify
    [ $code = 0 ] || echo "BROKEN verify ended with $code: $(cat /tmp/said)"
    leftovers
    apply a
    tree again
    # Only what neither config makes of the node is worth the console's time.
    grep -qsF "$(sha256sum </tmp/found | cut -c 1-64)" /known || sed 's/^/BETWEEN /' /tmp/found
    sync
}

begin
case $STEP in
    prepare) prepare ;;
    last) recovered ;;
    first-cut | cut)
        [ "$STEP" = first-cut ] || recovered
        shown
        # The power is cut now, if not before.
        while :; do
            sleep 1
        done
        ;;
esac
cd /
umount /mnt
