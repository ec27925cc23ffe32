//! Special functions without vectorised code: Airy and Bessel functions, orthogonal polynomials, incomplete gamma
//! functions.

use crate::budget;
use crate::diag::Code;
use crate::op::rows::dense::broadcast_position;
use crate::op::rows::fill::{expanded, units_per_part};
use crate::op::rows::spell::special;
use crate::op::{Call, Meaning, Op, OpError, OpId, OpResult, Sizes, pointwise_rule};
use crate::parallel::Pool;
use crate::scalar::bessel;
use crate::scalar::incomplete_gamma::{igamma, igammac};
use crate::scalar::orthogonal::{self, Family, Real, degree};
use crate::tensor::{Tensor, ViewMut, WideLoop, cells_of_mut, run_wide};
use crate::types::{DType, TensorType, Type, Val};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

pub(super) fn rows() -> Vec<Op> {
    [
        bessel_rows(),
        modified_bessel_rows(),
        polynomial_rows(),
        shifted_polynomials(),
        gamma_rows(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A row of one tensor that only `torch.special` has.
macro_rules! function {
    ($n:literal, $f:ident, $param:literal, $doc:literal) => {
        Op::new(
            (
                concat!("special_", $n),
                concat!("special_", $n, "(Tensor ", $param, ") -> Tensor"),
            ),
            |c, s| like(c, s, OpId::Ndtri),
            Meaning::Fill(|c, outs, pool| mapped(c, &mut outs[0], pool, |x, _| bessel::$f(x))),
        )
        .doc($doc)
        .spelled(special!($n))
    };
}

/// Airy and Bessel functions.
fn bessel_rows() -> Vec<Op> {
    vec![
        function!("airy_ai", airy_ai, "x", "Airy's function"),
        function!(
            "bessel_j0",
            bessel_j0,
            "self",
            "Bessel function of the first kind, order 0"
        ),
        function!(
            "bessel_j1",
            bessel_j1,
            "self",
            "Bessel function of the first kind, order 1"
        ),
        function!(
            "bessel_y0",
            bessel_y0,
            "self",
            "Bessel function of the second kind, order 0"
        ),
        function!(
            "bessel_y1",
            bessel_y1,
            "self",
            "Bessel function of the second kind, order 1"
        ),
    ]
}

fn modified_bessel_rows() -> Vec<Op> {
    vec![
        function!(
            "modified_bessel_k0",
            modified_bessel_k0,
            "self",
            "modified Bessel function of the second kind, order 0"
        ),
        function!(
            "modified_bessel_k1",
            modified_bessel_k1,
            "self",
            "modified Bessel function of the second kind, order 1"
        ),
        function!(
            "scaled_modified_bessel_k0",
            scaled_modified_bessel_k0,
            "x",
            "exp(x) times modified_bessel_k0"
        ),
        function!(
            "scaled_modified_bessel_k1",
            scaled_modified_bessel_k1,
            "x",
            "exp(x) times modified_bessel_k1"
        ),
        function!("spherical_bessel_j0", spherical_bessel_j0, "x", "sin(x) / x"),
    ]
}

/// The row of a family of polynomials; the degree or the argument may be a number.
macro_rules! polynomial {
    ($n:literal, $family:ident, $shifted:literal, $doc:literal) => {
        Op::new(
            (
                concat!("special_", $n),
                concat!("special_", $n, "(Any x, Any n) -> Tensor"),
            ),
            |c, s| like(c, s, OpId::Zeta),
            Meaning::Fill(|c, outs, pool| evaluated(c, &mut outs[0], pool, Family::$family, $shifted)),
        )
        .doc($doc)
        .form(
            concat!("aten.special_", $n, ".default torch.special.", $n),
            concat!("special_", $n, "(Tensor x, Tensor n) -> Tensor"),
        )
        .form(
            concat!("aten.special_", $n, ".x_scalar torch.special.", $n),
            concat!("special_", $n, "(Scalar x, Tensor n) -> Tensor"),
        )
        .form(
            concat!("aten.special_", $n, ".n_scalar torch.special.", $n),
            concat!("special_", $n, "(Tensor x, Scalar n) -> Tensor"),
        )
    };
}

fn polynomial_rows() -> Vec<Op> {
    vec![
        polynomial!(
            "chebyshev_polynomial_t",
            ChebyshevT,
            false,
            "Chebyshev polynomial T_n(x)"
        ),
        polynomial!(
            "chebyshev_polynomial_u",
            ChebyshevU,
            false,
            "Chebyshev polynomial U_n(x)"
        ),
        polynomial!(
            "chebyshev_polynomial_v",
            ChebyshevV,
            false,
            "Chebyshev polynomial V_n(x)"
        ),
        polynomial!(
            "chebyshev_polynomial_w",
            ChebyshevW,
            false,
            "Chebyshev polynomial W_n(x)"
        ),
        polynomial!("hermite_polynomial_h", HermiteH, false, "Hermite polynomial H_n(x)"),
        polynomial!("hermite_polynomial_he", HermiteHe, false, "Hermite polynomial He_n(x)"),
        polynomial!("laguerre_polynomial_l", LaguerreL, false, "Laguerre polynomial L_n(x)"),
        polynomial!("legendre_polynomial_p", LegendreP, false, "Legendre polynomial P_n(x)"),
    ]
}

fn shifted_polynomials() -> Vec<Op> {
    vec![
        polynomial!("shifted_chebyshev_polynomial_t", ChebyshevT, true, "T_n(2 x - 1)"),
        polynomial!("shifted_chebyshev_polynomial_u", ChebyshevU, true, "U_n(2 x - 1)"),
        polynomial!("shifted_chebyshev_polynomial_v", ChebyshevV, true, "V_n(2 x - 1)"),
        polynomial!("shifted_chebyshev_polynomial_w", ChebyshevW, true, "W_n(2 x - 1)"),
    ]
}

fn gamma_rows() -> Vec<Op> {
    vec![
        Op::new(
            "igamma(Tensor self, Tensor other) -> Tensor",
            |c, s| like(c, s, OpId::Hypot),
            Meaning::Fill(|c, outs, pool| mapped(c, &mut outs[0], pool, igamma)),
        )
        .doc("the regularised lower incomplete gamma function of order self")
        .spelled("aten.@ torch.@ Tensor.@")
        .spelled("aten.special_gammainc.default torch.special.gammainc")
        .inplace("aten.@_ Tensor.@_"),
        Op::new(
            "igammac(Tensor self, Tensor other) -> Tensor",
            |c, s| like(c, s, OpId::Hypot),
            Meaning::Fill(|c, outs, pool| mapped(c, &mut outs[0], pool, igammac)),
        )
        .doc("the regularised upper incomplete gamma function of order self")
        .spelled("aten.@ torch.@ Tensor.@")
        .spelled("aten.special_gammaincc.default torch.special.gammaincc")
        .inplace("aten.@_ Tensor.@_"),
    ]
}

/// The type that the row `other` has for these operands: promoted to floats and broadcast.
fn like(c: &Call<TensorType>, sizes: &mut Sizes, other: OpId) -> OpResult<Type> {
    let op = other.op();
    let own = c.op.name.trim_start_matches("special_");
    let args = c.args.clone();
    pointwise_rule(&Call { op, args }, sizes).map_err(|mut e| {
        e.title = e.title.replace(&format!("{other}_cpu"), &format!("{own}_cpu"));
        e
    })
}

/// Applies `f`, in f64, to each element of the first operand and the corresponding element of the second (0 if there is
/// none).
fn mapped(c: &Call<Tensor>, out: &mut ViewMut<'_>, pool: &Pool, f: impl Fn(f64, f64) -> f64 + Sync) -> OpResult<()> {
    let (dtype, shape) = (out.dtype(), out.shape().to_vec());
    // Operands are first rounded to the common dtype.
    let wide = |t: Tensor| t.to(dtype).to(DType::F64);
    let operands: Vec<Tensor> = c.args.iter().filter_map(operand_tensor).map(wide).collect();
    let mut values = vec![0.0; shape.iter().product()];
    let term = |k: usize, i: usize| {
        let Some(t) = operands.get(k) else { return 0.0 };
        let v = t.as_slice::<f64>();
        match v.len() == shape.iter().product::<usize>() {
            true => v[i],
            false => v[broadcast_position(t.shape(), &shape, i)],
        }
    };
    // These functions take as long as reading many numbers.
    let len = units_per_part(values.len(), 1024, pool);
    pool.run_parts(&mut values, len, |part, values| {
        for (i, v) in (part * len..).zip(values) {
            *v = f(term(0, i), term(1, i));
        }
    });
    out.fill_from(&Tensor::from_slice(&shape, &values).to(dtype));
    Ok(())
}

/// Values of polynomials. One whose degree is too large ends the work on all: torch would count up to the degree.
fn evaluated(c: &Call<Tensor>, out: &mut ViewMut<'_>, pool: &Pool, family: Family, shifted: bool) -> OpResult<()> {
    let stopped = AtomicBool::new(false);
    match out.dtype() {
        DType::F64 => evaluate_in::<f64>(c, out, pool, (family, shifted), &stopped),
        _ => evaluate_in::<f32>(c, out, pool, (family, shifted), &stopped),
    }
    match stopped.into_inner() {
        false => Ok(()),
        true if budget::is_late() => Err(OpError::new(Code::E0513, "the work takes longer than the time limit")),
        true => Err(too_many_steps(c.op)),
    }
}

/// [`evaluated`] in the type in which torch computes a dtype.
fn evaluate_in<T: Real>(
    c: &Call<Tensor>,
    out: &mut ViewMut<'_>,
    pool: &Pool,
    family: (Family, bool),
    stopped: &AtomicBool,
) {
    let (dtype, shape) = (out.dtype(), out.shape().to_vec());
    let mut operands = c.args.iter().filter_map(operand_tensor).map(|t| t.to(dtype));
    let (Some(x), Some(n)) = (operands.next(), operands.next()) else {
        return;
    };
    let (x, n) = (expanded(&x.to(T::DTYPE), &shape), n.to(DType::F64));
    let degrees = if n.numel() == 1 { n } else { expanded(&n, &shape) };
    let until = budget::end_of_time();
    let go_on = || !stopped.load(Relaxed) && until.is_none_or(|t| Instant::now() < t);
    let fill = |values: &mut [T]| {
        let len = units_per_part(values.len(), 256, pool);
        pool.run_parts(values, len, |part, values| {
            let (x, n) = (&x.as_slice::<T>()[part * len..], degrees.as_slice::<f64>());
            let degrees = if n.len() == 1 { n } else { &n[part * len..] };
            run_wide(Polynomials {
                family,
                x,
                degrees,
                values,
                stopped,
                go_on: &go_on,
            });
        });
    };
    match dtype == T::DTYPE {
        true => fill(cells_of_mut::<T>(out.bytes_mut())),
        false => {
            let mut values = Tensor::zeros(T::DTYPE, &shape);
            fill(values.as_mut_slice());
            out.fill_from(&values.to(dtype));
        }
    }
}

/// The polynomials at `x`, of one degree or of as many as there are values.
struct Polynomials<'a, T> {
    /// The family, and whether its interval is [0, 1].
    family: (Family, bool),
    x: &'a [T],
    degrees: &'a [f64],
    values: &'a mut [T],
    stopped: &'a AtomicBool,
    go_on: &'a (dyn Fn() -> bool + Sync),
}

impl<T: Real> WideLoop for Polynomials<'_, T> {
    #[inline(always)]
    fn run(self) {
        let (family, shifted) = self.family;
        let x = &self.x[..self.values.len()];
        if let [n] = self.degrees
            && T::fill(family, shifted, degree(*n), x, self.values)
        {
            return;
        }
        let each = usize::from(self.degrees.len() > 1);
        for (i, v) in self.values.iter_mut().enumerate() {
            let n = degree(self.degrees[i * each]);
            match T::polynomial(family, shifted, x[i], n, self.go_on) {
                Some(y) => *v = y,
                None => return self.stopped.store(true, Relaxed),
            }
        }
    }
}

fn too_many_steps(op: &Op) -> OpError {
    let name = op.name.trim_start_matches("special_");
    OpError::value(format!("{name}: the degree is too large")).note(format!(
        "where its values stay finite, fxc counts up to the degree, at most to {}",
        orthogonal::MOST_STEPS
    ))
}

/// An operand as a tensor; a number becomes a 0-dim tensor.
fn operand_tensor(v: &Val<Tensor>) -> Option<Tensor> {
    match v {
        Val::Leaf(t) => Some(t.clone()),
        v => v.as_f64().map(Tensor::scalar),
    }
}
