//! Maps whose last dim is short, such as the pixels of a block or the channels of an image with channels last. A loop over it costs more
//! than its iterations, so it is unrolled, and the loop over the dim before it is the vector loop.

use super::Scheduler;
use super::emit::is_expensive;
use super::vars::Vars;
use crate::kernel::KernelBuilder;
use crate::lower::ir::{Def, ValueId};

/// The greatest extent of a last dim whose loop is unrolled, and the least extent of the dim before it.
const MAX_UNROLLED: usize = 4;
const LEAST_BEFORE_UNROLLED: usize = 16;

impl Scheduler<'_> {
    /// The extent of a map's last loop if a loop over it costs more than its few iterations.
    pub(super) fn short_last_dim(&self) -> Option<usize> {
        let [.., before, last] = &self.kept[..] else {
            return None;
        };
        let expensive =
            |v: ValueId| matches!(&self.tir.value(v).def, Def::Pointwise { expr, .. } if is_expensive(expr));
        let short = self.row.is_empty() && last.extent <= MAX_UNROLLED && before.extent >= LEAST_BEFORE_UNROLLED;
        (short && !self.cluster.members.iter().any(|m| expensive(m.value))).then_some(last.extent)
    }

    /// Emits a map whose last loop is unrolled, in a loop over the dim before it.
    pub(super) fn emit_unrolled(&mut self, k: &mut KernelBuilder, extent: usize) {
        let mut kept = self.kept.clone();
        let Some(last) = kept.pop() else { return };
        let extents: Vec<usize> = kept.iter().map(|l| l.extent).collect();
        let n = kept.len() - 1;
        let mut points = |k: &mut KernelBuilder, vars: Vars| {
            (0..extent).for_each(|i| self.emit_point(k, vars.with_offset(last.last, i)));
        };
        if n == 0 {
            return k.parallel_vector(extents[0], |k, v| points(k, Vars::default().with_loops(&kept, &[v])));
        }
        k.parallel(&extents[..n], |k, v| {
            let outer = Vars::default().with_loops(&kept[..n], v);
            k.vector(extents[n], |k, v| points(k, outer.with_loops(&kept[n..], &[v])));
        });
    }
}
