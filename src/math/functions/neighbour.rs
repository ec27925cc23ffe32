//! The next representable number.

use super::Function;

pub(super) struct Nextafter;

/// The neighbour of `x` towards `y`, by integer arithmetic on the bits.
macro_rules! neighbour {
    ($name:ident, $t:ty) => {
        #[inline(always)]
        fn $name(x: $t, y: $t) -> $t {
            let away = (x < y) == (x > 0.0);
            let bits = x.to_bits();
            let next = <$t>::from_bits(if away {
                bits.wrapping_add(1)
            } else {
                bits.wrapping_sub(1)
            });
            let least = <$t>::from_bits(1).copysign(y);
            let next = if x == 0.0 { least } else { next };
            let next = if x == y { y } else { next };
            if x.is_nan() | y.is_nan() { <$t>::NAN } else { next }
        }
    };
}
neighbour!(neighbour_f32, f32);
neighbour!(neighbour_f64, f64);

impl Function for Nextafter {
    const BINARY: bool = true;

    #[inline(always)]
    fn eval<const WIDE: bool>(x: f64, y: f64) -> f64 {
        match WIDE {
            true => neighbour_f64(x, y),
            // The operands are f32 numbers, so that the conversions are exact.
            false => neighbour_f32(x as f32, y as f32) as f64,
        }
    }
}
