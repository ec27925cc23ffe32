//! Dead code elimination and topological sorting, on graphs at any level.

use crate::graph::{EditResult, Graph, GraphError, GraphModule, NodeId, Opcode, is_impure};
use std::collections::{BTreeSet, HashMap};

impl Graph {
    /// Erases unused nodes without side effects, and returns how many (torch's `eliminate_dead_code`, except that here
    /// in-place calls, `out=` and random numbers are side effects).
    pub fn eliminate_dead_code(&mut self, module: Option<&GraphModule>) -> usize {
        self.eliminate_dead_code_with(|g, n| is_impure(g, n, module))
    }

    /// [`Graph::eliminate_dead_code`] with a caller-defined predicate for side effects (torch's `is_impure_node`).
    /// Placeholders and the output are always kept.
    pub fn eliminate_dead_code_with(&mut self, impure: impl Fn(&Graph, NodeId) -> bool) -> usize {
        let mut erased = 0;
        for n in self.ids().into_iter().rev() {
            let fixed = matches!(self[n].op(), Opcode::Placeholder | Opcode::Output);
            if !fixed && self[n].users().len() == 0 && !impure(self, n) {
                erased += self.erase_node(n).is_ok() as usize;
            }
        }
        erased
    }

    /// Sorts the nodes so that definitions precede uses. The sort is stable: nodes keep their order wherever possible
    /// (torch's `stable_topological_sort`, `legalize_graph`). Placeholders come first, the output last.
    ///
    /// The order of nodes with side effects is not considered, so a graph with in-place writes must be in order
    /// already.
    ///
    /// # Errors
    /// A node depends on itself; the error has torch's text, and the graph is unchanged.
    pub fn topological_sort(&mut self) -> EditResult<()> {
        let order = self.ids();
        let rank = |n: NodeId, i: usize| match self[n].op() {
            Opcode::Placeholder => (0, i),
            Opcode::Output => (2, i),
            _ => (1, i),
        };
        let place: HashMap<NodeId, (u8, usize)> = order.iter().enumerate().map(|(i, &n)| (n, rank(n, i))).collect();
        let mut waits: HashMap<NodeId, usize> = order.iter().map(|&n| (n, self[n].inputs().len())).collect();
        let mut ready: BTreeSet<((u8, usize), NodeId)> = order
            .iter()
            .filter(|n| waits[n] == 0)
            .map(|&n| (place[&n], n))
            .collect();
        let mut sorted = vec![];
        while let Some((_, n)) = ready.pop_first() {
            sorted.push(n);
            for u in self[n].users() {
                let Some(w) = waits.get_mut(&u) else { continue };
                *w -= 1;
                if *w == 0 {
                    ready.insert((place[&u], u));
                }
            }
        }
        if sorted.len() < order.len() {
            let stuck = order.iter().filter(|n| waits[n] > 0);
            return Err(cycle_error(stuck.map(|&n| self[n].name())));
        }
        if sorted != order {
            for n in sorted {
                if let Some(last) = self.last() {
                    self.move_after(n, last);
                }
            }
        }
        Ok(())
    }
}

/// torch's error for nodes that are part of a cycle or depend on one.
fn cycle_error<'a>(names: impl Iterator<Item = &'a str>) -> GraphError {
    let names: Vec<&str> = names.collect();
    GraphError(format!("Input graph has cycles, unable to add [{}]", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Val;

    #[test]
    fn dead_code_goes_and_effects_stay() {
        let mut g = Graph::trace(&["x", "unused"], |t, p| {
            let dead = p[0].method("exp", ());
            t.function("torch.relu", (&dead,), &[]);
            p[0].method("add_", (1,));
            t.function("torch.rand", (2,), &[]);
            &p[0] + 1
        });
        assert_eq!(g.eliminate_dead_code(None), 2);
        let names: Vec<&str> = g.iter().map(|n| g[n].name()).collect();
        assert_eq!(names, ["x", "unused", "add_", "rand", "add", "output"]);
        assert_eq!(g.eliminate_dead_code_with(|_, _| false), 2);
    }

    #[test]
    fn order_is_kept_where_it_can_be() {
        let mut g = Graph::trace(&["x"], |_, p| {
            let a = p[0].method("exp", ());
            let b = p[0].method("sin", ());
            (&a + &b, p[0].method("cos", ()))
        });
        let (exp, add) = (g.find("exp").unwrap(), g.find("add").unwrap());
        g.move_before(add, exp);
        g.topological_sort().unwrap();
        let names: Vec<&str> = g.iter().map(|n| g[n].name()).collect();
        assert_eq!(names, ["x", "exp", "sin", "add", "cos", "output"]);
        let sin = g.find("sin").unwrap();
        g.set_args(sin, vec![Val::Leaf(add)]);
        let e = g.topological_sort().unwrap_err();
        assert_eq!(e.0, "Input graph has cycles, unable to add [sin, add, output]");
    }
}
