//! Exponentials whose results are rounded to 16 bits soon after, as in sigmoid and silu. They need not have the accuracy of f32.

use super::Uses;
use crate::kernel::{Inst, Value};
use crate::scalar::{Binary, ScalarOp, Unary};
use crate::types::DType;
use std::collections::{HashMap, HashSet};

/// What is known of exponentials and the values that they lead to.
#[derive(Default)]
pub(super) struct Exponentials {
    /// The exponentials and sigmoids of f32.
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
            Inst::Op(ScalarOp::Unary(Unary::Exp | Unary::Sigmoid, _)) if d == DType::F32 => self.all.push(v),
            Inst::Op(ScalarOp::Binary(Binary::Div, _, b)) => drop(self.quotients.insert(b, v)),
            Inst::Op(ScalarOp::Cast(DType::F16 | DType::BF16, x)) => *self.narrowings.entry(x).or_default() += 1,
            _ => {}
        }
    }
}

impl Uses<'_> {
    /// The exponentials that are only rounded to 16 bits, or only added to one in a divisor of what is only rounded. The sum does not
    /// amplify their error.
    pub(super) fn rounded_soon(&self) -> HashSet<Value> {
        let soon =
            |&v: &Value| self.is_only_narrowed(v) || self.quotient_of(v).is_some_and(|q| self.is_only_narrowed(q));
        self.exponentials.all.iter().copied().filter(soon).collect()
    }

    fn is_only_narrowed(&self, v: Value) -> bool {
        self.exponentials.narrowings.get(&v) == self.counts.get(&v)
    }

    /// The quotient by `1 + v`, if `v` and the sum have no other use.
    fn quotient_of(&self, v: Value) -> Option<Value> {
        let is_one = |x: Value| self.constants.get(&x) == Some(&1.0);
        let plus_one = |&&(_, a, b): &&(Value, Value, Value)| a == v && is_one(b) || b == v && is_one(a);
        let &(sum, ..) = self.sums.iter().find(plus_one).filter(|_| self.is_used_once(v))?;
        let quotient = self.exponentials.quotients.get(&sum).copied();
        quotient.filter(|_| self.is_used_once(sum))
    }
}
