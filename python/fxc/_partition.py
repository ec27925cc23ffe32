"""Which nodes of an ATen graph fxc compiles, and in which parts.

A node's depth is how often a path to it changes from nodes that torch runs to nodes that fxc compiles. The compiled nodes of one depth
are a part: no path leads from one of them through torch to another, so that parts and torch's nodes can run in the order of their
depths. Nodes that draw random numbers keep their order.
"""

from __future__ import annotations

import collections
import operator
from dataclasses import dataclass, field
from typing import Any

import torch

from . import _fx_text
from ._fx_text import Inexpressible, Node, is_size
from ._fxc import _check_text

#: A part with one of these is worth a call.
_HEAVY = (
    "mm",
    "matmul",
    "linear",
    "conv",
    "attention",
    "einsum",
    "lstm",
    "gru",
    "rnn",
    "_softmax",
    "layer_norm",
    "batch_norm",
    "group_norm",
)
#: The fewest computing nodes of a part that contains none of these.
_FEWEST = 2

# After so many verdicts of the compiler, a rejected node takes all others of its op with it, so that the verdicts have an end.
_SINGLE_ROUNDS = 50

#: The ops that change some elements of their first argument, and the ops that do so in place.
_IN_PLACE = {
    getattr(getattr(torch.ops.aten, name), overload): getattr(getattr(torch.ops.aten, name + "_"), overload)
    for name, overload in [
        ("index_add", "default"),
        ("index_copy", "default"),
        ("index_put", "default"),
        ("scatter", "src"),
        ("scatter", "value"),
        ("scatter_add", "default"),
    ]
}

#: The parameters of ops that use torch's random generator only for dropout.
_DROPOUT = {"dropout_p", "dropout", "p"}


@dataclass
class Part:
    """Nodes that are compiled together."""

    nodes: list[Node]
    #: Values from outside, tensors only: sizes come from the tensors' shapes, or are passed by name.
    inputs: list[Node] = field(default_factory=list)
    #: Nodes whose values are used outside.
    results: list[Node] = field(default_factory=list)
    #: Numbers that the nodes' arguments refer to.
    sizes: list[Node] = field(default_factory=list)


@dataclass
class Plan:
    """How a graph is divided."""

    graph: torch.fx.Graph
    parts: list[Part]
    #: The part of each compiled node.
    part_of: dict[Node, int]
    #: The order in which parts and all other nodes run.
    order: list[Node | Part]
    #: Views of a part's results or inputs that torch creates. They are compiled too if the part uses them.
    views: set[Node]
    #: Why a node is left to torch.
    reasons: dict[Node, str]

    @property
    def left(self) -> list[Node]:
        """The computing nodes that torch runs."""
        return [n for n in self.order if isinstance(n, torch.fx.Node) and computes(n)]


def computes(n: Node) -> bool:
    """Whether a node is more than a view, a number, an item of a tuple or a write to an input."""
    return n.op == "call_function" and n.target is not operator.getitem and not is_view(n) and not is_size(n) and not is_write(n)


def is_write(n: Node) -> bool:
    """Whether a node writes its result to an input of the graph."""
    mutable = isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable
    return mutable and bool(n.args) and isinstance(n.args[0], torch.fx.Node) and n.args[0].op == "placeholder"


def written_inputs(graph: torch.fx.Graph) -> list[int]:
    """The positions of the inputs that a graph writes to."""
    written = {n.args[0] for n in graph.nodes if n.op == "call_function" and is_write(n)}
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    return [i for i, n in enumerate(placeholders) if n in written]


def is_view(n: Node) -> bool:
    """Whether a node's value shares its argument's memory."""
    if n.target is operator.getitem:
        return isinstance(n.args[0], torch.fx.Node) and is_view(n.args[0])
    if not isinstance(n.target, torch._ops.OpOverload):
        return False
    if n.target is torch.ops.aten._unsafe_view.default:
        return True
    returns = n.target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def draws(n: Node) -> bool:
    """Whether a node takes numbers from torch's generator."""
    if not isinstance(n.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in n.target.tags:
        return False
    schema = n.target._schema.arguments
    given = dict(zip((a.name for a in schema), n.args)) | n.kwargs
    chances = [given.get(a.name, a.default_value) for a in schema if a.name in _DROPOUT]
    return not chances or any(c != 0 for c in chances)


def _objection(n: Node) -> str | None:
    """The reason to leave a node to torch that does not need the compiler; None if there is none."""
    if n.op != "call_function":
        return "not a call"
    if is_size(n):
        return "a number"
    if n.target is operator.getitem:
        return _layout_objection(n)
    if not isinstance(n.target, torch._ops.OpOverload):
        return f"{n.target} is not an op"
    if n.meta.get("val") is None:
        return "it has no result"
    if draws(n):
        return "it draws random numbers"
    if n.target._schema.is_mutable:
        return "it writes in place"
    try:
        _fx_text.statement(n)
        for i in n.all_input_nodes:
            if not is_size(i):
                _fx_text.value_type(i.meta.get("val"))
            elif not isinstance(i.meta.get("val"), (int, torch.SymInt)):
                return "a number that is not an int"
    except Inexpressible as e:
        return str(e)
    return _layout_objection(n)


def _layout_objection(n: Node) -> str | None:
    """Why a node's result cannot have the strides that torch expects. Views are torch's own."""
    if not isinstance(n.meta.get("val"), torch.Tensor) or is_view(n):
        return None
    try:
        _fx_text.memory_order(n.meta["val"])
    except Inexpressible as e:
        return str(e)
    return None


def objections(graph: torch.fx.Graph) -> dict[Node, str]:
    """The nodes that are left to torch, with the reasons."""
    found: dict[Node, str] = {}
    for n in graph.nodes:
        why = _objection(n)
        if why is None and n.target is operator.getitem and n.args[0] in found:
            why = found[n.args[0]]
        if why is not None:
            _leave(n, why, found)
    rounds = 0
    while wrong := _ask(graph, found):
        rounds += 1
        if rounds > _SINGLE_ROUNDS:
            wrong = _with_same_op(graph, found, wrong)
        for n, why in wrong.items():
            _leave(n, why, found)
    return found


def _with_same_op(graph: torch.fx.Graph, found: dict[Node, str], wrong: dict[Node, str]) -> dict[Node, str]:
    """Rejected nodes with all others of the same ops."""
    reasons = {n.target: why for n, why in wrong.items()}
    return {n: reasons[n.target] for n in graph.nodes if n not in found and n.target in reasons} | wrong


def _leave(n: Node, why: str, found: dict[Node, str]) -> None:
    """Leaves a node to torch, with the items of its result."""
    if n.target is operator.getitem and n.args[0] not in found:
        n = n.args[0]
    found[n] = why
    found.update({u: why for u in n.users if u.target is operator.getitem})


def _ask(graph: torch.fx.Graph, found: dict[Node, str]) -> dict[Node, str]:
    """The compiler's verdict on the nodes that no earlier check has refused; at least one of them, unless it accepts all.

    The compiler does not check what depends on an unknown op, so that all nodes with that op are left at once: a backward pass is a
    chain of them.
    """
    nodes = [n for n in graph.nodes if n not in found]
    if not nodes:
        return {}
    inputs = {i: None for n in nodes for i in n.all_input_nodes if i in found and not is_size(i)}
    text = _fx_text.write_part(nodes, list(inputs), nodes[-1:], set(), in_order=False)
    wrong: dict[Node, str] = {}
    for line, code, title in _check_text(text.text):
        if line in text.nodes and text.nodes[line] not in found:
            wrong.setdefault(text.nodes[line], f"{code}: {title}")
        elif line not in text.nodes:
            wrong.setdefault(nodes[-1], f"{code}: {title}")
    unknown = {n: why for n, why in wrong.items() if why.startswith("E0201")}
    return _with_same_op(graph, found, unknown) | wrong


def write_in_place(graph: torch.fx.Graph) -> None:
    """Updates inputs in place where an op writes some of their elements, as a step of `generate` does to a cache of keys and values.

    AOTAutograd writes such an update as a copy of the whole input with these elements, and a `copy_` of that to the input at the end. If
    only the update reads the input, both copies are needless.
    """
    for last in reversed(graph.nodes):
        if last.target is not torch.ops.aten.copy_.default or not is_write(last):
            continue
        written, update = last.args[:2]
        if update.target not in _IN_PLACE or update.args[0] is not written or set(written.users) != {update, last}:
            continue
        if any(u.op == "output" for u in update.users):
            continue
        update.target = _IN_PLACE[update.target]
        graph.erase_node(last)


def share_sizes(graph: torch.fx.Graph) -> None:
    """Reads each size from its earliest source. A size that is read from a tensor inside a part would divide the part."""
    first: dict[Any, Node] = {}
    for n in graph.nodes:
        value = n.meta.get("val")
        if not isinstance(value, torch.SymInt):
            continue
        known = first.setdefault(value.node.expr, n)
        if known is not n and n.op == "call_function":
            n.replace_all_uses_with(known)


def _depths(graph: torch.fx.Graph, left: dict[Node, str]) -> dict[Node, int]:
    depths: dict[Node, int] = {}
    drawn = 0
    for n in graph.nodes:
        inputs = n.all_input_nodes
        if n in left:
            depth = max((depths[i] for i in inputs), default=-1)
            if draws(n) or n.op == "call_function" and not isinstance(n.target, torch._ops.OpOverload):
                depth = drawn = max(depth, drawn)
        else:
            depth = max((depths[i] + (i in left) for i in inputs), default=0)
        depths[n] = depth
    return depths


def _is_worth_it(nodes: list[Node]) -> bool:
    """Whether a part between ops that torch runs makes up for its call."""
    names = [str(n.target) for n in nodes]
    heavy = any(h in name for name in names for h in _HEAVY)
    return heavy or sum(map(computes, nodes)) >= _FEWEST


def plan(graph: torch.fx.Graph, left: dict[Node, str]) -> Plan:
    """Divides a graph into parts, around the nodes that are left to torch."""
    depths = _depths(graph, left)
    groups: dict[int, list[Node]] = collections.defaultdict(list)
    for n in graph.nodes:
        if n not in left:
            groups[depths[n]].append(n)
    parts: dict[int, Part] = {}
    reasons = dict(left)
    is_whole = not any(map(computes, left))
    for depth, nodes in groups.items():
        if is_whole or _is_worth_it(nodes):
            parts[depth] = Part(nodes)
        else:
            reasons.update({n: "a single op between ops that torch runs" for n in nodes})
    made = Plan(graph, [parts[d] for d in sorted(parts)], {}, [], set(), reasons)
    for i, p in enumerate(made.parts):
        made.part_of.update({n: i for n in p.nodes})
    _set_order(made, parts, depths)
    _connect(made)
    return made


def _set_order(made: Plan, parts: dict[int, Part], depths: dict[Node, int]) -> None:
    """Orders parts before torch's nodes of the same depth, and copies to inputs after everything."""
    by_depth: dict[int, list[Node | Part]] = collections.defaultdict(list)
    last: list[Node] = []
    for d, p in parts.items():
        by_depth[d].append(p)
    for n in made.graph.nodes:
        if n in made.part_of or n.op == "output":
            continue
        # The old values of inputs may be read until the end.
        is_last = is_write(n) and n.target is torch.ops.aten.copy_.default
        (last if is_last else by_depth[-2 if n.op == "placeholder" else depths[n]]).append(n)
    for d in sorted(by_depth):
        made.order.extend(by_depth[d])
    made.order.extend(last)


def _connect(made: Plan) -> None:
    """Finds the parts' inputs and results."""
    output = next(n for n in reversed(made.graph.nodes) if n.op == "output")
    wanted: list[Node] = [i for n in made.order if isinstance(n, torch.fx.Node) for i in n.all_input_nodes]
    wanted += output.all_input_nodes
    for i, p in enumerate(made.parts):
        inputs: dict[Node, None] = {}
        sizes: dict[Node, None] = {}
        for n in p.nodes:
            for a in n.all_input_nodes:
                if is_size(a):
                    sizes[a] = None
                elif made.part_of.get(a) != i:
                    inputs[a] = None
        p.inputs, p.sizes = list(inputs), list(sizes)
        wanted += p.inputs
    results: list[dict[Node, None]] = [{} for _ in made.parts]
    while wanted:
        n = wanted.pop()
        if n not in made.part_of or n in made.views or n in results[made.part_of[n]]:
            continue
        if _torch_views(made, n):
            made.views.add(n)
            wanted += n.all_input_nodes if n.target is not operator.getitem else n.args[0].all_input_nodes
        else:
            results[made.part_of[n]][n] = None
    positions = {n: i for i, n in enumerate(made.graph.nodes)}
    for p, r in zip(made.parts, results):
        p.results = sorted(r, key=positions.__getitem__)


def _torch_views(made: Plan, n: Node) -> bool:
    """Whether torch creates this view for uses outside its part, so that the part does not return a copy."""
    if not is_view(n):
        return False
    source = n.args[0].args[0] if n.target is operator.getitem else n.args[0]
    if not isinstance(source, torch.fx.Node) or not isinstance(source.meta.get("val"), torch.Tensor):
        return True
    if made.part_of.get(source) is None:
        return True
    try:
        _fx_text.memory_order(n.meta["val"])
    except Inexpressible:
        return True
    return _count(source.meta["val"]) <= _count(n.meta["val"])


def _count(value: Any) -> int:
    count = 1
    for s in value.shape:
        n = s if isinstance(s, int) else getattr(s.node, "hint", None)
        count *= 1 if n is None else n
    return count
