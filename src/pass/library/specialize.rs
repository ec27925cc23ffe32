//! Fixes what callers would pass: an input becomes a literal, a symbolic size a number (torch's `concrete_args`).
//!
//! The input is no longer a parameter, and the size has its value in every type and argument. The other passes then
//! simplify the graph.
//!
//! ```
//! use fxc::graph::{Graph, GraphModule};
//! use fxc::types::Val;
//!
//! let graph = Graph::trace(&["x", "k"], |_, p| &p[0] * &p[1]);
//! let mut module = GraphModule::new("net", graph);
//! fxc::pass::specialize(&mut module, &[("k".into(), Val::Float(2.0))], &Default::default()).unwrap();
//! let graph = module.entry().unwrap();
//! assert_eq!(graph.placeholders().len(), 1);
//! assert_eq!(graph[graph.find("mul").unwrap()].args()[1], Val::Float(2.0));
//! ```

use crate::diag::{Code, Diagnostic};
use crate::graph::{Arg, Graph, GraphModule};
use crate::op::Literal;
use crate::pass::each_graph;
use crate::types::{Dim, Type, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// Fixes inputs of the entry graph, by name, and sizes. Afterwards the types of all nodes must be inferred again.
///
/// # Errors
/// A name that is not an input (E0505), or a size outside its declared range (E0504).
pub fn specialize(
    module: &mut GraphModule,
    inputs: &[(String, Literal)],
    sizes: &HashMap<Arc<str>, i64>,
) -> Result<usize, Diagnostic> {
    for (name, size) in sizes {
        if let Some(range) = module.dims.get(name)
            && (*size < range.min || range.max.is_some_and(|m| *size > m))
        {
            let title = format!("the size {name} = {size} is outside its range");
            return Err(Diagnostic::new(Code::E0504, title).at_opt(range.span, "declared here"));
        }
    }
    let mut changed = 0;
    for (name, value) in inputs {
        changed += fix_input(module, name, value)?;
    }
    if sizes.is_empty() {
        return Ok(changed);
    }
    let bind = |v: &str| sizes.get(v).map(|&s| Dim::Const(s));
    module.dims.retain(|name, _| !sizes.contains_key(name));
    for a in module.attributes.values_mut() {
        a.ty = a.ty.take().map(|t| fix_type(&t, &bind));
    }
    changed += each_graph(module, |_, graph| Ok(fix_sizes(graph, &bind)))?;
    Ok(changed)
}

fn fix_input(module: &mut GraphModule, name: &str, value: &Literal) -> Result<usize, Diagnostic> {
    let missing = || Diagnostic::new(Code::E0505, format!("unknown input `{name}`"));
    let graph = module.entry_mut().ok_or_else(missing)?;
    let placeholder = graph
        .placeholders()
        .into_iter()
        .find(|&p| graph[p].target() == name || graph[p].name() == name);
    let p = placeholder.ok_or_else(missing)?;
    let value: Arg = crate::op::lift_literal(value);
    let users: Vec<_> = graph[p].users().collect();
    for u in users {
        graph.map_args(u, |n| if n == p { value.clone() } else { Val::Leaf(n) });
    }
    Ok(graph.erase_node(p).is_ok() as usize)
}

fn fix_type(t: &Type, bind: &dyn Fn(&str) -> Option<Dim>) -> Type {
    let mapped = t.map(|t| {
        let mut t = t.clone();
        t.shape = t.shape.map(|s| s.iter().map(|d| d.substitute(bind)).collect());
        t
    });
    fix_ints(&mapped, bind)
}

fn fix_ints<T: Clone>(v: &Val<T>, bind: &dyn Fn(&str) -> Option<Dim>) -> Val<T> {
    let seq = |v: &[Val<T>]| v.iter().map(|x| fix_ints(x, bind)).collect::<Vec<_>>();
    match v {
        Val::Int(d) => Val::Int(d.substitute(bind)),
        Val::List(v) => Val::List(seq(v)),
        Val::Tuple(v) => Val::Tuple(seq(v)),
        Val::Dict(v) => Val::Dict(v.iter().map(|(k, x)| (k.clone(), fix_ints(x, bind))).collect()),
        Val::Slice(v) => Val::Slice(Box::new([0, 1, 2].map(|i| fix_ints(&v[i], bind)))),
        Val::Range(v) => Val::Range(Box::new([0, 1, 2].map(|i| fix_ints(&v[i], bind)))),
        v => v.clone(),
    }
}

fn fix_sizes(graph: &mut Graph, bind: &dyn Fn(&str) -> Option<Dim>) -> usize {
    let mut changed = 0;
    for n in graph.ids() {
        let args: Vec<Arg> = graph[n].args().iter().map(|a| fix_ints(a, bind)).collect();
        let kwargs: Vec<_> = graph[n]
            .kwargs()
            .iter()
            .map(|(k, a)| (k.clone(), fix_ints(a, bind)))
            .collect();
        if args != graph[n].args() || kwargs != graph[n].kwargs() {
            graph.set_args(n, args);
            graph.set_kwargs(n, kwargs);
            changed += 1;
        }
        let meta = graph.meta_mut(n);
        meta.ty = meta.ty.take().map(|t| fix_type(&t, bind));
    }
    changed
}
