"""The benchmarks of single ops run, and all explain their arguments. No time is tested."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "benches"
SCRIPTS = sorted(p.name for p in BENCHES.glob("*.py") if "__main__" in p.read_text())


def run(script: str, *args: str) -> str:
    """What a benchmark prints."""
    command = [sys.executable, str(BENCHES / script), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.torch
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_benchmark_explains_its_arguments(script: str) -> None:
    assert f"usage: {script}" in run(script, "--help")


@pytest.mark.torch
def test_single_ops_are_compared_with_pytorch() -> None:
    printed = run("ops.py", "--shapes", "--check", "--only", "^(permute 1x0x2|mm|softmax) .*[0-9]$", "--dtypes", "f32,i64")
    found = re.fullmatch(r"(\d+) calls have the results of PyTorch, 0 do not\n", printed)
    assert found and int(found[1]) > 20, printed


@pytest.mark.torch
def test_single_ops_are_measured_beside_pytorch() -> None:
    printed = run("ops.py", "--shapes", "--only", "^mm 5x5x5$", "--rounds", "1", "--seconds", "0.001")
    assert re.search(r"\| mm 5x5x5 \| f32 \| \d+\.\d+ \| \d+\.\d+ \| \d+\.\d+ \|", printed), printed
