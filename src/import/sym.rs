//! Parses symbolic sizes as torch's exporter writes them: sympy's `srepr`, such as `Add(Mul(Integer(2), Symbol('s77',
//! positive=True, integer=True)), Integer(1))`, and its `str`, such as `2*s77 + 1` or `(s0//2)`. Expressions that
//! [`Dim`] cannot represent become the unknown size.

use crate::types::{Dim, SizeExpr};

/// The maximum nesting depth of an expression.
const MAX_DEPTH: usize = 64;

/// Parses a size. [`Dim::Unknown`] if it uses functions that sizes do not support, `None` if it is malformed.
pub(super) fn parse_size(text: &str) -> Option<Dim> {
    let mut p = SizeParser {
        rest: text.trim_start(),
    };
    let v = p.parse_comparison(0)?;
    p.rest.is_empty().then(|| v.into_dim().unwrap_or(Dim::Unknown))
}

struct SizeParser<'a> {
    rest: &'a str,
}

impl<'a> SizeParser<'a> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn take_word(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    /// Comparisons occur only in conditions: `Piecewise((1, s0 > 2), (2, True))`.
    fn parse_comparison(&mut self, depth: usize) -> Option<SizeExpr> {
        let left = self.parse_sum(depth)?;
        const SIGNS: [(&str, &str); 6] = [
            ("==", "Eq"),
            ("!=", "Ne"),
            ("<=", "Le"),
            (">=", "Ge"),
            ("<", "Lt"),
            (">", "Gt"),
        ];
        match SIGNS.iter().find(|(sign, _)| self.eat(sign)) {
            Some((_, name)) => SizeExpr::from_function(name, vec![left, self.parse_sum(depth)?]),
            None => Some(left),
        }
    }

    fn parse_sum(&mut self, depth: usize) -> Option<SizeExpr> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut v = self.parse_product(depth)?;
        loop {
            if self.eat("+") {
                v = v.add(&self.parse_product(depth)?);
            } else if self.eat("-") {
                v = v.sub(&self.parse_product(depth)?);
            } else {
                return Some(v);
            }
        }
    }

    fn parse_product(&mut self, depth: usize) -> Option<SizeExpr> {
        let unknown = SizeExpr::Int(Dim::Unknown);
        let mut v = self.parse_factor(depth)?;
        loop {
            if self.rest.starts_with("**") {
                return None;
            } else if self.eat("*") {
                v = v.mul(&self.parse_factor(depth)?);
            } else if self.eat("//") {
                v = v
                    .on_dims(&self.parse_factor(depth)?, Dim::floordiv)
                    .unwrap_or(unknown.clone());
            } else if self.eat("/") {
                v = v.div(&self.parse_factor(depth)?);
            } else if self.eat("%") {
                v = v
                    .on_dims(&self.parse_factor(depth)?, Dim::modulo)
                    .unwrap_or(unknown.clone());
            } else {
                return Some(v);
            }
        }
    }

    fn parse_factor(&mut self, depth: usize) -> Option<SizeExpr> {
        if self.eat("-") {
            return Some(self.parse_nested_factor(depth)?.neg());
        }
        let base = self.parse_atom(depth)?;
        if !self.eat("**") {
            return Some(base);
        }
        let exponent = self.parse_nested_factor(depth)?;
        Some(base.pow(&exponent))
    }

    fn parse_nested_factor(&mut self, depth: usize) -> Option<SizeExpr> {
        if depth > MAX_DEPTH {
            None
        } else {
            self.parse_factor(depth + 1)
        }
    }

    fn parse_atom(&mut self, depth: usize) -> Option<SizeExpr> {
        if self.eat("(") {
            let v = self.parse_comparison(depth + 1)?;
            return self.eat(")").then_some(v);
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            return Some(self.parse_number());
        }
        let name = self.take_word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        match name {
            "" => return None,
            "True" | "true" => return Some(SizeExpr::int(1)),
            "False" | "false" => return Some(SizeExpr::int(0)),
            _ => {}
        }
        if !self.eat("(") {
            return Some(SizeExpr::Int(Dim::var(name)));
        }
        match name {
            "Symbol" => self.parse_symbol(),
            "Float" => self.parse_float(),
            "Piecewise" => self.parse_piecewise(depth),
            _ => {
                let args = self.parse_list(depth, |p, depth| p.parse_comparison(depth))?;
                Some(SizeExpr::from_function(name, args).unwrap_or(SizeExpr::Int(Dim::Unknown)))
            }
        }
    }

    /// Parses comma-separated items up to the closing parenthesis.
    fn parse_list<T>(&mut self, depth: usize, item: impl Fn(&mut Self, usize) -> Option<T>) -> Option<Vec<T>> {
        let mut items = vec![];
        while !self.eat(")") {
            if !items.is_empty() && !self.eat(",") {
                return None;
            }
            items.push(item(self, depth + 1)?);
        }
        Some(items)
    }

    fn parse_number(&mut self) -> SizeExpr {
        let all = self.rest;
        let mut digits = self.take_word(|c| c.is_ascii_alphanumeric() || c == '.');
        // `1e-05`
        if digits.ends_with(['e', 'E']) && (self.eat("-") || self.eat("+")) {
            self.take_word(|c| c.is_ascii_digit());
            digits = all[..all.len() - self.rest.len()].trim_end();
        }
        match (digits.parse(), digits.parse()) {
            (Ok(i), _) => SizeExpr::int(i),
            (_, Ok(x)) => SizeExpr::float(x),
            _ => SizeExpr::Int(Dim::Unknown),
        }
    }

    /// The rest of `Piecewise((1, s0 > 2), ExprCondPair(2, True))`.
    fn parse_piecewise(&mut self, depth: usize) -> Option<SizeExpr> {
        let parts = self.parse_list(depth, |p, depth| {
            let _ = p.eat("ExprCondPair") || p.eat("Tuple");
            if !p.eat("(") {
                return None;
            }
            match &p.parse_list(depth, |p, depth| p.parse_comparison(depth))?[..] {
                [value, condition] => Some((value.clone(), condition.clone())),
                _ => None,
            }
        })?;
        SizeExpr::piecewise(parts)
    }

    /// The rest of `Float('1.5', precision=53)`.
    fn parse_float(&mut self) -> Option<SizeExpr> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (digits, rest) = self.rest[1..].split_once(quote)?;
        let (precision, rest) = rest.split_once(')')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '=' | ',' | ' ');
        if !precision.chars().all(plain) {
            return None;
        }
        let x = digits.parse().ok()?;
        self.rest = rest.trim_start();
        Some(SizeExpr::float(x))
    }
}

impl SizeParser<'_> {
    /// The rest of `Symbol('s77', positive=True, integer=True)`.
    fn parse_symbol(&mut self) -> Option<SizeExpr> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let (name, rest) = self.rest[1..].split_once(quote)?;
        let (assumptions, rest) = rest.split_once(')')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '=' | ',' | ' ');
        let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !named || !assumptions.chars().all(plain) {
            return None;
        }
        let symbol = Dim::var(name);
        self.rest = rest.trim_start();
        Some(SizeExpr::Int(symbol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_torch_writes_them() {
        for (text, want) in [
            ("s77", "s77"),
            ("2*s77 + 1", "2*s77 + 1"),
            ("s75*s96 - 1", "s75*s96 - 1"),
            ("(s0//2)", "(s0 // 2)"),
            ("-s0 + 5", "-s0 + 5"),
            ("FloorDiv(s0, 2)", "(s0 // 2)"),
            ("CeilToInt(IntTrueDiv(s0, 2))", "((s0 + 1) // 2)"),
            ("PythonMod(s0 + 1, 8)", "((s0 + 1) % 8)"),
            ("Max(1, s0)", "max(1, s0)"),
            ("s0**2", "s0*s0"),
            ("4*s0/2", "2*s0"),
            ("Where(s0 , 1, 2)", "Where(s0, 1, 2)"),
            ("Unheard(s0)", "?"),
            ("ToFloat(s0)", "?"),
            ("TruncToInt(1.5*ToFloat(s53))", "TruncToInt(1.5*ToFloat(s53))"),
            (
                "TruncToInt(Mul(Float('1.5', precision=53), ToFloat(Symbol('s53', positive=True, integer=True))))",
                "TruncToInt(1.5*ToFloat(s53))",
            ),
            ("RoundToInt(IntTrueDiv(s0, 3))", "RoundToInt(IntTrueDiv(s0, 3))"),
            (
                "TruncToInt(FloatTrueDiv(ToFloat(s0), 2.5) + 0.5)",
                "TruncToInt(FloatTrueDiv(ToFloat(s0), 2.5) + 0.5)",
            ),
            (
                "Piecewise((1, s0 > 2), (s0, Eq(s0, 1)), (7, True))",
                "Where(s0 > 2, 1, Where(s0 == 1, s0, 7))",
            ),
            (
                "Piecewise(ExprCondPair(Integer(1), StrictGreaterThan(Symbol('s0'), Integer(2))), ExprCondPair(Integer(7), true))",
                "Where(s0 > 2, 1, 7)",
            ),
            ("BitwiseFn_bitwise_and(s0, 3)", "BitwiseFn_bitwise_and(s0, 3)"),
            ("2**s0", "PowByNatural(2, s0)"),
            ("CleanDiv(s0, 2)", "(s0 // 2)"),
            ("CeilDiv(s0, 2)", "((s0 + 1) // 2)"),
            ("Identity(s0)", "s0"),
            ("Abs(s0 - 3)", "max(s0 - 3, -s0 + 3)"),
            ("7", "7"),
            ("Symbol('s77', positive=True, integer=True)", "s77"),
            (
                "Add(Mul(Integer(2), Symbol('s77', integer=True)), Integer(-1))",
                "2*s77 - 1",
            ),
            ("Mul(Rational(1, 2), Mul(Integer(4), Symbol('s7')))", "2*s7"),
            ("Pow(Symbol('s7', integer=True), Integer(2))", "s7*s7"),
            (
                "Mul(Integer(-1), FloorDiv(Mul(Integer(-1), Symbol('s7')), Integer(4)))",
                "-((-s7) // 4)",
            ),
            ("(((s0)))", "s0"),
        ] {
            assert_eq!(parse_size(text).map(|d| d.to_string()).as_deref(), Some(want), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let deep = "(".repeat(100_000);
        let minus = "-".repeat(100_000);
        for text in [
            "",
            "Symbol('s",
            "Symbol(s0)",
            "Symbol('a b')",
            "s0 +",
            "f(",
            "f(1 2)",
            "s0 s1",
            "2 ** ** 3",
            "é",
            &deep,
            &minus,
        ] {
            assert_eq!(parse_size(text), None, "{}", &text[..text.len().min(9)]);
        }
    }
}
