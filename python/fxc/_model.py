"""Models: what the native half does, with what Python adds."""

from __future__ import annotations

import os
import warnings
from typing import Any

from ._errors import CompileWarning, Error
from ._fxc import CompiledModel


class Model(CompiledModel):
    """A compiled model, called like the module that it was made of.

    The first call with new sizes compiles for them. A call does not change the model: `session()` gives one that remembers its
    buffers.
    """

    _options: dict[str, Any]
    _edited: bool = False

    def __repr__(self) -> str:
        return f"<fxc.Model {self.name}({self.signature_text})>"

    def __reduce__(self) -> tuple[object, ...]:
        if self.path is None or self._edited:
            why = "was edited" if self._edited else "has no file"
            raise TypeError(
                f"the model `{self.name}` {why}, and a compiled model is pickled as the name of its file; "
                'write it with `model.save("model.fxir")` and pickle `fxc.load("model.fxir")`'
            )
        return (_load_again, (os.path.abspath(self.path), self._options))


def _made(model: Model, options: dict[str, Any], lazy: bool) -> Model:
    model._options = options
    if not lazy:
        model.compile()
        for finding in model.warnings:
            if finding.code == "L0003":
                warnings.warn(str(finding), CompileWarning, stacklevel=3)
    return model


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    exact: bool = False,
    fast_math: bool = False,
    dims: dict[str, int] | None = None,
    lazy: bool = False,
) -> Model:
    """Reads and compiles a model: an archive of torch.export (`.pt2`), FXIR, or what torch prints of a graph.

    threads: how many threads calls run on; by default `get_num_threads()`.
    exact: convolutions are the sums of their products, and no faster algorithm that rounds differently takes their place.
    fast_math: rewrites may change rounding, NaN and signed zeros.
    dims: fixes symbolic sizes, by name.
    lazy: compiles with the first call, for graphs that are edited first.
    """
    options: dict[str, Any] = {"threads": threads, "exact": exact, "fast_math": fast_math, "dims": dims}
    return _made(Model(os.fspath(path), **options), options, lazy)


def _load_again(path: str, options: dict[str, Any]) -> Model:
    return load(path, **options)


def loads(
    text: str,
    *,
    threads: int | None = None,
    exact: bool = False,
    fast_math: bool = False,
    dims: dict[str, int] | None = None,
    lazy: bool = False,
) -> Model:
    """Reads and compiles a model from a text: FXIR, or what torch prints of a graph. The options are those of `load`."""
    options: dict[str, Any] = {"threads": threads, "exact": exact, "fast_math": fast_math, "dims": dims}
    return _made(Model(text, text=True, **options), options, lazy)


__all__ = ["Error", "Model", "load", "loads"]
