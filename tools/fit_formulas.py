#!/usr/bin/env python3
"""Fits the f32 polynomials of src/codegen (pip install mpmath numpy): python tools/fit_formulas.py

Each is a minimax fit (Lawson's algorithm), whose coefficients are rounded to f32 one after the other, from the lowest power up, while
the others are fitted again. The printed error is the largest one on 400 points, relative to the function that the polynomial
is for.
"""
from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 40
Function = Callable[[mp.mpf], mp.mpf]


def lawson(a: np.ndarray, b: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The coefficients c with the least maximum of |weight * (a c - b)|."""
    scale = np.abs(a).max(0)
    share = np.full(len(b), 1 / len(b))
    best, least = np.zeros(a.shape[1]), np.inf
    for _ in range(300):
        w = weight * np.sqrt(share)
        c = np.linalg.lstsq(a / scale * w[:, None], b * w, rcond=None)[0] / scale
        error = np.abs(a @ c - b) * weight
        if error.max() < least:
            best, least = c, error.max()
        share = share * error / (share * error).sum()
    return best


def fit(name: str, f: Function, low: float, high: float, degree: int, error: Callable[[float], float], two: bool = False) -> None:
    """Fits f over low..high. `error(x)` is the relative error of the result for an error of 1 of the polynomial at x. With `two`, the
    lowest coefficient is the sum of two f32 numbers."""
    nodes = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (2 * np.arange(400) + 1) / 800)
    y = np.array([float(f(mp.mpf(float(x)))) for x in nodes])
    weight = np.array([error(float(x)) for x in nodes])
    fixed: list[float] = []
    for k in range(degree + 1):
        rest = y - sum(c * nodes**j for j, c in enumerate(fixed))
        c = lawson(np.stack([nodes**j for j in range(k, degree + 1)], 1), rest, weight)
        fixed.append(float(np.float32(c[0])))
        if two and k == 0:
            fixed[0] += float(np.float32(c[0] - fixed[0]))
            print(f'const {name}_LOW: f32 = {np.float32(c[0] - np.float32(c[0])):.9g};')
    worst = np.max(np.abs(sum(c * nodes**j for j, c in enumerate(fixed)) - y) * weight)
    print(f'/// Relative error {worst:.1e}.\nconst {name}: [f32; {degree + 1}] = [')
    print(''.join(f'    {np.float32(c):.9g},\n' for c in reversed(fixed)) + '];')


def fit_odd(name: str, f: Function, high: float, degree: int) -> None:
    """Fits (f(x) - x) / x³ by x², for |x| up to high."""
    def rest(s: mp.mpf) -> mp.mpf:
        x = mp.sqrt(s)
        return (f(x) - x) / (x * s)
    fit(name, rest, 1e-6, high**2, degree, lambda s: float(s * mp.sqrt(s) / f(mp.sqrt(s))))


def scaled_erfc(t: mp.mpf) -> mp.mpf:
    """(a + 2) exp(a²) erfc(a) where t = (a - 2) / (a + 2)."""
    a = 2 * (1 + t) / (1 - t)
    return (a + 2) * mp.exp(a * a) * mp.erfc(a)


def inverse_erfc(q: mp.mpf) -> mp.mpf:
    """x with erfc(x) = q for q in 0..1."""
    w = -mp.log(q)
    x = mp.sqrt(w) if w > 1 else mp.mpf(1) / 2
    for _ in range(80):
        step = (mp.log(mp.erfc(x)) - mp.log(q)) / (-2 / mp.sqrt(mp.pi) * mp.exp(-x * x) / mp.erfc(x))
        x -= step
        if abs(step) < mp.mpf(10) ** -30:
            break
    return x


def inverse_ratio(w: mp.mpf) -> mp.mpf:
    """erfinv(y) / y where w = -log(1 - y²)."""
    if w < mp.mpf(10) ** -12:
        return mp.sqrt(mp.pi) / 2
    e = mp.exp(-w)
    y = mp.sqrt(1 - e)
    return inverse_erfc(e / (1 + y)) / y


def near(shifted: mp.mpf) -> mp.mpf:
    """(erfinv(y) / y - sqrt(pi) / 2) / l by l + 5/2 where l = log(1 - y²)."""
    log = shifted - mp.mpf(5) / 2
    return (inverse_ratio(-log) - mp.sqrt(mp.pi) / 2) / log


def far(shifted: mp.mpf) -> mp.mpf:
    """erfinv(y) / (y s) by s - 3.1 where s = sqrt(-log(1 - y²))."""
    s = shifted + mp.mpf('3.1')
    return inverse_ratio(s * s) / s


def acosh_rest(u: mp.mpf) -> mp.mpf:
    """(acosh(1 + u) / sqrt(2 u) - 1) / u."""
    return (mp.acosh(1 + u) / mp.sqrt(2 * u) - 1) / u


def log_rest(base: mp.mpf) -> Function:
    """The powers of log(1 + f) above the first, over f²."""
    return lambda f: (mp.log1p(f) - f) / f**2 / mp.log(base) if abs(f) > mp.mpf(10) ** -12 else -1 / (2 * mp.log(base))


def log_error(f: float) -> float:
    """f² over the logarithm, which for m near 2/3 is that of 2 m."""
    y = abs(float(np.log1p(f)))
    other = abs(float(np.log1p(f))) if abs(f) < 0.2 else abs(float(np.log((1 + f) * (2 if f < 0 else 0.5))))
    return f * f / min(y, other) if y > 1e-9 else abs(f)


def exp_rest(r: mp.mpf) -> mp.mpf:
    """(exp(r) - 1 - r) / r²."""
    return (mp.expm1(r) - r) / r**2 if abs(r) > mp.mpf(10) ** -9 else mp.mpf(1) / 2


def erf_ratio(s: mp.mpf) -> mp.mpf:
    """(erf(x) / x - 1 - 0.12837917) / x² where s = x²."""
    x = mp.sqrt(s)
    return (mp.erf(x) / x - 1 - mp.mpf(float(np.float32(0.128379166)))) / s


def erfc_power(t: mp.mpf) -> mp.mpf:
    """log2(erfc(t)) / t."""
    return mp.log(mp.erfc(t), 2) / t


def erf_rest(s: mp.mpf) -> mp.mpf:
    """2 / sqrt(pi) / x² - erf(x) / x³ where s = x²."""
    x = mp.sqrt(s)
    return (2 / mp.sqrt(mp.pi) * x - mp.erf(x)) / (x * s)


def log2_rest(z: mp.mpf) -> mp.mpf:
    """log2((1 + s) / (1 - s)) without its linear and its cubic term, over s⁵, where z = s²."""
    s = mp.sqrt(z)
    return (mp.log((1 + s) / (1 - s), 2) - (2 * s + 2 * s**3 / 3) / mp.log(2)) / s**5


fit_odd('TAN', mp.tan, float(mp.pi / 4 + 0.002), 6)
fit_odd('ASIN', mp.asin, 0.5, 4)
fit_odd('ATAN', mp.atan, 1, 8)
fit_odd('SINH', mp.sinh, 1, 3)
fit_odd('ASINH', mp.asinh, 1, 8)
fit_odd('ATANH', mp.atanh, 0.5, 6)
fit('ACOSH', acosh_rest, 1e-6, 1, 6, lambda u: float(u * mp.sqrt(2 * u) / mp.acosh(1 + u)))
fit('ERFC', scaled_erfc, -0.6395, 8.1 / 12.1, 8, lambda t: float(1 / scaled_erfc(mp.mpf(t))), two=True)
fit('ERF', erf_rest, 1e-6, 0.25, 3, lambda s: float(s * mp.sqrt(s) / mp.erfc(mp.sqrt(s))))
fit('ERFINV', near, -2.5, 2.499999, 9, lambda u: float((2.5 - u) / inverse_ratio(mp.mpf(2.5 - u))), two=True)
fit('ERFINV_FAR', far, 2.23 - 3.1, 4.0845 - 3.1, 10, lambda u: float(1 / far(mp.mpf(u))), two=True)
fit('REST', log2_rest, 1e-6, 0.0401, 3, lambda z: 1.0)
# Of src/codegen/poly.rs and exp.rs. A few last digits of the second ERFC are those with the least error of rounded results.
for name, base in (('LOG', mp.e), ('LOG2', mp.mpf(2)), ('LOG10', mp.mpf(10))):
    fit(name, log_rest(base), -0.33334, 0.33334, 8, log_error)
fit('EXPM1', exp_rest, -0.2885, 0.4065, 5, lambda r: abs(r * r / float(mp.expm1(r))) if r else 0.0)
fit_odd('TANH', mp.tanh, 0.88, 6)
fit('ERF', erf_ratio, 1e-6, 1, 5, lambda s: float(s * mp.sqrt(s) / mp.erf(mp.sqrt(s))))
fit('ERFC', erfc_power, 0.92, 4.2, 6, lambda t: float(mp.erfc(t) * t * mp.log(2)))
