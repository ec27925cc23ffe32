"""Where fxc's Python departs from torch's: python tests/torch/departures.py [--fxc target/release/fxc]

Each graph here is built with torch.fx. torch's own code (the GraphModule) must compute something else than torch's own
Interpreter, or be no Python at all; the Python that `fxc emit-code` writes of the same graph must compute what the Interpreter
does. docs/language.md lists these; a case that torch has mended says so, and its line there can go.

Needs: pip install torch safetensors. Without them it says so and checks nothing.
"""
import argparse
import contextlib
import copy
import io
import math
import operator
import os
import subprocess
import sys
import tempfile

try:
    import safetensors.torch
    import torch
    import torch.fx
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import torch2fxir
from emit_code import Attributes, namespace

CASES = []


def case(inputs, root=None):
    """Registers a function that fills a graph and gives its result, with the inputs to try it on."""

    def register(build):
        CASES.append((build.__name__, build, inputs, root))
        return build

    return register


class Odd(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in ["class", 'say "x"', "0"]:
            self.register_buffer(name, torch.tensor([2.0]))


def x3():
    return torch.tensor([1.0, -2.0, 3.0])


@case([2])
def power_of_a_negative_number(g):
    return g.call_function(operator.pow, (-2, g.placeholder("x")))


@case([2])
def power_of_a_negative_float(g):
    return g.call_function(operator.pow, (-0.5, g.placeholder("x")))


@case([x3])
def method_of_an_integer(g):
    return [g.call_method("bit_length", (5,)), g.placeholder("x")]


def hides(name):
    def build(g):
        x, hidden = g.placeholder("x"), g.placeholder(name)
        values = [
            g.call_function(torch.full, ([2], math.nan)),
            g.call_function(torch.full, ([2], math.inf)),
            g.call_method("to", (x, torch.device("cpu"))),
            g.call_function(operator.getitem, (x, slice(0, 2, None))),
            g.call_function(torch.relu, (x,)),
        ]
        return [*values, hidden]

    build.__name__ = f"parameter_called_{name}"
    return build


for hidden in ["nan", "inf", "torch", "device", "slice"]:
    case([x3, 7.0])(hides(hidden))


@case([x3, 7.0], Odd)
def parameter_called_getattr(g):
    x, hidden = g.placeholder("x"), g.placeholder("getattr")
    return [g.call_function(operator.mul, (x, g.get_attr("0"))), hidden]


@case([x3, 7.0])
def parameter_called_range(g):
    x, hidden = g.placeholder("x"), g.placeholder("range")
    return [g.call_function(len, (range(0, 4, 2),)), x, hidden]


@case([x3, 7.0])
def parameter_called_complex(g):
    x, hidden = g.placeholder("x"), g.placeholder("complex")
    return [g.call_function(torch.full, ([2], complex(0.0, math.inf))), x, hidden]


@case([x3, 7.0])
def parameter_called_math(g):
    x, hidden = g.placeholder("x"), g.placeholder("math")
    return [g.call_function(math.sqrt, (4.0,)), x, hidden]


@case([x3, x3], Odd)
def second_parameter_called_self(g):
    x, hidden = g.placeholder("x"), g.placeholder("self")
    return [g.call_function(operator.mul, (x, g.get_attr("class"))), hidden]


@case([x3])
def method_called_class(g):
    return g.call_method("__class__", (g.placeholder("x"),))


@case([-1])
def negative_of_a_negative_power(g):
    return g.call_function(operator.pow, (complex(-1, 0), g.placeholder("x")))


@case([5])
def attribute_of_an_integer(g):
    return [g.call_function(getattr, (5, "real")), g.placeholder("x")]


@case([x3])
def index_of_a_literal(g):
    return [g.call_function(operator.getitem, ([1, 2, 3], 1)), g.placeholder("x")]


@case([x3])
def unused_results_in_place(g):
    x = g.placeholder("x")
    y = g.call_function(operator.imul, (x, 2))
    return [x, y]


@case([[1, 2]])
def in_place_addition_of_a_list(g):
    x = g.placeholder("x")
    return [g.call_function(operator.iadd, (x, [3])), x]


def not_a_name(name):
    def build(g):
        return g.call_function(torch.relu, (g.placeholder(name),))

    build.__name__ = f"parameter_called_{name}"
    return build


for odd in ["input.1", "class", "a b"]:
    case([x3])(not_a_name(odd))


@case([5, 7])
def parameters_that_exchange_names(g):
    a = g.create_node("placeholder", "a", name="b")
    b = g.create_node("placeholder", "b", name="a")
    return g.call_function(operator.sub, (a, b))


def attribute(name):
    def build(g):
        return g.call_function(operator.mul, (g.placeholder("x"), g.get_attr(name)))

    build.__name__ = f"attribute_called_{name}"
    return build


for name in ["class", 'say "x"']:
    case([x3], Odd)(attribute(name))


@case([x3])
def keyword_argument_called_from(g):
    x = g.placeholder("x")
    return g.call_function(torch.ops.aten.random.__getattr__("from"), (x,), {"from": 0, "to": 5})


@case([4])
def in_place_addition_of_a_number(g):
    x = g.placeholder("x")
    return [g.call_function(operator.iadd, (x, 1)), x]


@case([4])
def in_place_power_of_a_number(g):
    x = g.placeholder("x")
    return [g.call_function(operator.ipow, (x, 2)), x]


@case([x3])
def value_of_setitem(g):
    x = g.placeholder("x")
    return [g.call_function(operator.setitem, (x, 0, 5.0)), x]


@case([x3])
def overload_as_an_argument(g):
    x = g.placeholder("x")
    return [x, g.call_function(isinstance, (torch.ops.aten.add.Tensor, int))]


@case([x3])
def class_as_an_argument(g):
    x = g.placeholder("x")
    return [x, g.call_function(isinstance, (x, int))]


def bits(v):
    if isinstance(v, torch.Tensor):
        v = v.detach()
        v = torch.view_as_real(v) if v.is_complex() else v
        return (str(v.dtype), tuple(v.shape), v.numpy().tobytes())
    if isinstance(v, (list, tuple)):
        return [bits(x) for x in v]
    if isinstance(v, dict):
        return {k: bits(x) for k, x in v.items()}
    return repr(v)


def result(run, inputs):
    """What it computes, or the kind of error."""
    torch.manual_seed(0)
    try:
        return bits(run(*[v() if callable(v) else copy.deepcopy(v) for v in inputs]))
    except Exception as e:
        return f"{type(e).__name__}: {e}"[:100]


def torchs_code(graph, root):
    """torch's code and its Interpreter's run of one graph."""
    gm = torch.fx.GraphModule(root, torch.fx.Graph())
    for name, value in root.named_buffers():
        gm.register_buffer(name, value)
    gm._graph = graph
    graph.owning_module = gm

    def run(*inputs):
        return torch.fx.GraphModule(root, graph)(*inputs)

    return run, torch.fx.Interpreter(gm).run, gm


def fxcs_code(fxc, gm):
    def run(*inputs):
        with tempfile.TemporaryDirectory() as tmp:
            torch2fxir.write(gm, f"{tmp}/m.fxir")
            cmd = [fxc, "emit-code", f"{tmp}/m.fxir", "--weights", f"{tmp}/w.safetensors"]
            p = subprocess.run(cmd, capture_output=True, text=True)
            if p.returncode:
                raise RuntimeError(p.stderr.strip().splitlines()[0])
            root = Attributes()
            if os.path.exists(f"{tmp}/w.safetensors"):
                for name, value in safetensors.torch.load_file(f"{tmp}/w.safetensors").items():
                    root.put(name, value)
            scope = namespace()
            run.text = p.stdout
            exec(compile(p.stdout, "fxc", "exec"), scope)
            return scope["forward"](root, *inputs)

    return run


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("-v", action="store_true", help="show what each computes")
    a = ap.parse_args()
    wrong = mended = 0
    for name, build, inputs, root in CASES:
        graph = torch.fx.Graph()
        graph.output(build(graph))
        code, interpreter, gm = torchs_code(graph, root() if root else torch.nn.Module())
        own = fxcs_code(a.fxc, gm)
        with contextlib.redirect_stderr(io.StringIO()):  # where GraphModule prints its code
            want, torchs, got = (result(f, inputs) for f in (interpreter, code, own))
        mended += torchs == want
        wrong += got != want
        verdict = "WRONG" if got != want else "torch agrees" if torchs == want else "ok"
        print(f"{name:40} {verdict}")
        if a.v or got != want:
            print(f"    Interpreter {want}\n    torch       {torchs}\n    fxc         {got}\n{getattr(own, 'text', '')}")
    print(f"{len(CASES)} graphs: fxc's code right for {len(CASES) - wrong}, torch's for {mended}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
