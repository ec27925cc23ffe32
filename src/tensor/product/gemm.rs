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
    let (left, right) = (StridedMatrix::new(a, a_strides), StridedMatrix::new(b, b_strides));
    let out_row = out_row as isize;
    // SAFETY: the caller's contract.
    unsafe {
        // The kernels need columns without gaps, which the transposed product has.
        match out_row > 1 {
            true => multiply([n, m, k], right.transposed(), left.transposed(), out, [1, out_row]),
            false => multiply([m, n, k], left, right, out, [out_row, 1]),
        }
    }
}

/// A matrix in memory, with the strides between rows and between columns.
struct StridedMatrix {
    start: *const f64,
    row: isize,
    column: isize,
}

impl StridedMatrix {
    fn new(start: *const f64, [row, column]: [usize; 2]) -> StridedMatrix {
        StridedMatrix {
            start,
            row: row as isize,
            column: column as isize,
        }
    }

    fn transposed(self) -> StridedMatrix {
        StridedMatrix {
            row: self.column,
            column: self.row,
            ..self
        }
    }
}

/// `out = left @ right`, where `out` has the given strides between rows and between columns.
///
/// # Safety
/// The operands are valid for `[m, k]`, `[k, n]` and `[m, n]`.
unsafe fn multiply(
    [m, n, k]: [usize; 3],
    left: StridedMatrix,
    right: StridedMatrix,
    out: *mut f64,
    [out_row, out_column]: [isize; 2],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        gemm_f64::gemm::f64::get_gemm_fn()(
            m,
            n,
            k,
            out,
            out_column,
            out_row,
            false,
            left.start,
            left.column,
            left.row,
            right.start,
            right.column,
            right.row,
            0.0,
            1.0,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}
