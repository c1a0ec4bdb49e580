#!/bin/sh
# Shows what vgpu does, on a simulated host with two GPUs: real runc, real hook, no driver needed.
# Everything is in a temporary directory, which is removed at the end. Needs root.
#
#   tests/demo.sh VGPU_BINARY
set -eu
vgpu=$(realpath "$1")
[ "$(id -u)" -eq 0 ] || { echo "demo: needs root: it makes device nodes and starts containers" >&2; exit 1; }

host=$(mktemp -d /var/tmp/vgpu-demo.XXXXXX)
containers=

cleanup() {
    for id in $containers; do runc --root "$host/runc" delete --force "$id" >/dev/null 2>&1 || true; done
    rm -rf "$host"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
pool() { "$vgpu" --config "$host/pool.toml" "$@"; }

# gpu MINOR PCI_ADDRESS UUID: what the driver shows of a GPU.
gpu() {
    mkdir -p "$host/driver/proc/driver/nvidia/gpus/$2"
    printf 'Model: \t\t NVIDIA A100-SXM4-40GB\nGPU UUID: \t %s\nBus Location: \t %s\nDevice Minor: \t %s\n' \
        "$3" "$2" "$1" >"$host/driver/proc/driver/nvidia/gpus/$2/information"
    mknod -m 666 "$host/driver/dev/nvidia$1" c 195 "$1"
}

# library NAME SONAME: a shared object, which the compiler that cargo links with can make of nothing.
library() {
    cc -shared -nostdlib -x c /dev/null -Wl,-soname,"$2" -o "$host/driver/usr/lib/$1"
}

make_host() {
    mkdir -p "$host/driver/dev" "$host/driver/proc/driver/nvidia" "$host/rootfs/bin" "$host/rootfs/proc" \
        "$host/rootfs/dev" "$host/rootfs/sys"
    echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024' \
        >"$host/driver/proc/driver/nvidia/version"
    printf 'Character devices:\n195 nvidia\n511 nvidia-uvm\n' >"$host/driver/proc/devices"
    mknod -m 666 "$host/driver/dev/nvidiactl" c 195 255
    mknod -m 666 "$host/driver/dev/nvidia-uvm" c 511 0
    mkdir -p "$host/driver/usr/lib" "$host/driver/usr/bin"
    library libcuda.so.550.54.15 libcuda.so.1
    library libnvidia-ml.so.550.54.15 libnvidia-ml.so.1
    printf '#!/bin/sh\necho "NVIDIA-SMI 550.54.15 (simulated)"\n' >"$host/driver/usr/bin/nvidia-smi"
    chmod 755 "$host/driver/usr/bin/nvidia-smi"
    gpu 1 0000:3b:00.0 GPU-11111111-aaaa-bbbb-cccc-000000000001
    gpu 0 0000:86:00.0 GPU-22222222-aaaa-bbbb-cccc-000000000002
    busybox=$(command -v busybox)
    cp "$busybox" "$host/rootfs/bin/busybox"
    for program in sh ls cat sleep; do ln -s busybox "$host/rootfs/bin/$program"; done
    cat >"$host/pool.toml" <<EOF
state_dir = "$host/state"
driver_root = "$host/driver"

[[type]]
name = "small"
memory = "10GiB"
compute = 25

[[gpu]]
product = "NVIDIA A100*"
vgpus = { small = 4 }
EOF
}

# start NAME COUNT: a container that asks for COUNT vGPUs and sleeps.
start() {
    bundle=$host/$1
    mkdir "$bundle"
    cat >"$bundle/config.json" <<EOF
{
  "ociVersion": "1.0.2",
  "process": {"args": ["sleep", "1000"], "cwd": "/", "env": ["PATH=/usr/local/nvidia/bin:/bin"], "user": {"uid": 0, "gid": 0}},
  "root": {"path": "$host/rootfs", "readonly": true},
  "mounts": [
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}
  ],
  "annotations": {"vgpu.count": "$2", "vgpu.type": "small"},
  "hooks": {
    "createRuntime": [{"path": "$vgpu", "args": ["vgpu", "--config", "$host/pool.toml", "hook", "createRuntime"]}],
    "poststop": [{"path": "$vgpu", "args": ["vgpu", "--config", "$host/pool.toml", "hook", "poststop"]}]
  },
  "linux": {
    "resources": {"devices": [{"allow": false, "access": "rwm"}]},
    "namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]
  }
}
EOF
    containers="$containers $1"
    runc --root "$host/runc" run --detach --bundle "$bundle" "$1" </dev/null >"$bundle/output" 2>&1
}

inside() { name=$1; shift; runc --root "$host/runc" exec "$name" "$@"; }

make_host

say "A simulated host with two GPUs, each cut into four virtual GPUs of type \"small\" (10 GiB, 25 %). Its first GPU is
/dev/nvidia1, as on many a real host: vgpu goes by UUID, never by order. Without NVML their memory is unknown:"
pool status

say "1. Two containers, web and db, ask for one small vGPU each (annotation vgpu.count=1). They share a GPU:"
start web 1
start db 1
pool status
echo
echo "web finds in its /dev the physical GPU behind its virtual one, and no other:"
inside web ls -l /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia1
echo "The other GPU's node is not there:"
inside web ls /dev/nvidia0 2>&1 || true
inside web cat /dev/vgpu/lease.json
echo
echo "The driver's files came along, from the host:"
inside web ls /usr/local/nvidia/lib64
inside web nvidia-smi

say "2. A container asks for seven. Only six are free, so it does not start:"
if start greedy 7; then echo "demo: greedy should have been refused" >&2; exit 1; fi
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
start batch 7
pool status

say "4. batch and db are stopped and deleted; everything is free again:"
for id in batch db; do runc --root "$host/runc" delete --force "$id"; done
pool status
