//! Means and variances.

use crate::op::{Build, OpBuilder, OpId, OpResult, Traced};
use crate::types::Dim;

/// The mean and the variance over some dims, which are kept.
pub(super) struct Moments {
    pub mean: Traced,
    pub var: Traced,
    /// The elements without their mean.
    pub centred: Traced,
}

/// The least number of elements of a row that is read in parts: of fewer, what the mean has read is still cached for the variance.
const LONG: i64 = 1 << 19;
/// The fewest and the most elements of a part, which stays cached.
const PART: std::ops::RangeInclusive<i64> = 256..=1 << 15;

/// The moments of `x` (f32 or f64) over `dims`, by way of those of parts if rows are long.
pub(super) fn moments_of_parts(b: &mut dyn Build, x: &Traced, dims: &[usize]) -> OpResult<Moments> {
    let Some(inner) = dims_of_part(x.shape()?, dims) else {
        return moments_at_once(b, x, dims);
    };
    let part = moments_at_once(b, x, &dims[dims.len() - inner..])?;
    let outer = &dims[..dims.len() - inner];
    let mean = b.reduce(OpId::Mean, &part.mean, outer, true)?;
    let shift = b.sub(&part.mean, &mean)?;
    let shift = b.mul(&shift, &shift)?;
    let spread = b.add(&part.var, &shift)?;
    let var = b.reduce(OpId::Mean, &spread, outer, true)?;
    let centred = b.sub(x, &mean)?;
    Ok(Moments { mean, var, centred })
}

/// The moments by two passes over the elements.
pub(super) fn moments_at_once(b: &mut dyn Build, x: &Traced, dims: &[usize]) -> OpResult<Moments> {
    let mean = b.reduce(OpId::Mean, x, dims, true)?;
    let centred = b.sub(x, &mean)?;
    let squares = b.mul(&centred, &centred)?;
    let var = b.reduce(OpId::Mean, &squares, dims, true)?;
    Ok(Moments { mean, var, centred })
}

/// The number of the last of `dims` that have the elements of a part, if the moments of parts are computed first. Parts have the same
/// number of elements, and they are neighbours in memory.
fn dims_of_part(shape: &[Dim], dims: &[usize]) -> Option<usize> {
    let sizes: Vec<i64> = dims.iter().map(|&d| shape[d].as_const()).collect::<Option<_>>()?;
    let all = sizes.iter().try_fold(1i64, |n, &s| n.checked_mul(s))?;
    let are_last = dims
        .iter()
        .rev()
        .zip((0..shape.len()).rev())
        .all(|(&d, last)| d == last);
    if all < LONG || !are_last {
        return None;
    }
    let mut size = 1;
    for inner in 1..dims.len() {
        size *= sizes[dims.len() - inner];
        if PART.contains(&size) {
            return Some(inner);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_rows_have_parts() {
        let shape = |sizes: &[i64]| sizes.iter().map(|&n| Dim::Const(n)).collect::<Vec<_>>();
        assert_eq!(dims_of_part(&shape(&[1, 16, 512, 512]), &[1, 2, 3]), Some(1));
        assert_eq!(dims_of_part(&shape(&[1, 4096, 16, 16]), &[1, 2, 3]), Some(2));
        assert_eq!(dims_of_part(&shape(&[8, 64, 28, 28]), &[1, 2, 3]), None);
        assert_eq!(dims_of_part(&shape(&[64, 16, 512, 512]), &[0, 2, 3]), None);
        assert_eq!(dims_of_part(&shape(&[4, 1 << 20]), &[1]), None);
    }
}
