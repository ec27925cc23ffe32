#!/usr/bin/env python3
"""Wrong and right arguments of every spelling of fxc's table, against PyTorch: python tests/torch/strictness.py --fxc BIN [--only add]

Base calls are recorded while torch runs the samples of OpInfo and of its module tests: every function, method and ATen overload
that these reach, directly or inside. Each call is then changed in one place: an argument of another kind (a bool for an int, an
int for a bool, a float, a string, None, a list for a number and the reverse, tensors of other ranks and dtypes, a dim out of
range, an empty list), one missing, one too many, an unknown keyword, one given twice or by another name, another dtype or
shape of a tensor. torch runs each changed call; `fxc check` must give the same verdict, the values of tensors are
not looked at.

Printed is a table of functions, methods, overloads and module classes with how many verdicts agree, the disagreements by kind,
and the exceptions with their reasons. `--keep DIR` keeps the cases; `--extract FILE` writes a sample for the cargo test. Exit code
1 if a verdict differs without a reason. Needs torch, torchvision and expecttest.
"""
import argparse
import collections
import inspect
import itertools
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
try:
    import torch
    import torch.utils._pytree as pytree
    from torch.overrides import TorchFunctionMode
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was checked")
    sys.exit(0)

torch.cuda._lazy_call = torch.xpu._lazy_call = lambda *args, **kwargs: None
torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "data"))
from samples import SHORT  # noqa: E402

FAMILIES = ("functions", "methods", "overloads", "modules")
# Most elements of a base call's tensors.
LARGEST = 4096

# Verdicts that differ, and why: where fxc refuses what torch takes (path, change, what fxc says, reason), and where it takes what
# torch refuses (path, change, what torch says, reason).
REFUSED = [
    (r"", r"(f32|i64|b8)\[[01]?\] for (int|bool|float|str|NoneType|\[|dtype|Tensor)",
     r"constant|number, not a? ?Tensor|how many results|(dtype|ints?|None|bool|float), not a Tensor|must be ints or None|reduction must be|output_size|"
     r"bins tensor should have one dimension|expects dims to be int|takes at most 1 positional",
     "a tensor stands for a number that the graph must know before it runs"),
    (r"tensor_split", r"", r"not (a )?Tensor", "a tensor says where to split, which is how many results there are"),
    (r"^aten\.", r"(dtype|memory format|-?\d+|True|False|\S+\[1?\]) for ",
     r"not an? (dtype|torch constant|device)|(dtype|layout|memory format)( or None)?, not",
     "a dtype, layout or memory format for an int, or the reverse: the dispatcher takes them for the numbers by which C++ knows them"),
    (r"^aten\.", r"\[1?\] for|\[0\] for|\[2, 3\] for", r"ints?( or None)?, not a Tensor", "a tensor is taken apart into a list of its elements"),
    (r"^aten\.", r"None for (Tensor|\[Tensor)|^\[None\]", r"must be a (Tensor|list of tensors), not a (None|list|tuple)",
     "None is an undefined tensor, which gives none"),
    (r"", r"complex for", r"complex|needs a tensor among its operands", "fxc has no complex dtypes"),
    (r"histogram.bin_ct|quantile.scalar|torch.gradient|matrix_norm", r"\[1?\] for (int|float|NoneType|str)", r"",
     "a tensor stands for a number that the graph must know before it runs"),
    (r"native_group_norm", r"^(0|False) for int", r"", "of no items torch gives memory that it has not written"),
    (r"^operator\.i?mod$", r"str for", r"must be a Tensor", "Python formats a text, which is not a call of torch"),
    (r"PReLU", r"\[\] for int", r"`num_parameters`", "torch makes a weight of any sizes, not of a number of them, without a look at what it was given"),
    (r"max_unpool1d", r"\[1.0\] for int|\[0, 0\] for int", r"", "torch does not look at it here"),
    (r"^operator\.(eq|ne)", r"", r"must be a Tensor", "Python compares what a tensor cannot be compared with by identity"),
    (r"fractional_max_pool", r"", r"draws them at random", "fractional pooling without samples"),
    (r"^aten\.(to|_to_copy|copy_|atleast)|copy_", r" for Tensor", r"must be a Tensor, not", "a number for a tensor that is copied"),
    (r"", r" for (int|float|NoneType)", r"`_stacklevel`|`norm_type`", "torch does not look at it here"),
    (r"multi_head_attention_forward", r"", r"`[qkv]_proj_weight`|`dropout_p`", "torch does not look at it here"),
    (r"_with_indices", r"", r"`return_indices`", "torch does not look at it here"),
    (r"addbmm_", r"", r"output with shape", "torch gives the tensor the shape of the result, and warns"),
    (r"block_diag|broadcast_tensors|atleast|builtins", r"one missing", r"", "called without any argument"),
    (r"lu$", r" for bool", r"`get_infos`", "Python asks only whether it is true"),
    (r"_histogramdd|_linalg_check_errors|hacked_twin", r"", r"must be a bool", "C++ asks only whether it is true"),
    (r"", r"for (Tensor|NoneType)", r"`(target|weight)` of .* must be a Tensor( or None)?, not an? (int|float|bool)",
     "the function only computes with it, which a number allows too"),
    (r"(cosine|hinge)_embedding_loss", r"True|False", r"Subtraction", "a bool computed with the dtype of a tensor in C++"),
    (r"embedding", r"", r"max_norm", "fxc does not write to the weight that `max_norm` scales"),
    (r"rrelu_with_noise", r"", r"writes to its argument", "fxc does not write to the noise"),
    (r"batch_norm", r"", r"should contain|is invalid for input", "torch does not look at the size of this weight and reads beyond its end"),
    (r"conv", r"", r"Input type .* and bias type", "which of torch's convolutions is chosen decides whether a bias may have another dtype"),
    (r"(^|\.)(r?sub|add|subtract|__i?add__|__i?sub__|__radd__|addcmul|addcdiv)_?$", r"", r"takes at most 2|twice|by position and by name",
     "a signature of old, by which a 0-d tensor before the operand is `alpha`"),
    (r"linalg.pinv", r"Tensor|NoneType", r"The size of tensor", "tolerances of a shape that happens to broadcast"),
    (r"\.diff", r"", r"Dimension out of range", "with n = 0 torch returns before it looks at the dim"),
    (r"(nll|multilabel|soft_margin|huber|smooth_l1|mse|l1).*loss", r"for int", r"reduction must be", "any other number is taken for one of the three"),
    (r"", r"(True|False|\[True\]|\[1\]|\(1,\)|-?[\d.]+) for (int|float|\[int\])", r"(must be int(\[\d\])?|must be an int.*), not (a |an )?(bool|list|tuple|float)",
     "Python computes with it as with an int"),
]
# Whatever the call: torch returns early for a tensor without elements.
EARLY = "of a tensor without elements torch returns before it looks at the other arguments"
ACCEPTED = [
    (r"", r"^(f32|i64|b8)\[[01]?\] for (int|float|bool|str|NoneType|\[int\])$", r"^(?!TypeError)(?!.*Expected a value of type)",
     "a tensor stands for a number that only the run knows"),
    (r"", r"", r"NVIDIA|CUDA", "a device that this machine does not have"),
    (r"", r"", r"can't allocate memory", "more memory than this machine has"),
    (r"", r"", r"out of (range|bounds)|offsets\[0\] has to be 0|number of ones in mask|sum to data.size|smaller than num_classes|should be a permutation|"
     r"internal assert|is zero and using it|index out of|non-negative integral|ZeroDivisionError|single memory|positive-definite|"
     r"refer to a single memory location|INTERNAL ASSERT|num_embeddings|not in the valid range|invalid max index",
     "the values of the tensors decide"),
]
# Changes of the types of tensors: type rules, not arguments.
TYPES = re.compile(r"^(tensor|empty tensor)|for (Tensor|\[Tensor\])$|^(f32|i64|b8)\[(0|2, 3)?\] for NoneType")


class Skip(Exception):
    """A value that FXIR does not have."""


# --- base calls -----------------------------------------------------------------------------------------------------

def object_at(path):
    if path.startswith("Tensor."):
        return getattr(torch.Tensor, path[7:])
    at = sys.modules[path.split(".")[0]]
    for part in path.split(".")[1:]:
        at = getattr(at, part)
    return at


def small(args, kwargs):
    leaves = pytree.tree_leaves((args, kwargs))
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    return sum(t.numel() for t in tensors) <= LARGEST and all(t.dtype in SHORT and t.layout == torch.strided and t.device.type == "cpu"
                                                              for t in tensors)


class Bases:
    """The calls that were seen, a few of each path: those with the most arguments, then the smallest."""

    def __init__(self, paths):
        self.of = collections.defaultdict(dict)
        self.names = collections.defaultdict(list)
        for p in paths:
            if p.startswith(("torch.", "Tensor.", "operator.")):
                try:
                    self.names[object_at(p)].append(p)
                except (AttributeError, KeyError, TypeError):
                    pass
        self.overloads = {p for p in paths if p.startswith("aten.")}

    def add(self, path, args, kwargs):
        kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        shape = (len(args), tuple(kwargs))
        if len(self.of[path]) < 40 and shape not in self.of[path] and small(args, kwargs):
            try:
                args, kwargs = pytree.tree_map(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) else v, (list(args), dict(kwargs)))
                text_of(path, args, kwargs, Inputs())
            except Exception:
                return
            self.of[path][shape] = (args, kwargs)

    def chosen(self, most):
        for path in sorted(self.of):
            calls = list(self.of[path].values())
            calls.sort(key=lambda c: -len(c[0]) - len(c[1]))
            yield path, calls[:most]


class Functions(TorchFunctionMode):
    def __init__(self, bases):
        self.bases = bases

    def __torch_function__(self, func, types, args=(), kwargs=None):
        for path in self.bases.names.get(func, ()) if callable(func) else ():
            self.bases.add(path, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class Overloads(TorchDispatchMode):
    def __init__(self, bases):
        self.bases = bases

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        if name in self.bases.overloads:
            self.bases.add(name, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def record(bases, a):
    for info in op_db:
        dtype = torch.float32 if torch.float32 in info.supported_dtypes("cpu") else torch.int64
        try:
            for s in itertools.islice(info.sample_inputs("cpu", dtype), a.samples):
                with torch.no_grad(), Functions(bases), Overloads(bases):
                    info.op(s.input.clone() if isinstance(s.input, torch.Tensor) else s.input, *s.args, **s.kwargs)
        except Exception:
            pass


def widen(bases, table):
    """Base calls of spellings that no sample reaches, from those of others of the same row that torch takes."""
    for row in table:
        paths = [p for form in row["spellings"] for p in form["paths"]]
        calls = [c for p in paths for c in list(bases.of.get(p, {}).values())[:3]]
        for path in [p for p in paths if p not in bases.of]:
            for args, kwargs in calls:
                if not verdict(path, args, kwargs):
                    bases.add(path, args, kwargs)
                    break


class Module:
    """A constructor of a module class as a target: its arguments are the constructor's, each call has the same inputs."""

    def __init__(self, cls, args, kwargs):
        self.cls, self.args, self.kwargs = cls, args, kwargs

    def call(self, args, kwargs):
        torch.manual_seed(0)
        module = self.cls(*args, **kwargs).eval()
        inputs = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (self.args, self.kwargs))
        return module(*inputs[0], **inputs[1])


def modules(classes, most):
    """The constructors that torch's module tests have, a few of each class of the table."""
    seen = collections.Counter()
    for info in module_db:
        name = info.module_cls.__name__
        if name not in classes or name == "Transformer":
            continue
        try:
            samples = list(info.module_inputs_func(info, "cpu", torch.float32, requires_grad=False, training=False))
        except Exception:
            continue
        samples = [s for s in samples if s.forward_input is not None and small(s.forward_input.args, s.forward_input.kwargs)]
        for s in sorted(samples, key=lambda s: -len(s.constructor_input.args) - len(s.constructor_input.kwargs)):
            args, kwargs = list(s.constructor_input.args), dict(s.constructor_input.kwargs)
            made = Module(info.module_cls, s.forward_input.args, s.forward_input.kwargs)
            if seen[name] < most and not verdict(made, args, kwargs):
                seen[name] += 1
                yield made, args, kwargs


# --- changes --------------------------------------------------------------------------------------------------------

def other_values():
    t = torch.tensor
    return {"None": None, "True": True, "False": False, "1": 1, "-1": -1, "0": 0, "1.0": 1.0, "0.5": 0.5, "str": "a", "[1]": [1], "[0]": [0],
            "[1.0]": [1.0], "[True]": [True], "(1,)": (1,), "[]": [], "[0, 0]": [0, 0], "100": 100, "-100": -100, "complex": 1j,
            "f32[]": t(1.0), "i64[]": t(1), "b8[]": t(True), "f32[1]": t([1.0]), "i64[1]": t([1]), "f32[2, 3]": torch.ones(2, 3),
            "i64[2, 3]": torch.ones(2, 3, dtype=torch.long), "b8[2, 3]": torch.ones(2, 3, dtype=torch.bool), "[f32[2, 3]]": [torch.ones(2, 3)],
            "dtype": torch.float64, "memory format": torch.contiguous_format, "[None]": [None], "[str]": ["a"], "f32[0]": torch.ones(0)}


def kind(v):
    if isinstance(v, torch.Tensor):
        return "Tensor"
    if isinstance(v, (list, tuple)):
        return f"[{kind(v[0])}]" if v else "[]"
    return type(v).__name__


def variants(names, args, kwargs):
    """The call as it is, and with one change: (what is changed, arguments, keyword arguments)."""
    yield "as it is", args, kwargs
    for where in [*range(len(args)), *kwargs]:
        old = args[where] if isinstance(where, int) else kwargs[where]
        for what, v in other_values().items():
            a, k = list(args), dict(kwargs)
            (a if isinstance(where, int) else k)[where] = v
            yield f"{what} for {kind(old)}", a, k
        if isinstance(old, torch.Tensor):
            for what, f in TENSORS.items():
                a, k = list(args), dict(kwargs)
                try:
                    (a if isinstance(where, int) else k)[where] = f(old)
                except Exception:
                    continue
                yield what, a, k
    for i in range(len(args)):
        yield "one missing", args[:i], kwargs
    for k in kwargs:
        yield "a keyword missing", args, {n: v for n, v in kwargs.items() if n != k}
    for v in (1, None, True, torch.ones(2, 3)):
        yield f"one too many, {kind(v)}", [*args, v], kwargs
    yield "unknown keyword", args, {**kwargs, "foo": 1}
    yield "keyword out", args, {**kwargs, "out": None}
    for i, n in enumerate(names[:len(args)]):
        yield "by position and by name", args, {**kwargs, n: args[i]}
        if i:
            yield "by name", args[:i], {**dict(zip(names[i:], args[i:])), **kwargs}
    for name, numpy in (("dim", "axis"), ("keepdim", "keepdims"), ("other", "x2")):
        if name in kwargs:
            yield "numpy's name", args, {numpy if n == name else n: v for n, v in kwargs.items()}
    for name in ("dtype", "dim", "keepdim"):
        if name not in kwargs:
            yield f"with {name}", args, {**kwargs, name: {"dtype": torch.float64, "dim": 0, "keepdim": True}[name]}


TENSORS = {
    "tensor as i64": lambda t: t.long(), "tensor as b8": lambda t: t.bool(), "tensor as f64": lambda t: t.double(), "tensor as i32": lambda t: t.int(),
    "tensor as bf16": lambda t: t.bfloat16(),
    "tensor with one more dim": lambda t: t[None].clone(), "tensor with one dim less": lambda t: t[0].clone(),
    "tensor with a longer last dim": lambda t: torch.cat([t, t[..., :1]], -1),
    "tensor with a longer first dim": lambda t: torch.cat([t, t[:1]]),
    "empty tensor": lambda t: t[:0].clone(),
}


def parameter_names(path):
    """The names by which the arguments by position go."""
    try:
        if isinstance(path, Module):
            return [n for n in inspect.signature(path.cls.__init__).parameters if n != "self"]
        if path.startswith("aten."):
            return [a.name for a in overload(path)._schema.arguments if not a.kwarg_only]
        f = object_at(path)
        try:
            s = inspect.signature(f)
        except (ValueError, TypeError):
            s = inspect.signature(torch.overrides.get_testing_overrides()[f])
        return [p.name for p in s.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
    except Exception:
        return []


def overload(path):
    _, packet, name = path.split(".")
    return getattr(getattr(torch.ops.aten, packet), name)


class Slow(Exception):
    """torch takes long: the sizes are none."""


def alarm(*_):
    raise Slow


def call_torch(path, args, kwargs):
    if isinstance(path, Module):
        return path.call(args, kwargs)
    args, kwargs = pytree.tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (list(args), dict(kwargs)))
    f = overload(path) if path.startswith("aten.") else object_at(path)
    if path.startswith("Tensor."):
        return getattr(args[0], path[7:])(*args[1:], **kwargs)
    return f(*args, **kwargs)


def verdict(path, args, kwargs):
    """What torch says against the call; nothing if it takes it."""
    try:
        with torch.no_grad():
            out = call_torch(path, args, kwargs)
        return "NotImplemented" if out is NotImplemented else ""
    except Slow:
        raise
    except Exception as e:
        return f"{type(e).__name__}: {e}".partition("\n")[0][:300] or "refused"


# --- FXIR -----------------------------------------------------------------------------------------------------------

class Inputs:
    """The placeholders of a file: one of each dtype and shape, because only types are looked at."""

    def __init__(self):
        self.types = {}

    def name(self, t):
        if t.dtype not in SHORT or t.layout != torch.strided or t.is_quantized:
            raise Skip
        name = "_".join(["p", SHORT[t.dtype], *map(str, t.shape)])
        self.types[name] = f"{SHORT[t.dtype]}{list(t.shape)}"
        return name


def literal(v, inputs):
    if isinstance(v, torch.Tensor):
        if inputs is None:
            raise Skip
        return f"%{inputs.name(v)}"
    if isinstance(v, torch.Size):
        v = tuple(v)
    if isinstance(v, (list, tuple)):
        inner = ", ".join(literal(x, inputs) for x in v)
        return f"[{inner}]" if isinstance(v, list) else f"({inner},)" if len(v) == 1 else f"({inner})"
    if isinstance(v, slice):
        return f"slice({literal(v.start, inputs)}, {literal(v.stop, inputs)}, {literal(v.step, inputs)})"
    if isinstance(v, str):
        return json.dumps(v)
    if isinstance(v, float) and (v != v or v in (float("inf"), -float("inf"))):
        return f'float("{v}")'
    if v is None or type(v) in (bool, int, float, complex):
        return repr(v)
    if isinstance(v, (torch.dtype, torch.memory_format, torch.layout)):
        return str(v)
    if isinstance(v, torch.device):
        return f'device("{v}")'
    raise Skip


def module_text(module, args, kwargs, inputs, i):
    """The declaration of a module and its call."""
    made = [literal(a, None) for a in args] + [f"{k}={literal(v, None)}" for k, v in kwargs.items()]
    given = [literal(a, inputs) for a in module.args] + [f"{k}={literal(v, inputs)}" for k, v in module.kwargs.items()]
    return f"module m{i} = {module.cls.__name__}({', '.join(made)})", f"call_module m{i}({', '.join(given)})"


def text_of(path, args, kwargs, inputs):
    if isinstance(path, Module):
        return " ".join(module_text(path, args, kwargs, inputs, 0))
    if path.startswith("Tensor.") and not (args and isinstance(args[0], torch.Tensor)):
        raise Skip
    given = [literal(a, inputs) for a in args] + [f"{k}={literal(v, inputs)}" for k, v in kwargs.items()]
    target = f"call_method {path[7:]}" if path.startswith("Tensor.") else f"call_function {path}"
    return f"{target}({', '.join(given)})"


class Case:
    """A changed call as FXIR: a module's declaration (or ""), the call, the types of its placeholders, what torch says against it."""

    def __init__(self, path, what, head, call, types, says):
        self.path, self.what, self.head, self.call, self.types, self.says = path, what, head, call, types, says
        self.ok = not says

    def group(self):
        if self.head:
            return "modules"
        return "overloads" if self.path.startswith("aten.") else "methods" if self.path.startswith("Tensor.") else "functions"


def case_of(path, what, args, kwargs):
    """The case without a verdict."""
    inputs = Inputs()
    if isinstance(path, Module):
        head, call = module_text(path, args, kwargs, inputs, "")
        return Case(path.cls.__name__, what, head, call, inputs.types, "")
    return Case(path, what, "", text_of(path, args, kwargs, inputs), inputs.types, "")


# Calls that may write to their arguments: another call must not read what these leave.
WRITES = re.compile(r"_(\.|$)|^operator\.i|^Tensor\.__i|setitem")


def separated(case, i):
    """The case with placeholders of its own if it may write to them."""
    if not WRITES.search(case.path) and "inplace=" not in case.call:
        return case
    own = {n: f"{n}_of_{i}" for n in case.types}
    call = re.sub(r"%(\w+)", lambda m: f"%{own.get(m[1], m[1])}", case.call)
    return Case(case.path, case.what, case.head, call, {own[n]: t for n, t in case.types.items()}, case.says)


def refused(fxc, cases):
    """What fxc says of each case that it refuses, by the case's place."""
    cases = [separated(c, i) for i, c in enumerate(cases)]
    types = {n: t for c in cases for n, t in c.types.items()}
    heads = [c.head.replace("module m ", f"module m{i} ") for i, c in enumerate(cases) if c.head]
    declared = [f"    %{n} : {t} = placeholder {n}" for n, t in types.items()]
    lines = [f"    %r{i} = {c.call.replace('call_module m(', f'call_module m{i}(')}" for i, c in enumerate(cases)]
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "calls.fxir")
        with open(source, "w") as f:
            f.write("\n".join([*heads, "graph main {", *declared, *lines, "    output None", "}"]) + "\n")
        p = subprocess.run([fxc, "check", "--message-format", "json", source], capture_output=True, text=True)
    first, found = len(heads) + 1 + len(declared), {}
    for line in p.stderr.splitlines():
        if not line.startswith("{"):
            print(f"fxc says {line}")
            continue
        d = json.loads(line)
        at = d["line"] - 1 - (first if d["line"] > first else 0)
        if d["severity"] == "error":
            found.setdefault(at, f"{d['code']} {d['message']}")
    if p.returncode not in (0, 1):
        print(f"fxc ends with {p.returncode}: {p.stderr[-300:]}")
    return found


# --- running --------------------------------------------------------------------------------------------------------

def judged(targets, out):
    """Writes the cases of the targets with torch's verdicts."""
    for path, calls in targets:
        seen = set()
        for args, kwargs in calls:
            for what, a, k in variants(parameter_names(path), args, kwargs):
                try:
                    case = case_of(path, what, a, k)
                    key = case.head + case.call
                    if key in seen:
                        continue
                    seen.add(key)
                    signal.alarm(5)
                    case.says = verdict(path, a, k)
                    signal.alarm(0)
                    case.ok = not case.says
                except (Skip, Slow):
                    continue
                pickle.dump(case, out)
        out.flush()


def cases_of(targets):
    """The cases of some targets, made in a process of its own: torch may crash on odd arguments. Then each has its own."""
    sys.stdout.flush()
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, alarm)
            sys.stderr = open(os.devnull, "w")
            judged(targets, out)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status and len(targets) > 1:
            return [c for t in targets for c in cases_of([t])]
        if status:
            print(f"torch ends on a change of {targets[0][0]}")
        out.seek(0)
        made = []
        while True:
            try:
                made.append(pickle.load(out))
            except (EOFError, pickle.UnpicklingError):
                return made


def reason(case, says):
    """Why the verdicts differ, where that is known."""
    if says and any(re.search(r"\b0\b", t) for t in case.types.values()):
        return EARLY
    table, words = (REFUSED, says) if says else (ACCEPTED, case.says)
    return next((why for p, w, s, why in table if re.search(p, case.path) and re.search(w, case.what) and re.search(s, words)), None)


class Report:
    def __init__(self):
        self.counts = collections.defaultdict(lambda: [0, 0, 0])
        self.found = collections.defaultdict(list)
        self.exceptions = collections.Counter()

    def add(self, case, says):
        c = self.counts[case.group()]
        c[1] += 1
        if case.ok == (not says):
            c[0] += 1
            return
        why = reason(case, says)
        if why:
            c[2] += 1
            self.exceptions[why] += 1
            return
        kind = (case.what, case.ok, re.sub(r"`[^`]*`|\d+", "#", says or case.says)[:60])
        self.found[kind].append((case.path, f"{case.head} {case.call}".strip(), says or case.says))

    def show(self, most):
        print(f"{'':12}{'agreeing':>10}{'of':>10}{'excepted':>10}")
        for group in FAMILIES:
            a, n, e = self.counts[group]
            print(f"{group:12}{a:10}{n:10}{e:10}")
        total = sum(map(len, self.found.values()))
        rules = sum(len(v) for (what, _, _), v in self.found.items() if TYPES.search(what))
        print(f"\n{total} disagreements, {rules} of them on dtypes and shapes of tensors")
        for (what, wanted, _), cases in sorted(self.found.items(), key=lambda f: -len(f[1])):
            paths = collections.Counter(p for p, _, _ in cases)
            head = "torch accepts" if wanted else "fxc accepts"
            print(f"{len(cases):6} {head}: {what}: {len(paths)} paths: {' '.join(list(paths)[:12])}")
            for _p, text, says in cases[:most]:
                print(f"           {text[:170]}\n               {says[:150]}")
        print("\nexceptions")
        for why, n in self.exceptions.most_common():
            print(f"{n:6} {why}")
        return total


def check(fxc, report, cases, extract):
    """All cases, in files of a few thousand lines."""
    for modules in (False, True):
        some = [c for c in cases if bool(c.head) == modules]
        for start in range(0, len(some), 4000):
            part = some[start:start + 4000]
            found = refused(fxc, part)
            for i, c in enumerate(part):
                says = found.get(i, "")
                report.add(c, says)
                extract.add(c, says)


class Extract:
    """Cases on which both agree: a few of each kind of change, family and verdict, and one of each reason for which torch refuses what
    its parser takes."""

    def __init__(self, each):
        self.each, self.seen, self.cases = each, collections.Counter(), []

    def add(self, case, says):
        if case.ok == bool(says):
            return
        why = re.match(r"(?:Runtime|Value|Index|Assertion|NotImplemented)Error: (?!.*Expected a value of type)(.*)", case.says)
        reason = re.sub(r"'\w+'|\[[^]]*\]|\S*[\d_]\S*|Float|Double|Long|Int\b|Bool|BFloat16", "#", why[1])[:45] if why else None
        if reason and not self.seen[reason]:
            self.seen[reason] += 1
            self.keep(case)
            return
        if case.head:
            return
        key = (case.group(), case.what, case.ok)
        # Not of neighbours alone.
        self.seen[key] += 1
        if self.seen[key] % 7 == 1 and self.seen[key] <= 7 * self.each:
            self.keep(case)

    def keep(self, case):
        head = {"module": case.head} if case.head else {}
        self.cases.append({"what": case.what, **head, "call": case.call, "inputs": case.types, "torch": case.ok})

    def write(self, path):
        with open(path, "w") as f:
            f.write(f'{{"torch": "{torch.__version__}",\n"cases": [\n')
            f.write(",\n".join(json.dumps(c) for c in self.cases) + "\n]}\n")
        print(f"{path}: {len(self.cases)} cases")


def make_cases(paths, classes, table, a):
    bases = Bases(paths)
    record(bases, a)
    widen(bases, table)
    targets = [(path, calls) for path, calls in bases.chosen(a.calls) if re.search(a.only, path)]
    targets += [(made, [(args, kwargs)]) for made, args, kwargs in modules(classes, a.calls) if re.search(a.only, made.cls.__name__)]
    print(f"{len(targets)} targets", flush=True)
    return [c for i in range(0, len(targets), 40) for c in cases_of(targets[i:i + 40])]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    ap.add_argument("--only", default="", help="paths and classes that match this pattern")
    ap.add_argument("--samples", type=int, default=4, help="samples of an OpInfo that are looked at")
    ap.add_argument("--calls", type=int, default=2, help="base calls of a path")
    ap.add_argument("--keep", metavar="FILE", help="keeps the cases with torch's verdicts, or takes them from there")
    ap.add_argument("--extract", metavar="FILE", help="writes some of the cases on which both agree")
    ap.add_argument("--shown", type=int, default=3, help="disagreements shown of a kind")
    a = ap.parse_args()
    table = json.loads(subprocess.run([a.fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    paths = {p for row in table for form in row["spellings"] for p in form["paths"]}
    if a.keep and os.path.exists(a.keep):
        with open(a.keep, "rb") as f:
            cases = pickle.load(f)
    else:
        cases = make_cases(paths, {m.split("(")[0] for row in table for m in row["modules"]}, table, a)
        if a.keep:
            with open(a.keep, "wb") as f:
                pickle.dump(cases, f)
    cases = [c for c in cases if re.search(a.only, c.path)]
    seen = {c.path for c in cases}
    lacking = sorted(p for p in paths if p.startswith(("torch.", "Tensor.", "aten.")) and p not in seen)
    report, extract = Report(), Extract(1)
    check(a.fxc, report, cases, extract)
    if a.extract:
        extract.write(a.extract)
    print(f"{len(seen)} paths and classes; no call was recorded of {len(lacking)}: {' '.join(lacking)}\n")
    sys.exit(1 if report.show(a.shown) else 0)


if __name__ == "__main__":
    main()
