//! The values of one graph while it runs.

use super::cell::Cell;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, NodeId};
use crate::infer::{self, literal};
use crate::op::sharing::takes_shared;
use crate::op::{Call, OpResult};
use crate::types::Val;
use cranelift_entity::SecondaryMap;

/// One graph being run.
pub(super) struct Frame<'g> {
    pub(super) name: &'g str,
    pub(super) graph: &'g Graph,
    pub(super) env: SecondaryMap<NodeId, Option<Val<Cell>>>,
    pub(super) inputs: std::vec::IntoIter<Val<Cell>>,
}

impl Frame<'_> {
    /// The value of an argument of node `n`.
    pub(super) fn fetch(&self, n: NodeId, arg: &Arg) -> Result<Val<Cell>, Diagnostic> {
        arg.try_map(&mut |&i| {
            let v = self.env[i].as_ref().ok_or_else(|| {
                Diagnostic::new(
                    Code::E0102,
                    format!(
                        "`%{}` uses `%{}` before it is defined",
                        self.graph[n].name(),
                        self.graph[i].name()
                    ),
                )
                .at_opt(self.graph[n].meta.span, "")
            })?;
            Ok(v.map(Cell::fresh))
        })
    }

    pub(super) fn placeholder(&mut self, n: NodeId) -> Result<Val<Cell>, Diagnostic> {
        let node = &self.graph[n];
        if node.target().starts_with('*') {
            return Ok(Val::List(self.inputs.by_ref().collect()));
        }
        if let Some(v) = self.inputs.next() {
            return Ok(v);
        }
        node.args().first().and_then(literal).ok_or_else(|| {
            let title = format!(
                "Expected positional argument for parameter {}, but one was not passed in!",
                node.target()
            );
            Diagnostic::new(Code::E0501, title).at_opt(node.meta.span, "declared here")
        })
    }

    /// Writes the result of an in-place call to its first argument, and gives that.
    pub(super) fn store(&mut self, call: &Call<Cell>, result: Val<Cell>) -> OpResult<Val<Cell>> {
        let (Some(Val::Leaf(target)), Val::Leaf(_)) = (call.args.first(), &result) else {
            return Ok(result);
        };
        // `x.unsqueeze_(0)` writes no element: `x` itself has another shape from here on.
        if matches!(call.op.meaning, crate::op::Meaning::View(_)) && call.op.aliases {
            let Val::Leaf(new) = &result else { return Ok(result) };
            let renewed = Val::Leaf(target.renewed(new));
            // Results of earlier in-place calls are the same Python object.
            for n in self.graph.iter() {
                if matches!(&self.env[n], Some(Val::Leaf(c)) if c.is_same(target)) {
                    self.env[n] = Some(renewed.clone());
                }
            }
            return Ok(renewed);
        }
        let types = call.map(Cell::ty);
        infer::inplace_type(&types, result.map(Cell::ty))?;
        store(target, result, takes_shared(&types, &target.layout()))
    }
}

/// Writes a result to `target`, converted to its dtype, and gives the target.
pub(super) fn write(target: &Cell, result: Val<Cell>) -> OpResult<Val<Cell>> {
    infer::stored_type(&target.ty(), result.map(Cell::ty))?;
    store(target, result, false)
}

/// Writes a result that `target` can hold. `shared`: see [`Cell::write`].
fn store(target: &Cell, result: Val<Cell>, shared: bool) -> OpResult<Val<Cell>> {
    let Val::Leaf(new) = &result else { return Ok(result) };
    let value = new.tensor().to(target.tensor().dtype());
    target.write(&value, shared).map(Val::Leaf)
}
