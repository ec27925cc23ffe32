"""Graphs: rules and passes from Python, and the names of functions."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from typing import Any

from . import _fxc
from ._model import Model


def target_name(function: Any) -> str:
    """The name by which graphs call a function of Python or torch."""
    if not callable(function):
        raise TypeError(f"a node's target must be a function or its name, not {type(function).__name__}")
    module = getattr(function, "__module__", None)
    if module in ("operator", "_operator"):
        return f"operator.{function.__name__}"
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        if isinstance(function, torch._ops.OpOverload):
            return f"torch.ops.{function}"
        from torch.fx.node import _get_qualified_name

        return str(_get_qualified_name(function))
    return f"{module}.{function.__qualname__}"


@dataclass(frozen=True)
class Remark:
    """A rule that fired or nearly matched."""

    rule: str
    #: The node at which the pattern's first result was found.
    node: str
    #: Why it did not fire; None if it did.
    why_not: str | None

    def __str__(self) -> str:
        if self.why_not is None:
            return f"{self.rule}: fired at `%{self.node}`"
        return f"{self.rule}: near match at `%{self.node}`: {self.why_not}"


@dataclass(frozen=True)
class Rewritten:
    """The result of applying rules to a model."""

    model: Model
    #: The number of times that each rule fired.
    fired: dict[str, int]
    remarks: list[Remark] = field(repr=False)


def _is_path(rules: str | os.PathLike[str]) -> bool:
    return isinstance(rules, os.PathLike) or (rules.endswith(".fxir") and "\n" not in rules)


def rewrite(
    model: Model,
    rules: str | os.PathLike[str],
    *,
    fast: bool = False,
    remarks: bool = False,
    budget: int | None = None,
    once: bool = False,
    verify: bool = False,
) -> Rewritten:
    """Applies rewrite rules to a copy of a model until none matches.

    rules: rules in FXIR (docs/rules.md), such as `rewrite twice: add(%x, %x) => mul(%x, 2)`, or the path of a rules file.
    fast: whether rules marked `fast` run, which may change rounding, NaN and signed zeros.
    remarks: whether to report why near matches failed.
    budget: the maximum number of times that a rule fires in one graph.
    once: whether rules match only the original nodes of the model.
    verify: whether to try the rules on random graphs and values first; one that changes a result is a `CompileError` (E0808).
    """
    options = {"fast": fast, "remarks": remarks, "budget": budget, "once": once, "verify": verify}
    made, fired, found = _fxc.rewrite_model(model, os.fspath(rules), _is_path(rules), options)
    return Rewritten(model._copy_of(made), dict(fired), [Remark(*row) for row in found])


def passes() -> dict[str, str]:
    """The compiler's passes with their descriptions: those of the default pipeline, in order, then those that run only on request."""
    return dict(_fxc.passes())
