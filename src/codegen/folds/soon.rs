//! Exponentials and error functions whose results are rounded to 16 bits soon after, as in sigmoid, silu and gelu. They need not have the
//! accuracy of f32.

use super::Uses;
use crate::kernel::{Inst, Value};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::types::DType;
use std::collections::{HashMap, HashSet};

/// What is known of exponentials and the values that they lead to.
#[derive(Default)]
pub(super) struct Exponentials {
    /// The exponentials, sigmoids and error functions of f32.
    all: Vec<Value>,
    /// Each divisor with the quotient, the last one if there are several.
    quotients: HashMap<Value, Value>,
    /// How often each f32 value is converted to f16 or bf16.
    narrowings: HashMap<Value, usize>,
}

impl Exponentials {
    /// Notes the instruction that defines `v`, of dtype `d`.
    pub(super) fn visit(&mut self, v: Value, d: DType, i: &Inst) {
        match *i {
            Inst::Op(ScalarOp::Unary(Unary::Exp | Unary::Sigmoid | Unary::Erf, _)) if d == DType::F32 => {
                self.all.push(v)
            }
            Inst::Op(ScalarOp::Binary(Binary::Div, _, b)) => drop(self.quotients.insert(b, v)),
            Inst::Op(ScalarOp::Cast(DType::F16 | DType::BF16, x)) => *self.narrowings.entry(x).or_default() += 1,
            _ => {}
        }
    }
}

impl Uses<'_> {
    /// The functions that are only rounded to 16 bits, or only added to one in a divisor or factor of what is only rounded. Of such sums,
    /// [`Folds::plus_one`](super::Folds) has small relative errors, too.
    pub(super) fn rounded_soon(&self) -> HashSet<Value> {
        let is_narrowed = |v: Value| self.exponentials.narrowings.get(&v) == self.counts.get(&v);
        let soon = |&v: &Value| is_narrowed(v) || self.scaled_sum(v).is_some_and(is_narrowed);
        self.exponentials.all.iter().copied().filter(soon).collect()
    }

    /// The quotient by `1 + v` or its product with something, if `v` and the sum have no other use.
    fn scaled_sum(&self, v: Value) -> Option<Value> {
        let is_one = |x: Value| self.constants.get(&x) == Some(&1.0);
        let plus_one = |&&(_, a, b): &&(Value, Value, Value)| a == v && is_one(b) || b == v && is_one(a);
        let &(sum, ..) = self.sums.iter().find(plus_one).filter(|_| self.is_used_once(v))?;
        let product = || self.products.iter().find(|(_, f)| f.0 == sum || f.1 == sum);
        let quotient = self.exponentials.quotients.get(&sum).copied();
        let scaled = quotient.or_else(|| product().map(|(p, _)| *p));
        scaled.filter(|_| self.is_used_once(sum))
    }
}
