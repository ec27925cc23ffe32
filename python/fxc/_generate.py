"""Text generation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _fxc
from ._fxc import CompiledModel, Generation


def prompt_tokens(ids: Any) -> list[int]:
    """The tokens of one prompt: a sequence of integers, or an array or tensor of shape (n,) or (1, n)."""
    shape = getattr(ids, "shape", None)
    if shape is not None:
        if len(shape) == 2 and shape[0] == 1:
            ids = ids[0]
        elif len(shape) != 1:
            raise ValueError(f"a prompt has the shape (n,) or (1, n), not {tuple(shape)}: generate handles one prompt at a time")
        ids = ids.tolist()
    return [int(token) for token in ids]


def begin(
    model: CompiledModel,
    ids: Any,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
    stop: int | Iterable[int],
) -> Generation:
    stops = [stop] if isinstance(stop, int) else list(stop)
    return _fxc.generate(
        model,
        prompt_tokens(ids),
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stops,
    )
