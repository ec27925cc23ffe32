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
            result: match is_compiled {
                true => self.result.map(|t| t.clone().detach()),
                false => unshared(self.result),
            },
            written: written.collect(),
        }
    }
}

/// The value with copies of the tensors that share their memory with inputs, with the model or with each other.
fn unshared(v: Value) -> Value {
    let all = |v: Vec<Value>| v.into_iter().map(unshared).collect();
    match v {
        Val::Leaf(mut t) => Val::Leaf(match t.is_unique() {
            true => t,
            false => t.deep_copy(),
        }),
        Val::List(v) => Val::List(all(v)),
        Val::Tuple(v) => Val::Tuple(all(v)),
        Val::Dict(v) => Val::Dict(v.into_iter().map(|(k, x)| (k, unshared(x))).collect()),
        other => other.map(Tensor::deep_copy),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_shared_is_copied() {
        let tensor = |x: f32| Tensor::from_slice(&[2], &[x, 1.0]);
        let (own, twice, kept) = (tensor(1.0), tensor(2.0), tensor(3.0));
        let address = |t: &Tensor| t.bytes().as_ptr() as usize;
        let before = [&own, &twice, &twice, &kept].map(address);
        let items = [own, twice.clone(), twice, kept.clone()].map(Val::Leaf);
        let result = CallResult {
            result: Val::List(items.to_vec()),
            written: vec![],
        };
        drop(items);
        let result = result.detach(false).result;
        let after: Vec<usize> = result.leaves().into_iter().map(address).collect();
        assert_eq!(after[0], before[0]);
        assert_ne!(after[1], after[2]);
        assert_ne!(after[3], before[3]);
        assert_eq!(result.leaves()[3].as_slice::<f32>(), [3.0, 1.0]);
    }
}
