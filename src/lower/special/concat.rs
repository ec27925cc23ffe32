//! The kernels of concatenations.

use super::kernels::{affine_vars, element_index};
use crate::kernel::{Affine, Buf, KernelBuilder};
use crate::lower::ir::access::Access;

/// Concatenations of fewer elements are not worth several threads.
const FEWEST: usize = 1 << 14;
/// The maximum number of runs that get a parallel loop each, and the maximum number of outer indices of these runs: if
/// there are more, threads share the outer indices.
const MOST_RUNS: usize = 64;
const MOST_OUTER: usize = 4;

/// A part of a concatenation.
struct Part<'a> {
    buf: Buf,
    access: &'a Access,
    shape: &'a [usize],
    /// The index of its first element in the concatenated dim.
    first: i64,
}

impl Part<'_> {
    /// Whether the dims from `dim` on are one run of memory.
    fn is_run(&self, dim: usize) -> bool {
        let rest = Access {
            strides: self.access.strides[dim..].to_vec(),
            ..self.access.clone()
        };
        rest.is_contiguous(&self.shape[dim..])
    }

    /// The elements of this part at an index of the dims before `dim`, if they are one run: where they are, where they
    /// go, and how many they are.
    fn run(&self, out: &Access, outer: &[Affine], dim: usize) -> (Affine, Affine, usize) {
        let zeros = vec![Affine::from(0); self.shape.len() - dim];
        let full: Vec<Affine> = outer.iter().cloned().chain(zeros).collect();
        let to = element_index(out, &full) + self.first * out.strides[dim];
        let len = self.shape[dim..].iter().product();
        (element_index(self.access, &full), to, len)
    }
}

/// Concatenates `parts`, which have the shapes `sizes`, along `dim`.
pub(super) fn write_concat(
    k: &mut KernelBuilder,
    parts: &[(Buf, Access)],
    sizes: &[Vec<usize>],
    out: &(Buf, Access),
    dim: usize,
) {
    let mut first = 0i64;
    let parts = parts.iter().zip(sizes).map(|((buf, access), shape)| {
        let part = Part {
            buf: *buf,
            access,
            shape,
            first,
        };
        first += shape[dim] as i64;
        part
    });
    let parts: Vec<Part> = parts.collect();
    let outer = &sizes[0][..dim];
    if wants_parallel_runs(&parts, outer, dim) {
        return write_parallel_runs(k, &parts, out, outer);
    }
    let copies = |k: &mut KernelBuilder, outer: &[Affine]| {
        for p in &parts {
            copy_part(k, p, out, outer, dim);
        }
    };
    match outer {
        [] => copies(k, &[]),
        outer => k.parallel(outer, |k, v| copies(k, &affine_vars(v))),
    }
}

/// Whether the outer dims are too small to be shared by threads, while the runs are long.
fn wants_parallel_runs(parts: &[Part], outer: &[usize], dim: usize) -> bool {
    let rows: usize = outer.iter().product();
    let numel: usize = parts.iter().map(|p| p.shape.iter().product::<usize>()).sum();
    rows <= MOST_OUTER && rows * parts.len() <= MOST_RUNS && numel >= FEWEST && parts.iter().all(|p| p.is_run(dim))
}

/// Copies each part at each outer index in a parallel loop of its own.
fn write_parallel_runs(k: &mut KernelBuilder, parts: &[Part], out: &(Buf, Access), outer: &[usize]) {
    let rows: usize = outer.iter().product();
    for row in 0..rows {
        let mut rest = row;
        let mut index = vec![Affine::from(0); outer.len()];
        for (i, &n) in index.iter_mut().zip(outer).rev() {
            *i = Affine::from((rest % n) as i64);
            rest /= n;
        }
        for p in parts.iter().filter(|p| p.shape[outer.len()] > 0) {
            let (from, to, len) = p.run(&out.1, &index, outer.len());
            k.parallel_vector(len, |k, j| {
                let x = k.load(p.buf, from + j);
                k.store(out.0, to + j, x);
            });
        }
    }
}

/// Copies one part at an index of the dims before `dim`.
fn copy_part(k: &mut KernelBuilder, p: &Part, out: &(Buf, Access), outer: &[Affine], dim: usize) {
    if p.is_run(dim) {
        let (from, to, len) = p.run(&out.1, outer, dim);
        return k.vector(len, |k, j| {
            let x = k.load(p.buf, from + j);
            k.store(out.0, to + j, x);
        });
    }
    k.map_nest(&p.shape[dim..], |k, inner| {
        let mut full: Vec<Affine> = outer.iter().cloned().chain(affine_vars(inner)).collect();
        let x = k.load(p.buf, element_index(p.access, &full));
        full[dim] = full[dim].clone() + p.first;
        k.store(out.0, element_index(&out.1, &full), x);
    });
}
