#!/usr/bin/env python3
"""Fits the polynomials of src/math/functions (pip install mpmath): python tools/fit_functions.py

Each is a Chebyshev interpolation at 60 digits, written as coefficients of powers from the highest down. The printed error is the
largest relative error of the polynomial with rounded coefficients, on 400 points.
"""
import mpmath as mp

mp.mp.dps = 60


def fit(name, f, low, high, degree, centre=0, scale=1):
    """Interpolates f over low..high by a polynomial in u = (x - centre) * scale."""
    n = degree + 1
    low, high = mp.mpf(low), mp.mpf(high)
    nodes = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]
    us = [(x - centre) * scale for x in nodes]
    # Newton's divided differences, then powers.
    d = [f(x) for x in nodes]
    for j in range(1, n):
        for i in range(n - 1, j - 1, -1):
            d[i] = (d[i] - d[i - 1]) / (us[i] - us[i - j])
    powers = [d[-1]]
    for i in range(n - 2, -1, -1):
        shifted = powers + [mp.mpf(0)]
        for k, c in enumerate(powers):
            shifted[k + 1] -= c * us[i]
        shifted[-1] += d[i]
        powers = shifted
    rounded = [float(c) for c in powers]
    worst = 0
    for k in range(401):
        x = low + (high - low) * k / 400
        u, p, want = (x - centre) * scale, mp.mpf(0), f(x)
        for c in rounded:
            p = p * u + mp.mpf(c)
        worst = max(worst, abs(p / want - 1) if want else abs(p))
    print(f'/// Relative error {mp.nstr(worst, 2)}.\nconst {name}: [f64; {n}] = [')
    print(''.join(f'    {c!r},\n' for c in rounded) + '];')


def erfcx(x):
    if x > 20:
        # The continued fraction of erfc (Abramowitz & Stegun 7.1.14).
        t = x
        for k in range(200, 0, -1):
            t = x + mp.mpf(k) / 2 / t
        return 1 / mp.sqrt(mp.pi) / t
    return mp.exp(x * x) * mp.erfc(x)


def scaled_erfc(t):
    """(1 + 2 x) exp(x²) erfc(x) where t = (x - 4) / (x + 4)."""
    if t >= 1:
        return 2 / mp.sqrt(mp.pi)
    x = 4 * (1 + t) / (1 - t)
    return (1 + 2 * x) * erfcx(x)


def erf_ratio(z):
    """erf(x) / x where z = x²."""
    x = mp.sqrt(z)
    return mp.erf(x) / x if x > mp.mpf(10) ** -20 else 2 / mp.sqrt(mp.pi)


def erf_rest(z):
    """(erf(x) / x - 2 / sqrt(pi)) / x² where z = x²."""
    if z < mp.mpf(10) ** -20:
        return -2 / mp.sqrt(mp.pi) / 3
    return (erf_ratio(z) - 2 / mp.sqrt(mp.pi)) / z


def exp_rest(r):
    """(exp(r) - 1 - r) / r²."""
    return (mp.expm1(r) - r) / r**2 if abs(r) > mp.mpf(10) ** -20 else mp.mpf(1) / 2


def sinh_rest(z):
    """(sinh(x) - x) / x³ where z = x²."""
    x = mp.sqrt(z)
    return (mp.sinh(x) / x - 1) / z if z > mp.mpf(10) ** -20 else mp.mpf(1) / 6


def atanh_rest(z):
    """(atanh(x) - x) / x³ where z = x²."""
    x = mp.sqrt(z)
    return (mp.atanh(x) / x - 1) / z if z > mp.mpf(10) ** -20 else mp.mpf(1) / 3


def inverse_erfc(q):
    """x with erfc(x) = q for q in 0..1."""
    w = -mp.log(q)
    x = mp.sqrt(w) if w > 1 else mp.mpf(1) / 2
    for _ in range(80):
        step = (mp.log(mp.erfc(x)) - mp.log(q)) / (-2 / mp.sqrt(mp.pi) * mp.exp(-x * x) / mp.erfc(x))
        x -= step
        if abs(step) < mp.mpf(10) ** -40:
            break
    return x


def inverse_ratio(w):
    """erfinv(y) / y where w = -log(1 - y²)."""
    if w < mp.mpf(10) ** -15:
        return mp.sqrt(mp.pi) / 2
    e = mp.exp(-w)
    y = mp.sqrt(1 - e)
    return inverse_erfc(e / (1 + y)) / y


def inverse_rest(w):
    """(erfinv(y) / y - sqrt(pi) / 2) / w where w = -log(1 - y²)."""
    if w < mp.mpf(10) ** -15:
        return mp.sqrt(mp.pi) * mp.pi / 24
    return (inverse_ratio(w) - mp.sqrt(mp.pi) / 2) / w


def atan_ratio(z):
    """atan(t) / t where z = t²."""
    t = mp.sqrt(z)
    return mp.atan(t) / t if t > mp.mpf(10) ** -20 else mp.mpf(1)


def log_gamma_ratio(x):
    """lgamma(x) / ((x - 1) (x - 2))."""
    if abs(x - 1) < mp.mpf(10) ** -20:
        return mp.euler
    if abs(x - 2) < mp.mpf(10) ** -20:
        return 1 - mp.euler
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def bessel_near(order):
    """exp(-x) I(x), divided by x for order 1."""
    def f(x):
        if order and x < mp.mpf(10) ** -20:
            return mp.mpf(1) / 2
        return mp.exp(-x) * mp.besseli(order, x) / (x if order else 1)
    return f


def bessel_far(order):
    """sqrt(x) exp(-x) I(x) where v = 1 / x."""
    def f(v):
        if v == 0:
            return 1 / mp.sqrt(2 * mp.pi)
        x = 1 / v
        return mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)
    return f


fit('EXP', exp_rest, mp.mpf('-0.3467'), mp.mpf('0.4056'), 11)
fit('SINH', sinh_rest, 0, 1, 7)
fit('ATANH', atanh_rest, 0, mp.mpf(1) / 4, 13)
fit('ERFC', scaled_erfc, -1, 1, 26)
fit('ERFC_SHORT', scaled_erfc, -1, 1, 14)
fit('ERF', erf_rest, 0, 1, 10)
fit('ERF_SHORT', erf_ratio, 0, 1, 7)
FAR = mp.mpf('4.3')
fit('ERFINV_NEAR', inverse_rest, 0, 6, 26, 3)
fit('ERFINV_NEAR_SHORT', inverse_ratio, 0, 6, 14, 3)
fit('ERFINV_FAR', lambda s: inverse_ratio(s * s) / s, mp.sqrt(6), FAR, 23, mp.mpf('3.3'))
fit('ERFINV_FAR_SHORT', lambda s: inverse_ratio(s * s) / s, mp.sqrt(6), FAR, 12, mp.mpf('3.3'))
fit('ERFINV_TAIL', lambda v: inverse_ratio(1 / v**2) * v, mp.mpf(1) / 28, 1 / FAR, 29, mp.mpf(1) / 8, 8)
fit('ERFINV_TAIL_SHORT', lambda v: inverse_ratio(1 / v**2) * v, mp.mpf(1) / 28, 1 / FAR, 12, mp.mpf(1) / 8, 8)
# What the last coefficients lack.
for name, value in (('ERFC_LOW', scaled_erfc(mp.mpf(0))), ('NEAR_LOW', inverse_rest(mp.mpf(3))),
                    ('FAR_LOW', inverse_ratio(mp.mpf(3.3) ** 2) / mp.mpf(3.3)), ('TAIL_LOW', inverse_ratio(mp.mpf(64)) / 8)):
    print(f'const {name}: f64 = {float(value - mp.mpf(float(value)))!r};')
fit('ATAN_SHORT', atan_ratio, 0, 1, 13)
fit('LOG_GAMMA', log_gamma_ratio, 1, mp.mpf(5) / 2, 24, mp.mpf(7) / 4)
fit('LOG_GAMMA_SHORT', log_gamma_ratio, 1, mp.mpf(5) / 2, 13, mp.mpf(7) / 4)
fit('I0_NEAR', bessel_near(0), 0, 8, 29, 4, mp.mpf(1) / 4)
fit('I0_FAR', bessel_far(0), 0, mp.mpf(1) / 8, 23, mp.mpf(1) / 16, 16)
fit('I1_NEAR', bessel_near(1), 0, 8, 29, 4, mp.mpf(1) / 4)
fit('I1_FAR', bessel_far(1), 0, mp.mpf(1) / 8, 23, mp.mpf(1) / 16, 16)
fit('I0_NEAR_SHORT', bessel_near(0), 0, 8, 20, 4, mp.mpf(1) / 4)
fit('I0_FAR_SHORT', bessel_far(0), 0, mp.mpf(1) / 8, 7, mp.mpf(1) / 16, 16)
fit('I1_NEAR_SHORT', bessel_near(1), 0, 8, 20, 4, mp.mpf(1) / 4)
fit('I1_FAR_SHORT', bessel_far(1), 0, mp.mpf(1) / 8, 7, mp.mpf(1) / 16, 16)
