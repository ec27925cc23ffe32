"""Statistics of the torch.compile backend in this process."""

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
    """Records ops that a graph leaves to torch."""
    with _lock:
        _left.update(ops)
        _reasons.update(reasons)


def note_failure(part: str, why: str) -> None:
    """Records a part that could not be compiled and runs in torch."""
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
    """Statistics of `torch.compile(..., backend="fxc")` in this process.

    graphs, parts: the numbers compiled. nodes: the numbers of their nodes that are compiled and that torch runs. left to torch: the ops
    that torch runs, with counts and reasons. failed parts: parts that failed to compile although they passed the check. packed, repacked:
    how often weights became constants of code for the first time and again. seconds: the time spent in the backend itself.
    """
    with _lock:
        names = ("graphs", "training graphs", "parts", "nodes", "packed", "repacked", "general", "refused")
        out: dict[str, Any] = {name: int(_counts[name]) for name in names}
        out["seconds"] = _counts["seconds"]
        out["left to torch"] = {op: {"nodes": n, "why": _reasons.get(op, "")} for op, n in _left.most_common()}
        out["failed parts"] = dict(_failed)
        return out


def reset() -> None:
    """Resets all counts and the set of warnings that were issued."""
    with _lock:
        for kept in (_counts, _left, _reasons, _failed, _warned):
            kept.clear()
