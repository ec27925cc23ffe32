"""Random ATen programs through PyTorch and fxc: python tests/torch/random_programs.py [--count 2000] [--first 0] [--fxc BIN]

A seed gives a program of 20 to 60 calls: views of views, writes in place through views, broadcasting, reductions, scans,
indexing, products, conversions; sizes of 0, 1, primes and more; several dtypes; NaN, infinities and signed zeros. PyTorch runs
it eagerly while it is made. fxc runs it compiled and interpreted, from one of four forms: FXIR, `print(graph)`, the text of
make_fx, an archive of torch.export.

Values are *sharp* (multiples of 1/16 below 1024, on which sums and products are exact) or *soft* (all others). Sharp values
must agree bit for bit. Soft ones must agree as far as a program says: it runs again in PyTorch with every soft result moved by
a rounding, and fxc may differ by ten times what that changes. Products of sharp values are sharp where no order of their sums rounds. Calls that jump (comparisons, floor, argmax) read sharp
values alone. A program that fails is shrunk to the calls and the results that it takes, and printed.

Needs: torch, safetensors. Without them it says so and checks nothing. Exit code 1 if a program fails.
"""
import argparse
import collections
import os
import subprocess
import sys
import tempfile
import time
import warnings

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

try:
    import torch
    from programs import SHORT, Program, is_sharp, make, refs
    from safetensors.torch import load_file, save_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
FORMS = ["fxir", "fxir", "graph", "fxir", "makefx", "fxir", "graph", "fxir", "makefx", "export"]


# ------------------------------------------------------------------------------------------------ comparing
def wanted(p, names):
    """PyTorch's results and changed inputs, and how far each may be missed (None: bit for bit)."""
    inputs = [t.clone() for t in p.inputs]
    env = p.run(inputs)
    others = []
    for k in range(3):
        moved = [t.clone() for t in p.inputs]
        others.append((p.run(moved, torch.Generator().manual_seed(k)), moved))
    out = {}

    def note(name, t, twins, soft):
        t = t.detach().clone().contiguous()
        spread = None
        if t.is_floating_point():
            x = t.double()
            diffs = [(u.detach().double() - x).nan_to_num(0, 0, 0).abs().max().item() if t.numel() else 0.0 for u in twins]
            scale = x[x.isfinite()].abs().max().item() if x.isfinite().any() else 0.0
            spread = None if max(diffs) == 0 and is_sharp(t) and not soft else 10 * max(diffs) + 20 * torch.finfo(t.dtype).eps * scale + 4 * torch.finfo(t.dtype).smallest_normal * torch.finfo(t.dtype).eps
        out[name] = (t, spread)

    for k, i in enumerate(p.results):
        note(f"output.{k}", env[i], [e[i] for e, _ in others], i in p.soft)
    for i, (n, now, was) in enumerate(zip(names, inputs, p.inputs)):
        # What the caller has: not the shape that `t_` and its like gave the name.
        callers = lambda t, was=was: t.as_strided(was.shape, was.stride(), 0)  # noqa: E731
        now = callers(now)
        if not torch.equal(bits(now), bits(was)):
            note(f"input.{n}", now, [callers(mv[i]) for _, mv in others], i in p.soft)
    return out


def bits(t):
    return t.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()])


def difference(got, want):
    """What differs first, or nothing."""
    for k, (w, spread) in want.items():
        if k not in got:
            if k.startswith("input."):
                continue
            return f"{k} is missing"
        g = got[k]
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"{k}: {SHORT.get(g.dtype, g.dtype)}{list(g.shape)} instead of {SHORT[w.dtype]}{list(w.shape)}"
        if w.is_floating_point():
            nan = w.isnan()
            if not torch.equal(nan, g.isnan()):
                return f"{k}: other elements are NaN"
            g, w = g[~nan], w[~nan]
        if spread is None:
            wrong = bits(g) != bits(w)
            if wrong.any():
                at = wrong.flatten().nonzero()[0].item()
                return f"{k}: {g.flatten()[at].item()} instead of {w.flatten()[at].item()} ({int(wrong.sum())} of {w.numel()} elements)"
            continue
        same = g == w
        d = (g.double() - w.double())[~same].abs()
        if d.numel() and not (d.max() <= spread):
            return f"{k} differs by {d.max():.2e}, expected at most {spread:.2e}"
    return ""


def check(p, form, fxc, folder, modes):
    """What is wrong with fxc's results, by mode."""
    try:
        file, names = p.write(form, folder)
    except Exception as e:
        return {"torch": f"{type(e).__name__}: {str(e).strip().splitlines()[0][:100] if str(e).strip() else ''}"}
    want = wanted(p, names)
    save_file({n: t.contiguous() for n, t in zip(names, p.inputs)}, f"{folder}/in.safetensors")
    found = {}
    for mode, extra in modes:
        out = f"{folder}/out.safetensors"
        if os.path.exists(out):
            os.remove(out)
        cmd = [fxc, "run", f"{folder}/{file}", "--inputs", f"{folder}/in.safetensors", "--outputs", out, "--threads", "1", *extra]
        try:
            q = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            found[mode] = "takes more than two minutes"
            continue
        if q.returncode:
            lines = [x for x in q.stderr.splitlines() if x.startswith(("error", "thread"))] or q.stderr.splitlines() or ["no message"]
            found[mode] = lines[0][:160]
        elif why := difference(load_file(out), want):
            found[mode] = why
    return found


MODES = [("compiled", ()), ("interpreted", ("--interpret",))]


def without(p, drop):
    """The program without some calls, and without what used them; None if no result is left."""
    gone = set(drop)
    calls = []
    for c in p.calls:
        if c[0] in gone or any(j in gone for j in refs([c[2], c[3]])):
            gone.add(c[0])
        else:
            calls.append(c)
    results = [i for i in p.results if i not in gone]
    return Program(p.inputs, calls, results, p.soft) if results else None


def shrink(p, form, fxc, folder, found):
    """A smaller program that fails in one of the same modes: fewer results, fewer calls, then calls replaced by inputs."""
    mode = next(iter(found))
    modes = [m for m in MODES if m[0] == mode] or MODES
    is_error = found[mode].startswith("error")

    def fails(q):
        try:
            now = check(q, form, fxc, folder, modes)
        except Exception:
            return False
        return mode in now and now[mode].startswith("error") == is_error and (not is_error or now[mode][:11] == found[mode][:11])

    if len(p.results) > 1:
        for i in p.results:
            q = Program(p.inputs, p.calls, [i], p.soft)
            if fails(q):
                p = q
                break
    size = max(len(p.calls) // 2, 1)
    while True:
        smaller = False
        at = len(p.calls)
        while at > 0:
            q = without(p, [c[0] for c in p.calls[max(at - size, 0):at]])
            if q and len(q.calls) < len(p.calls) and fails(q):
                p, smaller = q, True
                at = min(at, len(p.calls))
            else:
                at -= size
        if not smaller and size == 1:
            break
        size = max(size // 2, 1)
    return p


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--count", type=int, default=2000)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--form", choices=sorted(set(FORMS)), help="one form for all")
    ap.add_argument("--no-shrink", action="store_true")
    ap.add_argument("--show", action="store_true", help="print the programs")
    a = ap.parse_args()
    start = time.time()
    counts, ops, failed, skipped = collections.Counter(), collections.Counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(a.first, a.first + a.count):
            p = make(seed)
            form = a.form or FORMS[seed % len(FORMS)]
            if a.show:
                print(p.fxir())
            found = check(p, form, a.fxc, folder, MODES)
            if "torch" in found:
                skipped += 1
                counts[f"{form}: {found['torch'][:70]}"] += 1
                form = "fxir"
                found = check(p, form, a.fxc, folder, MODES)
            counts[form] += 1
            ops.update(str(c[1]) for c in p.calls)
            if found:
                failed += 1
                print(f"seed {seed} ({form}, {len(p.calls)} calls): {found}", flush=True)
                if not a.no_shrink:
                    q = shrink(p, form, a.fxc, folder, found)
                    print(check(q, form, a.fxc, folder, MODES))
                    print(q.fxir(), flush=True)
                    print("inputs:", {f"v{i}": t.tolist() for i, t in enumerate(q.inputs) if t.numel() <= 40 and i in refs([c[2:4] for c in q.calls])})
    print(f"{a.count} programs, seeds {a.first} to {a.first + a.count - 1}, {sum(ops.values())} calls of {len(ops)} ops, {time.time() - start:.0f} s")
    print(", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
    print(f"{failed} failed; {skipped} that torch does not write in their form were written as FXIR")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
