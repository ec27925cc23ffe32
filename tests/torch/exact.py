"""Values of functions with 160 bits, by MPFR (pip install gmpy2), for accuracy.py."""
import math

import gmpy2
from gmpy2 import mpfr

# Enough for the square of an f64 in an exponent, and for series with terms of both signs.
gmpy2.get_context().precision = 160
gmpy2.get_context().emax = gmpy2.get_emax_max()
gmpy2.get_context().emin = gmpy2.get_emin_min()

ONE = mpfr(1)
SQRT_PI = gmpy2.sqrt(gmpy2.const_pi())
SQRT_2 = gmpy2.sqrt(mpfr(2))


def sigmoid(x):
    return ONE / (ONE + gmpy2.exp(-x))


def erfcx(x):
    """`exp(x²) erfc(x)`; far out, where `erfc` takes long, by its asymptotic series."""
    if x < 1e3:
        return gmpy2.exp(x * x) * gmpy2.erfc(x)
    term, total, square = ONE, ONE, 2 * x * x
    for k in range(1, 20):
        term *= -(2 * k - 1) / square
        total += term
    return total / (x * SQRT_PI)


def newton(f, slope, y):
    """The solution of `f(t) = 0` near y, whose error a step squares."""
    for _ in range(4):
        y -= f(y) / slope(y)
    return y


def normal_quantile(p):
    """The solution of `Φ(t) = p`."""
    if not 0 < p < 1:
        return gmpy2.inf(-1 if p == 0 else 1) if p in (0, 1) else gmpy2.nan()
    if p > 0.5:
        return -normal_quantile(1 - p)
    # Bisection until Newton's steps converge; below 1e-310 there is no f64.
    low, high = mpfr(-40), mpfr(0)
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if gmpy2.erfc(-middle / SQRT_2) / 2 < p else (low, middle)
    density = lambda t: gmpy2.exp(-t * t / 2) / (SQRT_2 * SQRT_PI)  # noqa: E731
    return newton(lambda t: gmpy2.erfc(-t / SQRT_2) / 2 - p, density, (low + high) / 2)


def erfinv(x):
    if not abs(x) < 1:
        return gmpy2.inf(int(x)) if abs(x) == 1 else gmpy2.nan()
    if abs(x) < 1e-3:
        start = x * SQRT_PI / 2
        return newton(lambda t: gmpy2.erf(t) - x, lambda t: 2 / SQRT_PI * gmpy2.exp(-t * t), start) if x else x
    tail = normal_quantile((1 - abs(x)) / 2) / SQRT_2
    return -tail if x > 0 else tail


def bessel_i(order, scaled):
    """The modified Bessel function of order 0 or 1: its series, or the asymptotic one far out."""
    def f(x):
        if x != x or gmpy2.is_infinite(x):
            return x if not scaled or x != x else gmpy2.zero(1 if x > 0 or not order else -1)
        a = abs(x)
        value = near(a) * (gmpy2.exp(-a) if scaled else 1) if a < 700 else far(a)
        return -value if order and gmpy2.is_signed(x) else value

    def near(a):
        quarter = a * a / 4
        term = total = (a / 2) ** order
        k = 1
        while term > total * mpfr(2) ** -170:
            term *= quarter / (k * (k + order))
            total += term
            k += 1
        return total

    def far(a):
        term = total = ONE
        for k in range(1, 30):
            term *= ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k * a)
            total += term
        return total / gmpy2.sqrt(2 * gmpy2.const_pi() * a) * (1 if scaled else gmpy2.exp(a))

    return f


def lgamma(x):
    value = gmpy2.lgamma(x)
    return value[0] if isinstance(value, tuple) else value


def digamma(x):
    """torch's: NaN at negative integers, the infinity of its sign at zeros."""
    if x == 0:
        return gmpy2.inf(1 if gmpy2.is_signed(x) else -1)
    return gmpy2.digamma(x)


def power(x, y):
    """C's: an infinite base and exponent have values."""
    return x ** y


SPECIAL = {"sigmoid": sigmoid, "erfcx": erfcx, "ndtri": normal_quantile, "erfinv": erfinv, "i0": bessel_i(0, False),
           "i0e": bessel_i(0, True), "i1": bessel_i(1, False), "i1e": bessel_i(1, True), "lgamma": lgamma, "digamma": digamma, "pow": power}


def exact(name, *args):
    """The value of a function at floats."""
    return (SPECIAL.get(name) or getattr(gmpy2, name))(*(mpfr(x) for x in args))


def error(got, want, digits, least):
    """The distance of a float from an exact value, in ULP of a format with `digits` bits and the least exponent `least`."""
    if gmpy2.is_nan(want) or math.isnan(got):
        return 0.0 if gmpy2.is_nan(want) and math.isnan(got) else math.inf
    limit = mpfr(2) ** (2 - least)
    if math.isinf(got):
        # Infinity is the next number after the largest.
        got = math.copysign(1, got) * limit
    if gmpy2.is_infinite(want) or abs(want) > limit:
        want = limit if want > 0 else -limit
    exponent = max(gmpy2.get_exp(want) - 1, least) if want and gmpy2.is_finite(want) else least
    return float(abs(mpfr(got) - want) / mpfr(2) ** (exponent - digits + 1))
