"""Random models that choose rows by their values, so that sizes are known only when they run: as PyTorch computes them."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

import fxc

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

WIDTH = 128


class ChosenRows(torch.nn.Module):
    """A random program, the same for each call, over matrices of all rows (`whole`) and of chosen rows (`parts`)."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.seed = seed
        self.weights = torch.nn.ParameterList([torch.randn(WIDTH, WIDTH) / WIDTH**0.5 for _ in range(4)])
        self.register_buffer("state", torch.zeros(WIDTH))

    def forward(self, x: Any) -> Any:
        r = random.Random(self.seed)
        whole, outputs = [x], []
        parts = [choose_rows(r, x)]
        for _ in range(r.randrange(4, 14)):
            rows, part = r.choice(parts)
            match r.randrange(12):
                case 0:
                    parts.append(choose_rows(r, r.choice(whole)))
                case 1 | 2:
                    parts.append((rows, torch.nn.functional.linear(part, r.choice(list(self.weights)))))
                case 3:
                    parts.append((rows, torch.softmax(part, -1) * WIDTH))
                case 4:
                    whole.append(r.choice(whole).index_add(0, rows, part))
                case 5:
                    whole.append(r.choice(whole) @ r.choice(list(self.weights)))
                case 6:
                    whole.append(r.choice(whole) + part.sum(0))
                case 7:
                    parts.append((rows, part + r.choice(whole)[rows]))
                case 8:
                    whole.append((part.t() @ part)[:1] * 0.01 + r.choice(whole))
                case 9:
                    parts.append((rows, torch.nn.functional.layer_norm(part, (WIDTH,))))
                case 10:
                    outputs.append(part.shape[0])
                case _:
                    outputs += [part[:2], torch.cat([part, r.choice(whole)])]
        if r.random() < 0.4:
            self.state.add_(whole[-1].mean(0))
        return (*outputs, whole[-1], parts[-1][1], r.choice(parts)[1])


def choose_rows(r: random.Random, x: Any) -> tuple[Any, Any]:
    """The indices of some rows, which depend on their values, and the rows."""
    match r.randrange(3):
        case 0:
            rows = torch.where(x.sum(1) > r.uniform(-5, 12))[0]
        case 1:
            rows = torch.nonzero(x[:, 0] > r.uniform(-1, 1))[:, 0]
        case _:
            rows = torch.where((x[:, :3] > 0.5).any(1))[0]
    torch._check(rows.shape[0] <= x.shape[0])
    return rows, x[rows]


def assert_equal(got: Any, expected: Any) -> None:
    if isinstance(expected, int):
        assert got == expected
        return
    largest = expected.abs().max().item() if expected.numel() else 0.0
    torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3 * max(1.0, largest), equal_nan=True)


@pytest.mark.parametrize("seed", range(12))
def test_sizes_that_depend_on_values_are_those_of_each_call(seed: int) -> None:
    module, rows = ChosenRows(seed).eval(), (8, 40)[seed % 2]
    with torch.no_grad():
        exported = torch.export.export(module, (torch.randn(rows, WIDTH),), strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fxc.CompileWarning)
        session = fxc.compile(exported, threads=1 + seed % 2).session()
    for call in range(4):
        # The third has no rows to choose for most programs.
        x = torch.randn(rows, WIDTH) if call != 2 else -3 * torch.rand(rows, WIDTH)
        with torch.no_grad():
            expected = module(x)
        for got, want in zip(session(x), expected, strict=True):
            assert_equal(got, want)
