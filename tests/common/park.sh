#!/bin/sh
# A process where a runtime's createRuntime hooks meet one: in a cgroup and a mount namespace of its own,
# its root mounted and a tmpfs on /dev, not yet pivoted. Says "parked", then stays until it is killed.
#
#   unshare --mount --propagation private park.sh CGROUP ROOT
set -eu
echo 0 >"$1/cgroup.procs"
mount --bind "$2" "$2"
mount -t tmpfs -o nosuid,mode=755 tmpfs "$2/dev"
echo parked
exec sleep 1000000
