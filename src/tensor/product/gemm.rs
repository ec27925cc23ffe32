//! Products with the crate `gemm`.

use super::Product;
use gemm_common::Parallelism;

/// A matrix in memory, with the strides between rows and between columns.
struct StridedMatrix<T> {
    start: *const T,
    row: isize,
    column: isize,
}

impl<T> StridedMatrix<T> {
    fn new((start, [row, column]): (*const T, [usize; 2])) -> StridedMatrix<T> {
        StridedMatrix {
            start,
            row: row as isize,
            column: column as isize,
        }
    }

    fn transposed(self) -> StridedMatrix<T> {
        StridedMatrix {
            row: self.column,
            column: self.row,
            ..self
        }
    }
}

macro_rules! product {
    ($t:ty, $gemm:path) => {
        impl Product for $t {
            unsafe fn product(
                [m, n, k]: [usize; 3],
                a: (*const $t, [usize; 2]),
                b: (*const $t, [usize; 2]),
                (out, out_row): (*mut $t, usize),
                add: Option<$t>,
            ) {
                let (a, b, row) = (StridedMatrix::new(a), StridedMatrix::new(b), out_row as isize);
                // The kernels need columns without gaps, which the transposed product has.
                let (m, n, a, b, [row, column]) = match row > 1 {
                    true => (n, m, b.transposed(), a.transposed(), [1, row]),
                    false => (m, n, a, b, [row, 1]),
                };
                let (kept, factor) = add.map_or((0.0, 1.0), |factor| (1.0, factor));
                // SAFETY: the caller's contract.
                unsafe {
                    $gemm()(
                        m,
                        n,
                        k,
                        out,
                        column,
                        row,
                        add.is_some(),
                        a.start,
                        a.column,
                        a.row,
                        b.start,
                        b.column,
                        b.row,
                        kept,
                        factor,
                        false,
                        false,
                        false,
                        Parallelism::None,
                    );
                }
            }
        }
    };
}

product!(f32, gemm_f32::gemm::f32::get_gemm_fn);
product!(f64, gemm_f64::gemm::f64::get_gemm_fn);
