//! Tensors of 16-bit floats that are updated in f32, so that each element is rounded once, after all updates.

use super::combine::Cell;
use super::named::Combine;
use crate::op::rows::fill::units_per_part;
use crate::parallel::Pool;
use crate::tensor::{
    F16c, Offsets, Sources, Tensor, add_f16s, round_to_bf16s, round_to_f16s, widen_bf16, widen_bf16s, widen_f16s,
    widen_one_f16, with_wide_vectors,
};
use crate::types::DType;
use half::{bf16, f16};

/// How the elements of a part of a tensor, stored as `D`, become numbers `T` that are updated.
pub(super) trait PartView<D, T>: Sync {
    /// The most elements of a part that are shown at once, if the caller can choose.
    fn most(&self) -> usize;

    /// Calls `f` with the numbers, and stores what it leaves.
    fn update<R>(&self, stored: &mut [D], pool: &Pool, f: impl FnOnce(&mut [T]) -> R) -> R;

    /// [`PartView::update`] of a few elements on this thread. Their numbers are in `buffer` if they are not stored as such.
    fn update_few(&self, stored: &mut [D], buffer: &mut Vec<T>, f: impl FnOnce(&mut [T]));

    /// The number that an element is.
    fn number(&self, x: D) -> T;

    /// The numbers that the elements at the first `count` of these positions are, in a buffer if they are not stored as such.
    fn read<'b>(&self, src: &'b [D], at: &'b Offsets, count: usize, buffer: &'b mut Vec<T>) -> Sources<'b, T>;
}

/// Elements are updated in place.
pub(super) struct AsStored;

impl<T: Copy> PartView<T, T> for AsStored {
    fn most(&self) -> usize {
        usize::MAX
    }

    fn update<R>(&self, stored: &mut [T], _: &Pool, f: impl FnOnce(&mut [T]) -> R) -> R {
        f(stored)
    }

    fn update_few(&self, stored: &mut [T], _: &mut Vec<T>, f: impl FnOnce(&mut [T])) {
        f(stored);
    }

    #[inline(always)]
    fn number(&self, x: T) -> T {
        x
    }

    fn read<'b>(&self, src: &'b [T], at: &'b Offsets, _: usize, _: &'b mut Vec<T>) -> Sources<'b, T> {
        match at.are_consecutive() {
            true => Sources::Consecutive(src),
            false => Sources::At(src, at),
        }
    }
}

/// Elements are widened to f32 and rounded in the end.
pub(super) struct Widened(pub Option<F16c>);

/// The f32 numbers of a part that is widened at once: 64 KiB, which the second cache holds.
const MOST: usize = 16 << 10;

impl<H: Half> PartView<H, f32> for Widened {
    fn most(&self) -> usize {
        MOST
    }

    fn update<R>(&self, stored: &mut [H], pool: &Pool, f: impl FnOnce(&mut [f32]) -> R) -> R {
        // A tensor reuses the memory of one before it, which a vector would get from the system each time.
        let mut wide = Tensor::zeros(DType::F32, &[stored.len()]);
        let wide = wide.as_mut_slice::<f32>();
        let part = units_per_part(wide.len(), 6, pool);
        let halves = &*stored;
        pool.run_parts(wide, part, |i, wide| {
            H::widen_all(&halves[i * part..][..wide.len()], wide)
        });
        let result = f(wide);
        let wide = &*wide;
        pool.run_parts(stored, part, |i, halves| {
            H::round_all(&wide[i * part..][..halves.len()], halves)
        });
        result
    }

    fn update_few(&self, stored: &mut [H], buffer: &mut Vec<f32>, f: impl FnOnce(&mut [f32])) {
        if buffer.len() < stored.len() {
            buffer.resize(stored.len(), 0.0);
        }
        let wide = &mut buffer[..stored.len()];
        H::widen_all(stored, wide);
        f(wide);
        H::round_all(wide, stored);
    }

    #[inline(always)]
    fn number(&self, x: H) -> f32 {
        x.widen(self.0)
    }

    fn read<'b>(&self, src: &'b [H], at: &'b Offsets, count: usize, buffer: &'b mut Vec<f32>) -> Sources<'b, f32> {
        buffer.resize(count, 0.0);
        match at.are_consecutive() {
            true => H::widen_all(&src[..count], buffer),
            false => (at.list().iter().zip(&mut *buffer)).for_each(|(&p, x)| *x = src[p].widen(self.0)),
        }
        Sources::Consecutive(buffer)
    }
}

/// A 16-bit float.
pub(super) trait Half: Copy + Send + Sync {
    /// The number as f32, in loops that are not vector code.
    fn widen(self, by: Option<F16c>) -> f32;
    fn widen_all(x: &[Self], out: &mut [f32]);
    fn round_all(x: &[f32], out: &mut [Self]);
    /// Adds `x` to `sums`, which has its length.
    fn add_all(x: &[Self], sums: &mut [f32]);
}

impl Half for bf16 {
    #[inline(always)]
    fn widen(self, _: Option<F16c>) -> f32 {
        widen_bf16(self)
    }

    fn widen_all(x: &[bf16], out: &mut [f32]) {
        widen_bf16s(x, out);
    }

    fn round_all(x: &[f32], out: &mut [bf16]) {
        round_to_bf16s(x, out);
    }

    fn add_all(x: &[bf16], sums: &mut [f32]) {
        with_wide_vectors(|| sums.iter_mut().zip(x).for_each(|(sum, &x)| *sum += widen_bf16(x)));
    }
}

impl Half for f16 {
    #[inline(always)]
    fn widen(self, by: Option<F16c>) -> f32 {
        widen_one_f16(self, by)
    }

    fn widen_all(x: &[f16], out: &mut [f32]) {
        widen_f16s(x, out);
    }

    fn round_all(x: &[f32], out: &mut [f16]) {
        round_to_f16s(x, out);
    }

    fn add_all(x: &[f16], sums: &mut [f32]) {
        add_f16s(x, None, sums);
    }
}

/// The number of elements of a slice that are widened at once.
const AT_ONCE: usize = 256;
/// Slices shorter than this are added element by element.
const SHORT: usize = 64;

/// Adds 16-bit floats to f32 numbers.
pub(super) struct AddHalves(pub Option<F16c>);

impl<H: Half> Combine<f32, H> for AddHalves {
    #[inline(always)]
    fn element(&self, x: f32, y: H) -> f32 {
        x + y.widen(self.0)
    }

    fn slice(&self, x: &mut [f32], y: &[H]) {
        if y.len() < SHORT {
            return x.iter_mut().zip(y).for_each(|(x, y)| *x += y.widen(self.0));
        }
        H::add_all(y, x);
    }
}

/// Adds f16 to f16, and rounds each sum.
pub(super) struct AddRounded(pub Option<F16c>);

impl Combine<f16, f16> for AddRounded {
    #[inline(always)]
    fn element(&self, x: f16, y: f16) -> f16 {
        x.plus_alone(y, self.0)
    }

    fn slice(&self, x: &mut [f16], y: &[f16]) {
        if y.len() < SHORT {
            return x.iter_mut().zip(y).for_each(|(x, &y)| *x = x.plus_alone(y, self.0));
        }
        let mut wide = [0.0; AT_ONCE];
        for (x, y) in x.chunks_mut(AT_ONCE).zip(y.chunks(AT_ONCE)) {
            let wide = &mut wide[..x.len()];
            widen_f16s(x, wide);
            AddHalves(self.0).slice(wide, y);
            round_to_f16s(wide, x);
        }
    }
}

/// Runs `$body` with the type `$t` of a dtype of 16-bit floats; with f16 for any other dtype.
macro_rules! with_half {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $crate::types::DType::BF16 => {
                type $t = half::bf16;
                $body
            }
            _ => {
                type $t = half::f16;
                $body
            }
        }
    };
}
pub(super) use with_half;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_after_all_updates() {
        fn check<H: Half + PartialEq + std::fmt::Debug>(from: impl Fn(f32) -> H) {
            let mut stored: Vec<H> = (0..3).map(|i| from(i as f32 * 256.0)).collect();
            Widened(F16c::of_thread()).update(&mut stored, &Pool::new(1), |wide| {
                (0..4096).for_each(|_| wide[1] += 0.25)
            });
            assert_eq!(stored, [0.0, 256.0 + 1024.0, 512.0].map(from));
        }
        check(bf16::from_f32);
        check(f16::from_f32);
    }
}
