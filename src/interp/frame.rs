//! The values of one graph while it runs.

use super::cell::TensorCell;
use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, NodeId};
use crate::infer::{self, literal_value};
use crate::op::sharing::takes_shared;
use crate::op::{Call, OpResult};
use crate::types::Val;
use cranelift_entity::SecondaryMap;

/// The execution of one graph.
pub(super) struct GraphFrame<'g> {
    pub(super) name: &'g str,
    pub(super) graph: &'g Graph,
    pub(super) env: SecondaryMap<NodeId, Option<Val<TensorCell>>>,
    pub(super) inputs: std::vec::IntoIter<Val<TensorCell>>,
}

impl GraphFrame<'_> {
    /// The value of an argument of node `n`.
    pub(super) fn fetch_arg(&self, n: NodeId, arg: &Arg) -> Result<Val<TensorCell>, Diagnostic> {
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
            Ok(v.map(TensorCell::fresh))
        })
    }

    pub(super) fn eval_placeholder(&mut self, n: NodeId) -> Result<Val<TensorCell>, Diagnostic> {
        let node = &self.graph[n];
        if node.target().starts_with('*') {
            return Ok(Val::List(self.inputs.by_ref().collect()));
        }
        if let Some(v) = self.inputs.next() {
            return Ok(v);
        }
        node.args().first().and_then(literal_value).ok_or_else(|| {
            let title = format!(
                "Expected positional argument for parameter {}, but one was not passed in!",
                node.target()
            );
            Diagnostic::new(Code::E0501, title).at_opt(node.meta.span, "declared here")
        })
    }

    /// Writes the result of an in-place call to its first argument, and returns that.
    pub(super) fn store_in_place(
        &mut self,
        call: &Call<TensorCell>,
        result: Val<TensorCell>,
    ) -> OpResult<Val<TensorCell>> {
        let (Some(Val::Leaf(target)), Val::Leaf(_)) = (call.args.first(), &result) else {
            return Ok(result);
        };
        // `x.unsqueeze_(0)` writes no element: from here on `x` itself has another shape.
        if matches!(call.op.meaning, crate::op::Meaning::View(_)) && call.op.aliases {
            let Val::Leaf(new) = &result else { return Ok(result) };
            let renewed = Val::Leaf(target.with_value(new));
            // Results of earlier in-place calls on `x` are the same Python object.
            for n in self.graph.iter() {
                if matches!(&self.env[n], Some(Val::Leaf(c)) if c.is_same(target)) {
                    self.env[n] = Some(renewed.clone());
                }
            }
            return Ok(renewed);
        }
        let types = call.map(TensorCell::ty);
        infer::inplace_type(&types, result.map(TensorCell::ty))?;
        store_result(target, result, takes_shared(&types, &target.layout()))
    }
}

/// Writes a result to `target`, converted to its dtype, and returns the target.
pub(super) fn write_result(target: &TensorCell, result: Val<TensorCell>) -> OpResult<Val<TensorCell>> {
    infer::stored_type(&target.ty(), result.map(TensorCell::ty))?;
    store_result(target, result, false)
}

/// Writes a result that `target` can hold. For `shared` see [`TensorCell::write`].
fn store_result(target: &TensorCell, result: Val<TensorCell>, shared: bool) -> OpResult<Val<TensorCell>> {
    let Val::Leaf(new) = &result else { return Ok(result) };
    let value = new.tensor().to(target.tensor().dtype());
    target.write(&value, shared).map(Val::Leaf)
}
