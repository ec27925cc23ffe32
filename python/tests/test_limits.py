"""Limits of memory, nodes and time."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import fxc

OUTER = """graph main {
    %x : f32[N] = placeholder x
    %p = call_function torch.outer(%x, %x)
    %y = call_function torch.exp(%p)
    output %y
}"""
#: A loop that its input lets run for years.
LOOP = """graph main {
    %n : i64[] = placeholder n
    %w = call_function torch.while_loop(@more, @step, (%n,), ())
    %y = call_function operator.getitem(%w, 0)
    output %y
}
graph more {
    %n : i64[] = placeholder n
    %t = call_function operator.gt(%n, 0)
    output %t
}
graph step {
    %n : i64[] = placeholder n
    %m = call_function operator.sub(%n, 1)
    output (%m,)
}"""


def code_of(run: Any) -> str | None:
    with pytest.raises(fxc.CompileError) as caught:
        run()
    return caught.value.code


@pytest.mark.parametrize("size", [1 << 30, "1GiB"])
def test_a_call_beyond_the_memory_is_an_error_and_the_next_is_not(size: int | str) -> None:
    model = fxc.loads(OUTER, max_memory=size)
    large = np.zeros(1 << 15, np.float32)
    assert code_of(lambda: model(large)) == "E0509"
    assert model(np.zeros(2, np.float32)).tolist() == [[1, 1], [1, 1]]
    session = model.session()
    assert code_of(lambda: session(large)) == "E0509"
    assert session(np.zeros(1, np.float32)).tolist() == [[1]]
    assert code_of(lambda: model.profile(large)) == "E0509"
    assert code_of(lambda: model.bisect(large)) == "E0509"


def test_a_large_model_is_an_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "outer.fxir"
    path.write_text(OUTER)
    for read in (lambda: fxc.load(path, max_nodes=1), lambda: fxc.loads(OUTER, max_nodes=1), lambda: fxc.loads(OUTER.encode(), max_nodes=1)):
        assert code_of(read) == "E0114"
    (finding,) = fxc.check(path, max_nodes=1)
    assert finding.code == "E0114" and "max_nodes" in finding.help[0]
    assert fxc.check(path) == []


@pytest.mark.parametrize("part", ["compiled", "interpreted"])
def test_a_call_beyond_the_time_is_an_error(part: str) -> None:
    model = fxc.loads(LOOP, max_time=0.2)
    years = np.array(10**15)
    assert code_of(lambda: model(years)) == "E0513"
    assert model(np.array(3)) == 0
    tool = model.profile if part == "compiled" else model.bisect
    assert code_of(lambda: tool(years)) == "E0513"


def test_a_derived_model_has_the_limits() -> None:
    model = fxc.loads(OUTER, max_memory=1 << 30)
    assert code_of(lambda: model.optimize()(np.zeros(1 << 15, np.float32))) == "E0509"


def test_values_that_are_no_limits_are_refused() -> None:
    for options in ({"max_memory": "many"}, {"max_time": -1.0}, {"max_time": float("nan")}):
        with pytest.raises(ValueError):
            fxc.loads(OUTER, **options)  # type: ignore[arg-type]
    for options in ({"max_memory": -1}, {"max_nodes": -1}):
        with pytest.raises(OverflowError):
            fxc.loads(OUTER, **options)  # type: ignore[arg-type]


def test_a_predictor_has_the_limits(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "rows.fxir"
    path.write_text("graph main { %x : f32[N] = placeholder x  %y = call_function torch.neg(%x)  output %y }")
    predict = fxc.Predictor(path, max_memory="1MB")
    assert predict(np.ones(2, np.float32)).tolist() == [-1, -1]
    assert code_of(lambda: predict(np.ones(1 << 20, np.float32))) == "E0509"
