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

    /// The matrix without its first `rows` rows.
    pub(crate) fn after_rows(self, rows: usize) -> Factor<'a, T> {
        Factor {
            start: self.start + rows * self.strides[0],
            ..self
        }
    }

    /// Whether the slice has all elements of a matrix of these sizes, which are not 0.
    pub(crate) fn holds(&self, rows: usize, columns: usize) -> bool {
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

/// Subtracts from the columns `columns` of all rows of a row-major matrix, which have `stride` elements, the product of the columns `known`
/// of these rows and `b`. Panics if the columns overlap, or if a part is not within its matrix.
pub(crate) fn subtract_from_columns<T: Product + std::ops::Neg<Output = T> + From<f32>>(
    v: &mut [T],
    stride: usize,
    columns: Range<usize>,
    known: Range<usize>,
    b: Factor<T>,
) {
    let sizes = [v.len() / stride.max(1), columns.len(), known.len()];
    if sizes.contains(&0) {
        return;
    }
    let apart = columns.end <= known.start || known.end <= columns.start;
    assert!(
        apart && columns.end.max(known.end) <= stride && b.holds(known.len(), columns.len()),
        "parts of a matrix product"
    );
    // SAFETY: all parts are within their matrices, and the factor from this matrix has other columns than the result.
    unsafe {
        let start = v.as_mut_ptr();
        let left = (start.add(known.start).cast_const(), [stride, 1]);
        let right = (b.v.as_ptr().add(b.start), b.strides);
        T::product(
            sizes,
            left,
            right,
            (start.add(columns.start), stride),
            Some(-T::from(1.0)),
        );
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
    fn products_of_columns_are_subtracted() {
        let a: Vec<f32> = (0..70).map(|i| (i % 7) as f32 - 3.0).collect();
        let mut out = a[30..].to_vec();
        subtract_from_columns(&mut out, 10, 4..9, 1..3, Factor::at(&a, 10, 1, 4));
        for (i, o) in out.iter().enumerate() {
            let (row, column) = (3 + i / 10, i % 10);
            let product: f32 = (1..3).map(|p| a[row * 10 + p] * a[p * 10 + column]).sum();
            let inside = (4..9).contains(&column);
            assert_eq!(*o, a[30 + i] - inside as u8 as f32 * product, "{i}");
        }
    }

    #[test]
    #[should_panic(expected = "parts of a matrix product")]
    fn overlapping_columns_are_refused() {
        subtract_from_columns(&mut [0.0; 70], 10, 2..7, 1..3, Factor::at(&[0.0; 70], 10, 0, 0));
    }
}
