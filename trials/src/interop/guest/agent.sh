# The guest's program number 1, on the host's root. Sets up what a system has, then does what the
# host asks for through a virtio port, one line each:
#     run NAME      run NAME.sh of the shared folder, its output to NAME.out, answer "done NAME STATUS"
#     start NAME    the same without waiting for its end, which leaves its status in NAME.status
#     stop          write everything to the disks and switch off
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run LC_ALL=C.UTF-8
box=/run/interop/busybox

find_port() {
    for port in /sys/class/virtio-ports/*; do
        if [ "$($box cat "$port/name" 2>/dev/null)" = interop ]; then
            echo "/dev/${port##*/}"
            return
        fi
    done
}

tries=0
until control=$(find_port) && [ -c "$control" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 200 ] || $box poweroff -f
    $box usleep 50000
done
exec 8<>"$control"

$box hostname guest
$box mkdir -p /dev/pts /dev/shm
$box mount -t devpts devpts /dev/pts
$box mount -t tmpfs -o mode=1777 shm /dev/shm
$box ln -s /proc/self/fd /dev/fd

$box mkdir -p "/lib/modules/$interop_release"
$box mount --bind "$interop_modules" "/lib/modules/$interop_release"

$box mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=512000 share "$interop_share" ||
    echo "trouble cannot mount the shared folder" >&8

modprobe -a virtio_net virtio_blk nvme || echo "trouble cannot load drivers" >&8
$box ip link set lo up
tries=0
until [ -e /sys/class/net/eth0 ] || [ "$tries" -gt 100 ]; do
    tries=$((tries + 1))
    $box usleep 50000
done
$box ip link set eth0 up
$box ip addr add 10.0.2.15/24 dev eth0
$box ip route add default via 10.0.2.2

cd "$interop_share"
echo "ready $($box cut -d ' ' -f 1 /proc/uptime)" >&8
while read -r verb name <&8; do
    case $verb in
    run)
        /bin/sh "./$name.sh" </dev/null >"./$name.out" 2>&1 8>&-
        echo "done $name $?" >&8
        ;;
    start)
        $box setsid /bin/sh -c '/bin/sh "./$1.sh" </dev/null >"./$1.out" 2>&1; echo $? >"./$1.status"' \
            - "$name" 8>&- &
        echo "done $name 0" >&8
        ;;
    stop)
        $box sync
        $box poweroff -f
        ;;
    esac
done
$box poweroff -f
