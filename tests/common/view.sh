#!/bin/sh
# The private view of one simulated host: its cgroup layout, /run and /dev/shm. Run under
# `unshare --mount --propagation private`; says "ready", then waits until its stdin closes, which
# also happens when the test process is killed. Then it ends everything that runs in the host's
# cgroups and removes cgroups, mounts and files, so that no test leaves anything behind.
#
#   view.sh v1|hybrid|v2 NAME DIR
#
# NAME is the top cgroup of the host, DIR its directory. Touches nothing else.
set -eu
layout=$1 name=$2 dir=$3
top=/sys/fs/cgroup

# Ctrl-C reaches the whole process group; the work after it is ours.
trap '' INT TERM HUP

die() {
    echo "view.sh: $*" >&2
    exit 1
}

# The runtimes keep state, locks and sockets at fixed places under /run and in /dev/shm.
mount -t tmpfs -o mode=755 none /run
mount -t tmpfs -o mode=1777 none /dev/shm
mkdir /run/lock /run/cgroup

# A new tmpfs with the host's v1 hierarchies: on its own one, the place of a v2 tree that was
# unmounted would stay, and crun would make directories there. On a host that has only v2, the
# controllers that v2 does not know can still be mounted.
with_v1() {
    mount -t tmpfs -o mode=755 none /run/cgroup
    awk -v top=$top/ '$9 == "cgroup" && index($5, top) == 1 { print $5 }' /proc/self/mountinfo |
        while read -r mounted; do
            mkdir "/run/cgroup/${mounted##*/}"
            mount --bind "$mounted" "/run/cgroup/${mounted##*/}"
        done
    mount_v1 devices devices
    mount_v1 freezer freezer
    mount_v1 systemd none,name=systemd
}

mount_v1() {
    if mountpoint -q "/run/cgroup/$1"; then return; fi
    mkdir "/run/cgroup/$1"
    mount -t cgroup -o "$2" none "/run/cgroup/$1" ||
        die "this kernel has no cgroup v1 '$1' hierarchy (see /proc/cgroups)"
}

with_v2() {
    mkdir -p "$1"
    mount -t cgroup2 none "$1"
}

case $layout in
v2) with_v2 /run/cgroup && tools=$top/$name/tools ;;
v1) with_v1 && tools=$top/devices/$name/tools ;;
hybrid) with_v1 && with_v2 /run/cgroup/unified && tools=$top/devices/$name/tools ;;
*) die "no such cgroup layout: $layout" ;;
esac
umount -R $top
mount --move /run/cgroup $top

mkdir -p "$tools"
echo ready

# Nothing is ever written to stdin: this returns when the test is over, whichever way.
read -r _ || true

# Where a hierarchy is missing, podman makes plain directories: they go with the namespace.
trees() {
    for tree in "$top/$name" "$top"/*/"$name"; do
        if [ -d "$tree" ] && mountpoint -q "${tree%/*}"; then echo "$tree"; fi
    done
}

members() {
    trees | while read -r tree; do
        find "$tree" -name cgroup.procs -exec cat {} + 2>/dev/null || true
    done | sort -un
}

# A process that a v1 freezer holds does not die of SIGKILL.
thaw() {
    trees | while read -r tree; do
        find "$tree" -name freezer.state -exec sh -c 'echo THAWED >"$1"' sh {} \; 2>/dev/null || true
    done
}

# A cgroup goes when its last thread has: a dying process is listed in cgroup.procs no more before that.
remove() {
    trees | while read -r tree; do
        find "$tree" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    done
}

tries=0
while remove && [ -n "$(trees)" ]; do
    tries=$((tries + 1))
    [ $tries -le 500 ] || die "cannot be removed in 10 s: $(trees | tr '\n' ' ')with processes $(members | tr '\n' ' ')"
    thaw
    # shellcheck disable=SC2046 # one word per process id
    kill -KILL $(members) 2>/dev/null || true
    sleep 0.02
done
awk -v dir="$dir/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
    while read -r mounted; do umount -l "$mounted"; done
rm -rf --one-file-system "$dir"
