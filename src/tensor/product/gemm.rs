//! Products with the crate `gemm`.

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
