//! The Hurwitz zeta function.

/// The Hurwitz zeta function `Σ (q + k)^-x` by Euler-Maclaurin summation, after Cephes, as in torch.
pub(crate) fn zeta(x: f64, q: f64) -> f64 {
    sum_from(q.powf(-x), x, q)
}

/// [`zeta`] for f32. torch computes the first term in f32 and the others in f64: it may overflow where another term cancels it.
pub(crate) fn zeta_f32(x: f64, q: f64) -> f64 {
    sum_from((q.powf(-x) as f32).into(), x, q)
}

/// [`zeta`] with this first term.
fn sum_from(first: f64, x: f64, q: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        // For smaller q the sum would have too many terms to be worth computing.
        if x != x.floor() || q < -1e7 {
            return f64::NAN;
        }
    }
    let (mut sum, mut a, mut term, mut k) = (first, q, 0.0, 0);
    let done = |part: f64, sum: f64| (-SMALLEST * sum < part) && (part < SMALLEST * sum);
    while k < 9 || a <= 9.0 {
        k += 1;
        a += 1.0;
        term = a.powf(-x);
        sum += term;
        if done(term, sum) {
            return sum;
        }
    }
    sum += term * a / (x - 1.0) - 0.5 * term;
    add_corrections(sum, term, x, a)
}

/// Adds the corrections of the Euler-Maclaurin formula to a sum whose last term is `term`, that of `a`.
fn add_corrections(mut sum: f64, mut term: f64, x: f64, a: f64) -> f64 {
    let (mut factor, mut k) = (1.0, 0.0);
    for c in ZETA {
        factor *= x + k;
        term /= a;
        let t = factor * term / c;
        sum += t;
        if (t / sum).abs() < SMALLEST {
            break;
        }
        k += 1.0;
        factor *= x + k;
        term /= a;
        k += 1.0;
    }
    sum
}

/// Half the distance from 1 to the next f64.
const SMALLEST: f64 = f64::EPSILON / 2.0;
/// `(2k)! / B(2k)`.
const ZETA: [f64; 12] = [
    12.0,
    -720.0,
    30240.0,
    -1209600.0,
    47900160.0,
    -1.8924375803183792e9,
    7.47242496e10,
    -2.950130727918164e12,
    1.1646782814350067e14,
    -4.597978722407473e15,
    1.8152105401943546e17,
    -7.166165256175667e18,
];
