"""Pointwise ops on bf16 and f16 against PyTorch: python tests/torch/half_precision.py [names] [--fxc BIN] [--values 4096]

Every op runs on random values of all magnitudes and on edge values (NaN, infinities, signed zeros, the smallest, the largest),
interpreted and compiled. Arithmetic (`+`, `div` with a rounding mode, `remainder`, `lerp`, …) must agree bit for bit: torch rounds
what is between its steps to 16 bits, and so must fxc. Functions (`exp`, `tanh`, …) may differ by the last bit, which the f32
result that is rounded decides.

Needs: torch, safetensors. Without them it says so and checks nothing. Exit code 1 if an op differs.
"""
import argparse
import os
import subprocess
import sys
import tempfile

# What is in the user's cache was not compiled now.
os.environ["FXC_CACHE"] = "off"

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as e:
    print(f"SKIPPED: {e}; nothing was compared")
    sys.exit(0)

aten = torch.ops.aten
X, Y, Z = object(), object(), object()
ARGS = {id(X): "%x", id(Y): "%y", id(Z): "%z"}

# Bit for bit.
EXACT = [(f"{n}.default", (X,), {}) for n in (
    "neg abs sign ceil floor trunc round frac square relu sgn signbit isnan isfinite isinf logical_not reciprocal sqrt positive nan_to_num "
    "relu6 hardtanh isposinf isneginf deg2rad rad2deg hardswish hardsigmoid"
).split()] + [
    ("add.Tensor", (X, Y), {}), ("sub.Tensor", (X, Y), {}), ("mul.Tensor", (X, Y), {}), ("div.Tensor", (X, Y), {}),
    ("add.Tensor", (X, Y), {"alpha": 3}), ("sub.Tensor", (X, Y), {"alpha": 0.3}), ("rsub.Tensor", (X, Y), {"alpha": 0.3}),
    ("add.Scalar", (X, 0.3), {}), ("sub.Scalar", (X, 0.3), {}), ("mul.Scalar", (X, 0.3), {}), ("div.Scalar", (X, 0.3), {}),
    ("rsub.Scalar", (X, 0.3), {}), ("rsub.Scalar", (X, 0.3, 0.7), {}), ("add.Scalar", (X, 0.3, 0.7), {}),
    *[("div.Tensor_mode", (X, Y), {"rounding_mode": m}) for m in (None, "trunc", "floor")],
    *[("div.Scalar_mode", (X, v), {"rounding_mode": m}) for m in (None, "trunc", "floor") for v in (0.3, -7, 0)],
    ("floor_divide.default", (X, Y), {}), ("floor_divide.Scalar", (X, 0.3), {}), ("remainder.Tensor", (X, Y), {}), ("remainder.Scalar", (X, 0.3), {}),
    ("remainder.Scalar_Tensor", (0.3, Y), {}), ("fmod.Tensor", (X, Y), {}), ("fmod.Scalar", (X, 0.3), {}),
    ("maximum.default", (X, Y), {}), ("minimum.default", (X, Y), {}), ("fmax.default", (X, Y), {}), ("fmin.default", (X, Y), {}),
    ("lerp.Scalar", (X, Y, 0.3), {}), ("lerp.Scalar", (X, Y, 0.7), {}), ("lerp.Tensor", (X, Y, Z), {}),
    ("addcmul.default", (X, Y, Z), {}), ("addcmul.default", (X, Y, Z), {"value": 0.3}), ("addcdiv.default", (X, Y, Z), {}),
    ("addcdiv.default", (X, Y, Z), {"value": 0.3}), ("clamp.default", (X, -0.3, 0.7), {}), ("clamp.Tensor", (X, Y, Z), {}),
    ("copysign.Tensor", (X, Y), {}), ("heaviside.default", (X, Y), {}), ("nextafter.default", (X, Y), {}),
    ("where.self", ("gt", X, Y), {}), ("threshold.default", (X, 0.3, 0.7), {}), ("leaky_relu.default", (X, 0.3), {}),
    ("round.decimals", (X,), {"decimals": 2}), ("hardshrink.default", (X, 0.3), {}), ("softshrink.default", (X, 0.3), {}),
    ("_prelu_kernel.default", (X, Y), {}), ("ldexp.Tensor", (X, Y), {}), ("eq.Tensor", (X, Y), {}), ("lt.Scalar", (X, 0.3), {}), ("ge.Scalar", (X, 0.3), {}),
    ("pow.Tensor_Scalar", (X, 2), {}), ("pow.Tensor_Scalar", (X, 3), {}), ("pow.Tensor_Scalar", (X, -1), {}), ("pow.Tensor_Scalar", (X, 0.5), {}),
    ("mse_loss.default", (X, Y, 0), {}), ("sub.Tensor", (X, X), {}),
]
# To the last bit.
CLOSE = [(f"{n}.default", (X,), {}) for n in (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh erf erfc erfinv sigmoid rsqrt "
    "gelu silu mish elu selu celu softplus log_sigmoid lgamma digamma i0 sinc logit special_i0e special_i1 special_i1e special_ndtri "
    "special_entr special_erfcx special_log_ndtr"
).split()] + [
    ("gelu.default", (X,), {"approximate": "tanh"}), ("atan2.default", (X, Y), {}), ("hypot.default", (X, Y), {}), ("logaddexp.default", (X, Y), {}),
    ("logaddexp2.default", (X, Y), {}), ("xlogy.Tensor", (X, Y), {}), ("special_xlog1py.default", (X, Y), {}), ("pow.Tensor_Tensor", (X, Y), {}),
    ("pow.Tensor_Scalar", (X, 2.3), {}), ("pow.Scalar", (2.3, Y), {}), ("smooth_l1_loss.default", (X, Y, 0, 0.3), {}), ("huber_loss.default", (X, Y, 0, 0.3), {}),
    ("softplus.default", (X, 2, 5), {}), ("elu.default", (X, 0.3, 0.7, 1.3), {}), ("binary_cross_entropy_with_logits.default", (X, Y, None, None, 0), {}),
    ("soft_margin_loss.default", (X, Y, 0), {}),
]


# Where torch's own kernels are off (docs/language.md, "Where fxc gives other numbers than torch"): op, what may differ.
DEPARTURES = {
    # The sign of zero depends on the place in torch's vector.
    **dict.fromkeys("maximum minimum fmax fmin clamp softshrink".split(), "zero"),
    # NaN of finite operands where a quotient overflows.
    "remainder": "nan", "fmod": "nan", "gelu": "nan tail", "sigmoid": "tail", "erf": "tail three", "logaddexp2": "tail",
    "i0": "inf", "special_i1": "inf",
}


def forgiven(name, got, want):
    """The elements that are fxc's and not torch's."""
    why = DEPARTURES.get(name, "")
    both_zero = (got == 0) & (want == 0)
    ok = torch.zeros(want.shape, dtype=torch.bool)
    if "zero" in why:
        ok |= both_zero
    if "nan" in why:
        ok |= want.isnan() & ~got.isnan()
    if "inf" in why:
        ok |= want.isinf() & (got.abs() > 8e37)
    if "tail" in why:
        ok |= (got.double() - want.double()).abs() < 1e-6
    if "three" in why:
        ok |= (ordered(got) - ordered(want)).abs() <= 3
    return ok


def values(n, dtype, seed):
    g = torch.Generator().manual_seed(seed)
    info = torch.finfo(dtype)
    near = torch.randn(n // 2, generator=g) * 10
    far = torch.randn(n - n // 2, generator=g) * torch.exp2(torch.randint(-12, 13, (n - n // 2,), generator=g).float())
    edge = torch.tensor([0.0, -0.0, float("nan"), float("inf"), -float("inf"), 1.0, -1.0, 0.5, -0.5, 2.5, 1e-3, -1e-3, info.max, info.min, info.tiny, -info.tiny])
    edge = edge if seed == 0 else edge.roll(seed) if seed == 1 else edge.repeat_interleave(16)[:16]
    both = torch.cat([edge.repeat_interleave(16) if seed == 0 else edge.repeat(16), near, far])
    return both.to(dtype)


def fxir(short, cases, n):
    lines = [f"%{v} : {short}[{n}] = placeholder {v}" for v in "xyz"] + ["%gt = call_function torch.ops.aten.gt.Tensor(%x, %y)"]
    for i, (name, args, kwargs) in enumerate(cases):
        parts = ["%gt" if a == "gt" else ARGS.get(id(a), repr(a)) for a in args] + [f"{k}={v!r}" for k, v in kwargs.items()]
        lines.append(f"%r{i} = call_function torch.ops.aten.{name}({', '.join(parts)})")
    return "graph main {\n" + "\n".join(lines) + f"\noutput ({', '.join(f'%r{i}' for i in range(len(cases)))},)\n}}\n"


def ordered(t):
    """16-bit floats as integers in their order: neighbours are one apart."""
    bits = t.view(torch.int16).int()
    return torch.where(bits < 0, -32768 - bits, bits)


def difference(name, got, want, most):
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{list(got.shape)} instead of {want.dtype}{list(want.shape)}", None
    if not want.is_floating_point():
        wrong = got != want
    else:
        nan = want.isnan() | got.isnan()
        apart = (ordered(got) - ordered(want)).abs()
        zeros = (got == 0) & (want == 0) & (most == 0) & (got.signbit() != want.signbit())
        wrong = torch.where(nan, want.isnan() != got.isnan(), (apart > most) & ~((got == 0) & (want == 0))) | zeros
    if want.is_floating_point():
        wrong &= ~forgiven(name, got, want)
    if not wrong.any():
        return "", None
    at = wrong.nonzero()[0].item()
    return f"{int(wrong.sum())} of {wrong.numel()} differ: {got[at].item()} instead of {want[at].item()}", at


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("names", nargs="*")
    ap.add_argument("--fxc", default="target/release/fxc")
    ap.add_argument("--values", type=int, default=4096)
    a = ap.parse_args()
    failed = passed = 0
    with tempfile.TemporaryDirectory() as folder:
        for dtype, short in ((torch.bfloat16, "bf16"), (torch.float16, "f16")):
            x, y, z = (values(a.values, dtype, s) for s in range(3))
            given = {id(X): x, id(Y): y, id(Z): z}
            cases, wants = [], []
            for most, (name, args, kwargs) in [(0, c) for c in EXACT] + [(1, c) for c in CLOSE]:
                if a.names and name.split(".")[0] not in a.names:
                    continue
                packet, overload = name.split(".")
                try:
                    real = [x > y if v == "gt" else given.get(id(v), v) for v in args]
                    wants.append((getattr(getattr(aten, packet), overload)(*real, **kwargs), most))
                    cases.append((name, args, kwargs))
                except (RuntimeError, AttributeError) as e:
                    print(f"{short} {name}: torch: {str(e).splitlines()[0][:90]}")
            save_file({"x": x, "y": y, "z": z}, f"{folder}/in.safetensors")
            for mode, extra in (("interpreted", ["--interpret"]), ("compiled", [])):
                # One file for all; where fxc refuses it, one for each.
                groups = [list(range(len(cases)))]
                while groups:
                    group = groups.pop()
                    with open(f"{folder}/p.fxir", "w") as f:
                        f.write(fxir(short, [cases[i] for i in group], x.numel()))
                    out = f"{folder}/out.safetensors"
                    if os.path.exists(out):
                        os.remove(out)
                    cmd = [a.fxc, "run", f"{folder}/p.fxir", "--inputs", f"{folder}/in.safetensors", "--outputs", out, "--threads", "1"]
                    p = subprocess.run([*cmd, *extra], capture_output=True, text=True)
                    if p.returncode and len(group) > 1:
                        groups += [group[: len(group) // 2], group[len(group) // 2 :]]
                        continue
                    got = {} if p.returncode else load_file(out)
                    for k, i in enumerate(group):
                        name, args, kwargs = cases[i]
                        text = ", ".join([ARGS.get(id(v), str(v)) for v in args] + [f"{k}={v}" for k, v in kwargs.items()])
                        if p.returncode:
                            lines = [s for s in p.stderr.splitlines() if s.startswith(("error", "thread"))]
                            why = lines[0][:100] if lines else "no message"
                        else:
                            why, at = difference(name.split(".")[0], got[f"output.{k}"], *wants[i])
                            why += "" if at is None else f" for x={x[at].item()} y={y[at].item()} z={z[at].item()}"
                        passed, failed = passed + (not why), failed + bool(why)
                        if why:
                            print(f"{short} {mode:11} {name}({text}): {why}", flush=True)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
