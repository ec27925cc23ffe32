//! Generated inputs: `--fill random`, `zeros` and their like.

use crate::tensor::{Scalar, SplitMix, Tensor};
use crate::types::DType;

/// How a generated tensor is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// 0, 1, 2, … in row-major order.
    Arange,
    /// Uniform in [0, 1) for floats, 0 to 9 for integers, a fair coin for bools; the same for the same seed.
    Uniform(u64),
    /// Normal with mean 0 and deviation 1 for floats; else as `Uniform`.
    Normal(u64),
}

/// A tensor filled as asked.
pub fn filled(dtype: DType, shape: &[usize], fill: Fill) -> Tensor {
    let float = dtype.is_float();
    let mut rng = match fill {
        Fill::Uniform(seed) | Fill::Normal(seed) => SplitMix::new(seed),
        _ => SplitMix::new(0),
    };
    Tensor::from_fn(dtype, shape, |i| match fill {
        Fill::Zeros => Scalar::Int(DType::I64, 0),
        Fill::Ones => Scalar::Int(DType::I64, 1),
        Fill::Arange => Scalar::Int(DType::I64, i as i64),
        Fill::Normal(_) if float => {
            // Box and Muller's transform of two uniform numbers.
            let (u, v) = (1.0 - rng.unit(), rng.unit());
            Scalar::F64((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos())
        }
        _ if float => Scalar::F64(rng.unit()),
        _ if dtype == DType::B8 => Scalar::Bool(rng.next_u64() & 1 == 1),
        _ => Scalar::Int(DType::I64, (rng.next_u64() % 10) as i64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_what_they_say() {
        let u = filled(DType::F64, &[10_000], Fill::Uniform(7));
        let v: Vec<f64> = u.as_slice::<f64>().to_vec();
        assert!(v.iter().all(|x| (0.0..1.0).contains(x)));
        assert!((v.iter().sum::<f64>() / 1e4 - 0.5).abs() < 0.02);
        let n = filled(DType::F64, &[10_000], Fill::Normal(7));
        let var = n.as_slice::<f64>().iter().map(|x| x * x).sum::<f64>() / 1e4;
        assert!((var - 1.0).abs() < 0.06, "{var}");
        assert_eq!(u, filled(DType::F64, &[10_000], Fill::Uniform(7)));
    }
}
