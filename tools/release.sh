#!/usr/bin/env bash
# Prepares a release in dist/ and publishes nothing: checks versions and licences, packages the crate, builds the wheel, looks into both
# and runs the wheel.
#
#     tools/release.sh            a release
#     tools/release.sh --trial    the same checks of unreleased sources, with the development profile and without building the package
#
# It needs the Rust toolchain, Python 3.10 with venv, and pip's index. The wheel runs on Linux with glibc 2.17 and later
# (manylinux2014): zig, which pip installs, links against the symbols of that version, so that no container is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
trial=${1:-}
policy=manylinux_2_17
dist=$PWD/dist
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "error: $*" >&2
    exit 1
}

if [ -z "$trial" ]; then
    [ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
fi

echo "== versions and licences"
version=$(python3 tools/check_release.py versions ${trial:+--unreleased})
for file in LICENSE-MIT LICENSE-APACHE; do
    cmp "$file" "python/$file"
done
if cargo deny --version >/dev/null 2>&1; then
    cargo deny check licenses sources
else
    echo "SKIPPED: licences of dependencies; \`cargo install cargo-deny\` brings what that needs" >&2
fi

rm -rf "$dist"
mkdir -p "$dist"
target=$(cargo metadata --no-deps --format-version 1 | python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')

echo "== crate"
# Building the package as it would be downloaded takes as long as a build from nothing.
.ci/package "$version" $([ -n "$trial" ] || echo --verify)
crate=$target/package/fxc-$version.crate
cp "$crate" "$dist/"

echo "== wheel"
python3 -m venv "$scratch/tools"
"$scratch/tools/bin/pip" install --quiet 'maturin>=1.9,<2' ziglang auditwheel
profile=release
[ -z "$trial" ] || profile=dev
(
    cd python
    PATH="$scratch/tools/bin:$PATH" maturin build --profile $profile --strip --zig --compatibility $policy \
        --interpreter "$scratch/tools/bin/python" --out "$dist"
)
wheel=$(ls "$dist"/fxc-"$version"-*.whl)
python3 tools/check_release.py wheel "$wheel"
# A second opinion on the symbols: auditwheel's own.
"$scratch/tools/bin/auditwheel" show "$wheel" | tr '\n' ' ' | grep -q "platform tag: \"$policy" || fail "auditwheel does not confirm $policy"

echo "== the wheel in an environment of its own"
python3 -m venv "$scratch/user"
"$scratch/user/bin/pip" install --quiet "$wheel"
(
    cd "$scratch"
    user/bin/python - "$version" <<'PYTHON'
import sys

import fxc
import numpy

assert fxc.__version__ == sys.argv[1], fxc.__version__
model = fxc.loads("graph main { %x : f32[2] = placeholder x  %y = call_function torch.neg(%x)  output %y }")
assert model(numpy.array([1, -2], numpy.float32)).tolist() == [-1, 2]
PYTHON
)
ls -l "$dist"
