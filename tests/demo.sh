#!/bin/sh
# Shows what vgpu does, on a simulated host with two GPUs: real runc, real hook, no driver needed.
# Everything is in a temporary directory, which is removed at the end. Needs root.
#
#   tests/demo.sh VGPU_BINARY
set -eu
vgpu=$(realpath "$1")
# shellcheck source=tests/demo-host.sh
. "$(dirname "$0")/demo-host.sh"

make_host '[[type]]
name = "small"
memory = "10GiB"
compute = 25' "small = 4"

say "A simulated host with two GPUs, each cut into four virtual GPUs of type \"small\" (10 GiB, 25 %). Its first GPU is
/dev/nvidia1, as on many a real host: vgpu goes by UUID, never by order. Without NVML their memory is unknown:"
pool status

say "1. Two containers, web and db, ask for one small vGPU each (annotation vgpu.count=1). They share a GPU:"
start web small 1
start db small 1
pool status
echo
echo "web finds in its /dev the physical GPU behind its virtual one, and no other:"
inside web ls -l /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia1
echo "The other GPU's node is not there:"
inside web ls /dev/nvidia0 2>&1 || true
echo "What it was given, for its programs to read (/dev/vgpu/lease.json):"
inside web cat /dev/vgpu/lease.json
echo
echo "The driver's files came along, from the host:"
inside web ls /usr/local/nvidia/lib64
inside web nvidia-smi

say "2. A container asks for seven. Only six are free, so it does not start:"
if start greedy small 7; then echo "demo: greedy should have been refused" >&2; exit 1; fi
cat "$host/greedy/output"
echo
echo "\`vgpu why greedy\` still knows, under runtimes that throw a hook's message away:"
pool why greedy

say "3. web is killed with SIGKILL. No hook runs for it, yet its vGPU comes back with the next request:"
pid=$(runc --root "$host/runc" state web | sed -n 's/.*"pid": \([0-9]*\).*/\1/p')
kill -KILL "$pid"
while kill -0 "$pid" 2>/dev/null && [ "$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)" != Z ]; do :; done
pool status
echo
echo "batch asks for seven, and gets the six free ones and web's:"
start batch small 7
pool status

say "4. batch and db are stopped and deleted; everything is free again:"
for id in batch db; do runc --root "$host/runc" delete --force "$id"; done
pool status
