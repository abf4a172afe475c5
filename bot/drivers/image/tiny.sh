#!/bin/sh
# Make the tiny image of the tests from the Debian package busybox-static and import it as $1. Needs no registry.
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/tmp" "$root/etc" "$root/workspace" "$root/proc" "$root/sys" "$root/dev"
chmod 777 "$root/workspace" # the mount takes this mode over; podman cannot be told an owner
cp /bin/busybox "$root/bin/busybox"
# An applet called busybox would point at itself, and every exec would say "Too many levels of symbolic links".
for applet in $(/bin/busybox --list | grep -vx busybox); do ln -s busybox "$root/bin/$applet"; done
printf '#!/bin/sh\nexec /bin/sh "$@"\n' >"$root/bin/bash"
chmod 755 "$root/bin/bash"
printf 'root:x:0:0:root:/:/bin/sh\nsandbox:x:1000:1000::/workspace:/bin/sh\n' >"$root/etc/passwd"
printf 'root:x:0:\nsandbox:x:1000:\n' >"$root/etc/group"
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -c . |
    docker import --change 'ENV PATH=/bin' --change 'CMD ["sh"]' - "$1"
