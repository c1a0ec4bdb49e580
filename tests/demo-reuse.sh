#!/bin/sh
# Trains LeNet-5 with calls answered in each way that there is, and says what an iteration takes in each. The program is
# an ordinary one in C, crates/client/tests/lenet.c; it is compiled into the folder with the client and the facades.
#
# usage: demo-reuse.sh FOLDER COMMAND...
# COMMAND is what comes before the program and its arguments, and sees FOLDER under the same name: where there is no
# container, `env LD_LIBRARY_PATH=FOLDER VGPU_WORKER=SOCKET`.
set -eu

if [ $# -lt 2 ]; then
	echo "usage: $0 FOLDER COMMAND..." >&2
	exit 64
fi
folder=$1
shift
program=$folder/lenet
source=$(dirname "$0")/../crates/client/tests/lenet.c
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT

"${CC:-cc}" -std=c11 -O2 -o "$program" "$source" "$folder/libcudnn.so.9" "$folder/libcublas.so.12" \
	"$folder/libcudart.so.12" -ldl -Wl,--allow-shlib-undefined

"$@" "$program" --table >"$said/reuse"
"$@" env VGPU_REUSE=off "$program" --table >"$said/off"
"$@" env VGPU_REUSE=off,waiting "$program" --table >"$said/off,waiting"

# Of each column the mean, from the third iteration on: in the first two all is new.
cat >"$said/table" <<'AWK'
FNR == 1 {
	for (i = 1; i <= NF; i++) column[$i] = i
	modes[++mode] = FILENAME
	next
}
NF == 3 { summary[mode] = "weights " $2 ", " $3 "% right"; next }
$1 > 2 {
	rows[mode]++
	for (name in column) sum[mode, name] += $column[name]
}
function mean(mode, name) { return sum[mode, name] / rows[mode] }
END {
	printf "%-24s %8s %8s %8s %8s %10s %8s %8s\n", "an iteration of LeNet-5", "calls", "records", "wake-ups", "ms",
		"predicted", "known", "new"
	for (m = 1; m <= mode; m++) {
		printf "%-24s %8.1f %8.1f %8.1f %8.2f %10.1f %8.1f %8.1f\n", modes[m], mean(m, "calls"), mean(m, "records"),
			mean(m, "wakeups"), mean(m, "us") / 1000, mean(m, "predicted"), mean(m, "known"), mean(m, "new")
		same = m == 1 || same && summary[m] == summary[1]
	}
	print summary[1] (same ? ", in each" : ", and NOT THE SAME IN EACH")
	exit !same
}
AWK
cd "$said"
awk -f table reuse off off,waiting
echo "records go to the worker, which was asleep at wake-ups; ms is mostly its arithmetic on the CPU; predicted, known and new:"
echo "how contents of descriptors were found (docs/remote.md)"
