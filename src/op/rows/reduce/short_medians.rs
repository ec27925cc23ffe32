//! Medians of many short lines, which are ordered together.

use crate::op::rows::fill::{copy_all, run_pairs, units_per_part, with_size};
use crate::op::rows::lines::DimLines;
use crate::op::rows::order::{ShortOrders, Ties};
use crate::parallel::Pool;
use crate::tensor::{Tensor, ViewMut, with_wide_vectors};
use crate::types::DType;

/// Writes the median of each line and its place. Returns false, and writes nothing, unless lines are short and many, and no element is
/// NaN.
pub(super) fn write_short_medians(
    t: &Tensor,
    lines: &DimLines,
    (values, indices): (&mut ViewMut<'_>, &mut [i64]),
    pool: &Pool,
) -> bool {
    let (n, inner) = (lines.len, lines.inner);
    if n == 1 {
        copy_all(t, values, pool);
        indices.fill(0);
        return true;
    }
    let middle = n.saturating_sub(1) / 2;
    if may_have_nan(t) {
        return false;
    }
    let Some(orders) = ShortOrders::new(t, lines, false, (middle..middle + 1, Ties::Stable), pool) else {
        return false;
    };
    let count = units_per_part(lines.outer * inner, n * t.dtype().size(), pool);
    with_size!(t.dtype().size(), N => {
        let (src, dst) = (t.bytes().as_chunks::<N>().0, values.bytes_mut().as_chunks_mut::<N>().0);
        run_pairs(pool, (dst, count), (indices, count), |part, values, indices| {
            let first = part * count;
            let (mut o, mut i) = (first / inner, first % inner);
            for (k, (value, index)) in values.iter_mut().zip(indices).enumerate() {
                let place = orders.place(first + k, 0);
                (*value, *index) = (src[(o * n + place) * inner + i], place as i64);
                i += 1;
                if i == inner {
                    (o, i) = (o + 1, 0);
                }
            }
        });
    });
    true
}

/// Whether an element is NaN, or of a dtype that is not looked at here.
fn may_have_nan(t: &Tensor) -> bool {
    match t.dtype() {
        DType::F32 => with_wide_vectors(|| t.as_slice::<f32>().iter().fold(false, |any, x| any | x.is_nan())),
        DType::F64 => with_wide_vectors(|| t.as_slice::<f64>().iter().fold(false, |any, x| any | x.is_nan())),
        d if d.is_half() => may_have_nan(&t.to(DType::F32)),
        d => !d.is_int(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::SplitMix;

    #[test]
    fn medians_are_the_middle_elements_of_sorted_lines() {
        let mut random = SplitMix::new(5);
        for [outer, n, inner] in [[50, 3, 1], [2, 4, 37], [1, 1, 60], [3, 9, 21]] {
            let x: Vec<f32> = (0..outer * n * inner)
                .map(|_| random.pick(&[1.0, -0.0, 0.0, 7.5, f32::INFINITY, -3.0]))
                .collect();
            let lines = DimLines { outer, len: n, inner };
            let t = Tensor::from_slice(&[outer, n, inner], &x);
            for threads in [1, 2] {
                let (mut values, mut indices) = (vec![0f32; outer * inner], vec![9; outer * inner]);
                let mut view = ViewMut::from_slice(&[outer, inner], &mut values).expect("a view");
                assert!(write_short_medians(
                    &t,
                    &lines,
                    (&mut view, &mut indices),
                    &Pool::new(threads)
                ));
                for line in 0..outer * inner {
                    let at = |k: usize| (line / inner * n + k) * inner + line % inner;
                    let mut order: Vec<usize> = (0..n).collect();
                    order.sort_by(|&a, &b| x[at(a)].partial_cmp(&x[at(b)]).expect("no NaN"));
                    let want = order[(n - 1) / 2];
                    assert_eq!(indices[line], want as i64);
                    assert_eq!(values[line].to_bits(), x[at(want)].to_bits());
                }
            }
        }
        let nan = Tensor::from_slice(&[40, 2], &[f32::NAN; 80]);
        let mut view_of = vec![0f32; 40];
        let mut view = ViewMut::from_slice(&[40], &mut view_of).expect("a view");
        let lines = DimLines::new(&[40, 2], 1);
        assert!(!write_short_medians(
            &nan,
            &lines,
            (&mut view, &mut [0; 40]),
            &Pool::new(1)
        ));
    }
}
