# Kernels as Python: each takes its buffers as flat numpy arrays and writes the outputs in place.
# A vector loop's variable is a numpy array of all its values. bf16 buffers are uint16 arrays of bits.
import math
from statistics import NormalDist

import numpy as np

np.seterr(all="ignore")
INDEX_FAULTS = []


def _vec(f, x):
    x = np.asarray(x)
    out = np.array([f(float(v)) for v in x.ravel()], np.float64).reshape(x.shape)
    return out.astype(x.dtype)[()]


def from_bf16(x):
    return (np.asarray(x, np.uint32) << np.uint32(16)).view(np.float32)[()]


def to_bf16(x):
    b = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    r = ((b + np.uint64(0x7FFF) + ((b >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), r)[()]


def to_int(x, dtype):
    # Truncates; NaN, infinities and values out of range become the least i64, or i32 for narrower types.
    wide = np.int64 if dtype == np.int64 else np.int32
    info = np.iinfo(wide)
    t = np.trunc(np.asarray(x, np.float64))
    ok = (t >= float(info.min)) & (t < -float(info.min))
    return np.where(ok, np.where(ok, t, 0.0).astype(wide), wide(info.min)).astype(dtype)[()]


def wrap_int(x, dtype):
    return np.asarray(x).astype(dtype)[()]


def bounded(v, size, mode):
    v = np.asarray(v, np.int64)
    if mode == "wrap":
        v = np.where(v < 0, v + size, v)
    if mode != "clamp":
        if np.any((v < 0) | (v >= size)):
            INDEX_FAULTS.append(size)
            v = np.where((v < 0) | (v >= size), 0, v)
        return v[()]
    return np.clip(v, 0, max(size - 1, 0))[()]


def load_where(buf, index, ok, other):
    index = np.where(ok, index, 0)
    return np.where(ok, buf[index] if buf.size else other, other)[()]


def sign(x):
    return np.where(np.isnan(x), 0, np.sign(x)).astype(np.asarray(x).dtype)[()]


def sigmoid(x):
    one = np.asarray(x).dtype.type(1)
    return one / (one + np.exp(-x))


def maximum(x, y):
    return np.where(np.isnan(x), x, np.where(np.isnan(y), y, np.where(y > x, y, x)))[()]


def minimum(x, y):
    return np.where(np.isnan(x), x, np.where(np.isnan(y), y, np.where(y < x, y, x)))[()]


def shift_left(x, n):
    bits = np.asarray(x).dtype.itemsize * 8
    ok = (n >= 0) & (n < bits)
    return np.where(ok, np.left_shift(x, np.where(ok, n, 0)), 0).astype(np.asarray(x).dtype)[()]


def shift_right(x, n):
    bits = np.asarray(x).dtype.itemsize * 8
    ok = (n >= 0) & (n < bits)
    return np.right_shift(x, np.where(ok, n, bits - 1)).astype(np.asarray(x).dtype)[()]


def trunc_div(x, y):
    d = np.asarray(x).dtype
    if d.kind == "f":
        return np.trunc(x / y)
    y = np.where(np.asarray(y) == 0, 1, y)
    q = np.abs(x) // np.abs(y)
    return np.where((x < 0) != (y < 0), -q, q).astype(d)[()]


def erf(x):
    return _vec(math.erf, x)


def erfc(x):
    return _vec(math.erfc, x)


def _erfcx(x):
    if x < -26:
        return math.inf
    if x < 5:
        return math.exp(x * x) * math.erfc(x)
    r = 0.0
    for k in range(60, 0, -1):
        r = k / 2 / (x + r)
    return 1 / math.sqrt(math.pi) / (x + r)


def erfcx(x):
    return _vec(lambda v: v if math.isnan(v) else _erfcx(v), x)


def _ndtri(p):
    if math.isnan(p) or p < 0 or p > 1:
        return math.nan
    if p in (0, 1):
        return math.inf * (1 if p else -1)
    return NormalDist().inv_cdf(p)


def ndtri(x):
    return _vec(_ndtri, x)


def _erfinv(x):
    if math.isnan(x) or abs(x) > 1:
        return math.nan
    if abs(x) == 1:
        return math.copysign(math.inf, x)
    y = NormalDist().inv_cdf((x + 1) / 2) / math.sqrt(2) if abs(x) > 1e-6 else x * math.sqrt(math.pi) / 2
    for _ in range(2):
        y -= (math.erf(y) - x) / (2 / math.sqrt(math.pi) * math.exp(-y * y))
    return math.copysign(y, x)


def erfinv(x):
    return _vec(_erfinv, x)


def _lgamma(x):
    if math.isnan(x) or math.isinf(x):
        return abs(x)
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def lgamma(x):
    return _vec(_lgamma, x)


def _digamma(x):
    if x == 0:
        return math.copysign(math.inf, -x)
    if math.isnan(x) or x == -math.inf or (x < 0 and x == math.floor(x)):
        return math.nan
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * math.fmod(x, 1))
    r = 0.0
    while x < 10:
        r -= 1 / x
        x += 1
    z = 1 / (x * x) if math.isfinite(x) else 0.0
    return r + math.log(x) - 0.5 / x - z * (1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z / 132))))


def digamma(x):
    return _vec(_digamma, x)


def _bessel(x, order):
    # exp(-|x|) I_order(x): the integral over half a period, by the trapezoidal rule, which converges exponentially.
    n = 400
    s = sum(math.exp(abs(x) * (math.cos(t) - 1)) * math.cos(order * t) for t in (math.pi * (k + 0.5) / n for k in range(n)))
    return s / n if order == 0 else math.copysign(s / n, x)


def i0(x):
    return _vec(lambda v: _bessel(v, 0) * math.exp(abs(v)), x)


def i0e(x):
    return _vec(lambda v: _bessel(v, 0), x)


def i1(x):
    return _vec(lambda v: _bessel(v, 1) * math.exp(abs(v)), x)


def i1e(x):
    return _vec(lambda v: _bessel(v, 1), x)


def _zeta(s, q):
    if s == 1:
        return math.inf
    if s < 1 or math.isnan(s) or math.isnan(q):
        return math.nan
    if q <= 0:
        return math.inf if q == math.floor(q) else (math.nan if s != math.floor(s) else _zeta(s, q + 1) + q**-s)
    n = 12
    r = sum((q + k) ** -s for k in range(n))
    a = q + n
    r += a ** (1 - s) / (s - 1) + 0.5 * a**-s
    f = s * a ** (-s - 1)
    for k, b in enumerate([1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160]):
        r += b * f
        f *= (s + 2 * k + 1) * (s + 2 * k + 2) / (a * a)
    return r


def zeta(s, q):
    s, q = np.broadcast_arrays(s, q)
    out = np.array([_zeta(float(a), float(b)) for a, b in zip(s.ravel(), q.ravel())]).reshape(s.shape)
    return out.astype(s.dtype)[()]


def arg_reduce(values, indices, start, best):
    # Of pairs (value, index): the best value and its index; NaN is best, of equals the smaller index.
    v, i = start
    for a, b in zip(np.ravel(values), np.ravel(indices)):
        if np.isnan(a) and not np.isnan(v) or not np.isnan(v) and best(a, v) or (a == v or np.isnan(a) and np.isnan(v)) and b < i:
            v, i = a, b
    return v, i
