//! The functions of this program that compiled code calls by name: scalar functions that have no vector code. They are those of
//! [`scalar::math`](crate::scalar::math), so that compiled and interpreted results are the same.

use crate::scalar::math::{f32_binary, f32_unary, f64_binary, f64_unary, gcd};
use crate::scalar::{Binary, Unary};
use std::collections::HashMap;
use std::sync::OnceLock;

/// A function with C's calling convention; all its operands and its result have one type, which the name ends with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFunction {
    /// The symbol: `fxc_atan2_f32`.
    pub symbol: &'static str,
    /// Where it is in this process.
    pub address: usize,
}

macro_rules! functions {
    (unary: $($u:ident)*; binary: $($v:ident)*) => {
        vec![
            $({
                extern "C" fn f(x: f32) -> f32 {
                    f32_unary(Unary::$u).map_or(f32::NAN, |f| f(x))
                }
                function(concat!("fxc_", stringify!($u), "_f32"), f as *const ())
            },
            {
                extern "C" fn f(x: f64) -> f64 {
                    f64_unary(Unary::$u).map_or(f64::NAN, |f| f(x))
                }
                function(concat!("fxc_", stringify!($u), "_f64"), f as *const ())
            },)*
            $({
                extern "C" fn f(x: f32, y: f32) -> f32 {
                    f32_binary(Binary::$v).map_or(f32::NAN, |f| f(x, y))
                }
                function(concat!("fxc_", stringify!($v), "_f32"), f as *const ())
            },
            {
                extern "C" fn f(x: f64, y: f64) -> f64 {
                    f64_binary(Binary::$v).map_or(f64::NAN, |f| f(x, y))
                }
                function(concat!("fxc_", stringify!($v), "_f64"), f as *const ())
            },)*
            {
                extern "C" fn f(x: i64, y: i64) -> i64 {
                    crate::scalar::functions::pow_int(x, y)
                }
                function("fxc_Pow_i64", f as *const ())
            },
            {
                extern "C" fn f(x: i64, y: i64) -> i64 {
                    gcd(x, y)
                }
                function("fxc_Gcd_i64", f as *const ())
            },
        ]
    };
}

fn function(symbol: &'static str, address: *const ()) -> HostFunction {
    HostFunction {
        symbol,
        address: address as usize,
    }
}

/// All of them. A place in this list is not part of any format: files name the symbols.
pub(crate) fn host_functions() -> &'static [HostFunction] {
    &host_function_table().0
}

/// The place in [`host_functions`] of the symbol.
pub(crate) fn host_function(symbol: &str) -> Option<usize> {
    host_function_table().1.get(symbol).copied()
}

fn host_function_table() -> &'static (Vec<HostFunction>, HashMap<&'static str, usize>) {
    static TABLE: OnceLock<(Vec<HostFunction>, HashMap<&'static str, usize>)> = OnceLock::new();
    TABLE.get_or_init(|| {
        let all = functions! {
            unary: Exp Exp2 Expm1 Log Log2 Log10 Log1p Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf Erfc
                Erfcx Erfinv Lgamma Digamma I0 I0e I1 I1e Ndtri Sigmoid;
            binary: FloorDiv Mod Fmod Pow Atan2 Hypot Nextafter Zeta
        };
        let places = all.iter().enumerate().map(|(i, f)| (f.symbol, i)).collect();
        (all, places)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_name_functions_that_compute() {
        for op in [Unary::Tan, Unary::Erfinv, Unary::Ndtri, Unary::Sigmoid] {
            assert!(host_function(&format!("fxc_{op:?}_f32")).is_some());
            assert!(f32_unary(op).is_some() && f64_unary(op).is_some(), "{op:?}");
        }
        for op in [Binary::FloorDiv, Binary::Pow, Binary::Zeta] {
            assert!(host_function(&format!("fxc_{op:?}_f64")).is_some());
            assert!(f32_binary(op).is_some() && f64_binary(op).is_some(), "{op:?}");
        }
        assert_eq!(
            host_functions().len(),
            host_function_table().1.len(),
            "symbols are unique"
        );
    }
}
