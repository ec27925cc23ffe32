"""Compiled files, the cache, the op table, and texts."""

from __future__ import annotations

import json
import os
from typing import Any

from . import _fxc


def info(path: str | os.PathLike[str], *, verify: bool = False) -> dict[str, Any]:
    """Describes a compiled model (`.fxc`): its native parts with the processors and inputs that they are for, and its sections.

    verify: checks the checksums of all sections, which reads the whole file.
    """
    described: dict[str, Any] = json.loads(_fxc.info(os.fspath(path), verify))
    return described


def cache_info() -> dict[str, Any] | None:
    """Describes the cache of compiled models: its folder, limit and entries, most recently used first. None if it is off."""
    text = _fxc.cache_info()
    described: dict[str, Any] | None = None if text is None else json.loads(text)
    return described


def clear_cache() -> int:
    """Empties the cache of compiled models. Returns the number of bytes that were freed."""
    return _fxc.clear_cache()


def ops() -> list[dict[str, Any]]:
    """The op table: for each op its name, schema, description, spellings, modules of `torch.nn` and an example (docs/ops.md)."""
    rows: list[dict[str, Any]] = json.loads(_fxc.ops())
    return rows
