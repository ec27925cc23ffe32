//! Functions that are cheaper together with what is made of them: `1 + erf(x)`, `1 + tanh(c x)`, `0.5 x (1 + tanh(y))`.
//!
//! What is wanted of `erf` and `tanh` in gelu is the sum with one ([`exp`](super::exp)): it is one function. Behind `tanh` stands
//! `2 / (1 + exp(-2 x))`, which takes a constant factor of its argument into its own, and of which half a number's multiple is a quotient.

use crate::kernel::{Inst, Kernel, ReduceOp, Stmt, Value};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use std::collections::{HashMap, HashSet};

/// What is computed together.
#[derive(Default)]
pub(super) struct Folds {
    /// Values that stand for one more than themselves: `erf(x)` and `tanh(x)` of f32 that are used once, to add one.
    pub plus_one: HashSet<Value>,
    /// Of these, the tangents of a product with a constant: the other factor, and the constant.
    pub scaled: HashMap<Value, (Value, f32)>,
    /// Of these, the tangents whose sum is used once, in a product with `0.5 x`: what stands for them is `1 + exp(-2 x)`.
    pub denominators: HashSet<Value>,
    /// Those products: `x`, and the sum.
    pub quotients: HashMap<Value, (Value, Value)>,
    /// Products that nothing computes any more.
    pub gone: HashSet<Value>,
    /// Products of f32 that are only added up by a reduction, with their factors: multiplied and added in one rounding.
    pub added_up: HashMap<Value, (Value, Value)>,
    /// Largest elements that are only taken off before a softmax's exponentials: a NaN need not go through them, since its own
    /// exponential makes the sum, and so every share, NaN.
    pub numbers: HashSet<Value>,
}

/// Finds what is computed together.
pub(super) fn find_folds(k: &Kernel) -> Folds {
    let mut s = Uses {
        k,
        counts: HashMap::new(),
        constants: HashMap::new(),
        functions: HashMap::new(),
        sums: vec![],
        products: HashMap::new(),
        largest: vec![],
        differences: HashMap::new(),
        exponents: vec![],
        summands: vec![],
    };
    s.visit_body(&k.body);
    let mut folds = Folds {
        numbers: s.only_taken_off(),
        ..Folds::default()
    };
    for &(sum, a, b) in &s.sums {
        for (v, one) in [(a, b), (b, a)] {
            if s.constants.get(&one) == Some(&1.0) && s.functions.contains_key(&v) && s.is_used_once(v) {
                folds.plus_one.insert(v);
                s.fold_tanh(&mut folds, v, sum);
            }
        }
    }
    let other = |v: &Value| folds.gone.contains(v) || folds.quotients.contains_key(v);
    folds.added_up = s.only_added_up().filter(|(v, _)| !other(v)).collect();
    folds
}

struct Uses<'a> {
    k: &'a Kernel,
    counts: HashMap<Value, usize>,
    constants: HashMap<Value, f32>,
    /// `erf` and `tanh` with their arguments.
    functions: HashMap<Value, (Unary, Value)>,
    /// Sums with their operands.
    sums: Vec<(Value, Value, Value)>,
    /// Products with their factors.
    products: HashMap<Value, (Value, Value)>,
    /// What comes out of maxima.
    largest: Vec<Value>,
    /// Differences with what they take off.
    differences: HashMap<Value, Value>,
    /// What sums add up.
    summands: Vec<Value>,
    /// Of what exponentials are taken that are shares of a softmax.
    exponents: Vec<Value>,
}

impl Uses<'_> {
    fn is_used_once(&self, v: Value) -> bool {
        self.counts.get(&v) == Some(&1)
    }

    /// The factors of a product with a constant that is used once.
    fn constant_multiple(&self, v: Value) -> Option<(Value, f32)> {
        let &(a, b) = self.products.get(&v).filter(|_| self.is_used_once(v))?;
        let known = |x: &Value| self.constants.get(x).copied();
        match (known(&a), known(&b)) {
            (None, Some(c)) => Some((a, c)),
            (Some(c), None) => Some((b, c)),
            _ => None,
        }
    }

    /// What the tangent `v`, of which `sum` is one more, takes in.
    fn fold_tanh(&self, folds: &mut Folds, v: Value, sum: Value) {
        let Some(&(Unary::Tanh, x)) = self.functions.get(&v) else {
            return;
        };
        // A large or tiny factor would change what overflows.
        if let Some((of, c)) = self.constant_multiple(x).filter(|m| (1e-3..1e3).contains(&m.1.abs())) {
            folds.scaled.insert(v, (of, c));
            folds.gone.insert(x);
        }
        let used = self.products.iter().find(|(_, f)| f.0 == sum || f.1 == sum);
        if let Some((&product, &(a, b))) = used.filter(|_| self.is_used_once(sum)) {
            let half = if a == sum { b } else { a };
            if let Some((x, 0.5)) = self.constant_multiple(half) {
                folds.denominators.insert(v);
                folds.quotients.insert(product, (x, sum));
                folds.gone.insert(half);
            }
        }
    }

    /// Products that only a sum uses.
    fn only_added_up(&self) -> impl Iterator<Item = (Value, (Value, Value))> {
        let products = self.summands.iter().filter(|v| self.is_used_once(**v));
        products.filter_map(|v| Some((*v, *self.products.get(v)?)))
    }

    /// Maxima that only differences use of which only shares' exponentials are taken.
    fn only_taken_off(&self) -> HashSet<Value> {
        let mut below: HashMap<Value, usize> = HashMap::new();
        for x in self.exponents.iter().filter(|x| self.is_used_once(**x)) {
            if let Some(&largest) = self.differences.get(x) {
                *below.entry(largest).or_default() += 1;
            }
        }
        // One that nothing uses is taken off nothing.
        let all = |v: &&Value| below.get(v).is_some_and(|n| self.counts.get(v) == Some(n));
        self.largest.iter().filter(all).copied().collect()
    }

    fn count_use(&mut self, v: Value) {
        *self.counts.entry(v).or_default() += 1;
    }

    fn visit_body(&mut self, body: &[Stmt]) {
        for s in body {
            match s {
                Stmt::Let(v, i) => {
                    i.visit_operands(&mut |x| self.count_use(x));
                    self.visit_inst(*v, i);
                }
                Stmt::Store(_, at, v) => {
                    self.count_use(*v);
                    at.dynamic.iter().for_each(|d| self.count_use(d.0));
                }
                Stmt::Loop(l) => {
                    let reduced = l.reduces.iter().flat_map(|r| r.init.iter().chain(&r.value));
                    let carried = l.carries.iter().flat_map(|c| [&c.init, &c.next]);
                    reduced.chain(carried).for_each(|&v| self.count_use(v));
                    let sums = l.reduces.iter().filter(|r| r.op == ReduceOp::Add);
                    self.summands.extend(sums.map(|r| r.value[0]));
                    let largest = l.reduces.iter().filter(|r| r.op == ReduceOp::Max);
                    self.largest.extend(largest.map(|r| r.out[0]));
                    self.visit_body(&l.body);
                }
            }
        }
    }

    fn visit_inst(&mut self, v: Value, i: &Inst) {
        match *i {
            Inst::Op(ScalarOp::Const(Scalar::F32(c))) => drop(self.constants.insert(v, c)),
            Inst::Op(ScalarOp::Unary(op @ (Unary::Erf | Unary::Tanh), x)) if self.k.dtype(v) == DType::F32 => {
                self.functions.insert(v, (op, x));
            }
            Inst::Op(ScalarOp::Unary(Unary::Exp, x)) if self.k.shares.contains(&v) => self.exponents.push(x),
            Inst::Op(ScalarOp::Binary(Binary::Sub, _, b)) => drop(self.differences.insert(v, b)),
            Inst::Op(ScalarOp::Binary(Binary::Add, a, b)) => self.sums.push((v, a, b)),
            Inst::Op(ScalarOp::Binary(Binary::Mul, a, b)) if self.k.dtype(v) == DType::F32 => {
                self.products.insert(v, (a, b));
            }
            _ => {}
        }
    }
}
