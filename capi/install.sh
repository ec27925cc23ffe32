#!/usr/bin/env bash
# Installs the C library: capi/install.sh PREFIX [FOLDER OF THE BUILD, else target/release]
set -euo pipefail
prefix=${1:?usage: capi/install.sh PREFIX [BUILD]}
root=$(cd "$(dirname "$0")/.." && pwd)
build=${2:-$root/target/release}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -1)

mkdir -p "$prefix/include" "$prefix/lib/pkgconfig"
cp "$root/include/fxc.h" "$prefix/include/"
for library in libfxc.so libfxc.dylib libfxc.a; do
    [ ! -e "$build/$library" ] || cp "$build/$library" "$prefix/lib/"
done
sed -e "s|@PREFIX@|$(cd "$prefix" && pwd)|" -e "s|@VERSION@|$version|" -e "s|@PRIVATE_LIBS@|-lpthread -ldl -lm|" \
    "$root/capi/fxc.pc.in" >"$prefix/lib/pkgconfig/fxc.pc"
