"""`torch.compile(model, backend="fxc")`.

    Dynamo ──graph──▶ AOTAutograd ──ATen graphs──▶ compile_graph ──▶ parts (fxc) and the ops between them (torch)

docs/torch-compile.md says what is compiled, and what to know of weights.
"""

from __future__ import annotations

import functools
import logging
import operator
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from . import _fx_text, _partition, _report
from ._errors import LIMITS, CompileError, InputError
from ._fx_text import Node, is_size
from ._fxc import Part as CompiledPart
from ._partition import Part, Plan
from ._weights import Reserve, WeightedPart, refresh

__all__ = ["backend", "refresh"]

log = logging.getLogger("torch._dynamo.fxc")
Runner = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Settings:
    """The options of `torch.compile(..., backend="fxc", options={...})`."""

    #: The number of threads; by default torch.get_num_threads() at the time of compilation.
    threads: int | None = None
    #: Whether convolutions are computed as plain sums of products, without faster algorithms that round differently.
    exact: bool = False
    #: "strict" keeps rounding, NaN and signed zeros; "fast" lets rewrites change them.
    precision: str = "strict"
    #: Whether weights become constants of inference graphs. Otherwise they are inputs, whose elements are read in each call.
    pack_weights: bool = True
    #: Whether a warning names the ops that torch runs.
    warn: bool = True

    @staticmethod
    def read(options: dict[str, Any] | None) -> Settings:
        known = {f: getattr(Settings, f) for f in Settings.__dataclass_fields__}
        for key in options or {}:
            if key not in known:
                raise ValueError(f'backend "fxc" has no option {key!r}; its options are {", ".join(sorted(known))}')
        settings = replace(Settings(), **(options or {}))
        if settings.precision not in ("strict", "fast"):
            raise ValueError(f'the option precision must be "strict" or "fast", not {settings.precision!r}')
        return settings

    def compiling(self) -> dict[str, Any]:
        """The options of the native half."""
        threads = self.threads or torch.get_num_threads()
        return {"threads": threads, "exact": self.exact, "fast_math": self.precision == "fast"}


def backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    **_ignored: Any,
) -> Callable[..., Any]:
    """Compiles a graph that Dynamo captured. A graph that fxc cannot compile runs as it would without torch.compile."""
    from torch._dynamo.backends.common import aot_autograd

    settings = Settings.read(options)
    _refuse_foreign(gm, example_inputs)
    name = _frame(gm)
    may_train = _may_train(example_inputs)
    reserve = Reserve(_packed_weights(gm, example_inputs)) if settings.pack_weights and not may_train else None
    compiler = aot_autograd(
        inference_compiler=functools.partial(compile_graph, settings, name, "inference", reserve=reserve),
        fw_compiler=functools.partial(compile_graph, settings, name, "forward"),
        bw_compiler=functools.partial(compile_graph, settings, name, "backward"),
        decompositions=_decompositions() if may_train else {},
        keep_inference_input_mutations=True,
    )
    try:
        compiled: Callable[..., Any] = compiler(gm, list(example_inputs))
    finally:
        if reserve is not None:
            reserve.release()
    return compiled


def _reset() -> None:
    _report.reset()


# `torch._dynamo.reset()` calls this.
backend.reset = _reset  # type: ignore[attr-defined]


def _frame(gm: torch.fx.GraphModule) -> str:
    """The key that identifies the graphs of one function of a model."""
    compile_id = gm.meta.get("dynamo_compile_id")
    return f"frame {compile_id.frame_id}" if compile_id is not None else f"graph {id(gm)}"


def _refuse_foreign(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Skips a graph with inputs that fxc cannot read: it runs in eager torch."""
    from torch._dynamo.exc import SkipFrame

    for value in inputs:
        if not isinstance(value, torch.Tensor):
            continue
        why = None
        if value.device.type != "cpu":
            why = f"on {value.device}"
        elif value.layout != torch.strided or value.is_quantized:
            why = f"with the layout {value.layout} and the dtype {value.dtype}"
        elif value.is_neg() or value.is_conj():
            why = "with a pending negation or conjugation"
        if why is not None:
            _report.count(refused=1)
            text = f"fxc only supports dense CPU tensors: a function with a tensor {why} runs in eager PyTorch"
            _report.warn_once(("refused", why), text)
            raise SkipFrame(text)


def _may_train(inputs: Sequence[Any]) -> bool:
    """Whether a graph may be compiled with a backward pass. Reading the decompositions takes a tenth of a second."""
    return torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and t.requires_grad for t in inputs)


def _packed_weights(gm: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The parameters that products and convolutions may read: all but vectors and the tables of embeddings."""
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    pairs = zip(placeholders, inputs, strict=False)
    weights = [(n, t) for n, t in pairs if isinstance(t, torch.nn.Parameter) and t.dim() > 1]
    return [t for n, t in weights if not all("embedding" in str(user.target) for user in n.users)]


@functools.cache
def _decompositions() -> dict[Any, Any]:
    """Decompositions of derivatives that fxc has no ops for. Ops that torch computes in one fast pass are not decomposed."""
    from torch._decomp import core_aten_decompositions

    kept = ("convolution_backward", "embedding_dense_backward", "max_pool2d_with_indices_backward", "_softmax_backward_data")
    table = core_aten_decompositions()
    return {op: f for op, f in table.items() if "backward" in str(op) and not any(k in str(op) for k in kept)}


def compile_graph(
    settings: Settings,
    name: str,
    kind: str,
    gm: torch.fx.GraphModule,
    inputs: Sequence[Any],
    reserve: Reserve | None = None,
) -> Runner:
    """Compiles a graph of ATen ops: its forward as AOTAutograd calls it, with one list."""
    begin = time.perf_counter()
    _partition.share_sizes(gm.graph)
    _partition.write_in_place(gm.graph)
    left = _partition.objections(gm.graph)
    plan = _partition.plan(gm.graph, left)
    statics = _static_inputs(gm) if kind == "inference" and settings.pack_weights else set()
    run = Builder(settings, f"{name}, {kind}", gm, plan, statics, reserve).build()
    if plan.left:
        run = _Reporting(run, settings, name, kind, plan)
    written = _partition.written_inputs(gm.graph)
    if written:
        run = _keeping_versions(run, written)
    compiled = sum(map(_partition.computes, (n for p in plan.parts for n in p.nodes)))
    _report.count(graphs=1, parts=len(plan.parts), nodes=compiled, seconds=time.perf_counter() - begin)
    if kind == "forward":
        _report.count(**{"training graphs": 1})
    log.info("%s, %s: %d parts, %d nodes compiled, %d left to torch", name, kind, len(plan.parts), compiled, len(plan.left))
    return _boxed(run)


def _boxed(run: Runner) -> Runner:
    """Wraps a function so that AOTAutograd can call it with a list."""

    def boxed(args: list[Any]) -> list[Any]:
        return run(args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _keeping_versions(run: Runner, written: list[int]) -> Runner:
    """Runs a graph whose writes to these inputs do not count as changes: AOTAutograd counts one for each input that a graph changes."""

    def keeping(args: list[Any]) -> list[Any]:
        tensors = tuple(args[i] for i in written if not args[i].is_inference())
        with torch.autograd._unsafe_preserve_version_counter(tensors):
            return run(args)

    return keeping


def _static_inputs(gm: torch.fx.GraphModule) -> set[Node]:
    """The inputs that are parameters and buffers, without those that the graph changes."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    if metadata is None or len(metadata.input_info) != len(placeholders):
        return set()
    indices = metadata.static_input_indices or []
    chosen = [i for i in indices if not metadata.input_info[i].mutates_data]
    return {placeholders[i] for i in chosen if isinstance(placeholders[i].meta.get("val"), torch.Tensor)}


class Builder:
    """Builds the runnable form of a plan."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        gm: torch.fx.GraphModule,
        plan: Plan,
        statics: set[Node],
        reserve: Reserve | None = None,
    ) -> None:
        self.settings, self.name, self.gm, self.plan, self.statics = settings, name, gm, plan, statics
        self.reserve = reserve
        self.graph = torch.fx.Graph()
        self.made: dict[Node, Node] = {}

    def build(self) -> Runner:
        whole = self._whole()
        if whole is not None:
            return whole
        for item in self.plan.order:
            if isinstance(item, Part):
                self._call_part(item)
            else:
                self.made[item] = self.graph.node_copy(item, self._get)
        output = next(n for n in reversed(self.gm.graph.nodes) if n.op == "output")
        results = torch.fx.node.map_arg(output.args[0], self._get)
        self.graph.output(list(results))
        self.graph.set_codegen(torch.fx.graph._BoxedCodeGen())
        module = torch.fx.GraphModule(self.gm, self.graph)
        forward: Runner = module.forward
        return forward

    def _get(self, n: Node) -> Node:
        """The node of the new graph that has a node's value."""
        if n not in self.made:
            # A view of a part's result or input.
            self.made[n] = self.graph.node_copy(n, self._get)
        return self.made[n]

    def _call_part(self, part: Part) -> None:
        index = self.plan.parts.index(part)
        run = _Guarded(self, part, f"{self.name}, part {index}", [*part.inputs, *part.sizes]).run
        given = [self._get(n) for n in [*part.inputs, *part.sizes]]
        given += [self._get(n) for n in run.extra]
        run.__name__ = f"fxc_part_{index}"
        call = self.graph.call_function(run, (given,))
        for i, n in enumerate(part.results):
            item = self.graph.call_function(operator.getitem, (call, i))
            item.meta = dict(n.meta)
            self.made[n] = item

    def _whole(self) -> Runner | None:
        """The runner of a graph that is one part, which takes the graph's inputs unchanged."""
        if len(self.plan.parts) != 1 or self.plan.views:
            return None
        if any(isinstance(n, torch.fx.Node) and n.op != "placeholder" and not is_size(n) for n in self.plan.order):
            return None
        output = next(n for n in reversed(self.gm.graph.nodes) if n.op == "output")
        placeholders = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
        results = list(output.args[0])
        guarded = _Guarded(self, self.plan.parts[0], self.name, placeholders, results)
        return guarded.run if guarded.is_complete else None


class _Guarded:
    """A compiled part. Torch's ops run in its place if compiling fails."""

    def __init__(self, builder: Builder, part: Part, name: str, given: list[Node], results: list[Any] | None = None) -> None:
        self.settings, self.name, self.part, self.gm = builder.settings, name, part, builder.gm
        self.reserve = builder.reserve
        self.given = given
        self.whole = results is not None
        self.results: list[Any] = results if results is not None else list(part.results)
        self.extra: list[Node] = []
        self.is_complete = True
        self.sizes = {str(n.meta["val"].node.expr): i for i, n in enumerate(given) if _is_symbol(n)}
        weights = [i for i, n in enumerate(given) if n in builder.statics and n in part.inputs]
        self.call: Runner | None = None
        self._find_sizes(set())
        if weights:
            # Constants are not inputs, so sizes that only they have need another source.
            self._find_sizes({given[i] for i in weights})
        if self.is_complete:
            self._compile(weights)
        self.run = self._runner()

    def _find_sizes(self, weights: set[Node]) -> None:
        """Finds a source for the sizes that are not dims of the part's tensors, with these inputs as constants."""
        try:
            text = self._text(weights)
        except _fx_text.Inexpressible:
            return
        for source, _ in text.inputs:
            if not isinstance(source, str) or source in self.sizes:
                continue
            found = next((n for n in self.gm.graph.nodes if _is_symbol(n) and str(n.meta["val"].node.expr) == source), None)
            if found is None or self.whole:
                self.is_complete = False
                return
            self.sizes[source] = len(self.given) + len(self.extra)
            self.extra.append(found)

    def _text(self, weights: set[Node]) -> _fx_text.PartText:
        computed = [r for r in self.results if not self._is_given(r)]
        return _fx_text.write_part(self.part.nodes, self.part.inputs, computed, weights)

    def _is_given(self, result: Any) -> bool:
        return self.whole and isinstance(result, torch.fx.Node) and result in self.given

    def _compile(self, weights: list[int]) -> None:
        if weights:
            self.call = WeightedPart(self._make, weights, self.reserve)
            return
        try:
            self.call = self._make({})
        except (CompileError, _fx_text.Inexpressible) as e:
            self._fail(e)

    def _make(self, weights: dict[int, Any]) -> CompiledPart:
        """The native part with these inputs as constants."""
        begin = time.perf_counter()
        text = self._text({self.given[i] for i in weights})
        positions = {n: i for i, n in enumerate(self.given)}
        inputs = [(self.sizes[s] if isinstance(s, str) else positions[s], order) for s, order in text.inputs]
        orders = iter(text.orders)
        results = [positions[r] if self._is_given(r) else next(orders) for r in self.results]
        values = {text.weights[self.given[i]]: t for i, t in weights.items()}
        part = CompiledPart(text.text, values, inputs, results, **self.settings.compiling())
        _report.count(seconds=time.perf_counter() - begin)
        return part

    def _fail(self, why: Exception) -> None:
        first = next((line for line in str(why).splitlines() if line.strip()), type(why).__name__)
        _report.note_failure(self.name, str(why))
        _report.warn_once(("failed", self.name), f"fxc could not compile {self.name}, which runs in PyTorch instead: {first}")
        self.call = None

    def _runner(self) -> Any:
        in_torch: list[Runner] = []

        def run(args: list[Any]) -> list[Any]:
            if self.call is not None:
                try:
                    return self.call(args)
                except CompileError as e:
                    # Memory may be available in the next call.
                    if e.code not in LIMITS:
                        self._fail(e)
                except OverflowError:
                    pass  # a negative int, which the part takes for a size: this call runs in torch
                except InputError as e:
                    # A value that an op refuses: torch raises its own error.
                    # E0503: the dtype of an op's result differs from the one that torch recorded for it.
                    if e.code == "E0503":
                        self._fail(e)
            if not in_torch:
                in_torch.append(self._in_torch())
            return in_torch[0](args)

        run.extra = self.extra  # type: ignore[attr-defined]
        return run

    def _in_torch(self) -> Runner:
        """The part as torch runs it."""
        if self.whole:
            return lambda args: list(torch.fx.Interpreter(self.gm).boxed_run(list(args)))
        graph = torch.fx.Graph()
        made = {n: graph.placeholder(n.name) for n in self.given}
        for n in self.part.nodes:
            made[n] = graph.node_copy(n, lambda a: made[a])
        graph.output([made[r] for r in self.results])
        module = torch.fx.GraphModule(self.gm, graph)
        count = len(self.given)
        return lambda args: list(module(*args[:count]))


def _is_symbol(n: Node) -> bool:
    value = n.meta.get("val")
    return isinstance(value, torch.SymInt) and bool(value.node.expr.is_Symbol)


class _Reporting:
    """Runs a graph, and reports torch's share of the time after the first call."""

    def __init__(self, run: Runner, settings: Settings, name: str, kind: str, plan: Plan) -> None:
        self.run = run
        self.todo = settings.warn
        self.name, self.kind, self.parts = name, kind, len(plan.parts)
        self.ops: dict[str, int] = {}
        reasons: dict[str, str] = {}
        for n in plan.left:
            self.ops[str(n.target)] = self.ops.get(str(n.target), 0) + 1
            reasons.setdefault(str(n.target), plan.reasons.get(n, ""))
        self.compiled = sum(map(_partition.computes, (n for p in plan.parts for n in p.nodes)))
        self.lock = threading.Lock()
        _report.note_left(self.ops, reasons)

    def __call__(self, args: list[Any]) -> list[Any]:
        if not self.todo:
            return self.run(args)
        with self.lock:
            first, self.todo = self.todo, False
        module = getattr(self.run, "__self__", None)
        if not first or not isinstance(module, torch.fx.GraphModule):
            return self.run(args)
        timed = _Timed(module)
        begin = time.perf_counter()
        out: list[Any] = timed.boxed_run(args)
        self._warn(timed.seconds, time.perf_counter() - begin)
        return out

    def _warn(self, torchs: float, all_of_it: float) -> None:
        most = sorted(self.ops.items(), key=lambda item: -item[1])
        shown = ", ".join(f"{op} ({n} times)" if n > 1 else op for op, n in most[:8])
        shown += f" and {len(most) - 8} other ops" if len(most) > 8 else ""
        text = (
            f"PyTorch runs {sum(self.ops.values())} of {sum(self.ops.values()) + self.compiled} operations of this {self.kind} "
            f"graph, which split it into {self.parts} compiled parts: {shown}. In the first call they took "
            f"{torchs * 1e3:.2g} of {all_of_it * 1e3:.2g} ms. fxc.stats() lists the reasons."
        )
        _report.warn_once((self.name, self.kind), text)


class _Timed(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph, and adds up how long torch's ops take."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.seconds = 0.0

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        begin = time.perf_counter()
        out = super().call_function(target, args, kwargs)
        if isinstance(target, torch._ops.OpOverload):
            self.seconds += time.perf_counter() - begin
        return out
