//! Random kernels.

use super::*;
use crate::kernel::{Affine, Buf, Cond, KernelBuilder, ReduceOp, Value, Var};
use crate::scalar::{Binary, Compare, Unary};
use crate::types::DType::*;
use proptest::prelude::{ProptestConfig, proptest};

/// A random expression over values, in some dtype. It uses only exact operations, so results must be equal.
fn expression(k: &mut KernelBuilder, rng: &mut Rng, mut pool: Vec<Value>) -> Value {
    for _ in 0..rng.below(9) + 1 {
        let x = rng.pick(&pool);
        let d = k.dtype(x);
        let to = rng.pick(&[F32, F64, I64, I32, I16, I8, U8, B8, F16, BF16]);
        let v = match rng.below(5) {
            0 => k.cast(to, x),
            1 if !d.is_half() => {
                let same: Vec<Value> = pool.iter().copied().filter(|&v| k.dtype(v) == d).collect();
                let y = rng.pick(&same);
                let ops: &[Binary] = match d {
                    B8 => &[Binary::And, Binary::Or, Binary::Xor, Binary::Max, Binary::Mul],
                    _ => &[Binary::Add, Binary::Sub, Binary::Mul, Binary::Max, Binary::Min],
                };
                k.binary(rng.pick(ops), x, y)
            }
            2 if !d.is_half() => {
                let ops: &[Unary] = match d {
                    B8 => &[Unary::Not, Unary::IsNan],
                    _ => &[Unary::Neg, Unary::Abs, Unary::Sign, Unary::Round, Unary::SignBit],
                };
                k.unary(rng.pick(ops), x)
            }
            3 if !d.is_half() => {
                let c = rng.value(d);
                let c = k.constant(c);
                k.compare(rng.pick(&[Compare::Lt, Compare::Ge, Compare::Eq, Compare::Ne]), x, c)
            }
            _ => {
                let conds: Vec<Value> = pool.iter().copied().filter(|&v| k.dtype(v) == B8).collect();
                if conds.is_empty() {
                    continue;
                }
                let same: Vec<Value> = pool.iter().copied().filter(|&v| k.dtype(v) == d).collect();
                let (c, y) = (rng.pick(&conds), rng.pick(&same));
                k.select(c, x, y)
            }
        };
        pool.push(v);
    }
    pool[pool.len() - 1]
}

/// A load from a new buffer, viewed as `shape` at `vars` with random strides, offset, broadcast dimensions, direction
/// and padding.
fn view(k: &mut KernelBuilder, rng: &mut Rng, vars: &[Var], shape: &[usize]) -> (Value, Buf) {
    let d = rng.pick(&DType::COMPUTED);
    let mut order: Vec<usize> = (0..shape.len()).collect();
    order.sort_by_key(|_| rng.0.next_u64());
    let mut strides = vec![0i64; shape.len()];
    let (mut step, mut base, mut conds) = (1i64, 0i64, vec![]);
    for &dim in &order {
        let n = shape[dim] as i64;
        match rng.below(6) {
            0 => {}
            1 => {
                strides[dim] = -step;
                base += step * (n - 1);
                step *= n;
            }
            2 if n > 2 => {
                // Shifted by one and shorter by two, so the view reaches beyond both ends.
                strides[dim] = step;
                base -= step;
                conds.push(Cond::within(vars[dim] - 1, n as usize - 2));
                step *= n - 2;
            }
            _ => {
                strides[dim] = step;
                step *= n;
            }
        }
    }
    let spare = rng.below(3);
    let b = k.input(&format!("x{}", rng.0.next_u64()), d, &[step as usize + spare]);
    let at = Affine::from_strides(base + spare as i64, vars, &strides);
    let v = if conds.is_empty() {
        k.load(b, at)
    } else {
        let other = rng.value(d);
        k.load_or(b, at, conds, other)
    };
    (v, b)
}

pub(super) fn kernel(seed: u64) -> (Kernel, Vec<Vec<u8>>) {
    let mut rng = Rng::new(seed);
    let shape: Vec<usize> = (0..rng.below(3) + 2)
        .map(|_| rng.pick(&[1, 2, 3, 5, 8, 16, 23]))
        .collect();
    let mut k = KernelBuilder::new(format!("random_{seed}"));
    let mut inputs = vec![];
    let (outer, inner) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
    let reduces = rng.below(2) == 0;
    let serial_inner = rng.below(3) == 0;
    k.parallel(outer, |k, vars| {
        let element = |k: &mut KernelBuilder, rng: &mut Rng, j: Var, inputs: &mut Vec<Buf>| {
            let all: Vec<Var> = vars.iter().copied().chain([j]).collect();
            let mut pool = vec![];
            for _ in 0..rng.below(3) + 1 {
                let (v, b) = view(k, rng, &all, &shape);
                pool.push(v);
                inputs.push(b);
            }
            if rng.below(2) == 0 {
                pool.push(k.index(j * 3 - 1 + vars[0]));
            }
            expression(k, rng, pool)
        };
        if reduces {
            let op = rng.pick(&[ReduceOp::Add, ReduceOp::Max, ReduceOp::Min]);
            let d = rng.pick(&[I64, I32, F32, F64]);
            let d = if op == ReduceOp::Add { I64 } else { d };
            let init = k.initial_value(op, d);
            let r = k.reduce(inner, !serial_inner, &[(op, &[init])], |k, j| {
                let v = element(k, &mut rng, j, &mut inputs);
                vec![k.cast(d, v)]
            })[0];
            let out = k.output("out", d, outer);
            k.store(out, Affine::row_major(vars, outer), r);
        } else {
            let mut body = |k: &mut KernelBuilder, j: Var| {
                let v = element(k, &mut rng, j, &mut inputs);
                let out = k.output("out", k.dtype(v), &shape);
                let all: Vec<Var> = vars.iter().copied().chain([j]).collect();
                k.store(out, Affine::row_major(&all, &shape), v);
            };
            if serial_inner {
                k.serial(inner, &mut body)
            } else {
                k.vector(inner, &mut body)
            }
        }
    });
    let k = k.finish().unwrap_or_else(|e| panic!("{e}"));
    let data = Rng::new(seed ^ 0x5555).inputs(&k, &inputs);
    (k, data)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_is_interpreted(seed: u64) {
        let (k, inputs) = kernel(seed);
        let text = k.to_string();
        assert_eq!(Kernel::parse(&text).map(|k| k.to_string()), Ok(text));
        check(&k, &inputs, 0);
    }
}
