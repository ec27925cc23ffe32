"""Models: the native class with additions in Python."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

from . import _fxc, _generate, _html
from ._bisect import Culprit
from ._errors import CompileWarning
from ._fxc import CompiledModel, Diagnostic, Generation, Graph
from ._profile import Profile, Step


class Model(CompiledModel):
    """A compiled model, called like the module that it was compiled from.

    The first call with new sizes compiles for them. A call does not change the model; `session()` returns a session that keeps
    buffers between calls.
    """

    _options: dict[str, Any]
    _edited: bool = False

    def __repr__(self) -> str:
        return f"<fxc.Model {self.name}({self.signature_text})>"

    def _repr_html_(self) -> str:
        return _html.model(self)

    def _copy_of(self, compiled: CompiledModel) -> Model:
        """A model derived from this one, with the same options."""
        model = Model(compiled, **self._options)
        model._options = self._options
        return model

    @property
    def inputs(self) -> list[tuple[str, str | None]]:
        """The graph's inputs with their types in fxc's notation (`f32[N, 64]`), or None for an undeclared type."""
        return _fxc.describe(self)[0]

    @property
    def outputs(self) -> list[tuple[str, str | None]]:
        """The results in flattened order, with their types as far as they can be inferred."""
        return _fxc.describe(self)[1]

    @property
    def code(self) -> str:
        """The graph as Python, in the form of torch's `gm.code`."""
        return _fxc.print_form(self, "code")

    @property
    def kernels(self) -> str:
        """The whole compiled program as Python that runs with numpy. `stage("kernels", *args)` returns it for other sizes."""
        return self.stage("kernels")

    def print(self, form: str = "fxir", *, fused: bool = False) -> str:
        """The model as text: `fxir`, `torch`, `code`, `readable`, `program`, `tabular`, `json`, or as a file for a viewer: `dot`, `svg`,
        `model-explorer`, `netron`. `fused` adds the fused groups of the compiled program to those for viewers."""
        return _fxc.print_form(self, form, fused)

    def stage(self, name: str, *args: Any, dims: dict[str, int] | None = None, **kwargs: Any) -> str:
        """The result of a compiler stage, as text.

        name: `graph`, `typed`, `optimized`, `optimized-code`, `tir`, `fusion`, `kernel-ir`, `kernels`, `clif` or `asm`.
        args, kwargs: arguments of a call, which determine the sizes. Without them, `dims` sets sizes, and the others are small.
        """
        return _fxc.stage_text(self, name, args, kwargs, {**(self._options.get("dims") or {}), **(dims or {})})

    def explain_fusion(self, *args: Any, dims: dict[str, int] | None = None, **kwargs: Any) -> str:
        """What each kernel computes and moves, and why other operations were not fused into it, for the sizes of a call or of `dims`."""
        return self.stage("fusion", *args, dims=dims, **kwargs)

    def to_svg(self, path: str | os.PathLike[str] | None = None, *, fused: bool = False) -> str:
        """The graph as a drawing, also written to `path`. `fused` shows the fused groups of the compiled program."""
        drawing = _fxc.print_form(self, "svg", fused)
        if path is not None:
            _fxc.write_file(path, drawing.encode())
        return drawing

    def profile(self, *args: Any, runs: int = 20, **kwargs: Any) -> Profile:
        """Measures every step of a call. `print` shows a table; `save_trace` writes a trace for Perfetto."""
        rows, seconds, interpreted = _fxc.profile(self, runs, args, kwargs)
        return Profile(self.name, [Step(*row) for row in rows], seconds, interpreted)

    def bisect(
        self,
        *args: Any,
        passes: bool = False,
        every: bool = False,
        rtol: float | None = None,
        atol: float = 1e-5,
        **kwargs: Any,
    ) -> Culprit | None:
        """Finds the cause of a wrong result: the first node that compiled code computes differently than the interpreter in this call. Returns
        None if the results agree.

        passes: finds the first pass that changes a result instead.
        every: checks every node, even if the final results agree.
        rtol, atol: the tolerances, as in `numpy.allclose`. By default, rtol is 1e-4, 1e-3 for f16 and 1.6e-2 for bf16; for
        these two, half of it times the largest magnitude is allowed in addition.
        """
        search = {"passes": passes, "every": every, "rtol": rtol, "atol": atol}
        row = _fxc.bisect(self, search, args, kwargs)
        return None if row is None else Culprit(*row)

    def generate(
        self,
        ids: Any,
        *,
        max_new_tokens: int = 64,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: int | Iterable[int] = (),
    ) -> Generation:
        """Generates the tokens that follow a prompt, with a language model: an iterator of integers, each computed when it is asked for.

        ids: the tokens of the prompt: integers, or an array or tensor of shape (n,) or (1, n).
        max_new_tokens: the maximum number of tokens.
        temperature: divides the scores before a token is drawn; 0 always takes the most probable token.
        top_k: draws among this many of the most probable tokens; 0 means all.
        top_p: draws among the most probable tokens whose probabilities add up to this.
        seed: the seed of the random numbers.
        stop: tokens that end the text. They are not returned.
        """
        return _generate.begin(self, ids, max_new_tokens, temperature, top_k, top_p, seed, stop)

    def interpret(self, *args: Any, **kwargs: Any) -> Any:
        """The result of a call in the interpreter, which computes each operation of the graph separately and does not change the
        arguments: what compiled code is compared with."""
        return _fxc.interpret(self, args, kwargs)

    def optimize(self) -> Model:
        """A model of the optimised graph."""
        return self._copy_of(_fxc.run_passes(self, None)[0])

    def run_passes(self, *names: str) -> tuple[Model, dict[str, int]]:
        """Runs passes by name on a copy. Returns the model and the number of changes of each pass. `fxc.passes()` lists the passes."""
        made, changed = _fxc.run_passes(self, list(names))
        return self._copy_of(made), dict(changed)

    def recompile(self) -> None:
        """Recompiles the model after `graph` was edited."""
        self._edited = True
        super().recompile()

    def __reduce__(self) -> tuple[object, ...]:
        if self.path is None or self._edited:
            why = "was edited" if self._edited else "has no file"
            raise TypeError(
                f"cannot pickle the model `{self.name}`, which {why}: only the path of a model's file is pickled; "
                'save it with `model.save("model.fxir")` and pickle `fxc.load("model.fxir")`'
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


def check(
    source: str | os.PathLike[str],
    *,
    text: bool = False,
    lints: bool = False,
    allow_paths: Sequence[str | os.PathLike[str]] | None = None,
    max_memory: int | str | None = None,
    max_nodes: int | None = None,
    max_time: float | None = None,
) -> list[Diagnostic]:
    """Checks a model or a rules file without compiling it, and returns all diagnostics.

    text: whether `source` is the text itself instead of a path.
    lints: whether to report unused nodes of traced graphs too.
    allow_paths, max_memory, max_nodes, max_time: as for `load`. Exceeding a limit is a diagnostic.
    """
    limits: dict[str, Any] = {"max_memory": max_memory, "max_nodes": max_nodes, "max_time": max_time}
    return _fxc.check(os.fspath(source), text=text, lints=lints, allow_paths=allow_paths, **limits)


def from_graph(graph: Graph, *, lazy: bool = False, **options: Any) -> Model:
    """A model from a graph that was built in Python. Edits of the graph take effect after `recompile`."""
    return _made(Model(graph, **options), options, lazy)


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    exact: bool = False,
    precision: str = "f32",
    fast_math: bool = False,
    dims: dict[str, int] | None = None,
    at: dict[str, list[int]] | None = None,
    targets: list[str] | None = None,
    cache: bool = True,
    allow_code: bool = True,
    fallback: bool = True,
    weights: str | os.PathLike[str] | None = None,
    skip_passes: Sequence[str] = (),
    allow_paths: Sequence[str | os.PathLike[str]] | None = None,
    max_memory: int | str | None = None,
    max_nodes: int | None = None,
    max_time: float | None = None,
    lazy: bool = False,
) -> Model:
    """Reads and compiles a model: a torch.export archive (`.pt2`), FXIR, or a graph printed by torch.

    threads: the number of threads for calls; by default `get_num_threads()`.
    exact: computes convolutions as sums of products, without faster algorithms that round differently.
    precision: what f32 products and convolutions multiply: "f32", or "bf16" for operands that are rounded, with f32 sums.
    fast_math: allows rewrites that change rounding, NaN and signed zeros.
    dims: fixes symbolic sizes, by name.
    at: sizes to compile for before the first call, by name: `{"N": [1, 8]}`. Names of one size are separated by commas.
    targets: processors to compile for (`["x86-64-v3", "x86-64-v4"]`): `save` writes code for each. By default the machine's.
    allow_code: whether to accept compiled models (`.fxc`), which are programs. Use False for paths that others choose.
    fallback: whether a compiled model without code for the inputs or the machine is compiled again; else that is an error (E0604).
    weights: a `.safetensors` file to read the weights from, instead of those that the model names or contains.
    skip_passes: names of passes that do not run.
    allow_paths: folders, besides that of `path`, in which a weights file may be that the text of a model names (E0410).
    cache: keeps the code in the user's cache and takes it from there (docs/artifacts.md); the environment's FXC_CACHE=off turns it off.
    max_memory: the memory that fxc may hold in this process while it reads, compiles or calls the model: bytes, or a text such as "2GiB".
    max_nodes: the nodes that the model's graphs may have after inlining, with the items of nested values; by default a million.
    max_time: the seconds that reading, compiling or a call may take. Beyond a limit, work ends with a CompileError.
    lazy: compiles in the first call, for graphs that are edited first.
    """
    options: dict[str, Any] = {"threads": threads, "exact": exact, "precision": precision, "fast_math": fast_math, "dims": dims}
    options |= {"at": at, "targets": targets, "cache": cache, "allow_code": allow_code, "allow_paths": allow_paths}
    options |= {"fallback": fallback, "weights": None if weights is None else os.fspath(weights), "skip_passes": list(skip_passes)}
    options |= {"max_memory": max_memory, "max_nodes": max_nodes, "max_time": max_time}
    return _made(Model(os.fspath(path), **options), options, lazy)


def _load_again(path: str, options: dict[str, Any]) -> Model:
    return load(path, **options)


def loads(
    content: str | bytes,
    *,
    threads: int | None = None,
    exact: bool = False,
    precision: str = "f32",
    fast_math: bool = False,
    dims: dict[str, int] | None = None,
    weights: str | os.PathLike[str] | None = None,
    skip_passes: Sequence[str] = (),
    allow_paths: Sequence[str | os.PathLike[str]] | None = None,
    max_memory: int | str | None = None,
    max_nodes: int | None = None,
    max_time: float | None = None,
    lazy: bool = False,
) -> Model:
    """Reads and compiles a model from a text (FXIR, or a graph printed by torch) or from the content of a file, such as an archive from a
    database. The options are those of `load`.

    allow_paths: folders, besides the working directory, in which a weights file may be that the text names (E0410).
    """
    options: dict[str, Any] = {"threads": threads, "exact": exact, "precision": precision, "fast_math": fast_math, "dims": dims}
    options |= {"weights": None if weights is None else os.fspath(weights), "skip_passes": list(skip_passes), "allow_paths": allow_paths}
    options |= {"max_memory": max_memory, "max_nodes": max_nodes, "max_time": max_time}
    return _made(Model(content, text=isinstance(content, str), **options), options, lazy)
