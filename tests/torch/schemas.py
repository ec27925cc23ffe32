#!/usr/bin/env python3
"""Walks torch's own schemas and signatures and lists what of them fxc's table does not take: python tests/torch/schemas.py

For each ATen op of the table, every overload that torch has is called in FXIR in three forms: with what it must have, with
all arguments by position, and with all by name; `fxc check` must bind each. Of an overload that is one of the table's
spellings, names, order and defaults are compared with torch's too. For each function and method of torch in the table,
every parameter of its Python signature is given by name. Of each module class, the constructor's parameters and defaults are compared. Shapes are not looked at: only whether a
call binds.

Printed is a table by kind of overload, the overloads that are left out by reason, and what does not bind. Exit code 1 if
anything does not. Needs torch and safetensors.
"""
import argparse
import collections
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile

import torch
import torch.overrides
from check_ops import check_schema

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from signatures import in_dispatcher

# Values of the types that torch's schemas have. Tensors are placeholders.
VALUES = {
    "int": "1", "SymInt": "1", "float": "0.5", "number": "2", "Scalar": "2", "bool": "False", "str": '"mean"', "ScalarType": "torch.float32",
    "Layout": "torch.strided", "Device": 'device("cpu")', "MemoryFormat": "torch.contiguous_format", "Tensor": "%x",
    "Generator": "None", "Storage": None, "Stream": None, "Dimname": None, "complex": "1j",
}
# What no graph of fxc holds, by the types of an overload's arguments or its name.
LEFT_OUT = [
    ("names of dims", r"Dimname"),
    ("packed sequences of recurrent layers", r"\.data$"),
    ("storage", r"Storage|Stream"),
    ("torch compiles them on GPUs only", r"^aten\.(addmm|baddbmm|bmm|mm)\.dtype(_out)?$"),
    ("an argument list of any length", r"\.\.\."),
]


def value(kind, name):
    """A value for an argument of torch's type `kind`, as FXIR; None if there is none."""
    kind = kind.strip()
    if kind.startswith("Optional["):
        return value(kind[9:-1], name)
    if kind.startswith("List["):
        inner = value(kind[5:-1], name)
        return None if inner is None else f"[{inner}, {inner}]"
    return VALUES.get(kind)


class Call:
    """A call whose binding is checked."""

    def __init__(self, what, target, args, kwargs, method=False):
        self.what, self.target, self.method = what, target, method
        self.args, self.kwargs = args, kwargs

    def text(self, i):
        args = [*self.args, *(f"{k}={v}" for k, v in self.kwargs)]
        return f"    %r{i} = call_{'method' if self.method else 'function'} {self.target}({', '.join(args)})"


def real_type(a):
    """The argument's type with `ScalarType` and `Layout` where torch's JIT says `int`."""
    return str(a.real_type)


def forms(path, schema):
    """The calls of an overload, or None if an argument has no value."""
    given = [(a, "%at" if a.name == "tensor_indices_or_sections" else value(real_type(a), a.name)) for a in schema.arguments]
    if any(v is None for a, v in given):
        return None
    must = [(a, v) for a, v in given if not a.has_default_value() or a.is_out]
    yield_all = []
    for name, chosen in (("what it must have", must), ("by position", given)):
        args = [v for a, v in chosen if not a.kwarg_only]
        kwargs = [(a.name, v) for a, v in chosen if a.kwarg_only]
        yield_all.append(Call(name, path, args, kwargs))
    yield_all.append(Call("by name", path, [], [(a.name, v) for a, v in given]))
    return yield_all


def kind_of(overload, schema):
    if any(a.is_out for a in schema.arguments):
        return "out="
    if schema.name.endswith("_") and not schema.name.endswith("__"):
        return "in place"
    return "functional"


def aten(paths):
    """The calls of every overload of the table's ATen ops, the overloads by kind, those left out by reason."""
    calls, kinds, left = [], collections.Counter(), collections.defaultdict(list)
    for packet in sorted({p.split(".")[1] for p in paths if p.startswith("aten.")}):
        op = getattr(torch.ops.aten, packet, None)
        for overload in op.overloads() if op else ():
            schema = getattr(op, overload)._schema
            path = f"aten.{packet}.{overload}"
            if not in_dispatcher(packet, overload):
                left["TorchScript's alone"].append(path)
                continue
            types = " ".join(real_type(a) for a in [*schema.arguments, *schema.returns])
            if "Tensor" not in types:
                left["no tensor among arguments and results"].append(path)
                continue
            text = f"{path} {types} {str(schema) if '...' in str(schema) else ''}"
            why = next((w for w, m in LEFT_OUT if re.search(m, path) or re.search(m, text)), None)
            made = forms(path, schema)
            if why or made is None:
                left[why or "an argument of a type that FXIR has no value of"].append(path)
                continue
            kinds[kind_of(overload, schema)] += 1
            calls += made
    return calls, kinds, left


def signature_of(path):
    """The Python signature of a function or method of torch, as torch's own tests of overrides have it."""
    parts = path.split(".")
    holder = torch.Tensor if parts[0] == "Tensor" else torch
    for p in parts[1:-1]:
        holder = getattr(holder, p)
    f = getattr(holder, parts[-1])
    try:
        return inspect.signature(f)
    except (ValueError, TypeError):
        pass
    stub = OVERRIDES.get(f)
    return inspect.signature(stub) if stub else None


OVERRIDES = torch.overrides.get_testing_overrides()
# What torch's stubs name and torch refuses for another reason than the name.
STUBS = {("index_reduce", "include_input"), ("index_reduce_", "include_input"), ("topk", "descending"), ("alpha_dropout", "inplace"),
         ("convolution", "output_adding"), ("dropout", "inplace"), ("layer_norm", "cudnn_enabled"), ("threshold", "inplace"),
         ("max_pool1d_with_indices", "return_indices")}
# Parameters of torch's stubs and signatures that are Python's, not the op's.
NOT_PARAMETERS = {"_stacklevel", "out", "tensors_args"}
GUESS = {"dtype": "torch.float32", "device": 'device("cpu")', "layout": "torch.strided", "generator": "None", "memory_format": "None"}


def python_value(p):
    if p.name in GUESS:
        return GUESS[p.name]
    if p.default is inspect.Parameter.empty:
        return "%x"
    if p.default is None or isinstance(p.default, (bool, int, float, tuple, list)):
        return repr(p.default)
    if isinstance(p.default, str):
        return json.dumps(p.default)
    return None


def python(paths):
    """A call by name of each parameter for the functions and methods."""
    calls = []
    for path in sorted(paths):
        # Python calls `__rpow__` by an operator, never by name.
        if not path.startswith(("torch.", "Tensor.")) or path.endswith("__"):
            continue
        try:
            signature = signature_of(path)
        except AttributeError:
            continue
        if signature is None:
            continue
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        given = list(signature.parameters.values())
        if any(p.kind not in by_name for p in given):
            continue
        method = path.startswith("Tensor.")
        first = ["%x"] if method else []
        kwargs = [(p.name, python_value(p)) for p in given[len(first):] if p.name not in NOT_PARAMETERS]
        kwargs = [(k, v) for k, v in kwargs if v is not None]
        calls.append(Call("signature", path[7:] if method else path, first, kwargs, method))
    return calls


def torch_takes(path, name):
    """Whether torch takes the keyword `name` itself: its stubs name some that its functions lack."""
    x = torch.ones(2, 2)
    parts = path.split(".")
    holder = torch.Tensor if parts[0] == "Tensor" else torch
    for p in parts[1:-1]:
        holder = getattr(holder, p)
    f = getattr(holder, parts[-1])
    given = {}
    for p in list(signature_of(path).parameters.values())[1 if parts[0] == "Tensor" else 0:]:
        if p.default is inspect.Parameter.empty:
            given[p.name] = x
    given[name] = given.get(name, signature_of(path).parameters[name].default)
    try:
        f(*([x] if parts[0] == "Tensor" else []), **given)
    except TypeError as e:
        return bool(re.search(r"must be .*, not ", str(e)))
    except Exception:
        pass
    return True


def unbound(fxc, calls):
    """The calls that `fxc check` does not bind, with what it says."""
    head = "const at : i64[1] = [1]\ngraph main {\n    %x : f32[2, 2] = placeholder x\n    %at = get_attr at\n"
    with tempfile.TemporaryDirectory() as tmp:
        source = os.path.join(tmp, "calls.fxir")
        with open(source, "w") as f:
            f.write(head + "\n".join(c.text(i) for i, c in enumerate(calls)) + "\n    output %x\n}\n")
        p = subprocess.run([fxc, "check", "--message-format", "json", source], capture_output=True, text=True)
    found = []
    for line in p.stderr.splitlines():
        d = json.loads(line)
        of_type = d["code"] == "E0202" and d["message"].startswith("argument `")
        if d["code"] in ("E0201", "E0203") or of_type or d["severity"] == "error" and d["line"] <= 4:
            found.append((calls[d["line"] - 5], f"{d['code']} {d['message']}"))
    return found


def is_torchs(call, message):
    """Whether a keyword that fxc refuses is one of torch's."""
    name = re.search(r"has no parameter `(\w+)`", message)
    path = ("Tensor." if call.method else "") + call.target
    if name and not path.startswith("torch.nn.") and (path.split(".")[-1], name[1]) in STUBS:
        return False
    return not name or torch_takes(path, name[1])


# Constructor arguments that the table leaves out: where weights are stored, weights themselves, what is deprecated.
NOT_WRITTEN = {"device", "dtype", "_weight", "_freeze", "init", "min_value", "max_value"}
# Other classes say their base's arguments.
ANY_ARGUMENTS = {"LSTM", "GRU", "RNN"}


def constructors(table):
    """Module classes whose constructor has other parameters, another order or other defaults than torch's."""
    ours = {m.split("(")[0]: m.split(") = ")[0].split("(", 1)[1] for row in table for m in reversed(row["modules"])}
    found = []
    for name, text in sorted(ours.items()):
        cls = getattr(torch.nn, name, None)
        if cls is None or name in ANY_ARGUMENTS:
            continue
        theirs = []
        for p in list(inspect.signature(cls.__init__).parameters.values())[1:]:
            if p.name not in NOT_WRITTEN and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                # A layer among the arguments is declared for itself.
                default = None if p.name.endswith("coder_layer") else p.default
                theirs.append((p.name, getattr(default, "__name__", default) if callable(default) else default))
        parts = [p for p in re.split(r", (?![^(\[]*[)\]])", text) if p and p != "*"]
        parts = [p for p in parts if p.split("=")[0] not in NOT_WRITTEN]
        mine = [(p.split("=")[0], eval(p.split("=", 1)[1]) if "=" in p else inspect.Parameter.empty) for p in parts]
        theirs = [(n, "_empty" if d is inspect.Parameter.empty else d) for n, d in theirs]
        mine = [(n, "_empty" if d is inspect.Parameter.empty else d) for n, d in mine]
        if mine != theirs:
            found.append(f"{name}: {mine} instead of {theirs}")
    return found, len(ours)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    ap.add_argument("--only", default="", help="paths that match this pattern")
    a = ap.parse_args()
    table = json.loads(subprocess.run([a.fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    spelled = [(p, form["schema"]) for row in table for form in row["spellings"] for p in form["paths"] if re.search(a.only, p)]
    paths = {p for p, _ in spelled}
    calls, kinds, left = aten(paths)
    findings = []
    for path, schema in spelled:
        if path.startswith("aten.") and path.count(".") == 2 and hasattr(torch.ops.aten, path.split(".")[1]):
            try:
                what = check_schema(path, schema)
            except AttributeError:
                what = "torch has no such overload"
            if what:
                findings.append(f"{path}: {what}")
    bad = unbound(a.fxc, calls)
    findings += [f"{c.target} ({c.what}): {what}" for c, what in bad]
    refused = {c.target for c, _ in bad}
    print("overloads of the table's ATen ops that bind in every form")
    for kind, n in kinds.items():
        lacking = sum(kind_of("", getattr(getattr(torch.ops.aten, t.split(".")[1]), t.split(".")[2])._schema) == kind for t in refused)
        print(f"  {kind:12} {n - lacking:5} of {n}")
    wrong = unbound(a.fxc, python(paths))
    wrong = [(c, w) for c, w in wrong if re.search(r"has no parameter|takes \d+|unknown op", w) and is_torchs(c, w)]
    findings += [f"{'Tensor.' if c.method else ''}{c.target} (Python's signature): {w}" for c, w in wrong]
    print(f"  {'functions':12} {len(python(paths)) - len(wrong):5} of {len(python(paths))}")
    wrong, count = constructors(table)
    findings += wrong
    print(f"  {'modules':12} {count - len(wrong):5} of {count}")
    print("left out")
    for why, names in left.items():
        print(f"  {len(names):5} {why}: {' '.join(names[:400])}")
    print(f"{len(findings)} findings" + "".join(f"\n  {f}" for f in findings))
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
