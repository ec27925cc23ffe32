#!/usr/bin/env python3
"""Writes pointwise.json: what PyTorch gives for the pointwise and creation ops of fxc's table, over dtypes, special
values, broadcasting, Python numbers and 0-d tensors. Run it in this folder; tests/ops/pointwise.rs compares every row with it."""
import math

import torch
from samples import Cases, floats, ints

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8, B8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool

X = {n: floats(d) for n, d in [("f64", F64), ("f32", F32), ("f16", F16), ("bf16", BF16)]}
X |= {n: ints(d) for n, d in [("i64", I64), ("i32", I32), ("i16", I16), ("i8", I8), ("u8", U8)]}
X["b8"] = torch.tensor([True, False] * 10).reshape(5, 4)
# A second operand that broadcasts, without zeros.
Y = {f"{n}_y": torch.tensor(v).to(t.dtype) for n, t in X.items()
     for v in [[1.5, -2.5, 3.0, 0.3] if t.is_floating_point() else [3, 2, 7, 1]]}
Y["b8_y"] = torch.tensor([True, True, False, False])
Z = {"f64_0": torch.tensor(1.004, dtype=F64), "f32_0": torch.tensor(1.004), "i64_0": torch.tensor(3),
     "f32_nan": torch.tensor([math.nan, 0.0, -0.0, math.inf]), "i32_zero": torch.tensor([1, 0, 2, 3], dtype=I32),
     "i32_shift": torch.tensor([1, -1, 32, 40], dtype=I32), "i32_neg": torch.tensor([2, -1, 0, -3], dtype=I32),
     "mask": torch.tensor([True, False, True, True]), "probability": torch.tensor([0.0, 1.0, 0.5, 0.25, -0.1, 1.2]),
     "b8_0": torch.tensor(True), "square": torch.arange(9.).reshape(3, 3) - 4, "cube": torch.arange(16).reshape(2, 2, 4)}
ALL = X | Y | Z


def finite(t):
    return t.clone().nan_to_num(math.nan, 9.0, -9.0) if t.is_floating_point() else t


c = Cases(ALL)

UNARY = """abs absolute acos arccos acosh arccosh angle asin arcsin asinh atan atanh bitwise_not ceil cos cosh deg2rad
    digamma erf erfc erfinv exp exp2 expm1 fix floor frac i0 isfinite isinf isnan isneginf isposinf isreal lgamma log
    log10 log1p log2 logical_not logit nan_to_num neg negative positive rad2deg reciprocal relu round rsqrt selu sgn
    sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc celu hardshrink""".split()
SPECIAL = "entr erfcx i0e i1 i1e log_ndtr ndtr ndtri expit psi gammaln".split()
FUNCTIONAL = """relu relu6 leaky_relu elu selu celu gelu silu mish softplus softsign softshrink hardshrink hardtanh
    hardsigmoid hardswish tanhshrink logsigmoid rrelu""".split()
KINDS = "f64 f32 f16 bf16 i32 u8 b8".split()

for n in UNARY:
    for k in KINDS:
        # JSON does not keep the sign of NaN.
        c.add(f"torch.{n}", Y[k + "_y"] if n == "signbit" else X[k])
for n in SPECIAL:
    for k in ["f64", "f32", "bf16", "i32"]:
        c.add(f"torch.special.{n}", X[k])
for n in FUNCTIONAL:
    for k in ["f32", "f16", "bf16", "i32", "u8", "b8"]:
        # torch's vectorised gelu gives NaN for inf where the scalar one gives inf, so inf is left out.
        c.add(f"torch.nn.functional.{n}", finite(X[k]) if n == "gelu" else X[k])
for n in "exp sigmoid tanh erf log".split():
    for k in ["i64", "i16", "i8"]:
        c.add(f"aten.{n}.default", X[k])
c.add("operator.neg", X["f32"])
c.add("operator.invert", X["i32"])
c.add("operator.abs", X["i8"])
c.add("Tensor.sin", X["f32"])

BINARY = """add sub mul div floor_divide remainder fmod pow maximum minimum fmax fmin atan2 hypot copysign heaviside
    xlogy logaddexp logaddexp2 gcd lcm ldexp float_power eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and
    bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift rsub true_divide isclose nextafter""".split()
PAIRS = [("f32", "f32_y"), ("f64", "f64_y"), ("bf16", "bf16_y"), ("f16", "f16_y"), ("i32", "i32_y"), ("i64", "i64_y"),
         ("u8", "u8_y"), ("i8", "i8_y"), ("b8", "b8_y"), ("i32", "f32_y"), ("u8", "i8_y"), ("f16", "bf16_y"),
         ("f32_y", "f32_nan"), ("f32_nan", "f32_y"), ("b8", "i32_y"), ("i32", "i32_zero"), ("i32", "i64_0"),
         ("bf16", "f64_0"), ("i32", "f32_0"), ("f32_y", "f64_y")]
NUMBERS = [("f32", 2), ("f32", 0.3), ("bf16", 1.004), ("i32", 3), ("i32", 2.5), ("u8", 300), ("u8", -1), ("b8", True),
           ("b8", 2), ("i32", 0), ("f32", 0), ("f32", True), ("f32", math.nan), ("i8", 7)]
for n in BINARY:
    same_ops = n in ("nextafter", "isclose", "heaviside")
    for a, b in PAIRS:
        # fxc computes f16 in f32, whose neighbours are others.
        if n == "nextafter" and X.get(a, ALL[a]).dtype in (F16, BF16):
            continue
        if same_ops and a == "bf16" and b == "f64_0":
            continue
        c.add(f"torch.{n}", ALL[a], ALL[b])
    if n in ("isclose", "nextafter", "heaviside"):
        continue
    for a, v in NUMBERS:
        c.add(f"torch.{n}", ALL[a], v)
for n in "add sub mul truediv floordiv mod pow and_ or_ xor lshift rshift eq ne lt le gt ge".split():
    for a, b in [("f32", "f32_y"), ("i32", "i32_y"), ("b8", "b8_y")]:
        c.add(f"operator.{n}", ALL[a], ALL[b])
    for v in (2, 2.5, True):
        c.add(f"operator.{n}", ALL["i32"], v)
        c.add(f"operator.{n}", v, ALL["f32_y"])
for n in "xlog1py zeta".split():
    c.add(f"torch.special.{n}", X["f32"], Y["f32_y"])
    c.add(f"torch.special.{n}", X["bf16"], Y["bf16_y"])
    c.add(f"torch.special.{n}", Y["f64_y"].abs() + 1, X["f64"])
for e in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.7, 5, -3):
    for k in ("f32", "f64", "i32", "bf16"):
        c.add("aten.pow.Tensor_Scalar", X[k], e)
for b in (0, 1, 2, -1, 2.5):
    for k in ("f32", "i32", "i32_neg"):
        c.add("aten.pow.Scalar", b, ALL[k])
c.add("torch.pow", X["i32"], Z["i32_neg"])
c.add("torch.pow", X["b8"], Y["b8_y"])
for n in ("bitwise_left_shift", "bitwise_right_shift"):
    c.add(f"torch.{n}", X["i32"], Z["i32_shift"])
    c.add(f"torch.{n}", X["i64"], 64)
    c.add(f"torch.{n}", X["i64"], 63)
    c.add(f"torch.{n}", X["u8"], Y["u8_y"])

for mode in ("floor", "trunc", None, "up"):
    for k in ("f32", "i32", "bf16", "b8", "u8"):
        c.add("torch.div", X[k], Y[k + "_y"], rounding_mode=mode)
        c.add("torch.div", X[k], 3, rounding_mode=mode)
c.add("torch.div", X["i32"], Z["i32_zero"], rounding_mode="trunc")
c.add("torch.div", X["i32"], Z["i32_zero"])
for alpha in (2, 2.5, True, 1.004):
    for k in ("f32", "i32", "bf16", "b8", "u8"):
        for n in ("add", "sub"):
            c.add(f"torch.{n}", X[k], Y[k + "_y"], alpha=alpha)
        c.add("aten.rsub.Scalar", X[k], 2, alpha)

for k in ("f32", "f64", "bf16", "i32", "u8", "b8"):
    x, y = X[k], Y[k + "_y"]
    c.add("torch.clamp", x, 0, 2)
    c.add("torch.clamp", x, 0.5, None)
    c.add("torch.clamp", x, max=1.004)
    c.add("torch.clamp", x, 3, 1)
    c.add("torch.clamp", x, y, None)
    c.add("torch.clamp", x)
    c.add("torch.clamp_min", x, 1)
    c.add("torch.clamp_max", x, y)
    c.add("aten.clamp.default", x, math.nan, None)
    c.add("torch.where", Z["mask"], x, y)
    c.add("torch.where", Z["mask"], x, 2.5)
    c.add("torch.where", Z["mask"], 1, x)
    c.add("torch.where", x, y, y)
    c.add("torch.masked_fill", x, Z["mask"], 2.5)
    c.add("torch.masked_fill", x, Z["mask"], -1)
    c.add("torch.masked_fill", x, Z["mask"], Z["f32_0"])
    c.add("torch.masked_fill", x, Z["mask"], y)
    c.add("torch.masked_fill", x, y, 0)
    c.add("torch.addcmul", x, y, y, value=2)
    c.add("torch.addcmul", x, y, y)
    c.add("torch.addcdiv", x, y, y, value=0.5)
    c.add("torch.lerp", x, y.expand(5, 4), 0.3)
    c.add("torch.lerp", x, y.expand(5, 4), 0.7)
    c.add("torch.threshold", x, 1, 20)
    c.add("torch.nn.functional.hardtanh", x, -2, 2.5)
    c.add("torch.nn.functional.hardtanh", x, 2, 1)
    c.add("torch.nn.functional.leaky_relu", x, 0.2)
    c.add("torch.nn.functional.elu", x, 1.004)
    c.add("torch.nn.functional.celu", x, 1.5)
    c.add("torch.nn.functional.softplus", x, 2, 10)
    c.add("torch.nn.functional.softshrink", x, 0.7)
    c.add("torch.nn.functional.hardshrink", x, 0.7)
    c.add("torch.nn.functional.gelu", x, approximate="tanh")
    c.add("torch.nn.functional.gelu", x, approximate="sigmoid")
    c.add("torch.round", x, decimals=1)
    c.add("torch.round", x, decimals=-1)
    c.add("torch.round", x, decimals=0)
    c.add("torch.nan_to_num", x, 1.5, 3.0, -3.0)
    c.add("torch.polygamma", 1, x)
    c.add("torch.polygamma", 3, x)
    c.add("torch.fill", x, 2.5)
    c.add("torch.full_like", x, 3)
    c.add("torch.zeros_like", x)
    c.add("torch.ones_like", x, dtype=F16)
    c.add("Tensor.new_full", x, [2, 2], 7)
    c.add("Tensor.new_zeros", x, 2, 3)
    c.add("Tensor.new_ones", x, (2,), dtype=I32)
    c.add("torch.prelu", x, y)
c.add("torch.polygamma", -1, X["f32"])
c.add("torch.lerp", X["f32"], Y["f64_y"], 0.5)
c.add("torch.logit", Z["probability"])
c.add("torch.logit", Z["probability"], 0.1)
c.add("torch.logit", Z["probability"].to(BF16))
c.add("torch.special.ndtri", Z["probability"])
c.add("torch.erfinv", Z["probability"].double())
c.add("torch.isclose", Y["f32_y"], Y["f32_y"] + 1e-6)
c.add("torch.isclose", Z["f32_nan"], Z["f32_nan"], equal_nan=True)
c.add("torch.add", X["f32"], Z["square"])
c.add("torch.add", Z["square"], Y["f32_y"])

for k in ("square", "cube", "f32"):
    for n in ("tril", "triu"):
        for d in (0, 1, -1, 5):
            c.add(f"torch.{n}", ALL[k], d)
c.add("torch.tril", Y["f32_y"])
for d in (None, F32, F64, F16, BF16, I64, I32, U8, B8):
    c.add("torch.full", [2, 2], 2.5, dtype=d)
    c.add("torch.full", [2], 3, dtype=d)
    c.add("torch.full", (), True, dtype=d)
    c.add("torch.zeros", 2, 3, dtype=d)
    c.add("torch.ones", (2, 0), dtype=d)
    c.add("torch.arange", 5, dtype=d)
    c.add("torch.arange", 0.5, 3.7, dtype=d)
    c.add("torch.arange", 10, 1, -3, dtype=d)
    c.add("torch.arange", 0, 1, 0.25, dtype=d)
    c.add("torch.linspace", 0, 10, 5, dtype=d)
    c.add("torch.linspace", -1.5, 2, 8, dtype=d)
    c.add("torch.linspace", 3, 4, 1, dtype=d)
    c.add("torch.linspace", 3, 4, 0, dtype=d)
    c.add("torch.logspace", 0, 2, 4, dtype=d)
    c.add("torch.eye", 3, dtype=d)
    c.add("torch.eye", 2, 4, dtype=d)
    c.add("torch.scalar_tensor", 3, dtype=d)
c.add("torch.tensor", 3)
c.add("torch.tensor", 2.5)
c.add("torch.logspace", 0, 3, 4, 2.0)
c.add("torch.arange", 0, 5, -1)
c.add("torch.arange", 0, 5, 0)
c.add("torch.arange", 0)
c.add("torch.linspace", 0, 1, -1)
c.add("torch.eye", -1)
c.add("torch.zeros", -1)
c.add("torch.tril_indices", 3, 4, 1)
c.add("torch.triu_indices", 3, 4, -1)
c.add("torch.triu_indices", 4, 2, 1, dtype=I32)
c.write("pointwise.json")
