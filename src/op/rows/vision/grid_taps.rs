//! What a block of points reads along each dim: places and weights, from their coordinates.

use super::cubic::{SLOPE, cubic_weights};
use super::grid_axis::{Axis, GridReal, Padding};
use crate::tensor::{POINTS, WideLoop, run_wide};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Interpolation {
    Linear,
    Nearest,
    Cubic,
}

/// What a block of points reads along one dim: for each of up to 4 neighbours the indices, or -1, and the weights.
pub(super) struct Taps<T> {
    pub places: [[i32; POINTS]; 4],
    pub weights: [[T; POINTS]; 4],
}

impl<T: GridReal> Taps<T> {
    pub(super) fn new() -> Taps<T> {
        Taps {
            places: [[0; POINTS]; 4],
            weights: [[T::from_f64(1.0); POINTS]; 4],
        }
    }

    /// Computes the taps of points at these coordinates.
    #[inline(always)]
    fn fill(&mut self, axis: Axis<T>, how: Interpolation, coordinates: &[T]) {
        match how {
            Interpolation::Nearest => self.fill_nearest(axis, coordinates),
            Interpolation::Linear => self.fill_linear(axis, coordinates),
            Interpolation::Cubic => self.fill_cubic(axis, coordinates),
        }
    }

    #[inline(always)]
    fn fill_nearest(&mut self, axis: Axis<T>, coordinates: &[T]) {
        let n = coordinates.len();
        let places = &mut self.places[0][..n];
        for j in 0..n {
            places[j] = axis.place(axis.pad(axis.unnormalise(coordinates[j])).round_even());
        }
    }

    #[inline(always)]
    fn fill_linear(&mut self, axis: Axis<T>, coordinates: &[T]) {
        let n = coordinates.len();
        let ([p0, p1, ..], [w0, w1, ..]) = (&mut self.places, &mut self.weights);
        // Slices of one length need no checks in the loop.
        let (p0, p1, w0, w1) = (&mut p0[..n], &mut p1[..n], &mut w0[..n], &mut w1[..n]);
        for j in 0..n {
            [(p0[j], w0[j]), (p1[j], w1[j])] = axis.neighbours(axis.pad(axis.unnormalise(coordinates[j])));
        }
    }

    /// Several loops, because the arithmetic of 16-bit floats needs many registers.
    #[inline(always)]
    fn fill_cubic(&mut self, axis: Axis<T>, coordinates: &[T]) {
        let n = coordinates.len();
        let mut below = [T::default(); POINTS];
        let below = &mut below[..n];
        let [w0, w1, w2, w3] = &mut self.weights;
        let (w0, w1, w2, w3) = (&mut w0[..n], &mut w1[..n], &mut w2[..n], &mut w3[..n]);
        for j in 0..n {
            let x = axis.unnormalise(coordinates[j]);
            below[j] = x.floor();
            [w0[j], w1[j], w2[j], w3[j]] = cubic_weights(x - below[j], SLOPE);
        }
        for (k, places) in self.places.iter_mut().enumerate() {
            let (places, offset) = (&mut places[..n], T::from_f64(k as f64 - 1.0));
            for j in 0..n {
                places[j] = axis.place(axis.pad(below[j] + offset));
            }
        }
    }
}

/// Computes the taps of points at these coordinates along an axis.
pub(super) struct FillTaps<'a, T> {
    pub taps: &'a mut Taps<T>,
    pub coordinates: &'a [T],
    pub axis: &'a Axis<T>,
    pub how: Interpolation,
}

impl<T: GridReal> WideLoop for FillTaps<'_, T> {
    #[inline(always)]
    fn run(self) {
        let (taps, axis, how) = (self.taps, *self.axis, self.how);
        if axis.by_point {
            return taps.fill(axis, how, self.coordinates);
        }
        match axis.padding {
            Padding::Zeros => taps.fill(axis.with_mode(Padding::Zeros), how, self.coordinates),
            Padding::Border => taps.fill(axis.with_mode(Padding::Border), how, self.coordinates),
            Padding::Reflection => taps.fill(axis.with_mode(Padding::Reflection), how, self.coordinates),
        }
    }
}

/// The coordinates of a block of points, dim by dim.
pub(super) type Coordinates<T> = [[T; POINTS]; 3];

/// Takes the coordinates of points apart. The grid contains (x, y[, z]), that is, the last dim first.
pub(super) fn separate<T: GridReal>(grid: &[T], dims: usize, to: &mut Coordinates<T>) {
    match dims {
        2 => run_wide(Separate(grid.as_chunks::<2>().0, to)),
        _ => run_wide(Separate(grid.as_chunks::<3>().0, to)),
    }
}

struct Separate<'a, T, const D: usize>(&'a [[T; D]], &'a mut Coordinates<T>);

impl<T: GridReal, const D: usize> WideLoop for Separate<'_, T, D> {
    #[inline(always)]
    fn run(self) {
        let n = self.0.len();
        // All coordinates in one loop, so that vectors of the grid are read and shuffled, and not gathered.
        let [z, y, x] = self.1;
        let (z, y, x) = (&mut z[..n], &mut y[..n], &mut x[..n]);
        for j in 0..n {
            x[j] = self.0[j][0];
            y[j] = self.0[j][1];
            if D > 2 {
                z[j] = self.0[j][D - 1];
            }
        }
    }
}

/// Combines the places of an outer and an inner dim of this size: -1 if either is.
pub(super) struct CombinePlaces<'a> {
    pub outer: &'a [i32],
    pub inner: &'a [i32],
    pub size: i32,
    pub to: &'a mut [i32],
}

impl WideLoop for CombinePlaces<'_> {
    #[inline(always)]
    fn run(self) {
        let n = self.to.len();
        // Slices of one length need no checks in the loop.
        let (outer, inner, to) = (&self.outer[..n], &self.inner[..n], self.to);
        for j in 0..n {
            let place = outer[j].wrapping_mul(self.size).wrapping_add(inner[j]);
            to[j] = if (outer[j] | inner[j]) < 0 { -1 } else { place };
        }
    }
}

/// Multiplies the weights of two dims.
pub(super) struct CombineWeights<'a, T> {
    pub a: &'a [T],
    pub b: &'a [T],
    pub to: &'a mut [T],
}

impl<T: GridReal> WideLoop for CombineWeights<'_, T> {
    #[inline(always)]
    fn run(self) {
        let n = self.to.len();
        let (a, b, to) = (&self.a[..n], &self.b[..n], self.to);
        for j in 0..n {
            to[j] = a[j] * b[j];
        }
    }
}

/// Adds products to `to`.
pub(super) struct AddProducts<'a, T> {
    pub a: &'a [T],
    pub b: &'a [T],
    pub to: &'a mut [T],
}

impl<T: GridReal> WideLoop for AddProducts<'_, T> {
    #[inline(always)]
    fn run(self) {
        let n = self.to.len();
        let (a, b, to) = (&self.a[..n], &self.b[..n], self.to);
        for j in 0..n {
            to[j] = to[j] + a[j] * b[j];
        }
    }
}
