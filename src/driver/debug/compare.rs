//! Measures the difference between two results.

use crate::tensor::{Scalar, Tensor};
use crate::types::DType;

/// A tolerance: `|got - want| <= atol + rtol * |want|`, as in `numpy.allclose`, with NaN equal to NaN. For half types, the default also
/// allows for half of `rtol` times the largest magnitude of the tensor: an element near zero may be a sum of large numbers, each rounded before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative to the expected element; `None` stands for one that suits the dtype.
    pub rtol: Option<f64>,
    /// Absolute.
    pub atol: f64,
}

impl Tolerance {
    /// The relative tolerance for elements of `dtype`. That of half types, as in `torch.testing`, allows for sums in another order,
    /// which may round to a neighbour.
    fn rtol_for(&self, dtype: DType) -> f64 {
        self.rtol.unwrap_or(match dtype {
            DType::F16 => 1e-3,
            DType::BF16 => 1.6e-2,
            _ => 1e-4,
        })
    }

    /// What elements of `dtype` may differ by whatever their size, if the largest is `largest`.
    fn absolute_for(&self, dtype: DType, largest: f64) -> f64 {
        let is_half = dtype.is_half();
        match self.rtol.is_none() && is_half {
            true => self.atol + self.rtol_for(dtype) / 2.0 * largest,
            false => self.atol,
        }
    }
}

/// The result of comparing two tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// Why they cannot be compared: different dtypes or shapes.
    pub mismatch: Option<String>,
    /// The number of elements outside the tolerance.
    pub outside: usize,
    /// The number of all elements.
    pub count: usize,
    /// The largest difference; infinite if only one of the two elements is NaN or infinite.
    pub max_abs: f64,
    /// The largest difference divided by the largest finite magnitude expected.
    pub relative: f64,
    /// The linear index of the worst element.
    pub worst: usize,
}

impl Difference {
    /// Whether the tensors agree.
    pub fn agrees(&self) -> bool {
        self.mismatch.is_none() && self.outside == 0
    }
}

/// Compares `got` with `want`. Integers and bools must be equal, whatever the tolerance.
pub(crate) fn compare(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> Difference {
    let mut d = Difference {
        count: want.numel(),
        ..Difference::default()
    };
    // bf16 results are saved as f32, which numpy supports.
    let same = got.dtype() == want.dtype() || (got.dtype() == DType::BF16 && want.dtype() == DType::F32);
    if !same || got.shape() != want.shape() {
        d.mismatch = Some(format!("{} instead of {}", got.ty(), want.ty()));
        return d;
    }
    let exact = !want.dtype().is_float();
    let largest = largest_magnitude(want);
    let (rtol, atol) = (
        tolerance.rtol_for(got.dtype()),
        tolerance.absolute_for(got.dtype(), largest),
    );
    for i in 0..want.numel() {
        let (g, w) = (got.get(i), want.get(i));
        let (x, y) = (scalar_to_f64(g), scalar_to_f64(w));
        if g == w || !exact && (x == y || (x.is_nan() && y.is_nan())) {
            continue;
        }
        let diff = absolute_difference(x, y);
        let outside = exact || !y.is_finite() || diff > atol + rtol * y.abs();
        d.outside += outside as usize;
        // Large integers may differ by less than f64 resolves.
        if diff > d.max_abs || (outside && d.outside == 1 && d.max_abs == 0.0) {
            (d.max_abs, d.worst) = (diff, i);
        }
    }
    if d.max_abs > 0.0 {
        d.relative = d.max_abs / largest.max(f64::MIN_POSITIVE);
    }
    d
}

/// The largest finite magnitude of an element.
fn largest_magnitude(t: &Tensor) -> f64 {
    let sizes = (0..t.numel()).map(|i| scalar_to_f64(t.get(i)).abs());
    sizes.filter(|x| x.is_finite()).fold(0.0, f64::max)
}

/// `|x - y|`; infinite if it is NaN.
fn absolute_difference(x: f64, y: f64) -> f64 {
    let difference = (x - y).abs();
    if difference.is_nan() { f64::INFINITY } else { difference }
}

fn scalar_to_f64(s: Scalar) -> f64 {
    match s {
        Scalar::F64(x) => x,
        Scalar::F32(x) | Scalar::Half(_, x) => x as f64,
        Scalar::Int(_, i) => i as f64,
        Scalar::Bool(b) => b as u8 as f64,
    }
}

/// The index of the element with linear index `i` in a tensor of `shape`: `[1, 0, 2]`.
pub(crate) fn unravel_index(i: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = i;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&d| {
            let x = rest % d.max(1);
            rest /= d.max(1);
            x
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Tolerance = Tolerance {
        rtol: Some(1e-3),
        atol: 1e-6,
    };

    #[test]
    fn floats_within_tolerance_agree_and_nan_is_nan() {
        let want = Tensor::from_slice(&[4], &[1.0f32, f32::NAN, f32::INFINITY, -100.0]);
        let near = Tensor::from_slice(&[4], &[1.0005f32, f32::NAN, f32::INFINITY, -100.05]);
        let d = compare(&near, &want, T);
        assert!(d.agrees() && d.worst == 3, "{d:?}");
        assert!((d.relative - 5e-4).abs() < 1e-5);
        let far = Tensor::from_slice(&[4], &[1.0f32, 0.0, f32::NEG_INFINITY, -101.0]);
        assert_eq!(compare(&far, &want, T).outside, 3);
    }

    #[test]
    fn half_types_may_round_to_a_neighbour() {
        let t = Tolerance { rtol: None, atol: 0.0 };
        for (dtype, step) in [(DType::F32, 5e-5), (DType::F16, 5e-4), (DType::BF16, 8e-3)] {
            let at = |x: f64| Tensor::from_slice(&[1], &[x as f32]).to(dtype);
            assert!(compare(&at(1.0 + step), &at(1.0), t).agrees(), "{dtype}");
            assert!(!compare(&at(1.0 + 4.0 * step), &at(1.0), t).agrees(), "{dtype}");
        }
    }

    /// An element that is the difference of large numbers is as uncertain as they are.
    #[test]
    fn half_types_may_differ_by_a_part_of_the_largest_element() {
        let t = Tolerance { rtol: None, atol: 0.0 };
        for (dtype, step) in [(DType::F16, 4e-4), (DType::BF16, 7e-3)] {
            let at = |x: f32| Tensor::from_slice(&[2], &[100.0f32, x]).to(dtype);
            assert!(compare(&at(100.0 * step), &at(0.0), t).agrees(), "{dtype}");
            assert!(!compare(&at(200.0 * step), &at(0.0), t).agrees(), "{dtype}");
            let t = Tolerance {
                rtol: Some(1.6e-2),
                ..t
            };
            assert!(!compare(&at(100.0 * step), &at(0.0), t).agrees(), "{dtype}");
        }
        let single = |x: f32| Tensor::from_slice(&[2], &[100.0f32, x]);
        assert!(!compare(&single(0.04), &single(0.0), t).agrees());
    }

    #[test]
    fn integers_must_be_equal_and_types_too() {
        let a = Tensor::from_slice(&[2], &[5, 1i64 << 60]);
        let b = Tensor::from_slice(&[2], &[5, (1i64 << 60) + 1]);
        let d = compare(&a, &b, T);
        assert_eq!((d.outside, d.worst), (1, 1));
        assert!(compare(&a, &a.reshape(&[1, 2]), T).mismatch.is_some());
        assert_eq!(unravel_index(5, &[2, 3]), [1, 2]);
    }
}
