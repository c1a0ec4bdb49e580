#!/bin/sh
# Runs in the container, under busybox: what does it see? One line a finding:
#   node PATH MAJOR MINOR    a device node below /dev, numbers in hexadecimal
#   open PATH MESSAGE        how opening PATH for reading and writing ended; no MESSAGE: it opened
#   lease JSON               the content of /dev/vgpu/lease.json, line by line
# Arguments are the paths to open.
find /dev -type c -exec stat -c 'node %n %t %T' {} +
for path in "$@"; do
    if [ ! -e "$path" ]; then
        # Opening what is not there would create a file.
        echo "open $path No such file or directory"
        continue
    fi
    message=$( (: <>"$path") 2>&1)
    echo "open $path ${message##*: }"
done
if [ -e /dev/vgpu/lease.json ]; then sed 's/^/lease /' /dev/vgpu/lease.json; fi
