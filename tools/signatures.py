#!/usr/bin/env python3
"""Writes torch's own signatures of the table's spellings: python tools/signatures.py --fxc target/debug/fxc

`src/op/signature/python.txt` holds what torch's Python argument parser is given for each function and method of the table that
torch generates (from `native_functions.yaml`, as torch's own build does), and for those of its parsers that are written by hand.
`src/op/signature/aten.txt` holds every overload of the table's ATen ops. `src/op/signature/written.txt` holds the functions that
torch has written in Python: the parameters are those of their `def`, the types what the functions they call take of them, by the
annotations and by `TAKEN` below, and `src/op/signature/modules.txt` the constructors of the table's module classes, with what
building and calling the module takes. All are sorted by path; a path has a line for each signature, in the order in which torch tries
them. Needs torch, whose wheel has `torchgen`.
"""
import argparse
import collections
import inspect
import json
import os
import re
import subprocess

import torch
import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.packaged.autograd import gen_python_functions as generator

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "src", "op", "signature")
PACKAGED = os.path.join(os.path.dirname(torchgen.__file__), "packaged")
# C++'s names of types, as schemas write them.
TYPES = [("SymIntArrayRef", "SymInt[]"), ("IntArrayRef", "int[]"), ("ITensorListRef", "Tensor[]"), ("TensorList", "Tensor[]"),
         ("ArrayRef<double>", "float[]"), ("ArrayRef<Scalar>", "Scalar[]"), ("ScalarList", "Scalar[]"), ("c10::string_view", "str"), ("int64_t", "int"),
         ("double", "float"), ("PyObject*", "Any"), ("c10::List<::std::optional<Tensor>>", "Tensor?[]"),
         ("c10::List<std::optional<Tensor>>", "Tensor?[]")]
# What no argument of a graph is.
LEFT_OUT = re.compile(r"Dimname|Storage|Stream|\.\.\.|__torch__|Dict\(|\bAnyEnum|\bt\[\]|QScheme")
# Parsers that torch has written by hand, and methods that take nothing.
BY_HAND = {
    "Tensor.size": ["int? dim=None"], "Tensor.stride": ["int? dim=None"],
    "Tensor.contiguous": ["*, MemoryFormat memory_format=contiguous_format"],
    "Tensor.is_contiguous": ["*, MemoryFormat memory_format=contiguous_format"],
    "Tensor.copy_": ["Tensor other, bool non_blocking=False"],
    "Tensor.nonzero": ["", "*, bool as_tuple"],
    "torch.nonzero": ["Tensor input, *, bool as_tuple=False, Tensor out=None"],
    "torch.numel": ["Tensor input"],
    "torch.tensor": ["Any data, *, ScalarType? dtype=None, Device? device=None, bool pin_memory=False, bool requires_grad=False"],
    "torch.as_tensor": ["Any data, ScalarType? dtype=None, Device? device=None"],
    "Tensor.requires_grad_": ["bool requires_grad=True"],
    "Tensor.to": ["Device device=None, ScalarType dtype=None, bool non_blocking=False, bool copy=False, *, MemoryFormat? memory_format=None",
                  "ScalarType dtype, bool non_blocking=False, bool copy=False, *, MemoryFormat? memory_format=None",
                  "Tensor tensor, bool non_blocking=False, bool copy=False, *, MemoryFormat? memory_format=None"],
    "Tensor.type": ["Any dtype=None, bool non_blocking=False, *, MemoryFormat? memory_format=None"],
    "Tensor.cpu": ["*, MemoryFormat? memory_format=None"],
    "Tensor.bfloat16": ["*, MemoryFormat? memory_format=None"],
    **{f"Tensor.{t}": ["*, MemoryFormat? memory_format=None"] for t in "bool byte char double float half int long short".split()},
    **{f"Tensor.{t}": [""] for t in "dim element_size get_device item ndimension nelement numel storage_offset".split()},
    **{f"Tensor.__{t}__": [""] for t in "abs bool float int invert len neg pos".split()},
}
# Python's operators of tensors that are methods of other names; `__add__` is `add`.
OPERATORS = {"truediv": "div", "div": "div", "itruediv": "div_", "iadd": "add_", "isub": "sub_", "imul": "mul_", "ipow": "pow_",
             "ifloordiv": "floor_divide_", "imod": "remainder_", "mod": "remainder", "floordiv": "floor_divide", "radd": "add",
             "rmul": "mul", "rsub": "add", "rtruediv": "mul", "rdiv": "mul", "rfloordiv": "mul", "rpow": "mul", "rmod": "mul",
             "rand": "bitwise_and", "ror": "bitwise_or", "rxor": "bitwise_xor", "rlshift": "mul", "rrshift": "mul"}
BINARY = "add sub mul matmul eq ne lt le gt ge pow".split()


# What functions written in Python take for a parameter, where the annotation does not say: by name, or by function and name.
# `Any` is what they only ask whether it is true, or handle themselves.
TAKEN = {
    **{n: "Any" for n in "inplace return_indices size_average reduce recompute_scale_factor antialias _stacklevel hard".split()},
    "input": "Tensor", "dtype": "ScalarType?", "normalized_shape": "SymInt[]", "pad": "SymInt[]", "size": "Any", "scale_factor": "Any",
    "output_size": "Any", "output_ratio": "Any?", "norm_type": "float", "distance_function": "Any", "sequences": "Any", "tensor": "Tensor", "generator": "Generator?",
    "gaussian_nll_loss.full": "Any", "gaussian_nll_loss.var": "Any", "triplet_margin_with_distance_loss.swap": "Any",
    "affine_grid.size": "SymInt[]", "norm.p": "Any", "norm.dim": "int[1]?", "norm.keepdim": "bool", "cdist.p": "float", "cdist.x1": "Tensor",
    "cdist.x2": "Tensor", "cdist.compute_mode": "str", "local_response_norm.size": "int", "normalize.p": "Any", "normalize.dim": "int[1]?",
    **{f"max_unpool{n}d.output_size": "SymInt[]?" for n in (1, 2, 3)},
    "tensordot.a": "Tensor", "tensordot.b": "Tensor", "tensordot.dims": "Any", "unravel_index.shape": "SymInt[1]", "unflatten.sizes": "SymInt[]",
    "unflatten.dim": "int", "upsample.mode": "str", "upsample.align_corners": "bool?", "multi_head_attention_forward.training": "Any",
    "multi_head_attention_forward.need_weights": "Any", "multi_head_attention_forward.use_separate_proj_weight": "Any",
    "multi_head_attention_forward.add_zero_attn": "Any", "multi_head_attention_forward.average_attn_weights": "Any",
    "multi_head_attention_forward.is_causal": "Any", "multi_head_attention_forward.embed_dim_to_check": "Any",
    "multi_head_attention_forward.num_heads": "Any", "pad_sequence.batch_first": "bool",
}


def words(text):
    """A signature of a Python parser with the types' names of schemas; without the name and what marks old ones."""
    text = text.partition("(")[2].rpartition(")")[0] if text.endswith(")") else text.rpartition(")|")[0].partition("(")[2]
    for cpp, word in TYPES:
        text = text.replace(cpp, word)
    # A length stands in the type's own brackets.
    text = re.sub(r"\[\](\[\d+\])", r"\1", text)
    text = re.sub(r"=(at::)?Reduction::Mean|=at::Reduction::Mean", "=1", text)
    text = re.sub(r"=\{([^}]*)\}", r"=[\1]", text)
    return re.sub(r"=([A-Za-z_]*::)+(\w+)", r"=\2", text)


def generated():
    """The signatures of what torch generates, by path."""
    parsed = parse_native_yaml(f"{PACKAGED}/ATen/native/native_functions.yaml", f"{PACKAGED}/ATen/native/tags.yaml")
    functions = [f for f in parsed.native_functions if generator.should_generate_py_binding(f)]
    families = [("Tensor.", True, "", generator.is_py_variable_method), ("torch.", False, "", generator.is_py_torch_function),
                ("torch._C._nn.", False, "", generator.is_py_nn_function), ("torch.linalg.", False, "linalg_", generator.is_py_linalg_function),
                ("torch.special.", False, "special_", generator.is_py_special_function), ("torch.fft.", False, "fft_", generator.is_py_fft_function)]
    found = {}
    for prefix, method, strip, wanted in families:
        groups = collections.defaultdict(list)
        for pair in generator.load_signatures(functions, f"{PACKAGED}/autograd/deprecated.yaml", method=method):
            if wanted(pair.function):
                groups[str(pair.function.func.name.name).removeprefix(strip)].append(pair)
        for name, pairs in groups.items():
            grouped = generator.group_overloads(pairs, symint=True)
            found[prefix + name] = [words(str(g.signature.signature_str(symint=True))) for g in grouped]
    return found


def object_at(path):
    at = torch
    for part in path.split(".")[1:]:
        at = getattr(at, part)
    return at


def python(paths):
    """The signatures of the functions and methods among `paths`, and the functions that are written in Python."""
    known = {**generated(), **BY_HAND}
    for name in BINARY:
        known[f"Tensor.__{name}__"] = known[f"Tensor.{name}"]
    for name, method in OPERATORS.items():
        known[f"Tensor.__{name}__"] = known[f"Tensor.{method}"]
    by_object = {}
    for path in known:
        try:
            if path.startswith("torch."):
                by_object.setdefault(object_at(path), path)
        except AttributeError:
            pass
    out, other = {}, []
    for path in sorted(paths):
        if not path.startswith(("torch.", "Tensor.")):
            continue
        same = path
        if path.startswith("torch.") and not path.startswith("torch._VF"):
            try:
                f = object_at(path)
                # `torch.nn.functional.conv2d` is `torch.conv2d`; `torch.split` is a function in Python beside torch's own.
                same = by_object.get(f) if not hasattr(f, "__code__") else None
            except AttributeError:
                same = None
        signatures = known.get(same)
        signatures = signatures and [s for s in signatures if not LEFT_OUT.search(s)]
        if signatures and not (path.startswith("Tensor.") and hasattr(getattr(torch.Tensor, path[7:], None), "__code__") and not path.endswith("__")):
            out[path] = signatures
        else:
            other.append(path)
    return out, other


# Functions whose `def` does not say their parameters, and methods without annotations.
UNIQUE = {"unique": "bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None",
          "unique_consecutive": "bool return_inverse=False, bool return_counts=False, int? dim=None"}
LU = "bool pivot=True, Any get_infos=False"
CHOSEN = {**{f"torch.{n}": [f"Tensor input, {s}"] for n, s in UNIQUE.items()}, **{f"Tensor.{n}": [s] for n, s in UNIQUE.items()},
          "torch.lu": [f"Tensor A, {LU}, Tensor[] out=None"], "Tensor.lu": [LU],
          # The one of two functions that the sizes choose.
          "torch.split": [f"Tensor tensor, {t} split_size_or_sections, int dim=0" for t in ("int", "SymInt[]")],
          "Tensor.split": [f"{t} split_size, int dim=0" for t in ("int", "SymInt[]")]}


def annotated(function, p):
    """The type of a parameter by its annotation, in the words of schemas."""
    taken = TAKEN.get(f"{function}.{p.name}") or TAKEN.get(p.name)
    if taken:
        return taken
    note = re.sub(r"torch\.(Tensor|dtype)", r"\1", p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation))
    optional = "?" if note.endswith(" | None") or p.default is None else ""
    note = note.removesuffix(" | None")
    window = re.search(r"[123](?=d)", function)
    if note in ("None", "NoneType"):
        return f"int[{window[0] if window else 2}]" + optional
    known = {"Tensor": "Tensor", "int": "int", "float": "float", "bool": "bool", "str": "str", "list[int]": "SymInt[]",
             "list[float]": "float[]", "dtype": "ScalarType"}
    return known[note] + optional if note in known else "Any"


def written(paths):
    """The signatures of the functions among `paths` that are written in Python."""
    out = {}
    for path in paths:
        method = path.startswith("Tensor.")
        try:
            f = getattr(torch.Tensor, path[7:]) if method else object_at(path)
            # What chooses between two functions (`boolean_dispatch`) has the parameters of the longer.
            both = object_at(f"{path}_with_indices") if "max_pool" in path and not path.endswith("indices") else f
            params = list(inspect.signature(both).parameters.values())[1 if method else 0:]
        except (AttributeError, ValueError, TypeError):
            continue
        if not hasattr(f, "__code__") or path.endswith("__") or re.search(r"cond|while_loop|^torch\.functional\.", path) or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in params):
            continue
        parts = []
        for p in params:
            if p.kind == p.KEYWORD_ONLY and "*" not in parts:
                parts.append("*")
            default = "" if p.default is p.empty else f"={p.default!r}"
            parts.append(f"{annotated(path.split('.')[-1], p)} {p.name}{default}" if p.name != "out" else "Tensor out=None")
        out[path] = [", ".join(parts)]
    return {**out, **{path: s for path, s in CHOSEN.items() if path in paths}}


# Flags of modules that are handed on to functions that take nothing but a bool.
STRICT = "ceil_mode count_include_pad scale_grad_by_freq sparse swap log_target log_input zero_infinity include_last_offset keepdim".split()


# Arguments of modules that take more than their annotations say.
HANDED_ON = {"ConstantPad.value": "float?", "InstanceNorm.momentum": "float?", "MultiMarginLoss.p": "Scalar"}


def constructor(name, p):
    """What a module class takes for a parameter of its constructor."""
    note = p.annotation if isinstance(p.annotation, str) else inspect.formatannotation(p.annotation)
    handed = HANDED_ON.get(f"{re.sub('[123]d$', '', name)}.{p.name}")
    if handed:
        return handed
    optional = "?" if p.default is None or "None" in note else ""
    window = re.search(r"[123](?=d)", name)
    size = int(window[0]) if window else 2
    if p.name == "bool" or note == "bool":
        return "bool" if p.name in STRICT or name == "PoissonNLLLoss" else "Any"
    if p.name == "padding" and "Pad" in name and "Unpool" not in name:
        return f"int[{2 * size}]"
    if p.name in ("kernel_size", "stride", "dilation", "padding", "output_padding") and "str" not in note:
        return f"int[{size}]{optional}"
    return {"int": "int", "float": "float", "str": "str", "int | None": "int?", "float | None": "float?"}.get(note, "Any")


def constructors(table):
    out = {}
    for name in {m.split("(")[0] for row in table for m in row["modules"]}:
        params = list(inspect.signature(getattr(torch.nn, name).__init__).parameters.values())[1:] if hasattr(torch.nn, name) else []
        if params and not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in params):
            default = lambda p: "" if p.default is p.empty else f"={p.default!r}" if not callable(p.default) else "=None"  # noqa: E731
            parts = [f"{constructor(name, p)} {p.name}{default(p)}" for p in params]
            by_name = next((i for i, p in enumerate(params) if p.kind == p.KEYWORD_ONLY), None)
            if by_name is not None:
                parts.insert(by_name, "*")
            out[name] = [", ".join(parts)]
    return out


def in_dispatcher(packet, overload):
    """Whether torch's dispatcher has the overload: what only TorchScript has is in no graph of torch.fx."""
    try:
        torch._C._dispatch_find_schema_or_throw(f"aten::{packet}", "" if overload == "default" else overload)
        return True
    except RuntimeError:
        return False


def aten(paths):
    """Every overload of the ATen ops among `paths`."""
    out = {}
    for packet in sorted({p.split(".")[1] for p in paths if p.startswith("aten.")}):
        op = getattr(torch.ops.aten, packet, None)
        for overload in op.overloads() if op else ():
            text = str(getattr(op, overload)._schema)
            if not in_dispatcher(packet, overload):
                continue
            params = re.fullmatch(r"\S+?\((.*)\) -> .*", text)[1]
            if not LEFT_OUT.search(text) and "complex" not in params:
                out[f"aten.{packet}.{overload}"] = [params]
    return out


def write(name, signatures):
    with open(os.path.join(OUT, name), "w") as f:
        for path in sorted(signatures, key=lambda p: p.encode()):
            for s in signatures[path]:
                f.write(f"{path}({s})\n")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    a = ap.parse_args()
    table = json.loads(subprocess.run([a.fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    paths = {p for row in table for form in row["spellings"] for p in form["paths"]}
    found, other = python(paths)
    write("python.txt", found)
    overloads = aten(paths)
    write("aten.txt", overloads)
    python_own = written(other)
    write("written.txt", python_own)
    write("modules.txt", constructors(table))
    print(f"{len(found)} functions and methods, {len(python_own)} written in Python, {len(overloads)} overloads")
    print(f"checked by the table's own schemas: {' '.join(p for p in other if p not in python_own)}")


if __name__ == "__main__":
    main()
