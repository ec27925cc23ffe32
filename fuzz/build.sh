#!/usr/bin/env bash
# Builds the fuzz targets with the stable compiler: its instrumentation for coverage is the one that libFuzzer reads. Needs a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")"
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=16 --cfg fuzzing"
cargo build --release --target "$(rustc -vV | sed -n 's/host: //p')" "$@"
