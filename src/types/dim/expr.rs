//! Numbers computed from sizes, as torch's tracer records them: floats, conditions, and the integers computed from
//! these.

use super::{Atom, Dim, SizeFn};
use std::sync::Arc;

/// A number computed from sizes. [`SizeExpr::Int`] holds whatever the normal form of [`Dim`] can hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SizeExpr {
    /// An integer in normal form.
    Int(Dim),
    /// An exact quotient of integers.
    Ratio(Dim, Dim),
    /// A float, by its bits.
    Float(u64),
    /// A function of other numbers.
    Call(SizeFn, Arc<[SizeExpr]>),
}

/// The value of a [`SizeExpr`]. Bools are 0 and 1.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SizeValue {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
}

impl SizeValue {
    pub(super) fn as_f64(&self) -> f64 {
        match self {
            SizeValue::Int(i) => *i as f64,
            SizeValue::Float(x) => *x,
        }
    }

    pub(super) fn is_true(&self) -> bool {
        self.as_f64() != 0.0
    }
}

/// The highest exponent for which a power is multiplied out.
const MAX_POWER: i64 = 16;

impl SizeExpr {
    /// A float.
    pub fn float(x: f64) -> SizeExpr {
        SizeExpr::Float(x.to_bits())
    }

    /// An integer.
    pub fn int(i: i64) -> SizeExpr {
        SizeExpr::Int(Dim::Const(i))
    }

    /// This as a size; `None` for a float or a quotient.
    pub fn into_dim(self) -> Option<Dim> {
        match self {
            SizeExpr::Int(d) => Some(d),
            SizeExpr::Ratio(a, b) => a.exact_div(&b),
            e @ SizeExpr::Call(..) if e.is_int() => Some(Dim::from_atom(Atom::Expr(e))),
            SizeExpr::Call(..) | SizeExpr::Float(_) => None,
        }
    }

    fn is_int(&self) -> bool {
        match self {
            SizeExpr::Int(_) => true,
            SizeExpr::Ratio(..) | SizeExpr::Float(_) => false,
            SizeExpr::Call(SizeFn::Where, args) => args[1..].iter().all(SizeExpr::is_int),
            SizeExpr::Call(f, args) => f.gives_int(args.iter().all(SizeExpr::is_int)),
        }
    }

    /// The function that torch calls `name`, applied to these operands. `None` if there is no such function or it takes
    /// a different number of operands.
    pub fn from_function(name: &str, args: Vec<SizeExpr>) -> Option<SizeExpr> {
        let name = name.rsplit('.').next().unwrap_or(name);
        match (name, &args[..]) {
            ("Identity", [x]) => return Some(x.clone()),
            ("Rational", [a, b]) => return Some(a.div(b)),
            ("Pow", [a, b]) => return Some(a.pow(b)),
            _ => {}
        }
        if let Some(f) = SizeFn::from_name(name) {
            return f.takes_count(args.len()).then(|| SizeExpr::simplified_call(f, args));
        }
        let dims: Option<Vec<Dim>> = args.into_iter().map(SizeExpr::into_dim).collect();
        // For floats these functions return floats, which are not sizes.
        let unknown = || Dim::from_function(name, &[Dim::Unknown, Dim::Unknown]);
        dims.map_or_else(unknown, |d| Dim::from_function(name, &d))
            .map(SizeExpr::Int)
    }

    /// `Piecewise((value, condition), …)`: the first value whose condition holds. The last condition is assumed to
    /// hold.
    pub fn piecewise(parts: Vec<(SizeExpr, SizeExpr)>) -> Option<SizeExpr> {
        let mut parts = parts.into_iter().rev();
        let (last, _) = parts.next()?;
        Some(parts.fold(last, |rest, (v, c)| {
            SizeExpr::simplified_call(SizeFn::Where, vec![c, v, rest])
        }))
    }

    /// Applies a function of one operand.
    pub fn apply_function(&self, f: SizeFn) -> SizeExpr {
        SizeExpr::simplified_call(f, vec![self.clone()])
    }

    /// Converts to a float.
    pub fn to_float(&self) -> SizeExpr {
        self.apply_function(SizeFn::ToFloat)
    }

    /// `self + other`.
    pub fn add(&self, other: &SizeExpr) -> SizeExpr {
        self.join_operand(SizeFn::Add, other)
    }

    /// `-self`.
    pub fn neg(&self) -> SizeExpr {
        SizeExpr::int(-1).mul(self)
    }

    /// `self - other`.
    pub fn sub(&self, other: &SizeExpr) -> SizeExpr {
        self.add(&other.neg())
    }

    /// `self * other`.
    pub fn mul(&self, other: &SizeExpr) -> SizeExpr {
        self.join_operand(SizeFn::Mul, other)
    }

    /// The exact quotient.
    pub fn div(&self, other: &SizeExpr) -> SizeExpr {
        match (self, other) {
            (SizeExpr::Int(a), SizeExpr::Int(b)) => match a.exact_div(b) {
                Some(q) => SizeExpr::Int(q),
                None => SizeExpr::Ratio(a.clone(), b.clone()),
            },
            (SizeExpr::Ratio(a, b), SizeExpr::Int(c)) => SizeExpr::Ratio(a.clone(), b.mul(c)),
            _ => SizeExpr::simplified_call(SizeFn::FloatTrueDiv, vec![self.clone(), other.clone()]),
        }
    }

    /// `self ** other`.
    pub fn pow(&self, other: &SizeExpr) -> SizeExpr {
        let (base, exponent) = match (self, other) {
            (SizeExpr::Int(base), SizeExpr::Int(e)) => (base, e),
            _ => return SizeExpr::simplified_call(SizeFn::FloatPow, vec![self.clone(), other.clone()]),
        };
        match exponent.as_const() {
            Some(n @ 0..=MAX_POWER) => SizeExpr::Int((0..n).fold(Dim::Const(1), |p, _| p.mul(base))),
            Some(-1) => SizeExpr::int(1).div(self),
            _ => SizeExpr::simplified_call(SizeFn::PowByNatural, vec![self.clone(), other.clone()]),
        }
    }

    /// `self // other` and `self % other`, for integers only.
    pub fn on_dims(&self, other: &SizeExpr, f: impl Fn(&Dim, &Dim) -> Dim) -> Option<SizeExpr> {
        let (a, b) = (self.clone().into_dim()?, other.clone().into_dim()?);
        Some(SizeExpr::Int(f(&a, &b)))
    }

    /// A sum or product extended by one more operand.
    fn join_operand(&self, f: SizeFn, other: &SizeExpr) -> SizeExpr {
        let mut args = match self {
            SizeExpr::Call(function, args) if *function == f => args.to_vec(),
            x => vec![x.clone()],
        };
        args.push(other.clone());
        SizeExpr::simplified_call(f, args)
    }

    /// `f` applied to `args`, simplified.
    fn simplified_call(f: SizeFn, args: Vec<SizeExpr>) -> SizeExpr {
        // An integer that is an atom of its own is in normal form.
        let args: Vec<SizeExpr> = args.into_iter().map(SizeExpr::into_normal_form).collect();
        if args.iter().any(|a| matches!(a, SizeExpr::Int(Dim::Unknown))) {
            return SizeExpr::Int(Dim::Unknown);
        }
        if let Some(simple) = simplify_call(f, &args) {
            return simple;
        }
        let known: Option<Vec<SizeValue>> = args.iter().map(SizeExpr::const_value).collect();
        match known.map(|v| f.eval(&v)) {
            Some(Some(SizeValue::Int(i))) => SizeExpr::int(i),
            Some(Some(SizeValue::Float(x))) => SizeExpr::float(x),
            // Either an error, or beyond 64 bits.
            Some(None) => SizeExpr::Int(Dim::Unknown),
            None => SizeExpr::Call(f, args.into()).bounded(),
        }
    }

    fn into_normal_form(self) -> SizeExpr {
        match self {
            SizeExpr::Call(..) if self.is_int() => self.into_dim().map_or(SizeExpr::Int(Dim::Unknown), SizeExpr::Int),
            e => e,
        }
    }

    /// The value, if this is a constant.
    fn const_value(&self) -> Option<SizeValue> {
        match self {
            SizeExpr::Int(d) => d.as_const().map(SizeValue::Int),
            SizeExpr::Float(bits) => Some(SizeValue::Float(f64::from_bits(*bits))),
            SizeExpr::Ratio(a, b) => match (a.as_const()?, b.as_const()?) {
                (_, 0) => None,
                (a, b) => Some(SizeValue::Float(a as f64 / b as f64)),
            },
            SizeExpr::Call(..) => None,
        }
    }

    /// The value if `bind` binds every variable; `None` if it does not, on overflow, or where Python raises an error.
    pub fn eval(&self, bind: &dyn Fn(&str) -> Option<i64>) -> Option<SizeValue> {
        match self {
            SizeExpr::Int(d) => d.eval(bind).map(SizeValue::Int),
            SizeExpr::Ratio(a, b) => {
                let ratio = SizeExpr::Ratio(Dim::Const(a.eval(bind)?), Dim::Const(b.eval(bind)?));
                ratio.const_value()
            }
            SizeExpr::Float(_) => self.const_value(),
            SizeExpr::Call(f, args) => {
                let args: Option<Vec<SizeValue>> = args.iter().map(|a| a.eval(bind)).collect();
                f.eval(&args?)
            }
        }
    }

    /// Replaces variables, like [`Dim::substitute`].
    pub fn substitute(&self, bind: &dyn Fn(&str) -> Option<Dim>) -> SizeExpr {
        match self {
            SizeExpr::Int(d) => SizeExpr::Int(d.substitute(bind)),
            SizeExpr::Ratio(a, b) => SizeExpr::Int(a.substitute(bind)).div(&SizeExpr::Int(b.substitute(bind))),
            SizeExpr::Float(_) => self.clone(),
            SizeExpr::Call(f, args) => SizeExpr::simplified_call(*f, args.iter().map(|a| a.substitute(bind)).collect()),
        }
    }

    /// Calls `f` with the name of every variable.
    pub fn visit_vars(&self, f: &mut dyn FnMut(&str)) {
        match self {
            SizeExpr::Int(d) => d.visit_vars(f),
            SizeExpr::Ratio(a, b) => {
                a.visit_vars(f);
                b.visit_vars(f);
            }
            SizeExpr::Float(_) => {}
            SizeExpr::Call(_, args) => args.iter().for_each(|a| a.visit_vars(f)),
        }
    }
}

/// Simplifies a call to an expression without the function, if possible.
fn simplify_call(f: SizeFn, args: &[SizeExpr]) -> Option<SizeExpr> {
    use SizeExpr::{Int, Ratio};
    let dims = || {
        args.iter()
            .map(|a| if let Int(d) = a { Some(d) } else { None })
            .collect::<Option<Vec<_>>>()
    };
    let fold = |f: fn(&Dim, &Dim) -> Dim| {
        let dims = dims()?;
        let (first, rest) = dims.split_first()?;
        Some(Int(rest.iter().fold((*first).clone(), |a, b| f(&a, b))))
    };
    match (f, args) {
        (SizeFn::Add, [Ratio(a, b), Int(c)] | [Int(c), Ratio(a, b)]) => {
            Some(Int(a.add(&b.mul(c))).div(&Int(b.clone())))
        }
        (SizeFn::Add, _) => fold(Dim::add),
        (SizeFn::Mul, [Ratio(a, b), Int(c)] | [Int(c), Ratio(a, b)]) => Some(Int(a.mul(c)).div(&Int(b.clone()))),
        (SizeFn::Mul, [Ratio(a, b), Ratio(c, d)]) => Some(Int(a.mul(c)).div(&Int(b.mul(d)))),
        (SizeFn::Mul, _) => fold(Dim::mul),
        (SizeFn::Max, _) => fold(Dim::max_of),
        (SizeFn::Min, _) => fold(Dim::min_of),
        (SizeFn::Abs, [Int(d)]) => Some(Int(d.max_of(&d.neg()))),
        (SizeFn::TruncToInt | SizeFn::FloorToInt | SizeFn::CeilToInt | SizeFn::RoundToInt, [x]) => {
            simplify_rounding(f, x)
        }
        (SizeFn::Where, [c, a, b]) => match c.const_value() {
            Some(c) => Some(if c.is_true() { a } else { b }.clone()),
            None => (a == b).then(|| a.clone()),
        },
        _ => None,
    }
}

/// Simplifies a rounding function whose result the normal form can hold.
fn simplify_rounding(f: SizeFn, x: &SizeExpr) -> Option<SizeExpr> {
    use SizeExpr::{Call, Float, Int, Ratio};
    let quotient = |a: &Dim, b: &Dim| match f {
        SizeFn::FloorToInt => Some(Int(a.floordiv(b))),
        SizeFn::TruncToInt if a.is_nonnegative() && b.is_nonnegative() => Some(Int(a.floordiv(b))),
        SizeFn::CeilToInt => Some(Int(a.ceil_div(b))),
        _ => None,
    };
    match x {
        Int(_) => Some(x.clone()),
        Ratio(a, b) => quotient(a, b),
        Call(SizeFn::ToFloat, args) => Some(args[0].clone()).filter(|a| matches!(a, Int(_))),
        // Sizes are far below 2^52, so a rounded quotient is on the same side of the next integer as the exact one.
        Call(SizeFn::IntTrueDiv, args) => match &args[..] {
            [Int(a), Int(b)] => quotient(a, b),
            _ => None,
        },
        Call(SizeFn::Mul, args) => match &args[..] {
            [Float(bits), Call(SizeFn::ToFloat, n)] => match &n[0] {
                Int(n) => by_power_of_two(f64::from_bits(*bits))
                    .and_then(|(up, down)| quotient(&n.mul(&Dim::Const(up)), &Dim::Const(down))),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The factor as an exact quotient of integers, if multiplying a size by it is exact.
fn by_power_of_two(factor: f64) -> Option<(i64, i64)> {
    // With factors below this bound, a product with a size has at most 52 bits.
    let small = |v: f64| (1.0..65536.0).contains(&v) && v.fract() == 0.0;
    let inverse = 1.0 / factor;
    if small(factor) {
        Some((factor as i64, 1))
    } else if small(inverse) && (inverse as i64 & (inverse as i64 - 1)) == 0 {
        Some((1, inverse as i64))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n() -> SizeExpr {
        SizeExpr::Int(Dim::var("N"))
    }

    #[test]
    fn integers_take_the_normal_form() {
        let text = |e: Option<SizeExpr>| e.and_then(SizeExpr::into_dim).map(|d| d.to_string());
        let call = |name: &str, args: &[SizeExpr]| text(SizeExpr::from_function(name, args.to_vec()));
        let two = SizeExpr::int(2);
        assert_eq!(call("FloorDiv", &[n(), two.clone()]).as_deref(), Some("(N // 2)"));
        assert_eq!(call("CeilToInt", &[n().div(&two)]).as_deref(), Some("((N + 1) // 2)"));
        assert_eq!(
            call("TruncToInt", &[n().neg().div(&two)]).as_deref(),
            Some("TruncToInt((-N)/2)")
        );
        assert_eq!(call("TruncToInt", &[n().to_float()]).as_deref(), Some("N"));
        assert_eq!(
            call("PowByNatural", &[two.clone(), n()]).as_deref(),
            Some("PowByNatural(2, N)")
        );
        assert_eq!(
            call("Where", &[SizeExpr::int(1), n(), two.clone()]).as_deref(),
            Some("N")
        );
        assert_eq!(call("ToFloat", &[n()]), None);
        assert_eq!(call("TruncToInt", &[n(), two]), None);
        assert_eq!(call("Unheard", &[n()]), None);
    }

    #[test]
    fn scaled_sizes_are_exact_or_kept() {
        let d = Dim::var("N");
        let text = |f: f64| d.scale_by(f).to_string();
        assert_eq!(text(1.5), "TruncToInt(1.5*ToFloat(N))");
        assert_eq!((text(2.0), text(0.5)), ("2*N".into(), "(N // 2)".into()));
        assert_eq!(d.scale_by(1.5).eval(&|_| Some(9)), Some(13));
        assert_eq!(d.scale_by(1.5).substitute(&|_| Some(Dim::Const(9))), Dim::Const(13));
        assert_eq!(d.scale_by(1e300).eval(&|_| Some(9)), None);
        let mut names = vec![];
        d.scale_by(1.5).visit_vars(&mut |v| names.push(v.to_string()));
        assert_eq!(names, ["N"]);
    }
}
