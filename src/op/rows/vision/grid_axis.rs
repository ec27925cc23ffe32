//! Coordinates of `grid_sampler` as places in an image, along one dim.

use crate::tensor::Element;
use std::ops::{Add, Div, Mul, Sub};

/// The arithmetic of coordinates and weights.
pub(super) trait Real:
    Element + Default + PartialOrd + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + Div<Output = Self>
{
    fn of(x: f64) -> Self;
    fn floor(self) -> Self;
    fn trunc(self) -> Self;
    fn round_even(self) -> Self;
    fn abs(self) -> Self;
    /// The larger; the other one if one is NaN.
    fn at_least(self, low: Self) -> Self;
    fn at_most(self, high: Self) -> Self;
    fn rem(self, span: Self) -> Self;
    fn to_i32(self) -> i32;
}

macro_rules! reals {
    ($($t:ident),*) => { $(impl Real for $t {
        #[inline(always)]
        fn of(x: f64) -> $t { x as $t }
        #[inline(always)]
        fn floor(self) -> $t { $t::floor(self) }
        #[inline(always)]
        fn trunc(self) -> $t { $t::trunc(self) }
        #[inline(always)]
        fn round_even(self) -> $t { self.round_ties_even() }
        #[inline(always)]
        fn abs(self) -> $t { $t::abs(self) }
        #[inline(always)]
        fn at_least(self, low: $t) -> $t { self.max(low) }
        #[inline(always)]
        fn at_most(self, high: $t) -> $t { self.min(high) }
        #[inline(always)]
        fn rem(self, span: $t) -> $t { self % span }
        #[inline(always)]
        fn to_i32(self) -> i32 { self as i32 }
    })* };
}
reals!(f32, f64);

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
    padding: Padding,
    align: bool,
    last: T,
    /// The least coordinate of a reflection, and the distance between its two borders.
    low: T,
    span: T,
    /// Whether the image has three dims. torch's kernel for these is a different one.
    pub volume: bool,
}

impl<T: Real> Axis<T> {
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
            last: T::of(size as f64 - 1.0),
            low: T::of(low),
            span: T::of(span),
            volume,
        }
    }

    /// Maps a coordinate from -1..1 to an index, which may be out of bounds.
    #[inline(always)]
    pub(super) fn unnormalise(&self, x: T) -> T {
        let x = x + T::of(1.0);
        match self.align {
            true => x * (self.last / T::of(2.0)),
            false => x * (T::of(self.size as f64) / T::of(2.0)) - T::of(0.5),
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
        x.at_least(T::of(0.0)).at_most(self.last)
    }

    #[inline(always)]
    fn reflect(&self, x: T) -> T {
        let (low, span) = (self.low, self.span);
        if span == T::of(0.0) {
            return T::of(0.0);
        }
        let x = (x - low).abs();
        if self.volume {
            let extra = x.rem(span);
            let flips = (x / span).floor();
            let even = flips.rem(T::of(2.0)) == T::of(0.0);
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
        let i = x.to_i32();
        let inside = (x >= T::of(0.0)) & (i < self.size as i32);
        if inside { i } else { -1 }
    }
}

/// The weights of four neighbours at the distance `t` from the second.
#[inline(always)]
pub(super) fn cubic_weights<T: Real>(t: T) -> [T; 4] {
    let [a, one, two] = [-0.75, 1.0, 2.0].map(T::of);
    let near = |x: T| ((a + two) * x - (a + T::of(3.0))) * x * x + one;
    let far = |x: T| ((a * x - T::of(5.0) * a) * x + T::of(8.0) * a) * x - T::of(4.0) * a;
    [far(t + one), near(t), near(one - t), far(two - t)]
}
