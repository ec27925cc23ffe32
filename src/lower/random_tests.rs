//! Tests lowered programs against their tensor IR, on random graphs.
//!
//! The kernels run in the kernel interpreter, so this tests fusion, scheduling, views and the memory plan. Code
//! generation has its own tests.

use super::ir::access::resolve_access;
use super::ir::{Def, Tir, ValueId};
use super::lower_tir;
use crate::kernel::interpret;
use crate::op::{AffineIndex, Combine, IndexMap, Reduction};
use crate::program::{BufferPlace, Program, Step};
use crate::scalar::{Binary, ScalarExpr, ScalarOp, Unary};
use crate::types::{DType, TensorType, Val};
use proptest::prelude::*;
use std::sync::Arc;

/// A stream of small numbers that determines a random graph.
struct Dice<'a>(&'a [u8], usize);

impl Dice<'_> {
    fn roll(&mut self, n: usize) -> usize {
        let x = self.0[self.1 % self.0.len()] as usize + self.1 / self.0.len() * 7;
        self.1 += 1;
        x % n.max(1)
    }
}

fn pointwise(
    t: &mut Tir,
    n: u32,
    shape: &[usize],
    args: Vec<ValueId>,
    f: impl FnOnce(&mut ScalarExpr, &[crate::scalar::Ref]) -> crate::scalar::Ref,
) -> ValueId {
    let mut expr = ScalarExpr::new();
    let refs: Vec<_> = (0..n).map(|i| expr.arg(i, DType::F32)).collect();
    let root = f(&mut expr, &refs);
    expr.roots.push(root);
    let expr = expr.into();
    t.push(DType::F32, shape, Def::Pointwise { expr, args }).unwrap()
}

fn random_value(t: &mut Tir, d: &mut Dice, known: &[ValueId]) -> ValueId {
    let x = known[known.len() - 1 - d.roll(known.len().min(6))];
    let shape = t.value(x).shape.clone();
    match d.roll(9) {
        0 => {
            let op = [Unary::Neg, Unary::Abs, Unary::Sigmoid][d.roll(3)];
            pointwise(t, 1, &shape, vec![x], |e, a| e.unary(op, a[0]))
        }
        1..=3 => {
            let op = [Binary::Add, Binary::Sub, Binary::Max][d.roll(3)];
            let fits = |y: &ValueId| {
                let s = &t.value(*y).shape;
                s.len() <= shape.len() && s.iter().rev().zip(shape.iter().rev()).all(|(&a, &b)| a == b || a == 1)
            };
            let others: Vec<ValueId> = known.iter().copied().filter(fits).collect();
            let y = others[d.roll(others.len())];
            pointwise(t, 2, &shape, vec![x, y], |e, a| e.binary(op, a[0], a[1]))
        }
        4 | 5 if !shape.is_empty() => {
            let dims: Vec<usize> = (0..shape.len()).filter(|_| d.roll(2) == 0).collect();
            let dims = if dims.is_empty() { vec![shape.len() - 1] } else { dims };
            let keep = d.roll(2) == 0;
            reduce(t, [Combine::Sum, Combine::Max][d.roll(2)], x, &dims, keep)
        }
        6 if shape.len() >= 2 => {
            let (a, b) = (d.roll(shape.len()), d.roll(shape.len()));
            let mut order: Vec<usize> = (0..shape.len()).collect();
            order.swap(a, b);
            let to: Vec<usize> = order.iter().map(|&o| shape[o]).collect();
            let mut dims = vec![AffineIndex::default(); shape.len()];
            order.iter().enumerate().for_each(|(i, &o)| dims[o].terms.push((i, 1)));
            t.view(x, IndexMap::Affine(dims), &to).unwrap()
        }
        7 if !shape.is_empty() => {
            // Every other element of one dim, starting at the first or second.
            let at = d.roll(shape.len());
            let first = d.roll(2).min(shape[at] - 1);
            let mut to = shape.clone();
            to[at] = (shape[at] - first).div_ceil(2);
            let index = |i: usize| AffineIndex {
                offset: if i == at { first as i64 } else { 0 },
                terms: vec![(i, if i == at { 2 } else { 1 })],
            };
            t.view(x, IndexMap::Affine((0..shape.len()).map(index).collect()), &to)
                .unwrap()
        }
        _ => {
            let n: usize = shape.iter().product();
            let to = match d.roll(4) {
                0 => vec![n],
                1 => [&shape[..], &[1]].concat(),
                2 => [&[1], &shape[..]].concat(),
                _ => shape.iter().copied().filter(|&s| s != 1).collect(),
            };
            if to.len() > 4 {
                x
            } else {
                t.view(x, IndexMap::Reshape, &to).unwrap()
            }
        }
    }
}

fn reduce(t: &mut Tir, combine: Combine, x: ValueId, dims: &[usize], keep: bool) -> ValueId {
    let mut shape = t.value(x).shape.clone();
    dims.iter().for_each(|&d| shape[d] = 1);
    let mut same = ScalarExpr::new();
    let a = same.arg(0, DType::F32);
    same.roots.push(a);
    let out = TensorType::with_fixed_shape(DType::F32, &shape);
    let reduction = Reduction {
        operand: 0,
        dims: dims.to_vec(),
        keepdim: true,
        combine,
        pre: same.clone(),
        post: same,
        acc: DType::F32,
        out,
    };
    let v = t
        .push(
            DType::F32,
            &shape,
            Def::Reduce {
                arg: x,
                dims: dims.to_vec(),
                reduction: Arc::new(reduction),
            },
        )
        .unwrap();
    if keep {
        return v;
    }
    let to: Vec<usize> = shape
        .iter()
        .enumerate()
        .filter(|(d, _)| !dims.contains(d))
        .map(|(_, &s)| s)
        .collect();
    t.view(v, IndexMap::Reshape, &to).unwrap()
}

fn random_graph(bytes: &[u8]) -> Tir {
    let mut d = Dice(bytes, 0);
    let mut t = Tir::default();
    if d.roll(2) == 0 {
        // Split every kernel that has few iterations.
        (t.limits.long, t.limits.part) = (0.0, 20.0);
    }
    if d.roll(3) == 0 {
        t.limits.small = 0.0;
    }
    let mut known = vec![];
    for i in 0..1 + d.roll(2) {
        let shape: Vec<usize> = (0..d.roll(4)).map(|_| [1, 2, 3, 5, 8][d.roll(5)]).collect();
        let v = t.push(DType::F32, &shape, Def::Input(i)).unwrap();
        t.inputs.push((format!("x{i}").into(), Val::Leaf(v)));
        known.push(v);
    }
    for _ in 0..3 + d.roll(12) {
        let v = random_value(&mut t, &mut d, &known);
        known.push(v);
    }
    let outs: Vec<Val<ValueId>> = (0..1 + d.roll(3))
        .map(|i| Val::Leaf(known[known.len() - 1 - i.min(known.len() - 1)]))
        .collect();
    t.output = Some(Val::Tuple(outs));
    t
}

/// The elements of every value, computed value by value.
fn evaluate(t: &Tir, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut all: Vec<Vec<f32>> = vec![];
    for i in 0..t.values.len() {
        let v = ValueId(i as u32);
        let def = t.value(v);
        let n = def.numel();
        let index = |mut i: usize, shape: &[usize]| {
            let mut at = vec![0; shape.len()];
            for d in (0..shape.len()).rev() {
                at[d] = i % shape[d];
                i /= shape[d];
            }
            at
        };
        let linear = |at: &[usize], shape: &[usize]| {
            let skip = at.len() - shape.len();
            shape
                .iter()
                .enumerate()
                .fold(0, |a, (d, &s)| a * s + if s == 1 { 0 } else { at[d + skip] })
        };
        let out = match &def.def {
            Def::Input(k) => inputs[*k].clone(),
            Def::Pointwise { expr, args } => (0..n)
                .map(|i| {
                    let at = index(i, &def.shape);
                    let x: Vec<f32> = args
                        .iter()
                        .map(|&a| all[a.0 as usize][linear(&at, &t.value(a).shape)])
                        .collect();
                    apply(expr, &x)
                })
                .collect(),
            Def::Reduce { arg, reduction, .. } => {
                let max = reduction.combine == Combine::Max;
                let mut acc = vec![if max { f64::NEG_INFINITY } else { 0.0 }; n];
                for (i, &x) in all[arg.0 as usize].iter().enumerate() {
                    let slot = &mut acc[linear(&index(i, &t.value(*arg).shape), &def.shape)];
                    *slot = if max { slot.max(x as f64) } else { *slot + x as f64 };
                }
                acc.into_iter().map(|x| x as f32).collect()
            }
            Def::View { arg, .. } => {
                // The view's own definition, with a buffer for its operand.
                let a = resolve_access(t, v, &|v| v == *arg).expect("one view of a buffer has strides");
                (0..n)
                    .map(|i| {
                        let at = index(i, &def.shape);
                        let o = at.iter().zip(&a.strides).fold(a.offset, |o, (&i, &s)| o + i as i64 * s);
                        all[arg.0 as usize][o as usize]
                    })
                    .collect()
            }
            _ => unreachable!("not generated"),
        };
        all.push(out);
    }
    all
}

fn apply(e: &ScalarExpr, x: &[f32]) -> f32 {
    use crate::scalar::ScalarNode;
    let mut v: Vec<f32> = vec![];
    for (_, node, _) in e.nodes() {
        let r = |r: crate::scalar::Ref| v[r.0 as usize];
        v.push(match node {
            ScalarNode::Arg(n) => x[n as usize],
            ScalarNode::Op(ScalarOp::Unary(Unary::Neg, a)) => -r(a),
            ScalarNode::Op(ScalarOp::Unary(Unary::Abs, a)) => r(a).abs(),
            ScalarNode::Op(ScalarOp::Unary(_, a)) => 1.0 / (1.0 + (-r(a)).exp()),
            ScalarNode::Op(ScalarOp::Binary(Binary::Add, a, b)) => r(a) + r(b),
            ScalarNode::Op(ScalarOp::Binary(Binary::Sub, a, b)) => r(a) - r(b),
            ScalarNode::Op(ScalarOp::Binary(_, a, b)) => r(a).max(r(b)),
            _ => unreachable!("not generated"),
        });
    }
    v[e.roots[0].0 as usize]
}

/// Runs a program of kernels with the arena filled with NaN. Returns its results.
fn run(p: &Program, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let bytes = |v: &[f32]| v.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let mut arena = vec![0xffu8; p.arena];
    let mut outs: Vec<Vec<u8>> = vec![vec![]; p.outputs];
    for b in &p.buffers {
        if let BufferPlace::Output(n) = b.place {
            outs[n] = vec![0xff; b.byte_count()];
        }
    }
    let read = |place: &BufferPlace, size: usize, arena: &[u8], outs: &[Vec<u8>]| match place {
        BufferPlace::Input(n) => bytes(&inputs[*n]),
        BufferPlace::Arena(at) => arena[*at..*at + size].to_vec(),
        BufferPlace::Output(n) => outs[*n].clone(),
        BufferPlace::Constant(t) => t.bytes().to_vec(),
        BufferPlace::Pieces => unreachable!("no step makes pieces of kernels' results"),
    };
    for s in &p.steps {
        let Step::Kernel { kernel, buffers } = s else {
            unreachable!("only kernels are generated")
        };
        let k = &p.kernels[*kernel];
        let mut data: Vec<Vec<u8>> = buffers
            .iter()
            .map(|b| read(&p.buffers[b.0].place, p.buffers[b.0].byte_count(), &arena, &outs))
            .collect();
        let mut refs: Vec<&mut [u8]> = data.iter_mut().map(|d| &mut d[..]).collect();
        let n = k.parallel_extent();
        // In two chunks, as two threads would.
        interpret(k, &mut refs, 0, n / 2);
        interpret(k, &mut refs, n / 2, n);
        for (b, d) in buffers.iter().zip(&data) {
            match p.buffers[b.0].place {
                BufferPlace::Arena(at) => arena[at..at + d.len()].copy_from_slice(d),
                BufferPlace::Output(n) => outs[n] = d.clone(),
                _ => {}
            }
        }
    }
    let floats = |b: Vec<u8>| {
        b.chunks(4)
            .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
            .collect::<Vec<f32>>()
    };
    let result = p.output.as_ref().unwrap();
    result
        .leaves()
        .iter()
        .map(|(b, _)| floats(read(&p.buffers[b.0].place, p.buffers[b.0].byte_count(), &arena, &outs)))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn programs_compute_what_the_tensor_ir_says(bytes in proptest::collection::vec(any::<u8>(), 20..60)) {
        let t = random_graph(&bytes);
        let inputs: Vec<Vec<f32>> = t
            .inputs
            .iter()
            .map(|(_, v)| (0..t.value(*v.as_leaf().unwrap()).numel()).map(|i| ((i * 37 + 11) % 23) as f32 * 0.25 - 2.5).collect())
            .collect();
        let p = lower_tir(t.clone()).unwrap_or_else(|e| panic!("{e:?}"));
        let want = evaluate(&t, &inputs);
        let got = run(&p, &inputs);
        for (v, g) in t.output.as_ref().unwrap().leaves().into_iter().zip(&got) {
            let w = &want[v.0 as usize];
            prop_assert_eq!(w.len(), g.len());
            for (a, b) in w.iter().zip(g) {
                prop_assert!((a - b).abs() <= 1e-4 * a.abs().max(1.0), "{} {}\n{}\n{}", a, b, p, p.kernels.iter().map(crate::kernel::python::print_function).collect::<String>());
            }
        }
    }
}
