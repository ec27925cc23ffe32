#!/usr/bin/env python3
"""Checks every op of fxc's table against PyTorch's own OpInfo samples: python tests/torch/opinfo.py [--only add] [--limit 9]

Every sample of `torch.testing._internal.common_methods_invocations.op_db` (its reference inputs: special values, empty
and 0-d tensors, strided and expanded inputs among them) is traced to the ATen graph that torch.export gives for the
call, written as FXIR, and run by fxc interpreted and compiled (`tests/opinfo.rs` runs a folder of cases in one
process). Values, shapes and dtypes are compared with the tolerances of the OpInfo, else torch.testing.assert_close's;
sums in another order than torch's pass if they are at least as near to the f64 result as torch's own, or as near as that result
stays when the inputs move by a rounding (the softmax of scores in the thousands turns one into 1e-5). `--calls` adds the
samples as calls of torch's functions and methods, with OpInfo's error inputs, which fxc must refuse; `--errors` runs these
alone.

Printed is a line per op with passed/total per dtype, then each class of failure, the exceptions with their reasons, the ops
that fxc lacks, and what docs/ops.md says of these.
`--keep DIR` keeps the cases, and takes them from there if they were made; `--extract FILE` writes a few small samples
per op for the cargo test. Exit code 1 if a sample of an op in the table fails. Needs torch, expecttest and safetensors.
"""
import argparse
import collections
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings

warnings.filterwarnings("ignore")
try:
    import torch
    import torch.utils._pytree as pytree
    from safetensors.torch import load_file, save_file
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.testing._internal.common_device_type import toleranceOverride
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was checked")
    sys.exit(0)

# Seeding, which every sample does, would note the stack for GPUs that are not there.
torch.cuda._lazy_call = torch.xpu._lazy_call = lambda *args, **kwargs: None

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "data"))
from samples import DTYPES, SHORT, encode  # noqa: E402

ALL = ["f32", "f64", "f16", "bf16", "i64", "i32", "u8", "b8"]
# Larger tensors only repeat what smaller ones show.
LARGEST = 1 << 16
# Most elements of a sample in the extract, inputs and results together.
SMALL = 60
TOLERANCE = {torch.float16: (1e-5, 1e-3), torch.bfloat16: (1e-5, 1.6e-2), torch.float32: (1e-5, 1.3e-6),
             torch.float64: (1e-7, 1e-7)}
# Their values are not defined: only types are compared.
UNDEFINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize"}


# Samples that do not pass, and why: (op, message, reason).
EXCEPTIONS = [
    (r"", r"compiled: E0601 the size of the result of", "sizes depend on values: `fxc run` interprets from there on (L0003)"),
    (r"^(equal|allclose|item)$", r"compiled: result 0 is missing", "the result is a Python number that depends on values: as above"),
    (r"^tensor_split$", r"E0202", "the places to split at are a tensor that is not a constant: sizes and number of the results depend on it"),
    (r"^matrix_exp$", r"instead of nan", "torch's exponential is NaN in half precision, fxc's is computed in f32"),
    (r"signal_windows_kaiser", r"instead of nan", "torch's i0 in f32 overflows from 88.7 on, fxc's from 91.9, as i0 does"),
]


def reason(op, message):
    return next((why for o, m, why in EXCEPTIONS if re.search(o, op) and re.search(m, message)), None)


class Skip(Exception):
    """A sample that is not a graph of tensors."""


# --- from a sample to FXIR ------------------------------------------------------------------------------------------

def literal(v):
    """An argument of an fx node as FXIR."""
    if isinstance(v, torch.fx.Node):
        return f"%{v.name}"
    if isinstance(v, (tuple, list)):
        inner = ", ".join(map(literal, v))
        if isinstance(v, list):
            return f"[{inner}]"
        return f"({inner},)" if len(v) == 1 else f"({inner})"
    if isinstance(v, slice):
        return f"slice({literal(v.start)}, {literal(v.stop)}, {literal(v.step)})"
    if isinstance(v, str):
        return json.dumps(v)
    if isinstance(v, torch.dtype):
        return str(v)
    if isinstance(v, torch.device):
        return f'device("{v}")'
    if isinstance(v, (torch.memory_format, torch.layout)):
        return str(v)
    if v is None or v is Ellipsis or isinstance(v, (bool, int, float, complex)):
        return repr(v) if v is not Ellipsis else "Ellipsis"
    raise Skip(f"an argument is {type(v).__name__}")


def declared(name, t):
    return f"    %{name} : {SHORT[t.dtype]}{list(t.shape)} = placeholder {name}"


def call_text(n):
    if n.op == "call_method":
        target = f"call_method {n.target}"
    elif isinstance(n.target, torch._ops.OpOverload):
        target = f"call_function {n.target}"
    elif isinstance(n.target, torch._ops.HigherOrderOperator) or not callable(n.target):
        raise Skip(f"a node calls {n.target}")
    else:
        target = f"call_function {torch.fx.node._get_qualified_name(n.target).replace('_operator.', 'operator.')}"
    args = [literal(a) for a in n.args] + [f"{k}={literal(v)}" for k, v in n.kwargs.items()]
    return f"    %{n.name} = {target}({', '.join(args)})"


def storage_of(t):
    """A contiguous tensor and the function that makes the strided or expanded `t` of it."""
    if any(s == 0 and n > 1 for s, n in zip(t.stride(), t.shape)):
        base = t
        for d, (s, n) in enumerate(zip(t.stride(), t.shape)):
            base = base.narrow(d, 0, 1) if s == 0 and n > 1 else base
        shape = list(t.shape)
        return base.contiguous(), lambda b: b.expand(shape)
    if t.is_contiguous() or t.numel() == 0:
        return t.detach().clone().contiguous(), lambda b: b
    order = sorted(range(t.dim()), key=lambda d: -t.stride(d))
    if t.permute(order).is_contiguous():
        inverse = [order.index(d) for d in range(t.dim())]
        return t.permute(order).contiguous(), lambda b: b.permute(inverse)
    return t.repeat_interleave(2, -1), lambda b: b[..., ::2]


def check_tensors(tensors):
    for t in tensors:
        if not isinstance(t, torch.Tensor):
            continue
        if t.device.type != "cpu" or t.layout != torch.strided or t.is_quantized or t.dtype not in SHORT:
            raise Skip(f"a tensor is {t.dtype} {t.layout} {t.device.type}")
        if t.numel() > LARGEST:
            raise Skip("large")


def writes(target):
    """Whether an ATen overload writes to an argument: `aten.add_.Tensor`."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def trace(call, tensors):
    """The ATen graph of call(*tensors), its text, inputs and results."""
    made = [storage_of(t) for t in tensors]

    def f(*bases):
        out = call(*[make(b) for b, (_, make) in zip(bases, made)])
        return [o for o in pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]

    bases = [b for b, _ in made]
    want = f(*[b.clone() for b in bases])
    if not want:
        raise TypeError("no tensor results")
    check_tensors(want)
    with torch.no_grad():
        gm = make_fx(f, pre_dispatch=True)(*[b.clone() for b in bases])
    lines, inputs, aten, given = [], {}, [], iter(bases)
    for n in gm.graph.nodes:
        if n.op == "placeholder":
            inputs[n.name] = next(given)
            lines.append(declared(n.name, inputs[n.name]))
        elif n.op == "get_attr":
            t = getattr(gm, n.target)
            check_tensors([t])
            inputs[n.name] = t.detach().clone().contiguous()
            lines.append(declared(n.name, t))
        elif n.op == "output":
            results = ", ".join(literal(a) for a in n.args[0])
        else:
            if n.users or "assert" in str(n.target) or writes(n.target):
                lines.append(call_text(n))
                aten.append(str(n.target) if not callable(n.target) or hasattr(n.target, "_schema") else "operator.getitem")
    lines.sort(key=lambda s: " = placeholder " not in s)
    text = "graph main {\n" + "\n".join(lines) + f"\n    output [{results}]\n}}\n"
    return text, inputs, aten, want


# --- samples --------------------------------------------------------------------------------------------------------

def flat(sample):
    """The tensors of a sample and the function that calls an op with others in their place."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    tensors = [leaves[i].detach() for i in at]

    def rebuilt(ts):
        new = list(leaves)
        for i, t in zip(at, ts):
            new[i] = t
        return pytree.tree_unflatten(new, spec)

    return tensors, rebuilt


def torch_path(info):
    """`torch.nn.functional.relu`, where the OpInfo's op is a function of that name."""
    for head in ("torch", "torch.nn.functional", "torch.linalg", "torch.special"):
        module = eval(head)
        name = info.name.split(".")[-1]
        if getattr(module, name, None) is info.op:
            return f"{head}.{name}"
    return None


# Attention that draws numbers: dropout_p, the fifth argument, is not 0.
DROPPING = re.compile(r"dropout_p=0?\.[0-9]*[1-9]|scaled_dot_product_attention\.default\(([^,]*, ){4}0?\.[0-9]*[1-9]|"
                      r"flash_attention_for_cpu\.default\(([^,]*, ){3}0?\.[0-9]*[1-9]")


class Chunk:
    """The cases of one op at one dtype: a file of cases and one of their tensors."""

    def __init__(self, name, dtype):
        self.name, self.dtype = name, dtype
        self.cases, self.inputs, self.want, self.refs = [], {}, {}, {}

    def add(self, text, inputs, aten, want, exact, tolerance, ref, far=()):
        i = len(self.cases)
        self.inputs.update({f"{i}.{k}": t.detach().clone().contiguous() for k, t in inputs.items()})
        case = {"id": i, "text": text, "inputs": list(inputs), "aten": sorted(set(aten)), "tolerance": tolerance}
        case["random"] = not exact
        self.cases.append(case)
        self.want.update({f"{i}.{j}": t.detach().clone().contiguous() for j, t in enumerate(want)})
        case["results"] = len(want)
        for j, (t, r) in enumerate(zip(want, ref)):
            if t.dtype in WIDE and t.shape == r.shape:
                self.want[f"{i}.{j}.ref"] = r.detach().clone().contiguous()
        self.want.update({f"{i}.{j}.far": f.contiguous() for j, f in enumerate(far) if f"{i}.{j}.ref" in self.want})

    def refuse(self, path, text, inputs, message):
        i = len(self.cases)
        self.inputs.update({f"{i}.{k}": t.detach().clone().contiguous() for k, t in inputs.items()})
        self.cases.append({"id": i, "text": text, "inputs": list(inputs), "aten": [path], "error": message, "results": 0})


def is_random(aten):
    for name in aten:
        if name.startswith("aten."):
            packet, overload = name.split(".")[1:3]
            op = getattr(getattr(torch.ops.aten, packet), overload)
            if torch.Tag.nondeterministic_seeded in op.tags or packet in UNDEFINED:
                return True
    return False


def dead_dropout(text):
    """Whether the graph's random ops are dropouts in evaluation: they draw no numbers."""
    return not re.search(r"= call_function (?!aten\.(dropout|feature_dropout|alpha_dropout)\.default\([^)]*False\))"
                         r"\S*(drop|rand|bernoulli|normal|uniform|rrelu|multinomial|poisson|exponential|cauchy|geometric|empty)", text)


def tolerance_of(info, dtype):
    """OpInfo's own (atol, rtol) for samples of the dtype, if it has them."""
    atol = rtol = 0
    for d in info.decorators or ():
        for inner in getattr(d, "decorators", [d]):
            if isinstance(inner, toleranceOverride) and getattr(d, "device_type", None) in (None, "cpu"):
                t = inner.d.get(dtype)
                atol, rtol = (max(atol, t.atol), max(rtol, t.rtol)) if t else (atol, rtol)
    return [atol, rtol]


def samples(info, dtype, limit):
    kw = {"requires_grad": False}
    try:
        found = itertools.chain(info.sample_inputs("cpu", dtype, **kw), info.reference_inputs("cpu", dtype, **kw))
        found = list(found)
    except Exception as e:
        print(f"  {info.name} {dtype}: no samples: {str(e)[:100]}")
        return []
    if limit and len(found) > limit:
        step = len(found) / limit
        found = [found[int(i * step)] for i in range(limit)]
    return found


WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}


def widened(v, integers=False):
    """A value with its floats (its integers too, where these are what an op takes), and dtypes that it asks for, as f64."""
    if isinstance(v, torch.Tensor) and (v.dtype in WIDE or integers and v.dtype != torch.bool):
        return v.double()
    return WIDE.get(v, v) if isinstance(v, torch.dtype) else v


def reference(info, tensors, rebuilt, dtype):
    """The results in f64, where they can be had."""
    try:
        wide = lambda v: widened(v, dtype not in WIDE)  # noqa: E731
        x, args, kwargs = pytree.tree_map(wide, rebuilt([t.clone() for t in tensors]))
        out = info.op(x, *args, **kwargs)
        return [o.double() for o in pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]
    except Exception:
        return []


def spread(info, tensors, rebuilt, ref):
    """How far the results in f64 move, element by element, when each f32 input moves by its last place, one way or the other."""
    far = [torch.zeros_like(r) for r in ref]
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        signs = lambda t, g=g: torch.randint(0, 2, t.shape, generator=g).double() * 2 - 1  # noqa: E731
        moved = [t.double() * (1 + 2**-23 * signs(t)) if t.dtype == torch.float32 else t for t in tensors]
        for f, r, m in zip(far, ref, reference(info, moved, rebuilt, torch.float32)):
            if m.shape == r.shape:
                f.copy_(torch.fmax(f, (m - r).abs()))
    return far


def make_chunk(info, dtype, a):
    chunk = Chunk(f"{info.formatted_name}.{SHORT[dtype]}", SHORT[dtype])
    skipped, seen = collections.Counter(), set()
    tolerance = tolerance_of(info, dtype)
    for s in samples(info, dtype, a.limit):
        try:
            tensors, rebuilt = flat(s)
            check_tensors(tensors)

            def call(*ts, rebuilt=rebuilt):
                x, args, kwargs = rebuilt(ts)
                return info.op(x, *args, **kwargs)

            torch.manual_seed(0)
            try:
                text, inputs, aten, want = trace(call, tensors)
            except Skip:
                raise
            except Exception as e:
                text, inputs, aten, want = called(info, tensors, rebuilt, e)
            key = (text, *(t.numpy().tobytes() if t.dtype != torch.bfloat16 else t.float().numpy().tobytes() for t in inputs.values()))
            if hash(key) in seen:
                continue
            seen.add(hash(key))
            exact = not is_random(aten) or (not any(n.split(".")[1] in UNDEFINED for n in aten) and dead_dropout(text))
            exact &= not s.kwargs.get("dropout_p") and "scaled_dot" not in text or not DROPPING.search(text)
            ref = reference(info, tensors, rebuilt, dtype) if any(w.dtype in WIDE for w in want) else []
            far = spread(info, tensors, rebuilt, ref) if exact and dtype == torch.float32 else []
            chunk.add(text, inputs, aten, want, exact, tolerance, ref, far)
            if a.calls:
                for path, text, inputs in calls(info, tensors, rebuilt):
                    chunk.add(text, inputs, [path], want, exact, tolerance, ref, far)
        except Skip as e:
            skipped[str(e)] += 1
        except Exception as e:
            skipped["torch: " + str(e).split("\n")[0][:80]] += 1
    return chunk, skipped


def calls(info, tensors, rebuilt):
    graph = torch.fx.Graph()
    nodes = [graph.placeholder(f"t{i}") for i in range(len(tensors))]
    x, args, kwargs = rebuilt(nodes)
    inputs = {n.name: t for n, t in zip(nodes, tensors)}
    if "out" in kwargs:
        raise Skip("out=")
    head = [declared(n.name, t) for n, t in zip(nodes, tensors)]
    path = torch_path(info)
    targets = [f"call_function {path}"] if path else []
    if info.method_variant is not None and isinstance(x, torch.fx.Node) and hasattr(torch.Tensor, info.method_variant.__name__):
        targets.append(f"call_method {info.method_variant.__name__}")
    for target in targets:
        args_text = [literal(v) for v in (x, *args)] + [f"{k}={literal(v)}" for k, v in kwargs.items()]
        line = f"    %r = {target}({', '.join(args_text)})"
        yield target.split()[1] if path in target.split() else f"Tensor.{target.split()[1]}", "graph main {\n" + "\n".join(head + [line]) + "\n    output %r\n}\n", inputs


def called(info, tensors, rebuilt, why):
    """The call itself as the graph, for what make_fx cannot trace: it asks for values, or gives a Python number."""
    found = next(calls(info, tensors, rebuilt), None)
    if found is None:
        raise why
    path, text, inputs = found
    x, args, kwargs = rebuilt([t.clone() for t in tensors])
    out = info.op(x, *args, **kwargs)
    if isinstance(out, (bool, int, float)):
        want = [torch.tensor(out)]
    else:
        want = [o for o in pytree.tree_leaves(out) if isinstance(o, torch.Tensor)]
    check_tensors(want)
    return text, inputs, [path], want


def takes(info, tensors, rebuilt):
    """Whether torch itself takes an error input: some are errors of its reference implementations alone."""
    x, args, kwargs = rebuilt([t.clone() for t in tensors])
    try:
        info.op(x, *args, **kwargs)
        return True
    except Exception:
        return False


def make_errors(info, chunk):
    if info.error_inputs_func is None:
        return
    try:
        found = list(info.error_inputs("cpu"))
    except Exception:
        return
    for e in found:
        try:
            tensors, rebuilt = flat(e.sample_input)
            check_tensors(tensors)
            if takes(info, tensors, rebuilt):
                continue
            for path, text, inputs in calls(info, tensors, rebuilt):
                chunk.refuse(path, text, inputs, str(e.error_regex))
        except (Skip, AttributeError):
            continue


# --- running and comparing --------------------------------------------------------------------------------------------

def runner(path):
    if path:
        return path
    cmd = ["cargo", "test", "--test", "opinfo", "--no-run", "--message-format=json"]
    out = subprocess.run(cmd, capture_output=True, text=True, check=True).stdout
    found = [json.loads(line).get("executable") for line in out.splitlines() if '"opinfo"' in line]
    return [f for f in found if f][-1]


def run_folder(exe, folder):
    """Runs all chunks; a case that ends the process is taken out and noted."""
    ended = {}
    while True:
        env = dict(os.environ, FXC_OPINFO=folder)
        p = subprocess.run([exe, "samples_of_a_folder", "--nocapture"], env=env, capture_output=True, text=True)
        at = os.path.join(folder, "at")
        if not os.path.exists(at):
            return ended
        name, case, mode = open(at).read().split()
        os.remove(at)
        ended[(name, int(case))] = f"ends the process, {mode}: " + " | ".join(p.stderr.strip().splitlines()[-2:])[-200:]
        file = os.path.join(folder, f"{name}.json")
        data = [c for c in json.load(open(file)) if c["id"] != int(case)]
        json.dump(data, open(file, "w"))


def near(got, want, tolerance):
    if not want.dtype.is_floating_point:
        return got == want
    atol, rtol = TOLERANCE[want.dtype]
    return torch.isclose(got.double(), want.double(), rtol=max(rtol, tolerance[1]), atol=max(atol, tolerance[0]), equal_nan=True)


def as_near_as_torch(got, want, tolerance, ref, far):
    """Whether the elements that are not torch's are not farther from those in f64 than torch's farthest, or than these move
    with their inputs' last places."""
    if ref is None or not torch.equal(got.isfinite(), want.isfinite()):
        return False
    finite = want.isfinite() & ref.isfinite()
    differ = ~near(got, want, tolerance)
    if not finite.any() or (differ & ~finite).any():
        return False
    mine, theirs = ((t.double() - ref).abs() for t in (got, want))
    limit = theirs[finite].max() if far is None else torch.fmax(far, theirs[finite].max())
    return bool((mine <= limit)[differ].all())


def picks(given, values, index):
    """Whether `index` picks `values` out of one of the tensors along some dim: which of equal elements is not specified."""
    for x in given:
        for d in range(x.dim()):
            for i, v in ((index, values), (index.unsqueeze(d), values.unsqueeze(d))) if index.dim() < 8 else ():
                if i.dim() != x.dim() or any(s > x.shape[k] for k, s in enumerate(i.shape) if k != d):
                    continue
                if i.numel() and not (0 <= int(i.min()) and int(i.max()) < x.shape[d]):
                    continue
                if x.dtype == v.dtype and torch.equal(x.gather(d, i).nan_to_num(), v.nan_to_num()):
                    return True
    return False


def product(factors, text):
    """The matrices that factors are of, and the vectors among these, which are orthonormal."""
    if "eigh" in text:
        s, v = (f.double() for f in factors)
        return v @ torch.diag_embed(s) @ v.mT, [v]
    u, s, v = (f.double() for f in factors)
    k = s.shape[-1]
    vectors = [u, v.mT] if "linalg_svd" in text else [u, v]
    return vectors[0][..., :k] @ torch.diag_embed(s) @ vectors[1][..., :k].mT, vectors


def same_factors(text, got, want):
    """Whether eigenvectors or singular vectors do what torch's do: their signs, and those of equal values, are free."""
    if not re.search(r"linalg_svd|aten\.svd|linalg_eigh\.", text) or len(got) != (2 if "eigh" in text else 3):
        return False
    if [(g.dtype, g.shape) for g in got] != [(w.dtype, w.shape) for w in want]:
        return False
    (mine, vectors), (theirs, _) = product(got, text), product(want, text)
    limit = 1e-3 if got[0].dtype == torch.float32 else 1e-9
    scale = max(1.0, float(theirs.abs().max()) if theirs.numel() else 0)
    eyes = [(v.mT @ v, torch.eye(v.shape[-1], dtype=torch.float64)) for v in vectors]
    return all(bool(((a - b).abs() <= limit * scale).all()) for a, b in [(mine, theirs), *eyes])


def compare(got, want, tolerance, types_only):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{SHORT.get(got.dtype, got.dtype)}{list(got.shape)} instead of {SHORT[want.dtype]}{list(want.shape)}"
    same = near(got, want, tolerance)
    if types_only or same.all():
        return None
    i = int((~same).flatten().nonzero()[0])
    return f"{int((~same).sum())} of {same.numel()} differ, first [{i}]: {got.flatten()[i].item()} instead of {want.flatten()[i].item()}"


def message_class(text):
    return re.sub(r"-?\d+(\.\d+)?(e-?\d+)?|nan|inf|`[^`]*`", "#", text)[:110]


class Report:
    def __init__(self):
        self.rows = collections.defaultdict(dict)
        self.failures = collections.defaultdict(list)
        self.missing = collections.Counter()
        self.totals = collections.defaultdict(lambda: [0, 0])
        self.unexplained = 0
        self.small = collections.defaultdict(list)

    def add(self, chunk, results, got, want, given, ended, known):
        passed = total = 0
        status = {r["id"]: r for r in results}
        for case in chunk["cases"]:
            lacking = [n for n in case["aten"] if n not in known]
            if lacking:
                self.missing.update(lacking)
                continue
            total += 1
            why = ended.get((chunk["name"], case["id"])) or self.judge(case, status.get(case["id"]), got, want, given)
            if why is None:
                passed += 1
                self.keep_small(chunk, case, want, given)
            else:
                self.failures[(chunk["op"], message_class(why))].append((chunk["dtype"], case["id"], why, case["text"]))
        if total:
            self.rows[chunk["op"]][chunk["dtype"]] = (passed, total)
            self.totals[chunk["dtype"]][0] += passed
            self.totals[chunk["dtype"]][1] += total

    def keep_small(self, chunk, case, want, given):
        """Notes a sample that the extract may hold: small, and the same as torch's within the tolerances."""
        inputs = {n: given[f"{case['id']}.{n}"] for n in case["inputs"]}
        out = [want[f"{case['id']}.{j}"] for j in range(case["results"])]
        elements = sum(t.numel() for t in [*inputs.values(), *out])
        called = any(n.startswith(("torch.", "Tensor.")) for n in case["aten"])
        if "error" in case or elements > SMALL or case["random"] or called or not self.plain:
            return
        self.small[(chunk["op"], chunk["dtype"])].append((elements, case["text"], inputs, out, case["tolerance"]))

    def extract(self, path):
        """A few samples per op: three of f32 (the smallest, a middle one, the largest), one of each other dtype."""
        cases = []
        for (op, dtype), found in sorted(self.small.items()):
            found.sort(key=lambda s: (s[0] == 0, s[0]))
            chosen = [found[i] for i in sorted({0, len(found) // 2, len(found) - 1})] if dtype == "f32" else found[-1:]
            for _, text, inputs, out, (atol, rtol) in chosen:
                least = [TOLERANCE.get(t.dtype, (0, 0)) for t in out]
                cases.append({"op": op, "text": text, "inputs": [encode(t) for t in inputs.values()], "out": [encode(t) for t in out],
                              "atol": [max(atol, a) for a, _ in least], "rtol": [max(rtol, r) for _, r in least]})
        with open(path, "w") as f:
            f.write(f'{{"torch": "{torch.__version__}",\n"cases": [\n')
            f.write(",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
            f.write("\n]}\n")
        print(f"{path}: {len(cases)} samples of {len({c['op'] for c in cases})} ops")

    def tied(self, case, got, expected, want, given, j):
        """Whether the result is an index of other, equal elements."""
        if got.dtype != torch.int64 or not re.search(r"sort|topk|kthvalue|median|mode", case["text"]):
            return False
        inputs = [given[f"{case['id']}.{n}"] for n in case["inputs"]]
        values = want.get(f"{case['id']}.{j - 1}")
        if values is not None:
            return picks(inputs, values, got)
        return any(picks(inputs, x.gather(d, expected), got) for x in inputs for d in range(x.dim()) if x.shape == got.shape
                   and int(expected.max()) < x.shape[d])

    def judge(self, case, status, got, want, given):
        self.plain = True
        if status is None:
            return "was not run"
        for mode in ("interpreted", "compiled"):
            error = status.get(mode)
            if "error" in case:
                if error is None:
                    return f"{mode}: no error: {case['error'][:80]}"
                continue
            if error is not None:
                return f"{mode}: {error}"
            names = [f"{case['id']}.{mode}.{j}" for j in range(case["results"])]
            if all(n in got for n in names):
                wanted = [want[f"{case['id']}.{j}"] for j in range(case["results"])]
                if same_factors(case["text"], [got[n] for n in names], wanted):
                    self.plain = False
                    continue
            for j in range(case["results"]):
                g = got.get(f"{case['id']}.{mode}.{j}")
                if g is None:
                    return f"{mode}: result {j} is missing"
                w = want[f"{case['id']}.{j}"]
                what = compare(g, w, case["tolerance"], case["random"])
                self.plain &= not what
                if what and g.dtype == w.dtype and g.shape == w.shape:
                    if as_near_as_torch(g, w, case["tolerance"], *(want.get(f"{case['id']}.{j}.{k}") for k in ("ref", "far"))) or self.tied(case, g, w, want, given, j):
                        continue
                if what:
                    return f"{mode}: {what}"
        return None

    def show(self, verbose):
        print(f"{'op':44}" + "".join(f"{d:>11}" for d in ALL))
        for op in sorted(self.rows):
            cells = [self.rows[op].get(d) for d in ALL]
            marks = "".join(f"{f'{c[0]}/{c[1]}' if c else '-':>11}" for c in cells)
            print(f"{op:44}{marks}{'' if all(c is None or c[0] == c[1] for c in cells) else '  *'}")
        print(f"\n{'total':44}" + "".join(f"{'/'.join(map(str, self.totals[d])):>11}" for d in ALL))
        print("\nfailures")
        exceptions = collections.defaultdict(collections.Counter)
        for (op, _), found in sorted(self.failures.items(), key=lambda f: -len(f[1])):
            dtype, case, first, text = found[0]
            if reason(op, first):
                exceptions[reason(op, first)][op] += len(found)
                continue
            self.unexplained += len(found)
            print(f"{len(found):5} {op} ({' '.join(sorted({f[0] for f in found}))}): {first[:260]}")
            if verbose:
                print("".join(f"        {line}\n" for line in text.splitlines()[:14]))
        print("\nexceptions")
        for why, ops in exceptions.items():
            print(f"{sum(ops.values()):5} {why}: {', '.join(f'{op} {n}' for op, n in ops.most_common())}")
        print("\nATen ops in samples that are not in the table")
        print("  ".join(f"{n} {k}" for n, k in self.missing.most_common()))


def known_paths(fxc):
    table = json.loads(subprocess.run([fxc, "ops", "--format", "json"], capture_output=True, check=True).stdout)
    return {p for op in table for s in op["spellings"] for p in s["paths"]}


def outside(fxc):
    """The section of docs/ops.md that says what the table leaves out, and why."""
    page = subprocess.run([fxc, "ops", "--format", "markdown"], capture_output=True, check=True, text=True).stdout
    return page.partition("## Unsupported ops")[2].strip()


def generate(a, folder, dtypes):
    torch.set_num_threads(1)
    infos = [i for i in op_db if re.search(a.only, i.formatted_name)]
    for short, info in itertools.product(dtypes, infos):
        name = f"{info.formatted_name}.{short}"
        file = os.path.join(folder, f"{name}.json")
        unsupported = DTYPES[short] not in info.supported_dtypes("cpu") and not a.errors
        if unsupported or os.path.exists(file):
            continue
        if a.errors:
            chunk, skipped = Chunk(name, short), {}
        else:
            chunk, skipped = make_chunk(info, DTYPES[short], a)
        if (a.calls or a.errors) and short == "f32":
            make_errors(info, chunk)
        head = {"name": name, "op": info.formatted_name, "dtype": short, "cases": chunk.cases, "skipped": skipped}
        json.dump(head, open(os.path.join(folder, f"{name}.chunk"), "w"))
        save_file(chunk.inputs or {"none": torch.zeros(0)}, os.path.join(folder, f"{name}.in"))
        save_file(chunk.want or {"none": torch.zeros(0)}, os.path.join(folder, f"{name}.want"))
        cases = [{k: c[k] for k in ("id", "text", "inputs", "results")} for c in chunk.cases]
        with open(file, "w") as f:
            json.dump(cases, f)


def report(a, folder, dtypes, known, ended):
    out = Report()
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".chunk"):
            continue
        chunk = json.load(open(os.path.join(folder, file)))
        base = os.path.join(folder, chunk["name"])
        if a.only and not re.search(a.only, chunk["op"]) or chunk["dtype"] not in dtypes:
            continue
        results = json.load(open(base + ".result")) if os.path.exists(base + ".result") else []
        got = load_file(base + ".out.safetensors") if os.path.exists(base + ".out.safetensors") else {}
        out.add(chunk, results, got, load_file(base + ".want"), load_file(base + ".in"), ended, known)
    out.show(a.verbose)
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--fxc", default="target/debug/fxc")
    ap.add_argument("--runner", help="the executable of tests/opinfo.rs; built if not given")
    ap.add_argument("--only", default="", help="ops whose names match this pattern")
    ap.add_argument("--dtypes", default=",".join(ALL))
    ap.add_argument("--limit", type=int, default=0, help="at most so many samples for an op and dtype")
    ap.add_argument("--calls", action="store_true")
    ap.add_argument("--errors", action="store_true", help="only OpInfo's error inputs, which fxc must refuse (with --dtypes f32)")
    ap.add_argument("--keep", metavar="DIR")
    ap.add_argument("--generate", action="store_true", help="only make the cases")
    ap.add_argument("--extract", metavar="FILE")
    ap.add_argument("-v", "--verbose", action="store_true", help="with the graph of each class of failure")
    a = ap.parse_args()
    dtypes = a.dtypes.split(",")
    with tempfile.TemporaryDirectory() as tmp:
        folder = os.path.abspath(a.keep) if a.keep else tmp
        os.makedirs(folder, exist_ok=True)
        generate(a, folder, dtypes)
        if a.generate:
            return
        out = report(a, folder, dtypes, known_paths(a.fxc), run_folder(runner(a.runner), folder))
        if a.extract:
            out.extract(a.extract)
        print("\noutside the table\n" + outside(a.fxc))
        sys.exit(1 if out.unexplained else 0)


if __name__ == "__main__":
    main()
