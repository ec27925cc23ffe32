//! Scheduling: turns a cluster into a kernel.
//!
//! A cluster without reductions is a map: a parallel loop over the outer dims and a vector loop over the last. One with
//! reductions runs in *stages*, each with one loop over the reduced dims. A stage computes what needs only the
//! reductions of earlier stages. Softmax has three (maximum, sum of exponentials, quotient). Full values that a later
//! stage needs are loaded if they are stored, kept in a row of scratch memory if they are expensive, and recomputed
//! otherwise. If the reduced dims are the contiguous ones, the loop over them is vectorized (*rows*). Otherwise the
//! last kept dim is vectorized, each lane with its own accumulators (*columns*). `lanes.rs` makes columns of short rows.
//!
//! Dims whose strides allow it are merged first, so that a contiguous tensor of any rank is one long loop. If there are
//! few long rows, they are split into parts (`split.rs`).

mod blocks;
mod emit;
mod known;
mod lanes;
mod long_rows;
mod nests;
mod short;
mod split;
mod tiles;
mod vars;

use crate::kernel::{Buf, KernelBuilder, Value, VerifyError};
use crate::lower::fuse::Fusion;
use crate::lower::fuse::cluster::{Along, Cluster, Level, broadcast_along, trace_views};
use crate::lower::ir::access::resolve_access;
use crate::lower::ir::{Def, Tir, ValueId};
pub(crate) use crate::lower::ir::{Scheduled, Stored};
use crate::op::SoftmaxPart;
use crate::scalar::ScalarNode;
use crate::tensor::Scalar;
pub(in crate::lower) use known::KnownKernels;
use lanes::LaneBlock;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, BTreeSet};
use tiles::TileCopies;

/// The source of an operand of a member.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::lower) enum OperandSource {
    /// A constant number.
    Number(Scalar),
    /// A member of the cluster, at the same point.
    Member(ValueId),
    /// A value without operands, recomputed where it is used.
    Inline(ValueId, Along),
    /// A load: base value, offset, stride per dim of the space.
    Load(ValueId, i64, Vec<i64>),
}

/// One loop: merged dims of the space, with the stride of the last one.
#[derive(Clone, Debug)]
pub(in crate::lower) struct LoopDim {
    pub(in crate::lower) extent: usize,
    pub(in crate::lower) last: usize,
}

pub(in crate::lower) struct Scheduler<'a> {
    pub(in crate::lower) tir: &'a Tir,
    pub(in crate::lower) fusion: &'a Fusion,
    pub(in crate::lower) cluster: &'a Cluster,
    /// The operands of each member.
    pub(in crate::lower) sources: BTreeMap<ValueId, Vec<OperandSource>>,
    /// For each full member, the loop over the row that computes it; for each reduced member, the number of loops
    /// before it.
    pub(in crate::lower) stage: FxHashMap<ValueId, usize>,
    pub(in crate::lower) kept: Vec<LoopDim>,
    pub(in crate::lower) row: Vec<LoopDim>,
    pub(in crate::lower) columns: bool,
    pub(in crate::lower) bufs: FxHashMap<ValueId, Buf>,
    pub(in crate::lower) buffers: Vec<Stored>,
    /// Values that get a buffer because one kernel of a split cluster passes them to another.
    pub(in crate::lower) handed: FxHashSet<ValueId>,
    /// Scratch rows.
    pub(in crate::lower) locals: FxHashMap<ValueId, Buf>,
    /// The transposed operands of a map in tiles.
    pub(in crate::lower) tile: TileCopies,
    /// The block of lanes that the kernel computes at a time, if it does.
    pub(in crate::lower) block: Option<LaneBlock>,
    /// Values of reduced members in the scope of the current parallel iteration.
    pub(in crate::lower) reduced_values: FxHashMap<ValueId, Value>,
}

/// Returns the kernel of a cluster, or the kernels that it is split into, in order. With `flushes`, its conversions to bf16
/// are [`Kernel::flushing`](crate::kernel::Kernel::flushing). `known` has the kernels of earlier clusters of the program.
pub(in crate::lower) fn schedule(
    tir: &Tir,
    fusion: &Fusion,
    cluster: &Cluster,
    name: &str,
    flushes: bool,
    known: &mut KnownKernels,
) -> Result<Vec<Scheduled>, VerifyError> {
    let mut s = Scheduler::new(tir, fusion, cluster);
    s.find_sources();
    let structure = s.structure(flushes);
    if let Some(equal) = known.find(&structure, &mut s, name) {
        let mut none = KnownKernels::default();
        debug_assert!(equal.is_only_of(&schedule(tir, fusion, cluster, name, flushes, &mut none)?));
        return Ok(vec![equal]);
    }
    s.find_stages();
    s.choose_loops();
    if let Some(cut) = s.cut() {
        return s.split(name, cut);
    }
    if let Some(lanes) = s.lane_blocks() {
        return s.in_lane_blocks(name, flushes, lanes);
    }
    let mut k = KernelBuilder::new(name);
    if flushes {
        k.flush_denormals();
    }
    s.declare(&mut k);
    s.emit_body(&mut k);
    let kernel = k.finish()?;
    known.keep(structure, &s, &kernel);
    let buffers = s.buffers;
    Ok(vec![Scheduled { kernel, buffers }])
}

impl<'a> Scheduler<'a> {
    /// The state before the analysis of the cluster.
    fn new(tir: &'a Tir, fusion: &'a Fusion, cluster: &'a Cluster) -> Scheduler<'a> {
        Scheduler {
            tir,
            fusion,
            cluster,
            sources: BTreeMap::new(),
            stage: FxHashMap::default(),
            kept: vec![],
            row: vec![],
            columns: false,
            bufs: FxHashMap::default(),
            buffers: vec![],
            handed: FxHashSet::default(),
            locals: FxHashMap::default(),
            tile: TileCopies::default(),
            block: None,
            reduced_values: FxHashMap::default(),
        }
    }
}

/// Analysis of the cluster.
impl Scheduler<'_> {
    pub(in crate::lower) fn is_stored(&self, v: ValueId) -> bool {
        self.fusion.stored[v.0 as usize] || self.handed.contains(&v)
    }

    fn operand_source(&self, operand: ValueId, along: &Along) -> OperandSource {
        let def = self.tir.value(operand);
        let along = broadcast_along(&def.shape, along);
        if let Some((base, base_along)) = trace_views(self.tir, operand, &along) {
            if self.cluster.member(base).is_some() {
                return OperandSource::Member(base);
            }
            if self.fusion.inlined[base.0 as usize] {
                return OperandSource::Inline(base, base_along);
            }
            if let Def::Constant(t) = &self.tir.value(base).def
                // A constant with one element becomes an immediate operand: no buffer, no load.
                && let Some(x) = t.item()
            {
                return OperandSource::Number(x);
            }
        }
        let a = resolve_access(self.tir, operand, &|v| self.is_stored(v)).expect("views have strides, see Tir::view");
        let mut strides = vec![0; self.cluster.space.len()];
        for (d, s) in along.iter().zip(&a.strides) {
            if let Some(d) = d {
                strides[*d] += s;
            }
        }
        OperandSource::Load(a.base, a.offset, strides)
    }

    fn find_sources(&mut self) {
        for m in &self.cluster.members {
            let sources = match &self.tir.value(m.value).def {
                Def::Pointwise { args, .. } => args.iter().map(|&a| self.operand_source(a, &m.along)).collect(),
                Def::Reduce { arg, .. } => {
                    // The operand covers the whole space, not only the kept dims.
                    let shape = &self.tir.value(*arg).shape;
                    vec![self.operand_source(*arg, &full_along(self.cluster, shape))]
                }
                _ => unreachable!("only pointwise values and reductions are members"),
            };
            self.sources.insert(m.value, sources);
        }
    }

    pub(in crate::lower) fn is_reduce(&self, v: ValueId) -> bool {
        matches!(self.tir.value(v).def, Def::Reduce { .. })
    }

    /// Whether a value is a softmax's quotient and both operands are available, the sum once per row. It then becomes a
    /// product with the inverse of the sum, computed once per row. This costs one more rounding, and is exact where the
    /// exponential is one.
    pub(in crate::lower) fn multiplies_by_inverse(&self, v: ValueId) -> bool {
        let &[OperandSource::Member(a), OperandSource::Member(b)] = &self.sources[&v][..] else {
            return false;
        };
        let level = |v: ValueId| self.cluster.member(v).map(|m| m.level);
        let at_hand = level(a) == Some(Level::Full) && level(b) == Some(Level::Reduced);
        at_hand && self.tir.softmax.get(&v) == Some(&SoftmaxPart::Share)
    }

    fn find_stages(&mut self) {
        for m in &self.cluster.members {
            let before = self.sources[&m.value].iter().filter_map(|s| match s {
                // Members are in value order, so the stages of operands are known.
                OperandSource::Member(o) => Some(self.stage[o]),
                _ => None,
            });
            let stage = before.max().unwrap_or(0) + self.is_reduce(m.value) as usize;
            self.stage.insert(m.value, stage);
        }
        self.delay_early_members();
    }

    /// Computes reduced members that need no reduction, such as a converted bias, where they are first used: a member of the
    /// first stage would keep rows from being split.
    fn delay_early_members(&mut self) {
        for m in self.cluster.members.iter().rev() {
            if m.level != Level::Reduced || self.stage[&m.value] > 0 {
                continue;
            }
            let is_use = |s: &OperandSource| *s == OperandSource::Member(m.value);
            let users = self
                .cluster
                .members
                .iter()
                .filter(|u| self.sources[&u.value].iter().any(is_use));
            let stages = users.map(|u| match u.level {
                Level::Reduced if !self.is_reduce(u.value) => self.stage[&u.value],
                _ => 0,
            });
            if let Some(stage) = stages.min() {
                self.stage.insert(m.value, stage);
            }
        }
    }

    /// The strides of all loads and stores of the kernel, per dim of the space.
    fn all_strides(&self) -> Vec<Vec<i64>> {
        let mut all: Vec<Vec<i64>> = vec![];
        for m in &self.cluster.members {
            for s in &self.sources[&m.value] {
                if let OperandSource::Load(_, _, strides) = s {
                    all.push(strides.clone());
                }
            }
            if self.is_stored(m.value) {
                all.push(self.own_strides(m.value, &m.along));
            }
        }
        all
    }

    /// The strides of a value's own buffer, per dim of the space.
    pub(in crate::lower) fn own_strides(&self, v: ValueId, along: &Along) -> Vec<i64> {
        let mut strides = vec![0; self.cluster.space.len()];
        let own_strides = crate::tensor::contiguous_strides(&self.tir.value(v).shape);
        for (d, s) in along.iter().zip(own_strides) {
            if let Some(d) = d {
                strides[*d] = s as i64;
            }
        }
        strides
    }

    /// The dims of the space whose indices the members' expressions use.
    fn indexed_dims(&self) -> BTreeSet<usize> {
        let mut dims = BTreeSet::new();
        let mut look = |v: ValueId, along: &Along| {
            if let Def::Pointwise { expr, .. } = &self.tir.value(v).def {
                for (_, n, _) in expr.nodes() {
                    if let ScalarNode::Index(d) = n {
                        dims.extend((along.len() - 1).checked_sub(d as usize).and_then(|i| along[i]));
                    }
                }
            }
        };
        for m in &self.cluster.members {
            look(m.value, &m.along);
            for s in &self.sources[&m.value] {
                if let OperandSource::Inline(v, along) = s {
                    look(*v, along);
                }
            }
        }
        dims
    }

    /// The loops over the kept or reduced dims. Neighbouring dims are merged if `strides` allow it.
    fn merged_loops(&self, reduced: bool, strides: &[Vec<i64>]) -> Vec<LoopDim> {
        let space = &self.cluster.space;
        let indexed = self.indexed_dims();
        let mut loops: Vec<LoopDim> = vec![];
        let dims = self.cluster.loop_order().into_iter();
        for d in dims.filter(|&d| self.cluster.reduced[d] == reduced && space[d] != 1) {
            if let Some(l) = loops.last_mut() {
                // A merged loop has one variable, so an expression that uses the index of one of the dims prevents merging.
                let joins = strides
                    .iter()
                    .all(|s| s[l.last] == s[d].saturating_mul(space[d] as i64))
                    && !indexed.contains(&l.last)
                    && !indexed.contains(&d);
                if joins && l.extent.checked_mul(space[d]).is_some() {
                    *l = LoopDim {
                        extent: l.extent * space[d],
                        last: d,
                    };
                    continue;
                }
            }
            loops.push(LoopDim {
                extent: space[d],
                last: d,
            });
        }
        loops
    }

    fn choose_loops(&mut self) {
        let strides = self.all_strides();
        let (kept, mut row) = (self.merged_loops(false, &strides), self.merged_loops(true, &strides));
        let reduces = self.cluster.members.iter().any(|m| self.is_reduce(m.value));
        if reduces && row.is_empty() {
            // All reduced dims have size one: emit a loop of one iteration.
            let last = self.cluster.reduced.iter().position(|&r| r).unwrap_or(0);
            row.push(LoopDim { extent: 1, last });
        }
        // What does not change along a row, such as its sum, is read or written once for all of its elements, so it counts only between
        // equals.
        let reduced = &self.cluster.reduced;
        let is_in_row = |s: &&Vec<i64>| s.iter().zip(reduced).any(|(&s, &r)| r && s != 0);
        let contiguous = |l: Option<&LoopDim>| {
            let along = |s: &&Vec<i64>| l.is_some_and(|l| s.get(l.last) == Some(&1));
            (
                strides.iter().filter(is_in_row).filter(along).count(),
                strides.iter().filter(along).count(),
            )
        };
        // Vectors run along the dim in which more loads and stores are contiguous.
        self.columns = !row.is_empty() && contiguous(kept.last()) > contiguous(row.last());
        self.kept = kept;
        self.row = row;
    }
}

/// The dims of the space for a value that has an element at every point.
fn full_along(c: &Cluster, shape: &[usize]) -> Along {
    let mut rest = (0..c.space.len()).filter(|&d| c.space[d] != 1);
    shape.iter().map(|&s| if s == 1 { None } else { rest.next() }).collect()
}
