"""Models through `torch.compile(model, backend="fxc")`: python tests/torch/backend.py --models FILE [NAME …]

FILE is a Python module with ORDER (names) and build(name), which gives (model, args, kwargs). Every model is called in eager PyTorch and
compiled, twice; printed are the greatest difference relative to the greatest magnitude of each float result (integers must be
equal), the parts, the ops that torch ran, and the seconds of the first call. With --dynamic all sizes that torch can are symbols. With
--train the models are called with gradients, which are compared one by one. Printed is the gradient that differs most, and in the column
`rounding` how much of that rounding explains in PyTorch itself; up to four times as much passes.

Needs torch and the package fxc. Without them it says so and checks nothing. Exit code 1 if a model differs or fails.
"""
import argparse
import importlib.util
import os
import sys
import time
import warnings

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

warnings.filterwarnings("ignore")
try:
    import fxc
    import torch
    import torch.utils._pytree as pytree
    from fxc.torch_backend import backend
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)


def load(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # what it imports from beside it
    spec = importlib.util.spec_from_file_location("models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def difference(got, want):
    """The greatest difference of two tensors relative to the greatest magnitude; infinite if they are of different kinds."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if not want.dtype.is_floating_point:
        return 0.0 if torch.equal(got, want) else float("inf")
    if not want.numel():
        return 0.0
    scale = want.abs().nan_to_num(posinf=0.0, neginf=0.0).max().item() or 1.0
    same = (got == want) | (got.isnan() & want.isnan())
    return torch.where(same, 0.0, (got - want).abs()).max().item() / scale


def compare(got, want):
    pairs = list(zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True))
    return max((difference(g, w) for g, w in pairs if isinstance(w, torch.Tensor)), default=0.0)


def gradients(model, function, args, kwargs):
    """The gradients of a weighted sum of a call's float tensors. The weights differ: a plain sum of what was normalised is constant."""
    model.requires_grad_(True)  # some modules are built for inference
    model.zero_grad()
    torch.manual_seed(0)
    with torch.enable_grad():
        out = function(*args, **kwargs)
    floats = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.dtype.is_floating_point and t.requires_grad]
    sum((t * torch.arange(t.numel(), dtype=t.dtype).cos().view(t.shape)).mean() for t in floats).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def double_gradients(model, args, kwargs, want):
    """The gradients in double precision, as `want`'s dtypes; `want` if the model has tensors that stay in single precision."""
    widen = lambda t: t.double() if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else t  # noqa: E731
    args, kwargs = pytree.tree_map(widen, (args, kwargs))
    try:
        exact = gradients(model.double(), model, args, kwargs)
    except RuntimeError:
        return want
    return [g.to(w.dtype) for g, w in zip(exact, want, strict=True)]


def check_training(model, args, kwargs, a):
    """As `check`, for gradients.

    Each gradient has a reference in eager PyTorch, and one in PyTorch's own decompositions, which round differently: the sign of a value
    near zero decides whether an activation passes its gradient. The nearer one counts. What rounding explains is how far the gradient
    without oneDNN, or in double precision, is from eager's.
    """
    dynamic = a.dynamic or None
    want = gradients(model, model, args, kwargs)
    decomposed = gradients(model, torch.compile(model, backend="aot_eager_decomp_partition", dynamic=dynamic), args, kwargs)
    torch._dynamo.reset()  # and the counts of fxc.stats()
    begin = time.perf_counter()
    got = gradients(model, torch.compile(model, backend=backend, dynamic=dynamic), args, kwargs)
    seconds = time.perf_counter() - begin
    with torch.backends.mkldnn.flags(enabled=False):
        plain = gradients(model, model, args, kwargs)
    exact = double_gradients(model, args, kwargs, want)
    worst = (0.0, 0.0)
    for g, w, d, p, e in zip(got, want, decomposed, plain, exact, strict=True):
        far = min(difference(g, w), difference(g, d))
        noise = max(difference(p, w), difference(e, w))
        worst = max(worst, (far, noise), key=lambda pair: pair[0] / max(a.limit, 4 * pair[1]))
    return worst[0], seconds, worst[1]


def check(model, args, kwargs, a):
    """The difference from eager PyTorch, the seconds of the first call, and the difference that rounding explains."""
    torch._dynamo.reset()
    if a.train:
        return check_training(model, args, kwargs, a)
    compiled = torch.compile(model, backend=backend, dynamic=a.dynamic or None)
    with torch.no_grad():
        torch.manual_seed(0)
        want = model(*args, **kwargs)
        torch.manual_seed(0)
        begin = time.perf_counter()
        first = compiled(*args, **kwargs)
        seconds = time.perf_counter() - begin
        torch.manual_seed(0)
        second = compiled(*args, **kwargs)
    return max(compare(first, want), compare(second, want)), seconds, 0.0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("names", nargs="*")
    ap.add_argument("--models", required=True)
    ap.add_argument("--limit", type=float, default=1e-4)
    ap.add_argument("--dynamic", action="store_true")
    ap.add_argument("--train", action="store_true")
    ap.add_argument("--fxc", help="not used: the package has a compiler of its own")
    a = ap.parse_intermixed_args()
    models = load(a.models)
    wrong = []
    print(f'{"model":34} {"difference":>10} {"parts":>6} {"nodes":>6} {"seconds":>8} {"rounding":>9}  left to torch')
    for name in a.names or models.ORDER:
        try:
            model, args, kwargs = models.build(name)
            far, seconds, noise = check(model, args, kwargs, a)
        except Exception as e:
            wrong.append(name)
            first = next(iter(str(e).strip().splitlines()), "")
            print(f"{name:34} {type(e).__name__}: {first[:150]}", flush=True)
            continue
        s = fxc.stats()
        left = " ".join(f"{op}*{v['nodes']}" for op, v in s["left to torch"].items())
        failed = "; ".join(str(v).splitlines()[0] for v in s["failed parts"].values())
        if far > max(a.limit, 4 * noise) or failed:
            wrong.append(name)
        print(f"{name:34} {far:10.1e} {s['parts']:6} {s['nodes']:6} {seconds:8.1f} {noise:9.1e}  {left} {failed}", flush=True)
    print(f"{len(a.names or models.ORDER) - len(wrong)} as in eager PyTorch, {len(wrong)} not: {' '.join(wrong)}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
