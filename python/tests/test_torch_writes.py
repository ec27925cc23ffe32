"""`torch.compile(…, backend="fxc")`: inputs and buffers that a function writes."""

from __future__ import annotations

from typing import Any

import pytest

import fxc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fresh")]

from fxc import _partition  # noqa: E402
from fxc.torch_backend import backend  # noqa: E402


def check(f: Any, *args: Any, calls: int = 3) -> None:
    """Compares results and written arguments with eager PyTorch's over several calls."""
    c = torch.compile(f, backend=backend, options={"warn": False})
    ours, theirs = [a.clone() for a in args], [a.clone() for a in args]
    addresses = [a.data_ptr() for a in ours]
    with torch.no_grad():
        for _ in range(calls):
            torch.testing.assert_close(c(*ours), f(*theirs))
            torch.testing.assert_close(ours, theirs)
    assert [a.data_ptr() for a in ours] == addresses


def attend(q: Any, k: Any, cache: Any, position: Any) -> Any:
    """A step of attention with a static cache."""
    cache.index_copy_(1, position, k)
    position.add_(1)
    return torch.softmax(q @ cache.transpose(-1, -2), -1) @ cache


def test_a_step_writes_only_its_part_of_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    write_in_place = _partition.write_in_place

    def spy(graph: Any) -> None:
        write_in_place(graph)
        seen.extend(str(n.target) for n in graph.nodes if n.op == "call_function")

    monkeypatch.setattr(_partition, "write_in_place", spy)
    check(attend, torch.randn(2, 1, 8), torch.randn(2, 1, 8), torch.zeros(2, 16, 8), torch.tensor([3]))
    assert "aten.index_copy_.default" in seen and "aten.index_copy.default" not in seen
    # The position's new value is computed, and copied to the input.
    assert seen.count("aten.copy_.default") == 1
    assert fxc.stats()["left to torch"] == {}


def put(x: Any, i: Any, cache: Any) -> Any:
    cache.index_put_((i,), x, accumulate=True)
    return cache * 2


def returned(x: Any, i: Any, cache: Any) -> Any:
    """The written input is also a result, and its old value is read after the write."""
    old = cache * 3
    cache.scatter_(0, i[:, None].expand(2, 4), x)
    return old, cache, cache[:1]


def old_value_is_read_late(x: Any, i: Any, cache: Any) -> Any:
    """The random tensor comes between the write and the product, in an order of its own."""
    old = cache.clone()
    cache.mul_(2)
    return (old @ torch.zeros_like(torch.rand(4, 4)) + old).relu() + x.sum()


def part_of_a_view(x: Any, i: Any, cache: Any) -> Any:
    cache[1, 1:3] = x[0, :2]
    cache[:, 0].index_copy_(0, i, x[:, 1])
    return cache.sum()


@pytest.mark.parametrize("f", [put, returned, old_value_is_read_late, part_of_a_view], ids=lambda f: f.__name__)
def test_writes_are_eager_pytorchs(f: Any) -> None:
    check(f, torch.randn(2, 4), torch.tensor([4, 1]), torch.randn(5, 4))
