"""Measures the errors of functions of one and two elements: python tests/torch/accuracy.py [FUNCTION …] [--fxc target/release/fxc]

f32: every number (`--step N`: each N-th; `--binades -14,8`: also every number of these binades, for the largest error), beside PyTorch's
errors on the same numbers. The exact values are PyTorch's f64 results, and
MPFR's where an error is largest. f16 and bf16: every number. f64, and functions of two elements: `--count` random numbers of
all sizes. An error is in units of the last place (ULP) of the exact value. Results are kept in tests/data/accuracy.json and
written to the table of docs/accuracy.md; functions that are not named keep theirs. A function of every f32 number takes minutes.

Needs: pip install torch safetensors gmpy2. Without them it says so and checks nothing.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

try:
    import torch
    from exact import error, exact
    from safetensors.torch import load_file, save_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was measured")
    sys.exit(0)

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
DATA = os.path.join(ROOT, "tests", "data", "accuracy.json")
PAGE = os.path.join(ROOT, "docs", "accuracy.md")
ONE = ("exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv sigmoid "
       "erfcx lgamma digamma i0 i0e i1 i1e ndtri").split()
TWO = "pow atan2 hypot".split()
IN_SPECIAL = {"erfcx", "ndtri", "i0e", "i1", "i1e"}
# Digits and least exponents.
FORMATS = {torch.float32: (24, -126), torch.float16: (11, -14), torch.bfloat16: (8, -126), torch.float64: (53, -1022)}
SHORT = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64"}
# The numbers of a call of fxc, and those compared at a time, which stay in cache.
CALL, PIECE = 1 << 23, 1 << 16
# How many of the largest errors of a call are measured again.
CHECKED = 40


def function(name):
    return getattr(torch.special if name in IN_SPECIAL else torch, name)


class Fxc:
    """Runs a function of the program on tensors."""

    def __init__(self, program, name, target):
        self.folder = tempfile.TemporaryDirectory()
        self.program, self.target = program, target
        self.path = f"torch.{'special.' if name in IN_SPECIAL else ''}{name}"

    def __call__(self, *inputs):
        at = lambda file: os.path.join(self.folder.name, file)  # noqa: E731
        names = [f"x{i}" for i in range(len(inputs))]
        heads = [f"    %{n} : {SHORT[t.dtype]}[{t.numel()}] = placeholder {n}\n" for n, t in zip(names, inputs)]
        call = f"    %r = call_function {self.path}({', '.join('%' + n for n in names)})\n    output [%r]\n"
        with open(at("f.fxir"), "w", encoding="utf-8") as f:
            f.write("graph main {\n" + "".join(heads) + call + "}\n")
        save_file(dict(zip(names, inputs)), at("in.safetensors"))
        command = [self.program, "run", at("f.fxir"), "--inputs", at("in.safetensors"), "--outputs", at("out.safetensors"),
                   "--threads", "1", *(["--target", self.target] if self.target else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "not implemented for" in done.stderr:
            raise NotImplementedError(done.stderr)
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return next(iter(load_file(at("out.safetensors")).values()))


def errors(got, want):
    """The errors of a tensor in ULP of f64 numbers."""
    digits, least = FORMATS[got.dtype]
    # Infinity is the next number after the largest, for both.
    limit = 2.0 ** (2 - least) if digits == 24 or digits == 8 else 65536.0
    got, same = got.double().clamp(-limit, limit), got == want.to(got.dtype)
    exponent = ((want.view(torch.int64) >> 52) & 0x7FF).clamp(min=1023 + least)
    scale = ((2046 + digits - 1 - exponent) << 52).view(torch.float64)
    off = (got - want.clamp(-limit, limit)).abs() * scale
    # Equal special values, and results beyond the largest, are exact.
    off.masked_fill_((same & ~want.abs().lt(limit)) | (got.isnan() & want.isnan()), 0)
    return off.nan_to_num_(nan=math.inf, posinf=math.inf)


class Tally:
    """The largest and the mean error of one implementation."""

    def __init__(self, name):
        self.name, self.most, self.at, self.total, self.count = name, 0.0, None, 0.0, 0

    def add(self, inputs, got, off):
        """Adds the errors of some results, and measures the largest again."""
        most = off.max().item()
        self.total += (off if most < math.inf else off[off.isfinite()]).sum().item()
        self.count += off.numel()
        if most <= self.most:
            return
        values, places = off.topk(min(CHECKED, off.numel()))
        digits, least = FORMATS[got.dtype]
        for value, i in zip(values.tolist(), places.tolist()):
            if value <= self.most:
                break
            args = [t[i].double().item() for t in inputs]
            value = error(got[i].double().item(), exact(self.name, *args), digits, least)
            if value > self.most:
                self.most, self.at = value, args

    def row(self):
        return {"max": self.most, "at": self.at, "mean": self.total / max(self.count, 1), "count": self.count}


def measure_narrow(name, fxc, batches):
    """Errors of f32 numbers and shorter ones, of fxc and of PyTorch."""
    ours, theirs = Tally(name), Tally(name)
    f = function(name)
    for inputs in batches:
        got = fxc(*inputs)
        for i in range(0, got.numel(), PIECE):
            part = [t[i:i + PIECE] for t in inputs]
            want = f(*(t.double() for t in part))
            for tally, result in ((ours, got[i:i + PIECE]), (theirs, f(*part))):
                tally.add(part, result, errors(result, want))
    return ours.row(), theirs.row()


def every_number(dtype, step):
    """All numbers of a format, in parts."""
    if dtype != torch.float32:
        yield [torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)]
        return
    for start in range(0, 1 << 32, CALL * step):
        bits = torch.arange(start, min(start + CALL * step, 1 << 32), step)
        yield [bits.to(torch.int32).view(torch.float32)]


def every_number_of(binades):
    """All f32 numbers from 2^binades[0] to 2^binades[1], of both signs, in parts."""
    first, last = ((127 + b) << 23 for b in binades)
    for sign in (0, -1 << 31):
        for start in range(first, last, CALL):
            yield [torch.arange(start + sign, min(start + CALL, last) + sign).to(torch.int32).view(torch.float32)]


def spread(count, dtype, arguments):
    """Random numbers: of all sizes, about 1, within 20, and within 1400."""
    g = torch.Generator().manual_seed(7)
    lists = []
    for _ in range(arguments):
        bits = torch.randint(-(1 << 63), (1 << 63) - 1, (count,), generator=g)
        any_size = bits.view(torch.float64) if dtype == torch.float64 else (bits >> 32).to(torch.int32).view(torch.float32).double()
        unit = torch.rand(count, generator=g, dtype=torch.float64)
        kinds = torch.stack([any_size, unit * 2 - 1, unit * 40 - 20, unit * 1400 - 700, unit * 4])
        lists.append(kinds.gather(0, torch.randint(5, (1, count), generator=g))[0].to(dtype))
    return lists


def measure_wide(name, fxc, count):
    """Errors of f64, of fxc and of PyTorch, from MPFR's values."""
    inputs = spread(count, torch.float64, 2 if name in TWO else 1)
    results = {"fxc": fxc(*inputs), "torch": function(name)(*inputs)}
    totals = {key: [0.0, None, 0.0, 0] for key in results}
    got = {key: t.tolist() for key, t in results.items()}
    for i, args in enumerate(zip(*(t.tolist() for t in inputs))):
        want = exact(name, *args)
        for key, t in totals.items():
            off = error(got[key][i], want, 53, -1022)
            if off > t[0]:
                t[:2] = [off, args]
            if math.isfinite(off):
                t[2] += off
                t[3] += 1
    return [{"max": t[0], "at": t[1], "mean": t[2] / max(t[3], 1), "count": count} for t in totals.values()]


def measure(name, dtype, args):
    fxc = Fxc(args.fxc, name, args.target)
    if dtype == torch.float64:
        return measure_wide(name, fxc, args.count // (20 if name in SLOW else 1))
    if name in TWO:
        batches = [spread(args.count * 10, dtype, 2)]
    elif args.binades:
        batches = every_number_of([int(b) for b in args.binades.split(",")])
    else:
        batches = every_number(dtype, args.step)
    return measure_narrow(name, fxc, batches)


SLOW = {"erfinv", "ndtri", "digamma", "lgamma", "i0", "i0e", "i1", "i1e", "erfcx"}


def number(x):
    return "∞" if math.isinf(x) else f"{x:.3g}" if x >= 1000 else f"{x:.2f}"


def table(kept):
    """The table of the page."""
    lines = ["| function | dtype | arguments | max | mean | PyTorch: max | mean |", "|---|---|---:|---:|---:|---:|---:|"]
    for name in ONE + TWO:
        for dtype in ("f32", "f64", "f16", "bf16"):
            if row := kept.get(f"{name} {dtype}"):
                ours, theirs = row["fxc"], row["torch"]
                count = "all" if ours["count"] in (1 << 32, 1 << 16) else f"{ours['count']:,}"
                cells = [number(t[k]) if k == "max" else f"{t[k]:.3f}" for t in (ours, theirs) for k in ("max", "mean")]
                lines.append(f"| {name} | {dtype} | {count} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(kept):
    with open(DATA, "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(kept.items())) + "\n}\n")
    with open(PAGE, encoding="utf-8") as f:
        text = f.read()
    head, _, rest = text.partition("<!-- measured -->\n")
    _, _, tail = rest.partition("<!-- end -->\n")
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(f"{head}<!-- measured -->\n{table(kept)}\n<!-- end -->\n{tail}")


def keep(kept, key, row, binades):
    """Keeps a row; of one of some binades, the largest errors alone, because the mean is one of all numbers."""
    if binades:
        old = kept[key]
        row = {who: {**old[who], **({"max": r["max"], "at": r["at"]} if r["max"] > old[who]["max"] else {}), "binades": binades}
               for who, r in row.items()}
    kept[key] = row
    write(kept)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("functions", nargs="*", default=ONE + TWO)
    parser.add_argument("--fxc", default=os.path.join(ROOT, "target", "release", "fxc"))
    parser.add_argument("--dtypes", default="f32,f64,f16,bf16")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--binades", default="")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--target", help="as `fxc run --target`; measured, but not kept")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kept = json.load(open(DATA, encoding="utf-8")) if os.path.exists(DATA) else {}
    for dtype in (d for d in FORMATS if SHORT[d] in args.dtypes.split(",")):
        for name in args.functions:
            start = time.monotonic()
            try:
                ours, theirs = measure(name, dtype, args)
            except NotImplementedError:
                # Neither has the function for the dtype.
                continue
            print(f"{name} {SHORT[dtype]}: {ours['max']:.3f} (mean {ours['mean']:.4f}) at {ours['at']}; PyTorch {theirs['max']:.3f} "
                  f"(mean {theirs['mean']:.4f}) at {theirs['at']}; {ours['count']} numbers, {time.monotonic() - start:.0f} s", flush=True)
            if not args.target:
                keep(kept, f"{name} {SHORT[dtype]}", {"fxc": ours, "torch": theirs}, args.binades)


if __name__ == "__main__":
    main()
