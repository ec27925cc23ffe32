"""Writes the graphs beside this file as torch.fx prints them: python make_fx.py

Each case NAME gives NAME.graph (print(graph)), NAME.py (gm.code), and for some NAME.table (print_tabular) and NAME.dot
(FxGraphDrawer).
"""
import math
import operator
import os
import typing

import torch
import torchvision
from tabulate import tabulate
from torch import fx
from torch.fx.passes.graph_drawer import FxGraphDrawer

HERE = os.path.dirname(os.path.abspath(__file__))


class Traced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.blocks = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.GELU()])
        self.p = torch.nn.Parameter(torch.ones(4))

    def forward(self, x, y: int = 3, *rest, flag: typing.Optional[bool] = None):
        a = self.blocks[0](self.lin(x)) + self.p
        b = torch.relu(a) @ a.t() ** 2 // 3 % 5
        c = -torch.cat([b, a], dim=-1) if True else None
        d = c.view(-1, 8)[:, None, 1:3, ...]
        e = torch.clamp(d, min=-float("inf"), max=1e-5)
        f = torch.nn.functional.gelu(e, approximate="tanh")
        g = f.to(device=torch.device("cpu"), dtype=torch.float64, memory_format=torch.contiguous_format)
        h = math.sqrt(y) * g & (f > 0.5) | ~(f != float("nan"))
        torch._assert(True, "never")
        return {"a": h, "b": (d, [e, 1, None, 1e16, -0.0]), "c": g.shape, 3: x.size(0)}


def built():
    g = fx.Graph()
    x = g.placeholder("x", type_expr=typing.Optional[int])
    y = g.placeholder("y", type_expr=typing.List[torch.Tensor], default_value=[1, 2])
    g.placeholder("z", type_expr=int | None)
    g.placeholder("v", type_expr=typing.Dict[str, typing.Optional[torch.Tensor]])
    g.placeholder("u", type_expr=typing.Sequence[int])
    g.placeholder("t", type_expr=torch.device)
    g.placeholder("s", type_expr=list[int])
    q = g.placeholder("*args")
    f = g.placeholder("f", type_expr=typing.Union[int, str, None], default_value=float("nan"))
    g.call_function(operator.setitem, (x, 0, y))
    g.call_function(operator.isub, (y, 1))
    g.call_function(operator.abs, (x,))
    g.call_function(operator.invert, (x,))
    g.call_function(torch.add, (x, 1j, (1 + 2j), complex(-0.0, 1), {"a": 1j, "n": x}))
    g.call_function(torch.ops.aten.add.Tensor, (x, [torch.device("cuda", 0), slice(x, None, None)], range(3)))
    g.call_function(torch.Tensor.add, (x,))
    n = g.call_function(torch.Tensor.split, (x,))
    g.call_function(getattr, (x, "a", None))
    s = g.call_function(getattr, (n, "shape"))
    g.call_function(torch._C._set_grad_enabled, (False,))
    g.call_method("weird-name", (x, "tanh"))
    g.call_function(torch.Size, ([1, 2],))
    m = g.call_module("a.0.b", (s,), {"k": (x,)})
    w = g.get_attr("w.1", type_expr=torch.nn.Parameter)
    o = g.call_method("view", (m, -1), {"dtype": torch.uint8})
    g.output((o, q, w, [f, {"k": s}], ()))
    return g


def write(name, text):
    with open(os.path.join(HERE, name), "w") as f:
        f.write(text)


def case(name, graph, module=None, more=False):
    write(f"{name}.graph", str(graph))
    write(f"{name}.py", graph.python_code("self").src)
    if more:
        # print_tabular, with functions by their path instead of by an address of this process.
        rows = [[n.op, n.name, n._pretty_print_target(n.target), n.args, n.kwargs] for n in graph.nodes]
        write(f"{name}.table", tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))
        write(f"{name}.dot", FxGraphDrawer(module, name).get_dot_graph().to_string())


class Functions(torch.nn.Module):
    def forward(self, x, n: int = 2):
        y = x.add(1, alpha=2).softmax(dim=-1)
        z = y[0], y[..., 1:n]
        return {"z": z, "last": z[1].max(dim=0)}


if __name__ == "__main__":
    gm = fx.symbolic_trace(Traced())
    case("traced", gm.graph)
    case("built", built())
    gm = fx.symbolic_trace(torchvision.models.resnet18(weights=None).eval())
    case("resnet18", gm.graph)
    gm = fx.symbolic_trace(Functions())
    case("functions", gm.graph, gm, more=True)
