"""What the command line shows, from Python."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import fxc

ADD = """graph main {
    %x : f32[N, 2] = placeholder x
    %y = call_function torch.add(%x, 1)
    output %y
}"""


def test_a_compiled_model_is_described(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "add.fxc"
    fxc.loads(ADD, dims={"N": 3}).save(path)
    described = fxc.info(path, verify=True)
    (part,) = described["native"]
    assert part["fits"] and part["sizes"] == {"N": 3} and described["sections"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(fxc.CompileError, match="E0409"):
        fxc.info(path, verify=True)


def test_the_cache_is_described_and_emptied(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FXC_CACHE", "on")
    monkeypatch.setenv("FXC_CACHE_DIR", str(tmp_path / "cache"))
    cache = fxc.cache_info()
    assert cache is not None and cache["folder"] == str(tmp_path / "cache") and cache["entries"] == []
    (tmp_path / "cache").mkdir(exist_ok=True)
    assert fxc.clear_cache() == 0
    monkeypatch.setenv("FXC_CACHE", "off")
    assert fxc.cache_info() is None and fxc.clear_cache() == 0


def test_the_op_table() -> None:
    rows = {row["name"]: row for row in fxc.ops()}
    assert rows["softmax"]["schema"].startswith("softmax(") and "torch.nn.functional.softmax" in str(rows["softmax"]["spellings"])


def test_texts_are_formatted() -> None:
    text = "graph main{ %x:f32[2]=placeholder x  # the input\n output %x }"
    formatted = fxc.format(text)
    assert "%x : f32[2] = placeholder x" in formatted and "# the input" in formatted
    assert fxc.format(formatted) == formatted
    with pytest.raises(fxc.CompileError):
        fxc.format("graph main { output")


def test_random_numbers_restart() -> None:
    model = fxc.loads("graph main { %x : f32[4] = placeholder x  %y = call_function torch.rand_like(%x)  output %y }")
    x = np.zeros(4, np.float32)
    fxc.manual_seed(3)
    first = model(x)
    assert not np.array_equal(model(x), first)
    fxc.manual_seed(3)
    assert np.array_equal(model(x), first)


def test_weights_are_read_from_another_file(tmp_path: pathlib.Path) -> None:
    for value in (1.0, 2.0):
        folder = tmp_path / str(value)
        folder.mkdir()
        model = fxc.loads("param w : f32[2]\ngraph main { %w = get_attr w  output %w }", lazy=True)
        model.add_parameter("w", np.full(2, value, np.float32))
        model.save(folder / "m.fxir")
    other = tmp_path / "2.0" / "m.safetensors"
    model = fxc.load(tmp_path / "1.0" / "m.fxir", weights=other)
    assert model().tolist() == [2, 2]


def test_code_that_does_not_fit_is_an_error_without_fallback(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "add.fxc"
    fxc.loads(ADD, dims={"N": 3}).save(path)
    strict = fxc.load(path, fallback=False)
    assert strict(np.zeros((3, 2), np.float32)).sum() == 6
    with pytest.raises(fxc.CompileError, match="E0604"):
        strict(np.zeros((2, 2), np.float32))
    assert fxc.load(path)(np.zeros((2, 2), np.float32)).sum() == 4


def test_passes_are_skipped() -> None:
    text = "graph main { %x : f32[2] = placeholder x  %a = call_function torch.exp(%x)  %b = call_function torch.exp(%x)  output (%a, %b) }"
    assert len(fxc.loads(text).optimize().graph) < len(fxc.loads(text, skip_passes=list(fxc.passes()), lazy=True).optimize().graph)


def test_unsound_rules_are_refused() -> None:
    model = fxc.loads("graph main { %x : i64[4] = placeholder x  %y = call_function torch.remainder(%x, 6)  output %y }")
    rule = "rewrite wrong: remainder(%x, 6) => bitwise_and(%x, 5)"
    assert fxc.rewrite(model, rule).fired == {"wrong": 1}
    with pytest.raises(fxc.CompileError, match="E0808"):
        fxc.rewrite(model, rule, verify=True)


def test_the_interpreter_runs_a_call() -> None:
    text = """const total : f32[2] = [1, 1]
    graph main {
        %x : f32[2] = placeholder x
        %t = get_attr total
        %u = call_method add_(%t, %x)
        %y = call_function torch.exp(%t)
        output {"y": %y, "x": %x}
    }"""
    model = fxc.loads(text)
    x = np.array([0.5, -1], np.float32)
    want, found = model(x), model.interpret(x)
    assert list(found) == list(want)
    np.testing.assert_allclose(found["y"], want["y"], rtol=1e-6)
    found["x"][:] = 0
    assert x.tolist() == [0.5, -1]
    with pytest.raises(TypeError, match="arguments"):
        model.interpret()


def test_certain_mistakes_are_fixed() -> None:
    text = "graph main {\n    %x : f32[2] = placeholder x\n    %y = call_function torch.relu(%x)\n    return %y\n}\n"
    fixed = fxc.fix(text)
    assert fixed != text and fxc.check(fixed, text=True) == []
    assert fxc.fix(fixed) == fixed
