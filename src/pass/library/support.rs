//! What a backend supports: torch's `OperatorSupport`, `OpSupports`, `chain` and `any_chain`, for a
//! [`Partitioner`](super::partition::Partitioner).

use crate::graph::{Arg, Graph, NodeId};
use crate::types::{DType, Val};
use std::collections::{HashMap, HashSet};

/// Whether a node is supported.
pub type Supports<'a> = Box<dyn Fn(&Graph, NodeId) -> bool + 'a>;

/// The dtypes that an argument may have; `None` for any.
pub type Allowed = Option<Vec<DType>>;

/// The dtypes that a target's arguments may have.
#[derive(Clone, Debug, Default)]
pub struct DTypes {
    /// By position. Further arguments are not checked.
    pub args: Vec<Allowed>,
    /// By name. Other arguments are not checked.
    pub kwargs: HashMap<String, Vec<DType>>,
}

/// Supports the targets of `table`, with any dtypes (`None`) or the given ones. Nodes that are not calls are supported.
pub fn targets<'a>(table: HashMap<String, Option<DTypes>>) -> Supports<'a> {
    Box::new(move |graph, n| {
        let node = &graph[n];
        if !node.op().is_call() {
            return true;
        }
        match table.get(node.target()) {
            None => false,
            Some(None) => true,
            Some(Some(types)) => {
                let args = types.args.iter().zip(node.args());
                let fits = |arg: &Arg, allowed: &[DType]| match arg {
                    Val::Leaf(i) => node_dtype(graph, *i).is_some_and(|d| allowed.contains(&d)),
                    _ => true,
                };
                let by_name = |(name, allowed): (&String, &Vec<DType>)| match node.kwarg(name) {
                    Some(a) => fits(a, allowed),
                    None => true,
                };
                args.into_iter()
                    .all(|(allowed, a)| allowed.as_ref().is_none_or(|list| fits(a, list)))
                    && types.kwargs.iter().all(by_name)
            }
        }
    })
}

/// Supports nodes without an input of this dtype.
pub fn decline_if_input_dtype<'a>(unwanted: DType) -> Supports<'a> {
    Box::new(move |graph, n| {
        graph[n]
            .inputs()
            .iter()
            .all(|&i| node_dtype(graph, i) != Some(unwanted))
    })
}

/// Supports nodes with names other than these.
pub fn decline_if_node_in_names<'a>(names: HashSet<String>) -> Supports<'a> {
    Box::new(move |graph, n| !names.contains(graph[n].name()))
}

/// Supports nodes that all of `list` support.
pub fn chain<'a>(list: Vec<Supports<'a>>) -> Supports<'a> {
    Box::new(move |graph, n| list.iter().all(|s| s(graph, n)))
}

/// Supports nodes that any of `list` supports.
pub fn any_chain<'a>(list: Vec<Supports<'a>>) -> Supports<'a> {
    Box::new(move |graph, n| list.iter().any(|s| s(graph, n)))
}

fn node_dtype(graph: &Graph, n: NodeId) -> Option<DType> {
    Some(graph[n].meta.ty.as_ref()?.as_leaf()?.dtype)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::GraphModule;
    use crate::infer::{InferOptions, infer};
    use crate::types::TensorType;

    #[test]
    fn tables_dtypes_and_names_decide() {
        let g = Graph::trace(&["x", "i"], |_, p| {
            let a = &p[0] + 1;
            let b = &p[1] + 1;
            (a.method("exp", ()), b)
        });
        let mut m = GraphModule::new("g", g);
        let ty = |d| Val::Leaf(TensorType::with_fixed_shape(d, &[2]));
        let inputs = vec![ty(DType::F32), ty(DType::I64)];
        assert!(infer(&mut m, &InferOptions { inputs }).is_empty());
        let g = m.entry().unwrap();
        let names = |s: Supports<'_>| -> Vec<&str> {
            let calls = g.iter().filter(|&n| g[n].op().is_call() && s(g, n));
            calls.map(|n| g[n].name()).collect()
        };
        let floats = || DTypes {
            args: vec![Some(vec![DType::F32])],
            ..DTypes::default()
        };
        let table = |t: Option<DTypes>| targets(HashMap::from([("operator.add".into(), t)]));
        assert_eq!(names(table(None)), ["add", "add_1"]);
        assert_eq!(names(table(Some(floats()))), ["add"]);
        assert_eq!(names(decline_if_input_dtype(DType::I64)), ["add", "exp"]);
        let not = || decline_if_node_in_names(HashSet::from(["add".to_string()]));
        assert_eq!(names(chain(vec![not(), decline_if_input_dtype(DType::I64)])), ["exp"]);
        assert_eq!(names(any_chain(vec![not(), table(None)])).len(), 3);
    }
}
