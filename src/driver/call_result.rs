//! Results of calls: the model's result, and the new values of buffers and inputs.

use super::inputs::bind::Value;
use crate::graph::{GraphModule, Mutation};
use crate::tensor::Tensor;
use crate::types::Val;

/// The result of a call.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// The model's result.
    pub result: Value,
    /// The buffers and inputs that the call mutated, with their new values.
    pub written: Vec<(Mutation, Tensor)>,
}

impl CallResult {
    /// The result in memory that outlives the inputs and is not shared with the model. Executables guarantee this;
    /// the interpreter does not.
    pub(super) fn detach(self, is_compiled: bool) -> CallResult {
        let written = self.written.into_iter().map(|(m, t)| (m, t.detach()));
        CallResult {
            result: self.result.map(|t| match is_compiled {
                true => t.clone().detach(),
                false => t.deep_copy(),
            }),
            written: written.collect(),
        }
    }
}

/// Whether the graph, as it was read, writes its result as a tuple.
pub(super) fn returns_tuple(module: &GraphModule) -> bool {
    let output = module.entry().and_then(|g| Some(&g[g.output()?]));
    output.is_some_and(|o| matches!(o.args().first(), Some(Val::Tuple(_))))
}

/// Splits the results into the leading new values of buffers and inputs, and the model's result: a tuple, or a single
/// value.
pub(super) fn split_results(module: &GraphModule, result: Value, is_tuple: bool) -> CallResult {
    let mutations = module.entry().map_or(&[][..], |g| &g.mutations);
    match result {
        Val::Tuple(mut items) if !mutations.is_empty() && items.len() >= mutations.len() => {
            let mut rest = items.split_off(mutations.len());
            let tensors = items.into_iter().zip(mutations);
            let written = tensors.filter_map(|(v, m)| match v {
                Val::Leaf(t) => Some((m.clone(), t)),
                _ => None,
            });
            let single = if is_tuple || rest.len() != 1 { None } else { rest.pop() };
            CallResult {
                written: written.collect(),
                result: single.unwrap_or(Val::Tuple(rest)),
            }
        }
        result => CallResult {
            result,
            written: vec![],
        },
    }
}
