//! The loop nests over a row of a cluster: stores and reductions.

use super::blocks::identity_inits;
use super::emit::reduce_op;
use super::vars::Vars;
use super::{LoopDim, Scheduler};
use crate::kernel::{KernelBuilder, ReduceOp, Value, Var};
use crate::lower::ir::{Def, ValueId};
use rustc_hash::FxHashMap;

impl Scheduler<'_> {
    pub(super) fn stage_loop(&mut self, k: &mut KernelBuilder, vars: &Vars, stage: usize) {
        let (reduces, stores) = self.stage_roots(stage);
        if reduces.is_empty() && stores.is_empty() {
            return;
        }
        let row = self.row.clone();
        if reduces.is_empty() {
            self.store_nest(k, vars, &row, stage, &stores);
            return;
        }
        let inits: Vec<(ReduceOp, Value)> = reduces
            .iter()
            .map(|&r| {
                let Def::Reduce { reduction, .. } = &self.tir.value(r).def else {
                    unreachable!("filtered")
                };
                let op = reduce_op(reduction.combine);
                (op, k.initial_value(op, reduction.acc))
            })
            .collect();
        let accs = self.reduce_nest(k, vars, &row, &inits, stage, &reduces, &stores);
        for (&r, acc) in reduces.iter().zip(accs) {
            let Def::Reduce { reduction, .. } = &self.tir.value(r).def else {
                unreachable!("filtered")
            };
            let v = k.inline(&reduction.post, &[acc], &[])[0];
            self.reduced_values.insert(r, v);
        }
    }

    pub(in crate::lower) fn store_nest(
        &mut self,
        k: &mut KernelBuilder,
        vars: &Vars,
        row: &[LoopDim],
        stage: usize,
        stores: &[ValueId],
    ) {
        let Some((first, rest)) = row.split_first() else {
            self.emit_full_members(k, vars, stage, stores, stores);
            return;
        };
        let vector = rest.is_empty() && !self.columns;
        let mut body = |k: &mut KernelBuilder, v: Var| {
            let vars = vars.with_loops(std::slice::from_ref(first), &[v]);
            self.store_nest(k, &vars, rest, stage, stores);
        };
        if vector {
            k.vector(first.extent, &mut body)
        } else {
            k.serial(first.extent, &mut body)
        }
    }

    pub(in crate::lower) fn reduce_nest(
        &mut self,
        k: &mut KernelBuilder,
        vars: &Vars,
        row: &[LoopDim],
        inits: &[(ReduceOp, Value)],
        stage: usize,
        reduces: &[ValueId],
        stores: &[ValueId],
    ) -> Vec<Value> {
        let (first, rest) = row.split_first().expect("a cluster with reductions has a row");
        if let Some(len) = self.block_len(k, row, inits) {
            return self.reduce_blocks(k, vars, row, len, inits, stage, reduces, stores);
        }
        let reductions: Vec<(ReduceOp, [Value; 1])> = inits.iter().map(|&(op, v)| (op, [v])).collect();
        let reductions: Vec<(ReduceOp, &[Value])> = reductions.iter().map(|(op, v)| (*op, &v[..])).collect();
        let vector = rest.is_empty() && !self.columns;
        k.reduce(first.extent, vector, &reductions, |k, v| {
            let vars = vars.with_loops(std::slice::from_ref(first), &[v]);
            if rest.is_empty() {
                return self.reduce_values(k, &vars, stage, reduces, stores);
            }
            // The outer loop adds the initial values. Inner loops would add them again in every iteration.
            let inner = identity_inits(k, inits);
            self.reduce_nest(k, &vars, rest, &inner, stage, reduces, stores)
        })
    }

    /// The values that one point of the row contributes to the reductions.
    fn reduce_values(
        &mut self,
        k: &mut KernelBuilder,
        vars: &Vars,
        stage: usize,
        reduces: &[ValueId],
        stores: &[ValueId],
    ) -> Vec<Value> {
        let roots = self.loop_roots(reduces, stores);
        let known = self.emit_full_members(k, vars, stage, &roots, stores);
        reduces
            .iter()
            .map(|&r| {
                let Def::Reduce { reduction, .. } = &self.tir.value(r).def else {
                    unreachable!("filtered")
                };
                k.at_node(&self.tir.value(r).name);
                let source = self.sources[&r][0].clone();
                let x = self.operand(k, vars, &source, &known);
                k.inline(&reduction.pre, &[x], &[])[0]
            })
            .collect()
    }

    /// Computes full members at one point: `roots` and their operands. Stores `stores`, and keeps what later stages
    /// need.
    pub(super) fn emit_full_members(
        &mut self,
        k: &mut KernelBuilder,
        vars: &Vars,
        stage: usize,
        roots: &[ValueId],
        stores: &[ValueId],
    ) -> FxHashMap<ValueId, Value> {
        let mut known: FxHashMap<ValueId, Value> = FxHashMap::default();
        for v in self.needed_members(roots, stage) {
            let earlier = self.stage[&v] < stage;
            let value = if earlier && self.is_stored(v) {
                let (buffer, index) = self.place_of(v, vars);
                k.load(buffer, index)
            } else if earlier && self.locals.contains_key(&v) {
                let index = self.row_index(vars);
                k.load(self.locals[&v], index)
            } else {
                self.emit_pointwise(k, vars, v, &known)
            };
            known.insert(v, value);
            if !earlier {
                if stores.contains(&v) {
                    self.store(k, vars, v, value);
                }
                if let Some(&row) = self.locals.get(&v) {
                    let index = self.row_index(vars);
                    k.store(row, index, value);
                }
            }
        }
        known
    }
}
