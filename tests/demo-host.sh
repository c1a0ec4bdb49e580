#!/bin/sh
# The simulated host of the demos: a driver's files without a driver, a root file system, containers under runc. To be
# sourced by a script that has set $vgpu, the program. Everything is in a temporary directory, which is removed at the
# end.

vgpu=${vgpu:?}
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

# make_host TYPES VGPUS: the driver, a root file system, and a pool file with these types, cut into these.
make_host() {
    mkdir -p "$host/driver/dev" "$host/driver/proc/driver/nvidia" "$host/rootfs/bin" "$host/rootfs/proc" \
        "$host/rootfs/dev" "$host/rootfs/sys" "$host/rootfs$host/shared" "$host/shared"
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

$1

[[gpu]]
product = "NVIDIA A100*"
vgpus = { $2 }
EOF
}

# start NAME TYPE COUNT: a container that asks for COUNT vGPUs of TYPE and sleeps. It sees $host/shared, too.
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
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    {"destination": "$host/shared", "type": "bind", "source": "$host/shared", "options": ["bind", "ro"]}
  ],
  "annotations": {"vgpu.count": "$3", "vgpu.type": "$2"},
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
