# An image is exported to a stick: what one boot of a tiny guest does. The case sets FS, IMAGE and STEP. The sibling's disk is
# /dev/vda, the stick /dev/vdb; what is on it at the end is copied to /dev/vdc, which the case can read.
# shellcheck shell=dash

export_to() {
    mco-rescue --root /mnt image export --image "$IMAGE" "$1" >/tmp/said 2>&1
    code=$?
    echo "$2 $code $(tr '\n' ' ' </tmp/said)"
}

free() {
    df -Pk /stick | awk 'END { print $4 }'
}

# More and more room, until all of it finds room.
fills() {
    left=1400
    while :; do
        dd if=/dev/zero of=/stick/filler bs=1k count=$(($(free) - left)) 2>/dev/null
        export_to /stick/os "FILLED"
        [ $code != 0 ] || break
        [ ! -e /stick/os/objects ] || echo "HALF with $left KiB"
        rm /stick/filler
        left=$((left + 150))
    done
    rm /stick/filler
}

everything() {
    fills
    rm -r /stick/os
    export_to /stick/os WHOLE
    export_to /stick/os AGAIN
    mount -o remount,ro /stick
    export_to /stick/other READONLY
    export_to /stick/os READONLY
    mco-rescue --root /mnt image list /stick/os -o json >/tmp/said 2>&1
    echo "LISTED $(tr -d '\n' </tmp/said)"
    mount -o remount,rw /stick
    # Sparse, as nobody looks into it before its size is known.
    object=$(find /mnt/sysroot/ostree/repo/objects -name '*.file' -size +900k | head -n 1)
    truncate -s 4294967296 "$object"
    rm -r /stick/os
    export_to /stick/os LARGE
    [ ! -e /stick/os/objects ] || echo "HALF with a large file"
    export_to /stick/os.tar LARGE
    [ ! -e /stick/os.tar ] || echo "HALF with a large archive"
    truncate -s 1000000 "$object"
    export_to /stick/os MENDED
}

load "$FS"
mkdir /stick
mount -t ext4 /dev/vda /mnt
mount -t "$FS" /dev/vdb /stick || echo "HALF mount"
case $STEP in
    everything) everything ;;
    again)
        mco-rescue --root /mnt image list /stick/os -o json >/tmp/said 2>&1
        echo "LISTED $(tr -d '\n' </tmp/said)"
        export_to /stick/os AGAIN
        ;;
    cut)
        export_to /stick/os BEGUN &
        echo "EXPORTS"
        wait
        ;;
esac
umount /stick
# As it is in the next machine that it is put into.
mount -t "$FS" -o ro /dev/vdb /stick || echo "HALF mount"
mkdir /copy
mount -t ext4 /dev/vdc /copy
cp -r /stick/os /copy/
umount /stick /mnt /copy
