#!/bin/sh
# Asks the real cuDNN 8.9.7 and 9.1.0, from PyPI, and the rules a million random calls each, and compares the answers;
# the same with the facades in place of the rules; and with a rule that is wrong, which must be found out. No GPU is
# needed. Wants python3 with pip, 4 GB of disk where CUDNN says, and NVIDIA's terms, under which the libraries come, to
# be agreeable to you: they are not kept elsewhere.
#
#   crates/remoting/tests/conformance.sh [CALLS [SEED]]
set -eu
cd "$(dirname "$0")/../../.."
calls=${1:-1000000}
seed=${2:-$(date +%s)}
# Not in target/, of which each checkout has its own, and which is often emptied.
CUDNN=${CUDNN:-${XDG_CACHE_HOME:-$HOME/.cache}/vgpu/cudnn}

fetch() {
	directory=$CUDNN/$1
	[ -e "$directory/fetched" ] && return
	echo "fetching cuDNN $1 to $directory"
	# What is left of one that was interrupted.
	rm -rf "$directory"
	mkdir -p "$directory"
	python3 -m pip download --quiet --no-deps --no-cache-dir --dest "$directory" "nvidia-cudnn-cu12==$1"
	python3 -m zipfile -e "$directory"/*.whl "$directory"
	rm "$directory"/*.whl
	touch "$directory/fetched"
}

through_c() {
	target/debug/examples/facade_conformance "$CUDNN/$1/nvidia/cudnn/lib/libcudnn.so.$2" "$calls" "$seed"
}

compare() {
	target/debug/examples/conformance "$CUDNN/$1/nvidia/cudnn/lib/libcudnn.so.$2" "$calls" "$seed" "$3"
}

fetch 8.9.7.29
fetch 9.1.0.70
echo "seed $seed"
cargo build --locked --quiet -p vgpu-remoting --example conformance -p vgpu-client --example facade_conformance
compare 8.9.7.29 8 compare
compare 9.1.0.70 9 compare
through_c 8.9.7.29 8
through_c 9.1.0.70 9
if compare 8.9.7.29 8 wrong >/dev/null 2>&1; then
	echo "a wrong rule was not found out" >&2
	exit 1
fi
echo "a wrong rule is found out"
