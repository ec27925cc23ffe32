"""What the tests of torch.compile have in common. Only imported where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import torch

from fxc.torch_backend import backend


def compiled(f: Any, *, dynamic: bool | None = None, **options: Any) -> Any:
    return torch.compile(f, backend=backend, dynamic=dynamic, options={"warn": False, **options})


def agree(got: Any, want: Any) -> None:
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert got.stride() == want.stride()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 16)
        self.second = torch.nn.Linear(16, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x).relu()) * self.scale
