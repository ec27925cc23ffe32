//! Values with their dtypes: numbers meet typed values, operands become one dtype.

use super::fold::{fold_binary, fold_compare, fold_unary};
use super::names::{binary_defined, name_of, unary_defined};
use super::{Input, Number, Parser, Result, Settings};
use crate::scalar::{Binary, Compare, Ref, Unary};
use crate::types::DType;

impl Parser<'_> {
    /// The value, with a number made a constant of `dtype`.
    pub(super) fn typed(&mut self, v: Input, dtype: DType) -> Ref {
        match v {
            Input::Value(r) => r,
            Input::Number(n) => self.expr.constant(n.to_scalar(dtype)),
        }
    }

    pub(super) fn cast(&mut self, to: DType, v: Input) -> Input {
        Input::Value(match v {
            Input::Value(r) => self.expr.cast(to, r),
            Input::Number(n) => self.expr.constant(n.to_scalar(to)),
        })
    }

    pub(super) fn rounded(&mut self, v: Input) -> Input {
        let Settings { compute, storage } = self.settings;
        match v {
            Input::Number(n) if storage.is_float() => Input::Number(Number::Float(n.to_scalar(storage).to_f64())),
            Input::Value(r) if storage != compute && self.expr.dtype(r) == compute => {
                let r = self.expr.cast(storage, r);
                Input::Value(self.expr.cast(compute, r))
            }
            v => v,
        }
    }

    /// Two operands made one dtype.
    pub(super) fn unify(&mut self, at: usize, x: Input, y: Input) -> Result<(Ref, Ref)> {
        use Input::*;
        match (x, y) {
            (Value(a), Number(n)) => {
                let a = self.beside_number(a, n);
                let d = self.expr.dtype(a);
                Ok((a, self.expr.constant(n.to_scalar(d))))
            }
            (Number(n), Value(b)) => {
                let b = self.beside_number(b, n);
                let d = self.expr.dtype(b);
                Ok((self.expr.constant(n.to_scalar(d)), b))
            }
            (Number(_), Number(_)) => {
                let d = self.settings.compute;
                Ok((self.typed(x, d), self.typed(y, d)))
            }
            (Value(a), Value(b)) => match (self.expr.dtype(a), self.expr.dtype(b)) {
                (c, d) if c == d => Ok((a, b)),
                (DType::B8, d) => Ok((self.expr.cast(d, a), b)),
                (d, DType::B8) => Ok((a, self.expr.cast(d, b))),
                (c, d) => self.error(at, format!("operands of {c} and {d}: convert one, as in `{c}(x)`")),
            },
        }
    }

    /// A b8 beside a number that is not a bool becomes what the expression computes in.
    pub(super) fn beside_number(&mut self, r: Ref, n: Number) -> Ref {
        match (self.expr.dtype(r), n) {
            (DType::B8, Number::Int(_) | Number::Float(_)) => self.expr.cast(self.settings.compute, r),
            _ => r,
        }
    }

    pub(super) fn unary(&mut self, at: usize, op: Unary, v: Input) -> Result<Input> {
        let r = match v {
            Input::Number(n) => match fold_unary(op, n) {
                Some(n) => return Ok(Input::Number(n)),
                None => self.typed(v, self.settings.compute),
            },
            Input::Value(r) => r,
        };
        let d = self.expr.dtype(r);
        if !unary_defined(op, d.category()) {
            let name = format!("{op:?}").to_lowercase();
            return self.error(
                at,
                format!("`{name}` of {d} is not defined; convert it first, as in `f32(x)`"),
            );
        }
        Ok(Input::Value(self.expr.unary(op, r)))
    }

    pub(super) fn binary(&mut self, at: usize, op: Binary, x: Input, y: Input) -> Result<Input> {
        if let (Input::Number(a), Input::Number(b)) = (x, y) {
            return match fold_binary(op, a, b) {
                Some(n) => Ok(Input::Number(n)),
                None => self.error(at, format!("`{}` of these numbers is not defined", name_of(op))),
            };
        }
        let (a, b) = self.unify(at, x, y)?;
        let d = self.expr.dtype(a);
        if !binary_defined(op, d.category()) {
            return self.error(at, format!("`{}` of {d} values is not defined", name_of(op)));
        }
        Ok(Input::Value(match (op, d) {
            (Binary::Fmax, DType::B8) => self.expr.binary(Binary::Max, a, b),
            (Binary::Fmin, DType::B8) => self.expr.binary(Binary::Min, a, b),
            // 0 ** 0 is 1.
            (Binary::Pow, DType::B8) => {
                let not = self.expr.unary(Unary::Not, b);
                self.expr.binary(Binary::Or, a, not)
            }
            _ => self.expr.binary(op, a, b),
        }))
    }

    pub(super) fn compare(&mut self, at: usize, op: Compare, x: Input, y: Input) -> Result<Input> {
        if let (Input::Number(a), Input::Number(b)) = (x, y) {
            return Ok(Input::Number(Number::Bool(fold_compare(op, a, b))));
        }
        let (a, b) = self.unify(at, x, y)?;
        Ok(Input::Value(self.expr.compare(op, a, b)))
    }

    pub(super) fn select(&mut self, at: usize, c: Input, x: Input, y: Input) -> Result<Input> {
        let c = match c {
            Input::Number(n) => return Ok(if n.is_true() { x } else { y }),
            Input::Value(r) => r,
        };
        if self.expr.dtype(c) != DType::B8 {
            let d = self.expr.dtype(c);
            return self.error(
                at,
                format!("the condition of `where` is {d}, not b8; compare it with something"),
            );
        }
        let (a, b) = self.unify(at, x, y)?;
        Ok(Input::Value(self.expr.select(c, a, b)))
    }

    pub(super) fn fma(&mut self, at: usize, x: Input, y: Input, z: Input) -> Result<Input> {
        let (a, b) = self.unify(at, x, y)?;
        let (a, c) = self.unify(at, Input::Value(a), z)?;
        if self.expr.dtype(a) != self.expr.dtype(b) || self.expr.dtype(a) == DType::B8 {
            return self.error(at, "operands of `fma` must be numbers of one dtype");
        }
        Ok(Input::Value(self.expr.fma(a, b, c)))
    }
}
