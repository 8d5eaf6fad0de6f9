#!/bin/busybox sh
# The guest's first program. Puts the host's root file system (9p, read-only) beneath a layer in
# memory, and goes on with agent.sh on top of that. The kernel hands over the words of its command
# line that it does not know itself as environment: $interop_share and the like.
PATH=/bin
/bin/busybox --install -s /bin

give_up() {
    echo "interop: $1" >/dev/console
    sleep 1
    poweroff -f
}

mkdir -p /proc /sys /host /layer /whole
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in $(cat /modules/order); do
    insmod "/modules/$module" || give_up "cannot load $module"
done

# The bus finds its devices while we run.
tries=0
until mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || give_up "cannot mount the host's root"
    usleep 50000
done
mount -t tmpfs -o mode=755 layer /layer
mkdir /layer/changes /layer/scratch
mount -t overlay -o lowerdir=/host,upperdir=/layer/changes,workdir=/layer/scratch whole /whole ||
    give_up "cannot lay memory over the host's root"

mount -t tmpfs -o mode=755 run /whole/run
mkdir /whole/run/interop
cp /bin/busybox /agent.sh /whole/run/interop/
for folder in proc sys dev; do
    mount --move "/$folder" "/whole/$folder"
done
exec switch_root /whole /run/interop/busybox sh /run/interop/agent.sh
