//! Turns kernels over rows into flat kernels, so that they can be epilogues.
//!
//! `y[r, c] * scale[c]` is a loop over rows around a loop over columns. As an epilogue it must be one loop over the elements of the result,
//! because tiles begin and end anywhere. The flat kernel reads `scale[i]`; whoever runs it on a part of a row passes the buffer's
//! address minus the position of the row ([`Repeat`]).

use crate::kernel::{Affine, Buf, Index, Inst, Kernel, Loop, Stmt, Var, verify};
use crate::lower::ir::{Scheduled, Stored, ValueId};
use crate::program::{MAX_TAIL_BUFFERS, Repeat};
use rustc_hash::FxHashMap;

/// A kernel with one loop over the elements of a contraction's result.
pub(in crate::lower) struct FlatKernel {
    pub kernel: Kernel,
    /// For each parameter, how often its elements repeat.
    pub repeats: Vec<Option<Repeat>>,
}

/// Which element of a buffer belongs to element `i` of the result.
#[derive(Clone, Copy, PartialEq)]
enum SourceElement {
    /// Element `i`.
    Same,
    /// Element `i % period`.
    Repeats(usize),
    /// A fixed one.
    Fixed,
}

/// The flat form of a kernel whose rows are contiguous in the result of `host`. `None` if it has none.
pub(in crate::lower) fn flatten(s: &Scheduled, host: ValueId, numel: usize) -> Option<FlatKernel> {
    let k = &s.kernel;
    let rows = RowLoops::of_kernel(k)?;
    if rows.numel != numel || s.buffers.len() > MAX_TAIL_BUFFERS || k.scratch_layout().1 != 0 {
        return None;
    }
    let mut places = FxHashMap::default();
    let body: Option<Vec<Stmt>> = rows.body.iter().map(|stmt| rows.flat_stmt(stmt, &mut places)).collect();
    let params: Vec<Buf> = k.params().map(|(b, _)| b).collect();
    let is_host = |b: &Buf| params.iter().position(|p| p == b).map(|i| s.buffers[i]) == Some(Stored::Value(host));
    if places
        .iter()
        .any(|(b, place)| is_host(b) && *place != SourceElement::Same)
    {
        return None;
    }
    let mut kernel = k.clone();
    let repeats = params.iter().map(|b| {
        let buffer = &mut kernel.buffers[b.0 as usize];
        match places.get(b) {
            Some(&SourceElement::Repeats(period)) => {
                buffer.shape = vec![numel];
                let size = buffer.dtype.size();
                Some(Repeat { period, size })
            }
            _ => None,
        }
    });
    let repeats = repeats.collect();
    kernel.extents = vec![numel];
    kernel.body.pop();
    kernel.body.push(Stmt::Loop(Loop {
        vars: vec![Var(0)],
        parallel: true,
        vector: true,
        reduces: vec![],
        carries: vec![],
        body: body?,
    }));
    verify(&kernel).is_ok().then_some(FlatKernel { kernel, repeats })
}

/// The loops of a kernel over rows.
struct RowLoops<'a> {
    /// The terms of the row-major index of an element, sorted by variable.
    flat: Vec<(Var, i64)>,
    /// The number of elements that the last variables run over, from one variable to all.
    periods: Vec<(Vec<(Var, i64)>, usize)>,
    numel: usize,
    body: &'a [Stmt],
}

impl RowLoops<'_> {
    /// `None` if the kernel is not a parallel loop around one vector loop, without reductions.
    fn of_kernel(k: &Kernel) -> Option<RowLoops<'_>> {
        let outer = k.parallel_loop().filter(|l| !l.vector && is_plain(l))?;
        let [Stmt::Loop(inner)] = &outer.body[..] else {
            return None;
        };
        let [column] = inner.vars[..] else { return None };
        if !inner.vector || !is_plain(inner) {
            return None;
        }
        let vars: Vec<Var> = outer.vars.iter().copied().chain([column]).collect();
        let mut numel = 1usize;
        let mut terms: Vec<(Var, i64)> = vec![];
        let mut periods = vec![];
        for &v in vars.iter().rev() {
            terms.push((v, numel as i64));
            numel = numel.checked_mul(k.extent(v))?;
            periods.push((Affine::new(0, terms.iter().copied()).terms().to_vec(), numel));
        }
        let (flat, _) = periods.pop()?;
        Some(RowLoops {
            flat,
            periods,
            numel,
            body: &inner.body,
        })
    }

    /// A statement over the flat index. `None` if it is not a statement of epilogues.
    fn flat_stmt(&self, stmt: &Stmt, places: &mut FxHashMap<Buf, SourceElement>) -> Option<Stmt> {
        match stmt {
            Stmt::Let(v, Inst::Load(b, i, None)) => {
                let index = self.flat_index(*b, i, places)?;
                Some(Stmt::Let(*v, Inst::Load(*b, index, None)))
            }
            Stmt::Let(_, Inst::Op(_)) => Some(stmt.clone()),
            Stmt::Store(b, i, v) => {
                let index = self.flat_index(*b, i, places)?;
                (places.get(b) == Some(&SourceElement::Same)).then_some(Stmt::Store(*b, index, *v))
            }
            Stmt::Let(..) | Stmt::Loop(_) => None,
        }
    }

    /// The flat index of an access. All accesses of a buffer must be of one kind.
    fn flat_index(&self, b: Buf, i: &Index, places: &mut FxHashMap<Buf, SourceElement>) -> Option<Index> {
        let place = self.place_of(i)?;
        if *places.entry(b).or_insert(place) != place {
            return None;
        }
        Some(match place {
            SourceElement::Fixed => i.clone(),
            _ => Index::from(Affine::from(Var(0))),
        })
    }

    fn place_of(&self, i: &Index) -> Option<SourceElement> {
        if !i.dynamic.is_empty() {
            return None;
        }
        match (i.affine.base, i.affine.terms()) {
            (_, []) => Some(SourceElement::Fixed),
            (0, terms) if terms == self.flat => Some(SourceElement::Same),
            (0, terms) => {
                let period = self.periods.iter().find(|(suffix, _)| suffix == terms);
                period.map(|&(_, n)| SourceElement::Repeats(n))
            }
            _ => None,
        }
    }
}

fn is_plain(l: &Loop) -> bool {
    l.reduces.is_empty() && l.carries.is_empty()
}
