//! The loop variables of a cluster's kernel, and the indices they yield along the dims of its space.

use super::LoopDim;
use crate::kernel::{Affine, Var};

/// The variables of the open loops. The index along a dim is the sum of its terms.
#[derive(Clone, Default)]
pub(in crate::lower) struct Vars {
    /// Dim, factor, variable.
    terms: Vec<(usize, i64, Var)>,
    /// The start of dims that do not start at 0.
    from: Vec<(usize, i64)>,
}

impl Vars {
    /// Adds one variable for each of these loops.
    pub(crate) fn with_loops(&self, dims: &[LoopDim], vars: &[Var]) -> Vars {
        let mut v = self.clone();
        v.terms.extend(dims.iter().zip(vars).map(|(d, &v)| (d.last, 1, v)));
        v
    }

    /// Restricts a dim to the part that starts at `from + len * part`.
    pub(crate) fn with_part(&self, dim: usize, from: usize, len: usize, part: Var) -> Vars {
        let mut v = self.clone();
        v.terms.push((dim, len as i64, part));
        v.with_offset(dim, from)
    }

    /// Moves the start of a dim by `count` elements.
    pub(crate) fn with_offset(&self, dim: usize, count: usize) -> Vars {
        let mut v = self.clone();
        v.from.push((dim, count as i64));
        v
    }

    /// The index of the current element in a buffer with these strides per dim.
    pub(crate) fn index(&self, offset: i64, strides: &[i64]) -> Affine {
        let stride = |d: usize| strides.get(d).copied().unwrap_or(0);
        let base: i64 = self.from.iter().map(|&(d, n)| n * stride(d)).sum();
        Affine::new(offset + base, self.terms.iter().map(|&(d, f, v)| (v, f * stride(d))))
    }

    /// The index along a dim.
    pub(crate) fn dim(&self, d: usize) -> Affine {
        let base: i64 = self.from.iter().filter(|f| f.0 == d).map(|f| f.1).sum();
        let terms = self.terms.iter().filter(|t| t.0 == d);
        Affine::new(base, terms.map(|&(_, f, v)| (v, f)))
    }
}
