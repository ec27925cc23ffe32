//! Products of small matrices side by side.

use super::Interleaved;
use crate::linalg::LANES;
use crate::tensor::wide_function;

wide_function! {
    /// `out = a b`.
    pub(super) fn multiply = multiply_body(a: &Interleaved, b: &Interleaved, out: &mut Interleaved)
}

#[inline(always)]
fn multiply_body(a: &Interleaved, b: &Interleaved, out: &mut Interleaved) {
    let (n, r) = (a.columns, b.columns);
    (out.rows, out.columns) = (a.rows, r);
    out.v.clear();
    for i in 0..a.rows {
        for j in 0..r {
            let mut sum = [0.0; LANES];
            for k in 0..n {
                let (x, y) = (&a.v[i * n + k], &b.v[k * r + j]);
                for l in 0..LANES {
                    sum[l] += x[l] * y[l];
                }
            }
            out.v.push(sum);
        }
    }
}
