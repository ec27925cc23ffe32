//! Rows side by side: blocks of neighbouring rows, each in a lane of its own.
//!
//! The elements of a short row do not fill vectors, which is slow where each takes many instructions: of 7 numbers of f64 an exponential
//! is computed in three scalars and a vector of four. A block of such rows is therefore copied to scratch memory as columns, and so are
//! its results. These copies are scalar code: a call that transposes them would keep the vectors of the kernel at 128 bits.
//!
//! Where lanes are columns already, a block of them also has scratch memory, for expensive values that a later stage needs:
//!
//! ```text
//! softmax over the first dim:   for each block of 64 columns: their maxima; exponentials, kept, and their sums; quotients
//! ```
//!
//! Lanes that do not fill a block are those of a kernel of their own.

use super::emit::is_expensive;
use super::vars::Vars;
use super::{LoopDim, OperandSource, Scheduled, Scheduler};
use crate::kernel::{Affine, Buf, KernelBuilder, Var, VerifyError};
use crate::lower::fuse::cluster::Level;
use crate::lower::ir::{Def, ValueId};
use std::collections::BTreeMap;

/// The number of lanes in a block if no number from its half to its double divides their number.
const LANES: usize = 64;
/// The number of lanes in the widest vectors, of 32 bits.
const WHOLE: usize = 16;
/// Fewer lanes are not worth a block.
const FEWEST_LANES: usize = 32;
/// The least number of elements of rows that are transposed.
const FEWEST_ELEMENTS: usize = 1024;
/// The most bytes of a value's scratch memory. More would not stay in the second cache between two stages.
const MOST_BYTES: usize = 256 << 10;
/// The most operands and results that are transposed.
const MOST_COPIES: usize = 4;

/// The block of lanes that a kernel computes at a time.
pub(in crate::lower) struct LaneBlock {
    pub(in crate::lower) lanes: usize,
    /// The variable of the loop over the lanes, while it is open.
    lane: Option<Var>,
    /// Operands whose rows are contiguous, each with its columns.
    operands: Vec<(OperandSource, Buf)>,
    /// Stored values whose rows are contiguous, each with its columns.
    results: BTreeMap<ValueId, Buf>,
}

/// Which lanes a kernel computes: `count` blocks of `lanes`, from `from` on.
#[derive(Clone, Copy)]
struct Lanes {
    from: usize,
    count: usize,
    lanes: usize,
}

impl Scheduler<'_> {
    /// The number of lanes in a block, if the cluster is computed in such blocks.
    pub(super) fn lane_blocks(&self) -> Option<usize> {
        let ([row], Some(last)) = (&self.row[..], self.kept.last()) else {
            return None;
        };
        let longest = self
            .cluster
            .members
            .iter()
            .map(|m| self.tir.value(m.value).dtype.size())
            .max()?;
        let lanes = dividing(last.extent).unwrap_or(LANES).min(last.extent);
        let bytes = row.extent.saturating_mul(longest.max(4)).saturating_mul(lanes);
        let fits = last.extent >= FEWEST_LANES && row.extent > 1 && bytes <= MOST_BYTES;
        let suits = match self.columns {
            true => self.keeps_expensive_values(),
            false => self.has_short_rows(row, last),
        };
        (fits && suits).then_some(lanes)
    }

    /// Whether a later stage needs an expensive value that has no buffer.
    fn keeps_expensive_values(&self) -> bool {
        let mut full = self.cluster.members.iter().filter(|m| m.level == Level::Full);
        full.any(|m| self.is_costly(m.value) && !self.is_stored(m.value) && self.used_in_later_stage(m.value))
    }

    fn is_costly(&self, v: ValueId) -> bool {
        matches!(&self.tir.value(v).def, Def::Pointwise { expr, .. } if is_expensive(expr))
    }

    /// Whether rows are short, have expensive elements, and are in memory one after the other.
    fn has_short_rows(&self, row: &LoopDim, last: &LoopDim) -> bool {
        let members = &self.cluster.members;
        let costly = members
            .iter()
            .any(|m| m.level == Level::Full && self.is_costly(m.value));
        let loads = self.sources.values().flatten().all(|s| match s {
            OperandSource::Load(_, _, strides) => {
                let (along, across) = (strides[row.last], strides[last.last]);
                across == 0 || along == 0 && across == 1 || along == 1
            }
            _ => true,
        });
        let copies = self.transposed_operands(row, last).len() + self.transposed_results().len();
        self.fills_no_vectors(row.extent)
            && row.extent.saturating_mul(last.extent) >= FEWEST_ELEMENTS
            && costly
            && loads
            && (1..=MOST_COPIES).contains(&copies)
    }

    /// Whether vectors along rows of so many elements leave some over that take longer than moving all of them.
    fn fills_no_vectors(&self, extent: usize) -> bool {
        let members = self.cluster.members.iter();
        let vector = match members.map(|m| self.tir.value(m.value).dtype.size()).max() {
            Some(8..) => WHOLE / 2,
            _ => WHOLE / 4,
        };
        extent < WHOLE && !extent.is_multiple_of(vector)
    }

    /// The operands whose rows are contiguous, if lanes are not.
    fn transposed_operands(&self, row: &LoopDim, last: &LoopDim) -> Vec<OperandSource> {
        let mut out: Vec<OperandSource> = vec![];
        for s in self.sources.values().flatten() {
            if let OperandSource::Load(_, _, strides) = s
                && strides[row.last] == 1
                && strides[last.last] != 0
                && !out.contains(s)
            {
                out.push(s.clone());
            }
        }
        out
    }

    fn transposed_results(&self) -> Vec<ValueId> {
        let members = self.cluster.members.iter();
        let full = members.filter(|m| m.level == Level::Full && self.is_stored(m.value));
        full.map(|m| m.value).collect()
    }

    /// The kernels that compute the cluster in blocks of so many lanes.
    pub(super) fn in_lane_blocks(
        mut self,
        name: &str,
        flushes: bool,
        lanes: usize,
    ) -> Result<Vec<Scheduled>, VerifyError> {
        let extent = self.kept.last().map_or(0, |l| l.extent);
        let (count, rest) = (extent / lanes, extent % lanes);
        let whole = Lanes { from: 0, count, lanes };
        let last = Lanes {
            from: count * lanes,
            count: 1,
            lanes: rest,
        };
        let transposed = !std::mem::replace(&mut self.columns, true);
        let mut out = vec![];
        for (part, suffix) in [(whole, ""), (last, "_rest")] {
            if part.lanes * part.count == 0 {
                continue;
            }
            let mut k = KernelBuilder::new(format!("{name}{suffix}"));
            if flushes {
                k.flush_denormals();
            }
            self.emit_lane_blocks(&mut k, part, transposed);
            out.push(Scheduled {
                kernel: k.finish()?,
                buffers: std::mem::take(&mut self.buffers),
            });
        }
        Ok(out)
    }

    fn emit_lane_blocks(&mut self, k: &mut KernelBuilder, part: Lanes, transposed: bool) {
        let kept = self.kept.clone();
        let (Some((last, outer)), [row]) = (kept.split_last(), &self.row.clone()[..]) else {
            return;
        };
        self.bufs.clear();
        self.locals.clear();
        // The last iterations of a vector loop have masks only if it reads no scratch memory.
        let keeps = transposed || part.lanes.is_multiple_of(WHOLE);
        self.block = keeps.then(|| LaneBlock {
            lanes: part.lanes,
            lane: None,
            operands: vec![],
            results: BTreeMap::new(),
        });
        self.declare(k);
        if transposed {
            self.declare_columns(k, row, last);
        }
        let side = LoopDim {
            extent: part.lanes,
            last: last.last,
        };
        let mut extents: Vec<usize> = outer.iter().map(|l| l.extent).collect();
        extents.push(part.count);
        k.parallel(&extents, |k, v| {
            let vars = Vars::default().with_loops(outer, v);
            let vars = vars.with_part(last.last, part.from, part.lanes, v[outer.len()]);
            self.copy_operands(k, &vars, row, &side);
            k.vector(part.lanes, |k, c| {
                self.set_lane(Some(c));
                self.emit_point(k, vars.with_loops(std::slice::from_ref(&side), &[c]));
                self.set_lane(None);
            });
            self.copy_results(k, &vars, row, &side);
        });
    }

    fn set_lane(&mut self, lane: Option<Var>) {
        if let Some(b) = &mut self.block {
            b.lane = lane;
        }
    }

    /// Declares scratch memory for the columns of operands and results.
    fn declare_columns(&mut self, k: &mut KernelBuilder, row: &LoopDim, last: &LoopDim) {
        let shape = [row.extent, self.block.as_ref().map_or(0, |b| b.lanes)];
        let mut columns = |v: ValueId, n: usize| {
            let def = self.tir.value(v);
            k.local(&format!("{}_columns{n}", def.name), def.dtype, &shape)
        };
        let mut operands = vec![];
        for s in self.transposed_operands(row, last) {
            if let OperandSource::Load(base, ..) = s {
                let copy = columns(base, operands.len());
                operands.push((s, copy));
            }
        }
        let count = operands.len();
        let results = self.transposed_results();
        let results = results.iter().enumerate().map(|(n, &v)| (v, columns(v, count + n)));
        let results = results.collect();
        if let Some(b) = &mut self.block {
            (b.operands, b.results) = (operands, results);
        }
    }

    /// Copies the rows of operands to columns.
    fn copy_operands(&self, k: &mut KernelBuilder, vars: &Vars, row: &LoopDim, side: &LoopDim) {
        let Some(b) = &self.block else { return };
        for (s, copy) in &b.operands {
            let OperandSource::Load(base, offset, strides) = s else {
                continue;
            };
            k.serial(side.extent, |k, c| {
                let vars = vars.with_loops(std::slice::from_ref(side), &[c]);
                k.serial(row.extent, |k, r| {
                    let vars = vars.with_loops(std::slice::from_ref(row), &[r]);
                    let x = k.load(self.bufs[base], vars.index(*offset, strides));
                    k.store(*copy, r * b.lanes as i64 + c, x);
                });
            });
        }
    }

    /// Copies the columns of results to rows.
    fn copy_results(&self, k: &mut KernelBuilder, vars: &Vars, row: &LoopDim, side: &LoopDim) {
        let Some(b) = &self.block else { return };
        for (&v, &columns) in &b.results {
            let along = &self.cluster.member(v).expect("a member").along;
            let strides = self.own_strides(v, along);
            k.serial(side.extent, |k, c| {
                let vars = vars.with_loops(std::slice::from_ref(side), &[c]);
                k.serial(row.extent, |k, r| {
                    let x = k.load(columns, r * b.lanes as i64 + c);
                    let vars = vars.with_loops(std::slice::from_ref(row), &[r]);
                    k.store(self.bufs[&v], vars.index(0, &strides), x);
                });
            });
        }
    }

    /// The columns that an operand was copied to, and the place of the current point in them.
    pub(super) fn columns_of_operand(&self, s: &OperandSource, vars: &Vars) -> Option<(Buf, Affine)> {
        let block = self.block.as_ref()?;
        let (_, columns) = block.operands.iter().find(|(o, _)| o == s)?;
        Some((*columns, self.row_index(vars)))
    }

    /// The buffer of a stored value, and the place of the current point in it.
    pub(super) fn place_of(&self, v: ValueId, vars: &Vars) -> (Buf, Affine) {
        if let Some(&columns) = self.block.as_ref().and_then(|b| b.results.get(&v)) {
            return (columns, self.row_index(vars));
        }
        let along = &self.cluster.member(v).expect("a member").along;
        (self.bufs[&v], vars.index(0, &self.own_strides(v, along)))
    }

    /// The place in scratch memory of an element of a row, in the current lane if there are any.
    pub(super) fn in_lane(&self, index: Affine) -> Affine {
        match &self.block {
            Some(LaneBlock {
                lanes, lane: Some(c), ..
            }) => index * *lanes as i64 + *c,
            _ => index,
        }
    }
}

/// The number of lanes in blocks that leave none over: whole vectors if there is such a number.
fn dividing(extent: usize) -> Option<usize> {
    let divides = |n: &usize| n.is_multiple_of(WHOLE) && extent.is_multiple_of(*n);
    (LANES..=2 * LANES)
        .find(divides)
        .or_else(|| (LANES / 2..LANES).rev().find(divides))
}
