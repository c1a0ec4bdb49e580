#!/bin/sh
# A process where a runtime's createRuntime hooks meet one: in a cgroup and a mount namespace of its own,
# its root mounted, a tmpfs on /dev, what the kernel tells of the driver in /proc, not yet pivoted. Says "parked",
# then stays until it is killed.
#
#   unshare --mount --propagation private park.sh CGROUP ROOT DRIVER_ROOT
set -eu
echo 0 >"$1/cgroup.procs"
mount --bind "$2" "$2"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$2/dev"
mount --bind "$3/proc/driver" "$2/proc/driver"
echo parked
exec sleep 1000000
