//! Restores the order of values after a step that appended some.

use super::{Tir, ValueId};
use crate::op::OpResult;

impl Tir {
    /// Calls `change` for each value. It may redefine the value, and append the operands of its new definition.
    pub(in crate::lower) fn redefine_values(
        &mut self,
        mut change: impl FnMut(&mut Tir, ValueId) -> OpResult<()>,
    ) -> OpResult<()> {
        let count = self.values.len();
        for v in (0..count as u32).map(ValueId) {
            change(self, v)?;
        }
        if self.values.len() > count {
            self.sort_values();
        }
        Ok(())
    }

    /// Moves values before their users.
    fn sort_values(&mut self) {
        let order = self.operands_first();
        let mut ids = vec![ValueId(0); order.len()];
        for (new, &old) in order.iter().enumerate() {
            ids[old] = ValueId(new as u32);
        }
        let calls: Vec<usize> = (0..self.calls.len()).collect();
        let mut old: Vec<_> = std::mem::take(&mut self.values).into_iter().map(Some).collect();
        self.values = order.iter().filter_map(|&i| old[i].take()).collect();
        self.values.iter_mut().for_each(|v| v.def.renumber(&ids, &calls));
        self.renumber_references(&vec![true; ids.len()], &ids);
    }

    /// The values in an order in which operands come before users, and which is otherwise as it was.
    fn operands_first(&self) -> Vec<usize> {
        let mut order = Vec::with_capacity(self.values.len());
        let mut placed = vec![false; self.values.len()];
        for root in 0..self.values.len() {
            let mut stack = vec![root];
            while let Some(&v) = stack.last() {
                let operands = self.operands(ValueId(v as u32)).into_iter();
                let before = stack.len();
                stack.extend(operands.map(|o| o.0 as usize).filter(|&o| !placed[o]));
                if stack.len() == before {
                    stack.pop();
                    if !std::mem::replace(&mut placed[v], true) {
                        order.push(v);
                    }
                }
            }
        }
        order
    }
}
