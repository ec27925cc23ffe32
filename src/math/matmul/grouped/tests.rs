//! Grouped products of integers, whose sums are exact in every dtype.

use super::groups::{find_by_ends, find_by_names};
use super::*;
use crate::math::contract::Grouping;
use crate::math::pairs::tests::all_kernels;
use crate::tensor::Tensor;

/// The number of rows. One of them belongs to no group, and one group has none.
const ROWS: usize = 60;

const ENDS: [i64; 5] = [1, 9, 9, 58, 59];

fn number(i: usize) -> f32 {
    (i * 7 % 11) as f32 - 5.0
}

/// The matrix of a row, if it has one.
fn matrix_of(d: &Grouped, row: usize) -> Option<usize> {
    match d.grouping {
        Grouping::Ends => ENDS.iter().position(|&end| (row as i64) < end),
        Grouping::Names { .. } => Some(row * row % (d.groups - 1)),
    }
}

/// The product by a formula.
fn expected(d: &Grouped, x: &[f32], w: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; d.rows * d.n];
    for (row, out) in out.chunks_exact_mut(d.n).enumerate() {
        let Some(matrix) = matrix_of(d, row) else { continue };
        for (j, o) in out.iter_mut().enumerate() {
            let at = |p: usize| matrix * d.b[0] + p * d.b[1] + j * d.b[2];
            *o = (0..d.k).map(|p| x[row * d.k + p] * w[at(p)]).sum();
        }
    }
    out
}

/// The integers that tell the groups.
fn integers(d: &Grouped) -> Vec<i64> {
    match d.grouping {
        Grouping::Ends => ENDS.to_vec(),
        Grouping::Names { wrap } => {
            let name = |row: usize| matrix_of(d, row).unwrap_or(0) as i64 - if wrap { d.groups as i64 } else { 0 };
            (0..d.rows).map(name).collect()
        }
    }
}

fn check(d: &Grouped, pairs: PairKernels, precision: Precision, constant: bool, threads: usize) {
    let x: Vec<f32> = (0..d.rows * d.k).map(number).collect();
    let w: Vec<f32> = (0..d.groups * d.k * d.n).map(|i| number(3 * i)).collect();
    let tensor = |values: &[f32]| Tensor::from_slice(&[values.len()], values).to(d.dtype);
    let (a, b, told) = (tensor(&x), tensor(&w), integers(d));
    let told = Tensor::from_slice(&[told.len()], &told).to(d.integers);
    // What the memory of the result held before does not matter.
    let mut out = tensor(&vec![7.0; d.rows * d.n]);
    let plan = plan(pairs, precision, d, constant.then(|| b.bytes().into())).expect("a valid product");
    let args = GroupedArgs {
        a: a.bytes().as_ptr(),
        b: b.bytes().as_ptr(),
        integers: told.bytes().as_ptr(),
        c: out.bytes_mut().as_mut_ptr(),
    };
    // SAFETY: the operands have the sizes of the descriptor.
    unsafe { plan.run(&Pool::new(threads), &args) }.expect("valid groups");
    let (got, method) = (out.to(DType::F32), plan.describe());
    let want = tensor(&expected(d, &x, &w)).to(DType::F32);
    assert_eq!(
        got.as_slice::<f32>(),
        want.as_slice::<f32>(),
        "{d:?} {method}, {threads} threads"
    );
}

#[test]
fn products_of_groups_are_exact_in_small_integers() {
    let types = [DType::F32, DType::BF16, DType::F16];
    let sizes = [(1, 1), (7, 5), (16, 40), (37, 100), (64, 33)];
    for (i, (k, n)) in sizes.into_iter().enumerate() {
        for (dtype, transposed) in types.into_iter().flat_map(|d| [(d, false), (d, true)]) {
            let desc = Grouped {
                dtype,
                integers: if transposed { DType::I32 } else { DType::I64 },
                grouping: Grouping::Ends,
                groups: ENDS.len(),
                rows: ROWS,
                n,
                k,
                b: if transposed { [k * n, 1, k] } else { [k * n, n, 1] },
            };
            for pairs in all_kernels() {
                let precision = if i % 2 == 0 { Precision::F32 } else { Precision::Bf16 };
                check(&desc, pairs, precision, true, 1 + i % 3);
                check(&desc, pairs, Precision::F32, false, 1 + i % 2);
                let grouping = Grouping::Names { wrap: transposed };
                check(
                    &Grouped {
                        grouping,
                        ..desc.clone()
                    },
                    pairs,
                    precision,
                    true,
                    1 + i % 2,
                );
            }
        }
    }
}

#[test]
fn integers_that_tell_no_groups_are_errors() {
    let by_ends = |ends: &[i64]| find_by_ends(ends.iter().copied(), 4);
    assert_eq!(by_ends(&[0, 3, 3]).map(|g| (g.groups.len(), g.used)), Ok((1, 3)));
    for ends in [[1, 0], [-1, 4], [2, 5], [i64::MIN, i64::MAX]] {
        assert_eq!(by_ends(&ends), Err(InvalidGroups::Ends), "{ends:?}");
    }
    let by_names = |names: &[i64], wrap| find_by_names(names.iter().copied(), 3, wrap);
    for (names, wrap) in [
        ([0, 3], true),
        ([-1, 0], false),
        ([-4, 0], true),
        ([i64::MIN, 0], true),
        ([i64::MAX, 0], true),
    ] {
        assert_eq!(by_names(&names, wrap), Err(InvalidGroups::Name), "{names:?}");
    }
}

#[test]
fn rows_are_copied_only_if_a_group_is_in_pieces() {
    let by_names = |names: &[i64]| find_by_names(names.iter().copied(), 3, true).unwrap();
    let whole = by_names(&[2, 2, 0]);
    let group = |rows, matrix| Group { rows, matrix };
    assert_eq!(
        (whole.groups, whole.order),
        (vec![group(2..3, 0), group(0..2, 2)], None)
    );
    let pieces = by_names(&[2, 0, -1]);
    assert_eq!(pieces.groups, [group(0..1, 0), group(1..3, 2)]);
    assert_eq!(pieces.order, Some(vec![1, 0, 2]));
}
