#!/bin/sh
# Shows a container without a GPU that trains all the same: a worker on the host computes for it, and the client's
# libraries in the container answer most of its calls. On a simulated host, with real runc and the real hook. Needs root.
#
#   tests/demo-remote.sh PREFIX
#
# PREFIX is where `make install` has put vgpu.
set -eu
vgpu=$(realpath "$1")/bin/vgpu
libraries=$(realpath "$1")/lib/vgpu
here=$(dirname "$0")
# shellcheck source=tests/demo-host.sh
. "$here/demo-host.sh"

# An image with glibc: this machine's loader and C library.
make_host '[[type]]
name = "remote"
memory = "256MiB"
compute = 25
isolation = "remote"' "remote = 4"
for file in /lib64/ld-linux-x86-64.so.2 "$(realpath "$(cc -print-file-name=libc.so.6)")"; do
    mkdir -p "$host/rootfs$(dirname "$file")"
    cp -L "$file" "$host/rootfs$file"
done
ln -s busybox "$host/rootfs/bin/env"
cp "$libraries"/lib*.so* "$host/shared"

say "A container asks for one vGPU of type \"remote\". It gets no device node, but its worker's socket and libraries under
NVIDIA's names:"
start train remote 1
inside train ls -l /dev /dev/vgpu /usr/local/nvidia/lib64
inside train cat /dev/vgpu/lease.json

say "An ordinary C program, linked against the public names of cuDNN, cuBLAS and CUDA alone, trains LeNet-5 in it: with
descriptor calls answered in the container, with each sent to the worker, and with each sent and waited for:"
"$here/demo-reuse.sh" "$host/shared" runc --root "$host/runc" exec train

say "What the host sees of it:"
pool status

say "The container is deleted, and its worker is gone:"
runc --root "$host/runc" delete --force train
pool status
