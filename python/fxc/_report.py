"""What the backend of torch.compile has done in this process."""

from __future__ import annotations

import collections
import threading
import warnings
from typing import Any

from ._errors import CompileWarning

_lock = threading.Lock()
_counts: collections.Counter[str] = collections.Counter()
_left: collections.Counter[str] = collections.Counter()
_reasons: dict[str, str] = {}
_failed: dict[str, str] = {}
_warned: set[object] = set()


def count(**numbers: float) -> None:
    """Adds to the counters."""
    with _lock:
        _counts.update(numbers)


def note_left(ops: dict[str, int], reasons: dict[str, str]) -> None:
    """Notes ops that a graph leaves to torch."""
    with _lock:
        _left.update(ops)
        _reasons.update(reasons)


def note_failure(part: str, why: str) -> None:
    """Notes a part that could not be compiled, and so runs in torch."""
    with _lock:
        _failed[part] = why
        _counts["failed parts"] += 1


def warn_once(key: object, text: str) -> None:
    """Warns, once for each key."""
    with _lock:
        if key in _warned:
            return
        _warned.add(key)
    warnings.warn(text, CompileWarning, stacklevel=2)


def stats() -> dict[str, Any]:
    """What `torch.compile(..., backend="fxc")` has done in this process.

    graphs, parts: how many were compiled. nodes: how many of their nodes are compiled, and how many torch runs. left to torch: the ops
    that torch runs, how often they occur, and why. failed parts: what could not be compiled though it was checked. packed, repacked:
    how often weights became constants of code for the first time and again. seconds: spent in the backend itself.
    """
    with _lock:
        names = ("graphs", "training graphs", "parts", "nodes", "packed", "repacked", "general", "refused")
        out: dict[str, Any] = {name: int(_counts[name]) for name in names}
        out["seconds"] = _counts["seconds"]
        out["left to torch"] = {op: {"nodes": n, "why": _reasons.get(op, "")} for op, n in _left.most_common()}
        out["failed parts"] = dict(_failed)
        return out


def reset() -> None:
    """Forgets all counts and which warnings were given."""
    with _lock:
        for kept in (_counts, _left, _reasons, _failed, _warned):
            kept.clear()
