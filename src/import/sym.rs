//! Symbolic sizes as torch's exporter writes them: sympy's `srepr`, such as `Add(Mul(Integer(2), Symbol('s77',
//! positive=True, integer=True)), Integer(1))`, and its `str`, such as `2*s77 + 1` or `(s0//2)`. What [`Dim`] cannot hold is
//! the unknown size.

use crate::types::Dim;

/// How deep an expression may nest.
const MAX_DEPTH: usize = 64;

/// The size that `text` means; [`Dim::Unknown`] if it is beyond what sizes can express, `None` if it does not parse.
pub(super) fn parse_size(text: &str) -> Option<Dim> {
    let mut p = Parser {
        rest: text.trim_start(),
    };
    let v = p.sum(0)?;
    p.rest.is_empty().then(|| v.size())
}

/// A value of an expression: a size, or a quotient of sizes on its way into a rounding function.
#[derive(Clone)]
enum Value {
    Size(Dim),
    Ratio(Dim, Dim),
}

impl Value {
    fn size(self) -> Dim {
        match self {
            Value::Size(d) => d,
            Value::Ratio(a, b) => a.exact_div(&b).unwrap_or(Dim::Unknown),
        }
    }

    fn mul(self, other: Value) -> Value {
        match (self, other) {
            (Value::Size(a), Value::Size(b)) => Value::Size(a.mul(&b)),
            (Value::Ratio(a, b), Value::Size(c)) | (Value::Size(c), Value::Ratio(a, b)) => Value::Ratio(a.mul(&c), b),
            (Value::Ratio(a, b), Value::Ratio(c, d)) => Value::Ratio(a.mul(&c), b.mul(&d)),
        }
    }

    fn floor(self) -> Dim {
        match self {
            Value::Size(d) => d,
            Value::Ratio(a, b) => a.floordiv(&b),
        }
    }
}

fn ceil_div(a: &Dim, b: &Dim) -> Dim {
    a.add(b).sub(&Dim::Const(1)).floordiv(b)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn word(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        word
    }

    fn sum(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut v = self.product(depth)?;
        loop {
            if self.eat("+") {
                v = Value::Size(v.size().add(&self.product(depth)?.size()));
            } else if self.eat("-") {
                v = Value::Size(v.size().sub(&self.product(depth)?.size()));
            } else {
                return Some(v);
            }
        }
    }

    fn product(&mut self, depth: usize) -> Option<Value> {
        let mut v = self.factor(depth)?;
        loop {
            if self.rest.starts_with("**") {
                return None;
            } else if self.eat("*") {
                v = Value::Size(v.size().mul(&self.factor(depth)?.size()));
            } else if self.eat("//") {
                v = Value::Size(v.size().floordiv(&self.factor(depth)?.size()));
            } else if self.eat("/") {
                v = Value::Ratio(v.size(), self.factor(depth)?.size());
            } else if self.eat("%") {
                v = Value::Size(v.size().modulo(&self.factor(depth)?.size()));
            } else {
                return Some(v);
            }
        }
    }

    fn factor(&mut self, depth: usize) -> Option<Value> {
        if self.eat("-") {
            let v = self.deeper(depth)?;
            return Some(Value::Size(v.size().neg()));
        }
        let base = self.atom(depth)?;
        if !self.eat("**") {
            return Some(base);
        }
        let exponent = self.deeper(depth)?.size();
        Some(Value::Size(power(&base.size(), &exponent)))
    }

    fn deeper(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            None
        } else {
            self.factor(depth + 1)
        }
    }

    fn atom(&mut self, depth: usize) -> Option<Value> {
        if self.eat("(") {
            let v = self.sum(depth + 1)?;
            return self.eat(")").then_some(v);
        }
        if self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            let digits = self.word(|c| c.is_ascii_digit() || c == '.');
            return Some(Value::Size(digits.parse().map_or(Dim::Unknown, Dim::Const)));
        }
        let name = self.word(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        if name.is_empty() {
            return None;
        }
        if !self.eat("(") {
            return Some(Value::Size(Dim::var(name)));
        }
        if name == "Symbol" {
            return self.symbol();
        }
        let mut args = vec![];
        while !self.eat(")") {
            if !args.is_empty() && !self.eat(",") {
                return None;
            }
            args.push(self.sum(depth + 1)?);
        }
        Some(call(name, args))
    }
}

impl Parser<'_> {
    /// The rest of `Symbol('s77', positive=True, integer=True)`.
    fn symbol(&mut self) -> Option<Value> {
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
        Some(Value::Size(symbol))
    }
}

fn power(base: &Dim, exponent: &Dim) -> Dim {
    match exponent.as_const() {
        Some(n @ 0..=16) => (0..n).fold(Dim::Const(1), |p, _| p.mul(base)),
        _ => Dim::Unknown,
    }
}

/// The functions of `torch/utils/_sympy/functions.py` that sizes can express.
fn call(name: &str, args: Vec<Value>) -> Value {
    let name = name.rsplit('.').next().unwrap_or(name);
    if let ("IntTrueDiv" | "FloatTrueDiv" | "Rational", [a, b]) = (name, &args[..]) {
        return Value::Ratio(a.clone().size(), b.clone().size());
    }
    if name == "Mul" {
        return args.into_iter().fold(Value::Size(Dim::Const(1)), Value::mul);
    }
    let size = match (name, &args[..]) {
        // Sizes are not negative, so rounding towards zero is rounding down.
        ("FloorToInt" | "TruncToInt" | "floor", [v]) => v.clone().floor(),
        ("CeilToInt" | "ceiling", [Value::Ratio(a, b)]) => ceil_div(a, b),
        ("CeilToInt" | "ceiling" | "Identity" | "ToFloat" | "Integer", [v]) => v.clone().size(),
        _ => {
            let dims: Vec<Dim> = args.into_iter().map(Value::size).collect();
            match (name, &dims[..]) {
                ("FloorDiv" | "CleanDiv", [a, b]) => a.floordiv(b),
                ("CeilDiv", [a, b]) => ceil_div(a, b),
                ("Mod" | "PythonMod", [a, b]) => a.modulo(b),
                ("ModularIndexing", [a, d, m]) => a.floordiv(d).modulo(m),
                ("PowByNatural" | "Pow", [a, n]) => power(a, n),
                ("Add", _) => dims.iter().fold(Dim::Const(0), |a, b| a.add(b)),
                ("Max", [first, rest @ ..]) => rest.iter().fold(first.clone(), |a, b| a.max_of(b)),
                ("Min", [first, rest @ ..]) => rest.iter().fold(first.clone(), |a, b| a.min_of(b)),
                _ => Dim::Unknown,
            }
        }
    };
    Value::Size(size)
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
            ("Where(s0 , 1, 2)", "?"),
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
