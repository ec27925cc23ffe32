//! Functions of sizes: those of `torch/utils/_sympy/functions.py`, under torch's names.

use super::{Dim, SizeValue};

/// A function of numbers computed from sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // Each has the meaning of torch's function of that name.
#[non_exhaustive]
pub enum SizeFn {
    Add,
    Mul,
    Max,
    Min,
    TruncToInt,
    FloorToInt,
    CeilToInt,
    RoundToInt,
    TruncToFloat,
    RoundDecimal,
    ToFloat,
    IntTrueDiv,
    FloatTrueDiv,
    PowByNatural,
    FloatPow,
    Abs,
    BitAnd,
    BitOr,
    BitXor,
    LShift,
    RShift,
    Where,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    And,
    Or,
    Not,
    Sqrt,
    Exp,
    Log,
    Log2,
    Sin,
    Cos,
    Tan,
    Sinh,
    Cosh,
    Tanh,
    Asin,
    Acos,
    Atan,
    Asinh,
}

/// The result type of a function.
#[derive(Clone, Copy, PartialEq)]
enum Gives {
    Int,
    Float,
    /// An integer if all operands are integers.
    AsGiven,
}

use Gives::{AsGiven, Float, Int};
use SizeFn::*;

/// Each function's name, other names, number of operands (0 for any number) and result type.
const FUNCTIONS: &[(SizeFn, &str, &[&str], usize, Gives)] = &[
    (Add, "Add", &[], 0, AsGiven),
    (Mul, "Mul", &[], 0, AsGiven),
    (Max, "max", &["Max"], 0, AsGiven),
    (Min, "min", &["Min"], 0, AsGiven),
    (TruncToInt, "TruncToInt", &["trunc", "int"], 1, Int),
    (FloorToInt, "FloorToInt", &["floor"], 1, Int),
    (CeilToInt, "CeilToInt", &["ceiling", "ceil"], 1, Int),
    (RoundToInt, "RoundToInt", &["round"], 1, Int),
    (TruncToFloat, "TruncToFloat", &[], 1, Float),
    (RoundDecimal, "RoundDecimal", &[], 2, Float),
    (ToFloat, "ToFloat", &["float"], 1, Float),
    (IntTrueDiv, "IntTrueDiv", &[], 2, Float),
    (FloatTrueDiv, "FloatTrueDiv", &[], 2, Float),
    (PowByNatural, "PowByNatural", &[], 2, Int),
    (FloatPow, "FloatPow", &[], 2, Float),
    (Abs, "Abs", &["abs"], 1, AsGiven),
    (BitAnd, "BitwiseFn_bitwise_and", &["bitwise_and"], 2, Int),
    (BitOr, "BitwiseFn_bitwise_or", &["bitwise_or"], 2, Int),
    (BitXor, "BitwiseFn_bitwise_xor", &["bitwise_xor"], 2, Int),
    (LShift, "LShift", &[], 2, Int),
    (RShift, "RShift", &[], 2, Int),
    (Where, "Where", &[], 3, AsGiven),
    (Eq, "Eq", &["Equality"], 2, Int),
    (Ne, "Ne", &["Unequality"], 2, Int),
    (Lt, "Lt", &["StrictLessThan"], 2, Int),
    (Le, "Le", &["LessThan"], 2, Int),
    (Gt, "Gt", &["StrictGreaterThan"], 2, Int),
    (Ge, "Ge", &["GreaterThan"], 2, Int),
    (And, "And", &[], 0, Int),
    (Or, "Or", &[], 0, Int),
    (Not, "Not", &[], 1, Int),
    (Sqrt, "OpaqueUnaryFn_sqrt", &["sqrt"], 1, Float),
    (Exp, "OpaqueUnaryFn_exp", &["exp"], 1, Float),
    (Log, "OpaqueUnaryFn_log", &["log"], 1, Float),
    (Log2, "OpaqueUnaryFn_log2", &["log2"], 1, Float),
    (Sin, "OpaqueUnaryFn_sin", &["sin"], 1, Float),
    (Cos, "OpaqueUnaryFn_cos", &["cos"], 1, Float),
    (Tan, "OpaqueUnaryFn_tan", &["tan"], 1, Float),
    (Sinh, "OpaqueUnaryFn_sinh", &["sinh"], 1, Float),
    (Cosh, "OpaqueUnaryFn_cosh", &["cosh"], 1, Float),
    (Tanh, "OpaqueUnaryFn_tanh", &["tanh"], 1, Float),
    (Asin, "OpaqueUnaryFn_asin", &["asin"], 1, Float),
    (Acos, "OpaqueUnaryFn_acos", &["acos"], 1, Float),
    (Atan, "OpaqueUnaryFn_atan", &["atan"], 1, Float),
    (Asinh, "OpaqueUnaryFn_asinh", &["asinh"], 1, Float),
];

impl SizeFn {
    fn table_row(self) -> &'static (SizeFn, &'static str, &'static [&'static str], usize, Gives) {
        // A test checks that the rows are in the order of the variants.
        &FUNCTIONS[self as usize]
    }

    /// The function with this name.
    pub fn from_name(name: &str) -> Option<SizeFn> {
        let is = |(_, n, others, ..): &&(SizeFn, &str, &[&str], usize, Gives)| *n == name || others.contains(&name);
        FUNCTIONS.iter().find(is).map(|row| row.0)
    }

    /// The name under which it is printed.
    pub fn name(self) -> &'static str {
        self.table_row().1
    }

    /// Whether it takes `count` operands.
    pub(super) fn takes_count(self, count: usize) -> bool {
        let arity = self.table_row().3;
        count == arity || arity == 0 && count > 0
    }

    /// Whether it returns an integer; `of_ints` tells whether its operands are integers.
    pub(super) fn gives_int(self, of_ints: bool) -> bool {
        match self.table_row().4 {
            Int => true,
            Float => false,
            AsGiven => of_ints,
        }
    }

    /// The infix operator, for functions that are written with one.
    pub(super) fn infix(self) -> Option<&'static str> {
        Some(match self {
            Add => " + ",
            Mul => "*",
            Eq => " == ",
            Ne => " != ",
            Lt => " < ",
            Le => " <= ",
            Gt => " > ",
            Ge => " >= ",
            And => " and ",
            Or => " or ",
            _ => return None,
        })
    }

    /// The value for known operands, as Python computes it; `None` where Python raises an error or the value exceeds 64
    /// bits.
    pub(super) fn eval(self, args: &[SizeValue]) -> Option<SizeValue> {
        use SizeValue::{Float as F, Int as I};
        let x = args.first()?;
        Some(match (self, x, args.get(1)) {
            (Add, ..) => fold_values(args, i64::checked_add, |a, b| a + b)?,
            (Mul, ..) => fold_values(args, i64::checked_mul, |a, b| a * b)?,
            (Max, ..) => find_extreme(args, true),
            (Min, ..) => find_extreme(args, false),
            (And, ..) => I(args.iter().all(SizeValue::is_true) as i64),
            (Or, ..) => I(args.iter().any(SizeValue::is_true) as i64),
            (Not, ..) => I(!x.is_true() as i64),
            (Where, ..) => args.get(if x.is_true() { 1 } else { 2 })?.clone(),
            (Eq | Ne | Lt | Le | Gt | Ge, x, Some(y)) => I(self.compare_values(x, y) as i64),
            (TruncToInt | FloorToInt | CeilToInt | RoundToInt, I(i), _) => I(*i),
            (TruncToInt | FloorToInt | CeilToInt | RoundToInt, F(v), _) => I(float_to_int(self.round_float(*v))?),
            (Abs, I(i), _) => I(i.checked_abs()?),
            (Abs, F(v), _) => F(v.abs()),
            (ToFloat, ..) => F(x.as_f64()),
            (TruncToFloat, ..) => F(x.as_f64().trunc()),
            (IntTrueDiv | FloatTrueDiv, _, Some(y)) if y.as_f64() != 0.0 => F(x.as_f64() / y.as_f64()),
            (FloatPow, _, Some(y)) => F(x.as_f64().powf(y.as_f64())),
            (RoundDecimal, _, Some(I(digits))) => F(round_decimal(x.as_f64(), *digits)),
            (_, I(a), Some(I(b))) => I(self.on_ints(*a, *b)?),
            _ => F(self.eval_unary(x.as_f64())?),
        })
    }

    fn compare_values(self, x: &SizeValue, y: &SizeValue) -> bool {
        let order = match (x, y) {
            (SizeValue::Int(a), SizeValue::Int(b)) => Some(a.cmp(b)),
            _ => x.as_f64().partial_cmp(&y.as_f64()),
        };
        match self {
            Eq => order.is_some_and(|o| o.is_eq()),
            Ne => order.is_none_or(|o| o.is_ne()),
            Lt => order.is_some_and(|o| o.is_lt()),
            Le => order.is_some_and(|o| o.is_le()),
            Gt => order.is_some_and(|o| o.is_gt()),
            _ => order.is_some_and(|o| o.is_ge()),
        }
    }

    fn round_float(self, v: f64) -> f64 {
        match self {
            TruncToInt => v.trunc(),
            FloorToInt => v.floor(),
            CeilToInt => v.ceil(),
            _ => v.round_ties_even(),
        }
    }

    fn on_ints(self, a: i64, b: i64) -> Option<i64> {
        match self {
            PowByNatural => a.checked_pow(u32::try_from(b).ok()?),
            BitAnd => Some(a & b),
            BitOr => Some(a | b),
            BitXor => Some(a ^ b),
            LShift => a.checked_mul(1i64.checked_shl(u32::try_from(b).ok()?).filter(|p| *p > 0)?),
            RShift => (b >= 0).then(|| a >> b.min(63)),
            _ => None,
        }
    }

    fn eval_unary(self, v: f64) -> Option<f64> {
        let y = match self {
            Sqrt => v.sqrt(),
            Exp => v.exp(),
            Log => v.ln(),
            Log2 => v.log2(),
            Sin => v.sin(),
            Cos => v.cos(),
            Tan => v.tan(),
            Sinh => v.sinh(),
            Cosh => v.cosh(),
            Tanh => v.tanh(),
            Asin => v.asin(),
            Acos => v.acos(),
            Atan => v.atan(),
            Asinh => v.asinh(),
            _ => return None,
        };
        y.is_finite().then_some(y)
    }
}

/// Folds sums and products: exactly for integers, otherwise as floats.
fn fold_values(
    args: &[SizeValue],
    ints: fn(i64, i64) -> Option<i64>,
    floats: fn(f64, f64) -> f64,
) -> Option<SizeValue> {
    let (first, rest) = args.split_first()?;
    rest.iter().try_fold(first.clone(), |a, b| {
        Some(match (&a, b) {
            (SizeValue::Int(a), SizeValue::Int(b)) => SizeValue::Int(ints(*a, *b)?),
            _ => SizeValue::Float(floats(a.as_f64(), b.as_f64())),
        })
    })
}

fn find_extreme(args: &[SizeValue], greatest: bool) -> SizeValue {
    let better = |a: &SizeValue, b: &SizeValue| {
        if greatest {
            Gt.compare_values(b, a)
        } else {
            Lt.compare_values(b, a)
        }
    };
    let mut best = &args[0];
    for a in &args[1..] {
        if better(best, a) {
            best = a;
        }
    }
    best.clone()
}

/// An integral float as an integer.
fn float_to_int(v: f64) -> Option<i64> {
    // 2^63 as a float: beyond it, the conversion saturates.
    (v.is_finite() && v.abs() < 9_223_372_036_854_775_808.0).then_some(v as i64)
}

/// Python's `round(v, digits)`, which rounds the decimal representation of `v`.
fn round_decimal(v: f64, digits: i64) -> f64 {
    match digits {
        0..=17 => format!("{v:.*}", digits as usize).parse().unwrap_or(v),
        18.. => v,
        _ => {
            let scale = 10f64.powi(digits.unsigned_abs().min(308) as i32);
            (v / scale).round_ties_even() * scale
        }
    }
}

impl Dim {
    /// The integer functions of torch that have a normal form: `FloorDiv(a, b)` is `a // b`.
    pub(super) fn from_function(name: &str, dims: &[Dim]) -> Option<Dim> {
        Some(match (name, dims) {
            ("FloorDiv" | "CleanDiv", [a, b]) => a.floordiv(b),
            ("CeilDiv", [a, b]) => a.ceil_div(b),
            ("Mod" | "PythonMod", [a, b]) => a.modulo(b),
            ("ModularIndexing", [a, d, m]) => a.floordiv(d).modulo(m),
            ("Integer", [a]) => a.clone(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_variants() {
        for (i, row) in FUNCTIONS.iter().enumerate() {
            assert_eq!(row.0 as usize, i, "{}", row.1);
            assert_eq!(SizeFn::from_name(row.1), Some(row.0));
        }
        assert_eq!(FUNCTIONS.len(), Asinh as usize + 1);
    }

    #[test]
    fn values_are_pythons() {
        use SizeValue::{Float as F, Int as I};
        let half = |v: f64| RoundToInt.eval(&[F(v)]);
        assert_eq!([half(0.5), half(1.5), half(-2.5)], [I(0), I(2), I(-2)].map(Some));
        assert_eq!(TruncToInt.eval(&[F(-1.5)]), Some(I(-1)));
        assert_eq!(FloorToInt.eval(&[F(-1.5)]), Some(I(-2)));
        assert_eq!(TruncToInt.eval(&[F(1e19)]), None);
        assert_eq!(TruncToInt.eval(&[F(f64::NAN)]), None);
        assert_eq!(PowByNatural.eval(&[I(3), I(4)]), Some(I(81)));
        assert_eq!(PowByNatural.eval(&[I(3), I(99)]), None);
        assert_eq!(LShift.eval(&[I(3), I(2)]), Some(I(12)));
        assert_eq!(LShift.eval(&[I(1), I(63)]), None);
        assert_eq!(RShift.eval(&[I(-3), I(200)]), Some(I(-1)));
        assert_eq!(IntTrueDiv.eval(&[I(1), I(0)]), None);
        assert_eq!(Sqrt.eval(&[F(-1.0)]), None);
        assert_eq!(Where.eval(&[I(0), I(1), F(2.5)]), Some(F(2.5)));
        assert_eq!(Max.eval(&[I(2), F(2.5)]), Some(F(2.5)));
        assert_eq!(RoundDecimal.eval(&[F(2.675), I(2)]), Some(F(2.67)));
    }
}
