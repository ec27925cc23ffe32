//! The iterations of a kernel that are split over threads.

use super::{Kernel, Loop, Stmt};
use std::ops::Range;

impl Kernel {
    /// The parallel loop, if there is exactly one.
    pub fn parallel_loop(&self) -> Option<&Loop> {
        let mut all = self.parallel_loops();
        all.next().filter(|_| all.next().is_none())
    }

    /// The parallel loops, which end the body.
    pub fn parallel_loops(&self) -> impl Iterator<Item = &Loop> {
        let parallel = |s: &Stmt| matches!(s, Stmt::Loop(l) if l.parallel);
        let first = self.body.iter().rposition(|s| !parallel(s)).map_or(0, |i| i + 1);
        self.body[first..].iter().filter_map(|s| match s {
            Stmt::Loop(l) => Some(l),
            _ => None,
        })
    }

    /// The parallel loops with their places in the range of all: the iterations of the first, then those of the second,
    /// and so on.
    pub fn parallel_ranges(&self) -> impl Iterator<Item = (&Loop, Range<usize>)> {
        self.parallel_loops().scan(0, |next, l| {
            let first = *next;
            *next += l.vars.iter().map(|&v| self.extent(v)).product::<usize>();
            Some((l, first..*next))
        })
    }

    /// The number of iterations of the parallel loops; 1 for a kernel without one. The runtime runs
    /// `0..parallel_extent()` in chunks.
    pub fn parallel_extent(&self) -> usize {
        self.parallel_ranges().last().map_or(1, |(_, range)| range.end)
    }

    /// The place of a loop among the parallel ones.
    pub(crate) fn parallel_range(&self, l: &Loop) -> Option<Range<usize>> {
        self.parallel_ranges()
            .find(|(p, _)| std::ptr::eq(*p, l))
            .map(|(_, range)| range)
    }
}
