//! Describes the first difference between two modules or graphs.

use crate::graph::{Arg, Graph, GraphModule, NodeId};
use crate::tensor::Tensor;
use crate::types::Val;

/// The first difference in meaning between two modules, ignoring source locations; `None` if they are the same.
pub fn module_difference(a: &GraphModule, b: &GraphModule) -> Option<String> {
    // Unlike `==`, the debug text treats NaN as equal to itself.
    let same = |property: &str, x: String, y: String| (x != y).then(|| format!("{property}: {x} and {y}"));
    let weights = |m: &GraphModule| format!("{:?}", m.weights.as_ref().map(|w| &w.0));
    let dims = |m: &GraphModule| {
        format!(
            "{:?}",
            (
                m.dims.iter().map(|(n, d)| (n, d.min, d.max)).collect::<Vec<_>>(),
                &m.guards
            )
        )
    };
    let modules = |m: &GraphModule| {
        let list = m.modules.iter().map(|(n, d)| (n, &d.class, &d.args, &d.kwargs));
        format!("{:?}", list.collect::<Vec<_>>())
    };
    let attributes = |m: &GraphModule| {
        let list = m
            .attributes
            .iter()
            .map(|(n, a)| (n, a.kind, &a.ty, a.value.as_ref().map(element_texts)));
        format!("{:?}", list.collect::<Vec<_>>())
    };
    let graphs = |m: &GraphModule| format!("{:?}", m.graphs.keys().collect::<Vec<_>>());
    same("weights", weights(a), weights(b))
        .or_else(|| same("sizes", dims(a), dims(b)))
        .or_else(|| same("modules", modules(a), modules(b)))
        .or_else(|| same("attributes", attributes(a), attributes(b)))
        .or_else(|| same("graphs", graphs(a), graphs(b)))
        .or_else(|| {
            let pairs = a.graphs.values().zip(b.graphs.values());
            pairs.map(|(x, y)| graph_difference(x, y)).find(Option::is_some)?
        })
}

fn element_texts(t: &Tensor) -> Vec<String> {
    (0..t.numel()).map(|i| t.get(i).to_string()).collect()
}

/// The first difference in meaning between two graphs.
pub fn graph_difference(a: &Graph, b: &Graph) -> Option<String> {
    if a.len() != b.len() || a.mutations != b.mutations || a.attribute != b.attribute {
        return Some(format!(
            "{} nodes and {}, {:?} and {:?}",
            a.len(),
            b.len(),
            a.mutations,
            b.mutations
        ));
    }
    let lines = |g: &Graph| -> Vec<String> {
        let describe = |n: NodeId| {
            let node = &g[n];
            let named = |v: &Arg| v.map(|i| g[*i].name().to_string());
            let args: Vec<Val<String>> = node.args().iter().map(named).collect();
            let kwargs: Vec<_> = node.kwargs().iter().map(|(k, v)| (k, named(v))).collect();
            let users: Vec<&str> = node.users().map(|u| g[u].name()).collect();
            let m = &node.meta;
            format!(
                "{} {} {} {args:?} {kwargs:?} {users:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                node.name(),
                node.op(),
                node.target(),
                m.ty,
                g.text(n).annotation,
                m.loc,
                m.frame,
                m.modules,
                m.function,
                m.custom
            )
        };
        g.iter().map(describe).collect()
    };
    let (x, y) = (lines(a), lines(b));
    x.into_iter()
        .zip(y)
        .find(|(x, y)| x != y)
        .map(|(x, y)| format!("{x}\n{y}"))
}
