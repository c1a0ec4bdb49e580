#!/bin/sh
# A createRuntime hook: makes the container's /proc look as if the simulated driver were loaded. The kernel of the
# machine has no such driver, so its /proc/driver is empty.
#
#   kernel.sh DRIVER_ROOT
set -e
state=$(tr -d '\n')
word() { printf '%s' "$state" | sed -n "s/.*\"$1\" *: *\"*\([^\",}]*\).*/\1/p"; }
root=$(tr -d '\n' <"$(word bundle)/config.json" | sed -n 's/.*"root" *: *{[^}]*"path" *: *"\([^"]*\)".*/\1/p')
case $root in
/*) ;;
*) root=$(word bundle)/$root ;;
esac
exec nsenter --target "$(word pid)" --mount mount --bind "$1/proc/driver" "$root/proc/driver"
