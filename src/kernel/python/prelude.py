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


def fmax(x, y):
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.where(y > x, y, x)))[()]


def fmin(x, y):
    return np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.where(y < x, y, x)))[()]


def modulo(x, y):
    m = np.fmod(x, y)
    return np.where((m != 0) & ((y < 0) != (m < 0)), m + y, m)[()]


def floor_div(x, y):
    m = np.fmod(x, y)
    q = (x - m) / y
    q = np.where((m != 0) & ((y < 0) != (m < 0)), q - 1, q)
    floor = np.floor(q)
    floor = np.where(q - floor > 0.5, floor + 1, floor)
    floor = np.where(q == 0, np.copysign(0, x / y), floor)
    return np.where(y == 0, x / y, floor).astype(np.asarray(x).dtype)[()]


def pow_int(x, y):
    # A negative exponent gives 0 unless the base is 1 or -1.
    p = np.power(x, np.maximum(y, 0))
    unit = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2 == 0, 1, -1), 0))
    return np.where(y < 0, unit, p).astype(np.asarray(x).dtype)[()]


def gcd(x, y):
    # The lowest integer is its own magnitude, which gives torch's signs.
    x, y = np.broadcast_arrays(np.abs(x), np.abs(y))
    while np.any(x != 0):
        more = x != 0
        x, y = np.where(more, np.fmod(y, np.where(more, x, 1)), 0), np.where(more, x, y)
    return y[()]


def shift_left(x, n):
    bits = np.asarray(x).dtype.itemsize * 8
    ok = (n >= 0) & (n < bits)
    return np.where(ok, np.left_shift(x, np.where(ok, n, 0)), 0).astype(np.asarray(x).dtype)[()]


def shift_right(x, n):
    bits = np.asarray(x).dtype.itemsize * 8
    ok = (n >= 0) & (n < bits)
    rest = np.where(x < 0, -1, 0)
    return np.where(ok, np.right_shift(x, np.where(ok, n, 0)), rest).astype(np.asarray(x).dtype)[()]


def trunc_div(x, y):
    d = np.asarray(x).dtype
    if d.kind == "f":
        return np.trunc(x / y)
    y = np.where(np.asarray(y) == 0, 1, y)
    up = (x % y != 0) & ((x < 0) != (y < 0))
    return (x // y + up).astype(d)[()]


def erf(x):
    return _vec(math.erf, x)


def erfc(x):
    return _vec(math.erfc, x)


def _exp(x):
    return float(np.exp(x))


def _erfcx(x):
    if x < -26:
        return math.inf
    if x < 5:
        return _exp(x * x) * math.erfc(x)
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
    if abs(x) < 1e-6:
        return x * math.sqrt(math.pi) / 2
    p = (1 - abs(x)) / 2
    y = -NormalDist().inv_cdf(p) / math.sqrt(2)
    for _ in range(2):
        y -= (2 * p - math.erfc(y)) / (2 / math.sqrt(math.pi) * math.exp(-y * y))
    return math.copysign(y, x)


def erfinv(x):
    return _vec(_erfinv, x)


def _lgamma(x):
    if math.isnan(x) or math.isinf(x):
        return abs(x)
    if x > 2.5e305 or x <= 0 and x == math.floor(x):
        return math.inf
    return math.lgamma(x)


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


def _bessel(x, order, scaled):
    # exp(-|x|) I_order(x): the integral over half a period by the trapezoidal rule, whose error falls exponentially; from 1000 on
    # the asymptotic series. The last factor, if wanted, in two steps that do not overflow before the product does.
    if math.isnan(x):
        return x
    a, n = abs(x), 400
    if math.isinf(a):
        s = 0.0 if scaled else math.nan
    elif a < 1000:
        points = [math.pi * (k + 0.5) / n for k in range(n)]
        s = sum(math.exp(-2 * a * math.sin(t / 2) ** 2) * math.cos(order * t) for t in points) / n
    else:
        s, term = 1.0, 1.0
        for k in range(1, 12):
            term *= -(4 * order - (2 * k - 1) ** 2) / (8 * a * k)
            s += term
        s /= math.sqrt(2 * math.pi * a)
    if order == 1:
        s = math.copysign((a + a**3 / 8) / 2 * math.exp(-a) if a < 1e-3 else s, x)
    return s if scaled or math.isinf(a) else _exp(a / 2) * s * _exp(a / 2)


def bessel_i0(x):
    return _vec(lambda v: _bessel(v, 0, False), x)


def bessel_i0e(x):
    return _vec(lambda v: _bessel(v, 0, True), x)


def bessel_i1(x):
    return _vec(lambda v: _bessel(v, 1, False), x)


def bessel_i1e(x):
    return _vec(lambda v: _bessel(v, 1, True), x)


def _zeta(x, q):
    # The Hurwitz zeta function by Euler-Maclaurin summation.
    if x == 1:
        return math.inf
    if x < 1:
        return math.nan
    if q <= 0:
        if q == np.floor(q):
            return math.inf
        if x != np.floor(x) or q < -1e7:
            return math.nan
    smallest = np.finfo(np.float64).eps / 2
    total, a, term, k = q**-x, q, np.float64(0), 0
    while k < 9 or a <= 9:
        a, k = a + 1, k + 1
        term = a**-x
        total += term
        if abs(term) < smallest * abs(total):
            return total
    total += term * a / (x - 1) - 0.5 * term
    factor, k = 1.0, 0
    rest = [-1.8924375803183792e9, 7.47242496e10, -2.950130727918164e12, 1.1646782814350067e14, -4.5979787224074726e15,
            1.8152105401943546e17, -7.166165256175667e18]
    for c in [12, -720, 30240, -1209600, 47900160] + rest:
        factor *= x + k
        term /= a
        part = factor * term / c
        total += part
        if abs(part / total) < smallest:
            break
        factor *= x + k + 1
        term /= a
        k += 2
    return total


def zeta(s, q):
    s, q = np.broadcast_arrays(s, q)
    out = np.array([_zeta(np.float64(a), np.float64(b)) for a, b in zip(s.ravel(), q.ravel())]).reshape(s.shape)
    return out.astype(s.dtype)[()]


def arg_reduce(values, indices, start, best):
    # Of pairs (value, index): the best value and its index; NaN is best, of equals the smaller index.
    v, i = start
    for a, b in zip(np.ravel(values), np.ravel(indices)):
        if np.isnan(a) and not np.isnan(v) or not np.isnan(v) and best(a, v) or (a == v or np.isnan(a) and np.isnan(v)) and b < i:
            v, i = a, b
    return v, i
