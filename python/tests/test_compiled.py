"""Compiled models: which sizes and processors they have code for, and who may open them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fxc

MODEL = """graph main {
    %x : f32[N, 4] = placeholder x
    %w = call_function torch.ones([4, 4])
    %y = call_function torch.matmul(%x, %w)
    output %y
}"""


def test_a_file_has_code_for_each_size_and_processor(tmp_path: Path) -> None:
    (tmp_path / "m.fxir").write_text(MODEL)
    model = fxc.load(tmp_path / "m.fxir", at={"N": [1, 8]}, targets=["x86-64-v2", "native"])
    model.save(tmp_path / "m.fxc")
    model.save(tmp_path / "code.fxc", code_only=True)
    for path in (tmp_path / "m.fxc", tmp_path / "code.fxc"):
        loaded = fxc.load(path)
        for rows in (1, 8):
            assert loaded(np.ones((rows, 4), np.float32)).tolist() == [[4, 4, 4, 4]] * rows
        assert not loaded.warnings
    other = fxc.load(tmp_path / "m.fxc")
    other(np.ones((3, 4), np.float32))
    assert [w.code for w in other.warnings] == ["L0004"]
    with pytest.raises(fxc.CompileError) as e:
        fxc.load(tmp_path / "code.fxc")(np.ones((3, 4), np.float32))
    assert e.value.diagnostics[0].code == "E0604"
    with pytest.raises(ValueError, match="x86-64-v9"):
        fxc.load(tmp_path / "m.fxir", targets=["x86-64-v9"])
    with pytest.raises(fxc.Error, match="M"):
        fxc.load(tmp_path / "m.fxir", at={"M": [1]})


def test_programs_refuse_code_that_others_name(tmp_path: Path) -> None:
    fxc.loads(MODEL, dims={"N": 2}).save(tmp_path / "m.fxc")
    with pytest.raises(fxc.Error) as e:
        fxc.load(tmp_path / "m.fxc", allow_code=False)
    assert e.value.diagnostics[0].code == "E0409"
    (tmp_path / "m.fxir").write_text(MODEL)
    assert fxc.load(tmp_path / "m.fxir", allow_code=False)(np.ones((1, 4), np.float32)).tolist() == [[4, 4, 4, 4]]
