#!/usr/bin/env bash
# Builds the wheel with the maturin of the environment $1, and installs it there. Further arguments are maturin's: `--profile dev` reuses
# what the tests have built.
set -euo pipefail
cd "$(dirname "$0")"
environment=$1
shift
wheels=$(mktemp -d)
"$environment/bin/maturin" build --quiet --interpreter "$environment/bin/python" --out "$wheels" "$@"
"$environment/bin/python" ../tools/check_release.py wheel "$wheels"/fxc-*.whl
"$environment/bin/pip" install --quiet --force-reinstall --no-deps "$wheels"/fxc-*.whl
rm -rf "$wheels"
