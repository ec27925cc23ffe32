"""Arguments and results of classes that torch's pytree registry flattens: named tuples, data classes, outputs of transformers."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any


class Restorer:
    """Rebuilds an exported function's result from its leaves. Until torch is loaded, the result consists of plain tuples, lists and dicts."""

    def __init__(self, spec: str) -> None:
        self._text = spec
        self._spec: Any = None

    def __call__(self, leaves: list[Any], plain: Any) -> Any:
        if self._spec is None and "torch" in sys.modules:
            self._spec = _load_spec(self._text) or False
        if not self._spec:
            return plain
        return sys.modules["torch.utils._pytree"].tree_unflatten(leaves, self._spec)


def _load_spec(text: str) -> Any:
    """torch's form of the specification; None if its classes cannot be found."""
    try:
        pytree = importlib.import_module("torch.utils._pytree")
        for name in _classes(json.loads(text)[1]):
            module = name.rpartition(".")[0]
            # The classes are named by a file, so only modules that the program has imported, or a well-known one, are searched.
            if module not in sys.modules and module.partition(".")[0] == "transformers":
                importlib.import_module(module)
        return pytree.treespec_loads(text)
    except (ImportError, NotImplementedError, KeyError, ValueError, AttributeError):
        return None


def _classes(spec: dict[str, Any]) -> Iterator[str]:
    if spec["type"] is not None:
        yield spec["type"]
    for child in spec["children_spec"]:
        yield from _classes(child)


def children(value: Any, name: str, place: str) -> list[Any]:
    """The parts of an argument of a registered class."""
    if name == "collections.namedtuple" and isinstance(value, tuple):
        return list(value)
    if name == "collections.deque":
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if "torch" in sys.modules:
        pytree = importlib.import_module("torch.utils._pytree")
        node = pytree.SUPPORTED_NODES.get(type(value))
        if node is not None:
            return list(node.flatten_fn(value)[0])
    raise TypeError(
        f"`{place}` must be a {name}, as in the export, not {type(value).__name__}, which is not registered with torch's pytree"
    )
