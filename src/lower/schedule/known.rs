//! Kernels of clusters that have the structure of an earlier one. The layers of a network have the same clusters, so most kernels of a
//! program are copies of others with other names.

use super::{OperandSource, Scheduled, Scheduler};
use crate::kernel::{Kernel, KernelBuilder, structural_key};
use crate::lower::fuse::cluster::{Along, Level};
use crate::lower::fuse::cost::outside_reads;
use crate::lower::ir::{Def, ValueId};
use crate::op::SoftmaxPart;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The kernels of the clusters of one program so far, by the clusters' structure.
#[derive(Default)]
pub(in crate::lower) struct KnownKernels(FxHashMap<Vec<u64>, KnownKernel>);

struct KnownKernel {
    kernel: Kernel,
    /// For each value of the kernel, the number of the cluster's value whose node it was computed for.
    nodes: Vec<Option<usize>>,
    /// The numbers of the values that have scratch rows.
    rows: Vec<usize>,
}

/// The structure of a cluster as words, and its values: the members and the values that they load, in order.
pub(super) struct Structure {
    words: Vec<u64>,
    values: Vec<ValueId>,
}

impl KnownKernels {
    /// The kernel of a cluster with the structure of an earlier one.
    pub(super) fn find(&self, of: &Structure, s: &mut Scheduler<'_>, name: &str) -> Option<Scheduled> {
        let known = self.0.get(&of.words)?;
        let mut k = KernelBuilder::new(name);
        s.declare_params(&mut k);
        let rows = &known.kernel.buffers[s.buffers.len()..];
        for (&i, row) in known.rows.iter().zip(rows) {
            k.local(&s.row_name(of.values[i]), row.dtype, &row.shape);
        }
        let node = |i: usize| s.tir.value(of.values[i]).name.clone();
        let nodes: Vec<Option<Arc<str>>> = known.nodes.iter().map(|n| n.map(node)).collect();
        Some(Scheduled {
            kernel: k.finish_as(&known.kernel, nodes),
            buffers: std::mem::take(&mut s.buffers),
        })
    }

    /// Keeps a kernel for the next clusters with its structure.
    pub(super) fn keep(&mut self, of: Structure, s: &Scheduler<'_>, kernel: &Kernel) {
        // The copies of a tile are declared with the statements.
        if kernel.buffers.len() != s.buffers.len() + s.locals.len() {
            return;
        }
        let mut rows: Vec<_> = s.locals.iter().map(|(v, b)| (b.0, *v)).collect();
        rows.sort_unstable();
        let numbered = |(_, v)| of.values.binary_search(&v).ok();
        let Some(rows) = rows.into_iter().map(numbered).collect() else {
            return;
        };
        let numbers = s.numbers_by_name(&of.values);
        let number = |node: &Option<Arc<str>>| match node {
            Some(name) => numbers.get(&**name).map(|&i| Some(i)),
            None => Some(None),
        };
        let nodes: Option<Vec<Option<usize>>> = kernel.nodes.iter().map(number).collect();
        if let (Some(nodes), Entry::Vacant(place)) = (nodes, self.0.entry(of.words)) {
            let kernel = kernel.clone();
            place.insert(KnownKernel { kernel, nodes, rows });
        }
    }
}

impl Scheduled {
    /// Whether it is the only one of these kernels.
    pub(super) fn is_only_of(&self, all: &[Scheduled]) -> bool {
        let parts = |k: &Kernel| (structural_key(k), k.name.clone(), k.buffers.clone(), k.nodes.clone());
        matches!(all, [one] if parts(&one.kernel) == parts(&self.kernel) && one.buffers == self.buffers)
    }
}

impl Scheduler<'_> {
    /// For each name, the first of these values that has it.
    fn numbers_by_name(&self, values: &[ValueId]) -> FxHashMap<&str, usize> {
        let mut numbers = FxHashMap::default();
        for (i, &v) in values.iter().enumerate() {
            numbers.entry(&*self.tir.value(v).name).or_insert(i);
        }
        numbers
    }

    /// What the kernel depends on, once the sources of operands are known. Expressions are compared by their addresses: those of equal calls
    /// are shared (`ir/known.rs`).
    pub(super) fn structure(&self, flushes: bool) -> Structure {
        let members = &self.cluster.members;
        let mut values: Vec<ValueId> = members.iter().map(|m| m.value).collect();
        values.extend(self.sources.values().flatten().filter_map(|s| match s {
            OperandSource::Load(base, ..) => Some(*base),
            _ => None,
        }));
        values.sort_unstable();
        values.dedup();
        let mut words = vec![u64::from(flushes), values.len() as u64];
        let names = self.numbers_by_name(&values);
        for &v in &values {
            let d = self.tir.value(v);
            words.extend([names[&*d.name] as u64, d.dtype as u64, u64::from(self.is_stored(v))]);
            push_sizes(&d.shape, &mut words);
        }
        push_sizes(&self.cluster.space, &mut words);
        words.extend(self.cluster.reduced.iter().map(|&r| u64::from(r)));
        if self.cluster.has_reduction() {
            // Whether rows are split depends on what the kernel costs.
            let reads = outside_reads(self.tir, self.cluster).into_iter().map(|r| r.1 as u64);
            words.push(reads.fold(0, u64::saturating_add));
        }
        let number = |v: ValueId| values.binary_search(&v).map_or(u64::MAX, |i| i as u64);
        for m in members {
            words.extend([number(m.value), u64::from(m.level == Level::Full)]);
            push_along(&m.along, &mut words);
            self.push_definition(m.value, &mut words);
            let sources = &self.sources[&m.value];
            words.push(sources.len() as u64);
            sources.iter().for_each(|s| self.push_source(s, &number, &mut words));
        }
        Structure { words, values }
    }

    fn push_definition(&self, v: ValueId, words: &mut Vec<u64>) {
        words.push(match self.tir.softmax.get(&v) {
            None => 0,
            Some(SoftmaxPart::Exponential) => 1,
            Some(SoftmaxPart::Share) => 2,
        });
        match &self.tir.value(v).def {
            Def::Pointwise { expr, .. } => words.extend([0, address(expr)]),
            Def::Reduce { arg, reduction, dims } => {
                words.extend([1, address(reduction), self.tir.value(*arg).numel() as u64]);
                push_sizes(dims, words);
            }
            _ => unreachable!("only pointwise values and reductions are members"),
        }
    }

    fn push_source(&self, s: &OperandSource, number: &dyn Fn(ValueId) -> u64, words: &mut Vec<u64>) {
        match s {
            OperandSource::Number(x) => words.extend([0, x.dtype() as u64, x.bits()]),
            OperandSource::Member(v) => words.extend([1, number(*v)]),
            OperandSource::Inline(v, along) => {
                words.push(2);
                push_along(along, words);
                self.push_definition(*v, words);
            }
            OperandSource::Load(base, offset, strides) => {
                words.extend([3, number(*base), *offset as u64]);
                words.extend(strides.iter().map(|&s| s as u64));
            }
        }
    }
}

fn address<T>(shared: &Arc<T>) -> u64 {
    Arc::as_ptr(shared) as usize as u64
}

fn push_sizes(sizes: &[usize], words: &mut Vec<u64>) {
    words.push(sizes.len() as u64);
    words.extend(sizes.iter().map(|&n| n as u64));
}

fn push_along(along: &Along, words: &mut Vec<u64>) {
    words.push(along.len() as u64);
    words.extend(along.iter().map(|d| d.map_or(u64::MAX, |d| d as u64)));
}

#[cfg(test)]
mod tests {
    use super::super::schedule;
    use super::*;
    use crate::lower::fuse::{Unit, fuse};
    use crate::lower::ir::Tir;
    use crate::scalar::ScalarExpr;

    /// The number of different structures of the clusters of a text whose equal expressions are shared, and the number of kernels.
    fn structures(text: &str) -> (usize, usize) {
        let mut tir = Tir::parse(text).expect("tensor IR");
        let mut seen: Vec<Arc<ScalarExpr>> = vec![];
        for d in &mut tir.values {
            if let Def::Pointwise { expr, .. } = &mut d.def {
                match seen.iter().find(|e| *e == expr) {
                    Some(e) => *expr = e.clone(),
                    None => seen.push(expr.clone()),
                }
            }
        }
        let fusion = fuse(&tir);
        let (mut known, mut count) = (KnownKernels::default(), 0);
        for unit in fusion.units.iter().flatten() {
            if let Unit::Cluster(c) = unit {
                // Each kernel is compared with the one that is made without the others.
                let made = schedule(&tir, &fusion, c, &format!("k{count}"), false, &mut known);
                count += made.expect("kernels").len();
            }
        }
        (known.0.len(), count)
    }

    fn layers(second: &str) -> String {
        format!(
            "%x: f32[8, 40] = input 0
             %w: f32[40, 40] = input 1
             %a: f32[8, 40] = map(%x, %x) {{ exp(mul(a0, a1)) }}
             %b: f32[8, 40] = map(%a, %x) {{ add(a0, a1) }}
             %p: f32[8, 40] = matmul(%b, %w) m=8 n=40 k=40
             {second}
             return (%b, %d)"
        )
    }

    #[test]
    fn equal_clusters_have_one_structure() {
        let second = |c: &str, d: &str| layers(&format!("%c: f32[8, 40] = map({c}\n%d: f32[8, 40] = map({d}"));
        let equal = second("%p, %p) { exp(mul(a0, a1)) }", "%c, %p) { add(a0, a1) }");
        assert_eq!(structures(&equal), (1, 2));
        // Another operation, the operands in another order, or another of them.
        for (c, d) in [
            ("%p, %p) { exp(mul(a0, a1)) }", "%c, %p) { sub(a0, a1) }"),
            ("%p, %p) { exp(mul(a0, a1)) }", "%p, %c) { add(a0, a1) }"),
            ("%p, %x) { exp(mul(a0, a1)) }", "%c, %p) { add(a0, a1) }"),
        ] {
            assert_eq!(structures(&second(c, d)), (2, 2), "{c} {d}");
        }
    }
}
