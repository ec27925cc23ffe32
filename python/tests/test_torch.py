"""Calls with tensors, exports, and results as PyTorch gives them."""

from __future__ import annotations

import collections
import dataclasses
import io
import pathlib
from typing import Any

import numpy as np
import pytest

import fxc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch


def identity(dtype: str, shape: str) -> fxc.Model:
    return fxc.loads(
        f"graph main {{ %x : {dtype}[{shape}] = placeholder x  %y = call_function torch.reshape(%x, [-1])  output %y }}"
    )


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: Any, mask: Any = None) -> Any:
        y = self.linear(x).softmax(-1)
        return y if mask is None else y * mask


def test_a_compiled_module_is_called_like_the_module() -> None:
    module = Net().eval()
    x, mask = torch.randn(2, 4), torch.rand(2, 3)
    model = fxc.compile(module, x, mask=mask)
    with torch.no_grad():
        torch.testing.assert_close(model(x, mask=mask), module(x, mask=mask))
        torch.testing.assert_close(torch.as_tensor(model(x.numpy(), mask=mask.numpy())), module(x, mask=mask))
    assert repr(model) == "<fxc.Model Net(x, *, mask)>"
    assert isinstance(model(x.numpy(), mask=mask.numpy()), np.ndarray)


def test_an_archive_is_called_like_the_module(tmp_path: pathlib.Path) -> None:
    module = Net().eval()
    batch = torch.export.Dim("batch")
    fxc.export(module, torch.randn(2, 4), path=tmp_path / "net.pt2", dynamic_shapes={"x": {0: batch}})
    fxc.export(module, torch.randn(2, 4), path=tmp_path / "net.fxir")
    model = fxc.load(tmp_path / "net.pt2")
    with torch.no_grad():
        for n in [2, 5]:
            x = torch.randn(n, 4)
            torch.testing.assert_close(model(x), module(x))
            torch.testing.assert_close(model(x=x), module(x))
        x = torch.randn(2, 4)
        torch.testing.assert_close(fxc.load(tmp_path / "net.fxir")(x), module(x))
    with pytest.raises(ValueError, match="extension must be"):
        fxc.export(module, torch.randn(2, 4), path=tmp_path / "net.onnx")


def test_an_archive_in_memory() -> None:
    x = torch.randn(2, 4)
    module = torch.nn.Linear(4, 3).eval()
    archive = io.BytesIO()
    torch.export.save(torch.export.export(module, (x,)), archive)
    with torch.no_grad():
        torch.testing.assert_close(fxc.loads(archive.getvalue())(x), module(x))
    with pytest.raises(fxc.Error):
        fxc.loads(archive.getvalue()[:100])


def test_a_module_compiles_without_room_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    module, x = Net().eval(), torch.randn(2, 4)
    want = module(x).detach()
    room = shutil.disk_usage(".")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room._replace(free=1 << 20))
    full = fxc.compile(module, x)
    torch.testing.assert_close(full(x), want)
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    torch.testing.assert_close(fxc.compile(module, x)(x), want)


def test_functions_and_programs_compile() -> None:
    def double(x: Any, k: Any) -> Any:
        return x * 2 + k

    x, k = torch.randn(3), torch.ones(3)
    for model in [fxc.compile(double, x, k=k), fxc.compile(torch.export.export(_module(double), (x,), {"k": k}))]:
        torch.testing.assert_close(model(x, k=k), double(x, k))
    with pytest.raises(TypeError, match="not int"):
        fxc.compile(3, x)


def test_options_of_a_program_may_be_keyword_arguments() -> None:
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    for model in [fxc.compile(program, threads=1), fxc.compile(program, options={"threads": 1})]:
        assert model._options["threads"] == 1
        assert fxc.compile(model.graph, threads=1)._options["threads"] == 1
    with pytest.raises(TypeError, match="'thread'"):
        fxc.compile(program, thread=1)
    with pytest.raises(TypeError, match="dynamic_shapes"):
        fxc.compile(program, dynamic_shapes={})
    with pytest.raises(TypeError, match="its own example"):
        fxc.export(program, path="never.pt2", dynamic_shapes={})


def _module(function: Any) -> Any:
    module = torch.nn.Module()
    module.forward = function
    return module


BASE = torch.arange(24.0).reshape(2, 3, 4)
VIEWS = {
    "dense": BASE,
    "transposed": BASE.permute(2, 0, 1),
    "steps": BASE[:, ::2, 1::2],
    "expanded": torch.tensor([1.0, 2.0, 3.0]).expand(4, 3),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "flipped": BASE.flip(0),
    "offset": BASE[1:, 1:, 1:],
    "zero size": BASE[:, :0],
    "0-d": torch.tensor(7.0),
    "negative bit": torch.view_as_complex(torch.randn(3, 2)).conj().imag,
    "real part": torch.randn(4, dtype=torch.complex64).real,
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_read_in_their_own_order(name: str) -> None:
    x = VIEWS[name]
    y = identity("f32", ", ".join(f"N{i}" for i in range(x.ndim)))(x)
    assert type(y) is torch.Tensor and torch.equal(y, x.reshape(-1))


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "b8"])
def test_every_dtype(dtype: str) -> None:
    names = {"f": "float", "i": "int", "u": "uint"}
    name = {"b8": "bool", "bf16": "bfloat16"}.get(dtype) or names[dtype[0]] + dtype[1:]
    x = torch.tensor([[0, 1], [1, 0]]).to(getattr(torch, name))
    y = identity(dtype, "2, 2")(x)
    assert y.dtype == x.dtype and torch.equal(y, x.reshape(-1))


def test_subclasses_and_parameters_are_read() -> None:
    class Mine(torch.Tensor):
        pass

    x = torch.randn(2, 3)
    with torch.no_grad():
        for t in [x.as_subclass(Mine), torch.nn.Parameter(x)]:
            assert torch.equal(identity("f32", "2, 3")(t), x.reshape(-1))


def test_what_torch_would_refuse_is_refused() -> None:
    model = identity("f32", "2")
    with pytest.raises(RuntimeError, match="no_grad"):
        model(torch.ones(2, requires_grad=True))
    with torch.no_grad():
        model(torch.ones(2, requires_grad=True))
    with pytest.raises(fxc.InputError, match="must be f32"):
        model(torch.ones(2, dtype=torch.float64))
    with pytest.raises(TypeError, match="access to the memory"):
        model(torch.ones(2).to_sparse())
    with pytest.raises((TypeError, RuntimeError), match="meta|access to the memory"):
        model(torch.ones(2, device="meta"))


def test_results_are_the_callers() -> None:
    text = "graph main { %x : f32[2] = placeholder x  %y = call_method add_(%x, 1)  output %y }"
    x = torch.ones(2)
    y = fxc.loads(text)(x)
    y.mul_(10)
    assert x.tolist() == [2, 2] and y.tolist() == [20, 20]


Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Boxes:
    low: Any
    high: Any
    label: Any = None


class Structured(torch.nn.Module):
    def forward(self, d: dict[str, Any], pair: Any) -> Any:
        a = d["a"] + d["b"][0]
        return {"sum": a, "pair": Pair(pair.first * 2, pair.second), "list": [a, (a + 1, None)]}


def test_structures_come_back_in_their_classes(tmp_path: pathlib.Path) -> None:
    one = torch.ones(2)
    arguments = ({"a": one, "b": [2 * one]}, Pair(one, 3 * one))
    want = Structured()(*arguments)
    torch.utils._pytree._register_namedtuple(Pair, serialized_type_name="tests.Pair")
    fxc.export(Structured(), *arguments, path=tmp_path / "s.pt2")
    for model in [fxc.compile(Structured(), *arguments), fxc.load(tmp_path / "s.pt2")]:
        got = model(*arguments)
        assert list(got) == list(want) and type(got["pair"]) is Pair
        assert torch.equal(got["pair"].first, want["pair"].first) and got["list"][1][1] is None
        assert torch.equal(got["list"][1][0], want["list"][1][0])
        torch.testing.assert_close(model(d=arguments[0], pair=arguments[1])["sum"], want["sum"])
    with pytest.raises(ValueError, match=r"`d` lacks the key 'b'"):
        model({"a": one}, arguments[1])
    with pytest.raises(TypeError, match=r"`d\['b'\]` must be a list"):
        model({"a": one, "b": one}, arguments[1])
    with pytest.raises(ValueError, match="key 'c'"):
        model({"a": one, "b": [one], "c": one}, arguments[1])


def test_data_classes_come_back() -> None:
    torch.export.register_dataclass(Boxes, serialized_type_name="tests.Boxes")

    class Detector(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return Boxes(x - 1, x + 1)

    got = fxc.compile(Detector(), torch.ones(2))(torch.ones(2))
    assert isinstance(got, Boxes) and got.label is None
    assert got.low.tolist() == [0, 0] and got.high.tolist() == [2, 2]


def test_outputs_of_transformers_come_back() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=30
    )
    module = transformers.BertModel(config).eval()
    ids = torch.randint(30, (1, 5))
    model = fxc.compile(module, input_ids=ids, attention_mask=torch.ones_like(ids))
    with torch.no_grad():
        want = module(input_ids=ids, attention_mask=torch.ones_like(ids))
    got = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    assert type(got) is type(want)
    torch.testing.assert_close(got.last_hidden_state, want.last_hidden_state, atol=1e-5, rtol=1e-5)


def test_failures_of_export_are_explained() -> None:
    with pytest.raises(fxc.ExportError, match="torch.cond") as e:
        fxc.compile(lambda x: x if x.sum() > 0 else -x, torch.ones(2))
    assert e.value.__cause__ is not None
    with pytest.raises(fxc.ExportError, match=r"pass options=\{'threads': \.\.\.\}"):
        fxc.compile(torch.nn.Linear(2, 2), torch.ones(1, 2), threads=1)
    with pytest.raises(fxc.ExportError, match="the arguments of a call of the module"):
        fxc.compile(Net(), torch.ones(2, 4), maks=torch.ones(2, 3))


def test_state_is_torchs() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))

        def forward(self, x: Any) -> Any:
            self.total += x
            return self.total * 10

    session = fxc.compile(Counter(), torch.ones(2)).session()
    session(torch.ones(2))
    assert session(torch.ones(2)).tolist() == [20, 20]
    state = session.state_dict()
    assert isinstance(state["total"], torch.Tensor) and state["total"].tolist() == [2, 2]
    session.load_state_dict({"total": torch.full((2,), 5.0)})
    assert session(torch.ones(2)).tolist() == [60, 60]


class Writer(torch.nn.Module):
    def forward(self, x: Any, state: Any) -> Any:
        state["total"] += x.sum()
        return x.mul_(2) + 1


def test_inputs_that_a_module_writes_are_written() -> None:
    model = fxc.compile(Writer(), torch.ones(3), {"total": torch.zeros(())})
    x, total = torch.arange(6.0)[::2].clone(), torch.zeros(())
    version = x._version
    assert model(x, {"total": total}).tolist() == [1, 5, 9]
    assert x.tolist() == [0, 4, 8] and x._version > version and total.item() == 6

    memory = np.arange(6, dtype=np.float32)
    assert model(memory[::2], {"total": np.zeros((), np.float32)}).tolist() == [1, 5, 9]
    assert memory.tolist() == [0, 1, 4, 3, 8, 5]

    fixed = np.ones(3, np.float32)
    fixed.flags.writeable = False
    assert model(fixed, {"total": np.zeros((), np.float32)}).tolist() == [3, 3, 3]
    assert fixed.tolist() == [1, 1, 1]
