"""Runs Python that `fxc emit-code` writes for graphs with numbers among their inputs: python tests/torch/scalars.py [--fxc target/release/fxc]

Each case is a function of tensors and Python numbers (bools, ints, floats, None by default), traced by torch.fx, with and without
types, with `concrete_args`, or exported with symbolic sizes. The text of the stages `graph` and `optimized`, and the FXIR of
`fxc opt -o`, are called with several values of each input; results must have the type (int, not tensor) and the value that
the function itself gives, and what the function refuses must be refused.

Needs: pip install torch safetensors. Without them it says so and checks nothing.
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.fx
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was run")
    sys.exit(0)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
import torch2fxir
from emit_code import Attributes, namespace

X = torch.arange(8.0).reshape(2, 4) / 4 - 1


def compares(x, flag: bool, n: int, s: float):
    return x * s, flag == True, n < s, n != 3, s >= 2, n == flag  # noqa: E712


def arithmetic(x, n: int, s: float):
    return x + n, n + 3, 3 - n, n * s, n / 2, n // 2, n % 3, n ** 2, -n, +n, abs(n), s * 2, 2 ** s


def bits(x, n: int, m: int):
    return x * (n & m), n | m, n ^ m, n << 1, n >> 1, ~n


def mixed(x, n: int, s: float):
    return x < n, s * x, n - x, x / n, n / x, x ** n, s ** x, torch.where(x > 0, s, x), torch.add(x, n, alpha=2), x // n, x % n


def functions(x, n: int, s: float):
    return (math.sqrt(s), math.floor(s), math.ceil(s), x * math.sqrt(s), torch.sym_max(n, 2), torch.sym_min(n, 2),
            torch.sym_float(n), torch.sym_int(s), torch.sym_not(n == 2), x * torch.sym_max(n, 3))


def sizes(x, n: int):
    rows = x.size(0)
    return x.reshape(rows * 2, -1) + rows, rows * n, x.shape[1] - n, x / x.shape[1], x.numel()


def defaults(x, n: int = 3, s: float = 2.5, flag: bool = False):
    return x * n + s, n + 1, flag == False  # noqa: E712


def chosen(x, flag, n=3):
    return x + n if flag else x - n


torch.fx.wrap("abs")
NUMBERS = dict(n=[3, 2, -5], m=[6, 1], s=[2.5, 2.0, 0.25], flag=[True, False])
CASES = [compares, arithmetic, bits, mixed, functions, sizes, defaults]


class Wrapped(torch.fx.Tracer):
    """Calls of math's functions become nodes."""

    def __init__(self):
        super().__init__(autowrap_modules=(math,))


def traced(function, concrete=None):
    graph = Wrapped().trace(function, concrete)
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def without_types(gm):
    for n in gm.graph.nodes:
        n.type = None
    gm.recompile()
    return gm


class Exported(torch.nn.Module):
    def forward(self, x):
        n = x.shape[0]
        return x.reshape(n * 2, -1) * n + n / 2, n * 3, x.shape[1]


def emitted(fxc, path, stage):
    p = subprocess.run([fxc, "emit-code", path, "--stage", stage], capture_output=True, text=True)
    if p.returncode != 0:
        raise RuntimeError(p.stderr.strip())
    names = namespace()
    exec(compile(p.stdout, path, "exec"), names)
    return lambda *args: names["forward"](Attributes(), *args)


def same(got, want):
    if isinstance(want, (tuple, list)):
        return isinstance(got, (tuple, list)) and len(got) == len(want) and all(map(same, got, want))
    if isinstance(want, torch.Tensor):
        return isinstance(got, torch.Tensor) and got.dtype == want.dtype and torch.allclose(got, want, equal_nan=True)
    return type(got) is type(want) and got == want


def result(f, args):
    """What a call gives, or "refused"."""
    try:
        return f(*args)
    except (RuntimeError, AssertionError, TypeError, ValueError, ZeroDivisionError) as e:
        return "refused", type(e).__name__


def values(gm):
    """Argument lists for a graph: every input takes its first value, then one after the other its others."""
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    lists = [NUMBERS.get(str(n.target).split("_")[0], [X]) for n in inputs]
    first = [v[0] for v in lists]
    yield first
    for i, options in enumerate(lists):
        for v in options[1:]:
            yield [*first[:i], v, *first[i + 1:]]


def check(fxc, title, path, reference, arguments):
    bad = []
    for stage in ("graph", "optimized"):
        try:
            f = emitted(fxc, path, stage)
        except (RuntimeError, SyntaxError) as e:
            bad.append(f"{stage}: {str(e).splitlines()[0]}")
            continue
        for args in arguments:
            got, want = result(f, args), result(reference, args)
            if not same(got, want):
                bad.append(f"{stage}{tuple(a for a in args if not isinstance(a, torch.Tensor))}: {got} instead of {want}")
    print(f"{'FAILED' if bad else 'ok':7} {title}" + "".join(f"\n        {b}"[:300] for b in bad[:4]))
    return not bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fxc", default="target/release/fxc")
    fxc = parser.parse_args().fxc
    passed = []
    with tempfile.TemporaryDirectory() as tmp:
        jobs = [(f.__name__, traced(f)) for f in CASES]
        jobs += [(f"{f.__name__} without types", without_types(traced(f))) for f in CASES]
        jobs += [(f"chosen, flag = {flag}", traced(chosen, {"flag": flag})) for flag in (True, False)]
        jobs += [("chosen, n = 2", traced(lambda x, n, s: x * n + s, {"n": 2}))]
        for i, (title, gm) in enumerate(jobs):
            path = os.path.join(tmp, f"{i}.fxir")
            torch2fxir.write(gm, path)
            again = os.path.join(tmp, f"{i}.opt.fxir")
            arguments = list(values(gm))
            passed.append(check(fxc, title, path, gm, arguments))
            p = subprocess.run([fxc, "opt", path, "-o", again], capture_output=True, text=True)
            if p.returncode == 0:
                passed.append(check(fxc, f"{title}, optimised", again, gm, arguments))
            else:
                print(f"FAILED  {title}: opt\n        {p.stderr.strip()[:300]}")
                passed.append(False)
        path = os.path.join(tmp, "sizes.pt2")
        batch = torch.export.Dim("batch", min=2)
        program = torch.export.export(Exported(), (X,), dynamic_shapes=({0: batch},))
        torch.export.save(program, path)
        reference = program.module()
        passed.append(check(fxc, "exported sizes", path, reference, [[X], [torch.ones(6, 4)]]))
    print(f"{sum(passed)} of {len(passed)}")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
