"""Writes more.json: cases of the ops that OpInfo's small samples do not reach: python tests/data/make_more.py

A case is a graph in FXIR with inputs and PyTorch's results, as in opinfo.json. Calls are written once, as FXIR, and evaluated by
Python with torch; modules are written with their weights as constants. Random ops are drawn after torch.manual_seed(0).
"""
import builtins
import json
import math
import operator
import os
import re
import sys

import torch
import torch._inductor.inductor_prims  # noqa: F401
import torch.ao.quantization.fx._decomposed  # noqa: F401
import torch.nn.functional as F
import torchao.quantization.quant_primitives  # noqa: F401
import torchvision
from torch import nn
from torch.utils import _pytree as pytree

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "torch"), os.path.join(HERE, "..", "..", "tools")]
from samples import SHORT, encode  # noqa: E402

NAMES = {"torch": torch, "aten": torch.ops.aten, "math": math, "builtins": builtins, "operator": operator, "torchvision": torchvision,
         "inf": math.inf, "quantized_decomposed": torch.ops.quantized_decomposed, "prims": torch.ops.prims,
         "quantized": torch.ops.quantized, "torchao": torch.ops.torchao, "device": torch.device}
TOLERANCE = {torch.float16: (1e-5, 1e-3), torch.bfloat16: (1e-5, 1.6e-2), torch.float32: (2e-6, 1e-5), torch.float64: (1e-9, 1e-7)}
CASES = []


def tensors(out):
    """Results as tensors; Python's numbers as tensors of no dims."""
    leaves = [torch.tensor(v) if isinstance(v, (bool, int, float)) else v for v in pytree.tree_leaves(out)]
    return [t.float() if t.dtype == torch.float64 and isinstance(v, float) else t for t, v in zip(leaves, pytree.tree_leaves(out))]


def add(op, text, inputs, out, random=False):
    out = tensors(out)
    least = [TOLERANCE.get(t.dtype, (0, 0)) for t in out]
    case = {"op": op, "text": text, "inputs": [encode(t) for t in inputs], "out": [encode(t) for t in out],
            "atol": [a for a, _ in least], "rtol": [r for _, r in least]}
    if random:
        case["seed"] = 0
    CASES.append(case)


def declared(inputs):
    return [f"    %{k} : {SHORT[t.dtype]}{list(t.shape)} = placeholder {k}" for k, t in inputs.items()]


def call(line, random=False, op=None, **inputs):
    """One call, as FXIR writes it behind `call_function` or `call_method`."""
    method = re.match(r"\.(\w+)\(%(\w+)(?:, )?(.*)\)$", line)
    python = f"{method[2]}.{method[1]}({method[3]})" if method else line
    text = f"call_method {line[1:]}" if method else f"call_function {line}"
    python = re.sub(r"(aten\.\w+)\.from\(", r'getattr(\1, "from")(', python)
    torch.manual_seed(0)
    out = eval(python.replace("%", ""), dict(NAMES), {k: t.clone() for k, t in inputs.items()})
    name = op or (method[1] if method else line.split("(")[0])
    graph = "graph main {\n" + "\n".join([*declared(inputs), f"    %r = {text}"]) + "\n    output [%r]\n}\n"
    add(name, graph, inputs.values(), out, random)


def graph(op, body, want, random=False, **inputs):
    """A whole body of FXIR whose results `want` says."""
    head, _, more = body.partition("\n---\n")
    text = "graph main {\n" + "\n".join(declared(inputs)) + "\n" + head.rstrip() + "\n}\n" + more
    add(op, text, inputs.values(), want, random)


def module(text, m, *inputs):
    """A module with its weights as constants."""
    m = m.eval()
    for t in [*m.parameters(), *m.buffers()]:
        if t.is_floating_point():
            t.data = torch.rand_like(t).mul(8).round().div(8) + 0.125
    with torch.no_grad():
        out = m(*inputs)
    lines = [f"module inner = {text}"]
    for name, t in m.state_dict().items():
        lines.append(f"const inner.{name} : {SHORT[t.dtype]}{list(t.shape)} = {json.dumps(t.tolist())}")
    named = {f"x{i}": t for i, t in enumerate(inputs)}
    args = ", ".join(f"%{k}" for k in named)
    body = "\n".join([*declared(named), f"    %y = call_module inner({args})"])
    add(text.split("(")[0], "\n".join(lines) + "\ngraph main {\n" + body + "\n    output [%y]\n}\n", inputs,
        [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)])


def values(*shape, dtype=torch.float32):
    return torch.randn(*shape).mul(4).round().div(4).to(dtype)


def recurrence(factors, terms):
    """The states `h = a h + b` of a linear recurrence from nothing, and the products of the factors up to each."""
    states = [terms[0]]
    for a, b in zip(factors[1:], terms[1:]):
        states.append(a * states[-1] + b)
    return [factors.cumprod(0), torch.stack(states)]


exec(open(os.path.join(HERE, "more_calls.py")).read())

with open(os.path.join(HERE, "more.json"), "w") as f:
    f.write('{"torch": "%s",\n"cases": [\n' % torch.__version__)
    f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in CASES))
    f.write("\n]}\n")
print(f"{len(CASES)} cases of {len({c['op'] for c in CASES})} ops")
