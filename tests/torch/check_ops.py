#!/usr/bin/env python3
"""Checks fxc's op table against the PyTorch that is installed: python tests/torch/check_ops.py [--fxc target/release/fxc]

1. Spellings: every path of `fxc ops --format json` exists in torch, and of every ATen overload the parameters have
   torch's names, order and defaults.
2. Values: the cases of tests/data/*.json (torch's answers, made by the generators there) run through `fxc run`, compiled
   and with --interpret: one graph per op, so that fusion, multiple results and mixed dtypes are exercised as well.

Exit code 1 if anything differs. Needs torch and safetensors; without them it says so and checks nothing.
"""
import argparse
import glob
import importlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was checked")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "data"))
from samples import DTYPES, target  # noqa: E402

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

# Parameters that mean nothing to fxc: one device, one layout, one random stream.
IGNORED = {"layout", "device", "pin_memory", "memory_format", "generator", "requires_grad", "names", "out"}
# Names of torch's that fxc binds to a parameter of another name (`ALIASES` in src/op/bind.rs).
RENAMED = {("p", "ord"), ("size", "shape"), ("split_size", "split_sizes"), ("sections", "indices_or_sections"),
           ("indices", "indices_or_sections"), ("other", "tensor"), ("matrices", "tensors"), ("self", "condition"),
           ("assert_msg", "message"), ("pad", "padding"), ("self", "input"), ("input", "self"), ("self", "A"), ("input2", "tau"), ("axis0", "dim0"),
           ("axis1", "dim1"), ("tensor_indices_or_sections", "sections"), ("tensor_indices_or_sections", "indices"), ("element", "elements"), ("test_element", "test_elements")}
# Overloads of archives that older versions of torch wrote.
OLD = {"aten.cholesky.default"}
# Ops of several sums, one after the other.
SUMS = {"scaled_dot_product_attention", "shifted_window_attention"}
SUMS_TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5, torch.float64: 1e-7}
# Defaults that are written differently and mean the same: no padding; i64, which is what these ops give anyway.
SAME_DEFAULT = {("padding", "0", "valid"), ("dtype", None, 4), ("dtype", "None", 4)}
TOLERANCE = {torch.float16: (1e-3, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float32: (1.3e-6, 1e-5),
             torch.float64: (1e-7, 1e-7)}


# --- spellings ---------------------------------------------------------------------------------------------------

def exists(path):
    head = path.split(".")[0]
    if head not in ("aten", "torch", "Tensor", "operator", "builtins"):
        return True  # torchvision, math, …
    if path in OLD:
        return True
    try:
        if head == "Tensor":
            getattr(torch.Tensor, path.split(".", 1)[1])
        else:
            try:
                target(path)
            except AttributeError:
                # A function of the package may have the name of the module that defines it.
                module, _, name = path.rpartition(".")
                getattr(importlib.import_module(module), name)
        return True
    except (AttributeError, RuntimeError, ImportError):
        return False


def split_parameters(schema):
    """[(name, default or None)] of `f(Tensor self, *, int[2] x=[1, 2])`."""
    inner = schema[schema.index("(") + 1:schema.rindex(")")]
    parts, depth, start = [], 0, 0
    for i, ch in enumerate(inner + ","):
        depth += (ch in "([") - (ch in ")]")
        if ch == "," and depth == 0:
            parts.append(inner[start:i].strip())
            start = i + 1
    out = []
    for p in parts:
        if p and p != "*":
            left, _, default = p.partition("=")
            out.append((left.split()[-1], default or None))
    return out


def same_default(ours, theirs):
    """fxc's default as text against torch's value."""
    if theirs is None:
        return ours in (None, "None")
    if ours is None:
        return False
    try:
        value = eval(ours, {"inf": math.inf, "nan": math.nan, "torch": torch})  # our own table's text
    except (NameError, SyntaxError, AttributeError):
        return True
    if isinstance(theirs, int) and isinstance(value, torch.dtype):
        return True
    if isinstance(value, list) and isinstance(theirs, list):
        return value == theirs or len(set(theirs)) <= 1 and value == theirs[:1]
    return value == theirs or isinstance(theirs, list) and all(t == value for t in theirs)


def check_schema(path, schema):
    """What of the schema is not torch's, or None."""
    packet, overload = path.split(".")[1:]
    theirs = getattr(getattr(torch.ops.aten, packet), overload)._schema
    theirs = [a for a in theirs.arguments if a.name not in IGNORED and not a.is_out]
    ours = [p for p in split_parameters(schema) if p[0] not in IGNORED]
    if any(a.kwarg_only for a in theirs):
        # By name, any order is the same.
        order = [a.name for a in theirs if a.kwarg_only]
        ours.sort(key=lambda p: (p[0] in order, order.index(p[0]) if p[0] in order else 0))
    # Parameters of fxc's that torch's overload lacks are fine where they have a default and come last.
    names, wanted = [p[0] for p in ours], [a.name for a in theirs]
    fits = len(names) >= len(wanted) and all(n == w or (w, n) in RENAMED for n, w in zip(names, wanted))
    if not fits or any(d is None for _, d in ours[len(wanted):]):
        return f"parameters {names} instead of {wanted}"
    for (name, default), a in zip(ours, theirs):
        if (name, default, a.default_value if isinstance(a.default_value, (int, str)) else None) in SAME_DEFAULT:
            continue
        if a.has_default_value() and not same_default(default, a.default_value):
            return f"default {name}={default} instead of {a.default_value}"
    return None


def check_spellings(table):
    findings = []
    for op in table:
        for form in op["spellings"]:
            for path in form["paths"]:
                if not exists(path):
                    findings.append(f"{op['name']}: torch has no {path}")
                elif path.startswith("aten.") and path.count(".") == 2 and path not in OLD:
                    what = check_schema(path, form["schema"])
                    if what:
                        findings.append(f"{op['name']}: {path}: {what}")
    return findings


# --- values ------------------------------------------------------------------------------------------------------

def tensor(v):
    data = [float(x) if isinstance(x, str) else x for x in v["v"]]
    dtype = DTYPES[v["t"]]
    wide = torch.tensor(data, dtype=torch.float64 if dtype.is_floating_point else torch.int64)
    return wide.to(dtype).reshape(v["s"])


class Graph:
    """The cases of one path as one FXIR graph."""

    def __init__(self, path, inputs):
        self.path, self.inputs, self.used, self.lines, self.want = path, inputs, {}, [], []

    def value(self, v):
        if isinstance(v, list):
            return "[" + ", ".join(map(self.value, v)) + "]"
        if isinstance(v, str):
            return json.dumps(v)
        if not isinstance(v, dict):
            return repr(v)
        if "float" in v:
            return repr(float(v["float"]))
        if "dtype" in v:
            return v["dtype"]
        if "name" in v:
            return f'torch.{v["name"]}'
        if "device" in v:
            return f'torch.device("{v["device"]}")'
        if "ellipsis" in v:
            return "Ellipsis"
        if "tuple" in v:
            return "(" + "".join(f"{self.value(x)}, " for x in v["tuple"]) + ")"
        if "slice" in v:
            return "slice(" + ", ".join(self.value(x) for x in v["slice"]) + ")"
        name = v.get("in") or f"inline_{len(self.used)}"
        self.used[name] = self.inputs[name] if "in" in v else tensor(v)
        return f"%{name}"

    def add(self, case):
        args = [self.value(v) for v in case["args"]]
        args += [f"{k}={self.value(v)}" for k, v in case.get("kwargs", {}).items()]
        method = self.path.startswith("Tensor.")
        call = f"call_method {self.path[7:]}" if method else f"call_function {self.path}"
        if self.path == "operator.setitem":
            # The case's result is what is written to, which other cases read.
            written = f"%n{len(self.lines)}"
            line = f"    {written} = call_function aten.clone.default({args[0]})\n"
            self.lines.append(f"{line}    %set{len(self.lines)} = {call}({', '.join([written, *args[1:]])})")
            self.want.append((case, tensor(case["out"])))
            return
        self.lines.append(f"    %n{len(self.lines)} = {call}({', '.join(args)})")
        out = case["out"] if isinstance(case["out"], list) else [case["out"]]
        self.want += [(case, tensor(o)) for o in out]

    def text(self):
        head = []
        for name, t in self.used.items():
            ty = f"{next(k for k, d in DTYPES.items() if d == t.dtype)}{list(t.shape)}"
            head.append(f"    %{name} : {ty} = placeholder {name}")
        results = ", ".join(f"%n{i}" for i in range(len(self.lines)))
        return "graph main {\n" + "\n".join(head + self.lines) + f"\n    output [{results}]\n}}\n"


def differs(path, got, want):
    if got.dtype != want.dtype or list(got.shape) != list(want.shape):
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}"
    rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
    if path.endswith(".nanmean") and want.dtype == torch.float16:
        rtol *= 2  # torch sums f16 over several dims in 16 bits, which is one more rounding
    same = torch.isclose(got.double(), want.double(), rtol, atol, equal_nan=True)
    if not want.dtype.is_floating_point:
        same = got == want
    elif path.rpartition(".")[2] in SUMS:
        # Relative to the greatest magnitude, as in tests/ops/nn.rs: other sums than torch's.
        finite = want.double().abs()[want.isfinite()]
        same |= (got.double() - want.double()).abs() <= SUMS_TOLERANCE[want.dtype] * finite.max()
    else:
        same &= (want != 0) | (got != 0) | (torch.signbit(got) == torch.signbit(want))
    if same.all():
        return None
    at = int((~same).flatten().nonzero()[0])
    return f"element {at} is {got.flatten()[at].item()} instead of {want.flatten()[at].item()}"


def run_graph(fxc, graph, extra):
    with tempfile.TemporaryDirectory() as tmp:
        source, inputs, outputs = (os.path.join(tmp, n) for n in ("g.fxir", "in.safetensors", "out.safetensors"))
        with open(source, "w") as f:
            f.write(graph.text())
        save_file({k: t.contiguous() for k, t in graph.used.items()}, inputs)
        cmd = [fxc, "run", source, "--inputs", inputs, "--outputs", outputs, *extra]
        p = subprocess.run(cmd, capture_output=True, text=True)
        if p.returncode != 0:
            return [f"{graph.path}: " + " | ".join(p.stderr.strip().splitlines()[:3])[:300]]
        got = load_file(outputs)
    findings = []
    for i, (case, want) in enumerate(graph.want):
        what = differs(graph.path, got[f"output.{i}"], want)
        if what:
            call = json.dumps(case["args"]) + " " + json.dumps(case.get("kwargs", {}))
            findings.append(f"{graph.path}({call[:200]}): {what}")
    return findings


def gives_tensors(case):
    """Whether the results can stand in a file: numbers, strings and shapes cannot."""
    out = case.get("out")
    parts = out if isinstance(out, list) else [out]
    return all(isinstance(p, dict) and "v" in p for p in parts)


def graphs(only):
    for file in sorted(glob.glob(os.path.join(HERE, "..", "data", "*.json"))):
        data = json.load(open(file))
        if not isinstance(data, dict) or "inputs" not in data:
            continue  # cases of whole graphs, which `cargo test` runs
        inputs = {n: tensor(v) for n, v in data["inputs"].items()}
        by_path = {}
        for case in data["cases"]:
            if gives_tensors(case) and re.search(only, case["path"]):
                by_path.setdefault(case["path"], Graph(case["path"], inputs)).add(case)
        yield from by_path.values()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--only", default="", help="paths that match this pattern")
    ap.add_argument("--mode", choices=["compiled", "interpreted", "both"], default="both")
    a = ap.parse_args()
    table = json.loads(subprocess.run([a.fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    findings = check_spellings(table)
    print(f"spellings: {len(findings)} findings in {len(table)} rows")
    for f in findings:
        print("  ", f)
    modes = {"compiled": [], "interpreted": ["--interpret"]}
    for mode, extra in modes.items():
        if a.mode not in (mode, "both"):
            continue
        cases, bad = 0, []
        for g in graphs(a.only):
            cases += len(g.want)
            bad += run_graph(a.fxc, g, extra)
        print(f"{mode}: {len(bad)} findings in {cases} results")
        for f in bad:
            print("  ", f)
        findings += bad
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
