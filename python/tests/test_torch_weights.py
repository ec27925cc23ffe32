"""`torch.compile(…, backend="fxc")`: weights, which compiled parts contain until they change."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import fxc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fresh")]

from torch_support import Net, agree, compiled  # noqa: E402

from fxc import torch_backend  # noqa: E402
from fxc.torch_backend import refresh  # noqa: E402


def replace_parameter(m: Any) -> None:
    m.first.weight = torch.nn.Parameter(torch.randn(16, 6))


def set_data(m: Any) -> None:
    m.first.weight.data = torch.randn(16, 6)


def write_data(m: Any) -> None:
    m.first.weight.data.copy_(torch.randn(16, 6))


def write_in_place(m: Any) -> None:
    with torch.no_grad():
        m.first.weight.mul_(2)


def load_state(m: Any) -> None:
    m.load_state_dict(Net().state_dict())


def optimizer_step(m: Any) -> None:
    m(torch.randn(3, 6)).sum().backward()
    torch.optim.Adam(m.parameters(), lr=0.1).step()


def write_buffer(m: Any) -> None:
    m.scale += 1


CHANGES = [replace_parameter, set_data, write_data, write_in_place, load_state, optimizer_step, write_buffer]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_changed_weight_is_noticed(change: Callable[[Any], None]) -> None:
    m = Net().eval()
    c, x = compiled(m), torch.randn(3, 6)
    with torch.no_grad():
        agree(c(x), m(x))
    for _ in range(2):
        change(m)
        with torch.no_grad():
            agree(c(x), m(x))
            agree(c(x), m(x))
    assert fxc.stats()["graphs"] == 1


def test_a_write_to_one_element_by_data_needs_refresh_or_weights_as_inputs() -> None:
    m, x = Net().eval(), torch.ones(3, 6)
    packed, plain = compiled(m), compiled(m, pack_weights=False)
    with torch.no_grad():
        packed(x), plain(x)
        m.first.weight.data[1, 2] += 1
        agree(plain(x), m(x))
        refresh()
        agree(packed(x), m(x))


def test_weights_that_change_in_every_call_are_compiled_for_once() -> None:
    m, x = Net().eval(), torch.randn(3, 6)
    c = compiled(m)
    with torch.no_grad():
        for _ in range(30):
            agree(c(x), m(x))
            m.second.bias += 1
    stats = fxc.stats()
    assert (stats["packed"], stats["general"]) == (1, 1)


def test_weights_that_changed_once_are_packed_again() -> None:
    m, x = Net().eval(), torch.randn(3, 6)
    c = compiled(m)
    with torch.no_grad():
        c(x)
        m.second.bias += 1
        for _ in range(30):
            agree(c(x), m(x))
    assert fxc.stats()["packed"] == 2


def test_three_modules_of_one_class() -> None:
    nets, x = [Net().eval() for _ in range(3)], torch.randn(3, 6)

    def call(m: Any, x: Any) -> Any:
        return m(x)

    c = compiled(call)
    with torch.no_grad():
        for _ in range(30):
            for m in nets:
                agree(c(m, x), m(x))
    stats = fxc.stats()
    assert (stats["graphs"], stats["packed"]) == (1, 3)


def test_tied_weights() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(10, 8)
            self.head = torch.nn.Linear(8, 10, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids: Any) -> Any:
            return self.head(self.embedding(ids).tanh())

    m, ids = Tied(), torch.randint(10, (2, 5))
    c = compiled(m)
    with torch.no_grad():
        agree(c(ids), m(ids))
        m.head.weight.mul_(2)
        agree(c(ids), m(ids))
    c(ids).sum().backward()
    got = m.head.weight.grad.clone()
    m.zero_grad()
    m(ids).sum().backward()
    agree(got, m.head.weight.grad)


def test_packing_leaves_no_objects_for_each_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """AOTAutograd watches torch's operations during the first call. Enough objects make Python's collector visit the whole process."""
    left: list[int] = []
    part = torch_backend.CompiledPart

    def counting(*args: Any, **kwargs: Any) -> Any:
        gc.disable()
        before = gc.get_count()[0]
        try:
            return part(*args, **kwargs)
        finally:
            left.append(gc.get_count()[0] - before)
            gc.enable()

    monkeypatch.setattr(torch_backend, "CompiledPart", counting)
    m, x = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(150))).eval(), torch.randn(2, 8)
    with torch.no_grad():
        agree(compiled(m)(x), m(x))
    assert len(left) == 1 and left[0] < 150


def test_memory_for_packing_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    reserves: list[Any] = []
    reserve = torch_backend.Reserve

    def remembering(weights: list[Any]) -> Any:
        assert [w.shape for w in weights] == [(8, 8)]
        reserves.append(reserve(weights))
        return reserves[-1]

    monkeypatch.setattr(torch_backend, "Reserve", remembering)

    def f(m: Any, table: Any, ids: Any) -> Any:
        return m(torch.nn.functional.embedding(ids, table))

    m, table = torch.nn.Linear(8, 8).eval(), torch.nn.Parameter(torch.randn(10, 8))
    with torch.no_grad():
        compiled(f)(m, table, torch.arange(4))
    assert [r._users for r in reserves] == [0]
