//! Triangular equations of small matrices side by side.

use super::Interleaved;
use super::vectors::{divide, subtract_rows};
use crate::linalg::vectors::end_of_element;
use crate::tensor::wide_function;

wide_function! {
    /// Solves `A X = B` in place of `b`, where only a triangle of `a` counts, whose diagonal is 1 if `unit`.
    pub(in crate::linalg) fn solve_triangle = solve_triangle_body(a: &Interleaved, b: &mut Interleaved, upper: bool, unit: bool)
}

#[inline(always)]
fn solve_triangle_body(a: &Interleaved, b: &mut Interleaved, upper: bool, unit: bool) {
    let (n, r) = (a.columns, b.columns);
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        let row = match upper {
            true => {
                let (rest, known) = b.v.split_at_mut((i + 1) * r);
                let row = &mut rest[i * r..];
                subtract_rows(row, &a.v[i * n + i + 1..(i + 1) * n], known);
                row
            }
            false => {
                let (known, rest) = b.v.split_at_mut(i * r);
                let row = &mut rest[..r];
                subtract_rows(row, &a.v[i * n..i * n + i], known);
                row
            }
        };
        if !unit {
            for x in row.iter_mut() {
                divide(x, &a.v[i * n + i]);
                end_of_element();
            }
        }
    }
}
