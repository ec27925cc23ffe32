//! The functions that compiled code calls by name: for groups of elements those of
//! [`math::functions`](crate::math::functions); for single elements those of [`scalar::math`](crate::scalar::math)
//! that have no vector code. The interpreter uses the same functions, so results are equal.

use crate::math::functions::{LANE_OPS, LaneOp, lane_function};
use crate::scalar::Binary;
use crate::scalar::math::{f32_binary, f64_binary, gcd};
use crate::target::{Isa, Target};
use crate::tensor::transpose_tile;
use std::collections::HashMap;
use std::sync::OnceLock;

/// A function with the C calling convention. All operands and the result have one type, which is the suffix of the
/// name. A function on groups is a [`LaneFn`](crate::math::functions::LaneFn), one on tiles a
/// [`transpose_tile`](crate::tensor::transpose_tile).
#[derive(Clone, Debug)]
pub(crate) struct HostFunction {
    /// The symbol: `fxc_Fmod_f32`, `fxc_Tan_f32_lanes`.
    pub symbol: String,
    /// The addresses in this process of its code for each instruction set.
    addresses: [usize; 3],
}

impl HostFunction {
    /// The address of its code for `target`.
    pub(crate) fn address(&self, target: Target) -> usize {
        self.addresses[target.isa() as usize]
    }
}

macro_rules! functions {
    ($($v:ident)*) => {
        vec![
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

fn function(symbol: &str, address: *const ()) -> HostFunction {
    HostFunction {
        symbol: symbol.into(),
        // The Rust compiler's baseline runs everywhere.
        addresses: [address as usize; 3],
    }
}

/// All host functions. Files refer to them by symbol, so their order is not part of any format.
pub(crate) fn host_functions() -> &'static [HostFunction] {
    &host_function_table().0
}

/// The index of a symbol in [`host_functions`].
pub(crate) fn host_function(symbol: &str) -> Option<usize> {
    host_function_table().1.get(symbol).copied()
}

/// The symbol of the transpose of tiles whose elements have `size` bytes.
pub(crate) fn transpose_symbol(size: usize) -> String {
    format!("fxc_transpose_{size}")
}

/// The symbol of an operation on groups of elements: f64 if `wide`, else f32.
pub(crate) fn lane_symbol(op: LaneOp, wide: bool) -> String {
    let name = match op {
        LaneOp::Unary(op) => format!("{op:?}"),
        LaneOp::Binary(op) => format!("{op:?}"),
    };
    format!("fxc_{name}_{}_lanes", if wide { "f64" } else { "f32" })
}

fn lane_functions() -> impl Iterator<Item = HostFunction> {
    let all = LANE_OPS.iter().flat_map(|&op| [(op, false), (op, true)]);
    all.filter_map(move |(op, wide)| {
        let address = |isa| Some(lane_function(op, wide, isa)? as usize);
        Some(HostFunction {
            symbol: lane_symbol(op, wide),
            addresses: [address(Isa::Portable)?, address(Isa::Avx2)?, address(Isa::Avx512)?],
        })
    })
}

fn host_function_table() -> &'static (Vec<HostFunction>, HashMap<String, usize>) {
    static TABLE: OnceLock<(Vec<HostFunction>, HashMap<String, usize>)> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut all = functions! { FloorDiv Mod Fmod Nextafter };
        all.extend(lane_functions());
        let transpose = |size| function(&transpose_symbol(size), transpose_tile(size) as *const ());
        all.extend([1, 2, 4, 8].map(transpose));
        let places = all.iter().enumerate().map(|(i, f)| (f.symbol.clone(), i)).collect();
        (all, places)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Unary;

    #[test]
    fn a_target_gets_the_code_of_its_instruction_set() {
        let op = LaneOp::Unary(Unary::Tan);
        let function = &host_functions()[host_function(&lane_symbol(op, false)).expect("has vector code")];
        let levels = [Isa::Portable, Isa::Avx2, Isa::Avx512];
        let expected = levels.map(|isa| lane_function(op, false, isa).expect("has vector code") as usize);
        assert_eq!(function.addresses, expected);
        assert_eq!(function.address(Target::default()), expected[0]);
    }

    #[test]
    fn symbols_name_functions_that_compute() {
        for op in [Unary::Tan, Unary::Erfinv, Unary::Ndtri, Unary::Sigmoid] {
            assert!(host_function(&lane_symbol(LaneOp::Unary(op), false)).is_some());
        }
        for op in [Binary::FloorDiv, Binary::Nextafter] {
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
