//! The windows along a row of a plane: their sums and means, computed in runs of windows of equal size.

use super::planes::Divisor;
use super::window::PoolWindow;
use crate::op::rows::dense::Number;
use std::ops::Range;

/// The windows of a row.
pub(super) struct RowWindows<'a, T> {
    each: &'a [PoolWindow],
    /// The windows in runs; empty if runs are so short that adding windows one by one is faster.
    runs: Vec<Run>,
    /// The windows, if they are not in runs and have one or two elements each, as those of adaptive pools that enlarge.
    narrow: Option<NarrowWindows<T>>,
}

/// Windows of one or two elements.
struct NarrowWindows<T> {
    /// The places of the first and of the last element.
    ends: Vec<[u32; 2]>,
    /// The numbers of elements; empty if all are 1.
    sizes: Vec<T>,
}

impl<T: Number> NarrowWindows<T> {
    fn new(each: &[PoolWindow]) -> Option<NarrowWindows<T>> {
        let ends_of = |w: &PoolWindow| match (w.step, w.present()) {
            (1, 1 | 2) => Some([u32::try_from(w.start).ok()?, u32::try_from(w.end - 1).ok()?]),
            _ => None,
        };
        let ends = each.iter().map(ends_of).collect::<Option<Vec<_>>>()?;
        let sizes = match each.iter().all(|w| w.present() == 1) {
            true => vec![],
            false => each.iter().map(|w| T::from_f64(w.present() as f64)).collect(),
        };
        Some(NarrowWindows { ends, sizes })
    }

    /// Adds the elements of a row to the sums of its windows.
    #[inline(always)]
    fn add(&self, row: &[T], sums: &mut [T]) {
        let ends = &self.ends[..sums.len()];
        if self.sizes.is_empty() {
            for k in 0..sums.len() {
                sums[k] = sums[k].add(row[ends[k][0] as usize]);
            }
            return;
        }
        for k in 0..sums.len() {
            let [first, last] = ends[k].map(|at| at as usize);
            // Sums begin with zero, so that adding another changes no sign.
            let more = if last > first { row[last] } else { T::default() };
            sums[k] = sums[k].add(row[first]).add(more);
        }
    }

    /// Divides the sums by the numbers of elements in each dim in turn.
    #[inline(always)]
    fn divide(&self, outer: [&PoolWindow; 2], sums: &mut [T]) {
        for w in outer {
            if w.present() != 1 {
                T::divide_all(sums, w.present());
            }
        }
        for k in 0..self.sizes.len().min(sums.len()) {
            sums[k] = sums[k].div(self.sizes[k]);
        }
    }
}

/// The shortest mean length of runs.
const SHORTEST_RUN: usize = 4;

/// Neighbouring windows of the same size and divisor.
struct Run {
    windows: Range<usize>,
    /// The first of them.
    first: PoolWindow,
    /// The distance between their first elements.
    stride: usize,
}

impl<T: Number> RowWindows<'_, T> {
    pub(super) fn new(each: &[PoolWindow], divisor: Divisor) -> RowWindows<'_, T> {
        let mut runs = runs_of(each);
        if runs.len() * SHORTEST_RUN > each.len() {
            runs.clear();
        }
        let is_narrow = runs.is_empty() && matches!(divisor, Divisor::InTurn);
        RowWindows {
            each,
            runs,
            narrow: is_narrow.then(|| NarrowWindows::new(each)).flatten(),
        }
    }

    /// Adds the elements of a row to the sums of its windows, each in order.
    #[inline(always)]
    pub(super) fn add(&self, row: &[T], sums: &mut [T]) {
        if let Some(narrow) = &self.narrow {
            return narrow.add(row, sums);
        }
        if self.runs.is_empty() {
            for (sum, w) in sums.iter_mut().zip(self.each) {
                let part = row.get(w.start..w.end).unwrap_or_default();
                *sum = part.iter().fold(*sum, |sum, v| sum.add(*v));
            }
            return;
        }
        for run in &self.runs {
            let (start, len) = (run.first.start, run.first.present() as usize);
            let sums = &mut sums[run.windows.start..run.windows.end];
            if len == 0 {
                continue;
            }
            if run.stride != 1 {
                add_apart(&row[start..], [len, run.stride], sums);
                continue;
            }
            for k in 0..len {
                add_row(&row[start + k..][..sums.len()], sums);
            }
        }
    }

    /// Divides the sums of the windows.
    #[inline(always)]
    pub(super) fn divide(&self, divisor: Divisor, [depth, height]: [&PoolWindow; 2], sums: &mut [T]) {
        if let Some(narrow) = &self.narrow {
            return narrow.divide([depth, height], sums);
        }
        if self.runs.is_empty() {
            for (sum, width) in sums.iter_mut().zip(self.each) {
                divisor.divide_all(std::slice::from_mut(sum), [depth, height, width]);
            }
            return;
        }
        for run in &self.runs {
            let sums = &mut sums[run.windows.start..run.windows.end];
            divisor.divide_all(sums, [depth, height, &run.first]);
        }
    }
}

/// The runs of the windows of a row.
fn runs_of(columns: &[PoolWindow]) -> Vec<Run> {
    let mut runs: Vec<Run> = vec![];
    for (k, c) in columns.iter().enumerate() {
        if let Some(run) = runs.last_mut() {
            let step = c.start.saturating_sub(columns[k - 1].start);
            let is_second = run.windows.len() == 1;
            if (c.present(), c.full) == (run.first.present(), run.first.full) && (is_second || step == run.stride) {
                (run.windows.end, run.stride) = (k + 1, step);
                continue;
            }
        }
        runs.push(Run {
            windows: k..k + 1,
            first: *c,
            stride: 1,
        });
    }
    runs
}

/// Adds windows of `len` elements that begin `stride` apart. It is not compiled for the widest vectors, because the compiler would gather
/// their elements, which takes longer than to read one after the other.
#[inline(never)]
fn add_apart<T: Number>(row: &[T], [len, stride]: [usize; 2], sums: &mut [T]) {
    match len {
        2 => add_some_apart::<T, 2>(row, stride, sums),
        3 => add_some_apart::<T, 3>(row, stride, sums),
        4 => add_some_apart::<T, 4>(row, stride, sums),
        5 => add_some_apart::<T, 5>(row, stride, sums),
        6 => add_some_apart::<T, 6>(row, stride, sums),
        7 => add_some_apart::<T, 7>(row, stride, sums),
        8 => add_some_apart::<T, 8>(row, stride, sums),
        _ => {
            for (k, sum) in sums.iter_mut().enumerate() {
                for v in &row[k * stride..][..len] {
                    *sum = sum.add(*v);
                }
            }
        }
    }
}

/// [`add_apart`] for a number of elements that the compiler knows.
#[inline(always)]
fn add_some_apart<T: Number, const N: usize>(row: &[T], stride: usize, sums: &mut [T]) {
    for (k, sum) in sums.iter_mut().enumerate() {
        let window = &row[k * stride..][..N];
        for v in window {
            *sum = sum.add(*v);
        }
    }
}

#[inline(always)]
pub(super) fn add_row<T: Number>(row: &[T], band: &mut [T]) {
    let band = &mut band[..row.len()];
    for k in 0..row.len() {
        band[k] = band[k].add(row[k]);
    }
}
