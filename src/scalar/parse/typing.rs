//! Assigns dtypes: numbers take the dtype of the values they are combined with, and operands are converted to one
//! dtype.

use super::fold::{fold_binary, fold_compare, fold_unary};
use super::names::{binary_defined, name_of, unary_defined};
use super::{DTypeSettings, FormulaParser, ParsedValue, Result, UntypedNumber};
use crate::scalar::{Binary, Compare, Ref, Unary};
use crate::types::DType;

impl FormulaParser<'_> {
    /// The value as a typed reference. A number becomes a constant of `dtype`.
    pub(super) fn typed_ref(&mut self, v: ParsedValue, dtype: DType) -> Ref {
        match v {
            ParsedValue::Value(r) => r,
            ParsedValue::Number(n) => self.expr.constant(n.to_scalar(dtype)),
        }
    }

    pub(super) fn build_cast(&mut self, to: DType, v: ParsedValue) -> ParsedValue {
        ParsedValue::Value(match v {
            ParsedValue::Value(r) => self.expr.cast(to, r),
            ParsedValue::Number(n) => self.expr.constant(n.to_scalar(to)),
        })
    }

    pub(super) fn round_to_storage(&mut self, v: ParsedValue) -> ParsedValue {
        let DTypeSettings { compute, storage } = self.settings;
        match v {
            ParsedValue::Number(n) if storage.is_float() => {
                ParsedValue::Number(UntypedNumber::Float(n.to_scalar(storage).to_f64()))
            }
            ParsedValue::Value(r) if storage != compute && self.expr.dtype(r) == compute => {
                let r = self.expr.cast(storage, r);
                ParsedValue::Value(self.expr.cast(compute, r))
            }
            v => v,
        }
    }

    /// Converts two operands to one dtype.
    pub(super) fn unify_dtypes(&mut self, offset: usize, x: ParsedValue, y: ParsedValue) -> Result<(Ref, Ref)> {
        use ParsedValue::*;
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
                Ok((self.typed_ref(x, d), self.typed_ref(y, d)))
            }
            (Value(a), Value(b)) => match (self.expr.dtype(a), self.expr.dtype(b)) {
                (c, d) if c == d => Ok((a, b)),
                (DType::B8, d) => Ok((self.expr.cast(d, a), b)),
                (d, DType::B8) => Ok((a, self.expr.cast(d, b))),
                (c, d) => self.error_at(
                    offset,
                    format!("operands have different dtypes, {c} and {d}; convert one, as in `{c}(x)`"),
                ),
            },
        }
    }

    /// Converts a b8 to the compute dtype if it is combined with a number that is not a bool.
    pub(super) fn beside_number(&mut self, r: Ref, n: UntypedNumber) -> Ref {
        match (self.expr.dtype(r), n) {
            (DType::B8, UntypedNumber::Int(_) | UntypedNumber::Float(_)) => self.expr.cast(self.settings.compute, r),
            _ => r,
        }
    }

    pub(super) fn build_unary(&mut self, offset: usize, op: Unary, v: ParsedValue) -> Result<ParsedValue> {
        let r = match v {
            ParsedValue::Number(n) => match fold_unary(op, n) {
                Some(n) => return Ok(ParsedValue::Number(n)),
                None => self.typed_ref(v, self.settings.compute),
            },
            ParsedValue::Value(r) => r,
        };
        let d = self.expr.dtype(r);
        if !unary_defined(op, d.category()) {
            let name = format!("{op:?}").to_lowercase();
            return self.error_at(
                offset,
                format!("`{name}` is not defined for {d}; convert the operand first, as in `f32(x)`"),
            );
        }
        Ok(ParsedValue::Value(self.expr.unary(op, r)))
    }

    pub(super) fn build_binary(
        &mut self,
        offset: usize,
        op: Binary,
        x: ParsedValue,
        y: ParsedValue,
    ) -> Result<ParsedValue> {
        if let (ParsedValue::Number(a), ParsedValue::Number(b)) = (x, y) {
            return match fold_binary(op, a, b) {
                Some(n) => Ok(ParsedValue::Number(n)),
                None => self.error_at(offset, format!("`{}` is not defined for these numbers", name_of(op))),
            };
        }
        let (a, b) = self.unify_dtypes(offset, x, y)?;
        let d = self.expr.dtype(a);
        if !binary_defined(op, d.category()) {
            return self.error_at(offset, format!("`{}` is not defined for {d} values", name_of(op)));
        }
        Ok(ParsedValue::Value(match (op, d) {
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

    pub(super) fn build_compare(
        &mut self,
        offset: usize,
        op: Compare,
        x: ParsedValue,
        y: ParsedValue,
    ) -> Result<ParsedValue> {
        if let (ParsedValue::Number(a), ParsedValue::Number(b)) = (x, y) {
            return Ok(ParsedValue::Number(UntypedNumber::Bool(fold_compare(op, a, b))));
        }
        let (a, b) = self.unify_dtypes(offset, x, y)?;
        Ok(ParsedValue::Value(self.expr.compare(op, a, b)))
    }

    pub(super) fn build_select(
        &mut self,
        offset: usize,
        c: ParsedValue,
        x: ParsedValue,
        y: ParsedValue,
    ) -> Result<ParsedValue> {
        let c = match c {
            ParsedValue::Number(n) => return Ok(if n.is_true() { x } else { y }),
            ParsedValue::Value(r) => r,
        };
        if self.expr.dtype(c) != DType::B8 {
            let d = self.expr.dtype(c);
            return self.error_at(
                offset,
                format!("the condition of `where` must be b8, not {d}; use a comparison such as `x != 0`"),
            );
        }
        let (a, b) = self.unify_dtypes(offset, x, y)?;
        Ok(ParsedValue::Value(self.expr.select(c, a, b)))
    }

    pub(super) fn build_fma(
        &mut self,
        offset: usize,
        x: ParsedValue,
        y: ParsedValue,
        z: ParsedValue,
    ) -> Result<ParsedValue> {
        let (a, b) = self.unify_dtypes(offset, x, y)?;
        let (a, c) = self.unify_dtypes(offset, ParsedValue::Value(a), z)?;
        if self.expr.dtype(a) != self.expr.dtype(b) || self.expr.dtype(a) == DType::B8 {
            return self.error_at(offset, "operands of `fma` must be numbers of the same dtype");
        }
        Ok(ParsedValue::Value(self.expr.fma(a, b, c)))
    }
}
