//! Brings equal graphs into one order with one set of names, so that they print equally.
//!
//! Uses Kahn's algorithm with a tie-break that only depends on what a node computes: its callee, its literals and the
//! numbers already assigned to its operands. Impure calls keep their relative order and are barriers for all other
//! calls. Names follow from the order, as torch's namer makes them.
//!
#![doc = include_str!("../examples/canonicalise.md")]

use crate::diag::Diagnostic;
use crate::graph::{Graph, GraphModule, NodeId, Opcode, is_impure, namer};
use crate::pass::build::write_key;
use crate::pass::{PassContext, canonical_op, each_graph};
use crate::types::Val;
use cranelift_entity::EntityRef;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// See the module.
pub(crate) fn run(module: &mut GraphModule, _cx: &mut PassContext) -> Result<usize, Diagnostic> {
    each_graph(module, |module, graph| {
        let before: Vec<(NodeId, String)> = graph.iter().map(|n| (n, graph[n].name().to_string())).collect();
        let order = canonical_order(module, graph);
        for &n in &order {
            if let Some(last) = graph.last() {
                graph.move_after(n, last);
            }
        }
        swap_operands(graph, &order);
        rename_nodes(graph, &order);
        let changed = before
            .iter()
            .zip(graph.iter())
            .filter(|((n, name), m)| n != m || name != graph[*m].name())
            .count();
        Ok(changed)
    })
}

/// Which nodes wait for which.
#[derive(Default)]
struct Dependencies {
    /// How many nodes a node waits for.
    waits: HashMap<NodeId, usize>,
    /// The nodes that wait for a node.
    after: HashMap<NodeId, Vec<NodeId>>,
}

impl Dependencies {
    /// A call waits for its operands and for the last impure call before it. An impure call also waits for all calls
    /// since then.
    fn from_graph(module: &GraphModule, graph: &Graph) -> Dependencies {
        let mut d = Dependencies::default();
        let mut impure: Option<NodeId> = None;
        let mut since: Vec<NodeId> = vec![];
        for n in graph.iter() {
            d.waits.entry(n).or_default();
            for i in graph[n].inputs() {
                d.add(n, i);
            }
            if !graph[n].op().is_call() {
                continue;
            }
            if is_impure(graph, n, Some(module)) {
                for m in since.drain(..).chain(impure) {
                    d.add(n, m);
                }
                impure = Some(n);
            } else {
                if let Some(i) = impure {
                    d.add(n, i);
                }
                since.push(n);
            }
        }
        d
    }

    fn add(&mut self, n: NodeId, on: NodeId) {
        *self.waits.entry(n).or_default() += 1;
        self.after.entry(on).or_default().push(n);
    }

    /// Marks `n` as placed. Returns the nodes that no longer wait for anything.
    fn release_waiting(&mut self, n: NodeId) -> Vec<NodeId> {
        let mut out = self.after.remove(&n).unwrap_or_default();
        out.retain(|m| {
            self.waits.get_mut(m).is_some_and(|w| {
                *w -= 1;
                *w == 0
            })
        });
        out
    }
}

/// The canonical order.
fn canonical_order(module: &GraphModule, graph: &Graph) -> Vec<NodeId> {
    let mut dependencies = Dependencies::from_graph(module, graph);
    let output = graph.output();
    let mut place: HashMap<NodeId, usize> = HashMap::new();
    let mut ready: BinaryHeap<Reverse<(u8, String, usize, NodeId)>> = BinaryHeap::new();
    let mut placeholder = 0;
    let mut push = |n: NodeId, place: &HashMap<NodeId, usize>, ready: &mut BinaryHeap<_>| {
        if Some(n) != output {
            let is_input = graph[n].op() == Opcode::Placeholder;
            placeholder += is_input as usize;
            // Inputs keep their order, which is the graph's interface.
            let key = if is_input {
                String::new()
            } else {
                order_key(graph, n, place)
            };
            ready.push(Reverse((!is_input as u8, key, placeholder * is_input as usize, n)));
        }
    };
    for n in graph.iter().filter(|n| dependencies.waits[n] == 0) {
        push(n, &place, &mut ready);
    }
    let mut out = vec![];
    while let Some(Reverse((_, _, _, n))) = ready.pop() {
        place.insert(n, out.len());
        out.push(n);
        for m in dependencies.release_waiting(n) {
            push(m, &place, &mut ready);
        }
    }
    out.extend(output);
    out
}

/// A key of what a node computes, in terms of the positions of its operands: late operands first, so that a chain stays
/// together.
fn order_key(graph: &Graph, n: NodeId, place: &HashMap<NodeId, usize>) -> String {
    let node = &graph[n];
    let mut inputs: Vec<usize> = node.inputs().iter().filter_map(|i| place.get(i).copied()).collect();
    inputs.sort_unstable_by_key(|&i| Reverse(i));
    let depth: Vec<String> = inputs
        .iter()
        .map(|&i| format!("{:08}", 99_999_999usize.saturating_sub(i)))
        .collect();
    let mut text = format!("{} {} {} ", depth.join(","), node.op(), node.target());
    let numbered = |a: &crate::graph::Arg| a.map(|n| NodeId::new(place.get(n).copied().unwrap_or(0)));
    let mut args: Vec<String> = vec![];
    for a in node.args() {
        let mut s = String::new();
        write_key(&numbered(a), &mut s);
        args.push(s);
    }
    if is_commutative_pair(graph, n) {
        args.sort();
    }
    text.push_str(&args.concat());
    for (k, v) in node.kwargs() {
        text.push_str(k);
        write_key(&numbered(v), &mut text);
    }
    text
}

/// Whether the node is a commutative op of two operands and nothing else.
fn is_commutative_pair(graph: &Graph, n: NodeId) -> bool {
    let plain = graph[n].args().len() == 2 && graph[n].kwargs().is_empty();
    plain && canonical_op(graph, n).is_some_and(|op| op.commutative)
}

/// Sorts the operands of commutative ops by position.
fn swap_operands(graph: &mut Graph, order: &[NodeId]) {
    let place: HashMap<NodeId, usize> = order.iter().enumerate().map(|(i, &n)| (n, i)).collect();
    for &n in order {
        if let [Val::Leaf(a), Val::Leaf(b)] = graph[n].args()
            && is_commutative_pair(graph, n)
            && place[a] > place[b]
        {
            let args = vec![Val::Leaf(*b), Val::Leaf(*a)];
            graph.set_args(n, args);
        }
    }
}

/// Assigns names that follow from the order alone.
fn rename_nodes(graph: &mut Graph, order: &[NodeId]) {
    let mut fresh = Graph::new();
    let mut names = vec![];
    for &n in order {
        let node = &graph[n];
        let candidate = match node.op() {
            Opcode::Output => "output".to_string(),
            op => namer::candidate_name(node.target(), op == Opcode::CallFunction),
        };
        let named = fresh.create_node(node.op(), node.target(), vec![], vec![], Some(&candidate));
        names.push(fresh[named].name().to_string());
    }
    graph.set_names(order.iter().copied().zip(names));
}
