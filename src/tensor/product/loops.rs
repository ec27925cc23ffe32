//! Products in plain loops, for builds without the crate `gemm`.

/// `out = a @ b`: see [`matmul_f64_strided`](super::matmul_f64_strided).
///
/// # Safety
/// As there.
pub(super) unsafe fn product(
    [m, n, k]: [usize; 3],
    a: *const f64,
    a_strides: [usize; 2],
    b: *const f64,
    b_strides: [usize; 2],
    out: *mut f64,
    out_row: usize,
) {
    for i in 0..m {
        // SAFETY: the caller's contract; rows of `out` do not overlap.
        unsafe {
            let row = std::slice::from_raw_parts_mut(out.add(i * out_row), n);
            row.fill(0.0);
            let a = a.add(i * a_strides[0]);
            match b_strides[1] {
                1 => add_rows(row, k, a, a_strides[1], b, b_strides[0]),
                _ => add_columns(row, k, (a, a_strides[1]), b, b_strides),
            }
        }
    }
}

/// Adds `a[p] * b[p, ..]` for all `p`, where rows of `b` have no gaps: the loop over a row is vectorised.
///
/// # Safety
/// `a` has `k` elements and `b` has `k` rows as long as `row`.
unsafe fn add_rows(row: &mut [f64], k: usize, a: *const f64, a_stride: usize, b: *const f64, b_row: usize) {
    for p in 0..k {
        // SAFETY: the caller's contract.
        let (x, terms) = unsafe {
            let terms = std::slice::from_raw_parts(b.add(p * b_row), row.len());
            (*a.add(p * a_stride), terms)
        };
        row.iter_mut().zip(terms).for_each(|(y, t)| *y += x * t);
    }
}

/// Adds `a[p] * b[p, j]` for all `p`, element by element.
///
/// # Safety
/// As for [`add_rows`], with elements of a row of `b` as far apart as its second stride says.
unsafe fn add_columns(row: &mut [f64], k: usize, a: (*const f64, usize), b: *const f64, b_strides: [usize; 2]) {
    for (j, y) in row.iter_mut().enumerate() {
        for p in 0..k {
            // SAFETY: the caller's contract.
            *y += unsafe { *a.0.add(p * a.1) * *b.add(p * b_strides[0] + j * b_strides[1]) };
        }
    }
}
