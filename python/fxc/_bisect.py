"""The cause of a wrong result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Culprit:
    """The first node that compiled code computes differently than the interpreter, or the first pass that changes a result."""

    #: The name of the node or pass.
    name: str
    #: The node's target, or the result that the pass changes.
    value: str
    #: The number of elements that differ by more than the tolerance.
    outside: int
    #: The number of all elements.
    count: int
    #: The largest difference of an element.
    largest: float
    #: Why the values cannot be compared: they have different dtypes or shapes.
    mismatch: str | None

    def __str__(self) -> str:
        how = f"{self.outside} of {self.count} elements exceed the tolerance, by at most {self.largest:.1e}"
        return f"{self.name} ({self.value}): {self.mismatch or how}"
