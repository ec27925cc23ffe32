//! Calls from compiled code into Rust: functions that have no vector code, lane by lane. They are the functions of
//! [`scalar::math`](crate::scalar::math), so that compiled and interpreted results are the same.

use super::lanes::{Class, Emitter, Lanes};
use crate::scalar::math::{f32_binary, f32_unary, f64_binary, f64_unary, gcd};
use crate::scalar::{Binary, Unary};
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, Type, Value};

/// For each operation a function with C's calling convention. `map_or` makes them total; the tables have all that
/// are named here (a test sees to it).
macro_rules! tables {
    (unary: $($u:ident)*; binary: $($v:ident)*) => {
        fn unary_address(op: Unary, class: Class) -> Option<usize> {
            match op {
                $(Unary::$u => {
                    extern "C" fn f(x: f32) -> f32 {
                        f32_unary(Unary::$u).map_or(f32::NAN, |f| f(x))
                    }
                    extern "C" fn d(x: f64) -> f64 {
                        f64_unary(Unary::$u).map_or(f64::NAN, |f| f(x))
                    }
                    Some(if class == Class::F32 { f as *const () as usize } else { d as *const () as usize })
                })*
                _ => None,
            }
        }

        fn binary_address(op: Binary, class: Class) -> Option<usize> {
            match op {
                $(Binary::$v => {
                    extern "C" fn f(x: f32, y: f32) -> f32 {
                        f32_binary(Binary::$v).map_or(f32::NAN, |f| f(x, y))
                    }
                    extern "C" fn d(x: f64, y: f64) -> f64 {
                        f64_binary(Binary::$v).map_or(f64::NAN, |f| f(x, y))
                    }
                    Some(if class == Class::F32 { f as *const () as usize } else { d as *const () as usize })
                })*
                _ => None,
            }
        }
    };
}

tables! {
    unary: Exp Exp2 Expm1 Log Log2 Log10 Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Erfc
        Erfcx Erfinv Lgamma Digamma I0 I0e I1 I1e Ndtri Sigmoid;
    binary: FloorDiv Mod Fmod Pow Atan2 Hypot Nextafter Zeta
}

extern "C" fn pow_int(x: i64, y: i64) -> i64 {
    crate::kernel::pow_int(x, y)
}

extern "C" fn gcd_int(x: i64, y: i64) -> i64 {
    gcd(x, y)
}

impl Emitter<'_> {
    /// Calls the function at `address` with arguments and result of one type.
    fn call(&mut self, address: usize, ty: Type, args: &[Value]) -> Value {
        let mut sig = Signature::new(self.b.func.signature.call_conv);
        sig.params.extend(args.iter().map(|_| AbiParam::new(ty)));
        sig.returns.push(AbiParam::new(ty));
        let sig = self.b.import_signature(sig);
        let f = self.b.ins().iconst(I64, address as i64);
        let call = self.b.ins().call_indirect(sig, f, args);
        self.b.inst_results(call)[0]
    }

    /// A float function of one operand by calls.
    pub fn call_unary(&mut self, op: Unary, c: Class, x: &Lanes) -> Lanes {
        let address = unary_address(op, c).unwrap_or_else(|| panic!("{op:?} has a function"));
        self.per_lane(&[(c, x)], c, |e, x| e.call(address, c.scalar(), x))
    }

    /// A float function of two operands by calls.
    pub fn call_binary(&mut self, op: Binary, c: Class, x: &Lanes, y: &Lanes) -> Lanes {
        let address = binary_address(op, c).unwrap_or_else(|| panic!("{op:?} has a function"));
        self.per_lane(&[(c, x), (c, y)], c, |e, a| e.call(address, c.scalar(), a))
    }

    /// `x ** y` or the greatest common divisor of I64 scalars.
    pub fn call_int(&mut self, op: Binary, x: Value, y: Value) -> Value {
        let address = match op {
            Binary::Pow => pow_int as *const () as usize,
            _ => gcd_int as *const () as usize,
        };
        self.call(address, I64, &[x, y])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_exists() {
        for op in [Unary::Tan, Unary::Erfinv, Unary::Ndtri, Unary::Sigmoid] {
            assert!(unary_address(op, Class::F32).is_some() && f32_unary(op).is_some() && f64_unary(op).is_some());
        }
        for op in [Binary::FloorDiv, Binary::Pow, Binary::Zeta] {
            assert!(binary_address(op, Class::F64).is_some() && f32_binary(op).is_some() && f64_binary(op).is_some());
        }
    }
}
