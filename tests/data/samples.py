"""What the generators of this folder share: sample tensors, the JSON form of values, and calling torch by fxc's paths.

A case is {"path": "aten.add.Tensor", "args": [...], "kwargs": {...}} with "out" (a tensor or a list of tensors) or
"error" (the first line of torch's message). A tensor is {"t": dtype, "s": shape, "v": values}; sample tensors are named
in "inputs" and referred to as {"in": name}. Numbers that JSON lacks are the strings "nan", "inf", "-inf".
"""
import builtins
import json
import math
import operator
import warnings

import torch

warnings.filterwarnings("ignore")

SHORT = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int64: "i64", torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b8",
    torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
}
DIGITS = {torch.float64: 17, torch.float32: 9, torch.float16: 6, torch.bfloat16: 6}
DTYPES = {v: k for k, v in SHORT.items()}


def number(x, digits=17):
    if isinstance(x, (bool, int)):
        return x
    if math.isnan(x) or math.isinf(x):
        return str(x)
    text = f"{x:.{digits}g}"
    return float(text)


def encode(v, names=None):
    """A value as JSON; `names` maps the ids of sample tensors to their names."""
    if isinstance(v, torch.Tensor):
        if names and id(v) in names:
            return {"in": names[id(v)]}
        digits = DIGITS.get(v.dtype, 17)
        values = [number(x, digits) for x in v.detach().flatten().tolist()]
        return {"t": SHORT[v.dtype], "s": list(v.shape), "v": values}
    if isinstance(v, torch.dtype):
        return {"dtype": SHORT[v]}
    if isinstance(v, float):
        return {"float": number(v)}
    if isinstance(v, slice):
        return {"slice": [encode(x, names) for x in (v.start, v.stop, v.step)]}
    if isinstance(v, tuple):
        return {"tuple": [encode(x, names) for x in v]}
    if isinstance(v, list):
        return [encode(x, names) for x in v]
    if v is Ellipsis:
        return {"ellipsis": True}
    if isinstance(v, torch.device):
        return {"device": str(v)}
    if isinstance(v, (torch.layout, torch.memory_format)):
        return {"name": str(v).removeprefix("torch.")}
    return v


def target(path):
    """What a path of fxc's table stands for in Python."""
    head, _, rest = path.partition(".")
    if head == "Tensor":
        return lambda self, *a, **k: getattr(self, rest)(*a, **k)
    if head in ("torchvision", "transformers"):
        import importlib

        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)
    start = {"aten": torch.ops.aten, "prims": torch.ops.prims, "torch": torch, "operator": operator, "builtins": builtins}[head]
    for name in rest.split("."):
        start = getattr(start, name)
    return start


def arguments_do_not_parse(e):
    """Whether the message is of torch's argument parser: no overload takes such arguments."""
    text = str(e)
    return isinstance(e, TypeError) or any(
        part in text for part in ("Overloaded torch operator", "Expected a value of type", "expected at most")
    )


class Cases:
    def __init__(self, inputs):
        self.inputs = inputs
        self.names = {id(t): n for n, t in inputs.items()}
        self.cases = []

    def add(self, path, *args, **kwargs):
        """Records what torch gives for the call; nothing if no overload takes such arguments."""
        case = {"path": path, "args": encode(list(args), self.names)}
        if kwargs:
            case["kwargs"] = {k: encode(v, self.names) for k, v in kwargs.items()}
        try:
            out = target(path)(*args, **kwargs)
        except Exception as e:
            if arguments_do_not_parse(e):
                return
            case["error"] = str(e).split("\n")[0]
        else:
            if isinstance(out, torch.Tensor) and out.is_complex():
                return
            case["out"] = encode(list(out) if isinstance(out, tuple) else out)
        self.cases.append(case)

    def error(self, path, *args, **kwargs):
        """Records that torch refuses the call, whatever it says."""
        before = len(self.cases)
        self.add(path, *args, **kwargs)
        for case in self.cases[before:]:
            assert "error" in case, f"{path} is not refused"

    def setitem(self, x, index, value):
        """Records what `x[index] = value` leaves in x."""
        case = {"path": "operator.setitem", "args": encode([x, index, value], self.names)}
        out = x.clone()
        try:
            out[index] = value
        except Exception as e:
            if arguments_do_not_parse(e):
                return
            case["error"] = str(e).split("\n")[0]
        else:
            case["out"] = encode(out)
        self.cases.append(case)

    def write(self, path):
        with open(path, "w") as f:
            f.write('{"torch": "%s",\n"inputs": {\n' % torch.__version__)
            f.write(",\n".join(f'"{n}": {dump(encode(t))}' for n, t in self.inputs.items()))
            f.write('\n},\n"cases": [\n')
            f.write(",\n".join(dump(c) for c in self.cases))
            f.write("\n]}\n")
        print(f"{path}: {len(self.cases)} cases")


def dump(v):
    return json.dumps(v, separators=(",", ":"))


def floats(dtype):
    inf, nan = math.inf, math.nan
    values = [nan, inf, -inf, -0.0, 0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 0.3, 3.7, 7, -20.25, 100, 1e-4, -0.999, 30]
    return torch.tensor(values, dtype=torch.float64).to(dtype).reshape(5, 4)


def ints(dtype):
    i = torch.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 63, 100, i.max, i.min, i.max - 1]
    if i.min < 0:
        values += [-1, -2, -7, -100, i.min + 1, 5, -5, 31, 8, 4]
    else:
        values += [255, 200, 128, 5, 4, 8, 31, 9, 10, 6]
    return torch.tensor(values, dtype=torch.int64).to(dtype).reshape(5, 4)
