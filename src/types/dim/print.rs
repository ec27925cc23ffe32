//! Prints sizes as FXIR.

use super::{Atom, Dim, SizeExpr, SizeFn};
use std::fmt;

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Const(c) => write!(f, "{c}"),
            Dim::Unknown => f.write_str("?"),
            Dim::Poly(terms) => {
                // Print the constant last, as a person would: `2*N + 1`.
                let (constant, vars): (Vec<_>, Vec<_>) = terms.iter().partition(|t| t.factors.is_empty());
                for (i, t) in vars.into_iter().chain(constant).enumerate() {
                    let sign = match (i, t.coef < 0) {
                        (0, false) => "",
                        (0, true) => "-",
                        (_, false) => " + ",
                        (_, true) => " - ",
                    };
                    f.write_str(sign)?;
                    let c = t.coef.unsigned_abs();
                    let mut parts: Vec<String> = t.factors.iter().map(|a| a.to_string()).collect();
                    if c != 1 || parts.is_empty() {
                        parts.insert(0, c.to_string());
                    }
                    f.write_str(&parts.join("*"))?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simple = |d: &Dim| {
            if matches!(d, Dim::Const(_) | Dim::Unknown) || d.as_var().is_some() {
                d.to_string()
            } else {
                format!("({d})")
            }
        };
        match self {
            Atom::Var(v) => f.write_str(v),
            Atom::FloorDiv(a, b) => write!(f, "({} // {})", simple(a), simple(b)),
            Atom::Mod(a, b) => write!(f, "({} % {})", simple(a), simple(b)),
            Atom::Max(a, b) => write!(f, "max({a}, {b})"),
            Atom::Min(a, b) => write!(f, "min({a}, {b})"),
            Atom::Expr(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for SizeExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeExpr::Int(d) => d.fmt(f),
            SizeExpr::Ratio(a, b) => {
                print_operand(f, &SizeExpr::Int(a.clone()))?;
                f.write_str("/")?;
                print_operand(f, &SizeExpr::Int(b.clone()))
            }
            SizeExpr::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            SizeExpr::Call(function, args) => match function.infix() {
                Some(sign) => {
                    for (i, a) in args.iter().enumerate() {
                        f.write_str(if i > 0 { sign } else { "" })?;
                        print_operand(f, a)?;
                    }
                    Ok(())
                }
                None if *function == SizeFn::Not => {
                    f.write_str("not ")?;
                    print_operand(f, &args[0])
                }
                None => {
                    let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
                    write!(f, "{}({})", function.name(), args.join(", "))
                }
            },
        }
    }
}

/// Prints an operand of an infix operator, in parentheses unless it is a name, a number or a call.
fn print_operand(f: &mut fmt::Formatter<'_>, e: &SizeExpr) -> fmt::Result {
    let plain = match e {
        SizeExpr::Int(d) => matches!(d, Dim::Const(0..) | Dim::Unknown) || d.as_var().is_some(),
        SizeExpr::Float(bits) => f64::from_bits(*bits) >= 0.0,
        SizeExpr::Ratio(..) => false,
        SizeExpr::Call(function, _) => function.infix().is_none() && *function != SizeFn::Not,
    };
    if plain { write!(f, "{e}") } else { write!(f, "({e})") }
}
