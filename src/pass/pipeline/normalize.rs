//! Brings every call into the canonical form.
//!
//! The target is the row's name. Arguments are in the schema's order with trailing defaults dropped, keyword-only ones
//! by name. Values that inference knows (sizes, numbers, dtypes) become literals, so that the nodes that computed them
//! die. Calls of graphs and writes stay as they are, and so do calls whose op depends on unknown types:
//! `torch._assert(%x, "…")` is one op for a tensor and another for a number.
//!
#![doc = include_str!("../examples/normalize.md")]

use crate::diag::Diagnostic;
use crate::graph::{Arg, Graph, GraphModule, NodeId, Opcode};
use crate::infer::{self, Callee, Operand, Resolved};
use crate::op::OpId;
use crate::pass::build::{NodeArguments, NodeOrigin, canonical_args, same_all};
use crate::pass::{PassContext, each_graph};
use crate::types::{Type, Val};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    normalize(module)
}

/// Brings every call of every graph into canonical form. Returns the number of calls that changed.
pub fn normalize(module: &mut GraphModule) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let mut pass = Normalize::new(module);
        let mut changed = 0;
        for n in graph.ids() {
            changed += pass.normalize_node(graph, n)? as usize;
        }
        Ok(changed)
    })
}

/// Rewrites the nodes of one graph.
pub(in crate::pass) struct Normalize<'m> {
    module: &'m GraphModule,
    /// The `get_attr` nodes made for the attributes of modules.
    attributes: HashMap<Arc<str>, NodeId>,
    /// The nodes made for items of lists.
    items: HashMap<(NodeId, Vec<usize>), NodeId>,
}

impl<'m> Normalize<'m> {
    /// For a graph of `module`, which need not contain the graph at this time.
    pub(in crate::pass) fn new(module: &'m GraphModule) -> Normalize<'m> {
        Normalize {
            module,
            attributes: HashMap::new(),
            items: HashMap::new(),
        }
    }

    pub(in crate::pass) fn module(&self) -> &'m GraphModule {
        self.module
    }

    fn normalize_node(&mut self, graph: &mut Graph, n: NodeId) -> Result<bool, Diagnostic> {
        match graph[n].op() {
            Opcode::Placeholder | Opcode::GetAttr => return Ok(false),
            Opcode::Output => return Ok(write_out_values(graph, n)),
            _ => {}
        }
        let resolved = infer::resolve_node(self.module, graph, n)?;
        if matches!(resolved.callee, Callee::Graph(_)) || resolved.written().is_some() {
            return Ok(false);
        }
        if infer::is_open(self.module, graph, n) {
            return Ok(false);
        }
        self.rewrite(graph, n, &resolved)
    }

    /// Turns the node into the canonical call that it resolves to. If the call writes, the write is dropped.
    pub(in crate::pass) fn rewrite(
        &mut self,
        graph: &mut Graph,
        n: NodeId,
        resolved: &Resolved,
    ) -> Result<bool, Diagnostic> {
        let Some(call) = resolved.call() else { return Ok(false) };
        let op = call.op;
        let mut args = vec![];
        for v in &call.args {
            let arg: Result<Arg, Diagnostic> = v.try_map(&mut |o| self.operand_node(graph, n, o).map(Val::Leaf));
            args.push(arg?);
        }
        let (args, kwargs): NodeArguments = canonical_args(op, args);
        let node = &graph[n];
        if node.op() == Opcode::CallFunction
            && node.target() == op.name
            && same_all(node.args(), &args)
            && node.kwargs() == kwargs
        {
            return Ok(false);
        }
        graph.set_target(n, Opcode::CallFunction, op.name);
        graph.set_args(n, args);
        graph.set_kwargs(n, kwargs);
        Ok(true)
    }

    /// The node of an operand, created before `user` if it does not exist.
    fn operand_node(&mut self, graph: &mut Graph, user: NodeId, o: &Operand) -> Result<NodeId, Diagnostic> {
        match o {
            Operand::Node(n) => Ok(*n),
            Operand::Attr(path) => {
                if let Some(&n) = self.attributes.get(path) {
                    return Ok(n);
                }
                let ty = infer::attribute_type(self.module, path);
                let n = insert_before(graph, user, ty, |g| g.get_attr(path));
                self.attributes.insert(path.clone(), n);
                Ok(n)
            }
            Operand::Item(n, path) => {
                let mut whole = *n;
                for i in 0..path.len() {
                    let key = (*n, path[..=i].to_vec());
                    let item = || item_before(graph, user, whole, path[i]);
                    whole = *self.items.entry(key).or_insert_with(item);
                }
                Ok(whole)
            }
        }
    }
}

/// Inserts a node before `user` that takes item `i` of the value `whole`.
fn item_before(graph: &mut Graph, user: NodeId, whole: NodeId, i: usize) -> NodeId {
    let ty = item_type(graph, whole, i);
    let args = vec![Val::Leaf(whole), Val::int(i as i64)];
    insert_before(graph, user, ty, |g| g.call_op(OpId::ItemOf, args))
}

fn insert_before(graph: &mut Graph, user: NodeId, ty: Type, make: impl FnOnce(&mut Graph) -> NodeId) -> NodeId {
    let source = NodeOrigin::from_node(graph, user, "normalize");
    let before = graph.insert_point();
    graph.set_insert_point(crate::graph::InsertPoint::Before(user));
    let n = make(graph);
    graph.set_insert_point(before);
    source.mark(graph, n, ty);
    n
}

fn item_type(graph: &Graph, n: NodeId, i: usize) -> Type {
    let ty = graph[n].meta.ty.as_ref();
    ty.and_then(|t| t.items()?.get(i).cloned()).unwrap_or(Val::Unknown)
}

/// Replaces the values that inference knows in the graph's result by literals.
fn write_out_values(graph: &mut Graph, n: NodeId) -> bool {
    let known: HashMap<NodeId, Arg> = graph[n]
        .inputs()
        .into_iter()
        .filter(|&i| graph[i].op() != Opcode::Placeholder)
        .filter_map(|i| {
            let ty = graph[i].meta.ty.as_ref()?;
            infer::is_value(ty).then(|| (i, ty.map(|_| unreachable!("a value contains no tensors"))))
        })
        .collect();
    if known.is_empty() {
        return false;
    }
    graph.map_args(n, |i| known.get(&i).cloned().unwrap_or(Val::Leaf(i)));
    true
}
