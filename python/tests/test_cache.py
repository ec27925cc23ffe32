"""The cache of compiled models, in processes of their own: its folder is that of the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = """graph main {
    %x : f32[N, 4] = placeholder x
    %w = call_function torch.ones([4, 4])
    %y = call_function torch.matmul(%x, %w)
    output %y
}"""

LOADED = """
import numpy as np, fxc
model = fxc.load("m.fxir", **OPTIONS)
assert model(np.ones((2, 4), np.float32)).tolist() == [[4, 4, 4, 4]] * 2
assert not model.warnings
"""


def run(folder: Path, code: str, **env: str) -> str:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("FXC_CACHE")}
    variables |= {"FXC_CACHE_DIR": str(folder / "cache"), **env}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries(folder: Path) -> dict[str, int]:
    """The entries, and when they were written."""
    return {p.name: p.stat().st_ino for p in (folder / "cache").glob("*")}


def test_a_process_finds_the_code_of_another(tmp_path: Path) -> None:
    (tmp_path / "m.fxir").write_text(MODEL)
    run(tmp_path, LOADED.replace("OPTIONS", "{}"))
    first = entries(tmp_path)
    assert len(first) == 1
    assert all(name.endswith(".fxc") for name in first)
    run(tmp_path, LOADED.replace("OPTIONS", "{}"))
    assert entries(tmp_path) == first
    (entry,) = (tmp_path / "cache").iterdir()
    entry.write_bytes(entry.read_bytes()[:1000])
    run(tmp_path, LOADED.replace("OPTIONS", "{}"))
    assert len(entries(tmp_path)) == 1
    assert entry.stat().st_size > 1000


@pytest.mark.parametrize(("options", "env"), [("{'cache': False}", {}), ("{}", {"FXC_CACHE": "off"}), ("{}", {"FXC_CACHE_SIZE": "0"})])
def test_the_cache_is_turned_off(tmp_path: Path, options: str, env: dict[str, str]) -> None:
    (tmp_path / "m.fxir").write_text(MODEL)
    run(tmp_path, LOADED.replace("OPTIONS", options), **env)
    assert not (tmp_path / "cache").exists()


def test_a_forked_process_does_not_wait_for_its_parents_threads(tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no forks")
    (tmp_path / "m.fxir").write_text(MODEL)
    fork = """
import os, sys
child = os.fork()
if child == 0:
    assert model(np.ones((2, 4), np.float32)).shape == (2, 4)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    run(tmp_path, LOADED.replace("OPTIONS", "{}") + fork)
    assert len(entries(tmp_path)) == 1


EXPORTED = """
import json, torch, fxc

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x, *, scale):
        return {"y": (self.linear(x) * scale["by"],)}

x, by = torch.ones(2, 4), torch.full((1,), 2.0)
"""


@pytest.mark.torch
def test_archives_are_called_as_the_module_also_from_the_cache(tmp_path: Path) -> None:
    run(tmp_path, EXPORTED + 'fxc.export(Net(), x, scale={"by": by}, path="m.pt2")')
    load = EXPORTED + """
model = fxc.load("m.pt2")
y = model(x, scale={"by": by})
print(json.dumps([model.name, repr(model), y["y"][0].tolist(), model.print("code"), len(model.state_dict())]))
"""
    first = json.loads(run(tmp_path, load))
    written = entries(tmp_path)
    assert len(written) == 1
    assert json.loads(run(tmp_path, load)) == first
    assert entries(tmp_path) == written
    # As a file, too.
    run(tmp_path, EXPORTED + 'fxc.load("m.pt2").save("m.fxc")')
    saved = json.loads(run(tmp_path, load.replace("m.pt2", "m.fxc")))
    assert saved[2] == first[2]


@pytest.mark.torch
def test_modules_that_export_alike_share_their_code(tmp_path: Path) -> None:
    code = EXPORTED + """
model = fxc.compile(Net(), x, scale={"by": by})
print(model(x, scale={"by": by})["y"][0].tolist())
print(len(model.graph.nodes))
"""
    first = run(tmp_path, code)
    written = entries(tmp_path)
    assert len(written) == 1
    assert run(tmp_path, code) == first
    assert entries(tmp_path) == written
