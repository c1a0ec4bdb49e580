#!/bin/sh
# Runs a hook and writes down what it was given and how it ended; a runtime tells only some of it.
#
#   record.sh DIR STAGE HOOK [ARG...]
#
# DIR/STAGE.state is the state of the last call, DIR/STAGE.stderr what all calls said, and
# DIR/STAGE.codes their exit codes, one a line.
dir=$1 stage=$2
shift 2
cat >"$dir/$stage.state"
"$@" <"$dir/$stage.state" 2>>"$dir/$stage.stderr"
code=$?
echo $code >>"$dir/$stage.codes"
exit $code
