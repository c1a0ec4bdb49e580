#!/bin/sh
# Installs the programs that `make lint`, `make demo`, `make test`, `make fuzz` or `make bench` need and that are missing
# (Debian, Ubuntu). Changes nothing when all are there.
#
#   tests/setup.sh lint|demo|test|fuzz|bench
set -eu
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
missing=

# need PROGRAM PACKAGE
need() {
    command -v "$1" >/dev/null || missing="$missing $2"
}

# Containers of the tests have no libraries: busybox must not want any.
need_static_busybox() {
    busybox=$(command -v busybox) && ! grep -q '/ld-linux' "$busybox" || missing="$missing busybox-static"
}

case ${1-} in
lint)
    need shellcheck shellcheck
    ;;
demo)
    need runc runc
    need_static_busybox
    ;;
test)
    need runc runc
    need crun crun
    need podman podman
    need containerd containerd
    need ctr containerd
    need gcc gcc
    need musl-gcc musl-tools
    need capnp capnproto
    need strace strace
    need bpftool bpftool
    need unshare util-linux
    need script bsdutils
    need mount mount
    need chattr e2fsprogs
    need awk mawk
    need_static_busybox
    ;;
fuzz)
    need g++ g++
    ;;
bench)
    need runc runc
    need time time
    need unshare util-linux
    need mount mount
    need chattr e2fsprogs
    need awk mawk
    need_static_busybox
    ;;
*)
    echo "usage: tests/setup.sh lint|demo|test|fuzz|bench" >&2
    exit 64
    ;;
esac

[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "tests/setup.sh: missing:$missing (install them, or run this as root where there is apt-get)" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
# One source that does not answer is no reason to stop: what cannot be had is named by the install.
apt-get update || true
# shellcheck disable=SC2086 # one word per package
apt-get install --yes --no-install-recommends $missing
