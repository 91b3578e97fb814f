# Runs on disks that record each request: what the tiny guest does. The case
# sets FS, OPTIONS and MARKS, and for each story NAME, DISKS, PAUSE, PROGRAM,
# ARGUMENTS and place(), which mounts the directories of the disks at /mnt.
# shellcheck shell=dash disable=SC2086

# Writes a text to the disk for marks, which no file system is on.
mark() {
    echo "$1" | dd of="/dev/$MARKS" bs=4096 conv=sync,fsync,notrunc 2>/tmp/dd || cat /tmp/dd
}

# Another program that makes the file systems write their journals, with so many microseconds between.
bother() {
    while :; do
        usleep "$PAUSE"
        for path in etc var; do
            dd if=/dev/zero of="/mnt/$path/of-others" bs=1 count=1 conv=notrunc,fsync 2>/dev/null
            # The names in it as well.
            sync "/mnt/$path"
        done
    done
}

story() {
    for disk in $DISKS; do
        mkdir -p "/disks/$disk"
        mount -t "$FS" -o "$OPTIONS" "/dev/$disk" "/disks/$disk" || echo "BROKEN mount $disk"
    done
    place
    # Hundredths of a second until contents are written.
    if [ "${PAUSE:-0}" = 0 ]; then
        expire=3000
    else
        expire=1
    fi
    echo $expire >/proc/sys/vm/dirty_expire_centisecs
    echo $expire >/proc/sys/vm/dirty_writeback_centisecs
    sync
    mark "begin $NAME"
    if [ -n "$PAUSE" ]; then
        bother &
        other=$!
    fi
    $PROGRAM $ARGUMENTS >/tmp/said 2>&1
    code=$?
    if [ $code = 0 ]; then
        mark "done $NAME"
    else
        echo "BROKEN $ARGUMENTS ended with $code"
        cat /tmp/said
    fi
    if [ -n "$PAUSE" ]; then
        # Some of what the run has left to be written goes to the disks one by one.
        usleep 20000
        kill $other
        wait $other
    fi
    sync
    mark "end $NAME"
    grep -o ' /mnt[^ ]*' /proc/mounts | sort -r | xargs umount
    umount /disks/*
    rmdir /disks/*
}

if [ "$FS" != ext4 ]; then
    load "$FS"
fi
