//! Peephole patterns: functions that are cheaper together with their users, such as `1 + erf(x)`, `1 + tanh(c x)` and
//! `0.5 x (1 + tanh(y))`.
//!
//! gelu needs `1 + erf` or `1 + tanh`, and each sum is one function ([`exp`](super::exp)). `1 + tanh(x)` is
//! `2 / (1 + exp(-2 x))`: a constant factor of the argument merges with the -2, and a product of the sum with `0.5 x`
//! is one division.

mod soon;

use crate::kernel::{Inst, Kernel, ReduceOp, Stmt, Value};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::tensor::Scalar;
use crate::types::DType;
use std::collections::{HashMap, HashSet};

/// Patterns that are computed as one operation.
#[derive(Default)]
pub(super) struct Folds {
    /// Values that are computed with one already added: f32 `erf(x)` and `tanh(x)` whose only use adds one.
    pub plus_one: HashSet<Value>,
    /// Of these, the tanh of a product with a constant: the other factor and the constant.
    pub scaled: HashMap<Value, (Value, f32)>,
    /// Of these, the tanh whose sum is used once, in a product with `0.5 x`. They are computed as `1 + exp(-2 x)`.
    pub denominators: HashSet<Value>,
    /// Those products: `x` and the sum.
    pub quotients: HashMap<Value, (Value, Value)>,
    /// Products that are no longer computed.
    pub gone: HashSet<Value>,
    /// f32 products that are only summed by a reduction, with their factors. They become fused multiply-adds.
    pub added_up: HashMap<Value, (Value, Value)>,
    /// f32 values that bf16 represents exactly: elements of bf16, and results of operations that only change signs, drop
    /// fractions or select an operand. Converting them to bf16 needs no rounding.
    pub exact_in_bf16: HashSet<Value>,
    /// Integers of 8 or 16 bits that are converted from f32 and only stored, which takes their low bits: the others need not
    /// be right.
    pub only_stored: HashSet<Value>,
    /// Conversions from f32 to integers whose operand is rounded to nearest, with what is rounded.
    pub rounded: HashMap<Value, Value>,
    /// Conversions from f32 to f16, and to bf16 of values that bf16 does not represent. States whether their lanes need not be
    /// extended: they are only stored or converted back to f32.
    pub narrowed: HashMap<Value, bool>,
    /// Exponentials, sigmoids and error functions whose results are rounded to 16 bits soon.
    pub rounded_soon: HashSet<Value>,
    /// Row maxima that are only subtracted before a softmax's exponentials. They need not propagate NaN: the
    /// exponential of a NaN element makes the sum, and so every share, NaN.
    pub numbers: HashSet<Value>,
}

/// Finds the patterns in a kernel.
pub(super) fn find_folds(k: &Kernel) -> Folds {
    let mut s = Uses::new(k);
    s.visit_body(&k.body);
    let mut folds = Folds {
        numbers: s.only_taken_off(),
        rounded_soon: s.rounded_soon(),
        only_stored: s.conversions.iter().copied().filter(|v| s.is_only_stored(v)).collect(),
        narrowed: s.narrowings.iter().map(|v| (*v, s.is_used_as_half(v))).collect(),
        exact_in_bf16: std::mem::take(&mut s.exact_in_bf16),
        rounded: std::mem::take(&mut s.rounded),
        ..Folds::default()
    };
    for &(sum, a, b) in &s.sums {
        for (v, unit) in [(a, b), (b, a)] {
            if s.constants.get(&unit) == Some(&1.0) && s.functions.contains_key(&v) && s.is_used_once(v) {
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
    /// Each `erf` and `tanh` with its argument.
    functions: HashMap<Value, (Unary, Value)>,
    /// Each sum with its operands.
    sums: Vec<(Value, Value, Value)>,
    /// Each product with its factors.
    products: HashMap<Value, (Value, Value)>,
    /// The results of max reductions.
    largest: Vec<Value>,
    /// Each difference with its subtrahend.
    differences: HashMap<Value, Value>,
    /// The values that sum reductions add up.
    summands: Vec<Value>,
    /// The arguments of the exponentials in [`Kernel::shares`].
    exponents: Vec<Value>,
    /// See [`Folds::exact_in_bf16`].
    exact_in_bf16: HashSet<Value>,
    /// Conversions from f32 to integers of 8 or 16 bits.
    conversions: Vec<Value>,
    /// Those from f32 to f16 and bf16.
    narrowings: Vec<Value>,
    /// How often each value is stored.
    stores: HashMap<Value, usize>,
    /// How often each value of f16 or bf16 is converted to f32.
    widenings: HashMap<Value, usize>,
    /// Each number that is rounded to nearest, with its operand.
    roundings: HashMap<Value, Value>,
    /// See [`Folds::rounded`].
    rounded: HashMap<Value, Value>,
    exponentials: soon::Exponentials,
}

impl Uses<'_> {
    fn new(k: &Kernel) -> Uses<'_> {
        Uses {
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
            exact_in_bf16: HashSet::new(),
            conversions: vec![],
            narrowings: vec![],
            stores: HashMap::new(),
            widenings: HashMap::new(),
            roundings: HashMap::new(),
            rounded: HashMap::new(),
            exponentials: soon::Exponentials::default(),
        }
    }

    fn is_used_once(&self, v: Value) -> bool {
        self.counts.get(&v) == Some(&1)
    }

    /// The factors of a product with a constant, if the product is used once.
    fn constant_multiple(&self, v: Value) -> Option<(Value, f32)> {
        let &(a, b) = self.products.get(&v).filter(|_| self.is_used_once(v))?;
        let known = |x: &Value| self.constants.get(x).copied();
        match (known(&a), known(&b)) {
            (None, Some(c)) => Some((a, c)),
            (Some(c), None) => Some((b, c)),
            _ => None,
        }
    }

    /// Folds the argument and the users of the tanh `v`, where `sum` is `1 + v`.
    fn fold_tanh(&self, folds: &mut Folds, v: Value, sum: Value) {
        let Some(&(Unary::Tanh, x)) = self.functions.get(&v) else {
            return;
        };
        // A very large or small factor would change which arguments overflow.
        if let Some((argument, c)) = self.constant_multiple(x).filter(|m| (1e-3..1e3).contains(&m.1.abs())) {
            folds.scaled.insert(v, (argument, c));
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

    /// The products whose only use is a sum reduction.
    fn only_added_up(&self) -> impl Iterator<Item = (Value, (Value, Value))> {
        let products = self.summands.iter().filter(|v| self.is_used_once(**v));
        products.filter_map(|v| Some((*v, *self.products.get(v)?)))
    }

    /// The maxima whose only uses are differences that are the arguments of softmax shares.
    fn only_taken_off(&self) -> HashSet<Value> {
        let mut below: HashMap<Value, usize> = HashMap::new();
        for x in self.exponents.iter().filter(|x| self.is_used_once(**x)) {
            if let Some(&largest) = self.differences.get(x) {
                *below.entry(largest).or_default() += 1;
            }
        }
        // A maximum without uses does not qualify.
        let all = |v: &&Value| below.get(v).is_some_and(|n| self.counts.get(v) == Some(n));
        self.largest.iter().filter(all).copied().collect()
    }

    /// Whether all uses of a value are stores.
    fn is_only_stored(&self, v: &Value) -> bool {
        self.counts.get(v) == self.stores.get(v)
    }

    /// Whether all uses of a conversion to a half accept lanes that are not extended: see [`Folds::narrowed`].
    fn is_used_as_half(&self, v: &Value) -> bool {
        let times = |uses: &HashMap<Value, usize>| uses.get(v).copied().unwrap_or(0);
        times(&self.counts) == times(&self.stores) + times(&self.widenings)
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
                Stmt::Store(_, index, v) => {
                    self.count_use(*v);
                    *self.stores.entry(*v).or_default() += 1;
                    index.dynamic.iter().for_each(|d| self.count_use(d.0));
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

    /// Whether bf16 represents the result of an operation on f32 exactly, because it represents the operands.
    fn is_exact_in_bf16(&self, op: &ScalarOp<Value>) -> bool {
        use Binary::{Fmax, Fmin, Max, Min};
        use Unary::{Abs, Ceil, Floor, Neg, Round, Trunc};
        let exact = |v: &Value| self.exact_in_bf16.contains(v);
        match op {
            ScalarOp::Cast(DType::F32, x) => self.k.dtype(*x) == DType::BF16,
            ScalarOp::Const(Scalar::F32(c)) => c.to_bits() << 16 == 0,
            ScalarOp::Unary(Neg | Abs | Floor | Ceil | Round | Trunc, x) => exact(x),
            ScalarOp::Binary(Max | Min | Fmax | Fmin, x, y) | ScalarOp::Select(_, x, y) => exact(x) && exact(y),
            ScalarOp::Binary(Binary::Copysign, x, _) => exact(x),
            _ => false,
        }
    }

    /// Finds numbers that are rounded, and then converted.
    fn visit_rounding(&mut self, v: Value, i: &Inst) {
        match *i {
            Inst::Op(ScalarOp::Unary(Unary::Round, x)) if self.k.dtype(x) == DType::F32 => {
                self.roundings.insert(v, x);
            }
            Inst::Op(ScalarOp::Cast(to, x)) if to.is_int() && to.size() <= 4 => {
                if let Some(&y) = self.roundings.get(&x) {
                    self.rounded.insert(v, y);
                }
            }
            _ => {}
        }
    }

    fn visit_inst(&mut self, v: Value, i: &Inst) {
        if let Inst::Op(op) = i
            && self.is_exact_in_bf16(op)
        {
            self.exact_in_bf16.insert(v);
        }
        self.visit_rounding(v, i);
        self.exponentials.visit(v, self.k.dtype(v), i);
        match *i {
            Inst::Op(ScalarOp::Const(Scalar::F32(c))) => drop(self.constants.insert(v, c)),
            Inst::Op(ScalarOp::Cast(to, x)) if to.is_int() && to.size() < 4 && self.k.dtype(x) == DType::F32 => {
                self.conversions.push(v);
            }
            Inst::Op(ScalarOp::Cast(DType::F16, x)) if self.k.dtype(x) == DType::F32 => self.narrowings.push(v),
            Inst::Op(ScalarOp::Cast(DType::F32, x)) if matches!(self.k.dtype(x), DType::F16 | DType::BF16) => {
                *self.widenings.entry(x).or_default() += 1;
            }
            Inst::Op(ScalarOp::Cast(DType::BF16, x))
                if self.k.dtype(x) == DType::F32 && !self.exact_in_bf16.contains(&x) =>
            {
                self.narrowings.push(v);
            }
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
