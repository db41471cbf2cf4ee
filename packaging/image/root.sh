#!/bin/sh
# root.sh ROOT STAGE NODE: adds Node and the product to Debian's libraries in ROOT. mmdebstrap runs it after they are unpacked.
set -eu
root=$1 stage=$2 node=$3
# mmdebstrap copies these from the build machine.
rm -rf "$root/etc/resolv.conf" "$root/etc/hostname" "$root/usr/share/locale"
# Scanners read the packages of an image here.
mkdir -p "$root/var/lib/dpkg/status.d"
for archive in $MMDEBSTRAP_ESSENTIAL; do
  name=$(dpkg-deb -f "$root$archive" Package)
  dpkg-deb -f "$root$archive" > "$root/var/lib/dpkg/status.d/$name"
done
install -D -m 755 "$node" "$root/usr/local/bin/node"
mkdir -p "$root/opt"
cp -R "$stage" "$root/opt/opentela"
chmod -R u=rwX,go=rX "$root/opt/opentela"
for program in "$stage"/dist/otela*.js; do
  name=$(basename "$program" .js)
  printf '#!/bin/sh\nexec node /opt/opentela/dist/%s.js "$@"\n' "$name" > "$root/usr/local/bin/$name"
  chmod 755 "$root/usr/local/bin/$name"
done
for name in sh env cat ls; do ln -s busybox "$root/usr/bin/$name"; done
printf 'root:x:0:0:root:/root:/bin/sh\notela:x:1000:1000:otela:/tmp:/bin/sh\n' > "$root/etc/passwd"
printf 'root:x:0:\notela:x:1000:\n' > "$root/etc/group"
install -d -o 1000 -g 1000 -m 700 "$root/data"
