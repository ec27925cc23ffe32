//! Reads the tokens of one line of a kernel's text.

use super::parse::ParseResult;
use crate::kernel::{Affine, Cond, Index, IndexBound, Inst, LoadGuard, Value, Var};
use crate::scalar::text::parse_constant;
use crate::tensor::Scalar;

/// The largest number of loop variables or of values in a text. The parser allocates one entry for every number up to
/// the largest.
const MOST: u32 = 1 << 20;

/// The rest of a line.
pub(super) struct LineCursor<'a> {
    pub(super) rest: &'a str,
}

impl<'a> LineCursor<'a> {
    /// The arguments of `bounded`, after the opening parenthesis.
    pub(super) fn parse_bounded(&mut self) -> ParseResult<Inst> {
        let v = self.parse_value()?;
        self.expect(",")?;
        let size = self.parse_number()?;
        self.expect(",")?;
        let bound = match self.take_word() {
            "check" => IndexBound::Check,
            "wrap" => IndexBound::Wrap,
            "clamp" => IndexBound::Clamp,
            word => return Err(format!("`{word}` is not a bound (check, wrap, clamp)")),
        };
        self.expect(")")?;
        Ok(Inst::Bounded(v, size, bound))
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(token);
        rest.map(|r| self.rest = r).is_some()
    }

    pub(super) fn expect(&mut self, token: &str) -> ParseResult<()> {
        match self.eat(token) {
            true => Ok(()),
            false => Err(format!("expected `{token}` before `{}`", self.rest.trim())),
        }
    }

    pub(super) fn expect_end(&self) -> ParseResult<()> {
        match self.rest.trim() {
            "" => Ok(()),
            rest => Err(format!("unexpected `{rest}` after the statement")),
        }
    }

    pub(super) fn take_until(&mut self, ends: &[char]) -> &'a str {
        self.rest = self.rest.trim_start();
        let (word, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    pub(super) fn take_word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let (word, rest) = self
            .rest
            .split_at(self.rest.find(|c| !part(c)).unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    pub(super) fn parse_list<T>(&mut self, mut item: impl FnMut(&mut Self) -> ParseResult<T>) -> ParseResult<Vec<T>> {
        let mut out = vec![item(self)?];
        while self.eat(",") {
            out.push(item(self)?);
        }
        Ok(out)
    }

    pub(super) fn parse_number<T: std::str::FromStr>(&mut self) -> ParseResult<T> {
        let word = self.take_word();
        word.parse().map_err(|_| format!("expected a number, found `{word}`"))
    }

    /// `v12`, `i3`
    pub(super) fn parse_numbered(&mut self, prefix: char) -> ParseResult<u32> {
        let word = self.take_word();
        let number = word
            .strip_prefix(prefix)
            .and_then(|n| n.parse().ok())
            .filter(|&n| n < MOST);
        number.ok_or_else(|| format!("expected `{prefix}` followed by a number, found `{word}`"))
    }

    pub(super) fn parse_value(&mut self) -> ParseResult<Value> {
        self.parse_numbered('v').map(Value)
    }

    pub(super) fn parse_var(&mut self) -> ParseResult<Var> {
        self.parse_numbered('i').map(Var)
    }

    pub(super) fn parse_scalar(&mut self, dtype: &str) -> ParseResult<Scalar> {
        let text = format!("{dtype}{})", self.take_until(&[')']));
        self.expect(")")?;
        parse_constant(&text).ok_or_else(|| format!("`{text}` is not a constant"))
    }

    pub(super) fn parse_signed(&mut self) -> ParseResult<i64> {
        let minus = self.eat("-");
        let number: i128 = self.parse_number()?;
        let number = if minus { -number } else { number };
        i64::try_from(number).map_err(|_| format!("{number} does not fit in 64 bits"))
    }

    /// `8 * i0 + i1 - 3 + 32 * v2`
    pub(super) fn parse_index(&mut self) -> ParseResult<Index> {
        let mut out = Index::default();
        let mut sign = if self.eat("-") { -1 } else { 1 };
        loop {
            sign = if self.eat("-") { -sign } else { sign };
            let first = self.rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
            let number: i128 = if first { self.parse_number()? } else { 1 };
            let number = i64::try_from(sign * number).map_err(|_| format!("{number} does not fit in 64 bits"))?;
            if first && !self.eat("*") {
                out.affine = out.affine + Affine::from(number);
            } else if self.rest.trim_start().starts_with('v') {
                out.dynamic.push((self.parse_value()?, number));
            } else {
                out.affine = out.affine + self.parse_var()? * number;
            }
            sign = match (self.eat("+"), self.eat("-")) {
                (true, false) => 1,
                (false, true) => -1,
                _ => return Ok(out),
            };
        }
    }

    /// `0 <= i0 - 1 < 8 and 0 <= i1 < 8 else f32(0.0)`
    pub(super) fn parse_guard(&mut self) -> ParseResult<LoadGuard> {
        let mut conds = vec![];
        while !self.eat("else") {
            if !conds.is_empty() {
                self.expect("and")?;
            }
            let lo = self.parse_signed()?;
            self.expect("<=")?;
            let expr = self.parse_index()?.affine;
            self.expect("<")?;
            conds.push(Cond {
                expr,
                lo,
                hi: self.parse_signed()?,
            });
        }
        let dtype = self.take_word();
        let other = self.parse_scalar(dtype)?;
        Ok(LoadGuard { conds, other })
    }
}
