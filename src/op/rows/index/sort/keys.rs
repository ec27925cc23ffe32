//! Keys of 32 bits: integers of 64 bits that are close enough are ordered by their distances from the least one, and narrow integers as
//! wider ones, because lines of 32-bit keys are ordered faster than any others.

use super::counted::bounds;
use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;
use crate::tensor::{Tensor, WideLoop, run_wide, with_wide_vectors};
use crate::types::DType;

/// A tensor of 32-bit integers in the order of `x`; `None` if sorting `x` itself is faster. `few`: whether so few elements of each line are
/// wanted that narrowing saves no time.
pub(super) fn narrow_keys(x: &Tensor, few: bool, pool: &Pool) -> Option<Tensor> {
    match x.dtype() {
        DType::I16 | DType::I8 | DType::B8 => Some(x.to(DType::I32)),
        DType::I64 if !few => {
            let elements = x.as_slice::<i64>();
            let (least, greatest) = with_wide_vectors(|| bounds(elements))?;
            u32::try_from(greatest.wrapping_sub(least) as u64).ok()?;
            let mut keys = Tensor::zeros(DType::I32, x.shape());
            let len = units_per_part(elements.len(), 12, pool);
            pool.run_parts(keys.as_mut_slice::<i32>(), len, |i, keys| {
                let x = &elements[i * len..][..keys.len()];
                run_wide(Distances { x, least, keys });
            });
            Some(keys)
        }
        _ => None,
    }
}

/// The distances of integers from the least one, in the order of signed integers.
struct Distances<'a> {
    x: &'a [i64],
    least: i64,
    keys: &'a mut [i32],
}

impl WideLoop for Distances<'_> {
    #[inline(always)]
    fn run(self) {
        for (key, &x) in self.keys.iter_mut().zip(self.x) {
            *key = x.wrapping_sub(self.least) as i32 ^ i32::MIN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_order_of_the_integers() {
        let far = i64::MIN / 2;
        for v in [
            vec![far, far + 7, far + (1 << 31), far + i64::from(u32::MAX), far + 6],
            vec![-1, 0, 5, -9, i64::from(i32::MAX)],
        ] {
            let x = Tensor::from_slice(&[v.len()], &v);
            let keys = narrow_keys(&x, false, &Pool::new(1)).expect("close integers");
            let keys = keys.as_slice::<i32>();
            for (i, j) in (0..v.len()).flat_map(|i| (0..v.len()).map(move |j| (i, j))) {
                assert_eq!(v[i].cmp(&v[j]), keys[i].cmp(&keys[j]));
            }
        }
        let distant = Tensor::from_slice(&[2], &[i64::MIN, i64::MAX]);
        assert!(narrow_keys(&distant, false, &Pool::new(1)).is_none());
        assert!(narrow_keys(&Tensor::zeros(DType::I64, &[0]), false, &Pool::new(1)).is_none());
    }
}
