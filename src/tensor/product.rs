//! The matrix product that the reference computations share.

/// `out = a @ b` in f64, row-major without gaps, `a` being `m x k` and `b` being `k x n`. Panics if a length is not what
/// the sizes say.
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
    let (k_stride, n_stride) = (k as isize, n as isize);
    // SAFETY: the slices hold m*k, k*n and m*n elements, so that every index the strides give is within them; `out` is
    // borrowed mutably and overlaps neither operand.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            n_stride,
            false,
            a.as_ptr(),
            1,
            k_stride,
            b.as_ptr(),
            1,
            n_stride,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
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
