//! The order of 16-bit floats, by integers of as many bits: comparing these takes no conversions, and a vector holds twice as many.

use super::columns::arg_columns;
use super::extrema::arg_lines;
use super::packed::{BestKeyInShortLines, FEW, SHORT};
use crate::op::rows::fill::units_per_part;
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

/// The key of a float among those of which the greatest is the extremum.
fn ordered<const INFINITY: i16>(largest: bool) -> impl Fn(i16) -> i32 + Copy + Sync {
    move |bits| {
        let key = order_key::<INFINITY>(bits, largest);
        i32::from(if largest { key } else { !key })
    }
}

/// Whether lines are rows for which [`arg_short_rows`] is meant.
pub(super) fn are_short_rows(lines: &DimLines) -> bool {
    lines.inner == 1 && lines.outer > 1 && (1..=SHORT).contains(&lines.len)
}

/// The positions of the greatest keys in rows of `n` elements.
pub(super) fn arg_short_rows<T: Copy + Sync>(
    v: &[T],
    n: usize,
    key: impl Fn(T) -> i32 + Copy + Sync,
    out: &mut [i64],
    pool: &Pool,
) {
    let rows = units_per_part(out.len(), 4 * n * size_of::<T>(), pool);
    pool.run_parts(out, rows, |i, out| {
        let v = &v[i * rows * n..][..out.len() * n];
        run_wide(BestKeyInShortLines { v, n, key, out });
    });
}

/// The number of keys that are made at once: as many as the L1 cache and the L2 cache hold with the elements.
const AT_ONCE: usize = 32 << 10;

/// [`arg_lines`] of the 16-bit floats with these bits.
pub(super) fn arg_halves(dtype: DType, bits: &[i16], lines: &DimLines, largest: bool, out: &mut [i64], pool: &Pool) {
    if are_short_rows(lines) {
        return match dtype {
            DType::F16 => arg_short_rows(bits, lines.len, ordered::<F16_INFINITY>(largest), out, pool),
            _ => arg_short_rows(bits, lines.len, ordered::<BF16_INFINITY>(largest), out, pool),
        };
    }
    if lines.inner > FEW {
        return match dtype {
            DType::F16 => arg_columns_of_halves::<F16_INFINITY>(bits, lines, largest, out, pool),
            _ => arg_columns_of_halves::<BF16_INFINITY>(bits, lines, largest, out, pool),
        };
    }
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

fn arg_columns_of_halves<const INFINITY: i16>(
    bits: &[i16],
    lines: &DimLines,
    largest: bool,
    out: &mut [i64],
    pool: &Pool,
) {
    match largest {
        true => arg_columns::<_, _, true>(bits, |b| order_key::<INFINITY>(b, true), lines, out, pool),
        false => arg_columns::<_, _, false>(bits, |b| order_key::<INFINITY>(b, false), lines, out, pool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn short_rows_have_the_places_of_long_ones() {
        let numbers = [
            1.0,
            -0.0,
            0.0,
            f32::NAN,
            3.0,
            -2.0,
            f32::INFINITY,
            3.0,
            f32::NEG_INFINITY,
            f32::NAN,
        ];
        for n in [1, 3, 10] {
            let v: Vec<f32> = numbers.iter().cycle().take(40 * n + 3 * n).copied().collect();
            let bits: Vec<i16> = v.iter().map(|x| bf16::from_f32(*x).to_bits() as i16).collect();
            for largest in [true, false] {
                let (mut got, mut want) = (vec![-1; 43], vec![-1; 43]);
                let lines = DimLines {
                    outer: 43,
                    len: n,
                    inner: 1,
                };
                arg_halves(DType::BF16, &bits, &lines, largest, &mut got, &Pool::new(1));
                arg_lines(&v, &lines, largest, &mut want, &Pool::new(1));
                assert_eq!(got, want, "{n} {largest}");
            }
        }
    }

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
