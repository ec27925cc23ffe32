//! The types that a module declares for its inputs.

use super::inputs::bind::Dims;
use crate::graph::{GraphModule, NodeId};
use crate::infer;
use crate::types::{Dim, Type, Val};

/// The types of the entry graph's inputs with symbolic sizes replaced: the types to compile for without inputs.
pub fn input_types(module: &GraphModule, dims: &Dims) -> Vec<Type> {
    let Some(graph) = module.entry() else { return vec![] };
    let types = declared_types(module, dims).into_iter();
    // An input that is not a tensor is compiled in with its default.
    let default = |p: NodeId| infer::literal_value(graph[p].args().first()?);
    let types = types.zip(graph.placeholders()).map(|(t, p)| default(p).unwrap_or(t));
    types.collect()
}

/// The declared types of the entry graph's inputs with the sizes in `dims` replaced. They hold for every call with
/// these sizes, whatever its numbers.
pub(crate) fn declared_types(module: &GraphModule, dims: &Dims) -> Vec<Type> {
    let Some(graph) = module.entry() else { return vec![] };
    let bind = |v: &str| dims.get(v).map(|&x| Dim::Const(x));
    let types = graph.placeholders().into_iter().map(|p| match &graph[p].meta.ty {
        Some(t) => t.map(|t| {
            let mut t = t.clone();
            t.shape = t.shape.map(|s| s.iter().map(|d| d.substitute(&bind)).collect());
            t
        }),
        None => Val::Unknown,
    });
    types.collect()
}
