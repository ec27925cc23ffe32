"""Weights that compiled parts contain as constants, and the detection of their changes.

The graphs that torch.compile captures take weights as inputs, so that one graph serves all modules of a class. A part whose weights are
constants is faster: they are folded and packed when it is compiled. So a part has one variant for each set of weights, which holds as
long as the weights are the same objects at the same addresses with the same version counters and the same first, middle and last
elements; and a general variant that takes them as inputs. New sets run generally, and are packed once they have stayed the same for some
calls.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from . import _report
from ._fxc import PackingMemory, Part, Weights

#: The maximum number of sets of weights that a part is compiled for.
_KEPT = 8
#: The maximum number of other sets that are watched.
_WATCHED = 32
#: The number of calls for which a new set must stay the same before it is packed. It is multiplied by four whenever a packed set changes.
_PATIENCE = 2

#: Incremented to mark all weights as changed.
_generation = 0


def refresh() -> None:
    """Marks all weights as changed, so that the next call of each graph reads them again. Needed only after writes to some elements of a
    weight that bypass torch's version counter, as writes through `.data` and numpy do."""
    global _generation
    _generation += 1


class Reserve:
    """Memory for the packed weights of a graph. The system clears its pages while AOTAutograd traces the graph."""

    def __init__(self, weights: list[Any]) -> None:
        self._memory = PackingMemory([t.numel() * t.element_size() for t in weights])
        #: The creator is the first one.
        self._users = 1

    def add_user(self) -> None:
        """Keeps the memory until one more call of `release`."""
        self._users += 1

    def release(self) -> None:
        """Ends the use by one user. The last one returns what is left."""
        self._users -= 1
        if self._users == 0:
            self._memory.release()


class WeightedPart:
    """A part of a graph with some inputs that seldom change."""

    def __init__(self, make: Callable[[dict[int, Any]], Part], positions: list[int], reserve: Reserve | None) -> None:
        self._make = make
        self._positions = positions
        self._reserve = reserve
        if reserve is not None:
            reserve.add_user()
        self._packed: list[tuple[Weights, Part]] = []
        self._watched: list[list[Any]] = []  # [Weights, calls]
        self._general: Part | None = None
        self._patience = _PATIENCE
        self._lock = threading.Lock()
        self._generation = _generation

    def __call__(self, args: list[Any]) -> list[Any]:
        if self._generation == _generation:
            for weights, part in self._packed:
                if weights.match_call(args):
                    return part(args)
        return self._choose(args)(args)

    def _choose(self, args: list[Any]) -> Part:
        """The variant for weights that are not packed."""
        with self._lock:
            if self._generation != _generation:
                self._generation = _generation
                self._packed.clear()
                self._watched.clear()
                return self._pack(args)
            changed = [e for e in self._packed if e[0].are_objects_of(args)]
            if changed:
                self._packed = [e for e in self._packed if e not in changed]
                self._patience *= 4
            if not self._packed and not changed and not self._watched:
                return self._pack(args)
            if self._stayed(args) and len(self._packed) < _KEPT:
                _report.count(repacked=1)
                return self._pack(args)
            return self._generally()

    def _pack(self, args: list[Any]) -> Part:
        _report.count(packed=1)
        weights = Weights(args, self._positions)
        try:
            part = self._make({p: args[p] for p in self._positions})
        finally:
            if self._reserve is not None:
                self._reserve.release()
                self._reserve = None
        self._packed = [(weights, part), *self._packed]
        return part

    def _stayed(self, args: list[Any]) -> bool:
        """Whether these weights have been the same for some calls."""
        for entry in self._watched:
            if entry[0].match_call(args):
                entry[1] += 1
                if entry[1] < self._patience:
                    return False
                self._watched.remove(entry)
                return True
        self._watched = [e for e in self._watched if not e[0].are_objects_of(args)][-_WATCHED + 1 :]
        self._watched.append([Weights(args, self._positions), 1])
        return False

    def _generally(self) -> Part:
        if self._general is None:
            _report.count(general=1)
            self._general = self._make({})
        return self._general
