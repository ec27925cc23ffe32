//! Loop nests that copy transposed tiles, compared with the interpreter.

use super::*;
use crate::codegen::analysis::transposed_copy;
use crate::kernel::{KernelBuilder, Stmt};
use crate::scalar::Binary;
use crate::types::DType::*;

/// The sizes of a kernel's tiles: how many tiles, and the rows and columns of one.
type Tiles = [usize; 3];

/// A kernel over `tiles`. The source is read along its rows, from the last to the first if `backwards`. With `double`, the
/// tile goes through scratch memory, and the result is twice its elements.
fn transpose(d: DType, [count, rows, columns]: Tiles, backwards: bool, double: bool) -> Kernel {
    let mut k = KernelBuilder::new(format!("transpose_{d}_{rows}x{columns}_{backwards}_{double}"));
    let x = k.input("x", d, &[columns, count * rows]);
    let out = k.output("out", d, &[count * rows, columns]);
    let tile = k.local("tile", d, &[rows, columns]);
    let all = (count * rows) as i64;
    k.parallel(&[count], |k, t| {
        let from = |r, c| match backwards {
            true => c * all - t[0] * rows as i64 - r + (all - 1),
            false => c * all + t[0] * rows as i64 + r,
        };
        let to = |r, c| t[0] * (rows * columns) as i64 + r * columns as i64 + c;
        k.serial(rows, |k, r| {
            k.vector(columns, |k, c| {
                let v = k.load(x, from(r, c));
                match double {
                    true => k.store(tile, r * columns as i64 + c, v),
                    false => k.store(out, to(r, c), v),
                }
            });
        });
        if double {
            k.serial(rows, |k, r| {
                k.vector(columns, |k, c| {
                    let v = k.load(tile, r * columns as i64 + c);
                    let v = k.binary(Binary::Add, v, v);
                    k.store(out, to(r, c), v);
                });
            });
        }
    });
    k.finish().unwrap_or_else(|e| panic!("{e}"))
}

/// Whether the first nest in the parallel loop becomes a call.
fn is_recognised(k: &Kernel) -> bool {
    let body = k.parallel_loop().map(|l| &l.body[..]);
    matches!(body, Some([Stmt::Loop(l), ..]) if transposed_copy(k, l).is_some())
}

#[test]
fn transposed_copies_move_every_element() {
    let mut r = Rng::new(5);
    for d in [U8, B8, I16, BF16, F16, I32, F32, I64, F64] {
        for tiles in [[3, 16, 16], [2, 64, 17], [5, 8, 70], [1, 33, 64]] {
            for backwards in [false, true] {
                let k = transpose(d, tiles, backwards, false);
                assert!(is_recognised(&k), "{}", k.name);
                check(&k, &[r.tensor(d, tiles.iter().product())], 0);
            }
        }
    }
}

#[test]
fn transposed_operands_go_through_scratch_memory() {
    let mut r = Rng::new(6);
    for d in [U8, I32, F32, I64, F64] {
        for backwards in [false, true] {
            let tiles = [3, 32, 48];
            let k = transpose(d, tiles, backwards, true);
            assert!(is_recognised(&k), "{}", k.name);
            check(&k, &[r.tensor(d, tiles.iter().product())], 0);
        }
    }
}

#[test]
fn a_nest_that_computes_or_reads_rows_is_no_transposed_copy() {
    let d = F32;
    let nest = |stride: i64, double: bool| {
        let mut k = KernelBuilder::new("nest");
        let (x, out) = (k.input("x", d, &[4096]), k.output("out", d, &[32 * 32]));
        k.parallel(&[1], |k, _| {
            k.serial(32, |k, r| {
                k.vector(32, |k, c| {
                    let mut v = k.load(x, r * (33 - stride) + c * stride);
                    if double {
                        v = k.binary(Binary::Add, v, v);
                    }
                    k.store(out, r * 32 + c, v);
                });
            });
        });
        k.finish().unwrap_or_else(|e| panic!("{e}"))
    };
    assert!(is_recognised(&nest(32, false)));
    assert!(!is_recognised(&nest(32, true)), "computes");
    assert!(!is_recognised(&nest(1, false)), "reads rows");
    assert!(!is_recognised(&nest(31, false)), "is contiguous along neither dim");
}
