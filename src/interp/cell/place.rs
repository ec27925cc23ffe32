//! Elements in the order that a layout gives them in memory.

use crate::op::view::{strided_positions, strided_rows};
use crate::tensor::{Tensor, contiguous_strides};

/// Copies the elements to their places by `strides`.
pub(super) fn place_elements(t: &Tensor, strides: &[i64], target: &mut [u8]) {
    match t.dtype().size() {
        1 => place_cells::<1>(t, strides, target),
        2 => place_cells::<2>(t, strides, target),
        4 => place_cells::<4>(t, strides, target),
        8 => place_cells::<8>(t, strides, target),
        _ => place_cells::<16>(t, strides, target),
    }
}

/// [`place_elements`] for elements of `N` bytes.
fn place_cells<const N: usize>(t: &Tensor, strides: &[i64], target: &mut [u8]) {
    let (source, target) = (t.bytes().as_chunks::<N>().0, target.as_chunks_mut::<N>().0);
    let own = contiguous_strides(t.shape());
    // In the order of the target, so that its elements are written one after the other.
    let mut order: Vec<usize> = (0..t.rank()).filter(|&d| t.shape()[d] != 1).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(strides[d]));
    let shape: Vec<usize> = order.iter().map(|&d| t.shape()[d]).collect();
    let steps: Vec<i64> = order.iter().map(|&d| own[d] as i64).collect();
    let dense = contiguous_strides(&shape);
    if (0..order.len()).all(|k| dense[k] as i64 == strides[order[k]]) {
        return strided_rows(&shape, 0, &steps, |first, base, n, step| {
            let row = target[first..first + n].iter_mut().enumerate();
            row.for_each(|(k, to)| *to = source[(base + k as i64 * step) as usize]);
        });
    }
    strided_positions(t.shape(), 0, strides, &mut |i, p| target[p] = source[i]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_element_is_at_its_place() {
        for (shape, strides) in [
            (vec![5, 3], vec![1, 5]),
            (vec![4, 1, 3], vec![3, 3, 1]),
            (vec![2, 3, 4], vec![4, 8, 1]),
            (vec![2, 3, 4, 5], vec![60, 1, 15, 3]),
            (vec![1, 3, 2], vec![17, 1, 3]),
        ] {
            let n: usize = shape.iter().product();
            let values: Vec<i64> = (0..n as i64).collect();
            let x = Tensor::from_slice(&shape, &values);
            let mut target = vec![0; 8 * n];
            place_elements(&x, &strides, &mut target);
            strided_positions(&shape, 0, &strides, &mut |i, p| {
                assert_eq!(target[8 * p..8 * p + 8], values[i].to_le_bytes(), "{shape:?} {i}");
            });
        }
    }
}
