"""Models traced by torch.fx.symbolic_trace, through tools/torch2fxir.py: python tests/torch/traced.py DIR --fxc BIN

DIR holds a module `zoo` with ORDER (names) and build(name), which gives (model, args, kwargs). Every model that traces is
written as FXIR with its weights, checked, and run compiled and interpreted; printed is the greatest difference from
PyTorch relative to the greatest magnitude of each float result (integers must be equal). With --texts nothing is run, but
print(graph), gm.code and print_readable() of the FXIR are compared with torch's, byte for byte.

Needs: torch, numpy, safetensors. Without them it says so and checks nothing.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
try:
    import numpy  # noqa: F401  (safetensors.numpy reads into its arrays)
    import torch
    import torch.utils._pytree as pytree
    from safetensors.numpy import load_file
    from safetensors.torch import save_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../../tools"), HERE]
import torch2fxir  # noqa: E402
from models import difference  # noqa: E402

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"


def export(model, args, kwargs, tmp):
    """Writes model.fxir, its weights, inputs.safetensors; gives the expected results or why there are none."""
    torch.manual_seed(0)
    with torch.no_grad():
        expected = model(*args, **kwargs)
    try:
        gm = torch2fxir.trace(model)
    except Exception as e:
        return None, f"does not trace: {str(e).splitlines()[0][:70]}"
    names = [n.target for n in gm.graph.nodes if n.op == "placeholder"]
    given = dict(zip(names, args)) | kwargs
    inputs = [given[n] if n in given else next(p.args[0] for p in gm.graph.nodes if p.target == n) for n in names]
    torch2fxir.write(gm, f"{tmp}/model.fxir", tuple(inputs))
    forms = {"torch": str(gm.graph), "code": gm.code, "readable": gm.print_readable(print_output=False)}
    for form, text in forms.items():
        with open(f"{tmp}/{form}.txt", "w") as f:
            f.write(text)
    # print_readable() names the class, which FXIR knows by the file's name.
    os.link(f"{tmp}/model.fxir", f"{tmp}/{type(gm).__name__}.fxir")
    save_file({k: v.contiguous().clone() for k, v in given.items() if isinstance(v, torch.Tensor)}, f"{tmp}/in.safetensors")
    flat = [v for v in pytree.tree_leaves(expected) if isinstance(v, torch.Tensor)]
    return {f"output.{i}": v.detach().numpy() for i, v in enumerate(flat)}, None


def run(fxc, tmp, extra):
    out = f"{tmp}/out.safetensors"
    cmd = [fxc, "run", f"{tmp}/model.fxir", "--inputs", f"{tmp}/in.safetensors", "--outputs", out, *extra]
    p = subprocess.run(cmd, capture_output=True, text=True)
    if p.returncode != 0:
        lines = p.stderr.strip().splitlines() or ["no message"]
        return None, "; ".join([s for s in lines if s.startswith(("error", "thread"))][:3] or lines[:1])[:220]
    return load_file(out), None


def texts(fxc, tmp):
    """The forms that differ from torch's, and where."""
    model = next(f for f in os.listdir(tmp) if f.endswith(".fxir") and f != "model.fxir")
    for form in ["torch", "code", "readable"]:
        with open(f"{tmp}/{form}.txt") as f:
            want = f.read().strip("\n").split("\n")
        p = subprocess.run([fxc, "print", "--format", form, f"{tmp}/{model}"], capture_output=True, text=True)
        got = p.stdout.strip("\n").split("\n")
        if p.returncode:
            yield form, p.stderr.strip().splitlines()[0][:150]
        elif got != want:
            pair = next(((a, b) for a, b in zip(got, want) if a != b), (f"{len(got)} lines", f"{len(want)}"))
            yield form, f"{pair[0].strip()[:90]!r} instead of {pair[1].strip()[:90]!r}"


def compare(got, want):
    if set(got) != set(want):
        return None, f"results {sorted(got)} instead of {sorted(want)}"
    return max((difference(got[k], want[k]) for k in want), default=0.0), None


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir")
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--limit", type=float, default=1e-4)
    ap.add_argument("--compiled-only", action="store_true")
    ap.add_argument("--texts", action="store_true")
    a = ap.parse_intermixed_args()
    sys.path.insert(0, a.dir)
    import zoo

    passed = failed = untraced = 0
    print(f'{"model":36} {"compiled":>10} {"interpreted":>12} {"seconds":>8}')
    for name in a.names or zoo.ORDER:
        start = time.time()
        with tempfile.TemporaryDirectory() as tmp:
            try:
                want, why = export(*zoo.build(name), tmp)
            except Exception as e:
                print(f"{name:36} {'-':>10} {'-':>12}           {type(e).__name__}: {str(e)[:150]}", flush=True)
                failed += 1
                continue
            if want is None:
                untraced += 1
                print(f"{name:36} {why}", flush=True)
                continue
            if a.texts:
                wrong = list(texts(a.fxc, tmp))
                passed, failed = passed + 3 - len(wrong), failed + len(wrong)
                for form, why in wrong:
                    print(f"{name:36} {form:10} {why}", flush=True)
                continue
            cells, errors = [], []
            for extra in [[]] if a.compiled_only else [[], ["--interpret"]]:
                got, error = run(a.fxc, tmp, extra)
                diff, error = (None, error) if got is None else compare(got, want)
                cells.append("-" if diff is None else f"{diff:.1e}")
                errors += [error] if error else []
                ok = diff is not None and diff <= a.limit
                passed, failed = passed + ok, failed + (not ok)
            cells += [""] * (2 - len(cells))
            print(f"{name:36} {cells[0]:>10} {cells[1]:>12} {time.time() - start:8.1f}  {'; '.join(errors)}", flush=True)
    print(f"{passed} passed, {failed} failed, {untraced} models do not trace")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
