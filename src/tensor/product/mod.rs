//! Products of f32 and f64 matrices: with the crate `gemm`, which is as fast as the processor, or without it in plain loops.

#[cfg(all(test, feature = "compiler"))]
mod loops;
mod parts;
#[cfg_attr(feature = "compiler", path = "gemm.rs")]
#[cfg_attr(not(feature = "compiler"), path = "loops.rs")]
mod strided;

pub(crate) use parts::{Factor, add_product, subtract_from_columns};

/// An element of matrices.
pub(crate) trait Product: Copy + 'static {
    /// `out = a @ b`, or with a factor, `out += factor * a @ b`, for sizes `[m, n, k]`, none of which is 0. The strides of the operands
    /// are those of their rows and columns, in elements. Rows of `out` are as far apart as its number says, and have no gaps.
    ///
    /// # Safety
    /// Every element that sizes and strides reach must be within its buffer, and `out` must overlap neither operand.
    unsafe fn product(
        sizes: [usize; 3],
        a: (*const Self, [usize; 2]),
        b: (*const Self, [usize; 2]),
        out: (*mut Self, usize),
        add: Option<Self>,
    );
}

/// `out = a @ b`, row-major without gaps, where `a` is `m x k` and `b` is `k x n`. Panics if a length does not match the
/// sizes.
pub(crate) fn matmul<T: Product + Default>(m: usize, k: usize, n: usize, a: &[T], b: &[T], out: &mut [T]) {
    let fits = |rows: usize, cols: usize, len: usize| rows.checked_mul(cols) == Some(len);
    assert!(
        fits(m, k, a.len()) && fits(k, n, b.len()) && fits(m, n, out.len()),
        "lengths of a matrix product"
    );
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        out.fill(T::default());
        return;
    }
    // SAFETY: the slices hold m*k, k*n and m*n elements, so every index that the strides yield is within them; `out` is
    // borrowed mutably and overlaps neither operand.
    unsafe {
        let (a, b) = ((a.as_ptr(), [k, 1]), (b.as_ptr(), [n, 1]));
        T::product([m, n, k], a, b, (out.as_mut_ptr(), n), None);
    }
}

/// [`matmul`] for f64.
pub(crate) fn matmul_f64(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], out: &mut [f64]) {
    matmul(m, k, n, a, b, out);
}

/// `out = a @ b` for sizes `[m, n, k]`, none of which is 0. The strides of the operands are those of their rows and
/// columns, in elements. Rows of `out` are `out_row` apart and have no gaps.
///
/// # Safety
/// Every element that sizes and strides reach must be within its buffer, and `out` must overlap neither operand.
pub(crate) unsafe fn matmul_f64_strided(
    sizes: [usize; 3],
    a: *const f64,
    a_strides: [usize; 2],
    b: *const f64,
    b_strides: [usize; 2],
    out: *mut f64,
    out_row: usize,
) {
    // SAFETY: the caller's contract.
    unsafe { f64::product(sizes, (a, a_strides), (b, b_strides), (out, out_row), None) }
}

#[cfg(test)]
mod tests {
    use super::{loops, matmul_f64};

    #[test]
    fn products_are_sums_of_products() {
        for (m, k, n) in [(1, 1, 1), (3, 5, 4), (17, 33, 9), (2, 0, 3)] {
            let a: Vec<f64> = (0..m * k).map(|i| (i % 7) as f64 - 3.0).collect();
            let b: Vec<f64> = (0..k * n).map(|i| (i % 5) as f64 - 2.0).collect();
            let mut out = vec![9.0; m * n];
            matmul_f64(m, k, n, &a, &b, &mut out);
            for (i, o) in out.iter().enumerate() {
                let want: f64 = (0..k).map(|p| a[i / n * k + p] * b[p * n + i % n]).sum();
                assert_eq!(*o, want);
            }
        }
    }

    #[test]
    fn loops_compute_the_same_for_all_strides() {
        let (m, n, k, out_row) = (5, 7, 6, 9);
        let a: Vec<f64> = (0..64).map(|i| (i % 7) as f64 - 3.0).collect();
        let b: Vec<f64> = (0..64).map(|i| (i % 5) as f64 - 2.0).collect();
        let operands = [[k, 1], [1, m], [8, 1]].map(|a| [[n, 1], [1, k], [0, 1], [1, 0]].map(|b| (a, b)));
        for ((a_strides, b_strides), add) in operands
            .as_flattened()
            .iter()
            .flat_map(|s| [(*s, None), (*s, Some(-2.0))])
        {
            let mut out = vec![9.0; m * out_row];
            // SAFETY: 64 elements are more than the strides reach, and `out` has its rows.
            unsafe {
                let (a, b) = ((a.as_ptr(), a_strides), (b.as_ptr(), b_strides));
                loops::product([m, n, k], a, b, (out.as_mut_ptr(), out_row), add);
            }
            for (i, o) in out.iter().enumerate() {
                let (row, column) = (i / out_row, i % out_row);
                let term = |p| a[row * a_strides[0] + p * a_strides[1]] * b[p * b_strides[0] + column * b_strides[1]];
                let sum = || (0..k).map(term).sum::<f64>();
                let want = match add {
                    _ if column >= n => 9.0,
                    Some(factor) => 9.0 + factor * sum(),
                    None => sum(),
                };
                assert_eq!(*o, want, "{a_strides:?} {b_strides:?} {i}");
            }
        }
    }
}
