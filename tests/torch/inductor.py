"""Runs PyTorch's own tests of Inductor with fxc in Inductor's place: python tests/torch/inductor.py FILE [--dynamic]

FILE is `test/inductor/test_torchinductor.py` of PyTorch's repository, which is not part of this one; any version near the
installed PyTorch does (tests that use names which PyTorch lacks are skipped). `torch.compile` captures each test's function with
Dynamo and AOTAutograd as always. The graphs that Inductor would compile are written as FXIR by tools/torch2fxir.py and run by
`fxc run`, and the test itself compares the results with eager PyTorch's.

Inputs that lie in another order than their dims are given in that order, and permuted in the graph; results that share memory in
torch are put into one memory. Where torch refuses a graph in fxc's words, its error is raised. A test whose tolerance
is less than what f32 rounds to passes if every result is as near to f64's as torch's own.

A test that fails is run again with torch's own interpreter in fxc's place. If it fails there too, the cause is not fxc: it looks
at the code that Inductor generates, or counts its kernels ("needs Inductor itself"). The other failures are counted by what fxc
reports: its code and the op or type it names. A graph that fxc refuses, or runs to other values, always counts.

`--package` tests the package fxc in this process instead, with the backend that `torch.compile(model, backend="fxc")` uses; what it leaves
to PyTorch runs there, and is counted.

`--dynamic` makes all sizes symbolic; `--level core` decomposes to core ATen instead of what Inductor decomposes to, and `--level aten`
not at all; `--only REGEX` selects tests; `--keep DIR` keeps the FXIR of graphs that failed, in files named after the test.
Exit code 1 if a test fails for a reason of fxc's. Needs torch, expecttest and safetensors; with `--package` the package fxc.
"""
import argparse
import ast
import collections
import contextlib
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
import types
import unittest
import warnings

warnings.filterwarnings("ignore")
try:
    import expecttest  # noqa: F401  (torch's test classes need it)
    import sympy
    import torch
    from safetensors.torch import load_file, save_file
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._subclasses.fake_tensor import unset_fake_temporarily
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was checked")
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
import torch2fxir  # noqa: E402

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"


class Refused(RuntimeError):
    """fxc reported an error, or a graph has no FXIR. Its text is the cause."""


class Shim:
    """A backend of `torch.compile`: runs graphs by fxc, or by torch's interpreter where `control` is set."""

    def __init__(self, fxc, level, keep):
        self.fxc, self.level, self.keep = fxc, level, keep
        self.control, self.test, self.graphs, self.refused, self.precise = False, "", 0, [], None

    def __call__(self, gm, inputs, **_):
        backward = self.compile if self.level != "aten" else None
        compiler = aot_autograd(fw_compiler=self.compile, bw_compiler=backward, inference_compiler=self.compile,
                                decompositions=decompositions(self.level))
        return compiler(gm, inputs)

    def compile(self, gm, inputs):
        if self.control:
            return make_boxed_func(torch.fx.Interpreter(gm).run)
        self.graphs += 1
        return make_boxed_func(Compiled(self, gm, f"{self.test}.{self.graphs}").run)

    def refuse(self, cause, detail=""):
        self.refused.append((cause, detail))
        raise Refused(f"{cause}\n{detail}")


def decompositions(level):
    if level == "inductor":
        from torch._inductor.decomposition import select_decomp_table
        return select_decomp_table()
    if level == "core":
        from torch._decomp import core_aten_decompositions
        return core_aten_decompositions()
    return {}


def is_precise(gm, args, results):
    """Whether f32 results are as near as torch's to those that torch computes in f64."""
    wide = lambda v: v.double() if isinstance(v, torch.Tensor) and v.dtype == torch.float32 else v  # noqa: E731
    run = lambda values: torch.fx.Interpreter(gm).run(*values)  # noqa: E731
    try:
        exact, torchs = run([wide(v) for v in args]), run(args)
    except Exception:
        return False
    far = lambda v, e: (v.double() - e).abs().max().item() if v.numel() else 0.0  # noqa: E731
    pairs = [(r, t, e) for r, t, e in zip(results, torchs, exact) if isinstance(e, torch.Tensor) and r.dtype == torch.float32]
    return bool(pairs) and all(e.dtype == torch.float64 and far(r, e) <= 1.5 * far(t, e) for r, t, e in pairs)


class Package:
    """The backend of the package fxc, in this process, or torch's interpreter where `control` is set."""

    def __init__(self):
        import fxc
        from fxc import torch_backend

        self.stats, self.backend, self.compile_graph = fxc.stats, torch_backend.backend, torch_backend.compile_graph
        torch_backend.compile_graph = self.compile
        self.control, self.test, self.graphs, self.refused, self.precise = False, "", 0, [], None
        self.ran = collections.Counter()

    def __call__(self, gm, inputs, **_):
        if not self.control:
            return self.backend(gm, inputs)
        interpret = lambda gm, inputs: make_boxed_func(torch.fx.Interpreter(gm).run)  # noqa: E731
        return aot_autograd(fw_compiler=interpret)(gm, inputs)

    def compile(self, settings, name, kind, gm, inputs, **options):
        """Compiles a graph of ATen ops, and counts it by where its ops run."""
        self.graphs += 1
        copied = torch.fx.Graph()  # the partition changes the graph
        copied.output(copied.graph_copy(gm.graph, {}))
        original = torch.fx.GraphModule(gm, copied)
        before = self.stats()
        run = self.compile_graph(settings, name, kind, gm, inputs, **options)
        after = self.stats()
        left = sum(op["nodes"] for op in after["left to torch"].values()) > sum(op["nodes"] for op in before["left to torch"].values())
        compiled = after["parts"] > before["parts"]
        self.ran["in both" if left and compiled else "in PyTorch" if left else "in fxc"] += 1

        def checked(args):
            given = list(args)
            results = run(args)
            if self.precise is not None:
                self.precise.append(is_precise(original, given, results))
            return results

        checked._boxed_call = True
        return checked


class Compiled:
    """One graph as a file of FXIR, which each call runs."""

    def __init__(self, shim, gm, name):
        self.shim, self.gm, self.name = shim, gm, name
        self.dir = tempfile.TemporaryDirectory()
        self.file = os.path.join(self.dir.name, "graph.fxir")
        self.parameters = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.orders = {n.target: order for n in self.parameters if (order := memory_order(n.meta.get("val")))}
        output = next(n for n in gm.graph.nodes if n.op == "output")
        self.results = list(output.args[0])
        try:
            with unset_fake_temporarily():  # constants of the graph are real tensors
                torch2fxir.write(in_memory_order(gm, self.orders), self.file)
        except torch2fxir.Unsupported as e:
            self.kept()
            shim.refuse(f"torch2fxir: {str(e).split(': ', 1)[-1][:90]}", str(e))

    def run(self, *args):
        out = os.path.join(self.dir.name, "out.safetensors")
        given, values = {}, []
        for p, v in zip(self.parameters, args):
            if isinstance(v, torch.Tensor):
                if v.dtype.is_complex:
                    self.shim.refuse("complex dtypes", str(v.dtype))
                copied = v.detach().to(memory_format=torch.contiguous_format, copy=True).resolve_neg()
                given[p.target] = copied.permute(self.orders[p.target]) if p.target in self.orders else copied
            elif isinstance(v, (bool, int, float, torch.SymInt, torch.SymFloat)):
                values.append(f"{p.target}={plain(v)!r}")
        file = os.path.join(self.dir.name, "in.safetensors")
        save_file({k: t.contiguous() for k, t in given.items()}, file)
        command = [self.shim.fxc, "run", self.file, "--inputs", file, "--outputs", out, "--seed", str(self.seed()),
                   "--message-format=json", *values]
        try:
            p = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            self.kept()
            self.shim.refuse("no result within 300 s")
        if p.returncode:
            self.kept()
            why, detail = cause(p.stderr, p.returncode)
            self.raise_torchs(args, detail)
            self.shim.refuse(why, detail)
        results = self.given_back(load_file(out), p.stdout, self.symbols(args))
        if self.shim.precise is not None:
            self.shim.precise.append(is_precise(self.gm, args, results))
        return results

    def raise_torchs(self, args, report):
        """Raises torch's error where torch refuses the graph in the same words as fxc."""
        try:
            torch.fx.Interpreter(self.gm).run(*args)
        except Exception as e:
            titles = re.findall(r'"message":"((?:[^"\\]|\\.)*)"', report)
            if any(json.loads(f'"{t}"') in str(e) for t in titles):
                raise (e.__cause__ or e) from None

    def seed(self):
        """What fxc's stream starts from: torch's seed if nothing was drawn since, else a number that is drawn."""
        if not any(torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in self.gm.graph.nodes):
            return 0
        fresh = torch.equal(torch.Generator().manual_seed(torch.initial_seed()).get_state(), torch.get_rng_state())
        drawn = int(torch.randint(1 << 31, ()))
        return torch.initial_seed() if fresh else drawn

    def symbols(self, args):
        """The values of the symbolic sizes."""
        found = {}
        for p, v in zip(self.parameters, args):
            like = p.meta.get("val")
            if isinstance(v, torch.Tensor) and isinstance(like, torch.Tensor):
                pairs = zip(like.shape, v.shape)
            else:
                pairs = [(like, v)]
            found.update((s.node.expr, sympy.Integer(int(n))) for s, n in pairs if isinstance(s, torch.SymInt) and s.node.expr.is_Symbol)
        return found

    def given_back(self, tensors, shown, symbols):
        """The results as torch expects them: tensors with their strides, numbers, and None."""
        numbers = iter(re.findall(r"^\s.*?\b(?:int|float|bool) +(\S+)$", shown, re.M))
        arrays = iter(sorted(tensors.items(), key=lambda t: int(t[0].split(".")[1])) if tensors else [])
        out, shared = [], collections.defaultdict(list)
        for r in self.results:
            value = r.meta.get("val") if isinstance(r, torch.fx.Node) else r
            if isinstance(value, torch.Tensor):
                out.append(restrided(next(arrays)[1], value, symbols))
                shared[value.untyped_storage()._cdata].append((len(out) - 1, value))
            elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) or isinstance(value, (bool, int, float)):
                out.append(number(next(numbers), value))
            else:
                out.append(None)
        for same in shared.values():
            share(out, same, symbols)
        return out

    def kept(self):
        if self.shim.keep:
            os.makedirs(self.shim.keep, exist_ok=True)
            for f in os.listdir(self.dir.name):
                with open(os.path.join(self.dir.name, f), "rb") as source:
                    content = source.read()
                with open(os.path.join(self.shim.keep, f"{self.name}.{f}"), "wb") as target:
                    target.write(content.replace(b'weights "graph.', f'weights "{self.name}.graph.'.encode()))


def plain(v):
    if isinstance(v, torch.SymInt):
        return int(v)
    return float(v) if isinstance(v, torch.SymFloat) else v


def number(text, like):
    if isinstance(like, (bool, torch.SymBool)):
        return text == "true"
    return float(text) if isinstance(like, (float, torch.SymFloat)) else int(text)


def restrided(t, like, symbols):
    """`t` with the strides and the offset in memory of the example `like`: torch makes views of inputs by these."""
    stride, offset = [known(s, symbols) for s in like.stride()], known(like.storage_offset(), symbols)
    wanted = None not in stride and offset is not None and (list(t.stride()) != stride or offset)
    if not wanted or t.numel() == 0:
        return t
    own = [1 if s == 0 else n for s, n in zip(stride, t.shape)]  # what an expanded tensor has elements for
    last = offset + sum((n - 1) * s for n, s in zip(own, stride))
    made = torch.empty(last + 1, dtype=t.dtype).as_strided(own, stride, offset)
    try:
        return made.copy_(t[tuple(slice(n) for n in own)]).expand(t.shape)
    except RuntimeError:  # elements of the example share memory
        return t


def share(out, same, symbols):
    """Puts results that torch gives as views of one memory into one memory."""
    if len(same) < 2 or len({out[i].dtype for i, _ in same}) > 1:
        return
    places = [(i, [known(n, symbols) for n in (*like.stride(), like.storage_offset())]) for i, like in same]
    if any(None in place or 0 in place[:-1] for _, place in places):
        return
    filled = [(i, place) for i, place in places if out[i].numel()]
    if not filled:
        return
    last = max(place[-1] + sum((n - 1) * s for n, s in zip(out[i].shape, place)) for i, place in filled)
    memory = torch.empty(last + 1, dtype=out[same[0][0]].dtype)
    for i, (*stride, offset) in places:
        view = memory.as_strided(out[i].shape, stride, offset)
        out[i] = view.copy_(out[i])


def memory_order(like):
    """The dims of a tensor from the outermost in memory on, where that has no gaps and is not their own order. Symbolic sizes count
    as in the example: torch makes another graph for another order."""
    hint = lambda n: n if isinstance(n, int) else getattr(n.node, "hint", None)  # noqa: E731
    if not isinstance(like, torch.Tensor):
        return None
    shape, stride = [hint(n) for n in like.shape], [hint(s) for s in like.stride()]
    if None in shape or None in stride or 0 in shape:
        return None
    dense = lambda order: all(  # noqa: E731
        shape[d] == 1 or stride[d] == math.prod(shape[e] for e in order[i + 1:]) for i, d in enumerate(order))
    order = sorted(range(len(shape)), key=lambda d: (-stride[d], d))
    return order if dense(order) and not dense(sorted(order)) else None


def in_memory_order(gm, orders):
    """The graph with inputs as they lie in memory, which are permuted to what they were."""
    if not orders:
        return gm
    copied = torch.fx.Graph()
    names = {}
    copied.output(copied.graph_copy(gm.graph, names))
    for old in [n for n in gm.graph.nodes if n.op == "placeholder" and n.target in orders]:
        n, order = names[old], orders[old.target]
        n.meta = dict(old.meta, val=old.meta["val"].permute(order))
        with copied.inserting_before(next(m for m in copied.nodes if m.op != "placeholder")):
            back = copied.call_function(torch.ops.aten.permute.default, (n, [order.index(d) for d in range(len(order))]))
        n.replace_all_uses_with(back, delete_user_cb=lambda u, back=back: u is not back)
        back.meta["val"] = old.meta["val"]
    return torch.fx.GraphModule(gm, copied)


def known(size, symbols):
    if isinstance(size, int):
        return size
    value = size.node.expr.xreplace(symbols)
    return int(value) if value.is_Integer else None


# Namespaces of torch's own ops.
OWN = {"aten", "prims", "higher_order", "quantized", "quantized_decomposed", "inductor", "torchvision", "_c10d_functional"}


def cause(stderr, status):
    """What fxc reports, as a class: its code and what it names."""
    for line in stderr.splitlines():
        try:
            d = json.loads(line)
        except ValueError:
            continue
        if d.get("severity", d.get("level")) == "error":
            code, title = d.get("code", "E?"), d.get("message", d.get("title", ""))
            code = code.get("code") if isinstance(code, dict) else code
            if re.search(r"c(?:64|128|omplex\d*)\b", title) or "fxc does not support it: complex numbers" in stderr:
                return "complex dtypes", title
            if "higher_order.auto_functionalized" in title or "triton_kernel_wrapper" in title:
                return "a custom op", stderr[:2000]
            unknown = re.match(r"unknown op: `torch\.ops\.(\w+)\.(\w+)", title)
            if unknown and "backward" in unknown[2]:
                return "a backward op", stderr[:2000]
            if unknown and unknown[1] not in OWN:
                return "a custom op", stderr[:2000]
            return f"{code} {re.sub(r'%[A-Za-z0-9_]+', '%…', title)[:100]}", stderr[:2000]
    return f"fxc ended with {status}: {stderr.strip()[:100]}", stderr[:2000]


# --- the test file ----------------------------------------------------------------------------------------------------

def load(path, shim):
    """The test file as a module, with the shim as Inductor's compiler."""
    import torch._inductor.compile_fx as inductor

    inductor.compile_fx = shim
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read(), path)
    for statements in [n.body for n in ast.walk(tree) if isinstance(getattr(n, "body", None), list)]:
        statements[:] = [kept for s in statements for kept in present(s)]
    module = types.ModuleType("test_torchinductor")
    module.__file__ = path
    module.absent = absent
    sys.modules[module.__name__] = module
    exec(compile(ast.fix_missing_locations(tree), path, "exec"), module.__dict__)
    return module


def absent(name):
    """What stands for a name that this PyTorch does not have. As a decorator it skips the test."""
    def call(*args, **_):
        if len(args) == 1 and isinstance(args[0], (types.FunctionType, type)):
            return unittest.skip(f"this PyTorch has no {name}")(args[0])
        if args or name.startswith(("skip", "requires", "xfail", "expected")):
            return call
        raise unittest.SkipTest(f"this PyTorch has no {name}")

    return call


def present(statement):
    """An import without the names that this PyTorch does not have; `absent` stands for these."""
    if not isinstance(statement, ast.ImportFrom) or statement.level or not (statement.module or "").startswith("torch"):
        return [statement]
    try:
        source = importlib.import_module(statement.module)
        missing = [a for a in statement.names if a.name != "*" and not hasattr(source, a.name) and not importable(statement.module, a.name)]
    except ImportError:
        missing = statement.names
    left = [a for a in statement.names if a not in missing]
    absent = [ast.parse(f"{a.asname or a.name} = absent({a.name!r})").body[0] for a in missing]
    return absent + ([ast.ImportFrom(statement.module, left, 0)] if left else [])


def importable(package, name):
    try:
        importlib.import_module(f"{package}.{name}")
        return True
    except ImportError:
        return False


def tests_of(module):
    """The tests of the file's template, on the CPU."""
    class Tests(module.TestCase):
        common = module.check_model
        device = "cpu"

    module.copy_tests(module.CommonTemplate, Tests, "cpu")
    return Tests, sorted(n for n in dir(Tests) if n.startswith("test_"))


def attempt(tests, name):
    """(verdict, text) of one test: "passed", "skipped" or "failed" with the traceback's end."""
    result = unittest.TestResult()
    torch._dynamo.reset()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        unittest.TestSuite([tests(name)]).run(result)
    torch._dynamo.reset()
    if result.skipped or result.expectedFailures:
        return "skipped", ""
    failed = result.failures + result.errors
    return ("failed", failed[0][1]) if failed else ("passed", "")


def judged(shim, tests, name):
    """(verdict, cause, detail) of one test with fxc, and with torch's interpreter where that tells why it fails."""
    shim.control, shim.test, shim.graphs, shim.refused = False, name, 0, []
    verdict, text = attempt(tests, name)
    if verdict != "failed":
        return verdict, "" if verdict == "skipped" or shim.graphs else "no graph", ""
    if shim.refused:
        return "failed", *shim.refused[0]
    shim.control = True
    if attempt(tests, name)[0] == "failed":
        return "failed", INDUCTOR, text
    shim.control, shim.precise = False, []
    attempt(tests, name)
    precise, shim.precise = shim.precise, None
    if "not close" in text and precise and all(precise):
        return "passed", "rounds otherwise than eager torch, and as near to f64", text
    last = text.strip().splitlines()
    said = next((s for s in reversed(last) if re.match(r"[\w.]+(Error|Exception)\b", s)), last[-1] if last else "")
    return "failed", f"other: {said[:100]}", text


INDUCTOR = "needs Inductor itself (fails with torch's interpreter, too)"


@contextlib.contextmanager
def sizes(dynamic):
    if not dynamic:
        yield
        return
    with torch._dynamo.config.patch(assume_static_by_default=False, dynamic_shapes=True):
        yield


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("file", help="test/inductor/test_torchinductor.py of PyTorch")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--package", action="store_true", help="test the backend of the package fxc, in this process")
    ap.add_argument("--dynamic", action="store_true", help="all sizes are symbolic")
    ap.add_argument("--level", choices=["inductor", "core", "aten"], default="inductor", help="how far graphs are decomposed")
    ap.add_argument("--only", default="", help="a regular expression that names of tests match")
    ap.add_argument("--keep", help="keep graphs that fail in this folder")
    ap.add_argument("--log", help="write a line of JSON for each test to this file")
    a = ap.parse_args()
    torch.set_num_threads(1)
    shim = Package() if a.package else Shim(os.path.abspath(a.fxc), a.level, a.keep)
    tests, names = tests_of(load(a.file, shim))
    causes, count = collections.defaultdict(list), collections.Counter()
    log = open(a.log, "w") if a.log else None
    with sizes(a.dynamic):
        tests.setUpClass()
        for name in [n for n in names if re.search(a.only, n)]:
            start = time.time()
            verdict, why, detail = judged(shim, tests, name)
            count[verdict] += 1
            if why:
                causes[verdict, why].append(name)
            if log:
                print(json.dumps([name, verdict, why, detail[-3000:], round(time.time() - start, 2)]), file=log, flush=True)
    for (verdict, why), which in sorted(causes.items(), key=lambda c: (c[0][0], -len(c[1]))):
        print(f"{len(which):4} {verdict}: {why}\n       {' '.join(n.removeprefix('test_').removesuffix('_cpu') for n in which)[:300]}")
    ran = count["passed"] + count["failed"]
    ours = sum(len(v) for (verdict, why), v in causes.items() if verdict == "failed" and why != INDUCTOR)
    if a.package:
        print("graphs", ", ".join(f"{where}: {n}" for where, n in shim.ran.most_common()))
    print(f"{count['passed']} of {ran} passed, {count['skipped']} skipped; {ours} failures are fxc's")
    sys.exit(1 if ours else 0)


if __name__ == "__main__":
    main()
