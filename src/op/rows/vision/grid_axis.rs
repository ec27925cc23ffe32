//! Coordinates of `grid_sampler` as places in an image, along one dim.

use crate::tensor::{RealBf16, RealF16, f32_to_i32, f32_to_i32_within, f64_to_i32, f64_to_i32_within};
use std::ops::{Add, Div, Mul, Sub};

/// The arithmetic of coordinates and weights.
pub(super) trait GridReal:
    Copy
    + Default
    + Send
    + Sync
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + 'static
{
    /// Whether numbers have 16 bits, which do not hold every index.
    const IS_HALF: bool = false;
    fn from_f64(x: f64) -> Self;
    fn floor(self) -> Self;
    fn trunc(self) -> Self;
    fn round_even(self) -> Self;
    fn abs(self) -> Self;
    /// The larger; `low` if `self` is NaN.
    #[inline(always)]
    fn at_least(self, low: Self) -> Self {
        if self > low { self } else { low }
    }
    /// The smaller; `high` if `self` is NaN.
    #[inline(always)]
    fn at_most(self, high: Self) -> Self {
        if self < high { self } else { high }
    }
    fn rem(self, span: Self) -> Self;
    /// The integer part, within the range of integers; any integer for NaN.
    fn to_i32(self) -> i32;
    /// The integer part between these two, of which NaN gives the lower one.
    fn to_i32_within(self, low: i32, high: i32) -> i32;
}

macro_rules! reals {
    ($($t:ident $to_i32:ident $within:ident),*) => { $(impl GridReal for $t {
        #[inline(always)]
        fn from_f64(x: f64) -> $t { x as $t }
        #[inline(always)]
        fn floor(self) -> $t { $t::floor(self) }
        #[inline(always)]
        fn trunc(self) -> $t { $t::trunc(self) }
        #[inline(always)]
        fn round_even(self) -> $t { self.round_ties_even() }
        #[inline(always)]
        fn abs(self) -> $t { $t::abs(self) }
        #[inline(always)]
        fn rem(self, span: $t) -> $t { self % span }
        #[inline(always)]
        fn to_i32(self) -> i32 { $to_i32(self) }
        #[inline(always)]
        fn to_i32_within(self, low: i32, high: i32) -> i32 { $within(self, low, high) }
    })* };
}
reals!(f32 f32_to_i32 f32_to_i32_within, f64 f64_to_i32 f64_to_i32_within);

macro_rules! half_reals {
    ($($t:ident),*) => { $(impl GridReal for $t {
        const IS_HALF: bool = true;
        #[inline(always)]
        fn from_f64(x: f64) -> $t { $t::rounded(x as f32) }
        #[inline(always)]
        fn floor(self) -> $t { $t(self.0.floor()) }
        #[inline(always)]
        fn trunc(self) -> $t { $t(self.0.trunc()) }
        #[inline(always)]
        fn round_even(self) -> $t { $t(self.0.round_ties_even()) }
        #[inline(always)]
        fn abs(self) -> $t { $t(self.0.abs()) }
        #[inline(always)]
        fn rem(self, span: $t) -> $t { $t(self.0 % span.0) }
        #[inline(always)]
        fn to_i32(self) -> i32 { f32_to_i32(self.0) }
        #[inline(always)]
        fn to_i32_within(self, low: i32, high: i32) -> i32 { f32_to_i32_within(self.0, low, high) }
    })* };
}
half_reals!(RealBf16, RealF16);

/// What coordinates outside of the image mean.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// How coordinates along one dim become places.
#[derive(Clone, Copy)]
pub(super) struct Axis<T> {
    pub size: usize,
    pub padding: Padding,
    align: bool,
    last: T,
    /// The least coordinate of a reflection, and the distance between its two borders.
    low: T,
    span: T,
    /// Whether the image has three dims. torch's kernel for these computes point by point, and not in vectors.
    pub by_point: bool,
}

impl<T: GridReal> Axis<T> {
    pub(super) fn new(size: usize, padding: Padding, align: bool, volume: bool) -> Axis<T> {
        let (low, span) = if align {
            (0.0, size as f64 - 1.0)
        } else {
            (-0.5, size as f64)
        };
        Axis {
            size,
            padding,
            align,
            last: T::from_f64(size as f64 - 1.0),
            low: T::from_f64(low),
            span: T::from_f64(span),
            by_point: volume,
        }
    }

    /// The axis of an image of two dims, in this mode, which is its own: as a constant, it leaves loops without branches.
    #[inline(always)]
    pub(super) fn with_mode(self, padding: Padding) -> Axis<T> {
        Axis {
            padding,
            by_point: false,
            ..self
        }
    }

    /// Maps a coordinate from -1..1 to an index, which may be out of bounds.
    #[inline(always)]
    pub(super) fn unnormalise(&self, x: T) -> T {
        let (one, two, size) = (T::from_f64(1.0), T::from_f64(2.0), T::from_f64(self.size as f64));
        let x = x + one;
        match (self.align, self.by_point && T::IS_HALF) {
            (true, true) => x / two * self.last,
            (false, true) => (x * size - one) / two,
            (true, false) => x * (self.last / two),
            (false, false) => x * (size / two) - T::from_f64(0.5),
        }
    }

    /// Brings an index within bounds according to the padding mode.
    #[inline(always)]
    pub(super) fn pad(&self, x: T) -> T {
        match self.padding {
            Padding::Zeros => x,
            Padding::Border => self.clip(x),
            Padding::Reflection => self.clip(self.reflect(x)),
        }
    }

    #[inline(always)]
    fn clip(&self, x: T) -> T {
        let nan = x.partial_cmp(&x).is_none();
        if self.by_point && nan {
            // `std::min` and `std::max` give their first argument.
            return self.last;
        }
        x.at_least(T::from_f64(0.0)).at_most(self.last)
    }

    #[inline(always)]
    fn reflect(&self, x: T) -> T {
        let (low, span) = (self.low, self.span);
        if span == T::from_f64(0.0) {
            return T::from_f64(0.0);
        }
        let x = (x - low).abs();
        if self.by_point {
            let extra = x.rem(span);
            let flips = (x / span).floor();
            let even = flips.rem(T::from_f64(2.0)) == T::from_f64(0.0);
            return if even { extra + low } else { span - extra + low };
        }
        let period = span + span;
        let extra = x - (x / period).trunc() * period;
        let back = period - extra;
        // Like `_mm_min_ps`: NaN in either gives the second.
        (if extra < back { extra } else { back }) + low
    }

    /// An index as an integer, or -1 if it is out of bounds or NaN.
    #[inline(always)]
    pub(super) fn place(&self, x: T) -> i32 {
        if T::IS_HALF & !self.by_point & (self.size <= i16::MAX as usize) {
            // torch's vectors of 16-bit indices keep the low bits; those of what is not finite are 0.
            let finite = x * T::from_f64(0.0) == T::from_f64(0.0);
            let low = if finite { x.to_i32() as i16 as i32 } else { 0 };
            return self.inside(low);
        }
        let i = x.to_i32_within(-1, self.size as i32);
        let inside = (x >= T::from_f64(0.0)) & (i < self.size as i32);
        if inside { i } else { -1 }
    }

    /// The neighbours of an index, or -1 if they are out of bounds, and their weights.
    #[inline(always)]
    pub(super) fn neighbours(&self, x: T) -> [(i32, T); 2] {
        let (at, one, zero) = (x.floor(), T::from_f64(1.0), T::from_f64(0.0));
        // Integers at a greater distance are outside as well.
        let i = at.to_i32_within(-2, self.size as i32);
        let next = i.wrapping_add(1);
        let (low, high) = match self.by_point && T::IS_HALF {
            true => (T::from_f64(next as f64) - x, x - T::from_f64(i as f64)),
            false => (one - (x - at), x - at),
        };
        // Where points are computed one by one, what is outside does not count, even with a weight that is NaN.
        let tap = |i: i32, w: T| {
            let place = self.inside(i);
            (place, if self.by_point & (place < 0) { zero } else { w })
        };
        [tap(i, low), tap(next, high)]
    }

    /// The index, or -1 if it is out of bounds. As an unsigned number, a negative one is large.
    #[inline(always)]
    fn inside(&self, i: i32) -> i32 {
        if (i as u32) < self.size as u32 { i } else { -1 }
    }
}
