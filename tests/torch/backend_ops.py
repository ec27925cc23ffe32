"""Every op of PyTorch's own test table through `torch.compile(f, backend="fxc")`: python tests/torch/backend_ops.py [NAME …] [--samples 2]

For each OpInfo, some of its sample inputs (f32, or the dtype that --dtype names) are called in eager PyTorch and compiled. Dtypes, shapes,
strides and values must agree, these within --limit of the greatest magnitude, or in 16
bits as close to f32's as PyTorch's are; with --grad the gradients of the float inputs too. Ops that draw random numbers are compared after
the same seed. Printed are the ops that differ or fail, and how many ran in fxc, in PyTorch or in both.

Needs torch and the package fxc. Without them it says so and checks nothing. Exit code 1 if an op differs.
"""
import argparse
import collections
import copy
import os
import sys
import warnings

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

warnings.filterwarnings("ignore")
try:
    import fxc
    import torch
    import torch.utils._pytree as pytree
    from fxc import _partition
    from fxc.torch_backend import backend
    from torch.testing._internal.common_methods_invocations import op_db
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

# Results that are not determined: the memory's former content, or a choice that PyTorch leaves open.
UNDETERMINED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
# Vectors whose signs are open.
UNDETERMINED |= {"svd", "linalg.svd", "linalg.eig", "linalg.eigh", "pca_lowrank", "svd_lowrank"}
SHORT = ("bfloat16", "float16")
# Their order of equal elements is open, of which 16 bits have many.
TIES = {"sort", "argsort"}


def mismatch(got, want, tolerance):
    """What differs between two results, as text; empty if they agree."""
    pairs = list(zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True))
    for g, w in pairs:
        if not isinstance(w, torch.Tensor):
            if g != w and not (g != g and w != w):
                return f"{g} for {w}"
            continue
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"{g.dtype}{list(g.shape)} for {w.dtype}{list(w.shape)}"
        if w.layout == torch.strided and w.numel() and g.stride() != w.stride() and not is_same_layout(g, w):
            return f"strides {g.stride()} for {w.stride()}"
        far = difference(g, w)
        if far > tolerance:
            return f"differs by {far:.1e} of the greatest magnitude"
    return ""


def difference(got, want):
    """The greatest difference relative to the greatest finite magnitude."""
    got, want = (t.to_dense() if t.layout != torch.strided else t for t in (got, want))
    got, want = (t.to(torch.complex64) if t.dtype == torch.complex32 else t for t in (got, want))
    if not want.numel() or torch.equal(got, want):
        return 0.0
    if not (want.dtype.is_floating_point or want.dtype.is_complex):
        return float("inf")
    same = (got == want) | (got.isnan() & want.isnan())
    scale = torch.where(want.isfinite(), want.abs(), 0.0).max().item() or 1.0
    return torch.where(same, 0.0, (got - want).abs()).nan_to_num(nan=float("inf")).max().item() / scale


def is_same_layout(g, w):
    """Whether two strides differ only in dimensions of one element."""
    return all(a == b or n <= 1 for a, b, n in zip(g.stride(), w.stride(), w.shape))


def call(function, sample, grad):
    """The results of a call on copies of a sample, and the gradients of its float inputs."""
    torch.manual_seed(0)
    tensors = []

    def own(t):
        t = t.detach().clone(memory_format=torch.preserve_format).requires_grad_(grad and t.dtype.is_floating_point)
        tensors.append(t)
        return t

    value, args, kwargs = pytree.tree_map_only(torch.Tensor, own, (sample.input, sample.args, sample.kwargs))
    out = function(value, *args, **kwargs)
    if not grad:
        return out
    floats = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.dtype.is_floating_point and t.requires_grad]
    if floats:
        sum(t.square().sum() for t in floats).backward()
    return out, [t.grad for t in tensors if t.grad is not None]


def is_closer(op, sample, got, want, a):
    """Whether results in 16 bits are at least as close to those of f32 as PyTorch's are."""

    def widen(t):
        return t.float() if t.dtype.is_floating_point else t

    wide = copy.copy(sample)
    wide.input, wide.args, wide.kwargs = pytree.tree_map_only(torch.Tensor, widen, (sample.input, sample.args, sample.kwargs))
    exact = call(op.op, wide, a.grad)
    leaves = zip(*(pytree.tree_leaves(v) for v in (got, want, exact)))
    pairs = [(difference(widen(g), e), difference(widen(w), e)) for g, w, e in leaves if isinstance(e, torch.Tensor)]
    return all(ours <= max(a.limit, theirs) for ours, theirs in pairs)


def check(op, a):
    """What is wrong with an op, and whether fxc compiled something of it."""
    compiled_any = left_any = False
    for i, sample in enumerate(op.sample_inputs("cpu", getattr(torch, a.dtype), requires_grad=False)):
        if i == a.samples:
            break
        try:
            want = call(op.op, sample, a.grad)
        except Exception:
            continue  # eager PyTorch refuses it
        torch._dynamo.reset()
        compiled = torch.compile(lambda *args, **kwargs: op.op(*args, **kwargs), backend=backend, dynamic=a.dynamic or None, options={"warn": False})
        with warnings.catch_warnings():
            got = call(compiled, sample, a.grad)
        stats = fxc.stats()
        compiled_any |= stats["parts"] > 0
        left_any |= bool(stats["left to torch"])
        # E0503: an op of PyTorch's gave another dtype than its declaration says, so that the part runs there.
        failed = [str(why).splitlines()[0] for why in stats["failed parts"].values() if "E0503" not in str(why)]
        if failed:
            return f"sample {i}: {failed[0]}", compiled_any, left_any
        why = mismatch(got, want, a.limit)
        if why and not (a.dtype in SHORT and is_closer(op, sample, got, want, a)):
            return f"sample {i}: {why}", compiled_any, left_any
    return "", compiled_any, left_any


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("names", nargs="*")
    ap.add_argument("--samples", type=int, default=2)
    ap.add_argument("--dtype", default="float32")
    ap.add_argument("--limit", type=float, default=1e-4)
    ap.add_argument("--grad", action="store_true")
    ap.add_argument("--dynamic", action="store_true")
    ap.add_argument("--fxc", help="not used: the package has a compiler of its own")
    a = ap.parse_intermixed_args()
    _partition._FEWEST = 1  # a single op is a part, which otherwise is not worth a call
    tally, wrong = collections.Counter(), []
    for op in op_db:
        full = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if a.names and op.name not in a.names or op.name in UNDETERMINED or a.dtype in SHORT and op.name in TIES or getattr(torch, a.dtype) not in op.dtypes:
            continue
        try:
            why, compiled, left = check(op, a)
        except Exception as e:
            why, compiled, left = f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:200]}", False, False
        tally[("compiled and PyTorch" if left else "compiled") if compiled else "PyTorch"] += 1
        if why:
            wrong.append(full)
            print(f"{full:40} {why}", flush=True)
    print(f"{sum(tally.values()) - len(wrong)} of {sum(tally.values())} ops as in eager PyTorch; {dict(tally)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
