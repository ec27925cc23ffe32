//! Products of parts of matrices, which are added to parts of matrices.

use super::Product;
use std::ops::Range;

/// A matrix within a slice: where its first element is, and the strides between rows and between columns.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a, T> {
    /// The elements.
    pub v: &'a [T],
    /// The index of the first element.
    pub start: usize,
    /// The strides between rows and between columns.
    pub strides: [usize; 2],
}

impl<'a, T> Factor<'a, T> {
    /// The part of a row-major matrix of rows of `stride` elements that begins at `row` and `column`.
    pub(crate) fn at(v: &'a [T], stride: usize, row: usize, column: usize) -> Factor<'a, T> {
        Factor {
            v,
            start: row * stride + column,
            strides: [stride, 1],
        }
    }

    /// The transposed matrix.
    pub(crate) fn transposed(self) -> Factor<'a, T> {
        let [row, column] = self.strides;
        Factor {
            strides: [column, row],
            ..self
        }
    }

    /// Whether the slice has all elements of a matrix of these sizes, which are not 0.
    fn holds(&self, rows: usize, columns: usize) -> bool {
        reaches(self.start, self.strides, rows, columns).is_some_and(|last| last < self.v.len())
    }
}

/// The index of the last element of a matrix of these sizes, which are not 0.
fn reaches(start: usize, strides: [usize; 2], rows: usize, columns: usize) -> Option<usize> {
    let down = strides[0].checked_mul(rows - 1)?;
    let right = strides[1].checked_mul(columns - 1)?;
    start.checked_add(down)?.checked_add(right)
}

/// `out += factor * a @ b` for sizes `[m, n, k]`, where `out` begins at an index and has rows that are `out_row` apart. Panics if a slice
/// is too short.
pub(crate) fn add_product<T: Product>(
    [m, n, k]: [usize; 3],
    factor: T,
    a: Factor<T>,
    b: Factor<T>,
    (out, start, out_row): (&mut [T], usize, usize),
) {
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    let inside = reaches(start, [out_row, 1], m, n).is_some_and(|last| last < out.len());
    assert!(
        a.holds(m, k) && b.holds(k, n) && inside && n <= out_row,
        "parts of a matrix product"
    );
    // SAFETY: all parts are within their slices, and rows of `out`, which is borrowed mutably, do not overlap.
    unsafe {
        let (x, y) = (a.v.as_ptr().add(a.start), b.v.as_ptr().add(b.start));
        let to = (out.as_mut_ptr().add(start), out_row);
        T::product([m, n, k], (x, a.strides), (y, b.strides), to, Some(factor));
    }
}

/// Subtracts, within a row-major matrix of rows of `stride` elements, the product of the columns `known` of `rows`, and the rows `known` of
/// `columns`, from the rows and columns. Panics if `known` overlaps one of them, or if a part is not within the matrix.
pub(crate) fn subtract_within<T: Product + std::ops::Neg<Output = T> + From<f32>>(
    v: &mut [T],
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    known: Range<usize>,
) {
    let sizes = [rows.len(), columns.len(), known.len()];
    if sizes.contains(&0) {
        return;
    }
    let apart = |r: &Range<usize>| r.end <= known.start || known.end <= r.start;
    let inside = |rows: &Range<usize>, columns: &Range<usize>| {
        columns.end <= stride && rows.end.checked_mul(stride).is_some_and(|end| end <= v.len())
    };
    assert!(
        apart(&rows) && apart(&columns) && inside(&rows, &columns) && inside(&known, &known),
        "parts of a matrix product"
    );
    // SAFETY: all parts are within the matrix. The factors have columns that the result has not, or rows.
    unsafe {
        let start = v.as_mut_ptr();
        let at = |row: usize, column: usize| start.add(row * stride + column);
        let left = (at(rows.start, known.start).cast_const(), [stride, 1]);
        let right = (at(known.start, columns.start).cast_const(), [stride, 1]);
        let out = (at(rows.start, columns.start), stride);
        T::product(sizes, left, right, out, Some(-T::from(1.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_added_to_parts() {
        let a: Vec<f64> = (0..80).map(|i| (i % 7) as f64 - 3.0).collect();
        let b: Vec<f64> = (0..80).map(|i| (i % 5) as f64 - 2.0).collect();
        let mut out = vec![1.0; 80];
        let (left, right) = (Factor::at(&a, 10, 2, 1), Factor::at(&b, 10, 1, 3).transposed());
        add_product([3, 4, 5], 2.0, left, right, (&mut out, 21, 10));
        for (i, o) in out.iter().enumerate() {
            let (row, column) = (i / 10, i % 10);
            let want = match (row.checked_sub(2), column.checked_sub(1)) {
                (Some(i), Some(j)) if i < 3 && j < 4 => {
                    let term = |p: usize| a[(2 + i) * 10 + 1 + p] * b[(1 + j) * 10 + 3 + p];
                    1.0 + 2.0 * (0..5).map(term).sum::<f64>()
                }
                _ => 1.0,
            };
            assert_eq!(*o, want, "{i}");
        }
    }

    #[test]
    fn products_within_a_matrix_are_subtracted() {
        let a: Vec<f32> = (0..70).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut out = a.clone();
        subtract_within(&mut out, 10, 3..7, 4..9, 1..3);
        for (i, o) in out.iter().enumerate() {
            let (row, column) = (i / 10, i % 10);
            let inside = (3..7).contains(&row) && (4..9).contains(&column);
            let product: f32 = (1..3).map(|p| a[row * 10 + p] * a[p * 10 + column]).sum();
            assert_eq!(*o, a[i] - inside as u8 as f32 * product, "{i}");
        }
    }

    #[test]
    #[should_panic(expected = "parts of a matrix product")]
    fn overlapping_parts_are_refused() {
        subtract_within(&mut [0.0; 70], 10, 2..7, 4..9, 1..3);
    }
}
