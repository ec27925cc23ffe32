//! Weighted sums of neighbours in planes, with AVX-512: points read some elements in a row that are next to each other, in several rows.
//! Instructions that gather take their time for every element; here neighbours are read at once and put into lanes by shuffles.

#[cfg(target_arch = "x86_64")]
mod copies;
#[cfg(target_arch = "x86_64")]
mod lanes;
#[cfg(target_arch = "x86_64")]
mod pairs;
#[cfg(target_arch = "x86_64")]
mod plan;
#[cfg(target_arch = "x86_64")]
mod quads;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use super::rounded::{RealBf16, RealF16};
#[cfg(target_arch = "x86_64")]
use crate::target::{Isa, thread_target};
#[cfg(target_arch = "x86_64")]
use std::any::TypeId;

/// The most points of a block.
pub(crate) const POINTS: usize = 128;
/// The points that are computed at once.
const GROUP: usize = 16;
const GROUPS: usize = POINTS / GROUP;

/// What a block of points reads: `K` elements of each of `R` rows.
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "there are no such instructions")
)]
pub(crate) struct Neighbours<const K: usize, const R: usize> {
    n: usize,
    /// The number of elements of a plane.
    end: usize,
    /// For each row the positions of the first of `K` elements next to each other, which are all within the plane.
    starts: [[i32; POINTS]; R],
    /// Which of these each of the `K` elements is, in the order in which shuffles need it.
    order: [[[i32; GROUP]; K]; GROUPS],
    /// Of what is read, the lanes that are inside of the image, for each row.
    inside: [[[u16; K]; R]; GROUPS],
}

impl<const K: usize, const R: usize> Neighbours<K, R> {
    pub(crate) fn new() -> Neighbours<K, R> {
        Neighbours {
            n: 0,
            end: 0,
            starts: [[0; POINTS]; R],
            order: [[[0; GROUP]; K]; GROUPS],
            inside: [[[0; K]; R]; GROUPS],
        }
    }
}

#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_variables, reason = "there are no such instructions")
)]
impl<const K: usize, const R: usize> Neighbours<K, R> {
    /// Plans what points read. Returns false, and then there is nothing to sum, if there are no such instructions, or if the columns of
    /// some point are not among `K` neighbours. Panics if there are more than [`POINTS`], or if lists have different lengths.
    pub(crate) fn read<T: 'static>(&mut self, reads: Reads<'_, K, R>) -> bool {
        let n = reads.points();
        (self.n, self.end) = (0, 0);
        #[cfg(target_arch = "x86_64")]
        if let Some(end) = reads.end()
            && format_of::<T>(K).is_some()
            && thread_target().isa() == Isa::Avx512
        {
            // SAFETY: the lists and sizes were checked, and the machine has the features of every thread's target.
            let planned = unsafe { self.plan(reads, n) };
            (self.n, self.end) = if planned { (n, end) } else { (0, 0) };
            return planned;
        }
        false
    }

    /// Panics unless these are a plane and lists for the points of the plan.
    #[cfg(target_arch = "x86_64")]
    fn check<T>(&self, src: &[T], lists: &[&[T]], out: &[T]) {
        assert!(self.end > 0 && src.len() >= self.end && out.len() == self.n);
        assert!(lists.iter().all(|l| l.len() == self.n));
    }
}

/// The columns and the rows that points read, where negative ones stand for zeros.
#[derive(Clone, Copy)]
pub(crate) struct Reads<'a, const K: usize, const R: usize> {
    pub columns: [&'a [i32]; K],
    pub rows: [&'a [i32]; R],
    /// The number of rows and of columns.
    pub size: [usize; 2],
}

impl<const K: usize, const R: usize> Reads<'_, K, R> {
    /// The number of points. Panics unless all lists have it.
    fn points(&self) -> usize {
        let n = self.columns[0].len();
        let all = self.columns.iter().chain(&self.rows);
        assert!(n <= POINTS && all.into_iter().all(|l| l.len() == n));
        n
    }

    /// The number of elements of a plane, if 32 bits hold their positions and rows have at least `K`.
    #[cfg(target_arch = "x86_64")]
    fn end(&self) -> Option<usize> {
        let [h, w] = self.size;
        let end = h.checked_mul(w).filter(|&e| e <= i32::MAX as usize)?;
        (h > 0 && w >= K).then_some(end)
    }
}

/// The format of a type, if there are instructions for `K` neighbours in it.
#[cfg(target_arch = "x86_64")]
fn format_of<T: 'static>(neighbours: usize) -> Option<u8> {
    let id = TypeId::of::<T>();
    let of = |(other, format)| (id == other).then_some(format);
    let all = [
        (TypeId::of::<f32>(), lanes::F32),
        (TypeId::of::<f64>(), lanes::F64),
        (TypeId::of::<RealBf16>(), lanes::BF16),
        (TypeId::of::<RealF16>(), lanes::F16),
    ];
    // Four f64 fill a vector by pairs of points: those are not much faster than what gathers.
    all.into_iter()
        .find_map(of)
        .filter(|&f| f != lanes::F64 || neighbours < 4)
}

#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_variables, reason = "there are no such instructions")
)]
impl Neighbours<1, 1> {
    /// `out[j]` is what point `j` reads in `src`. Panics unless a plan was made for the type, if `src` is shorter than a plane, or if
    /// `out` has another length than the plan.
    pub(crate) fn copy<T: Copy + 'static>(&self, src: &[T], out: &mut [T]) {
        #[cfg(target_arch = "x86_64")]
        if format_of::<T>(1).is_some() {
            self.check(src, &[], out);
            // SAFETY: the lengths were checked; elements have this size, and only a machine with the features makes plans.
            return unsafe {
                match size_of::<T>() {
                    8 => self.copy_long_words(src.as_ptr().cast(), out.as_mut_ptr().cast()),
                    _ => self.copy_words(src.as_ptr().cast(), out.as_mut_ptr().cast()),
                }
            };
        }
        unreachable!("no plan was made for the type");
    }
}

#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_variables, reason = "there are no such instructions")
)]
impl<const R: usize> Neighbours<2, R> {
    /// `out[j] = Σ element * weight`, row by row, of what point `j` reads in `src`. Panics unless a plan was made for the type, if `src`
    /// is shorter than a plane, or if lists have other lengths than that of the plan.
    pub(crate) fn sum<T: 'static>(&self, src: &[T], weights: [[&[T]; 2]; R], out: &mut [T]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(format) = format_of::<T>(2) {
            self.check(src, weights.as_flattened(), out);
            if format == lanes::F64 {
                let weights = weights.map(|w| w.map(|w| w.as_ptr().cast()));
                // SAFETY: the lengths were checked; elements are f64, and only a machine with the features makes plans.
                return unsafe { self.sum_f64_pairs(src.as_ptr().cast(), weights, out.as_mut_ptr().cast()) };
            }
            let weights = weights.map(|w| w.map(|w| w.as_ptr().cast()));
            let (src, out) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: as above, but elements are f32.
            return unsafe {
                match format {
                    lanes::F32 => self.sum_pairs::<{ lanes::F32 }>(src, weights, out),
                    lanes::BF16 => self.sum_pairs::<{ lanes::BF16 }>(src, weights, out),
                    _ => self.sum_pairs::<{ lanes::F16 }>(src, weights, out),
                }
            };
        }
        unreachable!("no plan was made for the type");
    }

    /// [`Neighbours::sum`] of the elements of 16 bits that are stored, whose numbers are `T`. Panics as it does, or if these are not of
    /// 16 bits.
    pub(crate) fn sum_halves<T: 'static, E>(&self, src: &[E], weights: [[&[T]; 2]; R], out: &mut [E]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(format @ (lanes::BF16 | lanes::F16)) = format_of::<T>(2) {
            assert!(size_of::<E>() == 2 && self.end > 0 && src.len() >= self.end && out.len() == self.n);
            assert!(weights.as_flattened().iter().all(|w| w.len() == self.n));
            let weights = weights.map(|w| w.map(|w| w.as_ptr().cast()));
            let (src, out) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: the lengths were checked; elements have 16 bits, and only a machine with the features makes plans.
            return unsafe {
                match format {
                    lanes::BF16 => self.sum_half_pairs::<{ lanes::BF16 }>(src, weights, out),
                    _ => self.sum_half_pairs::<{ lanes::F16 }>(src, weights, out),
                }
            };
        }
        unreachable!("no plan was made for the type");
    }
}

#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(unused_variables, reason = "there are no such instructions")
)]
impl Neighbours<4, 4> {
    /// `out[j] = Σ (Σ element * column) * row`, row by row from zero, of what point `j` reads in `src`. Panics as
    /// [`Neighbours::sum`] does.
    pub(crate) fn sum_nested<T: 'static>(&self, src: &[T], columns: [&[T]; 4], rows: [&[T]; 4], out: &mut [T]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(format) = format_of::<T>(4) {
            self.check(src, [columns, rows].as_flattened(), out);
            let [columns, rows] = [columns, rows].map(|w| w.map(|w| w.as_ptr().cast()));
            let (src, out) = (src.as_ptr().cast(), out.as_mut_ptr().cast());
            // SAFETY: the lengths were checked; elements are f32, and only a machine with the features makes plans.
            return unsafe {
                match format {
                    lanes::F32 => self.sum_quads::<{ lanes::F32 }>(src, columns, rows, out),
                    lanes::BF16 => self.sum_quads::<{ lanes::BF16 }>(src, columns, rows, out),
                    _ => self.sum_quads::<{ lanes::F16 }>(src, columns, rows, out),
                }
            };
        }
        unreachable!("no plan was made for the type");
    }
}
