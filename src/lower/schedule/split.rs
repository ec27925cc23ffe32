//! Parallel reductions: splits a few long rows into parts.
//!
//! A kernel's parallel loop runs over the kept dims. A sum of a million elements has no kept dims, and a sum over the
//! first dim of `[100000, 8]` has only eight lanes: both would run on one thread. Such a cluster becomes several
//! kernels per stage: one computes the parts of its rows in parallel and stores the partial results in a buffer, and
//! one combines them:
//!
//! ```text
//! x.sum() of 1000000:   parts[p] = sum(x[62464 p ..][..62464])    p parallel
//!                       parts[16] = sum(x[999424..])
//!                       sum = sum(parts)
//! ```
//!
//! The split depends only on sizes, so results do not depend on the number of threads.

use super::emit::{is_expensive, reduce_op};
use super::vars::Vars;
use super::{LoopDim, OperandSource, Scheduled, Scheduler, Stored};
use crate::kernel::{Affine, Buf, BufferRole, KernelBuilder, ReduceOp, Value, VerifyError};
use crate::lower::fuse::cluster::{ClusterMember, Level};
use crate::lower::fuse::cost;
use crate::lower::ir::{Def, ValueId};
use crate::types::DType;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Fewer iterations than this do not keep several threads busy.
const WAYS: usize = 8;
/// The maximal number of parts of a row.
const MOST: usize = 32;
/// The number of lanes in a group, in columns.
const GROUP: usize = 64;
/// Rows of columns that are at least this many bytes apart are in different pages.
const PAGE: usize = 4096;
/// The number of rows in a part if they are in different pages. A pass over all rows for each group of lanes would miss the TLB at every
/// row, and prefetchers do not follow it; over these few rows they see as many streams.
const FAR_ROWS: usize = 32;
/// The least number of rows that are split because they are in different pages.
const MANY_ROWS: usize = 256;

/// How rows are split along their first loop: `parts` of `len` iterations, and `rest` remaining iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::lower) struct Cut {
    pub parts: usize,
    pub len: usize,
    pub rest: usize,
}

impl Cut {
    /// The number of parts, including the rest.
    pub(crate) fn slots(self) -> usize {
        self.parts + (self.rest > 0) as usize
    }
}

/// A range of parts that one kernel computes.
#[derive(Clone, Copy)]
struct Range {
    /// The first iteration of the row.
    from: usize,
    len: usize,
    parts: usize,
    /// The index of the first part.
    slot: usize,
}

impl Scheduler<'_> {
    /// How to split the rows; `None` if they are not split.
    pub(in crate::lower) fn cut(&self) -> Option<Cut> {
        let (limits, first) = (self.tir.limits, self.row.first()?);
        let kept: usize = self.kept.iter().map(|l| l.extent).product();
        let ways = match (self.columns, self.kept.last()) {
            (true, Some(l)) => kept / l.extent.max(1) * l.extent.div_ceil(GROUP),
            _ => kept,
        };
        let members = &self.cluster.members;
        let early = |m: &ClusterMember| m.level == Level::Reduced && self.stage[&m.value] == 0;
        let takes = cost::cluster_cost(self.tir, self.cluster, &|v| self.is_stored(v)).nanoseconds();
        // An early member belongs to the first stage but has one element per row. `combine_kernel` only computes such
        // values after a reduction.
        let far = self.has_far_rows();
        if kept == 0 || ways >= WAYS && !far || takes < limits.long || members.iter().any(early) {
            return None;
        }
        // `MOST` limits the parts of all rows together.
        let part_count = match far {
            true => first.extent / FAR_ROWS,
            false => ((takes / limits.part) as usize).min(MOST / ways.max(1)).max(2),
        };
        let mut len = first.extent / part_count;
        // Use whole cache lines if the part is long enough not to change much.
        if len >= 1024 {
            len -= len % 64;
        }
        let parts = first.extent.checked_div(len)?;
        let cut = Cut {
            parts,
            len,
            rest: first.extent - parts * len,
        };
        (parts >= 2).then_some(cut)
    }

    /// Whether lanes are columns of many rows, each in a page of its own, that are read once.
    fn has_far_rows(&self) -> bool {
        let first = &self.row[0];
        let far = |s: &OperandSource| match s {
            OperandSource::Load(v, _, strides) => {
                let size = self.tir.value(*v).dtype.size() as u64;
                strides[first.last].unsigned_abs().saturating_mul(size) >= PAGE as u64
            }
            _ => false,
        };
        let once = |m: &ClusterMember| match m.level {
            Level::Full => self.stage[&m.value] == 0,
            Level::Reduced => self.stage[&m.value] == 1,
        };
        self.columns
            && first.extent >= MANY_ROWS
            && self.cluster.members.iter().all(once)
            && self.sources.values().flatten().any(far)
    }

    /// The kernels of a cluster with split rows.
    pub(in crate::lower) fn split(mut self, name: &str, cut: Cut) -> Result<Vec<Scheduled>, VerifyError> {
        self.hand_on();
        let last = self.stage.values().copied().max().unwrap_or(0);
        let mut out = vec![];
        for stage in 0..=last {
            let (reduces, stores) = self.stage_roots(stage);
            if reduces.is_empty() && stores.is_empty() {
                continue;
            }
            let whole = Range {
                from: 0,
                len: cut.len,
                parts: cut.parts,
                slot: 0,
            };
            let rest = Range {
                from: cut.len * cut.parts,
                len: cut.rest,
                parts: 1,
                slot: cut.parts,
            };
            // The kernels of each stage are numbered by the stage.
            let name = match stage {
                0 => name.to_string(),
                n => format!("{name}_{n}"),
            };
            for (range, suffix) in [(whole, "parts"), (rest, "rest")].into_iter().filter(|r| r.0.len > 0) {
                out.push(self.of_parts(&format!("{name}_{suffix}"), stage, range, cut)?);
            }
            if !reduces.is_empty() {
                out.push(self.combine_kernel(&format!("{name}_total"), stage, cut)?);
            }
        }
        Ok(out)
    }

    /// Finds the values that one kernel passes to another: reductions, and expensive values that are needed again.
    fn hand_on(&mut self) {
        let later = |m: &ClusterMember| match &self.tir.value(m.value).def {
            Def::Pointwise { expr, .. } => is_expensive(expr) && self.used_in_later_stage(m.value),
            _ => false,
        };
        let members = self.cluster.members.iter();
        let handed = members
            .filter(|m| m.level == Level::Reduced || later(m))
            .map(|m| m.value);
        self.handed = handed.collect();
    }

    /// Starts a kernel with these values as its parameters.
    fn begin(&mut self, k: &mut KernelBuilder, inputs: &BTreeSet<ValueId>, outputs: &[ValueId]) {
        (self.bufs, self.buffers) = (FxHashMap::default(), vec![]);
        self.reduced_values.clear();
        let all = inputs.iter().map(|&v| (v, BufferRole::In));
        for (v, role) in all
            .chain(outputs.iter().map(|&v| (v, BufferRole::Out)))
            .collect::<Vec<_>>()
        {
            let def = self.tir.value(v);
            let b = k.buffer(&format!("{}_{}", def.name, v.0), def.dtype, &def.shape, role);
            self.bufs.insert(v, b);
            self.buffers.push(Stored::Value(v));
        }
    }

    /// The buffers for the partial results of these reductions.
    fn parts_of(&mut self, k: &mut KernelBuilder, reduces: &[ValueId], cut: Cut, role: BufferRole) -> Vec<Buf> {
        let rows: usize = self.kept.iter().map(|l| l.extent).product();
        let mut out = vec![];
        for &reduction in reduces {
            let (_, acc) = self.combine_of(reduction);
            let name = format!("{}_{}_parts", self.tir.value(reduction).name, reduction.0);
            out.push(k.buffer(&name, acc, &[cut.slots(), rows], role));
            let parts = cut.slots();
            self.buffers.push(Stored::Parts {
                of: reduction,
                parts,
                rows,
            });
        }
        out
    }

    /// The operation and dtype with which a reduction combines.
    fn combine_of(&self, r: ValueId) -> (ReduceOp, DType) {
        match &self.tir.value(r).def {
            Def::Reduce { reduction, .. } => (reduce_op(reduction.combine), reduction.acc),
            _ => unreachable!("only reductions are combined"),
        }
    }

    /// The kernel that computes a range of parts of one stage.
    fn of_parts(&mut self, name: &str, stage: usize, range: Range, cut: Cut) -> Result<Scheduled, VerifyError> {
        let (reduces, stores) = self.stage_roots(stage);
        let mut k = KernelBuilder::new(name);
        let inputs = self.inputs_of(stage, &reduces, &stores);
        self.begin(&mut k, &inputs, &stores);
        let parts = self.parts_of(&mut k, &reduces, cut, BufferRole::Out);
        let mut row = self.row.clone();
        row[0].extent = range.len;
        let kept = self.kept.clone();
        let (outer, lanes) = kept.split_at(kept.len() - self.columns as usize);
        let mut extents: Vec<usize> = outer.iter().map(|l| l.extent).collect();
        extents.push(range.parts);
        k.parallel(&extents, |k, v| {
            let part = v[outer.len()];
            let vars = Vars::default().with_loops(outer, v);
            let vars = vars.with_part(row[0].last, range.from, range.len, part);
            let point = |s: &mut Self, k: &mut KernelBuilder, vars: &Vars| {
                s.load_reduced(k, vars, &inputs);
                let totals = s.part_loops(k, vars, &row, stage, &reduces, &stores);
                let index = s.place_of_part(vars, Affine::from(part) + range.slot as i64);
                for (&b, x) in parts.iter().zip(totals) {
                    k.store(b, index.clone(), x);
                }
            };
            match lanes.first() {
                None => point(self, k, &vars),
                Some(l) => k.vector(l.extent, |k, j| point(self, k, &vars.with_loops(lanes, &[j]))),
            }
        });
        self.finish(k)
    }

    /// Emits the loops over one part of a row. Returns the partial results.
    fn part_loops(
        &mut self,
        k: &mut KernelBuilder,
        vars: &Vars,
        row: &[LoopDim],
        stage: usize,
        reduces: &[ValueId],
        stores: &[ValueId],
    ) -> Vec<Value> {
        if reduces.is_empty() {
            self.store_nest(k, vars, row, stage, stores);
            return vec![];
        }
        let inits: Vec<(ReduceOp, Value)> = reduces
            .iter()
            .map(|&r| {
                let (op, acc) = self.combine_of(r);
                (op, k.constant(op.identity(acc)))
            })
            .collect();
        self.reduce_nest(k, vars, row, &inits, stage, reduces, stores)
    }

    /// The index of part `part` of the current row in the buffer of partial results.
    fn place_of_part(&self, vars: &Vars, part: Affine) -> Affine {
        let extents: Vec<usize> = self.kept.iter().map(|l| l.extent).collect();
        let rows: usize = extents.iter().product();
        let strides = crate::tensor::contiguous_strides(&extents);
        let terms = self.kept.iter().zip(strides).map(|(l, s)| vars.dim(l.last) * s as i64);
        terms.fold(part * rows as i64, |a, t| a + t)
    }

    /// Loads the reduced values among `inputs`.
    fn load_reduced(&mut self, k: &mut KernelBuilder, vars: &Vars, inputs: &BTreeSet<ValueId>) {
        for &v in inputs {
            if let Some(m) = self.cluster.member(v).filter(|m| m.level == Level::Reduced) {
                let index = vars.index(0, &self.own_strides(v, &m.along));
                let x = k.load(self.bufs[&v], index);
                self.reduced_values.insert(v, x);
            }
        }
    }

    /// The buffers that the loop of a stage reads.
    fn inputs_of(&self, stage: usize, reduces: &[ValueId], stores: &[ValueId]) -> BTreeSet<ValueId> {
        let roots = self.loop_roots(reduces, stores);
        let mut out = BTreeSet::new();
        let needed = self.needed_members(&roots, stage);
        for &v in &needed {
            match self.stage[&v] < stage && self.is_stored(v) {
                true => drop(out.insert(v)),
                false => out.extend(self.outside_buffers(v)),
            }
        }
        out.extend(
            reduces
                .iter()
                .flat_map(|&r| self.outside_buffers(r))
                .filter(|v| !needed.contains(v)),
        );
        out
    }

    /// The values whose buffers the operands of a member are in: values of other units, and reduced values.
    fn outside_buffers(&self, v: ValueId) -> Vec<ValueId> {
        let stored_operand = |s: &OperandSource| match s {
            OperandSource::Load(b, ..) => Some(*b),
            OperandSource::Member(m) => {
                let reduced = self.cluster.member(*m).is_some_and(|m| m.level == Level::Reduced);
                reduced.then_some(*m)
            }
            _ => None,
        };
        self.sources[&v].iter().filter_map(stored_operand).collect()
    }

    /// The kernel that combines the parts of a stage and computes what depends only on its reductions.
    fn combine_kernel(&mut self, name: &str, stage: usize, cut: Cut) -> Result<Scheduled, VerifyError> {
        let (reduces, _) = self.stage_roots(stage);
        let ready = |m: &&ClusterMember| m.level == Level::Reduced && self.stage[&m.value] == stage + 1;
        let outputs: Vec<ValueId> = self.cluster.members.iter().filter(ready).map(|m| m.value).collect();
        let maps = outputs.iter().filter(|v| !self.is_reduce(**v));
        let mut inputs: BTreeSet<ValueId> = maps.flat_map(|&v| self.outside_buffers(v)).collect();
        inputs.retain(|v| !outputs.contains(v));
        let mut k = KernelBuilder::new(name);
        self.begin(&mut k, &inputs, &outputs);
        let parts = self.parts_of(&mut k, &reduces, cut, BufferRole::In);
        let kept = self.kept.clone();
        let point = |s: &mut Self, k: &mut KernelBuilder, vars: &Vars| {
            s.load_reduced(k, vars, &inputs);
            for (&r, &b) in reduces.iter().zip(&parts) {
                let x = s.combine_parts(k, vars, r, b, cut);
                s.reduced_values.insert(r, x);
            }
            s.reduced_members(k, vars, stage + 1);
        };
        match kept.split_last() {
            None => point(self, &mut k, &Vars::default()),
            Some((lane, [])) => k.parallel_vector(lane.extent, |k, j| {
                point(self, k, &Vars::default().with_loops(&kept, &[j]));
            }),
            Some((lane, outer)) => {
                let extents: Vec<usize> = outer.iter().map(|l| l.extent).collect();
                k.parallel(&extents, |k, v| {
                    let vars = Vars::default().with_loops(outer, v);
                    k.vector(lane.extent, |k, j| {
                        point(self, k, &vars.with_loops(std::slice::from_ref(lane), &[j]))
                    });
                });
            }
        }
        self.finish(k)
    }

    /// Combines the parts of a reduction for the current row.
    fn combine_parts(&mut self, k: &mut KernelBuilder, vars: &Vars, r: ValueId, parts: Buf, cut: Cut) -> Value {
        let (op, acc) = self.combine_of(r);
        let init = k.initial_value(op, acc);
        let vector = self.kept.is_empty();
        let total = k.reduce(cut.slots(), vector, &[(op, &[init])], |k, p| {
            vec![k.load(parts, self.place_of_part(vars, Affine::from(p)))]
        });
        match &self.tir.value(r).def {
            Def::Reduce { reduction, .. } => k.inline(&reduction.post, &total, &[])[0],
            _ => unreachable!("only reductions are combined"),
        }
    }

    fn finish(&mut self, k: KernelBuilder) -> Result<Scheduled, VerifyError> {
        Ok(Scheduled {
            kernel: k.finish()?,
            buffers: std::mem::take(&mut self.buffers),
        })
    }
}
