//! Products of 16-bit floats of few rows, few columns or few product indices, and their tails.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Rows, columns and product indices; whether the operands are transposed; and the batch.
type Shape = ([usize; 3], [bool; 2], [usize; 2]);

const SHAPES: [Shape; 14] = [
    ([1, 300, 70], [false, false], [1, 1]),
    ([3, 600, 131], [false, false], [1, 1]),
    ([20, 261, 65], [false, false], [1, 1]),
    ([700, 100, 7], [false, false], [1, 1]),
    ([100, 70, 9], [true, true], [2, 1]),
    ([1000, 3, 3], [false, false], [1, 1]),
    ([1000, 3, 3], [true, true], [1, 1]),
    ([130, 5, 60], [false, true], [1, 1]),
    ([3, 3, 3], [false, false], [50, 7]),
    ([4, 1, 4], [false, false], [3, 40]),
    ([1, 64, 64], [false, false], [9, 1]),
    ([16, 16, 16], [false, true], [30, 1]),
    ([5, 90, 200], [false, true], [2, 1]),
    ([90, 5, 200], [false, false], [1, 2]),
];

fn case_of(([m, n, k], [a_transposed, b_transposed], batch): Shape, dtype: DType, addend: u8) -> Case {
    Case {
        dtype,
        batch,
        m,
        n,
        k,
        a_transposed,
        b_transposed,
        b_broadcast: addend == 3,
        constant: 0,
        addend,
        alpha: if addend == 2 { 2.0 } else { 1.0 },
        beta: if addend == 2 { -3.0 } else { 1.0 },
        activation: if addend == 1 {
            Activation::Relu
        } else {
            Activation::None
        },
        gap: if addend == 0 { 2 } else { 0 },
        seed: 11,
    }
}

#[test]
fn thin_products_agree() {
    let (one, two) = (Pool::new(1), Pool::new(2));
    for (shape, dtype) in SHAPES
        .into_iter()
        .flat_map(|s| [DType::BF16, DType::F16].map(|d| (s, d)))
    {
        for c in (0..4).map(|addend| case_of(shape, dtype, addend)) {
            let (desc, a, b, addend, want) = build(&c);
            for kernels in all_kernels() {
                let parts = (&desc, &a, &b, addend.as_ref());
                let (got, bytes) = run(&c, kernels, &one, parts);
                close(&got, &want, c.k as f64);
                assert_eq!(bytes, run(&c, kernels, &two, parts).1, "{shape:?}");
            }
        }
    }
}

/// A number that depends on an element's place.
fn place(batch: usize, row: usize, col: usize) -> u16 {
    (batch * 31 + row * 7 + col) as u16
}

/// Writes the place of each element.
unsafe extern "C" fn write_places(context: *const c_void, tile: *const Tile) {
    // SAFETY: the plan passes a finished tile of elements of 16 bits.
    unsafe {
        let (t, seen) = (&*tile, &*context.cast::<AtomicUsize>());
        seen.fetch_add(t.rows * t.cols, Ordering::Relaxed);
        for (i, j) in (0..t.rows).flat_map(|i| (0..t.cols).map(move |j| (i, j))) {
            *t.data.cast::<u16>().add(i * t.data_stride + j) = place(t.batch, t.row + i, t.col + j);
        }
    }
}

#[test]
fn tails_of_thin_products_see_every_element_once() {
    for (shape, dtype) in SHAPES
        .into_iter()
        .flat_map(|s| [DType::BF16, DType::F16].map(|d| (s, d)))
    {
        let c = case_of(shape, dtype, 1);
        let (desc, a, b, addend, _) = build(&c);
        let plan = plan(all_kernels()[0], Precision::F32, &desc, MatMulConstants::default()).expect("a plan");
        let matrices = c.batch[0] * c.batch[1];
        let mut out = vec![0u16; matrices * c.m * c.n];
        let seen = AtomicUsize::new(0);
        let args = MatMulArgs {
            a: a.bytes().as_ptr(),
            b: b.bytes().as_ptr(),
            addend: addend.as_ref().map_or(std::ptr::null(), |t| t.bytes().as_ptr()),
            c: out.as_mut_ptr().cast(),
            tail: Some(TileTail::new(write_places, (&raw const seen).cast())),
        };
        // SAFETY: the operands hold the descriptor's extents.
        unsafe { plan.run(&Pool::new(2), &args) };
        assert_eq!(seen.into_inner(), out.len(), "{shape:?}");
        for (i, got) in out.into_iter().enumerate() {
            let (row, col) = (i / c.n % c.m, i % c.n);
            assert_eq!(got, place(i / (c.m * c.n), row, col), "{shape:?} element {i}");
        }
    }
}
