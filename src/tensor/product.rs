//! The matrix product that the reference computations use.

/// `out = a @ b` in f64, row-major without gaps, where `a` is `m x k` and `b` is `k x n`. Panics if a length does not
/// match the sizes.
pub fn matmul_f64(m: usize, k: usize, n: usize, a: &[f64], b: &[f64], out: &mut [f64]) {
    let fits = |rows: usize, cols: usize, len: usize| rows.checked_mul(cols) == Some(len);
    assert!(
        fits(m, k, a.len()) && fits(k, n, b.len()) && fits(m, n, out.len()),
        "lengths of a matrix product"
    );
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        out.fill(0.0);
        return;
    }
    // SAFETY: the slices hold m*k, k*n and m*n elements, so every index that the strides yield is within them; `out` is
    // borrowed mutably and overlaps neither operand.
    unsafe { matmul_f64_strided([m, n, k], a.as_ptr(), [k, 1], b.as_ptr(), [n, 1], out.as_mut_ptr(), n) }
}

/// `out = a @ b` for sizes `[m, n, k]`, none of which is 0. The strides of the operands are those of their rows and
/// columns, in elements. Rows of `out` are `out_row` apart and have no gaps.
///
/// # Safety
/// Every element that sizes and strides reach must be within its buffer, and `out` must overlap neither operand.
pub unsafe fn matmul_f64_strided(
    [m, n, k]: [usize; 3],
    a: *const f64,
    a_strides: [usize; 2],
    b: *const f64,
    b_strides: [usize; 2],
    out: *mut f64,
    out_row: usize,
) {
    let signed = |[row, column]: [usize; 2]| [row as isize, column as isize];
    let swapped = |(pointer, [row, column]): (*const f64, [isize; 2])| (pointer, [column, row]);
    let (left, right, out_row) = ((a, signed(a_strides)), (b, signed(b_strides)), out_row as isize);
    // The kernels need columns without gaps, which the transposed product has.
    let (m, n, left, right, out_strides) = match out_row > 1 {
        true => (n, m, swapped(right), swapped(left), [1, out_row]),
        false => (m, n, left, right, [out_row, 1]),
    };
    // SAFETY: the caller's contract.
    unsafe {
        gemm_f64::gemm::f64::get_gemm_fn()(
            m,
            n,
            k,
            out,
            out_strides[1],
            out_strides[0],
            false,
            left.0,
            left.1[1],
            left.1[0],
            right.0,
            right.1[1],
            right.1[0],
            0.0,
            1.0,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::matmul_f64;

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
}
