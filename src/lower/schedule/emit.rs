//! Emits the loops of a scheduled cluster, stage by stage, with a [`KernelBuilder`].

use super::vars::Vars;
use super::{OperandSource, Scheduler, Stored};
use crate::kernel::{Affine, Buf, BufferRole, KernelBuilder, ReduceOp, Value};
use crate::lower::fuse::cluster::{Along, Level};
use crate::lower::ir::{Def, ValueId};
use crate::op::{Combine, SoftmaxPart};
use crate::scalar::{Binary, ScalarExpr, ScalarNode, ScalarOp, Unary};
use crate::tensor::Scalar;
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The size limit of local rows. Values of larger rows are recomputed instead.
const MAX_LOCAL_BYTES: usize = 256 << 10;

pub(in crate::lower) fn is_expensive(e: &ScalarExpr) -> bool {
    e.nodes().any(|(_, n, _)| match n {
        ScalarNode::Op(ScalarOp::Unary(op, _)) => !matches!(
            op,
            Unary::Neg
                | Unary::Abs
                | Unary::Not
                | Unary::BitNot
                | Unary::Sqrt
                | Unary::Floor
                | Unary::Ceil
                | Unary::Round
                | Unary::Trunc
                | Unary::Sign
                | Unary::IsNan
                | Unary::IsInf
                | Unary::SignBit
        ),
        ScalarNode::Op(ScalarOp::Binary(Binary::Pow | Binary::Atan2, ..)) => true,
        _ => false,
    })
}

pub(in crate::lower) fn reduce_op(c: Combine) -> ReduceOp {
    match c {
        Combine::Sum => ReduceOp::Add,
        Combine::Prod => ReduceOp::Mul,
        Combine::Max => ReduceOp::Max,
        Combine::Min => ReduceOp::Min,
        Combine::Any => ReduceOp::Or,
        Combine::All => ReduceOp::And,
    }
}

/// Code emission.
impl Scheduler<'_> {
    pub(in crate::lower) fn declare(&mut self, k: &mut KernelBuilder) {
        self.declare_params(k);
        self.declare_locals(k);
    }

    /// Declares the values that the kernel loads or stores.
    pub(super) fn declare_params(&mut self, k: &mut KernelBuilder) {
        let mut inputs = BTreeSet::new();
        for sources in self.sources.values() {
            inputs.extend(sources.iter().filter_map(|s| match s {
                OperandSource::Load(base, ..) => Some(*base),
                _ => None,
            }));
        }
        let outputs = self.stored_members();
        let mut names: BTreeSet<Cow<'_, str>> = BTreeSet::new();
        let all = inputs
            .iter()
            .map(|&v| (v, BufferRole::In))
            .chain(outputs.iter().map(|&v| (v, BufferRole::Out)));
        for (v, role) in all.collect::<Vec<_>>() {
            let def = self.tir.value(v);
            let mut name = Cow::Borrowed(&*def.name);
            if !names.insert(name.clone()) {
                name = format!("{name}_{}", v.0).into();
                names.insert(name.clone());
            }
            let b = k.buffer(&name, def.dtype, &def.shape, role);
            self.bufs.insert(v, b);
            self.buffers.push(Stored::Value(v));
        }
    }

    /// The name of the scratch row of a value.
    pub(super) fn row_name(&self, v: ValueId) -> String {
        format!("{}_row{}", self.tir.value(v).name, v.0)
    }

    /// Declares scratch rows for expensive full values that a later stage needs.
    fn declare_locals(&mut self, k: &mut KernelBuilder) {
        let mut shape: Vec<usize> = self.row.iter().map(|l| l.extent).collect();
        if self.columns && self.block.is_none() || self.row.is_empty() {
            return;
        }
        shape.extend(self.block.as_ref().map(|b| b.lanes));
        let numel: usize = shape.iter().product();
        let last = self.stage.values().copied().max().unwrap_or(0);
        for stage in 0..=last {
            // Only values that the loop of their own stage computes can be kept for later stages.
            let (reduces, stores) = self.stage_roots(stage);
            let roots = self.loop_roots(&reduces, &stores);
            for v in self.needed_members(&roots, stage) {
                let Def::Pointwise { expr, .. } = &self.tir.value(v).def else {
                    continue;
                };
                let def = self.tir.value(v);
                if self.stage[&v] == stage
                    && !self.is_stored(v)
                    && is_expensive(expr)
                    && self.used_in_later_stage(v)
                    && numel.saturating_mul(def.dtype.size()) <= MAX_LOCAL_BYTES
                {
                    let b = k.local(&self.row_name(v), def.dtype, &shape);
                    self.locals.insert(v, b);
                }
            }
        }
    }

    /// The reductions that the loop of `stage` computes, and the full values that it stores.
    pub(in crate::lower) fn stage_roots(&self, stage: usize) -> (Vec<ValueId>, Vec<ValueId>) {
        let members = &self.cluster.members;
        let reduces = members
            .iter()
            .map(|m| m.value)
            .filter(|&v| self.is_reduce(v) && self.stage[&v] == stage + 1);
        let stores = members
            .iter()
            .filter(|m| m.level == Level::Full && self.stage[&m.value] == stage && self.is_stored(m.value))
            .map(|m| m.value);
        (reduces.collect(), stores.collect())
    }

    /// The full members that a loop must compute for these reductions and stores.
    pub(in crate::lower) fn loop_roots(&self, reduces: &[ValueId], stores: &[ValueId]) -> Vec<ValueId> {
        let operands = reduces.iter().filter_map(|r| match self.sources[r][0] {
            OperandSource::Member(v) => Some(v),
            _ => None,
        });
        stores.iter().copied().chain(operands).collect()
    }

    pub(in crate::lower) fn used_in_later_stage(&self, v: ValueId) -> bool {
        self.sources.iter().any(|(u, s)| {
            let loop_of_user = self.stage[u] - self.is_reduce(*u) as usize;
            loop_of_user > self.stage[&v] && s.iter().any(|s| matches!(s, OperandSource::Member(m) if *m == v))
        })
    }

    pub(in crate::lower) fn emit_body(&mut self, k: &mut KernelBuilder) {
        if let Some(t) = self.tiling() {
            return self.emit_tiles(k, &t);
        }
        if let Some(inner) = self.short_last_dim() {
            return self.emit_unrolled(k, inner);
        }
        let kept_loops = self.kept.clone();
        let extents: Vec<usize> = kept_loops.iter().map(|l| l.extent).collect();
        // In maps and columns the vector loop is the last kept dim.
        let vector_kept = self.row.is_empty() || self.columns;
        if vector_kept && self.emit_long_rows(k) {
            return;
        }
        match extents.len() {
            0 => self.emit_point(k, Vars::default()),
            1 if vector_kept => k.parallel_vector(extents[0], |k, v| {
                self.emit_point(k, Vars::default().with_loops(&kept_loops, &[v]));
            }),
            n if vector_kept => k.parallel(&extents[..n - 1], |k, v| {
                let outer = Vars::default().with_loops(&kept_loops[..n - 1], v);
                k.vector(extents[n - 1], |k, v| {
                    self.emit_point(k, outer.with_loops(&kept_loops[n - 1..], &[v]));
                });
            }),
            _ => k.parallel(&extents, |k, v| {
                self.emit_point(k, Vars::default().with_loops(&kept_loops, v));
            }),
        }
    }

    /// The members that have buffers, in value order.
    fn stored_members(&self) -> Vec<ValueId> {
        let members = self.cluster.members.iter().map(|m| m.value);
        members.filter(|&v| self.is_stored(v)).collect()
    }

    /// Emits all stages for one point of the kept dims.
    pub(super) fn emit_point(&mut self, k: &mut KernelBuilder, vars: Vars) {
        self.reduced_values.clear();
        if self.row.is_empty() {
            let roots = self.stored_members();
            self.emit_full_members(k, &vars, 0, &roots, &roots);
            return;
        }
        let last = self.stage.values().copied().max().unwrap_or(0);
        for stage in 0..=last {
            self.reduced_members(k, &vars, stage);
            self.stage_loop(k, &vars, stage);
        }
    }

    /// Emits the pointwise members of reduced values that are ready before the loop of `stage`, and the stores of all
    /// reduced members.
    pub(in crate::lower) fn reduced_members(&mut self, k: &mut KernelBuilder, vars: &Vars, stage: usize) {
        let ready: Vec<ValueId> = self
            .cluster
            .members
            .iter()
            .filter(|m| m.level == Level::Reduced && self.stage[&m.value] == stage)
            .map(|m| m.value)
            .collect();
        for v in ready {
            if !self.is_reduce(v) {
                let value = self.emit_pointwise(k, vars, v, &FxHashMap::default());
                self.reduced_values.insert(v, value);
            }
            if self.is_stored(v) {
                self.store(k, vars, v, self.reduced_values[&v]);
            }
        }
    }

    /// The full members that `roots` need in the loop of `stage`, in order.
    pub(in crate::lower) fn needed_members(&self, roots: &[ValueId], stage: usize) -> BTreeSet<ValueId> {
        let mut needed = BTreeSet::new();
        let mut todo: Vec<ValueId> = roots.to_vec();
        while let Some(v) = todo.pop() {
            let full = self.cluster.member(v).is_some_and(|m| m.level == Level::Full);
            if !full || !needed.insert(v) {
                continue;
            }
            let at_hand = self.stage[&v] < stage && (self.is_stored(v) || self.locals.contains_key(&v));
            if !at_hand {
                todo.extend(self.sources[&v].iter().filter_map(|s| match s {
                    OperandSource::Member(m) => Some(*m),
                    _ => None,
                }));
            }
        }
        needed
    }

    /// The index into a scratch row.
    pub(super) fn row_index(&self, vars: &Vars) -> Affine {
        let shape: Vec<usize> = self.row.iter().map(|l| l.extent).collect();
        let strides = crate::tensor::contiguous_strides(&shape);
        let terms = self.row.iter().zip(strides).map(|(l, s)| vars.dim(l.last) * s as i64);
        self.in_lane(terms.fold(Affine::from(0), |a, t| a + t))
    }

    pub(super) fn emit_pointwise(
        &self,
        k: &mut KernelBuilder,
        vars: &Vars,
        v: ValueId,
        known: &FxHashMap<ValueId, Value>,
    ) -> Value {
        let Def::Pointwise { expr, .. } = &self.tir.value(v).def else {
            unreachable!("reductions come from loops")
        };
        k.at_node(&self.tir.value(v).name);
        let args: Vec<Value> = self.sources[&v]
            .iter()
            .map(|s| self.operand(k, vars, s, known))
            .collect();
        if self.multiplies_by_inverse(v) {
            let one = k.constant(Scalar::F32(1.0));
            let inverse = k.binary(Binary::Div, one, args[1]);
            return k.binary(Binary::Mul, args[0], inverse);
        }
        let along = &self.cluster.member(v).expect("a member").along;
        let value = k.inline(expr, &args, &index_of(vars, along))[0];
        if self.tir.softmax.get(&v) == Some(&SoftmaxPart::Exponential) {
            k.mark_share(value);
        }
        value
    }

    pub(super) fn operand(
        &self,
        k: &mut KernelBuilder,
        vars: &Vars,
        s: &OperandSource,
        known: &FxHashMap<ValueId, Value>,
    ) -> Value {
        match s {
            OperandSource::Number(x) => k.constant(*x),
            OperandSource::Member(v) => known
                .get(v)
                .or_else(|| self.reduced_values.get(v))
                .copied()
                .expect("computed before"),
            OperandSource::Load(base, offset, strides) => match self.copy_of(s, vars) {
                Some((copy, index)) => k.load(copy, index),
                None => k.load(self.bufs[base], vars.index(*offset, strides)),
            },
            OperandSource::Inline(v, along) => {
                let Def::Pointwise { expr, .. } = &self.tir.value(*v).def else {
                    unreachable!("see is_inlined")
                };
                k.inline(expr, &[], &index_of(vars, along))[0]
            }
        }
    }

    pub(super) fn store(&self, k: &mut KernelBuilder, vars: &Vars, v: ValueId, value: Value) {
        let (buffer, index) = self.place_of(v, vars);
        k.store(buffer, index, value);
    }

    /// The copy of an operand in scratch memory, and the place of the current point in it.
    fn copy_of(&self, s: &OperandSource, vars: &Vars) -> Option<(Buf, Affine)> {
        self.tile.find(s).or_else(|| self.columns_of_operand(s, vars))
    }
}

/// The index along each dim of a value, starting with its last dim.
fn index_of(vars: &Vars, along: &Along) -> Vec<Affine> {
    along
        .iter()
        .rev()
        .map(|d| d.map_or(Affine::from(0), |d| vars.dim(d)))
        .collect()
}
