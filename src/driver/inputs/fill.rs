//! Generated inputs: `--fill random`, `zeros` and their like.

use crate::tensor::{Scalar, SplitMix, Tensor};
use crate::types::DType;

/// The values of a generated tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
    /// 0, 1, 2, … in row-major order.
    Arange,
    /// Uniform in [0, 1) for floats, 0 to 9 for integers, a fair coin for bools. Equal seeds give equal values.
    Uniform(u64),
    /// Normal with mean 0 and standard deviation 1 for floats; otherwise like `Uniform`.
    Normal(u64),
    /// Integers in `0..below`: indices into something of that size.
    Index {
        /// The seed.
        seed: u64,
        /// The exclusive upper bound.
        below: u64,
    },
    /// Offsets of bags: they increase evenly along the last dim from 0 and stay below `count`.
    Offsets {
        /// The number of indices that the bags share.
        count: u64,
    },
}

/// A tensor filled as requested.
pub fn filled_tensor(dtype: DType, shape: &[usize], fill: Fill) -> Tensor {
    let float = dtype.is_float();
    let mut rng = match fill {
        Fill::Uniform(seed) | Fill::Normal(seed) | Fill::Index { seed, .. } => SplitMix::new(seed),
        _ => SplitMix::new(0),
    };
    Tensor::from_fn(dtype, shape, |i| match fill {
        Fill::Zeros => Scalar::Int(DType::I64, 0),
        Fill::Ones => Scalar::Int(DType::I64, 1),
        Fill::Arange => Scalar::Int(DType::I64, i as i64),
        Fill::Index { below, .. } => Scalar::Int(DType::I64, (rng.next_u64() % below.max(1)) as i64),
        Fill::Offsets { count } => {
            let bags = shape.last().copied().unwrap_or(1).max(1) as u64;
            let place = u128::from(i as u64 % bags) * u128::from(count) / u128::from(bags);
            Scalar::Int(DType::I64, place as i64)
        }
        Fill::Normal(_) if float => {
            // Box and Muller's transform of two uniform numbers.
            let (u, v) = (1.0 - rng.next_unit(), rng.next_unit());
            Scalar::F64((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos())
        }
        _ if float => Scalar::F64(rng.next_unit()),
        _ if dtype == DType::B8 => Scalar::Bool(rng.next_u64() & 1 == 1),
        _ => Scalar::Int(DType::I64, (rng.next_u64() % 10) as i64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_are_what_they_say() {
        let u = filled_tensor(DType::F64, &[10_000], Fill::Uniform(7));
        let v: Vec<f64> = u.as_slice::<f64>().to_vec();
        assert!(v.iter().all(|x| (0.0..1.0).contains(x)));
        assert!((v.iter().sum::<f64>() / 1e4 - 0.5).abs() < 0.02);
        let n = filled_tensor(DType::F64, &[10_000], Fill::Normal(7));
        let var = n.as_slice::<f64>().iter().map(|x| x * x).sum::<f64>() / 1e4;
        assert!((var - 1.0).abs() < 0.06, "{var}");
        assert_eq!(u, filled_tensor(DType::F64, &[10_000], Fill::Uniform(7)));
        let i = filled_tensor(DType::I64, &[1000], Fill::Index { seed: 1, below: 3 });
        assert!((0..3).all(|want| i.as_slice::<i64>().contains(&want)));
        assert!(i.as_slice::<i64>().iter().all(|i| (0..3).contains(i)));
        let o = filled_tensor(DType::I64, &[2, 4], Fill::Offsets { count: 6 });
        assert_eq!(o.as_slice::<i64>(), [0, 1, 3, 4, 0, 1, 3, 4]);
    }
}
