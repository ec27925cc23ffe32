//! The order of 16-bit floats, by integers of as many bits: comparing these takes no conversions, and a vector holds twice as many.

use super::extrema::arg_lines;
use crate::op::rows::lines::DimLines;
use crate::parallel::Pool;
use crate::tensor::{WideLoop, run_wide};
use crate::types::DType;

/// The bits of infinity.
pub(super) const BF16_INFINITY: i16 = 0x7f80;
/// The bits of infinity.
pub(super) const F16_INFINITY: i16 = 0x7c00;

/// An integer in whose order a float with these bits is: zeros are equal, and NaN is the extremum.
#[inline(always)]
pub(super) fn order_key<const INFINITY: i16>(bits: i16, largest: bool) -> i16 {
    let magnitude = bits & 0x7fff;
    let number = if bits < 0 { -magnitude } else { magnitude };
    let nan = if largest { i16::MAX } else { i16::MIN };
    if magnitude > INFINITY { nan } else { number }
}

/// The keys of some elements.
struct Keys<'a, const INFINITY: i16> {
    bits: &'a [i16],
    largest: bool,
    keys: &'a mut [i16],
}

impl<const INFINITY: i16> WideLoop for Keys<'_, INFINITY> {
    #[inline(always)]
    fn run(self) {
        for (key, &bits) in self.keys.iter_mut().zip(self.bits) {
            *key = order_key::<INFINITY>(bits, self.largest);
        }
    }
}

fn write_keys(dtype: DType, bits: &[i16], largest: bool, keys: &mut [i16]) {
    match dtype {
        DType::F16 => run_wide(Keys::<F16_INFINITY> { bits, largest, keys }),
        _ => run_wide(Keys::<BF16_INFINITY> { bits, largest, keys }),
    }
}

/// The number of keys that are made at once: as many as the L1 cache and the L2 cache hold with the elements.
const AT_ONCE: usize = 32 << 10;

/// [`arg_lines`] of the 16-bit floats with these bits.
pub(super) fn arg_halves(dtype: DType, bits: &[i16], lines: &DimLines, largest: bool, out: &mut [i64], pool: &Pool) {
    let block = lines.len * lines.inner;
    let blocks = (AT_ONCE / block.max(1)).max(1);
    if lines.outer <= blocks {
        let mut keys = vec![0; bits.len()];
        pool.run_parts(&mut keys, AT_ONCE, |i, keys| {
            write_keys(dtype, &bits[i * AT_ONCE..][..keys.len()], largest, keys);
        });
        return arg_lines(&keys, lines, largest, out, pool);
    }
    pool.run_parts(out, blocks * lines.inner, |i, out| {
        let outer = out.len() / lines.inner;
        let bits = &bits[i * blocks * block..][..outer * block];
        let mut keys = vec![0; bits.len()];
        write_keys(dtype, bits, largest, &mut keys);
        let some = DimLines { outer, ..*lines };
        arg_lines(&keys, &some, largest, out, &Pool::new(1));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn keys_have_the_order_of_the_numbers() {
        let some: Vec<i16> = (0..=u16::MAX).step_by(37).map(|b| b as i16).collect();
        let special = [
            0,
            i16::MIN,
            BF16_INFINITY,
            F16_INFINITY,
            BF16_INFINITY + 1,
            F16_INFINITY + 1,
            -1,
            BF16_INFINITY | i16::MIN,
            F16_INFINITY | i16::MIN,
        ];
        let all: Vec<i16> = some.into_iter().chain(special).collect();
        for &x in &all {
            for &y in &special {
                let [a, b] = [x, y].map(|v| bf16::from_bits(v as u16).to_f32());
                check(a, b, |largest| [x, y].map(|v| order_key::<BF16_INFINITY>(v, largest)));
                let [a, b] = [x, y].map(|v| f16::from_bits(v as u16).to_f32());
                check(a, b, |largest| [x, y].map(|v| order_key::<F16_INFINITY>(v, largest)));
            }
        }
    }

    fn check(a: f32, b: f32, keys: impl Fn(bool) -> [i16; 2]) {
        let ([x, y], [p, q]) = (keys(true), keys(false));
        match (a.is_nan(), b.is_nan()) {
            (false, false) => assert!(
                (a < b) == (x < y) && (a > b) == (p > q) && (a == b) == (x == y),
                "{a} {b}"
            ),
            (true, true) => assert!(x == y && p == q),
            (true, false) => assert!(x > y && p < q, "{b}"),
            (false, true) => assert!(x < y && p > q, "{a}"),
        }
    }
}
