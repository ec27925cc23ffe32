//! Fusion and scheduling on tensor IR written out by hand.

use super::fuse::{Unit, fuse};
use super::ir::{Def, Tir, ValueId};
use super::schedule::schedule;
use crate::kernel::{Kernel, Stmt};
use crate::op::{Combine, IndexMap, Reduction};
use crate::scalar::{Binary, Expr, Unary};
use crate::types::{DType, TensorType, Val};
use std::sync::Arc;

fn arg_expr(n: u32, f: impl FnOnce(&mut Expr, &[crate::scalar::Ref]) -> crate::scalar::Ref) -> Expr {
    let mut e = Expr::new();
    let args: Vec<_> = (0..n).map(|i| e.arg(i, DType::F32)).collect();
    let root = f(&mut e, &args);
    e.roots.push(root);
    e
}

fn input(t: &mut Tir, shape: &[usize]) -> ValueId {
    let n = t.inputs.len();
    let v = t.push(DType::F32, shape, Def::Input(n)).unwrap();
    t.inputs.push((format!("x{n}").into(), Val::Leaf(v)));
    v
}

fn unary(t: &mut Tir, op: Unary, x: ValueId) -> ValueId {
    let shape = t.value(x).shape.clone();
    let expr = arg_expr(1, |e, a| e.unary(op, a[0]));
    t.push(DType::F32, &shape, Def::Pointwise { expr, args: vec![x] })
        .unwrap()
}

fn binary(t: &mut Tir, op: Binary, x: ValueId, y: ValueId) -> ValueId {
    let (a, b) = (t.value(x).shape.clone(), t.value(y).shape.clone());
    let dims = |s: &[usize]| s.iter().map(|&d| d.into()).collect::<Vec<crate::types::Dim>>();
    let shape = crate::types::broadcast_dims(&dims(&a), &dims(&b)).unwrap();
    let shape: Vec<usize> = shape.iter().map(|d| d.as_const().unwrap() as usize).collect();
    let expr = arg_expr(2, |e, a| e.binary(op, a[0], a[1]));
    t.push(DType::F32, &shape, Def::Pointwise { expr, args: vec![x, y] })
        .unwrap()
}

fn reduce(t: &mut Tir, combine: Combine, x: ValueId, dims: &[usize]) -> ValueId {
    let mut shape = t.value(x).shape.clone();
    dims.iter().for_each(|&d| shape[d] = 1);
    let same = arg_expr(1, |_, a| a[0]);
    let how = Arc::new(Reduction {
        operand: 0,
        dims: dims.to_vec(),
        keepdim: true,
        combine,
        pre: same.clone(),
        post: same,
        acc: DType::F32,
        out: TensorType::fixed(DType::F32, &shape),
    });
    t.push(
        DType::F32,
        &shape,
        Def::Reduce {
            arg: x,
            dims: dims.to_vec(),
            how,
        },
    )
    .unwrap()
}

fn softmax(t: &mut Tir, x: ValueId, dim: usize) -> ValueId {
    let max = reduce(t, Combine::Max, x, &[dim]);
    let shifted = binary(t, Binary::Sub, x, max);
    let exp = unary(t, Unary::Exp, shifted);
    let sum = reduce(t, Combine::Sum, exp, &[dim]);
    binary(t, Binary::Div, exp, sum)
}

fn kernels(t: &Tir) -> Vec<Kernel> {
    let f = fuse(t);
    let clusters = f.order.iter().filter_map(|u| match &f.units[u.as_u32() as usize] {
        Some(Unit::Cluster(c)) => Some(c),
        _ => None,
    });
    clusters
        .flat_map(|c| schedule(t, &f, c, "kernel").unwrap_or_else(|e| panic!("{e}")))
        .map(|s| s.kernel)
        .collect()
}

fn loops(body: &[Stmt]) -> usize {
    body.iter().filter(|s| matches!(s, Stmt::Loop(_))).count()
}

#[test]
fn softmax_is_one_kernel_of_three_loops() {
    let mut t = Tir::default();
    let x = input(&mut t, &[4, 8, 64]);
    let y = softmax(&mut t, x, 2);
    t.output = Some(Val::Leaf(y));
    let ks = kernels(&t);
    assert_eq!(ks.len(), 1);
    // The outer dims merge; the exponentials are kept in a row between the loops.
    assert_eq!(ks[0].parallel_extent(), 32);
    assert_eq!(loops(&ks[0].parallel_loop().unwrap().body), 3);
    assert!(ks[0].scratch_layout().1 >= 64 * 4);
}

#[test]
fn softmax_over_another_dim_runs_in_columns() {
    let mut t = Tir::default();
    let x = input(&mut t, &[16, 64]);
    let y = softmax(&mut t, x, 0);
    t.output = Some(Val::Leaf(y));
    let ks = kernels(&t);
    assert_eq!(ks.len(), 1);
    let outer = ks[0].parallel_loop().unwrap();
    assert!(outer.vector && ks[0].parallel_extent() == 64);
    assert_eq!(loops(&outer.body), 3);
}

#[test]
fn a_residual_joins_the_normalisation_that_reads_it_and_is_stored_once() {
    let mut t = Tir::default();
    let (a, b) = (input(&mut t, &[8, 32]), input(&mut t, &[8, 32]));
    let x = binary(&mut t, Binary::Add, a, b);
    let sum = reduce(&mut t, Combine::Sum, x, &[1]);
    let centred = binary(&mut t, Binary::Sub, x, sum);
    let square = binary(&mut t, Binary::Mul, centred, centred);
    let var = reduce(&mut t, Combine::Sum, square, &[1]);
    let inv = unary(&mut t, Unary::Rsqrt, var);
    let y = binary(&mut t, Binary::Mul, centred, inv);
    t.output = Some(Val::Tuple(vec![Val::Leaf(y), Val::Leaf(x)]));
    let ks = kernels(&t);
    assert_eq!(ks.len(), 1);
    assert_eq!(ks[0].params().count(), 4);
}

#[test]
fn a_path_through_another_unit_keeps_clusters_apart() {
    // y = x1 + transpose(x1): the transposed read is of a finished buffer.
    let mut t = Tir::default();
    let a = input(&mut t, &[8, 8]);
    let x = unary(&mut t, Unary::Exp, a);
    let swapped = IndexMap::Affine(vec![super::ir::same_dim(1), super::ir::same_dim(0)]);
    let v = t.view(x, swapped, &[8, 8]).unwrap();
    let y = binary(&mut t, Binary::Add, x, v);
    t.output = Some(Val::Leaf(y));
    assert_eq!(kernels(&t).len(), 2);
}

#[test]
fn keepdim_or_not_makes_no_difference() {
    let mut t = Tir::default();
    let x = input(&mut t, &[4, 6, 32]);
    let s = reduce(&mut t, Combine::Sum, x, &[2]);
    let flat = t.view(s, IndexMap::Reshape, &[4, 6]).unwrap();
    let e = unary(&mut t, Unary::Exp, flat);
    let wide = t.view(e, IndexMap::Reshape, &[4, 6, 1]).unwrap();
    let y = binary(&mut t, Binary::Mul, x, wide);
    t.output = Some(Val::Leaf(y));
    let ks = kernels(&t);
    assert_eq!(ks.len(), 1);
    assert_eq!(ks[0].params().count(), 2);
}

#[test]
fn reshapes_without_strides_are_copied() {
    let mut t = Tir::default();
    let x = input(&mut t, &[4, 6]);
    let swapped = IndexMap::Affine(vec![super::ir::same_dim(1), super::ir::same_dim(0)]);
    let v = t.view(x, swapped, &[6, 4]).unwrap();
    let flat = t.view(v, IndexMap::Reshape, &[24]).unwrap();
    // A transposed matrix has no one stride: its elements are written down in order first.
    let at = t.access(flat).unwrap();
    assert!(at.base != x && at.is_contiguous(&[24]), "{at:?}");
    assert_eq!(t.value(at.base).shape, [6, 4]);
    let y = unary(&mut t, Unary::Exp, flat);
    t.output = Some(Val::Leaf(y));
    assert_eq!(kernels(&t).len(), 2);
    // Of the matrix as it is, a flat view is only strides.
    let flat = t.view(x, IndexMap::Reshape, &[24]).unwrap();
    assert_eq!(t.access(flat).unwrap().base, x);
}
