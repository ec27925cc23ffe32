"""Parts of ATen graphs as FXIR."""

from __future__ import annotations

import json
import math
import operator
import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

#: A `torch.fx.Node`. PyTorch is not installed when types are checked.
Node: TypeAlias = Any

#: torch's dtypes in FXIR.
DTYPES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
}

_SIGNS = {
    "Equality": "==",
    "Unequality": "!=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
    "StrictLessThan": "<",
    "LessThan": "<=",
}
_SIZE_FUNCTIONS = re.compile(
    r"FloorDiv|CleanDiv|CeilDiv|Mod|PythonMod|ModularIndexing|Min|Max|Abs|Where|(Int|Float)TrueDiv|"
    r"(Trunc|Floor|Ceil|Round)ToInt|ToFloat|PowByNatural"
)


class Inexpressible(Exception):
    """Something cannot be expressed in FXIR. The message describes it."""


def size(value: Any) -> str:
    """A size in FXIR."""
    return str(value) if isinstance(value, int) else _expression(value.node.expr)


def _expression(e: Any) -> str:
    """A sympy expression of sizes in FXIR."""
    name = type(e).__name__
    if name == "Symbol":
        if str(e).startswith("u"):
            raise Inexpressible(f"the data-dependent size {e}")
        return str(e.name)
    if e.is_Integer:
        return str(int(e))
    parts = [_expression(a) for a in e.args]
    if name in ("Add", "Mul"):
        inner = [p if re.fullmatch(r"\w+", p) else f"({p})" if not re.fullmatch(r"-\d+", p) else p for p in parts]
        return {"Add": " + ", "Mul": "*"}[name].join(inner)
    if name == "Pow":
        return f"Pow({', '.join(parts)})"
    if name in _SIGNS:
        return f"({parts[0]}) {_SIGNS[name]} ({parts[1]})"
    if _SIZE_FUNCTIONS.fullmatch(name):
        return f"{name}({', '.join(parts)})"
    raise Inexpressible(f"the function {name} of sizes")


def symbols(value: Any) -> set[str]:
    """The symbols in a size."""
    return set() if isinstance(value, int) else {s.name for s in value.node.expr.free_symbols}


def tensor_type(value: Any, order: list[int] | None = None) -> str:
    """The type of an example tensor with its dimensions in another order."""
    if value.dtype not in DTYPES:
        raise Inexpressible(f"tensors of {value.dtype}")
    if value.device.type != "cpu" or value.layout != torch.strided:
        raise Inexpressible(f"tensors on {value.device} with the layout {value.layout}")
    shape = [value.shape[d] for d in order] if order else value.shape
    return f"{DTYPES[value.dtype]}[{', '.join(size(n) for n in shape)}]"


def value_type(value: Any) -> str:
    """The type of an example value of a node."""
    if isinstance(value, torch.Tensor):
        return tensor_type(value)
    if isinstance(value, (tuple, list)):
        parts = [value_type(v) for v in value]
        if isinstance(value, list) and len(set(parts)) == 1:
            return f"[{parts[0]}]"
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if value is None:
        return "None"
    raise Inexpressible(f"a value of type {type(value).__name__}")


def _hint(n: Any) -> int | None:
    return n if isinstance(n, int) else getattr(n.node, "hint", None)


def memory_order(value: Any) -> list[int] | None:
    """The dimensions of a tensor, from the outermost in memory on, or None if that is the logical order. Symbolic sizes count as in the
    example: torch makes another graph for another order. Raises `Inexpressible` for a tensor with gaps in memory or with overlapping elements."""
    shape, strides = [_hint(n) for n in value.shape], [_hint(n) for n in value.stride()]
    if None in shape or None in strides or 0 in shape:
        return None

    def is_dense(order: list[int]) -> bool:
        expected = 1
        for d in reversed(order):
            if shape[d] != 1 and strides[d] != expected:
                return False
            expected *= shape[d] or 0
        return True

    own = list(range(len(shape)))
    if is_dense(own):
        return None
    by_stride = sorted(own, key=lambda d: (-(strides[d] or 0), d))
    # Dimensions of one element may have any stride. Beside the dimensions of their stride, they get this stride.
    for order in (by_stride, [d for d in by_stride if shape[d] == 1] + [d for d in by_stride if shape[d] != 1]):
        if is_dense(order):
            return order
    raise Inexpressible("a tensor with gaps in memory")


def literal(v: Any) -> str:
    """An argument in FXIR."""
    if isinstance(v, torch.fx.Node):
        value = v.meta.get("val")
        if isinstance(value, torch.SymInt):
            return _expression(value.node.expr)
        return f"%{v.name}"
    if v is None or isinstance(v, bool):
        return repr(v)
    if isinstance(v, torch.SymInt):
        return _expression(v.node.expr)
    if isinstance(v, str):
        return json.dumps(v)
    if isinstance(v, float):
        return "nan" if math.isnan(v) else repr(v)
    if isinstance(v, int):
        return repr(v)
    if isinstance(v, (torch.dtype, torch.memory_format, torch.layout)):
        return str(v)
    if isinstance(v, torch.device):
        return f"device({json.dumps(str(v))})"
    if isinstance(v, tuple):
        parts = [literal(x) for x in v]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if isinstance(v, list):
        return f"[{', '.join(literal(x) for x in v)}]"
    raise Inexpressible(f"an argument of type {type(v).__name__}")


def statement(node: Node) -> str:
    """A node as a line of FXIR."""
    args = [literal(a) for a in node.args] + [f"{k}={literal(v)}" for k, v in node.kwargs.items()]
    target = "operator.getitem" if node.target is operator.getitem else f"torch.ops.{node.target}"
    return f"%{node.name} : {value_type(node.meta['val'])} = call_function {target}({', '.join(args)})"


def is_size(node: Node) -> bool:
    """Whether a node's value is a number that torch knows as an expression of sizes."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


@dataclass
class PartText:
    """The FXIR of some nodes, and how its inputs and results correspond to the nodes'."""

    text: str
    #: The node of each line of the text.
    nodes: dict[int, Node]
    #: The text's inputs with the orders of their dimensions. A symbol is represented by its name.
    inputs: list[tuple[Node | str, list[int] | None]]
    #: The orders of the results' dimensions.
    orders: list[list[int] | None]
    #: The names of the constants.
    weights: dict[Node, str] = field(default_factory=dict)


class TextWriter:
    """Collects the lines of a part."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.nodes: dict[int, Node] = {}
        self.head: list[str] = []

    def add(self, line: str, node: Node | None = None) -> None:
        self.lines.append(line)
        if node is not None:
            self.nodes[len(self.lines)] = node

    def finish(self) -> tuple[str, dict[int, Node]]:
        before = len(self.head) + 1
        text = "\n".join([*self.head, "graph main {", *self.lines, "}"]) + "\n"
        return text, {line + before: node for line, node in self.nodes.items()}


def _permute(to: str, source: str, kind: str, order: list[int]) -> str:
    return f"%{to}{kind} = call_function torch.ops.aten.permute.default(%{source}, {order})"


def write_part(
    nodes: list[Node],
    inputs: list[Node],
    results: list[Any],
    weights: set[Node],
    in_order: bool = True,
) -> PartText:
    """The nodes as FXIR. `weights` are inputs that become constants. With `in_order`, dimensions of inputs and results are in memory order."""
    w = TextWriter()
    part = PartText("", {}, [], [])
    known: set[str] = set()
    placeholders: list[str] = []
    for n in inputs:
        value = n.meta["val"]
        if n in weights:
            part.weights[n] = n.name
            w.head.append(f'const "{n.name}" : {tensor_type(value)}')
            w.add(f'%{n.name} = get_attr "{n.name}"', n)
            continue
        order = memory_order(value) if in_order and not _is_loose(value) else None
        name = f"{n.name}__in" if order else n.name
        placeholders.append(f"%{name} : {tensor_type(value, order)} = placeholder {name}")
        part.inputs.append((n, order))
        known |= {str(s) for s in value.shape if isinstance(s, torch.SymInt) and s.node.expr.is_Symbol}
        if order:
            back = [order.index(d) for d in range(len(order))]
            w.add(_permute(n.name, name, f" : {tensor_type(value)}", back), n)
    for n in nodes:
        w.add(statement(n), n)
    outputs = [_result(w, part, r, in_order) for r in results]
    for name in sorted(_used_symbols([*nodes, *inputs], results) - known):
        placeholders.append(f"%size_{name} : u8[{name}, 0] = placeholder size_{name}")
        part.inputs.append((name, None))
    w.lines[:0] = placeholders
    w.nodes = {line + len(placeholders): n for line, n in w.nodes.items()}
    w.add(f"output ({', '.join(outputs)}{',' if len(outputs) == 1 else ''})")
    part.text, part.nodes = w.finish()
    return part


def _is_loose(value: Any) -> bool:
    """Whether a tensor has gaps, so that it is copied when it is read."""
    try:
        memory_order(value)
    except Inexpressible:
        return True
    return False


def _result(w: TextWriter, part: PartText, result: Any, in_order: bool) -> str:
    order = None
    if isinstance(result, torch.fx.Node) and isinstance(result.meta.get("val"), torch.Tensor):
        order = memory_order(result.meta["val"]) if in_order else None
    part.orders.append(order)
    if order is None:
        return literal(result)
    name = f"{result.name}__out{len(part.orders)}"
    w.add(_permute(name, result.name, "", order))
    return f"%{name}"


def _used_symbols(nodes: list[Node], results: list[Any]) -> set[str]:
    found: set[str] = set()

    def look(v: Any) -> Any:
        if isinstance(v, torch.fx.Node):
            v = v.meta.get("val")
            if not isinstance(v, torch.SymInt):
                return v
        if isinstance(v, torch.SymInt):
            found.update(symbols(v))
        return v

    def look_at_value(v: Any) -> None:
        if isinstance(v, torch.Tensor):
            for s in v.shape:
                look(s)
        elif isinstance(v, (tuple, list)):
            for x in v:
                look_at_value(x)

    for n in nodes:
        look_at_value(n.meta.get("val"))
        if n.op == "call_function":
            torch.fx.node.map_aggregate((n.args, n.kwargs), look)
    torch.fx.node.map_aggregate(tuple(results), look)
    return found
